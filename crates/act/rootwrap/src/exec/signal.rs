// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: the defaults for commands, and the delivery to exactly one process. `evaluate` decides about signals of
//! kill(1).

use crate::evaluate::KillRequest;
use crate::host_facts::{HostFacts, LocalHost};
use nix::sys::signal::SigSet;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::SIGPIPE;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The last real-time signal.
const SIGNAL_MAX: i32 = 64;

/// Unblocks all signals. An ignored signal gets an empty handler, which ends with the image of the process, so that
/// commands do not inherit the state.
pub(super) fn reset() -> io::Result<()> {
    SigSet::empty().thread_set_mask()?;
    let status = fs::read_to_string("/proc/self/status")?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    // The C library reserves these two signals.
    for number in (1..=SIGNAL_MAX).filter(|number| ![32, 33].contains(number)) {
        // SIGPIPE stays ignored here. Signals of faults end a process even if it ignores them.
        let is_kept = number == SIGPIPE || signal_hook::consts::FORBIDDEN.contains(&number);
        if ignored & 1 << (number - 1) != 0 && !is_kept {
            handle(number)?;
        }
    }
    Ok(())
}

/// Restores the default of SIGPIPE for the command that this process becomes.
pub(super) fn default_pipe() -> io::Result<()> {
    SigSet::empty().thread_set_mask()?;
    handle(SIGPIPE)
}

fn handle(number: i32) -> io::Result<()> {
    signal_hook::flag::register(number, Arc::new(AtomicBool::new(false))).map(drop)
}

/// Sends a signal, and reports as kill(1).
pub(super) fn send(kill: KillRequest) -> ExitCode {
    match try_send(kill) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "kill: ({}): {error}", kill.process.pid);
            ExitCode::FAILURE
        }
    }
}

/// An error: the process has ended, or may not be signalled.
pub(super) fn try_send(kill: KillRequest) -> rustix::io::Result<()> {
    let KillRequest { process, signal } = kill;
    let gone = rustix::io::Errno::SRCH;
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw).ok_or(gone)?;
    let held = pidfd_open(pid, PidfdFlags::empty())?;
    // The pidfd keeps the number reserved. The start time then proves that the process is the evaluated one.
    if LocalHost::with_environment(Vec::new()).start_of(process.pid) != Some(process.started) {
        return Err(gone);
    }
    match Signal::from_named_raw(signal) {
        Some(signal) => pidfd_send_signal(held, signal),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::ProcessIdentity;
    use crate::evaluate::kill_command::SIGNALS;

    #[test]
    fn every_signal_that_is_judged_can_be_sent() {
        for (number, name) in (1..).zip(SIGNALS) {
            assert!(Signal::from_named_raw(number).is_some(), "{name}");
        }
    }

    #[test]
    fn only_the_process_that_was_judged_is_signalled() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i64::from(child.id());
        let started = LocalHost::new().start_of(pid).unwrap();
        let send = |started, signal| {
            try_send(KillRequest { process: ProcessIdentity { pid, started }, signal })
        };
        assert_eq!(send(started - 1, 9), Err(rustix::io::Errno::SRCH));
        assert_eq!(send(started, 0), Ok(()));
        assert!(child.try_wait().unwrap().is_none());
        assert_eq!(send(started, 9), Ok(()));
        assert!(!child.wait().unwrap().success());
    }
}
