// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that compiled code expects of a C library, such as `memcpy`. They copy byte by byte, because there is
//! little to copy. The accesses are volatile, so that the compiler does not replace a loop by a call of itself.

#![allow(unsafe_code)]

use core::ffi::c_char;

/// memcpy(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    for at in 0..count {
        // SAFETY: the caller promises `count` bytes at both.
        unsafe { to.add(at).write_volatile(*from.add(at)) };
    }
    to
}

/// memmove(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if to.cast_const() <= from {
        // SAFETY: the copy reads each byte before it overwrites it.
        return unsafe { memcpy(to, from, count) };
    }
    for at in (0..count).rev() {
        // SAFETY: as in memcpy. The copy goes backwards, so that it reads each byte before it overwrites it.
        unsafe { to.add(at).write_volatile(*from.add(at)) };
    }
    to
}

/// memset(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    for at in 0..count {
        // SAFETY: the caller promises `count` bytes.
        unsafe { to.add(at).write_volatile(byte.to_le_bytes()[0]) };
    }
    to
}

/// memcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    for at in 0..count {
        // SAFETY: the caller promises `count` bytes at both.
        let (one, other) = unsafe { (one.add(at).read_volatile(), *other.add(at)) };
        if one != other {
            return i32::from(one) - i32::from(other);
        }
    }
    0
}

/// bcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    // SAFETY: the caller makes the same promise.
    unsafe { memcmp(one, other, count) }
}

/// strlen(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(string: *const c_char) -> usize {
    let mut count = 0;
    // SAFETY: the caller promises a NUL.
    while unsafe { string.add(count).read_volatile() } != 0 {
        count += 1;
    }
    count
}
