// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `roster-exec`: one table for the parser, `--help`, the man page and the completions. It opens no
//! connection and prints nothing.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// One option.
#[derive(Debug)]
pub struct OptionSpec {
    /// The letter behind one dash.
    pub short: char,
    /// The name behind two dashes.
    pub long: &'static str,
    /// The name of its value, if it has one.
    pub value: Option<&'static str>,
    /// The text in `--help`.
    pub help: &'static str,
}

/// All options.
pub const OPTIONS: [OptionSpec; 5] = [
    OptionSpec {
        short: 'u',
        long: "user",
        value: Some("USER"),
        help: "Run it as this user rather than as root",
    },
    OptionSpec {
        short: 's',
        long: "socket",
        value: Some("PATH"),
        help: "Connect to this socket instead of /run/roster/exec",
    },
    OptionSpec {
        short: 't',
        long: "terminal",
        value: None,
        help: "Hand the command the caller's own terminal",
    },
    OptionSpec { short: 'h', long: "help", value: None, help: "Print this and end" },
    OptionSpec { short: 'V', long: "version", value: None, help: "Print the version and end" },
];

/// The name of the program.
pub const NAME: &str = "roster-exec";
/// The first line of `--help`.
pub const ABOUT: &str =
    "Run a command as root or as another user, if the policy of this host lets you";
/// The synopsis.
pub const USAGE: &str = "[OPTION]... COMMAND [ARGUMENT]...";

/// The end of `--help`, and the prose of the man page.
pub const TEXT: &str = include_str!("../man/roster-exec.txt");

/// The meaning of a command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Invocation<'w> {
    /// Print `--help`.
    Help,
    /// Print the version.
    Version,
    /// Run a command.
    Run {
        /// The user, if one is named.
        run_as: Option<&'w str>,
        /// The socket, if one is named.
        socket: Option<&'w [u8]>,
        /// Whether the command gets the caller's own terminal.
        keeps_terminal: bool,
        /// The command.
        argv: Vec<&'w [u8]>,
    },
}

/// Parses a command line without the name of the program. The error is a text for the user.
pub fn parse<'w>(
    words: impl IntoIterator<Item = &'w [u8]>,
) -> Result<Invocation<'w>, Cow<'static, str>> {
    let mut words = words.into_iter();
    let (mut run_as, mut socket, mut keeps_terminal) = (None, None, false);
    let first = loop {
        let word = words.next().ok_or("the command is missing")?;
        if word == b"--" {
            break words.next().ok_or("the command is missing")?;
        }
        let Some((option, value)) = parse_option(word)? else { break word };
        let mut value =
            || value.or_else(|| words.next()).ok_or(format!("--{} needs a value", option.long));
        match option.short {
            'u' => {
                let name = core::str::from_utf8(value()?)
                    .map_err(|_| "the name of the user is not UTF-8")?;
                // An empty name means root to the daemon. An unset variable in a script must not mean root.
                if name.is_empty() {
                    return Err("the name of the user is empty".into());
                }
                run_as = Some(name);
            }
            's' => {
                let path = value()?;
                if path.is_empty() {
                    return Err("the path of the socket is empty".into());
                }
                socket = Some(path);
            }
            't' => keeps_terminal = true,
            'h' => return Ok(Invocation::Help),
            _ => return Ok(Invocation::Version),
        }
    };
    let argv = [first].into_iter().chain(words).collect();
    Ok(Invocation::Run { run_as, socket, keeps_terminal, argv })
}

/// An option, and the value in the same word.
type ParsedOption<'w> = (&'static OptionSpec, Option<&'w [u8]>);

/// Returns the option of a word. `None`: the word is the command.
fn parse_option(word: &[u8]) -> Result<Option<ParsedOption<'_>>, String> {
    let unknown = || format!("unknown option {}", String::from_utf8_lossy(word));
    let (option, value) = match word {
        [b'-', b'-', long @ ..] => {
            let at = long.iter().position(|&byte| byte == b'=').unwrap_or(long.len());
            let option = OPTIONS.iter().find(|option| option.long.as_bytes() == &long[..at]);
            (option, long.get(at + 1..))
        }
        [b'-', short, rest @ ..] => {
            let option = OPTIONS.iter().find(|option| option.short == char::from(*short));
            (option, (!rest.is_empty()).then_some(rest))
        }
        _ => return Ok(None),
    };
    let option = option.ok_or_else(unknown)?;
    match value {
        Some(_) if option.value.is_none() => Err(unknown()),
        value => Ok(Some((option, value))),
    }
}

/// Returns the text of `--help`.
#[must_use]
pub fn help() -> String {
    let mut text = format!("{ABOUT}\n\nUsage: {NAME} {USAGE}\n\nOptions:\n");
    for OptionSpec { short, long, value, help } in &OPTIONS {
        let value = value.map(|value| format!(" <{value}>")).unwrap_or_default();
        text.push_str(&format!("  {:<22} {help}\n", format!("-{short}, --{long}{value}")));
    }
    text.push('\n');
    text.push_str(TEXT);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<'w>(
        run_as: Option<&'w str>,
        socket: Option<&'w str>,
        argv: &[&'w str],
    ) -> Result<Invocation<'w>, Cow<'static, str>> {
        let argv = argv.iter().map(|word| word.as_bytes()).collect();
        let socket = socket.map(str::as_bytes);
        Ok(Invocation::Run { run_as, socket, keeps_terminal: false, argv })
    }

    fn parse<'w>(words: &[&'w str]) -> Result<Invocation<'w>, Cow<'static, str>> {
        super::parse(words.iter().map(|word| word.as_bytes()))
    }

    #[test]
    fn what_is_behind_the_command_is_the_commands() {
        assert_eq!(parse(&["ls", "-u", "--help"]), run(None, None, &["ls", "-u", "--help"]));
        assert_eq!(parse(&["-u", "bob", "ls"]), run(Some("bob"), None, &["ls"]));
        assert_eq!(parse(&["-ubob", "--", "-x"]), run(Some("bob"), None, &["-x"]));
        assert_eq!(
            parse(&["--user=bob", "--socket", "/s", "ls"]),
            run(Some("bob"), Some("/s"), &["ls"])
        );
        let Ok(Invocation::Run { keeps_terminal, argv, .. }) = parse(&["-t", "ls"]) else {
            panic!()
        };
        assert_eq!((keeps_terminal, argv), (true, [&b"ls"[..]].into()));
        assert_eq!(parse(&["-h"]), Ok(Invocation::Help));
        assert_eq!(parse(&["--version", "ls"]), Ok(Invocation::Version));
        for words in [&["-u", "", "ls"][..], &["--user=", "ls"]] {
            assert_eq!(parse(words), Err("the name of the user is empty".into()), "{words:?}");
        }
        for words in [&[][..], &["-u"], &["-u", "bob"], &["-x", "ls"], &["--help=1"], &["--"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn every_option_is_in_the_help() {
        let help = help();
        for option in &OPTIONS {
            assert!(help.contains(&format!("-{}, --{}", option.short, option.long)));
        }
        assert!(help.lines().all(|line| line.len() <= 80), "{help}");
    }
}
