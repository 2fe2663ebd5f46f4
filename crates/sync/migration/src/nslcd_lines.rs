// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines of nslcd.conf: a keyword and its arguments. This module opens no file: `source_file` does. `nslcd`
//! converts the options.

use crate::syntax::{SETTINGS_MAX, SyntaxError, text_of_file};

/// One option and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NslcdOption {
    /// Keyword in lower case.
    pub name: String,
    /// The rest of the line, without spaces around it.
    pub value: String,
    /// Line, from 1.
    pub line: u32,
}

impl NslcdOption {
    /// Splits the first word from the rest.
    #[must_use]
    pub fn first_word(&self) -> (&str, &str) {
        match self.value.split_once(char::is_whitespace) {
            Some((first, rest)) => (first, rest.trim()),
            None => (&self.value, ""),
        }
    }
}

/// Parses the text of the file. nslcd knows no continuation of lines, and comments on their own line only.
///
/// # Errors
///
/// The file is too large, or not UTF-8.
pub fn parse(bytes: &[u8]) -> Result<Vec<NslcdOption>, SyntaxError> {
    let text = text_of_file(bytes)?;
    let mut options = Vec::new();
    for (line, raw) in (1..).zip(text.lines()) {
        let trimmed = raw.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        if options.len() >= SETTINGS_MAX {
            return Err(SyntaxError::new(line, "exceeds the limit of 20,000 options"));
        }
        let (name, value) = match trimmed.split_once(char::is_whitespace) {
            Some((name, value)) => (name, value.trim()),
            None => (trimmed, ""),
        };
        let name = name.to_ascii_lowercase();
        options.push(NslcdOption { name, value: value.to_owned(), line });
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nslcd_lines_split_keyword_and_rest() {
        let found =
            parse(b"# c\nURI\tldap://a ldap://b\n  base passwd  ou=p,dc=x \nssl\n").unwrap();
        let rows: Vec<_> = found.iter().map(|one| (&*one.name, &*one.value, one.line)).collect();
        assert_eq!(
            rows,
            [("uri", "ldap://a ldap://b", 2), ("base", "passwd  ou=p,dc=x", 3), ("ssl", "", 4)]
        );
        assert_eq!(found[1].first_word(), ("passwd", "ou=p,dc=x"));
        assert_eq!(found[2].first_word(), ("", ""));
    }
}
