//! Log-ins by the directory: the real module in real programs, a real daemon, a real server.

use roster_system_tests::pam::{self, FIRST, PASSWORD, Pam, said};
use roster_system_tests::{Domain, Rosterd, Server, Slapd, needs_root};

/// A domain in which people log in by the directory.
fn domain(slapd: &Slapd) -> Domain {
    Domain::ldap("corp", slapd)
        .with("auth", "\"ldap\"")
        .with("allow_clear_user_passwords", "true")
        .with("offline_credentials", "false")
}

fn started(domains: &[Domain]) -> Rosterd {
    let mut rosterd = Rosterd::installed(domains);
    pam::prepare(&rosterd);
    rosterd.launch();
    rosterd
}

#[test]
fn the_right_password_logs_in_and_no_other_does() {
    if !needs_root() {
        return;
    }
    let slapd = pam::directory(&["alice", "bob"]);
    let rosterd = started(&[domain(&slapd)]);
    let pam = Pam::on(&rosterd, "alice");
    assert_eq!(pam.authenticate("alice", PASSWORD), "successfully authenticated");
    let _ = FIRST;
    println!(
        "{}",
        said(&pam.test(
            "alone",
            "alice",
            &["authenticate", "acct_mgmt", "setcred", "open_session", "close_session"],
            &[PASSWORD]
        ))
    );
    for wrong in ["", "wrong", &"x".repeat(2000)] {
        println!("{wrong:.10}: {}", pam.authenticate("alice", wrong));
    }
    println!("nobody: {}", pam.authenticate("mallory", PASSWORD));
    println!("local: {}", pam.authenticate("local", PASSWORD));
    println!("root: {}", pam.authenticate("root", PASSWORD));
    println!(
        "chauthtok: {:?}",
        pam.test("alone", "alice", &["chauthtok"], &[PASSWORD, "new password 1", "new password 1"])
    );
    println!("old: {}", pam.authenticate("alice", PASSWORD));
    println!("new: {}", pam.authenticate("alice", "new password 1"));
    println!("{}", rosterd.log());
    let _ = slapd.base();
}
