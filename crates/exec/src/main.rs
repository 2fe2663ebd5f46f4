//! `roster-exec`: asks the daemon to run a command, hands it our descriptors, passes signals on, and
//! ends as the command did.
//!
//! Reads and writes none of the command's data, and knows no policy.

#![forbid(unsafe_code)]

mod connection;
mod signals;

use connection::Connection;
use roster_exec::options::{self, Call};
use roster_exec::wire::{self, Answer, End, Request, Why};
use signals::Signals;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

const TIME_OVER: u8 = 124;
const FAILED: u8 = 125;
const NOT_EXECUTED: u8 = 126;
const NOT_FOUND: u8 = 127;

fn main() -> ExitCode {
    let (run_as, socket, argv) = match options::parse(std::env::args_os().skip(1)) {
        Ok(Call::Run { run_as, socket, argv }) => (run_as, socket, argv),
        Ok(Call::Help) => return print(&options::help()),
        Ok(Call::Version) => {
            return print(&format!("{} {}\n", options::NAME, env!("CARGO_PKG_VERSION")));
        }
        Err(wrong) => return fail(FAILED, &format_args!("{wrong}; see {} --help", options::NAME)),
    };
    let socket = socket.unwrap_or_else(|| OsString::from(wire::SOCKET));
    let request = Request { run_as, argv, environment: std::env::vars_os().collect() };
    match run(Path::new(&socket), &request) {
        Ok(Answer::Ended(End::Exited(status))) => ExitCode::from(status.to_le_bytes()[0]),
        Ok(Answer::Ended(End::Died(signal))) => signals::die_of(signal),
        Ok(Answer::Ended(End::TimeOver)) => {
            fail(TIME_OVER, &format_args!("{}: its time was over", request.argv[0].display()))
        }
        Ok(Answer::Denied(why, words)) => {
            fail(code_of(why), &format_args!("{}: {words}", request.argv[0].display()))
        }
        Ok(_) => fail(FAILED, &"the daemon says what it may not say here"),
        Err(error) => fail(FAILED, &error),
    }
}

fn code_of(why: Why) -> u8 {
    match why {
        Why::Refused | Why::NotExecutable => NOT_EXECUTED,
        Why::NotFound => NOT_FOUND,
        Why::Busy | Why::Failed => FAILED,
    }
}

/// The last answer.
fn run(socket: &Path, request: &Request) -> io::Result<Answer> {
    let bytes = request.encode().ok_or_else(|| {
        io::Error::new(ErrorKind::InvalidInput, "the command and its environment are too long")
    })?;
    let told = |error: io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => io::Error::new(
            error.kind(),
            format!(
                "nobody listens on {}: is roster-rootwrap-daemon --native running?",
                socket.display()
            ),
        ),
        kind => io::Error::new(kind, format!("{}: {error}", socket.display())),
    };
    let mut connection = Connection::open(socket).map_err(told)?;
    connection.send(&bytes).map_err(told)?;
    let mut answer = connection.answer()?;
    // Until the command runs signals are for this program alone. One that has ended gets none.
    let mut signals = None;
    loop {
        match answer {
            Answer::Started(_) => {}
            Answer::Stopped(signal) => {
                signals::stop_by(signal)?;
                connection.pass_on(signals::CONTINUE)?;
            }
            Answer::Denied(..) | Answer::Ended(_) => return Ok(answer),
        }
        answer = match connection.held_answer()? {
            Some(answer) => answer,
            None => {
                let signals = match &mut signals {
                    Some(signals) => signals,
                    None => signals.insert(Signals::catch()?),
                };
                connection.answer_or_signals(signals)?
            }
        };
    }
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &error),
    }
}

fn fail(code: u8, what: &dyn std::fmt::Display) -> ExitCode {
    let _ = writeln!(io::stderr(), "{}: {what}", options::NAME);
    ExitCode::from(code)
}
