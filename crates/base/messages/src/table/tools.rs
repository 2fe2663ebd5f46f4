// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of `roster` commands and of `roster nscd`.

crate::messages! {
    ROSTERD_NOT_RUNNING = 9001, "rosterd is not running",
        cause: "No process listens on the bus socket: the service is stopped, or uses another --run-dir.",
        fix: "Run `systemctl start rosterd`. If it uses another --run-dir, pass the same --run-dir here.";
    BUS_NOT_PERMITTED = 9002, "this user may not query rosterd",
        cause: "The bus accepts root and the user that rosterd runs as.",
        fix: "Run the command as root, for example with sudo.";
    BUS_UNUSABLE = 9003, "the bus of rosterd does not accept the connection",
        cause: "The bus is overloaded or hangs, or another program listens on the socket.",
        fix: "See the log: `journalctl -u rosterd`.";
    ROLE_UNAVAILABLE = 9004, "a role of rosterd cannot serve the request now",
        cause: "The role waits for another role, a directory or a disk.",
        fix: "See the state of the role with `roster status`, and try again.";
    REQUEST_INVALID = 9005, "a role of rosterd rejects the request as invalid",
        cause: "The request names an unknown object, or the program and rosterd are of different versions.",
        fix: "Correct the arguments. After an upgrade, run `systemctl restart rosterd`.";
    ROLE_BUSY = 9006, "a role of rosterd is busy",
        cause: "The role handles as many requests as it may.",
        fix: "Try again later.";
    REQUEST_DENIED = 9007, "a role of rosterd denies the request",
        cause: "The request is for other users only, or the configuration does not allow it.",
        fix: "Run the command as root, for example with sudo.";
    ROLE_RESTARTING = 9008, "a role of rosterd is not running",
        cause: "The process of the role ended, and rosterd restarts it.",
        fix: "See `roster status`, and try again.";
    ROLE_ENDED = 9009, "a role of rosterd ended before its reply",
        cause: "The process of the role ended while it handled the request.",
        fix: "Try again. If it happens again, see the log: `journalctl -u rosterd`.";
    ROLE_TIMED_OUT = 9010, "a role of rosterd did not reply within the timeout",
        cause: "The role is busy or hangs. rosterd restarts a role that hangs.",
        fix: "Try again. If it happens again, see the log: `journalctl -u rosterd`.";
    BUS_LOST = 9011, "the connection to the bus of rosterd was lost",
        cause: "The bus or rosterd ended during the request.",
        fix: "Try again.";
    BUS_ERROR = 9012, "the bus of rosterd returned an error",
        cause: "The program and rosterd may be of different versions.",
        fix: "See the log: `journalctl -u rosterd`. After an upgrade, run `systemctl restart rosterd`.";
    UNKNOWN_DOMAIN = 9013, "unknown domain",
        cause: "The running configuration has no domain of this name.",
        fix: "Use a domain of `roster domain list`.";
    DOMAIN_NOT_READ = 9014, "the domain was not read completely in time",
        cause: "Held removals are approved only after a complete read, and the directory is slow or unreachable.",
        fix: "See the state with `roster domain show`, and try again.";
    REJECTIONS_INCOMPLETE = 9015, "the list of rejected entries is incomplete",
        cause: "The backend or the publisher did not reply.",
        fix: "See `roster status`, and try again.";
    REJECTIONS_UNKNOWN = 9016, "the rejected entries are unknown",
        cause: "The backend and the publisher did not reply.",
        fix: "See `roster status`, and try again.";
    NO_SUCH_ENTRY = 9017, "no domain has the entry",
        cause: "No domain has a user or group of this name, or it was not read yet.",
        fix: "Check the spelling, and the state of the domains with `roster domain list`.";
    CACHE_NOT_EXPIRED = 9018, "the cache was not expired in all domains",
        cause: "The backends in the message rejected the request or did not reply.",
        fix: "See `roster status`, and try again.";
    USER_IS_LOCAL = 9019, "the user is local",
        cause: "The user is in /etc/passwd. Other PAM modules than pam_roster decide on the login.",
        fix: "Check the PAM stack of the service in /etc/pam.d.";
    USER_NOT_SERVED = 9020, "no domain serves the user",
        cause: "No domain has the user, or it is rejected.",
        fix: "See the reason with `roster cache show user NAME`.";
    PAM_SOCKET_MISSING = 9021, "rosterd has no socket for logins",
        cause: "rosterd is not running, or no domain has auth.",
        fix: "See `roster status`, and set auth in a domain (roster.toml(5)).";
    PAM_SOCKET_FAILED = 9022, "rosterd does not reply at the socket for logins",
        cause: "The responder is busy, ended, or is of another version.",
        fix: "See `roster status`, and try again.";
    PAM_SOCKET_UNTRUSTED = 9023, "the socket for logins belongs to an untrusted user",
        cause: "The socket belongs neither to root nor to this user. Its keys could open accounts of other users.",
        fix: "Correct --run-dir, or find the program that created the socket.";
    KEYS_UNKNOWN = 9024, "the keys of a user cannot be read",
        cause: "rosterd could not decide whether the user may log in, or denies it.",
        fix: "See the reason with `roster access USER`.";
    UNKNOWN_ROLE_OR_LEVEL = 9025, "the argument is neither a role nor a level",
        cause: "Roles are monitor, publisher, backend:DOMAIN and responder:NAME. Levels are error, warn, info, debug and \
                trace.",
        fix: "Use a role of `roster status`, or a level.";
    UNKNOWN_ROLE = 9026, "rosterd has no such role",
        cause: "The domain or responder of the role is not configured.",
        fix: "Use a role of `roster status`.";
    LOG_LEVEL_NOT_SET = 9028, "the log level was not set for all roles",
        cause: "The roles in the message rejected the request or did not reply.",
        fix: "See `roster status`, and try again.";
    NOT_COMPILED = 9029, "nothing was published",
        cause: "A source cannot be read or converted. The previous snapshots stay in place.",
        fix: "Fix the source in the message, and compile again.";
    LINE_SKIPPED = 9030, "a line of a source was skipped",
        cause: "The line is invalid. The files service of glibc skips it too.",
        fix: "Correct or remove the line.";
    ENTRY_HIDDEN = 9031, "lookups do not reach an entry",
        cause: "An earlier line of the same file has the same name or id.",
        fix: "Remove one of the lines, or change its name or id.";
    LINE_HAS_NUL = 9032, "a line of a source has a NUL",
        cause: "The files service of glibc ends the line at the NUL.",
        fix: "Correct the line.";
    LAST_LINE_GARBLED = 9033, "glibc garbles the last line of a source",
        cause: "The line begins with white space and has no newline. It is compiled as if it had the newline.",
        fix: "Remove the white space, and end the line with a newline.";
    GROUP_ONLY_IN_INITGROUPS = 9034, "an invalid group line still gives users a group",
        cause: "The files service of glibc skips the line in lookups of groups, but not in initgroups.",
        fix: "Delete the line instead of commenting it out.";
    OUTPUT_IS_SOURCE = 9035, "the output is one of the sources",
        cause: "The snapshot would replace the file that it is compiled from.",
        fix: "Choose another output.";
    OUTPUT_HAS_OTHER_CONTENT = 9036, "the output file has other content",
        cause: "The file is not a snapshot, or a snapshot of the other kind. It is not replaced.",
        fix: "Choose another output, or remove the file first.";
    OUTPUTS_ARE_ONE_FILE = 9037, "both outputs are the same file",
        cause: "A snapshot holds either users and groups, or password hashes.",
        fix: "Choose another --shadow-output.";
    PUBLICATION_NOT_SYNCED = 9038, "the new snapshot was not synced to the disk",
        cause: "The new file is in place. After a power failure the previous one may return.",
        fix: "Check the disk, and compile again.";
    PUBLICATION_DIRECTORY_MISSING = 9039, "the directory of the snapshot does not exist",
        cause: "The directory is created with the package, or by an administrator.",
        fix: "Create the directory with mode 755.";
    PUBLICATION_DENIED = 9040, "this user may not write the snapshot",
        cause: "The directory belongs to another user.",
        fix: "Run the command as a user that may write to the directory.";
    PUBLICATION_DISK_FULL = 9041, "no disk space for the snapshot",
        cause: "The disk or the quota is full. The previous snapshot stays in place.",
        fix: "Free disk space, and compile again.";
    PUBLICATION_FAILED = 9042, "the snapshot cannot be written",
        cause: "The system call in the message failed. The previous snapshot stays in place.",
        fix: "Fix the cause, and compile again.";
    MARK_NOT_SET = 9043, "the mark of a published snapshot was not set",
        cause: "Without the mark, programs read a missing snapshot as a host without users.",
        fix: "Fix the cause, and compile again.";
    COPY_NOT_MADE = 9044, "the copy of the snapshot in memory was not made",
        cause: "Each program then reads the whole file when it opens the snapshot.",
        fix: "Make /run a tmpfs with space for two more snapshots.";
    SNAPSHOT_MISSING = 9045, "the snapshot file does not exist",
        cause: "No snapshot was written to this path.",
        fix: "Create it with `roster compile`, or name another file.";
    SNAPSHOT_UNREADABLE = 9046, "the snapshot file cannot be read",
        cause: "This user may not read the file, or the disk failed.",
        fix: "Run the command as root, or check the disk.";
    ENTRY_NOT_PRINTABLE = 9047, "an entry cannot be printed as a line",
        cause: "A field has a colon or a line break. getent omits the entry too.",
        fix: "Use --json to see the entry, and correct its source.";
    OUTPUT_STREAM_FAILED = 9048, "standard output cannot be written",
        cause: "The disk of the output file is full, or the device failed.",
        fix: "Free disk space, or write the output to another file.";
    ROOT_NOT_EXAMINED = 9049, "the root directory cannot be examined",
        cause: "--root names no directory, this user may not open it, or the kernel lacks openat2(2).",
        fix: "Pass a directory that this user may open.";
    NSSWITCH_IS_LINK = 9050, "nsswitch.conf is a symbolic link",
        cause: "The program that made the link may undo an edit of its target.",
        fix: "If the target is yours to edit, pass it with --file.";
    NSSWITCH_OF_AUTHSELECT = 9051, "authselect manages nsswitch.conf",
        cause: "The file is a link to a file that authselect rewrites.",
        fix: "Create a profile (`authselect create-profile roster --base-on PROFILE`), add roster to its nsswitch.conf, \
              and select it (`authselect select custom/roster`).";
    NSSWITCH_FROM_AUTHSELECT = 9052, "authselect may rewrite nsswitch.conf",
        cause: "authselect generated the file. Its next run undoes the edit.",
        fix: "Use a profile with roster: see `authselect create-profile`.";
    FILE_NOT_REGULAR = 9053, "the file to edit is not a regular file",
        cause: "A directory, a pipe or a device has the name.",
        fix: "Pass a regular file with --file.";
    FILE_NOT_UTF8 = 9054, "the file to edit is not UTF-8",
        cause: "The line in the message has an invalid character.",
        fix: "Correct the line, and try again.";
    FILE_UNREADABLE = 9055, "a file cannot be read",
        cause: "This user may not read the file, or the disk failed.",
        fix: "Run the command as root, or fix the cause in the message.";
    FILE_IMMUTABLE = 9056, "a file cannot be replaced, even by root",
        cause: "This user is not root, or the file or its directory is immutable (chattr(1)).",
        fix: "Run the command as root. If it fails too, see lsattr(1) and chattr(1).";
    FILE_DENIED = 9057, "this user may not write a file",
        cause: "The directory belongs to another user.",
        fix: "Run the command as root, or as the owner of the directory.";
    FILE_IS_MOUNT_POINT = 9058, "a file cannot be replaced because it is a mount point",
        cause: "A container runtime mounts the file from the host.",
        fix: "Edit the file at the source of the mount.";
    FILE_NOT_WRITTEN = 9059, "a file cannot be written",
        cause: "The disk is full, read-only or failed, or the directory does not exist.",
        fix: "Fix the cause in the message, and try again.";
    ATTRIBUTES_NOT_COPIED = 9060, "owner, mode or labels of a file cannot be copied",
        cause: "The new file must have the attributes of the old one, and this user may not set them.",
        fix: "Run the command as root.";
    BACKUP_UNREADABLE = 9061, "the backup of nsswitch.conf cannot be read",
        cause: "This user may not read the backup, it is not UTF-8, or the disk failed.",
        fix: "Run the command as root, or move the backup aside to disable without it.";
    BACKUP_NOT_REMOVED = 9062, "the backup of nsswitch.conf was not removed",
        cause: "Roster is disabled. The backup has no further use.",
        fix: "Remove the backup by hand.";
    FLOOR_NOT_WRITTEN = 9063, "the floor of ids was not written",
        cause: "The floor follows from the configuration, which has mistakes.",
        fix: "Run `roster check-config`, correct the configuration, then run `roster enable` again.";
    DIRECTORY_NOT_CREATED = 9064, "a directory cannot be created",
        cause: "This user may not write to the parent directory, or a file has the name.",
        fix: "Choose another directory, or fix the cause in the message.";
    CORPUS_WOULD_REPLACE_FILE = 9065, "the file is not an earlier corpus",
        cause: "`roster generate` replaces only files that it generated.",
        fix: "Remove the file first, or choose another --output.";
    UNKNOWN_CODE = 9066, "unknown code",
        cause: "The table of this version has no row for the code, or the code is mistyped.",
        fix: "Use a code such as RST-1001, with the `roster` of the version that printed it.";
    // roster nscd: requests of an administrator.
    NSCD_NOT_RUNNING = 9500, "no server listens on the nscd socket",
        cause: "The server does not run, or uses another --socket.",
        fix: "Start the server with systemctl start roster-nscd.socket, or set --socket.";
    NSCD_NO_REPLY_IN_TIME = 9501, "nscd server does not reply",
        cause: "The server hangs, or the rebuild of its maps takes longer than a minute.",
        fix: "Check the log with journalctl -u roster-nscd, then restart the server.";
    NSCD_REQUEST_DENIED = 9502, "nscd server denies the request",
        cause: "Only root and the user that started the server may control it.",
        fix: "Run the command as root.";
    NSCD_REQUEST_REJECTED = 9503, "nscd server rejects the request",
        cause: "Only root and its own user may control the server, and it rejects all requests while its map directory is unusable.",
        fix: "Run the command as root, and check the log of the server.";
    NSCD_REBUILD_FAILED = 9504, "nscd server made no new map",
        cause: "A source of the map is invalid, or there is no space for the map.",
        fix: "Read the reason in the log of the server, for example with journalctl -u roster-nscd.";

    // roster nscd: start of the server.
    NSCD_SOCKET_IN_USE = 9505, "nscd socket is served by another server",
        cause: "Only one server can listen at the path, for example nscd, nsncd or another roster nscd.",
        fix: "Stop the other server, and disable its unit.";
    NSCD_SOCKET_REPLACED = 9506, "nscd socket of systemd is no longer at its path",
        cause: "Another server replaced or removed the socket.",
        fix: "Stop and disable the other server, then run systemctl restart roster-nscd.socket.";
    NSCD_SOCKET_FAILED = 9507, "nscd socket cannot be created",
        cause: "The directory is missing or not writable, or the path has another file.",
        fix: "Correct --socket, or remove the file at its path.";
    NSCD_MAP_DIR_UNUSABLE = 9508, "map directory cannot be used",
        cause: "The directory cannot be created or opened.",
        fix: "Correct --maps, or the permissions of its parent directory.";
    NSCD_MAP_DIR_ACCESS = 9509, "map directory has the wrong owner or mode",
        cause: "Other users could read or replace maps.",
        fix: "Make the server's user the owner of the directory, with mode 0700.";
    NSCD_MAP_DIR_LOCKED = 9510, "map directory is in use by another server",
        cause: "Another roster nscd has locked the directory.",
        fix: "Stop the other server, or set another --maps.";
    NSCD_MAP_DIR_OWNER = 9511, "owner of the map directory cannot be changed",
        cause: "The directory belongs to a user other than root, or other users may write to it.",
        fix: "Remove the directory, or set another --maps.";
    NSCD_PASSWD_UNREADABLE = 9512, "passwd file of --passwd cannot be read",
        cause: "The file does not exist, or is not readable.",
        fix: "Correct --passwd.";
    NSCD_USER_MISSING = 9513, "system user of the server does not exist",
        cause: "The package manager or systemd-sysusers has not created the user.",
        fix: "Run systemd-sysusers, or create the user with useradd --system.";
    NSCD_USERS_SHARED = 9514, "server and helpers have the same uid or gid",
        cause: "Helpers run modules of other name services, and could open the maps.",
        fix: "Give roster-nscd-helper its own uid and gid.";
    NSCD_USER_IS_ROOT = 9515, "user of the server is root",
        cause: "--user is for dropping root.",
        fix: "Set --user to a system user, or omit it.";
    NSCD_NOT_STARTED_AS_ROOT = 9516, "server with --user was not started as root",
        cause: "Only root can change to another user.",
        fix: "Start the server as root, or omit --user.";
    NSCD_USER_NOT_CHANGED = 9517, "server cannot change its user",
        cause: "The kernel rejected the change, for example in a user namespace without the id.",
        fix: "Check the uid and gid of the user, and the capabilities of the server.";
    NSCD_STARTER_FAILED = 9518, "process that starts helpers cannot be started",
        cause: "The limit of processes is reached, or /proc is not mounted.",
        fix: "Raise TasksMax of the unit, or mount /proc.";

    // roster nscd: the running server.
    NSCD_STARTER_ENDED = 9519, "process that starts helpers has ended",
        cause: "The process was killed. Without it the server cannot query other name services.",
        fix: "Restart the server. systemd does this automatically.";
    NSCD_HELPER_NOT_STARTED = 9520, "helper process cannot be started",
        cause: "The limit of processes is reached.",
        fix: "Raise TasksMax of the unit roster-nscd.";
    NSCD_SERVER_GONE = 9521, "helper process lost its server",
        cause: "The server ended while the helper read or wrote its socket.",
        fix: "No action is needed. The next server starts new helpers.";
    NSCD_SYSTEM_ERROR = 9522, "system call of the nscd server failed",
        cause: "The kernel returned an error that the server cannot handle.",
        fix: "Read the error text, and restart the server.";
    NSCD_NOTIFY_FAILED = 9523, "service manager was not notified",
        cause: "The socket of NOTIFY_SOCKET is not reachable.",
        fix: "Check the unit of the server.";
    NSCD_THREAD_FAILED = 9524, "thread that builds maps cannot be started",
        cause: "The limit of processes is reached. The server tries again after a second.",
        fix: "Raise TasksMax of the unit roster-nscd.";
    NSCD_MAP_NOT_SENT = 9525, "map cannot be sent to a client",
        cause: "The kernel rejected the descriptor, for example at its limit. The client uses its name services.",
        fix: "Raise LimitNOFILE of the unit roster-nscd.";
    NSCD_SERVICES_UNREADABLE = 9526, "nsswitch.conf cannot be read",
        cause: "The server does not know which services a map may contain, so it has no maps.",
        fix: "Make /etc/nsswitch.conf readable.";
    NSCD_SNAPSHOT_UNUSABLE = 9527, "snapshot cannot be used for a map",
        cause: "The snapshot is unreadable or invalid, or other users may write to it. The map has only local entries.",
        fix: "Run roster doctor, and follow its advice for the snapshot.";
    NSCD_SOURCE_INVALID = 9528, "local file cannot be converted to a map",
        cause: "The passwd or group file is unreadable, or an entry is too large.",
        fix: "Correct the file and line of the message.";
    NSCD_SNAPSHOT_DAMAGED = 9529, "snapshot has a damaged record",
        cause: "The disk or memory changed the file. The map has only local entries.",
        fix: "Restart rosterd, which publishes the snapshot again, and check the disk.";
    NSCD_MAP_TOO_LARGE = 9530, "map is too large",
        cause: "The nscd client of glibc maps at most 2 GiB.",
        fix: "Serve fewer users and groups on this host, or disable roster nscd.";
    NSCD_MAP_WRITE_FAILED = 9531, "map cannot be written",
        cause: "The file system of the map directory is full, or the disk failed.",
        fix: "Enlarge the file system of /run/roster-nscd.";
    NSCD_MAP_FILE_FAILED = 9532, "map file cannot be created or opened",
        cause: "The file system of the map directory is full or read-only.",
        fix: "Enlarge the file system of /run/roster-nscd.";

    // Snapshots: roster verify and roster compile.
    VERIFY_FORMAT = 9533, "file is not a valid snapshot",
        cause: "The header is damaged, or the file has another format or version.",
        fix: "Create the snapshot again with roster compile, or restart rosterd.";
    VERIFY_RECORD = 9534, "record of the snapshot is damaged",
        cause: "The record does not match its checksum, because the disk or memory changed the file.",
        fix: "Check the disk, then create the snapshot again.";
    VERIFY_CONTENT = 9535, "content of the snapshot does not match its hash",
        cause: "The file was changed or written incompletely.",
        fix: "Check the disk, then create the snapshot again.";
    VERIFY_DOMAINS = 9536, "domains do not cover the entries of the snapshot",
        cause: "The table of domains is damaged.",
        fix: "Check the disk, then create the snapshot again.";
    VERIFY_INDEX = 9537, "index of the snapshot is wrong",
        cause: "An entry of the index is damaged or missing, so lookups do not find the record.",
        fix: "Check the disk, then create the snapshot again.";
    COMPILE_SOURCE_UNREADABLE = 9538, "source file cannot be read",
        cause: "The file does not exist, or is not readable for this user.",
        fix: "Correct the path, or run the command as root.";
    COMPILE_ENTRY_TOO_LARGE = 9539, "entry is too large for a snapshot",
        cause: "A field or a list of the line exceeds a limit of the snapshot format.",
        fix: "Shorten the entry.";
    COMPILE_TOO_LARGE = 9540, "sources are too large for a snapshot",
        cause: "The number or the total size of the entries exceeds a limit of the snapshot format.",
        fix: "Compile fewer entries.";

    // The move from SSSD or nslcd: roster migrate-config and roster domain compare-ids.
    PASSWORD_TRIAL_NOT_ROOT = 9760, "only root may try passwords of users",
        cause: "roster access --password checks passwords of any user, without a limit for the caller.",
        fix: "Run the command as root.";
    PASSWORD_UNREADABLE = 9761, "the password to try cannot be read",
        cause: "Standard input ended with an error, was interrupted, or has a line of more than 1,024 bytes.",
        fix: "Enter the password at the prompt, or give one line on standard input.";
    PASSWORD_NOT_CHECKED = 9762, "rosterd does not check passwords of the user",
        cause: "The domain of the user has auth = \"none\", so another PAM module checks passwords.",
        fix: "Set auth in the domain (roster.toml(5)), or try the password with pamtester.";
    MIGRATE_SOURCE_UNREADABLE = 9820, "configuration to convert cannot be read",
        cause: "The file does not exist, or the user may not read it. sssd.conf and nslcd.conf belong to root.",
        fix: "Correct the path, or run the command as root.";
    MIGRATE_SOURCE_SYNTAX = 9821, "line of the configuration to convert cannot be parsed",
        cause: "The line is not a section, comment or setting, or the file is too large or not UTF-8.",
        fix: "Correct the file. SSSD does not start with such a line either.";
    MIGRATE_SOURCE_UNTRUSTED = 9822, "configuration to convert is not protected",
        cause: "Another user than root owns the file or may write to it. SSSD ignores such a drop-in.",
        fix: "Check its content, then run `chown root` and `chmod 600` on the file, or remove it.";
    MIGRATE_SOURCE_MISSING = 9823, "no configuration to convert",
        cause: "sssd.conf and nslcd.conf are both missing in their usual places, or both exist.",
        fix: "Name one file with --sssd or --nslcd.";
    MIGRATE_STOPPED = 9824, "conversion stopped, and nothing was written",
        cause: "A setting restricts logins or entries and has no counterpart, or a domain cannot be converted.",
        fix: "Follow the cure of each setting, or name each setting with --without.";
    MIGRATE_WAIVER_UNUSED = 9825, "--without names a setting that does not stop the conversion",
        cause: "The name is misspelt, or the setting is gone or converted.",
        fix: "Remove the option, or correct the name.";
    MIGRATE_RESULT_INVALID = 9826, "converted configuration is not valid",
        cause: "A value of the old configuration is not accepted in roster.toml.",
        fix: "Correct the value in the old configuration, and convert it again.";
    MIGRATE_OUTPUT_EXISTS = 9827, "output of the conversion exists",
        cause: "The command replaces no file.",
        fix: "Move the file away, or name another file with --output.";
    MIGRATE_OUTPUT_FAILED = 9828, "output of the conversion cannot be written",
        cause: "The directory does not exist, is read-only, or belongs to another user.",
        fix: "Create the directory, and run the command as root.";
    SSSD_CACHE_UNREADABLE = 9829, "cache of SSSD cannot be read",
        cause: "The file does not exist, or the user may not read it. The cache belongs to root or to sssd.",
        fix: "Run the command as root. Name the domain with --sssd-domain and the directory with --cache-dir.";
    SSSD_CACHE_BUSY = 9830, "cache of SSSD is locked",
        cause: "SSSD wrote to the cache for 10 s, for example while it enumerates.",
        fix: "Try again later, or stop SSSD for the comparison.";
    SSSD_CACHE_INTERRUPTED = 9831, "cache of SSSD has an interrupted write",
        cause: "SSSD or the host ended during a write. SSSD completes the write at its next start.",
        fix: "Start SSSD once, and try again.";
    SSSD_CACHE_INVALID = 9832, "cache of SSSD cannot be parsed",
        cause: "The file is damaged, or of another format than LDB on TDB.",
        fix: "Look up the users once more with SSSD, or remove its cache and start it again.";
    COMPARE_DOMAIN_MISSING = 9833, "snapshot has no such domain",
        cause: "rosterd has not published the domain yet, or its name differs.",
        fix: "Use a domain of `roster domain list`, and wait until it is complete.";

    // roster access --password.
}
