//! libnss_roster.so.2: answers glibc's passwd, group, initgroups and shadow look-ups from the
//! snapshot, inside the process that asks.
//!
//! It keeps no descriptor, starts no thread, has no thread-local storage, takes no lock that outlives
//! a call, prints nothing and cannot panic. It talks to nobody, but for what a snapshot says that
//! it leaves open: then [`ask`] puts one question to the responder. Unsafe code lives in five
//! modules: [`exports`] holds what glibc passes, [`answer`] writes into the caller's buffers,
//! [`generations`] hands out the mapped file, [`enumerate`] lets one thread at a time at its place,
//! [`system`] makes the system calls.

#![no_std]

mod answer;
mod ask;
mod enumerate;
mod exports;
mod generations;
mod locate;
mod status;
mod system;

/// A panic must be impossible: the one below calls a function that exists nowhere, so a panic
/// that the compiler did not prove away fails the link.
#[panic_handler]
#[allow(unsafe_code)]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn roster_nss_must_not_panic() -> !;
    }
    // SAFETY: never runs; the module does not link while anything reaches it.
    unsafe { roster_nss_must_not_panic() }
}
