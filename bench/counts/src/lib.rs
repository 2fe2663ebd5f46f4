// SPDX-License-Identifier: MIT OR Apache-2.0
//! The encoder of LDAP messages, included by path. Its crate needs about a hundred crates, such as DNS and TLS. These
//! would double the build time of both revisions. The lines are in `benches/counts`.
#![allow(dead_code)]

#[path = "../../../crates/sync/provider-ldap/src/ber.rs"]
pub mod ber;
#[path = "../../../crates/sync/provider-ldap/src/filter.rs"]
pub mod filter;
#[path = "../../../crates/sync/provider-ldap/src/message.rs"]
pub mod message;
