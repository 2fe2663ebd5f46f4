// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of Python's strings and paths that oslo.rootwrap uses, on bytes. They read no files:
//! [`realpath`](mod@crate::realpath) does.

use crate::unicode_tables::decimal_value;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// `str.isspace` of one character, for `str.strip` and `\s`. It has four separators more than Unicode's White_Space.
pub(crate) fn is_space(char: char) -> bool {
    char.is_whitespace() || ('\x1c'..='\x1f').contains(&char)
}

/// `str.strip()`.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// `int(text)`, with digits of all scripts. A number beyond 64 bits becomes the limit of its sign.
pub(crate) fn int(text: &str) -> Option<i64> {
    let text = strip(text);
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    // One underscore may separate two digits. CPython rejects more than 4,300 digits.
    if digits.split('_').any(str::is_empty) {
        return None;
    }
    let digits = digits.chars().filter(|&char| char != '_').map(decimal_value);
    let digits = digits.collect::<Option<Vec<_>>>().filter(|digits| digits.len() <= 4300)?;
    let value =
        digits.iter().fold(0_i64, |value, digit| value.saturating_mul(10).saturating_add(*digit));
    Some(if negative { -value } else { value })
}

/// `os.path.basename`.
pub(crate) fn basename(path: &OsStr) -> &OsStr {
    let bytes = path.as_bytes();
    let start = bytes.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    OsStr::from_bytes(&bytes[start..])
}

/// `os.path.dirname`.
pub(crate) fn dirname(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let head = &path[..end];
    match head.iter().rposition(|&byte| byte != b'/') {
        Some(last) => &head[..=last],
        None => head,
    }
}

/// `os.path.join` of two.
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if is_absolute(name) {
        return name.to_vec();
    }
    let slash: &[u8] = if folder.is_empty() || folder.ends_with(b"/") { b"" } else { b"/" };
    [folder, slash, name].concat()
}

/// `os.path.isabs`.
pub(crate) fn is_absolute(path: &[u8]) -> bool {
    path.starts_with(b"/")
}

/// `os.path.normpath`: two slashes at the start stay two.
pub(crate) fn normpath(path: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return b".".to_vec();
    }
    let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
    let start: &[u8] = match slashes {
        0 => b"",
        2 => b"//",
        _ => b"/",
    };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if !start.is_empty() && parts.is_empty() => {}
            b".." if parts.last().is_some_and(|last| *last != b"..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let whole = [start, &parts.join(&b'/')].concat();
    if whole.is_empty() { b".".to_vec() } else { whole }
}

/// Converts bytes to a path.
pub(crate) fn os_string(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_python_reads_them() {
        for (text, value) in [
            ("0", Some(0)),
            (" +12\n", Some(12)),
            ("-5", Some(-5)),
            ("1_000", Some(1000)),
            ("007", Some(7)),
            ("١_٢", Some(12)),
            ("१1", Some(11)),
            ("²", None),
            ("99999999999999999999", Some(i64::MAX)),
            ("", None),
            ("_1", None),
            ("1_", None),
            ("1__0", None),
            ("--1", None),
            ("1.0", None),
            ("0x10", None),
        ] {
            assert_eq!(int(text), value, "{text:?}");
        }
        assert_eq!(int(&"1".repeat(4301)), None);
    }

    #[test]
    fn paths_are_taken_apart_as_python_takes_them_apart() {
        let base = |path: &str| basename(OsStr::new(path)).to_str().unwrap().to_owned();
        assert_eq!((base("/a/b"), base("b"), base("/a/")), ("b".into(), "b".into(), "".into()));
        for (path, folder) in
            [("/a/b", "/a"), ("/a", "/"), ("a", ""), ("//a", "//"), ("/a//b", "/a")]
        {
            assert_eq!(dirname(path.as_bytes()), folder.as_bytes(), "{path}");
        }
        assert_eq!(join(b"", b"x"), b"x");
        assert_eq!(join(b"/a", b"x"), b"/a/x");
        assert_eq!(join(b"/a/", b"/x"), b"/x");
        for (path, normal) in [
            ("", "."),
            ("/../a", "/a"),
            ("//a/./b/..", "//a"),
            ("///a", "/a"),
            ("../a/../..", "../.."),
        ] {
            assert_eq!(normpath(path.as_bytes()), normal.as_bytes(), "{path}");
        }
    }
}
