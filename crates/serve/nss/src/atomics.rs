// SPDX-License-Identifier: MIT OR Apache-2.0
//! The atomics of [`generations`](crate::generations). `tests/interleavings` compiles that file with other types. A
//! scheduler there switches threads at each access.

pub use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
