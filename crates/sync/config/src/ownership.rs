// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that only root can change a file on which rosterd depends. `config_files` and `overrides_file` call it.
//!
//! The check looks at owner and mode of the file and of all directories above it. It reads no contents, and it changes
//! nothing.

use roster_messages::CodedError;
use roster_messages::table::config as codes;
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Write permission of group and others.
const WRITE: u32 = 0o022;
const GROUP_WRITE: u32 = 0o020;
const STICKY: u32 = 0o1000;
/// The owner that a user namespace shows for users outside it, the host's root among them (user_namespaces(7)).
const UNMAPPED: u32 = 65_534;

/// Checks that only root, or the user of this process, can change or replace the file at `path`. A member of group 0
/// counts as root. In a sticky directory, such as `/tmp`, users can replace only their own files. An inaccessible file
/// or directory passes, because reading it reports the cause.
///
/// # Errors
/// The defect and its fix.
pub fn check_ownership(path: &Path) -> Result<(), CodedError> {
    // Permissions of devices have other reasons.
    if let Ok(metadata) = fs::metadata(path)
        && metadata.is_file()
    {
        check_metadata(path, path, &metadata, geteuid().as_raw())?;
    }
    check_directories(path)
}

/// Checks the file that was opened at `path`, which another file may have replaced since, and the directories above it.
///
/// # Errors
/// The defect and its fix.
pub(crate) fn check_opened_file(path: &Path, metadata: &Metadata) -> Result<(), CodedError> {
    check_metadata(path, path, metadata, geteuid().as_raw())?;
    check_directories(path)
}

fn check_directories(path: &Path) -> Result<(), CodedError> {
    let own = geteuid().as_raw();
    for directory in directories(path) {
        if let Ok(metadata) = fs::symlink_metadata(&directory)
            && metadata.is_dir()
        {
            check_metadata(path, &directory, &metadata, own)?;
        }
    }
    Ok(())
}

/// Checks that only root, or the user of this process, can add or remove files in a directory.
///
/// # Errors
/// The defect and its fix.
pub(crate) fn check_directory_ownership(path: &Path) -> Result<(), CodedError> {
    let own = geteuid().as_raw();
    if let Ok(metadata) = fs::metadata(path)
        && metadata.is_dir()
    {
        check_metadata(path, path, &metadata, own)?;
    }
    check_ownership(path)
}

/// Returns the directories above a file, up to `/`, before and after symbolic links are resolved.
fn directories(path: &Path) -> BTreeSet<PathBuf> {
    let ways = [std::path::absolute(path), path.canonicalize()];
    let above = |way: &PathBuf| way.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
    ways.iter().flatten().flat_map(above).collect()
}

/// Checks `found`, which is `path` or a directory above it.
fn check_metadata(
    path: &Path,
    found: &Path,
    metadata: &Metadata,
    own: u32,
) -> Result<(), CodedError> {
    let (shown, name) = (path.display(), found.display());
    let effect = if path == found { "change it".into() } else { format!("replace {shown}") };
    let owner = metadata.uid();
    let is_unmapped = owner == UNMAPPED && is_in_user_namespace();
    if owner != 0 && owner != own && !is_unmapped {
        return Err(CodedError::new(
            &codes::FILE_OWNED_BY_OTHER,
            format!("{name} belongs to uid {owner}, which can {effect}"),
        )
        .fix(format!("Check the content of {shown}, then run `chown root {name}`.")));
    }
    let mode = metadata.mode() & 0o7777;
    // Every user can add files to a sticky directory.
    let is_sticky = metadata.is_dir() && path != found && mode & STICKY != 0;
    let refused = if metadata.gid() == 0 { WRITE & !GROUP_WRITE } else { WRITE };
    if mode & refused != 0 && !is_sticky {
        return Err(CodedError::new(
            &codes::FILE_WRITABLE_BY_OTHERS,
            format!("{name} has mode {mode:04o}, which allows other users to {effect}"),
        )
        .fix(format!("Check the content of {shown}, then run `chmod go-w {name}`.")));
    }
    Ok(())
}

/// Returns whether this process's user namespace lacks some users of the host.
fn is_in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().ne(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn set_mode(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Returns the problem, without the test's directory.
    fn wrong(folder: &Path, path: &Path) -> Option<String> {
        let error = check_ownership(path).err()?;
        Some(error.to_string().replace(&folder.display().to_string(), "DIR"))
    }

    #[test]
    fn ownership_writable_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roster.toml");
        fs::write(&file, "").unwrap();
        for mode in [0o600, 0o644, 0o444] {
            set_mode(&file, mode);
            assert_eq!(wrong(folder.path(), &file), None, "{mode:o}");
        }
        set_mode(&file, 0o666);
        assert_eq!(
            wrong(folder.path(), &file).as_deref(),
            Some(
                "DIR/roster.toml has mode 0666, which allows other users to change it. Check the \
                 content of DIR/roster.toml, then run `chmod go-w DIR/roster.toml`. [RST-1105]"
            )
        );
    }

    /// The file of the path may have been replaced since it was opened.
    #[test]
    fn ownership_opened_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("o.toml"), folder.path().join("other"));
        fs::write(&file, "").unwrap();
        set_mode(&file, 0o666);
        let opened = fs::File::open(&file).unwrap().metadata().unwrap();
        fs::write(&other, "").unwrap();
        set_mode(&other, 0o644);
        fs::rename(&other, &file).unwrap();
        assert!(check_ownership(&file).is_ok());
        let error = check_opened_file(&file, &opened).unwrap_err();
        assert_eq!(error.message, &codes::FILE_WRITABLE_BY_OTHERS);
        let opened = fs::File::open(&file).unwrap().metadata().unwrap();
        assert!(check_opened_file(&file, &opened).is_ok());
        set_mode(folder.path(), 0o777);
        assert!(check_opened_file(&file, &opened).is_err(), "the directory");
    }

    #[test]
    fn ownership_writable_directory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        let file = inner.join("roster.toml");
        fs::create_dir(&inner).unwrap();
        fs::write(&file, "").unwrap();
        let link = folder.path().join("link");
        symlink(&file, &link).unwrap();
        set_mode(&inner, 0o757);
        let expected = "DIR/inner has mode 0757, which allows other users to replace";
        for path in [&file, &link] {
            let said = wrong(folder.path(), path).unwrap();
            assert!(said.starts_with(expected), "{said}");
        }
        set_mode(&inner, 0o1777);
        assert_eq!(wrong(folder.path(), &file), None, "a sticky directory");
    }

    #[test]
    fn ownership_group_zero_may_write() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roster.toml");
        fs::write(&file, "").unwrap();
        set_mode(&file, 0o664);
        let group = fs::metadata(&file).unwrap().gid();
        assert_eq!(wrong(folder.path(), &file).is_none(), group == 0);
        if geteuid().is_root() {
            chown(&file, None, Some(1234)).unwrap();
            assert!(wrong(folder.path(), &file).unwrap().contains("has mode 0664"));
        }
    }

    #[test]
    fn ownership_file_of_other_user_is_refused() {
        if !geteuid().is_root() {
            // Only root can change an owner. Root's own files pass for other users.
            assert!(check_ownership(Path::new("/etc/passwd")).is_ok());
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roster.toml");
        fs::write(&file, "").unwrap();
        chown(&file, Some(1234), None).unwrap();
        let expected = "DIR/roster.toml belongs to uid 1234, which can change it. Check the content of \
                        DIR/roster.toml, then run `chown root DIR/roster.toml`. [RST-1104]";
        assert_eq!(wrong(folder.path(), &file).as_deref(), Some(expected));
        chown(&file, Some(0), None).unwrap();
        chown(folder.path(), Some(1234), None).unwrap();
        let expected = "DIR belongs to uid 1234, which can replace DIR/roster.toml. Check the content of \
                        DIR/roster.toml, then run `chown root DIR`. [RST-1104]";
        assert_eq!(wrong(folder.path(), &file).as_deref(), Some(expected));
    }

    #[test]
    fn ownership_missing_file_passes() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_ownership(&folder.path().join("roster.toml")).is_ok());
    }
}
