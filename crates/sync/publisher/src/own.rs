// SPDX-License-Identifier: MIT OR Apache-2.0
//! The snapshot in place, as this publisher wrote it: its generation and a checksum of all its bytes identify it.
//! [`SnapshotWatch`] notices a file that is removed, cut, changed or replaced. The publisher then publishes it again.
//!
//! The check is for mistakes, such as a restore or a job that writes to the same path. It does not stop code under the
//! publisher's own user, which could write the record as well. The readers' floor limits that.

use roster_messages::{log, table::daemon};
use roster_provider::file_watch::{FileWatch, wait_for_change};
use roster_snapshot::Snapshot;
use roster_snapshot::hash;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

/// Interval of checks if inotify is not available.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Identity of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotIdentity {
    /// The snapshot's generation.
    pub generation: u64,
    /// Checksum of all its bytes.
    pub checksum: u64,
}

impl SnapshotIdentity {
    /// Computes the identity from the bytes. `None` without a readable header.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let generation = Snapshot::generation(bytes)?;
        Some(Self { generation, checksum: hash::plain(bytes) })
    }
}

/// File attributes that change with every write to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotStamp {
    file: (u64, u64),
    owner: (u32, u32),
    mode: u32,
    bytes: u64,
    changed: (i64, i64),
}

impl SnapshotStamp {
    /// Reads the attributes of the file at the path, without following a symbolic link.
    pub fn from_path(path: &Path) -> io::Result<Self> {
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

    /// Whether both have the same owner, mode and length.
    fn is_same_file(&self, other: &Self) -> bool {
        (self.owner, self.mode, self.bytes) == (other.owner, other.mode, other.bytes)
    }
}

/// The snapshot in place.
#[derive(Clone, Copy, Debug)]
pub struct CurrentSnapshot {
    /// The snapshot's identity.
    pub identity: SnapshotIdentity,
    /// Stamp of the file when it was last found intact; `None` if the file had been replaced by then.
    pub stamp: Option<SnapshotStamp>,
}

impl CurrentSnapshot {
    /// Returns the reason why the file is no longer that snapshot. If only its change time differs, the bytes decide.
    pub fn loss_reason(&mut self, path: &Path) -> Option<String> {
        let now = match SnapshotStamp::from_path(path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Some("the file was removed".to_owned());
            }
            Err(error) => return Some(error.to_string()),
        };
        match self.stamp {
            Some(stamp) if stamp == now => return None,
            Some(stamp) if stamp.is_same_file(&now) => {}
            Some(stamp) if stamp.file == now.file => {
                return Some("the length, owner or mode changed".to_owned());
            }
            _ => return Some("another file replaced it".to_owned()),
        }
        match fs::read(path).map(|bytes| SnapshotIdentity::from_bytes(&bytes)) {
            Ok(found) if found == Some(self.identity) => {
                self.stamp = Some(now);
                None
            }
            Ok(Some(found)) if found.generation != self.identity.generation => {
                Some(format!("another snapshot, generation {}, replaced it", found.generation))
            }
            Ok(_) => Some("its content changed".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// Waits for changes of the file, and of its directory.
pub struct SnapshotWatch {
    path: PathBuf,
    copies: PathBuf,
    dirs: [Option<(u64, u64)>; 2],
    watch: Option<FileWatch>,
}

impl SnapshotWatch {
    /// Starts a watch of the snapshot. `copies` is the directory of its copies.
    #[must_use]
    pub fn new(path: &Path, copies: &Path) -> Self {
        let watch = FileWatch::new([path.to_owned()]).inspect_err(|error| {
            let path = path.display();
            log!(WARN, &daemon::SNAPSHOT_NOT_WATCHED, "{path}: cannot be watched: {error}");
        });
        let folders = [path.parent().and_then(dir_identity), dir_identity(copies)];
        Self { path: path.to_owned(), copies: copies.to_owned(), dirs: folders, watch: watch.ok() }
    }

    /// Returns the directory, of the two, that was replaced or removed since the start. The sandbox allows this process
    /// to write only to the original directories.
    #[must_use]
    pub fn moved_dir(&self) -> Option<&Path> {
        let now = [self.path.parent()?, &self.copies];
        let mut both = now.into_iter().zip(self.dirs);
        both.find(|(folder, before)| dir_identity(folder) != *before).map(|(folder, _)| folder)
    }

    /// Returns when the file may have changed. Cancel safe.
    pub async fn wait_for_change(&mut self) {
        let is_blind = self.watch.is_none();
        tokio::select! {
            _ = wait_for_change(self.watch.as_mut()) => {}
            () = sleep(POLL_INTERVAL), if is_blind => {}
        }
    }
}

fn dir_identity(folder: &Path) -> Option<(u64, u64)> {
    let stat = fs::metadata(folder).ok()?;
    Some((stat.dev(), stat.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tasks;
    use crate::{publish_changes, watch_locals};
    use roster_admission::LocalFiles;
    use roster_messages::CodedError;
    use roster_role::Shutdown;
    use roster_role::testing::{TestBus, block_on};
    use roster_system_tests::logged_codes::logged_codes;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn snapshot(min_id: u32, generation: u64) -> Vec<u8> {
        let builder = roster_snapshot_build::SnapshotBuilder::new(min_id);
        let image = builder.finish(roster_snapshot::layout::SnapshotKind::Accounts).expect("empty");
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
        let stamp = Some(SnapshotStamp::from_path(&path).expect("it is there"));
        let known = CurrentSnapshot {
            identity: SnapshotIdentity::from_bytes(&own).expect("a snapshot"),
            stamp,
        };
        let lost = || known.clone().loss_reason(&path);
        assert_eq!(lost(), None);
        // A new hard link from a backup, or a new security label, leaves the content as it was.
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
        assert_eq!(lost(), Some("its content changed".to_owned()));
        put(&snapshot(1000, 3));
        let other = "another snapshot, generation 3, replaced it";
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
        let mut guard = SnapshotWatch::new(&path, &copies);
        assert!(guard.moved_dir().is_none());
        fs::remove_file(&path).expect("remove");
        tokio::time::timeout(roster_system_tests::wait::SOON, guard.wait_for_change())
            .await
            .expect("told");
        fs::rename(&snap, folder.path().join("old")).expect("rename");
        tokio::time::timeout(roster_system_tests::wait::SOON, guard.wait_for_change())
            .await
            .expect("told");
        assert_eq!(guard.moved_dir(), Some(&*snap));
        fs::create_dir(&snap).expect("create");
        assert_eq!(guard.moved_dir(), Some(&*snap));
        fs::remove_dir(&snap).expect("remove");
        fs::rename(folder.path().join("old"), &snap).expect("rename");
        assert!(guard.moved_dir().is_none());
        fs::remove_dir(&copies).expect("remove");
        assert_eq!(guard.moved_dir(), Some(&*copies));
    }

    #[test]
    fn lost_snapshot_is_logged() {
        let folder = tempfile::tempdir().expect("a folder");
        let lost = async {
            let bus = TestBus::start(folder.path(), TestBus::OPEN);
            let hub = tasks(folder.path(), &bus).await;
            let mut guard = SnapshotWatch::new(&hub.snapshot, folder.path());
            let identity = SnapshotIdentity { generation: 7, checksum: 1 };
            *hub.publications.current.lock() = Some(CurrentSnapshot { identity, stamp: None });
            // It was removed.
            hub.wait_until_lost(&mut guard).await;
            // It is in place, on a disk that cannot be read.
            fs::write(&hub.snapshot, snapshot(1000, 7)).expect("write");
            let identity = SnapshotIdentity::from_bytes(&snapshot(1000, 7)).expect("a snapshot");
            let stamp = SnapshotStamp::from_path(&hub.snapshot).ok();
            *hub.publications.current.lock() = Some(CurrentSnapshot { identity, stamp });
            hub.update_status(|status| status.disk_error = "a bad sector".into());
            hub.wait_until_lost(&mut guard).await;
        };
        let logged = logged_codes(|| block_on(lost));
        assert_eq!(logged, [&daemon::SNAPSHOT_LOST, &daemon::SNAPSHOT_LOST]);
    }

    #[tokio::test]
    async fn replaced_directory_ends_the_publisher() {
        let folder = tempfile::tempdir().expect("a folder");
        let snap = folder.path().join("snap");
        fs::create_dir(&snap).expect("create");
        let bus = TestBus::start(folder.path(), TestBus::OPEN);
        let hub = tasks(&snap, &bus).await;
        let guard = SnapshotWatch::new(&hub.snapshot, folder.path());
        fs::rename(&snap, folder.path().join("old")).expect("rename");
        let (_stop, mut shutdown) = Shutdown::new();
        let error = publish_changes(&hub, POLL_INTERVAL, guard, &mut shutdown).await;
        let error = error.expect_err("it ends").downcast::<CodedError>().expect("a code");
        assert_eq!(error.message, &daemon::SNAPSHOT_DIR_REPLACED);
    }

    #[test]
    fn snapshot_without_inotify_is_polled() {
        // Inside a private user namespace, in which inotify has no instances.
        const INSIDE: &str = "own::tests::inside_namespace_without_inotify";
        const SCRIPT: &str = "echo 0 >/proc/sys/user/max_inotify_instances; exec \"$@\"";
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-ec", SCRIPT, "sh"]);
        command.arg(std::env::current_exe().expect("a path"));
        let done = command.args(["--exact", INSIDE, "--ignored", "--nocapture"]).output();
        let done = done.expect("start unshare of util-linux");
        let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        if text.contains("unshare failed") {
            eprintln!("skipped: {text}");
            return;
        }
        assert!(done.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    #[ignore = "run by snapshot_without_inotify_is_polled"]
    fn inside_namespace_without_inotify() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("roster.snap");
        let logged = logged_codes(|| {
            let mut guard = SnapshotWatch::new(&path, folder.path());
            block_on(guard.wait_for_change());
        });
        assert_eq!(logged, [&daemon::SNAPSHOT_NOT_WATCHED]);
        let files = LocalFiles {
            passwd: path.clone(),
            group: path.clone(),
            subuid: path.clone(),
            subgid: path,
            shells: None,
        };
        let error = watch_locals(&files).err().expect("no watch");
        assert_eq!(error.message, &daemon::LOCAL_ACCOUNTS_NOT_WATCHED);
    }
}
