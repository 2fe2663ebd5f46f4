// SPDX-License-Identifier: MIT OR Apache-2.0
//! The responders, which serve programs over sockets. Each responder is a separate role. The first connection to its
//! socket starts it. It never talks to a directory.

mod accept_loop;
mod client_connection;
mod connection_limits;
pub mod metrics;
pub mod nss;
pub mod pam;
mod version_mismatch;
