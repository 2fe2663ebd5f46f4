// SPDX-License-Identifier: MIT OR Apache-2.0
//! libkrb5 for the rest of this program: contexts, exchanges, tickets, keytabs and credential caches. They free
//! themselves and return errors with the library's text.
//!
//! Only this module calls libkrb5. A context is made from a text of the caller in the syntax of krb5.conf(5). It is a
//! secure context: neither the environment nor a file of this host affects it. No function here prompts a user. No
//! function limits the time of a server either: that is done by ending the process ([`crate::server`]).

#![allow(unsafe_code)]

mod cache;
mod credentials;
mod kdc_exchange;
mod keytab;
mod principal;

pub use cache::Ccache;
pub use credentials::{KerberosTicket, TicketTimes};
pub use kdc_exchange::{ChangeReply, GrantedTicket, TicketOptions};
pub use keytab::Keytab;
pub use principal::Principal;

use crate::ffi;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::ptr;

/// An error of libkrb5.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LibraryError {
    /// The error's number in <krb5.h>.
    pub code: i32,
    /// The error's text.
    pub message: String,
}

/// Longest text of a library message, which may include text of a server.
const MESSAGE_BYTES_MAX: usize = 512;
/// Largest number of tickets read from one cache, or of keys from one keytab.
const ENTRIES_MAX: usize = 1024;

/// A library context.
#[derive(Debug)]
pub struct LibraryContext {
    raw: ffi::krb5_context,
    /// The context's configuration, which the library reads again: a memfd.
    profile: File,
}

impl LibraryContext {
    /// Makes a context that uses only this text in the syntax of krb5.conf(5).
    pub fn new(profile: &str) -> io::Result<Self> {
        let mut file = File::from(memfd_create("roster-krb5.conf", MemfdFlags::CLOEXEC)?);
        file.write_all(profile.as_bytes())?;
        let path = descriptor_path(&file)?;
        let mut parsed = ptr::null_mut();
        // SAFETY: a path that ends in NUL, and a place for the result.
        let failed = unsafe { ffi::profile_init_path(path.as_ptr(), &raw mut parsed) };
        if failed != 0 {
            return Err(io::Error::other(format!("libkrb5 rejects its configuration ({failed})")));
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the profile is one, and copied before it is released; `raw` takes the result.
        let code = unsafe {
            let secure = ffi::KRB5_INIT_CONTEXT_SECURE;
            let code = ffi::krb5_init_context_profile(parsed, secure, &raw mut raw);
            ffi::profile_release(parsed);
            code
        };
        if code != 0 {
            return Err(io::Error::other(format!("libkrb5 cannot be initialized ({code})")));
        }
        Ok(Self { raw, profile: file })
    }

    /// Returns the path of its configuration in this process and in its copies.
    pub fn profile_path(&self) -> io::Result<CString> {
        descriptor_path(&self.profile)
    }

    fn check(&self, code: ffi::krb5_error_code) -> Result<(), LibraryError> {
        if code == 0 { Ok(()) } else { Err(self.error(code)) }
    }

    fn error(&self, code: ffi::krb5_error_code) -> LibraryError {
        // SAFETY: the message is a string that ends in NUL until it is freed, and copied before.
        let words = unsafe {
            let message = ffi::krb5_get_error_message(self.raw, code);
            let words = CStr::from_ptr(message).to_string_lossy().into_owned();
            ffi::krb5_free_error_message(self.raw, message);
            words
        };
        LibraryError { code, message: one_line(&words) }
    }
}

impl Drop for LibraryContext {
    fn drop(&mut self) {
        // SAFETY: it is freed once; all objects made from it borrow it, so they are gone.
        unsafe { ffi::krb5_free_context(self.raw) }
    }
}

/// Returns a path that leads to a memfd.
fn descriptor_path(file: &File) -> io::Result<CString> {
    Ok(CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?)
}

fn c_string(text: &str) -> Result<CString, LibraryError> {
    let words = "the text contains a NUL".to_owned();
    CString::new(text).map_err(|_| LibraryError { code: libc::EINVAL, message: words })
}

/// Makes a text of a library printable and short enough for a log line.
pub fn one_line(words: &str) -> String {
    let line = words.chars().map(|char| if char.is_control() { ' ' } else { char });
    bounded(&line.collect::<String>())
}

fn bounded(words: &str) -> String {
    words[..words.floor_char_boundary(MESSAGE_BYTES_MAX)].to_owned()
}
