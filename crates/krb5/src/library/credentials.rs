//! Tickets with their session keys.

use super::{Context, Error, Keytab};
use crate::sys;
use roster_krb5::file;
use std::ffi::c_uint;
use std::ptr;
use zeroize::Zeroizing;

/// A ticket with its session key.
#[derive(Debug)]
pub struct Credentials<'c> {
    context: &'c Context,
    pub(super) raw: sys::krb5_creds,
}

impl std::fmt::Debug for sys::krb5_creds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Nothing of what is in it is for a log.
        f.write_str("krb5_creds")
    }
}

/// The times of a ticket, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From when on it holds.
    pub start: u32,
    /// Until when.
    pub end: u32,
    /// Until when it can be renewed; none when it cannot.
    pub renew_till: Option<u32>,
}

/// The KDC lets a ticket be renewed.
const RENEWABLE: i32 = 0x0080_0000;

impl<'c> Credentials<'c> {
    pub(super) fn empty(context: &'c Context) -> Self {
        // SAFETY: numbers and pointers, of which all zero is the library's empty value.
        Self { context, raw: unsafe { std::mem::zeroed() } }
    }

    /// From when to when it holds.
    pub fn times(&self) -> Times {
        let times = &self.raw.times;
        let start = if times.starttime == 0 { times.authtime } else { times.starttime };
        let renewable = self.raw.ticket_flags & RENEWABLE != 0;
        Times { start, end: times.endtime, renew_till: renewable.then_some(times.renew_till) }
    }

    /// Whether it is for asking for other tickets.
    pub fn is_granting(&self) -> bool {
        // SAFETY: NULL or a principal that the library filled in.
        let server = unsafe { principal_parts(self.raw.server) };
        server.parts.first() == Some(&&b"krbtgt"[..])
    }

    /// Whether the KDC that gave it knows a key of this host.
    pub fn verify(&mut self, keytab: &Keytab<'_>) -> Result<(), Error> {
        // Whatever keeps it from being verified is a failure.
        let mut options = sys::krb5_verify_init_creds_opt { flags: 1, ap_req_nofail: 1 };
        // SAFETY: tickets and keytab are valid; any host key of the keytab will do; no cache is kept.
        let code = unsafe {
            sys::krb5_verify_init_creds(
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

    /// As a file of credentials, version 4, holding this ticket alone; see [`crate::file`].
    pub fn to_file(&self) -> Zeroizing<Vec<u8>> {
        let length = (self.raw.ticket.length as usize).saturating_add(file::OTHER_BYTES_USUAL);
        let mut out = Zeroizing::new(Vec::with_capacity(length));
        // SAFETY: the library filled the credentials in: each pointer leads to as many elements as
        // the length beside it says, and lists end in NULL.
        unsafe {
            let client = principal_parts(self.raw.client);
            let server = principal_parts(self.raw.server);
            let times = &self.raw.times;
            let ticket = file::Ticket {
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
            file::write(&mut out, &ticket);
        }
        out
    }
}

impl Drop for Credentials<'_> {
    fn drop(&mut self) {
        // SAFETY: empty or filled in by the library, and freed once. It wipes the key.
        unsafe { sys::krb5_free_cred_contents(self.context.raw, &raw mut self.raw) }
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
/// As of [`bytes`].
unsafe fn data<'a>(data: &sys::krb5_data) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { bytes(data.data.cast(), data.length) }
}

/// # Safety
/// `principal` is NULL or one of the library that outlives `'a`.
unsafe fn principal_parts<'a>(principal: *const sys::krb5_principal_data) -> file::Name<'a> {
    // SAFETY: the caller's promise; a principal has `length` components.
    unsafe {
        let Some(principal) = principal.as_ref() else {
            return file::Name { kind: 0, realm: &[], parts: Vec::new() };
        };
        let count = usize::try_from(principal.length).unwrap_or(0);
        let parts = (0..count).map(|at| data(&*principal.data.add(at))).collect();
        file::Name { kind: principal.kind, realm: data(&principal.realm), parts }
    }
}
