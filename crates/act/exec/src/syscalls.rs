// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls for which rustix needs a C library: the standard descriptors, the mask and actions of signals, a clock,
//! and texts for errors. Callers decide: `signals`, `terminal` and `connection`. All other system calls go through
//! rustix.

#![allow(unsafe_code)]

use core::mem::forget;
use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, fcntl_getfd};
use rustix::stdio::{stderr, stdin, stdout};
use syscalls::{Sysno, syscall};

/// A set of signals, with one bit for each. The lowest bit is signal 1.
pub(crate) type SignalSet = u64;

const SET_BYTES: usize = size_of::<SignalSet>();

/// Changes of the mask of blocked signals.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum MaskChange {
    /// Blocks the signals of the set.
    Block = 0,
    /// Unblocks the signals of the set.
    Unblock = 1,
    /// Blocks exactly the signals of the set.
    Replace = 2,
}

/// Returns the descriptors 0, 1 and 2.
pub(crate) fn standard_fds() -> [BorrowedFd<'static>; 3] {
    // SAFETY: no code here closes them, and `open_closed_fds` opens closed ones before any other call. Until then only
    // system calls use them, which accept any number.
    unsafe { [stdin(), stdout(), stderr()] }
}

/// Opens /dev/null in the place of closed descriptors 0, 1 and 2, so that no other file gets their numbers. Reads of 0
/// and writes to 1 and 2 fail as if they were closed.
pub(crate) fn open_closed_fds() -> Result<(), Errno> {
    for (fd, access) in
        standard_fds().into_iter().zip([OFlags::WRONLY, OFlags::RDONLY, OFlags::RDONLY])
    {
        if fcntl_getfd(fd) == Err(Errno::BADF) {
            // The kernel selects the lowest free number, which is this one. It stays open.
            openat(CWD, "/dev/null", access, Mode::empty()).map(forget)?;
        }
    }
    Ok(())
}

/// Returns milliseconds of the monotonic clock.
pub(crate) fn now_ms() -> u64 {
    /// CLOCK_MONOTONIC.
    const CLOCK: usize = 1;
    let mut time = [0_u64; 2];
    // SAFETY: the kernel writes seconds and nanoseconds to `time`.
    let _ = unsafe { syscall!(Sysno::clock_gettime, CLOCK, &raw mut time) };
    let [seconds, nanoseconds] = time;
    seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)
}

fn errno(error: syscalls::Errno) -> Errno {
    Errno::from_raw_os_error(error.into_raw())
}

/// Changes the mask of blocked signals, and returns the old one.
pub(crate) fn change_signal_mask(how: MaskChange, set: SignalSet) -> Result<SignalSet, Errno> {
    let mut before: SignalSet = 0;
    // SAFETY: both pointers lead to sets of this size, and the kernel writes to the second.
    unsafe {
        syscall!(Sysno::rt_sigprocmask, how as usize, &raw const set, &raw mut before, SET_BYTES)
    }
    .map_err(errno)?;
    Ok(before)
}

/// Opens a descriptor that reads blocked signals. A read without a signal returns `AGAIN`.
pub(crate) fn open_signalfd(set: SignalSet) -> Result<OwnedFd, Errno> {
    /// SFD_NONBLOCK and SFD_CLOEXEC.
    const FLAGS: usize = 0o4000 | 0o2_000_000;
    // SAFETY: the pointer leads to a set of this size.
    let made = unsafe { syscall!(Sysno::signalfd4, -1_isize, &raw const set, SET_BYTES, FLAGS) };
    let made = RawFd::try_from(made.map_err(errno)?).map_err(|_| Errno::BADF)?;
    // SAFETY: the descriptor is new, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// The structure of the kernel for an action: the handler, flags, the restorer and a mask. Handler 0 is the default
/// action, and 1 ignores the signal.
type KernelSigaction = [u64; 4];

/// Restores the default action of a signal.
pub(crate) fn reset_signal_action(signal: u32) {
    static DEFAULT: KernelSigaction = [0; 4];
    // SAFETY: the pointer leads to such a structure. The old action is not requested.
    let _ =
        unsafe { syscall!(Sysno::rt_sigaction, signal, &raw const DEFAULT, 0_usize, SET_BYTES) };
}

/// Returns true if this process ignores a signal. An error counts as false.
pub(crate) fn is_ignored(signal: u32) -> bool {
    let mut action: KernelSigaction = [0; 4];
    // SAFETY: the call changes nothing, and the kernel writes to `action`.
    let asked =
        unsafe { syscall!(Sysno::rt_sigaction, signal, 0_usize, &raw mut action, SET_BYTES) };
    asked.is_ok() && action[0] == 1
}

/// Sends a signal to this process.
pub(crate) fn raise(signal: u32) -> Result<(), Errno> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: the call takes no memory of this process.
    unsafe { syscall!(Sysno::kill, pid, signal) }.map(drop).map_err(errno)
}

/// Returns an error in words.
pub(crate) fn describe_errno(error: Errno) -> &'static str {
    match error {
        Errno::ACCESS | Errno::PERM => "permission denied",
        Errno::AGAIN => "timed out",
        Errno::CONNREFUSED => "connection refused",
        Errno::INVAL | Errno::NAMETOOLONG => "the path is too long or empty",
        Errno::LOOP => "too many symbolic links",
        Errno::MFILE | Errno::NFILE => "too many open files",
        Errno::NOENT => "no such file or directory",
        Errno::NOBUFS | Errno::NOMEM => "out of memory",
        Errno::NOTDIR => "not a directory",
        Errno::NOTSOCK | Errno::PROTOTYPE => "not a socket of this type",
        Errno::BADF => "bad file descriptor",
        Errno::TOOMANYREFS => "too many descriptors in flight",
        _ => "system error",
    }
}
