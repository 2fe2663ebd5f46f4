// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the command line to a running monitor. Missing requirements are reported here, before anything starts.
//! `config_load` reads the configuration, and `monitor` runs afterwards.

use super::Monitor;
use super::config_load::ConfigReader;
use super::role_users::{self, RoleUsers};
use super::runtime_dirs::{self, RuntimeDirs};
use crate::args::MonitorOptions;
use roster_bus::bus_names::RoleName;
use roster_config::HostConfig;
use roster_messages::{CodedError, log, table::daemon};
use roster_role::UserIds;
use roster_role::error_code::WithCode;
use roster_role::exit_status::{self, ExitFailure, WithExitStatus};
use roster_role::logging;
use roster_role::metrics::Counters;
use roster_snapshot_build::{floor_file, mark};
use rustix::process::Gid;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// Default of `--state-dir`.
const STATE_DIR: &str = "/var/lib/roster";
/// Local users.
const PASSWD: &str = "/etc/passwd";
/// Largest /etc/passwd that is read.
const PASSWD_BYTES_MAX: u64 = 64 << 20;

/// Runs the monitor from its start. Returns the exit status.
#[must_use]
pub fn main(options: &MonitorOptions) -> u8 {
    match run(options) {
        Ok(()) => 0,
        Err(ExitFailure { status, errors }) => {
            logging::print_stderr(format_args!("rosterd: {errors}"));
            status
        }
    }
}

fn run(options: &MonitorOptions) -> Result<(), ExitFailure> {
    let ping = ping_interval(options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .with_code(&daemon::PROCESS_SETUP_FAILED, || "cannot start the event loop")
        .with_exit_status(exit_status::SYSTEM)?;
    // From now on a reload request during the start does not end the process, which is the default action of the
    // signal.
    let hangup = runtime
        .block_on(async { signal(SignalKind::hangup()) })
        .with_code(&daemon::PROCESS_SETUP_FAILED, || "cannot receive SIGHUP")
        .with_exit_status(exit_status::SYSTEM)?;
    let result = start_monitor(options, ping, &runtime, hangup);
    // A thread may still wait for a file that could not be read in time. The program does not wait for that thread.
    runtime.shutdown_background();
    result
}

fn start_monitor(
    options: &MonitorOptions,
    ping: Duration,
    runtime: &Runtime,
    hangup: Signal,
) -> Result<(), ExitFailure> {
    let reader = ConfigReader::new();
    let state_dir = options.state_dir.as_deref().unwrap_or(Path::new(STATE_DIR));
    let settings = reader.read(options.config.clone(), state_dir.to_owned(), false);
    let settings = runtime.block_on(settings).with_exit_status(exit_status::CONFIG)?;
    let users = role_users(options, settings.config.domains.len())?;
    let bus_program = bus_program()?;
    let _ = rustix::thread::set_no_new_privs(true);
    // The memory of this process has passwords.
    let hidden = rustix::process::DumpableBehavior::NotDumpable;
    let _ = rustix::process::set_dumpable_behavior(hidden);
    let publisher = Some(&users).filter(|users| users.are_separate());
    let publisher = publisher.and_then(|users| users.user_of_role(&RoleName::Publisher, &[]));
    let folders = RuntimeDirs::create_and_lock(state_dir, &options.run_dir, publisher)?;
    // Counts from the first event of the log.
    let counters = Counters::start();
    let level = logging::start(&RoleName::Monitor, &settings.config.log);
    if users.are_separate() {
        write_floor(floor_file::path(), &settings.config.host);
        // The group of roles gives access to the directory of the bus's socket, also without the capability to override
        // that. With it, a failure changes nothing.
        let _ = rustix::thread::set_thread_groups(&[Gid::from_raw(users.bus().gid)]);
    }
    runtime.block_on(async {
        let config = runtime_dirs::absolute(&options.config);
        let config = config.with_exit_status(exit_status::SYSTEM)?;
        let (settings, log) = ((reader, settings), (level, counters));
        let monitor = Monitor::new(config, ping, settings, users, bus_program, folders, log);
        monitor?.run(hangup).await
    })
}

/// Writes the floor, with which programs limit the ids that they accept from the publisher's snapshot. Without it they
/// apply the default floor, so the daemon continues after an error.
pub(super) fn write_floor(path: &Path, host: &HostConfig) {
    match floor_file::write(path, &host.floor()) {
        Ok(true) => info!("{} has min_id {}", path.display(), host.min_id),
        Ok(false) => {}
        Err(error) => log!(
            WARN,
            &daemon::FLOOR_UNWRITABLE,
            "{:#}; programs apply the previous min_id",
            anyhow::Error::new(error)
        ),
    }
}

/// Marks a host on which a snapshot was published, so that programs report a missing one as an error. Returns `false`
/// until the mark exists. `is_news`: the log does not have the failure yet.
pub(super) fn mark_published(path: &Path, is_news: bool) -> bool {
    match mark::set(path) {
        Ok(true) => info!("{} marks that a snapshot was published", path.display()),
        Ok(false) => {}
        Err(error) if is_news => {
            log!(
                WARN,
                &daemon::PUBLISHED_MARK_UNWRITABLE,
                "{}: cannot be created: {error}",
                path.display()
            );
            return false;
        }
        Err(_) => return false,
    }
    true
}

/// Returns the interval of pings to roles, and of systemd's watchdog.
fn ping_interval(options: &MonitorOptions) -> Result<Duration, ExitFailure> {
    let ping = Duration::try_from_secs_f64(options.ping).ok().filter(|ping| !ping.is_zero());
    let invalid = || CodedError::new(&daemon::PING_INTERVAL_INVALID, "--ping: invalid interval");
    let ping = ping.ok_or_else(invalid).with_exit_status(exit_status::USAGE)?;
    Ok(sd_notify::watchdog_enabled().map_or(ping, |watchdog| ping.min(watchdog / 2)))
}

/// Returns the users of the roles.
fn role_users(options: &MonitorOptions, domains: usize) -> Result<RoleUsers, ExitFailure> {
    let uid = rustix::process::geteuid().as_raw();
    if uid != 0 || options.state_dir.is_some() {
        let gid = rustix::process::getegid().as_raw();
        return Ok(RoleUsers::Invoking(UserIds { uid, gid }));
    }
    separate_users(domains)
}

/// Returns the users of that many backends and of the other roles.
pub(super) fn separate_users(domains: usize) -> Result<RoleUsers, ExitFailure> {
    let text = read_passwd()
        .with_code(&daemon::PASSWD_UNREADABLE, || format!("{PASSWD}: cannot be read"))
        .with_exit_status(exit_status::SYSTEM)?;
    RoleUsers::from_passwd(&text, domains)
        .map_err(|missing| {
            let text = format!(
                "{PASSWD}: missing users, or users without a separate uid and the primary group of \
                 roster-bus: {}",
                missing.join(", "),
            );
            CodedError::new(&daemon::ROLE_USERS_MISSING, text)
        })
        .with_exit_status(exit_status::NO_USER)
}

/// Whether /etc/passwd has a user of that id.
pub(super) fn is_in_passwd(uid: u32) -> bool {
    read_passwd().is_ok_and(|text| role_users::has_uid(&text, uid))
}

fn read_passwd() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(PASSWD)?.take(PASSWD_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// Returns the path of dbus-daemon.
fn bus_program() -> Result<PathBuf, ExitFailure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    find_bus_program(std::env::split_paths(&path).chain(usual))
        .with_exit_status(exit_status::UNAVAILABLE)
}

fn find_bus_program(folders: impl Iterator<Item = PathBuf>) -> Result<PathBuf, CodedError> {
    let mut candidates = folders.map(|folder| folder.join("dbus-daemon"));
    candidates.find(|program| program.is_absolute() && program.is_file()).ok_or_else(|| {
        let text = "dbus-daemon: not found in PATH or /usr/bin";
        CodedError::new(&daemon::DBUS_DAEMON_MISSING, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_system_tests::logged_codes::logged_codes;
    use std::fs;

    #[test]
    fn startup_without_bus_program_has_code() {
        let folder = tempfile::tempdir().expect("a directory");
        let found = || find_bus_program([PathBuf::new(), folder.path().to_owned()].into_iter());
        assert_eq!(found().expect_err("none").message, &daemon::DBUS_DAEMON_MISSING);
        let program = folder.path().join("dbus-daemon");
        fs::write(&program, "").expect("write");
        assert_eq!(found().expect("it is there"), program);
    }

    #[test]
    fn startup_file_not_written_is_logged() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("missing/file");
        let text = "[host]\ndomains = [\"lab\"]\n[domain.lab]\nprovider = \"files\"\n\
                    passwd = \"/p\"\ngroup = \"/g\"\n";
        let host = roster_config::parse(text).expect("valid").config.host;
        let logged = logged_codes(|| write_floor(&path, &host));
        assert_eq!(logged, [&daemon::FLOOR_UNWRITABLE]);
        let logged = logged_codes(|| {
            for is_news in [true, false] {
                assert!(!mark_published(&path, is_news));
            }
        });
        assert_eq!(logged, [&daemon::PUBLISHED_MARK_UNWRITABLE]);
    }
}
