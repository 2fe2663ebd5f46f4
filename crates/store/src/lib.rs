//! A domain's durable cache: what a back-end knows of its directory, in one file that survives a
//! kill at any moment.
//!
//! Entries lie under the directory's own lasting keys, their records in the form of the exchange
//! with the publisher, which are only bytes here. Beside them lie the references that member lists
//! are made of, what was rejected, and how far change tracking has come. All that one [`Store::write`]
//! does is one transaction, so that what is tracked is never ahead of what is stored.
//!
//! A cache is worth nothing that the directory could not give again: a file that is damaged, foreign
//! or of another version is set aside, and a fresh one takes its place. A file on which opening
//! *dies* is found out by a marker that lies beside it while it is opened.
//!
//! Beside the cache lies what the directory cannot give again: what is kept of [passwords](credentials) that it
//! found right, by [hashes](password) that are costly to try.
#![forbid(unsafe_code)]

mod bytes;
pub mod credentials;
mod error;
mod open;
pub mod password;
mod tables;

pub use error::StoreError;
pub use open::{Opened, SetAside, Useless, open, opening_stopped};
pub use tables::{Header, Key, Part, Reader, Rejection, Writer};

use redb::{Database, ReadableDatabase};
use std::path::PathBuf;

/// Name of the file in a domain's folder.
pub const FILE: &str = "cache.redb";
/// Version of the tables. Another one is set aside, never migrated: the directory has it all.
pub const FORMAT: u32 = 8;
/// Files that were set aside and are kept for whoever wants to know: of those that were damaged, and of
/// those that were another's.
pub const SET_ASIDE_MAX: u32 = 2;

/// Pages that are kept in memory. What is read is read once and in order, at the start and when the
/// publisher begins: a larger cache would only hold what nobody asks for again.
const PAGE_CACHE_BYTES: usize = 4 << 20;

/// An open cache. One process has it open at a time.
pub struct Store {
    database: Database,
    path: PathBuf,
}

impl Store {
    /// Carries out what `changes` does, whole and durably, or not at all. After an error the file has
    /// to be opened anew.
    pub fn write(
        &self,
        changes: impl FnOnce(&mut Writer<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let failed = |error| StoreError::from_redb("write", &self.path, error);
        let transaction = self.database.begin_write().map_err(|error| failed(error.into()))?;
        let mut writer = Writer::new(&transaction, &self.path)?;
        changes(&mut writer)?;
        drop(writer);
        transaction.commit().map_err(|error| failed(error.into()))
    }

    /// The error for what was found in the cache and contradicts itself.
    #[must_use]
    pub fn damaged(&self, reason: &str) -> StoreError {
        StoreError::damaged(&self.path, reason)
    }

    /// The cache as it is now, whatever is written while the reader lives.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        let failed = |error| StoreError::from_redb("read", &self.path, error);
        let transaction = self.database.begin_read().map_err(|error| failed(error.into()))?;
        Reader::new(&transaction, &self.path)
    }
}
