//! The words behind the module's name in a stack, and the flags of the call.
#![forbid(unsafe_code)]

use core::ffi::c_int;

const SILENT: c_int = 0x8000;
const PRELIM_CHECK: c_int = 0x4000;
const UPDATE_AUTHTOK: c_int = 0x2000;

const REINITIALIZE_CRED: c_int = 0x8;
const REFRESH_CRED: c_int = 0x10;
const DELETE_CRED: c_int = 0x4;

/// What is to be done about what a user has for a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// It is given.
    #[default]
    Establish,
    /// It is given anew.
    Refresh,
    /// It is taken away.
    Delete,
}

/// What the administrator, and the program, want of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The password of a module before this one is taken, or there is none.
    pub use_first_pass: bool,
    /// It is tried, and if it will not do another is asked for.
    pub try_first_pass: bool,
    /// The new password of a module before this one is taken, or there is none.
    pub use_authtok: bool,
    /// Modules after this one are given the password.
    pub forward_pass: bool,
    /// Nothing is shown but errors.
    pub quiet: bool,
    /// More is logged.
    pub debug: bool,
    /// Authentication fails where the password must be changed, for programs that go on to nothing else.
    pub must_change_fails: bool,
    /// A failure takes no longer than it takes.
    pub no_delay: bool,
    /// Nothing is shown at all.
    pub is_silent: bool,
    /// A change of password is only prepared.
    pub prepares: bool,
    /// It is to be done.
    pub updates: bool,
    /// What a call about credentials is for.
    pub credentials: Credentials,
    /// A word that means nothing was there.
    pub has_strange: bool,
}

impl Options {
    /// Of the flags of a call.
    pub fn of_flags(flags: c_int) -> Self {
        let has = |flag| flags & flag != 0;
        Self {
            is_silent: has(SILENT),
            prepares: has(PRELIM_CHECK),
            updates: has(UPDATE_AUTHTOK),
            credentials: if has(DELETE_CRED) {
                Credentials::Delete
            } else if has(REINITIALIZE_CRED) || has(REFRESH_CRED) {
                Credentials::Refresh
            } else {
                Credentials::Establish
            },
            ..Self::default()
        }
    }

    /// And of one more word.
    pub fn take(&mut self, word: &[u8]) {
        match word {
            b"use_first_pass" => self.use_first_pass = true,
            b"try_first_pass" => self.try_first_pass = true,
            b"use_authtok" => self.use_authtok = true,
            b"forward_pass" => self.forward_pass = true,
            b"quiet" => self.quiet = true,
            b"debug" => self.debug = true,
            b"must_change=fail" => self.must_change_fails = true,
            b"nodelay" => self.no_delay = true,
            _ => self.has_strange = true,
        }
    }
}
