// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors with codes. Builds them, and gives a code to errors of libraries. Prints nothing: `commands` prints errors.
//! The texts that do not depend on values are in [`roster_messages::table::lab`].

use anyhow::Result;
use roster_messages::table::lab;
use roster_messages::{CodedError, Message};
use std::error::Error;
use std::fmt::{Display, Write};

/// Returns an error with the table's fix.
pub fn coded(message: &'static Message, text: impl Into<String>) -> anyhow::Error {
    CodedError::new(message, text).into()
}

/// Returns `Err` with a code of the lab's table and a formatted text.
macro_rules! bail_coded {
    ($message:ident, $($text:tt)+) => {
        return Err($crate::coded::coded(
            &roster_messages::table::lab::$message,
            format!($($text)+),
        ))
    };
}

/// Returns `Err` like [`bail_coded`] unless the condition holds.
macro_rules! ensure_coded {
    ($condition:expr, $message:ident, $($text:tt)+) => {
        match $condition {
            true => {}
            false => $crate::coded::bail_coded!($message, $($text)+),
        }
    };
}

pub(crate) use {bail_coded, ensure_coded};

/// Gives codes to errors and to missing values.
pub trait Coded<T> {
    /// Adds a code and a text. An error that has a code already keeps it and gets the text as context.
    fn coded(self, message: &'static Message, text: impl Display) -> Result<T>;
}

impl<T, E: Into<anyhow::Error>> Coded<T> for Result<T, E> {
    fn coded(self, message: &'static Message, text: impl Display) -> Result<T> {
        self.map_err(|error| {
            let (error, text) = (error.into(), text.to_string());
            match has_code(&error) {
                true => error.context(text),
                false => CodedError::new(message, text).caused_by(error).into(),
            }
        })
    }
}

impl<T> Coded<T> for Option<T> {
    fn coded(self, message: &'static Message, text: impl Display) -> Result<T> {
        self.ok_or_else(|| coded(message, text.to_string()))
    }
}

fn has_code(error: &anyhow::Error) -> bool {
    error.downcast_ref::<CodedError>().is_some()
}

/// Formats an error with its contexts, its fix and its code. An error of a library gets a general code.
pub fn describe(error: &anyhow::Error) -> String {
    match has_code(error) {
        true => format!("{error:#}"),
        false => {
            let text = format!("{error:#}");
            let text = text.trim_end_matches('.');
            let Message { fix, code, .. } = lab::SYSTEM_ERROR;
            format!("{text}. {fix} [{code}]")
        }
    }
}

/// Formats an error without its fix and its code, as the cause of another error.
pub fn describe_cause(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let separator = if text.is_empty() { "" } else { ": " };
        let _ = match cause.downcast_ref::<CodedError>() {
            Some(coded) => write!(text, "{separator}{}", without_fix(coded)),
            None => write!(text, "{separator}{cause}"),
        };
    }
    text
}

fn without_fix(error: &CodedError) -> String {
    let mut text = error.text.clone();
    let mut source = error.source.as_deref().map(|source| source as &dyn Error);
    while let Some(error) = source {
        let _ = write!(text, ": {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use std::io;

    fn refused() -> io::Result<()> {
        Err(io::Error::from_raw_os_error(13))
    }

    #[test]
    fn coded_error_keeps_first_code() {
        let inner = refused().coded(&lab::FILE_UNREADABLE, "/x: cannot be read");
        let outer = inner.coded(&lab::SYSTEM_ERROR, "outer").unwrap_err();
        let text = describe(&outer);
        let wanted = "outer: /x: cannot be read: Permission denied (os error 13). ";
        assert!(text.starts_with(wanted), "{text}");
        assert!(text.ends_with(&format!(" [{}]", lab::FILE_UNREADABLE.code)), "{text}");
        assert_eq!(
            describe_cause(&outer),
            "outer: /x: cannot be read: Permission denied (os error 13)"
        );
    }

    #[test]
    fn uncoded_error_gets_general_code() {
        let text = describe(&anyhow!("text."));
        assert!(text.starts_with("text. Read "), "{text}");
        assert!(text.ends_with(&format!(" [{}]", lab::SYSTEM_ERROR.code)), "{text}");
    }
}
