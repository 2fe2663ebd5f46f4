//! How many passwords a user may have tried: as many at once as in a minute, and then one after the
//! other as time goes by. Pure: time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Users of whom a count is kept; of those who have not tried for a minute none is needed.
const USERS_MAX: usize = 4_096;
const MINUTE: Duration = Duration::from_secs(60);

/// The tries of all users.
#[derive(Debug)]
pub struct Tries {
    per_minute: u32,
    /// How much of its minute's tries a user has used up, and when that was so.
    used: HashMap<u32, (f64, Instant)>,
}

impl Tries {
    /// Nobody has tried yet.
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute, used: HashMap::new() }
    }

    /// Whether a user may try now, which then counts.
    pub fn may_try(&mut self, uid: u32, now: Instant) -> bool {
        let most = f64::from(self.per_minute);
        if self.used.len() >= USERS_MAX {
            self.used.retain(|_, (used, since)| left(*used, *since, now, most) > 0.0);
        }
        // Thousands of users who all try at once are somebody's doing, and wait for each other.
        if self.used.len() >= USERS_MAX && !self.used.contains_key(&uid) {
            return false;
        }
        let (used, since) = self.used.entry(uid).or_insert((0.0, now));
        let (now_used, at) = (left(*used, *since, now, most), now);
        (*used, *since) = (now_used, at);
        if now_used + 1.0 > most {
            return false;
        }
        *used += 1.0;
        true
    }
}

/// What is still used up of what was.
fn left(used: f64, since: Instant, now: Instant, per_minute: f64) -> f64 {
    let passed = now.saturating_duration_since(since).as_secs_f64();
    (used - passed * per_minute / MINUTE.as_secs_f64()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minutes_tries_may_come_at_once_and_then_one_by_one() {
        let start = Instant::now();
        let mut tries = Tries::new(20);
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
        let mut tries = Tries::new(10);
        let heard = (0..10_000).filter(|uid| tries.may_try(*uid, start)).count();
        assert_eq!((heard, tries.used.len()), (USERS_MAX, USERS_MAX));
        assert!(tries.may_try(20_000, start + MINUTE));
        assert_eq!(tries.used.len(), 1);
    }

    #[test]
    fn a_clock_that_stands_gives_nobody_more() {
        let start = Instant::now() + Duration::from_secs(5);
        let mut tries = Tries::new(1);
        assert!(tries.may_try(1, start));
        assert!(!tries.may_try(1, start - Duration::from_secs(5)));
        assert!(!tries.may_try(1, start));
    }
}
