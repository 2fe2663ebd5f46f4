// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single lookups in the directory: their searches, and the entries that they report. `lookup_connection` sends the
//! searches, and `schema` parses the entries.
//!
//! A name enters a filter as a raw value. An entry counts only if it has exactly the requested name, by the domain's
//! rule on case. The groups of a user take one search. If lists may have DNs, each hundred of these groups takes
//! another search, because other groups may list them. Members of groups that the sink does not know are fetched by the
//! hundred. A list that is too long is an error: no list is cut.

use crate::LdapProvider;
use crate::ber::BerError;
use crate::dn;
use crate::entry_key::{key_values, missing_key, read_key};
use crate::error::LdapError;
use crate::filter::EncodedFilter;
use crate::lookup_connection::{EntryMessages, LookupConnection, SearchQuery};
use crate::message::{LdapResponse, RawEntry, ResponseOperation, Scope, printable};
use crate::schema::{
    AttributeMapping, MemberSyntax, PartialGroup, ReadResult, RemainingMembers, dn_not_utf8,
    group_id, incomplete_list_reason,
};
use crate::search::{MirrorSearch, group_filter};
use crate::search_region::{SearchRegion, regions};
use parking_lot::Mutex;
use roster_config::SearchConfig;
use roster_messages::{log, table::directory};
use roster_provider::account::{AccountFact, FactValue};
use roster_provider::reason::Reason;
use roster_provider::{
    DirectoryEntry, DirectoryGroup, DirectoryUser, EntryId, EntrySink, KeySearchResult,
    LookupError, LookupKeys, LookupQuery, LookupScope, Member, SearchId, UnreadableEntry,
};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::slice;
use std::sync::Arc;

/// Names or ids in one filter. Few enough for any server, and enough to save round trips.
const KEYS_PER_SEARCH: usize = 100;
/// Levels of nested groups that a lookup follows.
const LEVELS_MAX: usize = 32;
/// Limit of the members of one group, the groups of one user, and the entries that one lookup may have to fetch.
const FETCHED_MAX: usize = 10_000;
/// Limit of the entries with lists beyond a limit that are logged, each once.
const LOGGED_ENTRIES_MAX: usize = 1_000;

/// Regions, filters and attributes of the searches for one kind of entry.
struct EntrySearch {
    part: SearchId,
    regions: Arc<[EntryRegion]>,
    /// The first is the attribute of the name.
    attributes: Vec<String>,
}

/// A region, and the filter of its entries.
struct EntryRegion {
    region: SearchRegion,
    base: Arc<str>,
    filter: EncodedFilter,
}

impl EntryRegion {
    /// Returns the query for the entries that match this filter as well.
    fn query(&self, filter: &EncodedFilter, attributes: Arc<[String]>) -> SearchQuery {
        SearchQuery {
            base: Arc::clone(&self.base),
            scope: self.region.scope(),
            filter: EncodedFilter::all([&self.filter, filter]),
            attributes,
            entries_max: 0,
        }
    }

    /// Drops the entries that another region has.
    fn retain_own(&self, found: &mut EntryMessages) {
        if self.region.has_exclusions() {
            found.retain(|message| match LdapResponse::parse(message) {
                Ok(LdapResponse { operation: ResponseOperation::Entry(entry), .. }) => {
                    self.region.owns_found(entry.dn)
                }
                // Reported when the entries are read.
                _ => true,
            });
        }
    }
}

fn entry_regions(
    search: &SearchConfig,
    filter: &EncodedFilter,
) -> Result<Arc<[EntryRegion]>, String> {
    let regions = regions(&search.bases)?.into_iter().map(|region| EntryRegion {
        base: region.base.as_str().into(),
        filter: region.narrow(filter.clone()),
        region,
    });
    Ok(regions.collect())
}

impl EntrySearch {
    fn name(&self) -> &str {
        self.attributes.first().map_or("", String::as_str)
    }
}

/// Parameters of the lookups of a domain.
pub(crate) struct Lookups {
    users: EntrySearch,
    groups: EntrySearch,
    groups_with_members: EntrySearch,
    uuid: Option<String>,
    mapping: Arc<AttributeMapping>,
    /// Entries with lists beyond a limit that were logged.
    logged_entries: Mutex<HashSet<EntryId>>,
}

/// The open connection, and the domain, which can open another one.
pub(crate) struct LookupSession<'a> {
    pub ldap: &'a LdapProvider,
    pub open: LookupConnection,
}

impl LookupSession<'_> {
    async fn search(&mut self, question: SearchQuery) -> Result<EntryMessages, LookupError> {
        let ldap = self.ldap;
        ldap.lookup_connector.search(&mut self.open, question, || ldap.connect_lookups()).await
    }
}

/// The entry of a user that logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoginEntry {
    pub dn: String,
    pub uid: u32,
    /// The entry has the day of the last password change.
    pub has_change_day: bool,
}

/// A user in a search result. The sink already has it.
struct FoundUser {
    id: EntryId,
    dn: Vec<u8>,
    /// The names as the directory spells them.
    names: Vec<Vec<u8>>,
}

/// A group in a search result. The sink does not have it yet.
struct FoundGroup {
    id: EntryId,
    dn: Vec<u8>,
    group: DirectoryGroup<'static>,
}

/// A search for entries by their keys.
pub(crate) struct KeySearch<'a> {
    /// The keys are keys of groups.
    pub is_for_groups: bool,
    /// The keys to search for.
    pub ids: &'a [EntryId],
    /// No entry is known to exist, so the directory has to show one of this kind.
    pub requires_any: bool,
    /// The attribute with the keys of a mirror. Without it, found entries are reported.
    pub mirror_key: Option<&'a str>,
}

/// Filter of the entries in a search result.
enum EntrySelection {
    All,
    Names(HashSet<Vec<u8>>),
    Members(HashSet<Member<'static>>),
}

impl EntrySelection {
    fn includes_user(&self, user: &DirectoryUser<'_>, mapping: &AttributeMapping) -> bool {
        match self {
            Self::All => true,
            Self::Names(wanted) => wanted.contains(&*mapping.comparable_name(&user.name)),
            Self::Members(wanted) => {
                let named = Member::Name(mapping.comparable_name(&user.name));
                wanted.contains(&named)
                    || wanted.contains(&Member::Dn(Cow::Borrowed(&user.reference)))
            }
        }
    }

    fn includes_group(&self, group: &DirectoryGroup<'_>, mapping: &AttributeMapping) -> bool {
        match self {
            Self::All => true,
            Self::Names(wanted) => wanted.contains(&*mapping.comparable_name(&group.name)),
            Self::Members(wanted) => wanted.contains(&Member::Dn(Cow::Borrowed(&group.reference))),
        }
    }
}

impl Lookups {
    pub fn new(
        ldap: &roster_config::LdapConfig,
        searches: &[MirrorSearch],
        mapping: Arc<AttributeMapping>,
    ) -> Result<Self, String> {
        let names = &ldap.attributes;
        let parse = |text: &str| EncodedFilter::parse(text).map_err(|error| error.to_string());
        let part = |of_users: bool| {
            searches
                .iter()
                .find(|search| if of_users { search.has_users() } else { search.has_groups() })
                .map_or(SearchId(0), |search| search.id)
        };
        let users = EntrySearch {
            part: part(true),
            regions: entry_regions(&ldap.users, &parse(&ldap.users.filter)?)?,
            attributes: mapping.user_attributes(),
        };
        let groups = EntrySearch {
            part: part(false),
            regions: entry_regions(&ldap.groups, &group_filter(ldap)?)?,
            attributes: mapping.group_attributes(false),
        };
        let groups_with_members = EntrySearch {
            part: groups.part,
            regions: Arc::clone(&groups.regions),
            attributes: mapping.group_attributes(true),
        };
        Ok(Self {
            users,
            groups,
            groups_with_members,
            uuid: names.uuid.clone(),
            mapping,
            logged_entries: Mutex::default(),
        })
    }

    /// Returns the most frequent kinds of lookups. They are cheap for any server that can answer them.
    pub fn trial_queries(&self) -> Vec<SearchQuery> {
        let plain = |target: &EntrySearch| {
            let named = EncodedFilter::equals(target.name(), b"roster");
            let query = |one: &EntryRegion| one.query(&named, Arc::new(["1.1".to_owned()]));
            target.regions.iter().map(query).collect::<Vec<_>>()
        };
        [&self.users, &self.groups].map(plain).concat()
    }

    /// Runs one lookup and reports the entries to the sink. Returns whether it found an entry.
    pub async fn run_query(
        &self,
        what: &LookupQuery,
        asker: &mut LookupSession<'_>,
        sink: &dyn EntrySink,
    ) -> Result<bool, LookupError> {
        let found = match what {
            LookupQuery::UserByName(name) => {
                let keys = LookupKeys::Names(slice::from_ref(name));
                !self.users_by_keys(asker, sink, keys).await?.is_empty()
            }
            LookupQuery::UserByUid(uid) => {
                let keys = LookupKeys::Ids(slice::from_ref(uid));
                !self.users_by_keys(asker, sink, keys).await?.is_empty()
            }
            LookupQuery::GroupByName(name) => {
                let keys = LookupKeys::Names(slice::from_ref(name));
                let groups = self.groups_by_keys(asker, sink, keys, true).await?;
                self.report_complete(asker, sink, groups, true).await?
            }
            LookupQuery::GroupByGid(gid) => {
                let keys = LookupKeys::Ids(slice::from_ref(gid));
                let groups = self.groups_by_keys(asker, sink, keys, true).await?;
                self.report_complete(asker, sink, groups, true).await?
            }
            LookupQuery::GroupsOf(name) => {
                let keys = LookupKeys::Names(slice::from_ref(name));
                self.users_with_groups(asker, sink, keys).await?
            }
        };
        if found {
            sink.flush();
        }
        Ok(found)
    }

    /// Reports the existing ones of the requested entries.
    pub async fn run_batch(
        &self,
        of: LookupScope,
        keys: LookupKeys<'_>,
        asker: &mut LookupSession<'_>,
        sink: &dyn EntrySink,
    ) -> Result<(), LookupError> {
        for keys in keys.chunks(KEYS_PER_SEARCH) {
            match of {
                LookupScope::Users => {
                    self.users_by_keys(asker, sink, keys).await?;
                }
                LookupScope::UsersWithGroups => {
                    self.users_with_groups(asker, sink, keys).await?;
                }
                LookupScope::Groups => {
                    let groups = self.groups_by_keys(asker, sink, keys, false).await?;
                    groups.into_iter().for_each(|group| self.report_group(sink, group));
                }
                LookupScope::GroupsWithMembers => {
                    let groups = self.groups_by_keys(asker, sink, keys, true).await?;
                    self.report_complete(asker, sink, groups, false).await?;
                }
            }
        }
        sink.flush();
        Ok(())
    }

    /// Returns whether the filter matches the user. Reports nothing.
    pub async fn matches_filter(
        &self,
        asker: &mut LookupSession<'_>,
        user: &[u8],
        uid: u32,
        filter: &str,
    ) -> Result<bool, LookupError> {
        let filter = EncodedFilter::parse(filter).map_err(|error| {
            lookup_failed(asker, Reason::new(&directory::FILTER_INVALID, error))
        })?;
        let named = EncodedFilter::equals(self.users.name(), user);
        let filter = EncodedFilter::all([&named, &filter]);
        let answer = self.search(asker, &self.users, &filter).await?;
        let mut found = false;
        each_entry(&answer, |entry| {
            let read = self.mapping.user(entry)?;
            found |= read.is_ok_and(|read| *read.name == *user && read.uid == uid);
            Ok(())
        })
        .map_err(|error| reply_unusable(asker, &error))?;
        Ok(found)
    }

    /// Searches for entries by their keys. Also reads the entries that must be there for the reply to be credible.
    pub async fn find_by_keys(
        &self,
        asker: &mut LookupSession<'_>,
        sink: &dyn EntrySink,
        wanted: KeySearch<'_>,
    ) -> Result<KeySearchResult, LookupError> {
        let KeySearch { is_for_groups: of_groups, ids, requires_any: needs_any, mirror_key } =
            wanted;
        let target = if of_groups { &self.groups } else { &self.users };
        let key = mirror_key.map_or_else(|| self.key(asker), str::to_owned);
        let mut found = HashSet::new();
        for ids in ids.chunks(KEYS_PER_SEARCH) {
            // The key of a group is the key of its entry, changed in a fixed way.
            let entry = |id: &EntryId| if of_groups { group_id(*id) } else { *id };
            let keys = ids.iter().flat_map(|id| key_values(&key, entry(id))).collect::<Vec<_>>();
            let filter = EncodedFilter::equals_any(&key, &keys);
            match (mirror_key, of_groups) {
                (Some(_), _) => {
                    let answer = self.search_keys(asker, target, &filter, &key).await?;
                    each_entry(&answer, |one| {
                        found.insert(entry(&id_of(one, &key)?));
                        Ok(())
                    })
                    .map_err(|error| reply_unusable(asker, &error))?;
                }
                (None, false) => {
                    let users = self.users(asker, sink, filter, &EntrySelection::All).await?;
                    found.extend(users.iter().map(|user| user.id));
                }
                (None, true) => {
                    let groups =
                        self.groups(asker, sink, filter, false, &EntrySelection::All).await?;
                    found.extend(groups.iter().map(|group| group.id));
                    groups.into_iter().for_each(|group| self.report_group(sink, group));
                }
            }
        }
        let is_credible = self.shows_bases(asker, target).await?
            && (!needs_any || self.shows_any(asker, target).await?);
        if mirror_key.is_none() {
            sink.flush();
        }
        Ok(KeySearchResult { found, is_credible })
    }

    async fn search_keys(
        &self,
        asker: &mut LookupSession<'_>,
        target: &EntrySearch,
        filter: &EncodedFilter,
        key: &str,
    ) -> Result<EntryMessages, LookupError> {
        self.search_regions(asker, target, filter, Arc::new([key.to_owned()])).await
    }

    /// Returns whether the search bases themselves are readable.
    async fn shows_bases(
        &self,
        asker: &mut LookupSession<'_>,
        target: &EntrySearch,
    ) -> Result<bool, LookupError> {
        for EntryRegion { base, .. } in &*target.regions {
            let question = SearchQuery {
                base: Arc::clone(base),
                scope: Scope::Base,
                filter: EncodedFilter::present("objectClass"),
                attributes: Arc::new(["1.1".to_owned()]),
                entries_max: 0,
            };
            if !self.has_entry(asker, question).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether the directory shows any entry of the kind.
    async fn shows_any(
        &self,
        asker: &mut LookupSession<'_>,
        target: &EntrySearch,
    ) -> Result<bool, LookupError> {
        for EntryRegion { region, base, filter } in &*target.regions {
            let question = SearchQuery {
                base: Arc::clone(base),
                scope: region.scope(),
                filter: filter.clone(),
                attributes: Arc::new(["1.1".to_owned()]),
                entries_max: 1,
            };
            if self.has_entry(asker, question).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn has_entry(
        &self,
        asker: &mut LookupSession<'_>,
        question: SearchQuery,
    ) -> Result<bool, LookupError> {
        let answer = asker.search(question).await?;
        let mut is_found = false;
        each_entry(&answer, |_| {
            is_found = true;
            Ok(())
        })
        .map_err(|error| reply_unusable(asker, &error))?;
        Ok(is_found)
    }

    /// Returns the entry of the only user of that name.
    pub async fn find_user(
        &self,
        asker: &mut LookupSession<'_>,
        name: &[u8],
    ) -> Result<Option<LoginEntry>, LookupError> {
        let names = [name.to_vec()];
        let attributes = self.mapping.attributes();
        let (filter, wanted) =
            self.key_filter(&attributes.user_name, &attributes.user_uid, LookupKeys::Names(&names));
        let answer = self.search(asker, &self.users, &filter).await?;
        let mut found = Vec::new();
        each_entry(&answer, |entry| {
            if let Ok(user) = self.mapping.user(entry)?
                && wanted.includes_user(&user, &self.mapping)
            {
                let day = user.account.value_of(AccountFact::LastChange);
                let has_change_day = day != FactValue::Absent;
                let read = String::from_utf8(entry.dn.to_vec());
                found.push(read.map(|dn| LoginEntry { dn, uid: user.uid, has_change_day }));
            }
            Ok(())
        })
        .map_err(|error| reply_unusable(asker, &error))?;
        let (one, others) = (found.pop(), found.len());
        match one {
            None => Ok(None),
            Some(Ok(entry)) if others == 0 => Ok(Some(entry)),
            Some(Ok(_)) => {
                let count = others + 1;
                let text = format!("{count} users have the name {}", printable(name));
                Err(lookup_failed(asker, Reason::new(&directory::USER_NAME_AMBIGUOUS, text)))
            }
            Some(Err(_)) => Err(lookup_failed(asker, dn_not_utf8())),
        }
    }

    async fn users_with_groups(
        &self,
        asker: &mut LookupSession<'_>,
        sink: &dyn EntrySink,
        keys: LookupKeys<'_>,
    ) -> Result<bool, LookupError> {
        let users = self.users_by_keys(asker, sink, keys).await?;
        for user in &users {
            let groups = self.groups_of(asker, sink, user).await?;
            let ids: Vec<EntryId> = groups.iter().map(|group| group.id).collect();
            groups.into_iter().for_each(|group| self.report_group(sink, group));
            sink.user_groups(user.id, &ids);
        }
        Ok(!users.is_empty())
    }

    /// Returns the groups of a user, each once, without their members.
    async fn groups_of(
        &self,
        asker: &mut LookupSession<'_>,
        sink: &dyn EntrySink,
        user: &FoundUser,
    ) -> Result<Vec<FoundGroup>, LookupError> {
        // In the directory's spelling, because some member attributes are case-sensitive.
        let mut asked = self.mapping.filters_naming(MemberSyntax::Name, &user.names);
        asked.extend(self.mapping.filters_naming(MemberSyntax::Dn, slice::from_ref(&user.dn)));
        // Each key takes one term for each attribute that may hold it.
        let terms = KEYS_PER_SEARCH * self.mapping.members_by(MemberSyntax::Dn).count().max(1);
        let mut seen: HashSet<EntryId> = HashSet::new();
        let mut all = Vec::new();
        for _level in 0..LEVELS_MAX {
            let mut next = Vec::new();
            for filters in asked.chunks(terms) {
                let filter = EncodedFilter::any(filters);
                for group in self.groups(asker, sink, filter, false, &EntrySelection::All).await? {
                    if seen.insert(group.id) {
                        next.push(group.dn.clone());
                        all.push(group);
                    }
                }
            }
            if all.len() > FETCHED_MAX {
                let text = format!("{} is in more than {FETCHED_MAX} groups", printable(&user.dn));
                let reason = Reason::new(&directory::USER_IN_TOO_MANY_GROUPS, text);
                self.log_once(user.id, &reason);
                return Err(lookup_failed(asker, reason));
            }
            asked = self.mapping.filters_naming(MemberSyntax::Dn, &next);
            if asked.is_empty() {
                return Ok(all);
            }
        }
        let reason = nested_too_deep().for_object(printable(&user.dn));
        self.log_once(user.id, &reason);
        Err(lookup_failed(asker, reason))
    }

    fn report_group(&self, sink: &dyn EntrySink, found: FoundGroup) {
        sink.put(self.groups.part, found.id, DirectoryEntry::Group(found.group));
    }

    /// Reports groups after all their members are known, including members of nested groups. Members that the sink does
    /// not know are fetched first. A group with too many members is reported without them, and its cached members are
    /// invalidated. With `must` that is an error.
    async fn report_complete(
        &self,
        asker: &mut LookupSession<'_>,
        sink: &dyn EntrySink,
        mut groups: Vec<FoundGroup>,
        must: bool,
    ) -> Result<bool, LookupError> {
        let (mut untold, mut error) = (Vec::new(), None);
        for found in &mut groups {
            let members = found.group.members.as_ref().map_or(0, Vec::len);
            if members > FETCHED_MAX {
                found.group.members = None;
                untold.push(found.id);
                error = Some(self.reject_too_large(asker, found, members));
            }
        }
        let is_found = !groups.is_empty();
        let mut nested = Vec::new();
        match (self.fetch_members(asker, sink, &groups).await?, groups.as_mut_slice()) {
            (Ok(all), _) => nested = all,
            (Err(reason), [found]) => {
                found.group.members = None;
                untold.push(found.id);
                let reason = reason.for_object(printable(&found.dn));
                self.log_once(found.id, &reason);
                error = Some(lookup_failed(asker, reason));
            }
            // A lookup of each single group shows which one is too large.
            (Err(reason), _) => return Err(lookup_failed(asker, reason)),
        }
        // Lists of the groups may name the nested groups.
        let all = groups.into_iter().chain(nested);
        let all = all.map(|found| (found.id, DirectoryEntry::Group(found.group))).collect();
        sink.put_atomically(self.groups.part, all);
        untold.into_iter().for_each(|group| sink.members_unknown(self.groups.part, group));
        match error {
            Some(error) if must => {
                sink.flush();
                Err(error)
            }
            _ => Ok(is_found),
        }
    }

    fn reject_too_large(
        &self,
        asker: &LookupSession<'_>,
        found: &FoundGroup,
        members: usize,
    ) -> LookupError {
        let text = format!(
            "{} has {members} members; the limit of a lookup is {FETCHED_MAX}",
            printable(&found.dn)
        );
        let reason = Reason::new(&directory::GROUP_TOO_LARGE, text);
        self.log_once(found.id, &reason);
        lookup_failed(asker, reason)
    }

    /// Logs a list beyond a limit. Programs get an error for each lookup of the entry.
    fn log_once(&self, entry: EntryId, reason: &Reason) {
        let mut named = self.logged_entries.lock();
        if named.len() < LOGGED_ENTRIES_MAX && named.insert(entry) {
            log!(WARN, reason.message, "{reason}");
        }
    }

    /// Reports the users among the members of groups, and returns the groups among them. Returns the reason if the
    /// members exceed a limit.
    async fn fetch_members(
        &self,
        asker: &mut LookupSession<'_>,
        sink: &dyn EntrySink,
        groups: &[FoundGroup],
    ) -> Result<ReadResult<Vec<FoundGroup>>, LookupError> {
        let names_group = |found: &FoundGroup| Member::Dn(found.group.reference.clone());
        let mut seen: HashSet<Member<'static>> = groups.iter().map(names_group).collect();
        let mut nested: Vec<FoundGroup> = Vec::new();
        let mut asked = unknown_members(groups, sink, &mut seen);
        for _level in 0..LEVELS_MAX {
            if asked.is_empty() {
                return Ok(Ok(nested));
            }
            if seen.len() > groups.len() + FETCHED_MAX {
                let text = format!("the nested groups have more than {FETCHED_MAX} members");
                return Ok(Err(Reason::new(&directory::GROUP_TOO_LARGE, text)));
            }
            let first = nested.len();
            for members in asked.chunks(KEYS_PER_SEARCH) {
                nested.extend(self.members(asker, sink, members).await?);
            }
            asked = unknown_members(&nested[first..], sink, &mut seen);
        }
        Ok(Err(nested_too_deep()))
    }

    /// Reports the users among these members, and returns the groups.
    async fn members(
        &self,
        asker: &mut LookupSession<'_>,
        sink: &dyn EntrySink,
        members: &[Member<'static>],
    ) -> Result<Vec<FoundGroup>, LookupError> {
        let wanted = EntrySelection::Members(members.iter().cloned().collect());
        let by_name = members.iter().filter_map(|member| match member {
            Member::Name(name) => Some(EncodedFilter::equals(self.users.name(), name)),
            Member::Dn(_) => None,
        });
        let by_dn: Vec<EncodedFilter> = members.iter().filter_map(rdn_filter).collect();
        let users: Vec<EncodedFilter> = by_name.chain(by_dn.iter().cloned()).collect();
        let mut groups = Vec::new();
        if !by_dn.is_empty() {
            groups = self.groups(asker, sink, EncodedFilter::any(&by_dn), true, &wanted).await?;
        }
        if !users.is_empty() {
            self.users(asker, sink, EncodedFilter::any(&users), &wanted).await?;
        }
        Ok(groups)
    }

    async fn users_by_keys(
        &self,
        asker: &mut LookupSession<'_>,
        sink: &dyn EntrySink,
        keys: LookupKeys<'_>,
    ) -> Result<Vec<FoundUser>, LookupError> {
        let names = self.mapping.attributes();
        let (filter, wanted) = self.key_filter(&names.user_name, &names.user_uid, keys);
        self.users(asker, sink, filter, &wanted).await
    }

    async fn groups_by_keys(
        &self,
        asker: &mut LookupSession<'_>,
        sink: &dyn EntrySink,
        keys: LookupKeys<'_>,
        with_members: bool,
    ) -> Result<Vec<FoundGroup>, LookupError> {
        let names = self.mapping.attributes();
        let (filter, wanted) = self.key_filter(&names.group_name, &names.group_gid, keys);
        self.groups(asker, sink, filter, with_members, &wanted).await
    }

    /// Returns the filter for these keys, and the selection of the entries in the result.
    fn key_filter(
        &self,
        name: &str,
        id: &str,
        keys: LookupKeys<'_>,
    ) -> (EncodedFilter, EntrySelection) {
        match keys {
            LookupKeys::Names(names) => {
                let wanted =
                    names.iter().map(|name| self.mapping.comparable_name(name).into_owned());
                (EncodedFilter::equals_any(name, names), EntrySelection::Names(wanted.collect()))
            }
            LookupKeys::Ids(ids) => {
                let ids: Vec<Vec<u8>> = ids.iter().map(|id| id.to_string().into_bytes()).collect();
                (EncodedFilter::equals_any(id, &ids), EntrySelection::All)
            }
        }
    }

    /// Searches for users, and reports them.
    async fn users(
        &self,
        asker: &mut LookupSession<'_>,
        sink: &dyn EntrySink,
        filter: EncodedFilter,
        wanted: &EntrySelection,
    ) -> Result<Vec<FoundUser>, LookupError> {
        let answer = self.search(asker, &self.users, &filter).await?;
        let key = self.key(asker);
        let mut found = Vec::new();
        each_entry(&answer, |entry| {
            let part = self.users.part;
            let id = id_of(entry, &key)?;
            match self.mapping.user(entry)? {
                Ok(user) if wanted.includes_user(&user, &self.mapping) => {
                    let names = self.spellings(entry, &user.name)?;
                    sink.put(part, id, DirectoryEntry::User(user));
                    found.push(FoundUser { id, dn: entry.dn.to_vec(), names });
                }
                Ok(_) => {}
                Err(reason) => {
                    let name = printable(entry.dn);
                    sink.rejected(
                        part,
                        id,
                        &UnreadableEntry { name: &name, reference: b"", reason: &reason },
                    );
                }
            }
            Ok(())
        })
        .map_err(|error| reply_unusable(asker, &error))?;
        Ok(found)
    }

    /// Returns all spellings of the name in the entry.
    fn spellings(&self, entry: &RawEntry<'_>, name: &[u8]) -> Result<Vec<Vec<u8>>, BerError> {
        let mut spelt = Vec::new();
        for value in entry.values(&self.mapping.attributes().user_name)? {
            let value = value?;
            if self.mapping.comparable_name(value) == self.mapping.comparable_name(name) {
                spelt.push(value.to_vec());
            }
        }
        if !spelt.iter().any(|other| other == name) {
            spelt.push(name.to_vec());
        }
        Ok(spelt)
    }

    /// Searches for groups. Reports unreadable groups, and returns the others unreported.
    async fn groups(
        &self,
        asker: &mut LookupSession<'_>,
        sink: &dyn EntrySink,
        filter: EncodedFilter,
        with_members: bool,
        wanted: &EntrySelection,
    ) -> Result<Vec<FoundGroup>, LookupError> {
        let answer = match with_members {
            true => self.search(asker, &self.groups_with_members, &filter).await?,
            false => self.search(asker, &self.groups, &filter).await?,
        };
        let key = self.key(asker);
        let mut all = Vec::new();
        each_entry(&answer, |entry| {
            let id = group_id(id_of(entry, &key)?);
            match self.mapping.group(entry, with_members)? {
                Ok(PartialGroup { group, rest, .. })
                    if wanted.includes_group(&group, &self.mapping) =>
                {
                    let found = FoundGroup { id, dn: entry.dn.to_vec(), group: group.into_owned() };
                    all.push((found, rest));
                }
                Ok(_) => {}
                Err(reason) => self.reject_group(sink, id, entry, &reason),
            }
            Ok(())
        })
        .map_err(|error| reply_unusable(asker, &error))?;
        let mut found = Vec::with_capacity(all.len());
        for (mut group, rest) in all {
            match self.read_rest(asker, &mut group, rest).await? {
                Ok(()) => found.push(group),
                Err(reason) => {
                    let (name, reference) = (printable(&group.dn), &group.group.reference);
                    let rejection = UnreadableEntry { name: &name, reference, reason: &reason };
                    sink.rejected(self.groups.part, group.id, &rejection);
                }
            }
        }
        Ok(found)
    }

    /// Fetches the members that the server has not shown yet, piece by piece. Stops if the lists are complete or exceed
    /// the limit.
    async fn read_rest(
        &self,
        asker: &mut LookupSession<'_>,
        found: &mut FoundGroup,
        mut all: Vec<RemainingMembers>,
    ) -> Result<ReadResult<()>, LookupError> {
        while let (Some(rest), Some(members)) = (all.pop(), &mut found.group.members) {
            if members.len() > FETCHED_MAX {
                return Ok(Ok(()));
            }
            let Ok(base) = std::str::from_utf8(&found.dn) else {
                return Ok(Err(dn_not_utf8()));
            };
            let question = SearchQuery {
                base: base.into(),
                scope: Scope::Base,
                filter: EncodedFilter::present("objectClass"),
                attributes: Arc::new([self.mapping.remaining_members_attribute(rest)]),
                entries_max: 0,
            };
            let answer = asker.search(question).await?;
            let mut piece = None;
            each_entry(&answer, |entry| {
                let mut shown = Vec::new();
                let next = self.mapping.members(entry, rest, &mut shown)?;
                let shown = shown.into_iter().map(Member::into_owned).collect::<Vec<_>>();
                piece = Some(next.map(|next| (shown, next)));
                Ok(())
            })
            .map_err(|error| reply_unusable(asker, &error))?;
            match piece.unwrap_or_else(|| Err(incomplete_list_reason(rest))) {
                Ok((shown, next)) if !shown.is_empty() || next.is_none() => {
                    members.extend(shown);
                    all.extend(next);
                }
                Ok(_) => return Ok(Err(incomplete_list_reason(rest))),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Ok(()))
    }

    fn reject_group(
        &self,
        sink: &dyn EntrySink,
        id: EntryId,
        entry: &RawEntry<'_>,
        reason: &Reason,
    ) {
        let reference = self.mapping.reference(entry);
        let rejection =
            UnreadableEntry { name: &printable(entry.dn), reference: &reference, reason };
        sink.rejected(self.groups.part, id, &rejection);
    }

    fn key(&self, asker: &LookupSession<'_>) -> String {
        self.uuid.clone().unwrap_or_else(|| asker.open.root.uuid_attribute().to_owned())
    }

    async fn search(
        &self,
        asker: &mut LookupSession<'_>,
        target: &EntrySearch,
        filter: &EncodedFilter,
    ) -> Result<EntryMessages, LookupError> {
        let attributes = target.attributes.iter().cloned().chain([self.key(asker)]).collect();
        self.search_regions(asker, target, filter, attributes).await
    }

    /// Searches all regions, one after the other.
    async fn search_regions(
        &self,
        asker: &mut LookupSession<'_>,
        target: &EntrySearch,
        filter: &EncodedFilter,
        attributes: Arc<[String]>,
    ) -> Result<EntryMessages, LookupError> {
        let mut all = EntryMessages::new();
        for region in &*target.regions {
            let mut found = asker.search(region.query(filter, Arc::clone(&attributes))).await?;
            region.retain_own(&mut found);
            all.append(&mut found);
        }
        Ok(all)
    }
}

/// Returns the error of a lookup that failed at a reachable server.
fn lookup_failed(asker: &LookupSession<'_>, reason: Reason) -> LookupError {
    LookupError::Failed(reason.for_object(&asker.open.server))
}

/// Returns the error of a lookup with a reply that cannot be used.
fn reply_unusable(asker: &LookupSession<'_>, error: &LdapError) -> LookupError {
    LookupError::Failed(error.reason(&asker.open.server))
}

fn nested_too_deep() -> Reason {
    let text = format!("groups are nested more than {LEVELS_MAX} levels deep");
    Reason::new(&directory::GROUPS_NESTED_TOO_DEEP, text)
}

/// Returns the members that the sink does not know yet, each once.
fn unknown_members(
    groups: &[FoundGroup],
    sink: &dyn EntrySink,
    seen: &mut HashSet<Member<'static>>,
) -> Vec<Member<'static>> {
    let members = groups.iter().flat_map(|found| found.group.members.iter().flatten());
    let members: BTreeSet<&Member<'static>> = members.collect();
    let members: Vec<_> = members.into_iter().filter(|one| !seen.contains(*one)).collect();
    let known = sink.knows(&members).into_iter();
    let unknown = members.into_iter().zip(known).filter(|(_, is_known)| !is_known);
    let unknown: Vec<Member<'static>> = unknown.map(|(member, _)| member.clone()).collect();
    seen.extend(unknown.iter().cloned());
    unknown
}

/// Returns a filter for the first part of a member's DN. Servers have an index for that part, and often none for whole
/// DNs.
fn rdn_filter(member: &Member<'_>) -> Option<EncodedFilter> {
    let Member::Dn(dn) = member else { return None };
    let (attribute, value) = dn::first_rdn(dn)?;
    Some(EncodedFilter::equals(&attribute, &value))
}

fn each_entry(
    answer: &EntryMessages,
    mut each: impl FnMut(&RawEntry<'_>) -> Result<(), LdapError>,
) -> Result<(), LdapError> {
    for message in answer {
        if let ResponseOperation::Entry(entry) = LdapResponse::parse(message)?.operation {
            each(&entry)?;
        }
    }
    Ok(())
}

fn id_of(entry: &RawEntry<'_>, key: &str) -> Result<EntryId, LdapError> {
    read_key(entry, key)?.ok_or_else(|| missing_key(entry, key))
}
