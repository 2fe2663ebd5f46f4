// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the allocator under many random requests: it keeps its content, is aligned, and does not overlap.

#![allow(unsafe_code, missing_docs)]

#[path = "../src/bump_allocator.rs"]
mod bump_allocator;

use bump_allocator::BumpAllocator;
use std::alloc::{GlobalAlloc, Layout};

struct Taken {
    at: *mut u8,
    layout: Layout,
    byte: u8,
}

impl Taken {
    fn is_as_it_was(&self) -> bool {
        // SAFETY: the allocation is in use and was written completely.
        let bytes = unsafe { std::slice::from_raw_parts(self.at, self.layout.size()) };
        bytes.iter().all(|&byte| byte == self.byte)
    }
}

#[test]
fn what_is_in_use_is_nobody_elses() {
    let heap = BumpAllocator::new();
    let mut taken: Vec<Taken> = Vec::new();
    let mut seed = 7_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for step in 0..20_000 {
        let size = match random(50) {
            0 => 1 + random(1 << 19),
            _ => 1 + random(200),
        };
        let byte = step as u8;
        match random(3) {
            // The last allocation as often as any other.
            0 if !taken.is_empty() => {
                let which = if random(2) == 0 {
                    taken.len() - 1
                } else {
                    random(taken.len() as u64) as usize
                };
                let one = taken.swap_remove(which);
                assert!(one.is_as_it_was());
                // SAFETY: the allocation has this layout, and is not used again.
                unsafe { heap.dealloc(one.at, one.layout) };
            }
            1 if !taken.is_empty() => {
                let one = taken.last_mut().unwrap();
                let kept = one.layout.size().min(size as usize);
                // SAFETY: the allocation has this layout, and the size is not 0.
                one.at = unsafe { heap.realloc(one.at, one.layout, size as usize) };
                assert!(!one.at.is_null());
                one.layout = Layout::from_size_align(kept, one.layout.align()).unwrap();
                assert!(one.is_as_it_was());
                one.layout = Layout::from_size_align(size as usize, one.layout.align()).unwrap();
                one.byte = byte;
                // SAFETY: the allocation has this size.
                unsafe { one.at.write_bytes(byte, one.layout.size()) };
            }
            _ => {
                let layout = Layout::from_size_align(size as usize, 1 << random(7)).unwrap();
                // SAFETY: the size is not 0.
                let at = unsafe { heap.alloc(layout) };
                assert!(!at.is_null() && at.addr() % layout.align() == 0);
                // SAFETY: the allocation has this size.
                unsafe { at.write_bytes(byte, layout.size()) };
                taken.push(Taken { at, layout, byte });
            }
        }
    }
    assert!(taken.iter().all(Taken::is_as_it_was));
    assert!(!heap.is_exhausted());
    // An impossible size is refused.
    let layout = Layout::from_size_align(1 << 62, 1).unwrap();
    // SAFETY: the size is not 0.
    assert!(unsafe { heap.alloc(layout) }.is_null());
    assert!(heap.is_exhausted());
}
