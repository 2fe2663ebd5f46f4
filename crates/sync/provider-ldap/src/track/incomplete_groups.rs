// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups with partially received lists of members. `ranges` requests the rest, and `sink_adapter` reports a complete
//! group.

use crate::schema::{PartialGroup, ReadResult, RemainingMembers};
use roster_messages::table::directory;
use roster_provider::reason::Reason;
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
    /// The version of the entry in which its parts are read.
    version: Vec<u8>,
    restarts: u32,
}

/// Limit of the changes of a group while its lists are read.
const RESTARTS_MAX: u32 = 20;

impl IncompleteGroup {
    /// Returns whether a part is of the same version as the parts before. After a change, members have other positions:
    /// the lists have to be read from their beginnings. Fails if the group changes too often.
    pub fn has_version(&mut self, version: &[u8]) -> ReadResult<bool> {
        if self.version == version {
            return Ok(true);
        }
        self.restarts += 1;
        if self.restarts > RESTARTS_MAX {
            let text = "the members change while the server returns them";
            return Err(Reason::new(&directory::MEMBERS_UNSTABLE, text));
        }
        self.version = version.to_vec();
        self.group.members = Some(Vec::new());
        Ok(false)
    }
}

impl IncompleteGroups {
    /// Adds a group with a part of its members.
    pub fn begin(&mut self, part: SearchId, id: EntryId, dn: &[u8], read: PartialGroup<'_>) {
        self.last_number += 1;
        let PartialGroup { group, rest, version } = read;
        let begun = IncompleteGroup {
            number: self.last_number,
            dn: dn.to_vec(),
            group: group.into_owned(),
            rest,
            version: version.to_vec(),
            restarts: 0,
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

#[cfg(test)]
mod tests {
    use super::*;
    use roster_provider::Member;
    use std::borrow::Cow;

    #[test]
    fn incomplete_group_restarts_after_changes() {
        let group = DirectoryGroup {
            name: Cow::Borrowed(&b"crowd"[..]),
            gid: Some(5000),
            reference: Cow::Borrowed(&b"cn=crowd"[..]),
            members: Some(vec![Member::Dn(Cow::Borrowed(b"cn=alice"))]),
        };
        let (part, id) = (SearchId(0), EntryId([1; 16]));
        let mut groups = IncompleteGroups::default();
        groups.begin(part, id, b"CN=crowd", PartialGroup { group, rest: vec![], version: b"7" });
        let number = groups.first(part).expect("a group").1.number;
        let group = groups.get_numbered(part, id, number).expect("the group");
        assert_eq!(group.has_version(b"7"), Ok(true));
        assert_eq!(group.group.members.as_ref().map(Vec::len), Some(1));
        for version in 0..RESTARTS_MAX {
            let version = format!("1{version}");
            assert_eq!(group.has_version(version.as_bytes()), Ok(false));
            assert_eq!(group.has_version(version.as_bytes()), Ok(true));
            assert_eq!(group.group.members.as_ref().map(Vec::len), Some(0));
        }
        let reason = group.has_version(b"9").expect_err("too many changes");
        assert_eq!(reason.message, &directory::MEMBERS_UNSTABLE);
    }
}
