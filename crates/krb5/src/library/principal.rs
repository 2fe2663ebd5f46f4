//! Who tickets are of, and for.

use super::{Context, Error, c_string};
use crate::sys;
use std::ffi::{CStr, c_char, c_uint};
use std::ptr;

impl Context {
    /// The principal `name` in `realm`. The name is one component whatever is in it: with a slash it
    /// is nobody's rather than a service's.
    pub fn user(&self, name: &str, realm: &str) -> Result<Principal<'_>, Error> {
        let mut raw = ptr::null_mut();
        let length = |text: &str| c_uint::try_from(text.len()).unwrap_or(0);
        // SAFETY: lengths and bytes in turn, as the function wants, and a 0 in place of a further length.
        let code = unsafe {
            sys::krb5_build_principal_ext(
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

    /// A principal as people write it, `alice@EXAMPLE.COM`.
    pub fn principal(&self, text: &str) -> Result<Principal<'_>, Error> {
        let text = c_string(text)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a string that ends in NUL, and a place for the result.
        let code = unsafe { sys::krb5_parse_name(self.raw, text.as_ptr(), &raw mut raw) };
        self.check(code)?;
        Ok(Principal { context: self, raw })
    }
}

/// Who a ticket is of, or for.
#[derive(Debug)]
pub struct Principal<'c> {
    pub(super) context: &'c Context,
    pub(super) raw: sys::krb5_principal,
}

impl Principal<'_> {
    /// As people write it.
    pub fn text(&self) -> Result<String, Error> {
        let mut name = ptr::null_mut();
        // SAFETY: the name ends in NUL until it is freed, and is copied before.
        unsafe {
            let code = sys::krb5_unparse_name(self.context.raw, self.raw, &raw mut name);
            self.context.check(code)?;
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            sys::krb5_free_unparsed_name(self.context.raw, name);
            Ok(text)
        }
    }
}

impl Drop for Principal<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and freed once.
        unsafe { sys::krb5_free_principal(self.context.raw, self.raw) }
    }
}
