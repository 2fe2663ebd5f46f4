//! Between a back-end and its `roster-krb5 serve`, over a stream socket: first a [`Setup`], then
//! [`Request`]s one way and [`Reply`]s the other, in any order. Each is a length of four bytes, and so
//! many bytes.

use crate::codec::{Malformed, Reader, Writer};
use crate::outcome::Outcome;
use crate::realm::Realm;
use std::time::Duration;
use zeroize::{Zeroize, Zeroizing};

/// Longest message. A ticket with a large Windows PAC has 64 KiB, a keytab as much at the most.
pub const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// Longest password that is taken; libkrb5 would take any.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Longest name of a principal, realm included.
pub const PRINCIPAL_BYTES_MAX: usize = 512;

/// What the program goes by.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// The realm of users, and its servers.
    pub realm: Realm,
    /// Bytes of a keytab with keys of this host; empty when the KDC is not to be verified.
    pub keytab: Zeroizing<Vec<u8>>,
    /// How long tickets are to hold; 0 is what the KDC gives.
    pub life_seconds: u32,
    /// For how long they are to be renewable; 0 is not at all.
    pub renewable_seconds: u32,
    /// Whether they may be handed on to other hosts.
    pub forwardable: bool,
    /// TCP ports of servers; none when they are not known beforehand.
    pub ports: Vec<u16>,
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A ticket for the user's session.
    Ticket,
    /// Whether the password is right, and may be changed.
    MayChange,
    /// A new password.
    Change,
    /// An answer, whatever it is: by anybody's name, to see whether a KDC is there. Nothing is made sure of.
    Presence,
}

/// One log-in or one change of a password. Never logged, hence no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// The reply has the same.
    pub id: u64,
    /// How long it may take.
    pub deadline: Duration,
    /// What is wanted.
    pub want: Want,
    /// The user's name as one component of a principal, or with `is_principal` the whole principal.
    pub name: String,
    /// What `name` is.
    pub is_principal: bool,
    /// The realm to use for this request in place of the one in [`Setup`].
    pub realm: Option<Realm>,
    /// The password.
    pub password: Zeroizing<Vec<u8>>,
    /// The new one, with [`Want::Change`].
    pub new_password: Zeroizing<Vec<u8>>,
}

/// What became of it. Never logged, hence no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    /// Of the request.
    pub id: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// Of a login: whether the KDC has shown that it knows a key of this host. Of a refusal: whether a KDC that
    /// knows it is there to have said so; errors of KDCs are not signed. Of a change: whether such a KDC has
    /// shown that the new password is the right one.
    pub is_sure: bool,
    /// Of a change that is no success: whether it was surely not done.
    pub is_undone: bool,
    /// What the server says to the user; may be empty.
    pub words: String,
    /// Why, for the log; may be empty.
    pub detail: String,
    /// When the password will have expired, in seconds since 1970; 0 when that is not known.
    pub password_expires: u32,
    /// The principal that the KDC knows the user by.
    pub principal: String,
    /// The ticket, as a file of [`crate::file`]; empty when there is none.
    pub ticket: Zeroizing<Vec<u8>>,
}

impl Setup {
    /// As a message, length in front.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let length = self.realm.encoded_bytes() + self.keytab.len() + 2 * self.ports.len();
        framed(length, |out| {
            self.realm.encode(out);
            out.bytes(&self.keytab);
            out.number(self.life_seconds);
            out.number(self.renewable_seconds);
            out.byte(self.forwardable.into());
            out.bytes(&self.ports.iter().flat_map(|port| port.to_be_bytes()).collect::<Vec<_>>());
        })
    }

    /// From a message without its length.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(message);
        let setup = Self {
            realm: Realm::decode(&mut reader)?,
            keytab: Zeroizing::new(reader.bytes()?.to_vec()),
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

impl Request {
    /// As a message, length in front.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let realm = self.realm.as_ref().map_or(0, Realm::encoded_bytes);
        let length = self.name.len() + realm + self.password.len() + self.new_password.len();
        framed(length, |out| {
            out.long(self.id);
            out.number(u32::try_from(self.deadline.as_millis()).unwrap_or(u32::MAX));
            out.byte(match self.want {
                Want::Ticket => 0,
                Want::MayChange => 1,
                Want::Change => 2,
                Want::Presence => 3,
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

    /// From a message without its length. Passwords that the library could not take are malformed:
    /// the back-end refuses them before.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(message);
        let request = Self {
            id: reader.long()?,
            deadline: Duration::from_millis(reader.number()?.into()),
            want: match reader.byte()? {
                0 => Want::Ticket,
                1 => Want::MayChange,
                2 => Want::Change,
                3 => Want::Presence,
                _ => return Err(Malformed),
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
            || !is_well(&request.new_password, request.want == Want::Change)
        {
            return Err(Malformed);
        }
        Ok(request)
    }
}

fn password(reader: &mut Reader<'_>) -> Result<Zeroizing<Vec<u8>>, Malformed> {
    let bytes = reader.bytes()?;
    let takes = bytes.len() <= PASSWORD_BYTES_MAX && !bytes.contains(&0);
    if takes { Ok(Zeroizing::new(bytes.to_vec())) } else { Err(Malformed) }
}

impl Reply {
    /// An outcome without anything to hand on.
    #[must_use]
    pub fn of(id: u64, outcome: Outcome, detail: impl Into<String>) -> Self {
        Self {
            id,
            outcome,
            is_sure: false,
            is_undone: false,
            words: String::new(),
            detail: detail.into(),
            password_expires: 0,
            principal: String::new(),
            ticket: Zeroizing::default(),
        }
    }

    /// As a message, length in front.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let texts = self.words.len() + self.detail.len() + self.principal.len();
        framed(texts + self.ticket.len(), |out| {
            out.long(self.id);
            out.byte(self.outcome.code());
            out.byte(self.is_sure.into());
            out.byte(self.is_undone.into());
            out.bytes(self.words.as_bytes());
            out.bytes(self.detail.as_bytes());
            out.number(self.password_expires);
            out.bytes(self.principal.as_bytes());
            out.bytes(&self.ticket);
        })
    }

    /// From a message without its length.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(message);
        let reply = Self {
            id: reader.long()?,
            outcome: Outcome::of_code(reader.byte()?).ok_or(Malformed)?,
            is_sure: reader.flag()?,
            is_undone: reader.flag()?,
            words: reader.text()?.to_owned(),
            detail: reader.text()?.to_owned(),
            password_expires: reader.number()?,
            principal: reader.text()?.to_owned(),
            ticket: Zeroizing::new(reader.bytes()?.to_vec()),
        };
        reader.end()?;
        Ok(reply)
    }
}

/// Room for the fields that are no bytes, and lengths.
const FIELDS_BYTES: usize = 64;

fn framed(bytes: usize, fill: impl FnOnce(&mut Writer)) -> Zeroizing<Vec<u8>> {
    let mut out = Writer::new(bytes + FIELDS_BYTES);
    out.number(0);
    fill(&mut out);
    let length = u32::try_from(out.0.len() - 4).unwrap_or(u32::MAX);
    out.0[..4].copy_from_slice(&length.to_be_bytes());
    out.0
}

/// Messages out of a stream.
#[derive(Default)]
pub struct Incoming(Vec<u8>);

impl Incoming {
    /// Leaves nothing of what came and is not read yet, nor room for it.
    pub fn wipe(&mut self) {
        self.0.zeroize();
        self.0 = Vec::new();
    }

    /// What came.
    pub fn push(&mut self, bytes: &[u8]) {
        // One that grows would leave a copy of a password behind.
        if self.0.capacity() < self.0.len() + bytes.len() {
            let room = (self.0.len() + bytes.len()).max(2 * self.0.capacity()).max(4096);
            let mut larger = Vec::with_capacity(room);
            larger.extend_from_slice(&self.0);
            self.0.zeroize();
            self.0 = larger;
        }
        self.0.extend_from_slice(bytes);
    }

    /// The next whole message without its length, if there is one. An error is a message that is
    /// longer than any may be: nothing behind it can be read.
    pub fn message(&mut self) -> Result<Option<Zeroizing<Vec<u8>>>, Malformed> {
        let Some(head) = self.0.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(Malformed);
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

impl Drop for Incoming {
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

    fn request() -> Request {
        Request {
            id: 7,
            deadline: Duration::from_millis(1500),
            want: Want::Change,
            name: "alice".into(),
            is_principal: false,
            realm: Some(realm()),
            password: Zeroizing::new(b"old".to_vec()),
            new_password: Zeroizing::new(b"new".to_vec()),
        }
    }

    #[test]
    fn messages_come_back_as_they_were_however_the_stream_is_cut() {
        let reply = Reply {
            words: "Too short.".into(),
            password_expires: 9,
            principal: "alice@LAB.TEST".into(),
            ticket: Zeroizing::new(vec![1; 3000]),
            is_sure: true,
            is_undone: true,
            ..Reply::of(7, Outcome::NewPasswordRefused, "softerror")
        };
        let mut stream = request().encode().to_vec();
        stream.extend_from_slice(&reply.encode());
        for size in [1, 3, 4, 1000, stream.len()] {
            let (mut incoming, mut found) = (Incoming::default(), Vec::new());
            for piece in stream.chunks(size) {
                incoming.push(piece);
                while let Some(message) = incoming.message().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found.len(), 2);
            assert!(Request::decode(&found[0]) == Ok(request()));
            assert!(Reply::decode(&found[1]) == Ok(reply.clone()));
        }
        let setup =
            Setup { realm: realm(), forwardable: true, ports: vec![88, 464], ..Setup::default() };
        assert!(Setup::decode(&setup.encode()[4..]) == Ok(setup));
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_no_message() {
        let whole = request().encode();
        for length in 4..whole.len() {
            assert!(Request::decode(&whole[4..length]).is_err(), "{length}");
        }
        let longer = [&whole[4..], b"x"].concat();
        assert!(Request::decode(&longer).is_err());
        let mut incoming = Incoming::default();
        incoming.push(&u32::MAX.to_be_bytes());
        assert_eq!(incoming.message(), Err(Malformed));
    }

    #[test]
    fn what_is_wiped_is_no_message_any_more() {
        let mut incoming = Incoming::default();
        incoming.push(&request().encode());
        incoming.wipe();
        assert_eq!(incoming.0.capacity(), 0);
        assert!(incoming.message().unwrap().is_none());
    }

    #[test]
    fn an_empty_password_and_one_with_a_nul_reach_no_library() {
        for password in [&b""[..], b"a\0b", &[b'x'; PASSWORD_BYTES_MAX + 1]] {
            let request = Request { password: Zeroizing::new(password.to_vec()), ..request() };
            assert!(Request::decode(&request.encode()[4..]).is_err());
        }
    }
}
