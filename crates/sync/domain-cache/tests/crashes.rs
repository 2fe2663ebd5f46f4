// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power failures while credentials are stored. A child process creates the files, and stores and removes credentials.
//! The test puts the files into each state that a failure may leave. All confirmed changes must be in effect, also if
//! one of the two files is lost afterwards. `ROSTER_STORAGE=all` tries all states.

use roster_domain_cache::credentials::{
    COPY_FILE, CREDENTIALS_FILE, CredentialChanges, CredentialFiles, OpenedCredentials,
    StoredCredential,
};
use roster_system_tests::crash::Recording;
use roster_system_tests::tally::sample_cases;
use std::fs;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "ROSTER_STORE_TEST_CREDENTIALS";
/// The stored credentials after each step: alice is added, bob is added, alice is removed, bob changes.
const STEPS: [&[(&str, u32)]; 5] =
    [&[], &[("alice", 1)], &[("alice", 1), ("bob", 1)], &[("bob", 1)], &[("bob", 2)]];

fn kept(uid: u32) -> StoredCredential {
    StoredCredential {
        uid,
        hash: "$argon2id$".to_owned(),
        verified_unix: 5,
        failures: 0,
        failed_unix: 0,
    }
}

/// Not a test: the child process that the other test records.
#[test]
fn process_of_its_own() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let file = CredentialFiles::open(folder).expect("fresh files").credentials;
    let heard = |step: usize| fs::write(folder.join(format!("heard-{step}")), "").expect("written");
    let steps = [
        CredentialChanges::credential(b"alice", Some(kept(1))),
        CredentialChanges::credential(b"bob", Some(kept(1))),
        CredentialChanges::forget(b"alice"),
        CredentialChanges::credential(b"bob", Some(kept(2))),
    ];
    for (step, changes) in steps.iter().enumerate() {
        file.write(changes).expect("written");
        heard(step + 1);
    }
}

/// Returns the number of steps after which the files have this content.
fn step_of(folder: &Path, what: &str) -> usize {
    let OpenedCredentials { credentials, quarantined: set_aside, .. } =
        CredentialFiles::open(folder).expect("files");
    assert_eq!(set_aside, [], "{what}");
    let kept = credentials.list().expect("readable");
    let kept: Vec<_> = kept.iter().map(|(user, kept)| (user.as_slice(), kept.uid)).collect();
    let is_so = |step: &&[(&str, u32)]| {
        step.iter().map(|(user, uid)| (user.as_bytes(), *uid)).collect::<Vec<_>>() == kept
    };
    STEPS.iter().position(is_so).unwrap_or_else(|| panic!("{what}: {kept:?}"))
}

#[test]
fn credentials_crash_anywhere_keeps_what_was_heard() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "process_of_its_own", "--quiet"]).env(FOLDER, root.path());
    let (recording, done) =
        Recording::record_command(root.path(), &other.path().join("record"), &command);
    assert_eq!(done.code, 0, "{}", done.error());
    let heard: Vec<usize> = (1..STEPS.len())
        .map(|step| {
            recording.creation_call(Path::new(&format!("heard-{step}"))).expect("all steps")
        })
        .collect();
    let states = recording.states();
    println!("{} calls, {} states", recording.calls(), states.len());
    assert!(states.len() > 200, "{}", states.len());
    for state in sample_cases(states, 30) {
        recording.write_state(&state);
        let least = heard.iter().filter(|made| **made <= state.calls).count();
        let step = step_of(root.path(), &state.description);
        assert!(step == least || step == least + 1, "{}: {step}, heard {least}", state.description);
        for lost in [CREDENTIALS_FILE, COPY_FILE] {
            fs::remove_file(root.path().join(lost)).expect("both are there");
            assert_eq!(
                step_of(root.path(), &state.description),
                step,
                "{}, lost {lost}",
                state.description
            );
        }
    }
}
