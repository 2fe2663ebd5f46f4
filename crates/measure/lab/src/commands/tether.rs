// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ties a process to its parent: the kernel ends it when the parent ends, even by SIGKILL. `locust` starts its master
//! and its workers this way.

use super::{FAILED, print_failure};
use roster_messages::CodedError;
use roster_messages::table::lab;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// First argument of this program as a stand-in for a tied process. It is not documented.
const OPTION: &str = "--tied-to";

/// Returns a command that runs `program` and receives SIGTERM when this process ends.
pub fn tied(program: impl Into<OsString>) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(OPTION).arg(std::process::id().to_string()).arg(program.into());
    Ok(command)
}

/// Becomes the program that [`tied`] names, if this process was started that way.
pub fn become_tied() -> Option<ExitCode> {
    let mut words = env::args_os().skip(1);
    if words.next()? != OPTION {
        return None;
    }
    let (parent, program) = (words.next()?, words.next()?);
    let error = match set_parent_process_death_signal(Some(Signal::TERM)) {
        // The parent ended before the call.
        Ok(()) if !is_parent(&parent) => return Some(ExitCode::from(FAILED)),
        Ok(()) => Command::new(&program).args(words).exec(),
        Err(error) => error.into(),
    };
    let text = format!("{}: cannot start", program.display());
    print_failure(&CodedError::new(&lab::CHILD_NOT_STARTED, text).caused_by(error).into());
    Some(ExitCode::from(FAILED))
}

fn is_parent(pid: &OsString) -> bool {
    getppid().is_some_and(|parent| *pid == *parent.as_raw_nonzero().to_string())
}
