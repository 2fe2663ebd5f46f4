//! Completes groups of which the server shows a part of the members: Active Directory answers with
//! `member;range=0-1499` where a group has more, and the client asks for the rest, piece by piece.
//!
//! A group is told of when its list is whole, and nothing is published before. A list that stays in parts
//! makes the group unreadable. `schema` reads the ranges; `look_up` does the same for single lookups.

use super::{Ear, Track};
use crate::connection::Connection;
use crate::error::Error;
use crate::filter::Filter;
use crate::look_up::owned;
use crate::message::{Operation, Request, Response, Scope, SearchRequest, printable};
use crate::schema::{PartSearch, Read, ReadGroup, Rest, no_rest};
use roster_provider::{Entry, EntryId, Group, Member, Part, Rejected};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// Groups with a part of their members.
#[derive(Default)]
pub(crate) struct Unfinished {
    groups: BTreeMap<(Part, EntryId), Begun>,
    /// Counts the groups that began, so that a reply about an earlier state of a group is told apart.
    begun: u64,
}

/// A group with the members that the server has shown so far.
struct Begun {
    number: u64,
    dn: Vec<u8>,
    group: Group<'static>,
    /// The missing parts of lists; the last one is asked for.
    rest: Vec<Rest>,
}

impl Unfinished {
    /// The server has shown a part of the members.
    pub fn begin(&mut self, part: Part, id: EntryId, dn: &[u8], read: ReadGroup<'_>) {
        self.begun += 1;
        let ReadGroup { group, rest } = read;
        let begun = Begun { number: self.begun, dn: dn.to_vec(), group: owned(group), rest };
        self.groups.insert((part, id), begun);
    }

    /// The group has changed: its pieces are out of date.
    pub fn forget(&mut self, part: Part, id: EntryId) {
        self.groups.remove(&(part, id));
    }

    /// Everything of the part is listed anew.
    pub fn forget_all(&mut self, part: Part) {
        self.groups.retain(|(of, _), _| *of != part);
    }

    /// Whether all groups are whole.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    fn first_of(&self, part: Part) -> Option<(EntryId, &Begun)> {
        let mut of_part = self.groups.range((part, EntryId([0; 16]))..);
        of_part.next().filter(|((of, _), _)| *of == part).map(|((_, id), begun)| (*id, begun))
    }
}

/// A piece of a list that is on its way.
struct Asked {
    request: u32,
    id: EntryId,
    number: u64,
    /// The part of a list that it begins.
    rest: Rest,
    /// What the server said so far: where the next piece begins, or why there is none.
    told: Option<Read<Option<Rest>>>,
}

/// Fetches the rest of lists in one search's groups.
pub(crate) struct Ranges {
    search: PartSearch,
    asked: Option<Asked>,
}

impl Ranges {
    pub fn new(search: PartSearch) -> Self {
        Self { search, asked: None }
    }
}

impl Track for Ranges {
    fn act(&mut self, connection: &mut Connection, ear: &mut Ear, _now: Instant) {
        while self.asked.is_none()
            && let Some((id, begun)) = ear.unfinished.first_of(self.search.part)
        {
            let Some(&rest) = begun.rest.last() else {
                ear.completed(self.search.part, id);
                continue;
            };
            let Ok(base) = std::str::from_utf8(&begun.dn) else {
                ear.given_up(self.search.part, id, "its DN is not UTF-8");
                continue;
            };
            let request = SearchRequest {
                base,
                scope: Scope::Base,
                filter: &Filter::present("objectClass"),
                attributes: &[&ear.mapping.rest_of_members(rest)],
                entries_max: 0,
            };
            let request = connection.queue(&Request::Search(request), &[]);
            self.asked = Some(Asked { request, id, number: begun.number, rest, told: None });
        }
    }

    fn owns(&self, id: u32) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.request == id)
    }

    fn hear(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error> {
        let part = self.search.part;
        let Some(asked) = &mut self.asked else { return Ok(()) };
        let current = ear.unfinished.groups.get_mut(&(part, asked.id));
        let Some(begun) = current.filter(|begun| begun.number == asked.number) else {
            // The group has changed or gone meanwhile.
            if matches!(response.operation, Operation::SearchDone(_)) {
                self.asked = None;
            }
            return Ok(());
        };
        match response.operation {
            Operation::Entry(entry) => {
                let mut shown = Vec::new();
                let next = ear.mapping.members(&entry, asked.rest, &mut shown)?;
                asked.told = Some(next.and_then(|next| {
                    if shown.is_empty() && next.is_some() {
                        return Err(no_rest(asked.rest));
                    }
                    let members = begun.group.members.get_or_insert_default();
                    members.extend(shown.into_iter().map(Member::into_owned));
                    Ok(next)
                }));
            }
            Operation::SearchDone(outcome) => {
                let id = asked.id;
                let told = asked
                    .told
                    .take()
                    .unwrap_or_else(|| Err(format!("{}: {outcome}", no_rest(asked.rest))));
                self.asked = None;
                match told {
                    Ok(next) => {
                        begun.rest.pop();
                        // Without a next piece it is another list's turn.
                        begun.rest.extend(next);
                        if begun.rest.is_empty() {
                            ear.completed(part, id);
                        }
                    }
                    Err(reason) => ear.given_up(part, id, &reason),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn awaits(&self) -> bool {
        self.asked.is_some()
    }

    fn is_settled(&self) -> bool {
        self.asked.is_none()
    }
}

impl Ear {
    /// All members of the group are here.
    fn completed(&mut self, part: Part, id: EntryId) {
        if let Some(begun) = self.unfinished.groups.remove(&(part, id)) {
            self.is_changed = true;
            self.sink.put(part, id, Entry::Group(begun.group));
        }
    }

    /// The rest of the group's members cannot be had.
    fn given_up(&mut self, part: Part, id: EntryId, reason: &str) {
        if let Some(Begun { dn, group, .. }) = self.unfinished.groups.remove(&(part, id)) {
            self.is_changed = true;
            let rejected = Rejected { name: &printable(&dn), reference: &group.reference, reason };
            self.sink.rejected(part, id, &rejected);
        }
    }
}
