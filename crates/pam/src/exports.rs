//! What libpam calls. Each call is given a handle and the words behind the module's name in the stack.
#![allow(unsafe_code)]

use crate::act;
use crate::codes::Code;
use crate::handle::{Handle, PamHandle};
use crate::options::Options;
use core::ffi::{CStr, c_char, c_int};

/// More words than this are somebody's mistake, and are not read.
const WORDS_MAX: usize = 64;

/// # Safety
/// As libpam calls a module: `pamh` is a handle of its, and `argv` has `argc` strings.
unsafe fn call(
    pamh: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
    act: fn(&Handle, &Options) -> Code,
) -> c_int {
    if pamh.is_null() {
        return Code::SYSTEM_ERR.0;
    }
    let count = if argv.is_null() { 0 } else { usize::try_from(argc).unwrap_or(0).min(WORDS_MAX) };
    let mut options = Options::of_flags(flags);
    for place in 0..count {
        // SAFETY: libpam passes `argc` strings that end with a NUL.
        let word = unsafe {
            let word = *argv.wrapping_add(place);
            if word.is_null() { c"" } else { CStr::from_ptr(word) }
        };
        options.take(word.to_bytes());
    }
    // SAFETY: libpam's own, for as long as this call lasts.
    let handle = unsafe { Handle::new(pamh) };
    act(&handle, &options).0
}

macro_rules! exports {
    ($($(#[$doc:meta])* $name:ident: $act:path;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As libpam calls a module: `pamh` is a handle of its, and `argv` has `argc` strings.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pamh: *mut PamHandle,
            flags: c_int,
            argc: c_int,
            argv: *const *const c_char,
        ) -> c_int {
            // SAFETY: handed on as it came.
            unsafe { call(pamh, flags, argc, argv, $act) }
        }
    )*};
}

exports! {
    /// Whether who is there is the user.
    pam_sm_authenticate: act::authenticate;
    /// What the user may have from now on.
    pam_sm_setcred: act::set_credentials;
    /// Whether the user may in now.
    pam_sm_acct_mgmt: act::account;
    /// Another password.
    pam_sm_chauthtok: act::change_password;
    /// The user comes in.
    pam_sm_open_session: act::open_session;
    /// The user leaves.
    pam_sm_close_session: act::close_session;
}
