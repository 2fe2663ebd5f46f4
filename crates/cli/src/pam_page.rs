//! pam_roster(8). The module has no parser of its own that a page could come out of; its words are few, and
//! are those of `crates/pam/src/options.rs`.

use clap_mangen::roff::{Roff, bold, roman};
use roster_manual::{section, see_also, source};
use std::io::{self, Write};

const DESCRIPTION: &[&str] = &[
    "A PAM module that logs users of rosterd's domains in. It holds the conversation with the user and asks \
     rosterd at /run/roster/pam, which asks the user's directory; it talks to no directory itself.",
    "Users of /etc/passwd are none of its business: authentication and change of password say \"user unknown\" \
     of them, accounts and sessions are ignored, and nobody is asked. Whoever a domain serves is let in by a \
     right password alone, and by an account that may in: that rosterd or the directory cannot be asked is a \
     failure, never a success.",
    "Accounts in domains without auth = are none of its business as far as passwords go: other modules decide \
     about these. Where no domain has it there is nobody at /run/roster/pam, and everybody else than the users of \
     /etc/passwd is denied: roster doctor tells.",
];

const TYPES: &[(&str, &str)] = &[
    (
        "auth",
        "Asks for a password, and whether it is the user's. That it must be changed is no failure here (but see \
         must_change), and rules on who may in are not asked: a program that does not go on to the type account lets \
         such users in. \
         Setting credentials puts a Kerberos ticket that came with the password into a cache of the session's.",
    ),
    (
        "account",
        "Asks whether the user may in now. A password that has to be changed shows here, whatever the program \
         does then.",
    ),
    (
        "password",
        "Changes the password in the directory, as the user: asks for the present one and for a new one.",
    ),
    (
        "session",
        "Opening one sees to the cache with the Kerberos ticket, if there is a ticket, and closing it removes that \
         cache. Nothing otherwise.",
    ),
];

const OPTIONS: &[(&str, &str)] = &[
    (
        "use_first_pass",
        "Take the password that a module before this one has asked for; if there is none, fail.",
    ),
    (
        "try_first_pass",
        "Take that password, and ask for another if there is none or it is wrong. In the type password: take \
         the present or the new password if there is one.",
    ),
    (
        "use_authtok",
        "In the type password: take the new password of a module before this one, such as pam_pwquality; if \
         there is none, fail.",
    ),
    ("forward_pass", "Hand a password that was asked for on to the modules behind this one."),
    (
        "must_change=fail",
        "In the type auth: a password that is right and must be changed is a failure. For the stacks of programs that \
         only authenticate, such as web servers, in which nobody could change it. Where the type account follows leave \
         it out, or nobody comes as far as changing the password.",
    ),
    ("quiet", "Show errors alone, and nothing that is merely to be known."),
    ("nodelay", "A failure takes no longer than it takes; otherwise about two seconds."),
    ("debug", "Log more."),
];

const CODES: &[(&str, &str)] = &[
    ("PAM_SUCCESS", "Yes."),
    (
        "PAM_AUTH_ERR",
        "The password is wrong, empty, or has expired for good; with must_change=fail, it must be changed.",
    ),
    (
        "PAM_USER_UNKNOWN",
        "No domain serves such a user, or none that authenticates; a user of the host.",
    ),
    (
        "PAM_AUTHINFO_UNAVAIL",
        "rosterd or the directory cannot be asked, or refuses it; rosterd is of another version than the module.",
    ),
    ("PAM_MAXTRIES", "There were too many tries; later ones may be heard."),
    (
        "PAM_PERM_DENIED",
        "The account is locked, a rule keeps the user out, or the program may not ask.",
    ),
    ("PAM_ACCT_EXPIRED", "The account has expired or is disabled."),
    ("PAM_NEW_AUTHTOK_REQD", "account: the password must be changed first."),
    ("PAM_AUTHTOK_ERR", "password: the new password is refused, or could not be set."),
    ("PAM_TRY_AGAIN", "password: the directory cannot be asked now."),
    ("PAM_IGNORE", "account, session: a user of the host."),
];

const FILES: &[(&str, &str)] = &[
    ("/run/roster/pam", "The responder's socket."),
    ("/etc/roster/roster.toml", "auth of each domain; who may ask for whom: [responder.pam]."),
    ("/usr/share/pam-configs/roster", "For pam-auth-update(8)."),
];

/// Writes the page.
pub fn write(out: &mut dyn Write) -> io::Result<()> {
    let mut page = Roff::new();
    page.control("TH", ["pam_roster", "8", "", &source(), "Roster"]);
    page.control("SH", ["NAME"]);
    page.text([roman("pam_roster - PAM module for users of rosterd's domains")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([bold("pam_roster.so"), roman(" [OPTION]...")]);
    page.control("SH", ["DESCRIPTION"]);
    for (at, text) in DESCRIPTION.iter().enumerate() {
        if at > 0 {
            page.control("PP", []);
        }
        page.text([roman(*text)]);
    }
    section(&mut page, "Module types", TYPES, bold);
    section(&mut page, "Options", OPTIONS, bold);
    section(&mut page, "Return values", CODES, bold);
    section(&mut page, "Files", FILES, bold);
    page.control("SH", ["EXAMPLES"]);
    page.text([roman("Behind pam_unix, as pam-auth-update(8) writes it:")]);
    page.control("PP", []);
    page.control("RS", ["4"]);
    page.control("nf", []);
    page.text([roman("auth [success=1 default=ignore] pam_roster.so use_first_pass")]);
    page.control("fi", []);
    page.control("RE", []);
    page.control("PP", []);
    page.text([roman("docs/log-in.md, installed in share/doc/roster, has whole stacks.")]);
    see_also(&mut page, None, &["rosterd(8)", "roster.toml(5)", "pam.d(5)", "pam(7)"]);
    page.to_writer(out)
}
