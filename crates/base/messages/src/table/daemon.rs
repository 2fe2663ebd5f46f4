// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log lines of the monitor, the publisher and the responders. Those of backends are in `directory`.

crate::messages! {
    // Start of the monitor.
    PING_INTERVAL_INVALID = 4001, "ping interval is invalid",
        cause: "The value of --ping is zero, negative or not a number.",
        fix: "Pass a positive number of seconds to --ping, or omit the option.";
    PROCESS_SETUP_FAILED = 4002, "process cannot set up its event loop or signals",
        cause: "The kernel refused a descriptor, a signal handler or memory at the start of the process.",
        fix: "Check the limits of the unit, such as LimitNOFILE and MemoryMax, then restart rosterd.";
    WORKING_DIR_MISSING = 4003, "relative path cannot be resolved",
        cause: "The path is empty, or the working directory of rosterd was removed.",
        fix: "Pass an absolute path.";
    PACKAGER_FILE_UNWRITABLE = 4004, "man page or completion script cannot be written",
        cause: "The output directory or standard output does not accept the file.",
        fix: "Pass a directory that this user may write to.";
    CONFIG_UNREADABLE = 4005, "configuration cannot be read",
        cause: "The kernel refused to read the file or a file that it names.",
        fix: "Check that the file exists and that root may read it.";
    PASSWD_UNREADABLE = 4006, "passwd file cannot be read",
        cause: "rosterd reads its own users and trusted_users from this file, and the kernel refused to read it.",
        fix: "Check that the file exists and that root may read it.";
    ROLE_USERS_MISSING = 4007, "users for the roles are missing",
        cause: "Each role runs as a separate user with the primary group of roster-bus, and some are missing or shared.",
        fix: "Create them with `systemd-sysusers roster.conf`, or pass --state-dir to run all roles as one user.";
    RESPONDER_USER_MISSING = 4008, "user of a responder is missing",
        cause: "The configuration requires a responder, but its user is not in /etc/passwd.",
        fix: "Create the user with `systemd-sysusers roster.conf`.";
    ROLES_SHARE_USER = 4009, "all roles run as one user",
        cause: "rosterd was not started by root, or with --state-dir. Isolation between roles relies on the sandbox only.",
        fix: "On a production host, start rosterd as root without --state-dir.";
    UID_NOT_IN_PASSWD = 4010, "uid of the roles is not in /etc/passwd",
        cause: "dbus-daemon refuses connections of a uid that no name service knows, and then no role can start.",
        fix: "Add a line for this uid to /etc/passwd.";
    DBUS_DAEMON_MISSING = 4011, "dbus-daemon is not installed",
        cause: "The roles communicate over a private message bus, which dbus-daemon provides.",
        fix: "Install the package dbus-daemon (Debian, Fedora) or dbus.";
    BUS_NOT_EXECUTABLE = 4012, "dbus-daemon cannot be executed",
        cause: "The kernel refused to run the dbus-daemon that was found at the start.",
        fix: "Install the package dbus-daemon again, then restart rosterd.";

    // Directories and sockets.
    RUN_DIR_UNUSABLE = 4013, "run-time directory cannot be used",
        cause: "The directory of sockets cannot be created, or rosterd cannot write to it.",
        fix: "Pass a directory that this user may write to with --run-dir.";
    STATE_DIR_UNUSABLE = 4014, "state directory cannot be used",
        cause: "The directory of snapshots and caches cannot be created, or rosterd cannot write to it.",
        fix: "Pass a directory that this user may write to with --state-dir.";
    DIR_WRITABLE_BY_OTHERS = 4015, "other users may write to a directory of rosterd",
        cause: "The mode of the directory allows other users to plant files or sockets.",
        fix: "Run `chmod go-w` on the directory, or pass another one.";
    DIR_OWNER_UNEXPECTED = 4016, "directory of rosterd belongs to another user",
        cause: "The owner is neither root nor the user of rosterd, and could plant files in it.",
        fix: "Run `chown` on the directory, or pass another one.";
    SUBDIR_OWNER_UNEXPECTED = 4017, "subdirectory of rosterd belongs to another user",
        cause: "The owner is not the user of this role, and could have planted files in it.",
        fix: "Move the directory away. rosterd creates it again.";
    NOT_A_DIRECTORY = 4018, "file has the name of a directory of rosterd",
        cause: "Another program created a file or a link where rosterd needs a directory.",
        fix: "Remove the file. rosterd creates the directory.";
    RUN_DIR_IN_USE = 4019, "another rosterd uses the run-time directory",
        cause: "A second rosterd was started with the same --run-dir.",
        fix: "Stop the other rosterd, or pass another --run-dir.";
    STATE_DIR_IN_USE = 4020, "another rosterd uses the state directory",
        cause: "A second rosterd was started with the same --state-dir.",
        fix: "Stop the other rosterd, or pass another --state-dir.";
    SOCKET_PATH_TOO_LONG = 4021, "path of a socket is too long",
        cause: "The kernel limits the path of a Unix socket, and --run-dir exceeds that limit.",
        fix: "Pass a shorter --run-dir.";
    SOCKET_PATH_OCCUPIED = 4022, "file has the name of a socket of rosterd",
        cause: "Another program created a file where rosterd needs a socket.",
        fix: "Remove the file, then restart rosterd.";
    LISTEN_FAILED = 4023, "role's socket cannot be opened",
        cause: "The address is in use, or rosterd may not create the socket.",
        fix: "Check the address in roster.toml and which program uses it: `ss -lp`.";
    CACHE_DIR_UNUSABLE = 4024, "cache directory of a domain cannot be prepared",
        cause: "The file system refused to create the directory or to change its owner.",
        fix: "Check space and mount options of the state directory. rosterd retries.";
    CACHE_FILE_FOREIGN = 4025, "cache directory has a file of another user",
        cause: "A file in the directory of a domain's cache is a link, or belongs to an unexpected user.",
        fix: "Remove the file. rosterd restarts the backend.";
    CACHE_FILES_TOO_MANY = 4026, "cache directory has too many files",
        cause: "A backend creates a few files only, so another program filled the directory.",
        fix: "Remove the directory. The backend reads its domain again.";
    FLOOR_UNWRITABLE = 4027, "file with min_id cannot be written",
        cause: "Programs limit the ids that they accept by this file, and its directory is missing or read-only.",
        fix: "Check the directory of the file, run `systemctl reload rosterd`, and check the result with `roster doctor`.";
    PUBLISHED_MARK_UNWRITABLE = 4028, "mark of a published snapshot cannot be created",
        cause: "Without this file, programs treat a missing snapshot as a host without directory users.",
        fix: "Create the file, or make its directory writable for root.";
    KEYTAB_MARK_UNWRITABLE = 4029, "mark of a used keytab cannot be created",
        cause: "Without the mark, krb5_validate = \"auto\" accepts any KDC if the keytab is lost before the next start.",
        fix: "Check space and mount options of the state directory. rosterd retries.";

    // Reload.
    RELOAD_REJECTED = 4030, "rosterd rejected the new configuration",
        cause: "The configuration has errors, which the next log lines name. The previous one stays in force.",
        fix: "Correct the errors, then run `systemctl reload rosterd`.";
    KEYTAB_NOT_APPLIED = 4031, "new keytab is not applied",
        cause: "The processes of the new keytab cannot be planned, for the reason in the next log line.",
        fix: "Correct that error, then run `systemctl reload rosterd`.";
    RELOAD_BUSY = 4032, "too many reload requests wait",
        cause: "Earlier requests to reload the configuration are not finished.",
        fix: "Wait some seconds, then run `systemctl reload rosterd` again.";
    RELOAD_RUNNING = 4033, "reload takes long",
        cause: "rosterd is still reading the configuration. It applies the result later.",
        fix: "Check the result with `roster status`.";
    MONITOR_STOPS = 4034, "rosterd is stopping",
        cause: "A stopping rosterd does not reload its configuration.",
        fix: "Start rosterd again. It reads the configuration then.";
    MONITOR_ONLY = 4035, "only root and the monitor may make this request",
        cause: "Another user called a method that changes the state of rosterd.",
        fix: "Run the command as root.";
    LOG_LEVEL_UNKNOWN = 4036, "log level is unknown",
        cause: "The request has a level that rosterd does not know.",
        fix: "Write error, warn, info, debug or trace.";

    // Processes of roles.
    ROLE_START_FAILED = 4037, "process of a role cannot be started",
        cause: "The kernel refused a new process or a descriptor for it. rosterd retries.",
        fix: "Check the limits of the unit, such as TasksMax, LimitNOFILE and MemoryMax.";
    ROLE_CONFIG_TOO_LARGE = 4038, "configuration of a role is too large",
        cause: "The configuration of one domain, certificates included, exceeds the limit for a process.",
        fix: "Reduce the file that tls_ca names to the required certificates.";
    ROLE_START_TIMEOUT = 4039, "role did not become ready in time",
        cause: "The process did not join the bus within 2 minutes, or the bus within 10 seconds. rosterd restarts it.",
        fix: "Check the log of the role, and the load of the host.";
    ROLE_NO_REPLY = 4040, "role does not reply",
        cause: "The process missed three status calls in a row. rosterd kills and restarts it.",
        fix: "Check the load and the disks of the host. If it happens again, report it with the log of the role.";
    ROLE_STOP_TIMEOUT = 4041, "role did not stop in time",
        cause: "The process was still working, for example on a slow disk, when the time limit of its end passed.",
        fix: "Check the disk of the state directory.";
    ROLE_RESTARTED = 4042, "process of a role ended unexpectedly",
        cause: "The process failed or was killed, for the reason in the message. rosterd restarts it.",
        fix: "Check the log of the role. After signal 9, check for an out-of-memory kill: `journalctl -k`.";
    PROCESSES_LEFT = 4043, "processes survived SIGKILL",
        cause: "A process waits in the kernel, for example for a file system that hangs. rosterd exits without it.",
        fix: "Find it with `ps -eo pid,stat,wchan,comm`, and repair the file system that it waits for.";
    START_INCOMPLETE = 4044, "rosterd started without all roles",
        cause: "Some roles were not ready 30 seconds after the start. The other roles work.",
        fix: "Check these roles with `roster status`, and their log lines.";
    ROLE_WITHOUT_MONITOR = 4045, "role was not started by rosterd",
        cause: "The monitor exited, or the command was run by hand. Only the monitor starts roles.",
        fix: "Run `systemctl start rosterd`.";
    ROLE_HELPER_FAILED = 4046, "helper process of a role cannot be started",
        cause: "A role, such as a backend with Kerberos, needs a second process, which failed to start.",
        fix: "Check that the helper is installed, then restart rosterd.";
    ROLE_FAILED = 4047, "role cannot continue",
        cause: "The process met an error that it cannot handle. rosterd restarts it.",
        fix: "Correct the cause that the message names.";
    FILE_OUTSIDE_SANDBOX = 4048, "followed file moved outside the sandbox",
        cause: "The directory of the file was replaced, and the process may only read the previous one.",
        fix: "No action is needed. rosterd restarts the process with access to the new directory.";

    // The message bus.
    BUS_LOST = 4049, "process lost the message bus",
        cause: "dbus-daemon ended or closed the connection. rosterd restarts the bus and then the process.",
        fix: "Check the log lines of the bus. After signal 9, check for an out-of-memory kill: `journalctl -k`.";
    BUS_UNREACHABLE = 4050, "role cannot connect to the message bus",
        cause: "The socket of the bus is missing, or dbus-daemon refused the connection. rosterd retries.",
        fix: "Check the log lines of the bus, and that /etc/passwd has the users of the roles.";
    BUS_NO_REPLY = 4051, "message bus does not reply",
        cause: "dbus-daemon accepted no connection within 10 seconds. rosterd retries.",
        fix: "Check the load of the host and the log lines of the bus.";
    BUS_NAME_DENIED = 4052, "bus denies a role its name",
        cause: "The policy of the bus does not match the user of the role, or the bus ended.",
        fix: "Restart rosterd. It writes the policy again.";
    BUS_NAME_TAKEN = 4053, "another process owns the bus name of a role",
        cause: "The previous process of the role has not ended yet. rosterd retries.",
        fix: "If it happens again, find the process with `ps`, and stop it.";
    BUS_POLICY_NOT_APPLIED = 4054, "bus did not apply its new policy",
        cause: "dbus-daemon did not reload its configuration. Until it does, new roles cannot join. rosterd retries.",
        fix: "If it happens again, restart rosterd.";
    BUS_SOCKET_REMOVED = 4055, "socket of the bus was removed",
        cause: "Another program removed files of the run-time directory. rosterd restarts the bus and all roles.",
        fix: "Find the program that cleans up the run-time directory, and exclude the directory.";
    ROLE_SOCKET_REMOVED = 4056, "socket of a role was removed",
        cause: "Another program removed or replaced the socket. rosterd created it again and restarts the role.",
        fix: "Find the program that cleans up the run-time directory, and exclude the directory.";
    SIGNAL_NOT_SENT = 4057, "publisher cannot send a signal",
        cause: "The bus refused the signal or hangs. Caches of other roles stay outdated for some seconds.",
        fix: "No action is needed for a single event. Otherwise check the log lines of the bus.";

    // The publisher.
    SNAPSHOT_DISK_ERROR = 4058, "snapshot cannot be read from its disk",
        cause: "The disk or the file system reports an error for the file. Programs use the copy in memory.",
        fix: "Check the disk: `journalctl -k`. rosterd publishes the snapshot again.";
    SNAPSHOT_COPY_MISSING = 4059, "copy of the snapshot in memory is missing",
        cause: "The run-time directory has no space, or is not writable. Programs read the file from its disk.",
        fix: "Check the free space of the run-time directory with `df`.";
    SNAPSHOT_NOT_WATCHED = 4060, "snapshot cannot be watched",
        cause: "The kernel refused an inotify watch. The publisher checks the file every second instead.",
        fix: "Increase fs.inotify.max_user_instances and fs.inotify.max_user_watches with `sysctl`.";
    SNAPSHOT_LOST = 4061, "another program changed or removed the snapshot",
        cause: "The file differs from rosterd's last snapshot, or cannot be read. rosterd writes it again.",
        fix: "Find the program that changes the file, for example a restore job, and stop it.";
    SNAPSHOT_FOREIGN = 4062, "snapshot was written by another program",
        cause: "The file was restored from a backup, or written by `roster compile`, while rosterd was stopped.",
        fix: "No action is needed. rosterd replaces it once it has read all domains.";
    OWN_RECORD_MISSING = 4063, "record of published snapshots is missing or damaged",
        cause: "The next snapshot waits for every domain, and mass_deletion_threshold does not limit its removals.",
        fix: "No action is needed. rosterd writes the record with the next snapshot.";
    SNAPSHOT_DIR_REPLACED = 4064, "directory of snapshots was removed or replaced",
        cause: "The publisher may only write to the previous directory. rosterd restarts it.",
        fix: "Find the program that changes the directory. The restart needs no action.";
    PUBLISH_FAILED = 4065, "snapshot cannot be published",
        cause: "The file cannot be written or is invalid. The previous snapshot stays in place, and rosterd retries.",
        fix: "Check the space and the mount options of the state directory.";
    PUBLICATION_WAITS = 4066, "publication is on hold",
        cause: "The next snapshot needs a domain or the host accounts. The previous snapshot stays in place.",
        fix: "Check the domains with `roster status`.";
    PUBLICATION_RUNNING = 4067, "publication takes long",
        cause: "The publisher is still writing the snapshot, for example to a slow disk.",
        fix: "Check the result with `roster status`.";
    LOCAL_ACCOUNTS_UNREADABLE = 4068, "host accounts cannot be read",
        cause: "A passwd, group, subuid or subgid file or /etc/shells is unreadable or invalid. Accounts of the last good read count.",
        fix: "Fix the file that the message names, or change passwd and group under [host].";
    LOCAL_ACCOUNTS_NOT_WATCHED = 4069, "files of host accounts cannot be watched",
        cause: "The kernel refused an inotify instance for the publisher.",
        fix: "Increase fs.inotify.max_user_instances with `sysctl`.";
    DOMAIN_SIGNALS_MISSING = 4070, "publisher cannot follow a backend",
        cause: "The bus refused a subscription to signals of the backend. The domain is not updated.",
        fix: "Restart rosterd.";
    DOMAIN_INCOMPLETE = 4071, "backend has not read all entries yet",
        cause: "The backend has started and still reads its directory. The entries of the last snapshot stay.",
        fix: "No action is needed, unless `roster status` shows an error of the domain.";
    DOMAIN_NOT_REACHED = 4072, "backend has not reached its directory yet",
        cause: "The backend has only its cache, which may be older than the last snapshot.",
        fix: "Check the directory server and the network, then `roster status`.";
    REMOVALS_HELD = 4073, "removal of many entries is on hold",
        cause: "An update of the domain removes more entries than mass_deletion_threshold allows.",
        fix: "If the removal is correct, run `roster domain approve-removals`. Otherwise fix the directory.";
    UPDATE_REJECTED = 4074, "publisher rejected an update of a backend",
        cause: "The data of the backend is malformed. The publisher and the backend may have different versions.",
        fix: "Restart rosterd. If it happens again, report it with the log.";
    DOMAIN_TOO_LARGE = 4075, "domain has more entries than the publisher can hold",
        cause: "The entries of the domain exceed the memory limit of one domain.",
        fix: "Narrow the domain with base or filter in roster.toml.";
    DOMAIN_UNKNOWN = 4076, "domain is unknown",
        cause: "The request names a domain that is not in domains under [host].",
        fix: "List the domains with `roster status`.";

    // The responders.
    ACCEPT_FAILED = 4077, "responder cannot accept a connection",
        cause: "The process has no free descriptors or memory. It retries.",
        fix: "Check the number of connections with `ss -x`, and the memory of the host.";
    MODULE_VERSION_MISMATCH = 4078, "program uses another protocol version",
        cause: "The program loaded the NSS or PAM module before an update, or rosterd was not restarted after one.",
        fix: "Restart the program, and rosterd if it is older than the module.";
    PUBLISHER_REPLY_MALFORMED = 4079, "publisher sent a malformed reply",
        cause: "The responder and the publisher have different versions.",
        fix: "Restart rosterd.";
    RESPONDER_SOCKET_MISSING = 4080, "responder has no usable socket",
        cause: "The monitor passed no listening socket to the responder. rosterd retries.",
        fix: "Restart rosterd. If it happens again, report it with the log.";
    RESPONDER_SIGNALS_MISSING = 4081, "responder cannot receive signals of the bus",
        cause: "The bus refused a subscription. The responder would return outdated replies, and restarts.",
        fix: "If it happens again, restart rosterd.";

    CLIENT_CERTIFICATE_NOT_APPLIED = 4740, "new client certificate not applied",
        cause: "The certificate of a domain changed, and the monitor could not apply it.",
        fix: "Fix the reason in the following lines, then run `systemctl reload rosterd`.";

    OVERRIDES_NOT_APPLIED = 4790, "overrides of a domain are not applied",
        cause: "The file of overrides_file cannot be read, or has a mistake. The last valid overrides stay.",
        fix: "Correct the file. `roster check-config` lists its mistakes. rosterd reads it again after a change.";
    OVERRIDES_NOT_WATCHED = 4791, "file with overrides cannot be watched",
        cause: "The kernel refused an inotify watch.",
        fix: "Raise fs.inotify.max_user_instances and fs.inotify.max_user_watches, then restart rosterd.";
    // Log levels.
    LOG_ROLE_UNKNOWN = 4800, "log level for an unknown role",
        cause: "The request names a role that this configuration does not have.",
        fix: "List the roles with `roster status`.";

}
