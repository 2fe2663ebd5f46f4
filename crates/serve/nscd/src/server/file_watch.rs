// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports possible changes of files: a replacement, or a close after a write. A writer in place truncates the file
//! first, so a write is reported only when the file is closed. The periodic check finds changes of symbolic links in
//! the path. `map_rebuild` decides about a rebuild.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::collections::HashMap;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories in which other services publish their presence or their users: nss-systemd and homed.
const SERVICE_PATHS: [&str; 5] = [
    "/run/systemd/dynamic-uid",
    "/run/systemd/userdb",
    "/run/userdb",
    "/etc/userdb",
    "/var/lib/systemd/home",
];

/// Parent of those directories that are created with their first user.
const SYSTEMD_DIR: &str = "/run/systemd";

/// Kinds of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchEvents {
    /// A source file of the maps may have changed.
    pub files: bool,
    /// The entries of other services may have changed.
    pub services: bool,
}

/// A watch on files, through their directories.
pub struct FileWatch {
    inotify: OwnedFd,
    files: Vec<PathBuf>,
    names: HashMap<i32, Vec<OsString>>,
    service_watches: Vec<i32>,
    systemd: Option<i32>,
}

impl FileWatch {
    /// Watches the files. They need not exist.
    pub fn new(files: &[&Path]) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let files = files.iter().map(|path| path.to_path_buf()).collect();
        let mut watch = Self {
            inotify,
            files,
            names: HashMap::new(),
            service_watches: Vec::new(),
            systemd: None,
        };
        watch.refresh();
        Ok(watch)
    }

    /// Adds new directories and new targets of symbolic links.
    pub fn refresh(&mut self) {
        let what = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM;
        let what = what | WatchFlags::DELETE | WatchFlags::ATTRIB;
        self.names.clear();
        for file in &self.files {
            let end = std::fs::canonicalize(file).ok();
            for path in [Some(file), end.as_ref()].into_iter().flatten() {
                let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                    continue;
                };
                if let Ok(watch) = inotify::add_watch(&self.inotify, folder, what) {
                    let names = self.names.entry(watch).or_default();
                    if !names.iter().any(|known| known == name) {
                        names.push(name.to_owned());
                    }
                }
            }
        }
        let what = what | WatchFlags::CREATE;
        let add = |folder| inotify::add_watch(&self.inotify, Path::new(folder), what).ok();
        self.service_watches = SERVICE_PATHS.into_iter().filter_map(add).collect();
        let folders = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        self.systemd = inotify::add_watch(&self.inotify, Path::new(SYSTEMD_DIR), folders).ok();
    }

    /// Reads all events since the last call.
    pub fn read_events(&mut self) -> WatchEvents {
        let mut news = WatchEvents::default();
        let mut has_come = false;
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut room);
        while let Ok(event) = events.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                news = WatchEvents { files: true, services: true };
            }
            if self.service_watches.contains(&event.wd()) {
                news.services = true;
            }
            if self.systemd == Some(event.wd()) && event.events().contains(ReadFlags::ISDIR) {
                let path = event.file_name().map(|name| Path::new(SYSTEMD_DIR).join(as_path(name)));
                has_come |=
                    path.is_some_and(|path| SERVICE_PATHS.iter().any(|&of| Path::new(of) == path));
            }
            let (Some(names), Some(name)) = (self.names.get(&event.wd()), event.file_name()) else {
                continue;
            };
            news.files |= names.iter().any(|known| known.as_bytes() == name.to_bytes());
        }
        if has_come {
            news.services = true;
            self.refresh();
        }
        news
    }
}

fn as_path(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
