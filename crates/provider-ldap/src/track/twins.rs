//! Entries that share a key which should be one entry's own. Servers make such pairs, by faulty imports
//! and restored files, and the later one would take the place of the first without a word: one of two
//! users would be gone.
//!
//! Of those that one listing names, the first is served and the others are told of. An entry that was
//! renamed while it was listed looks the same, so a listing that shows twins nobody knew of is
//! repeated once. Where only keys are listed, each of the twins has to be seen: which of them is gone,
//! and whether another is to be served, only everything tells.

use roster_provider::{EntryId, Part};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Names that one key is remembered to have; of more, a few tell enough.
const NAMES_MAX: usize = 8;
/// Entries of one listing, of which each takes some forty bytes.
pub(crate) const ENTRIES_MAX: usize = 1 << 22;

/// Keys that several entries share, of which each takes up to two hundred bytes.
const SHARED_MAX: usize = 1 << 16;

/// More of something than there is room for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany {
    pub what: &'static str,
    pub most: usize,
}

impl TooMany {
    pub fn unless(is_room: bool, what: &'static str, most: usize) -> Result<(), Self> {
        if is_room { Ok(()) } else { Err(Self { what, most }) }
    }
}

/// What an entry is beside others of its key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The one that is served.
    Served,
    /// Another one, of the same key as the one that is served.
    Twin {
        /// Nobody knew that there are two.
        is_news: bool,
    },
}

/// Names that share a key, each by its [mark](twin_id) alone, for a server may send very long ones; the
/// first is served.
type Names = HashMap<EntryId, Vec<EntryId>>;

/// All entries that share a key, by part.
pub(crate) struct Twins {
    /// Entries that one listing may have.
    most: usize,
    known: HashMap<Part, Names>,
    listings: HashMap<Part, Listing>,
    /// Keys of twins that were seen since the listing began.
    seen: HashSet<(Part, EntryId)>,
}

/// Everything that a listing brought so far.
#[derive(Default)]
struct Listing {
    names: HashMap<EntryId, EntryId>,
    twins: Names,
}

impl Default for Twins {
    fn default() -> Self {
        Self {
            most: ENTRIES_MAX,
            known: HashMap::new(),
            listings: HashMap::new(),
            seen: HashSet::new(),
        }
    }
}

impl Twins {
    /// A listing begins.
    pub fn began(&mut self, part: Part) {
        self.listings.remove(&part);
        self.seen.retain(|(of, _)| *of != part);
    }

    /// It is over; how many entries it showed that are not served.
    pub fn ended(&mut self, part: Part) -> usize {
        let Some(listing) = self.listings.remove(&part) else { return 0 };
        let count = listing.twins.values().map(|names| names.len() - 1).sum();
        self.known.insert(part, listing.twins);
        count
    }

    /// The key by which an entry is told of: of those that share one, only the entry that is served
    /// has that.
    pub fn key(&self, part: Part, id: EntryId, name: &[u8]) -> EntryId {
        let listing = self.listings.get(&part).filter(|one| one.names.contains_key(&id));
        let names = match listing {
            Some(listing) => listing.twins.get(&id).map_or(&[][..], Vec::as_slice),
            None => self.names(part, id),
        };
        let [first, others @ ..] = names else { return id };
        let mark = twin_id(id, name);
        let is_known = others.len() + 1 == NAMES_MAX || others.contains(&mark);
        if *first != mark && is_known { mark } else { id }
    }

    /// The entry was seen where only keys are listed; the key by which it is told of.
    pub fn see(&mut self, part: Part, id: EntryId, name: &[u8]) -> EntryId {
        let key = self.key(part, id, name);
        if !self.names(part, id).is_empty() {
            self.seen.insert((part, key));
        }
        key
    }

    /// Whether one of the twins was not seen.
    pub fn misses_any(&self, part: Part) -> bool {
        let known = self.known.get(&part).into_iter().flatten();
        let mut keys = known.flat_map(|(id, names)| keys(*id, names));
        keys.any(|key| !self.seen.contains(&(part, key)))
    }

    /// The keys of entries that share this one, but for the one that is served.
    pub fn others(&self, part: Part, id: EntryId) -> impl Iterator<Item = EntryId> {
        keys(id, self.names(part, id)).skip(1)
    }

    fn names(&self, part: Part, id: EntryId) -> &[EntryId] {
        self.known.get(&part).and_then(|known| known.get(&id)).map_or(&[], Vec::as_slice)
    }

    /// What an entry is whose name is this, in canonical form; `is_listing` that everything is being
    /// listed.
    pub fn judge(
        &mut self,
        part: Part,
        id: EntryId,
        name: &[u8],
        is_listing: bool,
    ) -> Result<Verdict, TooMany> {
        let mark = twin_id(id, name);
        let known = self.known.entry(part).or_default();
        if !is_listing {
            return Ok(changed(known.get_mut(&id), mark));
        }
        let listing = self.listings.entry(part).or_default();
        let first = *listing.names.entry(id).or_insert(mark);
        TooMany::unless(listing.names.len() <= self.most, "entries", self.most)?;
        if first == mark {
            return Ok(Verdict::Served);
        }
        let is_news = !known.contains_key(&id);
        note(known, id, first, mark);
        note(&mut listing.twins, id, first, mark);
        let is_room = known.len().max(listing.twins.len()) <= SHARED_MAX;
        TooMany::unless(is_room, "UUIDs of several entries", SHARED_MAX)?;
        Ok(Verdict::Twin { is_news })
    }

    /// The entry of that key is gone; whether there are others of which nobody speaks.
    pub fn removed(&mut self, part: Part, id: EntryId) -> bool {
        self.known.get_mut(&part).is_some_and(|known| known.remove(&id).is_some())
    }
}

/// The keys of entries of these names.
fn keys(id: EntryId, names: &[EntryId]) -> impl Iterator<Item = EntryId> {
    let others = names.iter().skip(1).copied();
    names.first().map(|_| id).into_iter().chain(others)
}

fn note(names: &mut Names, id: EntryId, first: EntryId, other: EntryId) {
    let names = names.entry(id).or_insert_with(|| vec![first]);
    if names.len() < NAMES_MAX && !names.contains(&other) {
        names.push(other);
    }
}

/// What an entry is that has changed, beside those that share its key.
fn changed(names: Option<&mut Vec<EntryId>>, name: EntryId) -> Verdict {
    match names.map(Vec::as_mut_slice) {
        Some([_, others @ ..]) if others.contains(&name) => Verdict::Twin { is_news: false },
        // One of them has another name now.
        Some([first, ..]) => {
            *first = name;
            Verdict::Served
        }
        _ => Verdict::Served,
    }
}

/// A key by which an entry that is not served can be told of: a mark of its key and its name, which is in
/// canonical form.
pub(crate) fn twin_id(id: EntryId, name: &[u8]) -> EntryId {
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

    const PART: Part = Part(0);
    const ID: EntryId = EntryId([7; 16]);

    const SERVED: Result<Verdict, TooMany> = Ok(Verdict::Served);

    fn twin(is_news: bool) -> Result<Verdict, TooMany> {
        Ok(Verdict::Twin { is_news })
    }

    #[test]
    fn the_first_that_is_listed_is_served_and_others_are_news_once() {
        let mut twins = Twins::default();
        for is_news in [true, false] {
            twins.began(PART);
            assert_eq!(twins.judge(PART, ID, b"uid=a,dc=x", true), SERVED);
            assert_eq!(twins.judge(PART, EntryId([8; 16]), b"uid=c,dc=x", true), SERVED);
            assert_eq!(twins.judge(PART, ID, b"uid=b,dc=x", true), twin(is_news));
            assert_eq!(twins.judge(PART, ID, b"uid=a,dc=x", true), SERVED, "the same");
            assert_eq!(twins.ended(PART), 1);
        }
        // Whichever comes first the next time.
        twins.began(PART);
        assert_eq!(twins.judge(PART, ID, b"uid=b,dc=x", true), SERVED);
        assert_eq!(twins.judge(PART, ID, b"uid=a,dc=x", true), twin(false));
        assert_eq!(twins.ended(PART), 1);
    }

    #[test]
    fn a_change_of_a_twin_does_not_take_the_place_of_the_one_that_is_served() {
        let mut twins = Twins::default();
        twins.began(PART);
        twins.judge(PART, ID, b"uid=a,dc=x", true).unwrap();
        twins.judge(PART, ID, b"uid=b,dc=x", true).unwrap();
        twins.ended(PART);
        assert_eq!(twins.judge(PART, ID, b"uid=b,dc=x", false), twin(false));
        assert_eq!(twins.judge(PART, ID, b"uid=a,dc=x", false), SERVED);
        assert_eq!(twins.judge(PART, ID, b"uid=renamed,dc=x", false), SERVED);
        assert!(twins.removed(PART, ID), "the other one may be there");
        assert!(!twins.removed(PART, ID));
        assert_eq!(twins.judge(PART, ID, b"uid=b,dc=x", false), SERVED);
    }

    #[test]
    fn twins_are_known_apart_where_only_keys_are_listed() {
        let (a, b, other) = (b"uid=a,dc=x", b"uid=b,dc=x", EntryId([8; 16]));
        let mut twins = Twins::default();
        twins.began(PART);
        for (id, name) in [(ID, a), (ID, b), (other, b"uid=c,dc=x")] {
            twins.judge(PART, id, name, true).unwrap();
        }
        let keys = [twins.key(PART, ID, a), twins.key(PART, ID, b)];
        assert_eq!(keys, [ID, twin_id(ID, b)], "while they are listed");
        assert_eq!(twins.ended(PART), 1);
        for seen in [&[a, b][..], &[a], &[b]] {
            twins.began(PART);
            for name in seen {
                let key = keys[usize::from(*name == b)];
                assert_eq!(twins.see(PART, ID, *name), key);
            }
            assert_eq!(twins.see(PART, other, b"uid=c,dc=x"), other);
            assert_eq!(twins.misses_any(PART), seen.len() < 2);
            assert_eq!(twins.ended(PART), 0, "they were told of");
        }
        assert_eq!(twins.others(PART, ID).collect::<Vec<_>>(), [keys[1]]);
        assert_eq!(twins.others(PART, other).count(), 0);
        assert!(!twins.misses_any(Part(1)));
    }

    #[test]
    fn a_listing_has_so_many_entries_and_no_more() {
        let mut twins = Twins { most: 2, ..Twins::default() };
        twins.began(PART);
        let mut judge = |key| twins.judge(PART, EntryId([key; 16]), b"uid=a,dc=x", true);
        assert_eq!([judge(1), judge(2), judge(1)], [SERVED, SERVED, SERVED]);
        assert_eq!(judge(3), Err(TooMany { what: "entries", most: 2 }));
    }

    #[test]
    fn so_many_keys_may_be_shared_and_no_more() {
        let mut twins = Twins::default();
        twins.began(PART);
        let mut judge = |number: usize| {
            let id = EntryId(u128::try_from(number).unwrap().to_be_bytes());
            twins.judge(PART, id, b"uid=a,dc=x", true).unwrap();
            twins.judge(PART, id, b"uid=b,dc=x", true)
        };
        assert!((0..SHARED_MAX).all(|number| judge(number).is_ok()));
        assert!(judge(SHARED_MAX).is_err());
    }

    #[test]
    fn of_very_many_twins_each_has_a_key() {
        let names: Vec<String> = (0..NAMES_MAX + 5).map(|n| format!("uid=u{n},dc=x")).collect();
        let mut twins = Twins::default();
        twins.began(PART);
        let mut keys = HashSet::new();
        for name in &names {
            twins.judge(PART, ID, name.as_bytes(), true).unwrap();
            keys.insert(twins.key(PART, ID, name.as_bytes()));
        }
        assert_eq!(keys.len(), names.len());
        twins.ended(PART);
        twins.began(PART);
        assert!(names.iter().all(|name| keys.contains(&twins.see(PART, ID, name.as_bytes()))));
        assert!(!twins.misses_any(PART));
    }

    #[test]
    fn who_was_renamed_while_it_was_listed_is_no_twin_the_next_time() {
        let mut twins = Twins::default();
        twins.began(PART);
        twins.judge(PART, ID, b"uid=old,dc=x", true).unwrap();
        assert_eq!(twins.judge(PART, ID, b"uid=new,dc=x", true), twin(true));
        twins.ended(PART);
        twins.began(PART);
        assert_eq!(twins.judge(PART, ID, b"uid=new,dc=x", true), SERVED);
        assert_eq!(twins.ended(PART), 0);
        assert_eq!(twins.judge(PART, ID, b"uid=old,dc=x", false), SERVED);
    }
}
