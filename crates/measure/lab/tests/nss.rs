// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `roster-lab nss`. Lookups go through the C library of this host, or through a single module: Roster's, or
//! one that counts its calls. The host's `files` contain root.

mod common;

use common::{count, has_code, lab, number, read, report, run};
use roster_messages::table::lab as messages;
use roster_system_tests::{c_program_with, command_with_snapshot, library_dir, roster_program};
use std::fs;
use std::path::Path;
use std::process::Command;

fn run_lookup(lookup: &str, key: &str) -> (i32, serde_json::Value) {
    let brief = ["--duration", "1", "--warm-up", "100ms", "--users", "2"];
    report(&[&["nss", "--lookup", lookup, "--key", key][..], &brief].concat())
}

#[test]
fn who_is_there_is_found_by_name_and_id() {
    for (lookup, key) in [("passwd", "root"), ("passwd", "0"), ("group", "root"), ("group", "0")] {
        let (code, report) = run_lookup(lookup, key);
        assert_eq!((code, count(&report, "/failures")), (0, 0), "{lookup} {key}: {report}");
        assert!(count(&report, "/requests") > 0 && number(&report, "/latency_ms/p50") > 0.0);
        // The machine decides whether each thread always has a processor.
        let of_machine = ["generator", "standstill"];
        let others = common::warnings(&report).into_iter().find(|kind| !of_machine.contains(kind));
        assert_eq!(others, None, "busy threads are not a limit: {report}");
    }
}

#[test]
fn who_is_not_there_is_a_failure() {
    for lookup in ["passwd", "group", "initgroups"] {
        let (code, report) = run_lookup(lookup, "nobody-of-this-name{n}");
        let failures = count(&report, "/failures_by_kind/not found");
        assert!(code == 1 && failures > 0, "{lookup}: {report}");
        assert_eq!(failures, count(&report, "/requests"), "{lookup}: {report}");
        let code = &report["failure_codes"]["not found"];
        assert_eq!(code, messages::ENTRY_NOT_FOUND.code, "{lookup}: {report}");
    }
}

#[test]
fn nss_unusable_key_has_code() {
    let folder = tempfile::tempdir().expect("make a directory");
    let keys = folder.path().join("keys");
    let key = format!("@{}", keys.display());
    for (text, kind, message) in [
        (&b"ro\0ot\n"[..], "NUL byte in the key", &messages::NUL_IN_REQUEST),
        (b"r\xff\n", "key is not UTF-8", &messages::KEY_NOT_UTF8),
    ] {
        fs::write(&keys, text).expect("write the keys");
        let (code, report) = run_lookup("initgroups", &key);
        assert!(code == 1 && count(&report, "/failures") > 0, "{report}");
        assert_eq!(report["failure_codes"][kind], message.code, "{report}");
    }
}

/// Runs lookups through a module that counts. Returns the exit code, the report and the number of calls.
fn counted(lookup: &str, key: &str) -> (i32, serde_json::Value, u64) {
    counted_by(lookup, key, &["--users", "2"])
}

fn counted_by(lookup: &str, key: &str, how: &[&str]) -> (i32, serde_json::Value, u64) {
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libnss_counting.so.2"];
    let module = c_program_with("nss_counting", "libnss_counting.so.2", &flags);
    let folder = tempfile::tempdir().expect("make a directory");
    let calls = folder.path().join("calls");
    fs::write(&calls, "").expect("write the file");
    let module = module.to_str().expect("a plain path");
    let what = ["nss", "--lookup", lookup, "--key", key, "--module", module, "--json", "-"];
    let brief = ["--probe", "0", "--duration", "1", "--warm-up", "100ms"];
    let output = lab(&[&what[..], &brief, how].concat()).env("ROSTER_CALLS", &calls).output();
    let (code, report) = read(&output.expect("start roster-lab"));
    (code, report, fs::metadata(&calls).expect("the file").len())
}

#[test]
fn a_module_is_called_as_often_as_is_reported() {
    for (lookup, key) in [
        ("passwd", "u{0..99}"),
        ("passwd", "{1000..1099}"),
        ("passwd", "big{0..9}"),
        ("group", "u{0..99}"),
        ("group", "{1000..1099}"),
        ("initgroups", "u{0..99}"),
    ] {
        let (code, report, calls) = counted(lookup, key);
        assert_eq!((code, count(&report, "/failures")), (0, 0), "{lookup} {key}: {report}");
        let reported = count(&report, "/requests") + count(&report, "/warm_up_requests");
        assert!(count(&report, "/requests") > 0, "{lookup} {key}: {report}");
        assert_eq!(reported, calls, "{lookup} {key}: {report}");
    }
}

#[test]
fn what_a_module_cannot_answer_is_a_failure_of_its_kind() {
    for (lookup, key, kind) in [
        ("passwd", "nobody{n}", "not found"),
        ("group", "5", "not found"),
        ("initgroups", "nobody{n}", "not found"),
        ("passwd", "gone", "UNAVAIL: No such file or directory (os error 2)"),
        ("group", "later", "TRYAGAIN: Resource temporarily unavailable (os error 11)"),
    ] {
        let (code, report, _) = counted(lookup, key);
        let failures = count(&report, &format!("/failures_by_kind/{kind}"));
        assert!(code == 1 && failures > 0, "{lookup} {key}: {report}");
        assert_eq!(failures, count(&report, "/requests"), "{lookup} {key}: {report}");
        let message = match kind {
            "not found" => &messages::ENTRY_NOT_FOUND,
            _ => &messages::LOOKUP_FAILED,
        };
        assert_eq!(report["failure_codes"][kind], message.code, "{lookup} {key}: {report}");
    }
}

#[test]
fn look_ups_that_never_come_back_hold_no_report_up() {
    let how = ["--timeout", "1", "--users", "4"];
    let (_, report, _) = counted_by("passwd", "u{0..1000}", &how);
    assert_eq!(count(&report, "/failures_by_kind/no reply in time"), 4, "{report}");
    assert!(common::warnings(&report).contains(&"hung"), "{report}");
}

#[test]
fn our_own_module_answers_from_its_snapshot() {
    let folder = tempfile::tempdir().expect("make a directory");
    let path = |name: &str| folder.path().join(name);
    let users: String =
        (0..100).map(|n| format!("u{n}:x:{}:2000::/:/bin/sh\n", 1000 + n)).collect();
    let members: Vec<String> = (0..100).map(|n| format!("u{n}")).collect();
    fs::write(path("passwd"), users).expect("write users");
    fs::write(path("group"), format!("all:x:2000:{}\n", members.join(","))).expect("write groups");
    let mut compile = Command::new(roster_program());
    compile.arg("compile").arg("--passwd").arg(path("passwd")).arg("--group").arg(path("group"));
    assert!(compile.arg("--output").arg(path("snap")).status().expect("start").success());
    let module = library_dir().join("libnss_roster.so.2");
    for (lookup, key) in [
        ("passwd", "u{0..99}"),
        ("passwd", "{1000..1099}"),
        ("group", "all"),
        ("group", "2000"),
        ("initgroups", "u{0..99}"),
    ] {
        let module = module.to_str().expect("a plain path");
        let what = ["nss", "--lookup", lookup, "--key", key, "--module", module, "--json", "-"];
        let brief = ["--probe", "0", "--duration", "1", "--warm-up", "0", "--users", "2"];
        let lab = lab(&[&what[..], &brief].concat());
        let mut lab_of_reader = command_with_snapshot(lab.get_program(), &path("snap"));
        let output = lab_of_reader.args(lab.get_args()).output().expect("start");
        let (code, report) = read(&output);
        assert_eq!((code, count(&report, "/failures")), (0, 0), "{lookup} {key}: {report}");
        assert!(count(&report, "/requests") > 0, "{report}");
    }
}

#[test]
fn a_module_that_is_none_is_said_before_the_run() {
    let folder = tempfile::tempdir().expect("make a directory");
    let text = folder.path().join("libnss_text.so.2");
    fs::write(&text, "text").expect("write it");
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let other = folder.path().join("libnss_other.so.2");
    fs::copy(libc, &other).expect("copy the C library");
    for (module, message) in [
        (folder.path().join("libnss_none.so.2"), &messages::MODULE_NOT_FOUND),
        (text, &messages::LIBRARY_NOT_LOADED),
        (other, &messages::MODULE_FUNCTION_MISSING),
        (libc.to_owned(), &messages::MODULE_NAME),
    ] {
        let module = module.to_str().expect("a plain path");
        let output = run(&["nss", "--lookup", "passwd", "--key", "u", "--module", module]);
        let said = String::from_utf8_lossy(&output.stderr);
        let is_coded = has_code(&said, message);
        assert!(output.status.code() == Some(1) && is_coded, "{message}: {said}");
    }
}
