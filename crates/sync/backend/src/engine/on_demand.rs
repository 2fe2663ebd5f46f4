// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of an on-demand domain: stored with their age, and refreshed. An entry that a reply lacks is missing. The
//! backend searches for it by its key before it is removed. `on_demand_fetch` queries the directory, and `absences`
//! decides about missing entries.

use super::super::entry_index::{CachedKind, EntrySlot, MemberForms};
use super::super::on_demand_cache::{CachedEntry, OnDemandCache, SeenTimes};
use super::{Engine, EngineSettings, EngineState, digest, entry_header};
use roster_bus::domain_image::NO_REFERENCE;
use roster_config::DomainMode;
use roster_domain_cache::EntryKey;
use roster_provider::{DirectoryEntry, EntryId, EntrySink, LookupQuery, LookupScope, Member};
use roster_role::clock::unix_now;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The part with the schema of the replies in place of a cookie. Other parts of an on-demand domain have no cookie.
const READING_PART: u8 = 0;

/// Entries of a query in progress. An entry without a report before [`Engine::finish_lookup`] is missing.
#[must_use]
pub struct PendingLookup {
    number: u64,
    entries: Vec<u32>,
}

/// Records of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnDemandEntry {
    /// The state of the records. A publisher that fetched this state has all of them, or newer ones.
    pub sequence: u64,
    /// The entry's records; empty if there is no such entry.
    pub records: Vec<u8>,
}

/// State of an on-demand domain. Empty in a mirror.
pub(super) struct OnDemandState {
    pub(super) cache: OnDemandCache,
    /// Missing groups, each with its users. Replies about these users lacked the group.
    pub(super) lacked_groups: HashMap<EntryKey, BTreeSet<u32>>,
    /// Users, each with a group that a reply lacked and that the directory has shown since: the next reply without the
    /// group ends the membership.
    reappeared_groups: BTreeSet<(u32, u32)>,
    /// A reply lacked groups, and no search was made for them yet.
    has_unsearched_groups: bool,
}

impl OnDemandState {
    pub(super) fn new(cache: OnDemandCache) -> Self {
        Self {
            cache,
            lacked_groups: HashMap::new(),
            reappeared_groups: BTreeSet::new(),
            has_unsearched_groups: false,
        }
    }
}

impl Engine {
    /// Returns the records that answer a query, if they are completely known.
    #[must_use]
    pub fn cached_entry(&self, what: &LookupQuery) -> Option<OnDemandEntry> {
        let mut state = self.state();
        let records = state.on_demand.cache.reply(what)?;
        Some(OnDemandEntry { sequence: self.close_and_sequence(&mut state), records })
    }

    /// Returns the same if the directory reported them within that time.
    #[must_use]
    pub fn fresh_entry(&self, what: &LookupQuery, age: Duration) -> Option<OnDemandEntry> {
        let mut state = self.state();
        let now = unix_now();
        let since = now.saturating_sub(age.as_secs());
        let cache = &state.on_demand.cache;
        let records = cache.is_fresh(what, since, now).then(|| cache.reply(what))??;
        Some(OnDemandEntry { sequence: self.close_and_sequence(&mut state), records })
    }

    /// Returns the queries about entries that the directory did not report within that time.
    #[must_use]
    pub fn outdated_lookups<'w>(
        &self,
        what: &'w [LookupQuery],
        age: Duration,
    ) -> Vec<&'w LookupQuery> {
        let state = self.state();
        let now = unix_now();
        let since = now.saturating_sub(age.as_secs());
        what.iter().filter(|what| !state.on_demand.cache.is_entry_fresh(what, since, now)).collect()
    }

    /// Returns the known entries of these queries, without duplicates and without groups of a user or members of a
    /// group.
    #[must_use]
    pub fn cached_entries(&self, what: &[LookupQuery]) -> OnDemandEntry {
        let mut state = self.state();
        let sequence = self.close_and_sequence(&mut state);
        let numbers: BTreeSet<u32> =
            what.iter().flat_map(|what| state.on_demand.cache.find(what)).collect();
        let mut records = Vec::new();
        for answer in numbers.into_iter().filter_map(|number| state.on_demand.cache.get(number)) {
            answer.write_bare(&mut records);
        }
        OnDemandEntry { sequence, records }
    }

    /// Returns the state of a reply. Recent reports are part of the reply. They must also be part of a state that can
    /// be fetched, because replies are compared by their states.
    fn close_and_sequence(&self, state: &mut EngineState) -> u64 {
        if state.batches.open.visible_count() > 0 {
            self.close_batch(state);
        }
        state.served.sequence
    }

    /// Whether the entry of a query is known, perhaps without its list.
    #[must_use]
    pub fn has_entry(&self, what: &LookupQuery) -> bool {
        !self.state().on_demand.cache.find(what).is_empty()
    }

    /// Returns the query for all known data of an entry.
    #[must_use]
    pub fn full_lookup(&self, what: &LookupQuery) -> LookupQuery {
        let state = self.state();
        let cache = &state.on_demand.cache;
        let has_list = |number: u32| cache.get(number).is_some_and(CachedEntry::has_list);
        match what {
            LookupQuery::UserByName(name) if cache.find(what).into_iter().any(has_list) => {
                LookupQuery::GroupsOf(name.clone())
            }
            _ => what.clone(),
        }
    }

    /// Records that this query to the directory begins.
    pub fn begin_lookup<'w>(
        &self,
        what: impl IntoIterator<Item = &'w LookupQuery>,
    ) -> PendingLookup {
        let mut state = self.state();
        let entries: BTreeSet<u32> =
            what.into_iter().flat_map(|what| state.on_demand.cache.find(what)).collect();
        PendingLookup {
            number: state.on_demand.cache.begin_lookup(),
            entries: entries.into_iter().collect(),
        }
    }

    /// Records that a query for these entries begins.
    pub fn begin_refresh(&self, entries: Vec<u32>) -> PendingLookup {
        PendingLookup { number: self.state().on_demand.cache.begin_lookup(), entries }
    }

    /// Records that the directory has replied completely. Entries without a report are missing. Returns whether there
    /// are any to search for.
    pub fn finish_lookup(&self, inquiry: PendingLookup) -> bool {
        let PendingLookup { number, entries } = inquiry;
        let mut state = self.state();
        let untold = entries
            .into_iter()
            .filter(|&entry| !state.on_demand.cache.is_reported_since(entry, number));
        let keys: Vec<EntryKey> =
            untold.filter_map(|entry| Some(state.on_demand.cache.get(entry)?.key)).collect();
        let is_lacked = std::mem::take(&mut state.on_demand.has_unsearched_groups);
        let is_any = state.note_missing(&self.settings, &keys) || is_lacked;
        drop(state);
        self.flush();
        if is_any {
            self.missing.notify_one();
        }
        is_any
    }

    /// Whether the last reply to the query lacked groups of a user that the directory has shown since. The next reply
    /// decides.
    #[must_use]
    pub fn is_undecided(&self, what: &LookupQuery) -> bool {
        let state = self.state();
        state.on_demand.cache.find(what).into_iter().any(|user| {
            state.on_demand.reappeared_groups.range((user, 0)..=(user, u32::MAX)).next().is_some()
        })
    }

    /// Returns entries with data older than `age` that this kind of query refreshes, by number and name.
    #[must_use]
    pub fn stale_entries(&self, of: LookupScope, age: Duration) -> Vec<(u32, Vec<u8>)> {
        let state = self.state();
        let now = unix_now();
        state.numbered_names(state.on_demand.cache.stale(
            of,
            now.saturating_sub(age.as_secs()),
            now,
        ))
    }

    /// Returns groups of which the members are probably queried next, this one included: a program that lists a user's
    /// groups queries one after the other.
    #[must_use]
    pub fn sibling_groups(&self, what: &LookupQuery) -> Vec<(u32, Vec<u8>)> {
        let state = self.state();
        let (LookupQuery::GroupByName(_) | LookupQuery::GroupByGid(_)) = what else {
            return Vec::new();
        };
        let Some(&group) = state.on_demand.cache.find(what).first() else { return Vec::new() };
        let mut groups = state.on_demand.cache.sibling_groups(group);
        groups.remove(&group);
        state.numbered_names([group].into_iter().chain(groups))
    }

    /// Sets the schema for entries. If the cache was filled with another schema, its entries count as old, and serve
    /// only while the directory is unreachable. Returns `true` then.
    pub fn set_reading(&self, reading: &str) -> bool {
        let mut state = self.state();
        let part = state.searches.by_number.entry(READING_PART).or_default();
        let before = part.stored.cookie.replace((reading.to_owned(), Vec::new()));
        if before.is_some_and(|(before, _)| before == reading) {
            return false;
        }
        state.mark_part_changed(READING_PART);
        state.on_demand.cache.expire_all();
        let EngineState { entries, batches, .. } = &mut *state;
        for slot in entries.iter() {
            batches.open.mark_seen(slot.key, entry_header(slot, SeenTimes::default()));
        }
        true
    }

    /// Makes all replies count as old.
    pub fn expire_all(&self) {
        self.state().on_demand.cache.expire_all();
    }
}

impl EngineState {
    fn numbered_names(&self, numbers: impl IntoIterator<Item = u32>) -> Vec<(u32, Vec<u8>)> {
        let named = |number| Some((number, self.on_demand.cache.get(number)?.name.to_vec()));
        numbers.into_iter().filter_map(named).collect()
    }

    /// Returns the report times of an entry that is reported now. The time of its list changes only if the list is
    /// reported too.
    pub(super) fn seen_times(&self, number: u32, entry: &DirectoryEntry<'_>) -> SeenTimes {
        let now = unix_now();
        let before = self.on_demand.cache.get(number).map(|answer| answer.seen.list);
        let list = match entry {
            DirectoryEntry::Group(group) if group.members.is_some() => now,
            DirectoryEntry::Group(_) | DirectoryEntry::User(_) => before.unwrap_or_default(),
        };
        SeenTimes { entry: now, list }
    }

    pub(super) fn are_resolvable(&self, members: &[&Member<'_>]) -> Vec<bool> {
        let numbers = members.iter().map(|member| self.references.number(member));
        let numbers = numbers.map(|number| number.unwrap_or(NO_REFERENCE)).collect::<Vec<_>>();
        self.on_demand.cache.are_resolvable(&numbers)
    }

    /// Forgets the members of a group, and of the groups that contain it. Their lists would be incomplete.
    pub(super) fn forget_members(&mut self, key: EntryKey) {
        let Some(group) = self.entries.get(key).map(|slot| slot.number) else { return };
        let reference =
            self.on_demand.cache.get(group).map_or(NO_REFERENCE, |answer| answer.reference);
        self.forget_lists(
            [group].into_iter().chain(self.on_demand.cache.lists_containing(reference)).collect(),
        );
    }

    /// Forgets the lists that hold a former reference of an entry. Until a refresh they would lack the entry.
    pub(super) fn invalidate_lists_naming(&mut self, reference: u32) {
        self.forget_lists(self.on_demand.cache.lists_containing(reference));
    }

    fn forget_lists(&mut self, groups: BTreeSet<u32>) {
        for number in groups {
            let Some(answer) = self.on_demand.cache.get(number).filter(|group| group.has_list())
            else {
                continue;
            };
            let (key, seen) = (answer.key, SeenTimes { list: 0, ..answer.seen });
            let (reference, kind) = (answer.reference, answer.kind);
            self.scratch.clear();
            answer.write_without_members(&mut self.scratch);
            let (mark, digest) = (self.current_mark(key.search), digest(&self.scratch));
            let ways = MemberForms::default();
            let slot = EntrySlot { key, kind, forms: ways, number, reference, mark, digest };
            self.store_entry(DomainMode::OnDemand, slot, seen);
        }
    }

    pub(super) fn set_groups(
        &mut self,
        settings: &EngineSettings,
        user: EntryId,
        groups: &[EntryId],
    ) {
        let parts = || self.known_parts();
        let find = |kinds, id| self.entries.find(kinds, id, parts()).copied();
        let Some(user) = find(CachedKind::USERS, user) else { return };
        let mut numbers: Vec<u32> =
            groups.iter().filter_map(|&id| Some(find(CachedKind::GROUPS, id)?.number)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.extend(self.retained_groups(settings, user.number, &numbers));
        numbers.sort_unstable();
        let before =
            self.on_demand.cache.get(user.number).map_or(0, |answer| digest(&answer.records()));
        let news = self.on_demand.cache.set_groups(user.number, &numbers, unix_now());
        let Some(answer) = self.on_demand.cache.get(user.number) else { return };
        let (records, seen) = (answer.records(), answer.seen);
        let slot = EntrySlot { digest: user.digest ^ before ^ digest(&records), ..user };
        let header = entry_header(&slot, seen);
        if !news {
            self.batches.open.mark_seen(slot.key, header);
            return;
        }
        self.entries.put(slot);
        self.batches.open.put(slot.key, header, &records);
        self.served.note_change();
    }

    /// Returns groups of a user that a reply lacks, and that stay. The membership has ended, or the directory hides the
    /// group. The backend searches for the group by its key. The membership ends with the first reply without the group
    /// after the directory has shown it. A user stays in a hidden group.
    fn retained_groups(&mut self, settings: &EngineSettings, user: u32, told: &[u32]) -> Vec<u32> {
        let of_user = (user, 0)..=(user, u32::MAX);
        let shown: Vec<(u32, u32)> =
            self.on_demand.reappeared_groups.range(of_user).copied().collect();
        shown.iter().for_each(|one| {
            self.on_demand.reappeared_groups.remove(one);
        });
        if !self.served.is_serving() {
            return Vec::new();
        }
        let known = self.on_demand.cache.get(user).and_then(|answer| answer.groups.as_deref());
        let lacked = known.into_iter().flatten().filter(|group| told.binary_search(group).is_err());
        let lacked: Vec<(u32, EntryKey)> = lacked
            .filter_map(|&group| Some((group, self.on_demand.cache.get(group)?.key)))
            .collect();
        // The user may be in the others through that group.
        let is_hidden = |(_, key): &(u32, EntryKey)| self.is_undecided(*key);
        let keeps_all = settings.has_dn_lists && lacked.iter().any(is_hidden);
        let mut kept = Vec::new();
        for (group, key) in lacked {
            let was_shown = shown.contains(&(user, group));
            let is_ended = was_shown && !self.is_undecided(key) && !keeps_all;
            if is_ended {
                continue;
            }
            kept.push(group);
            if was_shown {
                self.on_demand.reappeared_groups.insert((user, group));
            } else if !self.is_removal_held(key) {
                self.on_demand.lacked_groups.entry(key).or_default().insert(user);
                self.on_demand.has_unsearched_groups |= self.note_missing(settings, &[key]);
            }
        }
        kept
    }

    /// The directory shows the group. The backend asks again for the users in `lacked`.
    pub(super) fn note_reappeared_group(&mut self, key: EntryKey) {
        let Some(users) = self.on_demand.lacked_groups.remove(&key) else { return };
        let Some(group) = self.entries.get(key).map(|slot| slot.number) else { return };
        for user in users {
            self.on_demand.reappeared_groups.insert((user, group));
            self.on_demand.cache.expire_list(user);
        }
    }
}
