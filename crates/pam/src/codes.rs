//! Verdicts as PAM's return codes: one exhaustive match for each of the module's functions. None but a
//! success is one, and what cannot be told is a failure.
#![forbid(unsafe_code)]

use core::ffi::c_int;
use roster_wire::pam::Verdict;

/// A return code of Linux-PAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub c_int);

#[allow(missing_docs)] // as in pam(3)
impl Code {
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

/// Of authentication. That the password must be changed is no failure here, but of the account.
pub fn of_authentication(verdict: Verdict) -> Code {
    match verdict {
        Verdict::Success | Verdict::MustChange => Code::SUCCESS,
        Verdict::WrongPassword | Verdict::PasswordExpired | Verdict::NewPasswordRefused => {
            Code::AUTH_ERR
        }
        Verdict::UnknownUser | Verdict::NotOurs => Code::USER_UNKNOWN,
        Verdict::AccountExpired | Verdict::Disabled => Code::ACCT_EXPIRED,
        Verdict::Locked | Verdict::Denied | Verdict::NotPermitted => Code::PERM_DENIED,
        Verdict::TooManyTries => Code::MAXTRIES,
        Verdict::Unreachable | Verdict::Misconfigured => Code::AUTHINFO_UNAVAIL,
    }
}

/// Of account management.
pub fn of_account(verdict: Verdict) -> Code {
    match verdict {
        Verdict::Success => Code::SUCCESS,
        Verdict::MustChange => Code::NEW_AUTHTOK_REQD,
        Verdict::PasswordExpired => Code::AUTHTOK_EXPIRED,
        Verdict::NotOurs => Code::IGNORE,
        Verdict::UnknownUser => Code::USER_UNKNOWN,
        Verdict::AccountExpired | Verdict::Disabled => Code::ACCT_EXPIRED,
        Verdict::WrongPassword
        | Verdict::Locked
        | Verdict::Denied
        | Verdict::NotPermitted
        | Verdict::TooManyTries
        | Verdict::NewPasswordRefused => Code::PERM_DENIED,
        Verdict::Unreachable | Verdict::Misconfigured => Code::AUTHINFO_UNAVAIL,
    }
}

/// Of the question whether a password may be changed.
pub fn of_preparation(verdict: Verdict) -> Code {
    match verdict {
        Verdict::Success | Verdict::MustChange => Code::SUCCESS,
        Verdict::WrongPassword => Code::AUTH_ERR,
        Verdict::UnknownUser | Verdict::NotOurs => Code::USER_UNKNOWN,
        Verdict::Unreachable | Verdict::Misconfigured | Verdict::TooManyTries => Code::TRY_AGAIN,
        Verdict::PasswordExpired
        | Verdict::AccountExpired
        | Verdict::Locked
        | Verdict::Disabled
        | Verdict::Denied
        | Verdict::NotPermitted
        | Verdict::NewPasswordRefused => Code::PERM_DENIED,
    }
}

/// Of a change of password.
pub fn of_change(verdict: Verdict) -> Code {
    match verdict {
        Verdict::Success => Code::SUCCESS,
        Verdict::WrongPassword => Code::AUTHTOK_RECOVERY_ERR,
        Verdict::UnknownUser | Verdict::NotOurs => Code::USER_UNKNOWN,
        Verdict::NewPasswordRefused
        | Verdict::Unreachable
        | Verdict::Misconfigured
        | Verdict::TooManyTries
        | Verdict::MustChange => Code::AUTHTOK_ERR,
        Verdict::PasswordExpired
        | Verdict::AccountExpired
        | Verdict::Locked
        | Verdict::Disabled
        | Verdict::Denied
        | Verdict::NotPermitted => Code::PERM_DENIED,
    }
}
