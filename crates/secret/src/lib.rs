//! Passwords and the like while they are in memory: a mapping of their own, locked so that it is never
//! swapped, left out of core dumps, and wiped before it is given back.
//!
//! Locking is tried, not insisted on: a user may have few locked pages, and whoever cannot lock still
//! has to log in. Everything else holds always. Nothing here prints, compares in a time that tells of
//! the bytes, or allocates.

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
    room: usize,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and goes with it wherever it goes.
#[allow(unsafe_code)]
unsafe impl Send for Secret {}
// SAFETY: nothing is changed through a shared reference.
#[allow(unsafe_code)]
unsafe impl Sync for Secret {}

impl Secret {
    /// An empty one with room for so many bytes; `None` when there is no memory.
    #[must_use]
    #[allow(unsafe_code)]
    pub fn with_room(bytes: usize) -> Option<Self> {
        let room = bytes.max(1);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory in use.
        let address = unsafe { libc::mmap(ptr::null_mut(), room, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping just made, whole. That either is refused is no reason to do without.
        unsafe {
            libc::mlock(address, room);
            libc::madvise(address, room, libc::MADV_DONTDUMP);
        }
        Some(Self { memory: NonNull::new(address.cast())?, room, len: 0 })
    }

    /// A copy of these bytes; `None` when there is no memory.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Option<Self> {
        let mut secret = Self::with_room(bytes.len())?;
        secret.extend(bytes)?;
        Some(secret)
    }

    /// The bytes.
    #[must_use]
    #[allow(unsafe_code)]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: `len` is at most `room`, and as many bytes are mapped, zeroed or written to.
        unsafe { core::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What is still free, to be written to; [`advance`](Self::advance) says how much was.
    #[must_use]
    #[allow(unsafe_code)]
    pub fn free_mut(&mut self) -> &mut [u8] {
        let free = self.room.saturating_sub(self.len);
        // SAFETY: `room` bytes are mapped from `memory` on, of which these are the last, and this value is
        // borrowed for as long as they are.
        unsafe { core::slice::from_raw_parts_mut(self.memory.as_ptr().add(self.len), free) }
    }

    /// So many bytes of what was free are in use now.
    pub fn advance(&mut self, bytes: usize) {
        self.len = self.len.saturating_add(bytes).min(self.room);
    }

    /// Appends; `None`, and nothing is, when there is too little room.
    pub fn extend(&mut self, bytes: &[u8]) -> Option<()> {
        self.free_mut().get_mut(..bytes.len())?.copy_from_slice(bytes);
        self.advance(bytes.len());
        Some(())
    }

    /// Wipes it, and is empty.
    pub fn clear(&mut self) {
        self.len = 0;
        wipe(self.free_mut());
    }

    /// Whether the bytes are these, in a time that depends on the lengths alone.
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
        // SAFETY: the mapping of `with_room`, to which nothing refers any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.room) };
    }
}

/// Without what is in it.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Overwrites with zeros, which no optimisation leaves out.
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
        let mut secret = Secret::with_room(5).unwrap();
        assert!(secret.is_empty() && secret.extend(b"hell").is_some());
        assert_eq!(secret.extend(b"oo"), None);
        assert_eq!(secret.extend(b"o"), Some(()));
        assert_eq!(secret.as_bytes(), b"hello");
        secret.clear();
        assert!(secret.is_empty() && secret.free_mut() == [0; 5]);
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
        // The kernel joins neighbours of a kind.
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
