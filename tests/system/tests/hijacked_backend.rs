//! A back-end that was taken over, played by a client of the bus under its user: whatever it says, no
//! uid 0, no local name and no other domain's user comes of it, and nobody obeys it.

use roster_system_tests::rosterd::{FIRST_ROLE_UID, Rosterd, SOON, Source};
use roster_system_tests::{
    Directory, Domain, Schema, Server, Setup, Slapd, needs_root, run, tool, wait_until,
};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::sleep;
use std::time::Duration;

const LAB: &str = "dc=lab,dc=example";

/// `lab` comes second, so that what is wrong about `corp` could hurt it.
struct Prey {
    corp: Slapd,
    lab: Slapd,
    rosterd: Rosterd,
}

impl Prey {
    fn start() -> Self {
        let directory = Directory::new(Schema::Rfc2307);
        let people = [
            directory.tree(),
            directory.user("alice", 5000),
            directory.group("staff", 6000, &["alice"]),
        ]
        .concat();
        let corp = Slapd::serving(Setup::new(Schema::Rfc2307), &people);
        let other = Directory::at(LAB, Schema::Rfc2307);
        let people = [
            other.tree(),
            other.user_in("carla", 7001, 8000),
            other.group("wheel-lab", 8000, &["carla"]),
        ]
        .concat();
        let mut setup = Setup::new(Schema::Rfc2307);
        setup.base = LAB.to_owned();
        let lab = Slapd::serving(setup, &people);
        // lab first: nothing that corp makes up may take its place.
        let domains = [Domain::ldap("lab", &lab), Domain::ldap("corp", &corp)];
        let mut rosterd = Rosterd::installed(&domains);
        rosterd.launch();
        rosterd.expect_mirror(&[Source::Server(&lab), Source::Server(&corp)]);
        Self { corp, lab, rosterd }
    }

    /// The impostor, under the user of corp's back-end.
    fn impostor(&self, what: &str) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/impostor.py");
        // A copy that every user can read.
        let copy = self.rosterd.host().path("impostor.py");
        std::fs::copy(script, &copy).expect("copy the impostor");
        const CORP: u32 = FIRST_ROLE_UID + 4;
        let mut command = self.rosterd.inside(&tool("setpriv", "util-linux"));
        command.args([
            &format!("--reuid={CORP}"),
            &format!("--regid={FIRST_ROLE_UID}"),
            "--clear-groups",
        ]);
        command.args(["python3", "-u"]).arg(copy).args(["/run/roster/bus", what, "corp"]);
        command
    }
}

#[test]
fn it_may_own_no_other_name_and_nobody_obeys_it() {
    if !needs_root() {
        return;
    }
    let prey = Prey::start();
    let publisher = prey.rosterd.wait_for_role("publisher");
    let done = run(&mut prey.impostor("try"));
    let tries = done.text();
    println!("{tries}");
    assert_eq!(tries.lines().count(), 8 + 14, "{tries}");
    for line in tries.lines() {
        assert!(line.ends_with(" org.freedesktop.DBus.Error.AccessDenied"), "{line}");
    }
    sleep(Duration::from_secs(1));
    assert_eq!(prey.rosterd.role("publisher"), Some(publisher), "it was not stopped");
    prey.corp.change(&Directory::new(Schema::Rfc2307).user("after", 5500));
    prey.rosterd.expect_mirror(&[Source::Server(&prey.lab), Source::Server(&prey.corp)]);
}

/// So is one that grew too large: a publisher that begins anew cannot take it, and nobody waits for it.
#[test]
fn one_that_hands_over_what_cannot_be_taken_keeps_no_other_domain_waiting() {
    if !needs_root() {
        return;
    }
    let mut prey = Prey::start();
    let mut impostor = prey
        .impostor("exceed")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the impostor");
    let mut told = BufReader::new(impostor.stdout.take().expect("was piped"));
    let mut says = |expected: &str| {
        let mut line = String::new();
        while line != expected {
            line.clear();
            assert!(told.read_line(&mut line).expect("read") > 0, "no {expected}");
        }
    };
    says("waiting\n");
    prey.rosterd.process().freeze();
    prey.rosterd.kill_role("backend:corp");
    says("owned\n");
    prey.rosterd.kill_role("publisher");
    prey.rosterd.process().signal(Signal::CONT);
    wait_until(SOON, "nothing of corp is taken", || {
        let corp = prey.rosterd.domain("corp").unwrap_or_default();
        corp["not_taken"].as_str().is_some_and(|why| why.contains("4294967294"))
    });
    let other = Directory::at(LAB, Schema::Rfc2307);
    prey.lab.change(&other.user("after", 7500));
    prey.rosterd.expect_mirror(&[Source::Server(&prey.lab), Source::Server(&prey.corp)]);

    // With the real one back, so is what changes.
    drop(impostor.stdin.take());
    impostor.wait().expect("wait for the impostor");
    prey.corp.change(&Directory::new(Schema::Rfc2307).user("later", 5500));
    prey.rosterd.expect_mirror(&[Source::Server(&prey.lab), Source::Server(&prey.corp)]);
}

/// The fault may be the publisher's own, as when it has no descriptor left to read an image.
#[test]
fn change_refused_twice_is_fetched_again_without_signal() {
    if !needs_root() {
        return;
    }
    let mut prey = Prey::start();
    let mut impostor = prey
        .impostor("silent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the impostor");
    let told = BufReader::new(impostor.stdout.take().expect("was piped"));
    let (teller, lines) = mpsc::channel();
    std::thread::spawn(move || {
        told.lines().map_while(Result::ok).try_for_each(|line| teller.send(line))
    });
    let says = |expected: &str| {
        let within = || lines.recv_timeout(SOON).unwrap_or_else(|_| panic!("it is not {expected}"));
        while within() != expected {}
    };
    says("waiting");
    prey.rosterd.process().freeze();
    prey.rosterd.kill_role("backend:corp");
    // Its name's new owner alone makes it fetched a few times.
    says("fetched 10");
    prey.rosterd.process().signal(Signal::CONT);
    drop(impostor.stdin.take());
    impostor.wait().expect("wait for the impostor");
    prey.corp.change(&Directory::new(Schema::Rfc2307).user("later", 5500));
    prey.rosterd.expect_mirror(&[Source::Server(&prey.lab), Source::Server(&prey.corp)]);
}

#[test]
fn what_it_hands_over_is_judged_entry_by_entry() {
    if !needs_root() {
        return;
    }
    let mut prey = Prey::start();
    // The monitor is held, lest it start the real one again.
    let mut impostor = prey
        .impostor("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the impostor");
    let mut told = BufReader::new(impostor.stdout.take().expect("was piped"));
    let mut line = String::new();
    told.read_line(&mut line).expect("read");
    assert_eq!(line, "waiting\n");
    prey.rosterd.process().freeze();
    prey.rosterd.kill_role("backend:corp");

    wait_until(SOON, "the impostor's entries have arrived", || {
        prey.rosterd.getent("passwd", "arrived").is_some()
    });
    let names = |database: &str| {
        let text = prey.rosterd.host().run("getent", &["-s", "roster", database]).text();
        let mut names: Vec<_> = text
            .lines()
            .map(|line| line.split(':').next().unwrap_or_default().to_owned())
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names("passwd"), ["arrived", "carla"]);
    assert_eq!(names("group"), ["mine", "ring1", "ring2", "wheel-lab"]);
    let host = &prey.rosterd;
    let carla = format!("carla:*:7001:8000:carla of {LAB}:/home/carla:/bin/sh");
    assert_eq!(host.getent("passwd", "carla"), Some(carla.clone()));
    assert_eq!(host.getent("passwd", "7001"), Some(carla));
    assert_eq!(host.getent("group", "wheel-lab").as_deref(), Some("wheel-lab:*:8000:carla"));
    assert_eq!(host.getent("group", "mine").as_deref(), Some("mine:*:5303:arrived"));
    for id in ["0", "42", "999", "1500", "65534", "65535", "4294967295"] {
        assert_eq!(host.getent("passwd", id), None, "uid {id}");
        assert_eq!(host.getent("group", id), None, "gid {id}");
    }
    host.expect_groups("carla", 8000, &[8000]);
    host.expect_groups("arrived", 5000, &[5000, 5303]);

    // With the real one back, so is what is true.
    drop(impostor.stdin.take());
    impostor.wait().expect("wait for the impostor");
    prey.rosterd.process().signal(Signal::CONT);
    prey.rosterd.expect_mirror(&[Source::Server(&prey.lab), Source::Server(&prey.corp)]);
}
