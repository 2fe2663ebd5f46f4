//! What rustix leaves to a C library: the standard descriptors, which signals wait, what they do, and the system's
//! errors in words.

#![allow(unsafe_code)]

use core::mem::forget;
use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, fcntl_getfd};
use rustix::stdio::{stderr, stdin, stdout};
use syscalls::{Sysno, syscall};

/// A set of signals: one bit for each, the first for the signal 1.
pub(crate) type SignalSet = u64;

const SET_BYTES: usize = size_of::<SignalSet>();

/// How a set changes those that wait.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum MaskChange {
    /// They wait as well.
    Block = 0,
    /// They do not.
    Unblock = 1,
    /// They do, and no others.
    Replace = 2,
}

/// The descriptors 0, 1 and 2.
pub(crate) fn standard_fds() -> [BorrowedFd<'static>; 3] {
    // SAFETY: nothing here closes them, and `open_closed_fds`, which is called first of all, opens those that are closed. It
    // and what is said when it fails call nothing but what the kernel answers for any number.
    unsafe { [stdin(), stdout(), stderr()] }
}

/// Whoever started us with 0, 1 or 2 closed is not to have other files there. The command finds them as if they were
/// closed: what it writes or reads there is an error.
pub(crate) fn open_closed_fds() -> Result<(), Errno> {
    for (fd, access) in
        standard_fds().into_iter().zip([OFlags::WRONLY, OFlags::RDONLY, OFlags::RDONLY])
    {
        if fcntl_getfd(fd) == Err(Errno::BADF) {
            // The lowest that is free, which is this one. It stays open.
            openat(CWD, "/dev/null", access, Mode::empty()).map(forget)?;
        }
    }
    Ok(())
}

/// Milliseconds of a clock that is never set.
pub(crate) fn now_ms() -> u64 {
    /// CLOCK_MONOTONIC.
    const CLOCK: usize = 1;
    let mut time = [0_u64; 2];
    // SAFETY: it leads to room for the seconds and nanoseconds that the kernel writes.
    let _ = unsafe { syscall!(Sysno::clock_gettime, CLOCK, &raw mut time) };
    let [seconds, nanoseconds] = time;
    seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)
}

fn errno(error: syscalls::Errno) -> Errno {
    Errno::from_raw_os_error(error.into_raw())
}

/// Changes which signals wait, and tells which did.
pub(crate) fn change_signal_mask(how: MaskChange, set: SignalSet) -> Result<SignalSet, Errno> {
    let mut before: SignalSet = 0;
    // SAFETY: both lead to sets of that size, of which the second may be written.
    unsafe {
        syscall!(Sysno::rt_sigprocmask, how as usize, &raw const set, &raw mut before, SET_BYTES)
    }
    .map_err(errno)?;
    Ok(before)
}

/// Signals that wait, as something to read: nothing there is `AGAIN`.
pub(crate) fn open_signalfd(set: SignalSet) -> Result<OwnedFd, Errno> {
    /// SFD_NONBLOCK and SFD_CLOEXEC.
    const FLAGS: usize = 0o4000 | 0o2_000_000;
    // SAFETY: it leads to a set of that size.
    let made = unsafe { syscall!(Sysno::signalfd4, -1_isize, &raw const set, SET_BYTES, FLAGS) };
    let made = RawFd::try_from(made.map_err(errno)?).map_err(|_| Errno::BADF)?;
    // SAFETY: it was made just now, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// The kernel's own structure of what a signal does: what is to be called, flags, how to return, and who waits
/// meanwhile. The first is 0 for the usual, 1 for nothing.
type KernelSigaction = [u64; 4];

/// Has a signal do what it does to a program that says nothing of it.
pub(crate) fn reset_signal_action(signal: u32) {
    static DEFAULT: KernelSigaction = [0; 4];
    // SAFETY: it leads to such a structure; what was done before is not asked for.
    let _ =
        unsafe { syscall!(Sysno::rt_sigaction, signal, &raw const DEFAULT, 0_usize, SET_BYTES) };
}

/// Whether whoever started us has us ignore a signal. Where it cannot be told, it is not.
pub(crate) fn is_ignored(signal: u32) -> bool {
    let mut action: KernelSigaction = [0; 4];
    // SAFETY: nothing is changed, and it leads to room for such a structure.
    let asked =
        unsafe { syscall!(Sysno::rt_sigaction, signal, 0_usize, &raw mut action, SET_BYTES) };
    asked.is_ok() && action[0] == 1
}

/// Sends a signal to this process.
pub(crate) fn raise(signal: u32) -> Result<(), Errno> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: it takes no memory of ours.
    unsafe { syscall!(Sysno::kill, pid, signal) }.map(drop).map_err(errno)
}

/// An error as people know it.
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
