// SPDX-License-Identifier: MIT OR Apache-2.0
//! Man pages and completion scripts, generated from [`args`](crate::args) and [`help_text`](crate::help_text). Both are
//! the only source of the texts.

use crate::args::Cli;
use crate::coded::Coded;
use crate::help_text::COMMANDS;
use anyhow::Result;
use clap::CommandFactory;
use roster_cli_docs::{completions, write_command_page};
use roster_messages::table::lab;
use std::fs;
use std::io::Write;
use std::path::Path;

/// Writes roster-lab.1, roster-lab-ldap.1 and so on.
pub fn write_man_pages(folder: &Path, out: &mut dyn Write) -> Result<()> {
    let text = format_args!("{}: cannot be created", folder.display());
    fs::create_dir_all(folder).coded(&lab::DIRECTORY_NOT_CREATED, text)?;
    // clap's command `help` has no page.
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let below = program.get_subcommands().map(|command| (command.get_name(), command));
    for (name, command) in std::iter::once(("", &program)).chain(below) {
        let mut text = Vec::new();
        write_command_page(command, COMMANDS, name, &mut text)?;
        let file = format!("roster-lab {name}").trim_end().replace(' ', "-");
        let path = folder.join(format!("{file}.1"));
        let problem = format_args!("{}: cannot be written", path.display());
        fs::write(&path, text).coded(&lab::FILE_UNWRITABLE, problem)?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}

/// Prints the completion script.
pub fn write_completions(shell: clap_complete::Shell, out: &mut dyn Write) -> Result<()> {
    Ok(out.write_all(&completions(shell, Cli::command()))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_cli_docs::page_names;

    #[test]
    fn help_request_number_is_no_line_break() {
        let mut program = Cli::command();
        for name in ["ldap", "dns"] {
            let help = program.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            assert!(help.contains("{n}"), "{help}");
        }
        let help = program.render_long_help().to_string();
        assert!(help.contains("An n in braces is the number"), "{help}");
    }

    #[test]
    fn every_command_has_a_page_with_its_options_examples_and_exit_codes() {
        let folder = tempfile::tempdir().unwrap();
        write_man_pages(folder.path(), &mut Vec::new()).unwrap();
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(page_names(COMMANDS).any(|page| page == name), "{name}");
            let path = folder.path().join(format!("roster-lab-{name}.1"));
            let text = fs::read_to_string(&path).unwrap();
            for section in ["SYNOPSIS", "OPTIONS", "EXIT STATUS", "EXAMPLES"] {
                assert!(text.contains(section), "{name}: {section}");
            }
        }
    }
}
