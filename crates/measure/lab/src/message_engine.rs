// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine of protocols with one reply per message, over UDP or TCP: DNS and Kerberos. A user has one message in
//! flight. A [`MessageCodec`] encodes and parses the messages.

use crate::load_thread::{Engine, RequestProgress};
use crate::net::{Connection, ReadOutcome, Route};
use crate::poll::{Poller, ReadyEvent};
use crate::request_error::{RequestError, SystemCall};
use socket2::Socket;
use std::io::{ErrorKind, Read, Write};

/// Maximum size of a datagram.
const DATAGRAM_BYTES_MAX: usize = u16::MAX as usize;
/// Maximum size of a message over TCP, larger than any reply.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Messages of a protocol.
pub trait MessageCodec {
    /// Octets of the length before a message over TCP.
    const LENGTH_OCTETS: usize;
    /// Whether a reply identifies its request, so that a late one can be ignored.
    const IS_NUMBERED: bool;

    /// Writes the message of a request.
    fn write(&mut self, request: u64, out: &mut Vec<u8>) -> Result<(), RequestError>;

    /// Parses a reply to the message `asked`. Returns `None` for a reply to another message.
    fn read(&self, answer: &[u8], asked: &[u8]) -> Option<Result<(), RequestError>>;
}

/// Transports of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// Send datagrams
    Udp,
    /// Use connections
    Tcp,
}

/// The server, and how its sockets are used.
#[derive(Clone, Debug)]
pub struct ServerRoute {
    /// The server.
    pub route: Route,
    /// Transport of messages.
    pub protocol: Transport,
    /// Whether each message has its own socket.
    pub socket_per_request: bool,
}

#[derive(Debug)]
enum Channel {
    Udp(Socket),
    Tcp(Connection),
}

#[derive(Debug, Default)]
struct MessageSession {
    channel: Option<Channel>,
    /// Whether the connection is known to be established.
    is_connected: bool,
    /// Whether the connection has carried a reply.
    has_answered: bool,
    /// The pending request.
    request: u64,
    /// The message of the pending request; empty without one.
    sent: Vec<u8>,
    inbox: Vec<u8>,
}

/// The users of one thread.
#[derive(Debug)]
pub struct MessageEngine<D> {
    way: ServerRoute,
    dialect: D,
    sessions: Vec<MessageSession>,
    /// Turn of the source addresses. Threads begin at different ones.
    next_source: usize,
    scratch: Vec<u8>,
}

impl<D: MessageCodec> MessageEngine<D> {
    /// Creates an engine for these users. `turn` differs between threads.
    #[must_use]
    pub fn new(way: ServerRoute, dialect: D, users: usize, turn: usize) -> Self {
        let sessions = (0..users).map(|_| MessageSession::default()).collect();
        Self { way, dialect, sessions, next_source: turn, scratch: vec![0; DATAGRAM_BYTES_MAX] }
    }

    fn open(&mut self, user: usize, poll: &Poller) -> Result<(), RequestError> {
        self.next_source = self.next_source.wrapping_add(1);
        let failed = |error| RequestError::system(SystemCall::Connect, &error);
        let route = &self.way.route;
        let epoll = |error| RequestError::system(SystemCall::Epoll, &error);
        let channel = match self.way.protocol {
            Transport::Udp => {
                let socket = route.datagrams(self.next_source).map_err(failed)?;
                poll.add_datagrams(&socket, user).map_err(epoll)?;
                Channel::Udp(socket)
            }
            Transport::Tcp => {
                let socket = route.connect(self.next_source).map_err(failed)?;
                let link = Connection::new(socket, route.close);
                poll.add(&link, user).map_err(epoll)?;
                Channel::Tcp(link)
            }
        };
        let session = &mut self.sessions[user];
        session.inbox.clear();
        session.is_connected = false;
        session.has_answered = false;
        session.channel = Some(channel);
        Ok(())
    }

    fn send_request(
        &mut self,
        user: usize,
        request: u64,
        poll: &Poller,
    ) -> Result<(), RequestError> {
        if self.sessions[user].channel.is_none() {
            self.open(user, poll)?;
        }
        let session = &mut self.sessions[user];
        session.sent.clear();
        session.request = request;
        self.dialect.write(request, &mut session.sent)?;
        match &mut session.channel {
            Some(Channel::Udp(socket)) => {
                let sent = (&*socket).write(&session.sent);
                sent.map(drop).map_err(|error| RequestError::system(SystemCall::Send, &error))
            }
            Some(Channel::Tcp(link)) => {
                let length = session.sent.len();
                let octets = length.to_be_bytes();
                let head = D::LENGTH_OCTETS;
                let end = head + length;
                self.scratch.resize(end.max(DATAGRAM_BYTES_MAX), 0);
                self.scratch[..head].copy_from_slice(&octets[octets.len() - head..]);
                self.scratch[head..end].copy_from_slice(&session.sent);
                link.send(&self.scratch[..end])
            }
            None => Err(RequestError::Closed),
        }
    }

    /// Reads available data. Returns the result of the reply, if it has arrived.
    fn read_reply(
        &mut self,
        ReadyEvent { user, is_last }: ReadyEvent,
    ) -> Result<Option<Result<(), RequestError>>, RequestError> {
        let MessageSession { channel, is_connected: stands, sent: asked, inbox, .. } =
            &mut self.sessions[user];
        match channel {
            None => Err(RequestError::Closed),
            Some(Channel::Udp(socket)) => loop {
                match (&*socket).read(&mut self.scratch) {
                    Ok(read) => {
                        if let Some(said) = self.dialect.read(&self.scratch[..read], asked) {
                            return Ok(Some(said));
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                    Err(error) => return Err(RequestError::system(SystemCall::Receive, &error)),
                }
            },
            Some(Channel::Tcp(link)) => {
                if !*stands {
                    link.connect_result()?;
                    *stands = true;
                }
                link.flush()?;
                let heard = link.read(&mut self.scratch, inbox, is_last)?;
                let frame = |inbox: &[u8]| frame(inbox, D::LENGTH_OCTETS);
                while let Some((begin, end)) = frame(inbox).map_err(RequestError::Malformed)? {
                    let said = self.dialect.read(&inbox[begin..end], asked);
                    inbox.drain(..end);
                    if said.is_some() {
                        return Ok(said);
                    }
                }
                if heard == ReadOutcome::End { Err(RequestError::Closed) } else { Ok(None) }
            }
        }
    }

    fn close(&mut self, user: usize) {
        let session = &mut self.sessions[user];
        session.sent.clear();
        if let Some(Channel::Tcp(link)) = session.channel.take() {
            link.close(b"");
        }
    }

    fn failed(&mut self, user: usize, failure: RequestError) -> RequestProgress {
        let failure = match failure {
            RequestError::System(_, code) if !self.sessions[user].is_connected && self.is_tcp() => {
                RequestError::System(SystemCall::Connect, code)
            }
            failure => failure,
        };
        self.close(user);
        RequestProgress::Done(Err(failure))
    }

    fn is_tcp(&self) -> bool {
        self.way.protocol == Transport::Tcp
    }
}

/// Finds the message at the start of data from TCP. Returns its begin and end; `None` while it is incomplete.
pub fn frame(bytes: &[u8], octets: usize) -> Result<Option<(usize, usize)>, &'static str> {
    let Some((head, behind)) = bytes.split_at_checked(octets) else { return Ok(None) };
    let length = head.iter().fold(0_usize, |length, &octet| length << 8 | usize::from(octet));
    if length > MESSAGE_BYTES_MAX {
        return Err("message too long");
    }
    Ok((behind.len() >= length).then_some((octets, octets + length)))
}

impl<D: MessageCodec> Engine for MessageEngine<D> {
    fn prepare(&mut self, user: usize, poll: &Poller) -> RequestProgress {
        if self.way.socket_per_request {
            return RequestProgress::Done(Ok(()));
        }
        match self.open(user, poll) {
            Ok(()) if self.is_tcp() => RequestProgress::Waiting,
            Ok(()) => RequestProgress::Done(Ok(())),
            Err(failure) => self.failed(user, failure),
        }
    }

    fn begin(&mut self, user: usize, request: u64, poll: &Poller) -> RequestProgress {
        match self.send_request(user, request, poll) {
            Ok(()) => RequestProgress::Waiting,
            Err(failure) => self.failed(user, failure),
        }
    }

    fn advance(&mut self, ready: ReadyEvent, poll: &Poller) -> RequestProgress {
        let user = ready.user;
        if self.sessions[user].sent.is_empty() {
            // During the preparation, the first event shows whether the connection is established.
            return match self.read_reply(ready) {
                Ok(_) => RequestProgress::Done(Ok(())),
                Err(failure) => self.failed(user, failure),
            };
        }
        let said = match self.read_reply(ready) {
            Ok(None) => return RequestProgress::Waiting,
            Ok(Some(said)) => said,
            // A server may close an idle connection at any time, and the client repeats the request (RFC 7766). The
            // latency includes both attempts.
            Err(RequestError::Closed | RequestError::System(..))
                if self.is_tcp() && self.sessions[user].has_answered =>
            {
                let request = self.sessions[user].request;
                self.close(user);
                return self.begin(user, request, poll);
            }
            Err(failure) => return self.failed(user, failure),
        };
        self.sessions[user].sent.clear();
        self.sessions[user].has_answered = true;
        let is_no_answer = matches!(said, Err(RequestError::Malformed(_)));
        if self.way.socket_per_request || is_no_answer {
            self.close(user);
        }
        RequestProgress::Done(said)
    }

    fn handle_idle_event(&mut self, ReadyEvent { user, is_last }: ReadyEvent) {
        let MessageSession { channel, inbox, .. } = &mut self.sessions[user];
        let Some(Channel::Tcp(link)) = channel else { return };
        if link.read(&mut self.scratch, inbox, is_last) != Ok(ReadOutcome::All) {
            self.close(user);
        }
    }

    fn leave(&mut self, user: usize) {
        self.close(user);
    }

    fn abandon(&mut self, user: usize) {
        // The socket of a lost datagram stays usable, but a late reply may arrive on it. A hanging connection is not
        // usable.
        if self.is_tcp() || self.way.socket_per_request || !D::IS_NUMBERED {
            self.close(user);
        }
        self.sessions[user].sent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_over_tcp_is_whole_with_its_last_byte() {
        assert_eq!(frame(b"", 2), Ok(None));
        assert_eq!(frame(b"\x00\x02a", 2), Ok(None));
        assert_eq!(frame(b"\x00\x02abc", 2), Ok(Some((2, 4))));
        assert_eq!(frame(b"\x00\x00\x00\x02a", 4), Ok(None));
        assert_eq!(frame(b"\x00\x00\x00\x02ab", 4), Ok(Some((4, 6))));
        assert!(frame(b"HTTP/1.1 400", 4).is_err());
    }
}
