// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster ssh-keys`: prints the keys of a user for sshd, from the cache of rosterd. Sends its request to the socket for
//! PAM, which every user may use: sshd runs this program as a user without rights.

use crate::args::SshKeysArgs;
use crate::output::print_error;
use anyhow::Result;
use roster_messages::table::tools;
use roster_messages::{CodedError, Message};
use roster_request::{AuthRequestKind, AuthResult};
use roster_wire::pam::{AuthRequest, AuthResponseHeader, REQUEST_BYTES_MAX, RESPONSE_HEADER_BYTES};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Name of the socket in the directory of sockets.
const PAM_SOCKET: &str = "pam";
/// Timeout of the reply, for which a login waits.
const WAIT: Duration = Duration::from_secs(10);

/// Runs the command. Returns whether the daemon replied.
pub fn run(args: &SshKeysArgs, out: &mut dyn Write) -> Result<bool> {
    let socket = args.bus.run_dir.join(PAM_SOCKET);
    let (verdict, keys) = request_keys(&socket, args.user.as_bytes())?;
    match verdict {
        AuthResult::Success => {
            out.write_all(&keys)?;
            Ok(true)
        }
        // The keys of local users are in files.
        AuthResult::UnknownUser | AuthResult::NotHandled => Ok(true),
        other => {
            let text = format!("no keys of {:?}: {}", args.user, other.label());
            print_error(&CodedError::new(&tools::KEYS_UNKNOWN, text));
            Ok(false)
        }
    }
}

/// Returns the error of a request at that socket.
fn socket_error(socket: &Path, error: io::Error) -> CodedError {
    let message: &'static Message = match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => &tools::PAM_SOCKET_MISSING,
        _ => &tools::PAM_SOCKET_FAILED,
    };
    let text = format!("{}: rosterd does not reply", socket.display());
    CodedError::new(message, text).caused_by(error)
}

fn request_keys(socket: &Path, user: &[u8]) -> Result<(AuthResult, Vec<u8>), CodedError> {
    let failed = |error| socket_error(socket, error);
    // The owner of an untrusted socket could return keys that open the account.
    let owner = socket.symlink_metadata().map_err(failed)?.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        let text = format!("{}: the socket belongs to uid {owner}", socket.display());
        return Err(CodedError::new(&tools::PAM_SOCKET_UNTRUSTED, text));
    }
    let request = AuthRequest {
        kind: AuthRequestKind::SshKeys,
        user,
        uid: None,
        service: b"sshd",
        remote_host: b"",
        terminal: b"",
        remote_user: b"",
        secret: b"",
        new_secret: b"",
        domains: b"",
    };
    let mut room = [0; REQUEST_BYTES_MAX];
    let Some(request) = request.write(&mut room) else {
        // The name is too long for any user.
        return Ok((AuthResult::UnknownUser, Vec::new()));
    };
    exchange(socket, request).map_err(failed)
}

fn exchange(socket: &Path, request: &[u8]) -> io::Result<(AuthResult, Vec<u8>)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT))?;
    stream.write_all(request)?;
    let mut header = [0; RESPONSE_HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let header = AuthResponseHeader::parse(&header).ok();
    let header = header.ok_or_else(|| io::Error::other("the reply is malformed"))?;
    let mut rest = vec![0; header.messages_bytes + header.blob_bytes];
    stream.read_exact(&mut rest)?;
    Ok((header.result, rest.split_off(header.messages_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_wire::pam::REQUEST_HEADER_BYTES;
    use std::os::unix::net::UnixListener;
    use std::thread;

    fn answered(
        header: AuthResponseHeader,
        rest: &'static [u8],
    ) -> Result<(AuthResult, Vec<u8>), CodedError> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join(PAM_SOCKET);
        let listener = UnixListener::bind(&socket).unwrap();
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; REQUEST_HEADER_BYTES + "alice".len() + "sshd".len()];
            stream.read_exact(&mut request).unwrap();
            let request = AuthRequest::read(&request).unwrap();
            assert_eq!((request.kind, request.user), (AuthRequestKind::SshKeys, &b"alice"[..]));
            stream.write_all(&header.encode()).unwrap();
            stream.write_all(rest).unwrap();
        });
        let answer = request_keys(&socket, b"alice");
        served.join().unwrap();
        answer
    }

    fn header(blob_bytes: usize) -> AuthResponseHeader {
        let verdict = AuthResult::Success;
        AuthResponseHeader {
            result: verdict,
            is_offline: false,
            messages: 1,
            messages_bytes: 4,
            blob_bytes,
        }
    }

    #[test]
    fn keys_are_what_stands_behind_the_messages() {
        let (verdict, keys) = answered(header(8), b"\0\0\0\0key one\n").unwrap();
        assert_eq!((verdict, &*keys), (AuthResult::Success, &b"key one\n"[..]));
    }

    #[test]
    fn an_answer_that_is_cut_is_no_answer() {
        let error = answered(header(9), b"\0\0\0\0key one\n").unwrap_err();
        assert_eq!(error.message, &tools::PAM_SOCKET_FAILED);
    }

    #[test]
    fn ssh_keys_missing_socket_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = request_keys(&folder.path().join(PAM_SOCKET), b"alice").unwrap_err();
        assert_eq!(error.message, &tools::PAM_SOCKET_MISSING);
    }

    #[test]
    fn a_name_that_nobody_has_is_asked_of_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join(PAM_SOCKET);
        let _listener = UnixListener::bind(&socket).unwrap();
        let (verdict, _) = request_keys(&socket, &[b'x'; 300]).unwrap();
        assert_eq!(verdict, AuthResult::UnknownUser);
    }
}
