//! Instruction counts of code without I/O: one line for each operation. gungraun runs each line in its
//! own process under valgrind, and counts the instructions of the measured function alone.
//!
//! Inputs are fixed. Each setup performs the operation once before the measured call, so that caches
//! and tables that the first call fills are not counted. A measured function returns what it was
//! given, so that the destructors run after the count; the teardown then checks the result.
//!
//! A name of a line is `group::operation`. The comparison with another revision goes by these names:
//! keep them when code moves.
//!
//! Does not measure time (`bench/run` does) and does not compare (`bench/counts/compare` does).
#![allow(missing_docs)]

mod build;
mod corpus;
mod frame;
mod lookup;
mod module;
mod rootwrap;

// The encoder of LDAP messages is included by path. Its crate brings DNS, TLS and their hundred crates,
// which would double the time that both revisions take to build.
#[allow(dead_code)]
#[path = "../../../../crates/provider-ldap/src/ber.rs"]
mod ber;
#[allow(dead_code)]
#[path = "../../../../crates/provider-ldap/src/filter.rs"]
mod filter;
#[allow(dead_code)]
#[path = "../../../../crates/provider-ldap/src/message.rs"]
mod message;

use gungraun::prelude::*;

gungraun::main!(
    config = LibraryBenchmarkConfig::default().pass_through_env(module::PATH_VARIABLE),
    library_benchmark_groups = [lookup::lookups, build::builds, rootwrap::filters, frame::frames]
);
