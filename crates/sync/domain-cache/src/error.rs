// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the cache, distinguished by the necessary action. `cache_writer` of the backend takes the action.

use roster_messages::{Message, table::directory};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The reason that the cache could not be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The file is damaged, or not a cache. It has to be quarantined.
    #[error("{path}: file is damaged: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file is the cache of another identity or version. It has to be quarantined.
    #[error("{path}: file belongs to another cache: {reason}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Another process has the file open. Two backends of one domain exist only briefly.
    #[error("{path}: file is in use by another process")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// An earlier error closed the file, and it was not reopened yet.
    #[error("{path}: file is closed: {reason}")]
    Closed {
        /// The file.
        path: PathBuf,
        /// The earlier error.
        reason: String,
    },
    /// The system reported an error, for example a full disk or missing rights. A later attempt may succeed.
    #[error("{path}: cannot {action} file: {source}")]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl CacheError {
    /// Returns the row of the table.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::Damaged { .. } => &directory::CACHE_DAMAGED,
            Self::Foreign { .. } => &directory::CACHE_FOREIGN,
            Self::InUse { .. } => &directory::CACHE_IN_USE,
            Self::Closed { .. } => &directory::CACHE_CLOSED,
            Self::Io { source, .. } => match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => &directory::CACHE_DISK_FULL,
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    &directory::CACHE_NOT_PERMITTED
                }
                _ => &directory::CACHE_IO,
            },
        }
    }

    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.into() }
    }

    pub(crate) fn foreign(path: &Path, reason: impl Into<String>) -> Self {
        Self::Foreign { path: path.to_owned(), reason: reason.into() }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }

    /// Converts errors of the database. A short or foreign file gives system errors of a kind that no system call
    /// returns.
    pub(crate) fn from_redb(action: &'static str, path: &Path, error: redb::Error) -> Self {
        use redb::Error as E;
        match error {
            E::Io(source) => match source.kind() {
                ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                    Self::damaged(path, source.to_string())
                }
                _ => Self::io(action, path, source),
            },
            E::DatabaseAlreadyOpen => Self::InUse { path: path.to_owned() },
            E::PreviousIo | E::DatabaseClosed => {
                Self::io(action, path, io::Error::other("an earlier error"))
            }
            error => Self::damaged(path, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_errors_have_codes() {
        let path = Path::new("cache.redb");
        let system = |kind: ErrorKind| CacheError::io("write", path, kind.into());
        let redb = |error| CacheError::from_redb("open", path, error);
        for (error, message) in [
            (redb(redb::Error::DatabaseAlreadyOpen), &directory::CACHE_IN_USE),
            (system(ErrorKind::StorageFull), &directory::CACHE_DISK_FULL),
            (system(ErrorKind::PermissionDenied), &directory::CACHE_NOT_PERMITTED),
        ] {
            assert_eq!(error.message(), message, "{error}");
        }
    }
}
