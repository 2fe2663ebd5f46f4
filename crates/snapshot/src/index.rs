//! Looking a hash up in an index section.

use crate::layout::{Bucket, PROBES_MAX, SectionId, fingerprint, home};
use crate::{Damage, Found, hash};

/// An index from a key's hash to positions of records.
#[derive(Clone, Copy, Debug)]
pub struct Index<'a> {
    pub(crate) id: SectionId,
    pub(crate) buckets: &'a [Bucket],
}

impl<'a> Index<'a> {
    /// Offers each record whose fingerprint agrees to `candidate`, which looks at the record's key
    /// and says whether it is the one. An index without buckets has no keys.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        key_hash: u64,
        mut candidate: impl FnMut(u32) -> Found<T>,
    ) -> Found<T> {
        let mut probe = Probe::new(self, key_hash);
        while let Some(position) = probe.next()? {
            if let Some(found) = candidate(position)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Every entry in bucket order: bucket number, fingerprint, position.
    pub fn entries(&self) -> impl Iterator<Item = (usize, u16, u32)> {
        self.buckets.iter().enumerate().flat_map(|(place, bucket)| {
            let entries = bucket.fingerprints.iter().zip(&bucket.positions);
            entries
                .map(move |(fingerprint, position)| (place, fingerprint.get(), position.get()))
                .filter(|&(_, fingerprint, _)| fingerprint != 0)
        })
    }

    /// Its section.
    #[must_use]
    pub fn id(&self) -> SectionId {
        self.id
    }
}

/// The way of one look-up through the buckets.
struct Probe<'a> {
    index: Index<'a>,
    wanted: u16,
    /// The bucket at hand, once there is one.
    bucket: Option<&'a Bucket>,
    /// Its entries that agree and were not offered yet, a bit each.
    matches: u32,
    /// The bucket to read next.
    place: usize,
    /// Buckets that may still be read.
    left: usize,
}

impl<'a> Probe<'a> {
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

    /// The position of the next record that may be the one.
    // One copy for all look-ups: the module is loaded into every process.
    #[inline(never)]
    fn next(&mut self) -> Found<u32> {
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
                // The builder leaves no run of full buckets this long; a tiny index may be all
                // full.
                let tiny = self.index.buckets.len() <= PROBES_MAX;
                return if tiny { Ok(None) } else { Err(Damage) };
            }
            let bucket = self.index.buckets.get(self.place).ok_or(Damage)?;
            let check = hash::check(bucket, self.index.id, self.place as u32);
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
