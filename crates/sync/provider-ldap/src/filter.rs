// SPDX-License-Identifier: MIT OR Apache-2.0
//! Search filters as they are sent: the configured filters, and filters for names from other sources. A name enters a
//! filter only as the raw value of an equality match, never as text. No character of it can therefore have a meaning.
//! `filter_text` has the form for logs.

use crate::ber::BerWriter;
use roster_config::ldap_filter::{self, FilterExpr as Read, MatchOperator};

pub(crate) const AND: u8 = 0xa0;
pub(crate) const OR: u8 = 0xa1;
pub(crate) const NOT: u8 = 0xa2;
pub(crate) const EQUALITY: u8 = 0xa3;
pub(crate) const SUBSTRINGS: u8 = 0xa4;
pub(crate) const GREATER_OR_EQUAL: u8 = 0xa5;
pub(crate) const LESS_OR_EQUAL: u8 = 0xa6;
pub(crate) const PRESENT: u8 = 0x87;
pub(crate) const APPROXIMATE: u8 = 0xa8;
pub(crate) const EXTENSIBLE: u8 = 0xa9;

/// Attributes that servers compute, so that a value may change without a change of its entry. OpenLDAP computes them in
/// the overlays memberof and dynlist, other servers in their own ways.
const COMPUTED_ATTRIBUTES: [&str; 4] = ["memberOf", "isMemberOf", "nsRole", "ibm-allGroups"];

/// An encoded filter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EncodedFilter {
    encoded: Vec<u8>,
    /// The class, if the whole filter is `(objectClass=…)`.
    class: Option<String>,
    has_computed_attribute: bool,
}

impl EncodedFilter {
    /// Parses a filter of the configuration.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read = ldap_filter::parse(text).map_err(|why| format!("filter {text:?}: {why}"))?;
        let mut filter = Self::written(|writer| write(writer, &read));
        filter.has_computed_attribute = has_computed_attribute(&read);
        if let Read::Compare(MatchOperator::Equal, attribute, class) = &read
            && attribute.eq_ignore_ascii_case("objectclass")
            && class.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        {
            filter.class = Some(String::from_utf8_lossy(class).into_owned());
        }
        Ok(filter)
    }

    /// Matches entries that have any value of the attribute.
    #[must_use]
    pub fn present(attribute: &str) -> Self {
        Self::written(|writer| writer.primitive(PRESENT, attribute.as_bytes()))
    }

    /// Matches entries with this value of the attribute, byte for byte.
    #[must_use]
    pub fn equals(attribute: &str, value: &[u8]) -> Self {
        Self::comparison(EQUALITY, attribute, value)
    }

    /// Matches entries with any of these values of the attribute.
    #[must_use]
    pub fn equals_any(attribute: &str, values: &[Vec<u8>]) -> Self {
        if let [one] = values {
            return Self::equals(attribute, one);
        }
        let each: Vec<Self> = values.iter().map(|value| Self::equals(attribute, value)).collect();
        Self::any(&each)
    }

    /// Matches entries with a value of the attribute that is equal or greater.
    #[must_use]
    pub fn at_least(attribute: &str, value: &[u8]) -> Self {
        Self::comparison(GREATER_OR_EQUAL, attribute, value)
    }

    /// Matches entries that all of the filters match.
    #[must_use]
    pub fn all<'a>(filters: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::combined(AND, filters)
    }

    /// Matches entries that any of the filters matches.
    #[must_use]
    pub fn any<'a>(filters: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::combined(OR, filters)
    }

    /// Matches entries that the filter does not match, as far as the bind DN may read them.
    #[must_use]
    pub fn not(filter: &Self) -> Self {
        Self::combined(NOT, [filter])
    }

    /// Returns the BER of the filter.
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// Returns the object class if the filter only compares the object class.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// Returns whether the filter names an attribute that servers compute. Only filters of [`parse`](Self::parse), and
    /// combinations of them, have this information.
    #[must_use]
    pub fn has_computed_attribute(&self) -> bool {
        self.has_computed_attribute
    }

    fn comparison(tag: u8, attribute: &str, value: &[u8]) -> Self {
        Self::written(|writer| compare(writer, tag, attribute.as_bytes(), value))
    }

    fn combined<'a>(tag: u8, filters: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut is_computed = false;
        let filter = Self::written(|writer| {
            writer.constructed(tag, |writer| {
                for filter in filters {
                    is_computed |= filter.has_computed_attribute;
                    writer.raw(&filter.encoded);
                }
            });
        });
        Self { has_computed_attribute: is_computed, ..filter }
    }

    fn written(fill: impl FnOnce(&mut BerWriter)) -> Self {
        let mut writer = BerWriter::default();
        fill(&mut writer);
        Self { encoded: writer.into_bytes(), class: None, has_computed_attribute: false }
    }
}

/// The parser of the text bounds the depth of the recursion.
fn has_computed_attribute(filter: &Read) -> bool {
    let named = |name: &str| {
        let name = name.split(';').next().unwrap_or_default();
        COMPUTED_ATTRIBUTES.iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    match filter {
        Read::All(filters) | Read::Any(filters) => filters.iter().any(has_computed_attribute),
        Read::Not(filter) => has_computed_attribute(filter),
        Read::Present(name)
        | Read::Compare(_, name, _)
        | Read::Substrings { attribute: name, .. }
        | Read::Extensible { attribute: Some(name), .. } => named(name),
        Read::Extensible { attribute: None, .. } => false,
    }
}

fn compare(writer: &mut BerWriter, tag: u8, attribute: &[u8], value: &[u8]) {
    writer.constructed(tag, |writer| {
        writer.octets(attribute);
        writer.octets(value);
    });
}

/// The parser of the text bounds the depth of the recursion.
fn write(writer: &mut BerWriter, filter: &Read) {
    match filter {
        Read::All(filters) => write_each(writer, AND, filters),
        Read::Any(filters) => write_each(writer, OR, filters),
        Read::Not(filter) => writer.constructed(NOT, |writer| write(writer, filter)),
        Read::Present(attribute) => writer.primitive(PRESENT, attribute.as_bytes()),
        Read::Compare(how, attribute, value) => {
            let tag = match how {
                MatchOperator::Equal => EQUALITY,
                MatchOperator::AtLeast => GREATER_OR_EQUAL,
                MatchOperator::AtMost => LESS_OR_EQUAL,
                MatchOperator::Like => APPROXIMATE,
            };
            compare(writer, tag, attribute.as_bytes(), value);
        }
        Read::Substrings { attribute, initial, any, last } => {
            let pieces = [(0x80, initial)].into_iter().chain(any.iter().map(|any| (0x81, any)));
            let pieces = pieces.chain([(0x82, last)]).filter(|(_, piece)| !piece.is_empty());
            writer.constructed(SUBSTRINGS, |writer| {
                writer.octets(attribute.as_bytes());
                writer.constructed(crate::ber::tag::SEQUENCE, |writer| {
                    pieces.for_each(|(place, piece)| writer.primitive(place, piece));
                });
            });
        }
        Read::Extensible { attribute, rule, of_dn, value } => {
            writer.constructed(EXTENSIBLE, |writer| {
                if let Some(rule) = rule {
                    writer.primitive(0x81, rule.as_bytes());
                }
                if let Some(attribute) = attribute {
                    writer.primitive(0x82, attribute.as_bytes());
                }
                writer.primitive(0x83, value);
                if *of_dn {
                    writer.primitive(0x84, &[0xff]);
                }
            });
        }
    }
}

fn write_each(writer: &mut BerWriter, tag: u8, filters: &[Read]) {
    writer.constructed(tag, |writer| filters.iter().for_each(|filter| write(writer, filter)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> String {
        let filter = EncodedFilter::parse(text).unwrap();
        filter.encoded().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn text_becomes_ber() {
        assert_eq!(hex("(cn=a)"), "a384000000070402636e040161");
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
    fn a_name_full_of_syntax_is_only_a_value() {
        let name = b"*)(uid=*))(|(uid=*\\00\0";
        let filter = EncodedFilter::equals("uid", name);
        let mut reader = crate::ber::BerReader::new(filter.encoded());
        let mut inner = reader.inner(EQUALITY).unwrap();
        assert_eq!(inner.expect(crate::ber::tag::OCTETS), Ok(&b"uid"[..]));
        assert_eq!(inner.expect(crate::ber::tag::OCTETS), Ok(&name[..]));
        assert!(inner.is_empty() && reader.is_empty());
    }

    #[test]
    fn a_filter_of_one_class_knows_it() {
        assert_eq!(
            EncodedFilter::parse("(objectClass=posixGroup)").unwrap().class(),
            Some("posixGroup")
        );
        for other in
            ["(objectClass=*)", "(cn=posixGroup)", "(!(objectClass=a))", "(objectClass>=a)"]
        {
            assert_eq!(EncodedFilter::parse(other).unwrap().class(), None, "{other}");
        }
    }
    #[test]
    fn a_filter_knows_whether_servers_work_out_what_it_names() {
        for is in [
            "(memberOf=cn=staff,dc=x)",
            "(&(objectClass=posixAccount)(!(|(uid=a)(MEMBEROF=*))))",
            "(nsRole=cn=staff*)",
            "(memberOf:1.2.840.113556.1.4.1941:=cn=staff,dc=x)",
            "(isMemberOf;x-any=cn=staff)",
        ] {
            assert!(EncodedFilter::parse(is).unwrap().has_computed_attribute(), "{is}");
        }
        for is_not in
            ["(objectClass=posixAccount)", "(cn=memberOf)", "(member=cn=a)", "(:dn:2.4:=x)"]
        {
            assert!(!EncodedFilter::parse(is_not).unwrap().has_computed_attribute(), "{is_not}");
        }
    }
}
