// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface between the monitor and a role's process: standard input and the exit message. `process` reads the
//! input. The monitor's `spawn` writes it.

use crate::error_code::WithCode;
use roster_config::LogConfig;
use roster_messages::{CodedError, table::daemon};
use rustix::process::{DumpableBehavior, Signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Largest text that the monitor sends to a role; certificates are most of it.
pub const LAUNCH_BYTES_MAX: usize = 8 << 20;
/// Longest exit message of a role.
pub const EXIT_MESSAGE_BYTES_MAX: usize = 1 << 10;

/// Standard input of a role's process, as JSON. `C` is the configuration of the role.
#[derive(Serialize, Deserialize)]
pub struct Launch<C> {
    /// Name of the role. `None` for the process of the bus.
    pub role: Option<String>,
    /// Configuration of the role.
    pub config: C,
    /// `[log]`.
    pub log: LogConfig,
    /// See [`crate::RoleContext::state_dir`].
    pub state_dir: PathBuf,
    /// See [`crate::RoleContext::run_dir`].
    pub run_dir: PathBuf,
    /// The monitor's process. The role ends with it.
    pub monitor_pid: u32,
    /// The monitor's user. It may stop the role.
    pub monitor_uid: u32,
}

impl<C> Launch<C> {
    /// Splits the configuration from the rest.
    #[must_use]
    pub fn into_parts(self) -> (C, Launch<()>) {
        let Self { role, config, log, state_dir, run_dir, monitor_pid, monitor_uid } = self;
        (config, Launch { role, config: (), log, state_dir, run_dir, monitor_pid, monitor_uid })
    }

    /// Replaces the configuration.
    #[must_use]
    pub fn with_config<D>(self, config: D) -> Launch<D> {
        let Self { role, log, state_dir, run_dir, monitor_pid, monitor_uid, .. } = self;
        Launch { role, config, log, state_dir, run_dir, monitor_pid, monitor_uid }
    }
}

/// Writes the exit message for the monitor. A role that serves a socket has no file for it.
pub(crate) fn write_exit_message(why: &str) {
    if let Ok(output) = io::stdout().as_fd().try_clone_to_owned() {
        let end = why.floor_char_boundary(EXIT_MESSAGE_BYTES_MAX);
        // The log has an exit message that cannot be written here.
        let _ = File::from(output).write_all(&why.as_bytes()[..end]);
    }
}

/// Reads the launch data of the monitor, and makes sure that this process does not outlive the monitor.
///
/// # Errors
///
/// Standard input does not hold a [`Launch`], or the monitor has ended.
pub fn read_launch<C: DeserializeOwned>() -> Result<Launch<C>, CodedError> {
    let text = read_launch_text()
        .with_code(&daemon::ROLE_WITHOUT_MONITOR, || "standard input: cannot be read")?;
    let launch: Launch<C> = serde_json::from_slice(&text).with_code(
        &daemon::ROLE_WITHOUT_MONITOR,
        || "standard input: not a role's configuration",
    )?;
    let _ = rustix::thread::set_name(c"rosterd");
    // Readable memory and core dumps would show what the configuration keeps secret.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = rustix::thread::set_no_new_privs(true);
    exit_with_monitor(launch.monitor_pid)?;
    Ok(launch)
}

/// Makes the kernel end this process with the monitor. Fails if the monitor has ended.
fn exit_with_monitor(monitor: u32) -> Result<(), CodedError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .with_code(&daemon::PROCESS_SETUP_FAILED, || "cannot set the parent-death signal")?;
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    if parent != Some(monitor) {
        let text = format!("process {monitor}: the monitor has exited");
        return Err(CodedError::new(&daemon::ROLE_WITHOUT_MONITOR, text));
    }
    Ok(())
}

/// Reads standard input, passwords included, into one block of memory, which is wiped.
fn read_launch_text() -> io::Result<Zeroizing<Vec<u8>>> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let length = input.metadata()?.len().min(LAUNCH_BYTES_MAX as u64);
    // With one byte more, the read of the end of file needs no larger block.
    let mut text = Zeroizing::new(Vec::with_capacity(length as usize + 1));
    input.take(length).read_to_end(&mut text)?;
    Ok(text)
}
