// SPDX-License-Identifier: MIT OR Apache-2.0
//! Privileged commands: decisions about them, and their execution.
//!
//! - [`RootwrapPolicy::load`] reads rootwrap.conf and filter files as `oslo.rootwrap` 7.10 does.
//! - [`evaluate()`] decides about a command. Only its [`AllowedCommand`] can be executed, and only that module can
//!   create one.
//! - [`exec`] executes it, with the credentials of its user.
//! - [`config_check`] finds mistakes and differences of the modes. [`explain`] reports the reason of each rule.
//! - [`oslo`] and [`exec_daemon`] are the daemons.
//!
//! The evaluation executes nothing, knows no client, and reads no user database. Its facts of the kernel come from
//! [`host_facts`], and its files from [`rootwrap_policy`].

#![forbid(unsafe_code)]
// The library serves the programs and tests of this package.
#![allow(missing_docs)]

mod access_list;
pub mod config_check;
mod diagnostic;
pub mod evaluate;
pub mod exec;
pub mod exec_daemon;
pub mod explain;
pub mod filters;
pub mod host_facts;
mod ini;
mod interpreter;
pub mod log_messages;
pub mod man_pages;
pub mod mode;
pub mod oslo;
mod path_trust;
pub mod pattern;
mod python_strings;
mod realpath;
pub mod rootwrap_conf;
pub mod rootwrap_policy;
pub mod shell_quoted;
pub mod syslog;
mod unicode_tables;

pub use diagnostic::coded;
pub use evaluate::{AllowedCommand, Refusal, evaluate};
pub use mode::Mode;
pub use rootwrap_policy::RootwrapPolicy;
pub use roster_messages::{Diagnostic, Severity};
