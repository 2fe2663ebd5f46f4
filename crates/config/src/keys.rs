//! Every key that roster.toml may hold: its type, its default and what it means.
//!
//! The one source of the parser's checks and defaults, of `roster check-config --explain` and of
//! the list of keys in roster.toml(5).

use crate::AccountCheck;
use std::time::Duration;

/// A table of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// `[host]`
    Host,
    /// `[domain.NAME]`
    Domain,
    /// `[domain.NAME.attributes]`
    Attributes,
    /// `[domain.NAME.access]`
    Access,
    /// `[domain.NAME.access.service.SERVICE]`
    Service,
    /// `[publisher]`
    Publisher,
    /// `[responder.pam]`
    ResponderPam,
    /// `[metrics]`
    Metrics,
    /// `[responder.nscd]`
    Nscd,
    /// `[log]`
    Log,
}

impl Table {
    /// All, in the order in which they are written down.
    pub const ALL: [Self; 10] = [
        Self::Host,
        Self::Domain,
        Self::Attributes,
        Self::Access,
        Self::Service,
        Self::Publisher,
        Self::ResponderPam,
        Self::Metrics,
        Self::Nscd,
        Self::Log,
    ];

    /// As in the file.
    pub fn header(self) -> &'static str {
        match self {
            Self::Host => "[host]",
            Self::Domain => "[domain.NAME]",
            Self::Attributes => "[domain.NAME.attributes]",
            Self::Access => "[domain.NAME.access]",
            Self::Service => "[domain.NAME.access.service.SERVICE]",
            Self::Publisher => "[publisher]",
            Self::ResponderPam => "[responder.pam]",
            Self::Metrics => "[metrics]",
            Self::Nscd => "[responder.nscd]",
            Self::Log => "[log]",
        }
    }

    /// What the table is for.
    pub fn text(self) -> &'static str {
        match self {
            Self::Host => "What holds for every domain. Required.",
            Self::Domain => {
                "A source of users and groups. NAME has lower-case letters, digits, dots, dashes and \
                 underscores, starts with a letter or a digit, and is at most 64 bytes long; one with \
                 dots is written in quotes: [domain.\"example.com\"]."
            }
            Self::Attributes => {
                "Names of LDAP attributes where they differ from the schema's, as the server writes them in \
                 its answers: neither numbers nor second names (\"userid\" for \"uid\"). Case does not \
                 matter. Those with the members of groups are in member_attributes."
            }
            Self::Access => {
                "Who of the domain may log in to this host. All rules have to agree; roster access USER explains \
                 what they say of somebody. Names are compared as the domain's are. Without this table, and where \
                 it has no lists, everybody may whose account is in order. It is looked at by pam_roster(8) and \
                 for roster ssh-keys."
            }
            Self::Service => {
                "Further lists for one PAM service, named as its file in /etc/pam.d is: sshd, login, sudo, cron. \
                 They have to agree as well."
            }
            Self::Publisher => "How the snapshot is published.",
            Self::ResponderPam => {
                "Who may ask whether a user may log in: what pam_roster(8) talks to."
            }
            Self::Metrics => "Figures for Prometheus. Off unless this table is there.",
            Self::Nscd => {
                "Serving in place of nscd, as roster-nscd(1) does alone: every glibc program, static and set-uid \
                 ones too, reads users and groups from a map without a system call for each look-up. Not \
                 together with another program at the same socket."
            }
            Self::Log => "What rosterd logs, to the journal or to standard error.",
        }
    }
}

/// What values a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// A whole number within these bounds.
    Integer {
        /// Smallest.
        min: u32,
        /// Largest.
        max: u32,
    },
    /// A number from 0 to 1.
    Share,
    /// A string such as "500ms", "30s", "5m", "1h" or "1d", or a whole number of seconds.
    Duration {
        /// Shortest.
        min: Duration,
        /// Longest.
        max: Duration,
    },
    /// One of some words.
    Choice {
        /// What each of them is.
        noun: &'static str,
        /// The words.
        of: &'static [&'static str],
    },
    /// Absolute path.
    Path,
    /// Home folder or shell with templates.
    Template {
        /// Whether the directory's own value may be a part.
        original: bool,
    },
    /// A distinguished name (RFC 4514).
    Dn,
    /// A search filter (RFC 4515).
    Filter,
    /// Name of an attribute, as servers write it in their answers.
    Attribute,
    /// Names of attributes.
    Attributes,
    /// A DNS domain.
    DnsDomain,
    /// A realm of Kerberos.
    Realm,
    /// A credential cache.
    Cache,
    /// Hosts with ports.
    Hosts {
        /// The port of those that name none.
        port: u16,
    },
    /// Servers.
    Uris,
    /// Names of domains.
    Domains,
    /// Group ids.
    Gids,
    /// Names of users of the host.
    Users,
    /// Names of users or groups of a domain.
    Names,
    /// Printable ASCII characters of names.
    Characters,
    /// Some of some words.
    Choices {
        /// What each of them is.
        noun: &'static str,
        /// The words.
        of: &'static [&'static str],
    },
    /// Options of sshd's authorized_keys files.
    KeyOptions,
    /// A place to listen at.
    Listen,
}

impl Kind {
    /// For people.
    pub fn text(self) -> String {
        match self {
            Self::Boolean => "true or false".to_owned(),
            Self::Integer { min, max } => format!("integer, {min} to {max}"),
            Self::Share => "number, 0 to 1".to_owned(),
            Self::Duration { min, max } => {
                format!("duration, {} to {}", duration(min), duration(max))
            }
            Self::Choice { of, .. } => quoted(of),
            Self::Path => "absolute path".to_owned(),
            Self::Template { .. } => "path with templates".to_owned(),
            Self::Dn => "DN".to_owned(),
            Self::Filter => "LDAP filter".to_owned(),
            Self::Attribute => "attribute".to_owned(),
            Self::Attributes => "list of attributes".to_owned(),
            Self::DnsDomain => "DNS domain".to_owned(),
            Self::Realm => "realm".to_owned(),
            Self::Cache => "credential cache".to_owned(),
            Self::Hosts { .. } => "list of HOST[:PORT]".to_owned(),
            Self::Uris => "list of URIs".to_owned(),
            Self::Domains => "list of domains".to_owned(),
            Self::Gids => "list of gids".to_owned(),
            Self::Users => "list of user names".to_owned(),
            Self::Names => "list of names".to_owned(),
            Self::Characters => "string of characters".to_owned(),
            Self::Choices { of, .. } => format!("list of {}", quoted(of)),
            Self::KeyOptions => "list of options".to_owned(),
            Self::Listen => "\"unix:PATH\" or \"ADDRESS:PORT\"".to_owned(),
        }
    }
}

/// `"a", "b" or "c"`.
pub(crate) fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// A duration as it is written in the file.
pub(crate) fn duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    for (unit, length) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        if millis >= length && millis.is_multiple_of(length) {
            return format!("{}{unit}", millis / length);
        }
    }
    format!("{millis}ms")
}

/// What holds where a key is not in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unset {
    /// It must be there.
    Required,
    /// This value, as it would be written.
    Is(&'static str),
    /// What follows from other keys, in words.
    Follows(&'static str),
    /// Nothing; the meaning of that is in the key's text.
    Nothing,
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Where it may stand.
    pub table: Table,
    /// Its name.
    pub name: &'static str,
    /// The provider that it is for; any when none.
    pub provider: Option<&'static str>,
    /// Its values.
    pub kind: Kind,
    /// Its default.
    pub unset: Unset,
    /// What it means.
    pub text: &'static str,
}

/// The largest id: 4294967295 means "none" to the system.
pub const ID_MAX: u32 = u32::MAX - 1;

/// Ids that are never served: root's, `nobody`'s, and what 16-bit and 32-bit programs take for -1.
pub const RESERVED_IDS: [u32; 4] = [0, 65_534, 65_535, u32::MAX];

/// As many as the package makes users for back-ends.
pub const DOMAINS_MAX: usize = 8;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
const MONTH: Duration = Duration::from_secs(30 * 86_400);
const YEAR: Duration = Duration::from_secs(366 * 86_400);
const MINUTE: Duration = Duration::from_secs(60);
const MILLIS_10: Duration = Duration::from_millis(10);

const fn of(table: Table, name: &'static str, kind: Kind, unset: Unset, text: &'static str) -> Key {
    Key { table, name, provider: None, kind, unset, text }
}

const fn files(name: &'static str, kind: Kind, unset: Unset, text: &'static str) -> Key {
    Key { table: Table::Domain, name, provider: Some("files"), kind, unset, text }
}

const fn ldap(name: &'static str, kind: Kind, unset: Unset, text: &'static str) -> Key {
    Key { table: Table::Domain, name, provider: Some("ldap"), kind, unset, text }
}

const fn in_lists(table: Table, name: &'static str, text: &'static str) -> Key {
    of(table, name, Kind::Names, Unset::Nothing, text)
}

const fn attribute(name: &'static str, unset: Unset, text: &'static str) -> Key {
    Key {
        table: Table::Attributes,
        name,
        provider: Some("ldap"),
        kind: Kind::Attribute,
        unset,
        text,
    }
}

const fn duration_of(min: Duration, max: Duration) -> Kind {
    Kind::Duration { min, max }
}

const MILLIS_100: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

/// All keys, in the order in which they are documented.
pub const KEYS: &[Key] = &[
    of(
        Table::Host,
        "domains",
        Kind::Domains,
        Unset::Required,
        "The domains in order of precedence, at most eight: where two have the same name or id, the \
         first one's entry is served, and the other is listed by roster domain rejected. A table \
         [domain.NAME] that is not named here is not used. A group lists users of its own domain only, \
         and none whose name, uid or primary group is an earlier domain's.",
    ),
    of(
        Table::Host,
        "min_id",
        Kind::Integer { min: 1, max: ID_MAX },
        Unset::Is("1000"),
        "The smallest uid and gid that is taken from any domain. Entries below are rejected. rosterd and \
         roster enable also write it, with the primary gids below it that are allowed, to \
         /etc/roster/floor: programs refuse smaller ids whatever the snapshot says.",
    ),
    of(
        Table::Host,
        "max_id",
        Kind::Integer { min: 1, max: ID_MAX },
        Unset::Is("4294967294"),
        "The largest one. Whatever the bounds, 0, 65534, 65535 and 4294967295 are never taken.",
    ),
    of(
        Table::Host,
        "allowed_local_gids",
        Kind::Gids,
        Unset::Is("[]"),
        "Gids below min_id, or of local groups, that users of a directory may have as their primary \
         group. The groups themselves stay the host's own. Gid 100 is allowed without this key \
         where the host's group 100 is called users. At most 32 gids below min_id, 100 included.",
    ),
    of(
        Table::Host,
        "allowed_unnamed_gids",
        Kind::Gids,
        Unset::Is("[]"),
        "Gids that a local user has as primary group although the group file has no line for them. Groups and primary \
         groups of a directory with such a gid are rejected, because they share the files of that user. These are \
         served.",
    ),
    of(
        Table::Host,
        "allow_subordinate_ids",
        Kind::Boolean,
        Unset::Is("false"),
        "Whether uids and gids of a directory may lie in the ranges of subuid and subgid. A local user can take such an \
         id in a user namespace, and with it the files of its owner.",
    ),
    of(
        Table::Host,
        "allowed_names",
        Kind::Names,
        Unset::Is("[]"),
        "Names that a directory may have although they belong to privileged accounts on many hosts, such as docker, \
         wheel and admin. Members of such a group become privileged when the program is installed later.",
    ),
    of(
        Table::Host,
        "allowed_name_characters",
        Kind::Characters,
        Unset::Is("\"\""),
        "Further ASCII characters of names, such as \" \" for names with a space. Allowed in any case are letters, digits, \
         '.', '_', '-', '@', '+', a final '$', and characters beyond ASCII. Shells take most others for something else.",
    ),
    of(
        Table::Host,
        "passwd",
        Kind::Path,
        Unset::Is("\"/etc/passwd\""),
        "The host's own users. No entry of a directory is served whose name or uid is one of theirs. \
         The file is watched.",
    ),
    of(
        Table::Host,
        "group",
        Kind::Path,
        Unset::Is("\"/etc/group\""),
        "The host's own groups, likewise.",
    ),
    of(
        Table::Host,
        "subuid",
        Kind::Path,
        Unset::Is("\"/etc/subuid\""),
        "Uids that the host's own users have in user namespaces, see subuid(5). The file is watched, and may be missing.",
    ),
    of(
        Table::Host,
        "subgid",
        Kind::Path,
        Unset::Is("\"/etc/subgid\""),
        "The same of gids, see subgid(5).",
    ),
    of(
        Table::Domain,
        "provider",
        Kind::Choice { noun: "provider", of: &["ldap", "files"] },
        Unset::Required,
        "Where the entries come from: an LDAP directory, or text in the formats of passwd(5) and \
         group(5).",
    ),
    of(
        Table::Domain,
        "mode",
        Kind::Choice { noun: "mode", of: &["replicate", "on-demand"] },
        Unset::Is("\"replicate\""),
        "replicate mirrors the whole domain and follows its changes. on-demand asks for single \
         entries when programs do, for directories that are too large to mirror or do not allow \
         it; LDAP only. Domains that are asked on demand come last in domains: a name is asked \
         there before later domains answer, and so are the names and ids of all members before a \
         group of a later domain, mirrored or not, is told. Lists of everybody (getent passwd, getent \
         group) leave later domains out.",
    ),
    of(
        Table::Domain,
        "min_id",
        Kind::Integer { min: 1, max: ID_MAX },
        Unset::Follows("as in [host]"),
        "The smallest uid and gid that is taken from this domain, at least that of [host].",
    ),
    of(
        Table::Domain,
        "max_id",
        Kind::Integer { min: 1, max: ID_MAX },
        Unset::Follows("as in [host]"),
        "The largest one, at most that of [host]. Domains whose ids do not overlap cannot get into each \
         other's way. For domains that are asked on demand it is the only way to keep a group of a later \
         domain from having the primary gid of a user whom nobody has asked for yet.",
    ),
    of(
        Table::Domain,
        "home",
        Kind::Template { original: true },
        Unset::Nothing,
        "Home folder of every user, in place of the directory's, with templates (see TEMPLATES).",
    ),
    of(
        Table::Domain,
        "fallback_home",
        Kind::Template { original: false },
        Unset::Nothing,
        "Home folder of users that have none in the directory. Without it they are rejected.",
    ),
    of(
        Table::Domain,
        "shell",
        Kind::Template { original: true },
        Unset::Nothing,
        "Shell of every user, in place of the directory's.",
    ),
    of(
        Table::Domain,
        "fallback_shell",
        Kind::Template { original: false },
        Unset::Nothing,
        "Shell of users that have none in the directory. Without it theirs is empty, which programs \
         take for /bin/sh.",
    ),
    of(
        Table::Domain,
        "mass_deletion",
        Kind::Share,
        Unset::Is("0.5"),
        "Share of the domain's users, or of its groups, that the server may name as deleted at once or \
         within ten minutes. When more are deleted, and ten or more, they are kept until roster domain \
         confirm NAME removes them. 1 lets all deletions through that the server names. The same share \
         holds for entries that become unreadable, and for lines that are gone from text files. Additions \
         and changes are served meanwhile. For entries that the directory no longer shows, and does not \
         name as deleted, the limit is always 3 entries or 2 %, whichever is more: see docs/directory-servers.md. \
         It also holds for a mirror that begins without its cache, or with another base.",
    ),
    of(
        Table::Domain,
        "refresh",
        duration_of(SECOND, DAY),
        Unset::Is("\"5m\""),
        "In on-demand mode, how often entries that were asked for are asked for again, in batches. \
         Groups of more than 10,000 members are not answered in this mode.",
    ),
    of(
        Table::Domain,
        "negative",
        duration_of(Duration::ZERO, HOUR),
        Unset::Is("\"15s\""),
        "In on-demand mode, for how long a name that is not there is not asked for again.",
    ),
    of(
        Table::Domain,
        "auth",
        Kind::Choice { noun: "way to authenticate", of: &["none", "ldap", "krb5"] },
        Unset::Is("\"none\""),
        "Who is asked whether a password is a user's: nobody, and other PAM modules decide; the directory, by \
         binding as the user (provider = \"ldap\" only); or the KDC of a Kerberos realm, whose ticket the \
         user's session gets. See pam_roster(8).",
    ),
    of(
        Table::Domain,
        "krb5_realm",
        Kind::Realm,
        Unset::Nothing,
        "The realm in which users are USER@REALM. Required with auth = \"krb5\". /etc/krb5.conf has no part in \
         log-ins.",
    ),
    of(
        Table::Domain,
        "krb5_kdcs",
        Kind::Hosts { port: 88 },
        Unset::Is("[]"),
        "The realm's KDCs in order of preference, HOST or HOST:PORT. Required unless krb5_discover is true.",
    ),
    of(
        Table::Domain,
        "krb5_kpasswd",
        Kind::Hosts { port: 464 },
        Unset::Follows("the hosts of krb5_kdcs"),
        "Servers that change passwords, likewise.",
    ),
    of(
        Table::Domain,
        "krb5_discover",
        Kind::Boolean,
        Unset::Is("false"),
        "Whether DNS is asked for KDCs and for servers that change passwords (SRV records below the name of the \
         realm), behind those that are named. Whoever can forge answers of DNS could name a KDC of their own: see \
         krb5_validate.",
    ),
    of(
        Table::Domain,
        "krb5_keytab",
        Kind::Path,
        Unset::Is("\"/etc/krb5.keytab\""),
        "Keys of this host, host/NAME@REALM, by which a KDC shows that it is the right one. Read by the monitor, \
         which looks every ten seconds whether it has changed.",
    ),
    of(
        Table::Domain,
        "krb5_validate",
        Kind::Choice { noun: "way to validate", of: &["required", "auto", "off"] },
        Unset::Is("\"required\""),
        "When a KDC has to show with each login that it knows this host's key. Otherwise any host that answers as \
         a KDC can log in as any user. required: always; logins are refused while krb5_keytab cannot be read. \
         auto: once this host has used a keytab; from then on, as required. The mark of that is \
         /var/lib/roster/domains/.keytab-used. off: never, for networks that are to be trusted. Passwords that \
         an unverified KDC accepts are not kept for offline logins.",
    ),
    of(
        Table::Domain,
        "krb5_cache",
        Kind::Cache,
        Unset::Is("\"FILE:/tmp/krb5cc_%{uid}_XXXXXX\""),
        "Where a session's ticket is kept: FILE:/PATH with XXXXXX at its end, a file for each session; or a cache \
         for each session in KEYRING:persistent:%{uid}, KCM: or DIR:/PATH, a folder that is there. %{uid} is the user's uid. \
         none: the ticket is dropped after the log-in.",
    ),
    of(
        Table::Domain,
        "krb5_lifetime",
        duration_of(Duration::ZERO, MONTH),
        Unset::Is("0"),
        "For how long tickets are asked for. 0 leaves it to the KDC.",
    ),
    of(
        Table::Domain,
        "krb5_renewable",
        duration_of(Duration::ZERO, YEAR),
        Unset::Is("\"7d\""),
        "For how long tickets are to be renewable. One that is renewable is renewed at half of its life, as long as the \
         session lasts. 0 is not at all.",
    ),
    of(
        Table::Domain,
        "krb5_forwardable",
        Kind::Boolean,
        Unset::Is("false"),
        "Whether tickets may be handed on to other hosts, by ssh -K and the like.",
    ),
    of(
        Table::Domain,
        "auth_timeout",
        duration_of(SECOND, MINUTE),
        Unset::Is("\"10s\""),
        "How long a server that is there may take over one password before the next is asked. One that is not \
         there is waited for one second at the most where credentials are kept for when it is away.",
    ),
    of(
        Table::Domain,
        "offline_credentials",
        Kind::Boolean,
        Unset::Is("true"),
        "Whether passwords that were right are kept, as Argon2id hashes that only root and the domain's \
         back-end can read, so that people can log in while nobody can be asked.",
    ),
    of(
        Table::Domain,
        "offline_life",
        duration_of(HOUR, YEAR),
        Unset::Is("\"30d\""),
        "How long after a user's last log-in that was not offline such a password is believed.",
    ),
    of(
        Table::Domain,
        "offline_failures",
        Kind::Integer { min: 1, max: 1000 },
        Unset::Is("5"),
        "After so many wrong passwords in a row the user is locked out of logging in offline.",
    ),
    of(
        Table::Domain,
        "offline_lockout",
        duration_of(SECOND, MONTH),
        Unset::Is("\"5m\""),
        "For how long. A log-in that is not offline ends it at once.",
    ),
    of(
        Table::Domain,
        "password_hash_time",
        duration_of(MILLIS_10, Duration::from_secs(5)),
        Unset::Is("\"100ms\""),
        "How long this host is to take over one such hash; its cost is measured by that, and is never below 19 \
         MiB and two passes.",
    ),
    files(
        "passwd",
        Kind::Path,
        Unset::Required,
        "Users, in the format of passwd(5). Watched: one that is renamed to here counts at once, what is \
         written in place a second after the last writing, ten where the last line has no end.",
    ),
    files("group", Kind::Path, Unset::Required, "Groups, in the format of group(5), likewise."),
    ldap(
        "uris",
        Kind::Uris,
        Unset::Follows("those that discover finds"),
        "Servers in order of preference: ldaps://HOST[:PORT], ldap://HOST[:PORT] or \
         ldapi://PATH with every slash of the path as %2F. When one fails the next takes over; \
         one that comes earlier is gone back to as soon as it answers (fail_back). Required unless \
         discover is there.",
    ),
    ldap(
        "discover",
        Kind::DnsDomain,
        Unset::Nothing,
        "A DNS domain whose SRV records _ldap._tcp name servers. Those of uris come first. Such \
         servers are spoken to as by ldap://, so set start_tls. Whoever can forge answers of DNS \
         could name a server of their own: one whose name is not this domain's or below it is \
         believed only where start_tls is set and tls_ca names the authority of its certificate. \
         Where DNS does not answer, those that it named last are used; where it answers that there \
         are none, no connection is made to any, and one that there is stays.",
    ),
    ldap(
        "base",
        Kind::Dn,
        Unset::Required,
        "Base of all searches, \"dc=example,dc=com\", in the server's own words; see DISTINGUISHED NAMES.",
    ),
    ldap(
        "schema",
        Kind::Choice { noun: "schema", of: &["rfc2307", "rfc2307bis"] },
        Unset::Is("\"rfc2307\""),
        "How attributes of member_attributes name members that neither schema has: rfc2307 by user \
         name, rfc2307bis by DN. memberUid always names users, member and uniqueMember always have DNs.",
    ),
    ldap(
        "member_attributes",
        Kind::Attributes,
        Unset::Is("[\"memberUid\", \"member\", \"uniqueMember\"]"),
        "Where groups name their members. A group has the members of all these attributes together. \
         memberUid names users. member and uniqueMember name users and groups by DN, and the members of \
         such groups are members too. A shorter list leaves out the members that only the other \
         attributes name, also from the rules of [domain.NAME.access]: [\"memberUid\"] where member is \
         for other programs, [\"member\"] with Active Directory.",
    ),
    ldap("user_base", Kind::Dn, Unset::Follows("as base"), "Base of searches for users."),
    ldap(
        "user_filter",
        Kind::Filter,
        Unset::Is("\"(objectClass=posixAccount)\""),
        "Which entries are users.",
    ),
    ldap("group_base", Kind::Dn, Unset::Follows("as base"), "Base of searches for groups."),
    ldap(
        "group_filter",
        Kind::Filter,
        Unset::Is("\"(objectClass=posixGroup)\""),
        "Which entries are groups.",
    ),
    ldap(
        "case_sensitive",
        Kind::Boolean,
        Unset::Is("true"),
        "Whether names that differ by case alone are different names. If not, names are served in \
         lower case.",
    ),
    ldap(
        "bind",
        Kind::Choice { noun: "way to bind", of: &["anonymous", "simple", "external"] },
        Unset::Follows("simple with bind_dn, otherwise anonymous"),
        "How to log in to the server: not at all, by bind_dn and password, or as the uid of the \
         back-end by SASL EXTERNAL, over ldapi:// only.",
    ),
    ldap("bind_dn", Kind::Dn, Unset::Nothing, "Who logs in to the server."),
    ldap(
        "bind_password_file",
        Kind::Path,
        Unset::Nothing,
        "The file with the password, and nothing else but perhaps a newline at the end. It must not be \
         readable by others: chmod 600.",
    ),
    ldap(
        "start_tls",
        Kind::Boolean,
        Unset::Is("false"),
        "Whether connections to ldap:// servers are turned into TLS before anything is said. The \
         server's certificate is checked, as with ldaps://, against its name.",
    ),
    ldap(
        "tls_ca",
        Kind::Path,
        Unset::Follows("the host's own authorities"),
        "Certificate authorities that are trusted, in PEM. Those of the host are read for each connection.",
    ),
    ldap(
        "allow_clear_password",
        Kind::Boolean,
        Unset::Is("false"),
        "Whether the bind password may cross a network without TLS. Each router on the way can read it. Loopback \
         addresses and ldapi:// count as protected.",
    ),
    ldap(
        "allow_clear_identities",
        Kind::Boolean,
        Unset::Is("false"),
        "Whether users and groups may cross a network without TLS. Each router on the way can change them. \
         Loopback addresses and ldapi:// count as protected.",
    ),
    ldap(
        "allow_clear_user_passwords",
        Kind::Boolean,
        Unset::Is("false"),
        "Whether users' passwords may cross a network without TLS, to a server without a checked certificate. Each \
         router on the way can read them. Loopback addresses and ldapi:// count as protected. With auth = \"ldap\".",
    ),
    ldap(
        "page_size",
        Kind::Integer { min: 1, max: 1_000_000 },
        Unset::Is("1000"),
        "Entries that are asked for at a time, where the server gives its answers in pages.",
    ),
    ldap(
        "connect_timeout",
        duration_of(MILLIS_100, Duration::from_secs(300)),
        Unset::Is("\"5s\""),
        "How long connecting, TLS, bind and a first answer may take together before the next server is \
         tried.",
    ),
    ldap(
        "search_timeout",
        duration_of(SECOND, HOUR),
        Unset::Is("\"30s\""),
        "How long one search of a look-up may take, which is given up earlier if nobody waits for it \
         any more, and how long a server may be silent in the middle of an answer to the mirror. A server \
         that answers nothing at all is offline sooner: rosterd sends a small search after 4 s of silence, \
         over a second connection while a reply is outstanding, and waits 5 s for its reply.",
    ),
    ldap(
        "poll",
        duration_of(SECOND, DAY),
        Unset::Is("\"30s\""),
        "How often a server that can neither synchronise (RFC 4533) nor do persistent searches is \
         asked for changes. What such a server does not tell is found out at every tenth time, by \
         comparing the keys and time stamps of all entries: removals, and changes that a replica \
         brought in late. Where users or groups do not show their time stamps, everything is read every \
         time. At 30s a removal is served for up to five minutes. With any server, this is \
         also how often entries are looked at that users or groups lie under and that are no usual \
         containers: nobody tells when one of these is renamed or moved.",
    ),
    ldap(
        "sweep",
        duration_of(SECOND, DAY),
        Unset::Is("\"15m\""),
        "How often a mirror that is told of changes asks for the keys of all entries as well: users and \
         groups that come to match a filter, or no longer do, without having been changed themselves, \
         are told of by no server. With content synchronization a fifth more or less is drawn; a server \
         that takes long is asked less often, for a 200th of the time at the most; and where a filter \
         names memberOf, isMemberOf, nsRole or ibm-allGroups it is also done two seconds after a change \
         of a mirrored group, at most every 30 seconds. With any server but 389 Directory Server, this is also how \
         often groups of the classes groupOfURLs and labeledURIObject are read anew, whose members the server may work \
         out; if they are at most 1,000, also two seconds after any change, at most every 30 seconds.",
    ),
    ldap(
        "full_refresh",
        duration_of(Duration::ZERO, MONTH),
        Unset::Is("\"1d\""),
        "How often a mirror reads everything anew, whatever the way of following changes, as roster \
         domain refresh has it do: what a server does not tell lasts no longer than this. A fifth more \
         or less is drawn, so that hosts do not come together. Nothing is published if nothing is \
         another. 0 is never.",
    ),
    ldap(
        "fail_back",
        duration_of(SECOND, DAY),
        Unset::Is("\"30s\""),
        "How often a server that comes earlier in uris, or has a better priority in DNS, than the \
         present one is tried. One that was gone back to and failed is left alone for twice as long \
         each time, up to an hour. A server that three answers of DNS in a row do not name any more is \
         left as soon as another one answers; DNS is asked as often, or when the TTL of its answer is \
         over, which is believed for up to an hour.",
    ),
    ldap(
        "message_bytes_max",
        Kind::Integer { min: 65_536, max: 1 << 30 },
        Unset::Is("67108864"),
        "The largest message that is taken from a server, in bytes: the largest group must fit.",
    ),
    attribute("user_name", Unset::Is("\"uid\""), "Log-in name."),
    attribute("user_uid", Unset::Is("\"uidNumber\""), "User id."),
    attribute("user_gid", Unset::Is("\"gidNumber\""), "Id of the primary group."),
    attribute("user_gecos", Unset::Is("\"gecos\""), "Full name and the like."),
    attribute("user_home", Unset::Is("\"homeDirectory\""), "Home folder."),
    attribute("user_shell", Unset::Is("\"loginShell\""), "Shell."),
    attribute("group_name", Unset::Is("\"cn\""), "Name of a group."),
    attribute("group_gid", Unset::Is("\"gidNumber\""), "Group id."),
    attribute(
        "uuid",
        Unset::Follows("what the server has: entryUUID, nsUniqueId …"),
        "The key of an entry that stays when it is renamed.",
    ),
    attribute("ssh_key", Unset::Is("\"sshPublicKey\""), "Keys for sshd, each a line."),
    attribute(
        "shadow_last_change",
        Unset::Is("\"shadowLastChange\""),
        "Day on which the password was changed last, as in shadow(5).",
    ),
    attribute("shadow_max", Unset::Is("\"shadowMax\""), "Days until it has to be changed."),
    attribute(
        "shadow_warning",
        Unset::Is("\"shadowWarning\""),
        "Days before that from which on the user is told.",
    ),
    attribute(
        "shadow_inactive",
        Unset::Is("\"shadowInactive\""),
        "Days after that in which it can still be changed.",
    ),
    attribute("shadow_expire", Unset::Is("\"shadowExpire\""), "Day on which the account expires."),
    attribute(
        "locked_time",
        Unset::Is("\"pwdAccountLockedTime\""),
        "When the server's password policy locked the account.",
    ),
    attribute(
        "password_reset",
        Unset::Is("\"pwdReset\""),
        "Whether the password has to be changed at the next log-in.",
    ),
    attribute(
        "account_lock",
        Unset::Is("\"nsAccountLock\""),
        "Whether an administrator locked the account, of 389 Directory Server and FreeIPA.",
    ),
    attribute(
        "role",
        Unset::Is("\"nsRole\""),
        "Roles, of which nsManagedDisabledRole, nsNestedDisabledRole and nsDisabledRole lock the account.",
    ),
    attribute(
        "account_control",
        Unset::Is("\"userAccountControl\""),
        "Bits of Active Directory, of which those of disabled and locked accounts and expired passwords \
         count.",
    ),
    attribute(
        "account_expires",
        Unset::Is("\"accountExpires\""),
        "When the account expires, of Active Directory.",
    ),
    attribute(
        "account_control_computed",
        Unset::Is("\"msDS-User-Account-Control-Computed\""),
        "Bits that Active Directory works out when it is asked: of accounts locked after too many failures and \
         of passwords that have expired.",
    ),
    attribute(
        "lockout_time",
        Unset::Is("\"lockoutTime\""),
        "When Active Directory locked the account after too many failures.",
    ),
    of(
        Table::Access,
        "enabled",
        Kind::Boolean,
        Unset::Follows("whether auth is set, or there are lists, a filter or services here"),
        "Whether it is kept what the directory says of accounts, and asked who may in. Set it where nothing else of \
         this table is needed and others authenticate: for roster ssh-keys.",
    ),
    in_lists(
        Table::Access,
        "allowed_users",
        "Users who may log in. Where this or allowed_groups is there, nobody else may.",
    ),
    in_lists(
        Table::Access,
        "allowed_groups",
        "Groups of the domain whose members may log in, members through groups in them included, and who has \
         one as the primary group.",
    ),
    in_lists(
        Table::Access,
        "denied_users",
        "Users who may not log in, whatever else says that they may.",
    ),
    in_lists(
        Table::Access,
        "denied_groups",
        "Groups whose members may not, likewise. Of a group that the domain does not have nobody knows who \
         is in it, so nobody is let in: a group that was renamed would else let in whom it kept out.",
    ),
    of(
        Table::Access,
        "filter",
        Kind::Filter,
        Unset::Nothing,
        "A filter by which the directory has to find the user's entry, asked at every log-in. While it cannot \
         be asked what it said last counts, for as long as offline_life; who was never asked about may not \
         in. LDAP only.",
    ),
    of(
        Table::Access,
        "account_checks",
        Kind::Choices { noun: "check of an account", of: &AccountCheck::NAMES },
        Unset::Is(
            "[\"shadow-expire\", \"password-age\", \"password-policy\", \"account-lock\", \"active-directory\"]",
        ),
        "What of an account is looked at: shadow-expire is shadowExpire; password-age shadowLastChange, \
         shadowMax, shadowWarning and shadowInactive; password-policy pwdAccountLockedTime and pwdReset; \
         account-lock nsAccountLock and nsRole; active-directory userAccountControl, accountExpires and \
         msDS-User-Account-Control-Computed with lockoutTime. What is not in the entry, or not readable for the bind DN, keeps nobody out; what cannot be understood \
         does. Where passwords are changed without shadowLastChange being written, leave password-age out.",
    ),
    of(
        Table::Access,
        "temporary_lock",
        duration_of(Duration::ZERO, YEAR),
        Unset::Is("\"0s\""),
        "How long the server's password policy locks an account after too many failures, as its \
         pwdLockoutDuration says. 0 is until the server takes the mark away, as a policy without \
         pwdLockoutDuration has it; with one the mark stays after the lock has ended, so say here how long \
         that is. An administrator's lock lasts until the mark goes in any case.",
    ),
    of(
        Table::Access,
        "ssh_key_options",
        Kind::KeyOptions,
        Unset::Is("[]"),
        "Options, as in authorized_keys of sshd(8), that keys in the directory may have: [\"from\", \
         \"restrict\"]. A key with another option is left out by roster ssh-keys, never told without it.",
    ),
    of(
        Table::Access,
        "ssh_keys_of_denied",
        Kind::Boolean,
        Unset::Is("false"),
        "Whether roster ssh-keys tells the keys of users, too, who may not log in by sshd; PAM's account \
         stack then has to refuse them.",
    ),
    in_lists(Table::Service, "allowed_users", "As in [domain.NAME.access]."),
    in_lists(Table::Service, "allowed_groups", "Likewise."),
    in_lists(Table::Service, "denied_users", "Likewise."),
    in_lists(Table::Service, "denied_groups", "Likewise."),
    of(
        Table::Publisher,
        "interval",
        duration_of(MILLIS_100, HOUR),
        Unset::Is("\"100ms\""),
        "The least time between two publications. A single change is published at once all the \
         same; in a storm of changes they are gathered for this long.",
    ),
    of(
        Table::ResponderPam,
        "enabled",
        Kind::Boolean,
        Unset::Follows("whether a domain has auth set, or rules in its table access"),
        "Whether users of the domains can log in by pam_roster(8).",
    ),
    of(
        Table::ResponderPam,
        "trusted_users",
        Kind::Users,
        Unset::Is("[]"),
        "Users of the host, in /etc/passwd, whose programs may ask for anybody, as root's may: the user of a web \
         server, or of a screen locker's helper. All others may ask for themselves alone. Whoever is named here \
         can try passwords of everybody.",
    ),
    of(
        Table::ResponderPam,
        "timeout",
        duration_of(SECOND, MINUTE),
        Unset::Is("\"25s\""),
        "How long a program waits for an answer at the most; pam_roster(8) waits 30 s.",
    ),
    of(
        Table::ResponderPam,
        "tries_per_minute",
        Kind::Integer { min: 1, max: 10_000 },
        Unset::Is("20"),
        "Passwords that a user who is neither root nor trusted may have tried in a minute, and as many at once; \
         further ones are refused unheard.",
    ),
    of(
        Table::Metrics,
        "listen",
        Kind::Listen,
        Unset::Required,
        "Where figures are served over HTTP as text for Prometheus: a socket, \
         \"unix:/run/roster/metrics\", or a loopback address, \"127.0.0.1:9273\".",
    ),
    of(Table::Nscd, "enabled", Kind::Boolean, Unset::Is("false"), "Whether it is done."),
    of(
        Table::Nscd,
        "socket",
        Kind::Path,
        Unset::Is("\"/run/nscd/socket\""),
        "Where programs ask. glibc and musl know no other place than the default; its folder is made if it is \
         missing.",
    ),
    of(
        Table::Nscd,
        "nsswitch",
        Kind::Path,
        Unset::Is("\"/etc/nsswitch.conf\""),
        "Which name services there are, in which order. Those that are neither files nor roster are asked by a \
         process of its own.",
    ),
    of(
        Table::Nscd,
        "positive",
        duration_of(Duration::ZERO, HOUR),
        Unset::Is("\"30s\""),
        "How long an answer of another name service is good.",
    ),
    of(
        Table::Nscd,
        "negative",
        duration_of(Duration::ZERO, HOUR),
        Unset::Is("\"5s\""),
        "How long it is good that nobody has a name or id.",
    ),
    of(
        Table::Log,
        "level",
        Kind::Choice { noun: "level", of: &["error", "warn", "info", "debug", "trace"] },
        Unset::Is("\"info\""),
        "How much is logged. roster log-level changes it while rosterd runs.",
    ),
    of(
        Table::Log,
        "json",
        Kind::Boolean,
        Unset::Is("false"),
        "Whether lines on standard error are JSON. The journal has fields of its own.",
    ),
];

/// The keys of a table.
pub fn keys_of(table: Table) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.table == table)
}
