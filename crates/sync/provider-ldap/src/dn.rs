// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distinguished names (RFC 4514) in one canonical form, so that equal bytes mean the same entry. `search_region` and
//! `containers` compare them.
//!
//! The form is lower case. It has no space around separators and single spaces elsewhere. The parts of a multi-valued
//! RDN are sorted. Characters with several notations are written as `\xx`. Most servers send this form, so the common
//! case is one pass over the bytes without a copy. All values ignore case, as naming attributes do in practice.

use std::borrow::Cow;

/// Returns the canonical form of `dn`. An invalid DN is returned unchanged, and names no entry.
#[must_use]
pub fn normalise(dn: &[u8]) -> Cow<'_, [u8]> {
    let rewritten = if is_canonical(dn) { None } else { rewrite(dn) };
    rewritten.map_or(Cow::Borrowed(dn), Cow::Owned)
}

/// Returns whether a DN is this base or below it. Both must be in canonical form.
#[must_use]
pub fn is_within(dn: &[u8], base: &[u8]) -> bool {
    let rest = dn.strip_suffix(base);
    rest.is_some_and(|rest| rest.is_empty() || base.is_empty() || rest.ends_with(b","))
}

/// Returns the DN above this one, which is in canonical form. `None` for a DN of one part.
#[must_use]
pub fn parent(dn: &[u8]) -> Option<&[u8]> {
    let mut is_escaped = false;
    let comma = dn.iter().position(|&byte| {
        let is_separator = byte == b',' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_separator
    })?;
    dn.get(comma + 1..)
}

/// Classes of bytes for [`is_canonical`].
const PLAIN: u8 = 0;
/// A space, which is canonical between two bytes of a value.
const SPACE: u8 = 1;
/// A byte that requires a rewrite or a closer check.
const SPECIAL: u8 = 2;

const CLASSES: [u8; 256] = {
    let mut classes = [PLAIN; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b' ' => SPACE,
            0..=31 | 127..=255 | b'A'..=b'Z' => SPECIAL,
            b'\\' | b'"' | b'+' | b'<' | b'>' | b';' | b'#' => SPECIAL,
            _ => PLAIN,
        };
        byte += 1;
    }
    classes
};

fn is_canonical(dn: &[u8]) -> bool {
    let found = dn.iter().fold(PLAIN, |found, &byte| found | CLASSES[usize::from(byte)]);
    match found {
        PLAIN => true,
        SPACE => {
            let separator =
                |byte: Option<&u8>| byte.is_none_or(|&byte| matches!(byte, b' ' | b',' | b'='));
            !dn.iter().enumerate().any(|(at, &byte)| {
                let before = at.checked_sub(1).and_then(|at| dn.get(at));
                byte == b' ' && (separator(before) || separator(dn.get(at + 1)))
            })
        }
        _ => false,
    }
}

/// An attribute and its value in an RDN, both as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RdnPart<'a> {
    attribute: &'a [u8],
    value: &'a [u8],
}

impl RdnPart<'_> {
    /// Returns whether the part is valid by RFC 4514, or, with quotes, by RFC 2253.
    fn is_valid(&self) -> bool {
        let value = trim_spaces(self.value);
        let quotes = unescaped_quotes(value);
        let is_quoted = value.len() >= 2 && value.starts_with(b"\"") && value.ends_with(b"\"");
        let is_text = quotes == 0 || (quotes == 2 && is_quoted);
        is_attribute(self.attribute) && value.strip_prefix(b"#").map_or(is_text, is_hex)
    }
}

/// Returns whether the text after the `#` of a BER value is hexadecimal.
fn is_hex(text: &[u8]) -> bool {
    !text.is_empty() && text.len().is_multiple_of(2) && text.iter().all(u8::is_ascii_hexdigit)
}

fn is_attribute(name: &[u8]) -> bool {
    !name.is_empty()
        && name.iter().all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

/// Removes the spaces around a text. Only U+0020 is insignificant (RFC 4518, 2.6.1). Names that differ in a tab or a
/// newline are different names.
fn trim_spaces(mut text: &[u8]) -> &[u8] {
    while let Some(rest) = text.strip_prefix(b" ") {
        text = rest;
    }
    while let Some(rest) = text.strip_suffix(b" ") {
        text = rest;
    }
    text
}

/// Counts the quotes that are not escaped.
fn unescaped_quotes(text: &[u8]) -> usize {
    let mut rest = text.iter();
    let mut quotes = 0;
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => drop(rest.next()),
            b'"' => quotes += 1,
            _ => {}
        }
    }
    quotes
}

/// Splits at separators that are neither escaped nor in quotes.
fn split_unescaped(text: &[u8], is_separator: impl Fn(u8) -> bool) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let (mut start, mut at, mut quoted) = (0, 0, false);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' => quoted = !quoted,
            _ if !quoted && is_separator(byte) => {
                pieces.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    pieces.push(text.get(start..).unwrap_or_default());
    pieces
}

fn parts(rdn: &[u8]) -> Vec<RdnPart<'_>> {
    split_unescaped(rdn, |byte| byte == b'+')
        .into_iter()
        .map(|piece| match piece.iter().position(|&byte| byte == b'=') {
            Some(equals) => RdnPart {
                attribute: piece.get(..equals).unwrap_or_default().trim_ascii(),
                value: piece.get(equals + 1..).unwrap_or_default(),
            },
            None => RdnPart { attribute: b"", value: piece },
        })
        .collect()
}

/// Returns the unescaped values of this attribute in the first RDN.
#[must_use]
pub fn rdn_values(dn: &[u8], attribute: &str) -> Vec<Vec<u8>> {
    let rdns = split_unescaped(dn, |byte| matches!(byte, b',' | b';'));
    let first = rdns.first().copied().unwrap_or_default();
    parts(first)
        .into_iter()
        .filter(|part| part.attribute.eq_ignore_ascii_case(attribute.as_bytes()))
        .map(|part| unescape(part.value))
        .collect()
}

/// Returns the first attribute of a DN and its unescaped value.
#[must_use]
pub fn first_rdn(dn: &[u8]) -> Option<(String, Vec<u8>)> {
    let rdns = split_unescaped(dn, |byte| matches!(byte, b',' | b';'));
    let part = *parts(rdns.first()?).first()?;
    let attribute = std::str::from_utf8(part.attribute).ok()?;
    is_attribute(part.attribute).then(|| (attribute.to_owned(), unescape(part.value)))
}

/// Returns `None` for an invalid DN.
fn rewrite(dn: &[u8]) -> Option<Vec<u8>> {
    if dn.trim_ascii().is_empty() {
        return Some(Vec::new());
    }
    let mut out = Vec::with_capacity(dn.len());
    for rdn in split_unescaped(dn, |byte| matches!(byte, b',' | b';')) {
        let parts = parts(rdn);
        if !parts.iter().all(RdnPart::is_valid) {
            return None;
        }
        let mut written: Vec<Vec<u8>> = parts.into_iter().map(write_part).collect();
        written.sort_unstable();
        if !out.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(&written.join(&b'+'));
    }
    Some(out)
}

fn write_part(part: RdnPart<'_>) -> Vec<u8> {
    let mut out = part.attribute.to_ascii_lowercase();
    out.push(b'=');
    // Hexadecimal BER differs from the same text with an escaped `#`.
    if trim_spaces(part.value).starts_with(b"#") {
        out.extend(trim_spaces(part.value).to_ascii_lowercase());
        return out;
    }
    let value = unescape(part.value);
    let value = match String::from_utf8(value) {
        // Each character alone: for a server, a final sigma is another letter.
        Ok(text) => text.chars().flat_map(char::to_lowercase).collect::<String>().into_bytes(),
        Err(error) => error.into_bytes().to_ascii_lowercase(),
    };
    let mut before = b' ';
    for &byte in trim_spaces(&value) {
        match byte {
            b' ' if before == b' ' => {}
            0..=31 | 127 | b'\\' | b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'#' => {
                out.push(b'\\');
                out.extend_from_slice(&[hex_digit(byte >> 4), hex_digit(byte & 15)]);
            }
            _ => out.push(byte),
        }
        before = byte;
    }
    out
}

/// Returns the bytes that a value's text represents.
fn unescape(text: &[u8]) -> Vec<u8> {
    // A trailing space is not part of the value unless it is escaped.
    let start = &text[text.iter().take_while(|&&byte| byte == b' ').count()..];
    let mut rest = trim_spaces(start);
    if rest.ends_with(b"\\") && rest.len() < start.len() {
        rest = start.get(..=rest.len()).unwrap_or(rest);
    }
    if rest.len() >= 2
        && let Some(quoted) = rest.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""))
    {
        rest = quoted;
    }
    let mut out = Vec::with_capacity(rest.len());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match after {
            [high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(hex_value(*high) << 4 | hex_value(*low));
                rest = after;
            }
            [escaped, after @ ..] => {
                out.push(*escaped);
                rest = after;
            }
            [] => {}
        }
    }
    out
}

/// Returns the hexadecimal digit of a half-byte.
pub(crate) fn hex_digit(value: u8) -> u8 {
    b"0123456789abcdef"[usize::from(value & 15)]
}

/// Returns the half-byte of a hexadecimal digit. Other bytes give 0.
pub(crate) fn hex_value(digit: u8) -> u8 {
    char::from(digit).to_digit(16).map_or(0, |value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(dn: &str) -> String {
        String::from_utf8(normalise(dn.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn a_canonical_dn_is_not_copied() {
        for dn in ["uid=alice,ou=people,dc=example,dc=com", "cn=all staff,dc=x", ""] {
            assert!(
                matches!(normalise(dn.as_bytes()), Cow::Borrowed(same) if same == dn.as_bytes())
            );
        }
    }

    #[test]
    fn spellings_of_one_name_become_one() {
        for (written, canonical) in [
            ("UID=Alice, OU=People ,DC=Example", "uid=alice,ou=people,dc=example"),
            ("cn=all   staff,dc=x", "cn=all staff,dc=x"),
            ("cn=Smith\\, John,dc=x", "cn=smith\\2c john,dc=x"),
            ("cn=Smith\\2C John,dc=x", "cn=smith\\2c john,dc=x"),
            ("cn=\"Smith, John\",dc=x", "cn=smith\\2c john,dc=x"),
            ("sn=b+cn=a,dc=x", "cn=a+sn=b,dc=x"),
            ("cn=a+sn=b,dc=x", "cn=a+sn=b,dc=x"),
            ("cn=\\C3\\89mile,dc=x", "cn=émile,dc=x"),
            ("cn=ÉMILE,dc=x", "cn=émile,dc=x"),
            ("cn=\\ a\\ ,dc=x", "cn=a,dc=x"),
            ("cn=a;dc=x", "cn=a,dc=x"),
            ("cn=\\41,dc=x", "cn=a,dc=x"),
            ("cn=c\\#,dc=x", "cn=c\\23,dc=x"),
        ] {
            assert_eq!(text(written), canonical, "{written}");
        }
    }

    #[test]
    fn names_that_a_server_tells_apart_stay_apart() {
        let plain = text("cn=Alice Smith,dc=x");
        for other in
            ["\\09", "\\0A", "\\0B", "\\0C", "\\0D", "\t", "\n", "\u{a0}", "\u{2003}", "\\00"]
        {
            assert_ne!(text(&format!("cn=Alice Smith{other},dc=x")), plain, "{other:?}");
            assert_ne!(text(&format!("cn={other}Alice Smith,dc=x")), plain, "{other:?}");
        }
        assert_ne!(text("cn=ΑΣ,dc=x"), text("cn=ας,dc=x"));
        assert_ne!(text("cn=#04024869,dc=x"), text("cn=\\#04024869,dc=x"));
    }

    #[test]
    fn the_canonical_form_is_its_own() {
        for dn in [
            "CN=Smith\\, John+UID=9,dc=x",
            "cn=\\ff\\fe,dc=x",
            "cn=a\\\\b",
            "=",
            "+",
            ",,",
            "\\",
            "cn=\"",
            "cn= =b ,",
            "a\\",
            "cn=a=b",
            "cn=#04024869",
            "cn=#0\\ ;u=x",
            "cn=#,dc=x",
            "cn=\\20,dc=x",
            "\0",
        ] {
            let once = normalise(dn.as_bytes()).into_owned();
            assert_eq!(normalise(&once), once, "{dn}");
        }
    }

    #[test]
    fn any_bytes_at_all_have_one_canonical_form() {
        let alphabet = b"aA=,+;\\\"#< 2c\xc3\x89\xff\0\n";
        let mut state = 7_u32;
        for _ in 0..60_000 {
            let mut dn = b"a=".to_vec();
            dn.extend((0..10).map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                alphabet[(state >> 16) as usize % alphabet.len()]
            }));
            let once = normalise(&dn).into_owned();
            assert_eq!(normalise(&once), once, "{}", dn.escape_ascii());
            let _ = (first_rdn(&dn), rdn_values(&dn, "a"));
        }
    }

    #[test]
    fn other_names_stay_apart() {
        assert_ne!(text("cn=a\\,dc=x"), text("cn=a,dc=x"));
        assert_ne!(text("cn=a\\+b=c,dc=x"), text("cn=a+b=c,dc=x"));
        assert_ne!(text("cn=a b"), text("cn=ab"));
    }

    #[test]
    fn the_rdn_gives_the_values_of_an_attribute() {
        assert_eq!(rdn_values(b"UID=al\\2cice+cn=x,dc=uid", "uid"), [b"al,ice".to_vec()]);
        assert!(rdn_values(b"cn=x,uid=alice", "uid").is_empty());
    }

    #[test]
    fn a_base_has_itself_in_it_and_what_is_below() {
        for dn in [&b"dc=x"[..], b"uid=a,dc=x"] {
            assert!(is_within(dn, b"dc=x") && is_within(dn, b""));
            assert!(!is_within(dn, b"dc=y,dc=x"));
        }
        assert!(!is_within(b"adc=x", b"dc=x"));
    }
}
