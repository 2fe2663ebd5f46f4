// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of entries as values of an attribute: how servers spell them, and how this crate parses them. `schema` parses
//! the other attributes.

use crate::ber::BerError;
use crate::error::LdapError;
use crate::message::{RawEntry, printable};
use crate::schema::entry_id;
use roster_provider::EntryId;
use std::fmt::Write as _;

/// Reads the key of an entry from this attribute. Returns `None` if no value is a valid key.
pub(crate) fn read_key(entry: &RawEntry<'_>, attribute: &str) -> Result<Option<EntryId>, BerError> {
    Ok(entry.values(attribute)?.next().transpose()?.and_then(entry_id))
}

/// Returns the error of an entry without a permanent key.
pub(crate) fn missing_key(entry: &RawEntry<'_>, attribute: &str) -> LdapError {
    LdapError::MissingKey { dn: printable(entry.dn), attribute: attribute.to_owned() }
}

/// Returns the key as a value of the attribute.
pub(crate) fn key_value(attribute: &str, id: EntryId) -> Vec<u8> {
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

/// Attributes that servers define themselves. Each has one spelling of a key.
const SERVER_KEY_ATTRIBUTES: [&str; 3] = ["entryuuid", "nsuniqueid", "objectguid"];

/// Returns whether a server defines the attribute. In other attributes the keys may have any spelling, and a search may
/// not find them.
pub(crate) fn is_server_attribute(attribute: &str) -> bool {
    SERVER_KEY_ATTRIBUTES.iter().any(|own| own.eq_ignore_ascii_case(attribute))
}

/// Returns all spellings that the key may have as a value of the attribute.
pub(crate) fn key_values(attribute: &str, id: EntryId) -> Vec<Vec<u8>> {
    if is_server_attribute(attribute) {
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
