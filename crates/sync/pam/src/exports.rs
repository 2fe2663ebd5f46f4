// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry points for libpam. Each call gets a handle and the arguments of the module in the stack. This module decides
//! nothing: `service_functions` does the work.
#![allow(unsafe_code)]

use crate::options::ModuleOptions;
use crate::pam_handle::{CallHandle, PamHandle};
use crate::return_codes::PamCode;
use crate::service_functions;
use core::ffi::{CStr, c_char, c_int};

/// More arguments than this are a mistake, and are not read.
const ARGUMENTS_MAX: usize = 64;

/// # Safety
/// As libpam calls a module: `pamh` is its handle, and `argv` has `argc` strings.
unsafe fn call(
    pamh: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
    act: fn(&CallHandle, &ModuleOptions) -> PamCode,
) -> c_int {
    if pamh.is_null() {
        return PamCode::SYSTEM_ERR.0;
    }
    let count =
        if argv.is_null() { 0 } else { usize::try_from(argc).unwrap_or(0).min(ARGUMENTS_MAX) };
    let mut options = ModuleOptions::from_flags(flags);
    for place in 0..count {
        // SAFETY: libpam passes `argc` strings that end with a NUL.
        let word = unsafe {
            let word = *argv.wrapping_add(place);
            if word.is_null() { c"" } else { CStr::from_ptr(word) }
        };
        options.apply_argument(word.to_bytes());
    }
    // SAFETY: libpam's handle, valid for the duration of this call.
    let handle = unsafe { CallHandle::new(pamh) };
    act(&handle, &options).0
}

macro_rules! exports {
    ($($(#[$doc:meta])* $name:ident: $act:path;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As libpam calls a module: `pamh` is its handle, and `argv` has `argc` strings.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pamh: *mut PamHandle,
            flags: c_int,
            argc: c_int,
            argv: *const *const c_char,
        ) -> c_int {
            // SAFETY: the arguments are forwarded unchanged.
            unsafe { call(pamh, flags, argc, argv, $act) }
        }
    )*};
}

exports! {
    /// Authenticates the user.
    pam_sm_authenticate: service_functions::authenticate;
    /// Sets the user's credentials.
    pam_sm_setcred: service_functions::set_credentials;
    /// Checks whether the user may log in now.
    pam_sm_acct_mgmt: service_functions::account;
    /// Changes the password.
    pam_sm_chauthtok: service_functions::change_password;
    /// Opens the session.
    pam_sm_open_session: service_functions::open_session;
    /// Closes the session.
    pam_sm_close_session: service_functions::close_session;
}
