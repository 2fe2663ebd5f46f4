//! Search filters as they are sent: those of the configuration, and filters made of names that came
//! from somewhere else. A name goes into a filter only as the raw value of an equality match, never
//! through text, so no character of it can mean anything.

use crate::ber::Writer;
use roster_config::filter::{self, Comparison, Filter as Read};

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

/// Attributes that servers work out, so that an entry's value is another without a change of the entry:
/// OpenLDAP by the overlays memberof and dynlist, others in their own ways.
const WORKED_OUT: [&str; 4] = ["memberOf", "isMemberOf", "nsRole", "ibm-allGroups"];

/// A filter, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    encoded: Vec<u8>,
    /// The class, if the filter is `(objectClass=…)` and nothing else.
    class: Option<String>,
    is_worked_out: bool,
}

impl Filter {
    /// Reads a filter as it stands in the configuration.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read = filter::parse(text).map_err(|why| format!("filter {text:?}: {why}"))?;
        let mut filter = Self::written(|writer| write(writer, &read));
        filter.is_worked_out = is_worked_out(&read);
        if let Read::Compare(Comparison::Equal, attribute, class) = &read
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

    /// Matches what this does not match, as far as the reader may see that.
    #[must_use]
    pub fn not(filter: &Self) -> Self {
        Self::combined(NOT, [filter])
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

    /// Whether it names an attribute that servers are known to work out; asked of what was
    /// [`parse`](Self::parse)d.
    #[must_use]
    pub fn is_worked_out(&self) -> bool {
        self.is_worked_out
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
        Self { encoded: writer.into_bytes(), class: None, is_worked_out: false }
    }
}

/// Recursion goes as deep as the reader of the text lets filters be nested.
fn is_worked_out(filter: &Read) -> bool {
    let named = |name: &str| {
        let name = name.split(';').next().unwrap_or_default();
        WORKED_OUT.iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    match filter {
        Read::All(filters) | Read::Any(filters) => filters.iter().any(is_worked_out),
        Read::Not(filter) => is_worked_out(filter),
        Read::Present(name)
        | Read::Compare(_, name, _)
        | Read::Substrings { attribute: name, .. }
        | Read::Extensible { attribute: Some(name), .. } => named(name),
        Read::Extensible { attribute: None, .. } => false,
    }
}

fn compare(writer: &mut Writer, tag: u8, attribute: &[u8], value: &[u8]) {
    writer.constructed(tag, |writer| {
        writer.octets(attribute);
        writer.octets(value);
    });
}

/// Recursion goes as deep as the reader of the text lets filters be nested.
fn write(writer: &mut Writer, filter: &Read) {
    match filter {
        Read::All(filters) => write_each(writer, AND, filters),
        Read::Any(filters) => write_each(writer, OR, filters),
        Read::Not(filter) => writer.constructed(NOT, |writer| write(writer, filter)),
        Read::Present(attribute) => writer.primitive(PRESENT, attribute.as_bytes()),
        Read::Compare(how, attribute, value) => {
            let tag = match how {
                Comparison::Equal => EQUALITY,
                Comparison::AtLeast => GREATER_OR_EQUAL,
                Comparison::AtMost => LESS_OR_EQUAL,
                Comparison::Like => APPROXIMATE,
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

fn write_each(writer: &mut Writer, tag: u8, filters: &[Read]) {
    writer.constructed(tag, |writer| filters.iter().for_each(|filter| write(writer, filter)));
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
    #[test]
    fn a_filter_knows_whether_servers_work_out_what_it_names() {
        for is in [
            "(memberOf=cn=staff,dc=x)",
            "(&(objectClass=posixAccount)(!(|(uid=a)(MEMBEROF=*))))",
            "(nsRole=cn=staff*)",
            "(memberOf:1.2.840.113556.1.4.1941:=cn=staff,dc=x)",
            "(isMemberOf;x-any=cn=staff)",
        ] {
            assert!(Filter::parse(is).unwrap().is_worked_out(), "{is}");
        }
        for is_not in
            ["(objectClass=posixAccount)", "(cn=memberOf)", "(member=cn=a)", "(:dn:2.4:=x)"]
        {
            assert!(!Filter::parse(is_not).unwrap().is_worked_out(), "{is_not}");
        }
    }
}
