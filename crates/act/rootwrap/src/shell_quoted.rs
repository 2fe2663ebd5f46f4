// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words in the syntax of bash, for messages and logs. This module starts no shell. `explain` and `audit_record` print
//! them.

use std::ffi::OsString;
use std::fmt::{self, Write};

/// Format characters (Cf) and separators of lines and paragraphs (Zl, Zp). They change the display of their neighbours,
/// or end a line.
const FORMATS: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// Returns true if a character is not visible as itself.
fn is_hidden(char: char) -> bool {
    char.is_control() || FORMATS.iter().any(|&(first, last)| (first..=last).contains(&char))
}

/// A word in the syntax of bash, with any bytes.
#[derive(Debug)]
pub struct ShellQuoted<'w>(pub &'w OsString);

impl fmt::Display for ShellQuoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |char: char| char.is_alphanumeric() || "%+,-./:=@_^".contains(char);
        match self.0.to_str() {
            Some(text) if !text.is_empty() && text.chars().all(plain) => f.write_str(text),
            Some(text) if !text.chars().any(|char| is_hidden(char) || char == '\'') => {
                write!(f, "'{text}'")
            }
            _ => {
                f.write_str("$'")?;
                for byte in self.0.as_encoded_bytes() {
                    match byte {
                        b'\'' | b'\\' => write!(f, "\\{}", char::from(*byte))?,
                        b'\n' => f.write_str("\\n")?,
                        b' '..=b'~' => f.write_char(char::from(*byte))?,
                        byte => write!(f, "\\x{byte:02x}")?,
                    }
                }
                f.write_char('\'')
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_can_be_typed_again() {
        use std::os::unix::ffi::OsStringExt;
        for (word, typed) in [("a-b/c", "a-b/c"), ("", "''"), ("a b", "'a b'"), ("a\n", "$'a\\n'")]
        {
            assert_eq!(ShellQuoted(&word.into()).to_string(), typed);
        }
        assert_eq!(ShellQuoted(&OsString::from_vec(vec![b'a', 0xff])).to_string(), "$'a\\xff'");
    }

    #[test]
    fn characters_that_change_a_line_are_escaped() {
        for char in "\u{ad}\u{61c}\u{200b}\u{200f}\u{2028}\u{2029}\u{202e}\u{2069}\u{feff}\u{e0041}\u{7f}\u{85}\n".chars()
        {
            assert!(is_hidden(char), "{char:?}");
        }
        for char in "a é'\u{a0}\u{200a}\u{2027}\u{202f}\u{2065}\u{e0080}".chars() {
            assert!(!is_hidden(char), "{char:?}");
        }
        // Unicode 15 and 16 have 170 characters of category Cf.
        let count =
            ('\0'..=char::MAX).filter(|&char| is_hidden(char) && !char.is_control()).count();
        assert_eq!(count, 170 + 2);
        let typed = ShellQuoted(&"a\u{202e}b".into()).to_string();
        assert_eq!(typed, r"$'a\xe2\x80\xaeb'");
    }
}
