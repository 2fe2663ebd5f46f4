//! Who was served a while ago. A user who is gone from the directory may still be known to a program or to a
//! cache in front of us, and must not pass for somebody about whom others decide. Pure: time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// For so long: caches of users keep them for an hour.
const LATELY: Duration = Duration::from_secs(2 * 3600);
/// Users of whom it is known.
const USERS_MAX: usize = 65_536;

/// By name: the uid, and when that was.
#[derive(Debug, Default)]
pub struct Served(HashMap<Vec<u8>, (u32, Instant)>);

impl Served {
    /// The user is served now.
    pub fn note(&mut self, name: &[u8], uid: u32, now: Instant) {
        if let Some(known) = self.0.get_mut(name) {
            *known = (uid, now);
            return;
        }
        if self.0.len() >= USERS_MAX {
            self.0.retain(|_, (_, since)| is_lately(*since, now));
        }
        if self.0.len() < USERS_MAX {
            self.0.insert(name.to_vec(), (uid, now));
        }
    }

    /// Whether a user who is not served now was so lately. Who has another uid for the program is somebody
    /// else.
    pub fn was(&self, name: &[u8], uid: Option<u32>, now: Instant) -> bool {
        self.0.get(name).is_some_and(|(served, since)| {
            uid.is_none_or(|uid| uid == *served) && is_lately(*since, now)
        })
    }
}

fn is_lately(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) < LATELY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_served_is_known_for_a_while_by_name_and_uid() {
        let start = Instant::now();
        let mut served = Served::default();
        served.note(b"alice", 2000, start);
        assert!(served.was(b"alice", Some(2000), start) && served.was(b"alice", None, start));
        assert!(!served.was(b"alice", Some(1000), start), "another source's");
        assert!(!served.was(b"bob", Some(2000), start));
        let soon = start + LATELY / 2;
        served.note(b"alice", 2000, soon);
        assert!(served.was(b"alice", None, start + LATELY));
        assert!(!served.was(b"alice", None, soon + LATELY));
    }

    #[test]
    fn what_is_known_is_bounded() {
        let start = Instant::now();
        let mut served = Served::default();
        for number in 0..USERS_MAX + 10 {
            served.note(number.to_string().as_bytes(), 1, start);
        }
        assert_eq!(served.0.len(), USERS_MAX);
        served.note(b"alice", 2000, start + LATELY);
        assert_eq!(served.0.len(), 1);
    }
}
