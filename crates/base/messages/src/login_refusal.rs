// SPDX-License-Identifier: MIT OR Apache-2.0
//! The row of the table for each result of a login. Backends and responders may know a row that is more exact.

use crate::Message;
use crate::table::login;
use roster_request::AuthResult;

/// Returns the row for a result. `None` if no directory refused the login.
#[must_use]
pub fn login_refusal(result: AuthResult) -> Option<&'static Message> {
    Some(match result {
        AuthResult::Success | AuthResult::NotHandled => return None,
        AuthResult::WrongPassword => &login::WRONG_PASSWORD,
        AuthResult::UnknownUser => &login::UNKNOWN_USER,
        AuthResult::MustChange => &login::PASSWORD_MUST_CHANGE,
        AuthResult::PasswordExpired => &login::PASSWORD_EXPIRED,
        AuthResult::AccountExpired => &login::ACCOUNT_EXPIRED,
        AuthResult::Locked => &login::ACCOUNT_LOCKED,
        AuthResult::Disabled => &login::ACCOUNT_DISABLED,
        AuthResult::Denied => &login::DENIED,
        AuthResult::Unreachable => &login::DIRECTORY_UNREACHABLE,
        AuthResult::Misconfigured => &login::REJECTED_BY_DIRECTORY,
        AuthResult::TooManyAttempts => &login::TOO_MANY_ATTEMPTS,
        AuthResult::NotPermitted => &login::CALLER_NOT_PERMITTED,
        AuthResult::NewPasswordRefused => &login::NEW_PASSWORD_REJECTED,
    })
}
