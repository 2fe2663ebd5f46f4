// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record of the snapshots that this publisher wrote, in a small file beside them. A new process recognizes its own
//! snapshot by it. Entries in a snapshot of another writer do not count as served. `own` compares the snapshot in
//! place.
//!
//! The file has a line with generation and checksum for each snapshot. It is on the disk before a snapshot takes its
//! place, and also lists the one before. The snapshot in place is therefore always in the record.

use super::own::SnapshotIdentity;
use roster_file_replacement::FileReplacement;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// The file's name.
pub const FILE: &str = "roster.own";
/// The file's mode, as for the snapshot.
const MODE: u32 = 0o644;
/// Largest number of snapshots in the file: the present one and the next.
const SNAPSHOTS_MAX: usize = 2;
/// The last line. A file without it was cut.
const END: &str = "end\n";

/// Reads the file, the oldest snapshot first. `None` if the file is missing or damaged.
#[must_use]
pub fn read(snapshot_dir: &Path) -> Option<Vec<SnapshotIdentity>> {
    parse(&fs::read_to_string(snapshot_dir.join(FILE)).ok()?)
}

fn parse(text: &str) -> Option<Vec<SnapshotIdentity>> {
    let identity = |line: &str| {
        let (generation, checksum) = line.split_once(' ')?;
        let checksum = u64::from_str_radix(checksum, 16).ok()?;
        Some(SnapshotIdentity { generation: generation.parse().ok()?, checksum })
    };
    let lines = text.strip_suffix(END)?.split_terminator('\n');
    let snapshots = lines.map(identity).collect::<Option<Vec<_>>>()?;
    (1..=SNAPSHOTS_MAX).contains(&snapshots.len()).then_some(snapshots)
}

/// Writes the file, and returns when it is on the disk.
///
/// # Errors
/// The file or its directory cannot be written.
pub fn write(snapshot_dir: &Path, snapshots: &[SnapshotIdentity]) -> io::Result<()> {
    let mut text = String::new();
    for SnapshotIdentity { generation, checksum } in snapshots {
        let _ = writeln!(text, "{generation} {checksum:016x}");
    }
    text += END;
    let mut new = FileReplacement::create(&snapshot_dir.join(FILE))?;
    new.file().write_all(text.as_bytes())?;
    new.set_mode(MODE)?;
    new.place_synced()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_record_reads_back_unless_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path()), None);
        let snapshots = [7, 8, 9]
            .map(|generation| SnapshotIdentity { generation, checksum: u64::MAX - generation });
        for number in 1..=SNAPSHOTS_MAX {
            write(folder.path(), &snapshots[..number]).expect("written");
            assert_eq!(read(folder.path()).as_deref(), Some(&snapshots[..number]));
            let text = fs::read_to_string(folder.path().join(FILE)).expect("there");
            assert!((0..text.len()).all(|length| parse(&text[..length]).is_none()));
        }
        for number in [0, 3] {
            write(folder.path(), &snapshots[..number]).expect("written");
            assert_eq!(read(folder.path()), None, "{number} snapshots");
        }
    }
}
