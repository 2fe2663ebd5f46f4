//! `roster-exec`: asks the daemon to run a command, hands it our descriptors, passes signals on, and
//! ends as the command did.
//!
//! Reads and writes none of the command's data, and knows no policy. Begins and ends by itself, without a C library
//! (`start.rs` says why): what that takes of unsafe code is in `start`, `memory`, `heap` and `system`, and nowhere else.

#![no_std]
#![no_main]

extern crate alloc;

mod connection;
mod heap;
mod memory;
mod signals;
mod start;
mod system;
mod terminal;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use connection::{Broken, Connection, Event};
use core::fmt::{self, Display, Write};
use core::panic::PanicInfo;
use roster_exec::options::{self, Call};
use roster_exec::wire::{self, Answer, End, Why, encode_request};
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, retry_on_intr, write};
use signals::Signals;
use terminal::Terminal;

const TIME_OVER: u8 = 124;
const FAILED: u8 = 125;
const NOT_EXECUTED: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How long a daemon is asked again that has no place, and how long after each time.
const BUSY_MS: u64 = 5_000;
const BUSY_PAUSE_MS: u64 = 20;
/// How long a daemon that says nothing is waited for by whom somebody has told to end.
const END_MS: u64 = 5_000;
/// Of what is said of an error of this program's.
const LAST_WORDS_BYTES: usize = 512;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

/// The status to end with.
fn main(words: &[&'static [u8]], variables: &[&'static [u8]]) -> u8 {
    signals::outlive_pipes();
    if system::open_closed().is_err() {
        return fail(FAILED, &"0, 1 or 2 is closed, and /dev/null cannot be opened in its place");
    }
    let (run_as, socket, keeps_terminal, argv) = match options::parse(words.iter().skip(1).copied())
    {
        Ok(Call::Run { run_as, socket, keeps_terminal, argv }) => {
            (run_as, socket, keeps_terminal, argv)
        }
        Ok(Call::Help) => return print(&options::help()),
        Ok(Call::Version) => {
            return print(&format!("{} {}\n", options::NAME, env!("CARGO_PKG_VERSION")));
        }
        Err(wrong) => return fail(FAILED, &format_args!("{wrong}; see {} --help", options::NAME)),
    };
    let socket = socket.unwrap_or(wire::SOCKET.as_bytes());
    // What has no name and no value is none; a name may begin with the sign.
    let is_variable = |string: &&[u8]| string.iter().skip(1).any(|&byte| byte == b'=');
    let variables: Vec<&[u8]> = variables.iter().copied().filter(is_variable).collect();
    let request = encode_request(run_as.unwrap_or_default().as_bytes(), &argv, &variables);
    let Some(request) = request else {
        return fail(FAILED, &"the command and its environment are too long");
    };
    let command = String::from_utf8_lossy(argv[0]);
    // A command of the caller's own user may read the caller's terminal anyway.
    let is_own = rustix::process::geteuid().is_root() && run_as.is_none();
    let terminal = if is_own || keeps_terminal { Ok(None) } else { Terminal::new() };
    let mut terminal = match terminal {
        Ok(terminal) => terminal,
        Err(error) => {
            return fail(
                FAILED,
                &format_args!(
                    "no terminal (pty) can be made: {}. -t hands on the caller's own",
                    Broken::System(error)
                ),
            );
        }
    };
    let answer = run_when_there_is_place(socket, &request, terminal.as_mut());
    // It is the caller's again before anything is said.
    drop(terminal);
    match answer {
        Ok(Answer::Ended(End::Exited(status))) => status.to_le_bytes()[0],
        Ok(Answer::Ended(End::Died(signal))) => signals::die_of(signal),
        Ok(Answer::Ended(End::TimeOver)) => {
            fail(TIME_OVER, &format_args!("{command}: its time was over"))
        }
        Ok(Answer::Denied(why, words)) => fail(code_of(why), &format_args!("{command}: {words}")),
        Ok(_) => fail(FAILED, &"the daemon says what it may not say here"),
        Err(what) => fail(FAILED, &what),
    }
}

fn code_of(why: Why) -> u8 {
    match why {
        Why::Refused | Why::NotExecutable => NOT_EXECUTED,
        Why::NotFound => NOT_FOUND,
        Why::Busy | Why::Failed => FAILED,
    }
}

/// As [`run`]. A daemon that is busy has started nothing; one that has let us wait is not asked again.
fn run_when_there_is_place(
    socket: &[u8],
    request: &[u8],
    mut terminal: Option<&mut Terminal>,
) -> Result<Answer, String> {
    let told = |broken: Broken| format!("{}: {broken}", String::from_utf8_lossy(socket));
    // From here on none is lost, whatever it will be for.
    let mut signals = Signals::catch().map_err(|error| told(error.into()))?;
    let until_ms = system::now_ms().saturating_add(BUSY_MS);
    loop {
        let answer = run(socket, request, &mut signals, terminal.as_deref_mut());
        let is_busy = matches!(answer, Ok(Answer::Denied(Why::Busy, _)) | Err(Broken::Refused));
        if !is_busy || system::now_ms() >= until_ms {
            return answer.map_err(told);
        }
        let next_ms = system::now_ms().saturating_add(BUSY_PAUSE_MS);
        signals.pause(next_ms).map_err(|error| told(error.into()))?;
        // Nothing has begun, so there is nobody to hand it to.
        if let Some(signal) = signals.end() {
            return Ok(Answer::Ended(End::Died(signal)));
        }
    }
}

/// The last answer.
fn run(
    socket: &[u8],
    request: &[u8],
    signals: &mut Signals,
    mut terminal: Option<&mut Terminal>,
) -> Result<Answer, Broken> {
    let mut connection = Connection::open(socket)?;
    match connection.send(request, terminal.as_deref()) {
        // It would not read the request, and may have said why.
        Err(Broken::Gone) => {}
        sent => sent?,
    }
    let (mut is_running, mut until_ms) = (false, None);
    loop {
        let until = until_ms.filter(|_| !is_running);
        match connection.answer_or_signal(signals, terminal.as_deref_mut(), until) {
            Ok(Event::Answer(Answer::Started(_))) => {
                is_running = true;
                with(&mut terminal, Terminal::go_on);
            }
            Ok(Event::Answer(Answer::Stopped(signal))) => {
                with(&mut terminal, |terminal| {
                    terminal.show_rest();
                    terminal.give_back();
                });
                signals::stop_by(signal)?;
                with(&mut terminal, Terminal::go_on);
                connection.pass_on(signals::CONTINUE)?;
            }
            Ok(Event::Answer(last)) => {
                with(&mut terminal, Terminal::show_rest);
                return Ok(last);
            }
            Ok(Event::Signal(signal)) if signals::is_to_end(signal) => {
                // Whoever insists does not wait for a command that has not begun.
                if until_ms.is_some() && !is_running {
                    return Ok(Answer::Ended(End::Died(signal)));
                }
                until_ms = Some(system::now_ms().saturating_add(END_MS));
                // Perhaps the command runs already; if not, the signal is there when it does.
                connection.pass_on(signal)?;
            }
            Ok(Event::Signal(signal)) => {
                match signal {
                    signals::CONTINUE if is_running => with(&mut terminal, Terminal::go_on),
                    signals::RESIZE => with(&mut terminal, |terminal| terminal.resize()),
                    _ => {}
                }
                connection.pass_on(signal)?;
            }
            Ok(Event::Late) => match signals.end() {
                Some(signal) if until_ms.is_some_and(|until| until <= system::now_ms()) => {
                    return Ok(Answer::Ended(End::Died(signal)));
                }
                _ => {}
            },
            Err(Broken::Gone) => return Err(Broken::GoneFrom { is_running }),
            Err(broken) => return Err(broken),
        }
    }
}

fn with(terminal: &mut Option<&mut Terminal>, change: impl FnOnce(&mut Terminal)) {
    if let Some(terminal) = terminal.as_deref_mut() {
        change(terminal);
    }
}

fn print(text: &str) -> u8 {
    let [_, stdout, _] = system::standard();
    match write_all(stdout, text.as_bytes()) {
        Ok(()) | Err(Errno::PIPE) => 0,
        Err(error) => fail(FAILED, &Broken::System(error)),
    }
}

fn fail(code: u8, what: &dyn Display) -> u8 {
    let [_, _, stderr] = system::standard();
    let _ = write_all(stderr, format!("{}: {what}\n", options::NAME).as_bytes());
    code
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = retry_on_intr(|| write(to, bytes))?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// What fits of a text, without memory from anywhere.
struct LastWords {
    bytes: [u8; LAST_WORDS_BYTES],
    length: usize,
}

impl Write for LastWords {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (to, from) in self.bytes[self.length..].iter_mut().zip(text.bytes()) {
            *to = from;
            self.length += 1;
        }
        Ok(())
    }
}

/// An error of this program's, or no memory: then there is none for words either.
#[panic_handler]
fn panic(what: &PanicInfo<'_>) -> ! {
    let mut words = LastWords { bytes: [0; LAST_WORDS_BYTES], length: 0 };
    let _ = match HEAP.is_spent() {
        true => words.write_str("roster-exec: out of memory\n"),
        false => writeln!(words, "roster-exec: an error of its own: {what}"),
    };
    let [_, _, stderr] = system::standard();
    let _ = write_all(stderr, &words.bytes[..words.length]);
    start::end(FAILED)
}
