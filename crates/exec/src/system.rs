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
pub(crate) type Set = u64;

const SET_BYTES: usize = size_of::<Set>();

/// How a set changes those that wait.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Change {
    /// They wait as well.
    Block = 0,
    /// They do not.
    Unblock = 1,
    /// They do, and no others.
    Exactly = 2,
}

/// The descriptors 0, 1 and 2.
pub(crate) fn standard() -> [BorrowedFd<'static>; 3] {
    // SAFETY: `open_closed` was called first of all, and nothing here closes them.
    unsafe { [stdin(), stdout(), stderr()] }
}

/// Whoever started us with 0, 1 or 2 closed is not to have other files there.
pub(crate) fn open_closed() -> Result<(), Errno> {
    for fd in standard() {
        if fcntl_getfd(fd) == Err(Errno::BADF) {
            // The lowest that is free, which is this one. It stays open.
            openat(CWD, "/dev/null", OFlags::RDWR, Mode::empty()).map(forget)?;
        }
    }
    Ok(())
}

fn errno(error: syscalls::Errno) -> Errno {
    Errno::from_raw_os_error(error.into_raw())
}

/// Changes which signals wait, and tells which did.
pub(crate) fn change_waiting(how: Change, set: Set) -> Result<Set, Errno> {
    let mut before: Set = 0;
    // SAFETY: both lead to sets of that size, of which the second may be written.
    unsafe {
        syscall!(Sysno::rt_sigprocmask, how as usize, &raw const set, &raw mut before, SET_BYTES)
    }
    .map_err(errno)?;
    Ok(before)
}

/// Signals that wait, as something to read: nothing there is `AGAIN`.
pub(crate) fn readable(set: Set) -> Result<OwnedFd, Errno> {
    /// SFD_NONBLOCK and SFD_CLOEXEC.
    const FLAGS: usize = 0o4000 | 0o2_000_000;
    // SAFETY: it leads to a set of that size.
    let made = unsafe { syscall!(Sysno::signalfd4, -1_isize, &raw const set, SET_BYTES, FLAGS) };
    let made = RawFd::try_from(made.map_err(errno)?).map_err(|_| Errno::BADF)?;
    // SAFETY: it was made just now, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Has a signal do what it does to a program that says nothing of it.
pub(crate) fn make_default(signal: u32) {
    /// The kernel's own structure: what is to be done, flags, how to return, and who waits meanwhile.
    static DEFAULT: [u64; 4] = [0; 4];
    // SAFETY: it leads to such a structure; what was done before is not asked for.
    let _ =
        unsafe { syscall!(Sysno::rt_sigaction, signal, &raw const DEFAULT, 0_usize, SET_BYTES) };
}

/// Sends a signal to this process.
pub(crate) fn raise(signal: u32) -> Result<(), Errno> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: it takes no memory of ours.
    unsafe { syscall!(Sysno::kill, pid, signal) }.map(drop).map_err(errno)
}

/// An error as people know it.
pub(crate) fn words(error: Errno) -> &'static str {
    match error {
        Errno::ACCESS | Errno::PERM => "permission denied",
        Errno::AGAIN => "nothing moves, and its time is over",
        Errno::CONNREFUSED => "connection refused",
        Errno::INVAL | Errno::NAMETOOLONG => "the path is too long, or none",
        Errno::LOOP => "too many links on the way",
        Errno::MFILE | Errno::NFILE => "too many open files",
        Errno::NOENT => "no such file or folder",
        Errno::NOBUFS | Errno::NOMEM => "out of memory",
        Errno::NOTDIR => "what is on the way is no folder",
        Errno::NOTSOCK | Errno::PROTOTYPE => "no socket of this kind",
        Errno::BADF => "a descriptor that it takes is closed",
        Errno::TOOMANYREFS => "too many descriptors are under way",
        _ => "an error of the system",
    }
}
