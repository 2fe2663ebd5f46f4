// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text to a snapshot and back: for any text, the snapshot verifies and enumerates the lines that the parsers accept.
//! The input is a passwd file and, behind the first line that is `%`, a group file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_passwd_format::lines::{self as passwd_lines, ParsedLine};
use roster_snapshot::Snapshot;
use roster_snapshot::layout::SnapshotKind;
use roster_snapshot_build::{IncompleteFlags, MemberVisibility, SnapshotBuilder};
use std::io::Cursor;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |&byte| byte == b'%');
    let (passwd, group) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut builder = SnapshotBuilder::new(0);
    let users: Vec<_> = lines(passwd).map(passwd_lines::passwd_line).filter_map(entry).collect();
    for user in &users {
        builder.user(user, IncompleteFlags::default()).unwrap();
    }
    let groups: Vec<_> = lines(group).map(passwd_lines::group_line).filter_map(entry).collect();
    for group in &groups {
        builder
            .group(
                &group.group,
                group.members(),
                MemberVisibility::GroupAndInitgroups,
                IncompleteFlags::default(),
            )
            .unwrap();
    }
    let mut file = Cursor::new(Vec::new());
    builder.finish(SnapshotKind::Accounts).unwrap().image.write(&mut file, 1).unwrap();
    let bytes = file.into_inner();
    roster_snapshot_build::verify::verify(&bytes, SnapshotKind::Accounts).unwrap();
    let snapshot = Snapshot::open(&bytes).unwrap();
    for (position, user) in (0..).zip(&users) {
        assert_eq!(snapshot.user(position).unwrap().unwrap().record(), *user);
    }
    for (position, group) in (0..).zip(&groups) {
        let found = snapshot.group(position).unwrap().unwrap();
        assert_eq!(found.record(), group.group);
        assert!(found.members.iter().map(Result::unwrap).eq(group.members()));
    }
});

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

fn entry<T>(line: ParsedLine<T>) -> Option<T> {
    match line {
        ParsedLine::Entry(entry) => Some(entry),
        ParsedLine::Blank | ParsedLine::Skipped(_) => None,
    }
}
