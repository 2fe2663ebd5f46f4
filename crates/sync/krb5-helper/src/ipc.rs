// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between a backend and its `roster-krb5 serve`, over a stream socket. First the backend sends a
//! [`HelperSetup`]. Then it sends [`HelperRequest`]s and receives [`HelperReply`]s, in any order. A message has a
//! length of four bytes, followed by that many bytes.

use crate::codec::{DecodeError, FieldReader, FieldWriter};
use crate::kdc_errors::KdcOutcome;
use crate::realm::Realm;
use roster_messages::{Message, table::login};
use std::time::Duration;
use zeroize::{Zeroize, Zeroizing};

/// Longest message. A ticket with a large Windows PAC has 64 KiB, and a keytab has at most as much.
pub const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// Longest accepted password; libkrb5 has no limit.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Longest name of a principal, realm included.
pub const PRINCIPAL_BYTES_MAX: usize = 512;

/// Configuration of the program.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HelperSetup {
    /// The realm of users, and its servers.
    pub realm: Realm,
    /// Bytes of a keytab with keys of this host; empty without verification of the KDC.
    pub keytab: Zeroizing<Vec<u8>>,
    /// Principal in the keytab. Its ticket armors each exchange with a password. Without `@REALM` it belongs to the
    /// realm of users. If empty, logins have no armor, and other exchanges that of any key.
    pub fast_principal: String,
    /// Lifetime of tickets; 0 means the default of the KDC.
    pub life_seconds: u32,
    /// Renewable lifetime; 0 means not renewable.
    pub renewable_seconds: u32,
    /// Whether tickets may be forwarded to other hosts.
    pub forwardable: bool,
    /// TCP ports of servers; empty if they are unknown beforehand.
    pub ports: Vec<u16>,
}

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperOperation {
    /// A ticket for the user's session.
    Ticket,
    /// Checks whether the password is correct and may be changed.
    MayChange,
    /// Changes the password.
    Change,
    /// Any reply to an unknown name shows that a KDC is available. The reply is not verified.
    Probe,
}

/// One login or one change of a password. Never logged, hence no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct HelperRequest {
    /// The number of the request, which the reply repeats.
    pub id: u64,
    /// Time limit.
    pub deadline: Duration,
    /// The operation.
    pub operation: HelperOperation,
    /// The user's name as one component of a principal, or with `is_principal` the whole principal.
    pub name: String,
    /// Whether `name` is a whole principal.
    pub is_principal: bool,
    /// The realm to use for this request in place of the one in [`HelperSetup`].
    pub realm: Option<Realm>,
    /// The password.
    pub password: Zeroizing<Vec<u8>>,
    /// The new one, with [`HelperOperation::Change`].
    pub new_password: Zeroizing<Vec<u8>>,
}

/// Reply to a request. Never logged, hence no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct HelperReply {
    /// The number of the request.
    pub id: u64,
    /// The outcome.
    pub outcome: KdcOutcome,
    /// The row of the table for the reason. `None` for a success.
    pub message: Option<&'static Message>,
    /// Whether the reply is verified. For a login: the KDC has shown that it knows a key of this host. For a refusal:
    /// such a KDC is available to confirm it; errors of KDCs are not signed. For a change: such a KDC has shown that
    /// the new password is valid.
    pub is_verified: bool,
    /// For a failed change: whether the password is certainly unchanged.
    pub is_surely_unchanged: bool,
    /// Text of the server for the user; may be empty.
    pub user_text: String,
    /// Reason, for the log; may be empty.
    pub detail: String,
    /// Expiry of the password, in seconds since 1970; 0 if it is unknown.
    pub password_expires: u32,
    /// The user's principal at the KDC.
    pub principal: String,
    /// The ticket, as a file of [`crate::ccache_file`]; empty without one.
    pub ticket: Zeroizing<Vec<u8>>,
}

impl HelperSetup {
    /// Encodes a message, with its length.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let lists = self.realm.encoded_bytes() + 2 * self.ports.len();
        framed(lists + self.keytab.len() + self.fast_principal.len(), |out| {
            self.realm.encode(out);
            out.bytes(&self.keytab);
            out.bytes(self.fast_principal.as_bytes());
            out.number(self.life_seconds);
            out.number(self.renewable_seconds);
            out.byte(self.forwardable.into());
            out.bytes(&self.ports.iter().flat_map(|port| port.to_be_bytes()).collect::<Vec<_>>());
        })
    }

    /// Decodes a message without its length.
    pub fn decode(message: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader(message);
        let setup = Self {
            realm: Realm::decode(&mut reader)?,
            keytab: Zeroizing::new(reader.bytes()?.to_vec()),
            fast_principal: reader.text()?.to_owned(),
            life_seconds: reader.number()?,
            renewable_seconds: reader.number()?,
            forwardable: reader.flag()?,
            ports: reader
                .bytes()?
                .as_chunks()
                .0
                .iter()
                .map(|&port| u16::from_be_bytes(port))
                .collect(),
        };
        reader.end()?;
        Ok(setup)
    }
}

impl HelperRequest {
    /// Encodes a message, with its length.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let realm = self.realm.as_ref().map_or(0, Realm::encoded_bytes);
        let length = self.name.len() + realm + self.password.len() + self.new_password.len();
        framed(length, |out| {
            out.long(self.id);
            out.number(u32::try_from(self.deadline.as_millis()).unwrap_or(u32::MAX));
            out.byte(match self.operation {
                HelperOperation::Ticket => 0,
                HelperOperation::MayChange => 1,
                HelperOperation::Change => 2,
                HelperOperation::Probe => 3,
            });
            out.bytes(self.name.as_bytes());
            out.byte(self.is_principal.into());
            out.byte(self.realm.is_some().into());
            if let Some(realm) = &self.realm {
                realm.encode(out);
            }
            out.bytes(&self.password);
            out.bytes(&self.new_password);
        })
    }

    /// Decodes a message without its length. Passwords that the library does not support are malformed: the backend
    /// refuses them before.
    pub fn decode(message: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader(message);
        let request = Self {
            id: reader.long()?,
            deadline: Duration::from_millis(reader.number()?.into()),
            operation: match reader.byte()? {
                0 => HelperOperation::Ticket,
                1 => HelperOperation::MayChange,
                2 => HelperOperation::Change,
                3 => HelperOperation::Probe,
                _ => return Err(DecodeError),
            },
            name: reader.text()?.to_owned(),
            is_principal: reader.flag()?,
            realm: match reader.flag()? {
                true => Some(Realm::decode(&mut reader)?),
                false => None,
            },
            password: password(&mut reader)?,
            new_password: password(&mut reader)?,
        };
        reader.end()?;
        let is_well = |password: &[u8], wanted| password.is_empty() != wanted;
        if request.name.is_empty()
            || request.name.len() > PRINCIPAL_BYTES_MAX
            || !is_well(&request.password, true)
            || !is_well(&request.new_password, request.operation == HelperOperation::Change)
        {
            return Err(DecodeError);
        }
        Ok(request)
    }
}

fn password(reader: &mut FieldReader<'_>) -> Result<Zeroizing<Vec<u8>>, DecodeError> {
    let bytes = reader.bytes()?;
    let takes = bytes.len() <= PASSWORD_BYTES_MAX && !bytes.contains(&0);
    if takes { Ok(Zeroizing::new(bytes.to_vec())) } else { Err(DecodeError) }
}

impl HelperReply {
    /// Makes a reply with an outcome only.
    #[must_use]
    pub fn from_outcome(id: u64, outcome: KdcOutcome, detail: impl Into<String>) -> Self {
        Self {
            id,
            outcome,
            message: outcome.message(),
            is_verified: false,
            is_surely_unchanged: false,
            user_text: String::new(),
            detail: detail.into(),
            password_expires: 0,
            principal: String::new(),
            ticket: Zeroizing::default(),
        }
    }

    /// Replaces the row of the table.
    #[must_use]
    pub fn with_message(self, message: &'static Message) -> Self {
        Self { message: Some(message), ..self }
    }

    /// Encodes a message, with its length.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let texts = self.user_text.len() + self.detail.len() + self.principal.len();
        framed(texts + self.ticket.len(), |out| {
            out.long(self.id);
            out.byte(self.outcome.code());
            out.bytes(self.message.map_or("", |message| message.code).as_bytes());
            out.byte(self.is_verified.into());
            out.byte(self.is_surely_unchanged.into());
            out.bytes(self.user_text.as_bytes());
            out.bytes(self.detail.as_bytes());
            out.number(self.password_expires);
            out.bytes(self.principal.as_bytes());
            out.bytes(&self.ticket);
        })
    }

    /// Decodes a message without its length.
    pub fn decode(message: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader(message);
        let reply = Self {
            id: reader.long()?,
            outcome: KdcOutcome::from_code(reader.byte()?).ok_or(DecodeError)?,
            message: decode_message(reader.text()?)?,
            is_verified: reader.flag()?,
            is_surely_unchanged: reader.flag()?,
            user_text: reader.text()?.to_owned(),
            detail: reader.text()?.to_owned(),
            password_expires: reader.number()?,
            principal: reader.text()?.to_owned(),
            ticket: Zeroizing::new(reader.bytes()?.to_vec()),
        };
        reader.end()?;
        Ok(reply)
    }
}

/// Returns the row of a code in a reply.
fn decode_message(code: &str) -> Result<Option<&'static Message>, DecodeError> {
    let found = login::MESSAGES.iter().copied().find(|message| message.code == code);
    if code.is_empty() || found.is_some() { Ok(found) } else { Err(DecodeError) }
}

/// Space for numbers, flags, lengths and a code.
const FIELDS_BYTES: usize = 64;

/// Returns a message with its length in front.
pub(crate) fn framed(bytes: usize, fill: impl FnOnce(&mut FieldWriter)) -> Zeroizing<Vec<u8>> {
    let mut out = FieldWriter::new(bytes + FIELDS_BYTES);
    out.number(0);
    fill(&mut out);
    let length = u32::try_from(out.0.len() - 4).unwrap_or(u32::MAX);
    out.0[..4].copy_from_slice(&length.to_be_bytes());
    out.0
}

/// Splits a stream into messages.
#[derive(Default)]
pub struct MessageBuffer(Vec<u8>);

impl MessageBuffer {
    /// Wipes and frees the unread bytes.
    pub fn wipe(&mut self) {
        self.0.zeroize();
        self.0 = Vec::new();
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        // A growing vector would leave a copy of a password behind.
        if self.0.capacity() < self.0.len() + bytes.len() {
            let room = (self.0.len() + bytes.len()).max(2 * self.0.capacity()).max(4096);
            let mut larger = Vec::with_capacity(room);
            larger.extend_from_slice(&self.0);
            self.0.zeroize();
            self.0 = larger;
        }
        self.0.extend_from_slice(bytes);
    }

    /// Returns the next complete message without its length, if there is one. Fails after a message above the limit:
    /// the rest cannot be read.
    pub fn next_message(&mut self) -> Result<Option<Zeroizing<Vec<u8>>>, DecodeError> {
        let Some(head) = self.0.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(DecodeError);
        }
        let Some(message) = self.0.get(4..4 + length) else { return Ok(None) };
        let message = Zeroizing::new(message.to_vec());
        let rest = self.0.len() - (4 + length);
        self.0.copy_within(4 + length.., 0);
        self.0[rest..].zeroize();
        self.0.truncate(rest);
        Ok(Some(message))
    }
}

impl Drop for MessageBuffer {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn realm() -> Realm {
        Realm { name: "LAB.TEST".into(), kdcs: vec!["kdc1:88".into()], ..Realm::default() }
    }

    fn request() -> HelperRequest {
        HelperRequest {
            id: 7,
            deadline: Duration::from_millis(1500),
            operation: HelperOperation::Change,
            name: "alice".into(),
            is_principal: false,
            realm: Some(realm()),
            password: Zeroizing::new(b"old".to_vec()),
            new_password: Zeroizing::new(b"new".to_vec()),
        }
    }

    #[test]
    fn messages_come_back_as_they_were_however_the_stream_is_cut() {
        let reply = HelperReply {
            user_text: "Too short.".into(),
            password_expires: 9,
            principal: "alice@LAB.TEST".into(),
            ticket: Zeroizing::new(vec![1; 3000]),
            is_verified: true,
            is_surely_unchanged: true,
            ..HelperReply::from_outcome(7, KdcOutcome::NewPasswordRefused, "softerror")
        }
        .with_message(&login::CLOCK_SKEW);
        let mut stream = request().encode().to_vec();
        stream.extend_from_slice(&reply.encode());
        for size in [1, 3, 4, 1000, stream.len()] {
            let (mut incoming, mut found) = (MessageBuffer::default(), Vec::new());
            for piece in stream.chunks(size) {
                incoming.push(piece);
                while let Some(message) = incoming.next_message().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found.len(), 2);
            assert!(HelperRequest::decode(&found[0]) == Ok(request()));
            assert!(HelperReply::decode(&found[1]) == Ok(reply.clone()));
        }
        let setup = HelperSetup {
            realm: realm(),
            fast_principal: "host/a.example".into(),
            forwardable: true,
            ports: vec![88, 464],
            ..HelperSetup::default()
        };
        assert!(HelperSetup::decode(&setup.encode()[4..]) == Ok(setup));
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_no_message() {
        let whole = request().encode();
        for length in 4..whole.len() {
            assert!(HelperRequest::decode(&whole[4..length]).is_err(), "{length}");
        }
        let longer = [&whole[4..], b"x"].concat();
        assert!(HelperRequest::decode(&longer).is_err());
        let mut incoming = MessageBuffer::default();
        incoming.push(&u32::MAX.to_be_bytes());
        assert_eq!(incoming.next_message(), Err(DecodeError));
    }

    #[test]
    fn what_is_wiped_is_no_message_any_more() {
        let mut incoming = MessageBuffer::default();
        incoming.push(&request().encode());
        incoming.wipe();
        assert_eq!(incoming.0.capacity(), 0);
        assert!(incoming.next_message().unwrap().is_none());
    }

    #[test]
    fn an_empty_password_and_one_with_a_nul_reach_no_library() {
        for password in [&b""[..], b"a\0b", &[b'x'; PASSWORD_BYTES_MAX + 1]] {
            let request =
                HelperRequest { password: Zeroizing::new(password.to_vec()), ..request() };
            assert!(HelperRequest::decode(&request.encode()[4..]).is_err());
        }
    }
}
