// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces a file so that readers see the old file or the new one, complete in both cases, even after a crash.
//!
//! The new file is a synced [`FileReplacement`], written under a lock. The lock file has a fixed name too, so an
//! interrupted publication leaves at most these two files, which the next one reuses. No other user can open the lock
//! file. A lock on the directory is unsuitable: any user that may read the directory could hold it forever.

use roster_file_replacement::{FileReplacement, temporary_path};
use roster_snapshot::Snapshot;
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum wait for another publication in the same directory.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// Pause between two attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The action that fails when the new file is in place, but may be lost in a power failure.
pub const SYNC: &str = "sync";

/// Reasons that the old file stays, or with [`SYNC`] may return.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}")]
pub struct PublishError {
    /// The failed action.
    pub action: &'static str,
    /// Path of its file.
    pub path: PathBuf,
    /// Error of the system.
    pub source: io::Error,
}

/// Access rights of a published file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRights {
    /// Permission bits, independent of the umask.
    pub mode: u32,
    /// Group of the file; the process's group if `None`.
    pub gid: Option<u32>,
}

/// Result of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Generation of the file: the previous one plus one. The previous one is that of the replaced file, or the last
    /// known one if that is larger.
    pub generation: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// Publishes a new file. `write` gets the generation, writes the file and returns the length. The file has its rights
/// before it has its name. After an error the file at `path` is the old one, and no temporary file remains. If only the
/// sync of the directory failed, the new file is in place, but may be lost in a power failure.
pub fn publish(
    path: &Path,
    rights: FileRights,
    write: impl FnOnce(&mut File, u64) -> io::Result<u64>,
) -> Result<Publication, PublishError> {
    publish_after(path, rights, 0, write)
}

/// [`publish`] for a process that knows the last generation. The next one is larger, even if `path` has an older file
/// or none.
pub fn publish_after(
    path: &Path,
    rights: FileRights,
    last_generation: u64,
    write: impl FnOnce(&mut File, u64) -> io::Result<u64>,
) -> Result<Publication, PublishError> {
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| PublishError { action, path, source }
    };
    let folder_path = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let not_a_file = || failed("replace", path)(io::Error::from(io::ErrorKind::IsADirectory));
    let name = path.file_name().ok_or_else(not_a_file)?;
    let folder = File::open(folder_path).map_err(failed("open the directory", folder_path))?;
    let folder = OwnedFd::from(folder);
    let lock_name = lock_name(name);
    let _lock = PublishLock::acquire(&folder, &lock_name)
        .map_err(failed("lock", &folder_path.join(&lock_name)))?;
    let generation = previous_generation(&folder, name).map_err(failed("replace", path))?;
    let generation = generation.max(last_generation).saturating_add(1);
    let temp_path = temporary_path(path);
    let new = folder.try_clone().and_then(|folder| FileReplacement::create_in(folder, name));
    let mut new = new.map_err(failed("create", &temp_path))?;
    let bytes = write(new.file(), generation).map_err(failed("write", &temp_path))?;
    set_rights(new.file(), rights).map_err(failed("set the rights of", &temp_path))?;
    new.file().sync_all().map_err(failed("write", &temp_path))?;
    new.place().map_err(failed("replace", path))?;
    new.sync_dir().map_err(failed(SYNC, folder_path))?;
    Ok(Publication { generation, bytes })
}

fn lock_name(name: &OsStr) -> OsString {
    let mut lock = OsString::from(".");
    lock.push(name);
    lock.push(".lock");
    lock
}

/// Exclusive right to publish under one name. The kernel releases the lock with the descriptor, so a killed publisher
/// leaves the file, but not the lock.
struct PublishLock<'a> {
    dir: &'a OwnedFd,
    name: &'a OsStr,
    _file: OwnedFd,
}

impl<'a> PublishLock<'a> {
    fn acquire(folder: &'a OwnedFd, name: &'a OsStr) -> io::Result<Self> {
        let deadline = Instant::now() + LOCK_WAIT;
        let how = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let file = fs::openat(folder, name, how, Mode::RUSR | Mode::WUSR)?;
            match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // The previous owner may have removed the file between the two calls.
                Ok(()) if is_at(&file, folder, name)? => {
                    return Ok(Self { dir: folder, name, _file: file });
                }
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(Errno::WOULDBLOCK) => {
                    let text = "another publication has not ended within 10 s";
                    return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for PublishLock<'_> {
    /// Removes the file while the lock is held. A waiting publisher detects that and locks a new file.
    fn drop(&mut self) {
        let _ = fs::unlinkat(self.dir, self.name, AtFlags::empty());
    }
}

/// Returns whether the open file is the file with that name.
fn is_at(file: &OwnedFd, folder: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    let open = fs::fstat(file)?;
    match fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((open.st_dev, open.st_ino) == (named.st_dev, named.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn set_rights(file: &File, rights: FileRights) -> io::Result<()> {
    if let Some(gid) = rights.gid {
        fs::fchown(file, None, Some(fs::Gid::from_raw(gid)))?;
    }
    Ok(fs::fchmod(file, Mode::from_raw_mode(rights.mode))?)
}

/// Returns the generation of the file with that name, or 0 without a valid one. Other file types, such as devices,
/// pipes and links, must not be replaced.
fn previous_generation(folder: &OwnedFd, name: &OsStr) -> io::Result<u64> {
    match fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {}
        Ok(_) => return Err(io::Error::other("not a regular file")),
        Err(Errno::NOENT) => return Ok(0),
        Err(error) => return Err(error.into()),
    }
    let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = fs::openat(folder, name, how, Mode::empty()) else {
        return Ok(0);
    };
    let mut header = Vec::new();
    let limit = roster_snapshot::layout::HEADER_BYTES as u64;
    // An unreadable file, for example on a bad sector, must be replaceable.
    let _ = File::from(file).take(limit).read_to_end(&mut header);
    Ok(Snapshot::generation(&header).unwrap_or(0))
}
