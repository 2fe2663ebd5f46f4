//! Keys of this host.

use super::{Context, ENTRIES_MAX, Error, Principal, c_string, descriptor_path};
use crate::sys;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::ptr;

impl Context {
    /// The keys in the bytes of a keytab, as one that is in memory alone.
    pub fn keytab(&self, bytes: &[u8]) -> io::Result<Keytab<'_>> {
        let mut file = File::from(memfd_create("roster-keytab", MemfdFlags::CLOEXEC)?);
        file.write_all(bytes)?;
        let path = descriptor_path(&file)?;
        let file = self.keytab_called(&path.to_string_lossy()).map_err(io::Error::other)?;
        let memory = self.keytab_called("MEMORY:roster").map_err(io::Error::other)?;
        let copied = file.copy_to(&memory).map_err(io::Error::other)?;
        if copied == 0 {
            return Err(io::Error::other("there is no key in it"));
        }
        Ok(memory)
    }

    fn keytab_called(&self, name: &str) -> Result<Keytab<'_>, Error> {
        let name = c_string(name)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a string that ends in NUL, and a place for the result.
        let code = unsafe { sys::krb5_kt_resolve(self.raw, name.as_ptr(), &raw mut raw) };
        self.check(code)?;
        Ok(Keytab { context: self, raw })
    }
}

/// Keys of this host.
#[derive(Debug)]
pub struct Keytab<'c> {
    context: &'c Context,
    pub(super) raw: sys::krb5_keytab,
}

impl Keytab<'_> {
    fn copy_to(&self, other: &Keytab<'_>) -> Result<usize, Error> {
        let context = self.context;
        let mut copied = 0;
        self.each(|entry| {
            copied += 1;
            // SAFETY: an entry that was filled in, which is copied.
            context.check(unsafe { sys::krb5_kt_add_entry(context.raw, other.raw, entry) })
        })?;
        Ok(copied)
    }

    /// Whose keys are in it, each once.
    pub(super) fn principals(&self) -> Result<Vec<String>, Error> {
        let mut names: Vec<String> = Vec::new();
        self.each(|entry| {
            // Lent to it by the entry, which is the one that frees it.
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

    /// Shows each key, until one is no good.
    fn each(
        &self,
        mut show: impl FnMut(&mut sys::krb5_keytab_entry) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let context = self.context;
        let mut cursor = ptr::null_mut();
        // SAFETY: a keytab, and a place for the cursor, which is ended below.
        let code = unsafe { sys::krb5_kt_start_seq_get(context.raw, self.raw, &raw mut cursor) };
        context.check(code)?;
        let mut shown = Ok(());
        for _ in 0..ENTRIES_MAX {
            // SAFETY: all zero is an empty entry; the library fills it in, or says that it did not.
            let (code, mut entry) = unsafe {
                let mut entry: sys::krb5_keytab_entry = std::mem::zeroed();
                let place = &raw mut entry;
                let code = sys::krb5_kt_next_entry(context.raw, self.raw, place, &raw mut cursor);
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
            unsafe { sys::krb5_free_keytab_entry_contents(context.raw, &raw mut entry) };
            if shown.is_err() {
                break;
            }
        }
        // SAFETY: the cursor of above, ended once.
        unsafe { sys::krb5_kt_end_seq_get(context.raw, self.raw, &raw mut cursor) };
        shown
    }
}

/// No more keys.
const KT_END: i32 = -1_765_328_202;
/// No such key.
pub(super) const KT_NOTFOUND: i32 = -1_765_328_203;
/// Names that a host has in its keytab, and that are tried.
const PRINCIPALS_MAX: usize = 8;

impl Drop for Keytab<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and closed once.
        unsafe { sys::krb5_kt_close(self.context.raw, self.raw) };
    }
}
