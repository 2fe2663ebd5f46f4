// SPDX-License-Identifier: MIT OR Apache-2.0
//! Man pages and the end of `--help`. The options of roster-exec(1) come from the table of its parser. The texts are in
//! `man/*.txt`, and `roster_cli_docs` formats them.

use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;
use roster_cli_docs::{ManPage, completions, write_file_page};
use roster_exec::args;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// roster-rootwrap(8).
pub const ROOTWRAP: ManPage = ManPage {
    name: "roster-rootwrap",
    section: "8",
    synopsis: &[
        "CONF COMMAND [ARGUMENT]...",
        "check [--json] CONF",
        "explain [--mode compat|strict] CONF -- COMMAND [ARGUMENT]...",
        "check-policy FILE",
    ],
    text: include_str!("../man/roster-rootwrap.txt"),
};

/// roster-rootwrap-daemon(8).
pub const DAEMON: ManPage = ManPage {
    name: "roster-rootwrap-daemon",
    section: "8",
    synopsis: &["[--allow-uid UID]... CONF", "--native [--policy FILE] [--socket PATH]"],
    text: include_str!("../man/roster-rootwrap-daemon.txt"),
};

/// exec.toml(5).
pub(crate) const EXEC_TOML: &str = include_str!("../man/exec.toml.txt");

/// roster-exec(1).
const EXEC: ManPage =
    ManPage { name: args::NAME, section: "1", synopsis: &[args::USAGE], text: args::TEXT };

/// Returns `roster-exec` as a clap command, for its page and completions.
#[must_use]
pub fn exec_command() -> Command {
    let arguments = args::OPTIONS.iter().map(|option| {
        let argument =
            Arg::new(option.long).short(option.short).long(option.long).help(option.help);
        match option.value {
            Some("PATH") => argument.value_name("PATH").value_hint(ValueHint::FilePath),
            Some("USER") => argument.value_name("USER").value_hint(ValueHint::Username),
            Some(value) => argument.value_name(value),
            None => argument.action(clap::ArgAction::SetTrue),
        }
    });
    let command = Arg::new("command").value_name("COMMAND").num_args(1..).required(true);
    Command::new(args::NAME)
        .about(args::ABOUT)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(arguments)
        .arg(
            command
                .trailing_var_arg(true)
                .value_hint(ValueHint::CommandWithArguments)
                .help("The command with its arguments"),
        )
}

/// Returns completions of `roster-exec`.
#[must_use]
pub fn exec_completions(shell: Shell) -> Vec<u8> {
    if shell != Shell::Bash {
        return completions(shell, exec_command());
    }
    let names = |option: &args::OptionSpec| format!("-{} --{}", option.short, option.long);
    let names: Vec<String> = args::OPTIONS.iter().map(names).collect();
    include_str!("exec.bash").replace("@OPTIONS@", &names.join(" ")).into()
}

/// Returns the name by which the program was called.
#[must_use]
pub fn invoked_program() -> PathBuf {
    std::env::args_os().next().unwrap_or_default().into()
}

/// Writes roster-exec(1) and exec.toml(5) into a directory, and their paths to `out`.
pub fn write_exec_pages(folder: &Path, out: &mut dyn Write) -> io::Result<()> {
    EXEC.write_listed(exec_command(), folder, out)?;
    let mut text = Vec::new();
    write_file_page("exec.toml", "5", EXEC_TOML, &mut text)?;
    let path = folder.join("exec.toml.5");
    fs::write(&path, text)?;
    writeln!(out, "{}", path.display())
}
