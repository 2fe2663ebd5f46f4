// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the codes of `roster nscd`: a server that lacks something, and requests to servers that misbehave.

#![allow(missing_docs)]

mod common;

use common::Bench;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Limit of a wait for a message, on a busy machine.
const LOGGED_WITHIN: Duration = Duration::from_secs(60);

/// Replies with an error number.
const EPERM: [u8; 4] = 1_i32.to_ne_bytes();
const EIO: [u8; 4] = 5_i32.to_ne_bytes();

/// Answers each request with these bytes. Without bytes it does not answer.
fn serve(bench: &Bench, reply: Option<&'static [u8]>) {
    let socket = bench.path("socket");
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for mut client in listener.incoming().flatten() {
            let _ = client.read(&mut [0; 1024]);
            match reply {
                Some(reply) => drop(client.write_all(reply)),
                None => silent.push(client),
            }
        }
    });
}

#[test]
fn nscd_requests_to_misbehaving_servers_have_codes() {
    let bench = Bench::new();
    let statistics = "nscd --socket socket --statistics";
    let invalidate = "nscd --socket socket --invalidate passwd";
    let run = bench.roster(statistics).expect(1);
    assert!(run.err.contains("[RST-9500]"), "{}", run.err);
    let table: [(Option<&'static [u8]>, &str, &str); 4] = [
        (None, statistics, "RST-9501"),
        (Some(&EPERM), invalidate, "RST-9502"),
        (Some(&[]), statistics, "RST-9503"),
        (Some(&EIO), invalidate, "RST-9504"),
    ];
    for (reply, request, code) in table {
        serve(&bench, reply);
        let run = bench.roster(request).expect(1);
        assert!(run.err.contains(&format!("[{code}]")), "{code}: {}", run.err);
    }
}

#[test]
fn nscd_processes_without_server_have_code() {
    let bench = Bench::new();
    for name in ["nscd-starter", "nscd-helper"] {
        let mut command = bench.command();
        let output = command.arg(name).stdin(Stdio::null()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains("[RST-9521]"), "{name}: {error}");
    }
}

#[test]
fn nscd_server_without_thread_or_manager_has_code() {
    // No address space has room for such a stack.
    let stack = (1_u64 << 50).to_string();
    for (variable, value, code) in
        [("RUST_MIN_STACK", stack.as_str(), "RST-9524"), ("NOTIFY_SOCKET", "/no/such", "RST-9523")]
    {
        let bench = Bench::new();
        bench.write("passwd", "root:x:0:0:::\n");
        bench.write("group", "root:x:0:\n");
        bench.write("nsswitch.conf", "passwd: files\ngroup: files\n");
        let mut command = bench.command();
        command.args(["nscd", "--socket", "socket", "--maps", "maps", "--snapshot", "none"]);
        command.args(["--passwd", "passwd", "--group", "group", "--nsswitch", "nsswitch.conf"]);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut server = command.env(variable, value).spawn().unwrap();
        let log = BufReader::new(server.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let found = log.lines().map_while(Result::ok).find(|line| line.contains(code));
            drop(sender.send(found));
        });
        let found = lines.recv_timeout(LOGGED_WITHIN);
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(matches!(found, Ok(Some(_))), "{code}: {found:?}");
    }
}
