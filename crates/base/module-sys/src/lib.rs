// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls for modules inside other programs: raw calls, and a connection with a deadline. The crate starts no
//! thread, does not allocate and cannot panic. No descriptor outlives its owner.

#![no_std]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

pub mod syscalls;
pub mod unix_client;
