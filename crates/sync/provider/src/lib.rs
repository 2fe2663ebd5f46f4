// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface between a source of users and groups and a backend: a [`Provider`] reports entries to an
//! [`EntrySink`]. [`files`] is the provider for passwd(5) and group(5) text. An [`authenticator`] verifies passwords.
//! Account data ([`account`]) is evaluated here as well, purely: [`access`] decides about logins, and [`ssh_keys`]
//! about keys.
//!
//! A provider knows one directory and its schema. It only checks that an entry is a readable user or group. The
//! publisher decides which entries to serve, and the backend caches them.
#![forbid(unsafe_code)]

pub mod access;
pub mod account;
pub mod authenticator;
pub mod file_watch;
pub mod files;
pub mod jitter;
pub mod mass_deletion;
pub mod overrides;
pub mod reason;
pub mod ssh_keys;
pub mod stable_file;

use account::Account;
use reason::Reason;
use roster_messages::table::directory;
use roster_request::TrackingMethod;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::future::Future;

/// The permanent key of an entry in its directory: entryUUID, nsUniqueId or objectGUID. In a source without such keys
/// it is a hash of kind and name. A rename of an entry does not change it. A user and a group never share a key: if an
/// entry is both, the key of the group differs in a fixed way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(pub [u8; 16]);

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            let dash = if matches!(position, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// A user in the directory, after attribute mapping and templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryUser<'a> {
    /// Login name.
    pub name: Cow<'a, [u8]>,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// GECOS.
    pub gecos: Cow<'a, [u8]>,
    /// Home directory.
    pub dir: Cow<'a, [u8]>,
    /// Login shell.
    pub shell: Cow<'a, [u8]>,
    /// The DN by which member lists may name the user, see [`Member::Dn`]. Empty if lists have no DNs. Lists with names
    /// use [`Self::name`].
    pub reference: Cow<'a, [u8]>,
    /// Validity and ssh keys of the account.
    pub account: Account<'a>,
}

/// A group in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryGroup<'a> {
    /// Group name.
    pub name: Cow<'a, [u8]>,
    /// Group id. `None` for a nested-only group: other groups get its members, and access rules may name it. It is never
    /// served.
    pub gid: Option<u32>,
    /// The DN by which member lists may name the group, see [`Member::Dn`]. Empty if lists have no DNs.
    pub reference: Cow<'a, [u8]>,
    /// All members in the source, by name or by DN. A member may not exist, and two may be the same user. `None` if the
    /// members were not requested or are unknown, see [`EntrySink::members_unknown`].
    pub members: Option<Vec<Member<'a>>>,
}

impl DirectoryGroup<'_> {
    /// Copies borrowed bytes.
    #[must_use]
    pub fn into_owned(self) -> DirectoryGroup<'static> {
        let Self { name, gid, reference, members } = self;
        DirectoryGroup {
            name: Cow::Owned(name.into_owned()),
            gid,
            reference: Cow::Owned(reference.into_owned()),
            members: members.map(|members| members.into_iter().map(Member::into_owned).collect()),
        }
    }
}

/// A member in a list, in the canonical form of the source. Equal members mean the same entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Member<'a> {
    /// A user, by name.
    Name(Cow<'a, [u8]>),
    /// A user or a nested group, by normalised DN.
    Dn(Cow<'a, [u8]>),
}

impl Member<'_> {
    /// Copies borrowed bytes.
    #[must_use]
    pub fn into_owned(self) -> Member<'static> {
        match self {
            Self::Name(name) => Member::Name(Cow::Owned(name.into_owned())),
            Self::Dn(dn) => Member::Dn(Cow::Owned(dn.into_owned())),
        }
    }
}

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryEntry<'a> {
    /// A user.
    User(DirectoryUser<'a>),
    /// A group.
    Group(DirectoryGroup<'a>),
}

/// The number of a search that a provider makes in its directory. Each search has its own cookie and its own set of
/// removed entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SearchId(pub u8);

/// The state of change tracking, which is cached over restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncCookie {
    /// The validity of the cookie: server, bind DN, base, filter, attributes. With another binding it is worthless.
    pub binding: String,
    /// Bytes of the provider: the server's cookie and all other data that a resumption needs.
    pub value: Vec<u8>,
}

/// The state of entries that a refresh of a search did not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlistedEntries {
    /// The source proves absence, as a text file does. The entries are gone.
    Removed,
    /// The reply listed all visible entries, but may be incomplete. Each missing entry is searched by its key before it
    /// is removed.
    Missing,
    /// The refresh listed changes. The entries are unchanged.
    Unchanged,
}

/// The receiver of entries in a backend. Calls take effect in their order. A change becomes visible outside with the
/// next [`EntrySink::flush`]. No call waits.
pub trait EntrySink: Send + Sync {
    /// The directory replies through this server. `passed_over` has the reason that servers of higher rank are not
    /// used, if there are any.
    fn online(&self, server: &str, passed_over: Option<&Reason>);
    /// The directory is unreachable for this reason. The cached entries are still served.
    fn offline(&self, reason: &Reason);
    /// A refresh of a search begins. It replaces an unfinished one of the same search.
    fn refresh_began(&self, part: SearchId);
    /// Stores the present state of an entry. Replaces the entry with the same id.
    fn put(&self, part: SearchId, id: EntryId, entry: DirectoryEntry<'_>);
    /// Stores entries of one search that name each other. They become visible at the same time.
    fn put_atomically(&self, part: SearchId, entries: Vec<(EntryId, DirectoryEntry<'_>)>) {
        for (id, entry) in entries {
            self.put(part, id, entry);
        }
    }
    /// During a refresh: the entry is unchanged. Returns `false` and does nothing for an unknown id.
    fn present(&self, part: SearchId, id: EntryId) -> bool;
    /// The server reports that the entry was deleted or does not match any more. Ignored for an unknown id.
    fn removed(&self, part: SearchId, id: EntryId);
    /// A search succeeded without the entry, and the server did not report a removal. The entry is searched by its key
    /// before it is removed.
    fn missing(&self, part: SearchId, id: EntryId) {
        self.removed(part, id);
    }
    /// The entry exists and is not a readable user or group. An earlier readable version is no longer served.
    fn rejected(&self, part: SearchId, id: EntryId, rejected: &UnreadableEntry<'_>);
    /// The refresh of a search is complete. A failed refresh never ends.
    fn refresh_ended(
        &self,
        part: SearchId,
        unmentioned: UnlistedEntries,
        cookie: Option<SyncCookie>,
    );
    /// The changes so far correspond to this cookie.
    fn cookie(&self, part: SearchId, cookie: SyncCookie);
    /// The user's groups are exactly these, as a lookup of [`LookupQuery::GroupsOf`] found. Each of them was
    /// [`put`](Self::put) before.
    fn user_groups(&self, user: EntryId, groups: &[EntryId]);
    /// The group was [`put`](Self::put) without its members, because they are unknown, for example too many. Its cached
    /// members are invalid. Ignored for an unknown id.
    fn members_unknown(&self, part: SearchId, id: EntryId);
    /// Returns for each member whether its entry was [`put`](Self::put), and if it is a group, with its members. A
    /// lookup need not fetch such an entry.
    fn knows(&self, members: &[&Member<'_>]) -> Vec<bool>;
    /// The changes so far are consistent and may be published.
    fn flush(&self);
    /// Returns whether the sink accepts more. If not, earlier entries are still to be written to disk, and callers that
    /// can wait should do so.
    fn has_capacity(&self) -> bool;
}

/// An entry that is not a readable user or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableEntry<'a> {
    /// The name for an administrator: a DN, or a line number.
    pub name: &'a str,
    /// The DN by which member lists name the entry if it is a group, otherwise empty. Then groups that contain it have
    /// incomplete members.
    pub reference: &'a [u8],
    /// The reason.
    pub reason: &'a Reason,
}

/// A lookup in a directory in on-demand mode. A query for groups of a user reports the user, the groups, and
/// [`EntrySink::user_groups`].
pub type LookupQuery = roster_request::Query<Vec<u8>>;

/// The entries that a batch of lookups returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookupScope {
    /// Users.
    Users,
    /// Users and their groups. The groups have no members.
    UsersWithGroups,
    /// Groups without their members.
    Groups,
    /// Groups and their members.
    GroupsWithMembers,
}

/// The keys of a batch of lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupKeys<'a> {
    /// Entries with these names.
    Names(&'a [Vec<u8>]),
    /// Entries with these uids or gids.
    Ids(&'a [u32]),
}

impl<'a> LookupKeys<'a> {
    /// Splits the keys into parts of at most this size.
    #[must_use]
    pub fn chunks(self, size: usize) -> Vec<Self> {
        match self {
            LookupKeys::Names(names) => names.chunks(size).map(LookupKeys::Names).collect(),
            LookupKeys::Ids(ids) => ids.chunks(size).map(LookupKeys::Ids).collect(),
        }
    }
}

/// The result of a search for entries by their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySearchResult {
    /// The entries that exist in the directory.
    pub found: HashSet<EntryId>,
    /// The search base is readable. If no entry was known to exist, the directory also shows an entry of this kind. If
    /// false, a missing entry proves nothing.
    pub is_credible: bool,
}

/// The reason that a lookup failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// No server replies.
    #[error("{0}")]
    Unreachable(Reason),
    /// A server is reachable, but this lookup failed: it met a limit, took too long, or returned unreadable data. Other
    /// lookups may succeed.
    #[error("{0}")]
    Failed(Reason),
}

impl LookupError {
    /// Returns the failure of a lookup without a reply in time.
    #[must_use]
    pub fn timeout() -> Self {
        let text = "the directory did not reply in time";
        Self::Failed(Reason::new(&directory::LOOKUP_TIMEOUT, text))
    }

    /// Returns the reason.
    #[must_use]
    pub fn into_reason(self) -> Reason {
        let (Self::Unreachable(reason) | Self::Failed(reason)) = self;
        reason
    }
}

/// The servers that DNS lists for a domain, and the site of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryLocation {
    /// The site of this host. `None` if the directory has no sites, or if the site is not known.
    pub site: Option<String>,
    /// The servers of the site, or all servers without one.
    pub near: Vec<String>,
    /// The other servers of the domain.
    pub distant: Vec<String>,
}

/// A source of users and groups. One task runs [`mirror`](Self::mirror), and lookups run beside it.
pub trait Provider: Send + Sync {
    /// Returns the searches that [`mirror`](Self::mirror) refreshes. After a complete refresh of each, the cache has
    /// all entries.
    fn parts(&self) -> Vec<SearchId>;

    /// Returns a text that changes if the same source would be reported differently, for example with another search or
    /// with other home directories.
    fn source_fingerprint(&self) -> String;

    /// Returns the present tracking method. `None` if it is not known yet.
    fn tracking_method(&self) -> Option<TrackingMethod>;

    /// Returns the servers to which the source refers for some of its entries. These entries are not read.
    fn referred_servers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the servers that DNS lists. Configured servers are not among them.
    fn location(&self) -> DirectoryLocation {
        DirectoryLocation::default()
    }

    /// Returns the number of members in lists that belong to other domains, and are not resolved.
    fn foreign_members(&self) -> u64 {
        0
    }

    /// Mirrors the source into the sink until the process ends, and reconnects after failures. In on-demand mode it
    /// only maintains the connection, and reports online and offline. Returns only an error that no retry can fix.
    fn mirror(&self, cookies: Vec<(SearchId, SyncCookie)>) -> impl Future<Output = Reason> + Send;

    /// Runs one lookup and reports its entries to the sink. Returns `true` if it found an entry. A group is reported
    /// after all its members are known. If they stay unknown, it is reported without them, which is an error. The
    /// provider applies its own timeout. A dropped lookup is abandoned at the server.
    fn lookup(&self, what: &LookupQuery) -> impl Future<Output = Result<bool, LookupError>> + Send;

    /// Returns whether the filter matches the user in the directory now. Returns `false` for a source without filters.
    fn matches_filter(
        &self,
        user: &[u8],
        uid: u32,
        filter: &str,
    ) -> impl Future<Output = Result<bool, LookupError>> + Send {
        let _ = (user, uid, filter);
        async { Ok(false) }
    }

    /// Looks several entries up, with as few requests as possible, and reports the existing ones as
    /// [`lookup`](Self::lookup) does.
    fn lookup_all(
        &self,
        of: LookupScope,
        keys: LookupKeys<'_>,
    ) -> impl Future<Output = Result<(), LookupError>> + Send;

    /// Searches for entries by their keys. `missing` has entries that were absent from a listing or a reply. The same
    /// search requests the `control` entries, which must exist. All are users, or all are groups, as `of` states. A
    /// found missing entry is [`put`](EntrySink::put) into the sink now, or after the mirror has read it again.
    fn search_keys(
        &self,
        of: LookupScope,
        missing: &[(SearchId, EntryId)],
        control: &[EntryId],
    ) -> impl Future<Output = Result<KeySearchResult, LookupError>> + Send;

    /// Reconnects at once and lists all entries.
    fn refresh(&self);

    /// Reads these groups again once the directory replies, and all groups that list one of these DNs, and
    /// [`put`](EntrySink::put)s them, because their members may have changed. A source that reports every change does
    /// nothing.
    fn reread_groups(&self, groups: &[(SearchId, EntryId)], named: &[Vec<u8>]) {
        let _ = (groups, named);
    }
}
