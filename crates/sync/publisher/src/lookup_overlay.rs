// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookup results that are newer than the fetched state. The model (`domain_model`) has them already. A state that the
//! backend assembled before them would remove them for a moment. The publisher therefore applies them on top of it,
//! until it fetches a state that contains them.

use super::domain_model::DomainModel;
use roster_bus::domain_image::{ImageDecodeError, Record, Records};
use roster_bus::interfaces::MESSAGE_BYTES_MAX;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of retained results. At least one result fits. The oldest are dropped first, and a program may query them
/// again.
const BYTES_MAX: u64 = MESSAGE_BYTES_MAX;

/// Reply of a backend to a lookup.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OverlayEntry {
    /// The backend process that assigned its numbers.
    pub epoch: u64,
    /// The backend's state at the time of the reply.
    pub sequence: u64,
    /// The records; empty if there is no such entry.
    pub records: Vec<u8>,
}

impl OverlayEntry {
    fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.records.len()) as u64
    }
}

/// Results that are newer than the fetched state.
#[derive(Default)]
pub struct LookupOverlay {
    /// In the order of their states.
    entries: VecDeque<Arc<OverlayEntry>>,
    bytes: u64,
}

impl LookupOverlay {
    /// Adds a result.
    pub fn add(&mut self, found: &Arc<OverlayEntry>) {
        let place = self.entries.partition_point(|other| other.sequence <= found.sequence);
        let before = place.checked_sub(1).and_then(|place| self.entries.get(place));
        // Several callers of one query get the same result.
        if before.is_some_and(|before| Arc::ptr_eq(before, found)) {
            return;
        }
        self.bytes += found.bytes();
        self.entries.insert(place, Arc::clone(found));
        while self.bytes > BYTES_MAX
            && let Some(oldest) = self.entries.pop_front()
        {
            self.bytes -= oldest.bytes();
        }
    }

    /// Applies the results to a fetched state, except results that it contains.
    pub fn apply_overlay(&mut self, fetched: &mut DomainModel) {
        let (epoch, sequence) = (fetched.epoch, fetched.sequence);
        self.entries.retain(|found| found.epoch == epoch && found.sequence > sequence);
        self.bytes = self.entries.iter().map(|found| found.bytes()).sum();
        if fetched.apply_lookup(self.records_after(sequence)).is_err() {
            *self = Self::default();
        }
    }

    /// Returns the records of results after a state, the newest last.
    pub fn records_after(
        &self,
        sequence: u64,
    ) -> impl Iterator<Item = Result<Record<'_>, ImageDecodeError>> + Clone {
        let start = self.entries.partition_point(|found| found.sequence <= sequence);
        self.entries.range(start..).flat_map(|found| Records::without_header(&found.records))
    }
}
