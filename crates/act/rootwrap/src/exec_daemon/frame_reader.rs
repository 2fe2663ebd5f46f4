// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving side of a connection: it collects bytes and descriptors into frames. Time and size of a frame are
//! limited. `connection` handles the requests.

use roster_exec::protocol::{
    CommandRequest, DESCRIPTOR_COUNT, HEADER_BYTES, MalformedFrame, SIGNAL_FRAME_BYTES,
    decode_signal,
};
use roster_fd_passing::deferred_close::{BoundedClose, limit_wait};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use rustix::process::Signal;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Limit between the first byte of a request and its last.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of signals that arrive between two commands.
const LATE_SIGNALS_MAX: usize = 64;
/// Size of one read.
const PIECE_BYTES: usize = 16 << 10;

/// Signals that cancel a command.
const TERMINATING: [Signal; 5] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::KILL];

/// The receiving side of a connection.
pub(super) struct FrameReader<'s> {
    stream: &'s UnixStream,
    buffered: Vec<u8>,
    fds: BoundedClose<Vec<OwnedFd>>,
    /// Signals since the last request.
    late_signals: usize,
}

/// Descriptors 0, 1 and 2 of the command, and its working directory.
pub(super) type CommandFds = [OwnedFd; DESCRIPTOR_COUNT];

/// A request with the descriptors for its command.
pub(super) struct ReceivedRequest {
    pub(super) request: CommandRequest,
    pub(super) fds: BoundedClose<CommandFds>,
}

/// The result of one read.
pub(super) enum ReadOutcome {
    Bytes,
    Nothing,
    End,
}

impl<'s> FrameReader<'s> {
    pub(super) fn new(stream: &'s UnixStream) -> Self {
        Self { stream, buffered: Vec::new(), fds: BoundedClose::new(Vec::new()), late_signals: 0 }
    }

    pub(super) fn stream(&self) -> &'s UnixStream {
        self.stream
    }

    /// Returns the next request, which has to begin within a time. `None`: the client closed the connection, or sent
    /// nothing. `reserve` returns false if there is no memory for so many bytes.
    pub(super) fn next_request(
        &mut self,
        begins_in: Duration,
        mut reserve: impl FnMut(usize) -> bool,
    ) -> io::Result<Option<ReceivedRequest>> {
        self.drop_late_signals()?;
        let mut until = Instant::now() + begins_in;
        let mut has_begun = false;
        loop {
            if !self.buffered.is_empty() && !has_begun {
                (until, has_begun) = (Instant::now() + REQUEST_TIMEOUT, true);
            }
            if let Some(end) = self.end_of_request()? {
                if self.buffered.len() >= end {
                    return self.take_request(end).map(Some);
                }
                if end > self.buffered.capacity() {
                    if !reserve(end) {
                        return Err(ErrorKind::OutOfMemory.into());
                    }
                    self.buffered.reserve_exact(end - self.buffered.len());
                }
            }
            // Most often the request of a client is already there.
            match self.read()? {
                // The time limit also holds for a client that sends without a pause.
                ReadOutcome::Bytes if Instant::now() >= until => return Ok(None),
                ReadOutcome::Bytes => self.drop_late_signals()?,
                ReadOutcome::End => return Ok(None),
                ReadOutcome::Nothing if self.is_readable_until(until)? => {}
                ReadOutcome::Nothing => return Ok(None),
            }
        }
    }

    /// Returns true if the next frame is a signal, possibly incomplete.
    fn is_signal(&self) -> bool {
        self.buffered.first() == Some(&b'K')
    }

    /// Returns the end of the request in the buffer.
    fn end_of_request(&self) -> io::Result<Option<usize>> {
        if self.is_signal() {
            return Ok(None);
        }
        let Some(head) = self.buffered.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        Ok(Some(HEADER_BYTES + CommandRequest::length(*head).map_err(invalid)?))
    }

    fn take_request(&mut self, end: usize) -> io::Result<ReceivedRequest> {
        let request = CommandRequest::decode(&self.buffered[HEADER_BYTES..end]).map_err(invalid)?;
        let fds =
            self.fds.take_value().try_into().map(BoundedClose::new).map_err(BoundedClose::new);
        let fds =
            fds.map_err(|_| invalid(MalformedFrame("the number of descriptors is not four")))?;
        self.buffered.drain(..end);
        self.late_signals = 0;
        if self.buffered.capacity() > 2 * PIECE_BYTES {
            self.buffered.shrink_to(PIECE_BYTES);
        }
        Ok(ReceivedRequest { request, fds })
    }

    /// Drops signals for a command that had ended before they arrived.
    fn drop_late_signals(&mut self) -> io::Result<()> {
        while self.is_signal() && self.next_signal()?.is_some() {
            self.late_signals += 1;
            if self.late_signals > LATE_SIGNALS_MAX {
                return Err(invalid(MalformedFrame("too many signals without a command")));
            }
        }
        Ok(())
    }

    /// Returns the next signal for the running command.
    pub(super) fn next_signal(&mut self) -> io::Result<Option<u32>> {
        let Some(frame) = self.buffered.first_chunk::<SIGNAL_FRAME_BYTES>() else {
            return Ok(None);
        };
        let signal = decode_signal(*frame).map_err(invalid)?;
        self.buffered.drain(..SIGNAL_FRAME_BYTES);
        Ok(Some(signal))
    }

    /// Reads everything that is there before a command starts. An error: the client has closed the connection, or
    /// violated the protocol.
    pub(super) fn read_all(&mut self) -> io::Result<()> {
        while !self.is_unexpected() && self.buffered.len() < PIECE_BYTES {
            match self.read()? {
                ReadOutcome::Bytes => {}
                ReadOutcome::Nothing => return Ok(()),
                ReadOutcome::End => return Err(ErrorKind::ConnectionAborted.into()),
            }
        }
        Err(ErrorKind::InvalidData.into())
    }

    /// Returns the first received signal that cancels the command.
    pub(super) fn termination_signal(&self) -> Option<u32> {
        let frames = self.buffered.chunks_exact(SIGNAL_FRAME_BYTES);
        let mut signals = frames.filter_map(|frame| decode_signal(frame.try_into().ok()?).ok());
        signals
            .find(|signal| TERMINATING.iter().any(|end| u32::try_from(end.as_raw()) == Ok(*signal)))
    }

    /// Returns true if the client sent other frames than signals.
    pub(super) fn is_unexpected(&self) -> bool {
        !self.fds.is_empty() || self.buffered.first().is_some_and(|&kind| kind != b'K')
    }

    fn is_readable_until(&self, until: Instant) -> io::Result<bool> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(self.stream, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) => Ok(false),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the received data without a wait.
    pub(super) fn read(&mut self) -> io::Result<ReadOutcome> {
        let mut piece = [0; PIECE_BYTES];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTOR_COUNT))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        // The kernel closes descriptors that exceed the space.
        let came = limit_wait(|| {
            let mut pieces = [IoSliceMut::new(&mut piece)];
            recvmsg(self.stream.as_fd(), &mut pieces, &mut control, flags)
        });
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        match came {
            Ok(came) if came.bytes == 0 => Ok(ReadOutcome::End),
            // The client sent too many descriptors, or this process has no free ones.
            Ok(came)
                if came.flags.contains(ReturnFlags::CTRUNC)
                    || self.fds.len() > DESCRIPTOR_COUNT =>
            {
                Err(invalid(MalformedFrame("the number of descriptors is not four")))
            }
            Ok(came) => {
                self.buffered.extend_from_slice(&piece[..came.bytes]);
                Ok(ReadOutcome::Bytes)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(ReadOutcome::Nothing),
            Err(rustix::io::Errno::CONNRESET) => Ok(ReadOutcome::End),
            Err(error) => Err(error.into()),
        }
    }
}

fn invalid(malformed: MalformedFrame) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_exec::protocol::encode_signal;
    use roster_system_tests::wait::SOON;
    use std::io::Write;

    fn request(bytes: &[u8], begins_in: Duration) -> io::Result<Option<ReceivedRequest>> {
        let (mut client, stream) = UnixStream::pair().unwrap();
        client.write_all(bytes).unwrap();
        FrameReader::new(&stream).next_request(begins_in, |_| true)
    }

    #[test]
    fn incoming_many_late_signals_end_connection() {
        let signals = |count| encode_signal(15).repeat(count);
        assert!(
            request(&signals(LATE_SIGNALS_MAX), Duration::ZERO).is_ok_and(|came| came.is_none())
        );
        assert!(request(&signals(LATE_SIGNALS_MAX + 1), SOON).is_err());
    }

    #[test]
    fn incoming_signal_in_parts_is_one() {
        let (mut client, stream) = UnixStream::pair().unwrap();
        let mut incoming = FrameReader::new(&stream);
        for part in encode_signal(15).chunks(9) {
            client.write_all(part).unwrap();
            assert!(incoming.next_request(Duration::ZERO, |_| true).unwrap().is_none());
        }
        assert!(incoming.buffered.is_empty());
    }
}
