//! The copy in memory of a published snapshot of accounts. Programs map it in place of the file: then no lookup depends
//! on a disk that may lose a sector, which in a mapping is SIGBUS.
//!
//! A copy's name is the inode number of its file. Programs take the copy if its owner, length, mode and modification
//! time are those of the file. The copy of the next snapshot may lie beside that of the one in place. Programs read a
//! file without a copy of its own from the disk.

use rustix::fs::{self, AtFlags, FsWord, Mode, OFlags, StatFs, Timespec, Timestamps};
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The directory of copies on a host.
pub const FOLDER: &str = "/run/roster/snap";
/// Places in memory for files, by statfs(2).
const IN_MEMORY: [FsWord; 2] = [TMPFS, RAMFS];
const TMPFS: FsWord = 0x0102_1994;
const RAMFS: FsWord = 0x8584_58f6;
/// How often a copy must fit into what the file system has left, itself and the next one.
const ROOM: u64 = 2;

/// Makes the directory and the one around it, if they are missing.
///
/// # Errors
///
/// One of them cannot be made.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    for folder in folder.parent().into_iter().chain([folder]) {
        match DirBuilder::new().mode(0o755).create(folder) {
            // Whatever the umask.
            Ok(()) => std::fs::set_permissions(folder, Permissions::from_mode(0o755))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Puts a copy of the file with this metadata, which gets this mode, into the directory. An older copy of it goes
/// first.
///
/// # Errors
///
/// The directory is not in memory or has no room, the file is another user's, or the copy cannot be written. No copy
/// is left then.
pub fn put(folder: &Path, file: &Metadata, mode: u32, content: impl Read) -> io::Result<()> {
    let how = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = fs::open(folder, how, Mode::empty())?;
    let (name, temp) = (name(file.ino()), temp(file.ino()));
    remove(&folder, &name);
    remove(&folder, &temp);
    has_room(&fs::fstatfs(&folder)?, file.len())?;
    if file.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file is another user's"));
    }
    let written = write(&folder, &temp, file, mode, content)
        .and_then(|()| Ok(fs::renameat(&folder, &*temp, &folder, &*name)?));
    written.inspect_err(|_| remove(&folder, &temp))
}

fn write(
    folder: &OwnedFd,
    temp: &str,
    file: &Metadata,
    mode: u32,
    mut content: impl Read,
) -> io::Result<()> {
    let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut copy = File::from(fs::openat(folder, temp, how, Mode::RUSR | Mode::WUSR)?);
    if io::copy(&mut content, &mut copy)? != file.len() {
        return Err(io::Error::other("the snapshot has another length than its file"));
    }
    if copy.metadata()?.gid() != file.gid() {
        fs::fchown(&copy, None, Some(fs::Gid::from_raw(file.gid())))?;
    }
    fs::fchmod(&copy, Mode::from_raw_mode(mode))?;
    let modified = Timespec { tv_sec: file.mtime(), tv_nsec: file.mtime_nsec() };
    Ok(fs::futimens(&copy, &Timestamps { last_access: modified, last_modification: modified })?)
}

/// Whether a file of that length fits, and its successor beside it.
fn has_room(stat: &StatFs, bytes: u64) -> io::Result<()> {
    if !IN_MEMORY.contains(&stat.f_type) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "it is not on a tmpfs"));
    }
    let block = u64::try_from(stat.f_bsize).unwrap_or(0);
    let left = stat.f_bavail.saturating_mul(block);
    // One without a bound says that it has no blocks at all.
    if stat.f_blocks != 0 && left < bytes.saturating_mul(ROOM) {
        let text = format!("{left} bytes are left on its tmpfs, of {} needed", bytes * ROOM);
        return Err(io::Error::new(io::ErrorKind::StorageFull, text));
    }
    Ok(())
}

/// The place of the copy of that file.
#[must_use]
pub fn path(folder: &Path, file: &Metadata) -> PathBuf {
    folder.join(name(file.ino()))
}

/// Whether programs find a copy of that file.
#[must_use]
pub fn is_there(folder: &Path, file: &Metadata) -> bool {
    path(folder, file).symlink_metadata().is_ok_and(|copy| is_of(file, &copy))
}

/// The bytes of the copy of that file, if programs find one.
#[must_use]
pub fn read(folder: &Path, file: &Metadata) -> Option<Vec<u8>> {
    let mut copy = File::open(path(folder, file)).ok()?;
    let mut bytes = Vec::new();
    copy.metadata().is_ok_and(|copy| is_of(file, &copy)).then_some(())?;
    copy.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn is_of(file: &Metadata, copy: &Metadata) -> bool {
    let marks =
        |stat: &Metadata| (stat.uid(), stat.mode(), stat.len(), stat.mtime(), stat.mtime_nsec());
    marks(file) == marks(copy)
}

/// Removes all copies but that of the file with this inode number. Programs keep those that they have mapped.
///
/// # Errors
///
/// The directory cannot be read.
pub fn keep_only(folder: &Path, inode: u64) -> io::Result<()> {
    let kept = name(inode);
    let folder = fs::open(folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for entry in fs::Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes() != kept.as_bytes() {
            let _ = fs::unlinkat(&folder, name, AtFlags::empty());
        }
    }
    Ok(())
}

fn name(inode: u64) -> String {
    format!("{inode:016x}")
}

fn temp(inode: u64) -> String {
    format!(".{inode:016x}.new")
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
        make_folder(&folder).unwrap();
        make_folder(&folder).unwrap();
        let snapshot = root.path().join("roster.snap");
        std::fs::write(&snapshot, "users").unwrap();
        let stat = || snapshot.metadata().unwrap();
        assert!(!is_there(&folder, &stat()));
        put(&folder, &stat(), stat().mode(), &b"users"[..]).unwrap();
        assert_eq!(read(&folder, &stat()).as_deref(), Some(&b"users"[..]));
        std::fs::set_permissions(&snapshot, Permissions::from_mode(0o600)).unwrap();
        assert!(!is_there(&folder, &stat()), "the mode is another");
        put(&folder, &stat(), stat().mode(), &b"users"[..]).unwrap();
        assert!(is_there(&folder, &stat()));
        let later = stat().modified().unwrap() + std::time::Duration::from_nanos(1);
        File::options().write(true).open(&snapshot).unwrap().set_modified(later).unwrap();
        assert!(!is_there(&folder, &stat()), "the time is another");
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
        make_folder(&folder).unwrap();
        put(&folder, &files[0], files[0].mode(), &b"one"[..]).unwrap();
        put(&folder, &files[1], files[1].mode(), &b"two"[..]).unwrap();
        assert!(files.iter().all(|file| is_there(&folder, file)));
        keep_only(&folder, files[1].ino()).unwrap();
        assert_eq!(files.each_ref().map(|file| is_there(&folder, file)), [false, true]);
    }

    #[test]
    fn copy_that_fails_leaves_nothing() {
        let root = tempfile::tempdir_in(IN_MEMORY).unwrap();
        let snapshot = root.path().join("roster.snap");
        std::fs::write(&snapshot, "users").unwrap();
        let (stat, folder) = (snapshot.metadata().unwrap(), root.path().join("snap"));
        assert!(put(&folder, &stat, 0o644, &b"users"[..]).is_err(), "no directory");
        make_folder(&folder).unwrap();
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
        assert!(has_room(&stat, 5 * 4096).is_ok());
        let refused = has_room(&stat, 5 * 4096 + 1).unwrap_err();
        assert_eq!(refused.to_string(), "40960 bytes are left on its tmpfs, of 40962 needed");
        stat.f_blocks = 0;
        assert!(has_room(&stat, u64::MAX).is_ok(), "it has no bound");
    }
}
