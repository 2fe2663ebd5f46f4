// SPDX-License-Identifier: MIT OR Apache-2.0
//! The snapshot that was in place when this process began. It is served unchanged until the next one, which waits for
//! all domains. Its file is written again only if it is lost.

use roster_snapshot::layout::SnapshotKind;
use roster_snapshot_build::renumber;
use std::io::{self, Write};
use std::sync::Arc;

/// A snapshot in memory.
#[derive(Clone)]
pub struct LastSnapshot {
    /// The snapshot's bytes.
    pub bytes: Arc<Vec<u8>>,
}

impl LastSnapshot {
    /// Wraps these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: Arc::new(bytes) }
    }

    /// Writes the snapshot with that generation and returns its length. Fails for a damaged one.
    pub fn write(&self, out: &mut impl Write, generation: u64) -> io::Result<u64> {
        renumber::write(&self.bytes, SnapshotKind::Accounts, out, generation)
    }
}
