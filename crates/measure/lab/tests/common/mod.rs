// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the tests: the built program, its report, and a directory with users.
#![allow(dead_code, reason = "each test binary uses its part")]

use roster_messages::Message;
use roster_system_tests::{DirectoryServer, Schema, Slapd, SlapdOptions, find_tool};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// DNs of the users `u0` to `u99`. Each has the password `secret`.
pub const DN: &str = "uid=u{0..99},ou=people,dc=example,dc=com";
pub const PASSWORD: &str = "secret";

/// Returns a command of roster-lab.
pub fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roster-lab"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs roster-lab until it ends.
pub fn run(arguments: &[&str]) -> Output {
    lab(arguments).output().expect("start roster-lab")
}

/// Runs roster-lab with `--json -` and without pre-run checks. Returns its exit code and its report.
pub fn report(arguments: &[&str]) -> (i32, Value) {
    read(&run(&[arguments, &["--json", "-", "--probe", "0"]].concat()))
}

/// Runs roster-lab with `--json -`. Returns its exit code and its report.
pub fn whole_report(arguments: &[&str]) -> (i32, Value) {
    read(&run(&[arguments, &["--json", "-"]].concat()))
}

/// Returns the ratio of a pre-run check.
pub fn compared(report: &Value, kind: &str) -> Option<f64> {
    let probes = report["probes"].as_array().expect("a list");
    let found = probes.iter().find(|probe| probe["kind"] == kind);
    found.unwrap_or_else(|| panic!("{kind}: {report}"))["ratio"].as_f64()
}

/// Returns the exit code and the report of a run with `--json -`.
pub fn read(output: &Output) -> (i32, Value) {
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("no report ({error}): {}", String::from_utf8_lossy(&output.stderr))
    });
    (output.status.code().expect("ended by itself"), report)
}

/// Returns a number of a report.
pub fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {report}"))
}

/// Returns a count of a report.
pub fn count(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {report}"))
}

/// Returns the kinds of the warnings of a report.
pub fn warnings(report: &Value) -> Vec<&str> {
    let warnings = report["warnings"].as_array().expect("a list");
    warnings.iter().filter_map(|warning| warning["kind"].as_str()).collect()
}

/// Returns whether a text has the code of a message.
pub fn has_code(text: &str, message: &Message) -> bool {
    text.contains(&format!("[{}]", message.code))
}

/// Starts a slapd with the users.
pub fn slapd(setup: impl FnOnce(&mut SlapdOptions)) -> Slapd {
    let mut slapd = loaded(setup);
    slapd.start();
    slapd
}

/// Returns a slapd with the users, which the test starts.
pub fn slapd_that_is_not_started() -> Slapd {
    loaded(|_| {})
}

fn loaded(setup: impl FnOnce(&mut SlapdOptions)) -> Slapd {
    let mut ldif = String::from(
        "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
         dn: ou=people,dc=example,dc=com\nobjectClass: organizationalUnit\nou: people\n\n",
    );
    for number in 0..100 {
        let _ = write!(
            ldif,
            "dn: uid=u{number},ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\n\
             uid: u{number}\ncn: u{number}\nsn: u{number}\nuserPassword: {PASSWORD}\n\n"
        );
    }
    let mut chosen = SlapdOptions::new(Schema::Rfc2307);
    setup(&mut chosen);
    Slapd::loaded(chosen, &ldif)
}

/// Python with the packages of the tests.
pub fn python() -> PathBuf {
    let binary = std::env::current_exe().expect("this program");
    let python = binary.ancestors().nth(3).expect("target").join("tools/locust/bin/python");
    assert!(python.exists(), "{} is missing: run scripts/need test", python.display());
    python
}

/// Checks pages in a browser at 360, 768, 1,200 and 1,600 pixels: nothing is cut, and no texts overlap.
pub fn assert_fits_widths(pages: &[&Path]) {
    let folder = tempfile::tempdir().expect("make a directory");
    let mut browser = Command::new(python());
    browser.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page_widths.py"));
    browser.arg(find_tool("chromium", "chromium")).arg(folder.path()).args(pages);
    let output = browser.output().expect("start the browser");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        text.contains(&format!("{} pages at [360, 768, 1200, 1600] px", pages.len())),
        "{text}"
    );
}
