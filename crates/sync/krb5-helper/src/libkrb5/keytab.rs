// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of this host, from a keytab. `credentials` verifies tickets with them.

use super::{ENTRIES_MAX, LibraryContext, LibraryError, Principal, c_string, descriptor_path};
use crate::ffi;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::ptr;

impl LibraryContext {
    /// Loads the keys from the bytes of a keytab into a keytab in memory.
    pub fn keytab(&self, bytes: &[u8]) -> io::Result<Keytab<'_>> {
        let mut file = File::from(memfd_create("roster-keytab", MemfdFlags::CLOEXEC)?);
        file.write_all(bytes)?;
        let path = descriptor_path(&file)?;
        let file = self.open_keytab(&path.to_string_lossy()).map_err(io::Error::other)?;
        let memory = self.open_keytab("MEMORY:roster").map_err(io::Error::other)?;
        let copied = file.copy_to(&memory).map_err(io::Error::other)?;
        if copied == 0 {
            return Err(io::Error::other("the keytab has no key"));
        }
        Ok(memory)
    }

    fn open_keytab(&self, name: &str) -> Result<Keytab<'_>, LibraryError> {
        let name = c_string(name)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a string that ends in NUL, and a place for the result.
        let code = unsafe { ffi::krb5_kt_resolve(self.raw, name.as_ptr(), &raw mut raw) };
        self.check(code)?;
        Ok(Keytab { context: self, raw })
    }
}

/// Keys of this host.
#[derive(Debug)]
pub struct Keytab<'c> {
    context: &'c LibraryContext,
    pub(super) raw: ffi::krb5_keytab,
}

impl Keytab<'_> {
    fn copy_to(&self, other: &Keytab<'_>) -> Result<usize, LibraryError> {
        let context = self.context;
        let mut copied = 0;
        self.for_each_key(|entry| {
            copied += 1;
            // SAFETY: an entry that was filled in, which is copied.
            context.check(unsafe { ffi::krb5_kt_add_entry(context.raw, other.raw, entry) })
        })?;
        Ok(copied)
    }

    /// Returns the principals of its keys, without duplicates.
    pub fn principals(&self) -> Result<Vec<String>, LibraryError> {
        let mut names: Vec<String> = Vec::new();
        self.for_each_key(|entry| {
            // Borrowed from the entry, which frees it.
            let principal =
                ManuallyDrop::new(Principal { context: self.context, raw: entry.principal });
            let name = principal.text()?;
            if !names.contains(&name) && names.len() < PRINCIPALS_MAX {
                names.push(name);
            }
            Ok(())
        })?;
        Ok(names)
    }

    /// Calls `show` with each key, until one fails.
    fn for_each_key(
        &self,
        mut show: impl FnMut(&mut ffi::krb5_keytab_entry) -> Result<(), LibraryError>,
    ) -> Result<(), LibraryError> {
        let context = self.context;
        let mut cursor = ptr::null_mut();
        // SAFETY: a keytab, and a place for the cursor, which is ended below.
        let code = unsafe { ffi::krb5_kt_start_seq_get(context.raw, self.raw, &raw mut cursor) };
        context.check(code)?;
        let mut shown = Ok(());
        for _ in 0..ENTRIES_MAX {
            // SAFETY: all zero is an empty entry; the library fills it in, or reports that it did not.
            let (code, mut entry) = unsafe {
                let mut entry: ffi::krb5_keytab_entry = std::mem::zeroed();
                let place = &raw mut entry;
                let code = ffi::krb5_kt_next_entry(context.raw, self.raw, place, &raw mut cursor);
                (code, entry)
            };
            if code != 0 {
                if code != KT_END {
                    shown = Err(context.error(code));
                }
                break;
            }
            shown = show(&mut entry);
            // SAFETY: an entry that was filled in, freed once.
            unsafe { ffi::krb5_free_keytab_entry_contents(context.raw, &raw mut entry) };
            if shown.is_err() {
                break;
            }
        }
        // SAFETY: the cursor from above, ended once.
        unsafe { ffi::krb5_kt_end_seq_get(context.raw, self.raw, &raw mut cursor) };
        shown
    }
}

/// No more keys.
const KT_END: i32 = -1_765_328_202;
/// No such key.
pub(super) const KT_NOTFOUND: i32 = -1_765_328_203;
/// Largest number of principals from a keytab that are tried.
const PRINCIPALS_MAX: usize = 8;

impl Drop for Keytab<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and closed once.
        unsafe { ffi::krb5_kt_close(self.context.raw, self.raw) };
    }
}
