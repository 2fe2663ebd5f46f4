// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simple case folding of names. A name that is not UTF-8 folds its ASCII letters only.

use crate::fold_table::RUNS;
#[cfg(feature = "alloc")]
use alloc::{borrow::Cow, vec::Vec};
use core::slice;
use core::str::{self, Chars};

/// Offset of the codes for bytes that are not text: they equal no character.
const BYTE_CODES: u32 = 0x11_0000;

/// Returns the simple case folding of a character.
///
/// ```
/// use roster_names::fold_char;
///
/// assert_eq!(['A', 'ä', 'Σ', 'ς', 'İ'].map(fold_char), ['a', 'ä', 'σ', 'σ', 'İ']);
/// ```
#[inline]
#[must_use]
pub fn fold_char(char: char) -> char {
    if char.is_ascii() { char.to_ascii_lowercase() } else { fold_other(char) }
}

#[inline(never)]
fn fold_other(char: char) -> char {
    let code = u32::from(char);
    let after = RUNS.partition_point(|run| run.first() <= code);
    let run = after.checked_sub(1).and_then(|place| RUNS.get(place));
    let folded = run.and_then(|run| run.fold(code)).and_then(char::from_u32);
    folded.unwrap_or(char)
}

/// Iterator over the folded characters of a name, as numbers.
#[derive(Clone, Debug)]
pub struct FoldedCodes<'a>(NameText<'a>);

#[derive(Clone, Debug)]
enum NameText<'a> {
    Text(Chars<'a>),
    Bytes(slice::Iter<'a, u8>),
}

impl Iterator for FoldedCodes<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        match &mut self.0 {
            NameText::Text(chars) => chars.next().map(|char| fold_char(char).into()),
            NameText::Bytes(bytes) => bytes.next().map(|byte| match byte.is_ascii() {
                true => byte.to_ascii_lowercase().into(),
                false => BYTE_CODES.wrapping_add(u32::from(*byte)),
            }),
        }
    }
}

/// Returns the folded characters of a name. Bytes of a name that is not UTF-8 have codes above all characters.
#[must_use]
pub fn folded_codes(name: &[u8]) -> FoldedCodes<'_> {
    FoldedCodes(match str::from_utf8(name) {
        Ok(text) => NameText::Text(text.chars()),
        Err(_) => NameText::Bytes(name.iter()),
    })
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
    match str::from_utf8(name) {
        Ok(text) => text.chars().all(|char| fold_char(char) == char),
        Err(_) => !name.iter().any(u8::is_ascii_uppercase),
    }
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
    let Ok(text) = str::from_utf8(name) else { return Cow::Owned(name.to_ascii_lowercase()) };
    let mut folded = Vec::with_capacity(name.len());
    for char in text.chars().map(fold_char) {
        folded.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Cow::Owned(folded)
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};
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
    fn names_without_text_fold_ascii_only() {
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
