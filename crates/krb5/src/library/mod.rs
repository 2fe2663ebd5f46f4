//! libkrb5 for the rest of this program: contexts, exchanges, tickets, keytabs and credential caches
//! that free themselves and give errors with the library's own words.
//!
//! The one module that calls it, cut into what it is about. A context is made of a text in the syntax of krb5.conf(5) that the
//! caller has, as a secure one: neither the environment nor a file of this host has a say. Nothing here
//! asks a user anything, and nothing bounds the time that a server may take: that is done by ending the
//! process ([`crate::serve`]).

#![allow(unsafe_code)]

mod cache;
mod credentials;
mod exchange;
mod keytab;
mod principal;

pub use cache::Cache;
pub use credentials::{Credentials, Times};
pub use exchange::{Changed, Granted, Wishes};
pub use keytab::Keytab;
pub use principal::Principal;

use crate::sys;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// What libkrb5 says when something did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct Error {
    /// Its number, of <krb5.h>.
    pub code: i32,
    /// In words.
    pub words: String,
}

/// Longest text of a message that is taken from the library: it may hold what a server said.
const WORDS_BYTES_MAX: usize = 512;
/// Tickets that are read of one cache; keys of one keytab.
const ENTRIES_MAX: usize = 1024;

/// A library context.
#[derive(Debug)]
pub struct Context {
    raw: sys::krb5_context,
    /// Its configuration, which the library looks at again: a file without a name.
    _profile: OwnedFd,
}

impl Context {
    /// A context that goes by this text in the syntax of krb5.conf(5) alone.
    pub fn new(profile: &str) -> io::Result<Self> {
        let mut file = File::from(memfd_create("roster-krb5.conf", MemfdFlags::CLOEXEC)?);
        file.write_all(profile.as_bytes())?;
        let path = descriptor_path(&file)?;
        let mut parsed = ptr::null_mut();
        // SAFETY: a path that ends in NUL, and a place for the result.
        let failed = unsafe { sys::profile_init_path(path.as_ptr(), &raw mut parsed) };
        if failed != 0 {
            return Err(io::Error::other(format!(
                "libkrb5 does not take its configuration ({failed})"
            )));
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the profile is one, and copied before it is released; `raw` takes the result.
        let code = unsafe {
            let secure = sys::KRB5_INIT_CONTEXT_SECURE;
            let code = sys::krb5_init_context_profile(parsed, secure, &raw mut raw);
            sys::profile_release(parsed);
            code
        };
        if code != 0 {
            return Err(io::Error::other(format!("libkrb5 does not start ({code})")));
        }
        Ok(Self { raw, _profile: file.into() })
    }

    fn check(&self, code: sys::krb5_error_code) -> Result<(), Error> {
        if code == 0 { Ok(()) } else { Err(self.error(code)) }
    }

    fn error(&self, code: sys::krb5_error_code) -> Error {
        // SAFETY: the message is a string that ends in NUL until it is freed, and copied before.
        let words = unsafe {
            let message = sys::krb5_get_error_message(self.raw, code);
            let words = CStr::from_ptr(message).to_string_lossy().into_owned();
            sys::krb5_free_error_message(self.raw, message);
            words
        };
        Error { code, words: one_line(&words) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it is freed once; whatever was made of it borrows it, so is gone.
        unsafe { sys::krb5_free_context(self.raw) }
    }
}

/// A file without a name by a path that leads to it.
fn descriptor_path(file: &File) -> io::Result<CString> {
    Ok(CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?)
}

fn c_string(text: &str) -> Result<CString, Error> {
    let words = "there is a NUL in it".to_owned();
    CString::new(text).map_err(|_| Error { code: libc::EINVAL, words })
}

/// For a log: printable, and not longer than a line should be.
fn one_line(words: &str) -> String {
    let line = words.chars().map(|char| if char.is_control() { ' ' } else { char });
    bounded(&line.collect::<String>())
}

fn bounded(words: &str) -> String {
    words[..words.floor_char_boundary(WORDS_BYTES_MAX)].to_owned()
}
