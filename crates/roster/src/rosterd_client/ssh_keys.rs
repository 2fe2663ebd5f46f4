// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster ssh-keys`: prints the keys of a user for sshd, from the cache of rosterd. Sends its request to the socket for
//! PAM, which every user may use: sshd runs this program as a user without rights.

use super::pam_socket;
use crate::args::SshKeysArgs;
use crate::output::print_error;
use anyhow::Result;
use roster_messages::CodedError;
use roster_messages::table::tools;
use roster_request::{AuthRequestKind, AuthResult};
use roster_wire::pam::{AuthRequest, REQUEST_BYTES_MAX};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Timeout of the reply, for which a login waits.
const WAIT: Duration = Duration::from_secs(10);

/// Runs the command. Returns whether the daemon replied.
pub fn run(args: &SshKeysArgs, out: &mut dyn Write) -> Result<bool> {
    let socket = pam_socket::path(&args.bus.run_dir);
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

fn request_keys(socket: &Path, user: &[u8]) -> Result<(AuthResult, Vec<u8>), CodedError> {
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
    let reply = pam_socket::exchange(socket, request, WAIT)?;
    Ok((reply.result, reply.blob))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_wire::pam::{AuthResponseHeader, REQUEST_HEADER_BYTES};
    use std::io::Read;
    use std::os::unix::net::UnixListener;
    use std::thread;

    fn answered(
        header: AuthResponseHeader,
        rest: &'static [u8],
    ) -> Result<(AuthResult, Vec<u8>), CodedError> {
        let folder = tempfile::tempdir().unwrap();
        let socket = pam_socket::path(folder.path());
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
        let error = request_keys(&pam_socket::path(folder.path()), b"alice").unwrap_err();
        assert_eq!(error.message, &tools::PAM_SOCKET_MISSING);
    }

    #[test]
    fn a_name_that_nobody_has_is_asked_of_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let socket = pam_socket::path(folder.path());
        let _listener = UnixListener::bind(&socket).unwrap();
        let (verdict, _) = request_keys(&socket, &[b'x'; 300]).unwrap();
        assert_eq!(verdict, AuthResult::UnknownUser);
    }
}
