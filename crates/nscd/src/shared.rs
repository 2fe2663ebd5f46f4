//! The one writable mapping of a map, which its clients read at the same time. The only unsafe code
//! of this crate beside `host`.
//!
//! What clients may look at meanwhile is one aligned word at a time and goes through atomics. All else
//! is written before a word leads there.
#![allow(unsafe_code)]

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Bytes that can be read, at any place.
pub trait Memory {
    /// How many there are.
    fn size(&self) -> usize;

    /// Copies what stands at `offset`; nothing where that is not all inside.
    fn read(&self, offset: usize, out: &mut [u8]) -> Option<()>;

    /// The word at `offset`.
    fn word(&self, offset: usize) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes)?;
        Some(u32::from_ne_bytes(bytes))
    }
}

impl Memory for [u8] {
    fn size(&self) -> usize {
        self.len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Option<()> {
        let end = offset.checked_add(out.len())?;
        out.copy_from_slice(self.get(offset..end)?);
        Some(())
    }
}

/// A file of a fixed length that nobody else writes, mapped.
#[derive(Debug)]
pub struct Shared {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and `&self` reads it only.
unsafe impl Send for Shared {}

impl Shared {
    /// Maps that many bytes of a file that has them, all of them written, so that the kernel never has
    /// to find a page for them.
    ///
    /// # Errors
    ///
    /// What the system says, or that the file is shorter.
    pub fn new(file: &File, bytes: usize) -> io::Result<Self> {
        if bytes == 0 || file.metadata()?.len() < bytes as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of this program.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// Bytes mapped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    fn place<T>(&self, offset: usize) -> Option<NonNull<T>> {
        let end = offset.checked_add(size_of::<T>())?;
        if end > self.bytes || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: `offset` is inside of the mapping.
        Some(unsafe { self.base.add(offset) }.cast())
    }

    /// Sets the aligned word at `offset`; clients see it after all that was written before.
    pub fn store(&mut self, offset: usize, value: u32) {
        if let Some(place) = self.place::<AtomicU32>(offset) {
            // SAFETY: `place` is aligned and inside of the mapping, which lives as long as `self`; other
            // processes read it only.
            unsafe { place.as_ref() }.store(value, Ordering::SeqCst);
        }
    }

    /// Sets the aligned 64-bit number at `offset`.
    pub fn store_long(&mut self, offset: usize, value: i64) {
        if let Some(place) = self.place::<AtomicI64>(offset) {
            // SAFETY: as in `store`.
            unsafe { place.as_ref() }.store(value, Ordering::SeqCst);
        }
    }

    /// Writes where no word leads yet.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        let end = offset.checked_add(bytes.len())?;
        if end > self.bytes {
            return None;
        }
        // SAFETY: the target is inside of the mapping, and `bytes` is none of it, since nothing lends it
        // out.
        unsafe {
            self.base
                .add(offset)
                .copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        };
        Some(())
    }
}

impl Memory for Shared {
    fn size(&self) -> usize {
        self.bytes
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Option<()> {
        let end = offset.checked_add(out.len())?;
        if end > self.bytes {
            return None;
        }
        // SAFETY: the source is inside of the mapping, which only this process writes, and not now: that
        // takes `&mut self`.
        unsafe {
            self.base.add(offset).copy_to_nonoverlapping(NonNull::from(out).cast(), end - offset);
        };
        Some(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it is this mapping's own place and length, and nothing refers to it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
