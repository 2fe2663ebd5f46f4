//! What each role offers, as zbus traits: the proxies that callers use come out of them, and the
//! roles implement the same interfaces. Every call has a deadline, [`CALL_DEADLINE`] unless said
//! otherwise; where no reply is awaited there is a signal.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use zbus::OwnedFd;
use zbus::zvariant::Type;

/// How long a caller waits for a reply.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// How long a look-up may take from the responder's question to its answer: the module waits 3 s.
pub const LOOK_UP_DEADLINE: Duration = Duration::from_millis(2500);
/// How long a log-in may take from the responder's question to a back-end until its answer, whatever is
/// configured: a directory with a costly password scheme takes a second, one that is overrun several.
pub const LOG_IN_DEADLINE: Duration = Duration::from_secs(60);
/// Longest message that the bus carries, in bytes. Whoever sends a longer one is disconnected.
pub const MESSAGE_BYTES_MAX: u64 = 16 << 20;
/// Questions in one call of `Backend::look_up_all`.
pub const LOOK_UPS_AT_ONCE: usize = 1_000;
/// Entries in one reply of `Backend::rejected` and `Publisher::rejected`.
pub const REJECTED_AT_ONCE: u32 = 10_000;

/// Errors by name, `org.roster.Error.…`.
#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.roster.Error")]
pub enum Error {
    /// Whatever the bus itself says.
    #[zbus(error)]
    ZBus(zbus::Error),
    /// The directory, or the role in charge of it, cannot be asked now.
    Unavailable(String),
    /// What was given makes no sense here; the text says what does.
    Invalid(String),
    /// There are more requests than the role takes on.
    Busy(String),
    /// The caller may not do that.
    Denied(String),
}

/// What a look-up is for; with the name or id beside it, the arguments of `LookUp`.
/// On the bus an integer, from 0 in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Type)]
#[repr(u32)]
pub enum Kind {
    /// User by name.
    UserByName,
    /// User by uid.
    UserByUid,
    /// Group by name.
    GroupByName,
    /// Group by gid.
    GroupByGid,
    /// Supplementary groups of a user, by name.
    GroupsOf,
}

/// To which request of a program a question belongs, and which call of it this is: what probes are joined by,
/// see docs/probes.md. No answer depends on it. 0 is nobody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, Type)]
pub struct Trace {
    /// As the responder numbers them.
    pub request: u64,
    /// As the publisher numbers what it asks back-ends.
    pub call: u64,
}

/// Who logs in, where; what is asked about them is the method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct LogIn {
    /// The name, as it is served.
    pub user: Vec<u8>,
    /// The uid that goes with it. Who has the name in the directory under another is somebody else.
    pub uid: u32,
    /// The PAM service.
    pub service: String,
    /// Where the user comes from; may be empty.
    pub remote_host: String,
    /// The terminal; may be empty.
    pub terminal: String,
    /// Nobody is served under that name: the question is put all the same, as one that costs what a wrong
    /// password costs, and the answer is never yes.
    pub is_decoy: bool,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize, Type)]
pub struct LogInAnswer {
    /// A number of `roster_wire::pam::Verdict`.
    pub verdict: u16,
    /// Whether the directory was away, and what is kept on this host was believed.
    pub is_offline: bool,
    /// What to show: whether it is an error, and the text, in one line.
    pub messages: Vec<(bool, String)>,
    /// None, or one pipe (see [`crate::secrets`]) with a blob that opens the session.
    pub blob: Vec<OwnedFd>,
}

/// Whether a user may in, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct Explained {
    /// In words, see `roster_provider::access::Verdict`.
    pub verdict: String,
    /// Whether it is yes, perhaps after a change of the password.
    pub lets_in: bool,
    /// All rules that there are.
    pub rules: Vec<RuleSaid>,
    /// What the user would be told.
    pub messages: Vec<String>,
}

/// What a rule says of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct RuleSaid {
    /// The key of the configuration, or the attribute.
    pub rule: String,
    /// As in [`Explained`]; the worst of all rules is the verdict.
    pub verdict: String,
    /// What it saw.
    pub saw: String,
}

/// What is kept of a user's password. The hash stays where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct KeptCredential {
    /// The user.
    pub name: Vec<u8>,
    /// When the directory found the password right last, in seconds since 1970.
    pub verified_unix: u64,
    /// Until when it is believed.
    pub expires_unix: u64,
    /// Wrong passwords since.
    pub failures: u32,
    /// Until when the user is locked out of logging in by it; 0 if not.
    pub locked_until_unix: u64,
}

/// Every role, so that the monitor and people can see to it.
#[zbus::proxy(interface = "org.roster.Role1")]
pub trait Role {
    /// How the process is.
    fn status(&self) -> Result<RoleStatus, Error>;
    /// Its counters as Prometheus text.
    fn metrics(&self) -> Result<String, Error>;
    /// Sets error, warn, info, debug or trace from now on. For root and the monitor.
    fn set_log_level(&self, level: &str) -> Result<(), Error>;
    /// Ends the process in good order. For the monitor only.
    fn stop(&self) -> Result<(), Error>;
}

/// How a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct RoleStatus {
    /// The role as people write it, see [`crate::names::Role`].
    pub role: String,
    /// Process id.
    pub pid: u32,
    /// Start, in seconds since 1970.
    pub started_unix: u64,
    /// Version of the executable.
    pub version: String,
    /// The limits it lives under, in words.
    pub sandbox: String,
    /// Its log level.
    pub log_level: String,
}

/// The monitor.
#[zbus::proxy(
    interface = "org.roster.Monitor1",
    default_service = "org.roster.Monitor",
    default_path = "/org/roster/Monitor"
)]
pub trait Monitor {
    /// All roles and the configuration.
    fn status(&self) -> Result<MonitorStatus, Error>;
    /// Reads the configuration anew, as SIGHUP does. An error names what is wrong with it; the old
    /// one goes on then.
    fn reload(&self) -> Result<(), Error>;
    /// A new configuration is in force.
    #[zbus(signal)]
    fn config_reloaded(&self) -> zbus::Result<()>;
}

/// All roles and the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct MonitorStatus {
    /// The configuration's file.
    pub config: String,
    /// When it was read, in seconds since 1970.
    pub config_read_unix: u64,
    /// Why the file as it is now is not in force; empty when it is.
    pub config_error: String,
    /// State folder.
    pub state_dir: String,
    /// Whether roles run as users of their own.
    pub separate_users: bool,
    /// Domains in order of precedence.
    pub domains: Vec<String>,
    /// Every role, the bus and the monitor among them.
    pub roles: Vec<RoleState>,
}

/// A role as the monitor sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct RoleState {
    /// As people write it; the bus is `bus`.
    pub role: String,
    /// `starting`, `running`, `stopping`, `waiting` (for its next start, or for its user, under whom a
    /// process of another role still ends), `idle` (until its socket is used).
    pub state: String,
    /// Process id, 0 when there is none.
    pub pid: u32,
    /// User id it runs under.
    pub uid: u32,
    /// Starts after the first.
    pub restarts: u32,
    /// Since when it is in this state, in seconds since 1970.
    pub since_unix: u64,
    /// How it ended last, in words; empty when it never did.
    pub last_end: String,
}

/// A back-end: one domain's entries, and what the directory says beyond them.
#[zbus::proxy(interface = "org.roster.Backend1")]
pub trait Backend {
    /// What leads from (epoch, since) to now, in the form of [`crate::exchange`]: changes, or
    /// everything when that is shorter, the epoch is another, or `since` is 0.
    fn fetch(&self, epoch: u64, since: u64) -> Result<OwnedFd, Error>;
    /// Asks the directory for one entry; `name` or `id` as `kind` has it. Gives the records found,
    /// in the form of [`crate::exchange`] without header, and nothing when there is no such entry. In
    /// front of them stand the epoch and the sequence of the state that they are of, as in the header
    /// of an image: another process may have given the same numbers to others, and whoever has fetched
    /// that state has all of it, as it is told or as it became since.
    fn look_up(
        &self,
        trace: Trace,
        kind: Kind,
        name: &[u8],
        id: u32,
    ) -> Result<(u64, u64, Vec<u8>), Error>;
    /// Asks the directory for many entries, [`LOOK_UPS_AT_ONCE`] at the most, each by kind, name and id
    /// as in [`look_up`](Self::look_up), and in as few questions as that takes. Gives the same of all
    /// that there are, without members of groups or groups of users: it is for whether they are there.
    fn look_up_all(
        &self,
        trace: Trace,
        questions: &[(Kind, &[u8], u32)],
    ) -> Result<(u64, u64, Vec<u8>), Error>;
    /// Whether the password is the user's: one secret in the pipe, see [`crate::secrets`]. Never made one
    /// with another call.
    fn authenticate(&self, who: &LogIn, secrets: OwnedFd) -> Result<LogInAnswer, Error>;
    /// Whether the user may in now.
    fn account(&self, who: &LogIn) -> Result<LogInAnswer, Error>;
    /// Changes the password from the first secret in the pipe to the second; if there is no second, says
    /// whether that is to be had by who knows the first, and changes nothing.
    fn change_password(&self, who: &LogIn, secrets: OwnedFd) -> Result<LogInAnswer, Error>;
    /// Whether the user may in now, rule by rule.
    fn explain_access(&self, who: &LogIn) -> Result<Explained, Error>;
    /// The user's keys for sshd, each a line; none for who may not in, and an error where that is not known.
    fn ssh_keys(&self, who: &LogIn) -> Result<Vec<String>, Error>;
    /// Of whom something is kept for logging in while the directory is away.
    fn credentials(&self) -> Result<Vec<KeptCredential>, Error>;
    /// Forgets that of a user, or with an empty name of everybody; gives of how many.
    fn forget_credentials(&self, name: &[u8]) -> Result<u64, Error>;
    /// How the domain is.
    fn status(&self) -> Result<DomainStatus, Error>;
    /// Connects and enumerates anew.
    fn refresh(&self) -> Result<(), Error>;
    /// Looks once more for the entries whose removal waits, and removes those that are still not there:
    /// gives their number, and that of the entries that stay.
    fn confirm(&self) -> Result<(u64, u64), Error>;
    /// Entries of the directory that cannot be read as users or groups, from that position on.
    fn rejected(&self, from: u32, at_most: u32) -> Result<Vec<Rejected>, Error>;
    /// Forgets what is known of a user (`UserByName`), of a group (`GroupByName`) or, with an empty
    /// name, of everything, and asks for it again; of a mirror everything is enumerated anew.
    fn expire(&self, kind: Kind, name: &[u8]) -> Result<(), Error>;
    /// There are changes to `Backend::fetch` up to `sequence`.
    #[zbus(signal)]
    fn changed(&self, epoch: u64, sequence: u64) -> zbus::Result<()>;
    /// The directory answers.
    #[zbus(signal)]
    fn domain_online(&self, domain: &str, server: &str) -> zbus::Result<()>;
    /// The directory does not answer.
    #[zbus(signal)]
    fn domain_offline(&self, domain: &str, reason: &str) -> zbus::Result<()>;
}

/// How a domain is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct DomainStatus {
    /// Its name.
    pub domain: String,
    /// `ldap` or `files`.
    pub provider: String,
    /// `replicate` or `on-demand`.
    pub mode: String,
    /// Whether the directory answers.
    pub online: bool,
    /// Since when it does or does not, in seconds since 1970, 0 as long as neither is known.
    pub since_unix: u64,
    /// The server in use, or the last one.
    pub server: String,
    /// Why it does not answer, or when it does, why servers that go before the one in use do not;
    /// empty when there is nothing to tell.
    pub reason: String,
    /// How changes are followed: `syncrepl`, `syncrepl, never resumed`, `persistent search`, `polling`,
    /// `polling, everything each time`, `inotify`, `on demand`.
    pub tracking: String,
    /// Whether everything was enumerated at least once since the cache was made.
    pub complete: bool,
    /// Users and groups in the cache.
    pub users: u64,
    /// Users and groups in the cache.
    pub groups: u64,
    /// Groups among them that name members both by name and by DN.
    pub mixed_groups: u64,
    /// Entries that cannot be read, see `Backend::rejected`.
    pub rejected: u64,
    /// Last change that the directory reported, in seconds since 1970, 0 when none was.
    pub last_change_unix: u64,
    /// Last refresh that ended whole, in seconds since 1970, 0 when none did.
    pub last_refresh_unix: u64,
    /// Removals that wait for `Backend::confirm`.
    pub held_removals: u64,
    /// Why passwords for offline logins cannot be read or written, empty when they can.
    pub credentials_error: String,
    /// Why the host's clock is not believed, empty when it is.
    pub clock_error: String,
    /// Number of the process's change log.
    pub epoch: u64,
    /// Changes in it.
    pub sequence: u64,
    /// What went wrong with the cache, empty when nothing did.
    pub cache_error: String,
    /// Why all logins are refused, empty when they are not.
    pub login_error: String,
    /// Why logins are not protected as they should be, empty when they are.
    pub login_warning: String,
}

/// An entry that is not served, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct Rejected {
    /// `user`, `group` or `entry`.
    pub kind: String,
    /// Name or DN, with what is no UTF-8 replaced.
    pub name: String,
    /// In words that are the same for the same kind of fault with the same values, so that they can
    /// be counted.
    pub reason: String,
}

/// The publisher: the snapshot and the border of trust.
#[zbus::proxy(
    interface = "org.roster.Publisher1",
    default_service = "org.roster.Publisher",
    default_path = "/org/roster/Publisher"
)]
pub trait Publisher {
    /// Answers a program's question about domains that are asked on demand. The reply is a frame of
    /// the responders' sockets (crate `roster-wire`), ready to be sent on. `request` is that of [`Trace`].
    fn look_up(&self, request: u64, kind: Kind, name: &[u8], id: u32) -> Result<Vec<u8>, Error>;
    /// Whose domain a user is served from, by name, who is asked for on demand if need be: empty when nobody
    /// is served under that name. `request` is that of [`Trace`].
    fn find_user(&self, request: u64, name: &[u8]) -> Result<FoundUser, Error>;
    /// How the snapshot is.
    fn status(&self) -> Result<PublisherStatus, Error>;
    /// Entries of a domain that are not served, from that position on.
    fn rejected(&self, domain: &str, from: u32, at_most: u32) -> Result<Vec<Rejected>, Error>;
    /// Every entry of that name (`UserByName` or `GroupByName`) in any domain.
    fn show(&self, kind: Kind, name: &[u8]) -> Result<Vec<Shown>, Error>;
    /// Lets held removals of a domain happen; gives their number.
    fn confirm(&self, domain: &str) -> Result<u64, Error>;
    /// Publishes now, changed or not; returns when that was done.
    fn publish(&self) -> Result<u64, Error>;
    /// A snapshot is in place.
    #[zbus(signal)]
    fn snapshot_published(&self, generation: u64) -> zbus::Result<()>;
    /// What is remembered of this user is no longer true.
    #[zbus(signal)]
    fn invalidate_user(&self, name: &[u8]) -> zbus::Result<()>;
    /// What is remembered of this group is no longer true.
    #[zbus(signal)]
    fn invalidate_group(&self, name: &[u8]) -> zbus::Result<()>;
    /// Nothing that is remembered is sure to be true.
    #[zbus(signal)]
    fn invalidate_all(&self) -> zbus::Result<()>;
}

/// Who is served under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct FoundUser {
    /// The user's domain; empty when there is no such user, and then everything else is, too.
    pub domain: String,
    /// The name as it is served.
    pub name: Vec<u8>,
    /// User id.
    pub uid: u32,
}

/// How the snapshot is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct PublisherStatus {
    /// The file.
    pub snapshot: String,
    /// Its generation, 0 before the first.
    pub generation: u64,
    /// When it was published, in milliseconds since 1970.
    pub published_unix_ms: u64,
    /// Users in it.
    pub users: u64,
    /// Groups in it.
    pub groups: u64,
    /// Members of all groups.
    pub memberships: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Publications of this process.
    pub publications: u64,
    /// Bytes that they wrote.
    pub bytes_written: u64,
    /// From the first change to the rename, of the last publication, in microseconds.
    pub last_publish_us: u64,
    /// Why the last attempt failed; empty when it did not.
    pub error: String,
    /// What has to be before the next snapshot is made, and what that means for the one in place; empty
    /// when nothing is waited for.
    pub waits_for: String,
    /// Why the host's own accounts cannot be read; empty when they can.
    pub locals_error: String,
    /// Which snapshot is in place, if another program wrote it; empty when none did.
    pub foreign: String,
    /// Why the snapshot in place cannot be read from the disk; empty when it can.
    pub disk_error: String,
    /// Why the copy of it in memory is missing; empty when it is there, or when programs read another place.
    pub copy_error: String,
    /// Look-ups of programs that failed in the last minute.
    pub failed_lookups: u64,
    /// Why the last of them did; empty without any.
    pub failed_lookup: String,
    /// What became of each domain's entries.
    pub domains: Vec<DomainCounts>,
}

/// What became of a domain's entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct DomainCounts {
    /// Its name.
    pub domain: String,
    /// Whether the publisher has its entries.
    pub present: bool,
    /// Users served.
    pub users: u64,
    /// Groups served.
    pub groups: u64,
    /// Members that these groups list, whoever they are.
    pub listed: u64,
    /// Removals that wait for `Publisher::confirm`: the back-end began anew and has far fewer entries.
    pub held_removals: u64,
    /// The domain that goes before this one and was never read; until it is, this one is not served.
    /// Empty when there is none.
    pub waits_for: String,
    /// Why what its back-end hands over is not taken: the entries are those from before. Empty while it is.
    pub not_taken: String,
    /// The domain that goes before this one and is as the last snapshot had it, for nothing of it is taken;
    /// until it is, nobody new is served of this one. Empty when there is none.
    pub new_wait_for: String,
    /// Entries not served, by reason, most frequent first; of many different ones some as one.
    pub refused: Vec<(String, u64)>,
}

/// An entry in the publisher's hands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Type)]
pub struct Shown {
    /// Its domain.
    pub domain: String,
    /// Name.
    pub name: String,
    /// uid or gid.
    pub id: u32,
    /// Primary gid, of a user.
    pub gid: u32,
    /// GECOS, home folder and shell, of a user.
    pub details: Vec<String>,
    /// Members of a group, groups of a user, as the directory has them: served or not.
    pub related: Vec<String>,
    /// Why it is not served; empty when it is.
    pub refused: String,
}
