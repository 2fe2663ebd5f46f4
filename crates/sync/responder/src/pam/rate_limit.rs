// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limit of password attempts by user: a burst of one minute's attempts, and then a steady rate. Pure: time is an
//! argument. `refusal_delay` hides the reason of a refusal.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Users with a count. A user without an attempt in the last minute needs none.
const USERS_MAX: usize = 4_096;
const MINUTE: Duration = Duration::from_secs(60);

/// The attempts of all users.
#[derive(Debug)]
pub struct RateLimit {
    per_minute: u32,
    /// Attempts of a user that count against the limit, with the time of that value.
    used: HashMap<u32, (f64, Instant)>,
}

impl RateLimit {
    /// Makes a limit without attempts.
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute, used: HashMap::new() }
    }

    /// Whether a user may make an attempt now, which then counts.
    pub fn may_try(&mut self, uid: u32, now: Instant) -> bool {
        let most = f64::from(self.per_minute);
        if self.used.len() >= USERS_MAX {
            self.used.retain(|_, (used, since)| remaining_use(*used, *since, now, most) > 0.0);
        }
        // Thousands of users with concurrent attempts are probably an attack, and wait for each other.
        if self.used.len() >= USERS_MAX && !self.used.contains_key(&uid) {
            return false;
        }
        let (used, since) = self.used.entry(uid).or_insert((0.0, now));
        let (now_used, at) = (remaining_use(*used, *since, now, most), now);
        (*used, *since) = (now_used, at);
        if now_used + 1.0 > most {
            return false;
        }
        *used += 1.0;
        true
    }
}

/// Returns the attempts that still count against the limit.
fn remaining_use(used: f64, since: Instant, now: Instant, per_minute: f64) -> f64 {
    let passed = now.saturating_duration_since(since).as_secs_f64();
    (used - passed * per_minute / MINUTE.as_secs_f64()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minutes_tries_may_come_at_once_and_then_one_by_one() {
        let start = Instant::now();
        let mut tries = RateLimit::new(20);
        let heard = (0..100).filter(|_| tries.may_try(1000, start)).count();
        assert_eq!(heard, 20);
        assert!(!tries.may_try(1000, start + Duration::from_secs(2)));
        assert!(tries.may_try(1000, start + Duration::from_secs(4)));
        assert!(!tries.may_try(1000, start + Duration::from_secs(4)));
        assert!(tries.may_try(1001, start), "another user");
        let later = start + Duration::from_secs(3600);
        assert_eq!((0..100).filter(|_| tries.may_try(1000, later)).count(), 20);
    }

    #[test]
    fn counts_are_bounded_and_end_by_themselves() {
        let start = Instant::now();
        let mut tries = RateLimit::new(10);
        let heard = (0..10_000).filter(|uid| tries.may_try(*uid, start)).count();
        assert_eq!((heard, tries.used.len()), (USERS_MAX, USERS_MAX));
        assert!(tries.may_try(20_000, start + MINUTE));
        assert_eq!(tries.used.len(), 1);
    }

    #[test]
    fn a_clock_that_stands_gives_nobody_more() {
        let start = Instant::now() + Duration::from_secs(5);
        let mut tries = RateLimit::new(1);
        assert!(tries.may_try(1, start));
        assert!(!tries.may_try(1, start - Duration::from_secs(5)));
        assert!(!tries.may_try(1, start));
    }
}
