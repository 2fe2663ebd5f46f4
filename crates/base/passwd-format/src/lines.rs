// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads lines of passwd(5), group(5) and shadow(5) exactly as glibc's `files` service does.
//!
//! The rules were taken from the behaviour of glibc 2.36, and the differential tests compare them. Three of them are
//! surprising:
//! - White space before an entry is ignored.
//! - Numbers are those of strtoul(3) if they fit into 32 bits: `-1` is skipped, and `-18446744073709551615` is 1.
//! - initgroups processes group lines less than lookups do, see [`initgroups_line`].
//!
//! One defect is not copied. When `files` skips white space before an entry, it does not adjust the end of the string.
//! If no newline ends such a line, its last bytes are read twice. That happens for the last line, or for a line with a
//! NUL. `  b:x:2:2:::/bin/sh` then gets the shell `/bin/shsh`. This module returns the shell as written.

use crate::{Group, Shadow, User, is_nis};
use core::fmt;

/// Result of reading one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedLine<T> {
    /// An entry that `files` serves.
    Entry(T),
    /// An empty line, or a `#` comment.
    Blank,
    /// A line that `files` skips silently; reports show the reason.
    Skipped(SkipReason),
}

/// Reasons that `files` skips a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The line ends before this field.
    Missing(&'static str),
    /// The named field is not a number, or has other characters after the number.
    NotANumber(&'static str),
    /// The named field has a number that does not fit into 32 bits, such as a negative one.
    OutOfRange(&'static str),
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(field) => write!(f, "the {field} field is missing"),
            Self::NotANumber(field) => write!(f, "the {field} field is not a number"),
            Self::OutOfRange(field) => {
                write!(f, "the {field} field is not between 0 and {}", u32::MAX)
            }
        }
    }
}

/// A group line: the entry, and its member list as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLine<'a> {
    /// Name, password, gid.
    pub group: Group<'a>,
    /// The fourth field and all text after it.
    members: &'a [u8],
}

impl<'a> GroupLine<'a> {
    /// Returns the member names in source order, including duplicates.
    #[must_use]
    pub fn members(&self) -> MemberNames<'a> {
        MemberNames { rest: self.members }
    }
}

/// Iterator over the names of a member list. Commas separate the names. White space before a name is ignored, but not
/// after it. Empty names are omitted.
#[derive(Clone, Debug)]
pub struct MemberNames<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for MemberNames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let text = skip_space(self.rest);
            let (name, rest) = split(text, b',');
            self.rest = rest;
            if !name.is_empty() {
                return Some(name);
            }
        }
        None
    }
}

/// Reads a passwd line, without its newline.
#[must_use]
pub fn passwd_line(line: &[u8]) -> ParsedLine<User<'_>> {
    parse_trimmed(line, |text| {
        let mut fields = FieldReader { rest: text };
        let name = fields.string();
        if fields.rest.is_empty() && is_nis(name) {
            let none = None;
            return Ok(User {
                name,
                passwd: none,
                uid: 0,
                gid: 0,
                gecos: none,
                dir: none,
                shell: none,
            });
        }
        let passwd = Some(fields.string());
        let (uid, gid) = if is_nis(name) {
            (
                fields.optional_number("uid")?.unwrap_or(0),
                fields.optional_number("gid")?.unwrap_or(0),
            )
        } else {
            (fields.number("uid")?, fields.number("gid")?)
        };
        let gecos = Some(fields.string());
        let dir = Some(fields.string());
        Ok(User { name, passwd, uid, gid, gecos, dir, shell: Some(fields.rest) })
    })
}

/// Reads a group line, without its newline, as getgrnam(3), getgrgid(3) and getgrent(3) do.
#[must_use]
pub fn group_line(line: &[u8]) -> ParsedLine<GroupLine<'_>> {
    parse_trimmed(line, group)
}

/// Reads a group line as initgroups(3) does. White space before the name belongs to the name. A `#` at the start does
/// not begin a comment, so a commented-out group still counts.
#[must_use]
pub fn initgroups_line(line: &[u8]) -> ParsedLine<GroupLine<'_>> {
    match group(until_nul(line)) {
        Ok(entry) => ParsedLine::Entry(entry),
        Err(skip) => ParsedLine::Skipped(skip),
    }
}

/// Returns whether [`initgroups_line`] and [`group_line`] can differ on this line.
#[must_use]
pub fn initgroups_differs(line: &[u8]) -> bool {
    line.first().is_some_and(|&byte| byte == b'#' || is_space(byte))
}

/// Reads a shadow line, without its newline.
#[must_use]
pub fn shadow_line(line: &[u8]) -> ParsedLine<Shadow<'_>> {
    parse_trimmed(line, |text| {
        let mut fields = FieldReader { rest: text };
        let name = fields.string();
        let mut entry = Shadow {
            name,
            passwd: None,
            last_change: 0,
            min: 0,
            max: 0,
            warn: -1,
            inactive: -1,
            expire: -1,
            flag: u64::MAX,
        };
        if fields.rest.is_empty() && is_nis(name) {
            return Ok(entry);
        }
        entry.passwd = Some(fields.string());
        entry.last_change = fields.days("last change")?;
        entry.min = fields.days("minimum age")?;
        entry.max = fields.days("maximum age")?;
        fields.rest = skip_space(fields.rest);
        if fields.rest.is_empty() {
            return Ok(entry);
        }
        entry.warn = fields.days("warning period")?;
        entry.inactive = fields.days("inactivity period")?;
        entry.expire = fields.days("expiry")?;
        if !fields.rest.is_empty() {
            entry.flag = fields.last_number("flag")?.map_or(u64::MAX, u64::from);
        }
        Ok(entry)
    })
}

fn group(text: &[u8]) -> Result<GroupLine<'_>, SkipReason> {
    let mut fields = FieldReader { rest: text };
    let name = fields.string();
    if fields.rest.is_empty() && is_nis(name) {
        return Ok(GroupLine { group: Group { name, passwd: None, gid: 0 }, members: b"" });
    }
    let passwd = Some(fields.string());
    let gid = if is_nis(name) {
        fields.optional_number("gid")?.unwrap_or(0)
    } else {
        fields.number("gid")?
    };
    Ok(GroupLine { group: Group { name, passwd, gid }, members: fields.rest })
}

/// Prepares a line for lookups. The line ends at a NUL, and leading white space is removed. Empty lines and comments
/// are blank.
fn parse_trimmed<'a, T>(
    line: &'a [u8],
    parse: impl FnOnce(&'a [u8]) -> Result<T, SkipReason>,
) -> ParsedLine<T> {
    let text = skip_space(until_nul(line));
    if matches!(text.first(), None | Some(b'#')) {
        return ParsedLine::Blank;
    }
    match parse(text) {
        Ok(entry) => ParsedLine::Entry(entry),
        Err(skip) => ParsedLine::Skipped(skip),
    }
}

struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    fn string(&mut self) -> &'a [u8] {
        let (field, rest) = split(self.rest, b':');
        self.rest = rest;
        field
    }

    fn number(&mut self, field: &'static str) -> Result<u32, SkipReason> {
        if self.rest.is_empty() {
            return Err(SkipReason::Missing(field));
        }
        self.optional_number(field)?.ok_or(SkipReason::NotANumber(field))
    }

    /// Reads a number that may be empty, but not missing.
    fn optional_number(&mut self, field: &'static str) -> Result<Option<u32>, SkipReason> {
        if self.rest.is_empty() {
            return Err(SkipReason::Missing(field));
        }
        let (value, rest) = match strtoul(self.rest) {
            Some((value, rest)) => (Some(value), rest),
            None => (None, self.rest),
        };
        self.expect_number_end(rest, field)?;
        value.map(|value| to_u32(value, field)).transpose()
    }

    /// Reads a number at the end of the line.
    fn last_number(&mut self, field: &'static str) -> Result<Option<u32>, SkipReason> {
        match strtoul(self.rest) {
            Some((value, b"")) => to_u32(value, field).map(Some),
            _ => Err(SkipReason::NotANumber(field)),
        }
    }

    /// Reads a number of days: an empty field is −1, and glibc truncates the number to an `int`.
    fn days(&mut self, field: &'static str) -> Result<i32, SkipReason> {
        Ok(self.optional_number(field)?.map_or(-1, u32::cast_signed))
    }

    fn expect_number_end(&mut self, rest: &'a [u8], field: &'static str) -> Result<(), SkipReason> {
        self.rest = match rest {
            [] => rest,
            [b':', rest @ ..] => rest,
            _ => return Err(SkipReason::NotANumber(field)),
        };
        Ok(())
    }
}

fn to_u32(value: u64, field: &'static str) -> Result<u32, SkipReason> {
    u32::try_from(value).map_err(|_| SkipReason::OutOfRange(field))
}

/// Parses as strtoul(3) does with base 10. A minus sign negates as for an unsigned long, and larger values become the
/// largest one. Returns `None` without a digit.
fn strtoul(text: &[u8]) -> Option<(u64, &[u8])> {
    let (negative, digits) = match skip_space(text) {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = digits.split_at_checked(count)?;
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    let value = match value {
        Some(value) if negative => value.wrapping_neg(),
        Some(value) => value,
        None => u64::MAX,
    };
    Some((value, rest))
}

fn split(text: &[u8], at: u8) -> (&[u8], &[u8]) {
    match text.iter().position(|&byte| byte == at) {
        Some(end) => (text.get(..end).unwrap_or(b""), text.get(end + 1..).unwrap_or(b"")),
        None => (text, b""),
    }
}

fn until_nul(line: &[u8]) -> &[u8] {
    split(line, 0).0
}

fn skip_space(text: &[u8]) -> &[u8] {
    let count = text.iter().take_while(|&&byte| is_space(byte)).count();
    text.get(count..).unwrap_or(b"")
}

/// Returns whether isspace(3) holds in the C locale.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    #[track_caller]
    fn user(line: &str) -> User<'_> {
        match passwd_line(line.as_bytes()) {
            ParsedLine::Entry(user) => user,
            other => panic!("{line:?} is {other:?}"),
        }
    }

    #[test]
    fn a_user_may_end_after_the_gid() {
        let user = user("a:x:1:2");
        assert_eq!((user.uid, user.gid), (1, 2));
        assert_eq!(
            (user.gecos, user.dir, user.shell),
            (Some(&b""[..]), Some(&b""[..]), Some(&b""[..]))
        );
    }

    #[test]
    fn a_shell_keeps_its_colons_and_carriage_return() {
        assert_eq!(user("a:x:1:2:g:/h:/bin/sh:x\r").shell, Some(&b"/bin/sh:x\r"[..]));
    }

    #[test]
    fn numbers_are_those_of_strtoul() {
        for (text, uid) in [
            ("7", 7),
            (" +7", 7),
            ("-0", 0),
            ("4294967295", u32::MAX),
            ("-18446744073709551615", 1),
            ("-18446744069414584321", u32::MAX),
            ("007", 7),
        ] {
            assert_eq!(user(&std::format!("a:x:{text}:0")).uid, uid, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_number_is_skipped_and_named() {
        for (line, skip) in [
            ("a", SkipReason::Missing("uid")),
            ("a:x", SkipReason::Missing("uid")),
            ("a:x::2", SkipReason::NotANumber("uid")),
            ("a:x:1", SkipReason::Missing("gid")),
            ("a:x:1x:2", SkipReason::NotANumber("uid")),
            ("a:x:1 :2", SkipReason::NotANumber("uid")),
            ("a:x:0x1:2", SkipReason::NotANumber("uid")),
            ("a:x:-1:2", SkipReason::OutOfRange("uid")),
            ("a:x:1:4294967296", SkipReason::OutOfRange("gid")),
            ("a:x:99999999999999999999:2", SkipReason::OutOfRange("uid")),
            ("+a:x:-2:2", SkipReason::OutOfRange("uid")),
            ("+a:x", SkipReason::Missing("uid")),
        ] {
            assert_eq!(passwd_line(line.as_bytes()), ParsedLine::Skipped(skip), "{line:?}");
        }
    }

    #[test]
    fn nis_lines_have_null_fields_only_when_bare() {
        assert_eq!(user("+").passwd, None);
        assert_eq!(user("+:").shell, None);
        assert_eq!(user("+a::::::").passwd, Some(&b""[..]));
        assert_eq!(user("-a:x:::").uid, 0);
    }

    #[test]
    fn comments_blanks_and_nul() {
        for line in [&b""[..], b"  \t", b"# x:x:1:1", b"  #", b"\r", b"\0a:x:1:1"] {
            assert_eq!(passwd_line(line), ParsedLine::Blank, "{line:?}");
        }
        assert_eq!(user("  a:x:1:2:g\0h").gecos, Some(&b"g"[..]));
    }

    #[test]
    fn members_lose_leading_space_and_empty_names() {
        let ParsedLine::Entry(line) = group_line(b"g:x:5:, a ,,\tb,b, ,c\r") else { panic!() };
        let members: Vec<_> = line.members().collect();
        assert_eq!(members, [&b"a "[..], b"b", b"b", b"c\r"]);
    }

    #[test]
    fn initgroups_reads_comments() {
        let line = b"#g:x:5:a";
        assert_eq!(group_line(line), ParsedLine::Blank);
        assert!(initgroups_differs(line));
        let ParsedLine::Entry(line) = initgroups_line(line) else { panic!() };
        assert_eq!((line.group.name, line.group.gid), (&b"#g"[..], 5));
    }

    #[test]
    fn initgroups_differs_after_comment_or_space() {
        for (line, differs) in [
            (&b"#g:x:5:a"[..], true),
            (b" g:x:5:a", true),
            (b"\tg:x:5:a", true),
            (b"g:x:5:a", false),
            (b"g #:x:5:a", false),
            (b"+g:::a", false),
            (b"", false),
        ] {
            assert_eq!(initgroups_differs(line), differs, "{}", line.escape_ascii());
            // If the result is `false`, both readers must agree.
            if !differs && !line.is_empty() {
                assert_eq!(group_line(line), initgroups_line(line), "{}", line.escape_ascii());
            }
        }
    }

    #[test]
    fn bare_name_is_entry_only_with_nis_sign() {
        let group = Group { name: b"+", passwd: None, gid: 0 };
        assert_eq!(group_line(b"+"), ParsedLine::Entry(GroupLine { group, members: b"" }));
        assert_eq!(group_line(b"g"), ParsedLine::Skipped(SkipReason::Missing("gid")));
        assert_eq!(initgroups_line(b"g"), ParsedLine::Skipped(SkipReason::Missing("gid")));
        assert_eq!(shadow_line(b"a"), ParsedLine::Skipped(SkipReason::Missing("last change")));
        assert_eq!(shadow_line(b"a:"), ParsedLine::Skipped(SkipReason::Missing("last change")));
    }

    #[test]
    fn shadow_bare_nis_line_has_defaults() {
        let entry = Shadow {
            name: b"+",
            passwd: None,
            last_change: 0,
            min: 0,
            max: 0,
            warn: -1,
            inactive: -1,
            expire: -1,
            flag: u64::MAX,
        };
        assert_eq!(shadow_line(b"+"), ParsedLine::Entry(entry));
        assert_eq!(shadow_line(b"-@x:"), ParsedLine::Entry(Shadow { name: b"-@x", ..entry }));
    }

    #[test]
    fn skip_reason_names_field_and_limit() {
        for (skip, text) in [
            (SkipReason::Missing("uid"), "the uid field is missing"),
            (SkipReason::NotANumber("gid"), "the gid field is not a number"),
            (SkipReason::OutOfRange("uid"), "the uid field is not between 0 and 4294967295"),
        ] {
            assert_eq!(std::format!("{skip}"), text);
        }
    }

    #[test]
    fn shadow_has_an_old_and_a_new_form() {
        let ParsedLine::Entry(old) = shadow_line(b"a:*:19000:0:99999: ") else { panic!() };
        assert_eq!((old.last_change, old.max, old.warn, old.flag), (19000, 99999, -1, u64::MAX));
        let ParsedLine::Entry(new) = shadow_line(b"a:$6$x::::7::20000:3") else { panic!() };
        assert_eq!((new.last_change, new.warn, new.inactive), (-1, 7, -1));
        assert_eq!((new.expire, new.flag), (20000, 3));
        assert_eq!(
            shadow_line(b"a:*:1:2"),
            ParsedLine::Skipped(SkipReason::Missing("maximum age"))
        );
        assert_eq!(
            shadow_line(b"a:*:1:2:3:4:5:6:7:"),
            ParsedLine::Skipped(SkipReason::NotANumber("flag"))
        );
    }
}
