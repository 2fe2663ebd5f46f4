// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client connections: the state of each request, the unsent part of each reply, and the deadlines. This module does
//! not look up entries: `dispatch` does.

use super::map_files::RETIRED_MAX;
use super::unmapped_clients::PeerCredentials;
use super::{add, socket, socket_backlog};
use crate::protocol::{self, MapLookupKind, Table};
use rustix::event::epoll;
use rustix::net::{Shutdown, shutdown};
use rustix::process::Resource;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time for a client to send its request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time for a reply: glibc waits 5 s.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(4);
// The server answers or closes before glibc's timeout.
const _: () = assert!(REQUEST_TIMEOUT.as_secs() < 5 && REPLY_TIMEOUT.as_secs() < 5);
/// Maximum number of connections. Above it, a connection without a request is closed first.
const CONNECTIONS_MAX: usize = 2048;
/// Maximum number of maps and large replies that one user other than root has not received. The kernel charges them to
/// this server, and at its limit rejects more.
const UNRECEIVED_MAX: usize = 64;
/// Interval of the check for received data, if the client sends no event.
const RECEIPT_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Replies above this size are large: a group of a thousand members.
const LARGE_BYTES: usize = 16 << 10;
/// Maximum bytes of unsent large replies, for one user other than root and for all such users. A single reply may be
/// larger.
const UNSENT_BYTES_PER_USER_MAX: usize = 16 << 20;
const UNSENT_BYTES_MAX: usize = 128 << 20;
/// Descriptors for other purposes, including the retired maps of both tables. A client that holds connections must not
/// exhaust the descriptors for new maps.
const OTHER_DESCRIPTORS: u64 = 128 + 2 * RETIRED_MAX as u64;
const REQUEST_BYTES_MAX: usize = protocol::REQUEST_HEADER_BYTES + protocol::KEY_BYTES_MAX;
/// Token of the first connection; lower tokens identify other event sources.
const FIRST: u64 = 16;

/// The state of a connection.
pub enum ConnectionState {
    /// The request is incomplete.
    ReadingRequest,
    /// Waits for a helper.
    WaitingForHelper(MapLookupKind),
    /// Waits for the first map of a table. The request had this key.
    WaitingForMap(Table, Vec<u8>),
    /// Waits until the build attempts of a table exceed this number.
    WaitingForRebuild(Table, u64),
    /// Sends a reply, which other connections may share, and has sent that many bytes.
    Sending(Arc<[u8]>, usize),
    /// The server has sent a map, or all that it will send of a large reply. The state lasts until the client receives
    /// the data or disconnects.
    AwaitingReceipt,
}

struct Connection {
    socket: OwnedFd,
    peer: PeerCredentials,
    received: Vec<u8>,
    state: ConnectionState,
    until: Instant,
}

impl Connection {
    /// Returns whether unreceived data has to be counted for this connection.
    fn is_awaiting_receipt(&self) -> bool {
        matches!(self.state, ConnectionState::AwaitingReceipt) || self.unsent_bytes() > 0
    }

    /// Returns the bytes of a large reply that the socket has not accepted yet. Root is exempt.
    fn unsent_bytes(&self) -> usize {
        match &self.state {
            ConnectionState::Sending(answer, _)
                if self.peer.uid != 0 && answer.len() > LARGE_BYTES =>
            {
                answer.len()
            }
            _ => 0,
        }
    }

    /// Returns whether the client has unread data. Returns false if the kernel cannot report it.
    fn has_unread(&self) -> bool {
        socket_backlog::has_unread(&self.socket).unwrap_or(false)
    }
}

/// Bytes received from a client so far.
pub struct ReceivedRequest {
    /// The client.
    pub peer: PeerCredentials,
    /// All bytes.
    pub bytes: Vec<u8>,
    /// Whether more bytes may follow: the client is connected, and the maximum is not reached.
    pub is_open: bool,
}

/// All connections, by their epoll tokens.
pub struct Connections {
    poll: Arc<OwnedFd>,
    all: HashMap<u64, Connection>,
    deadlines: BTreeSet<(Instant, u64)>,
    max: usize,
    next_token: u64,
    /// Number of replies that were sent or begun.
    pub replies: u64,
    /// Number of connections closed without a reply: over the limit, too slow, or invalid.
    pub dropped: u64,
}

impl Connections {
    /// Creates an empty set. Connections that have to wait are registered with `poll`.
    #[must_use]
    pub fn new(poll: Arc<OwnedFd>, max: usize) -> Self {
        let (all, deadlines) = (HashMap::new(), BTreeSet::new());
        Self { poll, all, deadlines, max, next_token: FIRST, replies: 0, dropped: 0 }
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Accepts a connection, and may evict another for it. Returns `None` if none can be evicted.
    pub fn accept(&mut self, socket: OwnedFd, peer: PeerCredentials, now: Instant) -> Option<u64> {
        if self.all.len() >= self.max && !self.evict_one() {
            self.dropped += 1;
            return None;
        }
        let token = self.next_token;
        self.next_token += 1;
        let (heard, until) = (Vec::new(), now + REQUEST_TIMEOUT);
        self.all.insert(
            token,
            Connection {
                socket,
                peer,
                received: heard,
                state: ConnectionState::ReadingRequest,
                until,
            },
        );
        self.deadlines.insert((until, token));
        Some(token)
    }

    /// Registers with epoll a connection that could not be answered at once.
    pub fn poll(&mut self, token: u64) {
        if let Some(connection) = self.all.get(&token)
            && add(&self.poll, connection.socket.as_fd(), token).is_err()
        {
            self.close(token);
        }
    }

    /// Evicts a connection of the user with the most connections: the oldest without a request, else the next to
    /// expire.
    pub fn evict_one(&mut self) -> bool {
        let mut of_users = HashMap::<u32, usize>::new();
        // Connections with unreceived data stay, because that data has to be counted.
        for connection in self.all.values().filter(|connection| !connection.is_awaiting_receipt()) {
            *of_users.entry(connection.peer.uid).or_default() += 1;
        }
        let Some((&most, _)) = of_users.iter().max_by_key(|&(_, connections)| connections) else {
            return false;
        };
        let mut of_most = self.deadlines.iter().filter_map(|&(_, token)| {
            let connection = self
                .all
                .get(&token)
                .filter(|of| of.peer.uid == most && !of.is_awaiting_receipt())?;
            Some((token, matches!(connection.state, ConnectionState::ReadingRequest)))
        });
        let first = of_most.clone().next();
        let Some((token, _)) = of_most.find(|&(_, is_silent)| is_silent).or(first) else {
            return false;
        };
        self.abort(token);
        true
    }

    /// Closes a connection.
    pub fn close(&mut self, token: u64) {
        if let Some(connection) = self.all.remove(&token) {
            self.deadlines.remove(&(connection.until, token));
        }
    }

    /// Closes a connection that cannot be answered, and counts it as dropped.
    pub fn abort(&mut self, token: u64) {
        self.dropped += 1;
        self.close(token);
    }

    /// Closes expired connections. Returns the next deadline.
    pub fn close_expired(&mut self, now: Instant) -> Option<Instant> {
        while let Some(&(until, token)) = self.deadlines.first() {
            if until > now {
                return Some(until);
            }
            let connection = self.all.get(&token);
            match connection.map(|connection| &connection.state) {
                // glibc continues with the name services.
                Some(&ConnectionState::WaitingForHelper(kind)) => {
                    self.send(token, protocol::not_served(kind));
                    self.abort(token);
                }
                Some(ConnectionState::AwaitingReceipt)
                    if connection.is_some_and(Connection::has_unread) =>
                {
                    self.wait(
                        token,
                        ConnectionState::AwaitingReceipt,
                        now + RECEIPT_CHECK_INTERVAL,
                    );
                }
                Some(ConnectionState::AwaitingReceipt) => self.close(token),
                Some(ConnectionState::Sending(..)) => {
                    self.dropped += 1;
                    self.end(token);
                }
                _ => self.abort(token),
            }
        }
        None
    }

    /// Continues a connection after an event. Returns the received bytes if a request is still expected.
    pub fn read_request(&mut self, token: u64) -> Option<ReceivedRequest> {
        let connection = self.all.get_mut(&token)?;
        match &connection.state {
            ConnectionState::Sending(..) => {
                self.continue_sending(token);
                return None;
            }
            ConnectionState::ReadingRequest => {}
            // No further data is valid here: an event means that the client disconnected.
            ConnectionState::WaitingForHelper(_)
            | ConnectionState::WaitingForMap(..)
            | ConnectionState::WaitingForRebuild(..) => {
                self.close(token);
                return None;
            }
            // The event does not show that the client received the map.
            ConnectionState::AwaitingReceipt if connection.has_unread() => {
                let _ = epoll::delete(&*self.poll, &connection.socket);
                return None;
            }
            ConnectionState::AwaitingReceipt => {
                self.close(token);
                return None;
            }
        }
        let room = REQUEST_BYTES_MAX - connection.received.len().min(REQUEST_BYTES_MAX);
        let is_open = socket::receive(&connection.socket, &mut connection.received, room);
        let bytes = std::mem::take(&mut connection.received);
        let is_open = matches!(is_open, Ok(true)) && bytes.len() < REQUEST_BYTES_MAX;
        Some(ReceivedRequest { peer: connection.peer, bytes, is_open })
    }

    /// Stores the bytes of an incomplete request.
    pub fn keep_partial(&mut self, token: u64, bytes: Vec<u8>) {
        if let Some(connection) = self.all.get_mut(&token) {
            connection.received = bytes;
        }
    }

    /// Sets the state of a connection and its deadline.
    pub fn wait(&mut self, token: u64, state: ConnectionState, until: Instant) {
        let Some(connection) = self.all.get_mut(&token) else { return };
        self.deadlines.remove(&(connection.until, token));
        connection.state = state;
        connection.until = until;
        self.deadlines.insert((connection.until, token));
    }

    /// Returns the connections in the state that `what` selects, with its results.
    pub fn waiting<T>(&mut self, what: impl Fn(&ConnectionState) -> Option<T>) -> Vec<(u64, T)> {
        let all = self.all.iter();
        all.filter_map(|(&token, of)| Some((token, what(&of.state)?))).collect()
    }

    /// Returns the socket of a connection and its peer.
    #[must_use]
    pub fn peer(&self, token: u64) -> Option<(BorrowedFd<'_>, PeerCredentials)> {
        self.all.get(&token).map(|connection| (connection.socket.as_fd(), connection.peer))
    }

    /// Returns whether a reply of that size may be sent to a user, given the user's unread replies.
    #[must_use]
    pub fn can_receive_reply(&self, uid: u32, bytes: usize) -> bool {
        if uid == 0 || bytes <= LARGE_BYTES {
            return true;
        }
        let unsent = |of: &dyn Fn(u32) -> bool| -> usize {
            let all = self.all.values().filter(|connection| of(connection.peer.uid));
            all.map(Connection::unsent_bytes).sum()
        };
        let fits = |unsent, most| unsent == 0 || unsent + bytes <= most;
        self.can_receive_map(uid)
            && fits(unsent(&|of| of == uid), UNSENT_BYTES_PER_USER_MAX)
            && fits(unsent(&|_| true), UNSENT_BYTES_MAX)
    }

    /// Returns whether a map may be sent to a user, given the unreceived maps.
    #[must_use]
    pub fn can_receive_map(&self, uid: u32) -> bool {
        let handed = || self.all.values().filter(|connection| connection.is_awaiting_receipt());
        let own = || handed().filter(|connection| connection.peer.uid == uid).count();
        uid == 0 || (own() < UNRECEIVED_MAX && handed().count() < self.max / 2)
    }

    /// Records that a connection has unreceived data.
    pub fn mark_handed_over(&mut self, token: u64, now: Instant) {
        self.wait(token, ConnectionState::AwaitingReceipt, now + RECEIPT_CHECK_INTERVAL);
    }

    /// Sends a reply, as far as the socket has space.
    pub fn send(&mut self, token: u64, answer: impl Into<Arc<[u8]>>) {
        let Some(connection) = self.all.get_mut(&token) else { return };
        self.replies += 1;
        connection.state = ConnectionState::Sending(answer.into(), 0);
        self.continue_sending(token);
    }

    fn continue_sending(&mut self, token: u64) {
        let Some(connection) = self.all.get_mut(&token) else { return };
        let ConnectionState::Sending(answer, sent) = &mut connection.state else { return };
        match socket::transmit(&connection.socket, &answer[*sent..]) {
            Ok(more) => *sent += more,
            Err(_) => return self.close(token),
        }
        if *sent == answer.len() || !self.poll_for(token, epoll::EventFlags::OUT) {
            self.end(token);
        }
    }

    /// Ends a connection after its reply. The connection stays while a large reply is unread. The kernel stores that
    /// data even if the connection is closed.
    fn end(&mut self, token: u64) {
        let Some(connection) = self.all.get(&token) else { return };
        if connection.is_awaiting_receipt() && connection.has_unread() {
            // The client reads an end of file after the reply.
            let _ = shutdown(&connection.socket, Shutdown::Write);
            if self.poll_for(token, epoll::EventFlags::IN) {
                return self.mark_handed_over(token, Instant::now());
            }
        }
        self.close(token);
    }

    /// Changes the events of a connection, or registers it. Returns whether that succeeded.
    fn poll_for(&self, token: u64, flags: epoll::EventFlags) -> bool {
        let Some(connection) = self.all.get(&token) else { return false };
        let (socket, event) = (&connection.socket, epoll::EventData::new_u64(token));
        epoll::modify(&*self.poll, socket, event, flags)
            .or_else(|_| epoll::add(&*self.poll, socket, event, flags))
            .is_ok()
    }
}

/// Raises the limit on descriptors as far as needed and permitted. Returns the number of connections that it allows.
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

/// Makes the kernel enlarge the descriptor table now. If threads share the table, each enlargement waits for an RCU
/// grace period of 8 to 15 ms (expand_fdtable in fs/file.c).
pub fn reserve_descriptors(connections: usize, any: BorrowedFd<'_>) {
    let last = connections as u64 + OTHER_DESCRIPTORS - 1;
    // If this fails, the table grows later, in steps.
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

    fn peer_of(uid: u32) -> PeerCredentials {
        PeerCredentials { uid, pid: 1 }
    }

    /// Returns whether the server has closed the connection.
    fn is_closed(client: &OwnedFd) -> bool {
        !matches!(socket::receive(client, &mut Vec::new(), 16), Ok(true))
    }

    #[test]
    fn nscd_top_user_loses_a_silent_connection() {
        let mut connections = connections(6);
        let now = Instant::now();
        let mut clients = Vec::new();
        let mut connect = |connections: &mut Connections, uid| {
            let (ours, theirs) = pair();
            let token = connections.accept(ours, peer_of(uid), now).unwrap();
            clients.push(theirs);
            token
        };
        let [root, alice] = [0, 1000].map(|uid| connect(&mut connections, uid));
        // One connection of user 2000 has sent a request, and is the next to expire.
        let asked = connect(&mut connections, 2000);
        connections.wait(
            asked,
            ConnectionState::WaitingForHelper(MapLookupKind::UserByName),
            now + REQUEST_TIMEOUT / 2,
        );
        let crowd: Vec<_> = (0..3).map(|_| connect(&mut connections, 2000)).collect();
        // Each new connection evicts one of user 2000 without a request.
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
    fn nscd_user_over_limit_takes_no_place() {
        let mut connections = connections(16);
        let now = Instant::now();
        let mut clients = Vec::new();
        for uid in 0..8 {
            let (ours, theirs) = pair();
            clients.push((connections.accept(ours, peer_of(uid), now).unwrap(), theirs));
        }
        for _ in 0..1000 {
            let (ours, _) = pair();
            connections.accept(ours, peer_of(99), now).unwrap();
        }
        assert_eq!(connections.len(), 16);
        for (token, client) in &clients {
            assert!(connections.peer(*token).is_some() && !is_closed(client));
        }
    }

    /// Hands over a descriptor, which is not a map in this test.
    fn handed(connections: &mut Connections, now: Instant, client: OwnedFd, uid: u32) -> u64 {
        let token = connections.accept(client, peer_of(uid), now).unwrap();
        let (socket, _) = connections.peer(token).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        socket::send_map(socket, b"passwd", 1, null.as_fd()).unwrap();
        connections.mark_handed_over(token, now);
        connections.poll(token);
        token
    }

    #[test]
    fn nscd_untaken_map_counts_until_closed() {
        let now = Instant::now();
        let mut connections = connections(1024);
        let (ours, theirs) = pair();
        let first = handed(&mut connections, now, ours, 1000);
        let clients: Vec<_> = (1..UNRECEIVED_MAX)
            .map(|_| {
                let (ours, theirs) = pair();
                handed(&mut connections, now, ours, 1000);
                theirs
            })
            .collect();
        assert!(!connections.can_receive_map(1000));
        assert!(connections.can_receive_map(1001) && connections.can_receive_map(0));
        // The client sends more, stops sending, stops reading; then time passes.
        socket::transmit(&theirs, b"!").unwrap();
        assert!(connections.read_request(first).is_none());
        for how in [Shutdown::Write, Shutdown::Both] {
            shutdown(&theirs, how).unwrap();
            assert!(connections.read_request(first).is_none());
        }
        connections.close_expired(now + RECEIPT_CHECK_INTERVAL * 2);
        assert!(!connections.can_receive_map(1000), "all of them lie there");
        while connections.evict_one() {}
        assert_eq!(connections.len(), UNRECEIVED_MAX);
        // One client receives its map, and one disconnects.
        drop(theirs);
        socket::receive(&clients[0], &mut Vec::new(), 64).unwrap();
        connections.close_expired(now + RECEIPT_CHECK_INTERVAL * 4);
        assert_eq!(connections.len(), UNRECEIVED_MAX - 2);
        assert!(connections.can_receive_map(1000));
    }

    #[test]
    fn many_users_who_take_no_maps_do_not_take_all_places() {
        let now = Instant::now();
        let mut connections = connections(64);
        let mut clients = Vec::new();
        for uid in 1..100 {
            if connections.can_receive_map(uid) {
                let (ours, theirs) = pair();
                handed(&mut connections, now, ours, uid);
                clients.push(theirs);
            }
        }
        assert_eq!(clients.len(), 32);
        assert!(connections.can_receive_map(0));
    }

    /// Sends a reply of that size to a user, if the limits permit it. Returns the client's socket.
    fn send_reply_of_size(
        connections: &mut Connections,
        now: Instant,
        uid: u32,
        bytes: usize,
    ) -> Option<OwnedFd> {
        if !connections.can_receive_reply(uid, bytes) {
            return None;
        }
        let (ours, theirs) = pair();
        let token = connections.accept(ours, peer_of(uid), now).unwrap();
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
        // The replies are in the socket buffers: sent by the server, but not received.
        let mut unread: Vec<_> =
            std::iter::from_fn(|| send_reply_of_size(&mut connections, now, 1000, 100_000))
                .collect();
        assert_eq!(unread.len(), UNRECEIVED_MAX);
        assert!(!connections.can_receive_map(1000), "they are like maps");
        assert!(connections.can_receive_reply(1000, LARGE_BYTES), "small ones go on");
        assert!(
            connections.can_receive_reply(1001, 100_000)
                && connections.can_receive_reply(0, 100_000)
        );
        connections.close_expired(now + RECEIPT_CHECK_INTERVAL * 2);
        while connections.evict_one() {}
        assert_eq!(connections.len(), UNRECEIVED_MAX, "nobody forgets them");
        // One client reads to the end of file, and one disconnects.
        assert_eq!(read_to_end(&unread.remove(0)), 100_000);
        unread.pop();
        connections.close_expired(now + RECEIPT_CHECK_INTERVAL * 4);
        assert_eq!(connections.len(), UNRECEIVED_MAX - 2);
        assert!(connections.can_receive_reply(1000, 100_000));
        // Connections of root are closed at once.
        assert_eq!(
            read_to_end(&send_reply_of_size(&mut connections, now, 0, 100_000).unwrap()),
            100_000
        );
        assert_eq!(connections.len(), UNRECEIVED_MAX - 2);
    }

    #[test]
    fn memory_for_answers_that_nobody_reads_has_a_bound() {
        let now = Instant::now();
        let mut connections = connections(1024);
        let large = 10 << 20;
        let mut unread = vec![send_reply_of_size(&mut connections, now, 1000, large).unwrap()];
        assert!(
            send_reply_of_size(&mut connections, now, 1000, large).is_none(),
            "more than one user's share"
        );
        unread.extend(
            (1001..2000).filter_map(|uid| send_reply_of_size(&mut connections, now, uid, large)),
        );
        assert_eq!(unread.len(), UNSENT_BYTES_MAX / large);
        // After the deadline, only the data in the socket buffer remains.
        connections.close_expired(now + REPLY_TIMEOUT);
        assert!(connections.can_receive_reply(1000, large));
        assert_eq!(connections.len(), unread.len());
        assert!(read_to_end(&unread[0]) < 1 << 20);
    }

    #[test]
    fn the_kernel_has_room_before_the_first_connection() {
        reserve_descriptors(1000, pair().0.as_fd());
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let room = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        assert!(room.trim().parse::<u64>().unwrap() >= 1000 + OTHER_DESCRIPTORS, "{room}");
    }

    #[test]
    fn nscd_connections_expire_and_helped_are_resumed() {
        let mut connections = connections(4);
        let now = Instant::now();
        let [(ours, silent), (also_ours, asker)] = [pair(), pair()];
        connections.accept(ours, peer_of(1), now).unwrap();
        let asked = connections.accept(also_ours, peer_of(1), now).unwrap();
        connections.wait(
            asked,
            ConnectionState::WaitingForHelper(MapLookupKind::GroupsOf),
            now + REPLY_TIMEOUT,
        );
        assert_eq!(
            connections.close_expired(now + REQUEST_TIMEOUT / 2),
            Some(now + REQUEST_TIMEOUT)
        );
        assert_eq!(connections.close_expired(now + REQUEST_TIMEOUT), Some(now + REPLY_TIMEOUT));
        assert!(is_closed(&silent) && !is_closed(&asker));
        assert_eq!(connections.close_expired(now + REPLY_TIMEOUT), None);
        assert!(connections.is_empty());
        let mut said = Vec::new();
        while let Ok(true) = socket::receive(&asker, &mut said, 64) {}
        assert_eq!(said, protocol::not_served(MapLookupKind::GroupsOf));
    }
}
