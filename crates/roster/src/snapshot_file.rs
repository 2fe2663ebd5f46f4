//! Where snapshots lie, and reading one whole.

use anyhow::{Result, anyhow};
use roster_snapshot::layout::{HEADER_BYTES, SnapshotKind};
use roster_snapshot::{OpenError, Snapshot};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Where the module looks unless told otherwise.
pub const DEFAULT_SNAPSHOT: &str = "/var/lib/roster/snap/roster.v3.snap";
/// Where the module looks for password hashes: in a folder of root's, for readers refuse any other.
pub const DEFAULT_SHADOW: &str = "/var/lib/roster/shadow/shadow.v3.snap";

/// The file of password hashes that belongs to a snapshot: the default one's has a folder of its own, any
/// other's is `shadow.v3.snap` beside it.
pub fn shadow_path(snapshot: &Path) -> PathBuf {
    if snapshot == Path::new(DEFAULT_SNAPSHOT) {
        DEFAULT_SHADOW.into()
    } else {
        snapshot.with_file_name("shadow.v3.snap")
    }
}

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

/// Of which kind the snapshot with this beginning is, by its header.
pub fn kind(bytes: &[u8]) -> Option<SnapshotKind> {
    // The header of a longer file is complete, only the length and the sections do not fit; the
    // kind is looked at before those.
    let header = &bytes[..bytes.len().min(HEADER_BYTES)];
    let is_other = |opened: Result<Snapshot<'_>, OpenError>, other: SnapshotKind| matches!(opened, Err(OpenError::BadKind { found, .. }) if found == other as u32);
    if is_other(Snapshot::open(header), SnapshotKind::Shadow) {
        Some(SnapshotKind::Shadow)
    } else if is_other(Snapshot::open_shadow(header), SnapshotKind::Accounts) {
        Some(SnapshotKind::Accounts)
    } else {
        None
    }
}

/// Of which kind the snapshot at `path` is, if one is there.
pub fn kind_at(path: &Path) -> Option<SnapshotKind> {
    kind(&read_beginning(path)?)
}

/// As much of a regular file as a snapshot has for its header.
pub fn read_beginning(path: &Path) -> Option<Vec<u8>> {
    // A pipe in its place must not be waited for.
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, how, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut header = Vec::new();
    file.take(HEADER_BYTES as u64).read_to_end(&mut header).ok()?;
    Some(header)
}
