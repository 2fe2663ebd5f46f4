//! The clients of the daemon: how many may connect and run commands at once, which have shown the key, and which
//! are turned out to make room.

use parking_lot::{Condvar, Mutex, MutexGuard};
use roster_fd_passing::deferred_close::{BoundedClose, DeferredCloser};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// In which a client has to show the key and say what it wants.
const AUTH_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at once whose client did not show the key: of more, the oldest go.
const UNAUTHENTICATED_MAX: usize = 64;
/// How long the threads of those that were turned out are waited for where there is no room.
const EVICTION_WAIT: Duration = Duration::from_secs(1);
/// The idle time is in whole seconds: one more is not too early.
const IDLE_MARGIN: Duration = Duration::from_secs(1);
/// The closings of all users count together.
const ALL_USERS: u32 = u32::MAX;
/// Hanging closings at which the daemon accepts no further connection.
const CLOSING_MAX: usize = 128;

/// The connections, those that are being closed, and the commands that run.
pub(super) struct ClientTable {
    limits: ConcurrencyLimits,
    /// Without a command for so long, the daemon ends.
    idle_time: Duration,
    closers: DeferredCloser,
    state: Mutex<TableState>,
    changed: Condvar,
}

/// How much at once: what the bound on open files leaves.
#[derive(Clone, Copy, Debug)]
struct ConcurrencyLimits {
    connections: usize,
    commands: usize,
}

impl ConcurrencyLimits {
    fn new() -> Self {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(1024);
        let files = usize::try_from(files).unwrap_or(usize::MAX).min(1 << 14);
        // While it starts a command has twelve, with both ends of its pipes.
        let commands = (files / 32).max(1);
        let connections = files.saturating_sub(24 + 12 * commands).max(2);
        Self { connections, commands }
    }
}

struct TableState {
    connections: BTreeMap<u64, ClientConnection>,
    next: u64,
    commands: usize,
    last_command: Instant,
    is_ending: bool,
}

struct ClientConnection {
    /// Until its thread closes it.
    stream: Option<Arc<UnixStream>>,
    phase: ClientPhase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientPhase {
    /// It has to show the key by then.
    Unauthenticated(Instant),
    /// It may ask for something.
    Idle,
    /// It has asked, and has no answer.
    Busy,
    /// It was turned out.
    Closing,
}

/// A command's place among those that run at once.
pub(super) struct CommandSlot<'d>(&'d ClientTable);

impl Drop for CommandSlot<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.commands -= 1;
        state.last_command = Instant::now();
        self.0.changed.notify_all();
    }
}

impl ClientTable {
    /// An empty table of a daemon that ends after `idle_seconds` without a command.
    pub(super) fn new(idle_seconds: u64) -> Self {
        Self {
            limits: ConcurrencyLimits::new(),
            idle_time: Duration::from_secs(idle_seconds).saturating_add(IDLE_MARGIN),
            closers: DeferredCloser::default(),
            state: Mutex::new(TableState {
                connections: BTreeMap::new(),
                next: 0,
                commands: 0,
                last_command: Instant::now(),
                is_ending: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock()
    }

    /// Enters a connection, if there is room, with its number; else closes it.
    pub(super) fn admit(&self, stream: UnixStream) -> Option<(u64, BoundedClose<Arc<UnixStream>>)> {
        let Some(mut state) = self.evict_for_new() else {
            self.close_stream(stream);
            return None;
        };
        let number = state.next;
        state.next += 1;
        let phase = ClientPhase::Unauthenticated(Instant::now() + AUTH_TIMEOUT);
        let stream = BoundedClose::new(Arc::new(stream));
        let shared = Some(Arc::clone(&stream));
        state.connections.insert(number, ClientConnection { stream: shared, phase });
        Some((number, stream))
    }

    /// Closes a connection without a wait.
    pub(super) fn close_stream(&self, stream: UnixStream) {
        self.closers.close(ALL_USERS, stream);
    }

    /// Whether so many closings hang that the daemon accepts no further connection.
    pub(super) fn has_pending_closings(&self) -> bool {
        self.closers.pending_count() >= CLOSING_MAX
    }

    /// Sees to it that there is a place for one more, if those who did not show the key are all that is in
    /// its way.
    fn evict_for_new(&self) -> Option<MutexGuard<'_, TableState>> {
        let is_full = |state: &TableState| state.connections.len() >= self.limits.connections;
        let mut state = self.state();
        state.evict_oldest(UNAUTHENTICATED_MAX.min(self.limits.connections / 2).max(1));
        if is_full(&state) {
            state.evict_oldest(1);
        }
        // Who was turned out has its place, and its descriptor, until its thread has ended.
        let frees = |state: &mut TableState| is_full(state) && state.has_closing();
        self.changed.wait_while_for(&mut state, frees, EVICTION_WAIT);
        (!is_full(&state)).then_some(state)
    }

    /// Whoever else holds the connection is the one who closes it, without a lock.
    pub(super) fn drop_stream(&self, number: u64) {
        let mut state = self.state();
        let connection = state.connections.get_mut(&number);
        drop(connection.and_then(|connection| connection.stream.take()));
    }

    pub(super) fn remove_connection(&self, number: u64) {
        let connection = self.state().connections.remove(&number);
        if let Some(stream) = connection.and_then(|connection| connection.stream)
            && let Some(stream) = Arc::into_inner(stream)
        {
            self.close_stream(stream);
        }
        self.changed.notify_all();
    }

    /// That a connection has shown the key and goes on.
    pub(super) fn mark_authenticated(&self, number: u64) {
        self.set_phase(number, ClientPhase::Idle);
    }

    /// That one has asked for something.
    pub(super) fn mark_busy(&self, number: u64) {
        self.set_phase(number, ClientPhase::Busy);
    }

    /// That one has its answer; whether it may ask for more.
    pub(super) fn mark_idle(&self, number: u64) -> bool {
        self.set_phase(number, ClientPhase::Idle);
        !self.state().is_ending
    }

    fn set_phase(&self, number: u64, stage: ClientPhase) {
        if let Some(connection) = self.state().connections.get_mut(&number)
            && connection.phase != ClientPhase::Closing
        {
            connection.phase = stage;
        }
    }

    /// Waits until few enough commands run.
    pub(super) fn wait_for_slot(&self) -> CommandSlot<'_> {
        let mut state = self.state();
        let busy = |state: &mut TableState| state.commands >= self.limits.commands;
        self.changed.wait_while(&mut state, busy);
        state.commands += 1;
        state.last_command = Instant::now();
        CommandSlot(self)
    }

    /// That somebody still wants something.
    pub(super) fn note_activity(&self) {
        self.state().last_command = Instant::now();
    }

    /// Whether the daemon is to end for want of work.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.commands == 0 && state.last_command.elapsed() >= self.idle_time
    }

    /// How long nothing has to be looked at.
    pub(super) fn next_deadline(&self) -> Duration {
        let state = self.state();
        let now = Instant::now();
        let idle = match state.commands {
            0 => self.idle_time.saturating_sub(state.last_command.elapsed()),
            _ => self.idle_time,
        };
        let unknown = state.connections.values().filter_map(|connection| match connection.phase {
            ClientPhase::Unauthenticated(until) => Some(until.saturating_duration_since(now)),
            _ => None,
        });
        unknown.min().map_or(idle, |unknown| unknown.min(idle))
    }

    /// Closes connections whose client did not show the key in time.
    pub(super) fn evict_expired(&self) {
        let now = Instant::now();
        for connection in self.state().connections.values_mut() {
            if matches!(connection.phase, ClientPhase::Unauthenticated(until) if until <= now) {
                connection.evict();
            }
        }
    }

    /// Lets what runs end and be answered, and then nothing is left.
    pub(super) fn finish(&self) {
        let mut state = self.state();
        state.is_ending = true;
        for connection in state.connections.values() {
            match connection.phase {
                ClientPhase::Unauthenticated(_) => connection.shut(Shutdown::Both),
                ClientPhase::Idle => connection.shut(Shutdown::Read),
                ClientPhase::Busy | ClientPhase::Closing => {}
            }
        }
        let busy = |state: &mut TableState| !state.connections.is_empty();
        self.changed.wait_while(&mut state, busy);
    }
}

impl ClientConnection {
    fn shut(&self, how: Shutdown) {
        let _ = self.stream.as_ref().map(|stream| stream.shutdown(how));
    }

    /// Its thread ends as soon as it sees that.
    fn evict(&mut self) {
        self.shut(Shutdown::Both);
        self.phase = ClientPhase::Closing;
    }
}

impl TableState {
    /// Sees to it that fewer than so many did not show the key.
    fn evict_oldest(&mut self, room_for: usize) {
        let is_unknown = |connection: &ClientConnection| {
            matches!(connection.phase, ClientPhase::Unauthenticated(_))
        };
        let unknown = self.connections.values().filter(|connection| is_unknown(connection)).count();
        let oldest = self.connections.values_mut().filter(|connection| is_unknown(connection));
        oldest.take((unknown + 1).saturating_sub(room_for)).for_each(ClientConnection::evict);
    }

    /// Whether somebody is about to leave.
    fn has_closing(&self) -> bool {
        self.connections.values().any(|connection| connection.phase == ClientPhase::Closing)
    }
}
