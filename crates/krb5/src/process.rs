//! Calls that are sound because this process has one thread: fork(2), clearenv(3), getpwuid(3).

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

/// Removes all environment variables: several of them steer libraries, such as the C library's resolver
/// and the name service modules.
pub fn clear_environment() {
    // SAFETY: there is one thread, and no pointer into the environment.
    unsafe { libc::clearenv() };
}

/// The primary group of the user with this uid, from the name services.
pub fn primary_gid(uid: u32) -> io::Result<u32> {
    // SAFETY: there is one thread, so the record stays until it is read here.
    let gid = unsafe {
        *libc::__errno_location() = 0;
        libc::getpwuid(uid).as_ref().map(|record| record.pw_gid)
    };
    gid.ok_or_else(|| match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(0) => io::ErrorKind::NotFound.into(),
        error => error,
    })
}
