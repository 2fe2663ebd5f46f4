// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether programs find a snapshot, can read it and accept it. Pure: the state comes from
//! [`collect`](super::collect).

use super::collect::{FileKind, ParentDir, ReadResult, SnapshotLocation, SnapshotMetadata};
use crate::finding::{Finding, ok, problem};
use crate::output::{bytes, count_with_noun, duration};
use roster_messages::table::host;
use roster_snapshot::layout::SnapshotKind;
use std::time::{Duration, SystemTime};

/// Ages below this have no number in a finding: they may come from two clocks.
pub const JUST_NOW: Duration = Duration::from_secs(60);

type DirectoryCheck = fn(&'static str, &SnapshotLocation, &ParentDir) -> Option<Finding>;
type FileCheck = fn(&'static str, &SnapshotLocation, &SnapshotMetadata) -> Option<Finding>;

/// The checks of a directory on the path of a snapshot, unless it is a link.
const DIRECTORY_CHECKS: [DirectoryCheck; 3] =
    [check_directory_owner, check_directory_mode, check_shadow_directory];

/// The checks of a snapshot that is a file.
const FILE_CHECKS: [FileCheck; 2] = [check_file_owner, check_file_mode];

/// Checks whether readers find, can read and accept a snapshot. `for_all`: programs of all users must be able to read
/// it.
pub fn check_snapshot(
    snapshot: &SnapshotLocation,
    now: SystemTime,
    is_mirrored: bool,
    for_all: bool,
) -> Vec<Finding> {
    const CHECK: &str = "snapshot";
    let name = snapshot.path.display();
    let mut findings = check_trust(CHECK, snapshot);
    findings.extend(check_parent_directories(CHECK, snapshot));
    if for_all {
        findings.extend(check_way(CHECK, snapshot));
    }
    match &snapshot.state {
        ReadResult::Present(state) if state.kind == FileKind::File => {
            findings.extend(check_readability(CHECK, snapshot, state));
            findings.extend(check_content(CHECK, snapshot, state, now, is_mirrored));
        }
        ReadResult::Present(_) => {}
        ReadResult::Missing => {
            let message = match is_mirrored {
                true => &host::SNAPSHOT_NOT_PUBLISHED,
                false => &host::SNAPSHOT_NOT_COMPILED,
            };
            findings.push(problem(CHECK, message, format!("{name} does not exist")));
        }
        // Otherwise a finding above gives the reason.
        ReadResult::Failed(why) if findings.is_empty() => {
            let text = format!("{name} cannot be examined: {why}");
            findings.push(problem(CHECK, &host::SNAPSHOT_NOT_EXAMINED, text));
        }
        ReadResult::Failed(_) => {}
    }
    findings
}

/// Finds directories that programs of other users cannot pass.
fn check_way(check: &'static str, snapshot: &SnapshotLocation) -> Vec<Finding> {
    let name = snapshot.path.display();
    let closed = snapshot.parents.iter().filter(|directory| directory.mode & 0o001 == 0);
    let finding = |directory: &ParentDir| {
        let directory = directory.path.display();
        let text = format!("programs of other users cannot reach {name} through {directory}");
        problem(check, &host::DIRECTORY_NOT_SEARCHABLE, text)
            .advice(format!("Run `chmod a+x {directory}`."))
    };
    closed.map(finding).collect()
}

fn is_for_everybody(state: &SnapshotMetadata) -> bool {
    state.mode & 0o004 != 0
}

fn check_readability(
    check: &'static str,
    snapshot: &SnapshotLocation,
    state: &SnapshotMetadata,
) -> Option<Finding> {
    let name = snapshot.path.display();
    (!is_for_everybody(state)).then(|| {
        let text = format!("{name} is not readable for all users (mode {:04o})", state.mode);
        problem(check, &host::SNAPSHOT_NOT_PUBLIC, text).advice(format!("Run `chmod 644 {name}`."))
    })
}

fn check_content(
    check: &'static str,
    snapshot: &SnapshotLocation,
    state: &SnapshotMetadata,
    now: SystemTime,
    is_mirrored: bool,
) -> Option<Finding> {
    let name = snapshot.path.display();
    match &state.content {
        Some(Ok(content)) => {
            let age = match now.duration_since(state.published).unwrap_or_default() {
                age if age < JUST_NOW => "just now".to_owned(),
                age => format!("{} ago", duration(age)),
            };
            Some(ok(
                check,
                format!(
                    "{name}: generation {}, {}, {}, {}, published {age}",
                    content.generation,
                    count_with_noun(content.users, "user"),
                    count_with_noun(content.groups, "group"),
                    bytes(state.bytes),
                ),
            ))
        }
        Some(Err(why)) => {
            let message = match is_mirrored {
                true => &host::PUBLISHED_SNAPSHOT_INVALID,
                false => &host::SNAPSHOT_INVALID,
            };
            Some(problem(check, message, format!("{name}: {why}")))
        }
        None if is_for_everybody(state) => {
            let text = format!("{name} is not readable for this user despite its mode");
            Some(problem(check, &host::SNAPSHOT_ACCESS_DENIED, text))
        }
        None => None,
    }
}

/// Finds the reasons that readers reject a snapshot: an untrusted user could have written it. The rules are those of the
/// module; docs/reference/snapshot-format.md lists them under "Owner of the file".
pub fn check_trust(check: &'static str, snapshot: &SnapshotLocation) -> Vec<Finding> {
    let name = snapshot.path.display();
    let mut findings = Vec::new();
    // Readers trust the directories above the default snapshot. On a path of the environment they check each one.
    let examined = |directory: &&ParentDir| {
        snapshot.chosen_by.is_some() || is_own_directory(snapshot, directory)
    };
    for directory in snapshot.parents.iter().filter(examined) {
        if directory.is_link {
            let path = directory.path.display();
            let text = format!("{path} is a symbolic link: readers do not follow it to {name}");
            findings.push(problem(check, &host::DIRECTORY_IS_LINK, text));
        } else {
            let found =
                DIRECTORY_CHECKS.iter().filter_map(|found| found(check, snapshot, directory));
            findings.extend(found);
        }
    }
    let ReadResult::Present(state) = &snapshot.state else { return findings };
    if state.kind == FileKind::File {
        findings.extend(FILE_CHECKS.iter().filter_map(|found| found(check, snapshot, state)));
    } else {
        let what =
            if state.kind == FileKind::Link { "a symbolic link" } else { "not a regular file" };
        let text = format!("{name} is {what}: readers reject it");
        findings.push(problem(check, &host::SNAPSHOT_NOT_A_FILE, text));
    }
    findings
}

/// Returns whether the snapshot is in that directory.
fn is_own_directory(snapshot: &SnapshotLocation, directory: &ParentDir) -> bool {
    snapshot.path.parent() == Some(&*directory.path)
}

/// Returns the owners that readers accept: root and the user that names the file. For the default snapshot also the
/// owner of its directory, except for password hashes.
fn trusted_owners(snapshot: &SnapshotLocation) -> Vec<u32> {
    let mut owners = vec![0];
    owners.extend(snapshot.chosen_by);
    if snapshot.chosen_by.is_none() && snapshot.kind == SnapshotKind::Accounts {
        let own = snapshot.parents.iter().filter(|directory| is_own_directory(snapshot, directory));
        owners.extend(own.filter(|directory| !directory.is_link).map(|directory| directory.owner));
    }
    owners
}

fn check_directory_owner(
    check: &'static str,
    snapshot: &SnapshotLocation,
    directory: &ParentDir,
) -> Option<Finding> {
    let ParentDir { path, owner, .. } = directory;
    (snapshot.chosen_by.is_some() && !trusted_owners(snapshot).contains(owner)).then(|| {
        let (path, name) = (path.display(), snapshot.path.display());
        let text = format!("{path} belongs to uid {owner}, which can replace {name}");
        problem(check, &host::DIRECTORY_OWNER_UNTRUSTED, text)
    })
}

fn check_directory_mode(
    check: &'static str,
    snapshot: &SnapshotLocation,
    directory: &ParentDir,
) -> Option<Finding> {
    let mode = directory.mode;
    let is_sticky = snapshot.chosen_by.is_some() && mode & 0o1000 != 0;
    (mode & 0o022 != 0 && !is_sticky).then(|| {
        let (path, name) = (directory.path.display(), snapshot.path.display());
        let text =
            format!("other users can replace {name}: they can write to {path} (mode {mode:04o})");
        problem(check, &host::DIRECTORY_WRITABLE, text).advice(format!("Run `chmod go-w {path}`."))
    })
}

/// Checks that the directory of password hashes belongs to root.
fn check_shadow_directory(
    check: &'static str,
    snapshot: &SnapshotLocation,
    directory: &ParentDir,
) -> Option<Finding> {
    let owner = directory.owner;
    let is_default = snapshot.chosen_by.is_none() && is_own_directory(snapshot, directory);
    (is_default && snapshot.kind == SnapshotKind::Shadow && owner != 0).then(|| {
        let (path, name) = (directory.path.display(), snapshot.path.display());
        let text = format!("{path} belongs to uid {owner}, which can replace {name}");
        problem(check, &host::SHADOW_DIRECTORY_OWNER_UNTRUSTED, text)
            .advice(format!("Run `chown root {path}`, and compile the file again."))
    })
}

fn check_file_owner(
    check: &'static str,
    snapshot: &SnapshotLocation,
    state: &SnapshotMetadata,
) -> Option<Finding> {
    let (name, owner) = (snapshot.path.display(), state.owner);
    (!trusted_owners(snapshot).contains(&owner)).then(|| {
        let no_owner = match snapshot.kind {
            _ if snapshot.chosen_by.is_some() => "not to root or the user that names it",
            SnapshotKind::Accounts => "not to root or the owner of its directory",
            SnapshotKind::Shadow => "not to root",
        };
        let advice = format!("Find the program that wrote it, then run `chown root {name}`.");
        let text = format!("{name} belongs to uid {owner}, {no_owner}: readers reject it");
        problem(check, &host::SNAPSHOT_OWNER_UNTRUSTED, text).advice(advice)
    })
}

fn check_file_mode(
    check: &'static str,
    snapshot: &SnapshotLocation,
    state: &SnapshotMetadata,
) -> Option<Finding> {
    let (name, mode) = (snapshot.path.display(), state.mode);
    (mode & 0o022 != 0).then(|| {
        let text = format!("other users can write to {name} (mode {mode:04o}): readers reject it");
        problem(check, &host::SNAPSHOT_WRITABLE, text)
            .advice(format!("Run `chmod go-w {name}`, and compile it again."))
    })
}

/// Finds directories further up that other users can write to. Readers do not check them, although other users can
/// replace the directory of the snapshot there.
fn check_parent_directories(check: &'static str, snapshot: &SnapshotLocation) -> Vec<Finding> {
    let own = snapshot.path.parent();
    let above = snapshot.parents.iter().filter(|directory| own != Some(&*directory.path));
    let loose =
        above.filter(|directory| directory.mode & 0o022 != 0 && directory.mode & 0o1000 == 0);
    let finding = |directory: &ParentDir| {
        let (name, path) = (snapshot.path.display(), directory.path.display());
        let text =
            format!("other users can replace the directory of {name}: they can write to {path}");
        problem(check, &host::PARENT_DIRECTORY_WRITABLE, text)
            .advice(format!("Run `chmod go-w {path}`."))
    };
    loose.map(finding).collect()
}
