//! Privileged commands: which may run with whose rights, and running them.
//!
//! [`RootwrapPolicy::load`] reads rootwrap.conf and filter files as `oslo.rootwrap` 7.10 does; [`evaluate()`] says
//! of a command which rule lets it run and as what, or that none does. Its [`AllowedCommand`] is the only
//! thing that may be executed, nobody else can make one, and [`exec`] is what executes it. [`config_check`]
//! finds mistakes, and rules that read otherwise in strict mode; [`explain`] tells of each rule why it
//! decides or not.
//!
//! The judge executes nothing, speaks to no client, and knows no user database: [`exec`] makes of the
//! [`AllowedCommand`]'s user the uid, the gid and the supplementary groups. Of what judges, the module
//! [`host_facts`] alone asks the kernel, [`rootwrap_policy`] alone reads files.

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
