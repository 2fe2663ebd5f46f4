//! Who is connected to the server of maps, whatever they do and whenever: connections of several users that
//! speak in pieces, hang up, take what they are told or not, while time passes. Nobody stays longer than
//! allowed, there are never too many, who has many takes no place of who has few, and nothing is said but
//! answers, each once and from its beginning.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_nscd::protocol::{self, Kind, Parsed, Request, Table};
use roster_nscd::server::connections::{ANSWERING, ASKING, Connections, State};
use roster_nscd::server::programs::Peer;
use roster_nscd::server::socket;
use rustix::event::epoll;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair,
};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CONNECTIONS_MAX: usize = 6;
const USERS: u32 = 4;
/// More than a socket takes at once here.
const LARGE_BYTES: usize = 20_000;
/// How long an order may take here.
const MAKING: Duration = Duration::from_secs(6);
/// After which no connection is left whose client is gone.
const LONG: Duration = Duration::from_secs(3600);

/// The other end of a connection.
struct Client {
    token: u64,
    uid: u32,
    /// None once it hung up.
    socket: Option<OwnedFd>,
    until: Instant,
    heard: Vec<u8>,
    /// Asked, and waits: the server is told of its end only.
    waits: bool,
    /// Was handed a map, which counts as long as it is not taken.
    is_handed: bool,
    /// Was told a large answer, which counts as long as it is not read.
    is_told: bool,
}

fuzz_target!(|input: &[u8]| {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a poll");
    let mut connections = Connections::new(Arc::new(poll), CONNECTIONS_MAX);
    let mut clients: Vec<Client> = Vec::new();
    let mut now = Instant::now();
    let mut bytes = input.iter().copied();
    while let (Some(what), Some(which)) = (bytes.next(), bytes.next()) {
        let at = usize::from(which) % clients.len().max(1);
        match what % 8 {
            0 => connect(&mut connections, &mut clients, 1 + u32::from(which) % USERS, now),
            1 => {
                let piece: Vec<u8> = bytes.by_ref().take(usize::from(which % 32)).collect();
                say(clients.get(at), &piece);
            }
            2 | 3 => {
                // A whole question at once.
                let number = [0, 1, 2, 3, 15, 11, 9, 10][usize::from(which % 8)];
                let mut request = protocol::bytes(&[2, number, 5]);
                request.extend_from_slice(b"root\0");
                say(clients.get(at), &request);
            }
            4 => {
                if let Some(socket) = clients.get(at).and_then(|client| client.socket.as_ref()) {
                    let _ = shutdown(socket, Shutdown::Write);
                }
            }
            5 => {
                if let Some(client) = clients.get_mut(at) {
                    client.socket = None;
                }
            }
            6 => {
                now += Duration::from_millis(u64::from(which) * 20);
                assert!(connections.close_late(now).is_none_or(|next| next > now));
            }
            _ => {
                if let Some(client) = clients.get_mut(at) {
                    take(client);
                }
            }
        }
        // What the poll would tell of.
        for client in &mut clients {
            if connections.peer(client.token).is_some()
                && (!client.waits || client.socket.is_none())
            {
                go_on(&mut connections, client, now);
            }
        }
        clients.retain(|client| {
            let stays = connections.peer(client.token).is_some();
            assert!(
                !stays || client.is_handed || client.is_told || now < client.until,
                "nobody stays longer than allowed"
            );
            stays || client.socket.is_some()
        });
        assert!(connections.len() <= CONNECTIONS_MAX);
    }
    for client in &mut clients {
        take(client);
        check(client);
    }
    clients.clear();
    connections.close_late(now + LONG);
    assert!(connections.is_empty());
});

fn connect(connections: &mut Connections, clients: &mut Vec<Client>, uid: u32, now: Instant) {
    let few = few(connections, clients);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let (ours, socket) = pair.expect("a pair of sockets");
    set_socket_send_buffer_size(&ours, 4096).expect("a small buffer");
    let peer = Peer { uid, pid: 1 };
    let token = connections.welcome(ours, peer, now).expect("somebody can always go");
    for token in few {
        assert!(connections.peer(token).is_some(), "who has few connections keeps them");
    }
    connections.poll(token);
    let (socket, until) = (Some(socket), now + ASKING);
    clients.push(Client {
        token,
        uid,
        socket,
        until,
        heard: Vec::new(),
        waits: false,
        is_handed: false,
        is_told: false,
    });
}

/// Connections of users who have fewer than somebody else has, without those that wait for something to be taken.
fn few(connections: &Connections, clients: &[Client]) -> Vec<u64> {
    let is_there = |client: &&Client| {
        !client.is_handed && !client.is_told && connections.peer(client.token).is_some()
    };
    let of = |uid| clients.iter().filter(is_there).filter(|client| client.uid == uid).count();
    let most = (1..=USERS).map(of).max().unwrap_or_default();
    let few = clients.iter().filter(is_there).filter(|client| of(client.uid) < most);
    few.map(|client| client.token).collect()
}

fn say(client: Option<&Client>, bytes: &[u8]) {
    if let Some(socket) = client.and_then(|client| client.socket.as_ref()) {
        let _ = send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// Reads what has come.
fn take(client: &mut Client) {
    let Some(socket) = &client.socket else { return };
    let mut room = [0; 4096];
    while let Ok((_, bytes @ 1..)) = recv(socket, &mut room, RecvFlags::DONTWAIT) {
        client.heard.extend_from_slice(&room[..bytes]);
    }
}

/// What was said to a client is the beginning of one of the answers.
fn check(client: &Client) {
    if client.is_handed {
        return;
    }
    let packets = Kind::ALL.map(|kind| [protocol::not_served(kind), protocol::absent(kind)]);
    let large = vec![7; LARGE_BYTES];
    let mut answers = packets.iter().flatten().chain([&large]);
    assert!(answers.any(|answer| answer.starts_with(&client.heard)), "{:?}", client.heard);
}

/// What a server does with what was said.
fn go_on(connections: &mut Connections, client: &mut Client, now: Instant) {
    let Some(heard) = connections.hear(client.token) else { return };
    assert_eq!(heard.peer.uid, client.uid);
    let may_be_handed = connections.may_be_handed(client.uid);
    let mut wait = |state, pause| {
        (client.until, client.waits) = (now + pause, true);
        connections.wait(client.token, state, client.until);
    };
    match protocol::parse(&heard.bytes) {
        Parsed::Whole(Request::LookUp(kind, _)) if kind.is_by_id() => {
            connections.send(client.token, protocol::absent(kind));
        }
        Parsed::Whole(Request::LookUp(kind, _)) => wait(State::Waiting(kind), ANSWERING),
        Parsed::Whole(Request::Map(_, key)) if may_be_handed => {
            let (socket, _) = connections.peer(client.token).expect("it was heard");
            let null = File::open("/dev/null").expect("open it");
            if socket::hand_over(socket, key, 1, null.as_fd()).is_ok() {
                client.is_handed = true;
                connections.was_handed(client.token, now);
            } else {
                connections.drop(client.token);
            }
        }
        Parsed::Whole(Request::Order(_)) => {
            wait(State::ForNewer(Table::Passwd, 1), MAKING);
            let is_for_newer = |state: &State| matches!(state, State::ForNewer(..)).then_some(());
            assert_eq!(connections.waiting(is_for_newer), [(client.token, ())]);
            client.waits = false;
            client.is_told = connections.has_room_for(client.uid, LARGE_BYTES);
            if client.is_told {
                connections.send(client.token, vec![7; LARGE_BYTES]);
            } else {
                connections.send(client.token, protocol::not_served(Kind::UserByName));
            }
        }
        Parsed::Whole(Request::NotServed(_) | Request::Map(..)) | Parsed::Wrong => {
            connections.drop(client.token);
        }
        Parsed::More if heard.is_open => connections.keep(client.token, heard.bytes),
        Parsed::More => connections.drop(client.token),
    }
}
