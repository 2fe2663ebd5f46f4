//! One client's connection: the key's proof, one question to the manager of all objects, and, if that was
//! to go on, commands, one after the other.
//!
//! There is one object only, and nothing to keep of it: it has a new name whenever it is asked for, as the
//! client takes two of one name for one.

use super::auth;
use super::daemon::Daemon;
use super::frame::{Frame, send};
use super::request::{BadRequest, Input, Request};
use super::run::{Failure, Outcome, run};
use super::text::Encoder;
use crate::judge::judge;
use crate::log;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;

/// What the object can be asked, as the original has it.
const METHODS: &str = r#"["cancel_timer","handle_timeout","prepare_timer","reset_timer","run_one_command","shutdown"]"#;
/// What was not read of a refused request is passed over up to here, so that the answer arrives.
const PASSED_OVER_BYTES_MAX: u64 = 1 << 20;

/// Serves a client until it leaves, or the daemon ends.
pub(super) fn serve(daemon: &Daemon, number: u64, stream: &UnixStream) -> io::Result<()> {
    auth::authenticate(stream, &daemon.key)?;
    let Some(frame) = Frame::next(stream)? else { return Ok(()) };
    let request = match Request::read(frame) {
        Ok(request) => request,
        Err(bad) => return refuse(stream, &bad),
    };
    match (&request.object, &*request.what) {
        (None, b"accept_connection") => {}
        (None, b"create") => {
            let answer = format!("[\"{:x}\",{METHODS}]", daemon.next_object());
            return answer_with(stream, &answer);
        }
        (None, b"dummy" | b"incref" | b"decref") => return answer_with(stream, "null"),
        (None, b"get_methods") => return answer_with(stream, METHODS),
        (None, b"shutdown") => {
            answer_with(stream, "null")?;
            daemon.end();
            return Ok(());
        }
        _ => return trouble(stream, "#TRACEBACK", "the manager cannot be asked that"),
    }
    daemon.is_known(number);
    answer_with(stream, "null")?;
    while daemon.waits(number) {
        let Some(frame) = Frame::next(stream)? else { return Ok(()) };
        daemon.works(number);
        match Request::read(frame) {
            Ok(request) => answer(daemon, stream, request)?,
            Err(bad) => return refuse(stream, &bad),
        }
    }
    Ok(())
}

fn answer(daemon: &Daemon, stream: &UnixStream, request: Request<&UnixStream>) -> io::Result<()> {
    if !daemon.has_object(request.object.as_deref()) {
        if let Some((_, input)) = request.command {
            pass_over(input)?;
        }
        return trouble(stream, "#TRACEBACK", "there is no such object");
    }
    match (request.command, &*request.what) {
        (Some((words, input)), _) => command(daemon, stream, &words, input),
        (None, b"shutdown") => {
            answer_with(stream, "null")?;
            daemon.end();
            Ok(())
        }
        (None, b"reset_timer" | b"cancel_timer" | b"handle_timeout" | b"prepare_timer") => {
            daemon.is_asked();
            answer_with(stream, "null")
        }
        _ => trouble(stream, "#TRACEBACK", "the object cannot be asked that"),
    }
}

fn command(
    daemon: &Daemon,
    stream: &UnixStream,
    words: &[OsString],
    mut input: Input<&UnixStream>,
) -> io::Result<()> {
    let _turn = daemon.turn();
    let mut result = Vec::new();
    match judge(daemon.policy.conf.mode, &daemon.policy, words, &daemon.host) {
        Ok(verdict) => {
            daemon.syslog.tell(log::ALLOWED, || log::allowed(&verdict, &daemon.host));
            match run(&daemon.executor, &verdict, &mut input, &daemon.bounds) {
                Ok(outcome) => {
                    pass_over(input)?;
                    hand_over(stream, outcome)?;
                    daemon.executor.make_ready();
                    return Ok(());
                }
                Err(Failure::Input(bad)) => return refuse(stream, &bad),
                Err(failure) => {
                    pass_over(input)?;
                    // What the original says of an exception that it cannot send.
                    return trouble(stream, "#UNSERIALIZABLE", &failure.to_string());
                }
            }
        }
        Err(refusal) => {
            daemon.syslog.tell(log::REFUSED_TO_SERVICE, || log::refused(&refusal, words));
            write!(result, "[{},\"\",\"\"]", refusal.exit_code())?;
        }
    }
    pass_over(input)?;
    answer_with(stream, std::str::from_utf8(&result).unwrap_or_default())
}

/// What the command did not read.
fn pass_over(input: Input<&UnixStream>) -> io::Result<()> {
    match input {
        Input::None(mut frame) => frame.discard(),
        Input::Some(mut stream) => stream.frame().discard(),
    }
}

fn hand_over(mut stream: &UnixStream, outcome: Outcome) -> io::Result<()> {
    let Outcome { code, mut stdout, mut stderr } = outcome;
    let head = format!("[\"#RETURN\",[{code},\"");
    let (between, end) = ("\",\"", "\"]]");
    let around = (head.len() + between.len() + end.len()) as u64;
    let bytes = around + stdout.encoded_bytes() + stderr.encoded_bytes();
    let mut out = bytes.to_be_bytes().to_vec();
    out.extend(head.as_bytes());
    stdout.write_encoded(&mut out, stream)?;
    out.extend(between.as_bytes());
    stderr.write_encoded(&mut out, stream)?;
    out.extend(end.as_bytes());
    stream.write_all(&out)
}

fn answer_with(stream: &UnixStream, json: &str) -> io::Result<()> {
    send(stream, format!("[\"#RETURN\",{json}]").as_bytes())
}

/// Tells that something cannot be done; the client makes an exception of it.
fn trouble(stream: &UnixStream, kind: &str, what: &str) -> io::Result<()> {
    let mut text = Vec::new();
    let mut encoder = Encoder::default();
    encoder.feed(what.as_bytes(), &mut text);
    encoder.finish(&mut text);
    send(stream, &[b"[\"", kind.as_bytes(), b"\",\"", &text, b"\"]"].concat())
}

/// Tells what is wrong with a request, after which nothing on the connection can be made sense of.
fn refuse(stream: &UnixStream, bad: &BadRequest) -> io::Result<()> {
    match bad {
        BadRequest::Connection(error) => Err(io::Error::new(error.kind(), error.to_string())),
        bad => {
            trouble(stream, "#TRACEBACK", &bad.to_string())?;
            stream.shutdown(std::net::Shutdown::Write)?;
            let mut stream = stream;
            let mut left = io::Read::take(&mut stream, PASSED_OVER_BYTES_MAX);
            io::copy(&mut left, &mut io::sink()).map(|_| ())
        }
    }
}
