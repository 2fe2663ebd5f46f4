// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replies of an NSS responder. This module only parses; `encode` writes replies.

use crate::{Malformed, VERSION};
use core::ffi::CStr;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a reply.
pub(crate) const MAGIC: [u8; 4] = *b"RSTA";
/// Length of a reply before the payload.
pub const REPLY_HEADER_BYTES: usize = size_of::<RawNssReplyHeader>();
/// Maximum length of a payload: a group of four million members.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Strings of a user: name, password, GECOS, home directory, shell.
const USER_STRINGS: u32 = 5;
/// Strings of a group before its members: name, password.
const GROUP_STRINGS: u32 = 2;
/// Bytes of a gid in a payload.
const GID_BYTES: u32 = 4;

/// Status of a reply.
///
/// ```
/// use roster_wire::{NssReplyStatus, encode};
///
/// assert_eq!(encode::ABSENT[6..8], (NssReplyStatus::Absent as u16).to_le_bytes());
/// assert_eq!(encode::UNAVAILABLE[6..8], (NssReplyStatus::Unavailable as u16).to_le_bytes());
/// assert_eq!(NssReplyStatus::User as u16, 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum NssReplyStatus {
    /// No such user or group.
    Absent = 0,
    /// The source of the entry cannot be queried now.
    Unavailable = 1,
    /// A user.
    User = 2,
    /// A group.
    Group = 3,
    /// Supplementary groups of a user.
    Groups = 4,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawNssReplyHeader {
    pub(crate) magic: [u8; 4],
    pub(crate) version: U16,
    pub(crate) status: U16,
    pub(crate) payload_bytes: U32,
    pub(crate) count: U32,
    pub(crate) id: U32,
    pub(crate) gid: U32,
}

/// The header of a reply; its numbers are consistent.
///
/// ```
/// use roster_wire::{NssReply, NssReplyHeader, encode};
///
/// let mut frame = Vec::new();
/// encode::groups(&mut frame, [10, 101].into_iter())?;
/// let header = NssReplyHeader::from_frame(&frame)?;
/// assert_eq!(header, NssReplyHeader { payload_bytes: 8, reply: NssReply::Groups { count: 2 } });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NssReplyHeader {
    /// Length of the payload, at most [`PAYLOAD_BYTES_MAX`].
    pub payload_bytes: usize,
    /// Content of the header.
    pub reply: NssReply,
}

/// Content of a reply, without its payload.
///
/// ```
/// use roster_wire::{NssReply, NssReplyHeader, encode};
///
/// let answer = |frame| NssReplyHeader::parse(frame).map(|header| header.reply);
/// assert_eq!(answer(&encode::ABSENT), Ok(NssReply::Absent));
/// assert_eq!(answer(&encode::UNAVAILABLE), Ok(NssReply::Unavailable));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NssReply {
    /// No such user or group. The payload is empty.
    Absent,
    /// The source of the entry cannot be queried now. The payload is empty.
    Unavailable,
    /// A user. The payload has name, password, GECOS, home directory and shell.
    User {
        /// Uid.
        uid: u32,
        /// Primary gid.
        gid: u32,
    },
    /// A group. The payload has name, password and the members' names.
    Group {
        /// Gid.
        gid: u32,
        /// Number of members.
        members: usize,
    },
    /// Supplementary groups of a user. The payload has that many gids of four bytes.
    Groups {
        /// Number of groups.
        count: usize,
    },
}

impl NssReplyHeader {
    /// Decodes and checks a header.
    pub fn parse(bytes: &[u8; REPLY_HEADER_BYTES]) -> Result<Self, Malformed> {
        let header = RawNssReplyHeader::ref_from_bytes(bytes).map_err(|_| Malformed)?;
        if header.magic != MAGIC || header.version.get() != VERSION {
            return Err(Malformed);
        }
        let (bytes, count) = (header.payload_bytes.get(), header.count.get());
        let (id, gid) = (header.id.get(), header.gid.get());
        let only = |right: bool, reply| if right { Ok(reply) } else { Err(Malformed) };
        let nothing = bytes == 0 && count == 0 && id == 0 && gid == 0;
        // Each string has its NUL, so there are at least as many bytes as strings.
        let strings = |count: u32| bytes >= count;
        let reply = match header.status.get() {
            status if status == NssReplyStatus::Absent as u16 => only(nothing, NssReply::Absent),
            status if status == NssReplyStatus::Unavailable as u16 => {
                only(nothing, NssReply::Unavailable)
            }
            status if status == NssReplyStatus::User as u16 => {
                only(count == 0 && strings(USER_STRINGS), NssReply::User { uid: id, gid })
            }
            status if status == NssReplyStatus::Group as u16 => only(
                gid == 0 && strings(count.checked_add(GROUP_STRINGS).ok_or(Malformed)?),
                NssReply::Group { gid: id, members: count as usize },
            ),
            status if status == NssReplyStatus::Groups as u16 => only(
                id == 0 && gid == 0 && count.checked_mul(GID_BYTES) == Some(bytes),
                NssReply::Groups { count: count as usize },
            ),
            _ => Err(Malformed),
        };
        let payload_bytes = bytes as usize;
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(Malformed);
        }
        Ok(Self { payload_bytes, reply: reply? })
    }

    /// Decodes the header of a complete frame and checks its length. It serves processes that forward a reply.
    pub fn from_frame(frame: &[u8]) -> Result<Self, Malformed> {
        let (header, payload) = frame.split_first_chunk().ok_or(Malformed)?;
        let header = Self::parse(header)?;
        if header.payload_bytes == payload.len() { Ok(header) } else { Err(Malformed) }
    }
}

/// Reads the strings of a payload.
///
/// ```
/// use roster_passwd_format::Group;
/// use roster_wire::{PayloadStrings, REPLY_HEADER_BYTES, encode};
///
/// let staff = Group { name: b"staff", passwd: Some(b"*"), gid: 10 };
/// let mut frame = Vec::new();
/// encode::group(&mut frame, &staff, [&b"alice"[..], b"bob"].into_iter())?;
/// let mut strings = PayloadStrings::new(&frame[REPLY_HEADER_BYTES..]);
/// assert_eq!(strings.next_string()?, b"staff");
/// assert_eq!(strings.next_string()?, b"*");
/// assert_eq!(strings.next_start()?, 8);
/// assert_eq!(strings.next_string()?, b"bob");
/// strings.end()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PayloadStrings<'p> {
    payload: &'p [u8],
    next: usize,
}

impl<'p> PayloadStrings<'p> {
    /// Creates a reader before the first string.
    #[must_use]
    pub fn new(payload: &'p [u8]) -> Self {
        Self { payload, next: 0 }
    }

    /// Returns the next string without its NUL.
    pub fn next_string(&mut self) -> Result<&'p [u8], Malformed> {
        let rest = self.payload.get(self.next..).ok_or(Malformed)?;
        let text = CStr::from_bytes_until_nul(rest).map_err(|_| Malformed)?;
        self.next = self.next.saturating_add(text.to_bytes_with_nul().len());
        Ok(text.to_bytes())
    }

    /// Returns the start of the next string in the payload, and checks its end.
    pub fn next_start(&mut self) -> Result<usize, Malformed> {
        let start = self.next;
        self.next_string().map(|_| start)
    }

    /// Checks that no bytes are left.
    pub fn end(self) -> Result<(), Malformed> {
        if self.next == self.payload.len() { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a header with the layout of docs/internals/wire-format.md.
    fn parsed(status: u16, numbers: [u32; 4]) -> Result<NssReplyHeader, Malformed> {
        let mut bytes = [0; REPLY_HEADER_BYTES];
        let [magic, version_and_status, rest @ ..] = bytes.as_chunks_mut::<4>().0 else {
            unreachable!("six numbers of four bytes")
        };
        *magic = *b"RSTA";
        let [low, high] = status.to_le_bytes();
        *version_and_status = [1, 0, low, high];
        for (place, number) in rest.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        NssReplyHeader::parse(&bytes)
    }

    #[test]
    fn header_that_agrees_with_itself_accepted() {
        const MOST: u32 = PAYLOAD_BYTES_MAX as u32;
        // Status; payload bytes, count, id, gid.
        for (status, numbers, reply) in [
            (0, [0, 0, 0, 0], NssReply::Absent),
            (1, [0, 0, 0, 0], NssReply::Unavailable),
            (2, [5, 0, 7, 8], NssReply::User { uid: 7, gid: 8 }),
            (2, [MOST, 0, 0, 0], NssReply::User { uid: 0, gid: 0 }),
            (3, [2, 0, 7, 0], NssReply::Group { gid: 7, members: 0 }),
            (3, [5, 3, 0, 0], NssReply::Group { gid: 0, members: 3 }),
            (4, [0, 0, 0, 0], NssReply::Groups { count: 0 }),
            (4, [12, 3, 0, 0], NssReply::Groups { count: 3 }),
            (4, [MOST, MOST / 4, 0, 0], NssReply::Groups { count: MOST as usize / 4 }),
        ] {
            let payload_bytes = numbers[0] as usize;
            let header = Ok(NssReplyHeader { payload_bytes, reply });
            assert_eq!(parsed(status, numbers), header, "status {status}, {numbers:?}");
        }
    }

    #[test]
    fn header_that_contradicts_itself_refused() {
        const MOST: u32 = PAYLOAD_BYTES_MAX as u32;
        for (status, numbers) in [
            (0, [1, 0, 0, 0]),
            (0, [0, 1, 0, 0]),
            (0, [0, 0, 1, 0]),
            (0, [0, 0, 0, 1]),
            (1, [1, 0, 0, 0]),
            (1, [0, 1, 0, 0]),
            (1, [0, 0, 1, 0]),
            (1, [0, 0, 0, 1]),
            (2, [4, 0, 7, 8]),
            (2, [5, 1, 7, 8]),
            (2, [MOST + 1, 0, 7, 8]),
            (3, [1, 0, 7, 0]),
            (3, [4, 3, 7, 0]),
            (3, [2, 0, 7, 1]),
            (3, [u32::MAX, u32::MAX, 7, 0]),
            (3, [0, u32::MAX - 1, 7, 0]),
            (3, [MOST + 1, 3, 7, 0]),
            (4, [11, 3, 0, 0]),
            (4, [13, 3, 0, 0]),
            (4, [12, 3, 1, 0]),
            (4, [12, 3, 0, 1]),
            // 2^30 gids of four bytes have 0 bytes modulo 2^32.
            (4, [0, 1 << 30, 0, 0]),
            (4, [MOST + 4, MOST / 4 + 1, 0, 0]),
            (5, [0, 0, 0, 0]),
            (0x100, [0, 0, 0, 0]),
        ] {
            assert_eq!(parsed(status, numbers), Err(Malformed), "status {status}, {numbers:?}");
        }
    }

    #[test]
    fn header_of_other_magic_or_version_refused() {
        let right = crate::encode::ABSENT;
        assert!(NssReplyHeader::parse(&right).is_ok());
        for (place, value) in [(0, b'r'), (3, b'Q'), (4, 0), (4, 2), (5, 1)] {
            let mut wrong = right;
            wrong[place] = value;
            assert_eq!(NssReplyHeader::parse(&wrong), Err(Malformed), "byte {place}");
        }
    }

    #[test]
    fn strings_start_where_previous_ended() {
        let mut walk = PayloadStrings::new(b"one\0\0three\0cut");
        assert_eq!(walk.next_start(), Ok(0));
        assert_eq!(walk.next_start(), Ok(4));
        assert_eq!(walk.next_start(), Ok(5));
        assert_eq!(walk.next_start(), Err(Malformed));
        assert_eq!(walk.end(), Err(Malformed));
    }
}
