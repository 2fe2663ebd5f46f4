// SPDX-License-Identifier: MIT OR Apache-2.0
//! Information in refusals: their time shows nothing, and the log says how to fix a fault of the host. The real module,
//! a real daemon, a real slapd.

use roster_system_tests::pam::{self, PASSWORD, PamHost};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::POLICY_RDN;
use roster_system_tests::{
    DirectoryServer, LdifBuilder, Rosterd, Schema, Slapd, find_tool, needs_root, run, wait_for,
};

const SUCCESS: &str = "successfully authenticated";
const WRONG: &str = "Authentication failure";

fn started(slapd: &Slapd, settings: &[(&str, &str)]) -> Rosterd {
    let domain = pam::domain(slapd).with("argon2_target_time", "\"10ms\"");
    let domain = settings.iter().fold(domain, |domain, (key, value)| domain.with(key, value));
    pam::start_daemon(&[domain], "")
}

fn dn(name: &str) -> String {
    LdifBuilder::new(Schema::Rfc2307).user_dn(name)
}

/// Tries wrong passwords of these users in turn. `make bench` measures the time of refusals.
fn guess(pam: &PamHost<'_>, times: u32, users: &[&str]) {
    let (first, others) = users.split_first().expect("a user");
    let mut guesses = pam.command("python3");
    guesses.args(["-c", include_str!("../python/try_passwords.py"), first, &times.to_string()]);
    let done = run(guesses.args(others));
    assert_eq!(done.code, 0, "{}", done.error());
}

#[test]
fn refusals_costly_passwords_each_reason_is_logged() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob"]);
    // A server takes at least as long for the right password.
    let costly = "{CRYPT}$6$rounds=50000$abcdefgh$abcdefgh";
    slapd.set(&dn("alice"), "userPassword", &[costly]);
    slapd.set(&format!("{POLICY_RDN},{}", slapd.base()), "pwdLockout", &["TRUE"]);
    slapd.set(&dn("bob"), "pwdAccountLockedTime", &["000001010000Z"]);
    let rosterd = started(&slapd, &[]);
    let pam = PamHost::on(&rosterd, "alice");
    guess(&pam, 5, &["alice", "bob", "mallory"]);
    pam.expect_logged("user=bob", "outcome=locked");
    pam.expect_logged("user=(unknown)", "outcome=unknown user");
}

#[test]
fn refusals_offline_each_reason_is_logged() {
    if !needs_root() {
        return;
    }
    let mut slapd = pam::slapd_with_users(&["alice", "bob", "carol"]);
    let rosterd = started(
        &slapd,
        &[("offline_failed_login_attempts", "2"), ("offline_failed_login_delay", "\"1h\"")],
    );
    let pam = PamHost::on(&rosterd, "alice");
    for user in ["alice", "carol"] {
        assert!(pam.authenticate(user, PASSWORD).ends_with(SUCCESS));
    }
    wait_for(SOON, || {
        let told = rosterd.roster(&["cache", "credentials", "--json"]).text();
        if told.contains("alice") && told.contains("carol") { Ok(()) } else { Err(told) }
    });
    slapd.stop();
    assert!(pam.authenticate("carol", PASSWORD).ends_with(SUCCESS), "{}", rosterd.log());
    // Alice is locked out after the second of them. No credentials of bob are cached.
    guess(&pam, 5, &["alice", "bob", "mallory"]);
    pam.expect_logged("user=alice", "outcome=locked");
    pam.expect_logged("user=bob", "outcome=unreachable");
    // A program may pass its message on. It does not distinguish a locked user from an accepted one.
    let said = pam.authenticate("alice", PASSWORD);
    assert!(said.ends_with("Permission denied"), "{said}");
}

#[test]
fn pam_version_mismatch_is_logged_and_denied() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice"]);
    let rosterd = started(&slapd, &[]);
    let pam = PamHost::on(&rosterd, "alice");
    let program = include_str!("../python/pam_version_mismatch.py");
    // A module of another version, a few times.
    let asked = run(pam.command("python3").args(["-c", program, "module"]));
    assert_eq!(asked.text(), "version 1, verdict 10\nversion 1, verdict 10\nversion 1, verdict 10");
    let lines = wait_for(SOON, || {
        let log = rosterd.log();
        let lines = log.lines().filter(|line| line.ends_with("[RST-4078]")).count();
        if lines > 0 { Ok(lines) } else { Err(log) }
    });
    assert_eq!(lines, 1, "it is said once a minute: {}", rosterd.log());
    // A daemon of another version, which accepts everything, in place of the real one.
    let folder = tempfile::tempdir().expect("a folder");
    let script = "mkdir \"$1/dev\" && mount -t tmpfs tmpfs \"$1/dev\" && touch \"$1/dev/null\" && \
                  mount --bind /dev/null \"$1/dev/null\" && mount --rbind \"$1/dev\" /dev && \
                  mount -t tmpfs tmpfs /run/roster && exec python3 -c \"$2\" daemon \"$3\" \"$4\"";
    let mut daemon = pam.command("unshare");
    daemon.args(["-m", "sh", "-ec", script, "daemon"]).arg(folder.path()).arg(program);
    let done = run(daemon.arg(find_tool("pamtester", "pamtester")).arg(PASSWORD));
    let said = done.text();
    assert!(said.contains("cannot retrieve authentication info"), "{said}{}", done.error());
    assert!(said.contains("[RST-6021]"), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
}

#[test]
fn pam_authenticate_only_program_refuses_expired_password() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob"]);
    let rosterd = started(&slapd, &[]);
    let pam = PamHost::on(&rosterd, "alice");
    slapd.set(&format!("{POLICY_RDN},{}", slapd.base()), "pwdMustChange", &["TRUE"]);
    slapd.set(&dn("alice"), "pwdReset", &["TRUE"]);
    pam.service("web", "auth required MODULE nodelay must_change=fail\n");
    let said = |service: &str, user: &str| {
        pam::last_message(&pam.run_pamtester(service, user, &["authenticate"], &[PASSWORD]))
    };
    assert_eq!(said("web", "bob"), SUCCESS);
    assert_eq!(said("alone", "alice"), SUCCESS);
    assert!(said("web", "alice").ends_with(WRONG), "{}", said("web", "alice"));
}
