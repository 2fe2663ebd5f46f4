// SPDX-License-Identifier: MIT OR Apache-2.0
//! A snapshot replaced under its readers: every answer belongs whole to one generation, none is
//! missing, a thread never goes back, and the newest one is seen soon.

use roster_snapshot::hash;
use roster_snapshot::layout::HEADER_BYTES;
use roster_system_tests::test_host::ROSTER_NSSWITCH;
use roster_system_tests::wait::SOON;
use roster_system_tests::{
    Corpus, NssCaller, TestHost, c_program, c_program_with, command_with_snapshot, find_tool,
    wait_until,
};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The time in seconds for which generations are published, unless `ROSTER_SECONDS` sets it.
const UNDER_LOAD_S: usize = 5;
/// Generations published in a second, by a machine that publishes at once.
const PER_SECOND: u16 = 100;
/// The promise: a publication is seen this much later at the latest.
const SEEN_WITHIN: Duration = Duration::from_millis(100);

/// The users of a generation: each answer names it in several places, see `c/threads.c`.
fn generation(number: usize) -> Corpus {
    let mut passwd = String::new();
    let mut group = String::new();
    let members: Vec<_> = (0..50).map(|i| format!("m{number}.{i}")).collect();
    let members = members.join(",");
    for i in 0..10 {
        let gid = 1_000_000 + number;
        let _ = writeln!(
            passwd,
            "u{i}:x:{}:{gid}:generation {number}:/home/{number}:/bin/sh",
            1000 + i
        );
        let _ = writeln!(group, "g{i}:{number}:{}:{members}", 5000 + i);
    }
    for i in 0..10 {
        let gid = 10_000_000 + number * 100 + i;
        let _ = writeln!(group, "s{i}:x:{gid}:u0,u1,u2,u3,u4,u5,u6,u7,u8,u9");
    }
    Corpus::new("", passwd.as_bytes(), group.as_bytes(), b"")
}

#[test]
fn thirty_two_threads_never_see_a_wrong_torn_or_missing_answer() {
    let under_load = match std::env::var("ROSTER_SECONDS") {
        Ok(text) => text.parse().expect("ROSTER_SECONDS is a number"),
        Err(_) => UNDER_LOAD_S,
    };
    let host = TestHost::in_memory(&generation(1), ROSTER_NSSWITCH);
    host.publish(&generation(1));
    // The publisher has priority on the processor. Otherwise few generations would be seen.
    let mut threads = host.command("nice");
    threads.args(["-n", "19"]);
    replaced_under(&host, threads, under_load, &[], |_| ());
}

/// A later publisher takes over: its files have a section that running programs do not know.
#[test]
fn upgrade_added_section_serves_running_programs() {
    let host = TestHost::in_memory(&generation(1), ROSTER_NSSWITCH);
    host.publish(&generation(1));
    let upgraded = |number: usize| {
        if number > 100 {
            add_section(&host.snapshot_path());
        }
    };
    let mut threads = host.command("nice");
    threads.args(["-n", "19"]);
    replaced_under(&host, threads, 2, &["0", "8"], upgraded);
    let shown = host.command(find_tool("getent", "libc-bin")).args(["passwd", "u1"]).output();
    let shown = String::from_utf8(shown.expect("run getent").stdout).expect("text");
    assert!(shown.contains(":generation 200:"), "{shown}");
}

/// Gives the snapshot a section that version 3 does not define, with right checksums, in a new file. The offsets are
/// those of docs/reference/snapshot-format.md.
fn add_section(path: &Path) {
    let mut bytes = fs::read(path).expect("read the snapshot");
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    let offset = bytes.len() as u64;
    bytes.extend_from_slice(&[7; 64]);
    let sections = u32::from_le_bytes(bytes[52..56].try_into().expect("four bytes"));
    let entry = 64 + 24 * sections as usize;
    let (number, record_bytes, records) = (99_u32, 8_u32, 8_u64);
    let content = hash::plain(&bytes[HEADER_BYTES..]);
    let file_bytes = bytes.len() as u64;
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(16, &file_bytes.to_le_bytes());
    put(40, &content.to_le_bytes());
    put(52, &(sections + 1).to_le_bytes());
    put(entry, &number.to_le_bytes());
    put(entry + 4, &record_bytes.to_le_bytes());
    put(entry + 8, &offset.to_le_bytes());
    put(entry + 16, &records.to_le_bytes());
    let header = hash::plain(&bytes[..504]);
    bytes[504..HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
    let fresh = path.with_extension("fresh");
    fs::write(&fresh, &bytes).expect("write the snapshot");
    fs::rename(&fresh, path).expect("put it in place");
}

#[test]
fn generations_slow_first_open_takes_none_back() {
    let host = TestHost::in_memory(&generation(1), ROSTER_NSSWITCH);
    host.publish(&generation(1));
    // A thread is so long in mapping its first and its second file that others are published and
    // opened meanwhile.
    let mut strace = host.command("nice");
    strace.args(["-n", "19"]).arg(find_tool("strace", "strace"));
    strace.args(["-f", "-o", "/dev/null", "-P", "/var/lib/roster/snap/roster.v3.snap"]);
    strace.args(["-e", "trace=mmap", "-e", "inject=mmap:delay_exit=200000:when=1..2"]);
    replaced_under(&host, strace, 2, &["5"], |_| ());
}

/// Publishes the generations of so many seconds while `c/threads.c` looks up, started by the end of
/// `command` with `arguments`. Calls `published` with the number of each. None of the calls is wrong.
fn replaced_under(
    host: &TestHost,
    mut command: Command,
    seconds: usize,
    arguments: &[&str],
    published: impl Fn(usize),
) {
    let last = seconds * usize::from(PER_SECOND);
    let mut threads = command
        .arg(c_program("threads"))
        .arg((Duration::from_secs(10 * seconds as u64) + 3 * SOON).as_secs().to_string())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the threads");
    for number in 2..=last {
        sleep(Duration::from_secs(1) / u32::from(PER_SECOND));
        host.publish(&generation(number));
        published(number);
    }
    // The threads look until they see it, too.
    let mut input = threads.stdin.take().expect("was piped");
    writeln!(input, "{last}").expect("tell the threads");
    drop(input);
    let mut told = String::new();
    let mut stdout = threads.stdout.take().expect("was piped");
    stdout.read_to_string(&mut told).expect("read the count");
    let done = threads.wait_with_output().expect("wait for the threads");
    assert!(done.status.success(), "{told}{}", String::from_utf8_lossy(&done.stderr));
    assert!(told.contains(&format!("newest generation {last},")), "{told}, published {last}");
}

#[test]
fn lookup_100_ms_after_publication_sees_it() {
    let host = TestHost::serving(&generation(1), ROSTER_NSSWITCH);
    let file = host.path("clock");
    let set_clock = |ms: u64| fs::write(&file, ms.to_ne_bytes()).expect("set the clock");
    let mut now = 1_000_000;
    set_clock(now);
    let library = c_program_with("preload_clock", "clock.so", &["-shared", "-fPIC"]);
    let mut command = command_with_snapshot(c_program("nss_caller"), &host.snapshot_path());
    command.env("LD_PRELOAD", library).env("ROSTER_TEST_MONOTONIC", &file);
    let mut caller = NssCaller::start(command.arg("roster"));
    for number in 2..11 {
        let before = caller.send_command("getpwnam u1");
        host.publish(&generation(number));
        assert_eq!(caller.send_command("getpwnam u1"), before, "the clock stands still");
        now += u64::try_from(SEEN_WITHIN.as_millis()).expect("a few");
        set_clock(now);
        let found = caller.send_command("getpwnam u1");
        assert!(found.contains(&format!(":generation {number}:")), "{found}");
    }
}

#[test]
fn old_generations_are_unmapped() {
    let host = TestHost::serving(&generation(1), ROSTER_NSSWITCH);
    let mut caller = NssCaller::with_snapshot(&host.snapshot_path());
    for number in 2..40 {
        host.publish(&generation(number));
        caller.send_command("getpwnam u1");
        // The present snapshot, and the previous one.
        let mapped: u32 = caller.send_command("maps roster.v3.snap").parse().expect("a number");
        assert!(mapped <= 2, "{mapped} mappings after {number} generations");
    }
}

/// As with `files`, which keeps its file open: entries that both generations have are in the list, even if others
/// moved.
#[test]
fn an_enumeration_lists_the_generation_that_it_began_with() {
    let host = TestHost::serving(&generation(1), ROSTER_NSSWITCH);
    let mut caller = NssCaller::with_snapshot(&host.snapshot_path());
    caller.send_command("setpwent");
    let expect = |caller: &mut NssCaller, users: std::ops::Range<u32>, generation: u32| {
        for i in users {
            let answer = caller.send_command("getpwent");
            let wanted =
                format!("SUCCESS u{i}:x:100{i}:100000{generation}:generation {generation}:");
            assert!(answer.starts_with(&wanted), "{answer} instead of {wanted}");
        }
    };
    expect(&mut caller, 0..3, 1);
    host.publish(&generation(2));
    wait_until(SOON, "look-ups see the new one", || {
        caller.send_command("getpwnam u1").contains(":1000002:")
    });
    expect(&mut caller, 3..10, 1);
    assert_eq!(caller.send_command("getpwent"), "NOTFOUND ENOENT");
    assert_eq!(caller.send_command("getpwent"), "NOTFOUND ENOENT");
    caller.send_command("setpwent");
    expect(&mut caller, 0..5, 2);
    caller.send_command("endpwent");
    expect(&mut caller, 0..10, 2);
    assert_eq!(caller.send_command("getpwent"), "NOTFOUND ENOENT");
}
