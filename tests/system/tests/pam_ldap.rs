// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logins by the directory: the real module in real programs, a real daemon, real servers.

use roster_request::AuthResult;
use roster_system_tests::pam::{
    self, FIRST_LOGIN_UID, PASSWORD, PamHost, last_message, stdin_with_lines,
};
use roster_system_tests::rosterd::{LOCAL_GROUP, LOCAL_PASSWD, SOON};
use roster_system_tests::servers::{POLICY_RDN, Relay, ServerCertificate};
use roster_system_tests::test_host::RECOMMENDED_NSSWITCH;
use roster_system_tests::{
    Corpus, DirectoryServer, DomainTable, Ds389, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions,
    Sshd, TestHost, find_tool, needs_root, pam_module, run, wait_for, wait_until,
};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SUCCESS: &str = "successfully authenticated";
const WRONG: &str = "Authentication failure";
const UNKNOWN: &str = "User not known to the underlying authentication module";
const UNAVAILABLE: &str = "Authentication service cannot retrieve authentication info";

/// A domain with logins by the directory only.
fn domain<S: DirectoryServer>(server: &S) -> DomainTable {
    pam::domain(server).with("offline_credentials", "false")
}

fn log_in_by(domain: DomainTable) -> DomainTable {
    domain.with("auth", "\"ldap\"").with("offline_credentials", "false")
}

fn started(domains: &[DomainTable]) -> Rosterd {
    pam::start_daemon(domains, "")
}

fn user_dn(name: &str) -> String {
    LdifBuilder::new(Schema::Rfc2307).user_dn(name)
}

/// No password that a test uses is anywhere in the log.
#[track_caller]
fn expect_no_secrets(rosterd: &Rosterd, secrets: &[&str]) {
    let log = rosterd.log();
    let is_login = |line: &str| line.contains("responder:pam: ") && line.contains("kind=log-in ");
    assert!(log.lines().any(is_login), "nothing is logged: {log}");
    for secret in secrets {
        assert!(!log.contains(secret), "{secret:?} is in the log: {log}");
    }
}

#[test]
fn who_knows_the_password_logs_in_and_nobody_else() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob"]);
    let rosterd = started(&[domain(&slapd)]);
    let pam = PamHost::on(&rosterd, "alice");
    assert_eq!(pam.authenticate("alice", PASSWORD), SUCCESS);
    let longest = "x".repeat(511);
    for wrong in ["", "swordfish", " correct horse", "correct horse ", &longest, "*", "correct\\00"]
    {
        let answer = pam.authenticate("alice", wrong);
        assert!(answer.ends_with(WRONG), "{wrong:.20}: {answer}");
    }
    // Names that have a meaning in a filter.
    for name in ["mallory", "*", "alice)(uid=*", "a*ice", "ALICE", "alice ", "uid=alice"] {
        let answer = pam.authenticate(name, PASSWORD);
        assert!(answer.ends_with(UNKNOWN), "{name}: {answer}");
    }
    // A whole session, as a program has it.
    let operations = ["authenticate", "acct_mgmt", "setcred", "open_session", "close_session"];
    let done = pam.run_pamtester("alone", "alice", &operations, &[PASSWORD]);
    assert_eq!((done.code, &*last_message(&done)), (0, "session has successfully been closed."));
    // Users sometimes type a password in place of the name.
    pam.expect_logged("user=(unknown)", "outcome=unknown user");
    assert!(!rosterd.log().contains("mallory"), "the name of an unknown user is logged");
    expect_no_secrets(&rosterd, &[PASSWORD, "swordfish", &longest]);
}

#[test]
fn login_moved_user_works_replaced_user_not() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob", "carol"]);
    let rosterd = started(&[domain(&slapd).with("mode", "\"on-demand\"")]);
    let pam = PamHost::on(&rosterd, "alice");
    for user in ["alice", "bob", "carol"] {
        assert_eq!(pam.authenticate(user, PASSWORD), SUCCESS);
    }
    let groups = format!("ou=groups,{}", slapd.base());
    slapd.rename(&user_dn("alice"), "uid=alice", Some(&groups));
    assert_eq!(pam.authenticate("alice", PASSWORD), SUCCESS);
    assert!(pam.authenticate("alice", "swordfish").ends_with(WRONG));
    slapd.delete(&[user_dn("bob")]);
    assert_ne!(pam.authenticate("bob", PASSWORD), SUCCESS);
    // The account of a user with a key is checked here alone, and a cache may still have it.
    let account = last_message(&pam.run_pamtester("alone", "bob", &["acct_mgmt"], &[]));
    assert!(account.ends_with("Permission denied"), "{account}");
    // Another user has taken the name: the served user is not the one with this password.
    slapd.delete(&[user_dn("carol")]);
    let other = pam::login_users_ldif(&["nobody", "nobody", "nobody", "carol"]);
    let (_, other) = other.split_once("dn: uid=carol,").expect("carol");
    slapd.change(&format!("dn: uid=carol,{other}"));
    let answer = pam.authenticate("carol", PASSWORD);
    let now = rosterd.getent("passwd", "carol").unwrap_or_default();
    assert!(answer != SUCCESS || now.contains(":20003:"), "{answer}, and carol is {now}");
}

/// An invalid text is an unknown argument, and the usual prompt appears.
#[test]
fn login_prompt_argument_replaces_usual_text() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice"]);
    let rosterd = started(&[domain(&slapd)]);
    let pam = PamHost::on(&rosterd, "alice");
    let long = "x".repeat(128);
    for (argument, prompt) in [
        ("[prompt=Key of the lab: ]", "Key of the lab: "),
        ("prompt=", "Password: "),
        (&*format!("prompt={long}"), "Password: "),
    ] {
        pam.service("some", &format!("auth required MODULE nodelay {argument}\n"));
        let done = pam.run_pamtester("some", "alice", &["authenticate"], &[PASSWORD]);
        assert_eq!(last_message(&done), SUCCESS, "{argument}");
        let shown = [done.text(), done.error()].concat();
        assert!(shown.contains(prompt), "{argument}: {shown}");
        assert!(!shown.contains(&long), "{argument}: {shown}");
    }
}

#[test]
fn users_of_the_host_are_nobody_elses_business() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "local", "root"]);
    let rosterd = started(&[domain(&slapd)]);
    let pam = PamHost::on(&rosterd, "alice");
    assert_eq!(pam.authenticate("alice", PASSWORD), SUCCESS);
    for name in ["root", "local", "daemon"] {
        assert!(pam.authenticate(name, PASSWORD).ends_with(UNKNOWN), "{name}");
        pam.service("both", "account required MODULE\naccount required pam_permit.so\n");
        let done = pam.run_pamtester("both", name, &["acct_mgmt"], &[]);
        assert_eq!(done.code, 0, "{name} is kept out: {}", last_message(&done));
        let done = pam.run_pamtester("alone", name, &["chauthtok"], &[PASSWORD, "other", "other"]);
        assert!(last_message(&done).ends_with(UNKNOWN), "{}", last_message(&done));
    }
    assert!(!rosterd.log().contains("user=root") && !rosterd.log().contains("user=local"));
    // If the file cannot be read, no other user is allowed, and root is not denied.
    let blind = |user: &str| {
        let script = "mount -t tmpfs tmpfs /etc && mkdir /etc/pam.d && cp \"$2\"/* /etc/pam.d && \
                      exec pamtester both \"$1\" acct_mgmt";
        let mut command = pam.command("unshare");
        let stacks = rosterd.host().path("pam.d");
        command.args(["-m", "sh", "-ec", script, "blind", user]).arg(stacks);
        last_message(&run(&mut command))
    };
    assert_eq!(blind("root"), "account management done.");
    assert_eq!(blind("alice"), "account management done.");
    assert!(blind("local").ends_with(UNKNOWN), "{}", blind("local"));
}

#[test]
fn a_new_password_counts_at_once_and_the_old_one_no_more() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice"]);
    slapd.change(&format!(
        "dn: {POLICY_RDN},{}\nchangetype: modify\nadd: pwdMinLength\npwdMinLength: 8\n-\n\
         add: pwdInHistory\npwdInHistory: 3\n-\nadd: pwdCheckQuality\npwdCheckQuality: 2\n-\n\n",
        slapd.base()
    ));
    let rosterd = started(&[domain(&slapd)]);
    let pam = PamHost::on(&rosterd, "alice");
    let change = |lines: &[&str]| pam.run_pamtester("alone", "alice", &["chauthtok"], lines);

    let done = change(&["wrong", "battery staple", "battery staple"]);
    assert!(last_message(&done).ends_with(WRONG), "{}", last_message(&done));
    // First too short, then two different ones, then valid.
    let done = change(&[
        PASSWORD,
        "short",
        "short",
        "battery staple",
        "battery stable",
        "battery staple",
        "battery staple",
    ]);
    let shown = format!("{}{}", String::from_utf8_lossy(&done.stdout), done.error());
    assert_eq!(done.code, 0, "{shown}");
    assert!(shown.contains("The new password is too short."), "{shown}");
    assert!(shown.contains("The two passwords differ."), "{shown}");
    assert!(pam.authenticate("alice", PASSWORD).ends_with(WRONG));
    assert_eq!(pam.authenticate("alice", "battery staple"), SUCCESS);

    // After the right present password there are three attempts.
    let done = change(&["battery staple", PASSWORD, PASSWORD, "1", "1", "2", "2", "3", "3"]);
    let shown = format!("{}{}", String::from_utf8_lossy(&done.stdout), done.error());
    assert!(shown.contains("was used before") || shown.contains("history"), "{shown}");
    assert!(done.code != 0 && shown.contains("Password unchanged."), "{shown}");
    assert_eq!(pam.authenticate("alice", "battery staple"), SUCCESS);
    // An earlier module has prompted for the password, or has not.
    pam.service("given", "password required MODULE use_authtok nodelay\n");
    let done = pam.run_pamtester("given", "alice", &["chauthtok"], &["battery staple", "x", "x"]);
    assert!(last_message(&done).contains("token manipulation error"), "{}", last_message(&done));
    expect_no_secrets(&rosterd, &[PASSWORD, "battery"]);
}

#[test]
fn a_policy_is_told_and_obeyed() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob", "carol", "dave"]);
    let policy = |attributes: &str| {
        let change: Vec<_> = attributes
            .split(' ')
            .map(|pair| {
                let (name, value) = pair.split_once('=').expect("name=value");
                format!("replace: {name}\n{name}: {value}\n-\n")
            })
            .collect();
        let dn = format!("{POLICY_RDN},{}", slapd.base());
        slapd.change(&format!("dn: {dn}\nchangetype: modify\n{}\n", change.concat()));
    };
    policy("pwdMustChange=TRUE pwdLockout=TRUE pwdMaxFailure=3 pwdLockoutDuration=300");
    let rosterd = started(&[domain(&slapd)]);
    let pam = PamHost::on(&rosterd, "dave");
    let whole = |user: &str, lines: &[&str]| {
        let done = pam.run_pamtester("alone", user, &["authenticate", "acct_mgmt"], lines);
        (done.code, format!("{}{}", String::from_utf8_lossy(&done.stdout), done.error()))
    };

    // Locked after three failures: the right password is then denied, and the log says why.
    for _ in 0..3 {
        assert!(pam.authenticate("bob", "wrong").ends_with(WRONG));
    }
    let (code, shown) = whole("bob", &[PASSWORD]);
    assert!(code != 0 && !shown.contains("lock"), "{shown}");
    pam.expect_logged("user=bob", "outcome=locked");

    // Reset by an administrator: right, and of no use until it is changed.
    slapd.set(&user_dn("alice"), "pwdReset", &["TRUE"]);
    let (code, shown) = whole("alice", &[PASSWORD]);
    assert!(code != 0 && shown.contains("Your password must be changed now."), "{shown}");
    assert!(shown.contains("new one required"), "{shown}");
    let lines = [PASSWORD, PASSWORD, "battery staple", "battery staple"];
    let done =
        pam.run_pamtester("alone", "alice", &["authenticate", "chauthtok", "acct_mgmt"], &lines);
    assert_eq!(done.code, 0, "{}", last_message(&done));
    assert_eq!(whole("alice", &["battery staple"]).0, 0);

    // It expires in ten days, and a message shows this.
    policy("pwdMustChange=FALSE pwdMaxAge=864000 pwdExpireWarning=863999");
    slapd.set(&user_dn("carol"), "userPassword", &[PASSWORD]);
    std::thread::sleep(Duration::from_secs(2));
    let (code, shown) = whole("carol", &[PASSWORD]);
    assert!(code == 0 && shown.contains("Your password expires in 9 days."), "{shown}");
    pam.service("silent", &pam::ROSTER_ONLY_STACK.replace("nodelay", "nodelay quiet"));
    let done = pam.run_pamtester("silent", "carol", &["authenticate"], &[PASSWORD]);
    assert!(!String::from_utf8_lossy(&done.stdout).contains("expires"), "{}", done.error());

    // It has expired. Two grace logins are left, and a change of password uses one.
    policy("pwdMaxAge=1 pwdGraceAuthnLimit=2");
    let (code, shown) = whole("carol", &[PASSWORD]);
    assert!(code == 0 && shown.contains("1 grace login left"), "{shown}");
    let lines = [PASSWORD, "battery staple", "battery staple"];
    let done = pam.run_pamtester("alone", "carol", &["chauthtok"], &lines);
    assert_eq!(done.code, 0, "{}", last_message(&done));
    policy("pwdGraceAuthnLimit=0");
    std::thread::sleep(Duration::from_secs(2));
    let (code, shown) = whole("carol", &["battery staple"]);
    assert!(code != 0 && shown.contains("Your password has expired. Ask"), "{shown}");
    expect_no_secrets(&rosterd, &[PASSWORD, "battery"]);
}

#[test]
fn accounts_of_389_ds_are_locked_and_inactivated() {
    if !needs_root() {
        return;
    }
    let ds389 = Ds389::serving(&pam::login_users_ldif(&["alice", "bob"]));
    ds389.change(
        "dn: cn=config\nchangetype: modify\nreplace: passwordLockout\npasswordLockout: on\n-\n\
         replace: passwordMaxFailure\npasswordMaxFailure: 3\n-\n\n",
    );
    let rosterd = started(&[domain(&ds389)]);
    let pam = PamHost::on(&rosterd, "alice");
    assert_eq!(pam.authenticate("alice", PASSWORD), SUCCESS);
    for _ in 0..3 {
        assert_ne!(pam.authenticate("alice", "wrong"), SUCCESS);
    }
    assert_ne!(pam.authenticate("alice", PASSWORD), SUCCESS);
    pam.expect_logged("user=alice", "outcome=locked");
    assert_eq!(pam.authenticate("bob", PASSWORD), SUCCESS);
    ds389.set(&user_dn("bob"), "nsAccountLock", &["true"]);
    assert_ne!(pam.authenticate("bob", PASSWORD), SUCCESS);
    pam.expect_logged("user=bob", "outcome=disabled");
    expect_no_secrets(&rosterd, &[PASSWORD]);
}

#[test]
fn passwords_go_to_servers_that_prove_who_they_are() {
    if !needs_root() {
        return;
    }
    let setup = SlapdOptions {
        certificate: Some(ServerCertificate::Good),
        ..SlapdOptions::new(Schema::Rfc2307)
    };
    let slapd = Slapd::serving(setup, &pam::login_users_ldif(&["alice"]));
    let mut other = Slapd::serving(
        SlapdOptions {
            certificate: Some(ServerCertificate::Good),
            ..SlapdOptions::new(Schema::Rfc2307)
        },
        &pam::login_users_ldif(&["alice"]),
    );
    let authority = format!("{:?}", slapd.authority());
    let mirrored = |uris: &[&str]| DomainTable::ldap_through("corp", &slapd, uris);
    let rosterd = started(&[log_in_by(mirrored(&[&slapd.ldaps_uri()])).with("tls_ca", &authority)]);
    let pam = PamHost::on(&rosterd, "alice");
    assert_eq!(pam.authenticate("alice", PASSWORD), SUCCESS);
    drop(rosterd);
    let rosterd = started(&[log_in_by(mirrored(&[&slapd.uri()]))
        .with("tls_ca", &authority)
        .with("start_tls", "true")]);
    let pam = PamHost::on(&rosterd, "alice");
    assert_eq!(pam.authenticate("alice", PASSWORD), SUCCESS);

    // Another server, with a certificate of another authority, replaces the first server.
    let mut rosterd = rosterd;
    let uri = other.ldaps_uri();
    rosterd.set_domains(&[log_in_by(mirrored(&[&uri])).with("tls_ca", &authority)]);
    rosterd.process().signal(Signal::HUP);
    wait_until(SOON, "the other server is asked", || {
        rosterd.domain("corp").is_ok_and(|domain| {
            domain["reason"].as_str().is_some_and(|reason| reason.contains("certificate"))
        })
    });
    let pam = PamHost::on(&rosterd, "alice");
    assert!(pam.authenticate("alice", PASSWORD).ends_with(UNAVAILABLE));
    pam.expect_logged("user=alice", "outcome=unreachable");

    // The error for a certificate of a plain `openssl req -x509` is clear.
    other.stop();
    other.set_certificate(ServerCertificate::SelfSigned);
    other.start();
    let _ = rosterd.roster(&["domain", "refresh", "corp"]);
    wait_for(SOON, || match rosterd.domain("corp")?["reason"].to_string() {
        reason if reason.contains("the certificate is that of an authority") => Ok(()),
        reason => Err(reason),
    });
}

#[test]
fn a_user_asks_for_themselves_alone_and_not_for_ever() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob"]);
    let tables = "[responder.pam]\ntrusted_users = [\"daemon\"]\nauth_attempts_per_minute = 5\n";
    let rosterd = pam::start_daemon(&[domain(&slapd)], tables);
    let pam = PamHost::on(&rosterd, "bob");
    let asks = |uid: u32, user: &str, password: &str| {
        last_message(&pam.run_pamtester_as(uid, user, &["authenticate"], &[password]))
    };
    assert_eq!(asks(FIRST_LOGIN_UID, "alice", PASSWORD), SUCCESS);
    for user in ["bob", "mallory"] {
        assert!(asks(FIRST_LOGIN_UID, user, PASSWORD).ends_with("Permission denied"), "{user}");
    }
    assert!(asks(1500, "alice", PASSWORD).ends_with("Permission denied"), "a local user");
    // `daemon` is trusted.
    assert_eq!(asks(1, "bob", PASSWORD), SUCCESS);
    let guesses: Vec<_> = (0..6).map(|_| asks(FIRST_LOGIN_UID, "alice", "wrong")).collect();
    assert!(guesses.last().is_some_and(|last| last.contains("maximum number")), "{guesses:?}");
    assert!(asks(FIRST_LOGIN_UID, "alice", PASSWORD).contains("maximum number"));
    // This does not affect another user.
    assert_eq!(asks(FIRST_LOGIN_UID + 1, "bob", PASSWORD), SUCCESS);
    assert_eq!(pam.authenticate("alice", PASSWORD), SUCCESS);
}

#[test]
fn log_in_during_thousand_guesses_does_not_queue() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob"]);
    let relay = Relay::to(slapd.port());
    let domain = log_in_by(DomainTable::ldap_through("corp", &slapd, &[&relay.uri()]));
    let rosterd = started(&[domain]);
    let pam = PamHost::on(&rosterd, "bob");
    let tried = || relay.times_sent("guess ");
    // On a busy machine all guesses may be over before bob's program has started: then once more.
    let is_before_them = (0..5).any(|_| {
        let before = tried();
        let program = include_str!("../python/try_passwords.py");
        let mut guesses = pam.command("python3");
        guesses.args(["-c", program, "alice", "1000"]).stdout(Stdio::piped());
        let guesses = guesses.spawn().expect("start python3");
        wait_until(SOON, "guesses are tried", || tried() > before);
        assert_eq!(pam.authenticate("bob", PASSWORD), SUCCESS);
        let until_now = tried() - before;
        let done = guesses.wait_with_output().expect("python3 ends");
        // Verdict 1 is a wrong password; no other answer came, and none was missing.
        assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "1: 1000");
        until_now < 1000
    });
    assert!(is_before_them, "bob waits for all guesses at alice's password");
    assert_eq!(pam.authenticate("alice", PASSWORD), SUCCESS);
}

#[test]
fn pam_malformed_request_closes_connection() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice"]);
    let rosterd = started(&[domain(&slapd)]);
    let pam = PamHost::on(&rosterd, "alice");
    let (program, uid) = (include_str!("../python/pam_socket.py"), FIRST_LOGIN_UID.to_string());
    let done = run(pam.command("python3").args(["-c", program, "alice", PASSWORD, &uid]));
    let lines = "well: 0\nagain: 0\nlogged out: none";
    // The account check is denied if its uid differs from that of the authenticated user.
    let uids = "with a uid: 0 0\nwith a uid: 9 9\nwith a uid: 9 9";
    assert_eq!(done.text(), format!("{lines}\n{uids}"));
    // After a change of the password the same bytes are useless.
    slapd.set(&user_dn("alice"), "userPassword", &["battery staple"]);
    let done = run(pam.command("python3").args(["-c", program, "alice", PASSWORD, &uid]));
    let lines = "well: 1\nagain: 1\nlogged out: none";
    let uids = "with a uid: 1 0\nwith a uid: 9 9\nwith a uid: 9 9";
    assert_eq!(done.text(), format!("{lines}\n{uids}"));
    expect_no_secrets(&rosterd, &[PASSWORD]);
}

#[test]
fn log_in_silent_directory_is_asked_once() {
    if !needs_root() {
        return;
    }
    let mut slapd = pam::slapd_with_users(&["alice"]);
    let relay = Relay::to(slapd.port());
    let domain = log_in_by(DomainTable::ldap_through("corp", &slapd, &[&relay.uri()]));
    let rosterd = started(&[domain]);
    let pam = PamHost::on(&rosterd, "alice");
    assert_eq!(pam.authenticate("alice", PASSWORD), SUCCESS);
    relay.drop_traffic();
    assert!(pam.authenticate("alice", PASSWORD).ends_with(UNAVAILABLE));
    // From now on all get an answer at once: the server is not queried.
    pam.expect_logged("password authentication offline", "[RST-6505]");
    let asked = relay.times_sent(PASSWORD);
    assert!(pam.authenticate("alice", PASSWORD).ends_with(UNAVAILABLE));
    assert_eq!(relay.times_sent(PASSWORD), asked);
    relay.resume_traffic();
    wait_until(SOON, "the server is asked again", || {
        pam.authenticate("alice", PASSWORD) == SUCCESS
    });
    slapd.stop();
    assert!(pam.authenticate("alice", PASSWORD).ends_with(UNAVAILABLE));
    pam.expect_logged("user=alice", "outcome=unreachable");
    slapd.start();
    wait_until(SOON, "the server is asked again", || {
        pam.authenticate("alice", PASSWORD) == SUCCESS
    });
}

#[test]
fn log_in_silent_server_next_one_is_asked() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice"]);
    let relay = Relay::to(slapd.port());
    let uris = [relay.uri(), slapd.uri()];
    let uris: Vec<_> = uris.iter().map(String::as_str).collect();
    let domain = log_in_by(DomainTable::ldap_through("corp", &slapd, &uris));
    let rosterd = started(&[domain]);
    let pam = PamHost::on(&rosterd, "alice");
    assert_eq!(pam.authenticate("alice", PASSWORD), SUCCESS);
    relay.drop_traffic();
    assert_eq!(pam.authenticate("alice", PASSWORD), SUCCESS, "{}", rosterd.log());
    let asked = relay.times_sent(PASSWORD);
    // From now on the silent server gets no request.
    assert_eq!(pam.authenticate("alice", PASSWORD), SUCCESS, "{}", rosterd.log());
    assert_eq!(relay.times_sent(PASSWORD), asked);
}

/// The profiles of authselect with faillock, without lines that only delay.
#[test]
fn local_users_are_locked_out_by_faillock_and_others_by_their_directory() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice"]);
    let rosterd = started(&[domain(&slapd)]);
    let pam = PamHost::on(&rosterd, "alice");
    let tallies = rosterd.host().path("tallies");
    fs::create_dir(&tallies).expect("a folder for failures");
    let faillock = format!("pam_faillock.so nodelay dir={}", tallies.display());
    let profiles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/pam/authselect");
    for profile in ["system-auth", "password-auth"] {
        let text = fs::read_to_string(profiles.join(profile)).expect("the profile");
        let text = text.replace("{include if \"with-faillock\"}", "");
        let text = text.replace("pam_faillock.so", &faillock);
        let text = text.replace("pam_roster.so try_first_pass", "MODULE try_first_pass nodelay");
        let text = text.replace("pam_roster.so", "MODULE");
        let text = text.replace("MODULE", pam.module_path().to_str().expect("a plain path"));
        let is_tried = |line: &&str| {
            (line.starts_with("auth") || line.starts_with("account")) && !line.contains("faildelay")
        };
        let stack =
            text.lines().filter(is_tried).fold(String::new(), |all, line| all + line + "\n");
        assert_eq!(stack.matches("pam_faillock.so").count(), 3, "{profile}");
        pam.service(profile, &stack);
        for _ in 0..4 {
            let wrong = last_message(&pam.run_pamtester(
                profile,
                "alice",
                &["authenticate"],
                &["swordfish"],
            ));
            assert_ne!(wrong, SUCCESS);
        }
        let whole = ["authenticate", "acct_mgmt"];
        let done = pam.run_pamtester(profile, "alice", &whole, &[PASSWORD]);
        assert_eq!(done.code, 0, "{profile}: {}", last_message(&done));
        // The other modules decide cases that this module ignores.
        let line =
            stack.lines().find(|line| line.starts_with("account") && line.contains("pam_roster"));
        let line = line.expect("the module's line");
        pam.service("others", &format!("{line}\naccount required pam_permit.so\n"));
        assert_eq!(pam.run_pamtester("others", "sshd", &["acct_mgmt"], &[]).code, 0, "{profile}");
    }
}

#[test]
fn log_in_unknown_user_costs_the_directory_a_bind() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice"]);
    let relay = Relay::to(slapd.port());
    let domain = log_in_by(DomainTable::ldap_through("corp", &slapd, &[&relay.uri()]));
    let rosterd = started(&[domain]);
    let pam = PamHost::on(&rosterd, "alice");
    // The times are figures of `make bench`. They are even because the directory has the same work.
    pam.service("slow", "auth required MODULE\n");
    // The minimum of a few: the daemon may check that the server is there, and the request itself is a bind, too.
    let binds = |user: &str| {
        let tried = (0..4).map(|_| {
            let before = slapd.binds();
            assert_ne!(
                last_message(&pam.run_pamtester("alone", user, &["authenticate"], &["wrong"])),
                SUCCESS
            );
            slapd.binds() - before - 1
        });
        tried.min().expect("a few")
    };
    assert_eq!((binds("alice"), binds("mallory")), (1, 1));
    for user in ["alice", "mallory"] {
        // A failure makes programs wait for about two seconds, for any user: the C library of PAM sleeps.
        let record = rosterd.host().path("sleeps");
        let mut program =
            pam.command(find_tool("strace", "strace").to_str().expect("a plain path"));
        program.args(["-f", "-e", "trace=select,pselect6,clock_nanosleep", "-o"]).arg(&record);
        program.arg(find_tool("pamtester", "pamtester")).args(["slow", user, "authenticate"]);
        let mut program = program.stdin(Stdio::piped()).spawn().expect("start pamtester");
        program.stdin.take().expect("piped").write_all(b"wrong\n").expect("a password");
        assert!(!program.wait().expect("it ends").success());
        let sleeps = fs::read_to_string(&record).expect("the record");
        assert!(sleeps.contains("{tv_sec=1,") || sleeps.contains("{tv_sec=2,"), "{user}: {sleeps}");
    }
}

#[test]
fn su_sudo_and_sshd_let_people_in() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob"]);
    let rosterd = started(&[domain(&slapd)]);
    let pam = PamHost::on(&rosterd, "bob");
    // The directory authenticates the caller. The session that sudo opens is for a user of the host.
    for service in ["sudo", "sshd"] {
        pam.service(
            service,
            &format!("{}session required pam_permit.so\n", pam::ROSTER_ONLY_STACK),
        );
    }
    let root = "auth sufficient pam_rootok.so\n";
    pam.service("su", &format!("{root}{}", pam::ROSTER_ONLY_STACK));
    let as_alice = |password: &str| {
        let mut command = pam.command("setpriv");
        command.args(["--reuid", "20000", "--regid", "20000", "--clear-groups"]);
        run(command.args(["su", "bob", "-c", "id -un"]).stdin(stdin_with_lines(&[password])))
    };
    assert_eq!(as_alice(PASSWORD).text(), "bob");
    assert_ne!(as_alice("wrong").code, 0);

    let sudoers = rosterd.host().path("sudoers");
    fs::write(&sudoers, "alice ALL=(ALL) ALL\n").expect("write sudoers");
    let script = "mount --bind \"$1\" /etc/sudoers && exec setpriv --reuid 20000 --regid 20000 \
                  --clear-groups sudo -S -k -p '' id -un";
    let sudo = |password: &str| {
        let mut command = pam.command("unshare");
        command.args(["-m", "sh", "-ec", script, "sudo"]).arg(&sudoers);
        run(command.stdin(stdin_with_lines(&[password])))
    };
    fs::set_permissions(&sudoers, fs::Permissions::from_mode(0o440)).expect("chmod");
    assert_eq!(sudo(PASSWORD).text(), "root");
    assert_ne!(sudo("wrong").code, 0);

    let sshd = Sshd::start(
        &rosterd,
        "PasswordAuthentication yes\nKbdInteractiveAuthentication yes\nPubkeyAuthentication no",
    );
    let ssh =
        |user: &str, password: &str| sshd.run_with_password(user, password, "password", "id -un");
    assert_eq!(ssh("alice", PASSWORD).text(), "alice", "{}", sshd.log());
    assert_ne!(ssh("alice", "wrong").code, 0);
    assert_ne!(ssh("mallory", PASSWORD).code, 0);
    pam.expect_logged("user=alice service=sshd rhost=127.0.0.1", "outcome=success");
    expect_no_secrets(&rosterd, &[PASSWORD]);
}

/// By verdict, the results of pam_authenticate, pam_acct_mgmt and the two parts of pam_chauthtok. libpam denies a
/// request that no module in the stack accepts: hence PERM_DENIED where the module says IGNORE.
const CODES: &str = "
0 SUCCESS SUCCESS SUCCESS SUCCESS
1 AUTH_ERR PERM_DENIED AUTH_ERR AUTHTOK_RECOVERY_ERR
2 USER_UNKNOWN USER_UNKNOWN USER_UNKNOWN USER_UNKNOWN
3 USER_UNKNOWN PERM_DENIED USER_UNKNOWN USER_UNKNOWN
4 SUCCESS NEW_AUTHTOK_REQD AUTHTOK_ERR AUTHTOK_ERR
5 AUTH_ERR AUTHTOK_EXPIRED PERM_DENIED PERM_DENIED
6 ACCT_EXPIRED ACCT_EXPIRED PERM_DENIED PERM_DENIED
7 PERM_DENIED PERM_DENIED PERM_DENIED PERM_DENIED
8 ACCT_EXPIRED ACCT_EXPIRED PERM_DENIED PERM_DENIED
9 PERM_DENIED PERM_DENIED PERM_DENIED PERM_DENIED
10 AUTHINFO_UNAVAIL AUTHINFO_UNAVAIL TRY_AGAIN AUTHTOK_ERR
11 AUTHINFO_UNAVAIL AUTHINFO_UNAVAIL TRY_AGAIN AUTHTOK_ERR
12 MAXTRIES PERM_DENIED TRY_AGAIN AUTHTOK_ERR
13 PERM_DENIED PERM_DENIED PERM_DENIED PERM_DENIED
14 AUTH_ERR PERM_DENIED PERM_DENIED AUTHTOK_ERR
nobody-listens AUTHINFO_UNAVAIL AUTHINFO_UNAVAIL TRY_AGAIN TRY_AGAIN
no-conversation CONV_ERR SUCCESS CONV_ERR CONV_ERR
";

#[test]
fn pam_each_result_has_code_unknown_denies() {
    if !needs_root() {
        return;
    }
    let locals = Corpus::new("", LOCAL_PASSWD.as_bytes(), LOCAL_GROUP.as_bytes(), b"");
    let host = TestHost::new(&locals, RECOMMENDED_NSSWITCH);
    let script = "mount -t tmpfs -o mode=755 tmpfs /run; exec python3 -c \"$@\"";
    let mut command = host.command("sh");
    command.args(["-ec", script, "table", include_str!("../python/pam_return_codes.py")]);
    let told = run(command.arg(pam_module()).arg("alice")).text();
    for line in told.lines() {
        let (said, codes) = line.split_once(' ').expect("what was said, and codes");
        let known = CODES.lines().find(|row| row.split(' ').next() == Some(said));
        match known {
            Some(row) => assert_eq!(line, row),
            None => assert_eq!(
                codes, "AUTHINFO_UNAVAIL AUTHINFO_UNAVAIL TRY_AGAIN AUTHTOK_ERR",
                "{said} is no answer"
            ),
        }
    }
    // Each of the table, and eleven invalid replies.
    assert_eq!(told.lines().count(), CODES.trim().lines().count() + 11, "{told}");
    assert_eq!(AuthResult::ALL.len(), 15, "a verdict is not in the table");
}

#[test]
fn the_module_is_small_and_exports_what_libpam_calls() {
    let readelf = |option: &str| {
        let mut readelf = Command::new(find_tool("readelf", "binutils"));
        run(readelf.args([option, "-W"]).arg(pam_module())).text()
    };
    let dynamic = readelf("--dynamic");
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    assert!(needed.clone().count() == 2, "{dynamic}");
    for line in needed {
        assert!(line.contains("[libc.so.6]") || line.contains("[libpam.so.0]"), "{line}");
    }
    assert!(!readelf("--segments").lines().any(|line| line.trim().starts_with("TLS")));
    assert!(dynamic.contains("BIND_NOW") || dynamic.contains("Flags: NOW"), "{dynamic}");
    let symbols = readelf("--dyn-syms");
    let mut exported: Vec<_> = symbols
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.len() == 8 && fields[4] != "LOCAL" && fields[6] != "UND")
        .filter(|fields| fields[0].ends_with(':') && fields[0] != "Num:")
        .map(|fields| fields[7])
        .collect();
    exported.sort_unstable();
    assert_eq!(
        exported,
        [
            "pam_sm_acct_mgmt",
            "pam_sm_authenticate",
            "pam_sm_chauthtok",
            "pam_sm_close_session",
            "pam_sm_open_session",
            "pam_sm_setcred",
        ]
    );
    let size = pam_module().metadata().expect("the module was built").len();
    assert!(size <= 40_000, "{size} bytes");
}
