// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rosterd`, see the library beside this file.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    rosterd::main()
}
