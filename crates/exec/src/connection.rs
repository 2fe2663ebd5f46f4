//! The connection to the daemon.

use crate::signals::Signals;
use crate::system;
use crate::terminal::Terminal;
use alloc::vec::Vec;
use core::fmt;
use core::mem::MaybeUninit;
use core::time::Duration;
use roster_exec::wire::{
    ANSWER_BYTES_MAX, Answer, DESCRIPTORS, HEADER_BYTES, Malformed, encode_signal,
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

/// In which the daemon has to take what it is sent.
const SEND_TIME: Duration = Duration::from_secs(10);
/// How often a job in the background looks whether it is in the foreground.
const LOOK: Duration = Duration::from_millis(200);

/// What comes while a request is answered.
pub(crate) enum Event {
    /// From the daemon.
    Answer(Answer),
    /// From anybody.
    Signal(u32),
    /// Nothing, in the time that there was.
    Late,
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Nobody listens.
    Nobody,
    /// The mode or access list of the socket refuses this user, for now or for good.
    Refused,
    /// The daemon has closed the connection.
    Gone,
    /// The same, and whether it has told before that the command runs.
    GoneFrom { is_running: bool },
    /// What it says is none.
    Malformed(Malformed),
    /// An error of the system's.
    System(Errno),
}

impl From<Errno> for Broken {
    fn from(error: Errno) -> Self {
        match error {
            Errno::CONNRESET | Errno::PIPE => Self::Gone,
            error => Self::System(error),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => {
                f.write_str("no daemon listens. Start it: systemctl start roster-exec.socket")
            }
            Self::Refused => f.write_str(
                "permission denied: the socket refuses this user, by its mode or access list. The daemon refuses a user while \
                 too many of the user's connections hang",
            ),
            Self::Gone => f.write_str("the daemon has gone away"),
            Self::GoneFrom { is_running: true } => {
                f.write_str("the daemon has gone away; how the command ended is not known")
            }
            Self::GoneFrom { is_running: false } => {
                f.write_str("the daemon has gone away before it told that the command runs")
            }
            Self::Malformed(what) => write!(f, "the daemon says what it may not: {}", what.0),
            Self::System(error) => {
                write!(f, "{} (error {})", system::words(*error), error.raw_os_error())
            }
        }
    }
}

pub(crate) struct Connection {
    stream: OwnedFd,
    /// What has come of answers that were not looked at.
    held: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(path: &[u8]) -> Result<Self, Broken> {
        let address = SocketAddrUnix::new(path)?;
        let stream =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&stream, Timeout::Send, Some(SEND_TIME))?;
        connect(&stream, &address).map_err(|error| match error {
            Errno::NOENT | Errno::CONNREFUSED => Broken::Nobody,
            Errno::ACCESS => Broken::Refused,
            error => error.into(),
        })?;
        Ok(Self { stream, held: Vec::new() })
    }

    /// Sends a request, and with it our descriptors and the folder that we are in. Of these the terminals are replaced by
    /// the command's, if it has one.
    pub(crate) fn send(
        &mut self,
        request: &[u8],
        terminal: Option<&Terminal>,
    ) -> Result<(), Broken> {
        let folder = folder()?;
        let terminal = terminal.map(Terminal::open).transpose()?;
        let [stdin, stdout, stderr] = system::standard().map(|fd| match &terminal {
            Some(terminal) if isatty(fd) => terminal.as_fd(),
            _ => fd,
        });
        let fds = [stdin, stdout, stderr, folder.as_fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let parts = [IoSlice::new(request)];
        let sent =
            retry_on_intr(|| sendmsg(&self.stream, &parts, &mut control, SendFlags::NOSIGNAL))?;
        self.send_bytes(&request[sent..])
    }

    /// Passes a signal on to the command. Where the daemon is gone, its answer tells.
    pub(crate) fn pass_on(&mut self, signal: u32) -> Result<(), Broken> {
        match self.send_bytes(&encode_signal(signal)) {
            Err(Broken::Gone) => Ok(()),
            sent => sent,
        }
    }

    fn send_bytes(&self, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let sent = retry_on_intr(|| send(&self.stream, bytes, SendFlags::NOSIGNAL))?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// What comes next, of the daemon or of anybody who signals; until a time, if there is one.
    pub(crate) fn answer_or_signal(
        &mut self,
        signals: &mut Signals,
        mut terminal: Option<&mut Terminal>,
        until_ms: Option<u64>,
    ) -> Result<Event, Broken> {
        let mut has_come = [false; 2];
        loop {
            // What the command wrote comes before its end.
            if let Some(signal) = terminal.as_mut().and_then(|terminal| terminal.carry(has_come)) {
                return Ok(Event::Signal(signal));
            }
            if let Some(answer) = self.held_answer().map_err(Broken::Malformed)? {
                return Ok(Event::Answer(answer));
            }
            if let Some(signal) = signals.next()? {
                return Ok(Event::Signal(signal));
            }
            let awaited = terminal.as_ref().map_or([None; 2], |terminal| terminal.awaited());
            // An entry that waits for nothing stands for the stream again.
            let [own, typed] =
                awaited.map(|what| what.unwrap_or((self.stream.as_fd(), PollFlags::empty())));
            let mut fds = [
                PollFd::new(&self.stream, PollFlags::IN),
                PollFd::new(signals, PollFlags::IN),
                PollFd::from_borrowed_fd(own.0, own.1),
                PollFd::from_borrowed_fd(typed.0, typed.1),
            ];
            let left =
                until_ms.map(|until| Duration::from_millis(until.saturating_sub(system::now_ms())));
            let looks = terminal.as_ref().is_some_and(|terminal| terminal.waits_for_keys());
            let left = if looks { Some(left.unwrap_or(LOOK).min(LOOK)) } else { left };
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut fds, left.as_ref()) {
                Ok(0) if until_ms.is_some_and(|until| until <= system::now_ms()) || !looks => {
                    return Ok(Event::Late);
                }
                Ok(0) => {
                    if let Some(terminal) = terminal.as_deref_mut() {
                        terminal.go_on();
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

    /// An answer that has come already.
    fn held_answer(&mut self) -> Result<Option<Answer>, Malformed> {
        let Some((head, rest)) = self.held.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = Answer::length(*head)?;
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let answer = Answer::decode(*head, body)?;
        self.held.drain(..HEADER_BYTES + length);
        Ok(Some(answer))
    }

    fn read(&mut self) -> Result<(), Broken> {
        let mut buffer = [0; HEADER_BYTES + ANSWER_BYTES_MAX];
        match read(&self.stream, &mut buffer) {
            Ok(0) => Err(Broken::Gone),
            Ok(count) => {
                self.held.extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The folder that we are in, whether or not we may enter it any more.
fn folder() -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path| openat(CWD, path, flags, Mode::empty());
    open(".").or_else(|_| open("/proc/self/cwd"))
}
