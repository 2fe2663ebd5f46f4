// SPDX-License-Identifier: MIT OR Apache-2.0
//! A publication that is killed or fails at any point leaves the old snapshot or the new one, whole,
//! and no litter that grows.

use roster_system_tests::old_names::snapshot_names;
use roster_system_tests::test_host::{ROSTER_NSSWITCH, run};
use roster_system_tests::{Corpus, ProgramOutput, TestHost, find_tool, roster_program};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A compilation of a few lines makes far fewer system calls.
const CALLS_MAX: usize = 3000;
/// Temporary files of killed publications: the next one clears them away.
const LITTER_MAX: usize = 2;

fn corpus(word: &str) -> Corpus {
    let passwd = format!("alice:x:1000:1000:{word}::\n");
    let group = format!("people:x:1000:{word}\n");
    let shadow = format!("alice:{word}:1:2:3:4:5:6:7\n");
    Corpus::new(word, passwd.as_bytes(), group.as_bytes(), shadow.as_bytes())
}

/// The publication of `corpus` under strace with faults injected.
fn faulty(host: &TestHost, corpus: &Corpus, fault: &str) -> ProgramOutput {
    let compile = host.compile(corpus);
    let mut strace = Command::new(find_tool("strace", "strace"));
    strace.args(["-f", "-o", "/dev/null", "-e", &format!("inject={fault}")]);
    run(strace.arg(compile.get_program()).args(compile.get_args()))
}

/// Returns which of the two words each snapshot holds, having been verified whole.
#[track_caller]
fn words(host: &TestHost, what: &str) -> [String; 2] {
    let [accounts, shadow] = snapshot_names();
    [(accounts, "passwd", 4), (shadow, "shadow", 1)].map(|(name, map, field)| {
        let path = host.snapshots_dir().join(name);
        let verified = run(Command::new(roster_program()).arg("verify").arg(&path));
        assert_eq!(verified.code, 0, "{what}: {name}: {}", verified.error());
        let mut get = Command::new(roster_program());
        // For shadow, `get` finds the other file beside.
        let line =
            run(get.args(["get", map, "alice", "--snapshot"]).arg(host.snapshot_path())).text();
        line.split(':').nth(field).unwrap_or_default().to_owned()
    })
}

/// All files but the two snapshots.
fn litter(folder: &Path) -> BTreeSet<String> {
    let mut names: BTreeSet<_> = fs::read_dir(folder)
        .expect("list the folder")
        .map(|entry| entry.expect("list the folder").file_name().to_string_lossy().into_owned())
        .collect();
    for name in snapshot_names() {
        names.remove(name);
    }
    names
}

#[test]
fn killed_at_any_system_call_the_old_or_the_new_snapshot_is_whole() {
    let host = TestHost::serving(&corpus("old"), "");
    let mut killed = 0;
    for call in 1..CALLS_MAX {
        let done = faulty(&host, &corpus("new"), &format!("all:signal=KILL:when={call}"));
        let what = format!("killed at system call {call}");
        let found = words(&host, &what);
        assert!(found.iter().all(|word| word == "old" || word == "new"), "{what}: {found:?}");
        let litter = litter(&host.snapshots_dir());
        assert!(litter.len() <= LITTER_MAX, "{what}: {litter:?}");
        if done.code == 0 {
            break;
        }
        killed += 1;
        if found.contains(&"new".to_owned()) {
            host.publish(&corpus("old"));
        }
    }
    println!("killed at each of {killed} system calls");
    assert!(killed > 20, "only {killed} system calls were seen");
    host.publish(&corpus("last"));
    assert_eq!(words(&host, "after all"), ["last", "last"]);
    assert_eq!(litter(&host.snapshots_dir()), BTreeSet::new());
}

/// Each call of each kind fails once. Either the command reports it and the old snapshot stays, or it goes on and the
/// new one is whole.
#[test]
fn publish_any_failing_call_keeps_whole_snapshot() {
    for (calls, error) in [
        ("openat,open", "EMFILE"),
        ("write,pwrite64,writev,pwritev,ftruncate,fallocate", "ENOSPC"),
        ("write,pwrite64,writev,pwritev,fsync,fdatasync,close", "EIO"),
        ("read,pread64,fstat,newfstatat,statx", "EIO"),
        ("rename,renameat,renameat2,link,linkat", "EACCES"),
        ("fchmod,fchmodat,fchown,fchownat,chmod,chown", "EPERM"),
    ] {
        let host = TestHost::serving(&corpus("old"), "");
        for call in 1..=count(&host, calls) {
            host.publish(&corpus("old"));
            let fault = format!("{calls}:error={error}:when={call}");
            let done = faulty(&host, &corpus("new"), &fault);
            let found = words(&host, &fault);
            if done.code == 0 {
                assert_eq!(found, ["new", "new"], "{fault}");
            } else {
                assert!(!done.stderr.is_empty(), "{fault}: failed without a word");
            }
            assert!(found.iter().all(|word| word == "old" || word == "new"), "{fault}: {found:?}");
            // The file that writers lock stays when it cannot be looked at; the next one uses it.
            let litter = litter(&host.snapshots_dir());
            assert!(litter.iter().all(|name| name.ends_with(".lock")), "{fault}: {litter:?}");
        }
        host.publish(&corpus("last"));
        assert_eq!(litter(&host.snapshots_dir()), BTreeSet::new());
    }
}

/// As on a bad sector: the old file cannot be read, and is there to be replaced.
#[test]
fn unreadable_old_snapshot_is_replaced() {
    let host = TestHost::serving(&corpus("old"), "");
    let compile = host.compile(&corpus("new"));
    let mut strace = Command::new(find_tool("strace", "strace"));
    strace.args(["-f", "-o", "/dev/null", "-e", "inject=read,pread64:error=EIO", "-P"]);
    strace.arg(host.snapshot_path()).arg(compile.get_program());
    // Paths that only the command itself reads are excluded: the publisher does not read them.
    let done = run(strace.args(compile.get_args()));
    assert_eq!(done.code, 0, "{}", done.error());
    assert_eq!(words(&host, "after the fault"), ["new", "new"]);
}

/// The number of these system calls in an undisturbed publication.
fn count(host: &TestHost, calls: &str) -> usize {
    let log = host.path("calls.log");
    let compile = host.compile(&corpus("new"));
    let mut strace = Command::new(find_tool("strace", "strace"));
    strace.args(["-f", "-e", &format!("trace={calls}"), "-o"]).arg(&log);
    let done = run(strace.arg(compile.get_program()).args(compile.get_args()));
    assert_eq!(done.code, 0, "{}", done.error());
    fs::read_to_string(log).expect("read the log of strace").lines().count()
}

/// Runs `script` on a host with `roster compile` prepared as "$@", after `setup` of its directory.
fn on_host(host: &TestHost, corpus: &Corpus, script: &str) -> ProgramOutput {
    let source = host.path("source");
    fs::create_dir_all(&source).expect("create source");
    corpus.write(&source);
    let mut command = host.command("sh");
    command.args(["-c", script, "sh"]).arg(roster_program()).args(["compile", "--passwd"]);
    command.arg(source.join("passwd")).arg("--group").arg(source.join("group"));
    run(command.args(["--output", "/var/lib/roster/snap/roster.v3.snap"]))
}

#[test]
fn compile_unsynced_folder_is_not_called_untouched() {
    let host = TestHost::serving(&corpus("old"), "");
    let mut unsynced = 0;
    for call in 1..=count(&host, "fsync") {
        host.publish(&corpus("old"));
        let fault = format!("fsync:error=ENOSPC:when={call}");
        let done = faulty(&host, &corpus("new"), &fault);
        let is_new = words(&host, &fault).iter().all(|word| word == "new");
        if done.code != 0 && is_new {
            unsynced += 1;
            let says_old = done.error().contains("what was there before is untouched");
            assert!(!says_old, "{fault}: {}", done.error());
        }
    }
    assert!(unsynced > 0, "no sync of a folder failed");
}

#[test]
fn a_full_file_system_keeps_the_old_snapshot() {
    let host = TestHost::new(&corpus("old"), ROSTER_NSSWITCH);
    let mut large = corpus("new");
    large.passwd.extend((0..20_000).flat_map(|i| format!("u{i}:x:{i}:1:::\n").into_bytes()));
    // The same command twice: once with room, once with almost none left.
    let script = r#"mount -t tmpfs -o size=16m,mode=755 tmpfs /var/lib/roster/snap
        "$@" 2>&1 || exit 10
        head -c 15m /dev/zero > /var/lib/roster/snap/ballast
        "$@" && exit 11
        getent passwd alice; ls /var/lib/roster/snap"#;
    let told = on_host(&host, &large, script);
    assert!(told.code == 0, "{told:?}");
    let text = told.text();
    assert!(text.ends_with("alice:x:1000:1000:new::\nballast\nroster.v3.snap"), "{text}");
    assert!(told.error().contains("No space left"), "{}", told.error());
}

#[test]
fn a_read_only_folder_keeps_the_old_snapshot() {
    let host = TestHost::serving(&corpus("old"), ROSTER_NSSWITCH);
    let script = r#"mount -o remount,bind,ro /var/lib/roster
        "$@" && exit 11
        getent passwd alice; ls /var/lib/roster/snap"#;
    let told = on_host(&host, &corpus("new"), script);
    assert_eq!(told.text(), "alice:x:1000:1000:old::\nroster.v3.snap\nshadow.v3.snap");
    assert!(told.error().contains("/var/lib/roster"), "names no path: {}", told.error());
}

#[test]
fn modes_are_right_whatever_the_umask() {
    for umask in ["000", "022", "077", "777"] {
        let host = TestHost::new(&corpus("new"), "");
        let compile = host.compile(&corpus("new"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!(r#"umask {umask}; exec "$0" "$@""#)]);
        let done = run(shell.arg(compile.get_program()).args(compile.get_args()));
        assert_eq!(done.code, 0, "umask {umask}: {}", done.error());
        for (name, mode) in [("roster.v3.snap", 0o644), ("shadow.v3.snap", 0o640)] {
            let meta = fs::metadata(host.snapshots_dir().join(name)).expect("was published");
            assert_eq!(meta.permissions().mode() & 0o7777, mode, "umask {umask}: {name}");
        }
    }
}

#[test]
fn publications_at_the_same_time_leave_one_of_them_whole() {
    let host = TestHost::serving(&corpus("old"), "");
    let text = host.path("source");
    let mut running = Vec::new();
    for i in 0..8 {
        let corpus = corpus(&format!("writer{i}"));
        let own = host.path(&format!("source{i}"));
        // Each writer needs separate texts, which `compile` would put into one directory.
        let compile = host.compile(&corpus);
        fs::rename(&text, &own).expect("keep the texts apart");
        let args = compile.get_args().map(|arg| {
            let arg = arg.to_string_lossy();
            arg.replace(&*text.to_string_lossy(), &own.to_string_lossy())
        });
        let mut command = Command::new(compile.get_program());
        running.push(command.args(args).spawn().expect("start roster compile"));
    }
    for mut child in running {
        assert!(child.wait().expect("wait").success());
    }
    let found = words(&host, "after eight writers");
    assert!(found.iter().all(|word| word.starts_with("writer")), "{found:?}");
    assert_eq!(litter(&host.snapshots_dir()), BTreeSet::new());
}

#[test]
fn an_unreadable_source_is_named_and_changes_nothing() {
    let host = TestHost::serving(&corpus("old"), "");
    let mut compile = host.compile(&corpus("new"));
    fs::remove_file(host.path("source/group")).expect("remove");
    let done = run(&mut compile);
    assert_ne!(done.code, 0);
    assert!(done.error().contains("source/group"), "{}", done.error());
    assert_eq!(words(&host, "after"), ["old", "old"]);
    assert_eq!(litter(&host.snapshots_dir()), BTreeSet::new());
}
