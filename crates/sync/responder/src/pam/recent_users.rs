// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users that were served recently. A user that was removed from the directory may still be known to a program or to a
//! cache in front of Roster. Such a user must not count as unknown, which would leave the decision to other modules.
//! Pure: time is an argument. `user_cache` has the domains of users.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for which a user counts as recent. Caches of users hold them for an hour.
const RECENT_WINDOW: Duration = Duration::from_secs(2 * 3600);
/// Largest number of users in the list.
const USERS_MAX: usize = 65_536;

/// The uid and the time of the last service, by name.
#[derive(Debug, Default)]
pub struct RecentUsers(HashMap<Vec<u8>, (u32, Instant)>);

impl RecentUsers {
    /// Records that the user is served now.
    pub fn note(&mut self, name: &[u8], uid: u32, now: Instant) {
        if let Some(known) = self.0.get_mut(name) {
            *known = (uid, now);
            return;
        }
        if self.0.len() >= USERS_MAX {
            self.0.retain(|_, (_, since)| is_recent(*since, now));
        }
        if self.0.len() < USERS_MAX {
            self.0.insert(name.to_vec(), (uid, now));
        }
    }

    /// Whether a user that is no longer served was served recently. A user with another uid in the program is a
    /// different user.
    pub fn was_served(&self, name: &[u8], uid: Option<u32>, now: Instant) -> bool {
        self.0.get(name).is_some_and(|(served, since)| {
            uid.is_none_or(|uid| uid == *served) && is_recent(*since, now)
        })
    }
}

fn is_recent(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) < RECENT_WINDOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_served_is_known_for_a_while_by_name_and_uid() {
        let start = Instant::now();
        let mut served = RecentUsers::default();
        served.note(b"alice", 2000, start);
        assert!(
            served.was_served(b"alice", Some(2000), start)
                && served.was_served(b"alice", None, start)
        );
        assert!(!served.was_served(b"alice", Some(1000), start), "another source's");
        assert!(!served.was_served(b"bob", Some(2000), start));
        let soon = start + RECENT_WINDOW / 2;
        served.note(b"alice", 2000, soon);
        assert!(served.was_served(b"alice", None, start + RECENT_WINDOW));
        assert!(!served.was_served(b"alice", None, soon + RECENT_WINDOW));
    }

    #[test]
    fn what_is_known_is_bounded() {
        let start = Instant::now();
        let mut served = RecentUsers::default();
        for number in 0..USERS_MAX + 10 {
            served.note(number.to_string().as_bytes(), 1, start);
        }
        assert_eq!(served.0.len(), USERS_MAX);
        served.note(b"alice", 2000, start + RECENT_WINDOW);
        assert_eq!(served.0.len(), 1);
    }
}
