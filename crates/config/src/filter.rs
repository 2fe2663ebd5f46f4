//! Search filters as people write them (RFC 4515). The one reader of their text: a back-end sends what
//! was read here, so a configuration that was checked holds no filter that it would end of.

use crate::syntax::{attribute, hex_byte};

/// Parentheses in parentheses: more than anybody writes, and little of the stack.
const DEPTH_MAX: usize = 32;

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// `(&…)`: what all of these match.
    All(Vec<Self>),
    /// `(|…)`: what any of these matches.
    Any(Vec<Self>),
    /// `(!…)`
    Not(Box<Self>),
    /// `(attribute=*)`
    Present(String),
    /// `(attribute=value)` and its kin.
    Compare(Comparison, String, Vec<u8>),
    /// `(attribute=initial*any*any*last)`; the outer pieces may be empty.
    Substrings {
        /// What is compared.
        attribute: String,
        /// What the value starts with.
        initial: Vec<u8>,
        /// What is in between.
        any: Vec<Vec<u8>>,
        /// What it ends with.
        last: Vec<u8>,
    },
    /// `(attribute:dn:rule:=value)`, with an attribute or a rule.
    Extensible {
        /// What is compared.
        attribute: Option<String>,
        /// How.
        rule: Option<String>,
        /// Whether the values in the DN count too.
        of_dn: bool,
        /// With what.
        value: Vec<u8>,
    },
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
    /// `~=`
    Like,
}

/// Reads a filter. An error says what is wrong, as in "a ) is missing at the end".
pub fn parse(text: &str) -> Result<Filter, String> {
    let mut scan = Scan { rest: text.trim_ascii() };
    let filter = scan.filter(DEPTH_MAX)?;
    match scan.rest {
        "" => Ok(filter),
        rest => Err(format!("{rest:?} is left over behind its last )")),
    }
}

struct Scan<'t> {
    rest: &'t str,
}

impl<'t> Scan<'t> {
    fn eat(&mut self, char: char) -> bool {
        match self.rest.strip_prefix(char) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn need(&mut self, char: char) -> Result<(), String> {
        self.rest = self.rest.trim_ascii_start();
        if self.eat(char) {
            return Ok(());
        }
        let place = match self.rest.chars().next() {
            Some(char) => format!("before {char:?}"),
            None => "at the end".to_owned(),
        };
        Err(format!("a {char} is missing {place}"))
    }

    fn filter(&mut self, depth: usize) -> Result<Filter, String> {
        if depth == 0 {
            return Err(format!("more than {DEPTH_MAX} parentheses in each other"));
        }
        self.need('(')?;
        self.rest = self.rest.trim_ascii_start();
        let filter = if self.eat('&') {
            Filter::All(self.filters(depth - 1)?)
        } else if self.eat('|') {
            Filter::Any(self.filters(depth - 1)?)
        } else if self.eat('!') {
            Filter::Not(Box::new(self.filter(depth - 1)?))
        } else {
            comparison(self.up_to_parenthesis())?
        };
        self.need(')')?;
        Ok(filter)
    }

    fn filters(&mut self, depth: usize) -> Result<Vec<Filter>, String> {
        let mut all = Vec::new();
        while self.rest.trim_ascii_start().starts_with('(') {
            all.push(self.filter(depth)?);
        }
        Ok(all)
    }

    fn up_to_parenthesis(&mut self) -> &'t str {
        let end = self.rest.find(['(', ')']).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        text
    }
}

fn comparison(text: &str) -> Result<Filter, String> {
    let Some((left, value)) = text.split_once('=') else {
        return Err(format!("{text:?} lacks a ="));
    };
    if let Some(left) = left.strip_suffix(':') {
        return extensible(left, value);
    }
    let signs = [('>', Comparison::AtLeast), ('<', Comparison::AtMost), ('~', Comparison::Like)];
    let signed = signs.iter().find_map(|(sign, how)| Some((left.strip_suffix(*sign)?, *how)));
    let (left, how) = signed.unwrap_or((left, Comparison::Equal));
    let attribute = named(left)?;
    if how == Comparison::Equal && value == "*" {
        return Ok(Filter::Present(attribute));
    }
    if how == Comparison::Equal && value.contains('*') {
        return substrings(attribute, value);
    }
    Ok(Filter::Compare(how, attribute, literal(value)?))
}

fn named(text: &str) -> Result<String, String> {
    let name = text.trim_ascii();
    if name.is_empty() {
        return Err("a comparison names no attribute".to_owned());
    }
    attribute(name).map_err(|_| format!("{name:?} is no attribute"))?;
    Ok(name.to_owned())
}

fn substrings(attribute: String, value: &str) -> Result<Filter, String> {
    let mut pieces = value.split('*').map(literal).collect::<Result<Vec<_>, _>>()?;
    let last = pieces.pop().unwrap_or_default();
    let any = pieces.split_off(1);
    let initial = pieces.pop().unwrap_or_default();
    if any.iter().any(Vec::is_empty) {
        return Err(format!("{value:?} has two asterisks with nothing between them"));
    }
    Ok(Filter::Substrings { attribute, initial, any, last })
}

/// `left` is what stands before `:=`.
fn extensible(left: &str, value: &str) -> Result<Filter, String> {
    let mut pieces = left.split(':');
    let attribute = pieces.next().unwrap_or_default();
    let attribute = if attribute.is_empty() { None } else { Some(named(attribute)?) };
    let (mut rule, mut of_dn) = (None, false);
    for piece in pieces {
        if piece.eq_ignore_ascii_case("dn") && !of_dn && rule.is_none() {
            of_dn = true;
        } else if rule.is_none() {
            rule = Some(named(piece)?);
        } else {
            return Err(format!("{left:?} names two matching rules"));
        }
    }
    if attribute.is_none() && rule.is_none() {
        return Err("a comparison names no attribute".to_owned());
    }
    Ok(Filter::Extensible { attribute, rule, of_dn, value: literal(value)? })
}

/// The bytes of a value, with `\xx` undone.
fn literal(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'\\' {
            bytes.push(hex_byte(after).ok_or(BACKSLASH)?);
            rest = &after[2..];
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    Ok(bytes)
}

const BACKSLASH: &str = "a backslash must have two hexadecimal digits behind it; \\2a is *, \\28 and \
                         \\29 are parentheses, \\5c is a backslash";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        let equal = |attribute: &str, value: &str| {
            Filter::Compare(Comparison::Equal, attribute.into(), value.into())
        };
        assert_eq!(parse("(cn=\\2a\\28b)"), Ok(equal("cn", "*(b")));
        assert_eq!(parse(" ( cn=a b) "), Ok(equal("cn", "a b")));
        assert_eq!(parse("(cn=)"), Ok(equal("cn", "")));
        assert_eq!(parse("(cn=*)"), Ok(Filter::Present("cn".into())));
        assert_eq!(parse("(&)"), Ok(Filter::All(vec![])));
        assert_eq!(
            parse("(& (a=b) (!(c>=d)) )"),
            Ok(Filter::All(vec![
                equal("a", "b"),
                Filter::Not(Filter::Compare(Comparison::AtLeast, "c".into(), b"d".into()).into()),
            ]))
        );
        assert_eq!(
            parse("(cn=*a*\\2a*)"),
            Ok(Filter::Substrings {
                attribute: "cn".into(),
                initial: vec![],
                any: vec![b"a".into(), b"*".into()],
                last: vec![],
            })
        );
        assert_eq!(
            parse("(:dn:2.4.6:=x)"),
            Ok(Filter::Extensible {
                attribute: None,
                rule: Some("2.4.6".into()),
                of_dn: true,
                value: b"x".into(),
            })
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, why) in [
            ("(objectClass=posixAccount", "a ) is missing at the end"),
            ("(a=b)(c=d)", "left over"),
            ("(&(a=b)", "a ) is missing at the end"),
            ("(a)", "lacks a ="),
            ("(!a=b)", "a ( is missing before 'a'"),
            ("(!)", "a ( is missing before ')'"),
            ("(=x)", "names no attribute"),
            ("(:=x)", "names no attribute"),
            ("(c n=x)", "\"c n\" is no attribute"),
            ("(cn:a:b:=x)", "two matching rules"),
            ("(cn=\\zz)", "two hexadecimal digits"),
            ("(cn=\\2)", "two hexadecimal digits"),
            ("(cn=\\)", "two hexadecimal digits"),
            ("(cn=**)", "two asterisks"),
            ("(cn=a**b)", "two asterisks"),
            ("", "a ( is missing at the end"),
        ] {
            let wrong = parse(text).unwrap_err();
            assert!(wrong.contains(why), "{text}: {wrong}");
        }
        let deep = format!("{}(a=b){}", "(!".repeat(100_000), ")".repeat(100_000));
        assert!(parse(&deep).unwrap_err().contains("parentheses in each other"));
    }
}
