// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events in host processes that a module must survive. They fork from threads, close and reuse descriptors, run on
//! tiny stacks, cancel threads, interrupt them by signals, and allow few system calls.

use roster_system_tests::test_host::{ROSTER_NSSWITCH, run};
use roster_system_tests::{
    Corpus, NssCaller, TestHost, c_program, c_program_with, command_with_snapshot, find_tool,
};
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const REFRESH: Duration = Duration::from_millis(100);

fn corpus(generation: u32) -> Corpus {
    let passwd = format!("alice:x:1000:1000:generation {generation}:/home/alice:/bin/sh\n");
    let members: Vec<_> = (0..20_000).map(|i| format!("member{i}")).collect();
    let group = format!("big:x:5:alice,{}\nstaff:x:50:alice\n", members.join(","));
    Corpus::new("", passwd.as_bytes(), group.as_bytes(), b"alice:*:1:2:3:4:5:6:7\n")
}

/// A helper that reads the host's snapshot by way of the environment.
fn helper(name: &str, host: &TestHost) -> Command {
    command_with_snapshot(c_program(name), &host.snapshot_path())
}

#[test]
fn children_of_a_threaded_process_answer_and_both_sides_release_old_generations() {
    let host = TestHost::serving(&corpus(0), "");
    let mut forks = NssCaller::start(helper("fork_threaded", &host).args(["300", "alice"]));
    let forked = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut generation = 0;
            while !forked.load(Ordering::Relaxed) {
                generation += 1;
                host.publish(&corpus(generation));
            }
        });
        let told = forks.read_line();
        forked.store(true, Ordering::Relaxed);
        assert_eq!(told, "forked");
    });
    for round in 0..5 {
        host.publish(&corpus(1000 + round));
        thread::sleep(2 * REFRESH);
        let told = forks.send_command("");
        let counts: Vec<i32> = told.split(' ').map(|n| n.parse().expect("a number")).collect();
        // The present snapshot, and one that another thread is just leaving.
        assert!(counts.iter().all(|count| (1..=2).contains(count)), "mappings: {told}");
    }
}

#[test]
fn no_descriptor_stays_open() {
    let host = TestHost::serving(&corpus(1), "");
    let mut caller = NssCaller::with_snapshot(&host.snapshot_path());
    let before = caller.send_command("descriptors");
    for generation in 2..6 {
        for look_up in ["getpwnam alice", "getgrgid 50", "getspnam alice", "initgroups alice 1"] {
            assert!(caller.send_command(look_up).starts_with("SUCCESS"));
        }
        assert_eq!(caller.send_command("getpwent").split(' ').next(), Some("SUCCESS"));
        assert_eq!(caller.send_command("descriptors"), before);
        host.publish(&corpus(generation));
        thread::sleep(2 * REFRESH);
        caller.send_command("endpwent");
    }
}

#[test]
fn descriptors_may_be_closed_and_reused_between_calls() {
    let host = TestHost::serving(&corpus(1), "");
    let mut shell = command_with_snapshot("sh", &host.snapshot_path());
    shell.args(["-c", r#"ulimit -n 1024; exec "$0" roster"#]).arg(c_program("nss_caller"));
    let mut caller = NssCaller::start(&mut shell);
    assert!(caller.send_command("getpwnam alice").contains(":generation 1:"));
    // The process has no free descriptor, so that the next generation cannot be opened: the old one serves.
    caller.send_command("reuse-descriptors");
    host.publish(&corpus(2));
    thread::sleep(2 * REFRESH);
    assert!(caller.send_command("getpwnam alice").contains(":generation 1:"));
    caller.send_command("close-descriptors");
    thread::sleep(2 * REFRESH);
    assert!(caller.send_command("getpwnam alice").contains(":generation 2:"));
}

/// "No such user" would be a lie of a process that merely has too many files open.
#[test]
fn without_a_free_descriptor_the_first_look_up_is_unavail() {
    let host = TestHost::serving(&corpus(1), "");
    let mut shell = host.command("sh");
    shell.args(["-c", r#"ulimit -n 1024; exec "$0" roster"#]).arg(c_program("nss_caller"));
    let mut caller = NssCaller::start(&mut shell);
    caller.send_command("reuse-descriptors");
    let answer = caller.send_command("getpwnam alice");
    assert!(answer.starts_with("UNAVAIL ") && answer != "UNAVAIL ENOENT", "{answer}");
    caller.send_command("close-descriptors");
    thread::sleep(2 * REFRESH);
    assert!(caller.send_command("getpwnam alice").contains(":generation 1:"));
}

#[test]
fn a_stack_of_64_kb_is_more_than_enough() {
    /// A page less than the smallest stack that a thread may have (16 kB).
    const STACK_BYTES_MAX: usize = 12 << 10;
    let host = TestHost::serving(&corpus(1), "");
    let told = run(helper("small_stack", &host).args(["alice", "big"])).text();
    let (verdict, bytes) = told.split_once(' ').expect("verdict and bytes");
    assert_eq!(verdict, "found");
    let bytes: usize = bytes.parse().expect("a number");
    println!("{bytes} bytes of stack");
    assert!(bytes <= STACK_BYTES_MAX, "{bytes} bytes of stack");
}

/// A cancelled thread or an interrupted lookup leaves no lock behind. The file that a cancelled thread was reading does
/// not exclude the process from later generations.
#[test]
fn cancelled_threads_and_signal_handlers_leave_nothing_locked() {
    let host = TestHost::serving(&corpus(1), "");
    let mut interrupted = NssCaller::start(helper("cancel_lookups", &host).args(["400", "alice"]));
    assert_eq!(interrupted.read_line(), "found every time");
    for generation in 2..12 {
        host.publish(&corpus(generation));
        thread::sleep(2 * REFRESH);
        assert_eq!(interrupted.send_command(""), format!("generation {generation}"));
    }
}

/// Threads are cancelled while they look whether there is a new generation. strace extends this beyond the time after
/// which the program cancels. The next generation is seen in time all the same.
#[test]
fn a_thread_that_is_cancelled_in_a_refresh_finishes_it() {
    let host = TestHost::serving(&corpus(1), "");
    let interrupted = helper("cancel_lookups", &host);
    let mut strace = Command::new(find_tool("strace", "strace"));
    strace.args(["-f", "-o", "/dev/null", "-e", "trace=newfstatat"]);
    strace.args(["--seccomp-bpf", "-e", "inject=newfstatat:delay_enter=5000"]);
    strace.arg(interrupted.get_program()).args(interrupted.get_args()).args(["400", "alice"]);
    strace.envs(interrupted.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut interrupted = NssCaller::start(&mut strace);
    assert_eq!(interrupted.read_line(), "found every time");
    host.publish(&corpus(2));
    thread::sleep(2 * REFRESH);
    assert_eq!(interrupted.send_command(""), "generation 2");
}

/// glibc's signal of an asynchronous cancellation may arrive after the thread has disabled cancellation. Each such
/// thread that ended within a refresh would leave the mark of its refresh. A process has 16 tables to replace blocked
/// ones, and more threads than that are cancelled within a refresh here.
#[test]
fn cancelled_threads_leave_no_refresh_mark() {
    let host = TestHost::serving(&corpus(1), "");
    let flags = ["-pthread", "-rdynamic"];
    let program = c_program_with("cancel_refreshes", "cancel_refreshes", &flags);
    let mut command = command_with_snapshot(program, &host.snapshot_path());
    let mut cancelled = NssCaller::start(command.args(["10000", "alice"]));
    let line = cancelled.read_line();
    let readings: u64 = line.split(' ').next().and_then(|word| word.parse().ok()).expect(&line);
    assert!(readings > 10_000, "{line}");
    host.publish(&corpus(2));
    assert_eq!(cancelled.send_command(""), "generation 2");
}

/// Services with a system call filter were written for `files`.
#[test]
fn a_seccomp_filter_that_lets_files_through_lets_roster_through() {
    let program = c_program("lookup");
    let files = TestHost::new(&corpus(1), "passwd: files\ngroup: files\n");
    let log = files.path("strace.log");
    let mut strace = files.command(find_tool("strace", "strace"));
    strace.args(["-n", "-o"]).arg(&log).arg(&program).args(["--filter", "all", "alice"]);
    let wanted = run(&mut strace).text();
    assert!(wanted.contains("alice:1000:1000:generation 1:?,big,staff"), "{wanted}");
    let log = std::fs::read_to_string(log).expect("read the log of strace");
    let (_, after) = log.split_once("write(1, \"filtered").expect("the place of the filter");
    let numbers: BTreeSet<&str> = after
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once(']'))
        .map(|(number, _)| number.trim())
        .collect();
    let allowed = numbers.into_iter().collect::<Vec<_>>().join(",");
    println!("files makes the system calls {allowed}");
    let roster = TestHost::serving(&corpus(1), ROSTER_NSSWITCH);
    let told = run(roster.command(&program).args(["--filter", &allowed, "alice"]));
    assert_eq!(told.code, 0, "killed by the filter {allowed}");
    assert_eq!(told.text(), wanted);
}
