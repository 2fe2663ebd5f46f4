// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends passwords between two roles. They go through a pipe with its read end in the message, not in the message
//! itself. dbus-daemon and the libraries of both ends copy and retain messages, and wipe nothing. The kernel owns a
//! pipe's pages and never swaps them. A read removes the data, and nothing remains when both ends are closed.
//! `interfaces` has the calls that carry the pipe.
//!
//! All data fits into the pipe and is written before the descriptor is sent. The reader therefore never waits.

use roster_secret::Secret;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes in a pipe: the capacity of a pipe of the kernel's default size.
pub const BYTES_MAX: usize = 64 << 10;
/// Secrets in one pipe.
const SECRETS_MAX: usize = 2;
/// Bytes of a length.
const LENGTH_BYTES: usize = 4;

/// Makes a pipe with these secrets.
///
/// # Errors
///
/// They are too many or too long, or the system cannot create a pipe.
pub fn send(secrets: &[&[u8]]) -> io::Result<OwnedFd> {
    let bytes: usize = secrets.iter().map(|secret| LENGTH_BYTES + secret.len()).sum();
    if secrets.len() > SECRETS_MAX || bytes > BYTES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    for secret in secrets {
        let length = u32::try_from(secret.len()).unwrap_or(u32::MAX).to_le_bytes();
        write(&writer, &length)?;
        write(&writer, secret)?;
    }
    Ok(reader)
}

fn write(writer: &OwnedFd, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match rustix::io::write(writer, rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Reads the secrets from a pipe of [`send`], each into separate memory.
///
/// # Errors
///
/// The descriptor is not such a pipe, or is incomplete.
pub fn receive(pipe: impl AsFd) -> io::Result<Vec<Secret>> {
    // A sender could hold the write end open without data.
    rustix::io::ioctl_fionbio(&pipe, true)?;
    let mut secrets = Vec::new();
    loop {
        let mut length = [0; LENGTH_BYTES];
        match read(&pipe, &mut length)? {
            0 => return Ok(secrets),
            LENGTH_BYTES => {}
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        let length = u32::from_le_bytes(length) as usize;
        if secrets.len() == SECRETS_MAX || length > BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut secret = Secret::with_capacity(length).ok_or(io::ErrorKind::OutOfMemory)?;
        let room = secret.spare_mut().get_mut(..length).ok_or(io::ErrorKind::OutOfMemory)?;
        if read(&pipe, room)? < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        secret.advance(length);
        secrets.push(secret);
    }
}

/// Fills `room` with the available data. Returns the number of bytes.
fn read(pipe: impl AsFd, room: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < room.len() {
        match rustix::io::read(&pipe, &mut room[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    fn arrives(secrets: &[&[u8]]) -> io::Result<Vec<Vec<u8>>> {
        let received = receive(send(secrets)?)?;
        Ok(received.iter().map(|secret| secret.as_bytes().to_vec()).collect())
    }

    #[test]
    fn what_is_sent_arrives_once() {
        let longest = vec![b'x'; BYTES_MAX - LENGTH_BYTES];
        for secrets in [&[][..], &[&b"one"[..]], &[b"one", b""], &[&longest]] {
            assert_eq!(arrives(secrets).unwrap(), secrets);
        }
        let pipe = send(&[b"one"]).unwrap();
        assert_eq!(receive(&pipe).unwrap().len(), 1);
        assert_eq!(receive(&pipe).unwrap().len(), 0);
    }

    #[test]
    fn too_much_is_refused() {
        assert!(send(&[&vec![b'x'; BYTES_MAX]]).is_err());
        assert!(send(&[b"one", b"two", b"three"]).is_err());
    }

    #[test]
    fn a_pipe_of_somebody_elses_is_an_error_and_keeps_nobody_waiting() {
        let cases: [&[u8]; 4] = [b"\x05\0\0\0four", b"\x01\0", b"\xff\xff\xff\xff", b"\0\0\0\0x"];
        for bytes in cases {
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            File::from(writer).write_all(bytes).unwrap();
            assert!(receive(reader).is_err(), "{}", bytes.escape_ascii());
        }
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(receive(reader).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        File::from(writer).write_all(&[0; 12]).unwrap();
        assert!(receive(reader).is_err());
    }
}
