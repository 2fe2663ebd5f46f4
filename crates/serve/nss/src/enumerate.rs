// SPDX-License-Identifier: MIT OR Apache-2.0
//! Positions of getpwent(3), getgrent(3) and getspent(3) in their lists. Lookups do not use this module.
//!
//! `files` keeps its file open from the first entry to the end. In the same way, an enumeration has a private mapping.
//! It lists one generation completely, even if a newer snapshot is published.
#![allow(unsafe_code)]

use crate::mapped_snapshot::PrivateSnapshot;
use crate::status::Miss;
use core::cell::UnsafeCell;
use core::mem;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use libc::c_int;
use roster_snapshot::{EntryList, Snapshot};

/// The enumeration of one map. As in glibc, there is one for the process.
pub struct Enumeration {
    list: EntryList,
    busy: AtomicBool,
    state: UnsafeCell<EnumerationState>,
}

struct EnumerationState {
    /// The file, from the first entry to the end.
    file: Option<PrivateSnapshot>,
    /// Position of the next entry.
    position: u32,
    /// Positions below it belong to a listed domain.
    listed_end: u32,
    /// Whether the last entry was returned.
    ended: bool,
}

/// The three enumerations of a process.
pub static USERS: Enumeration = Enumeration::new(EntryList::Users);
pub static GROUPS: Enumeration = Enumeration::new(EntryList::Groups);
pub static SHADOWS: Enumeration = Enumeration::new(EntryList::Users);

const START: EnumerationState =
    EnumerationState { file: None, position: 0, listed_end: 0, ended: false };

// SAFETY: only the thread that has set `busy` accesses `state`.
unsafe impl Sync for Enumeration {}

impl Enumeration {
    /// Creates an enumeration before its first entry.
    const fn new(list: EntryList) -> Self {
        Self { list, busy: AtomicBool::new(false), state: UnsafeCell::new(START) }
    }

    /// Returns to the first entry and unmaps the file: `setpwent` and `endpwent`.
    pub fn rewind(&self) -> Result<(), Miss> {
        let turn = self.lock()?;
        let before = mem::replace(turn.state, START);
        drop(turn);
        drop(before);
        Ok(())
    }

    /// Restarts the enumeration in a forked child if another thread was using it, because that thread does not exist in
    /// the child. A file that the other thread had open stays mapped.
    pub fn release_in_child(&self) {
        if self.busy.load(Acquire) {
            // SAFETY: the child has only this thread. The old value may be partially written, so it is overwritten
            // without a drop.
            unsafe { self.state.get().write(START) };
            self.busy.store(false, Release);
        }
    }

    /// Acquires the enumeration. glibc lets one thread at a time enumerate a map. If a second thread still arrives,
    /// this returns an error rather than wait: the first thread may never return.
    fn lock(&self) -> Result<EnumerationGuard<'_>, Miss> {
        if self.busy.swap(true, Acquire) {
            return Err(Miss::Unavailable(libc::EAGAIN));
        }
        // SAFETY: `busy` was not set before, and stays set as long as the guard lives.
        Ok(EnumerationGuard { turn_of: self, state: unsafe { &mut *self.state.get() } })
    }

    /// Acquires the enumeration and ensures an open file, unless the end was reached. Before the first entry, `open`
    /// opens the file of `source`.
    pub fn next<S>(
        &self,
        source: &'static S,
        open: fn(&'static S) -> Result<PrivateSnapshot, c_int>,
    ) -> Result<EnumerationGuard<'_>, Miss> {
        let turn = self.lock()?;
        if turn.state.ended {
            return Err(Miss::Absent);
        }
        if turn.state.file.is_none() {
            turn.state.file = Some(open(source).map_err(Miss::Unavailable)?);
        }
        Ok(turn)
    }
}

/// Exclusive access to an enumeration for one thread.
pub struct EnumerationGuard<'e> {
    turn_of: &'e Enumeration,
    state: &'e mut EnumerationState,
}

impl EnumerationGuard<'_> {
    /// Returns the snapshot and the position of the next entry. Leaves out domains that no enumeration lists.
    pub fn entry(&mut self) -> Result<(&Snapshot<'_>, u32), Miss> {
        let EnumerationState { file, position, listed_end, .. } = &mut *self.state;
        let snapshot = file.as_ref().ok_or(Miss::Absent)?.snapshot();
        if *position >= *listed_end {
            let listed = snapshot.listed_from(self.turn_of.list, *position)?;
            (*position, *listed_end) = (listed.start, listed.end);
        }
        Ok((snapshot, *position))
    }

    /// Skips an entry that is not returned.
    pub fn skip(&mut self) {
        self.state.position = self.state.position.saturating_add(1);
    }

    /// Advances after a returned entry. After the last one, unmaps the file.
    pub fn advance(mut self, given: &Result<(), Miss>) {
        match given {
            Ok(()) => self.skip(),
            Err(Miss::Absent) => {
                let before = mem::replace(self.state, EnumerationState { ended: true, ..START });
                drop(self);
                drop(before);
            }
            Err(_) => {}
        }
    }
}

impl Drop for EnumerationGuard<'_> {
    fn drop(&mut self) {
        self.turn_of.busy.store(false, Release);
    }
}
