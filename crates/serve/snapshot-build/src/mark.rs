// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mark of a host on which a snapshot was published: an empty file in root's configuration directory, which
//! the publisher cannot write. With it the NSS module reports a missing snapshot as EIO, not as ENOENT, which
//! programs read as "no such user". The monitor and `roster compile` set it, and nothing removes it.

use roster_snapshot::floor;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::path::Path;

/// Returns the file's path on a host.
#[must_use]
pub fn path() -> &'static Path {
    Path::new(floor::PUBLISHED.to_str().unwrap_or_default())
}

/// Sets the mark, durably. `true` if it was not there.
///
/// # Errors
///
/// The mark cannot be created, for example on a read-only file system.
pub fn set(path: &Path) -> io::Result<bool> {
    if path.symlink_metadata().is_ok() {
        return Ok(false);
    }
    let how = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, how, Mode::from_raw_mode(0o644))?;
    rustix::fs::fsync(file)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_set_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("published");
        assert!(set(&path).unwrap());
        assert!(path.is_file());
        assert!(!set(&path).unwrap());
        assert!(set(&folder.path().join("none/published")).is_err());
    }
}
