// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds index sections. `roster_snapshot` has the search, in its module `index`.

use roster_snapshot::hash::ChecksumIdentity;
use roster_snapshot::layout::{BUCKET_KEYS, Bucket, PROBES_MAX, SectionId, fingerprint, home};
use zerocopy::FromZeros;
use zerocopy::little_endian::{U16, U32};

/// Maximum average number of keys in a bucket. With more, missing keys would often need a second bucket.
const KEYS_PER_BUCKET: usize = 7;

pub(crate) struct IndexBuilder {
    section: SectionId,
    identity: ChecksumIdentity,
    buckets: Vec<Bucket>,
}

/// A key would be too far from the start of its lookup; another seed is needed.
pub(crate) struct ProbeTooLong;

impl IndexBuilder {
    pub(crate) fn new(section: SectionId, identity: ChecksumIdentity, keys: usize) -> Self {
        Self { section, identity, buckets: vec![Bucket::new_zeroed(); bucket_count(keys)] }
    }

    /// Inserts the record, unless `same` finds an earlier one with the same key. Returns the earlier one.
    pub(crate) fn insert(
        &mut self,
        key_hash: u64,
        position: u32,
        mut same: impl FnMut(u32) -> bool,
    ) -> Result<Option<u32>, ProbeTooLong> {
        let wanted = fingerprint(key_hash);
        let buckets = self.buckets.len();
        let mut place = home(key_hash, buckets);
        for _ in 0..PROBES_MAX {
            let bucket = &mut self.buckets[place];
            for entry in 0..BUCKET_KEYS {
                match bucket.fingerprints[entry].get() {
                    0 => {
                        bucket.fingerprints[entry] = U16::new(wanted);
                        bucket.positions[entry] = U32::new(position);
                        return Ok(None);
                    }
                    found if found == wanted => {
                        let earlier = bucket.positions[entry].get();
                        if same(earlier) {
                            return Ok(Some(earlier));
                        }
                    }
                    _ => {}
                }
            }
            place = (place + 1) % buckets;
        }
        Err(ProbeTooLong)
    }

    pub(crate) fn finish(mut self) -> Vec<Bucket> {
        for (place, bucket) in self.buckets.iter_mut().enumerate() {
            bucket.check = U32::new(self.identity.check(bucket, self.section, place as u32));
        }
        self.buckets
    }
}

/// Returns the number of buckets. It grows in steps of an eighth of a power of two, so that a few more keys do not
/// change an index.
fn bucket_count(keys: usize) -> usize {
    let least = keys.div_ceil(KEYS_PER_BUCKET);
    let step = (least.next_power_of_two() / 16).max(1);
    least.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_counts_hold_the_load_and_seldom_change() {
        let counts: Vec<usize> = (0..100_000).map(bucket_count).collect();
        for (keys, &count) in counts.iter().enumerate() {
            assert!(keys <= count * KEYS_PER_BUCKET, "{keys} keys in {count} buckets");
            assert!(count * KEYS_PER_BUCKET <= keys + keys / 7 + 8 * 7, "{keys} keys, {count}");
        }
        let changes = counts.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes < 16 * 12, "{changes} sizes");
    }

    #[test]
    fn the_first_of_two_equal_keys_stays() {
        let mut index = IndexBuilder::new(SectionId::ByUid, ChecksumIdentity(7), 2);
        assert!(matches!(index.insert(7, 0, |_| unreachable!()), Ok(None)));
        assert!(matches!(index.insert(7, 1, |earlier| earlier == 0), Ok(Some(0))));
    }

    #[test]
    fn keys_of_one_hash_are_refused_in_the_end() {
        let mut index = IndexBuilder::new(SectionId::ByUid, ChecksumIdentity(7), 10_000);
        let room = (PROBES_MAX * BUCKET_KEYS) as u32;
        for position in 0..room {
            assert!(index.insert(7, position, |_| false).is_ok());
        }
        assert!(index.insert(7, room, |_| false).is_err());
    }
}
