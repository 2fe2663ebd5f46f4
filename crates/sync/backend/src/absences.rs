// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides about entries that a listing or a reply lacked: searches for them by their keys, together with entries of
//! the same kind that must be there. A missing entry is removed only if such a reply is credible and lacks it too. Only
//! a few are removed without an approval ([`mass_deletion`](roster_provider::mass_deletion)).
//!
//! Searches again every minute for entries with a pending removal. An entry that reappears is no longer pending. An
//! approval lists the entries once more before it removes them.

use super::engine::{AbsenceResult, AbsenceSearch, Engine};
use super::entry_index::CachedKind;
use roster_messages::table::directory;
use roster_provider::reason::Reason;
use roster_provider::{KeySearchResult, LookupError, LookupScope, Provider};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// First pause after a search without a decision. It doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause, and the time between two searches for entries with a pending removal.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Time limit of one search, if the search timeout of the domain is longer.
const SEARCH_MAX: Duration = Duration::from_secs(120);

/// Decides about missing entries.
pub struct AbsenceCheck<P> {
    engine: Arc<Engine>,
    provider: Arc<P>,
    /// Allows one search at a time. Later ones find the entries decided.
    search_lock: Mutex<()>,
}

fn request_for(kind: CachedKind) -> LookupScope {
    match kind {
        CachedKind::User => LookupScope::Users,
        CachedKind::Group | CachedKind::NestedGroup => LookupScope::Groups,
    }
}

impl<P: Provider> AbsenceCheck<P> {
    /// Makes a check of this engine's entries with this provider.
    pub fn new(engine: Arc<Engine>, provider: Arc<P>) -> Self {
        Self { engine, provider, search_lock: Mutex::default() }
    }

    async fn search_keys(&self, chunk: &AbsenceSearch) -> Result<KeySearchResult, LookupError> {
        let looked =
            self.provider.search_keys(request_for(chunk.kind), &chunk.missing, &chunk.control);
        timeout(SEARCH_MAX, looked).await.unwrap_or_else(|_| Err(LookupError::timeout()))
    }

    /// Searches for all missing entries once, and removes or holds the absent ones. An error decides nothing: the
    /// entries stay missing, and are served.
    pub async fn check_once(&self) -> Result<(), LookupError> {
        let _turn = self.search_lock.lock().await;
        let mut kinds = CachedKind::ALL
            .map(|_| AbsenceResult { is_credible: true, ..AbsenceResult::default() });
        for chunk in self.engine.missing_searches() {
            let looked = self.search_keys(&chunk).await?;
            let absent = &mut kinds[chunk.kind as usize];
            absent.keys.extend(chunk.absent_keys(&looked));
            absent.hidden += chunk.control_absent(&looked);
            absent.is_credible &= chunk.is_credible(&looked);
        }
        // All searches count together: a directory that hides part of its entries hides a few in each search.
        for kind in CachedKind::ALL {
            self.engine.resolve_missing(kind, &kinds[kind as usize]);
        }
        Ok(())
    }

    /// Searches for entries with a pending removal, as long as some are found.
    pub async fn recheck_held(&self) -> Result<(), LookupError> {
        let _turn = self.search_lock.lock().await;
        for chunk in self.engine.held_searches() {
            if self.search_keys(&chunk).await?.found.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Runs forever.
    pub async fn keep_checking(&self) {
        tokio::join!(self.check_missing(), self.keep_rechecking_held());
    }

    async fn check_missing(&self) {
        let mut pause = PAUSE_MIN;
        loop {
            self.engine.wait_for_missing().await;
            self.wait_until_online().await;
            if let Err(error) = self.check_once().await {
                tracing::debug!("missing entries are served, and looked for again: {error}");
            }
            // A found entry stays missing until a mirror has read it.
            if self.engine.has_missing() {
                sleep(pause).await;
                pause = (2 * pause).min(PAUSE_MAX);
            } else {
                pause = PAUSE_MIN;
            }
        }
    }

    async fn keep_rechecking_held(&self) {
        loop {
            sleep(PAUSE_MAX).await;
            self.wait_until_online().await;
            if let Err(error) = self.recheck_held().await {
                tracing::debug!(
                    "entries that wait for a confirmation cannot be looked for: {error}"
                );
            }
        }
    }

    async fn wait_until_online(&self) {
        let mut news = self.engine.subscribe();
        // The engine outlives this task.
        let _ = news.wait_for(|news| news.online == Some(true)).await;
    }

    /// Searches once more for entries with a pending removal, and removes the absent ones. Returns their number, and
    /// the number of entries that stay.
    pub async fn confirm(&self) -> Result<(u64, u64), LookupError> {
        let _turn = self.search_lock.lock().await;
        let (mut held, mut absent) = (0, Vec::new());
        for chunk in self.engine.held_searches() {
            let looked = self.search_keys(&chunk).await?;
            let hidden = chunk.control_absent(&looked);
            if hidden > 0 && hidden == chunk.control.len() as u64 {
                let kind = chunk.kind.name();
                let text =
                    format!("the directory does not find {hidden} listed {kind}s by their keys");
                let reason = Reason::new(&directory::KEY_SEARCH_NOT_CREDIBLE, text);
                return Err(LookupError::Failed(reason));
            }
            held += chunk.missing.len() as u64;
            absent.extend(chunk.absent_keys(&looked));
        }
        let (gone, unreadable) = self.engine.confirm_removals(&absent);
        if self.engine.is_mirror() {
            self.provider.reread_groups(&unreadable, &[]);
        }
        Ok((gone, held.saturating_sub(gone)))
    }
}
