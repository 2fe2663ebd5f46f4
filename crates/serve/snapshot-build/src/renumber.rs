// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a snapshot in memory with another generation. The contents stay the same, and `publish` replaces the file.

use crate::verify::verify;
use roster_snapshot::hash;
use roster_snapshot::layout::{HEADER_BYTES, SnapshotHeader, SnapshotKind};
use std::io::{self, Write};
use std::mem::offset_of;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// Writes the snapshot with that generation. Returns its length.
///
/// # Errors
///
/// The snapshot is damaged, or the output fails.
pub fn write(
    snapshot: &[u8],
    kind: SnapshotKind,
    out: &mut impl Write,
    generation: u64,
) -> io::Result<u64> {
    verify(snapshot, kind).map_err(io::Error::other)?;
    let damaged = || io::Error::from(io::ErrorKind::InvalidData);
    let (mut header, _) = SnapshotHeader::read_from_prefix(snapshot).map_err(|_| damaged())?;
    header.generation = U64::new(generation);
    let hashed = &header.as_bytes()[..offset_of!(SnapshotHeader, header_hash)];
    header.header_hash = U64::new(hash::plain(hashed));
    out.write_all(header.as_bytes())?;
    out.write_all(&snapshot[HEADER_BYTES..])?;
    Ok(snapshot.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SnapshotBuilder;
    use roster_snapshot::Snapshot;

    #[test]
    fn renumber_changes_the_generation_alone() {
        let kind = SnapshotKind::Accounts;
        let image = SnapshotBuilder::new(1000).finish(kind).expect("empty").image;
        let of = |generation| {
            let mut bytes = io::Cursor::new(Vec::new());
            image.write(&mut bytes, generation).expect("write to memory");
            bytes.into_inner()
        };
        let mut renumbered = Vec::new();
        write(&of(7), kind, &mut renumbered, 9).expect("write to memory");
        assert!(renumbered == of(9) && Snapshot::generation(&renumbered) == Some(9));
        let mut damaged = of(7);
        damaged[8] ^= 1;
        assert!(write(&damaged, kind, &mut Vec::new(), 9).is_err());
    }
}
