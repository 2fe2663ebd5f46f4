//! Whether the snapshot in place can be read from its disk, and its copy in memory, which programs map.
//!
//! Programs that have the copy do not notice a sector that cannot be read. The next boot would, and so would programs
//! without a copy. So the publisher reads the whole file when it starts and then every [`READ_EVERY`], around the page
//! cache if the file system allows it.

use super::Hub;
use roster_snapshot_build::copy;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// How often the file is read.
const READ_EVERY: Duration = Duration::from_secs(300);
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// To what direct reads are aligned: no disk has larger sectors.
const ALIGNMENT: usize = 4096;

/// The directory of copies; none if this publisher's run-time directory is not the one that programs know.
#[must_use]
pub fn copies(run_dir: &Path) -> Option<PathBuf> {
    let folder = Path::new(copy::FOLDER);
    (folder.parent() == Some(run_dir)).then(|| folder.to_owned())
}

/// Reads the file at once and then again and again.
pub async fn follow(hub: Arc<Hub>) {
    loop {
        let worker = Arc::clone(&hub);
        let _ = tokio::task::spawn_blocking(move || worker.read_from_disk()).await;
        sleep(READ_EVERY).await;
    }
}

impl Hub {
    /// Reads the snapshot in place, and makes its copy if that is missing.
    fn read_from_disk(&self) {
        let Ok(before) = fs::symlink_metadata(&self.snapshot) else { return };
        let read = read_through(&self.snapshot);
        // Another file has taken its place meanwhile.
        let after = fs::symlink_metadata(&self.snapshot);
        if !after.is_ok_and(|after| after.ino() == before.ino()) {
            return;
        }
        match read {
            Ok(()) => {
                self.update(|status| status.disk_error.clear());
                self.copy_again();
            }
            Err(error) => {
                tracing::error!("{} cannot be read: {error}", self.snapshot.display());
                self.update(|status| status.disk_error = error.to_string());
                self.disk_read.notify_one();
            }
        }
    }

    /// Whether the snapshot in place is this publisher's and cannot be read.
    pub(super) fn is_unreadable(&self) -> bool {
        let is_own = self.own.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        is_own && !status.disk_error.is_empty()
    }

    /// Makes the copy of this publisher's own snapshot if programs find none.
    fn copy_again(&self) {
        let is_own = self.own.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let Some(folder) = self.copies.as_deref().filter(|_| is_own) else { return };
        let _copying = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        let copied = self.put_copy(folder);
        self.copied(&copied);
        if copied.is_err() {
            // The directory may be another one.
            self.disk_read.notify_one();
        }
    }

    fn put_copy(&self, folder: &Path) -> io::Result<()> {
        let file = File::open(&self.snapshot)?;
        let stat = file.metadata()?;
        if copy::is_there(folder, &stat) {
            return Ok(());
        }
        copy::put(folder, &stat, stat.mode(), file)
    }

    /// Keeps the copy of the snapshot in place alone, and makes it now if the older ones left it no room.
    pub(super) fn settle_copies(&self) {
        let Some(folder) = &self.copies else { return };
        let Ok(file) = fs::symlink_metadata(&self.snapshot) else { return };
        let copied = copy::keep_only(folder, file.ino()).and_then(|()| self.put_copy(folder));
        self.copied(&copied);
    }

    /// Tells whether there is a copy.
    fn copied(&self, copied: &io::Result<()>) {
        let error = match (copied, &self.copies) {
            (Err(error), Some(folder)) => format!("{}: {error}", folder.display()),
            _ => String::new(),
        };
        self.update(|status| {
            if !error.is_empty() && status.copy_error != error {
                tracing::warn!("the copy of the snapshot in memory is missing: {error}");
            }
            status.copy_error = error;
        });
    }
}

/// The bytes of the snapshot: from the disk, or else of its copy.
pub fn read(snapshot: &Path, copies: Option<&Path>) -> io::Result<Vec<u8>> {
    fs::read(snapshot).or_else(|error| {
        let file = fs::symlink_metadata(snapshot);
        let copied = copies.and_then(|folder| copy::read(folder, &file.ok()?));
        copied
            .inspect(|_| tracing::warn!("{}: {error}: its copy is read", snapshot.display()))
            .ok_or(error)
    })
}

/// Reads a file to its end, for the errors alone.
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
        // The file system refuses direct reads, or wants another alignment.
        io::ErrorKind::InvalidInput => read(how),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(copies(Path::new("/run/roster")), Some(copy::FOLDER.into()));
        assert_eq!(copies(Path::new("/tmp/run")), None);
    }
}
