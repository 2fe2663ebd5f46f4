//! What the other end of a connection has not taken yet.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Whether there is anything. What was sent counts as this process's, descriptors in it too, until the other end
/// has received it or is gone; that it reads no more, or says more, is no sign of that (unix(7), SIOCOUTQ).
pub fn has_unread(socket: impl AsFd) -> io::Result<bool> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ, which is SIOCOUTQ for sockets, writes one int to where the pointer leads.
    match unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } {
        0 => Ok(bytes > 0),
        _ => Err(io::Error::last_os_error()),
    }
}
