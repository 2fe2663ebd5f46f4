// SPDX-License-Identifier: MIT OR Apache-2.0
//! One record built: read from text, or put into a snapshot under construction.

use crate::corpus::{LARGE, large_members, users};
use gungraun::prelude::*;
use roster_passwd_format::User;
use roster_passwd_format::lines::{ParsedLine, passwd_line};
use roster_snapshot_build::{IncompleteFlags, MemberVisibility, SnapshotBuilder};
use std::hint::black_box;

const LINE: &[u8] = b"user0050:*:10050:50050:User Number 50:/home/user0050:/bin/bash";
/// A user that is not in the corpus.
const NEW_USER: User<'_> = User {
    name: b"newcomer",
    passwd: Some(b"*"),
    uid: 20_000,
    gid: 50_000,
    gecos: Some(b"New Comer"),
    dir: Some(b"/home/newcomer"),
    shell: Some(b"/bin/bash"),
};

#[library_benchmark(teardown = assert_entry)]
#[bench::passwd_line(LINE)]
fn text(line: &'static [u8]) -> ParsedLine<User<'static>> {
    passwd_line(black_box(line))
}

fn assert_entry(line: ParsedLine<User<'static>>) {
    assert!(matches!(line, ParsedLine::Entry(user) if user.uid == 10_050));
}

/// A builder that has all users of the corpus, members for a group, the entry to add, and the expected result.
struct Case {
    builder: SnapshotBuilder,
    members: Vec<String>,
    add: fn(&mut SnapshotBuilder, &[String]) -> bool,
    is_added: bool,
}

fn prepare(add: fn(&mut SnapshotBuilder, &[String]) -> bool) -> Case {
    Case { builder: users(), members: large_members(), add, is_added: false }
}

fn assert_added(case: Case) {
    assert!(case.is_added);
}

#[library_benchmark(setup = prepare, teardown = assert_added)]
#[bench::user(add_user)]
#[bench::group_of_500(add_group)]
fn build(mut case: Case) -> Case {
    case.is_added = (case.add)(&mut case.builder, &case.members);
    case
}

fn add_user(builder: &mut SnapshotBuilder, _members: &[String]) -> bool {
    builder.user(black_box(&NEW_USER), IncompleteFlags::default()).is_ok()
}

fn add_group(builder: &mut SnapshotBuilder, members: &[String]) -> bool {
    let names = members.iter().map(String::as_bytes);
    builder
        .group(
            black_box(&LARGE),
            names,
            MemberVisibility::GroupAndInitgroups,
            IncompleteFlags::default(),
        )
        .is_ok()
}

library_benchmark_group!(name = builds, benchmarks = [text, build]);
