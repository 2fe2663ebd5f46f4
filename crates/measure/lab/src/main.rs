// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `roster-lab`. The library has all of its code.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    roster_lab::commands::main()
}
