// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `roster-lab command`: each reported request is a process that ended.

mod common;

use common::{count, has_code, number, run};
use roster_messages::table::lab as messages;
use std::fs;

#[test]
fn as_many_processes_run_as_are_reported() {
    let folder = tempfile::tempdir().expect("make a directory");
    let file = folder.path().join("runs");
    let script = format!("echo \"$1\" >> {}", file.display());
    let words = ["--", "sh", "-c", &script, "sh", "u{0..9}"];
    let (code, report) =
        report_of(&words, &["--users", "4", "--duration", "500ms", "--warm-up", "50ms"]);
    assert_eq!((code, count(&report, "/failures")), (0, 0), "{report}");
    let ran = fs::read_to_string(&file).expect("written by the commands");
    let ran: Vec<&str> = ran.lines().collect();
    assert_eq!(ran.len() as u64, count(&report, "/requests") + count(&report, "/warm_up_requests"));
    for user in 0..10 {
        assert!(ran.contains(&format!("u{user}").as_str()), "u{user} had no turn");
    }
}

/// Runs a command; the options precede its words.
fn report_of(words: &[&str], options: &[&str]) -> (i32, serde_json::Value) {
    let brief = ["--json", "-", "--probe", "0"];
    common::read(&run(&[&["command"], &brief[..], options, words].concat()))
}

#[test]
fn a_load_curve_has_the_start_of_a_process_apart() {
    let how =
        ["command", "--users", "1,2", "--duration", "500ms", "--probe", "300ms", "--json", "-"];
    let (code, report) = common::read(&run(&[&how[..], &["--", "sleep", "0.5"]].concat()));
    assert_eq!((code, report["stages"].as_array().map(Vec::len)), (0, Some(2)), "{report}");
    for stage in ["/stages/0", "/stages/1"] {
        let startup = number(&report, &format!("{stage}/startup_ms"));
        let whole = number(&report, &format!("{stage}/latency_ms/p50"));
        // A busy machine delays both, but only the command sleeps.
        assert!(startup > 0.0 && whole >= 500.0 && startup < whole, "{report}");
    }
    let output = run(&["command", "--users", "1", "--duration", "300ms", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("start-up   "), "{said}");
}

#[test]
fn how_a_command_ended_is_its_result() {
    for (script, kind, message) in [
        ("exit 3", "exit code 3", &messages::COMMAND_EXITED),
        ("kill -9 $$", "ended by signal 9", &messages::COMMAND_KILLED),
    ] {
        let words = ["--", "sh", "-c", script];
        let (code, report) =
            report_of(&words, &["--users", "1", "--duration", "1", "--warm-up", "0"]);
        assert_eq!(code, 1);
        let failures = count(&report, "/failures");
        assert!(failures > 0 && failures == count(&report, &format!("/failures_by_kind/{kind}")));
        assert_eq!(report["failure_codes"][kind], message.code, "{report}");
    }
    // A program that varies is not checked before the run.
    let options = ["--users", "1", "--duration", "1", "--warm-up", "0"];
    let (code, report) = report_of(&["--", "/no/such/program{0..1}"], &options);
    let codes = report["failure_codes"].as_object().expect("codes");
    assert!(code == 1 && count(&report, "/failures") > 0, "{report}");
    assert!(codes.values().all(|code| code == messages::COMMAND_NOT_STARTED.code), "{report}");
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_that_it_started() {
    let folder = tempfile::tempdir().expect("make a directory");
    let file = folder.path().join("late");
    let script = format!("(sleep 2; touch {}) & wait", file.display());
    let options = ["--users", "1", "--duration", "100ms", "--timeout", "300ms", "--warm-up", "0"];
    let words = ["--", "sh", "-c", &script];
    let (code, report) = report_of(&words, &options);
    assert_eq!(code, 1);
    assert!(count(&report, "/failures_by_kind/no reply in time") >= 1, "{report}");
    let code = &report["failure_codes"]["no reply in time"];
    assert_eq!(code, messages::REQUEST_TIMEOUT.code, "{report}");
    assert!(number(&report, "/latency_ms/p50") >= 300.0, "{report}");
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert!(!file.exists(), "what the command started has gone with it");
}

#[test]
fn a_program_that_is_not_there_is_said_before_the_run() {
    let output = run(&["command", "--", "no-such-program"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let is_coded = has_code(&said, &messages::COMMAND_NOT_FOUND);
    assert!(output.status.code() == Some(1) && is_coded, "{said}");
}

#[test]
fn a_plan_runs_and_its_mistakes_have_lines() {
    let folder = tempfile::tempdir().expect("make a directory");
    let plan = folder.path().join("plan.toml");
    let path = plan.to_str().expect("a plain path");
    fs::write(
        &plan,
        "[command]\ncommand = [\"true\"]\nusers = [1, 2]\nduration = \"200ms\"\nwarm-up = 0\n",
    )
    .expect("write the plan");
    let (code, report) = common::read(&run(&["run", path, "--json", "-", "--probe", "0"]));
    assert_eq!((code, report["stages"].as_array().map(Vec::len)), (0, Some(2)), "{report}");
    assert_eq!(report["origin"]["plan"]["duration"], "200ms");
    fs::write(&plan, "[command]\ncommand = [\"true\"]\nuser = 1\n").expect("write the plan");
    let output = run(&["run", path]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("{path}:3: user: unknown key. Write users,")), "{said}");
    assert!(has_code(&said, &messages::PLAN_UNKNOWN_KEY), "{said}");
}

#[test]
fn command_request_without_user_has_code() {
    // The only user has time for two commands until the end of the run, and ten are due.
    let options = ["--users", "1", "--rate", "20", "--duration", "500ms", "--warm-up", "0"];
    let short = ["--timeout", "300ms"];
    let (_, report) = report_of(&["--", "sleep", "60"], &[&options[..], &short].concat());
    let kind = "not sent before the end";
    assert!(count(&report, &format!("/failures_by_kind/{kind}")) > 0, "{report}");
    assert_eq!(report["failure_codes"][kind], messages::REQUEST_NOT_SENT.code, "{report}");
}
