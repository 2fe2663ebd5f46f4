// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directory entries that cannot be parsed as users or groups: a bounded list for the administrator, and the total
//! number. `engine` fills it, and `dbus` sends it.

use roster_domain_cache::{EntryKey, Rejection};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Entries in the list. Further ones are only counted.
pub const LISTED_MAX: usize = 100_000;

/// List of rejected entries.
#[derive(Default)]
pub struct Rejections {
    listed: BTreeMap<u64, ListedRejection>,
    positions: HashMap<EntryKey, u64>,
    next: u64,
    /// By part, the number of entries of the present refresh that are not in the list.
    unlisted: HashMap<u8, u64>,
    /// Parts with groups among these.
    unlisted_groups: HashSet<u8>,
    /// Counts additions and removals.
    changes: u64,
}

struct ListedRejection {
    key: EntryKey,
    rejection: Rejection,
    mark: u32,
}

impl Rejections {
    /// Lists an entry. `mark` is the refresh that reported it. Returns true for a new or changed item in the list.
    pub fn add(&mut self, key: EntryKey, rejection: Rejection, mark: u32) -> bool {
        if let Some(listed) = self.positions.get(&key).and_then(|place| self.listed.get_mut(place))
        {
            listed.mark = mark;
            let news = listed.rejection != rejection;
            self.changes += u64::from(news);
            listed.rejection = rejection;
            return news;
        }
        self.changes += 1;
        if self.listed.len() >= LISTED_MAX {
            if !rejection.reference.is_empty() {
                self.unlisted_groups.insert(key.search);
            }
            *self.unlisted.entry(key.search).or_default() += 1;
            return false;
        }
        self.positions.insert(key, self.next);
        self.listed.insert(self.next, ListedRejection { key, rejection, mark });
        self.next += 1;
        true
    }

    /// Removes an entry from the list. Returns whether it was there.
    pub fn remove(&mut self, key: EntryKey) -> bool {
        // Nearly always empty, and called for every entry of a mirror.
        if self.positions.is_empty() {
            return false;
        }
        let place = self.positions.remove(&key);
        self.changes += u64::from(place.is_some());
        place.is_some_and(|place| self.listed.remove(&place).is_some())
    }

    /// Whether the entry is listed.
    #[must_use]
    pub fn contains(&self, key: EntryKey) -> bool {
        self.positions.contains_key(&key)
    }

    /// Records that the refresh reported the entry. Returns whether it is listed.
    pub fn present(&mut self, key: EntryKey, mark: u32) -> bool {
        let listed = self.positions.get(&key).and_then(|place| self.listed.get_mut(place));
        listed.map(|listed| listed.mark = mark).is_some()
    }

    /// Starts a refresh of the part.
    pub fn refresh_began(&mut self, part: u8) {
        self.unlisted.remove(&part);
        if self.unlisted_groups.remove(&part) {
            self.changes += 1;
        }
    }

    /// Removes entries that the refresh did not report.
    pub fn refresh_ended(&mut self, part: u8, mark: u32) -> Vec<EntryKey> {
        let unmentioned: Vec<EntryKey> = self
            .listed
            .values()
            .filter(|listed| listed.key.search == part && listed.mark != mark)
            .map(|listed| listed.key)
            .collect();
        for key in &unmentioned {
            self.remove(*key);
        }
        unmentioned
    }

    /// Returns the entries from a position on, in the order of their arrival.
    pub fn list(&self, from: usize) -> impl Iterator<Item = (&EntryKey, &Rejection)> {
        self.listed.values().skip(from).map(|listed| (&listed.key, &listed.rejection))
    }

    /// Returns a number that differs after each change of the list.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns references of the groups in the list; `None` if there are too many for the list.
    #[must_use]
    pub fn groups(&self) -> Option<impl Iterator<Item = &[u8]>> {
        let references = self.listed.values().map(|listed| &*listed.rejection.reference);
        self.unlisted_groups.is_empty().then(|| references.filter(|name| !name.is_empty()))
    }

    /// Returns the number of all, listed or not.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.listed.len() as u64 + self.unlisted.values().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> EntryKey {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_le_bytes());
        EntryKey { search: 0, id }
    }

    fn why(reason: &str) -> Rejection {
        let (code, reason) = ("RST-5000".into(), reason.into());
        Rejection { name: "uid=a".into(), reference: Vec::new(), code, reason }
    }

    #[test]
    fn an_entry_is_listed_once_with_its_last_reason() {
        let mut rejected = Rejections::default();
        assert!(rejected.add(key(1), why("no uid"), 1));
        assert!(!rejected.add(key(1), why("no uid"), 1));
        assert!(rejected.add(key(1), why("no gid"), 1));
        assert_eq!(rejected.count(), 1);
        assert_eq!(rejected.list(0).next().expect("one").1.reason, "no gid");
        assert!(rejected.remove(key(1)));
        assert!(!rejected.remove(key(1)));
    }

    #[test]
    fn what_a_refresh_does_not_mention_leaves_the_list() {
        let mut rejected = Rejections::default();
        for number in 0..3 {
            rejected.add(key(number), why("no uid"), 1);
        }
        rejected.refresh_began(0);
        rejected.add(key(0), why("no uid"), 2);
        rejected.present(key(1), 2);
        assert_eq!(rejected.refresh_ended(0, 2), [key(2)]);
        assert_eq!(rejected.count(), 2);
    }

    #[test]
    fn groups_beyond_the_bound_are_not_known() {
        let mut rejected = Rejections::default();
        let group = |reference: &[u8]| Rejection { reference: reference.into(), ..why("cut") };
        rejected.add(key(0), group(b"cn=a"), 1);
        let changes = rejected.changes();
        let groups = |rejected: &Rejections| {
            rejected.groups().map(|groups| groups.map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        assert_eq!(groups(&rejected), Some(vec![b"cn=a".to_vec()]));
        for number in 1..=LISTED_MAX as u32 {
            rejected.add(key(number), why("no uid"), 1);
        }
        assert_eq!(groups(&rejected), Some(vec![b"cn=a".to_vec()]), "the list has no users");
        rejected.add(key(u32::MAX), group(b"cn=b"), 1);
        assert_eq!(groups(&rejected), None);
        assert!(rejected.changes() > changes);
        rejected.refresh_began(0);
        assert_eq!(groups(&rejected), Some(vec![b"cn=a".to_vec()]));
    }

    #[test]
    fn beyond_its_bound_the_list_counts() {
        let mut rejected = Rejections::default();
        for number in 0..LISTED_MAX as u32 + 5 {
            rejected.add(key(number), why("no uid"), 1);
        }
        assert_eq!(rejected.list(0).count(), LISTED_MAX);
        assert_eq!(rejected.list(LISTED_MAX - 1).count(), 1);
        assert_eq!(rejected.count(), LISTED_MAX as u64 + 5);
        rejected.refresh_began(0);
        assert_eq!(rejected.count(), LISTED_MAX as u64);
    }
}
