//! Password storage schemes of a real 389-ds.

mod common;

use common::lab;
use roster_system_tests::{Ds389, Server};
use serde_json::Value;
use std::fs;
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

const ADMIN_PASSWORD: &str = "may do anything";
const BASE: &str = "dc=example,dc=com";

/// Two people, whose passwords are stored as SSHA.
fn server() -> Ds389 {
    let server = Ds389::serving(
        "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
         dn: ou=people,dc=example,dc=com\nobjectClass: organizationalUnit\nou: people\n\n\
         dn: ou=admins,dc=example,dc=com\nobjectClass: organizationalUnit\nou: admins\n\n",
    );
    server.set("cn=config", "passwordStorageScheme", &["SSHA"]);
    for who in ["uid=alice,ou=people", "uid=root,ou=admins"] {
        server.change(&format!(
            "dn: {who},{BASE}\nchangetype: add\nobjectClass: inetOrgPerson\ncn: x\nsn: x\n\
             userPassword: secret\n\n"
        ));
    }
    server
}

fn arguments<'a>(uri: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["schemes", uri, "--base", BASE, "--bind-password", ADMIN_PASSWORD][..], more].concat()
}

fn schemes(server: &Ds389, more: &[&str]) -> (Output, Value) {
    let json = server.folder().join("schemes.json");
    let uri = server.uri();
    let to = ["--json", json.to_str().expect("a plain path")];
    let output = lab(&arguments(&uri, &[more, &to].concat())).output().expect("start");
    let said = String::from_utf8_lossy(&output.stderr);
    let text = fs::read(&json).unwrap_or_else(|error| panic!("{error}: {said}"));
    (output, serde_json::from_slice(&text).expect("JSON"))
}

/// Values of cn=config.
fn config(server: &Ds389) -> String {
    let names = ["nsslapd-enable-upgrade-hash", "nsslapd-pwpolicy-local", "passwordStorageScheme"];
    String::from_utf8(server.search("cn=config", "(objectClass=*)", &names)).expect("text")
}

fn entries(server: &Ds389) -> String {
    String::from_utf8(server.search(BASE, "(objectClass=*)", &["dn"])).expect("text")
}

#[test]
fn each_scheme_is_measured_and_the_server_is_as_it_was() {
    let mut server = server();
    let pid = server.process().pid().as_raw_nonzero().to_string();
    let (before, entries_before) = (config(&server), entries(&server));
    let brief = ["--duration", "500ms", "--identities", "40", "--server-pid", &pid];
    let (output, report) = schemes(&server, &brief);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((config(&server), entries(&server)), (before, entries_before));
    let all = report["schemes"].as_array().expect("a list");
    let of = |name: &str| {
        all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
    };
    for (name, rounds) in [
        ("CLEAR", None),
        ("SSHA", None),
        ("SSHA512", None),
        ("CRYPT-SHA512", Some(5000)),
        ("PBKDF2-SHA256", Some(10_000)),
        ("PBKDF2-SHA512", Some(10_000)),
    ] {
        let one = of(name);
        assert_eq!(one["stored"]["rounds"].as_u64(), rounds, "{one}");
        assert!(one["rate"].as_f64().expect("a rate") > 1.0, "{one}");
        assert!(one["server_cpu_ms"].is_number(), "{one}");
    }
    let rounds = of("PBKDF2_SHA256")["stored"]["rounds"].as_u64().expect("rounds");
    assert!(rounds >= 1000, "{rounds}");
    // Work shows in what it costs, and the ranking is by strength.
    let cpu = |name| of(name)["server_cpu_ms"].as_f64().expect("a figure");
    assert!(cpu("PBKDF2-SHA512") > 5.0 * cpu("SSHA"), "{report}");
    let place = |name| all.iter().position(|one| one["name"] == name);
    assert!(place("PBKDF2-SHA512") < place("SSHA") && place("SSHA") < place("CLEAR"), "{report}");
    let advice = report["advice"].as_array().expect("a list");
    let fit =
        |one: &Value| one["scheme"].as_str().is_some_and(|name| !["SSHA", "CLEAR"].contains(&name));
    assert!(advice.len() == 2 && advice.iter().all(fit), "{report}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("For administrators: ") && text.contains("Stored now: "), "{text}");
    assert_eq!(report["stored"]["SSHA"], 2, "{report}");
}

#[test]
fn a_scheme_is_applied_to_a_subtree_or_everywhere_and_old_hashes_are_told() {
    let server = server();
    let admins = format!("ou=admins,{BASE}");
    let there = ["--no-measure", "--apply", "PBKDF2-SHA512", "--subtree", &admins];
    // Twice is as once.
    for _ in 0..2 {
        let (output, report) = schemes(&server, &there);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(report["old"], serde_json::json!([format!("uid=root,{admins}")]));
        assert_eq!(report["default_scheme"], "SSHA");
    }
    for who in ["uid=alice,ou=people", "uid=root,ou=admins"] {
        server.change(&format!(
            "dn: {who},{BASE}\nchangetype: modify\nreplace: userPassword\nuserPassword: fresh\n\n"
        ));
    }
    let (_, report) = schemes(&server, &["--no-measure", "--whose-not", "pbkdf2-sha512"]);
    // The server of the tests has a reader.
    let old = [format!("cn=reader,{BASE}"), format!("uid=alice,ou=people,{BASE}")];
    assert_eq!(report["old"], serde_json::json!(old), "{report}");
    let stored = serde_json::json!({"CLEAR": 1, "PBKDF2-SHA512": 1, "SSHA": 1});
    assert_eq!(report["stored"], stored);
    let (_, report) = schemes(&server, &["--no-measure", "--apply", "SSHA512"]);
    assert_eq!(report["default_scheme"], "SSHA512");
}

#[test]
fn ctrl_c_leaves_the_server_as_it_was_and_mistakes_are_told() {
    let server = server();
    let (before, entries_before) = (config(&server), entries(&server));
    let uri = server.uri();
    let mut command = lab(&arguments(&uri, &["--duration", "2", "--identities", "20"]));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    thread::sleep(Duration::from_secs(3));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signal");
    let output = child.wait_with_output().expect("wait");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((config(&server), entries(&server)), (before, entries_before));
    for (more, why) in [
        (&["--no-measure", "--apply", "ROT13"][..], "ROT13: is none of the schemes"),
        (&["--no-measure", "--bind-dn", "cn=nobody"], "LDAP "),
    ] {
        let output = lab(&arguments(&uri, more)).output().expect("start");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{why}: {said}");
    }
}
