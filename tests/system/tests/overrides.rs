// SPDX-License-Identifier: MIT OR Apache-2.0
//! Local overrides: values of single users and groups of a directory, in the configuration and in a watched file.

use roster_system_tests::pam::{self, PASSWORD, PamHost, last_message};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::Kdc;
use roster_system_tests::test_host::find_tool;
use roster_system_tests::{
    DomainTable, LdifBuilder, ProgramOutput, Rosterd, Schema, Slapd, SlapdOptions, needs_root, run,
    wait_for, wait_until,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const MODES: [&str; 2] = ["replicate", "on-demand"];
const ALICE: &str = "name = \"al\", gecos = \"Al\", home = \"/srv/al\", shell = \"/bin/zsh\"";

/// A file with overrides, in a directory that every user can read.
struct OverridesFile {
    folder: TempDir,
}

impl OverridesFile {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("make a directory");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let file = Self { folder };
        file.write(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("overrides.toml")
    }

    /// Replaces the file in one step.
    fn write(&self, text: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, text).expect("write");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).expect("chmod");
        fs::rename(&new, self.path()).expect("rename");
    }

    /// The value of `overrides_file`.
    fn value(&self) -> String {
        format!("{:?}", self.path())
    }
}

fn directory() -> Slapd {
    let corp = LdifBuilder::new(Schema::Rfc2307);
    let users = [("alice", 5001), ("bob", 5002), ("eve", 5003)];
    let users = users.map(|(name, uid)| corp.user_in(name, uid, 5000)).concat();
    let groups =
        corp.group("staff", 5000, &["alice"]) + &corp.group("dev", 5100, &["alice", "bob"]);
    Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &(corp.tree() + &users + &groups))
}

fn domain(slapd: &Slapd, mode: &str) -> DomainTable {
    DomainTable::ldap("corp", slapd).with("mode", &format!("{mode:?}"))
}

/// The output of a command that may have failed.
fn said(done: &ProgramOutput) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Waits until the status of the domain has an error of overrides with this text, or none.
fn expect_error(rosterd: &Rosterd, wanted: Option<&str>) {
    wait_for(SOON, || {
        let found = rosterd.domain("corp")?["overrides_error"].clone();
        let is_so = match wanted {
            Some(wanted) => found.as_str().is_some_and(|found| found.contains(wanted)),
            None => found.is_null(),
        };
        if is_so { Ok(()) } else { Err(format!("{found}, not {wanted:?}")) }
    });
}

/// An override gives ids in a mirror only.
#[test]
fn overrides_are_served_in_both_modes() {
    let slapd = directory();
    for (mode, ids, uid, gid, group) in [
        ("replicate", ", uid = 6000, gid = 6001", 6000, 6001, "gid = 7000\n"),
        ("on-demand", "", 5001, 5000, ""),
    ] {
        let file = OverridesFile::new(&format!("[group.dev]\nname = \"crew\"\n{group}"));
        let domain = domain(&slapd, mode)
            .with("override.user.alice", &format!("{{ {ALICE}{ids} }}"))
            .with("overrides_file", &file.value());
        let rosterd = Rosterd::start(&[domain]);
        rosterd.expect_domain_status("corp", "online", true);
        let al = &*format!("al:*:{uid}:{gid}:Al:/srv/al:/bin/zsh");
        for key in ["al", &uid.to_string(), "al@corp"] {
            rosterd.expect("passwd", key, Some(al));
        }
        rosterd.expect("passwd", "alice", None);
        let crew_gid = if group.is_empty() { 5100 } else { 7000 };
        for key in ["crew", &crew_gid.to_string()] {
            rosterd.expect("group", key, Some(&format!("crew:*:{crew_gid}:al,bob")));
        }
        rosterd.expect("group", "dev", None);
        if mode == "replicate" {
            rosterd.expect("passwd", "5001", None);
            rosterd.expect("group", "5100", None);
        }
        rosterd.expect("group", "staff", Some("staff:*:5000:al"));
        let mut groups = vec![5000, gid, crew_gid];
        groups.sort_unstable();
        groups.dedup();
        rosterd.expect_groups("al", gid, &groups);
        let shown = rosterd.roster(&["cache", "show", "user", "alice"]).text();
        assert!(shown.starts_with("user al of corp: served\n"), "{shown}");
        assert!(shown.contains("override of name: alice in"), "{shown}");
        for line in ["override of uid: 5001 in", "override of gid: 5000 in"] {
            assert_eq!(shown.contains(line), mode == "replicate", "{shown}");
        }
        if mode == "on-demand" {
            let expired = rosterd.roster(&["cache", "expire", "--user", "al"]);
            assert_eq!(expired.code, 0, "{}", expired.error());
            rosterd.expect("passwd", "al", Some(al));
        }
        // A change in the directory reaches values without an override only.
        let before = rosterd.getent("passwd", "bob").expect("bob is served");
        assert!(before.starts_with("bob:*:5002:5000:"), "{before}");
    }
}

#[test]
fn overrides_file_change_needs_no_reload() {
    let slapd = directory();
    for mode in MODES {
        let file = OverridesFile::new("[user.alice]\nname = \"al\"\n");
        let domain = domain(&slapd, mode).with("overrides_file", &file.value());
        let rosterd = Rosterd::start(&[domain]);
        rosterd.expect_domain_status("corp", "online", true);
        let name_of = |key: &str| {
            rosterd
                .getent("passwd", key)
                .map(|line| line.split(':').take(3).collect::<Vec<_>>().join(":"))
        };
        let expect = |key: &str, wanted: Option<&str>| {
            wait_for(SOON, || match name_of(key) {
                found if found.as_deref() == wanted => Ok(()),
                found => Err(format!("{key} is {found:?}, not {wanted:?}: {}", rosterd.log())),
            });
        };
        expect("al", Some("al:*:5001"));
        expect("bob", Some("bob:*:5002"));
        // The directory's bob has the name of an override from now on.
        let (ids, uid) = if mode == "replicate" { ("uid = 6000\n", 6000) } else { ("", 5001) };
        let bob = &*format!("bob:*:{uid}");
        file.write(&format!("[user.alice]\nname = \"bob\"\n{ids}"));
        expect("bob", Some(bob));
        expect(&uid.to_string(), Some(bob));
        expect("al", None);
        expect("5002", None);
        expect_error(&rosterd, None);
        // A mistake changes nothing.
        file.write("[user.alice]\nname = \"x\"\nuid = \"6001\"\n");
        expect_error(&rosterd, Some("overrides.toml:3: user.alice.uid: "));
        expect("bob", Some(bob));
        let status = rosterd.roster(&["status"]);
        assert!(status.code != 0 && said(&status).contains("[RST-3790]"), "{}", said(&status));
        let config = rosterd.config();
        let checked = rosterd.roster(&["check-config", config.to_str().expect("a path")]);
        assert!(
            checked.code != 0 && said(&checked).contains("overrides.toml:3: user.alice.uid: "),
            "{}",
            said(&checked)
        );
        fs::remove_file(file.path()).expect("remove");
        expect_error(&rosterd, Some("cannot be read"));
        expect("bob", Some(bob));
        if mode == "on-demand" {
            file.write("[user.alice]\nuid = 6000\n");
            expect_error(&rosterd, Some("RST-1794"));
            expect("bob", Some(bob));
        }
        file.write("");
        expect_error(&rosterd, None);
        expect("alice", Some("alice:*:5001"));
        expect("bob", Some("bob:*:5002"));
        expect("6000", None);
    }
}

#[test]
fn overrides_wait_for_valid_file() {
    let slapd = directory();
    let file = OverridesFile::new("[user.alice]\nname = 1\n");
    let domain = domain(&slapd, "replicate").with("overrides_file", &file.value());
    let rosterd = Rosterd::start(&[domain]);
    expect_error(&rosterd, Some("overrides.toml:2: user.alice.name: "));
    rosterd.expect_domain_status("corp", "online", true);
    assert_eq!(rosterd.getent("passwd", "alice"), None, "under the name of the directory");
    file.write("[user.alice]\nname = \"al\"\n");
    wait_until(SOON, "the user is served", || rosterd.getent("passwd", "al").is_some());
    // Other users can change the file, so root did not write it for sure.
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o666)).expect("chmod");
    expect_error(&rosterd, Some("RST-1105"));
    assert!(rosterd.getent("passwd", "al").is_some());
}

#[test]
fn overrides_are_rejected_by_name() {
    let slapd = directory();
    let file = OverridesFile::new(
        "[user.alice]\nuid = 0\n[user.bob]\nname = \"sudo\"\n[user.eve]\nname = \"local\"\n\
         [user.nobody-knows]\nname = \"x\"\n[group.staff]\nname = \"root\"\n[group.dev]\ngid = 42\n",
    );
    let domain = domain(&slapd, "replicate").with("overrides_file", &file.value());
    let rosterd = Rosterd::start(&[domain]);
    rosterd.wait_for_snapshot();
    for name in ["alice", "sudo", "bob", "eve", "x"] {
        rosterd.expect("passwd", name, None);
    }
    let rejected = wait_for(SOON, || {
        let found = rosterd.roster(&["domain", "rejected", "corp"]).text();
        if found.contains("group dev") { Ok(found) } else { Err(found) }
    });
    for (entry, code) in [
        ("user alice", "RST-5095"),
        ("user sudo", "RST-5103"),
        ("user local", "RST-5096"),
        ("group root", "RST-5110"),
        ("group dev", "RST-5092"),
    ] {
        assert!(rejected.contains(entry) && rejected.contains(code), "{entry} {code}: {rejected}");
    }
    assert!(rejected.contains("(override of bob)"), "{rejected}");
    let status = said(&rosterd.roster(&["status"]));
    assert!(status.contains("[RST-3791]") && status.contains("user nobody-knows"), "{status}");
}

#[test]
fn overrides_user_logs_in_by_new_name() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob"]);
    for (mode, ids) in [("replicate", ", uid = 26000"), ("on-demand", "")] {
        let domain = pam::domain(&slapd)
            .with("mode", &format!("{mode:?}"))
            .with("override.user.alice", &format!("{{ name = \"al\"{ids} }}"))
            .with("access", "{ allowed_users = [\"al\"] }");
        let rosterd = pam::start_daemon(&[domain], "");
        let pam = PamHost::on(&rosterd, "al");
        pam::wait_until_user_known(&rosterd, "al");
        let log_in = |user: &str, password: &str| {
            last_message(&pam.run_pamtester(
                "alone",
                user,
                &["authenticate", "acct_mgmt"],
                &[password],
            ))
        };
        assert_eq!(log_in("al", PASSWORD), "account management done.", "{}", rosterd.log());
        assert!(log_in("al", "swordfish").ends_with("Authentication failure"));
        let answer = log_in("alice", PASSWORD);
        assert!(
            answer.ends_with("User not known to the underlying authentication module"),
            "{answer}"
        );
        let access = rosterd.roster(&["access", "al"]);
        assert_eq!(access.code, 0, "{}{}", said(&access), access.error());
        assert!(
            access.text().starts_with("al (alice in the directory) of corp may log in"),
            "{}",
            access.text()
        );
        // The rules name the users of this host.
        assert_ne!(rosterd.roster(&["access", "bob"]).code, 0);
        let changed = ["chauthtok"];
        let new = format!("new {PASSWORD} {mode}");
        let done = pam.run_pamtester("alone", "al", &changed, &[PASSWORD, &new, &new]);
        assert_eq!(done.code, 0, "{}", last_message(&done));
        assert_eq!(log_in("al", &new), "account management done.");
        let done = pam.run_pamtester("alone", "al", &changed, &[&new, PASSWORD, PASSWORD]);
        assert_eq!(done.code, 0, "{}", last_message(&done));
    }
}

/// A rule for the name in the directory still denies. It allows no login.
#[test]
fn overrides_rules_deny_by_both_names() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob"]);
    let override_table = "{ name = \"al\" }";
    for mode in MODES {
        for (rule, is_allowed) in [
            ("denied_users = [\"bob\"]", true),
            ("denied_users = [\"al\"]", false),
            ("denied_users = [\"alice@corp\"]", false),
            ("allowed_users = [\"al\"]", true),
            ("allowed_users = [\"alice\"]", false),
        ] {
            let domain = pam::domain(&slapd)
                .with("mode", &format!("{mode:?}"))
                .with("override.user.alice", override_table);
            let rosterd = pam::start_daemon(&[domain], &format!("[domain.corp.access]\n{rule}\n"));
            let pam = PamHost::on(&rosterd, "al");
            pam::wait_until_user_known(&rosterd, "al");
            let account = last_message(&pam.run_pamtester("alone", "al", &["acct_mgmt"], &[]));
            let wanted = if is_allowed { "management done." } else { "Permission denied" };
            assert!(account.ends_with(wanted), "{mode} {rule}: {account}");
            let access = rosterd.roster(&["access", "al"]);
            assert_eq!(access.code == 0, is_allowed, "{mode} {rule}: {}", access.text());
            let config = rosterd.config();
            let checked = rosterd.roster(&["check-config", config.to_str().expect("a path")]);
            let is_warned = said(&checked).contains("[RST-1795]");
            let is_hidden = rule.contains("alice");
            assert_eq!(is_warned, is_hidden, "{rule}: {}", said(&checked));
        }
    }
}

/// The file with overrides is read by the publisher alone, and the backend decides.
#[test]
fn overrides_rules_name_groups_of_host() {
    let slapd = directory();
    for mode in MODES {
        let file = OverridesFile::new("[group.dev]\nname = \"crew\"\n");
        for (rule, alice, eve) in [
            ("allowed_groups = [\"crew\"]", true, false),
            ("allowed_groups = [\"dev\"]", false, false),
            ("denied_groups = [\"crew\"]", false, true),
            ("denied_groups = [\"dev\"]", false, true),
        ] {
            let domain = domain(&slapd, mode)
                .with("overrides_file", &file.value())
                .with("access", &format!("{{ {rule} }}"));
            let rosterd = Rosterd::start(&[domain]);
            rosterd.expect_domain_status("corp", "online", true);
            for (user, is_allowed) in [("alice", alice), ("eve", eve)] {
                wait_for(SOON, || match rosterd.roster(&["access", user]) {
                    done if (done.code == 0) == is_allowed && done.code != 4 => Ok(()),
                    done => Err(format!("{mode} {rule} {user}: {} {}", said(&done), done.error())),
                });
            }
        }
    }
}

/// The files of a domain with one user, which logs in at a KDC.
fn kerberos_domain(kdc: &Kdc, folder: &Path) -> DomainTable {
    fs::write(
        folder.join("passwd"),
        format!("alice:x:20000:20000::{}:/bin/sh\n", folder.display()),
    )
    .expect("write");
    fs::write(folder.join("group"), "alice:x:20000:\n").expect("write");
    DomainTable::files("corp", &folder.join("passwd"), &folder.join("group"))
        .with("auth", "\"krb5\"")
        .with("krb5_realm", "\"LAB.TEST\"")
        .with("krb5_kdcs", &format!("[{:?}]", kdc.address()))
        .with("krb5_keytab", &format!("{:?}", kdc.keytab("host/client.lab.test")))
        .with("krb5_cache", &format!("\"FILE:{}/krb5cc_%{{uid}}_XXXXXX\"", folder.display()))
        .with("override.user.alice", "{ name = \"al\", uid = 26000, gid = 26000 }")
}

#[test]
fn overrides_ticket_belongs_to_uid_of_host() {
    if !needs_root() {
        return;
    }
    let principals = [
        format!("addprinc +requires_preauth -pw \"{PASSWORD}\" alice"),
        "addprinc -randkey host/client.lab.test".to_owned(),
    ];
    let kdc = Kdc::start(&principals, "");
    let folder = tempfile::tempdir().expect("make a directory");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).expect("chmod");
    let mut rosterd = Rosterd::installed(&[kerberos_domain(&kdc, folder.path())]);
    pam::prepare(&rosterd);
    rosterd.launch();
    let pam = PamHost::on(&rosterd, "al");
    wait_until(SOON, "the backend serves", || {
        pam.run_pamtester("alone", "al", &["acct_mgmt"], &[]).code == 0
    });
    let operations = ["authenticate", "acct_mgmt", "setcred", "open_session"];
    let tool = find_tool("pamtester", "pamtester");
    let mut command = pam.command(tool.to_str().expect("a path"));
    let lines = pam::stdin_with_lines(&[PASSWORD]);
    let done = run(command.args(["alone", "al"]).args(operations).stdin(lines));
    assert_eq!(done.code, 0, "{}: {}", last_message(&done), rosterd.log());
    let caches: Vec<_> = fs::read_dir(folder.path())
        .expect("read the directory")
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("krb5cc_26000_"))
        .map(|entry| entry.metadata().expect("a cache").uid())
        .collect();
    assert_eq!(caches, [26000], "{}", rosterd.log());
}
