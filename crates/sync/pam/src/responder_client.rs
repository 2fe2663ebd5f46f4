// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries the responder: one connection a request, 30 seconds in total. After any failure there is no reply, and that
//! is never a success. Only another version of the daemon is reported separately. `service_functions` uses the reply.
#![forbid(unsafe_code)]

use roster_module_sys::unix_client::UnixClient;
use roster_request::auth::BLOB_BYTES_MAX;
use roster_secret::Secret;
use roster_wire::other_version;
use roster_wire::pam::{
    AuthRequest, AuthResponseHeader, MESSAGES_BYTES_MAX, REQUEST_BYTES_MAX, RESPONSE_HEADER_BYTES,
};

/// The responder's socket.
const SOCKET: &[u8] = b"/run/roster/pam";
/// Time limit from the first system call to the last byte of the reply. The responder gives up earlier.
const QUERY_MS_MAX: u64 = 30_000;

/// A reply of the responder.
pub struct ResponderReply {
    /// The result.
    pub header: AuthResponseHeader,
    /// The encoded messages.
    pub messages: Secret,
    /// The encoded session ticket; empty without one.
    pub blob: Secret,
}

/// Reasons why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryError {
    /// No valid reply was received.
    NoReply,
    /// The daemon has another version of the protocol.
    OtherVersion,
}

/// Sends a request and returns the reply.
pub fn query(request: &AuthRequest<'_>) -> Result<ResponderReply, QueryError> {
    let (connection, header) = send_request(request).ok_or(QueryError::NoReply)?;
    if other_version(&header).is_some() {
        return Err(QueryError::OtherVersion);
    }
    read_reply(&connection, &header).ok_or(QueryError::NoReply)
}

fn send_request(request: &AuthRequest<'_>) -> Option<(UnixClient, [u8; RESPONSE_HEADER_BYTES])> {
    let connection = UnixClient::new(QUERY_MS_MAX)?;
    connection.connect(SOCKET)?;
    // Another user's process at that socket could steal passwords.
    if connection.peer_uid()? != 0 {
        return None;
    }
    let mut room = Secret::with_capacity(REQUEST_BYTES_MAX)?;
    connection.send(request.write(room.spare_mut())?)?;
    drop(room);
    let mut header = [0; RESPONSE_HEADER_BYTES];
    connection.receive(&mut header)?;
    Some((connection, header))
}

fn read_reply(
    connection: &UnixClient,
    header: &[u8; RESPONSE_HEADER_BYTES],
) -> Option<ResponderReply> {
    let header = AuthResponseHeader::parse(header).ok()?;
    let receive = |bytes: usize, bytes_max: usize| {
        let mut part = Secret::with_capacity(bytes.min(bytes_max))?;
        connection.receive(part.spare_mut().get_mut(..bytes)?)?;
        part.advance(bytes);
        Some(part)
    };
    let messages = receive(header.messages_bytes, MESSAGES_BYTES_MAX)?;
    let blob = receive(header.blob_bytes, BLOB_BYTES_MAX)?;
    Some(ResponderReply { header, messages, blob })
}
