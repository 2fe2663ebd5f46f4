//! `roster nscd`: the server of prebuilt maps on its own, and what root may tell one.

use crate::cli::Nscd;
use crate::terminal::say;
use anyhow::{Context, Result, bail};
use roster_nscd::server::figures::Figures;
use roster_nscd::server::rights::{Accounts, RightsError};
use roster_nscd::server::sources::Files;
use roster_nscd::server::{self, Options, socket};
use roster_nscd::starter::{self, Starter};
use roster_nscd::{host, protocol};
use rustix::io::Errno;
use rustix::net::sockopt::socket_acceptconn;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a server may take to do as it is told: to make a large map is the longest.
const ORDER_WAIT: Duration = Duration::from_secs(60);
/// How long it may take to tell its figures: programs wait for no server longer.
const FIGURES_WAIT: Duration = Duration::from_secs(5);
/// How long a server that cannot begin sends everybody away before it ends.
const BEFORE_END: Duration = Duration::from_secs(5);
/// The most that a server says of itself.
const FIGURES_BYTES_MAX: u64 = 64 << 10;

/// Why there is no answer to an order.
const REFUSED: &str = "the server takes orders from root, and none while it has nowhere to keep maps (its log says why)";

/// Serves, or tells a server what to do.
pub fn run(options: &Nscd, out: &mut dyn Write) -> Result<()> {
    if options.statistics {
        out.write_all(&figures(&options.socket)?)?;
        return Ok(());
    }
    if options.shutdown {
        return match done(&order(&options.socket, 8, b"")?) {
            Some(0) => Ok(()),
            // nscd's own says nothing.
            None if rustix::process::geteuid().is_root() => Ok(()),
            _ => bail!("{REFUSED}"),
        };
    }
    for table in &options.invalidate {
        let key = [table.as_bytes(), b"\0"].concat();
        match done(&order(&options.socket, 10, &key)?) {
            Some(0) => {}
            None => bail!("{table}: {REFUSED}"),
            Some(status) if status == Errno::PERM.raw_os_error() => bail!("{table}: {REFUSED}"),
            Some(_) => bail!("{table}: no new map could be made; the server's log says why"),
        }
    }
    if options.invalidate.is_empty() { serve(options) } else { Ok(()) }
}

/// What came of an order: 0, an errno, or nothing that was said.
fn done(said: &[u8]) -> Option<i32> {
    said.first_chunk::<4>().map(|status| i32::from_ne_bytes(*status))
}

/// What the server at that socket says of itself.
pub fn figures(socket: &Path) -> Result<Vec<u8>> {
    order(socket, 9, b"")
}

/// Sends a request of nscd's protocol and reads to the end of the answer.
fn order(path: &Path, number: i32, key: &[u8]) -> Result<Vec<u8>> {
    let mut socket =
        UnixStream::connect(path).with_context(|| format!("nobody serves {}", path.display()))?;
    socket.set_read_timeout(Some(if number == 9 { FIGURES_WAIT } else { ORDER_WAIT }))?;
    let length = i32::try_from(key.len()).unwrap_or(i32::MAX);
    let mut request = protocol::bytes(&[protocol::VERSION, number, length]);
    request.extend_from_slice(key);
    let mut answer = Vec::new();
    let answered = socket
        .write_all(&request)
        .and_then(|()| socket.take(FIGURES_BYTES_MAX).read_to_end(&mut answer).map(drop));
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
        bail!("{}: {REFUSED}", path.display());
    }
    Ok(answer)
}

fn serve(options: &Nscd) -> Result<()> {
    // Held open for as long as the process lives: what stops it is a signal.
    let (stop, _running) = UnixStream::pair()?;
    let administrator = rustix::process::getuid().as_raw();
    let (listener, is_handed_over) = listener(options)?;
    let starter = match part(options) {
        Err(error) if is_handed_over => {
            // Whoever is in the queue, or comes until the unit is started again, does not wait for that.
            say(format_args!("roster: {error}; programs ask their name services"));
            server::send_away(listener.as_fd(), None, BEFORE_END)?;
            return Err(error.into());
        }
        started => started?,
    };
    let options = Options {
        listener,
        administrator,
        maps: options.maps.clone(),
        files: Files {
            passwd: options.passwd.clone(),
            group: options.group.clone(),
            nsswitch: options.nsswitch.clone(),
            snapshot: options.snapshot.clone(),
        },
        room: (options.room as usize) << 10,
        positive: Duration::from_secs(options.positive.into()),
        negative: Duration::from_secs(options.negative.into()),
        stop: stop.into(),
        figures: Arc::new(Mutex::new(Figures::default())),
        say: Box::new(|_, text| say(format_args!("roster: {text}"))),
        alive: Box::new(|| tell("WATCHDOG=1")),
        ready: Box::new(|| tell("READY=1")),
    };
    server::run(options, starter).map(drop).map_err(Into::into)
}

/// Starts the process that starts helpers, and becomes the server's user.
fn part(options: &Nscd) -> Result<Starter, RightsError> {
    let Some(name) = &options.user else {
        return Starter::start(None).map_err(RightsError::Starter);
    };
    let accounts = Accounts::of(name, &options.passwd)?;
    if let Err(error) = accounts.own(&options.maps) {
        // The server looks at the folder again and again.
        say(format_args!("roster: {error}"));
    }
    accounts.part()
}

/// The socket that systemd hands over as standard input, or one that is made; whether it was handed over.
fn listener(options: &Nscd) -> Result<(OwnedFd, bool)> {
    let input = io::stdin().as_fd().try_clone_to_owned();
    if let Some(input) = input.ok().filter(|input| socket_acceptconn(input) == Ok(true)) {
        socket::check_path(&input)?;
        return Ok((input, true));
    }
    Ok((socket::listen_at(&options.socket)?, false))
}

/// Tells systemd, if it is there, how the server is: sd_notify(3).
fn tell(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let told = UnixDatagram::unbound().and_then(|socket| {
        match path.as_encoded_bytes().strip_prefix(b"@") {
            Some(name) => {
                use std::os::linux::net::SocketAddrExt;
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                socket.send_to_addr(state.as_bytes(), &address)
            }
            None => socket.send_to(state.as_bytes(), path),
        }
    });
    if let Err(error) = told {
        say(format_args!("roster: cannot tell the service manager: {error}"));
    }
}

/// The helper process.
pub fn help() -> Result<()> {
    host::main().context("the server is gone")
}

/// The process that starts helpers.
pub fn start_helpers() -> Result<()> {
    starter::main().context("the server is gone")
}
