//! Names to numbers: every name that is a user or a member has one slot.

use crate::{TooLarge, slots};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use roster_snapshot::hash::{self, Seed};
use roster_snapshot::layout::{LONG_NAME, LongName, NameSlot};
use std::hash::{BuildHasher, RandomState};
use zerocopy::FromBytes;

pub(crate) struct Names {
    slots: Vec<NameSlot>,
    table: HashTable<Known>,
    /// Of this process alone, so that nobody can choose names that collide here.
    seed: Seed,
}

/// A name's slot and its number. The slot stands in the table too: in a large corpus each further
/// place to look at is another wait for memory, ten million times.
struct Known {
    slot: NameSlot,
    number: u32,
}

impl Default for Names {
    fn default() -> Self {
        let seed = Seed::new(RandomState::new().hash_one(0));
        Self { slots: Vec::new(), table: HashTable::new(), seed }
    }
}

impl Names {
    /// Makes room for so many names, if there are none yet.
    pub(crate) fn reserve(&mut self, names: usize) {
        let seed = self.seed;
        self.slots.reserve(names);
        if self.table.is_empty() {
            self.table.reserve(names, |known| hash::bytes(&known.slot.0, seed));
        }
    }

    /// The number of this name, a new one if it is new.
    pub(crate) fn know(&mut self, name: &[u8], long_text: &mut Vec<u8>) -> Result<u32, TooLarge> {
        let seed = self.seed;
        let short = slots::short_name(name);
        let key = match &short {
            Some(slot) => hash::bytes(&slot.0, seed),
            None => hash::bytes(name, seed),
        };
        let same = |known: &Known| match &short {
            Some(slot) => known.slot == *slot,
            None => long_bytes(&known.slot, long_text) == Some(name),
        };
        let rehash = |known: &Known| {
            hash::bytes(long_bytes(&known.slot, long_text).unwrap_or(&known.slot.0), seed)
        };
        match self.table.entry(key, same, rehash) {
            Entry::Occupied(entry) => Ok(entry.get().number),
            Entry::Vacant(entry) => {
                let number = u32::try_from(self.slots.len())
                    .map_err(|_| TooLarge("more than 4,294,967,295 names"))?;
                let slot = match short {
                    Some(slot) => slot,
                    None => slots::long_name(name, long_text)?,
                };
                entry.insert(Known { slot, number });
                self.slots.push(slot);
                Ok(number)
            }
        }
    }

    /// Gives up the table, which finishing has no use for.
    pub(crate) fn into_slots(self) -> Vec<NameSlot> {
        self.slots
    }
}

/// The name of a long slot; `None` for a short one.
#[inline]
pub(crate) fn long_bytes<'a>(slot: &NameSlot, long_text: &'a [u8]) -> Option<&'a [u8]> {
    if slot.0.last() != Some(&LONG_NAME) {
        return None;
    }
    let long = LongName::read_from_bytes(&slot.0).ok()?;
    let start = usize::try_from(long.offset.get()).ok()?;
    long_text.get(start..)?.get(..long.len())
}

/// The bytes of any name slot.
#[inline]
pub(crate) fn name_bytes<'a>(slot: &'a NameSlot, long_text: &'a [u8]) -> &'a [u8] {
    long_bytes(slot, long_text).unwrap_or_else(|| {
        let [short @ .., missing] = &slot.0;
        &short[..short.len().saturating_sub(usize::from(*missing))]
    })
}
