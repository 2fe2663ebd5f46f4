//! What people read beside the options: examples, exit codes, other pages. One table feeds the end of
//! `--help` and the sections of the man pages; all else in both comes from [`cli`](crate::cli).

use crate::cli::Cli;
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_mangen::roff::{Roff, bold};
use roster_manual::{begin, completions, examples, section, see_also};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

type Pairs = &'static [(&'static str, &'static str)];

struct Page {
    /// The command; empty for the program.
    name: &'static str,
    examples: Pairs,
    exit: Pairs,
    see_also: &'static [&'static str],
}

const RAN: Pairs = &[
    ("0", "Requests were made, and not all of them failed."),
    ("1", "It could not be run, or all requests failed; the message says why."),
    ("2", "Wrong options or arguments."),
    (
        "130",
        "Ended by Ctrl-C; what ran until then was reported. A second one ends it without a report, and commands that run go on without it.",
    ),
];
const DONE: Pairs =
    &[("0", "Done."), ("1", "Failed; the message says why."), ("2", "Wrong options or arguments.")];

const PAGES: &[Page] = &[
    Page {
        name: "",
        examples: &[
            (
                "roster-lab ldap --uri ldap://localhost --dn 'uid=u{0..999},dc=example,dc=com' --password @pw",
                "How many binds a second a directory server makes.",
            ),
            ("roster-lab run plan.toml --users 1,2,4,8 --json run.json", "A load curve of a plan."),
        ],
        exit: RAN,
        see_also: &["roster(1)"],
    },
    Page {
        name: "ldap",
        examples: &[
            (
                "roster-lab ldap --uri ldap://h --dn 'uid=u{0..999},dc=x' --password p --connections new",
                "Binds, each on a connection of its own.",
            ),
            (
                "roster-lab ldap … --rate 2000 --duration 60",
                "An open loop: latencies as people meet with them, stalls included.",
            ),
            (
                "roster-lab ldap … --rate 500 --knee 20ms",
                "The highest rate at which 99 of 100 requests take 20 ms or less.",
            ),
            (
                "roster-lab ldap --uri ldap://h --op search --dn dc=x --scope sub --filter '(uid=u{0..999})'",
                "Searches, each for another user.",
            ),
            (
                "roster-lab ldap --uri ldap://h --op modify --dn 'uid=u{0..9},dc=x' --value 'description=v{n}' --bind-dn cn=admin,dc=x --bind-password @pw",
                "Modifications, each to another value.",
            ),
        ],
        exit: RAN,
        see_also: &["roster-lab-run(1)", "ldapsearch(1)"],
    },
    Page {
        name: "dns",
        examples: &[
            (
                "roster-lab dns --server 127.0.0.1:5353 --name 'h{0..999}.lab.test'",
                "Addresses of a thousand hosts, as fast as they are answered.",
            ),
            (
                "roster-lab dns --server ns1 --name '192.0.2.{1..254}' --type PTR --rate 500",
                "Names of addresses, 500 a second.",
            ),
            (
                "roster-lab dns --server ns1 --name 'x{n}.lab.test' --protocol tcp",
                "Names that were never asked for, over TCP.",
            ),
        ],
        exit: RAN,
        see_also: &["roster-lab-run(1)", "dig(1)"],
    },
    Page {
        name: "krb5",
        examples: &[
            (
                "roster-lab krb5 --kdc kdc1 --realm LAB.TEST --principal 'u{0..999}' --password @pw",
                "Log-ins of a thousand people.",
            ),
            (
                "roster-lab krb5 --kdc kdc1 --realm LAB.TEST --principal 'u{0..999}' --no-preauth --rate 2000",
                "Log-ins without pre-authentication, 2000 a second.",
            ),
            (
                "roster-lab krb5 --kdc kdc1 --realm LAB.TEST --op tgs --principal 'u{0..9}' --password p --service 'host/h{0..99}.lab.test'",
                "Tickets for a hundred hosts.",
            ),
        ],
        exit: RAN,
        see_also: &["roster-lab-run(1)", "kinit(1)", "kvno(1)"],
    },
    Page {
        name: "nss",
        examples: &[
            (
                "roster-lab nss --lookup passwd --key 'u_{1000000..1009999}' --users 1",
                "How long a look-up of a user takes.",
            ),
            (
                "roster-lab nss --lookup initgroups --key @users --users 1,2,4",
                "Groups of the users in a file, by one, two and four threads.",
            ),
            (
                "roster-lab nss --lookup passwd --key 'u{0..9999}' --module /usr/lib/x86_64-linux-gnu/libnss_roster.so.2",
                "What a module takes of that.",
            ),
        ],
        exit: RAN,
        see_also: &["roster-lab-run(1)", "getent(1)", "nsswitch.conf(5)"],
    },
    Page {
        name: "pam",
        examples: &[
            (
                "roster-lab pam --service login --user 'u{0..99}' --password @pw --users 4",
                "How many log-ins a second this host makes, and how long each takes.",
            ),
            (
                "roster-lab pam --service sshd --user alice --password @pw --steps auth,account,session --rate 5",
                "Five whole log-ins a second.",
            ),
        ],
        exit: RAN,
        see_also: &["roster-lab-run(1)", "pam(3)", "pam.d(5)"],
    },
    Page {
        name: "command",
        examples: &[
            ("roster-lab command --users 1,2,4,8,16,32 -- id alice", "A load curve of id(1)."),
            (
                "roster-lab command --rate 50 -- id 'u_{1000..1999}'",
                "Fifty a second, each another user.",
            ),
        ],
        exit: RAN,
        see_also: &["roster-lab-run(1)"],
    },
    Page {
        name: "check",
        examples: &[
            (
                "roster-lab check ldap --uri ldap://h --dn 'uid=u{0..999},dc=x' --password p --bind-dn 'cn=Directory Manager' --bind-password @pw",
                "Whether a directory server keeps results, hashes passwords anew, or stalls.",
            ),
            (
                "roster-lab check krb5 --kdc kdc1 --realm LAB.TEST --principal 'u{0..99}' --no-preauth --json -",
                "What a KDC keeps of its answers, for programs.",
            ),
        ],
        exit: &[
            ("0", "Nothing was found."),
            ("1", "It could not be checked; the message says why."),
            ("2", "Wrong options or arguments."),
            ("3", "Something was found; the report says what it means."),
            ("130", "Ended by Ctrl-C; what was found until then was reported."),
        ],
        see_also: &["roster-lab-run(1)"],
    },
    Page {
        name: "run",
        examples: &[
            (
                "printf '[command]\\ncommand = [\"id\", \"alice\"]\\nusers = [1, 2, 4]\\n' > plan.toml",
                "Write a plan.",
            ),
            ("roster-lab run plan.toml", "Carry it out."),
            ("roster-lab run plan.toml --duration 2", "For two seconds, whatever it says."),
        ],
        exit: RAN,
        see_also: &["roster-lab(1)"],
    },
    Page {
        name: "compare",
        examples: &[
            (
                "roster-lab compare old.json new.json",
                "What a release changed, and how sure that is.",
            ),
            (
                "roster-lab compare slapd.json 389ds.json --html report.html --png report.png",
                "Two servers, as a page and as a picture.",
            ),
        ],
        exit: DONE,
        see_also: &["roster-lab-run(1)"],
    },
    Page {
        name: "bisect",
        examples: &[
            (
                "roster-lab bisect --versions @releases --good 2.3.0 --bad 2.5.1 --cmd './install-and-start {version}' --plan binds.toml",
                "The release that made binds slower.",
            ),
            (
                "roster-lab bisect --versions 1,2,3,4 --good 1 --bad 4 --cmd 'podman run -d --replace --name ds -p 3389:3389 ds:{version} && sleep 10' --plan binds.toml --figure p99",
                "The image that made the slowest one slower.",
            ),
        ],
        exit: DONE,
        see_also: &["roster-lab-run(1)", "git-bisect(1)"],
    },
    Page {
        name: "schemes",
        examples: &[
            (
                "roster-lab schemes ldap://localhost --base dc=example,dc=com --bind-password @dm --server-unit dirsrv@main",
                "What a bind costs by each scheme, and which to take.",
            ),
            (
                "roster-lab schemes ldap://localhost --base dc=example,dc=com --bind-password @dm --no-measure --apply PBKDF2-SHA512 --subtree ou=admins,dc=example,dc=com",
                "Take it for administrators, and see whose hash is still the old one.",
            ),
            (
                "roster-lab schemes ldap://localhost --base dc=example,dc=com --bind-password @dm --undo",
                "Put back what a run left behind that was killed.",
            ),
        ],
        exit: &[
            ("0", "Done."),
            ("1", "Failed; the message says why."),
            ("2", "Wrong options or arguments."),
            ("130", "Ended by Ctrl-C; the server is as it was, and what was measured was told."),
        ],
        see_also: &["roster-lab-ldap(1)", "dsconf(8)"],
    },
    Page {
        name: "trace",
        examples: &[
            (
                "roster-lab trace --duration 60",
                "Where the look-ups of the next minute spend their time.",
            ),
            (
                "roster-lab trace --pid \"$(cat /run/roster/rosterd.pid)\" --json trace.json --html trace.html",
                "Of that rosterd, for programs and as a page with box plots.",
            ),
            ("roster-lab trace --sssd", "The same of SSSD, as far as its probes go."),
        ],
        exit: &[
            ("0", "Requests were seen."),
            ("1", "Nobody asked anything, or probes cannot be looked at; the message says why."),
            ("2", "Wrong options or arguments."),
            ("130", "Ended by Ctrl-C; what was seen until then was reported."),
        ],
        see_also: &["rosterd(8)", "bpftrace(8)"],
    },
    Page {
        name: "worker",
        examples: &[
            ("roster-lab worker --master loadmaster", "Serve the master on another host."),
            (
                "roster-lab worker --master loadmaster:5557 --source 192.0.2.8,192.0.2.9 --threads 2",
                "By two threads, from two addresses.",
            ),
            (
                "roster-lab worker --master localhost --plan binds.toml",
                "With what users do in a file here, for a master whose file has any class of users.",
            ),
        ],
        exit: &[
            ("0", "The master ended."),
            ("1", "There is no master, or it went away; the message says why."),
            ("2", "Wrong options or arguments."),
            ("130", "Ended by Ctrl-C; the master was told."),
        ],
        see_also: &["roster-lab-run(1)", "locust(1)"],
    },
    Page {
        name: "up",
        examples: &[
            (
                "roster-lab up --file locustfile.py --workers 2",
                "Then see http://127.0.0.1:8089/ for charts.",
            ),
            (
                "roster-lab up --source 127.0.0.2,127.0.0.3 -- --headless --users 100 --spawn-rate 50 --run-time 1m --csv run",
                "A run without a page, from two addresses, with its figures as CSV.",
            ),
        ],
        exit: &[
            ("0", "The run ended well."),
            ("1", "It could not be started, or requests failed; the message says why."),
            ("2", "Wrong options or arguments."),
            ("130", "Ended by Ctrl-C; Locust wrote its last figures."),
        ],
        see_also: &["roster-lab-worker(1)", "locust(1)"],
    },
    Page {
        name: "man",
        examples: &[("roster-lab man pages && man -l pages/roster-lab.1", "Read a page.")],
        exit: DONE,
        see_also: &["man(1)"],
    },
    Page {
        name: "completions",
        examples: &[("source <(roster-lab completions bash)", "Try it in this shell.")],
        exit: DONE,
        see_also: &[],
    },
];

fn page(name: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.name == name)
}

/// The end of `roster-lab NAME --help`.
pub fn after_help(name: &str) -> String {
    let Some(page) = page(name) else { return String::new() };
    let heading = |text: &str| format!("\x1b[1m\x1b[32m{text}:\x1b[0m\n");
    let mut text = heading("Examples");
    for (command, meaning) in page.examples {
        // The parser of options would break the line there; a change of style in between, which is none,
        // keeps it from that.
        let command = command.replace("{n}", "{\x1b[0mn}");
        text += &format!("  {command}\n      {meaning}\n");
    }
    text += &format!("\n{}", heading("Exit status"));
    for (code, meaning) in page.exit {
        text += &format!("  {code:>3}  {meaning}\n");
    }
    text.truncate(text.trim_end().len());
    text
}

/// Writes roster-lab.1, roster-lab-ldap.1 and so on.
pub fn write_man_pages(folder: &Path, out: &mut dyn Write) -> Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    // clap's own command `help` has no page to show.
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let below = program.get_subcommands().map(|command| (command.get_name(), command));
    for (name, command) in std::iter::once(("", &program)).chain(below) {
        let mut text = Vec::new();
        render(command, name, &mut text)?;
        let file = format!("roster-lab {name}").trim_end().replace(' ', "-");
        let path = folder.join(format!("{file}.1"));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
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
    examples(&mut roff, page.examples);
    let program = (!name.is_empty()).then_some("roster-lab(1)");
    see_also(&mut roff, program, page.see_also);
    roff.to_writer(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_request_is_no_line_break_in_help() {
        let mut program = Cli::command();
        for name in ["ldap", "dns"] {
            let help = program.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            assert!(help.contains("{n}"), "{help}");
        }
        let help = program.render_long_help().to_string();
        assert!(help.contains("an n in braces the number"), "{help}");
    }

    #[test]
    fn every_command_has_a_page_with_its_options_examples_and_exit_codes() {
        let folder = tempfile::tempdir().unwrap();
        write_man_pages(folder.path(), &mut Vec::new()).unwrap();
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(page(name).is_some(), "{name}");
            let path = folder.path().join(format!("roster-lab-{name}.1"));
            let text = fs::read_to_string(&path).unwrap();
            for section in ["SYNOPSIS", "OPTIONS", "EXIT STATUS", "EXAMPLES"] {
                assert!(text.contains(section), "{name}: {section}");
            }
        }
    }
}
