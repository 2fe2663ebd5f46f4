//! Signals: as a command finds them, and those that one process gets and no other.

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

/// Blocks none, and ignores none in a way that commands inherit: a signal that the parent had us ignore
/// gets a handler that does nothing, which ends with the process's image.
pub(super) fn reset() -> io::Result<()> {
    SigSet::empty().thread_set_mask()?;
    let status = fs::read_to_string("/proc/self/status")?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    // The C library has two of its own, and lets no handler have them.
    for number in (1..=SIGNAL_MAX).filter(|number| ![32, 33].contains(number)) {
        // SIGPIPE is ours to ignore. A fault ends a process also where its signal is ignored.
        let is_kept = number == SIGPIPE || signal_hook::consts::FORBIDDEN.contains(&number);
        if ignored & 1 << (number - 1) != 0 && !is_kept {
            handle(number)?;
        }
    }
    Ok(())
}

/// Has SIGPIPE do what it does by default in the program that this process becomes.
pub(super) fn default_pipe() -> io::Result<()> {
    SigSet::empty().thread_set_mask()?;
    handle(SIGPIPE)
}

fn handle(number: i32) -> io::Result<()> {
    signal_hook::flag::register(number, Arc::new(AtomicBool::new(false))).map(drop)
}

/// Signals a process, and tells of it as kill(1) does.
pub(super) fn send(kill: KillRequest) -> ExitCode {
    match try_send(kill) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "kill: ({}): {error}", kill.process.pid);
            ExitCode::FAILURE
        }
    }
}

/// An error is that it is not there any more, or may not be signalled.
pub(super) fn try_send(kill: KillRequest) -> rustix::io::Result<()> {
    let KillRequest { process, signal } = kill;
    let gone = rustix::io::Errno::SRCH;
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw).ok_or(gone)?;
    let held = pidfd_open(pid, PidfdFlags::empty())?;
    // What is held is the process that was judged, if that has not ended: its start is looked at while
    // the number cannot have gone to another without the descriptor knowing.
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
