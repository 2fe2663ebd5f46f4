// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon for clients of oslo.rootwrap: its socket and key, admission, and its end. `connection` serves one client.
//!
//! One thread waits for connections, signals, the end of the client, and the idle time. Each connection has its own
//! thread. A user without this right is rejected before any data. A connection without a proof of the key is evicted
//! for the next one, so that it cannot block the client.

use super::client_table::ClientTable;
use super::command_io::TransferLimits;
use super::connection::serve;
use super::hmac_handshake::{KEY_BYTES, random_bytes};
use super::services::{ObjectNames, OsloServices};
use super::socket::OsloSocket;
use crate::exec::Executor;
use crate::host_facts::LocalHost;
use crate::rootwrap_policy::RootwrapPolicy;
use crate::syslog::Syslog;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Limit of accepted connections in one round of the loop.
const ACCEPTED_PER_ROUND: usize = 16;
/// Limit of the wait for a client to read a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(600);
/// Stack of a thread. Lookups of users in the C library need most of it.
const STACK_BYTES: usize = 512 << 10;
/// Pause after a failed system call for a descriptor or a thread.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Serves clients until the daemon stops. It writes the path of the socket and the key to standard output, and logs in
/// the name of `program`.
pub fn serve_oslo_clients(
    policy: RootwrapPolicy,
    mut executor: Executor,
    program: &Path,
    allowed_uids: &[u32],
) -> io::Result<()> {
    let (end, ends) = UnixStream::pair()?;
    ends.set_nonblocking(true)?;
    for signal in
        [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP]
    {
        signal_hook::low_level::pipe::register(signal, end.try_clone()?)?;
    }
    executor.isolate_spawner();
    let allowed = AllowedUids::new(allowed_uids)?;
    let socket = OsloSocket::new(&allowed.0)?;
    let bounds =
        TransferLimits { bytes_max: policy.conf.data_max, buffer_dir: socket.dir().to_owned() };
    let syslog = Syslog::new(&policy.conf, program);
    let idle_seconds = u64::try_from(policy.conf.daemon_timeout).unwrap_or(0);
    let services = Arc::new(OsloServices {
        policy,
        host: LocalHost::new(),
        executor,
        syslog,
        transfer_limits: bounds,
        key: random_bytes()?,
        clients: ClientTable::new(idle_seconds),
        objects: ObjectNames::default(),
        end_pipe: end,
    });
    let client = announce_socket(&socket, &services.key)?;
    run_accept_loop(&services, &socket, &allowed, client.as_ref(), &ends);
    let folder = socket.close();
    services.clients.finish();
    drop(folder);
    Ok(())
}

/// Writes the path and the key to the client, and replaces the standard streams. Returns the pipe that the client's end
/// closes.
fn announce_socket(socket: &OsloSocket, key: &[u8; KEY_BYTES]) -> io::Result<Option<OwnedFd>> {
    let mut message = socket.path().as_os_str().as_encoded_bytes().to_vec();
    message.push(b'\n');
    message.extend(key);
    let client = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    // The message is one write, because some readers do not wait for the rest of the key. `Stdout` would flush at each
    // newline, which a key may contain.
    File::from(client.try_clone()?).write_all(&message)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let kind = FileType::from_raw_mode(fstat(&client)?.st_mode);
    Ok(matches!(kind, FileType::Fifo | FileType::Socket).then_some(client))
}

/// Users with access: root, the caller of sudo, the owner of standard output, and those of the command line.
struct AllowedUids(Vec<u32>);

impl AllowedUids {
    fn new(named: &[u32]) -> io::Result<Self> {
        let mut uids = vec![0, fstat(rustix::stdio::stdout())?.st_uid];
        uids.extend(std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse::<u32>().ok()));
        uids.extend(named);
        Ok(Self(uids))
    }

    fn contains_peer(&self, stream: &UnixStream) -> bool {
        roster_fd_passing::peer_credentials(stream).is_ok_and(|peer| self.0.contains(&peer.uid))
    }
}

/// Accepts connections until the daemon stops.
fn run_accept_loop(
    services: &Arc<OsloServices>,
    socket: &OsloSocket,
    allowed: &AllowedUids,
    client: Option<&OwnedFd>,
    mut ends: &UnixStream,
) {
    let clients = &services.clients;
    loop {
        let mut fds =
            vec![PollFd::new(socket.listener(), PollFlags::IN), PollFd::new(ends, PollFlags::IN)];
        // The poll only reports that the reader has closed the pipe.
        fds.extend(client.map(|client| PollFd::new(client, PollFlags::empty())));
        let timeout = Timespec::try_from(clients.next_deadline()).ok();
        if !matches!(poll(&mut fds, timeout.as_ref()), Ok(_) | Err(rustix::io::Errno::INTR)) {
            return;
        }
        let found: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let is_told = found[1] && ends.read(&mut [0; 64]).is_ok_and(|count| count > 0);
        if is_told || found.get(2) == Some(&true) || clients.is_idle() {
            return;
        }
        clients.evict_expired();
        let came = std::iter::from_fn(|| accept_one(socket));
        // Each accepted connection may have to be closed.
        let is_behind = found[0] && clients.has_pending_closings();
        if is_behind {
            thread::sleep(RETRY_PAUSE);
        }
        for stream in came.take(if found[0] && !is_behind { ACCEPTED_PER_ROUND } else { 0 }) {
            match allowed.contains_peer(&stream) {
                true => spawn_connection(services, stream),
                false => clients.close_stream(stream),
            }
        }
    }
}

/// Starts a thread for a connection, if there is a slot.
fn spawn_connection(services: &Arc<OsloServices>, stream: UnixStream) {
    let Some((number, stream)) = services.clients.admit(stream) else { return };
    let shared = Arc::clone(services);
    let thread = thread::Builder::new().stack_size(STACK_BYTES).name("connection".into());
    let started = thread.spawn(move || {
        let ready = stream.set_write_timeout(Some(REPLY_TIMEOUT));
        // A client that breaks the connection gets no reply.
        let _ = ready.and_then(|()| serve(&shared, number, &stream));
        // The client sees the end before the table forgets the connection.
        let _ = stream.shutdown(Shutdown::Both);
        shared.clients.drop_stream(number);
        drop(stream);
        shared.clients.remove_connection(number);
    });
    if started.is_err() {
        services.clients.remove_connection(number);
    }
}

fn accept_one(socket: &OsloSocket) -> Option<UnixStream> {
    match socket.listener().accept() {
        Ok((stream, _)) => Some(stream),
        Err(error)
            if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) =>
        {
            None
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(_) => {
            thread::sleep(RETRY_PAUSE);
            None
        }
    }
}
