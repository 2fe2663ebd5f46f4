// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether removals are applied or wait for an administrator. Pure: time is an argument, and the backend's
//! `engine::removal` applies them.
//!
//! A directory that was restored empty, a mistyped base, or an access rule that hides half of the users looks like many
//! deletions. Removals beyond a share of the users, or of the groups, wait for an approval. The share of
//! `mass_deletion_threshold` is for entries that the server reports as deleted. Entries that are missing in a reply and
//! in a search by their keys have a much smaller share.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Removals within this time count together, because a fault may come entry by entry.
pub const WINDOW: Duration = Duration::from_secs(600);
/// Reported removals that are never held. In a small domain this number is normal.
const NAMED_MAX: u64 = 9;
/// Missing entries that are removed without an approval in a domain of any size.
const MISSING_MAX: u64 = 3;
/// Share of missing entries that is removed without an approval.
const MISSING_SHARE: f64 = 0.02;

/// Distinct times in the window. Removals beyond them count with the last time.
const MOMENTS_MAX: usize = 1_000;

/// The decision about removals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalDecision {
    /// The removals are applied.
    Allow,
    /// The removals wait for an approval.
    Hold,
}

/// The guard of entries of one kind.
#[derive(Debug)]
pub struct RemovalGuard {
    share: f64,
    /// Number of removals that is never held.
    always_allowed: u64,
    recent: VecDeque<(Instant, u64)>,
}

impl RemovalGuard {
    /// Makes a guard for entries that are reported as deleted. It holds removals beyond this share, 0 to 1.
    #[must_use]
    pub fn for_named(share: f64) -> Self {
        Self { share, always_allowed: NAMED_MAX, recent: VecDeque::new() }
    }

    /// Makes a guard for entries that are missing and not reported as deleted.
    #[must_use]
    pub fn for_missing() -> Self {
        Self { share: MISSING_SHARE, always_allowed: MISSING_MAX, recent: VecDeque::new() }
    }

    /// Decides about `removals` of `population` entries, while `held` removals already wait. Allowed removals count in
    /// the window from now on.
    pub fn decide(
        &mut self,
        now: Instant,
        population: u64,
        held: u64,
        removals: u64,
    ) -> RemovalDecision {
        while self.recent.front().is_some_and(|(then, _)| now.duration_since(*then) >= WINDOW) {
            self.recent.pop_front();
        }
        let recent: u64 = self.recent.iter().map(|(_, removals)| removals).sum();
        let gone = recent + held + removals;
        let before = population + recent;
        #[allow(clippy::cast_precision_loss)] // counts of at most 2^24
        let too_many = gone as f64 > self.share * before as f64;
        if too_many && gone > self.always_allowed {
            return RemovalDecision::Hold;
        }
        let full = self.recent.len() >= MOMENTS_MAX;
        match self.recent.back_mut() {
            Some((then, count)) if *then == now || full => *count += removals,
            _ => self.recent.push_back((now, removals)),
        }
        RemovalDecision::Allow
    }

    /// Clears the window after an approval.
    pub fn reset(&mut self) {
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
            (0.5, 100, 0, 50, RemovalDecision::Allow),
            (0.5, 100, 0, 51, RemovalDecision::Hold),
            (0.5, 9, 0, 9, RemovalDecision::Allow),
            (0.5, 10, 0, 10, RemovalDecision::Hold),
            (0.5, 100, 51, 1, RemovalDecision::Hold),
            (0.5, 1_000_000, 0, 500_000, RemovalDecision::Allow),
            (0.1, 100, 0, 10, RemovalDecision::Allow),
            (0.1, 100, 0, 11, RemovalDecision::Hold),
            (0.0, 100, 0, 9, RemovalDecision::Allow),
            (0.0, 100, 0, 10, RemovalDecision::Hold),
            (1.0, 100, 0, 100, RemovalDecision::Allow),
            (0.5, 0, 0, 0, RemovalDecision::Allow),
        ] {
            let found = RemovalGuard::for_named(share).decide(now, population, held, removals);
            assert_eq!(found, verdict, "{share} of {population}: {held} held, {removals} more");
        }
    }

    #[test]
    fn missing_entries_held_above_three_and_two_percent() {
        let now = Instant::now();
        for (population, held, removals, verdict) in [
            (1, 0, 1, RemovalDecision::Allow),
            (100, 0, 3, RemovalDecision::Allow),
            (100, 0, 4, RemovalDecision::Hold),
            (100, 3, 1, RemovalDecision::Hold),
            (200, 0, 4, RemovalDecision::Allow),
            (200, 0, 5, RemovalDecision::Hold),
            (10_000, 0, 200, RemovalDecision::Allow),
            (10_000, 0, 201, RemovalDecision::Hold),
        ] {
            let found = RemovalGuard::for_missing().decide(now, population, held, removals);
            assert_eq!(found, verdict, "{removals} of {population}, {held} held");
        }
        let mut guard = RemovalGuard::for_missing();
        for population in [200, 199, 198, 197] {
            assert_eq!(guard.decide(now, population, 0, 1), RemovalDecision::Allow);
        }
        assert_eq!(guard.decide(now + WINDOW / 2, 196, 0, 1), RemovalDecision::Hold);
        assert_eq!(guard.decide(now + WINDOW, 196, 0, 1), RemovalDecision::Allow);
    }

    #[test]
    fn removals_one_by_one_add_up_within_the_window() {
        let start = Instant::now();
        let mut guard = RemovalGuard::for_named(0.5);
        let mut population = 100;
        for second in 0..50 {
            let now = start + Duration::from_secs(second);
            assert_eq!(
                guard.decide(now, population, 0, 1),
                RemovalDecision::Allow,
                "removal {second}"
            );
            population -= 1;
        }
        let now = start + Duration::from_secs(50);
        assert_eq!(guard.decide(now, population, 0, 1), RemovalDecision::Hold);
    }

    #[test]
    fn what_left_the_window_does_not_count() {
        let start = Instant::now();
        let mut guard = RemovalGuard::for_named(0.5);
        assert_eq!(guard.decide(start, 100, 0, 50), RemovalDecision::Allow);
        assert_eq!(guard.decide(start + WINDOW / 2, 50, 0, 1), RemovalDecision::Hold);
        assert_eq!(guard.decide(start + WINDOW, 50, 0, 25), RemovalDecision::Allow);
    }

    #[test]
    fn what_is_held_stays_held_when_time_passes() {
        let start = Instant::now();
        let mut guard = RemovalGuard::for_named(0.5);
        assert_eq!(guard.decide(start, 100, 0, 60), RemovalDecision::Hold);
        assert_eq!(guard.decide(start + WINDOW * 2, 100, 60, 1), RemovalDecision::Hold);
    }

    #[test]
    fn after_a_confirmation_counting_starts_anew() {
        let start = Instant::now();
        let mut guard = RemovalGuard::for_named(0.5);
        assert_eq!(guard.decide(start, 100, 0, 50), RemovalDecision::Allow);
        guard.reset();
        assert_eq!(guard.decide(start, 50, 0, 25), RemovalDecision::Allow);
    }

    #[test]
    fn a_flood_of_single_removals_takes_bounded_memory() {
        let start = Instant::now();
        let mut guard = RemovalGuard::for_named(1.0);
        for millis in 0..10_000 {
            guard.decide(start + Duration::from_millis(millis), 100_000, 0, 1);
        }
        assert!(guard.recent.len() <= MOMENTS_MAX);
        let counted: u64 = guard.recent.iter().map(|(_, removals)| removals).sum();
        assert_eq!(counted, 10_000);
    }
}
