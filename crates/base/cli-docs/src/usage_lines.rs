// SPDX-License-Identifier: MIT OR Apache-2.0
//! Breaks the `Usage:` of a program's commands into lines that fit a terminal: clap prints all required options in one
//! line. Everything else of `--help` is broken by clap itself.

use clap::Command;

/// Columns of a line of `--help`.
pub const HELP_COLUMNS: usize = 80;
const TITLE: &str = "Usage: ";
const INDENT: &str = "           ";

/// Gives each command of a program a usage with lines of at most [`HELP_COLUMNS`].
#[must_use]
pub fn with_usage_lines(mut program: Command) -> Command {
    program.build();
    break_usage(program)
}

fn break_usage(mut command: Command) -> Command {
    let usage = command.render_usage().to_string();
    for below in command.get_subcommands_mut() {
        *below = break_usage(std::mem::take(below));
    }
    let too_long = usage.lines().any(|line| line.chars().count() > HELP_COLUMNS);
    if too_long { command.override_usage(usage_lines(&usage)) } else { command }
}

/// Returns the usage without its title, broken before an argument.
fn usage_lines(usage: &str) -> String {
    let usage = usage.strip_prefix(TITLE).unwrap_or(usage);
    let (mut text, mut column) = (String::new(), TITLE.len());
    for word in arguments(usage) {
        let width = word.chars().count();
        if text.is_empty() {
            column += width;
        } else if column + 1 + width > HELP_COLUMNS {
            text += "\n";
            text += INDENT;
            column = INDENT.len() + width;
        } else {
            text += " ";
            column += 1 + width;
        }
        text += word;
    }
    text
}

/// Splits a usage at spaces, but neither inside of brackets nor between an option and its value.
fn arguments(usage: &str) -> Vec<&str> {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, byte) in usage.bytes().enumerate() {
        match byte {
            b'<' | b'[' => depth += 1,
            b'>' | b']' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 => {
                let word = &usage[start..at];
                let has_value = word.starts_with("--") && !word.contains(' ');
                if !(has_value && usage[at + 1..].starts_with('<')) {
                    found.push(word);
                    start = at + 1;
                }
            }
            _ => {}
        }
    }
    found.push(&usage[start..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn program() -> Command {
        let option =
            |name: &'static str| Arg::new(name).long(name).value_name("VALUE").required(true);
        let names = ["first-of-all", "second-of-all", "third-of-all", "fourth-of-all"];
        let load = Command::new("load").args(names.map(option));
        Command::new("program").subcommand(load).subcommand(Command::new("short"))
    }

    #[test]
    fn usage_breaks_before_an_option() {
        let mut program = with_usage_lines(program());
        let load = program.find_subcommand_mut("load").unwrap();
        assert_eq!(
            load.render_usage().to_string(),
            "Usage: program load --first-of-all <VALUE> --second-of-all <VALUE>\n           \
             --third-of-all <VALUE> --fourth-of-all <VALUE>"
        );
        let short = program.find_subcommand_mut("short").unwrap();
        assert_eq!(short.render_usage().to_string(), "Usage: program short");
    }

    #[test]
    fn usage_lines_change_no_parsing() {
        let parse = |line: &str| with_usage_lines(program()).try_get_matches_from(line.split(' '));
        let all =
            "program load --first-of-all 1 --second-of-all 2 --third-of-all 3 --fourth-of-all 4";
        let found = parse(all).unwrap();
        let (name, load) = found.subcommand().unwrap();
        assert_eq!((name, load.get_one::<String>("third-of-all").unwrap().as_str()), ("load", "3"));
        assert!(parse("program load --first-of-all 1").is_err());
    }

    #[test]
    fn usage_groups_stay_together() {
        let usage = "p [OPTIONS] --kdc <HOST> <--user <NAME>|--all> -- <COMMAND>...";
        let expected =
            ["p", "[OPTIONS]", "--kdc <HOST>", "<--user <NAME>|--all>", "-- <COMMAND>..."];
        assert_eq!(arguments(usage), expected);
    }
}
