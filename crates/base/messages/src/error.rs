// SPDX-License-Identifier: MIT OR Apache-2.0
//! An error that carries its code. A mistake in a file is a [`Diagnostic`](crate::Diagnostic) instead.

use crate::Message;
use std::error::Error;
use std::fmt;

/// An error of a command. Its `Display` is the text with its cause, its fix and its code.
#[derive(Debug)]
pub struct CodedError {
    /// The row of the table.
    pub message: &'static Message,
    /// The object and its failure, with the values at hand.
    pub text: String,
    /// The fix with the values at hand. `None`: the table's.
    pub fix: Option<String>,
    /// The error of a library or of the kernel.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl CodedError {
    /// Returns an error with the table's fix.
    pub fn new(message: &'static Message, text: impl Into<String>) -> Self {
        Self { message, text: text.into(), fix: None, source: None }
    }

    /// Replaces the table's fix.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Adds the error of a library or of the kernel.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for CodedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        let mut source = self.source.as_deref().map(|source| source as &dyn Error);
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        let fix = self.fix.as_deref().unwrap_or(self.message.fix);
        write!(f, ". {fix} [{}]", self.message.code)
    }
}

// `source()` is not implemented: `Display` has the chain already, and `{:#}` of anyhow would repeat it.
impl Error for CodedError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all;

    #[test]
    fn display_has_cause_fix_and_code() {
        let message = all().next().expect("there are messages");
        let refused = std::io::Error::from_raw_os_error(13);
        let error = CodedError::new(message, "/etc/x: cannot be read").caused_by(refused);
        assert_eq!(
            error.to_string(),
            format!(
                "/etc/x: cannot be read: Permission denied (os error 13). {} [{}]",
                message.fix, message.code
            )
        );
        let error = CodedError::new(message, "text").fix("Do it.");
        assert_eq!(error.to_string(), format!("text. Do it. [{}]", message.code));
    }
}
