// SPDX-License-Identifier: MIT OR Apache-2.0
//! A compromised backend, played by a client of the bus under its user. No data of it leads to uid 0, a local name or
//! another domain's user, and no receiver obeys its calls.

use roster_system_tests::rosterd::{FIRST_ROLE_UID, OracleSource, Rosterd, SOON};
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Schema, Slapd, SlapdOptions, find_tool, needs_root,
    run, wait_until,
};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::sleep;
use std::time::Duration;

const LAB: &str = "dc=lab,dc=example";

/// `lab` comes second, so that faults in `corp` could hurt it.
struct Prey {
    corp: Slapd,
    lab: Slapd,
    rosterd: Rosterd,
}

impl Prey {
    fn start() -> Self {
        let directory = LdifBuilder::new(Schema::Rfc2307);
        let people = [
            directory.tree(),
            directory.user("alice", 5000),
            directory.group("staff", 6000, &["alice"]),
        ]
        .concat();
        let corp = Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &people);
        let other = LdifBuilder::below_base(LAB, Schema::Rfc2307);
        let people = [
            other.tree(),
            other.user_in("carla", 7001, 8000),
            other.group("wheel-lab", 8000, &["carla"]),
        ]
        .concat();
        let mut setup = SlapdOptions::new(Schema::Rfc2307);
        setup.base = LAB.to_owned();
        let lab = Slapd::serving(setup, &people);
        // lab first: no invented entry of corp may take the place of its entries.
        let domains = [DomainTable::ldap("lab", &lab), DomainTable::ldap("corp", &corp)];
        let mut rosterd = Rosterd::installed(&domains);
        rosterd.launch();
        rosterd.expect_mirror(&[OracleSource::Server(&lab), OracleSource::Server(&corp)]);
        Self { corp, lab, rosterd }
    }

    /// The impostor, under the user of corp's backend.
    fn impostor(&self, what: &str) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/compromised_backend.py");
        // A copy that every user can read.
        let copy = self.rosterd.host().path("compromised_backend.py");
        std::fs::copy(script, &copy).expect("copy the impostor");
        const CORP: u32 = FIRST_ROLE_UID + 4;
        let mut command = self.rosterd.command_inside(&find_tool("setpriv", "util-linux"));
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
    prey.corp.change(&LdifBuilder::new(Schema::Rfc2307).user("after", 5500));
    prey.rosterd
        .expect_mirror(&[OracleSource::Server(&prey.lab), OracleSource::Server(&prey.corp)]);
}

/// A new publisher cannot accept a domain that grew too large. It serves the last snapshot as it is until it can.
#[test]
fn publisher_rejected_domain_keeps_last_snapshot() {
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
        corp["update_error"].as_str().is_some_and(|why| why.contains("4294967294"))
    });
    let other = LdifBuilder::below_base(LAB, Schema::Rfc2307);
    prey.lab.change(&other.user("after", 7500));
    wait_until(SOON, "the status says what the next snapshot waits for", || {
        let status = prey.rosterd.status().unwrap_or_default();
        status["snapshot"]["waiting_for"] == "domain corp can be read"
    });
    assert!(prey.rosterd.getent("passwd", "alice").is_some());
    assert_eq!(prey.rosterd.getent("passwd", "after"), None);

    // With the real backend there is a next snapshot.
    drop(impostor.stdin.take());
    impostor.wait().expect("wait for the impostor");
    prey.corp.change(&LdifBuilder::new(Schema::Rfc2307).user("later", 5500));
    prey.rosterd
        .expect_mirror(&[OracleSource::Server(&prey.lab), OracleSource::Server(&prey.corp)]);
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
    // Only the new owner of its name makes the publisher fetch, a few times.
    says("fetched 10");
    prey.rosterd.process().signal(Signal::CONT);
    drop(impostor.stdin.take());
    impostor.wait().expect("wait for the impostor");
    prey.corp.change(&LdifBuilder::new(Schema::Rfc2307).user("later", 5500));
    prey.rosterd
        .expect_mirror(&[OracleSource::Server(&prey.lab), OracleSource::Server(&prey.corp)]);
}

#[test]
fn what_it_hands_over_is_judged_entry_by_entry() {
    if !needs_root() {
        return;
    }
    let mut prey = Prey::start();
    // The monitor is frozen, so that it does not start the real backend again.
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
    // The names of lab are served with the domain of the impostor.
    assert_eq!(names("passwd"), ["arrived", "carla", "carla@corp"]);
    assert_eq!(names("group"), ["mine", "ring1", "ring2", "wheel-lab", "wheel-lab@corp"]);
    let host = &prey.rosterd;
    let carla = format!("carla:*:7001:8000:carla of {LAB}:/home/carla:/bin/sh");
    assert_eq!(host.getent("passwd", "carla"), Some(carla.clone()));
    assert_eq!(host.getent("passwd", "7001"), Some(carla));
    assert_eq!(host.getent("group", "wheel-lab").as_deref(), Some("wheel-lab:*:8000:carla"));
    assert_eq!(host.getent("group", "mine").as_deref(), Some("mine:*:5303:carla@corp,arrived"));
    for id in ["0", "42", "999", "1500", "65534", "65535", "4294967295"] {
        assert_eq!(host.getent("passwd", id), None, "uid {id}");
        assert_eq!(host.getent("group", id), None, "gid {id}");
    }
    host.expect_groups("carla", 8000, &[8000]);
    host.expect_groups("arrived", 5000, &[5000, 5302, 5303]);

    // With the real backend back, the true entries are back.
    drop(impostor.stdin.take());
    impostor.wait().expect("wait for the impostor");
    prey.rosterd.process().signal(Signal::CONT);
    prey.rosterd
        .expect_mirror(&[OracleSource::Server(&prey.lab), OracleSource::Server(&prey.corp)]);
}
