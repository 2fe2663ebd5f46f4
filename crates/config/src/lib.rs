//! roster.toml as values that were checked: what the daemon and its roles run by.
//!
//! [`parse`] reads the file's text and gives either a [`Config`] in which everything holds, or every
//! mistake that it found, each with its line and what to write instead. It opens no file.
//! [`Parsed::read_secrets`] reads the files with passwords and certificates; [`check_ownership`] checks the owner and
//! mode of a file.
//!
//! [`keys`] holds every key with its type, default and meaning, and is what the manual is made of;
//! `syntax` the small languages inside values; `read` turns TOML into values; `check` and `domain`
//! are what follows from what; [`explain`] prints what came out.
#![forbid(unsafe_code)]

mod access;
mod check;
mod domain;
pub mod explain;
pub mod filter;
pub mod keys;
mod keytab;
mod ownership;
mod problem;
mod read;
mod secrets;
mod syntax;

pub use check::{Parsed, parse};
pub use keytab::{KEYTAB_MARK, Keytab, Unverified, was_keytab_used};
pub use ownership::check_ownership;
pub use problem::{Problem, Severity};
pub use secrets::{NO_ANCHORS, host_anchors, trust_anchors};

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
    pub host: Host,
    /// The domains that `[host] domains` names, in order of precedence.
    pub domains: Vec<Domain>,
    /// `[publisher]`.
    pub publisher: Publisher,
    /// `[responder.pam]`; none where nobody logs in by it.
    pub pam: Option<Pam>,
    /// `[metrics]`; none unless configured.
    pub metrics: Option<Metrics>,
    /// `[responder.nscd]`; none unless enabled.
    pub nscd: Option<Nscd>,
    /// `[log]`.
    pub log: Log,
}

/// Longest path of the socket where programs ask: that of a snapshot's header, where they learn it, but
/// for the NUL.
pub const RESPONDER_PATH_MAX: usize = 79;

impl Config {
    /// Where programs ask about domains that are asked on demand; none when no domain is.
    ///
    /// # Errors
    ///
    /// The path has no room in a snapshot. Says what to do instead.
    pub fn responder(&self, run_dir: &Path) -> Result<Option<PathBuf>, String> {
        if self.domains.iter().all(|domain| domain.mode != Mode::OnDemand) {
            return Ok(None);
        }
        let path = run_dir.join("nss");
        if path.as_os_str().len() > RESPONDER_PATH_MAX {
            return Err(format!(
                "{}, where programs are to ask about such domains, has more than the \
                 {RESPONDER_PATH_MAX} bytes that a snapshot has room for; choose a --run-dir with a \
                 shorter path",
                path.display(),
            ));
        }
        Ok(Some(path))
    }
}

/// `[host]`: what holds for every domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Smallest uid and gid that a directory may give out.
    pub min_id: u32,
    /// Largest.
    pub max_id: u32,
    /// Gids below `min_id`, or of local groups, that a directory user may have as primary group.
    pub allowed_local_gids: Vec<u32>,
    /// What else of directories is served.
    pub exceptions: Exceptions,
    /// The host's own users, with which no directory user may clash.
    pub passwd: PathBuf,
    /// The host's own groups.
    pub group: PathBuf,
    /// Ranges of uids that the host's own users have in user namespaces.
    pub subuid: PathBuf,
    /// The same of gids.
    pub subgid: PathBuf,
}

/// Entries that are served although a rule refuses them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceptions {
    /// Primary gids of local users without a line in the group file.
    pub unnamed_gids: Vec<u32>,
    /// Ids within the ranges of `subuid` and `subgid`.
    pub subordinate_ids: bool,
    /// Names of privileged accounts.
    pub names: Vec<String>,
    /// ASCII characters of names.
    pub name_characters: String,
}

/// Gid of the group `users`, which most distributions have as a group of all people.
pub const USERS_GID: u32 = 100;

impl Host {
    /// The primary gids below `min_id` that are allowed, with [`USERS_GID`]: the publisher allows that one by the
    /// name of the host's group.
    fn gids_below(&self) -> impl Iterator<Item = u32> {
        let other = |gid: &u32| *gid != USERS_GID;
        let allowed = self.allowed_local_gids.iter().copied().filter(other);
        allowed.chain([USERS_GID]).filter(|&gid| gid < self.min_id)
    }

    /// The floor of this host: what programs accept of a snapshot that root does not own. It is at least as
    /// wide as what the publisher admits.
    #[must_use]
    pub fn floor(&self) -> Floor {
        Floor::new(self.min_id, self.gids_below()).unwrap_or_default()
    }
}

/// `[domain.NAME]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Domain {
    /// `[a-z0-9][a-z0-9._-]*`, at most 64 bytes.
    pub name: String,
    /// Smallest uid and gid taken from this domain, at least the host's.
    pub min_id: u32,
    /// Largest, at most the host's.
    pub max_id: u32,
    /// Whether the domain is mirrored or asked.
    pub mode: Mode,
    /// Home folder and shell of its users.
    pub overrides: Overrides,
    /// Share of the domain's entries, 0 to 1, whose removal at once waits for a confirmation.
    pub mass_deletion: f64,
    /// On demand: how often what was asked is asked again.
    pub refresh: Duration,
    /// On demand: how long a name that is not there is known not to be there.
    pub negative: Duration,
    /// Where the entries come from.
    pub provider: Provider,
    /// Who is asked about passwords, and what is kept of them.
    pub auth: Auth,
    /// `[domain.NAME.access]`: who may log in.
    pub access: Access,
}

impl Domain {
    /// Whether its users log in here: then it is kept what their accounts are.
    #[must_use]
    pub fn has_log_ins(&self) -> bool {
        self.access.enabled
    }
}

/// `[domain.NAME.access]`: who may log in. All of it has to agree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Whether users of the domain log in here.
    pub enabled: bool,
    /// By name and by group, for every service.
    pub lists: Lists,
    /// The directory has to find the user by this filter.
    pub filter: Option<String>,
    /// What of the account is looked at.
    pub account_checks: Vec<AccountCheck>,
    /// How long a server's lock after too many failures lasts; zero until it is taken away.
    pub temporary_lock: Duration,
    /// Options that may stand in front of an ssh key.
    pub ssh_key_options: Vec<String>,
    /// Whether ssh keys are told of users who may not in.
    pub ssh_keys_of_denied: bool,
    /// Further lists for single PAM services.
    pub services: BTreeMap<String, Lists>,
}

/// Who may in and who may not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lists {
    /// These users may, and nobody else but who is in `allowed_groups`; everybody where neither is there.
    pub allowed_users: Option<Vec<String>>,
    /// Who is in one of these groups may, directly or through others.
    pub allowed_groups: Option<Vec<String>>,
    /// These may not, whatever else.
    pub denied_users: Option<Vec<String>>,
    /// Nor may who is in one of these groups.
    pub denied_groups: Option<Vec<String>>,
}

/// Something that is looked at in an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccountCheck {
    /// `shadowExpire`.
    ShadowExpire,
    /// `shadowLastChange` with `shadowMax`, `shadowWarning` and `shadowInactive`.
    PasswordAge,
    /// `pwdAccountLockedTime` and `pwdReset`.
    PasswordPolicy,
    /// `nsAccountLock` and roles that lock.
    AccountLock,
    /// `userAccountControl` and `accountExpires`.
    ActiveDirectory,
}

/// Who is asked about passwords, and what is kept of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auth {
    /// Who is asked.
    pub method: AuthMethod,
    /// How long a server that is there may take.
    pub timeout: Duration,
    /// What is kept for when nobody can be asked; none where nothing is.
    pub offline: Option<Offline>,
    /// The realm that is asked, with [`AuthMethod::Krb5`].
    pub krb5: Option<Box<Krb5>>,
}

/// `auth = …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthMethod {
    /// Nobody.
    None,
    /// The directory, by binding as the user.
    Ldap,
    /// The KDC of a realm.
    Krb5,
}

/// Keys of `auth = "krb5"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Krb5 {
    /// The realm of users.
    pub realm: String,
    /// KDCs in order of preference, `HOST:PORT`.
    pub kdcs: Vec<String>,
    /// Servers that change passwords, likewise; those of `kdcs` by the usual port when empty.
    pub kpasswd: Vec<String>,
    /// Whether DNS is asked for more of both.
    pub discover: bool,
    /// Keys of this host.
    pub keytab: PathBuf,
    /// When a KDC has to know one.
    pub validate: Validate,
    /// Where tickets are kept, with `%{uid}`; none where they are not.
    pub cache: Option<String>,
    /// Of tickets; zero is what the KDC gives.
    pub lifetime: Duration,
    /// For how long they are to be renewable.
    pub renewable: Duration,
    /// Whether they may be handed on.
    pub forwardable: bool,
}

/// `krb5_validate = …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Validate {
    /// Once this host has used a keytab.
    Auto,
    /// Always.
    Required,
    /// Never.
    Off,
}

/// Credentials that are kept for when nobody can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offline {
    /// How long after the last log-in that was not offline they are believed.
    pub life: Duration,
    /// Wrong passwords in a row until the user is locked out.
    pub failures: u32,
    /// For how long.
    pub lockout: Duration,
    /// How long this host is to take over one hash.
    pub hash_time: Duration,
}

/// How a domain is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// All of it is mirrored.
    Replicate,
    /// Single entries are asked for.
    OnDemand,
}

/// Home folders and shells that are not the directory's. In templates `%u` is the user name, `%U`
/// the uid, `%d` the domain, `%o` the directory's own value, `%%` a percent sign.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overrides {
    /// Home folder of every user.
    pub home: Option<String>,
    /// Home folder of users that have none in the directory.
    pub fallback_home: Option<String>,
    /// Shell of every user.
    pub shell: Option<String>,
    /// Shell of users that have none in the directory.
    pub fallback_shell: Option<String>,
}

/// `provider = …` with its keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Provider {
    /// Text of passwd(5) and group(5).
    Files(Files),
    /// An LDAP directory.
    Ldap(Box<Ldap>),
}

/// Keys of the `files` provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// Users.
    pub passwd: PathBuf,
    /// Groups.
    pub group: PathBuf,
}

/// Keys of the `ldap` provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ldap {
    /// Servers in order of preference.
    pub servers: Vec<Server>,
    /// Domain whose SRV records `_ldap._tcp` name further servers.
    pub discover: Option<String>,
    /// Base of all searches.
    pub base: String,
    /// Search of users: base and filter; the host's `base` and every user unless configured.
    pub users: Search,
    /// Search of groups.
    pub groups: Search,
    /// Names of other attributes, from `[domain.NAME.attributes]`.
    pub attributes: Attributes,
    /// Attributes that list the members of a group.
    pub member_attributes: Vec<MemberAttribute>,
    /// Whether names are told apart by case alone; if not, they are served in lower case.
    pub case_sensitive: bool,
    /// How to bind.
    pub bind: Bind,
    /// TLS on the connection: LDAPS is the server's URI, this is StartTLS.
    pub start_tls: bool,
    /// Certificate authorities, PEM; the host's own when none. As a path in the parsed
    /// configuration; see [`Secrets`] for what a role is given.
    pub tls_ca: Option<PathBuf>,
    /// Whether a simple bind may send its password over a connection in clear.
    pub allow_clear_password: bool,
    /// Whether users and groups may come over a network without TLS.
    pub allow_clear_identities: bool,
    /// Whether users' passwords may be sent so.
    pub allow_clear_user_passwords: bool,
    /// Entries a page when pages are asked for.
    pub page_size: u32,
    /// Deadline of connecting, TLS, bind and a first answer together.
    pub connect_timeout: Duration,
    /// Deadline of one search, and longest silence in the middle of one.
    pub search_timeout: Duration,
    /// How often what the server does not tell of is asked for: changes, or folders of unusual classes.
    pub poll: Duration,
    /// How often it is looked, beside the changes that the server tells of, which entries there are.
    pub sweep: Duration,
    /// How often a mirror reads everything anew; zero for never.
    pub full_refresh: Duration,
    /// How often a server that is preferred to the present one is tried.
    pub fail_back: Duration,
    /// Largest message that a server may send, in bytes.
    pub message_bytes_max: u32,
}

/// One of `uris`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Server {
    /// `ldap://HOST[:PORT]`.
    Ldap {
        /// Name or address, IPv6 without brackets.
        host: String,
        /// 389 unless given.
        port: u16,
    },
    /// `ldaps://HOST[:PORT]`.
    Ldaps {
        /// Name or address, IPv6 without brackets.
        host: String,
        /// 636 unless given.
        port: u16,
    },
    /// `ldapi://%2Fpath`.
    Ldapi {
        /// The socket.
        path: PathBuf,
    },
}

impl Server {
    /// Whether the server is reached without a network: by a socket of this host, or by a loopback address.
    #[must_use]
    pub fn is_this_host(&self) -> bool {
        match self {
            Self::Ldapi { .. } => true,
            Self::Ldap { host, .. } | Self::Ldaps { host, .. } => {
                let name = host.trim_end_matches('.').to_ascii_lowercase();
                match host.parse::<IpAddr>() {
                    Ok(address) => address.is_loopback(),
                    Err(_) => name == "localhost" || name.ends_with(".localhost"),
                }
            }
        }
    }
}

/// The URI, without the default port of its scheme.
impl fmt::Display for Server {
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

/// Where to look and for what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// DN of the base.
    pub base: String,
    /// Filter in the syntax of RFC 4515.
    pub filter: String,
}

/// An attribute in which groups name their members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAttribute {
    /// Its name, lower case.
    pub name: String,
    /// What its values are.
    pub values: MemberValues,
}

/// How the values of an attribute name members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberValues {
    /// Users by name: `memberUid`.
    Names,
    /// Users and groups by DN: `member`.
    Dns,
    /// The same with an optional UID behind (RFC 4517, 3.3.21): `uniqueMember`.
    DnsWithUids,
}

/// Names of attributes, lower case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // each is the attribute of that part of an entry
pub struct Attributes {
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
    /// The lasting key; found out from the server when none is configured.
    pub uuid: Option<String>,
}

/// How to bind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bind {
    /// Not at all.
    Anonymous,
    /// By DN and password.
    Simple {
        /// Who.
        dn: String,
        /// The file that holds the password; a newline at its end does not count.
        password_file: PathBuf,
    },
    /// SASL EXTERNAL, by the uid over ldapi.
    External,
}

/// `[publisher]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Publisher {
    /// Least time between the starts of two publications.
    pub interval: Duration,
}

/// `[responder.pam]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pam {
    /// Users of the host whose programs may ask for anybody.
    pub trusted_users: Vec<String>,
    /// How long a program waits for an answer.
    pub timeout: Duration,
    /// Passwords that an ordinary user may have tried in a minute.
    pub tries_per_minute: u32,
}

/// `[metrics]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Where Prometheus text is served.
    pub listen: Listen,
}

/// `[responder.nscd]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nscd {
    /// Where programs ask.
    pub socket: PathBuf,
    /// Which name services there are.
    pub nsswitch: PathBuf,
    /// How long an answer of another name service is good.
    pub positive: Duration,
    /// How long it is good that nobody is there.
    pub negative: Duration,
}

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Listen {
    /// `unix:PATH`.
    Unix(PathBuf),
    /// `ADDRESS:PORT`, a loopback address.
    Tcp(std::net::SocketAddr),
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// error, warn, info, debug or trace.
    pub level: String,
    /// Lines of JSON rather than text on stderr.
    pub json: bool,
}

/// What the monitor, which may read them, hands to a back-end in place of the files that its
/// configuration names. Never logged, hence no `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secrets {
    /// Password of a simple bind.
    pub bind_password: Option<String>,
    /// The text of `tls_ca`.
    pub tls_ca: Option<String>,
    /// The state of `krb5_keytab`, with its keys.
    pub keytab: Keytab,
}
