//! Commands for anybody, by a policy of this host: docs/internals/exec-protocol.md.
//!
//! [`daemon`] has a thread for each connection; `connection` is what such a thread does: it
//! reads a request (`frame_reader`), asks the name service who the caller is (`nss_lookups`), has
//! [`rule_match`] say what [`exec_toml`] permits, has [`crate::exec`] start that, and stays with the command
//! until it has ended (`supervise`). What came of it goes to the log (`audit_record`, `journal`) with what is
//! counted (`counters`), and keeps no caller waiting. `services` holds what connections share.
//! `resource_limits` limits what each user has at once, and `subuid_owners` says which uids count as one user there.
//! The `gate` refuses a user with many connections that hang when they are closed.

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
