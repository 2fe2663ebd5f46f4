//! Tells when files may have changed: put in place of others, or written and closed. Who writes a file
//! in place empties it first, so a file is not looked at while somebody writes it. Changes on the way
//! of symbolic links are found when the files are looked at from time to time.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::collections::HashMap;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where other services say that they have come or gone, or whom they know: nss-systemd's, and homed's.
const OF_OTHERS: [&str; 5] = [
    "/run/systemd/dynamic-uid",
    "/run/systemd/userdb",
    "/run/userdb",
    "/etc/userdb",
    "/var/lib/systemd/home",
];

/// Where one of those folders comes only with the first user that it tells of.
const OF_SYSTEMD: &str = "/run/systemd";

/// What may have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// A file that maps are made of.
    pub files: bool,
    /// What other services know.
    pub others: bool,
}

/// A watch on files, by the folders that they are in.
pub struct Watch {
    inotify: OwnedFd,
    files: Vec<PathBuf>,
    names: HashMap<i32, Vec<OsString>>,
    others: Vec<i32>,
    systemd: Option<i32>,
}

impl Watch {
    /// Watches the files, whether they are there or not.
    pub fn new(files: &[&Path]) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let files = files.iter().map(|path| path.to_path_buf()).collect();
        let mut watch =
            Self { inotify, files, names: HashMap::new(), others: Vec::new(), systemd: None };
        watch.renew();
        Ok(watch)
    }

    /// Watches folders that came meanwhile, too, and where links lead now.
    pub fn renew(&mut self) {
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
        self.others = OF_OTHERS.into_iter().filter_map(add).collect();
        let folders = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        self.systemd = inotify::add_watch(&self.inotify, Path::new(OF_SYSTEMD), folders).ok();
    }

    /// Takes what happened since the last time.
    pub fn news(&mut self) -> News {
        let mut news = News::default();
        let mut has_come = false;
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut room);
        while let Ok(event) = events.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                news = News { files: true, others: true };
            }
            if self.others.contains(&event.wd()) {
                news.others = true;
            }
            if self.systemd == Some(event.wd()) && event.events().contains(ReadFlags::ISDIR) {
                let path = event.file_name().map(|name| Path::new(OF_SYSTEMD).join(as_path(name)));
                has_come |=
                    path.is_some_and(|path| OF_OTHERS.iter().any(|&of| Path::new(of) == path));
            }
            let (Some(names), Some(name)) = (self.names.get(&event.wd()), event.file_name()) else {
                continue;
            };
            news.files |= names.iter().any(|known| known.as_bytes() == name.to_bytes());
        }
        if has_come {
            news.others = true;
            self.renew();
        }
        news
    }
}

fn as_path(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
