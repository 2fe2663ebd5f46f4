//! What refusals tell: nothing by the time that they take, and what has to be done where it is the host's fault.
//! The real module, a real daemon, a real slapd.

use roster_system_tests::pam::{self, PASSWORD, Pam};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::POLICY;
use roster_system_tests::{
    Directory, Rosterd, Schema, Server, Slapd, needs_root, run, tool, wait_for,
};

const SUCCESS: &str = "successfully authenticated";
const WRONG: &str = "Authentication failure";

fn started(slapd: &Slapd, settings: &[(&str, &str)]) -> Rosterd {
    let domain = pam::domain(slapd).with("password_hash_time", "\"10ms\"");
    let domain = settings.iter().fold(domain, |domain, (key, value)| domain.with(key, value));
    pam::started(&[domain], "")
}

fn dn(name: &str) -> String {
    Directory::new(Schema::Rfc2307).user_dn(name)
}

/// Tries wrong passwords of these users in turn. How long the refusals take is a figure of `make bench`.
fn guess(pam: &Pam<'_>, times: u32, users: &[&str]) {
    let (first, others) = users.split_first().expect("a user");
    let mut guesses = pam.command("python3");
    guesses.args(["-c", include_str!("../python/guess.py"), first, &times.to_string()]);
    let done = run(guesses.args(others));
    assert_eq!(done.code, 0, "{}", done.error());
}

#[test]
fn refusals_costly_passwords_each_reason_is_logged() {
    if !needs_root() {
        return;
    }
    let slapd = pam::directory(&["alice", "bob"]);
    // No server takes less for one that is right.
    let costly = "{CRYPT}$6$rounds=50000$abcdefgh$abcdefgh";
    slapd.set(&dn("alice"), "userPassword", &[costly]);
    slapd.set(&format!("{POLICY},{}", slapd.base()), "pwdLockout", &["TRUE"]);
    slapd.set(&dn("bob"), "pwdAccountLockedTime", &["000001010000Z"]);
    let rosterd = started(&slapd, &[]);
    let pam = Pam::on(&rosterd, "alice");
    guess(&pam, 5, &["alice", "bob", "mallory"]);
    pam.expect_logged("user=bob", "outcome=locked");
    pam.expect_logged("user=(unknown)", "outcome=unknown user");
}

#[test]
fn refusals_offline_each_reason_is_logged() {
    if !needs_root() {
        return;
    }
    let mut slapd = pam::directory(&["alice", "bob", "carol"]);
    let rosterd = started(&slapd, &[("offline_failures", "2"), ("offline_lockout", "\"1h\"")]);
    let pam = Pam::on(&rosterd, "alice");
    for user in ["alice", "carol"] {
        assert!(pam.authenticate(user, PASSWORD).ends_with(SUCCESS));
    }
    wait_for(SOON, || {
        let told = rosterd.roster(&["cache", "credentials", "--json"]).text();
        if told.contains("alice") && told.contains("carol") { Ok(()) } else { Err(told) }
    });
    slapd.stop();
    assert!(pam.authenticate("carol", PASSWORD).ends_with(SUCCESS), "{}", rosterd.log());
    // Alice is locked out after the second of them, and nothing is kept of bob.
    guess(&pam, 5, &["alice", "bob", "mallory"]);
    pam.expect_logged("user=alice", "outcome=locked");
    pam.expect_logged("user=bob", "outcome=unreachable");
    // Nor does what a program is told, which may pass it on, tell who is locked out from who is not wrong.
    let said = pam.authenticate("alice", PASSWORD);
    assert!(said.ends_with("Permission denied"), "{said}");
}

#[test]
fn a_module_and_a_daemon_of_different_versions_say_so_and_nobody_is_let_in() {
    if !needs_root() {
        return;
    }
    let slapd = pam::directory(&["alice"]);
    let rosterd = started(&slapd, &[]);
    let pam = Pam::on(&rosterd, "alice");
    let program = include_str!("../python/other_version.py");
    // A module of another version, a few times.
    let asked = run(pam.command("python3").args(["-c", program, "module"]));
    assert_eq!(asked.text(), "version 1, verdict 10\nversion 1, verdict 10\nversion 1, verdict 10");
    let lines = wait_for(SOON, || {
        let log = rosterd.log();
        let lines = log.lines().filter(|line| line.contains("version 7 of the protocol")).count();
        if lines > 0 { Ok(lines) } else { Err(log) }
    });
    assert_eq!(lines, 1, "it is said once a minute: {}", rosterd.log());
    // A daemon of another version, which says yes to everything, where the real one was.
    let folder = tempfile::tempdir().expect("a folder");
    let script = "mkdir \"$1/dev\" && mount -t tmpfs tmpfs \"$1/dev\" && touch \"$1/dev/null\" && \
                  mount --bind /dev/null \"$1/dev/null\" && mount --rbind \"$1/dev\" /dev && \
                  mount -t tmpfs tmpfs /run/roster && exec python3 -c \"$2\" daemon \"$3\" \"$4\"";
    let mut daemon = pam.command("unshare");
    daemon.args(["-m", "sh", "-ec", script, "daemon"]).arg(folder.path()).arg(program);
    let done = run(daemon.arg(tool("pamtester", "pamtester")).arg(PASSWORD));
    let said = done.text();
    assert!(said.contains("cannot retrieve authentication info"), "{said}{}", done.error());
    assert!(said.contains("rosterd is of another version than this module"), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
}

#[test]
fn a_program_that_only_authenticates_can_have_a_password_refused_that_must_be_changed() {
    if !needs_root() {
        return;
    }
    let slapd = pam::directory(&["alice", "bob"]);
    let rosterd = started(&slapd, &[]);
    let pam = Pam::on(&rosterd, "alice");
    slapd.set(&format!("{POLICY},{}", slapd.base()), "pwdMustChange", &["TRUE"]);
    slapd.set(&dn("alice"), "pwdReset", &["TRUE"]);
    pam.service("web", "auth required MODULE nodelay must_change=fail\n");
    let said = |service: &str, user: &str| {
        pam::said(&pam.test(service, user, &["authenticate"], &[PASSWORD]))
    };
    assert_eq!(said("web", "bob"), SUCCESS);
    assert_eq!(said("alone", "alice"), SUCCESS);
    assert!(said("web", "alice").ends_with(WRONG), "{}", said("web", "alice"));
}
