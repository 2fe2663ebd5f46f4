// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks whether any KDC is available, from the results of recent requests. This module sends nothing: `kdc_selection`
//! decides with it which KDCs are queried.

use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// Time after a reply for which a KDC counts as available.
const RECENT: Duration = Duration::from_secs(60);

/// Availability of the KDCs.
#[derive(Default)]
pub struct KdcAvailability(Mutex<AvailabilityState>);

#[derive(Default)]
struct AvailabilityState {
    last_reply: Option<Instant>,
    unavailable_since: Option<Instant>,
}

impl KdcAvailability {
    fn state(&self) -> MutexGuard<'_, AvailabilityState> {
        self.0.lock()
    }

    /// Returns the time since which all KDCs are unavailable; `None` while one may be available.
    pub fn unavailable_for(&self) -> Option<Duration> {
        self.state().unavailable_since.map(|since| since.elapsed())
    }

    /// Records that no KDC replied. Returns whether that is new.
    pub fn mark_unavailable(&self) -> bool {
        let mut state = self.state();
        state.last_reply = None;
        if state.unavailable_since.is_some() {
            return false;
        }
        state.unavailable_since = Some(Instant::now());
        true
    }

    /// Records a reply of a KDC.
    pub fn mark_available(&self) {
        *self.state() =
            AvailabilityState { last_reply: Some(Instant::now()), unavailable_since: None };
    }

    /// Whether a KDC has replied since then.
    pub fn replied_since(&self, then: Instant) -> bool {
        self.state().last_reply.is_some_and(|at| at >= then)
    }

    /// Whether a KDC has replied recently.
    pub fn replied_recently(&self) -> bool {
        self.state().last_reply.is_some_and(|at| at.elapsed() < RECENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_is_away_is_so_until_it_answers() {
        let presence = KdcAvailability::default();
        assert_eq!(presence.unavailable_for(), None);
        presence.mark_available();
        assert!(presence.replied_recently());
        tokio::time::advance(RECENT).await;
        assert!(!presence.replied_recently());
        assert!(presence.mark_unavailable(), "the first is news");
        assert!(!presence.mark_unavailable());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(presence.unavailable_for(), Some(Duration::from_secs(5)));
        presence.mark_available();
        assert_eq!(presence.unavailable_for(), None);
    }
}
