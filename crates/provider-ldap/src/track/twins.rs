//! Entries that share a key which should be one entry's own. Servers make such pairs, by faulty imports
//! and restored files, and the later one would take the place of the first without a word: one of two
//! users would be gone.
//!
//! Of those that one listing names, the first is served and the others are told of. An entry that was
//! renamed while it was listed looks the same, so a listing that shows twins nobody knew of is
//! repeated once.

use crate::dn;
use roster_provider::{EntryId, Part};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Names that one key is remembered to have; of more, a few tell enough.
const NAMES_MAX: usize = 8;

/// What an entry is beside others of its key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The one that is served.
    Served,
    /// Another one, of the same key as the one that is served under this name.
    Twin {
        /// Its name.
        of: Vec<u8>,
        /// Nobody knew that there are two.
        is_news: bool,
    },
}

/// Names that share a key; the first is served.
type Names = HashMap<EntryId, Vec<Vec<u8>>>;

/// All entries that share a key, by part.
#[derive(Default)]
pub(crate) struct Twins {
    known: HashMap<Part, Names>,
    listings: HashMap<Part, Listing>,
}

/// Everything that a listing brought so far.
#[derive(Default)]
struct Listing {
    names: HashMap<EntryId, Box<[u8]>>,
    twins: Names,
}

impl Twins {
    /// A listing begins.
    pub fn began(&mut self, part: Part) {
        self.listings.remove(&part);
    }

    /// It is over; how many entries are not served.
    pub fn ended(&mut self, part: Part) -> usize {
        if let Some(listing) = self.listings.remove(&part) {
            self.known.insert(part, listing.twins);
        }
        self.known
            .get(&part)
            .into_iter()
            .flat_map(HashMap::values)
            .map(|names| names.len() - 1)
            .sum()
    }

    /// What an entry is; `is_listing` that everything is being listed.
    pub fn judge(&mut self, part: Part, id: EntryId, name: &[u8], is_listing: bool) -> Verdict {
        let name = dn::normalise(name);
        let known = self.known.entry(part).or_default();
        if !is_listing {
            return changed(known.get_mut(&id), &name);
        }
        let listing = self.listings.entry(part).or_default();
        let first = listing.names.entry(id).or_insert_with(|| (&*name).into());
        if **first == *name {
            return Verdict::Served;
        }
        let is_news = !known.contains_key(&id);
        note(known, id, first, &name);
        note(&mut listing.twins, id, first, &name);
        Verdict::Twin { of: first.to_vec(), is_news }
    }

    /// The entry of that key is gone; whether there are others of which nobody speaks.
    pub fn removed(&mut self, part: Part, id: EntryId) -> bool {
        self.known.get_mut(&part).is_some_and(|known| known.remove(&id).is_some())
    }
}

fn note(names: &mut Names, id: EntryId, first: &[u8], other: &[u8]) {
    let names = names.entry(id).or_insert_with(|| vec![first.to_vec()]);
    if names.len() < NAMES_MAX && !names.iter().any(|name| name == other) {
        names.push(other.to_vec());
    }
}

/// What an entry is that has changed, beside those that share its key.
fn changed(names: Option<&mut Vec<Vec<u8>>>, name: &[u8]) -> Verdict {
    match names.map(Vec::as_mut_slice) {
        Some([first, others @ ..]) if others.iter().any(|other| other == name) => {
            Verdict::Twin { of: first.clone(), is_news: false }
        }
        // One of them has another name now.
        Some([first, ..]) => {
            *first = name.to_vec();
            Verdict::Served
        }
        _ => Verdict::Served,
    }
}

/// A key by which an entry that is not served can be told of.
pub(crate) fn twin_id(id: EntryId, name: &[u8]) -> EntryId {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (id.0, salt, &*dn::normalise(name)).hash(&mut hasher);
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

    fn twin(of: &str, is_news: bool) -> Verdict {
        Verdict::Twin { of: of.into(), is_news }
    }

    #[test]
    fn the_first_that_is_listed_is_served_and_others_are_news_once() {
        let mut twins = Twins::default();
        for is_news in [true, false] {
            twins.began(PART);
            assert_eq!(twins.judge(PART, ID, b"uid=a,dc=x", true), Verdict::Served);
            assert_eq!(twins.judge(PART, EntryId([8; 16]), b"uid=c,dc=x", true), Verdict::Served);
            assert_eq!(twins.judge(PART, ID, b"uid=B, dc=x", true), twin("uid=a,dc=x", is_news));
            assert_eq!(twins.judge(PART, ID, b"UID=a,dc=x", true), Verdict::Served, "the same");
            assert_eq!(twins.ended(PART), 1);
        }
        // Whichever comes first the next time.
        twins.began(PART);
        assert_eq!(twins.judge(PART, ID, b"uid=b,dc=x", true), Verdict::Served);
        assert_eq!(twins.judge(PART, ID, b"uid=a,dc=x", true), twin("uid=b,dc=x", false));
        assert_eq!(twins.ended(PART), 1);
    }

    #[test]
    fn a_change_of_a_twin_does_not_take_the_place_of_the_one_that_is_served() {
        let mut twins = Twins::default();
        twins.began(PART);
        twins.judge(PART, ID, b"uid=a,dc=x", true);
        twins.judge(PART, ID, b"uid=b,dc=x", true);
        twins.ended(PART);
        assert_eq!(twins.judge(PART, ID, b"uid=b,dc=x", false), twin("uid=a,dc=x", false));
        assert_eq!(twins.judge(PART, ID, b"uid=a,dc=x", false), Verdict::Served);
        assert_eq!(twins.judge(PART, ID, b"uid=renamed,dc=x", false), Verdict::Served);
        assert!(twins.removed(PART, ID), "the other one may be there");
        assert!(!twins.removed(PART, ID));
        assert_eq!(twins.judge(PART, ID, b"uid=b,dc=x", false), Verdict::Served);
    }

    #[test]
    fn who_was_renamed_while_it_was_listed_is_no_twin_the_next_time() {
        let mut twins = Twins::default();
        twins.began(PART);
        twins.judge(PART, ID, b"uid=old,dc=x", true);
        assert_eq!(twins.judge(PART, ID, b"uid=new,dc=x", true), twin("uid=old,dc=x", true));
        twins.ended(PART);
        twins.began(PART);
        assert_eq!(twins.judge(PART, ID, b"uid=new,dc=x", true), Verdict::Served);
        assert_eq!(twins.ended(PART), 0);
        assert_eq!(twins.judge(PART, ID, b"uid=old,dc=x", false), Verdict::Served);
    }
}
