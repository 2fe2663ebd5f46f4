// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries that are loaded at run time: an NSS module without the C library, and PAM. This module has the only unsafe
//! code of the lab. It relies on the declarations of the libraries' headers. Libraries are not unloaded, because their
//! threads or hooks may remain.

pub mod nss_module;
pub mod pam;

use crate::coded::Coded;
use anyhow::Result;
use roster_messages::table::lab;
use std::ffi::OsStr;

/// Loads a library for the rest of the process.
fn load(file: &OsStr) -> Result<&'static libloading::Library> {
    let shown = file.display();
    #[expect(unsafe_code, reason = "the library runs its initializers")]
    // SAFETY: the caller of roster-lab selected the library; no invariant of this crate depends on its initializers.
    let library = unsafe { libloading::Library::new(file) };
    let library = library.coded(&lab::LIBRARY_NOT_LOADED, format_args!("{shown}: cannot load"))?;
    Ok(Box::leak(Box::new(library)))
}
