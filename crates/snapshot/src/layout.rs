//! The bytes of the file: all integers little-endian, no alignment needed, every record of a
//! fixed size and in source order. `docs/snapshot-format.md` is the prose of this module.

use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of the file; the line ends show damage by a transfer in text mode.
pub const MAGIC: [u8; 8] = *b"ROSTER\r\n";
/// Version of this layout. A reader accepts its own version only.
pub const VERSION: u32 = 3;
/// Room for sections in the header.
pub const SECTIONS_MAX: usize = 15;
/// Where the first section starts, so that no block of a file system holds the header and records: an older block
/// would bring its own identity.
pub const SECTIONS_START: u64 = 4096;
/// Sections start at multiples of a cache line.
pub const SECTION_ALIGN: u64 = 64;
/// Fingerprints in one bucket of an index: what a cache line holds.
pub const BUCKET_KEYS: usize = 10;
/// Buckets that a look-up reads at the most. The builder takes another seed when a key would lie
/// further from home.
pub const PROBES_MAX: usize = 16;
/// A name of up to this many bytes lies in its slot.
pub const SHORT_NAME_BYTES: usize = 15;
/// Bytes that [`Members::copy`](crate::Members::copy) may touch behind the last name.
pub const COPY_SLACK: usize = 16;
/// Room for the path of the responder's socket, NUL included.
pub const RESPONDER_BYTES: usize = 80;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Users and groups, for everybody to read.
    Accounts = 1,
    /// Shadow entries, for root and group `shadow`.
    Shadow = 2,
}

/// Sections by number. A number is never used twice for different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SectionId {
    /// [`UserSlot`]s in source order.
    Users = 1,
    /// [`GroupSlot`]s in source order.
    Groups = 2,
    /// [`NameSlot`]s: every name that is a user or a member.
    Names = 3,
    /// [`Membership`]s, one a name slot.
    Memberships = 4,
    /// Name slot numbers, the member lists one after the other.
    MemberIds = 5,
    /// Line numbers, each name's groups one list after the other.
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
}

impl SectionId {
    /// Every section of this version.
    pub const ALL: [Self; 15] = [
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
    ];
}

/// Bits of a slot's `flags`.
pub mod flags {
    /// The text lies in the long-text section, at the place that the slot's text names.
    pub const LONG: u8 = 1;
    /// A domain that goes before the one of this user or group is asked on demand: the responder
    /// has to be asked before this record may be used.
    pub const ASK_FIRST: u8 = 1 << 5;
    /// The groups of this user, or the members of this group, are not known here.
    pub const LIST_UNKNOWN: u8 = 1 << 6;

    /// Field `index` of the text, 4 at the most, is C's NULL. The name, field 0, never is.
    #[must_use]
    pub const fn null(index: usize) -> u8 {
        1 << (index & 7)
    }
}

/// The first bytes of the file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// [`Kind`].
    pub kind: U32,
    /// Length of the whole file.
    pub file_bytes: U64,
    /// Counts the publications in this place.
    pub generation: U64,
    /// Number of the indices' [`Seed`](crate::hash::Seed).
    pub seed: U64,
    /// [`hash::plain`](crate::hash::plain) of all after the header.
    pub content_hash: U64,
    /// A reader takes a uid or gid below this for damage.
    pub min_id: U32,
    /// Entries of `sections` in use.
    pub section_count: U32,
    /// The file's [`Identity`](crate::hash::Identity): a random number.
    pub identity: U64,
    /// The section table.
    pub sections: [SectionEntry; SECTIONS_MAX],
    /// Absolute path of the socket at which what is not here can be asked for, filled up with
    /// zeros, one at least; nothing but zeros when all there is is here.
    pub responder: [u8; RESPONDER_BYTES],
    /// [`hash::plain`](crate::hash::plain) of all before this field.
    pub header_hash: U64,
}

/// Length of [`Header`].
pub const HEADER_BYTES: usize = size_of::<Header>();

/// Where a section lies.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SectionEntry {
    /// [`SectionId`].
    pub id: U32,
    /// Length of one record.
    pub record_bytes: U32,
    /// From the start of the file.
    pub offset: U64,
    /// Records.
    pub count: U64,
}

/// A passwd entry. The five strings follow one another in `text`, each with a NUL behind it, or
/// lie elsewhere, see [`LongText`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UserSlot {
    /// [`Identity::check`](crate::hash::Identity::check).
    pub check: U32,
    /// User id.
    pub uid: U32,
    /// Primary group id.
    pub gid: U32,
    /// [`flags`].
    pub flags: u8,
    /// Lengths of name, password, GECOS, home folder and shell, without NUL.
    pub lens: [u8; 5],
    /// Zeros.
    pub reserved: [u8; 2],
    /// The strings.
    pub text: [u8; 108],
}

/// A group entry: gid, name and the place of the member list together, so that a walk over many
/// groups touches one cache line a group.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct GroupSlot {
    /// [`Identity::check`](crate::hash::Identity::check).
    pub check: U32,
    /// Group id.
    pub gid: U32,
    /// [`flags`].
    pub flags: u8,
    /// Lengths of name and password, without NUL.
    pub lens: [u8; 2],
    /// Zero.
    pub reserved: u8,
    /// Members.
    pub count: U32,
    /// Where the list starts in the member ids.
    pub first: U64,
    /// [`NameSum`](crate::hash::NameSum) over the members' name slots.
    pub sum: U64,
    /// Bytes of all member names, each with its NUL.
    pub member_bytes: U32,
    /// The strings.
    pub text: [u8; 28],
}

/// A shadow entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ShadowSlot {
    /// [`Identity::check`](crate::hash::Identity::check).
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

/// What stands at the start of a slot's `text` when [`flags::LONG`] is set: the place of the
/// strings in the long-text section. The lengths, one [`U32`] a string, follow it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LongText {
    /// Offset in the long-text section.
    pub offset: U64,
    /// [`hash::plain`](crate::hash::plain) of the strings.
    pub hash: U64,
}

/// A member name. Up to 15 bytes lie here, filled up with zeros, and the last byte is 15 less
/// their number: so it is the terminating zero of a name of 15. 255 there says that the name lies
/// in the long-text section, see [`LongName`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct NameSlot(pub [u8; 16]);

/// A [`NameSlot`] whose name is too long for it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LongName {
    /// Offset in the long-text section.
    pub offset: U64,
    /// Bytes without the NUL, 24 bits.
    pub len: [u8; 3],
    /// Low 32 bits of [`hash::plain`](crate::hash::plain) of the name.
    pub hash: U32,
    /// [`LONG_NAME`].
    pub tag: u8,
}

impl LongName {
    /// Bytes without the NUL.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a name this long is not empty
    pub fn len(&self) -> usize {
        let [a, b, c] = self.len;
        u32::from_le_bytes([a, b, c, 0]) as usize
    }
}

/// Last byte of a [`NameSlot`] that is a [`LongName`].
pub const LONG_NAME: u8 = 255;

/// The groups of one name.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Membership {
    /// [`Identity::check_with_name`](crate::hash::Identity::check_with_name) with the name slot of the same
    /// position.
    pub check: U32,
    /// Groups.
    pub count: U32,
    /// Where the list starts in the group ids.
    pub first: U64,
    /// [`GidSum`](crate::hash::GidSum) over the gids.
    pub sum: U64,
}

/// One cache line of an index: an open-addressed hash table of fingerprints. Entries fill a
/// bucket from the front; a full bucket goes on in the next, the last in the first.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Bucket {
    /// [`Identity::check`](crate::hash::Identity::check).
    pub check: U32,
    /// Upper 16 bits of the key's hash, 1 in place of 0; 0 where there is no entry.
    pub fingerprints: [U16; BUCKET_KEYS],
    /// Positions of the records.
    pub positions: [U32; BUCKET_KEYS],
}

impl Bucket {
    /// Bit `n` is set where entry `n` has this fingerprint, which is not 0.
    #[inline]
    #[must_use]
    pub fn matches(&self, fingerprint: u16) -> u32 {
        let entries = self.fingerprints.iter().enumerate();
        entries
            .fold(0, |bits, (entry, found)| bits | u32::from(found.get() == fingerprint) << entry)
    }

    /// Whether a key that belongs here may lie in the next bucket.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        let [.., last] = self.fingerprints;
        last.get() != 0
    }
}

/// Where the look-up of a hash starts in an index of that many buckets.
#[inline]
#[must_use]
pub fn home(hash: u64, buckets: usize) -> usize {
    ((hash & u64::from(u32::MAX)).wrapping_mul(buckets as u64) >> 32) as usize
}

/// The 16 bits of a hash that a bucket keeps, never 0.
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
const _: () = assert!(size_of::<Bucket>() == 64);

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn flags_are_bits_of_page() {
        assert_eq!((flags::LONG, flags::ASK_FIRST, flags::LIST_UNKNOWN), (1, 32, 64));
        let nulls: [u8; 5] = core::array::from_fn(flags::null);
        assert_eq!(nulls, [1, 2, 4, 8, 16]);
        // The reader asks for the bits of 5 fields; an index beyond a byte must not overflow.
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
