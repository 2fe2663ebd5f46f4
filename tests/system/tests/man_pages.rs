// SPDX-License-Identifier: MIT OR Apache-2.0
//! Man pages as the programs write them: `mandoc -Tlint` finds no fault.

use roster_system_tests::{find_tool, roster_program, run};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const PROGRAMS: [&str; 5] =
    ["roster", "rosterd", "roster-rootwrap", "roster-rootwrap-daemon", "roster-lab"];

#[test]
fn man_pages_pass_mandoc_lint() {
    let pages = tempfile::tempdir().expect("make a directory");
    let programs = roster_program().parent().expect("a directory");
    for name in PROGRAMS {
        let written = run(Command::new(programs.join(name)).arg("man").arg(pages.path()));
        assert_eq!(written.code, 0, "{name}: {}", written.error());
    }
    let entries = fs::read_dir(pages.path()).expect("list the pages");
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    assert!(files.len() > 50, "{files:?}");
    let lint = run(Command::new(find_tool("mandoc", "mandoc")).arg("-Tlint").args(&files));
    assert_eq!((lint.code, lint.text()), (0, String::new()), "{}", lint.error());
}
