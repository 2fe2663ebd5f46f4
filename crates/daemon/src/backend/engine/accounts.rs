//! What log-ins go by: single records and accounts, wherever they are by now, and what changed.

use super::{Engine, NoView, StoreError, View, by_dn};
use roster_bus::exchange::Header;
use std::collections::HashSet;

impl Engine {
    /// What leads from one state of this process to the present one, or everything where that is 0 or too
    /// long ago; none when nothing changed.
    pub fn changes(&self, since: u64) -> Result<Option<View>, NoView> {
        let state = self.state();
        if !state.serving {
            return Err(NoView::Incomplete(None));
        }
        let sequence = state.sequence;
        if since == sequence {
            return Ok(None);
        }
        let mut header = Header { flags: 0, epoch: self.epoch, since, sequence, records: 0 };
        let changes = if since == 0 { None } else { state.log.since(since) };
        if let Some(batches) = changes {
            return Ok(Some(View { header, base: None, batches }));
        }
        header.since = 0;
        state.everything(header).map(Some)
    }

    /// Whether nothing has changed since.
    pub fn is_at(&self, sequence: u64) -> bool {
        let state = self.state();
        state.serving && state.sequence == sequence
    }

    /// Another number whenever the rejected entries have changed.
    pub fn rejection_changes(&self) -> u64 {
        self.state().rejected.changes()
    }

    /// Numbers of the references that lead to groups which are there and cannot be read. `None` where the
    /// rejected groups are too many to be told.
    pub fn unreadable_groups(&self) -> Option<HashSet<u32>> {
        let state = self.state();
        let groups = state.rejected.groups()?;
        Some(groups.filter_map(|dn| state.references.number(&by_dn(dn))).collect())
    }

    /// What is known of an entry's account, see `roster_provider::account`.
    pub fn account(&self, number: u32) -> Result<Option<Vec<u8>>, NoView> {
        self.newest(
            |batch| batch.account_of(number).map(|account| account.map(<[u8]>::to_vec)),
            |reader| reader.account(number),
        )
    }

    /// The records of an entry.
    pub fn record(&self, number: u32) -> Result<Option<Vec<u8>>, NoView> {
        self.newest(
            |batch| {
                let mut records = batch.records().rev();
                let found = records.find(|(other, _)| *other == number);
                found.map(|(_, record)| record.map(<[u8]>::to_vec))
            },
            |reader| reader.record(number),
        )
    }

    /// What the last batch says that says anything, or the cache.
    fn newest<T>(
        &self,
        of_batch: impl Fn(&super::Batch) -> Option<Option<T>>,
        of_cache: impl FnOnce(&roster_store::Reader) -> Result<Option<T>, StoreError>,
    ) -> Result<Option<T>, NoView> {
        let unreadable = |error: StoreError| NoView::Cache(error.to_string());
        let reader = {
            let state = self.state();
            let batches = state.unwritten.iter().map(|batch| &**batch);
            if let Some(said) = batches.chain([&state.open]).rev().find_map(of_batch) {
                return Ok(said);
            }
            match &state.store {
                // Begun under the lock: what is in no batch is in the cache.
                Some(store) => store.reader().map_err(unreadable)?,
                None if state.stored.is_some() => {
                    return Err(NoView::Cache(state.cache_error.clone()));
                }
                None => return Ok(None),
            }
        };
        of_cache(&reader).map_err(unreadable)
    }
}
