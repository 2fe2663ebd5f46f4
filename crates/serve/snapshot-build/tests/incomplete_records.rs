// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header and the records of a snapshot mark all incomplete data.

use roster_passwd_format::{Group, User};
use roster_snapshot::hash;
use roster_snapshot::layout::{RESPONDER_BYTES, SnapshotHeader, SnapshotKind};
use roster_snapshot::{OpenError, Snapshot};
use roster_snapshot_build::{IncompleteFlags, MemberVisibility, SnapshotBuilder, verify};
use std::io::Cursor;
use std::mem::offset_of;

const OPEN: IncompleteFlags = IncompleteFlags { responder_first: true, list_unknown: true };
const PATH: &[u8] = b"/run/roster/nss";

fn user<'a>(name: &'a [u8], uid: u32, gecos: Option<&'a [u8]>) -> User<'a> {
    let (dir, shell) = (Some(&b"/home"[..]), None);
    User { name, passwd: Some(b"*"), uid, gid: 100, gecos, dir, shell }
}

/// Builds a file with one user and one group for each combination of the two flags, and one of each with text outside
/// its slot.
fn bytes(responder: Option<&[u8]>) -> Vec<u8> {
    let long = [b'x'; 200];
    let mut builder = SnapshotBuilder::new(0);
    if let Some(path) = responder {
        builder.responder(path).unwrap();
    }
    for (id, gaps) in all_gaps() {
        builder.user(&user(format!("u{id}").as_bytes(), id, None), gaps).unwrap();
    }
    builder.user(&user(b"long", 9, Some(&long)), OPEN).unwrap();
    for (gid, gaps) in all_gaps() {
        let name = format!("g{gid}");
        let group = Group { name: name.as_bytes(), passwd: None, gid };
        builder
            .group(&group, [&b"u0"[..]].into_iter(), MemberVisibility::GroupAndInitgroups, gaps)
            .unwrap();
    }
    let group = Group { name: &long, passwd: Some(b"*"), gid: 9 };
    builder.group(&group, [].into_iter(), MemberVisibility::GroupAndInitgroups, OPEN).unwrap();
    let mut file = Cursor::new(Vec::new());
    builder.finish(SnapshotKind::Accounts).unwrap().image.write(&mut file, 1).unwrap();
    file.into_inner()
}

fn all_gaps() -> impl Iterator<Item = (u32, IncompleteFlags)> {
    let gaps =
        |bits: u32| IncompleteFlags { responder_first: bits & 1 != 0, list_unknown: bits & 2 != 0 };
    (0..4).map(move |bits| (bits, gaps(bits)))
}

#[test]
fn each_record_says_what_it_leaves_open_and_answers_as_before() {
    let bytes = bytes(Some(PATH));
    verify::verify(&bytes, SnapshotKind::Accounts).unwrap();
    let snapshot = Snapshot::open(&bytes).unwrap();
    for (id, gaps) in all_gaps().chain([(9, OPEN)]) {
        let found = snapshot.user_by_uid(id).unwrap().unwrap();
        assert_eq!(
            (found.needs_responder_first(), found.groups_unknown()),
            (gaps.responder_first, gaps.list_unknown)
        );
        let [name, passwd, gecos, dir, shell] = found.text.fields();
        let wanted = if id == 9 { "long".to_owned() } else { format!("u{id}") };
        assert_eq!(name, Some(wanted.as_bytes()));
        assert_eq!((passwd, dir, shell), (Some(&b"*"[..]), Some(&b"/home"[..]), None));
        assert_eq!(gecos.map(<[u8]>::len), (id == 9).then_some(200));

        let found = snapshot.group_by_gid(id).unwrap().unwrap();
        assert_eq!(
            (found.needs_responder_first(), found.members_unknown()),
            (gaps.responder_first, gaps.list_unknown)
        );
        assert_eq!(found.record().passwd, (id == 9).then_some(&b"*"[..]));
    }
}

#[test]
fn a_snapshot_names_a_responder_only_when_it_was_told_to() {
    assert_eq!(Snapshot::open(&bytes(None)).unwrap().responder(), None);
    assert_eq!(Snapshot::open(&bytes(Some(PATH))).unwrap().responder(), Some(PATH));
    let longest = [&b"/"[..], &[b'p'; RESPONDER_BYTES - 2]].concat();
    assert_eq!(Snapshot::open(&bytes(Some(&longest))).unwrap().responder(), Some(&longest[..]));
}

#[test]
fn a_path_that_no_reader_would_take_is_not_built_in() {
    let too_long = [&b"/"[..], &[b'p'; RESPONDER_BYTES - 1]].concat();
    for path in [&b""[..], b"run/roster/nss", b"/run\0nss", &too_long] {
        assert!(SnapshotBuilder::new(0).responder(path).is_err(), "{}", path.escape_ascii());
    }
}

#[test]
fn snapshot_bad_responder_path_is_refused() {
    let whole = bytes(Some(PATH));
    let changed = |place: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[offset_of!(SnapshotHeader, responder) + place] = value;
        let end = offset_of!(SnapshotHeader, header_hash);
        let checksum = hash::plain(&bytes[..end]).to_le_bytes();
        bytes[end..end + checksum.len()].copy_from_slice(&checksum);
        Snapshot::open(&bytes).map(|_| ())
    };
    assert_eq!(changed(0, b'/'), Ok(()));
    let wrong = [(0, b'r'), (0, 0), (RESPONDER_BYTES - 1, b'x'), (PATH.len() + 1, b'x')];
    for (place, value) in wrong {
        assert_eq!(changed(place, value), Err(OpenError::BadResponder), "byte {place}");
    }
}
