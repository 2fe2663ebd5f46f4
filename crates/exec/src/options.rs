//! The command line of `roster-exec`: one table, of which the parser, `--help`, the man page and the
//! completions are made.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// One option.
#[derive(Debug)]
pub struct Opt {
    /// Behind one dash.
    pub short: char,
    /// Behind two.
    pub long: &'static str,
    /// What its value is called, if it has one.
    pub value: Option<&'static str>,
    /// What it does.
    pub help: &'static str,
}

/// All of them.
pub const OPTIONS: [Opt; 5] = [
    Opt {
        short: 'u',
        long: "user",
        value: Some("USER"),
        help: "Run it as this user rather than as root",
    },
    Opt {
        short: 's',
        long: "socket",
        value: Some("PATH"),
        help: "The daemon's socket, if it is not /run/roster/exec",
    },
    Opt {
        short: 't',
        long: "terminal",
        value: None,
        help: "Hand the command the caller's own terminal",
    },
    Opt { short: 'h', long: "help", value: None, help: "Print this and end" },
    Opt { short: 'V', long: "version", value: None, help: "Print the version and end" },
];

/// The program.
pub const NAME: &str = "roster-exec";
/// What it does, in a line.
pub const ABOUT: &str =
    "Run a command as root or as another user, if the policy of this host lets you";
/// How it is called.
pub const USAGE: &str = "[OPTION]... COMMAND [ARGUMENT]...";

/// Terms, and what they mean.
pub type Terms = &'static [(&'static str, &'static str)];

/// What else there is to know, each with its title.
pub const SECTIONS: &[(&str, Terms)] = &[
    (
        "Examples",
        &[
            ("roster-exec systemctl restart nginx", "As a rule of /etc/roster/exec.toml lets you."),
            ("roster-exec -u postgres psql -l", "As another user than root."),
        ],
    ),
    (
        "Exit status",
        &[
            (
                "0-255",
                "That of the command; where it died of a signal, so does roster-exec, without a core dump.",
            ),
            ("124", "The rule's time was over, and the command was killed."),
            ("125", "roster-exec or the daemon failed; the message says why."),
            ("126", "No rule lets you run it, or the executable is not fit to be executed."),
            ("127", "There is no such executable."),
        ],
    ),
    (
        "Notes",
        &[
            (
                "Signals and keys",
                "SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT and SIGWINCH reach the command, \
                 from a terminal or sent to roster-exec, but those that roster-exec's caller has it ignore. What \
                 ends roster-exec itself, as SIGKILL does, ends the command by SIGHUP, and after five seconds by \
                 SIGKILL. Before the command begins, a second signal to end, or five seconds after the first, ends \
                 roster-exec.",
            ),
            (
                "Closed descriptors",
                "A command whose caller has closed 0, 1 or 2 finds /dev/null there, opened so that reading 0 and writing \
                 1 or 2 fail as if they were closed.",
            ),
            ("Long command lines", "No more than 65,536 words, and 4 MiB of words and variables."),
            (
                "Directory",
                "The command runs in the directory of its caller. Its user may be unable to open relative names there.",
            ),
            (
                "Upgrades",
                "A daemon that is told to end lets commands end for a minute, in which it starts no others: \
                 roster-exec asks again for five seconds, and then says so.",
            ),
            (
                "Terminals",
                "Where 0, 1 or 2 is a terminal, the command gets a terminal (pty) of roster-exec's instead: a process that \
                 the command leaves behind does not read what is typed later. Keys reach the command if 0 is a terminal and 1 is \
                 not a pipe: a pager behind a pipe has the keys. -t hands on the caller's own terminal, as a command \
                 that reads keys and writes to a pipe needs it; so does a call by root for root. The terminal is not the command's own in either case: /dev/tty cannot be opened, a shell \
                 has no job control, and a command in the background that reads waits.",
            ),
        ],
    ),
    (
        "Files",
        &[
            ("/run/roster/exec", "The socket of the daemon that runs commands."),
            ("/etc/roster/exec.toml", "Who may run what: exec.toml(5)."),
        ],
    ),
];

/// What somebody calls it for.
#[derive(Debug, PartialEq, Eq)]
pub enum Call<'w> {
    /// To be told how.
    Help,
    /// To be told the version.
    Version,
    /// To run a command.
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

/// Reads a command line without the program's own name. An error says what is wrong with it.
pub fn parse<'w>(words: impl IntoIterator<Item = &'w [u8]>) -> Result<Call<'w>, Cow<'static, str>> {
    let mut words = words.into_iter();
    let (mut run_as, mut socket, mut keeps_terminal) = (None, None, false);
    let first = loop {
        let word = words.next().ok_or("there is no command")?;
        if word == b"--" {
            break words.next().ok_or("there is no command")?;
        }
        let Some((option, value)) = option_of(word)? else { break word };
        let mut value =
            || value.or_else(|| words.next()).ok_or(format!("--{} needs a value", option.long));
        match option.short {
            'u' => {
                let name = core::str::from_utf8(value()?).map_err(|_| "a user's name is UTF-8")?;
                // To the daemon it would be none: root. A variable that is not set has not meant that.
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
            'h' => return Ok(Call::Help),
            _ => return Ok(Call::Version),
        }
    };
    let argv = [first].into_iter().chain(words).collect();
    Ok(Call::Run { run_as, socket, keeps_terminal, argv })
}

/// An option, with the value that is in its word.
type Given<'w> = (&'static Opt, Option<&'w [u8]>);

/// The option of a word; `None` if it is the command.
fn option_of(word: &[u8]) -> Result<Option<Given<'_>>, String> {
    let unknown = || format!("there is no option {}", String::from_utf8_lossy(word));
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

/// What `--help` prints.
#[must_use]
pub fn help() -> String {
    let mut text = format!("{ABOUT}\n\nUsage: {NAME} {USAGE}\n\nOptions:\n");
    for Opt { short, long, value, help } in &OPTIONS {
        let value = value.map(|value| format!(" <{value}>")).unwrap_or_default();
        text.push_str(&format!("  {:<22} {help}\n", format!("-{short}, --{long}{value}")));
    }
    for (title, terms) in SECTIONS {
        text.push_str(&format!("\n{title}:\n"));
        for (term, meaning) in *terms {
            text.push_str(&format!("  {term}\n"));
            wrap(meaning, &mut text);
        }
    }
    text
}

/// Lines of no more than 80 characters, as a term's meaning.
fn wrap(meaning: &str, text: &mut String) {
    const INDENT: &str = "     ";
    let mut width = 0;
    for word in meaning.split(' ') {
        if width > 0 && width + 1 + word.len() > 80 {
            text.push('\n');
            width = 0;
        }
        if width == 0 {
            text.push_str(INDENT);
            width = INDENT.len();
        }
        text.push(' ');
        text.push_str(word);
        width += 1 + word.len();
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<'w>(
        run_as: Option<&'w str>,
        socket: Option<&'w str>,
        argv: &[&'w str],
    ) -> Result<Call<'w>, Cow<'static, str>> {
        let argv = argv.iter().map(|word| word.as_bytes()).collect();
        let socket = socket.map(str::as_bytes);
        Ok(Call::Run { run_as, socket, keeps_terminal: false, argv })
    }

    fn parse<'w>(words: &[&'w str]) -> Result<Call<'w>, Cow<'static, str>> {
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
        let Ok(Call::Run { keeps_terminal, argv, .. }) = parse(&["-t", "ls"]) else { panic!() };
        assert_eq!((keeps_terminal, argv), (true, [&b"ls"[..]].into()));
        assert_eq!(parse(&["-h"]), Ok(Call::Help));
        assert_eq!(parse(&["--version", "ls"]), Ok(Call::Version));
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
