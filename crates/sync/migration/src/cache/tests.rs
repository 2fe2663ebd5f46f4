// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache of SSSD's form, with all that the reader has to tell apart.

use super::ldb::tests::packed_1;
use super::tdb::tests::file_of;
use super::*;

const NOW: u64 = 1000;

fn options(home_shell: &HomeShell, include_expired: bool) -> CacheOptions<'_> {
    CacheOptions { domain: "Corp", now: NOW, include_expired, home_shell }
}

fn cache() -> Vec<u8> {
    let user = |name: &str, uid: &'static str, expires: &'static str, groups: &'static str| {
        packed_1(
            &format!("name={name}@corp,cn=users,cn=Corp,cn=sysdb"),
            &[
                ("name", vec![&*format!("{name}@corp")]),
                ("uidNumber", vec![uid]),
                ("gidNumber", vec!["100"]),
                ("homeDirectory", vec!["/home/x"]),
                ("fullName", vec!["Full Name"]),
                (
                    "memberof",
                    vec![
                        "name=Staff@corp,cn=groups,cn=Corp,cn=sysdb",
                        "name=users@corp,cn=groups,cn=corp,cn=sysdb",
                    ],
                ),
                ("dataExpireTimestamp", vec![expires]),
                ("initgrExpireTimestamp", vec![groups]),
            ],
        )
    };
    let group = |name: &str, gid: &'static str, expires: &'static str| {
        packed_1(
            &format!("name={name}@corp,cn=groups,cn=Corp,cn=sysdb"),
            &[
                ("name", vec![&*format!("{name}@corp")]),
                ("gidNumber", vec![gid]),
                ("memberuid", vec!["alice@corp"]),
                ("ghost", vec!["ghost@corp"]),
                ("dataExpireTimestamp", vec![expires]),
            ],
        )
    };
    file_of(&[
        user("alice", "1001", "2000", "2000"),
        user("bob", "1002", "2000", "0"),
        user("old", "1003", "999", "2000"),
        group("Staff", "500", "2000"),
        group("users", "100", "2000"),
        group("aged", "501", "1"),
        group("nonposix", "0", "2000"),
        packed_1(
            "overrideAnchorUUID=x,cn=LOCAL,cn=views,cn=sysdb",
            &[
                ("overrideObjectDN", vec!["name=bob@corp,cn=users,cn=Corp,cn=sysdb"]),
                ("uidNumber", vec!["2002"]),
                ("loginShell", vec!["/bin/zsh"]),
            ],
        ),
        (b"DN=@INDEXLIST\0".to_vec(), b"x".to_vec()),
        packed_1("name=eve@other,cn=users,cn=other,cn=sysdb", &[("name", vec!["eve@other"])]),
    ])
}

#[test]
fn sssd_cache_users_and_groups_read() {
    let none = HomeShell::default();
    let found = accounts(&cache(), None, &options(&none, false)).unwrap();
    let users = &found.accounts.users;
    assert_eq!(users.keys().collect::<Vec<_>>(), ["alice", "bob"]);
    assert_eq!(
        users["alice"].groups,
        Some(BTreeSet::from(["Staff".to_owned()])),
        "without the primary"
    );
    assert_eq!(
        (users["bob"].uid, &*users["bob"].shell, &users["bob"].groups),
        (2002, "/bin/zsh", &None)
    );
    assert_eq!(users["alice"].gecos, "Full Name");
    let groups = &found.accounts.groups;
    assert_eq!(groups.keys().collect::<Vec<_>>(), ["Staff", "users"]);
    let members = ["alice", "ghost"].map(str::to_owned);
    assert_eq!(groups["Staff"].members, Some(BTreeSet::from(members)));
    assert_eq!(found.expired_users, BTreeSet::from(["old".to_owned()]));
    assert_eq!(found.expired_groups, BTreeSet::from(["aged".to_owned()]));
    assert_eq!(found.overridden, 1);
    let all = accounts(&cache(), None, &options(&none, true)).unwrap();
    assert!(all.accounts.users.contains_key("old") && all.expired_users.is_empty());
}

#[test]
fn sssd_cache_slices_of_domains_read() {
    let slice = |domain: &str, name: &'static str, sid: &'static str, slice: &'static str| {
        packed_1(
            &format!("objectSID={sid},cn=id_mappings,cn={domain},cn=sysdb"),
            &[
                ("objectClass", vec!["id_mapping"]),
                ("name", vec![name]),
                ("objectSID", vec![sid]),
                ("slice", vec![slice]),
            ],
        )
    };
    let cache = file_of(&[
        slice("Corp", "trusted.test", "S-1-5-21-4-5-6", "17"),
        slice("Corp", "Corp", "S-1-5-21-1-2-3", "3369"),
        slice("Corp", "broken", "S-1-5-21-7-8-9", "-1"),
        slice("other", "other", "S-1-5-21-9-9-9", "1"),
    ]);
    let none = HomeShell::default();
    let found = accounts(&cache, None, &options(&none, false)).unwrap();
    let slice = |domain: &str, sid: &str, slice| CachedSlice {
        domain: domain.to_owned(),
        sid: sid.to_owned(),
        slice,
    };
    let own = slice("Corp", "S-1-5-21-1-2-3", 3369);
    assert_eq!(found.slices, [own, slice("trusted.test", "S-1-5-21-4-5-6", 17)]);
}

#[test]
fn sssd_timestamps_file_wins_over_cache() {
    let times = file_of(&[packed_1(
        "name=OLD@corp,cn=users,cn=Corp,cn=sysdb",
        &[("dataExpireTimestamp", vec!["3000"])],
    )]);
    let none = HomeShell::default();
    let found = accounts(&cache(), Some(&times), &options(&none, false)).unwrap();
    assert!(found.accounts.users.contains_key("old"));
}

#[test]
fn sssd_cache_read_errors_have_codes() {
    let folder = tempfile::tempdir().unwrap();
    let missing = read(&folder.path().join("cache_corp.ldb")).unwrap_err();
    assert_eq!(missing.message.code, tools::SSSD_CACHE_UNREADABLE.code);
    let path = Path::new("/c");
    let interrupted = invalid(path, SssdCacheError::Tdb(tdb::TdbError::Interrupted));
    assert_eq!(interrupted.message.code, tools::SSSD_CACHE_INTERRUPTED.code);
    let error = accounts(b"nonsense", None, &options(&HomeShell::default(), false)).unwrap_err();
    assert_eq!(invalid(path, error).message.code, tools::SSSD_CACHE_INVALID.code);
    let file = folder.path().join("cache");
    std::fs::write(&file, cache()).unwrap();
    assert_eq!(read(&file).unwrap(), cache());
}

#[test]
fn sssd_cache_lock_held_has_code() {
    let busy = lock(Path::new("/c"), || Err(Errno::AGAIN), Duration::ZERO).unwrap_err();
    assert_eq!(busy.message.code, tools::SSSD_CACHE_BUSY.code);
    let mut left = 3;
    let later = || {
        left -= 1;
        if left == 0 { Ok(()) } else { Err(Errno::AGAIN) }
    };
    assert!(lock(Path::new("/c"), later, Duration::ZERO).is_ok());
}

#[test]
fn sssd_cache_damaged_bytes_never_panic() {
    let file = cache();
    let none = HomeShell::default();
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    for _ in 0..3000 {
        let mut changed = file.clone();
        for _ in 0..3 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let place = usize::try_from(state >> 16).unwrap() % changed.len();
            changed[place] = [0, 1, 0xff, 0x7f, 0x99, 0x26][usize::try_from(state % 6).unwrap()];
        }
        let _ = accounts(&changed, Some(&changed), &options(&none, true));
    }
}
