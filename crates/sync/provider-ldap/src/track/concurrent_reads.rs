// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of single entries, concurrent with reported changes. A change that the server reports during a read is newer
//! than the result of the read. `targeted_reread` and `dynamic_groups` send the reads.

use roster_provider::{EntryId, SearchId};
use std::collections::HashSet;

/// Limit of the entries that change during such reads.
const CHANGED_MAX: usize = 10_000;

/// The number of reads in progress, and the entries that have changed since they began.
#[derive(Debug, Default)]
pub(crate) struct ConcurrentReads {
    running: usize,
    changed: HashSet<(SearchId, EntryId)>,
}

impl ConcurrentReads {
    /// Records the start of a read.
    pub fn begin(&mut self) {
        self.running += 1;
    }

    /// Records the end of a read.
    pub fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
        if self.running == 0 {
            self.changed.clear();
        }
    }

    /// Clears all, because a new connection has no reads.
    pub fn reset(&mut self) {
        self.running = 0;
        self.changed.clear();
    }

    pub fn is_running(&self) -> bool {
        self.running > 0
    }

    /// Records a change of an entry. Returns `false` if there are too many to record.
    pub fn note_change(&mut self, part: SearchId, id: EntryId) -> bool {
        if self.running == 0 {
            return true;
        }
        let has_space = self.changed.len() < CHANGED_MAX;
        if has_space {
            self.changed.insert((part, id));
        }
        has_space
    }

    /// Returns whether a read in progress may show an older state of the entry.
    pub fn is_outdated(&self, part: SearchId, id: EntryId) -> bool {
        self.changed.contains(&(part, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: SearchId = SearchId(0);
    const ID: EntryId = EntryId([7; 16]);

    #[test]
    fn reads_change_meanwhile_outdates_entry() {
        let mut reads = ConcurrentReads::default();
        assert!(reads.note_change(PART, ID));
        assert!(!reads.is_outdated(PART, ID), "nothing was read");
        reads.begin();
        reads.begin();
        assert!(reads.note_change(PART, ID) && reads.is_outdated(PART, ID));
        reads.end();
        assert!(reads.is_running() && reads.is_outdated(PART, ID));
        reads.end();
        assert!(!reads.is_running() && !reads.is_outdated(PART, ID));
    }

    #[test]
    fn reads_too_many_changes_reported() {
        let mut reads = ConcurrentReads::default();
        reads.begin();
        let id = |number: usize| EntryId((number as u128).to_be_bytes());
        assert!((0..CHANGED_MAX).all(|number| reads.note_change(PART, id(number))));
        assert!(!reads.note_change(PART, id(CHANGED_MAX)));
        reads.reset();
        assert!(!reads.is_outdated(PART, id(0)));
    }
}
