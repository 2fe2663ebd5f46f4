// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals of `roster-exec`: it reads and forwards those of the caller, and repeats those of the command on itself.
//! System calls are in `syscalls`.

use crate::syscalls::{self, MaskChange, SignalSet};
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior};

/// Signals that are forwarded.
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
/// Signals that request an end.
const TERMINATING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
/// A shell adds this to the number of the signal that ended a command.
const SIGNAL_BASE: u8 = 128;
/// Size of the structure of signalfd(2). It begins with the number of the signal.
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

/// Signals have numbers up to 64.
const fn bit(signal: u32) -> SignalSet {
    1 << (signal.wrapping_sub(1) & 63)
}

/// The signal that continues a command.
pub(crate) const CONTINUE: u32 = number(Signal::CONT);
/// The signal of a terminal with a new size.
pub(crate) const RESIZE: u32 = number(Signal::WINCH);

/// Signals that wait to be read.
pub(crate) struct PendingSignals {
    signal_fd: OwnedFd,
    /// The first signal that requests an end.
    termination: Option<u32>,
}

impl PendingSignals {
    /// Blocks the signals, so that they can be read.
    pub(crate) fn catch() -> Result<Self, Errno> {
        let caught = set(&FORWARDED);
        syscalls::change_signal_mask(MaskChange::Block, caught)?;
        Ok(Self { signal_fd: syscalls::open_signalfd(caught)?, termination: None })
    }

    /// Returns the next signal that waits. If this process ignores a signal from its start, as under nohup(1), the
    /// command does not get it.
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

    /// Waits until a time, or for a signal that requests an end.
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

    /// Returns the first signal that requests an end.
    pub(crate) fn termination_signal(&self) -> Option<u32> {
        self.termination
    }
}

impl AsFd for PendingSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal_fd.as_fd()
    }
}

/// Returns true for a signal that requests an end.
pub(crate) fn is_termination(signal: u32) -> bool {
    set(&TERMINATING) & bit(signal) != 0
}

/// Turns a write into a closed pipe into an error.
pub(crate) fn block_sigpipe() {
    let _ = syscalls::change_signal_mask(MaskChange::Block, bit(number(Signal::PIPE)));
}

/// Stops this process by the signal that stopped the command. Returns when the process continues.
pub(crate) fn stop_self(signal: u32) -> Result<(), Errno> {
    let stops = set(&[Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU]) & bit(signal) != 0;
    let signal = if stops { signal } else { number(Signal::STOP) };
    let before = syscalls::change_signal_mask(MaskChange::Unblock, bit(signal))?;
    syscalls::raise(signal)?;
    syscalls::change_signal_mask(MaskChange::Replace, before).map(drop)
}

/// Ends this process by the signal that ended the command, without a core dump. Returns a status if the signal does not
/// end a process.
pub(crate) fn die_by_signal(signal: u32) -> u8 {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // The process may have ignored this signal from its start.
    syscalls::reset_signal_action(signal);
    let _ = syscalls::raise(signal);
    // Another pending signal must not end the process before.
    let _ = syscalls::change_signal_mask(MaskChange::Unblock, bit(signal));
    SIGNAL_BASE.saturating_add(signal.to_le_bytes()[0])
}
