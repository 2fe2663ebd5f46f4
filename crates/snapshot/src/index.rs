//! Looking a hash up in an index section.

use crate::layout::{Bucket, PROBES_MAX, SectionId, fingerprint, home};
use crate::{Damage, Found, hash};

/// An index from a key's hash to positions of records.
#[derive(Clone, Copy, Debug)]
pub struct Index<'a> {
    pub(crate) id: SectionId,
    pub(crate) buckets: &'a [Bucket],
}

impl Index<'_> {
    /// Offers each record whose fingerprint agrees to `candidate`, which looks at the record's key
    /// and says whether it is the one. An index without buckets has no keys.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        key_hash: u64,
        mut candidate: impl FnMut(u32) -> Found<T>,
    ) -> Found<T> {
        let wanted = fingerprint(key_hash);
        let mut place = home(key_hash, self.buckets.len());
        for _ in 0..PROBES_MAX.min(self.buckets.len()) {
            let bucket = self.buckets.get(place).ok_or(Damage)?;
            if !hash::agrees(bucket.check.get(), hash::check(bucket, self.id, place as u32)) {
                return Err(Damage);
            }
            let mut matches = bucket.matches(wanted);
            while matches != 0 {
                let entry = matches.trailing_zeros() as usize;
                let position = bucket.positions.get(entry).ok_or(Damage)?;
                if let Some(found) = candidate(position.get())? {
                    return Ok(Some(found));
                }
                matches &= matches.wrapping_sub(1);
            }
            if !bucket.is_full() {
                return Ok(None);
            }
            place = place.wrapping_add(1);
            if place == self.buckets.len() {
                place = 0;
            }
        }
        // The builder leaves no run of full buckets this long; a tiny index may be all full.
        if self.buckets.len() <= PROBES_MAX { Ok(None) } else { Err(Damage) }
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

    /// Buckets, for statistics.
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }
}
