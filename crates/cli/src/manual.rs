//! roster.toml(5), out of the table of keys that the parser goes by.

use clap_mangen::roff::{Roff, bold, italic, roman};
use roster_config::keys::{KEYS, Key, Table, Unset};
use roster_manual::{section, source};
use std::io::{self, Write};

/// A configuration that works, and shows the most used keys.
pub const EXAMPLE: &str = r#"[host]
domains = ["corp", "lab"]          # in order of precedence
min_id = 1000

[domain.corp]
provider = "ldap"
uris = ["ldaps://ldap1.example.com", "ldaps://ldap2.example.com"]
base = "dc=example,dc=com"
mode = "replicate"                 # replicate | on-demand
bind_dn = "cn=reader,dc=example,dc=com"
bind_password_file = "/etc/roster/corp.password"
tls_ca = "/etc/ssl/certs/corp.pem"
start_tls = false

[domain.lab]
provider = "files"
passwd = "/srv/lab/passwd"
group = "/srv/lab/group"
"#;

const DESCRIPTION: &[&str] = &[
    "This file tells rosterd(8) which directories to mirror into the snapshot of users and groups. It \
     is TOML: tables in brackets, keys with values below them, text in quotes, comments behind #.",
    "rosterd reads it when it starts, and again on SIGHUP (systemctl reload rosterd). If there is a \
     mistake in it, none of it is used: rosterd does not start, or goes on with what it had, and says \
     in its log and in roster status what is wrong, on which line, and what to write instead. So does \
     roster check-config FILE, before anything else does; with --explain it prints every key with \
     its value and where that is from.",
    "Only root may be able to change this file, files with entries, and the files with passwords, keytabs \
     and certificates that it names. rosterd refuses a file that belongs to another user or that other users \
     can write to. It refuses a file below a directory of that kind, unless the directory is sticky. Members \
     of group 0 count as root.",
    "Durations are text with a unit, \"500ms\", \"30s\", \"5m\", \"12h\" or \"1d\", or whole numbers of \
     seconds. Paths are absolute.",
];

const TEMPLATES: &[(&str, &str)] = &[
    ("%u", "the user name"),
    ("%U", "the uid"),
    ("%d", "the domain"),
    ("%o", "the directory's own value; not in fallback_home and fallback_shell"),
    ("%%", "a percent sign"),
];

const FILES: &[(&str, &str)] = &[
    ("/etc/roster/roster.toml", "The configuration, unless rosterd is told otherwise by --config."),
    (
        "/etc/roster/NAME.password",
        "A good place for passwords, mode 0600. The monitor reads them, as root; the process that \
         talks to the directory gets the password and no access to the file.",
    ),
];

const NAMES: &[&str] = &[
    "Distinguished names are compared as text, without the server's schema. Case, spaces at separators, the \
     order within an RDN of several parts and the way of escaping make no difference, whatever the matching \
     rule of the attribute says. The name of the attribute does.",
    "base, user_base and group_base therefore name attributes as the server does in its answers: dc, not \
     domainComponent nor 0.9.2342.19200300.100.1.25. Otherwise changes that a persistent search tells of seem \
     to be outside, and are passed over. A member by another name of an attribute than its entry has, \
     userid=alice where the entry is uid=alice, is nobody's.",
];

/// What `docs/directory-servers.md` says at length.
const SERVERS: &[&str] = &[
    "How soon a mirror sees a change depends on the server; roster domain show NAME says under \"changes \
     by\" what is in use. With syncrepl (Content Synchronization, RFC 4533) everything is seen at once. With \
     persistent search so it is, at the price of one read for each entry that changes anywhere below the base. \
     With polling, where the server offers neither, changes are \
     seen within poll, and who is gone at every tenth time; the reader must see modifyTimestamp or entryUSN of \
     all users and groups, or everything is read every time.",
    "For syncrepl slapd needs the overlay syncprov on the database, best with syncprov-sessionlog; 389 \
     Directory Server needs the plug-ins Content Synchronization and Retro Changelog, this one with \
     nsslapd-attribute: nsuniqueid:targetUniqueId, and a reader who binds. Both need indices for equality on \
     objectClass, uid, uidNumber, cn, gidNumber, memberUid, member and uniqueMember, and limits under which the reader \
     gets all entries. What the reader must be allowed to read are the attributes that are mapped, and \
     entryUUID, entryCSN and modifyTimestamp, with 389 Directory Server nsUniqueId and modifyTimestamp. Without \
     the stamps, entryCSN there and modifyTimestamp here, a mirror is right and never resumed: everything is \
     read anew at each connection. docs/directory-servers.md, which is installed in share/doc/roster, has the commands.",
];

/// Writes the page.
pub fn write(out: &mut dyn Write) -> io::Result<()> {
    let mut page = Roff::new();
    page.control("TH", ["roster.toml", "5", "", &source(), "Roster"]);
    page.control("SH", ["NAME"]);
    page.text([roman("roster.toml - configuration of rosterd")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([italic("/etc/roster/roster.toml")]);
    page.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut page, DESCRIPTION);
    for table in Table::ALL {
        page.control("SH", [table.header()]);
        page.text([roman(table.text())]);
        keys(&mut page, table, None);
        for (provider, title) in
            [("files", "Of the files provider"), ("ldap", "Of the ldap provider")]
        {
            if table == Table::Domain {
                page.control("SS", [title]);
            }
            keys(&mut page, table, Some(provider));
        }
    }
    page.control("SH", ["TEMPLATES"]);
    page.text([roman(
        "In home, fallback_home, shell and fallback_shell some letters behind a percent sign stand for \
         what is the user's own. home = \"/home/%d/%u\" makes /home/corp/alice of alice in corp.",
    )]);
    for (template, meaning) in TEMPLATES {
        page.control("TP", []);
        page.text([bold(*template)]);
        page.text([roman(*meaning)]);
    }
    page.control("SH", ["DISTINGUISHED NAMES"]);
    paragraphs(&mut page, NAMES);
    page.control("SH", ["DIRECTORY SERVERS"]);
    paragraphs(&mut page, SERVERS);
    page.control("SH", ["EXAMPLES"]);
    page.text([roman("A directory with two servers, and text files for the rest:")]);
    page.control("PP", []);
    page.control("RS", ["4"]);
    page.control("nf", []);
    page.text([roman(EXAMPLE.trim_end())]);
    page.control("fi", []);
    page.control("RE", []);
    section(&mut page, "Files", FILES, italic);
    page.control("SH", ["SEE ALSO"]);
    page.text([roman(
        "rosterd(8), roster(1), roster-check-config(1), roster-status(1), roster-domain(1), passwd(5), \
         group(5)",
    )]);
    page.to_writer(out)
}

fn paragraphs(page: &mut Roff, texts: &[&str]) {
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            page.control("PP", []);
        }
        page.text([roman(*text)]);
    }
}

fn keys(page: &mut Roff, table: Table, provider: Option<&str>) {
    for key in KEYS.iter().filter(|key| key.table == table && key.provider == provider) {
        page.control("TP", []);
        page.text([bold(key.name), roman(format!("  ({}; {})", key.kind.text(), default(key)))]);
        page.text([roman(key.text)]);
    }
}

fn default(key: &Key) -> String {
    match key.unset {
        Unset::Required => "required".to_owned(),
        Unset::Is(value) => format!("default: {value}"),
        Unset::Follows(how) => format!("default: {how}"),
        Unset::Nothing => "not set by default".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> String {
        let mut text = Vec::new();
        write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_example_is_a_configuration_without_a_warning() {
        assert!(roster_config::parse(EXAMPLE).unwrap().warnings.is_empty());
    }

    #[test]
    fn every_key_is_documented_with_its_default() {
        let page = page();
        for key in KEYS {
            assert!(page.contains(&format!("\n\\fB{}\\fR  (", key.name)), "{}", key.name);
        }
        assert!(page.contains("\\fBmass_deletion\\fR  (number, 0 to 1; default: 0.5)"), "{page}");
    }
}
