//! The daemon's socket, in a folder of its own that goes with it. The folder is locked as long as its daemon
//! lives, so that the next one knows those that a killed one has left, and removes them.

use crate::access_list::{AccessList, READ_WRITE};
use roster_fd_passing::refuse_descriptors;
use roster_messages::CodedError;
use roster_messages::table::commands;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, fchmod, flock, fstat, openat, unlinkat,
};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
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

#[derive(Debug)]
pub struct OsloSocket {
    listener: UnixListener,
    path: PathBuf,
    dir: SocketDir,
}

/// Its folder, with what else the daemon keeps there, which goes when this does.
#[derive(Debug)]
pub struct SocketDir {
    path: TempDir,
    _lock: OwnedFd,
}

impl OsloSocket {
    /// Makes it where temporary files are, for these users, as far as the file system tells them from others.
    pub fn new(uids: &[u32]) -> io::Result<Self> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).rand_bytes(10).permissions(fs::Permissions::from_mode(0o700));
        let folder = builder.tempdir_in(&parent)?;
        let lock = open_own_dir(folder.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        // From here on by its descriptor: no name on the way can lead elsewhere.
        let inside = Path::new("/proc/self/fd").join(lock.as_raw_fd().to_string()).join(NAME);
        let listener = UnixListener::bind(&inside)?;
        // Nobody has any to send; a kernel that cannot refuse them has them closed without waiting.
        let _ = refuse_descriptors(&listener);
        listener.set_nonblocking(true)?;
        allow_users(&inside, uids)?;
        fchmod(&lock, Mode::from_raw_mode(0o755))?;
        let path = folder.path().join(NAME);
        Ok(Self { listener, path, dir: SocketDir { path: folder, _lock: lock } })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that goes with it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path.path()
    }

    /// What takes connections, and does not wait for them.
    #[must_use]
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Takes no connection any more. Who has connected and was not taken sees the end of it.
    #[must_use]
    pub fn close(self) -> SocketDir {
        self.dir
    }
}

/// The directory of that name, unless another one is in its place: in a directory of another user's, that user can
/// put one there.
fn open_own_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(CWD, path, flags, Mode::empty())?;
    let status = fstat(&directory)?;
    if status.st_uid != rustix::process::geteuid().as_raw() || status.st_mode & 0o077 != 0 {
        let text = format!("{}: replaced by another directory", path.display());
        return Err(io::Error::other(CodedError::new(&commands::SOCKET_DIR_REPLACED, text)));
    }
    Ok(directory)
}

/// Who may not connect cannot leave anything in a connection, whose closing would be waited for. Where there are
/// several users and no access lists, everybody may, and is asked who that is all the same.
fn allow_users(path: &Path, uids: &[u32]) -> io::Result<()> {
    let own = rustix::process::geteuid();
    let mut others: Vec<u32> =
        uids.iter().copied().filter(|uid| ![0, own.as_raw()].contains(uid)).collect();
    others.sort_unstable();
    others.dedup();
    let mode = |mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(0o600)?;
    match others[..] {
        [] => Ok(()),
        [uid] if own.is_root() => std::os::unix::fs::chown(path, Some(uid), None),
        _ => {
            let users = others.into_iter().map(|uid| (uid, READ_WRITE)).collect();
            let list = AccessList { users, mask: READ_WRITE, ..AccessList::from_mode(0o600) };
            list.write(path).or_else(|_| mode(0o666))
        }
    }
}

/// Removes the folders of killed daemons of the same user.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().take(ENTRIES_MAX) {
        if entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
            let _ = remove_if_abandoned(parent, &entry.file_name());
        }
    }
}

fn remove_if_abandoned(parent: &Path, name: &OsStr) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn socket_directory_that_was_replaced_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name, mode| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let own = make("own", 0o700);
        assert!(open_own_dir(&own).is_ok());
        assert!(open_own_dir(&make("open", 0o755)).is_err());
        let link = parent.path().join("link");
        symlink(&own, &link).unwrap();
        assert!(open_own_dir(&link).is_err());
    }
}
