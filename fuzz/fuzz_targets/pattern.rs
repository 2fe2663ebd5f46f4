// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pattern and a word, separated by a newline: no bytes may crash the reader or the matcher, or exceed the limit of
//! steps. Compat mode matches each word that strict mode matches.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_rootwrap::Mode;
use roster_rootwrap::pattern::{MatchBudget, Pattern};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Fewer than a verdict has, so that inputs that come to the bound take little time.
const STEPS: u64 = 1 << 18;

fuzz_target!(|input: &[u8]| {
    let at = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let (text, word) = input.split_at(at);
    let Ok(text) = std::str::from_utf8(text) else { return };
    let word = OsStr::from_bytes(word.get(1..).unwrap_or_default());
    let pattern = Pattern::new(text);
    let [compat, strict] = [Mode::Compat, Mode::Strict].map(|mode| {
        let work = MatchBudget::new(STEPS);
        let answer = pattern.matches(mode, word, &work);
        assert!(work.steps() <= STEPS);
        answer
    });
    assert!(strict != Ok(true) || compat != Ok(false), "{text:?} {word:?}");
});
