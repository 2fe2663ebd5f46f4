// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every key that roster.toml may hold, declared once: table, name, type, default and text.
//!
//! The parser reads a key by its [`Key`], and has no other list of names, types or defaults. `roster check-config
//! --explain` and roster.toml(5) use the same declarations. This module reads no file.

use crate::{
    AccountCheck, AllowedShells, ETC_SHELLS, LdapServer, ListenAddress, SearchBase, SecretFile,
};
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
    /// `[domain.NAME.override.user.USER]`
    OverrideUser,
    /// `[domain.NAME.override.group.GROUP]`
    OverrideGroup,
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
    /// All tables, in the order of the manual.
    pub const ALL: [Self; 11] = [
        Self::Host,
        Self::Domain,
        Self::Attributes,
        Self::OverrideUser,
        Self::OverrideGroup,
        Self::Access,
        Self::Service,
        Self::Publisher,
        Self::ResponderPam,
        Self::Metrics,
        Self::Log,
    ];

    /// Returns the header as in the file.
    pub fn header(self) -> &'static str {
        match self {
            Self::Host => "[host]",
            Self::Domain => "[domain.NAME]",
            Self::Attributes => "[domain.NAME.attributes]",
            Self::OverrideUser => "[domain.NAME.override.user.USER]",
            Self::OverrideGroup => "[domain.NAME.override.group.GROUP]",
            Self::Access => "[domain.NAME.access]",
            Self::Service => "[domain.NAME.access.service.SERVICE]",
            Self::Publisher => "[publisher]",
            Self::ResponderPam => "[responder.pam]",
            Self::Metrics => "[metrics]",
            Self::Log => "[log]",
        }
    }

    /// Returns the description for the manual.
    pub fn text(self) -> &'static str {
        match self {
            Self::Host => "Required. These keys hold for every domain.",
            Self::Domain => {
                "A source of users and groups. NAME consists of lower-case letters, digits, dots, dashes and \
                 underscores. It starts with a letter or a digit and has at most 64 bytes. A name with dots is \
                 quoted: [domain.\"example.com\"]."
            }
            Self::Attributes => {
                "Names of LDAP attributes that differ from the schema, as the server writes them in replies. \
                 Numeric names and aliases do not work (\"userid\" for \"uid\"). Case does not matter. \
                 member_attributes names the attributes with members of groups."
            }
            Self::OverrideUser => {
                "Values of one user on this host, which replace values of the directory. USER is the name in the directory. Each \
                 key is optional, and one is required. The values pass the same checks as a directory's. rosterd \
                 reserves the name and uid for this user: it rejects any other entry of the domain with that name or \
                 uid, even if the directory has no such user. The directory's name and uid find the user no longer. \
                 Passwords, SSH keys and access rules use the directory's name. So do the templates of home and \
                 shell. A changed gid of a group does not change the primary gids of users."
            }
            Self::OverrideGroup => {
                "Name and gid of one group on this host, which replace values of the directory. GROUP is the name in the \
                 directory. rosterd reserves the name and gid for this group, and rejects users with this gid as \
                 primary gid of the directory. Groups without a gid in the directory have no overrides."
            }
            Self::Access => {
                "Rules that decide about logins to this host. All rules must allow the user. roster access USER \
                 shows each of them. Without this table, and without lists in it, every user with a valid account \
                 may log in. pam_roster(8) and roster ssh-keys apply the rules. Names are compared as the domain \
                 compares them."
            }
            Self::Service => {
                "Further lists for one PAM service, named after its file in /etc/pam.d: sshd, login, sudo, cron. \
                 They must allow the user as well."
            }
            Self::Publisher => "Publication of the snapshot.",
            Self::ResponderPam => "The responder for logins, which pam_roster(8) queries.",
            Self::Metrics => "Metrics for Prometheus. Without this table rosterd serves none.",
            Self::Log => "The log, in the journal or on standard error.",
        }
    }
}

/// The kind of a key's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// `true` or `false`.
    Boolean,
    /// A whole number within these bounds.
    Integer {
        /// The smallest value.
        min: u32,
        /// The largest value.
        max: u32,
    },
    /// A number from 0 to 1.
    Share,
    /// A string such as "500ms", "30s", "5m", "1h" or "1d", or a whole number of seconds.
    Duration {
        /// The shortest duration.
        min: Duration,
        /// The longest duration.
        max: Duration,
    },
    /// One of several words.
    Choice {
        /// The noun for a word in messages.
        noun: &'static str,
        /// The words.
        of: &'static [&'static str],
    },
    /// An absolute path.
    Path,
    /// An absolute path, or a credential of systemd.
    SecretFile,
    /// A home directory or shell with templates.
    Template {
        /// The allowed letters behind a percent sign.
        letters: &'static str,
    },
    /// The path of a shell.
    Shell,
    /// Paths of shells.
    Shells,
    /// Paths of shells, or the file that lists them.
    AllowedShells,
    /// Any text.
    Text,
    /// A distinguished name (RFC 4514).
    Dn,
    /// A distinguished name, or a list of search bases.
    Bases,
    /// A search filter (RFC 4515).
    Filter,
    /// A search filter with templates of access rules.
    FilterTemplate,
    /// Name of an attribute, as servers write it in replies.
    Attribute,
    /// Names of attributes.
    Attributes,
    /// A DNS domain.
    DnsDomain,
    /// A Kerberos realm.
    Realm,
    /// A Kerberos principal.
    Principal,
    /// A credential cache.
    Cache,
    /// Hosts with ports.
    Hosts {
        /// The default port.
        port: u16,
    },
    /// Servers.
    Uris,
    /// Name of a domain.
    Domain,
    /// Short name of a domain.
    ShortName,
    /// Names of domains.
    Domains,
    /// Group ids.
    Gids,
    /// Names of local users.
    Users,
    /// Names of users or groups of a domain.
    Names,
    /// Printable ASCII characters of names.
    Characters,
    /// A list of several words.
    Choices {
        /// The noun for a word in messages.
        noun: &'static str,
        /// The words.
        of: &'static [&'static str],
    },
    /// Options of sshd's authorized_keys files.
    KeyOptions,
    /// An address to listen on.
    Listen,
}

impl ValueKind {
    /// Returns the type of the checked values.
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
            | Self::Shell
            | Self::Text
            | Self::Dn
            | Self::Filter
            | Self::FilterTemplate
            | Self::Attribute
            | Self::DnsDomain
            | Self::Realm
            | Self::Principal
            | Self::Cache
            | Self::Domain
            | Self::ShortName
            | Self::Characters => ValueType::Text,
            Self::Attributes
            | Self::Hosts { .. }
            | Self::Domains
            | Self::Users
            | Self::Names
            | Self::Shells
            | Self::Choices { .. }
            | Self::KeyOptions => ValueType::Texts,
            Self::Gids => ValueType::Integers,
            Self::Uris => ValueType::Servers,
            Self::Bases => ValueType::Bases,
            Self::AllowedShells => ValueType::Shells,
            Self::Listen => ValueType::Listen,
        }
    }

    /// Returns the description for the manual.
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
            Self::Shell => "absolute path".to_owned(),
            Self::Shells => "list of paths".to_owned(),
            Self::AllowedShells => format!("list of paths or \"{ETC_SHELLS}\""),
            Self::Text => "string".to_owned(),
            Self::Dn => "DN".to_owned(),
            Self::Bases => "DN or list of bases".to_owned(),
            Self::Filter | Self::FilterTemplate => "LDAP filter".to_owned(),
            Self::Attribute => "attribute".to_owned(),
            Self::Attributes => "list of attributes".to_owned(),
            Self::DnsDomain => "DNS domain".to_owned(),
            Self::Realm => "realm".to_owned(),
            Self::Principal => "principal".to_owned(),
            Self::Cache => "credential cache".to_owned(),
            Self::Hosts { .. } => "list of HOST[:PORT]".to_owned(),
            Self::Uris => "list of URIs".to_owned(),
            Self::Domain => "domain".to_owned(),
            Self::ShortName => "short name".to_owned(),
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

/// Formats words as `"a", "b" or "c"`.
pub(crate) fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// Formats a duration as in the file.
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

/// The value of a key that is not in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDefault {
    /// The key is required.
    Required,
    /// A value as in the file.
    Value(&'static str),
    /// A value that depends on other keys, with a description.
    Follows(&'static str),
    /// No value. The text of the key describes the effect.
    Absent,
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfigKey {
    /// The table of the key.
    pub table: ConfigTable,
    /// The name.
    pub name: &'static str,
    /// The provider that the key requires. `None` allows any.
    pub provider: Option<&'static str>,
    /// The kind of its values.
    pub kind: ValueKind,
    /// The default.
    pub default: KeyDefault,
    /// The description for the manual.
    pub text: &'static str,
}

/// A key with values that the parser reads as a `T`.
#[derive(Clone, Copy, Debug)]
pub struct Key<T> {
    /// The declaration.
    pub declared: ConfigKey,
    read_as: PhantomData<fn() -> T>,
}

impl<T: KeyType> Key<T> {
    /// Makes the key. It fails to compile if values of the key's kind have another type.
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
    Bases,
    Shells,
    Listen,
}

/// A Rust type of values.
pub trait KeyType {
    /// The type's variant.
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
    Bases: Vec<SearchBase>;
    Shells: AllowedShells;
    Listen: ListenAddress;
}

/// The largest id. The system reads 4294967295 as "none".
pub const ID_MAX: u32 = u32::MAX - 1;

/// Ids that are never served: root, `nobody`, and the values that 16-bit and 32-bit programs read as -1.
pub const RESERVED_IDS: [u32; 4] = [0, 65_534, 65_535, u32::MAX];

/// Limit of the domains: the package creates this many users for backends.
pub const DOMAINS_MAX: usize = 32;

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

/// Ids of overrides. The publisher rejects an entry with a wrong one by its name.
const OVERRIDE_ID: ValueKind = ValueKind::Integer { min: 0, max: u32::MAX };

const fn override_key(
    table: ConfigTable,
    name: &'static str,
    kind: ValueKind,
    text: &'static str,
) -> ConfigKey {
    table_key(table, name, kind, KeyDefault::Absent, text)
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
            #[allow(missing_docs)] // the declaration has a text
            pub const $name: Key<$type> = Key::new($declared);
        )*

        /// All keys, in the order of the manual.
        pub const KEYS: &[ConfigKey] = &[$($name.declared),*];
    };
}

declare_keys! {
    HOST_DOMAINS: Vec<String> = table_key(
        ConfigTable::Host,
        "domains",
        ValueKind::Domains,
        KeyDefault::Required,
        "Domains in order of priority, at most 32. If two entries have the same id, rosterd serves the first \
         domain's entry, and roster domain rejected lists the other. If two entries have the same name, the first \
         domain's entry has it, and rosterd serves the other one with its domain: alice@lab. rosterd ignores a table \
         [domain.NAME] that is missing here.",
    );
    HOST_DEFAULT_DOMAIN: String = table_key(
        ConfigTable::Host,
        "default_domain",
        ValueKind::Domain,
        KeyDefault::Absent,
        "Domain with the highest priority for names, in place of the first one in domains. Ids keep the order of \
         domains.",
    );
    HOST_MIN_ID: u32 = table_key(
        ConfigTable::Host,
        "min_id",
        ValueKind::Integer { min: 1, max: ID_MAX },
        KeyDefault::Value("1000"),
        "Smallest uid and gid of any domain. rosterd rejects entries below, and writes the value to \
         /etc/roster/floor.",
    );
    HOST_MAX_ID: u32 = table_key(
        ConfigTable::Host,
        "max_id",
        ValueKind::Integer { min: 1, max: ID_MAX },
        KeyDefault::Value("4294967294"),
        "Largest uid and gid. The ids 0, 65534, 65535 and 4294967295 are always rejected.",
    );
    HOST_ALLOWED_LOCAL_GIDS: Vec<u32> = table_key(
        ConfigTable::Host,
        "allowed_local_gids",
        ValueKind::Gids,
        KeyDefault::Value("[]"),
        "Gids below min_id, or of local groups, that directory users may have as primary group. Gid 100 is allowed \
         where the local group 100 is called users. At most 32 gids below min_id, 100 included.",
    );
    HOST_ALLOWED_UNNAMED_GIDS: Vec<u32> = table_key(
        ConfigTable::Host,
        "allowed_unnamed_gids",
        ValueKind::Gids,
        KeyDefault::Value("[]"),
        "Primary gids of local users without a line in the group file. rosterd rejects directory groups and primary \
         groups with such a gid, because they share the files of the local user. These gids are accepted.",
    );
    HOST_ALLOW_SUBORDINATE_IDS: bool = table_key(
        ConfigTable::Host,
        "allow_subordinate_ids",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Accept uids and gids within the ranges of subuid(5) and subgid(5). A local user can take such an id in a \
         user namespace, and with it the files of its owner.",
    );
    HOST_ALLOWED_NAMES: Vec<String> = table_key(
        ConfigTable::Host,
        "allowed_names",
        ValueKind::Names,
        KeyDefault::Value("[]"),
        "Names of privileged accounts that a directory may use, such as docker, wheel and admin. Members of such a \
         group become privileged when the program is installed.",
    );
    HOST_ALLOWED_NAME_CHARACTERS: String = table_key(
        ConfigTable::Host,
        "allowed_name_characters",
        ValueKind::Characters,
        KeyDefault::Value("\"\""),
        "Further ASCII characters in names, such as \" \". Always allowed: letters, digits, ., _, -, @, +, a final $, \
         characters beyond ASCII, and with schema = \"ad\" spaces. Never allowed, not even with this key: control and invisible characters, \
         colon, comma and slash, a space at the start or the end, and -, + or ~ at the start. The names root, . and .. \
         are rejected too. Names of digits need numeric_names.",
    );
    HOST_PASSWD: PathBuf = table_key(
        ConfigTable::Host,
        "passwd",
        ValueKind::Path,
        KeyDefault::Value("\"/etc/passwd\""),
        "Local users. rosterd rejects directory entries with their names or uids, and watches the file.",
    );
    HOST_GROUP: PathBuf = table_key(
        ConfigTable::Host,
        "group",
        ValueKind::Path,
        KeyDefault::Value("\"/etc/group\""),
        "Local groups, with the same effect.",
    );
    HOST_SUBUID: PathBuf = table_key(
        ConfigTable::Host,
        "subuid",
        ValueKind::Path,
        KeyDefault::Value("\"/etc/subuid\""),
        "Subordinate uids of local users. rosterd watches the file. It may be missing.",
    );
    HOST_SUBGID: PathBuf = table_key(
        ConfigTable::Host,
        "subgid",
        ValueKind::Path,
        KeyDefault::Value("\"/etc/subgid\""),
        "Subordinate gids, with the same effect.",
    );
    DOMAIN_PROVIDER: String = table_key(
        ConfigTable::Domain,
        "provider",
        ValueKind::Choice { noun: "provider", of: &["ldap", "files"] },
        KeyDefault::Required,
        "Source of the entries: an LDAP directory, or text in the formats of passwd(5) and group(5).",
    );
    DOMAIN_MODE: String = table_key(
        ConfigTable::Domain,
        "mode",
        ValueKind::Choice { noun: "mode", of: &["replicate", "on-demand"] },
        KeyDefault::Value("\"replicate\""),
        "replicate mirrors the domain and follows its changes. on-demand searches for single entries, and needs \
         provider = \"ldap\". On-demand domains come last in domains: Roster asks them before lower-priority domains \
         reply. getent passwd and getent group leave out lower-priority domains.",
    );
    DOMAIN_CASE: String = table_key(
        ConfigTable::Domain,
        "case",
        ValueKind::Choice { noun: "treatment of case", of: &["sensitive", "insensitive", "preserving"] },
        KeyDefault::Follows("\"sensitive\"; with schema = \"ad\" \"insensitive\""),
        "Case of names. With sensitive, names that differ by case are different. With insensitive, names are served in \
         lower case, and any spelling finds them. With preserving, names are served as the directory spells them, and \
         any spelling finds them. If two names differ by case only, rosterd serves the second one with its domain, or \
         rejects it if both are of this domain.",
    );
    DOMAIN_SHORT_NAME: String = table_key(
        ConfigTable::Domain,
        "short_name",
        ValueKind::ShortName,
        KeyDefault::Follows("the name of the domain"),
        "Another name of the domain in lookups: with short_name = \"CORP\", CORP\\alice and alice@CORP find alice of \
         this domain. Case does not matter.",
    );
    DOMAIN_QUALIFIED_NAMES: bool = table_key(
        ConfigTable::Domain,
        "qualified_names",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Serve names with the domain only: alice@corp. Without this key alice@corp finds the user alice as well.",
    );
    DOMAIN_NUMERIC_NAMES: bool = table_key(
        ConfigTable::Domain,
        "numeric_names",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Serve names of digits only, such as 1234. chown(1) and other programs read such a name before they read a \
         number. rosterd therefore rejects a name with the value of an id below min_id, of a local entry, or of \
         another served entry. Needs mode = \"replicate\".",
    );
    DOMAIN_MIN_ID: u32 = table_key(
        ConfigTable::Domain,
        "min_id",
        ValueKind::Integer { min: 1, max: ID_MAX },
        KeyDefault::Follows("as in [host]"),
        "Smallest uid and gid of this domain, at least the value of [host].",
    );
    DOMAIN_MAX_ID: u32 = table_key(
        ConfigTable::Domain,
        "max_id",
        ValueKind::Integer { min: 1, max: ID_MAX },
        KeyDefault::Follows("as in [host]"),
        "Largest uid and gid, at most the value of [host]. Separate id ranges keep domains apart. With on-demand \
         domains, only separate ranges keep a lower-priority group from a gid that an unknown user has as primary \
         group.",
    );
    DOMAIN_HOME: String = table_key(
        ConfigTable::Domain,
        "home",
        ValueKind::Template { letters: "uUdfloh" },
        KeyDefault::Absent,
        "Home directory of every user, instead of the directory's value. See TEMPLATES.",
    );
    DOMAIN_FALLBACK_HOME: String = table_key(
        ConfigTable::Domain,
        "fallback_home",
        ValueKind::Template { letters: "uUdfl" },
        KeyDefault::Follows("with schema = \"ad\" \"/home/%d/%u\""),
        "Home directory of users without one. Without a value rosterd rejects such users, unless \
         allow_empty_home = true.",
    );
    DOMAIN_ALLOW_EMPTY_HOME: bool = table_key(
        ConfigTable::Domain,
        "allow_empty_home",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Serve users without a home directory, with an empty field. Most programs then start such a user in /. Some \
         refuse the login.",
    );
    DOMAIN_SHELL: String = table_key(
        ConfigTable::Domain,
        "shell",
        ValueKind::Template { letters: "uUdo" },
        KeyDefault::Absent,
        "Shell of every user, instead of the directory's value.",
    );
    DOMAIN_FALLBACK_SHELL: String = table_key(
        ConfigTable::Domain,
        "fallback_shell",
        ValueKind::Template { letters: "uUd" },
        KeyDefault::Follows("with schema = \"ad\" \"/bin/bash\""),
        "Shell of users without one. Without a value the field is empty, which programs read as /bin/sh.",
    );
    DOMAIN_ALLOWED_SHELLS: AllowedShells = table_key(
        ConfigTable::Domain,
        "allowed_shells",
        ValueKind::AllowedShells,
        KeyDefault::Absent,
        "Shells that users may have. Any other shell is replaced by replacement_shell. \"/etc/shells\" allows the \
         shells that the file lists, and rosterd follows its changes. Without the file /bin/sh and /bin/csh are allowed. \
         Paths are compared letter by letter. An empty shell counts as /bin/sh. /usr/sbin/nologin, /sbin/nologin, /bin/false and \
         /usr/bin/false stay. The rule comes after shell and fallback_shell. Without this key all shells are allowed.",
    );
    DOMAIN_REFUSED_SHELLS: Vec<String> = table_key(
        ConfigTable::Domain,
        "refused_shells",
        ValueKind::Shells,
        KeyDefault::Value("[]"),
        "Shells that are replaced by replacement_shell although allowed_shells allows them. Another path of the same \
         program is another shell: list /bin/csh and /usr/bin/csh.",
    );
    DOMAIN_REPLACEMENT_SHELL: String = table_key(
        ConfigTable::Domain,
        "replacement_shell",
        ValueKind::Shell,
        KeyDefault::Value("\"/usr/sbin/nologin\""),
        "Shell instead of one that allowed_shells or refused_shells does not allow.",
    );
    DOMAIN_UNLISTED_SHELL: String = table_key(
        ConfigTable::Domain,
        "unlisted_shell",
        ValueKind::Shell,
        KeyDefault::Follows("the value of replacement_shell"),
        "Shell instead of one that allowed_shells lacks. replacement_shell then counts for refused_shells only.",
    );
    DOMAIN_ENUMERATE: bool = table_key(
        ConfigTable::Domain,
        "enumerate",
        ValueKind::Boolean,
        KeyDefault::Value("true"),
        "List the entries in `getent passwd` and `getent group`. With false these commands leave out the domain, and \
         lookups by name and id answer as before. An on-demand domain lists the entries that the snapshot has.",
    );
    DOMAIN_OVERRIDES_FILE: PathBuf = table_key(
        ConfigTable::Domain,
        "overrides_file",
        ValueKind::Path,
        KeyDefault::Absent,
        "File with overrides of users and groups, in tables [user.USER] and [group.GROUP] with the keys of \
         [domain.NAME.override.user.USER] and [domain.NAME.override.group.GROUP]. Only root may be able to change it, and \
         the user roster-publisher must be able to read it. rosterd serves a change about a second after the last write. \
         With a mistake in it the last valid overrides stay. At a start, the domain waits for a valid file.",
    );
    DOMAIN_MASS_DELETION: f64 = table_key(
        ConfigTable::Domain,
        "mass_deletion_threshold",
        ValueKind::Share,
        KeyDefault::Value("0.5"),
        "Share of users, or of groups, that the server may report as deleted within ten minutes. rosterd holds larger \
         deletions of 10 entries or more until roster domain approve-removals NAME. 1 lets all deletions through. The \
         share also holds for lines that vanish from text files, and for a mirror that starts without its cache or \
         with another base. Entries that the directory hides have another limit: see \
         docs/reference/directory-servers.md.",
    );
    DOMAIN_REFRESH: Duration = table_key(
        ConfigTable::Domain,
        "refresh_interval",
        duration_between(SECOND, DAY),
        KeyDefault::Value("\"5m\""),
        "On-demand mode: interval at which known entries are read again, in batches. Groups of more than 10,000 \
         members are not served in this mode.",
    );
    DOMAIN_NEGATIVE: Duration = table_key(
        ConfigTable::Domain,
        "negative_ttl",
        duration_between(Duration::ZERO, HOUR),
        KeyDefault::Value("\"15s\""),
        "On-demand mode: how long an absent name is cached.",
    );
    DOMAIN_WHEN_AWAY: String = table_key(
        ConfigTable::Domain,
        "when_away",
        ValueKind::Choice { noun: "behaviour", of: &["wait", "next"] },
        KeyDefault::Value("\"wait\""),
        "On-demand mode: what happens to unknown names while no server of the domain replies. wait: their lookups fail. \
         next: Roster looks them up in the next domains. A user of a next domain then has the name of any user of this \
         domain that the host does not know yet. next requires a min_id and a max_id that no other domain shares.",
    );
    DOMAIN_PRIVATE_GROUPS: String = table_key(
        ConfigTable::Domain,
        "private_groups",
        ValueKind::Choice { noun: "kind of private groups", of: &["off", "always", "same-id"] },
        KeyDefault::Value("\"off\""),
        "Users that get a private group. Its name is the user's name, and its gid is the uid. off: no user. always: every \
         user of the domain; gidNumber is ignored. Roster rejects a user if it cannot serve the private group. One reason \
         is a group of the directory or of the host with this name or gid. same-id: users with equal uid and gid. A group \
         of the directory with this gid replaces the private group. A group with only the name leaves the gid without a \
         name. Access rules know groups of the directory only.",
    );
    DOMAIN_AUTH: String = table_key(
        ConfigTable::Domain,
        "auth",
        ValueKind::Choice { noun: "authentication method", of: &["none", "ldap", "krb5"] },
        KeyDefault::Value("\"none\""),
        "Method to verify passwords. none leaves it to other PAM modules. ldap binds as the user. krb5 asks a KDC and \
         gives the session a ticket. See pam_roster(8).",
    );
    DOMAIN_KRB5_REALM: String = table_key(
        ConfigTable::Domain,
        "krb5_realm",
        ValueKind::Realm,
        KeyDefault::Absent,
        "Realm of the users, and of bind = \"gssapi\". Required. /etc/krb5.conf is ignored.",
    );
    DOMAIN_KRB5_KDCS: Vec<String> = table_key(
        ConfigTable::Domain,
        "krb5_kdcs",
        ValueKind::Hosts { port: 88 },
        KeyDefault::Value("[]"),
        "KDCs in order of preference, port 88. Required unless krb5_discover is true.",
    );
    DOMAIN_KRB5_KPASSWD: Vec<String> = table_key(
        ConfigTable::Domain,
        "krb5_kpasswd",
        ValueKind::Hosts { port: 464 },
        KeyDefault::Follows("the hosts of krb5_kdcs"),
        "Servers that change passwords, port 464.",
    );
    DOMAIN_KRB5_DISCOVER: bool = table_key(
        ConfigTable::Domain,
        "krb5_discover",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Find further servers through SRV records of the realm's name. A forged DNS reply can name a foreign KDC: see \
         krb5_validate.",
    );
    DOMAIN_KRB5_KEYTAB: SecretFile = table_key(
        ConfigTable::Domain,
        "krb5_keytab",
        ValueKind::SecretFile,
        KeyDefault::Value("\"/etc/krb5.keytab\""),
        "Keys of this host, host/NAME@REALM, with which a KDC proves its identity, and which bind = \"gssapi\" uses. \
         The monitor reads the file and checks it for changes every ten seconds.",
    );
    DOMAIN_KRB5_VALIDATE: String = table_key(
        ConfigTable::Domain,
        "krb5_validate",
        ValueKind::Choice { noun: "validation mode", of: &["required", "auto", "off"] },
        KeyDefault::Value("\"required\""),
        "When a KDC must prove that it knows this host's key. required: at each login; logins fail while the keytab \
         is unreadable. auto: once this host has used a keytab. off: never, for trusted networks. Passwords from an \
         unverified KDC are not stored.",
    );
    DOMAIN_KRB5_FAST_PRINCIPAL: String = table_key(
        ConfigTable::Domain,
        "krb5_fast_principal",
        ValueKind::Principal,
        KeyDefault::Absent,
        "Principal of krb5_keytab. Its key protects each login and each change of a password by FAST (RFC 6113). \
         Without @REALM it belongs to krb5_realm. krb5_validate then counts as required. Without this key, FAST \
         protects changes and expired passwords only, by the first key of the keytab that the KDC accepts.",
    );
    DOMAIN_KRB5_CACHE: String = table_key(
        ConfigTable::Domain,
        "krb5_cache",
        ValueKind::Cache,
        KeyDefault::Value("\"FILE:/tmp/krb5cc_%{uid}_XXXXXX\""),
        "Cache of a session's ticket: FILE:/PATH that ends in XXXXXX, KEYRING:persistent:%{uid}, KCM:, or DIR:/PATH \
         of an existing directory. none drops the ticket after the login.",
    );
    DOMAIN_KRB5_LIFETIME: Duration = table_key(
        ConfigTable::Domain,
        "krb5_lifetime",
        duration_between(Duration::ZERO, MONTH),
        KeyDefault::Value("0"),
        "Lifetime of requested tickets. 0 leaves it to the KDC.",
    );
    DOMAIN_KRB5_RENEWABLE: Duration = table_key(
        ConfigTable::Domain,
        "krb5_renewable",
        duration_between(Duration::ZERO, YEAR),
        KeyDefault::Value("\"7d\""),
        "Renewable lifetime of requested tickets. Roster renews a ticket at half of its life while the session lasts. \
         0 requests no renewal.",
    );
    DOMAIN_KRB5_FORWARDABLE: bool = table_key(
        ConfigTable::Domain,
        "krb5_forwardable",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Request tickets that other hosts may receive, for example through ssh -K.",
    );
    DOMAIN_AUTH_TIMEOUT: Duration = table_key(
        ConfigTable::Domain,
        "auth_timeout",
        duration_between(SECOND, MINUTE),
        KeyDefault::Value("\"10s\""),
        "Time that a server has for one password before the backend asks the next one. With cached credentials the \
         backend waits at most one second for an unreachable server.",
    );
    DOMAIN_OFFLINE_CREDENTIALS: bool = table_key(
        ConfigTable::Domain,
        "offline_credentials",
        ValueKind::Boolean,
        KeyDefault::Value("true"),
        "Store an Argon2id hash of each accepted password, for logins while no server answers. Only root and the \
         domain's backend can read the hashes.",
    );
    DOMAIN_OFFLINE_LIFE: Duration = table_key(
        ConfigTable::Domain,
        "offline_credentials_expiration",
        duration_between(HOUR, YEAR),
        KeyDefault::Value("\"30d\""),
        "How long a stored password is valid after the user's last online login.",
    );
    DOMAIN_OFFLINE_FAILURES: u32 = table_key(
        ConfigTable::Domain,
        "offline_failed_login_attempts",
        ValueKind::Integer { min: 1, max: 1000 },
        KeyDefault::Value("5"),
        "Wrong passwords in a row that lock a user out of offline logins.",
    );
    DOMAIN_OFFLINE_LOCKOUT: Duration = table_key(
        ConfigTable::Domain,
        "offline_failed_login_delay",
        duration_between(SECOND, MONTH),
        KeyDefault::Value("\"5m\""),
        "Duration of that lock. An online login ends it at once.",
    );
    DOMAIN_PASSWORD_HASH_TIME: Duration = table_key(
        ConfigTable::Domain,
        "argon2_target_time",
        duration_between(MILLIS_10, Duration::from_secs(5)),
        KeyDefault::Value("\"100ms\""),
        "Time that one hash should take on this host. rosterd measures its cost, which is at least 19 MiB and two \
         passes.",
    );
    FILES_PASSWD: PathBuf = files_key(
        "passwd",
        ValueKind::Path,
        KeyDefault::Required,
        "Users, in the format of passwd(5). rosterd reads a renamed file at once. It reads a file that is written in \
         place 1 s after the last write, or 10 s if its last line lacks a newline.",
    );
    FILES_GROUP: PathBuf = files_key(
        "group",
        ValueKind::Path,
        KeyDefault::Required,
        "Groups, in the format of group(5), with the same rules.",
    );
    LDAP_URIS: Vec<LdapServer> = ldap_key(
        "uris",
        ValueKind::Uris,
        KeyDefault::Follows("those that discover finds"),
        "Servers in order of preference: ldaps://HOST[:PORT], ldap://HOST[:PORT], or ldapi://PATH with %2F for each \
         slash. The backend returns to a preferred server when it answers. Required unless discover is set.",
    );
    LDAP_DISCOVER: String = ldap_key(
        "discover",
        ValueKind::DnsDomain,
        KeyDefault::Absent,
        "Domain with SRV records _ldap._tcp. Servers of uris come first. Discovered servers are used as ldap://, so \
         set start_tls. A server outside of this domain is accepted only with start_tls and tls_ca. If DNS fails, the \
         last servers stay in use. If DNS reports none, the backend makes no new connection, and an existing one \
         stays.",
    );
    LDAP_DISCOVER_CONTROLLERS: bool = ldap_key(
        "discover_controllers",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "The domain of discover is one of Active Directory. The backend uses the domain controllers of the site of \
         this host, then all others. It pings them (CLDAP) to learn the site, every 15 minutes. A controller that is \
         silent for 3 s is left for another one.",
    );
    LDAP_SITE: String = ldap_key(
        "site",
        ValueKind::DnsDomain,
        KeyDefault::Follows("as a controller reports"),
        "Site of this host in Active Directory. With this key the backend sends no pings. Requires \
         discover_controllers.",
    );
    LDAP_BASE: Vec<SearchBase> = ldap_key(
        "base",
        ValueKind::Bases,
        KeyDefault::Required,
        "Base of all searches, as the server spells it: a DN, or a list of at most 8 bases. See DISTINGUISHED NAMES \
         and SEARCH BASES.",
    );
    LDAP_SCHEMA: String = ldap_key(
        "schema",
        ValueKind::Choice { noun: "schema", of: &["rfc2307", "rfc2307bis", "ad"] },
        KeyDefault::Value("\"rfc2307\""),
        "Form of members in attributes that neither schema defines: user names (rfc2307) or DNs (rfc2307bis). \
         memberUid always has names. member and uniqueMember always have DNs. ad is Active Directory: it sets the \
         defaults of filters, attributes, case, homes and intervals, and needs mode = \"replicate\".",
    );
    LDAP_MEMBER_ATTRIBUTES: Vec<String> = ldap_key(
        "member_attributes",
        ValueKind::Attributes,
        KeyDefault::Follows("[\"memberUid\", \"member\", \"uniqueMember\"]; with schema = \"ad\" [\"member\"]"),
        "Attributes that list the members of a group. A group has the members of all of them, and of nested groups. A \
         shorter list also applies to [domain.NAME.access].",
    );
    LDAP_MEMBER_RANGE: u32 = ldap_key(
        "member_range",
        ValueKind::Integer { min: 10, max: 1_000_000 },
        KeyDefault::Value("1500"),
        "Members in one request for a list, with schema = \"ad\". A server may return fewer.",
    );
    LDAP_ID_MAPPING: String = ldap_key(
        "id_mapping",
        ValueKind::Choice { noun: "source of ids", of: &["posix", "sid"] },
        KeyDefault::Follows("\"posix\"; with schema = \"ad\" \"sid\""),
        "Source of uids and gids. posix reads the attributes user_uid, user_gid and group_gid. sid computes them from \
         objectSid as SSSD does, and needs schema = \"ad\".",
    );
    LDAP_ID_MIN: u32 = ldap_key(
        "id_min",
        ValueKind::Integer { min: 1, max: ID_MAX },
        KeyDefault::Value("200000"),
        "Lowest id of id_mapping = \"sid\": ldap_idmap_range_min of SSSD. A change renumbers all users and groups of \
         the domain. rosterd refuses it until the file id-slices in the directory of the domain is removed.",
    );
    LDAP_ID_MAX: u32 = ldap_key(
        "id_max",
        ValueKind::Integer { min: 1, max: ID_MAX },
        KeyDefault::Value("2000200000"),
        "End of the ids of id_mapping = \"sid\": ldap_idmap_range_max of SSSD. Ids stay below. A change renumbers, too.",
    );
    LDAP_ID_RANGE: u32 = ldap_key(
        "id_range",
        ValueKind::Integer { min: 1000, max: 429_496_729 },
        KeyDefault::Value("200000"),
        "Ids of one slice: ldap_idmap_range_size of SSSD. The ids from id_min to id_max are cut into slices. Accounts \
         with a higher RID get further slices. A change renumbers, too.",
    );
    LDAP_ID_SLICE: u32 = ldap_key(
        "id_slice",
        ValueKind::Integer { min: 0, max: ID_MAX },
        KeyDefault::Absent,
        "Slice of the domain, counted from 0. Without this key the SID of the domain chooses a slice, as in SSSD. \
         Required if several domains with id_mapping = \"sid\" share ids. roster domain compare-ids shows the slices of \
         SSSD.",
    );
    LDAP_USER_BASE: Vec<SearchBase> = ldap_key(
        "user_base",
        ValueKind::Bases,
        KeyDefault::Follows("as base"),
        "Base of searches for users, in the same form.",
    );
    LDAP_USER_FILTER: String = ldap_key(
        "user_filter",
        ValueKind::Filter,
        KeyDefault::Follows("\"(objectClass=posixAccount)\"; with schema = \"ad\" user accounts of the domain"),
        "Entries that are users.",
    );
    LDAP_GROUP_BASE: Vec<SearchBase> = ldap_key(
        "group_base",
        ValueKind::Bases,
        KeyDefault::Follows("as base"),
        "Base of searches for groups, in the same form.",
    );
    LDAP_GROUP_FILTER: String = ldap_key(
        "group_filter",
        ValueKind::Filter,
        KeyDefault::Follows("\"(objectClass=posixGroup)\"; with schema = \"ad\" security groups of the domain"),
        "Entries that are groups.",
    );
    LDAP_NESTED_GROUP_FILTER: String = ldap_key(
        "nested_group_filter",
        ValueKind::Filter,
        KeyDefault::Follows(
            "\"(|(objectClass=posixGroup)(objectClass=groupOfNames)\
             (objectClass=groupOfUniqueNames)(objectClass=groupOfMembers))\"; with schema = \"ad\" security groups",
        ),
        "Groups without gidNumber that only nest. Programs do not see them. Other groups have their members, and \
         access rules may name them. If a group with a gidNumber has the same name, a rule means that one. Every group \
         without gidNumber that group_filter matches only nests, too.",
    );
    LDAP_BIND: String = ldap_key(
        "bind",
        ValueKind::Choice { noun: "bind method", of: &["anonymous", "simple", "external", "gssapi"] },
        KeyDefault::Follows("simple with bind_dn, otherwise anonymous"),
        "Bind method. external is SASL EXTERNAL: as the backend's uid over ldapi://, as tls_cert over TLS. gssapi is \
         SASL GSSAPI with a key of krb5_keytab. It also encrypts connections without TLS.",
    );
    LDAP_BIND_PRINCIPAL: String = ldap_key(
        "bind_principal",
        ValueKind::Principal,
        KeyDefault::Absent,
        "Principal of bind = \"gssapi\", with a key in krb5_keytab. Without @REALM it belongs to krb5_realm. Without \
         this key, the KDC decides among the principals of the keytab, host/... before others.",
    );
    LDAP_BIND_DN: String = ldap_key("bind_dn", ValueKind::Dn, KeyDefault::Absent, "DN of the reader.");
    LDAP_BIND_PASSWORD_FILE: SecretFile = ldap_key(
        "bind_password_file",
        ValueKind::SecretFile,
        KeyDefault::Absent,
        "File with the reader's password and at most one newline. Other users must not be able to read it: mode 0600.",
    );
    LDAP_START_TLS: bool = ldap_key(
        "start_tls",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Use StartTLS on ldap:// connections. The server's certificate is checked against its name, as with ldaps://.",
    );
    LDAP_TLS_CA: PathBuf = ldap_key(
        "tls_ca",
        ValueKind::Path,
        KeyDefault::Follows("the host's own authorities"),
        "Trusted certificate authorities, in PEM. The host's own authorities are read for each connection.",
    );
    LDAP_TLS_CERT: PathBuf = ldap_key(
        "tls_cert",
        ValueKind::Path,
        KeyDefault::Absent,
        "Client certificate for servers that request one, in PEM, followed by those of its authorities. The monitor \
         checks it and tls_key for changes every ten seconds.",
    );
    LDAP_TLS_KEY: SecretFile = ldap_key(
        "tls_key",
        ValueKind::SecretFile,
        KeyDefault::Absent,
        "Private key of tls_cert, in PEM without a passphrase. Other users must not be able to read it: mode 0600.",
    );
    LDAP_ALLOW_CLEAR_PASSWORD: bool = ldap_key(
        "allow_clear_password",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Send the bind password without TLS. Each router on the path can read it. Loopback and ldapi:// always count \
         as protected.",
    );
    LDAP_ALLOW_CLEAR_IDENTITIES: bool = ldap_key(
        "allow_clear_identities",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Receive users and groups without TLS. Each router on the path can change them.",
    );
    LDAP_ALLOW_CLEAR_USER_PASSWORDS: bool = ldap_key(
        "allow_clear_user_passwords",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Send users' passwords without TLS. Each router on the path can read them. Only with auth = \"ldap\".",
    );
    LDAP_PASSWORD_CHANGE: String = ldap_key(
        "password_change",
        ValueKind::Choice { noun: "operation", of: &["extended", "modify"] },
        KeyDefault::Value("\"extended\""),
        "LDAP operation of password changes. extended is the password modify operation (RFC 3062). modify replaces \
         userPassword. The server then hashes the new password, or stores it in clear text. Only with auth = \"ldap\".",
    );
    LDAP_CHANGE_EXPIRED_PASSWORD: bool = ldap_key(
        "change_expired_password",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Let a user change a password that the server refuses because it has expired, without grace logins. Roster \
         then sends the old and the new password over the connection of the refused bind. If the server forbids that, \
         Roster sends them with the rights of the reader. Only with auth = \"ldap\" and password_change = \"extended\".",
    );
    LDAP_UPDATE_SHADOW_LAST_CHANGE: String = ldap_key(
        "update_shadow_last_change",
        ValueKind::Choice { noun: "mode", of: &["auto", "never"] },
        KeyDefault::Value("\"auto\""),
        "auto: a password change writes the day to shadowLastChange if the entry has it, with the rights of the user. \
         Only with auth = \"ldap\".",
    );
    LDAP_PAGE_SIZE: u32 = ldap_key(
        "page_size",
        ValueKind::Integer { min: 1, max: 1_000_000 },
        KeyDefault::Value("1000"),
        "Entries per page of a paged search.",
    );
    LDAP_CONNECT_TIMEOUT: Duration = ldap_key(
        "connect_timeout",
        duration_between(MILLIS_100, Duration::from_secs(300)),
        KeyDefault::Value("\"5s\""),
        "Limit for connection, TLS, bind and first reply together, before the next server is tried.",
    );
    LDAP_SEARCH_TIMEOUT: Duration = ldap_key(
        "search_timeout",
        duration_between(SECOND, HOUR),
        KeyDefault::Value("\"30s\""),
        "Limit for one search of a lookup, and for silence within a reply to the mirror. Independent of it, the \
         backend sends a small search after 4 s of silence and waits 5 s for the reply.",
    );
    LDAP_POLL: Duration = ldap_key(
        "poll_interval",
        duration_between(SECOND, DAY),
        KeyDefault::Follows("\"30s\"; with schema = \"ad\" \"1s\""),
        "Poll interval for a server without content synchronization and persistent search. Every tenth poll compares \
         the keys and stamps of all entries, so a removal shows within ten intervals. With schema = \"ad\" the \
         interval varies by a fifth, and reconcile_interval has the comparisons. With any server, also the \
         interval at which unusual containers are checked for renames.",
    );
    LDAP_SWEEP: Duration = ldap_key(
        "reconcile_interval",
        duration_between(SECOND, DAY),
        KeyDefault::Follows("\"15m\"; with schema = \"ad\" \"5m\""),
        "Interval at which a mirror lists the keys of all entries, to find changes that servers do not report. With \
         content synchronization it varies by a fifth. A slow server is asked less often, for at most 1/200 of the \
         time. See docs/reference/directory-servers.md.",
    );
    LDAP_FULL_REFRESH: Duration = ldap_key(
        "full_refresh_interval",
        duration_between(Duration::ZERO, MONTH),
        KeyDefault::Value("\"1d\""),
        "Interval at which a mirror reads everything again, varied by a fifth. It publishes nothing if nothing \
         differs. 0 disables it.",
    );
    LDAP_FAIL_BACK: Duration = ldap_key(
        "failback_interval",
        duration_between(SECOND, DAY),
        KeyDefault::Value("\"30s\""),
        "Interval at which a preferred server is tried again. It doubles after each failure, up to 1 h. A server that \
         three DNS replies in a row omit is left as soon as another one answers. DNS is asked as often, or after the \
         reply's TTL, which counts up to 1 h.",
    );
    LDAP_MESSAGE_BYTES_MAX: u32 = ldap_key(
        "message_bytes_max",
        ValueKind::Integer { min: 65_536, max: 1 << 30 },
        KeyDefault::Value("67108864"),
        "Largest accepted message in bytes. The largest group must fit.",
    );
    ATTRIBUTE_USER_NAME: String = attribute_key("user_name", KeyDefault::Follows("\"uid\"; with schema = \"ad\" \"sAMAccountName\""), "Login name.");
    ATTRIBUTE_USER_UID: String = attribute_key("user_uid", KeyDefault::Follows("\"uidNumber\"; with id_mapping = \"sid\" objectSid"), "User id.");
    ATTRIBUTE_USER_GID: String = attribute_key(
        "user_gid",
        KeyDefault::Follows("\"gidNumber\"; with id_mapping = \"sid\" primaryGroupID"),
        "Id of the primary group.",
    );
    ATTRIBUTE_USER_GECOS: String = attribute_key(
        "user_gecos",
        KeyDefault::Value("\"gecos\""),
        "Full name and further text.",
    );
    ATTRIBUTE_USER_HOME: String = attribute_key("user_home", KeyDefault::Follows("\"homeDirectory\"; with schema = \"ad\" \"unixHomeDirectory\""), "Home directory.");
    ATTRIBUTE_USER_SHELL: String = attribute_key("user_shell", KeyDefault::Value("\"loginShell\""), "Shell.");
    ATTRIBUTE_GROUP_NAME: String = attribute_key("group_name", KeyDefault::Follows("\"cn\"; with schema = \"ad\" \"sAMAccountName\""), "Name of a group.");
    ATTRIBUTE_GROUP_GID: String = attribute_key("group_gid", KeyDefault::Follows("\"gidNumber\"; with id_mapping = \"sid\" objectSid"), "Group id.");
    ATTRIBUTE_UUID: String = attribute_key(
        "uuid",
        KeyDefault::Follows("entryUUID, nsUniqueId or another that the server has"),
        "Key of an entry that survives a rename.",
    );
    ATTRIBUTE_SSH_KEY: String = attribute_key(
        "ssh_key",
        KeyDefault::Value("\"sshPublicKey\""),
        "Keys for sshd, one per value.",
    );
    ATTRIBUTE_SHADOW_LAST_CHANGE: String = attribute_key(
        "shadow_last_change",
        KeyDefault::Value("\"shadowLastChange\""),
        "Day of the last password change, see shadow(5).",
    );
    ATTRIBUTE_SHADOW_MAX: String = attribute_key(
        "shadow_max",
        KeyDefault::Value("\"shadowMax\""),
        "Days until the password must be changed.",
    );
    ATTRIBUTE_SHADOW_WARNING: String = attribute_key(
        "shadow_warning",
        KeyDefault::Value("\"shadowWarning\""),
        "Days of warning before that.",
    );
    ATTRIBUTE_SHADOW_INACTIVE: String = attribute_key(
        "shadow_inactive",
        KeyDefault::Value("\"shadowInactive\""),
        "Days after that in which the password can still be changed.",
    );
    ATTRIBUTE_SHADOW_EXPIRE: String = attribute_key(
        "shadow_expire",
        KeyDefault::Value("\"shadowExpire\""),
        "Day on which the account expires.",
    );
    ATTRIBUTE_LOCKED_TIME: String = attribute_key(
        "locked_time",
        KeyDefault::Value("\"pwdAccountLockedTime\""),
        "Time at which the password policy locked the account.",
    );
    ATTRIBUTE_PASSWORD_RESET: String = attribute_key(
        "password_reset",
        KeyDefault::Value("\"pwdReset\""),
        "The password must be changed at the next login.",
    );
    ATTRIBUTE_ACCOUNT_LOCK: String = attribute_key(
        "account_lock",
        KeyDefault::Value("\"nsAccountLock\""),
        "Administrative lock of 389 Directory Server and FreeIPA.",
    );
    ATTRIBUTE_ROLE: String = attribute_key(
        "role",
        KeyDefault::Value("\"nsRole\""),
        "Roles. nsManagedDisabledRole, nsNestedDisabledRole and nsDisabledRole lock the account.",
    );
    ATTRIBUTE_ACCOUNT_CONTROL: String = attribute_key(
        "account_control",
        KeyDefault::Value("\"userAccountControl\""),
        "Active Directory: bits for disabled and locked accounts and expired passwords.",
    );
    ATTRIBUTE_ACCOUNT_EXPIRES: String = attribute_key(
        "account_expires",
        KeyDefault::Value("\"accountExpires\""),
        "Active Directory: expiry of the account.",
    );
    ATTRIBUTE_ACCOUNT_CONTROL_COMPUTED: String = attribute_key(
        "account_control_computed",
        KeyDefault::Value("\"msDS-User-Account-Control-Computed\""),
        "Active Directory: bits for accounts locked after failures and for expired passwords.",
    );
    ATTRIBUTE_LOCKOUT_TIME: String = attribute_key(
        "lockout_time",
        KeyDefault::Value("\"lockoutTime\""),
        "Active Directory: time of the lock after failures.",
    );
    ATTRIBUTE_HOST: String = attribute_key(
        "host",
        KeyDefault::Value("\"host\""),
        "Hosts that the user may log in to, for the account check host.",
    );
    ATTRIBUTE_AUTHORIZED_SERVICE: String = attribute_key(
        "authorized_service",
        KeyDefault::Value("\"authorizedService\""),
        "PAM services that the user may use, for the account check authorized-service.",
    );
    ATTRIBUTE_RHOST: String = attribute_key(
        "rhost",
        KeyDefault::Value("\"rhost\""),
        "Hosts that the user may log in from, for the account check rhost.",
    );
    OVERRIDE_USER_NAME: String = override_key(
        ConfigTable::OverrideUser,
        "name",
        ValueKind::Text,
        "User name, without the domain.",
    );
    OVERRIDE_USER_UID: u32 =
        override_key(ConfigTable::OverrideUser, "uid", OVERRIDE_ID, "User id. Only in a domain with mode = \"replicate\".");
    OVERRIDE_USER_GID: u32 =
        override_key(ConfigTable::OverrideUser, "gid", OVERRIDE_ID, "Primary group id. Only in a domain with mode = \"replicate\".");
    OVERRIDE_USER_GECOS: String =
        override_key(ConfigTable::OverrideUser, "gecos", ValueKind::Text, "GECOS, as a rule the full name.");
    OVERRIDE_USER_HOME: String = override_key(
        ConfigTable::OverrideUser,
        "home",
        ValueKind::Text,
        "Home directory, without templates. It also replaces the value of home in [domain.NAME].",
    );
    OVERRIDE_USER_SHELL: String = override_key(
        ConfigTable::OverrideUser,
        "shell",
        ValueKind::Text,
        "Login shell. It also replaces the value of shell in [domain.NAME].",
    );
    OVERRIDE_GROUP_NAME: String = override_key(
        ConfigTable::OverrideGroup,
        "name",
        ValueKind::Text,
        "Group name, without the domain.",
    );
    OVERRIDE_GROUP_GID: u32 =
        override_key(ConfigTable::OverrideGroup, "gid", OVERRIDE_ID, "Group id. Only in a domain with mode = \"replicate\".");
    ACCESS_ENABLED: bool = table_key(
        ConfigTable::Access,
        "enabled",
        ValueKind::Boolean,
        KeyDefault::Follows("true if auth is set, or if this table has lists, a filter or services"),
        "Load account data and apply the rules. Set it for roster ssh-keys where other modules authenticate.",
    );
    ACCESS_ALLOWED_USERS: Vec<String> = list_key(
        ConfigTable::Access,
        "allowed_users",
        "Users that may log in. With this key or allowed_groups, all other users are denied. An overridden user has the \
         name of this host.",
    );
    ACCESS_ALLOWED_GROUPS: Vec<String> = list_key(
        ConfigTable::Access,
        "allowed_groups",
        "Groups of the domain with members that may log in. Nested and primary groups count. An overridden group has \
         the name of this host.",
    );
    ACCESS_DENIED_USERS: Vec<String> = list_key(
        ConfigTable::Access,
        "denied_users",
        "Users that may not log in, whatever other keys say. For an overridden user, the name in the directory denies, \
         too.",
    );
    ACCESS_DENIED_GROUPS: Vec<String> = list_key(
        ConfigTable::Access,
        "denied_groups",
        "Groups with members that may not log in. If the domain lacks such a group, every login is denied: a renamed \
         group must not open the host.",
    );
    ACCESS_FILTER: String = table_key(
        ConfigTable::Access,
        "filter",
        ValueKind::FilterTemplate,
        KeyDefault::Absent,
        "Filter that must match the user's entry, searched at each login. %{host} is the name of this host, as \
         hostname(1) prints it, in lower case. %{service} is the PAM service. While no server answers, the last result \
         counts for offline_credentials_expiration. A filter with %{service} has a last result for each service, of \
         the last 8 services of a user. Without a last result the login is denied. LDAP only.",
    );
    ACCESS_ACCOUNT_CHECKS: Vec<String> = table_key(
        ConfigTable::Access,
        "account_checks",
        ValueKind::Choices { noun: "account check", of: &AccountCheck::NAMES },
        KeyDefault::Value(
            "[\"shadow-expire\", \"password-policy\", \"account-lock\", \"active-directory\"]",
        ),
        "Attributes that decide about the account. shadow-expire: shadowExpire. password-policy: \
         pwdAccountLockedTime and pwdReset. account-lock: nsAccountLock and nsRole. active-directory: \
         userAccountControl, accountExpires and msDS-User-Account-Control-Computed with lockoutTime. password-age, not \
         in the default: shadowLastChange, shadowMax, shadowWarning and shadowInactive. A missing or unreadable \
         attribute denies no login. A malformed one does, and so does a missing userAccountControl with schema = \"ad\". \
         host, authorized-service and rhost, not in the default: the \
         attribute must list this host, the PAM service or the remote host. * allows all, and !VALUE denies whatever \
         else is listed. A user without a matching value is denied. A login without a remote host passes rhost.",
    );
    ACCESS_TEMPORARY_LOCK: Duration = table_key(
        ConfigTable::Access,
        "lockout_duration",
        duration_between(Duration::ZERO, YEAR),
        KeyDefault::Value("\"0s\""),
        "Value of pwdLockoutDuration in the server's password policy. 0 means that the lock lasts until the server \
         removes its mark. An administrator's lock always lasts until then.",
    );
    ACCESS_SSH_KEY_OPTIONS: Vec<String> = table_key(
        ConfigTable::Access,
        "ssh_key_options",
        ValueKind::KeyOptions,
        KeyDefault::Value("[]"),
        "Options of authorized_keys that keys in the directory may have, such as [\"from\", \"restrict\"]. roster \
         ssh-keys leaves out a key with another option.",
    );
    ACCESS_SSH_KEYS_OF_DENIED: bool = table_key(
        ConfigTable::Access,
        "ssh_keys_of_denied",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Let roster ssh-keys also print keys of users that may not log in by sshd. The PAM account stack must then \
         deny them.",
    );
    SERVICE_ALLOWED_USERS: Vec<String> = list_key(ConfigTable::Service, "allowed_users", "As in [domain.NAME.access].");
    SERVICE_ALLOWED_GROUPS: Vec<String> = list_key(
        ConfigTable::Service,
        "allowed_groups",
        "As in [domain.NAME.access].",
    );
    SERVICE_DENIED_USERS: Vec<String> = list_key(ConfigTable::Service, "denied_users", "As in [domain.NAME.access].");
    SERVICE_DENIED_GROUPS: Vec<String> = list_key(ConfigTable::Service, "denied_groups", "As in [domain.NAME.access].");
    PUBLISHER_INTERVAL: Duration = table_key(
        ConfigTable::Publisher,
        "interval",
        duration_between(MILLIS_100, HOUR),
        KeyDefault::Value("\"100ms\""),
        "Shortest time between two publications. A single change is published at once.",
    );
    PAM_ENABLED: bool = table_key(
        ConfigTable::ResponderPam,
        "enabled",
        ValueKind::Boolean,
        KeyDefault::Follows("true if a domain has auth or access rules"),
        "Let users of the domains log in through pam_roster(8).",
    );
    PAM_TRUSTED_USERS: Vec<String> = table_key(
        ConfigTable::ResponderPam,
        "trusted_users",
        ValueKind::Users,
        KeyDefault::Value("[]"),
        "Local users with programs that may ask about any user, as root may: a web server, the helper of a screen \
         locker. A trusted user can try passwords of all users. Other users may ask about themselves alone.",
    );
    PAM_TIMEOUT: Duration = table_key(
        ConfigTable::ResponderPam,
        "timeout",
        duration_between(SECOND, MINUTE),
        KeyDefault::Value("\"25s\""),
        "Longest time until a reply. pam_roster(8) waits 30 s.",
    );
    PAM_TRIES_PER_MINUTE: u32 = table_key(
        ConfigTable::ResponderPam,
        "auth_attempts_per_minute",
        ValueKind::Integer { min: 1, max: 10_000 },
        KeyDefault::Value("20"),
        "Passwords that an untrusted user may try in a minute, and as many at once. Further ones are refused without \
         a check.",
    );
    METRICS_LISTEN: ListenAddress = table_key(
        ConfigTable::Metrics,
        "listen",
        ValueKind::Listen,
        KeyDefault::Required,
        "Address of the metrics: a socket such as \"unix:/run/roster/metrics\", or a loopback address such as \
         \"127.0.0.1:9273\". Without the table rosterd serves no metrics.",
    );
    LOG_LEVEL: String = table_key(
        ConfigTable::Log,
        "level",
        ValueKind::Choice { noun: "level", of: &["error", "warn", "info", "debug", "trace"] },
        KeyDefault::Value("\"info\""),
        "Log level. roster log-level changes it at run time. A reload with another level resets \
         that change.",
    );
    LOG_JSON: bool = table_key(
        ConfigTable::Log,
        "json",
        ValueKind::Boolean,
        KeyDefault::Value("false"),
        "Write JSON lines to standard error. The journal gets fields in any case.",
    );
}

/// Returns the keys of a table.
pub fn keys_of(table: ConfigTable) -> impl Iterator<Item = &'static ConfigKey> {
    KEYS.iter().filter(move |key| key.table == table)
}
