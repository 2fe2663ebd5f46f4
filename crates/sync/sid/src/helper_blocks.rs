// SPDX-License-Identifier: MIT OR Apache-2.0
//! The secondary slices that libsss_idmap computes when it adds a domain, before an account needs them. `slice_plan`
//! has their order.

use crate::id_range::IdRange;
use crate::sid::Sid;
use crate::slice_plan::{SlicePlan, home_slice};
use std::collections::HashMap;

/// The computed slices of all domains.
#[derive(Clone, Debug, Default)]
pub(crate) struct HelperBlocks {
    /// The slice of a block: index of the domain, and first RID.
    slices: HashMap<(usize, u32), u32>,
    /// The block of a slice. `None`: several blocks, or one that was moved from its home slice.
    blocks: HashMap<u32, Option<(usize, u32)>>,
}

impl HelperBlocks {
    /// Computes `count` slices of a domain. `plan` has the primary slices of this domain and of those before it.
    pub fn add(
        &mut self,
        plan: &SlicePlan,
        range: IdRange,
        (index, domain): (usize, Sid),
        count: u32,
    ) {
        let mut planned = Vec::new();
        for number in 1..=count {
            // libsss_idmap computes with 32 bits, too. Accounts have no such RIDs.
            let first_rid = number.wrapping_mul(range.size());
            let is_wrapped = number.checked_mul(range.size()).is_none();
            let home = home_slice(range, domain, first_rid);
            let Some(slice) = plan.walk(home, |occupant| occupant.is_none()) else {
                // Without a free slice for one block, the domain has none at all.
                return;
            };
            planned.push((first_rid, slice, slice == home && !is_wrapped));
        }
        for (first_rid, slice, is_home) in planned {
            let block = (index, first_rid);
            self.slices.entry(block).or_insert(slice);
            let only = Some(block).filter(|_| is_home);
            self.blocks.entry(slice).and_modify(|block| *block = None).or_insert(only);
        }
    }

    /// Returns the slice that was computed for a block.
    pub fn slice_of(&self, domain: usize, first_rid: u32) -> Option<u32> {
        self.slices.get(&(domain, first_rid)).copied()
    }

    /// Returns the only block with this slice, which is its home slice.
    pub fn block_of(&self, slice: u32) -> Option<(usize, u32)> {
        self.blocks.get(&slice).copied().flatten()
    }
}
