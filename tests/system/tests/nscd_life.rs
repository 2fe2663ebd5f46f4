//! Programs that read the maps of `roster nscd` and live long: through a thousand maps, in many threads, with
//! their descriptors closed, and while the server stands still. What they are told is whole, goes never
//! back, and leaves nothing behind.

use roster_system_tests::artifacts::musl_program;
use roster_system_tests::corpus::Corpus;
use roster_system_tests::host::run;
use roster_system_tests::nscd::{SNAPSHOT_ONLY, SOON, Waits, generation, hexadecimal};
use roster_system_tests::{
    Host, Names, Responder, c_program, needs_root, roster_program, wait_until,
};
use std::fs;
use std::io::Write;
use std::process::Stdio;

/// A number of the environment, for a longer run than there is time for every day.
fn number_of(variable: &str, usual: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number")),
        Err(_) => usual,
    }
}

/// A program, the map that it began with, and what it was told last.
struct Client {
    names: Names,
    born: usize,
    users_seen: usize,
    groups_seen: usize,
    mappings: u32,
}

impl Client {
    fn start(host: &Host, born: usize) -> Self {
        Self::of(Names::on(host, &c_program("names")), born)
    }

    fn watched(host: &Host, born: usize) -> (Self, Waits) {
        let (names, waits) = Names::watched(host, &c_program("names"));
        (Self::of(names, born), waits)
    }

    fn of(names: Names, born: usize) -> Self {
        let mut client = Self { names, born, users_seen: 0, groups_seen: 0, mappings: 0 };
        client.look();
        client.mappings = client.mappings();
        client
    }

    fn mappings(&mut self) -> u32 {
        self.names.ask("maps -").parse().expect("a number")
    }

    /// Everything that it is told is of one generation, and not of an older one than before.
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
        let groups = self.names.groups_of("u1");
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
fn sixty_four_threads_of_one_program_are_told_nothing_wrong_while_maps_are_replaced() {
    let host = Host::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let served = Responder::start(host);
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

/// Every generation is seen, by clients that began at every one of many. In the end none of them has more
/// mappings than at its start.
#[test]
fn clients_of_every_age_live_through_all_switches_and_keep_one_map_of_each_table() {
    let switches = number_of("ROSTER_SWITCHES", 1000);
    let host = Host::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let served = Responder::start(host);
    let host = served.host();
    let mut clients = vec![Client::start(host, 1)];
    for number in 2..=switches {
        host.publish(&generation(number));
        // The oldest sees every one: so there is a map of each.
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
        assert_eq!(client.names.ask("maps /maps/passwd."), "1", "client of {}", client.born);
        assert_eq!(client.names.ask("maps /maps/group."), "1", "client of {}", client.born);
    }
    assert!(clients.len() > 20 && served.figure(" made since") >= switches as u64 - 1);
    let used = || -> u64 {
        let files = fs::read_dir(host.path("maps")).expect("list the maps");
        let files = files.filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
        files.map(|file| std::os::unix::fs::MetadataExt::blocks(&file) * 512).sum()
    };
    // The two that are served, eight before each, and a page of others.
    wait_until(SOON, "old maps give their memory back", || used() < 16 << 20);
}

/// A program that closes what it did not open, between any two look-ups, keeps what it was mapped.
#[test]
fn descriptors_that_a_program_closes_at_any_time_cost_it_no_answer() {
    let host = Host::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let served = Responder::start(host);
    let mut client = Client::start(served.host(), 1);
    for number in 2..40 {
        served.host().publish(&generation(number));
        wait_until(SOON, "the generation is seen", || {
            client.names.ask("close");
            client.look();
            client.names.ask("close");
            let child = client.names.ask("fork u 7531");
            assert!(child.contains(&hexadecimal(b"generation ")), "{child}");
            client.users_seen == number && client.groups_seen == number
        });
    }
    let (before, after) = (client.mappings, client.mappings());
    assert!(after <= before + 2, "{before} mappings at the start, {after} at the end");
    assert_eq!(client.names.ask("maps /maps/passwd."), "1");
}

/// The server stands still, and for a program five minutes have passed since it was seen: the time in the map is
/// that much older. The program waits for it once a table, then asks its name services; and when the
/// server goes on, its programs do so with it.
#[test]
fn nscd_map_five_minutes_old_is_not_believed() {
    let host = Host::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let mut served = Responder::start(host);
    let (mut client, waits) = Client::watched(served.host(), 1);
    served.process().freeze();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    let time = i64::try_from(now.as_secs()).expect("a time") - 301;
    for map in fs::read_dir(served.host().path("maps")).expect("list the maps") {
        let map = fs::File::options().write(true).open(map.expect("a map").path()).expect("open");
        std::os::unix::fs::FileExt::write_all_at(&map, &time.to_ne_bytes(), 16)
            .expect("set the time");
    }
    // What the server has not seen: the module has.
    served.host().publish(&generation(2));
    assert!(client.names.user("u1").contains(":generation 2:"), "by the module");
    let waited = waits.given_up();
    assert!((1..=2).contains(&waited), "for a map, and for an answer: {waited}");
    for _ in 0..20 {
        assert!(client.names.user("u2").contains(":generation 2:"));
    }
    assert_eq!(waits.given_up(), waited, "nobody waits twice");
    served.process().thaw();
    wait_until(SOON, "the server knows the new snapshot", || {
        served.figures().matches("2 made since").count() == 2
    });
    let mut fresh = Client::start(served.host(), 2);
    assert_eq!(fresh.names.ask("maps /maps/passwd."), "1");
    client.look();
    fresh.look();
}

/// A table that is too large for clients: its users are the module's, the server says so, and no program waits.
#[test]
fn a_table_of_more_than_two_gibibytes_stays_with_the_module_and_that_is_told() {
    let host = Host::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    // So much room for others that nothing else fits.
    let mut served = Responder::prepared(host, &["--room", "2097152"]);
    served.launch_only();
    let told = "bytes in one map, and clients read at most 2 GiB";
    wait_until(SOON, "it is told", || served.figures().matches(told).count() == 2);
    let figures = served.figures();
    for table in ["passwd", "group"] {
        assert!(figures.contains(&format!("{table}: no map; programs ask")), "{figures}");
    }
    let (mut client, waits) = Client::watched(served.host(), 1);
    assert_eq!(waits.given_up(), 0);
    assert_eq!(client.names.ask("maps /maps/"), "0");
    served.host().publish(&generation(2));
    wait_until(SOON, "the module shows what is new", || {
        client.look();
        client.users_seen == 2 && client.groups_seen == 2
    });
    // Who was sent away is told by name.
    let sent = "sent to the name services: names (uid ";
    assert!(served.figures().contains(sent), "{}", served.figures());
    // It takes no memory, and no time again and again.
    assert_eq!(fs::read_dir(served.host().path("maps")).expect("list the maps").count(), 0);
}

/// A record of a user that another service of systemd's knows, in a folder that the server watches: what was said before
/// is kept for an hour, and over at once when the record comes or goes.
#[test]
fn records_in_the_folders_of_nss_systemd_come_and_go_at_once() {
    if !needs_root() {
        return;
    }
    let local = Corpus::new("", b"root:x:0:0:root:/root:/bin/sh\n", b"root:x:0:\n", b"");
    let host = Host::in_memory(&local, "passwd: files systemd\ngroup: files systemd\n");
    let folder = host.path("userdb");
    fs::create_dir(&folder).expect("create the folder");
    let mut served = Responder::prepared(host, &["--positive", "3600", "--negative", "3600"]);
    // Seen by the server and its helper.
    let mount = "mkdir -p /run/userdb; mount --bind";
    served.after(&format!(
        "mount -t tmpfs -o mode=755 tmpfs /run/systemd 2>/dev/null || true; \
                           {mount} {} /run/userdb",
        folder.display()
    ));
    served.launch();
    let mut names = Names::on(served.host(), &c_program("names"));
    let record = |name: &str, uid: u32| {
        let text = format!(
            "{{\"userName\":\"{name}\",\"uid\":{uid},\"gid\":{uid},\"homeDirectory\":\"/home/{name}\",\
              \"shell\":\"/bin/sh\",\"disposition\":\"regular\"}}"
        );
        let fresh = folder.join("fresh");
        fs::write(&fresh, text).expect("write a record");
        fs::rename(&fresh, folder.join(format!("{name}.user"))).expect("rename it");
    };
    let is_kept = |names: &mut Names| {
        let helped = served.figure(" of them by other");
        names.user("homed");
        names.user("homed");
        served.figure(" of them by other") == helped
    };
    for round in 0..2 {
        assert_eq!(names.user("homed"), "none:0", "{round}");
        // After each change of what others say nothing is kept for 3 seconds.
        wait_until(SOON, "it is kept that there is nobody", || is_kept(&mut names));
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

/// Started by root it serves as another, whose orders count for nothing, and takes over what a server left that
/// stayed root.
#[test]
fn a_server_that_becomes_another_user_serves_and_takes_over() {
    if !needs_root() {
        return;
    }
    let passwd = "root:x:0:0:root:/root:/bin/sh\nroster-nscd:x:906:901:::\nroster-nscd-helper:x:907:907:::\n\
                  local:x:1500:1500:::\n";
    let local = Corpus::new("", passwd.as_bytes(), b"root:x:0:\nroster:x:901:\n", b"");
    let host = Host::in_memory(&local, "passwd: files systemd\ngroup: files systemd\n");
    let mut served = Responder::start(host);
    let mut names = Names::on(served.host(), &c_program("names"));
    assert_eq!(names.user("local"), "local:x:1500:1500:::");
    served.process().kill();
    let served = served.again(&["--user", "roster-nscd"]);
    // The map of the one before is its own now: its readers come to the new one.
    served.rewrite("passwd", &format!("{passwd}later:x:1501:1500:::\n"));
    wait_until(SOON, "the next server's map is read", || {
        names.user("later") == "later:x:1501:1500:::" && names.ask("maps /maps/passwd.") == "1"
    });
    for map in fs::read_dir(served.host().path("maps")).expect("list the maps") {
        let map = map.expect("a map").metadata().expect("its metadata");
        let mode = std::os::unix::fs::PermissionsExt::mode(&map.permissions()) & 0o777;
        assert_eq!((std::os::unix::fs::MetadataExt::uid(&map), mode), (906, 0o600));
    }
    assert!(names.user("nobody").starts_with("nobody:"), "the helper works");
    assert!(served.figures().contains("no file system of its own"), "{}", served.figures());
    let roster = roster_program().display().to_string();
    for uid in [906, 65_534] {
        let order = format!("setpriv --reuid {uid} --clear-groups {roster} nscd --statistics");
        assert_ne!(served.host().shell(&order).code, 0, "{uid}");
        let order = format!("setpriv --reuid {uid} --clear-groups {roster} nscd --shutdown");
        let _ = served.host().shell(&order);
    }
    assert_eq!(served.order(&["--invalidate", "passwd"]).code, 0);
    for (user, said) in [
        ("nobody-there", "has no user nobody-there: make it with systemd-sysusers"),
        ("root", "root is root"),
    ] {
        let mut command = served.host().command(roster_program());
        command.args(["nscd", "--socket", "/run/nscd/other", "--user", user, "--maps"]);
        let told = run(command.arg(served.host().path("other")));
        assert_eq!(told.code, 1, "{user}");
        assert!(told.error().contains(said), "{}", told.error());
    }
}

/// Programs on musl have no map and ask over the socket: `roster nscd -g` says which.
#[test]
fn who_asks_over_the_socket_what_a_map_has_is_told_by_name() {
    let host = Host::in_memory(&generation(1), SNAPSHOT_ONLY);
    host.publish(&generation(1));
    let served = Responder::start(host);
    let mut with_map = Client::start(served.host(), 1);
    with_map.look();
    assert!(!served.figures().contains("asked over the socket"), "{}", served.figures());
    // musl reads /etc/passwd and /etc/group first, and asks for a user's groups whatever it finds.
    let mut musl = Names::on(served.host(), &musl_program("names"));
    assert!(musl.groups_of("u1").contains(" 10000100 10000101 "));
    let told = "asked over the socket what a map has: names-musl (uid ";
    assert!(served.figures().contains(told), "{}", served.figures());
    assert!(!served.figures().contains("with a map"), "{}", served.figures());
}

/// Whoever serves a name service may look somebody up, and while it does so the helper would wait for it in vain: by
/// its name it is known, and goes on by itself.
#[test]
fn a_program_that_serves_a_name_service_is_not_made_to_wait_for_itself() {
    let local = Corpus::new("", b"root:x:0:0:root:/root:/bin/sh\n", b"root:x:0:\n", b"");
    let served =
        Responder::start(Host::in_memory(&local, "passwd: files systemd\ngroup: files systemd\n"));
    let provider = served.host().path("systemd-homed");
    fs::copy(c_program("names"), &provider).expect("copy a program");
    let helped = served.figure(" of them by other");
    let mut names = Names::on(served.host(), &provider);
    assert_eq!(names.user("nobody-there"), "none:0");
    assert!(names.user("nobody").starts_with("nobody:"), "by its own name services");
    assert!(names.user("root").starts_with("root:x:0:0:"));
    assert_eq!(served.figure(" of them by other"), helped, "{}", served.figures());
    let mut others = Names::on(served.host(), &c_program("names"));
    assert_eq!(others.user("nobody-there"), "none:0");
    assert!(served.figure(" of them by other") > helped);
}
