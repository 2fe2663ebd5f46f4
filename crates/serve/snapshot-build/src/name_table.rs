// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name interner: every name of a user or member has one slot with a number. `string_slots` has the form of a slot.

use crate::{TooLarge, string_slots};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use roster_snapshot::hash::{self, Seed};
use roster_snapshot::layout::{LONG_NAME, LongName, NameSlot};
use std::hash::{BuildHasher, RandomState};
use zerocopy::FromBytes;

pub(crate) struct NameTable {
    slots: Vec<NameSlot>,
    table: HashTable<NumberedName>,
    /// Random for each process, so that no user can choose names that collide here.
    seed: Seed,
}

/// A name's slot and its number. The slot is in the table too: with ten million names, each further memory access costs
/// a cache miss.
struct NumberedName {
    slot: NameSlot,
    number: u32,
}

impl Default for NameTable {
    fn default() -> Self {
        let seed = Seed::new(RandomState::new().hash_one(0));
        Self { slots: Vec::new(), table: HashTable::new(), seed }
    }
}

impl NameTable {
    /// Reserves memory for that many names, if the table is empty.
    pub(crate) fn reserve(&mut self, names: usize) {
        let seed = self.seed;
        self.slots.reserve(names);
        if self.table.is_empty() {
            self.table.reserve(names, |known| hash::bytes(&known.slot.0, seed));
        }
    }

    /// Returns the number of a name, and adds the name if it is new.
    pub(crate) fn intern(&mut self, name: &[u8], long_text: &mut Vec<u8>) -> Result<u32, TooLarge> {
        let seed = self.seed;
        let short = string_slots::short_name(name);
        let key = match &short {
            Some(slot) => hash::bytes(&slot.0, seed),
            None => hash::bytes(name, seed),
        };
        let same = |known: &NumberedName| match &short {
            Some(slot) => known.slot == *slot,
            None => long_bytes(&known.slot, long_text) == Some(name),
        };
        let rehash = |known: &NumberedName| {
            hash::bytes(long_bytes(&known.slot, long_text).unwrap_or(&known.slot.0), seed)
        };
        match self.table.entry(key, same, rehash) {
            Entry::Occupied(entry) => Ok(entry.get().number),
            Entry::Vacant(entry) => {
                let number = u32::try_from(self.slots.len())
                    .map_err(|_| TooLarge("more than 4,294,967,295 names"))?;
                let slot = match short {
                    Some(slot) => slot,
                    None => string_slots::long_name(name, long_text)?,
                };
                entry.insert(NumberedName { slot, number });
                self.slots.push(slot);
                Ok(number)
            }
        }
    }

    /// Drops the table and returns the slots.
    pub(crate) fn into_slots(self) -> Vec<NameSlot> {
        self.slots
    }
}

/// Returns the name of a long slot; `None` for a short one.
#[inline]
pub(crate) fn long_bytes<'a>(slot: &NameSlot, long_text: &'a [u8]) -> Option<&'a [u8]> {
    if slot.0.last() != Some(&LONG_NAME) {
        return None;
    }
    let long = LongName::read_from_bytes(&slot.0).ok()?;
    let start = usize::try_from(long.offset.get()).ok()?;
    long_text.get(start..)?.get(..long.len())
}

/// Returns the bytes of any name slot.
#[inline]
pub(crate) fn name_bytes<'a>(slot: &'a NameSlot, long_text: &'a [u8]) -> &'a [u8] {
    long_bytes(slot, long_text).unwrap_or_else(|| {
        let [short @ .., missing] = &slot.0;
        &short[..short.len().saturating_sub(usize::from(*missing))]
    })
}
