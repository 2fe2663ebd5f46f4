// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of a provider between two flushes. A batch is written to the cache as one transaction. It stays in memory
//! for a while, so that the publisher can fetch changes instead of everything. `engine` fills it, and `cache_writer`
//! writes it.

use roster_domain_cache::{
    CacheError, CacheTransaction, EntryHeader, EntryKey, Rejection, SearchProgress,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of changes that are retained for a publisher. A publisher that is further behind fetches everything, which
/// takes 0.1 s for 10,000 users.
const LOG_BYTES_MAX: usize = 8 << 20;
/// Batches that are retained.
const LOG_BATCHES_MAX: usize = 10_000;
/// Bytes of a change without its record.
const CHANGE_BYTES: usize = size_of::<EntryChange>();

/// Changes that belong together.
#[derive(Default)]
pub struct ChangeBatch {
    /// The state after this batch, 0 before there is one.
    pub sequence: u64,
    /// Position of the batch in the order of writes.
    pub write_index: u64,
    changes: Vec<EntryChange>,
    /// The records of `changes`, in one piece: a thousand small ones would stay with the allocator.
    records: Vec<u8>,
    /// Account data by entry number, as ranges of `account_text`.
    accounts: BTreeMap<u32, Range<usize>>,
    account_text: Vec<u8>,
    references: Vec<(u32, Range<usize>)>,
    reference_text: Vec<u8>,
    rejected: Vec<(EntryKey, Option<Rejection>)>,
    parts: BTreeMap<u8, SearchProgress>,
    next_number: Option<u32>,
}

#[derive(Clone)]
struct EntryChange {
    key: EntryKey,
    number: u32,
    kind: ChangeKind,
}

#[derive(Clone)]
enum ChangeKind {
    Put(EntryHeader, Range<usize>),
    Seen(EntryHeader),
    Removed,
}

impl ChangeBatch {
    /// Adds or replaces an entry.
    pub fn put(&mut self, key: EntryKey, header: EntryHeader, record: &[u8]) {
        let start = self.records.len();
        self.records.extend_from_slice(record);
        let what = ChangeKind::Put(header, start..self.records.len());
        self.changes.push(EntryChange { key, number: header.number, kind: what });
    }

    /// Records that an unchanged entry was seen.
    pub fn mark_seen(&mut self, key: EntryKey, header: EntryHeader) {
        self.changes.push(EntryChange {
            key,
            number: header.number,
            kind: ChangeKind::Seen(header),
        });
    }

    /// Stores the account data of an entry that is also [`put`](Self::put).
    pub fn set_account(&mut self, number: u32, account: &[u8]) {
        let start = self.account_text.len();
        self.account_text.extend_from_slice(account);
        self.accounts.insert(number, start..self.account_text.len());
    }

    /// Returns the account data of an entry in this batch: none in the batch, removed, or the data.
    #[must_use]
    pub fn account_of(&self, number: u32) -> Option<Option<&[u8]>> {
        if let Some(place) = self.accounts.get(&number) {
            return Some(Some(&self.account_text[place.clone()]));
        }
        let is_gone = |change: &EntryChange| {
            change.number == number && matches!(change.kind, ChangeKind::Removed)
        };
        self.changes.iter().any(is_gone).then_some(None)
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: EntryKey, number: u32) {
        self.accounts.remove(&number);
        self.changes.push(EntryChange { key, number, kind: ChangeKind::Removed });
    }

    /// Assigns a number to a new reference.
    pub fn add_reference(&mut self, number: u32, reference: &[u8]) {
        let start = self.reference_text.len();
        self.reference_text.extend_from_slice(reference);
        self.references.push((number, start..self.reference_text.len()));
    }

    /// Records that an entry is rejected, or is no longer rejected.
    pub fn set_rejected(&mut self, key: EntryKey, why: Option<Rejection>) {
        self.rejected.push((key, why));
    }

    /// Records the progress of a search.
    pub fn set_part(&mut self, number: u8, part: SearchProgress) {
        self.parts.insert(number, part);
    }

    /// Sets the number of the next new entry.
    pub fn set_next_number(&mut self, number: u32) {
        self.next_number = Some(number);
    }

    /// Returns the number of the next new entry, if this batch changed it.
    #[must_use]
    pub fn changed_next_number(&self) -> Option<u32> {
        self.next_number
    }

    /// Whether the batch is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.references.is_empty()
            && self.rejected.is_empty()
            && self.parts.is_empty()
            && self.next_number.is_none()
    }

    /// Returns the number of entry changes.
    #[must_use]
    pub fn visible_count(&self) -> usize {
        self.changes.iter().filter(|change| !matches!(change.kind, ChangeKind::Seen(_))).count()
    }

    /// Returns the approximate memory use in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let texts = self.records.len() + self.reference_text.len() + self.account_text.len();
        texts + self.changes.len() * CHANGE_BYTES
    }

    /// Returns the records of changed entries in order; `None` for a removed entry.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = (u32, Option<&[u8]>)> {
        self.changes.iter().filter_map(|change| match &change.kind {
            ChangeKind::Put(_, record) => {
                Some((change.number, Some(&self.records[record.clone()])))
            }
            ChangeKind::Seen(_) => None,
            ChangeKind::Removed => Some((change.number, None)),
        })
    }

    /// Writes the batch to the cache.
    pub fn write(&self, writer: &mut CacheTransaction<'_>) -> Result<(), CacheError> {
        for (number, place) in &self.references {
            writer.set_reference(*number, &self.reference_text[place.clone()])?;
        }
        for EntryChange { key, number, kind: what } in &self.changes {
            match what {
                ChangeKind::Put(header, record) => {
                    writer.put(*key, *header, &self.records[record.clone()])?;
                }
                ChangeKind::Seen(header) => writer.confirm(*key, *header)?,
                ChangeKind::Removed => writer.remove(*key, *number)?,
            }
        }
        for (number, place) in &self.accounts {
            writer.set_account(*number, &self.account_text[place.clone()])?;
        }
        for (key, why) in &self.rejected {
            writer.set_rejection(*key, why.as_ref())?;
        }
        for (number, part) in &self.parts {
            writer.set_search_progress(*number, part)?;
        }
        match self.next_number {
            Some(number) => writer.set_next_number(number),
            None => Ok(()),
        }
    }

    /// Merges several batches into one with the same result. Only the last change of each entry remains.
    #[must_use]
    pub fn merge<'a>(batches: impl Iterator<Item = &'a Self>) -> Self {
        let mut joined = Self::default();
        // An entry that was removed and added again has two numbers; the smaller goes first.
        let mut last: BTreeMap<(EntryKey, u32), (&Self, &EntryChange)> = BTreeMap::new();
        let mut rejected: BTreeMap<EntryKey, Option<&Rejection>> = BTreeMap::new();
        let mut accounts: BTreeMap<u32, &[u8]> = BTreeMap::new();
        for batch in batches {
            joined.sequence = batch.sequence;
            joined.write_index = batch.write_index;
            for (number, place) in &batch.references {
                joined.add_reference(*number, &batch.reference_text[place.clone()]);
            }
            for change in &batch.changes {
                let earlier =
                    last.get(&(change.key, change.number)).map(|(_, change)| &change.kind);
                // An unwritten record takes precedence over a new time stamp.
                if !matches!(
                    (earlier, &change.kind),
                    (Some(ChangeKind::Put(..)), ChangeKind::Seen(_))
                ) {
                    last.insert((change.key, change.number), (batch, change));
                }
            }
            for change in &batch.changes {
                if matches!(change.kind, ChangeKind::Removed) {
                    accounts.remove(&change.number);
                }
            }
            let said = batch.accounts.iter();
            accounts
                .extend(said.map(|(number, place)| (*number, &batch.account_text[place.clone()])));
            rejected.extend(batch.rejected.iter().map(|(key, why)| (*key, why.as_ref())));
            joined.parts.extend(batch.parts.iter().map(|(number, part)| (*number, part.clone())));
            joined.next_number = batch.next_number.or(joined.next_number);
        }
        for (batch, change) in last.into_values() {
            match &change.kind {
                ChangeKind::Put(header, record) => {
                    joined.put(change.key, *header, &batch.records[record.clone()]);
                }
                ChangeKind::Seen(_) | ChangeKind::Removed => joined.changes.push(change.clone()),
            }
        }
        for (number, account) in accounts {
            joined.set_account(number, account);
        }
        joined.rejected = rejected.into_iter().map(|(key, why)| (key, why.cloned())).collect();
        joined
    }
}

/// The last changes, for a publisher that has the earlier ones.
#[derive(Default)]
pub struct ChangeLog {
    /// The state before the first change in the log.
    base_sequence: u64,
    batches: VecDeque<Arc<ChangeBatch>>,
    bytes: usize,
}

impl ChangeLog {
    /// Makes an empty log that starts at this state.
    #[must_use]
    pub fn new(floor: u64) -> Self {
        Self { base_sequence: floor, ..Self::default() }
    }

    /// Adds a batch, and removes the oldest ones beyond the limits.
    pub fn push(&mut self, batch: Arc<ChangeBatch>) {
        self.bytes += batch.memory_bytes();
        self.batches.push_back(batch);
        while self.bytes > LOG_BYTES_MAX || self.batches.len() > LOG_BATCHES_MAX {
            let Some(oldest) = self.batches.pop_front() else { break };
            self.bytes -= oldest.memory_bytes();
            self.base_sequence = oldest.sequence;
        }
    }

    /// Returns the state after the last batch.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.batches.back().map_or(self.base_sequence, |batch| batch.sequence)
    }

    /// Returns the changes since a state; `None` if the log no longer has them all.
    #[must_use]
    pub fn since(&self, sequence: u64) -> Option<Vec<Arc<ChangeBatch>>> {
        let known = sequence >= self.base_sequence;
        let later = self.batches.iter().filter(|batch| batch.sequence > sequence);
        known.then(|| later.cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u8) -> EntryKey {
        EntryKey { search: 0, id: [id; 16] }
    }

    fn header(number: u32) -> EntryHeader {
        EntryHeader {
            number,
            kind: 0,
            list: 0,
            reference: 0,
            digest: 0,
            seen_unix: 0,
            list_seen_unix: 0,
        }
    }

    fn records(batch: &ChangeBatch) -> Vec<(u32, Option<&[u8]>)> {
        batch.records().collect()
    }

    #[test]
    fn of_joined_batches_the_last_word_counts() {
        let mut first = ChangeBatch { sequence: 1, ..ChangeBatch::default() };
        first.put(key(1), header(1), b"old");
        first.put(key(2), header(2), b"stays");
        first.put(key(3), header(3), b"goes");
        let mut second = ChangeBatch { sequence: 2, ..ChangeBatch::default() };
        second.put(key(1), header(1), b"new");
        second.mark_seen(key(2), header(2));
        second.remove(key(3), 3);
        second.put(key(3), header(4), b"is back");
        let joined = ChangeBatch::merge([&first, &second].into_iter());
        assert_eq!(joined.sequence, 2);
        let expected: [(u32, Option<&[u8]>); 4] =
            [(1, Some(b"new")), (2, Some(b"stays")), (3, None), (4, Some(b"is back"))];
        assert_eq!(records(&joined), expected);
    }

    #[test]
    fn of_joined_batches_the_last_account_counts() {
        let mut first = ChangeBatch { sequence: 1, ..ChangeBatch::default() };
        for number in 1..=3 {
            first.put(key(number), header(number.into()), b"record");
            first.set_account(number.into(), b"old");
        }
        let mut second = ChangeBatch { sequence: 2, ..ChangeBatch::default() };
        second.put(key(1), header(1), b"record");
        second.set_account(1, b"newer");
        second.remove(key(2), 2);
        let batch = ChangeBatch::merge([&first, &second].into_iter());
        assert_eq!(batch.account_of(1), Some(Some(&b"newer"[..])));
        assert_eq!(batch.account_of(2), Some(None));
        assert_eq!(batch.account_of(3), Some(Some(&b"old"[..])));
        assert_eq!(batch.account_of(4), None);
    }

    #[test]
    fn the_log_knows_what_it_does_not_know() {
        let mut log = ChangeLog::new(1);
        for sequence in 2..=4 {
            log.push(Arc::new(ChangeBatch { sequence, ..ChangeBatch::default() }));
        }
        assert!(log.since(0).is_none());
        assert_eq!(log.since(1).map(|batches| batches.len()), Some(3));
        assert_eq!(log.since(3).map(|batches| batches.len()), Some(1));
        assert_eq!(log.since(4).map(|batches| batches.len()), Some(0));
    }

    #[test]
    fn the_log_is_bounded() {
        let mut log = ChangeLog::new(0);
        for sequence in 1..=20 {
            let mut batch = ChangeBatch { sequence, ..ChangeBatch::default() };
            batch.put(key(1), header(1), &vec![0; 1 << 20]);
            log.push(Arc::new(batch));
        }
        assert!(log.bytes <= LOG_BYTES_MAX);
        assert!(log.since(1).is_none());
        assert!(log.since(19).is_some());
    }
}
