//! Passwords on their way between two roles. They go through a pipe whose reading end is in the
//! message, and not in the message itself: that is copied and kept by dbus-daemon and both ends'
//! libraries, none of which wipes anything. A pipe's pages are the kernel's own and never swapped, who
//! reads them is the last to do so, and nothing is left when both ends are closed.
//!
//! All is written before the descriptor is sent, and has room in the pipe; who reads never waits.

use roster_secret::Secret;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes that a pipe may hold: all that a pipe of the kernel's usual size has room for.
pub const BYTES_MAX: usize = 64 << 10;
/// Secrets in one pipe.
const SECRETS_MAX: usize = 2;
/// Bytes of a length.
const LENGTH_BYTES: usize = 4;

/// A pipe with these in it.
///
/// # Errors
///
/// They are too many or too long, or the system has no more pipes.
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

/// What is in a pipe of [`send`]'s, each secret in memory of its own.
///
/// # Errors
///
/// It is none, or is not filled.
pub fn receive(pipe: impl AsFd) -> io::Result<Vec<Secret>> {
    // Whoever sent it might hold the writing end and say nothing.
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
        let mut secret = Secret::with_room(length).ok_or(io::ErrorKind::OutOfMemory)?;
        let room = secret.free_mut().get_mut(..length).ok_or(io::ErrorKind::OutOfMemory)?;
        if read(&pipe, room)? < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        secret.advance(length);
        secrets.push(secret);
    }
}

/// Fills `room` as far as there is something to fill it with; gives how far.
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
