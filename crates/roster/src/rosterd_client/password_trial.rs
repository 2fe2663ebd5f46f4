// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster access --password`: tries a password as a login does, at the socket for PAM. The attempt counts: the directory
//! may lock the account after wrong ones, and rosterd logs it.

use super::pam_socket::{self, PamSocketReply};
use crate::output::printable;
use roster_messages::table::tools;
use roster_messages::{CodedError, Message, login_refusal};
use roster_request::auth::SECRET_BYTES_MAX;
use roster_request::{AuthRequestKind, AuthResult};
use roster_secret::Secret;
use roster_wire::pam::{AuthRequest, REQUEST_BYTES_MAX};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex};
use rustix::termios::{isatty, tcgetattr, tcsetattr};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Timeout of the reply. The PAM module waits as long.
const WAIT: Duration = Duration::from_secs(30);
/// Terminal in the log, which marks the attempt.
const TERMINAL: &[u8] = b"roster-access";

/// Refuses users other than root. At the socket, other users could try their own password only.
pub fn require_root() -> Result<(), CodedError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(CodedError::new(&tools::PASSWORD_TRIAL_NOT_ROOT, "--password: only root may try passwords"))
}

/// Reads a password, and tries it.
pub fn try_password(
    run_dir: &Path,
    user: &[u8],
    uid: u32,
    service: &str,
) -> Result<PamSocketReply, CodedError> {
    let password = read_password(io::stdin()).map_err(unreadable)?;
    let request = AuthRequest {
        kind: AuthRequestKind::Authenticate,
        user,
        uid: Some(uid),
        service: service.as_bytes(),
        remote_host: b"",
        terminal: TERMINAL,
        remote_user: b"",
        secret: password.as_bytes(),
        new_secret: b"",
        domains: b"",
    };
    let no_memory = || unreadable(io::ErrorKind::OutOfMemory.into());
    let mut room = Secret::with_capacity(REQUEST_BYTES_MAX).ok_or_else(no_memory)?;
    let request = request.write(room.spare_mut());
    let request = request.ok_or_else(|| unreadable(io::ErrorKind::InvalidInput.into()))?;
    pam_socket::exchange(&pam_socket::path(run_dir), request, WAIT)
}

/// Returns the error of a password that cannot be read.
fn unreadable(error: io::Error) -> CodedError {
    let text = "cannot read the password from standard input";
    CodedError::new(&tools::PASSWORD_UNREADABLE, text).caused_by(error)
}

/// Reads a line: from a terminal after a prompt and without echo.
fn read_password(input: impl AsFd) -> io::Result<Secret> {
    if !isatty(&input) {
        return read_line(&input, None);
    }
    let before = tcgetattr(&input)?;
    let mut silent = before.clone();
    // An interrupt would leave the terminal without echo. It ends the line instead.
    silent.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
    let interrupt = before.special_codes[SpecialCodeIndex::VINTR];
    silent.special_codes[SpecialCodeIndex::VEOL] = interrupt;
    tcsetattr(&input, OptionalActions::Flush, &silent)?;
    let _ = write!(io::stderr(), "Password: ");
    let line = read_line(&input, Some(interrupt));
    tcsetattr(&input, OptionalActions::Flush, &before)?;
    let _ = writeln!(io::stderr());
    line
}

/// Reads up to a newline, the end of the input, or the byte of an interrupt, which is an error.
fn read_line(input: impl AsFd, interrupt: Option<u8>) -> io::Result<Secret> {
    let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
    let mut line = Secret::with_capacity(SECRET_BYTES_MAX).ok_or_else(no_memory)?;
    loop {
        let mut byte = [0];
        match rustix::io::read(&input, &mut byte) {
            Ok(0) => return Ok(line),
            Ok(_) if byte == *b"\n" => return Ok(line),
            Ok(_) if Some(byte[0]) == interrupt => return Err(Errno::INTR.into()),
            Ok(_) => {
                let added = line.extend(&byte);
                roster_secret::wipe(&mut byte);
                let too_long = || io::Error::other(format!("more than {SECRET_BYTES_MAX} bytes"));
                added.ok_or_else(too_long)?;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns whether the password is right.
pub fn is_accepted(result: AuthResult) -> bool {
    matches!(result, AuthResult::Success | AuthResult::MustChange)
}

/// Returns the row of the table for a result. `None` for a success.
fn message_of(result: AuthResult) -> Option<&'static Message> {
    match result {
        AuthResult::NotHandled => Some(&tools::PASSWORD_NOT_CHECKED),
        other => login_refusal(other),
    }
}

/// Formats the result as lines.
pub fn as_text(reply: &PamSocketReply) -> String {
    let by = if reply.is_offline { "offline, by the cached password" } else { "online" };
    let mut text = match reply.result {
        AuthResult::NotHandled
        | AuthResult::Unreachable
        | AuthResult::Misconfigured
        | AuthResult::TooManyAttempts
        | AuthResult::NotPermitted => "the password was not checked".to_owned(),
        result if is_accepted(result) => format!("the password is accepted, {by}"),
        _ => format!("the password is refused, {by}"),
    };
    if let Some(message) = message_of(reply.result) {
        text += &format!(": {} [{}]", message.title, message.code);
    }
    text.push('\n');
    for message in &reply.messages {
        text += &format!("  message to the user: {}\n", printable(message));
    }
    text
}

/// Formats the result as JSON.
pub fn as_json(reply: &PamSocketReply) -> Value {
    json!({
        "result": reply.result.label(),
        "accepted": is_accepted(reply.result),
        "offline": reply.is_offline,
        "code": message_of(reply.result).map(|message| message.code),
        "messages": reply.messages,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    fn line_of(input: &[u8], interrupt: Option<u8>) -> io::Result<Vec<u8>> {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        std::fs::File::from(writer).write_all(input).unwrap();
        let reader: OwnedFd = reader;
        read_line(&reader, interrupt).map(|line| line.as_bytes().to_vec())
    }

    #[test]
    fn access_password_is_one_line() {
        assert_eq!(line_of(b"secret\nmore\n", None).unwrap(), b"secret");
        assert_eq!(line_of(b"sec ret", None).unwrap(), b"sec ret");
        assert_eq!(line_of(b"", None).unwrap(), b"");
        let error = unreadable(line_of(&[b'x'; SECRET_BYTES_MAX + 1], None).unwrap_err());
        assert_eq!(error.message, &tools::PASSWORD_UNREADABLE);
        assert!(line_of(b"sec\x03", Some(3)).is_err(), "an interrupt");
        assert_eq!(line_of(b"sec\x03", None).unwrap(), b"sec\x03");
    }

    #[test]
    fn access_password_result_has_code() {
        for result in AuthResult::ALL {
            let reply = PamSocketReply {
                result,
                is_offline: result == AuthResult::WrongPassword,
                messages: vec!["Soon.\x1b".into()],
                blob: Vec::new(),
            };
            let (text, json) = (as_text(&reply), as_json(&reply));
            assert_eq!(json["code"].is_null(), result == AuthResult::Success, "{text}");
            if let Some(code) = json["code"].as_str() {
                assert!(text.contains(code), "{text}");
            }
            assert!(text.contains("Soon.\\u{1b}"), "{text}");
        }
        let wrong = PamSocketReply {
            result: AuthResult::WrongPassword,
            is_offline: true,
            messages: Vec::new(),
            blob: Vec::new(),
        };
        assert_eq!(
            as_text(&wrong),
            "the password is refused, offline, by the cached password: password is wrong [RST-6001]\n"
        );
        let none = PamSocketReply { result: AuthResult::NotHandled, ..wrong };
        assert_eq!(as_json(&none)["code"], tools::PASSWORD_NOT_CHECKED.code);
    }

    #[test]
    fn access_password_needs_root() {
        if rustix::process::geteuid().is_root() {
            assert!(require_root().is_ok());
        } else {
            let error = require_root().unwrap_err();
            assert_eq!(error.message, &tools::PASSWORD_TRIAL_NOT_ROOT);
        }
        let missing = tempfile::tempdir().unwrap();
        let socket = pam_socket::path(missing.path());
        let error = pam_socket::exchange(&socket, b"", WAIT).unwrap_err();
        assert_eq!(error.message, &tools::PAM_SOCKET_MISSING);
    }
}
