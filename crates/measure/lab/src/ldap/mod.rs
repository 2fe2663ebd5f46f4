// SPDX-License-Identifier: MIT OR Apache-2.0
//! The LDAP engine: simple bind, search, compare and modify, over TCP, StartTLS or LDAPS. `commands::schemes` also adds
//! and deletes entries with it.
//!
//! A user has one connection, persistent or for one request, with one request at a time. A bind cannot overtake another,
//! so a latency is the one of a single request. The request is encoded once, and only its number and its variable parts
//! are written per request.

pub mod filter;
pub mod hash_upgrade_check;
pub mod reply;

use crate::ber::MessageTemplate;
use crate::load_thread::{Engine, RequestProgress};
use crate::net::{Connection, ReadOutcome, Route, TlsSettings};
use crate::poll::{Poller, ReadyEvent};
use crate::request_error::{CodeSource, RequestError, SystemCall};
use crate::template::Template;
use reply::{LdapReply, tag};
use std::sync::Arc;

/// Bytes of one read: larger than any reply to a bind, and small enough for the processor's cache.
const SCRATCH_BYTES: usize = 32 << 10;
/// OID of StartTLS (RFC 4511).
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";
/// Maximum message number.
const ID_MAX: u32 = 0x7fff_ffff;

/// Operations of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LdapOp {
    /// Bind with --password
    Bind,
    /// Search from --dn, by --filter and --scope
    Search,
    /// Compare an attribute with --value
    Compare,
    /// Replace the values of an attribute with --value
    Modify,
}

/// Scopes of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SearchScope {
    /// Search the entry only
    Base,
    /// Search its children
    One,
    /// Search the entry and its subtree
    Sub,
}

/// Use of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ConnectionMode {
    /// Open one for each user, before the run
    Reuse,
    /// Open one for each request, which its latency includes
    New,
}

/// LDAP requests.
#[derive(Clone, Debug)]
pub enum LdapRequest {
    /// DN and password.
    Bind(Template, Template),
    /// Base, scope, filter, attributes.
    Search(Template, SearchScope, String, Vec<String>),
    /// Entry, attribute, value.
    Compare(Template, String, Template),
    /// Entry, attribute, value.
    Modify(Template, String, Template),
    /// Entry; attributes with their values. Values of an attribute are adjacent.
    Add(Template, Vec<(&'static str, Template)>),
    /// Entry.
    Delete(Template),
}

impl LdapRequest {
    fn encode(&self) -> Result<MessageTemplate, String> {
        let mut wrong = Ok(());
        let message = enveloped(|message| match self {
            Self::Bind(dn, password) => bind(message, dn, password),
            Self::Search(base, scope, filter, attributes) => {
                message.constructed(0x63, |message| {
                    message.value(0x04, base);
                    message.number(0x0a, *scope as u8);
                    // The request does not dereference aliases, and has no size or time limit.
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

    /// Returns the tag of the reply.
    fn reply_tag(&self) -> u8 {
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

/// Encodes a message: its number, and the content from `fill`.
fn enveloped(fill: impl FnOnce(&mut MessageTemplate)) -> MessageTemplate {
    let mut message = MessageTemplate::default();
    message.constructed(0x30, |message| {
        message.slot(0);
        fill(message);
    });
    message
}

fn bind(message: &mut MessageTemplate, dn: &Template, password: &Template) {
    message.constructed(0x60, |message| {
        message.number(0x02, 3);
        message.value(0x04, dn);
        message.value(0x80, password);
    });
}

/// Use of TLS.
#[derive(Clone, Debug)]
pub enum TlsMode {
    /// No TLS.
    Clear,
    /// TLS from the first byte.
    Ldaps(TlsSettings),
    /// TLS after a StartTLS request.
    StartTls(TlsSettings),
}

/// Settings of all requests of a run.
#[derive(Debug)]
pub struct LdapSettings {
    route: Route,
    security: TlsMode,
    connections: ConnectionMode,
    request: MessageTemplate,
    reply_tag: u8,
    /// Bind before the first request.
    bind: Option<MessageTemplate>,
    start_tls: MessageTemplate,
}

impl LdapSettings {
    /// Returns the variable parts of the requests.
    pub fn values(&self) -> impl Iterator<Item = &Template> {
        self.request.values()
    }

    /// Encodes the requests. An error is one of the search filter.
    pub fn new(
        route: Route,
        security: TlsMode,
        connections: ConnectionMode,
        request: &LdapRequest,
        bind_as: Option<&(Template, Template)>,
    ) -> Result<Self, String> {
        Ok(Self {
            route,
            security,
            connections,
            request: request.encode()?,
            reply_tag: request.reply_tag(),
            bind: bind_as.map(|(dn, password)| enveloped(|message| bind(message, dn, password))),
            start_tls: enveloped(|message| {
                message.constructed(0x77, |message| message.constant(0x80, START_TLS));
            }),
        })
    }
}

/// State of a user's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    /// No message was sent.
    Opening,
    /// StartTLS was sent.
    StartingTls,
    /// TLS has started if required. Its handshake may be incomplete.
    Secured,
    /// The bind was sent.
    Binding,
    /// No request is pending.
    Ready,
    /// The user's request was sent.
    AwaitingReply,
}

#[derive(Debug)]
struct LdapSession {
    link: Option<Connection>,
    /// Whether the connection is known to be established.
    is_connected: bool,
    state: ConnectionState,
    id: u32,
    /// The request for a ready connection; `None` during the preparation.
    request: Option<u64>,
    /// Whether the search returned an entry.
    has_entry: bool,
    inbox: Vec<u8>,
}

/// The users of one thread.
#[derive(Debug)]
pub struct LdapEngine {
    settings: Arc<LdapSettings>,
    sessions: Vec<LdapSession>,
    /// Turn of the source addresses. Threads begin at different ones.
    next_source: usize,
    scratch: Vec<u8>,
    out: Vec<u8>,
    /// Entries of searches, if they are collected.
    collected: Option<Vec<Vec<u8>>>,
}

impl LdapEngine {
    /// Creates an engine for these users. `turn` differs between threads.
    #[must_use]
    pub fn new(settings: Arc<LdapSettings>, users: usize, turn: usize) -> Self {
        let session = || LdapSession {
            link: None,
            is_connected: false,
            state: ConnectionState::Opening,
            id: 0,
            request: None,
            has_entry: false,
            inbox: Vec::new(),
        };
        Self {
            settings,
            sessions: (0..users).map(|_| session()).collect(),
            next_source: turn,
            scratch: vec![0; SCRATCH_BYTES],
            out: Vec::with_capacity(1024),
            collected: None,
        }
    }

    /// Starts to collect the entries of searches.
    pub fn collect_entries(&mut self) {
        self.collected = Some(Vec::new());
    }

    /// Takes the collected entries, each as the whole message of the server.
    pub fn take_entries(&mut self) -> Vec<Vec<u8>> {
        self.collected.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Starts a connection.
    fn open(&mut self, user: usize, poll: &Poller) -> Result<(), RequestError> {
        self.next_source = self.next_source.wrapping_add(1);
        let route = &self.settings.route;
        let failed = |call| move |error| RequestError::system(call, &error);
        let socket = route.connect(self.next_source).map_err(failed(SystemCall::Connect))?;
        let mut link = Connection::new(socket, route.close);
        poll.add(&link, user).map_err(failed(SystemCall::Epoll))?;
        if let TlsMode::Ldaps(tls) = &self.settings.security {
            link.start_tls(tls)?;
        }
        let session = &mut self.sessions[user];
        session.link = Some(link);
        session.is_connected = false;
        session.inbox.clear();
        session.id = 0;
        session.state = ConnectionState::Opening;
        Ok(())
    }

    /// Continues as far as possible without a wait. Messages before the connection is established are sent later.
    /// Returns true when no request is left.
    fn proceed(&mut self, user: usize) -> Result<bool, RequestError> {
        let settings = Arc::clone(&self.settings);
        loop {
            let session = &self.sessions[user];
            let is_shaking = session.link.as_ref().is_some_and(Connection::is_shaking_hands);
            let next = match (session.state, session.request) {
                (ConnectionState::Opening, _)
                    if matches!(settings.security, TlsMode::StartTls(_)) =>
                {
                    self.send_message(user, &settings.start_tls, 0)?;
                    ConnectionState::StartingTls
                }
                (ConnectionState::Opening, _) => ConnectionState::Secured,
                (ConnectionState::Secured, request) => match &settings.bind {
                    Some(bind) => {
                        self.send_message(user, bind, 0)?;
                        ConnectionState::Binding
                    }
                    None if request.is_none() && is_shaking => return Ok(false),
                    None => ConnectionState::Ready,
                },
                (ConnectionState::Ready, Some(number)) => {
                    self.send_message(user, &settings.request, number)?;
                    ConnectionState::AwaitingReply
                }
                (ConnectionState::Ready, None) => return Ok(true),
                (
                    ConnectionState::StartingTls
                    | ConnectionState::Binding
                    | ConnectionState::AwaitingReply,
                    _,
                ) => return Ok(false),
            };
            self.sessions[user].state = next;
        }
    }

    fn send_message(
        &mut self,
        user: usize,
        message: &MessageTemplate,
        request: u64,
    ) -> Result<(), RequestError> {
        let session = &mut self.sessions[user];
        session.id = if session.id == ID_MAX { 1 } else { session.id + 1 };
        self.out.clear();
        let mut id = *b"\x02\x04\0\0\0\0";
        id[2..].copy_from_slice(&session.id.to_be_bytes());
        message.write(&[&id], request, &mut self.out);
        match &mut session.link {
            Some(link) => link.send(&self.out),
            None => Err(RequestError::Closed),
        }
    }

    /// Reads replies and continues. Returns true when the request is complete.
    fn read_replies(
        &mut self,
        ReadyEvent { user, is_last }: ReadyEvent,
    ) -> Result<bool, RequestError> {
        let session = &mut self.sessions[user];
        let Some(link) = &mut session.link else { return Err(RequestError::Closed) };
        if !session.is_connected {
            link.connect_result()?;
            session.is_connected = true;
        }
        link.flush()?;
        let heard = link.read(&mut self.scratch, &mut session.inbox, is_last)?;
        let (read, result) = self.handle_replies(user);
        let session = &mut self.sessions[user];
        session.inbox.drain(..read);
        let is_over = matches!(result, Ok(true) | Err(RequestError::ErrorCode(..)));
        match result {
            // An unsolicited message after the reply closes the connection.
            _ if is_over && (heard == ReadOutcome::End || !session.inbox.is_empty()) => {
                self.close(user);
                result
            }
            Ok(false) if heard == ReadOutcome::End => Err(RequestError::Closed),
            Ok(false) => self.proceed(user),
            _ => result,
        }
    }

    /// Handles complete replies up to the one of the request. Returns their length, and whether the request is complete.
    fn handle_replies(&mut self, user: usize) -> (usize, Result<bool, RequestError>) {
        let mut read = 0;
        loop {
            match reply::next(&self.sessions[user].inbox[read..]) {
                Err(what) => return (read, Err(RequestError::Malformed(what))),
                Ok(None) => return (read, Ok(false)),
                Ok(Some((reply, length))) => {
                    self.sessions[user].has_entry |= reply.tag == tag::ENTRY;
                    if let (Some(kept), tag::ENTRY) = (&mut self.collected, reply.tag) {
                        kept.push(self.sessions[user].inbox[read..read + length].to_vec());
                    }
                    read += length;
                    let step = self.expected_code(user, reply).and_then(|code| match code {
                        Some(code) => self.handle_result(user, code),
                        None => Ok(false),
                    });
                    if step != Ok(false) {
                        return (read, step);
                    }
                }
            }
        }
    }

    /// Returns the result code of the expected reply; `None` for a message before it.
    fn expected_code(&self, user: usize, reply: LdapReply) -> Result<Option<u32>, RequestError> {
        let session = &self.sessions[user];
        if reply.id == 0 {
            // The message is a notice of disconnection.
            return Err(RequestError::Closed);
        }
        let wanted = match session.state {
            ConnectionState::StartingTls => tag::EXTENDED,
            ConnectionState::Binding => tag::BIND,
            ConnectionState::AwaitingReply => self.settings.reply_tag,
            ConnectionState::Opening | ConnectionState::Secured | ConnectionState::Ready => {
                return Err(RequestError::Malformed("reply without a request"));
            }
        };
        if reply.id != session.id {
            return Err(RequestError::Malformed("reply to another request"));
        }
        match reply.code {
            Some(code) if reply.tag == wanted => Ok(Some(code)),
            None if wanted == tag::SEARCH => Ok(None),
            _ => Err(RequestError::Malformed("reply of another type")),
        }
    }

    /// Handles the result of the last message. Returns true when the request is complete.
    fn handle_result(&mut self, user: usize, code: u32) -> Result<bool, RequestError> {
        const SUCCESS: u32 = 0;
        const COMPARE_FALSE: u32 = 5;
        const COMPARE_TRUE: u32 = 6;
        let settings = Arc::clone(&self.settings);
        let session = &mut self.sessions[user];
        let asked = session.state == ConnectionState::AwaitingReply;
        let is_well = if asked && settings.reply_tag == tag::COMPARE {
            [COMPARE_FALSE, COMPARE_TRUE].contains(&code)
        } else {
            code == SUCCESS
        };
        let found = std::mem::take(&mut session.has_entry);
        if asked {
            session.state = ConnectionState::Ready;
            session.request = None;
        }
        if asked && is_well && settings.reply_tag == tag::SEARCH && !found {
            let name = "nothing found".into();
            return Err(RequestError::ErrorCode(CodeSource::LdapEmptySearch, code, name));
        }
        if !is_well {
            return Err(RequestError::ErrorCode(CodeSource::Ldap, code, reply::name(code)));
        }
        if session.state == ConnectionState::StartingTls {
            if let (TlsMode::StartTls(tls), Some(link)) = (&settings.security, &mut session.link) {
                link.start_tls(tls)?;
            }
            session.state = ConnectionState::Secured;
        } else {
            session.state = ConnectionState::Ready;
        }
        Ok(asked)
    }

    fn close(&mut self, user: usize) {
        let session = &mut self.sessions[user];
        session.request = None;
        if let Some(link) = session.link.take() {
            // The farewell is an unbind request.
            let mut farewell = *b"\x30\x08\x02\x04\0\0\0\0\x42\0";
            let id = if session.id == ID_MAX { 1 } else { session.id + 1 };
            farewell[4..8].copy_from_slice(&id.to_be_bytes());
            link.close(&farewell);
        }
    }

    /// Converts the result of a step, and closes a connection that is no longer usable.
    fn finish_step(
        &mut self,
        user: usize,
        step: Result<bool, RequestError>,
        prepares: bool,
    ) -> RequestProgress {
        let result = match step {
            Ok(false) => return RequestProgress::Waiting,
            Ok(true) => Ok(()),
            // Any call may report a failed connect(2).
            Err(RequestError::System(_, code)) if !self.sessions[user].is_connected => {
                Err(RequestError::System(SystemCall::Connect, code))
            }
            Err(failure) => Err(failure),
        };
        // After a result, even an error, the connection serves the next request.
        let is_broken = !matches!(result, Ok(()) | Err(RequestError::ErrorCode(..)));
        let is_single = self.settings.connections == ConnectionMode::New && !prepares;
        if is_broken || is_single || self.sessions[user].state != ConnectionState::Ready {
            self.close(user);
        }
        RequestProgress::Done(result)
    }
}

impl Engine for LdapEngine {
    fn prepare(&mut self, user: usize, poll: &Poller) -> RequestProgress {
        if self.settings.connections == ConnectionMode::New {
            return RequestProgress::Done(Ok(()));
        }
        self.sessions[user].request = None;
        match self.open(user, poll) {
            // The kernel reports when the connection is established.
            Ok(()) => RequestProgress::Waiting,
            Err(failure) => self.finish_step(user, Err(failure), true),
        }
    }

    fn begin(&mut self, user: usize, request: u64, poll: &Poller) -> RequestProgress {
        self.sessions[user].request = Some(request);
        let opened =
            if self.sessions[user].link.is_none() { self.open(user, poll) } else { Ok(()) };
        let step = opened.and_then(|()| self.proceed(user));
        self.finish_step(user, step, false)
    }

    fn advance(&mut self, ready: ReadyEvent, _: &Poller) -> RequestProgress {
        let user = ready.user;
        let prepares = self.sessions[user].request.is_none();
        let step = self.read_replies(ready);
        self.finish_step(user, step, prepares)
    }

    fn handle_idle_event(&mut self, ReadyEvent { user, is_last }: ReadyEvent) {
        // The event has no data, or the server closed the connection.
        let session = &mut self.sessions[user];
        let Some(link) = &mut session.link else { return };
        let heard = link.read(&mut self.scratch, &mut session.inbox, is_last);
        if heard != Ok(ReadOutcome::All) || !session.inbox.is_empty() {
            self.close(user);
        }
    }

    fn leave(&mut self, user: usize) {
        self.close(user);
    }

    fn abandon(&mut self, user: usize) {
        self.close(user);
    }
}
