// SPDX-License-Identifier: MIT OR Apache-2.0
//! Domain controllers of Active Directory: those of the own site first, failover, and sub-codes of refused binds.

use roster_messages::table::{directory, login};
use roster_request::{AuthResult, auth::AuthRequestKind};
use roster_system_tests::pam;
use roster_system_tests::rosterd::{LONG_WAIT, SOON};
use roster_system_tests::servers::{ControllerPair, ControllerRecord};
use roster_system_tests::{DomainTable, Rosterd, needs_root, wait_for, wait_until};
use serde_json::json;

const DC1: &str = ControllerPair::HOSTS[0];
const DC2: &str = ControllerPair::HOSTS[1];
/// dc1 is in Berlin, and both serve the domain.
const RECORDS: [ControllerRecord<'_>; 3] = [
    (ControllerPair::OF_BERLIN, DC1, 0),
    (ControllerPair::OF_DOMAIN, DC1, 0),
    (ControllerPair::OF_DOMAIN, DC2, 0),
];
const U0: &str = "u0:*:20000:20000::/home/u0:/bin/sh";

fn started(pair: &ControllerPair, domain: DomainTable) -> Rosterd {
    let mut rosterd = Rosterd::prepared(&[domain]);
    rosterd.set_tables(ControllerPair::TABLES);
    rosterd.set_start_script(&pair.start_script());
    rosterd.launch();
    rosterd
}

fn uri(host: &str) -> String {
    format!("ldap://{host}:389")
}

/// Waits until the domain uses a server. A switch takes several timeouts.
#[track_caller]
fn expect_server(rosterd: &Rosterd, host: &str) {
    wait_for(LONG_WAIT, || {
        let domain = rosterd.domain("corp")?;
        let is_it = domain["server"] == uri(host) && domain["online"] == true;
        if is_it { Ok(()) } else { Err(format!("{domain}\n{}", rosterd.log())) }
    });
}

#[test]
fn controllers_of_site_first_then_failover_and_return() {
    if !needs_root() {
        return;
    }
    let mut pair = ControllerPair::start(&[]);
    pair.serve_dns(&RECORDS);
    let rosterd = started(&pair, pair.domain());
    expect_server(&rosterd, DC1);
    let domain = rosterd.domain("corp").expect("a status");
    assert_eq!(domain["site"], "Berlin");
    assert_eq!(domain["found_servers"], json!([uri(DC1)]));
    assert_eq!(domain["distant_servers"], json!([uri(DC2)]));
    rosterd.expect("passwd", "u0", Some(U0));
    let shown = rosterd.roster(&["domain", "show", "corp"]).text();
    assert!(shown.contains("site            Berlin\n"), "{shown}");

    // A silent controller is left for the other one, and is preferred again once it replies.
    pair.freeze(0);
    expect_server(&rosterd, DC2);
    rosterd.expect("passwd", "u0", Some(U0));
    pair.thaw(0);
    expect_server(&rosterd, DC1);
    pair.stop(0);
    expect_server(&rosterd, DC2);
    rosterd.expect("passwd", "u0", Some(U0));
}

#[test]
fn controllers_of_foreign_domain_are_refused() {
    if !needs_root() {
        return;
    }
    let mut pair = ControllerPair::start(&[]);
    // This name in corp.test is one of the controller of lab.test.
    pair.serve_dns(&[("_ldap._tcp.dc._msdcs.corp.test", "dc.corp.test", 0)]);
    let rosterd = started(&pair, pair.domain().with("discover", "\"corp.test\""));
    wait_until(SOON, "it is refused", || {
        let log = rosterd.log();
        let code = directory::CONTROLLER_FOREIGN.code;
        log.lines().any(|line| line.contains(code) && line.contains("dc.corp.test:389"))
    });
    assert_eq!(rosterd.domain("corp").expect("a status")["online"], false);
    assert_eq!(rosterd.getent("passwd", "u0"), None);
}

#[test]
fn controllers_without_site_are_all_equal() {
    if !needs_root() {
        return;
    }
    let mut pair = ControllerPair::start(&[&["sites", "subnet", "remove", "192.0.2.0/24"]]);
    pair.serve_dns(&RECORDS);
    let rosterd = started(&pair, pair.domain());
    wait_for(LONG_WAIT, || {
        let domain = rosterd.domain("corp")?;
        if domain["online"] == true { Ok(()) } else { Err(domain.to_string()) }
    });
    let domain = rosterd.domain("corp").expect("a status");
    assert_eq!((&domain["site"], &domain["distant_servers"]), (&json!(null), &json!([])));
    assert_eq!(domain["found_servers"].as_array().map(Vec::len), Some(2));
    let log = rosterd.log();
    assert!(log.contains(directory::SITE_MISSING.code), "{log}");
}

#[test]
fn login_sub_codes_of_samba_have_results() {
    if !needs_root() {
        return;
    }
    let new = format!("--newpassword={}", ControllerPair::PASSWORD);
    let mut pair = ControllerPair::start(&[
        &["user", "disable", "u1"],
        &["user", "setexpiry", "u2", "--days=-2"],
        &["user", "setpassword", "u3", &new, "--must-change-at-next-login"],
        &["domain", "passwordsettings", "set", "--account-lockout-threshold=3"],
    ]);
    pair.serve_dns(&RECORDS);
    let domain = pair.domain().without("account_checks");
    let rosterd = started(&pair, domain);
    expect_server(&rosterd, DC1);
    rosterd.expect("passwd", "u0", Some(U0));
    let log_in = |user: &str, password: &str| {
        pam::auth_result(&rosterd, AuthRequestKind::Authenticate, user, password).expect("a reply")
    };
    let right = ControllerPair::PASSWORD;
    assert_eq!(log_in("u0", right), AuthResult::Success);
    assert_eq!(log_in("u0", "wrong"), AuthResult::WrongPassword);
    for (user, result) in [
        ("u1", AuthResult::Disabled),
        ("u2", AuthResult::AccountExpired),
        ("u3", AuthResult::PasswordExpired),
    ] {
        assert_eq!(log_in(user, right), result, "{user}");
        // A wrong password shows nothing of the account.
        assert_eq!(log_in(user, "wrong"), AuthResult::WrongPassword, "{user}");
    }
    let log = rosterd.log();
    assert!(log.contains(login::AD_PASSWORD_MUST_CHANGE.code), "{log}");
    for _ in 0..3 {
        let result = log_in("u4", "wrong");
        assert!(matches!(result, AuthResult::WrongPassword | AuthResult::Locked), "{result:?}");
    }
    assert_eq!(log_in("u4", right), AuthResult::Locked);
    assert_eq!(log_in("u5", right), AuthResult::Success);
}
