// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input and output of one command, from its start to its end. One loop in one thread passes the input on, collects the
//! output, and waits. It never waits for one stream while another is ready. `output_buffer` stores the output.

use super::output_buffer::OutputBuffer;
use super::request::{BadRequest, CommandInput};
use crate::evaluate::AllowedCommand;
use crate::exec::{Executor, StdStreams};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

/// Limit of input that is read before the start. A command gets the input of a small message completely or not at all.
const BUFFERED_BYTES_MAX: usize = 256 << 10;
/// Size of the pipe for long input. With a large pipe the two processes switch less often.
const LARGE_PIPE_BYTES: usize = 1 << 20;
/// Limit of the wait for output after the end, if a child of the command has the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);

/// Limits of data, and the directory of buffers.
#[derive(Debug)]
pub struct TransferLimits {
    /// Limit of the input, and of each output stream.
    pub bytes_max: u64,
    /// The directory for output that is too large for memory.
    pub buffer_dir: PathBuf,
}

/// The end of a command.
#[derive(Debug)]
pub struct CommandOutput {
    /// The return code of Python's subprocess: negative after a signal.
    pub code: i32,
    /// The command's standard output.
    pub stdout: OutputBuffer,
    /// The command's standard error.
    pub stderr: OutputBuffer,
}

/// Reasons for which there is no output. A command that was started is killed.
#[derive(Debug)]
pub enum CommandError {
    /// The system refused the start.
    Start(io::Error),
    /// The input is incomplete or invalid.
    Input(BadRequest),
    /// The output could not be stored.
    Buffer(io::Error),
    /// The input or output exceeds the limit.
    TooMuch(u64),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "the command cannot be started: {error}"),
            Self::Input(bad) => write!(f, "{bad}"),
            Self::Buffer(error) => write!(f, "the command's output cannot be stored: {error}"),
            Self::TooMuch(bytes) => {
                write!(f, "the command reads or writes more than roster_data_max = {bytes} bytes")
            }
        }
    }
}

/// Runs a command.
pub fn run<R: Read + AsFd>(
    executor: &Executor,
    verdict: &AllowedCommand<'_>,
    input: &mut CommandInput<R>,
    bounds: &TransferLimits,
) -> Result<CommandOutput, CommandError> {
    let held = buffer_small_input(input, bounds)?;
    let start = || -> io::Result<CommandIo> {
        // Descriptors of the command are closed here after its start.
        let (stdin, ours) = io::pipe()?;
        let (stdout, stdout_theirs) = io::pipe()?;
        let (stderr, stderr_theirs) = io::pipe()?;
        let streams = StdStreams {
            stdin: stdin.as_fd(),
            stdout: stdout_theirs.as_fd(),
            stderr: stderr_theirs.as_fd(),
        };
        let child = executor.start(verdict, streams)?;
        let out = [Some(stdout), Some(stderr)];
        Ok(CommandIo {
            child,
            input_bytes: held.len() as u64,
            pending_input: held,
            written: 0,
            stdin: Some(ours),
            out,
        })
    };
    let mut running = start().map_err(CommandError::Start)?;
    let mut spools = [OutputBuffer::default(), OutputBuffer::default()];
    match running.pump(input, &mut spools, bounds) {
        Ok(code) => {
            let [stdout, stderr] = spools;
            Ok(CommandOutput { code, stdout, stderr })
        }
        Err(failure) => {
            // The kill precedes the end of the input, which the command could take for complete.
            let _ = running.child.kill();
            let _ = running.child.wait();
            Err(failure)
        }
    }
}

fn buffer_small_input<R: Read>(
    input: &mut CommandInput<R>,
    bounds: &TransferLimits,
) -> Result<Vec<u8>, CommandError> {
    let mut held = Vec::new();
    if let CommandInput::Some(stream) = input
        && stream
            .buffer_message(BUFFERED_BYTES_MAX)
            .map_err(|error| CommandError::Input(error.into()))?
    {
        while !stream.is_ended() {
            stream.read_piece(&mut held).map_err(CommandError::Input)?;
        }
        if held.len() as u64 > bounds.bytes_max {
            return Err(CommandError::TooMuch(bounds.bytes_max));
        }
    }
    Ok(held)
}

struct CommandIo {
    child: Child,
    /// Bytes of received input.
    input_bytes: u64,
    /// Received input. Bytes from `written` on are not passed on yet.
    pending_input: Vec<u8>,
    written: usize,
    stdin: Option<PipeWriter>,
    out: [Option<PipeReader>; 2],
}

/// Streams that are ready.
#[derive(Default)]
struct ReadyStreams {
    input: bool,
    out: [bool; 2],
    end: bool,
}

impl CommandIo {
    fn pump<R: Read + AsFd>(
        &mut self,
        input: &mut CommandInput<R>,
        spools: &mut [OutputBuffer; 2],
        bounds: &TransferLimits,
    ) -> Result<i32, CommandError> {
        let end = self.prepare(input).map_err(CommandError::Start)?;
        let mut ended: Option<(i32, Instant)> = None;
        loop {
            self.forward_input(input, bounds)?;
            let silent = self.out.iter().all(Option::is_none);
            if silent && (self.stdin.is_none() || ended.is_some()) {
                return match ended {
                    Some((code, _)) => Ok(code),
                    None => self.wait().map_err(CommandError::Start),
                };
            }
            let timeout = match ended {
                Some((code, until)) => match until.checked_duration_since(Instant::now()) {
                    Some(left) => Some(left),
                    None => return Ok(code),
                },
                None => None,
            };
            let ready = self.ready(input, ended.is_none().then_some(&end), timeout);
            let ready = ready.map_err(CommandError::Start)?;
            for (at, spool) in spools.iter_mut().enumerate() {
                let Some(pipe) = self.out[at].as_ref().filter(|_| ready.out[at]) else { continue };
                if spool.read_from(pipe, &bounds.buffer_dir).map_err(CommandError::Buffer)? == 0 {
                    self.out[at] = None;
                }
                if spool.bytes() > bounds.bytes_max {
                    return Err(CommandError::TooMuch(bounds.bytes_max));
                }
            }
            if ready.input {
                self.read(input, bounds)?;
            }
            if ready.end {
                let code = self.wait().map_err(CommandError::Start)?;
                ended = Some((code, Instant::now() + OUTPUT_GRACE));
            }
        }
    }

    /// Returns a descriptor that becomes readable at the end of the command.
    fn prepare<R: Read>(&mut self, input: &CommandInput<R>) -> io::Result<OwnedFd> {
        if let (Some(stdin), CommandInput::Some(stream)) = (&self.stdin, input) {
            rustix::io::ioctl_fionbio(stdin, true)?;
            if !stream.is_ended() {
                // If the system refuses this size, the pipe keeps its size.
                let _ = rustix::pipe::fcntl_setpipe_size(stdin, LARGE_PIPE_BYTES);
            }
        }
        // The process was not waited for, so its number stays reserved.
        Ok(pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?)
    }

    /// Passes received input on, and closes the pipe at the end of the input.
    fn forward_input<R: Read>(
        &mut self,
        input: &mut CommandInput<R>,
        bounds: &TransferLimits,
    ) -> Result<(), CommandError> {
        while self.stdin.is_some() {
            if self.has_pending_input() {
                self.write();
                // The command reads more slowly than input arrives.
                if self.has_pending_input() {
                    break;
                }
                continue;
            }
            match &*input {
                CommandInput::Some(stream) if !stream.is_ended() && stream.needs_read() => break,
                CommandInput::Some(stream) if !stream.is_ended() => self.read(input, bounds)?,
                _ => self.stdin = None,
            }
        }
        Ok(())
    }

    fn has_pending_input(&self) -> bool {
        self.stdin.is_some() && self.written < self.pending_input.len()
    }

    fn read<R: Read>(
        &mut self,
        input: &mut CommandInput<R>,
        bounds: &TransferLimits,
    ) -> Result<(), CommandError> {
        self.pending_input.clear();
        self.written = 0;
        if let CommandInput::Some(stream) = input {
            stream.read_piece(&mut self.pending_input).map_err(CommandError::Input)?;
        }
        self.input_bytes += self.pending_input.len() as u64;
        match self.input_bytes > bounds.bytes_max {
            true => Err(CommandError::TooMuch(bounds.bytes_max)),
            false => Ok(()),
        }
    }

    /// Writes pending input. A command that closed its input gets no more.
    fn write(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        match stdin.write(&self.pending_input[self.written..]) {
            Ok(count) => self.written += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.stdin = None,
        }
    }

    fn ready<R: Read + AsFd>(
        &self,
        input: &CommandInput<R>,
        end: Option<&OwnedFd>,
        timeout: Option<Duration>,
    ) -> io::Result<ReadyStreams> {
        let source = match input {
            CommandInput::Some(stream) if self.stdin.is_some() && stream.needs_read() => {
                Some(stream.source())
            }
            _ => None,
        };
        let source = source.filter(|_| !self.has_pending_input());
        let stdin = self.stdin.as_ref().filter(|_| self.has_pending_input());
        let wanted = [
            source.map(|source| PollFd::new(source, PollFlags::IN)),
            stdin.map(|stdin| PollFd::new(stdin, PollFlags::OUT)),
            self.out[0].as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)),
            self.out[1].as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)),
            end.map(|end| PollFd::new(end, PollFlags::IN)),
        ];
        let is_wanted = wanted.each_ref().map(Option::is_some);
        let mut fds: Vec<PollFd<'_>> = wanted.into_iter().flatten().collect();
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(ReadyStreams::default()),
            Err(error) => return Err(error.into()),
        }
        let mut found = fds.iter().map(|fd| !fd.revents().is_empty());
        let [input, _, stdout, stderr, end] =
            is_wanted.map(|is_wanted| is_wanted && found.next().unwrap_or_default());
        Ok(ReadyStreams { input, out: [stdout, stderr], end })
    }

    fn wait(&mut self) -> io::Result<i32> {
        let status = self.child.wait()?;
        Ok(status.code().or(status.signal().map(|signal| -signal)).unwrap_or_default())
    }
}
