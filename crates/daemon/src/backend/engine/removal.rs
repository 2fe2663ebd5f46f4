//! Removals: those that happen, those that a search by keys is to decide, and those that wait for a
//! confirmation.
//!
//! An entry that the server names as deleted goes at once, under the guard of `mass_deletion`. An entry
//! that a listing or a reply lacked is missing: it is served until [`absences`](super::super::absences)
//! has looked for it by its key.

use super::super::deletion::{Guard, Verdict};
use super::super::entries::Kind;
use super::{Engine, Settings, State};
use roster_provider::{EntryId, Looked, Part, Sink};
use roster_store::Key;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Keys in one search.
const KEYS_MAX: usize = 100;
/// Keys in one search of entries that are missing. The others are of entries that must be there.
const MISSING_MAX: usize = 75;
/// After so long without a decision the status counts missing entries with those that wait.
const UNDECIDED_MAX: Duration = Duration::from_secs(60);
/// Missing entries of a kind that are looked for. More are held at once.
const LOOKED_FOR_MAX: usize = 10_000;

/// Entries of one kind that one search looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// What they are.
    pub kind: Kind,
    /// The entries in question.
    pub missing: Vec<(Part, EntryId)>,
    /// Entries of the kind that must be there.
    pub control: Vec<EntryId>,
}

impl Chunk {
    /// Whether a reply that lacks entries may be believed: it has one that must be there.
    #[must_use]
    pub fn is_credible(&self, looked: &Looked) -> bool {
        let has_control = self.control.iter().any(|id| looked.found.contains(id));
        looked.is_credible && (self.control.is_empty() || has_control)
    }

    /// Missing entries that were not found.
    pub fn absent(&self, looked: &Looked) -> impl Iterator<Item = Key> {
        let absent = self.missing.iter().filter(|(_, id)| !looked.found.contains(id));
        absent.map(|&(part, id)| Key { part: part.0, id: id.0 })
    }

    /// How many entries that must be there were not found.
    #[must_use]
    pub fn control_absent(&self, looked: &Looked) -> u64 {
        self.control.iter().filter(|id| !looked.found.contains(id)).count() as u64
    }
}

/// What searches by keys say of the missing entries of one kind.
#[derive(Debug, Default)]
pub struct Absent {
    /// Those that were not found.
    pub keys: Vec<Key>,
    /// How many others were not found either, which must be there: the directory hides entries.
    pub hidden: u64,
    /// Whether each reply may be believed.
    pub is_credible: bool,
}

impl Engine {
    /// Returns when entries are missing.
    pub async fn something_missing(&self) {
        loop {
            let noted = self.missing.notified();
            if self.has_missing() {
                return;
            }
            noted.await;
        }
    }

    /// Whether entries are missing of which it is not decided whether they go.
    #[must_use]
    pub fn has_missing(&self) -> bool {
        self.state().missing.iter().any(|missing| !missing.is_empty())
    }

    /// The missing entries, by the search. Too many of a kind to be looked for one by one are held.
    #[must_use]
    pub fn missing_chunks(&self) -> Vec<Chunk> {
        let mut state = self.state();
        let chunks = Kind::ALL.map(|kind| {
            let keys: Vec<Key> = state.missing[kind as usize].iter().copied().collect();
            if keys.len() > LOOKED_FOR_MAX {
                state.hold(&self.settings, kind, &keys);
                return Vec::new();
            }
            state.chunks(kind, &keys)
        });
        chunks.concat()
    }

    /// The entries whose removal waits for a confirmation, by the search.
    #[must_use]
    pub fn held_chunks(&self) -> Vec<Chunk> {
        let state = self.state();
        let chunks = Kind::ALL.map(|kind| {
            let keys: Vec<Key> = state.held[kind as usize].iter().copied().collect();
            state.chunks(kind, &keys)
        });
        chunks.concat()
    }

    /// Removes missing entries of a kind that searches by their keys did not find, or holds them.
    pub fn settle_missing(&self, kind: Kind, absent: &Absent) {
        let mut state = self.state();
        let missing = &state.missing[kind as usize];
        // Those that came back meanwhile are not missing any more.
        let keys: Vec<Key> =
            absent.keys.iter().filter(|key| missing.contains(*key)).copied().collect();
        if keys.is_empty() {
            return;
        }
        let population = state.entries.count(kind);
        let held = state.held[kind as usize].len() as u64 + absent.hidden;
        let guard = &mut state.missing_guards[kind as usize];
        let removals = keys.len() as u64;
        let is_removal = absent.is_credible
            && guard.judge(Instant::now(), population, held, removals) == Verdict::LetGo;
        if is_removal {
            keys.iter().for_each(|key| state.remove(*key));
        } else {
            state.hold(&self.settings, kind, &keys);
        }
        drop(state);
        self.flush();
    }

    /// Removes those of these entries whose removal still waits; their number.
    pub fn confirm(&self, absent: &[Key]) -> u64 {
        let mut state = self.state();
        let gone: Vec<Key> = absent.iter().filter(|key| state.waits(**key)).copied().collect();
        for key in &gone {
            state.not_held(*key);
            state.remove(*key);
        }
        state.guards.iter_mut().for_each(Guard::confirmed);
        state.missing_guards.iter_mut().for_each(Guard::confirmed);
        drop(state);
        self.flush();
        gone.len() as u64
    }
}

impl State {
    /// Removes entries that are named as deleted, or holds them.
    pub(super) fn remove_all(&mut self, settings: &Settings, keys: &[Key]) {
        for kind in Kind::ALL {
            let held = &self.held[kind as usize];
            let entries = &self.entries;
            let goes = |key: &Key| entries.get(*key).is_some_and(|slot| slot.kind == kind);
            let going: Vec<Key> =
                keys.iter().filter(|key| goes(key) && !held.contains(*key)).copied().collect();
            if going.is_empty() {
                continue;
            }
            let (waiting, more) = (held.len() as u64, going.len() as u64);
            let population = self.entries.count(kind);
            // What nobody has seen yet needs no guard.
            let verdict = match self.serving {
                true => {
                    let guard = &mut self.guards[kind as usize];
                    guard.judge(Instant::now(), population, waiting, more)
                }
                false => Verdict::LetGo,
            };
            match verdict {
                Verdict::LetGo => going.iter().for_each(|key| self.remove(*key)),
                Verdict::Hold => self.hold(settings, kind, &going),
            }
        }
    }

    /// Has missing entries looked for, or removes them if nobody has seen them yet. Whether there are
    /// any to look for.
    pub(super) fn note_missing(&mut self, settings: &Settings, keys: &[Key]) -> bool {
        if !self.serving {
            self.remove_all(settings, keys);
            return false;
        }
        if self.missing.iter().all(HashSet::is_empty) {
            self.missing_since = Some(Instant::now());
        }
        let mut is_any = false;
        for key in keys {
            if let Some(slot) = self.entries.get(*key)
                && !self.waits(*key)
            {
                self.missing[slot.kind as usize].insert(*key);
                is_any = true;
            }
        }
        is_any
    }

    /// Has removals of a kind wait for a confirmation.
    fn hold(&mut self, settings: &Settings, kind: Kind, keys: &[Key]) {
        let is_first = self.held[kind as usize].is_empty();
        for key in keys {
            self.missing[kind as usize].remove(key);
            self.lacked.remove(key);
            self.held[kind as usize].insert(*key);
        }
        self.held_changed(keys);
        if is_first {
            let (domain, kind, count) = (&settings.domain, kind.name(), keys.len());
            tracing::error!(
                "{domain}: {count} {kind}s are kept that the directory does not show or names as \
                 deleted: too many at once, or its replies are not credible. They stay until `roster \
                 domain confirm {domain}`, or until the directory has them again"
            );
        }
    }

    /// Divides keys of a kind into searches, each with entries that must be there.
    fn chunks(&self, kind: Kind, keys: &[Key]) -> Vec<Chunk> {
        if keys.is_empty() {
            return Vec::new();
        }
        let in_question = |key: Key| self.missing[kind as usize].contains(&key) || self.waits(key);
        let random = RandomState::new();
        let missing = keys.chunks(MISSING_MAX);
        let wanted = keys.len().div_ceil(MISSING_MAX) * KEYS_MAX - keys.len();
        // The smallest hashes of a fresh hasher: a sample that is another one each time.
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
        let chunk = |(number, missing): (usize, &[Key])| {
            let room = KEYS_MAX - missing.len();
            // With few entries each search has the same.
            let from = if sample.is_empty() { 0 } else { number * room % sample.len() };
            let control = sample.iter().cycle().skip(from).take(room.min(sample.len())).copied();
            let missing = missing.iter().map(|key| (Part(key.part), EntryId(key.id)));
            Chunk { kind, missing: missing.collect(), control: control.collect() }
        };
        missing.enumerate().map(chunk).collect()
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.missing.iter_mut().for_each(|missing| {
            missing.remove(&key);
        });
        self.lacked.remove(&key);
        let Some(slot) = self.entries.remove(key) else { return };
        self.open.removed(key, slot.number);
        self.doubts.left(key.part, slot.reference, Instant::now());
        self.asked.remove(slot.number);
        self.unfetched.get_or_insert_with(Instant::now);
    }

    pub(super) fn cookies_that_waited(&mut self) {
        let waiting = self.parts.iter().filter(|(_, part)| part.beyond.is_some());
        let numbers: Vec<u8> = waiting.map(|(&number, _)| number).collect();
        for number in numbers {
            if self.is_held(number) {
                continue;
            }
            let beyond = self.parts.get_mut(&number).and_then(|part| part.beyond.take());
            if let Some(cookie) = beyond {
                self.cookie(number, cookie);
            }
        }
    }

    /// The directory has the entry again.
    pub(super) fn not_held(&mut self, key: Key) {
        for missing in &mut self.missing {
            missing.remove(&key);
        }
        self.group_shown(key);
        let removed = self.held.iter_mut().any(|held| held.remove(&key));
        if removed {
            self.held_changed(&[key]);
        }
    }

    fn held_changed(&mut self, keys: &[Key]) {
        self.held_changed.extend(keys.iter().map(|key| key.part));
    }

    /// Has the cache know which removals wait, or a restart would be a confirmation of those that a
    /// guard without a memory lets go.
    pub(super) fn keep_held(&mut self) {
        for number in std::mem::take(&mut self.held_changed) {
            let held = self.held.iter().flatten().filter(|key| key.part == number);
            let mut held: Vec<_> = held.map(|key| key.id).collect();
            held.sort_unstable();
            self.parts.entry(number).or_default().lasting.held = held;
            self.part_changed(number);
        }
    }

    pub(super) fn held_count(&self) -> u64 {
        self.held.iter().map(HashSet::len).sum::<usize>() as u64
    }

    /// Missing entries about which searches decide nothing for a while, as when a server refuses them.
    pub(super) fn undecided_count(&self) -> u64 {
        let is_long = self.missing_since.is_some_and(|since| since.elapsed() >= UNDECIDED_MAX);
        if is_long { self.missing.iter().map(HashSet::len).sum::<usize>() as u64 } else { 0 }
    }

    /// Whether the entry's removal waits for a confirmation.
    pub(super) fn waits(&self, key: Key) -> bool {
        self.held.iter().any(|held| held.contains(&key))
    }

    /// Whether it is not decided yet whether the entry goes.
    pub(super) fn is_undecided(&self, key: Key) -> bool {
        self.waits(key) || self.missing.iter().any(|missing| missing.contains(&key))
    }

    /// Whether removals of the part wait, for a search by keys or for a confirmation.
    pub(super) fn is_held(&self, part: u8) -> bool {
        self.held.iter().chain(&self.missing).flatten().any(|key| key.part == part)
    }
}
