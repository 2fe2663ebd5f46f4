// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clients of the daemon: limits of connections and commands, the state of each connection, and evictions. `daemon`
//! accepts connections and `connection` serves them.

use parking_lot::{Condvar, Mutex, MutexGuard};
use roster_fd_passing::deferred_close::{BoundedClose, DeferredCloser};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limit of the wait for the proof of the key and the first request.
const AUTH_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of connections without a proof of the key. A further one evicts the oldest.
const UNAUTHENTICATED_MAX: usize = 64;
/// Limit of the wait for threads of evicted connections.
const EVICTION_WAIT: Duration = Duration::from_secs(1);
/// The idle time is in whole seconds. One more second is never too early.
const IDLE_MARGIN: Duration = Duration::from_secs(1);
/// Pending closes of all users count together.
const ALL_USERS: u32 = u32::MAX;
/// Pending closes at which the daemon accepts no further connection.
const CLOSING_MAX: usize = 128;

/// Connections, pending closes, and running commands.
pub(super) struct ClientTable {
    limits: ConcurrencyLimits,
    /// The daemon stops after this time without a command.
    idle_time: Duration,
    closers: DeferredCloser,
    state: Mutex<TableState>,
    changed: Condvar,
}

/// Limits that follow from the limit of open files.
#[derive(Clone, Copy, Debug)]
struct ConcurrencyLimits {
    connections: usize,
    commands: usize,
}

impl ConcurrencyLimits {
    fn new() -> Self {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(1024);
        let files = usize::try_from(files).unwrap_or(usize::MAX).min(1 << 14);
        // During its start a command has twelve, with both ends of its pipes.
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
    /// The stream, until the thread of the connection closes it.
    stream: Option<Arc<UnixStream>>,
    phase: ClientPhase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientPhase {
    /// The client has to prove the key before this time.
    Unauthenticated(Instant),
    /// The client may send a request.
    Idle,
    /// A request is being handled.
    Busy,
    /// The connection was evicted.
    Closing,
}

/// The slot of a running command.
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
    /// Creates the table of a daemon that stops after `idle_seconds` without a command.
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

    /// Adds a connection and returns its number. Without a free slot it closes the connection.
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

    /// Returns true if there are too many pending closes to accept a connection.
    pub(super) fn has_pending_closings(&self) -> bool {
        self.closers.pending_count() >= CLOSING_MAX
    }

    /// Frees a slot for a connection, if only connections without a proof of the key are in the way.
    fn evict_for_new(&self) -> Option<MutexGuard<'_, TableState>> {
        let is_full = |state: &TableState| state.connections.len() >= self.limits.connections;
        let mut state = self.state();
        state.evict_oldest(UNAUTHENTICATED_MAX.min(self.limits.connections / 2).max(1));
        if is_full(&state) {
            state.evict_oldest(1);
        }
        // An evicted connection keeps its slot and descriptor until its thread has ended.
        let frees = |state: &mut TableState| is_full(state) && state.has_closing();
        self.changed.wait_while_for(&mut state, frees, EVICTION_WAIT);
        (!is_full(&state)).then_some(state)
    }

    /// Drops the table's reference. The other owner then closes the connection without a lock.
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

    /// Marks a connection as authenticated.
    pub(super) fn mark_authenticated(&self, number: u64) {
        self.set_phase(number, ClientPhase::Idle);
    }

    /// Marks a connection as busy.
    pub(super) fn mark_busy(&self, number: u64) {
        self.set_phase(number, ClientPhase::Busy);
    }

    /// Marks a connection as idle. False: the daemon is stopping.
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

    /// Waits for a slot of a command.
    pub(super) fn wait_for_slot(&self) -> CommandSlot<'_> {
        let mut state = self.state();
        let busy = |state: &mut TableState| state.commands >= self.limits.commands;
        self.changed.wait_while(&mut state, busy);
        state.commands += 1;
        state.last_command = Instant::now();
        CommandSlot(self)
    }

    /// Restarts the idle time.
    pub(super) fn note_activity(&self) {
        self.state().last_command = Instant::now();
    }

    /// Returns true if the idle time has passed.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.commands == 0 && state.last_command.elapsed() >= self.idle_time
    }

    /// Returns the time until the next check.
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

    /// Closes connections without a proof of the key in time.
    pub(super) fn evict_expired(&self) {
        let now = Instant::now();
        for connection in self.state().connections.values_mut() {
            if matches!(connection.phase, ClientPhase::Unauthenticated(until) if until <= now) {
                connection.evict();
            }
        }
    }

    /// Waits for running commands and their replies, and then for the end of all connections.
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

    /// The thread ends when it sees the shutdown.
    fn evict(&mut self) {
        self.shut(Shutdown::Both);
        self.phase = ClientPhase::Closing;
    }
}

impl TableState {
    /// Evicts the oldest connections without a proof of the key, so that fewer than the limit remain.
    fn evict_oldest(&mut self, room_for: usize) {
        let is_unknown = |connection: &ClientConnection| {
            matches!(connection.phase, ClientPhase::Unauthenticated(_))
        };
        let unknown = self.connections.values().filter(|connection| is_unknown(connection)).count();
        let oldest = self.connections.values_mut().filter(|connection| is_unknown(connection));
        oldest.take((unknown + 1).saturating_sub(room_for)).for_each(ClientConnection::evict);
    }

    /// Returns true if an evicted connection has a running thread.
    fn has_closing(&self) -> bool {
        self.connections.values().any(|connection| connection.phase == ClientPhase::Closing)
    }
}
