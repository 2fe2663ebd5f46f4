//! When the next publication may begin. Pure; time is passed in.

use std::time::{Duration, Instant};

/// What one publication counts at the most. One that hung for longer, as the disk or the whole host did,
/// is no reason to hold up the next change.
const TOOK_MAX: Duration = Duration::from_secs(5);

/// After a quiet time two publications may follow each other at once, for a change that comes while the
/// first is made should not have to wait; of a longer time they take half at the most.
pub struct Pace {
    interval: Duration,
    /// When the publications up to now will have taken half of the time.
    due: Option<Instant>,
}

impl Pace {
    /// Nothing was published yet. `interval` is the least from one beginning to the next.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self { interval, due: None }
    }

    /// When the next may begin after one from `start` to `end`.
    pub fn next(&mut self, start: Instant, end: Instant) -> Instant {
        let took = (end - start).min(TOOK_MAX);
        // As if it had begun so long before its end.
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
    fn after_a_quiet_time_two_follow_each_other_and_then_half_the_time_is_left() {
        let mut pace = Pace::new(Duration::ZERO);
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
        let mut pace = Pace::new(Duration::ZERO);
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
        let mut pace = Pace::new(Duration::ZERO);
        let start = Instant::now();
        let end = start + 600_000 * MS;
        assert_eq!(pace.next(start, end), end);
        let next = pace.next(end, end + 100 * MS);
        assert!(next <= end + TOOK_MAX + 200 * MS, "{:?}", next - end);
    }

    #[test]
    fn quick_ones_begin_an_interval_apart() {
        let mut pace = Pace::new(100 * MS);
        let mut now = Instant::now();
        for _ in 0..5 {
            let next = pace.next(now, now + 10 * MS);
            assert_eq!(next - now, 100 * MS);
            now = next;
        }
    }
}
