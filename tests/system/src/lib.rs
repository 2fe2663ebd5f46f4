//! Harness of the black-box tests: the built module and programs under the machine's own glibc.
//!
//! A test makes a [`Host`] (a private mount namespace with its own /etc files and snapshot), runs
//! real programs or the C helpers of `c/` in it, and asserts on what they print. The oracle is
//! glibc's `files` service on the same text. Nothing here knows the snapshot's format or calls the
//! module from Rust, and nothing touches the machine's own /etc.

pub mod artifacts;
pub mod caller;
pub mod corpus;
pub mod differ;
pub mod host;
pub mod model;

pub use artifacts::{c_program, c_program_with, library_folder, roster_program};
pub use caller::Caller;
pub use corpus::Corpus;
pub use host::{Host, Output, needs_root, run, tool};
