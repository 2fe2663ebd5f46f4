//! Whose users people were found to be. A log-in asks several times within seconds, and the publisher says
//! when anybody may be another than they were: what it said before counts until then, and not for long. That
//! a name is nobody's is not remembered here. Pure: time is an argument.

use roster_bus::interfaces::FoundUser;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// For so long at the most. Entries that are asked for on demand are asked for again about as often.
const LIFE: Duration = Duration::from_secs(30);
/// Users of whom it is known.
const USERS_MAX: usize = 4096;

/// By name, and since when.
#[derive(Debug, Default)]
pub struct Found {
    users: HashMap<Vec<u8>, (FoundUser, Instant)>,
    /// Counts what was heard of users who may be others than they were.
    news: u64,
}

impl Found {
    /// The user of that name, if nobody has to be asked.
    pub fn user(&self, name: &[u8], now: Instant) -> Option<FoundUser> {
        let (user, since) = self.users.get(name)?;
        is_fresh(*since, now).then(|| user.clone())
    }

    /// To be given to [`note`](Self::note) with the answer to a question that is asked now.
    pub fn news(&self) -> u64 {
        self.news
    }

    /// Remembers what the publisher said, unless something was heard since it was asked.
    pub fn note(&mut self, name: &[u8], user: &FoundUser, asked_at: u64, now: Instant) {
        if self.news != asked_at || user.domain.is_empty() {
            return;
        }
        if self.users.len() >= USERS_MAX && !self.users.contains_key(name) {
            self.users.retain(|_, (_, since)| is_fresh(*since, now));
        }
        if self.users.len() < USERS_MAX || self.users.contains_key(name) {
            self.users.insert(name.to_vec(), (user.clone(), now));
        }
    }

    /// That user may be another.
    pub fn forget(&mut self, name: &[u8]) {
        self.news += 1;
        self.users.remove(name);
    }

    /// Anybody may be another.
    pub fn forget_all(&mut self) {
        self.news += 1;
        self.users.clear();
    }
}

fn is_fresh(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) < LIFE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> FoundUser {
        FoundUser { domain: "corp".into(), name: b"alice".to_vec(), uid: 2000 }
    }

    #[test]
    fn a_user_is_known_until_something_is_heard_or_the_time_is_over() {
        let start = Instant::now();
        let hear: [fn(&mut Found); 2] = [Found::forget_all, |found| found.forget(b"alice")];
        for hear in hear {
            let mut found = Found::default();
            found.note(b"alice", &alice(), found.news(), start);
            assert_eq!(found.user(b"alice", start + LIFE / 2), Some(alice()));
            assert_eq!(found.user(b"alice", start + LIFE), None);
            assert_eq!(found.user(b"bob", start), None);
            hear(&mut found);
            assert_eq!(found.user(b"alice", start), None);
        }
        let mut found = Found::default();
        found.note(b"alice", &alice(), found.news(), start);
        found.forget(b"bob");
        assert_eq!(found.user(b"alice", start), Some(alice()));
    }

    #[test]
    fn an_answer_that_is_older_than_news_is_not_remembered_and_neither_is_nobody() {
        let start = Instant::now();
        let mut found = Found::default();
        let asked_at = found.news();
        found.forget(b"bob");
        found.note(b"alice", &alice(), asked_at, start);
        found.note(b"mallory", &FoundUser::default(), found.news(), start);
        assert_eq!((found.user(b"alice", start), found.user(b"mallory", start)), (None, None));
    }

    #[test]
    fn what_is_known_is_bounded() {
        let start = Instant::now();
        let mut found = Found::default();
        for number in 0..USERS_MAX + 10 {
            found.note(number.to_string().as_bytes(), &alice(), found.news(), start);
        }
        assert_eq!(found.users.len(), USERS_MAX);
        found.note(b"alice", &alice(), found.news(), start + LIFE);
        assert_eq!(found.users.len(), 1);
    }
}
