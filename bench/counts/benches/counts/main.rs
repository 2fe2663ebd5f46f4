// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instruction counts of code without I/O: one line for each operation. gungraun runs each line in its own process
//! under valgrind, and counts only the instructions of the measured function.
//!
//! Inputs are fixed. Each setup performs the operation once before the measured call, so that caches
//! and tables that the first call fills are not counted. A measured function returns what it was
//! given, so that the destructors run after the count; the teardown then checks the result.
//!
//! A name of a line is `group::operation`. The comparison with another revision uses these names: keep them when code
//! moves.
//!
//! Does not measure time (`bench/run` does) and does not compare (`bench/counts/compare` does).
// gungraun generates undocumented items.
#![allow(missing_docs, unused_qualifications)]
// gungraun passes values to teardown functions.
#![allow(clippy::needless_pass_by_value)]

mod build;
mod corpus;
mod frame;
mod lookup;
mod module;
mod rootwrap;

use build::builds;
use frame::frames;
use gungraun::{Callgrind, LibraryBenchmarkConfig, main};
use lookup::lookups;
use rootwrap::filters;

main!(
    config = LibraryBenchmarkConfig::default()
        .pass_through_env(module::PATH_VARIABLE)
        // Only instructions are compared.
        .tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = [lookups, builds, filters, frames]
);
