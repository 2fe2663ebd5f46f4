//! Member lists and group lists: numbers in the file, names and gids in the answer.

use crate::layout::{COPY_SLACK, LONG_NAME, LongName, NameSlot, SHORT_NAME_BYTES};
use crate::{Damage, hash};
use core::mem::MaybeUninit;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

const CACHE_LINE_BYTES: usize = 64;

/// A section of numbers, two bytes each where that is enough for all, else four.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ids<'a> {
    Narrow(&'a [U16]),
    Wide(&'a [U32]),
}

impl<'a> Ids<'a> {
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
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    pub(crate) ids: Ids<'a>,
    pub(crate) names: &'a [NameSlot],
    pub(crate) long_text: &'a [u8],
    pub(crate) bytes: u32,
    pub(crate) sum: u64,
}

impl<'a> Members<'a> {
    /// How many there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of the name slot of the first member: groups whose first members have numbers near
    /// each other have members in common, as a rule.
    #[must_use]
    pub fn first_number(&self) -> Option<usize> {
        self.ids.iter().next()
    }

    /// Bytes of all names, each with its NUL.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Copies the names one after the other, each with a NUL behind it, to the start of `out`, and
    /// sets each of `places` to what `at` makes of the rest of `out` that the name begins. `out` must hold [`Members::bytes`]
    /// and [`COPY_SLACK`] bytes more, for names are copied 16 bytes at a time; `places` must be
    /// [`Members::len`] long. What was written is to be used only when the checksum agreed, that is
    /// after `Ok`.
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
            Ids::Narrow(ids) => gather_short(ids, self.names, out, places, &at),
            Ids::Wide(ids) => gather_short(ids, self.names, out, places, &at),
        };
        match gathered {
            Some((bytes, sum)) if bytes == self.bytes() && hash::agrees(self.sum, sum) => Ok(()),
            Some(_) => Err(Damage),
            None => self.copy_any(out, places, at),
        }
    }

    /// The same for lists with names of any length.
    #[cold]
    fn copy_any<P>(
        &self,
        out: &mut [MaybeUninit<u8>],
        places: &mut [P],
        at: impl Fn(&mut [MaybeUninit<u8>]) -> P,
    ) -> Result<(), Damage> {
        self.verify()?;
        let mut rest = out;
        for (name, place) in self.iter().zip(places) {
            let name = name?;
            *place = at(rest);
            let (copy, behind) = rest.split_at_mut_checked(name.len()).ok_or(Damage)?;
            for (to, from) in copy.iter_mut().zip(name) {
                to.write(*from);
            }
            let (end, behind) = behind.split_first_mut().ok_or(Damage)?;
            end.write(0);
            rest = behind;
        }
        Ok(())
    }

    /// The names one by one. The list's checksum is not looked at, see [`Members::verify`].
    pub fn iter(self) -> impl Iterator<Item = Result<&'a [u8], Damage>> {
        self.ids.iter().map(move |id| name(self.names.get(id).ok_or(Damage)?, self.long_text))
    }

    /// Checks the list's checksum and length without copying.
    pub fn verify(&self) -> Result<(), Damage> {
        let mut sum = hash::NameSum::default();
        let mut bytes = 0_usize;
        for id in self.ids.iter() {
            let slot = self.names.get(id).ok_or(Damage)?;
            sum.add(u128::from_le_bytes(slot.0));
            bytes = bytes.saturating_add(name_len(slot)?).saturating_add(1);
            // Before the name is looked at, so that the work is bounded by what is to be copied.
            if bytes > self.bytes() {
                return Err(Damage);
            }
            name(slot, self.long_text)?;
        }
        let agrees = hash::agrees(self.sum, sum.finish());
        if bytes == self.bytes() && agrees { Ok(()) } else { Err(Damage) }
    }
}

/// The hot loop: about a nanosecond a member. Gives the bytes written and the checksum; nothing
/// when a name is not short, a number is out of range, or the room ends.
#[inline(never)] // alone it has registers enough
fn gather_short<T: Number, P>(
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
        // One number rather than 16 bytes: compilers take bytes apart, and this is read once.
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

/// Looks at one number of each cache line of a list, before the list is used: so little work that
/// the processor asks for all the lines at once, which a loop with more work an entry waits for one
/// by one. `None` when one is not below `limit`.
#[inline]
fn fetch<T: Number>(ids: &[T], limit: usize) -> Option<()> {
    let lines = ids.chunks(const { CACHE_LINE_BYTES / size_of::<T>() });
    let firsts = lines.filter_map(<[T]>::first);
    firsts.fold(true, |below, id| below & (id.number() < limit)).then_some(())
}

/// A number in either width.
trait Number: Copy {
    fn number(self) -> usize;
}

impl Number for U16 {
    #[inline]
    fn number(self) -> usize {
        self.get().into()
    }
}

impl Number for U32 {
    #[inline]
    fn number(self) -> usize {
        self.get() as usize
    }
}

/// The groups of a name, as gids.
#[derive(Clone, Copy, Debug)]
pub struct Gids<'a> {
    pub(crate) ids: Ids<'a>,
    pub(crate) gids: &'a [U32],
    pub(crate) sum: u64,
}

impl Gids<'_> {
    /// How many there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the gids to `out`, which must be [`Gids::len`] long. They are to be used only when
    /// the checksum agreed, that is after `Ok`.
    #[inline]
    pub fn copy(&self, out: &mut [MaybeUninit<u32>]) -> Result<(), Damage> {
        if out.len() != self.len() {
            return Err(Damage);
        }
        let write = |place: &mut MaybeUninit<u32>, gid| {
            place.write(gid);
        };
        let sum = match self.ids {
            Ids::Narrow(ids) => gather_gids(ids, self.gids, out, write),
            Ids::Wide(ids) => gather_gids(ids, self.gids, out, write),
        };
        self.compare(sum)
    }

    /// Gives each gid to `take`. They are to be used only when the checksum agreed, that is after
    /// `Ok`.
    pub fn each(&self, mut take: impl FnMut(u32)) -> Result<(), Damage> {
        let (nowhere, take) = (core::iter::repeat(()), |(), gid| take(gid));
        let sum = match self.ids {
            Ids::Narrow(ids) => gather_gids(ids, self.gids, nowhere, take),
            Ids::Wide(ids) => gather_gids(ids, self.gids, nowhere, take),
        };
        self.compare(sum)
    }

    fn compare(&self, sum: Option<u64>) -> Result<(), Damage> {
        sum.filter(|&sum| hash::agrees(self.sum, sum)).map(drop).ok_or(Damage)
    }
}

/// Gives each gid with its place to `take`, and the checksum over them; nothing when a number is
/// out of range.
#[inline(never)]
fn gather_gids<T: Number, P>(
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

/// The name in a slot, or in the long text that it points to.
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
