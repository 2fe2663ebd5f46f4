//! What of the engine's state is to be written to the cache, and whether there is one.

use super::super::batch::Batch;
use super::Engine;
use roster_store::Store;
use std::sync::Arc;

impl Engine {
    /// Returns when there is something to write, at once when it is much, else after `delay`.
    pub async fn something_unwritten(&self, delay: std::time::Duration) {
        if self.state().unwritten.is_empty() {
            self.unwritten.notified().await;
        }
        let _ = tokio::time::timeout(delay, self.pressing.notified()).await;
    }

    /// What is to be written, and where; nothing is taken away.
    #[must_use]
    pub fn unwritten(&self) -> (Option<Arc<Store>>, Vec<Arc<Batch>>) {
        let state = self.state();
        (state.store.clone(), state.unwritten.iter().cloned().collect())
    }

    /// These batches are in the cache.
    pub fn written(&self, batches: &[Arc<Batch>]) {
        let mut state = self.state();
        for batch in batches {
            let stored = state.stored.unwrap_or_default();
            state.stored = Some(batch.numbers().map_or(stored, |numbers| numbers.max(stored)));
            if state.unwritten.front().is_some_and(|first| Arc::ptr_eq(first, batch)) {
                state.unwritten.pop_front();
                state.unwritten_bytes -= batch.bytes();
            }
        }
        if !state.cache_error.is_empty() {
            tracing::info!("the cache is written again");
            state.cache_error.clear();
        }
    }

    /// The cache cannot be written.
    pub fn unwritable(&self, error: &str) {
        let mut state = self.state();
        state.store = None;
        error.clone_into(&mut state.cache_error);
    }

    /// Whether there is a cache that can be written, as far as is known.
    #[must_use]
    pub fn has_store(&self) -> bool {
        self.state().store.is_some()
    }

    /// The cache is open again.
    pub fn reopened(&self, store: Arc<Store>) {
        self.state().store = Some(store);
    }

    /// The least that the cache must have given out of numbers if it is the one that was written;
    /// none as long as none was.
    #[must_use]
    pub fn stored(&self) -> Option<u32> {
        self.state().stored
    }

    /// Whether nothing was ever reported.
    #[must_use]
    pub fn knows_nothing(&self) -> bool {
        self.state().next_number == 0
    }

    /// The cache, for closing it.
    pub fn take_store(&self) -> Option<Arc<Store>> {
        self.state().store.take()
    }
}
