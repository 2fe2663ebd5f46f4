// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mistakes in `roster.toml`. `roster check-config` and rosterd print them.

crate::messages! {
    UNKNOWN_KEY = 1001, "unknown key",
        cause: "The table has no key of this name. The name may be mistyped, or it is a key of another program.",
        fix: "Correct the name, or remove the key. roster.toml(5) lists all keys.";
    MISPLACED_KEY = 1002, "key in the wrong table",
        cause: "The key belongs to another table, or it is above the first table of the file.",
        fix: "Move the key to the table that it belongs to. roster.toml(5) lists all keys.";
    PASSWORD_IN_FILE = 1003, "password in roster.toml",
        cause: "A key of roster.toml has a password. All local users can read roster.toml.",
        fix: "Write the password to a file with mode 0600, and set bind_password_file to its path.";
    KEY_OF_OTHER_PROVIDER = 1004, "key of another provider",
        cause: "The key or table applies to domains with another value of provider.",
        fix: "Remove the key, or change provider.";
    KEY_MISSING = 1005, "required key is missing",
        cause: "The table lacks a key that has no default.",
        fix: "Add the key. roster.toml(5) describes its value.";
    UNKNOWN_TABLE = 1006, "unknown table",
        cause: "roster.toml has no table of this name. The name may be mistyped.",
        fix: "Correct the name, or remove the table. roster.toml(5) lists all tables.";
    NOT_A_TABLE = 1007, "value instead of a table",
        cause: "The name is that of a table, and the file sets it to a value.",
        fix: "Write the name in brackets on a line, and the keys below.";
    TABLE_CONFLICT = 1008, "table in one file and value in another",
        cause: "One file has a table of this name, and another file sets the same name to a value.",
        fix: "Use the same form in both files.";
    DOMAIN_WITHOUT_NAME = 1009, "key directly below [domain]",
        cause: "Each domain has a dedicated table [domain.NAME]. The table [domain] has no keys.",
        fix: "Write the keys of the domain below [domain.NAME].";
    UNKNOWN_RESPONDER = 1010, "responder without configuration",
        cause: "Only the PAM responder has keys, in the table [responder.pam].",
        fix: "Write [responder.pam], or remove the table.";
    NSCD_RESPONDER = 1011, "nscd in roster.toml",
        cause: "roster nscd is a separate service, which rosterd does not configure.",
        fix: "Remove the table [responder.nscd], and run `systemctl enable --now roster-nscd.socket`.";
    DUPLICATE_KEY = 1012, "key or table is defined twice",
        cause: "TOML allows each key and each table once in a file.",
        fix: "Remove one of the two definitions.";
    VALUE_MISSING = 1013, "key without a value",
        cause: "The line has a key and an equals sign, and no value.",
        fix: "Write a value after the equals sign, or remove the line.";
    UNQUOTED_STRING = 1014, "string without quotes",
        cause: "TOML requires quotes around strings.",
        fix: "Put the value in straight quotes.";
    CURLY_QUOTES = 1015, "curly quotes",
        cause: "A word processor or a web page replaced straight quotes. TOML accepts straight quotes only.",
        fix: "Replace the quotes by straight ones.";
    INVALID_TOML = 1016, "invalid TOML",
        cause: "The line violates the syntax of TOML.",
        fix: "Correct the line. https://toml.io describes the syntax.";
    WRONG_TYPE = 1017, "value of the wrong type",
        cause: "The key requires another type of value, for example a string instead of a number, or a list.",
        fix: "Write a value of the required type. roster.toml(5) lists the type of each key.";
    OUT_OF_RANGE = 1018, "value out of range",
        cause: "The number or duration is below the minimum or above the maximum of its key.",
        fix: "Write a value within the limits. roster.toml(5) lists the limits of each key.";
    UNKNOWN_VALUE = 1019, "unknown value",
        cause: "The key accepts a fixed set of values, and this is not one of them.",
        fix: "Write one of the values that roster.toml(5) lists for the key.";
    DUPLICATE_ELEMENT = 1020, "duplicate element in a list",
        cause: "The list contains the same value twice.",
        fix: "Remove one of the two.";
    RESERVED_GID = 1021, "reserved gid",
        cause: "Gids 0, 65534, 65535 and 4294967295 are reserved. rosterd never serves them from a directory.",
        fix: "Remove the gid from the list.";
    INVALID_DURATION = 1022, "invalid duration",
        cause: "A duration is a number with a unit. A number alone counts seconds.",
        fix: "Write a number and ms, s, m, h or d, such as \"30s\".";
    INVALID_DOMAIN_NAME = 1023, "invalid domain name",
        cause: "The name becomes part of file names and D-Bus names, so its characters and its length are limited.",
        fix: "Use at most 64 of a-z, 0-9, dots, dashes and underscores. Start with a letter or a digit.";
    INVALID_LOCAL_USER = 1024, "invalid name of a local user",
        cause: "The text cannot be a user name in /etc/passwd.",
        fix: "Write a user name as in /etc/passwd.";
    INVALID_NAME_CHARACTER = 1025, "character that no name may have",
        cause: "Names of users and groups may have printable ASCII characters, except for colon, comma and slash.",
        fix: "Remove the character from allowed_name_characters.";
    INVALID_ENTRY_NAME = 1026, "invalid name of a user or group",
        cause: "The text is empty, too long, or has a colon, a comma or a newline.",
        fix: "Write each name in its own quotes, as getent prints it.";
    INVALID_KEY_OPTION = 1027, "invalid option of an ssh key",
        cause: "The text is not the name of an option. A value such as from=\"…\" does not belong here.",
        fix: "Write the name of the option alone, such as \"from\". sshd(8) lists the options.";
    NUL_IN_PATH = 1028, "path with a NUL character",
        cause: "Paths of Linux cannot have a NUL character.",
        fix: "Remove the NUL character.";
    RELATIVE_PATH = 1029, "relative path",
        cause: "The path does not start with a slash.",
        fix: "Write the absolute path, starting with /.";
    INVALID_CREDENTIAL_NAME = 1030, "invalid name of a credential",
        cause: "The name after \"credential:\" cannot be a file name in the credentials directory of systemd.",
        fix: "Use the NAME of LoadCredential=NAME:PATH: letters, digits, dots, dashes and underscores.";
    INVALID_DNS_NAME = 1031, "invalid DNS name",
        cause: "The text has a character that DNS names cannot have, or a label or the name is too long.",
        fix: "Write letters, digits and dashes between dots, such as \"example.com\".";
    INVALID_URI = 1032, "invalid server URI",
        cause: "The text has no scheme such as ldaps://.",
        fix: "Write ldaps://HOST, ldap://HOST, or ldapi://PATH with every slash of the path as %2F.";
    UNKNOWN_URI_SCHEME = 1033, "unknown scheme of a server URI",
        cause: "LDAP servers are addressed by ldaps://, ldap:// or ldapi://.",
        fix: "Write ldaps://, ldap:// or ldapi://.";
    URI_WITH_EXTRAS = 1034, "server URI with more than host and port",
        cause: "The URI contains a user, a path, a query or a fragment.",
        fix: "Write host and port only. Set base, user_filter and bind_dn instead.";
    INVALID_IPV6_ADDRESS = 1035, "invalid IPv6 address",
        cause: "The text between brackets is not an IPv6 address.",
        fix: "Write the address as in ldaps://[2001:db8::1]:636.";
    IPV6_WITHOUT_BRACKETS = 1036, "IPv6 address without brackets",
        cause: "Without brackets, the address and the port are ambiguous.",
        fix: "Put the address in brackets, such as [2001:db8::1].";
    HOST_NAME_MISSING = 1037, "server without a host name",
        cause: "The URI or the address ends before the host name.",
        fix: "Add the host name.";
    INVALID_PORT = 1038, "invalid port",
        cause: "The port is not a number from 1 to 65535.",
        fix: "Write a port from 1 to 65535.";
    INVALID_SOCKET_URI = 1039, "invalid ldapi URI",
        cause: "An ldapi URI has an absolute path in which every slash is encoded as %2F.",
        fix: "Write the path with every slash as %2F, such as \"ldapi://%2Frun%2Fslapd%2Fldapi\".";
    SOCKET_PATH_TOO_LONG = 1040, "socket path too long",
        cause: "Linux limits the path of a UNIX socket to 107 bytes.",
        fix: "Use a shorter path.";
    INVALID_REALM = 1041, "invalid Kerberos realm",
        cause: "The text is empty, too long, or has a character that a realm cannot have.",
        fix: "Write letters, digits, dots and dashes, such as \"EXAMPLE.COM\".";
    INVALID_CACHE_NAME = 1042, "invalid name of a credential cache",
        cause: "The name is too long, or has a character or a template that is not supported.",
        fix: "Use letters, digits, slash, dot, underscore, dash, colon and %{uid} only.";
    SHARED_CACHE_FILE = 1043, "credential cache shared by sessions",
        cause: "A cache file without XXXXXX is the same for all sessions. The end of one session removes it for all.",
        fix: "End the name of the file with XXXXXX.";
    UNKNOWN_CACHE_TYPE = 1044, "unsupported credential cache",
        cause: "The type is not supported, or the name is not unique for each user.",
        fix: "Write FILE:/tmp/krb5cc_%{uid}_XXXXXX, KEYRING:persistent:%{uid}, KCM:, DIR:/PATH or none.";
    INVALID_DN = 1045, "invalid DN",
        cause: "The text violates the syntax of distinguished names (RFC 4514).",
        fix: "Write a DN such as \"ou=people,dc=example,dc=com\".";
    INVALID_FILTER = 1046, "invalid search filter",
        cause: "The text violates the syntax of search filters (RFC 4515). Parentheses are often missing.",
        fix: "Write a filter such as \"(&(objectClass=posixAccount)(!(loginShell=/bin/false)))\".";
    INVALID_ATTRIBUTE = 1047, "invalid attribute name",
        cause: "The text has a character that names of LDAP attributes cannot have.",
        fix: "Write a name of letters, digits and dashes, such as \"uidNumber\".";
    ATTRIBUTE_OID = 1048, "OID instead of an attribute name",
        cause: "Servers return attribute names, so rosterd would not find an attribute by its OID.",
        fix: "Write the name of the attribute, such as \"uidNumber\".";
    ATTRIBUTE_ALIAS = 1049, "alias of an attribute",
        cause: "Servers accept the alias in requests, and return the primary name of the attribute.",
        fix: "Write the primary name of the attribute.";
    INVALID_TEMPLATE_CHARACTER = 1050, "character that a home directory or shell may not have",
        cause: "A colon or a control character would break the lines of passwd(5).",
        fix: "Remove the character.";
    RELATIVE_TEMPLATE = 1051, "template without an absolute path",
        cause: "Home directories and shells are absolute paths.",
        fix: "Write an absolute path, such as \"/home/%u\".";
    TEMPLATE_WITHOUT_ORIGINAL = 1052, "%o or %h in a fallback",
        cause: "%o and %h are the directory's value. The fallback applies to users without such a value.",
        fix: "Remove %o and %h.";
    UNKNOWN_TEMPLATE = 1053, "unknown template",
        cause: "A percent sign is followed by an unknown character, or ends the text.",
        fix: "Use %u (user name), %U (uid), %d (domain), %o (directory's value) or %% (percent sign). Home directories \
              also take %f (name with the domain), %l (first letter) and %h (%o in lower case).";
    LISTEN_SCHEME_MISSING = 1054, "listen address without unix:",
        cause: "The address of a socket starts with unix:, and this is a path alone.",
        fix: "Write \"unix:PATH\" for a socket.";
    LISTEN_NOT_LOOPBACK = 1055, "metrics on a network address",
        cause: "rosterd serves metrics to the local host only, because the connection is not authenticated.",
        fix: "Write a loopback address, and let an agent on this host forward the metrics.";
    INVALID_LISTEN_ADDRESS = 1056, "invalid listen address",
        cause: "The text is neither a socket nor an IP address with a port.",
        fix: "Write \"unix:/run/roster/metrics\" or \"127.0.0.1:9273\".";
    DOMAINS_EMPTY = 1057, "no domain configured",
        cause: "The list domains in [host] is empty, so rosterd has nothing to serve.",
        fix: "Add a domain to the list, and describe it in a table [domain.NAME].";
    TOO_MANY_DOMAINS = 1058, "too many domains",
        cause: "The package creates 32 users for backends, and each domain needs one.",
        fix: "List at most 32 domains.";
    DOMAIN_TABLE_MISSING = 1059, "domain without a table",
        cause: "The list domains in [host] has a name, and no table [domain.NAME] exists for it.",
        fix: "Add the table [domain.NAME] with its provider, or remove the name from the list.";
    DOMAIN_UNUSED = 1060, "domain is not used",
        cause: "A table [domain.NAME] exists, and the list domains in [host] lacks its name.",
        fix: "Add the name to domains in [host], or remove the table.";
    ON_DEMAND_PRECEDENCE = 1061, "mirrored domain after an on-demand domain",
        cause: "Lookups query domains in order, so users of the mirrored domain wait for the on-demand domain.",
        fix: "Put the mirrored domain first in domains, unless the other domain has to win name conflicts.";
    IDS_BEYOND_HOST = 1062, "id limit beyond the limit of the host",
        cause: "min_id and max_id of [host] apply to all domains. A domain can only narrow them.",
        fix: "Change the limit in [host], or the limit of the domain.";
    ID_RANGE_EMPTY = 1063, "min_id is larger than max_id",
        cause: "No id is within the limits, so the domain would have no entries.",
        fix: "Make max_id larger than min_id.";
    TOO_MANY_LOCAL_GIDS = 1064, "too many gids below min_id",
        cause: "A snapshot has room for 32 allowed gids below min_id, gid 100 included.",
        fix: "Remove some gids from allowed_local_gids, or lower min_id.";
    ON_DEMAND_FILES = 1065, "on-demand mode with text files",
        cause: "The files provider always mirrors its files.",
        fix: "Remove mode.";
    ON_DEMAND_KEY_UNUSED = 1066, "on-demand key in a mirrored domain",
        cause: "The key applies to domains with mode = \"on-demand\".",
        fix: "Remove the key, or set mode = \"on-demand\".";
    FALLBACK_UNUSED = 1067, "fallback without effect",
        cause: "home and shell replace the directory's values for all users, so no user needs the fallback.",
        fix: "Remove one of the two keys.";
    SAME_SOURCE_FILE = 1068, "same file for users and groups",
        cause: "passwd and group of the domain are the same path.",
        fix: "Set group to the file in the format of group(5).";
    HOST_SOURCE_FILE = 1069, "domain uses the host's own file",
        cause: "Every entry would conflict with a local account.",
        fix: "Set another file. Local accounts need no domain.";
    SOURCE_FILE_MISSING = 1070, "file of a domain is missing",
        cause: "The file does not exist yet. rosterd serves the domain as soon as the file exists.",
        fix: "Create the file, or correct its path.";
    LDAP_AUTH_WITHOUT_DIRECTORY = 1071, "LDAP authentication without a directory",
        cause: "auth = \"ldap\" binds to a directory server, and the domain has provider = \"files\".",
        fix: "Remove auth, or set auth = \"krb5\".";
    AUTH_KEY_UNUSED = 1072, "authentication key without effect",
        cause: "The domain has auth = \"none\", so rosterd checks no passwords.",
        fix: "Set auth, or remove the key.";
    OFFLINE_KEY_UNUSED = 1073, "offline key without effect",
        cause: "The domain has offline_credentials = false, so rosterd caches no credentials.",
        fix: "Remove this key, or remove offline_credentials = false.";
    KRB5_KEY_UNUSED = 1074, "Kerberos key without effect",
        cause: "The domain does not authenticate by Kerberos.",
        fix: "Set auth = \"krb5\", or remove the key.";
    KRB5_REALM_MISSING = 1075, "Kerberos authentication without a realm",
        cause: "auth = \"krb5\" requires krb5_realm.",
        fix: "Add krb5_realm = \"EXAMPLE.COM\".";
    KRB5_KDC_MISSING = 1076, "Kerberos authentication without a KDC",
        cause: "krb5_kdcs is empty or missing, and krb5_discover is false.",
        fix: "Add krb5_kdcs = [\"kdc1.example.com\"], or krb5_discover = true to query DNS.";
    LDAP_SERVER_MISSING = 1077, "LDAP domain without servers",
        cause: "The domain has neither uris nor discover.",
        fix: "Add uris = [\"ldaps://ldap1.example.com\"], or discover = \"example.com\" to query DNS.";
    URIS_EMPTY = 1078, "empty list of servers",
        cause: "uris is an empty list.",
        fix: "Add a server, or remove uris and set discover.";
    CLEAR_USER_PASSWORDS = 1079, "user passwords without TLS",
        cause: "auth = \"ldap\" would send passwords of users over the network without encryption.",
        fix: "Use ldaps:// in uris, or set start_tls = true. In a trusted network, set allow_clear_user_passwords = true.";
    CLEAR_IDENTITIES = 1080, "users and groups without TLS",
        cause: "The connection is not protected, so a network attacker can alter the users and groups of this host.",
        fix: "Use ldaps:// in uris, or set start_tls = true. In a trusted network, set allow_clear_identities = true.";
    CLEAR_IDENTITIES_ALLOWED = 1081, "users and groups without TLS, as configured",
        cause: "allow_clear_identities = true allows a network attacker to alter the users and groups of this host.",
        fix: "Use ldaps:// in uris, or set start_tls = true.";
    CLEAR_BIND_PASSWORD = 1082, "bind password without TLS",
        cause: "A simple bind would send the password over the network without encryption.",
        fix: "Use ldaps:// in uris, or set start_tls = true. In a trusted network, set allow_clear_password = true.";
    BIND_DN_MISSING = 1083, "simple bind without a DN",
        cause: "bind = \"simple\" requires bind_dn.",
        fix: "Add bind_dn = \"cn=…\".";
    BIND_PASSWORD_MISSING = 1084, "simple bind without a password",
        cause: "A simple bind requires bind_password_file.",
        fix: "Write the password to a file with mode 0600, and set bind_password_file to its path.";
    BIND_EXTERNAL_WITHOUT_SOCKET = 1085, "external bind over a network",
        cause: "bind = \"external\" uses the uid of the backend over ldapi://, or the client certificate over TLS.",
        fix: "Use ldapi://, or ldaps:// or start_tls with tls_cert, or set bind_dn and bind_password_file.";
    BIND_PASSWORD_WITHOUT_DN = 1086, "bind password without a DN",
        cause: "bind_password_file is set, and bind_dn is missing.",
        fix: "Add bind_dn, or remove bind_password_file.";
    BIND_KEY_CONFLICT = 1087, "bind key contradicts the bind method",
        cause: "bind_dn and bind_password_file require bind = \"simple\".",
        fix: "Remove the key, or set bind = \"simple\".";
    START_TLS_WITH_LDAPS = 1088, "start_tls with ldaps://",
        cause: "A connection to ldaps:// uses TLS from its start. start_tls applies to ldap://.",
        fix: "Write ldap:// in uris, or remove start_tls.";
    START_TLS_ON_SOCKET = 1089, "start_tls with ldapi://",
        cause: "A connection over a socket of this host does not use TLS.",
        fix: "Remove start_tls if all servers are sockets.";
    TLS_CA_UNUSED = 1090, "tls_ca without effect",
        cause: "No server of the domain uses TLS.",
        fix: "Use ldaps:// in uris, or set start_tls = true.";
    MEMBER_ATTRIBUTES_EMPTY = 1091, "empty list of member attributes",
        cause: "Without member attributes, no group would have members.",
        fix: "Remove member_attributes to use its default.";
    ACCESS_DISABLED_WITH_RULES = 1092, "access rules are disabled",
        cause: "enabled = false disables the access rules or the authentication that the domain configures.",
        fix: "Remove enabled. To disable logins, remove the rules and auth.";
    ALLOW_LIST_EMPTY = 1093, "empty allow list denies all users",
        cause: "An allow list denies all users that it does not name, and this list is empty.",
        fix: "Remove the list to allow all users, or add a name.";
    DENY_LIST_EMPTY = 1094, "empty deny list",
        cause: "The list is empty, so it has no effect.",
        fix: "Remove the list, or add a name.";
    ACCESS_FILTER_WITHOUT_DIRECTORY = 1095, "access filter without a directory",
        cause: "filter searches a directory, and the domain has provider = \"files\".",
        fix: "Remove filter, and list users or groups instead.";
    TRUSTED_USER_MISSING = 1096, "trusted user does not exist",
        cause: "trusted_users names a user without a line in the local user file. The name has no effect.",
        fix: "Create the user and run `systemctl reload rosterd`, or correct the name.";
    RESPONDER_PATH_TOO_LONG = 1097, "path of the responder socket too long",
        cause: "A snapshot reserves 79 bytes for the path of the socket that serves on-demand domains.",
        fix: "Choose a --run-dir with a shorter path.";
    CONFIG_MISSING = 1098, "configuration file is missing",
        cause: "Neither the main file of the configuration nor a drop-in exists.",
        fix: "Create the file, as roster.toml(5) shows, or name another file.";
    CONFIG_UNREADABLE = 1099, "configuration file cannot be read",
        cause: "The user may lack permission, or the path is not a regular file.",
        fix: "Correct the file, or its permissions.";
    TOO_MANY_DROP_INS = 1100, "too many drop-in files",
        cause: "A drop-in directory has at most 100 files.",
        fix: "Merge some of the files, or remove them.";
    CONFIG_TOO_LARGE = 1101, "configuration is too large",
        cause: "All files of the configuration together have at most 1 MiB.",
        fix: "Remove files or comments that are not needed.";
    CONFIG_NOT_UTF8 = 1102, "configuration file is not UTF-8",
        cause: "An editor saved the file in another encoding.",
        fix: "Save the file as UTF-8.";
    CONFIG_READ_TIMEOUT = 1103, "configuration files do not answer",
        cause: "The configuration, or a file that it names, may be on a network mount that hangs.",
        fix: "Restore the mount, or move the file to a local file system.";
    FILE_OWNED_BY_OTHER = 1104, "file belongs to another user",
        cause: "The owner can change or replace a file on which rosterd depends.",
        fix: "Check the content of the file, then run `chown root` on the file or directory.";
    FILE_WRITABLE_BY_OTHERS = 1105, "file is writable by other users",
        cause: "Other users can change or replace a file on which rosterd depends.",
        fix: "Check the content of the file, then run `chmod go-w` on the file or directory.";
    FILE_MISSING = 1106, "file that a key names is missing",
        cause: "The file does not exist, or its path is wrong.",
        fix: "Create the file, or correct its path.";
    FILE_UNREADABLE = 1107, "file that a key names cannot be read",
        cause: "The user may lack permission, or the device has an error.",
        fix: "Run the command as root, or set the key to a readable file.";
    FILE_NOT_REGULAR = 1108, "path is not a regular file",
        cause: "The path is a directory, a pipe or a device.",
        fix: "Set the key to a regular file.";
    FILE_NOT_UTF8 = 1109, "file that a key names is not UTF-8",
        cause: "The file has bytes that are not text, or it has another encoding.",
        fix: "Save the file as UTF-8.";
    FILE_TOO_LONG = 1110, "file that a key names is too long",
        cause: "The file is longer than any valid file of its kind.",
        fix: "Set the key to the intended file.";
    SECRET_EXPOSED = 1111, "secret is accessible to other users",
        cause: "The mode of the file allows other users to read it, or its group to write it.",
        fix: "Run `chmod 600` on the file. Change the password or key if it may have been read.";
    PASSWORD_EMPTY = 1112, "password file is empty",
        cause: "Servers treat a bind with an empty password as an anonymous bind.",
        fix: "Write the password to the file.";
    CREDENTIAL_MISSING = 1113, "credential is missing",
        cause: "systemd passes no credential of this name to the service.",
        fix: "Add LoadCredential=NAME:/PATH below [Service] by `systemctl edit rosterd`, then run `systemctl restart rosterd`.";
    CREDENTIAL_UNCHECKED = 1114, "credential is not checked",
        cause: "systemd passes credentials to the service only, so this command cannot read them.",
        fix: "Check with `systemctl cat rosterd` that rosterd.service has LoadCredential=NAME:/PATH.";
    INVALID_AUTHORITIES = 1115, "invalid file of certificate authorities",
        cause: "The file is not PEM, has no certificate, or has an invalid certificate.",
        fix: "Name a PEM file of authorities in tls_ca. To convert DER, run `openssl x509 -inform der`.";
    HOST_AUTHORITIES_MISSING = 1116, "host without certificate authorities",
        cause: "A domain uses TLS without tls_ca, and this host has no usable authorities. TLS connections fail.",
        fix: "Install ca-certificates, or set tls_ca to a PEM file.";
    KEYTAB_MISSING = 1117, "keytab is missing",
        cause: "The domain verifies KDCs or binds by the key of this host, and the keytab does not exist.",
        fix: "Write a key of this host to the keytab (docs/how-to/kerberos.md), or correct krb5_keytab.";
    INVALID_KEYTAB = 1118, "invalid keytab",
        cause: "The file is not a keytab of MIT or Heimdal.",
        fix: "Set krb5_keytab to a file that ktadd of kadmin, adcli or ipa-getkeytab wrote.";
    KDCS_UNVERIFIED = 1119, "KDCs are not verified",
        cause: "krb5_validate is \"off\", or \"auto\" on a host without a keytab. A rogue KDC can log in as any user.",
        fix: "Write a key of this host to the keytab (docs/how-to/kerberos.md), then set krb5_validate = \"required\".";
    SERVED_ENTRIES_REJECTED = 1120, "configuration rejects entries that are served now",
        cause: "The snapshot of this host has users or groups that the configuration excludes.",
        fix: "Change the configuration if the entries are to be served. `roster check-config --json` lists them.";
    SERVED_ENTRIES_NOT_COMPARED = 1121, "served entries are not compared",
        cause: "The snapshot or a local file cannot be read, so rejected entries cannot be listed.",
        fix: "Correct the file, or choose another snapshot with --snapshot.";
    CASE_KEY_REPLACED = 1700, "key was replaced by case",
        cause: "The key case_sensitive was replaced by case, which has three values.",
        fix: "Write case = \"insensitive\" for false, or case = \"sensitive\" for true.";
    DEFAULT_DOMAIN_UNKNOWN = 1701, "default domain is not a domain",
        cause: "default_domain names a domain that is missing in the list domains.",
        fix: "Name a domain of the list, or add the domain to it.";
    SHORT_NAME_SHARED = 1702, "short name of two domains",
        cause: "A name such as CORP\\alice must name one domain, and two domains have the name or short name.",
        fix: "Choose another short_name for one of the two domains.";
    NUMERIC_NAMES_ON_DEMAND = 1703, "numeric names in an on-demand domain",
        cause: "A name of digits must not be the id of another entry, and an on-demand domain does not know all ids.",
        fix: "Remove numeric_names, or set mode = \"replicate\".";

    BASE_OF_OTHER_FORM = 1720, "search base with a scope or a filter in one text",
        cause: "SSSD separates base, scope and filter by question marks. Roster has a key for each.",
        fix: "Write the base as a table, such as { base = \"ou=people,dc=example,dc=com\", scope = \"one\" }.";
    BASES_COUNT = 1721, "wrong number of search bases",
        cause: "A list of search bases has 1 to 8 elements. Each base takes its own search.",
        fix: "Write a common base, or distribute the bases over two domains.";
    AWAY_WITHOUT_ID_RANGE = 1722, "domain may be skipped and has no dedicated id range",
        cause: "While the domain is away, users of the next domains must not have its ids.",
        fix: "Set min_id and max_id of the domain, or when_away = \"wait\".";
    AWAY_ID_RANGE_SHARED = 1723, "domain may be skipped and shares ids with another domain",
        cause: "While the domain is away, users of the other domain could have its ids.",
        fix: "Set min_id and max_id of both domains so that they share no id, or when_away = \"wait\".";
    BIND_REALM_MISSING = 1740, "GSSAPI bind without a realm",
        cause: "bind = \"gssapi\" requires krb5_realm, the realm of this host and of the directory servers.",
        fix: "Add krb5_realm = \"REALM\".";
    BIND_KDC_MISSING = 1741, "GSSAPI bind without a KDC",
        cause: "bind = \"gssapi\" requires krb5_kdcs or krb5_discover.",
        fix: "Add krb5_kdcs = [\"HOST\"], or krb5_discover = true.";
    BIND_GSSAPI_ON_SOCKET = 1742, "GSSAPI bind over a socket",
        cause: "A socket of this host has no host name, which a Kerberos ticket requires.",
        fix: "Use bind = \"external\" with ldapi://, or name the server by ldap:// or ldaps://.";
    BIND_PRINCIPAL_UNUSED = 1743, "bind_principal without a GSSAPI bind",
        cause: "bind_principal has an effect with bind = \"gssapi\" only.",
        fix: "Set bind = \"gssapi\", or remove bind_principal.";
    INVALID_PRINCIPAL = 1744, "invalid principal",
        cause: "A principal is NAME, NAME/HOST, or either with @REALM. The realm must be that of krb5_realm.",
        fix: "Write a principal as `klist -k` shows it.";
    TLS_CERT_INCOMPLETE = 1745, "client certificate without its key",
        cause: "tls_cert and tls_key are set together or not at all.",
        fix: "Set tls_cert to the certificate, and tls_key to its private key.";
    TLS_CERT_UNUSED = 1746, "client certificate without TLS",
        cause: "No server of the domain is reached by TLS, so the certificate is never shown.",
        fix: "Use ldaps:// in uris, set start_tls = true, or remove the key.";
    INVALID_CLIENT_CERTIFICATE = 1747, "invalid client certificate",
        cause: "The file is not PEM, has no certificate, or has an invalid one.",
        fix: "Set tls_cert to a PEM file. To convert DER, run `openssl x509 -inform der`.";
    INVALID_CLIENT_KEY = 1748, "invalid key of the client certificate",
        cause: "The file is not PEM, has no private key, or has a key that TLS does not support: RSA, ECDSA and Ed25519 are.",
        fix: "Set tls_key to a PEM file. To convert a key, run `openssl pkey`.";
    CLIENT_KEY_ENCRYPTED = 1749, "key of the client certificate is encrypted",
        cause: "The key needs a passphrase. rosterd has no terminal to ask for it.",
        fix: "Write the key without a passphrase by `openssl pkey -in OLD -out NEW`, to a file of mode 0600.";
    CLIENT_KEY_MISMATCH = 1750, "key does not match the client certificate",
        cause: "The first certificate of tls_cert has another public key than tls_key.",
        fix: "Set both keys to the files of one certificate. The host's certificate must be the first in its file.";
    CLIENT_CERTIFICATE_EXPIRED = 1751, "client certificate is not valid at this time",
        cause: "The certificate has expired or is not valid yet, or the clock of this host is wrong.",
        fix: "Renew the certificate, or set the clock of this host. rosterd reads the new files within 20 seconds.";
    BIND_EXTERNAL_WITHOUT_CERTIFICATE = 1752, "external bind over TLS without a certificate",
        cause: "bind = \"external\" over TLS uses the identity of the client certificate.",
        fix: "Set tls_cert and tls_key, or use ldapi://, or set bind_dn and bind_password_file.";

    // Password changes and access checks.
    LDAP_AUTH_KEY_UNUSED = 1760, "key of LDAP logins without effect",
        cause: "The domain does not check passwords by a bind at the directory, so rosterd does not change them there.",
        fix: "Set auth = \"ldap\", or remove the key.";
    EXPIRED_CHANGE_BY_MODIFY = 1761, "expired passwords cannot be changed by a modification",
        cause: "A modification does not show the old password to the server, and would need no proof of it.",
        fix: "Set password_change = \"extended\", or remove change_expired_password.";
    FILTER_TEMPLATE_UNKNOWN = 1762, "unknown template in an access filter",
        cause: "The filter of access rules knows the templates %{host} and %{service}.",
        fix: "Correct the template. Write \\25{ for the characters %{.";
    ACCOUNT_CHECK_WITHOUT_DIRECTORY = 1763, "account check without a directory",
        cause: "host, authorized-service and rhost read attributes of a directory, and the domain has provider = \"files\".",
        fix: "Remove the check from account_checks, and list users or groups instead.";
    VALIDATION_IMPLIED = 1770, "krb5_validate without effect",
        cause: "FAST by a key of this host proves that the KDC knows it, so krb5_fast_principal verifies each KDC.",
        fix: "Remove krb5_validate or krb5_fast_principal.";

    // Shells and home directories.
    SHELL_WITH_DOTS = 1780, "shell with a parent directory",
        cause: "rosterd rejects users whose shell has a \"..\".",
        fix: "Write the path without \"..\".";
    REPLACEMENT_SHELL_UNUSED = 1781, "replacement shell without effect",
        cause: "allowed_shells and refused_shells decide which shells are replaced. unlisted_shell requires the former, \
                replacement_shell one of both.",
        fix: "Set such a key, or remove replacement_shell or unlisted_shell.";
    EMPTY_HOME_UNUSED = 1782, "allow_empty_home without effect",
        cause: "home and fallback_home give a home directory to users without one.",
        fix: "Remove allow_empty_home, or the other key.";

    // Local overrides.
    OVERRIDE_EMPTY = 1790, "override without a key",
        cause: "The table of an override has no key, so it changes nothing.",
        fix: "Add a key to the table, or remove it. roster.toml(5) lists the keys.";
    OVERRIDE_TWICE = 1791, "entry with two overrides",
        cause: "The configuration and overrides_file both override the entry, or two names differ by case only.",
        fix: "Remove one of the two tables.";
    OVERRIDES_SHARE_VALUE = 1792, "two overrides give one name or id",
        cause: "Two entries of one kind would have the same name or id.",
        fix: "Change the name or id in one of the two tables.";
    OVERRIDES_FILE_UNREADABLE = 1793, "file with overrides cannot be read",
        cause: "overrides_file names a file that is missing, or that the reading user cannot read.",
        fix: "Create the file with owner root and mode 0644, or remove overrides_file.";
    OVERRIDE_ID_ON_DEMAND = 1794, "override of an id in an on-demand domain",
        cause: "An on-demand domain does not know all entries of a name. The first known one would get the id, and its files.",
        fix: "Remove uid and gid from the overrides, or set mode = \"replicate\".";
    HIDDEN_NAME_IN_RULE = 1795, "access rule with a name that an override replaces",
        cause: "allowed_users and allowed_groups compare names of this host, and an override gives the entry another name.",
        fix: "Write the name that the override gives.";

    MAIN_FILE_LOST = 1796, "main file of the configuration has disappeared",
        cause: "rosterd was started with the file, and only drop-ins are left. They may lack rules of the file.",
        fix: "Restore the file, then run `systemctl reload rosterd`. For drop-ins alone, restart rosterd.";

    // Ids from SIDs.
    ID_MAPPING_KEY_UNUSED = 1800, "key of ids from SIDs without effect",
        cause: "id_min, id_max, id_range and id_slice have an effect with id_mapping = \"sid\" only.",
        fix: "Set id_mapping = \"sid\", or remove the key. min_id and max_id limit the ids of any domain.";
    ID_MAPPING_RANGE_EMPTY = 1801, "range of ids without a slice",
        cause: "The ids from id_min to id_max are fewer than one slice of id_range.",
        fix: "Raise id_max, or lower id_range. The defaults are 200000, 2000200000 and 200000.";
    ID_SLICE_ABOVE_RANGE = 1802, "slice does not exist",
        cause: "The ids from id_min to id_max have (id_max - id_min) / id_range slices, counted from 0.",
        fix: "Write the slice that `roster domain compare-ids` shows, or raise id_max.";
    ID_SLICES_OVERLAP = 1803, "two domains have one slice",
        cause: "Users of both domains would have the same ids, and so the same files.",
        fix: "Name another id_slice for one of the two domains.";
    ID_SLICE_MISSING = 1804, "two domains share ids, and one has no slice",
        cause: "The SIDs of the domains choose slices independently, and may choose the same one.",
        fix: "Name id_slice in both domains, or give them separate ids with id_min and id_max.";
    MAPPED_IDS_REJECTED = 1805, "ids from SIDs that the domain does not admit",
        cause: "min_id and max_id exclude ids that id_mapping = \"sid\" may give. rosterd rejects these users and groups.",
        fix: "Lower min_id or raise max_id, or change id_min and id_max.";
    MAPPED_IDS_SHARED = 1806, "ids from SIDs that another domain may have",
        cause: "An id belongs to the first domain that has it. The other user or group is rejected.",
        fix: "Set min_id and max_id of the other domain outside of id_min and id_max.";
    ID_TABLE_DISAGREES = 1807, "stored slices disagree with the configuration",
        cause: "rosterd stored the slices of the domain, and would give other ids now. It refuses to renumber files silently.",
        fix: "Restore the keys. To renumber on purpose, stop rosterd, remove the file with the slices, and run chown(1).";

    // Active Directory.
    AD_ON_DEMAND = 1820, "Active Directory cannot be queried on demand",
        cause: "Groups of a user, primary groups included, need all entries of the domain.",
        fix: "Remove mode, or set mode = \"replicate\".";
    AD_PRIVATE_GROUPS = 1821, "private groups with Active Directory",
        cause: "Access rules and nested groups of Active Directory depend on the primary groups, which private groups would replace.",
        fix: "Remove private_groups.";
    AD_ID_ATTRIBUTE = 1822, "attribute of ids contradicts id_mapping",
        cause: "With id_mapping = \"sid\" ids are computed from objectSid and primaryGroupID.",
        fix: "Remove the attribute, or set id_mapping = \"posix\".";
    ID_MAPPING_WITHOUT_AD = 1823, "ids from SIDs without Active Directory",
        cause: "Only entries of Active Directory have SIDs, and only schema = \"ad\" reads them.",
        fix: "Set schema = \"ad\", or remove id_mapping.";
    AD_DENIED_PRIMARY_GROUPS = 1824, "denied groups without primary groups of Active Directory",
        cause: "With id_mapping = \"posix\" the group of primaryGroupID does not count. A user with a denied primary group, such as Domain Users, may log in.",
        fix: "Deny with allowed_groups, or set id_mapping = \"sid\".";

    // Domain controllers.
    CONTROLLERS_WITHOUT_DOMAIN = 1850, "search for controllers without a domain",
        cause: "discover_controllers finds the controllers of the domain that discover names, and discover is not set.",
        fix: "Set discover = \"corp.example.com\", or remove discover_controllers.";
    SITE_UNUSED = 1851, "site without a search for controllers",
        cause: "Only controllers that DNS lists have a site. The servers of uris are used in the order of that list.",
        fix: "Set discover_controllers = true, or remove site.";
}
