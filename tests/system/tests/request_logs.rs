// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log lines of requests: each request has a number that leads through all roles, and no line has a secret. Levels hold
//! for roles that start later.

use roster_system_tests::pam::{self, PamHost};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::READER_PASSWORD;
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, Sshd, needs_root, run,
    wait_for, wait_until,
};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

const SUCCESS: &str = "successfully authenticated";
const WRONG: &str = "Authentication failure";
const UNKNOWN: &str = "User not known to the underlying authentication module";

const USERS: [&str; 4] = ["alice", "bob", "carol", "dave"];

/// Logins of the test, or as many as the variable says.
fn logins() -> usize {
    std::env::var("ROSTER_LOGINS").map_or(20, |number| number.parse().expect("a number"))
}

/// A random password.
fn random_password() -> String {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).expect("random");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn user_dn(name: &str) -> String {
    LdifBuilder::new(Schema::Rfc2307).user_dn(name)
}

/// Gives a user a new password in the directory.
fn set_password(slapd: &Slapd, user: &str) -> String {
    let password = random_password();
    slapd.set(&user_dn(user), "userPassword", &[&password]);
    password
}

fn daemon(slapd: &Slapd, level: &str) -> Rosterd {
    let domain: DomainTable = pam::domain(slapd).with("mode", "\"on-demand\"");
    pam::start_daemon(&[domain], &format!("[log]\nlevel = \"{level}\"\n"))
}

/// Returns the number of a line's request.
fn request_of(line: &str) -> Option<&str> {
    let (_, rest) = line.rsplit_once(" request=")?;
    rest.split(' ').next()
}

/// The roles with lines of a request, in the order of their first lines.
fn roles_of<'l>(log: &'l str, request: &str) -> Vec<&'l str> {
    let mut roles = Vec::new();
    for line in log.lines().filter(|line| request_of(line) == Some(request)) {
        let role = line.split_whitespace().nth(2).unwrap_or_default();
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    roles
}

/// No secret is in the log, neither as text nor as hexadecimal digits or base64. No hash is there either.
#[track_caller]
fn expect_no_secrets(log: &str, secrets: &BTreeSet<String>) {
    for secret in secrets {
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        for form in [secret.clone(), hex, base64(secret.as_bytes())] {
            assert!(!log.contains(&form), "{form:?} is in the log");
        }
    }
    for hash in ["$argon2", "{SSHA", "{CRYPT", "{ARGON2"] {
        assert!(!log.to_lowercase().contains(&hash.to_lowercase()), "{hash} is in the log");
    }
}

/// Base64 without padding and without the last incomplete group.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let groups = bytes.chunks_exact(3).flat_map(|group| {
        let bits = group.iter().fold(0, |bits: usize, byte| bits << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(DIGITS[bits >> shift & 63]))
    });
    groups.collect()
}

/// A host with users that log in with random passwords.
struct LoginRun<'r> {
    host: PamHost<'r>,
    passwords: [String; USERS.len()],
    /// All passwords, right and wrong ones, and names that no user has.
    secrets: BTreeSet<String>,
    right: usize,
    wrong: usize,
}

impl LoginRun<'_> {
    /// Logs a user in: each fifth time with a wrong password. Each tenth time the user then changes the password.
    fn log_in(&mut self, number: usize) {
        let at = number % USERS.len();
        let user = USERS[at];
        let is_wrong = number % 5 == 4;
        let guess = if is_wrong { random_password() } else { self.passwords[at].clone() };
        self.secrets.insert(guess.clone());
        let expected = if is_wrong { WRONG } else { SUCCESS };
        let answer = self.host.authenticate(user, &guess);
        assert!(answer.ends_with(expected), "{user}: {answer}");
        self.right += usize::from(!is_wrong);
        self.wrong += usize::from(is_wrong);
        let account = self.host.run_pamtester("alone", user, &["acct_mgmt"], &[]);
        assert_eq!(account.code, 0, "{user}: {}", account.error());
        if number % 10 == 9 {
            let new = random_password();
            let lines = [&*self.passwords[at], &new, &new];
            let done = self.host.run_pamtester("alone", user, &["chauthtok"], &lines);
            assert_eq!(done.code, 0, "{}", done.error());
            self.secrets.insert(new.clone());
            self.passwords[at] = new;
        }
    }

    /// People type passwords where names belong.
    fn try_unknown_name(&mut self) {
        let (name, password) = (random_password(), random_password());
        let answer = self.host.authenticate(&name, &password);
        assert!(answer.ends_with(UNKNOWN), "{answer}");
        assert_ne!(run(self.host.command("id").arg(&name)).code, 0);
        self.secrets.extend([name, password]);
    }
}

/// Each login of a known user can be followed from the responder to the directory. Returns their number.
#[track_caller]
fn expect_followed_logins(log: &str) -> usize {
    let is_login = |line: &&str| line.contains(" kind=log-in user=") && !line.contains("(unknown)");
    let mut numbers = BTreeSet::new();
    for line in log.lines().filter(is_login) {
        let request = request_of(line).unwrap_or_else(|| panic!("no number: {line}"));
        assert!(numbers.insert(request), "{request} is not unique");
        let roles = roles_of(log, request);
        assert_eq!(roles.first(), Some(&"responder:pam:"), "{request}: {roles:?}");
        assert!(roles.contains(&"backend:corp:"), "{request}: {roles:?}");
        let its: Vec<_> = log.lines().filter(|line| request_of(line) == Some(request)).collect();
        // The directory was searched for the DN, and the password was checked there.
        for part in ["search server=", "bind server=", "decided"] {
            assert!(its.iter().any(|line| line.contains(part)), "{part}: {its:#?}");
        }
    }
    numbers.len()
}

#[test]
fn request_numbers_lead_through_all_roles() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&USERS);
    let rosterd = daemon(&slapd, "trace");
    let mut run_of_logins = LoginRun {
        host: PamHost::on(&rosterd, "alice"),
        passwords: USERS.map(|user| set_password(&slapd, user)),
        secrets: BTreeSet::from([READER_PASSWORD.to_owned(), pam::PASSWORD.to_owned()]),
        right: 0,
        wrong: 0,
    };
    (0..logins()).for_each(|number| run_of_logins.log_in(number));
    (0..3).for_each(|_| run_of_logins.try_unknown_name());
    let LoginRun { host, passwords, mut secrets, right, wrong } = run_of_logins;
    host.service("sshd", pam::ROSTER_ONLY_STACK);
    let sshd = Sshd::start(&rosterd, "PasswordAuthentication yes\nPubkeyAuthentication no");
    let done = sshd.run_with_password("bob", &passwords[1], "password", "true");
    assert_eq!(done.code, 0, "{}: {}", done.error(), sshd.log());
    secrets.extend(passwords);

    let outcome = |outcome: &str| {
        let outcome = format!(" outcome={outcome} ");
        move |line: &&str| line.contains(" kind=log-in ") && line.contains(&outcome)
    };
    wait_until(SOON, "all logins are logged", || {
        rosterd.log().lines().filter(outcome("success")).count() > right
    });
    let log = rosterd.log();
    assert_eq!(log.lines().filter(outcome("wrong password")).count(), wrong);
    assert_eq!(expect_followed_logins(&log), right + wrong + 1);
    for part in ["password change server=", "access rule rule=", "access decision verdict="] {
        let is_numbered = |line: &str| line.contains(part) && request_of(line).is_some();
        assert!(log.lines().any(is_numbered), "{part}");
    }
    expect_no_secrets(&log, &secrets);
}

#[test]
fn lookup_number_leads_from_responder_to_directory() {
    let slapd = pam::slapd_with_users(&USERS);
    let domain = DomainTable::ldap("corp", &slapd).with("mode", "\"on-demand\"");
    let mut rosterd = Rosterd::prepared(&[domain]);
    rosterd.set_tables("[log]\nlevel = \"trace\"\n");
    rosterd.launch();
    rosterd.wait_for_snapshot();
    rosterd.expect_domain_status("corp", "online", true);
    assert!(rosterd.getent("passwd", "carol").is_some());
    let line = wait_for(SOON, || {
        let log = rosterd.log();
        let found = log.lines().find(|line| {
            line.contains("responder:nss: lookup kind=") && line.contains(" name=carol ")
        });
        found.map(str::to_owned).ok_or(log)
    });
    let log = rosterd.log();
    let request = request_of(&line).expect("a number");
    let roles = roles_of(&log, request);
    for role in ["publisher:", "backend:corp:", "responder:nss:"] {
        assert!(roles.contains(&role), "{request}: {roles:?}: {log}");
    }
    let is_search = |line: &str| {
        line.contains("search server=")
            && line.contains("(uid=carol)")
            && line.contains(" result=success ")
            && line.contains(" entries=")
            && request_of(line) == Some(request)
    };
    assert!(log.lines().any(is_search), "{log}");
}

#[test]
fn error_writes_debug_lines_without_secrets() {
    if !needs_root() {
        return;
    }
    let mut slapd = pam::slapd_with_users(&USERS);
    let rosterd = daemon(&slapd, "info");
    let host = PamHost::on(&rosterd, "alice");
    let password = set_password(&slapd, "alice");
    let wrong = random_password();
    for (guess, result) in [(&password, SUCCESS), (&wrong, WRONG)] {
        let answer = host.authenticate("alice", guess);
        assert!(answer.ends_with(result), "{answer}");
    }
    assert!(!rosterd.log().contains("bind server="), "{}", rosterd.log());
    pam::stop_server(&mut slapd, &rosterd);
    let log = wait_for(SOON, || {
        let log = rosterd.log();
        let is_bind = |line: &str| {
            line.contains("debug backend:corp: backtrace: ") && line.contains("bind server=")
        };
        if log.lines().any(is_bind) { Ok(log) } else { Err(log) }
    });
    let secrets = [READER_PASSWORD.to_owned(), pam::PASSWORD.to_owned(), password, wrong];
    expect_no_secrets(&log, &BTreeSet::from(secrets));
}

#[test]
fn log_level_holds_for_roles_that_start_later() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&USERS);
    let mut rosterd = daemon(&slapd, "info");
    rosterd.wait_for_snapshot();
    rosterd.expect_domain_status("corp", "online", true);
    let level = |rosterd: &Rosterd, role: &str| {
        let shown = rosterd.roster(&["log-level", "--json"]);
        let levels: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        levels[role].as_str().unwrap_or_default().to_owned()
    };
    // No program has logged in: the responder idles.
    assert!(rosterd.role("responder:pam").is_none());
    let set = rosterd.roster(&["log-level", "responder:pam", "trace"]);
    let text = String::from_utf8_lossy(&set.stdout).into_owned();
    assert_eq!(text, "responder:pam logs at level trace from the next start\n", "{}", set.error());
    assert_eq!(level(&rosterd, "responder:pam"), "trace");
    pam::wait_until_user_known(&rosterd, "alice");
    assert_eq!(PamHost::on(&rosterd, "alice").authenticate("alice", pam::PASSWORD), SUCCESS);
    let is_trace = |line: &str| line.contains("trace responder:pam: ");
    wait_until(SOON, "the responder logs its steps", || rosterd.log().lines().any(is_trace));
    assert!(!rosterd.log().contains("trace backend:corp: "));

    // A role that restarts keeps the level of all roles.
    let set = rosterd.roster(&["log-level", "debug"]);
    assert_eq!(set.code, 0, "{}", set.error());
    let before = rosterd.wait_for_role("publisher");
    rosterd.kill_role("publisher");
    wait_until(SOON, "the publisher starts again", || {
        rosterd.role("publisher").is_some_and(|pid| pid != before)
    });
    wait_until(SOON, "it has the level", || level(&rosterd, "publisher") == "debug");

    // A configuration with the same level changes nothing, and one with another level resets all.
    rosterd.process().signal(Signal::HUP);
    wait_until(SOON, "the reload is done", || {
        rosterd.log().contains("the new configuration is in force")
    });
    assert_eq!(level(&rosterd, "publisher"), "debug");
    rosterd.set_tables("[log]\nlevel = \"warn\"\n");
    rosterd.process().signal(Signal::HUP);
    for role in ["monitor", "publisher", "backend:corp", "responder:pam"] {
        wait_until(SOON, "the level of the file", || level(&rosterd, role) == "warn");
    }
}
