// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the commands that query rosterd, with a bus, silent backends, and a socket for logins. Real roles are in the
//! system tests.

#![allow(missing_docs)]

mod common;

use common::Bench;
use roster_bus::bus_names::{RoleName, SOCKET};
use roster_bus::interfaces::{MonitorStatus, RejectedEntry, SupervisedRole};
use roster_messages::Message;
use roster_messages::table::tools;
use roster_request::AuthResult;
use roster_wire::pam::{AuthResponseHeader, REQUEST_HEADER_BYTES};
use std::io::{Read, Write};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixListener;
use std::thread;
use zbus::interface;

/// The part of the bus to which a client says hello.
struct Bus;

#[interface(name = "org.freedesktop.DBus")]
impl Bus {
    fn hello(&self) -> &str {
        ":1.1"
    }
}

/// A monitor of one domain.
struct Monitor;

#[interface(name = "org.roster.Monitor1")]
impl Monitor {
    fn status(&self) -> MonitorStatus {
        let [role, state] = ["backend:corp", "running"].map(str::to_owned);
        let backend = SupervisedRole { role, state, ..SupervisedRole::default() };
        let domains = vec!["corp".to_owned()];
        MonitorStatus { domains, roles: vec![backend], ..MonitorStatus::default() }
    }

    fn set_log_level(&self, _role: &str, _level: &str) -> Vec<(String, String)> {
        vec![("backend:corp".to_owned(), "no reply within 5 s".to_owned())]
    }
}

/// A publisher that rejects no entry.
struct Publisher;

#[interface(name = "org.roster.Publisher1")]
impl Publisher {
    fn rejected(&self, _domain: &str, _from: u32, _at_most: u32) -> Vec<RejectedEntry> {
        Vec::new()
    }
}

/// Serves one client of the bus, until the test ends.
fn serve_bus(bench: &Bench, has_publisher: bool) {
    let _ = std::fs::remove_file(bench.path(SOCKET));
    let listener = UnixListener::bind(bench.path(SOCKET)).unwrap();
    let serve = async move {
        let (client, _) = listener.accept().unwrap();
        let mut bus = zbus::connection::Builder::unix_stream(client)
            .server("0123456789abcdef0123456789abcdef")
            .p2p()
            .serve_at("/org/freedesktop/DBus", Bus)
            .serve_at(RoleName::Monitor.path(), Monitor);
        if has_publisher {
            bus = bus.serve_at(RoleName::Publisher.path(), Publisher);
        }
        let _connection = bus.build().await.unwrap();
        std::future::pending::<()>().await;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    thread::spawn(move || runtime.block_on(serve));
}

#[test]
fn command_without_reply_of_backend_has_code() {
    let bench = Bench::new();
    for (command, has_publisher, status, message) in [
        ("cache expire --all", true, 1, &tools::CACHE_NOT_EXPIRED),
        ("log-level debug", true, 1, &tools::LOG_LEVEL_NOT_SET),
        ("domain rejected corp", true, 0, &tools::REJECTIONS_INCOMPLETE),
        ("domain rejected corp", false, 1, &tools::REJECTIONS_UNKNOWN),
    ] {
        serve_bus(&bench, has_publisher);
        let run = bench.roster(&format!("{command} --run-dir .")).expect(status);
        assert!(run.err.ends_with(&format!("[{message}]\n")), "{command}: {}", run.err);
    }
}

/// Runs `roster ssh-keys` with a socket that replies with this result, and checks its error.
fn check_ssh_keys(result: AuthResult, owner: u32, message: &Message) {
    let bench = Bench::new();
    let listener = UnixListener::bind(bench.path("pam")).unwrap();
    chown(bench.path("pam"), Some(owner), None).unwrap();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut request = [0; REQUEST_HEADER_BYTES + "alice".len() + "sshd".len()];
        client.read_exact(&mut request).unwrap();
        let header = AuthResponseHeader {
            result,
            is_offline: false,
            messages: 0,
            messages_bytes: 0,
            blob_bytes: 0,
        };
        client.write_all(&header.encode()).unwrap();
    });
    let run = bench.roster("ssh-keys alice --run-dir .").expect(1);
    assert!(run.err.ends_with(&format!("[{message}]\n")), "{}", run.err);
    assert_eq!(run.out, "");
}

#[test]
fn ssh_keys_without_answer_have_code() {
    let own = rustix::process::geteuid();
    for result in [AuthResult::Denied, AuthResult::Unreachable] {
        check_ssh_keys(result, own.as_raw(), &tools::KEYS_UNKNOWN);
    }
    if own.is_root() {
        check_ssh_keys(AuthResult::Success, 1234, &tools::PAM_SOCKET_UNTRUSTED);
    }
}
