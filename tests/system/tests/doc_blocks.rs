// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fenced blocks of all documents: commands run or are parsed, configuration is read by its program. See
//! tests/system/python/doc_blocks.py.

use roster_system_tests::{exec_program, library_dir, roster_program, run};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Programs beside the one under test.
const PROGRAMS: [&str; 5] =
    ["roster", "rosterd", "roster-rootwrap", "roster-rootwrap-daemon", "roster-lab"];

#[test]
fn documents_blocks_run_and_parse() {
    let programs = tempfile::tempdir().expect("make a directory");
    fs::set_permissions(programs.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let folder = roster_program().parent().expect("a directory").to_owned();
    for name in PROGRAMS {
        symlink(folder.join(name), programs.path().join(name)).expect("link");
    }
    symlink(exec_program(), programs.path().join("roster-exec")).expect("link");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Debian's, for which its packages are: another may come first in PATH.
    let mut python = Command::new("/usr/bin/python3");
    python.arg("-B").arg(root.join("python/doc_blocks.py")).arg(root.join("../.."));
    let done = run(python.arg(programs.path()).arg(library_dir()));
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.code, 0, "{text}{}", done.error());
    let count: u32 =
        text.lines().last().and_then(|line| line.split(' ').next()?.parse().ok()).expect(&text);
    assert!(count > 90, "{text}");
}
