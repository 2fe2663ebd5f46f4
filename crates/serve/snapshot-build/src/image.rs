// SPDX-License-Identifier: MIT OR Apache-2.0
//! A complete snapshot in memory, ready to be written. `builder` makes it, and `publish` writes files.

use roster_snapshot::hash::{self, ChecksumIdentity};
use roster_snapshot::layout::{
    Bucket, DomainOptionsSlot, DomainSlot, GroupSlot, HEADER_BYTES, MAGIC, Membership, NameSlot,
    RESPONDER_BYTES, SECTION_ALIGN, SECTIONS_START, SectionEntry, SectionId, ShadowSlot,
    SnapshotHeader, SnapshotKind, UserSlot, VERSION,
};
use std::io::{self, Seek, SeekFrom, Write};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Number of ids that are converted and written at a time.
const IDS_AT_ONCE: usize = 1 << 16;

/// The fields of the header that do not follow from the records.
pub(crate) struct HeaderFields {
    pub kind: SnapshotKind,
    pub min_id: u32,
    pub seed: u64,
    pub identity: ChecksumIdentity,
    pub responder: [u8; RESPONDER_BYTES],
}

/// The content of a file, except its generation.
pub struct SnapshotImage {
    pub(crate) fields: HeaderFields,
    pub(crate) users: Vec<UserSlot>,
    pub(crate) groups: Vec<GroupSlot>,
    pub(crate) shadows: Vec<ShadowSlot>,
    pub(crate) names: Vec<NameSlot>,
    pub(crate) memberships: Vec<Membership>,
    pub(crate) member_ids: Vec<U32>,
    pub(crate) group_ids: Vec<U32>,
    pub(crate) gids: Vec<U32>,
    pub(crate) long_text: Vec<u8>,
    pub(crate) indices: Vec<(SectionId, Vec<Bucket>)>,
    pub(crate) domains: Vec<DomainSlot>,
    pub(crate) domain_options: Vec<DomainOptionsSlot>,
}

impl SnapshotImage {
    /// Returns the number of members in all groups.
    #[must_use]
    pub fn memberships(&self) -> u64 {
        self.member_ids.len() as u64
    }

    /// Writes the file, with the header last. Returns its length.
    pub fn write(&self, out: &mut (impl Write + Seek), generation: u64) -> io::Result<u64> {
        let mut header = SnapshotHeader::new_zeroed();
        let offset = out.seek(SeekFrom::Start(HEADER_BYTES as u64))?;
        let mut body = ImageBody { out, offset, content: ContentHash::new(), header: &mut header };
        body.write(&[0; SECTIONS_START as usize - HEADER_BYTES])?;
        body.records(SectionId::Users, &self.users)?;
        body.records(SectionId::Groups, &self.groups)?;
        body.records(SectionId::Names, &self.names)?;
        body.records(SectionId::Memberships, &self.memberships)?;
        body.records(SectionId::Gids, &self.gids)?;
        for (id, buckets) in &self.indices {
            body.records(*id, buckets)?;
        }
        body.records(SectionId::Shadows, &self.shadows)?;
        body.records(SectionId::LongText, &self.long_text)?;
        body.ids(SectionId::MemberIds, &self.member_ids, self.names.len())?;
        body.ids(SectionId::GroupIds, &self.group_ids, self.gids.len())?;
        body.records(SectionId::Domains, &self.domains)?;
        body.records(SectionId::DomainOptions, &self.domain_options)?;
        let (file_bytes, content) = (body.offset, body.content.finish());
        header.magic = MAGIC;
        header.version = U32::new(VERSION);
        header.kind = U32::new(self.fields.kind as u32);
        header.file_bytes = U64::new(file_bytes);
        header.generation = U64::new(generation);
        header.seed = U64::new(self.fields.seed);
        header.identity = U64::new(self.fields.identity.0);
        header.content_hash = U64::new(content);
        header.min_id = U32::new(self.fields.min_id);
        header.responder = self.fields.responder;
        let hashed = &header.as_bytes()[..offset_of!(SnapshotHeader, header_hash)];
        header.header_hash = U64::new(hash::plain(hashed));
        out.seek(SeekFrom::Start(0))?;
        out.write_all(header.as_bytes())?;
        Ok(file_bytes)
    }
}

/// The file after the header.
struct ImageBody<'a, W> {
    out: &'a mut W,
    offset: u64,
    content: ContentHash,
    header: &'a mut SnapshotHeader,
}

impl<W: Write> ImageBody<'_, W> {
    fn records<T: IntoBytes + Immutable>(
        &mut self,
        id: SectionId,
        records: &[T],
    ) -> io::Result<()> {
        self.section(id, size_of::<T>(), records.len(), |body| body.write(records.as_bytes()))
    }

    /// Writes ids below `limit`, in two bytes each if they fit.
    fn ids(&mut self, id: SectionId, ids: &[U32], limit: usize) -> io::Result<()> {
        if limit > 1 << 16 {
            return self.records(id, ids);
        }
        self.section(id, size_of::<U16>(), ids.len(), |body| {
            let mut narrow = Vec::with_capacity(IDS_AT_ONCE.min(ids.len()));
            for ids in ids.chunks(IDS_AT_ONCE) {
                narrow.clear();
                narrow.extend(ids.iter().map(|id| U16::new(id.get() as u16)));
                body.write(narrow.as_bytes())?;
            }
            Ok(())
        })
    }

    /// Adds the section to the header, writes it, and pads it to the alignment. A section without records is omitted.
    fn section(
        &mut self,
        id: SectionId,
        record_bytes: usize,
        count: usize,
        write: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let entry = SectionEntry {
            id: U32::new(id as u32),
            record_bytes: U32::new(record_bytes as u32),
            offset: U64::new(self.offset),
            count: U64::new(count as u64),
        };
        // A file of either kind alone has fewer sections than the header has places.
        let place = self.header.sections.get_mut(self.header.section_count.get() as usize);
        *place.ok_or_else(|| io::Error::other("the file has too many sections"))? = entry;
        self.header.section_count += 1;
        write(self)?;
        let missing = self.offset.next_multiple_of(SECTION_ALIGN) - self.offset;
        self.write(&[0; SECTION_ALIGN as usize][..missing as usize])
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.content.update(bytes);
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

/// [`hash::RunningHash`] for parts of any length.
struct ContentHash {
    running: hash::RunningHash,
    /// Fewer than 16 bytes, which wait for more.
    pending: Vec<u8>,
}

impl ContentHash {
    fn new() -> Self {
        Self { running: hash::RunningHash::new(hash::Seed::new(0)), pending: Vec::new() }
    }

    fn update(&mut self, mut bytes: &[u8]) {
        if !self.pending.is_empty() {
            let wanted = bytes.len().min(16 - self.pending.len());
            let (head, rest) = bytes.split_at(wanted);
            self.pending.extend_from_slice(head);
            bytes = rest;
            if self.pending.len() < 16 {
                return;
            }
            self.running.update(&self.pending);
            self.pending.clear();
        }
        let (whole, rest) = bytes.split_at(bytes.len() / 16 * 16);
        self.running.update(whole);
        self.pending.extend_from_slice(rest);
    }

    fn finish(mut self) -> u64 {
        self.running.update(&self.pending);
        self.running.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_hash_does_not_depend_on_the_pieces() {
        let bytes: Vec<u8> = (0..200).collect();
        let whole = hash::plain(&bytes);
        for first in 0..40 {
            for second in 0..40 {
                let mut pieces = ContentHash::new();
                pieces.update(&bytes[..first]);
                pieces.update(&bytes[first..first + second]);
                pieces.update(&bytes[first + second..]);
                assert_eq!(pieces.finish(), whole, "{first} + {second}");
            }
        }
    }
}
