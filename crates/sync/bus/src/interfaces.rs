// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interfaces of all roles, as zbus traits. The proxies of callers are derived from them, and the roles implement
//! the same interfaces. Every call has a deadline, [`CALL_DEADLINE`] unless stated otherwise. A signal needs no reply.

use roster_request::LookupKind;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use zbus::OwnedFd;
use zbus::zvariant::Type;

/// Time that a caller waits for a reply.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit of a lookup, from the responder's request to its reply: the module waits 3 s.
pub const LOOKUP_DEADLINE: Duration = Duration::from_millis(2500);
/// Time limit of a login, from the responder's request to a backend until its reply. It holds for any configuration. A
/// directory with an expensive password scheme takes a second, an overloaded one several.
pub const LOGIN_DEADLINE: Duration = Duration::from_secs(60);
/// Longest message of the bus, in bytes. The sender of a longer one is disconnected.
pub const MESSAGE_BYTES_MAX: u64 = 16 << 20;
/// Queries in one call of `Backend::look_up_all`.
pub const LOOKUPS_PER_CALL_MAX: usize = 1_000;
/// Entries in one reply of `Backend::rejected` and `Publisher::rejected`.
pub const REJECTED_PER_REPLY_MAX: u32 = 10_000;

/// Errors by name, `org.roster.Error.…`.
#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.roster.Error")]
pub enum BusError {
    /// Errors of the bus itself.
    #[zbus(error)]
    ZBus(zbus::Error),
    /// The directory, or the role in charge of it, is unavailable.
    Unavailable(String),
    /// No server of the directory replies.
    Away(String),
    /// An argument is invalid. The text states valid ones.
    Invalid(String),
    /// The role has reached its limit of requests.
    Busy(String),
    /// The caller may not do that.
    Denied(String),
}

/// Returns the number of a kind of lookup on the bus.
#[must_use]
pub fn lookup_number(kind: LookupKind) -> u32 {
    u32::from(kind as u16)
}

/// Returns the kind of lookup of that number.
///
/// # Errors
///
/// No kind has that number.
pub fn lookup_kind(number: u32) -> Result<LookupKind, BusError> {
    let kind = u16::try_from(number).ok().and_then(LookupKind::from_number);
    kind.ok_or_else(|| BusError::Invalid(format!("{number} is not the number of a kind of lookup")))
}

/// Relates a query to the request of a program, and to a call for it. Probes are joined by these numbers, see
/// docs/reference/probes.md. Log lines have the number of the request. No reply depends on them. 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, Type)]
pub struct TraceContext {
    /// Number from the responder.
    pub request: u64,
    /// Number from the publisher, for calls to backends.
    pub call: u64,
}

/// The user of a login and its circumstances. The method is the operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct LoginRequest {
    /// The name in the directory.
    pub user: Vec<u8>,
    /// The uid in the directory. A user of the name with another uid in the directory is a different user.
    pub uid: u32,
    /// The uid on this host, which owns files of the session.
    pub host_uid: u32,
    /// The name on this host, which access rules compare.
    pub host_user: Vec<u8>,
    /// As [`ServedUser::rule_groups`].
    pub rule_groups: Vec<(String, String)>,
    /// The PAM service.
    pub service: String,
    /// The remote host; may be empty.
    pub remote_host: String,
    /// The terminal; may be empty.
    pub terminal: String,
    /// No user is served under that name. The request is made all the same, with the cost of a wrong password, and is
    /// always refused.
    pub is_decoy: bool,
    /// Number of the request, for logs; 0 without one.
    pub request: u64,
}

/// The result of a login request.
#[derive(Debug, Serialize, Deserialize, Type)]
pub struct AuthReply {
    /// A number of `roster_request::AuthResult`.
    pub verdict: u16,
    /// Whether the directory was unreachable, and cached credentials were used.
    pub is_offline: bool,
    /// Messages: whether each is an error, and the text, in one line.
    pub messages: Vec<(bool, String)>,
    /// Code of the reason of a refusal in the table of messages; empty for a success.
    pub code: String,
    /// Empty, or one pipe (see [`crate::secret_pipe`]) with a blob that opens the session.
    pub blob: Vec<OwnedFd>,
}

/// Decision about the users of a domain without logins: other PAM modules decide.
pub const NOT_DECIDED: &str = "not decided here";

/// An access decision with its reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct AccessExplanation {
    /// The decision by name, see `roster_provider::access::AccessDecision`, or [`NOT_DECIDED`].
    pub verdict: String,
    /// Whether access is allowed, perhaps after a change of the password.
    pub lets_in: bool,
    /// All rules that exist.
    pub rules: Vec<RuleExplanation>,
    /// Messages for the user.
    pub messages: Vec<String>,
}

/// The result of a rule for a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct RuleExplanation {
    /// The key of the configuration, or the attribute.
    pub rule: String,
    /// As in [`AccessExplanation`]; the strictest of all rules is the decision.
    pub verdict: String,
    /// The facts that the rule used.
    pub saw: String,
}

/// A cached credential of a user. The hash is not part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct CredentialInfo {
    /// The user.
    pub name: Vec<u8>,
    /// Time of the last login that the directory verified, in seconds since 1970.
    pub verified_unix: u64,
    /// Expiry.
    pub expires_unix: u64,
    /// Wrong passwords since then.
    pub failures: u32,
    /// End of the lockout from offline logins; 0 if the user is not locked out.
    pub locked_until_unix: u64,
}

/// Common interface of every role, for the monitor and for administrators.
#[zbus::proxy(interface = "org.roster.Role1")]
pub trait Role {
    /// Returns the state of the process.
    fn status(&self) -> Result<RoleStatus, BusError>;
    /// Returns its counters as Prometheus text.
    fn metrics(&self) -> Result<String, BusError>;
    /// Sets the log level: error, warn, info, debug or trace. For root and the monitor.
    fn set_log_level(&self, level: &str) -> Result<(), BusError>;
    /// Ends the process regularly. For the monitor only.
    fn stop(&self) -> Result<(), BusError>;
}

/// State of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct RoleStatus {
    /// The role as people write it, see [`crate::bus_names::RoleName`].
    pub role: String,
    /// Process id.
    pub pid: u32,
    /// Start, in seconds since 1970.
    pub started_unix: u64,
    /// Version of the executable.
    pub version: String,
    /// The sandbox in force, as text.
    pub sandbox: String,
    /// The role's log level.
    pub log_level: String,
}

/// The monitor.
#[zbus::proxy(
    interface = "org.roster.Monitor1",
    default_service = "org.roster.Monitor",
    default_path = "/org/roster/Monitor"
)]
pub trait Monitor {
    /// Returns the state of all roles and the configuration.
    fn status(&self) -> Result<MonitorStatus, BusError>;
    /// Reloads the configuration, like SIGHUP. An error names the faults; the old configuration then stays in force.
    fn reload(&self) -> Result<(), BusError>;
    /// Sets the log level of a role, or of all roles if the name is empty. Roles that start later get it as well, until
    /// a configuration with another level is in force. Returns the roles that run, with an error for each that did not
    /// accept the level. For root and the monitor.
    fn set_log_level(&self, role: &str, level: &str) -> Result<Vec<(String, String)>, BusError>;
    /// A new configuration is in force.
    #[zbus(signal)]
    fn config_reloaded(&self) -> zbus::Result<()>;
}

/// State of all roles and the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct MonitorStatus {
    /// The configuration's file.
    pub config: String,
    /// Time of its read, in seconds since 1970.
    pub config_read_unix: u64,
    /// Reason why the present file is not in force; empty if it is.
    pub config_error: String,
    /// State directory.
    pub state_dir: String,
    /// Whether roles have separate users.
    pub separate_users: bool,
    /// Domains in order of precedence.
    pub domains: Vec<String>,
    /// Every role, the bus and the monitor among them.
    pub roles: Vec<SupervisedRole>,
}

/// A role as the monitor sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct SupervisedRole {
    /// As people write it; the bus is `bus`.
    pub role: String,
    /// `starting`, `running`, `stopping`, `waiting` (for its next start, or until a process of another role with its
    /// user has ended), `idle` (until its socket is used).
    pub state: String,
    /// Process id, 0 if there is none.
    pub pid: u32,
    /// User id it runs under.
    pub uid: u32,
    /// Restarts.
    pub restarts: u32,
    /// Start of this state, in seconds since 1970.
    pub since_unix: u64,
    /// Description of its last end; empty if it never ended.
    pub last_end: String,
    /// Whether the role ended with exit status 0 the last time.
    pub last_end_is_clean: bool,
    /// Log level of its process, or of the next one. Empty for the bus.
    pub log_level: String,
}

/// A backend: one domain's entries, and other data of its directory.
#[zbus::proxy(interface = "org.roster.Backend1")]
pub trait Backend {
    /// Returns the changes from (epoch, since) to the present state, in the format of [`crate::domain_image`]. Returns
    /// everything if that is shorter, if the epoch differs, or if `since` is 0.
    fn fetch(&self, epoch: u64, since: u64) -> Result<OwnedFd, BusError>;
    /// Queries the directory for one entry by `name` or `id`, depending on `kind`. Returns the records in the format of
    /// [`crate::domain_image`] without header, empty if there is no such entry. The first two values are the epoch and
    /// the sequence number of their state, as in the header of an image. Another process may have assigned the same
    /// numbers to other entries. A caller that fetched that state has all these records, or newer ones.
    fn look_up(
        &self,
        trace: TraceContext,
        kind: u32,
        name: &[u8],
        id: u32,
    ) -> Result<(u64, u64, Vec<u8>), BusError>;
    /// Queries the directory for at most [`LOOKUPS_PER_CALL_MAX`] entries, each by kind, name and id as in
    /// [`look_up`](Self::look_up), with as few searches as possible. Returns the records of existing entries, without
    /// members of groups or groups of users: the call checks existence.
    fn look_up_all(
        &self,
        trace: TraceContext,
        questions: &[(u32, &[u8], u32)],
    ) -> Result<(u64, u64, Vec<u8>), BusError>;
    /// Checks the user's password: one secret in the pipe, see [`crate::secret_pipe`]. Never joined with another call.
    fn authenticate(&self, who: &LoginRequest, secrets: OwnedFd) -> Result<AuthReply, BusError>;
    /// Whether the user may log in now.
    fn account(&self, who: &LoginRequest) -> Result<AuthReply, BusError>;
    /// Changes the password from the first secret in the pipe to the second. Without a second secret it only checks
    /// whether a change is possible with the first one.
    fn change_password(&self, who: &LoginRequest, secrets: OwnedFd) -> Result<AuthReply, BusError>;
    /// Returns the access decision, rule by rule.
    fn explain_access(&self, who: &LoginRequest) -> Result<AccessExplanation, BusError>;
    /// Returns the user's ssh keys, one a line; empty without access. Fails if the access is unknown.
    fn ssh_keys(&self, who: &LoginRequest) -> Result<Vec<String>, BusError>;
    /// Returns the cached credentials for offline logins.
    fn credentials(&self) -> Result<Vec<CredentialInfo>, BusError>;
    /// Forgets the credential of a user, or of all users if the name is empty. Returns the number of users.
    fn forget_credentials(&self, name: &[u8]) -> Result<u64, BusError>;
    /// Returns the state of the domain.
    fn status(&self) -> Result<DomainStatus, BusError>;
    /// Connects again and refreshes everything.
    fn refresh(&self) -> Result<(), BusError>;
    /// Searches once more for entries with held removals, and removes the absent ones. Returns their number, and the
    /// number of entries that stay.
    fn confirm(&self) -> Result<(u64, u64), BusError>;
    /// Returns directory entries that cannot be parsed as users or groups, from that position on.
    fn rejected(&self, from: u32, at_most: u32) -> Result<Vec<RejectedEntry>, BusError>;
    /// Expires the data of a user (`UserByName`), of a group (`GroupByName`) or, with an empty name, of everything, and
    /// queries it again. A mirror is refreshed completely. Returns whether the cache or the directory
    /// has the entry. A mirror does not search for a name, and returns false.
    fn expire(&self, kind: u32, name: &[u8]) -> Result<bool, BusError>;
    /// `Backend::fetch` has changes up to `sequence`.
    #[zbus(signal)]
    fn changed(&self, epoch: u64, sequence: u64) -> zbus::Result<()>;
    /// The directory is reachable.
    #[zbus(signal)]
    fn domain_online(&self, domain: &str, server: &str) -> zbus::Result<()>;
    /// The directory is unreachable.
    #[zbus(signal)]
    fn domain_offline(&self, domain: &str, reason: &str) -> zbus::Result<()>;
}

/// State of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct DomainStatus {
    /// The domain's name.
    pub domain: String,
    /// `ldap` or `files`.
    pub provider: String,
    /// `replicate` or `on-demand`.
    pub mode: String,
    /// Whether the directory is reachable.
    pub online: bool,
    /// Time of the last change of `online`, in seconds since 1970; 0 before `online` is known.
    pub since_unix: u64,
    /// The server in use, or the last one.
    pub server: String,
    /// Reason why the directory is unreachable. If it is reachable, the reason why preferred servers are not in use.
    /// Empty without a reason.
    pub reason: String,
    /// Code of `reason` in the table of messages; empty without a reason. The same holds for the other codes.
    pub reason_code: String,
    /// Method of change tracking: the text form of a [`TrackingMethod`](roster_request::TrackingMethod), or empty if it is
    /// not known yet.
    pub tracking: String,
    /// Whether everything was read at least once since the cache was created.
    pub complete: bool,
    /// Users and groups in the cache.
    pub users: u64,
    /// Users and groups in the cache.
    pub groups: u64,
    /// Groups among them with members both by name and by DN.
    pub mixed_groups: u64,
    /// Groups without gid, which only nest. They are not among `groups`.
    pub nested_groups: u64,
    /// Members of groups that belong to other domains of Active Directory. They are not resolved.
    pub foreign_members: u64,
    /// Entries that cannot be parsed, see `Backend::rejected`.
    pub rejected: u64,
    /// Servers to which the directory refers. They are not asked.
    pub referrals: Vec<String>,
    /// Site of this host in Active Directory; empty if it is not known.
    pub site: String,
    /// Servers of the site that DNS lists, or all of them without a site.
    pub found_servers: Vec<String>,
    /// The other servers of the domain that DNS lists.
    pub distant_servers: Vec<String>,
    /// Last change that the directory reported, in seconds since 1970; 0 without any.
    pub last_change_unix: u64,
    /// Last complete refresh, in seconds since 1970; 0 without any.
    pub last_refresh_unix: u64,
    /// Removals that wait for `Backend::confirm`.
    pub held_removals: u64,
    /// Reason why the files of credentials cannot be read or written, empty if they can.
    pub credentials_error: String,
    /// Code of `credentials_error`.
    pub credentials_code: String,
    /// Reason why the host's clock is not trusted, empty if it is.
    pub clock_error: String,
    /// Code of `clock_error`.
    pub clock_code: String,
    /// Number of the process's change log.
    pub epoch: u64,
    /// Changes in it.
    pub sequence: u64,
    /// Fault of the cache, empty without any.
    pub cache_error: String,
    /// Code of `cache_error`.
    pub cache_code: String,
    /// Reason why all logins are refused, empty if they are not.
    pub login_error: String,
    /// Code of `login_error`.
    pub login_error_code: String,
    /// Reason why logins lack the expected protection, empty if they have it.
    pub login_warning: String,
    /// Code of `login_warning`.
    pub login_warning_code: String,
}

/// A rejected entry with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct RejectedEntry {
    /// `user`, `group` or `entry`.
    pub kind: String,
    /// Name or DN. Invalid UTF-8 is replaced.
    pub name: String,
    /// Reason. Equal faults with equal values have equal texts, so that they can be counted.
    pub reason: String,
    /// Code of the reason in the table of messages.
    pub code: String,
    /// The fix with the values at hand; empty for that of the table.
    pub fix: String,
}

/// A reason of rejections, with the number of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct RejectionCount {
    /// Reason.
    pub reason: String,
    /// The reason's code in the table of messages; empty for several reasons together.
    pub code: String,
    /// The fix with the values at hand; empty for that of the table.
    pub fix: String,
    /// Entries.
    pub entries: u64,
}

/// The publisher: the snapshot and the trust boundary.
#[zbus::proxy(
    interface = "org.roster.Publisher1",
    default_service = "org.roster.Publisher",
    default_path = "/org/roster/Publisher"
)]
pub trait Publisher {
    /// Answers a program's request about on-demand domains. The reply is a frame of the responders' sockets (crate
    /// `roster-wire`), ready to be forwarded. `request` is the number in [`TraceContext`].
    fn look_up(&self, request: u64, kind: u32, name: &[u8], id: u32) -> Result<Vec<u8>, BusError>;
    /// Returns the domain that serves a user, by name, after queries to on-demand domains if needed. Empty if no user
    /// is served under that name. `request` is the number in [`TraceContext`].
    fn find_user(&self, request: u64, name: &[u8]) -> Result<ServedUser, BusError>;
    /// Returns the state of the snapshot.
    fn status(&self) -> Result<PublisherStatus, BusError>;
    /// Returns rejected entries of a domain, from that position on.
    fn rejected(
        &self,
        domain: &str,
        from: u32,
        at_most: u32,
    ) -> Result<Vec<RejectedEntry>, BusError>;
    /// Returns every entry of that name (`UserByName` or `GroupByName`) in any domain.
    fn show(&self, kind: u32, name: &[u8]) -> Result<Vec<EntryDetails>, BusError>;
    /// Returns the name in a domain's directory of the entry with that name on this host: the same, unless a local override
    /// gives it.
    fn directory_name(&self, domain: &str, kind: u32, name: &[u8]) -> Result<Vec<u8>, BusError>;
    /// Approves held removals of a domain. Returns their number.
    fn confirm(&self, domain: &str) -> Result<u64, BusError>;
    /// Publishes now, with or without changes, and returns after that.
    fn publish(&self) -> Result<u64, BusError>;
    /// A snapshot is in place.
    #[zbus(signal)]
    fn snapshot_published(&self, generation: u64) -> zbus::Result<()>;
    /// Cached data of this user is outdated.
    #[zbus(signal)]
    fn invalidate_user(&self, name: &[u8]) -> zbus::Result<()>;
    /// Cached data of this group is outdated.
    #[zbus(signal)]
    fn invalidate_group(&self, name: &[u8]) -> zbus::Result<()>;
    /// All cached data may be outdated.
    #[zbus(signal)]
    fn invalidate_all(&self) -> zbus::Result<()>;
}

/// The user that is served under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct ServedUser {
    /// The user's domain; empty if there is no such user. The other fields are then empty too.
    pub domain: String,
    /// The name on this host, without the domain.
    pub name: Vec<u8>,
    /// The uid on this host.
    pub uid: u32,
    /// The name in the directory, by which the backend knows the user. A local override may give another one to this host.
    pub directory_name: Vec<u8>,
    /// The uid in the directory, likewise.
    pub directory_uid: u32,
    /// The groups in access rules of the domain that have other names in the directory: the name in the rule, and the
    /// name in the directory. The latter is empty if this host serves no group under the name in the rule.
    pub rule_groups: Vec<(String, String)>,
}

/// State of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct PublisherStatus {
    /// The file.
    pub snapshot: String,
    /// The snapshot's generation, 0 before the first.
    pub generation: u64,
    /// Time of its publication, in milliseconds since 1970.
    pub published_unix_ms: u64,
    /// Users in it.
    pub users: u64,
    /// Groups in it.
    pub groups: u64,
    /// Members of all groups.
    pub memberships: u64,
    /// The snapshot's length in bytes.
    pub bytes: u64,
    /// Publications of this process.
    pub publications: u64,
    /// Bytes that they wrote.
    pub bytes_written: u64,
    /// Time from the first change to the rename, of the last publication, in microseconds.
    pub last_publish_us: u64,
    /// Reason why the last attempt failed; empty if it succeeded.
    pub error: String,
    /// The condition for the next snapshot, and the effect on the present one; empty without a wait.
    pub waits_for: String,
    /// Reason why the host's own accounts cannot be read; empty if they can.
    pub locals_error: String,
    /// Description of the snapshot in place, if another program wrote it; otherwise empty.
    pub foreign: String,
    /// Reason why the snapshot in place cannot be read from the disk; empty if it can.
    pub disk_error: String,
    /// Reason why its copy in memory is missing; empty if it exists, or if programs read another path.
    pub copy_error: String,
    /// Failed lookups of programs in the last minute.
    pub failed_lookups: u64,
    /// Reason of the last failure; empty without any.
    pub failed_lookup: String,
    /// Counts of each domain's entries.
    pub domains: Vec<PublishedDomain>,
}

/// Counts of a domain's entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct PublishedDomain {
    /// The domain's name.
    pub domain: String,
    /// Whether the publisher has its entries.
    pub present: bool,
    /// Users served.
    pub users: u64,
    /// Groups served.
    pub groups: u64,
    /// Members in these groups, served or not.
    pub listed: u64,
    /// Removals that wait for `Publisher::confirm`: the backend started without a cache and has far fewer entries.
    pub held_removals: u64,
    /// The higher-priority domain that was never read. Until it is, this domain is not served. Empty if there is none.
    pub waits_for: String,
    /// Reason why the backend's updates are rejected: the served entries are older ones. Empty while they are accepted.
    pub not_taken: String,
    /// Reason why the file with overrides is rejected: the last valid overrides stay. Empty while it is accepted.
    pub overrides_error: String,
    /// Overrides without an entry in the directory, as kind and name.
    pub unused_overrides: Vec<String>,
    /// Rejected entries by reason, most frequent first. Rare reasons share one item.
    pub refused: Vec<RejectionCount>,
}

/// An entry in the publisher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct EntryDetails {
    /// The entry's domain.
    pub domain: String,
    /// Name.
    pub name: String,
    /// uid or gid; 4294967295 of a group without gid.
    pub id: u32,
    /// Primary gid, of a user.
    pub gid: u32,
    /// GECOS, home directory and shell, of a user. Then the directory's shell, if another one replaces it.
    pub details: Vec<String>,
    /// Members of a group, or groups of a user, as in the directory: served or not.
    pub related: Vec<String>,
    /// Values of the directory that a local override replaces, by field. Empty without an override.
    pub directory: Vec<(String, String)>,
    /// Reason why it is not served; empty if it is.
    pub refused: String,
    /// Code of that reason in the table of messages; empty without one.
    pub refused_code: String,
}
