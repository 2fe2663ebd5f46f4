//! The entries of a domain as far as they are in memory: all but their records.

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use roster_provider::{EntryId, Member};
use roster_store::Key;
use std::hash::BuildHasher;

/// What an entry is. The numbers are in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A user.
    User = 0,
    /// A group.
    Group = 1,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::User, Self::Group];

    /// The kind of that number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// As people write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
        }
    }
}

/// In which ways a group's list names members. The number is in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ways(u8);

impl Ways {
    const NAME: u8 = 1;
    const DN: u8 = 2;

    /// The ways of that number.
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// A member is named so, too.
    #[must_use]
    pub fn with(self, member: &Member<'_>) -> Self {
        Self(
            self.0
                | match member {
                    Member::Name(_) => Self::NAME,
                    Member::Dn(_) => Self::DN,
                },
        )
    }

    fn has_dn(self) -> bool {
        self.0 & Self::DN != 0
    }

    fn is_mixed(self) -> bool {
        self.0 & Self::NAME != 0 && self.has_dn()
    }
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its key.
    pub key: Key,
    /// What it is.
    pub kind: Kind,
    /// Of a group.
    pub ways: Ways,
    /// Its number.
    pub number: u32,
    /// The number of the reference by which lists name it by DN.
    pub reference: u32,
    /// The refresh that mentioned it last.
    pub mark: u32,
    /// Hash of its record.
    pub digest: u64,
}

/// All entries.
#[derive(Default)]
pub struct Entries {
    slots: HashTable<Slot>,
    counts: [u64; Kind::ALL.len()],
    /// Groups with members by DN, and those with members by name besides.
    with_dns: u64,
    mixed: u64,
    hasher: DefaultHashBuilder,
}

impl Entries {
    /// An entry.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&Slot> {
        self.slots.find(self.hasher.hash_one(key), |slot| slot.key == key)
    }

    /// The refresh mentions the entry; whether there is one.
    pub fn mark(&mut self, key: Key, mark: u32) -> bool {
        let slot = self.slots.find_mut(self.hasher.hash_one(key), |slot| slot.key == key);
        slot.map(|slot| slot.mark = mark).is_some()
    }

    /// Puts an entry in, or in the place of the one with its key.
    pub fn put(&mut self, slot: Slot) {
        self.count_in(&slot);
        let hash = self.hasher.hash_one(slot.key);
        let hasher = |slot: &Slot| self.hasher.hash_one(slot.key);
        match self.slots.entry(hash, |other| other.key == slot.key, hasher) {
            Entry::Occupied(mut place) => {
                let before = std::mem::replace(place.get_mut(), slot);
                self.count_out(&before);
            }
            Entry::Vacant(place) => {
                place.insert(slot);
            }
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: Key) -> Option<Slot> {
        let hash = self.hasher.hash_one(key);
        let place = self.slots.find_entry(hash, |slot| slot.key == key).ok()?;
        let (slot, _) = place.remove();
        self.count_out(&slot);
        Some(slot)
    }

    fn count_in(&mut self, slot: &Slot) {
        self.counts[slot.kind as usize] += 1;
        self.with_dns += u64::from(slot.ways.has_dn());
        self.mixed += u64::from(slot.ways.is_mixed());
    }

    fn count_out(&mut self, slot: &Slot) {
        self.counts[slot.kind as usize] -= 1;
        self.with_dns -= u64::from(slot.ways.has_dn());
        self.mixed -= u64::from(slot.ways.is_mixed());
    }

    /// Whether a group has members by DN.
    #[must_use]
    pub fn has_dns(&self) -> bool {
        self.with_dns > 0
    }

    /// How many groups have members both by name and by DN.
    #[must_use]
    pub fn mixed(&self) -> u64 {
        self.mixed
    }

    /// The entry of that kind with the directory's key, whichever search found it.
    #[must_use]
    pub fn find(&self, kind: Kind, id: EntryId, parts: impl Iterator<Item = u8>) -> Option<&Slot> {
        let mut slots = parts.filter_map(|part| self.get(Key { part, id: id.0 }));
        slots.find(|slot| slot.kind == kind)
    }

    /// How many there are of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_changes_its_kind_is_counted_once() {
        let key = Key { part: 0, id: [1; 16] };
        let mut entries = Entries::default();
        let (kind, ways) = (Kind::User, Ways::default());
        let user = Slot { key, kind, ways, number: 1, reference: 0, mark: 0, digest: 0 };
        entries.put(user);
        entries.put(Slot { kind: Kind::Group, ..user });
        assert_eq!((entries.count(Kind::User), entries.count(Kind::Group)), (0, 1));
        assert_eq!(entries.remove(key).map(|slot| slot.kind), Some(Kind::Group));
        assert_eq!((entries.len(), entries.count(Kind::Group)), (0, 0));
    }

    #[test]
    fn entries_count_mixed_groups_once() {
        let key = Key { part: 0, id: [1; 16] };
        let named = Ways::default().with(&Member::Name(b"alice".into()));
        let referred = Ways::default().with(&Member::Dn(b"uid=bob".into()));
        let both = named.with(&Member::Dn(b"uid=bob".into()));
        let mut entries = Entries::default();
        let kind = Kind::Group;
        let mut put = |ways| {
            entries.put(Slot { key, kind, ways, number: 1, reference: 0, mark: 0, digest: 0 });
            (entries.has_dns(), entries.mixed())
        };
        assert_eq!(put(named), (false, 0));
        assert_eq!(put(Ways::from_number(both.number())), (true, 1));
        assert_eq!(put(both), (true, 1));
        assert_eq!(put(referred), (true, 0));
        put(both);
        entries.remove(key);
        assert_eq!((entries.has_dns(), entries.mixed()), (false, 0));
    }
}
