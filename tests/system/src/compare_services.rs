// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares two services on a corpus, and reports differences.

use crate::artifacts::c_program;
use crate::corpus::{Corpus, LookupKeys};
use crate::test_host::{ProgramOutput, TestHost, run};
use std::fs::{self, File};

/// The number of random corpora that a run compares, unless `ROSTER_CORPORA` sets it.
const CORPORA: u64 = 300;

/// The random corpora of this run: `ROSTER_CORPORA` of them, from the seed `ROSTER_SEED`.
///
/// # Panics
/// If a variable is not a number.
#[must_use]
pub fn seeds() -> std::ops::Range<u64> {
    let number = |name, default| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    };
    let first = number("ROSTER_SEED", 1);
    first..first + number("ROSTER_CORPORA", CORPORA)
}

/// The probe's output on `host` when `service` answers.
///
/// # Panics
/// If the probe does not run to its end.
#[must_use]
pub fn dump_service(host: &TestHost, service: &str, keys: &LookupKeys) -> Vec<u8> {
    let ProgramOutput { stdout, stderr, code } = dump_output(host, service, keys);
    assert_eq!(code, 0, "the probe of {service}: {}", String::from_utf8_lossy(&stderr));
    stdout
}

fn dump_output(host: &TestHost, service: &str, keys: &LookupKeys) -> ProgramOutput {
    let file = host.path("keys");
    fs::write(&file, keys.encode()).expect("write the keys");
    let input = File::open(&file).expect("open the keys");
    run(host.command(c_program("dump_service")).arg(service).stdin(input))
}

/// The first difference between two services on `corpus`, and how to run it alone; nothing if they are alike.
#[must_use]
pub fn difference(corpus: &Corpus, theirs: &[u8], ours: &[u8]) -> Option<String> {
    let again = match corpus.label.strip_prefix("seed ") {
        Some(seed) => format!("  again: ROSTER_SEED={seed} ROSTER_CORPORA=1 make test\n"),
        None => String::new(),
    };
    (theirs != ours)
        .then(|| format!("{}:\n{}\n{again}", corpus.label, differing_lines(theirs, ours)))
}

/// Panics with the differences that `check` finds on any of the corpora, each named.
///
/// # Panics
/// If it finds anything.
#[track_caller]
pub fn assert_alike(
    corpora: impl IntoIterator<Item = Corpus>,
    check: impl Fn(&Corpus) -> Option<String>,
) {
    /// Enough to see the pattern; a broken rule fails on most corpora.
    const FAILURES_MAX: usize = 5;
    let failures: Vec<_> =
        corpora.into_iter().filter_map(|corpus| check(&corpus)).take(FAILURES_MAX).collect();
    assert!(failures.is_empty(), "the services differ on\n{}", failures.join("\n"));
}

/// The first few differing lines, each cut to a readable length.
fn differing_lines(theirs: &[u8], ours: &[u8]) -> String {
    let [theirs, ours] = [theirs, ours].map(|text| text.split(|&byte| byte == b'\n'));
    let shown = |line: Option<&[u8]>| match line {
        Some(line) => String::from_utf8_lossy(&line[..line.len().min(300)]).into_owned(),
        None => "(nothing)".to_owned(),
    };
    let mut theirs = theirs.fuse();
    let mut ours = ours.fuse();
    let mut report = Vec::new();
    loop {
        match (theirs.next(), ours.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => report.push(format!("  files:  {}\n  roster: {}", shown(a), shown(b))),
        }
        if report.len() == 3 {
            break;
        }
    }
    report.join("\n")
}
