// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries with a duplicate UUID: several entries share a key that should identify one entry. Faulty imports and
//! restored files cause them. Without this check, a later entry would replace the first, and one of two users would be
//! lost. `known_entries` has the keys.
//!
//! The first entry in a listing is served, and the others are reported. An entry that is renamed during the listing
//! looks like a duplicate UUID. The listing is therefore repeated once if it shows a new duplicate UUID.
//!
//! A listing of keys has to show each known entry with a duplicate UUID. If one is missing, only a full listing can
//! show which entry is gone, and whether another entry has to be served.

use roster_provider::{EntryId, SearchId};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Limit of names that are recorded for one key.
const NAMES_MAX: usize = 8;
/// Limit of entries in one listing. Each entry takes about forty bytes.
pub(crate) const ENTRIES_MAX: usize = 1 << 22;

/// Limit of keys that several entries share. Each key takes at most two hundred bytes.
const DUPLICATES_MAX: usize = 1 << 16;

/// The error of a number beyond its limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LimitExceeded {
    pub what: &'static str,
    pub most: usize,
}

impl LimitExceeded {
    pub fn unless(is_room: bool, what: &'static str, most: usize) -> Result<(), Self> {
        if is_room { Ok(()) } else { Err(Self { what, most }) }
    }
}

/// The state of an entry among the entries with its key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DuplicateState {
    /// The entry is served.
    Served,
    /// Another entry with the same key is served.
    Duplicate {
        /// The key was not yet known to have several entries.
        is_news: bool,
    },
}

/// The names of entries that share a key, by key. Each name is recorded as its [mark](duplicate_id), because a
/// server may send very long names. The entry with the first name is served.
type SharedKeyNames = HashMap<EntryId, Vec<EntryId>>;

/// All entries that share a key, by search.
pub(crate) struct DuplicateUuids {
    /// Limit of entries in one listing.
    entries_max: usize,
    known: HashMap<SearchId, SharedKeyNames>,
    listings: HashMap<SearchId, UuidListing>,
    /// The keys of entries with a duplicate UUID that the listing of keys has shown so far.
    seen: HashSet<(SearchId, EntryId)>,
}

/// The content of a listing so far.
#[derive(Default)]
struct UuidListing {
    names: HashMap<EntryId, EntryId>,
    duplicates: SharedKeyNames,
}

impl Default for DuplicateUuids {
    fn default() -> Self {
        Self {
            entries_max: ENTRIES_MAX,
            known: HashMap::new(),
            listings: HashMap::new(),
            seen: HashSet::new(),
        }
    }
}

impl DuplicateUuids {
    /// Begins a listing.
    pub fn begin_listing(&mut self, part: SearchId) {
        self.listings.remove(&part);
        self.seen.retain(|(of, _)| *of != part);
    }

    /// Ends the listing. Returns the number of recorded names of entries that are not served.
    pub fn end_listing(&mut self, part: SearchId) -> usize {
        let Some(listing) = self.listings.remove(&part) else { return 0 };
        let count = listing.duplicates.values().map(|names| names.len() - 1).sum();
        self.known.insert(part, listing.duplicates);
        count
    }

    /// Returns the key by which an entry is reported. The served entry is reported by its own key. Another known
    /// entry with this key is reported by its mark.
    pub fn key(&self, part: SearchId, id: EntryId, name: &[u8]) -> EntryId {
        let listing = self.listings.get(&part).filter(|one| one.names.contains_key(&id));
        let names = match listing {
            Some(listing) => listing.duplicates.get(&id).map_or(&[][..], Vec::as_slice),
            None => self.names(part, id),
        };
        let [first, others @ ..] = names else { return id };
        let mark = duplicate_id(id, name);
        let is_known = others.len() + 1 == NAMES_MAX || others.contains(&mark);
        if *first != mark && is_known { mark } else { id }
    }

    /// Notes that a listing of keys shows the entry. Returns the key by which the entry is reported.
    pub fn note_seen(&mut self, part: SearchId, id: EntryId, name: &[u8]) -> EntryId {
        let key = self.key(part, id, name);
        if !self.names(part, id).is_empty() {
            self.seen.insert((part, key));
        }
        key
    }

    /// Returns whether the listing of keys has left out a known entry with a duplicate UUID.
    pub fn misses_any(&self, part: SearchId) -> bool {
        let known = self.known.get(&part).into_iter().flatten();
        let mut keys = known.flat_map(|(id, names)| keys(*id, names));
        keys.any(|key| !self.seen.contains(&(part, key)))
    }

    /// Returns the keys by which the other entries with this key are reported, without the served entry.
    pub fn others(&self, part: SearchId, id: EntryId) -> impl Iterator<Item = EntryId> {
        keys(id, self.names(part, id)).skip(1)
    }

    fn names(&self, part: SearchId, id: EntryId) -> &[EntryId] {
        self.known.get(&part).and_then(|known| known.get(&id)).map_or(&[], Vec::as_slice)
    }

    /// Records an entry with this name in canonical form, and returns its state. `is_listing` is set during a full
    /// listing.
    pub fn classify(
        &mut self,
        part: SearchId,
        id: EntryId,
        name: &[u8],
        is_listing: bool,
    ) -> Result<DuplicateState, LimitExceeded> {
        let mark = duplicate_id(id, name);
        let known = self.known.entry(part).or_default();
        if !is_listing {
            return Ok(classify_changed(known.get_mut(&id), mark));
        }
        let listing = self.listings.entry(part).or_default();
        let first = *listing.names.entry(id).or_insert(mark);
        LimitExceeded::unless(
            listing.names.len() <= self.entries_max,
            "entries",
            self.entries_max,
        )?;
        if first == mark {
            return Ok(DuplicateState::Served);
        }
        let is_news = !known.contains_key(&id);
        add_name(known, id, first, mark);
        add_name(&mut listing.duplicates, id, first, mark);
        let is_room = known.len().max(listing.duplicates.len()) <= DUPLICATES_MAX;
        LimitExceeded::unless(is_room, "UUIDs of several entries", DUPLICATES_MAX)?;
        Ok(DuplicateState::Duplicate { is_news })
    }

    /// Forgets the key of a removed entry. Returns whether several entries shared the key, because another may remain.
    pub fn removed(&mut self, part: SearchId, id: EntryId) -> bool {
        self.known.get_mut(&part).is_some_and(|known| known.remove(&id).is_some())
    }
}

/// Returns the keys by which the entries with these names are reported.
fn keys(id: EntryId, names: &[EntryId]) -> impl Iterator<Item = EntryId> {
    let others = names.iter().skip(1).copied();
    names.first().map(|_| id).into_iter().chain(others)
}

fn add_name(names: &mut SharedKeyNames, id: EntryId, first: EntryId, other: EntryId) {
    let names = names.entry(id).or_insert_with(|| vec![first]);
    if names.len() < NAMES_MAX && !names.contains(&other) {
        names.push(other);
    }
}

/// Returns the state of a changed entry among the entries with its key.
fn classify_changed(names: Option<&mut Vec<EntryId>>, name: EntryId) -> DuplicateState {
    match names.map(Vec::as_mut_slice) {
        Some([_, others @ ..]) if others.contains(&name) => {
            DuplicateState::Duplicate { is_news: false }
        }
        // Any other name counts as the present name of the served entry.
        Some([first, ..]) => {
            *first = name;
            DuplicateState::Served
        }
        _ => DuplicateState::Served,
    }
}

/// Returns the mark of an entry: a hash of its key and of its name in canonical form. An entry that is not served is
/// reported by its mark.
pub(crate) fn duplicate_id(id: EntryId, name: &[u8]) -> EntryId {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (id.0, salt, name).hash(&mut hasher);
        hasher.finish().to_be_bytes()
    };
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&half(0));
    octets[8..].copy_from_slice(&half(1));
    EntryId(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: SearchId = SearchId(0);
    const ID: EntryId = EntryId([7; 16]);

    const SERVED: Result<DuplicateState, LimitExceeded> = Ok(DuplicateState::Served);

    fn twin(is_news: bool) -> Result<DuplicateState, LimitExceeded> {
        Ok(DuplicateState::Duplicate { is_news })
    }

    #[test]
    fn the_first_that_is_listed_is_served_and_others_are_news_once() {
        let mut twins = DuplicateUuids::default();
        for is_news in [true, false] {
            twins.begin_listing(PART);
            assert_eq!(twins.classify(PART, ID, b"uid=a,dc=x", true), SERVED);
            assert_eq!(twins.classify(PART, EntryId([8; 16]), b"uid=c,dc=x", true), SERVED);
            assert_eq!(twins.classify(PART, ID, b"uid=b,dc=x", true), twin(is_news));
            assert_eq!(twins.classify(PART, ID, b"uid=a,dc=x", true), SERVED, "the same");
            assert_eq!(twins.end_listing(PART), 1);
        }
        // The next listing shows the entries in reverse order.
        twins.begin_listing(PART);
        assert_eq!(twins.classify(PART, ID, b"uid=b,dc=x", true), SERVED);
        assert_eq!(twins.classify(PART, ID, b"uid=a,dc=x", true), twin(false));
        assert_eq!(twins.end_listing(PART), 1);
    }

    #[test]
    fn duplicates_change_of_second_keeps_served_first() {
        let mut twins = DuplicateUuids::default();
        twins.begin_listing(PART);
        twins.classify(PART, ID, b"uid=a,dc=x", true).unwrap();
        twins.classify(PART, ID, b"uid=b,dc=x", true).unwrap();
        twins.end_listing(PART);
        assert_eq!(twins.classify(PART, ID, b"uid=b,dc=x", false), twin(false));
        assert_eq!(twins.classify(PART, ID, b"uid=a,dc=x", false), SERVED);
        assert_eq!(twins.classify(PART, ID, b"uid=renamed,dc=x", false), SERVED);
        assert!(twins.removed(PART, ID), "the other one may be there");
        assert!(!twins.removed(PART, ID));
        assert_eq!(twins.classify(PART, ID, b"uid=b,dc=x", false), SERVED);
    }

    #[test]
    fn twins_are_known_apart_where_only_keys_are_listed() {
        let (a, b, other) = (b"uid=a,dc=x", b"uid=b,dc=x", EntryId([8; 16]));
        let mut twins = DuplicateUuids::default();
        twins.begin_listing(PART);
        for (id, name) in [(ID, a), (ID, b), (other, b"uid=c,dc=x")] {
            twins.classify(PART, id, name, true).unwrap();
        }
        let keys = [twins.key(PART, ID, a), twins.key(PART, ID, b)];
        assert_eq!(keys, [ID, duplicate_id(ID, b)], "while they are listed");
        assert_eq!(twins.end_listing(PART), 1);
        for seen in [&[a, b][..], &[a], &[b]] {
            twins.begin_listing(PART);
            for name in seen {
                let key = keys[usize::from(*name == b)];
                assert_eq!(twins.note_seen(PART, ID, *name), key);
            }
            assert_eq!(twins.note_seen(PART, other, b"uid=c,dc=x"), other);
            assert_eq!(twins.misses_any(PART), seen.len() < 2);
            assert_eq!(twins.end_listing(PART), 0, "they were told of");
        }
        assert_eq!(twins.others(PART, ID).collect::<Vec<_>>(), [keys[1]]);
        assert_eq!(twins.others(PART, other).count(), 0);
        assert!(!twins.misses_any(SearchId(1)));
    }

    #[test]
    fn a_listing_has_so_many_entries_and_no_more() {
        let mut twins = DuplicateUuids { entries_max: 2, ..DuplicateUuids::default() };
        twins.begin_listing(PART);
        let mut judge = |key| twins.classify(PART, EntryId([key; 16]), b"uid=a,dc=x", true);
        assert_eq!([judge(1), judge(2), judge(1)], [SERVED, SERVED, SERVED]);
        assert_eq!(judge(3), Err(LimitExceeded { what: "entries", most: 2 }));
    }

    #[test]
    fn so_many_keys_may_be_shared_and_no_more() {
        let mut twins = DuplicateUuids::default();
        twins.begin_listing(PART);
        let mut judge = |number: usize| {
            let id = EntryId(u128::try_from(number).unwrap().to_be_bytes());
            twins.classify(PART, id, b"uid=a,dc=x", true).unwrap();
            twins.classify(PART, id, b"uid=b,dc=x", true)
        };
        assert!((0..DUPLICATES_MAX).all(|number| judge(number).is_ok()));
        assert!(judge(DUPLICATES_MAX).is_err());
    }

    #[test]
    fn of_very_many_twins_each_has_a_key() {
        let names: Vec<String> = (0..NAMES_MAX + 5).map(|n| format!("uid=u{n},dc=x")).collect();
        let mut twins = DuplicateUuids::default();
        twins.begin_listing(PART);
        let mut keys = HashSet::new();
        for name in &names {
            twins.classify(PART, ID, name.as_bytes(), true).unwrap();
            keys.insert(twins.key(PART, ID, name.as_bytes()));
        }
        assert_eq!(keys.len(), names.len());
        twins.end_listing(PART);
        twins.begin_listing(PART);
        assert!(names.iter().all(|name| keys.contains(&twins.note_seen(
            PART,
            ID,
            name.as_bytes()
        ))));
        assert!(!twins.misses_any(PART));
    }

    #[test]
    fn who_was_renamed_while_it_was_listed_is_no_twin_the_next_time() {
        let mut twins = DuplicateUuids::default();
        twins.begin_listing(PART);
        twins.classify(PART, ID, b"uid=old,dc=x", true).unwrap();
        assert_eq!(twins.classify(PART, ID, b"uid=new,dc=x", true), twin(true));
        twins.end_listing(PART);
        twins.begin_listing(PART);
        assert_eq!(twins.classify(PART, ID, b"uid=new,dc=x", true), SERVED);
        assert_eq!(twins.end_listing(PART), 0);
        assert_eq!(twins.classify(PART, ID, b"uid=old,dc=x", false), SERVED);
    }
}
