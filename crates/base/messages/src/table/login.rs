// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refused and failed logins. `login_refusal` selects a row by the result of a login.

crate::messages! {
    // Results of the PAM responder.
    WRONG_PASSWORD = 6001, "password is wrong",
        cause: "The directory rejected the password, or it is empty or too long.",
        fix: "Let the user try again. Many of these records for one origin may be an attack.";
    UNKNOWN_USER = 6002, "user is unknown",
        cause: "No domain serves a user of this name. The log does not have the name, which may be a password.",
        fix: "Check the name with `getent passwd`, and rejected entries with `roster domain rejected`.";
    PASSWORD_MUST_CHANGE = 6003, "password must be changed first",
        cause: "The password is correct, and the directory demands a new one.",
        fix: "Let the user change the password at the prompt, or with `passwd`.";
    PASSWORD_EXPIRED = 6004, "password has expired",
        cause: "The password has expired, and the user may no longer change it.",
        fix: "Set a new password in the directory.";
    ACCOUNT_EXPIRED = 6005, "account has expired",
        cause: "The expiry date of the account in the directory has passed.",
        fix: "Extend the date in the directory if the user may still log in.";
    ACCOUNT_LOCKED = 6006, "account is locked",
        cause: "Too many wrong passwords or an administrator locked the account in the directory.",
        fix: "Unlock the account in the directory, or wait until the lock ends.";
    ACCOUNT_DISABLED = 6007, "account is disabled",
        cause: "An administrator disabled the account in the directory.",
        fix: "Enable the account in the directory if the user may log in.";
    DENIED = 6008, "login is denied",
        cause: "An access rule of the domain denies the user, or the user was removed from the directory.",
        fix: "Evaluate the rules with `roster access`, and change [domain.NAME.access] if needed.";
    DIRECTORY_UNREACHABLE = 6009, "directory is unreachable",
        cause: "No server replied in time, and no cached password decides the login.",
        fix: "Check the domain with `roster status`, the servers and the network.";
    REJECTED_BY_DIRECTORY = 6010, "directory or the configuration rejects the request",
        cause: "The server refused the request for a reason other than the password, or a key of roster.toml forbids it.",
        fix: "Check the log lines of the domain's backend at this time.";
    TOO_MANY_ATTEMPTS = 6011, "too many login attempts",
        cause: "An ordinary user exceeded auth_attempts_per_minute, or cached passwords are locked for a while.",
        fix: "Wait a minute. If the limit is too low, increase auth_attempts_per_minute.";
    CALLER_NOT_PERMITTED = 6012, "calling user may not ask about this user",
        cause: "A program of an ordinary user asked about another user.",
        fix: "Run the program as root, or add its user to trusted_users.";
    NEW_PASSWORD_REJECTED = 6013, "new password is rejected",
        cause: "The password policy of the directory does not accept the new password.",
        fix: "Choose another password. The user was shown the reason of the server.";

    // Warnings of the PAM responder.
    UID_MISMATCH = 6014, "calling program has another uid for the user",
        cause: "Another name service also serves the name, with another uid. The login is denied.",
        fix: "Remove or rename one of the two users, or change the order in /etc/nsswitch.conf.";
    USER_DOMAIN_UNKNOWN = 6015, "domain of a user cannot be determined",
        cause: "The publisher did not reply, so the login cannot be decided.",
        fix: "Check the publisher with `roster status`.";
    BACKEND_NO_REPLY = 6016, "backend did not reply to a login request",
        cause: "The backend of the domain is starting, busy or hangs.",
        fix: "Check the domain with `roster status`, and the log lines of its backend.";
    RESULT_UNKNOWN = 6017, "backend sent an unknown result",
        cause: "The responder and the backend have different versions. The login is refused.",
        fix: "Restart rosterd.";
    SESSION_DATA_MISSING = 6018, "Kerberos ticket of a login was not received",
        cause: "The transfer from the backend to the responder failed. The session starts without a ticket.",
        fix: "Let the user run `kinit`, and check the log lines of the backend.";
    SSH_KEYS_TOO_LARGE = 6019, "SSH keys of a user exceed the limit",
        cause: "All keys of one user must fit into one reply. The remaining keys are left out.",
        fix: "Remove unused keys of the user from the directory.";

    // Log lines of pam_roster. The module has the codes as literals.
    PAM_NO_REPLY = 6020, "rosterd did not reply to the PAM module",
        cause: "rosterd is not running, [responder.pam] is off, or the reply took longer than 30 seconds.",
        fix: "Check `systemctl status rosterd`, and that /run/roster/pam belongs to root.";
    PAM_VERSION_MISMATCH = 6021, "PAM module and rosterd have different versions",
        cause: "The program loaded the module before an update, or rosterd was not restarted after one.",
        fix: "Restart the program and rosterd.";
    PAM_OPTION_UNKNOWN = 6022, "PAM stack has an unknown option of pam_roster",
        cause: "A line in /etc/pam.d has an option that pam_roster does not know. The module ignores it.",
        fix: "Correct the option as pam_roster(8) shows.";
    PAM_TICKET_NOT_STORED = 6023, "Kerberos ticket of a session cannot be stored",
        cause: "roster-krb5 failed or is not installed, or the user's credential cache refused the ticket.",
        fix: "Check that roster-krb5 is installed, and its log lines. The user can run `kinit`.";
    PAM_TICKET_NOT_REMOVED = 6024, "credential cache of a session cannot be removed",
        cause: "roster-krb5 failed at the end of the session.",
        fix: "Remove the cache with `kdestroy` as the user.";

    // Logins decided by backends and by Kerberos.
    // Passwords and directories.
    PASSWORD_IMPOSSIBLE = 6500, "password cannot be checked",
        cause: "The password is empty, too long, or contains a NUL. Servers treat such passwords as an anonymous bind or cut them.",
        fix: "The user enters another password.";
    DIRECTORY_UID_MISMATCH = 6501, "uid differs between host and directory",
        cause: "The entry of the user in the directory has another uid than the user on this host.",
        fix: "Run `roster domain refresh NAME`. If the uid was reassigned, check the files of the former owner.";
    USER_PASSWORD_UNENCRYPTED = 6502, "user password would cross the network unencrypted",
        cause: "The connection for logins has no TLS, and its server is another host.",
        fix: "Use ldaps:// in `uris`, or set `start_tls = true`. `allow_clear_user_passwords = true` permits passwords without TLS.";
    BIND_UNDECIDED = 6503, "directory did not decide the login",
        cause: "The directory server is reachable, and did not accept or reject the password.",
        fix: "Fix the reason in the message, then log in again.";
    BIND_CODE_UNEXPECTED = 6504, "unexpected LDAP result of a login",
        cause: "The server rejected the bind of the user with a result code other than a wrong password.",
        fix: "Read the log of the server, and permit simple binds for users.";
    PASSWORD_CHECKS_OFFLINE = 6505, "passwords cannot be checked at the directory",
        cause: "No directory server accepts a connection for logins or replies to a liveness check. Users with cached credentials log in offline.",
        fix: "Fix the reason in the message. rosterd retries automatically.";
    SSH_KEY_MALFORMED = 6506, "ssh key of a user is malformed",
        cause: "A value of the attribute for ssh keys is not a line of authorized_keys(5).",
        fix: "Correct the key in the directory.";
    SSH_KEY_TYPE = 6507, "ssh key of a user has an unsupported type",
        cause: "The type of the key is unknown, or no longer secure.",
        fix: "Replace the key, for example with one of `ssh-keygen -t ed25519`.";
    SSH_KEY_WEAK = 6508, "ssh key of a user is too short",
        cause: "The RSA key has fewer bits than the minimum.",
        fix: "Replace the key, for example with one of `ssh-keygen -t ed25519`.";
    SSH_KEY_OPTION = 6509, "ssh key of a user has an option that is not permitted",
        cause: "The configuration permits only the options in `ssh_key_options`.",
        fix: "Remove the option in the directory, or add it to `ssh_key_options`.";

    // Access rules.
    ACCESS_UNDECIDED = 6510, "access rule cannot be decided",
        cause: "A fact that a rule needs is unknown: the account data, a group, or the result of the filter.",
        fix: "`roster access USER` names the rule. Correct the name of the group or the attribute, or restore the connection to the directory.";
    USER_AMBIGUOUS = 6511, "several users have this name and uid",
        cause: "The directory has several entries with the name and the uid of the user.",
        fix: "Remove or rename all but one entry in the directory.";
    USERS_UNREADABLE = 6512, "users of the domain cannot be read",
        cause: "The domain was not read yet, or its cache cannot be read.",
        fix: "Fix the state of the domain that `roster status` shows.";

    // Offline logins.
    OFFLINE_WRONG_PASSWORD = 6513, "wrong password in an offline login",
        cause: "The directory is unreachable, and the password differs from the cached one.",
        fix: "The user enters the password of the last login at this host.";
    OFFLINE_LOCKED = 6514, "offline logins of the user are locked",
        cause: "The user entered too many wrong passwords while the directory was unreachable.",
        fix: "Wait for `offline_failed_login_delay`, or log in while the directory is reachable.";
    OFFLINE_NO_CREDENTIAL = 6515, "no cached credential",
        cause: "The directory is unreachable, and the user has not logged in at this host while it was reachable.",
        fix: "Log in once while the directory is reachable.";
    OFFLINE_EXPIRED = 6516, "cached credential expired",
        cause: "The last login that the directory verified is older than `offline_credentials_expiration`.",
        fix: "Log in once while the directory is reachable.";
    OFFLINE_FROM_FUTURE = 6517, "cached credential is from the future",
        cause: "The clock of this host is behind the time of the last login that the directory verified.",
        fix: "Set the clock. A login while the directory is reachable corrects the dates.";
    OFFLINE_HASH_UNUSABLE = 6518, "cached password hash cannot be used",
        cause: "The stored hash is damaged, or this host has not enough memory to compute it.",
        fix: "Log in once while the directory is reachable, and check the free memory.";
    OFFLINE_STOPPING = 6519, "backend is stopping",
        cause: "The backend ended while the login was checked.",
        fix: "Log in again.";
    OFFLINE_LOGINS_DISABLED = 6520, "offline logins disabled: no random bytes",
        cause: "The kernel did not return random bytes at the start of the backend.",
        fix: "Run `systemctl restart rosterd`.";
    CREDENTIALS_UNREADABLE = 6521, "cached credentials cannot be read",
        cause: "The file of cached credentials cannot be opened. New credentials stay in memory.",
        fix: "Fix the disk, or the owner of the file. The backend opens the file again within 30 seconds.";
    CREDENTIALS_NOT_WRITTEN = 6522, "cached credentials cannot be written",
        cause: "The file of cached credentials does not accept changes, for example because the disk is full. Changes stay in memory.",
        fix: "Free space or fix the disk. The backend writes the changes within 30 seconds.";
    CREDENTIALS_LOST = 6523, "cached credentials were damaged and moved aside",
        cause: "Both files of cached credentials are damaged. Users cannot log in offline until they log in once online.",
        fix: "Check the disk. Users log in once while the directory is reachable.";
    CREDENTIALS_RESTORED = 6524, "damaged copy of cached credentials replaced",
        cause: "A file of cached credentials was damaged. The backend replaced it with a copy of the second file.",
        fix: "Check the disk. The moved file can be deleted.";
    CREDENTIALS_ONE_COPY = 6525, "cached credentials have only one copy",
        cause: "The backend cannot create or write one file of the two with cached credentials.",
        fix: "Fix the disk, or the owner of the directory. The backend writes the second file automatically.";
    CREDENTIAL_NOT_UPDATED = 6526, "cached credential not updated",
        cause: "The result of a login could not be stored, for example because the hash could not be computed.",
        fix: "Fix the reason in the message. The next login of the user updates the credential.";
    CREDENTIALS_NOT_CLEANED = 6527, "expired credentials not removed",
        cause: "The file of cached credentials cannot be read. The backend tries again every 10 minutes.",
        fix: "Fix the reason in the message.";
    CREDENTIALS_LAST_CHANGES_LOST = 6528, "last changes of cached credentials not written",
        cause: "The disk did not accept the changes before the backend ended.",
        fix: "Check the disk. The users concerned log in once while the directory is reachable.";
    FILTER_RESULT_NOT_STORED = 6529, "result of the access filter not stored",
        cause: "The result of the access filter for a user could not be stored. It is missing while the directory is unreachable.",
        fix: "Fix the reason in the message.";
    CLOCK_CORRECTED = 6530, "dates of cached credentials corrected",
        cause: "The clock of this host was moved, as a reply of the directory has shown.",
        fix: "No action is needed. Check time synchronization if it happens again.";
    CLOCK_TOO_EARLY = 6531, "clock shows an impossible time",
        cause: "The clock of this host shows a time before the release of this program, as without a hardware clock.",
        fix: "Set the clock. The backend trusts it when the directory is reachable.";
    CLOCK_BEHIND = 6532, "clock is behind the latest known time",
        cause: "The clock of this host was set back while the directory was unreachable.",
        fix: "Set the clock if it is wrong. The backend trusts it when the directory is reachable.";
    CLOCK_AHEAD = 6533, "clock was set ahead while offline",
        cause: "The clock of this host was set ahead while the directory was unreachable.",
        fix: "Set the clock if it is wrong. The backend trusts it when the directory is reachable.";

    // Kerberos.
    KDC_UNREACHABLE = 6534, "no KDC replies",
        cause: "The KDCs of the realm, or the network, are down. Users with cached credentials log in offline.",
        fix: "Check the network and `krb5_kdcs`. rosterd probes the KDCs at least every 30 seconds.";
    KDC_PARTLY_UNREACHABLE = 6535, "KDC did not reply, others are not known to be down",
        cause: "One KDC did not reply, and not all others could be probed. A cached credential is not used then.",
        fix: "Check the network and the KDCs of the realm.";
    CLOCK_SKEW = 6536, "clocks of this host and of the KDC differ",
        cause: "Kerberos requires that the clocks differ by at most five minutes.",
        fix: "Check time synchronization on this host and on the KDC.";
    KEYTAB_KEY_MISMATCH = 6537, "KDC does not know the key of this host",
        cause: "The keytab does not have the key that the KDC has for this host, or the KDC is not genuine.",
        fix: "Compare `klist -k` with the KDC, and write the present key of this host to `krb5_keytab`.";
    ENCRYPTION_TYPE_MISSING = 6538, "no common encryption type",
        cause: "The KDC has no AES key of this user or host, or must not use it. Keys are made when a password is set.",
        fix: "Set the password again. In Active Directory check msDS-SupportedEncryptionTypes.";
    FAST_REQUIRED = 6539, "KDC does not support FAST",
        cause: "A KDC without FAST (RFC 6113) cannot prove that a password has expired, so its reply is not trusted. `krb5_fast_principal` requires FAST at each login.",
        fix: "Enable FAST on the KDC. Without that, change the password elsewhere, and remove `krb5_fast_principal`.";
    REALM_UNKNOWN = 6540, "realm has no known KDC",
        cause: "`krb5_kdcs` is empty, and DNS names no KDC of the realm.",
        fix: "Set `krb5_kdcs`, or add SRV records of the realm and set `krb5_discover = true`.";
    PREAUTHENTICATION_UNSUPPORTED = 6541, "KDC requires more than a password",
        cause: "The KDC requires pre-authentication such as a one-time password or a smart card for this user.",
        fix: "Permit a password for the user on the KDC.";
    KDC_NOT_VERIFIED = 6542, "KDC could not be verified",
        cause: "The KDC did not prove that it knows the key of this host. Another host may have replied in its place.",
        fix: "Check the network and the keytab of this host.";
    KDC_REFUSED = 6543, "KDC refuses the user",
        cause: "A policy of the KDC denies the login.",
        fix: "Check the policy of the user on the KDC.";
    KDC_ERROR = 6544, "Kerberos login failed",
        cause: "libkrb5 or the KDC reported an error that does not decide the login.",
        fix: "Fix the reason in the message, and read the log of the KDC.";
    KRB5_CHANGE_FAILED = 6545, "password server reported an error",
        cause: "The server for password changes could not process the request.",
        fix: "Read the log of the server for password changes.";
    PRINCIPAL_INVALID = 6546, "user name is not a valid principal",
        cause: "The name of the user cannot be the name of a Kerberos principal.",
        fix: "Rename the user.";
    KRB5_HELPER_MISSING = 6547, "roster-krb5 is not installed",
        cause: "The program roster-krb5 is not next to rosterd and not in libexec/roster. Kerberos authentication is unavailable.",
        fix: "Install the package with roster-krb5, then run `systemctl restart rosterd`.";
    KRB5_HELPER_NOT_STARTED = 6548, "roster-krb5 cannot be started",
        cause: "The kernel rejected the execution of the program, or resources are exhausted.",
        fix: "Fix the reason in the message, then run `systemctl restart rosterd`.";
    KRB5_HELPER_ENDED = 6549, "roster-krb5 ended unexpectedly",
        cause: "The program crashed or was killed. The backend restarts together with it.",
        fix: "Read the kernel log and the core dumps with coredumpctl(1) if it happens again.";
    KRB5_HELPER_MALFORMED = 6550, "malformed reply from roster-krb5",
        cause: "roster-krb5 and rosterd have different versions.",
        fix: "Install both from the same version, then run `systemctl restart rosterd`.";
    KRB5_HELPER_TIMEOUT = 6551, "roster-krb5 did not reply in time",
        cause: "This host is overloaded.",
        fix: "Check the load of this host, then log in again.";
    KRB5_PROCESS_FAILED = 6552, "no process for a Kerberos login",
        cause: "roster-krb5 could not fork, for example because of a limit of processes or memory.",
        fix: "Raise TasksMax or the memory of rosterd.service, or free memory.";
    KRB5_PROCESS_CRASHED = 6553, "process of a Kerberos login crashed",
        cause: "The process that talks to the KDC ended without a reply.",
        fix: "Read the kernel log and the core dumps with coredumpctl(1), and update libkrb5.";
    LIBKRB5_UNUSABLE = 6554, "libkrb5 cannot be used",
        cause: "The library rejected its configuration or could not be loaded.",
        fix: "Install a supported version of libkrb5, then run `systemctl restart rosterd`.";
    KEYTAB_UNUSABLE = 6555, "keytab cannot be used: logins are refused",
        cause: "The keytab is missing, unreadable, or damaged, and the domain requires the verification of KDCs.",
        fix: "Fix `krb5_keytab` as the message states, then run `systemctl reload rosterd`.";
    TICKET_TOO_LARGE = 6557, "ticket too large for the session",
        cause: "The ticket, for example with a large PAC, exceeds the limit of a login reply. The session starts without a ticket.",
        fix: "Reduce the groups in the ticket of the user.";

    // roster-krb5.
    KRB5_USAGE = 6558, "roster-krb5 is not called by hand",
        cause: "rosterd and pam_roster start this program.",
        fix: "Do not call it.";
    KRB5_SERVE_FAILED = 6559, "roster-krb5 cannot serve logins",
        cause: "The kernel rejected a step of the startup, or the connection to the backend broke.",
        fix: "Fix the reason in the message, then run `systemctl restart rosterd`.";
    KRB5_SESSION_USER = 6560, "user cannot have a session ticket",
        cause: "The uid belongs to a system user, or the gid is not the primary group of the user.",
        fix: "Check the user and the primary group with `getent passwd`, and `min_id` of the domain.";
    KRB5_SESSION_PROCESS = 6561, "session ticket of another user",
        cause: "The process runs as another user than the session, and cannot become this user.",
        fix: "Run the PAM stack as root, or as the user.";
    KRB5_CACHE_OWNER = 6562, "credential cache has another owner",
        cause: "The cache of the session holds the tickets of another principal, or its file belongs to another user.",
        fix: "Remove the cache with `kdestroy`, then log in again.";
    KRB5_CACHE_NAME = 6563, "credential cache cannot be named",
        cause: "The name does not end in XXXXXX, or all names of the pattern exist.",
        fix: "Correct `krb5_cache`, and remove old caches.";
    KRB5_SESSION_FAILED = 6564, "session ticket cannot be stored",
        cause: "The file system, the kernel keyring or libkrb5 reported an error.",
        fix: "Fix the reason in the message, and check `krb5_cache`.";

    // The option domains= of pam_roster.
    PAM_DOMAINS_INVALID = 6700, "domains= of pam_roster is invalid",
        cause: "The list is empty, or longer than 256 bytes. The module accepts no user.",
        fix: "Write `domains=corp` or `domains=corp,lab` in the PAM stack.";
    PAM_DOMAIN_UNKNOWN = 6701, "domains= of pam_roster names an unknown domain",
        cause: "The PAM stack names a domain that is missing in roster.toml. The module accepts no user.",
        fix: "Correct domains= in the PAM stack, or add the domain to roster.toml.";

    KRB5_BIND_FAILED = 6740, "roster-krb5 cannot make binds",
        cause: "The kernel rejected a step of the startup, or the connection to the backend broke.",
        fix: "Fix the reason in the message, then run `systemctl restart rosterd`.";

    // Slow operations.
    CHANGE_DAY_NOT_WRITTEN = 6760, "day of a password change not written to the directory",
        cause: "The server refused to let the user write `shadowLastChange`, or did not reply. The password is changed. The backend logs this once.",
        fix: "Let users write the attribute, or set `update_shadow_last_change = \"never\"`. Without a written day, leave `password-age` out of `account_checks`.";
    EXPIRED_CHANGE_REFUSED = 6761, "expired password cannot be changed at the directory",
        cause: "`change_expired_password` is set, and the server accepts the change of an expired password neither after the refused bind nor from the reader.",
        fix: "Let users write their own `userPassword`, or let the reader write it, or remove `change_expired_password`.";
    PASSWORD_CHANGE_NO_ACCESS = 6762, "directory does not permit the password change",
        cause: "The access control of the server does not let the user, or for an expired password the reader, write `userPassword`.",
        fix: "Permit users to write their own `userPassword`, for example `by self write` in OpenLDAP.";
    FAST_KEY_MISSING = 6765, "keytab has no key of krb5_fast_principal",
        cause: "Each login needs a ticket of the principal in `krb5_fast_principal`, and `krb5_keytab` has no key of it.",
        fix: "Compare `klist -k` with `krb5_fast_principal`: correct the principal, write its key to the keytab, or remove `krb5_fast_principal`.";
    FAST_TICKET_REFUSED = 6766, "no ticket for krb5_fast_principal",
        cause: "The KDC does not know the principal or has another key of it, or the KDC is not genuine.",
        fix: "Compare `klist -k` with the KDC, and write the present key of the principal to `krb5_keytab`.";
    KERBEROS_SLOW = 6800, "Kerberos operation took more than 3 s",
        cause: "A KDC or the network is overloaded, or the first KDCs of the list do not reply.",
        fix: "Check the KDCs of the realm, and put one that replies in front of `kdc`. `roster log-level debug` logs each operation.";

    // Sub-codes of Active Directory.
    AD_LOGON_HOURS = 6850, "account has no logon hours now",
        cause: "Active Directory allows logins of the user at other hours only. The password is right.",
        fix: "Change `logonHours` of the user in Active Directory if the user may log in now.";
    AD_LOGON_WORKSTATION = 6851, "account may not log in from this host",
        cause: "Active Directory allows logins of the user from the workstations of `userWorkstations` only. The password is right.",
        fix: "Add the domain controller to `userWorkstations` of the user, or empty the attribute. A Kerberos login (`auth = \"krb5\"`) does not check it.";
    AD_PASSWORD_MUST_CHANGE = 6852, "password must be changed before the next bind",
        cause: "An administrator demands a new password. Active Directory refuses each bind until then, so LDAP cannot change the password.",
        fix: "Set `auth = \"krb5\"`, which changes passwords at the login. Or let the user change the password at another host.";
    AD_SUB_CODE_UNKNOWN = 6853, "Active Directory refuses the bind for an unknown reason",
        cause: "The reply has a sub-code that is not in the table of docs/how-to/logins.md.",
        fix: "Look the number behind `data` up among the system error codes of Windows (MS-ERREF).";

    // Password changes and tried passwords.
}
