// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relays LDAP between a backend and a directory server, encrypted on the side of the server (RFC 4422, 3.7). Each
//! message has a length of four bytes, followed by that many bytes. `gss` encrypts, and `bind_exchange` makes the
//! context before.
//!
//! Each direction holds a bounded number of bytes, and reads no more until they are written. An error in either direction
//! ends the process, and with it the connection.

use crate::bind_exchange::MESSAGE_BYTES_MAX;
use crate::gss::ClientContext;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of one read of encrypted messages.
const READ_BYTES: usize = 128 << 10;
/// Bytes of the length of a message.
const HEAD_BYTES: usize = 4;

/// Bytes that wait until they can be written.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    written: usize,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Writes as much as the socket takes.
    fn write_to(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while !self.is_empty() {
            match rustix::io::write(socket, &self.bytes[self.written..]) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(()),
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.bytes.clear();
        self.written = 0;
        Ok(())
    }
}

/// Splits a stream into encrypted messages.
#[derive(Default)]
pub struct SealedFrames {
    bytes: Vec<u8>,
    start: usize,
}

impl SealedFrames {
    /// Adds received bytes.
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next whole message without its length. Fails for a length that this side did not offer.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let rest = &self.bytes[self.start..];
        let Some(head) = rest.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head);
        if length == 0 || length > MESSAGE_BYTES_MAX {
            return Err(io::Error::other(format!("encrypted message of {length} bytes")));
        }
        let end = HEAD_BYTES + length as usize;
        if rest.len() < end {
            return Ok(None);
        }
        let begin = self.start + HEAD_BYTES;
        self.start += end;
        Ok(Some(&self.bytes[begin..self.start]))
    }
}

/// A relay between two sockets.
pub struct SealRelay {
    context: ClientContext,
    /// Most bytes that are encrypted at once.
    bytes_max: usize,
    backend: OwnedFd,
    server: OwnedFd,
    to_server: Pending,
    to_backend: Pending,
    frames: SealedFrames,
    backend_ended: bool,
    server_ended: bool,
}

impl SealRelay {
    /// Makes a relay. Both sockets become non-blocking.
    pub fn new(
        (context, bytes_max): (ClientContext, usize),
        backend: OwnedFd,
        server: OwnedFd,
    ) -> io::Result<Self> {
        for socket in [&backend, &server] {
            rustix::io::ioctl_fionbio(socket, true)?;
        }
        Ok(Self {
            context,
            bytes_max: bytes_max.min(MESSAGE_BYTES_MAX as usize),
            backend,
            server,
            to_server: Pending::default(),
            to_backend: Pending::default(),
            frames: SealedFrames::default(),
            backend_ended: false,
            server_ended: false,
        })
    }

    /// Relays until one side ends, or until an error. The last bytes are written.
    pub fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if self.backend_ended && self.to_server.is_empty()
                || self.server_ended && self.to_backend.is_empty()
            {
                return Ok(());
            }
            let [backend, server] = self.wait()?;
            if backend.intersects(!PollFlags::OUT) && self.to_server.is_empty() {
                self.read_backend(&mut buffer)?;
            }
            if server.intersects(!PollFlags::OUT) && self.to_backend.is_empty() {
                self.read_server(&mut buffer)?;
            }
            self.to_server.write_to(self.server.as_fd())?;
            self.to_backend.write_to(self.backend.as_fd())?;
        }
    }

    /// Waits for a socket with something to do. A socket without it is left out, because its end would be reported again
    /// and again.
    fn wait(&self) -> io::Result<[PollFlags; 2]> {
        let wanted = |reads: bool, writes: bool| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, writes);
            flags
        };
        let (to_server, to_backend) = (!self.to_server.is_empty(), !self.to_backend.is_empty());
        let backend = wanted(!self.backend_ended && !to_server, to_backend);
        let reads_server = !self.server_ended && !self.backend_ended && !to_backend;
        let server = wanted(reads_server, to_server);
        let all = [(&self.backend, backend), (&self.server, server)];
        let mut polled: Vec<_> = all
            .iter()
            .filter(|(_, flags)| !flags.is_empty())
            .map(|(socket, flags)| PollFd::new(*socket, *flags))
            .collect();
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut found = polled.iter().map(PollFd::revents);
        Ok(all.map(|(_, flags)| match flags.is_empty() {
            true => PollFlags::empty(),
            false => found.next().unwrap_or(PollFlags::empty()),
        }))
    }

    fn read_backend(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let most = self.bytes_max.min(buffer.len());
        let bytes = match rustix::io::read(&self.backend, &mut buffer[..most]) {
            Ok(0) | Err(Errno::CONNRESET) => {
                self.backend_ended = true;
                return Ok(());
            }
            Ok(count) => &buffer[..count],
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let pending = &mut self.to_server.bytes;
        let wrapped = self.context.wrap(bytes, true, |message| {
            pending.extend_from_slice(&u32::try_from(message.len()).unwrap_or(0).to_be_bytes());
            pending.extend_from_slice(message);
        });
        wrapped.map_err(io::Error::other)
    }

    fn read_server(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        match rustix::io::read(&self.server, &mut *buffer) {
            Ok(0) | Err(Errno::CONNRESET) => self.server_ended = true,
            Ok(count) => self.frames.push(&buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (context, pending) = (&mut self.context, &mut self.to_backend.bytes);
        while let Some(message) = self.frames.next()? {
            let shown = context.unwrap(message, true, |bytes| pending.extend_from_slice(bytes));
            shown.map_err(io::Error::other)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_frames_are_whole_and_bounded() {
        let mut frames = SealedFrames::default();
        let stream = [&[0, 0, 0, 3][..], b"abc", &[0, 0, 0, 1], b"d", &[0, 0, 0, 2], b"e"].concat();
        let mut found = Vec::new();
        for byte in stream {
            frames.push(&[byte]);
            while let Some(message) = frames.next().unwrap() {
                found.push(message.to_vec());
            }
        }
        assert_eq!(found, [b"abc".to_vec(), b"d".to_vec()]);
        for length in [0, MESSAGE_BYTES_MAX + 1, u32::MAX] {
            let mut frames = SealedFrames::default();
            frames.push(&length.to_be_bytes());
            assert!(frames.next().is_err(), "{length}");
        }
        let mut frames = SealedFrames::default();
        frames.push(&MESSAGE_BYTES_MAX.to_be_bytes());
        assert_eq!(frames.next().unwrap(), None);
    }
}
