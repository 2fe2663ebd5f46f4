// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between a backend and its `roster-krb5 bind`, which makes SASL GSSAPI binds with a key of this host.
//!
//! First the backend sends a [`BindSetup`] over a stream socket, and receives a [`BindReply`]. Then it sends one byte
//! with descriptors for each connection: one end of a pair of sockets, and for a connection without TLS the socket of
//! the directory server. Over the other end of the pair it sends [`BindCall`]s. Each call but the last gets one
//! [`BindReply`]. After [`BindCall::Relay`], the pair has plain LDAP in both directions, and the program encrypts it.
//! A message has a length of four bytes, followed by that many bytes.

use crate::codec::{DecodeError, FieldReader};
use crate::ipc::{PRINCIPAL_BYTES_MAX, framed};
use crate::realm::{Realm, has_only};
use roster_messages::Message;
use std::time::Duration;
use zeroize::Zeroizing;

/// The byte that accompanies descriptors.
pub const DESCRIPTORS_BYTE: u8 = b'+';
/// Longest message. A token with a large Windows PAC has 64 KiB.
pub const BIND_MESSAGE_BYTES_MAX: usize = 256 << 10;
/// Longest name of a directory server.
const HOST_BYTES_MAX: usize = 253;

/// Configuration of the program.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct BindSetup {
    /// The realm of this host and of the directory servers, and its KDCs.
    pub realm: Realm,
    /// Bytes of a keytab with keys of this host.
    pub keytab: Zeroizing<Vec<u8>>,
    /// The principal of the binds. If empty, the program chooses among those of the keytab.
    pub principal: String,
    /// TCP ports of KDCs; empty if they are unknown beforehand.
    pub ports: Vec<u16>,
}

/// A step of one bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindCall {
    /// Begins a bind at `ldap/HOST@REALM`.
    Start {
        /// The name of the directory server in the configuration.
        host: String,
        /// Time limit of the whole bind.
        deadline: Duration,
        /// Whether the bind must agree on encryption, because the connection has no TLS.
        seals: bool,
        /// Identifies the TLS connection (RFC 5929); may be empty.
        channel_binding: Vec<u8>,
    },
    /// Passes on a token of the server.
    Token(Vec<u8>),
    /// The server has accepted the bind. Encryption starts.
    Relay,
}

/// The reply to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindReply {
    /// The program is ready. The text states the sandbox in force.
    Ready(String),
    /// A token for the server, which then sends another one.
    Token(Vec<u8>),
    /// The last token for the server.
    Last {
        /// The token.
        token: Vec<u8>,
        /// Remaining life of the ticket.
        life: Duration,
        /// The principal of the bind.
        principal: String,
    },
    /// The bind is impossible.
    Failed {
        /// The row of the table.
        message: &'static Message,
        /// The reason.
        detail: String,
    },
}

impl BindSetup {
    /// Encodes a message, with its length.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let texts = self.principal.len() + self.realm.encoded_bytes();
        framed(texts + self.keytab.len() + 2 * self.ports.len(), |out| {
            self.realm.encode(out);
            out.bytes(&self.keytab);
            out.bytes(self.principal.as_bytes());
            out.bytes(&self.ports.iter().flat_map(|port| port.to_be_bytes()).collect::<Vec<_>>());
        })
    }

    /// Decodes a message without its length.
    pub fn decode(message: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader(message);
        let realm = Realm::decode(&mut reader)?;
        let keytab = Zeroizing::new(reader.bytes()?.to_vec());
        let principal = reader.text()?.to_owned();
        let ports = reader.bytes()?.as_chunks().0.iter().map(|&port| u16::from_be_bytes(port));
        let setup = Self { realm, keytab, principal, ports: ports.collect() };
        reader.end()?;
        let is_well = setup.principal.is_empty() || is_principal(&setup.principal);
        if is_well { Ok(setup) } else { Err(DecodeError) }
    }
}

/// Whether this is a principal without characters that its usual form would escape.
fn is_principal(text: &str) -> bool {
    (1..=PRINCIPAL_BYTES_MAX).contains(&text.len()) && has_only(text, b".-_/$@")
}

/// Whether this can be the host of a service principal.
fn is_host(text: &str) -> bool {
    (1..=HOST_BYTES_MAX).contains(&text.len()) && has_only(text, b".-_:")
}

impl BindCall {
    /// Encodes a message, with its length.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        match self {
            Self::Start { host, deadline, seals, channel_binding } => {
                framed(host.len() + channel_binding.len(), |out| {
                    out.byte(0);
                    out.bytes(host.as_bytes());
                    out.number(u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX));
                    out.byte((*seals).into());
                    out.bytes(channel_binding);
                })
            }
            Self::Token(token) => framed(token.len(), |out| {
                out.byte(1);
                out.bytes(token);
            }),
            Self::Relay => framed(0, |out| out.byte(2)),
        }
    }

    /// Decodes a message without its length.
    pub fn decode(message: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader(message);
        let call = match reader.byte()? {
            0 => Self::Start {
                host: reader.text()?.to_owned(),
                deadline: Duration::from_millis(reader.number()?.into()),
                seals: reader.flag()?,
                channel_binding: reader.bytes()?.to_vec(),
            },
            1 => Self::Token(reader.bytes()?.to_vec()),
            2 => Self::Relay,
            _ => return Err(DecodeError),
        };
        reader.end()?;
        match &call {
            Self::Start { host, .. } if !is_host(host) => Err(DecodeError),
            _ => Ok(call),
        }
    }
}

impl BindReply {
    /// Encodes a message, with its length.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        match self {
            Self::Ready(in_force) => framed(in_force.len(), |out| {
                out.byte(0);
                out.bytes(in_force.as_bytes());
            }),
            Self::Token(token) => framed(token.len(), |out| {
                out.byte(1);
                out.bytes(token);
            }),
            Self::Last { token, life, principal } => framed(token.len() + principal.len(), |out| {
                out.byte(2);
                out.bytes(token);
                out.number(u32::try_from(life.as_secs()).unwrap_or(u32::MAX));
                out.bytes(principal.as_bytes());
            }),
            Self::Failed { message, detail } => framed(detail.len(), |out| {
                out.byte(3);
                out.bytes(message.code.as_bytes());
                out.bytes(detail.as_bytes());
            }),
        }
    }

    /// Decodes a message without its length.
    pub fn decode(message: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader(message);
        let reply = match reader.byte()? {
            0 => Self::Ready(reader.text()?.to_owned()),
            1 => Self::Token(reader.bytes()?.to_vec()),
            2 => Self::Last {
                token: reader.bytes()?.to_vec(),
                life: Duration::from_secs(reader.number()?.into()),
                principal: reader.text()?.to_owned(),
            },
            3 => Self::Failed {
                message: roster_messages::find(reader.text()?).ok_or(DecodeError)?,
                detail: reader.text()?.to_owned(),
            },
            _ => return Err(DecodeError),
        };
        reader.end()?;
        Ok(reply)
    }
}

/// Returns the length of a message after its first four bytes. Fails above the limit.
pub fn message_length(head: [u8; 4]) -> Result<usize, DecodeError> {
    let length = u32::from_be_bytes(head) as usize;
    if length <= BIND_MESSAGE_BYTES_MAX { Ok(length) } else { Err(DecodeError) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_messages::table::login;

    fn start(host: &str) -> BindCall {
        BindCall::Start {
            host: host.to_owned(),
            deadline: Duration::from_millis(1500),
            seals: true,
            channel_binding: b"tls-server-end-point:x".to_vec(),
        }
    }

    fn setup(principal: &str) -> BindSetup {
        BindSetup {
            realm: Realm {
                name: "LAB.TEST".into(),
                kdcs: vec!["kdc1:88".into()],
                ..Realm::default()
            },
            keytab: Zeroizing::new(vec![5, 2]),
            principal: principal.to_owned(),
            ports: vec![88, 53],
        }
    }

    #[test]
    fn bind_messages_survive_encoding_whole_only() {
        for call in [start("ldap1.lab.test"), BindCall::Token(vec![0; 3000]), BindCall::Relay] {
            let bytes = call.encode();
            assert_eq!(message_length(*bytes.first_chunk().unwrap()), Ok(bytes.len() - 4));
            assert_eq!(BindCall::decode(&bytes[4..]), Ok(call));
            assert_eq!(BindCall::decode(&[&bytes[4..], b"x"].concat()), Err(DecodeError));
            assert_eq!(BindCall::decode(&bytes[4..bytes.len() - 1]), Err(DecodeError));
        }
        for reply in [
            BindReply::Ready("landlock".into()),
            BindReply::Token(Vec::new()),
            BindReply::Last {
                token: vec![1],
                life: Duration::from_secs(36_000),
                principal: "host/h@LAB.TEST".into(),
            },
            BindReply::Failed { message: &login::CLOCK_SKEW, detail: "late".into() },
        ] {
            let bytes = reply.encode();
            assert_eq!(BindReply::decode(&bytes[4..]), Ok(reply));
            assert_eq!(BindReply::decode(&bytes[4..bytes.len() - 1]), Err(DecodeError));
        }
        for principal in ["", "host/h.lab.test@LAB.TEST", "H$"] {
            let setup = setup(principal);
            assert!(BindSetup::decode(&setup.encode()[4..]) == Ok(setup));
        }
        assert_eq!(message_length(u32::MAX.to_be_bytes()), Err(DecodeError));
    }

    #[test]
    fn bind_names_with_special_characters_are_malformed() {
        for name in ["", "a b", "a\\b", "a\0b", "a/b@C", "a\n", "ä", &"x".repeat(254)] {
            assert_eq!(BindCall::decode(&start(name).encode()[4..]), Err(DecodeError), "{name:?}");
        }
        for name in ["a b", "a\\@b", "a\0", "a\n", &"x".repeat(513)] {
            assert!(BindSetup::decode(&setup(name).encode()[4..]).is_err(), "{name:?}");
        }
    }
}
