// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of users and groups: spellings that differ by case, names with a domain, and logins with each form.

use roster_system_tests::pam::{self, PASSWORD, PamHost};
use roster_system_tests::rosterd::{LOCAL_GROUP, LOCAL_PASSWD, SOON};
use roster_system_tests::test_host::ROSTER_NSSWITCH;
use roster_system_tests::{
    Corpus, DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, Sshd,
    TestHost, needs_root, run, wait_for,
};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

const LAB: &str = "dc=lab,dc=example";
const RIGHT: &str = "successfully authenticated";
const WRONG: &str = "Authentication failure";
const UNKNOWN: &str = "User not known to the underlying authentication module";

/// Text files of some domains.
struct TextFiles(TempDir);

impl TextFiles {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("make a folder"))
    }

    fn domain(&self, name: &str, passwd: &str, group: &str) -> DomainTable {
        let file = |kind: &str, text: &str| -> PathBuf {
            let path = self.0.path().join(format!("{name}.{kind}"));
            fs::write(&path, text).expect("write");
            path
        };
        DomainTable::files(name, &file("passwd", passwd), &file("group", group))
    }
}

/// A line of passwd, as the host serves it.
fn user(name: &str, uid: u32) -> String {
    format!("{name}:*:{uid}:{uid}::/home/{uid}:/bin/sh")
}

/// The same in the text of a domain.
fn user_line(name: &str, uid: u32) -> String {
    format!("{name}:x:{uid}:{uid}::/home/{uid}:/bin/sh\n")
}

#[test]
fn names_any_spelling_finds_canonical_name() {
    let files = TextFiles::new();
    let passwd = user_line("Alice", 5000) + &user_line("JÜRGEN", 5001) + &user_line("ROOT", 5002);
    let passwd = passwd + &user_line("alice", 5003) + &user_line("LOCAL", 5004);
    let group = "Staff:x:6000:ALICE,jürgen\nalice:x:5000:\n";
    for (case, alice, jurgen, staff) in [
        ("preserving", "Alice", "JÜRGEN", "Staff:*:6000:Alice,JÜRGEN"),
        ("insensitive", "alice", "jürgen", "staff:*:6000:alice,jürgen"),
    ] {
        let domain = files.domain("lab", &passwd, group).with("case", &format!("{case:?}"));
        let rosterd = Rosterd::start(&[domain]);
        for name in ["alice", "ALICE", "Alice", "aLiCe@LAB", "lab\\ALICE"] {
            rosterd.expect("passwd", name, Some(&user(alice, 5000)));
        }
        rosterd.expect("passwd", "jürgen", Some(&user(jurgen, 5001)));
        rosterd.expect("passwd", "JÜRGEN", Some(&user(jurgen, 5001)));
        for name in ["staff", "STAFF", "Staff@lab"] {
            rosterd.expect("group", name, Some(staff));
        }
        rosterd.expect_groups("ALICE", 5000, &[5000, 6000]);
        // Another spelling of a local name, and a second spelling in the domain.
        for name in ["ROOT", "root", "LOCAL", "local", "5002", "5003", "5004"] {
            rosterd.expect("passwd", name, None);
        }
        let rejected = rosterd.roster(&["domain", "rejected", "lab"]).text();
        for code in ["RST-5110", "RST-5096", "RST-5122"] {
            assert!(rejected.contains(code), "{code}: {rejected}");
        }
        let shown = rosterd.roster(&["cache", "show", "user", "ALICE"]);
        assert!(shown.text().contains(&format!("user {alice} of lab: served")), "{}", shown.text());
    }
}

#[test]
fn names_case_counts_by_default() {
    let files = TextFiles::new();
    let passwd = user_line("Alice", 5000) + &user_line("alice", 5001);
    let rosterd = Rosterd::start(&[files.domain("lab", &passwd, "")]);
    rosterd.expect("passwd", "Alice", Some(&user("Alice", 5000)));
    rosterd.expect("passwd", "alice", Some(&user("alice", 5001)));
    rosterd.expect("passwd", "ALICE", None);
    rosterd.expect("passwd", "Alice@LAB", Some(&user("Alice", 5000)));
    rosterd.expect("passwd", "ALICE@lab", None);
}

#[test]
fn names_qualified_domain_serves_one_form() {
    let files = TextFiles::new();
    let corp = files.domain("corp", &user_line("alice", 5000), "staff:x:6000:alice\n");
    let corp = corp.with("qualified_names", "true").with("short_name", "\"CORP-1\"");
    let lab = files.domain("lab", &user_line("alice", 7000), "staff:x:8000:alice\n");
    let rosterd = Rosterd::start(&[corp, lab]);
    for name in ["alice@corp", "CORP\\alice", "corp-1\\alice", "alice@Corp-1"] {
        rosterd.expect("passwd", name, Some(&user("alice@corp", 5000)));
    }
    rosterd.expect("passwd", "alice", Some(&user("alice", 7000)));
    rosterd.expect("passwd", "5000", Some(&user("alice@corp", 5000)));
    rosterd.expect("group", "staff@corp", Some("staff@corp:*:6000:alice@corp"));
    rosterd.expect("group", "staff", Some("staff:*:8000:alice"));
    rosterd.expect_groups("corp\\alice", 5000, &[5000, 6000]);
}

#[test]
fn names_of_default_domain_come_first() {
    let files = TextFiles::new();
    let corp = files.domain("corp", &user_line("alice", 5000), "");
    let lab = files.domain("lab", &(user_line("alice", 7000) + &user_line("bob", 5000)), "");
    let locals = Corpus::new("", LOCAL_PASSWD.as_bytes(), LOCAL_GROUP.as_bytes(), b"");
    let host = TestHost::new(&locals, ROSTER_NSSWITCH);
    let mut rosterd = Rosterd::on(host, "default_domain = \"lab\"", &[corp, lab]);
    rosterd.launch();
    rosterd.expect("passwd", "alice", Some(&user("alice", 7000)));
    rosterd.expect("passwd", "alice@corp", Some(&user("alice@corp", 5000)));
    // Ids keep the order of the domains.
    rosterd.expect("passwd", "5000", Some(&user("alice@corp", 5000)));
    rosterd.expect("passwd", "bob", None);
}

#[test]
fn names_that_mean_another_domain_are_rejected() {
    let files = TextFiles::new();
    let corp = files.domain("corp", &user_line("alice", 5000), "");
    let hostile = user_line("alice@corp", 7000) + &user_line("bob@CORP", 7001);
    let hostile = hostile + &user_line("alice@lab", 7002) + &user_line("alice", 7003);
    let hostile = hostile + &user_line("bob", 7005) + &user_line("bob@LAB", 7006);
    let lab = files.domain("lab", &(hostile + &user_line("eve@example.com", 7004)), "");
    let rosterd = Rosterd::start(&[corp, lab]);
    rosterd.expect("passwd", "alice@corp", Some(&user("alice", 5000)));
    rosterd.expect("passwd", "bob@corp", None);
    rosterd.expect("passwd", "7000", None);
    rosterd.expect("passwd", "eve@example.com", Some(&user("eve@example.com", 7004)));
    // The name with the own domain means the entry of the name alone.
    rosterd.expect("passwd", "alice@lab", Some(&user("alice@lab", 7003)));
    for name in ["bob", "bob@lab", "LAB\\bob"] {
        rosterd.expect("passwd", name, Some(&user("bob", 7005)));
    }
    for uid in ["7002", "7006"] {
        rosterd.expect("passwd", uid, None);
    }
    let rejected = rosterd.roster(&["domain", "rejected", "lab"]).text();
    assert!(rejected.contains("RST-5700") && rejected.contains("RST-5702"), "{rejected}");
    // Both programs read these names in one way.
    let access = rosterd.roster(&["access", "LAB\\bob"]);
    let access = String::from_utf8_lossy(&access.stdout);
    assert!(access.contains("bob of lab"), "{access}");
}

#[test]
fn names_of_digits_served_unless_ids() {
    let files = TextFiles::new();
    let passwd = user_line("5001", 5000) + &user_line("999", 5002) + &user_line("bob", 5003);
    let passwd = passwd + &user_line("5003", 5004) + &user_line("5005", 5005);
    let domain = files.domain("lab", &passwd, "");
    let rosterd = Rosterd::start(&[domain.clone().with("numeric_names", "true")]);
    // getent reads digits as an id, and a program's getpwnam(3) as a name.
    let named = |name: &str| {
        let program = format!("import pwd; print(pwd.getpwnam({name:?}).pw_uid)");
        let found = run(rosterd.python_with_roster_only().args(["-c", &program]));
        (found.code == 0).then(|| found.text())
    };
    rosterd.expect("passwd", "bob", Some(&user("bob", 5003)));
    assert_eq!(named("5001").as_deref(), Some("5000"));
    assert_eq!(named("5005").as_deref(), Some("5005"), "the user's own id");
    for name in ["999", "5003"] {
        assert_eq!(named(name), None, "{name}");
    }
    let rejected = rosterd.roster(&["domain", "rejected", "lab"]).text();
    assert!(rejected.contains("[RST-5701]"), "{rejected}");
    assert!(rejected.contains("user 999\n") && rejected.contains("user 5003\n"), "{rejected}");
}

/// Two slapd with a user alice each, and group members by name.
fn two_directories() -> (Slapd, Slapd) {
    let corp = LdifBuilder::new(Schema::Rfc2307);
    let text = corp.tree() + &corp.user("alice", 5000) + &corp.group("staff", 6000, &["alice"]);
    let mut setup = SlapdOptions::new(Schema::Rfc2307);
    let first = Slapd::serving(setup.clone(), &text);
    let lab = LdifBuilder::below_base(LAB, Schema::Rfc2307);
    let text = lab.tree() + &lab.user("Alice", 7000) + &lab.user("zoe", 7001);
    let text = text + &lab.group("Staff", 8000, &["Alice", "zoe"]);
    setup.base = LAB.to_owned();
    (first, Slapd::serving(setup, &text))
}

#[test]
fn names_of_two_directories_found_on_demand() {
    let (corp, lab) = two_directories();
    for (corp_mode, lab_mode) in
        [("on-demand", "on-demand"), ("replicate", "on-demand"), ("on-demand", "replicate")]
    {
        let table = |name, server: &Slapd, mode: &str| {
            DomainTable::ldap(name, server).with("mode", &format!("{mode:?}"))
        };
        let domains = [
            table("corp", &corp, corp_mode).with("case", "\"insensitive\""),
            table("lab", &lab, lab_mode).with("case", "\"preserving\""),
        ];
        let rosterd = Rosterd::start(&domains);
        rosterd.wait_for_snapshot();
        for name in ["corp", "lab"] {
            rosterd.expect_domain_status(name, "online", true);
        }
        let whole = |name: &str, entry: &str, uid, base: &str| {
            format!("{name}:*:{uid}:{uid}:{entry} of {base}:/home/{entry}:/bin/sh")
        };
        let of_corp = whole("alice", "alice", 5000, corp.base());
        let of_lab = whole("Alice@lab", "Alice", 7000, LAB);
        for name in ["alice@LAB", "Alice@lab", "lab\\ALICE", "7000"] {
            rosterd.expect("passwd", name, Some(&of_lab));
        }
        for name in ["alice", "ALICE", "alice@corp", "Corp\\alice"] {
            rosterd.expect("passwd", name, Some(&of_corp));
        }
        rosterd.expect("passwd", "ZOE", Some(&whole("zoe", "zoe", 7001, LAB)));
        rosterd.expect("passwd", "zoe@corp", None);
        rosterd.expect("group", "staff", Some("staff:*:6000:alice"));
        rosterd.expect("group", "STAFF@lab", Some("Staff@lab:*:8000:Alice@lab,zoe"));
        rosterd.expect_groups("lab\\alice", 7000, &[7000, 8000]);
        rosterd.expect_groups("Zoe", 7001, &[7001, 8000]);
    }
}

/// Only a query shows whether the upper domain has another spelling. From then on the name is that domain's.
#[test]
fn names_case_of_upper_domain_is_learnt() {
    let setup = SlapdOptions::new(Schema::Rfc2307);
    let corp = LdifBuilder::new(Schema::Rfc2307);
    let upper = Slapd::serving(setup.clone(), &(corp.tree() + &corp.user("Alice", 5000)));
    let text = TextFiles::new();
    let lab = LdifBuilder::below_base(LAB, Schema::Rfc2307);
    let lower = Slapd::serving(
        SlapdOptions { base: LAB.to_owned(), ..setup },
        &(lab.tree() + &lab.user("alice", 7000)),
    );
    for is_mirrored in [true, false] {
        let files = text.domain("lab", &user_line("alice", 7000), "");
        let lab = match is_mirrored {
            true => files,
            false => DomainTable::ldap("lab", &lower).with("mode", "\"on-demand\""),
        };
        let corp = DomainTable::ldap("corp", &upper).with("mode", "\"on-demand\"");
        let rosterd = Rosterd::start(&[corp, lab.with("case", "\"insensitive\"")]);
        rosterd.wait_for_snapshot();
        for name in ["corp", "lab"] {
            rosterd.expect_domain_status(name, "online", true);
        }
        let uid_of = |name: &str| -> Option<String> {
            let line = rosterd.getent("passwd", name)?;
            Some(line.split(':').take(3).collect::<Vec<_>>().join(":"))
        };
        let expect = |name: &str, wanted: Option<&str>| {
            wait_for(SOON, || match uid_of(name) {
                found if found.as_deref() == wanted => Ok(()),
                found => Err(format!("{name}: {found:?}, not {wanted:?} ({is_mirrored})")),
            });
        };
        expect("alice", Some("alice:*:7000"));
        expect("ALICE", Some("alice:*:7000"));
        // The upper domain compares letters. No other one has its name from now on.
        expect("Alice", Some("Alice:*:5000"));
        expect("alice@lab", Some("alice@lab:*:7000"));
        expect("7000", Some("alice@lab:*:7000"));
        for name in ["alice", "ALICE"] {
            expect(name, None);
        }
        expect("5000", Some("Alice:*:5000"));
    }
}

#[test]
fn names_log_in_by_each_form() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["Alice", "bob"]);
    let domain = pam::domain(&slapd).with("case", "\"preserving\"").with("short_name", "\"HQ\"");
    let rules = "[domain.corp.access]\ndenied_users = [\"BOB@corp\"]\n";
    for mode in ["replicate", "on-demand"] {
        let domain = domain.clone().with("mode", &format!("{mode:?}"));
        let rosterd = pam::start_daemon(&[domain.with("offline_credentials", "false")], rules);
        let pam = PamHost::on(&rosterd, "alice");
        for name in ["Alice", "alice", "ALICE", "alice@corp", "hq\\ALICE"] {
            assert_eq!(pam.authenticate(name, PASSWORD), RIGHT, "{mode} {name}");
            assert!(pam.authenticate(name, "swordfish").ends_with(WRONG), "{mode} {name}");
        }
        for name in ["alice@lab", "lab\\alice", "alicia"] {
            assert!(pam.authenticate(name, PASSWORD).ends_with(UNKNOWN), "{mode} {name}");
        }
        // The list denies another spelling.
        for name in ["bob", "Bob", "bob@corp"] {
            let account = pam::last_message(&pam.run_pamtester("alone", name, &["acct_mgmt"], &[]));
            assert!(account.ends_with("Permission denied"), "{mode} {name}: {account}");
        }
        assert_eq!(rosterd.roster(&["access", "ALICE"]).code, 0);
        assert_eq!(rosterd.roster(&["access", "hq\\Bob"]).code, 3);
        // Later modules and the program get the canonical name.
        let script = rosterd.host().path("pam_user");
        let seen = rosterd.host().path("run/pam_user.log");
        fs::write(&script, format!("#!/bin/sh\necho \"$PAM_TYPE $PAM_USER\" >>{seen:?}\n"))
            .expect("write a script");
        let mode_bits = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&script, mode_bits).expect("chmod");
        let exec = format!("pam_exec.so {}", script.display());
        pam.service(
            "after",
            &["auth", "account", "session"]
                .map(|group| format!("{group} required MODULE\n{group} required {exec}\n"))
                .concat(),
        );
        let steps = ["authenticate", "acct_mgmt"];
        let done = pam.run_pamtester("after", "hq\\ALICE", &steps, &[PASSWORD]);
        assert_eq!(done.code, 0, "{}", pam::last_message(&done));
        let told = fs::read_to_string(&seen).expect("the log of the script");
        assert_eq!(told, "auth Alice\naccount Alice\n", "{mode}");
        // sshd authenticates in another process. The one of the session has the name as typed.
        fs::remove_file(&seen).expect("remove the log");
        let done = pam.run_pamtester("after", "hq\\ALICE", &["open_session"], &[]);
        assert_eq!(done.code, 0, "{}", pam::last_message(&done));
        let told = fs::read_to_string(&seen).expect("the log of the script");
        assert_eq!(told, "open_session Alice\n", "{mode}");
    }
}

/// A rule for `bob` must not allow a user that the directory calls `bob@corp`.
#[test]
fn names_rule_admits_no_name_with_domain() {
    if !needs_root() {
        return;
    }
    let names = ["bob", "bob@corp", "bob@HQ"];
    let slapd = pam::slapd_with_users(&names);
    for name in &names[1..] {
        let dn = format!("uid={name},ou=people,{}", slapd.base());
        slapd.change(&format!(
            "dn: {dn}\nchangetype: modify\nreplace: userPassword\nuserPassword: swordfish\n"
        ));
    }
    let domain = pam::domain(&slapd).with("short_name", "\"HQ\"");
    let rules = "[domain.corp.access]\nallowed_users = [\"bob\"]\n";
    for mode in ["replicate", "on-demand"] {
        let domain = domain.clone().with("mode", &format!("{mode:?}"));
        let rosterd = pam::start_daemon(&[domain.with("offline_credentials", "false")], rules);
        let pam = PamHost::on(&rosterd, "bob");
        let bob = format!("bob:*:20000:20000:bob of {}:/home/bob:/bin/sh", slapd.base());
        for name in names.into_iter().chain(["corp\\bob"]) {
            rosterd.expect("passwd", name, Some(&bob));
            assert_eq!(rosterd.roster(&["access", name]).code, 0, "{mode} {name}");
            assert_eq!(pam.authenticate(name, PASSWORD), RIGHT, "{mode} {name}");
            assert!(pam.authenticate(name, "swordfish").ends_with(WRONG), "{mode} {name}");
        }
        let rejected = rosterd.roster(&["domain", "rejected", "corp"]).text();
        for part in ["RST-5702", "bob@corp", "bob@HQ"] {
            assert!(rejected.contains(part), "{mode} {part}: {rejected}");
        }
    }
}

#[test]
fn names_sshd_accepts_each_form() {
    if !needs_root() {
        return;
    }
    let (corp, lab) = (pam::slapd_with_users(&["Alice"]), pam::slapd_with_users(&["alice"]));
    // Both users have the same uid, which belongs to corp's.
    let first = pam::domain(&corp).with("case", "\"preserving\"");
    let rosterd = pam::start_daemon(&[first, pam::domain(&lab).renamed("lab")], "");
    let pam = PamHost::on(&rosterd, "alice");
    pam.service("sshd", &format!("{}session required pam_permit.so\n", pam::ROSTER_ONLY_STACK));
    let sshd = Sshd::start(
        &rosterd,
        "PasswordAuthentication yes\nKbdInteractiveAuthentication no\nPubkeyAuthentication no",
    );
    let ssh =
        |user: &str, password: &str| sshd.run_with_password(user, password, "password", "id -un");
    for user in ["Alice", "ALICE", "alice@CORP", "corp\\alice"] {
        assert_eq!(ssh(user, PASSWORD).text(), "Alice", "{user}: {}", sshd.log());
        assert_ne!(ssh(user, "wrong").code, 0, "{user}");
    }
    for user in ["alice@lab", "lab\\Alice"] {
        assert_ne!(ssh(user, PASSWORD).code, 0, "{user}");
    }
}

#[test]
fn names_pam_accepts_users_of_named_domains() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice"]);
    let rosterd = pam::start_daemon(&[pam::domain(&slapd)], "");
    let pam = PamHost::on(&rosterd, "alice");
    let with = |domains: &str, name: &str| {
        let line = format!("required MODULE nodelay domains={domains}\n");
        pam.service("some", &format!("auth {line}account {line}"));
        ["authenticate", "acct_mgmt"].map(|operation| {
            pam::last_message(&pam.run_pamtester("some", name, &[operation], &[PASSWORD]))
        })
    };
    for domains in ["corp", "corp,corp"] {
        let [authenticated, account] = with(domains, "alice");
        assert_eq!(authenticated, RIGHT, "{domains}");
        assert!(account.ends_with("account management done."), "{domains}: {account}");
    }
    for domains in ["lab", "corp,lab", ""] {
        let [authenticated, account] = with(domains, "alice");
        assert_ne!(authenticated, RIGHT, "{domains}");
        assert!(account.ends_with("Permission denied"), "{domains}: {account}");
    }
    pam.expect_logged("RST-6701", "not configured");
}

/// Wrong passwords in several spellings count together.
#[test]
fn names_lockout_counts_all_spellings() {
    if !needs_root() {
        return;
    }
    let mut slapd = pam::slapd_with_users(&["Alice"]);
    let domain = pam::domain(&slapd)
        .with("case", "\"preserving\"")
        .with("connect_timeout", "\"1s\"")
        .with("auth_timeout", "\"3s\"")
        .with("offline_failed_login_attempts", "3")
        .with("offline_failed_login_delay", "\"1h\"")
        .with("argon2_target_time", "\"10ms\"");
    let rosterd = pam::start_daemon(&[domain], "");
    let pam = PamHost::on(&rosterd, "alice");
    assert_eq!(pam.authenticate("ALICE", PASSWORD), RIGHT);
    wait_for(SOON, || {
        let told = rosterd.roster(&["cache", "credentials"]);
        if told.text().contains("Alice") { Ok(()) } else { Err(told.text()) }
    });
    pam::stop_server(&mut slapd, &rosterd);
    assert_eq!(pam.authenticate("alice@corp", PASSWORD), RIGHT, "with the stored password");
    for name in ["alice", "ALICE", "corp\\alice"] {
        assert!(pam.authenticate(name, "swordfish").ends_with(WRONG), "{name}");
    }
    for name in ["Alice", "aLICE"] {
        assert_ne!(pam.authenticate(name, PASSWORD), RIGHT, "{name}");
    }
}

#[test]
fn names_of_32_domains_are_served() {
    let files = TextFiles::new();
    let domains: Vec<DomainTable> = (0..32)
        .map(|place| {
            let mut passwd = user_line("same", 10_000 + place);
            let _ = write!(passwd, "{}", user_line(&format!("user{place}"), 20_000 + place));
            files.domain(&format!("domain{place}"), &passwd, "")
        })
        .collect();
    let rosterd = Rosterd::start(&domains);
    rosterd.expect("passwd", "same", Some(&user("same", 10_000)));
    for place in 0..32 {
        let name = format!("user{place}");
        rosterd.expect("passwd", &name, Some(&user(&name, 20_000 + place)));
    }
    rosterd.expect("passwd", "same@domain31", Some(&user("same@domain31", 10_031)));
}
