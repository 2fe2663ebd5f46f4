// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of the [`Floor`], for programs. The monitor and `roster enable` write it; the nscd map and `roster doctor`
//! read it. The NSS module reads it with separate code, by the same rules.

use crate::publish::{FileRights, PublishError, publish};
use roster_snapshot::Floor;
use roster_snapshot::floor::{self, FILE_BYTES_MAX};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Readable for every process, like /etc/passwd.
const MODE: u32 = 0o644;

/// Reasons readers apply the default floor instead of the file.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The path does not lead to a regular file.
    #[error("is not a regular file")]
    Irregular,
    /// The owner is not root.
    #[error("belongs to uid {0}, not to root")]
    Owner(u32),
    /// Group or others may write to it.
    #[error("can be written by others than root (mode {0:04o})")]
    Writable(u32),
    /// The text is not in the format.
    #[error("is not in the format of a floor: a line `min_id N`, then lines `gid N`")]
    Malformed,
}

/// Returns the file's default path.
#[must_use]
pub fn path() -> &'static Path {
    Path::new(floor::PATH.to_str().unwrap_or_default())
}

/// Reads the file. `None` if it does not exist.
///
/// # Errors
///
/// The file exists, and readers apply the default floor instead.
pub fn read(path: &Path) -> Result<Option<Floor>, FloorError> {
    let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, how, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(error) if io::Error::from(error).kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io::Error::from(error).into()),
    };
    parse(file).map(Some)
}

/// Reads an open file, which may be a pipe or another file type.
///
/// # Errors
///
/// Readers apply the default floor instead.
pub fn parse(file: File) -> Result<Floor, FloorError> {
    let stat = file.metadata()?;
    if !stat.is_file() {
        return Err(FloorError::Irregular);
    }
    if stat.uid() != 0 {
        return Err(FloorError::Owner(stat.uid()));
    }
    if stat.mode() & 0o022 != 0 {
        return Err(FloorError::Writable(stat.mode() & 0o7777));
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
    if text.len() > FILE_BYTES_MAX {
        return Err(FloorError::Malformed);
    }
    Floor::parse(&text).ok_or(FloorError::Malformed)
}

/// Returns true if readers apply this floor from the file.
#[must_use]
pub fn is_current(path: &Path, floor: &Floor) -> bool {
    read(path).is_ok_and(|current| current == Some(*floor))
}

/// Replaces the file in one step, unless it already has that floor. Returns true if it was replaced.
///
/// # Errors
///
/// The old file stays.
pub fn write(path: &Path, floor: &Floor) -> Result<bool, PublishError> {
    if is_current(path, floor) {
        return Ok(false);
    }
    let text = floor.to_string();
    publish(path, FileRights { mode: MODE, gid: None }, |file, _| {
        file.write_all(text.as_bytes())?;
        Ok(text.len() as u64)
    })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn floor_file_written_once_and_read_back() {
        if !is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("floor");
        assert!(read(&path).unwrap().is_none());
        let floor = Floor::new(500, [100]).unwrap();
        assert!(write(&path, &floor).unwrap());
        assert_eq!(read(&path).unwrap(), Some(floor));
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, MODE);
        assert!(!write(&path, &floor).unwrap());
        assert!(write(&path, &Floor::default()).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "min_id 1000\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn floor_file_not_of_root_alone_rejected() {
        if !is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("floor");
        let fresh = |text: &[u8]| {
            let _ = fs::remove_file(&path);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        };
        fresh(b"min_id 1\n");
        chown(&path, Some(12_345), None).unwrap();
        assert!(matches!(read(&path), Err(FloorError::Owner(12_345))));
        for mode in [0o664, 0o646] {
            fresh(b"min_id 1\n");
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(matches!(read(&path), Err(FloorError::Writable(found)) if found == mode));
        }
        fresh(b"min_id 1\n\n");
        assert!(matches!(read(&path), Err(FloorError::Malformed)));
        fresh(&b"min_id 1\n".repeat(FILE_BYTES_MAX));
        assert!(matches!(read(&path), Err(FloorError::Malformed)));
        fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(matches!(read(&path), Err(FloorError::Unreadable(_))));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(read(&path), Err(FloorError::Irregular)));
        // The next write replaces a rejected file, but not a directory.
        assert!(write(&path, &Floor::default()).is_err());
        fs::remove_dir(&path).unwrap();
        fresh(b"min_id\n");
        assert!(write(&path, &Floor::default()).unwrap());
        assert_eq!(read(&path).unwrap(), Some(Floor::default()));
    }
}
