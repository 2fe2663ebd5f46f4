// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the content of the cache at the start of the process. `cache_writer` opens it. This module writes nothing.

use super::super::entry_index::{CachedKind, EntryIndex, EntrySlot, MemberForms};
use super::super::interner::{ReferenceInterner, UsedReferences};
use super::super::on_demand_cache::{CachedEntry, OnDemandCache, SeenTimes};
use super::super::rejected::Rejections;
#[cfg(test)]
use super::NUMBERS_MAX;
use super::PartState;
use super::renumber::renumber;
use roster_config::DomainMode;
use roster_domain_cache::{self as store, CacheError, DomainCache};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

/// Surplus of references below which a search for unused ones is not worthwhile.
const SPARE_REFERENCES: usize = 10_000;

/// Content of the cache at the start of the process.
#[derive(Default)]
pub struct LoadedCache {
    pub(super) parts: BTreeMap<u8, PartState>,
    pub(super) entries: EntryIndex,
    pub(super) references: ReferenceInterner,
    pub(super) rejected: Rejections,
    pub(super) on_demand: OnDemandCache,
    pub(super) next_number: u32,
}

impl LoadedCache {
    /// Makes the content of a cache without entries that assigned all numbers of entries.
    #[cfg(test)]
    pub fn without_free_numbers() -> Self {
        Self { next_number: NUMBERS_MAX, ..Self::default() }
    }

    /// Makes the content of a cache that assigned all numbers of references. The last is of the DN `last`.
    #[cfg(test)]
    pub fn without_free_references() -> Self {
        let mut loaded = Self::default();
        loaded.references.restore(NUMBERS_MAX - 1, b"dlast");
        loaded
    }

    /// Reads the cache. Malformed content counts as damage.
    pub fn read(store: &DomainCache, mode: DomainMode) -> Result<Self, CacheError> {
        renumber(store)?;
        let reader = store.reader()?;
        let mut loaded = Self { next_number: reader.next_number()?, ..Self::default() };
        let mut odd = None;
        let mut seen = HashMap::new();
        reader.entries(|key, header| {
            let Some(kind) = CachedKind::from_number(header.kind) else {
                odd = Some("an entry is of no known kind");
                return;
            };
            let store::EntryHeader { number, reference, digest, seen_unix, list_seen_unix, .. } =
                header;
            if number >= loaded.next_number {
                odd = Some("an entry has a number that was not given out");
            }
            let ways = MemberForms::from_number(header.list);
            loaded.entries.put(EntrySlot {
                key,
                kind,
                forms: ways,
                number,
                reference,
                mark: 0,
                digest,
            });
            loaded.parts.entry(key.search).or_default();
            if mode == DomainMode::OnDemand {
                seen.insert(number, (key, SeenTimes { entry: seen_unix, list: list_seen_unix }));
            }
        })?;
        // Unused references come from removed entries. A few do not matter. They are removed here, because no number is
        // in use yet.
        let references = usize::try_from(reader.references_len()?).unwrap_or(usize::MAX);
        let many = references > 3 * loaded.entries.len() + SPARE_REFERENCES;
        let mut used = many.then(UsedReferences::default);
        if used.is_some() || mode == DomainMode::OnDemand {
            reader.records(|number, records| {
                if let Some(used) = &mut used {
                    used.mark_records(records);
                }
                let Some((key, seen)) = seen.get(&number) else {
                    return ControlFlow::Continue(());
                };
                match CachedEntry::from_records(*key, *seen, records) {
                    Some(answer) => loaded.on_demand.put(number, answer),
                    None => odd = Some("a record is not one"),
                }
                ControlFlow::Continue(())
            })?;
        }
        reader.references(|number, text| {
            if used.as_ref().is_none_or(|used| used.has(number)) {
                loaded.references.restore(number, text);
            }
        })?;
        reader.rejections(|key, rejection| {
            loaded.rejected.add(key, rejection, 0);
        })?;
        reader.search_progress(|number, lasting| {
            loaded.parts.insert(number, PartState { stored: lasting, ..PartState::default() });
        })?;
        if let Some(reason) = odd {
            return Err(store.damaged(reason));
        }
        if let Some(used) = used {
            store.write(|writer| writer.retain_references(|number| used.has(number)))?;
        }
        Ok(loaded)
    }
}
