// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes strings to slots if they fit, or else to the long-text section. `builder` has the entries, and
//! `roster_snapshot` reads the slots.

use crate::TooLarge;
use roster_snapshot::hash;
use roster_snapshot::layout::{LONG_NAME, LongName, LongText, NameSlot, SHORT_NAME_BYTES, flags};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// Writes `fields` to a slot's text, or to `long_text` if they are too long. Returns the slot's flags and lengths. A
/// NULL is written as an empty string and a flag.
pub(crate) fn write_text<const N: usize>(
    fields: [Option<&[u8]>; N],
    slot_text: &mut [u8],
    long_text: &mut Vec<u8>,
) -> Result<(u8, [u8; N]), TooLarge> {
    let nulls = fields
        .iter()
        .enumerate()
        .filter(|(_, field)| field.is_none())
        .fold(0, |bits, (index, _)| bits | flags::null(index));
    let fields = fields.map(Option::unwrap_or_default);
    let bytes: usize = fields.iter().map(|field| field.len() + 1).sum();
    if bytes <= slot_text.len() {
        let mut place = slot_text.iter_mut();
        for field in fields {
            for (from, to) in field.iter().chain(&[0]).zip(place.by_ref()) {
                *to = *from;
            }
        }
        // A slot has less than 256 bytes of text.
        return Ok((nulls, fields.map(|field| field.len() as u8)));
    }
    let mut lens = [U32::ZERO; N];
    for (len, field) in lens.iter_mut().zip(fields) {
        let bytes = u32::try_from(field.len()).map_err(|_| TooLarge("a field of 4 GiB or more"))?;
        *len = U32::new(bytes);
    }
    let start = long_text.len();
    for field in fields {
        long_text.extend_from_slice(field);
        long_text.push(0);
    }
    let place = LongText {
        offset: U64::new(start as u64),
        hash: U64::new(hash::plain(&long_text[start..])),
    };
    let pointer = [place.as_bytes(), lens.as_bytes()].concat();
    slot_text[..pointer.len()].copy_from_slice(&pointer);
    Ok((nulls | flags::LONG, [0; N]))
}

/// Returns the slot of a short name; `None` if the name is too long.
pub(crate) fn short_name(name: &[u8]) -> Option<NameSlot> {
    let mut slot = [0; SHORT_NAME_BYTES + 1];
    slot.get_mut(..name.len())
        .filter(|place| place.len() <= SHORT_NAME_BYTES)?
        .copy_from_slice(name);
    slot[SHORT_NAME_BYTES] = (SHORT_NAME_BYTES - name.len()) as u8;
    Some(NameSlot(slot))
}

/// Appends a long name to `long_text`, and returns its slot.
pub(crate) fn long_name(name: &[u8], long_text: &mut Vec<u8>) -> Result<NameSlot, TooLarge> {
    let [a, b, c, 0] = u32::try_from(name.len()).unwrap_or(u32::MAX).to_le_bytes() else {
        return Err(TooLarge("a member name of 16 MiB or more"));
    };
    let long = LongName {
        offset: U64::new(long_text.len() as u64),
        len: [a, b, c],
        hash: U32::new(hash::plain(name) as u32),
        tag: LONG_NAME,
    };
    long_text.extend_from_slice(name);
    let mut slot = NameSlot([0; SHORT_NAME_BYTES + 1]);
    slot.0.copy_from_slice(long.as_bytes());
    Ok(slot)
}
