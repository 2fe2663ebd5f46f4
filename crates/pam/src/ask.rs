//! Asks the responder. One connection a request, 30 seconds for all of it; whatever goes wrong, there is no
//! answer, and that is never a yes.
#![forbid(unsafe_code)]

use roster_calls::connection::Connection;
use roster_secret::Secret;
use roster_wire::pam::{
    ANSWER_HEADER_BYTES, AnswerHeader, MESSAGES_BYTES_MAX, REQUEST_BYTES_MAX, Request,
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
}

/// Asks; none when there is no answer.
pub fn ask(request: &Request<'_>) -> Option<Answer> {
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
    let header = AnswerHeader::parse(&header).ok()?;
    let mut messages = Secret::with_room(header.messages_bytes.min(MESSAGES_BYTES_MAX))?;
    connection.receive(messages.free_mut().get_mut(..header.messages_bytes)?)?;
    messages.advance(header.messages_bytes);
    Some(Answer { header, messages })
}
