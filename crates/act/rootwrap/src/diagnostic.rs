// SPDX-License-Identifier: MIT OR Apache-2.0
//! Diagnostics of a policy at a line, and errors of the system with a code. The types and the table of codes are in
//! `roster_messages`.

use roster_messages::{CodedError, Diagnostic, Message, Severity};
use std::io;
use std::path::Path;

/// Returns an error at a line, 0 for the whole file. The policy is not used.
pub(crate) fn error(
    message: &'static Message,
    file: &Path,
    line: usize,
    text: impl Into<String>,
) -> Diagnostic {
    Diagnostic { line, ..Diagnostic::of_file(Severity::Error, message, file, text) }
}

/// Returns a warning at a line, 0 for the whole file. The rest of the policy is used.
pub(crate) fn warning(
    message: &'static Message,
    file: &Path,
    line: usize,
    text: impl Into<String>,
) -> Diagnostic {
    Diagnostic { severity: Severity::Warning, ..error(message, file, line, text) }
}

/// Returns an error of the system with a code: the error that it carries, or `message` with a text.
pub fn coded(error: io::Error, message: &'static Message, text: &str) -> CodedError {
    error.downcast().unwrap_or_else(|error| CodedError::new(message, text).caused_by(error))
}
