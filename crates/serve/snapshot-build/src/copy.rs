// SPDX-License-Identifier: MIT OR Apache-2.0
//! The copy of a published snapshot of accounts in memory. Programs map it instead of the file. Lookups then do not
//! depend on a disk: an unreadable sector would raise SIGBUS in a mapping. The publisher decides when it is made;
//! `roster-nss` maps it.
//!
//! The name of a copy is the format version and the inode number of its file. Programs use a copy if its owner, length,
//! mode and modification time equal those of the file. The copy of the next snapshot may exist beside the current one.
//! If a file has no copy, programs read it from the disk.

use roster_file_replacement::FileReplacement;
use rustix::fs::{self, AtFlags, FsWord, Mode, OFlags, StatFs, Timespec, Timestamps};
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The directory of copies on a host.
pub const DIR: &str = "/run/roster/snap";
/// Prefix of the names of copies of this version.
const PREFIX: &str = "v3.";
const _: () = assert!(roster_snapshot::layout::VERSION == 3);
/// File systems in memory, by the type in statfs(2).
const IN_MEMORY: [FsWord; 2] = [TMPFS, RAMFS];
const TMPFS: FsWord = 0x0102_1994;
const RAMFS: FsWord = 0x8584_58f6;
/// A file system must have free space for this many copies: this one and the next.
const FREE_SPACE_FACTOR: u64 = 2;

/// Creates the directory and its parent, if they are missing.
///
/// # Errors
///
/// A directory cannot be created.
pub fn make_dir(folder: &Path) -> io::Result<()> {
    for folder in folder.parent().into_iter().chain([folder]) {
        match DirBuilder::new().mode(0o755).create(folder) {
            // The umask has no effect.
            Ok(()) => std::fs::set_permissions(folder, Permissions::from_mode(0o755))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes a copy of the file with this metadata to the directory, with this mode. An older copy of the file is removed
/// first.
///
/// # Errors
///
/// The directory is not in memory or is full, the file belongs to another user, or the copy cannot be written. No copy
/// remains then.
pub fn put(folder: &Path, file: &Metadata, mode: u32, content: impl Read) -> io::Result<()> {
    let how = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = fs::open(folder, how, Mode::empty())?;
    let name = name(file.ino());
    remove(&folder, &name);
    let mut new = FileReplacement::create_in(folder, name.as_ref())?;
    ensure_space(&fs::fstatfs(&*new.file())?, file.len())?;
    if file.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the snapshot belongs to another user",
        ));
    }
    write(new.file(), file, mode, content)?;
    new.place()
}

fn write(copy: &mut File, file: &Metadata, mode: u32, mut content: impl Read) -> io::Result<()> {
    // A tmpfs assigns huge pages only within the length of the file.
    copy.set_len(file.len())?;
    if io::copy(&mut content, copy)? != file.len() {
        return Err(io::Error::other("the snapshot has another length than its file"));
    }
    if copy.metadata()?.gid() != file.gid() {
        fs::fchown(&*copy, None, Some(fs::Gid::from_raw(file.gid())))?;
    }
    fs::fchmod(&*copy, Mode::from_raw_mode(mode))?;
    let modified = Timespec { tv_sec: file.mtime(), tv_nsec: file.mtime_nsec() };
    Ok(fs::futimens(&*copy, &Timestamps { last_access: modified, last_modification: modified })?)
}

/// Checks that a file of that length and its successor fit.
fn ensure_space(stat: &StatFs, bytes: u64) -> io::Result<()> {
    if !IN_MEMORY.contains(&stat.f_type) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the directory is not on a tmpfs"));
    }
    let block = u64::try_from(stat.f_bsize).unwrap_or(0);
    let left = stat.f_bavail.saturating_mul(block);
    // A tmpfs without a size limit reports 0 blocks.
    if stat.f_blocks != 0 && left < bytes.saturating_mul(FREE_SPACE_FACTOR) {
        let text =
            format!("{left} bytes are left on its tmpfs, of {} needed", bytes * FREE_SPACE_FACTOR);
        return Err(io::Error::new(io::ErrorKind::StorageFull, text));
    }
    Ok(())
}

/// Returns the path of the copy of that file.
#[must_use]
pub fn path(folder: &Path, file: &Metadata) -> PathBuf {
    folder.join(name(file.ino()))
}

/// Returns whether that file has a valid copy.
#[must_use]
pub fn exists(folder: &Path, file: &Metadata) -> bool {
    path(folder, file).symlink_metadata().is_ok_and(|copy| is_copy_of(file, &copy))
}

/// Returns the bytes of the copy of that file, if it is valid.
#[must_use]
pub fn read(folder: &Path, file: &Metadata) -> Option<Vec<u8>> {
    let mut copy = File::open(path(folder, file)).ok()?;
    let mut bytes = Vec::new();
    copy.metadata().is_ok_and(|copy| is_copy_of(file, &copy)).then_some(())?;
    copy.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn is_copy_of(file: &Metadata, copy: &Metadata) -> bool {
    let marks =
        |stat: &Metadata| (stat.uid(), stat.mode(), stat.len(), stat.mtime(), stat.mtime_nsec());
    marks(file) == marks(copy)
}

/// Removes all copies of this version, except the copy of the file with this inode number. Existing mappings stay
/// valid.
///
/// # Errors
///
/// The directory cannot be read.
pub fn remove_others(folder: &Path, inode: u64) -> io::Result<()> {
    let kept = name(inode);
    let folder = fs::open(folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for entry in fs::Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let of_version = name.to_bytes().strip_prefix(b".").unwrap_or(name.to_bytes());
        if name.to_bytes() != kept.as_bytes() && of_version.starts_with(PREFIX.as_bytes()) {
            let _ = fs::unlinkat(&folder, name, AtFlags::empty());
        }
    }
    Ok(())
}

fn name(inode: u64) -> String {
    format!("{PREFIX}{inode:016x}")
}

fn remove(folder: &OwnedFd, name: &str) {
    let _ = fs::unlinkat(folder, name, AtFlags::empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_MEMORY: &str = "/dev/shm";

    #[test]
    fn copy_is_found_until_file_differs() {
        let root = tempfile::tempdir_in(IN_MEMORY).unwrap();
        let folder = root.path().join("roster/snap");
        make_dir(&folder).unwrap();
        make_dir(&folder).unwrap();
        let snapshot = root.path().join("roster.snap");
        std::fs::write(&snapshot, "users").unwrap();
        let stat = || snapshot.metadata().unwrap();
        assert!(!exists(&folder, &stat()));
        put(&folder, &stat(), stat().mode(), &b"users"[..]).unwrap();
        assert_eq!(read(&folder, &stat()).as_deref(), Some(&b"users"[..]));
        std::fs::set_permissions(&snapshot, Permissions::from_mode(0o600)).unwrap();
        assert!(!exists(&folder, &stat()), "the mode is another");
        put(&folder, &stat(), stat().mode(), &b"users"[..]).unwrap();
        assert!(exists(&folder, &stat()));
        let later = stat().modified().unwrap() + std::time::Duration::from_nanos(1);
        File::options().write(true).open(&snapshot).unwrap().set_modified(later).unwrap();
        assert!(!exists(&folder, &stat()), "the time is another");
        assert_eq!(read(&folder, &stat()), None);
    }

    #[test]
    fn copy_of_next_file_lies_beside_last() {
        let root = tempfile::tempdir_in(IN_MEMORY).unwrap();
        let files = ["one", "two"].map(|name| {
            let path = root.path().join(name);
            std::fs::write(&path, name).unwrap();
            path.metadata().unwrap()
        });
        let folder = root.path().join("snap");
        make_dir(&folder).unwrap();
        put(&folder, &files[0], files[0].mode(), &b"one"[..]).unwrap();
        put(&folder, &files[1], files[1].mode(), &b"two"[..]).unwrap();
        assert!(files.iter().all(|file| exists(&folder, file)));
        let later = folder.join("v4.0000000000000001");
        std::fs::write(&later, "of a later version").unwrap();
        std::fs::write(folder.join(".v3.0000000000000001.new"), "left by a killed publisher")
            .unwrap();
        remove_others(&folder, files[1].ino()).unwrap();
        assert_eq!(files.each_ref().map(|file| exists(&folder, file)), [false, true]);
        assert!(later.exists());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    }

    #[test]
    fn copy_that_fails_leaves_nothing() {
        let root = tempfile::tempdir_in(IN_MEMORY).unwrap();
        let snapshot = root.path().join("roster.snap");
        std::fs::write(&snapshot, "users").unwrap();
        let (stat, folder) = (snapshot.metadata().unwrap(), root.path().join("snap"));
        assert!(put(&folder, &stat, 0o644, &b"users"[..]).is_err(), "no directory");
        make_dir(&folder).unwrap();
        put(&folder, &stat, stat.mode(), &b"users"[..]).unwrap();
        assert!(put(&folder, &stat, stat.mode(), &b"user"[..]).is_err(), "it was cut");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        let on_disk = tempfile::tempdir_in("/var/tmp").unwrap();
        let refused = put(on_disk.path(), &stat, 0o644, &b"users"[..]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn copy_needs_room_for_two() {
        let mut stat = fs::statfs(IN_MEMORY).unwrap();
        (stat.f_bsize, stat.f_blocks, stat.f_bavail) = (4096, 100, 10);
        assert!(ensure_space(&stat, 5 * 4096).is_ok());
        let refused = ensure_space(&stat, 5 * 4096 + 1).unwrap_err();
        assert_eq!(refused.to_string(), "40960 bytes are left on its tmpfs, of 40962 needed");
        stat.f_blocks = 0;
        assert!(ensure_space(&stat, u64::MAX).is_ok(), "it has no bound");
    }
}
