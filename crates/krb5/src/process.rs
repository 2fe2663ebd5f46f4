//! fork(2), of a process that has one thread.

#![allow(unsafe_code)]

use rustix::process::Pid;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Makes a copy of this process without these descriptors, in which `child` runs and which then ends.
/// Gives its id.
///
/// The copy has one thread, whatever this process has; this program never starts a second, so that no
/// lock of a library is held for ever.
pub fn fork(without: &[BorrowedFd<'_>], child: impl FnOnce()) -> io::Result<Pid> {
    // SAFETY: there is one thread, so the copy is whole.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => {
            for descriptor in without {
                // SAFETY: `child` cannot use them, for the caller has lent them here, and this process
                // ends without anything that owns them being dropped.
                unsafe { libc::close(descriptor.as_raw_fd()) };
            }
            child();
            // SAFETY: ends the process; what the original would do at its own end is not done twice.
            unsafe { libc::_exit(0) }
        }
        pid => Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error),
    }
}
