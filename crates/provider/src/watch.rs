//! Tells when files may have changed: written in place, replaced, removed, come back, reached over
//! another symbolic link. It says when to look, never what is there.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout_at};

/// A change is told when nothing more has come for so long: whoever writes in place writes several
/// times.
const QUIET: Duration = Duration::from_millis(20);
/// But after this time in any case.
const QUIET_MAX: Duration = Duration::from_millis(200);
/// Symbolic links followed on the way to a file.
const LINKS_MAX: usize = 16;

/// A watch on some files.
pub struct Watch {
    inotify: AsyncFd<OwnedFd>,
    files: Vec<PathBuf>,
    /// By descriptor of a watched folder, the names in it that matter; none for a watched file.
    names: HashMap<i32, Vec<OsString>>,
}

impl Watch {
    /// Watches the files, whether they are there or not.
    pub fn new(files: impl IntoIterator<Item = PathBuf>) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // Its successor is unsafe for the sake of types whose descriptor may change; that of an
        // `OwnedFd` does not.
        #[expect(deprecated)]
        let inotify = AsyncFd::new(inotify)?;
        let files = files.into_iter().collect();
        let mut watch = Self { inotify, files, names: HashMap::new() };
        watch.renew();
        Ok(watch)
    }

    /// Returns when a file may have changed since the last time, or since the watch was made. Cancel
    /// safe but for the wait until it is quiet.
    pub async fn changed(&mut self) {
        while !self.wait().await {}
        let end = Instant::now() + QUIET_MAX;
        while timeout_at(end.min(Instant::now() + QUIET), self.wait()).await.is_ok() {
            if Instant::now() >= end {
                break;
            }
        }
        self.renew();
    }

    /// Waits for events; whether one of them matters.
    async fn wait(&mut self) -> bool {
        let Ok(mut ready) = self.inotify.readable().await else {
            // The reactor is going down, and the process with it.
            return std::future::pending().await;
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(ready.get_inner(), &mut buffer);
        let mut matters = false;
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => break,
            };
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            matters |= event.events().contains(ReadFlags::QUEUE_OVERFLOW)
                || match (self.names.get(&event.wd()), name) {
                    (Some(names), Some(name)) => names.iter().any(|known| known == name),
                    _ => true,
                };
        }
        ready.clear_ready();
        matters
    }

    /// Watches every step to every file as it is now. What is watched already stays so.
    fn renew(&mut self) {
        self.names.clear();
        for file in self.files.clone() {
            let mut step = file;
            for _ in 0..LINKS_MAX {
                self.add(&step);
                let Ok(target) = std::fs::read_link(&step) else { break };
                step = step.parent().unwrap_or(Path::new("/")).join(target);
            }
        }
    }

    /// Watches one file and its folder, or the nearest folder above that there is.
    fn add(&mut self, file: &Path) {
        let changes = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB;
        let _ = inotify::add_watch(self.inotify.get_ref(), file, changes);
        let comings = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        let mut name = file.file_name();
        for folder in file.ancestors().skip(1) {
            let folder = if folder == Path::new("") { Path::new(".") } else { folder };
            if let Ok(wd) = inotify::add_watch(self.inotify.get_ref(), folder, comings) {
                self.names.entry(wd).or_default().extend(name.map(OsStr::to_owned));
                return;
            }
            name = folder.file_name();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    async fn is_seen(watch: &mut Watch) -> bool {
        tokio::time::timeout(Duration::from_secs(2), watch.changed()).await.is_ok()
    }

    async fn is_quiet(watch: &mut Watch) -> bool {
        tokio::time::timeout(Duration::from_millis(300), watch.changed()).await.is_err()
    }

    #[tokio::test]
    async fn every_way_to_change_a_file_is_seen_and_other_files_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("passwd");
        fs::write(&file, "a").expect("write");
        let mut watch = Watch::new([file.clone()]).expect("a watch");
        assert!(is_quiet(&mut watch).await);
        fs::write(&file, "b").expect("write in place");
        assert!(is_seen(&mut watch).await, "written in place");
        let new = folder.path().join("passwd.new");
        fs::write(&new, "c").expect("write beside");
        assert!(is_quiet(&mut watch).await, "another file");
        fs::rename(&new, &file).expect("rename");
        assert!(is_seen(&mut watch).await, "replaced");
        fs::write(&file, "d").expect("write in place");
        assert!(is_seen(&mut watch).await, "the new file written in place");
        fs::remove_file(&file).expect("remove");
        assert!(is_seen(&mut watch).await, "removed");
        fs::write(&file, "e").expect("write");
        assert!(is_seen(&mut watch).await, "back again");
    }

    #[tokio::test]
    async fn a_file_behind_a_link_and_a_folder_that_is_not_there_yet_are_watched() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("a/real");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&target, &link).expect("link");
        let mut watch = Watch::new([link.clone()]).expect("a watch");
        fs::create_dir(folder.path().join("a")).expect("create");
        assert!(is_seen(&mut watch).await, "the folder came");
        fs::write(&target, "a").expect("write");
        assert!(is_seen(&mut watch).await, "the target came");
        fs::remove_file(&link).expect("remove");
        assert!(is_seen(&mut watch).await, "the link went");
    }
}
