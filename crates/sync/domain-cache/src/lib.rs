// SPDX-License-Identifier: MIT OR Apache-2.0
//! The durable cache of a domain: the backend's copy of its directory. The cache is one file that survives a kill at
//! any time.
//!
//! Entries are stored by their permanent keys in the directory. Their records have the format of the domain image, and
//! are opaque bytes here. Other tables hold the references of member lists, rejected entries, and the progress of
//! change tracking. One [`DomainCache::write`] is one transaction, so tracking is never ahead of the stored entries.
//!
//! The directory can restore the whole cache. A damaged or foreign file, or one of another version, is quarantined and
//! replaced by a new one. If the process *dies* while it opens a file, a marker beside the file records that.
//!
//! Beside the cache are data that the directory cannot restore: cached [`credentials`] of successful logins, as
//! [hashes](password_hash) that are expensive to try.
#![forbid(unsafe_code)]

mod byte_reader;
pub mod credentials;
mod error;
mod open;
pub mod password_hash;
mod tables;

pub use error::CacheError;
pub use open::{FileFault, OpenedCache, QuarantinedFile, clear_opening_marker, open};
pub use tables::{CacheReader, CacheTransaction, EntryHeader, EntryKey, Rejection, SearchProgress};

use redb::{Database, ReadableDatabase};
use std::path::PathBuf;

/// Name of the file in a domain's directory.
pub const CACHE_FILE: &str = "cache.redb";
/// Version of the tables. A file of another version is quarantined and never migrated, because the directory can
/// restore it.
pub const FORMAT: u32 = 9;
/// Limit of the quarantined files of each kind, damaged and foreign. They are retained for diagnosis.
pub const QUARANTINED_MAX: u32 = 2;

/// Size of the page cache in memory. Entries are read once and in order, at the start and when the publisher connects,
/// so a larger cache would not help.
const PAGE_CACHE_BYTES: usize = 4 << 20;

/// An open cache. Only one process has it open.
pub struct DomainCache {
    database: Database,
    path: PathBuf,
}

impl DomainCache {
    /// Applies `changes` durably, completely or not at all. After an error the file has to be reopened.
    pub fn write(
        &self,
        changes: impl FnOnce(&mut CacheTransaction<'_>) -> Result<(), CacheError>,
    ) -> Result<(), CacheError> {
        let failed = |error| CacheError::from_redb("write", &self.path, error);
        let transaction = self.database.begin_write().map_err(|error| failed(error.into()))?;
        let mut writer = CacheTransaction::new(&transaction, &self.path)?;
        changes(&mut writer)?;
        drop(writer);
        transaction.commit().map_err(|error| failed(error.into()))
    }

    /// Returns the error for contradictory data in the cache.
    #[must_use]
    pub fn damaged(&self, reason: &str) -> CacheError {
        CacheError::damaged(&self.path, reason)
    }

    /// Returns a reader of the present state. Later writes do not affect it.
    pub fn reader(&self) -> Result<CacheReader, CacheError> {
        let failed = |error| CacheError::from_redb("read", &self.path, error);
        let transaction = self.database.begin_read().map_err(|error| failed(error.into()))?;
        CacheReader::new(&transaction, &self.path)
    }
}
