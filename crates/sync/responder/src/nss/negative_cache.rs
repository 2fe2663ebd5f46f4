// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cache of missing entries, so that repeated requests for the same missing name are cheap. No clock here: the time is
//! an argument. `reply_cache` combines it with `large_reply_cache`.

use roster_names::{equals_folded, fold, is_folded, qualified_forms};
use roster_request::LookupKind;
use roster_wire::NssRequest;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Names and ids in the cache. If there are more, first the expired ones are dropped, then all. A program that invents
/// names costs other programs at most one query for each of their names.
const ENTRIES_MAX: usize = 16_384;

/// Names in the cache that have another form than most. If there are more, all of these are dropped.
const OTHER_NAMES_MAX: usize = 512;

/// Missing entries by request.
pub(super) struct NegativeCache {
    lifetime: Duration,
    names: HashMap<(LookupKind, Vec<u8>), Instant>,
    /// Names in upper case and names with a domain: the entry may have another name.
    other_names: HashMap<(LookupKind, Vec<u8>), Instant>,
    ids: HashMap<(LookupKind, u32), Instant>,
}

impl NegativeCache {
    /// Makes a cache with that lifetime.
    pub(super) fn new(life: Duration) -> Self {
        Self {
            lifetime: life,
            names: HashMap::new(),
            other_names: HashMap::new(),
            ids: HashMap::new(),
        }
    }

    /// Whether the entry is known to be missing.
    pub(super) fn knows(&self, request: &NssRequest<'_>, now: Instant) -> bool {
        let until = if request.kind.is_by_name() {
            let key = (request.kind, request.name.to_vec());
            self.names.get(&key).or_else(|| self.other_names.get(&key))
        } else {
            self.ids.get(&(request.kind, request.id))
        };
        until.is_some_and(|&until| now < until)
    }

    /// Stores that the entry is missing.
    pub(super) fn note(&mut self, request: &NssRequest<'_>, now: Instant) {
        if self.lifetime.is_zero() {
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
        let until = now + self.lifetime;
        let is_own = is_folded(request.name) && !may_have_domain(request.name);
        if request.kind.is_by_name() && is_own {
            self.names.insert((request.kind, request.name.to_vec()), until);
        } else if request.kind.is_by_name() {
            // Each change of an entry reads all of them.
            if self.other_names.len() >= OTHER_NAMES_MAX {
                self.other_names.clear();
            }
            self.other_names.insert((request.kind, request.name.to_vec()), until);
        } else {
            self.ids.insert((request.kind, request.id), until);
        }
    }

    /// Drops a user that may exist now, under any uid.
    pub(super) fn forget_user(&mut self, name: &[u8]) {
        self.forget(&[LookupKind::UserByName, LookupKind::GroupsOf], name, LookupKind::UserByUid);
    }

    /// Drops a group that may exist now, under any gid.
    pub(super) fn forget_group(&mut self, name: &[u8]) {
        self.forget(&[LookupKind::GroupByName], name, LookupKind::GroupByGid);
    }

    fn forget(&mut self, by_name: &[LookupKind], name: &[u8], by_id: LookupKind) {
        for &kind in by_name {
            self.names.remove(&(kind, fold(name).into_owned()));
        }
        // The entry may be found in other spellings, and with its domain.
        self.other_names.retain(|(kind, missing), _| {
            !by_name.contains(kind) || !may_have_domain(missing) && !equals_folded(missing, name)
        });
        self.ids.retain(|(kind, _), _| *kind != by_id);
    }

    /// Drops all entries.
    pub(super) fn forget_all(&mut self) {
        self.names.clear();
        self.other_names.clear();
        self.ids.clear();
    }
}

fn may_have_domain(name: &[u8]) -> bool {
    qualified_forms(name).iter().any(Option::is_some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(15);

    fn by_name(kind: LookupKind, name: &str) -> NssRequest<'_> {
        NssRequest::by_name(kind, name.as_bytes()).expect("a name that can be asked for")
    }

    /// Makes a cache with all requests about one user and one group, all absent.
    fn filled(now: Instant) -> (NegativeCache, [NssRequest<'static>; 5]) {
        let requests = [
            by_name(LookupKind::UserByName, "zoe"),
            by_name(LookupKind::GroupsOf, "zoe"),
            NssRequest::by_id(LookupKind::UserByUid, 7000),
            by_name(LookupKind::GroupByName, "zoe"),
            NssRequest::by_id(LookupKind::GroupByGid, 7000),
        ];
        let mut absent = NegativeCache::new(LIFE);
        requests.iter().for_each(|request| absent.note(request, now));
        (absent, requests)
    }

    #[test]
    fn negative_cache_forgets_each_name_of_entry() {
        let now = Instant::now();
        let mut absent = NegativeCache::new(LIFE);
        let kind = LookupKind::UserByName;
        let names = ["zoe", "ZOE", "Zoe", "zoe@corp", "CORP\\ZOE"];
        for name in names.into_iter().chain(["ann", "ANN"]) {
            absent.note(&by_name(kind, name), now);
        }
        absent.forget_user(b"Zoe");
        assert!(names.iter().all(|name| !absent.knows(&by_name(kind, name), now)));
        assert!(["ann", "ANN"].iter().all(|name| absent.knows(&by_name(kind, name), now)));
        for number in 0..OTHER_NAMES_MAX * 2 {
            absent.note(&by_name(kind, &format!("A{number}")), now);
        }
        assert!(absent.other_names.len() <= OTHER_NAMES_MAX);
    }

    #[test]
    fn what_does_not_exist_is_known_until_its_time_is_over() {
        let now = Instant::now();
        let (absent, requests) = filled(now);
        for request in &requests {
            assert!(absent.knows(request, now + LIFE - Duration::from_millis(1)), "{request:?}");
            assert!(!absent.knows(request, now + LIFE), "{request:?}");
        }
        assert!(!absent.knows(&by_name(LookupKind::UserByName, "yara"), now));
        assert!(!absent.knows(&NssRequest::by_id(LookupKind::UserByUid, 7001), now));
    }

    #[test]
    fn negative_cache_new_user_clears_every_uid() {
        let now = Instant::now();
        let (mut absent, requests) = filled(now);
        absent.forget_user(b"zoe");
        let known = requests.map(|request| absent.knows(&request, now));
        assert_eq!(known, [false, false, false, true, true]);
    }

    #[test]
    fn negative_cache_new_group_clears_every_gid() {
        let now = Instant::now();
        let (mut absent, requests) = filled(now);
        absent.forget_group(b"zoe");
        let known = requests.map(|request| absent.knows(&request, now));
        assert_eq!(known, [true, true, true, false, false]);
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let now = Instant::now();
        let mut absent = NegativeCache::new(LIFE);
        for id in 0..3 * ENTRIES_MAX as u32 {
            absent.note(&NssRequest::by_id(LookupKind::UserByUid, id), now);
            assert!(absent.ids.len() <= ENTRIES_MAX);
            assert!(absent.knows(&NssRequest::by_id(LookupKind::UserByUid, id), now));
        }
    }
}
