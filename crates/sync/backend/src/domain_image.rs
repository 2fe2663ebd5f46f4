// SPDX-License-Identifier: MIT OR Apache-2.0
//! The image for a publisher: everything, or changes, as a sealed memfd. `roster_bus::domain_image` has the format, and
//! `change_batch` the changes.
//!
//! A full image is streamed from the cache, combined with batches that are not written yet. This process therefore
//! never has a copy of the domain in memory.

use super::change_batch::ChangeBatch;
use roster_bus::domain_image::{HEADER_BYTES, ImageHeader, write_removed};
use roster_domain_cache::{CacheError, CacheReader};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes of one write.
const BUFFER_BYTES: usize = 256 << 10;

/// Reasons why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The cache cannot be read.
    #[error(transparent)]
    Store(#[from] CacheError),
    /// The image cannot be written, for lack of memory or descriptors.
    #[error("cannot make an image of the domain: {0}")]
    Io(#[from] io::Error),
}

/// A domain's state, as the source of an image.
pub struct DomainView {
    /// The image's header, without the number of records.
    pub header: ImageHeader,
    /// The content of the cache; `None` if the image has only changes.
    pub base: Option<CacheReader>,
    /// Batches after that, oldest first.
    pub batches: Vec<Arc<ChangeBatch>>,
}

impl DomainView {
    /// Writes the image.
    pub fn write(&self) -> Result<OwnedFd, ImageError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("roster-domain", flags).map_err(io::Error::from)?);
        let mut out =
            ImageWriter { file: BufWriter::with_capacity(BUFFER_BYTES, &file), records: 0 };
        out.file.write_all(&[0; HEADER_BYTES])?;
        let everything = self.header.since == 0;
        self.records(|number, record| match record {
            Some(record) => out.write_record(record),
            None if everything => Ok(()),
            None => out.write_removed(number),
        })?;
        out.file.flush()?;
        let header = ImageHeader { records: out.records, ..self.header };
        drop(out);
        file.write_all_at(&header.to_bytes(), 0)?;
        let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        fcntl_add_seals(&file, all).map_err(io::Error::from)?;
        Ok(file.into())
    }

    /// Calls `visit` with the records of each entry, by number; `None` for a removed entry.
    pub fn records(
        &self,
        mut visit: impl FnMut(u32, Option<&[u8]>) -> io::Result<()>,
    ) -> Result<(), ImageError> {
        let mut later: BTreeMap<u32, Option<&[u8]>> = BTreeMap::new();
        for batch in &self.batches {
            later.extend(batch.records());
        }
        match &self.base {
            Some(base) => write_overlaid(base, later, visit),
            None => Ok(later.into_iter().try_for_each(|(number, record)| visit(number, record))?),
        }
    }
}

/// Visits everything: the content of the cache, by number, with later records in its place.
fn write_overlaid(
    base: &CacheReader,
    later: BTreeMap<u32, Option<&[u8]>>,
    mut visit: impl FnMut(u32, Option<&[u8]>) -> io::Result<()>,
) -> Result<(), ImageError> {
    let mut later = later.into_iter().peekable();
    let mut written = Ok(());
    base.records(|number, record| {
        while written.is_ok()
            && let Some((newer, record)) = later.next_if(|(other, _)| *other < number)
        {
            written = visit(newer, record);
        }
        let newest = match later.next_if(|(other, _)| *other == number) {
            Some((_, newer)) => newer,
            None => Some(record),
        };
        if written.is_ok() {
            written = visit(number, newest);
        }
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written?;
    Ok(later.try_for_each(|(number, record)| visit(number, record))?)
}

struct ImageWriter<'a> {
    file: BufWriter<&'a File>,
    records: u64,
}

impl ImageWriter<'_> {
    fn write_removed(&mut self, number: u32) -> io::Result<()> {
        let mut gone = Vec::new();
        write_removed(&mut gone, number);
        self.write_record(&gone)
    }

    /// Writes the record of one entry. A user's record may be followed by the record of the user's groups.
    fn write_record(&mut self, record: &[u8]) -> io::Result<()> {
        self.records += count_records(record);
        self.file.write_all(record)
    }
}

/// Counts the records in these bytes, by their lengths.
fn count_records(mut records: &[u8]) -> u64 {
    let mut count = 0;
    while let Some(length) = records.first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        count += 1;
        match records.get(length..) {
            Some(rest) if length > 0 => records = rest,
            _ => break,
        }
    }
    count
}
