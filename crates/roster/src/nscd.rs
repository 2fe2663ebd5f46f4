//! `roster nscd`: the server of prebuilt maps on its own, and what root may tell one.

use crate::args::NscdArgs;
use crate::output::print_stderr;
use anyhow::{Context, Result, bail};
use roster_nscd::server::drop_privileges::{PrivilegeError, ServerAccounts};
use roster_nscd::server::map_sources::SourceFiles;
use roster_nscd::server::{self, ServerOptions, socket};
use roster_nscd::starter::{self, Starter};
use roster_nscd::{nss_helper, protocol};
use rustix::io::Errno;
use rustix::net::sockopt::socket_acceptconn;
use sd_notify::NotifyState;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a server may take to do as it is told: to make a large map is the longest.
const ADMIN_REQUEST_WAIT: Duration = Duration::from_secs(60);
/// How long it may take to tell its figures: programs wait for no server longer.
const STATISTICS_WAIT: Duration = Duration::from_secs(5);
/// How long a server that cannot begin sends everybody away before it ends.
const FAILED_START_WAIT: Duration = Duration::from_secs(5);
/// The most that a server says of itself.
const STATISTICS_BYTES_MAX: u64 = 64 << 10;

/// Why there is no answer to an order.
const REQUEST_REJECTED: &str = "the server takes orders from root, and none while it has nowhere to keep maps (its log says why)";

/// Serves, or tells a server what to do.
pub fn run(options: &NscdArgs, out: &mut dyn Write) -> Result<()> {
    if options.statistics {
        out.write_all(&statistics(&options.socket)?)?;
        return Ok(());
    }
    if options.shutdown {
        return match reply_status(&send_admin_request(&options.socket, 8, b"")?) {
            Some(0) => Ok(()),
            // nscd's own says nothing.
            None if rustix::process::geteuid().is_root() => Ok(()),
            _ => bail!("{REQUEST_REJECTED}"),
        };
    }
    for table in &options.invalidate {
        let key = [table.as_bytes(), b"\0"].concat();
        match reply_status(&send_admin_request(&options.socket, 10, &key)?) {
            Some(0) => {}
            None => bail!("{table}: {REQUEST_REJECTED}"),
            Some(status) if status == Errno::PERM.raw_os_error() => {
                bail!("{table}: {REQUEST_REJECTED}")
            }
            Some(_) => bail!("{table}: no new map could be made; the server's log says why"),
        }
    }
    if options.invalidate.is_empty() { serve(options) } else { Ok(()) }
}

/// What came of an order: 0, an errno, or nothing that was said.
fn reply_status(said: &[u8]) -> Option<i32> {
    said.first_chunk::<4>().map(|status| i32::from_ne_bytes(*status))
}

/// What the server at that socket says of itself.
pub fn statistics(socket: &Path) -> Result<Vec<u8>> {
    send_admin_request(socket, 9, b"")
}

/// Sends a request of nscd's protocol and reads to the end of the answer.
fn send_admin_request(path: &Path, number: i32, key: &[u8]) -> Result<Vec<u8>> {
    let mut socket =
        UnixStream::connect(path).with_context(|| format!("nobody serves {}", path.display()))?;
    socket.set_read_timeout(Some(if number == 9 {
        STATISTICS_WAIT
    } else {
        ADMIN_REQUEST_WAIT
    }))?;
    let length = i32::try_from(key.len()).unwrap_or(i32::MAX);
    let mut request = protocol::bytes(&[protocol::VERSION, number, length]);
    request.extend_from_slice(key);
    let mut answer = Vec::new();
    let answered = socket
        .write_all(&request)
        .and_then(|()| socket.take(STATISTICS_BYTES_MAX).read_to_end(&mut answer).map(drop));
    match answered {
        // Who is sent away may find the connection closed before it has asked.
        Err(error)
            if ![ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&error.kind()) =>
        {
            return Err(error).with_context(|| format!("{} does not answer", path.display()));
        }
        _ => {}
    }
    if number == 9 && answer.is_empty() {
        bail!("{}: {REQUEST_REJECTED}", path.display());
    }
    Ok(answer)
}

fn serve(options: &NscdArgs) -> Result<()> {
    // Held open for as long as the process lives: what stops it is a signal.
    let (stop, _running) = UnixStream::pair()?;
    let administrator = rustix::process::getuid().as_raw();
    let (listener, is_handed_over) = listener(options)?;
    let starter = match start_starter(options) {
        Err(error) if is_handed_over => {
            // Whoever is in the queue, or comes until the unit is started again, does not wait for that.
            print_stderr(format_args!("roster: {error}; programs ask their name services"));
            server::redirect_clients(listener.as_fd(), None, FAILED_START_WAIT)?;
            return Err(error.into());
        }
        started => started?,
    };
    let options = ServerOptions {
        listener,
        administrator,
        maps: options.maps.clone(),
        files: SourceFiles {
            passwd: options.passwd.clone(),
            group: options.group.clone(),
            nsswitch: options.nsswitch.clone(),
            snapshot: options.snapshot.clone(),
        },
        cache_bytes: (options.cache_kib as usize) << 10,
        positive_ttl: Duration::from_secs(options.positive.into()),
        negative_ttl: Duration::from_secs(options.negative.into()),
        stop: stop.into(),
        log: Box::new(|text| print_stderr(format_args!("roster: {text}"))),
        on_progress: Box::new(|| notify_systemd(NotifyState::Watchdog)),
        ready: Box::new(|| notify_systemd(NotifyState::Ready)),
    };
    server::run(options, starter).map_err(Into::into)
}

/// Starts the process that starts helpers, and becomes the server's user.
fn start_starter(options: &NscdArgs) -> Result<Starter, PrivilegeError> {
    let Some(name) = &options.user else {
        return Starter::start(None).map_err(PrivilegeError::Starter);
    };
    let accounts = ServerAccounts::from_passwd(name, &options.passwd)?;
    if let Err(error) = accounts.take_ownership(&options.maps) {
        // The server looks at the folder again and again.
        print_stderr(format_args!("roster: {error}"));
    }
    accounts.drop_privileges()
}

/// The socket that systemd hands over as standard input, or one that is made; whether it was handed over.
fn listener(options: &NscdArgs) -> Result<(OwnedFd, bool)> {
    let input = io::stdin().as_fd().try_clone_to_owned();
    if let Some(input) = input.ok().filter(|input| socket_acceptconn(input) == Ok(true)) {
        socket::check_path(&input)?;
        return Ok((input, true));
    }
    Ok((socket::listen_at(&options.socket)?, false))
}

/// Tells systemd, if it is there, how the server is: sd_notify(3).
fn notify_systemd(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        print_stderr(format_args!("roster: cannot tell the service manager: {error}"));
    }
}

/// The helper process.
pub fn run_helper() -> Result<()> {
    nss_helper::main().context("the server is gone")
}

/// The process that starts helpers.
pub fn run_helper_starter() -> Result<()> {
    starter::main().context("the server is gone")
}
