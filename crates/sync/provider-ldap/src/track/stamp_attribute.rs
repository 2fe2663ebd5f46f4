// SPDX-License-Identifier: MIT OR Apache-2.0
//! The attribute that changes with each change of an entry, and whether all entries of a search show it. `syncrepl`
//! decides by it whether a search is resumed.

use crate::ber::BerError;
use crate::message::{RawEntry, printable};
use roster_messages::{log, table::directory};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The stamps of one search's entries.
pub(crate) struct StampAttribute {
    pub name: &'static str,
    is_missing: bool,
    /// Counts the searches with an entry that does not show its stamp, for the status.
    missing_searches: Arc<AtomicUsize>,
}

impl StampAttribute {
    pub fn new(name: &'static str, missing_searches: Arc<AtomicUsize>) -> Self {
        Self { name, is_missing: false, missing_searches }
    }

    /// Returns the stamp of an entry. Empty if the entry does not show it.
    pub fn read<'a>(&self, entry: &RawEntry<'a>) -> Result<&'a [u8], BerError> {
        Ok(entry.values(self.name)?.next().transpose()?.unwrap_or_default())
    }

    /// Returns whether an entry did not show its stamp.
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Records an entry without a readable stamp. Returns whether it is the first one.
    pub fn note_missing(&mut self, entry: &RawEntry<'_>) -> bool {
        if std::mem::replace(&mut self.is_missing, true) {
            return false;
        }
        self.missing_searches.fetch_add(1, Ordering::Relaxed);
        log!(
            WARN,
            &directory::STAMP_UNREADABLE_SYNC,
            entry = printable(entry.dn),
            "{} is not readable; rosterd cannot verify resumption and reads everything on each connection",
            self.name
        );
        true
    }
}
