//! A snapshot replaced under its readers: every answer belongs whole to one generation, none is
//! missing, a thread never goes back, and the newest one is seen soon.

use roster_system_tests::host::ROSTER;
use roster_system_tests::wait::SOON;
use roster_system_tests::{
    Caller, Corpus, Host, c_program, c_program_with, reading, tool, wait_until,
};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// How many seconds' generations are published, unless `ROSTER_SECONDS` says otherwise.
const UNDER_LOAD_S: usize = 5;
/// Generations published in a second, by a machine that publishes at once.
const PER_SECOND: u16 = 100;
/// The promise: a publication is seen this much later at the latest.
const SEEN_WITHIN: Duration = Duration::from_millis(100);

/// The people of a generation: each answer names it in several places, see `c/threads.c`.
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
    let host = Host::in_memory(&generation(1), ROSTER);
    host.publish(&generation(1));
    // The publisher gets the processor whenever it wants it, else few generations would be seen.
    let mut threads = host.command("nice");
    threads.args(["-n", "19"]);
    replaced_under(&host, threads, under_load, &[]);
}

#[test]
fn a_thread_that_is_long_in_opening_the_first_generation_takes_nobody_back() {
    let host = Host::in_memory(&generation(1), ROSTER);
    host.publish(&generation(1));
    // A thread is so long in mapping its first and its second file that others are published and
    // opened meanwhile.
    let mut strace = host.command("nice");
    strace.args(["-n", "19"]).arg(tool("strace", "strace"));
    strace.args(["-f", "-o", "/dev/null", "-P", "/var/lib/roster/snap/roster.snap"]);
    strace.args(["-e", "trace=mmap", "-e", "inject=mmap:delay_exit=200000:when=1..2"]);
    replaced_under(&host, strace, 2, &["5"]);
}

/// Publishes the generations of so many seconds while `c/threads.c` looks up, started by the end of
/// `command`; the threads begin `apart` milliseconds. None of the calls is wrong.
fn replaced_under(host: &Host, mut command: Command, seconds: usize, apart: &[&str]) {
    let last = seconds * usize::from(PER_SECOND);
    let mut threads = command
        .arg(c_program("threads"))
        .arg((Duration::from_secs(10 * seconds as u64) + 3 * SOON).as_secs().to_string())
        .args(apart)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the threads");
    for number in 2..=last {
        sleep(Duration::from_secs(1) / u32::from(PER_SECOND));
        host.publish(&generation(number));
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
    let host = Host::serving(&generation(1), ROSTER);
    let file = host.path("clock");
    let set_clock = |ms: u64| fs::write(&file, ms.to_ne_bytes()).expect("set the clock");
    let mut now = 1_000_000;
    set_clock(now);
    let library = c_program_with("clock", "clock.so", &["-shared", "-fPIC"]);
    let mut command = reading(c_program("caller"), &host.snapshot());
    command.env("LD_PRELOAD", library).env("ROSTER_TEST_MONOTONIC", &file);
    let mut caller = Caller::start(command.arg("roster"));
    for number in 2..11 {
        let before = caller.say("getpwnam u1");
        host.publish(&generation(number));
        assert_eq!(caller.say("getpwnam u1"), before, "the clock stands still");
        now += u64::try_from(SEEN_WITHIN.as_millis()).expect("a few");
        set_clock(now);
        let found = caller.say("getpwnam u1");
        assert!(found.contains(&format!(":generation {number}:")), "{found}");
    }
}

#[test]
fn old_generations_are_unmapped() {
    let host = Host::serving(&generation(1), ROSTER);
    let mut caller = Caller::reading(&host.snapshot());
    for number in 2..40 {
        host.publish(&generation(number));
        caller.say("getpwnam u1");
        // The one that serves, and one that is on its way out.
        let mapped: u32 = caller.say("maps roster.snap").parse().expect("a number");
        assert!(mapped <= 2, "{mapped} mappings after {number} generations");
    }
}

/// As with `files`, which keeps its file open: entries that both generations have are in the list,
/// wherever the others went.
#[test]
fn an_enumeration_lists_the_generation_that_it_began_with() {
    let host = Host::serving(&generation(1), ROSTER);
    let mut caller = Caller::reading(&host.snapshot());
    caller.say("setpwent");
    let expect = |caller: &mut Caller, users: std::ops::Range<u32>, generation: u32| {
        for i in users {
            let answer = caller.say("getpwent");
            let wanted =
                format!("SUCCESS u{i}:x:100{i}:100000{generation}:generation {generation}:");
            assert!(answer.starts_with(&wanted), "{answer} instead of {wanted}");
        }
    };
    expect(&mut caller, 0..3, 1);
    host.publish(&generation(2));
    wait_until(SOON, "look-ups see the new one", || {
        caller.say("getpwnam u1").contains(":1000002:")
    });
    expect(&mut caller, 3..10, 1);
    assert_eq!(caller.say("getpwent"), "NOTFOUND ENOENT");
    assert_eq!(caller.say("getpwent"), "NOTFOUND ENOENT");
    caller.say("setpwent");
    expect(&mut caller, 0..5, 2);
    caller.say("endpwent");
    expect(&mut caller, 0..10, 2);
    assert_eq!(caller.say("getpwent"), "NOTFOUND ENOENT");
}
