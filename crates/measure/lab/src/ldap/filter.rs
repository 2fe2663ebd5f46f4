// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodes search filters (RFC 4515). Values may have variable parts, which are inserted after the filter is parsed: an
//! identity cannot change the structure of the filter. Extensible matches are not supported. `ber` has the encoding,
//! and the parent module `ldap` the request.

use crate::ber::{self, MessageTemplate};
use crate::template::Template;

/// Maximum nesting of filters.
pub const DEPTH_MAX: usize = 32;
// A comparison has further elements, and the filter is within a request.
const _: () = assert!(DEPTH_MAX + 8 <= ber::DEPTH_MAX);

/// Writes a filter into a message.
pub fn write(text: &str, message: &mut MessageTemplate) -> Result<(), String> {
    let text = text.trim();
    let bare;
    // Like ldapsearch, this accepts a filter without parentheses.
    let whole = if text.starts_with('(') {
        text
    } else {
        bare = format!("({text})");
        &bare
    };
    let rest =
        write_component(whole, message, 0).map_err(|why| format!("filter {text:?}: {why}"))?;
    if rest.is_empty() {
        Ok(())
    } else {
        Err(format!("filter {text:?}: text after the end: {rest:?}"))
    }
}

/// Writes the filter at the start of `text`, and returns the rest.
fn write_component<'t>(
    text: &'t str,
    message: &mut MessageTemplate,
    depth: usize,
) -> Result<&'t str, String> {
    if depth >= DEPTH_MAX {
        return Err(format!("nested more than {DEPTH_MAX} times"));
    }
    let inner = text.strip_prefix('(').ok_or_else(|| format!("missing ( before {text:?}"))?;
    let tag = match inner.bytes().next() {
        Some(b'&') => 0xa0,
        Some(b'|') => 0xa1,
        Some(b'!') => 0xa2,
        _ => {
            let end = inner.find(')').ok_or("( without )")?;
            comparison(&inner[..end], message)?;
            return Ok(&inner[end + 1..]);
        }
    };
    let mut rest = &inner[1..];
    let mut failed = None;
    message.constructed(tag, |message| {
        while rest.starts_with('(') && failed.is_none() {
            match write_component(rest, message, depth + 1) {
                Ok(behind) => rest = behind,
                Err(why) => failed = Some(why),
            }
            if tag == 0xa2 {
                break;
            }
        }
    });
    match failed {
        Some(why) => Err(why),
        None if rest.len() + 1 == inner.len() => Err("operator without a filter".to_owned()),
        None => rest.strip_prefix(')').ok_or_else(|| "( without )".to_owned()),
    }
}

fn comparison(text: &str, message: &mut MessageTemplate) -> Result<(), String> {
    let (left, value) = text.split_once('=').ok_or_else(|| format!("{text:?} has no ="))?;
    let (tag, name) = match left.as_bytes().last() {
        Some(b'>') => (0xa5, &left[..left.len() - 1]),
        Some(b'<') => (0xa6, &left[..left.len() - 1]),
        Some(b'~') => (0xa8, &left[..left.len() - 1]),
        Some(b':') => return Err(format!("{text:?}: extensible matches are not supported")),
        _ => (0xa3, left),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.;".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(format!("{name:?} is not an attribute"));
    }
    if tag == 0xa3 && value == "*" {
        message.constant(0x87, name.as_bytes());
        return Ok(());
    }
    if tag != 0xa3 || !value.contains('*') {
        let value = Template::from_filter_value(value)?;
        message.constructed(tag, |message| {
            message.constant(0x04, name.as_bytes());
            message.value(0x04, &value);
        });
        return Ok(());
    }
    let pieces: Vec<&str> = value.split('*').collect();
    let last = pieces.len() - 1;
    let mut written = Vec::new();
    for (at, piece) in pieces.iter().enumerate().filter(|(_, piece)| !piece.is_empty()) {
        let place = if at == 0 { 0x80 } else { 0x81 + u8::from(at == last) };
        written.push((place, Template::from_filter_value(piece)?));
    }
    if written.is_empty() {
        return Err(format!("{text:?}: ** has no value"));
    }
    message.constructed(0xa4, |message| {
        message.constant(0x04, name.as_bytes());
        message.constructed(0x30, |message| {
            written.iter().for_each(|(place, piece)| message.value(*place, piece));
        });
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str, request: u64) -> Result<Vec<u8>, String> {
        let mut message = MessageTemplate::default();
        write(text, &mut message)?;
        let mut out = Vec::new();
        message.write(&[], request, &mut out);
        Ok(out)
    }

    #[test]
    fn a_filter_is_encoded_as_the_standard_says() {
        assert_eq!(encoded("(uid=u{1..9})", 2).unwrap(), b"\xa3\x09\x04\x03uid\x04\x02u3");
        assert_eq!(encoded("uid=*", 0).unwrap(), b"\x87\x03uid");
        assert_eq!(
            encoded("(&(a>=1)(!(b<=2)))", 0).unwrap(),
            b"\xa0\x12\xa5\x06\x04\x01a\x04\x011\xa2\x08\xa6\x06\x04\x01b\x04\x012"
        );
        assert_eq!(
            encoded("(cn=a*b*c)", 0).unwrap(),
            b"\xa4\x0f\x04\x02cn\x30\x09\x80\x01a\x81\x01b\x82\x01c"
        );
        assert_eq!(encoded("(cn=\\28*)", 0).unwrap(), b"\xa4\x09\x04\x02cn\x30\x03\x80\x01(");
    }

    #[test]
    fn an_identity_is_a_value_and_never_a_part_of_the_filter() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "*)(uid=x\n").unwrap();
        let text = format!("(uid={{@{}}})", file.path().display());
        assert_eq!(encoded(&text, 0).unwrap(), b"\xa3\x0f\x04\x03uid\x04\x08*)(uid=x");
    }

    #[test]
    fn filter_invalid_rejected() {
        let deep = format!("{}(a=b){}", "(!".repeat(40), ")".repeat(40));
        for text in
            ["", "(", "(a=b", "(a)", "(=b)", "(&)", "(&(a=b)", "(a=b)x", "(a:=b)", "(a=**)", &deep]
        {
            assert!(encoded(text, 0).is_err(), "{text}");
        }
    }
}
