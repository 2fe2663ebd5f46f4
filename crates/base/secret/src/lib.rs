// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passwords and other secrets in memory: a private mapping, locked against swapping, excluded from core dumps, and
//! wiped before it is unmapped.
//!
//! Locking and the exclusion are best effort: a user may have few locked pages, and must still be able to log in. All
//! other properties always hold. This crate prints no secret and does not allocate. The time of a comparison does not
//! depend on the bytes.

#![no_std]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{Ordering, compiler_fence};

/// Bytes that are wiped when they are dropped.
pub struct Secret {
    memory: NonNull<u8>,
    capacity: usize,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and moves with it.
#[allow(unsafe_code)]
unsafe impl Send for Secret {}
// SAFETY: a shared reference allows no changes.
#[allow(unsafe_code)]
unsafe impl Sync for Secret {}

impl Secret {
    /// Creates an empty secret with space for `bytes`. Returns `None` without memory.
    #[must_use]
    #[allow(unsafe_code)]
    pub fn with_capacity(bytes: usize) -> Option<Self> {
        let room = bytes.max(1);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no memory in use.
        let address = unsafe { libc::mmap(ptr::null_mut(), room, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the whole mapping that was just made. If either call fails, the secret is used anyway.
        unsafe {
            libc::mlock(address, room);
            libc::madvise(address, room, libc::MADV_DONTDUMP);
        }
        Some(Self { memory: NonNull::new(address.cast())?, capacity: room, len: 0 })
    }

    /// Copies these bytes to a new secret. Returns `None` without memory.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Option<Self> {
        let mut secret = Self::with_capacity(bytes.len())?;
        secret.extend(bytes)?;
        Some(secret)
    }

    /// Returns the bytes.
    #[must_use]
    #[allow(unsafe_code)]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: `len` is at most `capacity`, and that many bytes are mapped, either zeroed or written.
        unsafe { core::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }

    /// Returns whether the secret is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the free space, to be written. Then call [`advance`](Self::advance) with the number of written bytes.
    #[must_use]
    #[allow(unsafe_code)]
    pub fn spare_mut(&mut self) -> &mut [u8] {
        let free = self.capacity.saturating_sub(self.len);
        // SAFETY: `capacity` bytes are mapped from `memory` on, and these are the last of them. This value is borrowed
        // as long as they are.
        unsafe { core::slice::from_raw_parts_mut(self.memory.as_ptr().add(self.len), free) }
    }

    /// Adds that many bytes of the free space to the secret.
    pub fn advance(&mut self, bytes: usize) {
        self.len = self.len.saturating_add(bytes).min(self.capacity);
    }

    /// Appends all bytes. Returns `None`, and appends no byte, if there is too little space.
    pub fn extend(&mut self, bytes: &[u8]) -> Option<()> {
        self.spare_mut().get_mut(..bytes.len())?.copy_from_slice(bytes);
        self.advance(bytes.len());
        Some(())
    }

    /// Wipes and empties the secret.
    pub fn clear(&mut self) {
        self.len = 0;
        wipe(self.spare_mut());
    }

    /// Returns whether the bytes are equal. The time depends only on the lengths.
    #[must_use]
    pub fn equals(&self, other: &[u8]) -> bool {
        let mine = self.as_bytes();
        let differs =
            mine.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other));
        core::hint::black_box(differs) == 0 && mine.len() == other.len()
    }
}

impl Drop for Secret {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        self.clear();
        // SAFETY: the mapping of `with_capacity`, to which no reference remains.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.capacity) };
    }
}

/// Prints no content.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Overwrites bytes with zeros. No optimization can remove that.
#[allow(unsafe_code)]
pub fn wipe(bytes: &mut [u8]) {
    for byte in bytes.iter_mut() {
        // SAFETY: a reference is valid for a write.
        unsafe { ptr::write_volatile(byte, 0) };
    }
    compiler_fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::format;
    use std::fs;
    use std::string::String;

    #[test]
    fn it_is_what_was_put_in_and_not_more_than_fits() {
        let mut secret = Secret::with_capacity(5).unwrap();
        assert!(secret.is_empty() && secret.extend(b"hell").is_some());
        assert_eq!(secret.extend(b"oo"), None);
        assert_eq!(secret.extend(b"o"), Some(()));
        assert_eq!(secret.as_bytes(), b"hello");
        secret.clear();
        assert!(secret.is_empty() && secret.spare_mut() == [0; 5]);
    }

    #[test]
    fn it_equals_its_own_bytes_alone() {
        let secret = Secret::copy_of(b"hello").unwrap();
        assert!(secret.equals(b"hello"));
        for other in [&b""[..], b"hell", b"hello!", b"jello"] {
            assert!(!secret.equals(other));
        }
        assert!(Secret::copy_of(b"").unwrap().equals(b""));
    }

    #[test]
    fn it_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::copy_of(b"hello").unwrap()), "Secret");
    }

    #[test]
    fn its_memory_is_locked_and_not_dumped() {
        let secret = Secret::copy_of(b"hello").unwrap();
        let address = secret.as_bytes().as_ptr() as usize;
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        // The kernel merges adjacent mappings of the same kind.
        let has = |line: &str| {
            let ends = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).ok();
            ends.is_some_and(|(start, end)| {
                number(start).is_some_and(|start| start <= address)
                    && number(end).is_some_and(|end| address < end)
            })
        };
        let mut own = maps.lines().skip_while(|line| !has(line));
        let flags: String = own.find(|line| line.starts_with("VmFlags")).unwrap().into();
        assert!(flags.contains(" lo") && flags.contains(" dd"), "{flags}");
    }
}
