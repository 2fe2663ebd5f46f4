// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types that programs, modules, roles and backends share: the kinds of lookups and logins, the results of a
//! login, and the methods of change tracking. Numbers of kinds and results, and texts of methods, are part of the formats
//! of `roster-wire` and of the bus.

#![no_std]
#![forbid(unsafe_code)]

pub mod auth;
mod lookup;
mod tracking;

pub use auth::{AuthRequestKind, AuthResult};
pub use lookup::{LookupKind, Query};
pub use tracking::TrackingMethod;
