//! The encoder of LDAP messages, included by path. Its crate brings DNS, TLS and their hundred crates,
//! which would double the time that both revisions take to build. The lines are in `benches/counts`.
#![allow(dead_code)]

#[path = "../../../crates/provider-ldap/src/ber.rs"]
pub mod ber;
#[path = "../../../crates/provider-ldap/src/filter.rs"]
pub mod filter;
#[path = "../../../crates/provider-ldap/src/message.rs"]
pub mod message;
