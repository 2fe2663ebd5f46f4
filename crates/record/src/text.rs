//! Lines of passwd(5), group(5) and shadow(5), read exactly as glibc's `files` service reads them.
//!
//! The rules were taken from the behaviour of glibc 2.36 and are held to it by the differential
//! tests. Three of them surprise: white space before an entry is ignored, numbers are those of
//! strtoul(3) as long as they fit into 32 bits (so `-1` is skipped and `-18446744073709551615` is
//! 1), and initgroups reads group lines rawer than the look-ups do, see [`initgroups_line`].
//!
//! One oddity is not copied. When `files` drops white space in front of an entry, it forgets to
//! move the end of the string along, so that a line that no newline ends (the last one, or one with
//! a NUL in it) is read with its last bytes doubled: `  b:x:2:2:::/bin/sh` gets the shell
//! `/bin/shsh`. Here it gets the one that was written.

use crate::{Group, Shadow, User, is_nis};
use core::fmt;

/// What one line is to `files`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<T> {
    /// An entry that it serves.
    Entry(T),
    /// Nothing, or a `#` comment.
    Blank,
    /// Something it passes over without a word; the reason is for the report.
    Skipped(Skip),
}

/// Why `files` passes over a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The line ends before this field.
    Missing(&'static str),
    /// This field is not a number, or has something after the number.
    NotANumber(&'static str),
    /// This field holds a number that does not fit into 32 bits, as negative ones do not.
    OutOfRange(&'static str),
}

impl fmt::Display for Skip {
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

/// A group line: the entry, and its member list still as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLine<'a> {
    /// Name, password, gid.
    pub group: Group<'a>,
    /// The fourth field and all after it.
    members: &'a [u8],
}

impl<'a> GroupLine<'a> {
    /// Member names in source order, duplicates included.
    #[must_use]
    pub fn members(&self) -> Members<'a> {
        Members { rest: self.members }
    }
}

/// Iterator over the names of a member list: separated by commas, white space before a name
/// ignored (not after it), empty names left out.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Members<'a> {
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
pub fn passwd_line(line: &[u8]) -> Line<User<'_>> {
    served(line, |text| {
        let mut fields = Fields { rest: text };
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

/// Reads a group line, without its newline, as getgrnam(3), getgrgid(3) and getgrent(3) see it.
#[must_use]
pub fn group_line(line: &[u8]) -> Line<GroupLine<'_>> {
    served(line, group)
}

/// Reads a group line as initgroups(3) sees it: white space before the name belongs to the name,
/// and a `#` at the start of a line is no comment, so that a commented-out group still counts.
#[must_use]
pub fn initgroups_line(line: &[u8]) -> Line<GroupLine<'_>> {
    match group(until_nul(line)) {
        Ok(entry) => Line::Entry(entry),
        Err(skip) => Line::Skipped(skip),
    }
}

/// Whether [`initgroups_line`] and [`group_line`] can differ on this line.
#[must_use]
pub fn initgroups_differs(line: &[u8]) -> bool {
    line.first().is_some_and(|&byte| byte == b'#' || is_space(byte))
}

/// Reads a shadow line, without its newline.
#[must_use]
pub fn shadow_line(line: &[u8]) -> Line<Shadow<'_>> {
    served(line, |text| {
        let mut fields = Fields { rest: text };
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

fn group(text: &[u8]) -> Result<GroupLine<'_>, Skip> {
    let mut fields = Fields { rest: text };
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

/// The reader in front of the look-ups: a line ends at a NUL, leading white space goes, empty
/// lines and comments are nothing.
fn served<'a, T>(line: &'a [u8], parse: impl FnOnce(&'a [u8]) -> Result<T, Skip>) -> Line<T> {
    let text = skip_space(until_nul(line));
    if matches!(text.first(), None | Some(b'#')) {
        return Line::Blank;
    }
    match parse(text) {
        Ok(entry) => Line::Entry(entry),
        Err(skip) => Line::Skipped(skip),
    }
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn string(&mut self) -> &'a [u8] {
        let (field, rest) = split(self.rest, b':');
        self.rest = rest;
        field
    }

    fn number(&mut self, field: &'static str) -> Result<u32, Skip> {
        if self.rest.is_empty() {
            return Err(Skip::Missing(field));
        }
        self.optional_number(field)?.ok_or(Skip::NotANumber(field))
    }

    /// A number whose place may be empty, though not missing.
    fn optional_number(&mut self, field: &'static str) -> Result<Option<u32>, Skip> {
        if self.rest.is_empty() {
            return Err(Skip::Missing(field));
        }
        let (value, rest) = match strtoul(self.rest) {
            Some((value, rest)) => (Some(value), rest),
            None => (None, self.rest),
        };
        self.end_of_number(rest, field)?;
        value.map(|value| u32_of(value, field)).transpose()
    }

    /// As [`Fields::optional_number`], but nothing may follow it.
    fn last_number(&mut self, field: &'static str) -> Result<Option<u32>, Skip> {
        match strtoul(self.rest) {
            Some((value, b"")) => u32_of(value, field).map(Some),
            _ => Err(Skip::NotANumber(field)),
        }
    }

    /// Days: an empty field is −1, and glibc cuts the number to an `int`.
    fn days(&mut self, field: &'static str) -> Result<i32, Skip> {
        Ok(self.optional_number(field)?.map_or(-1, u32::cast_signed))
    }

    fn end_of_number(&mut self, rest: &'a [u8], field: &'static str) -> Result<(), Skip> {
        self.rest = match rest {
            [] => rest,
            [b':', rest @ ..] => rest,
            _ => return Err(Skip::NotANumber(field)),
        };
        Ok(())
    }
}

fn u32_of(value: u64, field: &'static str) -> Result<u32, Skip> {
    u32::try_from(value).map_err(|_| Skip::OutOfRange(field))
}

/// strtoul(3), base 10: a minus sign negates as an unsigned long does, and what is above the
/// largest one is that. `None` when there is no digit.
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

/// isspace(3) in the C locale.
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
            Line::Entry(user) => user,
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
            ("a", Skip::Missing("uid")),
            ("a:x", Skip::Missing("uid")),
            ("a:x::2", Skip::NotANumber("uid")),
            ("a:x:1", Skip::Missing("gid")),
            ("a:x:1x:2", Skip::NotANumber("uid")),
            ("a:x:1 :2", Skip::NotANumber("uid")),
            ("a:x:0x1:2", Skip::NotANumber("uid")),
            ("a:x:-1:2", Skip::OutOfRange("uid")),
            ("a:x:1:4294967296", Skip::OutOfRange("gid")),
            ("a:x:99999999999999999999:2", Skip::OutOfRange("uid")),
            ("+a:x:-2:2", Skip::OutOfRange("uid")),
            ("+a:x", Skip::Missing("uid")),
        ] {
            assert_eq!(passwd_line(line.as_bytes()), Line::Skipped(skip), "{line:?}");
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
            assert_eq!(passwd_line(line), Line::Blank, "{line:?}");
        }
        assert_eq!(user("  a:x:1:2:g\0h").gecos, Some(&b"g"[..]));
    }

    #[test]
    fn members_lose_leading_space_and_empty_names() {
        let Line::Entry(line) = group_line(b"g:x:5:, a ,,\tb,b, ,c\r") else { panic!() };
        let members: Vec<_> = line.members().collect();
        assert_eq!(members, [&b"a "[..], b"b", b"b", b"c\r"]);
    }

    #[test]
    fn initgroups_reads_comments() {
        let line = b"#g:x:5:a";
        assert_eq!(group_line(line), Line::Blank);
        assert!(initgroups_differs(line));
        let Line::Entry(line) = initgroups_line(line) else { panic!() };
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
            // The promise behind the answer: where it is `false`, both readers agree.
            if !differs && !line.is_empty() {
                assert_eq!(group_line(line), initgroups_line(line), "{}", line.escape_ascii());
            }
        }
    }

    #[test]
    fn bare_name_is_entry_only_with_nis_sign() {
        let group = Group { name: b"+", passwd: None, gid: 0 };
        assert_eq!(group_line(b"+"), Line::Entry(GroupLine { group, members: b"" }));
        assert_eq!(group_line(b"g"), Line::Skipped(Skip::Missing("gid")));
        assert_eq!(initgroups_line(b"g"), Line::Skipped(Skip::Missing("gid")));
        assert_eq!(shadow_line(b"a"), Line::Skipped(Skip::Missing("last change")));
        assert_eq!(shadow_line(b"a:"), Line::Skipped(Skip::Missing("last change")));
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
        assert_eq!(shadow_line(b"+"), Line::Entry(entry));
        assert_eq!(shadow_line(b"-@x:"), Line::Entry(Shadow { name: b"-@x", ..entry }));
    }

    #[test]
    fn skip_reason_names_field_and_limit() {
        for (skip, text) in [
            (Skip::Missing("uid"), "the uid field is missing"),
            (Skip::NotANumber("gid"), "the gid field is not a number"),
            (Skip::OutOfRange("uid"), "the uid field is not between 0 and 4294967295"),
        ] {
            assert_eq!(std::format!("{skip}"), text);
        }
    }

    #[test]
    fn shadow_has_an_old_and_a_new_form() {
        let Line::Entry(old) = shadow_line(b"a:*:19000:0:99999: ") else { panic!() };
        assert_eq!((old.last_change, old.max, old.warn, old.flag), (19000, 99999, -1, u64::MAX));
        let Line::Entry(new) = shadow_line(b"a:$6$x::::7::20000:3") else { panic!() };
        assert_eq!((new.last_change, new.warn, new.inactive), (-1, 7, -1));
        assert_eq!((new.expire, new.flag), (20000, 3));
        assert_eq!(shadow_line(b"a:*:1:2"), Line::Skipped(Skip::Missing("maximum age")));
        assert_eq!(shadow_line(b"a:*:1:2:3:4:5:6:7:"), Line::Skipped(Skip::NotANumber("flag")));
    }
}
