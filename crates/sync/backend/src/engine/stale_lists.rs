// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds groups with lists that may be outdated ([`stale_references`](super::super::stale_references)).

use super::super::domain_image::{DomainView, ImageError};
use super::super::entry_index::{CachedKind, EntrySlot};
use super::super::stale_references::{ALL_REFERENCES, DueReferences};
use super::{Engine, EngineState, ViewUnavailable};
use roster_bus::domain_image::{ImageHeader, Numbers, Record, Records};
use roster_provider::{EntryId, SearchId};
use std::collections::BTreeSet;
use std::time::Instant;

/// Groups that are read one by one. Above this number, everything is read.
const GROUPS_MAX: usize = 10_000;

/// Lists to scan, and the references to search for.
pub struct ListScanJob {
    view: DomainView,
    due: DueReferences,
    /// References for a query to the server.
    named: Vec<Vec<u8>>,
    then: Instant,
}

/// Result of a list scan.
pub struct StaleListScan {
    references: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    named: Vec<Vec<u8>>,
    then: Instant,
}

/// Entries to read again.
#[derive(Debug, PartialEq, Eq)]
pub enum PendingRereads {
    /// The listed groups, and groups of which the list at the server has one of these references.
    Groups(Vec<(SearchId, EntryId)>, Vec<Vec<u8>>),
    /// Everything.
    Everything,
}

impl ListScanJob {
    /// Scans the lists. This reads all groups from the cache.
    pub fn scan(self) -> Result<StaleListScan, ImageError> {
        let Self { view, due: DueReferences { in_lists: sought, .. }, named, then } = self;
        let mut found =
            StaleListScan { references: BTreeSet::new(), groups: BTreeSet::new(), named, then };
        if sought.is_empty() {
            return Ok(found);
        }
        view.records(|number, records| {
            for record in Records::without_header(records.unwrap_or_default()).flatten() {
                let Record::Group(group) = record else { continue };
                let members = group.members.into_iter().flat_map(Numbers::iter);
                for member in members.filter(|member| sought.contains(member)) {
                    found.references.insert(member);
                    found.groups.insert(number);
                }
            }
            Ok(())
        })?;
        Ok(found)
    }
}

impl Engine {
    /// Returns when a list scan is due.
    pub async fn wait_for_list_scan(&self) {
        loop {
            let due = self.state().stale_references.next_due();
            let wait = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => return,
                // Another reference may be due earlier.
                () = self.list_scan_due.notified() => {}
            }
        }
    }

    /// Returns a job that scans the lists without a lock.
    pub fn list_scan_job(&self) -> Result<ListScanJob, ViewUnavailable> {
        let state = self.state();
        if !state.served.is_serving() {
            return Err(ViewUnavailable::Incomplete(None));
        }
        let then = Instant::now();
        let mut due = state.stale_references.due_at(then);
        if !state.entries.has_dns() {
            // A server fixes DNs in lists, and no list has any.
            due = DueReferences::default();
        }
        let named = due.at_server.iter().filter_map(|&number| state.references.dn(number));
        let named = named.map(<[u8]>::to_vec).collect();
        let (epoch, sequence) = (self.epoch, state.served.sequence);
        let header = ImageHeader { flags: 0, epoch, since: 0, sequence, records: 0 };
        Ok(ListScanJob { view: state.full_view(header)?, due, named, then })
    }

    /// Returns the entries to read again after a scan.
    pub fn finish_list_scan(&self, found: StaleListScan) -> PendingRereads {
        let mut state = self.state();
        let is_all = state.stale_references.due_at(found.then).in_lists.contains(&ALL_REFERENCES);
        let now = Instant::now();
        state.stale_references.note_scanned(found.then, &found.references, now);
        if is_all {
            return PendingRereads::Everything;
        }
        if found.groups.len() > GROUPS_MAX {
            let part = state.known_parts().next().unwrap_or_default();
            state.stale_references.note_all(part, now);
            return PendingRereads::Groups(Vec::new(), Vec::new());
        }
        let is_one = |slot: &&EntrySlot| {
            slot.kind != CachedKind::User && found.groups.contains(&slot.number)
        };
        let groups = match found.groups.is_empty() {
            true => Vec::new(),
            false => {
                let groups = state.entries.iter().filter(is_one);
                groups.map(|slot| (SearchId(slot.key.search), EntryId(slot.key.id))).collect()
            }
        };
        PendingRereads::Groups(groups, found.named)
    }
}

impl EngineState {
    /// Stores the stale references in the cache, so that the next process reads the lists too.
    pub(super) fn store_stale_references(&mut self) {
        for (number, doubts) in self.stale_references.take_changed() {
            self.searches.by_number.entry(number).or_default().stored.stale_references = doubts;
            self.mark_part_changed(number);
        }
    }
}
