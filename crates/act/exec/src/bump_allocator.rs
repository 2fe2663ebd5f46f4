//! Memory for a program that has ended before it would be worth giving any back: from the kernel by the piece, and
//! out of a piece one after the other. Only what was taken last is taken back, or made larger where it is.

#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// What is asked of the kernel at the least.
const PIECE_BYTES: usize = 256 << 10;

/// For a program of one thread.
pub(crate) struct BumpAllocator {
    /// What is free of the last piece: from here
    next: Cell<usize>,
    /// to here.
    end: Cell<usize>,
    /// Whether the kernel had no piece.
    is_exhausted: Cell<bool>,
}

// SAFETY: only a program of one thread has it.
unsafe impl Sync for BumpAllocator {}

impl BumpAllocator {
    pub(crate) const fn new() -> Self {
        Self { next: Cell::new(0), end: Cell::new(0), is_exhausted: Cell::new(false) }
    }

    /// Whether something was asked for that could not be had.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }

    /// Where what fits `layout` may begin in the piece, if it does.
    fn next_aligned(&self, layout: Layout) -> Option<usize> {
        let begin = self.next.get().checked_next_multiple_of(layout.align())?;
        let end = begin.checked_add(layout.size())?;
        (begin != 0 && end <= self.end.get()).then_some(begin)
    }

    fn map_piece(&self, layout: Layout) -> Option<()> {
        let wanted = layout.size().checked_add(layout.align())?.max(PIECE_BYTES);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: where is the kernel's choice, so that it is nobody else's.
        let piece = unsafe { mmap_anonymous(ptr::null_mut(), wanted, access, flags) }.ok()?;
        self.next.set(piece.expose_provenance());
        self.end.set(piece.expose_provenance() + wanted);
        Some(())
    }
}

// SAFETY: what is handed out lies in a piece of the kernel's, is as large and as aligned as was asked for, and overlaps
// nothing else that is in use: `next` is behind all of it.
unsafe impl GlobalAlloc for BumpAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let place = self.next_aligned(layout).or_else(|| {
            self.map_piece(layout)?;
            self.next_aligned(layout)
        });
        let Some(place) = place else {
            self.is_exhausted.set(true);
            return ptr::null_mut();
        };
        self.next.set(place + layout.size());
        ptr::with_exposed_provenance_mut(place)
    }

    unsafe fn dealloc(&self, taken: *mut u8, layout: Layout) {
        if taken.addr() + layout.size() == self.next.get() {
            self.next.set(taken.addr());
        }
    }

    unsafe fn realloc(&self, taken: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let begin = taken.addr();
        let is_last = begin + layout.size() == self.next.get();
        if let Some(end) = begin.checked_add(size)
            && is_last
            && end <= self.end.get()
        {
            self.next.set(end);
            return taken;
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return ptr::null_mut();
        };
        // SAFETY: a layout of more than no bytes, as the caller promises.
        let other = unsafe { self.alloc(wanted) };
        if !other.is_null() {
            // SAFETY: `taken` stays as it was until now, and the other overlaps nothing that is in use.
            unsafe { ptr::copy_nonoverlapping(taken, other, layout.size().min(size)) };
        }
        other
    }
}
