//! Errors of `roster` commands and of `roster nscd`.

crate::messages! {
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
}
