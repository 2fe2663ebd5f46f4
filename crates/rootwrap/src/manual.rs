//! What people read of the two programs beside their options: examples, exit statuses, files. One table
//! each feeds the end of `--help` and the man page; all else in both comes from the definition that
//! parses their arguments.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Of an explanation in `--help`, which clap leaves as it is.
const WIDTH: usize = 74;

/// A program's sections.
#[derive(Debug)]
pub struct Page {
    /// The program.
    pub name: &'static str,
    synopsis: &'static [&'static str],
    sections: &'static [Section],
}

/// A title, and terms with what they mean.
type Section = (&'static str, &'static [(&'static str, &'static str)]);

const CONF: (&str, &str) =
    ("/etc/*/rootwrap.conf", "The configuration, which names the folders of filters.");
const BAD_CONFIG: (&str, &str) = ("97", "The configuration cannot be used; the message says why.");

/// Of `roster-rootwrap`.
pub const ROOTWRAP: Page = Page {
    name: "roster-rootwrap",
    synopsis: &[
        "CONF COMMAND [ARGUMENT]...",
        "check [--json] CONF",
        "explain [--mode compat|strict] CONF -- COMMAND [ARGUMENT]...",
        "check-policy FILE",
    ],
    sections: &[
        (
            "Examples",
            &[
                (
                    "sudo roster-rootwrap /etc/nova/rootwrap.conf ip link show",
                    "Run ip as the filters of nova let it.",
                ),
                (
                    "roster-rootwrap check /etc/nova/rootwrap.conf",
                    "Every mistake, and what strict mode would read otherwise.",
                ),
                (
                    "roster-rootwrap explain /etc/nova/rootwrap.conf -- ip netns exec q ls",
                    "Which rule decides, and why.",
                ),
            ],
        ),
        (
            "Exit status",
            &[
                ("0-255", "That of the command; 128 and the signal's number if it died of one."),
                ("1", "The command could not be started; or check found a mistake."),
                ("96", "A rule lets the command run, and there is no executable."),
                BAD_CONFIG,
                ("98", "There is no command, or the options are wrong."),
                ("99", "No rule lets the command run."),
            ],
        ),
        ("Files", &[CONF, ("/dev/log", "Where commands are told, with use_syslog.")]),
        ("See also", &[("roster-rootwrap-daemon(8), sudo(8), sudoers(5)", "")]),
    ],
};

/// Of `roster-rootwrap-daemon`.
pub const DAEMON: Page = Page {
    name: "roster-rootwrap-daemon",
    synopsis: &["[--allow-uid UID]... CONF"],
    sections: &[
        (
            "Examples",
            &[(
                "nova ALL = (root) NOPASSWD: /usr/sbin/roster-rootwrap-daemon /etc/nova/rootwrap.conf",
                "In sudoers(5): nova may start it, and its client's rootwrap_daemon_cmd names the same.",
            )],
        ),
        (
            "Signals",
            &[(
                "SIGTERM, SIGINT",
                "Take no new command, let those that run end, hand their results over, and end.",
            )],
        ),
        (
            "Exit status",
            &[
                (
                    "0",
                    "Ended as told, with its client, or because nothing was asked for daemon_timeout seconds.",
                ),
                ("1", "The socket cannot be made."),
                BAD_CONFIG,
                ("98", "The options are wrong, or there is more than a configuration."),
            ],
        ),
        (
            "Environment",
            &[
                (
                    "SUDO_UID",
                    "Set by sudo: this user may connect, besides root and the owner of standard output.",
                ),
                (
                    "TMPDIR",
                    "The folder of the socket's folder, and of output that is too large for memory; by default /tmp.",
                ),
            ],
        ),
        (
            "Files",
            &[
                CONF,
                (
                    "/tmp/rootwrap-*/rootwrap.sock",
                    "The socket. Its path and the key go to standard output.",
                ),
                ("/dev/log", "Where commands are told, with use_syslog."),
            ],
        ),
        ("See also", &[("roster-rootwrap(8), sudo(8), sudoers(5)", "")]),
    ],
};

/// The program by the name that it was called by.
#[must_use]
pub fn called() -> PathBuf {
    std::env::args_os().next().unwrap_or_default().into()
}

/// The end of `--help`.
#[must_use]
pub fn after_help(page: &Page) -> String {
    let mut text = String::new();
    for (title, terms) in page.sections {
        text.push_str(title);
        text.push_str(":\n");
        for (term, meaning) in *terms {
            text.push_str(&format!("  {term}\n"));
            for line in wrapped(meaning) {
                text.push_str(&format!("      {line}\n"));
            }
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Writes the man page into a folder, and its path to `out`.
pub fn write_page(
    page: &Page,
    command: Command,
    folder: &Path,
    out: &mut dyn Write,
) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let path = folder.join(page.name).with_extension("8");
    let mut text = Vec::new();
    render(page, command, &mut text)?;
    fs::write(&path, text)?;
    writeln!(out, "{}", path.display())
}

fn render(page: &Page, command: Command, out: &mut dyn Write) -> io::Result<()> {
    let source = format!("roster {}", env!("CARGO_PKG_VERSION"));
    let command = command.disable_help_subcommand(true);
    let described = command.clone();
    let man = Man::new(command).section("8").manual("Roster").source(source);
    man.render_title(out)?;
    man.render_name_section(out)?;
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]);
    for (number, way) in page.synopsis.iter().enumerate() {
        if number > 0 {
            synopsis.control("br", []);
        }
        synopsis.text([bold(page.name), roman(format!(" {way}"))]);
    }
    synopsis.to_writer(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    render_commands(page, &described, out)?;
    for (title, terms) in page.sections {
        let mut roff = Roff::new();
        roff.control("SH", [title.to_uppercase().as_str()]);
        for (term, meaning) in *terms {
            if meaning.is_empty() {
                roff.text([roman(*term)]);
            } else {
                roff.control("TP", []);
                roff.text([bold(*term)]);
                roff.text([roman(*meaning)]);
            }
        }
        roff.to_writer(out)?;
    }
    Ok(())
}

/// Commands of a program with their options, which have no pages of their own.
fn render_commands(page: &Page, program: &Command, out: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    for (number, command) in commands.enumerate() {
        if number == 0 {
            roff.control("SH", ["COMMANDS"]);
        }
        roff.control("TP", []);
        roff.text([bold(page.name), roman(" "), bold(command.get_name())]);
        roff.text([roman(about(command.get_about()))]);
        for option in command.get_arguments().filter(|argument| argument.get_long().is_some()) {
            roff.control("RS", []);
            roff.control("TP", []);
            roff.text([bold(format!("--{}", option.get_long().unwrap_or_default()))]);
            roff.text([roman(about(option.get_help()))]);
            roff.control("RE", []);
        }
    }
    roff.to_writer(out)
}

fn about(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}
