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

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use connection::{Broken, Connection, Event};
use core::fmt::Display;
use core::panic::PanicInfo;
use core::time::Duration;
use roster_exec::options::{self, Call};
use roster_exec::wire::{self, Answer, End, Why, encode_request};
use rustix::event::{Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, retry_on_intr, write};
use signals::Signals;

const TIME_OVER: u8 = 124;
const FAILED: u8 = 125;
const NOT_EXECUTED: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How often a daemon is asked that has no place, and how long after each time: for five seconds.
const BUSY_TIMES: u32 = 250;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

/// The status to end with.
fn main(words: &[&'static [u8]], variables: &[&'static [u8]]) -> u8 {
    if system::open_closed().is_err() {
        return FAILED;
    }
    let (run_as, socket, argv) = match options::parse(words.iter().skip(1).copied()) {
        Ok(Call::Run { run_as, socket, argv }) => (run_as, socket, argv),
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
    match run_when_there_is_place(socket, &request) {
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
fn run_when_there_is_place(socket: &[u8], request: &[u8]) -> Result<Answer, String> {
    for _ in 1..BUSY_TIMES {
        match run(socket, request)? {
            Answer::Denied(Why::Busy, _) => {
                let pause = Timespec::try_from(BUSY_PAUSE).ok();
                let _ = poll(&mut [], pause.as_ref());
            }
            answer => return Ok(answer),
        }
    }
    run(socket, request)
}

/// The last answer.
fn run(socket: &[u8], request: &[u8]) -> Result<Answer, String> {
    let shown = String::from_utf8_lossy(socket);
    let told = |broken: Broken| match broken {
        Broken::System(Errno::NOENT | Errno::CONNREFUSED) => {
            format!("nobody listens on {shown}: is roster-rootwrap-daemon --native running?")
        }
        broken => format!("{shown}: {broken}"),
    };
    let mut connection = Connection::open(socket).map_err(told)?;
    // From here on none is lost, whatever it will be for.
    let mut signals = Signals::catch().map_err(|error| told(error.into()))?;
    match connection.send(request) {
        // It would not read the request, and may have said why.
        Err(Broken::Gone) => {}
        sent => sent.map_err(told)?,
    }
    let (mut is_running, mut was_told_to_end) = (false, false);
    loop {
        match connection.answer_or_signal(&mut signals) {
            Ok(Event::Answer(Answer::Started(_))) => is_running = true,
            Ok(Event::Answer(Answer::Stopped(signal))) => {
                signals::stop_by(signal).map_err(|error| told(error.into()))?;
                connection.pass_on(signals::CONTINUE).map_err(told)?;
            }
            Ok(Event::Answer(last)) => return Ok(last),
            // Whoever insists does not wait for a command that has not begun.
            Ok(Event::Signal(signal))
                if was_told_to_end && !is_running && signals::is_to_end(signal) =>
            {
                return Ok(Answer::Ended(End::Died(signal)));
            }
            // Perhaps the command runs already; if not, the signal is there when it does.
            Ok(Event::Signal(signal)) => {
                was_told_to_end |= signals::is_to_end(signal);
                connection.pass_on(signal).map_err(told)?;
            }
            Err(Broken::Gone) => {
                let what = match is_running {
                    true => "how the command ended is not known",
                    false => "it has not told that the command runs",
                };
                return Err(format!("{shown}: {}; {what}", Broken::Gone));
            }
            Err(broken) => return Err(told(broken)),
        }
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

/// An error of this program's.
#[panic_handler]
fn panic(what: &PanicInfo<'_>) -> ! {
    start::end(fail(FAILED, &what))
}
