//! Scripts that strict mode does not run for the sake of their interpreters.

use crate::conf::{PATH, os};
use crate::host::Facts;
use crate::interpreter::{distrust_of_interpreters, untrusted};
use crate::judge::{Mode, trusted_folders};
use crate::policy::Policy;
use crate::problem::Problem;
use crate::python::{is_absolute, join};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One of each script on this host that rules lead to.
pub(super) fn problems(policy: &Policy, facts: &dyn Facts) -> Vec<Problem> {
    let folders = policy.conf.folders_of_executables(Some(OsStr::new(PATH)));
    let path = || trusted_folders(facts, &folders);
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for rule in policy.rules(Mode::Strict) {
        let Some(place) = &rule.place else { continue };
        let candidates: Vec<OsString> = match is_absolute(rule.exec_path.as_bytes()) {
            true => vec![OsString::from(&rule.exec_path)],
            false => {
                let in_folder =
                    |folder: &OsString| join(folder.as_bytes(), rule.exec_path.as_bytes());
                folders.iter().map(|folder| os(in_folder(folder))).collect()
            }
        };
        for file in candidates {
            let is_new = facts.may_execute(Path::new(&file)) && seen.insert(file.clone());
            if !is_new || untrusted(facts, &file).is_some() {
                continue;
            }
            if let Some(why) = distrust_of_interpreters(facts, &file, &path) {
                let what = format!("{}: strict mode does not run it: {why}", rule.name);
                let instead = "give the interpreter to root, writable by root alone";
                problems.push(Problem::warning(&place.file, place.line, what, instead));
            }
        }
    }
    problems
}
