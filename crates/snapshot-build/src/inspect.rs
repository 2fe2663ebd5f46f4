//! Figures about a snapshot that people ask for.

use roster_snapshot::{Damage, Section, Shape, Snapshot};

/// What [`inspect`] finds.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Header and counts.
    pub shape: Shape,
    /// Sections in file order.
    pub sections: Vec<Section>,
    /// Name and number of members of the largest group.
    pub largest_group: Option<(Vec<u8>, u64)>,
    /// Name and number of groups of the name that is in most groups.
    pub most_groups: Option<(Vec<u8>, u64)>,
    /// Bytes of buffer that getpwnam_r(3) and getpwuid_r(3) need for any user.
    pub user_buffer_bytes: u64,
    /// Bytes of buffer that getgrnam_r(3) and getgrgid_r(3) need for any group, when the buffer is
    /// aligned for pointers.
    pub group_buffer_bytes: u64,
}

/// Looks at every entry.
pub fn inspect(snapshot: &Snapshot<'_>) -> Result<Inspection, Damage> {
    let shape = snapshot.shape();
    let mut sections: Vec<Section> = snapshot.sections().collect();
    sections.sort_by_key(|section| section.offset);
    let mut found = Inspection {
        shape,
        sections,
        largest_group: None,
        most_groups: None,
        user_buffer_bytes: 0,
        group_buffer_bytes: 0,
    };
    for position in 0..shape.users {
        let user = snapshot.user(position)?.ok_or(Damage)?;
        found.user_buffer_bytes = found.user_buffer_bytes.max(user.buffer_bytes() as u64);
    }
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

/// The first of several equally large ones stays.
fn keep_larger(largest: &mut Option<(Vec<u8>, u64)>, name: &[u8], size: usize) {
    let size = size as u64;
    if largest.as_ref().is_none_or(|(_, known)| *known < size) {
        *largest = Some((name.to_vec(), size));
    }
}
