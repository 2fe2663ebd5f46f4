// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookups by other spellings and by names with a domain, in whole, damaged and forged files.

use roster_passwd_format::{Group, User};
use roster_snapshot::layout::{DomainOptionsSlot, SectionId, SnapshotKind, domain_flags};
use roster_snapshot::{Damage, Snapshot};
use roster_snapshot_build::{
    DomainOptions, IncompleteFlags, MemberVisibility, SnapshotBuilder, verify,
};
use std::io::Cursor;

const WHOLE: IncompleteFlags = IncompleteFlags { responder_first: false, list_unknown: false };

fn user(name: &[u8], uid: u32) -> User<'_> {
    User {
        name,
        passwd: Some(b"*"),
        uid,
        gid: uid,
        gecos: Some(b""),
        dir: Some(b"/home"),
        shell: Some(b"/bin/sh"),
    }
}

/// The domain corp ignores case and has the short name HQ. The domain lab has neither.
fn file() -> Vec<u8> {
    let mut builder = SnapshotBuilder::new(1000);
    builder.set_any_case(true);
    for (name, uid) in [("Alice", 5000), ("JÜRGEN", 5001), ("bob@corp", 5002)] {
        builder.user(&user(name.as_bytes(), uid), WHOLE).unwrap();
    }
    builder.set_any_case(false);
    for (name, uid) in [("Zoe", 7000), ("zoe", 7001), ("Alice@lab", 7002)] {
        builder.user(&user(name.as_bytes(), uid), WHOLE).unwrap();
    }
    builder.set_any_case(true);
    let staff = Group { name: b"Staff", passwd: Some(b"*"), gid: 6000 };
    let members: [&[u8]; 2] = [b"Alice", b"bob@corp"];
    let visible = MemberVisibility::GroupAndInitgroups;
    builder.group(&staff, members.into_iter(), visible, WHOLE).unwrap();
    let flags = domain_flags::ANY_CASE | domain_flags::PRESERVING;
    builder.domain("corp", &DomainOptions { short_name: "HQ", flags }, 3, 1).unwrap();
    builder.domain("lab", &DomainOptions::default(), 3, 0).unwrap();
    let mut file = Cursor::new(Vec::new());
    builder.finish(SnapshotKind::Accounts).unwrap().image.write(&mut file, 1).unwrap();
    file.into_inner()
}

fn uid(snapshot: &Snapshot<'_>, name: &str) -> Option<u32> {
    snapshot.user_by_name(name.as_bytes()).unwrap().map(|user| user.uid)
}

#[test]
fn spellings_find_entries_of_domains_that_ignore_case() {
    let bytes = file();
    let snapshot = Snapshot::open(&bytes).unwrap();
    for name in ["Alice", "alice", "ALICE", "alice@corp", "Alice@CORP", "hq\\aLICE", "CORP\\Alice"]
    {
        assert_eq!(uid(&snapshot, name), Some(5000), "{name}");
    }
    for (name, expected) in [
        ("jürgen", Some(5001)),
        ("bob@corp", Some(5002)),
        ("BOB@HQ", Some(5002)),
        ("hq\\bob", Some(5002)),
        ("bob", None),
        ("Zoe", Some(7000)),
        ("zoe", Some(7001)),
        ("ZOE", None),
        ("zoe@LAB", Some(7001)),
        ("ZOE@lab", None),
        ("zoe@corp", None),
        ("Alice@lab", Some(7002)),
        ("lab\\Alice", Some(7002)),
        ("alice@lab", None),
        ("alice@nowhere", None),
        ("", None),
        ("@corp", None),
        ("Alice@", None),
    ] {
        assert_eq!(uid(&snapshot, name), expected, "{name}");
    }
    let long = "A".repeat(300);
    assert_eq!(uid(&snapshot, &long), None);
    let staff = snapshot.group_by_name(b"STAFF@hq").unwrap().unwrap();
    assert_eq!((staff.gid, staff.record().name), (6000, &b"Staff"[..]));
}

#[test]
fn spellings_find_groups_of_user() {
    let bytes = file();
    let snapshot = Snapshot::open(&bytes).unwrap();
    for name in ["Alice", "ALICE", "hq\\alice", "BOB@corp"] {
        let gids = snapshot.groups_of_user(name.as_bytes()).unwrap().unwrap();
        let mut found = Vec::new();
        gids.each(|gid| found.push(gid)).unwrap();
        assert_eq!(found, [6000], "{name}");
    }
    assert!(snapshot.groups_of_user(b"alice@lab").unwrap().is_none());
    assert!(snapshot.groups_of_user(b"mallory").unwrap().is_none());
}

#[test]
fn spellings_pass_verification() {
    let bytes = file();
    verify::verify(&bytes, SnapshotKind::Accounts).unwrap();
    let snapshot = Snapshot::open(&bytes).unwrap();
    let corp = snapshot.domains().unwrap().next().unwrap().unwrap();
    assert_eq!((corp.name, corp.short_name, corp.flags), (&b"corp"[..], &b"HQ"[..], 3));
    assert!(corp.is_called(b"Hq") && corp.is_called(b"CORP") && !corp.is_called(b""));
}

#[test]
fn spellings_in_damaged_options_are_damage() {
    let bytes = file();
    let section = Snapshot::open(&bytes).unwrap();
    let section = section.sections().find(|one| one.id == SectionId::DomainOptions).unwrap();
    let mut changed = bytes.clone();
    // The flags of the second domain.
    changed[section.offset as usize + size_of::<DomainOptionsSlot>() + 4] ^= 1;
    let snapshot = Snapshot::open(&changed).unwrap();
    for name in [&b"alice"[..], b"ZOE", b"zoe@lab", b"mallory"] {
        assert_eq!(snapshot.user_by_name(name).map(|_| ()), Err(Damage), "{}", name.escape_ascii());
    }
    // Exact names do not need the options.
    assert_eq!(uid(&snapshot, "Zoe"), Some(7000));
    assert_eq!(uid(&snapshot, "Alice@lab"), Some(7002));
    assert!(verify::verify(&changed, SnapshotKind::Accounts).is_err());
}
