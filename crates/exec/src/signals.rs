//! Signals: those that are passed on, as something to read; and what the command's signals do to us.

use crate::system::{self, Change, Set};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, read};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior};

/// Which are passed on.
const PASSED_ON: [Signal; 9] = [
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
const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
/// What a shell adds to the number of a signal that a command died of.
const SIGNAL_BASE: u8 = 128;
/// Of the structure in which a signal is read; its number comes first.
const INFO_BYTES: usize = 128;
/// Of /proc/self/status, in which what is looked for comes early.
const STATUS_BYTES: usize = 4096;

const fn number(signal: Signal) -> u32 {
    signal.as_raw().cast_unsigned()
}

const fn set(of: &[Signal]) -> Set {
    let (mut set, mut at) = (0, 0);
    while at < of.len() {
        set |= bit(number(of[at]));
        at += 1;
    }
    set
}

/// No number is more than 64.
const fn bit(signal: u32) -> Set {
    1 << (signal.wrapping_sub(1) & 63)
}

/// What a command goes on by.
pub(crate) const CONTINUE: u32 = number(Signal::CONT);

/// The signals that came.
pub(crate) struct Signals {
    came: OwnedFd,
    /// Those that are not passed on, once that was asked for.
    ignored: Option<Set>,
}

impl Signals {
    /// From now on they do nothing to us, and can be read.
    pub(crate) fn catch() -> Result<Self, Errno> {
        let caught = set(&PASSED_ON);
        system::change_waiting(Change::Block, caught)?;
        Ok(Self { came: system::readable(caught)?, ignored: None })
    }

    /// The next one that is there. Those that whoever started us has us ignore, as nohup(1) does, are
    /// ignored for the command as well.
    pub(crate) fn next(&mut self) -> Result<Option<u32>, Errno> {
        loop {
            let mut info = [0; INFO_BYTES];
            match read(&self.came, &mut info) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            }
            let [a, b, c, d, ..] = info;
            let signal = u32::from_ne_bytes([a, b, c, d]);
            let ignored = *self.ignored.get_or_insert_with(ignored);
            if ignored & bit(signal) == 0 {
                return Ok(Some(signal));
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.came.as_fd()
    }
}

/// Whether somebody wants an end by it.
pub(crate) fn is_to_end(signal: u32) -> bool {
    set(&ENDING) & bit(signal) != 0
}

/// Where it cannot be told, none is.
fn ignored() -> Set {
    let mut status = [0; STATUS_BYTES];
    let read = || {
        let file = openat(CWD, "/proc/self/status", OFlags::CLOEXEC, Mode::empty())?;
        read(file, &mut status)
    };
    let count = rustix::io::retry_on_intr(read).unwrap_or(0);
    let lines = status[..count].split(|&byte| byte == b'\n');
    let bits = lines.into_iter().find_map(|line| line.strip_prefix(b"SigIgn:"));
    let bits = bits.and_then(|bits| core::str::from_utf8(bits.trim_ascii()).ok());
    bits.and_then(|bits| Set::from_str_radix(bits, 16).ok()).unwrap_or(0)
}

/// Stops this process as the command was stopped, and returns when it goes on.
pub(crate) fn stop_by(signal: u32) -> Result<(), Errno> {
    let stops = set(&[Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU]) & bit(signal) != 0;
    let signal = if stops { signal } else { number(Signal::STOP) };
    let before = system::change_waiting(Change::Unblock, bit(signal))?;
    system::raise(signal)?;
    system::change_waiting(Change::Exactly, before).map(drop)
}

/// Dies of a signal as the command did, without a dump of a memory that is not the command's; the status
/// is for one that nobody dies of.
pub(crate) fn die_of(signal: u32) -> u8 {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // Also of one that whoever started us has us ignore.
    system::make_default(signal);
    let _ = system::raise(signal);
    let _ = system::change_waiting(Change::Exactly, 0);
    SIGNAL_BASE.saturating_add(signal.to_le_bytes()[0])
}
