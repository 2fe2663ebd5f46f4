// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames between the PAM module and its responder: one request and one response, with bounds on all parts. The result
//! is one number. Both sides, and every backend between them, therefore map the same cases in one exhaustive match.
//! `reply` and `request` have the frames for NSS.

use crate::{Malformed, VERSION};
use roster_request::auth::{
    BLOB_BYTES_MAX, MESSAGE_BYTES_MAX, MESSAGES_MAX, ORIGIN_BYTES_MAX, SECRET_BYTES_MAX,
    USER_BYTES_MAX,
};
use roster_request::{AuthRequestKind, AuthResult};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a request.
pub(crate) const REQUEST_MAGIC: [u8; 4] = *b"RSPQ";
/// First bytes of a response.
pub(crate) const RESPONSE_MAGIC: [u8; 4] = *b"RSPA";
/// Length of a request before its fields.
pub const REQUEST_HEADER_BYTES: usize = size_of::<RawAuthRequestHeader>();
/// Maximum length of a request.
pub const REQUEST_BYTES_MAX: usize =
    REQUEST_HEADER_BYTES + USER_BYTES_MAX + 5 * ORIGIN_BYTES_MAX + 2 * SECRET_BYTES_MAX;
/// Maximum length of all messages, each with its header.
pub const MESSAGES_BYTES_MAX: usize = MESSAGES_MAX * (MESSAGE_HEAD_BYTES + MESSAGE_BYTES_MAX);
/// Length of a response before its messages.
pub const RESPONSE_HEADER_BYTES: usize = size_of::<RawAuthResponseHeader>();
/// Bytes before a message: its kind and its length.
const MESSAGE_HEAD_BYTES: usize = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAuthRequestHeader {
    magic: [u8; 4],
    version: U16,
    kind: U16,
    /// The last length, of the domains, was zero in a header before that field existed.
    lengths: [U16; FIELDS],
    uid: U32,
}

/// Stands for a missing uid: the program's host does not know the user.
const NO_UID: u32 = u32::MAX;

/// User, service, remote host, terminal, remote user, password, new password, domains.
const FIELDS: usize = 8;
/// Maximum length of each field.
const FIELD_BYTES_MAX: [usize; FIELDS] = [
    USER_BYTES_MAX,
    ORIGIN_BYTES_MAX,
    ORIGIN_BYTES_MAX,
    ORIGIN_BYTES_MAX,
    ORIGIN_BYTES_MAX,
    SECRET_BYTES_MAX,
    SECRET_BYTES_MAX,
    ORIGIN_BYTES_MAX,
];

/// A request. It has no `Debug`, because it contains passwords.
///
/// ```
/// use roster_request::AuthRequestKind;
/// use roster_wire::pam::{AuthRequest, REQUEST_BYTES_MAX};
///
/// let request = AuthRequest {
///     kind: AuthRequestKind::Authenticate,
///     user: b"alice",
///     uid: Some(1000),
///     service: b"sshd",
///     remote_host: b"192.0.2.7",
///     terminal: b"ssh",
///     remote_user: b"",
///     secret: b"open sesame",
///     new_secret: b"",
///     domains: b"",
/// };
/// let mut room = [0; REQUEST_BYTES_MAX];
/// let frame = request.write(&mut room).unwrap();
/// assert_eq!(frame.len(), 60);
/// assert!(AuthRequest::read(frame) == Ok(request));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuthRequest<'a> {
    /// Kind of the request.
    pub kind: AuthRequestKind,
    /// Name of the user.
    pub user: &'a [u8],
    /// Uid of the user in the program, if known. With it, the responder detects a program that would admit another uid.
    pub uid: Option<u32>,
    /// The PAM service: `sshd`, `login` …
    pub service: &'a [u8],
    /// Remote host as the application reports it; may be empty.
    pub remote_host: &'a [u8],
    /// The terminal; may be empty.
    pub terminal: &'a [u8],
    /// Name of the user at the remote end; may be empty.
    pub remote_user: &'a [u8],
    /// The password; empty in [`AuthRequestKind::Account`].
    pub secret: &'a [u8],
    /// The new password; empty except in [`AuthRequestKind::Change`].
    pub new_secret: &'a [u8],
    /// The domains with users that count, separated by commas. Empty means all domains.
    pub domains: &'a [u8],
}

impl<'a> AuthRequest<'a> {
    fn fields(&self) -> [&'a [u8]; FIELDS] {
        let Self { user, service, remote_host, terminal, remote_user, .. } = *self;
        let Self { secret, new_secret, domains, .. } = *self;
        [user, service, remote_host, terminal, remote_user, secret, new_secret, domains]
    }

    /// Encodes the request in `room`. Returns `None` if a field is too long, or the user is empty.
    pub fn write<'r>(&self, room: &'r mut [u8]) -> Option<&'r [u8]> {
        let fields = self.fields();
        let mut lengths = [U16::new(0); FIELDS];
        for ((length, field), longest) in lengths.iter_mut().zip(fields).zip(FIELD_BYTES_MAX) {
            if field.len() > longest {
                return None;
            }
            *length = U16::new(field.len() as u16);
        }
        if self.user.is_empty() {
            return None;
        }
        let head = RawAuthRequestHeader {
            magic: REQUEST_MAGIC,
            version: U16::new(VERSION),
            kind: U16::new(self.kind as u16),
            lengths,
            uid: U32::new(self.uid.unwrap_or(NO_UID)),
        };
        let head: [u8; REQUEST_HEADER_BYTES] = zerocopy::transmute!(head);
        let mut end = 0_usize;
        for piece in [&head[..]].into_iter().chain(fields) {
            let after = end.checked_add(piece.len())?;
            room.get_mut(end..after)?.copy_from_slice(piece);
            end = after;
        }
        room.get(..end)
    }

    /// Decodes a complete request.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
        let head = AuthRequestHeader::parse(head)?;
        if rest.len() != head.bytes() {
            return Err(Malformed);
        }
        let mut rest = rest;
        let mut next = |length: u16| {
            let (field, behind) = rest.split_at_checked(length.into()).ok_or(Malformed)?;
            rest = behind;
            Ok(field)
        };
        let [user, service, remote_host, terminal, remote_user, secret, new_secret, domains] =
            head.lengths;
        let request = Self {
            kind: head.kind,
            user: next(user)?,
            uid: head.uid,
            service: next(service)?,
            remote_host: next(remote_host)?,
            terminal: next(terminal)?,
            remote_user: next(remote_user)?,
            secret: next(secret)?,
            new_secret: next(new_secret)?,
            domains: next(domains)?,
        };
        // A C string ends at a NUL, so other code would compare a different name.
        if request.fields().iter().any(|field| field.contains(&0)) {
            return Err(Malformed);
        }
        Ok(request)
    }
}

/// The header of a request, without its fields.
///
/// ```
/// use roster_wire::pam::{AuthRequestHeader, REQUEST_HEADER_BYTES};
/// # use roster_request::AuthRequestKind;
/// # use roster_wire::pam::{AuthRequest, REQUEST_BYTES_MAX};
///
/// # let request = AuthRequest {
/// #     kind: AuthRequestKind::Authenticate,
/// #     user: b"alice",
/// #     uid: Some(1000),
/// #     service: b"sshd",
/// #     remote_host: b"192.0.2.7",
/// #     terminal: b"ssh",
/// #     remote_user: b"",
/// #     secret: b"open sesame",
/// #     new_secret: b"",
/// #     domains: b"",
/// # };
/// # let mut room = [0; REQUEST_BYTES_MAX];
/// let frame = request.write(&mut room).unwrap();
/// let (header, fields) = frame.split_first_chunk::<REQUEST_HEADER_BYTES>().unwrap();
/// assert_eq!(AuthRequestHeader::parse(header)?.bytes(), fields.len());
/// assert_eq!(fields, b"alicesshd192.0.2.7sshopen sesame");
/// # Ok::<(), roster_wire::Malformed>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthRequestHeader {
    kind: AuthRequestKind,
    lengths: [u16; FIELDS],
    uid: Option<u32>,
}

impl AuthRequestHeader {
    /// Decodes and checks a header.
    pub fn parse(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<Self, Malformed> {
        let head = RawAuthRequestHeader::ref_from_bytes(bytes).map_err(|_| Malformed)?;
        let is_ours = head.magic == REQUEST_MAGIC && head.version.get() == VERSION;
        if !is_ours {
            return Err(Malformed);
        }
        let kind = AuthRequestKind::from_number(head.kind.get()).ok_or(Malformed)?;
        let lengths = head.lengths.map(U16::get);
        let fit =
            lengths.iter().zip(FIELD_BYTES_MAX).all(|(&length, most)| usize::from(length) <= most);
        let [user, .., secret, new_secret, _] = lengths;
        let secrets = match kind {
            AuthRequestKind::Authenticate | AuthRequestKind::PrepareChange => new_secret == 0,
            AuthRequestKind::Account | AuthRequestKind::SshKeys => secret == 0 && new_secret == 0,
            AuthRequestKind::Change => true,
        };
        let uid = Some(head.uid.get()).filter(|uid| *uid != NO_UID);
        if fit && secrets && user > 0 { Ok(Self { kind, lengths, uid }) } else { Err(Malformed) }
    }

    /// Returns the number of bytes that follow.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lengths.iter().fold(0, |sum: usize, &length| sum.saturating_add(length.into()))
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAuthResponseHeader {
    magic: [u8; 4],
    version: U16,
    result: U16,
    flags: U16,
    messages: U16,
    messages_bytes: U32,
    blob_bytes: U32,
}

/// The directory was unreachable, and the result is based on cached data.
const OFFLINE: u16 = 1;

/// The header of a response; all lengths are within their bounds.
///
/// ```
/// use roster_request::AuthResult;
/// use roster_wire::pam::AuthResponseHeader;
///
/// let header = AuthResponseHeader {
///     result: AuthResult::WrongPassword,
///     is_offline: true,
///     messages: 0,
///     messages_bytes: 0,
///     blob_bytes: 0,
/// };
/// assert_eq!(&header.encode()[..10], b"RSPA\x01\0\x01\0\x01\0");
/// assert_eq!(AuthResponseHeader::parse(&header.encode()), Ok(header));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthResponseHeader {
    /// Result of the request.
    pub result: AuthResult,
    /// Whether the directory was unreachable, and the result is based on cached data.
    pub is_offline: bool,
    /// Number of messages that follow.
    pub messages: usize,
    /// Bytes of all messages, at most [`MESSAGES_BYTES_MAX`].
    pub messages_bytes: usize,
    /// Bytes of the blob after the messages, at most [`BLOB_BYTES_MAX`].
    pub blob_bytes: usize,
}

impl AuthResponseHeader {
    /// Decodes and checks a header.
    pub fn parse(bytes: &[u8; RESPONSE_HEADER_BYTES]) -> Result<Self, Malformed> {
        let head = RawAuthResponseHeader::ref_from_bytes(bytes).map_err(|_| Malformed)?;
        let is_ours = head.magic == RESPONSE_MAGIC && head.version.get() == VERSION;
        if !is_ours || head.flags.get() & !OFFLINE != 0 {
            return Err(Malformed);
        }
        let header = Self {
            result: AuthResult::from_number(head.result.get()).ok_or(Malformed)?,
            is_offline: head.flags.get() & OFFLINE != 0,
            messages: head.messages.get().into(),
            messages_bytes: head.messages_bytes.get() as usize,
            blob_bytes: head.blob_bytes.get() as usize,
        };
        let fits = header.messages <= MESSAGES_MAX
            && header.messages_bytes <= MESSAGES_BYTES_MAX
            && header.blob_bytes <= BLOB_BYTES_MAX;
        if fits { Ok(header) } else { Err(Malformed) }
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; RESPONSE_HEADER_BYTES] {
        let head = RawAuthResponseHeader {
            magic: RESPONSE_MAGIC,
            version: U16::new(VERSION),
            result: U16::new(self.result as u16),
            flags: U16::new(if self.is_offline { OFFLINE } else { 0 }),
            messages: U16::new(self.messages as u16),
            messages_bytes: U32::new(self.messages_bytes as u32),
            blob_bytes: U32::new(self.blob_bytes as u32),
        };
        zerocopy::transmute!(head)
    }
}

/// A message for the user.
///
/// ```
/// use roster_wire::pam::{AuthMessage, AuthMessages, write_message};
///
/// let mut bytes = Vec::new();
/// write_message(&mut bytes, true, "Account expired");
/// assert_eq!(bytes, b"\x01\0\x0f\0Account expired");
/// let message = AuthMessages::new(&bytes).next();
/// assert_eq!(message, Some(AuthMessage { is_error: true, text: b"Account expired" }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthMessage<'a> {
    /// Whether the message reports an error.
    pub is_error: bool,
    /// UTF-8 without control characters, which the sender guarantees; displayed unchanged.
    pub text: &'a [u8],
}

/// Appends a message to those of a response. A long text is truncated between two characters.
pub fn write_message(out: &mut impl Extend<u8>, is_error: bool, text: &str) {
    let end = text.floor_char_boundary(MESSAGE_BYTES_MAX);
    out.extend(u16::from(is_error).to_le_bytes());
    out.extend((end as u16).to_le_bytes());
    out.extend(text.bytes().take(end));
}

/// Iterator over the messages of a response.
///
/// ```
/// use roster_wire::pam::{AuthMessages, write_message};
///
/// let mut bytes = Vec::new();
/// write_message(&mut bytes, false, "Password expires in 3 days");
/// write_message(&mut bytes, true, "Account expired");
/// let texts: Vec<&[u8]> = AuthMessages::new(&bytes).map(|message| message.text).collect();
/// assert_eq!(texts, [&b"Password expires in 3 days"[..], b"Account expired"]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AuthMessages<'a>(&'a [u8]);

impl<'a> AuthMessages<'a> {
    /// Creates an iterator over the bytes after the header.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn next_message(&mut self) -> Option<AuthMessage<'a>> {
        let (&[kind, zero, low, high], rest) = self.0.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes([low, high]));
        let (text, rest) = rest.split_at_checked(length)?;
        let is_one = kind <= 1 && zero == 0 && length <= MESSAGE_BYTES_MAX && !text.contains(&0);
        self.0 = rest;
        is_one.then_some(AuthMessage { is_error: kind == 1, text })
    }
}

/// Ends at the end of the bytes, or at the first invalid message.
impl<'a> Iterator for AuthMessages<'a> {
    type Item = AuthMessage<'a>;

    fn next(&mut self) -> Option<AuthMessage<'a>> {
        let message = self.next_message();
        if message.is_none() {
            self.0 = &[];
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::collections::HashSet;
    use std::vec;
    use std::vec::Vec;

    const CHANGE: AuthRequest<'static> = AuthRequest {
        kind: AuthRequestKind::Change,
        user: b"alice",
        uid: Some(2000),
        service: b"passwd",
        remote_host: b"",
        terminal: b"/dev/pts/0",
        remote_user: b"root",
        secret: b"old one",
        new_secret: b"new one",
        domains: b"corp,lab",
    };

    fn written(request: &AuthRequest<'_>) -> Option<Vec<u8>> {
        request.write(&mut [0xff; REQUEST_BYTES_MAX]).map(<[u8]>::to_vec)
    }

    #[test]
    fn what_was_asked_is_what_arrives() {
        for kind in AuthRequestKind::ALL {
            let mut request = AuthRequest { kind, ..CHANGE };
            if kind != AuthRequestKind::Change {
                request.new_secret = b"";
            }
            if matches!(kind, AuthRequestKind::Account | AuthRequestKind::SshKeys) {
                request.secret = b"";
            }
            let bytes = written(&request).unwrap();
            assert!(AuthRequest::read(&bytes) == Ok(request), "{kind:?}");
        }
    }

    #[test]
    fn the_longest_of_everything_fits_and_one_byte_more_is_refused() {
        let (longest, name) = ([b'x'; SECRET_BYTES_MAX + 1], [b'x'; USER_BYTES_MAX + 1]);
        let full = AuthRequest {
            user: &name[1..],
            service: &name[1..],
            remote_host: &name[1..],
            terminal: &name[1..],
            remote_user: &name[1..],
            secret: &longest[1..],
            new_secret: &longest[1..],
            domains: &name[1..],
            ..CHANGE
        };
        assert_eq!(written(&full).map(|bytes| bytes.len()), Some(REQUEST_BYTES_MAX));
        assert_eq!(written(&AuthRequest { secret: &longest, ..CHANGE }), None);
        assert_eq!(written(&AuthRequest { new_secret: &longest, ..CHANGE }), None);
        assert_eq!(written(&AuthRequest { user: &name, ..CHANGE }), None);
        assert_eq!(written(&AuthRequest { user: b"", ..CHANGE }), None);
    }

    /// Decodes a header with the layout of docs/internals/wire-format.md.
    fn header(kind: u16, lengths: [u16; FIELDS]) -> Result<AuthRequestHeader, Malformed> {
        let numbers = [VERSION, kind].into_iter().chain(lengths).chain([0, 0]);
        let bytes: Vec<u8> =
            REQUEST_MAGIC.into_iter().chain(numbers.flat_map(u16::to_le_bytes)).collect();
        AuthRequestHeader::parse(bytes[..].try_into().unwrap())
    }

    #[test]
    fn header_of_longest_fields_accepted_one_byte_more_refused() {
        let longest = FIELD_BYTES_MAX.map(|bytes| bytes as u16);
        let change = AuthRequestKind::Change as u16;
        let header_bytes = |lengths| header(change, lengths).map(|header| header.bytes());
        assert_eq!(header_bytes(longest), Ok(REQUEST_BYTES_MAX - REQUEST_HEADER_BYTES));
        for field in 0..FIELDS {
            let mut longer = longest;
            longer[field] += 1;
            assert_eq!(header_bytes(longer), Err(Malformed), "field {field}");
        }
        assert_eq!(header_bytes([1, 0, 0, 0, 0, 0, 0, 0]), Ok(1));
        assert_eq!(header_bytes([1, 0, 0, 0, 0, 0, 0, 4]), Ok(5));
        assert_eq!(header_bytes([0, 0, 0, 0, 0, 0, 0, 0]), Err(Malformed));
    }

    #[test]
    fn header_passwords_fit_kind() {
        // Without a password, with the old one, with the new one, with both.
        let allowed = |kind: AuthRequestKind| {
            [[0, 0], [1, 0], [0, 1], [1, 1]]
                .map(|[old, new]| header(kind as u16, [1, 0, 0, 0, 0, old, new, 0]).is_ok())
        };
        assert_eq!(allowed(AuthRequestKind::Authenticate), [true, true, false, false]);
        assert_eq!(allowed(AuthRequestKind::PrepareChange), [true, true, false, false]);
        assert_eq!(allowed(AuthRequestKind::Account), [true, false, false, false]);
        assert_eq!(allowed(AuthRequestKind::SshKeys), [true, false, false, false]);
        assert_eq!(allowed(AuthRequestKind::Change), [true, true, true, true]);
    }

    #[test]
    fn limits_are_those_of_page() {
        assert_eq!((REQUEST_HEADER_BYTES, REQUEST_BYTES_MAX), (28, 28 + 256 + 5 * 256 + 2 * 1024));
        assert_eq!(RESPONSE_HEADER_BYTES, 20);
        assert_eq!((MESSAGES_BYTES_MAX, BLOB_BYTES_MAX), (16_480, 61_440));
    }

    #[test]
    fn request_without_uid_reads_without_uid() {
        for uid in [None, Some(0), Some(u32::MAX - 1)] {
            let bytes = written(&AuthRequest { uid, ..CHANGE }).unwrap();
            assert!(AuthRequest::read(&bytes).is_ok_and(|request| request.uid == uid), "{uid:?}");
        }
    }

    #[test]
    fn request_with_nul_in_any_field_refused() {
        let nul = AuthRequest {
            user: b"\0",
            service: b"\0",
            remote_host: b"\0",
            terminal: b"\0",
            remote_user: b"\0",
            secret: b"\0",
            new_secret: b"\0",
            domains: b"\0",
            ..CHANGE
        };
        for request in [
            AuthRequest { user: nul.user, ..CHANGE },
            AuthRequest { service: nul.service, ..CHANGE },
            AuthRequest { remote_host: nul.remote_host, ..CHANGE },
            AuthRequest { terminal: nul.terminal, ..CHANGE },
            AuthRequest { remote_user: nul.remote_user, ..CHANGE },
            AuthRequest { secret: nul.secret, ..CHANGE },
            AuthRequest { new_secret: nul.new_secret, ..CHANGE },
            AuthRequest { domains: nul.domains, ..CHANGE },
        ] {
            let bytes = written(&request).unwrap();
            assert!(AuthRequest::read(&bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn request_without_room_not_written() {
        let bytes = written(&CHANGE).unwrap();
        let mut room = vec![0; bytes.len()];
        assert_eq!(CHANGE.write(&mut room), Some(&bytes[..]));
        room.pop();
        assert_eq!(CHANGE.write(&mut room), None);
    }

    #[test]
    fn pam_frame_cut_long_or_nul_is_refused() {
        let mut bytes = written(&CHANGE).unwrap();
        assert!((0..bytes.len()).all(|end| AuthRequest::read(&bytes[..end]).is_err()));
        bytes.push(b'x');
        assert!(AuthRequest::read(&bytes).is_err());
        bytes.pop();
        *bytes.last_mut().unwrap() = 0;
        assert!(AuthRequest::read(&bytes).is_err());
    }

    /// The offsets of docs/internals/wire-format.md: version 4, kind 6, lengths 8 to 23.
    #[test]
    fn a_header_with_anything_wrong_is_refused() {
        let right = written(&CHANGE).unwrap();
        for (place, value) in [(0, b'x'), (4, 2), (6, 5), (7, 1), (8, 0), (9, 2), (19, 5), (22, 1)]
        {
            let mut wrong = right.clone();
            wrong[place] = value;
            assert!(AuthRequest::read(&wrong).is_err(), "byte {place}");
        }
    }

    #[test]
    fn auth_result_numbers_are_unique() {
        let verdicts: Vec<_> = (0..=u16::MAX).filter_map(AuthResult::from_number).collect();
        assert_eq!(verdicts, AuthResult::ALL);
        let kinds: Vec<_> = (0..=u16::MAX).filter_map(AuthRequestKind::from_number).collect();
        assert_eq!(kinds, AuthRequestKind::ALL);
    }

    #[test]
    fn verdict_labels_are_distinct_words() {
        assert_eq!(AuthResult::Success.label(), "success");
        assert_eq!(AuthResult::PasswordExpired.label(), "password expired");
        let labels: HashSet<_> = AuthResult::ALL.map(AuthResult::label).into_iter().collect();
        assert_eq!(labels.len(), AuthResult::ALL.len());
        let is_word = |label: &&str| label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b' '));
        assert!(labels.iter().all(|label| !label.is_empty() && is_word(label)));
    }

    #[test]
    fn an_answer_arrives_as_it_was_given() {
        let mut messages = Vec::new();
        write_message(&mut messages, false, "It expires in 3 days.");
        write_message(&mut messages, true, "");
        let header = AuthResponseHeader {
            result: AuthResult::MustChange,
            is_offline: true,
            messages: 2,
            messages_bytes: messages.len(),
            blob_bytes: 7,
        };
        for header in [header, AuthResponseHeader { is_offline: false, ..header }] {
            assert_eq!(AuthResponseHeader::parse(&header.encode()), Ok(header));
        }
        let told: Vec<_> = AuthMessages::new(&messages).collect();
        let info = AuthMessage { is_error: false, text: b"It expires in 3 days." };
        assert_eq!(told, vec![info, AuthMessage { is_error: true, text: b"" }]);
    }

    #[test]
    fn a_long_message_is_cut_between_two_characters() {
        let mut messages = Vec::new();
        write_message(&mut messages, false, &"ä".repeat(400));
        let told = AuthMessages::new(&messages).next().unwrap();
        assert_eq!(told.text.len(), MESSAGE_BYTES_MAX - 1);
        assert!(core::str::from_utf8(told.text).is_ok());
    }

    #[test]
    fn an_answer_beyond_the_bounds_is_refused() {
        let header = AuthResponseHeader {
            result: AuthResult::Success,
            is_offline: false,
            messages: MESSAGES_MAX,
            messages_bytes: MESSAGES_BYTES_MAX,
            blob_bytes: BLOB_BYTES_MAX,
        };
        assert!(AuthResponseHeader::parse(&header.encode()).is_ok());
        for wrong in [
            AuthResponseHeader { messages: MESSAGES_MAX + 1, ..header },
            AuthResponseHeader { messages_bytes: MESSAGES_BYTES_MAX + 1, ..header },
            AuthResponseHeader { blob_bytes: BLOB_BYTES_MAX + 1, ..header },
        ] {
            assert_eq!(AuthResponseHeader::parse(&wrong.encode()), Err(Malformed));
        }
        for (place, value) in [(0, 0), (4, 0), (6, 15), (7, 1), (8, 2)] {
            let mut bytes = header.encode();
            bytes[place] = value;
            assert_eq!(AuthResponseHeader::parse(&bytes), Err(Malformed), "byte {place}");
        }
    }

    #[test]
    fn message_of_limit_kept_whole() {
        for len in [0, 1, MESSAGE_BYTES_MAX - 1, MESSAGE_BYTES_MAX] {
            let text = "m".repeat(len);
            let mut messages = Vec::new();
            write_message(&mut messages, false, &text);
            assert_eq!(messages.len(), MESSAGE_HEAD_BYTES + len);
            assert_eq!(AuthMessages::new(&messages).next().unwrap().text, text.as_bytes());
        }
    }

    #[test]
    fn messages_end_at_first_bad_one() {
        let longer = [&[0, 0, 0, 2][..], &[b'x'; MESSAGE_BYTES_MAX + 1]].concat();
        let bad = [
            &[2, 0, 1, 0, b'x'][..],
            &[0, 1, 1, 0, b'x'],
            &[0, 0, 1, 0, 0],
            &[0, 0, 200, 0, b'x'],
            &longer,
            &[0, 0, 1],
        ];
        for bad in bad {
            let mut messages = Vec::new();
            write_message(&mut messages, true, "one");
            messages.extend(bad);
            write_message(&mut messages, false, "two");
            let mut walk = AuthMessages::new(&messages);
            assert_eq!(walk.next(), Some(AuthMessage { is_error: true, text: b"one" }));
            assert_eq!([walk.next(), walk.next()], [None, None], "{}", bad.escape_ascii());
        }
    }
}
