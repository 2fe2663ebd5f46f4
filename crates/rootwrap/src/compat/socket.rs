//! The daemon's socket, in a folder of its own that goes with it. The folder is locked as long as its daemon
//! lives, so that the next one knows those that a killed one has left, and removes them.

use roster_descriptors::refuse;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, XattrFlags, flock, fstat, openat, setxattr,
    unlinkat,
};
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
/// The extended attribute that is one.
const ACCESS_LIST: &str = "system.posix_acl_access";
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
    /// Makes it where temporary files are, for these users, as far as the file system tells them from others.
    pub fn new(uids: &[u32]) -> io::Result<Self> {
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
        // Nobody has any to send; a kernel that cannot refuse them has them closed without waiting.
        let _ = refuse(&listener);
        listener.set_nonblocking(true)?;
        open_to(&path, uids)?;
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

/// Who may not connect cannot leave anything in a connection, whose closing would be waited for. Where there are
/// several users and no access lists, everybody may, and is asked who that is all the same.
fn open_to(path: &Path, uids: &[u32]) -> io::Result<()> {
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
            let listed = setxattr(path, ACCESS_LIST, &access_list(&others), XattrFlags::empty());
            listed.or_else(|_| mode(0o666))
        }
    }
}

/// That the owner and these users may write, in the kernel's form: posix_acl_xattr.h.
fn access_list(uids: &[u32]) -> Vec<u8> {
    let (owner, user, group, mask, rest) = (1_u16, 2, 4, 16, 32);
    const NOBODY: u32 = u32::MAX;
    let users = uids.iter().map(|uid| (user, 6_u16, *uid));
    let entries = std::iter::once((owner, 6, NOBODY)).chain(users);
    let entries = entries.chain([(group, 0, NOBODY), (mask, 6, NOBODY), (rest, 0, NOBODY)]);
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend([u16::to_le_bytes(tag), u16::to_le_bytes(rights)].concat());
        list.extend(id.to_le_bytes());
    }
    list
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_list_is_one_that_the_kernel_takes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        setxattr(file.path(), ACCESS_LIST, &access_list(&[1, 65534]), XattrFlags::empty()).unwrap();
        // The group's bits are the mask now.
        assert_eq!(file.as_file().metadata().unwrap().permissions().mode() & 0o777, 0o660);
    }
}
