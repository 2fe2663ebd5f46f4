// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resources that a server needs before it can serve: the locked map directory and the event sources. The parent module
//! `server` serves with them.

use super::file_watch::FileWatch;
use super::{
    BUILDER, LISTENER, MapDirProblem, STARTER, STOP, ServerError, ServerOptions, WATCH, add,
};
use crate::starter::Starter;
use rustix::event::epoll;
use rustix::fs::{FlockOperation, Mode, OFlags, StatVfsMountFlags, flock, open};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

pub struct ServerSetup {
    pub lock: OwnedFd,
    pub poll: OwnedFd,
    pub watch: FileWatch,
    pub wakeup: (UnixStream, UnixStream),
    /// Whether the map directory shares its file system with its parent.
    pub is_shared: bool,
    /// The map directory through a read-only mount.
    pub read_only: Option<OwnedFd>,
    /// Maps of an earlier server.
    pub inherited_maps: Vec<PathBuf>,
}

impl ServerSetup {
    pub fn new(options: &ServerOptions, starter: &Starter) -> Result<Self, ServerError> {
        let lock = lock_map_dir(&options.maps)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let watch = FileWatch::new(&options.files.paths())?;
        let bell = UnixStream::pair()?;
        bell.0.set_nonblocking(true)?;
        bell.1.set_nonblocking(true)?;
        add(&poll, options.listener.as_fd(), LISTENER)?;
        add(&poll, watch.as_fd(), WATCH)?;
        add(&poll, options.stop.as_fd(), STOP)?;
        add(&poll, bell.0.as_fd(), BUILDER)?;
        add(&poll, starter.as_fd(), STARTER)?;
        let left = std::fs::read_dir(&options.maps)?.map(|entry| Ok(entry?.path()));
        let left = left.collect::<io::Result<_>>()?;
        let device = |path: &Path| Ok::<_, io::Error>(rustix::fs::stat(path)?.st_dev);
        let is_shared = device(&options.maps)? == device(&options.maps.join(".."))?;
        let read_only = read_only(&options.maps, &lock);
        Ok(Self { lock, poll, watch, wakeup: bell, is_shared, read_only, inherited_maps: left })
    }
}

/// Returns the mount point for a read-only mount of the map directory.
pub fn read_only_mount_point(maps: &Path) -> Option<PathBuf> {
    Some(maps.parent()?.join("roster-read-only").join(maps.file_name()?))
}

/// Opens the directory through its read-only mount. The kernel rejects every attempt to reopen such a descriptor for
/// writing. The file mode alone would allow it to root of a container.
fn read_only(maps: &Path, folder: &OwnedFd) -> Option<OwnedFd> {
    let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = open(read_only_mount_point(maps)?, how, Mode::empty()).ok()?;
    let [there, here] = [&place, folder].map(rustix::fs::fstat);
    let (there, here) = (there.ok()?, here.ok()?);
    let is_same = (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino);
    let flags = rustix::fs::fstatvfs(&place).ok()?.f_flag;
    (is_same && flags.contains(StatVfsMountFlags::RDONLY)).then_some(place)
}

/// Locks the map directory for this process. It must belong to this user with mode 0700.
fn lock_map_dir(path: &Path) -> Result<OwnedFd, ServerError> {
    let wrong = |problem| ServerError::MapDir { path: path.to_owned(), problem };
    let failed = |error: io::Error| wrong(MapDirProblem::System(error));
    match std::fs::create_dir(path) {
        Ok(()) => {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(path, mode).map_err(failed)?;
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, how, Mode::empty()).map_err(|error| failed(error.into()))?;
    let stat = rustix::fs::fstat(&folder).map_err(|error| failed(error.into()))?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        return Err(wrong(MapDirProblem::Access));
    }
    flock(&folder, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| wrong(MapDirProblem::Locked))?;
    Ok(folder)
}
