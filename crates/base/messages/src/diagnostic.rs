// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mistake in a file that an administrator writes, with its position and its fix. [`CodedError`](crate::CodedError)
//! is the error of a command, without a position.

use crate::Message;
use std::fmt;
use std::path::{Path, PathBuf};

/// Severity of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is used. A value is probably a mistake.
    Warning,
    /// The file is used, and logins of a domain are denied until this is fixed.
    Refusal,
    /// The file is not used.
    Error,
}

/// One mistake. Its `Display` is a line for administrators: file, line, severity, key, mistake, fix and code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The row of the table.
    pub message: &'static Message,
    /// Severity.
    pub severity: Severity,
    /// The file or directory with the mistake.
    pub file: PathBuf,
    /// Line in the file, from 1. 0 for the file as a whole.
    pub line: usize,
    /// Character in the line, from 1. 0 if only the line is known.
    pub column: usize,
    /// Path of the key, such as `domain.corp.schema`. Empty where the file has no keys.
    pub key: String,
    /// The mistake with the values at hand, without a period.
    pub text: String,
    /// The fix with the values at hand, a sentence. `None`: the table's.
    pub fix: Option<String>,
}

impl Diagnostic {
    /// Returns a mistake of the file as a whole, with the table's fix.
    pub fn of_file(
        severity: Severity,
        message: &'static Message,
        file: &Path,
        text: impl Into<String>,
    ) -> Self {
        Self {
            message,
            severity,
            file: file.to_owned(),
            line: 0,
            column: 0,
            key: String::new(),
            text: text.into(),
            fix: None,
        }
    }

    /// Returns the fix with the values at hand, or the table's.
    #[must_use]
    pub fn fix(&self) -> &str {
        self.fix.as_deref().unwrap_or(self.message.fix)
    }

    /// Formats the mistake without its position: key, mistake, fix and code.
    #[must_use]
    pub fn without_position(&self) -> String {
        let key = if self.key.is_empty() { String::new() } else { format!("{}: ", self.key) };
        format!("{key}{}. {} [{}]", self.text, self.fix(), self.message.code)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        let warning = if self.severity == Severity::Warning { " warning:" } else { "" };
        write!(f, "{warning} {}", self.without_position())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all;

    #[test]
    fn display_has_position_key_fix_and_code() {
        let message = all().next().expect("there are messages");
        let whole =
            Diagnostic::of_file(Severity::Error, message, Path::new("/etc/x.toml"), "no domain");
        let Message { fix, code, .. } = message;
        assert_eq!(whole.to_string(), format!("/etc/x.toml: no domain. {fix} [{code}]"));
        let line = Diagnostic {
            severity: Severity::Warning,
            line: 3,
            column: 7,
            key: "a.b".to_owned(),
            text: "2 is odd".to_owned(),
            fix: Some("Write 1.".to_owned()),
            ..whole
        };
        assert_eq!(
            line.to_string(),
            format!("/etc/x.toml:3: warning: a.b: 2 is odd. Write 1. [{code}]")
        );
    }
}
