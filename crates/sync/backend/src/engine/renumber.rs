// SPDX-License-Identifier: MIT OR Apache-2.0
//! Renumbers entries. Each number is assigned once, and on demand an entry that returns gets a new one, so the numbers
//! would run out. If most of them are unused, the entries get the first numbers, in their old order. A publisher
//! fetches everything from a new process and never sees both. `cache_load` decides whether it is due.

use super::super::entry_index::{CachedKind, EntrySlot, MemberForms};
use super::{digest, entry_header};
use crate::on_demand_cache::SeenTimes;
use roster_bus::domain_image::{self, FieldTooLong, Record, Records};
use roster_domain_cache::{CacheError, DomainCache, EntryHeader, EntryKey};

/// Unused numbers below which a renumbering is not worthwhile.
const SPARE_NUMBERS: usize = 1_000_000;

/// Assigns the first numbers to the entries of the cache, if that is worthwhile.
pub(super) fn renumber(store: &DomainCache) -> Result<(), CacheError> {
    let reader = store.reader()?;
    let mut entries: Vec<(EntryKey, EntryHeader)> = Vec::new();
    reader.entries(|key, header| entries.push((key, header)))?;
    if reader.next_number()? as usize <= 2 * entries.len() + SPARE_NUMBERS {
        return Ok(());
    }
    tracing::info!(entries = entries.len(), "the entries of the cache get new numbers");
    entries.sort_unstable_by_key(|(_, header)| header.number);
    let numbers: Vec<u32> = entries.iter().map(|(_, header)| header.number).collect();
    let odd = || store.damaged("a record is not one");
    store.write(|writer| {
        // Both sequences ascend, so no new number is still in use by a later entry.
        for (new, (key, old)) in (0..).zip(&entries) {
            let before = reader.record(old.number)?.ok_or_else(odd)?;
            let records = renumber_records(&before, new, &numbers).ok_or_else(odd)?;
            let digest = old.digest ^ digest(&before) ^ digest(&records);
            let kind = CachedKind::from_number(old.kind).ok_or_else(odd)?;
            let seen = SeenTimes { entry: old.seen_unix, list: old.list_seen_unix };
            let (key, number, reference) = (*key, new, old.reference);
            let ways = MemberForms::from_number(old.list);
            let slot = EntrySlot { key, kind, forms: ways, number, reference, mark: 0, digest };
            let account = reader.account(old.number)?;
            writer.remove(key, old.number)?;
            writer.put(key, entry_header(&slot, seen), &records)?;
            if let Some(account) = account {
                writer.set_account(new, &account)?;
            }
        }
        writer.set_next_number(u32::try_from(entries.len()).unwrap_or(u32::MAX))
    })
}

/// Returns the records of an entry under its new number. The index of an old number in `numbers` is the new one.
fn renumber_records(records: &[u8], number: u32, numbers: &[u32]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(records.len());
    for record in Records::without_header(records) {
        write_record(&mut out, &record.ok()?, number, numbers).ok()?;
    }
    Some(out)
}

fn write_record(
    out: &mut Vec<u8>,
    old: &Record<'_>,
    number: u32,
    numbers: &[u32],
) -> Result<(), FieldTooLong> {
    match old {
        Record::User(user) => {
            domain_image::write_user(out, &domain_image::UserRecord { number, ..*user })
        }
        Record::Group(group) => {
            let members: Option<Vec<u32>> = group.members.map(|members| members.iter().collect());
            let domain_image::GroupRecord { reference, gid, name, .. } = *group;
            domain_image::write_group(out, number, reference, gid, name, members.as_deref())
        }
        Record::GroupsOf { groups, .. } => {
            let new =
                |old| numbers.binary_search(&old).ok().and_then(|new| u32::try_from(new).ok());
            let groups: Vec<u32> = groups.iter().filter_map(new).collect();
            domain_image::write_groups_of(out, number, &groups)
        }
        Record::Removed { .. } => Ok(()),
    }
}
