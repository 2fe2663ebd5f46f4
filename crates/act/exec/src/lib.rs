//! What `roster-exec` and the daemon that runs commands for it say to each other, as
//! docs/internals/exec-protocol.md has it; and the words of the program's command line, of which its parser, its
//! help, its man page and its completions are made.
//!
//! Small, for it is in a program that has to start in no time and has no standard library (`main.rs`).
//! Decides nothing and starts nothing.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod args;
pub mod protocol;
