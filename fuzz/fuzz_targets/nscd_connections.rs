// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections to the nscd server, with any behaviour of clients at any time. Connections of several users send in
//! pieces, hang up, and read their replies or not, while time passes. No connection stays longer than allowed, and
//! there are never too many. A user with many connections does not take the place of a user with few. The server sends
//! only replies, each once and from its beginning.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_nscd::protocol::{self, MapLookupKind, NscdRequest, ParsedRequest, Table};
use roster_nscd::server::connections::{
    ConnectionState, Connections, REPLY_TIMEOUT, REQUEST_TIMEOUT,
};
use roster_nscd::server::socket;
use roster_nscd::server::unmapped_clients::PeerCredentials;
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
/// The timeout of an admin request here.
const REBUILD_TIMEOUT: Duration = Duration::from_secs(6);
/// A time after which no connection of a gone client is left.
const LONG: Duration = Duration::from_secs(3600);

/// The other end of a connection.
struct Client {
    token: u64,
    uid: u32,
    /// None once it hung up.
    socket: Option<OwnedFd>,
    until: Instant,
    received: Vec<u8>,
    /// Waits for a reply: the server gets only an event of its end.
    waits: bool,
    /// Was sent a map; the connection counts until the client receives it.
    is_awaiting_receipt: bool,
    /// Was sent a large reply; the connection counts until the client reads it.
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
                // A whole request at once.
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
                assert!(connections.close_expired(now).is_none_or(|next| next > now));
            }
            _ => {
                if let Some(client) = clients.get_mut(at) {
                    take(client);
                }
            }
        }
        // Events that the poll would report.
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
                !stays || client.is_awaiting_receipt || client.is_told || now < client.until,
                "a client stays longer than allowed"
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
    connections.close_expired(now + LONG);
    assert!(connections.is_empty());
});

fn connect(connections: &mut Connections, clients: &mut Vec<Client>, uid: u32, now: Instant) {
    let few = few(connections, clients);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let (ours, socket) = pair.expect("a pair of sockets");
    set_socket_send_buffer_size(&ours, 4096).expect("a small buffer");
    let peer = PeerCredentials { uid, pid: 1 };
    let token = connections.accept(ours, peer, now).expect("somebody can always go");
    for token in few {
        assert!(connections.peer(token).is_some(), "a client with few connections lost one");
    }
    connections.poll(token);
    let (socket, until) = (Some(socket), now + REQUEST_TIMEOUT);
    clients.push(Client {
        token,
        uid,
        socket,
        until,
        received: Vec::new(),
        waits: false,
        is_awaiting_receipt: false,
        is_told: false,
    });
}

/// Connections of users that have fewer than another user, without those that wait for the client to receive a reply.
fn few(connections: &Connections, clients: &[Client]) -> Vec<u64> {
    let is_there = |client: &&Client| {
        !client.is_awaiting_receipt && !client.is_told && connections.peer(client.token).is_some()
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

/// Reads the received bytes.
fn take(client: &mut Client) {
    let Some(socket) = &client.socket else { return };
    let mut room = [0; 4096];
    while let Ok((_, bytes @ 1..)) = recv(socket, &mut room, RecvFlags::DONTWAIT) {
        client.received.extend_from_slice(&room[..bytes]);
    }
}

/// Checks that the received bytes are the beginning of a reply.
fn check(client: &Client) {
    if client.is_awaiting_receipt {
        return;
    }
    let packets =
        MapLookupKind::ALL.map(|kind| [protocol::not_served(kind), protocol::absent(kind)]);
    let large = vec![7; LARGE_BYTES];
    let mut answers = packets.iter().flatten().chain([&large]);
    assert!(answers.any(|answer| answer.starts_with(&client.received)), "{:?}", client.received);
}

/// Handles a request as a server does.
fn go_on(connections: &mut Connections, client: &mut Client, now: Instant) {
    let Some(heard) = connections.read_request(client.token) else { return };
    assert_eq!(heard.peer.uid, client.uid);
    let can_receive_map = connections.can_receive_map(client.uid);
    let mut wait = |state, pause| {
        (client.until, client.waits) = (now + pause, true);
        connections.wait(client.token, state, client.until);
    };
    match protocol::parse(&heard.bytes) {
        ParsedRequest::Complete(NscdRequest::Lookup(kind, _)) if kind.is_by_id() => {
            connections.send(client.token, protocol::absent(kind));
        }
        ParsedRequest::Complete(NscdRequest::Lookup(kind, _)) => {
            wait(ConnectionState::WaitingForHelper(kind), REPLY_TIMEOUT)
        }
        ParsedRequest::Complete(NscdRequest::Map(_, key)) if can_receive_map => {
            let (socket, _) = connections.peer(client.token).expect("it was heard");
            let null = File::open("/dev/null").expect("open it");
            if socket::send_map(socket, key, 1, null.as_fd()).is_ok() {
                client.is_awaiting_receipt = true;
                connections.mark_handed_over(client.token, now);
            } else {
                connections.abort(client.token);
            }
        }
        ParsedRequest::Complete(NscdRequest::Admin(_)) => {
            wait(ConnectionState::WaitingForRebuild(Table::Passwd, 1), REBUILD_TIMEOUT);
            let for_rebuild = |state: &ConnectionState| {
                matches!(state, ConnectionState::WaitingForRebuild(..)).then_some(())
            };
            assert_eq!(connections.waiting(for_rebuild), [(client.token, ())]);
            client.waits = false;
            client.is_told = connections.can_receive_reply(client.uid, LARGE_BYTES);
            if client.is_told {
                connections.send(client.token, vec![7; LARGE_BYTES]);
            } else {
                connections.send(client.token, protocol::not_served(MapLookupKind::UserByName));
            }
        }
        ParsedRequest::Complete(NscdRequest::NotServed(_) | NscdRequest::Map(..))
        | ParsedRequest::Invalid => {
            connections.abort(client.token);
        }
        ParsedRequest::Incomplete if heard.is_open => {
            connections.keep_partial(client.token, heard.bytes)
        }
        ParsedRequest::Incomplete => connections.abort(client.token),
    }
}
