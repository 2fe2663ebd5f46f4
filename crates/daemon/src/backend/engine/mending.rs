//! Which groups' lists hold references that entries have left ([`left`](super::super::left)).

use super::super::entries::{Kind, Slot};
use super::super::image::{ImageError, View};
use super::super::left::ALL;
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
    references: BTreeSet<u32>,
    then: Instant,
}

/// What was found in lists.
pub struct Found {
    references: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    then: Instant,
}

/// What is to be read anew.
#[derive(Debug, PartialEq, Eq)]
pub enum InDoubt {
    /// These groups.
    Groups(Vec<(Part, EntryId)>),
    /// Everything.
    Everything,
}

impl Lists {
    /// Looks through them, for which all groups are read from the cache.
    pub fn look(&self) -> Result<Found, ImageError> {
        let Self { view, references, then } = self;
        let mut found = Found { references: BTreeSet::new(), groups: BTreeSet::new(), then: *then };
        view.records(|number, records| {
            for record in Records::bare(records.unwrap_or_default()).flatten() {
                let Record::Group(group) = record else { continue };
                let members = group.members.into_iter().flat_map(Numbers::iter);
                for member in members.filter(|member| references.contains(member)) {
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
            let due = self.state().left.due();
            let wait = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => return,
                // Another may be due earlier.
                () = self.left.notified() => {}
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
        let references = state.left.due_at(then);
        let (epoch, sequence) = (self.epoch, state.sequence);
        let header = Header { flags: 0, epoch, since: 0, sequence, records: 0 };
        Ok(Lists { view: state.everything(header)?, references, then })
    }

    /// What is to be read anew after lists were looked into.
    pub fn looked(&self, found: &Found) -> InDoubt {
        let mut state = self.state();
        let is_all = state.left.due_at(found.then).contains(&ALL);
        let now = Instant::now();
        state.left.looked(found.then, &found.references, now);
        if is_all {
            return InDoubt::Everything;
        }
        if found.groups.len() > GROUPS_MAX {
            let part = state.parts_known().next().unwrap_or_default();
            state.left.note_all(part, now);
            return InDoubt::Groups(Vec::new());
        }
        if found.groups.is_empty() {
            return InDoubt::Groups(Vec::new());
        }
        let is_one = |slot: &&Slot| slot.kind == Kind::Group && found.groups.contains(&slot.number);
        let groups = state.entries.iter().filter(is_one);
        InDoubt::Groups(groups.map(|slot| (Part(slot.key.part), EntryId(slot.key.id))).collect())
    }
}

impl State {
    /// Has the cache know which references are left: a process that comes after this one is to read
    /// the lists too.
    pub(super) fn keep_left(&mut self) {
        for (number, left) in self.left.take_changed() {
            self.parts.entry(number).or_default().lasting.left = left;
            self.part_changed(number);
        }
    }
}
