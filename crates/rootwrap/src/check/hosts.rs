//! Hosts that a rule is tried on: this one as it is, and one that has every executable, trusted, and a
//! process for each rule about processes.

use super::PID;
use crate::filters::{Class, Rule};
use crate::host::{Facts, Kind, Status};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// This host with no more of an environment than `$PATH`, and perhaps with a process that a rule speaks of.
pub(super) struct Supposed<'f> {
    facts: &'f dyn Facts,
    environment: Vec<(OsString, OsString)>,
    process: Option<OsString>,
}

impl<'f> Supposed<'f> {
    /// Without processes.
    pub(super) fn here(facts: &'f dyn Facts) -> Self {
        let path = facts.variable("PATH").unwrap_or(OsStr::new("/usr/bin:/bin")).to_owned();
        Self { facts, environment: vec![("PATH".into(), path)], process: None }
    }

    /// With the process that this rule is about, if it is about one.
    pub(super) fn of(facts: &'f dyn Facts, rule: &Rule) -> Self {
        let here = Self::here(facts);
        let path = here.variable("PATH").unwrap_or_default();
        let process = match &rule.class {
            Class::Kill(arguments) => arguments.first().map(|program| {
                let folder = crate::conf::split(path).next().unwrap_or_default();
                crate::conf::os(crate::python::join(folder.as_encoded_bytes(), program.as_bytes()))
            }),
            _ => None,
        };
        Self { process, ..here }
    }
}

impl Facts for Supposed<'_> {
    fn may_execute(&self, path: &Path) -> bool {
        self.facts.may_execute(path)
    }

    fn status(&self, path: &Path) -> Option<Status> {
        self.facts.status(path)
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.facts.link(path)
    }

    fn first_bytes(&self, path: &Path, buffer: &mut [u8]) {
        self.facts.first_bytes(path, buffer);
    }

    fn working_folder(&self) -> Option<PathBuf> {
        self.facts.working_folder()
    }

    fn executable_of(&self, pid: i64) -> Option<OsString> {
        self.process.clone().filter(|_| pid == PID)
    }

    fn first_word_of(&self, pid: i64) -> Option<OsString> {
        self.executable_of(pid)
    }

    fn start_of(&self, pid: i64) -> Option<u64> {
        self.executable_of(pid).map(|_| 0)
    }

    fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    fn user(&self) -> u32 {
        self.facts.user()
    }
}

/// The same with every executable that a rule could lead to, none of which others could change.
pub(super) struct Wholly<'s>(pub(super) &'s Supposed<'s>);

impl Facts for Wholly<'_> {
    fn may_execute(&self, _path: &Path) -> bool {
        true
    }

    fn status(&self, path: &Path) -> Option<Status> {
        let kind = self.0.status(path).map_or(Kind::File, |found| found.kind);
        Some(Status { kind, uid: 0, gid: 0, mode: 0o755, has_acl: false })
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.0.link(path)
    }

    fn first_bytes(&self, _path: &Path, _buffer: &mut [u8]) {}

    fn working_folder(&self) -> Option<PathBuf> {
        self.0.working_folder()
    }

    fn executable_of(&self, pid: i64) -> Option<OsString> {
        self.0.executable_of(pid)
    }

    fn first_word_of(&self, pid: i64) -> Option<OsString> {
        self.0.first_word_of(pid)
    }

    fn start_of(&self, pid: i64) -> Option<u64> {
        self.0.start_of(pid)
    }

    fn environment(&self) -> &[(OsString, OsString)] {
        self.0.environment()
    }

    fn user(&self) -> u32 {
        self.0.user()
    }
}
