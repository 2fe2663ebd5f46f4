//! The daemon: its socket and key, who may connect and how many, and its end.
//!
//! One thread waits: for connections, signals, the client's end and the time to end for want of work. Each
//! connection has a thread of its own. A stranger is turned away before a byte passes, and who may
//! connect and does not show the key in time makes room for the next; so neither can keep the
//! client out.

use super::auth::{KEY_BYTES, random};
use super::connection::serve;
use super::run::Bounds;
use super::socket::Socket;
use crate::exec::Executor;
use crate::host::ThisHost;
use crate::policy::Policy;
use crate::syslog::Syslog;
use roster_descriptors::closing::{Closers, Sent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// In which a client has to show the key and say what it wants.
const UNKNOWN_TIME: Duration = Duration::from_secs(10);
/// Connections at once whose client did not show the key: of more, the oldest go.
const UNKNOWN_MAX: usize = 64;
/// Connections that are taken before it is looked again what else there is to do.
const TAKEN_AT_ONCE: usize = 16;
/// How long the threads of those that were turned out are waited for where there is no room.
const LEAVING_TIME: Duration = Duration::from_secs(1);
/// How long a client may leave an answer lying.
const ANSWER_TIME: Duration = Duration::from_secs(600);
/// Nothing here goes deep; the C library's look-up of users needs the most.
const STACK_BYTES: usize = 512 << 10;
/// The idle time is in whole seconds: one more is not too early.
const IDLE_MORE: Duration = Duration::from_secs(1);
/// Hanging closings at which the daemon accepts no further connection.
const CLOSING_MAX: usize = 128;
/// The closings of all users count together.
const ALL_USERS: u32 = u32::MAX;
/// After which the system is asked again for a descriptor or a thread that it did not have.
const EXHAUSTED: Duration = Duration::from_millis(20);

/// What all connections share.
pub(super) struct Daemon {
    pub(super) policy: Policy,
    pub(super) host: ThisHost,
    pub(super) executor: Executor,
    pub(super) syslog: Syslog,
    pub(super) bounds: Bounds,
    pub(super) key: [u8; KEY_BYTES],
    limits: Limits,
    objects: AtomicU64,
    /// A byte in it ends the daemon.
    end: UnixStream,
    closers: Closers,
    state: Mutex<State>,
    changed: Condvar,
}

/// How much at once: what the bound on open files leaves.
#[derive(Clone, Copy, Debug)]
struct Limits {
    connections: usize,
    commands: usize,
}

impl Limits {
    fn new() -> Self {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(1024);
        let files = usize::try_from(files).unwrap_or(usize::MAX).min(1 << 14);
        // While it starts a command has twelve, with both ends of its pipes.
        let commands = (files / 32).max(1);
        let connections = files.saturating_sub(24 + 12 * commands).max(2);
        Self { connections, commands }
    }
}

struct State {
    connections: BTreeMap<u64, Connection>,
    next: u64,
    commands: usize,
    last_command: Instant,
    ends: bool,
}

struct Connection {
    /// Until its thread closes it.
    stream: Option<Arc<UnixStream>>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has to show the key by then.
    Unknown(Instant),
    /// It may ask for something.
    Waits,
    /// It has asked, and has no answer.
    Works,
    /// It was turned out.
    Leaves,
}

/// A command's place among those that run at once.
pub(super) struct Turn<'d>(&'d Daemon);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.commands -= 1;
        state.last_command = Instant::now();
        self.0.changed.notify_all();
    }
}

/// Serves clients until there is a reason to end. Standard output gets the socket's path and the key; the
/// log is told in the name of `program`.
pub fn serve_clients(
    policy: Policy,
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
    executor.start_apart();
    let allowed = Allowed::new(allowed_uids)?;
    let socket = Socket::new(&allowed.0)?;
    let bounds = Bounds { bytes_max: policy.conf.data_max, folder: socket.folder().to_owned() };
    let state = State {
        connections: BTreeMap::new(),
        next: 0,
        commands: 0,
        last_command: Instant::now(),
        ends: false,
    };
    let syslog = Syslog::new(&policy.conf, program);
    let daemon = Arc::new(Daemon {
        policy,
        host: ThisHost::new(),
        executor,
        syslog,
        bounds,
        key: random()?,
        limits: Limits::new(),
        objects: AtomicU64::new(0),
        end,
        closers: Closers::default(),
        state: Mutex::new(state),
        changed: Condvar::new(),
    });
    let client = shake_hands(&socket, &daemon.key)?;
    daemon.accept(&socket, &allowed, client.as_ref(), &ends);
    let folder = socket.close();
    daemon.finish();
    drop(folder);
    Ok(())
}

/// Tells the client where and by what key to connect, and leaves its streams alone from then on. What
/// is returned is the pipe whose other end goes with the client.
fn shake_hands(socket: &Socket, key: &[u8; KEY_BYTES]) -> io::Result<Option<OwnedFd>> {
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
struct Allowed(Vec<u32>);

impl Allowed {
    fn new(named: &[u32]) -> io::Result<Self> {
        let mut uids = vec![0, fstat(rustix::stdio::stdout())?.st_uid];
        uids.extend(std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse::<u32>().ok()));
        uids.extend(named);
        Ok(Self(uids))
    }

    fn is_among(&self, stream: &UnixStream) -> bool {
        roster_descriptors::peer(stream).is_ok_and(|peer| self.0.contains(&peer.uid))
    }
}

impl Daemon {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a thread that panics ends the process")
    }

    /// Takes connections until there is a reason to end.
    fn accept(
        self: &Arc<Self>,
        socket: &Socket,
        allowed: &Allowed,
        client: Option<&OwnedFd>,
        mut ends: &UnixStream,
    ) {
        loop {
            let mut fds = vec![
                PollFd::new(socket.listener(), PollFlags::IN),
                PollFd::new(ends, PollFlags::IN),
            ];
            // Nothing but that nobody reads it any more.
            fds.extend(client.map(|client| PollFd::new(client, PollFlags::empty())));
            let timeout = Timespec::try_from(self.next_deadline()).ok();
            if !matches!(poll(&mut fds, timeout.as_ref()), Ok(_) | Err(rustix::io::Errno::INTR)) {
                return;
            }
            let found: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let is_told = found[1] && ends.read(&mut [0; 64]).is_ok_and(|count| count > 0);
            if is_told || found.get(2) == Some(&true) || self.is_idle() {
                return;
            }
            self.turn_out_late();
            let came = std::iter::from_fn(|| accept_one(socket));
            // Each connection may have to be closed.
            let is_behind = found[0] && self.closers.pending() >= CLOSING_MAX;
            if is_behind {
                thread::sleep(EXHAUSTED);
            }
            for stream in came.take(if found[0] && !is_behind { TAKEN_AT_ONCE } else { 0 }) {
                match allowed.is_among(&stream) {
                    true => self.admit(stream),
                    false => self.closers.close(ALL_USERS, stream),
                }
            }
        }
    }

    /// Gives a connection a thread, if there is room.
    fn admit(self: &Arc<Self>, stream: UnixStream) {
        let Some(mut state) = self.make_room() else {
            return self.closers.close(ALL_USERS, stream);
        };
        let number = state.next;
        state.next += 1;
        let stage = Stage::Unknown(Instant::now() + UNKNOWN_TIME);
        let stream = Sent::new(Arc::new(stream));
        let shared = Some(Arc::clone(&stream));
        state.connections.insert(number, Connection { stream: shared, stage });
        drop(state);
        let daemon = Arc::clone(self);
        let thread = thread::Builder::new().stack_size(STACK_BYTES).name("connection".into());
        let started = thread.spawn(move || {
            let ready = stream.set_write_timeout(Some(ANSWER_TIME));
            // Whoever breaks off has nobody left to tell.
            let _ = ready.and_then(|()| serve(&daemon, number, &stream));
            // The client sees the end before this is forgotten.
            let _ = stream.shutdown(Shutdown::Both);
            daemon.give_up(number);
            drop(stream);
            daemon.forget(number);
        });
        if started.is_err() {
            self.forget(number);
        }
    }

    /// Sees to it that there is a place for one more, if those who did not show the key are all that is in
    /// its way.
    fn make_room(&self) -> Option<MutexGuard<'_, State>> {
        let is_full = |state: &State| state.connections.len() >= self.limits.connections;
        let mut state = self.state();
        state.turn_out_oldest(UNKNOWN_MAX.min(self.limits.connections / 2).max(1));
        if is_full(&state) {
            state.turn_out_oldest(1);
        }
        // Who was turned out has its place, and its descriptor, until its thread has ended.
        let frees = |state: &mut State| is_full(state) && state.is_left();
        let waited = self.changed.wait_timeout_while(state, LEAVING_TIME, frees);
        let state = waited.expect("as above").0;
        (!is_full(&state)).then_some(state)
    }

    /// Whoever else holds the connection is the one who closes it, without a lock.
    fn give_up(&self, number: u64) {
        let mut state = self.state();
        let connection = state.connections.get_mut(&number);
        drop(connection.and_then(|connection| connection.stream.take()));
    }

    fn forget(&self, number: u64) {
        let connection = self.state().connections.remove(&number);
        if let Some(stream) = connection.and_then(|connection| connection.stream)
            && let Some(stream) = Arc::into_inner(stream)
        {
            self.closers.close(ALL_USERS, stream);
        }
        self.changed.notify_all();
    }

    /// That a connection has shown the key and goes on.
    pub(super) fn is_known(&self, number: u64) {
        self.set_stage(number, Stage::Waits);
    }

    /// That one has asked for something.
    pub(super) fn works(&self, number: u64) {
        self.set_stage(number, Stage::Works);
    }

    /// That one has its answer; whether it may ask for more.
    pub(super) fn waits(&self, number: u64) -> bool {
        self.set_stage(number, Stage::Waits);
        !self.state().ends
    }

    fn set_stage(&self, number: u64, stage: Stage) {
        if let Some(connection) = self.state().connections.get_mut(&number)
            && connection.stage != Stage::Leaves
        {
            connection.stage = stage;
        }
    }

    /// A name that no object had.
    pub(super) fn next_object(&self) -> u64 {
        self.objects.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether an object of that name was handed out.
    pub(super) fn has_object(&self, name: Option<&[u8]>) -> bool {
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let number = name.and_then(|name| u64::from_str_radix(name, 16).ok());
        number.is_some_and(|number| (1..=self.objects.load(Ordering::Relaxed)).contains(&number))
    }

    /// Waits until few enough commands run.
    pub(super) fn turn(&self) -> Turn<'_> {
        let state = self.state();
        let busy = |state: &mut State| state.commands >= self.limits.commands;
        let mut state = self.changed.wait_while(state, busy).expect("as above");
        state.commands += 1;
        state.last_command = Instant::now();
        Turn(self)
    }

    /// That somebody still wants something.
    pub(super) fn is_asked(&self) {
        self.state().last_command = Instant::now();
    }

    /// Ends the daemon in good order.
    pub(super) fn end(&self) {
        // A full pipe ends it as well.
        let _ = (&self.end).write(b"!");
    }

    fn is_idle(&self) -> bool {
        let state = self.state();
        state.commands == 0 && state.last_command.elapsed() >= self.idle_time()
    }

    fn idle_time(&self) -> Duration {
        let seconds = u64::try_from(self.policy.conf.daemon_timeout).unwrap_or(0);
        Duration::from_secs(seconds).saturating_add(IDLE_MORE)
    }

    /// How long nothing has to be looked at.
    fn next_deadline(&self) -> Duration {
        let state = self.state();
        let now = Instant::now();
        let idle = match state.commands {
            0 => self.idle_time().saturating_sub(state.last_command.elapsed()),
            _ => self.idle_time(),
        };
        let unknown = state.connections.values().filter_map(|connection| match connection.stage {
            Stage::Unknown(until) => Some(until.saturating_duration_since(now)),
            _ => None,
        });
        unknown.min().map_or(idle, |unknown| unknown.min(idle))
    }

    fn turn_out_late(&self) {
        let now = Instant::now();
        for connection in self.state().connections.values_mut() {
            if matches!(connection.stage, Stage::Unknown(until) if until <= now) {
                connection.turn_out();
            }
        }
    }

    /// Lets what runs end and be answered, and then nothing is left.
    fn finish(&self) {
        let mut state = self.state();
        state.ends = true;
        for connection in state.connections.values() {
            match connection.stage {
                Stage::Unknown(_) => connection.shut(Shutdown::Both),
                Stage::Waits => connection.shut(Shutdown::Read),
                Stage::Works | Stage::Leaves => {}
            }
        }
        let busy = |state: &mut State| !state.connections.is_empty();
        drop(self.changed.wait_while(state, busy));
    }
}

impl Connection {
    fn shut(&self, how: Shutdown) {
        let _ = self.stream.as_ref().map(|stream| stream.shutdown(how));
    }

    /// Its thread ends as soon as it sees that.
    fn turn_out(&mut self) {
        self.shut(Shutdown::Both);
        self.stage = Stage::Leaves;
    }
}

impl State {
    /// Sees to it that fewer than so many did not show the key.
    fn turn_out_oldest(&mut self, room_for: usize) {
        let is_unknown = |connection: &Connection| matches!(connection.stage, Stage::Unknown(_));
        let unknown = self.connections.values().filter(|connection| is_unknown(connection)).count();
        let oldest = self.connections.values_mut().filter(|connection| is_unknown(connection));
        oldest.take((unknown + 1).saturating_sub(room_for)).for_each(Connection::turn_out);
    }

    /// Whether somebody is about to leave.
    fn is_left(&self) -> bool {
        self.connections.values().any(|connection| connection.stage == Stage::Leaves)
    }
}

fn accept_one(socket: &Socket) -> Option<UnixStream> {
    match socket.listener().accept() {
        Ok((stream, _)) => Some(stream),
        Err(error)
            if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) =>
        {
            None
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(_) => {
            thread::sleep(EXHAUSTED);
            None
        }
    }
}
