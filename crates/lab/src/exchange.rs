//! One message for one answer, over UDP or TCP: what DNS and Kerberos have in common. A user has one
//! message in flight; what the messages are is for a [`Dialect`].

use crate::failure::Failure;
use crate::net::{Heard, Link, Route};
use crate::poll::{Poll, Ready};
use crate::worker::{Engine, Progress};
use socket2::Socket;
use std::io::{ErrorKind, Read, Write};

/// Of a datagram.
const DATAGRAM_BYTES_MAX: usize = u16::MAX as usize;
/// Of a message over TCP: more than any answer holds.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Messages of a protocol.
pub trait Dialect {
    /// Octets of the length that goes before a message over TCP.
    const LENGTH_OCTETS: usize;
    /// Whether an answer tells what it answers, so that one that comes too late is passed over.
    const IS_NUMBERED: bool;

    /// Writes the message of a request.
    fn write(&mut self, request: u64, out: &mut Vec<u8>) -> Result<(), Failure>;

    /// What an answer says of a message; none if it answers another.
    fn read(&self, answer: &[u8], asked: &[u8]) -> Option<Result<(), Failure>>;
}

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// In datagrams
    Udp,
    /// On connections
    Tcp,
}

/// To where and how.
#[derive(Clone, Debug)]
pub struct Way {
    /// The server.
    pub route: Route,
    /// How messages travel.
    pub protocol: Protocol,
    /// Whether each message has a socket of its own.
    pub each_its_own: bool,
}

#[derive(Debug)]
enum Channel {
    Udp(Socket),
    Tcp(Link),
}

#[derive(Debug, Default)]
struct Session {
    channel: Option<Channel>,
    /// Whether a connection is known to stand.
    stands: bool,
    /// Whether a message was answered on it.
    served: bool,
    /// The request that is asked.
    request: u64,
    /// What was asked, as it was sent; empty if nothing is.
    asked: Vec<u8>,
    inbox: Vec<u8>,
}

/// The users of one thread.
#[derive(Debug)]
pub struct Exchange<D> {
    way: Way,
    dialect: D,
    sessions: Vec<Session>,
    /// Sources are used in turn, each thread beginning at another.
    turn: usize,
    scratch: Vec<u8>,
}

impl<D: Dialect> Exchange<D> {
    /// For so many users; `turn` is another number for each thread.
    #[must_use]
    pub fn new(way: Way, dialect: D, users: usize, turn: usize) -> Self {
        let sessions = (0..users).map(|_| Session::default()).collect();
        Self { way, dialect, sessions, turn, scratch: vec![0; DATAGRAM_BYTES_MAX] }
    }

    fn open(&mut self, user: usize, poll: &Poll) -> Result<(), Failure> {
        self.turn = self.turn.wrapping_add(1);
        let failed = |error| Failure::system("connect", &error);
        let route = &self.way.route;
        let epoll = |error| Failure::system("epoll", &error);
        let channel = match self.way.protocol {
            Protocol::Udp => {
                let socket = route.datagrams(self.turn).map_err(failed)?;
                poll.add_datagrams(&socket, user).map_err(epoll)?;
                Channel::Udp(socket)
            }
            Protocol::Tcp => {
                let socket = route.connect(self.turn).map_err(failed)?;
                let link = Link::new(socket, route.close);
                poll.add(&link, user).map_err(epoll)?;
                Channel::Tcp(link)
            }
        };
        let session = &mut self.sessions[user];
        session.inbox.clear();
        session.stands = false;
        session.served = false;
        session.channel = Some(channel);
        Ok(())
    }

    fn ask(&mut self, user: usize, request: u64, poll: &Poll) -> Result<(), Failure> {
        if self.sessions[user].channel.is_none() {
            self.open(user, poll)?;
        }
        let session = &mut self.sessions[user];
        session.asked.clear();
        session.request = request;
        self.dialect.write(request, &mut session.asked)?;
        match &mut session.channel {
            Some(Channel::Udp(socket)) => {
                let sent = (&*socket).write(&session.asked);
                sent.map(drop).map_err(|error| Failure::system("send", &error))
            }
            Some(Channel::Tcp(link)) => {
                let length = session.asked.len();
                let octets = length.to_be_bytes();
                let head = D::LENGTH_OCTETS;
                let end = head + length;
                self.scratch.resize(end.max(DATAGRAM_BYTES_MAX), 0);
                self.scratch[..head].copy_from_slice(&octets[octets.len() - head..]);
                self.scratch[head..end].copy_from_slice(&session.asked);
                link.send(&self.scratch[..end])
            }
            None => Err(Failure::Closed),
        }
    }

    /// Reads what has come; what the answer says, if it is there.
    fn hear(
        &mut self,
        Ready { user, is_last }: Ready,
    ) -> Result<Option<Result<(), Failure>>, Failure> {
        let Session { channel, stands, asked, inbox, .. } = &mut self.sessions[user];
        match channel {
            None => Err(Failure::Closed),
            Some(Channel::Udp(socket)) => loop {
                match (&*socket).read(&mut self.scratch) {
                    Ok(read) => {
                        if let Some(said) = self.dialect.read(&self.scratch[..read], asked) {
                            return Ok(Some(said));
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                    Err(error) => return Err(Failure::system("receive", &error)),
                }
            },
            Some(Channel::Tcp(link)) => {
                if !*stands {
                    link.refusal()?;
                    *stands = true;
                }
                link.flush()?;
                let heard = link.read(&mut self.scratch, inbox, is_last)?;
                let frame = |inbox: &[u8]| frame(inbox, D::LENGTH_OCTETS);
                while let Some((begin, end)) = frame(inbox).map_err(Failure::Malformed)? {
                    let said = self.dialect.read(&inbox[begin..end], asked);
                    inbox.drain(..end);
                    if said.is_some() {
                        return Ok(said);
                    }
                }
                if heard == Heard::End { Err(Failure::Closed) } else { Ok(None) }
            }
        }
    }

    fn close(&mut self, user: usize) {
        let session = &mut self.sessions[user];
        session.asked.clear();
        if let Some(Channel::Tcp(link)) = session.channel.take() {
            link.close(b"");
        }
    }

    fn failed(&mut self, user: usize, failure: Failure) -> Progress {
        let failure = match failure {
            Failure::System(_, code) if !self.sessions[user].stands && self.is_tcp() => {
                Failure::System("connect", code)
            }
            failure => failure,
        };
        self.close(user);
        Progress::Done(Err(failure))
    }

    fn is_tcp(&self) -> bool {
        self.way.protocol == Protocol::Tcp
    }
}

/// Finds the message at the start of what came over TCP: where it begins and ends; none while it is
/// not whole.
pub fn frame(bytes: &[u8], octets: usize) -> Result<Option<(usize, usize)>, &'static str> {
    let Some((head, behind)) = bytes.split_at_checked(octets) else { return Ok(None) };
    let length = head.iter().fold(0_usize, |length, &octet| length << 8 | usize::from(octet));
    if length > MESSAGE_BYTES_MAX {
        return Err("a message that is too long");
    }
    Ok((behind.len() >= length).then_some((octets, octets + length)))
}

impl<D: Dialect> Engine for Exchange<D> {
    fn prepare(&mut self, user: usize, poll: &Poll) -> Progress {
        if self.way.each_its_own {
            return Progress::Done(Ok(()));
        }
        match self.open(user, poll) {
            Ok(()) if self.is_tcp() => Progress::Waiting,
            Ok(()) => Progress::Done(Ok(())),
            Err(failure) => self.failed(user, failure),
        }
    }

    fn begin(&mut self, user: usize, request: u64, poll: &Poll) -> Progress {
        match self.ask(user, request, poll) {
            Ok(()) => Progress::Waiting,
            Err(failure) => self.failed(user, failure),
        }
    }

    fn advance(&mut self, ready: Ready, poll: &Poll) -> Progress {
        let user = ready.user;
        if self.sessions[user].asked.is_empty() {
            // Only to be made ready: the first news is that the connection stands, or does not.
            return match self.hear(ready) {
                Ok(_) => Progress::Done(Ok(())),
                Err(failure) => self.failed(user, failure),
            };
        }
        let said = match self.hear(ready) {
            Ok(None) => return Progress::Waiting,
            Ok(Some(said)) => said,
            // A server may close a connection that it has served when it likes, and whoever asks just
            // then asks again (RFC 7766). The latency holds both.
            Err(Failure::Closed | Failure::System(..))
                if self.is_tcp() && self.sessions[user].served =>
            {
                let request = self.sessions[user].request;
                self.close(user);
                return self.begin(user, request, poll);
            }
            Err(failure) => return self.failed(user, failure),
        };
        self.sessions[user].asked.clear();
        self.sessions[user].served = true;
        let is_no_answer = matches!(said, Err(Failure::Malformed(_)));
        if self.way.each_its_own || is_no_answer {
            self.close(user);
        }
        Progress::Done(said)
    }

    fn disturbed(&mut self, Ready { user, is_last }: Ready) {
        let Session { channel, inbox, .. } = &mut self.sessions[user];
        let Some(Channel::Tcp(link)) = channel else { return };
        if link.read(&mut self.scratch, inbox, is_last) != Ok(Heard::All) {
            self.close(user);
        }
    }

    fn leave(&mut self, user: usize) {
        self.close(user);
    }

    fn give_up(&mut self, user: usize) {
        // A datagram that was lost says nothing of the socket, but its answer may still come; a
        // connection that hangs is of no use.
        if self.is_tcp() || self.way.each_its_own || !D::IS_NUMBERED {
            self.close(user);
        }
        self.sessions[user].asked.clear();
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
