// SPDX-License-Identifier: MIT OR Apache-2.0
//! The snapshot in place is the daemon's own, or is replaced by it: removed, cut, replaced, another host's. The status
//! reports the fault that programs see.

use roster_system_tests::rosterd::{OracleSource, SOON};
use roster_system_tests::{
    Corpus, DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions,
    needs_root, run, wait_for, wait_until,
};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const USERS: u32 = 100;

fn directory() -> LdifBuilder {
    LdifBuilder::new(Schema::Rfc2307)
}

fn mirrored() -> (Slapd, Rosterd) {
    let slapd =
        Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &directory().populated(USERS, 10, 5));
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    (slapd, rosterd)
}

/// Less than half of the users, one of them with another uid.
fn another_hosts() -> Corpus {
    let mut passwd = "u5:x:199999:300005::/home/u5:/bin/sh\n".to_owned();
    for n in 10..40 {
        passwd += &format!("u{n}:x:{}:{}::/home/u{n}:/bin/sh\n", 100_000 + n, 300_000 + n);
    }
    Corpus::new("another host's", passwd.as_bytes(), b"other:x:300005:u5\n", b"")
}

fn text(rosterd: &Rosterd, code: i32) -> String {
    wait_for(SOON, || {
        let done = rosterd.roster(&["status"]);
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        if done.code == code {
            Ok(text)
        } else {
            Err(format!("{}: {text}{}", done.code, done.error()))
        }
    })
}

fn generation(rosterd: &Rosterd) -> u64 {
    let status = rosterd.status().unwrap_or_default();
    status["snapshot"]["generation"].as_u64().unwrap_or(0)
}

#[test]
fn snapshot_lost_under_daemon_is_published_again() {
    let (slapd, rosterd) = mirrored();
    let snapshot = rosterd.host().snapshot_path();
    type Damage = fn(&Rosterd, &Path);
    let damages: [(&str, Damage); 6] = [
        ("removed", |_, path| fs::remove_file(path).expect("remove")),
        ("cut", |_, path| {
            let file = OpenOptions::new().write(true).open(path).expect("open");
            file.set_len(100).expect("cut");
        }),
        ("overwritten", |_, path| fs::write(path, "not a snapshot").expect("write")),
        ("hidden", |_, path| {
            fs::set_permissions(path, Permissions::from_mode(0o600)).expect("chmod");
        }),
        ("replaced", |rosterd, _| rosterd.host().publish(&another_hosts())),
        ("with its folder", |_, path| {
            // The publisher may write a new snapshot meanwhile.
            while let Err(error) = fs::remove_dir_all(path.parent().expect("a folder")) {
                assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty, "{error}");
            }
        }),
    ];
    for (what, damage) in damages {
        let before = generation(&rosterd);
        damage(&rosterd, &snapshot);
        wait_until(SOON, what, || {
            let mode = snapshot.metadata().map(|stat| stat.mode() & 0o777);
            // With its directory the record of generations is gone.
            let is_new = what == "with its folder" || generation(&rosterd) > before;
            mode.ok() == Some(0o644) && is_new
        });
        rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
        text(&rosterd, 0);
    }
}

#[test]
fn snapshot_of_another_host_is_replaced_after_restart() {
    let (slapd, mut rosterd) = mirrored();
    let newest = generation(&rosterd);
    rosterd.stop();
    rosterd.host().publish(&another_hosts());
    assert!(rosterd.getent("passwd", "u5").is_some_and(|line| line.contains("199999")));
    rosterd.launch();
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    text(&rosterd, 0);
    assert!(generation(&rosterd) > newest, "generations go on");
}

#[test]
fn foreign_snapshot_is_named_until_replaced() {
    let (mut slapd, mut rosterd) = mirrored();
    rosterd.stop();
    fs::remove_dir_all(rosterd.host().path("state/domains")).expect("remove the cache");
    rosterd.host().publish(&another_hosts());
    slapd.process().freeze();
    rosterd.launch();
    wait_until(SOON, "the status names it", || {
        rosterd.status().is_ok_and(|status| status["snapshot"]["foreign"] != Value::Null)
    });
    let text = text(&rosterd, 1);
    assert!(text.contains("another program wrote the snapshot: "), "{text}");
    assert!(text.contains("generation ") && text.contains("[RST-3007]"), "{text}");
    assert!(!text.contains("domain approve-removals"), "{text}");
    assert!(rosterd.getent("passwd", "u10").is_some(), "there is nothing better yet");
    slapd.process().thaw();
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    let status = rosterd.status().expect("it answers");
    assert_eq!(status["snapshot"]["foreign"], Value::Null);
}

#[test]
fn refresh_and_reload_publish_in_any_case() {
    let (_slapd, mut rosterd) = mirrored();
    let before = generation(&rosterd);
    let done = rosterd.roster(&["domain", "refresh", "corp"]);
    assert_eq!(done.code, 0, "{}", done.error());
    wait_until(SOON, "published after the refresh", || generation(&rosterd) > before);
    let before = generation(&rosterd);
    rosterd.process().signal(Signal::HUP);
    wait_until(SOON, "published after the reload", || generation(&rosterd) > before);
}

#[test]
fn status_fails_where_programs_refuse_snapshot() {
    let (_slapd, rosterd) = mirrored();
    text(&rosterd, 0);
    let folder = rosterd.host().snapshots_dir();
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("chmod");
    let told = text(&rosterd, 1);
    assert!(told.contains("[RST-2032]"), "{told}");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("chmod");
    text(&rosterd, 0);
}

#[test]
fn status_counts_failed_lookups() {
    if !needs_root() {
        return;
    }
    let mut slapd =
        Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &directory().populated(3, 1, 1));
    let corp = DomainTable::ldap("corp", &slapd).with("mode", "\"on-demand\"");
    let mut rosterd = Rosterd::installed(&[corp]);
    rosterd.launch();
    wait_until(SOON, "a user is found", || {
        run(rosterd.command_inside(Path::new("getent")).args(["-s", "roster", "passwd", "u1"])).code
            == 0
    });
    // The mark of a published snapshot. Root owns it, and the publisher cannot write it.
    let mark = rosterd.host().path("etc/roster/published");
    wait_until(SOON, "the mark is set", || mark.exists());
    assert_eq!(mark.metadata().expect("it is there").uid(), 0);
    slapd.process().freeze();
    let asked =
        run(rosterd.command_inside(Path::new("getent")).args(["-s", "roster", "passwd", "u2"]));
    assert_ne!(asked.code, 0);
    let told = text(&rosterd, 1);
    assert!(told.contains(" failed in the last minute, the last one: "), "{told}");
    slapd.process().thaw();
}

/// Without its floor a host accepts ids from 1000 on. The configuration of this daemon does not lie in the default place.
#[test]
fn status_fails_where_floor_is_lost() {
    if !needs_root() {
        return;
    }
    let people = directory();
    let slapd = Slapd::serving(
        SlapdOptions::new(Schema::Rfc2307),
        &(people.populated(5, 2, 1) + &people.user("low", 700)),
    );
    let mut rosterd = Rosterd::installed(&[DomainTable::ldap("corp", &slapd)]);
    let config = fs::read_to_string(rosterd.config()).expect("read");
    let config = config.replacen("[host]\n", "[host]\nmin_id = 500\n", 1);
    fs::write(rosterd.config(), config).expect("write");
    rosterd.launch();
    let low = |rosterd: &Rosterd| {
        run(rosterd.command_inside(Path::new("getent")).args(["passwd", "low"]))
    };
    wait_until(SOON, "low is served", || low(&rosterd).code == 0);
    text(&rosterd, 0);
    let removed = run(rosterd.command_inside(Path::new("rm")).arg("/etc/roster/floor"));
    assert_eq!(removed.code, 0, "{}", removed.error());
    assert_eq!(low(&rosterd).code, 2, "below the default floor");
    let said = text(&rosterd, 1);
    assert!(said.contains("/etc/roster/floor does not exist"), "{said}");
    assert!(said.contains("has ids from 500 on"), "{said}");
}
