// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of a snapshot for administrators. Checks of the contents are in `verify`.

use roster_snapshot::{Damage, Domain, SectionInfo, Snapshot, SnapshotSummary};
use std::collections::HashSet;

/// Result of [`inspect`].
#[derive(Clone, Debug)]
pub struct Inspection<'a> {
    /// Header and counts.
    pub shape: SnapshotSummary,
    /// Sections in file order.
    pub sections: Vec<SectionInfo>,
    /// Domains in file order.
    pub domains: Vec<Domain<'a>>,
    /// Number of different shells.
    pub distinct_shells: u64,
    /// Name and number of members of the largest group.
    pub largest_group: Option<(Vec<u8>, u64)>,
    /// The name with the most groups, and their number.
    pub most_groups: Option<(Vec<u8>, u64)>,
    /// Buffer size that getpwnam_r(3) and getpwuid_r(3) need for any user, in bytes.
    pub user_buffer_bytes: u64,
    /// Buffer size that getgrnam_r(3) and getgrgid_r(3) need for any group, in bytes, if the buffer is aligned for
    /// pointers.
    pub group_buffer_bytes: u64,
}

/// Reads every entry and returns the statistics.
pub fn inspect<'a>(snapshot: &Snapshot<'a>) -> Result<Inspection<'a>, Damage> {
    let shape = snapshot.shape();
    let mut sections: Vec<SectionInfo> = snapshot.sections().collect();
    sections.sort_by_key(|section| section.offset);
    let mut found = Inspection {
        shape,
        sections,
        domains: snapshot.domains().map_err(|_| Damage)?.collect::<Result<_, _>>()?,
        distinct_shells: 0,
        largest_group: None,
        most_groups: None,
        user_buffer_bytes: 0,
        group_buffer_bytes: 0,
    };
    let mut shells = HashSet::new();
    for position in 0..shape.users {
        let user = snapshot.user(position)?.ok_or(Damage)?;
        shells.extend(user.record().shell);
        found.user_buffer_bytes = found.user_buffer_bytes.max(user.buffer_bytes() as u64);
    }
    found.distinct_shells = shells.len() as u64;
    for position in 0..shape.groups {
        let group = snapshot.group(position)?.ok_or(Damage)?;
        found.group_buffer_bytes = found.group_buffer_bytes.max(group.buffer_bytes() as u64);
        keep_larger(&mut found.largest_group, group.record().name, group.members.len());
    }
    for position in 0..shape.names {
        let name = snapshot.name(position)?.ok_or(Damage)?;
        let groups = snapshot.supplementary(name)?.map_or(0, |gids| gids.len());
        keep_larger(&mut found.most_groups, name, groups);
    }
    Ok(found)
}

/// Stores the larger group. The first of equally large groups stays.
fn keep_larger(largest: &mut Option<(Vec<u8>, u64)>, name: &[u8], size: usize) {
    let size = size as u64;
    if largest.as_ref().is_none_or(|(_, known)| *known < size) {
        *largest = Some((name.to_vec(), size));
    }
}
