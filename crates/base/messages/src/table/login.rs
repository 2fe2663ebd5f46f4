//! Refused and failed logins.

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
}
