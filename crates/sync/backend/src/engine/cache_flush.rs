// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unwritten parts of the engine's state, and the availability of the cache. This module writes no file: `cache_writer`
//! does.

use super::super::change_batch::ChangeBatch;
use super::Engine;
use roster_config::DomainMode;
use roster_domain_cache::DomainCache;
use roster_provider::reason::Reason;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Time that a reply waits for a slow disk. A lookup as a whole has 2.5 s.
const COMMIT_WAIT: Duration = Duration::from_millis(500);

impl Engine {
    /// Returns when there is something to write: at once if it is large, otherwise after `delay`.
    pub async fn wait_for_unwritten(&self, delay: Duration) {
        if self.state().batches.unwritten.is_empty() {
            self.unwritten.notified().await;
        }
        let _ = timeout(delay, self.flush_due.notified()).await;
    }

    /// Returns the cache and the unwritten batches, without removing them.
    #[must_use]
    pub fn unwritten_batches(&self) -> (Option<Arc<DomainCache>>, Vec<Arc<ChangeBatch>>) {
        let state = self.state();
        (state.cache.store.clone(), state.batches.unwritten.iter().cloned().collect())
    }

    /// Removes batches that were written to the cache.
    pub fn mark_written(&self, batches: &[Arc<ChangeBatch>]) {
        let mut state = self.state();
        for batch in batches {
            let stored = state.cache.next_number.unwrap_or_default();
            state.cache.next_number =
                Some(batch.changed_next_number().map_or(stored, |numbers| numbers.max(stored)));
            if state.batches.unwritten.front().is_some_and(|first| Arc::ptr_eq(first, batch)) {
                state.batches.unwritten.pop_front();
                state.batches.unwritten_bytes -= batch.memory_bytes();
                self.committed.send_modify(|committed| committed.write_index = batch.write_index);
            }
        }
        self.committed.send_modify(|committed| committed.is_failing = false);
        if state.cache.error.take().is_some() {
            tracing::info!("the cache is written again");
        }
    }

    /// Records that the cache cannot be written.
    pub fn set_cache_error(&self, error: Reason) {
        let mut state = self.state();
        state.cache.store = None;
        state.cache.error = Some(error);
        self.committed.send_modify(|committed| committed.is_failing = true);
    }

    /// Returns once all reports of an on-demand domain so far are durable. A backend that is killed would otherwise
    /// publish an older reply after its restart. Concurrent replies share one transaction. A disk that fails, or takes
    /// too long, delays no reply.
    pub async fn wait_until_committed(&self) {
        if self.settings.mode != DomainMode::OnDemand {
            return;
        }
        let mut committed = self.committed.subscribe();
        let place = {
            let state = self.state();
            if state.cache.store.is_none() || state.cache.error.is_some() {
                return;
            }
            state.batches.last_visible_index
        };
        if committed.borrow().write_index >= place {
            return;
        }
        self.flush_due.notify_one();
        let is_over = committed.wait_for(|now| now.write_index >= place || now.is_failing);
        if timeout(COMMIT_WAIT, is_over).await.is_err() {
            tracing::debug!("a reply does not wait for the cache any longer");
        }
    }

    /// Whether there is a writable cache, as far as is known.
    #[must_use]
    pub fn has_store(&self) -> bool {
        self.state().cache.store.is_some()
    }

    /// Sets the reopened cache.
    pub fn set_store(&self, store: Arc<DomainCache>) {
        self.state().cache.store = Some(store);
    }

    /// Returns the smallest next number that the reopened cache must have; `None` if there was no cache.
    #[must_use]
    pub fn stored_next_number(&self) -> Option<u32> {
        self.state().cache.next_number
    }

    /// Whether there were no reports at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state().next_number == 0
    }

    /// Removes the cache, so that it can be closed.
    pub fn take_store(&self) -> Option<Arc<DomainCache>> {
        self.state().cache.store.take()
    }
}
