//! References of which it is in doubt which lists hold them: entries went by them which are gone or have
//! others now, or entries go by them since a moment ago.
//!
//! A server may have changed the lists, and some do so after a while and without a word (OpenLDAP's
//! overlay refint); another has no such thing, and its lists stay. It is not known which, so the
//! lists are read again a few times, and then left as they are. Of an entry that comes the server may
//! have put it into lists, or have taken another of its name out, long before.

use roster_bus::exchange::NO_REFERENCE;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long after an entry left a reference, or after the time before, lists that hold it are read.
const LEFT_WAITS: &[Duration] =
    &[Duration::from_secs(1), Duration::from_secs(9), Duration::from_secs(50)];
/// How long after one took it.
const TAKEN_WAITS: &[Duration] =
    &[Duration::ZERO, Duration::from_secs(1), Duration::from_secs(9), Duration::from_secs(50)];
/// How long after there were too many, or after the time before, everything is read instead.
const WHOLE_WAITS: &[Duration] = &[Duration::from_secs(2), Duration::from_secs(60)];
/// The least between two readings of everything.
const WHOLE_PAUSE: Duration = Duration::from_secs(60);
/// References that are kept; of more, everything is read.
const REFERENCES_MAX: usize = 10_000;

/// Stands for all references: everything is to be read.
pub const ALL: u32 = NO_REFERENCE;

#[derive(Clone, Copy)]
struct One {
    /// The part that its entry was of, or is.
    part: u8,
    /// Whether an entry took it.
    is_taken: bool,
    /// How often lists were read.
    times: usize,
    due: Instant,
}

impl One {
    /// How long the lists are left alone from now on; `None` for good.
    fn wait(&self, reference: u32, is_held: bool) -> Option<Duration> {
        let waits = match (reference, self.is_taken) {
            (ALL, _) => WHOLE_WAITS,
            (_, true) => TAKEN_WAITS,
            (_, false) if is_held => LEFT_WAITS,
            (_, false) => return None,
        };
        waits.get(self.times).copied()
    }
}

/// References whose time has come.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Those to look for in the lists that are known.
    pub sought: BTreeSet<u32>,
    /// Those to ask the server for, which may have them in other lists.
    pub asked: BTreeSet<u32>,
}

/// See the module.
pub struct Doubts {
    is_wanted: bool,
    /// When everything was read last.
    whole: Option<Instant>,
    all: BTreeMap<u32, One>,
    /// Parts of which the cache has other references.
    changed: BTreeSet<u8>,
}

impl Doubts {
    /// None yet. None ever where lists are not wanted.
    #[must_use]
    pub fn new(is_wanted: bool) -> Self {
        Self { is_wanted, whole: None, all: BTreeMap::new(), changed: BTreeSet::new() }
    }

    /// An entry of the part left the reference, if it had one.
    pub fn left(&mut self, part: u8, reference: u32, now: Instant) {
        self.note(part, reference, false, now);
    }

    /// An entry of the part took the reference, if it has one.
    pub fn taken(&mut self, part: u8, reference: u32, now: Instant) {
        self.note(part, reference, true, now);
    }

    fn note(&mut self, part: u8, reference: u32, is_taken: bool, now: Instant) {
        if reference == NO_REFERENCE || !self.is_wanted {
            return;
        }
        if self.all.len() >= REFERENCES_MAX {
            return self.note_all(part, now);
        }
        let before = self.all.get(&reference);
        let is_taken = is_taken || before.is_some_and(|before| before.is_taken);
        let mut one = One { part, is_taken, times: 0, due: now };
        one.due += one.wait(reference, true).unwrap_or_default();
        self.all.insert(reference, one);
        self.changed.insert(part);
    }

    /// Any list may be in doubt. What is noted from then on counts by itself, so that the reading is put off
    /// by nothing.
    pub fn note_all(&mut self, part: u8, now: Instant) {
        self.changed.extend(self.all.values().map(|one| one.part));
        self.changed.insert(part);
        self.all.clear();
        let earliest = self.whole.map_or(now, |whole| whole + WHOLE_PAUSE);
        let due = earliest.max(now + WHOLE_WAITS[0]);
        self.all.insert(ALL, One { part, is_taken: false, times: 0, due });
    }

    /// The cache has these of a part, and not which of them were taken.
    pub fn restore(&mut self, part: u8, references: &[u32], now: Instant) {
        for &reference in references {
            match reference {
                ALL if self.is_wanted => self.note_all(part, now),
                reference => self.taken(part, reference, now),
            }
        }
    }

    /// When lists are to be looked at next.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.all.values().map(|one| one.due).min()
    }

    /// References whose time has come. Lists that hold what is taken are looked for once: whatever the
    /// server has done to them since is found by asking it.
    #[must_use]
    pub fn due_at(&self, now: Instant) -> Due {
        let mut due = Due::default();
        for (&number, one) in self.all.iter().filter(|(_, one)| one.due <= now) {
            if !one.is_taken || one.times == 0 {
                due.sought.insert(number);
            }
            if one.is_taken {
                due.asked.insert(number);
            }
        }
        due
    }

    /// Lists were looked at as they were `then`; they hold these references of those that were due.
    pub fn looked(&mut self, then: Instant, held: &BTreeSet<u32>, now: Instant) {
        let changed = &mut self.changed;
        self.all.retain(|number, one| {
            if one.due > then {
                return true;
            }
            one.times += 1;
            if *number == ALL {
                self.whole = Some(now);
            }
            let wait = one.wait(*number, held.contains(number));
            one.due = now + wait.unwrap_or_default();
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

    fn sought<const N: usize>(references: [u32; N]) -> Due {
        Due { sought: references.into(), asked: BTreeSet::new() }
    }

    #[test]
    fn lists_are_read_three_times_as_long_as_they_hold_the_reference() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut doubts = Doubts::new(true);
        doubts.left(0, 7, at(0));
        doubts.left(1, 8, at(0));
        assert_eq!(doubts.due_at(start), Due::default());
        assert_eq!(doubts.due_at(at(1)), sought([7, 8]));
        doubts.looked(at(1), &BTreeSet::from([7]), at(1));
        assert_eq!(doubts.take_changed(), [(0, vec![7]), (1, vec![])]);
        assert_eq!(doubts.due(), Some(at(10)));
        doubts.looked(at(10), &BTreeSet::from([7]), at(10));
        assert_eq!(doubts.due(), Some(at(60)));
        doubts.looked(at(60), &BTreeSet::from([7]), at(60));
        assert_eq!(doubts.due(), None);
    }

    #[test]
    fn the_server_is_asked_four_times_for_what_is_taken_whether_a_list_holds_it_or_not() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut doubts = Doubts::new(true);
        doubts.taken(0, 7, at(0));
        for (time, is_sought) in [(0, true), (1, false), (10, false), (60, false)] {
            assert_eq!(doubts.due(), Some(at(time)));
            let references = BTreeSet::from([7]);
            let sought = if is_sought { references.clone() } else { BTreeSet::new() };
            assert_eq!(doubts.due_at(at(time)), Due { sought, asked: references });
            doubts.looked(at(time), &BTreeSet::new(), at(time));
        }
        assert_eq!(doubts.due(), None);
        // By somebody who leaves it again it is still taken, and after a restart it may be.
        doubts.taken(0, 7, at(0));
        doubts.left(0, 7, at(0));
        assert_eq!(doubts.due_at(at(0)).asked, BTreeSet::from([7]));
        let cached = doubts.take_changed();
        let mut anew = Doubts::new(true);
        anew.restore(0, &cached[0].1, at(0));
        assert_eq!(anew.due_at(at(0)).asked, BTreeSet::from([7]));
    }

    #[test]
    fn what_is_left_again_meanwhile_begins_anew() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut doubts = Doubts::new(true);
        doubts.left(0, 7, at(0));
        doubts.left(0, 7, at(1));
        doubts.looked(at(1), &BTreeSet::new(), at(2));
        assert_eq!(doubts.due(), Some(at(2)));
    }

    #[test]
    fn of_too_many_everything_is_read_soon_and_a_minute_later() {
        let start = Instant::now();
        let mut doubts = Doubts::new(true);
        doubts.left(0, NO_REFERENCE, start);
        assert_eq!(doubts.due(), None, "it had none");
        let too_many = 0..=10_000;
        too_many.clone().for_each(|number| doubts.left(0, number, start));
        assert_eq!(doubts.take_changed(), [(0, vec![ALL])]);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(doubts.due_at(at(2)), sought([ALL]));
        doubts.looked(at(2), &BTreeSet::new(), at(3));
        assert_eq!(doubts.due(), Some(at(63)), "once more");
        too_many.for_each(|number| doubts.left(0, number, at(10)));
        let is_whole = |doubts: &Doubts, time| doubts.due_at(at(time)).sought.contains(&ALL);
        assert!(!is_whole(&doubts, 62) && is_whole(&doubts, 63), "not sooner");
        doubts.looked(at(63), &BTreeSet::new(), at(63));
        assert!(!is_whole(&doubts, 122) && is_whole(&doubts, 123));
        doubts.looked(at(123), &BTreeSet::new(), at(123));
        assert_eq!(doubts.due(), None);
    }

    #[test]
    fn what_is_noted_meanwhile_does_not_put_the_reading_of_everything_off() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut doubts = Doubts::new(true);
        (0..=10_000).for_each(|number| doubts.left(0, number, start));
        doubts.left(0, 7, at(1));
        assert_eq!(doubts.due_at(at(2)), sought([7, ALL]));
    }

    #[test]
    fn where_lists_do_not_hold_dns_nothing_is_noted() {
        let mut doubts = Doubts::new(false);
        doubts.left(0, 7, Instant::now());
        assert_eq!(doubts.due(), None);
    }
}
