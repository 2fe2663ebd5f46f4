//! Tells when files may have changed: written in place, replaced, removed, come back, and the same of
//! every folder and symbolic link on the way to them; and when a mount brings others in their place. It
//! says when to look and whether anybody wrote, never what is there. Not seen are changes in folders that this user may not list.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags, open};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout_at};

/// A change is told when nothing more has come for so long: whoever writes in place writes several
/// times.
const QUIET: Duration = Duration::from_millis(20);
/// But after this time in any case.
const QUIET_MAX: Duration = Duration::from_millis(200);
/// What tells that somebody wrote, or that there is no telling.
const WRITTEN: ReadFlags = ReadFlags::MODIFY
    .union(ReadFlags::CLOSE_WRITE)
    .union(ReadFlags::CREATE)
    .union(ReadFlags::QUEUE_OVERFLOW);
/// The mounts that this process sees; the kernel marks it as urgent when there are others.
const MOUNTS: &str = "/proc/self/mountinfo";
/// Symbolic links followed on the way to a file.
const LINKS_MAX: usize = 16;

/// How files came to be others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Whole ones were put in their place, or something about them changed that is not what they hold.
    Replaced,
    /// Somebody wrote, and may write on.
    Written,
}

/// A watch on some files.
pub struct Watch {
    inotify: AsyncFd<OwnedFd>,
    /// [`MOUNTS`]; none where there is no /proc.
    mounts: Option<AsyncFd<OwnedFd>>,
    files: Vec<PathBuf>,
    /// Descriptors of all that is watched.
    watched: HashSet<i32>,
    /// By descriptor of a watched folder, the names in it that matter; none for a watched file.
    names: HashMap<i32, Vec<OsString>>,
    /// Somebody wrote since the last change was told.
    is_written: bool,
}

impl Watch {
    /// Watches the files, whether they are there or not.
    pub fn new(files: impl IntoIterator<Item = PathBuf>) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let inotify = register(inotify, Interest::READABLE)?;
        let mounts = open(MOUNTS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let mounts = mounts.ok().and_then(|mounts| register(mounts, Interest::PRIORITY).ok());
        let files = files.into_iter().collect();
        let (watched, names, is_written) = (HashSet::new(), HashMap::new(), false);
        let mut watch = Self { inotify, mounts, files, watched, names, is_written };
        watch.renew();
        Ok(watch)
    }

    /// Returns when a file may have changed since the last time, or since the watch was made. Cancel
    /// safe but for the wait until it is quiet.
    pub async fn changed(&mut self) -> Change {
        while !self.wait().await {}
        let end = Instant::now() + QUIET_MAX;
        while timeout_at(end.min(Instant::now() + QUIET), self.wait()).await.is_ok() {
            if Instant::now() >= end {
                break;
            }
        }
        self.renew();
        match std::mem::take(&mut self.is_written) {
            true => Change::Written,
            false => Change::Replaced,
        }
    }

    /// Waits for events; whether one of them matters. Of mounts only those do by which something else is
    /// to be watched.
    async fn wait(&mut self) -> bool {
        let (matters, is_written) = tokio::select! {
            told = self.wait_for_names() => told,
            () = mounted(self.mounts.as_ref()) => (self.renew(), false),
        };
        self.is_written |= is_written;
        matters
    }

    /// Whether somebody has written since the last change was told, without waiting for anything. That counts
    /// as told; [`changed`](Self::changed) tells of it once more if it goes on.
    pub fn was_written(&mut self) -> bool {
        self.is_written |= self.read_events().1;
        std::mem::take(&mut self.is_written)
    }

    /// Waits for events of what is watched; whether one of them matters, and whether somebody wrote.
    async fn wait_for_names(&self) -> (bool, bool) {
        let Ok(mut ready) = self.inotify.readable().await else {
            // The reactor is going down, and the process with it.
            return std::future::pending().await;
        };
        let read = self.read_events();
        ready.clear_ready();
        read
    }

    /// The same of the events that are there.
    fn read_events(&self) -> (bool, bool) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
        let (mut matters, mut is_written) = (false, false);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => break,
            };
            // What is watched no longer says so.
            if event.events().contains(ReadFlags::IGNORED) {
                continue;
            }
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            let is_ours = event.events().contains(ReadFlags::QUEUE_OVERFLOW)
                || match (self.names.get(&event.wd()), name) {
                    (Some(names), Some(name)) => names.iter().any(|known| known == name),
                    _ => true,
                };
            matters |= is_ours;
            is_written |= is_ours && event.events().intersects(WRITTEN);
        }
        (matters, is_written)
    }

    /// Watches every step to every file as it is now, and nothing else; whether that is something else
    /// than before. A folder or file that is watched already keeps its descriptor.
    fn renew(&mut self) -> bool {
        self.names.clear();
        let before = std::mem::take(&mut self.watched);
        for file in self.files.clone() {
            self.follow(&file);
        }
        for left in before.difference(&self.watched) {
            let _ = inotify::remove_watch(self.inotify.get_ref(), *left);
        }
        before != self.watched
    }

    /// Watches each name of a path in its folder, those of what links lead to, and the file in the end.
    /// Behind a name that is not there is nothing to watch.
    fn follow(&mut self, file: &Path) {
        let mut folder = PathBuf::from(if file.is_absolute() { "/" } else { "." });
        let mut left = names(file);
        let mut links = 0;
        while let Some(name) = left.pop() {
            if name == ".." {
                folder.push(name);
                continue;
            }
            self.add_name(&folder, &name);
            let step = folder.join(name);
            match std::fs::read_link(&step) {
                Ok(target) if links < LINKS_MAX => {
                    links += 1;
                    if target.is_absolute() {
                        folder = PathBuf::from("/");
                    }
                    left.extend(names(&target));
                }
                Ok(_) => return,
                Err(_) if left.is_empty() => self.add_file(&step),
                Err(_) => folder = step,
            }
        }
    }

    fn add_name(&mut self, folder: &Path, name: &OsStr) {
        let comings = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        if let Ok(wd) = inotify::add_watch(self.inotify.get_ref(), folder, comings) {
            self.watched.insert(wd);
            self.names.entry(wd).or_default().push(name.to_owned());
        }
    }

    fn add_file(&mut self, file: &Path) {
        let changes = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB;
        if let Ok(wd) = inotify::add_watch(self.inotify.get_ref(), file, changes) {
            self.watched.insert(wd);
        }
    }
}

fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // Its successor is unsafe for the sake of types whose descriptor may change; that of an `OwnedFd`
    // does not.
    #[expect(deprecated)]
    AsyncFd::with_interest(descriptor, interest)
}

/// Returns when something was mounted or unmounted; never where that cannot be told.
async fn mounted(mounts: Option<&AsyncFd<OwnedFd>>) {
    let told = match mounts {
        Some(mounts) => mounts.ready(Interest::PRIORITY).await,
        None => return std::future::pending().await,
    };
    match told {
        Ok(mut ready) => ready.clear_ready(),
        Err(_) => std::future::pending().await,
    }
}

/// The names that a path is made of, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    names.collect()
}

/// [`Watch::changed`] of a watch that there may be; for ever where there is none.
pub async fn changed(watch: Option<&mut Watch>) -> Change {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    async fn seen(watch: &mut Watch) -> Option<Change> {
        tokio::time::timeout(Duration::from_secs(2), watch.changed()).await.ok()
    }

    async fn is_seen(watch: &mut Watch) -> bool {
        seen(watch).await.is_some()
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
        assert_eq!(seen(&mut watch).await, Some(Change::Replaced));
        fs::write(&file, "d").expect("write in place");
        assert_eq!(seen(&mut watch).await, Some(Change::Written), "the new file, in place");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
        assert_eq!(seen(&mut watch).await, Some(Change::Replaced), "nobody wrote");
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

    #[tokio::test]
    async fn folders_and_links_on_the_way_are_watched_and_those_left_behind_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for version in ["v1", "v2"] {
            fs::create_dir_all(path(version).join("lab")).expect("create");
            fs::write(path(version).join("lab/passwd"), version).expect("write");
        }
        std::os::unix::fs::symlink("v1", path("current")).expect("link");
        let mut watch = Watch::new([path("current/lab/passwd")]).expect("a watch");
        assert!(is_quiet(&mut watch).await);
        // As `ln -sfn` and most that deploys does it.
        std::os::unix::fs::symlink("v2", path("new")).expect("link");
        fs::rename(path("new"), path("current")).expect("rename");
        assert!(is_seen(&mut watch).await, "the link leads elsewhere");
        fs::write(path("v2/lab/passwd"), "again").expect("write");
        assert!(is_seen(&mut watch).await, "written where it leads now");
        fs::write(path("v1/lab/passwd"), "again").expect("write");
        assert!(is_quiet(&mut watch).await, "where it led before");
        fs::create_dir(path("lab.new")).expect("create");
        fs::write(path("lab.new/passwd"), "c").expect("write");
        assert!(is_quiet(&mut watch).await, "beside");
        fs::rename(path("v2/lab"), path("v2/lab.old")).expect("rename");
        fs::rename(path("lab.new"), path("v2/lab")).expect("rename");
        assert!(is_seen(&mut watch).await, "another folder took the place");
        fs::write(path("v2/lab/passwd"), "d").expect("write");
        assert!(is_seen(&mut watch).await, "written there");
    }
}
