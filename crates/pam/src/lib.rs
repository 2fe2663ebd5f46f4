//! pam_roster.so: authentication, account, password and session for users of Roster's domains, inside
//! the program that lets them in. See pam_roster(8).
//!
//! It knows nothing of directories: it holds the conversation and asks the responder at
//! `/run/roster/pam`. Users of /etc/passwd are none of its business, and nobody is asked about them. It
//! starts no thread, keeps no descriptor and cannot panic; passwords are in locked memory and wiped.
//! Unsafe code lives in three modules: [`exports`] holds what libpam passes, [`handle`] calls libpam, and
//! [`helper`] starts the program that keeps tickets.
//! [`codes`] is where verdicts become PAM's numbers.

#![no_std]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

mod act;
mod ask;
mod codes;
mod exports;
mod handle;
mod helper;
mod local;
mod options;
mod tickets;

/// A panic must be impossible: the one below calls a function that exists nowhere, so a panic
/// that the compiler did not prove away fails the link.
#[panic_handler]
#[allow(unsafe_code)]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn roster_pam_must_not_panic() -> !;
    }
    // SAFETY: never runs; the module does not link while anything reaches it.
    unsafe { roster_pam_must_not_panic() }
}
