//! Asks the server about the [folders](super::folders) of one search, beside whatever follows its
//! changes: whether they are where they were, and what is below one that has appeared.

use super::folders::Question;
use super::{Ear, Track};
use crate::connection::Connection;
use crate::error::Error;
use crate::filter::Filter;
use crate::message::{Operation, Request, Response, Scope, SearchRequest, code};
use crate::schema::{PartSearch, entry_id};
use roster_provider::EntryId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Questions on their way: OpenLDAP ends a connection with a hundred.
const ASKED_MAX: usize = 16;

/// A question on its way.
enum Asked {
    Folder { name: Arc<[u8]>, found: Option<EntryId> },
    Below { name: Arc<[u8]> },
}

/// Looks at the folders of one search.
pub(crate) struct Lookout {
    search: PartSearch,
    key: String,
    /// How often those are looked at of which the server does not tell.
    interval: Duration,
    is_awake: bool,
    next: Option<Instant>,
    asked: HashMap<u32, Asked>,
}

impl Lookout {
    pub fn new(search: PartSearch, key: String, interval: Duration) -> Self {
        Self { search, key, interval, is_awake: false, next: None, asked: HashMap::new() }
    }

    fn ask(&mut self, question: Question, connection: &mut Connection) {
        let any = Filter::present("objectClass");
        let (name, scope, filter) = match &question {
            Question::Folder(name) => (name, Scope::Base, &any),
            Question::Below(name) => (name, Scope::Subtree, &self.search.filter),
        };
        // In canonical form what is not text is escaped, but for a name that is no DN.
        let base = String::from_utf8_lossy(name);
        let mut attributes = vec![self.key.as_str()];
        if scope == Scope::Subtree {
            attributes.extend(self.search.attributes.iter().map(String::as_str));
        }
        let request =
            SearchRequest { base: &base, scope, filter, attributes: &attributes, entries_max: 0 };
        let id = connection.queue(&Request::Search(request), &[]);
        let asked = match question {
            Question::Folder(name) => Asked::Folder { name, found: None },
            Question::Below(name) => Asked::Below { name },
        };
        self.asked.insert(id, asked);
    }

    fn answered(&mut self, id: u32, code: u32, ear: &mut Ear) {
        let part = self.search.part;
        match (self.asked.remove(&id), code) {
            (
                Some(Asked::Folder { name, found }),
                code::SUCCESS | code::NO_SUCH_OBJECT | code::INSUFFICIENT_ACCESS,
            ) => ear.looked(part, &name, found),
            // If not, there is a limit perhaps: what is below comes with everything.
            (Some(Asked::Below { name }), code) => {
                let is_whole = matches!(code, code::SUCCESS | code::NO_SUCH_OBJECT);
                ear.read_below(part, &name, is_whole);
            }
            _ => {}
        }
    }
}

impl Track for Lookout {
    fn act(&mut self, connection: &mut Connection, ear: &mut Ear, now: Instant) {
        let part = self.search.part;
        if !std::mem::replace(&mut self.is_awake, true) {
            ear.look_again(part);
        }
        if self.next.is_some_and(|next| now >= next) {
            ear.look_at_unwatched(part);
            self.next = None;
        }
        while self.asked.len() < ASKED_MAX {
            let Some(question) = ear.question(part) else { break };
            self.ask(question, connection);
        }
        if self.asked.is_empty() {
            ear.keep_folders(part);
            if self.next.is_none() && ear.has_unwatched(part) {
                self.next = Some(now + self.interval);
            }
        }
    }

    fn owns(&self, id: u32) -> bool {
        self.asked.contains_key(&id)
    }

    fn hear(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error> {
        match response.operation {
            Operation::Entry(entry) => {
                let key = entry.values(&self.key)?.next().transpose()?.and_then(entry_id);
                match (self.asked.get_mut(&response.id), key) {
                    (Some(Asked::Folder { found, .. }), key) => *found = key,
                    (Some(Asked::Below { .. }), Some(key)) => {
                        ear.read(&self.search, key, &entry)?;
                    }
                    (Some(Asked::Below { .. }), None) => {
                        return Err(super::keyless(&entry, &self.key));
                    }
                    (None, _) => {}
                }
            }
            Operation::SearchDone(outcome) => self.answered(response.id, outcome.code, ear),
            _ => {}
        }
        Ok(())
    }

    fn awaits(&self) -> bool {
        !self.asked.is_empty()
    }

    fn is_settled(&self) -> bool {
        self.asked.is_empty()
    }

    fn due(&self) -> Option<Instant> {
        self.next
    }
}
