// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on a connection: a length of eight bytes, big-endian, and the content. A large message is read in pieces
//! and never stored as a whole, so a large length reserves no memory. `request` parses the content.

use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;

/// Size of one read and of the buffer.
pub const BUFFER_BYTES: usize = 64 << 10;

/// A message during its read.
#[derive(Debug)]
pub struct MessageReader<R> {
    from: R,
    /// Bytes that are not read yet.
    unread: u64,
    /// The buffer, which grows to the size of one read and is reused.
    buffer: Vec<u8>,
    /// Range of bytes in the buffer that are not consumed.
    unused: Range<usize>,
}

impl<R: Read> MessageReader<R> {
    /// Waits for the next message. `None`: the other side closed the connection between two messages.
    pub fn next(mut from: R) -> io::Result<Option<Self>> {
        let mut header = [0; 8];
        let mut read = 0;
        while read < header.len() {
            match read_once(&mut from, &mut header[read..])? {
                0 if read == 0 => return Ok(None),
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => read += count,
            }
        }
        let left = u64::from_be_bytes(header);
        Ok(Some(Self { from, unread: left, buffer: Vec::new(), unused: 0..0 }))
    }

    /// Returns the number of bytes that remain.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.unread + self.unused.len() as u64
    }

    /// Returns the source.
    pub fn source(&self) -> &R {
        &self.from
    }

    /// Returns bytes that were read and not consumed.
    #[must_use]
    pub fn buffered(&self) -> &[u8] {
        &self.buffer[self.unused.clone()]
    }

    /// Consumes bytes of the buffer.
    pub fn consume(&mut self, count: usize) {
        self.unused.start = (self.unused.start + count).min(self.unused.end);
    }

    /// Fills an empty buffer by at most one read. False: the message has ended.
    pub fn fill(&mut self) -> io::Result<bool> {
        if self.unused.is_empty() { self.read_more(BUFFER_BYTES) } else { Ok(true) }
    }

    /// Reads once behind the buffered bytes. False: the message has ended.
    pub fn fill_further(&mut self) -> io::Result<bool> {
        self.read_more(BUFFER_BYTES)
    }

    /// Reads a message of limited length completely, so that later calls do not wait. False: it is longer, and nothing
    /// was read.
    pub fn read_whole(&mut self, bytes_max: usize) -> io::Result<bool> {
        if self.remaining() > bytes_max as u64 {
            return Ok(false);
        }
        while self.read_more(bytes_max)? {}
        Ok(true)
    }

    fn read_more(&mut self, bytes_max: usize) -> io::Result<bool> {
        if self.unread == 0 {
            return Ok(false);
        }
        self.buffer.copy_within(self.unused.clone(), 0);
        self.unused = 0..self.unused.len();
        let end = self.unused.end;
        let wanted = usize::try_from(self.unread).unwrap_or(usize::MAX).min(bytes_max);
        if self.buffer.len() < end + wanted {
            self.buffer.resize(end + wanted, 0);
        }
        let read = read_once(&mut self.from, &mut self.buffer[end..end + wanted])?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.unused.end += read;
        self.unread -= read as u64;
        Ok(true)
    }

    /// Discards the rest.
    pub fn discard(&mut self) -> io::Result<()> {
        while self.fill()? {
            self.unused = 0..0;
        }
        Ok(())
    }
}

fn read_once(mut from: impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Sends a small message.
pub fn send(mut to: impl Write, payload: &[u8]) -> io::Result<()> {
    let mut bytes = (payload.len() as u64).to_be_bytes().to_vec();
    bytes.extend_from_slice(payload);
    to.write_all(&bytes)
}

/// Receives a message of at most so many bytes.
pub fn receive(from: impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut frame = MessageReader::next(from)?.ok_or(ErrorKind::UnexpectedEof)?;
    if !frame.read_whole(bytes_max)? {
        return Err(io::Error::new(ErrorKind::InvalidData, "the message is too long"));
    }
    Ok(frame.buffered().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_whole_or_in_parts_and_no_further() {
        let mut bytes = Vec::new();
        send(&mut bytes, b"hello").unwrap();
        send(&mut bytes, b"").unwrap();
        bytes.extend(u64::MAX.to_be_bytes());
        let mut from = &bytes[..];
        let mut frame = MessageReader::next(&mut from).unwrap().unwrap();
        assert!(frame.fill().unwrap());
        assert_eq!(frame.buffered(), b"hello");
        frame.consume(2);
        assert!(frame.read_whole(3).unwrap());
        assert_eq!((frame.buffered(), frame.remaining()), (&b"llo"[..], 3));
        frame.discard().unwrap();
        assert!(!frame.fill().unwrap());
        assert_eq!(receive(&mut from, 0).unwrap(), b"");
        assert!(receive(&mut from, 256).is_err());
        assert!(MessageReader::next(&mut from).unwrap().is_none());
        assert!(MessageReader::next(&b"\0\0"[..]).is_err());
    }
}
