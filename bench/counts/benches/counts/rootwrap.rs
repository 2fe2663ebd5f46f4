// SPDX-License-Identifier: MIT OR Apache-2.0
//! One command judged by the filters of rootwrap. The host's facts are fixed, so no file is looked at.

use gungraun::prelude::*;
use roster_rootwrap::host_facts::{FileKind, FileStatus, HostFacts};
use roster_rootwrap::{Mode, RootwrapPolicy, evaluate};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const CONF: &[u8] = b"[DEFAULT]\nfilters_path=/etc/rootwrap.d\nexec_dirs=/usr/sbin,/usr/bin\n";
/// Rules for other commands that stand before the rule for the command.
const OTHER_RULES: usize = 200;
const COMMAND: [&str; 6] = ["ip", "netns", "exec", "qrouter-1", "sysctl", "-w"];
const UNKNOWN_COMMAND: [&str; 2] = ["unknown", "--all"];

/// A host on which all executables belong to root and can be executed.
struct FixedHost([(OsString, OsString); 1]);

impl HostFacts for FixedHost {
    fn may_execute(&self, _path: &Path) -> bool {
        true
    }

    fn status(&self, path: &Path) -> Option<FileStatus> {
        let is_file = path.file_name().is_some_and(|name| name == "ip" || name == "sysctl");
        let (kind, mode) =
            if is_file { (FileKind::File, 0o755) } else { (FileKind::Directory, 0o755) };
        Some(FileStatus { kind, uid: 0, gid: 0, mode, has_acl: false })
    }

    fn link(&self, _path: &Path) -> Option<PathBuf> {
        None
    }

    fn first_bytes(&self, _path: &Path, _buffer: &mut [u8]) {}

    fn working_dir(&self) -> Option<PathBuf> {
        Some(PathBuf::from("/"))
    }

    fn executable_of(&self, _pid: i64) -> Option<OsString> {
        None
    }

    fn first_argument_of(&self, _pid: i64) -> Option<OsString> {
        None
    }

    fn start_of(&self, _pid: i64) -> Option<u64> {
        None
    }

    fn environment(&self) -> &[(OsString, OsString)] {
        &self.0
    }

    fn user(&self) -> u32 {
        0
    }
}

/// A policy, a host, a command, and whether the policy allows it.
struct Case {
    mode: Mode,
    policy: RootwrapPolicy,
    host: FixedHost,
    argv: Vec<OsString>,
    is_allowed: bool,
}

impl Case {
    fn judge(&self) -> bool {
        evaluate(self.mode, &self.policy, &self.argv, &self.host).is_ok()
    }
}

/// Reads the filters and judges the command once, which fills the caches of the patterns.
fn prepare(mode: Mode, argv: &[&str], is_allowed: bool) -> Case {
    let mut filters = String::from("[Filters]\n");
    for number in 0..OTHER_RULES {
        let class = if number % 2 == 0 { "CommandFilter" } else { "RegExpFilter" };
        let pattern = if number % 2 == 0 { "" } else { ", tool, --id, [0-9a-f-]{36}" };
        writeln!(filters, "rule{number}: {class}, tool{number}, root{pattern}")
            .expect("a String grows");
    }
    filters.push_str(
        "sysctl: RegExpFilter, ip, root, ip, netns, exec, qrouter-[0-9a-f]+, sysctl, -w\n",
    );
    let policy =
        RootwrapPolicy::from_texts(CONF, &[filters.as_bytes()]).expect("the filters are valid");
    let host = FixedHost([(OsString::from("PATH"), OsString::from("/usr/sbin:/usr/bin"))]);
    let argv = argv.iter().map(|argument| OsStr::new(argument).to_owned()).collect();
    let case = Case { mode, policy, host, argv, is_allowed };
    assert_eq!(case.judge(), case.is_allowed);
    case
}

fn finish((case, is_allowed): (Case, bool)) {
    assert_eq!(is_allowed, case.is_allowed);
}

#[library_benchmark(setup = prepare, teardown = finish)]
#[bench::compat_allowed(Mode::Compat, &COMMAND, true)]
#[bench::compat_denied(Mode::Compat, &UNKNOWN_COMMAND, false)]
#[bench::strict_allowed(Mode::Strict, &COMMAND, true)]
#[bench::strict_denied(Mode::Strict, &UNKNOWN_COMMAND, false)]
fn filter(case: Case) -> (Case, bool) {
    let is_allowed = case.judge();
    (case, is_allowed)
}

library_benchmark_group!(name = filters, benchmarks = filter);
