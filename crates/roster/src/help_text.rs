// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of `--help` and the man pages beyond the arguments: examples, exit statuses, files, other pages. `args` has
//! the arguments.

/// The page of the program and of each command.
pub const COMMANDS: &str = include_str!("../man/commands.txt");

/// Returns the text at the end of `roster NAME --help`.
pub fn after_help(name: &str) -> String {
    roster_cli_docs::after_help(COMMANDS, name)
}
