//! References that lists may hold in vain: entries went by them which are gone, or have others now.
//!
//! A server may have mended the lists, and some do so after a while and without a word (OpenLDAP's
//! overlay refint); another has no such thing, and its lists stay. It is not known which, so the
//! lists are read again a few times, and then left as they are.

use roster_bus::exchange::NO_REFERENCE;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long after the change, or after the time before, lists that hold the reference are read.
const WAITS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(9), Duration::from_secs(50)];
/// When everything is read instead, once.
const WHOLE_WAIT: Duration = Duration::from_secs(60);
/// References that are kept; of more, everything is read.
const LEFT_MAX: usize = 1000;

/// Stands for all references: everything is to be read.
pub const ALL: u32 = NO_REFERENCE;

#[derive(Clone, Copy)]
struct One {
    /// The part that its entry was of.
    part: u8,
    /// How often lists were read.
    times: usize,
    due: Instant,
}

/// See the module.
pub struct Left {
    is_wanted: bool,
    all: BTreeMap<u32, One>,
    /// Parts of which the cache has other references.
    changed: BTreeSet<u8>,
}

impl Left {
    /// None yet. None ever where lists are not wanted.
    #[must_use]
    pub fn new(is_wanted: bool) -> Self {
        Self { is_wanted, all: BTreeMap::new(), changed: BTreeSet::new() }
    }

    /// An entry of the part left the reference, if it had one.
    pub fn note(&mut self, part: u8, reference: u32, now: Instant) {
        if reference == NO_REFERENCE || !self.is_wanted {
            return;
        }
        if self.all.contains_key(&ALL) || self.all.len() >= LEFT_MAX {
            return self.note_all(part, now);
        }
        self.all.insert(reference, One { part, times: 0, due: now + WAITS[0] });
        self.changed.insert(part);
    }

    /// Any list may hold what was left.
    pub fn note_all(&mut self, part: u8, now: Instant) {
        self.changed.extend(self.all.values().map(|one| one.part));
        self.changed.insert(part);
        self.all.clear();
        self.all.insert(ALL, One { part, times: 0, due: now + WHOLE_WAIT });
    }

    /// The cache has these of a part.
    pub fn restore(&mut self, part: u8, references: &[u32], now: Instant) {
        for &reference in references {
            match reference {
                ALL if self.is_wanted => self.note_all(part, now),
                reference => self.note(part, reference, now),
            }
        }
    }

    /// When lists are to be looked at next.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.all.values().map(|one| one.due).min()
    }

    /// References whose time has come.
    #[must_use]
    pub fn due_at(&self, now: Instant) -> BTreeSet<u32> {
        self.all.iter().filter(|(_, one)| one.due <= now).map(|(&number, _)| number).collect()
    }

    /// Lists were looked at as they were `then`; they hold these references of those that were due.
    pub fn looked(&mut self, then: Instant, held: &BTreeSet<u32>, now: Instant) {
        let changed = &mut self.changed;
        self.all.retain(|number, one| {
            if one.due > then {
                return true;
            }
            one.times += 1;
            let wait = WAITS.get(one.times).filter(|_| held.contains(number));
            one.due = now + wait.copied().unwrap_or_default();
            if wait.is_none() {
                changed.insert(one.part);
            }
            wait.is_some()
        });
    }

    /// Parts of which the cache is to be told, each with its references.
    pub fn take_changed(&mut self) -> Vec<(u8, Vec<u32>)> {
        let of = |part| {
            let of = self.all.iter().filter(|(_, one)| one.part == part);
            of.map(|(&number, _)| number).collect()
        };
        std::mem::take(&mut self.changed).into_iter().map(|part| (part, of(part))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_three_times_as_long_as_they_hold_the_reference() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut left = Left::new(true);
        left.note(0, 7, at(0));
        left.note(1, 8, at(0));
        assert!(left.due_at(start).is_empty());
        assert_eq!(left.due_at(at(1)), BTreeSet::from([7, 8]));
        left.looked(at(1), &BTreeSet::from([7]), at(1));
        assert_eq!(left.take_changed(), [(0, vec![7]), (1, vec![])]);
        assert_eq!(left.due(), Some(at(10)));
        left.looked(at(10), &BTreeSet::from([7]), at(10));
        assert_eq!(left.due(), Some(at(60)));
        left.looked(at(60), &BTreeSet::from([7]), at(60));
        assert_eq!(left.due(), None);
    }

    #[test]
    fn what_is_left_again_meanwhile_begins_anew() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut left = Left::new(true);
        left.note(0, 7, at(0));
        left.note(0, 7, at(1));
        left.looked(at(1), &BTreeSet::new(), at(2));
        assert_eq!(left.due(), Some(at(2)));
    }

    #[test]
    fn of_too_many_everything_is_read_once() {
        let start = Instant::now();
        let mut left = Left::new(true);
        left.note(0, NO_REFERENCE, start);
        assert_eq!(left.due(), None, "it had none");
        (0..5000).for_each(|number| left.note(0, number, start));
        assert_eq!(left.due_at(start + WHOLE_WAIT), BTreeSet::from([ALL]));
        assert_eq!(left.take_changed(), [(0, vec![ALL])]);
        left.looked(start + WHOLE_WAIT, &BTreeSet::new(), start + WHOLE_WAIT);
        assert_eq!(left.due(), None);
    }

    #[test]
    fn where_lists_do_not_hold_dns_nothing_is_noted() {
        let mut left = Left::new(false);
        left.note(0, 7, Instant::now());
        assert_eq!(left.due(), None);
    }
}
