//! Who is connected: what has come of each question, what is left to send of each answer, and until when
//! it is waited for. Knows no answer.

use super::maps::RETIRED_MAX;
use super::programs::Peer;
use super::{add, socket, unread};
use crate::protocol::{self, Kind, Table};
use rustix::event::epoll;
use rustix::net::{Shutdown, shutdown};
use rustix::process::Resource;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client may take to ask.
pub const ASKING: Duration = Duration::from_secs(2);
/// How long it may take until it is answered: glibc waits 5 s.
pub const ANSWERING: Duration = Duration::from_secs(4);
// A client is sent away before it gives up on its own.
const _: () = assert!(ASKING.as_secs() < 5 && ANSWERING.as_secs() < 5);
/// Connections at once; who has not asked goes first.
const CONNECTIONS_MAX: usize = 2048;
/// Maps and large answers on their way to one user who is not root, as many as he does not take: the system counts
/// them as this server's, and gives out no more where there are too many.
const HANDED_MAX: usize = 64;
/// How often it is looked whether such a one was taken, where the other end does not tell.
const HANDED: Duration = Duration::from_secs(60);
/// An answer of more bytes is a large one: a group of a thousand members.
const LARGE_BYTES: usize = 16 << 10;
/// Bytes of large answers that wait here until one user who is not root makes room for them, and those of all such
/// users. One at a time may be larger.
const UNSENT_BYTES_OF_A_USER: usize = 16 << 20;
const UNSENT_BYTES_MAX: usize = 128 << 20;
/// Descriptors for all else: also the old maps of both tables, of which there are many where much is changed. A stranger
/// who holds connections is not to be why no new one can be made.
const OTHER_DESCRIPTORS: u64 = 128 + 2 * RETIRED_MAX as u64;
/// Longest request.
const REQUEST_BYTES_MAX: usize = protocol::REQUEST_HEADER_BYTES + protocol::KEY_BYTES_MAX;
/// The number of the first connection: those before it are no connections.
const FIRST: u64 = 16;

/// What a connection is for, now.
pub enum State {
    /// The question is not all there.
    Asking,
    /// For a helper.
    Waiting(Kind),
    /// For the first map of a table, which the question asked for with this key.
    ForMap(Table, Vec<u8>),
    /// For more attempts than that to make a map of a table.
    ForNewer(Table, u64),
    /// What is left of the answer, which others may be told as well.
    Sending(Arc<[u8]>, usize),
    /// Was handed a map, or all that it will be of a large answer: on its way until the other end has received it or
    /// is gone.
    Handed,
}

struct Connection {
    socket: OwnedFd,
    peer: Peer,
    heard: Vec<u8>,
    state: State,
    until: Instant,
}

impl Connection {
    /// Whether something is on its way to the other end that has to be counted until it is taken.
    fn is_handed(&self) -> bool {
        matches!(self.state, State::Handed) || self.unsent_bytes() > 0
    }

    /// Bytes of a large answer that the other end has no room for yet. Root is believed to read.
    fn unsent_bytes(&self) -> usize {
        match &self.state {
            State::Sending(answer, _) if self.peer.uid != 0 && answer.len() > LARGE_BYTES => {
                answer.len()
            }
            _ => 0,
        }
    }

    /// Whether the other end has not received everything. Where that cannot be told nothing is waited for.
    fn has_unread(&self) -> bool {
        unread::has_unread(&self.socket).unwrap_or(false)
    }
}

/// What somebody has said so far.
pub struct Heard {
    /// Who.
    pub peer: Peer,
    /// All of it.
    pub bytes: Vec<u8>,
    /// Whether more may come: the other end is open, and the longest request is longer.
    pub is_open: bool,
}

/// All connections, by the numbers that the poll knows them by.
pub struct Connections {
    poll: Arc<OwnedFd>,
    all: HashMap<u64, Connection>,
    deadlines: BTreeSet<(Instant, u64)>,
    max: usize,
    next_token: u64,
    /// Answers that were sent, or begun.
    pub answered: u64,
    /// Those that were closed without an answer: too many, too slow, or nonsense.
    pub dropped: u64,
}

impl Connections {
    /// None yet. They are polled there as soon as they have to be waited for.
    #[must_use]
    pub fn new(poll: Arc<OwnedFd>, max: usize) -> Self {
        let (all, deadlines) = (HashMap::new(), BTreeSet::new());
        Self { poll, all, deadlines, max, next_token: FIRST, answered: 0, dropped: 0 }
    }

    /// Connections now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes a connection, for which another may have to go. Nothing where none can go.
    pub fn welcome(&mut self, socket: OwnedFd, peer: Peer, now: Instant) -> Option<u64> {
        if self.all.len() >= self.max && !self.make_room() {
            self.dropped += 1;
            return None;
        }
        let token = self.next_token;
        self.next_token += 1;
        let (heard, until) = (Vec::new(), now + ASKING);
        self.all.insert(token, Connection { socket, peer, heard, state: State::Asking, until });
        self.deadlines.insert((until, token));
        Some(token)
    }

    /// Has one be polled that could not be answered at once.
    pub fn poll(&mut self, token: u64) {
        if let Some(connection) = self.all.get(&token)
            && add(&self.poll, connection.socket.as_fd(), token).is_err()
        {
            self.close(token);
        }
    }

    /// Closes a connection of the user who has the most: the one that has been silent for longest, or else
    /// the one that would be closed next.
    pub fn make_room(&mut self) -> bool {
        let mut of_users = HashMap::<u32, usize>::new();
        // What is on its way stays there, and has to be counted.
        for connection in self.all.values().filter(|connection| !connection.is_handed()) {
            *of_users.entry(connection.peer.uid).or_default() += 1;
        }
        let Some((&most, _)) = of_users.iter().max_by_key(|&(_, connections)| connections) else {
            return false;
        };
        let mut of_most = self.deadlines.iter().filter_map(|&(_, token)| {
            let connection =
                self.all.get(&token).filter(|of| of.peer.uid == most && !of.is_handed())?;
            Some((token, matches!(connection.state, State::Asking)))
        });
        let first = of_most.clone().next();
        let Some((token, _)) = of_most.find(|&(_, is_silent)| is_silent).or(first) else {
            return false;
        };
        self.drop(token);
        true
    }

    /// Closes a connection.
    pub fn close(&mut self, token: u64) {
        if let Some(connection) = self.all.remove(&token) {
            self.deadlines.remove(&(connection.until, token));
        }
    }

    /// Closes a connection that nothing can be said to.
    pub fn drop(&mut self, token: u64) {
        self.dropped += 1;
        self.close(token);
    }

    /// Closes those whose time is over. Gives when the next one's is.
    pub fn close_late(&mut self, now: Instant) -> Option<Instant> {
        while let Some(&(until, token)) = self.deadlines.first() {
            if until > now {
                return Some(until);
            }
            let connection = self.all.get(&token);
            match connection.map(|connection| &connection.state) {
                // glibc goes on with the name services.
                Some(&State::Waiting(kind)) => {
                    self.send(token, protocol::not_served(kind));
                    self.drop(token);
                }
                Some(State::Handed) if connection.is_some_and(Connection::has_unread) => {
                    self.wait(token, State::Handed, now + HANDED);
                }
                Some(State::Handed) => self.close(token),
                Some(State::Sending(..)) => {
                    self.dropped += 1;
                    self.end(token);
                }
                _ => self.drop(token),
            }
        }
        None
    }

    /// Goes on with a connection of which the poll has something to tell. Gives what was said, where a
    /// question is still to come.
    pub fn hear(&mut self, token: u64) -> Option<Heard> {
        let connection = self.all.get_mut(&token)?;
        match &connection.state {
            State::Sending(..) => {
                self.go_on_sending(token);
                return None;
            }
            State::Asking => {}
            // Nothing more is expected: who hangs up is not waited for.
            State::Waiting(_) | State::ForMap(..) | State::ForNewer(..) => {
                self.close(token);
                return None;
            }
            // Whatever that is, it does not take the map off its way.
            State::Handed if connection.has_unread() => {
                let _ = epoll::delete(&*self.poll, &connection.socket);
                return None;
            }
            State::Handed => {
                self.close(token);
                return None;
            }
        }
        let room = REQUEST_BYTES_MAX - connection.heard.len().min(REQUEST_BYTES_MAX);
        let is_open = socket::receive(&connection.socket, &mut connection.heard, room);
        let bytes = std::mem::take(&mut connection.heard);
        let is_open = matches!(is_open, Ok(true)) && bytes.len() < REQUEST_BYTES_MAX;
        Some(Heard { peer: connection.peer, bytes, is_open })
    }

    /// Keeps what was said until there is more.
    pub fn keep(&mut self, token: u64, bytes: Vec<u8>) {
        if let Some(connection) = self.all.get_mut(&token) {
            connection.heard = bytes;
        }
    }

    /// Has a connection wait.
    pub fn wait(&mut self, token: u64, state: State, until: Instant) {
        let Some(connection) = self.all.get_mut(&token) else { return };
        self.deadlines.remove(&(connection.until, token));
        connection.state = state;
        connection.until = until;
        self.deadlines.insert((connection.until, token));
    }

    /// Those that wait as `what` says, with what it makes of that; they are for the caller to go on with.
    pub fn waiting<T>(&mut self, what: impl Fn(&State) -> Option<T>) -> Vec<(u64, T)> {
        let all = self.all.iter();
        all.filter_map(|(&token, of)| Some((token, what(&of.state)?))).collect()
    }

    /// The other end of a connection, and whose it is.
    #[must_use]
    pub fn peer(&self, token: u64) -> Option<(BorrowedFd<'_>, Peer)> {
        self.all.get(&token).map(|connection| (connection.socket.as_fd(), connection.peer))
    }

    /// Whether an answer of so many bytes may be sent to a user, who may not have read others.
    #[must_use]
    pub fn has_room_for(&self, uid: u32, bytes: usize) -> bool {
        if uid == 0 || bytes <= LARGE_BYTES {
            return true;
        }
        let unsent = |of: &dyn Fn(u32) -> bool| -> usize {
            let all = self.all.values().filter(|connection| of(connection.peer.uid));
            all.map(Connection::unsent_bytes).sum()
        };
        let fits = |unsent, most| unsent == 0 || unsent + bytes <= most;
        self.may_be_handed(uid)
            && fits(unsent(&|of| of == uid), UNSENT_BYTES_OF_A_USER)
            && fits(unsent(&|_| true), UNSENT_BYTES_MAX)
    }

    /// Whether a map may be on its way to a user, who may have left others lying there.
    #[must_use]
    pub fn may_be_handed(&self, uid: u32) -> bool {
        let handed = || self.all.values().filter(|connection| connection.is_handed());
        let own = || handed().filter(|connection| connection.peer.uid == uid).count();
        uid == 0 || (own() < HANDED_MAX && handed().count() < self.max / 2)
    }

    /// Takes note that something is on its way by that connection.
    pub fn was_handed(&mut self, token: u64, now: Instant) {
        self.wait(token, State::Handed, now + HANDED);
    }

    /// Sends an answer, in one piece where the socket has room for it.
    pub fn send(&mut self, token: u64, answer: impl Into<Arc<[u8]>>) {
        let Some(connection) = self.all.get_mut(&token) else { return };
        self.answered += 1;
        connection.state = State::Sending(answer.into(), 0);
        self.go_on_sending(token);
    }

    fn go_on_sending(&mut self, token: u64) {
        let Some(connection) = self.all.get_mut(&token) else { return };
        let State::Sending(answer, sent) = &mut connection.state else { return };
        match socket::transmit(&connection.socket, &answer[*sent..]) {
            Ok(more) => *sent += more,
            Err(_) => return self.close(token),
        }
        if *sent == answer.len() || !self.poll_for(token, epoll::EventFlags::OUT) {
            self.end(token);
        }
    }

    /// Ends a connection that is told no more. What it has not read of a large answer is counted until it has: the
    /// system keeps that for it whether the connection is closed here or not.
    fn end(&mut self, token: u64) {
        let Some(connection) = self.all.get(&token) else { return };
        if connection.is_handed() && connection.has_unread() {
            // Who reads to the end finds it.
            let _ = shutdown(&connection.socket, Shutdown::Write);
            if self.poll_for(token, epoll::EventFlags::IN) {
                return self.was_handed(token, Instant::now());
            }
        }
        self.close(token);
    }

    /// Has one be polled for something else than before. Says whether it is.
    fn poll_for(&self, token: u64, flags: epoll::EventFlags) -> bool {
        let Some(connection) = self.all.get(&token) else { return false };
        let (socket, event) = (&connection.socket, epoll::EventData::new_u64(token));
        epoll::modify(&*self.poll, socket, event, flags)
            .or_else(|_| epoll::add(&*self.poll, socket, event, flags))
            .is_ok()
    }
}

/// Raises the limit on descriptors as far as it goes and is needed. Gives how many connections that
/// allows.
pub fn connections_max() -> usize {
    let wanted = CONNECTIONS_MAX as u64 + OTHER_DESCRIPTORS;
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX).min(wanted);
    let raised = rustix::process::Rlimit { current: Some(most), maximum: limit.maximum };
    let most = if limit.current.is_some_and(|current| current < most) {
        let is_raised = rustix::process::setrlimit(Resource::Nofile, raised).is_ok();
        if is_raised { most } else { limit.current.unwrap_or(most) }
    } else {
        most
    };
    most.saturating_sub(OTHER_DESCRIPTORS).clamp(16, CONNECTIONS_MAX as u64) as usize
}

/// Has the kernel make room for so many connections now. Where threads share the table of descriptors, each time
/// it grows the one that needs a descriptor waits for a grace period of RCU, 8 to 15 ms (expand_fdtable in fs/file.c).
pub fn make_room_for(connections: usize, any: BorrowedFd<'_>) {
    let last = connections as u64 + OTHER_DESCRIPTORS - 1;
    // What cannot be done now is done later, one step after the other.
    let _ = rustix::io::fcntl_dupfd_cloexec(any, i32::try_from(last).unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn connections(max: usize) -> Connections {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        Connections::new(Arc::new(poll), max)
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    }

    fn of(uid: u32) -> Peer {
        Peer { uid, pid: 1 }
    }

    /// Whether the server has closed it.
    fn is_closed(client: &OwnedFd) -> bool {
        !matches!(socket::receive(client, &mut Vec::new(), 16), Ok(true))
    }

    #[test]
    fn who_has_the_most_connections_loses_one_of_the_silent_and_nobody_else_does() {
        let mut connections = connections(6);
        let now = Instant::now();
        let mut clients = Vec::new();
        let mut connect = |connections: &mut Connections, uid| {
            let (ours, theirs) = pair();
            let token = connections.welcome(ours, of(uid), now).unwrap();
            clients.push(theirs);
            token
        };
        let [root, alice] = [0, 1000].map(|uid| connect(&mut connections, uid));
        // One of the crowd's has asked, and waits for longest.
        let asked = connect(&mut connections, 2000);
        connections.wait(asked, State::Waiting(Kind::UserByName), now + ASKING / 2);
        let crowd: Vec<_> = (0..3).map(|_| connect(&mut connections, 2000)).collect();
        // Whoever comes, one of the crowd's goes that has said nothing.
        let late = [0, 3000].map(|uid| connect(&mut connections, uid));
        assert_eq!(connections.len(), 6);
        assert_eq!(connections.dropped, 2);
        for token in [root, alice, asked].into_iter().chain(late) {
            assert!(connections.peer(token).is_some(), "{token}");
        }
        let left = crowd.iter().filter(|&&token| connections.peer(token).is_some());
        assert_eq!(left.count(), 1);
        let closed: Vec<_> = clients.iter().map(is_closed).collect();
        assert_eq!(closed, [false, false, false, true, true, false, false, false]);
    }

    #[test]
    fn a_user_with_more_connections_than_there_may_be_takes_no_place_of_another() {
        let mut connections = connections(16);
        let now = Instant::now();
        let mut clients = Vec::new();
        for uid in 0..8 {
            let (ours, theirs) = pair();
            clients.push((connections.welcome(ours, of(uid), now).unwrap(), theirs));
        }
        for _ in 0..1000 {
            let (ours, _) = pair();
            connections.welcome(ours, of(99), now).unwrap();
        }
        assert_eq!(connections.len(), 16);
        for (token, client) in &clients {
            assert!(connections.peer(*token).is_some() && !is_closed(client));
        }
    }

    /// What is handed over is no map here.
    fn handed(connections: &mut Connections, now: Instant, client: OwnedFd, uid: u32) -> u64 {
        let token = connections.welcome(client, of(uid), now).unwrap();
        let (socket, _) = connections.peer(token).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        socket::hand_over(socket, b"passwd", 1, null.as_fd()).unwrap();
        connections.was_handed(token, now);
        connections.poll(token);
        token
    }

    #[test]
    fn a_map_that_is_not_taken_counts_whatever_its_client_says_until_it_is_gone() {
        let now = Instant::now();
        let mut connections = connections(1024);
        let (ours, theirs) = pair();
        let first = handed(&mut connections, now, ours, 1000);
        let clients: Vec<_> = (1..HANDED_MAX)
            .map(|_| {
                let (ours, theirs) = pair();
                handed(&mut connections, now, ours, 1000);
                theirs
            })
            .collect();
        assert!(!connections.may_be_handed(1000));
        assert!(connections.may_be_handed(1001) && connections.may_be_handed(0));
        // More is said, then nothing will be, then nothing will be read, and time passes.
        socket::transmit(&theirs, b"!").unwrap();
        assert!(connections.hear(first).is_none());
        for how in [Shutdown::Write, Shutdown::Both] {
            shutdown(&theirs, how).unwrap();
            assert!(connections.hear(first).is_none());
        }
        connections.close_late(now + HANDED * 2);
        assert!(!connections.may_be_handed(1000), "all of them lie there");
        while connections.make_room() {}
        assert_eq!(connections.len(), HANDED_MAX);
        // One has received it, and one is gone.
        drop(theirs);
        socket::receive(&clients[0], &mut Vec::new(), 64).unwrap();
        connections.close_late(now + HANDED * 4);
        assert_eq!(connections.len(), HANDED_MAX - 2);
        assert!(connections.may_be_handed(1000));
    }

    #[test]
    fn many_users_who_take_no_maps_do_not_take_all_places() {
        let now = Instant::now();
        let mut connections = connections(64);
        let mut clients = Vec::new();
        for uid in 1..100 {
            if connections.may_be_handed(uid) {
                let (ours, theirs) = pair();
                handed(&mut connections, now, ours, uid);
                clients.push(theirs);
            }
        }
        assert_eq!(clients.len(), 32);
        assert!(connections.may_be_handed(0));
    }

    /// Sends an answer of so many bytes to a user who has room for it. Gives the other end.
    fn told(
        connections: &mut Connections,
        now: Instant,
        uid: u32,
        bytes: usize,
    ) -> Option<OwnedFd> {
        if !connections.has_room_for(uid, bytes) {
            return None;
        }
        let (ours, theirs) = pair();
        let token = connections.welcome(ours, of(uid), now).unwrap();
        connections.send(token, vec![7; bytes]);
        Some(theirs)
    }

    fn read_to_end(socket: &OwnedFd) -> usize {
        let mut said = Vec::new();
        while let Ok(true) = socket::receive(socket, &mut said, 2048) {
            assert!(said.len() <= 1 << 20, "it never ends");
        }
        said.len()
    }

    #[test]
    fn large_answers_that_are_not_read_are_few_and_count_until_they_are() {
        let now = Instant::now();
        let mut connections = connections(1024);
        // They lie in the socket: for this server all is done, for the system it is not.
        let mut unread: Vec<_> =
            std::iter::from_fn(|| told(&mut connections, now, 1000, 100_000)).collect();
        assert_eq!(unread.len(), HANDED_MAX);
        assert!(!connections.may_be_handed(1000), "they are like maps");
        assert!(connections.has_room_for(1000, LARGE_BYTES), "small ones go on");
        assert!(connections.has_room_for(1001, 100_000) && connections.has_room_for(0, 100_000));
        connections.close_late(now + HANDED * 2);
        while connections.make_room() {}
        assert_eq!(connections.len(), HANDED_MAX, "nobody forgets them");
        // One reads, to an end that is there, and one goes.
        assert_eq!(read_to_end(&unread.remove(0)), 100_000);
        unread.pop();
        connections.close_late(now + HANDED * 4);
        assert_eq!(connections.len(), HANDED_MAX - 2);
        assert!(connections.has_room_for(1000, 100_000));
        // Root's are closed at once.
        assert_eq!(read_to_end(&told(&mut connections, now, 0, 100_000).unwrap()), 100_000);
        assert_eq!(connections.len(), HANDED_MAX - 2);
    }

    #[test]
    fn memory_for_answers_that_nobody_reads_has_a_bound() {
        let now = Instant::now();
        let mut connections = connections(1024);
        let large = 10 << 20;
        let mut unread = vec![told(&mut connections, now, 1000, large).unwrap()];
        assert!(told(&mut connections, now, 1000, large).is_none(), "more than one user's share");
        unread.extend((1001..2000).filter_map(|uid| told(&mut connections, now, uid, large)));
        assert_eq!(unread.len(), UNSENT_BYTES_MAX / large);
        // When its time is over only what the system keeps is left of each.
        connections.close_late(now + ANSWERING);
        assert!(connections.has_room_for(1000, large));
        assert_eq!(connections.len(), unread.len());
        assert!(read_to_end(&unread[0]) < 1 << 20);
    }

    #[test]
    fn the_kernel_has_room_before_the_first_connection() {
        make_room_for(1000, pair().0.as_fd());
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let room = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        assert!(room.trim().parse::<u64>().unwrap() >= 1000 + OTHER_DESCRIPTORS, "{room}");
    }

    #[test]
    fn everybody_is_gone_when_their_time_is_over_and_who_was_to_be_helped_is_sent_on() {
        let mut connections = connections(4);
        let now = Instant::now();
        let [(ours, silent), (also_ours, asker)] = [pair(), pair()];
        connections.welcome(ours, of(1), now).unwrap();
        let asked = connections.welcome(also_ours, of(1), now).unwrap();
        connections.wait(asked, State::Waiting(Kind::GroupsOf), now + ANSWERING);
        assert_eq!(connections.close_late(now + ASKING / 2), Some(now + ASKING));
        assert_eq!(connections.close_late(now + ASKING), Some(now + ANSWERING));
        assert!(is_closed(&silent) && !is_closed(&asker));
        assert_eq!(connections.close_late(now + ANSWERING), None);
        assert!(connections.is_empty());
        let mut said = Vec::new();
        while let Ok(true) = socket::receive(&asker, &mut said, 64) {}
        assert_eq!(said, protocol::not_served(Kind::GroupsOf));
    }
}
