// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that a server's data continues from the state of a cookie.
//!
//! A server that was restored from a backup goes back in time. After a few writes, its cookies are valid again. A
//! resumed search then reports the changes since, and not the changes that the restoration undid. A cookie is therefore
//! stored with the newest changes before it ([`SyncCheckpoint`]): the keys of entries, their stamps, and removed
//! entries.
//!
//! Entries that a resumption does not report must be unchanged ([`ResumeChecks`]). One entry with another stamp, or a
//! removed entry that is back, requires a full listing. One unchanged entry shows that the server has that change, and
//! by its order all earlier ones. Stamps are compared for equality only: they need not grow, and a clock may be wrong.

use super::is_later;
use crate::ber::{BerError, BerReader, BerWriter, MessageFrame, frame, tag};
use crate::entry_key::key_value;
use crate::filter::EncodedFilter;
use roster_provider::{EntryId, UnlistedEntries};
use std::collections::HashMap;

/// Limit of the stored changes, and of the stored removals. More of them would save a few full listings after long
/// pauses, but each stored cookie contains them.
const CHANGES_MAX: usize = 16;
/// Limit of a stamp. Servers' stamps have at most 40 bytes.
const STAMP_BYTES_MAX: usize = 64;
/// Limit of the entries in one search.
const UNKNOWN_MAX: usize = 256;

/// The newest changes of a search's entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SyncCheckpoint {
    /// Entries and their stamps, the newest last.
    changed: Vec<(EntryId, Vec<u8>)>,
    gone: Vec<EntryId>,
}

impl SyncCheckpoint {
    /// Records an entry with this stamp. A listing has no order, so there the stamp decides which entry is newer.
    pub fn changed(&mut self, id: EntryId, stamp: &[u8], is_listing: bool) {
        if !is_listing {
            self.forget(id);
        }
        if stamp.is_empty() || stamp.len() > STAMP_BYTES_MAX {
            return;
        }
        if !is_listing {
            return push(&mut self.changed, (id, stamp.to_vec()));
        }
        let place = self.changed.partition_point(|(_, other)| !is_later(other, stamp));
        if place > 0 || self.changed.len() < CHANGES_MAX {
            self.changed.insert(place, (id, stamp.to_vec()));
            self.changed.drain(..self.changed.len().saturating_sub(CHANGES_MAX));
        }
    }

    /// Records a removed entry.
    pub fn removed(&mut self, id: EntryId) {
        self.forget(id);
        push(&mut self.gone, id);
    }

    fn forget(&mut self, id: EntryId) {
        self.changed.retain(|(other, _)| *other != id);
        self.gone.retain(|other| *other != id);
    }

    /// Encodes a cookie for the cache: these changes, then the server's cookie. Returns `None` without a stamp, because
    /// then a resumption cannot be checked.
    pub fn encode_with_cookie(&self, cookie: &[u8]) -> Option<Vec<u8>> {
        if self.changed.is_empty() {
            return None;
        }
        let mut writer = BerWriter::default();
        writer.constructed(tag::SEQUENCE, |writer| {
            let gone = self.gone.iter().map(|id| (id, &b""[..]));
            let changed = self.changed.iter().map(|(id, stamp)| (id, &**stamp));
            for (id, stamp) in gone.chain(changed) {
                writer.octets(&id.0);
                writer.octets(stamp);
            }
        });
        writer.raw(cookie);
        Some(writer.into_bytes())
    }

    /// Parses a stored cookie to the changes and the server's cookie.
    pub fn parse(kept: &[u8]) -> Result<(Self, &[u8]), BerError> {
        let MessageFrame::Whole(length) = frame(kept, kept.len())? else {
            return Err(BerError("an incomplete cookie"));
        };
        let (own, cookie) = kept.split_at(length);
        let mut own = BerReader::new(own).inner(tag::SEQUENCE)?;
        let mut history = Self::default();
        while !own.is_empty() {
            let id = own.expect(tag::OCTETS)?.try_into().map(EntryId);
            let id = id.map_err(|_| BerError("a key that is not 16 octets long"))?;
            match own.expect(tag::OCTETS)? {
                b"" => history.removed(id),
                stamp => history.changed(id, stamp, false),
            }
        }
        Ok((history, cookie))
    }
}

/// Adds the newest element. A full list loses its oldest one.
fn push<T>(list: &mut Vec<T>, newest: T) {
    if list.len() >= CHANGES_MAX {
        list.remove(0);
    }
    list.push(newest);
}

/// Entries that must be unchanged after a resumption.
#[derive(Debug, Default)]
pub(super) struct ResumeChecks {
    /// Entries that the server has not reported since, with their stamps. Removed entries have an empty stamp.
    unconfirmed: HashMap<EntryId, Vec<u8>>,
    /// Entries that the server reports as unchanged, and that the cache does not have.
    unknown: Vec<EntryId>,
    too_many: bool,
    /// At least one entry was unchanged.
    is_confirmed: bool,
    is_refuted: bool,
}

impl ResumeChecks {
    /// Makes a check of all entries of the checkpoint.
    pub fn from_checkpoint(history: &SyncCheckpoint) -> Self {
        let gone = history.gone.iter().map(|id| (*id, Vec::new()));
        Self {
            unconfirmed: history.changed.iter().cloned().chain(gone).collect(),
            ..Self::default()
        }
    }

    /// Resolves an entry that the server reported. Its earlier state no longer matters.
    pub fn resolve_entry(&mut self, id: EntryId) {
        self.unconfirmed.remove(&id);
    }

    /// Adds an entry that the server reports as unchanged, and that the cache does not have. It is a container or a
    /// removed entry.
    pub fn add_unknown(&mut self, id: EntryId) {
        if self.unknown.len() < UNKNOWN_MAX {
            self.unknown.push(id);
        } else {
            self.too_many = true;
        }
    }

    /// Returns whether more entries are unresolved than one search can request.
    pub fn has_too_many(&self) -> bool {
        self.too_many
    }

    /// Returns whether no entry is unresolved.
    pub fn is_empty(&self) -> bool {
        self.unconfirmed.is_empty() && self.unknown.is_empty()
    }

    /// Returns a filter for the unresolved entries, by the attribute of their keys.
    pub fn filter(&self, key: &str) -> EncodedFilter {
        let ids = self.unconfirmed.keys().chain(&self.unknown);
        let values: Vec<Vec<u8>> = ids.map(|id| key_value(key, *id)).collect();
        EncodedFilter::equals_any(key, &values)
    }

    /// Checks an entry that has this stamp now.
    pub fn check_entry(&mut self, id: EntryId, stamp: &[u8]) {
        if let Some(known) = self.unconfirmed.remove(&id) {
            let is_same = !known.is_empty() && known == stamp;
            self.is_confirmed |= is_same;
            self.is_refuted |= !is_same;
        }
    }

    /// Returns whether the server's data continues from the state of the cookie. If unmentioned entries stay in the
    /// mirror, the server reports all removals, so a missing entry refutes the resumption.
    pub fn is_consistent(&self, unmentioned: UnlistedEntries) -> bool {
        let is_one_missing = self.unconfirmed.values().any(|stamp| !stamp.is_empty());
        let is_refuted =
            self.is_refuted || is_one_missing && unmentioned == UnlistedEntries::Unchanged;
        self.is_confirmed && !is_refuted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> EntryId {
        EntryId([number; 16])
    }

    fn stamp(number: u8) -> Vec<u8> {
        format!("202611220756{number:02}Z").into_bytes()
    }

    /// Entries 1 to 3 changed in this order, and 9 was removed.
    fn history() -> SyncCheckpoint {
        let mut history = SyncCheckpoint::default();
        (1..=3).for_each(|n| history.changed(id(n), &stamp(n), false));
        history.removed(id(9));
        history
    }

    fn settled(
        doubts: &mut ResumeChecks,
        found: &[(u8, u8)],
        unmentioned: UnlistedEntries,
    ) -> bool {
        found.iter().for_each(|(n, version)| doubts.check_entry(id(*n), &stamp(*version)));
        doubts.is_consistent(unmentioned)
    }

    #[test]
    fn what_is_as_it_was_is_believed() {
        let found = [(1, 1), (2, 2), (3, 3)];
        assert!(settled(
            &mut ResumeChecks::from_checkpoint(&history()),
            &found,
            UnlistedEntries::Unchanged
        ));
    }

    #[test]
    fn without_stamps_nothing_is_known() {
        let mut unstamped = SyncCheckpoint::default();
        unstamped.changed(id(1), b"", true);
        unstamped.removed(id(9));
        assert_eq!(unstamped.encode_with_cookie(b"csn=1"), None);
        for unmentioned in [UnlistedEntries::Unchanged, UnlistedEntries::Removed] {
            assert!(!settled(&mut ResumeChecks::from_checkpoint(&unstamped), &[], unmentioned));
        }
    }

    #[test]
    fn what_was_undone_is_found_out() {
        let kept = UnlistedEntries::Unchanged;
        let cases: [(&str, &[(u8, u8)]); 4] = [
            ("a change", &[(1, 1), (2, 2), (3, 0)]),
            ("a change, and another came that is not told of", &[(1, 1), (2, 2), (3, 7)]),
            ("an entry that was added", &[(1, 1), (2, 2)]),
            ("a removal", &[(1, 1), (2, 2), (3, 3), (9, 0)]),
        ];
        for (undone, found) in cases {
            assert!(
                !settled(&mut ResumeChecks::from_checkpoint(&history()), found, kept),
                "{undone}"
            );
        }
        assert!(
            !settled(&mut ResumeChecks::from_checkpoint(&history()), &[], UnlistedEntries::Removed),
            "all were added"
        );
    }

    #[test]
    fn what_the_server_tells_of_itself_is_no_contradiction() {
        let mut doubts = ResumeChecks::from_checkpoint(&history());
        [2, 3, 9].into_iter().for_each(|n| doubts.resolve_entry(id(n)));
        assert!(settled(&mut doubts, &[(1, 1), (3, 7), (9, 8)], UnlistedEntries::Unchanged));
        // All present entries were named, so each other entry is gone.
        assert!(settled(
            &mut ResumeChecks::from_checkpoint(&history()),
            &[(1, 1)],
            UnlistedEntries::Removed
        ));
        // No entry is left for the check.
        let mut doubts = ResumeChecks::from_checkpoint(&history());
        (1..=3).for_each(|n| doubts.resolve_entry(id(n)));
        assert!(!doubts.is_consistent(UnlistedEntries::Unchanged));
    }

    #[test]
    fn the_newest_are_remembered_in_whatever_order_a_listing_names_them() {
        let mut history = SyncCheckpoint::default();
        for n in (0..50).map(|n| n * 3 % 50) {
            history.changed(id(n), &stamp(n), true);
        }
        let newest: Vec<EntryId> = history.changed.iter().map(|(id, _)| *id).collect();
        assert_eq!(newest, (34..50).map(id).collect::<Vec<_>>());
        // A reported change is new, independent of its stamp.
        history.changed(id(40), b"1970", false);
        history.changed(id(60), b"1970", false);
        assert_eq!(history.changed.len(), CHANGES_MAX);
        assert_eq!(history.changed.last(), Some(&(id(60), b"1970".to_vec())));
        assert!(!history.changed.iter().any(|(other, _)| *other == id(34)));
        history.changed(id(61), &[b'1'; STAMP_BYTES_MAX + 1], false);
        assert!(!history.changed.iter().any(|(other, _)| *other == id(61)));
        (0..50).for_each(|n| history.removed(id(n)));
        assert_eq!(history.gone.len(), CHANGES_MAX);
        assert_eq!(history.changed.len(), 1, "id 60 is left");
    }

    #[test]
    fn a_cookie_is_kept_with_its_history_and_read_again() {
        for cookie in [&b"rid=000,csn=20261122075604.000000Z#000000#000#000000"[..], b"", b"\x30"] {
            let kept = history().encode_with_cookie(cookie).expect("stamps");
            assert_eq!(SyncCheckpoint::parse(&kept), Ok((history(), cookie)));
            assert!(
                (0..kept.len() - cookie.len())
                    .all(|end| SyncCheckpoint::parse(&kept[..end]).is_err())
            );
        }
        assert!(
            SyncCheckpoint::parse(b"rid=000,csn=20261122075604.000000Z#000000#000#000000").is_err()
        );
    }

    #[test]
    fn entries_are_asked_for_as_each_server_writes_their_keys() {
        let id = EntryId(*b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef");
        let text = |attribute| String::from_utf8(key_value(attribute, id)).expect("ASCII");
        assert_eq!(text("entryUUID"), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(text("nsUniqueId"), "01234567-89abcdef-01234567-89abcdef");
        let mut doubts = ResumeChecks::default();
        assert!(doubts.is_empty());
        (0..=UNKNOWN_MAX).for_each(|_| doubts.add_unknown(id));
        assert!(doubts.has_too_many() && !doubts.is_empty());
    }
}
