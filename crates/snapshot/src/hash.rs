//! Hashes and checksums of the format. They guard against damage, not against an author of the
//! file: whoever can write it can compute them too.
//!
//! Hashes and the checksums of records are built from one 64 × 64 → 128 bit multiplication whose
//! halves are folded together, the fastest well-mixing step that portable code has; the checksums of
//! lists are sums, for they are made a member at a time.

use crate::layout::{NameSlot, SectionId};
use zerocopy::{Immutable, IntoBytes};

/// The first 10 × 64 fractional bits of π, so that nobody chose them.
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

/// The product's low half exclusive-or its high half.
#[inline]
#[must_use]
pub const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// A seed, mixed: keys made to collide under one do not under another.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    start: u64,
    factor: u64,
}

impl Seed {
    /// The seed of that number.
    #[inline]
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self { start: fold(number ^ K[0], K[1]), factor: fold(number ^ K[2], K[3]) }
    }
}

/// Hash of a string: keys, long texts, the whole file.
#[inline(never)] // the module is loaded into every process: one copy
#[must_use]
pub fn bytes(bytes: &[u8], seed: Seed) -> u64 {
    let mut hash = Running::new(seed);
    hash.update(bytes);
    hash.finish()
}

/// [`bytes`] with seed 0, which is all that a check for damage needs.
#[inline]
#[must_use]
pub fn plain(text: &[u8]) -> u64 {
    bytes(text, const { Seed::new(0) })
}

/// [`bytes`] in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    hash: u64,
    factor: u64,
    bytes: u64,
}

impl Running {
    /// Of no bytes yet.
    #[inline]
    #[must_use]
    pub const fn new(seed: Seed) -> Self {
        Self { hash: seed.start, factor: seed.factor, bytes: 0 }
    }

    /// Takes the next piece in; all but the last must be multiples of 16 bytes long.
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

    /// The hash of all pieces one after the other.
    #[inline]
    #[must_use]
    pub fn finish(&self) -> u64 {
        fold(self.hash ^ self.bytes, K[4])
    }
}

/// Hash of a numeric key.
#[inline]
#[must_use]
pub const fn id(key: u32, seed: Seed) -> u64 {
    fold(key as u64 ^ seed.start, seed.factor)
}

/// A chunk as two little-endian words.
#[inline]
fn halves(chunk: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*chunk);
    (both as u64, (both >> 64) as u64)
}

/// The same for a chunk of less than 16 bytes, as if filled up with zeros.
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

/// Whether a checksum is as it should be. A fuzzer takes every one for right, so that it gets past
/// them: an attacker who can write the file can compute them.
#[inline]
#[must_use]
pub fn agrees<T: Copy + PartialEq>(stored: T, computed: T) -> bool {
    cfg!(fuzzing) || stored == computed
}

/// Checksum of a record whose first four bytes are the place for it, taken as zeros. The section
/// and the position enter too, so that a record in the wrong place is damage. A record whose
/// length is no multiple of 16 bytes is filled up with zeros.
#[inline]
#[must_use]
pub fn check<T: IntoBytes + Immutable>(record: &T, section: SectionId, position: u32) -> u32 {
    Check::of(record, section, position).finish()
}

/// [`check`] of a record that belongs to a name: the name's slot enters behind it.
#[inline]
#[must_use]
pub fn check_with_name<T: IntoBytes + Immutable>(
    record: &T,
    name: &NameSlot,
    section: SectionId,
    position: u32,
) -> u32 {
    let mut check = Check::of(record, section, position);
    check.add(halves(&name.0));
    check.finish()
}

/// For each 16 bytes the product of their halves, each mixed with a key, folded and added up. One of
/// the keys is another for each piece, so that order counts. A plain sum would be blind where
/// memory and cables really fail: the same top bit of several words adds up to nothing.
struct Check {
    key: u64,
    sum: u64,
}

impl Check {
    #[inline]
    fn of<T: IntoBytes + Immutable>(record: &T, section: SectionId, position: u32) -> Self {
        let mut check = Self { key: K[5], sum: 0 };
        check.add(((section as u64) << 32 | u64::from(position), 0));
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

/// Running checksum over the name slots that a list of members answers: over these and not their
/// numbers, so that it covers both. Sums and sums of sums of 128-bit numbers, as Fletcher's, for
/// four additions a member. What could be carried out at the top is only the last byte, which
/// says the name's length; and the lengths are added up beside it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameSum {
    sum: u128,
    sums: u128,
}

impl NameSum {
    /// Takes the next member's slot in, as a little-endian number.
    #[inline]
    pub fn add(&mut self, slot: u128) {
        self.sum = self.sum.wrapping_add(slot);
        self.sums = self.sums.wrapping_add(self.sum);
    }

    /// The value that the record stores.
    #[inline]
    #[must_use]
    pub fn finish(&self) -> u64 {
        let [sum, sums] = [self.sum, self.sums].map(|sum| (sum as u64, (sum >> 64) as u64));
        fold(sum.0 ^ K[5], sum.1 ^ K[6]).wrapping_add(fold(sums.0 ^ K[7], sums.1 ^ K[8]))
    }
}

/// Running checksum over the gids that a list of groups answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct GidSum {
    sum: u64,
    sums: u64,
}

impl GidSum {
    /// Takes the next gid in.
    #[inline]
    pub fn add(&mut self, gid: u32) {
        self.sum = self.sum.wrapping_add(u64::from(gid));
        self.sums = self.sums.wrapping_add(self.sum);
    }

    /// The value that the record stores.
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
            // Strings whose second half is the factor of one seed are all the same to it alone.
            let with_factor = |first: u64| [first, seed.factor].map(u64::to_le_bytes).concat();
            let (one, other) = (with_factor(1), with_factor(2));
            assert_eq!(bytes(&one, seed), bytes(&other, seed));
            assert_ne!(bytes(&one, Seed::new(number + 1)), bytes(&other, Seed::new(number + 1)));
        }
    }

    #[test]
    fn a_flipped_bit_changes_the_checksum() {
        let record: [u8; 128] = core::array::from_fn(|index| index as u8);
        let whole = check(&record, SectionId::Users, 3);
        assert_ne!(whole, check(&record, SectionId::Users, 4));
        assert_ne!(whole, check(&record, SectionId::Groups, 3));
        for bit in 32..128 * 8 {
            let mut flipped = record;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(whole, check(&flipped, SectionId::Users, 3), "bit {bit}");
        }
    }

    /// What memory and cables really do: the same bit of several words.
    #[test]
    fn one_bit_flipped_in_several_words_changes_the_checksum() {
        let record: [u8; 128] = core::array::from_fn(|index| index as u8 ^ 0x5a);
        let whole = check(&record, SectionId::Users, 3);
        let flip = |record: &mut [u8; 128], word: usize, bit: usize| {
            record[word * 8 + bit / 8] ^= 1 << (bit % 8);
        };
        for bit in 0..64 {
            // The checksum itself lies in the lower half of the first word.
            let first = usize::from(bit < 32);
            for one in first..16 {
                for other in one + 1..16 {
                    let mut flipped = record;
                    flip(&mut flipped, one, bit);
                    flip(&mut flipped, other, bit);
                    let found = check(&flipped, SectionId::Users, 3);
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
                    stuck == record || whole != check(&stuck, SectionId::Users, 3),
                    "bit {bit}"
                );
            }
        }
    }

    /// In the last byte of a slot the length would not be right.
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
