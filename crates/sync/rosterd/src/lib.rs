// SPDX-License-Identifier: MIT OR Apache-2.0
//! rosterd: monitor, backends, publisher and responders, each in a separate process of one executable.
//!
//! [`main`] is either the monitor, which starts the message bus and every other role, or one role that the monitor
//! started: publisher, backend or one of the responders. Roles know each other only over the bus, by the interfaces in
//! `roster-bus`.
//!
//! None of these processes looks up users or groups through the C library (getpwnam, getgrouplist and similar
//! functions). With `roster` in nsswitch.conf the request would come back here and wait for itself. Code that needs a
//! local user reads /etc/passwd as text. Resolving host names is allowed: getaddrinfo uses only the `hosts:` services.
#![forbid(unsafe_code)]

mod args;
mod man_page;
mod monitor;
mod roles;

use clap::{CommandFactory, Parser};
use roster_cli_docs::PackagerCommand;
use roster_messages::{CodedError, table::daemon};
use roster_role::exit_status;
use roster_role::logging::print_stderr;
use std::process::ExitCode;

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let cli = args::Cli::try_parse().unwrap_or_else(|error| {
        let _ = error.print();
        let code = if error.use_stderr() { i32::from(exit_status::USAGE) } else { 0 };
        std::process::exit(code)
    });
    ExitCode::from(match cli.command {
        None => monitor::main(&cli.options),
        // The role's name is there for lists of processes. The rest comes by standard input.
        Some(args::Command::Role { .. }) => roles::main(),
        Some(args::Command::ForPackagers(what)) => write_packaging(&what),
    })
}

/// Writes the files for packagers. Returns the exit status.
fn write_packaging(what: &PackagerCommand) -> u8 {
    match what.write(&man_page::PAGE, args::Cli::command(), &mut std::io::stdout()) {
        Ok(()) => 0,
        Err(error) => {
            let error = CodedError::new(&daemon::PACKAGER_FILE_UNWRITABLE, error.to_string());
            print_stderr(format_args!("rosterd: {error}"));
            exit_status::CANNOT_CREATE
        }
    }
}
