//! Numbers are given out once each, and on demand an entry that comes again is a new one: in time they
//! would be used up. When most of them are nobody's, the entries get the first ones, in the order
//! that they had. A publisher fetches everything from a new process and never sees both.

use super::super::entries::{Kind, Slot, Ways};
use super::{digest, header};
use crate::backend::asked::Seen;
use roster_bus::exchange::{self, Record, Records, TooLong};
use roster_store::{Header, Key, Store, StoreError};

/// Numbers that are not worth looking for those among them that nobody has any more.
const SPARE_NUMBERS: usize = 1_000_000;

/// Gives the entries of the cache the first numbers, if that is worth it.
pub(super) fn renumber(store: &Store) -> Result<(), StoreError> {
    let reader = store.reader()?;
    let mut entries: Vec<(Key, Header)> = Vec::new();
    reader.entries(|key, header| entries.push((key, header)))?;
    if reader.next_number()? as usize <= 2 * entries.len() + SPARE_NUMBERS {
        return Ok(());
    }
    tracing::info!(entries = entries.len(), "the entries of the cache get new numbers");
    entries.sort_unstable_by_key(|(_, header)| header.number);
    let numbers: Vec<u32> = entries.iter().map(|(_, header)| header.number).collect();
    let odd = || store.damaged("a record is not one");
    store.write(|writer| {
        // No new number is one that an entry further on has still: they ascend alike.
        for (new, (key, old)) in (0..).zip(&entries) {
            let before = reader.record(old.number)?.ok_or_else(odd)?;
            let records = rewritten(&before, new, &numbers).ok_or_else(odd)?;
            let digest = old.digest ^ digest(&before) ^ digest(&records);
            let kind = Kind::from_number(old.kind).ok_or_else(odd)?;
            let seen = Seen { entry: old.seen_unix, list: old.list_seen_unix };
            let (key, number, reference) = (*key, new, old.reference);
            let ways = Ways::from_number(old.list);
            let slot = Slot { key, kind, ways, number, reference, mark: 0, digest };
            let account = reader.account(old.number)?;
            writer.remove(key, old.number)?;
            writer.put(key, header(&slot, seen), &records)?;
            if let Some(account) = account {
                writer.account(new, &account)?;
            }
        }
        writer.next_number(u32::try_from(entries.len()).unwrap_or(u32::MAX))
    })
}

/// The records of an entry under its new number; a number's place in `numbers` is the new one.
fn rewritten(records: &[u8], number: u32, numbers: &[u32]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(records.len());
    for record in Records::bare(records) {
        write(&mut out, &record.ok()?, number, numbers).ok()?;
    }
    Some(out)
}

fn write(out: &mut Vec<u8>, old: &Record<'_>, number: u32, numbers: &[u32]) -> Result<(), TooLong> {
    match old {
        Record::User(user) => exchange::write_user(out, &exchange::User { number, ..*user }),
        Record::Group(group) => {
            let members: Option<Vec<u32>> = group.members.map(|members| members.iter().collect());
            let exchange::Group { reference, gid, name, .. } = *group;
            exchange::write_group(out, number, reference, gid, name, members.as_deref())
        }
        Record::GroupsOf { groups, .. } => {
            let new =
                |old| numbers.binary_search(&old).ok().and_then(|new| u32::try_from(new).ok());
            let groups: Vec<u32> = groups.iter().filter_map(new).collect();
            exchange::write_groups_of(out, number, &groups)
        }
        Record::Gone { .. } => Ok(()),
    }
}
