// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `roster-lab schemes` with a real 389-ds, and with a scripted server for its errors.

mod common;

use common::{has_code, lab, report};
use roster_lab::ber;
use roster_messages::table::lab as messages;
use roster_system_tests::{DirectoryServer, Ds389, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

const ADMIN_PASSWORD: &str = "may do anything";
const BASE: &str = "dc=example,dc=com";

/// Starts a server with two users. It stores their passwords with SSHA.
fn server() -> Ds389 {
    let server = Ds389::as_delivered(
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
    let json = server.server_dir().join("schemes.json");
    let uri = server.uri();
    let to = ["--json", json.to_str().expect("a plain path")];
    let output = lab(&arguments(&uri, &[more, &to].concat())).output().expect("start");
    let said = String::from_utf8_lossy(&output.stderr);
    let text = fs::read(&json).unwrap_or_else(|error| panic!("{error}: {said}"));
    (output, serde_json::from_slice(&text).expect("JSON"))
}

/// Returns the attributes of cn=config that a run changes.
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
        assert!(one["rate"].as_f64().expect("a rate") > 0.0, "{one}");
        assert!(one["server_cpu_ms"].is_number(), "{one}");
    }
    let rounds = of("PBKDF2_SHA256")["stored"]["rounds"].as_u64().expect("rounds");
    assert!(rounds >= 1000, "{rounds}");
    // A scheme with more rounds costs more time, and the order is by strength.
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
fn schemes_apply_to_subtree_or_whole_tree() {
    let server = server();
    let admins = format!("ou=admins,{BASE}");
    let there = ["--no-measure", "--apply", "PBKDF2-SHA512", "--subtree", &admins];
    // A second run changes nothing.
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
    let (_, report) = schemes(&server, &["--no-measure", "--not-using", "pbkdf2-sha512"]);
    // The server of the tests also has a reader.
    let old = [format!("cn=reader,{BASE}"), format!("uid=alice,ou=people,{BASE}")];
    assert_eq!(report["old"], serde_json::json!(old), "{report}");
    let stored = serde_json::json!({"CLEAR": 1, "PBKDF2-SHA512": 1, "SSHA": 1});
    assert_eq!(report["stored"], stored);
    let (_, report) = schemes(&server, &["--no-measure", "--apply", "SSHA512"]);
    assert_eq!(report["default_scheme"], "SSHA512");
}

/// Returns the users of a run that have a password.
fn users(server: &Ds389) -> String {
    let found = server.search(BASE, "(&(cn=roster-lab)(userPassword=*))", &["dn"]);
    String::from_utf8(found).expect("text")
}

/// Starts a measurement, and waits until it has begun.
fn begun(server: &Ds389, more: &[&str]) -> Child {
    let uri = server.uri();
    let mut command = lab(&arguments(&uri, more));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    wait_until(Duration::from_secs(60), "users of a run with their passwords", || {
        users(server).contains("uid=u19,") && config(server).contains("upgrade-hash: off")
    });
    child
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("signal");
}

const SLOW: [&str; 4] = ["--duration", "2", "--identities", "20"];

#[test]
fn whatever_ends_it_leaves_the_server_as_it_was_and_mistakes_are_told() {
    let server = server();
    let (before, entries_before) = (config(&server), entries(&server));
    // The signals are those of Ctrl-C, of repeated signals, and of a closed terminal.
    for signals in [&[Signal::INT][..], &[Signal::INT, Signal::TERM, Signal::INT], &[Signal::HUP]] {
        let child = begun(&server, &SLOW);
        for signal in signals {
            send(&child, *signal);
            thread::sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output().expect("wait");
        assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!((config(&server), entries(&server)), (before.clone(), entries_before.clone()));
        assert_eq!(record(&server), "");
    }
    let uri = server.uri();
    for (more, message) in [
        (&["--no-measure", "--apply", "ROT13"][..], &messages::SCHEME_UNKNOWN),
        (&["--no-measure", "--bind-dn", "cn=nobody"], &messages::LDAP_RESULT),
    ] {
        let output = lab(&arguments(&uri, more)).output().expect("start");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && has_code(&said, message), "{said}");
    }
}

/// Returns the record of a run on the server.
fn record(server: &Ds389) -> String {
    let found = server.search("cn=config", "(cn=roster-lab schemes)", &["description"]);
    String::from_utf8(found).expect("text")
}

#[test]
fn lab_killed_run_is_undone_by_next() {
    let server = server();
    let (before, entries_before) = (config(&server), entries(&server));
    let uri = server.uri();
    let told = |more: &[&str]| {
        let output = lab(&arguments(&uri, more)).output().expect("start");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let mut child = begun(&server, &SLOW);
    let brief = ["--duration", "300ms", "--identities", "4", "--only", "SSHA"];
    for more in [&brief[..], &["--undo"]] {
        let (code, said) = told(more);
        assert!(code == Some(1) && has_code(&said, &messages::SCHEMES_RUNNING), "{said}");
    }
    // The names of the users do not reveal their passwords.
    let users = users(&server);
    let name = users.lines().find_map(|line| line.strip_prefix("dn: ")).expect("a user");
    let number = name.split("ou=roster-lab-").nth(1).and_then(|rest| rest.split(',').next());
    let guess = format!("Roster-{}", number.expect("a number"));
    let bind = ["--dn", name, "--password", &guess, "--users", "1", "--duration", "300ms"];
    let (code, tried) = report(&[&["ldap", "--uri", &uri][..], &bind].concat());
    assert!(code == 1 && tried.to_string().contains("LDAP 49"), "{tried}");
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert_ne!(config(&server), before);
    assert!(record(&server).contains("dn: cn=roster-lab"));
    let (code, said) = told(&brief);
    assert!(code == Some(0) && said.contains("changes of an earlier run were undone"), "{said}");
    // The run measured one scheme, which is not fit. The server has better ones.
    assert!(said.contains("No recommendation: ") && !said.contains("For users"), "{said}");
    assert_eq!((config(&server), entries(&server)), (before.clone(), entries_before.clone()));
    // --undo restores the server without a measurement.
    let mut child = begun(&server, &SLOW);
    child.kill().expect("kill");
    child.wait().expect("wait");
    for (code, said) in [told(&["--undo"]), told(&["--undo"])] {
        assert!(code == Some(0) && said.contains("earlier run"), "{said}");
        assert_eq!((config(&server), entries(&server)), (before.clone(), entries_before.clone()));
    }
    assert_eq!(record(&server), "");
}

#[test]
fn more_users_than_a_shell_allows_open_files_are_no_failure() {
    let server = server();
    let uri = server.uri();
    let crowded = ["--users", "200", "--only", "SSHA", "--duration", "500ms"];
    let command = lab(&arguments(&uri, &[&crowded[..], &["--identities", "20"]].concat()));
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 100 && exec \"$0\" \"$@\""]).arg(command.get_program());
    let output = shell.args(command.get_args()).output().expect("start");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !told.contains("not measured"), "{told}");
}

/// Reply of a scripted server to a request: entries, and the result code.
type Reply = (Vec<Attributes>, u8);
type Attributes = Vec<(&'static str, String)>;

const NO_SUCH_OBJECT: u8 = 32;
const ALREADY_EXISTS: u8 = 68;
const NOT_ALLOWED: u8 = 50;

/// Operations by the tag of their request (RFC 4511).
const SEARCH: u8 = 0x63;
const ADD: u8 = 0x68;
const DELETE: u8 = 0x4a;

const RECORD: &str = "cn=roster-lab schemes,cn=config";

/// Returns the reply of a server that offers one scheme and accepts each change.
fn usual(operation: u8, dn: &str) -> Reply {
    let one = |name, value: &str| (vec![vec![(name, value.to_owned())]], 0);
    match (operation, dn) {
        (SEARCH, "cn=config") => one("passwordStorageScheme", "SSHA"),
        (SEARCH, "cn=Password Storage Schemes,cn=plugins,cn=config") => one("cn", "SSHA"),
        (SEARCH, _) => (Vec::new(), NO_SUCH_OBJECT),
        _ => (Vec::new(), 0),
    }
}

/// Returns the reply to an operation on a DN; `None` for the usual one.
type Script = fn(u8, &str) -> Option<Reply>;

/// Starts an LDAP server that replies by `script`, or else by [`usual`]. Returns its URI.
fn scripted(script: Script) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let uri = format!("ldap://{}", listener.local_addr().expect("its number"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream, script));
        }
    });
    uri
}

fn serve(mut stream: TcpStream, script: Script) {
    let (mut inbox, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        inbox.extend_from_slice(&piece[..length]);
        while let Ok(Some((_, begin, end))) = ber::head(&inbox) {
            let Some(mut message) = inbox.get(begin..end) else { break };
            let (_, id) = ber::take_element(&mut message).expect("a number");
            let (operation, mut content) = ber::take_element(&mut message).expect("an operation");
            if operation == 0x42 {
                return;
            }
            // A request to delete is only the DN. The others begin with it, except a bind.
            let dn = match operation {
                DELETE => content,
                _ => ber::take_element(&mut content).expect("a DN").1,
            };
            let dn = String::from_utf8_lossy(dn).into_owned();
            let reply = script(operation, &dn).unwrap_or_else(|| usual(operation, &dn));
            let out = encoded(id, operation, &dn, &reply);
            if stream.write_all(&out).is_err() {
                return;
            }
            inbox.drain(..end);
        }
    }
}

fn element(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    ber::primitive(tag, &parts.concat(), &mut out);
    out
}

fn encoded(id: &[u8], operation: u8, dn: &str, (entries, code): &Reply) -> Vec<u8> {
    let text = |text: &str| element(4, &[text.as_bytes().to_vec()]);
    let message = |content| element(0x30, &[element(2, &[id.to_vec()]), content]);
    let mut out = Vec::new();
    for entry in entries {
        let attribute = |(name, value): &(&str, String)| {
            element(0x30, &[text(name), element(0x31, &[text(value)])])
        };
        let list = element(0x30, &entry.iter().map(attribute).collect::<Vec<_>>());
        out.extend(message(element(0x64, &[text(dn), list])));
    }
    let result = [element(0x0a, &[vec![*code]]), text(""), text("")];
    // The tag of a result follows the one of its request. A request to delete has a primitive tag.
    let tag = if operation == DELETE {
        0x6b
    } else {
        operation + if operation == SEARCH { 2 } else { 1 }
    };
    out.extend(message(element(tag, &result)));
    out
}

/// Returns the record of a run of another host.
fn other_run(description: &str) -> Option<Reply> {
    Some((vec![vec![("description", description.to_owned())]], 0))
}

const ELSEWHERE: &str =
    r#"{"host": "elsewhere", "process": 1, "began": 1, "folder": "ou=x", "before": []}"#;

#[test]
fn schemes_unusable_server_has_code() {
    let measure = ["--duration", "100ms", "--identities", "2", "--users", "1"];
    let subtree = ["--no-measure", "--apply", "SSHA", "--subtree", "ou=x"];
    let none: Script =
        |operation, dn| (operation == SEARCH && dn == "cn=config").then(|| (Vec::new(), 0));
    let no_plugins: Script = |_, dn| dn.contains("cn=plugins").then(|| (Vec::new(), 0));
    let no_entry: Script = |_, dn| dn.contains("cn=plugins").then(|| (Vec::new(), NO_SUCH_OBJECT));
    let bad_record: Script =
        |operation, dn| (operation == SEARCH && dn == RECORD).then(|| other_run("x")).flatten();
    let record: Script = |operation, dn| {
        (operation == SEARCH && dn == RECORD).then(|| other_run(ELSEWHERE)).flatten()
    };
    let concurrent: Script =
        |operation, dn| (operation == ADD && dn == RECORD).then(|| (Vec::new(), ALREADY_EXISTS));
    let kept: Script = |operation, dn| match operation {
        DELETE => Some((Vec::new(), NOT_ALLOWED)),
        SEARCH if dn == RECORD => other_run(ELSEWHERE),
        _ => None,
    };
    let no_policy: Script = |operation, dn| {
        let template = || (vec![vec![("cosTemplateDn", "cn=t".to_owned())]], 0);
        (operation == SEARCH && dn == "cn=nsPwPolicy_CoS,ou=x").then(template)
    };
    let no_password: Script = |operation, dn| {
        (operation == SEARCH && !dn.ends_with("cn=config")).then(|| (Vec::new(), 0))
    };
    let stored: Script = |operation, dn| {
        let entry =
            || vec![("entryDN", "uid=u0,ou=x".to_owned()), ("userPassword", "x".to_owned())];
        (operation == SEARCH && !dn.ends_with("cn=config")).then(|| (vec![entry()], 0))
    };
    let no_time = ["--duration", "0", "--identities", "2", "--users", "1"];
    for (script, more, code, message) in [
        (none, &["--no-measure"][..], 1, &messages::NOT_389DS),
        (no_plugins, &["--no-measure"], 1, &messages::NO_SCHEMES),
        (no_entry, &["--no-measure"], 1, &messages::LDAP_ENTRY_MISSING),
        (bad_record, &["--undo"], 1, &messages::UNDO_RECORD_FORMAT),
        (record, &measure, 1, &messages::SCHEMES_LEFTOVERS),
        (concurrent, &measure, 1, &messages::SCHEMES_CONCURRENT),
        (kept, &["--undo"], 1, &messages::SCHEMES_NOT_UNDONE),
        (no_policy, &subtree, 1, &messages::POLICY_TEMPLATE),
        (no_password, &measure, 0, &messages::PASSWORD_NOT_STORED),
        (stored, &no_time, 0, &messages::NO_BIND_ANSWERED),
    ] {
        let uri = scripted(script);
        let output = lab(&arguments(&uri, more)).output().expect("start");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.code() == Some(code), "{message}: {said}");
        assert!(has_code(&said, message), "{message}: {said}");
    }
}

#[test]
fn schemes_undo_accepts_folder_without_children() {
    let uri = scripted(|operation, dn| match (operation, dn) {
        (SEARCH, RECORD) => other_run(ELSEWHERE),
        (SEARCH, "ou=x") => Some((Vec::new(), 0)),
        _ => None,
    });
    let output = lab(&arguments(&uri, &["--undo"])).output().expect("start");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
