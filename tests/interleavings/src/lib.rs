// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interleavings of threads in `crates/serve/nss/src/generations.rs`, the code that hands out generations of the snapshot to
//! the threads of a process, and unmaps them.
//!
//! The file is compiled here as it is, between stand-ins for the modules beside it: files are numbers, and a mapping is a
//! heap block. With `--cfg loom` each access of an atomic is also a point at which shuttle may switch threads. All
//! accesses of the file are sequentially consistent, so the order of whole accesses is all that can differ. Without
//! `--cfg loom`, Miri runs the same test with real threads, and finds races and uses after free.
//!
//! `make test-long PART=interleavings` runs both.

#![cfg(test)]
#![allow(dead_code)] // the stand-ins have all that the file names

/// The file names this crate as its format of snapshots.
extern crate self as roster_snapshot;

mod atomics;
mod enumerate;
#[path = "../../../crates/serve/nss/src/generations.rs"]
mod generations;
pub mod layout;
mod mapped_snapshot;
mod snapshot_path;
mod syscalls;
mod threads;

pub use mapped_snapshot::Snapshot;

mod tests;
