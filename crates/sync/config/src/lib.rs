// SPDX-License-Identifier: MIT OR Apache-2.0
//! roster.toml as checked values, for the monitor and the roles. This crate acts on no setting: its users do.
//!
//! [`ConfigFiles`] reads the files. [`parse_files`] parses their text. It returns a valid [`Config`], or all mistakes,
//! each with code, file, line and fix. It opens no file. [`ParsedConfig::read_secrets`] reads the files with passwords and
//! certificates. [`check_ownership`] checks owner and mode of a file.
//!
//! [`keys`] declares every key with its type, default and description, from which the manual is generated. `merge`
//! combines several files. `value_syntax` parses the contents of values, and `toml_section` converts TOML to values.
//! `load` and `domain` derive values from others. [`explain`] formats the result.
#![forbid(unsafe_code)]

mod access;
mod client_certificate;
mod config_files;
mod diagnostic;
mod domain;
pub mod explain;
pub mod filter_template;
mod id_mapping;
pub mod keys;
mod keytab;
pub mod ldap_filter;
mod load;
mod merge;
mod overrides;
mod overrides_file;
mod ownership;
mod schema_defaults;
mod search_bases;
mod secret_files;
mod serving;
mod toml_section;
mod value_syntax;

pub use access::ListNames;
pub use client_certificate::{CertificateError, ClientCertificate};
pub use config_files::{ConfigFiles, ConfigReadError, FileTree, MAIN_PATH, VENDOR_DIRECTORY};
pub use id_mapping::{IdMapping, SidMapping};
pub use keytab::{KEYTAB_MARK, KeytabState, VerificationProblem, was_keytab_used};
pub use load::{ParsedConfig, parse, parse_files};
pub use overrides::{GroupOverride, LocalOverrides, OverridesConfig, UserOverride};
pub use overrides_file::read_overrides_file;
pub use ownership::check_ownership;
pub use schema_defaults::DirectorySchema;
pub use secret_files::{credentials_directory, host_anchors, trust_anchors};
pub use serving::{AllowedShells, ETC_SHELLS, ServingConfig, ShellRules};

use roster_messages::CodedError;
use roster_messages::table::config as codes;
use roster_snapshot::Floor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A whole configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// `[host]`.
    pub host: HostConfig,
    /// The domains in `[host] domains`, in order of precedence.
    pub domains: Vec<DomainConfig>,
    /// `[publisher]`.
    pub publisher: PublisherConfig,
    /// `[responder.pam]`. `None` if PAM logins are disabled, the default without a domain with logins.
    pub pam: Option<PamConfig>,
    /// `[metrics]`. `None` unless configured.
    pub metrics: Option<MetricsConfig>,
    /// `[log]`.
    pub log: LogConfig,
}

/// Limit of the path of the responder's socket. The header of a snapshot has this many bytes for it, without the NUL.
pub const RESPONDER_PATH_MAX: usize = 79;

impl Config {
    /// Returns the socket on which the responder serves on-demand domains. `None` without such a domain.
    ///
    /// # Errors
    ///
    /// The path is too long for a snapshot.
    pub fn responder_path(&self, run_dir: &Path) -> Result<Option<PathBuf>, CodedError> {
        if self.domains.iter().all(|domain| domain.mode != DomainMode::OnDemand) {
            return Ok(None);
        }
        let path = run_dir.join("nss");
        let bytes = path.as_os_str().len();
        if bytes > RESPONDER_PATH_MAX {
            return Err(CodedError::new(
                &codes::RESPONDER_PATH_TOO_LONG,
                format!(
                    "the socket path {} has {bytes} bytes; the limit is {RESPONDER_PATH_MAX}",
                    path.display()
                ),
            ));
        }
        Ok(Some(path))
    }
}

/// `[host]`: settings for all domains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostConfig {
    /// The domain with the highest priority for names. `None` is the first one.
    pub default_domain: Option<String>,
    /// Smallest uid and gid of directory entries.
    pub min_id: u32,
    /// Largest uid and gid.
    pub max_id: u32,
    /// Gids below `min_id`, or of local groups, that a directory user may have as primary group.
    pub allowed_local_gids: Vec<u32>,
    /// Entries that are also served.
    pub exceptions: AdmissionExceptions,
    /// File of the host's own users, which take precedence over directory users.
    pub passwd: PathBuf,
    /// File of the host's own groups.
    pub group: PathBuf,
    /// Ranges of uids that the host's own users have in user namespaces.
    pub subuid: PathBuf,
    /// Ranges of gids that the host's own users have in user namespaces.
    pub subgid: PathBuf,
}

/// Entries that are served although a rule denies them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionExceptions {
    /// Primary gids of local users without a line in the group file.
    pub unnamed_gids: Vec<u32>,
    /// Ids within the ranges of `subuid` and `subgid`.
    pub subordinate_ids: bool,
    /// Names of privileged accounts.
    pub names: Vec<String>,
    /// ASCII characters of names.
    pub name_characters: String,
}

/// Gid of the group `users`, which most distributions use for all human users.
pub const USERS_GID: u32 = 100;

impl HostConfig {
    /// Returns the allowed primary gids below `min_id`, and [`USERS_GID`]. The publisher allows that gid by the name of
    /// the host's group.
    fn allowed_gids_below(&self) -> impl Iterator<Item = u32> {
        let other = |gid: &u32| *gid != USERS_GID;
        let allowed = self.allowed_local_gids.iter().copied().filter(other);
        allowed.chain([USERS_GID]).filter(|&gid| gid < self.min_id)
    }

    /// Returns the floor of this host: the ids that programs accept in a snapshot that root does not own. It allows at
    /// least the ids that the publisher admits.
    #[must_use]
    pub fn floor(&self) -> Floor {
        Floor::new(self.min_id, self.allowed_gids_below()).unwrap_or_default()
    }
}

/// `[domain.NAME]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainConfig {
    /// `[a-z0-9][a-z0-9._-]*`, at most 64 bytes.
    pub name: String,
    /// Smallest uid and gid of this domain, at least the host's minimum.
    pub min_id: u32,
    /// Largest uid and gid, at most the host's maximum.
    pub max_id: u32,
    /// Names of its users and groups.
    pub names: NameConfig,
    /// Mirrored or on demand.
    pub mode: DomainMode,
    /// Users that get a private group.
    pub private_groups: PrivateGroups,
    /// Home directory and shell of its users.
    pub overrides: HomeShellOverrides,
    /// Rules for the entries that are served.
    pub serving: ServingConfig,
    /// Values of single entries.
    pub local_overrides: OverridesConfig,
    /// Share of the domain's entries, 0 to 1. Removals beyond it at once wait for an approval.
    pub mass_deletion: f64,
    /// On demand: the interval at which used entries are refreshed.
    pub refresh: Duration,
    /// On demand: time for which the absence of a name is cached.
    pub negative: Duration,
    /// On demand: the treatment of unknown names while no server replies.
    pub when_away: WhenAway,
    /// The source of the entries.
    pub provider: ProviderConfig,
    /// Authentication and cached credentials.
    pub auth: AuthConfig,
    /// `[domain.NAME.access]`: the access rules.
    pub access: AccessConfig,
}

/// `private_groups = …`: the users that get a group with their name, and with their uid as gid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PrivateGroups {
    /// No user.
    #[default]
    Off,
    /// All users. The primary gid of the directory is ignored.
    Always,
    /// Users with equal uid and primary gid, unless the directory has a group with that gid.
    SameId,
}

/// Names of the users and groups of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameConfig {
    /// Treatment of case.
    pub case: NameCase,
    /// Another name of the domain. Empty without one.
    pub short_name: String,
    /// Names are served with the domain only.
    pub qualified: bool,
    /// Names of digits only are served.
    pub numeric: bool,
    /// Names with spaces within are served, as Active Directory has them.
    pub spaces: bool,
}

/// `case = …`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameCase {
    /// Names that differ by case are different.
    #[default]
    Sensitive,
    /// Names are served in lower case, and found in any spelling.
    Insensitive,
    /// Names are served as the directory spells them, and found in any spelling.
    Preserving,
}

impl NameCase {
    /// Returns whether any spelling of a name finds an entry.
    #[must_use]
    pub fn ignores_case(self) -> bool {
        self != Self::Sensitive
    }
}

impl DomainConfig {
    /// Returns the path of the domain's table, as in [`EffectiveSetting`](explain::EffectiveSetting).
    #[must_use]
    pub fn table_path(&self) -> String {
        toml_section::domain_path(&self.name)
    }

    /// Returns whether users of the domain log in here. Then their account data are cached.
    #[must_use]
    pub fn has_logins(&self) -> bool {
        self.access.enabled
    }
}

/// `[domain.NAME.access]`: the access rules. All of them have to allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessConfig {
    /// Users of the domain log in here.
    pub enabled: bool,
    /// Lists of users and groups, for every service.
    pub lists: AccessLists,
    /// The directory has to find the user by this filter.
    pub filter: Option<String>,
    /// The checks of the account.
    pub account_checks: Vec<AccountCheck>,
    /// Duration of a server's lock after too many failures. Zero means until an administrator removes it.
    pub temporary_lock: Duration,
    /// Options that an ssh key may have.
    pub ssh_key_options: Vec<String>,
    /// sshd also gets the keys of users that may not log in.
    pub ssh_keys_of_denied: bool,
    /// Further lists for single PAM services.
    pub services: BTreeMap<String, AccessLists>,
}

/// Lists of users and groups that may or may not log in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessLists {
    /// Only these users and the members of `allowed_groups` may log in. Without both lists, all users may.
    pub allowed_users: Option<Vec<String>>,
    /// Members of these groups may log in, directly or through nested groups.
    pub allowed_groups: Option<Vec<String>>,
    /// Users that may not log in, independent of the other lists.
    pub denied_users: Option<Vec<String>>,
    /// Members of these groups may not log in.
    pub denied_groups: Option<Vec<String>>,
}

/// A check of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccountCheck {
    /// `shadowExpire`.
    ShadowExpire,
    /// `shadowLastChange` with `shadowMax`, `shadowWarning` and `shadowInactive`.
    PasswordAge,
    /// `pwdAccountLockedTime` and `pwdReset`.
    PasswordPolicy,
    /// `nsAccountLock` and locking roles.
    AccountLock,
    /// `userAccountControl` and `accountExpires`.
    ActiveDirectory,
    /// `host`, against the names of this host.
    Host,
    /// `authorizedService`, against the PAM service.
    AuthorizedService,
    /// `rhost`, against the remote host of the login.
    RemoteHost,
}

/// Authentication and cached credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthConfig {
    /// The method.
    pub method: AuthMethod,
    /// Timeout of a server that is reachable.
    pub timeout: Duration,
    /// Cached credentials for logins without the directory. `None` disables them.
    pub offline: Option<OfflineConfig>,
    /// The realm of [`AuthMethod::Krb5`].
    pub krb5: Option<Box<Krb5Config>>,
}

/// `auth = …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthMethod {
    /// No authentication.
    None,
    /// The directory, by a bind as the user.
    Ldap,
    /// The KDC of a realm.
    Krb5,
}

/// Keys of `auth = "krb5"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Krb5Config {
    /// The realm of users.
    pub realm: String,
    /// KDCs in order of preference, `HOST:PORT`.
    pub kdcs: Vec<String>,
    /// Servers that change passwords, in the same form. If empty, the hosts of `kdcs` with the usual port.
    pub kpasswd: Vec<String>,
    /// DNS is queried for more of both.
    pub discover: bool,
    /// The keytab of this host.
    pub keytab: SecretFile,
    /// Conditions for a KDC to prove its identity by the keytab. Always, with a `fast_principal`.
    pub validate: KdcValidation,
    /// Principal in the keytab. Its ticket armors each login. Without `@REALM` it belongs to `realm`.
    pub fast_principal: Option<String>,
    /// Name of the credential cache, with `%{uid}`. `None` stores no tickets.
    pub cache: Option<String>,
    /// Lifetime of tickets. Zero means the KDC's default.
    pub lifetime: Duration,
    /// Time for which tickets are renewable.
    pub renewable: Duration,
    /// Tickets are forwardable.
    pub forwardable: bool,
}

/// `krb5_validate = …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KdcValidation {
    /// After this host has used a keytab once.
    Auto,
    /// Always.
    Required,
    /// Never.
    Off,
}

/// Cached credentials for logins without the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfflineConfig {
    /// Time for which they are valid after the last online login.
    pub life: Duration,
    /// Consecutive wrong passwords before the user is locked out.
    pub failures: u32,
    /// Duration of the lockout.
    pub lockout: Duration,
    /// Target duration of one hash on this host.
    pub hash_time: Duration,
}

/// The way to obtain the entries of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DomainMode {
    /// The whole domain is mirrored.
    Replicate,
    /// Single entries are looked up.
    OnDemand,
}

/// The treatment of unknown names while no server of an on-demand domain replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhenAway {
    /// Lookups of unknown names fail.
    Wait,
    /// The next domains answer.
    Next,
}

/// Home directories and shells that replace the directory's values. In templates `%u` is the user name, `%U` the uid,
/// `%d` the domain, `%o` the original value, `%%` a percent sign. In home directories `%f` is the name with the domain,
/// `%l` the first letter of the name, `%h` the original value in lower case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HomeShellOverrides {
    /// Home directory of every user.
    pub home: Option<String>,
    /// Home directory of users without one in the directory.
    pub fallback_home: Option<String>,
    /// Shell of every user.
    pub shell: Option<String>,
    /// Shell of users without one in the directory.
    pub fallback_shell: Option<String>,
}

/// `provider = …` with its keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ProviderConfig {
    /// Text of passwd(5) and group(5).
    Files(FilesConfig),
    /// An LDAP directory.
    Ldap(Box<LdapConfig>),
}

/// Keys of the `files` provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilesConfig {
    /// File of users.
    pub passwd: PathBuf,
    /// File of groups.
    pub group: PathBuf,
}

/// The search for controllers of an Active Directory domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerDiscovery {
    /// The site of this host. `None` lets a controller report it.
    pub site: Option<String>,
}

/// Keys of the `ldap` provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LdapConfig {
    /// The schema, and the source of ids.
    pub schema: DirectorySchema,
    /// Servers in order of preference.
    pub servers: Vec<LdapServer>,
    /// Domain with SRV records `_ldap._tcp` for further servers.
    pub discover: Option<String>,
    /// Search for controllers by site, if `discover` names a domain of Active Directory.
    pub controllers: Option<ControllerDiscovery>,
    /// Bases of all searches.
    pub bases: Vec<SearchBase>,
    /// Bases and filter of users. By default the common bases and all users.
    pub users: SearchConfig,
    /// Bases and filter of groups.
    pub groups: SearchConfig,
    /// Filter of groups without gid, which only nest.
    pub nested_group_filter: String,
    /// Names of attributes, from `[domain.NAME.attributes]`.
    pub attributes: AttributeNames,
    /// Attributes that list the members of a group.
    pub member_attributes: Vec<MemberAttribute>,
    /// Members in a request, with Active Directory.
    pub member_range: u32,
    /// The source of uids and gids.
    pub id_mapping: IdMapping,
    /// The bind method.
    pub bind: BindMethod,
    /// StartTLS. LDAPS depends on the server's URI instead.
    pub start_tls: bool,
    /// File of certificate authorities in PEM format. `None` uses the host's authorities. A role gets its text in
    /// [`DomainSecrets`].
    pub tls_ca: Option<PathBuf>,
    /// The certificate that servers may request. A role gets it in [`DomainSecrets`].
    pub client_certificate: Option<ClientCertificateFiles>,
    /// A simple bind may send its password in clear text.
    pub allow_clear_password: bool,
    /// Users and groups may be read over a network without TLS.
    pub allow_clear_identities: bool,
    /// Users' passwords may be sent in clear text.
    pub allow_clear_user_passwords: bool,
    /// Changes of users' passwords.
    pub password_change: PasswordChangeConfig,
    /// Entries in a page of paged results.
    pub page_size: u32,
    /// Timeout of connection, TLS, bind and first reply together.
    pub connect_timeout: Duration,
    /// Timeout of one search, and of the silence during one.
    pub search_timeout: Duration,
    /// Interval of polls for changes that the server does not report: all changes, or moves of containers of unusual
    /// classes.
    pub poll: Duration,
    /// Interval of key reconciliation, beside the reported changes.
    pub sweep: Duration,
    /// Interval of full refreshes of a mirror. Zero disables them.
    pub full_refresh: Duration,
    /// Interval of attempts to use a preferred server.
    pub fail_back: Duration,
    /// Limit of a message from a server, in bytes.
    pub message_bytes_max: u32,
}

/// Changes of users' passwords, with `auth = "ldap"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordChangeConfig {
    /// The LDAP operation.
    pub operation: PasswordOperation,
    /// An expired password may be changed.
    pub after_expiry: bool,
    /// A change writes the day to `shadowLastChange`.
    pub writes_shadow_day: bool,
}

/// `password_change = …`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PasswordOperation {
    /// The password modify operation (RFC 3062).
    #[default]
    Extended,
    /// A modification of `userPassword`.
    Modify,
}

/// A server in `uris`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LdapServer {
    /// `ldap://HOST[:PORT]`.
    Ldap {
        /// Name or address, IPv6 without brackets.
        host: String,
        /// The port, by default 389.
        port: u16,
    },
    /// `ldaps://HOST[:PORT]`.
    Ldaps {
        /// Name or address, IPv6 without brackets.
        host: String,
        /// The port, by default 636.
        port: u16,
    },
    /// `ldapi://%2Fpath`.
    Ldapi {
        /// The path of the socket.
        path: PathBuf,
    },
}

impl LdapServer {
    /// Returns whether the server is reached without a network: by a socket of this host, or by a loopback address.
    #[must_use]
    pub fn is_this_host(&self) -> bool {
        match self {
            Self::Ldapi { .. } => true,
            Self::Ldap { host, .. } | Self::Ldaps { host, .. } => match host.parse::<IpAddr>() {
                Ok(address) => address.is_loopback(),
                Err(_) => is_loopback_name(host),
            },
        }
    }
}

/// Returns whether a name stands for the loopback addresses of this host (RFC 6761, 6.3). Another address from a
/// resolver does not count.
#[must_use]
pub fn is_loopback_name(host: &str) -> bool {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Formats the URI, without the default port of its scheme.
impl fmt::Display for LdapServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port, usual) = match self {
            Self::Ldap { host, port } => ("ldap", host, *port, 389),
            Self::Ldaps { host, port } => ("ldaps", host, *port, 636),
            Self::Ldapi { path } => {
                return write!(f, "ldapi://{}", path.to_string_lossy().replace('/', "%2F"));
            }
        };
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]")?,
            false => write!(f, "{scheme}://{host}")?,
        }
        if port == usual { Ok(()) } else { write!(f, ":{port}") }
    }
}

/// Bases and filter of searches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchConfig {
    /// The bases.
    pub bases: Vec<SearchBase>,
    /// Filter in the syntax of RFC 4515.
    pub filter: String,
}

/// Limit of the bases of one key.
pub const SEARCH_BASES_MAX: usize = 8;

/// A base of searches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchBase {
    /// The base's DN.
    pub base: String,
    /// The entries below that count.
    pub scope: SearchScope,
    /// A further filter that entries must match.
    pub filter: Option<String>,
}

impl SearchBase {
    /// Returns a base with its whole subtree.
    #[must_use]
    pub fn subtree(base: &str) -> Self {
        Self { base: base.to_owned(), scope: SearchScope::Subtree, filter: None }
    }

    /// Returns whether a DN alone describes the base.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.scope == SearchScope::Subtree && self.filter.is_none()
    }
}

/// The entries of a base that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchScope {
    /// The entry of the base alone.
    Base,
    /// The entries directly below the base.
    One,
    /// The base and all entries below.
    Subtree,
}

impl SearchScope {
    /// The words of the configuration.
    pub(crate) const WORDS: [&str; 3] = ["subtree", "one", "base"];

    /// Returns the word of the configuration.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Subtree => "subtree",
            Self::One => "one",
            Self::Base => "base",
        }
    }

    pub(crate) fn from_word(word: &str) -> Self {
        match word {
            "one" => Self::One,
            "base" => Self::Base,
            _ => Self::Subtree,
        }
    }
}

/// An attribute in which groups name their members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAttribute {
    /// The attribute's name, lower case.
    pub name: String,
    /// The syntax of its values.
    pub values: MemberValues,
}

/// Syntax of the members in an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberValues {
    /// Users by name: `memberUid`.
    Names,
    /// Users and groups by DN: `member`.
    Dns,
    /// Users and groups by DN, with an optional UID (RFC 4517, 3.3.21): `uniqueMember`.
    DnsWithUids,
}

/// Names of attributes, lower case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // each is the attribute of that part of an entry
pub struct AttributeNames {
    pub user_name: String,
    pub user_uid: String,
    pub user_gid: String,
    pub user_gecos: String,
    pub user_home: String,
    pub user_shell: String,
    pub group_name: String,
    pub group_gid: String,
    pub ssh_key: String,
    pub shadow_last_change: String,
    pub shadow_max: String,
    pub shadow_warning: String,
    pub shadow_inactive: String,
    pub shadow_expire: String,
    pub locked_time: String,
    pub password_reset: String,
    pub account_lock: String,
    pub role: String,
    pub account_control: String,
    pub account_expires: String,
    pub account_control_computed: String,
    pub lockout_time: String,
    pub host: String,
    pub authorized_service: String,
    pub rhost: String,
    /// The permanent key. Without a configured one, it depends on the server.
    pub uuid: Option<String>,
}

/// The bind method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindMethod {
    /// Anonymous.
    Anonymous,
    /// DN and password.
    Simple {
        /// The bind DN.
        dn: String,
        /// The file with the password. A newline at its end is ignored.
        password_file: SecretFile,
    },
    /// SASL EXTERNAL, with the uid over ldapi, or with the client certificate over TLS.
    External,
    /// SASL GSSAPI with a key of this host. Connections without TLS are encrypted by it.
    Gssapi(Box<GssapiConfig>),
}

/// Keys of `bind = "gssapi"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GssapiConfig {
    /// The principal of this host. `None`: one of the keytab.
    pub principal: Option<String>,
    /// The realm of this host and of the servers.
    pub realm: String,
    /// KDCs in order of preference, `HOST:PORT`.
    pub kdcs: Vec<String>,
    /// DNS is queried for more KDCs.
    pub discover: bool,
    /// The keytab of this host.
    pub keytab: SecretFile,
}

/// The files of a client certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificateFiles {
    /// `tls_cert`: the certificate of this host, and those between it and an authority.
    pub certificate: PathBuf,
    /// `tls_key`: its private key.
    pub key: SecretFile,
}

/// The location of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecretFile {
    /// A file.
    Path(PathBuf),
    /// A credential of this name that systemd passes to the service.
    Credential(String),
}

/// `[publisher]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublisherConfig {
    /// Minimum time between the starts of two publications.
    pub interval: Duration,
}

/// `[responder.pam]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PamConfig {
    /// Local users with the right to log in other users by PAM.
    pub trusted_users: Vec<String>,
    /// Timeout of a PAM client.
    pub timeout: Duration,
    /// Passwords that an ordinary user may try in a minute.
    pub tries_per_minute: u32,
}

/// `[metrics]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsConfig {
    /// The address of the Prometheus text.
    pub listen: ListenAddress,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListenAddress {
    /// `unix:PATH`.
    Unix(PathBuf),
    /// `ADDRESS:PORT`, a loopback address.
    Tcp(std::net::SocketAddr),
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogConfig {
    /// error, warn, info, debug or trace.
    pub level: String,
    /// Log lines of JSON rather than text on stderr.
    pub json: bool,
}

/// Secrets that the monitor reads and passes to a backend, in place of the configured files. Never logged, hence no
/// `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainSecrets {
    /// Password of a simple bind.
    pub bind_password: Option<String>,
    /// The text of `tls_ca`.
    pub tls_ca: Option<String>,
    /// The state of `krb5_keytab` for logins, with its keys.
    pub keytab: KeytabState,
    /// The same for binds. [`KeytabState::None`] without `bind = "gssapi"`.
    pub bind_keytab: KeytabState,
    /// The content of `tls_cert` and `tls_key`.
    pub client_certificate: Option<ClientCertificate>,
}
