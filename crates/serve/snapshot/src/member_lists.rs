// SPDX-License-Identifier: MIT OR Apache-2.0
//! Member lists and group lists. The file has numbers; the results are names and gids. `strings` has the other fields
//! of a group.

use crate::floor::ServedIds;
use crate::layout::{COPY_SLACK, LONG_NAME, LongName, NameSlot, SHORT_NAME_BYTES};
use crate::{Damage, hash};
use core::mem::MaybeUninit;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

const CACHE_LINE_BYTES: usize = 64;

/// A section of numbers, with two bytes each if that suffices for all, or else four.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PackedIds<'a> {
    Narrow(&'a [U16]),
    Wide(&'a [U32]),
}

impl<'a> PackedIds<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Narrow(ids) => ids.len(),
            Self::Wide(ids) => ids.len(),
        }
    }

    #[inline]
    pub(crate) fn range(self, first: u64, count: u32) -> Result<Self, Damage> {
        fn cut<T>(ids: &[T], first: u64, count: u32) -> Result<&[T], Damage> {
            let first = usize::try_from(first).map_err(|_| Damage)?;
            ids.get(first..).and_then(|rest| rest.get(..count as usize)).ok_or(Damage)
        }
        Ok(match self {
            Self::Narrow(ids) => Self::Narrow(cut(ids, first, count)?),
            Self::Wide(ids) => Self::Wide(cut(ids, first, count)?),
        })
    }

    fn iter(self) -> impl Iterator<Item = usize> + 'a {
        let (narrow, wide): (&[U16], &[U32]) = match self {
            Self::Narrow(ids) => (ids, &[]),
            Self::Wide(ids) => (&[], ids),
        };
        let narrow = narrow.iter().map(|id| usize::from(id.get()));
        narrow.chain(wide.iter().map(|id| id.get() as usize))
    }
}

/// The members of a group.
///
/// ```
/// use roster_snapshot::Snapshot;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let members = Snapshot::open(bytes)?.group_by_name(b"staff")?.unwrap().members;
/// members.verify()?;
/// let names: Vec<&[u8]> = members.iter().collect::<Result<_, _>>()?;
/// assert_eq!(names, [&b"alice"[..], b"bob", b"fifteen-letters", b"alice"]);
/// assert_eq!(members.bytes(), b"alice\0bob\0fifteen-letters\0alice\0".len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    pub(crate) ids: PackedIds<'a>,
    pub(crate) names: &'a [NameSlot],
    pub(crate) long_text: &'a [u8],
    pub(crate) bytes: u32,
    pub(crate) sum: u64,
}

impl<'a> Members<'a> {
    /// Returns the number of members.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the name slot number of the first member. Groups with nearby first members usually have members in
    /// common.
    #[must_use]
    pub fn first_number(&self) -> Option<usize> {
        self.ids.iter().next()
    }

    /// Returns the bytes of all names, each with its NUL.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Copies the names in sequence, each with a NUL, to the start of `out`. Sets each of `places` to the result of
    /// `at` for the rest of `out` that begins with the name.
    ///
    /// `out` must have [`Members::bytes`] and [`COPY_SLACK`] more bytes, because names are copied 16 bytes at a time.
    /// `places` must have [`Members::len`] elements. After an error the checksum is wrong, and the output must not be
    /// used.
    #[inline]
    pub fn copy<P>(
        &self,
        out: &mut [MaybeUninit<u8>],
        places: &mut [P],
        at: impl Fn(&mut [MaybeUninit<u8>]) -> P,
    ) -> Result<(), Damage> {
        let room = self.bytes().checked_add(COPY_SLACK).ok_or(Damage)?;
        let out = out.get_mut(..room).ok_or(Damage)?;
        if places.len() != self.len() {
            return Err(Damage);
        }
        let gathered = match self.ids {
            PackedIds::Narrow(ids) => gather_short(ids, self.names, out, places, &at),
            PackedIds::Wide(ids) => gather_short(ids, self.names, out, places, &at),
        };
        match gathered {
            Some((bytes, sum)) if bytes == self.bytes() && hash::agrees(self.sum, sum) => Ok(()),
            Some(_) => Err(Damage),
            None => self.copy_any(out, places, at),
        }
    }

    /// [`Members::copy`] for lists with names of any length.
    #[cold]
    fn copy_any<P>(
        &self,
        out: &mut [MaybeUninit<u8>],
        places: &mut [P],
        at: impl Fn(&mut [MaybeUninit<u8>]) -> P,
    ) -> Result<(), Damage> {
        let room = out.len();
        let mut rest = out;
        let mut sum = hash::NameSum::default();
        for (id, place) in self.ids.iter().zip(places) {
            let slot = self.names.get(id).ok_or(Damage)?;
            sum.add(u128::from_le_bytes(slot.0));
            *place = at(rest);
            let name = name(slot, self.long_text)?;
            let (copy, behind) = rest.split_at_mut_checked(name.len()).ok_or(Damage)?;
            for (to, from) in copy.iter_mut().zip(name) {
                to.write(*from);
            }
            let (end, behind) = behind.split_first_mut().ok_or(Damage)?;
            end.write(0);
            rest = behind;
        }
        let bytes = room.wrapping_sub(rest.len());
        let agrees = bytes == self.bytes() && hash::agrees(self.sum, sum.finish());
        if agrees { Ok(()) } else { Err(Damage) }
    }

    /// Returns the names. It does not check the checksum of the list, see [`Members::verify`].
    pub fn iter(self) -> impl Iterator<Item = Result<&'a [u8], Damage>> {
        self.ids.iter().map(move |id| name(self.names.get(id).ok_or(Damage)?, self.long_text))
    }

    /// Checks the checksum and length of the list without a copy.
    pub fn verify(&self) -> Result<(), Damage> {
        let mut sum = hash::NameSum::default();
        let mut bytes = 0_usize;
        for id in self.ids.iter() {
            let slot = self.names.get(id).ok_or(Damage)?;
            sum.add(u128::from_le_bytes(slot.0));
            bytes = bytes.saturating_add(name_len(slot)?).saturating_add(1);
            // Before the name is read, so that the work is bounded by the declared length.
            if bytes > self.bytes() {
                return Err(Damage);
            }
            name(slot, self.long_text)?;
        }
        let agrees = hash::agrees(self.sum, sum.finish());
        if bytes == self.bytes() && agrees { Ok(()) } else { Err(Damage) }
    }
}

/// Copies short names at about a nanosecond per member. Returns the bytes written and the checksum. Returns `None` for
/// a long name, a number out of range, or insufficient space.
#[inline(never)] // keeps all variables in registers
fn gather_short<T: PackedNumber, P>(
    ids: &[T],
    names: &[NameSlot],
    out: &mut [MaybeUninit<u8>],
    places: &mut [P],
    at: impl Fn(&mut [MaybeUninit<u8>]) -> P,
) -> Option<(usize, u64)> {
    fetch(ids, names.len())?;
    let room = out.len();
    let mut rest = out;
    let mut sum = hash::NameSum::default();
    for (id, place) in ids.iter().zip(places) {
        // One number instead of 16 bytes: compilers split arrays, and each slot is read only once.
        let slot = u128::from_le_bytes(names.get(id.number())?.0);
        *place = at(rest);
        let copy = rest.first_chunk_mut::<16>()?;
        *copy = slot.to_le_bytes().map(MaybeUninit::new);
        sum.add(slot);
        let missing = (slot >> 120) as usize;
        if missing > SHORT_NAME_BYTES {
            return None;
        }
        rest = rest.get_mut(COPY_SLACK.wrapping_sub(missing)..)?;
    }
    Some((room.wrapping_sub(rest.len()), sum.finish()))
}

/// Reads one number from each cache line of a list before the list is used. With so little work per line, the processor
/// requests all lines at once; a loop with more work would wait for each of them. Returns `None` if a number is not
/// below `limit`.
#[inline]
fn fetch<T: PackedNumber>(ids: &[T], limit: usize) -> Option<()> {
    let lines = ids.chunks(const { CACHE_LINE_BYTES / size_of::<T>() });
    let firsts = lines.filter_map(<[T]>::first);
    firsts.fold(true, |below, id| below & (id.number() < limit)).then_some(())
}

/// A number of either width.
trait PackedNumber: Copy {
    fn number(self) -> usize;
}

impl PackedNumber for U16 {
    #[inline]
    fn number(self) -> usize {
        self.get().into()
    }
}

impl PackedNumber for U32 {
    #[inline]
    fn number(self) -> usize {
        self.get() as usize
    }
}

/// The groups of a name, as gids.
///
/// ```
/// use roster_snapshot::Snapshot;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let groups = Snapshot::open(bytes)?.supplementary(b"bob")?.unwrap();
/// let mut gids = Vec::new();
/// groups.each(|gid| gids.push(gid))?;
/// assert_eq!(gids, [10, 101, u32::MAX, 77]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Gids<'a> {
    pub(crate) ids: PackedIds<'a>,
    pub(crate) gids: &'a [U32],
    pub(crate) sum: u64,
    pub(crate) served: ServedIds,
}

impl Gids<'_> {
    /// Returns the gids that are served. Callers must omit others from the result of [`Gids::copy`].
    #[inline]
    #[must_use]
    pub fn served(&self) -> ServedIds {
        self.served
    }

    /// Returns the number of groups, including refused ones.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there are no groups.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the gids to `out`, which must have [`Gids::len`] elements. After an error the checksum is wrong, and the
    /// gids must not be used.
    #[inline]
    pub fn copy(&self, out: &mut [MaybeUninit<u32>]) -> Result<(), Damage> {
        if out.len() != self.len() {
            return Err(Damage);
        }
        let write = |place: &mut MaybeUninit<u32>, gid| {
            place.write(gid);
        };
        let sum = match self.ids {
            PackedIds::Narrow(ids) => gather_gids(ids, self.gids, out, write),
            PackedIds::Wide(ids) => gather_gids(ids, self.gids, out, write),
        };
        self.compare(sum)
    }

    /// Calls `take` with each gid that is served. After an error the checksum is wrong, and the gids must not be used.
    pub fn each(&self, mut take: impl FnMut(u32)) -> Result<(), Damage> {
        let (nowhere, take) = (core::iter::repeat(()), |(), gid| {
            if self.served.has(gid) {
                take(gid);
            }
        });
        let sum = match self.ids {
            PackedIds::Narrow(ids) => gather_gids(ids, self.gids, nowhere, take),
            PackedIds::Wide(ids) => gather_gids(ids, self.gids, nowhere, take),
        };
        self.compare(sum)
    }

    fn compare(&self, sum: Option<u64>) -> Result<(), Damage> {
        sum.filter(|&sum| hash::agrees(self.sum, sum)).map(drop).ok_or(Damage)
    }
}

/// Calls `take` with each gid and its place. Returns the checksum, or `None` if a number is out of range.
#[inline(never)]
fn gather_gids<T: PackedNumber, P>(
    ids: &[T],
    gids: &[U32],
    places: impl IntoIterator<Item = P>,
    mut take: impl FnMut(P, u32),
) -> Option<u64> {
    fetch(ids, gids.len())?;
    let mut sum = hash::GidSum::default();
    for (id, place) in ids.iter().zip(places) {
        let gid = gids.get(id.number())?.get();
        sum.add(gid);
        take(place, gid);
    }
    Some(sum.finish())
}

/// Returns the name in a slot, or in the long text to which the slot refers.
pub(crate) fn name<'a>(slot: &'a NameSlot, long_text: &'a [u8]) -> Result<&'a [u8], Damage> {
    let [.., missing] = slot.0;
    if missing == LONG_NAME {
        return long_name(slot, long_text);
    }
    slot.0.get(..name_len(slot)?).ok_or(Damage)
}

fn name_len(slot: &NameSlot) -> Result<usize, Damage> {
    let [.., missing] = slot.0;
    if missing == LONG_NAME {
        let long = LongName::read_from_bytes(&slot.0).map_err(|_| Damage)?;
        return Ok(long.len());
    }
    SHORT_NAME_BYTES.checked_sub(missing.into()).ok_or(Damage)
}

#[cold]
fn long_name<'a>(slot: &NameSlot, long_text: &'a [u8]) -> Result<&'a [u8], Damage> {
    let long = LongName::read_from_bytes(&slot.0).map_err(|_| Damage)?;
    let len = long.len();
    let start = usize::try_from(long.offset.get()).map_err(|_| Damage)?;
    let name = long_text.get(start..).and_then(|rest| rest.get(..len)).ok_or(Damage)?;
    let agrees = hash::agrees(long.hash.get(), hash::plain(name) as u32);
    if agrees { Ok(name) } else { Err(Damage) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    fn slot(name: &[u8]) -> NameSlot {
        let mut slot = [0; 16];
        slot[..name.len()].copy_from_slice(name);
        slot[15] = (SHORT_NAME_BYTES - name.len()) as u8;
        NameSlot(slot)
    }

    fn long_slot(offset: u64, name: &[u8]) -> NameSlot {
        let [a, b, c, _] = (name.len() as u32).to_le_bytes();
        let hash = U32::new(hash::plain(name) as u32);
        let long = LongName { offset: offset.into(), len: [a, b, c], hash, tag: LONG_NAME };
        NameSlot(long.as_bytes().try_into().unwrap())
    }

    const LONG_TEXT: &[u8] = b"other text, a name of more than 15 bytes";

    fn long_name_slot() -> NameSlot {
        long_slot(12, &LONG_TEXT[12..])
    }

    /// Returns a list with the correct checksum of its slots and a declared length of `bytes`.
    fn listed<'a>(ids: PackedIds<'a>, names: &'a [NameSlot], bytes: usize) -> Members<'a> {
        let mut sum = hash::NameSum::default();
        for slot in ids.iter().filter_map(|id| names.get(id)) {
            sum.add(u128::from_le_bytes(slot.0));
        }
        Members { ids, names, long_text: LONG_TEXT, bytes: bytes as u32, sum: sum.finish() }
    }

    /// Copies into exactly the required space. Returns the start of each name.
    fn starts(members: &Members<'_>) -> Result<Vec<usize>, Damage> {
        let room = members.bytes() + COPY_SLACK;
        let mut places = vec![usize::MAX; members.len()];
        let mut out = vec![MaybeUninit::new(0); room];
        members.copy(&mut out, &mut places, |rest| room - rest.len())?;
        Ok(places)
    }

    #[track_caller]
    fn assert_damage(members: &Members<'_>) {
        assert_eq!(starts(members), Err(Damage));
        assert_eq!(members.verify(), Err(Damage));
    }

    fn narrow(ids: impl IntoIterator<Item = u16>) -> Vec<U16> {
        ids.into_iter().map(U16::new).collect()
    }

    fn wide(ids: &[U16]) -> Vec<U32> {
        ids.iter().map(|id| U32::new(id.get().into())).collect()
    }

    #[test]
    fn ids_range_within_section_only() {
        let short = narrow([5, 6, 7]);
        let long = wide(&short);
        for ids in [PackedIds::Narrow(&short), PackedIds::Wide(&long)] {
            assert_eq!((ids.len(), ids.iter().collect()), (3, vec![5, 6, 7]));
            let range = |first, count| {
                ids.range(first, count).map(|ids| (ids.len(), ids.iter().collect::<Vec<_>>()))
            };
            assert_eq!(range(1, 2), Ok((2, vec![6, 7])));
            assert_eq!(range(0, 3), Ok((3, vec![5, 6, 7])));
            assert_eq!(range(3, 0), Ok((0, vec![])));
            for (first, count) in [(0, 4), (1, 3), (3, 1), (4, 0), (u64::MAX, 1), (0, u32::MAX)] {
                assert_eq!(range(first, count), Err(Damage), "{first}, {count}");
            }
        }
    }

    /// 100 numbers fill several cache lines of either width.
    #[test]
    fn members_of_short_names_copied() {
        let names = [slot(b"zoe"), slot(b"alice"), slot(b"fifteen-letters"), slot(b"bob")];
        let short = narrow((0..100).map(|at| 3 - at % 4));
        let long = wide(&short);
        let bytes = 25 * (4 + 6 + 16 + 4);
        for ids in [PackedIds::Narrow(&short), PackedIds::Wide(&long)] {
            let members = listed(ids, &names, bytes);
            assert_eq!((members.len(), members.bytes()), (100, bytes));
            assert_eq!((members.is_empty(), members.first_number()), (false, Some(3)));
            let found = starts(&members).unwrap();
            assert_eq!(found[..6], [0, 4, 20, 26, 30, 34]);
            assert_eq!(found.last(), Some(&(bytes - 4)));
            assert_eq!(members.verify(), Ok(()));
            let read: Vec<_> = members.iter().take(4).map(Result::unwrap).collect();
            assert_eq!(read, [&b"bob"[..], b"fifteen-letters", b"alice", b"zoe"]);
        }
    }

    #[test]
    fn members_with_long_name_copied() {
        let names = [slot(b"bob"), long_name_slot()];
        let ids = narrow([0, 1, 0]);
        let members = listed(PackedIds::Narrow(&ids), &names, 4 + 29 + 4);
        assert_eq!(starts(&members), Ok(vec![0, 4, 33]));
        assert_eq!(members.verify(), Ok(()));
        let read: Vec<_> = members.iter().map(Result::unwrap).collect();
        assert_eq!(read, [&b"bob"[..], b"a name of more than 15 bytes", b"bob"]);
    }

    #[test]
    fn members_none_is_empty_list() {
        let members = listed(PackedIds::Narrow(&[]), &[], 0);
        assert_eq!((members.len(), members.is_empty(), members.first_number()), (0, true, None));
        assert_eq!((starts(&members), members.verify()), (Ok(vec![]), Ok(())));
    }

    #[test]
    fn members_copied_into_wrong_room_are_damage() {
        let names = [slot(b"bob"), long_name_slot()];
        let ids = narrow([0, 0]);
        for names in [&names[..1], &[names[1], names[0]]] {
            let bytes = 2 * (name(&names[0], LONG_TEXT).unwrap().len() + 1);
            let members = listed(PackedIds::Narrow(&ids), names, bytes);
            let copy = |room: usize, places: usize| {
                let (mut out, mut places) = (vec![MaybeUninit::new(0); room], vec![0; places]);
                members.copy(&mut out, &mut places, |rest| rest.len())
            };
            let room = bytes + COPY_SLACK;
            assert_eq!(copy(room, 2), Ok(()));
            assert_eq!(copy(room + 1, 2), Ok(()));
            for (room, places) in [(room - 1, 2), (room, 1), (room, 3), (room, 0), (0, 2)] {
                assert_eq!(copy(room, places), Err(Damage), "{room} bytes, {places} places");
            }
        }
    }

    #[test]
    fn members_other_than_sum_or_bytes_are_damage() {
        let names = [slot(b"bob"), slot(b"alice"), long_name_slot()];
        for (ids, bytes) in [(narrow([0, 1, 0]), 14), (narrow([0, 2, 1]), 39)] {
            let right = listed(PackedIds::Narrow(&ids), &names, bytes);
            assert!(starts(&right).is_ok() && right.verify().is_ok());
            assert_damage(&Members { sum: right.sum ^ 1, ..right });
            for bytes in [0, right.bytes - 1, right.bytes + 1, right.bytes + 100] {
                assert_damage(&Members { bytes, ..right });
            }
        }
    }

    #[test]
    fn members_numbered_out_of_range_are_damage() {
        let names = [slot(b"bob"), slot(b"zoe")];
        for place in [0, 1, 31, 32, 99] {
            for number in [2, u16::MAX] {
                let mut short = narrow([0; 100]);
                short[place] = U16::new(number);
                let long = wide(&short);
                for ids in [PackedIds::Narrow(&short), PackedIds::Wide(&long)] {
                    assert_damage(&listed(ids, &names, 99 * 4));
                    assert_damage(&listed(ids, &names, 100 * 4));
                    let members = listed(ids, &names, 99 * 4);
                    assert_eq!(members.iter().nth(place), Some(Err(Damage)));
                }
            }
        }
    }

    /// The last byte of a slot is 0 to 15, or 255. The checksum of the list is correct here.
    #[test]
    fn name_slot_of_bad_length_is_damage() {
        for missing in [16, 17, 31, 128, 254] {
            let mut bad = slot(b"bob");
            bad.0[15] = missing;
            assert_eq!(name(&bad, LONG_TEXT), Err(Damage));
            let names = [slot(b"zoe"), bad];
            for ids in [narrow([1]), narrow([0, 1]), narrow([1, 0]), narrow([0, 1, 0])] {
                for bytes in 0..20 {
                    assert_damage(&listed(PackedIds::Narrow(&ids), &names, bytes));
                }
            }
        }
    }

    #[test]
    fn name_of_each_length_read_back() {
        for len in 0..=SHORT_NAME_BYTES {
            let text = &b"fifteen-letters"[..len];
            assert_eq!(name(&slot(text), &[]), Ok(text));
        }
        let long = &LONG_TEXT[12..];
        assert_eq!(name(&long_name_slot(), LONG_TEXT), Ok(long));
        // Outside the long text, too long for it, and another text of that length.
        assert_eq!(name(&long_slot(41, b""), LONG_TEXT), Err(Damage));
        assert_eq!(name(&long_slot(u64::MAX, long), LONG_TEXT), Err(Damage));
        assert_eq!(name(&long_slot(13, long), LONG_TEXT), Err(Damage));
        assert_eq!(name(&long_slot(11, long), LONG_TEXT), Err(Damage));
    }

    #[test]
    fn members_with_damaged_long_name_are_damage() {
        let ids = narrow([0, 1]);
        for bad in [long_slot(11, &LONG_TEXT[12..]), long_slot(100, &LONG_TEXT[12..])] {
            assert_damage(&listed(PackedIds::Narrow(&ids), &[slot(b"bob"), bad], 4 + 29));
        }
    }

    #[test]
    fn gids_copied_and_given_in_order() {
        let gids: Vec<_> = [100, 4_000_000_000, 7].map(U32::new).into();
        let short = narrow((0..100).map(|at| 2 - at % 3));
        let long = wide(&short);
        let expected: Vec<u32> = short.iter().map(|id| gids[usize::from(id.get())].get()).collect();
        let mut sum = hash::GidSum::default();
        expected.iter().for_each(|&gid| sum.add(gid));
        for ids in [PackedIds::Narrow(&short), PackedIds::Wide(&long)] {
            let list = Gids { ids, gids: &gids, sum: sum.finish(), served: ServedIds::ALL };
            assert_eq!((list.len(), list.is_empty()), (100, false));
            let mut given = Vec::new();
            assert_eq!(list.each(|gid| given.push(gid)), Ok(()));
            assert_eq!(given, expected);
            let copy = |list: Gids<'_>, len| list.copy(&mut vec![MaybeUninit::new(0); len]);
            assert_eq!(copy(list, 100), Ok(()));
            for len in [0, 99, 101] {
                assert_eq!(copy(list, len), Err(Damage), "{len}");
            }
            let wrong = Gids { sum: list.sum ^ 1, ..list };
            assert_eq!((copy(wrong, 100), wrong.each(|_| {})), (Err(Damage), Err(Damage)));
            let fewer = Gids { gids: &gids[..2], ..list };
            assert_eq!((copy(fewer, 100), fewer.each(|_| {})), (Err(Damage), Err(Damage)));
        }
        let (ids, sum) = (PackedIds::Narrow(&[]), hash::GidSum::default().finish());
        let none = Gids { ids, gids: &[], sum, served: ServedIds::ALL };
        assert_eq!((none.len(), none.is_empty(), none.each(|_| {})), (0, true, Ok(())));
    }
}
