// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of single system calls, injected by strace into the role that stores. Each call of a change, of a login and
//! of a commit fails once. No answer is wrong meanwhile, and no wrong password is accepted. Once the call works again,
//! the new state is served and the new password cached.
//!
//! `ROSTER_STORAGE=all` fails each call of each kind; otherwise the first call of some kinds fails.

use roster_request::AuthResult;
use roster_system_tests::pam::PASSWORD;
use roster_system_tests::rosterd::SOON;
use roster_system_tests::strace::Strace;
use roster_system_tests::tally::{Tally, is_full_campaign};
use roster_system_tests::{
    DirectoryServer, OfflineFixture, find_tool, needs_root, roster_program, run, wait_for,
};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Calls of one kind, their error, and whether only calls on files of the state fail.
type Fault = (&'static str, &'static str, bool);

/// The kinds that are tried in a sample come first.
const FAULTS: [Fault; 13] = [
    ("write,pwrite64", "ENOSPC", true),
    ("fsync,fdatasync", "EIO", true),
    ("?open,openat", "EROFS", true),
    ("?rename,?renameat,renameat2", "EROFS", true),
    ("write,pwrite64", "EIO", true),
    ("read,pread64", "EIO", true),
    ("ftruncate,fallocate", "ENOSPC", true),
    ("?unlink,unlinkat", "EROFS", true),
    ("flock,fcntl", "ENOLCK", true),
    ("fstat,newfstatat,statx,lseek", "EIO", true),
    ("?open,openat", "EMFILE", false),
    ("mmap", "ENOMEM", false),
    ("getrandom", "EIO", false),
];
const SAMPLED: usize = 4;
/// A change makes fewer calls of one kind.
const CALLS_MAX: u32 = 60;
/// Logins until a role that ended is there again.
const TRIES_MAX: u32 = 3000;
const KINDS: [&str; 3] = ["wrong", "let in wrongly", "kept passwords lost"];

/// Calls of one kind that are failed, one after the other.
fn calls_max() -> u32 {
    if is_full_campaign() { CALLS_MAX } else { 1 }
}

fn faults() -> &'static [Fault] {
    if is_full_campaign() { &FAULTS } else { &FAULTS[..SAMPLED] }
}

/// Files that roles store, and their temporary names.
fn stored(kept: &OfflineFixture) -> Vec<PathBuf> {
    let state = kept.rosterd.host().state_dir();
    let mut paths = vec![state.clone()];
    let mut folders = vec![state];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("list").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path.clone());
            } else if let Some(name) = path.file_name() {
                let name = name.to_string_lossy();
                paths.extend(
                    [".new", ".lock"].map(|end| path.with_file_name(format!(".{name}{end}"))),
                );
            }
            paths.push(path);
        }
    }
    paths
}

/// Has the `call`th call of a kind fail in a role.
fn inject(kept: &OfflineFixture, role: &str, (calls, error, has_path): Fault, call: u32) -> Strace {
    let paths = if has_path { stored(kept) } else { Vec::new() };
    let paths: Vec<_> = paths.iter().map(|path| path.to_str().expect("a plain path")).collect();
    let trace = format!("trace={calls}");
    let fault = format!("inject={calls}:error={error}:when={call}");
    let mut args = vec!["-e", &trace, "-e", &fault];
    args.extend(paths.iter().flat_map(|path| ["-P", path]));
    let record = kept.rosterd.host().path("record");
    Strace::attach(&[kept.rosterd.wait_for_role(role)], &record, &args)
}

/// Calls of a role that stores nothing.
const MESSAGE_FAULTS: [Fault; 7] = [
    ("mmap", "ENOMEM", false),
    ("sendmsg,sendto", "EIO", false),
    ("recvmsg,recvfrom", "EIO", false),
    ("accept4", "EMFILE", false),
    ("getrandom", "EIO", false),
    ("?open,openat", "EMFILE", false),
    ("fcntl,fstat,newfstatat,statx", "EIO", false),
];

/// Fails each call of each kind that a role makes in an operation. `begin` gets the operation's number, `end` waits
/// until it is done, without the fault. `verify` checks the results after each kind.
fn campaign(
    kept: &mut OfflineFixture,
    tally: &mut Tally,
    (role, faults): (&str, &[Fault]),
    begin: impl Fn(&OfflineFixture, &mut Tally, u32, &str),
    end: impl Fn(&OfflineFixture, &mut Tally, u32, &str),
    verify: impl Fn(&mut OfflineFixture, &mut Tally, u32, &str),
) {
    let mut number = 0;
    for fault in faults {
        for call in 1..=calls_max() {
            number += 1;
            let what = format!("{role}, {} {} at call {call}", fault.0, fault.1);
            let strace = inject(kept, role, *fault, call);
            begin(kept, tally, number, &what);
            strace.wait_until_quiet();
            let has_injected = strace.has_injected();
            drop(strace);
            end(kept, tally, number, &what);
            if !has_injected {
                break;
            }
            tally.count("errors");
        }
        if is_full_campaign() {
            verify(kept, tally, number, &format!("after {role}, {} {}", fault.0, fault.1));
        }
    }
    verify(kept, tally, number, &format!("after {role}"));
}

fn shell(number: u32) -> String {
    format!("/bin/sh{number}")
}

/// Whether alice has the shell of that change; bob stays as he is.
fn is_changed(kept: &OfflineFixture, tally: &mut Tally, number: u32, what: &str) -> bool {
    let [alice, bob] = ["alice", "bob"].map(|user| kept.rosterd.getent("passwd", user));
    let new = Some(kept.passwd_line("alice", &shell(number)));
    let old = if number == 1 { "/bin/sh".to_owned() } else { shell(number - 1) };
    let is_right = alice == new || alice == Some(kept.passwd_line("alice", &old));
    tally.check(is_right, "wrong", || format!("{what}: {alice:?}"));
    let is_right = bob == Some(kept.passwd_line("bob", "/bin/sh"));
    tally.check(is_right, "wrong", || format!("{what}: {bob:?}"));
    alice == new
}

fn change_begins(kept: &OfflineFixture, tally: &mut Tally, number: u32, what: &str) {
    kept.set_attribute("alice", "loginShell", &shell(number));
    is_changed(kept, tally, number, what);
}

fn change_ends(kept: &OfflineFixture, tally: &mut Tally, number: u32, what: &str) {
    wait_for(SOON, || {
        let is_changed = is_changed(kept, tally, number, what);
        is_changed.then_some(()).ok_or_else(|| format!("{what}: {}", kept.log()))
    });
}

#[test]
fn error_in_publisher_leaves_answers_right() {
    if !needs_root() {
        return;
    }
    let mut tally = Tally::for_campaign("errors in the publisher, a change", &KINDS);
    let mut kept = OfflineFixture::started(&["alice", "bob"]);
    let nothing = |_: &mut OfflineFixture, _: &mut Tally, _, _: &str| {};
    campaign(&mut kept, &mut tally, ("publisher", faults()), change_begins, change_ends, nothing);
    tally.finish("errors", 2);
}

#[test]
fn error_in_cache_commit_loses_no_change() {
    if !needs_root() {
        return;
    }
    let mut tally = Tally::for_campaign("errors in the backend, a change", &KINDS);
    let mut kept = OfflineFixture::started(&["alice", "bob"]);
    // Afterwards only the cache is served.
    let restart = |kept: &mut OfflineFixture, tally: &mut Tally, number, what: &str| {
        kept.expect_no_errors();
        kept.rosterd.stop();
        kept.slapd.stop();
        fs::remove_file(kept.rosterd.host().snapshot_path()).expect("remove the snapshot");
        kept.launch();
        kept.rosterd.wait_for_snapshot();
        let found = kept.rosterd.getent("passwd", "alice");
        let is_right = found == Some(kept.passwd_line("alice", &shell(number)));
        tally.check(is_right, "wrong", || format!("{what}: {found:?}"));
        kept.start_directory();
    };
    campaign(
        &mut kept,
        &mut tally,
        ("backend:corp", faults()),
        change_begins,
        change_ends,
        restart,
    );
    tally.finish("errors", 2);
}

/// alice logs in with a new password each time, and then the directory is stopped.
#[test]
fn error_while_learning_keeps_new_password() {
    if !needs_root() {
        return;
    }
    let mut tally =
        Tally::for_campaign("errors in the backend, a login with a new password", &KINDS);
    let mut kept = OfflineFixture::started(&["alice", "bob"]);
    let password = |number: u32| format!("password {number}");
    let begin = |kept: &OfflineFixture, tally: &mut Tally, number, what: &str| {
        kept.set_attribute("alice", "userPassword", &password(number));
        let said = kept.auth_result("alice", &password(number));
        tally.check(said != Ok(AuthResult::WrongPassword), "wrong", || format!("{what}: {said:?}"));
        let said = kept.auth_result("bob", "a guess");
        tally.check(said != Ok(AuthResult::Success), "let in wrongly", || what.to_owned());
    };
    let end = |kept: &OfflineFixture, _: &mut Tally, number, _: &str| {
        kept.login("alice", &password(number));
    };
    let go_away = |kept: &mut OfflineFixture, tally: &mut Tally, number, what: &str| {
        kept.expect_no_errors();
        kept.stop_directory();
        for time in ["before", "after"] {
            for (user, password) in [("alice", password(number)), ("bob", PASSWORD.to_owned())] {
                let said = kept.auth_result_when_known(user, &password);
                tally.check(said == AuthResult::Success, "kept passwords lost", || {
                    format!("{what}, {time} a restart, {user}: {said:?}: {}", kept.log())
                });
            }
            for old in [PASSWORD.to_owned(), password(number - 1)] {
                let said = kept.auth_result_when_known("alice", &old);
                tally.check(said != AuthResult::Success, "let in wrongly", || {
                    format!("{what}: {old}")
                });
            }
            kept.restart_role("backend:corp");
        }
        kept.start_directory();
    };
    campaign(&mut kept, &mut tally, ("backend:corp", faults()), begin, end, go_away);
    tally.finish("errors", 2);
}

#[test]
fn error_while_checking_lets_nobody_in_wrongly() {
    if !needs_root() {
        return;
    }
    let mut tally = Tally::for_campaign("errors in the backend, offline logins", &KINDS);
    let mut kept = OfflineFixture::started(&["alice", "bob"]);
    kept.stop_directory();
    let begin = |kept: &OfflineFixture, tally: &mut Tally, _, what: &str| {
        let said = kept.auth_result("alice", "a guess");
        tally.check(said != Ok(AuthResult::Success), "let in wrongly", || what.to_owned());
        let said = kept.auth_result("bob", PASSWORD);
        tally.check(said != Ok(AuthResult::WrongPassword), "wrong", || format!("{what}: {said:?}"));
    };
    let end = |kept: &OfflineFixture, _: &mut Tally, _, _: &str| {
        for user in ["alice", "bob"] {
            kept.expect_auth_result(user, PASSWORD, AuthResult::Success);
        }
    };
    let well = |kept: &mut OfflineFixture, _: &mut Tally, _, _: &str| kept.expect_no_errors();
    campaign(&mut kept, &mut tally, ("backend:corp", faults()), begin, end, well);
    tally.finish("errors", 2);
}

#[test]
fn error_in_responder_lets_nobody_in_wrongly() {
    if !needs_root() {
        return;
    }
    let mut tally = Tally::for_campaign("errors in the responder, logins", &KINDS);
    let mut kept = OfflineFixture::started(&["alice", "bob"]);
    let begin = |kept: &OfflineFixture, tally: &mut Tally, _, what: &str| {
        let said = kept.auth_result("alice", "a guess");
        tally.check(said != Ok(AuthResult::Success), "let in wrongly", || what.to_owned());
        let said = kept.auth_result("bob", PASSWORD);
        tally.check(said != Ok(AuthResult::WrongPassword), "wrong", || format!("{what}: {said:?}"));
    };
    let end = |kept: &OfflineFixture, tally: &mut Tally, _, what: &str| {
        // The role may have ended.
        let is_served = (0..TRIES_MAX).any(|_| {
            let is_right = kept.auth_result("bob", PASSWORD) == Ok(AuthResult::Success);
            if !is_right {
                sleep(Duration::from_millis(10));
            }
            is_right
        });
        tally.check(is_served, "wrong", || format!("{what}: {}", kept.log()));
        let said = kept.auth_result_when_known("alice", "a guess");
        tally.check(said != AuthResult::Success, "let in wrongly", || what.to_owned());
    };
    let nothing = |_: &mut OfflineFixture, _: &mut Tally, _, _: &str| {};
    let faults = if is_full_campaign() { &MESSAGE_FAULTS[..] } else { &MESSAGE_FAULTS[..3] };
    campaign(&mut kept, &mut tally, ("responder:pam", faults), begin, end, nothing);
    tally.finish("errors", 2);
}

#[test]
fn error_in_enable_keeps_nsswitch_whole() {
    let mut tally = Tally::for_campaign("errors in roster enable and disable", &["wrong"]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("nsswitch.conf");
    let backup = folder.path().join("nsswitch.conf.roster-backup");
    let plain = "passwd: files\ngroup: files\n";
    let edit = |verb: &str, fault: Option<&str>| {
        let mut command = Command::new(find_tool("strace", "strace"));
        command.args(["-f", "-qq", "-o"]).arg(folder.path().join("record"));
        if let Some(fault) = fault {
            let (calls, _) = fault.split_once(':').expect("calls and an error");
            command.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={fault}")]);
        }
        command.arg(roster_program()).arg(verb).arg("--file").arg(&file);
        run(&mut command)
    };
    let read = || fs::read_to_string(&file).unwrap_or_default();
    fs::write(&file, plain).expect("write");
    assert_eq!(edit("enable", None).code, 0);
    let enabled = read();
    for (verb, old, new) in [("enable", plain, &*enabled), ("disable", &enabled, plain)] {
        for (calls, error, _) in faults() {
            for call in 1..=CALLS_MAX {
                fs::write(&file, plain).expect("write");
                let _ = fs::remove_file(&backup);
                if verb == "disable" {
                    assert_eq!(edit("enable", None).code, 0);
                }
                let fault = format!("{calls}:error={error}:when={call}");
                let done = edit(verb, Some(&fault));
                let record = fs::read_to_string(folder.path().join("record")).expect("read");
                if !record.contains("(INJECTED)") {
                    break;
                }
                tally.count("errors");
                let text = read();
                let is_whole = text == old || text == new;
                tally.check(is_whole, "wrong", || format!("{verb} {fault}: {text:?}"));
                let is_undoable = text == plain || backup.exists();
                tally.check(is_undoable, "wrong", || format!("{verb} {fault}: no backup"));
                let is_told = done.code != 0 || text == new;
                tally.check(is_told, "wrong", || format!("{verb} {fault}: {done:?}"));
                for verb in ["enable", "disable"] {
                    edit(verb, None);
                }
                let text = read();
                tally.check(text == plain, "wrong", || format!("{verb} {fault}, undone: {text:?}"));
            }
        }
    }
    tally.finish("errors", 20);
}
