// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors and warnings of `roster-lab`.

crate::messages! {
    // Files and this process.
    SYSTEM_ERROR = 8001, "system call or library function failed",
        cause: "The kernel or a library returned an error without a separate message of roster-lab.",
        fix: "Read the error text. Report it as a defect if it does not name a problem of this host.";
    FILE_UNREADABLE = 8002, "file cannot be read",
        cause: "The file does not exist, is not readable for this user, or the disk failed.",
        fix: "Correct the path, or the permissions of the file.";
    FILE_UNWRITABLE = 8003, "file cannot be written",
        cause: "The directory does not exist, is not writable for this user, or the disk is full.",
        fix: "Correct the path, or free space, then repeat the run.";
    OUTPUT_UNWRITABLE = 8004, "standard output cannot be written",
        cause: "The disk or the program that receives the standard output failed.",
        fix: "Free space, or write the report to a file with --json.";
    DIRECTORY_NOT_CREATED = 8005, "directory cannot be created",
        cause: "The parent directory does not exist or is not writable for this user, or the disk is full.",
        fix: "Correct the path, or the permissions of the parent directory.";
    THREAD_NOT_STARTED = 8006, "thread cannot be started",
        cause: "The kernel limits the threads of this user or this control group.",
        fix: "Use fewer --users or --threads, or raise the limit (ulimit -u, TasksMax).";
    THREAD_ENDED = 8007, "load thread ended early",
        cause: "A load thread ended without a result. This is a defect of roster-lab.",
        fix: "Repeat the run, and report the defect with the plan.";
    FD_LIMIT = 8008, "limit of open files is too low",
        cause: "Each user needs an open file for its connection. The hard limit of this process is lower.",
        fix: "Raise the hard limit with ulimit -Hn, or use fewer --users.";
    FD_LIMIT_NOT_RAISED = 8009, "limit of open files cannot be raised",
        cause: "The kernel rejected the new soft limit, which is within the hard limit.",
        fix: "Raise the limit with ulimit -n before the run.";
    PROGRAM_PATH_UNKNOWN = 8010, "path of the running roster-lab is unknown",
        cause: "roster-lab starts itself again and reads /proc/self/exe, which is not available.",
        fix: "Mount /proc.";
    RANDOM_UNAVAILABLE = 8011, "kernel returns no random bytes",
        cause: "getrandom(2) failed or is blocked by a sandbox.",
        fix: "Run roster-lab outside of the sandbox.";

    // Options.
    ADDRESS_SYNTAX = 8012, "address is not HOST:PORT",
        cause: "The value has no host, a port that is not a number, or a path.",
        fix: "Write HOST, HOST:PORT or [ADDRESS]:PORT.";
    URI_SYNTAX = 8013, "URI is not ldap://HOST:PORT or ldaps://HOST:PORT",
        cause: "The value has another scheme, no host, an invalid port, or a path.",
        fix: "Write ldap://HOST:PORT or ldaps://HOST:PORT.";
    HOST_NOT_FOUND = 8014, "host name has no address",
        cause: "The name services of this host returned no address for the name.",
        fix: "Correct the name, or write an address.";
    SOURCE_FAMILY = 8015, "source address and server have different address families",
        cause: "A connection from an IPv4 address cannot reach an IPv6 address, or the reverse.",
        fix: "Use --source addresses of the server's family.";
    START_TLS_WITH_LDAPS = 8016, "--start-tls with an ldaps:// URI",
        cause: "A connection to ldaps:// uses TLS from the first byte, so StartTLS has no effect.",
        fix: "Remove --start-tls, or use an ldap:// URI.";
    VALUE_SYNTAX = 8017, "--value is not ATTRIBUTE=VALUE",
        cause: "The value has no equals sign.",
        fix: "Write the attribute, an equals sign and the value.";
    TEMPLATE_SYNTAX = 8018, "value with variable parts is invalid",
        cause: "A brace has no counterpart, or the text between braces is not {A..B}, {@FILE} or {n}.",
        fix: "Correct the braces, or write a literal brace twice.";
    PASSWORD_MISSING = 8019, "password is missing",
        cause: "A bind needs the password of the entry.",
        fix: "Set --password.";
    FILTER_SYNTAX = 8020, "search filter is invalid",
        cause: "The filter does not conform to RFC 4515, or uses an extensible match.",
        fix: "Correct --filter, for example to (uid=alice).";
    DNS_NAME_INVALID = 8021, "DNS name is invalid",
        cause: "A label is empty or longer than 63 bytes, or the name is longer than 253 bytes.",
        fix: "Correct --name.";
    TGS_WITHOUT_PASSWORD = 8022, "--op tgs without a password",
        cause: "Service tickets require a login of each client before the run.",
        fix: "Set --password.";
    KNEE_RATE = 8023, "--knee needs one rate and one number of users",
        cause: "The search raises one rate until the latency exceeds the bound.",
        fix: "Set one number for --rate, and at most one for --users.";
    TOO_MANY_RUNS = 8024, "options make too many runs",
        cause: "roster-lab makes one run for each combination of --users and --rate.",
        fix: "Shorten the list of --users or of --rate.";
    CHECK_WITHOUT_RUN = 8025, "report of a run requested from a check",
        cause: "roster-lab check makes no run, so it has no percentiles and no charts.",
        fix: "Remove --html and --hdr, or make a run.";
    CHECK_DISABLED = 8026, "pre-run checks are disabled",
        cause: "roster-lab check makes only pre-run checks, and --probe 0 disables them.",
        fix: "Remove --probe 0.";
    NUL_IN_OPTION = 8027, "option contains a NUL byte",
        cause: "The C library ends a string at a NUL byte.",
        fix: "Remove the NUL byte from the option.";

    // The server on this host.
    UNIT_NAME_INVALID = 8028, "name of a systemd unit is invalid",
        cause: "A unit name contains no slash and is not a directory.",
        fix: "Write the name of the unit, for example slapd.service.";
    SERVER_PID_UNKNOWN = 8029, "process of the server does not exist",
        cause: "No process has this number, or /proc hides the processes of other users.",
        fix: "Correct --server-pid, or run roster-lab as root.";
    SERVER_PID_ENDED = 8030, "process of the server has ended",
        cause: "The process exited before the run.",
        fix: "Start the server, and set --server-pid to its new process.";
    SERVER_CPU_UNREADABLE = 8031, "processor time of the server cannot be read",
        cause: "The process ended, or the kernel does not provide its clock.",
        fix: "Check that the process of --server-pid runs.";
    UNIT_UNREADABLE = 8032, "control group of the unit cannot be read",
        cause: "The unit does not run, is not in system.slice, or the host has no unified cgroup hierarchy.",
        fix: "Start the unit, or use --server-pid instead of --server-unit.";
    KERNEL_FILE_FORMAT = 8033, "kernel file has an unexpected format",
        cause: "A file of /proc or /sys/fs/cgroup lacks a field that roster-lab needs.",
        fix: "Report the defect with the kernel version.";

    // Commands.
    COMMAND_MISSING = 8034, "command is empty",
        cause: "The list of the command has no element.",
        fix: "Write the command and its arguments.";
    COMMAND_NOT_EXECUTABLE = 8035, "command is not an executable file",
        cause: "The path does not lead to a regular file with execute permission.",
        fix: "Correct the path, or set the permission with chmod +x.";
    COMMAND_NOT_FOUND = 8036, "command is not in PATH",
        cause: "No directory of PATH has an executable file of this name.",
        fix: "Install the program, or write its path.";

    // Plans.
    PLAN_TOO_LONG = 8037, "plan is too long",
        cause: "A plan has at most 1 MiB.",
        fix: "Check that the file is a plan.";
    PLAN_SYNTAX = 8038, "plan is not valid TOML",
        cause: "The text does not conform to TOML.",
        fix: "Correct the line.";
    PLAN_WITHOUT_LOAD = 8039, "plan has no load",
        cause: "The file has no table with the name of a load.",
        fix: "Begin with a table such as [ldap].";
    PLAN_SECOND_LOAD = 8040, "plan has a second load",
        cause: "A plan has exactly one table.",
        fix: "Write one plan for each load.";
    PLAN_UNKNOWN_LOAD = 8041, "load of the plan is unknown",
        cause: "The table does not have the name of a load.",
        fix: "Use [ldap], [dns], [krb5], [nss], [pam] or [command].";
    PLAN_NOT_A_TABLE = 8042, "load of the plan is not a table",
        cause: "The load has a value instead of keys.",
        fix: "Write the load in brackets, and its keys below.";
    PLAN_UNKNOWN_KEY = 8043, "key of the plan is unknown",
        cause: "The load has no option of this name.",
        fix: "Correct the key. The --help text of the load lists its options.";
    PLAN_WRONG_TYPE = 8044, "value of the plan has the wrong type",
        cause: "The option of this key takes another type of value.",
        fix: "Write a value of the type that the message names.";
    PLAN_INVALID_OPTION = 8045, "option of the plan is invalid or missing",
        cause: "The option parser rejects the keys of the plan, or the options after the file.",
        fix: "Correct the key. The --help text of the load describes its options.";
    PLAN_NOT_TABLES = 8046, "definition of a Locust user class has the wrong shape",
        cause: "The master sent options that are not a table of keys.",
        fix: "Define the class with roster_locust.";

    // TLS.
    CA_FILE_INVALID = 8047, "file with CA certificates is invalid",
        cause: "The file is not readable, is not PEM, or has a certificate that cannot be a trust anchor.",
        fix: "Correct --tls-ca.";
    CA_FILE_EMPTY = 8048, "file with CA certificates has no certificate",
        cause: "The file has no PEM block of type CERTIFICATE.",
        fix: "Set --tls-ca to a file with the certificates of the authorities.";
    HOST_CA_MISSING = 8049, "host has no CA certificates",
        cause: "The directory of trusted certificates is empty, for example in a minimal container.",
        fix: "Install ca-certificates, or set --tls-ca.";
    SERVER_NAME_INVALID = 8050, "server name cannot be verified with TLS",
        cause: "The host of the URI is not a valid DNS name or address.",
        fix: "Write the name of the server's certificate in the URI.";

    // NSS and PAM.
    LIBRARY_NOT_LOADED = 8051, "library cannot be loaded",
        cause: "The dynamic linker did not find the library or one of its dependencies, or its architecture differs.",
        fix: "Install the library, or correct the path.";
    MODULE_NAME = 8052, "NSS module has another name than libnss_NAME.so.2",
        cause: "The names of the functions contain NAME, so roster-lab needs the file name.",
        fix: "Rename the file, or make a link with such a name.";
    MODULE_NOT_FOUND = 8053, "NSS module does not exist",
        cause: "The path of --module does not lead to a file.",
        fix: "Correct --module.";
    MODULE_FUNCTION_MISSING = 8054, "NSS module has no function for the lookup",
        cause: "The module does not serve this database.",
        fix: "Use another --lookup or another --module.";
    PAM_TOO_OLD = 8055, "PAM library lacks a function",
        cause: "The library is older than Linux-PAM 1.4, or is not Linux-PAM.",
        fix: "Install Linux-PAM 1.4 or newer.";

    // Kerberos.
    TOO_MANY_IDENTITIES = 8056, "too many identities need a key",
        cause: "Each pair of principal and password needs a key before the run, and hashing takes time.",
        fix: "Use fewer identities, or --no-preauth.";
    KDC_UNREACHABLE = 8057, "KDC does not reply",
        cause: "The KDC does not run, a firewall drops its packets, or the port differs.",
        fix: "Check --kdc, and that the KDC runs.";
    KDC_NO_KEY = 8058, "KDC has no key of a permitted encryption type",
        cause: "The principal has no key of the types of --enctype.",
        fix: "Permit another type with --enctype, or change the password of the principal.";
    KDC_ITERATIONS = 8059, "KDC requests an invalid number of hash iterations",
        cause: "The number is zero or above the limit of roster-lab.",
        fix: "Check the string-to-key parameters of the KDC.";
    KDC_OTHER_KEY = 8060, "KDC encrypted its reply with another type of key",
        cause: "The reply has another encryption type than the KDC announced.",
        fix: "Check the keys of the principal on the KDC.";
    KDC_REPLY_UNREADABLE = 8061, "reply of the KDC cannot be decrypted",
        cause: "The password is wrong, or the KDC has another key for the principal.",
        fix: "Correct --password.";
    KDC_SESSION_KEY = 8062, "session key has an unknown encryption type",
        cause: "The KDC chose an encryption type that roster-lab does not support.",
        fix: "Enable an AES type on the KDC.";

    // Failures of requests.
    REQUEST_TIMEOUT = 8063, "request got no reply in time",
        cause: "The server did not reply within --timeout.",
        fix: "Check the load and the log of the server, or raise --timeout.";
    REQUEST_NOT_SENT = 8064, "request was not sent",
        cause: "All users waited for replies until the end of the run.",
        fix: "Raise --users, or lower --rate.";
    CONNECT_FAILED = 8065, "connection cannot be established",
        cause: "The server does not listen, or the network rejected the connection.",
        fix: "Check that the server runs, and its address and port.";
    REQUEST_SYSTEM_CALL = 8066, "system call of a request failed",
        cause: "The kernel returned an error while roster-lab made a request.",
        fix: "Read the error text. It names a problem of this host or of the network.";
    LOOKUP_FAILED = 8067, "lookup of a user or group failed",
        cause: "A name service returned an error instead of an entry.",
        fix: "Check the services in nsswitch.conf(5) with getent(1).";
    COMMAND_NOT_STARTED = 8068, "command cannot be started",
        cause: "The file is missing or not executable, or the limit of processes is reached.",
        fix: "Run the command in a shell to see the error.";
    CONNECTION_CLOSED = 8069, "server closed the connection before its reply",
        cause: "The server ended, or limits its connections. A TLS port also closes connections without TLS.",
        fix: "Check the log of the server.";
    REPLY_MALFORMED = 8070, "reply is malformed",
        cause: "The server sent bytes that do not conform to the protocol.",
        fix: "Check that the port is the one of this protocol.";
    TLS_FAILED = 8071, "TLS handshake or record failed",
        cause: "The server's certificate is not trusted, or both sides have no version in common.",
        fix: "Set --tls-ca to the authorities of the server, and use the name of its certificate.";
    LDAP_RESULT = 8072, "LDAP server returned an error",
        cause: "The server rejected the request with a result code of RFC 4511.",
        fix: "Look up the result code, and check the log of the server.";
    LDAP_NOTHING_FOUND = 8073, "LDAP search found no entry",
        cause: "No entry matches the filter, or the bind DN cannot read it.",
        fix: "Correct --dn and --filter, or set --bind-dn.";
    DNS_ERROR = 8074, "DNS server returned an error",
        cause: "The server replied with a code other than NOERROR.",
        fix: "Check --name, and the zones of the server.";
    DNS_NO_DATA = 8075, "DNS name has no record of the type",
        cause: "The name exists, but not with records of the requested type.",
        fix: "Correct --type.";
    DNS_TRUNCATED = 8076, "DNS reply does not fit into a datagram",
        cause: "The server set the flag for truncation.",
        fix: "Use --protocol tcp.";
    KERBEROS_ERROR = 8077, "KDC returned an error",
        cause: "The KDC rejected the request with an error code of RFC 4120.",
        fix: "Look up the error code, and check the log of the KDC.";
    PAM_ERROR = 8078, "PAM returned an error",
        cause: "A module rejected the login, or failed.",
        fix: "Look up the status in pam(3), and check the log of the modules.";
    ENTRY_NOT_FOUND = 8079, "user or group does not exist",
        cause: "No name service has an entry of this name or id.",
        fix: "Correct --key.";
    COMMAND_EXITED = 8080, "command returned an error",
        cause: "The command ended with an exit code other than 0.",
        fix: "Run the command in a shell to see its messages.";
    COMMAND_KILLED = 8081, "command was ended by a signal",
        cause: "The command crashed, or another process ended it.",
        fix: "Run the command in a shell, and check the kernel log.";
    NUL_IN_REQUEST = 8082, "name or password contains a NUL byte",
        cause: "The C library ends a string at a NUL byte.",
        fix: "Remove the NUL byte from the file of identities.";
    KEY_NOT_UTF8 = 8083, "key of a lookup is not UTF-8",
        cause: "The file of keys has another encoding.",
        fix: "Convert the file to UTF-8.";
    OTHER_FAILURES = 8084, "requests failed with further errors",
        cause: "roster-lab distinguishes at most 64 errors in a run.",
        fix: "Fix the listed errors, then repeat the run.";

    // Warnings about a run.
    GENERATOR_LIMIT = 8085, "load generator reached its limit",
        cause: "The threads of roster-lab used all of their processor time, so the server had idle time.",
        fix: "Raise --threads, and run roster-lab on dedicated processors.";
    PROCESSORS_LIMIT = 8086, "processors of this host reached their limit",
        cause: "Each user is a thread, and more threads were ready than processors.",
        fix: "Use at most as many --users as processors, and stop other programs.";
    SERVER_UNREACHABLE = 8087, "server was unreachable for a part of the run",
        cause: "Connections failed. Each user then waits 100 ms, so failures are few and the rate covers both states.",
        fix: "Read the batches of the report, and check the log of the server.";
    SERVER_RESTARTED = 8088, "watched server ended or restarted during the run",
        cause: "The process or unit of the server is no longer the one from the start.",
        fix: "Repeat the run with a server that does not restart.";
    STANDSTILL = 8089, "no reply arrived for a part of the run",
        cause: "The server, the network or this host stood still. A closed loop hides this in its percentiles.",
        fix: "Read the longest latency and the batches, and run with --rate.";
    REQUESTS_HUNG = 8090, "requests did not return",
        cause: "A module, daemon or directory does not reply, and has no timeout.",
        fix: "Check the name service or PAM module that the requests use.";
    GENERATOR_LATE = 8091, "load generator sent requests late",
        cause: "Another program took the processor of roster-lab.",
        fix: "Stop other programs, or read the high percentiles as upper bounds.";
    USERS_BUSY = 8092, "requests waited for a free user",
        cause: "All users waited for replies when requests were due.",
        fix: "Raise --users if the server was not at its limit.";
    PORTS_EXHAUSTED = 8093, "host had no free port for a connection",
        cause: "Closed connections keep their ports for up to a minute, so the run measured how fast ports become free.",
        fix: "Connect from more addresses with --source, or use --close reset.";
    PORTS_SHORT = 8094, "run needs more ports than the host has",
        cause: "Each closed connection keeps its port for a while.",
        fix: "Connect from more addresses with --source, or use --close reset.";
    PORT_BUDGET = 8095, "ports limit the rate of connections",
        cause: "Each connection of this load keeps its port for a minute.",
        fix: "Connect from more addresses with --source, or use --close reset.";
    KDC_REPLY_TOO_BIG = 8096, "replies of the KDC do not fit into a datagram",
        cause: "The KDC requests TCP for its replies, so the run measured only that request.",
        fix: "Repeat the run with --protocol tcp.";
    KDC_CLOCK_SKEW = 8097, "clocks of this host and of the KDC differ",
        cause: "The time of the requests differs from the KDC's clock by more than its limit. The default limit is five minutes.",
        fix: "Synchronize the clocks, then repeat the run.";
    REQUESTS_FAILED = 8098, "requests of the run failed",
        cause: "The report lists the errors. Rate and latencies cover all replies, and requests that timed out.",
        fix: "Fix the listed errors, then repeat the run.";
    CLOCK_SLOW = 8099, "clock of this host is slow to read",
        cause: "The kernel does not use the processor's clock. Each request reads the clock three times.",
        fix: "Enable the tsc clock source, or measure from another host.";
    HOST_SLEPT = 8100, "host was suspended during the run",
        cause: "The clocks of the run do not count while the host sleeps.",
        fix: "Repeat the run without suspending the host.";
    CLOCK_SET = 8101, "clock of this host was set during the run",
        cause: "Latencies use another clock and are correct. Servers may have rejected requests with a wrong time.",
        fix: "Repeat the run after the time service is synchronized.";
    RUN_INTERRUPTED = 8102, "run was stopped by a signal",
        cause: "Ctrl-C, SIGTERM or the end of the terminal stopped the run.",
        fix: "Repeat the run if you need figures of the whole duration.";
    NO_REQUEST_MEASURED = 8103, "no request began in the measured time",
        cause: "All requests began in the warm-up, or none began.",
        fix: "Make --duration longer than a request takes.";
    NO_REPLY_MEASURED = 8104, "no request got a reply",
        cause: "All requests failed before a reply.",
        fix: "Fix the listed errors, then repeat the run.";
    KNEE_NOT_FOUND = 8105, "no rate is within the bound of --knee",
        cause: "Even the lowest rate of the search exceeded the latency or the share of failures.",
        fix: "Lower --rate, or raise --knee or --knee-failures.";

    // Pre-run checks.
    CACHE_FOUND = 8106, "server caches the results of identities",
        cause: "Repeated requests for one identity are faster than requests for many, for example because 389-ds caches hashes.",
        fix: "Use as many identities as in production, and do not compare with figures of one identity.";
    LOOKASIDE_FOUND = 8107, "server caches replies by the bytes of the request",
        cause: "Repeated bytes get a faster reply, as from the look-aside cache of a KDC.",
        fix: "Do not use --same-bytes, and do not compare with tools that repeat their bytes.";
    STALLS_FOUND = 8108, "server stalls at low load",
        cause: "One user alone waits much longer than the median for some replies. A closed loop of many users hides this.",
        fix: "Repeat the run with --rate, which counts the requests that are due during a stall.";
    HASH_UPGRADED = 8109, "bind changes the stored password hash",
        cause: "The server stores the password with its current scheme on a successful bind, so later binds measure another scheme.",
        fix: "Set nsslapd-enable-upgrade-hash: off in cn=config for the run, and store the passwords again.";
    CHECK_RATE_TOO_LOW = 8110, "rate is too low for the pre-run checks",
        cause: "A check needs 20 replies within the time of --probe.",
        fix: "Raise --probe or --rate.";
    CHECK_TOO_FEW_REPLIES = 8111, "pre-run check got too few replies",
        cause: "The server is slow, or requests failed, so both sides of the comparison have no result.",
        fix: "Raise --probe, or fix the failing requests.";
    CHECK_ONE_IDENTITY = 8112, "load has only one identity",
        cause: "All requests name the same identity, so the check for a cache has nothing to compare.",
        fix: "Use a range or a file of identities.";
    ENTRIES_NOT_READABLE = 8113, "entries of the users are not readable",
        cause: "The check for changed password hashes reads the entries, and this user has no permission.",
        fix: "Set --bind-dn and --bind-password of a user with read permission.";
    ENTRIES_READ_FAILED = 8114, "entries of the users cannot be read",
        cause: "A request of the check for changed password hashes failed.",
        fix: "Fix the error that the message names.";

    // compare.
    NAMES_COUNT = 8115, "number of names and reports differs",
        cause: "--names needs one name for each report.",
        fix: "Write as many names as reports.";
    REPORT_TWICE = 8116, "report is of a run that another argument has",
        cause: "A run that counts twice would make a difference look more certain.",
        fix: "Remove the second file.";
    REPORT_TOO_LONG = 8117, "report is too long",
        cause: "A report has at most 64 MiB.",
        fix: "Check that the file is a report of roster-lab.";
    REPORT_FORMAT = 8118, "file is not a report of roster-lab",
        cause: "The file is not JSON, or lacks a field of a report.",
        fix: "Write a report with --json.";
    RUNS_DIFFER = 8119, "compared runs have different options",
        cause: "An option differs that changes the figures, so the difference may not be the one of the servers.",
        fix: "Repeat the runs with the same options.";
    FONTS_MISSING = 8120, "host has no fonts",
        cause: "A picture needs a font of /usr/share/fonts or /usr/local/share/fonts.",
        fix: "Install a font, for example the package fonts-dejavu-core.";
    PICTURE_FAILED = 8121, "picture cannot be drawn",
        cause: "The picture is too large for the memory, or the library returned no bytes.",
        fix: "Compare fewer reports, or use --html.";

    // bisect.
    VERSION_PLACEHOLDER = 8122, "install command has no {version}",
        cause: "The command would install the same release each time.",
        fix: "Write {version} in --cmd in place of the release.";
    TOO_MANY_VERSIONS = 8123, "too many releases",
        cause: "roster-lab bisect takes at most 10,000 releases.",
        fix: "Shorten --versions.";
    VERSION_CHARACTERS = 8124, "release has characters that are not permitted",
        cause: "The release becomes a part of a shell command.",
        fix: "Use letters, digits and . _ + ~ : - only.";
    VERSION_NOT_LISTED = 8125, "release is not in the list",
        cause: "--good and --bad name releases of --versions.",
        fix: "Correct the name, or add the release to --versions.";
    VERSIONS_EQUAL = 8126, "good and bad release are the same",
        cause: "The search needs two different releases.",
        fix: "Correct --good or --bad.";
    BISECT_STATE_FORMAT = 8127, "state file is not of a bisection",
        cause: "The file of --state is not JSON of roster-lab bisect.",
        fix: "Set --state to another file.";
    BISECT_STATE_OTHER = 8128, "state file is of another bisection",
        cause: "The file has other releases, another command or another figure.",
        fix: "Remove the file, or set --state to another file.";
    VERSION_UNTESTABLE = 8129, "good or bad release cannot be tested",
        cause: "Both ends of the list need a figure.",
        fix: "Fix the reason above, then start the same command again.";
    FIGURES_TOO_CLOSE = 8130, "figures of the good and the bad release are too close",
        cause: "The figures differ by less than 10 %, so noise would decide about the releases between them.",
        fix: "Choose other releases, or a longer --duration in the plan. Remove the state file to measure again.";
    BISECT_INTERRUPTED = 8131, "bisection was stopped by a signal",
        cause: "Ctrl-C ended the measurement of a release.",
        fix: "Start the same command again. It continues from the state file.";
    SHELL_NOT_STARTED = 8132, "program cannot be started",
        cause: "The program is missing, or the limit of processes is reached.",
        fix: "Check that the program is installed.";
    INSTALL_FAILED = 8133, "install command failed",
        cause: "The command of --cmd ended with an error.",
        fix: "Run the command for this release in a shell.";
    INSTALL_TIMEOUT = 8134, "install command took too long",
        cause: "The command of --cmd did not end within --cmd-timeout.",
        fix: "Start servers in the background, or raise --cmd-timeout.";
    PLAN_FAILED = 8135, "plan failed for a release",
        cause: "The run of the plan ended with an error. Its message is on the standard error.",
        fix: "Fix the plan, or the installation of the release.";
    TOO_MANY_FAILED = 8136, "too many requests of a release failed",
        cause: "The share of failed requests exceeds --failures, so the figure is not one of the release.",
        fix: "Fix the errors, or raise --failures.";
    FIGURE_MISSING = 8137, "report lacks the figure of --figure",
        cause: "The plan does not watch the server.",
        fix: "Set server-pid or server-unit in the plan.";

    // schemes.
    NOT_389DS = 8138, "server is not a 389 Directory Server, or cn=config is not readable",
        cause: "cn=config has no default scheme, or the bind DN has no permission to read it.",
        fix: "Check the URI, and set --bind-dn to an administrator of the server.";
    SCHEME_UNKNOWN = 8139, "server does not offer the password scheme",
        cause: "No enabled plug-in of the server has this name.",
        fix: "Use a scheme of the list.";
    NO_SCHEMES = 8140, "server lists no password schemes",
        cause: "The entry of the plug-ins has no enabled plug-in.",
        fix: "Enable a plug-in of the password storage schemes on the server.";
    LDAP_ENTRY_MISSING = 8141, "entry does not exist",
        cause: "The server has no entry of this DN, or the bind DN cannot see it.",
        fix: "Correct the DN, or set --bind-dn to an administrator of the server.";
    UNDO_RECORD_FORMAT = 8142, "entry with the changes of a run has an unknown format",
        cause: "Another version of roster-lab or another program wrote the entry.",
        fix: "Restore cn=config by hand, then delete cn=roster-lab schemes,cn=config.";
    SCHEMES_CONCURRENT = 8143, "another run started on this server at the same time",
        cause: "Only one run at a time can change the configuration of the server.",
        fix: "Wait for the other run, then repeat the command.";
    SCHEMES_RUNNING = 8144, "another run measures this server",
        cause: "A process of this host has changed the configuration of the server for its run.",
        fix: "Wait until the process ends, or end it.";
    SCHEMES_LEFTOVERS = 8145, "another host changed the server for a run",
        cause: "A run of another host measures this server, or was killed.",
        fix: "If that process has ended, run the same command with --undo.";
    SCHEMES_NOT_UNDONE = 8146, "changes of the run are not undone",
        cause: "A request that restores the server failed.",
        fix: "Fix the error, then run the same command with --undo.";
    POLICY_TEMPLATE = 8147, "password policy of the subtree is incomplete",
        cause: "The template of the policy names no policy entry.",
        fix: "Fix or remove the definition and its template.";
    PASSWORD_NOT_STORED = 8148, "server stored no password",
        cause: "The server accepted the change, but the test user has no userPassword.",
        fix: "Check the plug-in of the scheme on the server.";
    NO_BIND_ANSWERED = 8149, "server answered no bind in the measured time",
        cause: "The scheme takes longer than --duration, or the server does not reply.",
        fix: "Raise --duration.";
    NO_FIT_SCHEME = 8150, "server has no scheme that resists guessing",
        cause: "Every scheme is readable by the server, or is a single fast hash.",
        fix: "Update the server.";
    SCHEMES_TOO_SLOW = 8151, "no fit scheme serves the expected binds",
        cause: "Every scheme that resists guessing serves fewer binds per second than --binds.",
        fix: "Add processors to the server, or let programs reuse their connections.";

    // trace.
    TRACE_NEEDS_ROOT = 8152, "trace needs root",
        cause: "Only root may attach probes to processes of other users.",
        fix: "Run roster-lab trace with sudo.";
    NO_UPROBES = 8153, "kernel has no uprobes",
        cause: "The kernel was built without CONFIG_UPROBE_EVENTS and CONFIG_BPF_EVENTS, or the container hides /sys.",
        fix: "Use a kernel of a distribution, and run the command on the host.";
    BPFTRACE_MISSING = 8154, "bpftrace is not installed",
        cause: "roster-lab trace reads probes with bpftrace.",
        fix: "Install the package bpftrace (apt install bpftrace, dnf install bpftrace).";
    BPFTRACE_FAILED = 8155, "bpftrace cannot be run",
        cause: "bpftrace did not start, or its process cannot be controlled.",
        fix: "Run bpftrace --info to see the error.";
    BPFTRACE_NO_LIST = 8156, "bpftrace did not list the probes in time",
        cause: "bpftrace did not end within 60 s.",
        fix: "Check that the host has free processors, then repeat the command.";
    BPFTRACE_ENDED = 8157, "bpftrace ended with an error",
        cause: "bpftrace ended during the trace, without events.",
        fix: "Read the text of bpftrace.";
    PROBES_NOT_ATTACHED = 8158, "bpftrace cannot attach the probes",
        cause: "bpftrace rejected the script or a probe.",
        fix: "Read the text of bpftrace, and update bpftrace.";
    PROBES_TOO_SLOW = 8159, "bpftrace did not attach the probes in time",
        cause: "bpftrace needs more than 60 s on this host.",
        fix: "Check that the host has free processors, then repeat the command.";
    PROBE_PATH = 8160, "path of the executable is not supported by bpftrace",
        cause: "A script of bpftrace takes only letters, digits and / . _ - + in a path.",
        fix: "Install the program at another path.";
    EXECUTABLE_REPLACED = 8161, "executable of the process was replaced",
        cause: "An update replaced the file after the process started.",
        fix: "Restart the process.";
    EXECUTABLE_UNREACHABLE = 8162, "executable of the process cannot be opened",
        cause: "The process runs in a mount namespace that this host cannot enter.",
        fix: "Run the command on the host, as root.";
    ROSTERD_PID_UNKNOWN = 8163, "process is not a process of rosterd",
        cause: "No process of rosterd has the number of --pid.",
        fix: "Correct --pid, or omit it.";
    ROSTERD_NOT_RUNNING = 8164, "rosterd does not run",
        cause: "No process of this host runs rosterd.",
        fix: "Start rosterd, and run the command on the same host.";
    ROSTERD_SEVERAL = 8165, "several rosterd run",
        cause: "Containers or test systems of this host run rosterd as well.",
        fix: "Select one with --pid.";
    SSSD_PID_UNKNOWN = 8166, "process is not a backend of SSSD",
        cause: "No process of sssd_be has the number of --pid.",
        fix: "Correct --pid, or omit it.";
    SSSD_NOT_RUNNING = 8167, "no backend of SSSD runs",
        cause: "No process of this host runs sssd_be.",
        fix: "Start sssd.";
    ROSTERD_PROBES_MISSING = 8168, "rosterd lacks probes",
        cause: "rosterd has another version than roster-lab, or its ELF notes were stripped.",
        fix: "Install a rosterd of the same version, with its notes.";
    SSSD_PROBES_MISSING = 8169, "SSSD has no probes",
        cause: "SSSD was built without --enable-systemtap.",
        fix: "Install an SSSD that was built with probes.";
    TRACE_TOO_SHORT = 8170, "no request began and ended during the trace",
        cause: "Requests take longer than the trace.",
        fix: "Raise --duration.";
    TRACE_OTHER_PID_NAMESPACE = 8171, "all events are of other processes",
        cause: "bpftrace reports process numbers of the host, and this command runs in a container.",
        fix: "Run the command on the host.";
    TRACE_NO_REQUESTS = 8172, "rosterd got no request during the trace",
        cause: "Programs query rosterd only for data that the snapshot lacks: domains with mode = \"on-demand\".",
        fix: "Query an on-demand domain during the trace, or raise --duration.";
    TRACE_NO_REQUESTS_SSSD = 8173, "backends of SSSD got no request during the trace",
        cause: "SSSD answers from its caches.",
        fix: "Invalidate the caches with sss_cache -E, then query users during the trace.";
    EVENTS_LOST = 8174, "bpftrace lost events",
        cause: "Events arrived faster than bpftrace read them, so counts are too low and requests lack stages.",
        fix: "Trace at a lower load.";
    EVENTS_FULL = 8175, "trace ended at the maximum number of events",
        cause: "roster-lab keeps two million events.",
        fix: "Use a shorter --duration, or a lower load.";

    // Locust.
    MASTER_UNREACHABLE = 8176, "Locust master cannot be reached",
        cause: "The master does not run, or its port is not reachable from this host.",
        fix: "Start the master, and check --master.";
    MASTER_CLOSED = 8177, "Locust master closed the connection",
        cause: "The master ended, or the network failed.",
        fix: "Check the log of the master.";
    MASTER_SILENT = 8178, "Locust master does not reply",
        cause: "The master sent no message for 60 s.",
        fix: "Check that the master runs, and the network.";
    MASTER_NOT_ZMTP = 8179, "server of --master does not speak ZeroMQ 3",
        cause: "Another program listens on the port.",
        fix: "Check --master.";
    MASTER_MECHANISM = 8180, "ZeroMQ server requires authentication",
        cause: "Locust masters use no authentication, so another program listens on the port.",
        fix: "Check --master.";
    MASTER_REJECTED = 8181, "ZeroMQ server rejected the worker",
        cause: "The server sent an error in its handshake.",
        fix: "Check --master, and the version of Locust.";
    MASTER_NOT_LOCUST = 8182, "ZeroMQ server is not a Locust master",
        cause: "The socket has another type than ROUTER.",
        fix: "Check --master.";
    MASTER_MESSAGE = 8183, "message of the Locust master is invalid",
        cause: "The master sent a frame or message that Locust 2 does not have.",
        fix: "Check the version of Locust, and that --master is a Locust master.";
    CLASSES_FORMAT = 8184, "file of --classes is not a list of user classes",
        cause: "The file is not a JSON object.",
        fix: "Start workers with roster-lab locust, which writes the file.";
    KEY_OF_MASTER = 8185, "key is not permitted for Locust users",
        cause: "The master or the options of the worker set this value.",
        fix: "Remove the key from the class.";
    CLASS_UNDEFINED = 8186, "user class has no load",
        cause: "The master sent no options for the class, and the worker has no plan.",
        fix: "Define the class with roster_locust, or start the worker with --plan.";
    COMMANDS_NOT_ALLOWED = 8187, "master requested a command or module",
        cause: "A worker runs commands and loads modules only with --allow-commands.",
        fix: "Start the worker with --allow-commands if you trust the master.";
    CHILD_NOT_STARTED = 8188, "master or worker cannot be started",
        cause: "The program does not exist, or the limit of processes is reached.",
        fix: "Install Locust (pip install locust), or set --python.";
    LISTEN_FAILED = 8189, "address cannot be listened on",
        cause: "Another program listens on the port, or the address is not one of this host.",
        fix: "Choose another port, or end the other program.";
    WORKERS_AND_SOURCES = 8190, "number of workers and source addresses differs",
        cause: "Each worker connects from one address.",
        fix: "Write as many addresses as workers, or omit --workers.";
    WORKER_ENDED = 8191, "worker ended before the master",
        cause: "The worker failed. Its message is on the standard error.",
        fix: "Read the message of the worker.";
    CHECK_PROGRAM_MISSING = 8192, "roster-lab is not installed on the host of the master",
        cause: "The package roster_locust checks servers with roster-lab before a run.",
        fix: "Install roster-lab on the host of the master.";
    CHECK_TOO_LONG = 8193, "pre-run checks of a user class took too long",
        cause: "The server is slow, or probe is too long.",
        fix: "Lower probe in the class, or set it to 0.";
    LOCUST_CHECK_SILENT = 8194, "checks before the run without a report",
        cause: "roster-lab ended without a report and without a message.",
        fix: "Run roster-lab check with the same options on the master's host.";
    LOCUST_NO_WORKER = 8195, "Locust makes requests of roster-lab itself",
        cause: "Locust runs without --master, and only workers of roster-lab make the requests of these classes.",
        fix: "Start Locust with --master, and roster-lab worker --master HOST.";
}
