// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of passwords at a directory: the day in shadowLastChange, both LDAP operations, and passwords that have
//! expired without grace logins. The module is in pamtester, su and sshd.

use roster_messages::table::login;
use roster_system_tests::pam::{
    self, FIRST_LOGIN_UID, PASSWORD, PamHost, last_message, stdin_with_lines,
};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::POLICY_RDN;
use roster_system_tests::{
    DirectoryServer, DomainTable, Ds389, LdifBuilder, ProgramOutput, Rosterd, Schema, Slapd,
    SlapdOptions, Sshd, needs_root, run, wait_for,
};
use std::fs;

const NEW: &str = "battery staple";
const SUCCESS: &str = "successfully authenticated";
const WRONG: &str = "Authentication failure";
/// The access control of the harness for passwords.
const PASSWORD_ACCESS: &str = "access to attrs=userPassword by self write";
/// Checks the age of passwords.
const AGE_CHECK: &str = "[domain.corp.access]\naccount_checks = [\"password-age\"]\n";
const ASKPASS: &str = "#!/bin/sh\ncase \"$1\" in *[Rr]etype*|*\"New pass\"*) printf '%s\\n' \
                       \"battery staple\";; *) printf '%s\\n' \"$PASSWORD_TO_TYPE\";; esac\n";

fn user_dn(name: &str) -> String {
    LdifBuilder::new(Schema::Rfc2307).user_dn(name)
}

/// A server with these users, with a policy, and with another access to passwords and to the day of a change.
fn slapd(users: &str, policy: &str, access: &str) -> Slapd {
    let options = SlapdOptions { policy: true, ..SlapdOptions::new(Schema::Rfc2307) };
    let mut slapd = Slapd::loaded(options, users);
    slapd.edit_conf(|text| text.replacen(PASSWORD_ACCESS, access, 1));
    slapd.start();
    slapd.change(&format!(
        "dn: {POLICY_RDN},{base}\nobjectClass: device\nobjectClass: pwdPolicy\ncn: policy\n\
         pwdAttribute: userPassword\n{policy}",
        base = slapd.base()
    ));
    slapd
}

/// Users with passwords that were last changed in 2020, and never in shadowLastChange.
fn expired_users(names: &[&str]) -> String {
    let line = format!("userPassword: {PASSWORD}\n");
    let users = pam::login_users_ldif(names);
    users.replace(&line, &format!("{line}pwdChangedTime: 20200101000000Z\n"))
}

fn domain(slapd: &Slapd) -> DomainTable {
    pam::domain(slapd).with("offline_credentials", "false")
}

fn change(pam: &PamHost<'_>, user: &str, lines: &[&str]) -> ProgramOutput {
    pam.run_pamtester("alone", user, &["chauthtok"], lines)
}

fn shown(done: &ProgramOutput) -> String {
    format!("{}{}", String::from_utf8_lossy(&done.stdout), done.error())
}

/// Whether a whole login asks for another password.
fn must_change(pam: &PamHost<'_>, user: &str, password: &str) -> bool {
    let done = pam.run_pamtester("alone", user, &["authenticate", "acct_mgmt"], &[password]);
    let shown = shown(&done);
    assert!(shown.contains(SUCCESS), "{shown}");
    assert_eq!(done.code != 0, shown.contains("new one required"), "{shown}");
    done.code != 0
}

/// The day of the last change in the directory.
fn change_day(slapd: &Slapd, user: &str) -> u64 {
    let dn = user_dn(user);
    let found = slapd.search(&dn, "(objectClass=*)", &["shadowLastChange"]);
    let text = String::from_utf8_lossy(&found).into_owned();
    let value = text.lines().find_map(|line| line.strip_prefix("shadowLastChange: "));
    value.unwrap_or_else(|| panic!("no day: {text}")).parse().expect("a day")
}

#[track_caller]
fn expect_no_secrets(rosterd: &Rosterd) {
    for secret in [PASSWORD, NEW] {
        assert!(!rosterd.log().contains(secret), "{secret:?}: {}", rosterd.log());
    }
}

fn wait_until_must_change(rosterd: &Rosterd, user: &str) {
    wait_for(SOON, || match rosterd.roster(&["access", user]).text() {
        text if text.contains("password must be changed") => Ok(()),
        text => Err(text),
    });
}

#[test]
fn password_change_writes_day_with_rights_of_user() {
    if !needs_root() {
        return;
    }
    let access =
        format!("access to attrs=shadowLastChange by self write by * read\n{PASSWORD_ACCESS}");
    let slapd = slapd(&pam::login_users_ldif(&["alice", "bob"]), "", &access);
    slapd.set(&user_dn("alice"), "shadowMax", &["90"]);
    slapd.set(&user_dn("alice"), "shadowLastChange", &["15000"]);
    let rosterd = pam::start_daemon(&[domain(&slapd)], AGE_CHECK);
    let pam = PamHost::on(&rosterd, "bob");
    wait_until_must_change(&rosterd, "alice");
    assert!(must_change(&pam, "alice", PASSWORD));
    let done = change(&pam, "alice", &[PASSWORD, NEW, NEW]);
    assert_eq!(done.code, 0, "{}", shown(&done));
    assert!(change_day(&slapd, "alice") > 20_000);
    assert!(!must_change(&pam, "alice", NEW), "{}", rosterd.log());
    // An entry without the attribute does not get one.
    let done = change(&pam, "bob", &[PASSWORD, NEW, NEW]);
    assert_eq!(done.code, 0, "{}", shown(&done));
    let found = slapd.search(&user_dn("bob"), "(objectClass=*)", &["shadowLastChange"]);
    assert!(!String::from_utf8_lossy(&found).contains("shadowLastChange: "));
    assert!(!rosterd.log().contains(login::CHANGE_DAY_NOT_WRITTEN.code), "{}", rosterd.log());
    expect_no_secrets(&rosterd);
}

#[test]
fn password_change_refused_day_is_logged_once() {
    if !needs_root() {
        return;
    }
    let slapd = slapd(&pam::login_users_ldif(&["alice", "bob"]), "", PASSWORD_ACCESS);
    for user in ["alice", "bob"] {
        slapd.set(&user_dn(user), "shadowMax", &["90"]);
        slapd.set(&user_dn(user), "shadowLastChange", &["15000"]);
    }
    let rosterd = pam::start_daemon(&[domain(&slapd)], AGE_CHECK);
    let pam = PamHost::on(&rosterd, "bob");
    for user in ["alice", "bob"] {
        wait_until_must_change(&rosterd, user);
        let done = change(&pam, user, &[PASSWORD, NEW, NEW]);
        assert_eq!(done.code, 0, "{}", shown(&done));
        assert_eq!(change_day(&slapd, user), 15_000);
        // The directory has the old day, and the user is not asked again.
        assert!(!must_change(&pam, user, NEW), "{}", rosterd.log());
    }
    let code = login::CHANGE_DAY_NOT_WRITTEN.code;
    pam.expect_logged("shadowlastchange was not written", code);
    assert_eq!(rosterd.log().matches(code).count(), 1, "{}", rosterd.log());
    // A later demand of an administrator counts.
    slapd.set(&user_dn("alice"), "shadowLastChange", &["0"]);
    wait_until_must_change(&rosterd, "alice");
    assert!(must_change(&pam, "alice", NEW));
    expect_no_secrets(&rosterd);
}

#[test]
fn password_age_is_not_checked_by_default() {
    if !needs_root() {
        return;
    }
    let slapd = slapd(&pam::login_users_ldif(&["alice"]), "", PASSWORD_ACCESS);
    slapd.set(&user_dn("alice"), "shadowLastChange", &["0"]);
    let domain = domain(&slapd).with("update_shadow_last_change", "\"never\"");
    let rosterd = pam::start_daemon(&[domain], "");
    let pam = PamHost::on(&rosterd, "alice");
    assert!(!must_change(&pam, "alice", PASSWORD));
    let done = change(&pam, "alice", &[PASSWORD, NEW, NEW]);
    assert_eq!(done.code, 0, "{}", shown(&done));
    assert_eq!(change_day(&slapd, "alice"), 0);
    assert!(!rosterd.log().contains(login::CHANGE_DAY_NOT_WRITTEN.code), "{}", rosterd.log());
}

#[test]
fn password_change_by_modification_obeys_the_policy() {
    if !needs_root() {
        return;
    }
    for safe in ["FALSE", "TRUE"] {
        let policy = format!(
            "pwdSafeModify: {safe}\npwdMinLength: 8\npwdCheckQuality: 2\npwdInHistory: 3\n"
        );
        let slapd = slapd(&pam::login_users_ldif(&["alice"]), &policy, PASSWORD_ACCESS);
        let domain = domain(&slapd).with("password_change", "\"modify\"");
        let rosterd = pam::start_daemon(&[domain], "");
        let pam = PamHost::on(&rosterd, "alice");
        let done = change(&pam, "alice", &["wrong", NEW, NEW]);
        assert!(last_message(&done).ends_with(WRONG), "{}", shown(&done));
        let done = change(&pam, "alice", &["", NEW, NEW]);
        assert!(last_message(&done).ends_with(WRONG), "{}", shown(&done));
        let done = change(&pam, "alice", &[PASSWORD, "short", "short", NEW, NEW]);
        assert!(shown(&done).contains("The new password is too short."), "{}", shown(&done));
        assert_eq!(done.code, 0, "{safe}: {}", shown(&done));
        assert!(pam.authenticate("alice", PASSWORD).ends_with(WRONG));
        assert_eq!(pam.authenticate("alice", NEW), SUCCESS);
        expect_no_secrets(&rosterd);
    }
}

/// The access of a server on which no user may change a password.
const NO_CHANGE_ACCESS: &str = "access to attrs=userPassword";

/// The access of a reader that may change passwords. Users may not.
fn reader_access() -> String {
    let reader = "by dn.exact=\"cn=reader,dc=example,dc=com\" write";
    format!("access to attrs=shadowLastChange by self write by * read\n{NO_CHANGE_ACCESS} {reader}")
}

#[test]
fn password_expired_without_grace_is_changed_by_reader() {
    if !needs_root() {
        return;
    }
    let slapd = slapd(&expired_users(&["alice", "bob"]), "pwdMaxAge: 86400\n", &reader_access());
    slapd.set(&user_dn("alice"), "shadowLastChange", &["15000"]);
    let domain = domain(&slapd).with("change_expired_password", "true");
    let rosterd = pam::start_daemon(&[domain], "");
    let pam = PamHost::on(&rosterd, "bob");
    assert!(must_change(&pam, "alice", PASSWORD));
    for wrong in ["wrong", ""] {
        assert!(pam.authenticate("alice", wrong).ends_with(WRONG));
        let done = change(&pam, "alice", &[wrong, NEW, NEW]);
        assert!(last_message(&done).ends_with(WRONG), "{}", shown(&done));
    }
    let lines = [PASSWORD, PASSWORD, NEW, NEW];
    let operations = ["authenticate", "chauthtok", "acct_mgmt"];
    let done = pam.run_pamtester("alone", "alice", &operations, &lines);
    assert_eq!(done.code, 0, "{}\n{}", shown(&done), rosterd.log());
    assert!(!must_change(&pam, "alice", NEW));
    assert!(pam.authenticate("alice", PASSWORD).ends_with(WRONG));
    assert!(change_day(&slapd, "alice") > 20_000, "the user has written it");
    expect_no_secrets(&rosterd);
}

#[test]
fn password_expired_without_rights_is_told() {
    if !needs_root() {
        return;
    }
    let slapd = slapd(&expired_users(&["alice"]), "pwdMaxAge: 86400\n", NO_CHANGE_ACCESS);
    let mut rosterd = pam::start_daemon(&[domain(&slapd)], "");
    let pam = PamHost::on(&rosterd, "alice");
    // Without the key the login is refused.
    let done = pam.run_pamtester("alone", "alice", &["authenticate"], &[PASSWORD]);
    assert!(done.code != 0 && shown(&done).contains("Ask an administrator"), "{}", shown(&done));
    for anonymous in [false, true] {
        let mut domain = domain(&slapd).with("change_expired_password", "true");
        if anonymous {
            domain = domain.without("bind_dn").without("bind_password_file");
        }
        rosterd.stop();
        rosterd.set_domains(&[domain]);
        rosterd.launch();
        pam::wait_until_user_known(&rosterd, "alice");
        let pam = PamHost::on(&rosterd, "alice");
        let before = rosterd.log().matches(login::EXPIRED_CHANGE_REFUSED.code).count();
        assert!(must_change(&pam, "alice", PASSWORD));
        let done = change(&pam, "alice", &[PASSWORD, NEW, NEW]);
        assert_ne!(done.code, 0, "{}", shown(&done));
        assert!(shown(&done).contains("Ask an administrator"), "{}", shown(&done));
        wait_for(SOON, || {
            let count = rosterd.log().matches(login::EXPIRED_CHANGE_REFUSED.code).count();
            if count > before { Ok(()) } else { Err(rosterd.log()) }
        });
        assert_ne!(pam.authenticate("alice", NEW), SUCCESS);
    }
    expect_no_secrets(&rosterd);
}

#[test]
fn password_expired_is_changed_in_su_and_sshd() {
    if !needs_root() {
        return;
    }
    // OpenLDAP accepts the change over the connection of the refused bind, with the rights of the user.
    let users = expired_users(&["alice", "bob", "carol"]);
    let slapd = slapd(&users, "pwdMaxAge: 86400\n", PASSWORD_ACCESS);
    let domain = domain(&slapd).with("change_expired_password", "true");
    let rosterd = pam::start_daemon(&[domain], "");
    let pam = PamHost::on(&rosterd, "carol");
    for service in ["su", "sshd"] {
        let stack = format!("{}session required pam_permit.so\n", pam::ROSTER_ONLY_STACK);
        pam.service(service, &stack);
    }
    let as_carol = |lines: &[&str]| {
        let id = (FIRST_LOGIN_UID + 2).to_string();
        let mut command = pam.command("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
        run(command.args(["su", "alice", "-c", "id -un"]).stdin(stdin_with_lines(lines)))
    };
    assert_ne!(as_carol(&["wrong"]).code, 0);
    let done = as_carol(&[PASSWORD, PASSWORD, NEW, NEW]);
    assert!(done.code == 0 && shown(&done).contains("alice"), "{}", shown(&done));
    assert_eq!(pam.authenticate("alice", NEW), SUCCESS);

    let sshd = Sshd::start(&rosterd, "KbdInteractiveAuthentication yes\nPubkeyAuthentication no");
    fs::write(rosterd.host().path("sshd/askpass"), ASKPASS).expect("write askpass");
    let way = "keyboard-interactive";
    let done = sshd.run_with_password("bob", PASSWORD, way, "id -un");
    assert_eq!(done.text(), "bob", "{}\n{}", sshd.log(), rosterd.log());
    assert_eq!(pam.authenticate("bob", NEW), SUCCESS);
    assert!(pam.authenticate("bob", PASSWORD).ends_with(WRONG));
    expect_no_secrets(&rosterd);
}

/// 389 Directory Server accepts the extended operation over TLS only.
#[test]
fn password_change_by_modification_works_in_389_ds() {
    if !needs_root() {
        return;
    }
    let ds389 = Ds389::serving(&pam::login_users_ldif(&["alice"]));
    ds389.change(&format!(
        "dn: {}\nchangetype: modify\nadd: aci\naci: (targetattr=\"userPassword || shadowLastChange\")\
         (version 3.0; acl \"self\"; allow (write) userdn=\"ldap:///self\";)\n\n",
        ds389.base()
    ));
    ds389.set(&user_dn("alice"), "shadowMax", &["90"]);
    ds389.set(&user_dn("alice"), "shadowLastChange", &["15000"]);
    let domain = pam::domain(&ds389).with("password_change", "\"modify\"");
    let rosterd = pam::start_daemon(&[domain], AGE_CHECK);
    let pam = PamHost::on(&rosterd, "alice");
    wait_until_must_change(&rosterd, "alice");
    let done = change(&pam, "alice", &[PASSWORD, NEW, NEW]);
    assert_eq!(done.code, 0, "{}\n{}", shown(&done), rosterd.log());
    assert!(!must_change(&pam, "alice", NEW), "{}", rosterd.log());
    assert!(pam.authenticate("alice", PASSWORD).ends_with(WRONG));
    expect_no_secrets(&rosterd);
}
