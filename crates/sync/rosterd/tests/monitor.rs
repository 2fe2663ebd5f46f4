// SPDX-License-Identifier: MIT OR Apache-2.0
//! The monitor at work: real processes, a real bus, no root needed.

mod common;

use common::{Daemon, lives, poll_until, refused, signal};
use roster_bus::interfaces::{MonitorProxy, PublisherProxy};
use roster_bus::zbus::{self, Connection};
use roster_messages::table::config::{CONFIG_MISSING, MAIN_FILE_LOST, RESPONDER_PATH_TOO_LONG};
use roster_messages::table::daemon::{
    BUS_SOCKET_REMOVED, KEYTAB_MARK_UNWRITABLE, LOG_LEVEL_UNKNOWN, NOT_A_DIRECTORY,
    PACKAGER_FILE_UNWRITABLE, PROCESS_SETUP_FAILED, RELOAD_REJECTED, ROLE_NO_REPLY, ROLE_RESTARTED,
    ROLE_SOCKET_REMOVED, ROLE_STOP_TIMEOUT, ROLE_WITHOUT_MONITOR, ROLES_SHARE_USER, RUN_DIR_IN_USE,
    RUN_DIR_UNUSABLE, STATE_DIR_IN_USE,
};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn it_starts_whole_and_ends_without_a_trace() {
    let mut daemon = Daemon::start(&["lab", "corp"]);
    let status = daemon.status().unwrap();
    let roles: Vec<_> = status.roles.iter().map(|role| role.role.as_str()).collect();
    assert_eq!(roles, ["monitor", "bus", "publisher", "backend:corp", "backend:lab"]);
    assert_eq!(status.domains, ["lab", "corp"]);
    assert!(!status.separate_users);
    poll_until("a snapshot", || daemon.path("state/snap/roster.v3.snap").exists().then_some(()));
    let children = daemon.children();
    assert_eq!(children.len(), 4);
    daemon.wait_for_log(ROLES_SHARE_USER.code);
    assert!(!daemon.log().contains("fd limit"), "the log has an internal message of the bus");

    signal(daemon.pid(), Signal::TERM);

    assert_eq!(daemon.ended(), Some(0));
    assert!(children.into_iter().all(|pid| !lives(pid)), "a process is left");
}

#[test]
fn who_is_killed_comes_back() {
    let daemon = Daemon::start(&["lab"]);
    for role in ["publisher", "backend:lab", "bus"] {
        let before = daemon.running(role);
        signal(before, Signal::KILL);
        daemon.replaced(role, before);
        daemon.wait_until_all_run();
        // The monitor may notice the lost connection before the end of the bus.
        if role != "bus" {
            let restarted = format!("{role}: restarting process {before}: killed by signal 9");
            daemon.wait_for_log(&format!("{restarted} [{ROLE_RESTARTED}]"));
        }
    }
    let roles = daemon.status().unwrap().roles;
    let bus = roles.iter().find(|role| role.role == "bus").unwrap();
    assert_eq!((bus.restarts, bus.last_end.as_str()), (1, "killed by signal 9"));
    // Roles that lost the bus were not killed, but replaced too.
    let publisher = roles.iter().find(|role| role.role == "publisher").unwrap();
    assert_eq!(publisher.restarts, 2);
}

#[test]
fn who_hangs_is_replaced() {
    let daemon = Daemon::start(&["lab"]);
    let before = daemon.running("publisher");
    let other = daemon.running("backend:lab");
    signal(before, Signal::STOP);
    daemon.replaced("publisher", before);
    assert!(!lives(before), "the hanging process is still there");
    assert_eq!(daemon.running("backend:lab"), other, "a role that answers was touched");
}

#[test]
fn a_bus_that_hangs_is_replaced() {
    let daemon = Daemon::start(&["lab"]);
    let before = daemon.running("bus");
    signal(before, Signal::STOP);
    daemon
        .wait_for_log(&format!("bus: no reply to status calls; sending SIGKILL [{ROLE_NO_REPLY}]"));
    daemon.replaced("bus", before);
    daemon.wait_until_all_run();
}

#[test]
fn nothing_outlives_the_monitor() {
    let mut daemon = Daemon::start(&["lab"]);
    let children = daemon.children();
    assert_eq!(children.len(), 3);
    signal(daemon.pid(), Signal::KILL);
    assert_eq!(daemon.ended(), None);
    poll_until("all roles end", || children.iter().all(|pid| !lives(*pid)).then_some(()));
    // The leftovers of that process do no harm.
    daemon.launch();
    daemon.wait_until_all_run();
}

#[test]
fn a_second_one_in_the_same_folders_is_refused() {
    let daemon = Daemon::start(&["lab"]);
    let (code, said) = refused(&mut daemon.command());
    assert_eq!(code, Some(75));
    let pid = daemon.pid();
    let told = format!("another rosterd, process {pid}, uses it");
    assert!(said.starts_with("rosterd: ") && said.contains(&told), "{said}");
    assert!(
        said.contains("--run-dir") && said.ends_with(&format!(" [{RUN_DIR_IN_USE}]\n")),
        "{said}"
    );
    let mut elsewhere = Command::new(common::ROSTERD);
    elsewhere.arg("--config").arg(daemon.path("roster.toml"));
    elsewhere.arg("--state-dir").arg(daemon.path("state"));
    elsewhere.arg("--run-dir").arg(daemon.path("run2"));
    let (code, said) = refused(&mut elsewhere);
    assert_eq!(code, Some(75));
    assert!(said.ends_with(&format!(" [{STATE_DIR_IN_USE}]\n")), "{said}");
    daemon.wait_until_all_run();
}

#[test]
fn a_wrong_configuration_leaves_the_old_one_in_force() {
    let daemon = Daemon::start(&["lab"]);
    let before = daemon.children();
    let good = fs::read_to_string(daemon.path("roster.toml")).unwrap();
    daemon.write("roster.toml", &format!("{good}\n[domain.lab.nonsense]\n"));

    signal(daemon.pid(), Signal::HUP);

    daemon.wait_for_log(RELOAD_REJECTED.code);
    let file = daemon.path("roster.toml");
    let error = daemon.status().unwrap().config_error;
    assert!(error.contains(&format!("{}:", file.display())), "{error}");
    assert_eq!(daemon.children(), before);
    let refused = reload(&daemon).unwrap_err();
    assert!(refused.contains("nonsense"), "{refused}");

    daemon.write("roster.toml", &good);
    reload(&daemon).unwrap();
    assert_eq!(daemon.status().unwrap().config_error, "");
    assert_eq!(daemon.children(), before, "the same configuration restarted something");
}

#[test]
fn reload_obeys_drop_ins_and_names_them() {
    let daemon = Daemon::start(&["lab", "far"]);
    fs::create_dir(daemon.path("roster.toml.d")).unwrap();

    daemon.write("roster.toml.d/10-domains.toml", "[host]\ndomains = [\"lab\"]\n");
    reload(&daemon).unwrap();
    assert_eq!(daemon.status().unwrap().domains, ["lab"]);

    // The whole configuration stays in force, not only the readable half.
    daemon.write("roster.toml.d/20-ids.toml", "[host]\nmin_id = 0\n");
    daemon.write("roster.toml.d/30-domains.toml", "[host]\ndomains = [\"far\"]\n");
    let refused = reload(&daemon).unwrap_err();
    assert!(refused.contains("roster.toml.d/20-ids.toml:2: host.min_id: "), "{refused}");
    fs::remove_file(daemon.path("roster.toml.d/20-ids.toml")).unwrap();
    symlink("/no/such/file", daemon.path("roster.toml.d/20-ids.toml")).unwrap();
    let refused = reload(&daemon).unwrap_err();
    assert!(refused.contains("roster.toml.d/20-ids.toml"), "{refused}");
    assert_eq!(daemon.status().unwrap().domains, ["lab"]);

    fs::remove_dir_all(daemon.path("roster.toml.d")).unwrap();
    reload(&daemon).unwrap();
    assert_eq!(daemon.status().unwrap().domains, ["lab", "far"]);
}

/// Drop-ins alone may lack the rules of the main file, for example while an editor replaces it.
#[test]
fn reload_without_main_file_is_rejected() {
    let mut daemon = Daemon::start(&["lab"]);
    let before = daemon.children();
    let main = daemon.path("roster.toml");
    fs::create_dir(daemon.path("roster.toml.d")).unwrap();
    fs::rename(&main, daemon.path("roster.toml.d/10-all.toml")).unwrap();
    let refused = reload(&daemon).unwrap_err();
    let file = format!("{}: the file is missing", main.display());
    assert!(refused.contains(&file) && refused.contains(MAIN_FILE_LOST.code), "{refused}");
    assert!(daemon.status().unwrap().config_error.contains(MAIN_FILE_LOST.code));
    assert_eq!(daemon.children(), before);
    // A start accepts drop-ins alone, and so do reloads after it.
    signal(daemon.pid(), Signal::TERM);
    assert_eq!(daemon.ended(), Some(0));
    daemon.launch();
    daemon.wait_until_all_run();
    reload(&daemon).unwrap();
    daemon.write("roster.toml", "");
    reload(&daemon).unwrap();
    fs::remove_file(&main).unwrap();
    assert!(reload(&daemon).unwrap_err().contains(MAIN_FILE_LOST.code));
}

#[test]
fn start_needs_each_credential_it_names() {
    let mut daemon = Daemon::prepared(&["lab"]);
    daemon.configure(&["lab"], ON_DEMAND);
    fs::create_dir(daemon.path("roster.toml.d")).unwrap();
    let keys = "[host]\ndomains = [\"lab\", \"far\"]\n\
                [domain.far]\nbind_dn = \"cn=x\"\nbind_password_file = \"credential:far\"\n";
    daemon.write("roster.toml.d/10-far.toml", keys);
    let credentials = daemon.path("credentials");
    fs::create_dir(&credentials).unwrap();
    let with_credentials = |mut command: Command| {
        command.env("CREDENTIALS_DIRECTORY", &credentials);
        command
    };
    let commands = [daemon.command(), with_credentials(daemon.command())];
    for mut command in commands {
        let (code, said) = refused(&mut command);
        assert_eq!(code, Some(78), "{said}");
        let file = "roster.toml.d/10-far.toml:5: domain.far.bind_password_file: cannot read ";
        assert!(said.contains(file) && said.contains("LoadCredential=far:/PATH"), "{said}");
    }
    daemon.write("credentials/far", "secret\n");
    fs::set_permissions(credentials.join("far"), fs::Permissions::from_mode(0o400)).unwrap();
    daemon.launch_by(&mut with_credentials(daemon.command()));
    daemon.wait_until_all_run();
    assert_eq!(daemon.status().unwrap().domains, ["lab", "far"]);
    reload(&daemon).unwrap();
}

#[test]
fn an_order_to_reload_that_comes_too_early_ends_nothing() {
    for _ in 0..5 {
        let mut daemon = Daemon::prepared(&["lab"]);
        daemon.launch();
        while !daemon.path("run").exists() {
            std::hint::spin_loop();
        }
        signal(daemon.pid(), Signal::HUP);
        daemon.wait_until_all_run();
    }
}

/// A backend would end repeatedly because of it, while the running one still works.
#[test]
fn a_damaged_file_of_authorities_leaves_the_old_configuration_in_force() {
    let daemon = Daemon::start(&["lab"]);
    let before = daemon.children();
    let ca = daemon.path("ca.pem");
    daemon.write("ca.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n");
    let toml = format!(
        "[host]\ndomains = ['lab']\n[domain.lab]\nprovider = 'ldap'\nuris = ['ldaps://localhost:1']\n\
         base = 'dc=x'\ntls_ca = '{}'\n",
        ca.display()
    );
    daemon.write("roster.toml", &toml);
    let refused = reload(&daemon).unwrap_err();
    assert!(refused.contains("ca.pem is not PEM"), "{refused}");
    assert_eq!(daemon.children(), before);
}

#[test]
fn a_role_that_ends_leaves_word_of_why() {
    let mut daemon = Daemon::prepared(&["lab"]);
    fs::create_dir_all(daemon.path("state/domains/lab")).unwrap();
    let cache = fs::File::create(daemon.path("state/domains/lab/cache.redb")).unwrap();
    flock(&cache, FlockOperation::LockExclusive).unwrap();
    daemon.launch();
    let ended = poll_until("the backend to end", || {
        let roles = daemon.status()?.roles;
        let lab = roles.into_iter().find(|role| role.role == "backend:lab")?;
        Some(lab.last_end).filter(|end| !end.is_empty())
    });
    assert!(ended.starts_with("ended with status 70: cannot open the domain's cache"), "{ended}");
    drop(cache);
    daemon.wait_until_all_run();
}

#[test]
fn a_change_restarts_whom_it_concerns() {
    let daemon = Daemon::start(&["lab", "corp"]);
    let running = |role| daemon.running(role);
    let (bus, publisher) = (running("bus"), running("publisher"));
    let (lab, corp) = (running("backend:lab"), running("backend:corp"));

    let changed = fs::read_to_string(daemon.path("roster.toml")).unwrap();
    let changed = changed.replace("[domain.corp]", "[domain.corp]\nfallback_home = \"/home/%u\"");
    daemon.write("roster.toml", &changed);
    reload(&daemon).unwrap();
    daemon.replaced("backend:corp", corp);
    daemon.wait_until_all_run();
    assert_eq!(
        (running("bus"), running("publisher"), running("backend:lab")),
        (bus, publisher, lab)
    );

    daemon.configure(&["lab", "third"], "");
    reload(&daemon).unwrap();
    daemon.replaced("publisher", publisher);
    poll_until("the backend of a domain that is gone ends", || {
        daemon.role("backend:corp").is_none().then_some(())
    });
    running("backend:third");
    assert_eq!((running("bus"), running("backend:lab")), (bus, lab));
    assert_eq!(daemon.status().unwrap().domains, ["lab", "third"]);
}

#[test]
fn a_domain_that_is_gone_stays_gone_when_the_bus_dies_meanwhile() {
    let daemon = Daemon::start(&["lab", "corp"]);
    let corp = daemon.running("backend:corp");
    // It still exists when the bus ends: it is killed 5 s after the stop request.
    signal(corp, Signal::STOP);
    daemon.configure(&["lab"], "");
    reload(&daemon).unwrap();
    assert_eq!(daemon.role("backend:corp").unwrap().0, "stopping");
    let bus = daemon.running("bus");
    signal(bus, Signal::KILL);
    daemon.replaced("bus", bus);
    poll_until("the backend ends", || daemon.role("backend:corp").is_none().then_some(()));
    assert!(!lives(corp));
    daemon.wait_for_log(&format!("in time; sending SIGKILL [{ROLE_STOP_TIMEOUT}]"));
    daemon.wait_until_all_run();
    assert!(daemon.role("backend:corp").is_none(), "it came back");
}

#[test]
fn monitor_bus_names_do_not_delay_work() {
    let daemon = Daemon::start(&["lab"]);
    let bus = format!("unix:path={}", daemon.path("run/bus").display());
    let over = Arc::new(AtomicBool::new(false));
    let comers: Vec<_> = (0..2)
        .map(|number| {
            let (bus, over) = (bus.clone(), Arc::clone(&over));
            std::thread::spawn(move || come_and_go(&bus, number, &over))
        })
        .collect();
    for _ in 0..3 {
        let before = daemon.running("publisher");
        signal(before, Signal::KILL);
        daemon.replaced("publisher", before);
    }
    over.store(true, Ordering::Relaxed);
    let changes: u32 = comers.into_iter().map(|comer| comer.join().unwrap()).sum();
    assert!(changes > 100, "only {changes} names were taken");
    let roles = daemon.status().unwrap().roles;
    let restarts = |role: &str| roles.iter().find(|state| state.role == role).unwrap().restarts;
    assert_eq!((restarts("bus"), restarts("backend:lab")), (0, 0), "a live role was restarted");
}

/// Takes a name and releases it repeatedly. Returns the number of changes.
fn come_and_go(bus: &str, number: u32, over: &AtomicBool) -> u32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut changes = 0;
        let connection = zbus::connection::Builder::address(bus).build().await.unwrap();
        while !over.load(Ordering::Relaxed) {
            let name = format!("org.roster.Backend.stranger{number}");
            connection.request_name(name.as_str()).await.unwrap();
            connection.release_name(name.as_str()).await.unwrap();
            changes += 1;
        }
        changes
    })
}

#[test]
fn the_log_level_changes_while_it_runs() {
    let daemon = Daemon::start(&["lab"]);
    for role in ["monitor", "publisher", "backend:lab"] {
        let level =
            || daemon.ask_role(role, async |proxy| Ok(proxy.status().await?.log_level)).unwrap();
        assert_eq!(level(), "info");
        daemon.ask_role(role, async |proxy| proxy.set_log_level("debug").await).unwrap();
        assert_eq!(level(), "debug");
        let refused = daemon.ask_role(role, async |proxy| proxy.set_log_level("loud").await);
        let refused = refused.unwrap_err();
        assert!(refused.contains("error, warn, info, debug or trace"), "{refused}");
        assert!(refused.contains(LOG_LEVEL_UNKNOWN.code), "{refused}");
        assert_eq!(level(), "debug");
    }
    let pid = daemon.running("publisher");
    daemon.configure(&["lab"], "[log]\nlevel = \"warn\"\n");
    reload(&daemon).unwrap();
    poll_until("the level of the configuration", || {
        let status = daemon.ask_role("publisher", async |proxy| proxy.status().await).unwrap();
        (status.log_level == "warn").then_some(())
    });
    assert_eq!(daemon.running("publisher"), pid, "a level needs no restart");
}

#[test]
fn every_line_of_the_log_names_its_role() {
    let mut daemon = Daemon::prepared(&["lab"]);
    daemon.configure(&["lab"], "[log]\nlevel = \"debug\"\njson = true\n");
    daemon.launch();
    daemon.wait_until_all_run();
    signal(daemon.pid(), Signal::TERM);
    daemon.ended();
    let mut roles = std::collections::BTreeSet::new();
    for line in daemon.log().lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect(line);
        roles.insert(line["role"].as_str().unwrap().to_owned());
        assert!(line["time"].is_string() && line["level"].is_string(), "{line}");
    }
    assert!(roles.is_superset(&["monitor", "publisher", "backend:lab"].map(String::from).into()));
}

#[test]
fn a_role_lives_in_a_sandbox() {
    let daemon = Daemon::start(&["lab"]);
    for role in ["bus", "publisher", "backend:lab"] {
        let pid = daemon.running(role);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("NoNewPrivs:\t1"), "{role}: {status}");
        assert!(status.contains("Seccomp:\t2"), "{role}: {status}");
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().nth(4), Some("0"), "{role}: {core}");
    }
    let said = daemon.ask_role("backend:lab", async |proxy| Ok(proxy.status().await?.sandbox));
    let said = said.unwrap();
    assert!(said.contains("no new privileges") && said.contains("no network"), "{said}");
}

#[test]
fn metrics_are_served_when_somebody_asks() {
    let mut daemon = Daemon::prepared(&["lab"]);
    let socket = daemon.path("run/metrics");
    daemon.configure(&["lab"], &format!("[metrics]\nlisten = \"unix:{}\"\n", socket.display()));
    daemon.launch();
    daemon.wait_until_all_run();
    assert_eq!(daemon.role("responder:metrics"), Some(("idle".to_owned(), 0)));
    let scrape = || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let reply = scrape();
    assert!(reply.starts_with("HTTP/1.0 200 OK\r\n"), "{reply}");
    for role in ["monitor", "publisher", "backend:lab"] {
        assert!(reply.contains(&format!("roster_up{{role=\"{role}\"}} 1\n")), "{reply}");
        assert!(reply.contains(&format!("roster_memory_bytes{{role=\"{role}\"}}")), "{reply}");
    }
    // The socket outlives the responder: no client is refused.
    let before = daemon.running("responder:metrics");
    signal(before, Signal::KILL);
    assert!(scrape().starts_with("HTTP/1.0 200 OK\r\n"));
    daemon.replaced("responder:metrics", before);
}

#[test]
fn clients_that_say_nothing_make_room_for_scrapers() {
    let mut daemon = Daemon::prepared(&["lab"]);
    let socket = daemon.path("run/metrics");
    daemon.configure(&["lab"], &format!("[metrics]\nlisten = \"unix:{}\"\n", socket.display()));
    daemon.launch();
    daemon.wait_until_all_run();
    let silent: Vec<_> = (0..200).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    poll_until("an answer", || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        reply.starts_with("HTTP/1.0 200 OK").then_some(())
    });
    // No client had to wait until the silent connections were closed.
    let is_open = |stream: &UnixStream| {
        stream.set_nonblocking(true).unwrap();
        let read = (&*stream).read(&mut [0]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    assert!(silent.iter().any(is_open), "all were closed first");
}

#[test]
fn a_role_that_cannot_start_is_tried_again() {
    let mut daemon = Daemon::prepared(&["lab"]);
    fs::create_dir_all(daemon.path("state/domains")).unwrap();
    daemon.write("state/domains/lab", "in the way");
    daemon.launch();
    daemon.wait_for_log(&format!(
        "lab: not a directory. {} [{NOT_A_DIRECTORY}]",
        NOT_A_DIRECTORY.fix
    ));
    let state = poll_until("the bus", || daemon.role("backend:lab"));
    assert_eq!(state.1, 0);
    fs::remove_file(daemon.path("state/domains/lab")).unwrap();
    daemon.wait_until_all_run();
}

#[test]
fn what_cannot_work_is_refused_with_what_to_do() {
    let daemon = Daemon::prepared(&["lab"]);
    let (code, said) = refused(Command::new(common::ROSTERD).args(["--nonsense"]));
    assert_eq!(code, Some(64), "{said}");

    // Only the monitor starts roles.
    let (code, said) = refused(Command::new(common::ROSTERD).args(["role", "publisher"]));
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains(ROLE_WITHOUT_MONITOR.code), "{said}");

    // The limit allows no descriptor for the event loop.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 4; exec \"$@\"", "sh", common::ROSTERD]);
    let (code, said) = refused(&mut limited);
    assert_eq!(code, Some(71), "{said}");
    assert!(said.contains(PROCESS_SETUP_FAILED.code), "{said}");

    let file = daemon.path("passwd");
    let (code, said) = refused(Command::new(common::ROSTERD).arg("man").arg(file));
    assert_eq!(code, Some(73), "{said}");
    assert!(said.ends_with(&format!(" [{PACKAGER_FILE_UNWRITABLE}]\n")), "{said}");

    daemon.write("run", "a file");
    let (code, said) = refused(&mut daemon.command());
    assert_eq!(code, Some(73), "{said}");
    assert!(said.contains("--run-dir") && said.contains(RUN_DIR_UNUSABLE.code), "{said}");
    fs::remove_file(daemon.path("run")).unwrap();

    daemon.configure(&["lab"], ON_DEMAND);
    let text = fs::read_to_string(daemon.path("roster.toml")).unwrap();
    daemon.write("roster.toml", &text.replace("[\"lab\"]", "[\"lab\", \"far\"]"));
    let run = daemon.path("a-folder-whose-path-has-more-bytes-than-a-snapshot-has-room-for");
    let mut elsewhere = Command::new(common::ROSTERD);
    elsewhere.arg("--config").arg(daemon.path("roster.toml"));
    elsewhere.arg("--state-dir").arg(daemon.path("state")).arg("--run-dir").arg(run);
    let (code, said) = refused(&mut elsewhere);
    assert_eq!(code, Some(73), "{said}");
    assert!(
        said.contains("the limit is 79")
            && said.contains("--run-dir")
            && said.contains(RESPONDER_PATH_TOO_LONG.code),
        "{said}"
    );

    daemon.write("roster.toml", "[host]\ndomains = [\"lab\"]\n");
    let (code, said) = refused(&mut daemon.command());
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("roster.toml:2:"), "{said}");

    fs::remove_file(daemon.path("roster.toml")).unwrap();
    let (code, said) = refused(&mut daemon.command());
    assert_eq!(code, Some(78), "{said}");
    assert!(
        said.contains("cannot read")
            && said.contains("roster.toml")
            && said.contains(CONFIG_MISSING.code),
        "{said}"
    );
}

/// A further domain, with an unreachable server.
const ON_DEMAND: &str = "[domain.far]\nprovider = \"ldap\"\nmode = \"on-demand\"\n\
                         uris = [\"ldap://127.0.0.1:9\"]\nbase = \"dc=x\"\n";

fn reload(daemon: &Daemon) -> Result<(), String> {
    let ask = async |connection: Connection| {
        let monitor = MonitorProxy::new(&connection).await?;
        monitor.reload().await.map_err(|error| zbus::Error::Failure(error.to_string()))
    };
    daemon.on_bus(ask).map_err(|error| error.to_string())
}

#[test]
fn removed_sockets_are_there_again() {
    let mut daemon = Daemon::prepared(&["lab"]);
    let socket = daemon.path("run/metrics");
    daemon.configure(&["lab"], &format!("[metrics]\nlisten = \"unix:{}\"\n", socket.display()));
    daemon.launch();
    poll_until("the bus", || daemon.status());
    let answers = || -> Option<()> {
        let mut stream = UnixStream::connect(&socket).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.contains("200").then_some(())
    };
    poll_until("metrics", answers);
    let before = daemon.running("responder:metrics");
    fs::remove_file(&socket).unwrap();
    poll_until("metrics at the new socket", answers);
    daemon.replaced("responder:metrics", before);
    daemon.wait_for_log(ROLE_SOCKET_REMOVED.code);

    // The bus's socket as well, and its directory; and everything.
    let before = daemon.running("bus");
    fs::remove_dir_all(daemon.path("run/dbus")).unwrap();
    daemon.replaced("bus", before);
    daemon.wait_for_log(BUS_SOCKET_REMOVED.code);
    let before = daemon.running("bus");
    fs::remove_dir_all(daemon.path("run")).unwrap();
    daemon.replaced("bus", before);
    daemon.wait_until_all_run();
    poll_until("metrics in the new directory", answers);
}

#[test]
fn state_on_read_only_file_system_starts_and_is_told() {
    let mut daemon = Daemon::start(&["lab"]);
    poll_until("a snapshot", || daemon.path("state/snap/roster.v3.snap").exists().then_some(()));
    signal(daemon.pid(), Signal::TERM);
    assert_eq!(daemon.ended(), Some(0));
    let rosterd = daemon.command();
    let mut command = Command::new("unshare");
    command.args([if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" }, "sh", "-ec"]);
    let script = r#"mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; shift; exec "$@""#;
    command.args([script, "sh"]).arg(daemon.path("state"));
    command.arg(rosterd.get_program()).args(rosterd.get_args());
    daemon.launch_by(&mut command);
    daemon.wait_until_all_run();
    let asked = || {
        let ask = async |connection: Connection| {
            let publisher = PublisherProxy::new(&connection).await?;
            publisher.status().await.map_err(|error| zbus::Error::Failure(error.to_string()))
        };
        daemon.on_bus(ask).ok().filter(|status| status.error.contains("Read-only file system"))
    };
    let told = poll_until("the status names the file system", asked);
    assert!(told.domains.iter().any(|domain| domain.present), "its directory is read all the same");

    let key = daemon.path("keytab");
    fs::write(&key, [5, 2]).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let krb5 = "auth = \"krb5\"\nkrb5_realm = \"R\"\nkrb5_kdcs = [\"127.0.0.1:9\"]\n";
    daemon.configure(&["lab"], &format!("{krb5}krb5_keytab = {key:?}\n"));
    reload(&daemon).unwrap();
    daemon.wait_for_log(KEYTAB_MARK_UNWRITABLE.code);
}

#[test]
fn removed_state_folders_are_made_again() {
    let daemon = Daemon::start(&["lab"]);
    let snapshot = daemon.path("state/snap/roster.v3.snap");
    poll_until("a snapshot", || snapshot.exists().then_some(()));
    for folder in ["snap", "domains"] {
        fs::rename(daemon.path("state").join(folder), daemon.path(&format!("old-{folder}")))
            .unwrap();
    }
    poll_until("a snapshot in the new directory", || snapshot.exists().then_some(()));
    let before = daemon.running("backend:lab");
    signal(before, Signal::KILL);
    daemon.replaced("backend:lab", before);
}
