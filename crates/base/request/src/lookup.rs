// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lookup: its kind, and its name or id. The frames of a lookup are in `roster-wire`.

/// Kind of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum LookupKind {
    /// User by name.
    UserByName = 0,
    /// User by uid.
    UserByUid = 1,
    /// Group by name.
    GroupByName = 2,
    /// Group by gid.
    GroupByGid = 3,
    /// Supplementary groups of a user, by name.
    GroupsOf = 4,
}

impl LookupKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::UserByName, Self::UserByUid, Self::GroupByName, Self::GroupByGid, Self::GroupsOf];

    /// Returns the kind with that number.
    #[must_use]
    #[inline]
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::UserByName,
            1 => Self::UserByUid,
            2 => Self::GroupByName,
            3 => Self::GroupByGid,
            4 => Self::GroupsOf,
            _ => return None,
        })
    }

    /// Returns whether the key is a name. Otherwise it is an id.
    #[must_use]
    #[inline]
    pub const fn is_by_name(self) -> bool {
        matches!(self, Self::UserByName | Self::GroupByName | Self::GroupsOf)
    }
}

/// A lookup in a directory. `N` is the name: `Vec<u8>` or a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Query<N> {
    /// User by name.
    UserByName(N),
    /// User by uid.
    UserByUid(u32),
    /// Group with its members, by name.
    GroupByName(N),
    /// Group with its members, by gid.
    GroupByGid(u32),
    /// Groups of a user without their members, by name.
    GroupsOf(N),
}

impl<N> Query<N> {
    /// Creates the query of that kind. Its key is either the name or the id.
    #[must_use]
    #[inline]
    pub fn new(kind: LookupKind, name: N, id: u32) -> Self {
        match kind {
            LookupKind::UserByName => Self::UserByName(name),
            LookupKind::UserByUid => Self::UserByUid(id),
            LookupKind::GroupByName => Self::GroupByName(name),
            LookupKind::GroupByGid => Self::GroupByGid(id),
            LookupKind::GroupsOf => Self::GroupsOf(name),
        }
    }

    /// Returns the kind.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> LookupKind {
        match self {
            Self::UserByName(_) => LookupKind::UserByName,
            Self::UserByUid(_) => LookupKind::UserByUid,
            Self::GroupByName(_) => LookupKind::GroupByName,
            Self::GroupByGid(_) => LookupKind::GroupByGid,
            Self::GroupsOf(_) => LookupKind::GroupsOf,
        }
    }
}

impl<N: AsRef<[u8]>> Query<N> {
    /// Returns the name. It is empty in a query by id.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        match self {
            Self::UserByName(name) | Self::GroupByName(name) | Self::GroupsOf(name) => {
                name.as_ref()
            }
            Self::UserByUid(_) | Self::GroupByGid(_) => &[],
        }
    }

    /// Returns the id. It is 0 in a query by name.
    #[must_use]
    pub const fn id(&self) -> u32 {
        match self {
            Self::UserByUid(id) | Self::GroupByGid(id) => *id,
            Self::UserByName(_) | Self::GroupByName(_) | Self::GroupsOf(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_of_each_kind_keeps_its_key() {
        for (number, kind) in LookupKind::ALL.into_iter().enumerate() {
            assert_eq!(LookupKind::from_number(number as u16), Some(kind));
            let query = Query::new(kind, &b"alice"[..], 7);
            assert_eq!(query.kind(), kind);
            let key: (&[u8], u32) = if kind.is_by_name() { (b"alice", 0) } else { (b"", 7) };
            assert_eq!((query.name(), query.id()), key);
        }
        assert_eq!(LookupKind::from_number(LookupKind::ALL.len() as u16), None);
    }
}
