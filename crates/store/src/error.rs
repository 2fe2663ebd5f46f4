//! What can go wrong, told apart by what is to be done.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why the cache could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// What lies there is no cache, or not whole. It has to be set aside.
    #[error("{path} is unusable: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// In words.
        reason: String,
    },
    /// What lies there is a cache, and not this one. It has to be set aside.
    #[error("{path} is another cache: {reason}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// In words.
        reason: String,
    },
    /// Another process has it. There can be two back-ends of one domain for a moment only.
    #[error("{path} is in use by another process")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// An earlier error closed the file, and it was not opened again yet.
    #[error("{path} is closed: {reason}")]
    Closed {
        /// The file.
        path: PathBuf,
        /// The earlier error.
        reason: String,
    },
    /// The system refused: a full disk, missing rights. It may work later.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl StoreError {
    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.into() }
    }

    pub(crate) fn foreign(path: &Path, reason: impl Into<String>) -> Self {
        Self::Foreign { path: path.to_owned(), reason: reason.into() }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }

    /// The database's own errors. A short file and a foreign one come as errors of the system with a
    /// kind that no system call gives.
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
