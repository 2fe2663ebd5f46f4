// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries the server about the [containers](super::containers) of one search, beside the track that follows its
//! changes. The queries find whether containers are still in place, and which entries are below a new one.

use super::containers::ContainerQuery;
use super::{Track, TrackSink};
use crate::connection::LdapConnection;
use crate::entry_key::{missing_key, read_key};
use crate::error::LdapError;
use crate::filter::EncodedFilter;
use crate::message::{LdapRequest, LdapResponse, ResponseOperation, Scope, SearchRequest, code};
use crate::search::MirrorSearch;
use roster_provider::EntryId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Limit of pending queries of all searches. OpenLDAP closes a connection with a hundred.
const PENDING_MAX: usize = 32;

/// A query without a reply yet.
enum PendingQuery {
    Container { name: Arc<[u8]>, found: Option<EntryId> },
    Below { name: Arc<[u8]> },
}

/// Checks the containers of one search.
pub(crate) struct ContainerWatch {
    search: MirrorSearch,
    key: String,
    /// Interval of the checks of containers for which the server reports no changes.
    interval: Duration,
    /// Limit of its pending queries.
    pending_max: usize,
    is_awake: bool,
    next: Option<Instant>,
    pending: HashMap<u32, PendingQuery>,
}

impl ContainerWatch {
    /// Makes the checks of one of so many searches.
    pub fn new(search: MirrorSearch, key: String, interval: Duration, searches: usize) -> Self {
        let pending_max = (PENDING_MAX / searches.max(2)).max(1);
        let pending = HashMap::new();
        Self { search, key, interval, pending_max, is_awake: false, next: None, pending }
    }

    fn send_query(&mut self, question: ContainerQuery, connection: &mut LdapConnection) {
        let any = EncodedFilter::present("objectClass");
        let (name, scope, filter) = match &question {
            ContainerQuery::Container(name) => (name, Scope::Base, &any),
            // Without a subtree, no entries below belong to the search.
            ContainerQuery::Below(name) if self.search.scope != Scope::Subtree => {
                (name, Scope::Base, &self.search.filter)
            }
            ContainerQuery::Below(name) => (name, Scope::Subtree, &self.search.filter),
        };
        // The canonical form escapes all bytes that are not text, except in an invalid DN.
        let base = String::from_utf8_lossy(name);
        let mut attributes = vec![self.key.as_str()];
        if matches!(question, ContainerQuery::Below(_)) {
            attributes.extend(self.search.attributes.iter().map(String::as_str));
        }
        let request =
            SearchRequest { base: &base, scope, filter, attributes: &attributes, entries_max: 0 };
        let id = connection.queue(&LdapRequest::Search(request), &[]);
        let asked = match question {
            ContainerQuery::Container(name) => PendingQuery::Container { name, found: None },
            ContainerQuery::Below(name) => PendingQuery::Below { name },
        };
        self.pending.insert(id, asked);
    }

    fn query_done(&mut self, id: u32, code: u32, sink: &mut TrackSink) {
        let part = self.search.id;
        match (self.pending.remove(&id), code) {
            (
                Some(PendingQuery::Container { name, found }),
                code::SUCCESS | code::NO_SUCH_OBJECT | code::INSUFFICIENT_ACCESS,
            ) => sink.update_container(part, &name, found),
            // The read may have met a limit. Then the next full listing has the entries below.
            (Some(PendingQuery::Below { name }), code) => {
                let is_whole = matches!(code, code::SUCCESS | code::NO_SUCH_OBJECT);
                sink.end_subtree_read(part, &name, is_whole);
            }
            _ => {}
        }
    }
}

impl Track for ContainerWatch {
    fn act(&mut self, connection: &mut LdapConnection, sink: &mut TrackSink, now: Instant) {
        let part = self.search.id;
        if !std::mem::replace(&mut self.is_awake, true) {
            sink.reset_connection(part);
        }
        if self.next.is_some_and(|next| now >= next) {
            sink.known.containers(part).recheck_unwatched();
            self.next = None;
        }
        while self.pending.len() < self.pending_max {
            let Some(question) = sink.next_container_query(part) else { break };
            self.send_query(question, connection);
        }
        if self.pending.is_empty() {
            sink.save_containers(part);
            if self.next.is_none() && sink.known.containers(part).has_unwatched() {
                self.next = Some(now + self.interval);
            }
        }
    }

    fn owns(&self, id: u32) -> bool {
        self.pending.contains_key(&id)
    }

    fn handle_response(
        &mut self,
        response: &LdapResponse<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        match response.operation {
            ResponseOperation::Entry(entry) => {
                let key = read_key(&entry, &self.key)?;
                match (self.pending.get_mut(&response.id), key) {
                    (Some(PendingQuery::Container { found, .. }), key) => *found = key,
                    (Some(PendingQuery::Below { .. }), Some(key)) => {
                        sink.put_reread_entry(&self.search, key, &entry)?;
                    }
                    (Some(PendingQuery::Below { .. }), None) => {
                        return Err(missing_key(&entry, &self.key));
                    }
                    (None, _) => {}
                }
            }
            ResponseOperation::SearchDone(outcome) => {
                self.query_done(response.id, outcome.code, sink);
            }
            _ => {}
        }
        Ok(())
    }

    fn awaits(&self) -> bool {
        !self.pending.is_empty()
    }

    fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    fn due(&self) -> Option<Instant> {
        self.next
    }
}
