// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster nscd`: answers that real programs get through the C library's own client of nscd. They need no socket if a
//! map has the entry. Tests also change files, servers and clocks.

use roster_system_tests::artifacts::musl_program;
use roster_system_tests::compare_services::{assert_alike, difference, seeds};
use roster_system_tests::corpus::{self, Corpus, LookupKeys};
use roster_system_tests::nscd::{SNAPSHOT_ONLY, SOON, generation, hexadecimal};
use roster_system_tests::servers::ServerProcess;
use roster_system_tests::test_host::{RECOMMENDED_NSSWITCH, find_tool, run};
use roster_system_tests::{
    LookupProgram, NscdServer, TestHost, c_program, c_program_with, needs_root, roster_program,
    wait_until,
};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
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

fn host(nsswitch: &str) -> TestHost {
    let local = Corpus::new("", LOCAL.as_bytes(), LOCAL_GROUPS.as_bytes(), b"");
    let host = TestHost::in_memory(&local, nsswitch);
    host.publish(&people());
    host
}

/// All requests with the keys of a corpus, a line each.
fn questions(keys: &LookupKeys) -> Vec<u8> {
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

fn answers(host: &TestHost, program: &Path, questions: &[u8]) -> Vec<u8> {
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
    let program = c_program("lookup_stdin");
    let some = seeds().take(25).map(corpus::random);
    let corpora = corpus::hand_picked().into_iter().chain([Corpus::from_machine()]).chain(some);
    assert_alike(corpora, |corpus| {
        let questions = questions(&corpus.keys());
        let lines = |services: &str| format!("passwd: {services}\ngroup: {services}\n");
        let plain = TestHost::in_memory(corpus, &lines("files"));
        let files = answers(&plain, &program, &questions);
        let served = NscdServer::start(TestHost::in_memory(corpus, &lines("files")));
        let ours = answers(served.host(), &program, &questions);
        assert!(served.statistic(" maps handed out") >= 2, "{}", served.statistics());
        let nobody = Corpus::new("", b"", b"", b"");
        let snapshot = TestHost::in_memory(&nobody, &lines("files roster"));
        snapshot.publish(corpus);
        let module = answers(&snapshot, &program, &questions);
        let served = NscdServer::start(snapshot);
        let through_both = answers(served.host(), &program, &questions);
        assert!(served.statistic(" maps handed out") >= 2, "{}", served.statistics());
        difference(corpus, &files, &ours)
            .or_else(|| difference(corpus, &module, &through_both))
            .or_else(|| difference(corpus, &files, &module))
    });
}

#[test]
fn local_accounts_go_first_and_groups_are_a_union() {
    let served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert_eq!(names.user("alice"), "alice:x:70000:70000:Alice Example,,,:/tmp:/bin/sh");
    assert_eq!(names.user("local"), "local:x:1500:1500:Local account:/home/local:/bin/sh");
    assert_eq!(names.user_by_uid(1500), "local:x:1500:1500:Local account:/home/local:/bin/sh");
    assert_eq!(names.user_by_uid(70_001), "local:x:70001:70000:::");
    assert_eq!(names.user("bob"), "bob:x:1500:70000:Bob:/tmp:/bin/sh");
    assert_eq!(names.group("j\u{f6}rgs"), "j\u{f6}rgs:x:70051:alice");
    assert_eq!(names.gids_of("alice"), " 900 70050 70051 4294967294");
    assert_eq!(names.gids_of("local"), " 900 4294967294");
    assert_eq!(names.gids_of("root"), " 4294967294");
    assert_eq!(names.user("carol"), "none:0");
}

/// Each C library, and a program with other rights than its caller.
#[test]
fn every_kind_of_program_is_answered() {
    let served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let host = served.host();
    // The module is out of reach of all of them, and the snapshot too.
    let dynamic = c_program("lookup_stdin");
    let fixed = c_program_with("lookup_stdin", "names-static", &["-static"]);
    for program in [&dynamic, &fixed, &musl_program("lookup_stdin")] {
        let mut names = LookupProgram::on(host, program);
        let shown = program.display();
        let alice = "alice:x:70000:70000:Alice Example,,,:/tmp:/bin/sh";
        assert_eq!(names.user("alice"), alice, "{shown}");
        assert_eq!(names.user_by_uid(70_000), alice, "{shown}");
        assert_eq!(names.group("staff"), "staff:x:70050:alice:bob", "{shown}");
        assert!(names.gids_of("alice").contains(" 70050 70051"), "{shown}");
        assert!(names.user("carol").starts_with("none:"), "{shown}");
        assert_eq!(names.user("root"), "root:x:0:0:root:/root:/bin/sh", "{shown}");
    }
}

/// Compares doctor's findings in the C library's file with the behaviour of its client.
#[test]
fn doctor_knows_that_this_c_library_has_a_client() {
    let served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    names.user("alice");
    let has_client = names.send_request("maps /maps/passwd.") == "1";
    let told = run(served.host().command(roster_program()).arg("doctor"));
    let told = String::from_utf8(told.stdout).expect("text");
    assert_eq!(told.contains(", with a client of nscd"), has_client, "{told}");
    assert_ne!(told.contains("[RST-2061]"), has_client, "{told}");
}

/// Doctor does not claim that the server is nscd if it may not query it. The same holds for root if the server stands
/// still.
#[test]
fn doctor_knows_whose_server_is_there() {
    if !needs_root() {
        return;
    }
    let mut served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let says = |served: &NscdServer, before: &[&str], words: &str| {
        let mut command = served.host().command(before[0]);
        let told = run(command.args(&before[1..]).arg(roster_program()).arg("doctor"));
        String::from_utf8(told.stdout).expect("text").contains(words)
    };
    // Again and again: a test beside this one runs nscd's own program for a moment.
    let nobody = ["setpriv", "--reuid", "65534", "--clear-groups"];
    let there = "\u{2713} roster nscd is running; run doctor as root";
    wait_until(SOON, "it is known", || says(&served, &nobody, there));
    served.process().freeze();
    let silent = "[RST-2055]";
    wait_until(SOON, "it is known to stand still", || says(&served, &["timeout", "30"], silent));
    served.process().thaw();
}

#[test]
fn a_set_uid_program_is_answered_from_the_map() {
    if !needs_root() {
        return;
    }
    let served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let program = c_program("lookup_stdin");
    let script = "cp $0 /var/lib/names; chmod 4755 /var/lib/names; \
                  printf 'u 616c696365\\n' | setpriv --reuid 65534 --clear-groups /var/lib/names";
    let told = run(served.host().command("sh").args(["-ec", script]).arg(&program));
    assert!(told.text().contains(" 70000 70000 "), "{told:?}");
}

/// The main claim: after a program has a map, lookups make no system call.
#[test]
fn look_ups_make_no_system_call() {
    let served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    for program in
        [c_program("lookup_stdin"), c_program_with("lookup_stdin", "names-static", &["-static"])]
    {
        let trace = served.host().path("trace");
        let mut strace = served.host().command(find_tool("strace", "strace"));
        strace.arg("-o").arg(&trace).arg(&program);
        let mut names = LookupProgram::from_command(&mut strace);
        for _ in 0..3 {
            names.user("alice");
            names.user_by_uid(0);
            names.group("staff");
            names.gids_of("alice");
        }
        names.send_request("maps x");
        for question in ["u 616c696365", "U 70000", "u 726f6f74", "G 70050", "i 616c696365", "G 0"]
        {
            names.send_request(&format!("repeat 100 {question}"));
        }
        drop(names);
        let trace = fs::read_to_string(&trace).expect("read the trace");
        let (first, last) = trace.split_once("/proc/self/maps").expect("a mark");
        // One for each map, and no file of the name services.
        assert_eq!(first.matches("connect(").count(), 2, "{first}");
        assert!(!first.contains("nsswitch.conf"), "{first}");
        // Requests are read and replies written; clocks need no system call.
        let quiet =
            ["read(0,", "write(1,", "read(3,", "close(3)", "newfstatat(3", "fstat(3", "+++", "---"];
        let others: Vec<_> = last
            .lines()
            .skip(1)
            .filter(|line| !quiet.iter().any(|call| line.starts_with(call)))
            .filter(|line| !line.starts_with("getrandom") && !line.starts_with("brk"))
            .collect();
        assert!(others.is_empty(), "{others:#?}");
    }
}

/// Generations are replaced under threads of a program that lives through all of them. Half of them look up through
/// glibc. Other programs start all the while, and so map files that are about to be replaced.
#[test]
fn under_replacement_no_answer_is_wrong_torn_missing_or_goes_back() {
    let seconds = match std::env::var("ROSTER_SECONDS") {
        Ok(text) => Duration::from_secs(text.parse().expect("ROSTER_SECONDS is a number")),
        Err(_) => Duration::from_secs(5),
    };
    let host = TestHost::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let served = NscdServer::start(host);
    let host = served.host();
    let mut threads = host.command("nice");
    let end = (seconds + 3 * SOON).as_secs().to_string();
    threads.args(["-n", "19"]).arg(c_program("threads")).arg(end);
    let mut threads = threads
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the threads");
    let start = Instant::now();
    let (mut last, mut oldest) = (1, LookupProgram::on(host, &c_program("lookup_stdin")));
    let mut others = Vec::new();
    // The slowest machine can publish 20 maps, and 20 maps are enough for the claim.
    while start.elapsed() < seconds || last <= 20 {
        last += 1;
        host.publish(&generation(last));
        if last % 8 == 0 {
            let mut fresh = LookupProgram::on(host, &c_program("lookup_stdin"));
            assert!(fresh.user("u1").contains(":generation "));
            others.push(fresh);
        }
        assert!(oldest.user("u1").contains(":generation "));
        assert!(oldest.send_request("fork u 7531").contains(&hexadecimal(b"generation ")));
    }
    let newest = format!(":generation {last}:");
    // Clients of every age, and the oldest, come to the newest.
    for names in others.iter_mut().chain([&mut oldest]) {
        wait_until(SOON, "the newest generation is seen", || names.user("u1").contains(&newest));
        // The map that is read, and no other.
        let maps: u32 = names.send_request("maps /maps/passwd.").parse().expect("a number");
        assert_eq!(maps, 1);
    }
    // The threads look until they see it, too.
    let mut input = threads.stdin.take().expect("was piped");
    writeln!(input, "{last}").expect("tell the threads");
    drop(input);
    let done = threads.wait_with_output().expect("wait for the threads");
    let told = String::from_utf8_lossy(&done.stdout);
    println!("{last} generations: {told}");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {told}{errors}", done.status);
    assert!(told.contains(&format!("newest generation {last},")), "{told}, published {last}");
}

#[test]
fn changes_of_files_and_of_nsswitch_conf_are_seen_by_running_programs() {
    let served = NscdServer::start(host("passwd: files\ngroup: files\ninitgroups: files\n"));
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert_eq!(names.user("alice"), "none:0");
    assert_eq!(names.user("fresh"), "none:0");
    // In place, so that the helper sees it in its mounts, too. As soon as it is written, no program gets the old
    // content.
    served.rewrite("passwd", &format!("{LOCAL}fresh:x:1501:1501:::\n"));
    let fresh = "fresh:x:1501:1501:::";
    wait_until(SOON, "a new user is seen", || names.user("fresh") == fresh);
    served.rewrite("group", &format!("{LOCAL_GROUPS}more:x:901:fresh\n"));
    wait_until(SOON, "a new group is seen", || names.gids_of("fresh") == " 901 4294967294");
    served.rewrite("passwd", LOCAL);
    wait_until(SOON, "who is gone is gone", || names.user("fresh") == "none:0");
    served.rewrite("nsswitch.conf", RECOMMENDED_NSSWITCH);
    wait_until(SOON, "another service is in", || names.user("alice").starts_with("alice:x:70000"));
    wait_until(SOON, "and its groups", || names.gids_of("alice") == " 900 70050 70051 4294967294");
    let made = served.statistic(" made since");
    assert!(made >= 3, "{}", served.statistics());
}

/// A file that is renamed over the other, as useradd(8) does it.
#[test]
fn nscd_renamed_passwd_each_time_seen() {
    let served = NscdServer::start(host("passwd: files\ngroup: files\ninitgroups: files\n"));
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    for number in 0..20 {
        let path = served.host().path("etc/passwd.new");
        let text = format!("{LOCAL}mark:x:4000:{number}:::\n");
        fs::write(&path, text).expect("write the new file");
        fs::rename(&path, served.host().path("etc/passwd")).expect("rename it");
        let wanted = format!("mark:x:4000:{number}:::");
        wait_until(SOON, &wanted, || names.user_by_uid(4000) == wanted);
    }
}

/// Two writes within a few milliseconds, in place and of the same length. The clock of the file system stands still
/// meanwhile. So the file has the same metadata as the file that the map was made of.
#[test]
fn nscd_two_writes_show_last_content() {
    if !needs_root() {
        return;
    }
    let mut served = NscdServer::prepared(host("passwd: files\ngroup: files\n"), &[]);
    let etc = served.host().path("etc").display().to_string();
    served.run_before(&format!(
        "cp -a {etc} {etc}.copy; mount -t ramfs -o mode=755 ramfs {etc}; cp -a {etc}.copy/. {etc}"
    ));
    served.launch();
    let pid = served.process().pid().as_raw_nonzero();
    let passwd = format!("/proc/{pid}/root{etc}/passwd");
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    for round in 1000..1050 {
        for (gid, pause) in [(round, round % 4), (round + 1000, 20)] {
            fs::write(&passwd, format!("{LOCAL}twice:x:4000:{gid}:::\n")).expect("write");
            std::thread::sleep(Duration::from_millis(pause));
        }
        let last = format!("twice:x:4000:{}:::", round + 1000);
        wait_until(SOON, "the last one is seen", || names.user("twice") == last);
    }
}

#[test]
fn who_lives_in_another_service_is_found_and_kept_for_a_while() {
    let served = NscdServer::prepared(
        host("passwd: files systemd\ngroup: files systemd\n"),
        &["--positive", "2", "--negative", "1"],
    );
    let mut served = served;
    served.launch();
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    let unknown = "nobody-there";
    assert_eq!(names.user(unknown), "none:0");
    let asked = served.statistic(" of them by other");
    for _ in 0..200 {
        assert_eq!(names.user(unknown), "none:0");
    }
    assert_eq!(served.statistic(" of them by other"), asked, "the absence was cached");
    // Local accounts are unchanged by any answer of the other service.
    assert_eq!(names.user("root"), "root:x:0:0:root:/root:/bin/sh");
    assert_eq!(names.gids_of("alice"), " 900 4294967294");
    let other = served.statistic(" of them by other");
    for _ in 0..200 {
        assert_eq!(names.gids_of("alice"), " 900 4294967294");
    }
    assert_eq!(served.statistic(" of them by other"), other, "its answer was kept");
    // Both are over some day.
    wait_until(SOON, "it is asked again", || {
        names.user(unknown);
        names.gids_of("alice");
        served.statistic(" of them by other") >= other + 2
    });
}

/// The server is killed again and again: programs keep their map, new ones go on without.
#[test]
fn nscd_killed_server_is_replaced_without_loss() {
    let mut served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let mut old = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    let alice = "alice:x:70000:70000:Alice Example,,,:/tmp:/bin/sh";
    assert_eq!(old.user("alice"), alice);
    for round in 0..5 {
        served.process().kill();
        assert_eq!(old.user("alice"), alice, "{round}");
        assert_eq!(old.user("carol").split(':').next(), Some("none"), "{round}");
        let mut fresh = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
        assert_eq!(fresh.user("alice"), alice, "{round}");
        let mut people = people();
        people.passwd.extend(format!("round:x:{}:70000:::\n", 80_000 + round).bytes());
        served.host().publish(&people);
        served.launch();
        // By the map of the server that is, not by its socket.
        let wanted = format!("round:x:{}:70000:::", 80_000 + round);
        wait_until(SOON, "the old program has the new map", || old.user("round") == wanted);
        wait_until(SOON, "and no other", || old.send_request("maps /maps/passwd.") == "1");
    }
}

/// The server is gone, so the time of the maps was not set for more than five minutes. They are not trusted any more,
/// and the name services answer.
#[test]
fn a_map_that_is_out_of_date_is_not_believed() {
    let mut served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    let alice = "alice:x:70000:70000:Alice Example,,,:/tmp:/bin/sh";
    assert_eq!(names.user("alice"), alice);
    assert_eq!(names.gids_of("alice"), " 900 70050 70051 4294967294");
    served.process().kill();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    for map in fs::read_dir(served.host().path("maps")).expect("list the maps") {
        let map = fs::File::options().write(true).open(map.expect("a map").path()).expect("open");
        let time = i64::try_from(now.as_secs()).expect("a time") - 301;
        std::os::unix::fs::FileExt::write_all_at(&map, &time.to_ne_bytes(), 16)
            .expect("set the time");
    }
    let mut people = people();
    people.passwd.extend(b"later:x:70009:70000:::\n");
    served.host().publish(&people);
    wait_until(SOON, "the module answers", || names.user("later") == "later:x:70009:70000:::");
    assert_eq!(names.user("alice"), alice);
    assert!(names.gids_of("alice").contains(" 900 70050 70051"));
    assert_eq!(names.send_request("maps /maps/passwd."), "0");
    // A program that gave the map up uses the socket from now on, and gets the same answers.
    served.launch();
    let answered = served.statistic(" questions answered");
    wait_until(SOON, "the server is asked again", || {
        assert_eq!(names.user("later"), "later:x:70009:70000:::");
        served.statistic(" questions answered") > answered + 1
    });
}

/// The maps' file system is full. The present map stays, and a smaller map replaces it as soon as there is one.
#[test]
fn without_memory_for_a_new_map_the_old_one_stays() {
    if !needs_root() {
        return;
    }
    let host = TestHost::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let mut served = NscdServer::prepared(host, &[]);
    let maps = served.host().path("maps").display().to_string();
    served.run_before(&format!("mount -t tmpfs -o size=3m,mode=700 tmpfs {maps}"));
    served.launch();
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("u1").contains("generation 1:"));
    let mut large = generation(2);
    for i in 0..40_000 {
        large.passwd.extend(format!("large{i}:x:{}:1:::\n", 100_000 + i).bytes());
    }
    served.host().publish(&large);
    wait_until(SOON, "it is told", || {
        served.statistics().contains("passwd: cannot write a map: No space left")
    });
    assert!(names.user("u1").contains("generation 1:"), "the old one is read");
    let mut fresh = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert!(fresh.user("u1").contains("generation 1:"), "and handed out");
    served.host().publish(&generation(3));
    wait_until(SOON, "a smaller one fits", || names.user("u1").contains("generation 3:"));
    wait_until(SOON, "all is well", || !served.statistics().contains("No space"));
}

/// The file system is full of old maps, retained for programs that may read them. They make room as soon as no lookup
/// can use them any more.
#[test]
fn old_maps_make_room_for_new_ones() {
    if !needs_root() {
        return;
    }
    let host = TestHost::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let mut served = NscdServer::prepared(host, &[]);
    let maps = served.host().path("maps").display().to_string();
    served.run_before(&format!("mount -t tmpfs -o size=3m,mode=700 tmpfs {maps}"));
    served.launch();
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("u1").contains("generation 1:"));
    let mut number = 1;
    wait_until(SOON, "there is no room", || {
        number += 1;
        served.host().publish(&generation(number));
        std::thread::sleep(Duration::from_millis(100));
        served.statistics().contains("No space left")
    });
    let last = format!("generation {number}:");
    wait_until(SOON, "the newest is seen", || names.user("u1").contains(&last));
    wait_until(SOON, "all is well", || !served.statistics().contains("No space"));
}

/// A user that a local file has lost must not be served from a map that could not be renewed: programs read the files.
#[test]
fn without_memory_for_a_new_map_changes_of_local_files_are_seen() {
    if !needs_root() {
        return;
    }
    let host = TestHost::in_memory(&generation(1), "passwd: files\ngroup: files\n");
    let mut served = NscdServer::prepared(host, &[]);
    let maps = served.host().path("maps").display().to_string();
    served.run_before(&format!("mount -t tmpfs -o size=3m,mode=700 tmpfs {maps}"));
    served.launch();
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("u1").contains("generation 1:"));
    let mut large = "root:x:0:0:::\n".to_owned();
    for i in 0..40_000 {
        let _ = writeln!(large, "large{i}:x:{}:1:::", 100_000 + i);
    }
    served.rewrite("passwd", &large);
    wait_until(SOON, "it is told", || served.statistics().contains("No space left"));
    assert!(served.statistics().contains("passwd: no map"), "{}", served.statistics());
    wait_until(SOON, "who is gone is gone", || names.user("u1").starts_with("none"));
    assert!(names.user("large7").starts_with("large7:"));
}

/// An unreadable snapshot removes only its own users, and the local ones are served as before.
#[test]
fn without_a_snapshot_that_can_be_read_local_files_are_served() {
    let served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("alice").starts_with("alice:x:70000"));
    let bad = served.host().snapshot_path().with_extension("bad");
    fs::write(&bad, "no snapshot").expect("write");
    fs::rename(&bad, served.host().snapshot_path()).expect("rename it");
    wait_until(SOON, "it is told", || {
        served.statistics().matches("Name services serve its entries").count() == 2
    });
    served.rewrite("passwd", &format!("{LOCAL}fresh:x:1501:1501:::\n"));
    wait_until(SOON, "a new user is seen", || names.user("fresh") == "fresh:x:1501:1501:::");
    assert!(names.user("alice").starts_with("none"), "the module has no snapshot, either");
    served.host().publish(&people());
    wait_until(SOON, "the next one is", || names.user("alice").starts_with("alice:x:70000"));
    wait_until(SOON, "all is well", || !served.statistics().contains("cannot be used"));
}

/// A server without a map directory redirects all clients until it has one; no client waits for it.
#[test]
fn nscd_without_map_directory_clients_never_wait() {
    let mut served = NscdServer::prepared(host(RECOMMENDED_NSSWITCH), &[]);
    let maps = served.host().path("maps");
    let mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&maps, mode).expect("chmod");
    };
    mode(0o755);
    served.launch_only();
    wait_until(SOON, "it listens", || UnixStream::connect(served.socket()).is_ok());
    let (mut names, waits) = LookupProgram::with_strace(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("alice").starts_with("alice:x:70000"));
    assert!(names.group("staff").starts_with("staff:x:70050"));
    assert_eq!(waits.timed_out(), 0);
    assert!(served.process().is_running());
    // The connection is closed before the request, or after it.
    for order in [&["--statistics"][..], &["--invalidate", "passwd"]] {
        for _ in 0..10 {
            let told = served.admin_request(order);
            assert_eq!(told.code, 1, "{told:?}");
            assert!(told.error().contains("[RST-9503]"), "{}", told.error());
        }
    }
    mode(0o700);
    wait_until(SOON, "maps are served", || {
        served.statistics().matches("entries in a map").count() == 2
    });
}

/// In a private container, with the socket shared out of it. The server sees the client's user, but not its process.
#[test]
fn programs_that_are_processes_of_another_namespace_are_answered() {
    if !needs_root() {
        return;
    }
    let served = NscdServer::prepared(host(RECOMMENDED_NSSWITCH), &[]);
    let apart = || {
        let (mut apart, command) = (std::process::Command::new("unshare"), served.command());
        apart.args(["--pid", "--fork", "--kill-child", "--"]);
        apart.arg(command.get_program()).args(command.get_args());
        apart
    };
    let _server = ServerProcess::start(&mut apart(), &served.host().path("log"));
    wait_until(SOON, "both maps are served", || {
        served.statistics().matches("entries in a map").count() == 2
    });
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("alice").starts_with("alice:x:70000"));
    assert_eq!(names.send_request("maps /maps/passwd."), "1");
    assert!(names.user("carol").starts_with("none:0"));
    let second = run(&mut apart());
    let told = "served by a process of another namespace. ";
    assert!(second.error().contains(told), "{}", second.error());
    assert!(second.error().contains("[RST-9505]"), "{}", second.error());
    let nobody = ["--reuid", "65534", "--clear-groups"];
    let mut nobody = LookupProgram::from_command(
        served.host().command("setpriv").args(nobody).arg(c_program("lookup_stdin")),
    );
    assert!(nobody.user("alice").starts_with("alice:x:70000"));
}

/// Connections that send requests and never read delay only their own user.
#[test]
fn who_takes_no_map_is_handed_no_more_and_others_are() {
    if !needs_root() {
        return;
    }
    let served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let script = "import socket, struct, time
def ask():
    s = socket.socket(socket.AF_UNIX); s.connect('/run/nscd/socket')
    s.sendall(struct.pack('iii', 2, 11, 7) + b'passwd\\0')
    return s
asked = [ask() for _ in range(100)]
def handed(s):
    s.settimeout(5)
    data, fds, _, _ = socket.recv_fds(s, 64, 1)
    return len(fds)
peeked = [s.recv(1, socket.MSG_PEEK) for s in asked]
print(sum(1 for data in peeked if data))
print(handed(asked[0]))
del asked
print(handed(ask()))";
    let as_nobody = ["--reuid", "65534", "--clear-groups", "/usr/bin/python3", "-c", script];
    let told = served.host().run("setpriv", &as_nobody);
    assert_eq!(told.text(), "64\n1\n1", "{told:?}");
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("alice").starts_with("alice:x:70000"));
    assert_eq!(names.send_request("maps /maps/passwd."), "1");
}

/// A user's connections request a large group and read nothing. They cost the server no memory for each, and other
/// users get their answers.
#[test]
fn who_reads_no_answers_is_told_few_large_ones_and_others_are() {
    if !needs_root() {
        return;
    }
    let mut people = people();
    let members: Vec<_> = (0..20_000).map(|number| format!("member{number}")).collect();
    people.group.extend(format!("large:x:70060:{}\n", members.join(",")).bytes());
    let host = host(RECOMMENDED_NSSWITCH);
    host.publish(&people);
    let served = NscdServer::start(host);
    let script = "import socket, struct, time
def ask():
    s = socket.socket(socket.AF_UNIX); s.connect('/run/nscd/socket'); s.settimeout(60)
    s.sendall(struct.pack('iii', 2, 2, 6) + b'large\\0')
    return s
asked = [ask() for _ in range(300)]
found = [struct.unpack('ii', s.recv(8, socket.MSG_PEEK))[1] for s in asked]
print(0 < found.count(1) <= 64, found.count(1) + found.count(-1))
del asked
# Until the server has seen that they are closed it sends this user's questions away.
for _ in range(600):
    s, data = ask(), b''
    while part := s.recv(1 << 20): data += part
    if len(data) > 24: break
    time.sleep(0.1)
print(struct.unpack('iiiiii', data[:24])[5], len(data))";
    let as_nobody = ["--reuid", "65534", "--clear-groups", "/usr/bin/python3", "-c", script];
    let told = served.host().run("setpriv", &as_nobody);
    // Names of 7 to 11 bytes and their NULs, a length for each, the group's own name and password.
    let bytes = 24 + 20_000 * 4 + 6 + 2 + members.iter().map(|name| name.len() + 1).sum::<usize>();
    assert_eq!(told.text(), format!("True 300\n20000 {bytes}"), "{told:?}");
    for program in [c_program("lookup_stdin"), musl_program("lookup_stdin")] {
        let mut names = LookupProgram::on(served.host(), &program);
        assert!(names.group("large").ends_with(":member19998:member19999"));
    }
}

/// The admin request waits for builds of its own table. If it counted builds of the other table, it would wait for a
/// map that is never built, and fail after a minute.
#[test]
fn nscd_invalidation_beside_group_map_succeeds() {
    let served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let mut large = LOCAL_GROUPS.to_owned();
    for i in 0..100_000 {
        let _ = writeln!(large, "large{i}:x:{}:local,alice", 100_000 + i);
    }
    served.rewrite("group", &large);
    // On a quiet machine the map of groups is being made by now.
    std::thread::sleep(Duration::from_millis(50));
    let told = served.admin_request(&["-i", "passwd"]);
    assert_eq!(told.code, 0, "{told:?}");
}

/// If the server is stopped or its clock is moved, programs go on with the name services.
#[test]
fn nscd_stopped_server_costs_one_wait() {
    let mut served = NscdServer::start(host("passwd: files\ngroup: files\n"));
    let (mut names, waits) = LookupProgram::with_strace(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("root").starts_with("root:"));
    served.process().freeze();
    // Entries of a map are answered as before.
    for _ in 0..1000 {
        assert!(names.user("root").starts_with("root:"));
    }
    assert_eq!(waits.timed_out(), 0);
    // Missing entries: the client waits for 5 s, once, and asks the name services then.
    assert!(names.user("carol").starts_with("none"));
    assert_eq!(waits.timed_out(), 1);
    served.process().thaw();
    wait_until(SOON, "it is asked again", || {
        let before = served.statistic(" questions answered");
        names.user("carol");
        served.statistic(" questions answered") > before + 1
    });
}

#[test]
fn strangers_that_say_nothing_change_nothing_for_others() {
    let served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let strangers: Vec<_> =
        (0..1500).map(|_| UnixStream::connect(served.socket()).expect("connect")).collect();
    for _ in 0..50 {
        let (mut names, waits) =
            LookupProgram::with_strace(served.host(), &c_program("lookup_stdin"));
        assert!(names.user("alice").starts_with("alice:x:70000"));
        assert!(names.user("carol").starts_with("none:0"));
        assert_eq!(waits.timed_out(), 0);
    }
    for mut stranger in strangers {
        stranger.set_read_timeout(Some(SOON)).expect("set a deadline");
        assert_eq!(stranger.read(&mut [0; 8]).expect("the end"), 0);
    }
}

/// Maps that were replaced a moment ago have a descriptor each. Strangers do not keep the descriptors that many changes
/// need.
#[test]
fn strangers_do_not_hold_the_descriptors_of_maps() {
    let mut served = NscdServer::prepared(host("passwd: files\ngroup: files\n"), &[]);
    served.run_before("ulimit -n 900");
    served.launch();
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    let mut strangers = Vec::new();
    for number in 0..100 {
        if number % 10 == 0 {
            strangers.clear();
            let stranger = || UnixStream::connect(served.socket()).expect("connect");
            strangers.extend((0..800).map(|_| stranger()));
        }
        let path = served.host().path("etc/passwd.new");
        fs::write(&path, format!("{LOCAL}mark:x:4000:{number}:::\n")).expect("write");
        fs::rename(&path, served.host().path("etc/passwd")).expect("rename it");
        let wanted = format!("mark:x:4000:{number}:::");
        wait_until(SOON, "the change is seen", || names.user_by_uid(4000) == wanted);
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(strangers);
    let figures = served.statistics();
    let log = served.process().log();
    assert!(!figures.contains("open files") && !log.contains("open files"), "{figures}{log}");
    assert_eq!(figures.matches("entries in a map").count(), 2, "{figures}");
}

/// Requests that no client sends: each is answered by the end of its connection, and the server lives.
#[test]
fn nonsense_on_the_socket_is_the_end_of_its_connection_only() {
    let mut served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let integers = |numbers: &[i32]| -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    };
    for request in [
        integers(&[2, 0, -1]),
        integers(&[2, 0, i32::MAX]),
        integers(&[2, 0, 0]),
        integers(&[1, 0, 4]),
        integers(&[2, 99, 4]),
        [integers(&[2, 0, 4]), b"abcd".to_vec()].concat(),
        [integers(&[2, 1, 4]), b"a\0b\0".to_vec()].concat(),
        vec![0xff; 5000],
    ] {
        let mut stranger = UnixStream::connect(served.socket()).expect("connect");
        let _ = stranger.write_all(&request);
        stranger.set_read_timeout(Some(SOON)).expect("set a deadline");
        let mut said = Vec::new();
        // Closed, or reset if more was sent than is read.
        let end = stranger.read_to_end(&mut said);
        assert!(said.is_empty() || end.is_err(), "{request:?}: {said:?}");
    }
    assert!(served.process().is_running());
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("alice").starts_with("alice:"));
}

#[test]
fn the_orders_of_nscd_are_roots_alone() {
    if !needs_root() {
        return;
    }
    let mut served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let made = served.statistic(" made since");
    let nscd = find_tool("nscd", "nscd");
    let told = served.host().run(&nscd, &["--invalidate", "passwd"]);
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(served.admin_request(&["--invalidate", "group"]).code, 0);
    assert!(served.statistic(" made since") > made, "{}", served.statistics());
    let as_nobody = |order: &str| {
        let roster = roster_program().display().to_string();
        let script = format!("setpriv --reuid 65534 --clear-groups {roster} nscd {order}");
        served.host().shell(&script)
    };
    assert_ne!(as_nobody("--statistics").code, 0);
    assert_ne!(as_nobody("--invalidate passwd").code, 0);
    let told = as_nobody("--shutdown");
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.error().contains("[RST-9502]"), "{}", told.error());
    assert!(!served.statistics().is_empty(), "nobody ended it");
    let told = served.admin_request(&["--invalidate", "hosts"]);
    assert_eq!(told.code, 0, "nothing is kept of nscd's other tables: {told:?}");
    assert_eq!(served.admin_request(&["--invalidate", "users"]).code, 2);
    assert_eq!(served.host().run(&nscd, &["--shutdown"]).code, 0);
    wait_until(SOON, "it has ended", || !served.process().is_running());
}

#[test]
fn a_socket_that_is_another_programs_stays_that_programs() {
    let served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let second = run(&mut served.command());
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.error().contains("served by roster, process "), "{}", second.error());
    assert!(!served.statistics().is_empty());
}

/// Programs that close all descriptors, also those of glibc's client.
#[test]
fn a_program_that_closes_all_descriptors_is_answered() {
    let served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    for _ in 0..3 {
        assert!(names.user("alice").starts_with("alice:x:70000"));
        names.send_request("close");
        assert!(names.group("staff").starts_with("staff:x:70050"));
        assert!(names.send_request("fork i 616c696365").contains(" 70050 70051"));
    }
}

/// Programs cannot write the map that they receive, not even by another way to the same file.
#[test]
fn a_map_is_nobody_elses_to_write() {
    if !needs_root() {
        return;
    }
    let served = NscdServer::start(host(RECOMMENDED_NSSWITCH));
    let script = "import socket, struct, os, mmap
s = socket.socket(socket.AF_UNIX); s.connect('/run/nscd/socket')
s.sendall(struct.pack('iii', 2, 11, 7) + b'passwd\\0')
data, fds, _, _ = socket.recv_fds(s, 64, 1)
fd = fds[0]
for what in (lambda: os.write(fd, b'x'), lambda: os.ftruncate(fd, 0),
             lambda: mmap.mmap(fd, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE),
             lambda: os.open(f'/proc/self/fd/{fd}', os.O_RDWR), lambda: os.fchmod(fd, 0o666)):
    try: what(); print('written')
    except OSError as error: print('refused')
print(len(mmap.mmap(fd, 4096, prot=mmap.PROT_READ)))";
    let as_nobody = ["--reuid", "65534", "--clear-groups", "/usr/bin/python3", "-c", script];
    let told = served.host().run("setpriv", &as_nobody);
    assert_eq!(told.text(), "refused\nrefused\nrefused\nrefused\nrefused\n4096");
}

/// nss-systemd synthesizes `nobody` if no file has it, and the users of units. They exist although no map had them when
/// it was made. Each costs a system call once, and they do not disappear.
#[test]
fn nscd_systemd_user_is_in_map_soon() {
    let local = Corpus::new("", b"root:x:0:0:root:/root:/bin/sh\n", b"root:x:0:\n", b"");
    let host = TestHost::in_memory(&local, "passwd: files systemd\ngroup: files systemd\n");
    let plain = LookupProgram::on(&host, &c_program("lookup_stdin")).user("nobody");
    assert!(plain.starts_with("nobody:"), "{plain}: install the Debian package libnss-systemd");
    let served = NscdServer::start(host);
    for program in [c_program("lookup_stdin"), musl_program("lookup_stdin")] {
        let mut names = LookupProgram::on(served.host(), &program);
        assert_eq!(names.user("nobody"), plain, "{}", program.display());
        assert_eq!(names.user_by_uid(65_534), plain, "{}", program.display());
        assert!(names.group("nogroup").starts_with("nogroup:"), "{}", program.display());
    }
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    names.user("nobody");
    let answered = served.statistic(" questions answered");
    for _ in 0..100 {
        assert_eq!(names.user("nobody"), plain);
    }
    // The statistics themselves are one request.
    assert!(served.statistic(" questions answered") <= answered + 1, "{}", served.statistics());
}

/// nscd removes the server's socket when it ends. The server that received the socket reports this.
#[test]
fn a_socket_that_was_taken_away_is_not_served() {
    let served = NscdServer::prepared(host(RECOMMENDED_NSSWITCH), &[]);
    let listener = UnixListener::bind(served.socket()).expect("listen");
    let start = |listener: &UnixListener| {
        let input = OwnedFd::from(listener.try_clone().expect("copy the listener"));
        let mut command = served.command();
        command.stdin(input).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().expect("start the server")
    };
    let mut right = start(&listener);
    wait_until(SOON, "it is served", || served.statistics().contains("entries in a map"));
    right.kill().and_then(|()| right.wait()).expect("end it");
    fs::remove_file(served.socket()).expect("remove the socket");
    let told = start(&listener).wait_with_output().expect("wait for it");
    let error = String::from_utf8_lossy(&told.stderr);
    assert_eq!(told.status.code(), Some(1), "{error}");
    assert!(error.contains("[RST-9506]"), "{error}");
}

/// Descriptors that make close(2) wait for an hour. They come in connections from before the server can refuse them,
/// and in later ones. No client waits for descriptors of a stranger.
#[test]
fn what_strangers_send_is_closed_without_anybody_waiting() {
    if !needs_root() {
        return;
    }
    let served = NscdServer::prepared(host(RECOMMENDED_NSSWITCH), &[]);
    let listener = UnixListener::bind(served.socket()).expect("listen");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/so_linger_fds.py");
    let stranger = || {
        let mut stranger = std::process::Command::new("python3");
        stranger.arg(script).arg(served.socket()).arg("30");
        stranger.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut stranger = stranger.spawn().expect("start a stranger");
        stranger.stdout.take().expect("its output").read_exact(&mut [0]).expect("wait for it");
        stranger
    };
    let mut strangers = vec![stranger()];
    let mut command = served.command();
    command.stdin(OwnedFd::from(listener.try_clone().expect("copy the listener")));
    let mut server = command.spawn().expect("start the server");
    for _ in 0..2 {
        wait_until(SOON, "it serves", || served.statistics().contains("entries in a map"));
        let (mut names, waits) =
            LookupProgram::with_strace(served.host(), &c_program("lookup_stdin"));
        assert!(names.user("local").starts_with("local:x:1500:"));
        assert_eq!(names.user("nobody-has-this-name"), "none:0");
        assert_eq!(waits.timed_out(), 0);
        strangers.push(stranger());
    }
    for mut stranger in strangers {
        drop(stranger.stdin.take());
        stranger.wait().expect("wait for a stranger");
    }
    server.kill().and_then(|()| server.wait()).expect("end the server");
}

/// A line that names no service, and one with a missing snapshot: as without a server.
#[test]
fn lines_that_find_little_find_the_same_through_the_server() {
    for lines in
        ["passwd:\ngroup: files\n", "passwd: files\ngroup: roster [NOTFOUND=return] files\n"]
    {
        let host = host(lines);
        fs::remove_file(host.snapshot_path()).expect("remove the snapshot");
        let ask = |host: &TestHost| {
            let mut names = LookupProgram::on(host, &c_program("lookup_stdin"));
            let found = |answer: String| Some(answer).filter(|said| !said.starts_with("none"));
            let users = ["root", "alice"].map(|name| found(names.user(name)));
            let groups = ["wheel", "staff"].map(|name| found(names.group(name)));
            (users, groups, names.gids_of("alice"))
        };
        let plain = ask(&host);
        let served = NscdServer::start(host);
        assert_eq!(ask(served.host()), plain, "{lines}");
        assert!(served.statistic(" maps handed out") >= 2, "{lines}");
    }
}

/// Users, groups, and the groups of users in their order, by the C library alone and through the server.
#[test]
fn lines_are_read_and_services_joined_as_the_c_library_does() {
    let mut people = people();
    people.group.extend(b"wheel:x:900:alice\nthird:x:70052:alice\nfourth:x:70053:alice\n");
    for lines in [
        "passwd: files # roster\ngroup: files # roster\n",
        "passwd files roster\n group roster files\n",
        "passwd : files#roster\ngroup: files [SUCCESS=merge] roster\n",
        "#passwd: roster\npasswd: files roster\ngroup: files\ninitgroups: roster [SUCCESS=continue] files\n",
        RECOMMENDED_NSSWITCH,
    ] {
        let host = host(lines);
        fs::write(host.path("etc/group"), format!("{LOCAL_GROUPS}fourth:x:70053:alice\n"))
            .expect("write the groups");
        host.publish(&people);
        let ask = |host: &TestHost| {
            let mut names = LookupProgram::on(host, &c_program("lookup_stdin"));
            let found = |answer: String| Some(answer).filter(|said| !said.starts_with("none"));
            let users = ["root", "alice", "nobody"].map(|name| found(names.user(name)));
            let groups = ["wheel", "staff", "fourth"].map(|name| found(names.group(name)));
            let lists = ["alice", "bob", "local", "root"].map(|name| names.gids_of(name));
            (users, groups, lists)
        };
        let plain = ask(&host);
        let served = NscdServer::start(host);
        assert_eq!(ask(served.host()), plain, "{lines}");
        assert!(served.statistic(" maps handed out") >= 2, "{lines}");
    }
}
