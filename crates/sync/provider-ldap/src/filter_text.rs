// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of an encoded filter for log lines, in the form of RFC 4515, with a bound. `operation_log` prints it.
//!
//! People type passwords where names belong. A filter that matches no entry is therefore shown without the values of its
//! equality matches.

use crate::ber::{BerReader, tag};
use crate::filter::{
    AND, APPROXIMATE, EQUALITY, EXTENSIBLE, EncodedFilter, GREATER_OR_EQUAL, LESS_OR_EQUAL, NOT,
    OR, PRESENT, SUBSTRINGS,
};
use std::fmt::Write as _;

/// Longest text, in bytes. The rest of a longer filter, for example one with many names, is left out.
const TEXT_BYTES_MAX: usize = 512;
/// Deepest nesting of the text.
const DEPTH_MAX: usize = 32;

/// The attribute with class names as values.
const CLASS: &[u8] = b"objectClass";

/// Whether the text has the values of equality matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterValues {
    /// All values.
    Shown,
    /// Only classes.
    Hidden,
}

/// Returns the text of a filter.
pub fn filter_text(filter: &EncodedFilter, values: FilterValues) -> String {
    let mut text = FilterText { text: String::new(), values };
    let is_whole = text.write_filter(&mut BerReader::new(filter.encoded()), DEPTH_MAX);
    let mut text = text.text;
    if is_whole.is_none() {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push('…');
    }
    text
}

/// A text under construction.
struct FilterText {
    text: String,
    values: FilterValues,
}

impl FilterText {
    /// Writes the next filter. Returns `None` beyond the bound.
    fn write_filter(&mut self, reader: &mut BerReader<'_>, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let (kind, content) = reader.element().ok()?;
        let mut inner = BerReader::new(content);
        self.text.push('(');
        match kind {
            AND | OR | NOT => {
                self.text.push(match kind {
                    AND => '&',
                    OR => '|',
                    _ => '!',
                });
                while !inner.is_empty() {
                    self.write_filter(&mut inner, depth)?;
                }
            }
            PRESENT => {
                self.write_value(content)?;
                self.text.push_str("=*");
            }
            SUBSTRINGS => {
                self.write_value(inner.expect(tag::OCTETS).ok()?)?;
                self.text.push('=');
                self.write_pieces(inner.inner(tag::SEQUENCE).ok()?)?;
            }
            EXTENSIBLE => self.write_extensible(inner)?,
            _ => self.write_comparison(kind, inner)?,
        }
        self.text.push(')');
        Some(())
    }

    fn write_comparison(&mut self, kind: u8, mut inner: BerReader<'_>) -> Option<()> {
        let operator = match kind {
            EQUALITY => "=",
            GREATER_OR_EQUAL => ">=",
            LESS_OR_EQUAL => "<=",
            APPROXIMATE => "~=",
            _ => return None,
        };
        let attribute = inner.expect(tag::OCTETS).ok()?;
        self.write_value(attribute)?;
        self.text.push_str(operator);
        let value = inner.expect(tag::OCTETS).ok()?;
        if self.values == FilterValues::Hidden && !attribute.eq_ignore_ascii_case(CLASS) {
            self.text.push('…');
            return (self.text.len() <= TEXT_BYTES_MAX).then_some(());
        }
        self.write_value(value)
    }

    /// Writes the pieces of a substring match.
    fn write_pieces(&mut self, mut pieces: BerReader<'_>) -> Option<()> {
        let mut last_place = 0x81;
        while !pieces.is_empty() {
            let (place, piece) = pieces.element().ok()?;
            if place != 0x80 {
                self.text.push('*');
            }
            self.write_value(piece)?;
            last_place = place;
        }
        if last_place != 0x82 {
            self.text.push('*');
        }
        Some(())
    }

    /// Writes an extensible match: attribute, `dn`, rule, value.
    fn write_extensible(&mut self, mut reader: BerReader<'_>) -> Option<()> {
        let rule = reader.optional(0x81).ok()?;
        let attribute = reader.optional(0x82).ok()?;
        let value = reader.expect(0x83).ok()?;
        self.write_value(attribute.unwrap_or_default())?;
        if reader.optional(0x84).ok()?.is_some() {
            self.text.push_str(":dn");
        }
        if let Some(rule) = rule {
            self.text.push(':');
            self.write_value(rule)?;
        }
        self.text.push_str(":=");
        self.write_value(value)
    }

    /// Writes an attribute or a value. Escapes syntax, controls and bytes that are not UTF-8.
    fn write_value(&mut self, value: &[u8]) -> Option<()> {
        for chunk in value.utf8_chunks() {
            for char in chunk.valid().chars() {
                if matches!(char, '*' | '(' | ')' | '\\') || char.is_control() {
                    let mut bytes = [0; 4];
                    char.encode_utf8(&mut bytes).bytes().for_each(|byte| self.escape(byte));
                } else {
                    self.text.push(char);
                }
                if self.text.len() > TEXT_BYTES_MAX {
                    return None;
                }
            }
            chunk.invalid().iter().for_each(|byte| self.escape(*byte));
            if self.text.len() > TEXT_BYTES_MAX {
                return None;
            }
        }
        (self.text.len() <= TEXT_BYTES_MAX).then_some(())
    }

    fn escape(&mut self, byte: u8) {
        let _ = write!(self.text, "\\{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_text_equals_configured_filter() {
        for text in [
            "(uid=alice)",
            "(&(objectClass=posixAccount)(|(uid=a)(!(cn=*))))",
            "(cn>=1)",
            "(cn<=1)",
            "(cn~=1)",
            "(cn=a*b*c)",
            "(cn=*b*)",
            "(cn=a*)",
            "(cn=*c)",
            "(cn:dn:2.4:=x)",
            "(:2.4:=x)",
            "(cn:=x)",
            "(cn=\\2a\\28\\29\\5c)",
        ] {
            let filter = EncodedFilter::parse(text).expect("a filter");
            assert_eq!(filter_text(&filter, FilterValues::Shown), text);
        }
    }

    #[test]
    fn filter_text_of_hostile_name_is_escaped() {
        let filter = EncodedFilter::equals("uid", b"*)(uid=*\n\x1b[2J\xff");
        let text = filter_text(&filter, FilterValues::Shown);
        assert_eq!(text, "(uid=\\2a\\29\\28uid=\\2a\\0a\\1b[2J\\ff)");
    }

    #[test]
    fn filter_text_of_many_names_is_bounded() {
        let names: Vec<Vec<u8>> = (0..1000).map(|n: u32| format!("é{n}").into_bytes()).collect();
        for filter in
            [EncodedFilter::equals_any("uid", &names), EncodedFilter::equals("uid", &[0xff; 5000])]
        {
            let text = filter_text(&filter, FilterValues::Shown);
            assert!(text.ends_with('…') && text.len() <= TEXT_BYTES_MAX + 3, "{text}");
        }
        let deep =
            (0..100).fold(EncodedFilter::present("cn"), |inner, _| EncodedFilter::not(&inner));
        assert!(filter_text(&deep, FilterValues::Shown).ends_with('…'));
    }

    #[test]
    fn filter_text_hides_names_without_entry() {
        let filter = "(&(objectClass=posixAccount)(|(uid=secret)(cn=secret))(!(memberOf=*)))";
        let filter = EncodedFilter::parse(filter).expect("a filter");
        let text = filter_text(&filter, FilterValues::Hidden);
        assert_eq!(text, "(&(objectClass=posixAccount)(|(uid=…)(cn=…))(!(memberOf=*)))");
    }
}
