// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides for which users `roster-krb5 session` works: possible directory users of this host, each with the primary
//! group from the name services.
//!
//! The lowest uid is from the NSS module's floor, `/etc/roster/floor`.

use crate::{coded, fork};
use roster_messages::table::login;
use roster_snapshot_build::floor_file;
use std::io;
use std::path::Path;

/// Ids that name no user: `nobody`, the overflow id of 16 bits, and the kernel's "no id".
const NO_USERS: [u32; 3] = [65534, 65535, u32::MAX];

/// Refuses a system user, or a group that is not the user's primary one.
pub fn check(uid: u32, gid: u32) -> io::Result<()> {
    match refusal((uid, gid), lowest_uid(floor_file::path()), fork::primary_gid) {
        Some(why) => Err(coded(&login::KRB5_SESSION_USER, why)),
        None => Ok(()),
    }
}

/// Returns the lowest uid of directory users. Without a usable file it is the reader's default.
fn lowest_uid(floor: &Path) -> u32 {
    floor_file::read(floor).ok().flatten().unwrap_or_default().min_id()
}

fn refusal(
    (uid, gid): (u32, u32),
    lowest: u32,
    primary_gid: impl FnOnce(u32) -> io::Result<u32>,
) -> Option<String> {
    if uid == 0 || uid < lowest || NO_USERS.contains(&uid) {
        return Some(format!("uid {uid}: a system user cannot have a ticket of a directory"));
    }
    match primary_gid(uid) {
        Ok(primary) if primary == gid && gid != 0 => None,
        Ok(primary) => Some(format!("gid {gid}: the primary group of uid {uid} is {primary}")),
        Err(error) => Some(format!("uid {uid}: cannot look up its primary group: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_snapshot::floor::DEFAULT_MIN_ID as UID_MIN;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn account_system_users_and_foreign_groups_refused() {
        let staff = |_| Ok(1500);
        assert_eq!(refusal((1500, 1500), UID_MIN, staff), None);
        assert_eq!(refusal((500, 1500), 500, staff), None);
        for uid in [0, 1, 33, UID_MIN - 1, 65534, 65535, u32::MAX] {
            let why = refusal((uid, 1500), UID_MIN, |_| panic!("looked up")).unwrap_or_default();
            assert!(why.contains("system user"), "{uid}: {why}");
        }
        assert!(refusal((0, 1500), 0, |_| panic!("looked up")).is_some());
        for gid in [0, 6, 42, 1501, u32::MAX] {
            let why = refusal((1500, gid), UID_MIN, staff).unwrap_or_default();
            assert!(why.contains("primary group of uid 1500 is 1500"), "{gid}: {why}");
        }
        assert!(refusal((1500, 0), UID_MIN, |_| Ok(0)).is_some(), "a user of group 0");
        let missing = |_| Err(io::ErrorKind::NotFound.into());
        let why = refusal((1500, 1500), UID_MIN, missing).unwrap_or_default();
        assert!(why.contains("cannot look up"), "{why}");
    }

    #[test]
    fn account_without_usable_floor_gets_default() {
        let folder = tempfile::tempdir().unwrap();
        let floor = folder.path().join("floor");
        assert_eq!(lowest_uid(&floor), UID_MIN, "the file is missing");
        let is_root = rustix::process::geteuid().is_root();
        for (text, uid) in [("min_id 500\ngid 100\n", 500), ("min_id 500", UID_MIN)] {
            write(&floor, text).unwrap();
            set_permissions(&floor, Permissions::from_mode(0o644)).unwrap();
            let expected = if is_root { uid } else { UID_MIN };
            assert_eq!(lowest_uid(&floor), expected, "{text:?}");
        }
    }
}
