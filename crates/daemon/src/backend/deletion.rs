//! Whether removals happen or wait for an administrator. Pure: time is an argument.
//!
//! A directory that was restored empty, a mistyped base, an access rule that hides half of the users:
//! all look like so many deletions. Removals beyond a share of the users, or of the groups, wait for a
//! confirmation. The share of `mass_deletion` is for entries that the server names as deleted. Entries
//! that a reply lacks, and that a search by their keys does not find either, have a much smaller one.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Removals count together over this time: a fault may come entry by entry.
pub const WINDOW: Duration = Duration::from_secs(600);
/// So many named removals are never held: in a small domain they are everyday life.
const NAMED_MAX: u64 = 9;
/// So many missing entries are removed without a confirmation, however small the domain is.
const MISSING_MAX: u64 = 3;
/// Share of the entries that may be missing and is removed without a confirmation.
const MISSING_SHARE: f64 = 0.02;

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
    /// So many removals are never held.
    always: u64,
    recent: VecDeque<(Instant, u64)>,
}

impl Guard {
    /// For entries that are named as deleted: holds what removes more than this share, 0 to 1.
    #[must_use]
    pub fn named(share: f64) -> Self {
        Self { share, always: NAMED_MAX, recent: VecDeque::new() }
    }

    /// For entries that are missing and were not named as deleted.
    #[must_use]
    pub fn missing() -> Self {
        Self { share: MISSING_SHARE, always: MISSING_MAX, recent: VecDeque::new() }
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
        if too_many && gone > self.always {
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
            let found = Guard::named(share).judge(now, population, held, removals);
            assert_eq!(found, verdict, "{share} of {population}: {held} held, {removals} more");
        }
    }

    #[test]
    fn missing_entries_held_above_three_and_two_percent() {
        let now = Instant::now();
        for (population, held, removals, verdict) in [
            (1, 0, 1, Verdict::LetGo),
            (100, 0, 3, Verdict::LetGo),
            (100, 0, 4, Verdict::Hold),
            (100, 3, 1, Verdict::Hold),
            (200, 0, 4, Verdict::LetGo),
            (200, 0, 5, Verdict::Hold),
            (10_000, 0, 200, Verdict::LetGo),
            (10_000, 0, 201, Verdict::Hold),
        ] {
            let found = Guard::missing().judge(now, population, held, removals);
            assert_eq!(found, verdict, "{removals} of {population}, {held} held");
        }
        let mut guard = Guard::missing();
        for population in [200, 199, 198, 197] {
            assert_eq!(guard.judge(now, population, 0, 1), Verdict::LetGo);
        }
        assert_eq!(guard.judge(now + WINDOW / 2, 196, 0, 1), Verdict::Hold);
        assert_eq!(guard.judge(now + WINDOW, 196, 0, 1), Verdict::LetGo);
    }

    #[test]
    fn removals_one_by_one_add_up_within_the_window() {
        let start = Instant::now();
        let mut guard = Guard::named(0.5);
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
        let mut guard = Guard::named(0.5);
        assert_eq!(guard.judge(start, 100, 0, 50), Verdict::LetGo);
        assert_eq!(guard.judge(start + WINDOW / 2, 50, 0, 1), Verdict::Hold);
        assert_eq!(guard.judge(start + WINDOW, 50, 0, 25), Verdict::LetGo);
    }

    #[test]
    fn what_is_held_stays_held_when_time_passes() {
        let start = Instant::now();
        let mut guard = Guard::named(0.5);
        assert_eq!(guard.judge(start, 100, 0, 60), Verdict::Hold);
        assert_eq!(guard.judge(start + WINDOW * 2, 100, 60, 1), Verdict::Hold);
    }

    #[test]
    fn after_a_confirmation_counting_starts_anew() {
        let start = Instant::now();
        let mut guard = Guard::named(0.5);
        assert_eq!(guard.judge(start, 100, 0, 50), Verdict::LetGo);
        guard.confirmed();
        assert_eq!(guard.judge(start, 50, 0, 25), Verdict::LetGo);
    }

    #[test]
    fn a_flood_of_single_removals_takes_bounded_memory() {
        let start = Instant::now();
        let mut guard = Guard::named(1.0);
        for millis in 0..10_000 {
            guard.judge(start + Duration::from_millis(millis), 100_000, 0, 1);
        }
        assert!(guard.recent.len() <= MOMENTS_MAX);
        let counted: u64 = guard.recent.iter().map(|(_, removals)| removals).sum();
        assert_eq!(counted, 10_000);
    }
}
