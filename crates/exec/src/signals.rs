//! Signals: those that are passed on, as something to read; and what the command's signals do to us.

use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use signal_hook::low_level::emulate_default_handler;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

/// Which are passed on.
const PASSED_ON: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];
/// What a command goes on by.
pub(crate) const CONTINUE: u32 = Signal::SIGCONT as u32;
/// What a shell adds to the number of a signal that a command died of.
const SIGNAL_BASE: u8 = 128;

/// The signals that came.
pub(crate) struct Signals {
    came: SignalFd,
    /// Those that are not passed on, once that was asked for.
    ignored: Option<u64>,
}

impl Signals {
    /// From now on they do nothing to us, and can be read.
    pub(crate) fn catch() -> io::Result<Self> {
        let caught: SigSet = PASSED_ON.into_iter().collect();
        caught.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self { came: SignalFd::with_flags(&caught, flags)?, ignored: None })
    }

    /// The next one that is there. Those that whoever started us has us ignore, as nohup(1) does, are
    /// ignored for the command as well.
    pub(crate) fn next(&mut self) -> io::Result<Option<u32>> {
        while let Some(info) = self.came.read_signal()? {
            let ignored = *self.ignored.get_or_insert_with(ignored);
            if ignored & 1 << (info.ssi_signo - 1) == 0 {
                return Ok(Some(info.ssi_signo));
            }
        }
        Ok(None)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.came.as_fd()
    }
}

/// Whether somebody wants an end by it.
pub(crate) fn is_to_end(signal: u32) -> bool {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT]
        .into_iter()
        .any(|end| end as u32 == signal)
}

/// One bit for each, the first for the signal 1. Where it cannot be told, none is.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

/// Stops this process as the command was stopped, and returns when it goes on.
pub(crate) fn stop_by(signal: u32) -> io::Result<()> {
    let signal = i32::try_from(signal).ok().and_then(|signal| Signal::try_from(signal).ok());
    let signal = signal.unwrap_or(Signal::SIGSTOP);
    let mut before = SigSet::empty();
    let only = SigSet::from(signal);
    sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&only), Some(&mut before))?;
    raise(signal)?;
    Ok(sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?)
}

/// Dies of a signal as the command did, without a dump of a memory that is not the command's.
pub(crate) fn die_of(signal: u32) -> ExitCode {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = SigSet::all().thread_unblock();
    // Also of those that are ignored, as SIGPIPE is by Rust's programs. It comes back where this is
    // none that one dies of.
    let _ = i32::try_from(signal).map(emulate_default_handler);
    ExitCode::from(SIGNAL_BASE.saturating_add(signal.to_le_bytes()[0]))
}
