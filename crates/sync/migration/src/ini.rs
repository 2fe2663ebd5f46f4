// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines of sssd.conf, as the library of SSSD reads them: `[section]`, `key = value`, comments.
//!
//! A line never continues the previous one, even if it begins with spaces. Values keep their quotes. The last one of equal keys in a
//! section counts. Section and key names are compared without case. This module opens no file.

use crate::syntax::{SETTINGS_MAX, SyntaxError, text_of_file};

/// One setting and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IniSetting {
    /// Name of the section as written, without spaces around it.
    pub section: String,
    /// Name of the setting in lower case.
    pub name: String,
    /// Value without spaces around it.
    pub value: String,
    /// Line, from 1.
    pub line: u32,
}

/// Parses the text of one file.
///
/// # Errors
///
/// A line has another form, or stands before the first section. SSSD refuses such a file as well.
pub fn parse(bytes: &[u8]) -> Result<Vec<IniSetting>, SyntaxError> {
    let text = text_of_file(bytes)?;
    let mut settings = Vec::new();
    let mut section: Option<String> = None;
    let mut in_comment = false;
    for (line, raw) in (1..).zip(text.lines()) {
        let trimmed = raw.trim();
        if in_comment || trimmed.starts_with("/*") {
            in_comment = !trimmed.ends_with("*/");
            continue;
        }
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = raw.trim_end().strip_prefix('[') {
            section = Some(section_name(rest, line)?);
            continue;
        }
        let Some((name, value)) = trimmed.split_once('=') else {
            return Err(SyntaxError::new(line, "is not a section, a comment or key = value"));
        };
        let (name, value) = (name.trim(), value.trim());
        let Some(section) = &section else {
            return Err(SyntaxError::new(line, "stands before the first section"));
        };
        if name.is_empty() {
            return Err(SyntaxError::new(line, "has no key before the equals sign"));
        }
        if settings.len() >= SETTINGS_MAX {
            return Err(SyntaxError::new(line, "exceeds the limit of 20,000 settings"));
        }
        let name = name.to_ascii_lowercase();
        settings.push(IniSetting { section: section.clone(), name, value: value.to_owned(), line });
    }
    Ok(settings)
}

fn section_name(rest: &str, line: u32) -> Result<String, SyntaxError> {
    let Some(name) = rest.strip_suffix(']') else {
        return Err(SyntaxError::new(line, "opens a section without a closing bracket at its end"));
    };
    let name = name.trim();
    if name.is_empty() || name.contains(['[', ']']) {
        return Err(SyntaxError::new(line, "is not the name of a section"));
    }
    Ok(name.to_owned())
}

/// Splits a list at its commas. Empty elements do not count.
#[must_use]
pub fn list(value: &str) -> Vec<&str> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::FILE_BYTES_MAX;

    fn rows(text: &str) -> Vec<(String, String, String, u32)> {
        let settings = parse(text.as_bytes()).unwrap();
        settings.into_iter().map(|one| (one.section, one.name, one.value, one.line)).collect()
    }

    #[test]
    fn ini_odd_spacing_keeps_values() {
        let text = "# c\n; c\n\n[ sssd ] \nDomains=a, b\n  \tServices\t =\tnss , pam  \r\n\
                    /* two\nlines */\n[domain/Corp]\nldap_uri = \"x\" # y\nempty =\n";
        let row = |section: &str, name: &str, value: &str, line| {
            (section.to_owned(), name.to_owned(), value.to_owned(), line)
        };
        assert_eq!(
            rows(text),
            [
                row("sssd", "domains", "a, b", 5),
                row("sssd", "services", "nss , pam", 6),
                row("domain/Corp", "ldap_uri", "\"x\" # y", 10),
                row("domain/Corp", "empty", "", 11),
            ]
        );
    }

    #[test]
    fn ini_malformed_line_is_error_with_line() {
        for (text, line) in [
            ("key = value\n", 1),
            ("[sssd]\nnonsense\n", 2),
            ("[sssd\n", 1),
            ("[]\n", 1),
            ("[sssd]\n  [nss]\n", 2),
            ("[sssd] # comment\n", 1),
            ("[sssd]\n\n= value\n", 3),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err().line, line, "{text:?}");
        }
        assert_eq!(parse(b"[sssd]\nx = \xff\n").unwrap_err().line, 2);
        assert_eq!(parse(&vec![b'\n'; FILE_BYTES_MAX + 1]).unwrap_err().line, 0);
    }

    #[test]
    fn ini_list_drops_empty_elements() {
        assert_eq!(list(" a ,, b b,"), ["a", "b b"]);
        assert!(list(" , ").is_empty());
    }
}
