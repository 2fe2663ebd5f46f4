// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the snapshot can be read from its disk, and maintains its copy in memory, which programs map.
//! `roster_snapshot_build::copy` makes the copy.
//!
//! Programs that map the copy do not notice an unreadable sector. The next boot would, and so would programs without a
//! copy. So the publisher reads the whole file when it starts and then every [`READ_EVERY`], around the page cache if
//! the file system allows it.

use super::PublisherTasks;
use roster_messages::{log, table::daemon};
use roster_snapshot_build::copy;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Interval between two reads of the file.
const READ_EVERY: Duration = Duration::from_secs(300);
/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
/// Alignment of direct reads: no disk has larger sectors.
const ALIGNMENT: usize = 4096;

/// Returns the directory of copies. `None` if this publisher uses another run-time directory than programs do.
#[must_use]
pub fn copy_dir(run_dir: &Path) -> Option<PathBuf> {
    let folder = Path::new(copy::DIR);
    (folder.parent() == Some(run_dir)).then(|| folder.to_owned())
}

/// Reads the file at once and then every [`READ_EVERY`].
pub async fn keep_reading(hub: Arc<PublisherTasks>) {
    loop {
        let worker = Arc::clone(&hub);
        let _ = tokio::task::spawn_blocking(move || worker.read_from_disk()).await;
        sleep(READ_EVERY).await;
    }
}

impl PublisherTasks {
    /// Reads the snapshot in place, and makes its copy if that is missing.
    fn read_from_disk(&self) {
        let Ok(before) = fs::symlink_metadata(&self.snapshot) else { return };
        let read = read_through(&self.snapshot);
        // Another file has replaced it meanwhile.
        let after = fs::symlink_metadata(&self.snapshot);
        if !after.is_ok_and(|after| after.ino() == before.ino()) {
            return;
        }
        match read {
            Ok(()) => {
                self.update_status(|status| status.disk_error.clear());
                self.restore_copy();
            }
            Err(error) => {
                let snapshot = self.snapshot.display();
                log!(ERROR, &daemon::SNAPSHOT_DISK_ERROR, "{snapshot}: cannot be read: {error}");
                self.update_status(|status| status.disk_error = error.to_string());
                self.copies.disk_read_due.notify_one();
            }
        }
    }

    /// Whether the snapshot in place is this publisher's own and cannot be read.
    pub(super) fn is_unreadable(&self) -> bool {
        let is_own = self.publications.current.lock().is_some();
        let status = self.status.lock();
        is_own && !status.disk_error.is_empty()
    }

    /// Makes the copy of this publisher's own snapshot if programs find none.
    fn restore_copy(&self) {
        let is_own = self.publications.current.lock().is_some();
        let Some(folder) = self.copies.dir.as_deref().filter(|_| is_own) else { return };
        let _copying = self.copies.lock.lock();
        let copied = self.write_copy(folder);
        self.report_copy(&copied);
        if copied.is_err() {
            // The directory may have been replaced.
            self.copies.disk_read_due.notify_one();
        }
    }

    fn write_copy(&self, folder: &Path) -> io::Result<()> {
        let file = File::open(&self.snapshot)?;
        let stat = file.metadata()?;
        if copy::exists(folder, &stat) {
            return Ok(());
        }
        copy::put(folder, &stat, stat.mode(), file)
    }

    /// Removes copies of older snapshots. Makes the copy of the present one if the older ones left no space for it.
    pub(super) fn finish_copies(&self) {
        let Some(folder) = &self.copies.dir else { return };
        let Ok(file) = fs::symlink_metadata(&self.snapshot) else { return };
        let copied = copy::remove_others(folder, file.ino()).and_then(|()| self.write_copy(folder));
        self.report_copy(&copied);
    }

    /// Reports in the status whether there is a copy.
    fn report_copy(&self, copied: &io::Result<()>) {
        let error = match (copied, &self.copies.dir) {
            (Err(error), Some(folder)) => format!("{}: {error}", folder.display()),
            _ => String::new(),
        };
        self.update_status(|status| {
            if !error.is_empty() && status.copy_error != error {
                log!(WARN, &daemon::SNAPSHOT_COPY_MISSING, "{error}");
            }
            status.copy_error = error;
        });
    }
}

/// Returns the bytes of the snapshot: from the disk, otherwise from its copy.
pub fn read_snapshot(snapshot: &Path, copies: Option<&Path>) -> io::Result<Vec<u8>> {
    fs::read(snapshot).or_else(|error| {
        let file = fs::symlink_metadata(snapshot);
        let copied = copies.and_then(|folder| copy::read(folder, &file.ok()?));
        copied
            .inspect(|_| {
                let snapshot = snapshot.display();
                log!(
                    WARN,
                    &daemon::SNAPSHOT_DISK_ERROR,
                    "{snapshot}: cannot be read: {error}; using its copy in memory"
                );
            })
            .ok_or(error)
    })
}

/// Reads a file to its end and discards the bytes. Only the error matters.
fn read_through(path: &Path) -> io::Result<()> {
    let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut room = vec![0; READ_BYTES + ALIGNMENT];
    let start = room.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut room[start..start + READ_BYTES];
    let mut read = |how| {
        let mut file = File::from(rustix::fs::open(path, how, Mode::empty())?);
        while file.read(buffer)? > 0 {}
        Ok(())
    };
    read(how | OFlags::DIRECT).or_else(|error: io::Error| match error.kind() {
        // The file system refuses direct reads, or needs another alignment.
        io::ErrorKind::InvalidInput => read(how),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tasks;
    use roster_role::testing::{TestBus, block_on};
    use roster_system_tests::logged_codes::logged_codes;

    #[test]
    fn files_are_read_whatever_their_length() {
        for folder in ["/var/tmp", "/dev/shm"] {
            let folder = tempfile::tempdir_in(folder).expect("a directory");
            let path = folder.path().join("roster.snap");
            assert!(read_through(&path).is_err(), "it is missing");
            for bytes in [0, 1, ALIGNMENT + 1, READ_BYTES, READ_BYTES + 64] {
                fs::write(&path, vec![7; bytes]).expect("write");
                read_through(&path).expect("read");
            }
        }
    }

    #[test]
    fn copies_only_where_programs_look() {
        assert_eq!(copy_dir(Path::new("/run/roster")), Some(copy::DIR.into()));
        assert_eq!(copy_dir(Path::new("/tmp/run")), None);
    }

    #[test]
    fn disk_faults_are_logged_once() {
        let folder = tempfile::tempdir().expect("a directory");
        let bus = TestBus::start(folder.path(), TestBus::OPEN);
        let hub = block_on(tasks(folder.path(), &bus));
        fs::write(&hub.snapshot, "bytes").expect("write");
        // Its directory is missing.
        let logged = logged_codes(|| {
            hub.finish_copies();
            hub.finish_copies();
        });
        assert_eq!(logged, [&daemon::SNAPSHOT_COPY_MISSING]);
        assert!(!hub.status.lock().copy_error.is_empty());

        fs::remove_file(&hub.snapshot).expect("remove");
        fs::create_dir(&hub.snapshot).expect("create");
        assert_eq!(logged_codes(|| hub.read_from_disk()), [&daemon::SNAPSHOT_DISK_ERROR]);
        assert!(!hub.status.lock().disk_error.is_empty());
    }
}
