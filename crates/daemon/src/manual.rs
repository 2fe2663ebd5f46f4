//! What people read of rosterd beside its options: signals, exit statuses, files. One table feeds the
//! end of `--help` and the man page rosterd(8); all else in both comes from [`crate::cli`].

use crate::cli::Cli;
use crate::exit;
use anyhow::Context as _;
use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Of an explanation in `--help`, which clap leaves as it is.
const WIDTH: usize = 74;

struct Section {
    title: &'static str,
    terms: &'static [(&'static str, &'static str)],
}

const SECTIONS: [Section; 5] = [
    Section {
        title: "Signals",
        terms: &[
            (
                "SIGHUP",
                "Read the configuration anew. Roles whose part of it changed are started again, the \
                 others are left alone. With a mistake in it the old one goes on, and roster status \
                 shows the mistake.",
            ),
            ("SIGTERM, SIGINT", "End every role in good order, then the bus."),
        ],
    },
    Section {
        title: "Exit status",
        terms: &[
            ("0", "Ended as told."),
            ("64", "Wrong options or arguments."),
            ("67", "A user that a role runs as is missing in /etc/passwd."),
            ("69", "There is no dbus-daemon."),
            ("70", "A fault of rosterd itself."),
            ("71", "The system refused something that should work."),
            ("73", "A folder, socket or file cannot be made."),
            ("75", "Another rosterd runs with the same folders."),
            ("78", "The configuration, or a file that it names, is wrong or cannot be read."),
        ],
    },
    Section {
        title: "Environment",
        terms: &[(
            "NOTIFY_SOCKET, WATCHDOG_USEC, JOURNAL_STREAM",
            "Set by systemd, for readiness, watchdog and journal.",
        )],
    },
    Section {
        title: "Files",
        terms: &[
            ("/etc/roster/roster.toml", "The configuration."),
            ("/var/lib/roster/roster.snap", "The snapshot that programs read."),
            (
                "/var/lib/roster/roster.domains",
                "How many users and groups it has of each domain: what a publisher that was started anew \
                 must not lose.",
            ),
            (
                "/var/lib/roster/roster.places",
                "Where in it each domain's entries lie: for a publisher that was started anew, when what a \
                 back-end has cannot be taken.",
            ),
            (
                "/var/lib/roster/domains/NAME",
                "The cache of a domain. It may be deleted while rosterd does not run: the domain is \
                 then fetched anew.",
            ),
            ("/run/roster/bus", "The message bus, for root and the user that rosterd runs as."),
            (
                "/run/roster/nss",
                "The socket where programs ask for entries of domains with mode = \"on-demand\".",
            ),
            ("/run/roster/rosterd.pid", "The process id of the monitor, and its lock."),
        ],
    },
    Section {
        title: "See also",
        terms: &[("roster.toml(5), roster-status(1), roster-check-config(1), dbus-daemon(1)", "")],
    },
];

/// The end of `--help`.
pub fn after_help() -> String {
    let mut text = String::new();
    for section in &SECTIONS {
        text.push_str(section.title);
        text.push_str(":\n");
        for (term, meaning) in section.terms {
            text.push_str("  ");
            text.push_str(term);
            text.push('\n');
            for line in wrapped(meaning) {
                text.push_str("      ");
                text.push_str(&line);
                text.push('\n');
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

/// Writes rosterd.8; gives the exit status.
pub fn write_page(folder: &Path) -> u8 {
    let written = || -> anyhow::Result<()> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let path = folder.join("rosterd.8");
        let mut text = Vec::new();
        render(&mut text)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(writeln!(io::stdout(), "{}", path.display())?)
    };
    status(written())
}

/// Prints a completion script; gives the exit status.
pub fn write_completions(shell: clap_complete::Shell) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "rosterd", &mut script);
    status(io::stdout().write_all(&script).context("cannot write"))
}

fn status(result: anyhow::Result<()>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(error) => {
            crate::say(format_args!("rosterd: {error:#}"));
            exit::CANNOT_CREATE
        }
    }
}

fn render(out: &mut dyn Write) -> io::Result<()> {
    let source = format!("roster {}", env!("CARGO_PKG_VERSION"));
    let command = Cli::command().disable_help_subcommand(true);
    let man = Man::new(command).section("8").manual("Roster").source(source);
    man.render_title(out)?;
    man.render_name_section(out)?;
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]);
    let options = " [--config FILE] [--state-dir FOLDER] [--run-dir FOLDER]";
    synopsis.text([bold("rosterd"), roman(options)]);
    synopsis.to_writer(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    for section in &SECTIONS {
        let mut roff = Roff::new();
        roff.control("SH", [section.title.to_uppercase().as_str()]);
        for (term, meaning) in section.terms {
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
