// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start and end of the program without a C library. The kernel leaves arguments and variables on the stack. `args`
//! parses the arguments.
//!
//! A program with a C library asks the processor for its features at the start. On a virtual machine the hypervisor
//! answers each of these questions, which takes 0.55 of 0.62 ms (glibc 2.36, static). This program needs none of them.

#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char};

/// The first instruction that the kernel executes.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn _start() -> ! {
    // The only argument is the stack pointer. At a call it must be a multiple of 16.
    #[cfg(target_arch = "x86_64")]
    naked_asm!("xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {begin}", "ud2", begin = sym begin);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("mov x29, #0", "mov x30, #0", "mov x0, sp", "bl {begin}", "udf #0", begin = sym begin);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    compile_error!("how a program begins on this processor is to be written here");
}

/// `stack` points to the number of arguments, the arguments, a null, the variables, and a null.
extern "C" fn begin(stack: *const usize) -> ! {
    // SAFETY: `_start` passes the stack as the kernel left it.
    let (words, variables) = unsafe {
        let words = stack.add(1).cast::<*const c_char>();
        let (words, end) = strings(words);
        (words, strings(end.add(1)).0)
    };
    exit_process(crate::main(&words, &variables))
}

/// Returns the strings before the null, and the address of the null.
///
/// # Safety
/// `at` points to pointers to strings that live as long as the process, followed by a null.
unsafe fn strings(mut at: *const *const c_char) -> (Vec<&'static [u8]>, *const *const c_char) {
    let mut strings = Vec::new();
    loop {
        // SAFETY: the null is not before `at`.
        let string = unsafe { *at };
        if string.is_null() {
            return (strings, at);
        }
        // SAFETY: as promised, and this process does not write to its arguments and variables.
        strings.push(unsafe { CStr::from_ptr(string) }.to_bytes());
        // SAFETY: the null is behind `at`.
        at = unsafe { at.add(1) };
    }
}

/// Ends the process with a status.
pub(crate) fn exit_process(status: u8) -> ! {
    loop {
        // SAFETY: the call does not return, and takes no memory.
        let _ = unsafe { syscalls::syscall!(syscalls::Sysno::exit_group, status) };
    }
}

/// The standard collections are compiled for programs that unwind. This program ends at a panic and never calls these
/// two functions.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As for `rust_eh_personality`.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    exit_process(crate::FAILED)
}
