//! What a program is told, and how that is written.

use roster_bus::interfaces::LogInAnswer;
use roster_bus::secrets;
use roster_secret::Secret;
use roster_wire::pam::{AnswerHeader, BLOB_BYTES_MAX, MESSAGES_MAX, Verdict, write_message};
use std::io;
use tracing::warn;

/// What a program is told.
pub struct Answer {
    /// What came of it.
    pub verdict: Verdict,
    /// Whether what is kept here was believed.
    pub is_offline: bool,
    /// Whether it is an error, and the text.
    pub messages: Vec<(bool, String)>,
    /// What opens the session.
    pub blob: Option<Secret>,
}

impl Answer {
    /// This and nothing more.
    pub fn of(verdict: Verdict) -> Self {
        Self { verdict, is_offline: false, messages: Vec::new(), blob: None }
    }

    /// A back-end's, which is believed in its verdict and not in its bytes.
    pub fn read(told: LogInAnswer) -> Self {
        let Some(verdict) = Verdict::from_number(told.verdict) else {
            warn!(verdict = told.verdict, "the back-end's verdict is none");
            return Self::of(Verdict::Misconfigured);
        };
        let blob = match told.blob.into_iter().next().map(|pipe| secrets::receive(&pipe)) {
            None => None,
            Some(Ok(mut blobs)) => {
                blobs.pop().filter(|blob| blob.as_bytes().len() <= BLOB_BYTES_MAX)
            }
            Some(Err(error)) => {
                warn!("what is to open the session did not come: {error}");
                None
            }
        };
        let messages = told.messages.into_iter().take(MESSAGES_MAX);
        let messages = messages.map(|(is_error, text)| (is_error, one_line(&text))).collect();
        Self { verdict, is_offline: told.is_offline, messages, blob }
    }

    /// As it is sent.
    pub fn encode(&self) -> io::Result<Encoded> {
        let mut messages = Vec::new();
        for (is_error, text) in &self.messages {
            write_message(&mut messages, *is_error, text);
        }
        let blob = self.blob.as_ref().map_or(&[][..], Secret::as_bytes);
        let header = AnswerHeader {
            verdict: self.verdict,
            is_offline: self.is_offline,
            messages: self.messages.len(),
            messages_bytes: messages.len(),
            blob_bytes: blob.len(),
        };
        let header = header.encode();
        if blob.is_empty() {
            return Ok(Encoded::Plain([&header[..], &messages].concat()));
        }
        let room = header.len() + messages.len() + blob.len();
        let mut all = Secret::with_room(room).ok_or(io::ErrorKind::OutOfMemory)?;
        for piece in [&header[..], &messages, blob] {
            all.extend(piece).ok_or(io::ErrorKind::OutOfMemory)?;
        }
        Ok(Encoded::Secret(all))
    }
}

/// An answer as it is sent.
pub enum Encoded {
    /// With nothing in it that opens anything.
    Plain(Vec<u8>),
    /// With what opens a session.
    Secret(Secret),
}

impl Encoded {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Secret(secret) => secret.as_bytes(),
        }
    }
}

/// A text for a terminal or a log: what would move the cursor or begin another line is not in it.
pub fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_that_there_is_not_lets_nobody_in() {
        let told = |verdict| LogInAnswer {
            verdict,
            is_offline: false,
            messages: Vec::new(),
            blob: Vec::new(),
        };
        assert_eq!(Answer::read(told(0)).verdict, Verdict::Success);
        for verdict in [15, 256, u16::MAX] {
            assert_eq!(Answer::read(told(verdict)).verdict, Verdict::Misconfigured);
        }
    }

    #[test]
    fn what_is_shown_is_one_line_each_and_bounded() {
        let message = (false, "one\r\n\x1b[2Jtwo".to_owned());
        let told = LogInAnswer {
            verdict: 1,
            is_offline: false,
            messages: vec![message; 100],
            blob: Vec::new(),
        };
        let answer = Answer::read(told);
        assert_eq!(answer.messages.len(), MESSAGES_MAX);
        assert_eq!(answer.messages[0].1, "one    [2Jtwo".replace("    ", "   "));
        assert!(answer.encode().is_ok());
    }
}
