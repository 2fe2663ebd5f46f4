// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power failures: the calls of a change are recorded, and files are put into the states that a failure after each of
//! them may leave. `roster compile` and `roster enable` leave the old or the new file. A daemon that starts while the
//! directory is away serves the old or the new state, and retains passwords.
//!
//! `ROSTER_STORAGE=all` tries all states, or each of the daemon's up to a number; otherwise samples are tried.

use roster_request::AuthResult;
use roster_system_tests::crash::{CrashState, Recorder, Recording};
use roster_system_tests::pam::PASSWORD;
use roster_system_tests::tally::{Tally, is_full_campaign, sample_cases};
use roster_system_tests::{
    Corpus, DirectoryServer, OfflineFixture, TestHost, needs_root, roster_program, run,
};
use std::fs;
use std::process::Command;

/// Starts of the daemon in a whole run: each takes about two seconds.
const STARTS_MAX: usize = 240;

fn corpus(word: &str) -> Corpus {
    let lines: String = (0..40).map(|n| format!("u{n}:x:{}:1000:{word}::\n", 1000 + n)).collect();
    Corpus::new(word, lines.as_bytes(), format!("people:x:1000:{word}\n").as_bytes(), b"")
}

/// The words that a whole snapshot holds, or why it is not whole.
fn words(host: &TestHost) -> Result<Vec<String>, String> {
    let verified = run(Command::new(roster_program()).arg("verify").arg(host.snapshot_path()));
    if verified.code != 0 {
        return Err(verified.error());
    }
    let of = |map: &str, key: &str, field: usize| {
        let mut get = Command::new(roster_program());
        let line = run(get.args(["get", map, key, "--snapshot"]).arg(host.snapshot_path()));
        String::from_utf8_lossy(&line.stdout).trim().split(':').nth(field).map(str::to_owned)
    };
    let found = [of("passwd", "u7", 4), of("passwd", "u39", 4), of("group", "people", 3)];
    found.into_iter().collect::<Option<_>>().ok_or_else(|| "an entry is missing".to_owned())
}

#[test]
fn crash_compile_leaves_whole_snapshot() {
    let mut tally = Tally::for_campaign("crash states of roster compile", &["wrong"]);
    let host = TestHost::serving(&corpus("old"), "");
    let compile = host.compile(&corpus("new"));
    let (recording, done) =
        Recording::record_command(&host.snapshots_dir(), &host.path("record"), &compile);
    assert_eq!(done.code, 0, "{}", done.error());
    let states = recording.states();
    for state in sample_cases(states, 15) {
        tally.count("states");
        recording.write_state(&state);
        match words(&host) {
            Ok(words) if words.iter().all(|word| *word == words[0]) => {}
            other => tally.fail("wrong", &format!("{}: {other:?}", state.description)),
        }
        host.publish(&corpus("last"));
        tally.check(words(&host).is_ok_and(|words| words == ["last"; 3]), "wrong", || {
            format!("{}: the next compilation", state.description)
        });
    }
    tally.finish("states", 10);
}

#[test]
fn crash_enable_keeps_nsswitch_whole() {
    let mut tally = Tally::for_campaign("crash states of roster enable and disable", &["wrong"]);
    let before = "passwd: files\ngroup: files\nshadow: files\n";
    let folder = tempfile::tempdir().expect("a folder");
    let (etc, file) = (folder.path().join("etc"), folder.path().join("etc/nsswitch.conf"));
    fs::create_dir(&etc).expect("create a folder");
    fs::write(&file, before).expect("write");
    let edit = |verb: &str| {
        let mut command = Command::new(roster_program());
        command.arg(verb).arg("--file").arg(&file);
        command
    };
    for verb in ["enable", "disable"] {
        let old = fs::read_to_string(&file).expect("read");
        let record = folder.path().join("record");
        let (recording, done) = Recording::record_command(&etc, &record, &edit(verb));
        assert_eq!(done.code, 0, "{}", done.error());
        let new = fs::read_to_string(&file).expect("read");
        assert_ne!(old, new);
        for state in recording.states() {
            tally.count("states");
            recording.write_state(&state);
            let text = fs::read_to_string(&file).unwrap_or_default();
            tally.check(text == old || text == new, "wrong", || {
                format!("{}: {text:?}", state.description)
            });
            // The administrator enables and disables again.
            let done = [run(&mut edit("enable")), run(&mut edit("disable"))];
            let text = fs::read_to_string(&file).unwrap_or_default();
            tally.check(text == before, "wrong", || {
                format!("{}: {text:?} {done:?}", state.description)
            });
        }
        fs::write(&file, old).expect("write");
        assert_eq!(run(&mut edit(verb)).code, 0);
    }
    tally.finish("states", 10);
}

const USERS: [&str; 3] = ["alice", "bob", "carol"];
const NEW_PASSWORD: &str = "battery staple";

/// Whether a daemon that starts on these files answers right without its directory.
fn check(kept: &mut OfflineFixture, state: &CrashState, is_last: bool, tally: &mut Tally) {
    kept.launch();
    for user in USERS {
        let shells = if user == "alice" { &["/bin/sh", "/bin/new"][..] } else { &["/bin/sh"] };
        let lines: Vec<_> =
            shells.iter().map(|shell| Some(kept.passwd_line(user, shell))).collect();
        let found = kept.rosterd.getent("passwd", user);
        tally
            .check(lines.contains(&found), "wrong", || format!("{}: {found:?}", state.description));
    }
    let guess = kept.auth_result_when_known("bob", "a guess");
    tally.check(guess != AuthResult::Success, "let in wrongly", || state.description.clone());
    // alice's password was changed meanwhile: the store has the old one or the new one.
    let alice =
        [PASSWORD, NEW_PASSWORD].map(|password| kept.auth_result_when_known("alice", password));
    let is_right = alice.map(|verdict| verdict == AuthResult::Success);
    let is_kept_whole = if is_last { is_right == [false, true] } else { is_right != [true; 2] };
    tally.check(is_kept_whole, "let in wrongly", || format!("{}: {alice:?}", state.description));
    let bob = kept.auth_result_when_known("bob", PASSWORD);
    tally.check(bob == AuthResult::Success, "kept passwords lost", || {
        format!("{}: {bob:?}: {}", state.description, kept.log())
    });
    kept.rosterd.stop();
}

/// A directory's change and a login with a new password.
#[test]
fn crash_daemon_serves_whole_and_keeps_passwords() {
    if !needs_root() {
        return;
    }
    let kinds = ["wrong", "let in wrongly", "kept passwords lost"];
    let mut tally = Tally::for_campaign("crash states of rosterd, directory away", &kinds);
    let mut kept = OfflineFixture::started(&USERS);
    let state = kept.rosterd.host().state_dir();
    let pids = ["publisher", "backend:corp"].map(|role| kept.rosterd.wait_for_role(role));
    let record = kept.rosterd.host().path("record");

    let recorder = Recorder::start(&state, &pids, &record);
    kept.set_attribute("alice", "loginShell", "/bin/new");
    kept.rosterd.expect("passwd", "alice", Some(&kept.passwd_line("alice", "/bin/new")));
    kept.set_attribute("alice", "userPassword", NEW_PASSWORD);
    kept.login("alice", NEW_PASSWORD);
    let recording = recorder.end();
    kept.rosterd.stop();
    kept.slapd.stop();
    let states = recording.states();
    println!("{} calls, {} states", recording.calls(), states.len());
    let starts = if is_full_campaign() { STARTS_MAX } else { 8 };
    // The last one is always among them.
    for state in states.iter().rev().step_by(states.len().div_ceil(starts)) {
        tally.count("states");
        recording.write_state(state);
        check(&mut kept, state, state.calls == recording.calls(), &mut tally);
    }
    tally.finish("states", 6);
}
