// SPDX-License-Identifier: MIT OR Apache-2.0
//! The byte layout of the file. All integers are little-endian and need no alignment. Every record has a fixed size,
//! and records are in source order. `docs/reference/snapshot-format.md` describes the format. `header` reads the
//! sections.

use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of the file; the line ends reveal damage by a transfer in text mode.
pub const MAGIC: [u8; 8] = *b"ROSTER\r\n";
/// Version of this layout. A reader accepts its own version only.
pub const VERSION: u32 = 3;
/// Maximum number of sections in the header.
pub const SECTIONS_MAX: usize = 15;
/// Start of the first section. No file system block then holds both the header and records: an older block would
/// include its identity.
pub const SECTIONS_START: u64 = 4096;
/// Alignment of sections: a cache line.
pub const SECTION_ALIGN: u64 = 64;
/// Number of fingerprints in a bucket of an index: those that fit into a cache line.
pub const BUCKET_KEYS: usize = 10;
/// Maximum number of buckets that a lookup reads. The builder uses another seed if a key would be further from home.
pub const PROBES_MAX: usize = 16;
/// Maximum length of a name in its slot, in bytes.
pub const SHORT_NAME_BYTES: usize = 15;
/// Bytes after the last name that [`Members::copy`](crate::Members::copy) may write.
pub const COPY_SLACK: usize = 16;
/// Maximum length of the name of a domain, in bytes.
pub const DOMAIN_NAME_BYTES: usize = 64;
/// Space for the path of the responder's socket, including the NUL.
pub const RESPONDER_BYTES: usize = 80;

/// Content of a file.
///
/// ```
/// use roster_snapshot::layout::SnapshotKind;
/// use roster_snapshot::{OpenError, Snapshot};
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let error = Snapshot::open_shadow(bytes).unwrap_err();
/// assert_eq!(error, OpenError::BadKind { expected: SnapshotKind::Shadow, found: 1 });
/// assert_eq!(SnapshotKind::Accounts as u32, 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SnapshotKind {
    /// Users and groups, readable for all users.
    Accounts = 1,
    /// Shadow entries, for root and group `shadow`.
    Shadow = 2,
}

/// Sections by number. A number is never reused for another purpose.
///
/// ```
/// use roster_snapshot::Snapshot;
/// use roster_snapshot::layout::SectionId;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let ids: Vec<SectionId> = Snapshot::open(bytes)?.sections().map(|section| section.id).collect();
/// assert_eq!(ids[..2], [SectionId::Users, SectionId::Groups]);
/// assert_eq!(SectionId::ByUid as u32, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SectionId {
    /// [`UserSlot`]s in source order.
    Users = 1,
    /// [`GroupSlot`]s in source order.
    Groups = 2,
    /// [`NameSlot`]s: every name of a user or member.
    Names = 3,
    /// [`Membership`]s, one for each name slot.
    Memberships = 4,
    /// Name slot numbers: all member lists in sequence.
    MemberIds = 5,
    /// Line numbers: the group lists of all names in sequence.
    GroupIds = 6,
    /// The gid of each line, as [`U32`].
    Gids = 7,
    /// Texts that do not fit into their slots.
    LongText = 8,
    /// Index from user name to user slot.
    ByUserName = 9,
    /// Index from uid to user slot.
    ByUid = 10,
    /// Index from group name to group slot.
    ByGroupName = 11,
    /// Index from gid to group slot.
    ByGid = 12,
    /// Index from name to name slot.
    ByMember = 13,
    /// [`ShadowSlot`]s in source order.
    Shadows = 14,
    /// Index from name to shadow slot.
    ByShadowName = 15,
    /// [`DomainSlot`]s in the order of the domains' entries.
    Domains = 16,
    /// [`DomainOptionsSlot`]s, one for each domain slot. A file without them has no options.
    DomainOptions = 17,
}

impl SectionId {
    /// Every section of this version.
    pub const ALL: [Self; 17] = [
        Self::Users,
        Self::Groups,
        Self::Names,
        Self::Memberships,
        Self::MemberIds,
        Self::GroupIds,
        Self::Gids,
        Self::LongText,
        Self::ByUserName,
        Self::ByUid,
        Self::ByGroupName,
        Self::ByGid,
        Self::ByMember,
        Self::Shadows,
        Self::ByShadowName,
        Self::Domains,
        Self::DomainOptions,
    ];
}

/// Bits of a slot's `flags`.
pub mod flags {
    /// The text is in the long-text section. The slot's text has its location.
    pub const LONG: u8 = 1;
    /// A domain with a higher priority than this entry's domain is queried on demand. The responder must be queried
    /// before this record may be used.
    pub const RESPONDER_FIRST: u8 = 1 << 5;
    /// The snapshot lacks the groups of this user, or the members of this group.
    pub const LIST_UNKNOWN: u8 = 1 << 6;
    /// Any spelling of the name finds the entry. Its key in the index of names is the folded name.
    pub const ANY_CASE: u8 = 1 << 7;

    /// Returns the bit for a NULL of C in field `index`, at most 4. Field 0, the name, is never NULL.
    #[must_use]
    pub const fn null(index: usize) -> u8 {
        1 << (index & 7)
    }
}

/// Bits of a domain's `flags`.
pub mod domain_flags {
    /// Names are found in any spelling.
    pub const ANY_CASE: u32 = 1;
    /// Names are served as the directory spells them. Without this bit and with [`ANY_CASE`] they are served folded.
    pub const PRESERVING: u32 = 1 << 1;
    /// Names are served with the domain only: `alice@corp`.
    pub const QUALIFIED: u32 = 1 << 2;
    /// Enumerations leave the entries out.
    pub const UNLISTED: u32 = 1 << 4;
}

/// The header of the file.
///
/// ```
/// use roster_snapshot::layout::{MAGIC, SnapshotHeader, SnapshotKind, VERSION};
/// use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let (header, _) = SnapshotHeader::ref_from_prefix(bytes).unwrap();
/// assert_eq!((header.magic, header.version.get()), (MAGIC, VERSION));
/// assert_eq!(header.kind.get(), SnapshotKind::Accounts as u32);
/// assert_eq!(header.file_bytes.get(), bytes.len() as u64);
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SnapshotHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// [`SnapshotKind`] in the low half. The high half has one bit for each change of the format that a reader must
    /// know to give correct answers. Version 3 defines no bit; a reader refuses a file with an unknown bit.
    pub kind: U32,
    /// Length of the whole file.
    pub file_bytes: U64,
    /// Number of publications at this path.
    pub generation: U64,
    /// Number of the [`Seed`](crate::hash::Seed) of the indices.
    pub seed: U64,
    /// [`hash::plain`](crate::hash::plain) of all bytes after the header.
    pub content_hash: U64,
    /// A reader treats a uid or gid below this as damage.
    pub min_id: U32,
    /// Number of used entries of `sections`.
    pub section_count: U32,
    /// The file's [`ChecksumIdentity`](crate::hash::ChecksumIdentity): a random number.
    pub identity: U64,
    /// The section table.
    pub sections: [SectionEntry; SECTIONS_MAX],
    /// Absolute path of the responder's socket, padded with at least one zero. All zeros if the snapshot is complete.
    pub responder: [u8; RESPONDER_BYTES],
    /// [`hash::plain`](crate::hash::plain) of all bytes before this field.
    pub header_hash: U64,
}

/// Length of [`SnapshotHeader`].
pub const HEADER_BYTES: usize = size_of::<SnapshotHeader>();

/// Location of a section.
///
/// ```
/// use roster_snapshot::layout::{SectionId, SnapshotHeader};
/// use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let (header, _) = SnapshotHeader::ref_from_prefix(bytes).unwrap();
/// let users = header.sections[0];
/// assert_eq!(users.id.get(), SectionId::Users as u32);
/// assert_eq!((users.offset.get(), users.count.get(), users.record_bytes.get()), (4096, 5, 128));
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SectionEntry {
    /// [`SectionId`].
    pub id: U32,
    /// Length of one record.
    pub record_bytes: U32,
    /// Offset from the start of the file.
    pub offset: U64,
    /// Number of records.
    pub count: U64,
}

/// A passwd entry. `text` contains the five strings in sequence, each with a NUL, or the location of the strings, see
/// [`LongText`].
///
/// ```
/// use roster_snapshot::layout::{SECTIONS_START, UserSlot};
/// use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let (alice, _) = UserSlot::ref_from_prefix(&bytes[SECTIONS_START as usize..]).unwrap();
/// assert_eq!((alice.uid.get(), alice.gid.get()), (1000, 100));
/// assert_eq!(alice.lens, [5, 1, 5, 5, 7]);
/// assert_eq!(&alice.text[..28], b"alice\0x\0Alice\0/home\0/bin/sh\0");
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UserSlot {
    /// [`ChecksumIdentity::check`](crate::hash::ChecksumIdentity::check).
    pub check: U32,
    /// Uid.
    pub uid: U32,
    /// Primary gid.
    pub gid: U32,
    /// [`flags`].
    pub flags: u8,
    /// Lengths of name, password, GECOS, home directory and shell, without NUL.
    pub lens: [u8; 5],
    /// Zeros.
    pub reserved: [u8; 2],
    /// The strings.
    pub text: [u8; 108],
}

/// A group entry. Gid, name and the location of the member list are adjacent, so that an iteration over many groups
/// touches one cache line per group.
///
/// ```
/// use roster_snapshot::Snapshot;
/// use roster_snapshot::layout::{GroupSlot, SectionId};
/// use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let snapshot = Snapshot::open(bytes)?;
/// let section = snapshot.sections().find(|section| section.id == SectionId::Groups).unwrap();
/// let records = &bytes[section.offset as usize..];
/// let (staff, _) = GroupSlot::ref_from_prefix(records).unwrap();
/// assert_eq!((staff.gid.get(), staff.count.get(), staff.first.get()), (10, 4, 0));
/// assert_eq!(&staff.text[..8], b"staff\0*\0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct GroupSlot {
    /// [`ChecksumIdentity::check`](crate::hash::ChecksumIdentity::check).
    pub check: U32,
    /// Gid.
    pub gid: U32,
    /// [`flags`].
    pub flags: u8,
    /// Lengths of name and password, without NUL.
    pub lens: [u8; 2],
    /// Zero.
    pub reserved: u8,
    /// Number of members.
    pub count: U32,
    /// Start of the list in the member ids.
    pub first: U64,
    /// [`NameSum`](crate::hash::NameSum) over the members' name slots.
    pub sum: U64,
    /// Bytes of all member names, each with its NUL.
    pub member_bytes: U32,
    /// The strings.
    pub text: [u8; 28],
}

/// A shadow entry.
///
/// ```
/// use roster_snapshot::Snapshot;
/// use roster_snapshot::layout::{SectionId, ShadowSlot};
/// use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/shadow.snap"));
/// let snapshot = Snapshot::open_shadow(bytes)?;
/// let section = snapshot.sections().find(|section| section.id == SectionId::Shadows).unwrap();
/// let records = &bytes[section.offset as usize..];
/// let (alice, _) = ShadowSlot::ref_from_prefix(records).unwrap();
/// assert_eq!(alice.days.map(|days| days.get()), [19000, 1, 99999, 7, 30, 20000]);
/// assert_eq!(alice.flag.get(), u64::MAX);
/// assert_eq!(&alice.text[..8], b"alice\0*\0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ShadowSlot {
    /// [`ChecksumIdentity::check`](crate::hash::ChecksumIdentity::check).
    pub check: U32,
    /// [`flags`].
    pub flags: u8,
    /// Lengths of name and password, without NUL.
    pub lens: [u8; 2],
    /// Zero.
    pub reserved: u8,
    /// Last change, minimum, maximum, warning, inactivity, expiry.
    pub days: [I32; 6],
    /// Reserved field of shadow(5).
    pub flag: U64,
    /// The strings.
    pub text: [u8; 88],
}

/// A domain, with the number of its users and groups in the file. The entries of a domain follow those of the previous
/// domain.
///
/// ```
/// use roster_snapshot::Snapshot;
/// use roster_snapshot::layout::{DomainSlot, SectionId};
/// use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let snapshot = Snapshot::open(bytes)?;
/// let section = snapshot.sections().find(|section| section.id == SectionId::Domains).unwrap();
/// let records = &bytes[section.offset as usize..];
/// let (lab, _) = DomainSlot::ref_from_prefix(records).unwrap();
/// assert_eq!((lab.users.get(), lab.groups.get()), (2, 3));
/// assert_eq!(&lab.name[..lab.name_len.into()], b"lab");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DomainSlot {
    /// [`ChecksumIdentity::check`](crate::hash::ChecksumIdentity::check).
    pub check: U32,
    /// Number of users.
    pub users: U32,
    /// Number of groups.
    pub groups: U32,
    /// Length of the name, 1 to [`DOMAIN_NAME_BYTES`].
    pub name_len: u8,
    /// Zeros.
    pub reserved: [u8; 3],
    /// The name, padded with zeros.
    pub name: [u8; DOMAIN_NAME_BYTES],
}

/// Options of the domain in the [`DomainSlot`] of the same position.
///
/// ```
/// use roster_snapshot::Snapshot;
/// use roster_snapshot::layout::{DomainOptionsSlot, SectionId, domain_flags};
/// use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/names.snap"));
/// let snapshot = Snapshot::open(bytes)?;
/// let mut sections = snapshot.sections();
/// let section = sections.find(|section| section.id == SectionId::DomainOptions).unwrap();
/// let records = &bytes[section.offset as usize..];
/// let (corp, _) = DomainOptionsSlot::ref_from_prefix(records).unwrap();
/// assert_ne!(corp.flags.get() & domain_flags::PRESERVING, 0);
/// assert_eq!(&corp.short_name[..corp.short_name_len.into()], b"HQ");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DomainOptionsSlot {
    /// [`ChecksumIdentity::check`](crate::hash::ChecksumIdentity::check).
    pub check: U32,
    /// [`domain_flags`].
    pub flags: U32,
    /// Length of the short name, 0 to [`DOMAIN_NAME_BYTES`].
    pub short_name_len: u8,
    /// Zeros.
    pub reserved: [u8; 7],
    /// The short name, padded with zeros. Empty if the domain has no other name.
    pub short_name: [u8; DOMAIN_NAME_BYTES],
}

/// Start of a slot's `text` if [`flags::LONG`] is set: the location of the strings in the long-text section. The
/// lengths follow it, one [`U32`] for each string.
///
/// ```
/// use roster_snapshot::layout::{LongText, UserSlot, flags};
/// use zerocopy::FromBytes;
/// use zerocopy::little_endian::U32;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// # let (users, _) = <[UserSlot]>::ref_from_prefix_with_elems(&bytes[4096..], 5).unwrap();
/// let carol = &users[2];
/// assert_eq!(carol.flags & flags::LONG, flags::LONG);
/// let (place, rest) = LongText::ref_from_prefix(&carol.text).unwrap();
/// let (lens, _) = <[U32; 5]>::ref_from_prefix(rest).unwrap();
/// assert_eq!(place.offset.get(), 0);
/// assert_eq!(lens.map(|len| len.get()), [5, 1, 120, 5, 0]);
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LongText {
    /// Offset in the long-text section.
    pub offset: U64,
    /// [`hash::plain`](crate::hash::plain) of the strings.
    pub hash: U64,
}

/// A member name of up to 15 bytes, padded with zeros. The last byte is 15 minus the length, so it is the final NUL of
/// a name of 15 bytes. If it is 255, the name is in the long-text section, see [`LongName`].
///
/// ```
/// use roster_snapshot::Snapshot;
/// use roster_snapshot::layout::{NameSlot, SectionId};
/// use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let snapshot = Snapshot::open(bytes)?;
/// let section = snapshot.sections().find(|section| section.id == SectionId::Names).unwrap();
/// let records = &bytes[section.offset as usize..];
/// let (alice, _) = NameSlot::ref_from_prefix(records).unwrap();
/// assert_eq!(*alice, NameSlot(*b"alice\0\0\0\0\0\0\0\0\0\0\x0a"));
/// assert_eq!(snapshot.name(0)?, Some(&b"alice"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct NameSlot(pub [u8; 16]);

/// A [`NameSlot`] with a longer name.
///
/// ```
/// use roster_snapshot::Snapshot;
/// use roster_snapshot::layout::{LONG_NAME, LongName, NameSlot, SectionId};
/// use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// # let snapshot = Snapshot::open(bytes)?;
/// # let section = snapshot.sections().find(|section| section.id == SectionId::Names).unwrap();
/// # let records = &bytes[section.offset as usize..];
/// # let (names, _) = <[NameSlot; 6]>::ref_from_prefix(records).unwrap();
/// let long = LongName::ref_from_bytes(&names[4].0).unwrap();
/// assert_eq!((long.tag, long.len()), (LONG_NAME, 16));
/// assert_eq!(snapshot.name(4)?, Some(&b"sixteen-letters!"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LongName {
    /// Offset in the long-text section.
    pub offset: U64,
    /// Length without the NUL, 24 bits.
    pub len: [u8; 3],
    /// Low 32 bits of [`hash::plain`](crate::hash::plain) of the name.
    pub hash: U32,
    /// [`LONG_NAME`].
    pub tag: u8,
}

impl LongName {
    /// Returns the length without the NUL.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a name this long is not empty
    pub fn len(&self) -> usize {
        let [a, b, c] = self.len;
        u32::from_le_bytes([a, b, c, 0]) as usize
    }
}

/// Last byte of a [`NameSlot`] with a [`LongName`].
pub const LONG_NAME: u8 = 255;

/// The groups of one name.
///
/// ```
/// use roster_snapshot::Snapshot;
/// use roster_snapshot::layout::{Membership, SectionId};
/// use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let snapshot = Snapshot::open(bytes)?;
/// let section = snapshot.sections().find(|section| section.id == SectionId::Memberships).unwrap();
/// let records = &bytes[section.offset as usize..];
/// let (alice, _) = Membership::ref_from_prefix(records).unwrap();
/// assert_eq!((alice.count.get(), alice.first.get()), (1, 0));
/// assert_eq!(snapshot.supplementary(b"alice")?.unwrap().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Membership {
    /// [`ChecksumIdentity::check_with_name`](crate::hash::ChecksumIdentity::check_with_name) with the name slot of the same
    /// position.
    pub check: U32,
    /// Number of groups.
    pub count: U32,
    /// Start of the list in the group ids.
    pub first: U64,
    /// [`GidSum`](crate::hash::GidSum) over the gids.
    pub sum: U64,
}

/// One cache line of an index: an open-addressed hash table of fingerprints. Entries fill a bucket from the front. A
/// full bucket continues in the next one, and the last in the first.
///
/// ```
/// use roster_snapshot::Snapshot;
/// use roster_snapshot::hash::{self, Seed};
/// use roster_snapshot::layout::{Bucket, SectionId, fingerprint, home};
/// use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// # let snapshot = Snapshot::open(bytes)?;
/// # let section = snapshot.sections().find(|section| section.id == SectionId::ByUid).unwrap();
/// # let (offset, count) = (section.offset as usize, section.count as usize);
/// # let (buckets, _) = <[Bucket]>::ref_from_prefix_with_elems(&bytes[offset..], count).unwrap();
/// let hash = hash::id(1000, Seed::new(snapshot.shape().seed));
/// let bucket = &buckets[home(hash, buckets.len())];
/// let entry = bucket.matches(fingerprint(hash)).trailing_zeros() as usize;
/// assert_eq!(bucket.positions[entry].get(), 0);
/// assert_eq!(snapshot.user(0)?.unwrap().uid, 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Bucket {
    /// [`ChecksumIdentity::check`](crate::hash::ChecksumIdentity::check).
    pub check: U32,
    /// Upper 16 bits of the key's hash, with 1 instead of 0. 0 marks an empty entry.
    pub fingerprints: [U16; BUCKET_KEYS],
    /// Positions of the records.
    pub positions: [U32; BUCKET_KEYS],
}

impl Bucket {
    /// Returns a bit set of the entries with this fingerprint, which must not be 0.
    #[inline]
    #[must_use]
    pub fn matches(&self, fingerprint: u16) -> u32 {
        let entries = self.fingerprints.iter().enumerate();
        entries
            .fold(0, |bits, (entry, found)| bits | u32::from(found.get() == fingerprint) << entry)
    }

    /// Returns whether a key of this bucket may be in the next one.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        let [.., last] = self.fingerprints;
        last.get() != 0
    }
}

/// Returns the bucket in which the lookup of a hash starts.
#[inline]
#[must_use]
pub fn home(hash: u64, buckets: usize) -> usize {
    ((hash & u64::from(u32::MAX)).wrapping_mul(buckets as u64) >> 32) as usize
}

/// Returns the 16 bits of a hash that a bucket stores, never 0.
#[inline]
#[must_use]
pub fn fingerprint(hash: u64) -> u16 {
    ((hash >> 48) as u16).max(1)
}

const _: () = assert!(HEADER_BYTES == 512);
const _: () = assert!(size_of::<UserSlot>() == 128);
const _: () = assert!(size_of::<GroupSlot>() == 64);
const _: () = assert!(size_of::<ShadowSlot>() == 128);
const _: () = assert!(size_of::<LongName>() == size_of::<NameSlot>());
const _: () = assert!(size_of::<DomainSlot>() == 80);
const _: () = assert!(size_of::<DomainOptionsSlot>() == 80);
const _: () = assert!(size_of::<Bucket>() == 64);

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn flags_are_bits_of_page() {
        assert_eq!((flags::LONG, flags::RESPONDER_FIRST, flags::LIST_UNKNOWN), (1, 32, 64));
        assert_eq!(flags::ANY_CASE, 128);
        let nulls: [u8; 5] = core::array::from_fn(flags::null);
        assert_eq!(nulls, [1, 2, 4, 8, 16]);
        // The reader uses the bits of 5 fields; an index beyond a byte must not overflow.
        assert_eq!(flags::null(9), 2);
    }

    #[test]
    fn home_spreads_low_half_of_hash() {
        for (hash, buckets, place) in [
            (0, 10, 0),
            (0x7FFF_FFFF, 10, 4),
            (0x8000_0000, 10, 5),
            (0xFFFF_FFFF, 10, 9),
            (0xFFFF_FFFF, 1, 0),
            (0xABCD_0000_8000_0000, 10, 5),
            (0xFFFF_FFFF_0000_0000, 10, 0),
        ] {
            assert_eq!(home(hash, buckets), place, "{hash:x} of {buckets}");
        }
    }

    #[test]
    fn fingerprint_is_upper_16_bits_never_zero() {
        assert_eq!(fingerprint(0xABCD_1234_5678_9ABC), 0xABCD);
        assert_eq!(fingerprint(0x0001_FFFF_FFFF_FFFF), 1);
        assert_eq!(fingerprint(0x0000_FFFF_FFFF_FFFF), 1);
    }

    #[test]
    fn bucket_matches_each_equal_fingerprint() {
        let mut bucket = Bucket::new_zeroed();
        assert_eq!((bucket.matches(7), bucket.is_full()), (0, false));
        for (place, found) in bucket.fingerprints.iter_mut().zip([7, 8, 7, 9, 1, 2, 3, 4, 5]) {
            *place = U16::new(found);
        }
        assert_eq!((bucket.matches(7), bucket.matches(8), bucket.matches(6)), (0b101, 0b10, 0));
        assert!(!bucket.is_full());
        bucket.fingerprints[BUCKET_KEYS - 1] = U16::new(7);
        assert_eq!(bucket.matches(7), 0b10_0000_0101);
        assert!(bucket.is_full());
    }

    #[test]
    fn long_name_length_has_24_bits() {
        let mut name = LongName::new_zeroed();
        assert_eq!(name.len(), 0);
        name.len = [0x03, 0x02, 0x01];
        name.hash = U32::new(u32::MAX);
        assert_eq!(name.len(), 0x01_02_03);
    }
}
