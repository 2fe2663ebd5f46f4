// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts of `--help` and of the man pages: examples, exit codes, related pages. [`args`](crate::args) has the options.

/// Texts of each command and of the program.
pub const COMMANDS: &str = include_str!("../man/commands.txt");

/// Returns the end of `roster-lab NAME --help`.
pub fn after_help(name: &str) -> String {
    roster_cli_docs::after_help(COMMANDS, name)
}
