//! What a server needs before it can serve: the folder of maps for itself, and where it waits for events.

use super::watch::Watch;
use super::{BUILDER, LISTENER, Options, STARTER, STOP, ServerError, WATCH, add};
use crate::starter::Starter;
use rustix::event::epoll;
use rustix::fs::{FlockOperation, Mode, OFlags, StatVfsMountFlags, flock, open};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// What the system has to give before anything can be served.
pub struct Ground {
    pub lock: OwnedFd,
    pub poll: OwnedFd,
    pub watch: Watch,
    pub bell: (UnixStream, UnixStream),
    /// Whether other files lie beside the folder, in the same file system.
    pub is_shared: bool,
    /// The folder of maps by way of a read-only mount.
    pub read_only: Option<OwnedFd>,
    /// Maps of a server before.
    pub left: Vec<PathBuf>,
}

impl Ground {
    pub fn new(options: &Options, starter: &Starter) -> Result<Self, ServerError> {
        let lock = take_folder(&options.maps)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let watch = Watch::new(&options.files.paths())?;
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
        Ok(Self { lock, poll, watch, bell, is_shared, read_only, left })
    }
}

/// The place for a read-only mount of the folder of maps.
pub fn read_only_place(maps: &Path) -> Option<PathBuf> {
    Some(maps.parent()?.join("roster-read-only").join(maps.file_name()?))
}

/// The open folder by way of a read-only mount. The kernel refuses all users to reopen a descriptor from there for
/// writing. The file's mode alone would let root of a container reopen it.
fn read_only(maps: &Path, folder: &OwnedFd) -> Option<OwnedFd> {
    let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = open(read_only_place(maps)?, how, Mode::empty()).ok()?;
    let [there, here] = [&place, folder].map(rustix::fs::fstat);
    let (there, here) = (there.ok()?, here.ok()?);
    let is_same = (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino);
    let flags = rustix::fs::fstatvfs(&place).ok()?.f_flag;
    (is_same && flags.contains(StatVfsMountFlags::RDONLY)).then_some(place)
}

/// Takes the folder of maps for this process alone. It must be this user's own, and nobody else's.
fn take_folder(path: &Path) -> Result<OwnedFd, ServerError> {
    let wrong = |why: String| ServerError::Folder { path: path.to_owned(), why };
    match std::fs::create_dir(path) {
        Ok(()) => {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(path, mode).map_err(|error| wrong(error.to_string()))?;
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(wrong(error.to_string())),
    }
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, how, Mode::empty()).map_err(|error| wrong(error.to_string()))?;
    let stat = rustix::fs::fstat(&folder).map_err(|error| wrong(error.to_string()))?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        return Err(wrong("it must belong to this user, with mode 0700".to_owned()));
    }
    flock(&folder, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| wrong("another process does".to_owned()))?;
    Ok(folder)
}
