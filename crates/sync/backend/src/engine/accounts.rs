// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data for logins: single records and account data from batches or the cache, and changes since a state. `user_index`
//! and `access` evaluate them.

use super::{CacheError, DomainView, Engine, ViewUnavailable, member_by_dn};
use roster_bus::domain_image::ImageHeader;
use std::collections::HashSet;

impl Engine {
    /// Returns the changes from a state of this process to the present one. Returns everything if that state is 0 or
    /// too old. `None` without changes.
    pub fn changes(&self, since: u64) -> Result<Option<DomainView>, ViewUnavailable> {
        let state = self.state();
        if !state.served.is_serving() {
            return Err(ViewUnavailable::Incomplete(None));
        }
        let sequence = state.served.sequence;
        if since == sequence {
            return Ok(None);
        }
        let mut header = ImageHeader { flags: 0, epoch: self.epoch, since, sequence, records: 0 };
        let changes = if since == 0 { None } else { state.served.log.since(since) };
        if let Some(batches) = changes {
            return Ok(Some(DomainView { header, base: None, batches }));
        }
        header.since = 0;
        state.full_view(header).map(Some)
    }

    /// Whether nothing has changed since that state.
    pub fn is_at(&self, sequence: u64) -> bool {
        let state = self.state();
        state.served.is_serving() && state.served.sequence == sequence
    }

    /// Returns a number that differs after each change of the rejected entries.
    pub fn rejection_changes(&self) -> u64 {
        self.state().rejected.changes()
    }

    /// Returns numbers of references to groups that exist and cannot be parsed. `None` if too many rejected groups
    /// exist for a list.
    pub fn unreadable_groups(&self) -> Option<HashSet<u32>> {
        let state = self.state();
        let groups = state.rejected.groups()?;
        Some(groups.filter_map(|dn| state.references.number(&member_by_dn(dn))).collect())
    }

    /// Returns numbers of entries that can no longer be parsed, and are served with old data.
    pub fn served_unreadable(&self) -> HashSet<u32> {
        let state = self.state();
        let kept = state.removals.held.iter().chain(&state.removals.unreadable).flatten();
        let unreadable = kept.filter(|key| state.rejected.contains(**key));
        unreadable.filter_map(|key| Some(state.entries.get(*key)?.number)).collect()
    }

    /// Returns the account data of an entry, see `roster_provider::account`.
    pub fn account(&self, number: u32) -> Result<Option<Vec<u8>>, ViewUnavailable> {
        self.newest(
            |batch| batch.account_of(number).map(|account| account.map(<[u8]>::to_vec)),
            |reader| reader.account(number),
        )
    }

    /// Returns the records of an entry.
    pub fn record(&self, number: u32) -> Result<Option<Vec<u8>>, ViewUnavailable> {
        self.newest(
            |batch| {
                let mut records = batch.records().rev();
                let found = records.find(|(other, _)| *other == number);
                found.map(|(_, record)| record.map(<[u8]>::to_vec))
            },
            |reader| reader.record(number),
        )
    }

    /// Returns the value from the newest batch that has one, otherwise from the cache.
    fn newest<T>(
        &self,
        of_batch: impl Fn(&super::ChangeBatch) -> Option<Option<T>>,
        of_cache: impl FnOnce(&roster_domain_cache::CacheReader) -> Result<Option<T>, CacheError>,
    ) -> Result<Option<T>, ViewUnavailable> {
        let unreadable = |error: CacheError| ViewUnavailable::Cache(error.to_string());
        let reader = {
            let state = self.state();
            let batches = state.batches.unwritten.iter().map(|batch| &**batch);
            if let Some(said) = batches.chain([&state.batches.open]).rev().find_map(of_batch) {
                return Ok(said);
            }
            match &state.cache.store {
                // Opened under the lock: all other batches are in the cache.
                Some(store) => store.reader().map_err(unreadable)?,
                None if state.cache.next_number.is_some() => {
                    return Err(ViewUnavailable::Cache(state.cache.closed_reason()));
                }
                None => return Ok(None),
            }
        };
        of_cache(&reader).map_err(unreadable)
    }
}
