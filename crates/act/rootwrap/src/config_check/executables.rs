// SPDX-License-Identifier: MIT OR Apache-2.0
//! Warnings about executables that compat mode runs, and that strict mode does not trust, or with untrusted
//! interpreters. `path_trust` and `interpreter` decide about the trust.

use crate::diagnostic::warning;
use crate::evaluate::trusted_dirs;
use crate::host_facts::HostFacts;
use crate::interpreter::distrust_of_program;
use crate::mode::Mode;
use crate::python_strings::{is_absolute, join, os_string};
use crate::rootwrap_conf::SECURE_PATH;
use crate::rootwrap_policy::RootwrapPolicy;
use roster_messages::Diagnostic;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns a warning for each such executable of a rule on this host.
pub(super) fn problems(policy: &RootwrapPolicy, facts: &dyn HostFacts) -> Vec<Diagnostic> {
    let folders = policy.conf.executable_dirs(Some(OsStr::new(SECURE_PATH)));
    let path = || trusted_dirs(facts, &folders);
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for rule in policy.rules(Mode::Strict) {
        let Some(place) = &rule.location else { continue };
        let candidates: Vec<OsString> = match is_absolute(rule.exec_path.as_bytes()) {
            true => vec![OsString::from(&rule.exec_path)],
            false => {
                let in_folder =
                    |folder: &OsString| join(folder.as_bytes(), rule.exec_path.as_bytes());
                folders.iter().map(|folder| os_string(in_folder(folder))).collect()
            }
        };
        for file in candidates {
            let is_new = facts.may_execute(Path::new(&file)) && seen.insert(file.clone());
            if !is_new {
                continue;
            }
            if let Some((message, why)) = distrust_of_program(facts, &file, &path) {
                let text = format!("strict mode does not execute it: {why}");
                let problem = warning(message, &place.file, place.line, text);
                problems.push(Diagnostic { key: rule.name.clone(), ..problem });
            }
        }
    }
    problems
}
