// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings of `roster status` about the running daemon.

crate::messages! {
    CONFIGURATION_REJECTED = 3001, "rosterd rejects the present configuration",
        cause: "roster.toml or a drop-in has errors. rosterd keeps the configuration that it read before.",
        fix: "Correct it, run `roster check-config`, then `systemctl reload rosterd`.";
    ROLE_RESTARTS = 3002, "a role was restarted repeatedly",
        cause: "A process of rosterd ended at least 3 times, the last time less than 5 minutes ago.",
        fix: "See its log: `journalctl -u rosterd`.";
    ROLE_NOT_RUNNING = 3003, "a role is not running",
        cause: "A process of rosterd failed to start, or ended and waits for its restart.",
        fix: "See its log: `journalctl -u rosterd`.";
    PUBLICATION_FAILED = 3004, "the snapshot cannot be published",
        cause: "rosterd could not write the snapshot. Programs use the previous one.",
        fix: "Check the disk space and the permissions of /var/lib/roster/snap.";
    PUBLICATION_WAITS = 3005, "publication is on hold",
        cause: "The publisher waits for a domain or for an approval. Programs use the previous snapshot.",
        fix: "Make the domain in the message reachable, or approve its removals.";
    NOT_PUBLISHED = 3006, "no snapshot was published yet",
        cause: "The first snapshot needs one domain that was read completely, or an on-demand domain that is reachable.",
        fix: "Check the state of the domains: `roster domain list`.";
    SNAPSHOT_FOREIGN = 3007, "another program wrote the snapshot",
        cause: "A restored backup or a job with `roster compile` replaced the file. rosterd overwrites it when it knows a \
                domain.",
        fix: "Find and stop the program that wrote the snapshot.";
    DISK_READ_FAILED = 3008, "the snapshot cannot be read from the disk",
        cause: "The disk returned an error. The publisher writes a new file on other blocks.",
        fix: "Check the disk.";
    MEMORY_COPY_MISSING = 3009, "the copy of the snapshot in memory is missing",
        cause: "rosterd could not write below /run. Each program then reads the whole file when it opens the snapshot.",
        fix: "Make /run a tmpfs with space for two more snapshots.";
    LOOKUPS_FAILED = 3010, "lookups of programs failed",
        cause: "An on-demand domain was unreachable. Programs get an error for entries that are not in the snapshot.",
        fix: "Check the directory of the domain: `roster domain list`.";
    LOCAL_ACCOUNTS_UNREADABLE = 3011, "the local accounts cannot be read",
        cause: "Local accounts that were added since the last successful read do not override directory entries.",
        fix: "Fix the file, or passwd and group under [host] in roster.toml.";
    DOMAIN_OFFLINE = 3012, "a domain is offline",
        cause: "No server of the domain is usable: it is unreachable, or rejects the connection or the bind. Roster serves \
                the cached entries.",
        fix: "Fix the cause. rosterd retries automatically. After a change of bind_dn, bind_password_file or tls_ca, run \
              `systemctl reload rosterd`.";
    DOMAIN_FAULT = 3013, "a domain reports an unknown fault",
        cause: "rosterd and this program are of different versions, so the code of the fault is unknown here.",
        fix: "See the log (`journalctl -u rosterd`). After an upgrade, run `systemctl restart rosterd`.";
    SERVERS_FAILED = 3014, "preferred servers of a domain failed",
        cause: "A server of lower preference serves the domain. Roster returns to the preferred server automatically.",
        fix: "Check the servers in the message.";
    CHANGES_POLLED = 3015, "the server sends no change notifications",
        cause: "rosterd polls the server, so it sees changes late, and deletions later.",
        fix: "Enable change tracking in the server: roster.toml(5), DIRECTORY SERVERS.";
    POLLS_READ_EVERYTHING = 3016, "each poll reads all entries",
        cause: "The server does not show the change stamps of users or groups.",
        fix: "Grant the bind DN read access to modifyTimestamp, or entryUSN, of all entries.";
    CONNECTIONS_READ_EVERYTHING = 3017, "each connection reads all entries",
        cause: "The server does not show the change stamps of entries, so rosterd cannot verify a resumption.",
        fix: "Grant the bind DN read access to entryCSN (389 Directory Server: modifyTimestamp).";
    FIRST_READ_RUNNING = 3018, "a domain is being read for the first time",
        cause: "rosterd serves a domain after its first complete read.",
        fix: "Wait until the read is complete.";
    REMOVALS_HELD = 3019, "removals are on hold",
        cause: "Too many entries disappeared at once (mass_deletion_threshold). rosterd serves them until an approval.",
        fix: "If the removals are intended, run `roster domain approve-removals`. Otherwise fix the directory or the \
              configuration.";
    ENTRIES_UNREADABLE = 3020, "directory entries cannot be parsed",
        cause: "Entries lack an attribute of a user or group, or have an invalid value.",
        fix: "List them with `roster domain rejected`.";
    NO_USERS = 3021, "a domain has no users",
        cause: "A search finds no user, although the directory answers. Base or filter may be wrong. A passwd file may be empty.",
        fix: "Check base, user_base and user_filter with `roster check-config --explain`, or the passwd file of a domain of text files.";
    NO_MEMBERS = 3022, "no group of a domain has a member",
        cause: "member_attributes lacks the attribute that names members, or the bind DN may not read it. A group file may list no members.",
        fix: "Set member_attributes, or grant the bind DN read access to the attribute. In a domain of text files, add members to the group file.";
    UPDATES_REJECTED = 3023, "the publisher rejects the updates of a domain",
        cause: "The backend sent data that exceeds a limit or is invalid. The domain keeps its previous entries.",
        fix: "See the log: `journalctl -u rosterd`.";
    DOMAIN_WAITS_FOR_ANOTHER = 3024, "a domain waits for a higher-priority domain",
        cause: "Entries of a lower-priority domain could replace those of a domain that was never read.",
        fix: "Make the higher-priority domain reachable, or remove it from domains under [host].";
    ENTRIES_REJECTED = 3025, "entries of a domain are rejected for other reasons",
        cause: "The status lists only the most frequent reasons.",
        fix: "List all of them with `roster domain rejected`.";
    OLD_FILES_IN_USE = 3026, "processes use an older module or snapshot format",
        cause: "The processes started before an upgrade of Roster. They see no later changes of the snapshot.",
        fix: "Restart the services of these processes.";
    SANDBOX_INCOMPLETE = 3080, "roles run without a part of their sandbox",
        cause: "The kernel has no Landlock (Linux 5.13) or no seccomp filters, or they are disabled. Users and file modes \
                still restrict the roles.",
        fix: "Use a kernel with both, or accept it: docs/internals/sandbox.md lists what is lost.";
    KERNEL_FEATURE_MISSING = 3081, "the kernel lacks a system call that Roster uses",
        cause: "The kernel is older than the call, or a filter around this program refuses it with ENOSYS.",
        fix: "Use a newer kernel, or do without the feature: docs/reference/platforms.md lists them.";

    REFERRALS_NOT_FOLLOWED = 3720, "a directory refers to another server",
        cause: "The other server holds a part of the search bases. Roster does not serve the entries there.",
        fix: "Configure the other server as a separate domain, or narrow `base` if the part is not needed.";

    OVERRIDES_REJECTED = 3790, "the overrides of a domain have errors",
        cause: "The file of overrides_file cannot be read, or has a mistake. The last valid overrides stay.",
        fix: "Correct the file. `roster check-config` lists its mistakes. rosterd reads it again after a change.";
    OVERRIDES_UNUSED = 3791, "overrides of missing entries",
        cause: "The directory has no entry of this name. The name and the ids that the override gives stay reserved.",
        fix: "Correct the name in the table of the override, or remove the table.";
}
