// SPDX-License-Identifier: MIT OR Apache-2.0
//! A relay between rosterd and a server that can fall silent. It then drops all messages, and both ends still have
//! their connection, as when a firewall forgets it or a cable is pulled. It can be slow, too, and play a server that is
//! half dead: see [`ServerFault`].

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Listens on a dedicated port for as long as the test lives.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    state: Arc<RelayState>,
}

#[derive(Debug)]
struct RelayState {
    silent: AtomicBool,
    hung_up: AtomicBool,
    accepted: AtomicUsize,
    /// All bytes that clients have sent.
    sent: Mutex<Vec<u8>>,
    /// Delay of answers, in milliseconds.
    delay: AtomicU64,
    fault: Mutex<Option<ServerFault>>,
    range_limit: Mutex<Option<RangeLimit>>,
    connections: Mutex<Vec<TcpStream>>,
}

/// A fault of a half-dead server, by LDAP messages.
#[derive(Clone, Copy, Debug)]
pub enum ServerFault {
    /// Replies come at one byte a second.
    Trickles,
    /// New connections end at once.
    ClosesOnAccept,
    /// New connections end after the reply to their bind.
    ClosesAfterBind,
    /// Replies are lost.
    DropsReplies,
    /// Each reply is text of another protocol.
    Garbles,
    /// Each reply begins with a length of 2 GiB, which does not follow.
    ClaimsGigabytes,
    /// Each reply is an entry of 10,000 nested elements.
    Nests,
    /// Searches end with this result and without entries.
    EndsSearches(u8),
    /// All operations, binds included, end with this result and without entries.
    EndsOperations(u8),
    /// Each search shows so many entries at most, and ends with this result.
    CutsSearches(usize, u8),
    /// Removes entries from replies that end with success, if the function selects their DN. The second value includes
    /// replies to searches by entryUUID.
    Hides(fn(&str) -> bool, bool),
    /// Each entry comes twice.
    Repeats,
}

/// See [`Relay::limit_range`].
#[derive(Clone, Debug)]
struct RangeLimit {
    attribute: String,
    most: usize,
}

/// A client's connection.
struct ClientConnection {
    client: Mutex<TcpStream>,
    searches: Mutex<HashMap<Vec<u8>, SearchState>>,
}

/// The state of a search, stored by the id of its messages.
#[derive(Default)]
struct SearchState {
    is_by_key: bool,
    entries: usize,
    /// All entries were shown; the following ones are changes.
    is_listed: bool,
    has_ended: bool,
}

impl Relay {
    /// A relay to a server on this port of loopback.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let port = listener.local_addr().expect("its own address").port();
        let state = Arc::new(RelayState {
            silent: AtomicBool::new(false),
            hung_up: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            sent: Mutex::default(),
            delay: AtomicU64::new(0),
            fault: Mutex::default(),
            range_limit: Mutex::default(),
            connections: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                shared.accepted.fetch_add(1, Ordering::Relaxed);
                shared.serve(client, server);
            }
        });
        Self { port, state }
    }

    /// `ldap://127.0.0.1:PORT`.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("ldap://127.0.0.1:{}", self.port)
    }

    /// The number of connections so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::Relaxed)
    }

    /// The number of times that clients have sent this text, passed on or not.
    ///
    /// # Panics
    /// If a thread of the relay has.
    #[must_use]
    pub fn times_sent(&self, text: &str) -> usize {
        let sent = self.state.sent.lock().expect("no thread panics");
        sent.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
    }

    /// From now on everything is lost, on connections old and new. Both ends get no error.
    pub fn drop_traffic(&self) {
        self.state.silent.store(true, Ordering::Relaxed);
    }

    /// From now on each answer of the server takes so much longer.
    pub fn set_delay(&self, delay: Duration) {
        let millis = delay.as_millis().try_into().expect("less than ages");
        self.state.delay.store(millis, Ordering::Relaxed);
    }

    /// From now on the server is half dead.
    ///
    /// # Panics
    /// If a thread of the relay has.
    pub fn set_fault(&self, fault: ServerFault) {
        *self.state.fault.lock().expect("no thread panics") = Some(fault);
        let is_of_new_connections = matches!(
            fault,
            ServerFault::ClosesOnAccept
                | ServerFault::ClosesAfterBind
                | ServerFault::EndsOperations(_)
        );
        if is_of_new_connections {
            self.state.close();
        }
    }

    /// From now on the server has no fault.
    ///
    /// # Panics
    /// If a thread of the relay has.
    pub fn clear_fault(&self) {
        *self.state.fault.lock().expect("no thread panics") = None;
    }

    /// From now on entries show the first `most` values of the attribute in a range, as Active Directory does with
    /// long lists. slapd knows no ranges and shows no further one.
    ///
    /// # Panics
    /// If a thread of the relay has.
    pub fn limit_range(&self, attribute: &str, most: usize) {
        *self.state.range_limit.lock().expect("no thread panics") =
            Some(RangeLimit { attribute: attribute.to_owned(), most });
    }

    /// New connections are served again. Old ones end, since dropped bytes are lost.
    pub fn resume_traffic(&self) {
        self.state.silent.store(false, Ordering::Relaxed);
        self.state.hung_up.store(false, Ordering::Relaxed);
        self.state.close();
    }

    /// All connections end, and new ones do at once, as when the server is down; until
    /// [`Self::resume_traffic`].
    pub fn disconnect(&self) {
        self.state.hung_up.store(true, Ordering::Relaxed);
        self.state.close();
    }
}

impl RelayState {
    fn fault(&self) -> Option<ServerFault> {
        *self.fault.lock().expect("no thread panics")
    }

    fn serve(self: &Arc<Self>, client: TcpStream, server: u16) {
        let is_closed = matches!(self.fault(), Some(ServerFault::ClosesOnAccept));
        if is_closed || self.hung_up.load(Ordering::Relaxed) {
            return;
        }
        let Ok(upstream) = TcpStream::connect(("127.0.0.1", server)) else {
            // The server is down: the client sees its connection end.
            return;
        };
        let again = |stream: &TcpStream| stream.try_clone().expect("dup");
        self.connections
            .lock()
            .expect("no thread panics")
            .extend([again(&client), again(&upstream)]);
        let line =
            ClientConnection { client: Mutex::new(again(&client)), searches: Mutex::default() };
        let line = Arc::new(line);
        let server = again(&upstream);
        let (state, of_requests) = (Arc::clone(self), Arc::clone(&line));
        thread::spawn(move || state.pass_requests(client, server, &of_requests));
        let state = Arc::clone(self);
        thread::spawn(move || state.pass_replies(upstream, &line));
    }

    fn close(&self) {
        for connection in self.connections.lock().expect("no thread panics").drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn pass_requests(&self, mut client: TcpStream, mut server: TcpStream, line: &ClientConnection) {
        let mut stream = MessageBuffer::default();
        while let Some(bytes) = stream.read(&mut client) {
            self.sent.lock().expect("no thread panics").extend(bytes);
            for message in stream.take_messages() {
                if self.silent.load(Ordering::Relaxed) {
                    continue;
                }
                let done = match self.faked_reply(&message, line) {
                    Some(reply) => line.write_to_client(&reply),
                    None => server.write_all(&message),
                };
                if done.is_err() {
                    return self.end(&server);
                }
            }
        }
        self.end(&server);
    }

    /// Passes the end of a connection on, unless traffic is dropped.
    fn end(&self, other: &TcpStream) {
        if !self.silent.load(Ordering::Relaxed) {
            let _ = other.shutdown(Shutdown::Both);
        }
    }

    /// The reply to a request that the server does not get to see.
    fn faked_reply(&self, request: &[u8], line: &ClientConnection) -> Option<Vec<u8>> {
        let (id, kind, content) = operation(request)?;
        if kind == SEARCH_REQUEST {
            // The attribute is followed by a value in an equality match, but not in a listing.
            let matched = [b"entryUUID", &[0x04, 36][..]].concat();
            let is_by_key = content.windows(matched.len()).any(|window| window == matched);
            let search = SearchState { is_by_key, ..SearchState::default() };
            line.searches.lock().expect("no thread panics").insert(id.clone(), search);
        }
        match (self.fault()?, kind) {
            (
                ServerFault::EndsSearches(code) | ServerFault::EndsOperations(code),
                SEARCH_REQUEST,
            ) => Some(result(&id, SEARCH_DONE, code)),
            // Servers do not reply to an unbind or an abandon.
            (ServerFault::EndsOperations(code), BIND_REQUEST | EXTENDED_REQUEST) => {
                Some(result(&id, kind + 1, code))
            }
            _ => None,
        }
    }

    fn pass_replies(&self, mut server: TcpStream, line: &ClientConnection) {
        let mut stream = MessageBuffer::default();
        while stream.read(&mut server).is_some() {
            thread::sleep(Duration::from_millis(self.delay.load(Ordering::Relaxed)));
            for message in stream.take_messages() {
                if self.silent.load(Ordering::Relaxed) {
                    continue;
                }
                let is_bind = operation(&message).is_some_and(|(_, kind, _)| kind == BIND_RESPONSE);
                let is_last = is_bind && matches!(self.fault(), Some(ServerFault::ClosesAfterBind));
                if self.reply(message, line).is_err() || is_last {
                    let _ = server.shutdown(Shutdown::Both);
                    return self.end(&line.client.lock().expect("no thread panics"));
                }
            }
        }
        self.end(&line.client.lock().expect("no thread panics"));
    }

    /// Passes on a reply of the server, perhaps changed.
    fn reply(&self, message: Vec<u8>, line: &ClientConnection) -> std::io::Result<()> {
        let message = match &*self.range_limit.lock().expect("no thread panics") {
            Some(list) => list.truncate_entry(&message).unwrap_or(message),
            None => message,
        };
        let (Some(fault), Some((id, kind, content))) = (self.fault(), operation(&message)) else {
            return line.write_to_client(&message);
        };
        let mut searches = line.searches.lock().expect("no thread panics");
        let search = searches.entry(id.clone()).or_default();
        if search.has_ended {
            return Ok(());
        }
        let said = match (fault, kind) {
            (ServerFault::Trickles, _) => {
                drop(searches);
                return self.trickle(&message, line);
            }
            (ServerFault::DropsReplies, _) => return Ok(()),
            (ServerFault::Garbles, _) => b"HTTP/1.1 503 Service Unavailable\r\n\r\n".to_vec(),
            (ServerFault::ClaimsGigabytes, _) => vec![0x30, 0x84, 0x80, 0, 0, 0, 0x02, 0x01],
            (ServerFault::Nests, _) => nested(&id),
            (ServerFault::CutsSearches(most, code), SEARCH_ENTRY | SEARCH_DONE | INTERMEDIATE) => {
                search.entries += usize::from(kind == SEARCH_ENTRY);
                search.is_listed |= kind == INTERMEDIATE;
                match kind {
                    SEARCH_ENTRY if search.entries > most && !search.is_listed => return Ok(()),
                    SEARCH_DONE | INTERMEDIATE if code != 0 => {
                        search.has_ended = true;
                        result(&id, SEARCH_DONE, code)
                    }
                    _ => message,
                }
            }
            (ServerFault::Hides(is_hidden, by_key), SEARCH_ENTRY) => {
                let dn = element(content).map(|(_, dn, _)| String::from_utf8_lossy(dn));
                if (by_key || !search.is_by_key) && dn.is_some_and(|dn| is_hidden(&dn)) {
                    return Ok(());
                }
                message
            }
            (ServerFault::Repeats, SEARCH_ENTRY) => message.repeat(2),
            _ => message,
        };
        drop(searches);
        line.write_to_client(&said)
    }

    fn trickle(&self, message: &[u8], line: &ClientConnection) -> std::io::Result<()> {
        for (i, byte) in message.iter().enumerate() {
            if !matches!(self.fault(), Some(ServerFault::Trickles)) {
                return line.write_to_client(&message[i..]);
            }
            line.write_to_client(&[*byte])?;
            thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    }
}

impl ClientConnection {
    fn write_to_client(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.client.lock().expect("no thread panics").write_all(bytes)
    }
}

impl RangeLimit {
    /// An entry that has more values of the attribute, with the first of them.
    fn truncate_entry(&self, message: &[u8]) -> Option<Vec<u8>> {
        let (_, content, _) = element(message)?;
        let (_, id, rest) = element(content)?;
        let (SEARCH_ENTRY, entry, controls) = element(rest)? else { return None };
        let (_, dn, rest) = element(entry)?;
        let (_, mut attributes, _) = element(rest)?;
        let mut shown = Vec::new();
        let mut is_cut = false;
        while let Some((tag, attribute, rest)) = element(attributes) {
            let (_, name, values) = element(attribute)?;
            let (_, values, _) = element(values)?;
            let first = first_elements(values, self.most);
            if name.eq_ignore_ascii_case(self.attribute.as_bytes()) && first.len() < values.len() {
                is_cut = true;
                let name = format!("{};range=0-{}", self.attribute, self.most - 1);
                let list = [encoded(0x04, name.as_bytes()), encoded(0x31, first)].concat();
                shown.extend(encoded(tag, &list));
            } else {
                shown.extend(encoded(tag, attribute));
            }
            attributes = rest;
        }
        let entry = [encoded(0x04, dn), encoded(0x30, &shown)].concat();
        let operation = encoded(SEARCH_ENTRY, &entry);
        is_cut.then(|| encoded(0x30, &[&encoded(0x02, id), &operation, controls].concat()))
    }
}

/// Bytes as they come, by LDAP messages. Bytes of TLS are passed on as they come.
#[derive(Default)]
struct MessageBuffer {
    buffered: Vec<u8>,
    is_ldap: Option<bool>,
}

impl MessageBuffer {
    /// More bytes, until the end.
    fn read(&mut self, from: &mut TcpStream) -> Option<&[u8]> {
        let mut buffer = [0; 64 << 10];
        let Ok(count @ 1..) = from.read(&mut buffer) else { return None };
        let before = self.buffered.len();
        self.buffered.extend(&buffer[..count]);
        self.is_ldap.get_or_insert(self.buffered[0] == 0x30);
        Some(&self.buffered[before..])
    }

    fn take_messages(&mut self) -> Vec<Vec<u8>> {
        if self.is_ldap != Some(true) {
            return vec![std::mem::take(&mut self.buffered)];
        }
        let mut messages = Vec::new();
        while let Some(length) = whole_message(&self.buffered) {
            messages.push(self.buffered.drain(..length).collect());
        }
        messages
    }
}

const BIND_REQUEST: u8 = 0x60;
const BIND_RESPONSE: u8 = 0x61;
const SEARCH_REQUEST: u8 = 0x63;
const SEARCH_ENTRY: u8 = 0x64;
const SEARCH_DONE: u8 = 0x65;
const EXTENDED_REQUEST: u8 = 0x77;
const INTERMEDIATE: u8 = 0x79;

/// A BER element.
fn encoded(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a small message").to_be_bytes();
    [&[tag, 0x84], &length[..], content].concat()
}

/// The message that ends an operation with this result.
fn result(id: &[u8], kind: u8, code: u8) -> Vec<u8> {
    let operation = encoded(kind, &[0x0a, 1, code, 0x04, 0, 0x04, 0]);
    encoded(0x30, &[encoded(0x02, id), operation].concat())
}

/// An entry with 10,000 nested elements in place of its attributes.
fn nested(id: &[u8]) -> Vec<u8> {
    let levels = (0_u32..10_000).rev();
    let nest: Vec<u8> =
        levels.flat_map(|inner| [&[0x30, 0x84], &(inner * 6).to_be_bytes()[..]].concat()).collect();
    let entry = encoded(SEARCH_ENTRY, &[encoded(0x04, b""), nest].concat());
    encoded(0x30, &[encoded(0x02, id), entry].concat())
}

/// The first elements of these bytes, at most `most`.
fn first_elements(bytes: &[u8], most: usize) -> &[u8] {
    let mut rest = bytes;
    for _ in 0..most {
        let Some((_, _, behind)) = element(rest) else { break };
        rest = behind;
    }
    &bytes[..bytes.len() - rest.len()]
}

/// The length of the message that the bytes begin with, if all of it is there.
fn whole_message(bytes: &[u8]) -> Option<usize> {
    let (_, _, rest) = element(bytes)?;
    Some(bytes.len() - rest.len())
}

/// A BER element: its tag, its content, and the bytes behind it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (octets, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        (octets.iter().fold(0, |length, &octet| length << 8 | usize::from(octet)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The id of a message, the tag of its operation, and the content of that.
fn operation(message: &[u8]) -> Option<(Vec<u8>, u8, &[u8])> {
    let (_, content, _) = element(message)?;
    let (_, id, rest) = element(content)?;
    let (kind, content, _) = element(rest)?;
    Some((id.to_vec(), kind, content))
}
