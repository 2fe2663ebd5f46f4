// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches that wait for the write to the cache. `cache_writer` writes them.

use crate::change_batch::ChangeBatch;
use std::collections::VecDeque;
use std::sync::Arc;

/// Batches that may wait for a disk that fails. Beyond that they are merged.
const UNWRITTEN_MAX: usize = 256;

/// The open batch, and closed ones that are not written yet.
#[derive(Default)]
pub(super) struct BatchQueue {
    /// Reports since the last flush.
    pub(super) open: ChangeBatch,
    pub(super) unwritten: VecDeque<Arc<ChangeBatch>>,
    pub(super) unwritten_bytes: usize,
    /// Position of the last batch.
    pub(super) last_write_index: u64,
    /// Position of the last batch that changes served entries.
    pub(super) last_visible_index: u64,
}

impl BatchQueue {
    /// Closes the open batch, which produces the state `sequence`. `None` if it is empty.
    pub(super) fn seal(&mut self, sequence: u64) -> Option<Arc<ChangeBatch>> {
        if self.open.is_empty() {
            return None;
        }
        self.open.sequence = sequence;
        self.last_write_index += 1;
        self.open.write_index = self.last_write_index;
        if self.open.visible_count() > 0 {
            self.last_visible_index = self.last_write_index;
        }
        let batch = Arc::new(std::mem::take(&mut self.open));
        self.unwritten_bytes += batch.memory_bytes();
        self.unwritten.push_back(Arc::clone(&batch));
        if self.unwritten.len() > UNWRITTEN_MAX {
            let joined = ChangeBatch::merge(self.unwritten.iter().map(|batch| &**batch));
            self.unwritten_bytes = joined.memory_bytes();
            self.unwritten = VecDeque::from([Arc::new(joined)]);
        }
        Some(batch)
    }
}
