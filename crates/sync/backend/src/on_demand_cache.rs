// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cached entries of an on-demand domain: index by name, id and reference, and the times of their last reports. This
//! module queries no directory: `on_demand_fetch` does.

use super::entry_index::CachedKind;
use super::key_index::KeyIndex;
use roster_bus::domain_image::{
    GroupRecord, NO_REFERENCE, Numbers, Record, Records, write_group, write_groups_of,
};
use roster_domain_cache::EntryKey;
use roster_names::fold;
use roster_provider::{LookupQuery, LookupScope};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Cached entries by number.
#[derive(Default)]
pub struct OnDemandCache {
    /// Number of queries so far.
    lookups: u64,
    /// Any spelling of a name finds an entry. The index of names then has folded names.
    ignores_case: bool,
    entries: HashMap<u32, CachedEntry>,
    by_name: KeyIndex<(CachedKind, Box<[u8]>)>,
    by_id: KeyIndex<(CachedKind, u32)>,
    /// A reference may have a user and a group: one entry that is both.
    by_reference: KeyIndex<(CachedKind, u32)>,
    /// By group, the users that were found to be in it.
    users_of: HashMap<u32, BTreeSet<u32>>,
}

/// Times of the last reports, in seconds since 1970. The reply to one query may lack known data of an entry: a user's
/// groups come without their members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenTimes {
    /// Last report of the entry itself.
    pub entry: u64,
    /// Last report of a group's members, or of a user's groups.
    pub list: u64,
}

/// The id of a group without gid in this index. No query asks for it.
const NO_ID: u32 = u32::MAX;

/// Whether a report is recent. A report from the future is not: a clock that was set back must not make old replies
/// recent.
fn is_recent(said: u64, since: u64, now: u64) -> bool {
    (since..=now).contains(&said)
}

/// An entry that was queried.
pub struct CachedEntry {
    /// The entry's key.
    pub key: EntryKey,
    /// The entry's kind.
    pub kind: CachedKind,
    /// The entry's name.
    pub name: Box<[u8]>,
    /// uid or gid.
    pub id: u32,
    /// The entry's reference in member lists, by DN.
    pub reference: u32,
    /// Reference of a user in member lists, by name.
    pub by_name: u32,
    /// The entry's record.
    pub record: Box<[u8]>,
    /// Numbers of a user's groups, if they were queried.
    pub groups: Option<Box<[u32]>>,
    /// Times of the last reports.
    pub seen: SeenTimes,
    /// Number of queries at its last report.
    last_lookup: u64,
}

impl CachedEntry {
    /// Decodes the records of one entry; `None` if they are malformed.
    #[must_use]
    pub fn from_records(key: EntryKey, seen: SeenTimes, records: &[u8]) -> Option<Self> {
        let length = u32::from_le_bytes(*records.first_chunk()?) as usize;
        let (record, rest) = records.split_at_checked(length)?;
        let (kind, name, id, reference, by_name) =
            match Records::without_header(record).next()?.ok()? {
                Record::User(user) => {
                    (CachedKind::User, user.name.into(), user.uid, user.reference, user.by_name)
                }
                Record::Group(group) => {
                    let (kind, gid) = (CachedKind::of_group(group.gid), group.gid);
                    (kind, group.name.into(), gid.unwrap_or(NO_ID), group.reference, NO_REFERENCE)
                }
                Record::Removed { .. } | Record::GroupsOf { .. } => return None,
            };
        let groups = match Records::without_header(rest).next() {
            Some(Ok(Record::GroupsOf { groups, .. })) => Some(groups.iter().collect()),
            Some(_) => return None,
            None => None,
        };
        let record = record.into();
        Some(Self { key, kind, name, id, reference, by_name, record, groups, seen, last_lookup: 0 })
    }

    /// Returns the references in member lists, in each of the forms; [`NO_REFERENCE`] if lists do not contain it.
    #[must_use]
    pub fn references(&self) -> [u32; 2] {
        [self.reference, self.by_name]
    }

    /// Returns its record, followed by the record of a user's groups.
    #[must_use]
    pub fn records(&self) -> Vec<u8> {
        let mut records = self.record.to_vec();
        if let (Some(groups), Some(Ok(Record::User(user)))) =
            (&self.groups, Records::without_header(&self.record).next())
        {
            // A list that is too long for a record is omitted: the groups then count as unknown.
            let _ = write_groups_of(&mut records, user.number, groups);
        }
        records
    }

    /// Returns references of a group's members, if they were queried.
    #[must_use]
    pub fn members(&self) -> Option<Numbers<'_>> {
        match Records::without_header(&self.record).next() {
            Some(Ok(Record::Group(group))) => group.members,
            _ => None,
        }
    }

    /// Appends the record of the entry alone. A group's record has unknown members.
    pub fn write_bare(&self, out: &mut Vec<u8>) {
        match self.kind {
            CachedKind::User => out.extend_from_slice(&self.record),
            CachedKind::Group | CachedKind::NestedGroup => self.write_without_members(out),
        }
    }

    /// Appends the record of a group with unknown members.
    pub fn write_without_members(&self, out: &mut Vec<u8>) {
        if let Some(Ok(Record::Group(group))) = Records::without_header(&self.record).next() {
            let GroupRecord { number, reference, gid, name, .. } = group;
            let written = write_group(out, number, reference, gid, name, None);
            debug_assert!(written.is_ok(), "shorter than the record that it was");
        }
    }

    /// Whether the list of the entry was queried.
    #[must_use]
    pub fn has_list(&self) -> bool {
        match self.kind {
            CachedKind::User => self.groups.is_some(),
            CachedKind::Group | CachedKind::NestedGroup => self.members().is_some(),
        }
    }

    /// Returns the query that refreshes reports from before that time; `None` if there are none.
    #[must_use]
    pub fn stale_request(&self, since: u64, now: u64) -> Option<LookupScope> {
        let is_old = |said| !is_recent(said, since, now);
        let old_list = self.has_list() && is_old(self.seen.list);
        match self.kind {
            CachedKind::User if old_list => Some(LookupScope::UsersWithGroups),
            CachedKind::Group | CachedKind::NestedGroup if old_list => {
                Some(LookupScope::GroupsWithMembers)
            }
            CachedKind::User if is_old(self.seen.entry) => Some(LookupScope::Users),
            CachedKind::Group | CachedKind::NestedGroup if is_old(self.seen.entry) => {
                Some(LookupScope::Groups)
            }
            _ => None,
        }
    }
}

impl OnDemandCache {
    /// Returns the entry of that number.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&CachedEntry> {
        self.entries.get(&number)
    }

    /// Sets whether any spelling of a name finds an entry.
    pub fn set_ignores_case(&mut self, ignores_case: bool) {
        if self.ignores_case == ignores_case {
            return;
        }
        self.ignores_case = ignores_case;
        let mut by_name = KeyIndex::default();
        for (number, entry) in &self.entries {
            by_name.add(self.name_key(entry.kind, &entry.name), *number);
        }
        self.by_name = by_name;
    }

    fn name_key(&self, kind: CachedKind, name: &[u8]) -> (CachedKind, Box<[u8]>) {
        match self.ignores_case {
            true => (kind, (&*fold(name)).into()),
            false => (kind, name.into()),
        }
    }

    /// Replaces an entry.
    pub fn put(&mut self, number: u32, answer: CachedEntry) {
        let answer = CachedEntry { last_lookup: self.lookups, ..answer };
        self.remove(number);
        self.by_name.add(self.name_key(answer.kind, &answer.name), number);
        self.by_id.add((answer.kind, answer.id), number);
        for reference in answer.references().into_iter().filter(|one| *one != NO_REFERENCE) {
            self.by_reference.add((answer.kind, reference), number);
        }
        self.index_groups(number, &answer.groups);
        self.entries.insert(number, answer);
    }

    /// Records that the directory reported the same again.
    pub fn mark_seen(&mut self, number: u32, seen: SeenTimes) {
        if let Some(answer) = self.entries.get_mut(&number) {
            answer.seen = seen;
            answer.last_lookup = self.lookups;
        }
    }

    /// Makes the list of an entry count as old.
    pub fn expire_list(&mut self, number: u32) {
        if let Some(answer) = self.entries.get_mut(&number) {
            answer.seen.list = 0;
        }
    }

    /// Starts a query. Later reports count as replies to it.
    pub fn begin_lookup(&mut self) -> u64 {
        self.lookups += 1;
        self.lookups
    }

    /// Whether the directory has reported the entry since that query.
    #[must_use]
    pub fn is_reported_since(&self, number: u32, inquiry: u64) -> bool {
        self.entries.get(&number).is_some_and(|answer| answer.last_lookup >= inquiry)
    }

    /// Stores the groups of a user with the report time. Returns whether they changed.
    pub fn set_groups(&mut self, number: u32, groups: &[u32], now: u64) -> bool {
        let Some(answer) = self.entries.get_mut(&number) else { return false };
        answer.seen.list = now;
        if answer.groups.as_deref() == Some(groups) {
            return false;
        }
        let before = answer.groups.replace(groups.into());
        self.unindex_groups(number, &before);
        self.index_groups(number, &Some(groups.into()));
        true
    }

    fn index_groups(&mut self, user: u32, groups: &Option<Box<[u32]>>) {
        for group in groups.iter().flatten() {
            self.users_of.entry(*group).or_default().insert(user);
        }
    }

    fn unindex_groups(&mut self, user: u32, groups: &Option<Box<[u32]>>) {
        for group in groups.iter().flatten() {
            if let Some(users) = self.users_of.get_mut(group) {
                users.remove(&user);
                if users.is_empty() {
                    self.users_of.remove(group);
                }
            }
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, number: u32) {
        let Some(answer) = self.entries.remove(&number) else { return };
        let references = answer.references();
        let CachedEntry { kind, name, id, groups, .. } = answer;
        self.unindex_groups(number, &groups);
        let called = self.name_key(kind, &name);
        self.by_name.remove(&called, number);
        self.by_id.remove(&(kind, id), number);
        for reference in references {
            self.by_reference.remove(&(kind, reference), number);
        }
    }

    /// Returns the entries of a query, smallest number first. There are several if the directory has several entries
    /// of one name or id: the receiver decides which of them is served.
    #[must_use]
    pub fn find(&self, what: &LookupQuery) -> Vec<u32> {
        match what {
            LookupQuery::UserByName(name) | LookupQuery::GroupsOf(name) => {
                self.find_by_name(CachedKind::User, name)
            }
            LookupQuery::GroupByName(name) => self.find_by_name(CachedKind::Group, name),
            LookupQuery::UserByUid(uid) => self.by_id.entries(&(CachedKind::User, *uid)).collect(),
            LookupQuery::GroupByGid(gid) => {
                self.by_id.entries(&(CachedKind::Group, *gid)).collect()
            }
        }
    }

    /// Finds a name. If case counts, `alice` may exist although `ALICE` is absent.
    fn find_by_name(&self, kind: CachedKind, name: &[u8]) -> Vec<u32> {
        self.by_name.entries(&self.name_key(kind, name)).collect()
    }

    /// Whether the data that a query needs of an entry is complete.
    fn has_data(&self, number: u32, what: &LookupQuery) -> bool {
        !wants_list(what) || self.has_complete_list(number)
    }

    /// Whether the entries of a query are known, and the data of all of them is complete and was reported since that
    /// time.
    #[must_use]
    pub fn is_fresh(&self, what: &LookupQuery, since: u64, now: u64) -> bool {
        let is_fresh = |number: &u32| {
            let seen = self.entries.get(number).map(|answer| answer.seen).unwrap_or_default();
            is_recent(seen.entry, since, now)
                && (!wants_list(what) || is_recent(seen.list, since, now))
                && self.has_data(*number, what)
        };
        let numbers = self.find(what);
        !numbers.is_empty() && numbers.iter().all(is_fresh)
    }

    /// Whether the entries of a query are known and were reported since that time, with or without their lists.
    #[must_use]
    pub fn is_entry_fresh(&self, what: &LookupQuery, since: u64, now: u64) -> bool {
        let mut entries = self.find(what).into_iter().map(|number| self.entries.get(&number));
        let is_fresh = |answer: &CachedEntry| is_recent(answer.seen.entry, since, now);
        entries.len() > 0 && entries.all(|answer| answer.is_some_and(is_fresh))
    }

    /// Returns the records that answer a query, if the data of an entry is complete. They include the other entries of
    /// the query, each with its list if that is complete.
    #[must_use]
    pub fn reply(&self, what: &LookupQuery) -> Option<Vec<u8>> {
        let (complete, others): (Vec<u32>, Vec<u32>) =
            self.find(what).into_iter().partition(|number| self.has_data(*number, what));
        if complete.is_empty() {
            return None;
        }
        // A list of the receiver stays if a record of the group comes without one.
        let mut records = self.records(&complete);
        for answer in others.iter().filter_map(|number| self.entries.get(number)) {
            answer.write_bare(&mut records);
        }
        Some(records)
    }

    /// Returns for each reference whether it can be resolved: its entry is known, and a group has known members. Each
    /// group is visited once, even if it is in several groups.
    #[must_use]
    pub fn are_resolvable(&self, references: &[u32]) -> Vec<bool> {
        let untold = self.incomplete_groups(references);
        let refers = |&reference: &u32| {
            let mut known = self.entries_referred(reference).peekable();
            known.peek().is_some() && known.all(|number| !untold.contains(&number))
        };
        references.iter().map(refers).collect()
    }

    /// Returns the groups with incomplete members, among the groups of these references and all nested ones. These are
    /// groups without a list, and the groups that contain them.
    fn incomplete_groups(&self, references: &[u32]) -> HashSet<u32> {
        let groups = |references: &mut dyn Iterator<Item = u32>| -> Vec<u32> {
            let referred = references.flat_map(|reference| self.entries_referred(reference));
            referred.filter(|&number| !self.is_user(number)).collect()
        };
        let mut next = groups(&mut references.iter().copied());
        let mut found: HashSet<u32> = next.iter().copied().collect();
        let mut around: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut without = Vec::new();
        while let Some(group) = next.pop() {
            let Some(members) = self.entries.get(&group).and_then(CachedEntry::members) else {
                without.push(group);
                continue;
            };
            for inner in groups(&mut members.iter()) {
                around.entry(inner).or_default().push(group);
                if found.insert(inner) {
                    next.push(inner);
                }
            }
        }
        let mut untold = HashSet::new();
        while let Some(group) = without.pop() {
            if untold.insert(group) {
                without.extend(around.remove(&group).unwrap_or_default());
            }
        }
        untold
    }

    /// Whether the list of an entry is known, including nested groups.
    fn has_complete_list(&self, number: u32) -> bool {
        if self.is_user(number) { self.has_list(number) } else { self.is_complete(number) }
    }

    /// Whether all members of a group are known: its list, and the lists of its nested groups.
    fn is_complete(&self, group: u32) -> bool {
        self.nested_groups(group)
            .into_iter()
            .all(|number| self.is_user(number) || self.has_list(number))
    }

    fn is_user(&self, number: u32) -> bool {
        self.entries.get(&number).is_some_and(|answer| answer.kind == CachedKind::User)
    }

    /// Whether programs can ask for the entry.
    fn is_served(&self, number: u32) -> bool {
        self.entries.get(&number).is_some_and(|answer| answer.kind != CachedKind::NestedGroup)
    }

    fn has_list(&self, number: u32) -> bool {
        self.entries.get(&number).is_some_and(CachedEntry::has_list)
    }

    /// Returns the entries of a reference: none, one, or several, as a user and a group, or two users of one name.
    fn entries_referred(&self, reference: u32) -> impl Iterator<Item = u32> {
        #[cfg(test)]
        tests::LOOKED_UP.with(|count| count.set(count.get() + 1));
        let kinds = CachedKind::ALL.into_iter();
        kinds.flat_map(move |kind| self.by_reference.entries(&(kind, reference)))
    }

    /// Returns a group and other groups of its users, if their members were not queried yet.
    #[must_use]
    pub fn sibling_groups(&self, group: u32) -> BTreeSet<u32> {
        let users = self.users_of.get(&group).into_iter().flatten();
        let users = users.filter_map(|user| self.entries.get(user));
        let groups = users.flat_map(|user| user.groups.iter().flatten().copied());
        let groups = groups.chain([group]).filter(|group| self.entries.contains_key(group));
        groups.filter(|&group| self.is_served(group) && !self.has_list(group)).collect()
    }

    /// Returns the records of entries of one kind. They include every known entry of a list in them, so that the receiver
    /// can resolve every list. A user's groups therefore come without their possibly many members, and a group's members
    /// without their groups.
    fn records(&self, numbers: &[u32]) -> Vec<u8> {
        let (mut records, mut groups, mut members) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for &number in numbers {
            let Some(answer) = self.entries.get(&number) else { continue };
            match answer.kind {
                CachedKind::User => {
                    records.extend(answer.records());
                    groups.extend(answer.groups.iter().flatten());
                }
                CachedKind::Group | CachedKind::NestedGroup => {
                    members.extend(self.nested_groups(number));
                }
            }
        }
        for group in groups.iter().filter_map(|group| self.entries.get(group)) {
            group.write_without_members(&mut records);
        }
        for answer in members.iter().filter_map(|number| self.entries.get(number)) {
            records.extend_from_slice(&answer.record);
        }
        records
    }

    /// Returns a group and its members, including nested groups, without duplicates.
    fn nested_groups(&self, group: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::from([group]);
        let mut next = vec![group];
        while let Some(answer) = next.pop().and_then(|number| self.entries.get(&number)) {
            let members = answer.members().into_iter().flat_map(Numbers::iter);
            for member in members.flat_map(|reference| self.entries_referred(reference)) {
                if found.insert(member) {
                    next.push(member);
                }
            }
        }
        found
    }

    /// Returns groups with known members that contain the entry of a reference, directly or through nested groups,
    /// without duplicates.
    #[must_use]
    pub fn lists_containing(&self, reference: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut next = vec![reference];
        while let Some(reference) = next.pop() {
            if reference == NO_REFERENCE {
                continue;
            }
            let lists = |answer: &CachedEntry| {
                answer.members().is_some_and(|all| all.iter().any(|one| one == reference))
            };
            for (&number, group) in self.entries.iter().filter(|(_, answer)| lists(answer)) {
                if found.insert(number) {
                    next.push(group.reference);
                }
            }
        }
        found
    }

    /// Returns the entries that this kind of query refreshes, with reports from before that time.
    #[must_use]
    pub fn stale(&self, of: LookupScope, since: u64, now: u64) -> Vec<u32> {
        let is_due = |answer: &CachedEntry| answer.stale_request(since, now) == Some(of);
        let due = self.entries.iter().filter(|(_, answer)| is_due(answer));
        let mut numbers: Vec<u32> = due.map(|(&number, _)| number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Makes all reports count as old.
    pub fn expire_all(&mut self) {
        self.entries.values_mut().for_each(|answer| answer.seen = SeenTimes::default());
    }
}

/// Whether a query is also for a list.
fn wants_list(what: &LookupQuery) -> bool {
    match what {
        LookupQuery::UserByName(_) | LookupQuery::UserByUid(_) => false,
        LookupQuery::GroupByName(_) | LookupQuery::GroupByGid(_) | LookupQuery::GroupsOf(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_bus::domain_image;
    use std::cell::Cell;

    fn user(number: u32, name: &str, uid: u32, reference: u32) -> CachedEntry {
        let mut record = Vec::new();
        let [name, none] = [name.as_bytes(), b""];
        let user = domain_image::UserRecord {
            number,
            reference,
            by_name: NO_REFERENCE,
            uid,
            gid: 100,
            name,
            gecos: none,
            dir: none,
            shell: none,
        };
        domain_image::write_user(&mut record, &user).expect("fits");
        CachedEntry::from_records(KEY, SEEN, &record).expect("a user")
    }

    fn group(number: u32, name: &str, reference: u32, members: &[u32]) -> CachedEntry {
        group_of(number, name, reference, Some(members))
    }

    fn unasked(number: u32, name: &str, reference: u32) -> CachedEntry {
        group_of(number, name, reference, None)
    }

    fn group_of(number: u32, name: &str, reference: u32, members: Option<&[u32]>) -> CachedEntry {
        let mut record = Vec::new();
        let name = name.as_bytes();
        write_group(&mut record, number, reference, Some(500), name, members).expect("fits");
        CachedEntry::from_records(KEY, SEEN, &record).expect("a group")
    }

    /// Returns the entry numbers of the records, in order.
    fn numbers(records: &[u8]) -> Vec<u32> {
        let number = |record| match record {
            Record::User(user) => user.number,
            Record::Group(group) => group.number,
            Record::Removed { number } | Record::GroupsOf { user: number, .. } => number,
        };
        Records::without_header(records).map(|record| number(record.expect("a record"))).collect()
    }

    /// Checks that the records include every entry of a list in them, and each group's own list.
    #[track_caller]
    fn assert_closed(records: &[u8]) {
        let all = || Records::without_header(records).map(|record| record.expect("a record"));
        let (mut told, mut known, mut named, mut groups) = (vec![], vec![], vec![], vec![]);
        for record in all() {
            match record {
                Record::User(user) => told.push(user.reference),
                Record::Group(GroupRecord { reference, number, members, .. }) => {
                    known.push(number);
                    let Some(members) = members else { continue };
                    told.push(reference);
                    named.extend(members.iter());
                }
                Record::GroupsOf { groups: all, .. } => groups.extend(all.iter()),
                Record::Removed { .. } => {}
            }
        }
        assert!(named.iter().all(|reference| told.contains(reference)), "{named:?} {told:?}");
        assert!(groups.iter().all(|group| known.contains(group)), "{groups:?} {known:?}");
    }

    const KEY: EntryKey = EntryKey { search: 0, id: [0; 16] };
    const SEEN: SeenTimes = SeenTimes { entry: 100, list: 100 };

    fn by_name(name: &str) -> LookupQuery {
        LookupQuery::UserByName(name.into())
    }

    #[test]
    fn a_renamed_user_is_found_by_the_new_name_only() {
        let mut asked = OnDemandCache::default();
        asked.put(1, user(1, "alice", 1000, 0));
        asked.put(1, user(1, "alicia", 1000, 0));
        assert_eq!(asked.find(&by_name("alice")), [0; 0]);
        assert_eq!(asked.find(&by_name("alicia")), [1]);
        assert_eq!(asked.find(&LookupQuery::UserByUid(1000)), [1]);
    }

    #[test]
    fn on_demand_doubled_name_finds_all_in_order() {
        let mut asked = OnDemandCache::default();
        // The order of a reply is not the order of the numbers.
        asked.put(2, user(2, "alice", 1001, 1));
        asked.put(1, user(1, "alice", 1000, 0));
        asked.put(3, user(3, "Alice", 1000, 2));
        assert_eq!(asked.find(&by_name("alice")), [1, 2]);
        assert_eq!(asked.find(&LookupQuery::UserByUid(1000)), [1, 3]);
        assert_eq!(numbers(&asked.reply(&by_name("alice")).expect("known")), [1, 2]);
        asked.set_ignores_case(true);
        assert_eq!(numbers(&asked.reply(&by_name("ALICE")).expect("known")), [1, 2, 3]);
        asked.remove(1);
        assert_eq!(asked.find(&by_name("alice")), [2, 3]);
        assert_eq!(asked.find(&LookupQuery::UserByUid(1000)), [3]);
    }

    #[test]
    fn on_demand_doubled_group_replies_with_both_lists() {
        let mut asked = OnDemandCache::default();
        let dup = LookupQuery::GroupByName(b"dup".to_vec());
        asked.put(1, user(1, "alice", 1000, 10));
        asked.put(2, group(2, "dup", 20, &[10, 21]));
        asked.put(3, group(3, "dup", 21, &[10]));
        assert_eq!(numbers(&asked.reply(&dup).expect("known")), [1, 2, 3]);
        assert!(asked.is_fresh(&dup, 0, u64::MAX));
        asked.put(4, unasked(4, "dup", 22));
        let records = asked.reply(&dup).expect("known");
        assert_eq!(numbers(&records), [1, 2, 3, 4]);
        assert_closed(&records);
        assert!(!asked.is_fresh(&dup, 0, u64::MAX), "the members of one are unknown");
    }

    #[test]
    fn on_demand_doubled_member_name_refers_to_both() {
        let mut asked = OnDemandCache::default();
        asked.put(1, user(1, "alice", 1000, 10));
        asked.put(2, user(2, "alice", 1001, 10));
        asked.put(3, group(3, "staff", 20, &[10]));
        let staff = LookupQuery::GroupByName(b"staff".to_vec());
        assert_eq!(numbers(&asked.reply(&staff).expect("known")), [1, 2, 3]);
    }

    #[test]
    fn on_demand_cache_ignores_case_where_set() {
        let mut asked = OnDemandCache::default();
        asked.put(1, user(1, "Alice", 5001, 7));
        asked.set_ignores_case(true);
        asked.put(2, user(2, "BOB", 5002, 8));
        for (name, number) in [("alice", 1), ("ALICE", 1), ("Alice", 1), ("bob", 2)] {
            assert_eq!(asked.find(&by_name(name)), [number], "{name}");
        }
        asked.remove(1);
        assert_eq!(asked.find(&by_name("alice")), [0; 0]);
    }

    #[test]
    fn a_name_is_found_as_it_is_spelt_and_not_otherwise() {
        let mut asked = OnDemandCache::default();
        asked.put(1, user(1, "alice", 1000, 0));
        assert_eq!(asked.find(&by_name("alice")), [1]);
        assert_eq!(asked.find(&by_name("Alice")), [0; 0]);
    }

    #[test]
    fn of_two_ages_the_older_decides_what_is_asked_for() {
        let now = 1000;
        for (entry, list, wanted) in [
            (900, 900, None),
            (100, 900, Some(LookupScope::Groups)),
            (900, 100, Some(LookupScope::GroupsWithMembers)),
            (100, 100, Some(LookupScope::GroupsWithMembers)),
        ] {
            let staff =
                CachedEntry { seen: SeenTimes { entry, list }, ..group(1, "staff", 20, &[10]) };
            assert_eq!(staff.stale_request(500, now), wanted, "{entry} {list}");
        }
        let alice =
            CachedEntry { seen: SeenTimes { entry: 900, list: 0 }, ..user(2, "alice", 1000, 10) };
        assert_eq!(alice.stale_request(500, now), None, "no program requested her groups");
        let alice = CachedEntry { groups: Some([1].into()), ..alice };
        assert_eq!(alice.stale_request(500, now), Some(LookupScope::UsersWithGroups));
    }

    #[test]
    fn on_demand_future_timestamps_count_as_old() {
        let alice =
            CachedEntry { seen: SeenTimes { entry: 5000, list: 0 }, ..user(1, "alice", 1000, 10) };
        assert_eq!(alice.stale_request(500, 1000), Some(LookupScope::Users));
        let mut asked = OnDemandCache::default();
        asked.put(1, alice);
        assert!(!asked.is_fresh(&by_name("alice"), 500, 1000));
        assert!(asked.is_fresh(&by_name("alice"), 4500, 5000));
    }

    #[test]
    fn on_demand_sibling_groups_are_found_together() {
        let mut asked = OnDemandCache::default();
        asked.put(1, user(1, "alice", 1000, 10));
        asked.put(2, unasked(2, "a", 2));
        asked.put(3, unasked(3, "b", 3));
        asked.put(4, group(4, "c", 22, &[10]));
        asked.put(5, unasked(5, "others", 5));
        asked.set_groups(1, &[2, 3, 4], 100);
        assert_eq!(asked.sibling_groups(2), BTreeSet::from([2, 3]));
        assert_eq!(asked.sibling_groups(5), BTreeSet::from([5]));
        asked.set_groups(1, &[2, 4, 5], 100);
        assert_eq!(asked.sibling_groups(3), BTreeSet::from([3]));
        assert_eq!(asked.sibling_groups(5), BTreeSet::from([2, 5]));
        asked.remove(1);
        assert_eq!(asked.sibling_groups(5), BTreeSet::from([5]));
    }

    #[test]
    fn nested_groups_in_a_circle_end() {
        let mut asked = OnDemandCache::default();
        asked.put(1, user(1, "alice", 1000, 10));
        asked.put(2, group(2, "a", 20, &[21]));
        asked.put(3, group(3, "b", 21, &[20, 10, 99]));
        let a = LookupQuery::GroupByName(b"a".to_vec());
        assert_eq!(numbers(&asked.reply(&a).expect("complete")), [1, 2, 3]);
    }

    #[test]
    fn what_a_list_of_an_answer_names_is_in_the_answer() {
        let mut asked = OnDemandCache::default();
        asked.put(1, user(1, "alice", 1000, 10));
        asked.put(2, user(2, "bob", 1001, 11));
        asked.put(3, group(3, "staff", 20, &[10, 11]));
        asked.put(4, group(4, "all", 21, &[20]));
        assert!(asked.set_groups(1, &[3, 4], 100));
        assert!(!asked.set_groups(1, &[3, 4], 100));
        for number in 1..=4 {
            assert_closed(&asked.records(&[number]));
        }
        assert_eq!(numbers(&asked.records(&[1])), [1, 1, 3, 4]);
        assert_eq!(numbers(&asked.records(&[4])), [1, 2, 3, 4]);
    }

    #[test]
    fn on_demand_group_with_incomplete_inner_is_incomplete() {
        let mut asked = OnDemandCache::default();
        asked.put(1, group(1, "outer", 20, &[21, 99]));
        asked.put(2, group(2, "middle", 21, &[22]));
        asked.put(3, unasked(3, "inner", 22));
        let whole = |asked: &OnDemandCache, name: &str| {
            asked.reply(&LookupQuery::GroupByName(name.into())).is_some()
        };
        for name in ["outer", "middle", "inner"] {
            assert!(!whole(&asked, name), "{name}");
        }
        assert_eq!(asked.are_resolvable(&[20, 21, 22, 99]), [false; 4]);
        asked.put(3, group(3, "inner", 22, &[]));
        for name in ["outer", "middle", "inner"] {
            assert!(whole(&asked, name), "{name}");
        }
        assert_eq!(asked.are_resolvable(&[20, 21, 22, 99]), [true, true, true, false]);
    }

    #[test]
    fn on_demand_user_and_group_entry_is_both() {
        let mut asked = OnDemandCache::default();
        asked.put(1, user(1, "alice", 1000, 10));
        asked.put(2, unasked(2, "alice", 10));
        asked.put(3, group(3, "staff", 20, &[10]));
        assert_eq!(asked.are_resolvable(&[10]), [false]);
        assert_eq!(asked.reply(&LookupQuery::GroupByName(b"staff".to_vec())), None);
        asked.put(2, group(2, "alice", 10, &[10]));
        assert_eq!(numbers(&asked.records(&[3])), [1, 2, 3]);
        asked.remove(2);
        assert_eq!(asked.are_resolvable(&[10]), [true], "she is still a user");
    }

    thread_local! {
        /// References that this thread looked up.
        pub static LOOKED_UP: Cell<usize> = const { Cell::new(0) };
    }

    /// Each group is in the next one. A walk below each of them would look up 200 million references.
    #[test]
    fn asked_nested_groups_are_each_walked_once() {
        const DEEP: u32 = 20_000;
        let mut asked = OnDemandCache::default();
        for number in 1..DEEP {
            asked.put(number, group(number, &format!("g{number}"), number, &[number + 1]));
        }
        asked.put(DEEP, group(DEEP, "last", DEEP, &[1]));
        let all: Vec<u32> = (1..=DEEP).collect();
        LOOKED_UP.set(0);
        assert!(asked.are_resolvable(&all).into_iter().all(|is_known| is_known));
        // Each reference is looked up as asked for, as a member, and for the reply.
        assert_eq!(LOOKED_UP.take(), 3 * all.len());
        asked.put(DEEP, unasked(DEEP, "last", DEEP));
        assert!(!asked.are_resolvable(&all).into_iter().any(|is_known| is_known));
        assert_eq!(LOOKED_UP.take(), 3 * all.len() - 1, "the last group has no members now");
    }
}
