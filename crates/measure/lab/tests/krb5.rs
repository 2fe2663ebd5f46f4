// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `roster-lab krb5` with a real krb5kdc: reports equal its log.

mod common;

use common::{count, has_code, lab, number, read, report, run, warnings};
use roster_lab::ber;
use roster_messages::table::lab as messages;
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::Kdc;
use roster_system_tests::wait_until;
use std::fs;
use std::net::UdpSocket;
use std::process::Stdio;
use std::thread;

const PRINCIPAL: &str = "u{0..19}";

/// Starts a KDC with `u0` to `u19`, which need pre-authentication, `p0` to `p19`, which do not, and `host/h0` to
/// `host/h4`.
fn kdc() -> Kdc {
    let mut commands = Vec::new();
    for number in 0..20 {
        commands.push(format!("addprinc +requires_preauth -pw secret u{number}"));
        commands.push(format!("addprinc -requires_preauth -pw secret p{number}"));
    }
    commands.extend((0..5).map(|number| format!("addprinc -randkey host/h{number}")));
    Kdc::start(&commands, "")
}

/// Returns the number of successful requests of a kind in the KDC's log.
fn issued(kdc: &Kdc, kind: &str) -> u64 {
    let log = kdc.log();
    log.lines().filter(|line| line.contains(kind) && line.contains(": ISSUE: ")).count() as u64
}

fn arguments<'a>(kdc: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let brief = ["--duration", "500ms", "--warm-up", "100ms", "--users", "3"];
    [&["krb5", "--kdc", kdc, "--realm", Kdc::REALM][..], more, &brief].concat()
}

/// Runs roster-lab and compares its report with the KDC's log, without the `before_the_run` requests of the
/// preparation.
fn counted(kdc: &Kdc, kind: &str, before_the_run: u64, more: &[&str]) -> serde_json::Value {
    let before = issued(kdc, kind);
    let address = kdc.address();
    let (code, report) = report(&arguments(&address, more));
    assert_eq!((code, count(&report, "/failures")), (0, 0), "{more:?}: {report}");
    assert!(count(&report, "/requests") > 0, "{more:?}: {report}");
    let reported = count(&report, "/requests") + count(&report, "/warm_up_requests");
    assert_eq!(reported, issued(kdc, kind) - before - before_the_run, "{more:?}: {report}");
    report
}

#[test]
fn log_ins_and_tickets_are_as_many_as_the_kdc_writes_down() {
    let kdc = kdc();
    let known = ["--principal", PRINCIPAL, "--password", "secret"];
    let plain = ["--principal", "p{0..19}", "--no-preauth"];
    let service = ["--op", "tgs", "--service", "host/h{0..4}"];
    for how in [&["--protocol", "udp"][..], &["--protocol", "tcp"], &["--connections", "new"]] {
        counted(&kdc, "AS_REQ", 0, &[&plain[..], how].concat());
        counted(&kdc, "AS_REQ", 0, &[&known[..], how].concat());
        counted(&kdc, "TGS_REQ", 0, &[&known[..], &service, how].concat());
    }
    // The KDC logs the logins that precede a run for tickets with another kind.
    let as_before = issued(&kdc, "AS_REQ");
    counted(&kdc, "TGS_REQ", 0, &[&known[..], &service].concat());
    assert_eq!(issued(&kdc, "AS_REQ") - as_before, 20, "one for each identity");
    let log = kdc.log();
    for who in ["u0@LAB.TEST for host/h0@LAB.TEST", "u19@LAB.TEST for host/h4@LAB.TEST"] {
        assert!(log.contains(who), "{who}");
    }
}

#[test]
fn each_way_to_encrypt_serves_log_ins_and_tickets() {
    let kinds = [
        "aes128-cts-hmac-sha1-96",
        "aes256-cts-hmac-sha1-96",
        "aes128-cts-hmac-sha256-128",
        "aes256-cts-hmac-sha384-192",
    ];
    let mut commands = Vec::new();
    for (number, kind) in kinds.iter().enumerate() {
        commands.push(format!("addprinc +requires_preauth -e {kind}:normal -pw secret u{number}"));
    }
    let all = kinds.map(|kind| format!("{kind}:normal")).join(" ");
    commands.push("modprinc -maxlife 1hour krbtgt/LAB.TEST".to_owned());
    let kdc = Kdc::start(&commands, &format!("supported_enctypes = {all}"));
    for (number, kind) in kinds.iter().enumerate() {
        let name = format!("u{number}");
        let who = ["--principal", &name, "--password", "secret", "--enctype", kind];
        counted(&kdc, "AS_REQ", 0, &who);
        counted(&kdc, "TGS_REQ", 0, &[&who[..], &["--op", "tgs"]].concat());
        let log = kdc.log();
        assert!(log.contains(&format!("etypes {{rep={kind}({})", 17 + [0, 1, 2, 3][number])));
    }
}

#[test]
fn passwords_may_differ_and_be_salted_in_ways_of_their_own() {
    let mut commands: Vec<String> = (0..4)
        .map(|number| format!("addprinc +requires_preauth -pw pw{number} a{number}"))
        .collect();
    commands.push("addprinc +requires_preauth -pw pw4 before".to_owned());
    // The salt still contains the old name.
    commands.push("renprinc -force before a4".to_owned());
    let kdc = Kdc::start(&commands, "");
    counted(&kdc, "AS_REQ", 0, &["--principal", "a{0..4}", "--password", "pw{0..4}"]);
}

#[test]
fn refusals_are_failures_with_the_kdcs_code() {
    let kdc = kdc();
    let address = kdc.address();
    for (more, kind) in [
        (
            &["--principal", "u{0..19}", "--password", "wrong{0..19}"][..],
            "24 KDC_ERR_PREAUTH_FAILED",
        ),
        (&["--principal", "u{0..19}", "--no-preauth"], "25 KDC_ERR_PREAUTH_REQUIRED"),
        (&["--principal", "nobody{n}", "--no-preauth"], "6 KDC_ERR_C_PRINCIPAL_UNKNOWN"),
        (
            &["--principal", "u0", "--password", "secret", "--op", "tgs", "--service", "x{n}"],
            "7 KDC_ERR_S_PRINCIPAL_UNKNOWN",
        ),
    ] {
        let (code, report) = report(&arguments(&address, more));
        let failures = count(&report, "/failures");
        assert!(code == 1 && failures > 0, "{report}");
        assert_eq!(
            count(&report, &format!("/failures_by_kind/Kerberos {kind}")),
            failures,
            "{report}"
        );
        assert!(!report.to_string().contains("secret"), "passwords stay out of reports");
    }
}

#[test]
fn what_cannot_be_prepared_is_said_before_the_run() {
    let kdc = kdc();
    let address = kdc.address();
    let nobody = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let silent = nobody.local_addr().expect("its number").to_string();
    let tgs = ["--op", "tgs"];
    for (to, more, why, message) in [
        (
            &address,
            &["--principal", "nobody", "--password", "x"][..],
            "nobody@LAB.TEST: KDC: Kerberos 6",
            &messages::KERBEROS_ERROR,
        ),
        (
            &address,
            &["--principal", "u3", "--password", "no", tgs[0], tgs[1]],
            "u3@LAB.TEST: KDC: Kerberos 24",
            &messages::KERBEROS_ERROR,
        ),
        (
            &address,
            &["--principal", "p3", "--password", "no", tgs[0], tgs[1]],
            "p3@LAB.TEST: KDC: Kerberos 24",
            &messages::KERBEROS_ERROR,
        ),
        (
            &address,
            &["--principal", "u{n}", "--password", "x"],
            "more than 100000",
            &messages::TOO_MANY_IDENTITIES,
        ),
        (
            &silent,
            &["--principal", "u0", "--password", "x"],
            "u0@LAB.TEST: 127.0.0.1",
            &messages::KDC_UNREACHABLE,
        ),
    ] {
        let output = run(&arguments(to, more));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{why}: {said}");
        assert!(has_code(&said, message), "{said}");
    }
}

#[test]
fn a_cache_of_answers_serves_the_same_bytes_and_no_others() {
    let kdc = kdc();
    let plain = ["--principal", "p{0..19}", "--no-preauth"];
    let before = issued(&kdc, "AS_REQ");
    let address = kdc.address();
    let (_, same) = report(&arguments(&address, &[&plain[..], &["--same-bytes"]].concat()));
    let made = issued(&kdc, "AS_REQ") - before;
    assert_eq!(made, 20, "each is worked out once");
    assert_eq!(count(&same, "/failures"), 0, "{same}");
    assert!(count(&same, "/requests") > 20, "{same}");
    counted(&kdc, "AS_REQ", 0, &plain);
}

#[test]
fn a_kdc_that_stops_answering_shows_as_time_outs() {
    let mut kdc = kdc();
    let address = kdc.address();
    let plain = ["krb5", "--kdc", &address, "--realm", Kdc::REALM, "--principal", "p{0..19}"];
    let how = ["--no-preauth", "--timeout", "300ms", "--json", "-", "--users", "3", "--probe", "0"];
    let long = ["--duration", "5s", "--warm-up", "0"];
    let before = issued(&kdc, "AS_REQ");
    let mut lab = lab(&[&plain[..], &how, &long].concat());
    let child = lab.stdout(Stdio::piped()).spawn().expect("start");
    wait_until(SOON, "the KDC answers", || issued(&kdc, "AS_REQ") > before);
    kdc.process().freeze();
    let (_, report) = read(&child.wait_with_output().expect("wait"));
    kdc.process().thaw();
    assert!(count(&report, "/failures_by_kind/no reply in time") >= 3, "{report}");
    assert!(number(&report, "/latency_ms/max") >= 300.0, "{report}");
}

#[test]
fn answers_that_are_none_are_failures_and_a_plan_loads_a_kdc() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("its number").to_string();
    thread::spawn(move || {
        let mut request = [0; 2048];
        while let Ok((_, from)) = server.recv_from(&mut request) {
            let _ = server.send_to(b"HTTP/1.1 400 Bad Request", from);
        }
    });
    let folder = tempfile::tempdir().expect("make a directory");
    let plan = folder.path().join("plan.toml");
    let text = format!(
        "[krb5]\nkdc = \"{address}\"\nrealm = \"LAB.TEST\"\nprincipal = \"p{{0..9}}\"\n\
         no-preauth = true\nduration = 0.3\nwarm-up = 0\n"
    );
    fs::write(&plan, text).expect("write the plan");
    let (code, report) = report(&["run", plan.to_str().expect("a plain path")]);
    let failures = count(&report, "/failures");
    assert!(code == 1 && failures > 0, "{report}");
    assert!(warnings(&report).contains(&"failures"));
    let kind = report["failures_by_kind"].as_object().expect("kinds").keys().next().cloned();
    let kind = kind.expect("a kind");
    assert_eq!(report["failure_codes"][&kind], messages::REPLY_MALFORMED.code, "{report}");
}

/// Returns an element of DER.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    ber::primitive(tag, content, &mut out);
    out
}

#[test]
fn krb5_unusable_salt_parameters_have_codes() {
    // The KDC requests pre-authentication, and announces a key of type 18 with these iterations.
    for (iterations, kinds, message) in [
        ([0, 0, 0, 0], "aes256-cts-hmac-sha1-96", &messages::KDC_ITERATIONS),
        ([0x7f, 0, 0, 0], "aes256-cts-hmac-sha1-96", &messages::KDC_ITERATIONS),
        ([0, 0, 0x10, 0], "aes128-cts-hmac-sha1-96", &messages::KDC_NO_KEY),
    ] {
        let number = |number| element(2, &[number]);
        let sequence = |fields: &[Vec<u8>]| element(0x30, &fields.concat());
        let octets = element(0xa2, &element(4, &iterations));
        let parameters = sequence(&[sequence(&[element(0xa0, &number(18)), octets])]);
        let data = [element(0xa1, &number(19)), element(0xa2, &element(4, &parameters))];
        let list = sequence(&[sequence(&data)]);
        let error = [element(0xa6, &number(25)), element(0xac, &element(4, &list))];
        let reply = element(0x7e, &sequence(&error));
        let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = server.local_addr().expect("its number").to_string();
        thread::spawn(move || {
            let mut request = [0; 2048];
            while let Ok((_, from)) = server.recv_from(&mut request) {
                let _ = server.send_to(&reply, from);
            }
        });
        let who = ["--principal", "u0", "--password", "x", "--enctype", kinds];
        let output = run(&arguments(&address, &who));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && has_code(&said, message), "{message}: {said}");
    }
}
