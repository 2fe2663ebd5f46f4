//! Percentiles against a server whose delays are known: it speaks just enough LDAP to answer binds,
//! and writes down how long it truly took.

mod common;

use common::{count, number, report};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

/// What is claimed of a reported percentile.
const ERROR_MAX: f64 = 0.01;

/// One request, as the server saw it.
#[derive(Clone, Copy)]
struct Seen {
    /// Its number in the run, which is its name.
    number: u32,
    came: Instant,
    answered: Instant,
}

/// A server that answers each bind after a delay.
struct Server {
    uri: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Who holds this for writing stalls all answers.
    stall: Arc<RwLock<()>>,
}

impl Server {
    /// The delay of a request follows from its number.
    fn start(delay: fn(u32) -> Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let uri = format!("ldap://{}", listener.local_addr().expect("its number"));
        let server = Self { uri, seen: Arc::default(), stall: Arc::default() };
        let (seen, stall) = (Arc::clone(&server.seen), Arc::clone(&server.stall));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, stall) = (Arc::clone(&seen), Arc::clone(&stall));
                thread::spawn(move || serve(stream, delay, &seen, &stall));
            }
        });
        server
    }

    /// The options that every test has.
    fn bind(&self) -> [&str; 9] {
        let uri = &self.uri;
        ["ldap", "--uri", uri, "--dn", "cn={n}", "--password", "y", "--warm-up", "0"]
    }

    /// The true percentiles of an open loop, in milliseconds: each request was meant to start when its
    /// number says, and the one that came soonest after that tells when the first was.
    fn truth(&self, rate: u32) -> impl Fn(f64) -> f64 {
        let seen = self.seen.lock().expect("not poisoned").clone();
        let since_first = |one: &Seen| Duration::from_secs(1) * one.number / rate;
        let starts = seen.iter().filter_map(|one| one.came.checked_sub(since_first(one)));
        let start = starts.min().expect("requests were made");
        let mut took: Vec<Duration> =
            seen.iter().map(|one| one.answered - (start + since_first(one))).collect();
        took.sort();
        move |percentile| {
            let rank = (percentile / 100.0 * took.len() as f64).ceil() as usize;
            took[rank.clamp(1, took.len()) - 1].as_secs_f64() * 1e3
        }
    }
}

fn serve(
    mut stream: TcpStream,
    delay: fn(u32) -> Duration,
    seen: &Mutex<Vec<Seen>>,
    stall: &RwLock<()>,
) {
    let mut request = [0; 1024];
    stream.set_nodelay(true).expect("no delay");
    // A bind is one segment: 30 LEN 02 04, four octets of its id, and then the name.
    while let Ok(length @ 8..) = stream.read(&mut request) {
        let came = Instant::now();
        let Some(name) = request[..length].windows(3).position(|three| three == b"cn=") else {
            return;
        };
        let digits = request[name + 3..length].iter().take_while(|byte| byte.is_ascii_digit());
        let number = digits.fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
        thread::sleep(delay(number));
        drop(stall.read());
        let mut answer = *b"\x30\x0f\x02\x04\0\0\0\0\x61\x07\x0a\x01\x00\x04\x00\x04\x00";
        answer[4..8].copy_from_slice(&request[4..8]);
        let answered = Instant::now();
        if stream.write_all(&answer).is_err() {
            return;
        }
        seen.lock().expect("not poisoned").push(Seen { number, came, answered });
    }
}

fn close_to(found: f64, truth: f64, what: &str) {
    let error = (found / truth - 1.0).abs();
    assert!(error <= ERROR_MAX, "{what}: {found:.3} ms for {truth:.3} ms: {:.2} %", error * 100.0);
}

/// Tests that measure do so one after the other.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn percentiles_are_the_servers_delays_within_one_percent() {
    let _alone = ALONE.lock();
    // 70 % take a second, 25 % two, 5 % four, well mixed.
    let server = Server::start(|number| {
        Duration::from_secs(match number * 37 % 100 {
            0..70 => 1,
            70..95 => 2,
            _ => 4,
        })
    });
    let open = ["--rate", "100", "--duration", "4", "--users", "250"];
    let (code, report) = report(&[&server.bind()[..], &open].concat());
    assert_eq!((code, count(&report, "/requests")), (0, 400), "{report}");
    let truth = server.truth(100);
    for (name, percentile) in [("p50", 50.0), ("p90", 90.0), ("p99", 99.0)] {
        close_to(number(&report, &format!("/latency_ms/{name}")), truth(percentile), name);
    }
}

#[test]
fn a_stall_of_a_second_is_seen_in_full_by_an_open_loop() {
    let _alone = ALONE.lock();
    let server = Server::start(|_| Duration::ZERO);
    let (stall, seen) = (Arc::clone(&server.stall), Arc::clone(&server.seen));
    // Two seconds into the run everything stands still for one.
    let stalled = thread::spawn(move || {
        while seen.lock().expect("not poisoned").len() < 2000 {
            thread::sleep(Duration::from_millis(1));
        }
        let _held = stall.write();
        thread::sleep(Duration::from_secs(1));
    });
    // Eight connections: what more was due could not even be sent, and waited all the same.
    let open = ["--rate", "1000", "--duration", "5", "--users", "8"];
    let (code, report) = report(&[&server.bind()[..], &open].concat());
    stalled.join().expect("not panicked");
    assert_eq!((code, count(&report, "/requests")), (0, 5000), "{report}");
    // Of all that were due while it stood still, who came first waited for all of it, and who came
    // last not at all: so the slowest tenth of all requests, half a second's, waited for half of it.
    let truth = server.truth(1000);
    assert!((450.0..700.0).contains(&truth(90.0)) && truth(99.0) > 900.0, "the server did stall");
    for (name, percentile) in [("p90", 90.0), ("p99", 99.0), ("p999", 99.9)] {
        close_to(number(&report, &format!("/latency_ms/{name}")), truth(percentile), name);
    }
    assert!(common::warnings(&report).contains(&"users"), "that they could not be sent is told");
}

#[test]
fn a_stall_is_hidden_by_a_closed_loop_which_is_why_there_is_an_open_one() {
    let _alone = ALONE.lock();
    let server =
        Server::start(|number| Duration::from_millis(if number == 100 { 1000 } else { 2 }));
    let closed = ["--users", "1", "--duration", "3"];
    let (_, report) = report(&[&server.bind()[..], &closed].concat());
    assert!(number(&report, "/latency_ms/max") >= 1000.0, "{report}");
    assert!(number(&report, "/latency_ms/p99") < 500.0, "{report}");
}

#[test]
fn a_curve_of_rates_is_as_many_runs() {
    let _alone = ALONE.lock();
    let server = Server::start(|_| Duration::from_millis(20));
    let curve = ["--rate", "20,40", "--duration", "500ms"];
    let (_, report) = report(&[&server.bind()[..], &curve].concat());
    assert_eq!(report["stages"].as_array().map(Vec::len), Some(2), "{report}");
    assert_eq!(count(&report, "/stages/0/requests"), 10, "{report}");
    assert_eq!(count(&report, "/stages/1/requests"), 20, "{report}");
    assert_eq!(count(&report, "/requests"), 30, "{report}");
}

#[test]
fn a_knee_is_found_where_the_server_can_do_no_more() {
    let _alone = ALONE.lock();
    let server = Server::start(|_| Duration::from_millis(50));
    // Four connections at 50 ms a request make 80 a second: at 120 the last of three seconds would
    // wait a whole one.
    let knee = ["--rate", "20", "--knee", "900ms", "--users", "4", "--duration", "3"];
    let (_, report) = report(&[&server.bind()[..], &knee].concat());
    let found = number(&report, "/knee/rate");
    assert!((20.0..120.0).contains(&found), "{report}");
}
