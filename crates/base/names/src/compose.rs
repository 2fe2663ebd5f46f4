// SPDX-License-Identifier: MIT OR Apache-2.0
//! Composed characters: one text has one encoding.

use alloc::borrow::Cow;
use alloc::string::String;
use unicode_normalization::{UnicodeNormalization, is_nfc};

/// Returns a name with composed characters (NFC). Bytes that are not text stay as they are.
///
/// ```
/// use roster_names::compose;
///
/// assert_eq!(*compose("Zoe\u{308}".as_bytes()), *"Zo\u{eb}".as_bytes());
/// ```
#[must_use]
pub fn compose(name: &[u8]) -> Cow<'_, [u8]> {
    match core::str::from_utf8(name) {
        Ok(text) if !name.is_ascii() && !is_nfc(text) => {
            Cow::Owned(text.nfc().collect::<String>().into_bytes())
        }
        _ => Cow::Borrowed(name),
    }
}
