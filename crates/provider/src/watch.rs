//! Tells when files may have changed: written in place, replaced, removed, come back, and the same of
//! every folder and symbolic link on the way to them; and when a mount brings others in their place. It
//! says when to look and whether anybody wrote, never what is there. Not seen are changes in folders that
//! this user may not list.
//!
//! What an event leads to is watched as soon as the event is taken out of the queue, and what it tells is
//! kept until it is told: a wait can be dropped at any point, and nothing is lost with it.

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
/// What happens to a file that stays where it is: there is nothing else to watch.
const IN_PLACE: ReadFlags = ReadFlags::MODIFY.union(ReadFlags::CLOSE_WRITE);
/// What tells that somebody wrote, or that there is no telling.
const WRITTEN: ReadFlags = IN_PLACE.union(ReadFlags::CREATE).union(ReadFlags::QUEUE_OVERFLOW);
/// The mounts that this process sees; the kernel marks it as urgent when there are others.
const MOUNTS: &str = "/proc/self/mountinfo";
/// Symbolic links followed on the way to a file.
const LINKS_MAX: usize = 16;

/// How files came to be others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Whole ones were put in their place, or something about them changed that is not what they hold.
    Replaced,
    /// Somebody wrote, and may write on; or nobody can tell.
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
    /// The change that is still to be told.
    untold: Option<Untold>,
}

/// A change that is told when it is quiet.
#[derive(Clone, Copy)]
struct Untold {
    change: Change,
    first: Instant,
    last: Instant,
}

impl Untold {
    fn due(&self) -> Instant {
        (self.last + QUIET).min(self.first + QUIET_MAX)
    }
}

/// Where the way to a file ends that is watched.
struct End {
    /// The folder's descriptor, when it could be watched, and the name in it.
    folder: Option<i32>,
    name: OsString,
    file: i32,
}

impl Watch {
    /// Watches the files, whether they are there or not.
    pub fn new(files: impl IntoIterator<Item = PathBuf>) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let inotify = register(inotify, Interest::READABLE)?;
        let mounts = open(MOUNTS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let mounts = mounts.ok().and_then(|mounts| register(mounts, Interest::PRIORITY).ok());
        let files = files.into_iter().collect();
        let (watched, names, untold) = (HashSet::new(), HashMap::new(), None);
        let mut watch = Self { inotify, mounts, files, watched, names, untold };
        watch.renew();
        Ok(watch)
    }

    /// Returns when a file may have changed since the last time, or since the watch was made. Cancel
    /// safe: what a wait that was dropped had seen is told by the next one, and no later for that.
    pub async fn changed(&mut self) -> Change {
        loop {
            self.take_events();
            let Some(untold) = self.untold else {
                self.wait().await;
                continue;
            };
            if untold.due() <= Instant::now() {
                self.untold = None;
                return untold.change;
            }
            let _ = timeout_at(untold.due(), self.wait()).await;
        }
    }

    /// Whether somebody has written since the last change was told, without waiting for anything.
    /// [`changed`](Self::changed) tells it all the same.
    pub fn was_written(&mut self) -> bool {
        self.take_events();
        self.untold.is_some_and(|untold| untold.change == Change::Written)
    }

    /// Waits until there may be events, which are left where they are; those of mounts are taken. Of
    /// these only those matter by which something else is to be watched.
    async fn wait(&mut self) {
        tokio::select! {
            () = ready(Some(&self.inotify), Interest::READABLE) => {}
            () = ready(self.mounts.as_ref(), Interest::PRIORITY) => {
                // Nobody told whether what came to light is being written.
                if self.renew().is_some() {
                    self.note(Change::Written);
                }
            }
        }
    }

    /// Takes the events that are there. What they lead to is watched before anybody looks at it.
    fn take_events(&mut self) {
        let events = self.read_events();
        if events.is_empty() {
            return;
        }
        let seen = if events.intersects(WRITTEN) { Change::Written } else { Change::Replaced };
        let found = if IN_PLACE.contains(events) { None } else { self.renew() };
        self.note(found.map_or(seen, |found| found.max(seen)));
    }

    fn note(&mut self, change: Change) {
        let now = Instant::now();
        let untold = self.untold.get_or_insert(Untold { change, first: now, last: now });
        untold.change = untold.change.max(change);
        untold.last = now;
    }

    /// What the events say, of those that are there and matter.
    fn read_events(&self) -> ReadFlags {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
        let mut events = ReadFlags::empty();
        loop {
            match reader.next() {
                Ok(event) if self.matters(&event) => events |= event.events(),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return events,
            }
        }
    }

    fn matters(&self, event: &inotify::Event<'_>) -> bool {
        if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            return true;
        }
        // What is watched no longer, or says that it is not from now on.
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

    /// Watches every step to every file as it is now, and nothing else. When that is something else than
    /// before, gives how it came to be so: what came under a name that was watched was put there whole,
    /// or its writing is told; about what lay elsewhere nobody can tell. A folder or file that is watched
    /// already keeps its descriptor.
    fn renew(&mut self) -> Option<Change> {
        let names = std::mem::take(&mut self.names);
        let before = std::mem::take(&mut self.watched);
        let mut change = Change::Replaced;
        for file in self.files.clone() {
            let Some(End { folder, name, file }) = self.follow(&file) else { continue };
            let had_name = || names.get(&folder?).map(|names| names.contains(&name));
            if !before.contains(&file) && had_name() != Some(true) {
                change = Change::Written;
            }
        }
        for left in before.difference(&self.watched) {
            let _ = inotify::remove_watch(self.inotify.get_ref(), *left);
        }
        (before != self.watched).then_some(change)
    }

    /// Watches each name of a path in its folder, those of what links lead to, and the file in the end.
    /// Behind a name that is not there is nothing to watch.
    fn follow(&mut self, file: &Path) -> Option<End> {
        let mut folder = PathBuf::from(if file.is_absolute() { "/" } else { "." });
        let mut left = names(file);
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
                    left.extend(names(&target));
                }
                Ok(_) => return None,
                Err(_) if left.is_empty() => {
                    let file = self.add_file(&step)?;
                    return Some(End { folder: watched, name, file });
                }
                Err(_) => folder = step,
            }
        }
        None
    }

    /// A folder tells as well who writes to what has the name: a file that comes is watched itself only
    /// some time after.
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

    /// A file may have other names, where its folder does not tell who writes.
    fn add_file(&mut self, file: &Path) -> Option<i32> {
        let changes = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB;
        let file = inotify::add_watch(self.inotify.get_ref(), file, changes).ok()?;
        self.watched.insert(file);
        Some(file)
    }
}

fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // Its successor is unsafe for the sake of types whose descriptor may change; that of an `OwnedFd`
    // does not.
    #[expect(deprecated)]
    AsyncFd::with_interest(descriptor, interest)
}

/// Returns when a descriptor is ready, which is forgotten with that; never where there is none.
async fn ready(descriptor: Option<&AsyncFd<OwnedFd>>, interest: Interest) {
    let ready = match descriptor {
        Some(descriptor) => descriptor.ready(interest).await,
        None => return std::future::pending().await,
    };
    match ready {
        Ok(mut ready) => ready.clear_ready(),
        // The reactor is going down, and the process with it.
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
    use std::task::Poll;

    /// The limit of a wait: it only ends a test that waits in vain.
    const SOON: Duration = Duration::from_secs(60);

    async fn seen(watch: &mut Watch) -> Option<Change> {
        tokio::time::timeout(SOON, watch.changed()).await.ok()
    }

    async fn is_seen(watch: &mut Watch) -> bool {
        seen(watch).await.is_some()
    }

    async fn expect_quiet(watch: &mut Watch, what: &str) {
        assert!(
            tokio::time::timeout(Duration::from_millis(300), watch.changed()).await.is_err(),
            "{what}"
        );
    }

    #[tokio::test]
    async fn every_way_to_change_a_file_is_seen_and_other_files_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("passwd");
        fs::write(&file, "a").expect("write");
        let mut watch = Watch::new([file.clone()]).expect("a watch");
        expect_quiet(&mut watch, "nothing happened").await;
        fs::write(&file, "b").expect("write in place");
        assert!(is_seen(&mut watch).await, "written in place");
        let new = folder.path().join("passwd.new");
        fs::write(&new, "c").expect("write beside");
        expect_quiet(&mut watch, "another file").await;
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

    /// A folder with the text files of these names, and a watch on the first.
    fn watched(names: &[&str]) -> (tempfile::TempDir, Watch) {
        let folder = tempfile::tempdir().expect("a folder");
        for name in names {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().expect("a folder")).expect("create");
            fs::write(file, name).expect("write");
        }
        let watch = Watch::new([folder.path().join(names[0])]).expect("a watch");
        (folder, watch)
    }

    /// Begins to wait and drops that at once, when there is something to be told; whether it was not
    /// over yet.
    async fn is_dropped(watch: &mut Watch) -> bool {
        let ready = tokio::time::timeout(SOON, watch.inotify.readable());
        ready.await.expect("events").expect("readable").retain_ready();
        let mut changed = std::pin::pin!(watch.changed());
        std::future::poll_fn(|context| Poll::Ready(changed.as_mut().poll(context).is_pending()))
            .await
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_takes_no_change_with_it_and_no_watch() {
        let (folder, mut watch) = watched(&["passwd", "new"]);
        let file = folder.path().join("passwd");
        // Where the machine stood still for the quiet time the wait was over, and proves nothing.
        loop {
            fs::rename(folder.path().join("new"), &file).expect("rename");
            if is_dropped(&mut watch).await {
                break;
            }
            fs::write(folder.path().join("new"), "again").expect("write");
        }
        assert_eq!(seen(&mut watch).await, Some(Change::Replaced), "by the next wait");
        fs::write(&file, "b").expect("write in place");
        assert_eq!(seen(&mut watch).await, Some(Change::Written), "the new file, in place");
    }

    #[tokio::test]
    async fn who_waits_in_short_pieces_is_told_in_the_end() {
        let (folder, mut watch) = watched(&["passwd", "new"]);
        fs::rename(folder.path().join("new"), folder.path().join("passwd")).expect("rename");
        let mut pieces = (0..1000).map(|_| QUIET / 4);
        let told = loop {
            let piece = pieces.next().expect("told by now");
            if let Ok(told) = tokio::time::timeout(piece, watch.changed()).await {
                break told;
            }
        };
        assert_eq!(told, Change::Replaced);
    }

    #[tokio::test]
    async fn asking_whether_somebody_wrote_takes_no_change_and_no_watch() {
        let (folder, mut watch) = watched(&["passwd", "new"]);
        let file = folder.path().join("passwd");
        fs::rename(folder.path().join("new"), &file).expect("rename");
        assert!(!watch.was_written());
        assert_eq!(seen(&mut watch).await, Some(Change::Replaced), "still to be told");
        fs::write(&file, "b").expect("write in place");
        assert!(watch.was_written(), "the new file, in place");
        assert!(watch.was_written(), "still to be told");
        assert_eq!(seen(&mut watch).await, Some(Change::Written));
        assert!(!watch.was_written());
    }

    #[tokio::test]
    async fn a_file_that_is_written_before_it_could_be_watched_is_not_one_that_came_whole() {
        let (folder, mut watch) =
            watched(&["lab/passwd", "lab/new", "lab.new/passwd", "lab.new/b"]);
        let path = |name: &str| folder.path().join(name);
        let rename = |from: &str, to: &str| fs::rename(path(from), path(to)).expect("rename");
        rename("lab/new", "lab/passwd");
        fs::write(path("lab/passwd"), "b").expect("write in place");
        assert_eq!(seen(&mut watch).await, Some(Change::Written), "in the folder that is watched");
        fs::write(path("lab/other"), "c").expect("write beside");
        rename("lab/other", "lab/passwd");
        assert_eq!(seen(&mut watch).await, Some(Change::Replaced), "whole");
        rename("lab", "lab.old");
        rename("lab.new", "lab");
        assert_eq!(seen(&mut watch).await, Some(Change::Written), "with its folder");
        std::os::unix::fs::symlink("b", path("lab/link")).expect("link");
        rename("lab/link", "lab/passwd");
        assert_eq!(seen(&mut watch).await, Some(Change::Written), "by a link to what was there");
        rename("lab.old/passwd", "lab/b");
        assert_eq!(seen(&mut watch).await, Some(Change::Replaced), "whole, behind the link");
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
        expect_quiet(&mut watch, "nothing happened").await;
        // As `ln -sfn` and most that deploys does it.
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
