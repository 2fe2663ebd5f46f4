//! Decides for which users `roster-krb5 session` works: those whom a directory may serve, each with the
//! primary group that the name services know.

use crate::process;
use std::io;

/// Lowest uid whose tickets are kept: below are the system's own users (login.defs(5), `UID_MIN`).
const UID_MIN: u32 = 1000;
/// Ids that name no user: `nobody`, the overflow id of 16 bits, and the kernel's "no id".
const NO_USERS: [u32; 3] = [65534, 65535, u32::MAX];

/// Refuses a caller that names a system user, or a group that is not the user's primary one.
pub fn check(uid: u32, gid: u32) -> io::Result<()> {
    if let Some(why) = refusal(uid, gid, process::primary_gid) {
        return Err(io::Error::other(why));
    }
    Ok(())
}

fn refusal(uid: u32, gid: u32, primary_gid: impl FnOnce(u32) -> io::Result<u32>) -> Option<String> {
    if uid < UID_MIN || NO_USERS.contains(&uid) {
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

    #[test]
    fn account_system_users_and_foreign_groups_refused() {
        let staff = |_| Ok(1500);
        assert_eq!(refusal(1500, 1500, staff), None);
        for uid in [0, 1, 33, UID_MIN - 1, 65534, 65535, u32::MAX] {
            let why = refusal(uid, 1500, |_| panic!("looked up")).unwrap_or_default();
            assert!(why.contains("system user"), "{uid}: {why}");
        }
        for gid in [0, 6, 42, 1501, u32::MAX] {
            let why = refusal(1500, gid, staff).unwrap_or_default();
            assert!(why.contains("primary group of uid 1500 is 1500"), "{gid}: {why}");
        }
        assert!(refusal(1500, 0, |_| Ok(0)).is_some(), "a user of group 0");
        let missing = |_| Err(io::ErrorKind::NotFound.into());
        assert!(refusal(1500, 1500, missing).is_some_and(|why| why.contains("cannot look up")));
    }
}
