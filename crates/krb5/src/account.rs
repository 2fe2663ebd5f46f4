//! Decides for which users `roster-krb5 session` works: those whom a directory may have on this host, each
//! with the primary group that the name services know.
//!
//! The lowest uid is that of the NSS module's floor, `/etc/roster/floor`. Its other lines are about groups.

use crate::process;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The file of the floor, which root writes.
const FLOOR: &str = "/etc/roster/floor";
/// Longest file of a floor.
const FLOOR_BYTES_MAX: u64 = 512;
/// Lowest uid where that file is missing or malformed, or where others may write to it.
const UID_MIN: u32 = 1000;
/// Ids that name no user: `nobody`, the overflow id of 16 bits, and the kernel's "no id".
const NO_USERS: [u32; 3] = [65534, 65535, u32::MAX];

/// Refuses a caller that names a system user, or a group that is not the user's primary one.
pub fn check(uid: u32, gid: u32) -> io::Result<()> {
    match refusal((uid, gid), lowest_uid(Path::new(FLOOR)), process::primary_gid) {
        Some(why) => Err(io::Error::other(why)),
        None => Ok(()),
    }
}

fn lowest_uid(floor: &Path) -> u32 {
    let read = || {
        let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, floor, how, Mode::empty()).ok()?);
        let stat = file.metadata().ok()?;
        if !stat.is_file() || stat.uid() != 0 || stat.mode() & 0o022 != 0 {
            return None;
        }
        let mut text = String::new();
        file.take(FLOOR_BYTES_MAX).read_to_string(&mut text).ok()?;
        let (first, _) = text.split_once('\n')?;
        first.strip_prefix("min_id ")?.parse().ok()
    };
    read().unwrap_or(UID_MIN)
}

fn refusal(
    (uid, gid): (u32, u32),
    lowest: u32,
    primary_gid: impl FnOnce(u32) -> io::Result<u32>,
) -> Option<String> {
    if uid == 0 || uid < lowest || NO_USERS.contains(&uid) {
        return Some(format!("uid {uid}: a system user has no tickets of a directory"));
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
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

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
    fn account_floor_counts_only_from_root() {
        let folder = tempfile::tempdir().unwrap();
        let floor = folder.path().join("floor");
        assert_eq!(lowest_uid(&floor), UID_MIN, "there is none");
        let is_root = rustix::process::geteuid().is_root();
        let put = |text: &str, mode| {
            write(&floor, text).unwrap();
            set_permissions(&floor, Permissions::from_mode(mode)).unwrap();
            lowest_uid(&floor)
        };
        let from_root = |uid| if is_root { uid } else { UID_MIN };
        assert_eq!(put("min_id 500\ngid 100\n", 0o644), from_root(500));
        assert_eq!(put("min_id 20000\n", 0o644), from_root(20_000));
        for malformed in ["", "min_id 500", "min_id x\n", "min_id -1\n", "gid 100\nmin_id 500\n"] {
            assert_eq!(put(malformed, 0o644), UID_MIN, "{malformed:?}");
        }
        assert_eq!(put("min_id 500\n", 0o664), UID_MIN, "a group may write to it");
        let link = folder.path().join("link");
        symlink(&floor, &link).unwrap();
        put("min_id 500\n", 0o644);
        assert_eq!(lowest_uid(&link), UID_MIN);
        if is_root {
            chown(&floor, Some(1000), None).unwrap();
            assert_eq!(lowest_uid(&floor), UID_MIN, "it is a user's");
        }
    }
}
