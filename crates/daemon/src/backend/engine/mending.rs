//! Which groups' lists may be others than is known ([`doubts`](super::super::doubts)).

use super::super::doubts::{ALL, Due};
use super::super::entries::{Kind, Slot};
use super::super::image::{ImageError, View};
use super::{Engine, NoView, State};
use roster_bus::exchange::{Header, Numbers, Record, Records};
use roster_provider::{EntryId, Part};
use std::collections::BTreeSet;
use std::time::Instant;

/// Groups that are read one by one; of more, everything is.
const GROUPS_MAX: usize = 10_000;

/// Lists to look into, and for what.
pub struct Lists {
    view: View,
    due: Due,
    /// References for which the server is to be asked.
    named: Vec<Vec<u8>>,
    then: Instant,
}

/// What was found in lists.
pub struct Found {
    references: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    named: Vec<Vec<u8>>,
    then: Instant,
}

/// What is to be read anew.
#[derive(Debug, PartialEq, Eq)]
pub enum InDoubt {
    /// These groups, and those in whose lists the server has one of these references.
    Groups(Vec<(Part, EntryId)>, Vec<Vec<u8>>),
    /// Everything.
    Everything,
}

impl Lists {
    /// Looks through them, for which all groups are read from the cache.
    pub fn look(self) -> Result<Found, ImageError> {
        let Self { view, due: Due { sought, .. }, named, then } = self;
        let mut found = Found { references: BTreeSet::new(), groups: BTreeSet::new(), named, then };
        if sought.is_empty() {
            return Ok(found);
        }
        view.records(|number, records| {
            for record in Records::bare(records.unwrap_or_default()).flatten() {
                let Record::Group(group) = record else { continue };
                let members = group.members.into_iter().flat_map(Numbers::iter);
                for member in members.filter(|member| sought.contains(member)) {
                    found.references.insert(member);
                    found.groups.insert(number);
                }
            }
            Ok(())
        })?;
        Ok(found)
    }
}

impl Engine {
    /// Over when lists are to be looked into.
    pub async fn lists_due(&self) {
        loop {
            let due = self.state().doubts.due();
            let wait = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => return,
                // Another may be due earlier.
                () = self.doubts.notified() => {}
            }
        }
    }

    /// The lists, to be looked into without holding anything up.
    pub fn lists(&self) -> Result<Lists, NoView> {
        let state = self.state();
        if !state.serving {
            return Err(NoView::Incomplete(None));
        }
        let then = Instant::now();
        let mut due = state.doubts.due_at(then);
        if !state.entries.has_dns() {
            // A server mends DNs in lists, and no list has any.
            due = Due::default();
        }
        let named = due.asked.iter().filter_map(|&number| state.references.dn(number));
        let named = named.map(<[u8]>::to_vec).collect();
        let (epoch, sequence) = (self.epoch, state.sequence);
        let header = Header { flags: 0, epoch, since: 0, sequence, records: 0 };
        Ok(Lists { view: state.everything(header)?, due, named, then })
    }

    /// What is to be read anew after lists were looked into.
    pub fn looked(&self, found: Found) -> InDoubt {
        let mut state = self.state();
        let is_all = state.doubts.due_at(found.then).sought.contains(&ALL);
        let now = Instant::now();
        state.doubts.looked(found.then, &found.references, now);
        if is_all {
            return InDoubt::Everything;
        }
        if found.groups.len() > GROUPS_MAX {
            let part = state.parts_known().next().unwrap_or_default();
            state.doubts.note_all(part, now);
            return InDoubt::Groups(Vec::new(), Vec::new());
        }
        let is_one = |slot: &&Slot| slot.kind == Kind::Group && found.groups.contains(&slot.number);
        let groups = match found.groups.is_empty() {
            true => Vec::new(),
            false => {
                let groups = state.entries.iter().filter(is_one);
                groups.map(|slot| (Part(slot.key.part), EntryId(slot.key.id))).collect()
            }
        };
        InDoubt::Groups(groups, found.named)
    }
}

impl State {
    /// Has the cache know which references are in doubt: a process that comes after this one is to read
    /// the lists too.
    pub(super) fn keep_doubts(&mut self) {
        for (number, doubts) in self.doubts.take_changed() {
            self.parts.entry(number).or_default().lasting.doubts = doubts;
            self.part_changed(number);
        }
    }
}
