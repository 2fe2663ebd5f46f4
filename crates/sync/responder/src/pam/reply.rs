// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replies to programs, and their encoding. The frames are those of `roster_wire::pam`, and `audit_log` logs the
//! result.

use roster_bus::interfaces::AuthReply;
use roster_bus::secret_pipe;
use roster_messages::{Message, log, table::login};
use roster_request::{
    AuthResult,
    auth::{BLOB_BYTES_MAX, MESSAGES_MAX},
};
use roster_secret::Secret;
use roster_wire::pam::{AuthResponseHeader, write_message};
use std::io;

/// A reply to a program.
pub struct PamReply {
    /// The result.
    pub result: AuthResult,
    /// Whether cached credentials were used.
    pub is_offline: bool,
    /// Messages for the user: whether each is an error, and the text.
    pub messages: Vec<(bool, String)>,
    /// The backend's code of a refusal.
    pub code: Option<&'static Message>,
    /// The session ticket.
    pub blob: Option<Secret>,
}

impl PamReply {
    /// Makes a reply with only this result.
    pub fn from_result(verdict: AuthResult) -> Self {
        Self { result: verdict, is_offline: false, messages: Vec::new(), code: None, blob: None }
    }

    /// Converts a backend's reply. Its result is trusted, its bytes are not.
    pub fn from_backend(told: AuthReply) -> Self {
        let Some(verdict) = AuthResult::from_number(told.verdict) else {
            let number = told.verdict;
            log!(WARN, &login::RESULT_UNKNOWN, "unknown result number {number} from the backend");
            return Self::from_result(AuthResult::Misconfigured);
        };
        let blob = match told.blob.into_iter().next().map(|pipe| secret_pipe::receive(&pipe)) {
            None => None,
            Some(Ok(mut blobs)) => {
                blobs.pop().filter(|blob| blob.as_bytes().len() <= BLOB_BYTES_MAX)
            }
            Some(Err(error)) => {
                let text = "session data (Kerberos ticket) was not received";
                log!(WARN, &login::SESSION_DATA_MISSING, "{text}: {error}");
                None
            }
        };
        let messages = told.messages.into_iter().take(MESSAGES_MAX);
        let messages = messages.map(|(is_error, text)| (is_error, one_line(&text))).collect();
        let code = roster_messages::find(&told.code);
        Self { result: verdict, is_offline: told.is_offline, messages, code, blob }
    }

    /// Encodes the reply.
    pub fn encode(&self) -> io::Result<EncodedReply> {
        let mut messages = Vec::new();
        for (is_error, text) in &self.messages {
            write_message(&mut messages, *is_error, text);
        }
        let blob = self.blob.as_ref().map_or(&[][..], Secret::as_bytes);
        let header = AuthResponseHeader {
            result: self.result,
            is_offline: self.is_offline,
            messages: self.messages.len(),
            messages_bytes: messages.len(),
            blob_bytes: blob.len(),
        };
        let header = header.encode();
        if blob.is_empty() {
            return Ok(EncodedReply::Plain([&header[..], &messages].concat()));
        }
        let room = header.len() + messages.len() + blob.len();
        let mut all = Secret::with_capacity(room).ok_or(io::ErrorKind::OutOfMemory)?;
        for piece in [&header[..], &messages, blob] {
            all.extend(piece).ok_or(io::ErrorKind::OutOfMemory)?;
        }
        Ok(EncodedReply::Secret(all))
    }
}

/// An encoded reply.
pub enum EncodedReply {
    /// Without a secret.
    Plain(Vec<u8>),
    /// With a session ticket.
    Secret(Secret),
}

impl EncodedReply {
    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Secret(secret) => secret.as_bytes(),
        }
    }
}

/// Replaces control characters, so that the text is safe in one line of a terminal or a log.
pub fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_system_tests::logged_codes::with_logged_codes;
    use std::os::fd::OwnedFd;

    #[test]
    fn a_verdict_that_there_is_not_lets_nobody_in() {
        let told = |verdict| AuthReply {
            verdict,
            is_offline: false,
            messages: Vec::new(),
            code: String::new(),
            blob: Vec::new(),
        };
        assert_eq!(PamReply::from_backend(told(0)).result, AuthResult::Success);
        for verdict in [15, 256, u16::MAX] {
            let (logged, reply) = with_logged_codes(|| PamReply::from_backend(told(verdict)));
            assert_eq!(reply.result, AuthResult::Misconfigured);
            assert_eq!(logged, [&login::RESULT_UNKNOWN]);
        }
    }

    #[test]
    fn pam_reply_without_its_ticket_is_logged() {
        let (pipe, mut sender) = io::pipe().expect("a pipe");
        // The length of a secret, cut.
        io::Write::write_all(&mut sender, &[9, 0]).expect("write");
        drop(sender);
        let told = AuthReply {
            verdict: 0,
            is_offline: false,
            messages: Vec::new(),
            code: String::new(),
            blob: vec![OwnedFd::from(pipe).into()],
        };
        let (logged, reply) = with_logged_codes(|| PamReply::from_backend(told));
        assert_eq!(logged, [&login::SESSION_DATA_MISSING]);
        assert!(reply.result == AuthResult::Success && reply.blob.is_none());
    }

    #[test]
    fn what_is_shown_is_one_line_each_and_bounded() {
        let message = (false, "one\r\n\x1b[2Jtwo".to_owned());
        let told = AuthReply {
            verdict: 1,
            is_offline: false,
            messages: vec![message; 100],
            code: String::new(),
            blob: Vec::new(),
        };
        let answer = PamReply::from_backend(told);
        assert_eq!(answer.messages.len(), MESSAGES_MAX);
        assert_eq!(answer.messages[0].1, "one    [2Jtwo".replace("    ", "   "));
        assert!(answer.encode().is_ok());
    }
}
