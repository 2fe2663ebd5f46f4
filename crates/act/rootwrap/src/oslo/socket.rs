// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket of the daemon in a new directory, which is removed with it. The daemon locks the directory as long as it
//! lives. The next daemon removes unlocked ones of killed daemons. `oslo::daemon` accepts connections, and
//! `hmac_handshake` identifies a client.

use crate::access_list::{AccessList, READ_WRITE};
use roster_fd_passing::refuse_descriptors;
use roster_messages::CodedError;
use roster_messages::table::commands;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, fchmod, flock, fstat, openat, unlinkat,
};
use rustix::io::Errno;
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

/// Prefix of the directory's name. Names of oslo.rootwrap have no second dash.
const PREFIX: &str = "rootwrap-roster-";
const NAME: &str = "rootwrap.sock";
/// A new directory may not be locked yet.
const FRESH: Duration = Duration::from_secs(60);
/// Limit of checked entries.
const ENTRIES_MAX: usize = 100_000;

#[derive(Debug)]
pub struct OsloSocket {
    listener: UnixListener,
    path: PathBuf,
    dir: SocketDir,
}

/// The directory of the socket and of buffers, which is removed when this is dropped.
#[derive(Debug)]
pub struct SocketDir {
    path: TempDir,
    _lock: OwnedFd,
}

impl OsloSocket {
    /// Creates the socket in the directory of temporary files, for these users as far as the file system supports it.
    pub fn new(uids: &[u32]) -> io::Result<Self> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).rand_bytes(10).permissions(fs::Permissions::from_mode(0o700));
        let folder = builder.tempdir_in(&parent)?;
        let lock = open_own_dir(folder.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        // From here on the path goes through the descriptor, so that no link can redirect it.
        let inside = Path::new("/proc/self/fd").join(lock.as_raw_fd().to_string()).join(NAME);
        let listener = UnixListener::bind(&inside)?;
        // Clients send no descriptors. A kernel that cannot refuse them closes them without a wait.
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

    /// Returns the directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path.path()
    }

    /// Returns the listener, which does not block.
    #[must_use]
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Stops accepting. Clients in the queue see the end of the connection.
    #[must_use]
    pub fn close(self) -> SocketDir {
        self.dir
    }
}

/// Opens the new directory. An error: another user has replaced it, which is possible in a directory of that user.
fn open_own_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let replaced = || {
        let text = format!("{}: replaced by another file", path.display());
        io::Error::other(CodedError::new(&commands::SOCKET_DIR_REPLACED, text))
    };
    let directory = openat(CWD, path, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR => replaced(),
        error => error.into(),
    })?;
    let status = fstat(&directory)?;
    let is_own = status.st_uid == rustix::process::geteuid().as_raw();
    if is_own && status.st_mode & 0o077 == 0 { Ok(directory) } else { Err(replaced()) }
}

/// Allows only these users to connect, so that no other user can leave data that delays a close. For several users
/// without access lists, the mode allows all users, and the daemon checks the peer.
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

/// Removes directories of killed daemons of the same user.
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
    // A directory with other files stays.
    unlinkat(folder.as_fd(), NAME, AtFlags::empty()).or_else(|error| match error {
        Errno::NOENT => Ok(()),
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
        let link = parent.path().join("link");
        symlink(&own, &link).unwrap();
        for other in [make("open", 0o755), link] {
            let error: CodedError = open_own_dir(&other).unwrap_err().downcast().unwrap();
            assert_eq!(error.message, &commands::SOCKET_DIR_REPLACED, "{error}");
        }
    }
}
