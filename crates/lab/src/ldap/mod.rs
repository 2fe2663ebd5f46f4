//! LDAP: simple bind, search, compare and modify, over TCP, StartTLS or LDAPS.
//!
//! A user has one connection, for good or for one request, and one request at a time on it: a bind may
//! not overtake another, and so a latency is that of one request. What is asked is encoded once, and
//! per request only the number and what varies are written.

pub mod filter;
pub mod look;
pub mod reply;

use crate::ber::Message;
use crate::failure::Failure;
use crate::net::{Heard, Link, Route, Tls};
use crate::poll::{Poll, Ready};
use crate::template::Template;
use crate::worker::{Engine, Progress};
use reply::{Reply, tag};
use std::sync::Arc;

/// Bytes read at once: more than any answer to a bind, fewer than would push everything else out of the
/// cache.
const SCRATCH_BYTES: usize = 32 << 10;
/// RFC 4511, StartTLS.
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";
/// Numbers of messages are not negative.
const ID_MAX: u32 = 0x7fff_ffff;

/// What is done with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Op {
    /// Log in with --password
    Bind,
    /// Search from the entry on, by --filter and --scope
    Search,
    /// Compare an attribute with the value of --value
    Compare,
    /// Replace the values of an attribute by that of --value
    Modify,
}

/// How far below its base a search looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scope {
    /// The entry alone
    Base,
    /// Those right below it
    One,
    /// It and all below
    Sub,
}

/// When connections are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Connections {
    /// One for each user, before the run
    Reuse,
    /// One for each request, which its latency then holds
    New,
}

/// A request of some kind about entries.
#[derive(Clone, Debug)]
pub enum Request {
    /// Who, and the password.
    Bind(Template, Template),
    /// From where, how deep, for what, which attributes.
    Search(Template, Scope, String, Vec<String>),
    /// Entry, attribute, value.
    Compare(Template, String, Template),
    /// Entry, attribute, value.
    Modify(Template, String, Template),
    /// Entry; attributes with their values, those of one side by side.
    Add(Template, Vec<(&'static str, Template)>),
    /// Entry.
    Delete(Template),
}

impl Request {
    fn encode(&self) -> Result<Message, String> {
        let mut wrong = Ok(());
        let message = enveloped(|message| match self {
            Self::Bind(dn, password) => bind(message, dn, password),
            Self::Search(base, scope, filter, attributes) => {
                message.constructed(0x63, |message| {
                    message.value(0x04, base);
                    message.number(0x0a, *scope as u8);
                    // Aliases are not followed; neither entries nor time have a bound of ours.
                    message.number(0x0a, 0);
                    message.number(0x02, 0);
                    message.number(0x02, 0);
                    message.number(0x01, 0);
                    wrong = filter::write(filter, message);
                    message.constructed(0x30, |message| {
                        attributes.iter().for_each(|name| message.constant(0x04, name.as_bytes()));
                    });
                });
            }
            Self::Compare(dn, attribute, value) => message.constructed(0x6e, |message| {
                message.value(0x04, dn);
                message.constructed(0x30, |message| {
                    message.constant(0x04, attribute.as_bytes());
                    message.value(0x04, value);
                });
            }),
            Self::Modify(dn, attribute, value) => message.constructed(0x66, |message| {
                const REPLACE: u8 = 2;
                message.value(0x04, dn);
                message.constructed(0x30, |message| {
                    message.constructed(0x30, |message| {
                        message.number(0x0a, REPLACE);
                        message.constructed(0x30, |message| {
                            message.constant(0x04, attribute.as_bytes());
                            message.constructed(0x31, |message| message.value(0x04, value));
                        });
                    });
                });
            }),
            Self::Add(dn, attributes) => message.constructed(0x68, |message| {
                message.value(0x04, dn);
                message.constructed(0x30, |message| {
                    for values in attributes.chunk_by(|(one, _), (next, _)| one == next) {
                        message.constructed(0x30, |message| {
                            message.constant(0x04, values[0].0.as_bytes());
                            message.constructed(0x31, |message| {
                                values.iter().for_each(|(_, value)| message.value(0x04, value));
                            });
                        });
                    }
                });
            }),
            Self::Delete(dn) => message.value(0x4a, dn),
        });
        wrong.map(|()| message)
    }

    /// The tag of its answer.
    fn answer(&self) -> u8 {
        match self {
            Self::Bind(..) => tag::BIND,
            Self::Search(..) => tag::SEARCH,
            Self::Compare(..) => tag::COMPARE,
            Self::Modify(..) => tag::MODIFY,
            Self::Add(..) => tag::ADD,
            Self::Delete(..) => tag::DELETE,
        }
    }
}

/// A message: its number, and what `fill` writes.
fn enveloped(fill: impl FnOnce(&mut Message)) -> Message {
    let mut message = Message::default();
    message.constructed(0x30, |message| {
        message.slot(0);
        fill(message);
    });
    message
}

fn bind(message: &mut Message, dn: &Template, password: &Template) {
    message.constructed(0x60, |message| {
        message.number(0x02, 3);
        message.value(0x04, dn);
        message.value(0x80, password);
    });
}

/// When a connection is under TLS.
#[derive(Clone, Debug)]
pub enum Security {
    /// Never.
    Clear,
    /// From the first byte.
    Ldaps(Tls),
    /// After the server was asked.
    StartTls(Tls),
}

/// What the requests of a run have in common.
#[derive(Debug)]
pub struct Settings {
    route: Route,
    security: Security,
    connections: Connections,
    request: Message,
    answer: u8,
    /// Who the connection belongs to before the first request.
    bind: Option<Message>,
    start_tls: Message,
}

impl Settings {
    /// What varies of the requests.
    pub fn values(&self) -> impl Iterator<Item = &Template> {
        self.request.values()
    }

    /// Encodes the requests.
    pub fn new(
        route: Route,
        security: Security,
        connections: Connections,
        request: &Request,
        bind_as: Option<&(Template, Template)>,
    ) -> Result<Self, String> {
        Ok(Self {
            route,
            security,
            connections,
            request: request.encode()?,
            answer: request.answer(),
            bind: bind_as.map(|(dn, password)| enveloped(|message| bind(message, dn, password))),
            start_tls: enveloped(|message| {
                message.constructed(0x77, |message| message.constant(0x80, START_TLS));
            }),
        })
    }
}

/// How far a user's connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was said yet.
    Opening,
    /// The server was asked for TLS.
    StartingTls,
    /// Under TLS if it is to be, though the two sides may still agree on keys.
    Secured,
    /// It is being bound.
    Binding,
    /// Nothing is asked.
    Ready,
    /// The user's request is asked.
    Asked,
}

#[derive(Debug)]
struct Session {
    link: Option<Link>,
    /// Whether the connection is known to stand.
    stands: bool,
    state: State,
    id: u32,
    /// The request to be made when the connection is ready; none while it only is to be opened.
    request: Option<u64>,
    /// Whether an entry has come in answer to it.
    found: bool,
    inbox: Vec<u8>,
}

/// The users of one thread.
#[derive(Debug)]
pub struct Ldap {
    settings: Arc<Settings>,
    sessions: Vec<Session>,
    /// Sources are used in turn, each thread beginning at another.
    turn: usize,
    scratch: Vec<u8>,
    out: Vec<u8>,
    /// Entries that searches brought, if somebody wants to see them.
    kept: Option<Vec<Vec<u8>>>,
}

impl Ldap {
    /// For so many users; `turn` is another number for each thread.
    #[must_use]
    pub fn new(settings: Arc<Settings>, users: usize, turn: usize) -> Self {
        let session = || Session {
            link: None,
            stands: false,
            state: State::Opening,
            id: 0,
            request: None,
            found: false,
            inbox: Vec::new(),
        };
        Self {
            settings,
            sessions: (0..users).map(|_| session()).collect(),
            turn,
            scratch: vec![0; SCRATCH_BYTES],
            out: Vec::with_capacity(1024),
            kept: None,
        }
    }

    /// From now on entries that searches bring are kept until they are taken.
    pub fn keep_entries(&mut self) {
        self.kept = Some(Vec::new());
    }

    /// The entries that were kept, each as the whole message of the server.
    pub fn take_entries(&mut self) -> Vec<Vec<u8>> {
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Connects, and says what is to be said first.
    fn open(&mut self, user: usize, poll: &Poll) -> Result<(), Failure> {
        self.turn = self.turn.wrapping_add(1);
        let route = &self.settings.route;
        let socket =
            route.connect(self.turn).map_err(|error| Failure::system("connect", &error))?;
        let mut link = Link::new(socket, route.close);
        poll.add(&link, user).map_err(|error| Failure::system("epoll", &error))?;
        if let Security::Ldaps(tls) = &self.settings.security {
            link.start_tls(tls)?;
        }
        let session = &mut self.sessions[user];
        session.link = Some(link);
        session.stands = false;
        session.inbox.clear();
        session.id = 0;
        session.state = State::Opening;
        Ok(())
    }

    /// Goes on as far as possible without waiting: what is said before the connection stands is sent
    /// when it does. True when nothing is left to be asked.
    fn proceed(&mut self, user: usize) -> Result<bool, Failure> {
        let settings = Arc::clone(&self.settings);
        loop {
            let session = &self.sessions[user];
            let is_shaking = session.link.as_ref().is_some_and(Link::is_shaking_hands);
            let next = match (session.state, session.request) {
                (State::Opening, _) if matches!(settings.security, Security::StartTls(_)) => {
                    self.say(user, &settings.start_tls, 0)?;
                    State::StartingTls
                }
                (State::Opening, _) => State::Secured,
                (State::Secured, request) => match &settings.bind {
                    Some(bind) => {
                        self.say(user, bind, 0)?;
                        State::Binding
                    }
                    None if request.is_none() && is_shaking => return Ok(false),
                    None => State::Ready,
                },
                (State::Ready, Some(number)) => {
                    self.say(user, &settings.request, number)?;
                    State::Asked
                }
                (State::Ready, None) => return Ok(true),
                (State::StartingTls | State::Binding | State::Asked, _) => return Ok(false),
            };
            self.sessions[user].state = next;
        }
    }

    fn say(&mut self, user: usize, message: &Message, request: u64) -> Result<(), Failure> {
        let session = &mut self.sessions[user];
        session.id = if session.id == ID_MAX { 1 } else { session.id + 1 };
        self.out.clear();
        let mut id = *b"\x02\x04\0\0\0\0";
        id[2..].copy_from_slice(&session.id.to_be_bytes());
        message.write(&[&id], request, &mut self.out);
        match &mut session.link {
            Some(link) => link.send(&self.out),
            None => Err(Failure::Closed),
        }
    }

    /// Reads answers and goes on; true when the request is over.
    fn hear(&mut self, Ready { user, is_last }: Ready) -> Result<bool, Failure> {
        let session = &mut self.sessions[user];
        let Some(link) = &mut session.link else { return Err(Failure::Closed) };
        if !session.stands {
            link.refusal()?;
            session.stands = true;
        }
        link.flush()?;
        let heard = link.read(&mut self.scratch, &mut session.inbox, is_last)?;
        let (read, result) = self.take_answers(user);
        let session = &mut self.sessions[user];
        session.inbox.drain(..read);
        let is_over = matches!(result, Ok(true) | Err(Failure::Answered(..)));
        match result {
            // What a server says unasked behind its answer ends with the connection.
            _ if is_over && (heard == Heard::End || !session.inbox.is_empty()) => {
                self.close(user);
                result
            }
            Ok(false) if heard == Heard::End => Err(Failure::Closed),
            Ok(false) => self.proceed(user),
            _ => result,
        }
    }

    /// Takes what answers have come whole, up to that of the request: their length, and whether the
    /// request is over.
    fn take_answers(&mut self, user: usize) -> (usize, Result<bool, Failure>) {
        let mut read = 0;
        loop {
            match reply::next(&self.sessions[user].inbox[read..]) {
                Err(what) => return (read, Err(Failure::Malformed(what))),
                Ok(None) => return (read, Ok(false)),
                Ok(Some((reply, length))) => {
                    self.sessions[user].found |= reply.tag == tag::ENTRY;
                    if let (Some(kept), tag::ENTRY) = (&mut self.kept, reply.tag) {
                        kept.push(self.sessions[user].inbox[read..read + length].to_vec());
                    }
                    read += length;
                    let step = self.expected(user, reply).and_then(|code| match code {
                        Some(code) => self.answered(user, code),
                        None => Ok(false),
                    });
                    if step != Ok(false) {
                        return (read, step);
                    }
                }
            }
        }
    }

    /// The code of an answer that is awaited; none of one that goes before it.
    fn expected(&self, user: usize, reply: Reply) -> Result<Option<u32>, Failure> {
        let session = &self.sessions[user];
        if reply.id == 0 {
            // Notice of disconnection.
            return Err(Failure::Closed);
        }
        let wanted = match session.state {
            State::StartingTls => tag::EXTENDED,
            State::Binding => tag::BIND,
            State::Asked => self.settings.answer,
            State::Opening | State::Secured | State::Ready => {
                return Err(Failure::Malformed("an answer to nothing"));
            }
        };
        if reply.id != session.id {
            return Err(Failure::Malformed("an answer to another request"));
        }
        match reply.code {
            Some(code) if reply.tag == wanted => Ok(Some(code)),
            None if wanted == tag::SEARCH => Ok(None),
            _ => Err(Failure::Malformed("an answer of another type")),
        }
    }

    /// Takes the answer to what was asked last; true when the request is over.
    fn answered(&mut self, user: usize, code: u32) -> Result<bool, Failure> {
        const SUCCESS: u32 = 0;
        const COMPARE_FALSE: u32 = 5;
        const COMPARE_TRUE: u32 = 6;
        let settings = Arc::clone(&self.settings);
        let session = &mut self.sessions[user];
        let asked = session.state == State::Asked;
        let is_well = if asked && settings.answer == tag::COMPARE {
            [COMPARE_FALSE, COMPARE_TRUE].contains(&code)
        } else {
            code == SUCCESS
        };
        let found = std::mem::take(&mut session.found);
        if asked {
            session.state = State::Ready;
            session.request = None;
        }
        if asked && is_well && settings.answer == tag::SEARCH && !found {
            return Err(Failure::Answered("LDAP", code, "nothing found".into()));
        }
        if !is_well {
            return Err(Failure::Answered("LDAP", code, reply::name(code)));
        }
        if session.state == State::StartingTls {
            if let (Security::StartTls(tls), Some(link)) = (&settings.security, &mut session.link) {
                link.start_tls(tls)?;
            }
            session.state = State::Secured;
        } else {
            session.state = State::Ready;
        }
        Ok(asked)
    }

    fn close(&mut self, user: usize) {
        let session = &mut self.sessions[user];
        session.request = None;
        if let Some(link) = session.link.take() {
            // Unbind.
            let mut farewell = *b"\x30\x08\x02\x04\0\0\0\0\x42\0";
            let id = if session.id == ID_MAX { 1 } else { session.id + 1 };
            farewell[4..8].copy_from_slice(&id.to_be_bytes());
            link.close(&farewell);
        }
    }

    /// What to tell of a step, with the connection closed if it is of no more use.
    fn told(&mut self, user: usize, step: Result<bool, Failure>, prepares: bool) -> Progress {
        let result = match step {
            Ok(false) => return Progress::Waiting,
            Ok(true) => Ok(()),
            // However the refusal of a connection was noticed.
            Err(Failure::System(_, code)) if !self.sessions[user].stands => {
                Err(Failure::System("connect", code))
            }
            Err(failure) => Err(failure),
        };
        // After an answer, good or bad, the connection serves the next request.
        let is_broken = !matches!(result, Ok(()) | Err(Failure::Answered(..)));
        let is_single = self.settings.connections == Connections::New && !prepares;
        if is_broken || is_single || self.sessions[user].state != State::Ready {
            self.close(user);
        }
        Progress::Done(result)
    }
}

impl Engine for Ldap {
    fn prepare(&mut self, user: usize, poll: &Poll) -> Progress {
        if self.settings.connections == Connections::New {
            return Progress::Done(Ok(()));
        }
        self.sessions[user].request = None;
        match self.open(user, poll) {
            // Even a connection that needs nothing said is there only when the system says so.
            Ok(()) => Progress::Waiting,
            Err(failure) => self.told(user, Err(failure), true),
        }
    }

    fn begin(&mut self, user: usize, request: u64, poll: &Poll) -> Progress {
        self.sessions[user].request = Some(request);
        let opened =
            if self.sessions[user].link.is_none() { self.open(user, poll) } else { Ok(()) };
        let step = opened.and_then(|()| self.proceed(user));
        self.told(user, step, false)
    }

    fn advance(&mut self, ready: Ready, _: &Poll) -> Progress {
        let user = ready.user;
        let prepares = self.sessions[user].request.is_none();
        let step = self.hear(ready);
        self.told(user, step, prepares)
    }

    fn disturbed(&mut self, Ready { user, is_last }: Ready) {
        // An edge of epoll without news, or the server's good-bye.
        let session = &mut self.sessions[user];
        let Some(link) = &mut session.link else { return };
        let heard = link.read(&mut self.scratch, &mut session.inbox, is_last);
        if heard != Ok(Heard::All) || !session.inbox.is_empty() {
            self.close(user);
        }
    }

    fn leave(&mut self, user: usize) {
        self.close(user);
    }

    fn give_up(&mut self, user: usize) {
        self.close(user);
    }
}
