//! `roster` answers what glibc's `files` answers on the same text: every field, every return code,
//! the same order, through glibc's functions, through `getent`, and through `roster get`.

use roster_system_tests::corpus::{self, Corpus};
use roster_system_tests::differ::{assert_alike, difference, probe, seeds};
use roster_system_tests::host::{ROSTER, run};
use roster_system_tests::{Host, roster_program};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A process each, so fewer than the probe looks up.
const KEYS: usize = 24;

fn through_glibc(corpus: &Corpus) -> Option<String> {
    let host = Host::serving(corpus, ROSTER);
    let keys = corpus.keys();
    let [theirs, ours] = ["files", "roster"].map(|service| probe(&host, service, &keys));
    difference(corpus, &theirs, &ours)
}

#[test]
fn hand_picked_corpora_answer_alike() {
    assert_alike(corpus::hand_picked(), through_glibc);
}

#[test]
fn this_machines_own_files_answer_alike() {
    assert_alike([Corpus::of_this_machine()], through_glibc);
}

#[test]
fn random_corpora_answer_alike() {
    assert_alike(seeds().map(corpus::random), through_glibc);
}

/// What people see: text, order, exit code.
#[test]
fn getent_prints_the_same_for_both_services() {
    assert_alike(all_by_hand(), |corpus| {
        let host = Host::serving(corpus, ROSTER);
        let [theirs, ours] = ["files", "roster"]
            .map(|service| transcript(&host, corpus, &format!("getent -s {service}")));
        difference(corpus, &theirs, &ours)
    });
}

#[test]
fn roster_get_prints_what_getent_prints_for_files() {
    let get = format!("{} get", roster_program().display());
    assert_alike(all_by_hand(), |corpus| {
        let host = Host::serving(corpus, ROSTER);
        let [theirs, ours] =
            ["getent -s files", &get].map(|command| transcript(&host, corpus, command));
        difference(corpus, &theirs, &ours)
    });
}

fn all_by_hand() -> impl Iterator<Item = Corpus> {
    corpus::hand_picked().into_iter().chain([Corpus::of_this_machine()])
}

/// What `command` prints for each map whole, a few keys one by one, and all those keys at once.
fn transcript(host: &Host, corpus: &Corpus, command: &str) -> Vec<u8> {
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
    // Every map whole, and all maps for all keys, is asked for whatever the corpus: seven verdicts.
    let verdicts = told.stdout.windows(5).filter(|text| text == b"exit ").count();
    assert!(verdicts >= 7, "{}: {verdicts} verdicts of {command}", corpus.label);
    if !names.is_empty() && corpus.passwd.starts_with(b"root:") {
        assert!(told.stdout.starts_with(b"root:"), "{}: {command} lists nothing", corpus.label);
    }
    told.stdout
}
