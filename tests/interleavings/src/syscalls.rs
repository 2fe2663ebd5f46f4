// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stand-in: memory is the heap, and each look at the clock advances it.
#![allow(unsafe_code)]

use crate::mapped_snapshot::Block;
use core::cell::RefCell;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Mutex;

/// The file checks for a new generation once in 50 ms, so each second look is a check.
const TICK_MS: u64 = 25;

/// The time, which orders no accesses of threads.
static CLOCK_MS: AtomicU64 = AtomicU64::new(0);
/// Tables of generations, which the file never frees, by address.
static ALLOCATED: Mutex<Vec<(usize, Layout)>> = Mutex::new(Vec::new());

thread_local! {
    /// Mappings that this thread has ended, and frees in its next call. The reference to the mapping is an argument of
    /// `unmap`, so it must stay valid until the end of that call.
    static UNMAPPED: RefCell<Vec<*mut Block>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity(pub u64);

pub struct FileStat {
    pub identity: FileIdentity,
}

/// Starts a test, which has no other threads yet.
pub fn begin() {
    CLOCK_MS.store(1, SeqCst);
}

/// Ends a test, which has no other threads left: frees the tables.
pub fn end() {
    free_unmapped();
    for (address, layout) in ALLOCATED.lock().expect("no panic holds it").drain(..) {
        // SAFETY: from `allocate`, and the test has ended.
        unsafe { dealloc(core::ptr::with_exposed_provenance_mut(address), layout) };
    }
}

pub fn clock_ms() -> u64 {
    free_unmapped();
    CLOCK_MS.fetch_add(TICK_MS, Relaxed)
}

pub fn at_fork(_: extern "C" fn()) -> bool {
    true
}

pub fn allocate<T>() -> Option<*mut T> {
    let layout = Layout::new::<T>();
    // SAFETY: no type of the file is empty.
    let memory = unsafe { alloc_zeroed(layout) };
    ALLOCATED.lock().expect("no panic holds it").push((memory.expose_provenance(), layout));
    Some(memory.cast())
}

/// # Safety
/// `memory` came from [`allocate`], and no reference to it remains.
pub unsafe fn free<T>(memory: *mut T) {
    ALLOCATED.lock().expect("no panic holds it").retain(|(address, _)| *address != memory.addr());
    // SAFETY: the caller's promise.
    unsafe { dealloc(memory.cast(), Layout::new::<T>()) };
}

/// # Safety
/// The mapping is that of a [`Block`], and no code reads it again.
pub unsafe fn unmap(mapping: &'static [u8]) {
    let block = Block::at(mapping);
    if cfg!(loom) {
        // SAFETY: blocks are not freed.
        unsafe { &*block }.unmap();
    } else {
        UNMAPPED.with_borrow_mut(|unmapped| unmapped.push(block));
    }
}

fn free_unmapped() {
    for block in UNMAPPED.take() {
        // SAFETY: a leaked box, and the promise of the caller of `unmap`.
        drop(unsafe { Box::from_raw(block) });
    }
}

pub struct CancellationGuard;

impl CancellationGuard {
    pub fn new() -> Self {
        Self
    }
}
