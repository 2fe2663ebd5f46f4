// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `roster-lab ldap` with a real slapd: reports equal the server's counters.

mod common;

use common::{
    DN, PASSWORD, count, has_code, lab, number, read, report, run, slapd,
    slapd_that_is_not_started, warnings,
};
use roster_messages::table::lab as messages;
use roster_system_tests::servers::ServerCertificate;
use roster_system_tests::wait::{SOON, wait_until};
use roster_system_tests::{DirectoryServer, Slapd};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// Returns the number of completed operations of a kind.
fn completed(slapd: &Slapd, kind: &str) -> u64 {
    let base = format!("cn={kind},cn=Operations,cn=Monitor");
    let text = slapd.search(&base, "(objectClass=*)", &["monitorOpCompleted"]);
    let text = String::from_utf8(text).expect("LDIF");
    let value = text.lines().find_map(|line| line.strip_prefix("monitorOpCompleted: "));
    value.and_then(|value| value.parse().ok()).expect("cn=Monitor counts")
}

/// Runs roster-lab and compares its report with the server's counter of a kind.
fn counted(slapd: &Slapd, kind: &str, arguments: &[&str]) -> serde_json::Value {
    let before = completed(slapd, kind);
    let uri = slapd.uri();
    let common = ["--duration", "1", "--warm-up", "200ms", "--users", "4"];
    let given = if arguments.contains(&"--uri") { vec![] } else { vec!["--uri", &uri] };
    let (code, report) = report(&[&["ldap"], &given[..], arguments, &common].concat());
    // Each read of the counter makes a bind, and a search that counts itself at its end.
    let own = u64::from(["Bind", "Search"].contains(&kind));
    let made = completed(slapd, kind) - before - own;
    assert_eq!(code, 0, "{report}");
    assert_eq!(count(&report, "/failures"), 0, "{report}");
    let reported = count(&report, "/requests") + count(&report, "/warm_up_requests");
    assert_eq!(reported, made, "{report}");
    assert!(count(&report, "/requests") > 0 && count(&report, "/warm_up_requests") > 0, "{report}");
    report
}

#[test]
fn binds_are_as_many_as_the_server_counts() {
    let slapd = slapd(|_| {});
    let bind = ["--dn", DN, "--password", PASSWORD];
    counted(&slapd, "Bind", &bind);
    let new = [&bind[..], &["--connections", "new", "--source", "127.0.0.2,127.0.0.3"]].concat();
    counted(&slapd, "Bind", &new);
    counted(&slapd, "Bind", &[&new[..], &["--close", "reset"]].concat());
    let report = counted(&slapd, "Bind", &[&bind[..], &["--rate", "300"]].concat());
    assert_eq!(count(&report, "/requests"), 300, "an open loop makes what it was asked for");
    assert_eq!(count(&report, "/warm_up_requests"), 60);
}

#[test]
fn binds_under_tls_are_as_many_as_the_server_counts() {
    let slapd = slapd(|setup| setup.certificate = Some(ServerCertificate::Good));
    let authority = slapd.authority();
    let bind =
        ["--dn", DN, "--password", PASSWORD, "--tls-ca", authority.to_str().expect("a plain path")];
    let ldaps = slapd.ldaps_uri();
    for connections in ["reuse", "new"] {
        let bind = [&bind[..], &["--connections", connections]].concat();
        counted(&slapd, "Bind", &[&bind[..], &["--uri", &ldaps]].concat());
        counted(&slapd, "Bind", &[&bind[..], &["--start-tls"]].concat());
    }
}

#[test]
fn searches_comparisons_and_modifications_are_as_many_as_the_server_counts() {
    let slapd = slapd(|_| {});
    let people = "ou=people,dc=example,dc=com";
    let search = ["--op", "search", "--scope", "sub", "--filter", "(&(uid=u{0..99})(cn=*))"];
    counted(&slapd, "Search", &[&search[..], &["--dn", people, "--attributes", "uid,cn"]].concat());
    counted(&slapd, "Compare", &["--op", "compare", "--dn", DN, "--value", "sn=u{0..99}"]);
    let nobody = ["--op", "search", "--scope", "sub", "--filter", "(uid=nobody{n})"];
    let brief = ["--dn", people, "--duration", "1", "--warm-up", "0", "--users", "1"];
    let (code, report) = report(&[&["ldap", "--uri", &slapd.uri()], &nobody[..], &brief].concat());
    let codes = report["failure_codes"].as_object().expect("codes");
    assert!(code == 1 && count(&report, "/failures") > 0, "{report}");
    assert!(codes.values().all(|code| code == messages::LDAP_NOTHING_FOUND.code), "{report}");
    let admin = slapd.admin_dn();
    let modify = ["--op", "modify", "--dn", DN, "--value", "description=of request {n}"];
    let bind = ["--bind-dn", &admin, "--bind-password", "may do anything"];
    for connections in ["reuse", "new"] {
        let how = ["--connections", connections];
        counted(&slapd, "Modify", &[&modify[..], &bind, &how].concat());
    }
    let entries = slapd.search(people, "(description=of request *)", &["description"]);
    let entries = String::from_utf8(entries).expect("LDIF");
    let mut values: Vec<&str> =
        entries.lines().filter(|line| line.starts_with("description: ")).collect();
    assert_eq!(values.len(), 100, "every user had a turn");
    values.dedup();
    assert_eq!(values.len(), 100, "every request set another value");
}

#[test]
fn several_threads_make_each_request_once() {
    let slapd = slapd(|_| {});
    let bind = ["--dn", DN, "--password", PASSWORD, "--threads", "3", "--rate", "500"];
    let report = counted(&slapd, "Bind", &bind);
    assert_eq!(count(&report, "/requests"), 500);
}

#[test]
fn wrong_passwords_are_failures_with_the_servers_code() {
    let slapd = slapd(|_| {});
    let arguments = ["--dn", DN, "--password", "wrong{n}", "--duration", "300ms", "--warm-up", "0"];
    let (code, report) = report(&[&["ldap", "--uri", &slapd.uri()], &arguments[..]].concat());
    assert_eq!(code, 1, "nothing went well");
    let (requests, failures) = (count(&report, "/requests"), count(&report, "/failures"));
    assert!(requests > 0 && requests == failures, "{report}");
    assert_eq!(count(&report, "/failures_by_kind/LDAP 49 invalidCredentials"), failures);
    assert!(warnings(&report).contains(&"failures"));
    assert!(!report.to_string().contains("wrong{n}"), "passwords stay out of reports");
}

#[test]
fn the_servers_processor_time_is_told_for_each_request() {
    let mut slapd = slapd(|_| {});
    let pid = slapd.process().pid().as_raw_nonzero().to_string();
    // The kernel counts processor time in hundredths of a second.
    let arguments = ["--dn", DN, "--password", PASSWORD, "--duration", "2", "--server-pid", &pid];
    let (_, report) = report(&[&["ldap", "--uri", &slapd.uri()], &arguments[..]].concat());
    let (server, rate) = (number(&report, "/server_cpu_us_per_op"), number(&report, "/rate"));
    let processors = thread::available_parallelism().map_or(1, usize::from);
    assert!(server > 0.0 && server * rate <= processors as f64 * 1.1e6, "{report}");
    assert!(count(&report, "/server_memory_bytes") > 1 << 20);
    assert!(number(&report, "/client_cpu_us_per_op") > 0.0);
}

#[test]
fn a_server_that_cannot_be_reached_is_said_before_the_run() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number");
    for (uri, why, message) in [
        (format!("ldap://{free}"), "connect: Connection refused", &messages::CONNECT_FAILED),
        (
            "ldap://no-such-host.invalid".to_owned(),
            "cannot resolve no-such-host.invalid",
            &messages::HOST_NOT_FOUND,
        ),
    ] {
        let output = run(&["ldap", "--uri", &uri, "--dn", "cn=x", "--password", "y"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{said}");
        assert!(has_code(&said, message), "{said}");
    }
}

#[test]
fn a_certificate_that_is_not_the_servers_is_refused() {
    let slapd = slapd(|setup| setup.certificate = Some(ServerCertificate::OtherName));
    let authority = slapd.authority();
    let authority = authority.to_str().expect("a plain path");
    let uri = slapd.ldaps_uri();
    let bind = ["ldap", "--uri", &uri, "--dn", "cn=x", "--password", "y", "--tls-ca", authority];
    let output = run(&bind);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("TLS: invalid peer"), "{said}");
    assert!(has_code(&said, &messages::TLS_FAILED), "{said}");
}

/// Starts a server that replies `words` to any request and then closes the connection.
fn server_that_says(words: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut stream = stream;
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(words);
            });
        }
    });
    format!("ldap://{address}")
}

#[test]
fn answers_that_are_none_are_failures_of_a_kind_each() {
    for (words, kind) in [
        (&b""[..], "the server closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "malformed reply: not an LDAP message"),
        (
            b"\x30\x0c\x02\x01\x7f\x61\x07\x0a\x01\x00\x04\x00\x04\x00",
            "malformed reply: reply to another request",
        ),
        (
            b"\x30\x0c\x02\x01\x01\x65\x07\x0a\x01\x00\x04\x00\x04\x00",
            "malformed reply: reply of another type",
        ),
        (b"\x30\x84\xff\xff\xff\xff", "malformed reply: element too long"),
        // The data and the end of the connection arrive together.
        (b"\x30\x0c\x02", "the server closed the connection"),
    ] {
        let uri = server_that_says(words);
        let bind = ["ldap", "--uri", &uri, "--dn", "cn=x", "--password", "y"];
        let brief = ["--duration", "300ms", "--warm-up", "0", "--users", "2"];
        let (code, report) = report(&[&bind[..], &brief].concat());
        let failures = count(&report, "/failures");
        assert!(code == 1 && failures >= 2, "{report}");
        assert_eq!(count(&report, &format!("/failures_by_kind/{kind}")), failures, "{report}");
        let message = match kind.starts_with("malformed") {
            true => &messages::REPLY_MALFORMED,
            false => &messages::CONNECTION_CLOSED,
        };
        assert_eq!(report["failure_codes"][kind], message.code, "{report}");
        assert_eq!(number(&report, "/latency_ms/max"), 0.0, "a failure has no latency");
    }
}

#[test]
fn each_connection_has_its_own_time_to_stand() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let uri = format!("ldap://{}", listener.local_addr().expect("its number"));
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The server answers one connection after another. Together they take longer than the timeout of a request.
            thread::sleep(Duration::from_millis(75));
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00");
            std::mem::forget(stream);
        }
    });
    let search = ["ldap", "--uri", &uri, "--op", "search", "--dn", "cn=x", "--users", "200"];
    let bind = ["--bind-dn", "cn=x", "--bind-password", "y", "--timeout", "10"];
    let (_, report) =
        report(&[&search[..], &bind, &["--duration", "1", "--warm-up", "0"]].concat());
    let late = count(&report, "/failures_by_kind/no reply in time");
    assert_eq!((late, count(&report, "/requests")), (200, 200), "{report}");
}

#[test]
fn a_server_that_never_stops_talking_is_a_failure_in_bounded_memory() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let uri = format!("ldap://{}", listener.local_addr().expect("its number"));
    thread::spawn(move || {
        // An endless entry: its length is just below 64 MiB, and the server sends more.
        let mut flood = vec![0; 1 << 20];
        flood[..6].copy_from_slice(b"\x30\x84\x03\xff\xff\xf0");
        for mut stream in listener.incoming().flatten() {
            let flood = flood.clone();
            thread::spawn(move || while stream.write_all(&flood).is_ok() {});
        }
    });
    let bind = ["ldap", "--uri", &uri, "--dn", "cn=x", "--password", "y", "--users", "1"];
    let brief = ["--duration", "300ms", "--warm-up", "0", "--connections", "new"];
    let (code, report) = report(&[&bind[..], &brief].concat());
    assert_eq!(code, 1, "{report}");
    assert!(count(&report, "/failures") > 0, "{report}");
    assert_eq!(number(&report, "/latency_ms/max"), 0.0, "{report}");
}

#[test]
fn a_server_that_ends_in_the_run_is_told_though_failures_are_few() {
    let mut found = Vec::new();
    // A run that ends before the server shows nothing. The test then repeats it with a longer duration.
    for duration in ["3", "15", "75"] {
        let mut slapd = slapd(|_| {});
        let (uri, pid) = (slapd.uri(), slapd.process().pid().as_raw_nonzero().to_string());
        let bind = ["ldap", "--uri", &uri, "--dn", DN, "--password", PASSWORD];
        let how = ["--server-pid", &pid, "--json", "-", "--probe", "0", "--duration", duration];
        let rest = ["--warm-up", "0", "--users", "4"];
        let mut lab = lab(&[&bind[..], &how, &rest].concat());
        let mut child = lab.stdout(Stdio::piped()).spawn().expect("start");
        let mut is_over = || child.try_wait().expect("wait").is_some();
        wait_until(SOON, "binds", || completed(&slapd, "Bind") >= 1000 || is_over());
        drop(slapd);
        let (code, report) = read(&child.wait_with_output().expect("wait"));
        assert_eq!(code, 0, "{report}");
        found = warnings(&report).into_iter().map(str::to_owned).collect();
        if count(&report, "/failures") > 0 {
            break;
        }
    }
    for kind in ["unreachable", "server"] {
        assert!(found.iter().any(|one| one == kind), "{kind}: {found:?}");
    }
}

#[test]
fn a_server_that_stops_answering_shows_as_time_outs_of_full_length() {
    // A run that ends before the server freezes shows nothing. The test then repeats it with a longer duration.
    let report = ["1500ms", "10", "60"].iter().find_map(|duration| {
        let mut slapd = slapd(|_| {});
        let uri = slapd.uri();
        let bind = ["ldap", "--uri", &uri, "--dn", DN, "--password", PASSWORD, "--json", "-"];
        let how = ["--probe", "0", "--duration", duration, "--warm-up", "0"];
        let rest = ["--timeout", "500ms", "--users", "3"];
        let mut lab = lab(&[&bind[..], &how, &rest].concat());
        let mut child = lab.stdout(Stdio::piped()).spawn().expect("start");
        let mut is_over = || child.try_wait().expect("wait").is_some();
        wait_until(SOON, "binds", || completed(&slapd, "Bind") >= 100 || is_over());
        // Requests in flight get no reply.
        slapd.process().freeze();
        let (code, report) = read(&child.wait_with_output().expect("wait"));
        slapd.process().thaw();
        assert_eq!(code, 0, "{report}");
        (count(&report, "/failures") > 0).then_some(report)
    });
    let report = report.expect("a run with failures");
    assert!(count(&report, "/failures_by_kind/no reply in time") >= 3, "{report}");
    assert!(number(&report, "/latency_ms/max") >= 500.0, "{report}");
}

#[test]
fn ctrl_c_ends_a_run_with_a_report_of_what_ran() {
    let slapd = slapd(|_| {});
    let before = completed(&slapd, "Bind");
    let uri = slapd.uri();
    let bind =
        ["ldap", "--uri", &uri, "--dn", DN, "--password", PASSWORD, "--json", "-", "--probe", "0"];
    // The report contains all requests that the server counted only if there is no warm-up.
    let child = lab(&[&bind[..], &["--duration", "600", "--warm-up", "0"]].concat())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start");
    wait_until(SOON, "it begins", || completed(&slapd, "Bind") - before >= 1000);
    let before_signal = completed(&slapd, "Bind");
    kill_process(Pid::from_child(&child), Signal::INT).expect("interrupt it");
    let (code, report) = read(&child.wait_with_output().expect("wait"));
    assert_eq!(code, 130);
    assert_eq!(report["interrupted"], true);
    assert!(count(&report, "/requests") > 0 && before_signal > before, "{report}");
    assert!(number(&report, "/seconds") < 600.0);
}

#[test]
fn a_run_that_does_not_fit_its_ports_is_warned_about_first() {
    let slapd = slapd(|_| {});
    let uri = slapd.uri();
    let bind = ["ldap", "--uri", &uri, "--dn", DN, "--password", PASSWORD, "--connections", "new"];
    // The ports of one address do not suffice on any host.
    let much = ["--rate", "90000", "--duration", "200ms", "--timeout", "200ms", "--warm-up", "2"];
    let output = run(&[&bind[..], &much, &["--json", "-", "--probe", "0"]].concat());
    let (_, report) = read(&output);
    assert!(warnings(&report).contains(&"ports"), "{report}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--source"));
}

/// Returns the report of a run in its own network namespace, with a hundred ports that stay in use for a minute.
fn with_a_hundred_ports(slapd: &Slapd, options: &str) -> serde_json::Value {
    let lab = env!("CARGO_BIN_EXE_roster-lab");
    let bind = format!("{lab} ldap --uri ldap://127.0.0.1:3890 --dn '{DN}' --password {PASSWORD}");
    let script = format!(
        "ip link set lo up || exit
         echo 40000 40099 > /proc/sys/net/ipv4/ip_local_port_range || exit
         echo 0 > /proc/sys/net/ipv4/tcp_tw_reuse || exit
         slapd -d 0 -f {conf} -h ldap://127.0.0.1:3890 &
         tries=0
         until {bind} --users 1 --close reset --duration 10ms --warm-up 0 --quiet > {log} 2>&1; do
            [ $((tries += 1)) -lt 300 ] && sleep 0.1 || exit
         done
         {bind} --connections new --duration 1 --warm-up 0 --json - {options}
         kill $!; wait",
        conf = slapd.server_dir().join("slapd.conf").display(),
        log = slapd.server_dir().join("first").display(),
    );
    let mut command = std::process::Command::new("unshare");
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let command = command.args(["--map-root-user", "--net", "sh", "-c", &script]).env("PATH", path);
    read(&command.output().expect("start unshare")).1
}

#[test]
fn ports_that_run_out_are_told_and_each_cure_is_one() {
    let slapd = slapd_that_is_not_started();
    let report = with_a_hundred_ports(&slapd, "--users 1");
    let kind = "/failures_by_kind/connect: Cannot assign requested address (os error 99)";
    assert!(warnings(&report).contains(&"ports"), "{report}");
    assert_eq!(count(&report, kind), count(&report, "/failures"), "{report}");
    for cure in [
        "--rate 200 --source 127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4",
        "--rate 200 --close reset",
        "--rate 20",
    ] {
        let report = with_a_hundred_ports(&slapd, cure);
        assert_eq!(count(&report, "/failures"), 0, "{cure}: {report}");
        assert!(!warnings(&report).contains(&"ports"), "{cure}: {report}");
    }
    let report = with_a_hundred_ports(&slapd, "--rate 400 --timeout 1");
    assert!(number(&report, "/warnings/0/ratio") >= 4.0, "known before the run: {report}");
}
