// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that are sound because this process has one thread: fork(2), clearenv(3), getpwuid(3), and close(2) of inherited
//! descriptors; and alarm(2). `server`, `bind_server` and `session_ccache` decide when they are made.

#![allow(unsafe_code)]

use rustix::process::{Pid, Resource, getrlimit};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// The lowest descriptor that is not one of the three standard ones.
const FIRST_INHERITED_FD: RawFd = 3;
/// Descriptors that are closed one by one without /proc, if the limit is larger: Linux permits no more by default.
const FDS_MAX: u64 = 1 << 20;

/// Makes a copy of this process without these descriptors, which runs `child` and then ends. Returns its id.
///
/// The copy has one thread, independent of this process. This program never starts a second thread, so that no lock of
/// a library stays held.
pub fn fork(without: &[BorrowedFd<'_>], child: impl FnOnce()) -> io::Result<Pid> {
    // SAFETY: there is one thread, so the copy is whole.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => {
            for descriptor in without {
                // SAFETY: `child` cannot use them, because the caller has lent them here, and this process ends without
                // dropping any owner of them.
                unsafe { libc::close(descriptor.as_raw_fd()) };
            }
            child();
            // SAFETY: ends the process without exit handlers, which run only in the parent.
            unsafe { libc::_exit(0) }
        }
        pid => Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error),
    }
}

/// Removes all environment variables: several of them control libraries, such as the C library's resolver and the name
/// service modules.
pub fn clear_environment() {
    // SAFETY: there is one thread, and no pointer into the environment.
    unsafe { libc::clearenv() };
}

/// Closes all descriptors but the three standard ones. It comes before anything else opens one.
pub fn close_inherited() {
    // SAFETY: no object of this process owns a descriptor yet.
    let status =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST_INHERITED_FD, libc::c_uint::MAX, 0) };
    if status == 0 {
        return;
    }
    // Linux before 5.9 has no close_range(2).
    for number in open_descriptors().into_iter().filter(|&number| number >= FIRST_INHERITED_FD) {
        // SAFETY: as above. The descriptor of /proc/self/fd is closed already, so its number gives EBADF.
        unsafe { libc::close(number) };
    }
}

/// Returns the open descriptors. Without /proc, returns all numbers below the limit.
fn open_descriptors() -> Vec<RawFd> {
    match fs::read_dir("/proc/self/fd") {
        Ok(entries) => {
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
        }
        Err(_) => {
            let limit = getrlimit(Resource::Nofile).current.map_or(FDS_MAX, |n| n.min(FDS_MAX));
            (0..RawFd::try_from(limit).unwrap_or(RawFd::MAX)).collect()
        }
    }
}

/// Ends this process after some seconds, also during a wait. `None` revokes that.
pub fn end_after(time: Option<Duration>) {
    let seconds = time.map_or(0, |time| time.as_secs().clamp(1, 3600) as libc::c_uint);
    // SAFETY: the signal has no handler, and its default action ends the process.
    unsafe { libc::alarm(seconds) };
}

/// Returns the primary group of the user with this uid, from the name services.
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
