// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limit of checks for passwords that a directory refused. Each check is as expensive as one for a valid password, and
//! attackers can cause them. Pure: time is an argument. `offline_auth` makes the checks.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Checks for one user in a minute. A user may type an old password, and perhaps another one.
const PER_USER_MAX: usize = 4;
const MINUTE: Duration = Duration::from_secs(60);
/// Checks that wait, at most one for each user.
const WAITING_MAX: usize = 64;
/// Users with a count.
const USERS_MAX: usize = 4096;

#[derive(Debug, Default)]
struct UserGuesses {
    is_waiting: bool,
    begun: Vec<Instant>,
}

/// Checks by user.
#[derive(Debug, Default)]
pub struct GuessLimit {
    users: HashMap<Vec<u8>, UserGuesses>,
    waiting: usize,
}

impl GuessLimit {
    /// Returns whether another check for that user may start. It then counts as waiting until [`end`](Self::end).
    pub fn begin(&mut self, name: &[u8], now: Instant) -> bool {
        let is_new = |begun: &Instant| now.saturating_duration_since(*begun) < MINUTE;
        if self.users.len() >= USERS_MAX {
            self.users.retain(|_, guess| guess.is_waiting || guess.begun.iter().any(is_new));
        }
        let is_full = self.users.len() >= USERS_MAX && !self.users.contains_key(name);
        if is_full || self.waiting >= WAITING_MAX {
            return false;
        }
        let guess = self.users.entry(name.to_vec()).or_default();
        guess.begun.retain(is_new);
        if guess.is_waiting || guess.begun.len() >= PER_USER_MAX {
            return false;
        }
        guess.begun.push(now);
        guess.is_waiting = true;
        self.waiting += 1;
        true
    }

    /// Ends the check of that user.
    pub fn end(&mut self, name: &[u8]) {
        if let Some(guess) = self.users.get_mut(name).filter(|guess| guess.is_waiting) {
            guess.is_waiting = false;
            self.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_user_one_waits_and_a_few_a_minute_are_compared() {
        let start = Instant::now();
        let mut guesses = GuessLimit::default();
        assert!(guesses.begin(b"alice", start));
        assert!(!guesses.begin(b"alice", start), "one waits");
        assert!(guesses.begin(b"bob", start));
        guesses.end(b"alice");
        for _ in 1..PER_USER_MAX {
            assert!(guesses.begin(b"alice", start));
            guesses.end(b"alice");
        }
        assert!(!guesses.begin(b"alice", start + MINUTE / 2));
        assert!(guesses.begin(b"alice", start + MINUTE));
    }

    #[test]
    fn of_all_users_some_wait_and_some_are_known() {
        let start = Instant::now();
        let mut guesses = GuessLimit::default();
        let name = |number: usize| number.to_string().into_bytes();
        let begun = (0..1000).filter(|number| guesses.begin(&name(*number), start)).count();
        assert_eq!(begun, WAITING_MAX);
        for number in 0..10_000 {
            guesses.end(&name(number));
            guesses.begin(&name(number), start);
            guesses.end(&name(number));
        }
        assert_eq!((guesses.users.len(), guesses.waiting), (USERS_MAX, 0));
        assert!(guesses.begin(b"alice", start + MINUTE));
        assert_eq!(guesses.users.len(), 1);
    }
}
