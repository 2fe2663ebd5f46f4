//! Brings a file to its place so that readers see the old one or the new one, whole, whatever
//! happens in between.
//!
//! Temp file in the same folder, fsync, rename, fsync of the folder. The temp file's name is
//! fixed, and so is that of a lock file beside it, so that an interrupted publication leaves at
//! most these two behind, for the next one to use up. The lock is on a file that nobody else can
//! open: on the folder itself, whoever may read it could hold it for ever.

use roster_snapshot::Snapshot;
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for another publication into the same folder.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// Between two tries for the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The action that fails when the new file is in place, and may be gone after a power failure.
pub const SYNC: &str = "sync";

/// Why the old file is still in place, or with [`SYNC`] may be again.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}")]
pub struct PublishError {
    /// What was tried.
    pub action: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Rights of a published file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Permission bits, whatever the umask.
    pub mode: u32,
    /// Group to give it to; the process's own when none.
    pub gid: Option<u32>,
}

/// What was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The file's generation: one more than that of the file it took the place of, or than the last known one.
    pub generation: u64,
    /// Its length.
    pub bytes: u64,
}

/// Publishes what `write` writes to a fresh file; it is given the generation and gives the length.
/// The file has its rights before it has its name. After an error the file at `path` is the old
/// one, and no other is left behind; but when only the folder could not be synced, the new one is
/// there, and may be gone after a power failure.
pub fn publish(
    path: &Path,
    rights: Rights,
    write: impl FnOnce(&mut File, u64) -> io::Result<u64>,
) -> Result<Published, PublishError> {
    publish_after(path, rights, 0, write)
}

/// [`publish`] by a process that knows the last generation, so that the next is larger whatever is at `path`.
pub fn publish_after(
    path: &Path,
    rights: Rights,
    last_generation: u64,
    write: impl FnOnce(&mut File, u64) -> io::Result<u64>,
) -> Result<Published, PublishError> {
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
    let folder = File::open(folder_path).map_err(failed("open the folder", folder_path))?;
    let place = Place { folder: folder.into(), name, temp: hidden(name, ".new") };
    let lock_name = hidden(name, ".lock");
    let _lock = Lock::take(&place.folder, &lock_name)
        .map_err(failed("lock", &folder_path.join(&lock_name)))?;
    let generation = place.previous_generation().map_err(failed("replace", path))?;
    let generation = generation.max(last_generation).saturating_add(1);
    let temp_path = folder_path.join(&place.temp);
    let attempt = || {
        let mut file = place.create().map_err(failed("create", &temp_path))?;
        let bytes = write(&mut file, generation).map_err(failed("write", &temp_path))?;
        set_rights(&file, rights).map_err(failed("set the rights of", &temp_path))?;
        file.sync_all().map_err(failed("write", &temp_path))?;
        drop(file);
        place.rename().map_err(failed("replace", path))?;
        Ok(Published { generation, bytes })
    };
    let published = attempt().inspect_err(|_| place.remove_temp())?;
    fs::fsync(&place.folder).map_err(io::Error::from).map_err(failed(SYNC, folder_path))?;
    Ok(published)
}

fn hidden(name: &OsStr, ending: &str) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(ending);
    hidden
}

/// The right to publish under one name. It goes with the descriptor, so a killed publisher leaves
/// the file behind but not the lock.
struct Lock<'a> {
    folder: &'a OwnedFd,
    name: &'a OsStr,
    _file: OwnedFd,
}

impl<'a> Lock<'a> {
    fn take(folder: &'a OwnedFd, name: &'a OsStr) -> io::Result<Self> {
        let deadline = Instant::now() + LOCK_WAIT;
        let how = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let file = fs::openat(folder, name, how, Mode::RUSR | Mode::WUSR)?;
            match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // The one before may have removed the file between our two calls.
                Ok(()) if is_at(&file, folder, name)? => {
                    return Ok(Self { folder, name, _file: file });
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

impl Drop for Lock<'_> {
    /// Removed while the lock is held; who waits for it sees that and takes a fresh one.
    fn drop(&mut self) {
        let _ = fs::unlinkat(self.folder, self.name, AtFlags::empty());
    }
}

/// Whether the open file is the one of that name.
fn is_at(file: &OwnedFd, folder: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    let open = fs::fstat(file)?;
    match fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((open.st_dev, open.st_ino) == (named.st_dev, named.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn set_rights(file: &File, rights: Rights) -> io::Result<()> {
    if let Some(gid) = rights.gid {
        fs::fchown(file, None, Some(fs::Gid::from_raw(gid)))?;
    }
    Ok(fs::fchmod(file, Mode::from_raw_mode(rights.mode))?)
}

/// A name in an open folder, and the name beside it that holds the file until it is whole.
struct Place<'a> {
    folder: OwnedFd,
    name: &'a OsStr,
    temp: OsString,
}

impl Place<'_> {
    /// The generation of the file that is there, 0 when there is none of ours. What is not a file
    /// (a device, a pipe, a link that somebody relies on) is not to be replaced.
    fn previous_generation(&self) -> io::Result<u64> {
        match fs::statat(&self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {}
            Ok(_) => return Err(io::Error::other("it is there and is no regular file")),
            Err(Errno::NOENT) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = fs::openat(&self.folder, self.name, how, Mode::empty()) else {
            return Ok(0);
        };
        let mut header = Vec::new();
        let limit = roster_snapshot::layout::HEADER_BYTES as u64;
        // A file that cannot be read, as one on a bad sector, is there to be replaced.
        let _ = File::from(file).take(limit).read_to_end(&mut header);
        Ok(Snapshot::generation(&header).unwrap_or(0))
    }

    /// Nobody else may open it while it is being written, whatever its final rights.
    fn create(&self) -> io::Result<File> {
        self.remove_temp();
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.folder, &self.temp, how, Mode::RUSR | Mode::WUSR)?;
        Ok(File::from(file))
    }

    fn rename(&self) -> io::Result<()> {
        Ok(fs::renameat(&self.folder, &self.temp, &self.folder, self.name)?)
    }

    /// What cannot be removed stands in the way of `create`, which says so.
    fn remove_temp(&self) {
        let _ = fs::unlinkat(&self.folder, &self.temp, AtFlags::empty());
    }
}
