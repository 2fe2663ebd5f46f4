// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster nscd`: runs a standalone server of prebuilt maps, and sends admin requests to one. `roster-nscd` has the
//! server itself.

use crate::args::NscdArgs;
use crate::output::print_stderr;
use anyhow::Result;
use roster_messages::table::tools;
use roster_messages::{CodedError, Message};
use roster_nscd::server::drop_privileges::{PrivilegeError, ServerAccounts};
use roster_nscd::server::map_sources::SourceFiles;
use roster_nscd::server::{self, ServerOptions, socket, with_causes};
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

/// Timeout of an admin request. The rebuild of a large map takes longest.
const ADMIN_REQUEST_WAIT: Duration = Duration::from_secs(60);
/// Timeout of statistics, the same as of clients.
const STATISTICS_WAIT: Duration = Duration::from_secs(5);
/// Time for which a server that cannot start redirects clients before it exits.
const FAILED_START_WAIT: Duration = Duration::from_secs(5);
/// Maximum size of statistics.
const STATISTICS_BYTES_MAX: u64 = 64 << 10;

/// Runs the server, or sends requests to one.
pub fn run(options: &NscdArgs, out: &mut dyn Write) -> Result<()> {
    let socket = options.socket.display();
    if options.statistics {
        out.write_all(&statistics(&options.socket)?)?;
        return Ok(());
    }
    if options.shutdown {
        return match reply_status(&send_admin_request(&options.socket, 8, b"")?) {
            Some(0) => Ok(()),
            // The server of glibc sends no reply.
            None if rustix::process::geteuid().is_root() => Ok(()),
            reply => Err(rejected(&socket.to_string(), reply)),
        };
    }
    for table in &options.invalidate {
        let key = [table.as_bytes(), b"\0"].concat();
        match reply_status(&send_admin_request(&options.socket, 10, &key)?) {
            Some(0) => {}
            reply => return Err(rejected(&format!("{socket}: {table}"), reply)),
        }
    }
    if options.invalidate.is_empty() { serve(options) } else { Ok(()) }
}

/// Returns the error of a rejected request. `reply` is an errno, or `None` without a reply.
fn rejected(object: &str, reply: Option<i32>) -> anyhow::Error {
    let (message, text) = match reply {
        None => (&tools::NSCD_REQUEST_REJECTED, "the server rejects the request"),
        Some(status) if status == Errno::PERM.raw_os_error() => {
            (&tools::NSCD_REQUEST_DENIED, "the server denies the request")
        }
        Some(_) => (&tools::NSCD_REBUILD_FAILED, "the server made no new map"),
    };
    CodedError::new(message, format!("{object}: {text}")).into()
}

/// Adds the code to an error with its causes.
fn coded(message: &'static Message, error: &dyn std::error::Error) -> CodedError {
    CodedError::new(message, with_causes(error))
}

fn coded_privilege_error(error: &PrivilegeError) -> CodedError {
    CodedError { fix: error.fix(), ..coded(error.message(), error) }
}

/// Parses a reply: 0, an errno, or `None` without a reply.
fn reply_status(said: &[u8]) -> Option<i32> {
    said.first_chunk::<4>().map(|status| i32::from_ne_bytes(*status))
}

/// Requests the statistics of the server at a socket.
pub fn statistics(socket: &Path) -> Result<Vec<u8>> {
    send_admin_request(socket, 9, b"")
}

/// Sends a request of nscd's protocol and reads the whole reply.
fn send_admin_request(path: &Path, number: i32, key: &[u8]) -> Result<Vec<u8>> {
    let shown = path.display();
    let mut socket = UnixStream::connect(path).map_err(|error| {
        let text = format!("{shown}: no server is listening");
        CodedError::new(&tools::NSCD_NOT_RUNNING, text).caused_by(error)
    })?;
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
        // A server that rejects the client may close the connection before the request.
        Err(error)
            if ![ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&error.kind()) =>
        {
            let text = format!("{shown}: no reply");
            let error = CodedError::new(&tools::NSCD_NO_REPLY_IN_TIME, text).caused_by(error);
            return Err(error.into());
        }
        _ => {}
    }
    if number == 9 && answer.is_empty() {
        return Err(rejected(&shown.to_string(), None));
    }
    Ok(answer)
}

fn serve(options: &NscdArgs) -> Result<()> {
    // The socket stays open as long as the process, because a signal stops the server.
    let (stop, _running) = UnixStream::pair()?;
    let administrator = rustix::process::getuid().as_raw();
    let (listener, is_handed_over) = listener(options)?;
    let starter = match start_starter(options) {
        Err(error) if is_handed_over => {
            let error = coded_privilege_error(&error);
            // Clients in the queue, and new ones until the restart of the unit, do not wait.
            print_stderr(format_args!("roster: clients use their name services: {error}"));
            server::redirect_clients(listener.as_fd(), None, FAILED_START_WAIT)?;
            return Err(error.into());
        }
        started => started.map_err(|error| coded_privilege_error(&error))?,
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
    server::run(options, starter).map_err(|error| coded(error.message(), &error).into())
}

/// Starts the process that starts helpers, and changes to the server's user.
fn start_starter(options: &NscdArgs) -> Result<Starter, PrivilegeError> {
    let Some(name) = &options.user else {
        return Starter::start(None).map_err(PrivilegeError::Starter);
    };
    let accounts = ServerAccounts::from_passwd(name, &options.passwd)?;
    if let Err(error) = accounts.take_ownership(&options.maps) {
        // The server checks the directory periodically.
        print_stderr(format_args!("roster: {}", coded_privilege_error(&error)));
    }
    accounts.drop_privileges()
}

/// Returns the socket that systemd passes as standard input, or a new one, and whether systemd passed it.
fn listener(options: &NscdArgs) -> Result<(OwnedFd, bool)> {
    let input = io::stdin().as_fd().try_clone_to_owned();
    if let Some(input) = input.ok().filter(|input| socket_acceptconn(input) == Ok(true)) {
        socket::check_path(&input).map_err(|error| coded(error.message(), &error))?;
        return Ok((input, true));
    }
    let made = socket::listen_at(&options.socket);
    Ok((made.map_err(|error| coded(error.message(), &error))?, false))
}

/// Reports the state of the server to systemd, if it runs there: sd_notify(3).
fn notify_systemd(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        let text = "service manager: not notified";
        let error = CodedError::new(&tools::NSCD_NOTIFY_FAILED, text).caused_by(error);
        print_stderr(format_args!("roster: {error}"));
    }
}

/// Runs the helper process.
pub fn run_helper() -> Result<()> {
    nss_helper::main().map_err(server_gone)
}

/// Runs the process that starts helpers.
pub fn run_helper_starter() -> Result<()> {
    starter::main().map_err(server_gone)
}

fn server_gone(error: io::Error) -> anyhow::Error {
    CodedError::new(&tools::NSCD_SERVER_GONE, "nscd server: gone").caused_by(error).into()
}
