// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text rules of `roster-passwd-format` are those of glibc's `files`, without a snapshot in between.

use roster_system_tests::compare_services::{assert_alike, difference, dump_service, seeds};
use roster_system_tests::corpus::{self, Corpus};
use roster_system_tests::{TestHost, files_model};

fn check(corpus: &Corpus) -> Option<String> {
    let keys = corpus.keys();
    let host = TestHost::new(corpus, "");
    difference(corpus, &dump_service(&host, "files", &keys), &files_model::dump(corpus, &keys))
}

#[test]
fn hand_picked_texts_are_read_as_files_reads_them() {
    assert_alike(corpus::hand_picked(), check);
}

#[test]
fn this_machines_text_is_read_as_files_reads_it() {
    assert_alike([Corpus::from_machine()], check);
}

#[test]
fn random_texts_are_read_as_files_reads_them() {
    assert_alike(seeds().map(corpus::random), check);
}

/// The one oddity that is not copied. When glibc fixes it, it can go from the text rules too.
#[test]
fn files_leading_space_doubles_end_of_line() {
    let passwd = b"a:x:1:1:::/bin/sh\n  b:x:2:2:::/bin/sh";
    let corpus = Corpus::new("doubled end", passwd, b"", b"");
    let keys = corpus.keys();
    let theirs = dump_service(&TestHost::new(&corpus, ""), "files", &keys);
    let ours = files_model::dump(&corpus, &keys);
    let holds = |text: &[u8], line: &str| String::from_utf8_lossy(text).contains(line);
    assert!(holds(&theirs, r#""b" -> 0 "b" "x" 2 2 "" "" "/bin/shsh""#));
    assert!(holds(&ours, r#""b" -> 0 "b" "x" 2 2 "" "" "/bin/sh""#));
}
