//! Whether a server's data still goes on from where a cookie was given.
//!
//! A server whose data was restored from a backup goes back in time, and after a few writes its
//! cookies are of the present again: it then sends what changed since, and nothing of what the
//! restoration undid. So a cookie is kept with the newest changes that came before it
//! ([`History`]): which entries, the stamps that the server gave them, and which were gone. What a
//! resumption does not speak of must be as it was ([`Doubts`]); one entry with another stamp, or one
//! that is back, and everything is to be read anew.
//!
//! That at least one entry is as it was shows that the server has that change, and by its order all
//! that came before. Stamps are compared for equality alone: they need not grow, and a clock may be wrong.

use super::is_later;
use crate::ber::{Frame, Malformed, Reader, Writer, frame, tag};
use crate::filter::Filter;
use roster_provider::{EntryId, Unmentioned};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Changes that are remembered, and removals. More of them would spare a few readings of everything
/// after long pauses; each cookie that is written carries them.
const CHANGES_MAX: usize = 16;
/// Servers' stamps have at most 40 bytes.
const STAMP_BYTES_MAX: usize = 64;
/// Entries that are asked for in one search.
const STRANGERS_MAX: usize = 256;

/// The newest changes of a search's entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    /// Entries and their stamps, the newest last.
    changed: Vec<(EntryId, Vec<u8>)>,
    gone: Vec<EntryId>,
}

impl History {
    /// The entry is there with this stamp. A listing comes in no order: there the stamp tells what is
    /// new.
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

    /// The entry is gone.
    pub fn removed(&mut self, id: EntryId) {
        self.forget(id);
        push(&mut self.gone, id);
    }

    fn forget(&mut self, id: EntryId) {
        self.changed.retain(|(other, _)| *other != id);
        self.gone.retain(|other| *other != id);
    }

    /// A cookie as it is kept: this, and after it the server's own as it stands. Nothing without a
    /// stamp, by which what it brings could be believed.
    pub fn with(&self, cookie: &[u8]) -> Option<Vec<u8>> {
        if self.changed.is_empty() {
            return None;
        }
        let mut writer = Writer::default();
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

    /// What a kept cookie holds, and the server's own.
    pub fn parse(kept: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let Frame::Whole(length) = frame(kept, kept.len())? else {
            return Err(Malformed("a cookie that is not whole"));
        };
        let (own, cookie) = kept.split_at(length);
        let mut own = Reader::new(own).inner(tag::SEQUENCE)?;
        let mut history = Self::default();
        while !own.is_empty() {
            let id = own.expect(tag::OCTETS)?.try_into().map(EntryId);
            let id = id.map_err(|_| Malformed("a key that is not 16 octets long"))?;
            match own.expect(tag::OCTETS)? {
                b"" => history.removed(id),
                stamp => history.changed(id, stamp, false),
            }
        }
        Ok((history, cookie))
    }
}

/// Adds the newest, in place of the oldest where there are enough.
fn push<T>(list: &mut Vec<T>, newest: T) {
    if list.len() >= CHANGES_MAX {
        list.remove(0);
    }
    list.push(newest);
}

/// What is to be as it was, after a resumption.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Entries of which the server has not spoken since, with their stamps; those that were gone have
    /// none.
    open: HashMap<EntryId, Vec<u8>>,
    /// Entries that the server calls unchanged and nobody knows.
    strangers: Vec<EntryId>,
    too_many: bool,
    /// An entry was as it was.
    is_confirmed: bool,
    is_refuted: bool,
}

impl Doubts {
    /// All of what is remembered.
    pub fn of(history: &History) -> Self {
        let gone = history.gone.iter().map(|id| (*id, Vec::new()));
        Self { open: history.changed.iter().cloned().chain(gone).collect(), ..Self::default() }
    }

    /// The server speaks of the entry: whatever it was before, it is known now.
    pub fn told(&mut self, id: EntryId) {
        self.open.remove(&id);
    }

    /// The server calls an entry unchanged that nobody knows: one above others, of which none is
    /// kept, or one that was gone.
    pub fn stranger(&mut self, id: EntryId) {
        if self.strangers.len() < STRANGERS_MAX {
            self.strangers.push(id);
        } else {
            self.too_many = true;
        }
    }

    /// Whether more entries are in doubt than can be asked for.
    pub fn are_too_many(&self) -> bool {
        self.too_many
    }

    /// Whether no entry is.
    pub fn are_none(&self) -> bool {
        self.open.is_empty() && self.strangers.is_empty()
    }

    /// What finds the entries in doubt, by the attribute of their keys.
    pub fn filter(&self, key: &str) -> Filter {
        let ids = self.open.keys().chain(&self.strangers);
        let values: Vec<Vec<u8>> = ids.map(|id| key_value(key, *id)).collect();
        Filter::equals_any(key, &values)
    }

    /// An entry is there with this stamp.
    pub fn found(&mut self, id: EntryId, stamp: &[u8]) {
        if let Some(known) = self.open.remove(&id) {
            let is_same = !known.is_empty() && known == stamp;
            self.is_confirmed |= is_same;
            self.is_refuted |= !is_same;
        }
    }

    /// Whether the server's data goes on from where it was left. Where what was not mentioned is kept,
    /// removals are told of, and an entry is not gone without a word.
    pub fn are_settled(&self, unmentioned: Unmentioned) -> bool {
        let is_one_missing = self.open.values().any(|stamp| !stamp.is_empty());
        let is_refuted = self.is_refuted || is_one_missing && unmentioned == Unmentioned::Kept;
        self.is_confirmed && !is_refuted
    }
}

/// A key as an attribute's value.
pub(super) fn key_value(attribute: &str, id: EntryId) -> Vec<u8> {
    match attribute.to_ascii_lowercase().as_str() {
        "objectguid" => id.0.to_vec(),
        "nsuniqueid" => {
            let words = id.0.chunks(4).map(|word| {
                word.iter().fold(String::new(), |mut text, octet| {
                    let _ = write!(text, "{octet:02x}");
                    text
                })
            });
            words.collect::<Vec<_>>().join("-").into_bytes()
        }
        _ => id.to_string().into_bytes(),
    }
}

/// Attributes of servers' own, in which they spell a key in one way.
const OWN: [&str; 3] = ["entryuuid", "nsuniqueid", "objectguid"];

/// Whether the attribute is one of a server's own. In another the keys may be spelt in any way, and perhaps
/// nothing finds them.
pub(super) fn is_own(attribute: &str) -> bool {
    OWN.iter().any(|own| own.eq_ignore_ascii_case(attribute))
}

/// What a key may be as an attribute's value.
pub(crate) fn key_values(attribute: &str, id: EntryId) -> Vec<Vec<u8>> {
    if is_own(attribute) {
        return vec![key_value(attribute, id)];
    }
    let [usual, words] = ["entryuuid", "nsuniqueid"].map(|own| key_value(own, id));
    let plain = usual.iter().copied().filter(|&byte| byte != b'-').collect();
    let braced = [b"{", &usual[..], b"}"].concat();
    let texts = [usual, words, plain, braced];
    let texts = texts.into_iter().flat_map(|text| [text.to_ascii_uppercase(), text]);
    texts.chain([id.0.to_vec()]).collect()
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

    /// Entries 1 to 3 changed in this order, and 9 is gone.
    fn history() -> History {
        let mut history = History::default();
        (1..=3).for_each(|n| history.changed(id(n), &stamp(n), false));
        history.removed(id(9));
        history
    }

    fn settled(doubts: &mut Doubts, found: &[(u8, u8)], unmentioned: Unmentioned) -> bool {
        found.iter().for_each(|(n, version)| doubts.found(id(*n), &stamp(*version)));
        doubts.are_settled(unmentioned)
    }

    #[test]
    fn what_is_as_it_was_is_believed() {
        let found = [(1, 1), (2, 2), (3, 3)];
        assert!(settled(&mut Doubts::of(&history()), &found, Unmentioned::Kept));
    }

    #[test]
    fn without_stamps_nothing_is_known() {
        let mut unstamped = History::default();
        unstamped.changed(id(1), b"", true);
        unstamped.removed(id(9));
        assert_eq!(unstamped.with(b"csn=1"), None);
        for unmentioned in [Unmentioned::Kept, Unmentioned::Gone] {
            assert!(!settled(&mut Doubts::of(&unstamped), &[], unmentioned));
        }
    }

    #[test]
    fn what_was_undone_is_found_out() {
        let kept = Unmentioned::Kept;
        let cases: [(&str, &[(u8, u8)]); 4] = [
            ("a change", &[(1, 1), (2, 2), (3, 0)]),
            ("a change, and another came that is not told of", &[(1, 1), (2, 2), (3, 7)]),
            ("an entry that was added", &[(1, 1), (2, 2)]),
            ("a removal", &[(1, 1), (2, 2), (3, 3), (9, 0)]),
        ];
        for (undone, found) in cases {
            assert!(!settled(&mut Doubts::of(&history()), found, kept), "{undone}");
        }
        assert!(!settled(&mut Doubts::of(&history()), &[], Unmentioned::Gone), "all were added");
    }

    #[test]
    fn what_the_server_tells_of_itself_is_no_contradiction() {
        let mut doubts = Doubts::of(&history());
        [2, 3, 9].into_iter().for_each(|n| doubts.told(id(n)));
        assert!(settled(&mut doubts, &[(1, 1), (3, 7), (9, 8)], Unmentioned::Kept));
        // Everything that is there was named: who is not is gone.
        assert!(settled(&mut Doubts::of(&history()), &[(1, 1)], Unmentioned::Gone));
        // Nothing is left by which to tell.
        let mut doubts = Doubts::of(&history());
        (1..=3).for_each(|n| doubts.told(id(n)));
        assert!(!doubts.are_settled(Unmentioned::Kept));
    }

    #[test]
    fn the_newest_are_remembered_in_whatever_order_a_listing_names_them() {
        let mut history = History::default();
        for n in (0..50).map(|n| n * 3 % 50) {
            history.changed(id(n), &stamp(n), true);
        }
        let newest: Vec<EntryId> = history.changed.iter().map(|(id, _)| *id).collect();
        assert_eq!(newest, (34..50).map(id).collect::<Vec<_>>());
        // A change is new whatever its stamp.
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
            let kept = history().with(cookie).expect("stamps");
            assert_eq!(History::parse(&kept), Ok((history(), cookie)));
            assert!(
                (0..kept.len() - cookie.len()).all(|end| History::parse(&kept[..end]).is_err())
            );
        }
        assert!(History::parse(b"rid=000,csn=20261122075604.000000Z#000000#000#000000").is_err());
    }

    #[test]
    fn entries_are_asked_for_as_each_server_writes_their_keys() {
        let id = EntryId(*b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef");
        let text = |attribute| String::from_utf8(key_value(attribute, id)).expect("ASCII");
        assert_eq!(text("entryUUID"), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(text("nsUniqueId"), "01234567-89abcdef-01234567-89abcdef");
        let mut doubts = Doubts::default();
        assert!(doubts.are_none());
        (0..=STRANGERS_MAX).for_each(|_| doubts.stranger(id));
        assert!(doubts.are_too_many() && !doubts.are_none());
    }
    #[test]
    fn a_key_is_looked_for_in_every_spelling_where_it_may_have_any() {
        let id = EntryId(*b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef");
        for own in ["entryUUID", "nsUniqueId", "objectGUID"] {
            assert_eq!(key_values(own, id), [key_value(own, id)]);
        }
        let values = key_values("employeeNumber", id);
        for text in [
            &b"01234567-89ab-cdef-0123-456789abcdef"[..],
            b"01234567-89ABCDEF-01234567-89ABCDEF",
            b"{01234567-89ab-cdef-0123-456789abcdef}",
            b"0123456789ABCDEF0123456789ABCDEF",
            &id.0,
        ] {
            assert!(values.iter().any(|value| value == text), "{}", text.escape_ascii());
        }
    }
}
