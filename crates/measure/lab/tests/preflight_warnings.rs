// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the pre-run checks and of the warnings about clocks and the generator.

mod common;

use common::{
    DN, PASSWORD, compared, count, has_code, lab, read, report, run, slapd, warnings, whole_report,
};
use roster_messages::Message;
use roster_messages::table::lab as messages;
use roster_system_tests::servers::Kdc;
use roster_system_tests::wait::{SOON, wait_until};
use roster_system_tests::{DirectoryServer, Ds389, c_program_with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::io::{self, Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Lock of the tests that compare times.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

const ADMIN_PASSWORD: &str = "may do anything";

/// Starts a 389-ds that stores passwords with the given scheme.
fn ds389(scheme: &str) -> Ds389 {
    let server = Ds389::serving(
        "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
         dn: ou=people,dc=example,dc=com\nobjectClass: organizationalUnit\nou: people\n\n",
    );
    server.set("cn=config", "passwordStorageScheme", &[scheme]);
    let mut ldif = String::new();
    for number in 0..100 {
        let _ = write!(
            ldif,
            "dn: uid=u{number},ou=people,dc=example,dc=com\nchangetype: add\n\
             objectClass: inetOrgPerson\nuid: u{number}\ncn: u{number}\nsn: u{number}\n\
             userPassword: {PASSWORD}\n\n"
        );
    }
    server.change(&ldif);
    server
}

/// Checks binds to a server.
fn check(uri: &str, more: &[&str]) -> (i32, Value) {
    whole_report(
        &[&["check", "ldap", "--uri", uri, "--dn", DN, "--password", PASSWORD], more].concat(),
    )
}

/// Repeats a check with longer comparisons until the report satisfies `shows`, because a busy machine makes few
/// requests. Returns the last report.
fn check_until(load: &str, what: &[&str], shows: impl Fn(&Value) -> bool) -> (i32, Value) {
    let check =
        |probe| read(&run(&[&["check", load, "--json", "-", "--probe", probe], what].concat()));
    let longer = ["5", "30"].iter();
    longer.fold(check("1"), |last, probe| if shows(&last.1) { last } else { check(probe) })
}

/// Returns the text of the warning with this code.
fn said<'r>(report: &'r Value, message: &Message) -> &'r str {
    let warnings = report["warnings"].as_array().expect("a list");
    let found = warnings.iter().find(|warning| warning["code"] == message.code);
    let text = found.and_then(|warning| warning["text"].as_str());
    text.unwrap_or_else(|| panic!("{message}: {report}"))
}

#[test]
fn results_that_389ds_keeps_of_hashed_passwords_are_told() {
    let _alone = ALONE.lock();
    let server = ds389("PBKDF2_SHA256");
    let uri = server.uri();
    let what = ["--uri", &uri, "--dn", DN, "--password", PASSWORD];
    let told = |report: &Value| warnings(report).contains(&"cache");
    let (code, report) = check_until("ldap", &what, told);
    assert_eq!(code, 3, "{report}");
    assert!(compared(&report, "cache").expect("compared") > 3.0, "{report}");
    let text = said(&report, &messages::CACHE_FOUND);
    assert!(text.contains("This run has 100 identities in turn"), "{report}");
    // A run reports the same warning, and its figures are of all identities.
    let what = ["ldap", "--uri", &server.uri(), "--dn", DN, "--password", PASSWORD];
    let long = ["--duration", "1", "--probe", "5"];
    let (code, report) = whole_report(&[&what[..], &long].concat());
    assert_eq!((code, count(&report, "/failures")), (0, 0), "{report}");
    assert!(warnings(&report).contains(&"cache") && count(&report, "/probe_requests") > 0);
    drop(server);
    // 389-ds does not cache results of this scheme.
    let server = ds389("SSHA512");
    let (_, report) = check(&server.uri(), &[]);
    assert!(!warnings(&report).contains(&"cache"), "{report}");
}

/// The cost of an identity does not depend on its repetition.
#[test]
fn identities_that_differ_in_cost_are_not_taken_for_a_cache() {
    let _alone = ALONE.lock();
    for dear in ["case u{0..3} in u2) ;; *) sleep 0.02;; esac", "[ u{0..3} != u2 ] || sleep 0.02"] {
        let enough = |report: &Value| compared(report, "cache").is_some();
        let (_, report) = check_until("command", &["--", "sh", "-c", dear], enough);
        assert!(compared(&report, "cache").is_some(), "{report}");
        assert!(!warnings(&report).contains(&"cache"), "{report}");
    }
}

#[test]
fn passwords_that_are_hashed_anew_by_a_bind_are_told() {
    let _alone = ALONE.lock();
    let server = ds389("SSHA");
    server.set("cn=config", "passwordStorageScheme", &["PBKDF2-SHA512"]);
    let admin = server.admin_dn();
    let bind = ["--bind-dn", &admin, "--bind-password", ADMIN_PASSWORD];
    server.set("cn=config", "nsslapd-enable-upgrade-hash", &["off"]);
    let (_, report) = check(&server.uri(), &bind);
    assert_eq!(compared(&report, "upgrade"), Some(0.0), "{report}");
    assert!(!warnings(&report).contains(&"upgrade"), "{report}");
    server.set("cn=config", "nsslapd-enable-upgrade-hash", &["on"]);
    // A check with few identities does not change the other entries.
    let few = DN.replace("99", "7");
    let what = ["check", "ldap", "--uri", &server.uri(), "--dn", &few, "--password", PASSWORD];
    let (code, report) = whole_report(&[&what[..], &bind].concat());
    assert_eq!((code, compared(&report, "upgrade")), (3, Some(1.0)), "{report}");
    let (code, report) = check(&server.uri(), &bind);
    assert!(code == 3 && compared(&report, "upgrade") >= Some(0.5), "{report}");
    let text = said(&report, &messages::HASH_UPGRADED);
    assert!(text.contains("from SSHA to PBKDF2-SHA512"), "{report}");
    // Without permission to read the entries the comparison has no result.
    let (_, report) = check(&server.uri(), &[]);
    assert_eq!(compared(&report, "upgrade"), None, "{report}");
}

/// Starts a relay that delays every sixtieth request, and returns its address. 389-ds delays a request by 250 ms if it
/// overlooks its connection. The relay's delay exceeds those of a busy machine.
fn stalling(server: u16) -> String {
    const HELD: Duration = Duration::from_secs(2);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number").to_string();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut onward = TcpStream::connect(("127.0.0.1", server)).expect("reach the server");
            let [mut replies, mut to_client] =
                [&onward, &client].map(|one| one.try_clone().expect("share it"));
            thread::spawn(move || io::copy(&mut replies, &mut to_client));
            thread::spawn(move || {
                let mut request = [0; 4096];
                for number in 1.. {
                    let Ok(length @ 1..) = client.read(&mut request) else { break };
                    if number % 60 == 0 {
                        thread::sleep(HELD);
                    }
                    if onward.write_all(&request[..length]).is_err() {
                        break;
                    }
                }
                let _ = onward.shutdown(Shutdown::Both);
            });
        }
    });
    format!("ldap://{address}")
}

#[test]
fn check_requests_held_up_reports_stalls() {
    let _alone = ALONE.lock();
    let slapd = slapd(|_| {});
    let uri = stalling(slapd.port());
    let what = ["--uri", &uri, "--dn", DN, "--password", PASSWORD];
    let (code, report) = check_until("ldap", &what, |report| warnings(report).contains(&"stall"));
    assert_eq!(code, 3, "{report}");
    let text = said(&report, &messages::STALLS_FOUND);
    assert!(text.contains("stalls at low load: one user waits"), "{report}");
    assert!(compared(&report, "stall").expect("compared") > 100.0, "{report}");
}

#[test]
fn nothing_is_told_of_a_server_that_keeps_nothing() {
    let _alone = ALONE.lock();
    let slapd = slapd(|_| {});
    let admin = slapd.admin_dn();
    let bind = ["--bind-dn", &admin, "--bind-password", ADMIN_PASSWORD];
    let (code, report) = check(&slapd.uri(), &bind);
    assert_eq!((code, warnings(&report)), (0, vec![]), "{report}");
    assert_eq!(compared(&report, "upgrade"), Some(0.0), "{report}");
    for kind in ["cache", "stall"] {
        assert!(compared(&report, kind).is_some(), "{kind}: {report}");
    }
}

/// Starts a relay to a KDC that delays requests with new bytes, and returns its address. The look-aside cache of a real
/// KDC saves less time than a busy machine adds. krb5.rs tests that cache.
fn slow_for_new_bytes(kdc: &Kdc) -> String {
    const NEW: Duration = Duration::from_millis(500);
    let kdc = kdc.address();
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a port"));
    let address = socket.local_addr().expect("its number").to_string();
    thread::spawn(move || {
        let (mut seen, mut request) = (HashSet::new(), [0; 4096]);
        while let Ok((length, from)) = socket.recv_from(&mut request) {
            let request = request[..length].to_vec();
            let is_new = seen.insert(request.clone());
            let (socket, kdc) = (Arc::clone(&socket), kdc.clone());
            thread::spawn(move || {
                if is_new {
                    thread::sleep(NEW);
                }
                let onward = UdpSocket::bind("127.0.0.1:0").expect("a port");
                let mut reply = [0; 4096];
                onward.send_to(&request, &kdc).expect("send it on");
                let length = onward.recv(&mut reply).expect("the KDC replies");
                let _ = socket.send_to(&reply[..length], from);
            });
        }
    });
    address
}

#[test]
fn check_kdc_quick_for_known_bytes_reports_cache() {
    let _alone = ALONE.lock();
    let principals = (0..20).map(|n| format!("addprinc -requires_preauth -pw secret p{n}"));
    let kdc = Kdc::start(&principals.collect::<Vec<_>>(), "");
    let address = slow_for_new_bytes(&kdc);
    let who = ["krb5", "--kdc", &address, "--realm", Kdc::REALM, "--no-preauth"];
    let what = [&who[..], &["--principal", "p{0..19}"]].concat();
    let told = |report: &Value| warnings(report).contains(&"look-aside");
    let (code, report) = check_until("krb5", &what[1..], told);
    assert_eq!((code, warnings(&report)), (3, vec!["look-aside"]), "{report}");
    assert!(compared(&report, "look-aside").expect("compared") > 2.0, "{report}");
    let text = said(&report, &messages::LOOKASIDE_FOUND);
    assert!(text.contains("so its figures are of real work"), "{report}");
    let same = [&what[..], &["--same-bytes", "--duration", "500ms", "--probe", "5"]].concat();
    let (_, report) = whole_report(&same);
    let text = said(&report, &messages::LOOKASIDE_FOUND);
    assert!(text.contains("its figures are of that cache"), "{report}");
}

/// Gives a program a wall clock that differs by the seconds in a file.
fn with_clock(command: &mut std::process::Command, file: &std::path::Path) {
    let library = c_program_with("preload_clock", "clock.so", &["-shared", "-fPIC"]);
    command.env("LD_PRELOAD", library).env("ROSTER_TEST_CLOCK", file);
}

#[test]
fn a_clock_that_is_not_the_kdcs_is_told() {
    let kdc = Kdc::start(&["addprinc +requires_preauth -pw secret u".to_owned()], "");
    let folder = tempfile::tempdir().expect("make a directory");
    let file = folder.path().join("clock");
    fs::write(&file, 3600_i64.to_ne_bytes()).expect("move the clock");
    let address = kdc.address();
    let who = ["krb5", "--kdc", &address, "--realm", Kdc::REALM, "--principal", "u"];
    let how = ["--password", "secret", "--duration", "300ms", "--json", "-", "--probe", "0"];
    let mut lab = lab(&[&who[..], &how].concat());
    with_clock(&mut lab, &file);
    let (code, report) = read(&lab.output().expect("start"));
    assert_eq!(code, 1, "{report}");
    said(&report, &messages::KDC_CLOCK_SKEW);
}

#[test]
fn a_clock_that_is_set_during_a_run_is_told() {
    let folder = tempfile::tempdir().expect("make a directory");
    let file = folder.path().join("clock");
    fs::write(&file, 0_i64.to_ne_bytes()).expect("write the clock");
    let started = folder.path().join("started");
    let start = started.to_str().expect("a plain path");
    let how = ["--duration", "2", "--warm-up", "0", "--probe", "0", "--json", "-", "--users", "1"];
    let mut lab = lab(&[&["command"], &how[..], &["--", "touch", start]].concat());
    with_clock(&mut lab, &file);
    let child = lab.stdout(Stdio::piped()).spawn().expect("start");
    wait_until(SOON, "the run begins", || started.exists());
    // The program has mapped the file, so the test overwrites it in place.
    let clock = fs::File::options().write(true).open(&file).expect("open the clock");
    std::os::unix::fs::FileExt::write_all_at(&clock, &(-60_i64).to_ne_bytes(), 0).expect("set it");
    let (_, report) = read(&child.wait_with_output().expect("wait"));
    let text = said(&report, &messages::CLOCK_SET);
    assert!(text.contains("clock was set by 6"), "{report}");
}

#[test]
fn a_clock_that_is_slow_to_read_is_told() {
    let library = c_program_with("preload_slow_clock", "slow_clock.so", &["-shared", "-fPIC"]);
    let how = ["command", "--duration", "300ms", "--probe", "0", "--json", "-", "--", "true"];
    let (_, plain) = read(&run(&how));
    assert!(!warnings(&plain).contains(&"clock"), "{plain}");
    let mut lab = lab(&how);
    let (_, report) = read(&lab.env("LD_PRELOAD", library).output().expect("start"));
    said(&report, &messages::CLOCK_SLOW);
}

#[test]
fn a_generator_at_its_limit_is_told() {
    let _alone = ALONE.lock();
    let slapd = slapd(|_| {});
    // The rate exceeds a thread's limit, so late requests are the generator's fault.
    let uri = slapd.uri();
    let what = ["ldap", "--uri", &uri, "--op", "search", "--dn", "", "--rate", "2000000"];
    let (_, report) = report(&[&what[..], &["--duration", "1", "--users", "500"]].concat());
    let found = warnings(&report);
    assert!(found.contains(&"generator") || found.contains(&"users"), "{report}");
}

#[test]
fn comparisons_are_counted_apart_and_exceed_no_rate() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("make a directory");
    let log = folder.path().join("log");
    let script = format!("echo $0 >>{}", log.display());
    let words = ["--", "sh", "-c", &script, "u{0..9}"];
    let how = ["command", "--rate", "50", "--duration", "1", "--warm-up", "200ms", "--json", "-"];
    let before = Instant::now();
    let (_, report) = read(&run(&[&how[..], &words].concat()));
    let took = before.elapsed().as_secs_f64();
    let ran = fs::read_to_string(&log).expect("the log");
    let counts = ["/requests", "/warm_up_requests", "/probe_requests"].map(|at| count(&report, at));
    assert_eq!(counts.iter().sum::<u64>(), ran.lines().count() as u64, "{report}");
    assert!(counts[2] > 0 && counts.iter().sum::<u64>() as f64 <= took * 50.0 + 10.0, "{report}");
    assert!(compared(&report, "cache").is_some(), "{report}");
}

#[test]
fn a_check_says_that_nothing_was_found() {
    // A busy machine may delay commands like a server that stalls. The test then repeats the check.
    let check = |probe| run(&["check", "command", "--probe", probe, "--", "true"]);
    let longer = ["1", "5"].iter();
    let output = longer.fold(check("200ms"), |last, probe| match last.status.success() {
        true => last,
        false => check(probe),
    });
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("no problems found."), "{said}");
    for (nonsense, message) in [
        (["--probe", "0"], &messages::CHECK_DISABLED),
        (["--html", "page.html"], &messages::CHECK_WITHOUT_RUN),
    ] {
        let output = run(&[&["check", "command"], &nonsense[..], &["--", "true"]].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && has_code(&error, message), "{error}");
    }
}

#[test]
fn check_interrupted_comparisons_end() {
    let folder = tempfile::tempdir().expect("make a directory");
    let begun = folder.path().join("begun");
    let begun_path = begun.to_str().expect("a plain path");
    // The comparisons would take a day without the signal.
    let check = ["check", "command", "--probe", "86400", "--json", "-", "--", "touch", begun_path];
    let child = lab(&check).stdout(Stdio::piped()).spawn().expect("start");
    wait_until(SOON, "the comparisons begin", || begun.exists());
    kill_process(Pid::from_child(&child), Signal::INT).expect("interrupt it");
    let (code, report) = read(&child.wait_with_output().expect("wait"));
    assert_eq!((code, &report["interrupted"]), (130, &Value::Bool(true)), "{report}");
}
