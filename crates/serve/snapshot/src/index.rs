// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches an index section for a hash. This module reads no name or id: the caller compares those of the record.

use crate::hash::ChecksumIdentity;
use crate::layout::{Bucket, PROBES_MAX, SectionId, fingerprint, home};
use crate::{Damage, LookupResult, hash};

/// An index from the hash of a key to positions of records.
///
/// ```
/// use roster_snapshot::Snapshot;
/// use roster_snapshot::layout::SectionId;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let [_, by_uid, ..] = Snapshot::open(bytes)?.indices();
/// assert_eq!(by_uid.id(), SectionId::ByUid);
/// let mut positions: Vec<u32> = by_uid.entries().map(|(_, _, position)| position).collect();
/// positions.sort();
/// assert_eq!(positions, [0, 1, 2, 3, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Index<'a> {
    pub(crate) id: SectionId,
    pub(crate) identity: ChecksumIdentity,
    pub(crate) buckets: &'a [Bucket],
}

impl<'a> Index<'a> {
    /// Calls `candidate` with each record that has the fingerprint, until it returns one with the right key. An index
    /// without buckets has no keys.
    #[inline(always)] // a lookup is little more than this
    pub(crate) fn find<T>(
        &self,
        key_hash: u64,
        mut candidate: impl FnMut(u32) -> LookupResult<T>,
    ) -> LookupResult<T> {
        let mut probe = ProbeSequence::new(self, key_hash);
        while let Some(position) = probe.next()? {
            if let Some(found) = candidate(position)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns every entry in bucket order: bucket number, fingerprint, position.
    pub fn entries(&self) -> impl Iterator<Item = (usize, u16, u32)> {
        self.buckets.iter().enumerate().flat_map(|(place, bucket)| {
            let entries = bucket.fingerprints.iter().zip(&bucket.positions);
            entries
                .map(move |(fingerprint, position)| (place, fingerprint.get(), position.get()))
                .filter(|&(_, fingerprint, _)| fingerprint != 0)
        })
    }

    /// Returns the section.
    #[must_use]
    pub fn id(&self) -> SectionId {
        self.id
    }
}

/// The state of one lookup in the buckets.
struct ProbeSequence<'a> {
    index: Index<'a>,
    wanted: u16,
    /// The current bucket, after the first step.
    bucket: Option<&'a Bucket>,
    /// Matching entries of the bucket that were not returned yet, one bit each.
    matches: u32,
    /// The bucket to read next.
    place: usize,
    /// Number of buckets that may still be read.
    left: usize,
}

impl<'a> ProbeSequence<'a> {
    fn new(index: &Index<'a>, key_hash: u64) -> Self {
        let buckets = index.buckets.len();
        Self {
            index: *index,
            wanted: fingerprint(key_hash),
            bucket: None,
            matches: 0,
            place: home(key_hash, buckets),
            left: PROBES_MAX.min(buckets),
        }
    }

    /// Returns the position of the next candidate.
    // One copy for all lookups: every process loads the module.
    #[inline(never)]
    fn next(&mut self) -> LookupResult<u32> {
        loop {
            if let Some(bucket) = self.bucket {
                if self.matches != 0 {
                    let entry = self.matches.trailing_zeros() as usize;
                    self.matches &= self.matches.wrapping_sub(1);
                    return Ok(Some(bucket.positions.get(entry).ok_or(Damage)?.get()));
                }
                if !bucket.is_full() {
                    return Ok(None);
                }
            }
            if self.left == 0 {
                // The builder leaves no longer run of full buckets. In a tiny index, all buckets may be full.
                let tiny = self.index.buckets.len() <= PROBES_MAX;
                return if tiny { Ok(None) } else { Err(Damage) };
            }
            let bucket = self.index.buckets.get(self.place).ok_or(Damage)?;
            let check = self.index.identity.check(bucket, self.index.id, self.place as u32);
            if !hash::agrees(bucket.check.get(), check) {
                return Err(Damage);
            }
            self.matches = bucket.matches(self.wanted);
            self.bucket = Some(bucket);
            self.left = self.left.wrapping_sub(1);
            self.place = self.place.wrapping_add(1);
            if self.place == self.index.buckets.len() {
                self.place = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::BUCKET_KEYS;
    use zerocopy::FromZeros;
    use zerocopy::little_endian::{U16, U32};
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    const ID: SectionId = SectionId::ByUid;
    const IDENTITY: ChecksumIdentity = ChecksumIdentity(7);
    /// A hash with a lookup that begins in the first bucket, and its fingerprint.
    const FIRST: u64 = WANTED << 48;
    const WANTED: u64 = 7;

    /// Returns a bucket with those fingerprints from the front. The positions count from 10 times `place`.
    fn bucket(place: u32, fingerprints: &[u16]) -> Bucket {
        let mut bucket = Bucket::new_zeroed();
        for (entry, &found) in fingerprints.iter().enumerate() {
            bucket.fingerprints[entry] = U16::new(found);
            bucket.positions[entry] = U32::new(place * 10 + entry as u32);
        }
        bucket.check = U32::new(IDENTITY.check(&bucket, ID, place));
        bucket
    }

    /// Returns that many full buckets without the wanted fingerprint.
    fn full(count: u32) -> Vec<Bucket> {
        (0..count).map(|place| bucket(place, &[1; BUCKET_KEYS])).collect()
    }

    /// Searches a hash for the record at `wanted`. Returns the result and all candidates.
    fn find(buckets: &[Bucket], key_hash: u64, wanted: u32) -> (LookupResult<u32>, Vec<u32>) {
        let mut offered = Vec::new();
        let found = Index { id: ID, identity: IDENTITY, buckets }.find(key_hash, |position| {
            offered.push(position);
            assert!(offered.len() <= buckets.len() * BUCKET_KEYS, "entries are offered again");
            Ok((position == wanted).then_some(position))
        });
        (found, offered)
    }

    #[test]
    fn find_offers_each_match_until_one_fits() {
        let buckets = [bucket(0, &[7, 8, 7, 9, 7])];
        assert_eq!(find(&buckets, FIRST, 2), (Ok(Some(2)), vec![0, 2]));
        assert_eq!(find(&buckets, FIRST, 99), (Ok(None), vec![0, 2, 4]));
        assert_eq!(find(&buckets, 6 << 48, 99), (Ok(None), vec![]));
        assert_eq!(find(&[], FIRST, 0), (Ok(None), vec![]));
    }

    #[test]
    fn find_goes_on_after_full_bucket_only() {
        let full_one = [7, 1, 1, 1, 1, 1, 1, 1, 1, 7];
        let buckets = [bucket(0, &full_one), bucket(1, &[7]), bucket(2, &[7])];
        assert_eq!(find(&buckets, FIRST, 99), (Ok(None), vec![0, 9, 10]));
        // After the last of three buckets comes the first.
        let buckets = [bucket(0, &[7]), bucket(1, &[7]), bucket(2, &full_one)];
        assert_eq!(find(&buckets, FIRST | 0xFFFF_FFFF, 99), (Ok(None), vec![20, 29, 0]));
    }

    #[test]
    fn find_in_full_index_ends() {
        let most = PROBES_MAX as u32;
        assert_eq!(find(&full(1), FIRST, 0), (Ok(None), vec![]));
        assert_eq!(find(&full(most), FIRST, 0), (Ok(None), vec![]));
        // The builder leaves no run of that many full buckets: the file is damaged.
        assert_eq!(find(&full(most + 1), FIRST, 0), (Err(Damage), vec![]));
        let mut buckets = full(most + 1);
        buckets[PROBES_MAX - 1] = bucket(most - 1, &[7]);
        assert_eq!(find(&buckets, FIRST, 150), (Ok(Some(150)), vec![150]));
        buckets[PROBES_MAX - 1] = bucket(most - 1, &[1; BUCKET_KEYS]);
        buckets[PROBES_MAX] = bucket(most, &[7]);
        assert_eq!(find(&buckets, FIRST, 160), (Err(Damage), vec![]));
    }

    #[test]
    fn find_in_damaged_bucket_is_damage() {
        let whole = bucket(0, &[7]);
        let mut changed = whole;
        changed.positions[0] = U32::new(1);
        assert_eq!(find(&[changed], FIRST, 1), (Err(Damage), vec![]));
        // At the place of another bucket, in another file, and in another index.
        assert_eq!(find(&[bucket(1, &[7])], FIRST, 10), (Err(Damage), vec![]));
        let index = Index { id: ID, identity: ChecksumIdentity(8), buckets: &[whole] };
        assert_eq!(index.find(FIRST, |position| Ok(Some(position))), Err(Damage));
        let index = Index { id: SectionId::ByGid, identity: IDENTITY, buckets: &[whole] };
        assert_eq!(index.find(FIRST, |position| Ok(Some(position))), Err(Damage));
        // Buckets outside the probe sequence are not read.
        assert_eq!(find(&[whole, changed], FIRST, 0), (Ok(Some(0)), vec![0]));
    }

    #[test]
    fn find_passes_damage_of_candidate_on() {
        let index = Index { id: ID, identity: IDENTITY, buckets: &[bucket(0, &[7, 7])] };
        assert_eq!(index.find(FIRST, |_| -> LookupResult<u32> { Err(Damage) }), Err(Damage));
    }

    #[test]
    fn entries_are_listed_in_bucket_order() {
        let buckets = [bucket(0, &[7, 8]), bucket(1, &[]), bucket(2, &[9])];
        let index = Index { id: ID, identity: IDENTITY, buckets: &buckets };
        let entries: Vec<_> = index.entries().collect();
        assert_eq!(entries, [(0, 7, 0), (0, 8, 1), (2, 9, 20)]);
        assert_eq!(index.id(), ID);
    }
}
