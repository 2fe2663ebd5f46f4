//! What does not exist, remembered for a while, so that a program that asks for the same missing
//! name again and again costs nobody anything. No clock here: the time is an argument.

use roster_wire::{Kind, Request};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Names and ids remembered. When there are more, everything is forgotten: whoever makes names up
/// costs the others one question each.
const ENTRIES_MAX: usize = 16_384;

/// What was not there, by what was asked.
pub(super) struct Absent {
    life: Duration,
    names: HashMap<(Kind, Vec<u8>), Instant>,
    ids: HashMap<(Kind, u32), Instant>,
}

impl Absent {
    /// Remembers for that long.
    pub(super) fn new(life: Duration) -> Self {
        Self { life, names: HashMap::new(), ids: HashMap::new() }
    }

    /// Whether that is known not to exist.
    pub(super) fn knows(&self, request: &Request<'_>, now: Instant) -> bool {
        let until = if request.kind.is_by_name() {
            self.names.get(&(request.kind, request.name.to_vec()))
        } else {
            self.ids.get(&(request.kind, request.id))
        };
        until.is_some_and(|&until| now < until)
    }

    /// Remembers that there is no such thing.
    pub(super) fn note(&mut self, request: &Request<'_>, now: Instant) {
        if self.life.is_zero() {
            return;
        }
        if self.names.len() + self.ids.len() >= ENTRIES_MAX {
            self.names.retain(|_, until| now < *until);
            self.ids.retain(|_, until| now < *until);
        }
        if self.names.len() + self.ids.len() >= ENTRIES_MAX {
            self.names.clear();
            self.ids.clear();
        }
        let until = now + self.life;
        if request.kind.is_by_name() {
            self.names.insert((request.kind, request.name.to_vec()), until);
        } else {
            self.ids.insert((request.kind, request.id), until);
        }
    }

    /// That user may exist, under any uid.
    pub(super) fn forget_user(&mut self, name: &[u8]) {
        self.forget(&[Kind::UserByName, Kind::GroupsOf], name, Kind::UserByUid);
    }

    /// That group may exist, under any gid.
    pub(super) fn forget_group(&mut self, name: &[u8]) {
        self.forget(&[Kind::GroupByName], name, Kind::GroupByGid);
    }

    fn forget(&mut self, by_name: &[Kind], name: &[u8], by_id: Kind) {
        for &kind in by_name {
            self.names.remove(&(kind, name.to_vec()));
        }
        self.ids.retain(|(kind, _), _| *kind != by_id);
    }

    /// Anything may exist.
    pub(super) fn forget_all(&mut self) {
        self.names.clear();
        self.ids.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(15);

    fn by_name(kind: Kind, name: &str) -> Request<'_> {
        Request::by_name(kind, name.as_bytes()).expect("a name that can be asked for")
    }

    /// Everything that is asked about one user and one group, all absent.
    fn filled(now: Instant) -> (Absent, [Request<'static>; 5]) {
        let requests = [
            by_name(Kind::UserByName, "zoe"),
            by_name(Kind::GroupsOf, "zoe"),
            Request::by_id(Kind::UserByUid, 7000),
            by_name(Kind::GroupByName, "zoe"),
            Request::by_id(Kind::GroupByGid, 7000),
        ];
        let mut absent = Absent::new(LIFE);
        requests.iter().for_each(|request| absent.note(request, now));
        (absent, requests)
    }

    #[test]
    fn what_does_not_exist_is_known_until_its_time_is_over() {
        let now = Instant::now();
        let (absent, requests) = filled(now);
        for request in &requests {
            assert!(absent.knows(request, now + LIFE - Duration::from_millis(1)), "{request:?}");
            assert!(!absent.knows(request, now + LIFE), "{request:?}");
        }
        assert!(!absent.knows(&by_name(Kind::UserByName, "yara"), now));
        assert!(!absent.knows(&Request::by_id(Kind::UserByUid, 7001), now));
    }

    #[test]
    fn a_user_that_comes_to_exist_is_forgotten_by_name_and_by_any_uid() {
        let now = Instant::now();
        let (mut absent, requests) = filled(now);
        absent.forget_user(b"zoe");
        let known = requests.map(|request| absent.knows(&request, now));
        assert_eq!(known, [false, false, false, true, true]);
    }

    #[test]
    fn a_group_that_comes_to_exist_is_forgotten_by_name_and_by_any_gid() {
        let now = Instant::now();
        let (mut absent, requests) = filled(now);
        absent.forget_group(b"zoe");
        let known = requests.map(|request| absent.knows(&request, now));
        assert_eq!(known, [true, true, true, false, false]);
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let now = Instant::now();
        let mut absent = Absent::new(LIFE);
        for id in 0..3 * ENTRIES_MAX as u32 {
            absent.note(&Request::by_id(Kind::UserByUid, id), now);
            assert!(absent.ids.len() <= ENTRIES_MAX);
            assert!(absent.knows(&Request::by_id(Kind::UserByUid, id), now));
        }
    }
}
