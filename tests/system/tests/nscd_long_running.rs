// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that read the maps of `roster nscd` and live long: through a thousand maps, in many threads, with their
//! descriptors closed, and while the server stands still. Their answers are whole and never go back, and no mapping is
//! left behind.

use roster_system_tests::artifacts::musl_program;
use roster_system_tests::corpus::Corpus;
use roster_system_tests::nscd::{PollRecord, SNAPSHOT_ONLY, SOON, generation, hexadecimal};
use roster_system_tests::test_host::run;
use roster_system_tests::{
    LookupProgram, NscdServer, TestHost, c_program, needs_root, roster_program, wait_until,
};
use std::fs;
use std::io::Write;
use std::process::Stdio;

/// A number from the environment, for a longer run than the daily one.
fn number_of(variable: &str, usual: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number")),
        Err(_) => usual,
    }
}

/// A program, the map that it began with, and its last answer.
struct Client {
    names: LookupProgram,
    born: usize,
    users_seen: usize,
    groups_seen: usize,
    mappings: u32,
}

impl Client {
    fn start(host: &TestHost, born: usize) -> Self {
        Self::from_program(LookupProgram::on(host, &c_program("lookup_stdin")), born)
    }

    fn watched(host: &TestHost, born: usize) -> (Self, PollRecord) {
        let (names, waits) = LookupProgram::with_strace(host, &c_program("lookup_stdin"));
        (Self::from_program(names, born), waits)
    }

    fn from_program(names: LookupProgram, born: usize) -> Self {
        let mut client = Self { names, born, users_seen: 0, groups_seen: 0, mappings: 0 };
        client.look();
        client.mappings = client.mappings();
        client
    }

    fn mappings(&mut self) -> u32 {
        self.names.send_request("maps -").parse().expect("a number")
    }

    /// Checks that all answers are of one generation, and not of an older one than before.
    fn look(&mut self) {
        let born = self.born;
        let user = self.names.user("u1");
        let seen: usize = user
            .split(":generation ")
            .nth(1)
            .and_then(|rest| rest.split(':').next())
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("client of {born}: {user}"));
        let gid = 1_000_000 + seen;
        assert_eq!(user, format!("u1:x:1001:{gid}:generation {seen}:/home/{seen}:/bin/sh"));
        assert!(seen >= self.users_seen, "client of {born}: {seen} after {}", self.users_seen);
        self.users_seen = seen;
        let group = self.names.group("g1");
        let seen: usize = group
            .split(':')
            .nth(1)
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("client of {born}: {group}"));
        let members = (0..50).map(|i| format!(":m{seen}.{i}"));
        assert_eq!(group, format!("g1:{seen}:5001{}", members.collect::<String>()));
        assert!(seen >= self.groups_seen, "client of {born}: {seen} after {}", self.groups_seen);
        self.groups_seen = seen;
        let gids = (0..10).map(|i| format!(" {}", 10_000_000 + seen * 100 + i));
        let groups = self.names.gids_of("u1");
        // The list may be of a later generation than the group was.
        if groups != format!("{} 4294967294", gids.collect::<String>()) {
            let first: usize =
                groups.split(' ').nth(1).and_then(|gid| gid.parse().ok()).unwrap_or(0);
            let later = first.saturating_sub(10_000_000) / 100;
            assert!(later > seen && groups.split(' ').count() == 12, "client of {born}: {groups}");
            self.groups_seen = later;
        }
    }
}

/// All through the C library's client, which has one lock for all of them.
#[test]
fn nscd_sixty_four_threads_see_no_error() {
    let host = TestHost::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let served = NscdServer::start(host);
    let host = served.host();
    let mut threads = host.command("nice");
    threads.args(["-n", "19"]).arg(c_program("threads")).args(["180", "0", "64"]);
    let mut threads = threads
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the threads");
    let last = 100;
    let mut client = Client::start(host, 1);
    for number in 2..=last {
        host.publish(&generation(number));
    }
    wait_until(SOON, "the newest generation is seen", || {
        client.look();
        client.users_seen == last && client.groups_seen == last
    });
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

/// Every generation is seen, by clients that started at many different generations. In the end none of them has more
/// mappings than at its start.
#[test]
fn nscd_clients_keep_one_map_through_switches() {
    let switches = number_of("ROSTER_SWITCHES", 1000);
    let host = TestHost::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let served = NscdServer::start(host);
    let host = served.host();
    let mut clients = vec![Client::start(host, 1)];
    for number in 2..=switches {
        host.publish(&generation(number));
        // The oldest client sees every generation: so there is a map of each.
        wait_until(SOON, "the generation is seen", || {
            clients[0].look();
            clients[0].users_seen == number && clients[0].groups_seen == number
        });
        let some = number % clients.len();
        clients[some].look();
        if number % (switches / 100).max(1) == 0 {
            clients.push(Client::start(host, number));
        }
    }
    for client in &mut clients {
        wait_until(SOON, "the newest generation is seen", || {
            client.look();
            client.users_seen == switches && client.groups_seen == switches
        });
        let (before, after) = (client.mappings, client.mappings());
        // The C library's own memory may have grown by a piece or two.
        assert!(after <= before + 2, "client of {}: {before} mappings, then {after}", client.born);
        assert_eq!(
            client.names.send_request("maps /maps/passwd."),
            "1",
            "client of {}",
            client.born
        );
        assert_eq!(
            client.names.send_request("maps /maps/group."),
            "1",
            "client of {}",
            client.born
        );
    }
    assert!(clients.len() > 20 && served.statistic(" made since") >= switches as u64 - 1);
    let used = || -> u64 {
        let files = fs::read_dir(host.path("maps")).expect("list the maps");
        let files = files.filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
        files.map(|file| std::os::unix::fs::MetadataExt::blocks(&file) * 512).sum()
    };
    // The two that are served, eight before each, and a page of others.
    wait_until(SOON, "old maps give their memory back", || used() < 16 << 20);
}

/// A program that closes descriptors of others between any two lookups retains its mappings.
#[test]
fn descriptors_that_a_program_closes_at_any_time_cost_it_no_answer() {
    let host = TestHost::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let served = NscdServer::start(host);
    let mut client = Client::start(served.host(), 1);
    for number in 2..40 {
        served.host().publish(&generation(number));
        wait_until(SOON, "the generation is seen", || {
            client.names.send_request("close");
            client.look();
            client.names.send_request("close");
            let child = client.names.send_request("fork u 7531");
            assert!(child.contains(&hexadecimal(b"generation ")), "{child}");
            client.users_seen == number && client.groups_seen == number
        });
    }
    let (before, after) = (client.mappings, client.mappings());
    assert!(after <= before + 2, "{before} mappings at the start, {after} at the end");
    assert_eq!(client.names.send_request("maps /maps/passwd."), "1");
}

/// The server stands still, and the clock of a program moves by five minutes, so the time in the map is that much
/// older. The program waits for the server once a table, then uses its name services. When the server goes on, the
/// program uses it again.
#[test]
fn nscd_map_five_minutes_old_is_not_believed() {
    let host = TestHost::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let mut served = NscdServer::start(host);
    let (mut client, waits) = Client::watched(served.host(), 1);
    served.process().freeze();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    let time = i64::try_from(now.as_secs()).expect("a time") - 301;
    for map in fs::read_dir(served.host().path("maps")).expect("list the maps") {
        let map = fs::File::options().write(true).open(map.expect("a map").path()).expect("open");
        std::os::unix::fs::FileExt::write_all_at(&map, &time.to_ne_bytes(), 16)
            .expect("set the time");
    }
    // The module has seen it; the server has not.
    served.host().publish(&generation(2));
    assert!(client.names.user("u1").contains(":generation 2:"), "by the module");
    let waited = waits.timed_out();
    assert!((1..=2).contains(&waited), "for a map, and for an answer: {waited}");
    for _ in 0..20 {
        assert!(client.names.user("u2").contains(":generation 2:"));
    }
    assert_eq!(waits.timed_out(), waited, "nobody waits twice");
    served.process().thaw();
    wait_until(SOON, "the server knows the new snapshot", || {
        served.statistics().matches("2 made since").count() == 2
    });
    let mut fresh = Client::start(served.host(), 2);
    assert_eq!(fresh.names.send_request("maps /maps/passwd."), "1");
    client.look();
    fresh.look();
}

/// A table that is too large for clients. The module serves its users, the server reports this, and no program waits.
#[test]
fn nscd_table_above_two_gib_gets_none() {
    let host = TestHost::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    // Reserves so much space for other data that nothing else fits.
    let mut served = NscdServer::prepared(host, &["--cache-kib", "2097152"]);
    served.launch_only();
    let told = "bytes, and clients read at most 2 GiB";
    wait_until(SOON, "it is told", || served.statistics().matches(told).count() == 2);
    let figures = served.statistics();
    for table in ["passwd", "group"] {
        assert!(figures.contains(&format!("{table}: no map; programs ask")), "{figures}");
    }
    let (mut client, waits) = Client::watched(served.host(), 1);
    assert_eq!(waits.timed_out(), 0);
    assert_eq!(client.names.send_request("maps /maps/"), "0");
    served.host().publish(&generation(2));
    wait_until(SOON, "the module shows what is new", || {
        client.look();
        client.users_seen == 2 && client.groups_seen == 2
    });
    // The statistics name the program that was redirected.
    let sent = "referred to the name services: lookup_stdin (uid ";
    assert!(served.statistics().contains(sent), "{}", served.statistics());
    // It takes no memory, and is not built again and again.
    assert_eq!(fs::read_dir(served.host().path("maps")).expect("list the maps").count(), 0);
}

/// A record of a user in a directory of nss-systemd that the server watches. The earlier answer is cached for an hour,
/// but expires at once when the record comes or goes.
#[test]
fn records_in_the_folders_of_nss_systemd_come_and_go_at_once() {
    if !needs_root() {
        return;
    }
    let local = Corpus::new("", b"root:x:0:0:root:/root:/bin/sh\n", b"root:x:0:\n", b"");
    let host = TestHost::in_memory(&local, "passwd: files systemd\ngroup: files systemd\n");
    let folder = host.path("userdb");
    fs::create_dir(&folder).expect("create the folder");
    let mut served = NscdServer::prepared(host, &["--positive", "3600", "--negative", "3600"]);
    // Seen by the server and its helper.
    let mount = "mkdir -p /run/userdb; mount --bind";
    served.run_before(&format!(
        "mount -t tmpfs -o mode=755 tmpfs /run/systemd 2>/dev/null || true; \
                           {mount} {} /run/userdb",
        folder.display()
    ));
    served.launch();
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    let record = |name: &str, uid: u32| {
        let text = format!(
            "{{\"userName\":\"{name}\",\"uid\":{uid},\"gid\":{uid},\"homeDirectory\":\"/home/{name}\",\
              \"shell\":\"/bin/sh\",\"disposition\":\"regular\"}}"
        );
        let fresh = folder.join("fresh");
        fs::write(&fresh, text).expect("write a record");
        fs::rename(&fresh, folder.join(format!("{name}.user"))).expect("rename it");
    };
    let is_kept = |names: &mut LookupProgram| {
        let helped = served.statistic(" of them by other");
        names.user("homed");
        names.user("homed");
        served.statistic(" of them by other") == helped
    };
    for round in 0..2 {
        assert_eq!(names.user("homed"), "none:0", "{round}");
        // After each change of other services' data, answers are not cached for 3 seconds.
        wait_until(SOON, "the absence is cached", || is_kept(&mut names));
        let uid = 60_100 + round;
        record("homed", uid);
        let wanted = format!("homed:x:{uid}:{uid}:homed:/home/homed:/bin/sh");
        wait_until(SOON, "the record is known", || names.user("homed") == wanted);
        wait_until(SOON, "it is kept", || is_kept(&mut names));
        assert_eq!(names.user("homed"), wanted);
        fs::remove_file(folder.join("homed.user")).expect("remove the record");
        wait_until(SOON, "it is gone", || names.user("homed") == "none:0");
    }
    assert!(names.user("root").starts_with("root:x:0:0:"));
}

/// Started by root, the server runs as another user, and rejects admin requests of that user. It also takes over the
/// files of an earlier server that stayed root.
#[test]
fn a_server_that_becomes_another_user_serves_and_takes_over() {
    if !needs_root() {
        return;
    }
    let passwd = "root:x:0:0:root:/root:/bin/sh\nroster-nscd:x:906:901:::\nroster-nscd-helper:x:907:907:::\n\
                  local:x:1500:1500:::\n";
    let local = Corpus::new("", passwd.as_bytes(), b"root:x:0:\nroster:x:901:\n", b"");
    let host = TestHost::in_memory(&local, "passwd: files systemd\ngroup: files systemd\n");
    let mut served = NscdServer::start(host);
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert_eq!(names.user("local"), "local:x:1500:1500:::");
    served.process().kill();
    let served = served.restart_with(&["--user", "roster-nscd"]);
    // The map of the one before is its own now: its readers come to the new one.
    served.rewrite("passwd", &format!("{passwd}later:x:1501:1500:::\n"));
    wait_until(SOON, "the next server's map is read", || {
        names.user("later") == "later:x:1501:1500:::"
            && names.send_request("maps /maps/passwd.") == "1"
    });
    for map in fs::read_dir(served.host().path("maps")).expect("list the maps") {
        let map = map.expect("a map").metadata().expect("its metadata");
        let mode = std::os::unix::fs::PermissionsExt::mode(&map.permissions()) & 0o777;
        assert_eq!((std::os::unix::fs::MetadataExt::uid(&map), mode), (906, 0o600));
    }
    assert!(names.user("nobody").starts_with("nobody:"), "the helper works");
    assert!(served.statistics().contains("[RST-2058]"), "{}", served.statistics());
    let roster = roster_program().display().to_string();
    for uid in [906, 65_534] {
        let order = format!("setpriv --reuid {uid} --clear-groups {roster} nscd --statistics");
        assert_ne!(served.host().shell(&order).code, 0, "{uid}");
        let order = format!("setpriv --reuid {uid} --clear-groups {roster} nscd --shutdown");
        let _ = served.host().shell(&order);
    }
    assert_eq!(served.admin_request(&["--invalidate", "passwd"]).code, 0);
    for (user, said) in [("nobody-there", "[RST-9513]"), ("root", "[RST-9515]")] {
        let mut command = served.host().command(roster_program());
        command.args(["nscd", "--socket", "/run/nscd/other", "--user", user, "--maps"]);
        let told = run(command.arg(served.host().path("other")));
        assert_eq!(told.code, 1, "{user}");
        assert!(told.error().contains(said), "{}", told.error());
    }
}

/// Programs on musl have no map and send requests over the socket: `roster nscd -g` names them.
#[test]
fn who_asks_over_the_socket_what_a_map_has_is_told_by_name() {
    let host = TestHost::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let served = NscdServer::start(host);
    let mut with_map = Client::start(served.host(), 1);
    with_map.look();
    assert!(!served.statistics().contains("socket lookups of entries"), "{}", served.statistics());
    // musl reads /etc/passwd and /etc/group first, and always requests a user's groups from the server.
    let mut musl = LookupProgram::on(served.host(), &musl_program("lookup_stdin"));
    assert!(musl.gids_of("u1").contains(" 10000100 10000101 "));
    let told = "socket lookups of entries that a map has: lookup_stdin-mu (uid ";
    assert!(served.statistics().contains(told), "{}", served.statistics());
    assert!(!served.statistics().contains("with a map"), "{}", served.statistics());
}

/// A program that serves a name service may look a user up. The helper would wait for it in vain meanwhile. The server
/// knows such a program by its name, and the program continues without the helper.
#[test]
fn nscd_name_service_program_never_waits_for_itself() {
    let local = Corpus::new("", b"root:x:0:0:root:/root:/bin/sh\n", b"root:x:0:\n", b"");
    let served = NscdServer::start(TestHost::in_memory(
        &local,
        "passwd: files systemd\ngroup: files systemd\n",
    ));
    let provider = served.host().path("systemd-homed");
    fs::copy(c_program("lookup_stdin"), &provider).expect("copy a program");
    let helped = served.statistic(" of them by other");
    let mut names = LookupProgram::on(served.host(), &provider);
    assert_eq!(names.user("nobody-there"), "none:0");
    assert!(names.user("nobody").starts_with("nobody:"), "by its own name services");
    assert!(names.user("root").starts_with("root:x:0:0:"));
    assert_eq!(served.statistic(" of them by other"), helped, "{}", served.statistics());
    let mut others = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert_eq!(others.user("nobody-there"), "none:0");
    assert!(served.statistic(" of them by other") > helped);
}
