// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals among the tracks of a domain. The track that acts on a signal takes it. This module starts no search:
//! `track_sink` passes the signals to the tracks.

use roster_provider::SearchId;
use std::collections::HashSet;

/// Signals that no track has taken yet.
#[derive(Debug, Default)]
pub(crate) struct TrackSignals {
    full_listings: HashSet<SearchId>,
    has_group_changes: bool,
    has_entry_changes: bool,
    has_dynamic_groups: bool,
}

impl TrackSignals {
    /// Requests a full listing of the search, because some entries may have changed without a report of the server.
    pub fn require_full_listing(&mut self, part: SearchId) {
        self.full_listings.insert(part);
    }

    pub fn requires_full_listing(&self, part: SearchId) -> bool {
        self.full_listings.contains(&part)
    }

    pub fn requires_any_listing(&self) -> bool {
        !self.full_listings.is_empty()
    }

    /// Returns whether a full listing of the search is requested. The caller then lists all entries.
    pub fn take_full_listing(&mut self, part: SearchId) -> bool {
        self.full_listings.remove(&part)
    }

    /// Records the change of a group, after which attributes that servers compute from groups may have changed.
    pub fn note_group_change(&mut self) {
        self.has_group_changes = true;
    }

    /// Returns whether a group has changed since the last call.
    pub fn take_group_changes(&mut self) -> bool {
        std::mem::take(&mut self.has_group_changes)
    }

    /// Records the change of a user or group, after which computed members may have changed.
    pub fn note_entry_change(&mut self) {
        self.has_entry_changes = true;
    }

    /// Returns whether a user or group has changed since the last call.
    pub fn take_entry_changes(&mut self) -> bool {
        std::mem::take(&mut self.has_entry_changes)
    }

    /// Records a group with computed members.
    pub fn note_dynamic_group(&mut self) {
        self.has_dynamic_groups = true;
    }

    pub fn has_dynamic_groups(&self) -> bool {
        self.has_dynamic_groups
    }

    /// Clears that record before all such groups are read.
    pub fn forget_dynamic_groups(&mut self) {
        self.has_dynamic_groups = false;
    }
}
