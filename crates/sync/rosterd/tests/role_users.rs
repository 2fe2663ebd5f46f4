// SPDX-License-Identifier: MIT OR Apache-2.0
//! Roles with separate users, as root runs them: in a private mount namespace with the test's passwd file. Without root
//! roles cannot have separate users, and these tests report that.

mod common;

use common::{Daemon, ROSTERD, poll_until, refused};
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{BackendProxy, PublisherProxy, RoleProxy};
use roster_bus::zbus::fdo::RequestNameFlags;
use roster_bus::zbus::{self, Connection};
use roster_messages::table::daemon::{
    CACHE_FILE_FOREIGN, DIR_OWNER_UNEXPECTED, KEYTAB_NOT_APPLIED, NOT_A_DIRECTORY,
    ROLE_START_TIMEOUT, ROLE_USERS_MISSING, SUBDIR_OWNER_UNEXPECTED, UID_NOT_IN_PASSWD,
};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// First uid of the roles. No user of the machine has these uids.
const BUS: u32 = 64_901;
const PUBLISHER: u32 = 64_902;
const NSS: u32 = 64_903;
const METRICS: u32 = 64_904;
const PAM: u32 = 64_905;
/// The group of all roles.
const GROUP: u32 = 900;
const BACKENDS: u32 = 64_910;

/// The variable with the address of the bus. The test program, restarted as another user, reads it.
const ADDRESS: &str = "ROSTER_TEST_BUS";

/// Capabilities that the systemd unit leaves to root.
const CAPABILITIES: &str = "-all,+setuid,+setgid,+kill,+chown,+fowner,+dac_override";

/// Starts rosterd with this passwd file, /etc/roster and state directory, in a private mount namespace.
const SETUP: &str = r#"set -e
[ -d /etc/roster ] || mount -t overlay -o "lowerdir=$1/over:/etc" overlay /etc
mount --bind "$1/roster" /etc/roster
mount --bind "$1/etc.passwd" /etc/passwd
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir /var/lib/roster
mount --bind "$1/state" /var/lib/roster
exec setpriv --no-new-privs --bounding-set "$3" "$2" --config "$1/roster.toml" --run-dir "$1/run" --ping 1
"#;

/// Returns `false` if the test is to be skipped. That requires a variable, because it would pass without a check.
fn needs_root() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    let skip = std::env::var_os("ROSTER_SKIP_ROOT_TESTS").is_some_and(|value| value == "1");
    assert!(skip, "users of their own take root; run as root, or set ROSTER_SKIP_ROOT_TESTS=1");
    eprintln!("left out: needs root");
    false
}

/// As in a container that runs under any uid.
#[test]
fn bus_unknown_user_is_reported_once() {
    if !needs_root() {
        return;
    }
    const NOBODY: u32 = 64_999;
    let mut daemon = Daemon::prepared(&["lab"]);
    chown(daemon.folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = daemon.command();
    daemon.launch_by(command.uid(NOBODY).gid(NOBODY));
    daemon.wait_for_log(&format!("uid 64999: not in /etc/passwd [{UID_NOT_IN_PASSWD}]"));
    daemon.wait_for_log(&format!("sending SIGKILL [{ROLE_START_TIMEOUT}]"));
    let log = daemon.log();
    let complaints = log.lines().filter(|line| line.contains("bus: dbus-daemon[")).count();
    assert_eq!(complaints, 1, "{log}");
    assert!(!log.lines().any(|line| line.ends_with("bus: ")), "{log}");
}

fn command(daemon: &Daemon) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", SETUP, "sh"]);
    command.arg(daemon.folder.path()).arg(ROSTERD).arg(CAPABILITIES);
    command
}

fn prepared(domains: &[&str]) -> Daemon {
    let daemon = Daemon::prepared(domains);
    for folder in ["state", "roster", "over/roster"] {
        fs::create_dir_all(daemon.path(folder)).unwrap();
    }
    let mut passwd = String::from("root:x:0:0::/root:/bin/sh\n");
    let roles =
        [("bus", BUS), ("publisher", PUBLISHER), ("nss", NSS), ("metrics", METRICS), ("pam", PAM)];
    for (name, uid) in roles {
        let _ = writeln!(passwd, "roster-{name}:x:{uid}:{GROUP}::/:/bin/false");
    }
    for place in 0..8 {
        let uid = BACKENDS + place;
        let _ = writeln!(passwd, "roster-backend-{place}:x:{uid}:{GROUP}::/:/bin/false");
    }
    daemon.write("etc.passwd", &passwd);
    daemon
}

fn start(domains: &[&str]) -> Daemon {
    let mut daemon = prepared(domains);
    let mut command = command(&daemon);
    daemon.launch_by(&mut command);
    daemon.wait_until_all_run();
    daemon
}

fn uid_of(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn groups_of(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("Groups:")).unwrap();
    line.trim_start_matches("Groups:").trim().to_owned()
}

#[test]
fn every_role_has_its_user_and_every_file_its_owner() {
    if !needs_root() {
        return;
    }
    let daemon = start(&["lab", "corp"]);
    assert!(daemon.status().unwrap().separate_users);
    let expected = [
        ("monitor", 0),
        ("bus", BUS),
        ("publisher", PUBLISHER),
        ("backend:lab", BACKENDS),
        ("backend:corp", BACKENDS + 1),
    ];
    for (role, uid) in expected {
        let pid = daemon.running(role);
        assert_eq!(uid_of(pid), uid, "{role}");
        if uid != 0 {
            assert_eq!(groups_of(pid), "", "{role} has supplementary groups");
        }
    }
    poll_until("a snapshot", || daemon.path("state/snap/roster.v3.snap").exists().then_some(()));
    let owner_and_mode = |path: &str| {
        let stat = fs::symlink_metadata(daemon.path(path)).unwrap();
        (stat.uid(), stat.mode() & 0o7777)
    };
    assert_eq!(owner_and_mode("state"), (0, 0o755));
    assert_eq!(owner_and_mode("state/snap"), (PUBLISHER, 0o755));
    assert_eq!(owner_and_mode("roster/floor"), (0, 0o644));
    assert_eq!(owner_and_mode("state/snap/roster.v3.snap"), (PUBLISHER, 0o644));
    assert_eq!(owner_and_mode("state/domains"), (0, 0o711));
    assert_eq!(owner_and_mode("state/domains/lab"), (BACKENDS, 0o700));
    assert_eq!(owner_and_mode("state/domains/corp"), (BACKENDS + 1, 0o700));
    assert_eq!(owner_and_mode("run"), (0, 0o755));
}

#[test]
fn a_domain_keeps_its_cache_when_its_place_changes() {
    if !needs_root() {
        return;
    }
    let daemon = start(&["lab", "corp"]);
    let cache = |domain: &str| {
        let file = daemon.path("state/domains").join(domain).join("cache.redb");
        fs::symlink_metadata(file).map(|stat| (stat.uid(), stat.ino())).ok()
    };
    let before = poll_until("both caches", || cache("lab").zip(cache("corp")));
    let lab = daemon.running("backend:lab");
    daemon.configure(&["corp", "lab"], "");
    common::signal(daemon.pid(), Signal::HUP);
    daemon.replaced("backend:lab", lab);
    daemon.wait_until_all_run();
    let ((_, lab), (_, corp)) = before;
    assert_eq!(cache("lab"), Some((BACKENDS + 1, lab)));
    assert_eq!(cache("corp"), Some((BACKENDS, corp)));
    let uid = |role| uid_of(daemon.running(role));
    assert_eq!((uid("backend:corp"), uid("backend:lab")), (BACKENDS, BACKENDS + 1));
}

#[test]
fn a_user_changes_hands_when_nothing_of_its_old_role_is_left() {
    if !needs_root() {
        return;
    }
    let daemon = start(&["lab", "corp"]);
    let owner = |domain: &str| {
        let folder = daemon.path("state/domains").join(domain);
        let file = folder.join("cache.redb");
        let uid = |path| fs::symlink_metadata(path).map(|stat| stat.uid()).ok();
        uid(folder).zip(uid(file))
    };
    poll_until("both caches", || owner("lab").zip(owner("corp")));
    let lab = daemon.running("backend:lab");
    // It ignores a stop request: only the kill helps, 5 s later.
    common::signal(lab, Signal::STOP);
    daemon.configure(&["corp"], "");
    common::signal(daemon.pid(), Signal::HUP);
    daemon.wait_for_log("is in force");
    // corp now has the user of lab's running process.
    poll_until("corp waits for lab to end", || {
        let (state, _) = daemon.role("backend:corp")?;
        (state == "waiting" && common::lives(lab)).then_some(())
    });
    let policy = fs::read_to_string(daemon.path("run/bus.conf")).unwrap();
    assert!(!policy.contains(&BACKENDS.to_string()), "the old process has a right: {policy}");

    let corp = daemon.running("backend:corp");

    assert!(!common::lives(lab), "two processes had one user");
    assert_eq!(uid_of(corp), BACKENDS);
    assert_eq!(owner("lab"), Some((0, 0)), "root owns the cache of a removed domain");
    poll_until("corp has its cache", || {
        (owner("corp") == Some((BACKENDS, BACKENDS))).then_some(())
    });
    assert!(daemon.role("backend:lab").is_none());

    // It comes back, at another position, and finds its cache.
    daemon.configure(&["corp", "lab"], "");
    common::signal(daemon.pid(), Signal::HUP);
    daemon.running("backend:lab");
    let theirs = Some((BACKENDS + 1, BACKENDS + 1));
    poll_until("lab has its cache", || (owner("lab") == theirs).then_some(()));
    daemon.wait_until_all_run();
}

#[test]
fn folders_of_a_stranger_are_refused() {
    if !needs_root() {
        return;
    }
    for folder in ["state", "run"] {
        let daemon = prepared(&["lab"]);
        let _ = fs::create_dir(daemon.path(folder));
        chown(daemon.path(folder), Some(65_000), None).unwrap();
        let (code, said) = refused(&mut command(&daemon));
        assert_eq!(code, Some(73), "{said}");
        let hint = "belongs to uid 65000. Run `chown 0 ";
        assert!(said.contains(hint) && said.contains(DIR_OWNER_UNEXPECTED.code), "{said}");
    }
}

#[test]
fn what_a_hijacked_publisher_puts_in_place_of_folders_is_refused() {
    if !needs_root() {
        return;
    }
    let mut daemon = prepared(&["lab"]);
    let outside = daemon.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(daemon.path("state/domains")).unwrap();
    std::os::unix::fs::symlink(&outside, daemon.path("state/domains/lab")).unwrap();
    let mut command = command(&daemon);
    daemon.launch_by(&mut command);
    daemon.wait_for_log(&format!(
        "lab: not a directory. {} [{NOT_A_DIRECTORY}]",
        NOT_A_DIRECTORY.fix
    ));
    assert_eq!(fs::metadata(&outside).unwrap().uid(), 0, "a link was followed");

    // A file of another user, under a second name in a cache that gets a new owner.
    let victim = daemon.path("victim");
    fs::write(&victim, "root's own").unwrap();
    fs::remove_file(daemon.path("state/domains/lab")).unwrap();
    fs::create_dir(daemon.path("state/domains/lab")).unwrap();
    chown(daemon.path("state/domains/lab"), Some(BACKENDS + 3), None).unwrap();
    fs::hard_link(&victim, daemon.path("state/domains/lab/cache.redb")).unwrap();
    daemon.wait_for_log(&format!("{}]", CACHE_FILE_FOREIGN.code));
    assert!(
        daemon.log().contains("lab/cache.redb: not a regular file of uid "),
        "{}",
        daemon.log()
    );
    assert_eq!(fs::metadata(&victim).unwrap().uid(), 0, "a stranger's file was given away");
}

/// An attack by the publisher's user if it had write access: its own directory in place of a root-owned one, with files
/// that a backend would write to.
#[test]
fn monitor_planted_state_folder_refused() {
    if !needs_root() {
        return;
    }
    const STRANGER: u32 = 65_000;
    for (folder, owner) in [
        ("state", PUBLISHER),
        ("state/domains", PUBLISHER),
        ("state/domains", BACKENDS),
        ("state/snap", STRANGER),
    ] {
        let daemon = prepared(&["lab"]);
        let planted = daemon.path("state/domains/lab/credentials.redb");
        fs::create_dir_all(planted.parent().unwrap()).unwrap();
        fs::create_dir_all(daemon.path("state/snap")).unwrap();
        fs::write(&planted, "").unwrap();
        chown(&planted, Some(PUBLISHER), None).unwrap();
        chown(daemon.path(folder), Some(owner), None).unwrap();
        let (code, said) = refused(&mut command(&daemon));
        assert_eq!(code, Some(73), "{folder}: {said}");
        let found = format!("belongs to uid {owner}");
        assert!(said.contains(&found) && said.contains("un `chown "), "{folder}: {said}");
        let message =
            if folder == "state" { &DIR_OWNER_UNEXPECTED } else { &SUBDIR_OWNER_UNEXPECTED };
        assert!(said.contains(message.code), "{folder}: {said}");
        assert_eq!(fs::metadata(&planted).unwrap().uid(), PUBLISHER, "{folder}: was given away");
        assert_eq!(fs::metadata(daemon.path(folder)).unwrap().uid(), owner, "{folder}");
    }
}

#[test]
fn monitor_planted_cache_refused() {
    if !needs_root() {
        return;
    }
    let mut daemon = prepared(&["lab", "corp"]);
    let (lab, planted) =
        (daemon.path("state/domains/lab"), daemon.path("state/domains/lab/credentials.redb"));
    fs::create_dir_all(&lab).unwrap();
    fs::write(&planted, "").unwrap();
    for path in [&lab, &planted] {
        chown(path, Some(PUBLISHER), None).unwrap();
    }
    let mut command = command(&daemon);
    daemon.launch_by(&mut command);
    daemon.wait_for_log("lab: belongs to uid 64902, which may have planted files");
    daemon.running("backend:corp");
    assert_eq!(fs::metadata(&planted).unwrap().uid(), PUBLISHER, "it was given away");
    fs::rename(&lab, daemon.path("state/planted")).unwrap();
    daemon.wait_until_all_run();
}

#[test]
fn monitor_writes_floor_at_start_and_reload() {
    if !needs_root() {
        return;
    }
    let daemon = start(&["lab"]);
    let floor = || fs::read_to_string(daemon.path("roster/floor")).unwrap();
    assert_eq!(floor(), "min_id 1000\ngid 100\n");
    let text = fs::read_to_string(daemon.path("roster.toml")).unwrap();
    let keys = "min_id = 1500\nallowed_local_gids = [100, 2000, 20]\n";
    daemon.write("roster.toml", &text.replace("min_id = 1000\n", keys));
    common::signal(daemon.pid(), Signal::HUP);
    let expected = "min_id 1500\ngid 20\ngid 100\n";
    poll_until("the floor", || (floor() == expected).then_some(()));
    daemon.wait_until_all_run();
}

#[test]
fn users_that_are_missing_are_named() {
    if !needs_root() {
        return;
    }
    let daemon = prepared(&["lab"]);
    daemon.write("etc.passwd", "root:x:0:0::/root:/bin/sh\n");
    let (code, said) = refused(&mut command(&daemon));
    assert_eq!(code, Some(67), "{said}");
    // Roles that are not configured need no users.
    let names = "roster-bus, roster-publisher, roster-backend-0. ";
    assert!(said.contains(names) && said.contains("systemd-sysusers"), "{said}");
    assert!(said.contains(ROLE_USERS_MISSING.code), "{said}");
}

#[test]
fn keytab_without_role_users_is_not_applied() {
    if !needs_root() {
        return;
    }
    let mut daemon = prepared(&["lab"]);
    let key = daemon.path("keytab");
    let write = |bytes: &[u8]| {
        fs::write(&key, bytes).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    };
    write(&[5, 2]);
    let krb5 = "auth = \"krb5\"\nkrb5_realm = \"R\"\nkrb5_kdcs = [\"127.0.0.1:9\"]\n";
    daemon.configure(&["lab"], &format!("{krb5}krb5_keytab = {key:?}\n"));
    let mut command = command(&daemon);
    daemon.launch_by(&mut command);
    daemon.running("publisher");
    daemon.write("etc.passwd", "root:x:0:0::/root:/bin/sh\n");
    write(&[5, 2, 0]);
    daemon.wait_for_log(KEYTAB_NOT_APPLIED.code);
    daemon.wait_for_log(ROLE_USERS_MISSING.code);
}

#[test]
fn the_bus_tells_roles_apart() {
    if !needs_root() {
        return;
    }
    let daemon = start(&["lab", "corp"]);
    let bus = format!("unix:path={}", daemon.path("run/bus").display());
    run_as(&bus, BACKENDS, "as_a_back_end");
    run_as(&bus, NSS, "as_a_responder");
    run_as(&bus, METRICS, "as_the_responder_of_metrics");
    run_as(&bus, PUBLISHER, "as_the_publisher");
    run_as(&bus, BUS, "as_a_stranger");
    run_as(&bus, 65_000, "as_a_stranger");
    daemon.wait_until_all_run();
    let restarts: u32 = daemon.status().unwrap().roles.iter().map(|role| role.restarts).sum();
    assert_eq!(restarts, 0, "somebody was stopped");
}

#[test]
fn a_signal_in_the_name_of_another_reaches_nobody() {
    if !needs_root() {
        return;
    }
    let daemon = start(&["lab", "corp"]);
    let bus = format!("unix:path={}", daemon.path("run/bus").display());
    let heard = daemon.on_bus(async |connection| {
        let rule = zbus::MatchRule::builder().msg_type(zbus::message::Type::Signal);
        let rule = rule.member(FORGED).build()?;
        let mut signals = zbus::MessageStream::for_match_rule(rule, &connection, None).await?;
        let forge = tokio::task::spawn_blocking(move || run_as(&bus, BACKENDS, "as_a_forger"));
        let mut paths = Vec::new();
        // The last one is from the forger's own path, and is delivered.
        while paths.last() != Some(&backend("lab").path()) {
            let next = std::future::poll_fn(|context| {
                zbus::export::futures_core::Stream::poll_next(
                    std::pin::Pin::new(&mut signals),
                    context,
                )
            });
            let next = tokio::time::timeout(common::SOON, next).await.expect("a signal");
            paths.push(next.expect("the bus")?.header().path().unwrap().to_string());
        }
        forge.await.unwrap();
        Ok(paths)
    });
    assert_eq!(heard.unwrap(), [backend("lab").path()]);
}

/// The signal that a forger sends.
const FORGED: &str = "Changed";

#[test]
#[ignore = "runs under another user, by a_signal_in_the_name_of_another_reaches_nobody"]
fn as_a_forger() {
    run(async {
        let connection = connect().await.unwrap();
        for role in [RoleName::Publisher, RoleName::Monitor, backend("corp"), backend("lab")] {
            let path = role.path();
            let interface = roster_bus::bus_names::BACKEND;
            let body = (1_u64, 1_u64);
            connection.emit_signal(None::<&str>, path, interface, FORGED, &body).await.unwrap();
        }
        // The call is processed after the signals.
        let bus = zbus::fdo::DBusProxy::new(&connection).await.unwrap();
        bus.get_id().await.unwrap();
    });
}

/// Runs one of the tests below under another user.
fn run_as(bus: &str, uid: u32, test: &str) {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command.env(ADDRESS, bus).uid(uid).gid(GROUP).current_dir("/");
    let done = command.output().expect("start this program again");
    let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "as uid {uid}: {text}");
    assert!(text.contains("1 passed"), "{text}");
}

async fn connect() -> zbus::Result<Connection> {
    let address = std::env::var(ADDRESS).expect("the address of the bus");
    zbus::connection::Builder::address(address.as_str()).method_timeout(common::SOON).build().await
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

/// Whether the bus itself refused.
fn is_denied<T>(result: Result<T, impl std::fmt::Debug>) -> bool {
    result.err().is_some_and(|error| format!("{error:?}").contains("AccessDenied"))
}

async fn own(connection: &Connection, role: &RoleName) -> zbus::Result<()> {
    let flags = RequestNameFlags::DO_NOT_QUEUE | RequestNameFlags::REPLACE_EXISTING;
    connection.request_name_with_flags(role.bus_name(), flags).await.map(|_| ())
}

async fn stop(
    connection: &Connection,
    role: &RoleName,
) -> Result<(), roster_bus::interfaces::BusError> {
    let builder = RoleProxy::builder(connection).destination(role.bus_name()).path(role.path());
    builder.build().await?.stop().await
}

fn responder(name: &str) -> RoleName {
    RoleName::Responder(name.to_owned())
}

fn backend(domain: &str) -> RoleName {
    RoleName::Backend(domain.to_owned())
}

async fn backend_proxy<'a>(connection: &'a Connection, domain: &str) -> BackendProxy<'a> {
    let role = backend(domain);
    let builder = BackendProxy::builder(connection).destination(role.bus_name()).path(role.path());
    builder.build().await.unwrap()
}

/// Checks that only root may stop roles.
async fn may_not_stop_anybody(connection: &Connection) {
    for role in [RoleName::Monitor, RoleName::Publisher, backend("lab"), backend("corp")] {
        assert!(is_denied(stop(connection, &role).await), "stopped {role}");
    }
    let monitor = roster_bus::interfaces::MonitorProxy::new(connection).await.unwrap();
    assert!(is_denied(monitor.reload().await), "had the configuration read anew");
}

#[test]
#[ignore = "runs under another user, by the_bus_tells_roles_apart"]
fn as_a_back_end() {
    run(async {
        let connection = connect().await.unwrap();
        let others = [RoleName::Monitor, RoleName::Publisher, backend("corp"), backend("unheard")];
        for role in others.into_iter().chain([RoleName::Responder("nss".into())]) {
            assert!(is_denied(own(&connection, &role).await), "took the name of {role}");
        }
        // The running backend holds the name, and is not replaced.
        let taken = own(&connection, &backend("lab")).await;
        assert!(matches!(taken, Err(zbus::Error::NameTaken)), "{taken:?}");
        may_not_stop_anybody(&connection).await;
        let other = backend_proxy(&connection, "corp").await;
        assert!(is_denied(other.fetch(0, 0).await), "read another domain");
        let publisher = PublisherProxy::new(&connection).await.unwrap();
        assert!(is_denied(publisher.publish().await), "had the publisher work");
    });
}

#[test]
#[ignore = "runs under another user, by the_bus_tells_roles_apart"]
fn as_a_responder() {
    run(async {
        let connection = connect().await.unwrap();
        let others = [RoleName::Monitor, RoleName::Publisher, backend("lab"), responder("metrics")];
        for role in others {
            assert!(is_denied(own(&connection, &role).await), "took the name of {role}");
        }
        may_not_stop_anybody(&connection).await;
        let builder = RoleProxy::builder(&connection).destination(RoleName::Monitor.bus_name());
        let monitor = builder.path(RoleName::Monitor.path()).build().await.unwrap();
        assert!(is_denied(monitor.metrics().await), "read what is the other responder's to read");
        let backend = backend_proxy(&connection, "lab").await;
        assert!(is_denied(backend.fetch(0, 0).await), "read past the publisher");
        let publisher = PublisherProxy::new(&connection).await.unwrap();
        assert!(is_denied(publisher.publish().await), "had the publisher work");
        let name = b"nobody-of-that-name";
        let asked =
            publisher.look_up(0, roster_request::LookupKind::UserByName as u32, name, 0).await;
        assert!(!is_denied(asked), "may not ask the publisher");
    });
}

#[test]
#[ignore = "runs under another user, by the_bus_tells_roles_apart"]
fn as_the_responder_of_metrics() {
    run(async {
        let connection = connect().await.unwrap();
        let others = [RoleName::Monitor, RoleName::Publisher, backend("lab"), responder("nss")];
        for role in others {
            assert!(is_denied(own(&connection, &role).await), "took the name of {role}");
        }
        may_not_stop_anybody(&connection).await;
        let publisher = PublisherProxy::new(&connection).await.unwrap();
        let asked =
            publisher.look_up(0, roster_request::LookupKind::UserByName as u32, b"a", 0).await;
        assert!(is_denied(asked), "asked for users");
    });
}

#[test]
#[ignore = "runs under another user, by the_bus_tells_roles_apart"]
fn as_the_publisher() {
    run(async {
        let connection = connect().await.unwrap();
        for role in [RoleName::Monitor, backend("lab"), RoleName::Responder("nss".into())] {
            assert!(is_denied(own(&connection, &role).await), "took the name of {role}");
        }
        may_not_stop_anybody(&connection).await;
        let backend = backend_proxy(&connection, "lab").await;
        assert!(is_denied(backend.confirm().await), "confirmed a deletion");
        let status = backend.status().await;
        assert!(status.is_ok(), "may not ask a backend: {status:?}");
    });
}

#[test]
#[ignore = "runs under another user, by the_bus_tells_roles_apart"]
fn as_a_stranger() {
    run(async {
        assert!(connect().await.is_err(), "a stranger is on the bus");
    });
}
