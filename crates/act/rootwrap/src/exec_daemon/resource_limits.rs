// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of connections, commands and bytes of requests, for each user and for all. A new connection may evict one
//! that has sent nothing. A connection with a command is never evicted. `gate` admits connections before.

use parking_lot::{Condvar, Mutex, MutexGuard};
use roster_exec::protocol::{CommandReply, DenyCode};
use roster_fd_passing::deferred_close::BoundedClose;
use roster_messages::table::commands;
use roster_messages::{CodedError, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};
use rustix::process::{Resource, getrlimit};
use std::collections::{BTreeMap, HashMap};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limit of the wait for a free slot of a command.
const COMMAND_WAIT: Duration = Duration::from_secs(10);
/// Limit of closed connections with running threads.
const CLOSING_MAX: usize = 64;
/// Limit of closed connections with running threads for one user.
const CLOSING_PER_USER_MAX: usize = CLOSING_MAX / 2;
/// Larger requests count against the limits of bytes.
const SMALL_BYTES: usize = 64 << 10;
const BYTES_PER_USER_MAX: usize = 16 << 20;
const BYTES_MAX: usize = 256 << 20;
const ROOT: u32 = 0;
/// The timeout of a poll without a wait.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The limits of one resource.
#[derive(Clone, Copy, Debug)]
struct ResourceShare {
    all: usize,
    /// The limit for all users but root. The rest is for root.
    but_root: usize,
    /// The limit for one user but root. Two users leave a part for a third.
    user: usize,
}

impl ResourceShare {
    fn from_total(all: usize) -> Self {
        Self { all, but_root: (all - all / 8).min(all - 1).max(1), user: (all * 3 / 8).max(1) }
    }

    /// Returns true if a user with `own` of `all` may have one more.
    fn allows_one_more(&self, uid: u32, own: usize, all: usize) -> bool {
        match uid {
            ROOT => all < self.all,
            _ => all < self.but_root && own < self.user,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct ResourceShares {
    connections: ResourceShare,
    commands: ResourceShare,
}

impl ResourceShares {
    /// Returns the limits for a number of open files. A connection needs six, a start of a command eight more, and a
    /// connection that is closing may need one.
    fn new(files: usize) -> Self {
        let connections = ResourceShare::from_total((files / 13).clamp(4, 2048));
        let connections = ResourceShare { user: connections.user.min(256), ..connections };
        Self { connections, commands: ResourceShare::from_total(connections.all / 2) }
    }
}

pub(super) struct ResourceLimits {
    limits: ResourceShares,
    /// Limit of the wait for a free slot of a command.
    command_wait: Duration,
    state: Mutex<ResourceUsage>,
    changed: Condvar,
}

#[derive(Default)]
struct ResourceUsage {
    connections: BTreeMap<u64, ConnectionEntry>,
    next: u64,
    users: HashMap<u32, UserUsage>,
    commands: usize,
    bytes: usize,
    is_ending: bool,
}

#[derive(Clone, Copy, Default)]
struct UserUsage {
    connections: usize,
    /// Closed connections with running threads. They are not part of `connections`.
    closing: usize,
    commands: usize,
    bytes: usize,
}

struct ConnectionEntry {
    uid: u32,
    /// The stream, until the thread of the connection closes it. That may take long.
    stream: Option<Arc<UnixStream>>,
    phase: ConnectionPhase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// The connection has no request, since this time.
    Idle(Instant),
    /// The daemon handles a request.
    Busy,
    Closing,
}

/// A connection and its slot. The slot belongs to the user until the connection is closed.
pub(super) struct ConnectionSlot {
    // The fields are dropped in this order.
    stream: BoundedClose<Arc<UnixStream>>,
    guard: SlotGuard,
}

struct SlotGuard {
    limits: Arc<ResourceLimits>,
    number: u64,
    uid: u32,
}

/// A slot for a command.
pub(super) struct CommandReservation<'p>(&'p ConnectionSlot);

/// Reserved memory for a request.
pub(super) struct ByteReservation<'p>(&'p ConnectionSlot, usize);

impl ResourceLimits {
    pub(super) fn new() -> Arc<Self> {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::for_files(usize::try_from(files).unwrap_or(usize::MAX), COMMAND_WAIT)
    }

    /// Returns the limits for a number of open files.
    pub(super) fn for_files(files: usize, command_wait: Duration) -> Arc<Self> {
        let (limits, state) = (ResourceShares::new(files), Mutex::default());
        Arc::new(Self { limits, command_wait, state, changed: Condvar::default() })
    }

    fn state(&self) -> MutexGuard<'_, ResourceUsage> {
        self.state.lock()
    }

    /// Returns a slot for a connection, or the connection if there is none, and the number of evicted connections.
    pub(super) fn admit(
        self: &Arc<Self>,
        uid: u32,
        stream: UnixStream,
    ) -> (Result<ConnectionSlot, UnixStream>, usize) {
        let limits = self.limits.connections;
        let mut state = self.state();
        let mut closed = 0;
        if uid != ROOT && state.user_usage(uid).connections >= limits.user {
            closed += usize::from(state.close_longest_waiting(uid));
        }
        if !state.has_space(limits, uid)
            && let Some(most) = state.user_with_most()
        {
            closed += usize::from(state.close_longest_waiting(most));
        }
        let is_left = uid != ROOT && state.connections.len() >= limits.all + CLOSING_MAX;
        if is_left || state.is_ending || !state.has_space(limits, uid) {
            return (Err(stream), closed);
        }
        let number = state.next;
        state.next += 1;
        state.users.entry(uid).or_default().connections += 1;
        let stream = Arc::new(stream);
        let stage = ConnectionPhase::Idle(Instant::now());
        let connection = ConnectionEntry { uid, stream: Some(Arc::clone(&stream)), phase: stage };
        state.connections.insert(number, connection);
        let seat = SlotGuard { limits: Arc::clone(self), number, uid };
        (Ok(ConnectionSlot { stream: BoundedClose::new(stream), guard: seat }), closed)
    }

    /// Admits no further connection. Idle connections end at once, and others after their reply.
    pub(super) fn stop_admission(&self) {
        let mut state = self.state();
        state.is_ending = true;
        for connection in state.connections.values() {
            if matches!(connection.phase, ConnectionPhase::Idle(_)) {
                connection.shut(Shutdown::Read);
            }
        }
    }

    /// Returns true after [`Self::stop_admission`].
    pub(super) fn is_ending(&self) -> bool {
        self.state().is_ending
    }

    /// Closes all connections.
    pub(super) fn close_all(&self) {
        for connection in self.state().connections.values() {
            connection.shut(Shutdown::Both);
        }
    }

    /// Waits until all connections have ended. False: some remain after the time.
    pub(super) fn is_empty_within(&self, time: Duration) -> bool {
        let busy = |state: &mut ResourceUsage| !state.connections.is_empty();
        let mut state = self.state();
        self.changed.wait_while_for(&mut state, busy, time);
        state.connections.is_empty()
    }
}

impl ConnectionEntry {
    fn shut(&self, how: Shutdown) {
        let _ = self.stream.as_ref().map(|stream| stream.shutdown(how));
    }
}

impl ResourceUsage {
    fn user_usage(&self, uid: u32) -> UserUsage {
        self.users.get(&uid).copied().unwrap_or_default()
    }

    fn has_space(&self, limits: ResourceShare, uid: u32) -> bool {
        limits.allows_one_more(uid, self.user_usage(uid).connections, self.all_connections())
    }

    fn all_connections(&self) -> usize {
        self.users.values().map(|user| user.connections).sum()
    }

    fn user_with_most(&self) -> Option<u32> {
        let most = self.users.iter().max_by_key(|(_, user)| user.connections);
        most.map(|(uid, _)| *uid)
    }

    /// Closes the connection of a user that has been idle for the longest time and has sent nothing. False: there is
    /// none, or too many are closing.
    fn close_longest_waiting(&mut self, uid: u32) -> bool {
        if self.user_usage(uid).closing >= CLOSING_PER_USER_MAX {
            return false;
        }
        let since = |connection: &ConnectionEntry| match connection.phase {
            ConnectionPhase::Idle(since) if connection.uid == uid => Some(since),
            _ => None,
        };
        let mut waiting: Vec<_> = self
            .connections
            .iter()
            .filter_map(|(number, connection)| Some((since(connection)?, *number)))
            .collect();
        waiting.sort_unstable();
        let silent = waiting.iter().find(|(_, number)| {
            let stream = self.connections.get(number).and_then(|found| found.stream.as_ref());
            stream.is_some_and(|stream| is_silent(stream))
        });
        let Some(connection) = silent.and_then(|(_, number)| self.connections.get_mut(number))
        else {
            return false;
        };
        connection.phase = ConnectionPhase::Closing;
        let _ = connection.stream.as_ref().map(|stream| send_busy(stream));
        connection.shut(Shutdown::Both);
        let user = self.users.entry(uid).or_default();
        user.connections -= 1;
        user.closing += 1;
        true
    }

    fn forget_if_idle(&mut self, uid: u32) {
        let idle =
            |user: &UserUsage| user.connections + user.closing + user.commands + user.bytes == 0;
        if self.users.get(&uid).is_some_and(idle) {
            self.users.remove(&uid);
        }
    }
}

/// Tells an idle client that no command was started.
pub(super) fn send_busy(stream: &UnixStream) {
    send_denial(stream, &commands::CONNECTIONS_TOO_MANY, "connection limit reached");
}

/// Tells a client that the daemon is stopping.
pub(super) fn send_ending(stream: &UnixStream) {
    let text = "the daemon is stopping and waits for running commands";
    send_denial(stream, &commands::DAEMON_STOPPING, text);
}

fn send_denial(stream: &UnixStream, message: &'static Message, text: &str) {
    let text = CodedError::new(message, text).to_string();
    let answer = CommandReply::Denied(DenyCode::Busy, text).encode();
    // The reply fits into a socket without other data.
    let _ = send(stream, &answer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

fn is_silent(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    poll(&mut fds, Some(&NOW)).is_ok_and(|ready| ready == 0)
}

impl ConnectionSlot {
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Marks the connection as busy with a request.
    pub(super) fn mark_busy(&self) {
        self.set_phase(ConnectionPhase::Busy);
    }

    /// Marks the connection as idle. False: the daemon is stopping.
    pub(super) fn mark_idle(&self) -> bool {
        self.set_phase(ConnectionPhase::Idle(Instant::now()));
        !self.is_ending()
    }

    /// Returns true if the daemon is stopping.
    pub(super) fn is_ending(&self) -> bool {
        self.guard.limits.is_ending()
    }

    fn set_phase(&self, stage: ConnectionPhase) {
        if let Some(connection) = self.guard.limits.state().connections.get_mut(&self.guard.number)
            && connection.phase != ConnectionPhase::Closing
        {
            connection.phase = stage;
        }
    }

    /// Waits for a slot of a command. `None`: the wait reached its limit.
    pub(super) fn reserve_command(&self) -> Option<CommandReservation<'_>> {
        let limits = self.guard.limits.limits.commands;
        let busy = |state: &mut ResourceUsage| {
            !limits.allows_one_more(
                self.guard.uid,
                state.user_usage(self.guard.uid).commands,
                state.commands,
            )
        };
        let mut state = self.guard.limits.state();
        let wait = self.guard.limits.command_wait;
        let waited = self.guard.limits.changed.wait_while_for(&mut state, busy, wait);
        // A slot may have become free at the end of the wait.
        if waited.timed_out() && busy(&mut state) {
            return None;
        }
        state.commands += 1;
        state.users.entry(self.guard.uid).or_default().commands += 1;
        Some(CommandReservation(self))
    }

    /// Reserves memory for a request. `None`: a limit is reached.
    pub(super) fn reserve_bytes(&self, bytes: usize) -> Option<ByteReservation<'_>> {
        let bytes = if bytes <= SMALL_BYTES { 0 } else { bytes };
        let mut state = self.guard.limits.state();
        let all = state.bytes + bytes;
        let kept_for_root = if self.guard.uid == ROOT { 0 } else { BYTES_PER_USER_MAX };
        let user = state.users.entry(self.guard.uid).or_default();
        if all > BYTES_MAX - kept_for_root || user.bytes + bytes > BYTES_PER_USER_MAX {
            return None;
        }
        user.bytes += bytes;
        state.bytes = all;
        Some(ByteReservation(self, bytes))
    }
}

impl Drop for CommandReservation<'_> {
    fn drop(&mut self) {
        let mut state = self.0.guard.limits.state();
        state.commands -= 1;
        if let Some(user) = state.users.get_mut(&self.0.guard.uid) {
            user.commands -= 1;
        }
        state.forget_if_idle(self.0.guard.uid);
        drop(state);
        self.0.guard.limits.changed.notify_all();
    }
}

impl Drop for ByteReservation<'_> {
    fn drop(&mut self) {
        let mut state = self.0.guard.limits.state();
        state.bytes -= self.1;
        if let Some(user) = state.users.get_mut(&self.0.guard.uid) {
            user.bytes -= self.1;
        }
        state.forget_if_idle(self.0.guard.uid);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        // This slot has the last reference, and no lock.
        let mut state = self.guard.limits.state();
        let connection = state.connections.get_mut(&self.guard.number);
        drop(connection.and_then(|connection| connection.stream.take()));
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let mut state = self.limits.state();
        let left = state.connections.remove(&self.number).map(|connection| connection.phase);
        if let Some(user) = state.users.get_mut(&self.uid) {
            match left {
                Some(ConnectionPhase::Closing) => user.closing -= 1,
                Some(_) => user.connections -= 1,
                None => {}
            }
        }
        state.forget_if_idle(self.uid);
        drop(state);
        self.limits.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn places(files: usize) -> Arc<ResourceLimits> {
        ResourceLimits::for_files(files, COMMAND_WAIT)
    }

    #[test]
    fn who_is_silent_makes_room_for_who_comes_and_for_nobody_else() {
        let places = places(351);
        let open = |uid| {
            let (client, stream) = UnixStream::pair().unwrap();
            (client, places.admit(uid, stream))
        };
        // The limits are ten for a user and 27 for all.
        let (_works, (first, _)) = open(1);
        let first = first.unwrap();
        first.mark_busy();
        let (mut speaks, (second, _)) = open(1);
        let _second = second.unwrap();
        speaks.write_all(b"R").unwrap();
        let mut silent: Vec<_> = (0..8).map(|_| open(1)).collect();
        assert!(silent.iter().all(|(_, (place, closed))| place.is_ok() && *closed == 0));
        let (_, (eleventh, closed)) = open(1);
        assert!(eleventh.is_ok() && closed == 1);
        let mut told = Vec::new();
        silent[0].0.read_to_end(&mut told).unwrap();
        assert_eq!(told.first(), Some(&b'D'));
        let told = String::from_utf8_lossy(&told);
        assert!(told.contains(commands::CONNECTIONS_TOO_MANY.code), "{told}");
        // Another user has the same limit.
        let (_, (other, closed)) = open(2);
        assert!(other.is_ok() && closed == 0);
        assert!(first.mark_idle());
        drop((silent, eleventh, other, first));
    }

    #[test]
    fn who_is_not_done_with_leaving_makes_no_room_for_more() {
        let places = places(351);
        let open = |uid| {
            let (client, stream) = UnixStream::pair().unwrap();
            places.admit(uid, stream).0.map(|place| (place, client))
        };
        // No connection frees its slot, because its thread is still closing it.
        let held: Vec<_> = (0..100).map_while(|_| open(1).ok()).collect();
        assert_eq!(held.len(), 10 + CLOSING_PER_USER_MAX);
        assert!(open(2).is_ok());
        drop(held);
        assert!(open(1).is_ok());
        assert!(places.state().users.is_empty());
    }

    #[test]
    fn places_full_users_leave_room_for_root() {
        let places = places(351);
        let open = |uid| {
            let (client, stream) = UnixStream::pair().unwrap();
            let place = places.admit(uid, stream).0.ok()?;
            place.mark_busy();
            Some((place, client))
        };
        let held: Vec<_> = [1, 2]
            .into_iter()
            .flat_map(|uid| std::iter::repeat_n(uid, 100))
            .filter_map(open)
            .collect();
        assert_eq!(held.len(), 20);
        let third: Vec<_> = (0..100).map_while(|_| open(3)).collect();
        assert_eq!(third.len(), 4);
        assert!(open(4).is_none());
        let roots: Vec<_> = (0..100).map_while(|_| open(ROOT)).collect();
        assert_eq!(roots.len(), 3);
        let turns: Vec<_> = held
            .iter()
            .map(|(place, _)| place)
            .take(4)
            .filter_map(ConnectionSlot::reserve_command)
            .collect();
        assert_eq!(turns.len(), 4);
        assert!(roots[0].0.reserve_command().is_some());
    }

    #[test]
    fn one_user_does_not_take_every_turn_or_all_room() {
        let places = places(702);
        let place = |uid| places.admit(uid, UnixStream::pair().unwrap().0).0.unwrap();
        let (one, other) = (place(1), place(2));
        let turns: Vec<_> = (0..10).map(|_| one.reserve_command().unwrap()).collect();
        assert!(other.reserve_command().is_some());
        assert_eq!(places.state().users[&1].commands, 10);
        drop(turns);
        let rooms: Vec<_> = (0..4).map(|_| one.reserve_bytes(4 << 20).unwrap()).collect();
        assert!(one.reserve_bytes(1 << 20).is_none());
        assert!(one.reserve_bytes(SMALL_BYTES).is_some() && other.reserve_bytes(4 << 20).is_some());
        drop(rooms);
        drop((one, other));
        assert!(places.state().users.is_empty() && places.state().bytes == 0);
    }
}
