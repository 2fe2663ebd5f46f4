// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings of `roster doctor` about the host.

crate::messages! {
    GLIBC_READS_NSSWITCH_ONCE = 2001, "programs read nsswitch.conf only when they start",
        cause: "glibc before 2.33 reads nsswitch.conf once in each process.",
        fix: "Restart services after `roster enable` and `roster disable`.";
    LIBC_IS_MUSL = 2002, "the C library is musl",
        cause: "musl loads no NSS modules and does not read nsswitch.conf.",
        fix: "Use a distribution with glibc. `roster nscd` serves single musl programs.";
    GLIBC_NOT_FOUND = 2003, "no glibc in the library directories",
        cause: "No library directory has a libc.so.6 of glibc. Only programs with glibc see the users of Roster.",
        fix: "Run Roster on a host with glibc, or install glibc in its usual directory.";
    NSSWITCH_MISSING = 2004, "nsswitch.conf does not exist",
        cause: "Without the file, glibc uses its built-in defaults, which do not name roster.",
        fix: "Write the file (nsswitch.conf(5)), then run `roster enable`.";
    NSSWITCH_UNREADABLE = 2005, "nsswitch.conf cannot be read",
        cause: "The file has no read permission for this user, is not a regular file, or the disk failed.",
        fix: "Make the file readable for all programs: `chmod 644 /etc/nsswitch.conf`.";
    SERVICE_NOT_NAMED = 2006, "a line of nsswitch.conf does not name roster",
        cause: "glibc asks only the services that the line names. `roster enable` was not run, or the line was replaced.",
        fix: "Run `roster enable`.";
    NSSWITCH_LINE_INVALID = 2007, "a line of nsswitch.conf is invalid",
        cause: "glibc cannot parse an action in brackets, and ignores the rest of the line.",
        fix: "Correct the line (nsswitch.conf(5)).";
    LOOKUP_ENDS_BEFORE_SERVICE = 2008, "an action of nsswitch.conf ends lookups before roster",
        cause: "A service before roster has an action such as [NOTFOUND=return], so glibc never asks roster.",
        fix: "Remove that action, or put it behind roster.";
    SERVICE_BEFORE_FILES = 2009, "roster precedes the local accounts",
        cause: "The line of nsswitch.conf names roster before files, so entries of the snapshot can replace local accounts.",
        fix: "Put roster behind files: run `roster disable`, then `roster enable`.";
    FILES_NOT_NAMED = 2010, "a line of nsswitch.conf names no service for local accounts",
        cause: "The line names neither files nor compat, so glibc does not find local accounts, including root.",
        fix: "Add files before roster, then run `roster enable`.";
    INITGROUPS_SERVICE_NOT_NAMED = 2011, "the initgroups line does not name roster",
        cause: "glibc takes the groups of a user only from the services of the initgroups line.",
        fix: "Run `roster enable`.";
    INITGROUPS_ENDS_ON_SUCCESS = 2012, "an initgroups action ends the list of groups before roster",
        cause: "A service before roster ends the list after a success. Its users lose all their groups of the snapshot.",
        fix: "Write [SUCCESS=continue] behind that service on the initgroups line.";
    INITGROUPS_ENDS_ON_NOTFOUND = 2013, "[NOTFOUND=return] hides the groups of the snapshot",
        cause: "A service before roster ends the list if it has no group of the user.",
        fix: "Remove NOTFOUND=return from the initgroups line.";
    INITGROUPS_ENDS_AFTER_SERVICE = 2014, "users of roster get no groups of later services",
        cause: "The initgroups line ends the list after a success of roster.",
        fix: "Write `roster [SUCCESS=continue]` on the initgroups line, unless this is intended.";
    INITGROUPS_SERVICE_MISSING = 2015, "the initgroups line lacks a service of the group line",
        cause: "A package added its service to the group line only. glibc then takes no groups of users from it.",
        fix: "Add the service to the initgroups line, or remove that line.";
    MODULE_UNREADABLE = 2016, "the NSS module is not a readable library",
        cause: "The file is damaged, is not an ELF file, or this user may not read it.",
        fix: "Install the module again, with mode 644.";
    MODULE_FOR_OTHER_MACHINE = 2017, "the NSS module is for another architecture",
        cause: "Class or machine of the file differ from those of this program.",
        fix: "Install the module for this architecture.";
    MODULE_NOT_PUBLIC = 2018, "the NSS module is not readable for all users",
        cause: "The mode of the file has no read permission for others, for example after installation with umask 077.",
        fix: "Run `chmod a+r` on the module.";
    MODULE_NOT_IN_LINKER_CACHE = 2019, "the NSS module is not in the cache of the dynamic linker",
        cause: "The module is in a directory of ld.so.conf, and ldconfig did not run since its installation.",
        fix: "Run `ldconfig`.";
    MODULE_MISSING = 2020, "the NSS module is not installed",
        cause: "No library directory has libnss_roster.so.2.",
        fix: "Run `make install PREFIX=/usr`, or `ldconfig` if the module is in another directory.";
    SNAPSHOT_NOT_COMPILED = 2021, "the snapshot does not exist",
        cause: "No snapshot was compiled, and rosterd is not configured.",
        fix: "Run `roster compile`, or let rosterd mirror a directory (roster.toml(5)).";
    SNAPSHOT_NOT_PUBLISHED = 2022, "the snapshot of rosterd does not exist",
        cause: "rosterd has not published yet, or the file was removed.",
        fix: "See the reason in `roster status`. rosterd creates the file again.";
    SNAPSHOT_NOT_EXAMINED = 2023, "the snapshot cannot be examined",
        cause: "This user may not open the file or one of its directories, or the disk failed.",
        fix: "Run `roster doctor` as root.";
    DIRECTORY_NOT_SEARCHABLE = 2024, "a directory keeps programs from the snapshot",
        cause: "The directory has no execute permission for others.",
        fix: "Run `chmod a+x` on the directory.";
    SNAPSHOT_NOT_PUBLIC = 2025, "the snapshot is not readable for all users",
        cause: "The mode of the file has no read permission for others.",
        fix: "Run `chmod 644` on the snapshot.";
    SNAPSHOT_INVALID = 2026, "the snapshot is damaged or invalid",
        cause: "A checksum or an offset is wrong, the file was truncated, or it is not a snapshot of this version.",
        fix: "Compile the snapshot again. Running programs continue with the previous one.";
    PUBLISHED_SNAPSHOT_INVALID = 2027, "the snapshot of rosterd is damaged or invalid",
        cause: "A checksum or an offset is wrong, the file was truncated, or it is not a snapshot of this version.",
        fix: "Wait until rosterd publishes again, or run `systemctl restart rosterd`. Running programs continue with the \
              previous snapshot.";
    SNAPSHOT_ACCESS_DENIED = 2028, "the snapshot is not readable despite its mode",
        cause: "An access control list or a security module denies the access.",
        fix: "Check the access control lists and security modules of the file and its directories.";
    DIRECTORY_IS_LINK = 2029, "a directory of the snapshot is a symbolic link",
        cause: "The NSS module does not follow symbolic links, so that other users cannot redirect it.",
        fix: "Replace the link by a directory. To use another disk, mount it there.";
    SNAPSHOT_NOT_A_FILE = 2030, "the snapshot is not a regular file",
        cause: "A symbolic link, a pipe or a directory has the name of the snapshot. The NSS module rejects it.",
        fix: "Remove it, then run `roster compile` or restart rosterd.";
    DIRECTORY_OWNER_UNTRUSTED = 2031, "the owner of a directory can replace the snapshot",
        cause: "With ROSTER_SNAPSHOT, the NSS module rejects a path that belongs to another user than root and the caller.",
        fix: "Move the snapshot to a directory of root, or of the user that sets ROSTER_SNAPSHOT.";
    DIRECTORY_WRITABLE = 2032, "other users can replace the snapshot",
        cause: "The directory is writable for its group or for others. The NSS module rejects the snapshot.",
        fix: "Run `chmod go-w` on the directory.";
    SHADOW_DIRECTORY_OWNER_UNTRUSTED = 2033, "the owner of the directory can replace password hashes",
        cause: "The directory of the password hashes does not belong to root. The NSS module rejects the file.",
        fix: "Run `chown root` on the directory, and compile the file again.";
    SNAPSHOT_OWNER_UNTRUSTED = 2034, "the snapshot belongs to an untrusted user",
        cause: "The file belongs neither to root nor to the owner of its directory. The NSS module rejects it.",
        fix: "Find the program that wrote the file, then run `chown root` on it.";
    SNAPSHOT_WRITABLE = 2035, "other users can write to the snapshot",
        cause: "The file is writable for its group or for others. The NSS module rejects it.",
        fix: "Run `chmod go-w` on the snapshot, and compile it again.";
    PARENT_DIRECTORY_WRITABLE = 2036, "other users can replace the directory of the snapshot",
        cause: "A directory above is writable for its group or for others, and is not sticky.",
        fix: "Run `chmod go-w` on the directory.";
    SHADOW_MISSING = 2037, "the snapshot of password hashes does not exist",
        cause: "The shadow line of nsswitch.conf names roster, and no password hashes were compiled.",
        fix: "Run `roster compile --shadow`, or remove roster from the shadow line.";
    SHADOW_PUBLIC = 2038, "password hashes are readable for all users",
        cause: "The mode of the snapshot of password hashes has permissions for others.",
        fix: "Run `chmod 640` on the file, and change the passwords.";
    FLOOR_INVALID = 2039, "the floor of ids is invalid",
        cause: "/etc/roster/floor has a wrong owner, mode or format. Programs then accept ids from 1000 on.",
        fix: "Run `systemctl reload rosterd`, or `roster enable` as root, to write it again.";
    FLOOR_DIFFERS = 2040, "the floor of ids differs from the configuration",
        cause: "The configuration changed, and rosterd was not reloaded since. Programs reject ids that rosterd serves.",
        fix: "Run `systemctl reload rosterd`, or `roster enable` as root, to write the floor.";
    FLOOR_MISSING = 2041, "the floor of ids is missing",
        cause: "Programs accept ids from 1000 on, and the configuration has another minimum or more primary gids.",
        fix: "Run `systemctl reload rosterd`, or `roster enable` as root, to write the floor.";
    CONFIGURATION_INVALID = 2042, "the configuration of rosterd is invalid",
        cause: "roster.toml or one of its drop-ins has mistakes. rosterd does not start with it.",
        fix: "Run `roster check-config`, which lists all mistakes.";
    CONFIGURATION_UNREADABLE = 2043, "the configuration of rosterd cannot be read",
        cause: "This user may not read roster.toml or a drop-in, or the disk failed.",
        fix: "Run `roster doctor` as root. If it fails too, check owner and mode of the file.";
    DAEMON_STOPPED = 2044, "rosterd is configured but not running",
        cause: "The service is stopped, failed to start, or was not enabled. Changes of directories do not arrive.",
        fix: "Run `systemctl enable --now rosterd`. Without a daemon, remove /etc/roster/roster.toml and its drop-ins.";
    OTHER_SNAPSHOT_PUBLISHED = 2045, "rosterd publishes another snapshot than programs read",
        cause: "rosterd runs with --state-dir, which changes the path of its snapshot.",
        fix: "Run rosterd without --state-dir.";
    PAM_MODULE_MISSING = 2046, "a PAM stack names a module that is not installed",
        cause: "No PAM directory has the module. PAM then denies logins that need it.",
        fix: "Run `make install PREFIX=/usr`, or remove the module: `pam-auth-update --disable roster` on Debian.";
    NO_DOMAIN_WITH_LOGINS = 2047, "a PAM stack names pam_roster, and no domain has logins",
        cause: "No domain of roster.toml has auth. PAM then denies users that are not in /etc/passwd.",
        fix: "Set auth in a domain (roster.toml(5)), or remove the module: `pam-auth-update --disable roster` on Debian.";
    NO_STACK_WITH_MODULE = 2048, "no PAM stack names pam_roster",
        cause: "A domain has auth, and no file of /etc/pam.d names pam_roster.so.",
        fix: "Run `pam-auth-update --enable roster` on Debian, or `authselect select vendor/roster`. \
              docs/how-to/logins.md has the steps by hand.";
    LOOKUP_FINDS_NO_USER = 2049, "a lookup does not find a user of the snapshot",
        cause: "glibc did not load the NSS module, or the module rejected the snapshot.",
        fix: "Fix the other findings. If there are none, check the module with `LD_DEBUG=libs getent -s roster passwd`.";
    LOOKUP_FAILED = 2050, "a lookup ends without a result",
        cause: "getent was killed or failed. The file of the NSS module may be damaged.",
        fix: "Install the NSS module again.";
    LOOKUP_HANGS = 2051, "a lookup does not end",
        cause: "getent did not end within 5 s.",
        fix: "Find the system call that blocks: `strace -f getent -s roster passwd`.";
    ENVIRONMENT_PATH_RELATIVE = 2052, "ROSTER_SNAPSHOT is not an absolute path",
        cause: "Programs with this environment read no snapshot.",
        fix: "Unset ROSTER_SNAPSHOT, or set it to the absolute path of a snapshot.";
    ENVIRONMENT_NAMES_SNAPSHOT = 2053, "ROSTER_SNAPSHOT replaces the default snapshot",
        cause: "Programs with this environment read the named file instead.",
        fix: "Unset ROSTER_SNAPSHOT, unless this is intended.";
    ENVIRONMENT_SNAPSHOT_UNUSABLE = 2054, "the file in ROSTER_SNAPSHOT is not a usable snapshot",
        cause: "The file does not exist, is unreadable, or is damaged. Programs do not read the default snapshot instead.",
        fix: "Unset ROSTER_SNAPSHOT, or set it to the path of a valid snapshot.";
    NSCD_NO_REPLY = 2055, "roster nscd does not reply",
        cause: "A process of roster nscd listens on the socket of nscd, and did not send its statistics.",
        fix: "See its log (`journalctl -u roster-nscd`), then run `systemctl restart roster-nscd`.";
    NSCD_CACHES_REPLIES = 2056, "nscd caches replies",
        cause: "glibc asks a running nscd before the NSS module. Changes can take minutes to appear.",
        fix: "Stop nscd, or set `enable-cache passwd no` and `enable-cache group no` in /etc/nscd.conf.";
    NSCD_MAP_MISSING = 2057, "roster nscd has no current map",
        cause: "The map could not be built. Programs ask their name services, or see the previous map.",
        fix: "See its log (`journalctl -u roster-nscd`), then run `roster nscd -i passwd` and `roster nscd -i group`.";
    NSCD_MAPS_SHARE_FILE_SYSTEM = 2058, "the maps of roster nscd share a file system",
        cause: "The map directory is not a dedicated file system. Clients that hold old maps can fill it.",
        fix: "Run `systemctl enable --now 'run-roster\\x2dnscd.mount'`, or mount a tmpfs there, then restart the server.";
    NSCD_MAPS_WRITABLE = 2059, "root of a container can write to the maps of roster nscd",
        cause: "The map directory has no read-only mount, so file descriptors of maps can be reopened for writing.",
        fix: "Add the read-only bind mount of the units to /etc/fstab (bind,ro), then restart the server.";
    NSCD_PROGRAMS_WITHOUT_MAP = 2060, "roster nscd sent programs to their name services",
        cause: "The server had no map for these programs in time, or their request needs a name service.",
        fix: "Restart the programs to give them a map. They work without one.";
    NSCD_NOT_USED = 2061, "the C library does not use roster nscd",
        cause: "This glibc was built without a client of nscd. Only programs with musl use the socket.",
        fix: "Without programs on musl, run `systemctl disable --now roster-nscd.socket roster-nscd`.";
    APPARMOR_RULES_MISSING = 2062, "AppArmor lacks the rules of Roster",
        cause: "abstractions/nameservice.d/roster is missing. Confined programs cannot read the snapshot.",
        fix: "Run `make install`, then `systemctl reload apparmor`.";
    SELINUX_LABEL_WRONG = 2063, "the SELinux label of /var/lib/roster is wrong",
        cause: "The policy module is not installed, or the directory was not relabelled. Confined programs cannot read \
                the snapshot.",
        fix: "Run `semodule -i roster.pp`, then `restorecon -R /var/lib/roster`.";
    ACCESS_DENIALS = 2064, "a security module denied access to files of Roster",
        cause: "AppArmor or SELinux logged denials within a day.",
        fix: "Install or reload the AppArmor and SELinux rules: `make install`.";
    DIRECTORY_SERVICE_FIRST = 2065, "another service for directory users precedes roster",
        cause: "The line of nsswitch.conf names a service such as sss or ldap before roster. glibc asks roster only for \
                entries that this service does not find.",
        fix: "Move that service behind roster, for example `passwd: files roster sss`, or remove it after the move.";
}
