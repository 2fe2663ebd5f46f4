// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of `--help`, man pages and shell completions.
//!
//! A text file holds the prose of a program (`page_text`); all else in `--help` and the man page comes from the
//! definition that parses the program's arguments. Knows no program.

#![forbid(unsafe_code)]

mod page_layout;
mod page_text;
mod usage_lines;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Command, Subcommand, ValueHint};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
pub use page_text::{PageSection, TextBlock, after_help, man_sections, page_names};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
pub use usage_lines::{HELP_COLUMNS, with_usage_lines};

/// The colours of every program's `--help`.
pub const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// A program's man page, and the end of its `--help`.
#[derive(Debug)]
pub struct ManPage {
    /// The program.
    pub name: &'static str,
    /// The section of the manual.
    pub section: &'static str,
    /// The forms of its arguments, one for each line of the synopsis.
    pub synopsis: &'static [&'static str],
    /// The file with its prose.
    pub text: &'static str,
}

impl ManPage {
    /// The end of `--help`.
    #[must_use]
    pub fn after_help(&self) -> String {
        after_help(self.text, "")
    }

    /// Writes the man page of a program into `dir` and returns its path. Creates a missing directory.
    pub fn write(&self, program: Command, dir: &Path) -> io::Result<PathBuf> {
        let mut text = Vec::new();
        self.render(program, &mut text)?;
        fs::create_dir_all(dir)?;
        let path = dir.join(format!("{}.{}", self.name, self.section));
        fs::write(&path, page_bytes(&text))?;
        Ok(path)
    }

    /// Writes the man page as [`Self::write`] does, and its path to `out`.
    pub fn write_listed(
        &self,
        program: Command,
        dir: &Path,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let path = self.write(program, dir).map_err(|error| {
            let shown = dir.display();
            let text = format!("cannot write the man page into {shown}: {error}");
            io::Error::new(error.kind(), text)
        })?;
        writeln!(out, "{}", path.display())
    }

    fn render(&self, program: Command, out: &mut Vec<u8>) -> io::Result<()> {
        let program = program.disable_help_subcommand(true);
        let man = man(program.clone(), self.name).section(self.section);
        man.render_title(out)?;
        man.render_name_section(out)?;
        self.render_synopsis().to_writer(out)?;
        man.render_description_section(out)?;
        man.render_options_section(out)?;
        let mut rest = Roff::new();
        self.render_commands(&program, &mut rest);
        for section in man_sections(self.text, "") {
            section.write_roff(&mut rest);
        }
        rest.to_writer(out)
    }

    fn render_synopsis(&self) -> Roff {
        let mut roff = Roff::new();
        roff.control("SH", ["SYNOPSIS"]);
        for (number, way) in self.synopsis.iter().enumerate() {
            if number > 0 {
                roff.control("br", []);
            }
            roff.text([bold(self.name), roman(format!(" {way}"))]);
        }
        roff
    }

    /// Adds the commands of the program and their options, which have no separate pages.
    fn render_commands(&self, program: &Command, roff: &mut Roff) {
        let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
        for (number, command) in commands.enumerate() {
            if number == 0 {
                roff.control("SH", ["COMMANDS"]);
            }
            roff.control("TP", []);
            roff.text([bold(self.name), roman(" "), bold(command.get_name())]);
            roff.text([roman(about(command.get_about()))]);
            for option in command.get_arguments().filter(|argument| argument.get_long().is_some()) {
                roff.control("RS", []);
                roff.control("TP", []);
                roff.text([bold(format!("--{}", option.get_long().unwrap_or_default()))]);
                roff.text([roman(about(option.get_help()))]);
                roff.control("RE", []);
            }
        }
    }
}

fn about(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// The day of the texts in man pages. It changes with a release, so that equal sources give equal pages.
const PAGE_DATE: &str = "2026-11-27";

fn man_source() -> String {
    format!("roster {}", env!("CARGO_PKG_VERSION"))
}

/// Returns a page with title, date and source for the heading and the footer.
fn man(command: Command, name: &str) -> Man {
    Man::new(command)
        .title(name.to_uppercase())
        .date(PAGE_DATE)
        .manual("Roster")
        .source(man_source())
}

/// Returns the bytes of a page, laid out for man(1).
fn page_bytes(text: &[u8]) -> Vec<u8> {
    page_layout::lay_out(&String::from_utf8_lossy(text)).into_bytes()
}

/// Hidden commands of a program, for packagers.
#[derive(Clone, Debug, Subcommand)]
pub enum PackagerCommand {
    /// Write the man page into a directory
    #[command(hide = true)]
    Man {
        /// Directory, created if missing
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
    /// Print shell completions
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

impl PackagerCommand {
    /// Runs the command for a program with that page. `out` receives the path of the page, or the script.
    pub fn write(&self, page: &ManPage, program: Command, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Man { dir } => page.write_listed(program, dir, out),
            Self::Completions { shell } => out.write_all(&completions(*shell, program)),
        }
    }
}

/// Returns a completion script. It is made in memory, because the generator ends the program at a write error.
#[must_use]
pub fn completions(shell: clap_complete::Shell, mut program: Command) -> Vec<u8> {
    let mut script = Vec::new();
    let name = program.get_name().to_owned();
    clap_complete::generate(shell, &mut program, name, &mut script);
    script
}

/// Writes the man page of a built program or command. `page` names its prose in the text `file`.
pub fn write_command_page(
    command: &Command,
    file: &str,
    page: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut text = Vec::new();
    let name = command.get_display_name().unwrap_or(command.get_name());
    let man = man(command.clone(), name);
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    // The usage that `--help` shows: clap_mangen's own lacks the values of options.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let words = command.get_bin_name().unwrap_or(command.get_name());
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]);
    synopsis.text([bold(words), roman(usage.strip_prefix(words).unwrap_or(usage))]);
    synopsis.to_writer(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut rest = Roff::new();
    man_sections(file, page).iter().for_each(|section| section.write_roff(&mut rest));
    rest.to_writer(&mut text)?;
    out.write_all(&page_bytes(&text))
}

/// The beginning of a man page that is of no program.
#[must_use]
pub fn begin_man_page(name: &str, section: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("TH", [&*name.to_uppercase(), section, PAGE_DATE, &man_source(), "Roster"]);
    roff
}

/// Writes a page that began with [`begin_man_page`].
pub fn write_man_page(page: &Roff, out: &mut dyn Write) -> io::Result<()> {
    let mut text = Vec::new();
    page.to_writer(&mut text)?;
    out.write_all(&page_bytes(&text))
}

/// Writes a man page that is of no program, all of it out of a file.
pub fn write_file_page(
    name: &str,
    section: &str,
    file: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut roff = begin_man_page(name, section);
    man_sections(file, "").iter().for_each(|section| section.write_roff(&mut roff));
    write_man_page(&roff, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    const PAGE: ManPage = ManPage {
        name: "tool",
        section: "8",
        synopsis: &["FILE", "check"],
        text: "Exit status:\n  0\n      Done, and so on and so on and so on and so on and so on and so on and so on.\n\n\
               See also:\n  tool(5)\n",
    };

    fn program() -> Command {
        let check =
            Command::new("check").about("Check it").arg(Arg::new("j").long("json").help("As JSON"));
        let hidden = Command::new("man").hide(true);
        Command::new("tool").about("Does it").subcommands([check, hidden])
    }

    #[test]
    fn the_end_of_help_has_every_section_in_lines_that_fit() {
        let style = STYLES.get_header();
        let plain =
            PAGE.after_help().replace(&format!("{style}"), "").replace(&format!("{style:#}"), "");
        assert_eq!(
            plain,
            "Exit status:\n  0   Done, and so on and so on and so on and so on and so on and so on and so\n      on.\n\n\
             See also:\n  tool(5)"
        );
    }

    #[test]
    fn a_man_page_has_every_section_and_every_command_that_is_shown() {
        let dir = std::env::temp_dir().join(format!("roster-manual-{}", std::process::id()));
        let path = PAGE.write(program(), &dir).unwrap();
        assert_eq!(path, dir.join("tool.8"));
        let text = fs::read_to_string(path).unwrap();
        fs::remove_dir_all(dir).unwrap();
        let titles: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        let expected = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "COMMANDS",
            "\"EXIT STATUS\"",
            "\"SEE ALSO\"",
        ];
        assert_eq!(titles, expected);
        assert!(
            text.contains("\\-\\-json") && text.contains("As JSON") && !text.contains("man\n"),
            "{text}"
        );
    }
}
