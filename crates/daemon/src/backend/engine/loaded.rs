//! What was in the cache when the process began.

use super::super::asked::{Answer, Asked, Seen};
use super::super::entries::{Entries, Kind, Slot, Ways};
use super::super::references::{References, Used};
use super::super::rejected::Rejections;
use super::PartState;
use super::renumber::renumber;
use roster_config::Mode;
use roster_store::{self as store, Store, StoreError};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

/// References that are not worth looking for those among them that nothing holds any more.
const SPARE_REFERENCES: usize = 10_000;

/// What was in the cache when the process began.
#[derive(Default)]
pub struct Loaded {
    pub(super) parts: BTreeMap<u8, PartState>,
    pub(super) entries: Entries,
    pub(super) references: References,
    pub(super) rejected: Rejections,
    pub(super) asked: Asked,
    pub(super) next_number: u32,
}

impl Loaded {
    /// Reads the cache; what makes no sense is damage.
    pub fn read(store: &Store, mode: Mode) -> Result<Self, StoreError> {
        renumber(store)?;
        let reader = store.reader()?;
        let mut loaded = Self { next_number: reader.next_number()?, ..Self::default() };
        let mut odd = None;
        let mut seen = HashMap::new();
        reader.entries(|key, header| {
            let Some(kind) = Kind::from_number(header.kind) else {
                odd = Some("an entry is of no known kind");
                return;
            };
            let store::Header { number, reference, digest, seen_unix, list_seen_unix, .. } = header;
            if number >= loaded.next_number {
                odd = Some("an entry has a number that was not given out");
            }
            let ways = Ways::from_number(header.list);
            loaded.entries.put(Slot { key, kind, ways, number, reference, mark: 0, digest });
            loaded.parts.entry(key.part).or_default();
            if mode == Mode::OnDemand {
                seen.insert(number, (key, Seen { entry: seen_unix, list: list_seen_unix }));
            }
        })?;
        // References that no record holds any more come from entries that are gone. A few are no
        // matter; the place to clear them up is here, where nobody holds a number yet.
        let references = usize::try_from(reader.references_len()?).unwrap_or(usize::MAX);
        let many = references > 3 * loaded.entries.len() + SPARE_REFERENCES;
        let mut used = many.then(Used::default);
        if used.is_some() || mode == Mode::OnDemand {
            reader.records(|number, records| {
                if let Some(used) = &mut used {
                    used.add(records);
                }
                let Some((key, seen)) = seen.get(&number) else {
                    return ControlFlow::Continue(());
                };
                match Answer::read(*key, *seen, records) {
                    Some(answer) => loaded.asked.put(number, answer),
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
        reader.rejected(|key, rejection| {
            loaded.rejected.add(key, rejection, 0);
        })?;
        reader.parts(|number, lasting| {
            loaded.parts.insert(number, PartState { lasting, ..PartState::default() });
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
