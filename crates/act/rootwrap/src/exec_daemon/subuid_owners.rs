//! Who counts as one where something is bounded: a uid that subuid(5) gives to somebody is that person's, who may
//! connect as any of thousands. What they may do is each uid's own matter.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Where they are given. What a directory gives (`subid` of nsswitch.conf) is not known here.
const FILE: &str = "/etc/subuid";
const FILE_BYTES_MAX: u64 = 4 << 20;
/// How often it is looked whether it has changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The uids that persons have besides their own.
pub(super) struct SubuidOwners {
    file: PathBuf,
    cached: Mutex<SubuidRanges>,
}

#[derive(Default)]
struct SubuidRanges {
    checked: Option<Instant>,
    modified: Option<SystemTime>,
    /// Sorted, each with the uid that stands for all of its owner's.
    ranges: Vec<(Range<u32>, u32)>,
}

impl Default for SubuidOwners {
    fn default() -> Self {
        Self { file: FILE.into(), cached: Mutex::default() }
    }
}

impl SubuidOwners {
    /// The uid that stands for a person: that of a user, or the first of those that a user was given.
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
        // Without such a file nobody has any.
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

/// Of lines `OWNER:FIRST:COUNT`; others are passed over.
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
