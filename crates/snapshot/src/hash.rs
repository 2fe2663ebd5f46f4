//! Hashes and checksums of the format. They guard against damage, not against an author of the
//! file: whoever can write it can compute them too.
//!
//! Hashes are built from one 64 × 64 → 128 bit multiplication whose halves are folded together, the
//! fastest well-mixing step that portable code has; checksums from additions, which vectorise.

use crate::layout::{NameSlot, SectionId};
use zerocopy::{Immutable, IntoBytes};

/// The first 11 × 64 fractional bits of π, so that nobody chose them.
pub const K: [u64; 11] = [
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
    0x2FFD_72DB_D01A_DFB7,
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
    short(&sum_of(record, section, position))
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
    let mut sum = sum_of(record, section, position);
    sum.add(u128::from_le_bytes(name.0));
    short(&sum)
}

#[inline]
fn sum_of<T: IntoBytes + Immutable>(record: &T, section: SectionId, position: u32) -> Sum {
    let mut sum = Sum::default();
    sum.add((section as u128) << 32 | u128::from(position));
    let (chunks, tail) = record.as_bytes().as_chunks::<16>();
    for (index, chunk) in chunks.iter().enumerate() {
        let chunk = u128::from_le_bytes(*chunk);
        sum.add(if index == 0 { chunk & !u128::from(u32::MAX) } else { chunk });
    }
    if !tail.is_empty() {
        let (low, high) = padded(tail);
        sum.add(u128::from(high) << 64 | u128::from(low));
    }
    sum
}

#[inline]
fn short(sum: &Sum) -> u32 {
    let long = sum.finish();
    (long ^ (long >> 32)) as u32
}

/// Running checksum over pieces of 16 bytes, each a little-endian number: the sum of both halves,
/// and the sums of the sums as Fletcher's, so that order counts. A single change always shows, and
/// a piece costs two vector additions; multiplications only come at the end.
///
/// Over a list of members the pieces are the name slots that it answers, not their numbers, so
/// that one sum covers both.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    sum: [u64; 2],
    sums: [u64; 2],
}

impl Sum {
    /// Takes the next piece in.
    #[inline]
    pub fn add(&mut self, piece: u128) {
        let (low, high) = (piece as u64, (piece >> 64) as u64);
        self.sum = [self.sum[0].wrapping_add(low), self.sum[1].wrapping_add(high)];
        self.sums =
            [self.sums[0].wrapping_add(self.sum[0]), self.sums[1].wrapping_add(self.sum[1])];
    }

    /// The value that a record stores of a list.
    #[inline]
    #[must_use]
    pub fn finish(&self) -> u64 {
        let sum = fold(self.sum[0] ^ K[5], self.sum[1] ^ K[6]);
        sum.wrapping_add(fold(self.sums[0] ^ K[7], self.sums[1] ^ K[8]))
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
        fold(self.sum ^ K[9], self.sums ^ K[10])
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
}
