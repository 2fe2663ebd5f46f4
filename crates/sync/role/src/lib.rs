// SPDX-License-Identifier: MIT OR Apache-2.0
//! The framework of a role's process: start, sandbox, log, metrics, bus and end.
//!
//! A role is a type that implements [`RoleProgram`]. The monitor starts a process with a [`launch::Launch`] as standard
//! input. [`process::run`] applies the sandbox, joins the bus and runs the code of the role until [`Shutdown`] is set.
//! This crate knows no role by name: `rosterd` has the list.
#![forbid(unsafe_code)]

pub mod clock;
pub mod directories;
pub mod error_code;
pub mod exit_status;
pub mod launch;
pub mod logging;
pub mod metrics;
pub mod process;
pub mod requests;
mod role;
pub mod role_object;
mod runtime;
pub mod sandbox;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod usdt_probes;
mod watched_path_check;

pub use role::{DISK_THREADS_MAX, RoleContext, RoleProgram, Shutdown, UserIds};
pub use watched_path_check::parent_dirs;
