// SPDX-License-Identifier: MIT OR Apache-2.0
//! LDAP's messages (RFC 4511) and the extensions in use. Encodes requests, and parses responses without a copy. Knows
//! no connection and has no state. The extensions are: `ber` has the elements, and `connection` the bytes.
//!
//! - paged results (RFC 2696)
//! - content synchronization (RFC 4533)
//! - persistent search
//! - password policy (draft-behera-ldap-password-policy, and the controls of Netscape's successors)
//! - change of passwords (RFC 3062)
//! - SASL binds (RFC 4422, with EXTERNAL and GSSAPI)

use crate::ber::{self, BerError, BerReader, BerWriter, tag};
use crate::filter::EncodedFilter;
use std::fmt;

/// Object identifiers.
pub mod oid {
    /// RFC 2696, simple paged results.
    pub const PAGED: &str = "1.2.840.113556.1.4.319";
    /// RFC 4533, sync request control.
    pub const SYNC_REQUEST: &str = "1.3.6.1.4.1.4203.1.9.1.1";
    /// RFC 4533, sync state control.
    pub const SYNC_STATE: &str = "1.3.6.1.4.1.4203.1.9.1.2";
    /// RFC 4533, sync done control.
    pub const SYNC_DONE: &str = "1.3.6.1.4.1.4203.1.9.1.3";
    /// RFC 4533, sync info message.
    pub const SYNC_INFO: &str = "1.3.6.1.4.1.4203.1.9.1.4";
    /// Persistent search.
    pub const PERSISTENT_SEARCH: &str = "2.16.840.1.113730.3.4.3";
    /// Entry change notification of a persistent search.
    pub const ENTRY_CHANGE: &str = "2.16.840.1.113730.3.4.7";
    /// Password policy, request and response.
    pub const PASSWORD_POLICY: &str = "1.3.6.1.4.1.42.2.27.8.5.1";
    /// The password has expired. From Netscape's successors.
    pub const PASSWORD_EXPIRED: &str = "2.16.840.1.113730.3.4.4";
    /// The password expires in a number of seconds. From Netscape's successors.
    pub const PASSWORD_EXPIRING: &str = "2.16.840.1.113730.3.4.5";
    /// RFC 3062, modify password.
    pub const MODIFY_PASSWORD: &str = "1.3.6.1.4.1.4203.1.11.1";
    /// StartTLS.
    pub const START_TLS: &str = "1.3.6.1.4.1.1466.20037";
}

/// Result codes that this crate handles.
pub mod code {
    /// success.
    pub const SUCCESS: u32 = 0;
    /// timeLimitExceeded.
    pub const TIME_LIMIT: u32 = 3;
    /// sizeLimitExceeded.
    pub const SIZE_LIMIT: u32 = 4;
    /// referral.
    pub const REFERRAL: u32 = 10;
    /// adminLimitExceeded.
    pub const ADMIN_LIMIT: u32 = 11;
    /// saslBindInProgress.
    pub const SASL_BIND_IN_PROGRESS: u32 = 14;
    /// noSuchObject.
    pub const NO_SUCH_OBJECT: u32 = 32;
    /// invalidCredentials.
    pub const INVALID_CREDENTIALS: u32 = 49;
    /// insufficientAccessRights.
    pub const INSUFFICIENT_ACCESS: u32 = 50;
    /// busy.
    pub const BUSY: u32 = 51;
    /// unavailable.
    pub const UNAVAILABLE: u32 = 52;
    /// e-syncRefreshRequired.
    pub const SYNC_REFRESH_REQUIRED: u32 = 4096;

    /// Results that a later request may not have.
    pub const TRANSIENT: [u32; 3] = [TIME_LIMIT, BUSY, UNAVAILABLE];
    /// Limits of a server.
    pub const LIMITS: [u32; 3] = [TIME_LIMIT, SIZE_LIMIT, ADMIN_LIMIT];
}

/// The depth of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The base alone.
    Base = 0,
    /// The entries directly below the base.
    One = 1,
    /// The base and all entries below.
    Subtree = 2,
}

/// A search request.
#[derive(Clone, Debug)]
pub struct SearchRequest<'a> {
    /// The base.
    pub base: &'a str,
    /// The depth.
    pub scope: Scope,
    /// The filter.
    pub filter: &'a EncodedFilter,
    /// The requested attributes.
    pub attributes: &'a [&'a str],
    /// Limit of entries. 0 requests all.
    pub entries_max: u32,
}

/// A change of one attribute.
#[derive(Clone, Copy)]
pub struct AttributeChange<'a> {
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The attribute.
    pub attribute: &'a str,
    /// The value.
    pub value: &'a [u8],
}

/// Kind of an [`AttributeChange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Adds the value.
    Add = 0,
    /// Deletes the value.
    Delete = 1,
    /// Replaces all values by the value.
    Replace = 2,
}

/// A request.
#[derive(Clone)]
pub enum LdapRequest<'a> {
    /// Simple bind.
    SimpleBind {
        /// The bind DN. Empty for an anonymous bind.
        dn: &'a str,
        /// The identity's password.
        password: &'a [u8],
    },
    /// SASL EXTERNAL bind with the identity of the connection.
    ExternalBind,
    /// A step of a SASL GSSAPI bind, with a token for the server.
    GssapiBind(&'a [u8]),
    /// Search.
    Search(SearchRequest<'a>),
    /// Abandons the request of this id.
    Abandon(u32),
    /// Changes the password of the user of this DN.
    ModifyPassword {
        /// The DN.
        dn: &'a str,
        /// The present password.
        old: &'a [u8],
        /// The next password.
        new: &'a [u8],
    },
    /// Modifies an entry. All changes are made, or none.
    Modify {
        /// The DN.
        dn: &'a str,
        /// The changes, in order.
        changes: &'a [AttributeChange<'a>],
    },
    /// Starts TLS.
    StartTls,
    /// Ends the connection.
    Unbind,
}

/// Omits passwords and values.
impl fmt::Debug for LdapRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SimpleBind { dn, .. } => write!(f, "SimpleBind({dn:?})"),
            Self::ExternalBind => f.write_str("ExternalBind"),
            Self::GssapiBind(_) => f.write_str("GssapiBind"),
            Self::Search(search) => search.fmt(f),
            Self::Abandon(id) => write!(f, "Abandon({id})"),
            Self::ModifyPassword { dn, .. } => write!(f, "ModifyPassword({dn:?})"),
            Self::Modify { dn, changes } => {
                let names: Vec<_> =
                    changes.iter().map(|change| (change.kind, change.attribute)).collect();
                write!(f, "Modify({dn:?}, {names:?})")
            }
            Self::StartTls => f.write_str("StartTls"),
            Self::Unbind => f.write_str("Unbind"),
        }
    }
}

/// A control on a request.
#[derive(Clone, Debug)]
pub enum RequestControl<'a> {
    /// A page of at most this many entries, with the cookie of the previous page.
    Paged(u32, &'a [u8]),
    /// Content synchronization in mode refreshAndPersist, from this cookie on.
    Sync(Option<&'a [u8]>),
    /// Persistent search: changes only, of every type, each with its notification.
    PersistentSearch,
    /// Requests the state of the password policy.
    PasswordPolicy,
}

impl LdapRequest<'_> {
    /// Encodes the whole message. A control is critical if a server without it would send another result. A request
    /// with passwords is written into a single allocation, which the caller owns.
    #[must_use]
    pub fn encode(&self, id: u32, controls: &[RequestControl<'_>]) -> Vec<u8> {
        let mut writer = BerWriter::with_capacity(self.secret_room());
        writer.constructed(tag::SEQUENCE, |writer| {
            writer.number(tag::INTEGER, id);
            self.write(writer);
            if !controls.is_empty() {
                writer.constructed(tag::context_constructed(0), |writer| {
                    controls.iter().for_each(|control| control.write(writer));
                });
            }
        });
        writer.into_bytes()
    }

    /// Returns a sufficient capacity for a request with passwords. Returns 0 for other requests.
    fn secret_room(&self) -> usize {
        /// All tags and lengths, the identifier of the operation, and controls.
        const AROUND: usize = 256;
        /// The same for one change of an attribute.
        const AROUND_CHANGE: usize = 64;
        match self {
            Self::SimpleBind { dn, password } => AROUND + dn.len() + password.len(),
            Self::ModifyPassword { dn, old, new } => AROUND + dn.len() + old.len() + new.len(),
            Self::Modify { dn, changes } => changes.iter().fold(
                AROUND + dn.len(),
                |sum, AttributeChange { attribute, value, .. }| {
                    sum + AROUND_CHANGE + attribute.len() + value.len()
                },
            ),
            _ => 0,
        }
    }

    fn write(&self, writer: &mut BerWriter) {
        match self {
            Self::SimpleBind { dn, password } => {
                writer.constructed(tag::application(0), |writer| {
                    writer.number(tag::INTEGER, 3);
                    writer.octets(dn.as_bytes());
                    writer.primitive(tag::context(0), password);
                });
            }
            Self::ExternalBind => write_sasl(writer, b"EXTERNAL", b""),
            Self::GssapiBind(token) => write_sasl(writer, b"GSSAPI", token),
            Self::Search(search) => search.write(writer),
            Self::Abandon(id) => writer.number(0x50, *id),
            Self::ModifyPassword { dn, old, new } => {
                writer.constructed(tag::application(23), |writer| {
                    writer.primitive(tag::context(0), oid::MODIFY_PASSWORD.as_bytes());
                    writer.constructed(tag::context(1), |writer| {
                        writer.constructed(tag::SEQUENCE, |writer| {
                            writer.primitive(tag::context(0), dn.as_bytes());
                            writer.primitive(tag::context(1), old);
                            writer.primitive(tag::context(2), new);
                        });
                    });
                });
            }
            Self::Modify { dn, changes } => {
                writer.constructed(tag::application(6), |writer| {
                    writer.octets(dn.as_bytes());
                    writer.constructed(tag::SEQUENCE, |writer| {
                        changes.iter().for_each(|change| change.write(writer));
                    });
                });
            }
            Self::StartTls => writer.constructed(tag::application(23), |writer| {
                writer.primitive(tag::context(0), oid::START_TLS.as_bytes());
            }),
            Self::Unbind => writer.primitive(0x42, b""),
        }
    }
}

fn write_sasl(writer: &mut BerWriter, mechanism: &[u8], credentials: &[u8]) {
    writer.constructed(tag::application(0), |writer| {
        writer.number(tag::INTEGER, 3);
        writer.octets(b"");
        writer.constructed(tag::context_constructed(3), |writer| {
            writer.octets(mechanism);
            writer.octets(credentials);
        });
    });
}

impl AttributeChange<'_> {
    fn write(&self, writer: &mut BerWriter) {
        writer.constructed(tag::SEQUENCE, |writer| {
            writer.number(tag::ENUMERATED, self.kind as u32);
            writer.constructed(tag::SEQUENCE, |writer| {
                writer.octets(self.attribute.as_bytes());
                writer.constructed(tag::SET, |writer| writer.octets(self.value));
            });
        });
    }
}

impl SearchRequest<'_> {
    fn write(&self, writer: &mut BerWriter) {
        const NEVER_DEREFERENCE: u32 = 0;
        writer.constructed(tag::application(3), |writer| {
            writer.octets(self.base.as_bytes());
            writer.number(tag::ENUMERATED, self.scope as u32);
            writer.number(tag::ENUMERATED, NEVER_DEREFERENCE);
            writer.number(tag::INTEGER, self.entries_max);
            writer.number(tag::INTEGER, 0); // no time limit at the server, the caller has one
            writer.boolean(false);
            writer.raw(self.filter.encoded());
            writer.constructed(tag::SEQUENCE, |writer| {
                self.attributes.iter().for_each(|name| writer.octets(name.as_bytes()));
            });
        });
    }
}

impl RequestControl<'_> {
    fn write(&self, writer: &mut BerWriter) {
        const REFRESH_AND_PERSIST: u32 = 3;
        const EVERY_CHANGE_TYPE: u32 = 1 | 2 | 4 | 8;
        let mut value = BerWriter::default();
        let name = match self {
            Self::Paged(size, cookie) => {
                value.constructed(tag::SEQUENCE, |value| {
                    value.number(tag::INTEGER, *size);
                    value.octets(cookie);
                });
                oid::PAGED
            }
            Self::Sync(cookie) => {
                value.constructed(tag::SEQUENCE, |value| {
                    value.number(tag::ENUMERATED, REFRESH_AND_PERSIST);
                    if let Some(cookie) = cookie {
                        value.octets(cookie);
                    }
                });
                oid::SYNC_REQUEST
            }
            Self::PersistentSearch => {
                value.constructed(tag::SEQUENCE, |value| {
                    value.number(tag::INTEGER, EVERY_CHANGE_TYPE);
                    value.boolean(true); // changes only
                    value.boolean(true); // with entry change notifications
                });
                oid::PERSISTENT_SEARCH
            }
            // Not critical: a server without a password policy ignores it, and the bind still works.
            Self::PasswordPolicy => {
                writer.constructed(tag::SEQUENCE, |writer| {
                    writer.octets(oid::PASSWORD_POLICY.as_bytes());
                });
                return;
            }
        };
        writer.constructed(tag::SEQUENCE, |writer| {
            writer.octets(name.as_bytes());
            writer.boolean(true);
            writer.octets(&value.into_bytes());
        });
    }
}

/// A message from a server.
#[derive(Clone, Copy, Debug)]
pub struct LdapResponse<'a> {
    /// The id of its request. 0 for an unsolicited message.
    pub id: u32,
    /// The operation.
    pub operation: ResponseOperation<'a>,
    /// The response's controls.
    pub controls: ResponseControls<'a>,
}

/// The operation of a response.
#[derive(Clone, Copy, Debug)]
pub enum ResponseOperation<'a> {
    /// Result of a bind.
    BindDone(LdapResult<'a>),
    /// The server expects another step of a SASL bind, and sends a token.
    BindStep(&'a [u8]),
    /// An entry.
    Entry(RawEntry<'a>),
    /// A reference to other servers, which is not followed: the encoded URIs.
    Reference(&'a [u8]),
    /// Result of a search.
    SearchDone(LdapResult<'a>),
    /// Result of a modification.
    ModifyDone(LdapResult<'a>),
    /// Result of an extended operation. With id 0 and a name, a notice of the server.
    Extended(LdapResult<'a>, Option<&'a [u8]>),
    /// An intermediate response: name and value.
    Intermediate(Option<&'a [u8]>, Option<&'a [u8]>),
    /// A response to a request that this crate never sends.
    Other,
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LdapResult<'a> {
    /// The result code.
    pub code: u32,
    /// The diagnostic message of the server.
    pub message: &'a [u8],
    /// The encoded URIs of other servers. Empty without a referral.
    pub referral: &'a [u8],
}

impl fmt::Display for LdapResult<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.code {
            1 => "operationsError",
            2 => "protocolError",
            code::TIME_LIMIT => "timeLimitExceeded",
            code::SIZE_LIMIT => "sizeLimitExceeded",
            7 => "authMethodNotSupported",
            8 => "strongerAuthRequired",
            code::REFERRAL => "referral",
            code::ADMIN_LIMIT => "adminLimitExceeded",
            12 => "unavailableCriticalExtension",
            13 => "confidentialityRequired",
            code::SASL_BIND_IN_PROGRESS => "saslBindInProgress",
            code::NO_SUCH_OBJECT => "noSuchObject",
            34 => "invalidDNSyntax",
            48 => "inappropriateAuthentication",
            code::INVALID_CREDENTIALS => "invalidCredentials",
            code::INSUFFICIENT_ACCESS => "insufficientAccessRights",
            code::BUSY => "busy",
            code::UNAVAILABLE => "unavailable",
            53 => "unwillingToPerform",
            80 => "other",
            code::SYNC_REFRESH_REQUIRED => "syncRefreshRequired",
            _ => "result",
        };
        write!(f, "{name} ({})", self.code)?;
        if !self.message.is_empty() {
            write!(f, ": {}", printable(self.message))?;
        }
        Ok(())
    }
}

/// Formats bytes of a server for a log or a report: one line of bounded length.
#[must_use]
pub fn printable(bytes: &[u8]) -> String {
    const BYTES_MAX: usize = 512;
    let text = String::from_utf8_lossy(bytes.get(..BYTES_MAX).unwrap_or(bytes));
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

impl<'a> LdapResponse<'a> {
    /// Parses a message that [`frame`](crate::ber::frame) reported as whole.
    pub fn parse(message: &'a [u8]) -> Result<Self, BerError> {
        let mut outer = BerReader::new(message);
        let mut reader = outer.inner(tag::SEQUENCE)?;
        let id = reader.number(tag::INTEGER)?;
        let (kind, content) = reader.element()?;
        let mut body = BerReader::new(content);
        let operation = match kind {
            0x61 => {
                let outcome = outcome(&mut body)?;
                let _referral = body.optional(tag::context_constructed(3))?;
                match body.optional(tag::context(7))? {
                    Some(token) if outcome.code == code::SASL_BIND_IN_PROGRESS => {
                        ResponseOperation::BindStep(token)
                    }
                    _ => ResponseOperation::BindDone(outcome),
                }
            }
            0x64 => ResponseOperation::Entry(RawEntry {
                dn: body.expect(tag::OCTETS)?,
                attributes: body.expect(tag::SEQUENCE)?,
            }),
            0x65 => ResponseOperation::SearchDone(outcome(&mut body)?),
            0x67 => ResponseOperation::ModifyDone(outcome(&mut body)?),
            0x73 => ResponseOperation::Reference(content),
            0x78 => {
                let outcome = outcome(&mut body)?;
                ResponseOperation::Extended(outcome, body.optional(tag::context(10))?)
            }
            0x79 => ResponseOperation::Intermediate(
                body.optional(tag::context(0))?,
                body.optional(tag::context(1))?,
            ),
            _ => ResponseOperation::Other,
        };
        let controls = reader.optional(tag::context_constructed(0))?.unwrap_or_default();
        Ok(Self { id, operation, controls: ResponseControls { encoded: controls } })
    }
}

fn outcome<'a>(body: &mut BerReader<'a>) -> Result<LdapResult<'a>, BerError> {
    let code = body.number(tag::ENUMERATED)?;
    let _matched = body.expect(tag::OCTETS)?;
    let message = body.expect(tag::OCTETS)?;
    let referral = body.optional(tag::context_constructed(3))?.unwrap_or_default();
    Ok(LdapResult { code, message, referral })
}

/// The controls of a response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseControls<'a> {
    encoded: &'a [u8],
}

impl<'a> ResponseControls<'a> {
    /// Returns the value of the control of this identifier.
    pub fn find(&self, oid: &str) -> Result<Option<&'a [u8]>, BerError> {
        let mut reader = BerReader::new(self.encoded);
        while !reader.is_empty() {
            let mut control = reader.inner(tag::SEQUENCE)?;
            let name = control.expect(tag::OCTETS)?;
            let _critical = control.optional(tag::BOOLEAN)?;
            let value = control.optional(tag::OCTETS)?;
            if name == oid.as_bytes() {
                return Ok(Some(value.unwrap_or_default()));
            }
        }
        Ok(None)
    }

    /// Returns the cookie of the next page. `None` if the server did not page, empty after the last page.
    pub fn page_cookie(&self) -> Result<Option<&'a [u8]>, BerError> {
        let Some(value) = self.find(oid::PAGED)? else { return Ok(None) };
        let mut body = BerReader::new(value).inner(tag::SEQUENCE)?;
        let _estimate = body.element()?;
        body.expect(tag::OCTETS).map(Some)
    }

    /// Returns the state of this message's entry in content synchronization.
    pub fn sync_state(&self) -> Result<Option<SyncState<'a>>, BerError> {
        let Some(value) = self.find(oid::SYNC_STATE)? else { return Ok(None) };
        let mut body = BerReader::new(value).inner(tag::SEQUENCE)?;
        let state = match body.number(tag::ENUMERATED)? {
            0 => SyncEntryState::Present,
            1 | 2 => SyncEntryState::Changed,
            3 => SyncEntryState::Deleted,
            _ => return Err(BerError("an unknown sync state")),
        };
        let uuid = uuid(body.expect(tag::OCTETS)?)?;
        Ok(Some(SyncState { state, uuid, cookie: body.optional(tag::OCTETS)? }))
    }

    /// Returns the state of the password policy, from the controls of either kind.
    pub fn password_policy(&self) -> Result<PolicyResponse, BerError> {
        let mut policy = PolicyResponse::default();
        if let Some(value) = self.find(oid::PASSWORD_POLICY)? {
            let mut body = BerReader::new(value).inner(tag::SEQUENCE)?;
            if let Some(warning) = body.optional(tag::context_constructed(0))? {
                let mut warning = BerReader::new(warning);
                let number = |content: Option<&[u8]>| content.map(ber::number).transpose();
                policy.expires_in = number(warning.optional(tag::context(0))?)?;
                policy.grace = number(warning.optional(tag::context(1))?)?;
            }
            policy.error = body.optional(tag::context(1))?.map(ber::number).transpose()?;
        }
        policy.has_expired = self.find(oid::PASSWORD_EXPIRED)?.is_some();
        if let Some(seconds) = self.find(oid::PASSWORD_EXPIRING)? {
            let seconds =
                std::str::from_utf8(seconds).ok().and_then(|text| text.trim().parse().ok());
            policy.expires_in = policy.expires_in.or(seconds);
        }
        Ok(policy)
    }

    /// Returns the change type of a persistent search's notification.
    pub fn change_type(&self) -> Result<Option<u32>, BerError> {
        let Some(value) = self.find(oid::ENTRY_CHANGE)? else { return Ok(None) };
        BerReader::new(value).inner(tag::SEQUENCE)?.number(tag::ENUMERATED).map(Some)
    }
}

/// State of the password policy beside a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyResponse {
    /// Seconds until the password expires.
    pub expires_in: Option<u32>,
    /// The password has expired, and this number of logins remains.
    pub grace: Option<u32>,
    /// The error, by its number in the draft.
    pub error: Option<u32>,
    /// The password has expired, as reported by Netscape's successors.
    pub has_expired: bool,
}

/// The change type of a removed entry.
pub const CHANGE_DELETE: u32 = 2;
/// The change type of a renamed or moved entry.
pub const CHANGE_MOVE: u32 = 8;

/// The content of a sync state control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncState<'a> {
    /// State of the entry.
    pub state: SyncEntryState,
    /// The entry's permanent key.
    pub uuid: [u8; 16],
    /// The cookie after this entry.
    pub cookie: Option<&'a [u8]>,
}

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncEntryState {
    /// The entry is unchanged.
    Present,
    /// The entry was added or changed.
    Changed,
    /// The entry was deleted, or no longer matches the search.
    Deleted,
}

fn uuid(bytes: &[u8]) -> Result<[u8; 16], BerError> {
    bytes.try_into().map_err(|_| BerError("a UUID that is not of 16 octets"))
}

/// The content of a sync info message.
#[derive(Clone, Copy, Debug)]
pub enum SyncInfo<'a> {
    /// The cookie.
    NewCookie(&'a [u8]),
    /// The end of a phase of the refresh.
    PhaseOver {
        /// The server named all present entries in this phase, so each other entry is gone.
        present: bool,
        /// The cookie.
        cookie: Option<&'a [u8]>,
        /// The whole refresh ended.
        done: bool,
    },
    /// A set of entries that are gone, or that are unchanged.
    Set {
        /// The cookie.
        cookie: Option<&'a [u8]>,
        /// The entries are gone.
        deleted: bool,
        /// The keys of the entries.
        uuids: Uuids<'a>,
    },
}

impl<'a> SyncInfo<'a> {
    /// Parses the value of an intermediate response.
    pub fn parse(value: &'a [u8]) -> Result<Self, BerError> {
        let (kind, content) = BerReader::new(value).element()?;
        let mut body = BerReader::new(content);
        if kind == tag::context(0) {
            return Ok(Self::NewCookie(content));
        }
        let cookie = body.optional(tag::OCTETS)?;
        let flag = body.optional(tag::BOOLEAN)?.map(|value| value != [0]);
        match kind {
            0xa1 | 0xa2 => {
                Ok(Self::PhaseOver { present: kind == 0xa2, cookie, done: flag.unwrap_or(true) })
            }
            0xa3 => Ok(Self::Set {
                cookie,
                deleted: flag.unwrap_or(false),
                uuids: Uuids { reader: body.inner(tag::SET)? },
            }),
            _ => Err(BerError("an unknown sync info message")),
        }
    }
}

/// Keys of entries.
#[derive(Clone, Copy, Debug)]
pub struct Uuids<'a> {
    reader: BerReader<'a>,
}

impl Iterator for Uuids<'_> {
    type Item = Result<[u8; 16], BerError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let one = self.reader.expect(tag::OCTETS).and_then(uuid);
        if one.is_err() {
            self.reader = BerReader::new(b""); // the rest has no boundaries
        }
        Some(one)
    }
}

/// An entry as the server sent it.
#[derive(Clone, Copy, Debug)]
pub struct RawEntry<'a> {
    /// The entry's DN.
    pub dn: &'a [u8],
    attributes: &'a [u8],
}

impl<'a> RawEntry<'a> {
    /// Returns its attributes.
    #[must_use]
    pub fn attributes(&self) -> EntryAttributes<'a> {
        EntryAttributes { reader: BerReader::new(self.attributes) }
    }

    /// Returns the values of an attribute.
    pub fn values(&self, name: &str) -> Result<AttributeValues<'a>, BerError> {
        for attribute in self.attributes() {
            let (found, values) = attribute?;
            if found.eq_ignore_ascii_case(name.as_bytes()) {
                return Ok(values);
            }
        }
        Ok(AttributeValues { reader: BerReader::new(b"") })
    }
}

/// Attributes of an entry: description and values.
#[derive(Clone, Copy, Debug)]
pub struct EntryAttributes<'a> {
    reader: BerReader<'a>,
}

impl<'a> Iterator for EntryAttributes<'a> {
    type Item = Result<(&'a [u8], AttributeValues<'a>), BerError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let mut one = || {
            let mut attribute = self.reader.inner(tag::SEQUENCE)?;
            let name = attribute.expect(tag::OCTETS)?;
            Ok((name, AttributeValues { reader: attribute.inner(tag::SET)? }))
        };
        let one = one();
        if one.is_err() {
            self.reader = BerReader::new(b"");
        }
        Some(one)
    }
}

/// Values of an attribute.
#[derive(Clone, Copy, Debug)]
pub struct AttributeValues<'a> {
    reader: BerReader<'a>,
}

impl<'a> Iterator for AttributeValues<'a> {
    type Item = Result<&'a [u8], BerError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let one = self.reader.expect(tag::OCTETS);
        if one.is_err() {
            self.reader = BerReader::new(b"");
        }
        Some(one)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Messages as servers write them.

    use super::*;

    /// Returns a search result entry.
    pub fn entry(dn: &str, attributes: &[(&str, &[&[u8]])]) -> Vec<u8> {
        message(7, &[], |writer| {
            writer.constructed(0x64, |writer| {
                writer.octets(dn.as_bytes());
                writer.constructed(tag::SEQUENCE, |writer| {
                    for (name, values) in attributes {
                        writer.constructed(tag::SEQUENCE, |writer| {
                            writer.octets(name.as_bytes());
                            writer.constructed(tag::SET, |writer| {
                                values.iter().for_each(|value| writer.octets(value));
                            });
                        });
                    }
                });
            });
        })
    }

    /// Returns a message with these controls: identifier and value.
    pub fn message(
        id: u32,
        controls: &[(&str, &[u8])],
        operation: impl FnOnce(&mut BerWriter),
    ) -> Vec<u8> {
        let mut writer = BerWriter::default();
        writer.constructed(tag::SEQUENCE, |writer| {
            writer.number(tag::INTEGER, id);
            operation(writer);
            if !controls.is_empty() {
                writer.constructed(tag::context_constructed(0), |writer| {
                    for (name, value) in controls {
                        writer.constructed(tag::SEQUENCE, |writer| {
                            writer.octets(name.as_bytes());
                            writer.octets(value);
                        });
                    }
                });
            }
        });
        writer.into_bytes()
    }

    /// Returns the entry of a message.
    pub fn raw(message: &[u8]) -> RawEntry<'_> {
        match LdapResponse::parse(message).unwrap().operation {
            ResponseOperation::Entry(entry) => entry,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the bytes that `fill` writes.
    pub fn written(fill: impl FnOnce(&mut BerWriter)) -> Vec<u8> {
        let mut writer = BerWriter::default();
        fill(&mut writer);
        writer.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{entry, message, raw, written};
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn requests_are_those_of_the_standard() {
        assert_eq!(hex(&LdapRequest::Unbind.encode(5, &[])), "3084000000050201054200");
        assert_eq!(hex(&LdapRequest::Abandon(3).encode(6, &[])), "308400000006020106500103");
        assert_eq!(
            hex(&LdapRequest::SimpleBind { dn: "cn=a", password: b"b" }.encode(1, &[])),
            "30840000001502010160840000000c".to_owned() + "0201030404636e3d61800162"
        );
    }

    #[test]
    fn a_request_that_is_printed_does_not_show_the_password() {
        let bind = LdapRequest::SimpleBind { dn: "cn=a", password: b"secret" };
        assert_eq!(format!("{bind:?}"), "SimpleBind(\"cn=a\")");
        let change = LdapRequest::ModifyPassword { dn: "cn=a", old: b"secret", new: b"other" };
        assert_eq!(format!("{change:?}"), "ModifyPassword(\"cn=a\")");
        let changes = [change_of(ChangeKind::Replace, b"secret")];
        let modify = LdapRequest::Modify { dn: "cn=a", changes: &changes };
        assert_eq!(format!("{modify:?}"), "Modify(\"cn=a\", [(Replace, \"userPassword\")])");
    }

    fn change_of(kind: ChangeKind, value: &[u8]) -> AttributeChange<'_> {
        AttributeChange { kind, attribute: "userPassword", value }
    }

    #[test]
    fn modify_request_is_that_of_the_standard() {
        let changes = [change_of(ChangeKind::Delete, b"old"), change_of(ChangeKind::Add, b"new")];
        let bytes = LdapRequest::Modify { dn: "cn=a", changes: &changes }.encode(1, &[]);
        let mut message = BerReader::new(&bytes).inner(tag::SEQUENCE).unwrap();
        message.number(tag::INTEGER).unwrap();
        let mut request = message.inner(tag::application(6)).unwrap();
        assert_eq!(request.expect(tag::OCTETS), Ok(&b"cn=a"[..]));
        let mut list = request.inner(tag::SEQUENCE).unwrap();
        for (kind, value) in [(1, &b"old"[..]), (0, b"new")] {
            let mut change = list.inner(tag::SEQUENCE).unwrap();
            assert_eq!(change.number(tag::ENUMERATED), Ok(kind));
            let mut attribute = change.inner(tag::SEQUENCE).unwrap();
            assert_eq!(attribute.expect(tag::OCTETS), Ok(&b"userPassword"[..]));
            assert_eq!(attribute.inner(tag::SET).unwrap().expect(tag::OCTETS), Ok(value));
        }
        assert!(list.is_empty() && request.is_empty() && message.is_empty());
    }

    #[test]
    fn modify_response_has_a_result() {
        let bytes = message(7, &[], |writer| {
            writer.constructed(0x67, |writer| {
                writer.number(tag::ENUMERATED, 50);
                writer.octets(b"");
                writer.octets(b"no write access");
            });
        });
        let response = LdapResponse::parse(&bytes).unwrap();
        let result = LdapResult { code: 50, message: b"no write access", referral: b"" };
        assert!(matches!(response.operation, ResponseOperation::ModifyDone(it) if it == result));
    }

    #[test]
    fn what_has_a_password_in_it_is_written_without_moving() {
        let (dn, password) = ("x".repeat(1000), vec![b'p'; 1024]);
        let changes = [ChangeKind::Delete, ChangeKind::Add].map(|kind| change_of(kind, &password));
        let requests = [
            LdapRequest::SimpleBind { dn: &dn, password: &password },
            LdapRequest::ModifyPassword { dn: &dn, old: &password, new: &password },
            LdapRequest::Modify { dn: &dn, changes: &changes },
        ];
        for request in requests {
            let bytes = request.encode(u32::MAX >> 1, &[RequestControl::PasswordPolicy]);
            assert!(bytes.len() <= request.secret_room(), "{} bytes", bytes.len());
            assert_eq!(bytes.capacity(), request.secret_room());
        }
    }

    /// As `ldappasswd -D cn=a -w b -a b -s c cn=a` writes it, except for the lengths.
    #[test]
    fn a_change_of_password_is_that_of_the_standard() {
        let bytes = LdapRequest::ModifyPassword { dn: "cn=a", old: b"b", new: b"c" }.encode(1, &[]);
        let mut message = BerReader::new(&bytes).inner(tag::SEQUENCE).unwrap();
        message.number(tag::INTEGER).unwrap();
        let mut request = message.inner(tag::application(23)).unwrap();
        assert_eq!(request.expect(tag::context(0)), Ok(oid::MODIFY_PASSWORD.as_bytes()));
        let value = request.expect(tag::context(1)).unwrap();
        let mut value = BerReader::new(value).inner(tag::SEQUENCE).unwrap();
        for (number, content) in [(0, &b"cn=a"[..]), (1, b"b"), (2, b"c")] {
            assert_eq!(value.expect(tag::context(number)), Ok(content));
        }
    }

    fn policy_of(controls: &[(&str, &[u8])]) -> Result<PolicyResponse, BerError> {
        let bytes = message(1, controls, |writer| {
            writer.constructed(0x61, |writer| {
                writer.number(tag::ENUMERATED, 0);
                writer.octets(b"");
                writer.octets(b"");
            });
        });
        LdapResponse::parse(&bytes).unwrap().controls.password_policy()
    }

    #[test]
    fn both_kinds_of_policies_are_heard() {
        let nothing = PolicyResponse::default();
        assert_eq!(policy_of(&[]), Ok(nothing));
        let draft = |bytes: &[u8]| policy_of(&[(oid::PASSWORD_POLICY, bytes)]);
        assert_eq!(draft(b"\x30\x00"), Ok(nothing));
        let expires = draft(b"\x30\x05\xa0\x03\x80\x01\x3c");
        assert_eq!(expires, Ok(PolicyResponse { expires_in: Some(60), ..nothing }));
        let grace = draft(b"\x30\x05\xa0\x03\x81\x01\x02");
        assert_eq!(grace, Ok(PolicyResponse { grace: Some(2), ..nothing }));
        let reset = draft(b"\x30\x03\x81\x01\x02");
        assert_eq!(reset, Ok(PolicyResponse { error: Some(2), ..nothing }));
        let expired = policy_of(&[(oid::PASSWORD_EXPIRED, b"0")]);
        assert_eq!(expired, Ok(PolicyResponse { has_expired: true, ..nothing }));
        let expiring = policy_of(&[(oid::PASSWORD_EXPIRING, b"86400")]);
        assert_eq!(expiring, Ok(PolicyResponse { expires_in: Some(86_400), ..nothing }));
        for bad in [&b""[..], b"\x30", b"\x31\x00", b"\x30\x03\x81\x01\xff"] {
            assert!(draft(bad).is_err(), "{bad:x?}");
        }
    }

    #[test]
    fn every_control_is_critical() {
        let filter = EncodedFilter::present("objectClass");
        let search = SearchRequest {
            base: "dc=x",
            scope: Scope::Subtree,
            filter: &filter,
            attributes: &["uid"],
            entries_max: 0,
        };
        for control in [
            RequestControl::Paged(5, b"c"),
            RequestControl::Sync(Some(b"c")),
            RequestControl::PersistentSearch,
        ] {
            let bytes = LdapRequest::Search(search.clone()).encode(1, &[control]);
            let mut reader = BerReader::new(&bytes).inner(tag::SEQUENCE).unwrap();
            reader.number(tag::INTEGER).unwrap();
            reader.expect(tag::application(3)).unwrap();
            let mut controls = reader.inner(tag::context_constructed(0)).unwrap();
            let mut control = controls.inner(tag::SEQUENCE).unwrap();
            control.expect(tag::OCTETS).unwrap();
            assert_eq!(control.expect(tag::BOOLEAN), Ok(&[0xff][..]));
        }
    }

    #[test]
    fn an_entry_and_what_synchronization_says_of_it_are_read_in_place() {
        let state = written(|writer| {
            writer.constructed(tag::SEQUENCE, |writer| {
                writer.number(tag::ENUMERATED, 3);
                writer.octets(&[9; 16]);
                writer.octets(b"cookie");
            });
        });
        let bytes = message(2, &[("1.2.3", b""), (oid::SYNC_STATE, &state)], |writer| {
            writer.constructed(0x64, |writer| {
                writer.octets(b"cn=a");
                writer.constructed(tag::SEQUENCE, |_| {});
            });
        });
        let response = LdapResponse::parse(&bytes).unwrap();
        assert_eq!(response.id, 2);
        let sync = response.controls.sync_state().unwrap().unwrap();
        assert_eq!(sync.state, SyncEntryState::Deleted);
        assert_eq!((sync.uuid, sync.cookie), ([9; 16], Some(&b"cookie"[..])));
        assert_eq!(response.controls.page_cookie(), Ok(None));
    }

    #[test]
    fn a_sync_state_without_a_whole_uuid_is_refused() {
        let state = written(|writer| {
            writer.constructed(tag::SEQUENCE, |writer| {
                writer.number(tag::ENUMERATED, 1);
                writer.octets(&[9; 15]);
            });
        });
        let controls = written(|writer| {
            writer.constructed(tag::SEQUENCE, |writer| {
                writer.octets(oid::SYNC_STATE.as_bytes());
                writer.octets(&state);
            });
        });
        assert!(ResponseControls { encoded: &controls }.sync_state().is_err());
    }

    #[test]
    fn sync_info_comes_in_four_kinds() {
        let cookie = written(|writer| writer.primitive(tag::context(0), b"c"));
        assert!(matches!(SyncInfo::parse(&cookie), Ok(SyncInfo::NewCookie(b"c"))));
        let empty = written(|writer| writer.constructed(0xa1, |_| {}));
        assert!(matches!(
            SyncInfo::parse(&empty),
            Ok(SyncInfo::PhaseOver { present: false, cookie: None, done: true })
        ));
        let going_on = written(|writer| {
            writer.constructed(0xa2, |writer| {
                writer.octets(b"c");
                writer.boolean(false);
            });
        });
        assert!(matches!(
            SyncInfo::parse(&going_on),
            Ok(SyncInfo::PhaseOver { present: true, cookie: Some(b"c"), done: false })
        ));
        let set = written(|writer| {
            writer.constructed(0xa3, |writer| {
                writer.boolean(true);
                writer.constructed(tag::SET, |writer| {
                    writer.octets(&[1; 16]);
                    writer.octets(&[2; 3]);
                    writer.octets(&[3; 16]);
                });
            });
        });
        let Ok(SyncInfo::Set { deleted: true, uuids, .. }) = SyncInfo::parse(&set) else {
            panic!("not a set")
        };
        let uuids: Vec<_> = uuids.collect();
        assert_eq!(uuids.len(), 2, "nothing is read on from a mistake");
        assert!(uuids[0] == Ok([1; 16]) && uuids[1].is_err());
    }

    #[test]
    fn truncated_messages_are_errors_at_every_length() {
        let whole = entry("uid=a,dc=x", &[("uid", &[b"a", b"b"]), ("cn", &[b"c"])]);
        for end in 0..whole.len() {
            assert!(LdapResponse::parse(&whole[..end]).is_err(), "{end}");
        }
        assert_eq!(raw(&whole).values("UID").unwrap().count(), 2);
        assert_eq!(raw(&whole).values("sn").unwrap().count(), 0);
    }

    #[test]
    fn what_a_server_says_becomes_one_bounded_line() {
        let message = b"gone\nfor\x1b[1m ever";
        let outcome = LdapResult { code: 32, message, referral: b"" };
        assert!(!outcome.to_string().contains(['\n', '\u{1b}']));
        assert!(printable(&[b'x'; 5000]).len() <= 512);
    }
}
