// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/reference/snapshot-format.md suffices to write a reader: `python/read_snapshot.py` was written from that page
//! alone, and prints the output of `roster get`.

use roster_system_tests::corpus::{self, Corpus};
use roster_system_tests::test_host::{ROSTER_NSSWITCH, find_tool};
use roster_system_tests::{TestHost, roster_program};
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// Names of keys given to one process.
const KEYS_MAX: usize = 200;

fn alike(host: &TestHost, label: &str, database: &str, keys: &[&[u8]]) {
    let shadow = host.shadow_snapshot_path();
    let file = if database == "shadow" { shadow } else { host.snapshot_path() };
    if !file.exists() {
        return;
    }
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/read_snapshot.py");
    let keys = || keys.iter().map(|key| OsStr::from_bytes(key));
    let mut ours = Command::new(roster_program());
    ours.arg("get").arg(database).args(keys()).arg("--snapshot").arg(&file);
    let mut theirs = Command::new(find_tool("python3", "python3"));
    theirs.arg(reader).arg(&file).arg(database).args(keys());
    let [ours, theirs] = [ours, theirs].map(|mut command| command.output().expect("run"));
    let complaint = String::from_utf8_lossy(&theirs.stderr);
    assert_eq!(theirs.status.code(), ours.status.code(), "{label}, {database}: {complaint}");
    assert!(theirs.stdout == ours.stdout, "{label}, {database}: the answers differ");
}

fn all_alike(corpus: &Corpus) {
    let host = TestHost::serving(corpus, ROSTER_NSSWITCH);
    let keys = corpus.keys();
    // The command line decides which keys are options or numbers in one form or another, so plain names alone are used.
    let plain = |name: &&Vec<u8>| name.first().is_some_and(u8::is_ascii_alphabetic);
    let names: Vec<&[u8]> =
        keys.names.iter().filter(plain).take(KEYS_MAX).map(Vec::as_slice).collect();
    for database in ["passwd", "group", "shadow"] {
        alike(&host, &corpus.label, database, &[]);
        alike(&host, &corpus.label, database, &names);
    }
    alike(&host, &corpus.label, "initgroups", &names);
    alike(&host, &corpus.label, "passwd", &[b"0", b"1", b"1000", b"4294967294"]);
    alike(&host, &corpus.label, "group", &[b"0", b"1", b"100", b"4294967294"]);
}

#[test]
fn a_reader_written_from_the_page_reads_the_hand_picked_corpora() {
    for corpus in corpus::hand_picked() {
        // getent, and so `roster get`, leaves out an entry with a colon in its last field.
        let texts = [(&corpus.passwd, 6), (&corpus.group, 3), (&corpus.shadow, 8)];
        let lines = |text: &'_ [u8], most: usize| {
            text.split(|&byte| byte == b'\n').all(|line| colons(line) <= most)
        };
        if texts.into_iter().all(|(text, most)| lines(text, most)) {
            all_alike(&corpus);
        }
    }
}

fn colons(line: &[u8]) -> usize {
    line.iter().filter(|&&byte| byte == b':').count()
}

#[test]
fn it_reads_numbers_of_four_bytes() {
    let (mut passwd, mut group) = (String::new(), String::from("all:x:1:"));
    for user in 0..70_000 {
        writeln!(passwd, "user{user}:x:{user}:1:::").expect("write to a string");
        write!(group, "user{user},").expect("write to a string");
    }
    group.push('\n');
    let corpus = Corpus::new("wide", passwd.as_bytes(), group.as_bytes(), b"");
    let host = TestHost::serving(&corpus, ROSTER_NSSWITCH);
    alike(&host, "wide", "group", &[]);
    alike(&host, "wide", "initgroups", &[b"user0", b"user65536", b"user69999", b"nobody"]);
}
