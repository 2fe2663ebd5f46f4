//! What modules that live in other people's programs need of the system: raw calls and a connection with a
//! deadline. No thread, no allocation, no panic, and no descriptor that outlives a call.

#![no_std]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

pub mod connection;
pub mod system;
