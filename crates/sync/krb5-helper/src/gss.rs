// SPDX-License-Identifier: MIT OR Apache-2.0
//! GSSAPI contexts of the Kerberos mechanism, for the client of a connection.
//!
//! Only this module calls libgssapi_krb5. That library makes its own contexts of libkrb5, and takes their configuration
//! from the environment. [`prepare_environment`] therefore names the text from [`crate::krb5_conf`] there. The
//! environment is empty otherwise.

#![allow(unsafe_code)]

use crate::gss_ffi as ffi;
use crate::libkrb5::{LibraryContext, one_line};
use std::ffi::{CString, c_int, c_void};
use std::io;
use std::ptr;
use std::time::Duration;

/// The mechanism: Kerberos 5 (RFC 4121).
static MECHANISM: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02";
/// The kind of names: the usual form of a principal.
static PRINCIPAL_NAME: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01";

/// An error of the library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct GssError {
    /// The code of libkrb5, if the mechanism reported one.
    pub code: i32,
    /// The error's text.
    pub text: String,
}

impl GssError {
    fn new(text: &str) -> Self {
        Self { code: 0, text: text.to_owned() }
    }
}

/// Makes the library use the configuration of this context, and no mechanism from a file of the host.
pub fn prepare_environment(context: &LibraryContext) -> io::Result<()> {
    let profile = context.profile_path()?;
    for (name, value) in [(c"KRB5_CONFIG", profile.as_c_str()), (c"GSS_MECH_CONFIG", c"/dev/null")]
    {
        // SAFETY: there is one thread; strings that end in NUL, which are copied.
        if unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Returns an object identifier of these bytes, which the library does not change.
fn oid(bytes: &'static [u8]) -> ffi::gss_OID_desc {
    let elements = bytes.as_ptr().cast::<c_void>().cast_mut();
    ffi::gss_OID_desc { length: u32::try_from(bytes.len()).unwrap_or(0), elements }
}

/// Returns a buffer that borrows these bytes. The library only reads it.
fn input(bytes: &[u8]) -> ffi::gss_buffer_desc {
    let value = bytes.as_ptr().cast::<c_void>().cast_mut();
    ffi::gss_buffer_desc { length: bytes.len(), value }
}

const EMPTY: ffi::gss_buffer_desc = ffi::gss_buffer_desc { length: 0, value: ptr::null_mut() };

/// A buffer that the library allocates.
struct OutputBuffer(ffi::gss_buffer_desc);

impl OutputBuffer {
    fn bytes(&self) -> &[u8] {
        if self.0.value.is_null() || self.0.length == 0 {
            return &[];
        }
        // SAFETY: the library filled it in: that many bytes, until it is freed.
        unsafe { std::slice::from_raw_parts(self.0.value.cast(), self.0.length) }
    }
}

impl Drop for OutputBuffer {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: empty or filled in by the library, and freed once.
        unsafe { ffi::gss_release_buffer(&raw mut minor, &raw mut self.0) };
    }
}

/// Returns the error of a failed call.
fn error(major: ffi::OM_uint32, minor: ffi::OM_uint32) -> GssError {
    let mut texts = vec![status_text(major, ffi::GSS_C_GSS_CODE)];
    if minor != 0 {
        texts.push(status_text(minor, ffi::GSS_C_MECH_CODE));
    }
    texts.retain(|text| !text.is_empty());
    let text = texts.pop().unwrap_or_else(|| format!("GSSAPI error {major:#x}"));
    GssError { code: minor.cast_signed(), text: one_line(&text) }
}

fn status_text(value: ffi::OM_uint32, kind: c_int) -> String {
    let mechanism = oid(MECHANISM);
    let (mut minor, mut position) = (0, 0);
    let mut text = OutputBuffer(EMPTY);
    // SAFETY: every pointer leads to a place that outlives the call; the buffer frees itself.
    let major = unsafe {
        ffi::gss_display_status(
            &raw mut minor,
            value,
            kind,
            &raw const mechanism,
            &raw mut position,
            &raw mut text.0,
        )
    };
    if major == ffi::GSS_S_COMPLETE {
        String::from_utf8_lossy(text.bytes()).into_owned()
    } else {
        String::new()
    }
}

/// A name of the library.
struct Name(ffi::gss_name_t);

impl Name {
    fn of_principal(principal: &str) -> Result<Self, GssError> {
        let (kind, text) = (oid(PRINCIPAL_NAME), input(principal.as_bytes()));
        let (mut minor, mut raw) = (0, ptr::null_mut());
        // SAFETY: the buffer and the identifier are only read; a place for the result.
        let major = unsafe {
            ffi::gss_import_name(&raw mut minor, &raw const text, &raw const kind, &raw mut raw)
        };
        if major == ffi::GSS_S_COMPLETE { Ok(Self(raw)) } else { Err(error(major, minor)) }
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: made by the library for its owner, and freed once.
        unsafe { ffi::gss_release_name(&raw mut minor, &raw mut self.0) };
    }
}

/// Tickets of a credential cache.
struct Credential(ffi::gss_cred_id_t);

impl Credential {
    fn of_cache(cache: &str) -> Result<Self, GssError> {
        let cache = CString::new(cache).map_err(|_| GssError::new("the cache has no name"))?;
        let mut mechanism = oid(MECHANISM);
        let mechanisms = ffi::gss_OID_set_desc { count: 1, elements: &raw mut mechanism };
        let mut element =
            ffi::gss_key_value_element_desc { key: c"ccache".as_ptr(), value: cache.as_ptr() };
        let store = ffi::gss_key_value_set_desc { count: 1, elements: &raw mut element };
        let (mut minor, mut raw) = (0, ptr::null_mut());
        // SAFETY: sets and strings outlive the call and are only read; a place for the result.
        let major = unsafe {
            ffi::gss_acquire_cred_from(
                &raw mut minor,
                ptr::null_mut(),
                0,
                &raw const mechanisms,
                ffi::GSS_C_INITIATE,
                &raw const store,
                &raw mut raw,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        if major == ffi::GSS_S_COMPLETE { Ok(Self(raw)) } else { Err(error(major, minor)) }
    }
}

impl Drop for Credential {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: made by the library for its owner, and freed once.
        unsafe { ffi::gss_release_cred(&raw mut minor, &raw mut self.0) };
    }
}

/// The state of a context after a step.
pub struct ContextStep {
    /// The token for the server; may be empty.
    pub token: Vec<u8>,
    /// Remaining life of the ticket, once the context is complete.
    pub life: Option<Duration>,
}

/// A context with a server, which proves its identity.
pub struct ClientContext {
    raw: ffi::gss_ctx_id_t,
    credential: Credential,
    server: Name,
    flags: ffi::OM_uint32,
    channel_binding: Vec<u8>,
}

impl ClientContext {
    /// Prepares a context with the tickets of a cache. `seals` requires encryption.
    pub fn new(
        cache: &str,
        server: &str,
        seals: bool,
        channel_binding: Vec<u8>,
    ) -> Result<Self, GssError> {
        let ordered = ffi::GSS_C_REPLAY_FLAG | ffi::GSS_C_SEQUENCE_FLAG;
        let base = ffi::GSS_C_MUTUAL_FLAG | ffi::GSS_C_INTEG_FLAG | ordered;
        Ok(Self {
            raw: ptr::null_mut(),
            credential: Credential::of_cache(cache)?,
            server: Name::of_principal(server)?,
            flags: if seals { base | ffi::GSS_C_CONF_FLAG } else { base },
            channel_binding,
        })
    }

    /// Processes a token of the server; an empty one begins. Requests the ticket of the service from a KDC first.
    pub fn step(&mut self, received: &[u8]) -> Result<ContextStep, GssError> {
        let (mechanism, received) = (oid(MECHANISM), input(received));
        let bindings = ffi::gss_channel_bindings_struct {
            initiator_addrtype: 0,
            initiator_address: EMPTY,
            acceptor_addrtype: 0,
            acceptor_address: EMPTY,
            application_data: input(&self.channel_binding),
        };
        let bound = match self.channel_binding.is_empty() {
            true => ptr::null(),
            false => &raw const bindings,
        };
        let (mut minor, mut granted, mut seconds) = (0, 0, 0);
        let mut token = OutputBuffer(EMPTY);
        // SAFETY: credential, name and identifier are valid; buffers are only read; every place outlives the call. The
        // context is made by the first call, and freed by the drop.
        let major = unsafe {
            ffi::gss_init_sec_context(
                &raw mut minor,
                self.credential.0,
                &raw mut self.raw,
                self.server.0,
                &raw const mechanism,
                self.flags,
                0,
                bound,
                &raw const received,
                ptr::null_mut(),
                &raw mut token.0,
                &raw mut granted,
                &raw mut seconds,
            )
        };
        let token = token.bytes().to_vec();
        match major {
            ffi::GSS_S_CONTINUE_NEEDED => Ok(ContextStep { token, life: None }),
            ffi::GSS_S_COMPLETE if granted & self.flags == self.flags => {
                Ok(ContextStep { token, life: Some(Duration::from_secs(seconds.into())) })
            }
            ffi::GSS_S_COMPLETE => Err(GssError::new("the server's identity is not proven")),
            _ => Err(error(major, minor)),
        }
    }

    /// Signs, and with `encrypts` also encrypts, bytes for the server. Calls `show` with the result.
    pub fn wrap<T>(
        &mut self,
        bytes: &[u8],
        encrypts: bool,
        show: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, GssError> {
        let bytes = input(bytes);
        let (mut minor, mut encrypted) = (0, 0);
        let mut output = OutputBuffer(EMPTY);
        // SAFETY: a context that a step made; the input is only read; every place outlives the call.
        let major = unsafe {
            ffi::gss_wrap(
                &raw mut minor,
                self.raw,
                encrypts.into(),
                0,
                &raw const bytes,
                &raw mut encrypted,
                &raw mut output.0,
            )
        };
        match major {
            ffi::GSS_S_COMPLETE if encrypts && encrypted == 0 => {
                Err(GssError::new("the library does not encrypt"))
            }
            ffi::GSS_S_COMPLETE => Ok(show(output.bytes())),
            _ => Err(error(major, minor)),
        }
    }

    /// Verifies a message of the server and calls `show` with its bytes. Rejects a message out of order, and with
    /// `must_be_encrypted` one without encryption.
    pub fn unwrap<T>(
        &mut self,
        message: &[u8],
        must_be_encrypted: bool,
        show: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, GssError> {
        let message = input(message);
        let (mut minor, mut encrypted) = (0, 0);
        let mut output = OutputBuffer(EMPTY);
        // SAFETY: a context that a step made; the input is only read; every place outlives the call.
        let major = unsafe {
            ffi::gss_unwrap(
                &raw mut minor,
                self.raw,
                &raw const message,
                &raw mut output.0,
                &raw mut encrypted,
                ptr::null_mut(),
            )
        };
        match major {
            ffi::GSS_S_COMPLETE if must_be_encrypted && encrypted == 0 => {
                Err(GssError::new("the message is not encrypted"))
            }
            ffi::GSS_S_COMPLETE => Ok(show(output.bytes())),
            // Also the bits of a message that was repeated, reordered or lost.
            _ => Err(error(major, minor)),
        }
    }

    /// Returns the number of bytes that an encrypted message of at most `message_max` bytes can have.
    pub fn wrap_size_limit(&self, message_max: u32) -> Result<usize, GssError> {
        let (mut minor, mut most) = (0, 0);
        // SAFETY: a context that a step made, and places for the results.
        let major = unsafe {
            ffi::gss_wrap_size_limit(&raw mut minor, self.raw, 1, 0, message_max, &raw mut most)
        };
        if major == ffi::GSS_S_COMPLETE { Ok(most as usize) } else { Err(error(major, minor)) }
    }
}

impl Drop for ClientContext {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            let mut minor = 0;
            // SAFETY: made by a step, and freed once; the output is not requested.
            unsafe {
                let context = &raw mut self.raw;
                ffi::gss_delete_sec_context(&raw mut minor, context, ptr::null_mut());
            }
        }
    }
}
