//! Privileged commands: which may run with whose rights, and running them.
//!
//! [`Policy::load`] reads rootwrap.conf and filter files as `oslo.rootwrap` 7.10 does; [`judge()`] says
//! of a command which rule lets it run and as what, or that none does. Its [`Verdict`] is the only
//! thing that may be executed, nobody else can make one, and [`exec`] is what executes it. [`check`]
//! finds mistakes, and rules that read otherwise in strict mode; [`explain`] tells of each rule why it
//! decides or not.
//!
//! The judge executes nothing, speaks to no client, and knows no user database: [`exec`] makes of the
//! [`Verdict`]'s user the uid, the gid and the supplementary groups. Of what judges, the module
//! [`host`] alone asks the kernel, [`policy`] alone reads files.

#![forbid(unsafe_code)]

mod access_list;
pub mod check;
pub mod compat;
pub mod conf;
pub mod exec;
pub mod explain;
pub mod filters;
pub mod host;
mod ini;
mod interpreter;
pub mod judge;
pub mod log;
pub mod manual;
pub mod native;
mod paths;
pub mod pattern;
pub mod policy;
pub mod problem;
mod python;
pub mod syslog;
mod trust;

pub use judge::{Mode, Refusal, Verdict, judge};
pub use policy::Policy;
pub use problem::{Problem, Severity};
