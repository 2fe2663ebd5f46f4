//! Numbers for what member lists hold: names or DNs, each once.
//!
//! A full mirror asks millions of times, so the texts lie in one piece and the table holds numbers
//! only. The hash has a seed of its own in every process: who writes the directory cannot choose
//! texts that all fall on one place.

use super::NUMBERS_MAX;
use hashbrown::{DefaultHashBuilder, HashTable};
use roster_bus::exchange::{Numbers, Record, Records};
use std::hash::BuildHasher;

/// The references of a domain.
#[derive(Default)]
pub struct References {
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

impl References {
    /// The reference's number.
    pub fn intern(&mut self, reference: &[u8]) -> Interned {
        if let Some(number) = self.number(reference) {
            return Interned::Known(number);
        }
        let hash = self.hasher.hash_one(reference);
        let Ok(number) = u32::try_from(self.places.len()) else { return Interned::Full };
        if number >= NUMBERS_MAX || !self.add(number, reference, hash) {
            return Interned::Full;
        }
        Interned::New(number)
    }

    /// The reference's number, if it has one.
    #[must_use]
    pub fn number(&self, reference: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(reference);
        let same = |&number: &u32| text(&self.text, &self.places, number) == Some(reference);
        self.table.find(hash, same).copied()
    }

    /// The reference of that number.
    #[must_use]
    pub fn text(&self, number: u32) -> Option<&[u8]> {
        text(&self.text, &self.places, number)
    }

    /// Takes in what the cache holds: numbers ascend.
    pub fn restore(&mut self, number: u32, reference: &[u8]) {
        if number < NUMBERS_MAX && number as usize >= self.places.len() {
            self.places.resize(number as usize, None);
            let hash = self.hasher.hash_one(reference);
            self.add(number, reference, hash);
        }
    }

    fn add(&mut self, number: u32, reference: &[u8], hash: u64) -> bool {
        let (Ok(start), Ok(length)) =
            (u32::try_from(self.text.len()), u32::try_from(reference.len()))
        else {
            return false;
        };
        self.text.extend_from_slice(reference);
        self.places.push(Some((start, length)));
        let Self { text: all, places, table, hasher } = self;
        table.insert_unique(hash, number, |&number| {
            hasher.hash_one(text(all, places, number).unwrap_or_default())
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
                Record::User(user) => self.note(user.reference),
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

fn text<'a>(text: &'a [u8], places: &[Option<(u32, u32)>], number: u32) -> Option<&'a [u8]> {
    let (start, length) = (*places.get(number as usize)?)?;
    text.get(start as usize..)?.get(..length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_have_one_number_and_others_another() {
        let mut references = References::default();
        assert_eq!(references.intern(b"alice"), Interned::New(0));
        assert_eq!(references.intern(b"bob"), Interned::New(1));
        assert_eq!(references.intern(b"alice"), Interned::Known(0));
        assert_eq!(references.intern(b""), Interned::New(2));
        assert_eq!(references.intern(b""), Interned::Known(2));
    }

    #[test]
    fn numbers_outlive_a_restart_and_holes_are_never_filled() {
        let mut references = References::default();
        references.restore(1, b"bob");
        references.restore(4, b"eve");
        assert_eq!(references.intern(b"bob"), Interned::Known(1));
        assert_eq!(references.intern(b"eve"), Interned::Known(4));
        assert_eq!(references.intern(b"alice"), Interned::New(5));
    }

    #[test]
    fn numbers_that_do_not_ascend_are_passed_over() {
        let mut references = References::default();
        references.restore(3, b"bob");
        references.restore(3, b"eve");
        references.restore(u32::MAX, b"far");
        assert_eq!(references.intern(b"bob"), Interned::Known(3));
        assert_eq!(references.intern(b"eve"), Interned::New(4));
    }
}
