// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request of a client, `[null or an object, method, arguments, {}]`, parsed while it arrives. `frame` has the bytes,
//! and `connection` the answer.
//!
//! The words of a command are limited and stored. Its standard input follows them, and is read in pieces as text or
//! base64. Only the form of the Python client is accepted, so nothing nests deeper.

use super::frame::MessageReader;
use super::surrogateescape::{BadText, SurrogateDecoder};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;

/// Limit of the names of objects and methods.
const NAME_BYTES_MAX: usize = 256;
/// Limit of all words of a command. The kernel accepts fewer by default.
const ARGUMENTS_BYTES_MAX: usize = 8 << 20;
/// Limit of the number of words, because each needs memory beside its bytes.
const ARGUMENTS_MAX: usize = 1 << 17;
/// Limit of a request without a command.
const PLAIN_BYTES_MAX: u64 = 64 << 10;

/// Reasons for which a request is rejected.
#[derive(Debug)]
pub enum BadRequest {
    /// The connection failed, or ended within the request.
    Connection(io::Error),
    /// The request has another form.
    Shape(&'static str),
    TooLong(&'static str),
}

impl From<io::Error> for BadRequest {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

impl From<BadText> for BadRequest {
    fn from(bad: BadText) -> Self {
        Self::Shape(match bad {
            BadText::Escape => "a string with an escape that JSON does not have",
            BadText::Surrogate => "a string with a surrogate that stands for no byte",
        })
    }
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => write!(f, "{error}"),
            Self::Shape(what) => write!(f, "invalid request: {what}"),
            Self::TooLong(what) => write!(f, "{what} is too long"),
        }
    }
}

#[derive(Debug)]
pub struct OsloRequest<R> {
    /// The name of the object. `None`: the manager of objects.
    pub object: Option<Vec<u8>>,
    /// The name of the method.
    pub method: Vec<u8>,
    /// The command to run.
    pub command: Option<(Vec<OsString>, CommandInput<R>)>,
}

/// Standard input of a command.
#[derive(Debug)]
pub enum CommandInput<R> {
    /// There is no input.
    None(MessageReader<R>),
    /// The input follows in the message.
    Some(InputStream<R>),
}

impl<R: Read> OsloRequest<R> {
    /// Parses a request up to the input of its command.
    pub fn read(mut frame: MessageReader<R>) -> Result<Self, BadRequest> {
        expect(&mut frame, b'[')?;
        let object = match peek(&mut frame)? {
            b'n' => expect_word(&mut frame, b"null").map(|()| None)?,
            _ => Some(read_string(&mut frame, NAME_BYTES_MAX)?),
        };
        expect(&mut frame, b',')?;
        let what = read_string(&mut frame, NAME_BYTES_MAX)?;
        if what != b"run_one_command" || object.is_none() {
            if frame.remaining() > PLAIN_BYTES_MAX {
                return Err(BadRequest::TooLong("a request that runs nothing"));
            }
            frame.discard()?;
            return Ok(Self { object, method: what, command: None });
        }
        for byte in *b",[" {
            expect(&mut frame, byte)?;
        }
        let words = read_arguments(&mut frame)?;
        let input = read_input(frame)?;
        Ok(Self { object, method: what, command: Some((words, input)) })
    }
}

fn read_arguments<R: Read>(frame: &mut MessageReader<R>) -> Result<Vec<OsString>, BadRequest> {
    expect(frame, b'[')?;
    let (mut words, mut room) = (Vec::new(), ARGUMENTS_BYTES_MAX);
    if peek(frame)? == b']' {
        expect(frame, b']')?;
        return Ok(words);
    }
    loop {
        let word = read_string(frame, room)?;
        room -= word.len();
        if words.len() == ARGUMENTS_MAX {
            return Err(BadRequest::TooLong("the command"));
        }
        words.push(OsString::from_vec(word));
        if !has_next_element(frame)? {
            return Ok(words);
        }
    }
}

fn read_input<R: Read>(mut frame: MessageReader<R>) -> Result<CommandInput<R>, BadRequest> {
    if !has_next_element(&mut frame)? {
        expect_end(&mut frame, b",{}]")?;
        return Ok(CommandInput::None(frame));
    }
    match peek(&mut frame)? {
        b'n' => {
            expect_word(&mut frame, b"null")?;
            expect_end(&mut frame, b"],{}]")?;
            Ok(CommandInput::None(frame))
        }
        b'"' => {
            expect(&mut frame, b'"')?;
            Ok(CommandInput::Some(InputStream::new(
                frame,
                InputEncoding::Text(SurrogateDecoder::default()),
            )))
        }
        _ => {
            expect(&mut frame, b'{')?;
            if read_string(&mut frame, NAME_BYTES_MAX)? != b"__bytes__" {
                return Err(BadRequest::Shape("input that is neither text nor bytes"));
            }
            expect(&mut frame, b':')?;
            expect(&mut frame, b'"')?;
            Ok(CommandInput::Some(InputStream::new(frame, InputEncoding::Base64 { padded: false })))
        }
    }
}

/// Input of a command during its arrival.
#[derive(Debug)]
pub struct InputStream<R> {
    frame: MessageReader<R>,
    encoding: InputEncoding,
    ended: bool,
}

#[derive(Debug)]
enum InputEncoding {
    Text(SurrogateDecoder),
    /// Padding is only valid in the last piece.
    Base64 {
        padded: bool,
    },
}

impl<R: Read> InputStream<R> {
    fn new(frame: MessageReader<R>, encoding: InputEncoding) -> Self {
        Self { frame, encoding, ended: false }
    }

    /// Returns true if the next piece requires a read.
    pub fn needs_read(&self) -> bool {
        let buffered = self.frame.buffered();
        !self.ended
            && match self.encoding {
                InputEncoding::Text(_) => buffered.is_empty(),
                InputEncoding::Base64 { .. } => buffered.len() < 4 && !buffered.contains(&b'"'),
            }
    }

    /// Returns true if the input and the end of the message were received.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Returns the source.
    pub fn source(&self) -> &R {
        self.frame.source()
    }

    pub fn frame(&mut self) -> &mut MessageReader<R> {
        &mut self.frame
    }

    /// Reads the rest of a small message, so that later calls do not wait.
    pub fn buffer_message(&mut self, bytes_max: usize) -> io::Result<bool> {
        self.frame.read_whole(bytes_max)
    }

    /// Adds the next piece to `out`, by at most one read.
    pub fn read_piece(&mut self, out: &mut Vec<u8>) -> Result<(), BadRequest> {
        if self.ended {
            return Ok(());
        }
        if self.needs_read() && !self.frame.fill_further()? {
            return Err(BadRequest::Shape("a string without an end"));
        }
        let (used, ended, behind) = match &mut self.encoding {
            InputEncoding::Text(decoder) => {
                let (used, ended) = decoder.feed(self.frame.buffered(), out)?;
                (used, ended, &b"],{}]"[..])
            }
            InputEncoding::Base64 { padded } => {
                let (whole, ended) = whole_base64(self.frame.buffered());
                let text = &self.frame.buffered()[..whole];
                // The decoder rejects padding within a piece.
                if *padded && !text.is_empty() {
                    return Err(INVALID_BASE64);
                }
                *padded |= text.last() == Some(&b'=');
                put_base64(text, out)?;
                (whole + usize::from(ended), ended, &b"}],{}]"[..])
            }
        };
        self.frame.consume(used);
        if ended { self.end_stream(behind) } else { Ok(()) }
    }

    fn end_stream(&mut self, expected: &[u8]) -> Result<(), BadRequest> {
        expect_end(&mut self.frame, expected)?;
        self.ended = true;
        Ok(())
    }
}

const INVALID_BASE64: BadRequest = BadRequest::Shape("bytes that are not base64");

/// Returns the length that can be decoded alone, and whether the string ends behind it. base64 needs no escapes.
fn whole_base64(text: &[u8]) -> (usize, bool) {
    match memchr::memchr(b'"', text) {
        Some(end) => (end, true),
        None => (text.len() / 4 * 4, false),
    }
}

fn put_base64(text: &[u8], out: &mut Vec<u8>) -> Result<(), BadRequest> {
    let start = out.len();
    out.resize(start + base64::decoded_len_estimate(text.len()), 0);
    let decoded = BASE64_STANDARD.decode_slice(text, &mut out[start..]);
    out.truncate(start + decoded.map_err(|_| INVALID_BASE64)?);
    Ok(())
}

/// Returns the next byte that is not white space.
fn peek<R: Read>(frame: &mut MessageReader<R>) -> Result<u8, BadRequest> {
    loop {
        if !frame.fill()? {
            return Err(BadRequest::Shape("ends too early"));
        }
        match frame.buffered()[0] {
            b' ' | b'\t' | b'\n' | b'\r' => frame.consume(1),
            byte => return Ok(byte),
        }
    }
}

fn expect<R: Read>(frame: &mut MessageReader<R>, expected: u8) -> Result<(), BadRequest> {
    if peek(frame)? != expected {
        return Err(BadRequest::Shape("not the JSON of oslo.rootwrap's client"));
    }
    frame.consume(1);
    Ok(())
}

fn expect_word<R: Read>(frame: &mut MessageReader<R>, word: &[u8]) -> Result<(), BadRequest> {
    word.iter().try_for_each(|&byte| expect(frame, byte))
}

/// Returns true before another element of a list, and false at its end.
fn has_next_element<R: Read>(frame: &mut MessageReader<R>) -> Result<bool, BadRequest> {
    match peek(frame)? {
        b',' => expect(frame, b',').map(|()| true),
        _ => expect(frame, b']').map(|()| false),
    }
}

fn read_string<R: Read>(
    frame: &mut MessageReader<R>,
    bytes_max: usize,
) -> Result<Vec<u8>, BadRequest> {
    expect(frame, b'"')?;
    let (mut decoder, mut out) = (SurrogateDecoder::default(), Vec::new());
    loop {
        if !frame.fill()? {
            return Err(BadRequest::Shape("a string without an end"));
        }
        let (used, ended) = decoder.feed(frame.buffered(), &mut out)?;
        frame.consume(used);
        if out.len() > bytes_max {
            return Err(BadRequest::TooLong("a string of the request"));
        }
        if ended {
            return Ok(out);
        }
    }
}

/// Reads the end of a request, with only white space behind it.
fn expect_end<R: Read>(frame: &mut MessageReader<R>, expected: &[u8]) -> Result<(), BadRequest> {
    expect_word(frame, expected)?;
    while frame.fill()? {
        peek_space(frame)?;
    }
    Ok(())
}

fn peek_space<R: Read>(frame: &mut MessageReader<R>) -> Result<(), BadRequest> {
    match frame.buffered()[0] {
        b' ' | b'\t' | b'\n' | b'\r' => {
            frame.consume(1);
            Ok(())
        }
        _ => Err(BadRequest::Shape("more bytes after the end")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    /// A source with one byte for each read.
    struct OneByteReader<'b>(&'b [u8]);

    impl Read for OneByteReader<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(1);
            self.0.read(&mut buffer[..count])
        }
    }

    type ReadResult = Result<(Vec<OsString>, Option<Vec<u8>>), String>;

    fn read(text: &str) -> ReadResult {
        let mut message = Vec::new();
        frame::send(&mut message, text.as_bytes()).unwrap();
        let fast = read_from(&message[..]);
        assert_eq!(fast, read_from(OneByteReader(&message)), "{text}");
        fast
    }

    fn read_from<R: Read>(from: R) -> ReadResult {
        let frame = MessageReader::next(from).unwrap().unwrap();
        let request = OsloRequest::read(frame).map_err(|bad| bad.to_string())?;
        assert_eq!(request.object.as_deref(), Some(&b"7f"[..]));
        let (words, input) = request.command.unwrap();
        let CommandInput::Some(mut stream) = input else { return Ok((words, None)) };
        let mut out = Vec::new();
        while !stream.is_ended() {
            stream.read_piece(&mut out).map_err(|bad| bad.to_string())?;
        }
        Ok((words, Some(out)))
    }

    fn words(words: &[&[u8]]) -> Vec<OsString> {
        words.iter().map(|word| OsString::from_vec(word.to_vec())).collect()
    }

    #[test]
    fn a_command_comes_with_its_input() {
        let read = |rest: &str| read(&format!("[\"7f\", \"run_one_command\", [{rest}], {{}}]"));
        assert_eq!(
            read(r#"["a", "\udcff\"é"], null"#),
            Ok((words(&[b"a", b"\xff\"\xc3\xa9"]), None))
        );
        assert_eq!(read("[]"), Ok((Vec::new(), None)));
        assert_eq!(
            read(r#"["cat"], "x\n\udc80""#),
            Ok((words(&[b"cat"]), Some(b"x\n\x80".to_vec())))
        );
        assert_eq!(read(r#"["cat"], """#), Ok((words(&[b"cat"]), Some(Vec::new()))));
        for (text, bytes) in
            [("", &b""[..]), ("/w==", b"\xff"), ("/wA=", b"\xff\0"), ("/wBBQQ==", b"\xff\0AA")]
        {
            let read = read(&format!("[\"cat\"], {{\"__bytes__\": \"{text}\"}}"));
            assert_eq!(read, Ok((words(&[b"cat"]), Some(bytes.to_vec()))), "{text}");
        }
    }

    #[test]
    fn what_no_client_sends_is_refused() {
        for rest in [
            "",
            "[",
            "[1]",
            r#"["a""#,
            r#"["a"], 1"#,
            r#"["a"], {"b": ""}"#,
            r#"["a"], {"__bytes__": 1}"#,
            r#"["a"], {"__bytes__": "/w="}"#,
            r#"["a"], {"__bytes__": "/w==/w=="}"#,
            r#"["a"], {"__bytes__": "/w\n="}"#,
            r#"["a"], "b", 1"#,
            r#"["a"], "\ud800""#,
            "[\"a\"]], {}]x",
        ] {
            assert!(
                read(&format!("[\"7f\", \"run_one_command\", [{rest}], {{}}]")).is_err(),
                "{rest}"
            );
        }
        for text in ["", "{}", "[7]", r#"["7f", "run_one_command", [["a"]], {"b": 1}]"#] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_manager_is_asked_in_few_words() {
        let mut message = Vec::new();
        frame::send(&mut message, br#"[null, "create", ["rootwrap"], {}]"#).unwrap();
        let request =
            OsloRequest::read(MessageReader::next(&message[..]).unwrap().unwrap()).unwrap();
        assert_eq!((request.object, request.method), (None, b"create".to_vec()));
        let long = format!("[null, \"create\", [\"{}\"], {{}}]", "x".repeat(100_000));
        let mut message = Vec::new();
        frame::send(&mut message, long.as_bytes()).unwrap();
        assert!(OsloRequest::read(MessageReader::next(&message[..]).unwrap().unwrap()).is_err());
    }
}
