//! Every key that roster.toml may hold, declared once: table, name, type, default and text.
//!
//! The parser reads a key by its [`Key`], so it knows no name, type or default of its own. `roster
//! check-config --explain` and roster.toml(5) go by the same declarations.

use crate::{AccountCheck, LdapServer, ListenAddress, SecretFile};
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

/// A table of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigTable {
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
    /// `[log]`
    Log,
}

impl ConfigTable {
    /// All, in the order in which they are written down.
    pub const ALL: [Self; 9] = [
        Self::Host,
        Self::Domain,
        Self::Attributes,
        Self::Access,
        Self::Service,
        Self::Publisher,
        Self::ResponderPam,
        Self::Metrics,
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
            Self::Log => "What rosterd logs, to the journal or to standard error.",
        }
    }
}

/// What values a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
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
    /// Absolute path, or a credential of systemd's.
    SecretFile,
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

impl ValueKind {
    /// The type of its checked values.
    pub const fn value_type(self) -> ValueType {
        match self {
            Self::Boolean => ValueType::Boolean,
            Self::Integer { .. } => ValueType::Integer,
            Self::Share => ValueType::Share,
            Self::Duration { .. } => ValueType::Duration,
            Self::Path => ValueType::Path,
            Self::SecretFile => ValueType::SecretFile,
            Self::Choice { .. }
            | Self::Template { .. }
            | Self::Dn
            | Self::Filter
            | Self::Attribute
            | Self::DnsDomain
            | Self::Realm
            | Self::Cache
            | Self::Characters => ValueType::Text,
            Self::Attributes
            | Self::Hosts { .. }
            | Self::Domains
            | Self::Users
            | Self::Names
            | Self::Choices { .. }
            | Self::KeyOptions => ValueType::Texts,
            Self::Gids => ValueType::Integers,
            Self::Uris => ValueType::Servers,
            Self::Listen => ValueType::Listen,
        }
    }

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
            Self::SecretFile => "absolute path or \"credential:NAME\"".to_owned(),
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
pub enum KeyDefault {
    /// It must be there.
    Required,
    /// This value, as it would be written.
    Value(&'static str),
    /// What follows from other keys, in words.
    Follows(&'static str),
    /// Nothing; the meaning of that is in the key's text.
    Absent,
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfigKey {
    /// Where it may stand.
    pub table: ConfigTable,
    /// Its name.
    pub name: &'static str,
    /// The provider that it is for; any when none.
    pub provider: Option<&'static str>,
    /// Its values.
    pub kind: ValueKind,
    /// Its default.
    pub default: KeyDefault,
    /// What it means.
    pub text: &'static str,
}

/// A key whose value the parser reads as a `T`.
#[derive(Clone, Copy, Debug)]
pub struct Key<T> {
    /// What is declared of it.
    pub declared: ConfigKey,
    read_as: PhantomData<fn() -> T>,
}

impl<T: KeyType> Key<T> {
    /// Fails to compile where values of the key's kind are no `T`.
    const fn new(declared: ConfigKey) -> Self {
        assert!(declared.kind.value_type() as u8 == T::TYPE as u8, "values have another type");
        Self { declared, read_as: PhantomData }
    }
}

impl<T> Deref for Key<T> {
    type Target = ConfigKey;

    fn deref(&self) -> &ConfigKey {
        &self.declared
    }
}

/// The types of checked values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each is a type of Rust
pub enum ValueType {
    Boolean,
    Integer,
    Share,
    Duration,
    Text,
    Path,
    SecretFile,
    Texts,
    Integers,
    Servers,
    Listen,
}

/// A type that the parser reads values as.
pub trait KeyType {
    /// Which of them.
    const TYPE: ValueType;
}

macro_rules! key_types {
    ($($variant:ident: $type:ty;)*) => {$(
        impl KeyType for $type {
            const TYPE: ValueType = ValueType::$variant;
        }
    )*};
}

key_types! {
    Boolean: bool;
    Integer: u32;
    Share: f64;
    Duration: Duration;
    Text: String;
    Path: PathBuf;
    SecretFile: SecretFile;
    Texts: Vec<String>;
    Integers: Vec<u32>;
    Servers: Vec<LdapServer>;
    Listen: ListenAddress;
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

const fn table_key(
    table: ConfigTable,
    name: &'static str,
    kind: ValueKind,
    unset: KeyDefault,
    text: &'static str,
) -> ConfigKey {
    ConfigKey { table, name, provider: None, kind, default: unset, text }
}

const fn files_key(
    name: &'static str,
    kind: ValueKind,
    unset: KeyDefault,
    text: &'static str,
) -> ConfigKey {
    ConfigKey {
        table: ConfigTable::Domain,
        name,
        provider: Some("files"),
        kind,
        default: unset,
        text,
    }
}

const fn ldap_key(
    name: &'static str,
    kind: ValueKind,
    unset: KeyDefault,
    text: &'static str,
) -> ConfigKey {
    ConfigKey {
        table: ConfigTable::Domain,
        name,
        provider: Some("ldap"),
        kind,
        default: unset,
        text,
    }
}

const fn list_key(table: ConfigTable, name: &'static str, text: &'static str) -> ConfigKey {
    table_key(table, name, ValueKind::Names, KeyDefault::Absent, text)
}

const fn attribute_key(name: &'static str, unset: KeyDefault, text: &'static str) -> ConfigKey {
    ConfigKey {
        table: ConfigTable::Attributes,
        name,
        provider: Some("ldap"),
        kind: ValueKind::Attribute,
        default: unset,
        text,
    }
}

const fn duration_between(min: Duration, max: Duration) -> ValueKind {
    ValueKind::Duration { min, max }
}

const MILLIS_100: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

macro_rules! declare_keys {
    ($($name:ident: $type:ty = $declared:expr;)*) => {
        $(
            #[allow(missing_docs)] // its text says what it means
            pub const $name: Key<$type> = Key::new($declared);
        )*

        /// All keys, in the order in which they are documented.
        pub const KEYS: &[ConfigKey] = &[$($name.declared),*];
    };
}

declare_keys! {
    HOST_DOMAINS: Vec<String> = table_key(
        ConfigTable::Host,
        "domains",
        ValueKind::Domains,
        KeyDefault::Required,
        "The domains in order of precedence, at most eight: where two have the same name or id, the \
         first one's entry is served, and the other is listed by roster domain rejected. A table \
         [domain.NAME] that is not named here is not used. A group lists users of its own domain only, \
         and none whose name, uid or primary group is an earlier domain's.",
    );
    HOST_MIN_ID: u32 = table_key(
        ConfigTable::Host,
        "min_id",
        ValueKind::Integer { min: 1, max: ID_MAX },
        KeyDefault::Value("1000"),
        "The smallest uid and gid that is taken from any domain. Entries below are rejected. rosterd and \
         roster enable also write it, with the primary gids below it that are allowed, to \
         /etc/roster/floor: programs refuse smaller ids whatever the snapshot says.",
    );
    HOST_MAX_ID: u32 = table_key(
        ConfigTable::Host,
        "max_id",
        ValueKind::Integer { min: 1, max: ID_MAX },
        KeyDefault::Value("4294967294"),
        "The largest one. Whatever the bounds, 0, 65534, 65535 and 4294967295 are never taken.",
    );
    HOST_ALLOWED_LOCAL_GIDS: Vec<u32> = table_key(
        ConfigTable::Host,
        "allowed_local_gids",
        ValueKind::Gids,
        KeyDefault::Value("[]"),
        "Gids below min_id, or of local groups, that users of a directory may have as their primary \
         group. The groups themselves stay the host's own. Gid 100 is allowed without this key \
         where the host's group 100 is called users. At most 32 gids below min_id, 100 included.",
    );
    HOST_ALLOWED_UNNAMED_GIDS: Vec<u32> = table_key(
        ConfigTable::Host,
        "allowed_unnamed_gids",
        ValueKind::Gids,
        KeyDefault::Value("[]"),
        "Gids that a local user has as primary group although the group file has no line for them. Groups and primary \
         groups of a directory with such a gid are rejected, because they share the files of that user. These are \
         served.",
    );
    HOST_ALLOW_SUBORDINATE_IDS: bool = table_key(
        ConfigTable::Host,
        "allow_subordinate_ids",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Whether uids and gids of a directory may lie in the ranges of subuid and subgid. A local user can take such an \
         id in a user namespace, and with it the files of its owner.",
    );
    HOST_ALLOWED_NAMES: Vec<String> = table_key(
        ConfigTable::Host,
        "allowed_names",
        ValueKind::Names,
        KeyDefault::Value("[]"),
        "Names that a directory may have although they belong to privileged accounts on many hosts, such as docker, \
         wheel and admin. Members of such a group become privileged when the program is installed later.",
    );
    HOST_ALLOWED_NAME_CHARACTERS: String = table_key(
        ConfigTable::Host,
        "allowed_name_characters",
        ValueKind::Characters,
        KeyDefault::Value("\"\""),
        "Further ASCII characters of names, such as \" \" for names with a space. Allowed in any case are letters, digits, \
         '.', '_', '-', '@', '+', a final '$', and characters beyond ASCII. Shells take most others for something else.",
    );
    HOST_PASSWD: PathBuf = table_key(
        ConfigTable::Host,
        "passwd",
        ValueKind::Path,
        KeyDefault::Value("\"/etc/passwd\""),
        "The host's own users. No entry of a directory is served whose name or uid is one of theirs. \
         The file is watched.",
    );
    HOST_GROUP: PathBuf = table_key(
        ConfigTable::Host,
        "group",
        ValueKind::Path,
        KeyDefault::Value("\"/etc/group\""),
        "The host's own groups, likewise.",
    );
    HOST_SUBUID: PathBuf = table_key(
        ConfigTable::Host,
        "subuid",
        ValueKind::Path,
        KeyDefault::Value("\"/etc/subuid\""),
        "Uids that the host's own users have in user namespaces, see subuid(5). The file is watched, and may be missing.",
    );
    HOST_SUBGID: PathBuf = table_key(
        ConfigTable::Host,
        "subgid",
        ValueKind::Path,
        KeyDefault::Value("\"/etc/subgid\""),
        "The same of gids, see subgid(5).",
    );
    DOMAIN_PROVIDER: String = table_key(
        ConfigTable::Domain,
        "provider",
        ValueKind::Choice { noun: "provider", of: &["ldap", "files"] },
        KeyDefault::Required,
        "Where the entries come from: an LDAP directory, or text in the formats of passwd(5) and \
         group(5).",
    );
    DOMAIN_MODE: String = table_key(
        ConfigTable::Domain,
        "mode",
        ValueKind::Choice { noun: "mode", of: &["replicate", "on-demand"] },
        KeyDefault::Value("\"replicate\""),
        "replicate mirrors the whole domain and follows its changes. on-demand asks for single \
         entries when programs do, for directories that are too large to mirror or do not allow \
         it; LDAP only. Domains that are asked on demand come last in domains: a name is asked \
         there before later domains answer, and so are the names and ids of all members before a \
         group of a later domain, mirrored or not, is told. Lists of everybody (getent passwd, getent \
         group) leave later domains out.",
    );
    DOMAIN_MIN_ID: u32 = table_key(
        ConfigTable::Domain,
        "min_id",
        ValueKind::Integer { min: 1, max: ID_MAX },
        KeyDefault::Follows("as in [host]"),
        "The smallest uid and gid that is taken from this domain, at least that of [host].",
    );
    DOMAIN_MAX_ID: u32 = table_key(
        ConfigTable::Domain,
        "max_id",
        ValueKind::Integer { min: 1, max: ID_MAX },
        KeyDefault::Follows("as in [host]"),
        "The largest one, at most that of [host]. Domains whose ids do not overlap cannot get into each \
         other's way. For domains that are asked on demand it is the only way to keep a group of a later \
         domain from having the primary gid of a user whom nobody has asked for yet.",
    );
    DOMAIN_HOME: String = table_key(
        ConfigTable::Domain,
        "home",
        ValueKind::Template { original: true },
        KeyDefault::Absent,
        "Home folder of every user, in place of the directory's, with templates (see TEMPLATES).",
    );
    DOMAIN_FALLBACK_HOME: String = table_key(
        ConfigTable::Domain,
        "fallback_home",
        ValueKind::Template { original: false },
        KeyDefault::Absent,
        "Home folder of users that have none in the directory. Without it they are rejected.",
    );
    DOMAIN_SHELL: String = table_key(
        ConfigTable::Domain,
        "shell",
        ValueKind::Template { original: true },
        KeyDefault::Absent,
        "Shell of every user, in place of the directory's.",
    );
    DOMAIN_FALLBACK_SHELL: String = table_key(
        ConfigTable::Domain,
        "fallback_shell",
        ValueKind::Template { original: false },
        KeyDefault::Absent,
        "Shell of users that have none in the directory. Without it theirs is empty, which programs \
         take for /bin/sh.",
    );
    DOMAIN_MASS_DELETION: f64 = table_key(
        ConfigTable::Domain,
        "mass_deletion_threshold",
        ValueKind::Share,
        KeyDefault::Value("0.5"),
        "Share of the domain's users, or of its groups, that the server may name as deleted at once or \
         within ten minutes. When more are deleted, and ten or more, they are kept until roster domain \
         approve-removals NAME removes them. 1 lets all deletions through that the server names. The same share \
         holds for lines that are gone from text files or become unreadable. Additions \
         and changes are served meanwhile. For entries that the directory no longer shows, and does not \
         name as deleted, or shows unreadable, the limit is always 3 entries or 2 %, whichever is more: see \
         docs/reference/directory-servers.md. \
         It also holds for a mirror that begins without its cache, or with another base.",
    );
    DOMAIN_REFRESH: Duration = table_key(
        ConfigTable::Domain,
        "refresh_interval",
        duration_between(SECOND, DAY),
        KeyDefault::Value("\"5m\""),
        "In on-demand mode, how often entries that were asked for are asked for again, in batches. \
         Groups of more than 10,000 members are not answered in this mode.",
    );
    DOMAIN_NEGATIVE: Duration = table_key(
        ConfigTable::Domain,
        "negative_ttl",
        duration_between(Duration::ZERO, HOUR),
        KeyDefault::Value("\"15s\""),
        "In on-demand mode, for how long a name that is not there is not asked for again.",
    );
    DOMAIN_AUTH: String = table_key(
        ConfigTable::Domain,
        "auth",
        ValueKind::Choice { noun: "way to authenticate", of: &["none", "ldap", "krb5"] },
        KeyDefault::Value("\"none\""),
        "Who is asked whether a password is a user's: nobody, and other PAM modules decide; the directory, by \
         binding as the user (provider = \"ldap\" only); or the KDC of a Kerberos realm, whose ticket the \
         user's session gets. See pam_roster(8).",
    );
    DOMAIN_KRB5_REALM: String = table_key(
        ConfigTable::Domain,
        "krb5_realm",
        ValueKind::Realm,
        KeyDefault::Absent,
        "The realm in which users are USER@REALM. Required with auth = \"krb5\". /etc/krb5.conf has no part in \
         log-ins.",
    );
    DOMAIN_KRB5_KDCS: Vec<String> = table_key(
        ConfigTable::Domain,
        "krb5_kdcs",
        ValueKind::Hosts { port: 88 },
        KeyDefault::Value("[]"),
        "The realm's KDCs in order of preference, HOST or HOST:PORT. Required unless krb5_discover is true.",
    );
    DOMAIN_KRB5_KPASSWD: Vec<String> = table_key(
        ConfigTable::Domain,
        "krb5_kpasswd",
        ValueKind::Hosts { port: 464 },
        KeyDefault::Follows("the hosts of krb5_kdcs"),
        "Servers that change passwords, likewise.",
    );
    DOMAIN_KRB5_DISCOVER: bool = table_key(
        ConfigTable::Domain,
        "krb5_discover",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Whether DNS is asked for KDCs and for servers that change passwords (SRV records below the name of the \
         realm), behind those that are named. Whoever can forge answers of DNS could name a KDC of their own: see \
         krb5_validate.",
    );
    DOMAIN_KRB5_KEYTAB: SecretFile = table_key(
        ConfigTable::Domain,
        "krb5_keytab",
        ValueKind::SecretFile,
        KeyDefault::Value("\"/etc/krb5.keytab\""),
        "Keys of this host, host/NAME@REALM, by which a KDC shows that it is the right one. Read by the monitor, \
         which looks every ten seconds whether it has changed. \"credential:NAME\": see CREDENTIALS.",
    );
    DOMAIN_KRB5_VALIDATE: String = table_key(
        ConfigTable::Domain,
        "krb5_validate",
        ValueKind::Choice { noun: "way to validate", of: &["required", "auto", "off"] },
        KeyDefault::Value("\"required\""),
        "When a KDC has to show with each login that it knows this host's key. Otherwise any host that answers as \
         a KDC can log in as any user. required: always; logins are refused while krb5_keytab cannot be read. \
         auto: once this host has used a keytab; from then on, as required. The mark of that is \
         /var/lib/roster/domains/.keytab-used. off: never, for networks that are to be trusted. Passwords that \
         an unverified KDC accepts are not kept for offline logins.",
    );
    DOMAIN_KRB5_CACHE: String = table_key(
        ConfigTable::Domain,
        "krb5_cache",
        ValueKind::Cache,
        KeyDefault::Value("\"FILE:/tmp/krb5cc_%{uid}_XXXXXX\""),
        "Where a session's ticket is kept: FILE:/PATH with XXXXXX at its end, a file for each session; or a cache \
         for each session in KEYRING:persistent:%{uid}, KCM: or DIR:/PATH, a folder that is there. %{uid} is the user's uid. \
         none: the ticket is dropped after the log-in.",
    );
    DOMAIN_KRB5_LIFETIME: Duration = table_key(
        ConfigTable::Domain,
        "krb5_lifetime",
        duration_between(Duration::ZERO, MONTH),
        KeyDefault::Value("0"),
        "For how long tickets are asked for. 0 leaves it to the KDC.",
    );
    DOMAIN_KRB5_RENEWABLE: Duration = table_key(
        ConfigTable::Domain,
        "krb5_renewable",
        duration_between(Duration::ZERO, YEAR),
        KeyDefault::Value("\"7d\""),
        "For how long tickets are to be renewable. One that is renewable is renewed at half of its life, as long as the \
         session lasts. 0 is not at all.",
    );
    DOMAIN_KRB5_FORWARDABLE: bool = table_key(
        ConfigTable::Domain,
        "krb5_forwardable",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Whether tickets may be handed on to other hosts, by ssh -K and the like.",
    );
    DOMAIN_AUTH_TIMEOUT: Duration = table_key(
        ConfigTable::Domain,
        "auth_timeout",
        duration_between(SECOND, MINUTE),
        KeyDefault::Value("\"10s\""),
        "How long a server that is there may take over one password before the next is asked. One that is not \
         there is waited for one second at the most where credentials are kept for when it is away.",
    );
    DOMAIN_OFFLINE_CREDENTIALS: bool = table_key(
        ConfigTable::Domain,
        "offline_credentials",
        ValueKind::Boolean,
        KeyDefault::Value("true"),
        "Whether passwords that were right are kept, as Argon2id hashes that only root and the domain's \
         back-end can read, so that people can log in while nobody can be asked.",
    );
    DOMAIN_OFFLINE_LIFE: Duration = table_key(
        ConfigTable::Domain,
        "offline_credentials_expiration",
        duration_between(HOUR, YEAR),
        KeyDefault::Value("\"30d\""),
        "How long after a user's last log-in that was not offline such a password is believed.",
    );
    DOMAIN_OFFLINE_FAILURES: u32 = table_key(
        ConfigTable::Domain,
        "offline_failed_login_attempts",
        ValueKind::Integer { min: 1, max: 1000 },
        KeyDefault::Value("5"),
        "After so many wrong passwords in a row the user is locked out of logging in offline.",
    );
    DOMAIN_OFFLINE_LOCKOUT: Duration = table_key(
        ConfigTable::Domain,
        "offline_failed_login_delay",
        duration_between(SECOND, MONTH),
        KeyDefault::Value("\"5m\""),
        "For how long. A log-in that is not offline ends it at once.",
    );
    DOMAIN_PASSWORD_HASH_TIME: Duration = table_key(
        ConfigTable::Domain,
        "argon2_target_time",
        duration_between(MILLIS_10, Duration::from_secs(5)),
        KeyDefault::Value("\"100ms\""),
        "How long this host is to take over one such hash; its cost is measured by that, and is never below 19 \
         MiB and two passes.",
    );
    FILES_PASSWD: PathBuf = files_key(
        "passwd",
        ValueKind::Path,
        KeyDefault::Required,
        "Users, in the format of passwd(5). Watched: one that is renamed to here counts at once, what is \
         written in place a second after the last writing, ten where the last line has no end.",
    );
    FILES_GROUP: PathBuf = files_key(
        "group",
        ValueKind::Path,
        KeyDefault::Required,
        "Groups, in the format of group(5), likewise.",
    );
    LDAP_URIS: Vec<LdapServer> = ldap_key(
        "uris",
        ValueKind::Uris,
        KeyDefault::Follows("those that discover finds"),
        "Servers in order of preference: ldaps://HOST[:PORT], ldap://HOST[:PORT] or \
         ldapi://PATH with every slash of the path as %2F. When one fails the next takes over; \
         one that comes earlier is gone back to as soon as it answers (failback_interval). Required unless \
         discover is there.",
    );
    LDAP_DISCOVER: String = ldap_key(
        "discover",
        ValueKind::DnsDomain,
        KeyDefault::Absent,
        "A DNS domain whose SRV records _ldap._tcp name servers. Those of uris come first. Such \
         servers are spoken to as by ldap://, so set start_tls. Whoever can forge answers of DNS \
         could name a server of their own: one whose name is not this domain's or below it is \
         believed only where start_tls is set and tls_ca names the authority of its certificate. \
         Where DNS does not answer, those that it named last are used; where it answers that there \
         are none, no connection is made to any, and one that there is stays.",
    );
    LDAP_BASE: String = ldap_key(
        "base",
        ValueKind::Dn,
        KeyDefault::Required,
        "Base of all searches, \"dc=example,dc=com\", in the server's own words; see DISTINGUISHED NAMES.",
    );
    LDAP_SCHEMA: String = ldap_key(
        "schema",
        ValueKind::Choice { noun: "schema", of: &["rfc2307", "rfc2307bis"] },
        KeyDefault::Value("\"rfc2307\""),
        "How attributes of member_attributes name members that neither schema has: rfc2307 by user \
         name, rfc2307bis by DN. memberUid always names users, member and uniqueMember always have DNs.",
    );
    LDAP_MEMBER_ATTRIBUTES: Vec<String> = ldap_key(
        "member_attributes",
        ValueKind::Attributes,
        KeyDefault::Value("[\"memberUid\", \"member\", \"uniqueMember\"]"),
        "Where groups name their members. A group has the members of all these attributes together. \
         memberUid names users. member and uniqueMember name users and groups by DN, and the members of \
         such groups are members too. A shorter list leaves out the members that only the other \
         attributes name, also from the rules of [domain.NAME.access]: [\"memberUid\"] where member is \
         for other programs, [\"member\"] with Active Directory.",
    );
    LDAP_USER_BASE: String = ldap_key(
        "user_base",
        ValueKind::Dn,
        KeyDefault::Follows("as base"),
        "Base of searches for users.",
    );
    LDAP_USER_FILTER: String = ldap_key(
        "user_filter",
        ValueKind::Filter,
        KeyDefault::Value("\"(objectClass=posixAccount)\""),
        "Which entries are users.",
    );
    LDAP_GROUP_BASE: String = ldap_key(
        "group_base",
        ValueKind::Dn,
        KeyDefault::Follows("as base"),
        "Base of searches for groups.",
    );
    LDAP_GROUP_FILTER: String = ldap_key(
        "group_filter",
        ValueKind::Filter,
        KeyDefault::Value("\"(objectClass=posixGroup)\""),
        "Which entries are groups.",
    );
    LDAP_CASE_SENSITIVE: bool = ldap_key(
        "case_sensitive",
        ValueKind::Boolean,
        KeyDefault::Value("true"),
        "Whether names that differ by case alone are different names. If not, names are served in \
         lower case.",
    );
    LDAP_BIND: String = ldap_key(
        "bind",
        ValueKind::Choice { noun: "way to bind", of: &["anonymous", "simple", "external"] },
        KeyDefault::Follows("simple with bind_dn, otherwise anonymous"),
        "How to log in to the server: not at all, by bind_dn and password, or as the uid of the \
         back-end by SASL EXTERNAL, over ldapi:// only.",
    );
    LDAP_BIND_DN: String = ldap_key("bind_dn", ValueKind::Dn, KeyDefault::Absent, "Who logs in to the server.");
    LDAP_BIND_PASSWORD_FILE: SecretFile = ldap_key(
        "bind_password_file",
        ValueKind::SecretFile,
        KeyDefault::Absent,
        "The file with the password, and nothing else but perhaps a newline at the end. It must not be \
         readable by others: chmod 600. \"credential:NAME\": see CREDENTIALS.",
    );
    LDAP_START_TLS: bool = ldap_key(
        "start_tls",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Whether connections to ldap:// servers are turned into TLS before anything is said. The \
         server's certificate is checked, as with ldaps://, against its name.",
    );
    LDAP_TLS_CA: PathBuf = ldap_key(
        "tls_ca",
        ValueKind::Path,
        KeyDefault::Follows("the host's own authorities"),
        "Certificate authorities that are trusted, in PEM. Those of the host are read for each connection.",
    );
    LDAP_ALLOW_CLEAR_PASSWORD: bool = ldap_key(
        "allow_clear_password",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Whether the bind password may cross a network without TLS. Each router on the way can read it. Loopback \
         addresses and ldapi:// count as protected.",
    );
    LDAP_ALLOW_CLEAR_IDENTITIES: bool = ldap_key(
        "allow_clear_identities",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Whether users and groups may cross a network without TLS. Each router on the way can change them. \
         Loopback addresses and ldapi:// count as protected.",
    );
    LDAP_ALLOW_CLEAR_USER_PASSWORDS: bool = ldap_key(
        "allow_clear_user_passwords",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Whether users' passwords may cross a network without TLS, to a server without a checked certificate. Each \
         router on the way can read them. Loopback addresses and ldapi:// count as protected. With auth = \"ldap\".",
    );
    LDAP_PAGE_SIZE: u32 = ldap_key(
        "page_size",
        ValueKind::Integer { min: 1, max: 1_000_000 },
        KeyDefault::Value("1000"),
        "Entries that are asked for at a time, where the server gives its answers in pages.",
    );
    LDAP_CONNECT_TIMEOUT: Duration = ldap_key(
        "connect_timeout",
        duration_between(MILLIS_100, Duration::from_secs(300)),
        KeyDefault::Value("\"5s\""),
        "How long connecting, TLS, bind and a first answer may take together before the next server is \
         tried.",
    );
    LDAP_SEARCH_TIMEOUT: Duration = ldap_key(
        "search_timeout",
        duration_between(SECOND, HOUR),
        KeyDefault::Value("\"30s\""),
        "How long one search of a look-up may take, which is given up earlier if nobody waits for it \
         any more, and how long a server may be silent in the middle of an answer to the mirror. A server \
         that answers nothing at all is offline sooner: rosterd sends a small search after 4 s of silence, \
         over a second connection while a reply is outstanding, and waits 5 s for its reply.",
    );
    LDAP_POLL: Duration = ldap_key(
        "poll_interval",
        duration_between(SECOND, DAY),
        KeyDefault::Value("\"30s\""),
        "How often a server that can neither synchronise (RFC 4533) nor do persistent searches is \
         asked for changes. What such a server does not tell is found out at every tenth time, by \
         comparing the keys and time stamps of all entries: removals, and changes that a replica \
         brought in late. Where users or groups do not show their time stamps, everything is read every \
         time. At 30s a removal is served for up to five minutes. With any server, this is \
         also how often entries are looked at that users or groups lie under and that are no usual \
         containers: nobody tells when one of these is renamed or moved.",
    );
    LDAP_SWEEP: Duration = ldap_key(
        "reconcile_interval",
        duration_between(SECOND, DAY),
        KeyDefault::Value("\"15m\""),
        "How often a mirror that is told of changes asks for the keys of all entries as well: users and \
         groups that come to match a filter, or no longer do, without having been changed themselves, \
         are told of by no server. With content synchronization a fifth more or less is drawn; a server \
         that takes long is asked less often, for a 200th of the time at the most; and where a filter \
         names memberOf, isMemberOf, nsRole or ibm-allGroups it is also done two seconds after a change \
         of a mirrored group, at most every 30 seconds. With any server but 389 Directory Server, this is also how \
         often groups of the classes groupOfURLs and labeledURIObject are read anew, whose members the server may work \
         out; if they are at most 1,000, also two seconds after any change, at most every 30 seconds.",
    );
    LDAP_FULL_REFRESH: Duration = ldap_key(
        "full_refresh_interval",
        duration_between(Duration::ZERO, MONTH),
        KeyDefault::Value("\"1d\""),
        "How often a mirror reads everything anew, whatever the way of following changes, as roster \
         domain refresh has it do: what a server does not tell lasts no longer than this. A fifth more \
         or less is drawn, so that hosts do not come together. Nothing is published if nothing is \
         another. 0 is never.",
    );
    LDAP_FAIL_BACK: Duration = ldap_key(
        "failback_interval",
        duration_between(SECOND, DAY),
        KeyDefault::Value("\"30s\""),
        "How often a server that comes earlier in uris, or has a better priority in DNS, than the \
         present one is tried. One that was gone back to and failed is left alone for twice as long \
         each time, up to an hour. A server that three answers of DNS in a row do not name any more is \
         left as soon as another one answers; DNS is asked as often, or when the TTL of its answer is \
         over, which is believed for up to an hour.",
    );
    LDAP_MESSAGE_BYTES_MAX: u32 = ldap_key(
        "message_bytes_max",
        ValueKind::Integer { min: 65_536, max: 1 << 30 },
        KeyDefault::Value("67108864"),
        "The largest message that is taken from a server, in bytes: the largest group must fit.",
    );
    ATTRIBUTE_USER_NAME: String = attribute_key("user_name", KeyDefault::Value("\"uid\""), "Log-in name.");
    ATTRIBUTE_USER_UID: String = attribute_key("user_uid", KeyDefault::Value("\"uidNumber\""), "User id.");
    ATTRIBUTE_USER_GID: String = attribute_key("user_gid", KeyDefault::Value("\"gidNumber\""), "Id of the primary group.");
    ATTRIBUTE_USER_GECOS: String = attribute_key("user_gecos", KeyDefault::Value("\"gecos\""), "Full name and the like.");
    ATTRIBUTE_USER_HOME: String = attribute_key("user_home", KeyDefault::Value("\"homeDirectory\""), "Home folder.");
    ATTRIBUTE_USER_SHELL: String = attribute_key("user_shell", KeyDefault::Value("\"loginShell\""), "Shell.");
    ATTRIBUTE_GROUP_NAME: String = attribute_key("group_name", KeyDefault::Value("\"cn\""), "Name of a group.");
    ATTRIBUTE_GROUP_GID: String = attribute_key("group_gid", KeyDefault::Value("\"gidNumber\""), "Group id.");
    ATTRIBUTE_UUID: String = attribute_key(
        "uuid",
        KeyDefault::Follows("what the server has: entryUUID, nsUniqueId …"),
        "The key of an entry that stays when it is renamed.",
    );
    ATTRIBUTE_SSH_KEY: String = attribute_key("ssh_key", KeyDefault::Value("\"sshPublicKey\""), "Keys for sshd, each a line.");
    ATTRIBUTE_SHADOW_LAST_CHANGE: String = attribute_key(
        "shadow_last_change",
        KeyDefault::Value("\"shadowLastChange\""),
        "Day on which the password was changed last, as in shadow(5).",
    );
    ATTRIBUTE_SHADOW_MAX: String = attribute_key(
        "shadow_max",
        KeyDefault::Value("\"shadowMax\""),
        "Days until it has to be changed.",
    );
    ATTRIBUTE_SHADOW_WARNING: String = attribute_key(
        "shadow_warning",
        KeyDefault::Value("\"shadowWarning\""),
        "Days before that from which on the user is told.",
    );
    ATTRIBUTE_SHADOW_INACTIVE: String = attribute_key(
        "shadow_inactive",
        KeyDefault::Value("\"shadowInactive\""),
        "Days after that in which it can still be changed.",
    );
    ATTRIBUTE_SHADOW_EXPIRE: String = attribute_key(
        "shadow_expire",
        KeyDefault::Value("\"shadowExpire\""),
        "Day on which the account expires.",
    );
    ATTRIBUTE_LOCKED_TIME: String = attribute_key(
        "locked_time",
        KeyDefault::Value("\"pwdAccountLockedTime\""),
        "When the server's password policy locked the account.",
    );
    ATTRIBUTE_PASSWORD_RESET: String = attribute_key(
        "password_reset",
        KeyDefault::Value("\"pwdReset\""),
        "Whether the password has to be changed at the next log-in.",
    );
    ATTRIBUTE_ACCOUNT_LOCK: String = attribute_key(
        "account_lock",
        KeyDefault::Value("\"nsAccountLock\""),
        "Whether an administrator locked the account, of 389 Directory Server and FreeIPA.",
    );
    ATTRIBUTE_ROLE: String = attribute_key(
        "role",
        KeyDefault::Value("\"nsRole\""),
        "Roles, of which nsManagedDisabledRole, nsNestedDisabledRole and nsDisabledRole lock the account.",
    );
    ATTRIBUTE_ACCOUNT_CONTROL: String = attribute_key(
        "account_control",
        KeyDefault::Value("\"userAccountControl\""),
        "Bits of Active Directory, of which those of disabled and locked accounts and expired passwords \
         count.",
    );
    ATTRIBUTE_ACCOUNT_EXPIRES: String = attribute_key(
        "account_expires",
        KeyDefault::Value("\"accountExpires\""),
        "When the account expires, of Active Directory.",
    );
    ATTRIBUTE_ACCOUNT_CONTROL_COMPUTED: String = attribute_key(
        "account_control_computed",
        KeyDefault::Value("\"msDS-User-Account-Control-Computed\""),
        "Bits that Active Directory works out when it is asked: of accounts locked after too many failures and \
         of passwords that have expired.",
    );
    ATTRIBUTE_LOCKOUT_TIME: String = attribute_key(
        "lockout_time",
        KeyDefault::Value("\"lockoutTime\""),
        "When Active Directory locked the account after too many failures.",
    );
    ACCESS_ENABLED: bool = table_key(
        ConfigTable::Access,
        "enabled",
        ValueKind::Boolean,
        KeyDefault::Follows("whether auth is set, or there are lists, a filter or services here"),
        "Whether it is kept what the directory says of accounts, and asked who may in. Set it where nothing else of \
         this table is needed and others authenticate: for roster ssh-keys.",
    );
    ACCESS_ALLOWED_USERS: Vec<String> = list_key(
        ConfigTable::Access,
        "allowed_users",
        "Users who may log in. Where this or allowed_groups is there, nobody else may.",
    );
    ACCESS_ALLOWED_GROUPS: Vec<String> = list_key(
        ConfigTable::Access,
        "allowed_groups",
        "Groups of the domain whose members may log in, members through groups in them included, and who has \
         one as the primary group.",
    );
    ACCESS_DENIED_USERS: Vec<String> = list_key(
        ConfigTable::Access,
        "denied_users",
        "Users who may not log in, whatever else says that they may.",
    );
    ACCESS_DENIED_GROUPS: Vec<String> = list_key(
        ConfigTable::Access,
        "denied_groups",
        "Groups whose members may not, likewise. Of a group that the domain does not have nobody knows who \
         is in it, so nobody is let in: a group that was renamed would else let in whom it kept out.",
    );
    ACCESS_FILTER: String = table_key(
        ConfigTable::Access,
        "filter",
        ValueKind::Filter,
        KeyDefault::Absent,
        "A filter by which the directory has to find the user's entry, asked at every log-in. While it cannot \
         be asked what it said last counts, for as long as offline_credentials_expiration; who was never asked about may not \
         in. LDAP only.",
    );
    ACCESS_ACCOUNT_CHECKS: Vec<String> = table_key(
        ConfigTable::Access,
        "account_checks",
        ValueKind::Choices { noun: "check of an account", of: &AccountCheck::NAMES },
        KeyDefault::Value(
            "[\"shadow-expire\", \"password-age\", \"password-policy\", \"account-lock\", \"active-directory\"]",
        ),
        "What of an account is looked at: shadow-expire is shadowExpire; password-age shadowLastChange, \
         shadowMax, shadowWarning and shadowInactive; password-policy pwdAccountLockedTime and pwdReset; \
         account-lock nsAccountLock and nsRole; active-directory userAccountControl, accountExpires and \
         msDS-User-Account-Control-Computed with lockoutTime. What is not in the entry, or not readable for the bind DN, keeps nobody out; what cannot be understood \
         does. Where passwords are changed without shadowLastChange being written, leave password-age out.",
    );
    ACCESS_TEMPORARY_LOCK: Duration = table_key(
        ConfigTable::Access,
        "lockout_duration",
        duration_between(Duration::ZERO, YEAR),
        KeyDefault::Value("\"0s\""),
        "How long the server's password policy locks an account after too many failures, as its \
         pwdLockoutDuration says. 0 is until the server takes the mark away, as a policy without \
         pwdLockoutDuration has it; with one the mark stays after the lock has ended, so say here how long \
         that is. An administrator's lock lasts until the mark goes in any case.",
    );
    ACCESS_SSH_KEY_OPTIONS: Vec<String> = table_key(
        ConfigTable::Access,
        "ssh_key_options",
        ValueKind::KeyOptions,
        KeyDefault::Value("[]"),
        "Options, as in authorized_keys of sshd(8), that keys in the directory may have: [\"from\", \
         \"restrict\"]. A key with another option is left out by roster ssh-keys, never told without it.",
    );
    ACCESS_SSH_KEYS_OF_DENIED: bool = table_key(
        ConfigTable::Access,
        "ssh_keys_of_denied",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Whether roster ssh-keys tells the keys of users, too, who may not log in by sshd; PAM's account \
         stack then has to refuse them.",
    );
    SERVICE_ALLOWED_USERS: Vec<String> = list_key(ConfigTable::Service, "allowed_users", "As in [domain.NAME.access].");
    SERVICE_ALLOWED_GROUPS: Vec<String> = list_key(ConfigTable::Service, "allowed_groups", "Likewise.");
    SERVICE_DENIED_USERS: Vec<String> = list_key(ConfigTable::Service, "denied_users", "Likewise.");
    SERVICE_DENIED_GROUPS: Vec<String> = list_key(ConfigTable::Service, "denied_groups", "Likewise.");
    PUBLISHER_INTERVAL: Duration = table_key(
        ConfigTable::Publisher,
        "interval",
        duration_between(MILLIS_100, HOUR),
        KeyDefault::Value("\"100ms\""),
        "The least time between two publications. A single change is published at once all the \
         same; in a storm of changes they are gathered for this long.",
    );
    PAM_ENABLED: bool = table_key(
        ConfigTable::ResponderPam,
        "enabled",
        ValueKind::Boolean,
        KeyDefault::Follows("whether a domain has auth set, or rules in its table access"),
        "Whether users of the domains can log in by pam_roster(8).",
    );
    PAM_TRUSTED_USERS: Vec<String> = table_key(
        ConfigTable::ResponderPam,
        "trusted_users",
        ValueKind::Users,
        KeyDefault::Value("[]"),
        "Users of the host, in /etc/passwd, whose programs may ask for anybody, as root's may: the user of a web \
         server, or of a screen locker's helper. All others may ask for themselves alone. Whoever is named here \
         can try passwords of everybody.",
    );
    PAM_TIMEOUT: Duration = table_key(
        ConfigTable::ResponderPam,
        "timeout",
        duration_between(SECOND, MINUTE),
        KeyDefault::Value("\"25s\""),
        "How long a program waits for an answer at the most; pam_roster(8) waits 30 s.",
    );
    PAM_TRIES_PER_MINUTE: u32 = table_key(
        ConfigTable::ResponderPam,
        "auth_attempts_per_minute",
        ValueKind::Integer { min: 1, max: 10_000 },
        KeyDefault::Value("20"),
        "Passwords that a user who is neither root nor trusted may have tried in a minute, and as many at once; \
         further ones are refused unheard.",
    );
    METRICS_LISTEN: ListenAddress = table_key(
        ConfigTable::Metrics,
        "listen",
        ValueKind::Listen,
        KeyDefault::Required,
        "Where figures are served over HTTP as text for Prometheus: a socket, \
         \"unix:/run/roster/metrics\", or a loopback address, \"127.0.0.1:9273\".",
    );
    LOG_LEVEL: String = table_key(
        ConfigTable::Log,
        "level",
        ValueKind::Choice { noun: "level", of: &["error", "warn", "info", "debug", "trace"] },
        KeyDefault::Value("\"info\""),
        "How much is logged. roster log-level changes it while rosterd runs.",
    );
    LOG_JSON: bool = table_key(
        ConfigTable::Log,
        "json",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Whether lines on standard error are JSON. The journal has fields of its own.",
    );
}

/// The keys of a table.
pub fn keys_of(table: ConfigTable) -> impl Iterator<Item = &'static ConfigKey> {
    KEYS.iter().filter(move |key| key.table == table)
}
