// SPDX-License-Identifier: MIT OR Apache-2.0
//! The users and groups of the measured snapshots: the same in every run and in every revision.

use roster_passwd_format::{Group, Shadow, User};
use roster_snapshot::layout::SnapshotKind;
use roster_snapshot_build::{IncompleteFlags, MemberVisibility, SnapshotBuilder, SnapshotImage};
use std::fs::File;
use std::path::Path;

const USERS: u32 = 1_000;
const GROUPS: u32 = 100;
/// Members of the one large group.
pub const LARGE_MEMBERS: usize = 500;
const FIRST_UID: u32 = 10_000;
const FIRST_GID: u32 = 50_000;
/// The gid of the large group.
pub const LARGE_GID: u32 = 60_000;
/// Members of each other group: users with consecutive numbers.
const MEMBERS: u32 = 10;
/// The number of the user in lookups.
pub const ASKED_USER: u32 = 50;
/// Groups of that user: the large one and ten others.
pub const ASKED_GROUPS: usize = MEMBERS as usize + 1;
/// The uid of the user in lookups.
pub const ASKED_UID: u32 = FIRST_UID + ASKED_USER;
/// The gid of the small group in lookups.
pub const ASKED_GID: u32 = FIRST_GID + 42;

/// The name of the user in lookups.
pub fn asked_user() -> String {
    user_name(ASKED_USER)
}

/// The name of the small group in lookups.
pub fn asked_group() -> String {
    group_name(ASKED_GID - FIRST_GID)
}

fn user_name(number: u32) -> String {
    format!("user{number:04}")
}

fn group_name(number: u32) -> String {
    format!("group{number:03}")
}

/// Calls `add` with one user entry.
pub fn with_user<R>(number: u32, add: impl FnOnce(&User<'_>) -> R) -> R {
    let name = user_name(number);
    let (gecos, dir) = (format!("User Number {number}"), format!("/home/{name}"));
    add(&User {
        name: name.as_bytes(),
        passwd: Some(b"*"),
        uid: FIRST_UID + number,
        gid: FIRST_GID + number % GROUPS,
        gecos: Some(gecos.as_bytes()),
        dir: Some(dir.as_bytes()),
        shell: Some(b"/bin/bash"),
    })
}

/// The names of the first members of the large group.
pub fn large_members() -> Vec<String> {
    (0..LARGE_MEMBERS as u32).map(user_name).collect()
}

/// The record of the large group.
pub const LARGE: Group<'_> = Group { name: b"large", passwd: Some(b"*"), gid: LARGE_GID };

/// A builder with all users and without groups.
pub fn users() -> SnapshotBuilder {
    let mut builder = SnapshotBuilder::new(1);
    builder.reserve(USERS as usize + 1, GROUPS as usize + 1, 2 * LARGE_MEMBERS + 1_000);
    for number in 0..USERS {
        with_user(number, |user| builder.user(user, IncompleteFlags::default()))
            .expect("a user fits");
    }
    builder
}

/// Writes the snapshot of users and groups.
pub fn write_accounts(path: &Path) {
    let mut builder = users();
    for number in 0..GROUPS {
        let name = group_name(number);
        let group = Group { name: name.as_bytes(), passwd: Some(b"*"), gid: FIRST_GID + number };
        let members: Vec<String> = (number..number + MEMBERS).map(user_name).collect();
        add_group(&mut builder, &group, &members);
    }
    add_group(&mut builder, &LARGE, &large_members());
    write(&builder.finish(SnapshotKind::Accounts).expect("the accounts fit").image, path);
}

/// Writes the snapshot of shadow entries.
pub fn write_shadow(path: &Path) {
    let mut builder = SnapshotBuilder::new(1);
    for number in 0..USERS {
        let name = user_name(number);
        let shadow = Shadow {
            name: name.as_bytes(),
            passwd: Some(b"*"),
            last_change: 19_000,
            min: 0,
            max: 99_999,
            warn: 7,
            inactive: -1,
            expire: -1,
            flag: u64::MAX,
        };
        builder.shadow(&shadow).expect("a shadow entry fits");
    }
    write(&builder.finish(SnapshotKind::Shadow).expect("the shadow entries fit").image, path);
}

fn add_group(builder: &mut SnapshotBuilder, group: &Group<'_>, members: &[String]) {
    let members = members.iter().map(String::as_bytes);
    builder
        .group(group, members, MemberVisibility::GroupAndInitgroups, IncompleteFlags::default())
        .expect("a group fits");
}

fn write(image: &SnapshotImage, path: &Path) {
    let mut file = File::create(path).expect("the snapshot can be created");
    image.write(&mut file, 1).expect("the snapshot can be written");
}
