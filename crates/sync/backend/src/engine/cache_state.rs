// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache of the domain as the engine knows it. `cache_writer` opens and writes it.

use roster_domain_cache::DomainCache;
use roster_provider::reason::Reason;
use std::sync::Arc;

/// Reasons why a cache is empty or missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheOpenFault {
    /// The cache cannot be opened at present.
    NotOpened(Reason),
    /// The cache was damaged.
    Damaged(Reason),
    /// The cache was made with another configuration, or by another version of this program.
    Foreign(Reason),
}

/// The cache, and the reason why it cannot be written.
pub(super) struct CacheState {
    pub(super) store: Option<Arc<DomainCache>>,
    /// The number of the next new entry according to the cache. `None` as long as there is no cache and all data is in
    /// batches.
    pub(super) next_number: Option<u32>,
    /// The fault of the cache that the process found.
    fault: Option<CacheOpenFault>,
    /// The reason why the cache cannot be written. `None` if it can.
    pub(super) error: Option<Reason>,
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
            Some(CacheOpenFault::NotOpened(error)) => (None, Some(error)),
            fault => (fault, None),
        };
        let next_number = store.as_ref().map(|_| next_number);
        Self { store, next_number, fault, error }
    }

    /// Returns the fault for the status. Damage is reported as long as the process lives. A foreign cache is reported
    /// until the domain is complete, and a write error until writes work.
    pub(super) fn fault(&self, is_complete: bool) -> Option<&Reason> {
        self.error.as_ref().or(match &self.fault {
            Some(CacheOpenFault::Damaged(reason)) => Some(reason),
            Some(CacheOpenFault::Foreign(reason)) if !is_complete => Some(reason),
            _ => None,
        })
    }

    /// Returns the reason why the cache is closed, as text.
    pub(super) fn closed_reason(&self) -> String {
        self.error.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}
