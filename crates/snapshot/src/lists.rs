//! Member lists and group lists: numbers in the file, names and gids in the answer.

use crate::layout::{COPY_SLACK, LONG_NAME, LongName, NameSlot, SHORT_NAME_BYTES};
use crate::{Damage, hash};
use core::mem::MaybeUninit;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

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

    /// Bytes of all names, each with its NUL.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Copies the names one after the other, each with a NUL behind it, to the start of `out`, and
    /// tells `starts` where each one begins. `out` must hold [`Members::bytes`] and
    /// [`COPY_SLACK`] bytes more, for names are copied 16 bytes at a time. What was written is to
    /// be used only when the checksum agreed, that is after `Ok`.
    #[inline]
    pub fn copy(
        &self,
        out: &mut [MaybeUninit<u8>],
        starts: impl FnMut(usize),
    ) -> Result<(), Damage> {
        let room = self.bytes().checked_add(COPY_SLACK).ok_or(Damage)?;
        let out = out.get_mut(..room).ok_or(Damage)?;
        match self.ids {
            Ids::Narrow(ids) => self.gather(ids, |id| id.get().into(), out, starts),
            Ids::Wide(ids) => self.gather(ids, |id| id.get() as usize, out, starts),
        }
    }

    #[inline]
    fn gather<T>(
        &self,
        ids: &[T],
        number: impl Fn(&T) -> usize,
        out: &mut [MaybeUninit<u8>],
        mut starts: impl FnMut(usize),
    ) -> Result<(), Damage> {
        let mut sum = hash::NameSum::default();
        let mut start = 0_usize;
        for id in ids {
            let slot = self.names.get(number(id)).ok_or(Damage)?;
            let place = out.get_mut(start..).ok_or(Damage)?;
            let (place, _) = place.split_first_chunk_mut::<16>().ok_or(Damage)?;
            *place = slot.0.map(MaybeUninit::new);
            starts(start);
            sum.add(slot);
            let [.., tail] = slot.0;
            let len = if usize::from(tail) <= SHORT_NAME_BYTES {
                SHORT_NAME_BYTES.wrapping_sub(tail.into())
            } else {
                self.copy_long(slot, out, start)?
            };
            start = start.wrapping_add(len).wrapping_add(1);
        }
        if start == self.bytes() && sum.finish() == self.sum { Ok(()) } else { Err(Damage) }
    }

    #[cold]
    fn copy_long(
        &self,
        slot: &NameSlot,
        out: &mut [MaybeUninit<u8>],
        start: usize,
    ) -> Result<usize, Damage> {
        let name = name(slot, self.long_text)?;
        let mut place = out.get_mut(start..).ok_or(Damage)?.iter_mut();
        for &byte in name.iter().chain(&[0]) {
            place.next().ok_or(Damage)?.write(byte);
        }
        Ok(name.len())
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
            sum.add(slot);
            bytes = bytes.saturating_add(name(slot, self.long_text)?.len()).saturating_add(1);
        }
        if bytes == self.bytes() && sum.finish() == self.sum { Ok(()) } else { Err(Damage) }
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

    /// Gives each gid to `take`. They are to be used only when the checksum agreed, that is after
    /// `Ok`.
    #[inline]
    pub fn each(&self, take: impl FnMut(u32)) -> Result<(), Damage> {
        match self.ids {
            Ids::Narrow(ids) => self.gather(ids, |id| id.get().into(), take),
            Ids::Wide(ids) => self.gather(ids, |id| id.get() as usize, take),
        }
    }

    #[inline]
    fn gather<T>(
        &self,
        ids: &[T],
        number: impl Fn(&T) -> usize,
        mut take: impl FnMut(u32),
    ) -> Result<(), Damage> {
        let mut sum = hash::GidSum::default();
        for id in ids {
            let gid = self.gids.get(number(id)).ok_or(Damage)?.get();
            sum.add(gid);
            take(gid);
        }
        if sum.finish() == self.sum { Ok(()) } else { Err(Damage) }
    }
}

/// The name in a slot, or in the long text that it points to.
pub(crate) fn name<'a>(slot: &'a NameSlot, long_text: &'a [u8]) -> Result<&'a [u8], Damage> {
    let [.., tail] = slot.0;
    if tail == LONG_NAME {
        return long_name(slot, long_text);
    }
    let len = SHORT_NAME_BYTES.checked_sub(tail.into()).ok_or(Damage)?;
    slot.0.get(..len).ok_or(Damage)
}

#[cold]
fn long_name<'a>(slot: &NameSlot, long_text: &'a [u8]) -> Result<&'a [u8], Damage> {
    let long = LongName::read_from_bytes(&slot.0).map_err(|_| Damage)?;
    let [a, b, c] = long.len;
    let len = u32::from_le_bytes([a, b, c, 0]) as usize;
    let start = usize::try_from(long.offset.get()).map_err(|_| Damage)?;
    let name = long_text.get(start..).and_then(|rest| rest.get(..len)).ok_or(Damage)?;
    if hash::bytes(name, 0) as u32 == long.hash.get() { Ok(name) } else { Err(Damage) }
}
