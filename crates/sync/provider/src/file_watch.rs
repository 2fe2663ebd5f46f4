// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports possible changes of files: written in place, replaced, removed or created. The same holds for each directory
//! and symbolic link on the path to a file, and for mounts over it. A report states that the files should be read, and
//! whether they were written in place, but not their content. Changes are invisible in directories that this user may
//! not list. `files` reads the files, and `stable_file` decides whether they are complete.
//!
//! A new target of a path is watched as soon as the event is taken from the queue. A change is retained until it is
//! reported, so that a wait can be cancelled at any point without loss.

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

/// A change is reported after this time without another one, because a write in place has several events.
const QUIET: Duration = Duration::from_millis(20);
/// Limit of the delay of a report.
const QUIET_MAX: Duration = Duration::from_millis(200);
/// Events of a file that keeps its name.
const IN_PLACE: ReadFlags = ReadFlags::MODIFY.union(ReadFlags::CLOSE_WRITE);
/// Events of a write, and of lost events.
const WRITTEN: ReadFlags = IN_PLACE.union(ReadFlags::CREATE).union(ReadFlags::QUEUE_OVERFLOW);
/// The mounts of this process. The kernel signals changes as urgent data.
const MOUNTS: &str = "/proc/self/mountinfo";
/// Limit of the symbolic links on the path to a file.
const LINKS_MAX: usize = 16;

/// The kind of a change of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileChange {
    /// Complete files were put in their place, or only attributes changed.
    Replaced,
    /// Files were written and may still be incomplete, or that is unknown.
    Written,
}

/// A watch on some files.
pub struct FileWatch {
    inotify: AsyncFd<OwnedFd>,
    /// [`MOUNTS`]. `None` without /proc.
    mounts: Option<AsyncFd<OwnedFd>>,
    files: Vec<PathBuf>,
    /// Descriptors of all watches.
    watched: HashSet<i32>,
    /// The relevant names in each watched directory, by its descriptor. A watched file has none.
    names: HashMap<i32, Vec<OsString>>,
    /// The change that was not reported yet.
    pending: Option<PendingChange>,
}

/// A change that is reported after a quiet time.
#[derive(Clone, Copy)]
struct PendingChange {
    change: FileChange,
    first: Instant,
    last: Instant,
}

impl PendingChange {
    fn due(&self) -> Instant {
        (self.last + QUIET).min(self.first + QUIET_MAX)
    }
}

/// The last step on the path to a watched file.
struct WatchedPath {
    /// The directory's descriptor, if it could be watched, and the name in it.
    dir: Option<i32>,
    name: OsString,
    file: i32,
}

impl FileWatch {
    /// Watches the files, whether they exist or not.
    pub fn new(files: impl IntoIterator<Item = PathBuf>) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let inotify = register(inotify, Interest::READABLE)?;
        let mounts = open(MOUNTS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let mounts = mounts.ok().and_then(|mounts| register(mounts, Interest::PRIORITY).ok());
        let files = files.into_iter().collect();
        let (watched, names, untold) = (HashSet::new(), HashMap::new(), None);
        let mut watch = Self { inotify, mounts, files, watched, names, pending: untold };
        watch.renew();
        Ok(watch)
    }

    /// Returns when a file may have changed since the last report, or since the watch was made. Cancel-safe: the next
    /// call reports the changes that a cancelled one has seen, without more delay.
    pub async fn wait_for_change(&mut self) -> FileChange {
        loop {
            self.take_events();
            let Some(untold) = self.pending else {
                self.wait().await;
                continue;
            };
            if untold.due() <= Instant::now() {
                self.pending = None;
                return untold.change;
            }
            let _ = timeout_at(untold.due(), self.wait()).await;
        }
    }

    /// Returns whether a file was written since the last report, without waiting.
    /// [`wait_for_change`](Self::wait_for_change) still reports the change.
    pub fn was_written(&mut self) -> bool {
        self.take_events();
        self.pending.is_some_and(|untold| untold.change == FileChange::Written)
    }

    /// Waits until there may be events. Leaves inotify events in the queue. Takes those of mounts, which are relevant
    /// only if a path has another target now.
    async fn wait(&mut self) {
        tokio::select! {
            () = ready(Some(&self.inotify), Interest::READABLE) => {}
            () = ready(self.mounts.as_ref(), Interest::PRIORITY) => {
                // The new target may be in the middle of a write.
                if self.renew().is_some() {
                    self.note_change(FileChange::Written);
                }
            }
        }
    }

    /// Takes the events in the queue. New targets are watched before the files are read.
    fn take_events(&mut self) {
        let events = self.read_events();
        if events.is_empty() {
            return;
        }
        let seen =
            if events.intersects(WRITTEN) { FileChange::Written } else { FileChange::Replaced };
        let found = if IN_PLACE.contains(events) { None } else { self.renew() };
        self.note_change(found.map_or(seen, |found| found.max(seen)));
    }

    fn note_change(&mut self, change: FileChange) {
        let now = Instant::now();
        let untold = self.pending.get_or_insert(PendingChange { change, first: now, last: now });
        untold.change = untold.change.max(change);
        untold.last = now;
    }

    /// Returns the relevant events in the queue.
    fn read_events(&self) -> ReadFlags {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
        let mut events = ReadFlags::empty();
        loop {
            match reader.next() {
                Ok(event) if self.is_relevant(&event) => events |= event.events(),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return events,
            }
        }
    }

    fn is_relevant(&self, event: &inotify::Event<'_>) -> bool {
        if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            return true;
        }
        // Events of removed watches, and the notice of a removal.
        if !self.watched.contains(&event.wd()) || event.events().contains(ReadFlags::IGNORED) {
            return false;
        }
        match (self.names.get(&event.wd()), event.file_name()) {
            (Some(names), Some(name)) => {
                names.iter().any(|known| known.as_bytes() == name.to_bytes())
            }
            _ => true,
        }
    }

    /// Watches each step on the paths as they are now, and removes all other watches. Returns the kind of change if a
    /// watch changed. A file under a watched name was put there complete, or its write is reported. For other files a
    /// write in progress is possible. A directory or file that is already watched keeps its descriptor.
    fn renew(&mut self) -> Option<FileChange> {
        let names = std::mem::take(&mut self.names);
        let before = std::mem::take(&mut self.watched);
        let mut change = FileChange::Replaced;
        for file in self.files.clone() {
            let Some(WatchedPath { dir: folder, name, file }) = self.follow(&file) else {
                continue;
            };
            let had_name = || names.get(&folder?).map(|names| names.contains(&name));
            if !before.contains(&file) && had_name() != Some(true) {
                change = FileChange::Written;
            }
        }
        for left in before.difference(&self.watched) {
            let _ = inotify::remove_watch(self.inotify.get_ref(), *left);
        }
        (before != self.watched).then_some(change)
    }

    /// Watches each name on a path in its directory, also those of link targets, and the file at its end. There is
    /// nothing to watch after a missing name.
    fn follow(&mut self, file: &Path) -> Option<WatchedPath> {
        let mut folder = PathBuf::from(if file.is_absolute() { "/" } else { "." });
        let mut left = path_names(file);
        let mut links = 0;
        while let Some(name) = left.pop() {
            if name == ".." {
                folder.push(name);
                continue;
            }
            let watched = self.add_name(&folder, &name);
            let step = folder.join(&name);
            match std::fs::read_link(&step) {
                Ok(target) if links < LINKS_MAX => {
                    links += 1;
                    if target.is_absolute() {
                        folder = PathBuf::from("/");
                    }
                    left.extend(path_names(&target));
                }
                Ok(_) => return None,
                Err(_) if left.is_empty() => {
                    let file = self.add_file(&step)?;
                    return Some(WatchedPath { dir: watched, name, file });
                }
                Err(_) => folder = step,
            }
        }
        None
    }

    /// The watch on the directory also reports writes to the file, because a new file gets its own watch later.
    fn add_name(&mut self, folder: &Path, name: &OsStr) -> Option<i32> {
        let comings = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        let folder = inotify::add_watch(self.inotify.get_ref(), folder, comings).ok()?;
        self.watched.insert(folder);
        self.names.entry(folder).or_default().push(name.to_owned());
        Some(folder)
    }

    /// A file may have other names. The directory does not report writes through these.
    fn add_file(&mut self, file: &Path) -> Option<i32> {
        let changes = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB;
        let file = inotify::add_watch(self.inotify.get_ref(), file, changes).ok()?;
        self.watched.insert(file);
        Some(file)
    }
}

fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // The replacement is unsafe for types with a changeable descriptor. The descriptor of an `OwnedFd` does not change.
    #[expect(deprecated)]
    AsyncFd::with_interest(descriptor, interest)
}

/// Returns when a descriptor is ready, and clears its readiness. Never returns without a descriptor.
async fn ready(descriptor: Option<&AsyncFd<OwnedFd>>, interest: Interest) {
    let ready = match descriptor {
        Some(descriptor) => descriptor.ready(interest).await,
        None => return std::future::pending().await,
    };
    match ready {
        Ok(mut ready) => ready.clear_ready(),
        // The reactor ends, and the process with it.
        Err(_) => std::future::pending().await,
    }
}

/// Returns the names in a path, the last one first.
fn path_names(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    names.collect()
}

/// Waits for a change of an optional watch. Never returns without one.
pub async fn wait_for_change(watch: Option<&mut FileWatch>) -> FileChange {
    match watch {
        Some(watch) => watch.wait_for_change().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::task::Poll;

    /// The limit of a wait. It only ends a failing test.
    const SOON: Duration = Duration::from_secs(60);

    async fn seen(watch: &mut FileWatch) -> Option<FileChange> {
        tokio::time::timeout(SOON, watch.wait_for_change()).await.ok()
    }

    async fn is_seen(watch: &mut FileWatch) -> bool {
        seen(watch).await.is_some()
    }

    async fn expect_quiet(watch: &mut FileWatch, what: &str) {
        assert!(
            tokio::time::timeout(Duration::from_millis(300), watch.wait_for_change())
                .await
                .is_err(),
            "{what}"
        );
    }

    #[tokio::test]
    async fn every_way_to_change_a_file_is_seen_and_other_files_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("passwd");
        fs::write(&file, "a").expect("write");
        let mut watch = FileWatch::new([file.clone()]).expect("a watch");
        expect_quiet(&mut watch, "nothing happened").await;
        fs::write(&file, "b").expect("write in place");
        assert!(is_seen(&mut watch).await, "written in place");
        let new = folder.path().join("passwd.new");
        fs::write(&new, "c").expect("write beside");
        expect_quiet(&mut watch, "another file").await;
        fs::rename(&new, &file).expect("rename");
        assert_eq!(seen(&mut watch).await, Some(FileChange::Replaced));
        fs::write(&file, "d").expect("write in place");
        assert_eq!(seen(&mut watch).await, Some(FileChange::Written), "the new file, in place");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
        assert_eq!(seen(&mut watch).await, Some(FileChange::Replaced), "nobody wrote");
        fs::remove_file(&file).expect("remove");
        assert!(is_seen(&mut watch).await, "removed");
        fs::write(&file, "e").expect("write");
        assert!(is_seen(&mut watch).await, "back again");
    }

    /// Makes a directory with the text files of these names, and a watch on the first.
    fn watched(names: &[&str]) -> (tempfile::TempDir, FileWatch) {
        let folder = tempfile::tempdir().expect("a folder");
        for name in names {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().expect("a folder")).expect("create");
            fs::write(file, name).expect("write");
        }
        let watch = FileWatch::new([folder.path().join(names[0])]).expect("a watch");
        (folder, watch)
    }

    /// Starts a wait after an event and cancels it at once. Returns whether it was still waiting.
    async fn is_dropped(watch: &mut FileWatch) -> bool {
        let ready = tokio::time::timeout(SOON, watch.inotify.readable());
        ready.await.expect("events").expect("readable").retain_ready();
        let mut changed = std::pin::pin!(watch.wait_for_change());
        std::future::poll_fn(|context| Poll::Ready(changed.as_mut().poll(context).is_pending()))
            .await
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_takes_no_change_with_it_and_no_watch() {
        let (folder, mut watch) = watched(&["passwd", "new"]);
        let file = folder.path().join("passwd");
        // On a stalled machine the wait may be over, which proves nothing.
        loop {
            fs::rename(folder.path().join("new"), &file).expect("rename");
            if is_dropped(&mut watch).await {
                break;
            }
            fs::write(folder.path().join("new"), "again").expect("write");
        }
        assert_eq!(seen(&mut watch).await, Some(FileChange::Replaced), "by the next wait");
        fs::write(&file, "b").expect("write in place");
        assert_eq!(seen(&mut watch).await, Some(FileChange::Written), "the new file, in place");
    }

    #[tokio::test]
    async fn who_waits_in_short_pieces_is_told_in_the_end() {
        let (folder, mut watch) = watched(&["passwd", "new"]);
        fs::rename(folder.path().join("new"), folder.path().join("passwd")).expect("rename");
        let mut pieces = (0..1000).map(|_| QUIET / 4);
        let told = loop {
            let piece = pieces.next().expect("told by now");
            if let Ok(told) = tokio::time::timeout(piece, watch.wait_for_change()).await {
                break told;
            }
        };
        assert_eq!(told, FileChange::Replaced);
    }

    #[tokio::test]
    async fn asking_whether_somebody_wrote_takes_no_change_and_no_watch() {
        let (folder, mut watch) = watched(&["passwd", "new"]);
        let file = folder.path().join("passwd");
        fs::rename(folder.path().join("new"), &file).expect("rename");
        assert!(!watch.was_written());
        assert_eq!(seen(&mut watch).await, Some(FileChange::Replaced), "still to be told");
        fs::write(&file, "b").expect("write in place");
        assert!(watch.was_written(), "the new file, in place");
        assert!(watch.was_written(), "still to be told");
        assert_eq!(seen(&mut watch).await, Some(FileChange::Written));
        assert!(!watch.was_written());
    }

    #[tokio::test]
    async fn file_watch_write_before_watch_is_not_whole() {
        let (folder, mut watch) =
            watched(&["lab/passwd", "lab/new", "lab.new/passwd", "lab.new/b"]);
        let path = |name: &str| folder.path().join(name);
        let rename = |from: &str, to: &str| fs::rename(path(from), path(to)).expect("rename");
        rename("lab/new", "lab/passwd");
        fs::write(path("lab/passwd"), "b").expect("write in place");
        assert_eq!(
            seen(&mut watch).await,
            Some(FileChange::Written),
            "in the folder that is watched"
        );
        fs::write(path("lab/other"), "c").expect("write beside");
        rename("lab/other", "lab/passwd");
        assert_eq!(seen(&mut watch).await, Some(FileChange::Replaced), "whole");
        rename("lab", "lab.old");
        rename("lab.new", "lab");
        assert_eq!(seen(&mut watch).await, Some(FileChange::Written), "with its folder");
        std::os::unix::fs::symlink("b", path("lab/link")).expect("link");
        rename("lab/link", "lab/passwd");
        assert_eq!(
            seen(&mut watch).await,
            Some(FileChange::Written),
            "by a link to what was there"
        );
        rename("lab.old/passwd", "lab/b");
        assert_eq!(seen(&mut watch).await, Some(FileChange::Replaced), "whole, behind the link");
    }

    #[tokio::test]
    async fn file_watch_follows_links_and_missing_directories() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("a/real");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&target, &link).expect("link");
        let mut watch = FileWatch::new([link.clone()]).expect("a watch");
        fs::create_dir(folder.path().join("a")).expect("create");
        assert!(is_seen(&mut watch).await, "the folder came");
        fs::write(&target, "a").expect("write");
        assert!(is_seen(&mut watch).await, "the target came");
        fs::remove_file(&link).expect("remove");
        assert!(is_seen(&mut watch).await, "the link went");
    }

    #[tokio::test]
    async fn file_watch_drops_directories_left_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for version in ["v1", "v2"] {
            fs::create_dir_all(path(version).join("lab")).expect("create");
            fs::write(path(version).join("lab/passwd"), version).expect("write");
        }
        std::os::unix::fs::symlink("v1", path("current")).expect("link");
        let mut watch = FileWatch::new([path("current/lab/passwd")]).expect("a watch");
        expect_quiet(&mut watch, "nothing happened").await;
        // As `ln -sfn` and most deployment tools do it.
        std::os::unix::fs::symlink("v2", path("new")).expect("link");
        fs::rename(path("new"), path("current")).expect("rename");
        assert!(is_seen(&mut watch).await, "the link leads elsewhere");
        fs::write(path("v2/lab/passwd"), "again").expect("write");
        assert!(is_seen(&mut watch).await, "written where it leads now");
        fs::write(path("v1/lab/passwd"), "again").expect("write");
        expect_quiet(&mut watch, "where it led before").await;
        fs::create_dir(path("lab.new")).expect("create");
        fs::write(path("lab.new/passwd"), "c").expect("write");
        expect_quiet(&mut watch, "beside").await;
        fs::rename(path("v2/lab"), path("v2/lab.old")).expect("rename");
        fs::rename(path("lab.new"), path("v2/lab")).expect("rename");
        assert!(is_seen(&mut watch).await, "another folder took the place");
        fs::write(path("v2/lab/passwd"), "d").expect("write");
        assert!(is_seen(&mut watch).await, "written there");
    }
}
