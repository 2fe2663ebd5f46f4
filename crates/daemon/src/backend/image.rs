//! What a publisher fetches: everything, or what changed, as a sealed file without a name.
//!
//! Everything is streamed from the cache, with what is not written there yet laid over it, so that
//! no copy of the domain is ever in this process's memory.

use super::batch::Batch;
use roster_bus::exchange::{HEADER_BYTES, Header, write_gone};
use roster_store::{Reader, StoreError};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Written at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The cache cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no memory for it.
    #[error("cannot make an image of the domain: {0}")]
    Io(#[from] io::Error),
}

/// A domain's state, to be made an image of.
pub struct View {
    /// The image's header, without the number of records.
    pub header: Header,
    /// What the cache holds; nothing when the image is to hold changes only.
    pub base: Option<Reader>,
    /// What was reported since, oldest first.
    pub batches: Vec<Arc<Batch>>,
}

impl View {
    /// Writes the image.
    pub fn write(&self) -> Result<OwnedFd, ImageError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("roster-domain", flags).map_err(io::Error::from)?);
        let mut out = Out { file: BufWriter::with_capacity(BUFFER_BYTES, &file), records: 0 };
        out.file.write_all(&[0; HEADER_BYTES])?;
        let everything = self.header.since == 0;
        self.records(|number, record| match record {
            Some(record) => out.record(record),
            None if everything => Ok(()),
            None => out.gone(number),
        })?;
        out.file.flush()?;
        let header = Header { records: out.records, ..self.header };
        drop(out);
        file.write_all_at(&header.to_bytes(), 0)?;
        let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        fcntl_add_seals(&file, all).map_err(io::Error::from)?;
        Ok(file.into())
    }

    /// Calls `visit` with the records of one entry after the other, by number, without any for one that
    /// is gone.
    pub fn records(
        &self,
        mut visit: impl FnMut(u32, Option<&[u8]>) -> io::Result<()>,
    ) -> Result<(), ImageError> {
        let mut later: BTreeMap<u32, Option<&[u8]>> = BTreeMap::new();
        for batch in &self.batches {
            later.extend(batch.records());
        }
        match &self.base {
            Some(base) => over(base, later, visit),
            None => Ok(later.into_iter().try_for_each(|(number, record)| visit(number, record))?),
        }
    }
}

/// Everything: what the cache holds, by number, and what was reported since in its place.
fn over(
    base: &Reader,
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

struct Out<'a> {
    file: BufWriter<&'a File>,
    records: u64,
}

impl Out<'_> {
    fn gone(&mut self, number: u32) -> io::Result<()> {
        let mut gone = Vec::new();
        write_gone(&mut gone, number);
        self.record(&gone)
    }

    /// One entry's record, or a user's with the record of its groups behind it.
    fn record(&mut self, record: &[u8]) -> io::Result<()> {
        self.records += count(record);
        self.file.write_all(record)
    }
}

/// How many records lie in these bytes, by their lengths.
fn count(mut records: &[u8]) -> u64 {
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
