// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit statuses, from sysexits.h if it has one. `process` exits with them.

use crate::error_code::CodedErrors;

/// The command line is invalid.
pub const USAGE: u8 = 64;
/// A user for a role does not exist.
pub const NO_USER: u8 = 67;
/// A required program is missing: dbus-daemon.
pub const UNAVAILABLE: u8 = 69;
/// An internal error. A role with this status is restarted.
pub const SOFTWARE: u8 = 70;
/// The system refuses a required operation.
pub const SYSTEM: u8 = 71;
/// A directory, socket or file cannot be created.
pub const CANNOT_CREATE: u8 = 73;
/// A temporary failure: another rosterd runs here, or a role lost the bus.
pub const TEMPORARY: u8 = 75;
/// The configuration, or a file that it names, is wrong.
pub const CONFIG: u8 = 78;

/// Reason why the monitor ends, or does not start.
#[derive(Debug)]
pub struct ExitFailure {
    /// Exit status.
    pub status: u8,
    /// The errors to report.
    pub errors: CodedErrors,
}

/// Adds an exit status to errors.
pub trait WithExitStatus<T> {
    /// Returns `self`, with that status for an error.
    ///
    /// # Errors
    ///
    /// Returns the error of `self`.
    fn with_exit_status(self, status: u8) -> Result<T, ExitFailure>;
}

impl<T, E: Into<CodedErrors>> WithExitStatus<T> for Result<T, E> {
    fn with_exit_status(self, status: u8) -> Result<T, ExitFailure> {
        self.map_err(|error| ExitFailure { status, errors: error.into() })
    }
}
