//! What people read beside the options: examples, exit codes, files, other pages.
//!
//! One table feeds the end of `--help` and the sections of the man pages; all else in both comes
//! from [`crate::cli`].

use crate::cli::Cli;
use crate::{manual, pam_page};
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_mangen::roff::{Inline, Roff, bold};
use roster_manual::{begin, completions, examples, explained, section, see_also};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// A text and what it means.
type Pairs = &'static [(&'static str, &'static str)];

struct Page {
    /// The command, with the one that it belongs to before it; empty for the program.
    name: &'static str,
    examples: Pairs,
    exit: Pairs,
    environment: Pairs,
    files: Pairs,
    see_also: &'static [&'static str],
}

const ROSTER_SNAPSHOT: (&str, &str) = (
    "ROSTER_SNAPSHOT",
    "Absolute path of a snapshot to read instead of the default one, by programs with the module and \
     by roster get; that of password hashes is shadow.snap beside it. The module does not follow \
     symbolic links on that path, and takes a file and folders of root or the user only, to which \
     no others can write; a sticky folder may be everybody's. If the path is relative or not to be \
     trusted in that way, it answers UNAVAIL, and does not go back to the default. Programs \
     of root and privileged programs, such as those that are set-uid, ignore the variable.",
);
const NO_COLOR: (&str, &str) = ("NO_COLOR", "If set and not empty, output has no colours.");

const ROSTER_SNAP: (&str, &str) =
    ("/var/lib/roster/snap/roster.snap", "The snapshot that programs read.");
const COPY: (&str, &str) =
    ("/run/roster/snap/*", "Its copy in memory, which programs map in place of it.");
const SHADOW_SNAP: (&str, &str) = (
    "/var/lib/roster/shadow/shadow.snap",
    "The snapshot of password hashes, for root and group shadow.",
);
const FLOOR: (&str, &str) = (
    "/etc/roster/floor",
    "The smallest uid and gid, and the primary gids below it, that programs accept of a snapshot that \
     root does not own.",
);
const NSSWITCH: (&str, &str) =
    ("/etc/nsswitch.conf", "Which services glibc asks, and in which order.");
const BACKUP: (&str, &str) =
    ("/etc/nsswitch.conf.roster-backup", "The file as it was before roster enable.");

const ROSTER_RUN_DIR: (&str, &str) =
    ("ROSTER_RUN_DIR", "The folder with the daemon's sockets, where --run-dir is not given.");
const BUS: (&str, &str) =
    ("/run/roster/bus", "The daemon's message bus, for root and the user that the daemon runs as.");
const CONFIG: (&str, &str) = ("/etc/roster/roster.toml", "The configuration of rosterd.");

const DONE: (&str, &str) = ("0", "Done.");
const FAILED: (&str, &str) = ("1", "Failed; the message says why and what to do.");
const WRONG_USE: (&str, &str) = ("2", "Wrong options or arguments.");

const PAGES: &[Page] = &[
    Page {
        name: "",
        examples: &[
            (
                "roster compile --passwd users --group groups --output /var/lib/roster/snap/roster.snap",
                "Make the snapshot that programs read.",
            ),
            ("roster enable --dry-run", "See what would change in nsswitch.conf."),
            ("roster doctor", "Check the whole way from a program to the snapshot."),
            ("roster status", "See how the daemon and its directories are."),
        ],
        exit: &[
            ("0", "Done, or all well."),
            ("1", "Failed, or a problem was found."),
            ("2", "Wrong options or arguments; in roster get: a key was not found."),
            ("3", "In roster status: rosterd is not running."),
        ],
        environment: &[ROSTER_SNAPSHOT, ROSTER_RUN_DIR, NO_COLOR],
        files: &[ROSTER_SNAP, SHADOW_SNAP, FLOOR, CONFIG, BUS, NSSWITCH],
        see_also: &[
            "rosterd(8)",
            "roster.toml(5)",
            "nsswitch.conf(5)",
            "getent(1)",
            "passwd(5)",
            "group(5)",
        ],
    },
    Page {
        name: "compile",
        examples: &[
            (
                "roster compile --passwd /etc/passwd --group /etc/group --output test.snap",
                "Compile this host's own accounts into a file to look at.",
            ),
            (
                "roster compile --passwd p --group g --shadow s --output /var/lib/roster/snap/roster.snap",
                "Publish users, groups and, in /var/lib/roster/shadow/shadow.snap, password hashes.",
            ),
            (
                "roster compile … --json | jq '.outputs[].remarks[]'",
                "List every line that was skipped or is hidden, with the reason.",
            ),
        ],
        exit: &[
            ("0", "Published; skipped and hidden lines are named on standard error."),
            ("1", "Failed; the old snapshot is still in place."),
            WRONG_USE,
        ],
        environment: &[],
        files: &[ROSTER_SNAP, COPY, SHADOW_SNAP],
        see_also: &["roster-inspect(1)", "roster-enable(1)", "passwd(5)", "group(5)", "shadow(5)"],
    },
    Page {
        name: "inspect",
        examples: &[
            ("roster inspect /var/lib/roster/snap/roster.snap", "Counts, sections and sizes."),
            (
                "roster inspect --json /var/lib/roster/snap/roster.snap | jq .generation",
                "The number of the publication.",
            ),
        ],
        exit: &[DONE, ("1", "The file cannot be read, or is no sound snapshot."), WRONG_USE],
        environment: &[],
        files: &[ROSTER_SNAP, SHADOW_SNAP],
        see_also: &["roster-verify(1)", "roster-get(1)"],
    },
    Page {
        name: "verify",
        examples: &[(
            "roster verify /var/lib/roster/snap/roster.snap",
            "Read and check everything.",
        )],
        exit: &[
            ("0", "The snapshot is sound."),
            ("1", "It is damaged, no snapshot, or cannot be read."),
            WRONG_USE,
        ],
        environment: &[],
        files: &[ROSTER_SNAP, SHADOW_SNAP],
        see_also: &["roster-inspect(1)", "roster-doctor(1)"],
    },
    Page {
        name: "get",
        examples: &[
            ("roster get passwd alice 1001", "Two users, by name and by id."),
            ("roster get initgroups alice", "The ids of alice's supplementary groups."),
            (
                "diff <(getent -s roster group) <(roster get group)",
                "Compare what programs see with what the snapshot holds.",
            ),
            ("roster get --snapshot test.snap group -- -staff", "A key that starts with a dash."),
        ],
        exit: &[
            ("0", "All keys were found."),
            ("1", "Wrong arguments, unknown database, or no readable snapshot."),
            ("2", "A key was not found."),
            ("3", "The database cannot be enumerated (initgroups)."),
        ],
        environment: &[ROSTER_SNAPSHOT],
        files: &[ROSTER_SNAP, SHADOW_SNAP],
        see_also: &["getent(1)", "roster-inspect(1)"],
    },
    Page {
        name: "enable",
        examples: &[
            ("roster enable --dry-run", "See the change."),
            ("roster enable && roster doctor", "Make it, and check that programs see the users."),
            ("roster enable --file image/etc/nsswitch.conf", "Prepare an image."),
        ],
        exit: &[
            ("0", "Enabled, now or before."),
            ("1", "The file is left as it was; the message names the line and what to do."),
            WRONG_USE,
        ],
        environment: &[NO_COLOR],
        files: &[NSSWITCH, BACKUP],
        see_also: &["roster-disable(1)", "roster-doctor(1)", "nsswitch.conf(5)"],
    },
    Page {
        name: "disable",
        examples: &[
            ("roster disable --dry-run", "See the change."),
            ("roster disable", "Take Roster out; the snapshot stays where it is."),
        ],
        exit: &[("0", "Disabled, now or before."), ("1", "The file is left as it was."), WRONG_USE],
        environment: &[NO_COLOR],
        files: &[NSSWITCH, BACKUP],
        see_also: &["roster-enable(1)", "nsswitch.conf(5)"],
    },
    Page {
        name: "doctor",
        examples: &[
            ("sudo roster doctor", "Check everything."),
            (
                "roster doctor --json | jq '.findings[] | select(.level == \"problem\")'",
                "Problems only, for a monitoring system.",
            ),
        ],
        exit: &[
            ("0", "No problems, though there may be warnings."),
            ("1", "Problems were found."),
            WRONG_USE,
        ],
        environment: &[ROSTER_SNAPSHOT, NO_COLOR],
        files: &[NSSWITCH, ROSTER_SNAP, SHADOW_SNAP, CONFIG, BUS],
        see_also: &[
            "roster-enable(1)",
            "roster-verify(1)",
            "roster-status(1)",
            "nsswitch.conf(5)",
            "nscd(8)",
        ],
    },
    Page {
        name: "status",
        examples: &[
            ("sudo roster status", "See how everything is."),
            (
                "roster status --json | jq '.domains[] | select(.online | not) | .domain'",
                "Domains that are offline, for a monitoring system.",
            ),
            (
                "roster status --json | jq .snapshot.generation",
                "The number of the last publication.",
            ),
        ],
        exit: &[
            ("0", "All well, though there may be warnings."),
            (
                "1",
                "Something is wrong: a process of the daemon is down, a domain is offline, the \
                 configuration or the snapshot was refused, programs cannot use the snapshot, or their \
                 lookups failed in the last minute; or the daemon may not be asked.",
            ),
            WRONG_USE,
            ("3", "rosterd is not running, as systemctl status says it of any service."),
        ],
        environment: &[ROSTER_RUN_DIR, NO_COLOR],
        files: &[BUS],
        see_also: &["rosterd(8)", "roster-domain(1)", "roster-doctor(1)", "systemctl(1)"],
    },
    Page {
        name: "domain",
        examples: &[
            ("roster domain list", "The domains, a line each."),
            ("roster domain rejected corp", "Which entries are not served, and why."),
        ],
        exit: &[DONE, FAILED, WRONG_USE],
        environment: &[ROSTER_RUN_DIR],
        files: &[BUS],
        see_also: &["roster-status(1)", "roster.toml(5)", "rosterd(8)"],
    },
    Page {
        name: "domain list",
        examples: &[
            ("roster domain list", "The domains, a line each."),
            (
                "roster domain list --json | jq -r '.[] | [.domain, .served_users] | @tsv'",
                "How many users of each are served.",
            ),
        ],
        exit: &[DONE, FAILED, WRONG_USE],
        environment: &[ROSTER_RUN_DIR],
        files: &[BUS],
        see_also: &["roster-domain-show(1)", "roster-status(1)"],
    },
    Page {
        name: "domain show",
        examples: &[("roster domain show corp", "Server, state, entries, last change.")],
        exit: &[DONE, FAILED, WRONG_USE],
        environment: &[ROSTER_RUN_DIR],
        files: &[BUS],
        see_also: &["roster-domain-list(1)", "roster-status(1)"],
    },
    Page {
        name: "domain refresh",
        examples: &[("roster domain refresh corp", "Read all of corp again.")],
        exit: &[("0", "The directory is being read."), FAILED, WRONG_USE],
        environment: &[ROSTER_RUN_DIR],
        files: &[BUS],
        see_also: &["roster-domain-show(1)", "roster-cache-expire(1)"],
    },
    Page {
        name: "domain rejected",
        examples: &[
            ("roster domain rejected corp", "Reasons, with numbers and what to do."),
            ("roster domain rejected corp --all | grep alice", "Why one user is not served."),
        ],
        exit: &[DONE, FAILED, WRONG_USE],
        environment: &[ROSTER_RUN_DIR],
        files: &[BUS],
        see_also: &["roster-cache-show(1)", "roster.toml(5)"],
    },
    Page {
        name: "domain confirm",
        examples: &[
            ("roster domain show corp", "See how many entries are held."),
            ("roster domain confirm corp", "Remove those that the directory does not have."),
        ],
        exit: &[
            (
                "0",
                "Held entries that the directory does not have are removed; or no entry was held.",
            ),
            FAILED,
            WRONG_USE,
        ],
        environment: &[ROSTER_RUN_DIR],
        files: &[BUS],
        see_also: &["roster-domain-show(1)", "roster.toml(5)"],
    },
    Page {
        name: "cache",
        examples: &[
            ("roster cache show user alice", "alice in every domain."),
            ("roster cache expire --user alice", "Have alice asked for again."),
        ],
        exit: &[DONE, ("1", "Failed, or there is no such entry."), WRONG_USE],
        environment: &[ROSTER_RUN_DIR],
        files: &[BUS],
        see_also: &["roster-domain(1)", "rosterd(8)"],
    },
    Page {
        name: "cache show",
        examples: &[
            ("roster cache show user alice", "alice in every domain, and why she is not served."),
            ("roster cache show group staff --json | jq '.[0].members'", "All members of staff."),
        ],
        exit: &[
            ("0", "There is at least one such entry, served or not."),
            ("1", "There is none; or rosterd cannot be asked."),
            WRONG_USE,
        ],
        environment: &[ROSTER_RUN_DIR],
        files: &[BUS],
        see_also: &["roster-domain-rejected(1)", "getent(1)"],
    },
    Page {
        name: "cache expire",
        examples: &[
            ("roster cache expire --user alice --group staff", "Ask for both again."),
            ("roster cache expire --all --domain corp", "Ask for everything in corp again."),
        ],
        exit: &[DONE, FAILED, WRONG_USE],
        environment: &[ROSTER_RUN_DIR],
        files: &[BUS],
        see_also: &["roster-domain-refresh(1)", "roster.toml(5)"],
    },
    Page {
        name: "cache credentials",
        examples: &[
            ("roster cache credentials", "Who could log in if the directory were away."),
            ("roster cache expire --credentials --user alice", "Forget alice's password here."),
        ],
        exit: &[DONE, FAILED, WRONG_USE],
        environment: &[ROSTER_RUN_DIR],
        files: &[BUS],
        see_also: &["roster-cache-expire(1)", "roster.toml(5)", "pam_roster(8)"],
    },
    Page {
        name: "access",
        examples: &[
            ("roster access alice", "Whether alice may log in by sshd, and why."),
            (
                "roster access alice --service cron --json",
                "The same for her cron jobs, for a program.",
            ),
        ],
        exit: &[
            ("0", "The user may log in, perhaps after a change of the password."),
            ("1", "That cannot be told: rosterd cannot be asked."),
            WRONG_USE,
            ("3", "The user may not log in."),
            ("4", "The user is this host's own, or no domain serves one of that name."),
        ],
        environment: &[ROSTER_RUN_DIR],
        files: &[BUS],
        see_also: &["roster.toml(5)", "pam_roster(8)", "roster-cache-show(1)"],
    },
    Page {
        name: "ssh-keys",
        examples: &[
            ("roster ssh-keys alice", "What sshd would be told."),
            (
                "AuthorizedKeysCommand /usr/bin/roster ssh-keys %u\nAuthorizedKeysCommandUser nobody",
                "In sshd_config(5).",
            ),
        ],
        exit: &[
            ("0", "The daemon has answered, with keys or without."),
            ("1", "It has not, or does not know whether the user may log in."),
            WRONG_USE,
        ],
        environment: &[ROSTER_RUN_DIR],
        files: &[("/run/roster/pam", "The socket at which it is asked.")],
        see_also: &["sshd_config(5)", "roster.toml(5)", "roster-access(1)"],
    },
    Page {
        name: "log-level",
        examples: &[
            ("roster log-level", "The level of every role."),
            ("roster log-level backend:corp debug", "See what corp's back-end does."),
            ("roster log-level info", "Back to the ordinary, for all roles."),
        ],
        exit: &[DONE, FAILED, WRONG_USE],
        environment: &[ROSTER_RUN_DIR],
        files: &[BUS],
        see_also: &["rosterd(8)", "roster.toml(5)", "journalctl(1)"],
    },
    Page {
        name: "check-config",
        examples: &[
            (
                "sudo roster check-config && sudo systemctl reload rosterd",
                "Check a change, then have it taken up.",
            ),
            ("roster check-config --explain new.toml", "Every key, and where its value is from."),
        ],
        exit: &[
            ("0", "rosterd would run by it, though there may be warnings."),
            ("1", "rosterd would refuse it; or it cannot be read."),
            WRONG_USE,
        ],
        environment: &[ROSTER_RUN_DIR],
        files: &[CONFIG],
        see_also: &["roster.toml(5)", "rosterd(8)"],
    },
    Page {
        name: "nscd",
        examples: &[
            (
                "systemctl disable --now nscd; systemctl enable --now roster-nscd.socket roster-nscd",
                "Take the place of nscd on this host.",
            ),
            (
                "sudo roster nscd --statistics",
                "See what is served, and which programs asked over the socket what a map has, or were \
                 sent to their name services.",
            ),
            ("sudo roster nscd --invalidate passwd", "Have the map of users made anew."),
            (
                "docker run -v /run/nscd:/run/nscd …",
                "Let programs in a container see the host's users. To glibc programs there its own \
                 /etc/passwd then counts for nothing.",
            ),
        ],
        exit: &[
            ("0", "Done; or told to end."),
            ("1", "Failed, or somebody else serves the socket; the message says who."),
            WRONG_USE,
        ],
        environment: &[],
        files: &[
            ("/run/nscd/socket", "Where programs ask, the same as /var/run/nscd/socket."),
            (
                "/run/roster-nscd",
                "The maps, in a file system of their own. A server that comes later takes them over.",
            ),
            NSSWITCH,
            ROSTER_SNAP,
        ],
        see_also: &[
            "rosterd(8)",
            "roster.toml(5)",
            "roster-doctor(1)",
            "nscd(8)",
            "nsswitch.conf(5)",
        ],
    },
    Page {
        name: "synth",
        examples: &[
            (
                "roster synth --output corpus",
                "10,000 users and 10,000 groups of 500 members on average.",
            ),
            (
                "roster synth --users 1000000 --groups 1000000 --members 10 --shape zipf --output big",
                "A million of each, with a few huge groups and many tiny ones.",
            ),
        ],
        exit: &[DONE, FAILED, WRONG_USE],
        environment: &[],
        files: &[],
        see_also: &["roster-compile(1)"],
    },
    Page {
        name: "man",
        examples: &[(
            "roster man pages && man -l pages/roster.1",
            "Read a page without installing it.",
        )],
        exit: &[DONE, FAILED, WRONG_USE],
        environment: &[],
        files: &[],
        see_also: &["man(1)"],
    },
    Page {
        name: "completions",
        examples: &[
            (
                "roster completions bash > /usr/share/bash-completion/completions/roster",
                "Install completion for bash.",
            ),
            ("source <(roster completions zsh)", "Try it in this shell."),
        ],
        exit: &[DONE, FAILED, WRONG_USE],
        environment: &[],
        files: &[],
        see_also: &[],
    },
];

fn page(name: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.name == name)
}

/// The end of `roster NAME --help`.
pub fn after_help(name: &str) -> String {
    let Some(page) = page(name) else { return String::new() };
    let heading = |text: &str| format!("\x1b[1m\x1b[32m{text}:\x1b[0m\n");
    let mut text = heading("Examples");
    for (command, meaning) in page.examples {
        text += &format!("  {command}\n      {meaning}\n");
    }
    text += &format!("\n{}", heading("Exit status"));
    for (code, meaning) in page.exit {
        text += &format!("  {code}  {meaning}\n");
    }
    for (title, pairs) in [("Environment", page.environment), ("Files", page.files)] {
        if pairs.is_empty() {
            continue;
        }
        text += &format!("\n{}", heading(title));
        for (term, meaning) in pairs {
            text += &explained(term, meaning);
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// Writes roster.1, roster-compile.1 and so on, roster.toml.5 and pam_roster.8.
pub fn write_man_pages(folder: &Path, out: &mut dyn Write) -> Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    // clap's own command `help` has no page to show.
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    collect("", &program, &mut pages);
    for (name, command) in pages {
        let mut text = Vec::new();
        render(command, &name, &mut text)?;
        put(folder, &format!("{}.1", page_name(&name)), &text, out)?;
    }
    let mut text = Vec::new();
    manual::write(&mut text)?;
    put(folder, "roster.toml.5", &text, out)?;
    text.clear();
    pam_page::write(&mut text)?;
    put(folder, "pam_roster.8", &text, out)
}

/// A command and all below it, each with its name behind that of the program.
fn collect<'c>(name: &str, command: &'c Command, pages: &mut Vec<(String, &'c Command)>) {
    pages.push((name.to_owned(), command));
    let shown = |command: &&Command| command.get_name() != "help" && !command.is_hide_set();
    for command in command.get_subcommands().filter(shown) {
        collect(format!("{name} {}", command.get_name()).trim_start(), command, pages);
    }
}

/// `domain list` as `roster-domain-list`.
fn page_name(name: &str) -> String {
    format!("roster {name}").trim_end().replace(' ', "-")
}

fn put(folder: &Path, name: &str, text: &[u8], out: &mut dyn Write) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(writeln!(out, "{}", path.display())?)
}

/// Prints the completion script.
pub fn write_completions(shell: clap_complete::Shell, out: &mut dyn Write) -> Result<()> {
    Ok(out.write_all(&completions(shell, Cli::command()))?)
}

fn render(command: &Command, name: &str, out: &mut dyn Write) -> io::Result<()> {
    begin(command, out)?;
    let Some(page) = page(name) else { return Ok(()) };
    let mut roff = Roff::new();
    section(&mut roff, "Exit status", page.exit, bold);
    section(&mut roff, "Environment", page.environment, bold);
    section(&mut roff, "Files", page.files, |file| Inline::Italic(file.to_owned()));
    examples(&mut roff, page.examples);
    let program = (!name.is_empty()).then_some("roster(1)");
    see_also(&mut roff, program, page.see_also);
    roff.to_writer(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_belongs_to_a_command() {
        let program = Cli::command();
        let mut commands = Vec::new();
        collect("", &program, &mut commands);
        for page in PAGES {
            assert!(commands.iter().any(|(name, _)| name == page.name), "{}", page.name);
        }
    }

    #[test]
    fn a_man_page_has_the_usual_sections_in_the_usual_order() {
        let mut program = Cli::command();
        program.build();
        let mut text = Vec::new();
        render(program.find_subcommand("get").unwrap(), "get", &mut text).unwrap();
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
