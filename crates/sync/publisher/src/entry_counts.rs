// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of a snapshot, counted by domain.

use roster_snapshot::Snapshot;
use std::collections::BTreeMap;

/// Numbers of a domain's entries that are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCounts {
    /// Users.
    pub users: u64,
    /// Groups.
    pub groups: u64,
}

/// Domains with entries in the snapshot, by name.
pub type ServedCounts = BTreeMap<String, EntryCounts>;

/// The counts that a snapshot says it has. `None` if its header or its list of domains is damaged, or if it has entries
/// without a domain.
#[must_use]
pub fn counts_of_snapshot(bytes: &[u8]) -> Option<ServedCounts> {
    let snapshot = Snapshot::open(bytes).ok()?;
    let counts = snapshot.domains().ok()?.map(|domain| {
        let domain = domain.ok()?;
        let [users, groups] = [domain.users, domain.groups].map(|range| range.len() as u64);
        Some((String::from_utf8(domain.name.to_vec()).ok()?, EntryCounts { users, groups }))
    });
    let counts: ServedCounts = counts.collect::<Option<_>>()?;
    let shape = snapshot.shape();
    (!counts.is_empty() || (shape.users, shape.groups) == (0, 0)).then_some(counts)
}
