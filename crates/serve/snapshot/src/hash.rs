// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hashes and checksums of the format. They detect damage, but not an attacker: a writer of the file can compute them
//! too. `index` searches by hash.
//!
//! Hashes and the checksums of records use a 64 × 64 → 128 bit multiplication. Its two halves are combined by exclusive
//! or. This is the fastest portable step that mixes well. The checksums of lists are sums, because they are computed
//! member by member.

use crate::layout::{NameSlot, SectionId};
use zerocopy::{Immutable, IntoBytes};

/// The first 10 × 64 fractional bits of π, which no author can have chosen.
pub const K: [u64; 10] = [
    0x243F_6A88_85A3_08D3,
    0x1319_8A2E_0370_7344,
    0xA409_3822_299F_31D0,
    0x082E_FA98_EC4E_6C89,
    0x4528_21E6_38D0_1377,
    0xBE54_66CF_34E9_0C6C,
    0xC0AC_29B7_C97C_50DD,
    0x3F84_D5B5_B547_0917,
    0x9216_D5D9_8979_FB1B,
    0xD131_0BA6_98DF_B5AC,
];

/// Returns the exclusive or of the two halves of the product.
#[inline]
#[must_use]
pub const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// A mixed seed: keys that collide under one seed do not collide under another.
///
/// ```
/// use roster_snapshot::hash::{self, Seed};
///
/// assert_eq!(hash::bytes(b"alice", Seed::new(0)), 0xAFDA_4D03_3BE0_41BA);
/// assert_eq!(hash::bytes(b"alice", Seed::new(1)), 0x7890_A952_95AA_EDD6);
/// assert_eq!(hash::id(1000, Seed::new(1)), 0x52B7_5F21_1D23_2CA9);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    start: u64,
    factor: u64,
}

impl Seed {
    /// Creates the seed with that number.
    #[inline]
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self { start: fold(number ^ K[0], K[1]), factor: fold(number ^ K[2], K[3]) }
    }
}

/// Returns the hash of a string: a key, a long text, or the whole file.
#[inline(never)] // every process loads the module: one copy
#[must_use]
pub fn bytes(bytes: &[u8], seed: Seed) -> u64 {
    let mut hash = RunningHash::new(seed);
    hash.update(bytes);
    hash.finish()
}

/// [`bytes`] with seed 0, for checks against damage.
#[inline]
#[must_use]
pub fn plain(text: &[u8]) -> u64 {
    bytes(text, const { Seed::new(0) })
}

/// [`bytes`] for input in parts.
///
/// ```
/// use roster_snapshot::hash::{self, RunningHash, Seed};
///
/// let mut hash = RunningHash::new(Seed::new(0));
/// hash.update(b"sixteen-letters!");
/// hash.update(b"and more");
/// assert_eq!(hash.finish(), hash::plain(b"sixteen-letters!and more"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RunningHash {
    hash: u64,
    factor: u64,
    bytes: u64,
}

impl RunningHash {
    /// Creates the hash of no bytes.
    #[inline]
    #[must_use]
    pub const fn new(seed: Seed) -> Self {
        Self { hash: seed.start, factor: seed.factor, bytes: 0 }
    }

    /// Adds the next part. All parts except the last must have a multiple of 16 bytes.
    #[inline]
    pub fn update(&mut self, piece: &[u8]) {
        let (chunks, tail) = piece.as_chunks::<16>();
        for chunk in chunks {
            self.step(halves(chunk));
        }
        if !tail.is_empty() {
            self.step(padded(tail));
        }
        self.bytes = self.bytes.wrapping_add(piece.len() as u64);
    }

    #[inline]
    fn step(&mut self, (low, high): (u64, u64)) {
        self.hash = fold(self.hash ^ low, high ^ self.factor);
    }

    /// Returns the hash of all parts in sequence.
    #[inline]
    #[must_use]
    pub fn finish(&self) -> u64 {
        fold(self.hash ^ self.bytes, K[4])
    }
}

/// Returns the hash of a numeric key.
#[inline]
#[must_use]
pub const fn id(key: u32, seed: Seed) -> u64 {
    fold(key as u64 ^ seed.start, seed.factor)
}

/// Returns a chunk as two little-endian words.
#[inline]
fn halves(chunk: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*chunk);
    (both as u64, (both >> 64) as u64)
}

/// Returns a chunk of less than 16 bytes as two words, as if padded with zeros.
#[inline]
fn padded(tail: &[u8]) -> (u64, u64) {
    let bits_missing = |of: u32| of.wrapping_sub(tail.len() as u32).wrapping_mul(8);
    if let (Some(first), Some(last)) = (tail.first_chunk(), tail.last_chunk()) {
        let high = u64::from_le_bytes(*last).checked_shr(bits_missing(16)).unwrap_or(0);
        return (u64::from_le_bytes(*first), high);
    }
    if let (Some(first), Some(last)) = (tail.first_chunk(), tail.last_chunk()) {
        let last = u64::from(u32::from_le_bytes(*last)) << 32;
        return (u64::from(u32::from_le_bytes(*first)) | last >> (bits_missing(8) & 63), 0);
    }
    let at = |index: usize| tail.get(index).map_or(0, |&byte| u64::from(byte));
    (at(0) | at(1) << 8 | at(2) << 16, 0)
}

/// Returns whether a checksum is correct. A fuzzer accepts all checksums, because an attacker that can write the file
/// can compute them.
#[inline]
#[must_use]
pub fn agrees<T: Copy + PartialEq>(stored: T, computed: T) -> bool {
    cfg!(fuzzing) || stored == computed
}

/// The identity of a file, which is part of every record checksum and differs for each file. A record of an older file
/// at the same position is therefore damage, for example after a disk lost a write.
///
/// ```
/// use roster_snapshot::Snapshot;
/// use roster_snapshot::hash::ChecksumIdentity;
/// use roster_snapshot::layout::{SectionId, UserSlot};
/// use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let identity = ChecksumIdentity(Snapshot::open(bytes)?.shape().identity);
/// let (user, _) = UserSlot::ref_from_prefix(&bytes[4096..]).unwrap();
/// assert_eq!(identity.check(user, SectionId::Users, 0), user.check.get());
/// assert_ne!(identity.check(user, SectionId::Users, 1), user.check.get());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumIdentity(pub u64);

impl ChecksumIdentity {
    /// Returns the checksum of a record. Its first four bytes are the field for the checksum, and count as zeros.
    /// Section and position are included, so that a record at another position is damage. The record is padded with
    /// zeros to a multiple of 16 bytes.
    #[inline]
    #[must_use]
    pub fn check<T: IntoBytes + Immutable>(
        self,
        record: &T,
        section: SectionId,
        position: u32,
    ) -> u32 {
        RecordChecksum::of_record(self, record, section, position).finish()
    }

    /// [`Self::check`] of a record that belongs to a name. The name's slot is included after it.
    #[inline]
    #[must_use]
    pub fn check_with_name<T: IntoBytes + Immutable>(
        self,
        record: &T,
        name: &NameSlot,
        section: SectionId,
        position: u32,
    ) -> u32 {
        let mut check = RecordChecksum::of_record(self, record, section, position);
        check.add(halves(&name.0));
        check.finish()
    }
}

/// Checksum of a record. For each 16 bytes, the two halves are mixed with a key each, multiplied and folded; the
/// results are added. One key changes with each piece, so that order counts. A plain sum would miss typical failures of
/// memory and cables: the same top bit of several words adds up to zero.
struct RecordChecksum {
    key: u64,
    sum: u64,
}

impl RecordChecksum {
    #[inline]
    fn of_record<T: IntoBytes + Immutable>(
        ChecksumIdentity(identity): ChecksumIdentity,
        record: &T,
        section: SectionId,
        position: u32,
    ) -> Self {
        let mut check = Self { key: K[5], sum: 0 };
        check.add(((section as u64) << 32 | u64::from(position), identity));
        let (chunks, tail) = record.as_bytes().as_chunks::<16>();
        for (index, chunk) in chunks.iter().enumerate() {
            let (low, high) = halves(chunk);
            check.add((if index == 0 { low & !u64::from(u32::MAX) } else { low }, high));
        }
        if !tail.is_empty() {
            check.add(padded(tail));
        }
        check
    }

    #[inline]
    fn add(&mut self, (low, high): (u64, u64)) {
        self.sum = self.sum.wrapping_add(fold(low ^ self.key, high ^ K[6]));
        self.key = self.key.wrapping_add(K[7]);
    }

    #[inline]
    fn finish(&self) -> u32 {
        (self.sum ^ (self.sum >> 32)) as u32
    }
}

/// Running checksum over the name slots of a member list. It covers slots instead of their numbers, and thus both. It
/// uses sums and sums of sums of 128-bit numbers, as Fletcher's checksum does, with four additions per member. Only the
/// last byte of a slot, its length, could be lost in an overflow, and the lengths are added separately.
///
/// ```
/// use roster_snapshot::hash::NameSum;
/// use roster_snapshot::layout::{GroupSlot, SectionId};
/// # use roster_snapshot::Snapshot;
/// # use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// # let snapshot = Snapshot::open(bytes)?;
/// # let section = snapshot.sections().find(|section| section.id == SectionId::Groups).unwrap();
/// # let (staff, _) = GroupSlot::ref_from_prefix(&bytes[section.offset as usize..]).unwrap();
/// let [alice, bob] = [b"alice\0\0\0\0\0\0\0\0\0\0\x0a", b"bob\0\0\0\0\0\0\0\0\0\0\0\0\x0c"];
/// let mut sum = NameSum::default();
/// for slot in [alice, bob, b"fifteen-letters\0", alice] {
///     sum.add(u128::from_le_bytes(*slot));
/// }
/// assert_eq!(sum.finish(), staff.sum.get());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NameSum {
    sum: u128,
    sums: u128,
}

impl NameSum {
    /// Adds the slot of the next member, as a little-endian number.
    #[inline]
    pub fn add(&mut self, slot: u128) {
        self.sum = self.sum.wrapping_add(slot);
        self.sums = self.sums.wrapping_add(self.sum);
    }

    /// Returns the value that the record stores.
    #[inline]
    #[must_use]
    pub fn finish(&self) -> u64 {
        let [sum, sums] = [self.sum, self.sums].map(|sum| (sum as u64, (sum >> 64) as u64));
        fold(sum.0 ^ K[5], sum.1 ^ K[6]).wrapping_add(fold(sums.0 ^ K[7], sums.1 ^ K[8]))
    }
}

/// Running checksum over the gids of a group list.
///
/// ```
/// use roster_snapshot::hash::GidSum;
/// use roster_snapshot::layout::{Membership, SectionId};
/// # use roster_snapshot::Snapshot;
/// # use zerocopy::FromBytes;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// # let snapshot = Snapshot::open(bytes)?;
/// # let section = snapshot.sections().find(|section| section.id == SectionId::Memberships).unwrap();
/// # let records = &bytes[section.offset as usize..];
/// # let ([_, bob], _) = <[Membership; 2]>::ref_from_prefix(records).unwrap();
/// let mut sum = GidSum::default();
/// for gid in [10, 101, u32::MAX, 77] {
///     sum.add(gid);
/// }
/// assert_eq!(sum.finish(), bob.sum.get());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GidSum {
    sum: u64,
    sums: u64,
}

impl GidSum {
    /// Adds the next gid.
    #[inline]
    pub fn add(&mut self, gid: u32) {
        self.sum = self.sum.wrapping_add(u64::from(gid));
        self.sums = self.sums.wrapping_add(self.sum);
    }

    /// Returns the value that the record stores.
    #[inline]
    #[must_use]
    pub fn finish(&self) -> u64 {
        fold(self.sum ^ K[9], self.sums ^ K[4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::collections::HashSet;

    /// Input of the tests. A program written from docs/reference/snapshot-format.md alone computed their expected
    /// values. Writer and reader share this module, so no other test detects a change of the hashes.
    const TEXT: [u8; 40] = {
        let mut text = [0; 40];
        let mut index = 0;
        while index < text.len() {
            text[index] = (0x80 + index * 7) as u8;
            index += 1;
        }
        text
    };

    fn record<const N: usize>() -> [u8; N] {
        core::array::from_fn(|index| (index * 7 + 1) as u8)
    }

    #[test]
    fn hash_of_bytes_is_that_of_page() {
        // Length, hash with seed 0, hash with seed 7.
        for (len, plain_hash, seeded) in [
            (0, 0x5309_7B8E_D678_AF76, 0x5B75_18F1_90A8_AA18),
            (1, 0x3C25_066F_F501_C536, 0x715C_1743_233D_6D9F),
            (2, 0x5DD4_672E_027C_7363, 0xFB4C_194E_7A06_DC90),
            (3, 0x3650_F0DE_1331_B033, 0x432B_D5C0_7B4E_407A),
            (4, 0x12F9_8D28_960D_1118, 0x154E_E5C8_5919_73B3),
            (5, 0x9BFE_44CE_D7D1_2A00, 0xC1A0_AFEB_D284_8724),
            (7, 0x270D_512A_1D58_4094, 0xA723_C5D6_BAE5_24D8),
            (8, 0x6085_50C7_EFE4_1B8D, 0x7142_5105_662E_71B1),
            (9, 0x67C1_0A08_21B1_5093, 0xA532_9D6D_959C_12E3),
            (15, 0x2CF8_2A84_7AEC_2352, 0xEF68_499D_F071_CDE0),
            (16, 0x943E_CA91_B3D5_2772, 0xB1DB_4CD1_9C35_39CA),
            (17, 0x8E07_B301_939C_EC81, 0x5789_AD5E_FBD3_229C),
            (32, 0x084B_6184_BBCB_AFA7, 0xB7E9_8B54_C18C_4B22),
            (40, 0xEDED_EDE7_6A98_B845, 0xE73C_ECEF_13E0_81F4),
        ] {
            assert_eq!(plain(&TEXT[..len]), plain_hash, "{len} bytes");
            assert_eq!(bytes(&TEXT[..len], Seed::new(7)), seeded, "{len} bytes");
        }
        assert_eq!(fold(u64::MAX, u64::MAX - 1), 0xFFFF_FFFF_FFFF_FFFF);
        assert_eq!(fold(0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210), 0x2317_228F_4816_5BB2);
    }

    #[test]
    fn hash_of_id_is_that_of_page() {
        for (key, plain_hash, seeded) in [
            (0, 0x36B7_22B5_7416_4C4F, 0x67DB_32AE_F821_6E90),
            (1000, 0xB803_B17C_FE20_D7BF, 0x99CD_0DE5_1BF5_BBB5),
            (u32::MAX, 0xAABC_3179_73FD_8E98, 0x42FD_F0F3_0D0B_272D),
        ] {
            assert_eq!(
                (id(key, Seed::new(0)), id(key, Seed::new(7))),
                (plain_hash, seeded),
                "{key}"
            );
        }
    }

    const ZERO: ChecksumIdentity = ChecksumIdentity(0);

    #[test]
    fn checksum_of_record_is_that_of_page() {
        let name = NameSlot(*TEXT.first_chunk().unwrap());
        let section = SectionId::Memberships;
        let checks_24 = (
            ZERO.check(&record::<24>(), section, 5),
            ZERO.check_with_name(&record::<24>(), &name, section, 5),
        );
        assert_eq!(checks_24, (0xB857_9F34, 0x4056_AD60));
        let checks_31 = (
            ZERO.check(&record::<31>(), section, 5),
            ZERO.check_with_name(&record::<31>(), &name, section, 5),
        );
        assert_eq!(checks_31, (0x8049_00C7, 0xB89E_12D5));
        let checks_128 = (
            ZERO.check(&record::<128>(), section, 5),
            ZERO.check_with_name(&record::<128>(), &name, section, 5),
        );
        assert_eq!(checks_128, (0x4AC6_154C, 0x35A1_7DB5));
        let identity = ChecksumIdentity(0x0123_4567_89AB_CDEF);
        assert_eq!(identity.check(&record::<24>(), section, 5), 0x0F63_E874);
        assert_eq!(identity.check(&record::<128>(), section, 5), 0xB85B_021C);
        // The field of the checksum does not count.
        let mut other = record::<128>();
        other[..4].copy_from_slice(b"else");
        assert_eq!(ZERO.check(&other, section, 5), 0x4AC6_154C);
    }

    #[test]
    fn checksums_of_lists_are_those_of_page() {
        let mut alice = *b"alice\0\0\0\0\0\0\0\0\0\0\0";
        alice[15] = 10;
        let (slots, _) = TEXT.as_chunks::<16>();
        let mut names = NameSum::default();
        assert_eq!(names.finish(), 0x2441_5722_13E2_16FE);
        names.add(u128::from_le_bytes(slots[0]));
        assert_eq!(names.finish(), 0xEE31_2F0F_DA86_51A3);
        for slot in [slots[1], alice, [0xff; 16]] {
            names.add(u128::from_le_bytes(slot));
        }
        assert_eq!(names.finish(), 0xCA1F_C7AD_AAF7_AAEC);

        let mut gids = GidSum::default();
        assert_eq!(gids.finish(), 0x803C_5253_CA00_D46F);
        gids.add(100);
        assert_eq!(gids.finish(), 0xA979_7A6C_49A1_B789);
        gids.add(u32::MAX);
        gids.add(0);
        assert_eq!(gids.finish(), 0xFCC6_C6F8_8AC2_7666);
    }

    #[test]
    fn short_strings_hash_as_if_zero_padded() {
        let text: [u8; 16] = core::array::from_fn(|index| 0x80 + index as u8);
        for len in 1..16 {
            let mut filled = [0; 16];
            filled[..len].copy_from_slice(&text[..len]);
            assert_eq!(padded(&text[..len]), halves(&filled), "{len} bytes");
        }
    }

    #[test]
    fn strings_that_differ_in_length_only_differ() {
        let zeros = [0; 40];
        let hashes: HashSet<u64> = (0..40).map(|len| plain(&zeros[..len])).collect();
        assert_eq!(hashes.len(), 40);
    }

    #[test]
    fn no_string_undoes_the_seed() {
        for number in 0..64 {
            let seed = Seed::new(number);
            assert!(seed.start != 0 && seed.factor != 0);
            // Strings with the factor of a seed as their second half collide under that seed only.
            let with_factor = |first: u64| [first, seed.factor].map(u64::to_le_bytes).concat();
            let (one, other) = (with_factor(1), with_factor(2));
            assert_eq!(bytes(&one, seed), bytes(&other, seed));
            assert_ne!(bytes(&one, Seed::new(number + 1)), bytes(&other, Seed::new(number + 1)));
        }
    }

    #[test]
    fn a_flipped_bit_changes_the_checksum() {
        let record: [u8; 128] = core::array::from_fn(|index| index as u8);
        let whole = ZERO.check(&record, SectionId::Users, 3);
        assert_ne!(whole, ZERO.check(&record, SectionId::Users, 4));
        assert_ne!(whole, ZERO.check(&record, SectionId::Groups, 3));
        for bit in 32..128 * 8 {
            let mut flipped = record;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(whole, ZERO.check(&flipped, SectionId::Users, 3), "bit {bit}");
        }
    }

    /// Typical failures of memory and cables: the same bit of several words.
    #[test]
    fn one_bit_flipped_in_several_words_changes_the_checksum() {
        let record: [u8; 128] = core::array::from_fn(|index| index as u8 ^ 0x5a);
        let whole = ZERO.check(&record, SectionId::Users, 3);
        let flip = |record: &mut [u8; 128], word: usize, bit: usize| {
            record[word * 8 + bit / 8] ^= 1 << (bit % 8);
        };
        for bit in 0..64 {
            // The checksum is in the lower half of the first word.
            let first = usize::from(bit < 32);
            for one in first..16 {
                for other in one + 1..16 {
                    let mut flipped = record;
                    flip(&mut flipped, one, bit);
                    flip(&mut flipped, other, bit);
                    let found = ZERO.check(&flipped, SectionId::Users, 3);
                    assert_ne!(whole, found, "bit {bit} of words {one} and {other}");
                }
            }
            let (mut all, mut set, mut cleared) = (record, record, record);
            for word in first..16 {
                flip(&mut all, word, bit);
                set[word * 8 + bit / 8] |= 1 << (bit % 8);
                cleared[word * 8 + bit / 8] &= !(1 << (bit % 8));
            }
            for stuck in [all, set, cleared] {
                assert!(
                    stuck == record || whole != ZERO.check(&stuck, SectionId::Users, 3),
                    "bit {bit}"
                );
            }
        }
    }

    /// A flipped bit in the last byte of a slot would make the length wrong.
    #[test]
    fn one_bit_flipped_in_several_members_changes_the_sum() {
        let sum = |slots: &[u128]| {
            let mut sum = NameSum::default();
            slots.iter().for_each(|&slot| sum.add(slot));
            sum.finish()
        };
        let slots: [u128; 300] = core::array::from_fn(|index| {
            (index as u128).wrapping_mul(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef) >> 8
        });
        let whole = sum(&slots);
        for bit in 0..120 {
            for other in 1..300 {
                let mut flipped = slots;
                flipped[0] ^= 1 << bit;
                flipped[other] ^= 1 << bit;
                assert_ne!(whole, sum(&flipped), "bit {bit} of members 0 and {other}");
            }
            for stuck in [slots.map(|slot| slot | 1 << bit), slots.map(|slot| slot & !(1 << bit))] {
                assert!(stuck == slots || whole != sum(&stuck), "bit {bit}");
            }
        }
    }
}
