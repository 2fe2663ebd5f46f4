// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts results to PAM's return codes: one exhaustive match for each of the module's functions. Only a success
//! becomes a success; an unknown result is a failure. `service_functions` returns them.
#![forbid(unsafe_code)]

use core::ffi::c_int;
use roster_request::AuthResult;

/// A return code of Linux-PAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PamCode(pub c_int);

#[allow(missing_docs)] // as in pam(3)
impl PamCode {
    pub const SUCCESS: Self = Self(0);
    pub const SYSTEM_ERR: Self = Self(4);
    pub const BUF_ERR: Self = Self(5);
    pub const PERM_DENIED: Self = Self(6);
    pub const AUTH_ERR: Self = Self(7);
    pub const AUTHINFO_UNAVAIL: Self = Self(9);
    pub const USER_UNKNOWN: Self = Self(10);
    pub const MAXTRIES: Self = Self(11);
    pub const NEW_AUTHTOK_REQD: Self = Self(12);
    pub const ACCT_EXPIRED: Self = Self(13);
    pub const CONV_ERR: Self = Self(19);
    pub const AUTHTOK_ERR: Self = Self(20);
    pub const AUTHTOK_RECOVERY_ERR: Self = Self(21);
    pub const TRY_AGAIN: Self = Self(24);
    pub const IGNORE: Self = Self(25);
    pub const AUTHTOK_EXPIRED: Self = Self(27);
}

/// Returns the code of authentication. A password that must be changed is a failure of the account, not of
/// authentication.
pub fn authentication_code(verdict: AuthResult) -> PamCode {
    match verdict {
        AuthResult::Success | AuthResult::MustChange => PamCode::SUCCESS,
        AuthResult::WrongPassword
        | AuthResult::PasswordExpired
        | AuthResult::NewPasswordRefused => PamCode::AUTH_ERR,
        AuthResult::UnknownUser | AuthResult::NotHandled => PamCode::USER_UNKNOWN,
        AuthResult::AccountExpired | AuthResult::Disabled => PamCode::ACCT_EXPIRED,
        AuthResult::Locked | AuthResult::Denied | AuthResult::NotPermitted => PamCode::PERM_DENIED,
        AuthResult::TooManyAttempts => PamCode::MAXTRIES,
        AuthResult::Unreachable | AuthResult::Misconfigured => PamCode::AUTHINFO_UNAVAIL,
    }
}

/// Returns the code of account management.
pub fn account_code(verdict: AuthResult) -> PamCode {
    match verdict {
        AuthResult::Success => PamCode::SUCCESS,
        AuthResult::MustChange => PamCode::NEW_AUTHTOK_REQD,
        AuthResult::PasswordExpired => PamCode::AUTHTOK_EXPIRED,
        AuthResult::NotHandled => PamCode::IGNORE,
        AuthResult::UnknownUser => PamCode::USER_UNKNOWN,
        AuthResult::AccountExpired | AuthResult::Disabled => PamCode::ACCT_EXPIRED,
        AuthResult::WrongPassword
        | AuthResult::Locked
        | AuthResult::Denied
        | AuthResult::NotPermitted
        | AuthResult::TooManyAttempts
        | AuthResult::NewPasswordRefused => PamCode::PERM_DENIED,
        AuthResult::Unreachable | AuthResult::Misconfigured => PamCode::AUTHINFO_UNAVAIL,
    }
}

/// Returns the code of the check before a password change.
pub fn preparation_code(verdict: AuthResult) -> PamCode {
    match verdict {
        AuthResult::Success | AuthResult::MustChange => PamCode::SUCCESS,
        AuthResult::WrongPassword => PamCode::AUTH_ERR,
        AuthResult::UnknownUser | AuthResult::NotHandled => PamCode::USER_UNKNOWN,
        AuthResult::Unreachable | AuthResult::Misconfigured | AuthResult::TooManyAttempts => {
            PamCode::TRY_AGAIN
        }
        AuthResult::PasswordExpired
        | AuthResult::AccountExpired
        | AuthResult::Locked
        | AuthResult::Disabled
        | AuthResult::Denied
        | AuthResult::NotPermitted
        | AuthResult::NewPasswordRefused => PamCode::PERM_DENIED,
    }
}

/// Returns the code of a password change.
pub fn change_code(verdict: AuthResult) -> PamCode {
    match verdict {
        AuthResult::Success => PamCode::SUCCESS,
        AuthResult::WrongPassword => PamCode::AUTHTOK_RECOVERY_ERR,
        AuthResult::UnknownUser | AuthResult::NotHandled => PamCode::USER_UNKNOWN,
        AuthResult::NewPasswordRefused
        | AuthResult::Unreachable
        | AuthResult::Misconfigured
        | AuthResult::TooManyAttempts
        | AuthResult::MustChange => PamCode::AUTHTOK_ERR,
        AuthResult::PasswordExpired
        | AuthResult::AccountExpired
        | AuthResult::Locked
        | AuthResult::Disabled
        | AuthResult::Denied
        | AuthResult::NotPermitted => PamCode::PERM_DENIED,
    }
}
