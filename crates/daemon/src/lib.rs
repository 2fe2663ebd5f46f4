//! rosterd: monitor, back-ends, publisher and responders, each a process of its own, all one
//! executable.
//!
//! [`main`] is either the [`monitor`], which starts the message bus and every other role, or one
//! [`role`] that the monitor started: [`publisher`], [`backend`] or one of [`responder`]. Roles know
//! each other only over the bus, by the interfaces in `roster-bus`.
//!
//! Nothing in any of these processes asks for users or groups through the C library (getpwnam,
//! getgrouplist and their kin): with `roster` in nsswitch.conf the question would come back here and
//! wait for its own answer. Who needs a local user reads /etc/passwd as text.
#![forbid(unsafe_code)]

pub mod backend;
pub mod monitor;
pub mod publisher;
pub mod responder;
pub mod role;

use std::process::ExitCode;

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
