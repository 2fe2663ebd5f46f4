// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon of roster-exec: commands for all users, by the policy exec.toml. docs/internals/exec-protocol.md has the
//! protocol.
//!
//! - [`daemon`] accepts connections. Each has a thread, which `connection` implements.
//! - `frame_reader` reads a request, `nss_lookups` finds the caller, and [`rule_match`] applies [`exec_toml`].
//! - [`crate::exec`] starts the command, and `supervise` stays with it until the end.
//! - `audit_record` and `journal` write the log, with `counters`. They delay no caller.
//! - `services` has the state that connections share.
//!
//! `resource_limits` limits connections, commands and bytes of each user. `subuid_owners` maps uids to one user for
//! that. The `gate` excludes a user with many connections that hang at their close.

pub mod daemon;
pub mod exec_toml;
pub mod rule_match;

mod audit_record;
mod connection;
mod counters;
mod environment;
mod frame_reader;
mod gate;
mod journal;
mod nss_lookups;
mod peer;
mod resource_limits;
mod services;
mod socket;
mod subuid_owners;
mod supervise;
