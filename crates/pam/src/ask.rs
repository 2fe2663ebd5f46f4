//! Asks the responder. One connection a request, 30 seconds for all of it; whatever goes wrong, there is no
//! answer, and that is never a yes. Only that the daemon is of another version is told apart.
#![forbid(unsafe_code)]

use roster_calls::connection::Connection;
use roster_secret::Secret;
use roster_wire::other_version;
use roster_wire::pam::{
    ANSWER_HEADER_BYTES, AnswerHeader, BLOB_BYTES_MAX, MESSAGES_BYTES_MAX, REQUEST_BYTES_MAX,
    Request,
};

/// Where the responder listens.
const SOCKET: &[u8] = b"/run/roster/pam";
/// From the first system call to the last byte of the answer. The responder gives up earlier.
const ASK_MS_MAX: u64 = 30_000;

/// What the responder says.
pub struct Answer {
    /// What came of it.
    pub header: AnswerHeader,
    /// The messages as they came.
    pub messages: Secret,
    /// What opens the user's session, as it came; empty when nothing does.
    pub blob: Secret,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// None came, or none that is one.
    Silent,
    /// The daemon speaks another version of the protocol.
    OtherVersion,
}

/// Asks.
pub fn ask(request: &Request<'_>) -> Result<Answer, NoAnswer> {
    let (connection, header) = asked(request).ok_or(NoAnswer::Silent)?;
    if other_version(&header).is_some() {
        return Err(NoAnswer::OtherVersion);
    }
    answer(&connection, &header).ok_or(NoAnswer::Silent)
}

fn asked(request: &Request<'_>) -> Option<(Connection, [u8; ANSWER_HEADER_BYTES])> {
    let connection = Connection::new(ASK_MS_MAX)?;
    connection.connect(SOCKET)?;
    // Whoever else listens there wants passwords.
    if connection.peer_user()? != 0 {
        return None;
    }
    let mut room = Secret::with_room(REQUEST_BYTES_MAX)?;
    connection.send(request.write(room.free_mut())?)?;
    drop(room);
    let mut header = [0; ANSWER_HEADER_BYTES];
    connection.receive(&mut header)?;
    Some((connection, header))
}

fn answer(connection: &Connection, header: &[u8; ANSWER_HEADER_BYTES]) -> Option<Answer> {
    let header = AnswerHeader::parse(header).ok()?;
    let receive = |bytes: usize, bytes_max: usize| {
        let mut part = Secret::with_room(bytes.min(bytes_max))?;
        connection.receive(part.free_mut().get_mut(..bytes)?)?;
        part.advance(bytes);
        Some(part)
    };
    let messages = receive(header.messages_bytes, MESSAGES_BYTES_MAX)?;
    let blob = receive(header.blob_bytes, BLOB_BYTES_MAX)?;
    Some(Answer { header, messages, blob })
}
