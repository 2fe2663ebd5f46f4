//! Signals: as a command finds them, and those that a command sends to one process and no other.

use crate::host::{Facts, ThisHost};
use crate::judge::Process;
use nix::sys::signal::SigSet;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// By number, from 1.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
const TERM: i32 = 15;

/// Blocks none, and ignores none in a way that commands inherit: a signal that the parent had us ignore
/// gets a handler that does nothing, which ends with the process's image.
pub(super) fn reset() -> io::Result<()> {
    SigSet::empty().thread_set_mask()?;
    let status = fs::read_to_string("/proc/self/status")?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    for (number, name) in (1..).zip(NAMES) {
        // SIGPIPE is ours to ignore, and every command's as it should be.
        if ignored & 1 << (number - 1) != 0 && name != "PIPE" {
            signal_hook::flag::register(number, Arc::new(AtomicBool::new(false)))?;
        }
    }
    Ok(())
}

/// The signal of `kill [SIGNAL] PID`.
pub(super) fn asked_for(argv: &[OsString]) -> io::Result<i32> {
    let [_, option, _] = argv else { return Ok(TERM) };
    let unknown = || io::Error::other(format!("{} is no signal", option.display()));
    let name = option.to_str().and_then(|option| option.strip_prefix('-')).ok_or_else(unknown)?;
    if let Ok(number) = name.parse() {
        let known = number == 0 || Signal::from_named_raw(number).is_some();
        return if known { Ok(number) } else { Err(unknown()) };
    }
    let name = name.to_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let number = (1..).zip(NAMES).find_map(|(number, known)| (known == name).then_some(number));
    number.ok_or_else(unknown)
}

/// Signals a process, and tells of it as kill(1) does.
pub(super) fn send(process: Process, signal: i32) -> ExitCode {
    match try_send(process, signal) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "kill: ({}): {error}", process.pid);
            ExitCode::FAILURE
        }
    }
}

/// An error is that it is not there any more, or may not be signalled.
pub(super) fn try_send(process: Process, signal: i32) -> rustix::io::Result<()> {
    let gone = rustix::io::Errno::SRCH;
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw).ok_or(gone)?;
    let held = pidfd_open(pid, PidfdFlags::empty())?;
    // What is held is the process that was judged, if that has not ended: its start is looked at while
    // the number cannot have gone to another without the descriptor knowing.
    if ThisHost::with_environment(Vec::new()).start_of(process.pid) != Some(process.started) {
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

    #[test]
    fn signals_are_named_as_kill_has_them() {
        let asked =
            |words: &[&str]| asked_for(&words.iter().map(OsString::from).collect::<Vec<_>>()).ok();
        assert_eq!(asked(&["/bin/kill", "12"]), Some(15));
        for name in ["-9", "-KILL", "-SIGKILL", "-kill"] {
            assert_eq!(asked(&["/bin/kill", name, "12"]), Some(9), "{name}");
        }
        assert_eq!(asked(&["/bin/kill", "-0", "12"]), Some(0));
        for name in ["-65", "-", "-NO", "9", "--", "-l"] {
            assert_eq!(asked(&["/bin/kill", name, "12"]), None, "{name}");
        }
        for (number, name) in (1..).zip(NAMES) {
            assert!(Signal::from_named_raw(number).is_some(), "{name}");
        }
    }

    #[test]
    fn only_the_process_that_was_judged_is_signalled() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i64::from(child.id());
        let started = ThisHost::new().start_of(pid).unwrap();
        let other = Process { pid, started: started - 1 };
        assert_eq!(try_send(other, 9), Err(rustix::io::Errno::SRCH));
        assert_eq!(try_send(Process { pid, started }, 0), Ok(()));
        assert!(child.try_wait().unwrap().is_none());
        assert_eq!(try_send(Process { pid, started }, 9), Ok(()));
        assert!(!child.wait().unwrap().success());
    }
}
