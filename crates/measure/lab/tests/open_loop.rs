// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of percentiles with an LDAP server that has known delays.
//!
//! No reported latency is below the server's delay. `make bench` measures the difference, which depends on the load of
//! the machine.

mod common;

use common::{count, number, report};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::Duration;

/// Maximum error of a reported percentile. The width of its buckets is a tenth of a percent.
const ERROR_MAX: f64 = 0.01;

/// Server that answers each bind after a delay.
struct Server {
    uri: String,
    /// Number of answered requests.
    answered: Arc<AtomicUsize>,
    /// Lock that stalls all replies while it is held for writing.
    stall: Arc<RwLock<()>>,
}

impl Server {
    /// Starts a server. `delay` maps the number of a request to its delay.
    fn start(delay: fn(u32) -> Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let uri = format!("ldap://{}", listener.local_addr().expect("its number"));
        let server = Self { uri, answered: Arc::default(), stall: Arc::default() };
        let (answered, stall) = (Arc::clone(&server.answered), Arc::clone(&server.stall));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answered, stall) = (Arc::clone(&answered), Arc::clone(&stall));
                thread::spawn(move || serve(stream, delay, &answered, &stall));
            }
        });
        server
    }

    /// Returns the options of every test.
    fn bind(&self) -> [&str; 9] {
        let uri = &self.uri;
        ["ldap", "--uri", uri, "--dn", "cn={n}", "--password", "y", "--warm-up", "0"]
    }
}

fn serve(
    mut stream: TcpStream,
    delay: fn(u32) -> Duration,
    answered: &AtomicUsize,
    stall: &RwLock<()>,
) {
    let mut request = [0; 1024];
    stream.set_nodelay(true).expect("no delay");
    // A bind is one segment: 30 LEN 02 04, the four octets of its number, and then the name.
    while let Ok(length @ 8..) = stream.read(&mut request) {
        let Some(name) = request[..length].windows(3).position(|three| three == b"cn=") else {
            return;
        };
        let digits = request[name + 3..length].iter().take_while(|byte| byte.is_ascii_digit());
        let number = digits.fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
        thread::sleep(delay(number));
        drop(stall.read());
        let mut answer = *b"\x30\x0f\x02\x04\0\0\0\0\x61\x07\x0a\x01\x00\x04\x00\x04\x00";
        answer[4..8].copy_from_slice(&request[4..8]);
        if stream.write_all(&answer).is_err() {
            return;
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Requires a percentile that is not below the server's delay.
fn at_least(report: &Value, name: &str, least_ms: f64) {
    let found = number(report, &format!("/latency_ms/{name}"));
    assert!(found >= least_ms * (1.0 - ERROR_MAX), "{name}: {found:.3} ms for {least_ms:.3} ms");
}

/// Lock of the tests that measure.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn open_loop_percentiles_hold_the_servers_delays() {
    let _alone = ALONE.lock();
    // 70 % of the requests take one second, 25 % two, and 5 % four, in a mixed order.
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
    for (name, least) in [("p50", 1000.0), ("p90", 2000.0), ("p99", 4000.0)] {
        at_least(&report, name, least);
    }
}

#[test]
fn open_loop_stall_is_seen_in_full() {
    let _alone = ALONE.lock();
    let server = Server::start(|_| Duration::ZERO);
    let (stall, answered) = (Arc::clone(&server.stall), Arc::clone(&server.answered));
    // The server stalls for one second, two seconds into the run.
    let stalled = thread::spawn(move || {
        while answered.load(Ordering::Relaxed) < 2000 {
            thread::sleep(Duration::from_millis(1));
        }
        let _held = stall.write();
        thread::sleep(Duration::from_secs(1));
    });
    // Further requests wait unsent, because all eight connections are in use.
    let open = ["--rate", "1000", "--duration", "5", "--users", "8"];
    let (code, report) = report(&[&server.bind()[..], &open].concat());
    stalled.join().expect("not panicked");
    assert_eq!((code, count(&report, "/requests")), (0, 5000), "{report}");
    // Requests that are due at the begin of the stall wait one second, and those at its end do not wait. The slowest
    // tenth of all requests are due in half a second, so they wait at least half a second.
    at_least(&report, "p90", 450.0);
    at_least(&report, "p99", 900.0);
    assert!(common::warnings(&report).contains(&"users"), "that they could not be sent is told");
}

#[test]
fn closed_loop_stall_is_one_request_alone() {
    let _alone = ALONE.lock();
    let server =
        Server::start(|number| Duration::from_millis(if number == 100 { 1000 } else { 2 }));
    let closed = ["--users", "1", "--duration", "3"];
    let (_, report) = report(&[&server.bind()[..], &closed].concat());
    assert!(number(&report, "/latency_ms/max") >= 1000.0, "{report}");
    let [max, p99] = ["max", "p99"].map(|name| number(&report, &format!("/latency_ms/{name}")));
    assert!(p99 < max, "{report}");
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
    // Four connections with 50 ms per request permit 80 requests per second. At 120 per second the last request of
    // three seconds would wait a whole second.
    let knee = ["--rate", "20", "--knee", "900ms", "--users", "4", "--duration", "3"];
    let (_, report) = report(&[&server.bind()[..], &knee].concat());
    let found = number(&report, "/knee/rate");
    assert!((20.0..120.0).contains(&found), "{report}");
}
