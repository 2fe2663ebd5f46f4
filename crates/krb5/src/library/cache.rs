//! Credential caches.

use super::{Context, Credentials, ENTRIES_MAX, Error, Principal, c_string};
use crate::sys;
use std::ffi::CStr;
use std::ptr;

impl Context {
    /// The cache of that name, `FILE:/path` and the like.
    pub fn cache(&self, name: &str) -> Result<Cache<'_>, Error> {
        let name = c_string(name)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a string that ends in NUL, and a place for the result.
        let code = unsafe { sys::krb5_cc_resolve(self.raw, name.as_ptr(), &raw mut raw) };
        self.check(code)?;
        Ok(Cache { context: self, raw })
    }

    /// A new cache in the collection that the context's `default_ccache_name` says.
    pub fn new_cache(&self, kind: &str) -> Result<Cache<'_>, Error> {
        let kind = c_string(kind)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a string that ends in NUL, no hint, and a place for the result.
        let code =
            unsafe { sys::krb5_cc_new_unique(self.raw, kind.as_ptr(), ptr::null(), &raw mut raw) };
        self.check(code)?;
        Ok(Cache { context: self, raw })
    }
}

/// A credential cache.
#[derive(Debug)]
pub struct Cache<'c> {
    context: &'c Context,
    pub(super) raw: sys::krb5_ccache,
}

impl<'c> Cache<'c> {
    /// As `KRB5CCNAME` has it.
    pub fn name(&self) -> Result<String, Error> {
        let context = self.context;
        let mut name = ptr::null_mut();
        // SAFETY: the name ends in NUL until it is freed, and is copied before.
        unsafe {
            context.check(sys::krb5_cc_get_full_name(context.raw, self.raw, &raw mut name))?;
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            sys::krb5_free_string(context.raw, name);
            Ok(text)
        }
    }

    /// Whose it is.
    pub fn principal(&self) -> Result<Principal<'c>, Error> {
        let context = self.context;
        let mut raw = ptr::null_mut();
        // SAFETY: a cache, and a place for the result.
        let code = unsafe { sys::krb5_cc_get_principal(context.raw, self.raw, &raw mut raw) };
        context.check(code)?;
        Ok(Principal { context, raw })
    }

    /// Its tickets. What is no ticket, as notes of the library, is among them.
    pub fn tickets(&self) -> Result<Vec<Credentials<'c>>, Error> {
        let context = self.context;
        let mut cursor = ptr::null_mut();
        // SAFETY: a cache, and a place for the cursor, which is ended below.
        let code = unsafe { sys::krb5_cc_start_seq_get(context.raw, self.raw, &raw mut cursor) };
        context.check(code)?;
        let mut all = Vec::new();
        while all.len() < ENTRIES_MAX {
            let mut tickets = Credentials::empty(context);
            // SAFETY: the library fills the place in, or says that it did not.
            let code = unsafe {
                sys::krb5_cc_next_cred(context.raw, self.raw, &raw mut cursor, &raw mut tickets.raw)
            };
            if code != 0 {
                break;
            }
            all.push(tickets);
        }
        // SAFETY: the cursor of above, ended once.
        unsafe { sys::krb5_cc_end_seq_get(context.raw, self.raw, &raw mut cursor) };
        Ok(all)
    }

    /// Empties it for a principal, and stores tickets.
    pub fn fill(
        &self,
        principal: &Principal<'_>,
        tickets: &mut [Credentials<'_>],
    ) -> Result<(), Error> {
        let context = self.context;
        // SAFETY: cache, principal and tickets are valid; the library copies them.
        unsafe {
            context.check(sys::krb5_cc_initialize(context.raw, self.raw, principal.raw))?;
            for ticket in tickets {
                let ticket = &raw mut ticket.raw;
                context.check(sys::krb5_cc_store_cred(context.raw, self.raw, ticket))?;
            }
        }
        Ok(())
    }

    /// Makes it the one of its collection that programs use which are not told of any.
    pub fn prefer(&self) -> Result<(), Error> {
        // SAFETY: a cache.
        self.context.check(unsafe { sys::krb5_cc_switch(self.context.raw, self.raw) })
    }

    /// Its ticket-granting ticket, renewed by the KDC.
    pub fn renewed(&self, principal: &Principal<'_>) -> Result<Credentials<'c>, Error> {
        let context = self.context;
        let mut tickets = Credentials::empty(context);
        // SAFETY: cache and principal are valid; no service is the ticket-granting one.
        let code = unsafe {
            sys::krb5_get_renewed_creds(
                context.raw,
                &raw mut tickets.raw,
                principal.raw,
                self.raw,
                ptr::null(),
            )
        };
        context.check(code)?;
        Ok(tickets)
    }

    /// Removes it with all that is in it.
    pub fn destroy(self) -> Result<(), Error> {
        let (context, raw) = (self.context, self.raw);
        std::mem::forget(self);
        // SAFETY: it is closed with this, and was forgotten.
        context.check(unsafe { sys::krb5_cc_destroy(context.raw, raw) })
    }
}

impl Drop for Cache<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and closed once.
        unsafe { sys::krb5_cc_close(self.context.raw, self.raw) };
    }
}
