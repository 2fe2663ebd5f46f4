//! Whether programs find a snapshot, may read it and believe it. Pure.

use super::collect::{FileKind, ParentDir, ReadResult, SnapshotLocation, SnapshotMetadata};
use crate::finding::{Finding, ok, problem};
use crate::output::{bytes, count_with_noun, duration};
use roster_snapshot::layout::SnapshotKind;
use std::time::{Duration, SystemTime};

/// An age below this is not worth a number, and may come from two clocks.
pub const JUST_NOW: Duration = Duration::from_secs(60);

type FolderCheck = fn(&'static str, &SnapshotLocation, &ParentDir) -> Option<Finding>;
type FileCheck = fn(&'static str, &SnapshotLocation, &SnapshotMetadata) -> Option<Finding>;

/// The checks of one folder on the way to a snapshot, unless it is a link.
const FOLDER_CHECKS: [FolderCheck; 3] =
    [check_folder_owner, check_folder_mode, check_shadow_folder];

/// The checks of a snapshot that is a file.
const FILE_CHECKS: [FileCheck; 2] = [check_file_owner, check_file_mode];

/// Whether readers find, may read and will accept a snapshot. `for_all`: programs of all users are to read it.
pub fn check_snapshot(
    snapshot: &SnapshotLocation,
    now: SystemTime,
    is_mirrored: bool,
    for_all: bool,
) -> Vec<Finding> {
    const CHECK: &str = "snapshot";
    let name = snapshot.path.display();
    let mut findings = check_trust(CHECK, snapshot);
    findings.extend(check_folders_above(CHECK, snapshot));
    if for_all {
        findings.extend(check_way(CHECK, snapshot));
    }
    match &snapshot.state {
        ReadResult::Present(state) if state.kind == FileKind::File => {
            findings.extend(check_readability(CHECK, snapshot, state));
            findings.extend(check_content(CHECK, snapshot, state, now, is_mirrored));
        }
        ReadResult::Present(_) => {}
        ReadResult::Missing => findings.push(problem(
            CHECK,
            format!("{name} does not exist"),
            if is_mirrored {
                "rosterd makes it, and makes it again: `roster status` says why it does not"
            } else {
                "make it with `roster compile`, or have rosterd mirror a directory into it \
                 (roster.toml(5))"
            },
        )),
        // Mostly this user is one of those that a finding above is about.
        ReadResult::Failed(why) if findings.is_empty() => {
            findings.push(problem(CHECK, format!("{name}: {why}"), "run `roster doctor` as root"));
        }
        ReadResult::Failed(_) => {}
    }
    findings
}

/// Folders that programs of other users cannot pass.
fn check_way(check: &'static str, snapshot: &SnapshotLocation) -> Vec<Finding> {
    let name = snapshot.path.display();
    let closed = snapshot.parents.iter().filter(|folder| folder.mode & 0o001 == 0);
    let finding = |folder: &ParentDir| {
        let folder = folder.path.display();
        problem(
            check,
            format!("programs of other users cannot reach {name} through {folder}"),
            format!("chmod a+x {folder}"),
        )
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
        problem(
            check,
            format!("{name} cannot be read by everybody (mode {:04o})", state.mode),
            format!("chmod 644 {name}"),
        )
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
        Some(Err(why)) => Some(problem(
            check,
            format!("{name}: {why}"),
            if is_mirrored {
                "rosterd publishes it again by itself, at the latest after `systemctl restart rosterd`; \
                 programs that run already go on with what they have"
            } else {
                "compile it anew; programs that run already go on with what they have"
            },
        )),
        None if is_for_everybody(state) => Some(problem(
            check,
            format!("{name} cannot be read by this user, whatever its mode"),
            "look for access control lists and security modules, here and on its folders",
        )),
        None => None,
    }
}

/// Why readers refuse a snapshot: somebody else could have written it. The rule is the module's, to
/// the letter; docs/reference/snapshot-format.md has it under "Owner of the file".
pub fn check_trust(check: &'static str, snapshot: &SnapshotLocation) -> Vec<Finding> {
    let name = snapshot.path.display();
    let mut findings = Vec::new();
    // The way to the default place is taken as it is; where the environment led, every step is
    // looked at.
    let examined =
        |folder: &&ParentDir| snapshot.chosen_by.is_some() || is_own_folder(snapshot, folder);
    for folder in snapshot.parents.iter().filter(examined) {
        if folder.is_link {
            let path = folder.path.display();
            findings.push(problem(
                check,
                format!("{path} is a symbolic link, and readers do not follow it to {name}"),
                "put a folder there; to keep it on another disk, mount that here",
            ));
        } else {
            let found = FOLDER_CHECKS.iter().filter_map(|found| found(check, snapshot, folder));
            findings.extend(found);
        }
    }
    let ReadResult::Present(state) = &snapshot.state else { return findings };
    if state.kind == FileKind::File {
        findings.extend(FILE_CHECKS.iter().filter_map(|found| found(check, snapshot, state)));
    } else {
        let what =
            if state.kind == FileKind::Link { "a symbolic link" } else { "not a regular file" };
        findings.push(problem(
            check,
            format!("{name} is {what}, and readers refuse it"),
            "remove it, then `roster compile`",
        ));
    }
    findings
}

/// Whether the snapshot lies in that folder.
fn is_own_folder(snapshot: &SnapshotLocation, folder: &ParentDir) -> bool {
    snapshot.path.parent() == Some(&*folder.path)
}

/// Users whose file readers believe: root, and who names the file. In the default place, whoever the
/// folder belongs to, but for password hashes, which are root's alone.
fn trusted_owners(snapshot: &SnapshotLocation) -> Vec<u32> {
    let mut owners = vec![0];
    owners.extend(snapshot.chosen_by);
    if snapshot.chosen_by.is_none() && snapshot.kind == SnapshotKind::Accounts {
        let own = snapshot.parents.iter().filter(|folder| is_own_folder(snapshot, folder));
        owners.extend(own.filter(|folder| !folder.is_link).map(|folder| folder.owner));
    }
    owners
}

fn check_folder_owner(
    check: &'static str,
    snapshot: &SnapshotLocation,
    folder: &ParentDir,
) -> Option<Finding> {
    let ParentDir { path, owner, .. } = folder;
    (snapshot.chosen_by.is_some() && !trusted_owners(snapshot).contains(owner)).then(|| {
        let (path, name) = (path.display(), snapshot.path.display());
        problem(
            check,
            format!("{path} belongs to uid {owner}, who can replace {name}"),
            "readers refuse it: keep the snapshot in a folder of root or of your own",
        )
    })
}

fn check_folder_mode(
    check: &'static str,
    snapshot: &SnapshotLocation,
    folder: &ParentDir,
) -> Option<Finding> {
    let mode = folder.mode;
    let is_sticky = snapshot.chosen_by.is_some() && mode & 0o1000 != 0;
    (mode & 0o022 != 0 && !is_sticky).then(|| {
        let (path, name) = (folder.path.display(), snapshot.path.display());
        problem(
            check,
            format!(
                "others can replace {name}, because they can write to {path} (mode {mode:04o})"
            ),
            format!("readers refuse it: chmod go-w {path}"),
        )
    })
}

/// Password hashes are root's alone.
fn check_shadow_folder(
    check: &'static str,
    snapshot: &SnapshotLocation,
    folder: &ParentDir,
) -> Option<Finding> {
    let owner = folder.owner;
    let is_default = snapshot.chosen_by.is_none() && is_own_folder(snapshot, folder);
    (is_default && snapshot.kind == SnapshotKind::Shadow && owner != 0).then(|| {
        let (path, name) = (folder.path.display(), snapshot.path.display());
        problem(
            check,
            format!("{path} belongs to uid {owner}, who can replace {name}"),
            format!("readers refuse it: chown root {path}, and compile it anew"),
        )
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
            _ if snapshot.chosen_by.is_some() => "neither root nor the user who names it",
            SnapshotKind::Accounts => "neither root nor the owner of its folder",
            SnapshotKind::Shadow => "not to root",
        };
        problem(
            check,
            format!("{name} belongs to uid {owner}, {no_owner}"),
            format!("readers refuse it: find out who wrote it, then chown root {name}"),
        )
    })
}

fn check_file_mode(
    check: &'static str,
    snapshot: &SnapshotLocation,
    state: &SnapshotMetadata,
) -> Option<Finding> {
    let (name, mode) = (snapshot.path.display(), state.mode);
    (mode & 0o022 != 0).then(|| {
        problem(
            check,
            format!("{name} can be written by others (mode {mode:04o})"),
            format!("readers refuse it: chmod go-w {name}, and compile it anew"),
        )
    })
}

/// What readers do not look at, and an administrator should: a folder further up that others can
/// write to, where they may put a folder of theirs in the place of ours.
fn check_folders_above(check: &'static str, snapshot: &SnapshotLocation) -> Vec<Finding> {
    let own = snapshot.path.parent();
    let above = snapshot.parents.iter().filter(|folder| own != Some(&*folder.path));
    let loose = above.filter(|folder| folder.mode & 0o022 != 0 && folder.mode & 0o1000 == 0);
    let finding = |folder: &ParentDir| {
        let (name, path) = (snapshot.path.display(), folder.path.display());
        problem(
            check,
            format!(
                "others can put another folder in the place of the one of {name}, because they can write to {path}"
            ),
            format!("chmod go-w {path}"),
        )
    };
    loose.map(finding).collect()
}
