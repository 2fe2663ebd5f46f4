//! Libraries that are loaded while we run: an NSS module without the C library around it, and PAM. The
//! only unsafe code of the lab is here; what is called keeps the promises of its own header, and is
//! never unloaded, for it may have left threads or hooks behind.

pub mod nss_module;
pub mod pam;

use anyhow::{Context, Result};
use std::ffi::OsStr;

/// A library that stays until the end.
fn load(file: &OsStr) -> Result<&'static libloading::Library> {
    let shown = file.display();
    #[expect(unsafe_code, reason = "it runs code of its own when it is loaded")]
    // SAFETY: whoever names a library wants its code to run; no promise of ours depends on it.
    let library = unsafe { libloading::Library::new(file) };
    let library = library.with_context(|| format!("{shown}: cannot be loaded"))?;
    Ok(Box::leak(Box::new(library)))
}
