// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts lists of members by group to lists of groups by member. `builder` has the lists; this module reads no
//! records.

use crate::TooLarge;
use crate::parallel::{self, cut, threads};
use roster_snapshot::hash::{ChecksumIdentity, GidSum};
use roster_snapshot::layout::{Membership, NameSlot, SectionId};
use std::ops::Range;
use zerocopy::FromZeros;
use zerocopy::little_endian::{U32, U64};

/// A group line as initgroups reads it.
pub(crate) struct InitgroupsLine {
    pub(crate) gid: u32,
    pub(crate) count: u32,
    pub(crate) first: u64,
    pub(crate) initgroups_only: bool,
}

/// Returns a list for each name: the lines with that name, in order. A line counts once for a name that it repeats.
/// Also returns the section with the lists.
pub(crate) fn invert<'i>(
    lines: &[InitgroupsLine],
    member_ids: impl Fn(&InitgroupsLine) -> &'i [U32] + Sync,
    names: &[NameSlot],
    identity: ChecksumIdentity,
) -> Result<(Vec<Membership>, Vec<U32>), TooLarge> {
    invert_in(threads(), lines, member_ids, names, identity)
}

fn invert_in<'i>(
    threads: usize,
    lines: &[InitgroupsLine],
    member_ids: impl Fn(&InitgroupsLine) -> &'i [U32] + Sync,
    names: &[NameSlot],
    identity: ChecksumIdentity,
) -> Result<(Vec<Membership>, Vec<U32>), TooLarge> {
    let ranges = cut(lines.iter().map(|line| line.count.into()), threads);
    let parts =
        parallel::each(ranges, |range| InvertedLists::new(lines, range, &member_ids, names.len()));
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut memberships = vec![Membership::new_zeroed(); names.len()];
    let mut first = 0;
    for (name, membership) in memberships.iter_mut().enumerate() {
        let count: usize = parts.iter().map(|part| part.lines_of(name).len()).sum();
        membership.first = U64::new(first as u64);
        // At most 4,294,967,295 lines.
        membership.count = U32::new(count as u32);
        first += count;
    }
    let mut group_ids = zeros(first)?;
    let counts = memberships.iter().map(|membership| membership.count.get().into());
    let ranges = cut(counts, threads);
    let mut rest = &mut group_ids[..];
    let mut pieces = Vec::new();
    for (first, memberships) in parallel::pieces(&mut memberships, ranges) {
        let count = memberships.iter().map(|membership| membership.count.get() as usize).sum();
        let ids;
        (ids, rest) = std::mem::take(&mut rest).split_at_mut(count);
        pieces.push((first, memberships, ids));
    }
    parallel::each(pieces, |(first, memberships, mut ids)| {
        for (name, membership) in (first..).zip(memberships) {
            let mut sum = GidSum::default();
            for lines_of in parts.iter().map(|part| part.lines_of(name)) {
                let place;
                (place, ids) = std::mem::take(&mut ids).split_at_mut(lines_of.len());
                place.copy_from_slice(lines_of);
                lines_of.iter().for_each(|line| sum.add(lines[line.get() as usize].gid));
            }
            membership.sum = U64::new(sum.finish());
            // Names have 32-bit numbers.
            let (slot, position) = (&names[name], name as u32);
            let check =
                identity.check_with_name(membership, slot, SectionId::Memberships, position);
            membership.check = U32::new(check);
        }
    });
    Ok((memberships, group_ids))
}

/// Allocates memory that the kernel zeroes on first use, in the threads that fill it.
fn zeros(count: usize) -> Result<Vec<U32>, TooLarge> {
    U32::new_vec_zeroed(count).map_err(|_| TooLarge("the lists of groups"))
}

/// The lists of a range of consecutive lines.
struct InvertedLists {
    /// For each name, the end of its lines.
    ends: Vec<u32>,
    lines: Vec<U32>,
}

/// State of a name. The fields are adjacent, so that a membership touches one cache line.
#[derive(Clone, Copy, Default)]
struct NameCursor {
    /// Number of the last line with this name, plus one.
    last_line: u32,
    next: u32,
}

impl InvertedLists {
    fn new<'i>(
        all: &[InitgroupsLine],
        range: Range<usize>,
        member_ids: &impl Fn(&InitgroupsLine) -> &'i [U32],
        names: usize,
    ) -> Result<Self, TooLarge> {
        // Lines have 32-bit numbers.
        let numbered = || (range.start as u32 + 1..).zip(&all[range.clone()]);
        let mut places = vec![NameCursor::default(); names];
        let mut memberships = 0_u64;
        for (number, line) in numbered() {
            memberships += u64::from(line.count);
            for id in member_ids(line) {
                let place = &mut places[id.get() as usize];
                place.next += u32::from(place.last_line != number);
                place.last_line = number;
            }
        }
        if memberships > u32::MAX.into() {
            return Err(TooLarge("more than 4,294,967,295 memberships"));
        }
        let mut first = 0;
        for place in &mut places {
            (first, *place) = (first + place.next, NameCursor { last_line: 0, next: first });
        }
        let mut lines = zeros(first as usize)?;
        for (number, line) in numbered() {
            for id in member_ids(line) {
                let place = &mut places[id.get() as usize];
                if place.last_line != number {
                    place.last_line = number;
                    lines[place.next as usize] = U32::new(number - 1);
                    place.next += 1;
                }
            }
        }
        Ok(Self { ends: places.iter().map(|place| place.next).collect(), lines })
    }

    fn lines_of(&self, name: usize) -> &[U32] {
        let start = name.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.lines[start as usize..self.ends[name] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The simple reference implementation.
    fn lists(lines: &[Vec<u32>], names: u32) -> Vec<Vec<u32>> {
        let numbered = || (0..).zip(lines);
        let of = |name| {
            numbered().filter(move |(_, line)| line.contains(&name)).map(|(number, _)| number)
        };
        (0..names).map(|name| of(name).collect()).collect()
    }

    #[test]
    fn lists_do_not_depend_on_the_number_of_parts() {
        let names = 23;
        // Some names occur twice in a line, some lines have no member, and one name is in no line.
        let lines: Vec<Vec<u32>> = (0..40_u32)
            .map(|line| {
                (0..line % 9).map(|member| (line * 5 + member * member) % (names - 1)).collect()
            })
            .collect();
        let member_ids: Vec<U32> = lines.iter().flatten().copied().map(U32::new).collect();
        let mut first = 0;
        let places = lines.iter().zip(1000..).map(|(line, gid)| {
            let place =
                InitgroupsLine { gid, count: line.len() as u32, first, initgroups_only: false };
            first += u64::from(place.count);
            place
        });
        let places: Vec<_> = places.collect();
        let ids_of =
            |line: &InitgroupsLine| &member_ids[line.first as usize..][..line.count as usize];
        let slots = vec![NameSlot([0; 16]); names as usize];
        let expected = lists(&lines, names);
        for threads in 1..12 {
            let (memberships, ids) =
                invert_in(threads, &places, ids_of, &slots, ChecksumIdentity(7)).expect("fits");
            assert_eq!(ids.len(), expected.iter().map(Vec::len).sum());
            for (name, membership) in memberships.iter().enumerate() {
                let list =
                    &ids[membership.first.get() as usize..][..membership.count.get() as usize];
                let found: Vec<u32> = list.iter().map(|line| line.get()).collect();
                assert_eq!(found, expected[name], "name {name} in {threads} parts");
                let mut sum = GidSum::default();
                found.iter().for_each(|line| sum.add(1000 + line));
                assert_eq!(membership.sum.get(), sum.finish());
            }
        }
    }
}
