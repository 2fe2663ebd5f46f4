// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the rate: it counts only the measured time, also if requests begin before or end after it.

mod common;

use common::{count, lab, number, read, report};
use roster_system_tests::wait::SOON;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::UdpSocket;
use std::process::Stdio;
use std::thread;

/// Starts a name server that echoes each query as its reply, except the query of number `lost`.
fn names_but(lost: usize) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("its number").to_string();
    thread::spawn(move || {
        let mut query = [0; 512];
        for number in 0.. {
            let Ok((length, from)) = socket.recv_from(&mut query) else { return };
            query[2] |= 0x80;
            if number != lost {
                let _ = socket.send_to(&query[..length], from);
            }
        }
    });
    address
}

#[test]
fn an_answer_that_never_comes_does_not_stretch_the_time() {
    let server = names_but(900);
    let what = ["dns", "--server", &server, "--name", "h{n}.lab.test", "--rate", "500"];
    let how = ["--duration", "2", "--warm-up", "0", "--timeout", "3"];
    let (_, report) = report(&[&what[..], &how].concat());
    assert_eq!(count(&report, "/failures_by_kind/no reply in time"), 1, "{report}");
    assert_eq!(count(&report, "/requests"), 1000, "{report}");
    assert!((number(&report, "/seconds") - 2.0).abs() < 1e-6, "{report}");
    // A busy machine may send some requests after the measured time. The rate excludes them.
    assert!(number(&report, "/rate") <= 500.0, "{report}");
}

#[test]
fn users_make_no_more_requests_than_their_latency_allows() {
    for warm_up in ["0", "500ms"] {
        let how = ["command", "--users", "4", "--duration", "2500ms", "--warm-up", warm_up];
        let (_, report) = read(&common::run(
            &[&how[..], &["--json", "-", "--probe", "0", "--", "sleep", "1"]].concat(),
        ));
        let rate = number(&report, "/rate");
        // Each command takes at least a second. A command that crosses the begin or the end counts in proportion.
        let served = rate * number(&report, "/seconds");
        assert!(rate > 0.0 && rate <= 4.0 && served.fract() > 1e-6, "{report}");
        let begun = count(&report, "/requests") + count(&report, "/warm_up_requests");
        assert!(served < begun as f64, "{report}");
    }
}

#[test]
fn the_time_ends_with_ctrl_c_and_not_with_the_last_answer() {
    let folder = tempfile::tempdir().expect("make a directory");
    let begun = folder.path().join("begun");
    let script = format!("[ {{n}} = 5 ] && touch {} && sleep 4; sleep 0.05", begun.display());
    let how = ["command", "--users", "2", "--duration", "60", "--warm-up", "0", "--probe", "0"];
    let mut lab = lab(&[&how[..], &["--json", "-", "--", "sh", "-c", &script]].concat());
    let child = lab.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    roster_system_tests::wait_until(SOON, "the slow one", || begun.exists());
    kill_process(Pid::from_child(&child), Signal::INT).expect("interrupt it");
    let output = child.wait_with_output().expect("wait");
    let (code, report) = read(&output);
    assert_eq!((code, &report["interrupted"]), (130, &serde_json::Value::Bool(true)), "{report}");
    let longest = number(&report, "/latency_ms/max") / 1e3;
    assert!(longest >= 4.0 && number(&report, "/seconds") < longest, "{report}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("waiting for the last replies, at most 10 s"), "{said}");
    assert!(fs::exists(&begun).expect("look"));
}
