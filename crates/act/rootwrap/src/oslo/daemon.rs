//! The daemon: its socket and key, who may connect and how many, and its end.
//!
//! One thread waits: for connections, signals, the client's end and the time to end for want of work. Each
//! connection has a thread of its own. A stranger is turned away before a byte passes, and who may
//! connect and does not show the key in time makes room for the next; so neither can keep the
//! client out.

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

/// Connections that are taken before it is looked again what else there is to do.
const ACCEPTED_PER_ROUND: usize = 16;
/// How long a client may leave an answer lying.
const REPLY_TIMEOUT: Duration = Duration::from_secs(600);
/// Nothing here goes deep; the C library's look-up of users needs the most.
const STACK_BYTES: usize = 512 << 10;
/// After which the system is asked again for a descriptor or a thread that it did not have.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Serves clients until there is a reason to end. Standard output gets the socket's path and the key; the
/// log is told in the name of `program`.
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

/// Tells the client where and by what key to connect, and leaves its streams alone from then on. What
/// is returned is the pipe whose other end goes with the client.
fn announce_socket(socket: &OsloSocket, key: &[u8; KEY_BYTES]) -> io::Result<Option<OwnedFd>> {
    let mut message = socket.path().as_os_str().as_encoded_bytes().to_vec();
    message.push(b'\n');
    message.extend(key);
    let client = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    // In one piece: not every reader waits for the rest of the key. `Stdout` ends one behind each newline, and a
    // key may have such bytes.
    File::from(client.try_clone()?).write_all(&message)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let kind = FileType::from_raw_mode(fstat(&client)?.st_mode);
    Ok(matches!(kind, FileType::Fifo | FileType::Socket).then_some(client))
}

/// Who may connect: root, who called sudo, who reads our standard output, and whom the call names.
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

/// Takes connections until there is a reason to end.
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
        // Nothing but that nobody reads it any more.
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
        // Each connection may have to be closed.
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

/// Gives a connection a thread, if there is room.
fn spawn_connection(services: &Arc<OsloServices>, stream: UnixStream) {
    let Some((number, stream)) = services.clients.admit(stream) else { return };
    let shared = Arc::clone(services);
    let thread = thread::Builder::new().stack_size(STACK_BYTES).name("connection".into());
    let started = thread.spawn(move || {
        let ready = stream.set_write_timeout(Some(REPLY_TIMEOUT));
        // Whoever breaks off has nobody left to tell.
        let _ = ready.and_then(|()| serve(&shared, number, &stream));
        // The client sees the end before this is forgotten.
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
