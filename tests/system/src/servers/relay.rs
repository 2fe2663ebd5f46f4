//! A relay between rosterd and a server that can fall silent: what then comes is lost, and both ends
//! go on believing in their connection, as when a firewall forgets it or a cable is pulled. It can be slow, too.

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
    connections: Mutex<Vec<TcpStream>>,
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
        let ways = [(client, upstream_again, false), (upstream, client_again, true)];
        for (from, to, answers) in ways {
            let state = Arc::clone(self);
            thread::spawn(move || state.pump(from, to, answers));
        }
    }

    fn close(&self) {
        for connection in self.connections.lock().expect("no thread panics").drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, answers: bool) {
        let mut buffer = [0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if answers {
                thread::sleep(Duration::from_millis(self.delay.load(Ordering::Relaxed)));
            } else {
                self.sent.lock().expect("no thread panics").extend(&buffer[..count]);
            }
            if !self.silent.load(Ordering::Relaxed) && to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        // An end is not told either while nothing is.
        if !self.silent.load(Ordering::Relaxed) {
            let _ = to.shutdown(Shutdown::Both);
        }
    }
}
