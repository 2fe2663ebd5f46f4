// SPDX-License-Identifier: MIT OR Apache-2.0
//! The strings of an entry, in its slot or in the long-text section. `member_lists` has the members of a group.

use crate::layout::{LongText, flags};
use crate::{Damage, hash, is_long};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// `N` checked strings in sequence, each with a NUL.
///
/// ```
/// use roster_snapshot::Snapshot;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let text = Snapshot::open(bytes)?.user_by_name(b"bob")?.unwrap().text;
/// assert_eq!(text.bytes(), b"bob\0x\0\0/home\0\0");
/// assert_eq!(text.fields(), [Some(&b"bob"[..]), Some(b"x"), None, Some(b"/home"), None]);
/// assert_eq!(text.starts(), [Some(0), Some(4), None, Some(7), None]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EntryStrings<'a, const N: usize> {
    bytes: &'a [u8],
    lens: [u32; N],
    /// The flags of the slot, and [`REFUSED`] and [`HIDES_PASSWORD`].
    flags: u16,
}

/// The reader does not serve the entry. The bit is above those of a slot.
pub(crate) const REFUSED: u16 = 1 << 8;
/// The second string, the password, reads `*`. The bit is above those of a slot.
pub(crate) const HIDES_PASSWORD: u16 = 1 << 9;

impl<'a, const N: usize> EntryStrings<'a, N> {
    /// Locates the strings of a slot, and checks the NUL after each.
    #[inline]
    pub(crate) fn resolve(
        slot_flags: u8,
        lens: [u8; N],
        slot_text: &'a [u8],
        long_text: &'a [u8],
    ) -> Result<Self, Damage> {
        Self::resolve_limited(slot_flags, 0, lens, slot_text, long_text)
    }

    /// Locates the strings of an entry with a floor. `limits` has [`HIDES_PASSWORD`], and [`REFUSED`] for refused ids.
    /// An entry without a password byte that `*` could replace is refused too.
    #[inline]
    pub(crate) fn resolve_limited(
        slot_flags: u8,
        limits: u16,
        lens: [u8; N],
        slot_text: &'a [u8],
        long_text: &'a [u8],
    ) -> Result<Self, Damage> {
        let (bytes, lens) = if is_long(slot_flags) {
            resolve_long(slot_text, long_text)?
        } else {
            (slot_text, lens.map(u32::from))
        };
        let mut end = 0_usize;
        for len in lens {
            end = end.saturating_add(len as usize);
            if bytes.get(end) != Some(&0) {
                return Err(Damage);
            }
            end = end.saturating_add(1);
        }
        let bytes = bytes.get(..end).ok_or(Damage)?;
        let mut all_flags = u16::from(slot_flags) | limits;
        if limits != 0 {
            let is_empty = lens.get(1).is_none_or(|&len| len == 0);
            if is_empty || slot_flags & flags::null(1) != 0 {
                all_flags |= REFUSED;
            }
        }
        Ok(Self { bytes, lens, flags: all_flags })
    }

    /// Returns whether the reader does not serve the entry.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.flags & REFUSED != 0
    }

    /// Returns whether the second string is a password that must read `*`. If the entry is not refused, the password
    /// has a byte and its NUL in [`EntryStrings::bytes`]. The copy has `*` and a NUL instead.
    #[inline]
    #[must_use]
    pub fn hides_password(&self) -> bool {
        self.flags & HIDES_PASSWORD != 0
    }

    /// Returns all strings with their NULs, ready to be copied; see [`EntryStrings::hides_password`].
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the start of each string in [`EntryStrings::bytes`]; `None` for a NULL of C.
    #[inline]
    #[must_use]
    pub fn starts(&self) -> [Option<usize>; N] {
        let mut start = 0_usize;
        let mut starts = [None; N];
        for (index, (place, len)) in starts.iter_mut().zip(self.lens).enumerate() {
            *place = (!self.has(flags::null(index)) || index == 0).then_some(start);
            start = start.wrapping_add(len as usize).wrapping_add(1);
        }
        starts
    }

    /// Returns the strings; `None` for a NULL of C.
    #[must_use]
    pub fn fields(&self) -> [Option<&'a [u8]>; N] {
        let mut fields = [None; N];
        for ((field, start), len) in fields.iter_mut().zip(self.starts()).zip(self.lens) {
            let rest = start.and_then(|start| self.bytes.get(start..));
            *field = rest.and_then(|rest| rest.get(..len as usize));
        }
        if let Some(password) = fields.get_mut(1).filter(|_| self.hides_password()) {
            *password = Some(b"*");
        }
        fields
    }

    /// Returns whether any of those bits of the slot's flags is set.
    #[inline]
    pub(crate) fn has(&self, bits: u8) -> bool {
        self.flags & u16::from(bits) != 0
    }

    /// Returns whether any spelling of the name finds the entry.
    pub(crate) fn is_any_case(&self) -> bool {
        self.has(flags::ANY_CASE)
    }

    /// Returns the first string, the name.
    pub(crate) fn first(&self) -> &'a [u8] {
        let len = self.lens.first().map_or(0, |&len| len as usize);
        self.bytes.get(..len).unwrap_or_default()
    }

    /// Returns whether the first string, the name, equals `name`.
    #[inline]
    pub(crate) fn is_first(&self, name: &[u8]) -> bool {
        let len = self.lens.first().map_or(0, |&len| len as usize);
        len == name.len() && self.bytes.get(..len) == Some(name)
    }
}

/// Locates strings outside their slot and checks their hash. Such strings are rare.
#[cold]
fn resolve_long<'a, const N: usize>(
    slot_text: &[u8],
    long_text: &'a [u8],
) -> Result<(&'a [u8], [u32; N]), Damage> {
    let (place, rest) = LongText::read_from_prefix(slot_text).map_err(|_| Damage)?;
    let (lens, _) = <[U32; N]>::read_from_prefix(rest).map_err(|_| Damage)?;
    let total = lens.iter().fold(N as u64, |total, len| total.saturating_add(len.get().into()));
    let start = usize::try_from(place.offset.get()).map_err(|_| Damage)?;
    let total = usize::try_from(total).map_err(|_| Damage)?;
    let bytes = long_text.get(start..).and_then(|rest| rest.get(..total)).ok_or(Damage)?;
    if !hash::agrees(place.hash.get(), hash::plain(bytes)) {
        return Err(Damage);
    }
    Ok((bytes, lens.map(U32::get)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;
    extern crate std;
    use std::vec::Vec;

    const SLOT: &[u8] = b"alice\0\0x\0\0\0";

    fn short(slot_flags: u8, lens: [u8; 3]) -> Result<EntryStrings<'static, 3>, Damage> {
        EntryStrings::resolve(slot_flags, lens, SLOT, b"")
    }

    #[test]
    fn short_text_gives_fields() {
        let text = short(0, [5, 0, 1]).unwrap();
        assert_eq!(text.bytes(), b"alice\0\0x\0");
        assert_eq!(text.starts(), [Some(0), Some(6), Some(7)]);
        assert_eq!(text.fields(), [Some(&b"alice"[..]), Some(b""), Some(b"x")]);
    }

    #[test]
    fn null_flag_hides_field_but_never_name() {
        let text = short(flags::null(1), [5, 0, 1]).unwrap();
        assert_eq!(text.starts(), [Some(0), None, Some(7)]);
        assert_eq!(text.fields(), [Some(&b"alice"[..]), None, Some(b"x")]);
        let text = short(flags::null(1) | flags::null(2), [5, 0, 1]).unwrap();
        assert_eq!(text.starts(), [Some(0), None, None]);
        let text = short(flags::null(3) | flags::LIST_UNKNOWN, [5, 0, 1]).unwrap();
        assert_eq!(text.starts(), [Some(0), Some(6), Some(7)]);
    }

    #[test]
    fn short_text_without_nul_at_its_end_is_damage() {
        for lens in [[4, 0, 1], [6, 0, 1], [5, 1, 1], [5, 0, 0], [5, 0, 4], [255, 255, 255]] {
            assert!(short(0, lens).is_err(), "{lens:?}");
        }
        // The last NUL is beyond the slot.
        assert!(EntryStrings::resolve(0, [5, 0], b"alice\0", b"").is_err());
        assert!(EntryStrings::resolve(0, [5, 0], b"alice\0\0", b"").is_ok());
    }

    #[test]
    fn limited_text_hides_password_or_is_refused() {
        let slot = b"alice\0hash\0x\0";
        let limited = |slot_flags, lens, limits| {
            let text = EntryStrings::resolve(slot_flags, lens, slot, b"").unwrap();
            assert!(!text.is_refused() && !text.hides_password());
            let text = EntryStrings::resolve_limited(slot_flags, limits, lens, slot, b"").unwrap();
            assert!(text.hides_password());
            text
        };
        let text = limited(0, [5, 4, 1], HIDES_PASSWORD);
        assert!(!text.is_refused());
        assert_eq!(text.fields(), [Some(&b"alice"[..]), Some(b"*"), Some(b"x")]);
        // A copy of these bytes is modified in place.
        assert_eq!((text.bytes(), text.starts()), (&slot[..], [Some(0), Some(6), Some(11)]));
        assert!(limited(0, [5, 4, 1], HIDES_PASSWORD | REFUSED).is_refused());
        assert!(limited(flags::null(1), [5, 4, 1], HIDES_PASSWORD).is_refused());
        assert!(!limited(flags::null(2), [5, 4, 1], HIDES_PASSWORD).is_refused());
        let empty = EntryStrings::resolve_limited(0, HIDES_PASSWORD, [5, 0, 1], SLOT, b"").unwrap();
        assert!(empty.is_refused());
    }

    #[test]
    fn name_compared_whole() {
        let text = short(0, [5, 0, 1]).unwrap();
        assert!(text.is_first(b"alice"));
        for other in [&b""[..], b"alic", b"alicf", b"blice", b"alice\0", b"alice-"] {
            assert!(!text.is_first(other), "{}", other.escape_ascii());
        }
    }

    #[test]
    fn flag_found_among_others() {
        let text = short(flags::RESPONDER_FIRST | flags::null(2), [5, 0, 1]).unwrap();
        assert!(
            text.has(flags::RESPONDER_FIRST)
                && text.has(flags::RESPONDER_FIRST | flags::LIST_UNKNOWN)
        );
        assert!(!text.has(flags::LIST_UNKNOWN) && !text.has(0));
    }

    const LONG: &[u8] = b"else alice\0\0x\0 else";

    /// Returns a slot with its text in [`LONG`] at `offset`, and the correct hash of `hashed`.
    fn long_slot(offset: u64, hashed: &[u8], lens: [u32; 3]) -> Vec<u8> {
        let place = LongText { offset: offset.into(), hash: hash::plain(hashed).into() };
        [place.as_bytes(), lens.map(U32::new).as_bytes()].concat()
    }

    fn long(slot: &[u8]) -> Result<[Option<&'static [u8]>; 3], Damage> {
        let slot_flags = flags::LONG | flags::null(1);
        let text = EntryStrings::resolve(slot_flags, [0; 3], slot, LONG)?;
        let field =
            |start: Option<usize>, len: u32| start.map(|start| &LONG[5..][start..][..len as usize]);
        let [name, second, third] = text.starts();
        let [a, b, c] = text.lens;
        let fields = [field(name, a), field(second, b), field(third, c)];
        assert_eq!(text.fields(), fields);
        Ok(fields)
    }

    #[test]
    fn long_text_gives_fields() {
        let slot = long_slot(5, &LONG[5..14], [5, 0, 1]);
        assert_eq!(long(&slot), Ok([Some(&b"alice"[..]), None, Some(b"x")]));
        // The slot of every record is longer than the location of the text.
        let longer = [&slot[..], &[0xff; 20]].concat();
        assert_eq!(long(&longer), Ok([Some(&b"alice"[..]), None, Some(b"x")]));
    }

    #[test]
    fn long_text_elsewhere_is_damage() {
        let text = &LONG[5..14];
        for slot in [
            long_slot(5, b"other", [5, 0, 1]),
            long_slot(4, text, [5, 0, 1]),
            long_slot(5, text, [5, 1, 1]),
            // The hash is correct here, and a NUL is misplaced.
            long_slot(5, text, [4, 1, 1]),
            long_slot(5, &LONG[5..15], [5, 0, 2]),
            // Beyond the end.
            long_slot(5, &LONG[5..], [5, 0, 100]),
            long_slot(100, b"", [5, 0, 1]),
            long_slot(u64::MAX, text, [5, 0, 1]),
            long_slot(5, text, [u32::MAX; 3]),
        ] {
            assert_eq!(long(&slot), Err(Damage), "{slot:?}");
        }
        let slot = long_slot(5, text, [5, 0, 1]);
        assert!((0..slot.len()).all(|len| long(&slot[..len]).is_err()), "a slot too short");
    }
}
