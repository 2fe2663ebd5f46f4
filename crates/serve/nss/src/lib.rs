// SPDX-License-Identifier: MIT OR Apache-2.0
//! libnss_roster.so.2: answers glibc's passwd, group, initgroups and shadow lookups from the snapshot, inside the
//! calling process.
//!
//! The module keeps no descriptor, starts no thread and has no thread-local storage. It takes no lock that outlives a
//! call, prints nothing and cannot panic. It sends a request only for an incomplete record: [`responder_client`] then
//! queries the responder once.
//!
//! Six modules have unsafe code. [`exports`] converts the pointers of glibc. [`result_buffer`] writes to the caller's
//! buffers. [`mapped_snapshot`] maps the file, and [`generations`] pins it for calls. [`enumerate`] gives one thread at
//! a time its position. [`syscalls`] makes the system calls.

#![no_std]

mod atomics;
mod enumerate;
mod exports;
mod generations;
mod mapped_snapshot;
mod responder_client;
mod result_buffer;
mod snapshot_path;
mod status;
mod syscalls;

/// Makes every reachable panic a link error: this handler calls a function that does not exist.
#[panic_handler]
#[allow(unsafe_code)]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn roster_nss_must_not_panic() -> !;
    }
    // SAFETY: never runs; the module does not link while any code can reach it.
    unsafe { roster_nss_must_not_panic() }
}
