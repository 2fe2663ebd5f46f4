// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simple case folding of names. Bytes that are not UTF-8 stay as they are. `fold_table` has the characters, and
//! `qualified` names with a domain.

use crate::fold_table::RUNS;
#[cfg(feature = "alloc")]
use alloc::{borrow::Cow, vec::Vec};

/// Offset of the codes for bytes that are not text: they equal no character.
const BYTE_CODES: u32 = 0x11_0000;

/// Returns the simple case folding of a character.
///
/// ```
/// use roster_names::fold_char;
///
/// assert_eq!(['A', 'ä', 'Σ', 'ς', 'İ'].map(fold_char), ['a', 'ä', 'σ', 'σ', 'İ']);
/// ```
#[must_use]
pub fn fold_char(char: char) -> char {
    char::from_u32(fold_code(char.into())).unwrap_or(char)
}

/// Returns the folding of a character's number. Other numbers stay as they are.
fn fold_code(code: u32) -> u32 {
    if code < 0x80 {
        return if code.wrapping_sub(0x41) < 26 { code | 0x20 } else { code };
    }
    let after = RUNS.partition_point(|run| run.first() <= code);
    let run = after.checked_sub(1).and_then(|place| RUNS.get(place));
    run.and_then(|run| run.fold(code)).unwrap_or(code)
}

/// Iterator over the characters of a name, as numbers. Bytes that are not UTF-8 have numbers above all characters.
#[derive(Clone, Debug)]
struct Codes<'a>(&'a [u8]);

impl Iterator for Codes<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        // The bytes that follow, the bits of the first one, and the smallest number of this length.
        let (tail, bits, min) = match first {
            0..0x80 => return Some(first.into()),
            0xc0..0xe0 => (1_usize, 0x1f, 0x80),
            0xe0..0xf0 => (2, 0x0f, 0x800),
            0xf0..0xf8 => (3, 0x07, 0x1_0000),
            _ => return Some(byte_code(first)),
        };
        let mut code = u32::from(first & bits);
        let Some((following, rest)) = rest.split_at_checked(tail) else {
            return Some(byte_code(first));
        };
        for byte in following {
            if byte & 0xc0 != 0x80 {
                return Some(byte_code(first));
            }
            code = code << 6 | u32::from(byte & 0x3f);
        }
        if code < min || char::from_u32(code).is_none() {
            return Some(byte_code(first));
        }
        self.0 = rest;
        Some(code)
    }
}

fn byte_code(byte: u8) -> u32 {
    BYTE_CODES | u32::from(byte)
}

/// Returns the folded characters of a name, as numbers. Bytes that are not UTF-8 have numbers above all characters.
pub fn folded_codes(name: &[u8]) -> impl Iterator<Item = u32> {
    Codes(name).map(fold_code)
}

/// Returns whether two names are equal apart from case.
///
/// ```
/// use roster_names::equals_folded;
///
/// assert!(equals_folded(b"Alice", b"ALICE"));
/// assert!(equals_folded("JÜRGEN".as_bytes(), "jürgen".as_bytes()));
/// assert!(!equals_folded(b"alice", b"alicia"));
/// ```
#[must_use]
pub fn equals_folded(one: &[u8], other: &[u8]) -> bool {
    one == other || folded_codes(one).eq(folded_codes(other))
}

/// Returns whether folding leaves a name as it is.
#[must_use]
pub fn is_folded(name: &[u8]) -> bool {
    Codes(name).all(|code| fold_code(code) == code)
}

/// Returns the folded name.
///
/// ```
/// use roster_names::fold;
///
/// assert_eq!(*fold(b"Alice"), *b"alice");
/// ```
#[cfg(feature = "alloc")]
#[must_use]
pub fn fold(name: &[u8]) -> Cow<'_, [u8]> {
    if is_folded(name) {
        return Cow::Borrowed(name);
    }
    let mut folded = Vec::with_capacity(name.len());
    for code in folded_codes(name) {
        match char::from_u32(code) {
            Some(char) => folded.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            None => folded.push(code as u8),
        }
    }
    Cow::Owned(folded)
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};
    use std::string::String;
    use std::vec::Vec;

    /// Returns the characters with the same simple case folding, by another implementation.
    fn equal_chars(char: char) -> Vec<char> {
        let mut class = ClassUnicode::new([ClassUnicodeRange::new(char, char)]);
        class.try_case_fold_simple().expect("the table is compiled in");
        let mut chars = Vec::new();
        class.iter().for_each(|range| chars.extend(range.start()..=range.end()));
        chars
    }

    #[test]
    fn fold_char_equals_unicode_for_each_character() {
        for char in '\0'..=char::MAX {
            let equal = equal_chars(char);
            let folded = fold_char(char);
            assert!(equal.contains(&folded), "{char:?} {folded:?}");
            assert_eq!(fold_char(folded), folded, "{char:?}");
            for other in equal {
                assert_eq!(fold_char(other), folded, "{char:?} {other:?}");
            }
        }
    }

    #[test]
    fn fold_char_grows_by_half_at_most() {
        for char in '\0'..=char::MAX {
            let (before, after) = (char.len_utf8(), fold_char(char).len_utf8());
            assert!(after * 2 <= before * 3, "{char:?}");
        }
    }

    #[test]
    fn codes_decode_each_character() {
        let all: String = ('\0'..=char::MAX).collect();
        assert!(Codes(all.as_bytes()).eq(all.chars().map(u32::from)));
    }

    #[test]
    fn codes_of_other_bytes_are_no_characters() {
        // Cut, too long, a surrogate, beyond the last character, and bytes that begin nothing.
        for bytes in [
            &b"\xc3"[..],
            b"\xe2\x82",
            b"\xc1\x81",
            b"\xe0\x9f\xbf",
            b"\xf0\x8f\xbf\xbf",
            b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80",
            b"\x80",
            b"\xff",
            b"\xf8\x88\x80\x80\x80",
        ] {
            assert!(std::str::from_utf8(bytes).is_err());
            let expected = bytes.iter().map(|byte| byte_code(*byte));
            assert!(Codes(bytes).eq(expected), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn names_without_text_fold_what_is_text() {
        assert!(equals_folded(b"A\xff\xc3", b"a\xff\xc3"));
        assert!(!equals_folded(b"\xff", "\u{ff}".as_bytes()));
        assert!(!equals_folded(b"\xc4\xff", b"\xe4\xff"));
        assert!(is_folded(b"a\xff") && !is_folded(b"A\xff"));
        assert!(is_folded("straße".as_bytes()) && !is_folded("Ä".as_bytes()));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn fold_agrees_with_equality_and_buffer() {
        for name in ["", "alice", "ALICE", "Ⱥlice", "ΑΣ", "\u{212A}elvin", "ẞ"] {
            let folded = fold(name.as_bytes());
            assert!(is_folded(&folded) && equals_folded(&folded, name.as_bytes()), "{name}");
            let buffer = crate::NameBuffer::folded(name.as_bytes()).expect("short");
            assert_eq!(buffer.as_bytes(), &*folded);
        }
        assert_eq!(*fold(b"A\xff"), *b"a\xff");
    }
}
