//! Whether files had been left alone for a while when they were read: whoever writes in place empties a
//! file first and fills it piece by piece, and what is read in between looks like fewer accounts, or like
//! others: `staff:x:60012:u12` cut is `staff:x:6001`, and cut a little later has u1 in it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long nobody may have written for the files to be believed whole.
pub const SETTLED: Duration = Duration::from_secs(1);

/// What tells files from what they are after anybody wrote: which they are, how long, and when
/// they changed, which unlike the time of writing nobody can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks(Vec<Option<Mark>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Since 1970.
    changed: Duration,
}

impl Marks {
    /// As the files are now; `None` when one that must be there cannot be seen.
    #[must_use]
    pub fn of(needed: &[&Path], optional: &[&Path]) -> Option<Self> {
        let needed: Option<Vec<_>> = needed.iter().map(|file| Mark::of(file).map(Some)).collect();
        let optional = optional.iter().map(|file| Mark::of(file));
        Some(Self(needed?.into_iter().chain(optional).collect()))
    }

    /// Whether the files had been left alone for so long by then, by the clock. One that was moved back
    /// says no.
    #[must_use]
    pub fn had_settled(&self, by: SystemTime, within: Duration) -> bool {
        let by = by.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.iter().flatten().all(|mark| by.saturating_sub(mark.changed) >= within)
    }
}

impl Mark {
    fn of(file: &Path) -> Option<Self> {
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
        let marks = Marks::of(&[&passwd, &group], &[]).expect("both are there");
        let now = SystemTime::now();
        let hour = Duration::from_secs(3600);
        assert!(marks.had_settled(now + hour, SETTLED));
        assert!(!marks.had_settled(now, SETTLED), "written a moment ago");
        assert!(!marks.had_settled(now - hour, SETTLED), "the clock was moved back");
    }
}
