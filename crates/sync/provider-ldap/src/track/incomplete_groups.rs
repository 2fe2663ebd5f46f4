// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups with partially received lists of members. `ranges` requests the rest, and `sink_adapter` reports a complete
//! group.

use crate::schema::{PartialGroup, RemainingMembers};
use roster_provider::{DirectoryGroup, EntryId, SearchId};
use std::collections::BTreeMap;

/// The incomplete groups of all searches.
#[derive(Default)]
pub(crate) struct IncompleteGroups {
    groups: BTreeMap<(SearchId, EntryId), IncompleteGroup>,
    /// Counts the started groups, which distinguishes replies about an earlier state of a group.
    last_number: u64,
}

/// A group with its members so far.
pub(crate) struct IncompleteGroup {
    pub number: u64,
    pub dn: Vec<u8>,
    pub group: DirectoryGroup<'static>,
    /// The missing parts of lists. The last one is requested next.
    pub rest: Vec<RemainingMembers>,
}

impl IncompleteGroups {
    /// Adds a group with a part of its members.
    pub fn begin(&mut self, part: SearchId, id: EntryId, dn: &[u8], read: PartialGroup<'_>) {
        self.last_number += 1;
        let PartialGroup { group, rest } = read;
        let begun = IncompleteGroup {
            number: self.last_number,
            dn: dn.to_vec(),
            group: group.into_owned(),
            rest,
        };
        self.groups.insert((part, id), begun);
    }

    /// Removes a group that is complete or has changed.
    pub fn remove(&mut self, part: SearchId, id: EntryId) -> Option<IncompleteGroup> {
        self.groups.remove(&(part, id))
    }

    /// Removes the groups of a search before all its entries are listed again.
    pub fn remove_all(&mut self, part: SearchId) {
        self.groups.retain(|(of, _), _| *of != part);
    }

    /// Returns whether all groups are complete.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the first incomplete group of a search.
    pub fn first(&self, part: SearchId) -> Option<(EntryId, &IncompleteGroup)> {
        let mut of_part = self.groups.range((part, EntryId([0; 16]))..);
        of_part.next().filter(|((of, _), _)| *of == part).map(|((_, id), begun)| (*id, begun))
    }

    /// Returns the group, unless it has changed since it got this number.
    pub fn get_numbered(
        &mut self,
        part: SearchId,
        id: EntryId,
        number: u64,
    ) -> Option<&mut IncompleteGroup> {
        self.groups.get_mut(&(part, id)).filter(|group| group.number == number)
    }
}
