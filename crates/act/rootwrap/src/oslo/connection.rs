// SPDX-License-Identifier: MIT OR Apache-2.0
//! One client's connection: the proof of the key, one request to the manager of objects, and then commands in sequence.
//! `request` parses, `evaluate` decides, and `command_io` has the streams of a command.
//!
//! There is only one object, without state. It gets a new name for each request, because the client takes two objects
//! with one name for the same.

use super::command_io::{CommandError, CommandOutput, run};
use super::frame::{MessageReader, send};
use super::hmac_handshake;
use super::request::{BadRequest, CommandInput, OsloRequest};
use super::services::OsloServices;
use super::surrogateescape::SurrogateEncoder;
use crate::evaluate::evaluate;
use crate::log_messages;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;

/// Methods of the object, as oslo.rootwrap lists them.
const METHODS: &str = r#"["cancel_timer","handle_timeout","prepare_timer","reset_timer","run_one_command","shutdown"]"#;
/// Limit of discarded input after a refused request, so that the client reads the reply.
const DISCARDED_BYTES_MAX: u64 = 1 << 20;

/// Serves a client until it disconnects, or the daemon stops.
pub(super) fn serve(services: &OsloServices, number: u64, stream: &UnixStream) -> io::Result<()> {
    hmac_handshake::authenticate(stream, &services.key)?;
    let Some(frame) = MessageReader::next(stream)? else { return Ok(()) };
    let request = match OsloRequest::read(frame) {
        Ok(request) => request,
        Err(bad) => return send_bad_request(stream, &bad),
    };
    match (&request.object, &*request.method) {
        (None, b"accept_connection") => {}
        (None, b"create") => {
            let answer = format!("[\"{:x}\",{METHODS}]", services.objects.next_object());
            return send_return(stream, &answer);
        }
        (None, b"dummy" | b"incref" | b"decref") => return send_return(stream, "null"),
        (None, b"get_methods") => return send_return(stream, METHODS),
        (None, b"shutdown") => {
            send_return(stream, "null")?;
            services.request_end();
            return Ok(());
        }
        _ => return send_error(stream, "#TRACEBACK", "the manager cannot be asked that"),
    }
    services.clients.mark_authenticated(number);
    send_return(stream, "null")?;
    while services.clients.mark_idle(number) {
        let Some(frame) = MessageReader::next(stream)? else { return Ok(()) };
        services.clients.mark_busy(number);
        match OsloRequest::read(frame) {
            Ok(request) => handle_request(services, stream, request)?,
            Err(bad) => return send_bad_request(stream, &bad),
        }
    }
    Ok(())
}

fn handle_request(
    services: &OsloServices,
    stream: &UnixStream,
    request: OsloRequest<&UnixStream>,
) -> io::Result<()> {
    if !services.objects.has_object(request.object.as_deref()) {
        if let Some((_, input)) = request.command {
            discard_input(input)?;
        }
        return send_error(stream, "#TRACEBACK", "there is no such object");
    }
    match (request.command, &*request.method) {
        (Some((words, input)), _) => handle_command(services, stream, &words, input),
        (None, b"shutdown") => {
            send_return(stream, "null")?;
            services.request_end();
            Ok(())
        }
        (None, b"reset_timer" | b"cancel_timer" | b"handle_timeout" | b"prepare_timer") => {
            services.clients.note_activity();
            send_return(stream, "null")
        }
        _ => send_error(stream, "#TRACEBACK", "the object cannot be asked that"),
    }
}

fn handle_command(
    services: &OsloServices,
    stream: &UnixStream,
    words: &[OsString],
    mut input: CommandInput<&UnixStream>,
) -> io::Result<()> {
    let _turn = services.clients.wait_for_slot();
    let mut result = Vec::new();
    match evaluate(services.policy.conf.mode, &services.policy, words, &services.host) {
        Ok(verdict) => {
            services.syslog.send_message(log_messages::ALLOWED, || {
                log_messages::allowed(&verdict, &services.host)
            });
            match run(&services.executor, &verdict, &mut input, &services.transfer_limits) {
                Ok(outcome) => {
                    discard_input(input)?;
                    send_output(stream, outcome)?;
                    services.executor.prestart_stages();
                    return Ok(());
                }
                Err(CommandError::Input(bad)) => return send_bad_request(stream, &bad),
                Err(failure) => {
                    discard_input(input)?;
                    // oslo.rootwrap sends this kind for an exception that it cannot serialize.
                    return send_error(stream, "#UNSERIALIZABLE", &failure.to_string());
                }
            }
        }
        Err(refusal) => {
            services.syslog.send_message(log_messages::REFUSED_TO_SERVICE, || {
                log_messages::refused(services.policy.conf.mode, &refusal, words)
            });
            write!(result, "[{},\"\",\"\"]", refusal.exit_code())?;
        }
    }
    discard_input(input)?;
    send_return(stream, std::str::from_utf8(&result).unwrap_or_default())
}

/// Discards input that the command did not read.
fn discard_input(input: CommandInput<&UnixStream>) -> io::Result<()> {
    match input {
        CommandInput::None(mut frame) => frame.discard(),
        CommandInput::Some(mut stream) => stream.frame().discard(),
    }
}

fn send_output(mut stream: &UnixStream, outcome: CommandOutput) -> io::Result<()> {
    let CommandOutput { code, mut stdout, mut stderr } = outcome;
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

fn send_return(stream: &UnixStream, json: &str) -> io::Result<()> {
    send(stream, format!("[\"#RETURN\",{json}]").as_bytes())
}

/// Sends an error, which the client raises as an exception.
fn send_error(stream: &UnixStream, kind: &str, what: &str) -> io::Result<()> {
    let mut text = Vec::new();
    let mut encoder = SurrogateEncoder::default();
    encoder.feed(what.as_bytes(), &mut text);
    encoder.finish(&mut text);
    send(stream, &[b"[\"", kind.as_bytes(), b"\",\"", &text, b"\"]"].concat())
}

/// Reports an invalid request. The connection then ends, because the position in the stream is unknown.
fn send_bad_request(stream: &UnixStream, bad: &BadRequest) -> io::Result<()> {
    match bad {
        BadRequest::Connection(error) => Err(io::Error::new(error.kind(), error.to_string())),
        bad => {
            send_error(stream, "#TRACEBACK", &bad.to_string())?;
            stream.shutdown(std::net::Shutdown::Write)?;
            let mut stream = stream;
            let mut left = io::Read::take(&mut stream, DISCARDED_BYTES_MAX);
            io::copy(&mut left, &mut io::sink()).map(|_| ())
        }
    }
}
