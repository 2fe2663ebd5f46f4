//! The types that programs, modules, roles and backends share: the kinds of lookups and logins, and the results of a
//! login. The numbers of kinds and results are part of the formats of `roster-wire` and of the bus.

#![no_std]
#![forbid(unsafe_code)]

pub mod auth;
mod lookup;

pub use auth::{AuthRequestKind, AuthResult};
pub use lookup::{LookupKind, Query};
