// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generates man pages and completion scripts from [`args`](crate::args) and [`help_text`](crate::help_text).

use crate::args::Cli;
use crate::generate::{create_directory, write_error};
use crate::help_text::COMMANDS;
use crate::man_roster_toml;
use anyhow::Result;
use clap::{Command, CommandFactory};
use roster_cli_docs::{completions, write_command_page, write_file_page};
use std::fs;
use std::io::Write;
use std::path::Path;

/// pam_roster(8). `crates/sync/pam/src/options.rs` defines the options of the module.
const PAM_ROSTER: &str = include_str!("../man/pam_roster.txt");

/// Writes roster.1, roster-compile.1 and so on, roster.toml.5 and pam_roster.8.
pub fn write_man_pages(folder: &Path, out: &mut dyn Write) -> Result<()> {
    create_directory(folder)?;
    // The command `help` of clap has no page.
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    collect("", &program, &mut pages);
    for (name, command) in pages {
        let mut text = Vec::new();
        write_command_page(command, COMMANDS, &name, &mut text)?;
        write_page(folder, &format!("{}.1", page_name(&name)), &text, out)?;
    }
    let mut text = Vec::new();
    man_roster_toml::write(&mut text)?;
    write_page(folder, "roster.toml.5", &text, out)?;
    text.clear();
    write_file_page("pam_roster", "8", PAM_ROSTER, &mut text)?;
    write_page(folder, "pam_roster.8", &text, out)
}

/// Collects a command and its subcommands, with their names behind the program name.
fn collect<'c>(name: &str, command: &'c Command, pages: &mut Vec<(String, &'c Command)>) {
    pages.push((name.to_owned(), command));
    let shown = |command: &&Command| command.get_name() != "help" && !command.is_hide_set();
    for command in command.get_subcommands().filter(shown) {
        collect(format!("{name} {}", command.get_name()).trim_start(), command, pages);
    }
}

/// Formats `domain list` as `roster-domain-list`.
fn page_name(name: &str) -> String {
    format!("roster {name}").trim_end().replace(' ', "-")
}

fn write_page(folder: &Path, name: &str, text: &[u8], out: &mut dyn Write) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(|error| write_error(&path, error))?;
    Ok(writeln!(out, "{}", path.display())?)
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
    fn every_page_belongs_to_a_command() {
        let program = Cli::command();
        let mut commands = Vec::new();
        collect("", &program, &mut commands);
        for page in page_names(COMMANDS) {
            assert!(commands.iter().any(|(name, _)| name == page), "{page}");
        }
    }

    #[test]
    fn a_man_page_has_the_usual_sections_in_the_usual_order() {
        let mut program = Cli::command();
        program.build();
        let mut text = Vec::new();
        let get = program.find_subcommand("get").unwrap();
        write_command_page(get, COMMANDS, "get", &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let sections: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        assert_eq!(
            sections,
            [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "\"EXIT STATUS\"",
                "ENVIRONMENT",
                "FILES",
                "EXAMPLES",
                "\"SEE ALSO\""
            ]
        );
    }
}
