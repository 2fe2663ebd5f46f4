//! Reads single groups anew, beside whatever follows the changes of a search: their lists may have
//! been changed without a word, as OpenLDAP's overlay refint does when an entry that they name goes.

use super::history::key_value;
use super::{Ear, Track};
use crate::connection::Connection;
use crate::error::Error;
use crate::filter::Filter;
use crate::lock;
use crate::message::{Operation, Request, Response, Scope, SearchRequest, code};
use crate::schema::{PartSearch, entry_id, group_id};
use roster_provider::{EntryId, Part};
use std::collections::BTreeSet;
use std::sync::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Groups that are asked for in one search.
const ASKED_MAX: usize = 100;

/// The groups that are to be read, over whichever connection comes to it.
#[derive(Default)]
pub(crate) struct Wanted {
    groups: Mutex<BTreeSet<(Part, EntryId)>>,
    news: Notify,
}

impl Wanted {
    pub fn add(&self, groups: &[(Part, EntryId)]) {
        lock(&self.groups).extend(groups);
        self.news.notify_one();
    }

    /// Over when some were added.
    pub async fn changed(&self) {
        self.news.notified().await;
    }

    fn some_of(&self, part: Part) -> Vec<EntryId> {
        let groups = lock(&self.groups);
        let ids = groups.iter().filter(|(of, _)| *of == part).map(|(_, id)| *id);
        ids.take(ASKED_MAX).collect()
    }

    fn read(&self, part: Part, ids: &[EntryId]) {
        let mut groups = lock(&self.groups);
        for &id in ids {
            groups.remove(&(part, id));
        }
    }
}

/// Reads groups of one search.
pub(crate) struct Rereading {
    search: PartSearch,
    key: String,
    /// The request on its way, and what it asks for.
    asked: Option<(u32, Vec<EntryId>)>,
}

impl Rereading {
    pub fn new(search: PartSearch, key: String) -> Self {
        Self { search, key, asked: None }
    }

    fn ask(&self, ids: &[EntryId], connection: &mut Connection) -> u32 {
        let keys: Vec<_> = ids.iter().map(|&id| key_value(&self.key, group_id(id))).collect();
        let filter = Filter::all([&self.search.filter, &Filter::equals_any(&self.key, &keys)]);
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
        let Some((_, ids)) = self.asked.take() else { return };
        ear.wanted.read(self.search.part, &ids);
        ear.reading_ended();
        if !matches!(code, code::SUCCESS | code::NO_SUCH_OBJECT) {
            tracing::info!(
                code,
                "the server does not tell of single groups, an index of {} may be missing: everything \
                 is fetched anew",
                self.key
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
        let ids = ear.wanted.some_of(self.search.part);
        if !ids.is_empty() {
            ear.reading_began();
            self.asked = Some((self.ask(&ids, connection), ids));
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
