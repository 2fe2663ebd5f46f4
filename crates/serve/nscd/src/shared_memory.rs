// SPDX-License-Identifier: MIT OR Apache-2.0
//! The writable mapping of a map, which clients read at the same time. Unsafe code of this crate is only here, in
//! `nss_helper` and in `server::socket_backlog`.
//!
//! Clients may concurrently read aligned words, which are written as atomics. All other bytes are written before a word
//! refers to them.
#![allow(unsafe_code)]

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Bytes with random access.
pub trait MapMemory {
    /// Returns the number of bytes.
    fn size(&self) -> usize;

    /// Copies the bytes at `offset`; returns `None` if not all of them are inside.
    fn read(&self, offset: usize, out: &mut [u8]) -> Option<()>;

    /// Returns the word at `offset`.
    fn word(&self, offset: usize) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes)?;
        Some(u32::from_ne_bytes(bytes))
    }
}

impl MapMemory for [u8] {
    fn size(&self) -> usize {
        self.len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Option<()> {
        let end = offset.checked_add(out.len())?;
        out.copy_from_slice(self.get(offset..end)?);
        Some(())
    }
}

/// A mapped file of a fixed length. No other process writes the file.
#[derive(Debug)]
pub struct SharedMapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and `&self` reads it only.
unsafe impl Send for SharedMapping {}

impl SharedMapping {
    /// Maps `bytes` of a file. All these bytes must be written already, so that the kernel never has to allocate a
    /// page.
    ///
    /// # Errors
    ///
    /// The file is shorter, or the system call failed.
    pub fn new(file: &File, bytes: usize) -> io::Result<Self> {
        if bytes == 0 || file.metadata()?.len() < bytes as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of this program.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// Returns the number of mapped bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether the mapping is empty, which never holds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    fn place<T>(&self, offset: usize) -> Option<NonNull<T>> {
        let end = offset.checked_add(size_of::<T>())?;
        if end > self.bytes || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: `offset` is inside the mapping.
        Some(unsafe { self.base.add(offset) }.cast())
    }

    /// Stores an aligned word at `offset`. Clients see it after all earlier writes.
    pub fn store(&mut self, offset: usize, value: u32) {
        if let Some(place) = self.place::<AtomicU32>(offset) {
            // SAFETY: `place` is aligned and inside the mapping, which lives as long as `self`; other processes only
            // read it.
            unsafe { place.as_ref() }.store(value, Ordering::SeqCst);
        }
    }

    /// Stores an aligned 64-bit number at `offset`.
    pub fn store_long(&mut self, offset: usize, value: i64) {
        if let Some(place) = self.place::<AtomicI64>(offset) {
            // SAFETY: as in `store`.
            unsafe { place.as_ref() }.store(value, Ordering::SeqCst);
        }
    }

    /// Writes bytes that are not reachable through a word yet.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        let end = offset.checked_add(bytes.len())?;
        if end > self.bytes {
            return None;
        }
        // SAFETY: the target is inside the mapping. `bytes` does not overlap it, since the mapping is never lent out.
        unsafe {
            self.base
                .add(offset)
                .copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        };
        Some(())
    }
}

impl MapMemory for SharedMapping {
    fn size(&self) -> usize {
        self.bytes
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Option<()> {
        let end = offset.checked_add(out.len())?;
        if end > self.bytes {
            return None;
        }
        // SAFETY: the source is inside the mapping. Only this process writes it, and not now: a write takes
        // `&mut self`.
        unsafe {
            self.base.add(offset).copy_to_nonoverlapping(NonNull::from(out).cast(), end - offset);
        };
        Some(())
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: base and length are those of this mapping, and no reference to it remains.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
