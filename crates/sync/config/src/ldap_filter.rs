// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parser of search filters in text form (RFC 4515). It is the only one: a backend sends the parsed filter, so a
//! checked configuration has no filter that a backend could not parse.
//!
//! This module sends nothing and knows no schema. `provider-ldap` encodes the parsed filter.

use crate::value_syntax::{attribute, hex_byte};
use roster_messages::CodedError;
use roster_messages::table::config as codes;

/// Limit of nested parentheses. It bounds the stack.
const DEPTH_MAX: usize = 32;

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterExpr {
    /// `(&…)`: all filters match.
    All(Vec<Self>),
    /// `(|…)`: any filter matches.
    Any(Vec<Self>),
    /// `(!…)`
    Not(Box<Self>),
    /// `(attribute=*)`
    Present(String),
    /// `(attribute=value)` and the other comparisons.
    Compare(MatchOperator, String, Vec<u8>),
    /// `(attribute=initial*any*any*last)`. The outer pieces may be empty.
    Substrings {
        /// The attribute.
        attribute: String,
        /// The start of the value.
        initial: Vec<u8>,
        /// The pieces in between, in order.
        any: Vec<Vec<u8>>,
        /// The end of the value.
        last: Vec<u8>,
    },
    /// `(attribute:dn:rule:=value)`, with an attribute or a rule.
    Extensible {
        /// The attribute.
        attribute: Option<String>,
        /// The matching rule.
        rule: Option<String>,
        /// Values in the DN count too.
        of_dn: bool,
        /// The value.
        value: Vec<u8>,
    },
}

/// An operator that compares two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchOperator {
    /// `=`
    Equal,
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
    /// `~=`
    Like,
}

/// Parses a filter. An error describes the mistake, for example "a closing parenthesis is missing at the end".
pub fn parse(text: &str) -> Result<FilterExpr, String> {
    let mut scan = FilterScanner { rest: text.trim_ascii() };
    let filter = scan.filter(DEPTH_MAX)?;
    match scan.rest {
        "" => Ok(filter),
        rest => Err(format!("{rest:?} follows the last parenthesis")),
    }
}

struct FilterScanner<'t> {
    rest: &'t str,
}

impl<'t> FilterScanner<'t> {
    fn take_if(&mut self, char: char) -> bool {
        match self.rest.strip_prefix(char) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, char: char) -> Result<(), String> {
        self.rest = self.rest.trim_ascii_start();
        if self.take_if(char) {
            return Ok(());
        }
        let place = match self.rest.chars().next() {
            Some(char) => format!("before {char:?}"),
            None => "at the end".to_owned(),
        };
        let side = if char == '(' { "an opening" } else { "a closing" };
        Err(format!("{side} parenthesis is missing {place}"))
    }

    fn filter(&mut self, depth: usize) -> Result<FilterExpr, String> {
        if depth == 0 {
            return Err(format!("more than {DEPTH_MAX} nested parentheses"));
        }
        self.expect('(')?;
        self.rest = self.rest.trim_ascii_start();
        let filter = if self.take_if('&') {
            FilterExpr::All(self.filters(depth - 1)?)
        } else if self.take_if('|') {
            FilterExpr::Any(self.filters(depth - 1)?)
        } else if self.take_if('!') {
            FilterExpr::Not(Box::new(self.filter(depth - 1)?))
        } else {
            comparison(self.up_to_parenthesis())?
        };
        self.expect(')')?;
        Ok(filter)
    }

    fn filters(&mut self, depth: usize) -> Result<Vec<FilterExpr>, String> {
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

fn comparison(text: &str) -> Result<FilterExpr, String> {
    let Some((left, value)) = text.split_once('=') else {
        return Err(format!("{text:?} lacks an equals sign"));
    };
    if let Some(left) = left.strip_suffix(':') {
        return extensible(left, value);
    }
    let signs =
        [('>', MatchOperator::AtLeast), ('<', MatchOperator::AtMost), ('~', MatchOperator::Like)];
    let signed = signs.iter().find_map(|(sign, how)| Some((left.strip_suffix(*sign)?, *how)));
    let (left, how) = signed.unwrap_or((left, MatchOperator::Equal));
    let attribute = parse_attribute(left)?;
    if how == MatchOperator::Equal && value == "*" {
        return Ok(FilterExpr::Present(attribute));
    }
    if how == MatchOperator::Equal && value.contains('*') {
        return substrings(attribute, value);
    }
    Ok(FilterExpr::Compare(how, attribute, unescape_value(value)?))
}

fn parse_attribute(text: &str) -> Result<String, String> {
    let name = text.trim_ascii();
    if name.is_empty() {
        return Err("a comparison names no attribute".to_owned());
    }
    attribute(name).map_err(|_| format!("{name:?} is not an attribute name"))?;
    Ok(name.to_owned())
}

fn substrings(attribute: String, value: &str) -> Result<FilterExpr, String> {
    let mut pieces = value.split('*').map(unescape_value).collect::<Result<Vec<_>, _>>()?;
    let last = pieces.pop().unwrap_or_default();
    let any = pieces.split_off(1);
    let initial = pieces.pop().unwrap_or_default();
    if any.iter().any(Vec::is_empty) {
        return Err(format!("{value:?} has two adjacent asterisks"));
    }
    Ok(FilterExpr::Substrings { attribute, initial, any, last })
}

/// Parses an extensible match. `left` is the text before `:=`.
fn extensible(left: &str, value: &str) -> Result<FilterExpr, String> {
    let mut pieces = left.split(':');
    let attribute = pieces.next().unwrap_or_default();
    let attribute = if attribute.is_empty() { None } else { Some(parse_attribute(attribute)?) };
    let (mut rule, mut of_dn) = (None, false);
    for piece in pieces {
        if piece.eq_ignore_ascii_case("dn") && !of_dn && rule.is_none() {
            of_dn = true;
        } else if rule.is_none() {
            rule = Some(parse_attribute(piece)?);
        } else {
            return Err(format!("{left:?} names two matching rules"));
        }
    }
    if attribute.is_none() && rule.is_none() {
        return Err("a comparison names no attribute".to_owned());
    }
    Ok(FilterExpr::Extensible { attribute, rule, of_dn, value: unescape_value(value)? })
}

/// Returns the bytes of a value, with `\xx` decoded.
fn unescape_value(text: &str) -> Result<Vec<u8>, String> {
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

const BACKSLASH: &str = "a backslash requires two hexadecimal digits after it (\\2a is *, \\28 and \
                         \\29 are parentheses, \\5c is a backslash)";

/// Checks a search filter by RFC 4515. The error has a fix for missing outer parentheses.
pub(crate) fn check_filter(text: &str) -> Result<(), CodedError> {
    let Err(why) = parse(text) else { return Ok(()) };
    let text_of_error = format!("{text:?} is not a valid filter: {why}");
    let error = CodedError::new(&codes::INVALID_FILTER, text_of_error);
    // The most common mistake: some tools add the outermost parentheses.
    let wrapped = format!("({text})");
    Err(match !text.starts_with('(') && parse(&wrapped).is_ok() {
        true => error.fix(format!("Write {wrapped:?}.")),
        false => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_text_parses_to_its_meaning() {
        let equal = |attribute: &str, value: &str| {
            FilterExpr::Compare(MatchOperator::Equal, attribute.into(), value.into())
        };
        assert_eq!(parse("(cn=\\2a\\28b)"), Ok(equal("cn", "*(b")));
        assert_eq!(parse(" ( cn=a b) "), Ok(equal("cn", "a b")));
        assert_eq!(parse("(cn=)"), Ok(equal("cn", "")));
        assert_eq!(parse("(cn=*)"), Ok(FilterExpr::Present("cn".into())));
        assert_eq!(parse("(&)"), Ok(FilterExpr::All(vec![])));
        assert_eq!(
            parse("(& (a=b) (!(c>=d)) )"),
            Ok(FilterExpr::All(vec![
                equal("a", "b"),
                FilterExpr::Not(
                    FilterExpr::Compare(MatchOperator::AtLeast, "c".into(), b"d".into()).into()
                ),
            ]))
        );
        assert_eq!(
            parse("(cn=*a*\\2a*)"),
            Ok(FilterExpr::Substrings {
                attribute: "cn".into(),
                initial: vec![],
                any: vec![b"a".into(), b"*".into()],
                last: vec![],
            })
        );
        assert_eq!(
            parse("(:dn:2.4.6:=x)"),
            Ok(FilterExpr::Extensible {
                attribute: None,
                rule: Some("2.4.6".into()),
                of_dn: true,
                value: b"x".into(),
            })
        );
    }

    #[test]
    fn filter_mistakes_are_described() {
        for (text, why) in [
            ("(objectClass=posixAccount", "a closing parenthesis is missing at the end"),
            ("(a=b)(c=d)", "\"(c=d)\" follows the last parenthesis"),
            ("(&(a=b)", "a closing parenthesis is missing at the end"),
            ("(a)", "lacks an equals sign"),
            ("(!a=b)", "an opening parenthesis is missing before 'a'"),
            ("(!)", "an opening parenthesis is missing before ')'"),
            ("(=x)", "names no attribute"),
            ("(:=x)", "names no attribute"),
            ("(c n=x)", "\"c n\" is not an attribute name"),
            ("(cn:a:b:=x)", "two matching rules"),
            ("(cn=\\zz)", "two hexadecimal digits"),
            ("(cn=\\2)", "two hexadecimal digits"),
            ("(cn=\\)", "two hexadecimal digits"),
            ("(cn=**)", "two adjacent asterisks"),
            ("(cn=a**b)", "two adjacent asterisks"),
            ("", "an opening parenthesis is missing at the end"),
        ] {
            let wrong = parse(text).unwrap_err();
            assert!(wrong.contains(why), "{text}: {wrong}");
        }
        let deep = format!("{}(a=b){}", "(!".repeat(100_000), ")".repeat(100_000));
        assert!(parse(&deep).unwrap_err().contains("nested parentheses"));
    }

    #[test]
    fn filter_without_parentheses_names_the_fix() {
        assert!(check_filter("(&(objectClass=posixAccount)(!(uid=root)))").is_ok());
        assert!(check_filter("(cn=**)").unwrap_err().text.contains("two adjacent asterisks"));
        assert_eq!(check_filter("uid=x").unwrap_err().fix.as_deref(), Some("Write \"(uid=x)\"."));
    }
}
