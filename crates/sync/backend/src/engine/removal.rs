// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removals: immediate ones, undecided ones that a key search decides, and held ones that wait for an approval.
//!
//! An entry that the server reports as deleted is removed at once, under the guard of `mass_deletion_threshold`. An
//! entry that a listing or a reply lacked is missing. It is served until [`absences`](super::super::absences) has
//! searched for it by its key. An entry that can no longer be parsed counts under the same limit as missing ones. An
//! access rule that hides an attribute has this effect. A group that loses its gid counts, too. It only nests from then
//! on, unless too many groups lose their gid at once.

use super::super::entry_index::CachedKind;
use super::{Engine, EngineSettings, EngineState};
use roster_domain_cache::{EntryKey, Rejection};
use roster_messages::{log, table::directory};
use roster_provider::mass_deletion::{RemovalDecision, RemovalGuard};
use roster_provider::{
    DirectoryEntry, DirectoryGroup, EntryId, EntrySink, KeySearchResult, SearchId,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Keys in one search.
const KEYS_MAX: usize = 100;
/// Keys in one search of entries that are missing. The others are of entries that must be there.
const MISSING_MAX: usize = 75;
/// Time without a decision after which the status counts missing entries as held.
const UNDECIDED_MAX: Duration = Duration::from_secs(60);
/// Missing entries of a kind that are searched for. Above this number they are held at once.
const SEARCHED_MAX: usize = 10_000;

/// Entries of one kind in one search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsenceSearch {
    /// The kind of the entries.
    pub kind: CachedKind,
    /// The entries in question.
    pub missing: Vec<(SearchId, EntryId)>,
    /// Entries of the kind that must be there.
    pub control: Vec<EntryId>,
}

impl AbsenceSearch {
    /// Whether a reply without these entries is credible: it has an entry that must be there.
    #[must_use]
    pub fn is_credible(&self, looked: &KeySearchResult) -> bool {
        let has_control = self.control.iter().any(|id| looked.found.contains(id));
        looked.is_credible && (self.control.is_empty() || has_control)
    }

    /// Returns missing entries that were not found.
    pub fn absent_keys(&self, looked: &KeySearchResult) -> impl Iterator<Item = EntryKey> {
        let absent = self.missing.iter().filter(|(_, id)| !looked.found.contains(id));
        absent.map(|&(part, id)| EntryKey { search: part.0, id: id.0 })
    }

    /// Returns the number of entries that must be there but were not found.
    #[must_use]
    pub fn control_absent(&self, looked: &KeySearchResult) -> u64 {
        self.control.iter().filter(|id| !looked.found.contains(id)).count() as u64
    }
}

/// Result of key searches for the missing entries of one kind.
#[derive(Debug, Default)]
pub struct AbsenceResult {
    /// Entries that were not found.
    pub keys: Vec<EntryKey>,
    /// Number of entries that must be there but were not found: the directory hides entries.
    pub hidden: u64,
    /// Whether each reply is credible.
    pub is_credible: bool,
}

/// Entries with an undecided removal, by kind.
pub(super) struct RemovalState {
    /// Guards of entries that are reported as deleted.
    named_guards: [RemovalGuard; CachedKind::ALL.len()],
    /// Guards of entries that are missing.
    missing_guards: [RemovalGuard; CachedKind::ALL.len()],
    /// Entries that a reply lacked. They are served until a search by their keys decides.
    pub(super) missing: [HashSet<EntryKey>; CachedKind::ALL.len()],
    /// Time since which there are missing entries.
    missing_since: Option<Instant>,
    /// Entries that can no longer be parsed. They are served until the next flush decides about them together.
    pub(super) unreadable: [HashSet<EntryKey>; CachedKind::ALL.len()],
    /// The unreadable ones that are groups without their former gid. After the decision they only nest.
    lost_gids: HashMap<EntryKey, DirectoryGroup<'static>>,
    /// Entries with a removal that waits for an approval.
    pub(super) held: [HashSet<EntryKey>; CachedKind::ALL.len()],
    /// Searches with other held removals than in the cache.
    held_changed_searches: BTreeSet<u8>,
}

impl RemovalState {
    /// `mass_deletion_threshold` is the share of the entries that may be removed at once without an approval, 0 to 1.
    pub(super) fn new(mass_deletion: f64) -> Self {
        Self {
            named_guards: CachedKind::ALL.map(|_| RemovalGuard::for_named(mass_deletion)),
            missing_guards: CachedKind::ALL.map(|_| RemovalGuard::for_missing()),
            missing: Default::default(),
            missing_since: None,
            unreadable: Default::default(),
            lost_gids: HashMap::new(),
            held: Default::default(),
            held_changed_searches: BTreeSet::new(),
        }
    }

    /// Records that the entry is neither missing nor unreadable.
    pub(super) fn forget(&mut self, key: EntryKey) {
        self.lost_gids.remove(&key);
        for keys in self.missing.iter_mut().chain(&mut self.unreadable) {
            keys.remove(&key);
        }
    }
}

impl Engine {
    /// Returns when entries are missing.
    pub async fn wait_for_missing(&self) {
        loop {
            let noted = self.missing.notified();
            if self.has_missing() {
                return;
            }
            noted.await;
        }
    }

    /// Whether there are missing entries without a decision.
    #[must_use]
    pub fn has_missing(&self) -> bool {
        self.state().removals.missing.iter().any(|missing| !missing.is_empty())
    }

    /// Returns the missing entries by search. If there are too many of a kind for searches, they are held.
    #[must_use]
    pub fn missing_searches(&self) -> Vec<AbsenceSearch> {
        let mut state = self.state();
        let chunks = CachedKind::ALL.map(|kind| {
            let keys: Vec<EntryKey> =
                state.removals.missing[kind as usize].iter().copied().collect();
            if keys.len() > SEARCHED_MAX {
                state.hold_removals(&self.settings, kind, &keys);
                return Vec::new();
            }
            state.searches(kind, &keys)
        });
        chunks.concat()
    }

    /// Returns the entries with held removals, by search.
    #[must_use]
    pub fn held_searches(&self) -> Vec<AbsenceSearch> {
        let state = self.state();
        let chunks = CachedKind::ALL.map(|kind| {
            let keys: Vec<EntryKey> = state.removals.held[kind as usize].iter().copied().collect();
            state.searches(kind, &keys)
        });
        chunks.concat()
    }

    /// Removes missing entries of a kind that key searches did not find, or holds them.
    pub fn resolve_missing(&self, kind: CachedKind, absent: &AbsenceResult) {
        let mut state = self.state();
        let missing = &state.removals.missing[kind as usize];
        // Entries that came back meanwhile are no longer missing.
        let keys: Vec<EntryKey> =
            absent.keys.iter().filter(|key| missing.contains(*key)).copied().collect();
        if keys.is_empty() {
            return;
        }
        let population = state.entries.count(kind);
        let held = state.removals.held[kind as usize].len() as u64 + absent.hidden;
        let guard = &mut state.removals.missing_guards[kind as usize];
        let removals = keys.len() as u64;
        let is_removal = absent.is_credible
            && guard.decide(Instant::now(), population, held, removals) == RemovalDecision::Allow;
        if is_removal {
            keys.iter().for_each(|key| state.remove(*key));
        } else {
            state.hold_removals(&self.settings, kind, &keys);
        }
        drop(state);
        self.flush();
    }

    /// Removes the entries of `absent` with a held removal, and all unreadable entries with a held removal. Returns the
    /// number of removed entries, and the unreadable groups among them: one that only lost its gid has to be read again.
    pub fn confirm_removals(&self, absent: &[EntryKey]) -> (u64, Vec<(SearchId, EntryId)>) {
        let mut state = self.state();
        let held = state.removals.held.iter().flatten();
        let mut gone: HashSet<EntryKey> =
            held.filter(|key| state.rejected.contains(**key)).copied().collect();
        let groups = &state.removals.held[CachedKind::Group as usize];
        let unreadable = gone.iter().filter(|key| groups.contains(*key));
        let unreadable =
            unreadable.map(|key| (SearchId(key.search), EntryId(key.id))).collect::<Vec<_>>();
        gone.extend(absent.iter().filter(|key| state.is_removal_held(**key)));
        for key in &gone {
            state.release_held(*key);
            state.remove(*key);
        }
        state.removals.named_guards.iter_mut().for_each(RemovalGuard::reset);
        state.removals.missing_guards.iter_mut().for_each(RemovalGuard::reset);
        drop(state);
        self.flush();
        (gone.len() as u64, unreadable)
    }
}

impl EngineState {
    /// Removes entries that are reported as deleted, or holds them.
    pub(super) fn remove_all(&mut self, settings: &EngineSettings, keys: &[EntryKey]) {
        for kind in CachedKind::ALL {
            let held = &self.removals.held[kind as usize];
            let entries = &self.entries;
            let goes = |key: &EntryKey| entries.get(*key).is_some_and(|slot| slot.kind == kind);
            let going: Vec<EntryKey> =
                keys.iter().filter(|key| goes(key) && !held.contains(*key)).copied().collect();
            if going.is_empty() {
                continue;
            }
            let (waiting, more) = (held.len() as u64, going.len() as u64);
            let population = self.entries.count(kind);
            // Entries that were not served yet need no guard.
            let verdict = match self.served.is_serving() {
                true => {
                    let guard = &mut self.removals.named_guards[kind as usize];
                    guard.decide(Instant::now(), population, waiting, more)
                }
                false => RemovalDecision::Allow,
            };
            match verdict {
                RemovalDecision::Allow => going.iter().for_each(|key| self.remove(*key)),
                RemovalDecision::Hold => self.hold_removals(settings, kind, &going),
            }
        }
    }

    /// Schedules a search for missing entries, or removes them if they were not served yet. Returns whether there are
    /// any to search for.
    pub(super) fn note_missing(&mut self, settings: &EngineSettings, keys: &[EntryKey]) -> bool {
        if !self.served.is_serving() {
            self.remove_all(settings, keys);
            return false;
        }
        if self.removals.missing.iter().all(HashSet::is_empty) {
            self.removals.missing_since = Some(Instant::now());
        }
        let mut is_any = false;
        for key in keys {
            if let Some(slot) = self.entries.get(*key)
                && !self.is_removal_held(*key)
            {
                self.removals.missing[slot.kind as usize].insert(*key);
                is_any = true;
            }
        }
        is_any
    }

    /// Notes that an entry cannot be read. The next flush removes or holds it. A source that states its own
    /// removals, and a state that is not served yet, remove it at once.
    pub(super) fn note_unreadable(&mut self, settings: &EngineSettings, key: EntryKey) {
        if !self.served.is_serving() || settings.states_removals {
            return self.remove_all(settings, &[key]);
        }
        if let Some(slot) = self.entries.get(key)
            && !self.is_removal_held(key)
        {
            self.removals.missing[slot.kind as usize].remove(&key);
            self.removals.unreadable[slot.kind as usize].insert(key);
        }
    }

    /// Notes that a served group has no gid any more. The next flush decides whether it only nests from then on, or
    /// whether too many groups lost theirs.
    pub(super) fn note_lost_gid(
        &mut self,
        settings: &EngineSettings,
        key: EntryKey,
        group: &DirectoryGroup<'_>,
    ) {
        let rejection = Rejection {
            name: String::from_utf8_lossy(&group.name).into_owned(),
            reference: group.reference.to_vec(),
            code: directory::GID_LOST.code.into(),
            reason: "the group had a gid and the directory shows none".to_owned(),
        };
        self.reject(settings, key, rejection);
        if self.removals.unreadable[CachedKind::Group as usize].contains(&key) {
            self.removals.lost_gids.insert(key, group.clone().into_owned());
        }
    }

    /// Removes the entries that can no longer be parsed, or holds them. An attribute that an access rule hides makes
    /// many unreadable at once.
    pub(super) fn settle_unreadable(&mut self, settings: &EngineSettings) {
        let mut lost_gids = std::mem::take(&mut self.removals.lost_gids);
        for kind in CachedKind::ALL {
            let keys: Vec<EntryKey> = self.removals.unreadable[kind as usize].drain().collect();
            if keys.is_empty() {
                continue;
            }
            let population = self.entries.count(kind);
            let (held, removals) =
                (self.removals.held[kind as usize].len() as u64, keys.len() as u64);
            let guard = &mut self.removals.missing_guards[kind as usize];
            match guard.decide(Instant::now(), population, held, removals) {
                RemovalDecision::Allow => {
                    for key in keys {
                        self.remove(key);
                        if let Some(group) = lost_gids.remove(&key) {
                            self.put(settings, key, &DirectoryEntry::Group(group));
                        }
                    }
                }
                RemovalDecision::Hold => self.hold_removals(settings, kind, &keys),
            }
        }
    }

    /// Holds removals of a kind until an approval.
    fn hold_removals(&mut self, settings: &EngineSettings, kind: CachedKind, keys: &[EntryKey]) {
        let is_first = self.removals.held[kind as usize].is_empty();
        for key in keys {
            self.removals.missing[kind as usize].remove(key);
            self.on_demand.lacked_groups.remove(key);
            self.removals.held[kind as usize].insert(*key);
        }
        self.mark_held_changed(keys);
        if is_first {
            let (domain, kind, count) = (&settings.domain, kind.name(), keys.len());
            log!(
                ERROR,
                &directory::REMOVALS_HELD,
                "{domain}: removal of {count} {kind}s is on hold. If they are gone, run \
                 `roster domain approve-removals {domain}`."
            );
        }
    }

    /// Divides keys of a kind into searches, each with entries that must be there.
    fn searches(&self, kind: CachedKind, keys: &[EntryKey]) -> Vec<AbsenceSearch> {
        if keys.is_empty() {
            return Vec::new();
        }
        let in_question = |key: EntryKey| {
            self.removals.missing[kind as usize].contains(&key) || self.is_removal_held(key)
        };
        let random = RandomState::new();
        let missing = keys.chunks(MISSING_MAX);
        let wanted = keys.len().div_ceil(MISSING_MAX) * KEYS_MAX - keys.len();
        // The smallest hashes of a fresh hasher, so that each call has another sample.
        let mut sample: BTreeMap<u64, EntryId> = BTreeMap::new();
        for slot in self.entries.iter().filter(|slot| slot.kind == kind && !in_question(slot.key)) {
            let hash = random.hash_one(slot.key);
            if sample.len() < wanted || sample.last_key_value().is_some_and(|last| hash < *last.0) {
                sample.insert(hash, EntryId(slot.key.id));
                if sample.len() > wanted {
                    sample.pop_last();
                }
            }
        }
        let sample: Vec<EntryId> = sample.into_values().collect();
        let chunk = |(number, missing): (usize, &[EntryKey])| {
            let room = KEYS_MAX - missing.len();
            // With few entries, all searches have the same.
            let from = if sample.is_empty() { 0 } else { number * room % sample.len() };
            let control = sample.iter().cycle().skip(from).take(room.min(sample.len())).copied();
            let missing = missing.iter().map(|key| (SearchId(key.search), EntryId(key.id)));
            AbsenceSearch { kind, missing: missing.collect(), control: control.collect() }
        };
        missing.enumerate().map(chunk).collect()
    }

    pub(super) fn remove(&mut self, key: EntryKey) {
        self.removals.forget(key);
        self.on_demand.lacked_groups.remove(&key);
        let Some(slot) = self.entries.remove(key) else { return };
        self.batches.open.remove(key, slot.number);
        self.stale_references.note_released(key.search, slot.reference, Instant::now());
        self.on_demand.cache.remove(slot.number);
        self.served.note_change();
    }

    pub(super) fn release_cookies(&mut self) {
        let waiting = self.searches.by_number.iter().filter(|(_, part)| part.held_cookie.is_some());
        let numbers: Vec<u8> = waiting.map(|(&number, _)| number).collect();
        for number in numbers {
            if self.has_pending_removals(number) {
                continue;
            }
            let beyond =
                self.searches.by_number.get_mut(&number).and_then(|part| part.held_cookie.take());
            if let Some(cookie) = beyond {
                self.cookie(number, cookie);
            }
        }
    }

    /// Records that the directory has the entry again.
    pub(super) fn release_held(&mut self, key: EntryKey) {
        self.removals.forget(key);
        self.note_reappeared_group(key);
        let removed = self.removals.held.iter_mut().any(|held| held.remove(&key));
        if removed {
            self.mark_held_changed(&[key]);
        }
    }

    fn mark_held_changed(&mut self, keys: &[EntryKey]) {
        self.removals.held_changed_searches.extend(keys.iter().map(|key| key.search));
    }

    /// Stores the held removals in the cache. Otherwise a restart would approve those that a guard without history
    /// allows.
    pub(super) fn store_held(&mut self) {
        for number in std::mem::take(&mut self.removals.held_changed_searches) {
            let held = self.removals.held.iter().flatten().filter(|key| key.search == number);
            let mut held: Vec<_> = held.map(|key| key.id).collect();
            held.sort_unstable();
            self.searches.by_number.entry(number).or_default().stored.pending_removals = held;
            self.mark_part_changed(number);
        }
    }

    pub(super) fn held_count(&self) -> u64 {
        self.removals.held.iter().map(HashSet::len).sum::<usize>() as u64
    }

    /// Returns the number of missing entries that searches could not decide for a while, for example because a server
    /// refuses them.
    pub(super) fn undecided_count(&self) -> u64 {
        let is_long =
            self.removals.missing_since.is_some_and(|since| since.elapsed() >= UNDECIDED_MAX);
        if is_long {
            self.removals.missing.iter().map(HashSet::len).sum::<usize>() as u64
        } else {
            0
        }
    }

    /// Whether the entry's removal waits for an approval.
    pub(super) fn is_removal_held(&self, key: EntryKey) -> bool {
        self.removals.held.iter().any(|held| held.contains(&key))
    }

    /// Whether the entry's removal is undecided.
    pub(super) fn is_undecided(&self, key: EntryKey) -> bool {
        self.is_removal_held(key)
            || self.removals.missing.iter().any(|missing| missing.contains(&key))
    }

    /// Whether removals of the part wait for a key search or for an approval.
    pub(super) fn has_pending_removals(&self, part: u8) -> bool {
        self.removals
            .held
            .iter()
            .chain(&self.removals.missing)
            .flatten()
            .any(|key| key.search == part)
    }
}
