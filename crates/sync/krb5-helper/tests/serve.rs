// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-krb5 serve` against MIT's krb5kdc and kadmind: outcomes of logins and password changes, and the verification
//! of KDCs.

mod common;

use common::{Program, SOON, commands, realm, setup};
use roster_krb5_helper::ipc::{HelperOperation, HelperSetup};
use roster_krb5_helper::kdc_errors::KdcOutcome;
use roster_krb5_helper::realm::Realm;
use roster_messages::table::login;
use roster_system_tests::servers::Kdc;
use roster_system_tests::test_host::find_tool;
use roster_system_tests::{c_program_with, needs_root, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use zeroize::Zeroizing;

/// Principals of every kind.
const PRINCIPALS: &[&str] = &[
    "addpol -minlength 8 -maxfailure 2 strict",
    "addprinc +requires_preauth -pw secret alice",
    "addprinc -requires_preauth -pw secret plain",
    "addprinc +requires_preauth -policy strict -pw verysecret locked",
    "addprinc +requires_preauth -policy strict -pw verysecret -pwexpire yesterday expired",
    "addprinc +requires_preauth -pw secret -expire yesterday gone",
    "addprinc +requires_preauth -pw secret -allow_tix disabled",
    "addprinc -randkey host/client.lab.test",
];

#[test]
fn every_answer_of_a_kdc_is_an_outcome_of_its_own() {
    let mut kdc = Kdc::start(&commands(PRINCIPALS), "");
    kdc.launch_kadmind();
    let keytab = kdc.keytab("host/client.lab.test");
    let mut program = Program::ready(&setup(&realm(&kdc), Some(&keytab)));

    let reply = program.expect("alice", "secret", KdcOutcome::Success);
    assert_eq!(reply.principal, "alice@LAB.TEST");
    assert!(reply.is_verified, "the KDC has shown this host's key");
    assert_eq!(reply.ticket[..2], [5, 4]);
    program.expect("plain", "secret", KdcOutcome::Success);
    assert!(program.expect("alice", "wrong", KdcOutcome::WrongPassword).is_verified);
    program.expect("plain", "wrong", KdcOutcome::WrongPassword);
    assert!(program.expect("nobody", "secret", KdcOutcome::UnknownUser).is_verified);
    // A name with a realm or a slash does not become a principal of another realm or service.
    program.expect("alice@LAB.TEST", "secret", KdcOutcome::UnknownUser);
    program.expect("host/client.lab.test", "secret", KdcOutcome::UnknownUser);
    program.expect("gone", "secret", KdcOutcome::AccountExpired);
    assert!(program.expect("disabled", "secret", KdcOutcome::Locked).is_verified);
    for _ in 0..2 {
        program.expect("locked", "wrong", KdcOutcome::WrongPassword);
    }
    program.expect("locked", "verysecret", KdcOutcome::Locked);
    kdc.kadmin(&commands(&["modprinc -unlock locked"]));
    program.expect("locked", "verysecret", KdcOutcome::Success);
    // A login with a wrong password does not reveal that the password has expired.
    program.expect("expired", "wrong", KdcOutcome::WrongPassword);
    assert!(program.expect("expired", "verysecret", KdcOutcome::MustChange).is_verified);

    let change = |program: &mut Program, name: &str, old: &str, new: &str| {
        program.exchange(HelperOperation::Change, name, old, new)
    };
    let refused = change(&mut program, "expired", "verysecret", "short");
    assert_eq!(refused.outcome, KdcOutcome::NewPasswordRefused, "{}", refused.detail);
    assert!(refused.user_text.contains("too short"), "{}", refused.user_text);
    assert!(refused.is_surely_unchanged, "the old one is still the right one");
    let wrong = change(&mut program, "expired", "wrong", "verymuchsecret");
    assert_eq!(wrong.outcome, KdcOutcome::WrongPassword, "{}", wrong.detail);
    assert!(wrong.is_surely_unchanged && wrong.is_verified);
    assert_eq!(
        program.exchange(HelperOperation::MayChange, "expired", "verysecret", "").outcome,
        KdcOutcome::Success
    );
    let done = change(&mut program, "expired", "verysecret", "verymuchsecret");
    assert_eq!(done.outcome, KdcOutcome::Success, "{}", done.detail);
    assert!(!done.ticket.is_empty(), "the new password gets the session its ticket");
    assert!(done.is_verified);
    program.expect("expired", "verysecret", KdcOutcome::WrongPassword);
    program.expect("expired", "verymuchsecret", KdcOutcome::Success);

    kdc.stop();
    program.expect("alice", "secret", KdcOutcome::Unreachable);
}

#[test]
fn a_kdc_that_does_not_know_this_hosts_key_lets_nobody_in() {
    let real = Kdc::start(&commands(PRINCIPALS), "");
    let keytab = real.keytab("host/client.lab.test");
    // It knows the host's name, and issues tickets for a different password.
    let mut fake = Kdc::start(
        &commands(&[
            "addprinc +requires_preauth -pw mine alice",
            "addprinc +requires_preauth -pw mine -pwexpire yesterday expired",
            "addprinc -randkey host/client.lab.test",
        ]),
        "",
    );
    fake.launch_kadmind();
    let mut believer = Program::ready(&setup(&realm(&fake), None));
    assert!(!believer.expect("alice", "mine", KdcOutcome::Success).is_verified);
    let mut program = Program::ready(&setup(&realm(&fake), Some(&keytab)));
    let reply = program.expect("alice", "mine", KdcOutcome::NotVerified);
    assert!(
        reply.ticket.is_empty() && reply.message == Some(&login::KDC_NOT_VERIFIED),
        "{}",
        reply.detail
    );
    // A report of an expired password is refused, too: the KDC need not show a key for it.
    believer.expect("expired", "mine", KdcOutcome::MustChange);
    program.expect("expired", "mine", KdcOutcome::NotVerified);
    // The same holds for a change of the password that it requests.
    let reply = program.exchange(HelperOperation::Change, "expired", "mine", "mine too");
    assert_eq!(reply.outcome, KdcOutcome::NotVerified, "{}", reply.detail);
    assert!(reply.ticket.is_empty() && reply.is_surely_unchanged, "it was not asked to change any");
    assert!(!program.exchange(HelperOperation::Change, "nobody", "mine", "mine too").is_verified);
    // It can refuse any user, and such a refusal has no effect.
    for program in [&mut believer, &mut program] {
        assert!(!program.expect("alice", "wrong", KdcOutcome::WrongPassword).is_verified);
        assert!(!program.expect("nobody", "secret", KdcOutcome::UnknownUser).is_verified);
    }
    // A KDC that does not even know the name.
    fake.kadmin(&commands(&["delprinc -force host/client.lab.test"]));
    program.expect("alice", "mine", KdcOutcome::NotVerified);
}

/// The setup of a program in which a ticket of this principal armors logins.
fn fast_setup(kdc: &Kdc, keytab: &Path, principal: &str) -> HelperSetup {
    HelperSetup { fast_principal: principal.to_owned(), ..setup(&realm(kdc), Some(keytab)) }
}

#[test]
fn krb5_fast_principal_armors_each_exchange() {
    let mut kdc = Kdc::start(&commands(PRINCIPALS), "");
    kdc.launch_kadmind();
    let keytab = kdc.keytab("host/client.lab.test");
    let second = format!("ktadd -k {} nfs/client.lab.test", keytab.display());
    kdc.kadmin(&commands(&["addprinc -randkey nfs/client.lab.test", &second]));
    // The tickets of a principal, which only an armor requests.
    let armors = |kdc: &Kdc, principal: &str| {
        let ticket = format!("{principal}@LAB.TEST for krbtgt/LAB.TEST@LAB.TEST");
        kdc.log().lines().filter(|line| line.contains(" ISSUE") && line.contains(&ticket)).count()
    };
    let mut plain = Program::ready(&setup(&realm(&kdc), Some(&keytab)));
    plain.expect("alice", "secret", KdcOutcome::Success);
    assert_eq!(armors(&kdc, "host/client.lab.test"), 0, "without the key there is no armor");
    for principal in ["nfs/client.lab.test", "nfs/client.lab.test@LAB.TEST"] {
        let before = armors(&kdc, "nfs/client.lab.test");
        let mut program = Program::ready(&fast_setup(&kdc, &keytab, principal));
        assert!(program.expect("alice", "secret", KdcOutcome::Success).is_verified);
        assert_eq!(armors(&kdc, "nfs/client.lab.test"), before + 1);
        program.expect("plain", "secret", KdcOutcome::Success);
        assert!(program.expect("alice", "wrong", KdcOutcome::WrongPassword).is_verified);
        assert!(program.expect("nobody", "secret", KdcOutcome::UnknownUser).is_verified);
        program.expect("disabled", "secret", KdcOutcome::Locked);
        assert!(program.expect("expired", "verysecret", KdcOutcome::MustChange).is_verified);
        program.expect("expired", "wrong", KdcOutcome::WrongPassword);
    }
    let mut program = Program::ready(&fast_setup(&kdc, &keytab, "nfs/client.lab.test"));
    let done = program.exchange(HelperOperation::Change, "expired", "verysecret", "a longer one");
    assert_eq!(done.outcome, KdcOutcome::Success, "{}", done.detail);
    assert_eq!(armors(&kdc, "host/client.lab.test"), 0, "no other key is used");
    kdc.stop();
    program.expect("alice", "secret", KdcOutcome::Unreachable);
}

#[test]
fn krb5_fast_principal_without_ticket_refuses_logins() {
    let kdc = Kdc::start(&commands(PRINCIPALS), "");
    let keytab = kdc.keytab("host/client.lab.test");
    let gone = format!("ktadd -k {} host/gone.lab.test", keytab.display());
    let lines =
        ["addprinc -randkey host/gone.lab.test", &gone, "delprinc -force host/gone.lab.test"];
    kdc.kadmin(&commands(&lines));
    for (principal, shown, message) in [
        ("invalid", "invalid (krb5_fast_principal)", &login::FAST_KEY_MISSING),
        ("principal@TEST.TEST", "principal@TEST.TEST", &login::FAST_KEY_MISSING),
        ("host/gone.lab.test", "host/gone.lab.test", &login::FAST_TICKET_REFUSED),
    ] {
        let mut program = Program::ready(&fast_setup(&kdc, &keytab, principal));
        for password in ["secret", "wrong"] {
            let reply = program.exchange(HelperOperation::Ticket, "alice", password, "");
            assert_eq!(reply.outcome, KdcOutcome::NotVerified, "{principal}: {}", reply.detail);
            assert_eq!(reply.message, Some(message), "{}", reply.detail);
            assert!(reply.detail.contains(shown) && reply.ticket.is_empty(), "{}", reply.detail);
            assert!(!reply.is_verified);
        }
        let reply = program.exchange(HelperOperation::Change, "alice", "secret", "another");
        assert_eq!((reply.outcome, reply.message), (KdcOutcome::NotVerified, Some(message)));
        assert!(reply.is_surely_unchanged);
    }
    // No password goes to a KDC without an armor.
    let unsafe_setup =
        HelperSetup { keytab: Zeroizing::default(), ..fast_setup(&kdc, &keytab, "x") };
    let reply = Program::start(&unsafe_setup).reply();
    assert_eq!((reply.id, reply.message), (0, Some(&login::KEYTAB_UNUSABLE)));
}

#[test]
fn a_change_that_is_done_is_told_as_done_whatever_comes_after_it() {
    let mut kdc = Kdc::start(&commands(PRINCIPALS), "");
    kdc.launch_kadmind();
    let mut program = Program::ready(&setup(&realm(&kdc), None));
    // The KDC issues tickets for password changes, but no others.
    kdc.kadmin(&commands(&["modprinc -allow_tix krbtgt/LAB.TEST"]));
    let done = program.exchange(HelperOperation::Change, "alice", "secret", "another");
    assert_eq!(done.outcome, KdcOutcome::Success, "{}", done.detail);
    assert!(done.ticket.is_empty() && !done.is_verified, "nothing shows that it is the new one");
    kdc.kadmin(&commands(&["modprinc +allow_tix krbtgt/LAB.TEST"]));
    program.expect("alice", "secret", KdcOutcome::WrongPassword);
    program.expect("alice", "another", KdcOutcome::Success);

    // The result of a silent server is unknown.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let hanging = Realm { kpasswds: vec![silent.local_addr().unwrap().to_string()], ..realm(&kdc) };
    silent.set_nonblocking(true).unwrap();
    let mut program = Program::ready(&setup(&hanging, None));
    // On a busy machine the time may pass before the password server gets the request. The test then tries longer
    // times.
    let mut times = (0..7).map(|doubled| Duration::from_secs(1 << doubled));
    let unclear = loop {
        let time = times.next().expect("the silent server is asked");
        program.send(HelperOperation::Change, "alice", "another", "a third one", time);
        let reply = program.reply();
        assert_eq!(reply.outcome, KdcOutcome::Unreachable, "{}", reply.detail);
        if silent.accept().is_ok() {
            break reply;
        }
    };
    assert!(!unclear.is_surely_unchanged);
}

#[test]
fn change_failed_at_password_server_has_code() {
    let mut kdc = Kdc::start(&commands(PRINCIPALS), "");
    kdc.launch_kadmind();
    let mut program = Program::ready(&setup(&realm(&kdc), None));
    // The server compares with earlier passwords, and lacks the key of their list.
    kdc.kadmin(&commands(&[
        "addpol -history 2 remembering",
        "modprinc -policy remembering alice",
        "addprinc -randkey kadmin/history",
        "purgekeys -all kadmin/history",
    ]));
    let failed = program.exchange(HelperOperation::Change, "alice", "secret", "another");
    assert_eq!(failed.outcome, KdcOutcome::Failed, "{}", failed.detail);
    assert_eq!(failed.message, Some(&login::KRB5_CHANGE_FAILED), "{}", failed.detail);
}

#[test]
fn a_clock_that_is_wrong_is_told_of() {
    let mut kdc = Kdc::start(&commands(PRINCIPALS), "");
    let mut program = Program::ready(&setup(&realm(&kdc), None));
    program.expect("alice", "secret", KdcOutcome::Success);
    let folder = tempfile::tempdir().unwrap();
    let library = c_program_with("preload_clock", "clock.so", &["-shared", "-fPIC"]);
    let shift = folder.path().join("shift");
    fs::write(&shift, 3600_i64.to_ne_bytes()).unwrap();
    kdc.stop();
    let variables: [(&str, &OsStr); 2] =
        [("LD_PRELOAD", library.as_os_str()), ("ROSTER_TEST_CLOCK", shift.as_os_str())];
    kdc.launch(&variables);
    for name in ["alice", "plain"] {
        let reply = program.expect(name, "secret", KdcOutcome::Misconfigured);
        assert_eq!(reply.message, Some(&login::CLOCK_SKEW), "{}", reply.detail);
    }
}

#[test]
fn a_keytab_that_is_none_is_said_at_once() {
    let realm =
        Realm { name: "LAB.TEST".into(), kdcs: vec!["127.0.0.1:9".into()], ..Realm::default() };
    let folder = tempfile::tempdir().unwrap();
    for bytes in [&b"\x05\x02"[..], b"\x05\x02\0\0\0\x10garbage", b"none"] {
        let path = folder.path().join("keytab");
        fs::write(&path, bytes).unwrap();
        let mut program = Program::start(&setup(&realm, Some(&path)));
        let reply = program.reply();
        assert!(reply.id == 0 && reply.outcome == KdcOutcome::Misconfigured);
        assert_eq!(reply.message, Some(&login::KEYTAB_UNUSABLE), "{}", reply.detail);
        wait_until(SOON, "it has ended", || program.child.try_wait().unwrap().is_some());
    }
}

#[test]
fn krb5_helper_wrong_call_has_code() {
    let call = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roster-krb5"));
        let done = command.args(words).stdin(Stdio::null()).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    for (words, status, message) in [
        (&[][..], 64, &login::KRB5_USAGE),
        (&["session", "store"], 64, &login::KRB5_USAGE),
        (&["serve"], 1, &login::KRB5_SERVE_FAILED),
        (&["bind"], 1, &login::KRB5_BIND_FAILED),
    ] {
        let (code, said) = call(words);
        assert!(code == Some(status) && said.contains(message.code), "{words:?}: {said}");
    }
}

#[test]
fn serve_hanging_requests_delay_no_other() {
    let kdc = Kdc::start(&commands(PRINCIPALS), "");
    // Accepts connections and packets, and sends nothing.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let hanging = Realm { kdcs: vec![silent.local_addr().unwrap().to_string()], ..realm(&kdc) };
    let mut program = Program::ready(&setup(&hanging, None));
    let mut send = |count, time| -> BTreeSet<u64> {
        (0..count)
            .map(|_| program.send(HelperOperation::Ticket, "alice", "secret", "", time))
            .collect()
    };
    let moment = Duration::from_millis(300);
    // All processes but one are busy as long as the library tries, which is half a minute. The requests that share the
    // last one end before any of those.
    send(31, Duration::from_secs(120));
    let mut given_up = send(5, moment);
    while !given_up.is_empty() {
        let reply = program.reply();
        assert_eq!(reply.outcome, KdcOutcome::Unreachable);
        assert!(given_up.remove(&reply.id), "{} ends first", reply.id);
    }

    drop(program);

    // More than the program has processes. The KDC replies in time even on a busy machine.
    let mut program = Program::ready(&setup(&realm(&kdc), None));
    let ids: Vec<_> = (0..40)
        .map(|_| program.send(HelperOperation::Ticket, "alice", "secret", "", SOON))
        .collect();
    let mut answered: Vec<_> = ids
        .iter()
        .map(|_| {
            let reply = program.reply();
            assert_eq!(reply.outcome, KdcOutcome::Success, "{}", reply.detail);
            reply.id
        })
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, ids);
}

#[test]
fn krb5_helper_ends_with_backend_and_logins() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let realm = Realm {
        name: "LAB.TEST".into(),
        kdcs: vec![silent.local_addr().unwrap().to_string()],
        ..Realm::default()
    };
    let mut program = Program::ready(&setup(&realm, None));
    program.send(HelperOperation::Ticket, "alice", "secret", "", Duration::from_secs(60));
    wait_until(SOON, "a log-in is under way, and a process waits for the next", || {
        program.children().len() == 2
    });
    let under_way = program.children();
    // The spare process is among them, and another one takes its place.
    for child in &under_way {
        let child = child.parse().ok().and_then(Pid::from_raw).unwrap();
        kill_process(child, Signal::KILL).unwrap();
    }
    // A request to a spare process that still ends would be lost with it.
    for child in &under_way {
        let file = format!("/proc/{child}/status");
        wait_until(SOON, "it has ended", || {
            !fs::read_to_string(&file).is_ok_and(|status| !status.contains("State:\tZ"))
        });
    }
    let reply = program.reply();
    assert_eq!(reply.message, Some(&login::KRB5_PROCESS_CRASHED), "{}", reply.detail);
    program.send(HelperOperation::Ticket, "alice", "secret", "", Duration::from_secs(60));
    wait_until(SOON, "the next log-in is under way", || {
        let children = program.children();
        children.len() == 2 && children.iter().all(|child| !under_way.contains(child))
    });
    let under_way = program.children();
    program.socket.shutdown(std::net::Shutdown::Both).unwrap();
    wait_until(SOON, "it has ended", || program.child.try_wait().unwrap().is_some());
    for child in under_way {
        assert!(!Path::new("/proc").join(&child).exists(), "{child} goes on");
    }
}

#[test]
fn a_process_that_died_while_it_waited_is_nobodys_log_in() {
    let kdc = Kdc::start(&commands(PRINCIPALS), "");
    let mut program = Program::ready(&setup(&realm(&kdc), None));
    for _ in 0..2 {
        wait_until(SOON, "a process waits for a log-in", || program.children().len() == 1);
        let spare = program.children()[0].parse().ok().and_then(Pid::from_raw).unwrap();
        kill_process(spare, Signal::KILL).unwrap();
        let file = format!("/proc/{}/status", spare.as_raw_nonzero());
        wait_until(SOON, "it has ended", || {
            fs::read_to_string(&file).is_ok_and(|status| status.contains("State:\tZ"))
        });
        program.expect("alice", "secret", KdcOutcome::Success);
    }
}

/// Whether these bytes are anywhere in a process's memory.
fn has_in_memory(pid: &str, bytes: &[u8]) -> bool {
    // It may have ended.
    let Ok(memory) = fs::File::open(format!("/proc/{pid}/mem")) else { return false };
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
    maps.unwrap_or_default().lines().any(|line| {
        let range = line.split(' ').next().unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let (from, to) =
            (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        let mut mapped = vec![0; usize::try_from(to - from).unwrap()];
        // The kernel's pages among them cannot be read.
        let read = memory.read_exact_at(&mut mapped, from);
        read.is_ok() && mapped.windows(bytes.len()).any(|window| window == bytes)
    })
}

fn field(pid: &str, file: &str, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line[name.len()..].split_whitespace().next().unwrap_or_default().to_owned()
}

/// All passwords in the requests below.
const PASSWORDS: [&str; 3] = ["correct-horse", "wrong-elephant", "another-donkey"];

#[test]
fn krb5_password_stays_in_own_login_memory() {
    if !needs_root() {
        return;
    }
    let mut kdc =
        Kdc::start(&commands(&["addprinc +requires_preauth -pw correct-horse alice"]), "");
    kdc.launch_kadmind();
    // A change waits for this server, with two passwords in its process.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let hanging = Realm { kpasswds: vec![silent.local_addr().unwrap().to_string()], ..realm(&kdc) };
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("roster-krb5");
    fs::copy(env!("CARGO_BIN_EXE_roster-krb5"), &copy).unwrap();
    // A process of a user, like a backend's: /proc files of dumpable processes belong to the user.
    let mut command = Command::new(find_tool("setpriv", "util-linux"));
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
    let mut program = Program::start_by(command, &setup(&hanging, None)).get_ready();
    program.expect("alice", "correct-horse", KdcOutcome::Success);
    program.expect("alice", "wrong-elephant", KdcOutcome::WrongPassword);
    // The longest time of a request: at its end the process is killed, and a search in memory takes its time on a busy
    // machine.
    let time = Duration::from_secs(120);
    program.send(HelperOperation::Change, "alice", "correct-horse", "another-donkey", time);
    let parent = program.child.id().to_string();
    let mut child = String::new();
    wait_until(SOON, "the change is under way, and a process waits for the next", || {
        let mut children = program.children();
        let is_it = |child: &String| has_in_memory(child, b"another-donkey");
        let found = children.iter().position(is_it).map(|at| children.swap_remove(at));
        child = found.unwrap_or_default();
        // It continues after the search. Otherwise it would end when the library abandons the silent server.
        let pid = child.parse().ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| kill_process(pid, Signal::STOP).is_ok()) && !children.is_empty()
    });
    let processes = program.children();
    let others = processes.iter().filter(|pid| **pid != child).chain([&parent]);
    for (pid, password) in others.flat_map(|pid| PASSWORDS.map(|password| (pid, password))) {
        assert!(!has_in_memory(pid, password.as_bytes()), "{password} in {pid}");
    }
    assert!(has_in_memory(&child, b"correct-horse") && !has_in_memory(&child, b"wrong-elephant"));
    for pid in [&parent, &child] {
        assert_eq!(field(pid, "limits", "Max core file size"), "0");
        let owner = fs::metadata(format!("/proc/{pid}/mem")).unwrap().uid();
        assert_eq!((field(pid, "status", "Uid:").as_str(), owner), ("65534", 0));
        let is_locked = field(pid, "status", "VmLck:") != "0";
        assert_eq!(
            is_locked,
            !program.in_force.contains("no locked memory"),
            "{}",
            program.in_force
        );
    }
    kill_process(child.parse().ok().and_then(Pid::from_raw).unwrap(), Signal::CONT).unwrap();
    // A process with a sufficient limit locks its memory.
    let program = Program::ready(&setup(&hanging, None));
    assert!(program.in_force.ends_with(", locked memory"), "{}", program.in_force);
    assert_ne!(field(&program.child.id().to_string(), "status", "VmLck:"), "0");
    wait_until(SOON, "the process that waits for a log-in has locked its memory", || {
        program.children().pop().is_some_and(|child| field(&child, "status", "VmLck:") != "0")
    });
}
