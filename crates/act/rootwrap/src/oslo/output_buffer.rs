// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of a command until its length is known: in memory, and beyond a limit in a file without a name. The
//! buffer counts the length of its JSON text as it grows. `command_io` fills it.

use super::surrogateescape::{ByteCount, SurrogateEncoder};
use rustix::buffer::spare_capacity;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::Path;

/// Output beyond this limit goes to a file.
const MEMORY_BYTES_MAX: usize = 256 << 10;
/// Sizes of the first read and of later ones. Most commands write little.
const READ_BYTES: [usize; 2] = [4 << 10, 64 << 10];

/// One output stream of a command.
#[derive(Debug, Default)]
pub struct OutputBuffer {
    memory: Vec<u8>,
    file: Option<File>,
    bytes: u64,
    encoder: SurrogateEncoder,
    encoded: ByteCount,
}

impl OutputBuffer {
    /// Reads once. 0: the end. Files are created in `folder`.
    pub fn read_from(&mut self, from: impl AsFd, folder: &Path) -> io::Result<usize> {
        if self.memory.len() >= MEMORY_BYTES_MAX || self.file.is_some() && !self.memory.is_empty() {
            self.spill(folder)?;
        }
        let start = self.memory.len();
        self.memory.reserve(READ_BYTES[usize::from(self.bytes >= READ_BYTES[0] as u64)]);
        let count = match rustix::io::read(from, spare_capacity(&mut self.memory)) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => return Ok(1),
            Err(error) => return Err(error.into()),
        };
        self.encoder.feed(&self.memory[start..], &mut self.encoded);
        self.bytes += count as u64;
        Ok(count)
    }

    fn spill(&mut self, folder: &Path) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(folder)?),
        };
        file.write_all(&self.memory)?;
        self.memory.clear();
        Ok(())
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the length as text. No further output may follow.
    pub fn encoded_bytes(&mut self) -> u64 {
        self.encoder.finish(&mut self.encoded);
        self.encoded.0
    }

    /// Writes the output as text, and flushes `out` to `to` when it is large.
    pub fn write_encoded(self, out: &mut Vec<u8>, mut to: impl Write) -> io::Result<()> {
        let mut encoder = SurrogateEncoder::default();
        if let Some(mut file) = self.file {
            file.rewind()?;
            let mut piece = vec![0; READ_BYTES[1]];
            loop {
                let count = file.read(&mut piece)?;
                if count == 0 {
                    break;
                }
                encoder.feed(&piece[..count], out);
                to.write_all(out)?;
                out.clear();
            }
        }
        for piece in self.memory.chunks(READ_BYTES[1]) {
            encoder.feed(piece, out);
            if out.len() > READ_BYTES[1] {
                to.write_all(out)?;
                out.clear();
            }
        }
        encoder.finish(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn spooled(bytes: &[u8]) -> (OutputBuffer, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = OutputBuffer::default();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || theirs.write_all(bytes).unwrap());
            while spool.read_from(&ours, folder.path()).unwrap() > 0 {}
        });
        (spool, folder)
    }

    #[test]
    fn little_and_much_come_out_as_they_went_in() {
        for count in [0, 1, 4096, 4097, MEMORY_BYTES_MAX, MEMORY_BYTES_MAX + 70_000, 3 << 20] {
            let bytes: Vec<u8> = (0..count).map(|at| (at % 251) as u8).collect();
            let (mut spool, folder) = spooled(&bytes);
            assert_eq!(spool.bytes(), count as u64);
            assert_eq!(spool.file.is_some(), count >= MEMORY_BYTES_MAX);
            assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
            let mut expected = Vec::new();
            let mut encoder = SurrogateEncoder::default();
            encoder.feed(&bytes, &mut expected);
            encoder.finish(&mut expected);
            assert_eq!(spool.encoded_bytes(), expected.len() as u64);
            let (mut out, mut sent) = (Vec::new(), Vec::new());
            spool.write_encoded(&mut out, &mut sent).unwrap();
            sent.extend(out);
            assert!(sent == expected, "{count}");
        }
    }
}
