// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodes replies. Each function appends to an output, usually a `Vec<u8>`. After an error the output is unchanged.

use crate::reply::{MAGIC, RawNssReplyHeader};
use crate::{NssReplyStatus, PAYLOAD_BYTES_MAX, REPLY_HEADER_BYTES, VERSION};
use core::fmt;
use roster_passwd_format::{Group, User};
use zerocopy::little_endian::{U16, U32};

/// The entry does not fit into a reply: it is longer than [`PAYLOAD_BYTES_MAX`], or a string contains a NUL.
///
/// ```
/// use roster_passwd_format::Group;
/// use roster_wire::encode::{self, EncodeError};
///
/// let group = Group { name: b"two\0names", passwd: None, gid: 10 };
/// let mut frame = Vec::new();
/// assert_eq!(encode::group(&mut frame, &group, [].into_iter()), Err(EncodeError));
/// assert!(frame.is_empty());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeError;

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entry of more than 64 MiB, or with a NUL in a string, fits into no reply")
    }
}

impl core::error::Error for EncodeError {}

/// The complete reply for a missing user or group.
pub const ABSENT: [u8; REPLY_HEADER_BYTES] = header(NssReplyStatus::Absent, 0, 0, 0, 0);
/// The complete reply if the source of the entry cannot be queried now.
pub const UNAVAILABLE: [u8; REPLY_HEADER_BYTES] = header(NssReplyStatus::Unavailable, 0, 0, 0, 0);

/// Appends a reply with a user. A NULL field becomes an empty string.
pub fn user(out: &mut impl Extend<u8>, user: &User<'_>) -> Result<(), EncodeError> {
    let [passwd, gecos, dir, shell] =
        [user.passwd, user.gecos, user.dir, user.shell].map(Option::unwrap_or_default);
    let fields = [user.name, passwd, gecos, dir, shell];
    let payload_bytes = payload_bytes(fields.into_iter())?;
    out.extend(header(NssReplyStatus::User, payload_bytes, 0, user.uid, user.gid));
    strings(out, fields.into_iter());
    Ok(())
}

/// Appends a reply with a group and all of its members.
pub fn group<'m>(
    out: &mut impl Extend<u8>,
    group: &Group<'_>,
    members: impl Iterator<Item = &'m [u8]> + Clone,
) -> Result<(), EncodeError> {
    let fields = [group.name, group.passwd.unwrap_or_default()];
    let bytes = payload_bytes(fields.into_iter())?.checked_add(payload_bytes(members.clone())?);
    let bytes = bytes.filter(|&bytes| bytes as usize <= PAYLOAD_BYTES_MAX).ok_or(EncodeError)?;
    // There are at most as many members as bytes.
    let count = members.clone().count() as u32;
    out.extend(header(NssReplyStatus::Group, bytes, count, group.gid, 0));
    strings(out, fields.into_iter());
    strings(out, members);
    Ok(())
}

/// Appends a reply with the supplementary groups of a user. The list may be empty.
pub fn groups(
    out: &mut impl Extend<u8>,
    gids: impl Iterator<Item = u32> + Clone,
) -> Result<(), EncodeError> {
    let count = gids.clone().count();
    let bytes = count.checked_mul(size_of::<u32>()).filter(|&bytes| bytes <= PAYLOAD_BYTES_MAX);
    let bytes = bytes.ok_or(EncodeError)?;
    out.extend(header(NssReplyStatus::Groups, bytes as u32, count as u32, 0, 0));
    out.extend(gids.flat_map(u32::to_le_bytes));
    Ok(())
}

fn strings<'s>(out: &mut impl Extend<u8>, strings: impl Iterator<Item = &'s [u8]>) {
    for text in strings {
        out.extend(text.iter().copied());
        out.extend([0]);
    }
}

/// Returns the bytes of the strings with their NULs.
fn payload_bytes<'s>(mut strings: impl Iterator<Item = &'s [u8]>) -> Result<u32, EncodeError> {
    let bytes = strings.try_fold(0_usize, |bytes, text| {
        let bytes = bytes.checked_add(text.len())?.checked_add(1)?;
        (bytes <= PAYLOAD_BYTES_MAX && !text.contains(&0)).then_some(bytes)
    });
    bytes.map(|bytes| bytes as u32).ok_or(EncodeError)
}

const fn header(
    status: NssReplyStatus,
    payload_bytes: u32,
    count: u32,
    id: u32,
    gid: u32,
) -> [u8; REPLY_HEADER_BYTES] {
    let header = RawNssReplyHeader {
        magic: MAGIC,
        version: U16::new(VERSION),
        status: U16::new(status as u16),
        payload_bytes: U32::new(payload_bytes),
        count: U32::new(count),
        id: U32::new(id),
        gid: U32::new(gid),
    };
    zerocopy::transmute!(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Malformed, NssReply, NssReplyHeader, PayloadStrings};
    use core::iter;
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    const ALICE: User<'_> = User {
        name: b"alice",
        passwd: Some(b"*"),
        uid: 1000,
        gid: 100,
        gecos: Some(b"Alice"),
        dir: Some(b"/home/alice"),
        shell: None,
    };
    const STAFF: Group<'_> = Group { name: b"staff", passwd: Some(b"*"), gid: 50 };

    fn payload(frame: &[u8], strings: usize) -> Result<Vec<&[u8]>, Malformed> {
        let mut walk = PayloadStrings::new(&frame[REPLY_HEADER_BYTES..]);
        let found = (0..strings).map(|_| walk.next_string()).collect();
        walk.end()?;
        found
    }

    fn reply(frame: &[u8]) -> Result<NssReply, Malformed> {
        NssReplyHeader::from_frame(frame).map(|header| header.reply)
    }

    #[test]
    fn a_user_arrives_as_it_was() {
        let mut frame = Vec::new();
        user(&mut frame, &ALICE).unwrap();
        assert_eq!(reply(&frame), Ok(NssReply::User { uid: 1000, gid: 100 }));
        let fields = [&b"alice"[..], b"*", b"Alice", b"/home/alice", b""];
        assert_eq!(payload(&frame, 5), Ok(fields.to_vec()));
    }

    #[test]
    fn a_group_arrives_as_it_was() {
        for members in [vec![], vec![&b"alice"[..], b"bob"]] {
            let mut frame = Vec::new();
            group(&mut frame, &STAFF, members.iter().copied()).unwrap();
            assert_eq!(reply(&frame), Ok(NssReply::Group { gid: 50, members: members.len() }));
            let strings = [vec![&b"staff"[..], b"*"], members.clone()].concat();
            assert_eq!(payload(&frame, strings.len()), Ok(strings));
        }
    }

    #[test]
    fn the_groups_of_a_user_arrive_as_they_were() {
        for gids in [vec![], vec![50, 4_000_000_000, 50]] {
            let mut frame = Vec::new();
            groups(&mut frame, gids.iter().copied()).unwrap();
            assert_eq!(reply(&frame), Ok(NssReply::Groups { count: gids.len() }));
            let (found, rest) = frame[REPLY_HEADER_BYTES..].as_chunks();
            let found: Vec<_> = found.iter().map(|&gid| u32::from_le_bytes(gid)).collect();
            assert_eq!((found, rest), (gids, &[][..]));
        }
    }

    #[test]
    fn nothing_found_is_a_header_alone() {
        assert_eq!(reply(&ABSENT), Ok(NssReply::Absent));
        assert_eq!(reply(&UNAVAILABLE), Ok(NssReply::Unavailable));
    }

    #[test]
    fn what_cannot_be_said_leaves_nothing_behind() {
        let mut frame = Vec::new();
        let member = [b'm'; 1 << 20];
        let too_long = iter::repeat_n(&member[..], 64);
        assert_eq!(group(&mut frame, &STAFF, too_long), Err(EncodeError));
        assert_eq!(group(&mut frame, &STAFF, [&b"a\0b"[..]].into_iter()), Err(EncodeError));
        assert_eq!(user(&mut frame, &User { shell: Some(b"\0"), ..ALICE }), Err(EncodeError));
        assert_eq!(groups(&mut frame, 0..(16 << 20) + 1), Err(EncodeError));
        assert!(frame.is_empty());
    }

    /// Accepts any number of bytes without reading them.
    struct Nowhere;

    impl Extend<u8> for Nowhere {
        fn extend<I: IntoIterator<Item = u8>>(&mut self, _: I) {}
    }

    #[test]
    fn payload_of_limit_sent_one_byte_more_refused() {
        let bytes = vec![b'x'; PAYLOAD_BYTES_MAX];
        // Five NULs, the name, and one byte of the password.
        let longest = &bytes[5 + ALICE.name.len() + 1..];
        let with_gecos = |gecos| User { dir: None, gecos: Some(gecos), ..ALICE };
        assert_eq!(user(&mut Nowhere, &with_gecos(longest)), Ok(()));
        let longer = &bytes[5 + ALICE.name.len()..];
        assert_eq!(user(&mut Nowhere, &with_gecos(longer)), Err(EncodeError));

        // The strings of the group have 8 bytes, and the member has a NUL.
        let with_member = |member| group(&mut Nowhere, &STAFF, iter::once(member));
        assert_eq!(with_member(&bytes[9..]), Ok(()));
        assert_eq!(with_member(&bytes[8..]), Err(EncodeError));
        // Each half fits, but both together do not.
        assert_eq!(with_member(&bytes[1..]), Err(EncodeError));

        assert_eq!(groups(&mut Nowhere, 0..16 << 20), Ok(()));
        assert_eq!(groups(&mut Nowhere, 0..(16 << 20) + 1), Err(EncodeError));
    }

    #[test]
    fn unsayable_names_limit() {
        let text = "an entry of more than 64 MiB, or with a NUL in a string, fits into no reply";
        assert_eq!(std::format!("{EncodeError}"), text);
        assert_eq!(PAYLOAD_BYTES_MAX, 64 * 1024 * 1024);
    }

    #[test]
    fn a_frame_that_was_cut_is_refused() {
        let mut frame = Vec::new();
        user(&mut frame, &ALICE).unwrap();
        assert!((0..frame.len()).all(|len| reply(&frame[..len]).is_err()));
        frame.push(0);
        assert!(reply(&frame).is_err());
    }

    #[test]
    fn strings_without_an_end_or_with_something_behind_it_are_refused() {
        let mut none = PayloadStrings::new(b"no end");
        assert_eq!(none.next_string(), Err(Malformed));
        let mut more = PayloadStrings::new(b"one\0two\0");
        assert_eq!(more.next_string(), Ok(&b"one"[..]));
        assert_eq!(more.end(), Err(Malformed));
    }
}
