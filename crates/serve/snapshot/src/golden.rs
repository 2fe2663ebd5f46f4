// SPDX-License-Identifier: MIT OR Apache-2.0
//! Complete files for the tests of the reader, and modified files with valid checksums.
//!
//! An attacker can compute every checksum of a file, so a test of a bound must correct them first.
//! `roster-snapshot-build` builds the files (`tests/golden.rs`); this crate does not depend on it.

use crate::hash::{self, ChecksumIdentity};
use crate::layout::{HEADER_BYTES, NameSlot, SectionEntry, SectionId, SnapshotHeader};
use core::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
extern crate std;
use std::vec::Vec;

pub(crate) const ACCOUNTS: &[u8] = include_bytes!("../testdata/accounts.snap");
pub(crate) const NAMES: &[u8] = include_bytes!("../testdata/names.snap");
pub(crate) const SHADOW: &[u8] = include_bytes!("../testdata/shadow.snap");

/// Returns the file with a modified header and its correct checksum.
pub(crate) fn with_header(file: &[u8], change: impl FnOnce(&mut SnapshotHeader)) -> Vec<u8> {
    let mut bytes = file.to_vec();
    let header = SnapshotHeader::mut_from_bytes(&mut bytes[..HEADER_BYTES]).unwrap();
    change(header);
    let hashed = hash::plain(&header.as_bytes()[..offset_of!(SnapshotHeader, header_hash)]);
    header.header_hash = U64::new(hashed);
    bytes
}

/// Returns the file with a modified record and its correct checksum.
pub(crate) fn with_record<T>(
    file: &[u8],
    section: SectionId,
    position: u32,
    change: impl FnOnce(&mut T),
) -> Vec<u8>
where
    T: FromBytes + IntoBytes + Immutable + KnownLayout,
{
    let mut bytes = file.to_vec();
    let start = place::<T>(file, section, position);
    let mut record = T::read_from_bytes(&file[start..][..size_of::<T>()]).unwrap();
    change(&mut record);
    let header = SnapshotHeader::ref_from_bytes(&file[..HEADER_BYTES]).unwrap();
    let identity = ChecksumIdentity(header.identity.get());
    let check = if section == SectionId::Memberships {
        let name = place::<NameSlot>(file, SectionId::Names, position);
        let name = NameSlot::ref_from_bytes(&file[name..][..size_of::<NameSlot>()]).unwrap();
        identity.check_with_name(&record, name, section, position)
    } else {
        identity.check(&record, section, position)
    };
    bytes[start..][..size_of::<T>()].copy_from_slice(record.as_bytes());
    bytes[start..][..4].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Returns the file with one flipped bit in the last byte of a record, which then does not match its checksum.
pub(crate) fn with_flipped_bit<T>(file: &[u8], section: SectionId, position: u32) -> Vec<u8> {
    let mut bytes = file.to_vec();
    bytes[place::<T>(file, section, position) + size_of::<T>() - 1] ^= 1;
    bytes
}

/// Returns the file with four-byte numbers in both lists, as in a file with more than 65,536 names.
pub(crate) fn with_wide_ids(file: &[u8]) -> Vec<u8> {
    let mut bytes = file.to_vec();
    let mut entries = Vec::new();
    for id in [SectionId::MemberIds, SectionId::GroupIds] {
        let (index, entry) = section(file, id);
        let offset = bytes.len() as u64;
        let start = entry.offset.get() as usize;
        for id in file[start..].as_chunks::<2>().0.iter().take(entry.count.get() as usize) {
            bytes.extend(u32::from(u16::from_le_bytes(*id)).to_le_bytes());
        }
        entries.push((
            index,
            SectionEntry { record_bytes: U32::new(4), offset: U64::new(offset), ..entry },
        ));
    }
    let file_bytes = bytes.len() as u64;
    with_header(&bytes, |header| {
        header.file_bytes = U64::new(file_bytes);
        entries.into_iter().for_each(|(index, entry)| header.sections[index] = entry);
    })
}

fn place<T>(file: &[u8], id: SectionId, position: u32) -> usize {
    let (_, entry) = section(file, id);
    assert_eq!(entry.record_bytes.get() as usize, size_of::<T>());
    assert!(u64::from(position) < entry.count.get());
    entry.offset.get() as usize + position as usize * size_of::<T>()
}

/// Returns the section's index in the table, and its entry.
fn section(file: &[u8], id: SectionId) -> (usize, SectionEntry) {
    let header = SnapshotHeader::ref_from_bytes(&file[..HEADER_BYTES]).unwrap();
    let index = header.sections.iter().position(|entry| entry.id.get() == id as u32).unwrap();
    (index, header.sections[index])
}
