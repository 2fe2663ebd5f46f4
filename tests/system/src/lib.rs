//! Harness of the black-box tests: the built module and programs under the machine's own glibc.
//!
//! A test makes a [`Host`] (a private mount namespace with its own /etc files and snapshot), runs
//! real programs or the C helpers of `c/` in it, and asserts on what they print. The oracle is
//! glibc's `files` service on the same text. Nothing here knows the snapshot's format or calls the
//! module from Rust, and nothing touches the machine's own /etc.
//!
//! Tests of the daemon start real directory [`servers`], fill them from a [`Directory`], run a real
//! [`Rosterd`] on a host, and hold what the host answers to what a script of its own works out from
//! `ldapsearch`.

pub mod artifacts;
pub mod booted;
pub mod caller;
pub mod clock;
pub mod control_group;
pub mod corpus;
pub mod crash;
pub mod differ;
pub mod directory;
pub mod exec;
pub mod host;
pub mod kept;
pub mod memory;
pub mod model;
pub mod nscd;
pub mod pam;
pub mod rosterd;
pub mod scenario;
pub mod servers;
pub mod sshd;
pub mod stacks;
pub mod strace;
pub mod tally;
pub mod wait;

pub use artifacts::{
    c_program, c_program_with, exec_program, krb5_program, library_folder, pam_module,
    program_under_test, rootwrap_daemon_program, rootwrap_program, roster_program, rosterd_program,
};
pub use booted::Booted;
pub use caller::{Caller, reading};
pub use corpus::Corpus;
pub use directory::Directory;
pub use exec::{Exec, Record};
pub use host::{Host, Output, needs_root, run, tool};
pub use kept::Kept;
pub use nscd::{Names, Responder};
pub use pam::Pam;
pub use rosterd::{Domain, Rosterd};
pub use servers::{Ds389, Schema, Server, Setup, Slapd};
pub use sshd::Sshd;
pub use wait::{wait_for, wait_until};
