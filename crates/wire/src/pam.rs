//! What the PAM module and its responder say to each other: one request, one answer, with bounds on
//! everything. The verdict is one number, so that both sides, and every back-end between them, map the
//! same cases, each in one exhaustive match.

use crate::{Malformed, VERSION};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a request.
pub(crate) const REQUEST_MAGIC: [u8; 4] = *b"RSPQ";
/// First bytes of an answer.
pub(crate) const ANSWER_MAGIC: [u8; 4] = *b"RSPA";
/// Longest user name.
pub const USER_BYTES_MAX: usize = 256;
/// Longest of service, remote host, terminal and remote user; longer ones are cut, for they are for logs
/// and rules alone, and no rule names so long a service.
pub const ORIGIN_BYTES_MAX: usize = 256;
/// Longest password; none that is longer is ever sent to anybody. PAM's own conversations end at 511 bytes.
pub const SECRET_BYTES_MAX: usize = 1024;
/// Length of a request before its fields.
pub const REQUEST_HEADER_BYTES: usize = size_of::<RequestHead>();
/// Length of the longest request.
pub const REQUEST_BYTES_MAX: usize =
    REQUEST_HEADER_BYTES + USER_BYTES_MAX + 4 * ORIGIN_BYTES_MAX + 2 * SECRET_BYTES_MAX;
/// Most messages of an answer: as many as one conversation of PAM takes.
pub const MESSAGES_MAX: usize = 32;
/// Longest message: that of PAM without its NUL.
pub const MESSAGE_BYTES_MAX: usize = 511;
/// Longest text of all messages, each with its head.
pub const MESSAGES_BYTES_MAX: usize = MESSAGES_MAX * (MESSAGE_HEAD_BYTES + MESSAGE_BYTES_MAX);
/// Longest blob for the session: with its length it fits into a pipe.
pub const BLOB_BYTES_MAX: usize = 60 << 10;
/// Length of an answer before its messages.
pub const ANSWER_HEADER_BYTES: usize = size_of::<AnswerHead>();
/// Bytes before a message: its kind and its length.
const MESSAGE_HEAD_BYTES: usize = 4;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Kind {
    /// Whether the password is the user's.
    Authenticate = 0,
    /// Whether the user may in now.
    Account = 1,
    /// Whether the password may be changed by who knows the old one. Changes nothing.
    PrepareChange = 2,
    /// The password is to be changed, from the old one to the new one.
    Change = 3,
    /// The user's keys for sshd, each a line, in place of the blob. Anybody may ask: they are no secret.
    SshKeys = 4,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Authenticate, Self::Account, Self::PrepareChange, Self::Change, Self::SshKeys];

    /// The kind of that number.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Authenticate,
            1 => Self::Account,
            2 => Self::PrepareChange,
            3 => Self::Change,
            4 => Self::SshKeys,
            _ => return None,
        })
    }
}

/// What came of it. A number that is not here is no answer, and nothing but [`Success`](Self::Success)
/// lets anybody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Verdict {
    /// Yes.
    Success = 0,
    /// The password is not the user's; nor is an empty one, or one with a NUL in it.
    WrongPassword = 1,
    /// No domain has such a user, or none whom it may serve.
    UnknownUser = 2,
    /// Somebody else has to decide: a user of the host, or of a domain that authenticates nobody.
    NotOurs = 3,
    /// The password is right and must be changed before anything else is done.
    MustChange = 4,
    /// The password has expired, and can no longer be changed by who knows it.
    PasswordExpired = 5,
    /// The account has expired.
    AccountExpired = 6,
    /// The account is locked, by too many failures or by an administrator.
    Locked = 7,
    /// The account is disabled.
    Disabled = 8,
    /// A rule keeps the user out.
    Denied = 9,
    /// The directory cannot be asked now, and nothing is known without it.
    Unreachable = 10,
    /// The directory refuses what it is asked, or the configuration forbids to ask it.
    Misconfigured = 11,
    /// There were too many tries; later ones may be heard.
    TooManyTries = 12,
    /// Who asks may not ask for this user.
    NotPermitted = 13,
    /// The new password is refused, for what the messages say.
    NewPasswordRefused = 14,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Success,
        Self::WrongPassword,
        Self::UnknownUser,
        Self::NotOurs,
        Self::MustChange,
        Self::PasswordExpired,
        Self::AccountExpired,
        Self::Locked,
        Self::Disabled,
        Self::Denied,
        Self::Unreachable,
        Self::Misconfigured,
        Self::TooManyTries,
        Self::NotPermitted,
        Self::NewPasswordRefused,
    ];

    /// The verdict of that number.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Success,
            1 => Self::WrongPassword,
            2 => Self::UnknownUser,
            3 => Self::NotOurs,
            4 => Self::MustChange,
            5 => Self::PasswordExpired,
            6 => Self::AccountExpired,
            7 => Self::Locked,
            8 => Self::Disabled,
            9 => Self::Denied,
            10 => Self::Unreachable,
            11 => Self::Misconfigured,
            12 => Self::TooManyTries,
            13 => Self::NotPermitted,
            14 => Self::NewPasswordRefused,
            _ => return None,
        })
    }

    /// As logs and counters have it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::WrongPassword => "wrong password",
            Self::UnknownUser => "unknown user",
            Self::NotOurs => "not ours",
            Self::MustChange => "password must be changed",
            Self::PasswordExpired => "password expired",
            Self::AccountExpired => "account expired",
            Self::Locked => "locked",
            Self::Disabled => "disabled",
            Self::Denied => "denied",
            Self::Unreachable => "unreachable",
            Self::Misconfigured => "misconfigured",
            Self::TooManyTries => "too many tries",
            Self::NotPermitted => "not permitted",
            Self::NewPasswordRefused => "new password refused",
        }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RequestHead {
    magic: [u8; 4],
    version: U16,
    kind: U16,
    lengths: [U16; FIELDS],
    zero: U16,
    uid: U32,
}

/// No user's: the program's system does not know the user.
const NO_UID: u32 = u32::MAX;

/// User, service, remote host, terminal, remote user, password, new password.
const FIELDS: usize = 7;
/// The longest that each may be.
const LONGEST: [usize; FIELDS] = [
    USER_BYTES_MAX,
    ORIGIN_BYTES_MAX,
    ORIGIN_BYTES_MAX,
    ORIGIN_BYTES_MAX,
    ORIGIN_BYTES_MAX,
    SECRET_BYTES_MAX,
    SECRET_BYTES_MAX,
];

/// A request. No `Debug`: there are passwords in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// What is asked.
    pub kind: Kind,
    /// For whom.
    pub user: &'a [u8],
    /// The uid that the user has for the program, if any: nobody may be judged as one and let in as another.
    pub uid: Option<u32>,
    /// The PAM service: `sshd`, `login` …
    pub service: &'a [u8],
    /// Where the user comes from, as the application says; may be empty.
    pub remote_host: &'a [u8],
    /// The terminal; may be empty.
    pub terminal: &'a [u8],
    /// Who asks at the other end; may be empty.
    pub remote_user: &'a [u8],
    /// The password; empty in [`Kind::Account`].
    pub secret: &'a [u8],
    /// The new one; empty but in [`Kind::Change`].
    pub new_secret: &'a [u8],
}

impl<'a> Request<'a> {
    fn fields(&self) -> [&'a [u8]; FIELDS] {
        let Self { user, service, remote_host, terminal, remote_user, secret, new_secret, .. } =
            *self;
        [user, service, remote_host, terminal, remote_user, secret, new_secret]
    }

    /// The whole request, in `room`; `None` when a field is longer than it may be, or the user empty.
    pub fn write<'r>(&self, room: &'r mut [u8]) -> Option<&'r [u8]> {
        let fields = self.fields();
        let mut lengths = [U16::new(0); FIELDS];
        for ((length, field), longest) in lengths.iter_mut().zip(fields).zip(LONGEST) {
            if field.len() > longest {
                return None;
            }
            *length = U16::new(field.len() as u16);
        }
        if self.user.is_empty() {
            return None;
        }
        let head = RequestHead {
            magic: REQUEST_MAGIC,
            version: U16::new(VERSION),
            kind: U16::new(self.kind as u16),
            lengths,
            zero: U16::new(0),
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

    /// Reads a whole request.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
        let head = RequestHeader::parse(head)?;
        if rest.len() != head.bytes() {
            return Err(Malformed);
        }
        let mut rest = rest;
        let mut next = |length: u16| {
            let (field, behind) = rest.split_at_checked(length.into()).ok_or(Malformed)?;
            rest = behind;
            Ok(field)
        };
        let [user, service, remote_host, terminal, remote_user, secret, new_secret] = head.lengths;
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
        };
        // C's strings end there: what is compared here and what is used elsewhere would differ.
        if request.fields().iter().any(|field| field.contains(&0)) {
            return Err(Malformed);
        }
        Ok(request)
    }
}

/// A request before its fields were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    kind: Kind,
    lengths: [u16; FIELDS],
    uid: Option<u32>,
}

impl RequestHeader {
    /// Reads and checks.
    pub fn parse(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<Self, Malformed> {
        let head = RequestHead::ref_from_bytes(bytes).map_err(|_| Malformed)?;
        let is_ours = head.magic == REQUEST_MAGIC && head.version.get() == VERSION;
        if !is_ours || head.zero.get() != 0 {
            return Err(Malformed);
        }
        let kind = Kind::from_number(head.kind.get()).ok_or(Malformed)?;
        let lengths = head.lengths.map(U16::get);
        let fit = lengths.iter().zip(LONGEST).all(|(&length, most)| usize::from(length) <= most);
        let [user, .., secret, new_secret] = lengths;
        let secrets = match kind {
            Kind::Authenticate | Kind::PrepareChange => new_secret == 0,
            Kind::Account | Kind::SshKeys => secret == 0 && new_secret == 0,
            Kind::Change => true,
        };
        let uid = Some(head.uid.get()).filter(|uid| *uid != NO_UID);
        if fit && secrets && user > 0 { Ok(Self { kind, lengths, uid }) } else { Err(Malformed) }
    }

    /// Bytes that follow.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lengths.iter().fold(0, |sum: usize, &length| sum.saturating_add(length.into()))
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AnswerHead {
    magic: [u8; 4],
    version: U16,
    verdict: U16,
    flags: U16,
    messages: U16,
    messages_bytes: U32,
    blob_bytes: U32,
}

/// The directory was away, and what is kept on this host was believed.
const OFFLINE: u16 = 1;

/// An answer before its messages were read: what the header says is within the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerHeader {
    /// What came of it.
    pub verdict: Verdict,
    /// Whether the directory was away, and what is kept on this host was believed.
    pub is_offline: bool,
    /// How many messages follow.
    pub messages: usize,
    /// Bytes of all of them, [`MESSAGES_BYTES_MAX`] at the most.
    pub messages_bytes: usize,
    /// Bytes of the blob behind them, [`BLOB_BYTES_MAX`] at the most.
    pub blob_bytes: usize,
}

impl AnswerHeader {
    /// Reads and checks.
    pub fn parse(bytes: &[u8; ANSWER_HEADER_BYTES]) -> Result<Self, Malformed> {
        let head = AnswerHead::ref_from_bytes(bytes).map_err(|_| Malformed)?;
        let is_ours = head.magic == ANSWER_MAGIC && head.version.get() == VERSION;
        if !is_ours || head.flags.get() & !OFFLINE != 0 {
            return Err(Malformed);
        }
        let header = Self {
            verdict: Verdict::from_number(head.verdict.get()).ok_or(Malformed)?,
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

    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ANSWER_HEADER_BYTES] {
        let head = AnswerHead {
            magic: ANSWER_MAGIC,
            version: U16::new(VERSION),
            verdict: U16::new(self.verdict as u16),
            flags: U16::new(if self.is_offline { OFFLINE } else { 0 }),
            messages: U16::new(self.messages as u16),
            messages_bytes: U32::new(self.messages_bytes as u32),
            blob_bytes: U32::new(self.blob_bytes as u32),
        };
        zerocopy::transmute!(head)
    }
}

/// Something to show to whoever logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Whether it says that something went wrong.
    pub is_error: bool,
    /// UTF-8 without control characters, as whoever made the answer promises; shown as it is.
    pub text: &'a [u8],
}

/// Appends a message to those of an answer; what is too long is cut, between two characters.
pub fn write_message(out: &mut impl Extend<u8>, is_error: bool, text: &str) {
    let end = text.floor_char_boundary(MESSAGE_BYTES_MAX);
    out.extend(u16::from(is_error).to_le_bytes());
    out.extend((end as u16).to_le_bytes());
    out.extend(text.bytes().take(end));
}

/// Reads the messages of an answer, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Of the bytes behind the header.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self) -> Option<Message<'a>> {
        let (&[kind, zero, low, high], rest) = self.0.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes([low, high]));
        let (text, rest) = rest.split_at_checked(length)?;
        let is_one = kind <= 1 && zero == 0 && length <= MESSAGE_BYTES_MAX && !text.contains(&0);
        self.0 = rest;
        is_one.then_some(Message { is_error: kind == 1, text })
    }
}

/// Ends at the end, and at the first that is none.
impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let message = self.take();
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

    const CHANGE: Request<'static> = Request {
        kind: Kind::Change,
        user: b"alice",
        uid: Some(2000),
        service: b"passwd",
        remote_host: b"",
        terminal: b"/dev/pts/0",
        remote_user: b"root",
        secret: b"old one",
        new_secret: b"new one",
    };

    fn written(request: &Request<'_>) -> Option<Vec<u8>> {
        request.write(&mut [0xff; REQUEST_BYTES_MAX]).map(<[u8]>::to_vec)
    }

    #[test]
    fn what_was_asked_is_what_arrives() {
        for kind in Kind::ALL {
            let mut request = Request { kind, ..CHANGE };
            if kind != Kind::Change {
                request.new_secret = b"";
            }
            if matches!(kind, Kind::Account | Kind::SshKeys) {
                request.secret = b"";
            }
            let bytes = written(&request).unwrap();
            assert!(Request::read(&bytes) == Ok(request), "{kind:?}");
        }
    }

    #[test]
    fn the_longest_of_everything_fits_and_one_byte_more_is_refused() {
        let (longest, name) = ([b'x'; SECRET_BYTES_MAX + 1], [b'x'; USER_BYTES_MAX + 1]);
        let full = Request {
            user: &name[1..],
            service: &name[1..],
            remote_host: &name[1..],
            terminal: &name[1..],
            remote_user: &name[1..],
            secret: &longest[1..],
            new_secret: &longest[1..],
            ..CHANGE
        };
        assert_eq!(written(&full).map(|bytes| bytes.len()), Some(REQUEST_BYTES_MAX));
        assert_eq!(written(&Request { secret: &longest, ..CHANGE }), None);
        assert_eq!(written(&Request { new_secret: &longest, ..CHANGE }), None);
        assert_eq!(written(&Request { user: &name, ..CHANGE }), None);
        assert_eq!(written(&Request { user: b"", ..CHANGE }), None);
    }

    /// A header as docs/wire-format.md lays it out, read.
    fn header(kind: u16, lengths: [u16; FIELDS], zero: u16) -> Result<RequestHeader, Malformed> {
        let numbers = [VERSION, kind].into_iter().chain(lengths).chain([zero, 0, 0]);
        let bytes: Vec<u8> =
            REQUEST_MAGIC.into_iter().chain(numbers.flat_map(u16::to_le_bytes)).collect();
        RequestHeader::parse(bytes[..].try_into().unwrap())
    }

    #[test]
    fn header_of_longest_fields_accepted_one_byte_more_refused() {
        let longest = LONGEST.map(|bytes| bytes as u16);
        let change = Kind::Change as u16;
        let header_bytes = |lengths| header(change, lengths, 0).map(|header| header.bytes());
        assert_eq!(header_bytes(longest), Ok(REQUEST_BYTES_MAX - REQUEST_HEADER_BYTES));
        for field in 0..FIELDS {
            let mut longer = longest;
            longer[field] += 1;
            assert_eq!(header_bytes(longer), Err(Malformed), "field {field}");
        }
        assert_eq!(header_bytes([1, 0, 0, 0, 0, 0, 0]), Ok(1));
        assert_eq!(header_bytes([0, 0, 0, 0, 0, 0, 0]), Err(Malformed));
        assert_eq!(header(change, longest, 1), Err(Malformed));
    }

    #[test]
    fn header_passwords_fit_kind() {
        // Without a password, with the old one, with the new one, with both.
        let allowed = |kind: Kind| {
            [[0, 0], [1, 0], [0, 1], [1, 1]]
                .map(|[old, new]| header(kind as u16, [1, 0, 0, 0, 0, old, new], 0).is_ok())
        };
        assert_eq!(allowed(Kind::Authenticate), [true, true, false, false]);
        assert_eq!(allowed(Kind::PrepareChange), [true, true, false, false]);
        assert_eq!(allowed(Kind::Account), [true, false, false, false]);
        assert_eq!(allowed(Kind::SshKeys), [true, false, false, false]);
        assert_eq!(allowed(Kind::Change), [true, true, true, true]);
    }

    #[test]
    fn limits_are_those_of_page() {
        assert_eq!((REQUEST_HEADER_BYTES, REQUEST_BYTES_MAX), (28, 28 + 256 + 4 * 256 + 2 * 1024));
        assert_eq!(ANSWER_HEADER_BYTES, 20);
        assert_eq!((MESSAGES_BYTES_MAX, BLOB_BYTES_MAX), (16_480, 61_440));
    }

    #[test]
    fn request_without_uid_reads_without_uid() {
        for uid in [None, Some(0), Some(u32::MAX - 1)] {
            let bytes = written(&Request { uid, ..CHANGE }).unwrap();
            assert!(Request::read(&bytes).is_ok_and(|request| request.uid == uid), "{uid:?}");
        }
    }

    #[test]
    fn request_with_nul_in_any_field_refused() {
        let nul = Request {
            user: b"\0",
            service: b"\0",
            remote_host: b"\0",
            terminal: b"\0",
            remote_user: b"\0",
            secret: b"\0",
            new_secret: b"\0",
            ..CHANGE
        };
        for request in [
            Request { user: nul.user, ..CHANGE },
            Request { service: nul.service, ..CHANGE },
            Request { remote_host: nul.remote_host, ..CHANGE },
            Request { terminal: nul.terminal, ..CHANGE },
            Request { remote_user: nul.remote_user, ..CHANGE },
            Request { secret: nul.secret, ..CHANGE },
            Request { new_secret: nul.new_secret, ..CHANGE },
        ] {
            let bytes = written(&request).unwrap();
            assert!(Request::read(&bytes).is_err(), "{}", bytes.escape_ascii());
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
    fn a_request_that_was_cut_or_goes_on_or_has_a_nul_in_it_is_refused() {
        let mut bytes = written(&CHANGE).unwrap();
        assert!((0..bytes.len()).all(|end| Request::read(&bytes[..end]).is_err()));
        bytes.push(b'x');
        assert!(Request::read(&bytes).is_err());
        bytes.pop();
        *bytes.last_mut().unwrap() = 0;
        assert!(Request::read(&bytes).is_err());
    }

    /// The offsets of docs/wire-format.md: version 4, kind 6, lengths 8 to 21, zero 22.
    #[test]
    fn a_header_with_anything_wrong_is_refused() {
        let right = written(&CHANGE).unwrap();
        for (place, value) in [(0, b'x'), (4, 2), (6, 5), (7, 1), (8, 0), (9, 2), (19, 5), (22, 1)]
        {
            let mut wrong = right.clone();
            wrong[place] = value;
            assert!(Request::read(&wrong).is_err(), "byte {place}");
        }
    }

    #[test]
    fn every_verdict_has_a_number_of_its_own_and_no_other_number_is_one() {
        let verdicts: Vec<_> = (0..=u16::MAX).filter_map(Verdict::from_number).collect();
        assert_eq!(verdicts, Verdict::ALL);
        let kinds: Vec<_> = (0..=u16::MAX).filter_map(Kind::from_number).collect();
        assert_eq!(kinds, Kind::ALL);
    }

    #[test]
    fn verdict_labels_are_distinct_words() {
        assert_eq!(Verdict::Success.label(), "success");
        assert_eq!(Verdict::PasswordExpired.label(), "password expired");
        let labels: HashSet<_> = Verdict::ALL.map(Verdict::label).into_iter().collect();
        assert_eq!(labels.len(), Verdict::ALL.len());
        let is_word = |label: &&str| label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b' '));
        assert!(labels.iter().all(|label| !label.is_empty() && is_word(label)));
    }

    #[test]
    fn an_answer_arrives_as_it_was_given() {
        let mut messages = Vec::new();
        write_message(&mut messages, false, "It expires in 3 days.");
        write_message(&mut messages, true, "");
        let header = AnswerHeader {
            verdict: Verdict::MustChange,
            is_offline: true,
            messages: 2,
            messages_bytes: messages.len(),
            blob_bytes: 7,
        };
        for header in [header, AnswerHeader { is_offline: false, ..header }] {
            assert_eq!(AnswerHeader::parse(&header.encode()), Ok(header));
        }
        let told: Vec<_> = Messages::new(&messages).collect();
        let info = Message { is_error: false, text: b"It expires in 3 days." };
        assert_eq!(told, vec![info, Message { is_error: true, text: b"" }]);
    }

    #[test]
    fn a_long_message_is_cut_between_two_characters() {
        let mut messages = Vec::new();
        write_message(&mut messages, false, &"ä".repeat(400));
        let told = Messages::new(&messages).next().unwrap();
        assert_eq!(told.text.len(), MESSAGE_BYTES_MAX - 1);
        assert!(core::str::from_utf8(told.text).is_ok());
    }

    #[test]
    fn an_answer_beyond_the_bounds_is_refused() {
        let header = AnswerHeader {
            verdict: Verdict::Success,
            is_offline: false,
            messages: MESSAGES_MAX,
            messages_bytes: MESSAGES_BYTES_MAX,
            blob_bytes: BLOB_BYTES_MAX,
        };
        assert!(AnswerHeader::parse(&header.encode()).is_ok());
        for wrong in [
            AnswerHeader { messages: MESSAGES_MAX + 1, ..header },
            AnswerHeader { messages_bytes: MESSAGES_BYTES_MAX + 1, ..header },
            AnswerHeader { blob_bytes: BLOB_BYTES_MAX + 1, ..header },
        ] {
            assert_eq!(AnswerHeader::parse(&wrong.encode()), Err(Malformed));
        }
        for (place, value) in [(0, 0), (4, 0), (6, 15), (7, 1), (8, 2)] {
            let mut bytes = header.encode();
            bytes[place] = value;
            assert_eq!(AnswerHeader::parse(&bytes), Err(Malformed), "byte {place}");
        }
    }

    #[test]
    fn message_of_limit_kept_whole() {
        for len in [0, 1, MESSAGE_BYTES_MAX - 1, MESSAGE_BYTES_MAX] {
            let text = "m".repeat(len);
            let mut messages = Vec::new();
            write_message(&mut messages, false, &text);
            assert_eq!(messages.len(), MESSAGE_HEAD_BYTES + len);
            assert_eq!(Messages::new(&messages).next().unwrap().text, text.as_bytes());
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
            let mut walk = Messages::new(&messages);
            assert_eq!(walk.next(), Some(Message { is_error: true, text: b"one" }));
            assert_eq!([walk.next(), walk.next()], [None, None], "{}", bad.escape_ascii());
        }
    }
}
