// SPDX-License-Identifier: MIT OR Apache-2.0
//! The floor: the ids that a reader serves from a snapshot that root does not own.
//!
//! The publisher runs as a dedicated user, so its snapshot must not create accounts with root's rights. The floor comes
//! from `/etc/roster/floor`, a file of root, which `docs/reference/snapshot-format.md` describes. The caller reads the
//! file. [`Snapshot::set_floor`](crate::Snapshot::set_floor) applies the floor to a snapshot.

use crate::strings::{HIDES_PASSWORD, REFUSED};
use core::ffi::CStr;
use core::fmt;

/// Path of the floor file.
pub const PATH: &CStr = c"/etc/roster/floor";
/// Path of the mark on a host where a snapshot was published. Without the mark, a missing snapshot was never published.
pub const PUBLISHED: &CStr = c"/etc/roster/published";
/// Maximum length of the file, and size of the reader's buffer, in bytes.
pub const FILE_BYTES_MAX: usize = 512;
/// Maximum number of primary gids in a file.
pub const GIDS_MAX: usize = 32;
/// The smallest id if the file is missing or rejected.
pub const DEFAULT_MIN_ID: u32 = 1000;

/// 65534 and 65535: `nobody`, and −1 in 16 bits. Both equal this value if the lowest bit is set.
const RESERVED: u32 = 65_535;

/// The floor of a host.
///
/// ```
/// use roster_snapshot::{Floor, Snapshot};
///
/// let floor = Floor::parse(b"min_id 1000\ngid 100\n").unwrap();
/// assert_eq!(floor, Floor::new(1000, [100]).unwrap());
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let mut snapshot = Snapshot::open(bytes)?;
/// assert_eq!(snapshot.user_by_name(b"bob")?.unwrap().uid, 10);
/// snapshot.set_floor(&floor);
/// assert!(snapshot.user_by_name(b"bob")?.is_none());
/// let alice = snapshot.user_by_name(b"alice")?.unwrap();
/// assert_eq!(alice.record().passwd, Some(&b"*"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Floor {
    min_id: u32,
    /// Primary gids that are served below the smallest id; 0 marks an unused element.
    gids: [u32; GIDS_MAX],
}

impl Floor {
    /// Creates a floor with this smallest id and these primary gids. Returns `None` for more than [`GIDS_MAX`] gids, or
    /// if a number is 0 or −1.
    pub fn new(min_id: u32, gids: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut floor = Self::without_gids(checked(min_id)?);
        let mut places = floor.gids.iter_mut();
        for gid in gids {
            *places.next()? = checked(gid)?;
        }
        Some(floor)
    }

    /// Parses the file: a line `min_id N`, then a line `gid N` for each primary gid. Returns `None` for any other
    /// content.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut floor = Self::without_gids(0);
        let mut rest = line(text, b"min_id ", &mut floor.min_id)?;
        let mut places = floor.gids.iter_mut();
        while !rest.is_empty() {
            rest = line(rest, b"gid ", places.next()?)?;
        }
        Some(floor)
    }

    pub(crate) fn without_gids(min_id: u32) -> Self {
        Self { min_id, gids: [0; GIDS_MAX] }
    }

    /// Returns the smallest uid and gid that are served.
    #[must_use]
    pub fn min_id(&self) -> u32 {
        self.min_id
    }

    /// Returns the uids and gids that are served.
    #[must_use]
    pub fn ids(&self) -> ServedIds {
        let span = u32::MAX.wrapping_sub(1).wrapping_sub(self.min_id);
        ServedIds { first: self.min_id, span, reserved: RESERVED }
    }

    /// Returns the primary gids that are served although they are below the smallest id.
    pub fn gids(&self) -> impl Iterator<Item = u32> {
        self.gids.into_iter().take_while(|&gid| gid != 0)
    }

    /// Returns whether the file lists that primary gid.
    #[cold]
    #[inline(never)]
    #[allow(clippy::manual_contains)] // `contains` takes five times the bytes of the module
    pub(crate) fn lists(&self, gid: u32) -> bool {
        gid != 0 && self.gids.iter().any(|&listed| listed == gid)
    }
}

/// The floor of a host without the file.
impl Default for Floor {
    fn default() -> Self {
        Self::without_gids(DEFAULT_MIN_ID)
    }
}

/// The text of the file.
impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "min_id {}", self.min_id)?;
        self.gids().try_for_each(|gid| writeln!(f, "gid {gid}"))
    }
}

impl fmt::Debug for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn checked(id: u32) -> Option<u32> {
    (id != 0 && id != u32::MAX).then_some(id)
}

/// Parses a line with that key and a number without leading zeros. Returns the text after the line.
fn line<'t>(text: &'t [u8], key: &[u8], value: &mut u32) -> Option<&'t [u8]> {
    let mut rest = text.strip_prefix(key)?;
    let mut number = 0_u32;
    loop {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 && (number, digit) != (0, 0) {
            number = number.checked_mul(10)?.checked_add(digit.into())?;
        } else if byte == b'\n' {
            *value = checked(number)?;
            return Some(rest);
        } else {
            return None;
        }
    }
}

/// The uids and gids that are served, as two comparisons for each lookup.
///
/// ```
/// use roster_snapshot::Floor;
///
/// let ids = Floor::default().ids();
/// assert_eq!([0, 999, 65534].map(|id| ids.has(id)), [false; 3]);
/// assert_eq!((ids.has_all(&[1000, 2000]), ids.has_all(&[1000, 0])), (true, false));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ServedIds {
    first: u32,
    /// The largest id minus `first`. The difference of an id below `first` wraps, and is larger.
    span: u32,
    /// [`RESERVED`] if that is refused. 0 equals no id with the lowest bit set.
    reserved: u32,
}

impl ServedIds {
    /// All ids, without a floor.
    pub(crate) const ALL: Self = Self { first: 0, span: u32::MAX, reserved: 0 };

    /// Returns whether all of these are served.
    #[inline]
    #[must_use]
    pub fn has_all(&self, ids: &[u32]) -> bool {
        // Reads the whole list, so that several ids are compared at once.
        self.reserved == 0 || ids.iter().fold(true, |all, &id| all & self.has(id))
    }

    /// Returns whether the id is served. The floor may also list it as a primary gid.
    #[inline]
    #[must_use]
    pub fn has(&self, id: u32) -> bool {
        (id.wrapping_sub(self.first) <= self.span) & (id | 1 != self.reserved)
    }
}

/// The ids that a snapshot or its responder may return.
///
/// ```
/// use roster_snapshot::{Floor, Snapshot};
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let mut snapshot = Snapshot::open(bytes)?;
/// snapshot.set_floor(&Floor::new(1000, [100]).unwrap());
/// let limits = snapshot.limits();
/// assert_eq!((limits.has_floor(), limits.min_id()), (true, 10));
/// assert_eq!((limits.ids().has(100), limits.has_primary(100)), (false, true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct IdLimits {
    /// The minimum of the snapshot: a smaller id is damage.
    pub(crate) min_id: u32,
    ids: ServedIds,
    floor: Floor,
}

impl IdLimits {
    pub(crate) fn without_floor(min_id: u32) -> Self {
        Self { min_id, ids: ServedIds::ALL, floor: Floor::without_gids(0) }
    }

    pub(crate) fn set_floor(&mut self, floor: &Floor) {
        self.ids = floor.ids();
        self.floor = *floor;
    }

    /// Returns the smallest id that the snapshot declares.
    #[inline]
    #[must_use]
    pub fn min_id(&self) -> u32 {
        self.min_id
    }

    /// Returns the uids and gids that are served.
    #[inline]
    #[must_use]
    pub fn ids(&self) -> ServedIds {
        self.ids
    }

    /// Returns whether users with that primary gid are served.
    #[inline]
    #[must_use]
    pub fn has_primary(&self, gid: u32) -> bool {
        self.ids.has(gid) || self.floor.lists(gid)
    }

    /// Returns the effect of the floor on an entry, as flags of its text: 0 without a floor.
    #[inline]
    pub(crate) fn flags(&self, is_served: impl FnOnce(&Self) -> bool) -> u16 {
        match self.has_floor() {
            false => 0,
            true if is_served(self) => HIDES_PASSWORD,
            true => HIDES_PASSWORD | REFUSED,
        }
    }

    /// Returns whether a floor is set, so that each password reads `*`.
    #[inline]
    #[must_use]
    pub fn has_floor(&self) -> bool {
        self.ids.reserved != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    fn gids(floor: &Floor) -> Vec<u32> {
        floor.gids().collect()
    }

    #[test]
    fn floor_file_read_back() {
        let floor = Floor::parse(b"min_id 500\ngid 100\ngid 20\n").unwrap();
        assert_eq!((floor.min_id(), gids(&floor)), (500, [100, 20].into()));
        assert_eq!(floor, Floor::new(500, [100, 20]).unwrap());
        assert_eq!(floor.to_string(), "min_id 500\ngid 100\ngid 20\n");
        assert!(floor.lists(100) && floor.lists(20) && !floor.lists(0) && !floor.lists(21));
        assert_eq!(Floor::parse(b"min_id 1000\n"), Some(Floor::default()));
        let largest = Floor::parse(b"min_id 4294967294\n").unwrap();
        assert_eq!((largest.min_id(), gids(&largest)), (u32::MAX - 1, [].into()));
    }

    #[test]
    fn floor_file_with_anything_else_rejected() {
        for text in [
            "",
            "\n",
            "min_id",
            "min_id \n",
            "min_id 1000",
            "min_id 1000\n\n",
            "min_id 1000 \n",
            "min_id  1000\n",
            " min_id 1000\n",
            "min_id\t1000\n",
            "min_id 1000\r\n",
            "min_id 1000\0\n",
            "min_id 01000\n",
            "min_id 0\n",
            "min_id -1\n",
            "min_id +1\n",
            "min_id 4294967295\n",
            "min_id 4294967296\n",
            "min_id 42949672950\n",
            "min_id 0x10\n",
            "min_id ten\n",
            "MIN_ID 1000\n",
            "gid 100\n",
            "gid 100\nmin_id 1000\n",
            "min_id 1000\nmin_id 1000\n",
            "min_id 1000\ngid 0\n",
            "min_id 1000\ngid 4294967295\n",
            "min_id 1000\ngid 100\n# end\n",
            "# start\nmin_id 1000\n",
        ] {
            assert_eq!(Floor::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn floor_has_bounded_list() {
        let most: Vec<u32> = (1..=GIDS_MAX as u32).collect();
        let floor = Floor::new(1, most.iter().copied()).unwrap();
        assert_eq!(gids(&floor), most);
        assert_eq!(Floor::parse(floor.to_string().as_bytes()), Some(floor));
        let more = most.iter().copied().chain([99]);
        assert_eq!(Floor::new(1, more), None);
        let text = floor.to_string() + "gid 99\n";
        assert_eq!(Floor::parse(text.as_bytes()), None);
        assert_eq!((Floor::new(0, []), Floor::new(1, [0])), (None, None));
        assert_eq!((Floor::new(u32::MAX, []), Floor::new(1, [u32::MAX])), (None, None));
    }

    #[test]
    fn floor_longest_file_fits() {
        let floor = Floor::new(u32::MAX - 1, [u32::MAX - 1; GIDS_MAX]).unwrap();
        assert!(floor.to_string().len() <= FILE_BYTES_MAX);
    }

    #[test]
    fn served_ids_are_above_floor_and_unreserved() {
        for (min_id, served, refused) in [
            (1000, &[1000, 65_533, 65_536, u32::MAX - 1][..], &[0, 1, 999, 65_534, 65_535][..]),
            (1, &[1, 27, 42, 100], &[0, 65_534, 65_535]),
            (65_534, &[65_536], &[0, 1000, 65_533, 65_534, 65_535]),
            (70_000, &[70_000], &[0, 69_999, 65_534, 65_535]),
            (u32::MAX - 1, &[u32::MAX - 1], &[0, u32::MAX - 2]),
        ] {
            let ids = Floor::new(min_id, []).unwrap().ids();
            assert!(served.iter().all(|&id| ids.has(id)), "{min_id}");
            assert!(refused.iter().chain(&[u32::MAX]).all(|&id| !ids.has(id)), "{min_id}");
            assert!(ids.has_all(served) && ids.has_all(&[]));
            assert!(!ids.has_all(&[served, &[u32::MAX], served].concat()));
        }
        for id in [0, 1, 65_534, 65_535, u32::MAX] {
            assert!(ServedIds::ALL.has(id) && ServedIds::ALL.has_all(&[id]));
        }
    }
}
