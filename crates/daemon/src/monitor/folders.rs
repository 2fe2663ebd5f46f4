//! The folders and sockets that roles find when they start: who owns them, and that nobody else runs
//! in them.
//!
//! The state folder is root's, and so is the folder of caches in it; the folder of snapshots belongs to the
//! publisher, and the folder of a domain's cache to its back-end. Roles could have planted what is there, so
//! everything below is looked at one step at a time, without following symbolic links, and its owner is checked.
//! A folder of an unexpected owner is refused. A folder that changes hands is root's in between, so no role can
//! replace a file in it. The monitor needs the right to change owners, and none to override modes.

use super::users::Ids;
use crate::exit::{CANNOT_CREATE, Failure, Status, TEMPORARY};
use crate::role::{COPIES, DOMAINS, SNAPSHOTS};
use anyhow::{Context as _, anyhow, bail, ensure};
use roster_bus::names::SOCKET;
use roster_config::{KEYTAB_MARK, Listen};
use roster_descriptors::refuse;
use roster_nscd::server::socket::owner;
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
use tracing::warn;

/// Folder of the bus's socket in the run-time folder: the bus, which makes the socket, owns it, and only
/// roles and root get in. Who connects and says nothing takes a place that a role may need.
const BUS: &str = "dbus";
/// The lock of the run-time folder, with the monitor's process id in it.
const LOCK: &str = "rosterd.pid";
/// Longest path of a unix socket (unix(7)), without the NUL.
const SOCKET_PATH_MAX: usize = 107;
/// Files in a folder that changes hands: a back-end makes a few, one that is hijacked may make many.
const FILES_MAX: usize = 4096;
/// Whose what is nobody else's is.
const ROOT: Ids = Ids { uid: 0, gid: 0 };
/// Connections that may wait for being accepted.
const BACKLOG: i32 = 1024;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The daemon's folders, held against any other monitor.
pub struct Folders {
    /// The state folder.
    pub state: PathBuf,
    /// The run-time folder.
    pub run: PathBuf,
    domains: OwnedFd,
    lock: File,
}

impl Folders {
    /// Makes and takes both. `publisher` gets the folder of snapshots, if it has a user of its own.
    pub fn take(state: &Path, run: &Path, publisher: Option<Ids>) -> Result<Self, Failure> {
        let run_folder = make_folder(run, None, 0o002)
            .with_context(|| format!("cannot use {} for sockets; {HINT}", run.display()))
            .status(CANNOT_CREATE)?;
        let run = std::path::absolute(run).status(CANNOT_CREATE)?;
        let longest = run.join(BUS).join("socket");
        if longest.as_os_str().len() > SOCKET_PATH_MAX {
            let error = anyhow!(
                "{}: the path of a socket has at most {SOCKET_PATH_MAX} bytes; choose a --run-dir \
                 with a shorter path",
                longest.display(),
            );
            return Err(error).status(CANNOT_CREATE);
        }
        let lock = lock(&run_folder, &run)?;
        let state_folder = make_folder(state, None, 0o022)
            .with_context(|| format!("cannot keep state in {}; {HINT}", state.display()))
            .status(CANNOT_CREATE)?;
        let state = std::path::absolute(state).status(CANNOT_CREATE)?;
        subfolder(&state_folder, SNAPSHOTS, publisher, 0o755, &Owners::of(publisher))
            .with_context(|| format!("cannot use {}", state.join(SNAPSHOTS).display()))
            .status(CANNOT_CREATE)?;
        copies(&run_folder, &run, publisher).status(CANNOT_CREATE)?;
        let domains = domains(&state_folder)
            .with_context(|| format!("cannot use {}", state.join(DOMAINS).display()))
            .status(CANNOT_CREATE)?;
        if fs::flock(&domains, FlockOperation::NonBlockingLockExclusive).is_err() {
            let error = anyhow!(
                "another rosterd keeps its state in {}; stop it, or give this one another --state-dir",
                state.display(),
            );
            return Err(error).status(TEMPORARY);
        }
        Ok(Self { state, run, domains, lock })
    }

    /// Makes the folder of copies and those of the state folder again that were removed since the start, or that
    /// another file system hides. `publisher` gets the folders of snapshots and of copies.
    pub fn renew_state(&mut self, publisher: Option<Ids>) -> anyhow::Result<()> {
        self.renew_run()?;
        let run = fs::open(&self.run, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        copies(&run, &self.run, publisher)?;
        let renewed = || -> anyhow::Result<OwnedFd> {
            let state = make_folder(&self.state, None, 0o022)?;
            subfolder(&state, SNAPSHOTS, publisher, 0o755, &Owners::of(publisher))?;
            domains(&state)
        };
        let domains = renewed().with_context(|| format!("cannot use {}", self.state.display()))?;
        if identity(&fs::fstat(&domains)?) != identity(&fs::fstat(&self.domains)?) {
            fs::flock(&domains, FlockOperation::NonBlockingLockExclusive)?;
            self.domains = domains;
        }
        Ok(())
    }

    /// Makes the run-time folder and its lock again if they were removed.
    pub fn renew_run(&mut self) -> anyhow::Result<()> {
        let folder = make_folder(&self.run, None, 0o002)
            .with_context(|| format!("cannot use {} for sockets", self.run.display()))?;
        let named = fs::statat(&folder, LOCK, fs::AtFlags::SYMLINK_NOFOLLOW).ok();
        if named.as_ref().map(identity) != Some(identity(&fs::fstat(&self.lock)?)) {
            self.lock = lock(&folder, &self.run).map_err(|failure| failure.error)?;
        }
        Ok(())
    }

    /// Whether roles find the bus: its socket and the link to it.
    pub fn has_bus(&self) -> bool {
        let is_socket =
            |path: &Path| path.metadata().is_ok_and(|stat| stat.file_type().is_socket());
        is_socket(&self.bus_socket()) && is_socket(&self.run.join(SOCKET))
    }

    /// The folder of a domain's cache, belonging to who is given, who must not have a process yet:
    /// folders of other domains that it had in their place are root's from now on.
    /// `backends` are the uids of all back-ends, of which one had the folder before.
    pub fn cache(
        &self,
        domain: &str,
        owner: Option<Ids>,
        backends: &BTreeSet<u32>,
    ) -> anyhow::Result<()> {
        let path = self.state.join(DOMAINS).join(domain);
        let folder = || -> anyhow::Result<()> {
            let owners = Owners { backends, ..Owners::of(owner) };
            let before = subfolder(&self.domains, domain, None, 0o700, &owners)?;
            let Some(owner) = owner else { return Ok(()) };
            self.take_away(domain, owner)?;
            if (before.st_uid, before.st_gid) == (owner.uid, owner.gid) {
                return Ok(());
            }
            // The folder was made a moment ago, or its domain had another place and with it another
            // user: what is that user's own in it comes along.
            let folder = seize(&self.domains, domain)?;
            let handed = names(&folder).and_then(|names| {
                names.iter().try_for_each(|name| give_file(&folder, name, &before, owner))
            });
            let is_handed = handed.is_ok();
            give(&folder, if is_handed { owner } else { Ids::of(&before) })?;
            handed
        };
        folder().with_context(|| format!("cannot prepare the cache {}", path.display()))
    }

    /// Takes every folder but that of `domain` from `owner`. Their domains have other users now, who
    /// get them when they start, or are gone.
    fn take_away(&self, domain: &str, owner: Ids) -> anyhow::Result<()> {
        for name in names(&self.domains)? {
            let before = fs::statat(&self.domains, &name, fs::AtFlags::SYMLINK_NOFOLLOW)?;
            let is_folder = FileType::from_raw_mode(before.st_mode) == FileType::Directory;
            // Whatever else is there is nobody's cache.
            if name.to_bytes() == domain.as_bytes() || !is_folder || before.st_uid != owner.uid {
                continue;
            }
            // From here on nobody else gets at what is in it.
            let folder = seize(&self.domains, &name)?;
            for file in names(&folder)? {
                if let Err(error) = give_file(&folder, &file, &before, ROOT) {
                    warn!(
                        "in {}: {error:#}",
                        self.state.join(DOMAINS).join(shown(&name)).display()
                    );
                }
            }
        }
        Ok(())
    }

    /// Marks this host as one that has used a keytab, durably: `krb5_validate = "auto"` then never does
    /// without again. The mark lies in the directory of the caches, which is root's.
    pub fn mark_keytab(&self) -> std::io::Result<()> {
        if fs::statat(&self.domains, KEYTAB_MARK, fs::AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        let how = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mark = fs::openat(&self.domains, KEYTAB_MARK, how, Mode::from_raw_mode(0o644))?;
        fs::fsync(mark)?;
        Ok(fs::fsync(&self.domains)?)
    }

    /// Where the bus listens.
    pub fn bus_socket(&self) -> PathBuf {
        self.run.join(BUS).join("socket")
    }

    /// Prepares the place of the bus's socket, in a folder that belongs to the bus and to the group of
    /// all roles, and a link to it under the name that everybody uses.
    pub fn bus(&self, owner: Option<Ids>) -> anyhow::Result<()> {
        let prepared = || -> anyhow::Result<()> {
            let run = fs::open(&self.run, FOLDER, Mode::empty())?;
            let mode = if owner.is_some() { 0o710 } else { 0o700 };
            subfolder(&run, BUS, owner, mode, &Owners::ANY)?;
            let target = Path::new(BUS).join("socket");
            let link = self.run.join(SOCKET);
            if std::fs::read_link(&link).ok().as_deref() != Some(&target) {
                remove_stale(&link)?;
                symlink(&target, &link)?;
            }
            Ok(())
        };
        prepared().with_context(|| format!("cannot prepare {}", self.run.join(BUS).display()))
    }

    /// Writes a file that everybody may read.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.run.join(name);
        let fresh = self.run.join(format!(".{name}"));
        let write = || -> std::io::Result<()> {
            let _ = std::fs::remove_file(&fresh);
            let mut file = File::create_new(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
            std::fs::rename(&fresh, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// What to do when a folder cannot be made.
const HINT: &str = "name a folder that this user may write to, by --state-dir and --run-dir";

/// The folder of the maps that the responder in place of nscd hands out: its user's alone.
pub fn maps(path: &Path, owner: Option<Ids>) -> anyhow::Result<()> {
    let folder = || -> anyhow::Result<()> {
        let (parent, name) = path.parent().zip(path.file_name()).context("it has no name")?;
        let name = name.to_str().context("its name is no text")?;
        let parent = fs::open(parent, FOLDER, Mode::empty())?;
        let before = subfolder(&parent, name, None, 0o700, &Owners::ANY)?;
        let Some(owner) = owner else { return Ok(()) };
        if (before.st_uid, before.st_gid) == (owner.uid, owner.gid) {
            return Ok(());
        }
        let folder = seize(&parent, name)?;
        // Of another user before: programs have them mapped, and look for others after a while.
        for name in names(&folder)? {
            let file = fs::statat(&folder, &name, fs::AtFlags::SYMLINK_NOFOLLOW)?;
            if file.st_uid != owner.uid {
                fs::unlinkat(&folder, &name, fs::AtFlags::empty())?;
            }
        }
        Ok(give(&folder, owner)?)
    };
    folder().with_context(|| {
        format!("cannot keep maps in {} (see run-roster\\x2dnscd.mount)", path.display())
    })
}

/// Opens a folder, made if need be, with its owner. The path to it is the administrator's. One that
/// is there already keeps its rights, or is refused if `others` have rights on it or it is a
/// stranger's, who could put there what they like.
fn make_folder(path: &Path, owner: Option<Ids>, others: u32) -> anyhow::Result<OwnedFd> {
    match std::fs::create_dir(path) {
        Ok(()) => std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.into()),
    }
    let folder = fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fs::fstat(&folder)?;
    if stat.st_mode & others != 0 {
        let mode = stat.st_mode & 0o7777;
        bail!("others may write to it (mode {mode:04o}): chmod go-w, or name another");
    }
    let trusted = [Some(0), Some(own_uid()), owner.map(|owner| owner.uid)];
    if !trusted.contains(&Some(stat.st_uid)) {
        let wanted = owner.map_or(own_uid(), |owner| owner.uid);
        bail!("it belongs to uid {}: chown it to uid {wanted}, or name another", stat.st_uid);
    }
    if let Some(owner) = owner.filter(|owner| owner.uid != stat.st_uid) {
        give(&folder, owner)?;
    }
    Ok(folder)
}

/// Users whose folder the monitor uses when it finds one.
struct Owners<'a> {
    /// The role that gets the folder.
    role: Option<u32>,
    /// The users of back-ends, where one of them may have had it.
    backends: &'a BTreeSet<u32>,
    /// Any user: no role can write to the parent, and roles may have changed their users.
    any: bool,
}

impl Owners<'_> {
    const ANY: Owners<'static> = Owners { role: None, backends: &BTreeSet::new(), any: true };

    /// Root, the monitor's own user, and the role's.
    fn of(role: Option<Ids>) -> Self {
        Owners { role: role.map(|ids| ids.uid), any: false, ..Owners::ANY }
    }

    fn has(&self, uid: u32) -> bool {
        let own = [0, own_uid()].contains(&uid) || self.role == Some(uid);
        own || self.any || self.backends.contains(&uid)
    }
}

/// The folder of copies of the snapshot. The publisher may have had another user before.
fn copies(run_folder: &OwnedFd, run: &Path, publisher: Option<Ids>) -> anyhow::Result<()> {
    subfolder(run_folder, COPIES, publisher, 0o755, &Owners::ANY)
        .with_context(|| format!("cannot use {}", run.join(COPIES).display()))?;
    Ok(())
}

/// The folder of caches: root's, so that no role can put a folder in the place of another's.
fn domains(state: &OwnedFd) -> anyhow::Result<OwnedFd> {
    subfolder(state, DOMAINS, None, 0o711, &Owners::of(None))?;
    Ok(fs::openat(state, DOMAINS, FOLDER, Mode::empty())?)
}

/// Makes a folder in a folder if need be; refused if it is there and not of these owners. Gives what it was before it
/// got its owner. No role can write to `parent`, so the name stays that of this folder.
fn subfolder(
    parent: &OwnedFd,
    name: &str,
    owner: Option<Ids>,
    mode: u32,
    owners: &Owners<'_>,
) -> anyhow::Result<Stat> {
    match fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let stat = fs::statat(parent, name, fs::AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        bail!("{name} is no folder; remove it");
    }
    let found = stat.st_uid;
    if !owners.has(found) {
        let expected = owners.role.unwrap_or_else(own_uid);
        bail!(
            "{name} belongs to uid {found}, which may have planted files in it. Move it away; \
             if all in it is right, chown it to uid {expected}"
        );
    }
    let mut now = Ids::of(&stat);
    // On a read-only file system all that is right already is as good.
    let may_change = own_uid() == 0 || found == own_uid();
    if may_change && stat.st_mode & 0o7777 != mode {
        // The owner may do that.
        if found != own_uid() {
            give_name(parent, name, ROOT)?;
            now = ROOT;
        }
        fs::chmodat(parent, name, Mode::from_raw_mode(mode), fs::AtFlags::empty())?;
    }
    let wanted = owner.unwrap_or(Ids::of(&stat));
    if now != wanted {
        give_name(parent, name, wanted)?;
    }
    Ok(stat)
}

/// Makes a folder in a folder of root's root's alone, and opens it.
fn seize<P: Arg + Copy>(parent: &OwnedFd, name: P) -> anyhow::Result<OwnedFd> {
    give_name(parent, name, ROOT)?;
    fs::chmodat(parent, name, Mode::from_raw_mode(0o700), fs::AtFlags::empty())?;
    Ok(fs::openat(parent, name, FOLDER, Mode::empty())?)
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Which file has a socket's name; none where it was removed, or is on no file system.
pub fn socket_file(place: &Listen) -> Option<(u64, u64)> {
    match place {
        Listen::Unix(path) => fs::lstat(path).ok().as_ref().map(identity),
        Listen::Tcp(_) => None,
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn give(file: impl AsFd, owner: Ids) -> rustix::io::Result<()> {
    fs::fchown(file, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))
}

fn give_name<P: Arg>(folder: &OwnedFd, name: P, owner: Ids) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    fs::chownat(folder, name, Some(uid), Some(gid), fs::AtFlags::SYMLINK_NOFOLLOW)
}

/// Gives a file in `folder`, which is root's now and whose stat was `before`, to `owner`: one that was the folder's owner's
/// own, and has no other name under which it would change hands too. A folder may have been left half
/// handed over: files in it are the new owner's already or, in one that was taken away, still those of
/// the role that had it, which are known by the group that only roles have.
fn give_file(folder: &OwnedFd, name: &CStr, before: &Stat, owner: Ids) -> anyhow::Result<()> {
    let shown = shown(name);
    let stat = fs::statat(folder, name, fs::AtFlags::SYMLINK_NOFOLLOW)
        .with_context(|| format!("cannot look at {shown}"))?;
    let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let is_left = before.st_uid == ROOT.uid && stat.st_gid == owner.gid;
    let is_own = [before.st_uid, owner.uid].contains(&stat.st_uid) || is_left;
    if !plain || stat.st_nlink != 1 || !is_own {
        bail!("{shown} is no file of the user {}; remove it", before.st_uid);
    }
    Ok(give_name(folder, name, owner)?)
}

fn lock(run_folder: &OwnedFd, run: &Path) -> Result<File, Failure> {
    let path = run.join(LOCK);
    let how = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(run_folder, LOCK, how, Mode::from_raw_mode(0o644))
        .with_context(|| format!("cannot write {}; {HINT}", path.display()))
        .status(CANNOT_CREATE)?;
    let mut file = File::from(file);
    if fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut pid = String::new();
        let _ = (&file).take(16).read_to_string(&mut pid);
        let error = anyhow!(
            "another rosterd, process {}, serves {}; stop it, or give this one another --run-dir",
            pid.trim(),
            run.display(),
        );
        return Err(error).status(TEMPORARY);
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .with_context(|| format!("cannot write {}", path.display()))
        .status(CANNOT_CREATE)?;
    Ok(file)
}

/// Removes what an earlier process left at that path: a socket or a link, and nothing else.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(stat) if stat.file_type().is_socket() || stat.file_type().is_symlink() => {
            Ok(std::fs::remove_file(path)?)
        }
        Ok(_) => bail!("{} is there already and is no socket; remove it", path.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What stands in a folder, in no order.
fn names(folder: &OwnedFd) -> anyhow::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            ensure!(names.len() < FILES_MAX, "there are more than {FILES_MAX} files in it");
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

fn shown(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

/// Binds a socket that everybody may connect to. Its rights come with its making: whoever may write to
/// the folder could have a later change of them hit something else.
fn bind_open(socket: &OwnedFd, path: &Path) -> anyhow::Result<()> {
    let before = rustix::process::umask(Mode::from_raw_mode(0o111));
    let bound = rustix::net::bind(socket, &SocketAddrUnix::new(path)?);
    rustix::process::umask(before);
    Ok(bound?)
}

/// A listening socket, which everybody may connect to.
pub fn listen(place: &Listen) -> anyhow::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match place {
        Listen::Unix(path) => {
            let socket = || -> anyhow::Result<OwnedFd> {
                remove_stale(path)?;
                let socket =
                    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                bind_open(&socket, path)?;
                // Nobody has any to send; a kernel that cannot refuse them has them closed without waiting.
                let _ = refuse(&socket);
                rustix::net::listen(&socket, BACKLOG)?;
                Ok(socket)
            };
            socket().with_context(|| format!("cannot listen at {}", path.display()))
        }
        Listen::Tcp(address) => {
            let listener = std::net::TcpListener::bind(address)
                .with_context(|| format!("cannot listen at {address}"))?;
            listener.set_nonblocking(true)?;
            Ok(listener.into())
        }
    }
}

/// The same where other programs may serve: not if one does. `but` is a group whose members cannot
/// connect.
pub fn listen_alone(place: &Listen, but: Option<u32>) -> anyhow::Result<OwnedFd> {
    if let Listen::Unix(path) = place {
        if let Some(by) =
            owner(path).with_context(|| format!("cannot ask at {}", path.display()))?
        {
            bail!(
                "{} is served by {by}: stop that first, or take [responder.nscd] out",
                path.display()
            );
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            std::fs::create_dir(folder)
                .and_then(|()| {
                    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))
                })
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
    }
    let socket = listen(place)?;
    if let (Listen::Unix(path), Some(group)) = (place, but) {
        fs::chown(path, None, Some(Gid::from_raw(group)))
            .and_then(|()| fs::chmod(path, Mode::from_raw_mode(0o606)))
            .with_context(|| format!("cannot set the rights of {}", path.display()))?;
    }
    Ok(socket)
}

/// Takes a socket's name away, once nobody is to connect to it any more.
pub fn unlisten(place: &Listen) {
    if let Listen::Unix(path) = place {
        let _ = remove_stale(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_cache_that_was_left_half_handed_over_is_handed_over_and_a_strangers_file_is_not() {
        if own_uid() != 0 {
            eprintln!("skipped: files of other users take root");
            return;
        }
        let [gone, before, owner] = [64_910, 64_911, 64_912].map(|uid| Ids { uid, gid: 900 });
        let stranger = Ids { uid: 64_999, gid: 64_999 };
        for (folder_of, file_of, is_fine) in [
            (ROOT, gone, true),
            (ROOT, ROOT, true),
            (before, owner, true),
            (before, before, true),
            (before, gone, false),
            (before, ROOT, false),
            (ROOT, stranger, false),
            (stranger, stranger, false),
            (stranger, ROOT, false),
        ] {
            let state = tempfile::TempDir::new().unwrap();
            let domains = state.path().join(DOMAINS);
            let (lab, file) = (domains.join("lab"), domains.join("lab/cache.redb"));
            std::fs::create_dir_all(&lab).unwrap();
            give(File::create(&file).unwrap(), file_of).unwrap();
            give(File::open(&lab).unwrap(), folder_of).unwrap();
            let folders = Folders {
                state: state.path().to_owned(),
                run: state.path().to_owned(),
                domains: File::open(&domains).unwrap().into(),
                lock: tempfile::tempfile().unwrap(),
            };
            let backends = [before, gone].map(|ids| ids.uid).into();
            let handed = folders.cache("lab", Some(owner), &backends);
            assert_eq!(handed.is_ok(), is_fine, "{folder_of:?} {file_of:?} {handed:?}");
            let uid = |path: &Path| path.symlink_metadata().unwrap().uid();
            assert_eq!(uid(&file) == owner.uid && uid(&lab) == owner.uid, is_fine);
        }
    }

    /// A monitor's folders in a fresh place.
    fn taken(root: &Path) -> Folders {
        let taken = Folders::take(&root.join("state"), &root.join("run"), None);
        taken.unwrap_or_else(|failure| panic!("{:#}", failure.error))
    }

    #[test]
    fn folders_removed_are_made_again() {
        let root = tempfile::TempDir::new().unwrap();
        let mut folders = taken(root.path());
        std::fs::remove_dir_all(root.path().join("state/snap")).unwrap();
        std::fs::remove_dir_all(root.path().join("state/domains")).unwrap();
        std::fs::remove_dir_all(root.path().join("run")).unwrap();
        folders.renew_state(None).unwrap();
        folders.renew_run().unwrap();
        assert!(root.path().join("run").join(COPIES).is_dir());
        assert!(root.path().join("state/snap").is_dir());
        folders.cache("lab", None, &BTreeSet::new()).unwrap();
        assert!(root.path().join("state/domains/lab").is_dir(), "it was made in the new folder");
        let pid = std::fs::read_to_string(root.path().join("run").join(LOCK)).unwrap();
        assert_eq!(pid, format!("{}\n", std::process::id()));
        // And the locks hold.
        assert!(
            Folders::take(&root.path().join("state"), &root.path().join("run2"), None).is_err()
        );
        assert!(
            Folders::take(&root.path().join("state2"), &root.path().join("run"), None).is_err()
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
        std::fs::create_dir(state.path().join(DOMAINS)).unwrap();
        let folders = Folders {
            state: state.path().to_owned(),
            run: state.path().to_owned(),
            domains: File::open(state.path().join(DOMAINS)).unwrap().into(),
            lock: tempfile::tempfile().unwrap(),
        };
        assert!(!roster_config::was_keytab_used(&folders.state));
        for _ in 0..2 {
            folders.mark_keytab().unwrap();
            assert!(roster_config::was_keytab_used(&folders.state));
        }
    }

    #[test]
    fn a_socket_is_open_to_all_from_its_first_moment_and_files_are_not() {
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
}
