// SPDX-License-Identifier: MIT OR Apache-2.0
//! Owners of uids for the limits of the daemon: subuid(5) may give one user thousands of uids. Rules and rights still
//! apply to each uid. `resource_limits` counts the connections and commands of an owner.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The file with the ranges. Ranges of a directory (`subid` of nsswitch.conf) are not supported.
const FILE: &str = "/etc/subuid";
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Interval at which the file is checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Ranges of uids with their owners.
pub(super) struct SubuidOwners {
    file: PathBuf,
    cached: Mutex<SubuidRanges>,
}

#[derive(Default)]
struct SubuidRanges {
    checked: Option<Instant>,
    modified: Option<SystemTime>,
    /// Sorted ranges. Each has the uid that represents its owner.
    ranges: Vec<(Range<u32>, u32)>,
}

impl Default for SubuidOwners {
    fn default() -> Self {
        Self { file: FILE.into(), cached: Mutex::default() }
    }
}

impl SubuidOwners {
    /// Returns the uid that represents the owner: the uid itself, or the first one of the first range of its owner.
    pub(super) fn find_owner(&self, uid: u32) -> u32 {
        let mut known = self.cached.lock();
        known.refresh(&self.file, Instant::now());
        known.find_owner(uid)
    }
}

impl SubuidRanges {
    fn refresh(&mut self, file: &Path, now: Instant) {
        if self.checked.is_some_and(|looked| now < looked + CHECK_INTERVAL) {
            return;
        }
        self.checked = Some(now);
        let changed = fs::metadata(file).and_then(|status| status.modified()).ok();
        if changed == self.modified && changed.is_some() {
            return;
        }
        let mut text = String::new();
        // Without the file there are no ranges.
        let _ =
            File::open(file).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
        (self.modified, self.ranges) = (changed, parse_ranges(&text));
    }

    fn find_owner(&self, uid: u32) -> u32 {
        let behind = self.ranges.partition_point(|(range, _)| range.start <= uid);
        let last = behind.checked_sub(1).and_then(|at| self.ranges.get(at));
        last.filter(|(range, _)| range.contains(&uid)).map_or(uid, |(_, person)| *person)
    }
}

/// Parses lines `OWNER:FIRST:COUNT`. Other lines are ignored.
fn parse_ranges(text: &str) -> Vec<(Range<u32>, u32)> {
    let mut persons: HashMap<&str, u32> = HashMap::new();
    let mut ranges: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.trim().split(':');
            let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
            let first: u32 = first.parse().ok()?;
            let end = first.saturating_add(count.parse().ok()?);
            Some((first..end, *persons.entry(owner).or_insert(first)))
        })
        .collect();
    ranges.sort_unstable_by_key(|(range, _)| range.start);
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_given_uids_is_one_person() {
        let text = "alice:100000:65536\n# none\nbob:165536:65536\nalice:4294000000:65536\nx:y:z\n";
        let known = SubuidRanges { ranges: parse_ranges(text), ..SubuidRanges::default() };
        for (uid, person) in [
            (1000, 1000),
            (99_999, 99_999),
            (100_000, 100_000),
            (165_535, 100_000),
            (165_536, 165_536),
            (231_071, 165_536),
            (231_072, 231_072),
            (4_294_000_001, 100_000),
        ] {
            assert_eq!(known.find_owner(uid), person, "{uid}");
        }
    }

    #[test]
    fn a_file_that_changes_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("subuid");
        let mut known = SubuidRanges::default();
        let start = Instant::now();
        known.refresh(&file, start);
        assert_eq!(known.find_owner(100_001), 100_001);
        fs::write(&file, "alice:100000:65536\n").unwrap();
        known.refresh(&file, start);
        assert_eq!(known.find_owner(100_001), 100_001);
        known.refresh(&file, start + CHECK_INTERVAL);
        assert_eq!(known.find_owner(100_001), 100_000);
    }
}
