// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol between `roster-exec` and its daemon (docs/internals/exec-protocol.md), and the command line of the
//! program.
//!
//! The library is small and has no standard library, because the program has to start fast. It decides nothing and
//! starts nothing: `roster-rootwrap` has the daemon.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod args;
pub mod protocol;
