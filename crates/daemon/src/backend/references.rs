//! Numbers for what member lists hold: names and DNs, each once. A name and a DN of the same bytes have two.
//!
//! A full mirror asks millions of times, so the texts lie in one piece and the table holds numbers
//! only. The hash has a seed of its own in every process: who writes the directory cannot choose
//! texts that all fall on one place.

use super::NUMBERS_MAX;
use hashbrown::{DefaultHashBuilder, HashTable};
use roster_bus::exchange::{Numbers, Record, Records};
use roster_provider::Member;
use std::hash::BuildHasher;

/// The references of a domain.
#[derive(Default)]
pub struct References {
    /// Each reference is the byte of its kind, then the name or DN.
    text: Vec<u8>,
    /// By number: where the text starts, and its length. References that are not in use any more
    /// were left out when the cache was read, and have none.
    places: Vec<Option<(u32, u32)>>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// The number of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interned {
    /// It was known.
    Known(u32),
    /// It is new.
    New(u32),
    /// There is no room for more.
    Full,
}

/// First byte of a name in the cache.
const NAME: u8 = b'n';
/// First byte of a DN.
const DN: u8 = b'd';

/// A reference, as its kind's byte and what it is.
type Key<'a> = (u8, &'a [u8]);

fn key<'a>(member: &'a Member<'_>) -> Key<'a> {
    match member {
        Member::Name(name) => (NAME, name),
        Member::Dn(dn) => (DN, dn),
    }
}

impl References {
    /// The reference's number.
    pub fn intern(&mut self, member: &Member<'_>) -> Interned {
        if let Some(number) = self.number(member) {
            return Interned::Known(number);
        }
        let Ok(number) = u32::try_from(self.places.len()) else { return Interned::Full };
        if number >= NUMBERS_MAX || !self.add(number, key(member)) {
            return Interned::Full;
        }
        Interned::New(number)
    }

    /// The reference's number, if it has one.
    #[must_use]
    pub fn number(&self, member: &Member<'_>) -> Option<u32> {
        let key = key(member);
        let same = |&number: &u32| key_at(&self.text, &self.places, number) == Some(key);
        self.table.find(self.hasher.hash_one(key), same).copied()
    }

    /// The bytes of a reference as the cache holds them.
    #[must_use]
    pub fn bytes(&self, number: u32) -> Option<&[u8]> {
        bytes(&self.text, &self.places, number)
    }

    /// The DN of that number.
    #[must_use]
    pub fn dn(&self, number: u32) -> Option<&[u8]> {
        let (kind, dn) = key_at(&self.text, &self.places, number)?;
        (kind == DN).then_some(dn)
    }

    /// Takes in what the cache holds: numbers ascend.
    pub fn restore(&mut self, number: u32, bytes: &[u8]) {
        if let Some((&kind, text)) = bytes.split_first()
            && number < NUMBERS_MAX
            && number as usize >= self.places.len()
        {
            self.places.resize(number as usize, None);
            self.add(number, (kind, text));
        }
    }

    fn add(&mut self, number: u32, key: Key<'_>) -> bool {
        let (kind, reference) = key;
        let (Ok(start), Ok(length)) =
            (u32::try_from(self.text.len()), u32::try_from(reference.len() + 1))
        else {
            return false;
        };
        self.text.push(kind);
        self.text.extend_from_slice(reference);
        self.places.push(Some((start, length)));
        let Self { text, places, table, hasher } = self;
        let hash = hasher.hash_one(key);
        table.insert_unique(hash, number, |&number| {
            hasher.hash_one(key_at(text, places, number).unwrap_or_default())
        });
        true
    }
}

/// References that records hold.
#[derive(Default)]
pub struct Used(Vec<u64>);

impl Used {
    /// Notes those of some records.
    pub fn add(&mut self, records: &[u8]) {
        for record in Records::bare(records).flatten() {
            match record {
                Record::User(user) => {
                    self.note(user.reference);
                    self.note(user.by_name);
                }
                Record::Group(group) => {
                    self.note(group.reference);
                    group.members.into_iter().flat_map(Numbers::iter).for_each(|it| self.note(it));
                }
                Record::Gone { .. } | Record::GroupsOf { .. } => {}
            }
        }
    }

    /// Whether a record holds it.
    #[must_use]
    pub fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn note(&mut self, number: u32) {
        if number >= NUMBERS_MAX {
            return;
        }
        let word = number as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
    }
}

fn bytes<'a>(text: &'a [u8], places: &[Option<(u32, u32)>], number: u32) -> Option<&'a [u8]> {
    let (start, length) = (*places.get(number as usize)?)?;
    text.get(start as usize..)?.get(..length as usize)
}

fn key_at<'a>(text: &'a [u8], places: &[Option<(u32, u32)>], number: u32) -> Option<Key<'a>> {
    let (&kind, reference) = bytes(text, places, number)?.split_first()?;
    Some((kind, reference))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Member<'_> {
        Member::Name(name.as_bytes().into())
    }

    fn dn(dn: &str) -> Member<'_> {
        Member::Dn(dn.as_bytes().into())
    }

    #[test]
    fn equal_bytes_have_one_number_and_others_another() {
        let mut references = References::default();
        assert_eq!(references.intern(&name("alice")), Interned::New(0));
        assert_eq!(references.intern(&name("bob")), Interned::New(1));
        assert_eq!(references.intern(&name("alice")), Interned::Known(0));
        assert_eq!(references.intern(&name("")), Interned::New(2));
        assert_eq!(references.intern(&name("")), Interned::Known(2));
    }

    #[test]
    fn references_tell_names_from_dns() {
        let mut references = References::default();
        assert_eq!(references.intern(&name("uid=a")), Interned::New(0));
        assert_eq!(references.intern(&dn("uid=a")), Interned::New(1));
        assert_eq!(references.number(&name("uid=a")), Some(0));
        assert_eq!((references.dn(0), references.dn(1)), (None, Some(&b"uid=a"[..])));
        let mut restored = References::default();
        for number in 0..2 {
            restored.restore(number, references.bytes(number).expect("it was given out"));
        }
        assert_eq!(restored.number(&dn("uid=a")), Some(1));
        assert_eq!(restored.number(&name("uid=a")), Some(0));
    }

    #[test]
    fn numbers_outlive_a_restart_and_holes_are_never_filled() {
        let mut references = References::default();
        references.restore(1, b"nbob");
        references.restore(4, b"neve");
        assert_eq!(references.intern(&name("bob")), Interned::Known(1));
        assert_eq!(references.intern(&name("eve")), Interned::Known(4));
        assert_eq!(references.intern(&name("alice")), Interned::New(5));
    }

    #[test]
    fn numbers_that_do_not_ascend_are_passed_over() {
        let mut references = References::default();
        references.restore(3, b"nbob");
        references.restore(3, b"neve");
        references.restore(u32::MAX, b"nfar");
        assert_eq!(references.intern(&name("bob")), Interned::Known(3));
        assert_eq!(references.intern(&name("eve")), Interned::New(4));
    }
}
