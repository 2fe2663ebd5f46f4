//! A relay between rosterd and a server that can fall silent: what then comes is lost, and both ends
//! go on believing in their connection, as when a firewall forgets it or a cable is pulled. It can be slow, too,
//! and take entries out of successful replies, as a server with a damaged index or an access rule does.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Listens on a port of its own for as long as the test lives.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    silent: AtomicBool,
    hung_up: AtomicBool,
    accepted: AtomicUsize,
    /// What clients have sent.
    sent: Mutex<Vec<u8>>,
    /// What answers take on their way, in milliseconds.
    delay: AtomicU64,
    hidden: Mutex<Option<Hidden>>,
    connections: Mutex<Vec<TcpStream>>,
}

/// Entries that are taken out of replies.
#[derive(Clone, Copy, Debug)]
struct Hidden {
    /// Whether the entry of this DN is.
    is_hidden: fn(&str) -> bool,
    /// Also from replies to searches by entryUUID.
    by_key: bool,
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
        let state = Arc::new(State {
            silent: AtomicBool::new(false),
            hung_up: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            sent: Mutex::default(),
            delay: AtomicU64::new(0),
            hidden: Mutex::default(),
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

    /// How many connections have come.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::Relaxed)
    }

    /// How often clients have sent this text, passed on or not.
    ///
    /// # Panics
    /// If a thread of the relay has.
    #[must_use]
    pub fn times_sent(&self, text: &str) -> usize {
        let sent = self.state.sent.lock().expect("no thread panics");
        sent.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
    }

    /// From now on everything is lost, on connections old and new; neither end is told.
    pub fn fall_silent(&self) {
        self.state.silent.store(true, Ordering::Relaxed);
    }

    /// From now on what the server says takes so much longer.
    pub fn slow_down(&self, delay: Duration) {
        let millis = delay.as_millis().try_into().expect("less than ages");
        self.state.delay.store(millis, Ordering::Relaxed);
    }

    /// From now on entries of these DNs are taken out of replies: of those to searches by entryUUID, too,
    /// if `by_key` says so. The replies end with success all the same.
    ///
    /// # Panics
    /// If a thread of the relay has.
    pub fn hide(&self, is_hidden: fn(&str) -> bool, by_key: bool) {
        *self.state.hidden.lock().expect("no thread panics") = Some(Hidden { is_hidden, by_key });
    }

    /// From now on all entries are in the replies again.
    ///
    /// # Panics
    /// If a thread of the relay has.
    pub fn show_all(&self) {
        *self.state.hidden.lock().expect("no thread panics") = None;
    }

    /// New connections are served again; old ones end, since what was lost is lost.
    pub fn speak_again(&self) {
        self.state.silent.store(false, Ordering::Relaxed);
        self.state.hung_up.store(false, Ordering::Relaxed);
        self.state.close();
    }

    /// All connections end, and new ones do at once, as when the server is down; until
    /// [`Self::speak_again`].
    pub fn hang_up(&self) {
        self.state.hung_up.store(true, Ordering::Relaxed);
        self.state.close();
    }
}

impl State {
    fn serve(self: &Arc<Self>, client: TcpStream, server: u16) {
        if self.hung_up.load(Ordering::Relaxed) {
            return;
        }
        let Ok(upstream) = TcpStream::connect(("127.0.0.1", server)) else {
            // The server is down: the client sees its connection end.
            return;
        };
        let copies = [client.try_clone(), upstream.try_clone()].map(|copy| copy.expect("dup"));
        self.connections
            .lock()
            .expect("no thread panics")
            .extend([client.try_clone(), upstream.try_clone()].map(|copy| copy.expect("dup")));
        let [client_again, upstream_again] = copies;
        let by_key: Arc<Mutex<HashSet<Vec<u8>>>> = Arc::default();
        let ways = [(client, upstream_again, false), (upstream, client_again, true)];
        for (from, to, answers) in ways {
            let (state, by_key) = (Arc::clone(self), Arc::clone(&by_key));
            thread::spawn(move || state.pump(from, to, answers, &by_key));
        }
    }

    /// What is passed on of whole messages at the beginning of `bytes`, which are taken out of it.
    /// `by_key` holds the ids of searches by entryUUID.
    fn passed_on(
        &self,
        bytes: &mut Vec<u8>,
        answers: bool,
        by_key: &Mutex<HashSet<Vec<u8>>>,
    ) -> Vec<u8> {
        let mut passed = Vec::new();
        while let Some(length) = whole_message(bytes) {
            let message: Vec<u8> = bytes.drain(..length).collect();
            let Some((id, kind, content)) = operation(&message) else {
                passed.extend(message);
                continue;
            };
            let mut by_key = by_key.lock().expect("no thread panics");
            let hidden = *self.hidden.lock().expect("no thread panics");
            let is_hidden = match (answers, kind) {
                (false, SEARCH_REQUEST) => {
                    // Followed by a value, which an equality match has. A listing asks for values.
                    let matched = [b"entryUUID", &[0x04, 36][..]].concat();
                    if content.windows(matched.len()).any(|window| window == matched) {
                        by_key.insert(id);
                    }
                    false
                }
                (true, SEARCH_ENTRY) => hidden.is_some_and(|Hidden { is_hidden, by_key: too }| {
                    let dn = element(content).map(|(_, dn, _)| String::from_utf8_lossy(dn));
                    (too || !by_key.contains(&id)) && dn.is_some_and(|dn| is_hidden(&dn))
                }),
                _ => false,
            };
            if !is_hidden {
                passed.extend(message);
            }
        }
        passed
    }

    fn close(&self) {
        for connection in self.connections.lock().expect("no thread panics").drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn pump(
        &self,
        mut from: TcpStream,
        mut to: TcpStream,
        answers: bool,
        by_key: &Mutex<HashSet<Vec<u8>>>,
    ) {
        let mut buffer = [0; 64 << 10];
        let mut held = Vec::new();
        // Bytes of TLS are no messages.
        let mut is_ldap = None;
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if answers {
                thread::sleep(Duration::from_millis(self.delay.load(Ordering::Relaxed)));
            } else {
                self.sent.lock().expect("no thread panics").extend(&buffer[..count]);
            }
            held.extend(&buffer[..count]);
            let passed = match is_ldap.get_or_insert(held[0] == 0x30) {
                true => self.passed_on(&mut held, answers, by_key),
                false => std::mem::take(&mut held),
            };
            if !self.silent.load(Ordering::Relaxed) && to.write_all(&passed).is_err() {
                break;
            }
        }
        // An end is not told either while nothing is.
        if !self.silent.load(Ordering::Relaxed) {
            let _ = to.shutdown(Shutdown::Both);
        }
    }
}

const SEARCH_REQUEST: u8 = 0x63;
const SEARCH_ENTRY: u8 = 0x64;

/// The length of the message that the bytes begin with, if all of it is there.
fn whole_message(bytes: &[u8]) -> Option<usize> {
    let (_, _, rest) = element(bytes)?;
    Some(bytes.len() - rest.len())
}

/// A BER element: its tag, its content, and what follows.
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

/// The id of a message, the tag of its operation, and what is in that.
fn operation(message: &[u8]) -> Option<(Vec<u8>, u8, &[u8])> {
    let (_, content, _) = element(message)?;
    let (_, id, rest) = element(content)?;
    let (kind, content, _) = element(rest)?;
    Some((id.to_vec(), kind, content))
}
