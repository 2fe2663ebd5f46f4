// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors with a code, on their way to standard error, the log or a caller on the bus. The table of codes is
//! `roster-messages`.

use roster_messages::{CodedError, Message, log};
use std::fmt;

/// Adds a code to errors that have none.
pub trait WithCode<T> {
    /// Returns `self`, with an error of that code and text. An error that has a code already stays as it is.
    ///
    /// # Errors
    ///
    /// Returns the error of `self`.
    fn with_code<S: Into<String>>(
        self,
        message: &'static Message,
        text: impl FnOnce() -> S,
    ) -> Result<T, CodedError>;
}

impl<T, E: Into<anyhow::Error>> WithCode<T> for Result<T, E> {
    fn with_code<S: Into<String>>(
        self,
        message: &'static Message,
        text: impl FnOnce() -> S,
    ) -> Result<T, CodedError> {
        self.map_err(|error| match error.into().downcast::<CodedError>() {
            Ok(coded) => coded,
            Err(error) => CodedError::new(message, text()).caused_by(error),
        })
    }
}

/// Returns the error, with that code if it has none.
pub(crate) fn ensure_code(error: anyhow::Error, message: &'static Message) -> anyhow::Error {
    if error.is::<CodedError>() {
        return error;
    }
    CodedError::new(message, format!("{error:#}")).into()
}

/// Returns the code of an error, or `default`.
pub(crate) fn code_of(error: &anyhow::Error, default: &'static Message) -> &'static Message {
    error.downcast_ref::<CodedError>().map_or(default, |coded| coded.message)
}

/// An error or a warning as a line that ends with its code.
#[derive(Clone, Debug)]
pub struct CodedLine {
    /// The row of the table.
    pub message: &'static Message,
    /// The line.
    pub text: String,
}

impl CodedLine {
    /// Logs the line as a warning.
    pub fn log_warning(&self) {
        log!(WARN, self.message, "{}", self.text);
    }
}

impl From<CodedError> for CodedLine {
    fn from(error: CodedError) -> Self {
        Self { message: error.message, text: error.to_string() }
    }
}

/// The errors of a start or of a reload, one a line.
#[derive(Clone, Debug)]
pub struct CodedErrors(pub Vec<CodedLine>);

impl CodedErrors {
    /// Logs each error.
    pub fn log(&self) {
        for CodedLine { message, text } in &self.0 {
            log!(ERROR, message, "{text}");
        }
    }
}

impl From<CodedError> for CodedErrors {
    fn from(error: CodedError) -> Self {
        Self(vec![error.into()])
    }
}

impl fmt::Display for CodedErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(|line| line.text.as_str()).collect();
        f.write_str(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_messages::table::daemon::{ROLE_FAILED, ROLE_START_FAILED};

    #[test]
    fn error_code_innermost_one_stays() {
        let coded: Result<(), _> = Err(CodedError::new(&ROLE_FAILED, "inner"));
        let outer = coded.with_code(&ROLE_START_FAILED, || "outer").unwrap_err();
        assert_eq!((outer.message, &*outer.text), (&ROLE_FAILED, "inner"));
        let plain: Result<(), _> = Err(std::io::Error::other("cause"));
        let outer = plain.with_code(&ROLE_START_FAILED, || "outer").unwrap_err();
        assert!(outer.to_string().starts_with("outer: cause. "), "{outer}");

        let error = anyhow::Error::from(CodedError::new(&ROLE_FAILED, "text")).context("object");
        assert_eq!(code_of(&error, &ROLE_START_FAILED), &ROLE_FAILED);
        let error = ensure_code(anyhow::anyhow!("cause").context("object"), &ROLE_FAILED);
        assert_eq!(
            format!("{error:#}"),
            CodedError::new(&ROLE_FAILED, "object: cause").to_string()
        );
    }
}
