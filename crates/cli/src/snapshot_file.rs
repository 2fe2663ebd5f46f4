//! Where snapshots lie, and reading one whole.

use anyhow::{Result, anyhow};
use roster_snapshot::Snapshot;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Where the module looks unless told otherwise.
pub const DEFAULT: &str = "/var/lib/roster/roster.snap";

/// The file of password hashes, in the same folder.
pub const SHADOW_NAME: &str = "shadow.snap";

/// All bytes of a snapshot. Reading is at its own pace and in private memory: a tool for people
/// should survive the file's being cut while it looks, which a mapping does not.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            anyhow!("{} does not exist; make it with `roster compile`", path.display())
        }
        _ => anyhow::Error::new(error).context(format!("cannot read {}", path.display())),
    })
}

/// Whether it is a snapshot of password hashes, by its header.
pub fn is_shadow(path: &Path) -> bool {
    let mut header = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4096).read_to_end(&mut header));
    // The header of a longer file is complete, only the length and the sections do not fit.
    let kind = Snapshot::open(&header).err();
    read.is_ok() && matches!(kind, Some(roster_snapshot::OpenError::BadKind { found: 2, .. }))
}
