//! How much there may be at once: connections, commands, and bytes of requests, of each user and of
//! all. Who asks for nothing makes room for who comes; who runs something does not.

use roster_descriptors::closing::Sent;
use roster_exec::wire::{Answer, Why};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};
use rustix::process::{Resource, getrlimit};
use std::collections::{BTreeMap, HashMap};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a command waits for others to end.
const TURN_TIME: Duration = Duration::from_secs(10);
/// Connections that were closed and whose threads have not ended.
const LEAVING_MAX: usize = 64;
/// Of them, a user's.
const LEAVING_OF_USER_MAX: usize = LEAVING_MAX / 2;
/// Requests up to here are held by every connection.
const SMALL_BYTES: usize = 64 << 10;
const BYTES_OF_USER_MAX: usize = 16 << 20;
const BYTES_MAX: usize = 256 << 20;
const ROOT: u32 = 0;
/// Nothing is waited for.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// How much of something there may be at once.
#[derive(Clone, Copy, Debug)]
struct Share {
    all: usize,
    /// The limit for all users but root. The rest is root's.
    but_root: usize,
    /// The limit for one user but root. Two users leave room for a third.
    user: usize,
}

impl Share {
    fn of(all: usize) -> Self {
        Self { all, but_root: (all - all / 8).min(all - 1).max(1), user: (all * 3 / 8).max(1) }
    }

    /// Whether a user that has `own` of `all` may have one more.
    fn has_room(&self, uid: u32, own: usize, all: usize) -> bool {
        match uid {
            ROOT => all < self.all,
            _ => all < self.but_root && own < self.user,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    connections: Share,
    commands: Share,
}

impl Limits {
    /// What so many open files allow: a connection needs six, a command's start eight more, and one that cannot be
    /// closed yet may need one.
    fn new(files: usize) -> Self {
        let connections = Share::of((files / 13).clamp(4, 2048));
        let connections = Share { user: connections.user.min(256), ..connections };
        Self { connections, commands: Share::of(connections.all / 2) }
    }
}

/// All of them.
pub(super) struct Places {
    limits: Limits,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    connections: BTreeMap<u64, Connection>,
    next: u64,
    users: HashMap<u32, User>,
    commands: usize,
    bytes: usize,
    ends: bool,
}

#[derive(Clone, Copy, Default)]
struct User {
    connections: usize,
    /// Of other connections, closed ones whose threads have not ended.
    leaving: usize,
    commands: usize,
    bytes: usize,
}

struct Connection {
    uid: u32,
    /// Until its thread closes it, which may take long.
    stream: Option<Arc<UnixStream>>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has asked for nothing since.
    Waits(Instant),
    /// Something is done for it.
    Works,
    /// It was closed.
    Leaves,
}

/// A connection and its place, which is its user's until the connection is closed, however long that takes.
pub(super) struct Place {
    // They go in this order.
    stream: Sent<Arc<UnixStream>>,
    seat: Seat,
}

struct Seat {
    places: Arc<Places>,
    number: u64,
    uid: u32,
}

/// A command's place.
pub(super) struct Turn<'p>(&'p Place);

/// Room for a request's bytes.
pub(super) struct Room<'p>(&'p Place, usize);

impl Places {
    pub(super) fn new() -> Arc<Self> {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let limits = Limits::new(usize::try_from(files).unwrap_or(usize::MAX));
        Arc::new(Self { limits, state: Mutex::default(), changed: Condvar::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a thread that panics ends the process")
    }

    /// A place for a connection, or the connection if there is none; and how many others were closed for it.
    pub(super) fn admit(
        self: &Arc<Self>,
        uid: u32,
        stream: UnixStream,
    ) -> (Result<Place, UnixStream>, usize) {
        let limits = self.limits.connections;
        let mut state = self.state();
        let mut closed = 0;
        if uid != ROOT && state.of(uid).connections >= limits.user {
            closed += usize::from(state.close_longest_waiting(uid));
        }
        if !state.has_room(limits, uid)
            && let Some(most) = state.user_with_most()
        {
            closed += usize::from(state.close_longest_waiting(most));
        }
        let is_left = uid != ROOT && state.connections.len() >= limits.all + LEAVING_MAX;
        if is_left || state.ends || !state.has_room(limits, uid) {
            return (Err(stream), closed);
        }
        let number = state.next;
        state.next += 1;
        state.users.entry(uid).or_default().connections += 1;
        let stream = Arc::new(stream);
        let stage = Stage::Waits(Instant::now());
        let connection = Connection { uid, stream: Some(Arc::clone(&stream)), stage };
        state.connections.insert(number, connection);
        let seat = Seat { places: Arc::clone(self), number, uid };
        (Ok(Place { stream: Sent::new(stream), seat }), closed)
    }

    /// Admits nobody any more; connections that wait end, and so do others when they have an answer.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.ends = true;
        for connection in state.connections.values() {
            if matches!(connection.stage, Stage::Waits(_)) {
                connection.shut(Shutdown::Read);
            }
        }
    }

    /// Whether nobody is admitted any more.
    pub(super) fn ends(&self) -> bool {
        self.state().ends
    }

    /// Closes all that is left.
    pub(super) fn close_all(&self) {
        for connection in self.state().connections.values() {
            connection.shut(Shutdown::Both);
        }
    }

    /// Waits until there are no connections; false if there still are after a time.
    pub(super) fn is_empty_within(&self, time: Duration) -> bool {
        let busy = |state: &mut State| !state.connections.is_empty();
        let waited = self.changed.wait_timeout_while(self.state(), time, busy).expect("as above");
        waited.0.connections.is_empty()
    }
}

impl Connection {
    fn shut(&self, how: Shutdown) {
        let _ = self.stream.as_ref().map(|stream| stream.shutdown(how));
    }
}

impl State {
    fn of(&self, uid: u32) -> User {
        self.users.get(&uid).copied().unwrap_or_default()
    }

    fn has_room(&self, limits: Share, uid: u32) -> bool {
        limits.has_room(uid, self.of(uid).connections, self.all_connections())
    }

    fn all_connections(&self) -> usize {
        self.users.values().map(|user| user.connections).sum()
    }

    fn user_with_most(&self) -> Option<u32> {
        let most = self.users.iter().max_by_key(|(_, user)| user.connections);
        most.map(|(uid, _)| *uid)
    }

    /// Of a user's connections that wait and have sent nothing; false if there is none, or too many have not
    /// left yet.
    fn close_longest_waiting(&mut self, uid: u32) -> bool {
        if self.of(uid).leaving >= LEAVING_OF_USER_MAX {
            return false;
        }
        let since = |connection: &Connection| match connection.stage {
            Stage::Waits(since) if connection.uid == uid => Some(since),
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
        connection.stage = Stage::Leaves;
        let _ = connection.stream.as_ref().map(|stream| tell_busy(stream));
        connection.shut(Shutdown::Both);
        let user = self.users.entry(uid).or_default();
        user.connections -= 1;
        user.leaving += 1;
        true
    }

    fn forget_if_idle(&mut self, uid: u32) {
        let idle = |user: &User| user.connections + user.leaving + user.commands + user.bytes == 0;
        if self.users.get(&uid).is_some_and(idle) {
            self.users.remove(&uid);
        }
    }
}

/// Tells a client that waits, or is about to ask, that nothing was started for it, and need not be.
pub(super) fn tell_busy(stream: &UnixStream) {
    tell_why(stream, "as many connections are open as may be; try again later");
}

/// The same where the daemon is about to end.
pub(super) fn tell_ending(stream: &UnixStream) {
    let words = "the daemon is about to end, and lets others' commands end first; try again later";
    tell_why(stream, words);
}

fn tell_why(stream: &UnixStream, words: &str) {
    let answer = Answer::Denied(Why::Busy, words.into()).encode();
    // It fits into a socket that nothing was written to.
    let _ = send(stream, &answer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

fn is_silent(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    poll(&mut fds, Some(&NOW)).is_ok_and(|ready| ready == 0)
}

impl Place {
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// That something has been asked for.
    pub(super) fn works(&self) {
        self.set(Stage::Works);
    }

    /// That it was answered; whether more may be asked for.
    pub(super) fn waits(&self) -> bool {
        self.set(Stage::Waits(Instant::now()));
        !self.ends()
    }

    /// Whether the daemon is to end.
    pub(super) fn ends(&self) -> bool {
        self.seat.places.ends()
    }

    fn set(&self, stage: Stage) {
        if let Some(connection) = self.seat.places.state().connections.get_mut(&self.seat.number)
            && connection.stage != Stage::Leaves
        {
            connection.stage = stage;
        }
    }

    /// Waits until few enough commands run; `None` if that takes too long.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        let limits = self.seat.places.limits.commands;
        let busy = |state: &mut State| {
            !limits.has_room(self.seat.uid, state.of(self.seat.uid).commands, state.commands)
        };
        let waited =
            self.seat.places.changed.wait_timeout_while(self.seat.places.state(), TURN_TIME, busy);
        let (mut state, waited) = waited.expect("as above");
        if waited.timed_out() {
            return None;
        }
        state.commands += 1;
        state.users.entry(self.seat.uid).or_default().commands += 1;
        Some(Turn(self))
    }

    /// Room for a request of so many bytes; `None` if there is none.
    pub(super) fn room(&self, bytes: usize) -> Option<Room<'_>> {
        let bytes = if bytes <= SMALL_BYTES { 0 } else { bytes };
        let mut state = self.seat.places.state();
        let all = state.bytes + bytes;
        let kept_for_root = if self.seat.uid == ROOT { 0 } else { BYTES_OF_USER_MAX };
        let user = state.users.entry(self.seat.uid).or_default();
        if all > BYTES_MAX - kept_for_root || user.bytes + bytes > BYTES_OF_USER_MAX {
            return None;
        }
        user.bytes += bytes;
        state.bytes = all;
        Some(Room(self, bytes))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.seat.places.state();
        state.commands -= 1;
        if let Some(user) = state.users.get_mut(&self.0.seat.uid) {
            user.commands -= 1;
        }
        state.forget_if_idle(self.0.seat.uid);
        drop(state);
        self.0.seat.places.changed.notify_all();
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut state = self.0.seat.places.state();
        state.bytes -= self.1;
        if let Some(user) = state.users.get_mut(&self.0.seat.uid) {
            user.bytes -= self.1;
        }
        state.forget_if_idle(self.0.seat.uid);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The last to hold it is this place itself, which holds no lock.
        let mut state = self.seat.places.state();
        let connection = state.connections.get_mut(&self.seat.number);
        drop(connection.and_then(|connection| connection.stream.take()));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.places.state();
        let left = state.connections.remove(&self.number).map(|connection| connection.stage);
        if let Some(user) = state.users.get_mut(&self.uid) {
            match left {
                Some(Stage::Leaves) => user.leaving -= 1,
                Some(_) => user.connections -= 1,
                None => {}
            }
        }
        state.forget_if_idle(self.uid);
        drop(state);
        self.places.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn places(files: usize) -> Arc<Places> {
        let (limits, state) = (Limits::new(files), Mutex::default());
        Arc::new(Places { limits, state, changed: Condvar::default() })
    }

    #[test]
    fn who_is_silent_makes_room_for_who_comes_and_for_nobody_else() {
        let places = places(351);
        let open = |uid| {
            let (client, stream) = UnixStream::pair().unwrap();
            (client, places.admit(uid, stream))
        };
        // Ten of a user, 27 of all.
        let (_works, (first, _)) = open(1);
        let first = first.unwrap();
        first.works();
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
        // Another user has as much room as before.
        let (_, (other, closed)) = open(2);
        assert!(other.is_ok() && closed == 0);
        assert!(first.waits());
        drop((silent, eleventh, other, first));
    }

    #[test]
    fn who_is_not_done_with_leaving_makes_no_room_for_more() {
        let places = places(351);
        let open = |uid| {
            let (client, stream) = UnixStream::pair().unwrap();
            places.admit(uid, stream).0.map(|place| (place, client))
        };
        // Nobody gives its place back: its thread still closes what it was sent.
        let held: Vec<_> = (0..100).map_while(|_| open(1).ok()).collect();
        assert_eq!(held.len(), 10 + LEAVING_OF_USER_MAX);
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
            place.works();
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
        let turns: Vec<_> =
            held.iter().map(|(place, _)| place).take(4).filter_map(Place::turn).collect();
        assert_eq!(turns.len(), 4);
        assert!(roots[0].0.turn().is_some());
    }

    #[test]
    fn one_user_does_not_take_every_turn_or_all_room() {
        let places = places(702);
        let place = |uid| places.admit(uid, UnixStream::pair().unwrap().0).0.unwrap();
        let (one, other) = (place(1), place(2));
        let turns: Vec<_> = (0..10).map(|_| one.turn().unwrap()).collect();
        assert!(other.turn().is_some());
        assert_eq!(places.state().users[&1].commands, 10);
        drop(turns);
        let rooms: Vec<_> = (0..4).map(|_| one.room(4 << 20).unwrap()).collect();
        assert!(one.room(1 << 20).is_none());
        assert!(one.room(SMALL_BYTES).is_some() && other.room(4 << 20).is_some());
        drop(rooms);
        drop((one, other));
        assert!(places.state().users.is_empty() && places.state().bytes == 0);
    }
}
