// SPDX-License-Identifier: MIT OR Apache-2.0
//! A policy of privileged commands and a command: no bytes may crash the readers, the patterns or the evaluation, or
//! make them run for ever. The input is a rootwrap.conf, a filter file and the arguments of a command, separated by
//! lines that are `%`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_rootwrap::host_facts::LocalHost;
use roster_rootwrap::{Mode, RootwrapPolicy, config_check, evaluate, explain};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

fuzz_target!(|input: &[u8]| {
    let mut parts = split(input, b"\n%\n").into_iter();
    let conf = parts.next().unwrap_or_default();
    let filters = parts.next().unwrap_or_default();
    let argv: Vec<OsString> = parts.map(|word| OsString::from_vec(word.to_vec())).collect();
    // A configuration that is wrong leaves the filters still to be read.
    let conf_or_plain: &[u8] = match RootwrapPolicy::from_texts(conf, &[]) {
        Ok(_) => conf,
        Err(_) => b"[DEFAULT]\nfilters_path=/x\nexec_dirs=/usr/bin,/bin\n",
    };
    let Ok(policy) = RootwrapPolicy::from_texts(conf_or_plain, &[filters]) else { return };
    let host = LocalHost::with_environment(vec![("PATH".into(), "/usr/bin:/bin".into())]);
    for mode in [Mode::Compat, Mode::Strict] {
        let verdict = evaluate(mode, &policy, &argv, &host);
        if let Ok(verdict) = &verdict {
            assert!(!verdict.argv().is_empty());
            let strict = mode == Mode::Strict;
            let first = verdict.argv()[0].as_encoded_bytes();
            assert!(!strict || first.starts_with(b"/"), "strict runs absolute paths");
            assert!(policy.rules(mode).any(|rule| std::ptr::eq(rule, verdict.rule())));
        }
        // The explanation has the same verdict.
        let explanation = explain::explain(mode, &policy, &argv, &host);
        assert_eq!(explanation.outcome.is_ok(), verdict.is_ok());
        let _ = explanation.to_string();
    }
    if filters.len() < 512 {
        let _ = config_check::check(&policy, &host);
    }
});

fn split<'i>(input: &'i [u8], by: &[u8]) -> Vec<&'i [u8]> {
    let mut parts = Vec::new();
    let mut rest = input;
    while let Some(at) = rest.windows(by.len()).position(|window| window == by) {
        parts.push(&rest[..at]);
        rest = &rest[at + by.len()..];
    }
    parts.push(rest);
    parts
}
