//! From the command line to a running monitor: what is missing is said here, before anything starts.

use super::Monitor;
use super::folders::Folders;
use super::settings::Reader;
use super::users::{self, Ids, Users};
use crate::cli::Options;
use crate::exit::{self, Failure, Status};
use crate::logging;
use anyhow::{Context as _, anyhow};
use roster_bus::names::Role;
use roster_config::Host;
use roster_snapshot_build::{floor_file, mark};
use rustix::process::Gid;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

/// Default of `--state-dir`.
const STATE_DIR: &str = "/var/lib/roster";
/// Local users.
const PASSWD: &str = "/etc/passwd";
/// Largest /etc/passwd that is read.
const PASSWD_BYTES_MAX: u64 = 64 << 20;

/// The monitor from its start; gives the exit status.
#[must_use]
pub fn main(options: &Options) -> u8 {
    match run(options) {
        Ok(()) => 0,
        Err(Failure { status, error }) => {
            crate::say(format_args!("rosterd: {error:#}"));
            status
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let ping = ping(options)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().status(exit::SYSTEM)?;
    // From now on: whoever orders a reload while it starts must not end it, as the signal does by
    // itself.
    let hangup = runtime.block_on(async { signal(SignalKind::hangup()) }).status(exit::SYSTEM)?;
    let result = monitor(options, ping, &runtime, hangup);
    // A file that could not be read in time is still waited for by a thread: not by this one.
    runtime.shutdown_background();
    result
}

fn monitor(
    options: &Options,
    ping: Duration,
    runtime: &Runtime,
    hangup: Signal,
) -> Result<(), Failure> {
    let reader = Reader::new();
    let state_dir = options.state_dir.as_deref().unwrap_or(Path::new(STATE_DIR));
    let settings = reader.read(options.config.clone(), state_dir.to_owned(), false);
    let settings = runtime.block_on(settings).status(exit::CONFIG)?;
    let users = users(options, settings.config.domains.len())?;
    let bus_program = bus_program()?;
    let _ = rustix::thread::set_no_new_privs(true);
    // The memory of this process holds passwords.
    let hidden = rustix::process::DumpableBehavior::NotDumpable;
    let _ = rustix::process::set_dumpable_behavior(hidden);
    let publisher = Some(&users).filter(|users| users.are_separate());
    let publisher = publisher.and_then(|users| users.of(&Role::Publisher, &[]));
    let folders = Folders::take(state_dir, &options.run_dir, publisher)?;
    let level = logging::start(&Role::Monitor, &settings.config.log);
    if users.are_separate() {
        write_floor(&settings.config.host);
        // The group of roles opens the folder of the bus's socket, also without the capability to override that. With
        // it, a failure changes nothing.
        let _ = rustix::thread::set_thread_groups(&[Gid::from_raw(users.bus().gid)]);
    }
    runtime.block_on(async {
        let config = std::path::absolute(&options.config).status(exit::SYSTEM)?;
        let settings = (reader, settings);
        let monitor = Monitor::new(config, ping, settings, users, bus_program, folders, level);
        monitor?.run(hangup).await
    })
}

/// Writes the floor, by which programs limit what they accept of the publisher's snapshot. Without it they
/// apply the default floor, so the daemon serves all the same.
pub(super) fn write_floor(host: &Host) {
    let path = floor_file::path();
    match floor_file::write(path, &host.floor()) {
        Ok(true) => info!("{} has min_id {}", path.display(), host.min_id),
        Ok(false) => {}
        Err(error) => warn!(
            "{:#}: programs refuse ids by the floor that they have; see roster doctor",
            anyhow::Error::new(error)
        ),
    }
}

/// Marks a host on which a snapshot was published, so that programs report a missing one as an error.
/// `false` until the mark is there. `is_news`: the log has no failure of it yet.
pub(super) fn mark_published(is_news: bool) -> bool {
    match mark::set(mark::path()) {
        Ok(true) => info!("{} marks that a snapshot was published", mark::path().display()),
        Ok(false) => {}
        Err(error) if is_news => {
            warn!(
                "{}: cannot be created: {error}. Programs take a missing snapshot for a host without \
                 users. Create the file.",
                mark::path().display()
            );
            return false;
        }
        Err(_) => return false,
    }
    true
}

/// How often roles are pinged, and systemd's watchdog with them.
fn ping(options: &Options) -> Result<Duration, Failure> {
    let ping = Duration::try_from_secs_f64(options.ping).ok().filter(|ping| !ping.is_zero());
    let ping = ping.context("--ping: that is no time between two pings").status(exit::USAGE)?;
    Ok(sd_notify::watchdog_enabled().map_or(ping, |watchdog| ping.min(watchdog / 2)))
}

/// Whose processes the roles are.
fn users(options: &Options, domains: usize) -> Result<Users, Failure> {
    let uid = rustix::process::geteuid().as_raw();
    if uid != 0 || options.state_dir.is_some() {
        let gid = rustix::process::getegid().as_raw();
        return Ok(Users::Invoking(Ids { uid, gid }));
    }
    separate_users(domains)
}

/// The users of that many domains' back-ends and of the other roles.
pub(super) fn separate_users(domains: usize) -> Result<Users, Failure> {
    let text = passwd().with_context(|| format!("cannot read {PASSWD}")).status(exit::SYSTEM)?;
    Users::separate(&text, domains)
        .map_err(|missing| {
            anyhow!(
                "{PASSWD} lacks users that roles run as, each with a uid of its own and all with the \
                 group of roster-bus: {}; make them with systemd-sysusers, for which make install puts \
                 roster.conf in place, or with groupadd --system roster and useradd --system --gid \
                 roster; or give --state-dir to run everything as root",
                missing.join(", "),
            )
        })
        .status(exit::NO_USER)
}

/// Whether /etc/passwd has a user of that id.
pub(super) fn is_in_passwd(uid: u32) -> bool {
    passwd().is_ok_and(|text| users::has(&text, uid))
}

fn passwd() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(PASSWD)?.take(PASSWD_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// Where dbus-daemon is.
fn bus_program() -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    let mut candidates =
        std::env::split_paths(&path).chain(usual).map(|folder| folder.join("dbus-daemon"));
    candidates
        .find(|program| program.is_absolute() && program.is_file())
        .context(
            "there is no dbus-daemon, which carries what roles say to each other: install the \
             package dbus-daemon (Debian, Fedora) or dbus",
        )
        .status(exit::UNAVAILABLE)
}
