// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves glibc's nscd client, which every glibc program contains, including static and set-uid programs. Clients read
//! prebuilt maps in shared memory.
//!
//! [`map_builder`] makes the bytes of a map from snapshots. [`protocol`] parses requests. [`nsswitch`] decides which
//! services a map may contain. These three modules make no system calls. [`live_map`] changes a map while clients read
//! it. [`nss_helper`] is the helper process for other name services, and [`starter`] is the process that starts
//! helpers. [`server`] combines them. This crate depends on the snapshot file, but on no other part of Roster.

pub mod layout;
pub mod live_map;
pub mod map_builder;
pub mod nss_helper;
pub mod nsswitch;
pub mod protocol;
pub mod server;
mod shared_memory;
pub mod starter;

pub use shared_memory::{MapMemory, SharedMapping};
