// SPDX-License-Identifier: MIT OR Apache-2.0
//! The slices that libsss_idmap occupies, in the order of its requests. `id_mapper` converts identifiers to ids.
//!
//! A block is a domain with a first RID. Block 0 of a domain is its primary slice, the others are secondary slices. The
//! hash of a block is its home slice. libsss_idmap takes the next free slice if the home slice is in use. The plan
//! repeats this, so that a later block with the same home slice is recognised, too.

use crate::id_range::IdRange;
use crate::murmur3::murmur3_32;
use crate::sid::Sid;
use std::collections::HashMap;

/// Seed of libsss_idmap for the hash of a block.
const HASH_SEED: u32 = 0xdead_beef;

/// A slice that a domain uses for the RIDs from `first_rid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceClaim {
    /// The domain.
    pub domain: Sid,
    /// Lowest RID in the slice: 0, or a multiple of the slice size.
    pub first_rid: u32,
    /// Number of the slice.
    pub slice: u32,
}

/// Domains without ids, because libsss_idmap would choose their slices by the order of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceDispute {
    /// The slice.
    pub slice: u32,
    /// The domains, in the order in which they were added: at least two.
    pub domains: Vec<Sid>,
}

/// The user of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occupant {
    /// Index of the domain. `None`: a domain of another mapper.
    pub domain: Option<usize>,
    pub first_rid: u32,
    /// Whether ids of the slice are in use here. Otherwise libsss_idmap may use it, so it stays reserved.
    pub is_mapped: bool,
}

/// Slices in use.
#[derive(Clone, Debug)]
pub(crate) struct SlicePlan {
    range: IdRange,
    occupants: HashMap<u32, Occupant>,
    /// First and last slices that domains of other mappers use.
    reserved: Vec<(u32, u32)>,
}

const RESERVED: Occupant = Occupant { domain: None, first_rid: 0, is_mapped: false };

impl SlicePlan {
    pub fn new(range: IdRange) -> Self {
        Self { range, occupants: HashMap::new(), reserved: Vec::new() }
    }

    pub fn occupant(&self, slice: u32) -> Option<Occupant> {
        let is_reserved = |(first, last): &(u32, u32)| (*first..=*last).contains(&slice);
        let reserved = || self.reserved.iter().any(is_reserved).then_some(RESERVED);
        self.occupants.get(&slice).copied().or_else(reserved)
    }

    /// Reserves slices from `first` to `last`. Returns whether none of them is in use.
    pub fn reserve(&mut self, first: u32, last: u32) -> bool {
        self.reserved.push((first, last));
        !self.occupants.keys().any(|slice| (first..=last).contains(slice))
    }

    pub fn set(&mut self, slice: u32, occupant: Occupant) {
        self.occupants.insert(slice, occupant);
    }

    /// Returns the first slice from `home` that `is_free` accepts. `None`: all slices are in use.
    pub fn walk(&self, home: u32, is_free: impl Fn(Option<Occupant>) -> bool) -> Option<u32> {
        let slices = self.range.slices();
        let in_order = (home..slices).chain(0..home.min(slices));
        in_order.into_iter().find(|slice| is_free(self.occupant(*slice)))
    }

    /// Returns the used slices in ascending order.
    pub fn mapped(&self) -> Vec<(u32, Occupant)> {
        let all = self.occupants.iter().map(|(slice, occupant)| (*slice, *occupant));
        let mut mapped: Vec<_> = all.filter(|(_, occupant)| occupant.is_mapped).collect();
        mapped.sort_unstable_by_key(|(slice, _)| *slice);
        mapped
    }
}

/// Returns the home slice of a block.
pub(crate) fn home_slice(range: IdRange, domain: Sid, first_rid: u32) -> u32 {
    let text = match first_rid {
        0 => domain.to_string(),
        first_rid => format!("{domain}-{first_rid}"),
    };
    murmur3_32(text.as_bytes(), HASH_SEED).checked_rem(range.slices()).unwrap_or_default()
}
