// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `roster-lab dns` with a real dnsmasq and a real named: reports equal the servers' logs.

mod common;

use common::{count, has_code, report, run};
use roster_messages::table::lab as messages;
use roster_system_tests::servers::ServerProcess;
use roster_system_tests::{find_tool, wait_until};
use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// DNS server that knows `h0.lab.test` to `h99.lab.test` and logs each query.
struct Server {
    address: String,
    _process: ServerProcess,
    log: PathBuf,
    /// Text of its log before and after the type of a query.
    words: [&'static str; 2],
    _folder: TempDir,
}

fn free_port() -> u16 {
    let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    held.local_addr().expect("its number").port()
}

impl Server {
    fn start(command: &mut Command, port: u16, folder: TempDir, words: [&'static str; 2]) -> Self {
        let mut process = ServerProcess::start(command, &folder.path().join("said"));
        wait_until(Duration::from_secs(30), "the server answers", || {
            assert!(process.is_running(), "the server has ended: {}", process.log());
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        let (address, log) = (format!("127.0.0.1:{port}"), folder.path().join("queries"));
        Self { address, _process: process, log, words, _folder: folder }
    }

    fn dnsmasq() -> Self {
        let folder = tempfile::tempdir().expect("make a directory");
        let hosts = folder.path().join("hosts");
        let mut text = String::new();
        for number in 0..100 {
            let _ = writeln!(text, "192.0.2.{number} h{number}.lab.test");
            let _ = writeln!(text, "2001:db8::{number} h{number}.lab.test");
        }
        fs::write(&hosts, text).expect("write the hosts");
        let port = free_port();
        let mut command = Command::new(find_tool("dnsmasq", "dnsmasq-base"));
        command
            .args(["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts"])
            .args(["--listen-address=127.0.0.1", "--bind-interfaces", "--local=/lab.test/"])
            .args(["--local=/in-addr.arpa/", "--user=root", "--pid-file=", "--log-queries"])
            .arg("--srv-host=_ldap._tcp.lab.test,h1.lab.test,389")
            .arg(format!("--port={port}"))
            .arg(format!("--addn-hosts={}", hosts.display()))
            .arg(format!("--log-facility={}", folder.path().join("queries").display()));
        Self::start(&mut command, port, folder, [" query[", "] "])
    }

    fn named() -> Self {
        let folder = tempfile::tempdir().expect("make a directory");
        let head = "$TTL 60\n@ SOA ns.lab.test. root.lab.test. 1 60 60 60 60\n@ NS ns.lab.test.\n";
        let (mut names, mut addresses) = (format!("{head}ns A 127.0.0.1\n"), head.to_owned());
        names += "_ldap._tcp SRV 0 0 389 h1\n";
        for number in 0..100 {
            let _ =
                writeln!(names, "h{number} A 192.0.2.{number}\nh{number} AAAA 2001:db8::{number}");
            let _ = writeln!(addresses, "{number} PTR h{number}.lab.test.");
        }
        let port = free_port();
        let options = format!(
            "options {{ directory \"{0}\"; listen-on port {port} {{ 127.0.0.1; }}; recursion no;\n\
             listen-on-v6 {{ none; }}; pid-file \"{0}/pid\"; session-keyfile \"{0}/key\";\n\
             tcp-clients 10000; }};\ncontrols {{ }};\n\
             logging {{ channel all {{ file \"{0}/queries\"; }}; category queries {{ all; }}; }};\n\
             zone \"lab.test\" {{ type primary; file \"names\"; }};\n\
             zone \"2.0.192.in-addr.arpa\" {{ type primary; file \"addresses\"; }};\n",
            folder.path().display()
        );
        for (file, text) in [("names", names), ("addresses", addresses), ("named.conf", options)] {
            fs::write(folder.path().join(file), text).expect("write its files");
        }
        let mut command = Command::new(find_tool("named", "bind9"));
        command.args(["-f", "-n", "1", "-c"]).arg(folder.path().join("named.conf"));
        Self::start(&mut command, port, folder, [" IN ", " "])
    }

    /// Returns the number of logged queries of a type.
    fn queries(&self, kind: &str) -> u64 {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let wanted = self.words.join(kind);
        log.lines().filter(|line| line.contains(&wanted)).count() as u64
    }
}

#[test]
fn queries_are_as_many_as_dnsmasq_logs() {
    queries_are_as_many_as_are_logged(&Server::dnsmasq());
}

#[test]
fn queries_are_as_many_as_named_logs() {
    queries_are_as_many_as_are_logged(&Server::named());
}

fn queries_are_as_many_as_are_logged(dns: &Server) {
    let brief = ["--duration", "500ms", "--warm-up", "100ms", "--users", "3"];
    for (kind, name) in [
        ("A", "h{0..99}.lab.test"),
        ("AAAA", "h{0..99}.lab.test"),
        ("SRV", "_ldap._tcp.lab.test"),
        ("PTR", "192.0.2.{0..99}"),
    ] {
        for how in [&["--protocol", "udp"][..], &["--protocol", "tcp"], &["--connections", "new"]] {
            let before = dns.queries(kind);
            let what = ["dns", "--server", &dns.address, "--type", kind, "--name", name];
            let (code, report) = report(&[&what[..], how, &brief].concat());
            assert_eq!((code, count(&report, "/failures")), (0, 0), "{kind} {how:?}: {report}");
            let reported = count(&report, "/requests") + count(&report, "/warm_up_requests");
            assert!(count(&report, "/requests") > 0);
            assert_eq!(reported, dns.queries(kind) - before, "{kind} {how:?}: {report}");
        }
    }
}

#[test]
fn names_that_are_not_there_are_failures_of_their_kind() {
    let dns = Server::dnsmasq();
    let what = ["dns", "--server", &dns.address, "--name", "nobody{n}.lab.test"];
    let (code, report) = report(&[&what[..], &["--duration", "200ms", "--warm-up", "0"]].concat());
    assert_eq!(code, 1);
    let failures = count(&report, "/failures");
    assert!(failures > 0 && failures == count(&report, "/failures_by_kind/DNS 3 NXDOMAIN"));
}

#[test]
fn dns_missing_server_and_bad_name_are_reported() {
    let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let server = held.local_addr().expect("its number").to_string();
    drop(held);
    let brief = ["--duration", "200ms", "--warm-up", "0", "--users", "1"];
    let what = ["dns", "--server", &server, "--name", "h.lab.test"];
    let (code, report) = report(&[&what[..], &brief].concat());
    assert_eq!(code, 1, "{report}");
    let kind = "receive: Connection refused (os error 111)";
    assert!(count(&report, &format!("/failures_by_kind/{kind}")) > 0);
    assert_eq!(report["failure_codes"][kind], messages::REQUEST_SYSTEM_CALL.code, "{report}");
    let output = run(&[&what[..], &["--protocol", "tcp"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("connect: Connection refused"), "{said}");
    assert!(has_code(&said, &messages::CONNECT_FAILED), "{said}");
    let output = run(&["dns", "--server", &server, "--name", "a..b"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(has_code(&said, &messages::DNS_NAME_INVALID), "{said}");
}

#[test]
fn dns_reply_without_record_has_code() {
    // Flags of the reply (RFC 1035, section 4.1.1): reply, truncation, code of the result.
    for (flags, message) in [
        ([0x80, 0x00], &messages::DNS_NO_DATA),
        ([0x82, 0x00], &messages::DNS_TRUNCATED),
        ([0x80, 0x02], &messages::DNS_ERROR),
    ] {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let server = socket.local_addr().expect("its number").to_string();
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut query) {
                query[2..4].copy_from_slice(&flags);
                let _ = socket.send_to(&query[..length], from);
            }
        });
        let what = ["dns", "--server", &server, "--name", "h.lab.test", "--users", "1"];
        let (code, report) = report(&[&what[..], &["--duration", "1", "--warm-up", "0"]].concat());
        let codes = report["failure_codes"].as_object().expect("codes");
        assert!(code == 1 && !codes.is_empty(), "{report}");
        assert!(codes.values().all(|code| code == message.code), "{message}: {report}");
    }
}
