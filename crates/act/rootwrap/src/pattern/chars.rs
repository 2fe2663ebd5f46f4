// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of characters with a fast test for one character. They know nothing of positions in a text. `matcher` has the
//! positions.

use super::parse::{CharClass, CharSet, SetItem};
use crate::python_strings::is_space;
use crate::unicode_tables;
use std::sync::OnceLock;

/// Number of characters with a bit each.
const ASCII: u32 = 128;
const CODE_MAX: u32 = 0x10_ffff;

/// A set of characters. Characters are code points; surrogates are among them.
#[derive(Debug)]
pub(super) struct CompiledCharSet {
    /// The members below 128.
    ascii: [u64; 2],
    /// Sorted ranges of the other characters.
    ranges: Vec<(u32, u32)>,
    /// Classes of the other characters, with true if they are negated.
    classes: Vec<(CharClass, bool)>,
    /// True if the other members are outside of the ranges and classes.
    negated: bool,
}

impl CompiledCharSet {
    pub(super) fn new(set: &CharSet) -> Self {
        let (mut ranges, mut classes, mut ascii) = (Vec::new(), Vec::new(), [0, 0]);
        for item in &set.items {
            match *item {
                SetItem::Range(low, high) => ranges.push((low, high)),
                SetItem::Class { class, negated, ascii: false } => classes.push((class, negated)),
                SetItem::Class { negated: true, ascii: true, .. } => ranges.push((ASCII, CODE_MAX)),
                SetItem::Class { negated: false, ascii: true, .. } => {}
            }
        }
        for char in 0..ASCII {
            if set.items.iter().any(|item| has_ascii(item, char)) != set.negated {
                ascii[(char >> 6) as usize] |= 1 << (char & 63);
            }
        }
        Self { ascii, ranges: merged(ranges), classes, negated: set.negated }
    }

    #[inline]
    pub(super) fn has(&self, char: u32) -> bool {
        match self.ascii.get((char >> 6) as usize) {
            Some(bits) => bits >> (char & 63) & 1 == 1,
            None => self.has_other(char),
        }
    }

    #[cold]
    fn has_other(&self, char: u32) -> bool {
        let is_classed =
            |&(class, negated): &(CharClass, bool)| is_in(class, false, char) != negated;
        (is_within(&self.ranges, char) || self.classes.iter().any(is_classed)) != self.negated
    }
}

fn has_ascii(item: &SetItem, char: u32) -> bool {
    match *item {
        SetItem::Range(low, high) => (low..=high).contains(&char),
        SetItem::Class { class, negated, ascii } => is_in(class, ascii, char) != negated,
    }
}

/// Returns true if a character is in a class. With `ascii`, a class has only members of ASCII.
#[inline]
pub(super) fn is_in(class: CharClass, ascii: bool, char: u32) -> bool {
    let Some(byte) = u8::try_from(char).ok().filter(u8::is_ascii) else {
        return !ascii && is_in_unicode(class, char);
    };
    match class {
        CharClass::Digit => byte.is_ascii_digit(),
        // In ASCII mode `\s` lacks the four separators that `str.isspace` has.
        CharClass::Space if ascii => matches!(byte, b'\t'..=b'\r' | b' '),
        CharClass::Space => is_space(char::from(byte)),
        CharClass::Word => byte.is_ascii_alphanumeric() || byte == b'_',
    }
}

#[cold]
fn is_in_unicode(class: CharClass, char: u32) -> bool {
    static WORDS: OnceLock<Vec<(u32, u32)>> = OnceLock::new();
    match class {
        CharClass::Space => char::from_u32(char).is_some_and(is_space),
        CharClass::Digit => is_within(unicode_tables::decimal_digits(), char),
        // `str.isalnum` does not count marks, unlike Unicode's definition.
        CharClass::Word => {
            is_within(WORDS.get_or_init(|| unicode_tables::ranges(r"[\p{L}\p{N}]")), char)
        }
    }
}

fn is_within(ranges: &[(u32, u32)], char: u32) -> bool {
    let above = ranges.partition_point(|&(low, _)| low <= char);
    above > 0 && char <= ranges[above - 1].1
}

fn merged(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (low, high) in ranges {
        match merged.last_mut() {
            Some((_, last)) if low <= *last => *last = high.max(*last),
            _ => merged.push((low, high)),
        }
    }
    merged
}
