// SPDX-License-Identifier: MIT OR Apache-2.0
//! Member references that may be stale: the entry was deleted, renamed, or just added. `list_reread` reads the lists.
//!
//! A server may have changed the lists, and some do so later and silently (OpenLDAP's overlay refint). Other servers
//! leave them as they are. The backend does not know which kind it has. It therefore reads the lists again a few times,
//! and then leaves them. A server may also have put a new entry into lists, or have removed another entry of its name,
//! long before.

use roster_bus::domain_image::NO_REFERENCE;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Waits after the release of a reference, or after the previous read, until lists with it are read.
const RELEASED_WAITS: &[Duration] =
    &[Duration::from_secs(1), Duration::from_secs(9), Duration::from_secs(50)];
/// Waits after an entry took a reference.
const TAKEN_WAITS: &[Duration] =
    &[Duration::ZERO, Duration::from_secs(1), Duration::from_secs(9), Duration::from_secs(50)];
/// Waits after an overflow, or after the previous full read, until everything is read.
const FULL_READ_WAITS: &[Duration] = &[Duration::from_secs(2), Duration::from_secs(60)];
/// Shortest time between two full reads.
const FULL_READ_PAUSE: Duration = Duration::from_secs(60);
/// Limit of stale references. Above it, everything is read.
const REFERENCES_MAX: usize = 10_000;

/// Stands for all references: a full read is due.
pub const ALL_REFERENCES: u32 = NO_REFERENCE;

#[derive(Clone, Copy)]
struct StaleReference {
    /// The part of its former or present entry.
    part: u8,
    /// Whether an entry took the reference.
    is_taken: bool,
    /// Number of reads of the lists.
    reads: usize,
    due: Instant,
}

impl StaleReference {
    /// Returns the time until the next read; `None` after the last one.
    fn wait(&self, reference: u32, is_held: bool) -> Option<Duration> {
        let waits = match (reference, self.is_taken) {
            (ALL_REFERENCES, _) => FULL_READ_WAITS,
            (_, true) => TAKEN_WAITS,
            (_, false) if is_held => RELEASED_WAITS,
            (_, false) => return None,
        };
        waits.get(self.reads).copied()
    }
}

/// References that are due.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DueReferences {
    /// References to search for in the known lists.
    pub in_lists: BTreeSet<u32>,
    /// References for a query to the server, which may have them in other lists.
    pub at_server: BTreeSet<u32>,
}

/// Member references that may be stale.
pub struct StaleReferences {
    is_enabled: bool,
    /// Time of the last full read.
    last_full_read: Option<Instant>,
    references: BTreeMap<u32, StaleReference>,
    /// Parts with other references than in the cache.
    changed_parts: BTreeSet<u8>,
}

impl StaleReferences {
    /// Starts empty. Stays empty if lists are not wanted.
    #[must_use]
    pub fn new(is_wanted: bool) -> Self {
        Self {
            is_enabled: is_wanted,
            last_full_read: None,
            references: BTreeMap::new(),
            changed_parts: BTreeSet::new(),
        }
    }

    /// Records that an entry of the part left the reference, if it had one.
    pub fn note_released(&mut self, part: u8, reference: u32, now: Instant) {
        self.note(part, reference, false, now);
    }

    /// Records that an entry of the part took the reference, if it has one.
    pub fn note_taken(&mut self, part: u8, reference: u32, now: Instant) {
        self.note(part, reference, true, now);
    }

    fn note(&mut self, part: u8, reference: u32, is_taken: bool, now: Instant) {
        if reference == NO_REFERENCE || !self.is_enabled {
            return;
        }
        if self.references.len() >= REFERENCES_MAX {
            return self.note_all(part, now);
        }
        let before = self.references.get(&reference);
        let is_taken = is_taken || before.is_some_and(|before| before.is_taken);
        let mut one = StaleReference { part, is_taken, reads: 0, due: now };
        one.due += one.wait(reference, true).unwrap_or_default();
        self.references.insert(reference, one);
        self.changed_parts.insert(part);
    }

    /// Marks all lists as possibly outdated. Later references count separately and do not delay the full read.
    pub fn note_all(&mut self, part: u8, now: Instant) {
        self.changed_parts.extend(self.references.values().map(|one| one.part));
        self.changed_parts.insert(part);
        self.references.clear();
        let earliest = self.last_full_read.map_or(now, |whole| whole + FULL_READ_PAUSE);
        let due = earliest.max(now + FULL_READ_WAITS[0]);
        self.references
            .insert(ALL_REFERENCES, StaleReference { part, is_taken: false, reads: 0, due });
    }

    /// Loads the references of a part from the cache, which does not store whether an entry took them.
    pub fn restore(&mut self, part: u8, references: &[u32], now: Instant) {
        for &reference in references {
            match reference {
                ALL_REFERENCES if self.is_enabled => self.note_all(part, now),
                reference => self.note_taken(part, reference, now),
            }
        }
    }

    /// Returns the time of the next list scan.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.references.values().map(|one| one.due).min()
    }

    /// Returns the due references. Lists with a reference that an entry took are searched once. Later changes at the
    /// server are found by a query to it.
    #[must_use]
    pub fn due_at(&self, now: Instant) -> DueReferences {
        let mut due = DueReferences::default();
        for (&number, one) in self.references.iter().filter(|(_, one)| one.due <= now) {
            if !one.is_taken || one.reads == 0 {
                due.in_lists.insert(number);
            }
            if one.is_taken {
                due.at_server.insert(number);
            }
        }
        due
    }

    /// Records a scan of the lists in their state at `then`. `held` has the due references that they hold.
    pub fn note_scanned(&mut self, then: Instant, held: &BTreeSet<u32>, now: Instant) {
        let changed = &mut self.changed_parts;
        self.references.retain(|number, one| {
            if one.due > then {
                return true;
            }
            one.reads += 1;
            if *number == ALL_REFERENCES {
                self.last_full_read = Some(now);
            }
            let wait = one.wait(*number, held.contains(number));
            one.due = now + wait.unwrap_or_default();
            if wait.is_none() {
                changed.insert(one.part);
            }
            wait.is_some()
        });
    }

    /// Returns parts with changed references, each with all of its references, for the cache.
    pub fn take_changed(&mut self) -> Vec<(u8, Vec<u32>)> {
        let of = |part| {
            let of = self.references.iter().filter(|(_, one)| one.part == part);
            of.map(|(&number, _)| number).collect()
        };
        std::mem::take(&mut self.changed_parts).into_iter().map(|part| (part, of(part))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sought<const N: usize>(references: [u32; N]) -> DueReferences {
        DueReferences { in_lists: references.into(), at_server: BTreeSet::new() }
    }

    #[test]
    fn lists_are_read_three_times_as_long_as_they_hold_the_reference() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut doubts = StaleReferences::new(true);
        doubts.note_released(0, 7, at(0));
        doubts.note_released(1, 8, at(0));
        assert_eq!(doubts.due_at(start), DueReferences::default());
        assert_eq!(doubts.due_at(at(1)), sought([7, 8]));
        doubts.note_scanned(at(1), &BTreeSet::from([7]), at(1));
        assert_eq!(doubts.take_changed(), [(0, vec![7]), (1, vec![])]);
        assert_eq!(doubts.next_due(), Some(at(10)));
        doubts.note_scanned(at(10), &BTreeSet::from([7]), at(10));
        assert_eq!(doubts.next_due(), Some(at(60)));
        doubts.note_scanned(at(60), &BTreeSet::from([7]), at(60));
        assert_eq!(doubts.next_due(), None);
    }

    #[test]
    fn stale_references_ask_server_four_times() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut doubts = StaleReferences::new(true);
        doubts.note_taken(0, 7, at(0));
        for (time, is_sought) in [(0, true), (1, false), (10, false), (60, false)] {
            assert_eq!(doubts.next_due(), Some(at(time)));
            let references = BTreeSet::from([7]);
            let sought = if is_sought { references.clone() } else { BTreeSet::new() };
            assert_eq!(
                doubts.due_at(at(time)),
                DueReferences { in_lists: sought, at_server: references }
            );
            doubts.note_scanned(at(time), &BTreeSet::new(), at(time));
        }
        assert_eq!(doubts.next_due(), None);
        // After a release by another entry the reference still counts as taken, also after a restart.
        doubts.note_taken(0, 7, at(0));
        doubts.note_released(0, 7, at(0));
        assert_eq!(doubts.due_at(at(0)).at_server, BTreeSet::from([7]));
        let cached = doubts.take_changed();
        let mut anew = StaleReferences::new(true);
        anew.restore(0, &cached[0].1, at(0));
        assert_eq!(anew.due_at(at(0)).at_server, BTreeSet::from([7]));
    }

    #[test]
    fn what_is_left_again_meanwhile_begins_anew() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut doubts = StaleReferences::new(true);
        doubts.note_released(0, 7, at(0));
        doubts.note_released(0, 7, at(1));
        doubts.note_scanned(at(1), &BTreeSet::new(), at(2));
        assert_eq!(doubts.next_due(), Some(at(2)));
    }

    #[test]
    fn of_too_many_everything_is_read_soon_and_a_minute_later() {
        let start = Instant::now();
        let mut doubts = StaleReferences::new(true);
        doubts.note_released(0, NO_REFERENCE, start);
        assert_eq!(doubts.next_due(), None, "it had none");
        let too_many = 0..=10_000;
        too_many.clone().for_each(|number| doubts.note_released(0, number, start));
        assert_eq!(doubts.take_changed(), [(0, vec![ALL_REFERENCES])]);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(doubts.due_at(at(2)), sought([ALL_REFERENCES]));
        doubts.note_scanned(at(2), &BTreeSet::new(), at(3));
        assert_eq!(doubts.next_due(), Some(at(63)), "once more");
        too_many.for_each(|number| doubts.note_released(0, number, at(10)));
        let is_whole = |doubts: &StaleReferences, time| {
            doubts.due_at(at(time)).in_lists.contains(&ALL_REFERENCES)
        };
        assert!(!is_whole(&doubts, 62) && is_whole(&doubts, 63), "not sooner");
        doubts.note_scanned(at(63), &BTreeSet::new(), at(63));
        assert!(!is_whole(&doubts, 122) && is_whole(&doubts, 123));
        doubts.note_scanned(at(123), &BTreeSet::new(), at(123));
        assert_eq!(doubts.next_due(), None);
    }

    #[test]
    fn what_is_noted_meanwhile_does_not_put_the_reading_of_everything_off() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut doubts = StaleReferences::new(true);
        (0..=10_000).for_each(|number| doubts.note_released(0, number, start));
        doubts.note_released(0, 7, at(1));
        assert_eq!(doubts.due_at(at(2)), sought([7, ALL_REFERENCES]));
    }

    #[test]
    fn where_lists_do_not_hold_dns_nothing_is_noted() {
        let mut doubts = StaleReferences::new(false);
        doubts.note_released(0, 7, Instant::now());
        assert_eq!(doubts.next_due(), None);
    }
}
