// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error of a cache that cannot be parsed.

use super::tdb;
use std::fmt;

/// A defect of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SssdCacheError {
    /// The TDB file is damaged or unsupported.
    Tdb(tdb::TdbError),
    /// An entry is damaged.
    Entry,
}

impl From<tdb::TdbError> for SssdCacheError {
    fn from(error: tdb::TdbError) -> Self {
        Self::Tdb(error)
    }
}

impl fmt::Display for SssdCacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tdb(error) => error.fmt(f),
            Self::Entry => f.write_str("an entry is damaged, or of an unknown format"),
        }
    }
}

impl std::error::Error for SssdCacheError {}
