// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames between a client and the daemon, as bytes. Decoding is safe for any bytes. Sockets are in `connection` of the
//! client and `frame_reader` of the daemon.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
#[cfg(feature = "std")]
use std::ffi::{OsStr, OsString};
#[cfg(feature = "std")]
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The default path of the daemon's socket.
pub const SOCKET: &str = "/run/roster/exec";
/// A header has the kind of a frame, three bytes of 0, and the length of the content.
pub const HEADER_BYTES: usize = 8;
/// Limit of a request. The kernel takes 2 MiB of arguments and variables by default.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Limit of a reply.
pub const REPLY_BYTES_MAX: usize = 4096;
/// Limit of arguments, and of variables.
pub const STRINGS_MAX: usize = 1 << 16;
/// Descriptors 0, 1 and 2 of the command, and its working directory.
pub const DESCRIPTOR_COUNT: usize = 4;

const MAGIC: &[u8; 4] = b"RXQ1";
const REQUEST: u8 = b'R';
const SIGNAL: u8 = b'K';
const DENIED: u8 = b'D';
const STARTED: u8 = b'S';
const STOPPED: u8 = b'P';
const ENDED: u8 = b'E';

/// The reason for which bytes are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedFrame(pub &'static str);

impl fmt::Display for MalformedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid frame: {}", self.0)
    }
}

impl core::error::Error for MalformedFrame {}

/// A request for a command.
#[cfg(feature = "std")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandRequest {
    /// The requested user.
    pub run_as: Option<String>,
    /// The command and its arguments, at least one word.
    pub argv: Vec<OsString>,
    /// The environment of the client.
    pub environment: Vec<(OsString, OsString)>,
}

/// A reply of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandReply {
    /// The command does not run. The last reply of a command.
    Denied(DenyCode, String),
    /// The command runs, with this process id.
    Started(u32),
    /// A signal stopped the command.
    Stopped(u32),
    /// The command ended. The last reply of a command.
    Ended(CommandEnd),
}

/// Reasons for which a command does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DenyCode {
    /// No rule allows the command.
    Refused = 1,
    /// A rule allows the command, and the executable does not exist.
    NotFound = 2,
    /// A rule allows the command. The kernel does not execute the file, or other users can change it.
    NotExecutable = 3,
    /// A limit is reached.
    Busy = 4,
    /// The daemon could not decide, or could not start the command.
    Failed = 5,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// The exit status.
    Exited(u32),
    /// The signal that ended it.
    Died(u32),
    /// The daemon killed it after its timeout.
    TimedOut,
}

/// Returns the kind and the length of a frame, at most `bytes_max`.
fn header(bytes: [u8; HEADER_BYTES], bytes_max: usize) -> Result<(u8, usize), MalformedFrame> {
    let [kind, 0, 0, 0, length @ ..] = bytes else {
        return Err(MalformedFrame("bytes 1 to 3 of a frame are not 0"));
    };
    let length = u32::from_le_bytes(length) as usize;
    match length <= bytes_max {
        true => Ok((kind, length)),
        false => Err(MalformedFrame("the frame is too long")),
    }
}

fn frame(kind: u8, body: &[&[u8]]) -> Vec<u8> {
    let length: usize = body.iter().map(|part| part.len()).sum();
    let mut out = vec![kind, 0, 0, 0];
    out.extend(number(length).to_le_bytes());
    body.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// A longer part exceeds the limit of its frame anyway.
fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Encodes a request: the user, if it is not empty, the arguments, and the variables as `NAME=VALUE`. `None`: the
/// request exceeds a limit of the daemon.
#[must_use]
pub fn encode_request(run_as: &[u8], argv: &[&[u8]], variables: &[&[u8]]) -> Option<Vec<u8>> {
    if argv.len() > STRINGS_MAX || variables.len() > STRINGS_MAX {
        return None;
    }
    let strings = || argv.iter().chain(variables);
    let length: usize = strings().map(|string| 4 + string.len()).sum();
    let length = MAGIC.len() + 3 * 4 + run_as.len() + length;
    if length > REQUEST_BYTES_MAX {
        return None;
    }
    let mut out = Vec::with_capacity(HEADER_BYTES + length);
    out.extend_from_slice(&[REQUEST, 0, 0, 0]);
    out.extend(number(length).to_le_bytes());
    out.extend_from_slice(MAGIC);
    for count in [argv.len(), variables.len(), run_as.len()] {
        out.extend(number(count).to_le_bytes());
    }
    out.extend_from_slice(run_as);
    for string in strings() {
        out.extend(number(string.len()).to_le_bytes());
        out.extend_from_slice(string);
    }
    Some(out)
}

#[cfg(feature = "std")]
impl CommandRequest {
    /// Encodes the request as [`encode_request`] does.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let run_as = self.run_as.as_deref().unwrap_or_default().as_bytes();
        let argv: Vec<_> = self.argv.iter().map(|word| word.as_bytes()).collect();
        let variable = |(name, value): &(OsString, OsString)| {
            [name.as_bytes(), b"=", value.as_bytes()].concat()
        };
        let variables: Vec<_> = self.environment.iter().map(variable).collect();
        let variables: Vec<_> = variables.iter().map(|variable| &variable[..]).collect();
        encode_request(run_as, &argv, &variables)
    }

    /// Returns the length of the content, from the header of a request.
    pub fn length(bytes: [u8; HEADER_BYTES]) -> Result<usize, MalformedFrame> {
        match header(bytes, REQUEST_BYTES_MAX)? {
            (REQUEST, length) => Ok(length),
            _ => Err(MalformedFrame("the first frame of a command is not of kind R")),
        }
    }

    /// Decodes the content of a request.
    pub fn decode(body: &[u8]) -> Result<Self, MalformedFrame> {
        let mut rest = BodyReader(body);
        if rest.take_bytes(MAGIC.len())? != MAGIC {
            return Err(MalformedFrame("the request does not begin with RXQ1"));
        }
        let (words, variables, run_as) = (rest.number()?, rest.number()?, rest.number()?);
        if words == 0 || words > STRINGS_MAX || variables > STRINGS_MAX {
            return Err(MalformedFrame("no arguments, or too many strings"));
        }
        let run_as = core::str::from_utf8(rest.text(run_as)?)
            .map_err(|_| MalformedFrame("the name of the user is not UTF-8"))?;
        let run_as = (!run_as.is_empty()).then(|| run_as.into());
        // Each string takes at least four bytes, so a count reserves no more memory than was sent.
        let argv = (0..words).map(|_| rest.string()).collect::<Result<_, _>>()?;
        let environment = (0..variables)
            .map(|_| rest.string().and_then(|variable| split_variable(&variable)))
            .collect::<Result<_, _>>()?;
        match rest.0 {
            [] => Ok(Self { run_as, argv, environment }),
            _ => Err(MalformedFrame("bytes follow the last variable")),
        }
    }
}

#[cfg(feature = "std")]
fn split_variable(variable: &OsStr) -> Result<(OsString, OsString), MalformedFrame> {
    let bytes = variable.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=');
    let at = at.ok_or(MalformedFrame("a variable has no ="))?;
    let os = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    Ok((os(&bytes[..at]), os(&bytes[at + 1..])))
}

struct BodyReader<'b>(&'b [u8]);

impl<'b> BodyReader<'b> {
    fn take_bytes(&mut self, count: usize) -> Result<&'b [u8], MalformedFrame> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or(MalformedFrame("the frame ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<usize, MalformedFrame> {
        let bytes =
            self.take_bytes(4)?.try_into().map_err(|_| MalformedFrame("the frame ends early"))?;
        Ok(u32::from_le_bytes(bytes) as usize)
    }

    #[cfg(feature = "std")]
    fn text(&mut self, count: usize) -> Result<&'b [u8], MalformedFrame> {
        let text = self.take_bytes(count)?;
        match text.contains(&0) {
            true => Err(MalformedFrame("a string has a NUL in it")),
            false => Ok(text),
        }
    }

    #[cfg(feature = "std")]
    fn string(&mut self) -> Result<OsString, MalformedFrame> {
        let length = self.number()?;
        Ok(OsString::from_vec(self.text(length)?.to_vec()))
    }
}

/// Encodes a signal for the command.
#[must_use]
pub fn encode_signal(signal: u32) -> Vec<u8> {
    frame(SIGNAL, &[&signal.to_le_bytes()])
}

/// Size of a frame with a signal. A client sends no other frames while its command runs.
pub const SIGNAL_FRAME_BYTES: usize = HEADER_BYTES + 4;

/// Decodes the frame of a signal.
pub fn decode_signal(bytes: [u8; SIGNAL_FRAME_BYTES]) -> Result<u32, MalformedFrame> {
    match bytes {
        [SIGNAL, 0, 0, 0, 4, 0, 0, 0, signal @ ..] => Ok(u32::from_le_bytes(signal)),
        _ => Err(MalformedFrame("the frame is not a signal")),
    }
}

impl CommandReply {
    /// Encodes the reply.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Denied(why, words) => {
                let words = &words.as_bytes()[..words.floor_char_boundary(REPLY_BYTES_MAX - 4)];
                frame(DENIED, &[&(*why as u32).to_le_bytes(), words])
            }
            Self::Started(pid) => frame(STARTED, &[&pid.to_le_bytes()]),
            Self::Stopped(signal) => frame(STOPPED, &[&signal.to_le_bytes()]),
            Self::Ended(end) => {
                let (how, what) = match end {
                    CommandEnd::Exited(status) => (0u32, *status),
                    CommandEnd::Died(signal) => (1, *signal),
                    CommandEnd::TimedOut => (2, 0),
                };
                frame(ENDED, &[&how.to_le_bytes(), &what.to_le_bytes()])
            }
        }
    }

    /// Returns the length of the content, from the header of a reply.
    pub fn length(bytes: [u8; HEADER_BYTES]) -> Result<usize, MalformedFrame> {
        header(bytes, REPLY_BYTES_MAX).map(|(_, length)| length)
    }

    /// Decodes a reply from its header and its content.
    pub fn decode(bytes: [u8; HEADER_BYTES], body: &[u8]) -> Result<Self, MalformedFrame> {
        let (kind, _) = header(bytes, REPLY_BYTES_MAX)?;
        let mut rest = BodyReader(body);
        let mut next = || rest.number().map(number);
        let answer = match kind {
            DENIED => {
                let why = DenyCode::from_number(next()?);
                return Ok(Self::Denied(why, String::from_utf8_lossy(rest.0).into_owned()));
            }
            STARTED => Self::Started(next()?),
            STOPPED => Self::Stopped(next()?),
            ENDED => Self::Ended(match (next()?, next()?) {
                (0, status) => CommandEnd::Exited(status),
                (1, signal) => CommandEnd::Died(signal),
                (2, _) => CommandEnd::TimedOut,
                _ => return Err(MalformedFrame("unknown end of a command")),
            }),
            _ => return Err(MalformedFrame("unknown kind of reply")),
        };
        match rest.0 {
            [] => Ok(answer),
            _ => Err(MalformedFrame("bytes follow the reply")),
        }
    }
}

impl DenyCode {
    /// A number of a later daemon counts as a failure.
    fn from_number(number: u32) -> Self {
        let known = [Self::Refused, Self::NotFound, Self::NotExecutable, Self::Busy];
        known.into_iter().find(|why| *why as u32 == number).unwrap_or(Self::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> CommandRequest {
        let odd = OsString::from_vec(vec![0xff, b'=', b'\n']);
        CommandRequest {
            run_as: Some("bob".into()),
            argv: vec!["id".into(), OsString::new(), odd.clone()],
            environment: vec![("A".into(), odd), ("".into(), "".into())],
        }
    }

    #[test]
    fn a_request_comes_as_it_was_sent_or_not_at_all() {
        for request in
            [request(), CommandRequest { argv: vec!["x".into()], ..CommandRequest::default() }]
        {
            let bytes = request.encode().unwrap();
            let (head, body) = bytes.split_first_chunk().unwrap();
            assert_eq!(CommandRequest::length(*head), Ok(body.len()));
            assert_eq!(CommandRequest::decode(body).as_ref(), Ok(&request));
            for end in 0..body.len() {
                assert!(CommandRequest::decode(&body[..end]).is_err());
            }
            assert!(CommandRequest::decode(&[body, b"x"].concat()).is_err());
        }
    }

    #[test]
    fn no_count_and_no_length_is_believed() {
        let body = |words: u32, variables: u32, name: u32, rest: &[u8]| {
            let numbers = [words, variables, name].map(u32::to_le_bytes).concat();
            CommandRequest::decode(&[MAGIC, &*numbers, rest].concat())
        };
        let word = b"\x01\0\0\0a";
        assert!(body(1, 0, 0, word).is_ok());
        for (words, variables, name) in [
            (0, 0, 0),
            (u32::MAX, 0, 0),
            (2, 0, 0),
            (1, u32::MAX, 0),
            (1, 1, 0),
            (1, 0, u32::MAX),
            (STRINGS_MAX as u32 + 1, 0, 0),
        ] {
            assert!(body(words, variables, name, word).is_err(), "{words} {variables} {name}");
        }
        assert_eq!(body(1, 0, 0, b"\x01\0\0\0\0"), Err(MalformedFrame("a string has a NUL in it")));
        assert_eq!(
            body(1, 1, 0, b"\x01\0\0\0a\x01\0\0\0b"),
            Err(MalformedFrame("a variable has no ="))
        );
        assert!(CommandRequest::length(*b"R\0\0\0\x01\0\x40\0").is_err());
        assert!(CommandRequest::length(*b"R\0\x01\0\0\0\0\0").is_err());
        assert!(CommandRequest::length(*b"K\0\0\0\0\0\0\0").is_err());
        let long =
            CommandRequest { argv: vec!["x".repeat(5 << 20).into()], ..CommandRequest::default() };
        assert_eq!(long.encode(), None);
    }

    #[test]
    fn answers_and_signals_come_as_they_were_sent() {
        for answer in [
            CommandReply::Denied(DenyCode::Refused, "no".into()),
            CommandReply::Denied(DenyCode::Busy, String::new()),
            CommandReply::Started(7),
            CommandReply::Stopped(20),
            CommandReply::Ended(CommandEnd::Exited(255)),
            CommandReply::Ended(CommandEnd::Died(9)),
            CommandReply::Ended(CommandEnd::TimedOut),
        ] {
            let bytes = answer.encode();
            let (head, body) = bytes.split_first_chunk().unwrap();
            assert_eq!(CommandReply::length(*head), Ok(body.len()));
            assert_eq!(CommandReply::decode(*head, body), Ok(answer));
        }
        let long = CommandReply::Denied(DenyCode::Failed, "é".repeat(REPLY_BYTES_MAX)).encode();
        let (head, body) = long.split_first_chunk().unwrap();
        assert!(CommandReply::length(*head).is_ok() && CommandReply::decode(*head, body).is_ok());
        let bytes = encode_signal(15);
        assert_eq!(decode_signal(bytes.try_into().unwrap()), Ok(15));
        assert!(decode_signal(*b"R\0\0\0\x04\0\0\0\x0f\0\0\0").is_err());
    }
}
