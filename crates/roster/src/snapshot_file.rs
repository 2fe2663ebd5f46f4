// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of snapshots, and reading a whole snapshot. `roster-snapshot` parses them.

use roster_messages::CodedError;
use roster_messages::table::{host, tools};
use roster_snapshot::layout::{HEADER_BYTES, SnapshotKind};
use roster_snapshot::{OpenError, Snapshot};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Default snapshot of the NSS module.
pub const DEFAULT_SNAPSHOT: &str = "/var/lib/roster/snap/roster.v3.snap";
/// Default snapshot of password hashes. Readers accept it only in a directory of root.
pub const DEFAULT_SHADOW: &str = "/var/lib/roster/shadow/shadow.v3.snap";

/// Returns the file of password hashes of a snapshot: the default one has a separate directory, for any other it is
/// `shadow.v3.snap` in the same directory.
pub fn shadow_path(snapshot: &Path) -> PathBuf {
    if snapshot == Path::new(DEFAULT_SNAPSHOT) {
        DEFAULT_SHADOW.into()
    } else {
        snapshot.with_file_name("shadow.v3.snap")
    }
}

/// Reads all bytes of a snapshot into private memory. A mapping would end the program if the file is truncated.
pub fn read(path: &Path) -> Result<Vec<u8>, CodedError> {
    fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let text = format!("{} does not exist", path.display());
            CodedError::new(&tools::SNAPSHOT_MISSING, text)
        }
        _ => {
            let text = format!("{} cannot be read", path.display());
            CodedError::new(&tools::SNAPSHOT_UNREADABLE, text).caused_by(error)
        }
    })
}

/// Returns the error of a damaged or invalid snapshot.
pub fn invalid(path: &Path, error: &dyn std::fmt::Display) -> CodedError {
    CodedError::new(&host::SNAPSHOT_INVALID, format!("{}: {error}", path.display()))
}

/// Returns the kind of the snapshot that begins with these bytes, by its header.
pub fn kind(bytes: &[u8]) -> Option<SnapshotKind> {
    // The header alone has a wrong length for its sections. `open` checks the kind before those.
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

/// Returns the kind of the snapshot at `path`. `None` without a snapshot.
pub fn kind_at(path: &Path) -> Option<SnapshotKind> {
    kind(&read_beginning(path)?)
}

/// Reads the bytes of the header from a regular file.
pub fn read_beginning(path: &Path) -> Option<Vec<u8>> {
    // The flag avoids a wait for a pipe of that name.
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, how, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut header = Vec::new();
    file.take(HEADER_BYTES as u64).read_to_end(&mut header).ok()?;
    Some(header)
}
