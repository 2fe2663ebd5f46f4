// SPDX-License-Identifier: MIT OR Apache-2.0
//! A terminal (pty) for the command. A process that outlives the command as another user then cannot read later input
//! of the caller's terminal. This program copies bytes, sizes and signals between the two. `connection` sends the end
//! of the terminal to the daemon.
//!
//! Meanwhile the caller's terminal is raw: only the command's terminal edits lines, echoes, and knows the keys of
//! signals. It is the controlling terminal of no process, so this program sends the signals of its keys.

use crate::syscalls;
use core::mem::take;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, ioctl_fionbio, read, retry_on_intr, write};
use rustix::process::{Signal, getpgrp};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, isatty, tcgetattr,
    tcgetpgrp, tcgetwinsize, tcsetattr, tcsetwinsize,
};

/// The size of a read.
const PIECE_BYTES: usize = 4096;
/// More pieces than a terminal holds (64 KiB and 4 KiB on Linux).
const DRAIN_PIECES_MAX: usize = 32;
/// Keys with their signals.
const KEYS: [(SpecialCodeIndex, Signal); 3] = [
    (SpecialCodeIndex::VINTR, Signal::INT),
    (SpecialCodeIndex::VQUIT, Signal::QUIT),
    (SpecialCodeIndex::VSUSP, Signal::TSTP),
];
/// The code of a disabled key.
const NO_KEY: u8 = 0;

/// The command's terminal, and its connection to the caller's.
pub(crate) struct Terminal {
    /// The master side of the pty.
    pty_master: OwnedFd,
    /// The descriptor that reads keys, if 0 is a terminal and 1 is not a pipe.
    caller_input: Option<BorrowedFd<'static>>,
    /// The descriptor that shows output.
    caller_output: BorrowedFd<'static>,
    /// The modes of the caller's terminal while it is raw.
    saved_modes: Option<Termios>,
    /// Keys that are not forwarded yet.
    keys: KeyBuffer,
    /// The command has started.
    has_started: bool,
    /// No process has the command's side open.
    is_closed: bool,
}

struct KeyBuffer {
    bytes: [u8; PIECE_BYTES],
    from: usize,
    to: usize,
    /// The next key is literal, even if it is the key of a signal.
    is_quoted: bool,
}

impl Terminal {
    /// Creates a pty with the modes and the size of the caller's terminal. `None`: 0, 1 and 2 are not terminals.
    pub(crate) fn new() -> Result<Option<Self>, Errno> {
        let [stdin, stdout, stderr] = syscalls::standard_fds();
        let Some(shown) = [stdout, stderr, stdin].into_iter().find(|fd| isatty(fd)) else {
            return Ok(None);
        };
        let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        unlockpt(&own)?;
        ioctl_fionbio(&own, true)?;
        // A program behind a pipe, such as a pager, may use the keys and modes of the caller's terminal.
        let typed = (isatty(stdin) && !is_pipe(stdout)).then_some(stdin);
        let mut modes = tcgetattr(shown)?;
        if typed.is_none() {
            // The caller's terminal is not raw in this case, and adds a carriage return to each newline.
            modes.output_modes -= OutputModes::OPOST;
        }
        tcsetattr(&own, OptionalActions::Now, &modes)?;
        tcsetwinsize(&own, tcgetwinsize(shown)?)?;
        let keys = KeyBuffer { bytes: [0; PIECE_BYTES], from: 0, to: 0, is_quoted: false };
        let (before, is_begun, is_closed) = (None, false, false);
        Ok(Some(Self {
            pty_master: own,
            caller_input: typed,
            caller_output: shown,
            saved_modes: before,
            keys,
            has_started: is_begun,
            is_closed,
        }))
    }

    /// Opens the command's side.
    pub(crate) fn open_command_end(&self) -> Result<OwnedFd, Errno> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        ioctl_tiocgptpeer(&self.pty_master, flags)
    }

    /// Makes the caller's terminal raw when the command starts or continues.
    pub(crate) fn resume(&mut self) {
        self.has_started = true;
        self.resize();
        let Some(typed) = self.caller_input else { return };
        if is_in_background(typed) {
            // The shell has set its own modes.
            self.saved_modes = None;
            return;
        }
        if let Ok(before) = tcgetattr(typed) {
            let mut raw = before.clone();
            raw.make_raw();
            if tcsetattr(typed, OptionalActions::Drain, &raw).is_ok() {
                self.saved_modes.get_or_insert(before);
            }
        }
    }

    /// Returns true if another job has the keys. No signal reports the change back: `fg` sends none to a running job.
    pub(crate) fn waits_for_foreground(&self) -> bool {
        self.has_started && self.saved_modes.is_none() && self.caller_input.is_some()
    }

    /// Restores the modes of the caller's terminal.
    pub(crate) fn restore_modes(&mut self) {
        if let (Some(before), Some(typed)) = (take(&mut self.saved_modes), self.caller_input)
            && !is_in_background(typed)
        {
            let _ = tcsetattr(typed, OptionalActions::Drain, &before);
        }
    }

    /// Copies the size of the caller's terminal.
    pub(crate) fn resize(&self) {
        let _ =
            tcgetwinsize(self.caller_output).and_then(|size| tcsetwinsize(&self.pty_master, size));
    }

    /// Returns the events to wait for, on the pty and on the caller's terminal.
    pub(crate) fn poll_events(&self) -> [Option<(BorrowedFd<'_>, PollFlags)>; 2] {
        // The client shows output only once the caller's terminal is raw.
        if !self.has_started {
            return [None; 2];
        }
        let read = if self.is_closed { PollFlags::empty() } else { PollFlags::IN };
        let write = if self.keys.is_waiting() { PollFlags::OUT } else { PollFlags::empty() };
        let own = (!(read | write).is_empty()).then(|| (self.pty_master.as_fd(), read | write));
        let reads = self.saved_modes.is_some() && !self.keys.is_waiting();
        [own, self.caller_input.filter(|_| reads).map(|typed| (typed, PollFlags::IN))]
    }

    /// Copies output and keys of a started command, and returns the signal of a key.
    pub(crate) fn transfer(&mut self, [has_shown, has_typed]: [bool; 2]) -> Option<u32> {
        if has_shown {
            self.copy_output();
        }
        if has_typed && self.saved_modes.is_some() && !self.keys.is_waiting() {
            self.read_keys();
        }
        self.forward_keys()
    }

    /// Copies the output of the command that is already there.
    pub(crate) fn drain_output(&mut self) {
        for _ in 0..DRAIN_PIECES_MAX {
            if !self.copy_output() {
                return;
            }
        }
    }

    /// Copies one piece of output. False: there was none.
    fn copy_output(&mut self) -> bool {
        let mut piece = [0; PIECE_BYTES];
        match retry_on_intr(|| read(&self.pty_master, &mut piece)) {
            Ok(count @ 1..) => crate::write_all(self.caller_output, &piece[..count]).is_ok(),
            Err(Errno::AGAIN) => false,
            Ok(_) | Err(_) => {
                self.is_closed = true;
                false
            }
        }
    }

    fn read_keys(&mut self) {
        let Some(typed) = self.caller_input else { return };
        match read(typed, &mut self.keys.bytes) {
            Ok(count @ 1..) => (self.keys.from, self.keys.to) = (0, count),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // The caller's terminal is closed.
            Ok(_) | Err(_) => self.caller_input = None,
        }
    }

    /// Forwards keys up to the first one with a signal, and returns that signal. The command's terminal echoes the key.
    fn forward_keys(&mut self) -> Option<u32> {
        if !self.keys.is_waiting() {
            return None;
        }
        let modes = tcgetattr(&self.pty_master).ok();
        let (end, is_quoted, signal) = self.keys.up_to_signal(modes.as_ref());
        match write(&self.pty_master, &self.keys.bytes[self.keys.from..end]) {
            Ok(count) => {
                self.keys.from += count;
                if self.keys.from < end {
                    return None;
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => return None,
            // No process has the pty open.
            Err(_) => self.keys.from = end,
        }
        self.keys.is_quoted = is_quoted;
        signal
    }
}

/// Job control applies only to the terminal that controls this process.
fn is_in_background(terminal: BorrowedFd<'_>) -> bool {
    tcgetpgrp(terminal).is_ok_and(|group| group != getpgrp())
}

fn is_pipe(fd: BorrowedFd<'_>) -> bool {
    fstat(fd).is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo)
}

impl KeyBuffer {
    fn is_waiting(&self) -> bool {
        self.from < self.to
    }

    /// Returns the end of the keys to forward, whether the key behind them is literal, and the signal.
    fn up_to_signal(&self, modes: Option<&Termios>) -> (usize, bool, Option<u32>) {
        let mut is_quoted = self.is_quoted;
        let Some(modes) = modes else { return (self.to, is_quoted, None) };
        let is_key = |byte: u8, key| byte != NO_KEY && modes.special_codes[key] == byte;
        let quotes = modes.local_modes.contains(LocalModes::ICANON | LocalModes::IEXTEN);
        for at in self.from..self.to {
            let byte = self.bytes[at];
            if take(&mut is_quoted) {
                continue;
            }
            if quotes && is_key(byte, SpecialCodeIndex::VLNEXT) {
                is_quoted = true;
            } else if modes.local_modes.contains(LocalModes::ISIG)
                && let Some((_, signal)) = KEYS.iter().find(|(key, _)| is_key(byte, *key))
            {
                return (at + 1, false, Some(signal.as_raw().cast_unsigned()));
            }
        }
        (self.to, is_quoted, None)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.restore_modes();
    }
}
