// SPDX-License-Identifier: MIT OR Apache-2.0
//! The range of ids that domains share, cut into slices of equal size. `slice_plan` assigns the slices.

/// Ids from `min` to below `max`, in slices of `size`. A remainder at the top stays unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    min: u32,
    max: u32,
    size: u32,
}

/// The reason that three numbers are not a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdRangeError {
    /// Id 0 is root.
    #[error("lowest id is 0, which is root")]
    Zero,
    /// A slice has no ids.
    #[error("slice size is 0")]
    NoSize,
    /// The range has no complete slice.
    #[error("ids from {min} to {max} hold no slice of {size} ids")]
    NoSlice {
        /// Lowest id.
        min: u32,
        /// End of the range.
        max: u32,
        /// Size of a slice.
        size: u32,
    },
}

impl Default for IdRange {
    /// The defaults of SSSD: 10,000 slices of 200,000 ids, from id 200,000.
    fn default() -> Self {
        Self { min: 200_000, max: 2_000_200_000, size: 200_000 }
    }
}

impl IdRange {
    /// Makes a range of the ids from `min` to below `max`. The names in SSSD are `ldap_idmap_range_min`,
    /// `ldap_idmap_range_max` and `ldap_idmap_range_size`.
    ///
    /// # Errors
    ///
    /// The range has no complete slice, or begins with root's id.
    pub fn new(min: u32, max: u32, size: u32) -> Result<Self, IdRangeError> {
        if min == 0 {
            return Err(IdRangeError::Zero);
        }
        if size == 0 {
            return Err(IdRangeError::NoSize);
        }
        if max.checked_sub(min).is_none_or(|ids| ids < size) {
            return Err(IdRangeError::NoSlice { min, max, size });
        }
        Ok(Self { min, max, size })
    }

    /// Returns the lowest id.
    #[must_use]
    pub fn min(&self) -> u32 {
        self.min
    }

    /// Returns the end of the range, which is above the highest id.
    #[must_use]
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Returns the number of ids in a slice.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the number of slices, at least 1.
    #[must_use]
    pub fn slices(&self) -> u32 {
        self.max.saturating_sub(self.min).checked_div(self.size).unwrap_or(1)
    }

    /// Returns the lowest and the highest id of a slice. `None`: the range has fewer slices.
    #[must_use]
    pub fn slice_ids(&self, slice: u32) -> Option<(u32, u32)> {
        if slice >= self.slices() {
            return None;
        }
        let first = slice.checked_mul(self.size)?.checked_add(self.min)?;
        Some((first, first.checked_add(self.size.checked_sub(1)?)?))
    }

    /// Returns the slice that holds an id, and the place of the id in it.
    #[must_use]
    pub fn slice_of(&self, id: u32) -> Option<(u32, u32)> {
        let place = id.checked_sub(self.min)?;
        let slice = place.checked_div(self.size)?;
        (slice < self.slices()).then_some((slice, place.checked_rem(self.size)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_defaults_are_those_of_sssd() {
        let range = IdRange::default();
        assert_eq!(IdRange::new(200_000, 2_000_200_000, 200_000), Ok(range));
        assert_eq!(range.slices(), 10_000);
        assert_eq!(range.slice_ids(0), Some((200_000, 399_999)));
        assert_eq!(range.slice_ids(9_999), Some((2_000_000_000, 2_000_199_999)));
        assert_eq!(range.slice_ids(10_000), None);
    }

    #[test]
    fn range_ids_have_slice_and_place() {
        let range = IdRange::new(100, 155, 10).expect("a range");
        assert_eq!(range.slices(), 5);
        for (id, found) in [
            (99, None),
            (100, Some((0, 0))),
            (119, Some((1, 9))),
            (149, Some((4, 9))),
            (150, None),
            (u32::MAX, None),
        ] {
            assert_eq!(range.slice_of(id), found, "{id}");
        }
    }

    #[test]
    fn range_without_slices_is_refused() {
        assert_eq!(IdRange::new(0, 100, 10), Err(IdRangeError::Zero));
        assert_eq!(IdRange::new(1, 100, 0), Err(IdRangeError::NoSize));
        for (min, max) in [(100, 109), (100, 100), (100, 1)] {
            let error = IdRangeError::NoSlice { min, max, size: 10 };
            assert_eq!(IdRange::new(min, max, 10), Err(error));
        }
        let whole = IdRange::new(1, u32::MAX, 1).expect("a range");
        assert_eq!(whole.slice_ids(u32::MAX - 2), Some((u32::MAX - 1, u32::MAX - 1)));
    }
}
