//! Where getpwent(3), getgrent(3) and getspent(3) are in their lists. Look-ups have no part in it.
//!
//! Nothing is held between two calls: an enumeration that a publication overtakes goes on at the
//! same position of the new generation, whose entries stand in the same order.
#![forbid(unsafe_code)]

use crate::status::Miss;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// One map's enumeration, for the whole process, as in glibc.
pub struct Enumeration(AtomicU32);

impl Enumeration {
    /// At the first entry.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Back to the first entry: `setpwent` and `endpwent`.
    pub fn rewind(&self) {
        self.0.store(0, Relaxed);
    }

    /// Gives the position to `answer` and steps on when it found an entry and had room for it.
    pub fn next(&self, answer: impl FnOnce(u32) -> Result<(), Miss>) -> Result<(), Miss> {
        let position = self.0.load(Relaxed);
        answer(position)?;
        // glibc lets one thread in at a time; whoever calls the module past it may see an entry
        // twice, but none is left out.
        self.0.store(position.saturating_add(1), Relaxed);
        Ok(())
    }
}
