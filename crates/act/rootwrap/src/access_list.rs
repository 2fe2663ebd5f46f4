// SPDX-License-Identifier: MIT OR Apache-2.0
//! POSIX access lists of files, in the form of the extended attribute `system.posix_acl_access`: posix_acl_xattr.h
//! of Linux. Integers are little-endian.

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::{Errno, Result};
use std::path::Path;

const ATTRIBUTE: &str = "system.posix_acl_access";
const VERSION: u32 = 2;
/// The id of an entry without a user or a group.
const NO_ID: u32 = u32::MAX;
const ENTRY_BYTES: usize = 8;
/// Limit of a list.
const LIST_BYTES_MAX: usize = 64 << 10;

/// Rights: `r` is 4, `w` is 2, `x` is 1.
pub(crate) type AccessRights = u16;
/// The right to connect to a socket.
pub(crate) const CONNECT: AccessRights = 2;
pub(crate) const READ_WRITE: AccessRights = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessList {
    pub(crate) owner: AccessRights,
    /// Rights by uid.
    pub(crate) users: Vec<(u32, AccessRights)>,
    pub(crate) group: AccessRights,
    /// Rights by gid.
    pub(crate) groups: Vec<(u32, AccessRights)>,
    /// Limit of the rights of `users`, `group` and `groups`.
    pub(crate) mask: AccessRights,
    pub(crate) others: AccessRights,
}

impl AccessList {
    /// Returns the list with the rights of a mode.
    pub(crate) fn from_mode(mode: u32) -> Self {
        let rights = |shift: u32| (mode >> shift & 7) as AccessRights;
        let (owner, group, others) = (rights(6), rights(3), rights(0));
        Self { owner, users: Vec::new(), group, groups: Vec::new(), mask: group, others }
    }

    /// Returns true if a mode has the same rights.
    pub(crate) fn is_mode_only(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Reads the list of a file. `None`: it has only a mode.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        let mut bytes = vec![0; LIST_BYTES_MAX];
        match getxattr(path, ATTRIBUTE, &mut bytes[..]) {
            Ok(length) => Ok(Self::decode(&bytes[..length])),
            Err(Errno::NODATA) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the list to a file. The kernel stores a list without `users` and `groups` as a mode.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        setxattr(path, ATTRIBUTE, &self.encode(), XattrFlags::empty())
    }

    fn encode(&self) -> Vec<u8> {
        let users = self.users.iter().map(|&(uid, rights)| (2_u16, rights, uid));
        let entries = std::iter::once((1, self.owner, NO_ID)).chain(users);
        // The kernel stores a list without a mask as a mode.
        let mask = (!self.is_mode_only()).then_some((16, self.mask, NO_ID));
        let groups = self.groups.iter().map(|&(gid, rights)| (8, rights, gid));
        let entries = entries.chain([(4, self.group, NO_ID)]).chain(groups).chain(mask);
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, rights, id) in entries.chain([(32, self.others, NO_ID)]) {
            bytes.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, entries) = bytes.split_first_chunk()?;
        let (entries, []) = entries.as_chunks::<ENTRY_BYTES>() else { return None };
        if u32::from_le_bytes(*version) != VERSION {
            return None;
        }
        let mut list = Self::from_mode(0);
        for &[tag, _, rights, _, a, b, c, d] in entries {
            let rights = AccessRights::from(rights);
            match tag {
                1 => list.owner = rights,
                2 => list.users.push((u32::from_le_bytes([a, b, c, d]), rights)),
                4 => list.group = rights,
                8 => list.groups.push((u32::from_le_bytes([a, b, c, d]), rights)),
                16 => list.mask = rights,
                32 => list.others = rights,
                _ => return None,
            }
        }
        Some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn access_list_is_read_as_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mode = || file.as_file().metadata().unwrap().permissions().mode() & 0o777;
        let mut list = AccessList::from_mode(0o640);
        list.write(file.path()).unwrap();
        assert_eq!((mode(), AccessList::read(file.path())), (0o640, Ok(None)));
        list.users = vec![(1, 0), (65534, READ_WRITE)];
        list.groups = vec![(2, READ_WRITE)];
        list.mask = READ_WRITE;
        list.write(file.path()).unwrap();
        // The bits of the group show the mask.
        assert_eq!((mode(), AccessList::read(file.path())), (0o660, Ok(Some(list))));
    }

    #[test]
    fn access_list_malformed_is_none() {
        let whole = AccessList::from_mode(0o666).encode();
        assert!(AccessList::decode(&whole).is_some());
        assert!(
            (0..whole.len()).all(|end| end % 8 == 4 || AccessList::decode(&whole[..end]).is_none())
        );
        assert_eq!(AccessList::decode(&[&whole[..], &[64, 0, 6, 0, 0, 0, 0, 0]].concat()), None);
    }
}
