//! Text to a snapshot and back: whatever the text, the snapshot verifies and enumerates the lines
//! that the parsers accept. The input is a passwd file and, behind the first line that is `%`, a
//! group file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_record::text::{self, Line};
use roster_snapshot::Snapshot;
use roster_snapshot::layout::Kind;
use roster_snapshot_build::{Builder, Gaps, Members};
use std::io::Cursor;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |&byte| byte == b'%');
    let (passwd, group) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut builder = Builder::new(0);
    let users: Vec<_> = lines(passwd).map(text::passwd_line).filter_map(entry).collect();
    for user in &users {
        builder.user(user, Gaps::default()).unwrap();
    }
    let groups: Vec<_> = lines(group).map(text::group_line).filter_map(entry).collect();
    for group in &groups {
        builder.group(&group.group, group.members(), Members::Both, Gaps::default()).unwrap();
    }
    let mut file = Cursor::new(Vec::new());
    builder.finish(Kind::Accounts).unwrap().image.write(&mut file, 1).unwrap();
    let bytes = file.into_inner();
    roster_snapshot_build::verify::verify(&bytes, Kind::Accounts).unwrap();
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

fn entry<T>(line: Line<T>) -> Option<T> {
    match line {
        Line::Entry(entry) => Some(entry),
        Line::Blank | Line::Skipped(_) => None,
    }
}
