//! The prose of `--help` and of the man pages: examples, exit codes, files, other pages.

/// A page for each command, and one for the program.
pub const COMMANDS: &str = include_str!("../man/commands.txt");

/// The end of `roster NAME --help`.
pub fn after_help(name: &str) -> String {
    roster_cli_docs::after_help(COMMANDS, name)
}
