// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a short program with one thread. The allocator takes pieces from the kernel and gives none back. Within a
//! piece it hands out memory in order, and can free or enlarge only the last allocation. `entry_point` starts the
//! program that uses it.

#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// The smallest piece.
const PIECE_BYTES: usize = 256 << 10;

/// An allocator for one thread.
pub(crate) struct BumpAllocator {
    /// Start of the free part of the last piece.
    next: Cell<usize>,
    /// End of the free part.
    end: Cell<usize>,
    /// The kernel refused a piece.
    is_exhausted: Cell<bool>,
}

// SAFETY: only a program with one thread uses it.
unsafe impl Sync for BumpAllocator {}

impl BumpAllocator {
    pub(crate) const fn new() -> Self {
        Self { next: Cell::new(0), end: Cell::new(0), is_exhausted: Cell::new(false) }
    }

    /// Returns true after a failed allocation.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }

    /// Returns the address for `layout` in the piece, if it fits.
    fn next_aligned(&self, layout: Layout) -> Option<usize> {
        let begin = self.next.get().checked_next_multiple_of(layout.align())?;
        let end = begin.checked_add(layout.size())?;
        (begin != 0 && end <= self.end.get()).then_some(begin)
    }

    fn map_piece(&self, layout: Layout) -> Option<()> {
        let wanted = layout.size().checked_add(layout.align())?.max(PIECE_BYTES);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel selects the address, so the mapping replaces no other.
        let piece = unsafe { mmap_anonymous(ptr::null_mut(), wanted, access, flags) }.ok()?;
        self.next.set(piece.expose_provenance());
        self.end.set(piece.expose_provenance() + wanted);
        Some(())
    }
}

// SAFETY: an allocation lies in a piece of the kernel and has the size and alignment of its layout. It overlaps no
// other one, because `next` is behind all of them.
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
        // SAFETY: the size of the layout is not 0, as the caller promises.
        let other = unsafe { self.alloc(wanted) };
        if !other.is_null() {
            // SAFETY: `taken` is unchanged until here, and the new memory overlaps no other allocation.
            unsafe { ptr::copy_nonoverlapping(taken, other, layout.size().min(size)) };
        }
        other
    }
}
