//! The strings of an entry: in its slot, or in the long-text section.

use crate::layout::{LongText, flags};
use crate::{Damage, hash, is_long};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// `N` strings one after the other, each with a NUL behind it, checked.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a, const N: usize> {
    bytes: &'a [u8],
    lens: [u32; N],
    flags: u8,
}

impl<'a, const N: usize> Text<'a, N> {
    /// Finds the strings of a slot and sees that each one ends where it should.
    #[inline]
    pub(crate) fn resolve(
        slot_flags: u8,
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
        Ok(Self { bytes, lens, flags: slot_flags })
    }

    /// All strings with their NULs, as they are to be copied.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where each string starts in [`Text::bytes`]; `None` for C's NULL.
    #[inline]
    #[must_use]
    pub fn starts(&self) -> [Option<usize>; N] {
        let mut start = 0_usize;
        let mut starts = [None; N];
        for (index, (place, len)) in starts.iter_mut().zip(self.lens).enumerate() {
            *place = (self.flags & flags::null(index) == 0 || index == 0).then_some(start);
            start = start.wrapping_add(len as usize).wrapping_add(1);
        }
        starts
    }

    /// The strings; `None` for C's NULL.
    #[must_use]
    pub fn fields(&self) -> [Option<&'a [u8]>; N] {
        let mut fields = [None; N];
        for ((field, start), len) in fields.iter_mut().zip(self.starts()).zip(self.lens) {
            let rest = start.and_then(|start| self.bytes.get(start..));
            *field = rest.and_then(|rest| rest.get(..len as usize));
        }
        fields
    }

    /// Whether any of those bits of the slot's flags is set.
    #[inline]
    pub(crate) fn has(&self, bits: u8) -> bool {
        self.flags & bits != 0
    }

    /// Whether the first string, the name, is this one.
    #[inline]
    pub(crate) fn is_first(&self, name: &[u8]) -> bool {
        let len = self.lens.first().map_or(0, |&len| len as usize);
        len == name.len() && self.bytes.get(..len) == Some(name)
    }
}

/// Bounds and hash of strings outside their slot. Rare, so kept out of the hot code.
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
