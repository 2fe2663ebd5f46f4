// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mistakes in policies, and refused or failed commands: rootwrap, roster-exec and their clients in Python.
//!
//! `crates/act/exec` and `python/` do not depend on this crate. They have the codes as literals, which a test of
//! `roster-rootwrap` compares with this table.

crate::messages! {
    // rootwrap.conf and filter files.
    CONF_UNREADABLE = 7001, "rootwrap.conf cannot be read",
        cause: "The file does not exist, or the calling user may not read it.",
        fix: "Name a rootwrap.conf that this user may read.";
    CONF_VALUE_INVALID = 7002, "invalid value in rootwrap.conf",
        cause: "The value of the key has another form or is out of range.",
        fix: "Write a value of the required form. docs/reference/configuration.md lists the keys.";
    FILTERS_PATH_MISSING = 7003, "rootwrap.conf without filters_path",
        cause: "The section [DEFAULT] has no key filters_path, so there are no filters.",
        fix: "Write filters_path=/etc/…/rootwrap.d below [DEFAULT].";
    FILTER_DIR_MISSING = 7004, "directory of filters does not exist",
        cause: "An entry of filters_path does not name a directory. Its filters are missing.",
        fix: "Create the directory, or remove it from filters_path.";
    FILTER_DIR_UNREADABLE = 7005, "directory of filters cannot be listed",
        cause: "The calling user may not read a directory of filters_path, or its file system fails.",
        fix: "Allow this user to read the directory, or remove it from filters_path.";
    FILTER_DIR_TOO_LARGE = 7006, "too many files in a directory of filters",
        cause: "A directory of filters_path has more than 10,000 entries.",
        fix: "Remove files from the directory, or correct filters_path.";
    FILTER_FILE_UNREADABLE = 7007, "filter file cannot be read",
        cause: "The calling user may not read the file, or its file system fails.",
        fix: "Allow this user to read the file, or remove it.";
    FILTER_RULES_TOO_MANY = 7008, "too many filters",
        cause: "The files of filters_path have more than 50,000 filters.",
        fix: "Remove filter files.";
    POLICY_TOO_LARGE = 7009, "policy file is larger than 1 MiB",
        cause: "Roster reads at most 1 MiB of a configuration, a filter file or an exec.toml.",
        fix: "Remove content from the file, or divide a filter file into several.";
    POLICY_NOT_UTF8 = 7010, "policy file is not UTF-8",
        cause: "The file has bytes that are not UTF-8, for example from an editor with another encoding.",
        fix: "Save the file as UTF-8.";
    INI_LINE_BEFORE_SECTION = 7011, "line before the first section",
        cause: "A file of filters or a rootwrap.conf begins with a line that belongs to no section.",
        fix: "Write [DEFAULT] or [Filters] above the line.";
    INI_LINE_WITHOUT_SEPARATOR = 7012, "line without = or :",
        cause: "The line is not a comment, not a section, and does not continue a value.",
        fix: "Write NAME: VALUE, or begin a comment with #.";
    INI_LINE_WITHOUT_NAME = 7013, "line without a name",
        cause: "The line begins with = or :.",
        fix: "Write a name before the = or :.";
    INI_DUPLICATE_SECTION = 7014, "section occurs twice",
        cause: "rootwrap.conf has two sections with the same name.",
        fix: "Join the two sections.";
    INI_DUPLICATE_NAME = 7015, "name occurs twice",
        cause: "A section of rootwrap.conf has two values for one name.",
        fix: "Remove one of the two lines.";
    FILTERS_SECTION_MISSING = 7016, "filter file without a section [Filters]",
        cause: "The file has no section [Filters], which contains the filters.",
        fix: "Write [Filters] above the filters, or remove the file.";
    FILTER_CLASS_UNKNOWN = 7017, "unknown class of a filter",
        cause: "The first word of the filter is not a class of oslo.rootwrap. The filter is ignored.",
        fix: "Write one of CommandFilter, RegExpFilter, PathFilter, KillFilter, ReadFileFilter, IpFilter, EnvFilter, \
            IpNetnsExecFilter and ChainingRegExpFilter.";
    FILTER_NUL = 7018, "NUL in a filter",
        cause: "The filter has a NUL byte, which no command line can have.",
        fix: "Remove the NUL byte.";
    FILTER_ARGUMENTS_MISSING = 7019, "filter with too few arguments",
        cause: "The class of the filter requires more arguments.",
        fix: "Write all arguments of the class.";
    PATTERN_INVALID = 7020, "pattern is not a regular expression",
        cause: "Python rejects the pattern. A filter with it never matches, and the daemon rejects an exec.toml with \
            it.",
        fix: "Correct the pattern, or remove the rule.";
    PATTERN_ABORTS = 7021, "pattern aborts the evaluation",
        cause: "Python raises an error other than re.error for the pattern. As in oslo.rootwrap, commands that reach \
            the filter do not run.",
        fix: "Correct the pattern.";
    PATTERN_UNSUPPORTED = 7022, "pattern with an unsupported construct",
        cause: "Python accepts the construct, but Roster does not. A filter with it never matches, and the daemon \
            rejects an exec.toml with it.",
        fix: "Write the pattern without this construct.";
    FILTER_UNTRUSTED = 7023, "other users can change filters",
        cause: "Another user than root and the caller can write to the file, to a directory above it, or to a link on \
            the way. Strict mode ignores its filters.",
        fix: "Give the file and the directories to root, writable only by root.";

    // Findings of check.
    CHECK_ENV_COMMAND = 7024, "caller sets a variable that some programs execute",
        cause: "An EnvFilter lets the caller set a variable that some programs use as a command, or as the name of a \
            file with commands.",
        fix: "Remove the variable from the filter if the command does not need it.";
    CHECK_ENV_LANGUAGE = 7025, "caller sets LANGUAGE",
        cause: "In compat mode programs read their messages, which include formats of printf(3), from files that \
            LANGUAGE names.",
        fix: "Remove LANGUAGE from the filter. LC_ALL selects the language.";
    CHECK_PRIVSEP_CONFIG = 7026, "caller selects the configuration of privsep-helper",
        cause: "The filter accepts any file as configuration, and privsep-helper executes code that its configuration \
            names.",
        fix: "Write a RegExpFilter with all arguments, and the configuration file without a wildcard.";
    CHECK_PRIVSEP_MISSING = 7027, "no filter for privsep-helper",
        cause: "The service starts privsep-helper. Compat mode has a built-in filter for it with any arguments, and \
            strict mode does not.",
        fix: "Add a RegExpFilter for privsep-helper before you set roster_mode = strict.";
    CHECK_MODES_DIFFER = 7028, "strict mode reads a filter differently",
        cause: "Strict mode closes gaps of oslo.rootwrap, so that the filter allows other commands than in compat \
            mode.",
        fix: "Before you set roster_mode = strict, make sure that the effect in strict mode is the intended one.";
    EXECUTABLE_UNTRUSTED = 7029, "other users can change an executable",
        cause: "Another user than root can write to the executable, to a directory above it, or to a link on the way. \
            Strict mode and roster-exec do not execute it.",
        fix: "Give the executable and the directories to root, writable only by root.";
    INTERPRETER_UNTRUSTED = 7030, "interpreter of a script is not trusted",
        cause: "Another user than root can change the interpreter of the script, or the interpreter cannot be \
            determined. Strict mode and roster-exec do not execute the script.",
        fix: "Give the interpreter to root, writable only by root, and name it by its absolute path in the first line.";

    // exec.toml.
    EXEC_TOML_UNREADABLE = 7031, "exec.toml cannot be read",
        cause: "The file does not exist, or the calling user may not read it.",
        fix: "Write the policy: exec.toml(5). Name another file with --policy.";
    EXEC_TOML_UNTRUSTED = 7032, "other users can change exec.toml",
        cause: "Another user than root can write to the file, to a directory above it, or to a link on the way. The \
            daemon rejects it.",
        fix: "Give the file and the directories to root, writable only by root.";
    EXEC_TOML_SYNTAX = 7033, "invalid TOML",
        cause: "The text is not valid TOML at this place.",
        fix: "Correct the line.";
    EXEC_KEY_UNKNOWN = 7034, "unknown key outside rules",
        cause: "exec.toml consists of rules only. The name may be mistyped, or a line [[rule]] may be missing above \
            it.",
        fix: "Write rules, each below a line [[rule]].";
    EXEC_RULES_TOO_MANY = 7035, "too many rules",
        cause: "exec.toml has more than 10,000 rules.",
        fix: "Remove rules.";
    EXEC_RULE_NOT_TABLE = 7036, "rule is not a table",
        cause: "The value of rule is a list of other values than tables.",
        fix: "Write [[rule]] on a separate line, and the keys of the rule below it.";
    EXEC_RULE_NAME_DUPLICATE = 7037, "two rules with one name",
        cause: "The records of the journal name rules, so a name has to be unique.",
        fix: "Give each rule its own name.";
    EXEC_RULE_KEY_UNKNOWN = 7038, "unknown key in a rule",
        cause: "A rule has no key of this name. The name may be mistyped.",
        fix: "Correct the name, or remove the key. exec.toml(5) lists all keys.";
    EXEC_RULE_KEY_MISSING = 7039, "rule without a required key",
        cause: "Each rule requires the keys name and command.",
        fix: "Write the key.";
    EXEC_RULE_VALUE_INVALID = 7040, "invalid value in a rule",
        cause: "The value of the key has another form or is out of range.",
        fix: "Write a value of the required form: exec.toml(5).";
    EXEC_RULE_WITHOUT_USERS = 7041, "rule without users and groups",
        cause: "The rule has neither users nor groups, so it applies to no caller.",
        fix: "Write users = [\"…\"] or groups = [\"…\"].";
    RULE_USER_UNKNOWN = 7042, "rule names an unknown user",
        cause: "The name service of this host does not know the user. A rule for that user has no effect, and a \
            command as that user does not start.",
        fix: "Correct the name, or create the user.";
    RULE_GROUP_UNKNOWN = 7043, "rule names an unknown group",
        cause: "The name service of this host does not know the group. A rule for that group has no effect, and a \
            command with that group does not start.",
        fix: "Correct the name, or create the group.";
    KEEP_ENV_DROPPED = 7044, "keep_env names a variable that the daemon removes",
        cause: "Programs load code by the variable, so the daemon removes it from the environment of every command.",
        fix: "Remove the variable from keep_env.";
    KEEP_ENV_LANGUAGE = 7045, "keep_env names LANGUAGE",
        cause: "Programs find their messages by LANGUAGE. The daemon drops values with / or %, as of LANG and LC_*.",
        fix: "Write the variables that the command needs one by one, without LANGUAGE.";
    KEEP_ENV_COMMAND = 7046, "keep_env names a variable that some programs execute",
        cause: "Some programs use the variable as a command, or as the name of a file with commands.",
        fix: "Write the variables that the command needs one by one.";
    ARGS_PATH_ELSEWHERE = 7047, "pattern matches paths outside its directory",
        cause: "The pattern matches an argument with /.. parts, which leads out of the directory.",
        fix: "Begin the pattern with (?!.*/\\.\\.(/|$)), which rejects arguments with /.. parts.";
    MAX_FILES_TOO_LOW = 7048, "max_files is too low to load a library",
        cause: "A dynamically linked program needs one descriptor besides its three streams.",
        fix: "Write 4 or more, unless the program is statically linked.";

    // Commands that a policy does not allow.
    NO_COMMAND = 7049, "call without a command",
        cause: "roster-rootwrap was called with a configuration and no command.",
        fix: "Write the command behind the configuration.";
    NO_FILTER_MATCHED = 7050, "no filter allows the command",
        cause: "No filter of the configuration matches the command.",
        fix: "Run roster-rootwrap explain CONF -- COMMAND for the reason of each filter.";
    NO_EXECUTABLE = 7051, "filter matches, but no executable is found",
        cause: "The executable of the filter does not exist in exec_dirs, or strict mode does not trust it.",
        fix: "Run roster-rootwrap explain CONF -- COMMAND for the reason of each filter.";
    FILTER_ABORTED = 7052, "filter aborts the evaluation",
        cause: "The evaluation reached a filter at which oslo.rootwrap raises an exception.",
        fix: "Correct the filter. roster-rootwrap check CONF lists mistakes.";
    MATCH_LIMIT = 7053, "pattern reaches the limit of matching",
        cause: "The pattern backtracks too much on an argument. The evaluation stops, and the command does not run.",
        fix: "Write a pattern without nested repetitions.";
    COMMAND_NUL = 7054, "NUL in a command",
        cause: "An argument has a NUL byte. execve(2) cannot pass it.",
        fix: "Remove the NUL byte.";
    ARGUMENT_TOO_LONG = 7055, "argument is too long",
        cause: "The kernel does not execute a command with an argument of 128 KiB or more (MAX_ARG_STRLEN).",
        fix: "Pass the data in a file or on standard input.";
    DENIED_CALLER = 7056, "no rule for this caller",
        cause: "No rule of exec.toml names the user or a group of the user, the command, and this host.",
        fix: "Add a rule to /etc/roster/exec.toml, or correct users, groups or hosts of a rule.";
    DENIED_COMMAND = 7057, "no rule allows the command",
        cause: "Rules of exec.toml name this user, but other commands.",
        fix: "Add a rule to /etc/roster/exec.toml, or name the command as the rule does.";
    DENIED_RUN_AS = 7058, "no rule allows the command as this user",
        cause: "A rule of exec.toml allows the command as another user. Without -u the requested user is root.",
        fix: "Select the user of the rule with -u, or correct run_as in /etc/roster/exec.toml.";
    DENIED_ARGUMENTS = 7059, "no rule allows the arguments",
        cause: "A rule of exec.toml allows the command with other arguments.",
        fix: "Use the arguments of the rule, or correct args in /etc/roster/exec.toml.";
    CALLER_UNKNOWN = 7060, "caller has no user name",
        cause: "The name service of this host knows no user with the uid of the caller.",
        fix: "Run the command as a user that getent passwd lists.";
    NAME_SERVICE_UNAVAILABLE = 7061, "name service does not answer",
        cause: "The daemon needs a user or a group, and the name service of the host did not answer in time.",
        fix: "Try again later. roster status and roster doctor show the state of the name service.";
    EVALUATION_ABORTED = 7062, "evaluation of rules was aborted",
        cause: "The client disconnected, the daemon is stopping, or matching took longer than 2 s.",
        fix: "Try again. If it fails again, simplify the patterns in /etc/roster/exec.toml.";
    CALLER_GONE = 7063, "caller has ended",
        cause: "The process that opened the connection ended before its command started.",
        fix: "Keep the calling process alive until the command ends.";
    CALLER_CANCELLED = 7064, "caller cancelled the command",
        cause: "A signal of the caller arrived before the command started.",
        fix: "No action is needed.";
    COMMANDS_TOO_MANY = 7065, "too many concurrent commands",
        cause: "The user, or all users together, run as many commands as the open files of the daemon allow.",
        fix: "Try again later, or raise LimitNOFILE of roster-exec.service.";
    CONNECTIONS_TOO_MANY = 7066, "too many connections",
        cause: "The user, or all users together, have as many connections as the open files of the daemon allow.",
        fix: "Try again later, or raise LimitNOFILE of roster-exec.service.";
    REQUESTS_TOO_LARGE = 7067, "too much memory for requests",
        cause: "Requests that wait use 16 MiB for one user, or 256 MiB for all users.",
        fix: "Try again later, or shorten the command and its environment.";
    DAEMON_STOPPING = 7068, "daemon is stopping",
        cause: "The daemon accepts no new command and waits for running ones to end.",
        fix: "Try again later.";

    // Commands that do not start.
    RUN_AS_REQUIRES_ROOT = 7069, "running as another user requires root",
        cause: "roster-rootwrap was not started by root, and the filter names another user than the caller.",
        fix: "Start roster-rootwrap with sudo.";
    STREAM_REFUSED = 7070, "descriptor of the caller is not usable",
        cause: "Descriptor 0 is not open for reading, or descriptor 1 or 2 is not open for writing. The command could \
            open the file again with its own rights.",
        fix: "Redirect the descriptor to a file that is open for this direction.";
    DIRECTORY_FORBIDDEN = 7071, "caller may not enter the directory",
        cause: "The client sent a directory that its user may not enter.",
        fix: "Call from another directory.";
    DIRECTORY_UNAVAILABLE = 7072, "working directory cannot be entered",
        cause: "Neither root nor the user of the command may enter the directory, for example on a network file \
            system.",
        fix: "Call from another directory.";
    PATH_UNRESOLVED = 7073, "path of an executable cannot be resolved",
        cause: "A link on the way leads to itself, or there are more than 1,000 links.",
        fix: "Correct the links.";
    EXECUTABLE_MISSING = 7074, "executable does not exist",
        cause: "The rule names a path without a file.",
        fix: "Install the program, or correct the path in the rule.";
    EXECUTABLE_REFUSED = 7075, "kernel does not execute the file",
        cause: "The file is not executable for the user, is open for writing, or has an unknown format.",
        fix: "Correct the mode or the content of the file.";
    START_TIMED_OUT = 7076, "command did not start in time",
        cause: "A file system that the command needs, such as that of its directory, does not answer.",
        fix: "Check the file systems of the executable and of the directory.";
    START_FAILED = 7077, "command cannot be started",
        cause: "The system refused a process, a descriptor, or memory.",
        fix: "Correct the cause that the message names, and try again.";
    SUPERVISION_FAILED = 7078, "command cannot be supervised",
        cause: "The daemon could not watch the command. It killed the command.",
        fix: "Correct the cause that the message names, and try again.";

    // Daemons.
    DAEMON_START_FAILED = 7079, "daemon cannot start",
        cause: "The system refused a resource that the daemon needs.",
        fix: "Correct the cause that the message names, and start the daemon again.";
    SYSTEMD_SOCKET_COUNT = 7080, "systemd passed another number of sockets than one",
        cause: "The unit of the socket has several addresses, or LISTEN_FDS is wrong.",
        fix: "Use roster-exec.socket with one ListenStream.";
    SYSTEMD_SOCKET_INVALID = 7081, "descriptor of systemd is not a listening Unix socket",
        cause: "The unit of the socket has another type than a stream socket in the file system.",
        fix: "Use roster-exec.socket with one ListenStream.";
    SOCKET_IN_USE = 7082, "another daemon serves the socket",
        cause: "A process already accepts connections at the path.",
        fix: "Stop the other daemon, or select another path with --socket.";
    SOCKET_UNAVAILABLE = 7083, "socket cannot be created",
        cause: "The directory cannot be created or written, or the path is too long.",
        fix: "Correct the directory, or select another path with --socket.";
    SOCKET_REPLACED = 7084, "path is not the socket of the daemon",
        cause: "Another file is at the path of the socket, or the socket was removed.",
        fix: "Restart roster-exec.socket.";
    SOCKET_DIR_REPLACED = 7085, "directory of the socket was replaced",
        cause: "Another user put a directory in the place of the new one.",
        fix: "Set TMPDIR to a directory that only root can write, or that has the sticky bit.";
    RELOAD_FAILED = 7086, "policy was not reloaded",
        cause: "The new policy has mistakes. The daemon keeps the old policy.",
        fix: "Correct the policy, then run systemctl reload roster-exec.";
    SPAWN_NOT_ISOLATED = 7087, "descriptor tables are not isolated",
        cause: "The system does not allow threads with separate descriptor tables (unshare(2) with CLONE_FILES). A \
            descriptor of one client can delay the start of other clients' commands.",
        fix: "Remove the restriction of unshare(2), for example by a seccomp filter.";
    CGROUPS_UNAVAILABLE = 7088, "no cgroups for commands with a timeout",
        cause: "The daemon may not create cgroups. On timeout it finds processes through /proc, and some may escape.",
        fix: "Use cgroup v2 and Delegate=yes in the unit.";
    RECORDS_DROPPED = 7089, "records of commands were dropped",
        cause: "The journal did not accept records for so long that a queue was full.",
        fix: "Check systemd-journald and its limits (RateLimitBurst).";
    OUTPUT_FAILED = 7090, "output cannot be written",
        cause: "Standard output, or a file of the output, refused data.",
        fix: "Free space, or select another file.";

    // roster-exec and its clients in Python.
    CLIENT_NO_DAEMON = 7091, "no daemon listens",
        cause: "The socket does not exist, or no process accepts connections. roster-exec.socket does not start \
            without a policy.",
        fix: "Write /etc/roster/exec.toml, then run systemctl start roster-exec.socket.";
    CLIENT_REFUSED = 7092, "socket refuses this user",
        cause: "The mode or access list of the socket excludes the user. The daemon also refuses a user while too \
            many connections of that user hang.",
        fix: "Correct the mode of the socket, or try again later.";
    CLIENT_GONE_BEFORE_START = 7093, "connection lost before the command started",
        cause: "The daemon ended, or closed the connection, before it reported the start.",
        fix: "Check whether the command ran, then try again. journalctl -u roster-exec shows why the daemon ended.";
    CLIENT_GONE_DURING_RUN = 7094, "connection lost while the command ran",
        cause: "The daemon ended. The status of the command is unknown.",
        fix: "Check the effect of the command. journalctl -u roster-exec shows why the daemon ended.";
    CLIENT_PROTOCOL = 7095, "invalid reply from the daemon",
        cause: "Client and daemon have different versions, or another program serves the socket.",
        fix: "Install client and daemon of one version, and restart the daemon.";
    CLIENT_SYSTEM = 7096, "system error of the client",
        cause: "The system refused an operation on the socket, the terminal or a signal.",
        fix: "Correct the cause that the message names, and try again.";
    CLIENT_TIMED_OUT = 7097, "command was killed after its timeout",
        cause: "The command ran longer than the timeout of its rule. The daemon killed it with all processes that it \
            started.",
        fix: "Raise timeout of the rule in /etc/roster/exec.toml if the command needs more time.";
    CLIENT_STREAMS_CLOSED = 7098, "closed descriptors cannot be replaced",
        cause: "Descriptor 0, 1 or 2 is closed, and /dev/null cannot be opened in its place.",
        fix: "Open the descriptors before the call, or make /dev/null available.";
    CLIENT_USAGE = 7099, "invalid command line",
        cause: "An option is unknown, has no value, or the command is missing.",
        fix: "Run roster-exec --help for the options.";
    CLIENT_REQUEST_TOO_LONG = 7100, "command and environment are too long",
        cause: "A request has at most 65,536 arguments, 65,536 variables, and 4 MiB.",
        fix: "Shorten the command, or remove variables from the environment.";
    CLIENT_NO_TERMINAL = 7101, "no terminal can be created",
        cause: "The system refused a pseudoterminal, for example because /dev/pts is full or not mounted.",
        fix: "Mount /dev/pts, or pass on the terminal of the caller with -t.";
    CLIENT_OUT_OF_MEMORY = 7102, "roster-exec is out of memory",
        cause: "The kernel refused memory, for example by a limit of the address space.",
        fix: "Raise the limit of the address space (ulimit -v).";
    CLIENT_INTERNAL = 7103, "internal error of roster-exec",
        cause: "roster-exec reached a state that its authors did not expect.",
        fix: "Report the message.";

    // roster_locust.
}
