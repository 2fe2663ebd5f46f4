//! rosterd: monitor, back-ends, publisher and responders, each a process of its own, all one
//! executable.
//!
//! [`main`] is either the monitor, which starts the message bus and every other role, or one
//! role that the monitor started: publisher, back-end or one of the responders. Roles know
//! each other only over the bus, by the interfaces in `roster-bus`.
//!
//! Nothing in any of these processes asks for users or groups through the C library (getpwnam,
//! getgrouplist and their kin): with `roster` in nsswitch.conf the question would come back here and
//! wait for its own answer; the helper of the responder in place of nscd is another process, which cannot
//! ask that. Who needs a local user reads /etc/passwd as text. Resolving host names
//! is another matter: getaddrinfo asks the `hosts:` services only.
#![forbid(unsafe_code)]

pub mod backend;
mod cli;
mod exit;
mod hops;
mod logging;
mod manual;
mod metrics;
mod monitor;
pub mod publisher;
mod reach;
pub mod responder;
pub mod role;
mod runtime;
mod sandbox;
#[cfg(test)]
mod testing;

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    let cli = cli::Cli::try_parse().unwrap_or_else(|error| {
        let _ = error.print();
        let code = if error.use_stderr() { i32::from(exit::USAGE) } else { 0 };
        std::process::exit(code)
    });
    ExitCode::from(match cli.command {
        None => monitor::main(&cli.options),
        // The name is there for whoever lists processes; the rest comes by standard input.
        Some(cli::Command::Role { .. }) => role::main(),
        Some(cli::Command::NscdHelper) => of_nscd("helper", roster_nscd::host::main()),
        Some(cli::Command::NscdStarter) => of_nscd("starter", roster_nscd::starter::main()),
        Some(cli::Command::ForPackagers(what)) => manual::write(&what),
    })
}

/// How a process beside the responder in place of nscd ended.
fn of_nscd(process: &str, ended: std::io::Result<()>) -> u8 {
    match ended {
        Ok(()) => 0,
        Err(error) => {
            say(format_args!("rosterd: the {process} of nscd: {error}"));
            exit::SOFTWARE
        }
    }
}

/// A line on standard error, where logging has not started yet. It may be closed.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
