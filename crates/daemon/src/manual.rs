//! What people read of rosterd beside its options: signals, exit statuses, files. The table feeds the
//! end of `--help` and the man page rosterd(8); all else in both comes from [`crate::cli`].

use crate::cli::Cli;
use crate::exit;
use clap::CommandFactory;
use roster_manual::{ForPackagers, Page, Section};
use std::io;

/// Of rosterd.
pub const PAGE: Page = Page {
    name: "rosterd",
    section: "8",
    synopsis: &["[--config FILE] [--state-dir FOLDER] [--run-dir FOLDER]"],
    sections: SECTIONS,
};

const SECTIONS: &[Section] = &[
    (
        "Signals",
        &[
            (
                "SIGHUP",
                "Read the configuration anew. Roles whose part of it changed are started again, the \
                 others are left alone. With a mistake in it the old one goes on, and roster status \
                 shows the mistake.",
            ),
            ("SIGTERM, SIGINT", "End every role in good order, then the bus."),
        ],
    ),
    (
        "Exit status",
        &[
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
    ),
    (
        "Probes",
        &[
            (
                "roster:*",
                "Static probes at each hop of a request that programs make of domains with mode = \
                 \"on-demand\": in the responder, on the bus, in the publisher, in back-ends and at their \
                 directories. Until somebody looks at them they cost nothing.",
            ),
            (
                "roster-lab trace",
                "Shows at which hop, and at which domain, requests spend their time. What each probe carries is \
                 in docs/probes.md of the source; bpftrace -l 'usdt:/usr/local/sbin/rosterd:roster:*' lists them.",
            ),
        ],
    ),
    (
        "Environment",
        &[(
            "NOTIFY_SOCKET, WATCHDOG_USEC, JOURNAL_STREAM",
            "Set by systemd, for readiness, watchdog and journal.",
        )],
    ),
    (
        "Files",
        &[
            ("/etc/roster/roster.toml", "The configuration."),
            (
                "/etc/roster/published",
                "The mark that a snapshot was published on this host: programs then report a missing one as \
                 an error (EIO), not as a host without users.",
            ),
            ("/var/lib/roster/snap/roster.snap", "The snapshot that programs read."),
            ("/run/roster/snap/*", "Its copy in memory, which programs map in place of it."),
            (
                "/var/lib/roster/snap/roster.domains",
                "Generation, checksum, and users and groups of each domain, of the snapshot in place and of \
                 the next: the publisher knows its own snapshot by it, and what it must not lose.",
            ),
            (
                "/var/lib/roster/snap/roster.places",
                "Where in it each domain's entries lie: for a publisher that was started anew, when what a \
                 back-end has cannot be taken.",
            ),
            (
                "/var/lib/roster/domains/NAME",
                "The cache of a domain. It may be deleted while rosterd does not run: the domain is \
                 then fetched anew.",
            ),
            (
                "/var/lib/roster/domains/.keytab-used",
                "The mark that this host has used a keytab: krb5_validate = \"auto\" then requires one.",
            ),
            ("/run/roster/bus", "The message bus, for root and the user that rosterd runs as."),
            (
                "/run/roster/nss",
                "The socket where programs ask for entries of domains with mode = \"on-demand\".",
            ),
            ("/run/roster/pam", "The socket where pam_roster(8) asks, where a domain has auth."),
            ("/run/roster-nscd", "The maps of [responder.nscd], in a file system of their own."),
            ("/run/roster/rosterd.pid", "The process id of the monitor, and its lock."),
        ],
    ),
    (
        "See also",
        &[(
            "roster.toml(5), pam_roster(8), roster-status(1), roster-check-config(1), roster-lab-trace(1), dbus-daemon(1)",
            "",
        )],
    ),
];

/// Does what packagers ask for; gives the exit status.
pub fn write(what: &ForPackagers) -> u8 {
    match what.write(&PAGE, Cli::command(), &mut io::stdout()) {
        Ok(()) => 0,
        Err(error) => {
            crate::say(format_args!("rosterd: {error}"));
            exit::CANNOT_CREATE
        }
    }
}
