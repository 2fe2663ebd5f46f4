//! Removals: those that happen, and those that wait for somebody to look at them.

use super::super::deletion::{Guard, Verdict};
use super::super::entries::Kind;
use super::{Engine, Settings, State};
use roster_provider::Sink;
use roster_store::Key;
use std::collections::HashSet;
use std::time::Instant;

impl Engine {
    /// Lets held removals happen; their number.
    pub fn confirm(&self) -> u64 {
        let mut state = self.state();
        let held: Vec<Key> = state.held.iter_mut().flat_map(HashSet::drain).collect();
        state.guards.iter_mut().for_each(Guard::confirmed);
        for key in &held {
            state.remove(*key);
        }
        state.held_changed(&held);
        drop(state);
        self.flush();
        held.len() as u64
    }
}

impl State {
    /// Removes entries, or holds them.
    pub(super) fn remove_all(&mut self, settings: &Settings, keys: &[Key]) {
        for kind in Kind::ALL {
            let held = &mut self.held[kind as usize];
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
                Verdict::Hold => {
                    held.extend(going.iter().copied());
                    self.held_changed(&going);
                    if waiting == 0 {
                        let (domain, kind) = (&settings.domain, kind.name());
                        tracing::error!(
                            "more {kind}s would go at once than mass_deletion allows, of \
                             {population}; those that would now stay until `roster domain confirm \
                             {domain}`, or until the directory has them again"
                        );
                    }
                }
            }
        }
    }

    pub(super) fn remove(&mut self, key: Key) {
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
            let beyond = self.parts.get_mut(&number).and_then(|part| part.beyond.take());
            if let Some(cookie) = beyond {
                self.cookie(number, cookie);
            }
        }
    }

    /// The directory has the entry again.
    pub(super) fn not_held(&mut self, key: Key) {
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

    /// Whether the entry's removal waits.
    pub(super) fn waits(&self, key: Key) -> bool {
        self.held.iter().any(|held| held.contains(&key))
    }

    pub(super) fn is_held(&self, part: u8) -> bool {
        self.held.iter().flatten().any(|key| key.part == part)
    }
}
