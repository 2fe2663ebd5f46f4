//! What a source of users and groups is to a back-end: a [`Provider`] that reports entries into a
//! [`Sink`], and [`files`], the provider that reads passwd(5) and group(5) text; and what it takes to
//! [log people in](log_in). What a source says of [accounts](account) is judged here too, purely: who
//! may log in ([`access`]), and with which keys ([`ssh_keys`]).
//!
//! A provider knows one directory and its schema. It judges only whether something is a readable
//! user or group at all; which of them may be served is the publisher's business, and what is kept
//! over a restart the back-end's.
#![forbid(unsafe_code)]

pub mod access;
pub mod account;
pub mod files;
pub mod log_in;
pub mod overrides;
pub mod settled;
pub mod spread;
pub mod ssh_keys;
pub mod watch;

use account::Account;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::future::Future;

/// The directory's own lasting key of an entry: entryUUID, nsUniqueId or objectGUID, or a hash of
/// kind and name where a source has none. It stays when the entry is renamed. No user and no group
/// share one: where an entry of a directory is both, the group's differs in a fixed way.
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

/// A user as the directory has it, after attribute mapping and templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User<'a> {
    /// Log-in name.
    pub name: Cow<'a, [u8]>,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// GECOS.
    pub gecos: Cow<'a, [u8]>,
    /// Home folder.
    pub dir: Cow<'a, [u8]>,
    /// Log-in shell.
    pub shell: Cow<'a, [u8]>,
    /// The DN by which member lists may name the user, see [`Member::Dn`]; empty where none does. By name
    /// they do with [`Self::name`].
    pub reference: Cow<'a, [u8]>,
    /// Whether the account may be used, and with which keys.
    pub account: Account<'a>,
}

/// A group as the directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Group name.
    pub name: Cow<'a, [u8]>,
    /// Group id.
    pub gid: u32,
    /// The DN by which member lists name the group, see [`Member::Dn`]; empty where none does.
    pub reference: Cow<'a, [u8]>,
    /// All members that the source names in any way. Some may lead nowhere, and two may mean one user.
    /// `None` when the members were not asked for, or cannot be told, see [`Sink::members_unknown`].
    pub members: Option<Vec<Member<'a>>>,
}

/// How a list names a member, in the canonical form of the source: equal ones mean the same entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Member<'a> {
    /// A user, by name.
    Name(Cow<'a, [u8]>),
    /// A user or a nested group, by normalised DN.
    Dn(Cow<'a, [u8]>),
}

impl Member<'_> {
    /// The same with bytes of its own.
    #[must_use]
    pub fn into_owned(self) -> Member<'static> {
        match self {
            Self::Name(name) => Member::Name(Cow::Owned(name.into_owned())),
            Self::Dn(dn) => Member::Dn(Cow::Owned(dn.into_owned())),
        }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A user.
    User(User<'a>),
    /// A group.
    Group(Group<'a>),
}

/// One of the searches that a provider makes of its directory, by number. Each has a cookie of its
/// own, and each knows on its own which of its entries are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Part(pub u8);

/// Where change tracking stands, kept over restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// What the cookie is valid for: server, bind DN, base, filter, attributes. Under any other
    /// binding it is worthless.
    pub binding: String,
    /// The provider's bytes: what the server gave, and what else it takes to go on from there.
    pub value: Vec<u8>,
}

/// What becomes of entries of a part that a refresh did not mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmentioned {
    /// The source states its own content whole, as a text file does: they are gone.
    Gone,
    /// The reply listed everything that the server showed. It may be incomplete all the same: each
    /// missing entry is looked for by its key before it goes.
    Missing,
    /// The refresh listed changes: they are as they were.
    Kept,
}

/// A back-end's ear. Calls take effect in their order; a change becomes visible outside with the
/// next [`Sink::flush`]. Nothing here waits.
pub trait Sink: Send + Sync {
    /// The directory answers, through this server; and why those that go before it do not, empty when
    /// none does.
    fn online(&self, server: &str, passed_over: &str);
    /// It does not, for this reason. What was served goes on being served.
    fn offline(&self, reason: &str);
    /// A refresh of a part begins; an earlier one of the part that has not ended is void.
    fn refresh_began(&self, part: Part);
    /// An entry as it is now; replaces the one with the same id.
    fn put(&self, part: Part, id: EntryId, entry: Entry<'_>);
    /// Entries of one part that name each other: nobody may see some of them without the others.
    fn put_together(&self, part: Part, entries: Vec<(EntryId, Entry<'_>)>) {
        for (id, entry) in entries {
            self.put(part, id, entry);
        }
    }
    /// During a refresh: the entry is as it was. `false` for an id that is not known, for which it
    /// means nothing.
    fn present(&self, part: Part, id: EntryId) -> bool;
    /// The server names the entry as deleted, or as one that does not match any more. Means nothing for
    /// an id that is not known.
    fn removed(&self, part: Part, id: EntryId);
    /// A search for the entry succeeded without it, and the server did not name it as deleted: it is
    /// looked for by its key before it goes.
    fn missing(&self, part: Part, id: EntryId) {
        self.removed(part, id);
    }
    /// The entry is there and cannot be read as a user or a group; an earlier good version of it is
    /// not served any more.
    fn rejected(&self, part: Part, id: EntryId, rejected: &Rejected<'_>);
    /// The refresh of a part is whole. A refresh that fails midway is never ended.
    fn refresh_ended(&self, part: Part, unmentioned: Unmentioned, cookie: Option<Cookie>);
    /// All changes so far are those up to this cookie.
    fn cookie(&self, part: Part, cookie: Cookie);
    /// The user's groups are exactly these, of which each was [`put`](Self::put) before: what a
    /// look-up of [`LookUp::GroupsOf`] found.
    fn groups_of(&self, user: EntryId, groups: &[EntryId]);
    /// The group was [`put`](Self::put) without its members, for these cannot be told, as when there
    /// are too many: what is known of them from before is not true any more. Means nothing for an id
    /// that is not known.
    fn members_unknown(&self, part: Part, id: EntryId);
    /// Of each entry that a member list names so, whether it was [`put`](Self::put), with its own members
    /// if it is a group: a look-up need not fetch it to tell its name.
    fn knows(&self, members: &[&Member<'_>]) -> Vec<bool>;
    /// What came so far belongs together and may be published.
    fn flush(&self);
    /// Whether there is room for more. Where there is none, what came is still to be written to a slow
    /// disk, and whoever can wait a moment should.
    fn has_room(&self) -> bool;
}

/// An entry that cannot be read as a user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected<'a> {
    /// What an administrator would look for, a DN or a line's place.
    pub name: &'a str,
    /// The DN by which member lists name the entry if it is a group; else empty. The members of a group
    /// around it are then not known whole.
    pub reference: &'a [u8],
    /// Why it cannot be read.
    pub reason: &'a str,
}

/// A question to a directory that is asked on demand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LookUp {
    /// A user by name.
    UserByName(Vec<u8>),
    /// A user by uid.
    UserByUid(u32),
    /// A group with its members, by name.
    GroupByName(Vec<u8>),
    /// A group with its members, by gid.
    GroupByGid(u32),
    /// The groups of a user, without their members. Reports the user, the groups, and
    /// [`Sink::groups_of`].
    GroupsOf(Vec<u8>),
}

/// What entries that are asked for together are to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Of {
    /// Users.
    Users,
    /// Users and their groups, these without their members.
    UsersWithGroups,
    /// Groups without their members.
    Groups,
    /// Groups and their members.
    GroupsWithMembers,
}

/// Which entries are asked for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys<'a> {
    /// Those of these names.
    Names(&'a [Vec<u8>]),
    /// Those of these uids or gids.
    Ids(&'a [u32]),
}

impl<'a> Keys<'a> {
    /// The same in parts of at most that many.
    #[must_use]
    pub fn chunks(self, size: usize) -> Vec<Self> {
        match self {
            Keys::Names(names) => names.chunks(size).map(Keys::Names).collect(),
            Keys::Ids(ids) => ids.chunks(size).map(Keys::Ids).collect(),
        }
    }
}

/// What a search for entries by their keys found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// The entries that the directory has.
    pub found: HashSet<EntryId>,
    /// Whether the search base can be read and, where no entry was known to be there, whether the
    /// directory shows any entry of the kind. If not, nothing follows from an entry that was not found.
    pub is_credible: bool,
}

/// Why there is no answer to a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// No server answers anything.
    #[error("{0}")]
    Unreachable(String),
    /// A server is there and does not answer this: it holds to a limit, takes too long over it, or
    /// gives what cannot be read. Other questions may well be answered.
    #[error("{0}")]
    Failed(String),
}

/// A source of users and groups. One task runs [`mirror`](Self::mirror); look-ups come beside it.
pub trait Provider: Send + Sync {
    /// The parts that [`mirror`](Self::mirror) refreshes. What is known is all there is once each of
    /// them was refreshed whole.
    fn parts(&self) -> Vec<Part>;

    /// A text that is another one where the same source would be reported otherwise: found by another search,
    /// or with other homes.
    fn reading(&self) -> String;

    /// How changes are followed at the moment, for people: `syncrepl`, `syncrepl, never resumed`,
    /// `persistent search`, `polling`, `polling, everything each time`, `inotify`, `on demand`; empty when that is not known yet.
    fn tracking(&self) -> Cow<'static, str>;

    /// Mirrors the source into the sink for as long as the process lives; reconnects by itself.
    /// In on-demand mode it only keeps the connection and tells online and offline. Returns only
    /// with what no retry can mend.
    fn mirror(&self, cookies: Vec<(Part, Cookie)>) -> impl Future<Output = String> + Send;

    /// Asks the directory one question and reports what it found into the sink, `true` when it
    /// found something. A group is reported when all its members are known; one whose members cannot
    /// be told is reported without them, which is an error. Has its own deadline; whoever does not
    /// wait for it any more drops it, and the directory is told.
    fn look_up(&self, what: &LookUp) -> impl Future<Output = Result<bool, Unanswered>> + Send;

    /// Whether the user is among those whom this filter finds, by the directory as it is now. A source
    /// without filters finds nobody.
    fn matches(
        &self,
        user: &[u8],
        uid: u32,
        filter: &str,
    ) -> impl Future<Output = Result<bool, Unanswered>> + Send {
        let _ = (user, uid, filter);
        async { Ok(false) }
    }

    /// Asks for several entries, in as few questions as that takes, and reports those that there are,
    /// as [`look_up`](Self::look_up) does.
    fn look_up_all(
        &self,
        of: Of,
        keys: Keys<'_>,
    ) -> impl Future<Output = Result<(), Unanswered>> + Send;

    /// Searches for entries by their keys: the `missing` ones, of which a listing or a reply lacked
    /// each, and in the same search the `control` entries, which must be there. They are all users, or
    /// all groups, as `of` says. Each missing entry that is found is [`put`](Sink::put) into the sink,
    /// now or once a mirror has read it again.
    fn look_for(
        &self,
        of: Of,
        missing: &[(Part, EntryId)],
        control: &[EntryId],
    ) -> impl Future<Output = Result<Looked, Unanswered>> + Send;

    /// The directory is to be asked anew now: reconnect at once, and enumerate whole.
    fn refresh(&self);

    /// The provider reads these groups again once the directory answers, and each group whose lists hold one of
    /// these DNs, and [`put`](Sink::put)s them: their members may be others. A source that reports every change
    /// does nothing.
    fn read_anew(&self, groups: &[(Part, EntryId)], named: &[Vec<u8>]) {
        let _ = (groups, named);
    }
}
