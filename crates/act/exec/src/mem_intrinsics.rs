//! What compiled code takes for granted of a C library: `memcpy` and its kin. Byte by byte, for there is little to
//! copy; volatile, lest the compiler make of a loop the call that it is the body of.

#![allow(unsafe_code)]

use core::ffi::c_char;

/// As memcpy(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    for at in 0..count {
        // SAFETY: the caller's promise is that both have so many bytes.
        unsafe { to.add(at).write_volatile(*from.add(at)) };
    }
    to
}

/// As memmove(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if to.cast_const() <= from {
        // SAFETY: what is read was not written before.
        return unsafe { memcpy(to, from, count) };
    }
    for at in (0..count).rev() {
        // SAFETY: as in memcpy; from the end, so that what is read was not written before.
        unsafe { to.add(at).write_volatile(*from.add(at)) };
    }
    to
}

/// As memset(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    for at in 0..count {
        // SAFETY: the caller's promise is that there are so many bytes.
        unsafe { to.add(at).write_volatile(byte.to_le_bytes()[0]) };
    }
    to
}

/// As memcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    for at in 0..count {
        // SAFETY: the caller's promise is that both have so many bytes.
        let (one, other) = unsafe { (one.add(at).read_volatile(), *other.add(at)) };
        if one != other {
            return i32::from(one) - i32::from(other);
        }
    }
    0
}

/// As bcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    // SAFETY: the caller's promise is the same.
    unsafe { memcmp(one, other, count) }
}

/// As strlen(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(string: *const c_char) -> usize {
    let mut count = 0;
    // SAFETY: the caller's promise is that there is a NUL.
    while unsafe { string.add(count).read_volatile() } != 0 {
        count += 1;
    }
    count
}
