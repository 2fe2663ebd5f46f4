//! The daemon's socket, in a folder of its own that goes with it. The folder is locked as long as its daemon
//! lives, so that the next one knows those that a killed one has left, and removes them.

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, openat, unlinkat};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// What begins the name of a folder of ours: the original's have no second dash.
const PREFIX: &str = "rootwrap-roster-";
const NAME: &str = "rootwrap.sock";
/// A folder that was made just now need not be locked yet.
const FRESH: Duration = Duration::from_secs(60);
/// Of the folders that are looked at.
const ENTRIES_MAX: usize = 100_000;

/// The socket.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    folder: Folder,
}

/// Its folder, with what else the daemon keeps there, which goes when this does.
#[derive(Debug)]
pub struct Folder {
    path: TempDir,
    _lock: OwnedFd,
}

impl Socket {
    /// Makes it where temporary files are; everybody may try to connect.
    pub fn new() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        remove_left(&parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).rand_bytes(10).tempdir_in(&parent)?;
        let lock = openat(
            CWD,
            folder.path(),
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let path = folder.path().join(NAME);
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        Ok(Self { listener, path, folder: Folder { path: folder, _lock: lock } })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that goes with it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path.path()
    }

    /// What takes connections, and does not wait for them.
    #[must_use]
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Takes no connection any more. Who has connected and was not taken sees the end of it.
    #[must_use]
    pub fn close(self) -> Folder {
        self.folder
    }
}

/// Removes the folders of killed daemons of the same user.
fn remove_left(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().take(ENTRIES_MAX) {
        if entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
            let _ = remove_if_left(parent, &entry.file_name());
        }
    }
}

fn remove_if_left(parent: &Path, name: &OsStr) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, parent.join(name), flags, Mode::empty())?;
    let stat = fstat(&folder)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let changed = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    if stat.st_uid != rustix::process::geteuid().as_raw() || changed + FRESH > now {
        return Ok(());
    }
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    // Nothing of anybody else's is in it, or it stays.
    unlinkat(folder.as_fd(), NAME, AtFlags::empty()).or_else(|error| match error {
        rustix::io::Errno::NOENT => Ok(()),
        error => Err(error),
    })?;
    Ok(unlinkat(CWD, parent.join(name), AtFlags::REMOVEDIR)?)
}
