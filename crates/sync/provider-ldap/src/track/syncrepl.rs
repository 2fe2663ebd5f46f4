// SPDX-License-Identifier: MIT OR Apache-2.0
//! Content synchronization (RFC 4533). The server sends the changes since a cookie, then each change as it happens.
//! Changes of a resumption are accepted only if the server's data continues from the state of the cookie
//! ([`resume_check`](super::resume_check)).
//!
//! OpenLDAP finds the changes by the stamps of entries, as far as the bind DN may read them. A resumption does not
//! report an entry without a readable stamp. With such an entry, the search is never resumed.
//!
//! If the filter names a computed attribute, OpenLDAP evaluates changed entries with the values at the start of the
//! search. Its reports are then only a reason to read the entries. The same is true for groups with computed members,
//! which OpenLDAP reports without their members.

use super::stamp_attribute::StampAttribute;
use super::sync_progress::SyncProgress;
use super::{Track, TrackSink};
use crate::connection::LdapConnection;
use crate::entry_key::{missing_key, read_key};
use crate::error::LdapError;
use crate::filter::EncodedFilter;
use crate::message::{
    LdapRequest, LdapResponse, LdapResult, RawEntry, RequestControl, ResponseOperation,
    SearchRequest, SyncEntryState, SyncInfo, code, oid,
};
use crate::search::MirrorSearch;
use roster_messages::{log, table::directory};
use roster_provider::{EntryId, SyncCookie, UnlistedEntries};
use tokio::time::Instant;

/// A search that is mirrored by content synchronization.
pub(crate) struct SyncreplSearch {
    search: MirrorSearch,
    /// The attribute of the entries' keys.
    key: &'static str,
    stamps: StampAttribute,
    misses_removals: bool,
    phase: SyncPhase,
    progress: SyncProgress,
    /// Entries have moved with a container, and the server does not report which.
    needs_full_listing: bool,
    /// The request of the synchronization. 0 before it is sent.
    id: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncPhase {
    /// The synchronization has not begun.
    Idle {
        /// The previous request, on which the server may still work.
        abandoned: Option<u32>,
    },
    /// The server sends the changes since the cookie, or all entries.
    Refreshing {
        start: RefreshStart,
        /// The server has named all present entries.
        listed: bool,
    },
    /// Entries that the resumption did not report are compared with the directory. These are the unresolved entries, or
    /// all with `whole`, if the server may have omitted removals.
    Checking { whole: bool, unmentioned: UnlistedEntries, id: Option<u32> },
    /// The server reports changes as they happen.
    Following,
}

/// The start of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefreshStart {
    /// The server lists all entries.
    Beginning,
    /// The server sends the changes since the cookie.
    Cookie {
        /// The server reports all removals. With a cookie that OpenLDAP cannot parse, it sends all entries as changes,
        /// and reports no removals.
        reports_removals: bool,
    },
}

impl SyncreplSearch {
    /// Makes the search. `misses_removals` means that the server may omit removals in a resumption. `binding` describes
    /// the circumstances under which a cookie is valid.
    pub fn new(
        search: MirrorSearch,
        key: &'static str,
        stamps: StampAttribute,
        misses_removals: bool,
        binding: String,
    ) -> Self {
        Self {
            search,
            key,
            stamps,
            misses_removals,
            phase: SyncPhase::Idle { abandoned: None },
            progress: SyncProgress::new(binding),
            needs_full_listing: false,
            id: 0,
        }
    }

    fn request<'a>(
        &'a self,
        filter: &'a EncodedFilter,
        attributes: &'a [&'a str],
    ) -> LdapRequest<'a> {
        let base = &self.search.base;
        LdapRequest::Search(SearchRequest {
            base,
            scope: self.search.scope,
            filter,
            attributes,
            entries_max: 0,
        })
    }

    /// Sends the search. It resumes if there is a valid cookie.
    fn begin_refresh(&mut self, connection: &mut LdapConnection, sink: &mut TrackSink) {
        let kept = sink.cookies.bound_value(self.search.id, &self.progress.binding);
        self.progress.resume_from(kept);
        let attributes = self.search.attributes.iter().map(String::as_str);
        let attributes: Vec<&str> = attributes.chain([self.stamps.name]).collect();
        let request = self.request(&self.search.filter, &attributes);
        let cookie = self.progress.cookie();
        let start = cookie.map_or(RefreshStart::Beginning, |cookie| RefreshStart::Cookie {
            reports_removals: is_readable_to_openldap(cookie) && !self.misses_removals,
        });
        self.id = connection.queue(&request, &[RequestControl::Sync(cookie)]);
        self.phase = SyncPhase::Refreshing { start, listed: false };
        sink.begin_refresh(self.search.id, start == RefreshStart::Beginning);
    }

    fn present(&mut self, id: EntryId, sink: &mut TrackSink) {
        if !sink.mark_present(&self.search, id) {
            self.progress.checks.add_unknown(id);
        }
    }

    fn removed(&mut self, id: EntryId, sink: &mut TrackSink) {
        self.progress.note_removed(id);
        self.needs_full_listing |= sink.remove_entry(&self.search, id);
    }

    fn take_cookie(&mut self, cookie: Option<&[u8]>, sink: &mut TrackSink) {
        let Some(value) = cookie else { return };
        self.progress.set_cookie(value);
        self.report_cookie(sink);
    }

    fn report_cookie(&mut self, sink: &mut TrackSink) {
        let part = self.search.id;
        if self.phase != SyncPhase::Following
            || !self.progress.is_cookie_pending()
            || sink.rereads.is_waiting(part)
        {
            return;
        }
        self.progress.mark_reported();
        if let Some(cookie) = self.bound_cookie() {
            sink.update_cookie(part, cookie);
        }
    }

    /// Handles an entry that the server reports as changed.
    fn changed(
        &mut self,
        id: EntryId,
        entry: &RawEntry<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        let start = RefreshStart::Beginning;
        let is_listing = self.phase == (SyncPhase::Refreshing { start, listed: false });
        let stamp = self.stamps.read(entry)?;
        self.progress.note_changed(id, stamp, is_listing);
        // 389-ds shows no stamps of the entries that it sends in a resumption.
        if stamp.is_empty() && !self.is_resuming() && self.stamps.note_missing(entry) {
            // Cookies that were stored before are worthless too.
            self.needs_full_listing |= !is_listing;
        }
        let is_hint = self.phase == SyncPhase::Following
            && (self.search.has_computed_attribute
                && sink.adapter.is_user_or_group(&self.search, entry)?
                || sink.adapter.is_dynamic_group(&self.search, entry)?);
        if is_hint {
            sink.entry_may_have_changed(&self.search, id, entry)?;
        } else {
            self.needs_full_listing |= sink.put_entry(&self.search, id, entry, is_listing)?;
        }
        Ok(())
    }

    fn is_resuming(&self) -> bool {
        matches!(self.phase, SyncPhase::Refreshing { start: RefreshStart::Cookie { .. }, .. })
    }

    /// Returns the cookie in its stored form, if a resumption from it can be checked.
    fn bound_cookie(&self) -> Option<SyncCookie> {
        if self.stamps.is_missing() { None } else { self.progress.bound_cookie() }
    }

    fn refreshed(&mut self, start: RefreshStart, listed: bool, sink: &mut TrackSink) {
        let RefreshStart::Cookie { reports_removals } = start else {
            return self.finish_refresh(UnlistedEntries::Missing, sink);
        };
        let checks = &self.progress.checks;
        let whole = checks.has_too_many() || !(listed || reports_removals);
        let unmentioned =
            if listed || whole { UnlistedEntries::Missing } else { UnlistedEntries::Unchanged };
        if !whole && checks.is_empty() {
            return self.checked(unmentioned, sink);
        }
        self.phase = SyncPhase::Checking { whole, unmentioned, id: None };
    }

    fn checked(&mut self, unmentioned: UnlistedEntries, sink: &mut TrackSink) {
        if !self.progress.checks.is_consistent(unmentioned) {
            self.needs_full_listing = true;
            log!(
                INFO,
                &directory::SERVER_DATA_OLDER,
                "server data is older than the last sync (restored from backup?); reading everything"
            );
        }
        self.finish_refresh(unmentioned, sink);
    }

    /// Restarts from the beginning, in place of a search that may still run.
    fn restart(&mut self, sink: &mut TrackSink) {
        sink.cookies.remove(self.search.id);
        self.needs_full_listing = false;
        self.phase = SyncPhase::Idle { abandoned: Some(std::mem::take(&mut self.id)) };
    }

    fn finish_refresh(&mut self, unmentioned: UnlistedEntries, sink: &mut TrackSink) {
        if self.needs_full_listing {
            return self.restart(sink);
        }
        self.phase = SyncPhase::Following;
        self.progress.mark_reported();
        sink.end_refresh(self.search.id, unmentioned, self.bound_cookie());
    }

    fn search_ended(
        &mut self,
        outcome: LdapResult<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        let is_limit =
            matches!(outcome.code, code::TIME_LIMIT | code::SIZE_LIMIT | code::ADMIN_LIMIT);
        // A server rejects a cookie with several codes: syncRefreshRequired, or unwillingToPerform if the cookie is
        // later than the server's restored data.
        if self.is_resuming() && !is_limit && !is_transient(outcome) {
            tracing::info!("the server does not resume ({outcome}); reading everything");
            sink.cookies.remove(self.search.id);
            self.phase = SyncPhase::Idle { abandoned: None };
            return Ok(());
        }
        // Without a cookie there is no other start. An immediate retry would fail in the same way.
        if outcome.code == code::SYNC_REFRESH_REQUIRED {
            sink.cookies.remove(self.search.id);
        }
        Err(super::search_failed(&self.search, outcome))
    }
}

impl Track for SyncreplSearch {
    fn act(&mut self, connection: &mut LdapConnection, sink: &mut TrackSink, _now: Instant) {
        self.needs_full_listing |= sink.signals.take_full_listing(self.search.id);
        if self.needs_full_listing && self.phase == SyncPhase::Following {
            tracing::info!("entries may have moved with their container; reading everything");
            self.restart(sink);
        }
        match self.phase {
            SyncPhase::Idle { abandoned } => {
                if let Some(id) = abandoned {
                    connection.queue(&LdapRequest::Abandon(id), &[]);
                }
                self.begin_refresh(connection, sink);
            }
            SyncPhase::Checking { whole, unmentioned, id: None } => {
                let [class, uid, gid] = sink.adapter.mapping.classifying_attributes();
                let attributes = [self.key, self.stamps.name, class, uid, gid];
                let all = &self.search.filter;
                let id = if whole {
                    connection.queue(&self.request(all, &attributes), &[])
                } else {
                    let doubted = self.progress.checks.filter(self.key);
                    let filter = EncodedFilter::all([all, &doubted]);
                    connection.queue(&self.request(&filter, &attributes), &[])
                };
                self.phase = SyncPhase::Checking { whole, unmentioned, id: Some(id) };
            }
            SyncPhase::Following => self.report_cookie(sink),
            _ => {}
        }
    }

    fn owns(&self, id: u32) -> bool {
        id == self.id
            || matches!(self.phase, SyncPhase::Checking { id: Some(own), .. } if own == id)
    }

    fn handle_response(
        &mut self,
        response: &LdapResponse<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        if response.id != self.id {
            return self.handle_check_response(response, sink);
        }
        match response.operation {
            ResponseOperation::Entry(entry) => {
                let Some(sync) = response.controls.sync_state()? else {
                    return Err(crate::ber::BerError("an entry without its sync state").into());
                };
                let id = EntryId(sync.uuid);
                match sync.state {
                    SyncEntryState::Present => self.present(id, sink),
                    SyncEntryState::Changed => self.changed(id, &entry, sink)?,
                    SyncEntryState::Deleted => self.removed(id, sink),
                }
                self.take_cookie(sync.cookie, sink);
            }
            ResponseOperation::Intermediate(Some(name), Some(value))
                if name == oid::SYNC_INFO.as_bytes() =>
            {
                self.handle_sync_info(SyncInfo::parse(value)?, sink)?;
            }
            ResponseOperation::SearchDone(outcome) => self.search_ended(outcome, sink)?,
            _ => {}
        }
        Ok(())
    }

    fn awaits(&self) -> bool {
        self.phase != SyncPhase::Following
    }

    fn is_settled(&self) -> bool {
        self.phase == SyncPhase::Following && !self.needs_full_listing
    }
}

impl SyncreplSearch {
    fn handle_sync_info(
        &mut self,
        info: SyncInfo<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        match info {
            SyncInfo::NewCookie(cookie) => self.take_cookie(Some(cookie), sink),
            SyncInfo::PhaseOver { present, cookie, done } => {
                self.take_cookie(cookie, sink);
                if let SyncPhase::Refreshing { start, listed } = self.phase {
                    let listed = listed || present;
                    self.phase = SyncPhase::Refreshing { start, listed };
                    if done {
                        self.refreshed(start, listed, sink);
                    }
                }
            }
            SyncInfo::Set { cookie, deleted, uuids } => {
                for uuid in uuids {
                    let id = EntryId(uuid?);
                    if deleted {
                        self.removed(id, sink);
                    } else {
                        self.present(id, sink);
                    }
                }
                self.take_cookie(cookie, sink);
            }
        }
        Ok(())
    }

    fn handle_check_response(
        &mut self,
        response: &LdapResponse<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        let SyncPhase::Checking { whole, unmentioned, .. } = self.phase else { return Ok(()) };
        match response.operation {
            ResponseOperation::Entry(entry) => self.check(&entry, sink)?,
            ResponseOperation::SearchDone(outcome) if outcome.code == code::SUCCESS => {
                self.needs_full_listing |= whole && sink.known.misses_duplicate(self.search.id);
                self.checked(unmentioned, sink);
            }
            ResponseOperation::SearchDone(outcome) if !whole && !is_transient(outcome) => {
                log!(
                    INFO,
                    &directory::ENTRY_INDEX_MISSING,
                    "the server does not find entries by {} ({outcome}); reading everything",
                    self.key
                );
                self.restart(sink);
            }
            ResponseOperation::SearchDone(outcome) => {
                return Err(super::search_failed(&self.search, outcome));
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks an entry with its key, its stamp, and its classifying attributes.
    fn check(&mut self, entry: &RawEntry<'_>, sink: &mut TrackSink) -> Result<(), LdapError> {
        let Some(id) = read_key(entry, self.key)? else {
            return Err(missing_key(entry, self.key));
        };
        self.progress.checks.check_entry(id, self.stamps.read(entry)?);
        if !self.search.owns_found(entry.dn) {
            return Ok(());
        }
        let (_, is_known) = sink.mark_seen(&self.search, id, entry.dn);
        self.needs_full_listing |=
            !is_known && sink.adapter.is_user_or_group(&self.search, entry)?;
        Ok(())
    }
}

/// Returns whether the server may succeed later.
fn is_transient(outcome: LdapResult<'_>) -> bool {
    matches!(outcome.code, code::BUSY | code::UNAVAILABLE)
}

/// Returns whether a cookie has the form of an OpenLDAP cookie.
fn is_readable_to_openldap(cookie: &[u8]) -> bool {
    cookie.windows(4).any(|part| part == b"csn=")
}
