// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recent failed lookups of programs, for the status. A directory can answer its keepalives and fail every search.
//! `on_demand` makes the lookups.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time for which a failed lookup counts.
const RECENT_WINDOW: Duration = Duration::from_secs(60);
/// Largest number of failures that are counted. The oldest are dropped first.
const COUNTED_MAX: usize = 10_000;

/// The last failures.
#[derive(Debug, Default)]
pub struct LookupFailures {
    times: VecDeque<Instant>,
    reason: String,
}

impl LookupFailures {
    /// Records a failed lookup.
    pub fn note(&mut self, now: Instant, reason: &str) {
        if self.times.len() == COUNTED_MAX {
            self.times.pop_front();
        }
        self.times.push_back(now);
        reason.clone_into(&mut self.reason);
    }

    /// Returns the number of recent failures, and the reason of the last one.
    pub fn recent(&mut self, now: Instant) -> (u64, &str) {
        let is_over = |time: &Instant| now.saturating_duration_since(*time) >= RECENT_WINDOW;
        while self.times.front().is_some_and(is_over) {
            self.times.pop_front();
        }
        if self.times.is_empty() {
            self.reason.clear();
        }
        (self.times.len() as u64, &self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_count_for_a_minute() {
        let (start, mut failures) = (Instant::now(), LookupFailures::default());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(failures.recent(after(0)), (0, ""));
        failures.note(after(0), "one");
        failures.note(after(30), "two");
        assert_eq!(failures.recent(after(59)), (2, "two"));
        assert_eq!(failures.recent(after(60)), (1, "two"));
        assert_eq!(failures.recent(after(90)), (0, ""));
        (0..=COUNTED_MAX).for_each(|_| failures.note(after(90), "many"));
        assert_eq!(failures.recent(after(90)), (COUNTED_MAX as u64, "many"));
    }
}
