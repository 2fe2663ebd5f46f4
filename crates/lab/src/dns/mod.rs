//! DNS over UDP and TCP. A user has one query in flight; an answer to an earlier one, which had been
//! given up, is passed over.

pub mod message;

use crate::failure::Failure;
use crate::net::{Heard, Link, Route};
use crate::poll::Poll;
use crate::template::Template;
use crate::worker::{Engine, Progress};
use message::{MESSAGE_BYTES_MAX, Reply, Type};
use socket2::Socket;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

/// How queries travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// In datagrams
    Udp,
    /// On connections
    Tcp,
}

/// What the queries of a run have in common.
#[derive(Debug)]
pub struct Settings {
    /// The server.
    pub route: Route,
    /// How queries travel.
    pub protocol: Protocol,
    /// Whether each query has a socket of its own.
    pub each_its_own: bool,
    /// The name that is asked for.
    pub name: Template,
    /// What is asked of it.
    pub kind: Type,
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
    /// Whether a query was answered on it.
    served: bool,
    /// The request that is asked.
    request: u64,
    /// What was asked, as it was sent; empty if nothing is.
    query: Vec<u8>,
    inbox: Vec<u8>,
}

/// The users of one thread.
#[derive(Debug)]
pub struct Dns {
    settings: Arc<Settings>,
    sessions: Vec<Session>,
    turn: usize,
    scratch: Vec<u8>,
    name: Vec<u8>,
}

impl Dns {
    /// For so many users; `turn` is another number for each thread.
    #[must_use]
    pub fn new(settings: Arc<Settings>, users: usize, turn: usize) -> Self {
        let sessions = (0..users).map(|_| Session::default()).collect();
        let scratch = vec![0; MESSAGE_BYTES_MAX];
        Self { settings, sessions, turn, scratch, name: Vec::new() }
    }

    fn open(&mut self, user: usize, poll: &Poll) -> Result<(), Failure> {
        self.turn = self.turn.wrapping_add(1);
        let failed = |error| Failure::system("connect", &error);
        let route = &self.settings.route;
        let epoll = |error| Failure::system("epoll", &error);
        let channel = match self.settings.protocol {
            Protocol::Udp => {
                let socket = route.datagrams(self.turn).map_err(failed)?;
                poll.add(&socket, user).map_err(epoll)?;
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
        self.name.clear();
        self.settings.name.write(request, &mut self.name);
        let session = &mut self.sessions[user];
        session.query.clear();
        session.request = request;
        // One after the other: no two of a user in flight have the same.
        let id = (request & u64::from(u16::MAX)) as u16;
        message::write_query(id, &self.name, self.settings.kind, &mut session.query)
            .map_err(|what| Failure::Setup(what.to_owned()))?;
        match &mut session.channel {
            Some(Channel::Udp(socket)) => {
                let sent = (&*socket).write(&session.query);
                sent.map(drop).map_err(|error| Failure::system("send", &error))
            }
            Some(Channel::Tcp(link)) => {
                let length = u16::try_from(session.query.len()).unwrap_or(u16::MAX);
                self.scratch[..2].copy_from_slice(&length.to_be_bytes());
                let end = 2 + session.query.len();
                self.scratch[2..end].copy_from_slice(&session.query);
                link.send(&self.scratch[..end])
            }
            None => Err(Failure::Closed),
        }
    }

    /// Reads what has come; the answer to the query, if it is there.
    fn hear(&mut self, user: usize) -> Result<Option<Reply>, Failure> {
        let Session { channel, stands, query, inbox, .. } = &mut self.sessions[user];
        match channel {
            None => Err(Failure::Closed),
            Some(Channel::Udp(socket)) => loop {
                match (&*socket).read(&mut self.scratch) {
                    Ok(read) => {
                        let reply = message::read(&self.scratch[..read], query);
                        match reply.map_err(Failure::Malformed)? {
                            Reply::Other => {}
                            reply => return Ok(Some(reply)),
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
                let heard = link.read(&mut self.scratch, inbox)?;
                while let Some((begin, end)) = message::frame(inbox) {
                    let reply = message::read(&inbox[begin..end], query);
                    inbox.drain(..end);
                    match reply.map_err(Failure::Malformed)? {
                        Reply::Other => {}
                        reply => return Ok(Some(reply)),
                    }
                }
                if heard == Heard::End { Err(Failure::Closed) } else { Ok(None) }
            }
        }
    }

    fn close(&mut self, user: usize) {
        let session = &mut self.sessions[user];
        session.query.clear();
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
        self.settings.protocol == Protocol::Tcp
    }
}

impl Engine for Dns {
    fn prepare(&mut self, user: usize, poll: &Poll) -> Progress {
        if self.settings.each_its_own {
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

    fn advance(&mut self, user: usize, poll: &Poll) -> Progress {
        if self.sessions[user].query.is_empty() {
            // Only to be made ready: the first news is that the connection stands, or does not.
            return match self.hear(user) {
                Ok(_) => Progress::Done(Ok(())),
                Err(failure) => self.failed(user, failure),
            };
        }
        let reply = match self.hear(user) {
            Ok(None) => return Progress::Waiting,
            Ok(Some(reply)) => reply,
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
        self.sessions[user].query.clear();
        self.sessions[user].served = true;
        if self.settings.each_its_own {
            self.close(user);
        }
        Progress::Done(match reply {
            Reply::Code(0) => Ok(()),
            Reply::Code(code) => Err(Failure::Answered("DNS", code.into(), message::name(code))),
            Reply::Truncated | Reply::Other => Err(Failure::Answered("DNS", 0, "truncated".into())),
        })
    }

    fn disturbed(&mut self, user: usize) {
        let Session { channel, inbox, .. } = &mut self.sessions[user];
        let Some(Channel::Tcp(link)) = channel else { return };
        if link.read(&mut self.scratch, inbox) != Ok(Heard::All) {
            self.close(user);
        }
    }

    fn give_up(&mut self, user: usize) {
        // A datagram that was lost says nothing of the socket; a connection that hangs is of no use.
        if self.is_tcp() || self.settings.each_its_own {
            self.close(user);
        }
        self.sessions[user].query.clear();
    }
}
