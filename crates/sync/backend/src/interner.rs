// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers for names and DNs in member lists, without duplicates. A name and a DN of the same bytes have two numbers.
//! `engine` has the lists.
//!
//! A full mirror calls this millions of times, so the texts are in one buffer and the table holds only numbers. Each
//! process seeds the hash with a random value. A directory can therefore not choose texts with colliding hashes.

use super::NUMBERS_MAX;
use hashbrown::{DefaultHashBuilder, HashTable};
use roster_bus::domain_image::{Numbers, Record, Records};
use roster_provider::Member;
use std::hash::BuildHasher;

/// The references of a domain.
#[derive(Default)]
pub struct ReferenceInterner {
    /// Each reference is the byte of its kind, then the name or DN.
    text: Vec<u8>,
    /// By number: start and length of the text. Unused references were omitted when the cache was read, and have
    /// `None`.
    spans: Vec<Option<(u32, u32)>>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// The number of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interned {
    /// The reference was known.
    Known(u32),
    /// The reference is new.
    New(u32),
    /// All numbers are in use.
    Full,
}

/// First byte of a name in the cache.
const NAME_TAG: u8 = b'n';
/// First byte of a DN.
const DN_TAG: u8 = b'd';

/// A reference as the byte of its kind, and its text.
type ReferenceKey<'a> = (u8, &'a [u8]);

fn reference_key<'a>(member: &'a Member<'_>) -> ReferenceKey<'a> {
    match member {
        Member::Name(name) => (NAME_TAG, name),
        Member::Dn(dn) => (DN_TAG, dn),
    }
}

impl ReferenceInterner {
    /// Returns the reference's number. Assigns a new one if needed.
    pub fn intern(&mut self, member: &Member<'_>) -> Interned {
        if let Some(number) = self.number(member) {
            return Interned::Known(number);
        }
        let Ok(number) = u32::try_from(self.spans.len()) else { return Interned::Full };
        if number >= NUMBERS_MAX || !self.add(number, reference_key(member)) {
            return Interned::Full;
        }
        Interned::New(number)
    }

    /// Returns the reference's number, if it has one.
    #[must_use]
    pub fn number(&self, member: &Member<'_>) -> Option<u32> {
        let key = reference_key(member);
        let same = |&number: &u32| key_at(&self.text, &self.spans, number) == Some(key);
        self.table.find(self.hasher.hash_one(key), same).copied()
    }

    /// Returns the bytes of a reference as in the cache.
    #[must_use]
    pub fn bytes(&self, number: u32) -> Option<&[u8]> {
        bytes(&self.text, &self.spans, number)
    }

    /// Returns the DN of that number.
    #[must_use]
    pub fn dn(&self, number: u32) -> Option<&[u8]> {
        let (kind, dn) = key_at(&self.text, &self.spans, number)?;
        (kind == DN_TAG).then_some(dn)
    }

    /// Adds a reference from the cache. Numbers ascend.
    pub fn restore(&mut self, number: u32, bytes: &[u8]) {
        if let Some((&kind, text)) = bytes.split_first()
            && number < NUMBERS_MAX
            && number as usize >= self.spans.len()
        {
            self.spans.resize(number as usize, None);
            self.add(number, (kind, text));
        }
    }

    fn add(&mut self, number: u32, key: ReferenceKey<'_>) -> bool {
        let (kind, reference) = key;
        let (Ok(start), Ok(length)) =
            (u32::try_from(self.text.len()), u32::try_from(reference.len() + 1))
        else {
            return false;
        };
        self.text.push(kind);
        self.text.extend_from_slice(reference);
        self.spans.push(Some((start, length)));
        let Self { text, spans: places, table, hasher } = self;
        let hash = hasher.hash_one(key);
        table.insert_unique(hash, number, |&number| {
            hasher.hash_one(key_at(text, places, number).unwrap_or_default())
        });
        true
    }
}

/// References in records.
#[derive(Default)]
pub struct UsedReferences(Vec<u64>);

impl UsedReferences {
    /// Adds the references of some records.
    pub fn mark_records(&mut self, records: &[u8]) {
        for record in Records::without_header(records).flatten() {
            match record {
                Record::User(user) => {
                    self.mark(user.reference);
                    self.mark(user.by_name);
                }
                Record::Group(group) => {
                    self.mark(group.reference);
                    group.members.into_iter().flat_map(Numbers::iter).for_each(|it| self.mark(it));
                }
                Record::Removed { .. } | Record::GroupsOf { .. } => {}
            }
        }
    }

    /// Whether a record has the reference.
    #[must_use]
    pub fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn mark(&mut self, number: u32) {
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

fn key_at<'a>(
    text: &'a [u8],
    places: &[Option<(u32, u32)>],
    number: u32,
) -> Option<ReferenceKey<'a>> {
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
        let mut references = ReferenceInterner::default();
        assert_eq!(references.intern(&name("alice")), Interned::New(0));
        assert_eq!(references.intern(&name("bob")), Interned::New(1));
        assert_eq!(references.intern(&name("alice")), Interned::Known(0));
        assert_eq!(references.intern(&name("")), Interned::New(2));
        assert_eq!(references.intern(&name("")), Interned::Known(2));
    }

    #[test]
    fn references_tell_names_from_dns() {
        let mut references = ReferenceInterner::default();
        assert_eq!(references.intern(&name("uid=a")), Interned::New(0));
        assert_eq!(references.intern(&dn("uid=a")), Interned::New(1));
        assert_eq!(references.number(&name("uid=a")), Some(0));
        assert_eq!((references.dn(0), references.dn(1)), (None, Some(&b"uid=a"[..])));
        let mut restored = ReferenceInterner::default();
        for number in 0..2 {
            restored.restore(number, references.bytes(number).expect("it was given out"));
        }
        assert_eq!(restored.number(&dn("uid=a")), Some(1));
        assert_eq!(restored.number(&name("uid=a")), Some(0));
    }

    #[test]
    fn numbers_outlive_a_restart_and_holes_are_never_filled() {
        let mut references = ReferenceInterner::default();
        references.restore(1, b"nbob");
        references.restore(4, b"neve");
        assert_eq!(references.intern(&name("bob")), Interned::Known(1));
        assert_eq!(references.intern(&name("eve")), Interned::Known(4));
        assert_eq!(references.intern(&name("alice")), Interned::New(5));
    }

    #[test]
    fn numbers_that_do_not_ascend_are_passed_over() {
        let mut references = ReferenceInterner::default();
        references.restore(3, b"nbob");
        references.restore(3, b"neve");
        references.restore(u32::MAX, b"nfar");
        assert_eq!(references.intern(&name("bob")), Interned::Known(3));
        assert_eq!(references.intern(&name("eve")), Interned::New(4));
    }
}
