//! The snapshot in place, as this publisher wrote it: known by its generation and a checksum of all its bytes.
//! A file that is removed, cut, changed or replaced is noticed by [`Guard`], and published again.
//!
//! The check is for mistakes, such as a restore or a job that writes to the same path. It is no defence against
//! code under the publisher's own user, which could write the record as well; the readers' floor limits that.

use roster_provider::watch::{Watch, changed};
use roster_snapshot::Snapshot;
use roster_snapshot::hash;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

/// How often the file is looked at where nothing reports changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Which snapshot it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its generation.
    pub generation: u64,
    /// Of all its bytes.
    pub checksum: u64,
}

impl Identity {
    /// That of a snapshot's bytes. `None` without a readable header.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let generation = Snapshot::generation(bytes)?;
        Some(Self { generation, checksum: hash::plain(bytes) })
    }
}

/// What tells that nobody has touched a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    owner: (u32, u32),
    mode: u32,
    bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// Of what has that name now, a symbolic link included.
    pub fn of(path: &Path) -> io::Result<Self> {
        let stat = fs::symlink_metadata(path)?;
        Ok(Self {
            file: (stat.dev(), stat.ino()),
            owner: (stat.uid(), stat.gid()),
            mode: stat.mode(),
            bytes: stat.len(),
            changed: (stat.ctime(), stat.ctime_nsec()),
        })
    }

    /// Device and inode.
    #[must_use]
    pub fn file(&self) -> (u64, u64) {
        self.file
    }

    /// Whether both can be the same file with the same rights and length.
    fn fits(&self, other: &Self) -> bool {
        (self.owner, self.mode, self.bytes) == (other.owner, other.mode, other.bytes)
    }
}

/// The snapshot in place.
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    /// Which it is.
    pub identity: Identity,
    /// How its file was when it was last found whole; `None` if it was another's by then.
    pub stamp: Option<Stamp>,
}

impl InPlace {
    /// Why the file is not that snapshot any more. A file whose time of change alone is another is read: its
    /// bytes decide.
    pub fn lost(&mut self, path: &Path) -> Option<String> {
        let now = match Stamp::of(path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Some("it was removed".to_owned());
            }
            Err(error) => return Some(error.to_string()),
        };
        match self.stamp {
            Some(stamp) if stamp == now => return None,
            Some(stamp) if stamp.fits(&now) => {}
            Some(stamp) if stamp.file == now.file => {
                return Some("its length, owner or mode was changed".to_owned());
            }
            _ => return Some("another file has taken its place".to_owned()),
        }
        match fs::read(path).map(|bytes| Identity::of(&bytes)) {
            Ok(found) if found == Some(self.identity) => {
                self.stamp = Some(now);
                None
            }
            Ok(Some(found)) if found.generation != self.identity.generation => Some(format!(
                "another snapshot, generation {}, has taken its place",
                found.generation
            )),
            Ok(_) => Some("its bytes were changed".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// Waits for changes of the file, and of its directory.
pub struct Guard {
    path: PathBuf,
    copies: PathBuf,
    folders: [Option<(u64, u64)>; 2],
    watch: Option<Watch>,
}

impl Guard {
    /// Watches from now on. `copies` is the directory of copies of it.
    #[must_use]
    pub fn new(path: &Path, copies: &Path) -> Self {
        let watch = Watch::new([path.to_owned()])
            .inspect_err(|error| tracing::warn!("{}: cannot be watched: {error}", path.display()));
        let folders = [path.parent().and_then(identity), identity(copies)];
        Self { path: path.to_owned(), copies: copies.to_owned(), folders, watch: watch.ok() }
    }

    /// Which directory, of the two, is another one than at the start, or gone: the sandbox allows this process to
    /// write to those alone.
    #[must_use]
    pub fn moved(&self) -> Option<&Path> {
        let now = [self.path.parent()?, &self.copies];
        let mut both = now.into_iter().zip(self.folders);
        both.find(|(folder, before)| identity(folder) != *before).map(|(folder, _)| folder)
    }

    /// Returns when the file may have changed. Cancel safe.
    pub async fn changed(&mut self) {
        let is_blind = self.watch.is_none();
        tokio::select! {
            _ = changed(self.watch.as_mut()) => {}
            () = sleep(LOOK_EVERY), if is_blind => {}
        }
    }
}

fn identity(folder: &Path) -> Option<(u64, u64)> {
    let stat = fs::metadata(folder).ok()?;
    Some((stat.dev(), stat.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn snapshot(min_id: u32, generation: u64) -> Vec<u8> {
        let builder = roster_snapshot_build::Builder::new(min_id);
        let image = builder.finish(roster_snapshot::layout::Kind::Accounts).expect("empty");
        let mut bytes = io::Cursor::new(Vec::new());
        image.image.write(&mut bytes, generation).expect("write to memory");
        bytes.into_inner()
    }

    #[test]
    fn lost_snapshot_is_told_and_untouched_one_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("roster.snap");
        let own = snapshot(1000, 7);
        let put = |bytes: &[u8]| {
            let _ = fs::remove_file(&path);
            fs::write(&path, bytes).expect("write");
            fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("chmod");
        };
        put(&own);
        let stamp = Some(Stamp::of(&path).expect("it is there"));
        let known = InPlace { identity: Identity::of(&own).expect("a snapshot"), stamp };
        let lost = || known.clone().lost(&path);
        assert_eq!(lost(), None);
        // A backup that links it, or a label that is set anew, changes nothing of it.
        fs::hard_link(&path, folder.path().join("link")).expect("link");
        assert_eq!(lost(), None);
        for damage in ["mode", "cut", "bytes", "removed", "linked"] {
            put(&own);
            let file = fs::OpenOptions::new().write(true).open(&path).expect("open");
            match damage {
                "mode" => fs::set_permissions(&path, Permissions::from_mode(0o600)),
                "cut" => file.set_len(64),
                "bytes" => std::os::unix::fs::FileExt::write_at(&file, b"x", 90).map(drop),
                "removed" => fs::remove_file(&path),
                _ => {
                    fs::remove_file(&path).and_then(|()| symlink(folder.path().join("link"), &path))
                }
            }
            .expect(damage);
            assert!(lost().is_some(), "{damage}");
        }
        put(&snapshot(2000, 7));
        assert_eq!(lost(), Some("its bytes were changed".to_owned()));
        put(&snapshot(1000, 3));
        let other = "another snapshot, generation 3, has taken its place";
        assert_eq!(lost(), Some(other.to_owned()));
        put(&own);
        assert_eq!(lost(), None, "the same bytes in another file serve as well");
    }

    #[tokio::test]
    async fn guard_tells_changes_and_another_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let snap = folder.path().join("snap");
        fs::create_dir(&snap).expect("create");
        let (path, copies) = (snap.join("roster.snap"), folder.path().join("copies"));
        fs::create_dir(&copies).expect("create");
        fs::write(&path, "one").expect("write");
        let mut guard = Guard::new(&path, &copies);
        assert!(guard.moved().is_none());
        fs::remove_file(&path).expect("remove");
        tokio::time::timeout(crate::testing::SOON, guard.changed()).await.expect("told");
        fs::rename(&snap, folder.path().join("old")).expect("rename");
        tokio::time::timeout(crate::testing::SOON, guard.changed()).await.expect("told");
        assert_eq!(guard.moved(), Some(&*snap));
        fs::create_dir(&snap).expect("create");
        assert_eq!(guard.moved(), Some(&*snap));
        fs::remove_dir(&snap).expect("remove");
        fs::rename(folder.path().join("old"), &snap).expect("rename");
        assert!(guard.moved().is_none());
        fs::remove_dir(&copies).expect("remove");
        assert_eq!(guard.moved(), Some(&*copies));
    }
}
