// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entries of a domain in memory, without their records. `roster_domain_cache` has the records.

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use roster_domain_cache::EntryKey;
use roster_provider::{EntryId, Member};
use std::hash::BuildHasher;

/// Kind of an entry. The cache stores the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CachedKind {
    /// A user.
    User = 0,
    /// A group.
    Group = 1,
    /// A group without gid, which only nests.
    NestedGroup = 2,
}

impl CachedKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::NestedGroup];
    /// The kinds of users.
    pub const USERS: &[Self] = &[Self::User];
    /// The kinds of groups, served or not.
    pub const GROUPS: &[Self] = &[Self::Group, Self::NestedGroup];

    /// Returns the kind of a group with this gid.
    #[must_use]
    pub fn of_group(gid: Option<u32>) -> Self {
        if gid.is_some() { Self::Group } else { Self::NestedGroup }
    }

    /// Returns the kind of that number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Returns the name of the kind for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::NestedGroup => "nested group",
        }
    }
}

/// The forms of member names in a group's list. The cache stores the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberForms(u8);

impl MemberForms {
    const NAME: u8 = 1;
    const DN: u8 = 2;

    /// Returns the forms of that number.
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Adds the form of a member.
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
pub struct EntrySlot {
    /// The entry's key.
    pub key: EntryKey,
    /// The entry's kind.
    pub kind: CachedKind,
    /// Forms of member names, if it is a group.
    pub forms: MemberForms,
    /// The entry's number.
    pub number: u32,
    /// The number of the entry's reference in lists, by DN.
    pub reference: u32,
    /// The last refresh that reported it.
    pub mark: u32,
    /// Hash of its record.
    pub digest: u64,
}

/// All entries.
#[derive(Default)]
pub struct EntryIndex {
    slots: HashTable<EntrySlot>,
    counts: [u64; CachedKind::ALL.len()],
    /// Groups with members by DN, and groups that also have members by name.
    with_dns: u64,
    mixed: u64,
    hasher: DefaultHashBuilder,
}

impl EntryIndex {
    /// Returns an entry.
    #[must_use]
    pub fn get(&self, key: EntryKey) -> Option<&EntrySlot> {
        self.slots.find(self.hasher.hash_one(key), |slot| slot.key == key)
    }

    /// Records that the refresh reported the entry. Returns whether there is one.
    pub fn mark(&mut self, key: EntryKey, mark: u32) -> bool {
        let slot = self.slots.find_mut(self.hasher.hash_one(key), |slot| slot.key == key);
        slot.map(|slot| slot.mark = mark).is_some()
    }

    /// Inserts an entry, or replaces the one with its key.
    pub fn put(&mut self, slot: EntrySlot) {
        self.count_in(&slot);
        let hash = self.hasher.hash_one(slot.key);
        let hasher = |slot: &EntrySlot| self.hasher.hash_one(slot.key);
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

    /// Removes an entry.
    pub fn remove(&mut self, key: EntryKey) -> Option<EntrySlot> {
        let hash = self.hasher.hash_one(key);
        let place = self.slots.find_entry(hash, |slot| slot.key == key).ok()?;
        let (slot, _) = place.remove();
        self.count_out(&slot);
        Some(slot)
    }

    fn count_in(&mut self, slot: &EntrySlot) {
        self.counts[slot.kind as usize] += 1;
        self.with_dns += u64::from(slot.forms.has_dn());
        self.mixed += u64::from(slot.forms.is_mixed());
    }

    fn count_out(&mut self, slot: &EntrySlot) {
        self.counts[slot.kind as usize] -= 1;
        self.with_dns -= u64::from(slot.forms.has_dn());
        self.mixed -= u64::from(slot.forms.is_mixed());
    }

    /// Whether a group has members by DN.
    #[must_use]
    pub fn has_dns(&self) -> bool {
        self.with_dns > 0
    }

    /// Returns the number of groups with members both by name and by DN.
    #[must_use]
    pub fn mixed(&self) -> u64 {
        self.mixed
    }

    /// Returns the entry of one of these kinds with the directory's key, of any search.
    #[must_use]
    pub fn find(
        &self,
        kinds: &[CachedKind],
        id: EntryId,
        parts: impl Iterator<Item = u8>,
    ) -> Option<&EntrySlot> {
        let mut slots = parts.filter_map(|part| self.get(EntryKey { search: part, id: id.0 }));
        slots.find(|slot| kinds.contains(&slot.kind))
    }

    /// Returns the number of entries of a kind.
    #[must_use]
    pub fn count(&self, kind: CachedKind) -> u64 {
        self.counts[kind as usize]
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns all entries in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &EntrySlot> {
        self.slots.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_changes_its_kind_is_counted_once() {
        let key = EntryKey { search: 0, id: [1; 16] };
        let mut entries = EntryIndex::default();
        let (kind, ways) = (CachedKind::User, MemberForms::default());
        let user =
            EntrySlot { key, kind, forms: ways, number: 1, reference: 0, mark: 0, digest: 0 };
        entries.put(user);
        entries.put(EntrySlot { kind: CachedKind::Group, ..user });
        assert_eq!((entries.count(CachedKind::User), entries.count(CachedKind::Group)), (0, 1));
        assert_eq!(entries.remove(key).map(|slot| slot.kind), Some(CachedKind::Group));
        assert_eq!((entries.len(), entries.count(CachedKind::Group)), (0, 0));
    }

    #[test]
    fn entries_count_mixed_groups_once() {
        let key = EntryKey { search: 0, id: [1; 16] };
        let named = MemberForms::default().with(&Member::Name(b"alice".into()));
        let referred = MemberForms::default().with(&Member::Dn(b"uid=bob".into()));
        let both = named.with(&Member::Dn(b"uid=bob".into()));
        let mut entries = EntryIndex::default();
        let kind = CachedKind::Group;
        let mut put = |ways| {
            entries.put(EntrySlot {
                key,
                kind,
                forms: ways,
                number: 1,
                reference: 0,
                mark: 0,
                digest: 0,
            });
            (entries.has_dns(), entries.mixed())
        };
        assert_eq!(put(named), (false, 0));
        assert_eq!(put(MemberForms::from_number(both.number())), (true, 1));
        assert_eq!(put(both), (true, 1));
        assert_eq!(put(referred), (true, 0));
        put(both);
        entries.remove(key);
        assert_eq!((entries.has_dns(), entries.mixed()), (false, 0));
    }
}
