// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-exec`: requests a command from the daemon, passes its own descriptors and signals on, and ends as the
//! command did.
//!
//! The program does not read the data of the command, and has no policy. It has no C library (see `entry_point`). Its
//! unsafe code is in `entry_point`, `mem_intrinsics`, `bump_allocator` and `syscalls`.

#![no_std]
#![no_main]

extern crate alloc;

mod bump_allocator;
mod connection;
mod entry_point;
mod mem_intrinsics;
mod signals;
mod syscalls;
mod terminal;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use connection::{CommandEvent, ConnectionError, DaemonConnection, SystemError};
use core::fmt::{self, Display, Write};
use core::panic::PanicInfo;
use roster_exec::args::{self, Invocation};
use roster_exec::protocol::{
    self, CommandEnd, CommandReply, DenyCode, MalformedFrame, encode_request,
};
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, retry_on_intr, write};
use signals::PendingSignals;
use terminal::Terminal;

const TIMED_OUT: u8 = 124;
const FAILED: u8 = 125;
const NOT_EXECUTED: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Time for which a busy daemon is asked again, and the pause between two attempts.
const BUSY_MS: u64 = 5_000;
const BUSY_PAUSE_MS: u64 = 20;
/// Wait for a silent daemon after a signal that terminates.
const TERMINATION_WAIT_MS: u64 = 5_000;
/// Size of the message at a panic.
const EXIT_MESSAGE_BYTES: usize = 512;

#[global_allocator]
static HEAP: bump_allocator::BumpAllocator = bump_allocator::BumpAllocator::new();

/// Returns the exit status.
fn main(words: &[&'static [u8]], variables: &[&'static [u8]]) -> u8 {
    signals::block_sigpipe();
    if syscalls::open_closed_fds().is_err() {
        let text = "descriptor 0, 1 or 2 is closed, and /dev/null cannot be opened in its place. Open the descriptors \
                    before the call. [RST-7098]";
        return fail(FAILED, &text);
    }
    let (run_as, socket, keeps_terminal, argv) = match args::parse(words.iter().skip(1).copied()) {
        Ok(Invocation::Run { run_as, socket, keeps_terminal, argv }) => {
            (run_as, socket, keeps_terminal, argv)
        }
        Ok(Invocation::Help) => return print(&args::help()),
        Ok(Invocation::Version) => {
            return print(&format!("{} {}\n", args::NAME, env!("CARGO_PKG_VERSION")));
        }
        Err(wrong) => {
            let text =
                format_args!("{wrong}. Run {} --help for the options. [RST-7099]", args::NAME);
            return fail(FAILED, &text);
        }
    };
    let socket = socket.unwrap_or(protocol::SOCKET.as_bytes());
    // A variable without a name and a value is dropped. The name may begin with `=`.
    let is_variable = |string: &&[u8]| string.iter().skip(1).any(|&byte| byte == b'=');
    let variables: Vec<&[u8]> = variables.iter().copied().filter(is_variable).collect();
    let request = encode_request(run_as.unwrap_or_default().as_bytes(), &argv, &variables);
    let Some(request) = request else {
        let text = "the command and its environment are too long. Shorten them: at most 65,536 strings each, 4 MiB. \
                    [RST-7100]";
        return fail(FAILED, &text);
    };
    let command = String::from_utf8_lossy(argv[0]);
    // A command of the caller's own user can read the caller's terminal anyway.
    let is_own = rustix::process::geteuid().is_root() && run_as.is_none();
    let terminal = if is_own || keeps_terminal { Ok(None) } else { Terminal::new() };
    let mut terminal = match terminal {
        Ok(terminal) => terminal,
        Err(error) => {
            return fail(
                FAILED,
                &format_args!(
                    "no terminal (pty) can be created: {}. Pass on the terminal of the caller with -t. [RST-7101]",
                    SystemError(error)
                ),
            );
        }
    };
    let answer = run_retrying_busy(socket, &request, terminal.as_mut());
    // The caller's terminal is restored before any message.
    drop(terminal);
    match answer {
        Ok(CommandReply::Ended(CommandEnd::Exited(status))) => status.to_le_bytes()[0],
        Ok(CommandReply::Ended(CommandEnd::Died(signal))) => signals::die_by_signal(signal),
        Ok(CommandReply::Ended(CommandEnd::TimedOut)) => {
            let text = "killed: the timeout of the rule expired. Raise timeout in /etc/roster/exec.toml if needed.";
            fail(TIMED_OUT, &format_args!("{command}: {text} [RST-7097]"))
        }
        Ok(CommandReply::Denied(why, words)) => {
            fail(exit_code(why), &format_args!("{command}: {words}"))
        }
        Ok(_) => fail(FAILED, &ConnectionError::Malformed(MalformedFrame("unexpected kind"))),
        Err(what) => fail(FAILED, &what),
    }
}

fn exit_code(why: DenyCode) -> u8 {
    match why {
        DenyCode::Refused | DenyCode::NotExecutable => NOT_EXECUTED,
        DenyCode::NotFound => NOT_FOUND,
        DenyCode::Busy | DenyCode::Failed => FAILED,
    }
}

/// Calls [`run`] until the daemon is not busy. A busy daemon has started nothing.
fn run_retrying_busy(
    socket: &[u8],
    request: &[u8],
    mut terminal: Option<&mut Terminal>,
) -> Result<CommandReply, String> {
    let told = |broken: ConnectionError| format!("{}: {broken}", String::from_utf8_lossy(socket));
    // From here on no signal is lost.
    let mut signals = PendingSignals::catch().map_err(|error| told(error.into()))?;
    let until_ms = syscalls::now_ms().saturating_add(BUSY_MS);
    loop {
        let answer = run(socket, request, &mut signals, terminal.as_deref_mut());
        let is_busy = matches!(
            answer,
            Ok(CommandReply::Denied(DenyCode::Busy, _)) | Err(ConnectionError::Refused)
        );
        if !is_busy || syscalls::now_ms() >= until_ms {
            return answer.map_err(told);
        }
        let next_ms = syscalls::now_ms().saturating_add(BUSY_PAUSE_MS);
        signals.wait_for_termination(next_ms).map_err(|error| told(error.into()))?;
        // The command has not started, so the signal ends this program.
        if let Some(signal) = signals.termination_signal() {
            return Ok(CommandReply::Ended(CommandEnd::Died(signal)));
        }
    }
}

/// Returns the last reply.
fn run(
    socket: &[u8],
    request: &[u8],
    signals: &mut PendingSignals,
    mut terminal: Option<&mut Terminal>,
) -> Result<CommandReply, ConnectionError> {
    let mut connection = DaemonConnection::open(socket)?;
    match connection.send(request, terminal.as_deref()) {
        // The daemon may have sent a reason before it closed the connection.
        Err(ConnectionError::Closed) => {}
        sent => sent?,
    }
    let (mut is_running, mut until_ms) = (false, None);
    loop {
        let until = until_ms.filter(|_| !is_running);
        match connection.next_event(signals, terminal.as_deref_mut(), until) {
            Ok(CommandEvent::Reply(CommandReply::Started(_))) => {
                is_running = true;
                with_terminal(&mut terminal, Terminal::resume);
            }
            Ok(CommandEvent::Reply(CommandReply::Stopped(signal))) => {
                with_terminal(&mut terminal, |terminal| {
                    terminal.drain_output();
                    terminal.restore_modes();
                });
                signals::stop_self(signal)?;
                with_terminal(&mut terminal, Terminal::resume);
                connection.forward_signal(signals::CONTINUE)?;
            }
            Ok(CommandEvent::Reply(last)) => {
                with_terminal(&mut terminal, Terminal::drain_output);
                return Ok(last);
            }
            Ok(CommandEvent::Signal(signal)) if signals::is_termination(signal) => {
                // A second signal ends the wait for a command that has not started.
                if until_ms.is_some() && !is_running {
                    return Ok(CommandReply::Ended(CommandEnd::Died(signal)));
                }
                until_ms = Some(syscalls::now_ms().saturating_add(TERMINATION_WAIT_MS));
                // If the command has not started, the daemon finds the signal when it starts.
                connection.forward_signal(signal)?;
            }
            Ok(CommandEvent::Signal(signal)) => {
                match signal {
                    signals::CONTINUE if is_running => {
                        with_terminal(&mut terminal, Terminal::resume);
                    }
                    signals::RESIZE => with_terminal(&mut terminal, |terminal| terminal.resize()),
                    _ => {}
                }
                connection.forward_signal(signal)?;
            }
            Ok(CommandEvent::TimedOut) => match signals.termination_signal() {
                Some(signal) if until_ms.is_some_and(|until| until <= syscalls::now_ms()) => {
                    return Ok(CommandReply::Ended(CommandEnd::Died(signal)));
                }
                _ => {}
            },
            Err(ConnectionError::Closed) if is_running => {
                return Err(ConnectionError::ClosedDuringRun);
            }
            Err(broken) => return Err(broken),
        }
    }
}

fn with_terminal(terminal: &mut Option<&mut Terminal>, change: impl FnOnce(&mut Terminal)) {
    if let Some(terminal) = terminal.as_deref_mut() {
        change(terminal);
    }
}

fn print(text: &str) -> u8 {
    let [_, stdout, _] = syscalls::standard_fds();
    match write_all(stdout, text.as_bytes()) {
        Ok(()) | Err(Errno::PIPE) => 0,
        Err(error) => {
            let text = format_args!("cannot write the output: {}. [RST-7090]", SystemError(error));
            fail(FAILED, &text)
        }
    }
}

fn fail(code: u8, what: &dyn Display) -> u8 {
    let [_, _, stderr] = syscalls::standard_fds();
    let _ = write_all(stderr, format!("{}: {what}\n", args::NAME).as_bytes());
    code
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = retry_on_intr(|| write(to, bytes))?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// A text of bounded length in a buffer on the stack.
struct ExitMessage {
    bytes: [u8; EXIT_MESSAGE_BYTES],
    length: usize,
}

impl Write for ExitMessage {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (to, from) in self.bytes[self.length..].iter_mut().zip(text.bytes()) {
            *to = from;
            self.length += 1;
        }
        Ok(())
    }
}

/// A panic. Without memory there is also none for the text.
#[panic_handler]
fn panic(what: &PanicInfo<'_>) -> ! {
    let mut words = ExitMessage { bytes: [0; EXIT_MESSAGE_BYTES], length: 0 };
    let _ = match HEAP.is_exhausted() {
        true => words.write_str("roster-exec: out of memory [RST-7102]\n"),
        false => writeln!(words, "roster-exec: internal error [RST-7103]: {what}"),
    };
    let [_, _, stderr] = syscalls::standard_fds();
    let _ = write_all(stderr, &words.bytes[..words.length]);
    entry_point::exit_process(FAILED)
}
