//! Power failures: the calls of a change are recorded, and files are put into the states that a failure after each of
//! them may leave. `roster compile` and `roster enable` leave the old or the new file. A daemon that starts while the
//! directory is away serves what was or what is, and keeps passwords.
//!
//! `ROSTER_STORAGE=all` tries all states, or each of the daemon's up to a number; otherwise samples are tried.

use roster_system_tests::crash::{Recorder, Recording, State};
use roster_system_tests::pam::PASSWORD;
use roster_system_tests::tally::{Tally, chosen, is_whole};
use roster_system_tests::{Corpus, Host, Kept, Server, needs_root, roster_program, run};
use roster_wire::pam::Verdict;
use std::fs;
use std::process::Command;

/// Starts of the daemon in a whole run: each takes about two seconds.
const STARTS_MAX: usize = 240;

fn corpus(word: &str) -> Corpus {
    let lines: String = (0..40).map(|n| format!("u{n}:x:{}:1000:{word}::\n", 1000 + n)).collect();
    Corpus::new(word, lines.as_bytes(), format!("people:x:1000:{word}\n").as_bytes(), b"")
}

/// The words that a whole snapshot holds, or why it is not whole.
fn words(host: &Host) -> Result<Vec<String>, String> {
    let verified = run(Command::new(roster_program()).arg("verify").arg(host.snapshot()));
    if verified.code != 0 {
        return Err(verified.error());
    }
    let of = |map: &str, key: &str, field: usize| {
        let mut get = Command::new(roster_program());
        let line = run(get.args(["get", map, key, "--snapshot"]).arg(host.snapshot()));
        String::from_utf8_lossy(&line.stdout).trim().split(':').nth(field).map(str::to_owned)
    };
    let found = [of("passwd", "u7", 4), of("passwd", "u39", 4), of("group", "people", 3)];
    found.into_iter().collect::<Option<_>>().ok_or_else(|| "an entry is missing".to_owned())
}

#[test]
fn crash_compile_leaves_whole_snapshot() {
    let mut tally = Tally::of("crash states of roster compile", &["wrong"]);
    let host = Host::serving(&corpus("old"), "");
    let compile = host.compile(&corpus("new"));
    let (recording, done) = Recording::of(&host.snapshots(), &host.path("record"), &compile);
    assert_eq!(done.code, 0, "{}", done.error());
    let states = recording.states();
    for state in chosen(states, 15) {
        tally.count("states");
        recording.put(&state);
        match words(&host) {
            Ok(words) if words.iter().all(|word| *word == words[0]) => {}
            other => tally.fail("wrong", &format!("{}: {other:?}", state.what)),
        }
        host.publish(&corpus("last"));
        tally.check(words(&host).is_ok_and(|words| words == ["last"; 3]), "wrong", || {
            format!("{}: the next compilation", state.what)
        });
    }
    tally.finish("states", 10);
}

#[test]
fn crash_enable_keeps_nsswitch_whole() {
    let mut tally = Tally::of("crash states of roster enable and disable", &["wrong"]);
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
        let (recording, done) = Recording::of(&etc, &record, &edit(verb));
        assert_eq!(done.code, 0, "{}", done.error());
        let new = fs::read_to_string(&file).expect("read");
        assert_ne!(old, new);
        for state in recording.states() {
            tally.count("states");
            recording.put(&state);
            let text = fs::read_to_string(&file).unwrap_or_default();
            tally
                .check(text == old || text == new, "wrong", || format!("{}: {text:?}", state.what));
            // The administrator enables and disables again.
            let done = [run(&mut edit("enable")), run(&mut edit("disable"))];
            let text = fs::read_to_string(&file).unwrap_or_default();
            tally.check(text == before, "wrong", || format!("{}: {text:?} {done:?}", state.what));
        }
        fs::write(&file, old).expect("write");
        assert_eq!(run(&mut edit(verb)).code, 0);
    }
    tally.finish("states", 10);
}

const USERS: [&str; 3] = ["alice", "bob", "carol"];
const NEW_PASSWORD: &str = "battery staple";

/// Whether a daemon that starts on these files answers right without its directory.
fn check(kept: &mut Kept, state: &State, is_last: bool, tally: &mut Tally) {
    kept.launch();
    for user in USERS {
        let shells = if user == "alice" { &["/bin/sh", "/bin/new"][..] } else { &["/bin/sh"] };
        let lines: Vec<_> = shells.iter().map(|shell| Some(kept.line(user, shell))).collect();
        let found = kept.rosterd.getent("passwd", user);
        tally.check(lines.contains(&found), "wrong", || format!("{}: {found:?}", state.what));
    }
    let guess = kept.settled("bob", "a guess");
    tally.check(guess != Verdict::Success, "let in wrongly", || state.what.clone());
    // alice's password was changed meanwhile: the store has the old one or the new one.
    let alice = [PASSWORD, NEW_PASSWORD].map(|password| kept.settled("alice", password));
    let is_right = alice.map(|verdict| verdict == Verdict::Success);
    let is_kept_whole = if is_last { is_right == [false, true] } else { is_right != [true; 2] };
    tally.check(is_kept_whole, "let in wrongly", || format!("{}: {alice:?}", state.what));
    let bob = kept.settled("bob", PASSWORD);
    tally.check(bob == Verdict::Success, "kept passwords lost", || {
        format!("{}: {bob:?}: {}", state.what, kept.log())
    });
    kept.rosterd.stop();
}

/// A directory's change and a log-in with a new password.
#[test]
fn crash_daemon_serves_whole_and_keeps_passwords() {
    if !needs_root() {
        return;
    }
    let kinds = ["wrong", "let in wrongly", "kept passwords lost"];
    let mut tally = Tally::of("crash states of rosterd, directory away", &kinds);
    let mut kept = Kept::started(&USERS);
    let state = kept.rosterd.host().state();
    let pids = ["publisher", "backend:corp"].map(|role| kept.rosterd.wait_for_role(role));
    let record = kept.rosterd.host().path("record");

    let recorder = Recorder::start(&state, &pids, &record);
    kept.set("alice", "loginShell", "/bin/new");
    kept.rosterd.expect("passwd", "alice", Some(&kept.line("alice", "/bin/new")));
    kept.set("alice", "userPassword", NEW_PASSWORD);
    kept.log_in("alice", NEW_PASSWORD);
    let recording = recorder.end();
    kept.rosterd.stop();
    kept.slapd.stop();
    let states = recording.states();
    println!("{} calls, {} states", recording.calls(), states.len());
    let starts = if is_whole() { STARTS_MAX } else { 8 };
    // The last one is always among them.
    for state in states.iter().rev().step_by(states.len().div_ceil(starts)) {
        tally.count("states");
        recording.put(state);
        check(&mut kept, state, state.calls == recording.calls(), &mut tally);
    }
    tally.finish("states", 6);
}
