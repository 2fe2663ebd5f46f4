// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cache of users with their domains. A login sends several requests within seconds. The publisher signals when a user
//! may have changed. A cached user is valid until then, for a limited time. Unknown names are not cached. Pure: time is
//! an argument. `recent_users` has removed users.

use roster_bus::interfaces::ServedUser;
use roster_names::equals_folded;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Lifetime of an entry. On-demand entries are refreshed about as often.
const LIFE: Duration = Duration::from_secs(30);
/// Largest number of users in the cache.
const USERS_MAX: usize = 4096;

/// By name, with the time of the reply.
#[derive(Debug, Default)]
pub struct UserCache {
    users: HashMap<Vec<u8>, (ServedUser, Instant)>,
    /// Counts signals about changed users.
    change_count: u64,
}

impl UserCache {
    /// Returns the cached user of that name.
    pub fn user(&self, name: &[u8], now: Instant) -> Option<ServedUser> {
        let (user, since) = self.users.get(name)?;
        is_fresh(*since, now).then(|| user.clone())
    }

    /// Returns the change count at the time of a request, for [`note`](Self::note).
    pub fn change_count(&self) -> u64 {
        self.change_count
    }

    /// Stores the publisher's reply, unless a change was signalled since the request.
    pub fn note(&mut self, name: &[u8], user: &ServedUser, asked_at: u64, now: Instant) {
        if self.change_count != asked_at || user.domain.is_empty() {
            return;
        }
        if self.users.len() >= USERS_MAX && !self.users.contains_key(name) {
            self.users.retain(|_, (_, since)| is_fresh(*since, now));
        }
        if self.users.len() < USERS_MAX || self.users.contains_key(name) {
            self.users.insert(name.to_vec(), (user.clone(), now));
        }
    }

    /// Drops a user that may have changed, under any name that finds it. The entry of another domain with this name may
    /// have got another name.
    pub fn forget(&mut self, name: &[u8]) {
        self.change_count += 1;
        self.users.retain(|called, (user, _)| {
            !equals_folded(called, name) && !equals_folded(&user.name, name)
        });
    }

    /// Drops all users.
    pub fn forget_all(&mut self) {
        self.change_count += 1;
        self.users.clear();
    }
}

fn is_fresh(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) < LIFE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> ServedUser {
        ServedUser {
            domain: "corp".into(),
            name: b"alice".to_vec(),
            uid: 2000,
            directory_name: b"alice".to_vec(),
            directory_uid: 2000,
            rule_groups: Vec::new(),
        }
    }

    #[test]
    fn a_user_is_known_until_something_is_heard_or_the_time_is_over() {
        let start = Instant::now();
        let hear: [fn(&mut UserCache); 2] = [UserCache::forget_all, |found| found.forget(b"alice")];
        for hear in hear {
            let mut found = UserCache::default();
            found.note(b"alice", &alice(), found.change_count(), start);
            assert_eq!(found.user(b"alice", start + LIFE / 2), Some(alice()));
            assert_eq!(found.user(b"alice", start + LIFE), None);
            assert_eq!(found.user(b"bob", start), None);
            hear(&mut found);
            assert_eq!(found.user(b"alice", start), None);
        }
        let mut found = UserCache::default();
        found.note(b"alice", &alice(), found.change_count(), start);
        found.forget(b"bob");
        assert_eq!(found.user(b"alice", start), Some(alice()));
    }

    #[test]
    fn user_cache_forgets_each_name_of_user() {
        let start = Instant::now();
        let mut found = UserCache::default();
        let names = [&b"alice"[..], b"ALICE", b"alice@corp", b"CORP\\alice"];
        for name in names {
            found.note(name, &alice(), found.change_count(), start);
        }
        found.forget(b"Alice");
        assert!(names.iter().all(|name| found.user(name, start).is_none()));
    }

    #[test]
    fn user_cache_drops_outdated_and_absent_users() {
        let start = Instant::now();
        let mut found = UserCache::default();
        let asked_at = found.change_count();
        found.forget(b"bob");
        found.note(b"alice", &alice(), asked_at, start);
        found.note(b"mallory", &ServedUser::default(), found.change_count(), start);
        assert_eq!((found.user(b"alice", start), found.user(b"mallory", start)), (None, None));
    }

    #[test]
    fn what_is_known_is_bounded() {
        let start = Instant::now();
        let mut found = UserCache::default();
        for number in 0..USERS_MAX + 10 {
            found.note(number.to_string().as_bytes(), &alice(), found.change_count(), start);
        }
        assert_eq!(found.users.len(), USERS_MAX);
        found.note(b"alice", &alice(), found.change_count(), start + LIFE);
        assert_eq!(found.users.len(), 1);
    }
}
