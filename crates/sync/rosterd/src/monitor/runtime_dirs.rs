// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories and sockets for the roles: their owners, and a lock against other monitors. `role_users` has the owners.
//!
//! The state directory and the directory of caches in it belong to root. The directory of snapshots belongs to the
//! publisher, and the directory of a domain's cache to its backend. Roles could have planted files there. Everything
//! below is therefore opened one step at a time, without following symbolic links, and its owner is checked.
//!
//! A directory of an unexpected owner is rejected. A directory that gets a new owner belongs to root in between, so no
//! role can replace a file in it. The monitor needs the capability to change owners, but none to override modes.

use roster_bus::bus_names::SOCKET;
use roster_config::{KEYTAB_MARK, ListenAddress};
use roster_fd_passing::refuse_descriptors;
use roster_file_replacement::FileReplacement;
use roster_messages::{CodedError, log, table::daemon};
use roster_role::UserIds;
use roster_role::directories::{DOMAIN_CACHE_DIR, SNAPSHOT_COPY_DIR, SNAPSHOT_DIR};
use roster_role::error_code::WithCode;
use roster_role::exit_status::{CANNOT_CREATE, ExitFailure, TEMPORARY, WithExitStatus};
use rustix::fs::{self, Dir, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::path::Arg;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Directory of the bus's socket in the run-time directory. The bus owns it and creates the socket, and only roles and
/// root have access. A silent connection of another user could occupy a place that a role needs.
const BUS_DIR: &str = "dbus";
/// The lock of the run-time directory, with the monitor's process id in it.
const LOCK_FILE: &str = "rosterd.pid";
/// Longest path of a unix socket (unix(7)), without the NUL.
const SOCKET_PATH_MAX: usize = 107;
/// Files in a directory that gets a new owner. A backend creates a few; a hijacked one may create many.
const FILES_MAX: usize = 4096;
/// The user of files that belong to no role.
const ROOT_USER: UserIds = UserIds { uid: 0, gid: 0 };
/// Connections that may wait for an accept.
const BACKLOG: i32 = 1024;

const DIR_FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The daemon's directories, locked against other monitors.
pub struct RuntimeDirs {
    /// The state directory.
    pub state_dir: PathBuf,
    /// The run-time directory.
    pub run_dir: PathBuf,
    domains: OwnedFd,
    lock: File,
}

impl RuntimeDirs {
    /// Creates and locks both. `publisher` gets the directory of snapshots, if it has a separate user.
    pub fn create_and_lock(
        state: &Path,
        run: &Path,
        publisher: Option<UserIds>,
    ) -> Result<Self, ExitFailure> {
        let run_folder = open_run_dir(run).with_exit_status(CANNOT_CREATE)?;
        let run = absolute(run).with_exit_status(CANNOT_CREATE)?;
        let longest = run.join(BUS_DIR).join("socket");
        if longest.as_os_str().len() > SOCKET_PATH_MAX {
            let text = format!(
                "{}: the path has {} bytes; the kernel limit of a socket is {SOCKET_PATH_MAX}",
                longest.display(),
                longest.as_os_str().len(),
            );
            let error = CodedError::new(&daemon::SOCKET_PATH_TOO_LONG, text);
            return Err(error).with_exit_status(CANNOT_CREATE);
        }
        let lock = lock_run_dir(&run_folder, &run)
            .map_err(|(status, error)| ExitFailure { status, errors: error.into() })?;
        let state_folder = open_state_dir(state).with_exit_status(CANNOT_CREATE)?;
        let state = absolute(state).with_exit_status(CANNOT_CREATE)?;
        prepare_snapshot_dir(&state_folder, &state, publisher).with_exit_status(CANNOT_CREATE)?;
        prepare_copy_dir(&run_folder, &run, publisher).with_exit_status(CANNOT_CREATE)?;
        let domains = prepare_cache_root(&state_folder, &state).with_exit_status(CANNOT_CREATE)?;
        if fs::flock(&domains, FlockOperation::NonBlockingLockExclusive).is_err() {
            let text = format!("{}: another rosterd uses this state directory", state.display());
            let error = CodedError::new(&daemon::STATE_DIR_IN_USE, text);
            return Err(error).with_exit_status(TEMPORARY);
        }
        Ok(Self { state_dir: state, run_dir: run, domains, lock })
    }

    /// Recreates the directory of copies, and directories of the state directory that were removed or hidden by a
    /// mount. `publisher` gets the directories of snapshots and of copies.
    pub fn recreate_state(&mut self, publisher: Option<UserIds>) -> Result<(), CodedError> {
        let run = self.recreate_run()?;
        prepare_copy_dir(&run, &self.run_dir, publisher)?;
        let state = open_state_dir(&self.state_dir)?;
        prepare_snapshot_dir(&state, &self.state_dir, publisher)?;
        let domains = prepare_cache_root(&state, &self.state_dir)?;
        let locked = || -> std::io::Result<Option<OwnedFd>> {
            if file_identity(&fs::fstat(&domains)?) == file_identity(&fs::fstat(&self.domains)?) {
                return Ok(None);
            }
            fs::flock(&domains, FlockOperation::NonBlockingLockExclusive)?;
            Ok(Some(domains))
        };
        let locked = locked().with_code(&daemon::STATE_DIR_UNUSABLE, || {
            format!("{}: cannot lock the state directory", self.state_dir.display())
        });
        if let Some(domains) = locked? {
            self.domains = domains;
        }
        Ok(())
    }

    /// Recreates the run-time directory and its lock if they were removed. Returns the directory.
    pub fn recreate_run(&mut self) -> Result<OwnedFd, CodedError> {
        let folder = open_run_dir(&self.run_dir)?;
        let named = fs::statat(&folder, LOCK_FILE, fs::AtFlags::SYMLINK_NOFOLLOW).ok();
        let held = fs::fstat(&self.lock).ok();
        if named.as_ref().map(file_identity) != held.as_ref().map(file_identity) {
            self.lock = lock_run_dir(&folder, &self.run_dir).map_err(|(_, error)| error)?;
        }
        Ok(folder)
    }

    /// Whether roles can find the bus: its socket and the link to it.
    pub fn has_bus(&self) -> bool {
        let is_socket =
            |path: &Path| path.metadata().is_ok_and(|stat| stat.file_type().is_socket());
        is_socket(&self.bus_socket()) && is_socket(&self.run_dir.join(SOCKET))
    }

    /// Prepares the directory of a domain's cache for its owner, which must not have a process yet. Directories of
    /// other domains with that owner become root's property. `backends` are the uids of all backends; one of them may
    /// have been the owner before.
    pub fn prepare_cache_dir(
        &self,
        domain: &str,
        owner: Option<UserIds>,
        backends: &BTreeSet<u32>,
    ) -> Result<(), CodedError> {
        let path = self.state_dir.join(DOMAIN_CACHE_DIR).join(domain);
        let folder = || -> anyhow::Result<()> {
            let owners = AllowedOwners { backends, ..AllowedOwners::for_role(owner) };
            let before = make_subdir(&self.domains, &path, None, 0o700, &owners)?;
            let Some(owner) = owner else { return Ok(()) };
            self.revoke_dirs(domain, owner)?;
            if (before.st_uid, before.st_gid) == (owner.uid, owner.gid) {
                return Ok(());
            }
            // The directory is new, or its domain had another position and so another user. Files of that user move to
            // the new owner.
            let folder = seize_dir(&self.domains, domain)?;
            let handed = entry_names(&folder, &path).and_then(|names| {
                let mut names = names.iter();
                names.try_for_each(|name| Ok(transfer_file(&folder, &path, name, &before, owner)?))
            });
            let is_handed = handed.is_ok();
            chown_file(&folder, if is_handed { owner } else { UserIds::from_stat(&before) })?;
            handed
        };
        folder().with_code(&daemon::CACHE_DIR_UNUSABLE, || {
            format!("{}: cannot prepare the cache directory", path.display())
        })
    }

    /// Transfers every directory except the one of `domain` from `owner` to root. Their domains have other users now,
    /// which get the directories at their start, or are removed.
    fn revoke_dirs(&self, domain: &str, owner: UserIds) -> anyhow::Result<()> {
        let root = self.state_dir.join(DOMAIN_CACHE_DIR);
        for name in entry_names(&self.domains, &root)? {
            let before = fs::statat(&self.domains, &name, fs::AtFlags::SYMLINK_NOFOLLOW)?;
            let is_folder = FileType::from_raw_mode(before.st_mode) == FileType::Directory;
            // Other files are not caches.
            if name.to_bytes() == domain.as_bytes() || !is_folder || before.st_uid != owner.uid {
                continue;
            }
            // Only root has access to its content from here on.
            let folder = seize_dir(&self.domains, &name)?;
            let path = root.join(display_name(&name));
            for file in entry_names(&folder, &path)? {
                if let Err(error) = transfer_file(&folder, &path, &file, &before, ROOT_USER) {
                    log!(WARN, error.message, "{error}");
                }
            }
        }
        Ok(())
    }

    /// Marks durably that this host has used a keytab: `krb5_validate = "auto"` then always requires one. The mark is
    /// in the directory of caches, which belongs to root.
    pub fn mark_keytab(&self) -> std::io::Result<()> {
        if fs::statat(&self.domains, KEYTAB_MARK, fs::AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        let how = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mark = fs::openat(&self.domains, KEYTAB_MARK, how, Mode::from_raw_mode(0o644))?;
        fs::fsync(mark)?;
        Ok(fs::fsync(&self.domains)?)
    }

    /// Returns the path of the bus's socket.
    pub fn bus_socket(&self) -> PathBuf {
        self.run_dir.join(BUS_DIR).join("socket")
    }

    /// Prepares the directory of the bus's socket, which belongs to the bus and to the group of all roles, and the link
    /// to the socket under its public name.
    pub fn prepare_bus_dir(&self, owner: Option<UserIds>) -> Result<(), CodedError> {
        let path = self.run_dir.join(BUS_DIR);
        let prepared = || -> anyhow::Result<()> {
            let run = fs::open(&self.run_dir, DIR_FLAGS, Mode::empty())?;
            let mode = if owner.is_some() { 0o710 } else { 0o700 };
            make_subdir(&run, &path, owner, mode, &AllowedOwners::ANY)?;
            let target = Path::new(BUS_DIR).join("socket");
            let link = self.run_dir.join(SOCKET);
            if std::fs::read_link(&link).ok().as_deref() != Some(&target) {
                remove_stale(&link)?;
                symlink(&target, &link)?;
            }
            Ok(())
        };
        prepared().with_code(&daemon::RUN_DIR_UNUSABLE, || {
            format!("{}: cannot prepare the directory of the bus", path.display())
        })
    }

    /// Writes a file that all users may read.
    pub fn write_file(&self, name: &str, text: &str) -> Result<PathBuf, CodedError> {
        let path = self.run_dir.join(name);
        let write = || -> std::io::Result<()> {
            let mut new = FileReplacement::create(&path)?;
            new.file().write_all(text.as_bytes())?;
            new.set_mode(0o644)?;
            new.place()
        };
        write()
            .with_code(&daemon::RUN_DIR_UNUSABLE, || format!("{}: cannot write", path.display()))?;
        Ok(path)
    }
}

fn open_run_dir(path: &Path) -> Result<OwnedFd, CodedError> {
    open_or_create_dir(path, 0o002).with_code(&daemon::RUN_DIR_UNUSABLE, || {
        format!("{}: cannot use this run-time directory", path.display())
    })
}

fn open_state_dir(path: &Path) -> Result<OwnedFd, CodedError> {
    open_or_create_dir(path, 0o022).with_code(&daemon::STATE_DIR_UNUSABLE, || {
        format!("{}: cannot use this state directory", path.display())
    })
}

/// Returns the absolute path.
pub fn absolute(path: &Path) -> Result<PathBuf, CodedError> {
    std::path::absolute(path).with_code(&daemon::WORKING_DIR_MISSING, || {
        format!("{}: cannot determine the absolute path", path.display())
    })
}

/// Opens a directory, created if needed. The administrator chooses its path. An existing directory retains its mode. It is rejected if `others` have rights on it. It is also rejected if it belongs to an unrelated
/// user, because that user could plant files there.
fn open_or_create_dir(path: &Path, others: u32) -> anyhow::Result<OwnedFd> {
    match std::fs::create_dir(path) {
        Ok(()) => std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.into()),
    }
    let folder = fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fs::fstat(&folder)?;
    if stat.st_mode & others != 0 {
        let mode = stat.st_mode & 0o7777;
        let text = format!("{}: other users may write to it (mode {mode:04o})", path.display());
        return Err(CodedError::new(&daemon::DIR_WRITABLE_BY_OTHERS, text).into());
    }
    if ![0, own_uid()].contains(&stat.st_uid) {
        let error = CodedError::new(
            &daemon::DIR_OWNER_UNEXPECTED,
            format!("{}: belongs to uid {}", path.display(), stat.st_uid),
        );
        let fix =
            format!("Run `chown {} {}`, or pass another directory.", own_uid(), path.display());
        return Err(error.fix(fix).into());
    }
    Ok(folder)
}

/// Owners of an existing directory that the monitor accepts.
struct AllowedOwners<'a> {
    /// The role that gets the directory.
    role: Option<u32>,
    /// The users of backends, if one of them may have been the owner.
    backends: &'a BTreeSet<u32>,
    /// Any user: no role can write to the parent, and roles may have changed their users.
    any: bool,
}

impl AllowedOwners<'_> {
    const ANY: AllowedOwners<'static> =
        AllowedOwners { role: None, backends: &BTreeSet::new(), any: true };

    /// Allows root, the monitor's own user, and the role's user.
    fn for_role(role: Option<UserIds>) -> Self {
        AllowedOwners { role: role.map(|ids| ids.uid), any: false, ..AllowedOwners::ANY }
    }

    fn allows(&self, uid: u32) -> bool {
        let own = [0, own_uid()].contains(&uid) || self.role == Some(uid);
        own || self.any || self.backends.contains(&uid)
    }
}

/// Creates the directory of snapshot copies. The publisher may have had another user before.
fn prepare_copy_dir(
    run_folder: &OwnedFd,
    run: &Path,
    publisher: Option<UserIds>,
) -> Result<(), CodedError> {
    let path = run.join(SNAPSHOT_COPY_DIR);
    make_subdir(run_folder, &path, publisher, 0o755, &AllowedOwners::ANY)
        .with_code(&daemon::RUN_DIR_UNUSABLE, || format!("{}: cannot prepare", path.display()))?;
    Ok(())
}

/// Creates the directory of snapshots.
fn prepare_snapshot_dir(
    state_folder: &OwnedFd,
    state: &Path,
    publisher: Option<UserIds>,
) -> Result<(), CodedError> {
    let path = state.join(SNAPSHOT_DIR);
    make_subdir(state_folder, &path, publisher, 0o755, &AllowedOwners::for_role(publisher))
        .with_code(&daemon::STATE_DIR_UNUSABLE, || format!("{}: cannot prepare", path.display()))?;
    Ok(())
}

/// Creates the directory of caches. It belongs to root, so that no role can replace the directory of another one.
fn prepare_cache_root(state_folder: &OwnedFd, state: &Path) -> Result<OwnedFd, CodedError> {
    let path = state.join(DOMAIN_CACHE_DIR);
    make_subdir(state_folder, &path, None, 0o711, &AllowedOwners::for_role(None))
        .and_then(|_| Ok(fs::openat(state_folder, DOMAIN_CACHE_DIR, DIR_FLAGS, Mode::empty())?))
        .with_code(&daemon::STATE_DIR_UNUSABLE, || format!("{}: cannot prepare", path.display()))
}

/// Creates the subdirectory `path` of `parent` if needed. Rejects an existing one of other owners. Returns its state
/// before the change of owner. No role can write to `parent`, so the name continues to refer to this directory.
fn make_subdir(
    parent: &OwnedFd,
    path: &Path,
    owner: Option<UserIds>,
    mode: u32,
    owners: &AllowedOwners<'_>,
) -> anyhow::Result<Stat> {
    let name = path.file_name().unwrap_or_default();
    match fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let stat = fs::statat(parent, name, fs::AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        let text = format!("{}: not a directory", path.display());
        return Err(CodedError::new(&daemon::NOT_A_DIRECTORY, text).into());
    }
    let found = stat.st_uid;
    if !owners.allows(found) {
        let expected = owners.role.unwrap_or_else(own_uid);
        let text =
            format!("{}: belongs to uid {found}, which may have planted files", path.display());
        let fix = format!(
            "Move it away. If its content is correct, run `chown {expected}` on it instead."
        );
        return Err(CodedError::new(&daemon::SUBDIR_OWNER_UNEXPECTED, text).fix(fix).into());
    }
    let mut now = UserIds::from_stat(&stat);
    // On a read-only file system, a directory that is already correct is accepted.
    let may_change = own_uid() == 0 || found == own_uid();
    if may_change && stat.st_mode & 0o7777 != mode {
        // Only the owner may change the mode.
        if found != own_uid() {
            chown_entry(parent, name, ROOT_USER)?;
            now = ROOT_USER;
        }
        fs::chmodat(parent, name, Mode::from_raw_mode(mode), fs::AtFlags::empty())?;
    }
    let wanted = owner.unwrap_or(UserIds::from_stat(&stat));
    if now != wanted {
        chown_entry(parent, name, wanted)?;
    }
    Ok(stat)
}

/// Gives a subdirectory of a root-owned directory to root alone, and opens it.
fn seize_dir<P: Arg + Copy>(parent: &OwnedFd, name: P) -> anyhow::Result<OwnedFd> {
    chown_entry(parent, name, ROOT_USER)?;
    fs::chmodat(parent, name, Mode::from_raw_mode(0o700), fs::AtFlags::empty())?;
    Ok(fs::openat(parent, name, DIR_FLAGS, Mode::empty())?)
}

fn file_identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Returns the identity of a socket's file; `None` if it was removed, or for a port.
pub fn socket_file(place: &ListenAddress) -> Option<(u64, u64)> {
    match place {
        ListenAddress::Unix(path) => fs::lstat(path).ok().as_ref().map(file_identity),
        ListenAddress::Tcp(_) => None,
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn chown_file(file: impl AsFd, owner: UserIds) -> rustix::io::Result<()> {
    fs::fchown(file, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))
}

fn chown_entry<P: Arg>(folder: &OwnedFd, name: P, owner: UserIds) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    fs::chownat(folder, name, Some(uid), Some(gid), fs::AtFlags::SYMLINK_NOFOLLOW)
}

/// Gives a file in `folder` to `owner`. The directory belongs to root now; `before` is its earlier state. The file must
/// have belonged to the directory's owner and must have no second name, which would change its owner too. An earlier
/// transfer may be incomplete: then files belong to the new owner already. In a directory that root took, they still
/// belong to the earlier role, which the group of all roles shows.
fn transfer_file(
    folder: &OwnedFd,
    path: &Path,
    name: &CStr,
    before: &Stat,
    owner: UserIds,
) -> Result<(), CodedError> {
    let shown = || path.join(display_name(name)).display().to_string();
    let unusable = || format!("{}: cannot change the owner", shown());
    let stat = fs::statat(folder, name, fs::AtFlags::SYMLINK_NOFOLLOW)
        .with_code(&daemon::CACHE_DIR_UNUSABLE, unusable)?;
    let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let is_left = before.st_uid == ROOT_USER.uid && stat.st_gid == owner.gid;
    let is_own = [before.st_uid, owner.uid].contains(&stat.st_uid) || is_left;
    if !plain || stat.st_nlink != 1 || !is_own {
        let text = format!("{}: not a regular file of uid {}", shown(), before.st_uid);
        return Err(CodedError::new(&daemon::CACHE_FILE_FOREIGN, text));
    }
    chown_entry(folder, name, owner).with_code(&daemon::CACHE_DIR_UNUSABLE, unusable)
}

/// Locks the run-time directory. An error has the exit status.
fn lock_run_dir(run_folder: &OwnedFd, run: &Path) -> Result<File, (u8, CodedError)> {
    let path = run.join(LOCK_FILE);
    let how = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let unusable = || format!("{}: cannot write the lock file", path.display());
    let file = fs::openat(run_folder, LOCK_FILE, how, Mode::from_raw_mode(0o644))
        .with_code(&daemon::RUN_DIR_UNUSABLE, unusable)
        .map_err(|error| (CANNOT_CREATE, error))?;
    let mut file = File::from(file);
    if fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut pid = String::new();
        let _ = (&file).take(16).read_to_string(&mut pid);
        let text = format!("{}: another rosterd, process {}, uses it", run.display(), pid.trim());
        return Err((TEMPORARY, CodedError::new(&daemon::RUN_DIR_IN_USE, text)));
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .with_code(&daemon::RUN_DIR_UNUSABLE, unusable)
        .map_err(|error| (CANNOT_CREATE, error))?;
    Ok(file)
}

/// Removes the leftover of an earlier process at that path: only a socket or a link.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(stat) if stat.file_type().is_socket() || stat.file_type().is_symlink() => {
            Ok(std::fs::remove_file(path)?)
        }
        Ok(_) => {
            let text = format!("{}: exists and is not a socket", path.display());
            Err(CodedError::new(&daemon::SOCKET_PATH_OCCUPIED, text).into())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the names in a directory, in no particular order.
fn entry_names(folder: &OwnedFd, path: &Path) -> anyhow::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            if names.len() == FILES_MAX {
                let text = format!("{}: has more than {FILES_MAX} files", path.display());
                return Err(CodedError::new(&daemon::CACHE_FILES_TOO_MANY, text).into());
            }
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

fn display_name(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

/// Binds a socket that all users may connect to. The mode is set at creation. A user with write access to the directory
/// could redirect a later change of mode to another file.
fn bind_open(socket: &OwnedFd, path: &Path) -> anyhow::Result<()> {
    let before = rustix::process::umask(Mode::from_raw_mode(0o111));
    let bound = rustix::net::bind(socket, &SocketAddrUnix::new(path)?);
    rustix::process::umask(before);
    Ok(bound?)
}

/// Returns a listening socket that all users may connect to.
pub fn listen(place: &ListenAddress) -> Result<OwnedFd, CodedError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match place {
        ListenAddress::Unix(path) => {
            let socket = || -> anyhow::Result<OwnedFd> {
                remove_stale(path)?;
                let socket =
                    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                bind_open(&socket, path)?;
                // Clients have no descriptors to send. If the kernel cannot refuse them, another thread closes them.
                let _ = refuse_descriptors(&socket);
                rustix::net::listen(&socket, BACKLOG)?;
                Ok(socket)
            };
            socket()
                .with_code(&daemon::LISTEN_FAILED, || format!("{}: cannot listen", path.display()))
        }
        ListenAddress::Tcp(address) => {
            let listener = std::net::TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener.into())
            });
            listener.with_code(&daemon::LISTEN_FAILED, || format!("{address}: cannot listen"))
        }
    }
}

/// Removes a socket's file, so that no program connects to it any more.
pub fn remove_socket(place: &ListenAddress) {
    if let ListenAddress::Unix(path) = place {
        let _ = remove_stale(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn runtime_dirs_half_handed_cache_is_taken() {
        if own_uid() != 0 {
            eprintln!("skipped: files of other users take root");
            return;
        }
        let [gone, before, owner] = [64_910, 64_911, 64_912].map(|uid| UserIds { uid, gid: 900 });
        let stranger = UserIds { uid: 64_999, gid: 64_999 };
        for (folder_of, file_of, is_fine) in [
            (ROOT_USER, gone, true),
            (ROOT_USER, ROOT_USER, true),
            (before, owner, true),
            (before, before, true),
            (before, gone, false),
            (before, ROOT_USER, false),
            (ROOT_USER, stranger, false),
            (stranger, stranger, false),
            (stranger, ROOT_USER, false),
        ] {
            let state = tempfile::TempDir::new().unwrap();
            let domains = state.path().join(DOMAIN_CACHE_DIR);
            let (lab, file) = (domains.join("lab"), domains.join("lab/cache.redb"));
            std::fs::create_dir_all(&lab).unwrap();
            chown_file(File::create(&file).unwrap(), file_of).unwrap();
            chown_file(File::open(&lab).unwrap(), folder_of).unwrap();
            let folders = RuntimeDirs {
                state_dir: state.path().to_owned(),
                run_dir: state.path().to_owned(),
                domains: File::open(&domains).unwrap().into(),
                lock: tempfile::tempfile().unwrap(),
            };
            let backends = [before, gone].map(|ids| ids.uid).into();
            let handed = folders.prepare_cache_dir("lab", Some(owner), &backends);
            assert_eq!(handed.is_ok(), is_fine, "{folder_of:?} {file_of:?} {handed:?}");
            let uid = |path: &Path| path.symlink_metadata().unwrap().uid();
            assert_eq!(uid(&file) == owner.uid && uid(&lab) == owner.uid, is_fine);
        }
    }

    /// Creates a monitor's directories in a new place.
    fn taken(root: &Path) -> RuntimeDirs {
        let taken = RuntimeDirs::create_and_lock(&root.join("state"), &root.join("run"), None);
        taken.unwrap_or_else(|failure| panic!("{}", failure.errors))
    }

    #[test]
    fn folders_removed_are_made_again() {
        let root = tempfile::TempDir::new().unwrap();
        let mut folders = taken(root.path());
        std::fs::remove_dir_all(root.path().join("state/snap")).unwrap();
        std::fs::remove_dir_all(root.path().join("state/domains")).unwrap();
        std::fs::remove_dir_all(root.path().join("run")).unwrap();
        folders.recreate_state(None).unwrap();
        folders.recreate_run().unwrap();
        assert!(root.path().join("run").join(SNAPSHOT_COPY_DIR).is_dir());
        assert!(root.path().join("state/snap").is_dir());
        folders.prepare_cache_dir("lab", None, &BTreeSet::new()).unwrap();
        assert!(root.path().join("state/domains/lab").is_dir(), "it was made in the new folder");
        let pid = std::fs::read_to_string(root.path().join("run").join(LOCK_FILE)).unwrap();
        assert_eq!(pid, format!("{}\n", std::process::id()));
        // The locks hold, too.
        assert!(
            RuntimeDirs::create_and_lock(
                &root.path().join("state"),
                &root.path().join("run2"),
                None
            )
            .is_err()
        );
        assert!(
            RuntimeDirs::create_and_lock(
                &root.path().join("state2"),
                &root.path().join("run"),
                None
            )
            .is_err()
        );
    }

    #[test]
    fn folders_right_already_are_not_written() {
        let root = tempfile::TempDir::new().unwrap();
        drop(taken(root.path()));
        let changed = |name: &str| {
            let stat = root.path().join(name).metadata().unwrap();
            (stat.ctime(), stat.ctime_nsec())
        };
        let all = ["state", "state/snap", "state/domains"];
        let before = all.map(changed);
        drop(taken(root.path()));
        assert_eq!(all.map(changed), before);
    }

    #[test]
    fn folders_keytab_mark_is_found_again() {
        let state = tempfile::TempDir::new().unwrap();
        std::fs::create_dir(state.path().join(DOMAIN_CACHE_DIR)).unwrap();
        let folders = RuntimeDirs {
            state_dir: state.path().to_owned(),
            run_dir: state.path().to_owned(),
            domains: File::open(state.path().join(DOMAIN_CACHE_DIR)).unwrap().into(),
            lock: tempfile::tempfile().unwrap(),
        };
        assert!(!roster_config::was_keytab_used(&folders.state_dir));
        for _ in 0..2 {
            folders.mark_keytab().unwrap();
            assert!(roster_config::was_keytab_used(&folders.state_dir));
        }
    }

    #[test]
    fn runtime_dirs_sockets_open_files_private() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("metrics");
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let before = rustix::process::umask(Mode::from_raw_mode(0o077));
        bind_open(&socket, &path).unwrap();
        File::create(folder.path().join("file")).unwrap();
        rustix::process::umask(before);
        let mode = |name: &str| folder.path().join(name).symlink_metadata().unwrap().mode();
        assert_eq!(mode("metrics") & 0o777, 0o666);
        assert_eq!(mode("file") & 0o777, 0o600, "the umask is another now");
    }

    #[test]
    fn runtime_dirs_unusable_place_has_code() {
        type Prepare = fn(&Path);
        let long = "x".repeat(SOCKET_PATH_MAX);
        let nothing: Prepare = |_| {};
        let cases: [(&str, &str, Prepare, _); 5] = [
            ("state", "missing/run", nothing, &daemon::RUN_DIR_UNUSABLE),
            ("state", &long, nothing, &daemon::SOCKET_PATH_TOO_LONG),
            ("missing/state", "run", nothing, &daemon::STATE_DIR_UNUSABLE),
            (
                "state",
                "run",
                |root| {
                    let state = root.join("state");
                    std::fs::create_dir(&state).unwrap();
                    let writable = std::fs::Permissions::from_mode(0o777);
                    std::fs::set_permissions(state, writable).unwrap();
                },
                &daemon::DIR_WRITABLE_BY_OTHERS,
            ),
            (
                "state",
                "run",
                |root| {
                    std::fs::create_dir(root.join("state")).unwrap();
                    File::create(root.join("state/snap")).unwrap();
                },
                &daemon::NOT_A_DIRECTORY,
            ),
        ];
        for (state, run, prepare, message) in cases {
            let root = tempfile::TempDir::new().unwrap();
            prepare(root.path());
            let (state, run) = (root.path().join(state), root.path().join(run));
            let failure = RuntimeDirs::create_and_lock(&state, &run, None).err().unwrap();
            assert_eq!(failure.errors.0[0].message, message);
        }
        assert_eq!(absolute(Path::new("")).unwrap_err().message, &daemon::WORKING_DIR_MISSING);
    }

    #[test]
    fn runtime_dirs_unusable_cache_has_code() {
        let root = tempfile::TempDir::new().unwrap();
        let folders = taken(root.path());
        let domains = root.path().join("state/domains");
        std::fs::remove_dir(&domains).unwrap();
        let error = folders.prepare_cache_dir("lab", None, &BTreeSet::new()).unwrap_err();
        assert_eq!(error.message, &daemon::CACHE_DIR_UNUSABLE);
        for file in 0..=FILES_MAX {
            File::create(root.path().join(file.to_string())).unwrap();
        }
        let error = entry_names(&File::open(root.path()).unwrap().into(), &domains).unwrap_err();
        let error = error.downcast::<CodedError>().unwrap();
        assert_eq!(error.message, &daemon::CACHE_FILES_TOO_MANY);
    }

    #[test]
    fn runtime_dirs_socket_not_opened_has_code() {
        let root = tempfile::TempDir::new().unwrap();
        let file = root.path().join("file");
        File::create(&file).unwrap();
        let used = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for (place, message) in [
            (ListenAddress::Unix(file), &daemon::SOCKET_PATH_OCCUPIED),
            (ListenAddress::Unix(root.path().join("missing/socket")), &daemon::LISTEN_FAILED),
            (ListenAddress::Tcp(used.local_addr().unwrap()), &daemon::LISTEN_FAILED),
        ] {
            assert_eq!(listen(&place).unwrap_err().message, message, "{place:?}");
        }
    }
}
