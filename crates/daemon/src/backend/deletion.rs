//! Whether removals happen or wait for an administrator. Pure: time is an argument.
//!
//! A directory that was restored empty, a base that was mistyped, an access rule that hides half of
//! the people: all look like so many deletions. What goes beyond a share of the users, or of the
//! groups, waits until somebody has looked.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Removals count together over this time: a fault may come entry by entry.
pub const WINDOW: Duration = Duration::from_secs(600);
/// Fewer removals than these are never held: in a small domain they are everyday life.
pub const REMOVALS_MIN: u64 = 10;

/// Moments that the window is told apart in. Removals beyond them count as of the last moment.
const MOMENTS_MAX: usize = 1_000;

/// What becomes of removals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They happen.
    LetGo,
    /// They wait for a confirmation.
    Hold,
}

/// Watches over entries of one kind.
#[derive(Debug)]
pub struct Guard {
    share: f64,
    recent: VecDeque<(Instant, u64)>,
}

impl Guard {
    /// Holds what removes more than this share of the entries, 0 to 1.
    #[must_use]
    pub fn new(share: f64) -> Self {
        Self { share, recent: VecDeque::new() }
    }

    /// Judges `removals` more of `population` entries, of which `held` wait already. Those that it
    /// lets go count for the window from now on.
    pub fn judge(&mut self, now: Instant, population: u64, held: u64, removals: u64) -> Verdict {
        while self.recent.front().is_some_and(|(then, _)| now.duration_since(*then) >= WINDOW) {
            self.recent.pop_front();
        }
        let recent: u64 = self.recent.iter().map(|(_, removals)| removals).sum();
        let gone = recent + held + removals;
        let before = population + recent;
        #[allow(clippy::cast_precision_loss)] // counts of at most 2^24
        let too_many = gone as f64 > self.share * before as f64;
        if too_many && gone >= REMOVALS_MIN {
            return Verdict::Hold;
        }
        let full = self.recent.len() >= MOMENTS_MAX;
        match self.recent.back_mut() {
            Some((then, count)) if *then == now || full => *count += removals,
            _ => self.recent.push_back((now, removals)),
        }
        Verdict::LetGo
    }

    /// Somebody has looked: what went so far does not count any more.
    pub fn confirmed(&mut self) {
        self.recent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_at_once_are_held_above_the_share_and_from_ten_on() {
        let now = Instant::now();
        for (share, population, held, removals, verdict) in [
            (0.5, 100, 0, 50, Verdict::LetGo),
            (0.5, 100, 0, 51, Verdict::Hold),
            (0.5, 9, 0, 9, Verdict::LetGo),
            (0.5, 10, 0, 10, Verdict::Hold),
            (0.5, 100, 51, 1, Verdict::Hold),
            (0.5, 1_000_000, 0, 500_000, Verdict::LetGo),
            (0.1, 100, 0, 10, Verdict::LetGo),
            (0.1, 100, 0, 11, Verdict::Hold),
            (0.0, 100, 0, 9, Verdict::LetGo),
            (0.0, 100, 0, 10, Verdict::Hold),
            (1.0, 100, 0, 100, Verdict::LetGo),
            (0.5, 0, 0, 0, Verdict::LetGo),
        ] {
            let found = Guard::new(share).judge(now, population, held, removals);
            assert_eq!(found, verdict, "{share} of {population}: {held} held, {removals} more");
        }
    }

    #[test]
    fn removals_one_by_one_add_up_within_the_window() {
        let start = Instant::now();
        let mut guard = Guard::new(0.5);
        let mut population = 100;
        for second in 0..50 {
            let now = start + Duration::from_secs(second);
            assert_eq!(guard.judge(now, population, 0, 1), Verdict::LetGo, "removal {second}");
            population -= 1;
        }
        let now = start + Duration::from_secs(50);
        assert_eq!(guard.judge(now, population, 0, 1), Verdict::Hold);
    }

    #[test]
    fn what_left_the_window_does_not_count() {
        let start = Instant::now();
        let mut guard = Guard::new(0.5);
        assert_eq!(guard.judge(start, 100, 0, 50), Verdict::LetGo);
        assert_eq!(guard.judge(start + WINDOW / 2, 50, 0, 1), Verdict::Hold);
        assert_eq!(guard.judge(start + WINDOW, 50, 0, 25), Verdict::LetGo);
    }

    #[test]
    fn what_is_held_stays_held_when_time_passes() {
        let start = Instant::now();
        let mut guard = Guard::new(0.5);
        assert_eq!(guard.judge(start, 100, 0, 60), Verdict::Hold);
        assert_eq!(guard.judge(start + WINDOW * 2, 100, 60, 1), Verdict::Hold);
    }

    #[test]
    fn after_a_confirmation_counting_starts_anew() {
        let start = Instant::now();
        let mut guard = Guard::new(0.5);
        assert_eq!(guard.judge(start, 100, 0, 50), Verdict::LetGo);
        guard.confirmed();
        assert_eq!(guard.judge(start, 50, 0, 25), Verdict::LetGo);
    }

    #[test]
    fn a_flood_of_single_removals_takes_bounded_memory() {
        let start = Instant::now();
        let mut guard = Guard::new(1.0);
        for millis in 0..10_000 {
            guard.judge(start + Duration::from_millis(millis), 100_000, 0, 1);
        }
        assert!(guard.recent.len() <= MOMENTS_MAX);
        let counted: u64 = guard.recent.iter().map(|(_, removals)| removals).sum();
        assert_eq!(counted, 10_000);
    }
}
