// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrong clocks: ten times, set while the daemon runs or before a boot, with the directory there and away. Lookups are
//! right, no wrong password is accepted, and no password is lost: with the clock right again and one answer of the
//! directory, each is accepted offline as before.
//!
//! `ROSTER_STORAGE=all` tries all 40 cases; otherwise six are tried.

use roster_request::AuthResult;
use roster_system_tests::clock::{DaemonClock, now_unix};
use roster_system_tests::pam::PASSWORD;
use roster_system_tests::tally::{Tally, sample_cases};
use roster_system_tests::{DirectoryServer, OfflineFixture, needs_root};
use serde_json::Value;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// The lifetime of credentials in [`OfflineFixture`].
const LIFE: i64 = 7 * DAY;
const USERS: [&str; 2] = ["alice", "bob"];

struct Case {
    name: &'static str,
    shift: i64,
    is_boot: bool,
    is_away: bool,
}

fn cases() -> Vec<Case> {
    let now = i64::try_from(now_unix()).expect("a time");
    let shifts = [
        ("before 1970", -now - DAY),
        ("8 d ahead", 8 * DAY),
        ("10 y behind", -3653 * DAY),
        ("after 2038", (1 << 31) + DAY - now),
        ("1970", HOUR - now),
        ("10 min ahead", 10 * MINUTE),
        ("7 h behind", -7 * HOUR),
        ("after 2106", (1 << 32) + DAY - now),
        ("10 min behind", -10 * MINUTE),
        ("7 h ahead", 7 * HOUR),
    ];
    let mut cases = Vec::new();
    for (is_boot, is_away) in [(false, true), (true, true), (true, false), (false, false)] {
        cases.extend(shifts.map(|(name, shift)| Case { name, shift, is_boot, is_away }));
    }
    cases
}

impl Case {
    fn what(&self) -> String {
        let when = if self.is_boot { "before a boot" } else { "while it runs" };
        let directory = if self.is_away { "away" } else { "there" };
        format!("{}, {when}, directory {directory}", self.name)
    }

    /// The verdict on a right password while the clock is wrong.
    fn outcome(&self) -> AuthResult {
        if self.is_away && self.shift > LIFE {
            AuthResult::Unreachable
        } else {
            AuthResult::Success
        }
    }
}

/// Sets the wrong clock.
fn begin(kept: &mut OfflineFixture, clock: &DaemonClock, case: &Case) {
    if case.is_boot {
        kept.rosterd.stop();
        if case.is_away {
            kept.slapd.stop();
        }
        clock.set_shift(case.shift);
        kept.launch();
        kept.rosterd.expect_domain_status("corp", "online", !case.is_away);
    } else {
        if case.is_away {
            kept.stop_directory();
        }
        clock.set_shift(case.shift);
    }
}

fn look(kept: &OfflineFixture, tally: &mut Tally, case: &Case) {
    for user in USERS {
        let found = kept.rosterd.getent("passwd", user);
        let is_right = found == Some(kept.passwd_line(user, "/bin/sh"));
        tally.check(is_right, "wrong", || format!("{}: {found:?}", case.what()));
    }
    let guess = kept.auth_result_when_known("bob", "a guess");
    tally.check(guess != AuthResult::Success, "let in wrongly", || case.what());
}

#[test]
fn clock_wrong_in_any_way_loses_nothing() {
    if !needs_root() {
        return;
    }
    let kinds = ["wrong", "let in wrongly", "kept passwords lost"];
    let mut tally = Tally::for_campaign("clocks", &kinds);
    let mut kept = OfflineFixture::prepared(&USERS);
    // Each start is another boot.
    let boot = kept.rosterd.host().path("boot_id");
    let clock = DaemonClock::for_daemon_after(
        &mut kept.rosterd,
        &format!(
            "cat /proc/sys/kernel/random/uuid > '{0}'; mount --bind '{0}' /proc/sys/kernel/random/boot_id; ",
            boot.display()
        ),
    );
    kept.launch();
    kept.login_all();
    let cases = sample_cases(cases(), 6);
    let number = cases.len() as u64;
    for case in cases {
        begin(&mut kept, &clock, &case);
        look(&kept, &mut tally, &case);
        let said = kept.auth_result_when_known("alice", PASSWORD);
        tally.check(said == case.outcome(), "wrong", || {
            format!("{}: {said:?}: {}", case.what(), kept.log())
        });

        clock.set_shift(0);
        if case.is_away {
            kept.start_directory();
        }
        kept.rosterd.expect_domain_status("corp", "clock_error", Value::Null);
        kept.stop_directory();
        look(&kept, &mut tally, &case);
        for user in USERS {
            let said = kept.auth_result_when_known(user, PASSWORD);
            tally.check(said == AuthResult::Success, "kept passwords lost", || {
                format!("{}: {user}: {said:?}: {}", case.what(), kept.log())
            });
        }
        kept.start_directory();
        tally.count("cases");
    }
    tally.finish("cases", number);
}
