//! DNS against a real dnsmasq: what is reported is what the server logged.

mod common;

use common::{count, report, run};
use roster_system_tests::servers::Process;
use roster_system_tests::{tool, wait_until};
use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A dnsmasq that knows `h0.lab.test` to `h99.lab.test`, and logs each query.
struct Dnsmasq {
    server: String,
    _process: Process,
    log: PathBuf,
    _folder: TempDir,
}

impl Dnsmasq {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        let hosts = folder.path().join("hosts");
        let mut text = String::new();
        for number in 0..100 {
            let _ = writeln!(text, "192.0.2.{number} h{number}.lab.test");
            let _ = writeln!(text, "2001:db8::{number} h{number}.lab.test");
        }
        fs::write(&hosts, text).expect("write the hosts");
        let log = folder.path().join("queries");
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = held.local_addr().expect("its number").port();
        drop(held);
        let mut command = Command::new(tool("dnsmasq", "dnsmasq-base"));
        command
            .args(["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts"])
            .args(["--listen-address=127.0.0.1", "--bind-interfaces", "--local=/lab.test/"])
            .args(["--local=/in-addr.arpa/", "--user=root", "--pid-file=", "--log-queries"])
            .arg("--srv-host=_ldap._tcp.lab.test,h1.lab.test,389")
            .arg(format!("--port={port}"))
            .arg(format!("--addn-hosts={}", hosts.display()))
            .arg(format!("--log-facility={}", log.display()));
        let mut process = Process::start(&mut command, &folder.path().join("said"));
        wait_until(Duration::from_secs(30), "dnsmasq answers", || {
            assert!(process.runs(), "dnsmasq has ended: {}", process.log());
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        Self { server: format!("127.0.0.1:{port}"), _process: process, log, _folder: folder }
    }

    /// Queries of a type so far.
    fn queries(&self, kind: &str) -> u64 {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let wanted = format!(" query[{kind}] ");
        log.lines().filter(|line| line.contains(&wanted)).count() as u64
    }
}

#[test]
fn queries_are_as_many_as_the_server_logs() {
    let dns = Dnsmasq::start();
    let brief = ["--duration", "500ms", "--warm-up", "100ms", "--users", "3"];
    for (kind, name) in [
        ("A", "h{0..99}.lab.test"),
        ("AAAA", "h{0..99}.lab.test"),
        ("SRV", "_ldap._tcp.lab.test"),
        ("PTR", "192.0.2.{0..99}"),
    ] {
        for how in [&["--protocol", "udp"][..], &["--protocol", "tcp"], &["--connections", "new"]] {
            let before = dns.queries(kind);
            let what = ["dns", "--server", &dns.server, "--type", kind, "--name", name];
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
    let dns = Dnsmasq::start();
    let what = ["dns", "--server", &dns.server, "--name", "nobody{n}.lab.test"];
    let (code, report) = report(&[&what[..], &["--duration", "200ms", "--warm-up", "0"]].concat());
    assert_eq!(code, 1);
    let failures = count(&report, "/failures");
    assert!(failures > 0 && failures == count(&report, "/failures_by_kind/DNS 3 NXDOMAIN"));
}

#[test]
fn a_server_that_is_not_there_and_a_name_that_cannot_be_are_told() {
    let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let server = held.local_addr().expect("its number").to_string();
    drop(held);
    let brief = ["--duration", "200ms", "--warm-up", "0", "--users", "1"];
    let what = ["dns", "--server", &server, "--name", "h.lab.test"];
    let (code, report) = report(&[&what[..], &brief].concat());
    assert_eq!(code, 1, "{report}");
    assert!(count(&report, "/failures_by_kind/receive: Connection refused (os error 111)") > 0);
    let output = run(&[&what[..], &["--protocol", "tcp"]].concat());
    assert!(String::from_utf8_lossy(&output.stderr).contains("connect: Connection refused"));
    let output = run(&["dns", "--server", &server, "--name", "a..b"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--name: a name with a part of no"));
}
