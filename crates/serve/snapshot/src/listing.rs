// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entries that an enumeration returns. Lookups do not use this module: they use `index` and `spellings`.

use crate::{Damage, Snapshot};
use core::ops::Range;

/// A list of entries that an enumeration walks through.
///
/// ```
/// use roster_snapshot::{EntryList, Snapshot};
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/names.snap"));
/// let snapshot = Snapshot::open(bytes)?;
/// // The file has two domains of two users each.
/// assert_eq!(snapshot.listed_from(EntryList::Users, 0).ok(), Some(0..2));
/// assert_eq!(snapshot.listed_from(EntryList::Users, 2).ok(), Some(2..4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryList {
    /// Users, or shadow entries.
    Users,
    /// Groups.
    Groups,
}

impl Snapshot<'_> {
    /// Returns positions that an enumeration may return: from the first one at or after `position` to the end of its
    /// domain. Domains with [`UNLISTED`](crate::layout::domain_flags::UNLISTED) are left out. After the last domain, all positions count.
    #[inline(never)] // one copy in the module
    pub fn listed_from(&self, list: EntryList, position: u32) -> Result<Range<u32>, Damage> {
        let mut start = position;
        for domain in self.domains().map_err(|_| Damage)? {
            let domain = domain?;
            let end = match list {
                EntryList::Users => domain.users.end,
                EntryList::Groups => domain.groups.end,
            };
            if start < end {
                if domain.is_listed() {
                    return Ok(start..end);
                }
                start = end;
            }
        }
        Ok(start..u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{ACCOUNTS, NAMES, SHADOW, with_flipped_bit, with_record};
    use crate::layout::{DomainOptionsSlot, SectionId, domain_flags};
    use zerocopy::little_endian::U32;
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    /// Returns a file in which enumerations leave out these domains.
    fn with_unlisted(positions: &[u32]) -> Vec<u8> {
        let mut file = NAMES.to_vec();
        for &position in positions {
            let unlist = |slot: &mut DomainOptionsSlot| {
                slot.flags = U32::new(slot.flags.get() | domain_flags::UNLISTED);
            };
            file = with_record(&file, SectionId::DomainOptions, position, unlist);
        }
        file
    }

    /// Returns the positions that an enumeration of `count` entries lists.
    fn listed(snapshot: &Snapshot<'_>, list: EntryList, count: u32) -> Vec<u32> {
        let (mut positions, mut next) = (Vec::new(), 0);
        loop {
            let range = snapshot.listed_from(list, next).unwrap();
            assert!(range.start >= next && range.end > range.start);
            positions.extend(range.start..range.end.min(count));
            if range.end >= count {
                return positions;
            }
            next = range.end;
        }
    }

    #[test]
    fn listed_positions_leave_out_unlisted_domains() {
        // The domain corp has two users and a group, and lab has two users.
        for (unlisted, users, groups) in [
            (&[][..], vec![0, 1, 2, 3], vec![0]),
            (&[0], vec![2, 3], vec![]),
            (&[1], vec![0, 1], vec![0]),
            (&[0, 1], vec![], vec![]),
        ] {
            let file = with_unlisted(unlisted);
            let snapshot = Snapshot::open(&file).unwrap();
            assert_eq!(listed(&snapshot, EntryList::Users, 4), users, "{unlisted:?}");
            assert_eq!(listed(&snapshot, EntryList::Groups, 1), groups, "{unlisted:?}");
            assert!(snapshot.user_by_name(b"alice@corp").unwrap().is_some());
        }
        for file in [ACCOUNTS, SHADOW] {
            let snapshot = Snapshot::open(file).or_else(|_| Snapshot::open_shadow(file)).unwrap();
            let count = 2;
            assert_eq!(listed(&snapshot, EntryList::Users, count), [0, 1]);
        }
    }

    #[test]
    fn listed_positions_of_damaged_domains_are_damage() {
        let file = with_flipped_bit::<DomainOptionsSlot>(NAMES, SectionId::DomainOptions, 0);
        let snapshot = Snapshot::open(&file).unwrap();
        assert_eq!(snapshot.listed_from(EntryList::Users, 0), Err(Damage));
    }
}
