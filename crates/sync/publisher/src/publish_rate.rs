// SPDX-License-Identifier: MIT OR Apache-2.0
//! The earliest time of the next publication. Pure; time is passed in. `state` decides whether a publication is due.

use std::time::{Duration, Instant};

/// Longest duration that counts for one publication. A disk or host that hung for longer must not delay the next
/// change.
const TOOK_MAX: Duration = Duration::from_secs(5);

/// After a quiet period two publications may follow each other at once. So a change during the first publication does
/// not wait. Over longer periods publications take at most half of the time.
pub struct PublishRate {
    interval: Duration,
    /// Time at which the publications up to now will have taken half of the time.
    due: Option<Instant>,
}

impl PublishRate {
    /// Starts without a publication. `interval` is the shortest time between the starts of two publications.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self { interval, due: None }
    }

    /// Returns the earliest start of the next publication after one from `start` to `end`.
    pub fn next(&mut self, start: Instant, end: Instant) -> Instant {
        let took = (end - start).min(TOOK_MAX);
        // A publication of the counted duration that ended at `end`.
        let start = end.checked_sub(took).unwrap_or(start);
        let due = self.due.map_or(start, |due| due.max(start)) + 2 * took;
        self.due = Some(due);
        let ahead = due.checked_sub(took).unwrap_or(due);
        ahead.max(start + self.interval).max(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn publish_rate_allows_two_then_half_time() {
        let mut pace = PublishRate::new(Duration::ZERO);
        let mut now = Instant::now();
        let took = 200 * MS;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let end = now + took;
            now = pace.next(now, end);
            pauses.push((now - end).as_millis());
        }
        assert_eq!(pauses, [0, 200, 200, 200, 200, 200]);
        now += 10_000 * MS;
        assert_eq!(pace.next(now, now + took), now + took, "it was quiet");
    }

    #[test]
    fn of_any_longer_time_publications_take_half() {
        let mut pace = PublishRate::new(Duration::ZERO);
        let begin = Instant::now();
        let mut now = begin;
        let mut busy = Duration::ZERO;
        for took in [50, 400, 10, 10, 300, 90, 700, 5].map(|ms| ms * MS).repeat(20) {
            busy += took;
            now = pace.next(now, now + took);
        }
        let share = busy.as_secs_f64() / (now - begin).as_secs_f64();
        assert!((0.45..=0.52).contains(&share), "{share}");
    }

    #[test]
    fn one_that_hung_holds_up_nothing_for_long() {
        let mut pace = PublishRate::new(Duration::ZERO);
        let start = Instant::now();
        let end = start + 600_000 * MS;
        assert_eq!(pace.next(start, end), end);
        let next = pace.next(end, end + 100 * MS);
        assert!(next <= end + TOOK_MAX + 200 * MS, "{:?}", next - end);
    }

    #[test]
    fn quick_ones_begin_an_interval_apart() {
        let mut pace = PublishRate::new(100 * MS);
        let mut now = Instant::now();
        for _ in 0..5 {
            let next = pace.next(now, now + 10 * MS);
            assert_eq!(next - now, 100 * MS);
            now = next;
        }
    }
}
