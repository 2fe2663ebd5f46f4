// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection to a socket of the daemon, with a deadline for all operations. Failures have no details, because a
//! caller inside another program cannot act on them. The frames are those of `roster-wire`.
#![forbid(unsafe_code)]

use crate::syscalls::{self, Descriptor};

/// Maximum pause between two attempts to connect while the responder's queue is full. poll(2) cannot wait for that on
/// an unconnected socket.
const RETRY_PAUSE_MS_MAX: u64 = 50;

/// A socket with a deadline. Its functions return `None` after any failure.
pub struct UnixClient {
    socket: Descriptor,
    deadline_ms: u64,
}

impl UnixClient {
    /// Creates an unconnected socket with a deadline in `ms` milliseconds.
    #[must_use]
    pub fn new(ms: u64) -> Option<Self> {
        let until_ms = syscalls::exact_clock_ms().saturating_add(ms);
        Some(Self { socket: syscalls::socket().ok()?, deadline_ms: until_ms })
    }

    /// Returns the uid of the process that listens at the other end.
    #[must_use]
    pub fn peer_uid(&self) -> Option<u32> {
        syscalls::peer_uid(&self.socket).ok()
    }

    /// Connects to the socket at that path.
    pub fn connect(&self, path: &[u8]) -> Option<()> {
        let mut pause_ms = 1;
        loop {
            match syscalls::connect(&self.socket, path) {
                Ok(()) | Err(libc::EISCONN) => return Some(()),
                Err(libc::EINTR) => self.pause(0)?,
                Err(libc::EAGAIN) => {
                    self.pause(pause_ms)?;
                    pause_ms = RETRY_PAUSE_MS_MAX.min(pause_ms.wrapping_mul(2));
                }
                Err(_) => return None,
            }
        }
    }

    /// Sends all bytes.
    pub fn send(&self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            match syscalls::send(&self.socket, bytes) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(libc::EINTR) => self.pause(0)?,
                Err(libc::EAGAIN) => self.wait(libc::POLLOUT)?,
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// Reads until `place` is full.
    #[inline(never)]
    pub fn receive(&self, mut place: &mut [u8]) -> Option<()> {
        while !place.is_empty() {
            match syscalls::read(&self.socket, place) {
                // The peer closed the connection before the last byte.
                Ok(0) => return None,
                Ok(read) => place = place.get_mut(read..).unwrap_or_default(),
                Err(libc::EINTR) => self.pause(0)?,
                Err(libc::EAGAIN) => self.wait(libc::POLLIN)?,
                Err(_) => return None,
            }
        }
        Some(())
    }

    fn wait(&self, events: i16) -> Option<()> {
        loop {
            match syscalls::poll(Some(&self.socket), events, self.remaining_ms()?) {
                Ok(true) => return Some(()),
                Ok(false) | Err(libc::EINTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits for `ms` milliseconds, or until a signal arrives.
    fn pause(&self, ms: u64) -> Option<()> {
        let ms = ms.min(self.remaining_ms()?);
        if ms > 0 {
            let _ = syscalls::poll(None, 0, ms);
        }
        Some(())
    }

    /// Returns the time until the deadline; `None` after it.
    fn remaining_ms(&self) -> Option<u64> {
        let left = self.deadline_ms.saturating_sub(syscalls::exact_clock_ms());
        (left > 0).then_some(left)
    }
}
