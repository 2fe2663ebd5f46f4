// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the files in `crates/serve/snapshot/testdata`, which the tests of the reader use.
//!
//! The files prevent a change of the format in writer and reader at the same time. A file of this version stays
//! readable, or the version changes. `ROSTER_WRITE_GOLDEN=1 cargo test --package roster-snapshot-build --test golden`
//! writes them again.

use roster_passwd_format::{Group, Shadow, User};
use roster_snapshot::layout::{SnapshotKind, domain_flags};
use roster_snapshot_build::{
    DomainOptions, IncompleteFlags, MemberVisibility, SnapshotBuilder, verify,
};
use std::io::Cursor;
use std::path::Path;

/// The same at each run, unlike the identity of other files.
const IDENTITY: u64 = 0x0123_4567_89AB_CDEF;
const NONE: IncompleteFlags = IncompleteFlags { responder_first: false, list_unknown: false };
const ASK_FIRST: IncompleteFlags = IncompleteFlags { responder_first: true, list_unknown: false };
const LIST_UNKNOWN: IncompleteFlags =
    IncompleteFlags { responder_first: false, list_unknown: true };
const BOTH: IncompleteFlags = IncompleteFlags { responder_first: true, list_unknown: true };

/// Users and groups in each state. Text is inside and outside the slot, and fields are NULL. Records are incomplete,
/// and an id is at the minimum. Names have 15 and 16 bytes. A member occurs twice, and only initgroups uses one group
/// line.
fn accounts() -> Vec<u8> {
    let long = [b'g'; 120];
    let mut builder = SnapshotBuilder::new(10).identity(IDENTITY);
    builder.responder(b"/run/roster/nss").unwrap();
    let user = |name, uid, gecos, shell| User {
        name,
        passwd: Some(b"x"),
        uid,
        gid: 100,
        gecos,
        dir: Some(b"/home"),
        shell,
    };
    let (empty, shell) = (Some(&b""[..]), Some(&b"/bin/sh"[..]));
    builder.user(&user(b"alice", 1000, Some(b"Alice"), shell), NONE).unwrap();
    builder.user(&user(b"bob", 10, None, None), ASK_FIRST).unwrap();
    builder.user(&user(b"carol", 1002, Some(&long), None), LIST_UNKNOWN).unwrap();
    builder.user(&user(b"fifteen-letters", 1003, empty, shell), BOTH).unwrap();
    builder.user(&user(b"sixteen-letters!", u32::MAX, empty, empty), NONE).unwrap();
    let group = |name, gid, passwd| Group { name, passwd, gid };
    let mut add = |group: &Group<'_>, members: &[&[u8]], gaps| {
        builder
            .group(group, members.iter().copied(), MemberVisibility::GroupAndInitgroups, gaps)
            .unwrap();
    };
    let short: [&[u8]; 4] = [b"alice", b"bob", b"fifteen-letters", b"alice"];
    add(&group(b"staff", 10, Some(b"*")), &short, NONE);
    add(&group(b"empty", 100, None), &[], ASK_FIRST);
    let any: [&[u8]; 3] = [b"sixteen-letters!", b"bob", b"stranger"];
    add(&group(&long, 101, Some(b"*")), &any, LIST_UNKNOWN);
    add(&group(b"both", u32::MAX, Some(b"*")), &[b"bob"], BOTH);
    builder.initgroups_only(77, [&b"bob"[..]].into_iter()).unwrap();
    builder.domain("lab", &DomainOptions::default(), 2, 3).unwrap();
    builder.domain("corp", &DomainOptions::default(), 3, 1).unwrap();
    written(builder, SnapshotKind::Accounts)
}

/// A domain that ignores case with a short name, and a domain without options.
fn names() -> Vec<u8> {
    let mut builder = SnapshotBuilder::new(1000).identity(IDENTITY);
    let user = |name, uid| User {
        name,
        passwd: Some(b"*"),
        uid,
        gid: 6000,
        gecos: Some(b""),
        dir: Some(b"/home"),
        shell: Some(b"/bin/sh"),
    };
    builder.set_any_case(true);
    builder.user(&user(b"Alice", 5000), NONE).unwrap();
    builder.user(&user("J\u{dc}RGEN".as_bytes(), 5001), NONE).unwrap();
    builder.set_any_case(false);
    builder.user(&user(b"Alice@lab", 7000), NONE).unwrap();
    builder.user(&user(b"zoe", 7001), NONE).unwrap();
    builder.set_any_case(true);
    let staff = Group { name: b"Staff", passwd: Some(b"*"), gid: 6000 };
    let members = [&b"Alice"[..]].into_iter();
    builder.group(&staff, members, MemberVisibility::GroupAndInitgroups, NONE).unwrap();
    let flags = domain_flags::ANY_CASE | domain_flags::PRESERVING;
    builder.domain("corp", &DomainOptions { short_name: "HQ", flags }, 2, 1).unwrap();
    builder.domain("lab", &DomainOptions::default(), 2, 0).unwrap();
    written(builder, SnapshotKind::Accounts)
}

fn shadow() -> Vec<u8> {
    let mut builder = SnapshotBuilder::new(0).identity(IDENTITY);
    let long = [b'h'; 120];
    for (name, passwd, last_change, flag) in
        [(&b"alice"[..], &b"*"[..], 19000, u64::MAX), (b"carol", &long, -1, 3)]
    {
        let passwd = Some(passwd);
        let (min, max, warn, inactive, expire) = (1, 99999, 7, 30, 20000);
        builder
            .shadow(&Shadow { name, passwd, last_change, min, max, warn, inactive, expire, flag })
            .unwrap();
    }
    written(builder, SnapshotKind::Shadow)
}

fn written(builder: SnapshotBuilder, kind: SnapshotKind) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    builder.finish(kind).unwrap().image.write(&mut file, 7).unwrap();
    file.into_inner()
}

#[test]
fn golden_files_built_byte_for_byte() {
    for (name, kind, bytes) in [
        ("accounts", SnapshotKind::Accounts, accounts()),
        ("names", SnapshotKind::Accounts, names()),
        ("shadow", SnapshotKind::Shadow, shadow()),
    ] {
        verify::verify(&bytes, kind).unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../snapshot/testdata")
            .join(name)
            .with_extension("snap");
        if std::env::var_os("ROSTER_WRITE_GOLDEN").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        let golden = std::fs::read(&path).unwrap();
        assert!(golden == bytes, "{} differs from what is built", path.display());
    }
}
