//! Signals: those that are passed on, as something to read; and what the command's signals do to us.

use crate::syscalls::{self, MaskChange, SignalSet};
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior};

/// Which are passed on.
const FORWARDED: [Signal; 9] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::CONT,
    Signal::WINCH,
];
/// Of these, whereby somebody wants an end.
const TERMINATING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
/// What a shell adds to the number of a signal that a command died of.
const SIGNAL_BASE: u8 = 128;
/// Of the structure in which a signal is read; its number comes first.
const INFO_BYTES: usize = 128;

const fn number(signal: Signal) -> u32 {
    signal.as_raw().cast_unsigned()
}

const fn set(of: &[Signal]) -> SignalSet {
    let (mut set, mut at) = (0, 0);
    while at < of.len() {
        set |= bit(number(of[at]));
        at += 1;
    }
    set
}

/// No number is more than 64.
const fn bit(signal: u32) -> SignalSet {
    1 << (signal.wrapping_sub(1) & 63)
}

/// What a command goes on by.
pub(crate) const CONTINUE: u32 = number(Signal::CONT);
/// The signal for a terminal of another size.
pub(crate) const RESIZE: u32 = number(Signal::WINCH);

/// The signals that came.
pub(crate) struct PendingSignals {
    signal_fd: OwnedFd,
    /// The first of them whereby somebody wants an end.
    termination: Option<u32>,
}

impl PendingSignals {
    /// From now on they do nothing to us, and can be read.
    pub(crate) fn catch() -> Result<Self, Errno> {
        let caught = set(&FORWARDED);
        syscalls::change_signal_mask(MaskChange::Block, caught)?;
        Ok(Self { signal_fd: syscalls::open_signalfd(caught)?, termination: None })
    }

    /// The next one that is there. Those that whoever started us has us ignore, as nohup(1) does, are
    /// ignored for the command as well.
    pub(crate) fn next(&mut self) -> Result<Option<u32>, Errno> {
        loop {
            let mut info = [0; INFO_BYTES];
            match read(&self.signal_fd, &mut info) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            }
            let [a, b, c, d, ..] = info;
            let signal = u32::from_ne_bytes([a, b, c, d]);
            if !syscalls::is_ignored(signal) {
                self.termination = self.termination.or(is_termination(signal).then_some(signal));
                return Ok(Some(signal));
            }
        }
    }

    /// Waits until that time, or for one whereby somebody wants an end.
    pub(crate) fn wait_for_termination(&mut self, until_ms: u64) -> Result<(), Errno> {
        while self.next()?.is_some() {}
        let left = Duration::from_millis(until_ms.saturating_sub(syscalls::now_ms()));
        if self.termination.is_none() {
            let left = Timespec::try_from(left).ok();
            let _ = poll(&mut [PollFd::new(&self.signal_fd, PollFlags::IN)], left.as_ref());
            while self.next()?.is_some() {}
        }
        Ok(())
    }

    /// The first that came whereby somebody wants an end.
    pub(crate) fn termination_signal(&self) -> Option<u32> {
        self.termination
    }
}

impl AsFd for PendingSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal_fd.as_fd()
    }
}

/// Whether somebody wants an end by it.
pub(crate) fn is_termination(signal: u32) -> bool {
    set(&TERMINATING) & bit(signal) != 0
}

/// A pipe that nobody reads is an error of writing, and no reason to die of.
pub(crate) fn block_sigpipe() {
    let _ = syscalls::change_signal_mask(MaskChange::Block, bit(number(Signal::PIPE)));
}

/// Stops this process as the command was stopped, and returns when it goes on.
pub(crate) fn stop_self(signal: u32) -> Result<(), Errno> {
    let stops = set(&[Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU]) & bit(signal) != 0;
    let signal = if stops { signal } else { number(Signal::STOP) };
    let before = syscalls::change_signal_mask(MaskChange::Unblock, bit(signal))?;
    syscalls::raise(signal)?;
    syscalls::change_signal_mask(MaskChange::Replace, before).map(drop)
}

/// Dies of a signal as the command did, without a dump of a memory that is not the command's; the status
/// is for one that nobody dies of.
pub(crate) fn die_by_signal(signal: u32) -> u8 {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // Also of one that whoever started us has us ignore.
    syscalls::reset_signal_action(signal);
    let _ = syscalls::raise(signal);
    // No other that waits is to be what it dies of.
    let _ = syscalls::change_signal_mask(MaskChange::Unblock, bit(signal));
    SIGNAL_BASE.saturating_add(signal.to_le_bytes()[0])
}
