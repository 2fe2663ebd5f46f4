// SPDX-License-Identifier: MIT OR Apache-2.0
//! Harness of the black-box tests: the built module and programs under the machine's own glibc.
//!
//! A test makes a [`TestHost`]: a private mount namespace with its own /etc files and snapshot. It runs real programs
//! or the C helpers of `c/` in it, and asserts on their output. The oracle is glibc's `files` service on the same text.
//! Nothing here knows the snapshot's format or calls the module from Rust, and nothing touches the machine's own /etc.
//!
//! Tests of the daemon start real directory [`servers`] and fill them from a [`LdifBuilder`]. They run a real
//! [`Rosterd`] on a host. A separate script computes the expected answers of the host from `ldapsearch`.

pub mod artifacts;
pub mod clock;
pub mod compare_services;
pub mod control_group;
pub mod corpus;
pub mod crash;
pub mod exec;
pub mod files_model;
pub mod kept;
pub mod ldif;
pub mod logged_codes;
pub mod mirror_scenario;
pub mod nscd;
pub mod nss_caller;
pub mod old_names;
pub mod pam;
pub mod pam_stacks;
pub mod process_memory;
pub mod rosterd;
pub mod servers;
pub mod sshd;
pub mod strace;
pub mod systemd_host;
pub mod tally;
pub mod test_host;
pub mod wait;

pub use artifacts::{
    c_program, c_program_with, exec_program, krb5_program, library_dir, pam_module,
    program_under_test, rootwrap_daemon_program, rootwrap_program, roster_program, rosterd_program,
};
pub use corpus::Corpus;
pub use exec::{ExecHost, JournalEntry};
pub use kept::OfflineFixture;
pub use ldif::LdifBuilder;
pub use logged_codes::LoggedCodes;
pub use nscd::{LookupProgram, NscdServer};
pub use nss_caller::{NssCaller, command_with_snapshot};
pub use pam::PamHost;
pub use rosterd::{DomainTable, Rosterd};
pub use servers::{DirectoryServer, Ds389, Schema, Slapd, SlapdOptions};
pub use sshd::Sshd;
pub use systemd_host::SystemdHost;
pub use test_host::{ProgramOutput, TestHost, find_tool, needs_root, run};
pub use wait::{wait_for, wait_until};
