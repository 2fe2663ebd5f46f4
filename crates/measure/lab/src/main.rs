//! `roster-lab`: see the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    roster_lab::commands::main()
}
