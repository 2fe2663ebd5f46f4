//! What a provider reported between two flushes: written to the cache as one piece, and kept for a
//! while so that the publisher can be given changes rather than everything.

use roster_store::{Header, Key, Part, Rejection, StoreError, Writer};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of changes that are kept for a publisher that is behind. One that is further behind takes
/// everything, which a domain of 10,000 users does in 0.1 s.
const LOG_BYTES_MAX: usize = 8 << 20;
/// Batches that are kept.
const LOG_BATCHES_MAX: usize = 10_000;
/// What a change takes beside its record.
const CHANGE_BYTES: usize = size_of::<Change>();

/// Changes that belong together.
#[derive(Default)]
pub struct Batch {
    /// The state that they lead to, 0 before there is one.
    pub sequence: u64,
    /// Its place in the order in which batches are written.
    pub place: u64,
    changes: Vec<Change>,
    /// The records of `changes`, in one piece: a thousand small ones would stay with the allocator.
    records: Vec<u8>,
    /// By the number of the entry, what is known of accounts: places in `account_text`.
    accounts: BTreeMap<u32, Range<usize>>,
    account_text: Vec<u8>,
    references: Vec<(u32, Range<usize>)>,
    reference_text: Vec<u8>,
    rejected: Vec<(Key, Option<Rejection>)>,
    parts: BTreeMap<u8, Part>,
    next_number: Option<u32>,
}

#[derive(Clone)]
struct Change {
    key: Key,
    number: u32,
    what: What,
}

#[derive(Clone)]
enum What {
    Put(Header, Range<usize>),
    Seen(Header),
    Removed,
}

impl Batch {
    /// The entry is this now.
    pub fn put(&mut self, key: Key, header: Header, record: &[u8]) {
        let start = self.records.len();
        self.records.extend_from_slice(record);
        let what = What::Put(header, start..self.records.len());
        self.changes.push(Change { key, number: header.number, what });
    }

    /// The entry is what it was, and has been seen.
    pub fn seen(&mut self, key: Key, header: Header) {
        self.changes.push(Change { key, number: header.number, what: What::Seen(header) });
    }

    /// This is known of the account of an entry that is [`put`](Self::put).
    pub fn account(&mut self, number: u32, account: &[u8]) {
        let start = self.account_text.len();
        self.account_text.extend_from_slice(account);
        self.accounts.insert(number, start..self.account_text.len());
    }

    /// What it says of an entry's account: nothing, that it is gone, or this.
    #[must_use]
    pub fn account_of(&self, number: u32) -> Option<Option<&[u8]>> {
        if let Some(place) = self.accounts.get(&number) {
            return Some(Some(&self.account_text[place.clone()]));
        }
        let is_gone =
            |change: &Change| change.number == number && matches!(change.what, What::Removed);
        self.changes.iter().any(is_gone).then_some(None)
    }

    /// The entry is gone.
    pub fn removed(&mut self, key: Key, number: u32) {
        self.accounts.remove(&number);
        self.changes.push(Change { key, number, what: What::Removed });
    }

    /// The number stands for a reference that is new.
    pub fn reference(&mut self, number: u32, reference: &[u8]) {
        let start = self.reference_text.len();
        self.reference_text.extend_from_slice(reference);
        self.references.push((number, start..self.reference_text.len()));
    }

    /// The entry is rejected, or not any more.
    pub fn rejected(&mut self, key: Key, why: Option<Rejection>) {
        self.rejected.push((key, why));
    }

    /// So far the search has come.
    pub fn part(&mut self, number: u8, part: Part) {
        self.parts.insert(number, part);
    }

    /// The number that the next new entry gets.
    pub fn next_number(&mut self, number: u32) {
        self.next_number = Some(number);
    }

    /// The number that the next new entry gets, if that is another than before.
    #[must_use]
    pub fn numbers(&self) -> Option<u32> {
        self.next_number
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.references.is_empty()
            && self.rejected.is_empty()
            && self.parts.is_empty()
            && self.next_number.is_none()
    }

    /// How many changes of entries are in it.
    #[must_use]
    pub fn visible(&self) -> usize {
        self.changes.iter().filter(|change| !matches!(change.what, What::Seen(_))).count()
    }

    /// About what it takes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = self.records.len() + self.reference_text.len() + self.account_text.len();
        texts + self.changes.len() * CHANGE_BYTES
    }

    /// The records that it changed, one after the other; `None` for one that is gone.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = (u32, Option<&[u8]>)> {
        self.changes.iter().filter_map(|change| match &change.what {
            What::Put(_, record) => Some((change.number, Some(&self.records[record.clone()]))),
            What::Seen(_) => None,
            What::Removed => Some((change.number, None)),
        })
    }

    /// Writes all of it to the cache.
    pub fn write(&self, writer: &mut Writer<'_>) -> Result<(), StoreError> {
        for (number, place) in &self.references {
            writer.reference(*number, &self.reference_text[place.clone()])?;
        }
        for Change { key, number, what } in &self.changes {
            match what {
                What::Put(header, record) => {
                    writer.put(*key, *header, &self.records[record.clone()])?;
                }
                What::Seen(header) => writer.confirm(*key, *header)?,
                What::Removed => writer.remove(*key, *number)?,
            }
        }
        for (number, place) in &self.accounts {
            writer.account(*number, &self.account_text[place.clone()])?;
        }
        for (key, why) in &self.rejected {
            writer.rejected(*key, why.as_ref())?;
        }
        for (number, part) in &self.parts {
            writer.part(*number, part)?;
        }
        match self.next_number {
            Some(number) => writer.next_number(number),
            None => Ok(()),
        }
    }

    /// Several batches as one that leads to the same: of each entry only the last word.
    #[must_use]
    pub fn joined<'a>(batches: impl Iterator<Item = &'a Self>) -> Self {
        let mut joined = Self::default();
        // An entry that went and came back has two numbers; the smaller goes first.
        let mut last: BTreeMap<(Key, u32), (&Self, &Change)> = BTreeMap::new();
        let mut rejected: BTreeMap<Key, Option<&Rejection>> = BTreeMap::new();
        let mut accounts: BTreeMap<u32, &[u8]> = BTreeMap::new();
        for batch in batches {
            joined.sequence = batch.sequence;
            joined.place = batch.place;
            for (number, place) in &batch.references {
                joined.reference(*number, &batch.reference_text[place.clone()]);
            }
            for change in &batch.changes {
                let earlier =
                    last.get(&(change.key, change.number)).map(|(_, change)| &change.what);
                // A record that is still to be written is worth more than when it was seen.
                if !matches!((earlier, &change.what), (Some(What::Put(..)), What::Seen(_))) {
                    last.insert((change.key, change.number), (batch, change));
                }
            }
            for change in &batch.changes {
                if matches!(change.what, What::Removed) {
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
            match &change.what {
                What::Put(header, record) => {
                    joined.put(change.key, *header, &batch.records[record.clone()]);
                }
                What::Seen(_) | What::Removed => joined.changes.push(change.clone()),
            }
        }
        for (number, account) in accounts {
            joined.account(number, account);
        }
        joined.rejected = rejected.into_iter().map(|(key, why)| (key, why.cloned())).collect();
        joined
    }
}

/// The last changes, for a publisher that has seen those before.
#[derive(Default)]
pub struct Log {
    /// The state that the log leads on from.
    floor: u64,
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
}

impl Log {
    /// An empty log that leads on from this state.
    #[must_use]
    pub fn new(floor: u64) -> Self {
        Self { floor, ..Self::default() }
    }

    /// Adds a batch, and forgets the oldest when there are too many.
    pub fn push(&mut self, batch: Arc<Batch>) {
        self.bytes += batch.bytes();
        self.batches.push_back(batch);
        while self.bytes > LOG_BYTES_MAX || self.batches.len() > LOG_BATCHES_MAX {
            let Some(oldest) = self.batches.pop_front() else { break };
            self.bytes -= oldest.bytes();
            self.floor = oldest.sequence;
        }
    }

    /// The state that the log leads to.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.batches.back().map_or(self.floor, |batch| batch.sequence)
    }

    /// What happened since a state; `None` when that is not known any more.
    #[must_use]
    pub fn since(&self, sequence: u64) -> Option<Vec<Arc<Batch>>> {
        let known = sequence >= self.floor;
        let later = self.batches.iter().filter(|batch| batch.sequence > sequence);
        known.then(|| later.cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u8) -> Key {
        Key { part: 0, id: [id; 16] }
    }

    fn header(number: u32) -> Header {
        Header {
            number,
            kind: 0,
            list: 0,
            reference: 0,
            digest: 0,
            seen_unix: 0,
            list_seen_unix: 0,
        }
    }

    fn records(batch: &Batch) -> Vec<(u32, Option<&[u8]>)> {
        batch.records().collect()
    }

    #[test]
    fn of_joined_batches_the_last_word_counts() {
        let mut first = Batch { sequence: 1, ..Batch::default() };
        first.put(key(1), header(1), b"old");
        first.put(key(2), header(2), b"stays");
        first.put(key(3), header(3), b"goes");
        let mut second = Batch { sequence: 2, ..Batch::default() };
        second.put(key(1), header(1), b"new");
        second.seen(key(2), header(2));
        second.removed(key(3), 3);
        second.put(key(3), header(4), b"is back");
        let joined = Batch::joined([&first, &second].into_iter());
        assert_eq!(joined.sequence, 2);
        let expected: [(u32, Option<&[u8]>); 4] =
            [(1, Some(b"new")), (2, Some(b"stays")), (3, None), (4, Some(b"is back"))];
        assert_eq!(records(&joined), expected);
    }

    #[test]
    fn of_joined_batches_the_last_account_counts() {
        let mut first = Batch { sequence: 1, ..Batch::default() };
        for number in 1..=3 {
            first.put(key(number), header(number.into()), b"record");
            first.account(number.into(), b"old");
        }
        let mut second = Batch { sequence: 2, ..Batch::default() };
        second.put(key(1), header(1), b"record");
        second.account(1, b"newer");
        second.removed(key(2), 2);
        let batch = Batch::joined([&first, &second].into_iter());
        assert_eq!(batch.account_of(1), Some(Some(&b"newer"[..])));
        assert_eq!(batch.account_of(2), Some(None));
        assert_eq!(batch.account_of(3), Some(Some(&b"old"[..])));
        assert_eq!(batch.account_of(4), None);
    }

    #[test]
    fn the_log_knows_what_it_does_not_know() {
        let mut log = Log::new(1);
        for sequence in 2..=4 {
            log.push(Arc::new(Batch { sequence, ..Batch::default() }));
        }
        assert!(log.since(0).is_none());
        assert_eq!(log.since(1).map(|batches| batches.len()), Some(3));
        assert_eq!(log.since(3).map(|batches| batches.len()), Some(1));
        assert_eq!(log.since(4).map(|batches| batches.len()), Some(0));
    }

    #[test]
    fn the_log_is_bounded() {
        let mut log = Log::new(0);
        for sequence in 1..=20 {
            let mut batch = Batch { sequence, ..Batch::default() };
            batch.put(key(1), header(1), &vec![0; 1 << 20]);
            log.push(Arc::new(batch));
        }
        assert!(log.bytes <= LOG_BYTES_MAX);
        assert!(log.since(1).is_none());
        assert!(log.since(19).is_some());
    }
}
