// SPDX-License-Identifier: MIT OR Apache-2.0
//! Credential caches, through libkrb5. `session_ccache` decides which cache a session gets.

use super::{ENTRIES_MAX, KerberosTicket, LibraryContext, LibraryError, Principal, c_string};
use crate::ffi;
use std::ffi::CStr;
use std::ptr;

impl LibraryContext {
    /// Opens the cache of that name, for example `FILE:/path`.
    pub fn cache(&self, name: &str) -> Result<Ccache<'_>, LibraryError> {
        let name = c_string(name)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a string that ends in NUL, and a place for the result.
        let code = unsafe { ffi::krb5_cc_resolve(self.raw, name.as_ptr(), &raw mut raw) };
        self.check(code)?;
        Ok(Ccache { context: self, raw })
    }

    /// Creates a new cache in the collection of the context's `default_ccache_name`.
    pub fn new_cache(&self, kind: &str) -> Result<Ccache<'_>, LibraryError> {
        let kind = c_string(kind)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a string that ends in NUL, no hint, and a place for the result.
        let code =
            unsafe { ffi::krb5_cc_new_unique(self.raw, kind.as_ptr(), ptr::null(), &raw mut raw) };
        self.check(code)?;
        Ok(Ccache { context: self, raw })
    }
}

/// A credential cache.
#[derive(Debug)]
pub struct Ccache<'c> {
    context: &'c LibraryContext,
    pub(super) raw: ffi::krb5_ccache,
}

impl<'c> Ccache<'c> {
    /// Returns the name in the form of `KRB5CCNAME`.
    pub fn name(&self) -> Result<String, LibraryError> {
        let context = self.context;
        let mut name = ptr::null_mut();
        // SAFETY: the name ends in NUL until it is freed, and is copied before.
        unsafe {
            context.check(ffi::krb5_cc_get_full_name(context.raw, self.raw, &raw mut name))?;
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            ffi::krb5_free_string(context.raw, name);
            Ok(text)
        }
    }

    /// Returns the client principal.
    pub fn principal(&self) -> Result<Principal<'c>, LibraryError> {
        let context = self.context;
        let mut raw = ptr::null_mut();
        // SAFETY: a cache, and a place for the result.
        let code = unsafe { ffi::krb5_cc_get_principal(context.raw, self.raw, &raw mut raw) };
        context.check(code)?;
        Ok(Principal { context, raw })
    }

    /// Returns its entries: tickets, and notes of the library, which are not tickets.
    pub fn tickets(&self) -> Result<Vec<KerberosTicket<'c>>, LibraryError> {
        let context = self.context;
        let mut cursor = ptr::null_mut();
        // SAFETY: a cache, and a place for the cursor, which is ended below.
        let code = unsafe { ffi::krb5_cc_start_seq_get(context.raw, self.raw, &raw mut cursor) };
        context.check(code)?;
        let mut all = Vec::new();
        while all.len() < ENTRIES_MAX {
            let mut tickets = KerberosTicket::empty(context);
            // SAFETY: the library fills the place in, or reports that it did not.
            let code = unsafe {
                ffi::krb5_cc_next_cred(context.raw, self.raw, &raw mut cursor, &raw mut tickets.raw)
            };
            if code != 0 {
                break;
            }
            all.push(tickets);
        }
        // SAFETY: the cursor from above, ended once.
        unsafe { ffi::krb5_cc_end_seq_get(context.raw, self.raw, &raw mut cursor) };
        Ok(all)
    }

    /// Empties it for a principal, and stores tickets.
    pub fn fill(
        &self,
        principal: &Principal<'_>,
        tickets: &mut [KerberosTicket<'_>],
    ) -> Result<(), LibraryError> {
        let context = self.context;
        // SAFETY: cache, principal and tickets are valid; the library copies them.
        unsafe {
            context.check(ffi::krb5_cc_initialize(context.raw, self.raw, principal.raw))?;
            for ticket in tickets {
                let ticket = &raw mut ticket.raw;
                context.check(ffi::krb5_cc_store_cred(context.raw, self.raw, ticket))?;
            }
        }
        Ok(())
    }

    /// Makes it the default cache of its collection, for programs without a cache name.
    pub fn make_default(&self) -> Result<(), LibraryError> {
        // SAFETY: a cache.
        self.context.check(unsafe { ffi::krb5_cc_switch(self.context.raw, self.raw) })
    }

    /// Renews its ticket-granting ticket at the KDC, and returns the new one.
    pub fn renew(&self, principal: &Principal<'_>) -> Result<KerberosTicket<'c>, LibraryError> {
        let context = self.context;
        let mut tickets = KerberosTicket::empty(context);
        // SAFETY: cache and principal are valid; no service is the ticket-granting one.
        let code = unsafe {
            ffi::krb5_get_renewed_creds(
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

    /// Removes it with all entries.
    pub fn destroy(self) -> Result<(), LibraryError> {
        let (context, raw) = (self.context, self.raw);
        std::mem::forget(self);
        // SAFETY: it is closed with this, and was forgotten.
        context.check(unsafe { ffi::krb5_cc_destroy(context.raw, raw) })
    }
}

impl Drop for Ccache<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and closed once.
        unsafe { ffi::krb5_cc_close(self.context.raw, self.raw) };
    }
}
