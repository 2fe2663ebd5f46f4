//! Reads single entries beside whatever follows the changes of a search: groups whose lists may have been
//! changed without a word, as OpenLDAP's overlay refint does when an entry that they name goes, by their
//! keys or by whom they name, and what a [sweep](super::sweep) came upon. Of what is not found nothing is
//! said.

use super::history::{is_own, key_values};
use super::{Ear, Track};
use crate::connection::Connection;
use crate::error::Error;
use crate::filter::Filter;
use crate::lock;
use crate::message::{Operation, Request, Response, Scope, SearchRequest, code};
use crate::schema::{By, Mapping, PartSearch, entry_id};
use roster_provider::{EntryId, Part};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::slice;
use std::sync::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Entries that are asked for in one search.
const ASKED_MAX: usize = 100;

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    /// The entry of this key.
    Entry(EntryId),
    /// The groups that list this DN.
    Naming(Vec<u8>),
}

/// The first of all.
const FIRST: Want = Want::Entry(EntryId([0; 16]));

/// The entries that are to be read, over whichever connection comes to it, and whether they are being
/// read.
#[derive(Default)]
pub(crate) struct Wanted {
    entries: Mutex<BTreeMap<(Part, Want), bool>>,
    news: Notify,
}

impl Wanted {
    /// One that is being read already is read again.
    pub fn add(&self, entries: impl IntoIterator<Item = (Part, Want)>) {
        lock(&self.entries).extend(entries.into_iter().map(|entry| (entry, false)));
        self.news.notify_one();
    }

    /// Over when some were added.
    pub async fn changed(&self) {
        self.news.notified().await;
    }

    /// Whether some of the part are still to be read.
    pub fn is_waiting(&self, part: Part) -> bool {
        let entries = lock(&self.entries);
        entries.range((part, FIRST)..).next().is_some_and(|((of, _), _)| *of == part)
    }

    fn take_some_of(&self, part: Part) -> Vec<Want> {
        let mut entries = lock(&self.entries);
        let from_part = entries.range_mut((part, FIRST)..);
        let of_part = from_part.take_while(|((of, _), _)| *of == part).take(ASKED_MAX);
        let read = |((_, want), is_read): (&(Part, Want), &mut bool)| {
            *is_read = true;
            want.clone()
        };
        of_part.map(read).collect()
    }

    fn were_read(&self, part: Part, wants: Vec<Want>) {
        let mut entries = lock(&self.entries);
        for want in wants {
            if let Entry::Occupied(entry) = entries.entry((part, want))
                && *entry.get()
            {
                entry.remove();
            }
        }
    }
}

/// Reads entries of one search.
pub(crate) struct Rereading {
    search: PartSearch,
    key: String,
    /// The request on its way, and what it asks for.
    asked: Option<(u32, Vec<Want>)>,
    /// Something came of it.
    has_found: bool,
}

impl Rereading {
    pub fn new(search: PartSearch, key: String) -> Self {
        Self { search, key, asked: None, has_found: false }
    }

    fn ask(&self, wants: &[Want], connection: &mut Connection, mapping: &Mapping) -> u32 {
        let each = wants.iter().map(|want| match want {
            Want::Entry(id) => Filter::equals_any(&self.key, &key_values(&self.key, *id)),
            Want::Naming(dn) => Filter::any(&mapping.naming(By::Dn, slice::from_ref(dn))),
        });
        let each: Vec<Filter> = each.collect();
        let filter = Filter::all([&self.search.filter, &Filter::any(&each)]);
        let attributes = self.search.attributes.iter().chain([&self.key]);
        let attributes: Vec<&str> = attributes.map(String::as_str).collect();
        let request = SearchRequest {
            base: &self.search.base,
            scope: Scope::Subtree,
            filter: &filter,
            attributes: &attributes,
            entries_max: 0,
        };
        connection.queue(&Request::Search(request), &[])
    }

    fn answered(&mut self, code: u32, ear: &mut Ear) {
        let Some((_, wants)) = self.asked.take() else { return };
        let has_keys = wants.iter().any(|want| matches!(want, Want::Entry(_)));
        ear.wanted.were_read(self.search.part, wants);
        ear.reading_ended();
        let is_blind = has_keys && !self.has_found && !is_own(&self.key);
        if is_blind || !matches!(code, code::SUCCESS | code::NO_SUCH_OBJECT) {
            tracing::info!(
                code,
                "the server does not tell of single entries, an index of {} or {} may be missing: \
                 everything is fetched anew",
                self.key,
                ear.mapping.members_by(By::Dn).collect::<Vec<_>>().join(" or ")
            );
            ear.fall_behind(self.search.part);
        }
    }
}

impl Track for Rereading {
    /// While everything is listed, nothing: what is read comes with it, or right after.
    fn act(&mut self, connection: &mut Connection, ear: &mut Ear, _now: Instant) {
        if self.asked.is_some() || ear.is_listing(self.search.part) {
            return;
        }
        let wants = ear.wanted.take_some_of(self.search.part);
        if !wants.is_empty() {
            ear.reading_began();
            self.has_found = false;
            self.asked = Some((self.ask(&wants, connection, &ear.mapping), wants));
        }
    }

    fn owns(&self, id: u32) -> bool {
        matches!(self.asked, Some((own, _)) if own == id)
    }

    fn hear(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error> {
        match response.operation {
            Operation::Entry(entry) => {
                let key = entry.values(&self.key)?.next().transpose()?.and_then(entry_id);
                let key = key.ok_or_else(|| super::keyless(&entry, &self.key))?;
                self.has_found = true;
                ear.read(&self.search, key, &entry)?;
            }
            Operation::SearchDone(outcome) => self.answered(outcome.code, ear),
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
