// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the other output (percentiles, JSON, manual pages, completions) and of wrong usage.

mod common;

use common::{count, has_code, lab, number, run};
use roster_messages::table::lab as messages;
use roster_system_tests::wait::{SOON, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Command, Stdio};

#[test]
fn reports_go_where_they_are_asked_to() {
    let folder = tempfile::tempdir().expect("make a folder");
    let (json, hdr) = (folder.path().join("run.json"), folder.path().join("run.hgrm"));
    let paths = [&json, &hdr].map(|path| path.to_str().expect("a plain path"));
    let brief = ["--users", "1", "--duration", "200ms", "--warm-up", "0"];
    let files = ["--json", paths[0], "--hdr", paths[1], "--probe", "0", "--", "true"];
    let output = run(&[&["command"], &brief[..], &files].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("latency    p50 "), "{said}");
    let json = fs::read(json).expect("the report");
    let report: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    for (field, least) in [("p50", 1e-3), ("p999", 1e-3), ("max", 1e-3)] {
        assert!(number(&report, &format!("/latency_ms/{field}")) > least, "{report}");
    }
    let origin = &report["origin"];
    assert_eq!(origin["plan"]["load"], "command");
    assert_eq!(origin["plan"]["command"], serde_json::json!(["true"]));
    assert!(count(origin, "/host/processors") > 0 && count(origin, "/time") > 1_700_000_000);
    let hdr = fs::read_to_string(hdr).expect("the percentiles");
    let total = format!("Total count    = {:12}]", count(&report, "/requests"));
    assert!(hdr.starts_with("       Value ") && hdr.contains(&total), "{hdr}");
}

#[test]
fn no_report_has_the_passwords_of_its_options() {
    let brief = ["--users", "1", "--duration", "200ms", "--warm-up", "0", "--probe", "0"];
    let words = ["--", "sh", "-c", "PASSWORD=geheim; exit 0", "--password", "geheim"];
    let output = run(&[&["command", "--json", "-"], &brief[..], &words].concat());
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("(left out)") && !report.contains("geheim"), "{report}");
}

#[test]
fn a_report_that_cannot_be_written_is_said_before_the_run() {
    for option in ["--json", "--hdr"] {
        let output = run(&["command", option, "/no/such/folder/file", "--", "true"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains("/no/such/folder/file: cannot be written"), "{said}");
        assert!(has_code(&said, &messages::FILE_UNWRITABLE), "{said}");
    }
}

#[test]
fn a_full_disk_costs_no_figures() {
    for option in ["--json", "--hdr", "--html"] {
        let brief = ["--users", "1", "--duration", "2", "--warm-up", "0", "--probe", "0"];
        let output =
            run(&[&["command", option, "/dev/full"], &brief[..], &["--", "true"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1), "{said}");
        assert!(said.contains("/dev/full: cannot be written: No space left on device"), "{said}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("latency    p50 "), "{option}");
    }
}

#[test]
fn a_run_that_cannot_start_leaves_the_last_report_and_no_empty_one() {
    let folder = tempfile::tempdir().expect("make a folder");
    let (old, new) = (folder.path().join("old.json"), folder.path().join("new.html"));
    fs::write(&old, "the last report").expect("write it");
    let paths = [&old, &new].map(|path| path.to_str().expect("a plain path"));
    let nobody = ["ldap", "--uri", "ldap://127.0.0.1:1", "--dn", "cn=x", "--password", "y"];
    let output = run(&[&nobody[..], &["--json", paths[0], "--html", paths[1]]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&old).expect("still there"), "the last report");
    assert!(!new.exists());
}

#[test]
fn no_live_view_is_drawn_where_there_is_no_terminal() {
    let output = run(&[
        "command",
        "--users",
        "1",
        "--duration",
        "700ms",
        "--warm-up",
        "0",
        "--probe",
        "0",
        "--",
        "true",
    ]);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    // A busy machine may delay a command, and roster-lab then waits for it.
    let said: Vec<_> = said.lines().filter(|line| !line.contains("waiting for the last")).collect();
    assert!(said.is_empty(), "nothing but mistakes and warnings goes to standard error: {said:?}");
}

#[test]
fn threads_have_their_open_files_whatever_a_shell_allows() {
    let command = lab(&["nss", "--lookup", "passwd", "--key", "root", "--users", "40"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 100 && exec \"$0\" \"$@\""]).arg(command.get_program());
    shell.args(command.get_args()).args(["--probe", "0", "--duration", "300ms"]);
    let output = shell.stdin(Stdio::null()).output().expect("start");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn lab_closed_terminal_ends_run_with_report() {
    for (program, code, duration) in [("env", 130, "600"), ("nohup", 0, "2")] {
        let folder = tempfile::tempdir().expect("make a folder");
        let (json, begun) = (folder.path().join("run.json"), folder.path().join("begun"));
        let how = ["--users", "1", "--probe", "0", "--warm-up", "0", "--duration", duration];
        let mut command = Command::new(program);
        command.arg(lab(&[]).get_program()).args(["command", "--json"]).arg(&json).args(how);
        command.args(["--", "touch"]).arg(&begun);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start");
        wait_until(SOON, "the run begins", || begun.exists());
        kill_process(Pid::from_child(&child), Signal::HUP).expect("signal");
        let output = child.wait_with_output().expect("wait");
        assert_eq!(output.status.code(), Some(code), "{program}");
        let report = fs::read(json).expect("the report");
        let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
        let rate = number(&report, "/rate");
        #[expect(clippy::cast_precision_loss, reason = "a count of a few seconds")]
        let seconds = count(&report, "/requests") as f64 / rate;
        let is_whole = seconds >= 1.9;
        assert!(
            if program == "nohup" { is_whole } else { seconds < 599.0 },
            "{program}: {seconds}"
        );
    }
}

#[test]
fn wrong_use_is_told_and_pages_and_completions_are_written() {
    for wrong in [&["ldap"][..], &["command"], &["dns", "--name", "x"], &["no-such"]] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let folder = tempfile::tempdir().expect("make a folder");
    let output = run(&["man", folder.path().to_str().expect("a plain path")]);
    assert!(output.status.success());
    assert!(folder.path().join("roster-lab.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        let script = String::from_utf8_lossy(&output.stdout);
        assert!(script.contains("start-tls"), "{shell}");
    }
}
