// SPDX-License-Identifier: MIT OR Apache-2.0
//! Principals: the clients and servers of tickets. `realm` has the servers of a realm.

use super::{LibraryContext, LibraryError, c_string};
use crate::ffi;
use std::ffi::{CStr, c_char, c_uint};
use std::ptr;

impl LibraryContext {
    /// Returns the principal `name` in `realm`. The name is always one component: with a slash in it, the principal is
    /// unknown, and not the principal of a service.
    pub fn user_principal(&self, name: &str, realm: &str) -> Result<Principal<'_>, LibraryError> {
        let mut raw = ptr::null_mut();
        let length = |text: &str| c_uint::try_from(text.len()).unwrap_or(0);
        // SAFETY: lengths and bytes in turn, as the function requires, and a 0 in place of a further length.
        let code = unsafe {
            ffi::krb5_build_principal_ext(
                self.raw,
                &raw mut raw,
                length(realm),
                realm.as_ptr().cast(),
                length(name),
                name.as_ptr().cast::<c_char>(),
                0 as c_uint,
            )
        };
        self.check(code)?;
        Ok(Principal { context: self, raw })
    }

    /// Parses a principal in its usual form, `alice@EXAMPLE.COM`.
    pub fn parse_principal(&self, text: &str) -> Result<Principal<'_>, LibraryError> {
        let text = c_string(text)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a string that ends in NUL, and a place for the result.
        let code = unsafe { ffi::krb5_parse_name(self.raw, text.as_ptr(), &raw mut raw) };
        self.check(code)?;
        Ok(Principal { context: self, raw })
    }
}

/// A client or server of a ticket.
#[derive(Debug)]
pub struct Principal<'c> {
    pub(super) context: &'c LibraryContext,
    pub(super) raw: ffi::krb5_principal,
}

impl Principal<'_> {
    /// Returns the usual form.
    pub fn text(&self) -> Result<String, LibraryError> {
        let mut name = ptr::null_mut();
        // SAFETY: the name ends in NUL until it is freed, and is copied before.
        unsafe {
            let code = ffi::krb5_unparse_name(self.context.raw, self.raw, &raw mut name);
            self.context.check(code)?;
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            ffi::krb5_free_unparsed_name(self.context.raw, name);
            Ok(text)
        }
    }
}

impl Drop for Principal<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and freed once.
        unsafe { ffi::krb5_free_principal(self.context.raw, self.raw) }
    }
}
