// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-krb5 serve` against a Samba AD DC: behaviour that is specific to Active Directory.

mod common;

use common::{Program, setup};
use roster_krb5_helper::ipc::HelperOperation;
use roster_krb5_helper::kdc_errors::KdcOutcome;
use roster_krb5_helper::realm::Realm;
use roster_messages::table::login;
use roster_system_tests::servers::Samba;
use roster_system_tests::{needs_root, run};
use std::path::Path;

fn modify(samba: &Samba, ldif: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ldif");
    std::fs::write(&path, ldif).unwrap();
    let mut command = samba.command_inside("ldapmodify");
    command.args(["-x", "-H", "ldap://127.0.0.1", "-D", "Administrator@LAB.TEST"]);
    let done = run(command.args(["-w", Samba::PASSWORD, "-f"]).arg(path));
    assert_eq!(done.code, 0, "{}", done.error());
}

#[test]
fn users_of_a_domain_controller_log_in_and_change_their_passwords() {
    if !needs_root() {
        return;
    }
    let samba = Samba::start("ldap, cldap, kdc, dns", &[]);
    // This host has joined: it has an account, and its key.
    samba.run_samba_tool(&["computer", "create", "client"]);
    samba.run_samba_tool(&["user", "setpassword", "CLIENT$", "--newpassword=Passw0rd-of-the-host"]);
    samba.run_samba_tool(&["spn", "add", "host/client.lab.test", "CLIENT$"]);
    let export = |name: &str| {
        let keytab = samba.path(name);
        for principal in ["CLIENT$", "host/client.lab.test"] {
            let principal = format!("--principal={principal}");
            samba.run_samba_tool(&["domain", "exportkeytab", keytab.to_str().unwrap(), &principal]);
        }
        keytab
    };
    samba.run_samba_tool(&["user", "disable", "u1"]);
    let expired = format!("--newpassword={}", Samba::PASSWORD);
    samba.run_samba_tool(&["user", "setpassword", "u2", &expired, "--must-change-at-next-login"]);

    let realm = Realm {
        name: "LAB.TEST".into(),
        kdcs: vec!["127.0.0.1:88".into()],
        kpasswds: vec!["127.0.0.1:464".into()],
        discover: false,
    };
    let start = |keytab: Option<&Path>| {
        let program = samba.command_inside(env!("CARGO_BIN_EXE_roster-krb5"));
        Program::start_by(program, &setup(&realm, keytab)).get_ready()
    };
    let mut program = start(None);
    let reply = program.expect("u0", Samba::PASSWORD, KdcOutcome::Success);
    assert!(reply.ticket.len() > 1000, "a ticket with groups");
    program.expect("U0", Samba::PASSWORD, KdcOutcome::Success);
    program.expect("u0", "wrong", KdcOutcome::WrongPassword);
    program.expect("nobody", "wrong", KdcOutcome::UnknownUser);
    program.expect("u1", Samba::PASSWORD, KdcOutcome::Locked);
    program.expect("u2", "wrong", KdcOutcome::WrongPassword);
    program.expect("u2", Samba::PASSWORD, KdcOutcome::MustChange);
    let weak = program.exchange(HelperOperation::Change, "u2", Samba::PASSWORD, "short");
    assert_eq!(weak.outcome, KdcOutcome::NewPasswordRefused, "{}", weak.detail);
    assert!(!weak.user_text.is_empty());
    let changed =
        program.exchange(HelperOperation::Change, "u2", Samba::PASSWORD, "Another-Passw0rd");
    assert_eq!(changed.outcome, KdcOutcome::Success, "{}", changed.detail);
    program.expect("u2", "Another-Passw0rd", KdcOutcome::Success);

    let mut program = start(Some(&export("first.keytab")));
    // By default a domain controller issues tickets that RC4 protects.
    let weak = program.expect("u0", Samba::PASSWORD, KdcOutcome::Misconfigured);
    assert_eq!(weak.message, Some(&login::ENCRYPTION_TYPE_MISSING), "{}", weak.detail);
    // As tools that join a host write it.
    modify(
        &samba,
        "dn: CN=client,CN=Computers,DC=lab,DC=test\nchangetype: modify\n\
         replace: msDS-SupportedEncryptionTypes\nmsDS-SupportedEncryptionTypes: 24\n",
    );
    let mut program = start(Some(&export("second.keytab")));
    program.expect("u0", Samba::PASSWORD, KdcOutcome::Success);
    samba.run_samba_tool(&["user", "setpassword", "u2", &expired, "--must-change-at-next-login"]);
    program.expect("u2", "wrong", KdcOutcome::WrongPassword);
    program.expect("u2", Samba::PASSWORD, KdcOutcome::MustChange);
    // The domain controller has another key of the host from now on.
    samba.run_samba_tool(&["user", "setpassword", "CLIENT$", "--newpassword=Passw0rd-of-another"]);
    program.expect("u0", Samba::PASSWORD, KdcOutcome::NotVerified);

    // By DNS only: a host that queries the domain's name server.
    let resolv_conf = samba.path("resolv.conf");
    std::fs::write(&resolv_conf, "nameserver 127.0.0.1\n").unwrap();
    let mut command = samba.command_inside("unshare");
    let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
    command.args(["-m", "sh", "-ec", script]).arg(&resolv_conf);
    command.arg(env!("CARGO_BIN_EXE_roster-krb5"));
    let found = Realm { kdcs: Vec::new(), kpasswds: Vec::new(), discover: true, ..realm.clone() };
    let mut program = Program::start_by(command, &setup(&found, None)).get_ready();
    program.expect("u0", Samba::PASSWORD, KdcOutcome::Success);
    program.expect("u0", "wrong", KdcOutcome::WrongPassword);
    // The password server is found, too: it rejects a change of a new password.
    let refused =
        program.exchange(HelperOperation::Change, "u3", Samba::PASSWORD, "Another-Passw0rd");
    assert_eq!(refused.outcome, KdcOutcome::NewPasswordRefused, "{}", refused.detail);
}
