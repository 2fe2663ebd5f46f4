//! Search filters: the text of RFC 4515 from the configuration, and filters made of names that came
//! from somewhere else. A name goes into a filter only as the raw value of an equality match, never
//! through text, so no character of it can mean anything.

use crate::ber::Writer;
use crate::dn::hex_value;

const AND: u8 = 0xa0;
const OR: u8 = 0xa1;
const NOT: u8 = 0xa2;
const EQUALITY: u8 = 0xa3;
const SUBSTRINGS: u8 = 0xa4;
const GREATER_OR_EQUAL: u8 = 0xa5;
const LESS_OR_EQUAL: u8 = 0xa6;
const PRESENT: u8 = 0x87;
const APPROXIMATE: u8 = 0xa8;
const EXTENSIBLE: u8 = 0xa9;

/// Deepest nesting of a configured filter; people write three or four levels.
const DEPTH_MAX: usize = 32;

/// A filter, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    encoded: Vec<u8>,
    /// The class, if the filter is `(objectClass=…)` and nothing else.
    class: Option<String>,
}

/// Why a filter's text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filter {text:?}, byte {at}: {what}")]
pub struct BadFilter {
    text: String,
    at: usize,
    what: &'static str,
}

impl Filter {
    /// Reads a filter in the syntax of RFC 4515; the outermost parentheses may be left out.
    pub fn parse(text: &str) -> Result<Self, BadFilter> {
        let trimmed = text.trim();
        let wrapped =
            if trimmed.starts_with('(') { trimmed.to_owned() } else { format!("({trimmed})") };
        let mut parser = Parser { text: wrapped.as_bytes(), at: 0 };
        let mut writer = Writer::default();
        let bad = |at, what| BadFilter { text: text.to_owned(), at, what };
        parser.filter(&mut writer, 0).map_err(|(at, what)| bad(at, what))?;
        if parser.at != wrapped.len() {
            return Err(bad(parser.at, "something follows the filter"));
        }
        let class = wrapped
            .strip_prefix('(')
            .and_then(|inner| inner.strip_suffix(')'))
            .and_then(|inner| inner.split_once('='))
            .filter(|(attribute, class)| {
                attribute.eq_ignore_ascii_case("objectclass")
                    && class.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            })
            .map(|(_, class)| class.to_owned());
        Ok(Self { encoded: writer.into_bytes(), class })
    }

    /// Matches entries that have any value of the attribute.
    #[must_use]
    pub fn present(attribute: &str) -> Self {
        Self::written(|writer| writer.primitive(PRESENT, attribute.as_bytes()))
    }

    /// Matches entries of which a value of the attribute is this, byte for byte.
    #[must_use]
    pub fn equals(attribute: &str, value: &[u8]) -> Self {
        Self::comparison(EQUALITY, attribute, value)
    }

    /// Matches entries of which a value of the attribute is one of these.
    #[must_use]
    pub fn equals_any(attribute: &str, values: &[Vec<u8>]) -> Self {
        if let [one] = values {
            return Self::equals(attribute, one);
        }
        let each: Vec<Self> = values.iter().map(|value| Self::equals(attribute, value)).collect();
        Self::any(&each)
    }

    /// Matches entries of which a value of the attribute is this or greater.
    #[must_use]
    pub fn at_least(attribute: &str, value: &[u8]) -> Self {
        Self::comparison(GREATER_OR_EQUAL, attribute, value)
    }

    /// Matches what all of these match.
    #[must_use]
    pub fn all<'a>(filters: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::combined(AND, filters)
    }

    /// Matches what any of these matches.
    #[must_use]
    pub fn any<'a>(filters: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::combined(OR, filters)
    }

    /// Its BER.
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// The object class that the filter asks for, if that is all that it does.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    fn comparison(tag: u8, attribute: &str, value: &[u8]) -> Self {
        Self::written(|writer| compare(writer, tag, attribute.as_bytes(), value))
    }

    fn combined<'a>(tag: u8, filters: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::written(|writer| {
            writer.constructed(tag, |writer| {
                for filter in filters {
                    writer.raw(&filter.encoded);
                }
            });
        })
    }

    fn written(fill: impl FnOnce(&mut Writer)) -> Self {
        let mut writer = Writer::default();
        fill(&mut writer);
        Self { encoded: writer.into_bytes(), class: None }
    }
}

fn compare(writer: &mut Writer, tag: u8, attribute: &[u8], value: &[u8]) {
    writer.constructed(tag, |writer| {
        writer.octets(attribute);
        writer.octets(value);
    });
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

type Parsed<T> = Result<T, (usize, &'static str)>;

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8, what: &'static str) -> Parsed<()> {
        if self.peek() != Some(byte) {
            return Err((self.at, what));
        }
        self.at += 1;
        Ok(())
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn filter(&mut self, writer: &mut Writer, depth: usize) -> Parsed<()> {
        if depth > DEPTH_MAX {
            return Err((self.at, "nested too deeply"));
        }
        self.skip_space();
        self.take(b'(', "an opening parenthesis is missing")?;
        self.skip_space();
        match self.peek() {
            Some(operator @ (b'&' | b'|')) => {
                self.at += 1;
                let start = writer.open(if operator == b'&' { AND } else { OR });
                self.skip_space();
                while self.peek() == Some(b'(') {
                    self.filter(writer, depth + 1)?;
                    self.skip_space();
                }
                writer.close(start);
            }
            Some(b'!') => {
                self.at += 1;
                let start = writer.open(NOT);
                self.filter(writer, depth + 1)?;
                self.skip_space();
                writer.close(start);
            }
            _ => self.item(writer)?,
        }
        self.take(b')', "a closing parenthesis is missing")
    }

    fn item(&mut self, writer: &mut Writer) -> Parsed<()> {
        let start = self.at;
        let is_end = |byte: u8| matches!(byte, b'=' | b'(' | b')');
        while self.peek().is_some_and(|byte| !is_end(byte)) {
            self.at += 1;
        }
        let left = self.text.get(start..self.at).unwrap_or_default();
        self.take(b'=', "an equals sign is missing")?;
        let value_at = self.at;
        while self.peek().is_some_and(|byte| !matches!(byte, b'(' | b')')) {
            self.at += 1;
        }
        let value = self.text.get(value_at..self.at).unwrap_or_default();
        let (tag, attribute) = match left {
            [left @ .., b'>'] => (GREATER_OR_EQUAL, left),
            [left @ .., b'<'] => (LESS_OR_EQUAL, left),
            [left @ .., b'~'] => (APPROXIMATE, left),
            [left @ .., b':'] => return extensible(writer, left, value, (start, value_at)),
            _ => (EQUALITY, left),
        };
        let attribute = attribute.trim_ascii();
        if !is_description(attribute) {
            return Err((start, "not the name of an attribute"));
        }
        if tag != EQUALITY || !value.contains(&b'*') {
            compare(writer, tag, attribute, &literal(value, value_at)?);
            return Ok(());
        }
        if value == b"*" {
            writer.primitive(PRESENT, attribute);
            return Ok(());
        }
        substrings(writer, attribute, value, value_at)
    }
}

fn substrings(writer: &mut Writer, attribute: &[u8], value: &[u8], at: usize) -> Parsed<()> {
    let pieces: Vec<&[u8]> = value.split(|&byte| byte == b'*').collect();
    let outer = writer.open(SUBSTRINGS);
    writer.octets(attribute);
    let inner = writer.open(crate::ber::tag::SEQUENCE);
    for (position, piece) in pieces.iter().enumerate() {
        let place = match position {
            0 => 0x80,
            _ if position + 1 == pieces.len() => 0x82,
            _ => 0x81,
        };
        if !piece.is_empty() {
            writer.primitive(place, &literal(piece, at)?);
        } else if place == 0x81 {
            return Err((at, "two asterisks with nothing between them"));
        }
    }
    writer.close(inner);
    writer.close(outer);
    Ok(())
}

/// `attribute:dn:rule:=value`; `left` ends before the last colon.
fn extensible(
    writer: &mut Writer,
    left: &[u8],
    value: &[u8],
    (start, value_at): (usize, usize),
) -> Parsed<()> {
    let mut pieces = left.split(|&byte| byte == b':');
    let attribute = pieces.next().unwrap_or_default().trim_ascii();
    let mut rule = None;
    let mut of_dn = false;
    for piece in pieces {
        if piece.eq_ignore_ascii_case(b"dn") && !of_dn && rule.is_none() {
            of_dn = true;
        } else if is_description(piece) && rule.is_none() {
            rule = Some(piece);
        } else {
            return Err((start, "not an extensible match"));
        }
    }
    if !(attribute.is_empty() || is_description(attribute))
        || (attribute.is_empty() && rule.is_none())
    {
        return Err((start, "not the name of an attribute"));
    }
    let value = literal(value, value_at)?;
    writer.constructed(EXTENSIBLE, |writer| {
        if let Some(rule) = rule {
            writer.primitive(0x81, rule);
        }
        if !attribute.is_empty() {
            writer.primitive(0x82, attribute);
        }
        writer.primitive(0x83, &value);
        if of_dn {
            writer.primitive(0x84, &[0xff]);
        }
    });
    Ok(())
}

fn is_description(text: &[u8]) -> bool {
    !text.is_empty()
        && text
            .iter()
            .all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b';' | b'_'))
}

/// The bytes of a value, with `\xx` undone.
fn literal(text: &[u8], at: usize) -> Parsed<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'\\', [high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                out.push(hex_value(*high) << 4 | hex_value(*low));
                rest = after;
            }
            (b'\\', _) => return Err((at, "a backslash without two hexadecimal digits")),
            _ => out.push(byte),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> String {
        let filter = Filter::parse(text).unwrap();
        filter.encoded().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn text_becomes_ber() {
        assert_eq!(hex("(cn=a)"), "a384000000070402636e040161");
        assert_eq!(hex("cn=a"), hex("(cn=a)"));
        assert_eq!(hex("(cn=*)"), "8702636e");
        assert_eq!(hex("(cn=\\2a\\28\\5c)"), "a384000000090402636e04032a285c");
        assert_eq!(
            hex("(&(cn=*)(!(cn=a)))"),
            "a0840000001787".to_owned() + "02636ea2840000000da38400000007" + "0402636e040161"
        );
        assert_eq!(hex("(cn>=1)"), "a584000000070402636e040131");
        assert_eq!(
            hex("(cn=a*b*c)"),
            "a4840000001304".to_owned() + "02636e3084000000098001618101628201" + "63"
        );
        assert_eq!(hex("(cn:dn:2.4:=x)"), "a9840000000f8103322e348202636e8301788401ff");
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for text in [
            "",
            "(",
            "(cn=a",
            "(cn=a))",
            "(cn)",
            "(=a)",
            "(&(cn=a)",
            "(cn=\\2)",
            "(cn=a**b)",
            "(c n=a)",
            "(!)",
        ] {
            assert!(Filter::parse(text).is_err(), "{text:?}");
        }
        let deep = "(!".repeat(100) + "(cn=a)" + &")".repeat(100);
        assert!(Filter::parse(&deep).unwrap_err().to_string().contains("nested too deeply"));
    }

    #[test]
    fn a_name_full_of_syntax_is_only_a_value() {
        let name = b"*)(uid=*))(|(uid=*\\00\0";
        let filter = Filter::equals("uid", name);
        let mut reader = crate::ber::Reader::new(filter.encoded());
        let mut inner = reader.inner(EQUALITY).unwrap();
        assert_eq!(inner.expect(crate::ber::tag::OCTETS), Ok(&b"uid"[..]));
        assert_eq!(inner.expect(crate::ber::tag::OCTETS), Ok(&name[..]));
        assert!(inner.is_empty() && reader.is_empty());
    }

    #[test]
    fn a_filter_of_one_class_knows_it() {
        assert_eq!(Filter::parse("(objectClass=posixGroup)").unwrap().class(), Some("posixGroup"));
        for other in
            ["(objectClass=*)", "(cn=posixGroup)", "(!(objectClass=a))", "(objectClass>=a)"]
        {
            assert_eq!(Filter::parse(other).unwrap().class(), None, "{other}");
        }
    }
}
