//! Entries that a persistent search spoke of, each to be read as it is now. A persistent search that
//! has the filter of the mirror is silent about an entry that stops matching it; so it watches
//! everything below the base, and reading each entry with the filter tells whether it still belongs.

use roster_provider::EntryId;
use std::collections::{HashMap, VecDeque};

/// Entries that are read at a time.
const READINGS_MAX: usize = 16;
/// Room for the names of those that wait.
const BYTES_MAX: usize = 16 << 20;
/// What waiting takes beside the name.
const NOTICE_BYTES: usize = 128;

/// How the reading of an entry ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The entry's key.
    pub id: EntryId,
    /// It matches the filter.
    pub is_found: bool,
}

/// Notices that are not dealt with.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Where the entry was last: of several notices of one the last counts.
    waiting: HashMap<EntryId, Vec<u8>>,
    order: VecDeque<EntryId>,
    bytes: usize,
    readings: HashMap<u32, Reading>,
}

impl Notices {
    /// Notes one; `false` when there are too many, and none is remembered.
    pub fn note(&mut self, id: EntryId, name: &[u8]) -> bool {
        self.bytes += name.len() + NOTICE_BYTES;
        if self.bytes > BYTES_MAX {
            self.forget();
            return false;
        }
        match self.waiting.insert(id, name.to_vec()) {
            Some(before) => self.bytes -= before.len() + NOTICE_BYTES,
            None => self.order.push_back(id),
        }
        true
    }

    /// Those that are waiting need not be read: everything will be.
    pub fn forget(&mut self) {
        self.waiting.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// Entries to read now, with their names. As long as others are being read there are none, so that
    /// of one entry no older state can follow a newer.
    pub fn due(&mut self) -> Vec<(EntryId, Vec<u8>)> {
        let count = if self.readings.is_empty() { self.order.len().min(READINGS_MAX) } else { 0 };
        let due: Vec<_> = self
            .order
            .drain(..count)
            .filter_map(|id| self.waiting.remove(&id).map(|name| (id, name)))
            .collect();
        let bytes: usize = due.iter().map(|(_, name)| name.len() + NOTICE_BYTES).sum();
        self.bytes -= bytes;
        due
    }

    /// The entry is asked for by this request.
    pub fn asked(&mut self, request: u32, id: EntryId) {
        self.readings.insert(request, Reading { id, is_found: false });
    }

    pub fn is_reading(&self) -> bool {
        !self.readings.is_empty()
    }

    pub fn owns(&self, request: u32) -> bool {
        self.readings.contains_key(&request)
    }

    /// The entry came.
    pub fn found(&mut self, request: u32) {
        if let Some(reading) = self.readings.get_mut(&request) {
            reading.is_found = true;
        }
    }

    /// The request is answered.
    pub fn answered(&mut self, request: u32) -> Option<Reading> {
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
    fn of_several_notices_of_an_entry_the_last_counts_and_it_is_read_alone() {
        let mut notices = Notices::default();
        for (key, name) in [(1, "uid=a"), (2, "uid=b"), (1, "uid=c")] {
            assert!(notices.note(id(key), name.as_bytes()));
        }
        assert_eq!(notices.due(), [(id(1), b"uid=c".to_vec()), (id(2), b"uid=b".to_vec())]);
        assert_eq!(notices.bytes, 0);
        notices.asked(7, id(1));
        notices.asked(8, id(2));
        assert!(notices.note(id(1), b"uid=d"));
        assert!(notices.due().is_empty(), "the older reading is under way");
        notices.found(8);
        assert_eq!(notices.answered(7), Some(Reading { id: id(1), is_found: false }));
        assert_eq!(notices.answered(8), Some(Reading { id: id(2), is_found: true }));
        assert_eq!(notices.due(), [(id(1), b"uid=d".to_vec())]);
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut notices = Notices::default();
        let name = vec![b'x'; 1 << 20];
        assert!((0..15).all(|key| notices.note(id(key), &name)));
        assert!(!(15..20).all(|key| notices.note(id(key), &name)));
        assert!((0..15).any(|key| notices.note(id(key), &name)), "it begins anew");
    }
}
