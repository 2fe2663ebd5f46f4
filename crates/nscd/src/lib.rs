//! Answers glibc's own client of nscd, which is in every glibc program, static and set-uid ones
//! included: from a map in shared memory that is made before anybody asks.
//!
//! [`map`] turns snapshots into the bytes of a map, [`protocol`] reads requests, [`nsswitch`] says what
//! may be in a map: none of them makes a system call. [`live`] is what may be done to a map in use.
//! [`host`] is the helper process that asks other name services, [`starter`] the one that starts helpers. [`server`] puts them together, and
//! knows no more of the rest of Roster than the snapshot's file.

pub mod host;
pub mod layout;
pub mod live;
pub mod map;
pub mod nsswitch;
pub mod protocol;
pub mod server;
mod shared;
pub mod starter;

pub use shared::{Memory, Shared};
