// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log lines of backends: directory servers, mappings, the cache of a domain. Also the reasons of entries that are not
//! served. Refused logins are in `login`, and the publisher's lines in `daemon`.

crate::messages! {
    // Servers of a directory.
    HOST_NOT_RESOLVED = 5001, "server name cannot be resolved",
        cause: "The name of a server in `uris` has no usable address, or the name service of this host does not reply.",
        fix: "Correct the name in `uris`, or check DNS and /etc/hosts. `getent ahosts NAME` shows the addresses.";
    CONNECT_FAILED = 5002, "cannot connect to a directory server",
        cause: "The server does not accept connections at this address and port, or a firewall rejects them.",
        fix: "Start the server, or correct `uris`. rosterd retries automatically; `roster domain refresh NAME` retries at once.";
    TLS_FAILED = 5003, "TLS with a directory server failed",
        cause: "The handshake failed, or the certificate of the server was rejected for the reason in the message.",
        fix: "Fix the TLS configuration of the server, or `uris` and `tls_ca`; then run `systemctl reload rosterd`.";
    TLS_NOT_SPOKEN = 5004, "server does not speak TLS",
        cause: "The port expects LDAP without TLS, as port 389 does, or is not a port of a directory server.",
        fix: "Use ldap:// with `start_tls = true` for such a port, or correct the port in `uris`; then run `systemctl reload rosterd`.";
    TLS_CERTIFICATE_EXPIRED = 5005, "server certificate is not valid at this time",
        cause: "The certificate has expired or is not valid yet, or the clock of this host is wrong.",
        fix: "Renew the certificate of the server, or set the clock of this host.";
    TLS_CERTIFICATE_NAME = 5006, "server certificate is for another name",
        cause: "The certificate does not contain the name of the server in `uris`.",
        fix: "Use a name from the certificate in `uris`, or issue a certificate for this name; then run `systemctl reload rosterd`.";
    TLS_AUTHORITY_UNKNOWN = 5007, "server certificate from an unknown authority",
        cause: "No authority that this host trusts issued the certificate of the server.",
        fix: "Name the PEM file of the authority with `tls_ca`, then run `systemctl reload rosterd`.";
    TLS_AUTHORITY_AS_SERVER = 5008, "server presents the certificate of an authority",
        cause: "The certificate permits to issue certificates, as `openssl req -x509` makes it by default. TLS accepts no such server.",
        fix: "Issue a certificate with basicConstraints=CA:FALSE for the server.";
    START_TLS_REFUSED = 5009, "server refuses StartTLS",
        cause: "The server has no TLS configuration for its LDAP port.",
        fix: "Configure TLS on the server, use ldaps:// in `uris`, or set `start_tls = false`; then run `systemctl reload rosterd`.";
    BIND_PASSWORD_UNENCRYPTED = 5010, "bind password would cross the network unencrypted",
        cause: "The connection has no TLS, and its server is another host.",
        fix: "Use ldaps:// in `uris`, or set `start_tls = true`. `allow_clear_password = true` permits the password without TLS.";
    BIND_FAILED = 5011, "server rejects the bind",
        cause: "The bind DN does not exist, its password is wrong, or the server does not allow this bind method.",
        fix: "Correct `bind_dn` or the file of `bind_password_file`, then run `systemctl reload rosterd`.";
    CONNECTION_LOST = 5012, "connection to a directory server lost",
        cause: "The server closed the connection, or the network interrupted it.",
        fix: "No action is needed after a restart of the server. Otherwise read the log of the server for the reason.";
    CONNECTION_ENDED = 5013, "server announced the end of the connection",
        cause: "The server shuts down, or enforces a limit such as an idle timeout.",
        fix: "No action is needed after a restart of the server. Otherwise raise the limits of the server for the bind DN.";
    CLOSED_BEFORE_REPLY = 5014, "server closed the connection before its first reply",
        cause: "The port expects TLS, as port 636 does, or the server rejects this client, for example its certificate or the lack of one.",
        fix: "Use ldaps:// in `uris` for a TLS port. If the server demands client certificates, set a valid `tls_cert`. Otherwise read the log of the server.";
    NO_REPLY = 5015, "directory server does not reply",
        cause: "The server or the network is down or overloaded. An established connection gets no reply either.",
        fix: "Check the server and the network. rosterd retries automatically and uses another server of `uris` meanwhile.";
    REQUEST_TIMEOUT = 5016, "request timed out on a working server",
        cause: "The server replies to other requests, but not to this one within its timeout.",
        fix: "Check the load of the server. For logins raise `auth_timeout`, for searches `search_timeout`.";
    LOOKUP_SLOW = 5017, "lookup timed out",
        cause: "The server did not complete the search. It may lack an index for an attribute of the search.",
        fix: "Add an index for the attributes of users and groups on the server, or raise `search_timeout`.";
    MALFORMED_REPLY = 5018, "reply is not valid LDAP",
        cause: "The server, or a program in between, sent bytes that do not follow the LDAP protocol.",
        fix: "Check that `uris` names an LDAP server and its port.";
    SEARCH_FAILED = 5019, "server rejects a search",
        cause: "The server returned an LDAP error for a search with the configured base and filter.",
        fix: "Run the search with ldapsearch as the bind DN, and correct `base`, the filters or the server.";
    SEARCH_LIMIT = 5020, "search exceeds a limit of the server",
        cause: "The server limits the number of entries or the time of a search. rosterd never treats a part of a directory as all of it.",
        fix: "Lift the size, time and administrative limits of the server for the bind DN.";
    SEARCH_BASE_MISSING = 5021, "search base not found",
        cause: "The entry of the search base does not exist, or the bind DN may not read it.",
        fix: "Correct `base`, `user_base` or `group_base`, or grant the bind DN read access to the base.";
    SEARCH_DENIED = 5022, "bind DN may not search",
        cause: "An access rule of the server denies the search to the bind DN.",
        fix: "Grant the bind DN search and read access below the search base.";
    SEARCH_INTERRUPTED = 5023, "server ended a search that must continue",
        cause: "The server ended a persistent search or a content synchronization with success, for example after a change of its configuration.",
        fix: "No action is needed if it happens once. Otherwise check the synchronization module of the server.";
    SYNC_BROKEN = 5024, "content synchronization of the server does not work",
        cause: "The server requests a full refresh again in reply to a full refresh.",
        fix: "Check the syncprov overlay of the server and its session log.";
    REFERRAL = 5025, "server returned a referral",
        cause: "The search base is on another server. Referrals are not followed.",
        fix: "Name the server that holds the base in `uris`, or configure it as a separate domain.";
    ENTRY_WITHOUT_KEY = 5026, "entry without a readable unique key",
        cause: "The bind DN may not read entryUUID, nsUniqueId or objectGUID, or the server does not set it.",
        fix: "Grant the bind DN read access to the attribute, or name another one with `uuid`.";
    TOO_MANY_ENTRIES = 5027, "search finds more entries than a mirror can hold",
        cause: "The search base or the filter selects far more than the users and groups of this host.",
        fix: "Narrow the bases or filters, or set `mode = \"on-demand\"`.";
    TOO_MANY_CONTAINERS = 5028, "containers exceed the memory limit",
        cause: "The names of the containers below the search base take more than 96 MiB.",
        fix: "Narrow the bases, or set `mode = \"on-demand\"`.";
    TOO_MANY_RESULTS = 5029, "lookup found too many entries",
        cause: "The search base or the filter selects more entries than a lookup may return.",
        fix: "Narrow the search bases or the filters.";
    RESULTS_TOO_LARGE = 5030, "lookups exceed their memory limit",
        cause: "Concurrent lookups returned large entries, for example groups with many members.",
        fix: "Set `mode = \"replicate\"` for the domain, or narrow the search bases.";
    NO_SERVER = 5031, "no directory server is known",
        cause: "`uris` is empty, and DNS names no usable server for the domain in `discover`.",
        fix: "Name servers in `uris`, or add SRV records `_ldap._tcp` to DNS.";
    DNS_FAILED = 5032, "DNS query for directory servers failed",
        cause: "The name servers of this host did not reply, or replied with an error. The last known servers stay in use.",
        fix: "Check /etc/resolv.conf and the name servers.";
    DNS_NAME_OUTSIDE_DOMAIN = 5033, "DNS names servers outside the domain",
        cause: "The SRV records name hosts that are not below the domain of `discover`. A forged reply could do the same.",
        fix: "Name these servers in `uris`, or their certificate authority with `tls_ca` together with `start_tls`.";
    NO_MIRROR_SERVER = 5034, "no server is mirrored yet",
        cause: "rosterd has not connected to a directory server since its start.",
        fix: "Fix the reason for which the domain is offline; `roster status` shows it.";
    TRACKING_REFUSED = 5035, "server rejects an advertised change-tracking method",
        cause: "The server advertises the control, but denies it to the bind DN, or its module is not configured for this base.",
        fix: "Permit the control to the bind DN, or enable the module on the server. Until then changes are tracked in another way.";
    FOLLOWING_ENDED = 5036, "changes of the directory are no longer tracked",
        cause: "The provider stopped with an error that another attempt does not fix.",
        fix: "Fix the reason in the message, then run `systemctl restart rosterd`.";
    SERVERS_PASSED_OVER = 5037, "preferred directory servers are not usable",
        cause: "Servers of higher rank failed, so that the domain uses a server of lower rank.",
        fix: "Fix the named servers. rosterd returns to a preferred server automatically.";

    // Change tracking.
    STAMP_UNREADABLE_SYNC = 5038, "change stamps unreadable: synchronization cannot resume",
        cause: "The bind DN may not read the attribute by which rosterd verifies a resumed synchronization.",
        fix: "Grant the bind DN read access to the named attribute of all entries.";
    STAMP_UNREADABLE_POLL = 5039, "change stamps unreadable: everything is read at intervals",
        cause: "The bind DN may not read the attribute by which a poll finds changed entries.",
        fix: "Grant the bind DN read access to the named attribute of all users and groups.";
    SERVER_DATA_OLDER = 5040, "server data is older than the last synchronization",
        cause: "The server was restored from a backup, or another server with older data replies. rosterd reads everything again.",
        fix: "No action is needed after a restore. Otherwise check the replication between the servers.";
    ENTRY_INDEX_MISSING = 5041, "server does not find single entries",
        cause: "The server may lack an index for the key attribute or the member attributes. rosterd reads everything again instead.",
        fix: "Add an index for the named attributes on the server.";
    DYNAMIC_GROUPS_TIMEOUT = 5042, "reading dynamic groups timed out",
        cause: "The server did not reply while it listed groups with computed members. rosterd retries later.",
        fix: "Raise `search_timeout`, or add indexes for the searches of these groups on the server.";
    DYNAMIC_GROUPS_UNREADABLE = 5043, "dynamic groups cannot be read",
        cause: "The server rejected the search for groups with computed members. rosterd retries later.",
        fix: "Lift the limits of the server for the bind DN, and check its overlay for dynamic groups.";
    KEY_LISTING_TIMEOUT = 5044, "listing the keys of all entries timed out",
        cause: "The server did not reply while it listed all entries for the search for silent deletions. rosterd retries later.",
        fix: "Raise `search_timeout`.";
    KEY_LISTING_FAILED = 5045, "keys of all entries cannot be listed",
        cause: "The server rejected the search that finds silent deletions. rosterd retries later.",
        fix: "Lift the limits of the server for the bind DN.";
    DUPLICATE_UUIDS = 5046, "entries share a UUID",
        cause: "Entries were copied with their UUID, for example by an import from a backup. rosterd serves only one of these entries.",
        fix: "Find them with `roster domain rejected NAME`, delete each in the directory and create it again without its UUID.";

    // Lookups in on-demand mode.
    LOOKUP_TIMEOUT = 5047, "directory did not reply in time",
        cause: "The directory or the network is overloaded, or a lookup needs several slow searches.",
        fix: "Check the load of the directory server, and its indexes.";
    USER_NAME_AMBIGUOUS = 5048, "several users have one name",
        cause: "Several entries below the search base have the same user name.",
        fix: "Rename all but one entry, or narrow `user_base` or `user_filter`.";
    DN_NOT_UTF8 = 5049, "DN is not UTF-8",
        cause: "The server returned a DN with bytes that are not valid UTF-8.",
        fix: "Rename the entry in the directory.";
    USER_IN_TOO_MANY_GROUPS = 5050, "user is in too many groups",
        cause: "The lookup of the groups of a user exceeds its limit.",
        fix: "Remove the user from groups, narrow `group_base` or `group_filter`, or set `mode = \"replicate\"`.";
    GROUPS_NESTED_TOO_DEEP = 5051, "groups are nested too deep",
        cause: "The chain of groups that contain each other exceeds the limit of a lookup.",
        fix: "Shorten the chain in the directory, or set `mode = \"replicate\"`.";
    GROUP_TOO_LARGE = 5052, "group has too many members for a lookup",
        cause: "In on-demand mode a lookup fetches the members of a group, up to a limit.",
        fix: "Set `mode = \"replicate\"` for the domain.";
    REPLY_TOO_LARGE = 5053, "lookup reply too large",
        cause: "The entries of a lookup, for example groups with many members, exceed the size of a message.",
        fix: "Set `mode = \"replicate\"` for the domain.";
    ENTRY_CHANGED_DURING_LOOKUP = 5054, "entry changed during its lookup",
        cause: "The entry was changed while the directory was queried, or the bind DN may not read its list of members.",
        fix: "Repeat the lookup. If it fails again, grant the bind DN read access to the member attributes.";
    FILTER_INVALID = 5055, "filter is not valid",
        cause: "A filter in roster.toml is not a valid LDAP filter (RFC 4515).",
        fix: "Correct the filter, then run `systemctl reload rosterd`.";

    // Entries that cannot be read.
    ATTRIBUTE_MISSING = 5056, "required attribute missing",
        cause: "The entry does not have the attribute, or the bind DN may not read it.",
        fix: "Add the attribute to the entry, or grant the bind DN read access to it. `user_filter` and `group_filter` can exclude the entry.";
    ATTRIBUTE_EMPTY = 5057, "required attribute is empty",
        cause: "The attribute of the entry has an empty value.",
        fix: "Write the value in the directory.";
    ATTRIBUTE_WITH_SEVERAL_VALUES = 5058, "attribute has several values",
        cause: "The attribute may have only one value, because a user or group has only one.",
        fix: "Remove all values but one in the directory, or map another attribute.";
    NUMBER_INVALID = 5059, "attribute is not a valid id",
        cause: "The value is not a decimal number from 0 to 4294967295.",
        fix: "Correct the value in the directory.";
    HOME_MISSING = 5060, "home directory missing",
        cause: "The entry has no home directory, and the configuration sets no default.",
        fix: "Add the attribute to the entry, or set `fallback_home = \"/home/%u\"` or `allow_empty_home = true` for the \
              domain.";
    NAME_AMBIGUOUS = 5061, "entry has several names",
        cause: "The name attribute has several values, and the DN does not begin with exactly one of them.",
        fix: "Remove all names but one, or rename the entry so that its DN begins with the name.";
    DN_WITH_TOO_MANY_NAMES = 5062, "DN begins with too many names",
        cause: "The first component of the DN has more values of the name attribute than are compared.",
        fix: "Rename the entry so that its DN begins with one name.";
    MEMBERS_CUT = 5063, "server does not return all members of a group",
        cause: "The server returns the first members of a long list, and rejects the search for the rest.",
        fix: "Grant the bind DN read access to the member attribute, or lift the limits of the server for it.";
    MEMBERS_UNREADABLE = 5064, "list of members has an unknown form",
        cause: "The server returned the member attribute with an option other than a range from the expected position, or with another number of members than its range has.",
        fix: "Check the member attribute of the group on the server, and `member_attributes`.";
    DUPLICATE_UUID = 5065, "UUID of another entry",
        cause: "The entry was copied with its UUID. The other entry with this UUID is served.",
        fix: "Delete the entry in the directory and create it again without its UUID.";
    FIELD_TOO_LONG = 5066, "field of an entry is too long",
        cause: "A name, a text, or a list of the entry exceeds the size that the cache can store.",
        fix: "Shorten the value in the directory.";
    DOMAIN_TOO_LARGE = 5067, "domain has too many entries",
        cause: "The search bases and filters select more entries than a domain can have.",
        fix: "Narrow the search bases or the filters.";
    ENTRY_NUMBERS_EXHAUSTED = 5068, "cache has no free entry numbers",
        cause: "Entries were added and removed so often that all numbers of the cache were assigned.",
        fix: "Run `systemctl restart rosterd`; the backend then renumbers the cache.";
    TOO_MANY_MEMBER_NAMES = 5069, "member lists name too many members",
        cause: "The groups of the domain name more different members than the cache can store. Further members are omitted.",
        fix: "Narrow `group_base` or `group_filter`.";
    REMOVALS_HELD = 5070, "many entries are missing in the directory: removal is on hold",
        cause: "More entries than `mass_deletion_threshold` allows are missing, unreadable or deleted at once, or the replies are not credible.",
        fix: "If the entries are gone, run `roster domain approve-removals NAME`. Otherwise fix the directory; the entries then stay.";
    KEY_SEARCH_NOT_CREDIBLE = 5071, "directory does not find known entries by their keys",
        cause: "A search by keys found none of the missing entries, and none of the entries that the directory lists. Nothing was removed.",
        fix: "Grant the bind DN search access to the key attribute, such as entryUUID, and check its index.";

    // Files with users and groups.
    FILE_UNREADABLE = 5072, "file of users or groups cannot be read",
        cause: "The file does not exist, its owner or mode is not safe, or the disk returned an error. The last entries stay served.",
        fix: "Fix the file, its owner or its mode as the message states.";
    FILE_TOO_LARGE = 5073, "file of users or groups is too large",
        cause: "The file exceeds the limit of 256 MiB.",
        fix: "Split the accounts over several domains.";
    FILES_NEVER_STABLE = 5074, "files of users and groups are written continuously",
        cause: "A program writes the files without a pause, so that their content is never complete. The last content stays served.",
        fix: "Replace the files with rename(2) instead of writing to them.";
    FILES_NOT_WATCHED = 5075, "files cannot be watched",
        cause: "The kernel did not create an inotify watch, for example because of its limits. rosterd reads the files every 5 seconds.",
        fix: "Raise fs.inotify.max_user_instances and fs.inotify.max_user_watches with sysctl.";
    LINE_MALFORMED = 5076, "line is not a valid user or group",
        cause: "A field of the line is missing or is not a valid number. glibc ignores such a line too.",
        fix: "Correct the line in the file.";
    LINE_NIS = 5077, "line requests NIS",
        cause: "The line begins with + or -, which requests entries from NIS. Roster does not query NIS.",
        fix: "Remove the line, or configure the NIS source as a separate domain.";
    LINE_DUPLICATE = 5078, "name occurs twice in a file",
        cause: "An earlier line of the file has the same name. That line is served.",
        fix: "Remove one of the lines.";

    // The cache of a domain.
    CACHE_DAMAGED = 5079, "cache of a domain is damaged",
        cause: "The file is damaged, or opening it ended the process repeatedly. The backend moved it aside and reads the directory again.",
        fix: "Check the disk and its file system. The moved file can be deleted.";
    CACHE_FOREIGN = 5080, "cache belongs to another configuration or version",
        cause: "The domain was changed in roster.toml, or Roster was upgraded. The backend moved the file aside and reads the directory again.",
        fix: "No action is needed. The moved file can be deleted.";
    CACHE_IN_USE = 5081, "cache is in use by another process",
        cause: "Another backend of the domain still runs, or another program has the file open.",
        fix: "Stop the other process; `fuser -v FILE` shows it.";
    CACHE_DISK_FULL = 5082, "no space for the cache",
        cause: "The file system or the quota of the state directory is full. The domain continues from memory.",
        fix: "Free space. The backend writes the cache again automatically.";
    CACHE_NOT_PERMITTED = 5083, "cache directory is not writable",
        cause: "The state directory has the wrong owner or mode, or its file system is mounted read-only.",
        fix: "Correct the owner or the mount. The backend opens the cache again automatically.";
    CACHE_IO = 5084, "cache cannot be read or written",
        cause: "The disk or the file system returned an error. The domain continues from memory.",
        fix: "Check the disk and the kernel log. The backend opens the cache again automatically.";
    CACHE_CLOSED = 5085, "cache is closed after an error",
        cause: "An earlier error closed the file. The backend opens it again automatically.",
        fix: "Fix the earlier error that the message contains.";
    CACHE_NOT_CLOSED = 5086, "last changes are not in the cache",
        cause: "The backend was stopped while the disk did not accept writes in time.",
        fix: "Check the disk. The backend reads the changes from the directory again.";
    CACHE_BECAME_READABLE = 5087, "cache became readable after the start",
        cause: "The backend started without its cache, and the file can be read now. The backend restarts to use it.",
        fix: "No action is needed.";
    DOMAIN_NOT_READ = 5088, "domain was not read yet",
        cause: "The first enumeration of the directory has not ended.",
        fix: "Wait for its end, or fix the reason for which the domain is offline; `roster status` shows it.";
    DOMAIN_SETUP_FAILED = 5089, "domain cannot be set up",
        cause: "A value of the domain in roster.toml, or a file that it names, cannot be used.",
        fix: "Correct the value that the message names, then run `systemctl reload rosterd`.";
    LDAP_NOT_BUILT = 5090, "LDAP support is not built in",
        cause: "The domain has `provider = \"ldap\"`, and this rosterd was built without the feature `ldap`.",
        fix: "Install a rosterd that is built with the feature `ldap`.";

    // Entries that are not admitted.
    ENTRIES_REJECTED = 5091, "entries rejected for several reasons",
        cause: "The publisher rejects entries for more reasons than it lists.",
        fix: "Run `roster domain rejected NAME`, and fix each reason.";
    ID_BELOW_MIN = 5092, "id is below min_id",
        cause: "The uid or gid of the entry is smaller than the `min_id` of its domain.",
        fix: "Change the id in the directory, or lower `min_id` if such entries are to be served.";
    PRIMARY_GID_BELOW_MIN = 5093, "primary gid is below min_id",
        cause: "The primary gid of the user is smaller than the `min_id` of its domain.",
        fix: "If users may have this group of the host, add the gid to `allowed_local_gids` under [host]. For a group of the directory, lower `min_id`.";
    ID_ABOVE_MAX = 5094, "id is above max_id",
        cause: "The uid or gid of the entry is larger than the `max_id` of its domain.",
        fix: "Change the id in the directory, or raise `max_id` if such entries are to be served.";
    ID_RESERVED = 5095, "id is reserved",
        cause: "The id is 0, 65534, 65535 or 4294967295, which have a special meaning on every host.",
        fix: "Change the id in the directory.";
    LOCAL_USER_NAME = 5096, "name of a local user",
        cause: "A user in /etc/passwd has the same name. Local accounts have priority.",
        fix: "Rename one of the two accounts, or remove the local account.";
    LOCAL_GROUP_NAME = 5097, "name of a local group",
        cause: "A group in /etc/group has the same name. Local groups have priority.",
        fix: "Rename one of the two groups, or remove the local group.";
    LOCAL_UID = 5098, "uid of a local user",
        cause: "A user in /etc/passwd has the same uid. Each user would own the files of both.",
        fix: "Change the uid of one of the two accounts.";
    LOCAL_GID = 5099, "gid of a local group",
        cause: "A group in /etc/group has the same gid. Each group would have the members of both.",
        fix: "Change the gid of one of the two groups.";
    PRIMARY_GID_LOCAL = 5100, "primary gid of a local group",
        cause: "The primary group of the user is a local group, which gives the user its rights.",
        fix: "If users may have this group of the host, add the gid to `allowed_local_gids` under [host].";
    GID_OF_LOCAL_USERS = 5101, "gid is the primary gid of a local user",
        cause: "A local user has this primary gid, and no local group has it. Files of the local user would become accessible.",
        fix: "If the directory may share the gid, add it to `allowed_unnamed_gids` under [host].";
    SUBORDINATE_ID = 5102, "id is a subordinate id of a local user",
        cause: "The id is in a range of /etc/subuid or /etc/subgid, so that a local user can take it in a user namespace.",
        fix: "Change the id or the range. `allow_subordinate_ids = true` under [host] permits such ids.";
    PRIVILEGED_NAME = 5103, "name of a privileged account",
        cause: "Programs and distributions create accounts of this name, which give rights on many hosts.",
        fix: "Rename the entry. If the directory may give these rights, add the name to `allowed_names` under [host].";
    NAME_EMPTY = 5104, "name is empty",
        cause: "The entry has an empty name.",
        fix: "Set a name in the directory.";
    NAME_TOO_LONG = 5105, "name is too long",
        cause: "The name has more than 255 bytes, which glibc does not support.",
        fix: "Shorten the name in the directory.";
    NAME_NOT_UTF8 = 5106, "name is not UTF-8",
        cause: "The name has bytes that are not valid UTF-8.",
        fix: "Rename the entry in the directory.";
    NAME_WITH_CONTROL_CHARACTERS = 5107, "name has control characters",
        cause: "The name has a line break or another control character, which programs misread.",
        fix: "Rename the entry in the directory.";
    NAME_WITH_INVISIBLE_CHARACTERS = 5108, "name has invisible characters",
        cause: "The name has invisible characters or characters that change the direction of text, so that two names can look alike.",
        fix: "Rename the entry in the directory.";
    NAME_WITH_SEPARATOR = 5109, "name has a separator",
        cause: "The name has a colon, a comma or a slash, which separate names in files and paths.",
        fix: "Rename the entry in the directory.";
    NAME_ROOT = 5110, "name is root",
        cause: "The name root always belongs to the host.",
        fix: "Rename the entry in the directory.";
    NAME_DOTS = 5111, "name is a directory",
        cause: "The name is `.` or `..`, which are directories in paths.",
        fix: "Rename the entry in the directory.";
    NAME_EDGE_CHARACTER = 5112, "name begins or ends with a forbidden character",
        cause: "The name begins with -, + or ~, or begins or ends with a space. Programs read such names as options, NIS requests or paths.",
        fix: "Rename the entry in the directory.";
    NAME_IS_NUMBER = 5113, "name is a number",
        cause: "Programs read a name of digits as an id.",
        fix: "Rename the entry in the directory.";
    NAME_CHARACTERS = 5114, "name has unusual characters",
        cause: "The name has characters other than letters, digits and ._-@+, which shells and programs can misread.",
        fix: "Rename the entry. If such names are to be served, add the characters to `allowed_name_characters` under [host].";
    TEXT_TOO_LONG = 5115, "field is longer than 1,024 bytes",
        cause: "GECOS, home directory or shell of the user is too long.",
        fix: "Shorten the value in the directory.";
    TEXT_NOT_UTF8 = 5116, "field is not UTF-8",
        cause: "GECOS, home directory or shell of the user has bytes that are not valid UTF-8.",
        fix: "Correct the value in the directory.";
    TEXT_WITH_CONTROL_CHARACTERS = 5117, "field has control characters",
        cause: "GECOS, home directory or shell of the user has a line break or another control character.",
        fix: "Correct the value in the directory.";
    TEXT_WITH_COLON = 5118, "field has a colon",
        cause: "GECOS, home directory or shell of the user has a colon, which separates the fields of passwd(5).",
        fix: "Correct the value in the directory.";
    HOME_EMPTY = 5119, "home directory is empty",
        cause: "The user has no home directory.",
        fix: "Set the home directory in the directory, or set `fallback_home = \"/home/%u\"` or `allow_empty_home = \
              true` for the domain.";
    PATH_RELATIVE = 5120, "path is not absolute",
        cause: "The home directory or the shell of the user does not begin with a slash.",
        fix: "Correct the value in the directory, or set `override_shell` for a shell.";
    PATH_WITH_DOTS = 5121, "path has a .. component",
        cause: "The home directory or the shell of the user has a component `..`.",
        fix: "Correct the value in the directory.";
    NAME_OF_SAME_DOMAIN = 5122, "name of another entry of the domain",
        cause: "Another entry of the domain has the same name. The entry that was known first is served.",
        fix: "Rename one of the two entries, or narrow the search bases or the filters.";
    NAME_OF_HIGHER_DOMAIN = 5123, "name of a higher-priority domain",
        cause: "A domain with a higher priority has an entry of this name, and the name with the domain is not valid.",
        fix: "Rename one of the two entries, or change the order of `domains` under [host].";
    ID_OF_SAME_DOMAIN = 5124, "id of another entry of the domain",
        cause: "Another entry of the domain has the same id. The entry that was known first is served.",
        fix: "Change the id of one of the two entries.";
    ID_OF_HIGHER_DOMAIN = 5125, "id of a higher-priority domain",
        cause: "A domain that precedes this one in `domains` has an entry of the same id.",
        fix: "Change the id of one of the two entries, or separate the domains with `min_id` and `max_id`.";
    GROUP_OF_HIGHER_DOMAIN = 5126, "primary group of a higher-priority domain",
        cause: "The primary gid of the user is a group of another domain, which would gain a member.",
        fix: "Change the primary gid in the directory.";
    GID_OF_HIGHER_DOMAIN_USERS = 5127, "gid is the primary gid of a higher-priority domain's user",
        cause: "A user of another domain has this primary gid, and would become a member of the group.",
        fix: "Change the gid in the directory.";
    GROUPS_NESTED_TOO_LARGE = 5128, "nested groups exceed the membership limit",
        cause: "The members of the nested groups of the domain add up to more than a snapshot can hold.",
        fix: "Flatten or reduce the nested groups in the directory.";
    NAME_OF_OTHER_DOMAIN = 5700, "name has the form of a name in another domain",
        cause: "A name such as `alice@corp` or `CORP\\alice` means the entry `alice` of the domain `corp`.",
        fix: "Rename the entry in the directory.";
    NUMERIC_NAME_IS_ID = 5701, "name is the id of another entry",
        cause: "Programs such as chown(1) would take the number for this name instead of the id.",
        fix: "Rename the entry in the directory, or change the id of the other entry.";
    NAME_OF_OWN_DOMAIN = 5702, "name has the form NAME@DOMAIN",
        cause: "In the domain `corp`, a name such as `alice@corp` or `CORP\\alice` means the entry `alice`.",
        fix: "Rename the entry in the directory, or give the domain another name and `short_name` in roster.toml.";

    // SASL GSSAPI and client certificates.
    GROUP_ONLY_NESTS = 5720, "group has no gid",
        cause: "The group has no gidNumber. Other groups get its members, and access rules may name it. Programs do not see it.",
        fix: "If programs must see the group, give it a gidNumber in the directory.";
    GID_LOST = 5721, "group has lost its gid",
        cause: "The directory no longer shows the gidNumber of a group that is served, and too many groups changed at once.",
        fix: "Grant the bind DN read access to gidNumber. If the groups should have no gidNumber, run `roster domain approve-removals NAME`.";
    BIND_KEY_MISSING = 5740, "keytab lacks a key for the bind",
        cause: "`krb5_keytab` has no key of `bind_principal`, or no key of the realm `krb5_realm`.",
        fix: "Compare `klist -k` with `bind_principal` and `krb5_realm`. Write the key to the keytab; rosterd reads it within 20 seconds.";
    BIND_KEY_OUTDATED = 5741, "KDC has another key for the bind",
        cause: "The keytab has an older key (kvno) than the KDC, because the key was made again elsewhere.",
        fix: "Write the present key to `krb5_keytab` with ktadd of kadmin, `adcli update` or ipa-getkeytab; rosterd reads it within 20 seconds.";
    BIND_PRINCIPAL_UNKNOWN = 5742, "KDC does not accept the principal of the bind",
        cause: "The KDC does not know the principal as a client, or has disabled it. In Active Directory only the name with $ is a client.",
        fix: "Set `bind_principal` to a principal of `klist -k` that `kinit -k` accepts, or enable it at the KDC.";
    SERVICE_PRINCIPAL_UNKNOWN = 5743, "KDC does not know the directory server",
        cause: "The KDC has no principal ldap/HOST with the HOST of `uris`. Addresses and aliases have no principal.",
        fix: "Use the name of the server's principal in `uris`, or create ldap/HOST at the KDC and add its key to the keytab of the server.";
    BIND_KDC_UNREACHABLE = 5744, "no KDC replies to the bind",
        cause: "The KDCs of the realm, or the network, are down. Without a ticket there is no new connection to the directory.",
        fix: "Check the network and `krb5_kdcs`. rosterd retries automatically.";
    GSSAPI_BIND_REJECTED = 5745, "server rejects the GSSAPI bind",
        cause: "The server lacks a module for GSSAPI, has an old key of ldap/HOST, has a wrong clock, or cannot map the principal to an entry.",
        fix: "Read the log of the server. Compare its keytab with the KDC, and check its SASL mapping (docs/how-to/kerberos.md).";
    GSSAPI_WITHOUT_ENCRYPTION = 5746, "server offers no encryption by GSSAPI",
        cause: "The connection has no TLS, and the server's settings forbid encryption by SASL.",
        fix: "Use ldaps:// in `uris`, set `start_tls = true`, or permit encryption by SASL on the server.";
    GSSAPI_LAYER_BELOW_TLS = 5747, "server requires a GSSAPI layer in addition to TLS",
        cause: "The security properties of the server demand signatures or encryption by SASL, also with TLS.",
        fix: "Lower the minimum of the server (minssf of olcSaslSecProps, nsslapd-minssf), or use ldap:// without `start_tls`.";
    GSSAPI_FAILED = 5748, "GSSAPI bind failed",
        cause: "libgssapi_krb5 reported the error in the message.",
        fix: "Read the log of the KDC and of the directory server. Test with `kinit -k` and `ldapwhoami -Y GSSAPI`.";
    GSSAPI_PROCESS_ENDED = 5749, "process of a GSSAPI connection ended",
        cause: "A process of roster-krb5 crashed, was killed, or could not be made. The connection is made again.",
        fix: "Read the kernel log and the core dumps with coredumpctl(1) if it happens again.";
    CLIENT_CERTIFICATE_REJECTED = 5750, "server rejects the client certificate",
        cause: "The server requires a certificate, or does not trust the one of `tls_cert`, or that has expired or was revoked.",
        fix: "Set `tls_cert` and `tls_key` to a certificate of an authority that the server trusts. rosterd reads a renewed one within 20 seconds.";

    // Private groups.
    PRIVATE_GROUP_REJECTED = 5780, "private group of the user is rejected",
        cause: "`private_groups = \"always\"` gives each user a group. The host, the directory or another domain has its name or gid.",
        fix: "`roster cache show group NAME` shows the reason. Rename or remove the other group, or set `private_groups = \"same-id\"`.";

    NAME_OF_OVERRIDE = 5790, "name that an override gives to another entry",
        cause: "An override of the domain gives this name to another entry, and reserves it.",
        fix: "Rename the entry in the directory or by an override, or change the other override.";
    ID_OF_OVERRIDE = 5791, "id that an override gives to another entry",
        cause: "An override of the domain gives this id to another entry, and reserves it.",
        fix: "Change the id in the directory or by an override, or change the other override.";
    // Slow operations.
    OPERATION_SLOW = 5800, "directory operation took more than 3 s",
        cause: "The server or the network is overloaded, or the server lacks an index for the filter of a search.",
        fix: "Check the load of the named server, and its indexes. `roster log-level debug` adds the filter of each search to the log.";

    // Stored slices of ids from SIDs.
    ID_SLICES_DAMAGED = 5810, "stored slices of ids are damaged",
        cause: "The file id-slices of the domain was changed by hand, or the disk damaged it.",
        fix: "Restore the file from a backup. Without it, stop rosterd, remove the file, and check with `id` that all users have their ids.";
    ID_SLICES_MISMATCH = 5811, "stored slices disagree with the configuration or the directory",
        cause: "The ids of all users and groups of the domain would change. rosterd refuses it and serves the last snapshot.",
        fix: "Restore the keys of the message. To renumber on purpose, stop rosterd, remove the file of the message, and run chown(1).";
    ID_SLICES_IO = 5812, "stored slices cannot be read or written",
        cause: "The disk is full or read-only, or the directory of the domain has another owner.",
        fix: "Correct the error of the system in the message. rosterd gives no ids of a new slice until then.";

    // Active Directory.
    NOT_ACTIVE_DIRECTORY = 5820, "server is not Active Directory",
        cause: "The domain has `schema = \"ad\"`, and the root DSE of the server does not name the capability of Active Directory.",
        fix: "Correct `uris`, or set `schema` to \"rfc2307\" or \"rfc2307bis\".";
    DOMAIN_SID_UNREADABLE = 5821, "SID of the domain cannot be read",
        cause: "The bind account cannot read objectSid of the domain's entry, or the value is not the SID of a domain.",
        fix: "Correct `base`, or grant the bind account read access to the entry of the domain.";
    DOMAIN_SID_CHANGED = 5822, "server has another domain",
        cause: "The SID of the server's domain is not the SID by which ids were computed. The name stands for another domain, or the domain was made again.",
        fix: "Correct `uris`. If the domain was made again, restart rosterd, and give the files of its users their new owners.";
    SID_UNREADABLE = 5823, "SID of an entry cannot be read",
        cause: "The value of objectSid is not a SID.",
        fix: "Check the entry and the directory server.";
    SID_OF_OTHER_DOMAIN = 5824, "SID of an entry is not of the domain",
        cause: "The entry has a SID of another domain or of a builtin account. Its id would belong to an account of that domain.",
        fix: "Check the entry and the directory server.";
    SID_UNMAPPED = 5825, "SID of an entry has no id",
        cause: "The slice of ids for the RID of the entry is in use, as the message shows.",
        fix: "Give the entry a RID in a free slice: create it again, or move the RID pool of the controller.";
    MEMBERS_UNSTABLE = 5826, "members change while they are read",
        cause: "The group changed more than 20 times while its long list of members was read in parts.",
        fix: "No action is needed after the changes end. Otherwise raise `member_range`, so that a list has fewer parts.";

    // Domain controllers.
    CONTROLLER_FOREIGN = 5850, "server is not a controller of the domain",
        cause: "An SRV record names a server that belongs to another domain or to none. rosterd does not use it until it replies otherwise.",
        fix: "Correct the SRV records below `_msdcs` of the domain, or `discover`.";
    CONTROLLERS_SILENT = 5851, "no domain controller replies to a ping",
        cause: "A firewall discards UDP to the LDAP port, or no controller is reachable. rosterd uses the last known site, otherwise all controllers alike.",
        fix: "Allow UDP to port 389 of the controllers, or name the site in `site`.";
    SITE_MISSING = 5852, "Active Directory assigns no site to this host",
        cause: "No subnet in \"Active Directory Sites and Services\" has the address of this host. rosterd uses all controllers alike.",
        fix: "Add the subnet to a site in Active Directory, or name the site in `site`.";
}
