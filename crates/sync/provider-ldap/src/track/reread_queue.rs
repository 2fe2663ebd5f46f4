// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of single entries to read, which outlives connections. `targeted_reread` sends the searches.

use parking_lot::Mutex;
use roster_provider::{EntryId, SearchId};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use tokio::sync::Notify;

/// Limit of the entries in one search.
const BATCH_MAX: usize = 100;

/// An entry or entries to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RereadTarget {
    /// The entry of this key.
    Entry(EntryId),
    /// The groups that list this DN.
    Naming(Vec<u8>),
}

/// The first target in order.
const FIRST_TARGET: RereadTarget = RereadTarget::Entry(EntryId([0; 16]));

/// The entries to read, with a flag for a read in progress. Any connection may read them.
#[derive(Default)]
pub(crate) struct RereadQueue {
    entries: Mutex<BTreeMap<(SearchId, RereadTarget), bool>>,
    added: Notify,
}

impl RereadQueue {
    /// Adds entries. An entry that is being read is read again.
    pub fn add(&self, entries: impl IntoIterator<Item = (SearchId, RereadTarget)>) {
        self.entries.lock().extend(entries.into_iter().map(|entry| (entry, false)));
        self.added.notify_one();
    }

    /// Returns when entries were added.
    pub async fn changed(&self) {
        self.added.notified().await;
    }

    /// Returns whether entries of the search are still to be read.
    pub fn is_waiting(&self, part: SearchId) -> bool {
        let entries = self.entries.lock();
        entries.range((part, FIRST_TARGET)..).next().is_some_and(|((of, _), _)| *of == part)
    }

    /// Returns the next entries of the search, and marks them as being read.
    pub fn take_batch(&self, part: SearchId) -> Vec<RereadTarget> {
        let mut entries = self.entries.lock();
        let from_part = entries.range_mut((part, FIRST_TARGET)..);
        let of_part = from_part.take_while(|((of, _), _)| *of == part).take(BATCH_MAX);
        let read = |((_, want), is_read): (&(SearchId, RereadTarget), &mut bool)| {
            *is_read = true;
            want.clone()
        };
        of_part.map(read).collect()
    }

    /// Removes entries that were read.
    pub fn finish(&self, part: SearchId, wants: Vec<RereadTarget>) {
        let mut entries = self.entries.lock();
        for want in wants {
            if let Entry::Occupied(entry) = entries.entry((part, want))
                && *entry.get()
            {
                entry.remove();
            }
        }
    }
}
