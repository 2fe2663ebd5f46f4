// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads single entries beside the track that follows the changes of a search. These are groups with possibly
//! unreported changes, and entries that [`key_reconciliation`](super::key_reconciliation) found. OpenLDAP's overlay
//! refint, for example, changes groups without a report when a member is removed. Groups are found by their keys or by
//! their members. Entries that are not found are not reported.

use super::reread_queue::RereadTarget;
use super::{Track, TrackSink};
use crate::connection::LdapConnection;
use crate::entry_key::{is_server_attribute, key_values, missing_key, read_key};
use crate::error::LdapError;
use crate::filter::EncodedFilter;
use crate::message::{LdapRequest, LdapResponse, ResponseOperation, SearchRequest, code};
use crate::schema::{AttributeMapping, MemberSyntax};
use crate::search::MirrorSearch;
use roster_messages::{log, table::directory};
use std::slice;
use tokio::time::Instant;

/// Reads entries of one search.
pub(crate) struct TargetedReread {
    search: MirrorSearch,
    key: String,
    /// The pending request and its targets.
    pending: Option<(u32, Vec<RereadTarget>)>,
    /// At least one entry was found.
    has_found: bool,
}

impl TargetedReread {
    pub fn new(search: MirrorSearch, key: String) -> Self {
        Self { search, key, pending: None, has_found: false }
    }

    fn send_search(
        &self,
        wants: &[RereadTarget],
        connection: &mut LdapConnection,
        mapping: &AttributeMapping,
    ) -> u32 {
        let each = wants.iter().map(|want| match want {
            RereadTarget::Entry(id) => {
                EncodedFilter::equals_any(&self.key, &key_values(&self.key, *id))
            }
            RereadTarget::Naming(dn) => {
                EncodedFilter::any(&mapping.filters_naming(MemberSyntax::Dn, slice::from_ref(dn)))
            }
        });
        let each: Vec<EncodedFilter> = each.collect();
        let filter = EncodedFilter::all([&self.search.filter, &EncodedFilter::any(&each)]);
        let attributes = self.search.attributes.iter().chain([&self.key]);
        let attributes: Vec<&str> = attributes.map(String::as_str).collect();
        let request = SearchRequest {
            base: &self.search.base,
            scope: self.search.scope,
            filter: &filter,
            attributes: &attributes,
            entries_max: 0,
        };
        connection.queue(&LdapRequest::Search(request), &[])
    }

    fn search_done(&mut self, code: u32, sink: &mut TrackSink) {
        let Some((_, wants)) = self.pending.take() else { return };
        let has_keys = wants.iter().any(|want| matches!(want, RereadTarget::Entry(_)));
        sink.rereads.finish(self.search.id, wants);
        sink.reads.end();
        let is_blind = has_keys && !self.has_found && !is_server_attribute(&self.key);
        if is_blind || !matches!(code, code::SUCCESS | code::NO_SUCH_OBJECT) {
            log!(
                INFO,
                &directory::ENTRY_INDEX_MISSING,
                result = code,
                "the server does not find entries by {} or {}; reading everything",
                self.key,
                sink.adapter.mapping.members_by(MemberSyntax::Dn).collect::<Vec<_>>().join(" or ")
            );
            sink.signals.require_full_listing(self.search.id);
        }
    }
}

impl Track for TargetedReread {
    /// Sends nothing during a full listing, which brings these entries. Others follow right after it.
    fn act(&mut self, connection: &mut LdapConnection, sink: &mut TrackSink, _now: Instant) {
        if self.pending.is_some() || sink.known.is_listing(self.search.id) {
            return;
        }
        let wants = sink.rereads.take_batch(self.search.id);
        if !wants.is_empty() {
            sink.reads.begin();
            self.has_found = false;
            self.pending =
                Some((self.send_search(&wants, connection, &sink.adapter.mapping), wants));
        }
    }

    fn owns(&self, id: u32) -> bool {
        matches!(self.pending, Some((own, _)) if own == id)
    }

    fn handle_response(
        &mut self,
        response: &LdapResponse<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        match response.operation {
            ResponseOperation::Entry(entry) => {
                let key = read_key(&entry, &self.key)?;
                let key = key.ok_or_else(|| missing_key(&entry, &self.key))?;
                self.has_found = true;
                sink.put_reread_entry(&self.search, key, &entry)?;
            }
            ResponseOperation::SearchDone(outcome) => self.search_done(outcome.code, sink),
            _ => {}
        }
        Ok(())
    }

    fn awaits(&self) -> bool {
        self.pending.is_some()
    }

    fn is_settled(&self) -> bool {
        self.pending.is_none()
    }
}
