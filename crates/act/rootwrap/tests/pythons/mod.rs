// SPDX-License-Identifier: MIT OR Apache-2.0
//! Versions of Python for tests of clients, and programs that they run.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns a program with a time limit.
pub fn bounded(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300"]).arg(program);
    command
}

/// Runs a program that must succeed, and returns its output.
pub fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// Returns the path of a file beside the tests.
pub fn own(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file)
}

/// Returns a Python that can import oslo.rootwrap.
pub fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("ROSTER_OSLO_ROOTWRAP") {
        return python.into();
    }
    let binary = std::env::current_exe().unwrap();
    let target = binary.ancestors().nth(3).unwrap();
    let python = target.join("tools/oslo-rootwrap/bin/python");
    assert!(python.exists(), "{} is missing: run scripts/need test", python.display());
    python
}

/// Returns a Python of each supported version, as found or installed by `scripts/need test`.
pub fn pythons() -> Vec<PathBuf> {
    let list = python().ancestors().nth(3).unwrap().join("pythons.txt");
    let text = fs::read_to_string(&list)
        .unwrap_or_else(|error| panic!("{}: {error}: run scripts/need test", list.display()));
    let found = text.lines().map(|line| PathBuf::from(line.split_once(' ').unwrap().1));
    let found: Vec<PathBuf> = found.collect();
    assert!(!found.is_empty(), "{}: it names no Python", list.display());
    for python in &found {
        assert!(python.exists(), "{} is missing: run scripts/need test", python.display());
    }
    found
}

/// Returns the minor version of a Python.
pub fn minor(python: &Path) -> usize {
    let script = "import sys; print(sys.version_info[1])";
    run(bounded(python).args(["-c", script])).trim().parse().unwrap()
}

/// Returns true as root. Otherwise the test fails, unless `ROSTER_SKIP_ROOT_TESTS=1` skips it.
pub fn needs_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let skip = std::env::var_os("ROSTER_SKIP_ROOT_TESTS").is_some_and(|value| value == "1");
    assert!(is_root || skip, "this test needs root; run as root, or set ROSTER_SKIP_ROOT_TESTS=1");
    is_root
}
