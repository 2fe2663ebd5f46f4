//! A wall clock that is set ten years back or ahead, while the daemon runs and between two of its lives:
//! changes are followed, what was asked on demand is asked again, nobody goes, and no password lives longer.

use roster_system_tests::clock::{Clock, now_unix};
use roster_system_tests::host::tool;
use roster_system_tests::pam::{self, PASSWORD};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::{
    Directory, Domain, Rosterd, Schema, Server, Setup, Slapd, needs_root, run, wait_for, wait_until,
};
use roster_wire::pam::{Kind, Verdict};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const TEN_YEARS: i64 = 3653 * 86_400;
const LAB: &str = "dc=lab,dc=example";

/// The year in which a clock that is so far off is.
fn year(shift: i64) -> String {
    let there = now_unix().checked_add_signed(shift).expect("after 1970");
    run(Command::new(tool("date", "coreutils")).args(["-u", &format!("--date=@{there}"), "+%Y-"]))
        .text()
}

struct World {
    corp: Slapd,
    lab: Slapd,
    steps: u32,
}

impl World {
    /// Whatever the clock says: changes come, what was asked is asked again, newcomers are found, and
    /// everybody else stays.
    fn goes_on(&mut self, rosterd: &Rosterd, shift: i64) {
        self.steps += 1;
        let (corp, lab) = (Directory::new(Schema::Rfc2307), Directory::at(LAB, Schema::Rfc2307));
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
fn a_clock_that_is_set_back_or_ahead_stops_nothing_and_takes_nobody_away() {
    let setup = Setup::new(Schema::Rfc2307);
    let people = Directory::new(Schema::Rfc2307);
    let others = Directory::at(LAB, Schema::Rfc2307);
    let crowd: String =
        (0..40).map(|number| people.user(&format!("c{number}"), 5100 + number)).collect();
    let corp =
        Slapd::serving(setup.clone(), &(people.tree() + &people.user("alice", 5001) + &crowd));
    let lab = Slapd::serving(
        Setup { base: LAB.to_owned(), ..setup },
        &(others.tree() + &others.user("laura", 7001)),
    );
    let on_demand = Domain::ldap("lab", &lab)
        .with("mode", "\"on-demand\"")
        .with("refresh", "\"1s\"")
        .with("negative", "\"1s\"");
    let mut rosterd = Rosterd::prepared(&[Domain::ldap("corp", &corp), on_demand]);
    let mut world = World { corp, lab, steps: 0 };

    let clock = Clock::of(&mut rosterd);
    let start = |rosterd: &mut Rosterd| {
        rosterd.launch();
        rosterd.expect_of_domain("lab", "online", true);
        rosterd.expect_of_domain("corp", "online", true);
    };
    start(&mut rosterd);
    world.goes_on(&rosterd, 0);

    for (shift, runs_meanwhile) in
        [(-TEN_YEARS, true), (TEN_YEARS, false), (0, true), (TEN_YEARS, true), (-TEN_YEARS, false)]
    {
        if !runs_meanwhile {
            rosterd.stop();
        }
        clock.set(shift);
        if !runs_meanwhile {
            start(&mut rosterd);
        }
        world.goes_on(&rosterd, shift);
    }
    // Nothing is asked or written more often than before, whatever time has passed for the clock.
    let before = world.lab.searches();
    std::thread::sleep(Duration::from_secs(3));
    assert!(world.lab.searches() - before <= 40, "questions without pause");
    wait_until(SOON, "all is well", || rosterd.status().is_ok());
}

/// What a responder says of a password.
fn verdict(rosterd: &Rosterd, user: &str, password: &str) -> Result<Verdict, String> {
    pam::verdict(rosterd, Kind::Authenticate, user, password)
}

/// Waits until the responder says that of a password.
fn expect(rosterd: &Rosterd, user: &str, wanted: Verdict, when: &str) {
    wait_for(SOON, || match verdict(rosterd, user, PASSWORD)? {
        said if said == wanted => Ok(()),
        said => Err(format!("{when}: {said:?} and not {wanted:?}: {}", rosterd.log())),
    });
}

/// Logs in while the directory answers, and waits until that is kept.
fn keep(rosterd: &Rosterd, user: &str) {
    expect(rosterd, user, Verdict::Success, "the directory answers");
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
    let mut slapd = pam::directory(&["alice", "bob"]);
    let domain = pam::domain(&slapd)
        .with("offline_life", "\"7d\"")
        .with("connect_timeout", "\"1s\"")
        .with("password_hash_time", "\"10ms\"");
    let mut rosterd = Rosterd::prepared(&[domain]);
    let clock = Clock::of(&mut rosterd);
    rosterd.launch();
    keep(&rosterd, "alice");
    keep(&rosterd, "bob");
    pam::take_away(&mut slapd, &rosterd);
    rosterd.stop();
    clock.set(DAYS);
    rosterd.launch();
    expect(&rosterd, "alice", Verdict::Unreachable, "it may be that late");
    // What is too old is cleared up at the start, before the first answer.
    let backend = rosterd.wait_for_role("backend:corp");
    rosterd.kill_role("backend:corp");
    wait_until(SOON, "it has ended", || rosterd.role("backend:corp") != Some(backend));
    let kept = wait_for(SOON, || match rosterd.roster(&["cache", "credentials"]) {
        told if told.code == 0 => Ok(told.text()),
        told => Err(told.error()),
    });
    assert!(kept.contains("alice") && kept.contains("bob"), "passwords were deleted: {kept}");
    expect(&rosterd, "alice", Verdict::Unreachable, "after another start");

    clock.set(0);
    wait_for(SOON, || {
        let told = rosterd.roster(&["status"]);
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        let is_told = text.contains("the clock of this host is not believed: it is 8 d behind");
        if told.code == 1 && is_told { Ok(()) } else { Err(text) }
    });
    slapd.start();
    rosterd.expect_of_domain("corp", "online", true);
    rosterd.expect_of_domain("corp", "clock_error", Value::Null);
    pam::take_away(&mut slapd, &rosterd);
    for user in ["alice", "bob"] {
        expect(&rosterd, user, Verdict::Success, "without a log-in by the directory");
        assert_eq!(verdict(&rosterd, user, "wrong"), Ok(Verdict::WrongPassword));
    }
}

#[test]
fn account_clock_ahead_for_moment_expires_nothing() {
    if !needs_root() {
        return;
    }
    const DAY: i64 = 86_400;
    let mut slapd = pam::directory(&["alice"]);
    let today = now_unix() / 86_400;
    let people = Directory::new(Schema::Rfc2307);
    slapd.set(&people.user_dn("alice"), "shadowExpire", &[&(today + 30).to_string()]);
    let domain = pam::domain(&slapd)
        .with("connect_timeout", "\"1s\"")
        .with("password_hash_time", "\"10ms\"");
    let mut rosterd = Rosterd::prepared(&[domain]);
    let clock = Clock::of(&mut rosterd);
    rosterd.launch();
    let account = |rosterd: &Rosterd| pam::verdict(rosterd, Kind::Account, "alice", "");
    keep(&rosterd, "alice");
    assert_eq!(account(&rosterd), Ok(Verdict::Success));
    clock.set(40 * DAY);
    assert_eq!(account(&rosterd), Ok(Verdict::AccountExpired));
    clock.set(0);
    assert_eq!(account(&rosterd), Ok(Verdict::Success), "{}", rosterd.log());
    pam::take_away(&mut slapd, &rosterd);
    assert_eq!(account(&rosterd), Ok(Verdict::Success), "{}", rosterd.log());
}

#[test]
fn what_is_kept_of_a_password_lives_no_longer_when_the_clock_is_set_back() {
    if !needs_root() {
        return;
    }
    const MINUTE: i64 = 60;
    let mut slapd = pam::directory(&["alice"]);
    let domain = pam::domain(&slapd)
        .with("offline_life", "\"1h\"")
        .with("connect_timeout", "\"1s\"")
        .with("password_hash_time", "\"10ms\"");
    let mut rosterd = Rosterd::prepared(&[domain]);
    let clock = Clock::of(&mut rosterd);
    rosterd.launch();
    keep(&rosterd, "alice");
    pam::take_away(&mut slapd, &rosterd);
    expect(&rosterd, "alice", Verdict::Success, "at once");
    clock.set(59 * MINUTE);
    expect(&rosterd, "alice", Verdict::Success, "within its life");
    clock.set(61 * MINUTE);
    expect(&rosterd, "alice", Verdict::Unreachable, "its life is over");
    for shift in [0, -TEN_YEARS] {
        clock.set(shift);
        // Not for a moment.
        assert_eq!(verdict(&rosterd, "alice", PASSWORD), Ok(Verdict::Unreachable), "{shift}");
    }
    rosterd.stop();
    rosterd.launch();
    expect(&rosterd, "alice", Verdict::Unreachable, "after a start with the clock set back");

    // What a directory finds right counts by the clock that the host has now.
    clock.set(0);
    slapd.start();
    keep(&rosterd, "alice");
    pam::take_away(&mut slapd, &rosterd);
    expect(&rosterd, "alice", Verdict::Success, "it is kept anew");
}
