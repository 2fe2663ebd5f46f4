// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings of reviews of 244de19 that no other file here tests with the installed programs. proofs.toml lists all
//! findings with their tests, and the failure of each in a version that has the finding.

use roster_system_tests::rosterd::SOON;
use roster_system_tests::test_host::RECOMMENDED_NSSWITCH;
use roster_system_tests::{
    Corpus, DomainTable, ProgramOutput, Rosterd, TestHost, wait_for, wait_until,
};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The primary group of "local" has no line in the group file.
const LOCAL_USERS: &[u8] = b"root:x:0:0:root:/root:/bin/sh\nlocal:x:1500:1501::/home:/bin/sh\n";
const LOCAL_GROUPS: &[u8] = b"root:x:0:\nusers:x:100:\n";
const ANN: &str = "ann:*:5000:5000:Ann:/home/ann:/bin/sh";

/// A daemon with a domain of text files.
struct Lab {
    // Before the files that it reads.
    rosterd: Rosterd,
    files: TempDir,
}

impl Lab {
    fn prepared(users: &str, groups: &str) -> Self {
        let files = tempfile::tempdir().expect("make a folder");
        let [passwd, group] = ["passwd", "group"].map(|name| files.path().join(name));
        fs::write(&passwd, format!("ann:x:5000:5000:Ann:/home/ann:/bin/sh\n{users}"))
            .expect("write");
        fs::write(&group, format!("lab:x:5000:\n{groups}")).expect("write");
        let host =
            TestHost::new(&Corpus::new("", LOCAL_USERS, LOCAL_GROUPS, b""), RECOMMENDED_NSSWITCH);
        let domain = DomainTable::files("lab", &passwd, &group);
        Self { rosterd: Rosterd::on(host, "", &[domain]), files }
    }

    fn start(users: &str, groups: &str) -> Self {
        let mut lab = Self::prepared(users, groups);
        lab.launch();
        lab
    }

    fn launch(&mut self) {
        self.rosterd.launch();
        self.rosterd.expect("passwd", "ann", Some(ANN));
    }

    #[track_caller]
    fn expect_refused(&self, database: &str, keys: &[&str]) {
        for key in keys {
            let found = self.rosterd.getent(database, key);
            assert_eq!(found, None, "{database} {key:?} is served");
        }
    }
}

#[test]
fn primary_gid_of_local_user_is_refused() {
    let lab = Lab::start("eve:x:5001:1501::/:/bin/sh\n", "shared:x:1501:ann\n");
    lab.expect_refused("group", &["shared", "1501"]);
    lab.expect_refused("passwd", &["eve"]);
}

#[test]
fn subordinate_ids_of_local_users_are_refused() {
    let mut lab = Lab::prepared("mapped:x:600005:5000::/:/bin/sh\n", "peers:x:700005:ann\n");
    let [users, groups] = ["subuid", "subgid"].map(|name| lab.files.path().join(name));
    fs::write(&users, "local:600000:65536\n").expect("write");
    fs::write(&groups, "local:700000:65536\n").expect("write");
    lab.rosterd.set_start_script(&format!(
        "touch /etc/subuid /etc/subgid; mount --bind {} /etc/subuid; mount --bind {} /etc/subgid; exec \"$@\"",
        users.display(),
        groups.display()
    ));
    lab.launch();
    lab.expect_refused("passwd", &["mapped", "600005"]);
    lab.expect_refused("group", &["peers", "700005"]);
}

#[test]
fn names_of_privileged_accounts_are_refused() {
    let lab = Lab::start("", "docker:x:6000:ann\nwheel:x:6001:ann\nlxd:x:6002:ann\n");
    lab.expect_refused("group", &["docker", "wheel", "lxd"]);
}

#[test]
fn names_that_shells_interpret_are_refused() {
    let users = ["a b", "*", "x)(uid=*", "$(id)"];
    let mut lines = String::new();
    for (user, uid) in users.iter().zip(5001..) {
        let _ = writeln!(lines, "{user}:x:{uid}:5000::/home:/bin/sh");
    }
    Lab::start(&lines, "").expect_refused("passwd", &users);
}

#[test]
fn gid_100_named_users_is_served() {
    let mut lines = String::new();
    for number in 0..20 {
        let _ = writeln!(lines, "u{number}:x:{}:100::/home:/bin/sh", 7000 + number);
    }
    let lab = Lab::start(&lines, "staff:x:100:ann\n");
    for number in 0..20 {
        let line = format!("u{number}:*:{}:100::/home:/bin/sh", 7000 + number);
        lab.rosterd.expect("passwd", &format!("u{number}"), Some(&line));
    }
    lab.expect_refused("group", &["staff", "100"]);
}

/// The output of `roster check-config` for an `ldap` domain with these keys.
fn checked(keys: &[(&str, &str)]) -> ProgramOutput {
    let lab = Lab::prepared("", "");
    let mut text = "[host]\ndomains = [\"corp\"]\n[domain.corp]\nprovider = \"ldap\"\n".to_owned();
    for (key, value) in keys {
        let _ = writeln!(text, "{key} = {value}");
    }
    fs::write(lab.rosterd.config(), text).expect("write");
    let mut check = std::process::Command::new(roster_system_tests::roster_program());
    roster_system_tests::run(check.arg("check-config").arg(lab.rosterd.config()))
}

#[test]
fn identities_without_tls_are_error() {
    let told = checked(&[("uris", r#"["ldap://192.0.2.1"]"#), ("base", r#""dc=x""#)]);
    assert_eq!(told.code, 1, "users over clear text are accepted: {told:?}");
}

#[test]
fn passwords_over_loopback_are_accepted() {
    let keys = [("uris", r#"["ldap://127.0.0.1"]"#), ("base", r#""dc=x""#), ("auth", r#""ldap""#)];
    let told = checked(&keys);
    assert_eq!(told.code, 0, "the password over loopback is refused: {told:?}");
}

/// Blocks of an older snapshot, which a disk that loses a write leaves in place.
#[test]
fn blocks_of_older_snapshot_are_damage() {
    const USERS: u32 = 400;
    let users = |shell: &str| {
        let line = |n| format!("u{n}:x:{0}:5000:{n}:/home/u{n}:{shell}\n", 10_000 + n);
        let passwd: String = (0..USERS).map(line).collect();
        Corpus::new("", passwd.as_bytes(), b"people:x:5000:\n", b"")
    };
    let host =
        TestHost::new(&Corpus::new("", LOCAL_USERS, LOCAL_GROUPS, b""), RECOMMENDED_NSSWITCH);
    host.publish(&users("/bin/old"));
    let old = fs::read(host.snapshot_path()).expect("read");
    host.publish(&users("/bin/new"));
    let new = fs::read(host.snapshot_path()).expect("read");
    assert_eq!(old.len(), new.len());
    let mut served = 0;
    // The first block differs in any case: it has the generation.
    for block in 1..new.len() / 4096 {
        let range = block * 4096..(block + 1) * 4096;
        let mut mixed = new.clone();
        mixed[range.clone()].copy_from_slice(&old[range]);
        fs::write(host.snapshot_path(), mixed).expect("write");
        let names: Vec<_> = (0..USERS).map(|n| format!("u{n}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let told = host.run("getent", &[&["-s", "roster", "passwd"], &names[..]].concat());
        let lines = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(!lines.contains("/bin/old"), "block {block}: an older answer is served");
        served += lines.lines().count();
    }
    assert!(served > 0, "users of other blocks are served");
}

#[test]
fn state_on_read_only_file_system_is_served() {
    let mut lab = Lab::start("", "");
    lab.rosterd.stop();
    let state = lab.rosterd.host().state_dir();
    lab.rosterd.set_start_script(&format!(
        "mount --bind {0} {0}; mount -o remount,bind,ro {0}; exec \"$@\"",
        state.display()
    ));
    lab.rosterd.launch();
    wait_for(SOON, || {
        assert!(
            lab.rosterd.process().is_running(),
            "rosterd does not start: {}",
            lab.rosterd.log()
        );
        let told = lab.rosterd.roster(&["status"]);
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        if text.contains("Read-only file system") { Ok(()) } else { Err(text) }
    });
    lab.rosterd.expect("passwd", "ann", Some(ANN));
}

#[test]
fn removed_bus_socket_is_made_again() {
    let lab = Lab::start("", "");
    fs::remove_dir_all(lab.rosterd.host().path("run/dbus")).expect("remove");
    wait_for(SOON, || lab.rosterd.status().map(drop).map_err(|error| format!("no bus: {error}")));
}

#[test]
fn another_state_folder_gets_snapshot() {
    let lab = Lab::start("", "");
    let snapshot = lab.rosterd.host().snapshot_path();
    let folder = snapshot.parent().expect("a folder");
    fs::rename(folder, lab.rosterd.host().path("away")).expect("rename");
    // A change, so that there is something to publish.
    add_user(&lab.files.path().join("passwd"), "ben:x:5001:5000:Ben:/home/ben:/bin/sh\n");
    wait_until(SOON, "a snapshot in the new directory", || snapshot.exists());
    lab.rosterd.expect("passwd", "ben", Some("ben:*:5001:5000:Ben:/home/ben:/bin/sh"));
}

fn add_user(passwd: &Path, line: &str) {
    let text = fs::read_to_string(passwd).expect("read") + line;
    fs::write(passwd, text).expect("write");
}

#[test]
fn older_snapshot_is_replaced_after_restart() {
    let mut lab = Lab::start("", "");
    let snapshot = lab.rosterd.host().snapshot_path();
    let older = fs::read(&snapshot).expect("read");
    let mut more = String::new();
    for number in 0..20 {
        let _ = writeln!(more, "u{number}:x:{}:5000::/home:/bin/sh", 7000 + number);
    }
    add_user(&lab.files.path().join("passwd"), &more);
    lab.rosterd.expect("passwd", "u19", Some("u19:*:7019:5000::/home:/bin/sh"));
    lab.rosterd.stop();
    fs::write(&snapshot, older).expect("restore");
    lab.rosterd.launch();
    for number in 0..20 {
        let line = format!("u{number}:*:{}:5000::/home:/bin/sh", 7000 + number);
        lab.rosterd.expect("passwd", &format!("u{number}"), Some(&line));
    }
}
