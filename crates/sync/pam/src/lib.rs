// SPDX-License-Identifier: MIT OR Apache-2.0
//! pam_roster.so: authentication, account, password and session for users of Roster's domains, inside the program of
//! the login. See pam_roster(8).
//!
//! It has no access to directories: it holds the conversation and queries the responder at `/run/roster/pam`. It
//! handles no users of /etc/passwd, and sends no requests about them. It starts no thread, keeps no descriptor open and
//! cannot panic. Passwords are in locked memory and wiped.
//!
//! Unsafe code is in three modules: [`exports`] receives libpam's arguments, [`pam_handle`] calls libpam, and
//! [`krb5_helper`] starts the program that stores tickets. [`return_codes`] converts results to PAM's numbers.

#![no_std]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

mod exports;
mod krb5_helper;
mod local_users;
mod options;
mod pam_handle;
mod pam_user;
mod responder_client;
mod return_codes;
mod service_functions;
mod session_ticket;

/// A panic must be impossible. The handler calls an undefined function, so a panic that the compiler did not prove
/// unreachable fails the link.
#[panic_handler]
#[allow(unsafe_code)]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn roster_pam_must_not_panic() -> !;
    }
    // SAFETY: never runs; the module does not link while any code reaches it.
    unsafe { roster_pam_must_not_panic() }
}
