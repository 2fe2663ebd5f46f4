//! The connection to the daemon.

use crate::signals::Signals;
use roster_exec::wire::{ANSWER_BYTES_MAX, Answer, DESCRIPTORS, HEADER_BYTES, encode_signal};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, sendmsg, socket_with,
};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// In which the daemon has to take what it is sent.
const SEND_TIME: Duration = Duration::from_secs(10);

/// What comes while a request is answered.
pub(crate) enum Event {
    /// From the daemon.
    Answer(Answer),
    /// From anybody.
    Signal(u32),
}

pub(crate) struct Connection {
    stream: UnixStream,
    /// What has come of answers that were not looked at.
    held: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(SEND_TIME))?;
        connect(&socket, &address)?;
        Ok(Self { stream: socket.into(), held: Vec::new() })
    }

    /// Sends a request, and with it our descriptors and the folder that we are in.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        let folder = folder()?;
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let fds = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), folder.as_fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::NOSIGNAL;
        let sent = sendmsg(&self.stream, &[IoSlice::new(request)], &mut control, flags)?;
        self.stream.write_all(&request[sent..])
    }

    /// Passes a signal on to the command. Where the daemon is gone, its answer tells.
    pub(crate) fn pass_on(&mut self, signal: u32) -> io::Result<()> {
        match self.stream.write_all(&encode_signal(signal)) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    /// What comes next, of the daemon or of anybody who signals. An end without an answer is an
    /// `UnexpectedEof`.
    pub(crate) fn answer_or_signal(&mut self, signals: &mut Signals) -> io::Result<Event> {
        loop {
            if let Some(answer) = self.held_answer()? {
                return Ok(Event::Answer(answer));
            }
            if let Some(signal) = signals.next()? {
                return Ok(Event::Signal(signal));
            }
            let mut fds =
                [PollFd::new(&self.stream, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [has_come, _] = fds.map(|fd| !fd.revents().is_empty());
            if has_come {
                self.read()?;
            }
        }
    }

    /// An answer that has come already.
    fn held_answer(&mut self) -> io::Result<Option<Answer>> {
        let invalid = |error| io::Error::new(ErrorKind::InvalidData, error);
        let Some((head, rest)) = self.held.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = Answer::length(*head).map_err(invalid)?;
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let answer = Answer::decode(*head, body).map_err(invalid)?;
        self.held.drain(..HEADER_BYTES + length);
        Ok(Some(answer))
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; HEADER_BYTES + ANSWER_BYTES_MAX];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.held.extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                Err(ErrorKind::UnexpectedEof.into())
            }
            Err(error) => Err(error),
        }
    }
}

/// The folder that we are in, whether or not we may enter it any more.
fn folder() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path| openat(CWD, path, flags, Mode::empty());
    Ok(open(".").or_else(|_| open("/proc/self/cwd"))?)
}
