//! `roster nscd`: what real programs are told through the C library's own client of nscd, without the
//! socket where a map has it, and what becomes of that when files, servers and clocks change.

use roster_system_tests::artifacts::musl_program;
use roster_system_tests::corpus::{self, Corpus, Keys};
use roster_system_tests::differ::{assert_alike, difference, seeds};
use roster_system_tests::host::{RECOMMENDED, run, tool};
use roster_system_tests::nscd::{SOON, hexadecimal};
use roster_system_tests::{
    Host, Names, Responder, c_program, c_program_with, needs_root, roster_program, wait_until,
};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const LOCAL: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:::\n\
                     local:x:1500:1500:Local account:/home/local:/bin/sh\n";
const LOCAL_GROUPS: &str = "root:x:0:\nnogroup:x:65534:\nlocal:x:1500:\nwheel:x:900:local,alice\n";

fn people() -> Corpus {
    let passwd = b"alice:x:70000:70000:Alice Example,,,:/tmp:/bin/sh\nlocal:x:70001:70000:::\n\
                   bob:x:1500:70000:Bob:/tmp:/bin/sh\n";
    let group = b"people:x:70000:\nstaff:x:70050:alice,bob\nj\xc3\xb6rgs:x:70051:alice\n";
    Corpus::new("", passwd, group, b"")
}

fn host(nsswitch: &str) -> Host {
    let local = Corpus::new("", LOCAL.as_bytes(), LOCAL_GROUPS.as_bytes(), b"");
    let host = Host::in_memory(&local, nsswitch);
    host.publish(&people());
    host
}

/// The questions that a corpus can be asked, a line each.
fn questions(keys: &Keys) -> Vec<u8> {
    let mut text = String::new();
    for name in keys.names.iter().filter(|name| name.len() < 4000) {
        let name = hexadecimal(name);
        let _ = write!(text, "u {name}\ng {name}\ni {name}\n");
    }
    for id in &keys.ids {
        let _ = write!(text, "U {id}\nG {id}\n");
    }
    text.into_bytes()
}

fn answers(host: &Host, program: &Path, questions: &[u8]) -> Vec<u8> {
    let file = host.path("questions");
    fs::write(&file, questions).expect("write the questions");
    let input = fs::File::open(&file).expect("open them");
    let told = run(host.command(program).stdin(input));
    assert_eq!(told.code, 0, "{}", told.error());
    told.stdout
}

/// The same text through `files` alone, through the module, and through the server.
#[test]
fn every_look_up_is_answered_as_the_module_and_as_files_do() {
    let program = c_program("names");
    let some = seeds().take(25).map(corpus::random);
    let corpora = corpus::hand_picked().into_iter().chain([Corpus::of_this_machine()]).chain(some);
    assert_alike(corpora, |corpus| {
        let questions = questions(&corpus.keys());
        let lines = |services: &str| format!("passwd: {services}\ngroup: {services}\n");
        let plain = Host::in_memory(corpus, &lines("files"));
        let files = answers(&plain, &program, &questions);
        let served = Responder::start(Host::in_memory(corpus, &lines("files")));
        let ours = answers(served.host(), &program, &questions);
        let nobody = Corpus::new("", b"", b"", b"");
        let snapshot = Host::in_memory(&nobody, &lines("files roster"));
        snapshot.publish(corpus);
        let module = answers(&snapshot, &program, &questions);
        let served = Responder::start(snapshot);
        let through_both = answers(served.host(), &program, &questions);
        difference(corpus, &files, &ours)
            .or_else(|| difference(corpus, &module, &through_both))
            .or_else(|| difference(corpus, &files, &module))
    });
}

#[test]
fn local_accounts_go_first_and_groups_are_a_union() {
    let served = Responder::start(host(RECOMMENDED));
    let mut names = Names::on(served.host(), &c_program("names"));
    assert_eq!(names.user("alice"), "alice:x:70000:70000:Alice Example,,,:/tmp:/bin/sh");
    assert_eq!(names.user("local"), "local:x:1500:1500:Local account:/home/local:/bin/sh");
    assert_eq!(names.user_of(1500), "local:x:1500:1500:Local account:/home/local:/bin/sh");
    assert_eq!(names.user_of(70_001), "local:x:70001:70000:::");
    assert_eq!(names.user("bob"), "bob:x:1500:70000:Bob:/tmp:/bin/sh");
    assert_eq!(names.group("j\u{f6}rgs"), "j\u{f6}rgs:x:70051:alice");
    assert_eq!(names.groups_of("alice"), " 900 70050 70051 4294967294");
    assert_eq!(names.groups_of("local"), " 900 4294967294");
    assert_eq!(names.groups_of("root"), " 4294967294");
    assert_eq!(names.user("carol"), "none:0");
}

/// Each C library, and a program with other rights than its caller.
#[test]
fn every_kind_of_program_is_answered() {
    let served = Responder::start(host(RECOMMENDED));
    let host = served.host();
    // The module is out of reach of all of them, and the snapshot too.
    let dynamic = c_program("names");
    let fixed = c_program_with("names", "names-static", &["-static"]);
    for program in [&dynamic, &fixed, &musl_program("names")] {
        let mut names = Names::on(host, program);
        let shown = program.display();
        let alice = "alice:x:70000:70000:Alice Example,,,:/tmp:/bin/sh";
        assert_eq!(names.user("alice"), alice, "{shown}");
        assert_eq!(names.user_of(70_000), alice, "{shown}");
        assert_eq!(names.group("staff"), "staff:x:70050:alice:bob", "{shown}");
        assert!(names.groups_of("alice").contains(" 70050 70051"), "{shown}");
        assert!(names.user("carol").starts_with("none:"), "{shown}");
        assert_eq!(names.user("root"), "root:x:0:0:root:/root:/bin/sh", "{shown}");
    }
}

#[test]
fn a_set_uid_program_is_answered_from_the_map() {
    if !needs_root() {
        return;
    }
    let served = Responder::start(host(RECOMMENDED));
    let program = c_program("names");
    let script = "cp $0 /var/lib/names; chmod 4755 /var/lib/names; \
                  printf 'u 616c696365\\n' | setpriv --reuid 65534 --clear-groups /var/lib/names";
    let told = run(served.host().command("sh").args(["-ec", script]).arg(&program));
    assert!(told.text().contains(" 70000 70000 "), "{told:?}");
}

/// The promise of the whole: after a map was handed over there is no system call.
#[test]
fn look_ups_make_no_system_call() {
    let served = Responder::start(host(RECOMMENDED));
    for program in [c_program("names"), c_program_with("names", "names-static", &["-static"])] {
        let trace = served.host().path("trace");
        let mut strace = served.host().command(tool("strace", "strace"));
        strace.arg("-o").arg(&trace).arg(&program);
        let mut names = Names::of(&mut strace);
        for _ in 0..3 {
            names.user("alice");
            names.user_of(0);
            names.group("staff");
            names.groups_of("alice");
        }
        names.ask("maps x");
        for question in ["u 616c696365", "U 70000", "u 726f6f74", "G 70050", "i 616c696365", "G 0"] {
            names.ask(&format!("repeat 100 {question}"));
        }
        drop(names);
        let trace = fs::read_to_string(&trace).expect("read the trace");
        let (first, last) = trace.split_once("/proc/self/maps").expect("a mark");
        // One for each map, and no file of the name services.
        assert_eq!(first.matches("connect(").count(), 2, "{first}");
        assert!(!first.contains("nsswitch.conf"), "{first}");
        // Questions are read and answers written; clocks need no system call.
        let quiet = ["read(0,", "write(1,", "read(3,", "close(3)", "newfstatat(3", "fstat(3", "+++", "---"];
        let others: Vec<_> = last
            .lines()
            .skip(1)
            .filter(|line| !quiet.iter().any(|call| line.starts_with(call)))
            .filter(|line| !line.starts_with("getrandom") && !line.starts_with("brk"))
            .collect();
        assert!(others.is_empty(), "{others:#?}");
    }
}

/// The people of a generation as `c/threads.c` knows them: each answer names it in several places.
fn generation(number: usize) -> Corpus {
    let (mut passwd, mut group) = (String::new(), String::new());
    let members: Vec<_> = (0..50).map(|i| format!("m{number}.{i}")).collect();
    let members = members.join(",");
    for i in 0..10 {
        let gid = 1_000_000 + number;
        let id = 1000 + i;
        let _ = writeln!(passwd, "u{i}:x:{id}:{gid}:generation {number}:/home/{number}:/bin/sh");
        let _ = writeln!(group, "g{i}:{number}:{}:{members}", 5000 + i);
    }
    for i in 0..10 {
        let gid = 10_000_000 + number * 100 + i;
        let _ = writeln!(group, "s{i}:x:{gid}:u0,u1,u2,u3,u4,u5,u6,u7,u8,u9");
    }
    Corpus::new("", passwd.as_bytes(), group.as_bytes(), b"")
}

const SNAPSHOT_ONLY: &str = "passwd: roster\ngroup: roster\ninitgroups: roster\n";

/// Generations are replaced under threads of a program that lives through all of them, half of which
/// ask through glibc; others start all the while, and so map what is about to be replaced.
#[test]
fn under_replacement_no_answer_is_wrong_torn_missing_or_goes_back() {
    let seconds = match std::env::var("ROSTER_SECONDS") {
        Ok(text) => Duration::from_secs(text.parse().expect("ROSTER_SECONDS is a number")),
        Err(_) => Duration::from_secs(5),
    };
    let host = Host::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let served = Responder::start(host);
    let host = served.host();
    let mut threads = host.command("nice");
    threads.args(["-n", "19"]).arg(c_program("threads")).arg((seconds * 3).as_secs().to_string());
    let mut threads = threads
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the threads");
    let start = Instant::now();
    let (mut last, mut oldest) = (1, Names::on(host, &c_program("names")));
    let mut others = Vec::new();
    while start.elapsed() < seconds {
        last += 1;
        host.publish(&generation(last));
        if last % 8 == 0 {
            let mut fresh = Names::on(host, &c_program("names"));
            assert!(fresh.user("u1").contains(":generation "));
            others.push(fresh);
        }
        assert!(oldest.user("u1").contains(":generation "));
        assert!(oldest.ask("fork u 7531").contains(&hexadecimal(b"generation ")));
    }
    let newest = format!(":generation {last}:");
    // Clients of every age, and the oldest, come to the newest.
    for names in others.iter_mut().chain([&mut oldest]) {
        wait_until(SOON, "the newest generation is seen", || names.user("u1").contains(&newest));
        // The map that is read, and no other.
        let maps: u32 = names.ask("maps /maps/passwd.").parse().expect("a number");
        assert_eq!(maps, 1);
    }
    // The threads look for a moment longer, so that they see it, too.
    std::thread::sleep(Duration::from_millis(300));
    drop(threads.stdin.take());
    let done = threads.wait_with_output().expect("wait for the threads");
    let told = String::from_utf8_lossy(&done.stdout);
    println!("{last} generations: {told}");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {told}{errors}", done.status);
    assert!(told.contains(&format!("newest generation {last},")), "{told}, published {last}");
    assert!(last > 20, "only {last} generations");
}

/// Every generation is looked at, and leaves nothing behind: neither in the program nor in memory.
#[test]
fn a_program_that_lives_through_many_generations_keeps_one_map_of_each_table() {
    let generations = 200;
    let host = Host::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let served = Responder::start(host);
    let mut names = Names::on(served.host(), &c_program("names"));
    let (user, group) = (names.user("u1"), names.group("g1"));
    assert!(user.contains("generation 1:") && group.starts_with("g1:1:"), "{user} {group}");
    let before: u32 = names.ask("maps -").parse().expect("a number");
    for number in 2..generations {
        served.host().publish(&generation(number));
        let wanted = format!(":generation {number}:");
        wait_until(SOON, "the generation is seen", || names.user("u1").contains(&wanted));
        let wanted = format!("g1:{number}:");
        wait_until(SOON, "its groups are, too", || names.group("g1").starts_with(&wanted));
    }
    let after: u32 = names.ask("maps -").parse().expect("a number");
    // The C library's own memory may have grown by a piece or two.
    assert!(after <= before + 2, "{before} mappings at the start, {after} at the end");
    let used: u64 = fs::read_dir(served.host().path("maps"))
        .expect("list the maps")
        .filter_map(|entry| fs::metadata(entry.ok()?.path()).ok())
        .map(|file| std::os::unix::fs::MetadataExt::blocks(&file) * 512)
        .sum();
    // The two that are served, three before each, and a page of others.
    assert!(used < 8 << 20, "{used} bytes of maps after {generations} generations");
}
