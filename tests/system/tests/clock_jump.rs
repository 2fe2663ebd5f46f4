// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wall clock that is set ten years back or ahead, while the daemon runs and between two of its lives. Changes are
//! followed, and entries of on-demand domains are refreshed. No user disappears, and no password is valid longer.

use roster_request::{AuthRequestKind, AuthResult};
use roster_system_tests::clock::{DaemonClock, now_unix};
use roster_system_tests::pam::{self, PASSWORD};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::test_host::find_tool;
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, needs_root,
    run, wait_for, wait_until,
};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const TEN_YEARS: i64 = 3653 * 86_400;
const LAB: &str = "dc=lab,dc=example";

/// The year of a clock that is so far off.
fn year(shift: i64) -> String {
    let there = now_unix().checked_add_signed(shift).expect("after 1970");
    run(Command::new(find_tool("date", "coreutils")).args([
        "-u",
        &format!("--date=@{there}"),
        "+%Y-",
    ]))
    .text()
}

struct World {
    corp: Slapd,
    lab: Slapd,
    steps: u32,
}

impl World {
    /// With any clock: changes come, on-demand entries are refreshed, new users are found, and all other users stay.
    fn goes_on(&mut self, rosterd: &Rosterd, shift: i64) {
        self.steps += 1;
        let (corp, lab) =
            (LdifBuilder::new(Schema::Rfc2307), LdifBuilder::below_base(LAB, Schema::Rfc2307));
        let line = |name: &str, id: u32, base: &str, shell: &str| {
            format!("{name}:*:{id}:{id}:{name} of {base}:/home/{name}:{shell}")
        };
        let shell = format!("/bin/sh{}", self.steps);

        self.corp.set(&corp.user_dn("alice"), "loginShell", &[&shell]);
        let alice = line("alice", 5001, self.corp.base(), &shell);
        rosterd.expect("passwd", "alice", Some(&alice));
        self.lab.set(&lab.user_dn("laura"), "loginShell", &[&shell]);
        let laura = line("laura", 7001, LAB, &shell);
        rosterd.expect("passwd", "laura", Some(&laura));

        let (name, id) = (format!("new{}", self.steps), 8000 + self.steps);
        assert_eq!(rosterd.getent("passwd", &name), None);
        self.lab.change(&lab.user(&name, id));
        let newcomer = line(&name, id, LAB, "/bin/sh");
        rosterd.expect("passwd", &name, Some(&newcomer));
        self.lab.delete(&[lab.user_dn(&name)]);
        rosterd.expect("passwd", &name, None);

        let domain = rosterd.domain("corp").expect("a status");
        assert_eq!(domain["users"], 41, "{domain}");
        for user in (0..40).map(|number| format!("c{number}")) {
            assert!(rosterd.getent("passwd", &user).is_some(), "{user}");
        }
        let log = rosterd.log();
        let last = log.lines().rfind(|line| line.contains(" published ")).expect("a publication");
        assert!(last.starts_with(&year(shift)), "the clock was moved: {last}");
        assert!(!log.contains("mass_deletion"), "{log}");
    }
}

#[test]
fn clock_jump_stops_nothing_and_removes_none() {
    let setup = SlapdOptions::new(Schema::Rfc2307);
    let people = LdifBuilder::new(Schema::Rfc2307);
    let others = LdifBuilder::below_base(LAB, Schema::Rfc2307);
    let crowd: String =
        (0..40).map(|number| people.user(&format!("c{number}"), 5100 + number)).collect();
    let corp =
        Slapd::serving(setup.clone(), &(people.tree() + &people.user("alice", 5001) + &crowd));
    let lab = Slapd::serving(
        SlapdOptions { base: LAB.to_owned(), ..setup },
        &(others.tree() + &others.user("laura", 7001)),
    );
    let on_demand = DomainTable::ldap("lab", &lab)
        .with("mode", "\"on-demand\"")
        .with("refresh_interval", "\"1s\"")
        .with("negative_ttl", "\"1s\"");
    let mut rosterd = Rosterd::prepared(&[DomainTable::ldap("corp", &corp), on_demand]);
    let mut world = World { corp, lab, steps: 0 };

    let clock = DaemonClock::for_daemon(&mut rosterd);
    let start = |rosterd: &mut Rosterd| {
        rosterd.launch();
        rosterd.expect_domain_status("lab", "online", true);
        rosterd.expect_domain_status("corp", "online", true);
    };
    start(&mut rosterd);
    world.goes_on(&rosterd, 0);

    for (shift, runs_meanwhile) in
        [(-TEN_YEARS, true), (TEN_YEARS, false), (0, true), (TEN_YEARS, true), (-TEN_YEARS, false)]
    {
        if !runs_meanwhile {
            rosterd.stop();
        }
        clock.set_shift(shift);
        if !runs_meanwhile {
            start(&mut rosterd);
        }
        world.goes_on(&rosterd, shift);
    }
    // Searches and writes are not more frequent than before, however far the clock has moved.
    let before = world.lab.searches();
    std::thread::sleep(Duration::from_secs(3));
    assert!(world.lab.searches() - before <= 40, "questions without pause");
    wait_until(SOON, "all is well", || rosterd.status().is_ok());
}

/// The responder's verdict on a password.
fn verdict(rosterd: &Rosterd, user: &str, password: &str) -> Result<AuthResult, String> {
    pam::auth_result(rosterd, AuthRequestKind::Authenticate, user, password)
}

/// Waits until the responder returns this result for a password.
fn expect(rosterd: &Rosterd, user: &str, wanted: AuthResult, when: &str) {
    wait_for(SOON, || match verdict(rosterd, user, PASSWORD)? {
        said if said == wanted => Ok(()),
        said => Err(format!("{when}: {said:?} and not {wanted:?}: {}", rosterd.log())),
    });
}

/// Logs in while the directory answers, and waits until the credentials are cached.
fn keep(rosterd: &Rosterd, user: &str) {
    expect(rosterd, user, AuthResult::Success, "the directory answers");
    wait_until(SOON, "it is kept", || {
        rosterd.roster(&["cache", "credentials"]).text().contains(user)
    });
}

#[test]
fn offline_clock_ahead_at_start_loses_nothing() {
    if !needs_root() {
        return;
    }
    const DAYS: i64 = 8 * 86_400;
    let mut slapd = pam::slapd_with_users(&["alice", "bob"]);
    let domain = pam::domain(&slapd)
        .with("offline_credentials_expiration", "\"7d\"")
        .with("connect_timeout", "\"1s\"")
        .with("argon2_target_time", "\"10ms\"");
    let mut rosterd = Rosterd::prepared(&[domain]);
    let clock = DaemonClock::for_daemon(&mut rosterd);
    rosterd.launch();
    keep(&rosterd, "alice");
    keep(&rosterd, "bob");
    pam::stop_server(&mut slapd, &rosterd);
    rosterd.stop();
    clock.set_shift(DAYS);
    rosterd.launch();
    expect(&rosterd, "alice", AuthResult::Unreachable, "it may be that late");
    // Expired credentials are deleted at the start, before the first answer.
    let backend = rosterd.wait_for_role("backend:corp");
    rosterd.kill_role("backend:corp");
    wait_until(SOON, "it has ended", || rosterd.role("backend:corp") != Some(backend));
    let kept = wait_for(SOON, || match rosterd.roster(&["cache", "credentials"]) {
        told if told.code == 0 => Ok(told.text()),
        told => Err(told.error()),
    });
    assert!(kept.contains("alice") && kept.contains("bob"), "passwords were deleted: {kept}");
    expect(&rosterd, "alice", AuthResult::Unreachable, "after another start");

    clock.set_shift(0);
    wait_for(SOON, || {
        let told = rosterd.roster(&["status"]);
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        let is_told = text.contains("the clock is 8 d behind the latest known time");
        if told.code == 1 && is_told { Ok(()) } else { Err(text) }
    });
    slapd.start();
    rosterd.expect_domain_status("corp", "online", true);
    rosterd.expect_domain_status("corp", "clock_error", Value::Null);
    pam::stop_server(&mut slapd, &rosterd);
    for user in ["alice", "bob"] {
        expect(&rosterd, user, AuthResult::Success, "without a log-in by the directory");
        assert_eq!(verdict(&rosterd, user, "wrong"), Ok(AuthResult::WrongPassword));
    }
}

#[test]
fn account_clock_ahead_for_moment_expires_nothing() {
    if !needs_root() {
        return;
    }
    const DAY: i64 = 86_400;
    let mut slapd = pam::slapd_with_users(&["alice"]);
    let today = now_unix() / 86_400;
    let people = LdifBuilder::new(Schema::Rfc2307);
    slapd.set(&people.user_dn("alice"), "shadowExpire", &[&(today + 30).to_string()]);
    let domain = pam::domain(&slapd)
        .with("connect_timeout", "\"1s\"")
        .with("argon2_target_time", "\"10ms\"");
    let mut rosterd = Rosterd::prepared(&[domain]);
    let clock = DaemonClock::for_daemon(&mut rosterd);
    rosterd.launch();
    let account =
        |rosterd: &Rosterd| pam::auth_result(rosterd, AuthRequestKind::Account, "alice", "");
    keep(&rosterd, "alice");
    assert_eq!(account(&rosterd), Ok(AuthResult::Success));
    clock.set_shift(40 * DAY);
    assert_eq!(account(&rosterd), Ok(AuthResult::AccountExpired));
    clock.set_shift(0);
    assert_eq!(account(&rosterd), Ok(AuthResult::Success), "{}", rosterd.log());
    pam::stop_server(&mut slapd, &rosterd);
    assert_eq!(account(&rosterd), Ok(AuthResult::Success), "{}", rosterd.log());
}

#[test]
fn offline_credential_expires_when_clock_set_back() {
    if !needs_root() {
        return;
    }
    const MINUTE: i64 = 60;
    let mut slapd = pam::slapd_with_users(&["alice"]);
    let domain = pam::domain(&slapd)
        .with("offline_credentials_expiration", "\"1h\"")
        .with("connect_timeout", "\"1s\"")
        .with("argon2_target_time", "\"10ms\"");
    let mut rosterd = Rosterd::prepared(&[domain]);
    let clock = DaemonClock::for_daemon(&mut rosterd);
    rosterd.launch();
    keep(&rosterd, "alice");
    pam::stop_server(&mut slapd, &rosterd);
    expect(&rosterd, "alice", AuthResult::Success, "at once");
    clock.set_shift(59 * MINUTE);
    expect(&rosterd, "alice", AuthResult::Success, "within its life");
    clock.set_shift(61 * MINUTE);
    expect(&rosterd, "alice", AuthResult::Unreachable, "its life is over");
    for shift in [0, -TEN_YEARS] {
        clock.set_shift(shift);
        // Not for a moment.
        assert_eq!(verdict(&rosterd, "alice", PASSWORD), Ok(AuthResult::Unreachable), "{shift}");
    }
    rosterd.stop();
    rosterd.launch();
    expect(&rosterd, "alice", AuthResult::Unreachable, "after a start with the clock set back");

    // Credentials that a directory accepts count by the clock that the host has now.
    clock.set_shift(0);
    slapd.start();
    keep(&rosterd, "alice");
    pam::stop_server(&mut slapd, &rosterd);
    expect(&rosterd, "alice", AuthResult::Success, "it is kept anew");
}
