// SPDX-License-Identifier: MIT OR Apache-2.0
//! One lookup of each kind, through the functions of the built module that glibc calls.

use crate::corpus::{
    ASKED_GID, ASKED_GROUPS, ASKED_UID, LARGE_GID, LARGE_MEMBERS, asked_group, asked_user,
    write_accounts, write_shadow,
};
use crate::module::{Lookup, Module, NOT_FOUND, SUCCESS};
use gungraun::prelude::*;
use std::os::unix::fs::PermissionsExt;

/// A lookup, with the expected status and the expected length of the list.
type Case = (Box<dyn Lookup>, i32, usize);

/// Loads the module on a new snapshot and makes the lookup once. The module keeps its mapping, so the
/// files are removed here.
fn prepare(find: fn(&Module) -> Box<dyn Lookup>, status: i32, listed: usize) -> Case {
    let directory = tempfile::tempdir().expect("a temporary directory can be created");
    // The module may run as a user without any other right.
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), mode).expect("it is this process's");
    let accounts = directory.path().join("roster.v3.snap");
    write_accounts(&accounts);
    write_shadow(&directory.path().join("shadow.v3.snap"));
    let mut lookup = find(&Module::load(&accounts));
    lookup.call();
    check((lookup, status, listed))
}

fn check(case: Case) -> Case {
    let (lookup, status, listed) = &case;
    assert_eq!((lookup.status(), lookup.listed()), (*status, *listed));
    case
}

fn finish(case: Case) {
    check(case);
}

#[library_benchmark(setup = prepare, teardown = finish)]
#[bench::user_by_name(|module| module.user_by_name(&asked_user()), SUCCESS, 0)]
#[bench::user_by_uid(|module| module.user_by_uid(ASKED_UID), SUCCESS, 0)]
#[bench::group_by_name(|module| module.group_by_name(&asked_group()), SUCCESS, 10)]
#[bench::group_by_gid(|module| module.group_by_gid(ASKED_GID), SUCCESS, 10)]
#[bench::group_of_500(|module| module.group_by_gid(LARGE_GID), SUCCESS, LARGE_MEMBERS)]
#[bench::initgroups(|module| module.initgroups(&asked_user()), SUCCESS, ASKED_GROUPS)]
#[bench::unknown_user(|module| module.user_by_name("unknown"), NOT_FOUND, 0)]
#[bench::shadow_by_name(|module| module.shadow_by_name(&asked_user()), SUCCESS, 0)]
fn lookup(mut case: Case) -> Case {
    case.0.call();
    case
}

library_benchmark_group!(name = lookups, benchmarks = lookup);
