// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completes groups with partially received lists of members. Active Directory answers with `member;range=0-1499` if a
//! group has more members. The client then requests the rest, piece by piece.
//!
//! A group is reported after its list is complete, and nothing is published before. A list that stays incomplete makes
//! the group unreadable. A server that is only busy makes it wait for the next connection. If the group changes meanwhile, its positions move, and its lists are read from the beginning.
//! `schema` reads the ranges. `lookup` does the same for single lookups.

use super::{Track, TrackSink, search_failed};
use crate::connection::LdapConnection;
use crate::error::LdapError;
use crate::filter::EncodedFilter;
use crate::message::{LdapRequest, LdapResponse, ResponseOperation, Scope, SearchRequest, code};
use crate::schema::{ReadResult, RemainingMembers, dn_not_utf8, incomplete_list_reason};
use crate::search::MirrorSearch;
use roster_provider::{EntryId, Member};
use tokio::time::Instant;

/// A requested piece of a list.
struct PendingRange {
    request: u32,
    id: EntryId,
    number: u64,
    /// The position at which it begins.
    rest: RemainingMembers,
    /// The reply so far, or the reason that the list stays incomplete.
    received: Option<ReadResult<ReceivedPart>>,
}

/// A piece that arrived.
enum ReceivedPart {
    /// The position of the next piece, or the end of the list.
    Continued(Option<RemainingMembers>),
    /// The group has changed since the pieces before it.
    Outdated,
}

/// Fetches the rest of the lists in one search's groups.
pub(crate) struct RangeRetrieval {
    search: MirrorSearch,
    pending: Option<PendingRange>,
}

impl RangeRetrieval {
    pub fn new(search: MirrorSearch) -> Self {
        Self { search, pending: None }
    }
}

impl Track for RangeRetrieval {
    fn act(&mut self, connection: &mut LdapConnection, sink: &mut TrackSink, _now: Instant) {
        while self.pending.is_none()
            && let Some((id, begun)) = sink.adapter.incomplete_groups.first(self.search.id)
        {
            let Some(&rest) = begun.rest.last() else {
                sink.adapter.put_completed_group(self.search.id, id);
                continue;
            };
            let Ok(base) = std::str::from_utf8(&begun.dn) else {
                sink.adapter.reject_incomplete_group(self.search.id, id, &dn_not_utf8());
                continue;
            };
            let mapping = &sink.adapter.mapping;
            let list = mapping.remaining_members_attribute(rest);
            let attributes: Vec<&str> =
                [&*list].into_iter().chain(mapping.version_attribute()).collect();
            let request = SearchRequest {
                base,
                scope: Scope::Base,
                filter: &EncodedFilter::present("objectClass"),
                attributes: &attributes,
                entries_max: 0,
            };
            let request = connection.queue(&LdapRequest::Search(request), &[]);
            self.pending =
                Some(PendingRange { request, id, number: begun.number, rest, received: None });
        }
    }

    fn owns(&self, id: u32) -> bool {
        self.pending.as_ref().is_some_and(|asked| asked.request == id)
    }

    fn handle_response(
        &mut self,
        response: &LdapResponse<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        let part = self.search.id;
        let Some(asked) = &mut self.pending else { return Ok(()) };
        let groups = &mut sink.adapter.incomplete_groups;
        let Some(begun) = groups.get_numbered(part, asked.id, asked.number) else {
            // The group was changed or removed meanwhile.
            if matches!(response.operation, ResponseOperation::SearchDone(_)) {
                self.pending = None;
            }
            return Ok(());
        };
        match response.operation {
            ResponseOperation::Entry(entry) => {
                let mapping = &sink.adapter.mapping;
                match begun.has_version(mapping.version(&entry)?) {
                    Ok(true) => {}
                    Ok(false) => {
                        asked.received = Some(Ok(ReceivedPart::Outdated));
                        return Ok(());
                    }
                    Err(reason) => {
                        asked.received = Some(Err(reason));
                        return Ok(());
                    }
                }
                let mut shown = Vec::new();
                let next = mapping.members(&entry, asked.rest, &mut shown)?;
                asked.received = Some(next.and_then(|next| {
                    if shown.is_empty() && next.is_some() {
                        return Err(incomplete_list_reason(asked.rest));
                    }
                    let members = begun.group.members.get_or_insert_default();
                    members.extend(shown.into_iter().map(Member::into_owned));
                    Ok(ReceivedPart::Continued(next))
                }));
            }
            ResponseOperation::SearchDone(outcome)
                if asked.received.is_none() && code::TRANSIENT.contains(&outcome.code) =>
            {
                // A new connection requests the list again. The group stays as it is.
                return Err(search_failed(&self.search, outcome));
            }
            ResponseOperation::SearchDone(outcome) => {
                let id = asked.id;
                let told = asked.received.take().unwrap_or_else(|| {
                    let mut reason = incomplete_list_reason(asked.rest);
                    reason.text += &format!(": {outcome}");
                    Err(reason)
                });
                self.pending = None;
                match told {
                    Ok(ReceivedPart::Outdated) => begun.rest = sink.adapter.mapping.whole_lists(),
                    Ok(ReceivedPart::Continued(next)) => {
                        begun.rest.pop();
                        // Without a next piece, the next list follows.
                        begun.rest.extend(next);
                        if begun.rest.is_empty() {
                            sink.adapter.put_completed_group(part, id);
                        }
                    }
                    Err(reason) => sink.adapter.reject_incomplete_group(part, id, &reason),
                }
            }
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
