//! `roster ssh-keys`: a user's keys for sshd, out of the directory through the daemon's cache.
//!
//! Asks at the socket of PAM, which everybody may: sshd has a user run this who may do nothing else.

use crate::args::SshKeysArgs;
use crate::output::print_stderr;
use anyhow::{Context, Result, bail};
use roster_request::{AuthRequestKind, AuthResult};
use roster_wire::pam::{AuthRequest, AuthResponseHeader, REQUEST_BYTES_MAX, RESPONSE_HEADER_BYTES};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The socket's name in the folder of sockets.
const PAM_SOCKET: &str = "pam";
/// How long an answer may take; sshd's user waits meanwhile.
const WAIT: Duration = Duration::from_secs(10);

/// Runs the command. `true`: the daemon has answered.
pub fn run(args: &SshKeysArgs, out: &mut dyn Write) -> Result<bool> {
    let socket = args.bus.run_dir.join(PAM_SOCKET);
    let (verdict, keys) = request_keys(&socket, args.user.as_bytes()).with_context(|| {
        format!("cannot ask rosterd at {}{}", socket.display(), advice(&socket))
    })?;
    match verdict {
        AuthResult::Success => {
            out.write_all(&keys)?;
            Ok(true)
        }
        // Users of the host have theirs in a file.
        AuthResult::UnknownUser | AuthResult::NotHandled => Ok(true),
        other => {
            print_stderr(format_args!("roster: no keys of {:?}: {}", args.user, other.label()));
            Ok(false)
        }
    }
}

/// What to do where there is no socket.
fn advice(socket: &Path) -> &'static str {
    if socket.symlink_metadata().is_ok() {
        return "";
    }
    " (is it running, and does a domain have `auth`? roster status)"
}

fn request_keys(socket: &Path, user: &[u8]) -> Result<(AuthResult, Vec<u8>)> {
    // Keys of whoever could put a socket there would open the user's account.
    let owner = socket.symlink_metadata()?.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        bail!("it is neither root's nor ours");
    }
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT))?;
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
    };
    let mut room = [0; REQUEST_BYTES_MAX];
    let Some(request) = request.write(&mut room) else {
        // Nobody is called so.
        return Ok((AuthResult::UnknownUser, Vec::new()));
    };
    stream.write_all(request)?;
    let mut header = [0; RESPONSE_HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let header = AuthResponseHeader::parse(&header).ok().context("its answer is none")?;
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

    fn answered(header: AuthResponseHeader, rest: &'static [u8]) -> Result<(AuthResult, Vec<u8>)> {
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
        assert!(answered(header(9), b"\0\0\0\0key one\n").is_err());
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
