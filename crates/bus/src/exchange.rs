//! How a back-end hands its domain to the publisher: everything, or what changed.
//!
//! `docs/exchange-format.md` is the prose of this module. The reader trusts nothing: a back-end
//! that was taken over can write what it likes, and gets an error or records that the publisher
//! judges like any others. The same records, without a header, answer look-ups and lie in the
//! back-end's cache.

use std::mem::size_of;

/// First bytes; the line ends show damage by a transfer in text mode.
pub const MAGIC: [u8; 8] = *b"RSTDOM\r\n";
/// Version of this format. A reader takes its own version only: both sides are one executable.
pub const VERSION: u32 = 2;
/// Length of the header.
pub const HEADER_BYTES: usize = 48;
/// A reader takes nothing longer than this. No domain that is within the publisher's bounds takes more.
pub const IMAGE_BYTES_MAX: u64 = 448 << 20;
/// Longest text of a record. A longer one never gets this far: no name or folder needs it.
pub const TEXT_BYTES_MAX: usize = u16::MAX as usize;
/// Stands for no reference.
pub const NO_REFERENCE: u32 = u32::MAX;

/// Bit of [`Header::flags`]: what is not here is not in the directory. Without it the publisher may
/// say "no such user" of this domain only after asking.
pub const COMPLETE: u32 = 1;
/// Bit of [`Header::flags`]: the back-end's process has heard from the directory what changed since its
/// cache was written. Without it the image may be older than what the process before handed over.
pub const CURRENT: u32 = 2;
/// Bit of [`Header::flags`]: what is not here was named as deleted, or its removal was judged by the
/// back-end, which went on from its cache. Without it the back-end began with nothing, and cannot tell a
/// removed entry from one that its directory did not show.
pub const REMOVALS_JUDGED: u32 = 4;
/// Bit of a group's flags: its members are known, though there may be none.
pub const MEMBERS_KNOWN: u8 = 1;

const RECORD_HEADER_BYTES: usize = 12;

/// What is wrong with the bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not this format or not this version.
    #[error("this is not what a back-end of version {VERSION} hands over")]
    Foreign,
    /// Less than the lengths say, or more.
    #[error("the image is cut or damaged at byte {0}")]
    At(usize),
}

/// The first bytes of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`COMPLETE`], [`CURRENT`] and [`REMOVALS_JUDGED`].
    pub flags: u32,
    /// The back-end process, by a random number.
    pub epoch: u64,
    /// The state that the records lead on from; 0 when they are everything.
    pub since: u64,
    /// The state that they lead to.
    pub sequence: u64,
    /// Records.
    pub records: u64,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A user as it is now.
    User(User<'a>),
    /// A group as it is now.
    Group(Group<'a>),
    /// There is no entry of this number any more.
    Gone {
        /// The entry.
        number: u32,
    },
    /// The user is in exactly these groups, whatever is known of their members.
    GroupsOf {
        /// The user.
        user: u32,
        /// Numbers of the groups.
        groups: Numbers<'a>,
    },
}

/// A user. Numbers are given out by the back-end, one an entry, and outlive its restarts;
/// references stand for what member lists of the domain hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields of passwd(5)
pub struct User<'a> {
    /// The entry.
    pub number: u32,
    /// How member lists name it by DN.
    pub reference: u32,
    /// How they name it by user name.
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
pub struct Group<'a> {
    /// The entry.
    pub number: u32,
    /// How member lists name it, by DN.
    pub reference: u32,
    /// Group id.
    pub gid: u32,
    /// Group name.
    pub name: &'a [u8],
    /// References of users and nested groups; `None` when they are not known: nobody
    /// has asked for them yet, or there are too many by now.
    pub members: Option<Numbers<'a>>,
}

/// A list of numbers or references.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Numbers<'a>(&'a [[u8; 4]]);

impl<'a> Numbers<'a> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One after the other.
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
enum Op {
    User = 1,
    Group = 2,
    Gone = 3,
    GroupsOf = 4,
}

impl Header {
    /// The header's bytes.
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

    /// Takes an image apart.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Records<'_>), Malformed> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(Malformed::Foreign)?;
        let mut cursor = Cursor(header);
        let magic = cursor.take(8).ok_or(Malformed::Foreign)?;
        if magic != MAGIC || cursor.u32() != Some(VERSION) {
            return Err(Malformed::Foreign);
        }
        let cut = Malformed::At(0);
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
        Ok((header, Records { all: rest.len(), rest, left: Some(header.records) }))
    }
}

/// Records one after the other. After an error there are no more.
#[derive(Clone)]
pub struct Records<'a> {
    all: usize,
    rest: &'a [u8],
    /// How many there still have to be; unknown where no header told.
    left: Option<u64>,
}

impl<'a> Records<'a> {
    /// Records without a header.
    #[must_use]
    pub fn bare(bytes: &'a [u8]) -> Self {
        Self { all: bytes.len(), rest: bytes, left: None }
    }

    fn read(&mut self) -> Option<Record<'a>> {
        let length = Cursor(self.rest).u32()? as usize;
        let (record, rest) = self.rest.split_at_checked(length)?;
        let record = parse(record)?;
        self.rest = rest;
        Some(record)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let done = match self.left {
            Some(left) => left == 0,
            None => self.rest.is_empty(),
        };
        if done && self.rest.is_empty() {
            return None;
        }
        let place = self.all - self.rest.len();
        let record = if done { None } else { self.read() };
        self.left = self.left.map(|left| left.saturating_sub(1));
        Some(record.ok_or_else(|| {
            (self.rest, self.left) = (&[], Some(0));
            Malformed::At(place)
        }))
    }
}

fn parse(record: &[u8]) -> Option<Record<'_>> {
    let mut body = Cursor(record);
    body.take(4)?;
    let [op, flags, ..] = *body.take(4)? else { return None };
    let number = body.u32()?;
    let parsed = match op {
        op if op == Op::User as u8 => {
            let (reference, by_name) = (body.u32()?, body.u32()?);
            let (uid, gid) = (body.u32()?, body.u32()?);
            let lens = [body.u16()?, body.u16()?, body.u16()?, body.u16()?];
            let [name, gecos, dir, shell] = lens.map(|len| body.take(len.into()));
            let (name, gecos, dir, shell) = (name?, gecos?, dir?, shell?);
            Record::User(User { number, reference, by_name, uid, gid, name, gecos, dir, shell })
        }
        op if op == Op::Group as u8 => {
            let (reference, gid) = (body.u32()?, body.u32()?);
            let (count, len) = (body.u32()?, body.u32()?);
            let members = body.numbers(count)?;
            let name = body.take(len as usize)?;
            let members = (flags & MEMBERS_KNOWN != 0).then_some(members);
            Record::Group(Group { number, reference, gid, name, members })
        }
        op if op == Op::Gone as u8 => Record::Gone { number },
        op if op == Op::GroupsOf as u8 => {
            let count = body.u32()?;
            Record::GroupsOf { user: number, groups: body.numbers(count)? }
        }
        _ => return None,
    };
    body.0.is_empty().then_some(parsed)
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
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
        let bytes = self.take((count as usize).checked_mul(size_of::<u32>())?)?;
        let (numbers, _) = bytes.as_chunks();
        Some(Numbers(numbers))
    }
}

/// Something is longer than a record can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is too long")]
pub struct TooLong(pub &'static str);

/// Appends the record of a user.
pub fn write_user(out: &mut Vec<u8>, user: &User<'_>) -> Result<(), TooLong> {
    let texts = [user.name, user.gecos, user.dir, user.shell];
    let lens = texts.map(|text| u16::try_from(text.len()));
    if lens.iter().any(Result::is_err) {
        return Err(TooLong("a text of a user"));
    }
    record(out, Op::User, 0, user.number, |out| {
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
    gid: u32,
    name: &[u8],
    members: Option<&[u32]>,
) -> Result<(), TooLong> {
    let name_len = u16::try_from(name.len()).map_err(|_| TooLong("the name of a group"))?;
    let known = if members.is_some() { MEMBERS_KNOWN } else { 0 };
    let members = members.unwrap_or_default();
    let count = u32::try_from(members.len()).map_err(|_| TooLong("a list of members"))?;
    record(out, Op::Group, known, number, |out| {
        for number in [reference, gid, count, name_len.into()] {
            out.extend(number.to_le_bytes());
        }
        members.iter().for_each(|member| out.extend(member.to_le_bytes()));
        out.extend_from_slice(name);
    })
}

/// Appends the record that an entry is gone.
pub fn write_gone(out: &mut Vec<u8>, number: u32) {
    let written = record(out, Op::Gone, 0, number, |_| {});
    debug_assert!(written.is_ok(), "a record of twelve bytes");
}

/// Appends the groups of a user.
pub fn write_groups_of(out: &mut Vec<u8>, user: u32, groups: &[u32]) -> Result<(), TooLong> {
    let count = u32::try_from(groups.len()).map_err(|_| TooLong("a list of groups"))?;
    record(out, Op::GroupsOf, 0, user, |out| {
        out.extend(count.to_le_bytes());
        groups.iter().for_each(|group| out.extend(group.to_le_bytes()));
    })
}

fn record(
    out: &mut Vec<u8>,
    op: Op,
    flags: u8,
    number: u32,
    body: impl FnOnce(&mut Vec<u8>),
) -> Result<(), TooLong> {
    let start = out.len();
    out.extend([0; 4]);
    out.extend([op as u8, flags, 0, 0]);
    out.extend(number.to_le_bytes());
    debug_assert_eq!(out.len() - start, RECORD_HEADER_BYTES);
    body(out);
    let Ok(length) = u32::try_from(out.len() - start) else {
        out.truncate(start);
        return Err(TooLong("a record"));
    };
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: User<'_> = User {
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
        let header = Header { flags: COMPLETE, epoch: 1, since: 0, sequence: 9, records: 5 };
        let mut bytes = header.to_bytes().to_vec();
        write_user(&mut bytes, &ALICE).expect("fits");
        write_group(&mut bytes, 8, 5, 500, b"staff", Some(&[3, 9])).expect("fits");
        write_group(&mut bytes, 9, 6, 501, b"unasked", None).expect("fits");
        write_groups_of(&mut bytes, 7, &[8, 9]).expect("fits");
        write_gone(&mut bytes, 2);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = image();
        let (header, records) = Header::parse(&bytes).expect("a header");
        assert_eq!((header.epoch, header.sequence, header.records), (1, 9, 5));
        let records: Result<Vec<_>, _> = records.collect();
        let records = records.expect("five records");
        assert_eq!(records[0], Record::User(ALICE));
        let Record::Group(staff) = records[1] else { panic!("a group") };
        let members: Vec<_> = staff.members.expect("known").iter().collect();
        assert_eq!((staff.name, members), (&b"staff"[..], vec![3, 9]));
        assert!(matches!(records[2], Record::Group(Group { members: None, .. })));
        assert!(matches!(records[3], Record::GroupsOf { user: 7, groups } if groups.len() == 2));
        assert_eq!(records[4], Record::Gone { number: 2 });
    }

    #[test]
    fn an_image_cut_anywhere_is_an_error() {
        let bytes = image();
        for length in 0..bytes.len() {
            let whole = Header::parse(&bytes[..length])
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
                let Ok((_, records)) = Header::parse(&damaged) else { continue };
                assert!(records.count() <= bytes.len());
            }
        }
    }

    #[test]
    fn bytes_behind_the_last_record_are_an_error() {
        let mut bytes = image();
        bytes.push(0);
        let (_, records) = Header::parse(&bytes).expect("a header");
        assert!(records.last().is_some_and(|last| last.is_err()));
    }
}
