// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of processes, servers, connections, certificates and disks. The host answers as before, never anything
//! wrong. It serves the state of the directory as soon as that can be known.

use roster_request::{AuthRequestKind, AuthResult};
use roster_system_tests::pam::{self, PASSWORD};
use roster_system_tests::rosterd::{OracleSource, SOON};
use roster_system_tests::servers::{Relay, ServerCertificate, TestCertificates};
use roster_system_tests::{
    DirectoryServer, DomainTable, Ds389, LdifBuilder, NssCaller, Rosterd, Schema, Slapd,
    SlapdOptions, c_program, command_with_snapshot, find_tool, needs_root, roster_program, run,
    wait_for, wait_until,
};
use serde_json::Value;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// The time for which roles are killed, unless `ROSTER_SECONDS` sets it.
const UNDER_FIRE: Duration = Duration::from_secs(20);
const USERS: u32 = 1000;
const GROUPS: u32 = 200;

fn directory() -> LdifBuilder {
    LdifBuilder::new(Schema::Rfc2307)
}

fn served() -> Slapd {
    Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &directory().populated(USERS, GROUPS, 10))
}

/// A daemon that has mirrored `server`, reached through `uri`.
fn mirroring<S: DirectoryServer>(server: &S, uri: &str) -> Rosterd {
    let rosterd = Rosterd::start(&[DomainTable::ldap_through("corp", server, &[uri])]);
    rosterd.expect_mirror(&[OracleSource::Server(server)]);
    rosterd
}

/// Programs that look users up all the time. Users without changes must be there, always and whole; the GECOS of `u0`
/// counts up, and never down.
struct Watchers {
    stop: Arc<AtomicBool>,
    newest: Arc<AtomicU64>,
    threads: Vec<JoinHandle<u64>>,
}

impl Watchers {
    fn watch_snapshot(snapshot: &Path) -> Self {
        Self::with(|| NssCaller::with_snapshot(snapshot), true)
    }

    /// `knows_all`: that a name is not there is known, too, whichever role is killed.
    fn with(caller: impl Fn() -> NssCaller, knows_all: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let newest = Arc::new(AtomicU64::new(0));
        let threads = (0..2)
            .map(|_| {
                let mut caller = caller();
                let (stop, newest) = (Arc::clone(&stop), Arc::clone(&newest));
                spawn(move || {
                    let mut looks = 0;
                    let mut seen = 0;
                    while !stop.load(Ordering::Relaxed) {
                        look(&mut caller, looks, &mut seen, &newest, knows_all);
                        looks += 1;
                        // Often, and yet most of a processor is left for the watched processes.
                        sleep(Duration::from_millis(1));
                    }
                    looks
                })
            })
            .collect();
        Self { stop, newest, threads }
    }

    /// Call this before the directory gets a newer `u0`.
    fn will_be(&self, generation: u64) {
        self.newest.store(generation, Ordering::SeqCst);
    }

    /// Whether every answer was right so far.
    fn are_content(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let looks = self.threads.into_iter().map(|thread| {
            let looks = thread.join().expect("every answer was right");
            assert!(looks > 100, "only {looks} look-ups");
            looks
        });
        println!("{} rounds of look-ups: 0 failed, 0 wrong, 0 back", looks.sum::<u64>());
    }
}

fn look(caller: &mut NssCaller, looks: u64, seen: &mut u64, newest: &AtomicU64, knows_all: bool) {
    let base = "dc=example,dc=com";
    let i = 1 + looks % 5;
    let user = caller.send_command(&format!("getpwnam u{i}"));
    assert_eq!(
        user,
        format!("SUCCESS u{i}:*:{}:{}:u{i} of {base}:/home/u{i}:/bin/sh", 100_000 + i, 300_000 + i)
    );
    let group = caller.send_command(&format!("getgrgid {}", 300_000 + i));
    assert!(group.starts_with(&format!("SUCCESS g{i}:*:{}:", 300_000 + i)), "{group}");
    assert!(group.ends_with(",big") || group.contains(",big,"), "{group}");
    let nobody = caller.send_command("getpwnam nobody-knows");
    let is_unknown = !knows_all && nobody.starts_with("UNAVAIL");
    assert!(is_unknown || nobody.starts_with("NOTFOUND"), "{nobody}");
    let user = caller.send_command("getpwnam u0");
    let generation = user
        .strip_prefix("SUCCESS u0:*:100000:300000:")
        .and_then(|rest| rest.strip_suffix(":/home/u0:/bin/sh"))
        .unwrap_or_else(|| panic!("{user}"));
    let generation = generation
        .strip_prefix("generation ")
        .map_or(0, |number| number.parse().expect("a number"));
    assert!(generation >= *seen, "generation {generation} after {seen}");
    assert!(generation <= newest.load(Ordering::SeqCst), "generation {generation} from nowhere");
    *seen = generation;
}

fn under_fire() -> Duration {
    match std::env::var("ROSTER_SECONDS") {
        Ok(text) => Duration::from_secs(text.parse().expect("ROSTER_SECONDS is a number")),
        Err(_) => UNDER_FIRE,
    }
}

/// Small numbers that differ from run to run; a failure tells the seed.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = RandomState::new().hash_one(0) | 1;
        println!("seed {seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Changes `u0` and kills roles at random; the last generation of `u0`.
fn kill_roles(rosterd: &mut Rosterd, slapd: &Slapd, watchers: &Watchers) -> u64 {
    let mut dice = Dice::new();
    let start = Instant::now();
    let mut generation = 0;
    let mut kills = [0; 5];
    while watchers.are_content() && start.elapsed() < under_fire() {
        for _ in 0..=dice.below(4) {
            generation += 1;
            watchers.will_be(generation);
            let gecos = format!("generation {generation}");
            slapd.set(&directory().user_dn("u0"), "gecos", &[&gecos]);
            sleep(Duration::from_millis(20 + dice.below(150)));
        }
        let role = dice.below(9);
        match role {
            0 | 1 => rosterd.kill_role("bus"),
            2 | 3 => rosterd.kill_role("publisher"),
            4..=6 => rosterd.kill_role("backend:corp"),
            7 if rosterd.role("responder:nss").is_some() => rosterd.kill_role("responder:nss"),
            _ => {
                // Its roles end with it; systemd starts it again.
                rosterd.process().kill();
                wait_for(SOON, || {
                    rosterd.launch();
                    sleep(Duration::from_millis(300));
                    if rosterd.process().is_running() { Ok(()) } else { Err(rosterd.log()) }
                });
            }
        }
        kills[[0, 0, 1, 1, 2, 2, 2, 3, 4][usize::try_from(role).expect("small")]] += 1;
    }
    println!("killed bus, publisher, backend, responder, monitor: {kills:?}; {generation} changes");
    generation
}

#[test]
fn killed_roles_come_back_and_nobody_sees_a_wrong_answer() {
    let slapd = served();
    let mut rosterd = mirroring(&slapd, &slapd.uri());
    let watchers = Watchers::watch_snapshot(&rosterd.host().snapshot_path());
    kill_roles(&mut rosterd, &slapd, &watchers);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    watchers.end();
}

/// The snapshot retains each user and group that a program requested.
#[test]
fn on_demand_killed_roles_come_back_answers_stay() {
    let slapd = served();
    let corp = DomainTable::ldap("corp", &slapd)
        .with("mode", "\"on-demand\"")
        .with("refresh_interval", "\"1s\"");
    let mut rosterd = Rosterd::start(&[corp]);
    rosterd.wait_for_snapshot();
    rosterd.expect_domain_status("corp", "online", true);
    let snapshot = rosterd.host().snapshot_path();
    for (database, letter) in [("passwd", 'u'), ("group", 'g')] {
        for i in 0..6 {
            let name = format!("{letter}{i}");
            let line = rosterd.getent(database, &name).expect("it is in the directory");
            wait_until(SOON, "it is in the snapshot", || {
                let mut get = Command::new(roster_program());
                get.args(["get", database, &name, "--snapshot"]).arg(&snapshot);
                String::from_utf8_lossy(&run(&mut get).stdout).trim_end() == line
            });
        }
    }
    let watchers = Watchers::with(|| NssCaller::with_snapshot(&snapshot), false);
    let generation = kill_roles(&mut rosterd, &slapd, &watchers);
    let mut caller = NssCaller::with_snapshot(&snapshot);
    wait_for(SOON, || match caller.send_command("getpwnam u0") {
        user if user.contains(&format!(":generation {generation}:")) => Ok(()),
        user => Err(user),
    });
    watchers.end();
}

/// Entries that the cache of a killed backend lacks are in the snapshot all the same. A restarted publisher leaves them
/// there, however long the backend takes to come back.
#[test]
fn publisher_new_process_waits_for_late_backend() {
    let slapd = served();
    let rosterd = mirroring(&slapd, &slapd.uri());
    let mut caller = NssCaller::with_snapshot(&rosterd.host().snapshot_path());
    let watchers = Watchers::watch_snapshot(&rosterd.host().snapshot_path());
    let mut change_to = |generation: u64| {
        watchers.will_be(generation);
        let gecos = format!("generation {generation}");
        slapd.set(&directory().user_dn("u0"), "gecos", &[&gecos]);
        wait_for(SOON, || match caller.send_command("getpwnam u0") {
            user if user.contains(&gecos) => Ok(()),
            user => Err(user),
        });
    };
    change_to(1);
    // Each time the monitor waits longer before it starts the next one, at last ten seconds.
    let kill_again = || {
        let pid = rosterd.wait_for_role("backend:corp");
        rosterd.kill_role("backend:corp");
        wait_until(SOON, "it has ended", || rosterd.role("backend:corp") != Some(pid));
    };
    (0..7).for_each(|_| kill_again());
    rosterd.kill_role("publisher");
    kill_again();
    rosterd.wait_for_role("backend:corp");
    change_to(2);
    watchers.end();
}

/// The publisher has received the entries that a backend found in its cache. The backend is killed before it has caught
/// up, again and again, for longer than the publisher waits for one that runs.
#[test]
fn publisher_waits_while_backend_is_killed() {
    let slapd = served();
    let relay = Relay::to(slapd.port());
    let corp = DomainTable::ldap_through("corp", &slapd, &[&relay.uri()]);
    let rosterd = Rosterd::start(&[corp.with("connect_timeout", "\"2m\"")]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    let watchers = Watchers::watch_snapshot(&rosterd.host().snapshot_path());
    let kill = || {
        let pid = rosterd.wait_for_role("backend:corp");
        rosterd.kill_role("backend:corp");
        wait_until(SOON, "it has ended", || rosterd.role("backend:corp") != Some(pid));
    };
    // After these the monitor waits ten seconds before it starts the next one.
    (0..6).for_each(|_| kill());
    rosterd.wait_for_role("backend:corp");
    rosterd.expect_domain_status("corp", "online", true);
    let mut caller = NssCaller::with_snapshot(&rosterd.host().snapshot_path());
    watchers.will_be(1);
    slapd.set(&directory().user_dn("u0"), "gecos", &["generation 1"]);
    wait_for(SOON, || match caller.send_command("getpwnam u0") {
        user if user.contains("generation 1") => Ok(()),
        user => Err(user),
    });
    // The snapshot has an entry that its cache lacks.
    kill();
    rosterd.kill_role("publisher");
    relay.set_delay(Duration::from_secs(20));
    for _ in 0..5 {
        rosterd.wait_for_role("backend:corp");
        sleep(Duration::from_secs(4));
        kill();
    }
    watchers.end();
}

#[test]
fn mirror_stopped_server_is_served_then_followed() {
    let mut slapd = served();
    let rosterd = mirroring(&slapd, &slapd.uri());
    let watchers = Watchers::watch_snapshot(&rosterd.host().snapshot_path());
    slapd.stop();
    rosterd.expect_domain_status("corp", "online", false);
    slapd.start();
    slapd.change(&directory().user("returned", 70_000));
    wait_until(SOON, "the change is seen", || rosterd.getent("passwd", "returned").is_some());
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    watchers.end();
}

/// Both servers send nothing until the timeout, which takes most of a minute.
#[test]
fn follow_frozen_server_is_noticed_and_resumed() {
    let (mut frozen, behind) = (served(), served());
    let relay = Relay::to(behind.port());
    let of_frozen = mirroring(&frozen, &frozen.uri());
    let half_open = mirroring(&behind, &relay.uri());
    let watchers = [&of_frozen, &half_open]
        .map(|rosterd| Watchers::watch_snapshot(&rosterd.host().snapshot_path()));
    frozen.process().freeze();
    relay.drop_traffic();
    behind.change(&directory().user("unheard", 70_000));
    for rosterd in [&of_frozen, &half_open] {
        rosterd.expect_domain_status("corp", "online", false);
    }
    frozen.process().thaw();
    relay.resume_traffic();
    frozen.change(&directory().user("thawed", 70_000));
    of_frozen.expect_mirror(&[OracleSource::Server(&frozen)]);
    half_open.expect_mirror(&[OracleSource::Server(&behind)]);
    watchers.into_iter().for_each(Watchers::end);
}

#[test]
fn the_next_server_takes_over_and_the_first_is_gone_back_to() {
    let slapd = served();
    let [first, second] = [Relay::to(slapd.port()), Relay::to(slapd.port())];
    let domain = DomainTable::ldap_through("corp", &slapd, &[&first.uri(), &second.uri()])
        .with("failback_interval", "\"1s\"");
    let rosterd = Rosterd::start(&[domain]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    assert_eq!(second.accepted(), 0, "the first server is preferred");
    first.disconnect();
    wait_until(SOON, "the second server is in use", || second.accepted() > 0);
    slapd.change(&directory().user("through-second", 70_000));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    first.resume_traffic();
    rosterd.expect_domain_status("corp", "server", first.uri());
    second.disconnect();
    slapd.change(&directory().user("through-first", 70_001));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
}

/// A restore from a backup. As long as nothing is written, the cookie is of a future that the server
/// knows nothing of; a few writes later it is one of the server's own again.
fn believe_an_older_database<S: DirectoryServer>(mut server: S, port: u16) {
    let directory = LdifBuilder::new(server.schema());
    server.stop();
    let saved = server.save();
    server.start();
    let relay = Relay::to(port);
    let mut rosterd = mirroring(&server, &relay.uri());
    for writes in [0, 1, 8] {
        for is_down in [false, true] {
            println!("{writes} writes before the daemon is back, which was down: {is_down}");
            server.set(&directory.user_dn("u5"), "loginShell", &["/bin/forgotten"]);
            server.change(&directory.membership("empty", "u7", true));
            server.delete(&[directory.user_dn("u8"), directory.group_dn("g8")]);
            server.change(&directory.user("forgotten", 70_000));
            rosterd.expect_mirror(&[OracleSource::Server(&server)]);
            if is_down {
                rosterd.stop();
            }
            relay.disconnect();
            // An orderly end would take time to write data that is not used any more.
            server.process().kill();
            server.restore(&saved);
            server.start();
            for i in 0..writes {
                server.change(&directory.user(&format!("after{i}"), 70_001 + i));
            }
            relay.resume_traffic();
            if is_down {
                rosterd.launch();
            }
            // The server does not report the entries that the restore removed: a few entries each time are many in ten
            // minutes.
            rosterd.expect_mirror_approving_removals("corp", &[OracleSource::Server(&server)]);
            assert_eq!(rosterd.getent("passwd", "forgotten"), None);
            server.change(&directory.user("later", 71_000));
            rosterd.expect_mirror(&[OracleSource::Server(&server)]);
        }
    }
}

#[test]
fn an_openldap_with_an_older_database_is_believed() {
    let slapd = served();
    let port = slapd.port();
    believe_an_older_database(slapd, port);
}

#[test]
fn a_389ds_with_an_older_database_is_believed() {
    let server = Ds389::serving(&LdifBuilder::new(Schema::Rfc2307bis).populated(50, 20, 5));
    let port = server.port();
    believe_an_older_database(server, port);
}

/// The server's record of changes is younger than the cookie: it says so, and all is read again.
#[test]
fn a_refused_cookie_leads_to_a_new_enumeration() {
    let mut server = Ds389::serving(&LdifBuilder::new(Schema::Rfc2307bis).populated(100, 20, 5));
    let mut rosterd = mirroring(&server, &server.uri());
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    for i in 0..20 {
        server.change(&directory.user(&format!("early{i}"), 70_000 + i));
    }
    rosterd.expect_mirror(&[OracleSource::Server(&server)]);
    rosterd.stop();
    server.stop();
    server.reset_changelog();
    server.start();
    server.change(&directory.user("late", 71_000));
    server.delete(&[directory.user_dn("early3")]);
    rosterd.launch();
    rosterd.expect_mirror(&[OracleSource::Server(&server)]);
    server.change(&directory.user("later", 71_001));
    rosterd.expect_mirror(&[OracleSource::Server(&server)]);
}

#[test]
fn tls_expired_or_foreign_certificate_keeps_snapshot() {
    let mut setup = SlapdOptions::new(Schema::Rfc2307);
    setup.certificate = Some(ServerCertificate::Good);
    setup.anonymous = false;
    let mut slapd = Slapd::serving(setup, &directory().populated(USERS, GROUPS, 10));
    let authority = format!("{:?}", slapd.authority());
    let tls =
        |uri: &str| DomainTable::ldap_through("corp", &slapd, &[uri]).with("tls_ca", &authority);
    let start_tls = tls(&slapd.uri().replace("127.0.0.1", "localhost")).with("start_tls", "true");
    let mut rosterd = Rosterd::start(&[tls(&slapd.ldaps_uri())]);
    let mut by_start_tls = Rosterd::start(&[start_tls]);
    for certificate in [ServerCertificate::Expired, ServerCertificate::OtherName] {
        for rosterd in [&rosterd, &by_start_tls] {
            rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
        }
        let watchers = Watchers::watch_snapshot(&rosterd.host().snapshot_path());
        slapd.stop();
        slapd.set_certificate(certificate);
        slapd.start();
        slapd.change(&directory().user(&format!("{certificate:?}"), 70_000 + certificate as u32));
        for rosterd in [&mut rosterd, &mut by_start_tls] {
            wait_for(SOON, || {
                let reason = rosterd.domain("corp")?["reason"].to_string().to_lowercase();
                if reason.contains("certificate") { Ok(()) } else { Err(reason) }
            });
            assert_eq!(rosterd.getent("passwd", &format!("{certificate:?}")), None);
        }
        watchers.end();
        slapd.stop();
        slapd.set_certificate(ServerCertificate::Good);
        slapd.start();
    }
    for rosterd in [&rosterd, &by_start_tls] {
        rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    }
}

/// Without `tls_ca` it is the host's authorities that count, and an update of the host brings others.
#[test]
fn tls_new_host_authority_needs_no_restart() {
    let setup = SlapdOptions {
        certificate: Some(ServerCertificate::Good),
        ..SlapdOptions::new(Schema::Rfc2307)
    };
    let slapd = Slapd::serving(setup, &directory().populated(20, 10, 3));
    let domain = DomainTable::ldap_through("corp", &slapd, &[&slapd.ldaps_uri()]);
    let mut rosterd = Rosterd::prepared(&[domain]);
    let authorities = rosterd.host().path("authorities");
    let file = authorities.join("ca-certificates.crt");
    fs::create_dir(&authorities).expect("create a directory");
    rosterd.set_start_script(&format!(
        "mount --bind '{}' /etc/ssl/certs; exec \"$@\"",
        authorities.display()
    ));
    rosterd.launch();
    let expect_reason = |part: &str| {
        wait_for(SOON, || {
            let reason = rosterd.domain("corp")?["reason"].to_string();
            if reason.contains(part) { Ok(()) } else { Err(reason) }
        });
    };
    expect_reason("Install ca-certificates, or set tls_ca to a PEM file");
    let warning = "warning: domain.corp.uris: TLS verification will fail";
    assert!(rosterd.log().contains(warning), "it said so at its start");
    let check = || {
        let mut check = rosterd.command_inside(roster_program());
        run(check.arg("check-config").arg(rosterd.config())).text()
    };
    assert!(check().contains(warning), "{}", check());
    // Another's.
    fs::copy(TestCertificates::generate(&rosterd.host().path("")).authority(), &file)
        .expect("copy");
    assert!(!check().contains(warning), "{}", check());
    expect_reason("TLS: the certificate");
    let backend = rosterd.role("backend:corp");
    fs::copy(slapd.authority(), &file).expect("copy");
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    assert_eq!(rosterd.role("backend:corp"), backend, "it is the same process");
}

#[test]
fn a_corrupt_cache_is_set_aside_and_rebuilt_while_the_snapshot_serves() {
    let slapd = served();
    let mut rosterd = mirroring(&slapd, &slapd.uri());
    let cache = rosterd.host().state_dir().join("domains/corp/cache.redb");
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 4] = [
        ("its start is overwritten", |bytes| bytes[..4096].fill(0x5a)),
        ("zeros are in its middle", |bytes| {
            let len = bytes.len();
            bytes[len / 4..len * 3 / 4].fill(0);
        }),
        ("it is cut short", |bytes| bytes.truncate(bytes.len() / 2)),
        ("it is empty", Vec::clear),
    ];
    for (i, (damage, apply)) in damages.into_iter().enumerate() {
        rosterd.stop();
        let mut bytes = fs::read(&cache).expect("the domain has a cache");
        apply(&mut bytes);
        fs::write(&cache, bytes).expect("damage the cache");
        let watchers = Watchers::watch_snapshot(&rosterd.host().snapshot_path());
        slapd.change(
            &directory().user(&format!("new{i}"), u32::try_from(70_000 + i).expect("small")),
        );
        rosterd.launch();
        rosterd.expect(
            "passwd",
            &format!("new{i}"),
            Some(&format!(
                "new{i}:*:{0}:{0}:new{i} of dc=example,dc=com:/home/new{i}:/bin/sh",
                70_000 + i
            )),
        );
        rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
        watchers.end();
        println!("{damage}: mirrored again");
    }
}

#[test]
fn a_full_disk_leaves_the_last_snapshot_and_is_recovered_from() {
    let slapd = served();
    let mut rosterd = Rosterd::prepared(&[DomainTable::ldap("corp", &slapd)]);
    let state = rosterd.host().state_dir();
    rosterd.set_start_script(&format!(
        "mount -t tmpfs -o size=32m,mode=755 tmpfs '{}'; exec \"$@\"",
        state.display()
    ));
    rosterd.launch();
    // The directory as the daemon sees it.
    let state = Path::new("/proc")
        .join(rosterd.process().pid().to_string())
        .join("root")
        .join(state.strip_prefix("/").expect("an absolute path"));
    let caller = || {
        let reading =
            command_with_snapshot(c_program("nss_caller"), &rosterd.host().snapshot_path());
        let mut command = rosterd.command_inside(Path::new(reading.get_program()));
        command.args(reading.get_args());
        command.envs(reading.get_envs().filter_map(|(name, value)| Some((name, value?))));
        NssCaller::start(command.arg("roster"))
    };
    wait_until(SOON, "there is a snapshot", || state.join("snap/roster.v3.snap").exists());
    let watchers = Watchers::with(caller, true);
    let mut caller = caller();
    wait_until(SOON, "it is mirrored", || {
        caller.send_command("getpwnam lonely").starts_with("SUCCESS")
    });

    let filler = state.join("filler");
    let full = fs::write(&filler, vec![0; 64 << 20]);
    assert!(full.is_err(), "the disk is full");
    slapd.change(&directory().user("too-many", 70_000));
    wait_for(SOON, || {
        let status = rosterd.status()?;
        let error = status["snapshot"]["error"].to_string();
        if error.contains("No space left") { Ok(()) } else { Err(status.to_string()) }
    });
    assert!(caller.send_command("getpwnam too-many").starts_with("NOTFOUND"));
    assert!(caller.send_command("getpwnam u1").starts_with("SUCCESS"));
    fs::remove_file(&filler).expect("make room");
    wait_until(SOON, "it is published", || {
        caller.send_command("getpwnam too-many").starts_with("SUCCESS")
    });
    slapd.change(&directory().user("again", 70_001));
    wait_until(SOON, "it goes on", || caller.send_command("getpwnam again").starts_with("SUCCESS"));
    watchers.end();
}

/// Passwords that cannot be stored on a full disk: an old one is denied, a new one is accepted, and guesses are
/// counted.
#[test]
fn offline_full_disk_passwords_count_from_memory() {
    if !needs_root() {
        return;
    }
    let mut slapd = pam::slapd_with_users(&["alice", "bob"]);
    let domain = pam::domain(&slapd)
        .with("connect_timeout", "\"1s\"")
        .with("offline_failed_login_attempts", "3")
        .with("offline_failed_login_delay", "\"1h\"")
        .with("argon2_target_time", "\"10ms\"");
    let mut rosterd = Rosterd::prepared(&[domain]);
    let state = rosterd.host().state_dir();
    rosterd.set_start_script(&format!(
        "mount -t tmpfs -o size=32m,mode=755 tmpfs '{}'; exec \"$@\"",
        state.display()
    ));
    rosterd.launch();
    let state = Path::new("/proc")
        .join(rosterd.process().pid().to_string())
        .join("root")
        .join(state.strip_prefix("/").expect("an absolute path"));
    let says = |user: &str, password: &str| {
        pam::auth_result(&rosterd, AuthRequestKind::Authenticate, user, password)
    };
    let expect = |user: &str, password: &str, wanted: AuthResult| {
        wait_for(SOON, || match says(user, password)? {
            said if said == wanted => Ok(()),
            said => Err(format!("{said:?} and not {wanted:?}: {}", rosterd.log())),
        });
    };
    for user in ["alice", "bob"] {
        expect(user, PASSWORD, AuthResult::Success);
        wait_until(SOON, "it is kept", || {
            rosterd.roster(&["cache", "credentials"]).text().contains(user)
        });
    }
    let filler = state.join("filler");
    assert!(fs::write(&filler, vec![0; 64 << 20]).is_err(), "the disk is full");
    // For the first writes a file has spare pages.
    let mut number = 0;
    let mut newest = String::new();
    wait_for(SOON, || {
        number += 1;
        newest = format!("password {number}");
        slapd.set(&directory().user_dn("alice"), "userPassword", &[&newest]);
        expect("alice", &newest, AuthResult::Success);
        let domain = rosterd.domain("corp")?;
        match domain["credentials_error"].as_str() {
            Some(error) if error.contains("No space left") => Ok(()),
            _ => Err(domain.to_string()),
        }
    });
    let before = newest;
    slapd.set(&directory().user_dn("alice"), "userPassword", &["the newest one"]);
    expect("alice", "the newest one", AuthResult::Success);
    let told = rosterd.roster(&["status"]);
    assert_eq!(told.code, 1, "{told:?}");
    pam::stop_server(&mut slapd, &rosterd);

    expect("alice", "the newest one", AuthResult::Success);
    for old in [PASSWORD, &before] {
        assert_eq!(says("alice", old), Ok(AuthResult::WrongPassword));
    }
    for _ in 0..3 {
        assert_eq!(says("bob", "a guess"), Ok(AuthResult::WrongPassword));
    }
    assert_eq!(says("bob", PASSWORD), Ok(AuthResult::Locked));

    fs::remove_file(&filler).expect("make room");
    rosterd.expect_domain_status("corp", "credentials_error", Value::Null);
    let backend = rosterd.wait_for_role("backend:corp");
    rosterd.kill_role("backend:corp");
    wait_until(SOON, "it has ended", || rosterd.role("backend:corp") != Some(backend));
    expect("alice", "the newest one", AuthResult::Success);
    for old in [PASSWORD, &before] {
        assert_eq!(says("alice", old), Ok(AuthResult::WrongPassword));
    }
    assert_eq!(says("bob", PASSWORD), Ok(AuthResult::Locked), "after a restart");
}

/// The clients run as another user: the tested user's own clients may use up that user's connections.
#[test]
fn a_thousand_clients_that_say_nothing_hold_nobody_up() {
    if !needs_root() {
        return;
    }
    let slapd = served();
    // An on-demand domain without users, so that there is a socket for requests.
    let asked = DomainTable::ldap("asked", &slapd)
        .with("mode", "\"on-demand\"")
        .with("user_filter", "\"(uid=nobody-at-all)\"")
        .with("group_filter", "\"(cn=nobody-at-all)\"");
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd), asked]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    let watchers = Watchers::watch_snapshot(&rosterd.host().snapshot_path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/idle_clients.py");
    let copy = rosterd.host().path("idle_clients.py");
    fs::copy(script, &copy).expect("copy the script to where every user can read it");
    let mut strangers = rosterd.host().command(find_tool("setpriv", "util-linux"));
    strangers.args(["--reuid=65534", "--regid=65534", "--clear-groups", "python3"]);
    strangers.arg(copy).arg("1000");
    strangers.args(["bus", "nss"].map(|socket| rosterd.host().path("run").join(socket)));
    let mut strangers =
        strangers.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start the clients");
    let mut told = String::new();
    let mut output = BufReader::new(strangers.stdout.take().expect("was piped"));
    output.read_line(&mut told).expect("read what the clients say");
    print!("{told}");
    assert!(told.ends_with("connected\n"), "{told}");
    slapd.change(&directory().user("during", 70_000));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    rosterd.kill_role("backend:corp");
    slapd.change(&directory().user("after", 70_001));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    watchers.end();
    drop(strangers.stdin.take());
    strangers.wait().expect("wait for the clients");
}
