// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection of `roster-exec` to the daemon: it sends requests and signals, and waits for replies. `main` decides
//! about them.

use crate::signals::PendingSignals;
use crate::syscalls;
use crate::terminal::Terminal;
use alloc::vec::Vec;
use core::fmt;
use core::mem::MaybeUninit;
use core::time::Duration;
use roster_exec::protocol::{
    CommandReply, DESCRIPTOR_COUNT, HEADER_BYTES, MalformedFrame, REPLY_BYTES_MAX, encode_signal,
};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, IoSlice, read, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, send, sendmsg, socket_with,
};
use rustix::termios::isatty;

/// Limit of the wait for the daemon to read.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a background job checks whether it is in the foreground.
const FOREGROUND_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Events while a request runs.
pub(crate) enum CommandEvent {
    /// A reply of the daemon.
    Reply(CommandReply),
    /// A signal to this process.
    Signal(u32),
    /// The time limit passed.
    TimedOut,
}

/// Reasons for a missing reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionError {
    /// No process accepts connections at the socket.
    NotListening,
    /// The mode or access list of the socket refuses this user.
    Refused,
    /// The daemon closed the connection before it reported the start of the command.
    Closed,
    /// The daemon closed the connection while the command ran.
    ClosedDuringRun,
    /// The daemon sent an invalid reply.
    Malformed(MalformedFrame),
    /// The system refused an operation.
    System(Errno),
}

/// An error of the system in words, without a code.
pub(crate) struct SystemError(pub(crate) Errno);

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (error {})", syscalls::describe_errno(self.0), self.0.raw_os_error())
    }
}

impl From<Errno> for ConnectionError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::CONNRESET | Errno::PIPE => Self::Closed,
            error => Self::System(error),
        }
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The unit does not start without a policy, and systemctl does not report that.
            Self::NotListening => f.write_str(
                "no daemon listens. Write /etc/roster/exec.toml, then run systemctl start roster-exec.socket. \
                 [RST-7091]",
            ),
            Self::Refused => f.write_str(
                "permission denied: the socket refuses this user. Correct the mode of the socket, or try again later. \
                 [RST-7092]",
            ),
            Self::Closed => f.write_str(
                "connection lost before the daemon reported a start. Check whether the command ran, then try again. \
                 [RST-7093]",
            ),
            Self::ClosedDuringRun => f.write_str(
                "connection lost while the command ran, so its status is unknown. Check the effect of the command. \
                 [RST-7094]",
            ),
            Self::Malformed(what) => write!(
                f,
                "protocol error: invalid reply from roster-rootwrap-daemon: {}. Install client and daemon of one \
                 version, and restart the daemon. [RST-7095]",
                what.0
            ),
            Self::System(error) => write!(f, "{}. [RST-7096]", SystemError(*error)),
        }
    }
}

pub(crate) struct DaemonConnection {
    stream: OwnedFd,
    /// Bytes of replies that are not decoded yet.
    buffered: Vec<u8>,
}

impl DaemonConnection {
    pub(crate) fn open(path: &[u8]) -> Result<Self, ConnectionError> {
        let address = SocketAddrUnix::new(path)?;
        let stream =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&stream, Timeout::Send, Some(SEND_TIMEOUT))?;
        connect(&stream, &address).map_err(|error| match error {
            Errno::NOENT | Errno::CONNREFUSED => ConnectionError::NotListening,
            Errno::ACCESS => ConnectionError::Refused,
            error => error.into(),
        })?;
        Ok(Self { stream, buffered: Vec::new() })
    }

    /// Sends a request with the descriptors 0 to 2 and the working directory. The terminal of the command replaces the
    /// caller's.
    pub(crate) fn send(
        &mut self,
        request: &[u8],
        terminal: Option<&Terminal>,
    ) -> Result<(), ConnectionError> {
        let folder = open_working_dir()?;
        let terminal = terminal.map(Terminal::open_command_end).transpose()?;
        let [stdin, stdout, stderr] = syscalls::standard_fds().map(|fd| match &terminal {
            Some(terminal) if isatty(fd) => terminal.as_fd(),
            _ => fd,
        });
        let fds = [stdin, stdout, stderr, folder.as_fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTOR_COUNT))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let parts = [IoSlice::new(request)];
        let sent =
            retry_on_intr(|| sendmsg(&self.stream, &parts, &mut control, SendFlags::NOSIGNAL))?;
        self.send_bytes(&request[sent..])
    }

    /// Forwards a signal to the command. If the daemon has ended, the next read reports that.
    pub(crate) fn forward_signal(&mut self, signal: u32) -> Result<(), ConnectionError> {
        match self.send_bytes(&encode_signal(signal)) {
            Err(ConnectionError::Closed) => Ok(()),
            sent => sent,
        }
    }

    fn send_bytes(&self, mut bytes: &[u8]) -> Result<(), ConnectionError> {
        while !bytes.is_empty() {
            let sent = retry_on_intr(|| send(&self.stream, bytes, SendFlags::NOSIGNAL))?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Waits for the next reply or signal, until a time if there is one.
    pub(crate) fn next_event(
        &mut self,
        signals: &mut PendingSignals,
        mut terminal: Option<&mut Terminal>,
        until_ms: Option<u64>,
    ) -> Result<CommandEvent, ConnectionError> {
        let mut has_come = [false; 2];
        loop {
            // The output of the command is shown before its end.
            if let Some(signal) = terminal.as_mut().and_then(|terminal| terminal.transfer(has_come))
            {
                return Ok(CommandEvent::Signal(signal));
            }
            if let Some(answer) = self.buffered_reply().map_err(ConnectionError::Malformed)? {
                return Ok(CommandEvent::Reply(answer));
            }
            if let Some(signal) = signals.next()? {
                return Ok(CommandEvent::Signal(signal));
            }
            let awaited = terminal.as_ref().map_or([None; 2], |terminal| terminal.poll_events());
            // An unused entry polls the stream without events.
            let [own, typed] =
                awaited.map(|what| what.unwrap_or((self.stream.as_fd(), PollFlags::empty())));
            let mut fds = [
                PollFd::new(&self.stream, PollFlags::IN),
                PollFd::new(signals, PollFlags::IN),
                PollFd::from_borrowed_fd(own.0, own.1),
                PollFd::from_borrowed_fd(typed.0, typed.1),
            ];
            let left = until_ms
                .map(|until| Duration::from_millis(until.saturating_sub(syscalls::now_ms())));
            let looks = terminal.as_ref().is_some_and(|terminal| terminal.waits_for_foreground());
            let left = if looks {
                Some(left.unwrap_or(FOREGROUND_CHECK_INTERVAL).min(FOREGROUND_CHECK_INTERVAL))
            } else {
                left
            };
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut fds, left.as_ref()) {
                Ok(0) if until_ms.is_some_and(|until| until <= syscalls::now_ms()) || !looks => {
                    return Ok(CommandEvent::TimedOut);
                }
                Ok(0) => {
                    if let Some(terminal) = terminal.as_deref_mut() {
                        terminal.resume();
                    }
                    has_come = [false; 2];
                    continue;
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [has_answer, _, own, typed] = fds.map(|fd| !fd.revents().is_empty());
            has_come = [own && awaited[0].is_some(), typed && awaited[1].is_some()];
            if has_answer {
                self.read()?;
            }
        }
    }

    /// Returns a reply that was received completely.
    fn buffered_reply(&mut self) -> Result<Option<CommandReply>, MalformedFrame> {
        let Some((head, rest)) = self.buffered.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = CommandReply::length(*head)?;
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let answer = CommandReply::decode(*head, body)?;
        self.buffered.drain(..HEADER_BYTES + length);
        Ok(Some(answer))
    }

    fn read(&mut self) -> Result<(), ConnectionError> {
        let mut buffer = [0; HEADER_BYTES + REPLY_BYTES_MAX];
        match read(&self.stream, &mut buffer) {
            Ok(0) => Err(ConnectionError::Closed),
            Ok(count) => {
                self.buffered.extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens the working directory, even if this user may no longer enter it.
fn open_working_dir() -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path| openat(CWD, path, flags, Mode::empty());
    open(".").or_else(|_| open("/proc/self/cwd"))
}
