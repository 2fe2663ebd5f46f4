//! One record built: read from text, put into a snapshot under construction, encoded for a reply.

use crate::corpus::{LARGE, large_members, users, with_user};
use gungraun::prelude::*;
use roster_record::text::{Line, passwd_line};
use roster_record::{Group, User};
use roster_snapshot_build::{Builder, Gaps, Members};
use roster_wire::encode;
use std::hint::black_box;

const LINE: &[u8] = b"user0050:*:10050:50050:User Number 50:/home/user0050:/bin/bash";
/// A user that is not in the corpus.
const NEW_USER: u32 = 5_000;

#[library_benchmark]
fn passwd_text() -> Line<User<'static>> {
    passwd_line(black_box(LINE))
}

/// A builder with all users but one.
fn builder() -> (Builder, bool) {
    (users(), false)
}

fn assert_built((_, is_built): (Builder, bool)) {
    assert!(is_built);
}

#[library_benchmark(teardown = assert_built)]
#[bench::prepared(setup = builder)]
fn snapshot_user((mut builder, _): (Builder, bool)) -> (Builder, bool) {
    let built = with_user(NEW_USER, |user| builder.user(black_box(user), Gaps::default()));
    (builder, built.is_ok())
}

fn builder_and_members() -> (Builder, Vec<String>, bool) {
    (users(), large_members(), false)
}

fn assert_group_built((_, _, is_built): (Builder, Vec<String>, bool)) {
    assert!(is_built);
}

#[library_benchmark(teardown = assert_group_built)]
#[bench::prepared(setup = builder_and_members)]
fn snapshot_group_of_500(
    (mut builder, members, _): (Builder, Vec<String>, bool),
) -> (Builder, Vec<String>, bool) {
    let names = members.iter().map(String::as_bytes);
    let built = builder.group(black_box(&LARGE), names, Members::Both, Gaps::default());
    (builder, members, built.is_ok())
}

library_benchmark_group!(
    name = builds,
    benchmarks = [passwd_text, snapshot_user, snapshot_group_of_500]
);
