//! Where getpwent(3), getgrent(3) and getspent(3) are in their lists. Look-ups have no part in it.
//!
//! As `files` keeps its file open from the first entry to the end, an enumeration keeps a mapping of
//! its own, and lists one generation from the first entry to the last, whatever is published
//! meanwhile.
#![allow(unsafe_code)]

use crate::generations::{Own, Source};
use crate::status::Miss;
use core::cell::UnsafeCell;
use core::mem;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use roster_snapshot::Snapshot;

/// One map's enumeration, for the whole process, as in glibc.
pub struct Enumeration {
    busy: AtomicBool,
    place: UnsafeCell<Place>,
}

struct Place {
    /// The file, from the first entry to the end.
    file: Option<Own>,
    /// The entry that comes next.
    position: u32,
    /// Whether the last one has been given.
    ended: bool,
}

/// The three enumerations of a process.
pub static USERS: Enumeration = Enumeration::new();
pub static GROUPS: Enumeration = Enumeration::new();
pub static SHADOWS: Enumeration = Enumeration::new();

const START: Place = Place { file: None, position: 0, ended: false };

// SAFETY: `place` is touched by whoever has set `busy`, and by nobody else.
unsafe impl Sync for Enumeration {}

impl Enumeration {
    /// Before the first entry.
    const fn new() -> Self {
        Self { busy: AtomicBool::new(false), place: UnsafeCell::new(START) }
    }

    /// Back to before the first entry, and lets go of the file: `setpwent` and `endpwent`.
    pub fn rewind(&self) -> Result<(), Miss> {
        let turn = self.turn()?;
        let before = mem::replace(turn.place, START);
        drop(turn);
        drop(before);
        Ok(())
    }

    /// In a forked child: another thread may have been at it, and is not there any more. The
    /// enumeration starts again then, and the file that thread had open, if it had, stays mapped.
    pub fn release_in_child(&self) {
        if self.busy.load(Acquire) {
            // SAFETY: the child has one thread, and it is here. What is overwritten may be half
            // written, so nothing is done with it.
            unsafe { self.place.get().write(START) };
            self.busy.store(false, Release);
        }
    }

    /// The right to give the next entry. glibc lets one thread at a time enumerate a map. Who comes
    /// past it while another is at it is turned away rather than made to wait: that one may
    /// never come back.
    fn turn(&self) -> Result<Turn<'_>, Miss> {
        if self.busy.swap(true, Acquire) {
            return Err(Miss::Unavailable(libc::EAGAIN));
        }
        // SAFETY: `busy` was not set, and is as long as the turn lasts.
        Ok(Turn { busy: &self.busy, place: unsafe { &mut *self.place.get() } })
    }

    /// A turn with the file open, unless the end was reached.
    #[inline(never)]
    pub fn next(&self, source: &'static Source) -> Result<Turn<'_>, Miss> {
        let turn = self.turn()?;
        if turn.place.ended {
            return Err(Miss::Absent);
        }
        if turn.place.file.is_none() {
            turn.place.file = Some(source.open().map_err(Miss::Unavailable)?);
        }
        Ok(turn)
    }
}

/// An enumeration while one thread is at it.
pub struct Turn<'e> {
    busy: &'e AtomicBool,
    place: &'e mut Place,
}

impl Turn<'_> {
    /// The file, and the position of the entry to give.
    pub fn entry(&self) -> Result<(&Snapshot<'_>, u32), Miss> {
        let file = self.place.file.as_ref().ok_or(Miss::Absent)?;
        Ok((file.snapshot(), self.place.position))
    }

    /// Steps over an entry that is not to be given.
    pub fn pass(&mut self) {
        self.place.position = self.place.position.saturating_add(1);
    }

    /// Steps on after an entry that was given. Behind the last, lets go of the file.
    #[inline(never)]
    pub fn step(mut self, given: &Result<(), Miss>) {
        match given {
            Ok(()) => self.pass(),
            Err(Miss::Absent) => {
                let before = mem::replace(self.place, Place { ended: true, ..START });
                drop(self);
                drop(before);
            }
            Err(_) => {}
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.busy.store(false, Release);
    }
}
