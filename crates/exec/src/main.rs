//! `roster-exec`: asks the daemon to run a command, hands it our descriptors, passes signals on, and
//! ends as the command did.
//!
//! Reads and writes none of the command's data, and knows no policy.

#![forbid(unsafe_code)]

mod connection;
mod signals;

use connection::{Connection, Event};
use roster_exec::options::{self, Call};
use roster_exec::wire::{self, Answer, End, Request, Why};
use signals::Signals;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

const TIME_OVER: u8 = 124;
const FAILED: u8 = 125;
const NOT_EXECUTED: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How long a daemon is asked again that has no place.
const BUSY_TIME: Duration = Duration::from_secs(5);
const BUSY_PAUSE: Duration = Duration::from_millis(20);

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
    match run_when_there_is_place(Path::new(&socket), &request) {
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

/// As [`run`]. A daemon that is busy has started nothing; one that has let us wait is not asked again.
fn run_when_there_is_place(socket: &Path, request: &Request) -> io::Result<Answer> {
    let began = Instant::now();
    loop {
        match run(socket, request)? {
            Answer::Denied(Why::Busy, _) if began.elapsed() < BUSY_TIME => sleep(BUSY_PAUSE),
            answer => return Ok(answer),
        }
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
    // From here on none is lost, whatever it will be for.
    let mut signals = Signals::catch()?;
    match connection.send(&bytes) {
        // It would not read the request, and may have said why.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        sent => sent.map_err(told)?,
    }
    let (mut is_running, mut was_told_to_end) = (false, false);
    loop {
        match connection.answer_or_signal(&mut signals) {
            Ok(Event::Answer(Answer::Started(_))) => is_running = true,
            Ok(Event::Answer(Answer::Stopped(signal))) => {
                signals::stop_by(signal)?;
                connection.pass_on(signals::CONTINUE)?;
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
                connection.pass_on(signal)?;
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                let what = match is_running {
                    true => "the daemon has gone away; how the command ended is not known",
                    false => "the daemon has gone away before it told that the command runs",
                };
                let what = format!("{}: {what}", socket.display());
                return Err(io::Error::new(error.kind(), what));
            }
            Err(error) => return Err(told(error)),
        }
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
