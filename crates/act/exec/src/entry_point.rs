//! Where the program begins and ends, without a C library: its words and variables as the kernel left them on
//! the stack.
//!
//! Why: on a virtual machine most of the time in which a program of a C library begins goes with its questions
//! what the processor can do (0.55 of 0.62 ms, glibc 2.36, linked statically), for each of them is answered by
//! the hypervisor. Nothing here wants to know.

#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char};

/// The kernel comes here.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn _start() -> ! {
    // The stack pointer is the one argument; it is to be a multiple of 16 where a function is called.
    #[cfg(target_arch = "x86_64")]
    naked_asm!("xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {begin}", "ud2", begin = sym begin);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("mov x29, #0", "mov x30, #0", "mov x0, sp", "bl {begin}", "udf #0", begin = sym begin);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    compile_error!("how a program begins on this processor is to be written here");
}

/// `stack` is where the kernel put how many words there are, the words, a null, the variables, a null.
extern "C" fn begin(stack: *const usize) -> ! {
    // SAFETY: it is what `_start` found there, and nothing was taken off.
    let (words, variables) = unsafe {
        let words = stack.add(1).cast::<*const c_char>();
        let (words, end) = strings(words);
        (words, strings(end.add(1)).0)
    };
    exit_process(crate::main(&words, &variables))
}

/// The strings up to the null, and where that is.
///
/// # Safety
/// `at` leads to pointers to strings that stay, and behind them to a null.
unsafe fn strings(mut at: *const *const c_char) -> (Vec<&'static [u8]>, *const *const c_char) {
    let mut strings = Vec::new();
    loop {
        // SAFETY: the null was not passed yet.
        let string = unsafe { *at };
        if string.is_null() {
            return (strings, at);
        }
        // SAFETY: as promised; nobody writes to the words and variables of this process.
        strings.push(unsafe { CStr::from_ptr(string) }.to_bytes());
        // SAFETY: the null is further on.
        at = unsafe { at.add(1) };
    }
}

/// Ends the process with a status.
pub(crate) fn exit_process(status: u8) -> ! {
    loop {
        // SAFETY: it does not come back, and takes nothing of ours.
        let _ = unsafe { syscalls::syscall!(syscalls::Sysno::exit_group, status) };
    }
}

/// The standard collections were compiled for programs that unwind. This one ends where it panics, so that nobody
/// calls these two.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As above.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    exit_process(crate::FAILED)
}
