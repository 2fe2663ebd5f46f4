//! A connection to one of the daemon's sockets, with a deadline over all of it. None is ever the whole
//! answer to what went wrong: a caller in somebody else's program cannot help it.
#![forbid(unsafe_code)]

use crate::system::{self, Descriptor};

/// Between two tries to connect while the responder has more connections waiting than fit. A socket
/// that is not connected cannot be polled for that.
const PAUSE_MS_MAX: u64 = 50;

/// A socket, and until when to bother with it. `None` of its functions is that there is no answer.
pub struct Connection {
    socket: Descriptor,
    until_ms: u64,
}

impl Connection {
    /// A socket that is connected to nothing yet, for so long.
    #[must_use]
    pub fn new(ms: u64) -> Option<Self> {
        let until_ms = system::exact_clock_ms().saturating_add(ms);
        Some(Self { socket: system::socket().ok()?, until_ms })
    }

    /// Who listens at the other end.
    #[must_use]
    pub fn peer_user(&self) -> Option<u32> {
        system::peer_user(&self.socket).ok()
    }

    /// Connects to the socket at that path.
    pub fn connect(&self, path: &[u8]) -> Option<()> {
        let mut pause_ms = 1;
        loop {
            match system::connect(&self.socket, path) {
                Ok(()) | Err(libc::EISCONN) => return Some(()),
                Err(libc::EINTR) => self.pause(0)?,
                Err(libc::EAGAIN) => {
                    self.pause(pause_ms)?;
                    pause_ms = PAUSE_MS_MAX.min(pause_ms.wrapping_mul(2));
                }
                Err(_) => return None,
            }
        }
    }

    /// Sends all of it.
    pub fn send(&self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            match system::send(&self.socket, bytes) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(libc::EINTR) => self.pause(0)?,
                Err(libc::EAGAIN) => self.wait(libc::POLLOUT)?,
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// Fills all of `place`.
    #[inline(never)]
    pub fn receive(&self, mut place: &mut [u8]) -> Option<()> {
        while !place.is_empty() {
            match system::read(&self.socket, place) {
                // Closed before all was said.
                Ok(0) => return None,
                Ok(read) => place = place.get_mut(read..).unwrap_or_default(),
                Err(libc::EINTR) => self.pause(0)?,
                Err(libc::EAGAIN) => self.wait(libc::POLLIN)?,
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// Waits for an event.
    fn wait(&self, events: i16) -> Option<()> {
        loop {
            match system::poll(Some(&self.socket), events, self.left_ms()?) {
                Ok(true) => return Some(()),
                Ok(false) | Err(libc::EINTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits for so long, or less when a signal comes.
    fn pause(&self, ms: u64) -> Option<()> {
        let ms = ms.min(self.left_ms()?);
        if ms > 0 {
            let _ = system::poll(None, 0, ms);
        }
        Some(())
    }

    /// What is left of the time; none when nothing is.
    fn left_ms(&self) -> Option<u64> {
        let left = self.until_ms.saturating_sub(system::exact_clock_ms());
        (left > 0).then_some(left)
    }
}
