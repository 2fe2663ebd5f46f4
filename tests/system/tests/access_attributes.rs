// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access by attributes of the user's entry (`host`, `authorizedService`, `rhost`), by filters with the host and the
//! service, and passwords that an administrator tries.

use roster_messages::table::{login, tools};
use roster_system_tests::pam::{self, FIRST_LOGIN_UID, PASSWORD, PamHost, stdin_with_lines};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::{
    DirectoryServer, LdifBuilder, ProgramOutput, Rosterd, Schema, Slapd, SlapdOptions, needs_root,
    run, wait_for,
};
use rustix::system::uname;
use serde_json::Value;

/// Attributes that Debian's slapd has no schema for.
const SCHEMA: &str = "\
attributetype ( 1.3.6.1.4.1.55555.25.1 NAME 'authorizedService' EQUALITY caseIgnoreMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.15{256} )
attributetype ( 1.3.6.1.4.1.55555.25.2 NAME 'rhost' EQUALITY caseIgnoreMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.15{256} )
objectclass ( 1.3.6.1.4.1.55555.25.3 NAME 'accessLists' SUP top AUXILIARY
  MAY ( authorizedService $ rhost ) )
";

fn user_dn(name: &str) -> String {
    LdifBuilder::new(Schema::Rfc2307).user_dn(name)
}

fn slapd(names: &[&str]) -> Slapd {
    let options = SlapdOptions { schemas: SCHEMA.to_owned(), ..SlapdOptions::new(Schema::Rfc2307) };
    let class = "objectClass: shadowAccount\n";
    let users = pam::login_users_ldif(names);
    Slapd::serving(options, &users.replace(class, &format!("{class}objectClass: accessLists\n")))
}

fn started(slapd: &Slapd, access: &str) -> Rosterd {
    let domain = pam::domain(slapd).with("connect_timeout", "\"1s\"");
    let rosterd = pam::start_daemon(&[domain], &format!("[domain.corp.access]\n{access}\n"));
    let pam = PamHost::on(&rosterd, "alice");
    for service in ["sshd", "cron", "login"] {
        pam.service(service, pam::ROSTER_ONLY_STACK);
    }
    rosterd
}

/// The decision of `roster access`, and the rule of that name.
fn access(rosterd: &Rosterd, args: &[&str], rule: &str) -> (bool, String) {
    let told = rosterd.roster(&[&["access", "--json"], args].concat());
    let said: Value = serde_json::from_slice(&told.stdout).unwrap_or_else(|_| panic!("{told:?}"));
    assert_eq!(told.code, if said["allowed"] == true { 0 } else { 3 }, "{said}");
    let rules = said["rules"].as_array().expect("rules");
    let saw = rules.iter().find(|found| found["rule"] == rule).map(|found| &found["saw"]);
    let saw = saw.and_then(Value::as_str).unwrap_or_default().to_owned();
    (said["allowed"] == true, saw)
}

#[track_caller]
fn expect(rosterd: &Rosterd, args: &[&str], rule: &str, wanted: (bool, &str)) {
    wait_for(SOON, || {
        let (lets_in, saw) = access(rosterd, args, rule);
        if (lets_in, &*saw) == wanted { Ok(()) } else { Err(format!("{args:?}: {lets_in} {saw}")) }
    });
}

#[test]
fn access_lists_of_entry_hold_without_directory() {
    if !needs_root() {
        return;
    }
    let mut slapd = slapd(&["alice", "bob", "carol", "dave"]);
    let kernel = uname();
    let host = kernel.nodename().to_string_lossy().to_uppercase();
    let set = |slapd: &Slapd, user: &str, attribute: &str, values: &[&str]| {
        slapd.set(&user_dn(user), attribute, values);
    };
    for user in ["alice", "bob", "carol"] {
        set(&slapd, user, "authorizedService", &["sshd", "login", "!cron"]);
        set(&slapd, user, "host", &["other.example.com", &host]);
        set(&slapd, user, "rhost", &["192.0.2.7"]);
    }
    let denied = format!("!{host}");
    set(&slapd, "bob", "host", &["*", &denied]);
    set(&slapd, "carol", "rhost", &["*", "!192.0.2.8"]);
    let checks = "account_checks = [\"host\", \"authorized-service\", \"rhost\"]";
    let mut rosterd = started(&slapd, checks);
    let all = |rosterd: &Rosterd| {
        let service = "authorizedService";
        expect(rosterd, &["alice"], service, (true, "“sshd” allows"));
        expect(rosterd, &["alice", "--service", "cron"], service, (false, "“!cron” denies"));
        let other = ["alice", "--service", "su"];
        expect(rosterd, &other, service, (false, "no value is “su”"));
        expect(rosterd, &["alice"], "host", (true, &format!("“{host}” allows")));
        expect(rosterd, &["bob"], "host", (false, &format!("“{denied}” denies")));
        expect(rosterd, &["dave"], "host", (false, "the entry has no value"));
        expect(rosterd, &["alice"], "rhost", (true, "the login has no remote host"));
        let from = |address| ["alice", "--rhost", address];
        expect(rosterd, &from("192.0.2.7"), "rhost", (true, "“192.0.2.7” allows"));
        expect(rosterd, &from("192.0.2.8"), "rhost", (false, "no value is “192.0.2.8”"));
        let carol = |address| ["carol", "--rhost", address];
        expect(rosterd, &carol("192.0.2.9"), "rhost", (true, "“*” allows"));
        expect(rosterd, &carol("192.0.2.8"), "rhost", (false, "“!192.0.2.8” denies"));
        let pam = PamHost::on(rosterd, "alice");
        for (user, service, is_in) in [
            ("alice", "sshd", true),
            ("alice", "login", true),
            ("alice", "cron", false),
            ("bob", "sshd", false),
            ("dave", "sshd", false),
        ] {
            let done = pam.run_pamtester(service, user, &["acct_mgmt"], &[]);
            assert_eq!(done.code == 0, is_in, "{user} {service}: {done:?}");
        }
    };
    all(&rosterd);
    // A change counts at once.
    set(&slapd, "dave", "authorizedService", &["*"]);
    set(&slapd, "dave", "host", &["*"]);
    set(&slapd, "dave", "rhost", &["*"]);
    expect(&rosterd, &["dave"], "host", (true, "“*” allows"));
    set(&slapd, "dave", "host", &[]);
    expect(&rosterd, &["dave"], "host", (false, "the entry has no value"));
    pam::stop_server(&mut slapd, &rosterd);
    all(&rosterd);
    pam::restart(&mut rosterd, "alice");
    all(&rosterd);
}

#[test]
fn access_filter_templates_hold_for_host_and_service() {
    if !needs_root() {
        return;
    }
    let mut slapd = slapd(&["alice", "bob"]);
    let kernel = uname();
    let host = kernel.nodename().to_string_lossy().to_lowercase();
    slapd.set(&user_dn("alice"), "host", &[&host]);
    slapd.set(&user_dn("alice"), "authorizedService", &["sshd", "login"]);
    slapd.set(&user_dn("bob"), "authorizedService", &["sshd"]);
    let filter = "filter = \"(&(host=%{host})(authorizedService=%{service}))\"";
    let mut rosterd = started(&slapd, filter);
    let lets_in = |rosterd: &Rosterd, user: &str, service: &str| {
        let (lets_in, saw) = access(rosterd, &[user, "--service", service], "filter");
        assert!(saw.contains(&host) || saw.contains("no earlier result"), "{saw}");
        lets_in
    };
    for (user, service, is_in) in [
        ("alice", "sshd", true),
        ("alice", "cron", false),
        ("bob", "sshd", false),
        ("alice", "*", false),
        ("alice", "x)(uid=*", false),
        ("alice", "sshd)(|(uid=alice", false),
    ] {
        assert_eq!(lets_in(&rosterd, user, service), is_in, "{user} {service}");
    }
    pam::stop_server(&mut slapd, &rosterd);
    // The last result of each service holds. There is none for a service of which nothing was asked.
    let all = |rosterd: &Rosterd| {
        for (user, service, is_in) in [
            ("alice", "sshd", true),
            ("alice", "cron", false),
            ("bob", "sshd", false),
            ("alice", "login", false),
        ] {
            assert_eq!(lets_in(rosterd, user, service), is_in, "{user} {service}");
        }
    };
    all(&rosterd);
    pam::restart(&mut rosterd, "alice");
    all(&rosterd);
}

#[test]
fn access_password_trial_reports_result_and_rules() {
    if !needs_root() {
        return;
    }
    let mut slapd = slapd(&["alice", "bob"]);
    let rosterd = started(&slapd, "denied_users = [\"bob\"]");
    let pam = PamHost::on(&rosterd, "bob");
    let tried = |user: &str, password: &str| -> ProgramOutput {
        let mut command = pam.command("/run/bin/roster");
        command.args(["access", user, "--password", "--json"]);
        run(command.stdin(stdin_with_lines(&[password])))
    };
    let expect = |user: &str, password: &str, code: i32, accepted: bool, offline: bool| {
        let done = tried(user, password);
        let said: Value =
            serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
        assert_eq!(done.code, code, "{said}");
        assert_eq!(said["password"]["accepted"], accepted, "{said}");
        assert_eq!(said["password"]["offline"], offline, "{said}");
        let refusal = said["password"]["code"].as_str();
        assert_eq!(refusal, (!accepted).then_some(login::WRONG_PASSWORD.code), "{said}");
        assert!(!said["rules"].as_array().expect("rules").is_empty());
    };
    expect("alice", PASSWORD, 0, true, false);
    expect("alice", "wrong", 3, false, false);
    expect("alice", "", 3, false, false);
    expect("bob", PASSWORD, 3, true, false);
    let line = pam.expect_logged("user=alice", "tty=roster-access");
    assert!(line.contains("kind=log-in"), "{line}");
    // An argument is never a password, and only root may try one.
    let done = rosterd.roster(&["access", "alice", "--password", PASSWORD]);
    assert_eq!(done.code, 2, "{done:?}");
    let id = FIRST_LOGIN_UID.to_string();
    let mut command = pam.command("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "/run/bin/roster", "access"]);
    let done = run(command.args(["alice", "--password"]).stdin(stdin_with_lines(&[PASSWORD])));
    assert!(done.error().contains(tools::PASSWORD_TRIAL_NOT_ROOT.code), "{done:?}");

    wait_for(SOON, || {
        let cached = rosterd.roster(&["cache", "credentials"]).text();
        if cached.contains("alice") { Ok(()) } else { Err(cached) }
    });
    pam::stop_server(&mut slapd, &rosterd);
    expect("alice", PASSWORD, 0, true, true);
    expect("alice", "wrong", 3, false, true);
    assert!(!rosterd.log().contains(PASSWORD), "{}", rosterd.log());
}
