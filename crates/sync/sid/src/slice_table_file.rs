// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file with the slices of a domain, in the state directory of its backend. `slice_table` parses the text.

use crate::slice_table::{SliceTable, SliceTableError, TABLE_BYTES_MAX, TableMismatch};
use roster_file_replacement::FileReplacement;
use roster_messages::table::directory;
use roster_messages::{CodedError, Message};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Name of the file.
pub const FILE_NAME: &str = "id-slices";

/// The reason that the slices of a domain cannot be read, used or stored.
#[derive(Debug, thiserror::Error)]
pub enum SliceFileError {
    /// The system reported an error.
    #[error("{path}: cannot {action} file: {source}")]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is damaged or has another format.
    #[error("{path}: slices cannot be read: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: SliceTableError,
    },
    /// The slices contradict the configuration.
    #[error("{path}: {reason}")]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The reason, with both lines.
        reason: TableMismatch,
    },
}

impl SliceFileError {
    /// Returns the row of the table.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::Io { .. } => &directory::ID_SLICES_IO,
            Self::Damaged { .. } => &directory::ID_SLICES_DAMAGED,
            Self::Mismatch { .. } => &directory::ID_SLICES_MISMATCH,
        }
    }

    /// Makes the error of a contradiction.
    #[must_use]
    pub fn mismatch(directory: &Path, reason: TableMismatch) -> Self {
        Self::Mismatch { path: directory.join(FILE_NAME), reason }
    }

    fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

impl From<SliceFileError> for CodedError {
    fn from(error: SliceFileError) -> Self {
        Self::new(error.message(), error.to_string())
    }
}

/// Reads the file of a directory. `None`: the directory has no such file yet.
///
/// # Errors
///
/// The file cannot be read, or is damaged. It is never treated as missing then: all ids could change.
pub fn read(directory: &Path) -> Result<Option<SliceTable>, SliceFileError> {
    let path = directory.join(FILE_NAME);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(SliceFileError::io("open", &path, error)),
    };
    let mut text = Vec::new();
    // One byte more than a table shows that the file is too large.
    let limit = u64::try_from(TABLE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit)
        .read_to_end(&mut text)
        .map_err(|error| SliceFileError::io("read", &path, error))?;
    match SliceTable::parse(&text) {
        Ok(table) => Ok(Some(table)),
        Err(reason) => Err(SliceFileError::Damaged { path, reason }),
    }
}

/// Replaces the file of a directory durably. Call it before an id of a new slice is served.
///
/// # Errors
///
/// The old file stays.
pub fn write(directory: &Path, table: &SliceTable) -> Result<(), SliceFileError> {
    let path = directory.join(FILE_NAME);
    let replace = || {
        let mut new = FileReplacement::create(&path)?;
        new.file().write_all(table.to_text().as_bytes())?;
        new.place_synced()
    };
    replace().map_err(|error| SliceFileError::io("replace", &path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DomainSlice, IdRange, open_mapper};

    fn table(rid: u32) -> SliceTable {
        let sid = "S-1-5-21-1-2-3".parse().expect("a SID");
        let domain = DomainSlice { sid, slice: None };
        let mut mapper = open_mapper(IdRange::default(), domain, &[], None).expect("a mapper");
        mapper.to_id(&sid.with_rid(rid).expect("a SID")).expect("an id");
        SliceTable::from(&mapper)
    }

    #[test]
    fn slice_file_is_replaced_and_read() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(matches!(read(dir.path()), Ok(None)));
        for rid in [500, 200_000] {
            write(dir.path(), &table(rid)).expect("write");
            assert_eq!(read(dir.path()).expect("read"), Some(table(rid)));
        }
        let names: Vec<_> = std::fs::read_dir(dir.path()).expect("read").collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn slice_file_mismatch_names_both_lines() {
        let sid = "S-1-5-21-1-2-3".parse().expect("a SID");
        let domain = DomainSlice { sid, slice: Some(5) };
        let stored = table(500);
        let reason =
            open_mapper(stored.range(), domain, &[], Some(&stored)).expect_err("a mismatch");
        let error = SliceFileError::mismatch(Path::new("/state/corp"), reason);
        let slice = stored.claims()[0].slice;
        let text = format!(
            "/state/corp/id-slices: stored line \"slice {slice} {sid} 0\" disagrees with id_slice = 5"
        );
        assert_eq!((error.message().code, error.to_string()), ("RST-5811", text));
    }

    #[test]
    fn slice_file_damaged_is_not_missing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(FILE_NAME);
        for text in ["", "roster-id-slices 2\n", "roster-id-slices 1\nrange 1 2 1\n"] {
            std::fs::write(&path, text).expect("write");
            let error = read(dir.path()).expect_err("damaged");
            assert_eq!(error.message(), &directory::ID_SLICES_DAMAGED, "{error}");
        }
        std::fs::remove_file(&path).expect("remove");
        std::fs::create_dir(&path).expect("a directory");
        let error = read(dir.path()).expect_err("a directory");
        assert_eq!(error.message(), &directory::ID_SLICES_IO, "{error}");
    }
}
