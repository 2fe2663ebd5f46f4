// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that files were unchanged for a while when they were read. A write in place truncates a file and fills it
//! piece by piece. A read in between shows fewer accounts or other ones: `staff:x:60012:u12` cut is `staff:x:6001`, and
//! cut a little later it contains u1. `file_watch` reports when a file may have changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time without a write after which files count as complete.
pub const STABLE_FOR: Duration = Duration::from_secs(1);

/// Stamps that detect any write: device and inode, length, and time of change. Unlike the time of modification, no
/// program can set the time of change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStamps(Vec<Option<FileStamp>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Since 1970.
    changed: Duration,
}

impl FileStamps {
    /// Returns the present stamps. `None` if a needed file is inaccessible.
    #[must_use]
    pub fn from_paths(needed: &[&Path], optional: &[&Path]) -> Option<Self> {
        let needed: Option<Vec<_>> =
            needed.iter().map(|file| FileStamp::from_path(file).map(Some)).collect();
        let optional = optional.iter().map(|file| FileStamp::from_path(file));
        Some(Self(needed?.into_iter().chain(optional).collect()))
    }

    /// Returns whether the files were unchanged for this time at `by`. Returns `false` after the clock was set back.
    #[must_use]
    pub fn was_stable(&self, by: SystemTime, within: Duration) -> bool {
        let by = by.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.iter().flatten().all(|mark| by.saturating_sub(mark.changed) >= within)
    }
}

impl FileStamp {
    fn from_path(file: &Path) -> Option<Self> {
        let found = file.metadata().ok()?;
        let seconds = u64::try_from(found.ctime()).unwrap_or_default();
        let nanoseconds = u32::try_from(found.ctime_nsec()).unwrap_or_default();
        let changed = Duration::new(seconds, nanoseconds);
        Some(Self { device: found.dev(), inode: found.ino(), bytes: found.size(), changed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_clock_tells_at_the_start_whether_files_had_settled() {
        let folder = tempfile::tempdir().expect("a folder");
        let (passwd, group) = (folder.path().join("passwd"), folder.path().join("group"));
        fs::write(&passwd, "").expect("write");
        fs::write(&group, "").expect("write");
        let marks = FileStamps::from_paths(&[&passwd, &group], &[]).expect("both are there");
        let now = SystemTime::now();
        let hour = Duration::from_secs(3600);
        assert!(marks.was_stable(now + hour, STABLE_FOR));
        assert!(!marks.was_stable(now, STABLE_FOR), "written a moment ago");
        assert!(!marks.was_stable(now - hour, STABLE_FOR), "the clock was moved back");
    }
}
