// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of entries that a persistent search reported, each to be read in its present state. A persistent search
//! with the filter of the mirror would not report an entry that stops matching. It therefore watches all entries below
//! the base. A read of the entry with the filter shows whether it still matches. `poll` sends the searches.

use roster_provider::EntryId;
use std::collections::{HashMap, VecDeque};

/// Limit of concurrent reads.
const READINGS_MAX: usize = 16;
/// Memory for the names of waiting entries.
const BYTES_MAX: usize = 16 << 20;
/// Memory of a waiting entry beside its name.
const ENTRY_BYTES: usize = 128;

/// The result of reading an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EntryReading {
    /// The entry's key.
    pub id: EntryId,
    /// The entry matches the filter.
    pub is_found: bool,
}

/// Reported entries that were not read yet.
#[derive(Debug, Default)]
pub(crate) struct PersistentSearchQueue {
    /// The last name of each entry. The last report of an entry counts.
    waiting: HashMap<EntryId, Vec<u8>>,
    order: VecDeque<EntryId>,
    bytes: usize,
    readings: HashMap<u32, EntryReading>,
}

impl PersistentSearchQueue {
    /// Adds an entry. Returns `false` and clears the queue if it exceeds its memory.
    pub fn push(&mut self, id: EntryId, name: &[u8]) -> bool {
        self.bytes += name.len() + ENTRY_BYTES;
        if self.bytes > BYTES_MAX {
            self.clear();
            return false;
        }
        match self.waiting.insert(id, name.to_vec()) {
            Some(before) => self.bytes -= before.len() + ENTRY_BYTES,
            None => self.order.push_back(id),
        }
        true
    }

    /// Clears the queue before a full listing.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// Returns the entries to read now, with their names. Returns an empty list while others are being read, so that an
    /// older state of an entry never follows a newer one.
    pub fn take_due(&mut self) -> Vec<(EntryId, Vec<u8>)> {
        let count = if self.readings.is_empty() { self.order.len().min(READINGS_MAX) } else { 0 };
        let due: Vec<_> = self
            .order
            .drain(..count)
            .filter_map(|id| self.waiting.remove(&id).map(|name| (id, name)))
            .collect();
        let bytes: usize = due.iter().map(|(_, name)| name.len() + ENTRY_BYTES).sum();
        self.bytes -= bytes;
        due
    }

    /// Records the request that reads the entry.
    pub fn start_reading(&mut self, request: u32, id: EntryId) {
        self.readings.insert(request, EntryReading { id, is_found: false });
    }

    pub fn is_reading(&self) -> bool {
        !self.readings.is_empty()
    }

    pub fn owns(&self, request: u32) -> bool {
        self.readings.contains_key(&request)
    }

    /// Records that the entry was received.
    pub fn mark_found(&mut self, request: u32) {
        if let Some(reading) = self.readings.get_mut(&request) {
            reading.is_found = true;
        }
    }

    /// Ends the read of this request.
    pub fn finish_reading(&mut self, request: u32) -> Option<EntryReading> {
        self.readings.remove(&request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> EntryId {
        EntryId([byte; 16])
    }

    #[test]
    fn persistent_search_last_notice_counts() {
        let mut notices = PersistentSearchQueue::default();
        for (key, name) in [(1, "uid=a"), (2, "uid=b"), (1, "uid=c")] {
            assert!(notices.push(id(key), name.as_bytes()));
        }
        assert_eq!(notices.take_due(), [(id(1), b"uid=c".to_vec()), (id(2), b"uid=b".to_vec())]);
        assert_eq!(notices.bytes, 0);
        notices.start_reading(7, id(1));
        notices.start_reading(8, id(2));
        assert!(notices.push(id(1), b"uid=d"));
        assert!(notices.take_due().is_empty(), "the older reading is under way");
        notices.mark_found(8);
        assert_eq!(notices.finish_reading(7), Some(EntryReading { id: id(1), is_found: false }));
        assert_eq!(notices.finish_reading(8), Some(EntryReading { id: id(2), is_found: true }));
        assert_eq!(notices.take_due(), [(id(1), b"uid=d".to_vec())]);
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut notices = PersistentSearchQueue::default();
        let name = vec![b'x'; 1 << 20];
        assert!((0..15).all(|key| notices.push(id(key), &name)));
        assert!(!(15..20).all(|key| notices.push(id(key), &name)));
        assert!((0..15).any(|key| notices.push(id(key), &name)), "it begins anew");
    }
}
