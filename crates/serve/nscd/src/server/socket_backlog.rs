// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unreceived data of a connection.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Returns whether the client has unreceived data. The kernel charges sent data, including descriptors, to this process
/// until the client receives it or disconnects. A shutdown or further data from the client does not show that (unix(7),
/// SIOCOUTQ).
pub fn has_unread(socket: impl AsFd) -> io::Result<bool> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ, which is SIOCOUTQ for sockets, writes one int to the location of the pointer.
    match unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } {
        0 => Ok(bytes > 0),
        _ => Err(io::Error::last_os_error()),
    }
}
