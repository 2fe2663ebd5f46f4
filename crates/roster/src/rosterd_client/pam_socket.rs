// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests at the socket for PAM, which serves every user: one request and one reply a connection. `password_trial`,
//! `access` and `ssh_keys` make the requests and read the replies.

use roster_messages::table::tools;
use roster_messages::{CodedError, Message};
use roster_request::AuthResult;
use roster_wire::pam::{AuthMessages, AuthResponseHeader, RESPONSE_HEADER_BYTES};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the socket in the directory of sockets.
const PAM_SOCKET: &str = "pam";

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub struct PamSocketReply {
    /// The result.
    pub result: AuthResult,
    /// Cached credentials decided.
    pub is_offline: bool,
    /// Messages for the user.
    pub messages: Vec<String>,
    /// Keys, or a ticket.
    pub blob: Vec<u8>,
}

/// Returns the path of the socket.
pub fn path(run_dir: &Path) -> PathBuf {
    run_dir.join(PAM_SOCKET)
}

/// Sends a request and returns the reply. `wait` limits each part of it.
pub fn exchange(
    socket: &Path,
    request: &[u8],
    wait: Duration,
) -> Result<PamSocketReply, CodedError> {
    let failed = |error| socket_error(socket, error);
    // The owner of an untrusted socket could return keys that open the account, or read the password.
    let owner = socket.symlink_metadata().map_err(failed)?.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        let text = format!("{}: the socket belongs to uid {owner}", socket.display());
        return Err(CodedError::new(&tools::PAM_SOCKET_UNTRUSTED, text));
    }
    query(socket, request, wait).map_err(failed)
}

fn query(socket: &Path, request: &[u8], wait: Duration) -> io::Result<PamSocketReply> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(wait))?;
    stream.set_write_timeout(Some(wait))?;
    stream.write_all(request)?;
    let mut header = [0; RESPONSE_HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let header = AuthResponseHeader::parse(&header).ok();
    let header = header.ok_or_else(|| io::Error::other("the reply is malformed"))?;
    let mut rest = vec![0; header.messages_bytes + header.blob_bytes];
    stream.read_exact(&mut rest)?;
    let blob = rest.split_off(header.messages_bytes);
    let messages = AuthMessages::new(&rest).take(header.messages);
    let messages = messages.map(|message| String::from_utf8_lossy(message.text).into_owned());
    Ok(PamSocketReply {
        result: header.result,
        is_offline: header.is_offline,
        messages: messages.collect(),
        blob,
    })
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
