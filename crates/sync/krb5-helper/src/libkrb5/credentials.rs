// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tickets with their session keys. `kdc_exchange` requests them, and `cache` stores them.

use super::{Keytab, LibraryContext, LibraryError};
use crate::ffi;
use roster_krb5_helper::ccache_file;
use std::ffi::c_uint;
use std::ptr;
use zeroize::Zeroizing;

/// A ticket with its session key.
#[derive(Debug)]
pub struct KerberosTicket<'c> {
    context: &'c LibraryContext,
    pub(super) raw: ffi::krb5_creds,
}

impl std::fmt::Debug for ffi::krb5_creds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The content must not be logged.
        f.write_str("krb5_creds")
    }
}

/// The times of a ticket, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketTimes {
    /// Start of its validity.
    pub start: u32,
    /// End of its validity.
    pub end: u32,
    /// End of the renewable time; `None` if it is not renewable.
    pub renew_till: Option<u32>,
}

/// The flag of a renewable ticket.
const RENEWABLE: i32 = 0x0080_0000;

impl<'c> KerberosTicket<'c> {
    pub(super) fn empty(context: &'c LibraryContext) -> Self {
        // SAFETY: numbers and pointers, of which all zero is the library's empty value.
        Self { context, raw: unsafe { std::mem::zeroed() } }
    }

    /// Returns the times of the ticket.
    pub fn times(&self) -> TicketTimes {
        let times = &self.raw.times;
        let start = if times.starttime == 0 { times.authtime } else { times.starttime };
        let renewable = self.raw.ticket_flags & RENEWABLE != 0;
        TicketTimes { start, end: times.endtime, renew_till: renewable.then_some(times.renew_till) }
    }

    /// Returns true for a ticket-granting ticket.
    pub fn is_tgt(&self) -> bool {
        // SAFETY: NULL or a principal that the library filled in.
        let server = unsafe { principal_parts(self.raw.server) };
        server.parts.first() == Some(&&b"krbtgt"[..])
    }

    /// Verifies that the KDC that issued it knows a key of this host.
    pub fn verify(&mut self, keytab: &Keytab<'_>) -> Result<(), LibraryError> {
        // Any obstacle to the verification is a failure.
        let mut options = ffi::krb5_verify_init_creds_opt { flags: 1, ap_req_nofail: 1 };
        // SAFETY: tickets and keytab are valid; any host key of the keytab is accepted; the call stores no cache.
        let code = unsafe {
            ffi::krb5_verify_init_creds(
                self.context.raw,
                &raw mut self.raw,
                ptr::null_mut(),
                keytab.raw,
                ptr::null_mut(),
                &raw mut options,
            )
        };
        self.context.check(code)
    }

    /// Returns a file of credentials, version 4, with only this ticket; see [`roster_krb5_helper::ccache_file`].
    pub fn to_file(&self) -> Zeroizing<Vec<u8>> {
        let length =
            (self.raw.ticket.length as usize).saturating_add(ccache_file::OTHER_BYTES_USUAL);
        let mut out = Zeroizing::new(Vec::with_capacity(length));
        // SAFETY: the library filled the credentials in: each pointer leads to as many elements as the length beside it
        // states, and lists end in NULL.
        unsafe {
            let client = principal_parts(self.raw.client);
            let server = principal_parts(self.raw.server);
            let times = &self.raw.times;
            let ticket = ccache_file::CcacheTicket {
                client: &client,
                server: &server,
                enctype: self.raw.keyblock.enctype,
                key: bytes(self.raw.keyblock.contents, self.raw.keyblock.length),
                times: [times.authtime, times.starttime, times.endtime, times.renew_till],
                is_skey: self.raw.is_skey != 0,
                flags: self.raw.ticket_flags,
                ticket: data(&self.raw.ticket),
                second_ticket: data(&self.raw.second_ticket),
            };
            ccache_file::write(&mut out, &ticket);
        }
        out
    }
}

impl Drop for KerberosTicket<'_> {
    fn drop(&mut self) {
        // SAFETY: empty or filled in by the library, and freed once. It wipes the key.
        unsafe { ffi::krb5_free_cred_contents(self.context.raw, &raw mut self.raw) }
    }
}

/// # Safety
/// `contents` leads to `length` bytes that outlive `'a`, or `length` is 0.
unsafe fn bytes<'a>(contents: *const u8, length: c_uint) -> &'a [u8] {
    if length == 0 || contents.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(contents, length as usize) }
}

/// # Safety
/// As for [`bytes`].
unsafe fn data<'a>(data: &ffi::krb5_data) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { bytes(data.data.cast(), data.length) }
}

/// # Safety
/// `principal` is NULL or one of the library that outlives `'a`.
unsafe fn principal_parts<'a>(
    principal: *const ffi::krb5_principal_data,
) -> ccache_file::PrincipalName<'a> {
    // SAFETY: the caller's promise; a principal has `length` components.
    unsafe {
        let Some(principal) = principal.as_ref() else {
            return ccache_file::PrincipalName { kind: 0, realm: &[], parts: Vec::new() };
        };
        let count = usize::try_from(principal.length).unwrap_or(0);
        let parts = (0..count).map(|at| data(&*principal.data.add(at))).collect();
        ccache_file::PrincipalName { kind: principal.kind, realm: data(&principal.realm), parts }
    }
}
