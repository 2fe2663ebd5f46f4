// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shortest time until a refusal. The time must not reveal whether a user exists, is locked, or has cached credentials.
//! A directory does less work for an unknown name than for a wrong password. All refusals are therefore delayed to
//! twice the 75th percentile of recent times for wrong passwords. Pure: no clock here. The parent module `pam` waits.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Samples of each domain.
const COSTS_MAX: usize = 16;
/// Samples of one user in a domain with other users. The limit keeps repeated wrong passwords of one user from
/// determining the delay alone.
const COSTS_PER_USER: usize = 4;
/// Samples without which the time of a wrong password is unknown.
const COSTS_MIN: usize = 4;
/// Delay until then: more than servers usually take.
const DEFAULT_DELAY: Duration = Duration::from_millis(200);
/// Shortest delay. A cheap server is faster than that even under load.
const DELAY_MIN: Duration = Duration::from_millis(10);
/// Longest delay: people wait for it.
const DELAY_MAX: Duration = Duration::from_secs(2);

/// Times of wrong passwords, by domain, with the uid.
#[derive(Debug)]
pub struct RefusalDelay(HashMap<String, VecDeque<(u32, Duration)>>);

impl RefusalDelay {
    /// Starts without samples, for domains with authentication.
    pub fn new(domains: impl Iterator<Item = String>) -> Self {
        Self(domains.map(|domain| (domain, VecDeque::new())).collect())
    }

    /// Records the time of a wrong password of that user in that domain.
    pub fn note(&mut self, domain: &str, uid: u32, cost: Duration) {
        if let Some(costs) = self.0.get_mut(domain) {
            let mut own = 0;
            costs.retain(|(of, _)| {
                own += usize::from(*of == uid);
                *of != uid || own < COSTS_PER_USER
            });
            costs.truncate(COSTS_MAX - 1);
            costs.push_front((uid, cost));
        }
    }

    /// Returns the shortest time of any refusal. An unknown user belongs to no domain, so the slowest domain counts.
    pub fn minimum(&self) -> Duration {
        self.0.values().map(least).max().unwrap_or(DELAY_MIN)
    }
}

/// Returns the delay of one domain. The percentile limits the effect of one slow user.
fn least(costs: &VecDeque<(u32, Duration)>) -> Duration {
    if costs.len() < COSTS_MIN {
        return DEFAULT_DELAY;
    }
    let mut sorted: Vec<_> = costs.iter().map(|&(_, cost)| cost).collect();
    sorted.sort_unstable();
    (sorted[(sorted.len() - 1) * 3 / 4] * 2).clamp(DELAY_MIN, DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS: fn(u64) -> Duration = Duration::from_millis;

    fn with(costs: &[u64]) -> RefusalDelay {
        let mut evenness = RefusalDelay::new(["corp".to_owned()].into_iter());
        for (uid, cost) in (1000..).zip(costs) {
            evenness.note("corp", uid, MILLIS(*cost));
        }
        evenness
    }

    #[test]
    fn a_refusal_takes_about_twice_what_most_wrong_passwords_took() {
        assert_eq!(with(&[100; 16]).minimum(), MILLIS(200));
        assert_eq!(with(&[100, 110, 120, 130]).minimum(), MILLIS(240));
        // Only the last samples count.
        assert_eq!(with(&[[100; 16], [50; 16]].concat()).minimum(), MILLIS(100));
    }

    #[test]
    fn one_user_does_not_say_it_for_all() {
        let mut evenness = with(&[100; 16]);
        (0..100).for_each(|_| evenness.note("corp", 7, MILLIS(1)));
        assert_eq!(evenness.minimum(), MILLIS(200));
        let mut evenness = with(&[100; 3]);
        (0..100).for_each(|_| evenness.note("corp", 7, MILLIS(1)));
        assert_eq!(evenness.minimum(), MILLIS(200));
        // If only one user is refused, the last samples of that user count.
        let mut alone = with(&[]);
        for cost in [9, 9, 100, 100, 100, 100] {
            alone.note("corp", 7, MILLIS(cost));
        }
        assert_eq!(alone.minimum(), MILLIS(200));
    }

    #[test]
    fn a_few_slow_ones_keep_nobody_waiting() {
        assert_eq!(with(&[[100; 16].as_slice(), &[9000; 4]].concat()).minimum(), MILLIS(200));
        assert_eq!(with(&[9000; 16]).minimum(), DELAY_MAX);
    }

    #[test]
    fn cheap_and_unknown_ones_take_their_time() {
        assert_eq!(with(&[1; 16]).minimum(), DELAY_MIN);
        assert_eq!(with(&[1; 3]).minimum(), DEFAULT_DELAY);
        assert_eq!(RefusalDelay::new(std::iter::empty()).minimum(), DELAY_MIN);
    }

    #[test]
    fn the_slowest_domain_counts_for_all() {
        let mut evenness = RefusalDelay::new(["corp", "lab"].map(str::to_owned).into_iter());
        for uid in 0..16 {
            evenness.note("corp", uid, MILLIS(1));
        }
        assert_eq!(evenness.minimum(), DEFAULT_DELAY);
        for uid in 0..16 {
            evenness.note("lab", uid, MILLIS(300));
            evenness.note("elsewhere", uid, MILLIS(900));
        }
        assert_eq!(evenness.minimum(), MILLIS(600));
    }
}
