//! The cache of the domain as the engine knows it.

use roster_domain_cache::DomainCache;
use std::sync::Arc;

/// Reasons why a cache is empty or missing, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheOpenFault {
    /// It cannot be opened at present.
    NotOpened(String),
    /// It was damaged.
    Damaged(String),
    /// It was made with another configuration, or by another version of this program.
    Foreign(String),
}

/// The cache, and the reason why it cannot be written.
pub(super) struct CacheState {
    pub(super) store: Option<Arc<DomainCache>>,
    /// The number of the next new entry according to the cache. `None` as long as there is no cache and all data is in
    /// batches.
    pub(super) next_number: Option<u32>,
    /// The fault of the cache that the process found.
    fault: Option<CacheOpenFault>,
    /// The reason why the cache cannot be written. Empty if it can.
    pub(super) error: String,
}

impl CacheState {
    /// Makes the state. `next_number` is the value from the cache, if it could be opened.
    pub(super) fn new(
        store: Option<Arc<DomainCache>>,
        next_number: u32,
        fault: Option<CacheOpenFault>,
    ) -> Self {
        // Damage is reported as long as the process lives. A failure to open is reported until the cache opens.
        let (fault, error) = match fault {
            Some(CacheOpenFault::NotOpened(error)) => (None, error),
            fault => (fault, String::new()),
        };
        let next_number = store.as_ref().map(|_| next_number);
        Self { store, next_number, fault, error }
    }

    /// Returns the text for the status. Damage is reported as long as the process lives. A foreign cache is reported
    /// until the domain is complete, and a write error until writes work.
    pub(super) fn describe_fault(&self, is_complete: bool) -> &str {
        match &self.fault {
            _ if !self.error.is_empty() => &self.error,
            Some(CacheOpenFault::Damaged(text)) => text,
            Some(CacheOpenFault::Foreign(text)) if !is_complete => text,
            _ => "",
        }
    }
}
