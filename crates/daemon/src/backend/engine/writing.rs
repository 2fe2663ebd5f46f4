//! What of the engine's state is to be written to the cache, and whether there is one.

use super::super::batch::Batch;
use super::Engine;
use roster_config::Mode;
use roster_store::Store;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a reply waits for a slow disk. A lookup as a whole has 2.5 s.
const COMMIT_WAIT: Duration = Duration::from_millis(500);

impl Engine {
    /// Returns when there is something to write, at once when it is much, else after `delay`.
    pub async fn something_unwritten(&self, delay: Duration) {
        if self.state().unwritten.is_empty() {
            self.unwritten.notified().await;
        }
        let _ = timeout(delay, self.pressing.notified()).await;
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
                self.committed.send_modify(|committed| committed.place = batch.place);
            }
        }
        self.committed.send_modify(|committed| committed.is_failing = false);
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
        self.committed.send_modify(|committed| committed.is_failing = true);
    }

    /// Returns once the cache durably has all that was reported so far of a directory that is asked on
    /// demand. A back-end that is killed would otherwise publish an older reply after its restart.
    /// Replies of the same moment share one transaction. A disk that fails, or takes too long, holds up
    /// no reply.
    pub async fn committed(&self) {
        if self.settings.mode != Mode::OnDemand {
            return;
        }
        let mut committed = self.committed.subscribe();
        let place = {
            let state = self.state();
            if state.store.is_none() || !state.cache_error.is_empty() {
                return;
            }
            state.visible_place
        };
        if committed.borrow().place >= place {
            return;
        }
        self.pressing.notify_one();
        let is_over = committed.wait_for(|now| now.place >= place || now.is_failing);
        if timeout(COMMIT_WAIT, is_over).await.is_err() {
            tracing::debug!("a reply does not wait for the cache any longer");
        }
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
