//! What a responder answers.

use crate::{Malformed, VERSION};
use core::ffi::CStr;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a reply.
pub(crate) const MAGIC: [u8; 4] = *b"RSTA";
/// Length of a reply before the payload.
pub const REPLY_HEADER_BYTES: usize = size_of::<Header>();
/// Longest payload: a group of four million members.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Strings of a user: name, password, GECOS, home folder, shell.
const USER_STRINGS: u32 = 5;
/// Strings of a group before its members: name, password.
const GROUP_STRINGS: u32 = 2;
/// Bytes of a gid in a payload.
const GID_BYTES: u32 = 4;

/// What the answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Status {
    /// No such user or group.
    Absent = 0,
    /// Whoever would know cannot be asked now.
    Unavailable = 1,
    /// A user.
    User = 2,
    /// A group.
    Group = 3,
    /// The supplementary groups of a user.
    Groups = 4,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 4],
    pub(crate) version: U16,
    pub(crate) status: U16,
    pub(crate) payload_bytes: U32,
    pub(crate) count: U32,
    pub(crate) id: U32,
    pub(crate) gid: U32,
}

/// A reply before its payload was read: what the header says agrees with itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// What follows, [`PAYLOAD_BYTES_MAX`] at the most.
    pub payload_bytes: usize,
    /// What it is.
    pub reply: Reply,
}

/// What a reply says beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No such user or group. Nothing follows.
    Absent,
    /// Whoever would know cannot be asked now. Nothing follows.
    Unavailable,
    /// A user; name, password, GECOS, home folder and shell follow.
    User {
        /// User id.
        uid: u32,
        /// Primary group id.
        gid: u32,
    },
    /// A group; name, password and the members' names follow.
    Group {
        /// Group id.
        gid: u32,
        /// How many members.
        members: usize,
    },
    /// The supplementary groups of a user; that many gids of four bytes follow.
    Groups {
        /// How many.
        count: usize,
    },
}

impl ReplyHeader {
    /// Reads and checks.
    pub fn parse(bytes: &[u8; REPLY_HEADER_BYTES]) -> Result<Self, Malformed> {
        let header = Header::ref_from_bytes(bytes).map_err(|_| Malformed)?;
        if header.magic != MAGIC || header.version.get() != VERSION {
            return Err(Malformed);
        }
        let (bytes, count) = (header.payload_bytes.get(), header.count.get());
        let (id, gid) = (header.id.get(), header.gid.get());
        let only = |right: bool, reply| if right { Ok(reply) } else { Err(Malformed) };
        let nothing = bytes == 0 && count == 0 && id == 0 && gid == 0;
        // Each string has its NUL, so there are as many bytes as strings at the least.
        let strings = |count: u32| bytes >= count;
        let reply = match header.status.get() {
            status if status == Status::Absent as u16 => only(nothing, Reply::Absent),
            status if status == Status::Unavailable as u16 => only(nothing, Reply::Unavailable),
            status if status == Status::User as u16 => {
                only(count == 0 && strings(USER_STRINGS), Reply::User { uid: id, gid })
            }
            status if status == Status::Group as u16 => only(
                gid == 0 && strings(count.checked_add(GROUP_STRINGS).ok_or(Malformed)?),
                Reply::Group { gid: id, members: count as usize },
            ),
            status if status == Status::Groups as u16 => only(
                id == 0 && gid == 0 && count.checked_mul(GID_BYTES) == Some(bytes),
                Reply::Groups { count: count as usize },
            ),
            _ => Err(Malformed),
        };
        let payload_bytes = bytes as usize;
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(Malformed);
        }
        Ok(Self { payload_bytes, reply: reply? })
    }

    /// The header of a frame that is as long as it says: for who sends on what another made.
    pub fn of_frame(frame: &[u8]) -> Result<Self, Malformed> {
        let (header, payload) = frame.split_first_chunk().ok_or(Malformed)?;
        let header = Self::parse(header)?;
        if header.payload_bytes == payload.len() { Ok(header) } else { Err(Malformed) }
    }
}

/// Walks over the strings of a payload.
#[derive(Clone, Copy, Debug)]
pub struct Strings<'p> {
    payload: &'p [u8],
    next: usize,
}

impl<'p> Strings<'p> {
    /// Before the first.
    #[must_use]
    pub fn new(payload: &'p [u8]) -> Self {
        Self { payload, next: 0 }
    }

    /// The next string without its NUL.
    pub fn next_string(&mut self) -> Result<&'p [u8], Malformed> {
        let rest = self.payload.get(self.next..).ok_or(Malformed)?;
        let text = CStr::from_bytes_until_nul(rest).map_err(|_| Malformed)?;
        self.next = self.next.saturating_add(text.to_bytes_with_nul().len());
        Ok(text.to_bytes())
    }

    /// Where the next string starts in the payload; its end was seen.
    pub fn next_start(&mut self) -> Result<usize, Malformed> {
        let start = self.next;
        self.next_string().map(|_| start)
    }

    /// Sees that nothing is left.
    pub fn end(self) -> Result<(), Malformed> {
        if self.next == self.payload.len() { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header as docs/wire-format.md lays it out, read.
    fn parsed(status: u16, numbers: [u32; 4]) -> Result<ReplyHeader, Malformed> {
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
        ReplyHeader::parse(&bytes)
    }

    #[test]
    fn header_that_agrees_with_itself_accepted() {
        const MOST: u32 = PAYLOAD_BYTES_MAX as u32;
        // Status; bytes of payload, count, id, gid.
        for (status, numbers, reply) in [
            (0, [0, 0, 0, 0], Reply::Absent),
            (1, [0, 0, 0, 0], Reply::Unavailable),
            (2, [5, 0, 7, 8], Reply::User { uid: 7, gid: 8 }),
            (2, [MOST, 0, 0, 0], Reply::User { uid: 0, gid: 0 }),
            (3, [2, 0, 7, 0], Reply::Group { gid: 7, members: 0 }),
            (3, [5, 3, 0, 0], Reply::Group { gid: 0, members: 3 }),
            (4, [0, 0, 0, 0], Reply::Groups { count: 0 }),
            (4, [12, 3, 0, 0], Reply::Groups { count: 3 }),
            (4, [MOST, MOST / 4, 0, 0], Reply::Groups { count: MOST as usize / 4 }),
        ] {
            let payload_bytes = numbers[0] as usize;
            let header = Ok(ReplyHeader { payload_bytes, reply });
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
            // 2^30 gids of four bytes are 0 bytes modulo 2^32.
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
        assert!(ReplyHeader::parse(&right).is_ok());
        for (place, value) in [(0, b'r'), (3, b'Q'), (4, 0), (4, 2), (5, 1)] {
            let mut wrong = right;
            wrong[place] = value;
            assert_eq!(ReplyHeader::parse(&wrong), Err(Malformed), "byte {place}");
        }
    }

    #[test]
    fn strings_start_where_previous_ended() {
        let mut walk = Strings::new(b"one\0\0three\0cut");
        assert_eq!(walk.next_start(), Ok(0));
        assert_eq!(walk.next_start(), Ok(4));
        assert_eq!(walk.next_start(), Ok(5));
        assert_eq!(walk.next_start(), Err(Malformed));
        assert_eq!(walk.end(), Err(Malformed));
    }
}
