// SPDX-License-Identifier: MIT OR Apache-2.0
//! The domain image: how a backend sends its domain to the publisher, in full or as changes. The backend's
//! `domain_image` writes it, and the publisher's `domain_model` applies it.
//!
//! `docs/internals/exchange-format.md` describes the format. The reader trusts nothing. A hijacked backend can write
//! any bytes. It causes an error, or records that the publisher checks like all others. Replies to lookups and the
//! backend's cache have the same records, without a header.

use std::mem::size_of;

/// Magic bytes. The line ends reveal damage by a transfer in text mode.
pub const MAGIC: [u8; 8] = *b"RSTDOM\r\n";
/// Version of this format. A reader accepts only its own version: both sides are one executable.
pub const VERSION: u32 = 3;
/// Length of the header.
pub const HEADER_BYTES: usize = 48;
/// Longest image that a reader accepts. No domain within the publisher's limits needs more.
pub const IMAGE_BYTES_MAX: u64 = 448 << 20;
/// Longest text of a record. Longer names and directories are rejected before.
pub const TEXT_BYTES_MAX: usize = u16::MAX as usize;
/// Means no reference.
pub const NO_REFERENCE: u32 = u32::MAX;

/// Bit of [`ImageHeader::flags`]: the image has all entries of the directory. Without it the publisher may report "no
/// such user" for this domain only after a query.
pub const COMPLETE: u32 = 1;
/// Bit of [`ImageHeader::flags`]: the backend's process has fetched the directory's changes since its cache was
/// written. Without it the image may be older than an image of the previous process.
pub const CURRENT: u32 = 2;
/// Bit of [`ImageHeader::flags`]: missing entries were reported as deleted, or the backend decided about their removal
/// from its cache. Without it the backend started without a cache. It then cannot distinguish a removed entry from a
/// hidden one.
pub const REMOVALS_JUDGED: u32 = 4;
/// Bit of a group's flags: its members are known. The list may be empty.
pub const MEMBERS_KNOWN: u8 = 1;
/// Bit of a group's flags: the group has no gid, and only nests.
pub const WITHOUT_GID: u8 = 2;

const RECORD_HEADER_BYTES: usize = 12;

/// Faults of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageDecodeError {
    /// Another format or another version.
    #[error("the image does not have format version {VERSION}")]
    Foreign,
    /// Shorter or longer than its lengths state.
    #[error("the image is truncated or damaged at byte {0}")]
    Corrupt(usize),
}

/// The first bytes of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    /// [`COMPLETE`], [`CURRENT`] and [`REMOVALS_JUDGED`].
    pub flags: u32,
    /// The backend process, by a random number.
    pub epoch: u64,
    /// The state before the records; 0 if they are the full domain.
    pub since: u64,
    /// The state after the records.
    pub sequence: u64,
    /// Number of records.
    pub records: u64,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The present state of a user.
    User(UserRecord<'a>),
    /// The present state of a group.
    Group(GroupRecord<'a>),
    /// The entry of this number was removed.
    Removed {
        /// The entry.
        number: u32,
    },
    /// The user is in exactly these groups, regardless of their known members.
    GroupsOf {
        /// The user.
        user: u32,
        /// Numbers of the groups.
        groups: Numbers<'a>,
    },
}

/// A user. The backend assigns a number to each entry, and retains it over restarts. References stand for names and DNs
/// in member lists of the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields of passwd(5)
pub struct UserRecord<'a> {
    /// The entry.
    pub number: u32,
    /// The user's reference in member lists, by DN.
    pub reference: u32,
    /// The user's reference in member lists, by user name.
    pub by_name: u32,
    pub uid: u32,
    pub gid: u32,
    pub name: &'a [u8],
    pub gecos: &'a [u8],
    pub dir: &'a [u8],
    pub shell: &'a [u8],
}

/// A group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRecord<'a> {
    /// The entry.
    pub number: u32,
    /// The group's reference in member lists, by DN.
    pub reference: u32,
    /// Group id. `None` for a nested-only group, which is not served.
    pub gid: Option<u32>,
    /// Group name.
    pub name: &'a [u8],
    /// References of users and nested groups. `None` if they are unknown: they were not queried yet, or there are too
    /// many.
    pub members: Option<Numbers<'a>>,
}

/// A list of numbers or references.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Numbers<'a>(&'a [[u8; 4]]);

impl<'a> Numbers<'a> {
    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the items in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.0.iter().map(|bytes| u32::from_le_bytes(*bytes))
    }
}

impl std::fmt::Debug for Numbers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[derive(Clone, Copy)]
#[repr(u8)]
enum RecordKind {
    User = 1,
    Group = 2,
    Removed = 3,
    GroupsOf = 4,
}

impl ImageHeader {
    /// Encodes the header.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.flags.to_le_bytes());
        let numbers = [self.epoch, self.since, self.sequence, self.records];
        for (place, number) in bytes[16..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes an image.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Records<'_>), ImageDecodeError> {
        let (header, rest) =
            bytes.split_at_checked(HEADER_BYTES).ok_or(ImageDecodeError::Foreign)?;
        let mut cursor = RecordCursor(header);
        let magic = cursor.take_bytes(8).ok_or(ImageDecodeError::Foreign)?;
        if magic != MAGIC || cursor.u32() != Some(VERSION) {
            return Err(ImageDecodeError::Foreign);
        }
        let cut = ImageDecodeError::Corrupt(0);
        let mut read = || {
            Some(Self {
                flags: cursor.u32()?,
                epoch: cursor.u64()?,
                since: cursor.u64()?,
                sequence: cursor.u64()?,
                records: cursor.u64()?,
            })
        };
        let header = read().ok_or(cut)?;
        Ok((header, Records { total_bytes: rest.len(), rest, records_left: Some(header.records) }))
    }
}

/// Iterates over records. After an error there are no more.
#[derive(Clone)]
pub struct Records<'a> {
    total_bytes: usize,
    rest: &'a [u8],
    /// Number of expected records; unknown without a header.
    records_left: Option<u64>,
}

impl<'a> Records<'a> {
    /// Reads records without a header.
    #[must_use]
    pub fn without_header(bytes: &'a [u8]) -> Self {
        Self { total_bytes: bytes.len(), rest: bytes, records_left: None }
    }

    fn read(&mut self) -> Option<Record<'a>> {
        let length = RecordCursor(self.rest).u32()? as usize;
        let (record, rest) = self.rest.split_at_checked(length)?;
        let record = parse(record)?;
        self.rest = rest;
        Some(record)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, ImageDecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let done = match self.records_left {
            Some(left) => left == 0,
            None => self.rest.is_empty(),
        };
        if done && self.rest.is_empty() {
            return None;
        }
        let place = self.total_bytes - self.rest.len();
        let record = if done { None } else { self.read() };
        self.records_left = self.records_left.map(|left| left.saturating_sub(1));
        Some(record.ok_or_else(|| {
            (self.rest, self.records_left) = (&[], Some(0));
            ImageDecodeError::Corrupt(place)
        }))
    }
}

fn parse(record: &[u8]) -> Option<Record<'_>> {
    let mut body = RecordCursor(record);
    body.take_bytes(4)?;
    let [op, flags, ..] = *body.take_bytes(4)? else { return None };
    let number = body.u32()?;
    let parsed = match op {
        op if op == RecordKind::User as u8 => {
            let (reference, by_name) = (body.u32()?, body.u32()?);
            let (uid, gid) = (body.u32()?, body.u32()?);
            let lens = [body.u16()?, body.u16()?, body.u16()?, body.u16()?];
            let [name, gecos, dir, shell] = lens.map(|len| body.take_bytes(len.into()));
            let (name, gecos, dir, shell) = (name?, gecos?, dir?, shell?);
            Record::User(UserRecord {
                number,
                reference,
                by_name,
                uid,
                gid,
                name,
                gecos,
                dir,
                shell,
            })
        }
        op if op == RecordKind::Group as u8 => {
            let (reference, gid) = (body.u32()?, body.u32()?);
            let (count, len) = (body.u32()?, body.u32()?);
            let members = body.numbers(count)?;
            let name = body.take_bytes(len as usize)?;
            let members = (flags & MEMBERS_KNOWN != 0).then_some(members);
            let gid = (flags & WITHOUT_GID == 0).then_some(gid);
            Record::Group(GroupRecord { number, reference, gid, name, members })
        }
        op if op == RecordKind::Removed as u8 => Record::Removed { number },
        op if op == RecordKind::GroupsOf as u8 => {
            let count = body.u32()?;
            Record::GroupsOf { user: number, groups: body.numbers(count)? }
        }
        _ => return None,
    };
    body.0.is_empty().then_some(parsed)
}

struct RecordCursor<'a>(&'a [u8]);

impl<'a> RecordCursor<'a> {
    fn take_bytes(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn numbers(&mut self, count: u32) -> Option<Numbers<'a>> {
        let bytes = self.take_bytes((count as usize).checked_mul(size_of::<u32>())?)?;
        let (numbers, _) = bytes.as_chunks();
        Some(Numbers(numbers))
    }
}

/// A field is too long for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is too long")]
pub struct FieldTooLong(pub &'static str);

/// Appends the record of a user.
pub fn write_user(out: &mut Vec<u8>, user: &UserRecord<'_>) -> Result<(), FieldTooLong> {
    let texts = [user.name, user.gecos, user.dir, user.shell];
    let lens = texts.map(|text| u16::try_from(text.len()));
    if lens.iter().any(Result::is_err) {
        return Err(FieldTooLong("a text of a user"));
    }
    record(out, RecordKind::User, 0, user.number, |out| {
        for number in [user.reference, user.by_name, user.uid, user.gid] {
            out.extend(number.to_le_bytes());
        }
        lens.iter().flatten().for_each(|len| out.extend(len.to_le_bytes()));
        texts.iter().for_each(|text| out.extend_from_slice(text));
    })
}

/// Appends the record of a group.
pub fn write_group(
    out: &mut Vec<u8>,
    number: u32,
    reference: u32,
    gid: Option<u32>,
    name: &[u8],
    members: Option<&[u32]>,
) -> Result<(), FieldTooLong> {
    let name_len = u16::try_from(name.len()).map_err(|_| FieldTooLong("the name of a group"))?;
    let known = if members.is_some() { MEMBERS_KNOWN } else { 0 };
    let flags = known | if gid.is_none() { WITHOUT_GID } else { 0 };
    let members = members.unwrap_or_default();
    let count = u32::try_from(members.len()).map_err(|_| FieldTooLong("a list of members"))?;
    record(out, RecordKind::Group, flags, number, |out| {
        for number in [reference, gid.unwrap_or_default(), count, name_len.into()] {
            out.extend(number.to_le_bytes());
        }
        members.iter().for_each(|member| out.extend(member.to_le_bytes()));
        out.extend_from_slice(name);
    })
}

/// Appends the record of a removed entry.
pub fn write_removed(out: &mut Vec<u8>, number: u32) {
    let written = record(out, RecordKind::Removed, 0, number, |_| {});
    debug_assert!(written.is_ok(), "a record of twelve bytes");
}

/// Appends the groups of a user.
pub fn write_groups_of(out: &mut Vec<u8>, user: u32, groups: &[u32]) -> Result<(), FieldTooLong> {
    let count = u32::try_from(groups.len()).map_err(|_| FieldTooLong("a list of groups"))?;
    record(out, RecordKind::GroupsOf, 0, user, |out| {
        out.extend(count.to_le_bytes());
        groups.iter().for_each(|group| out.extend(group.to_le_bytes()));
    })
}

fn record(
    out: &mut Vec<u8>,
    op: RecordKind,
    flags: u8,
    number: u32,
    body: impl FnOnce(&mut Vec<u8>),
) -> Result<(), FieldTooLong> {
    let start = out.len();
    out.extend([0; 4]);
    out.extend([op as u8, flags, 0, 0]);
    out.extend(number.to_le_bytes());
    debug_assert_eq!(out.len() - start, RECORD_HEADER_BYTES);
    body(out);
    let Ok(length) = u32::try_from(out.len() - start) else {
        out.truncate(start);
        return Err(FieldTooLong("a record"));
    };
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: UserRecord<'_> = UserRecord {
        number: 7,
        reference: 3,
        by_name: 4,
        uid: 10_001,
        gid: 20_001,
        name: b"alice",
        gecos: b"Alice",
        dir: b"/home/alice",
        shell: b"/bin/sh",
    };

    fn image() -> Vec<u8> {
        let header = ImageHeader { flags: COMPLETE, epoch: 1, since: 0, sequence: 9, records: 5 };
        let mut bytes = header.to_bytes().to_vec();
        write_user(&mut bytes, &ALICE).expect("fits");
        write_group(&mut bytes, 8, 5, Some(500), b"staff", Some(&[3, 9])).expect("fits");
        write_group(&mut bytes, 9, 6, Some(501), b"unasked", None).expect("fits");
        write_groups_of(&mut bytes, 7, &[8, 9]).expect("fits");
        write_removed(&mut bytes, 2);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = image();
        let (header, records) = ImageHeader::parse(&bytes).expect("a header");
        assert_eq!((header.epoch, header.sequence, header.records), (1, 9, 5));
        let records: Result<Vec<_>, _> = records.collect();
        let records = records.expect("five records");
        assert_eq!(records[0], Record::User(ALICE));
        let Record::Group(staff) = records[1] else { panic!("a group") };
        let members: Vec<_> = staff.members.expect("known").iter().collect();
        assert_eq!((staff.name, members), (&b"staff"[..], vec![3, 9]));
        assert!(matches!(records[2], Record::Group(GroupRecord { members: None, .. })));
        assert!(matches!(records[3], Record::GroupsOf { user: 7, groups } if groups.len() == 2));
        assert_eq!(records[4], Record::Removed { number: 2 });
    }

    #[test]
    fn an_image_cut_anywhere_is_an_error() {
        let bytes = image();
        for length in 0..bytes.len() {
            let whole = ImageHeader::parse(&bytes[..length])
                .is_ok_and(|(_, mut records)| records.all(|record| record.is_ok()));
            assert!(!whole, "cut at {length}");
        }
    }

    #[test]
    fn no_damage_leads_out_of_the_bytes_or_round_in_circles() {
        let bytes = image();
        for place in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[place] = value;
                let Ok((_, records)) = ImageHeader::parse(&damaged) else { continue };
                assert!(records.count() <= bytes.len());
            }
        }
    }

    #[test]
    fn bytes_behind_the_last_record_are_an_error() {
        let mut bytes = image();
        bytes.push(0);
        let (_, records) = ImageHeader::parse(&bytes).expect("a header");
        assert!(records.last().is_some_and(|last| last.is_err()));
    }
}
