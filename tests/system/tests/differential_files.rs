// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster` has the same answers as glibc's `files` on the same text: every field, every return code, the same order,
//! through glibc's functions, through `getent`, and through `roster get`.

use roster_system_tests::compare_services::{assert_alike, difference, dump_service, seeds};
use roster_system_tests::corpus::{self, Corpus};
use roster_system_tests::test_host::{ROSTER_NSSWITCH, run};
use roster_system_tests::{TestHost, roster_program};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A process each, so fewer than the probe looks up.
const KEYS: usize = 24;

fn through_glibc(corpus: &Corpus) -> Option<String> {
    let host = TestHost::serving(corpus, ROSTER_NSSWITCH);
    let keys = corpus.keys();
    let [theirs, ours] = ["files", "roster"].map(|service| dump_service(&host, service, &keys));
    difference(corpus, &theirs, &ours)
}

#[test]
fn hand_picked_corpora_answer_alike() {
    assert_alike(corpus::hand_picked(), through_glibc);
}

#[test]
fn this_machines_own_files_answer_alike() {
    assert_alike([Corpus::from_machine()], through_glibc);
}

#[test]
fn random_corpora_answer_alike() {
    assert_alike(seeds().map(corpus::random), through_glibc);
}

/// The output of getent: text, order, exit code.
#[test]
fn getent_prints_the_same_for_both_services() {
    assert_alike(all_by_hand(), |corpus| {
        let host = TestHost::serving(corpus, ROSTER_NSSWITCH);
        let [theirs, ours] = ["files", "roster"]
            .map(|service| transcript(&host, corpus, &format!("getent -s {service}")));
        difference(corpus, &theirs, &ours)
    });
}

#[test]
fn roster_get_prints_what_getent_prints_for_files() {
    let get = format!("{} get", roster_program().display());
    assert_alike(all_by_hand(), |corpus| {
        let host = TestHost::serving(corpus, ROSTER_NSSWITCH);
        let [theirs, ours] =
            ["getent -s files", &get].map(|command| transcript(&host, corpus, command));
        difference(corpus, &theirs, &ours)
    });
}

fn all_by_hand() -> impl Iterator<Item = Corpus> {
    corpus::hand_picked().into_iter().chain([Corpus::from_machine()])
}

/// The output of `command` for each map whole, a few keys one by one, and all those keys at once.
fn transcript(host: &TestHost, corpus: &Corpus, command: &str) -> Vec<u8> {
    let script = format!(
        r#"ask() {{
               {command} -- "$@" 2>/dev/null || code=$?
               printf '%s ' "$@" "exit ${{code:-0}}"; echo; code=
           }}
           for map in passwd group shadow; do ask $map; done
           for map in passwd group initgroups shadow; do
               ask $map "$@"
               for key; do ask $map "$key"; done
           done"#
    );
    let names = corpus.keys().names;
    let step = names.len().div_ceil(KEYS);
    let keys = names.iter().step_by(step).map(|name| OsStr::from_bytes(name));
    let told = run(host.command("sh").args(["-c", &script, "sh"]).args(keys));
    assert_eq!(told.code, 0, "{}: {}", corpus.label, told.error());
    // Every corpus has requests for every map whole, and for all keys in all maps: seven exit codes.
    let verdicts = told.stdout.windows(5).filter(|text| text == b"exit ").count();
    assert!(verdicts >= 7, "{}: {verdicts} verdicts of {command}", corpus.label);
    if !names.is_empty() && corpus.passwd.starts_with(b"root:") {
        assert!(told.stdout.starts_with(b"root:"), "{}: {command} lists nothing", corpus.label);
    }
    told.stdout
}
