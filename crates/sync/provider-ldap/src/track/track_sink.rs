// SPDX-License-Identifier: MIT OR Apache-2.0
//! The common sink of the tracks. It passes reports of the server to the known entries, to the other tracks as a
//! signal, and to the backend's sink. `sink_adapter` converts the entries.

use super::concurrent_reads::ConcurrentReads;
use super::containers::ContainerQuery;
use super::known_entries::{EntryPlace, EntrySource, KnownEntries};
use super::reread_queue::{RereadQueue, RereadTarget};
use super::sink_adapter::SinkAdapter;
use super::sync_cookies::SyncCookies;
use super::track_signals::TrackSignals;
use crate::dn;
use crate::error::LdapError;
use crate::message::RawEntry;
use crate::referrals::Referrals;
use crate::schema::AttributeMapping;
use crate::search::{MirrorSearch, has_dynamic_class};
use roster_messages::{log, table::directory};
use roster_provider::{EntryId, EntrySink, SearchId, SyncCookie, UnlistedEntries};
use std::sync::Arc;

/// The state that a domain's tracks share. It outlives connections.
pub(crate) struct TrackSink {
    pub adapter: SinkAdapter,
    pub(super) known: KnownEntries,
    pub(super) cookies: SyncCookies,
    pub(super) signals: TrackSignals,
    pub(super) reads: ConcurrentReads,
    pub(super) rereads: Arc<RereadQueue>,
    pub(super) referrals: Arc<Referrals>,
}

impl TrackSink {
    pub fn new(
        sink: Arc<dyn EntrySink>,
        mapping: Arc<AttributeMapping>,
        rereads: Arc<RereadQueue>,
        referrals: Arc<Referrals>,
        cookies: Vec<(SearchId, SyncCookie)>,
    ) -> Self {
        let (cookies, known) = SyncCookies::restore(cookies);
        Self {
            adapter: SinkAdapter::new(sink, mapping),
            known,
            cookies,
            signals: TrackSignals::default(),
            reads: ConcurrentReads::default(),
            rereads,
            referrals,
        }
    }

    /// Removes all cookies, so that every search starts from the beginning.
    pub fn forget_cookies(&mut self) {
        self.cookies.clear();
    }

    /// Begins a refresh, which lists all entries or resumes.
    pub fn begin_refresh(&mut self, part: SearchId, lists_all: bool) {
        if lists_all {
            self.signals.take_full_listing(part);
            self.adapter.incomplete_groups.remove_all(part);
            self.adapter.foreign_members.remove_all(part);
        }
        self.known.begin_refresh(part, lists_all);
        self.begin_key_listing(part);
    }

    /// Begins a listing of all keys.
    pub fn begin_key_listing(&mut self, part: SearchId) {
        self.known.begin_key_listing(part);
        self.adapter.begin_refresh(part);
    }

    /// Ends a listing of all keys. It has no effect unless it `is_whole`.
    pub fn end_key_listing(&mut self, part: SearchId, is_whole: bool) {
        let unlisted = if is_whole { UnlistedEntries::Missing } else { UnlistedEntries::Unchanged };
        let cookie = self.cookies.get(part).cloned();
        self.end_refresh(part, unlisted, cookie);
    }

    /// Ends a refresh.
    pub fn end_refresh(
        &mut self,
        part: SearchId,
        unlisted: UnlistedEntries,
        cookie: Option<SyncCookie>,
    ) {
        self.cookies.replace(part, cookie.clone());
        let duplicates = self.known.end_refresh(part);
        if duplicates > 0 {
            log!(
                WARN,
                &directory::DUPLICATE_UUIDS,
                duplicates,
                "entries have the UUID of another entry and are not served"
            );
        }
        let kept = cookie.and_then(|cookie| self.add_containers(part, &cookie));
        self.adapter.end_refresh(part, unlisted, kept);
    }

    /// Stores a cookie of the server.
    pub fn update_cookie(&mut self, part: SearchId, cookie: SyncCookie) {
        if self.cookies.get(part) == Some(&cookie) {
            return;
        }
        let kept = self.add_containers(part, &cookie);
        self.adapter.store_cookie(part, kept);
        self.cookies.replace(part, Some(cookie));
    }

    /// Stores the containers that were found since the last cookie.
    pub fn save_containers(&mut self, part: SearchId) {
        if !self.known.is_listing(part)
            && self.known.containers(part).is_changed()
            && let Some(cookie) = self.cookies.get(part).cloned()
            && let Some(kept) = self.add_containers(part, &cookie)
        {
            self.adapter.store_cookie(part, Some(kept));
        }
    }

    /// Returns the cookie with its containers.
    fn add_containers(&mut self, part: SearchId, cookie: &SyncCookie) -> Option<SyncCookie> {
        let value = self.known.containers(part).encode_with_cookie(&cookie.value)?;
        Some(SyncCookie { binding: cookie.binding.clone(), value })
    }

    /// Reports an entry from a full listing or a change. Returns `true` if a full listing is necessary, because entries
    /// below it may have moved, or a second entry has its key.
    pub fn put_entry(
        &mut self,
        search: &MirrorSearch,
        id: EntryId,
        entry: &RawEntry<'_>,
        lists_all: bool,
    ) -> Result<bool, LdapError> {
        if !search.owns_found(entry.dn) {
            // Another search covers the place to which the entry has moved.
            return Ok(!lists_all && self.remove_entry(search, id));
        }
        self.note_change(search.id, id);
        if lists_all {
            return self.report_entry(search, id, entry, EntrySource::Listing);
        }
        self.signals.note_entry_change();
        self.report_entry(search, id, entry, EntrySource::Change)
    }

    /// Requests a read of an entry that may have changed.
    pub fn entry_may_have_changed(
        &mut self,
        search: &MirrorSearch,
        id: EntryId,
        entry: &RawEntry<'_>,
    ) -> Result<(), LdapError> {
        if self.adapter.classify(search, entry)?.group {
            self.signals.note_group_change();
        }
        self.signals.note_entry_change();
        self.request_reread(search.id, [id]);
        Ok(())
    }

    /// Reports an entry from a read beside the changes. A change that was reported meanwhile is newer.
    pub fn put_reread_entry(
        &mut self,
        search: &MirrorSearch,
        id: EntryId,
        entry: &RawEntry<'_>,
    ) -> Result<(), LdapError> {
        if search.owns_found(entry.dn)
            && !self.reads.is_outdated(search.id, id)
            && self.report_entry(search, id, entry, EntrySource::Reread)?
        {
            self.signals.require_full_listing(search.id);
        }
        Ok(())
    }

    fn report_entry(
        &mut self,
        search: &MirrorSearch,
        id: EntryId,
        entry: &RawEntry<'_>,
        source: EntrySource,
    ) -> Result<bool, LdapError> {
        let name = dn::normalise(entry.dn);
        let kind = self.adapter.classify(search, entry)?;
        if kind.group && has_dynamic_class(entry)? {
            self.signals.note_dynamic_group();
        }
        if kind.group && source == EntrySource::Change {
            self.signals.note_group_change();
        }
        let is_container = !kind.user && !kind.group;
        match self.known.place_entry(search, id, &name, is_container, source)? {
            EntryPlace::Duplicate { is_news } => {
                self.adapter.reject_duplicate(search.id, id, &name, entry, kind);
                Ok(is_news)
            }
            EntryPlace::Served { is_moved } => {
                let lists_all = source == EntrySource::Listing;
                self.adapter.put_entry(search, id, entry, kind, lists_all)?;
                Ok(is_moved)
            }
        }
    }

    /// Removes an entry. The result has the meaning as for [`put_entry`](Self::put_entry).
    pub fn remove_entry(&mut self, search: &MirrorSearch, id: EntryId) -> bool {
        self.note_gone(search, id);
        self.adapter.remove_entry(search, id);
        let had_duplicates = self.known.forget_duplicates(search.id, id);
        self.known.containers(search.id).removed(id) || had_duplicates
    }

    /// Reports that a read succeeded without the entry. It does not match any more, unless the reply is incomplete.
    /// Returns `true` if a full listing is necessary.
    pub fn report_missing(&mut self, search: &MirrorSearch, id: EntryId) -> bool {
        self.note_gone(search, id);
        self.adapter.mark_missing(search, id);
        self.known.forget_duplicates(search.id, id)
    }

    fn note_gone(&mut self, search: &MirrorSearch, id: EntryId) {
        self.signals.note_entry_change();
        if search.has_groups() || search.has_computed_attribute {
            self.signals.note_group_change();
        }
        self.note_change(search.id, id);
    }

    fn note_change(&mut self, part: SearchId, id: EntryId) {
        if !self.reads.note_change(part, id) {
            self.signals.require_full_listing(part);
        }
    }

    /// Reports that the entry of this key exists, and all entries with this key. Returns whether the sink has it.
    pub fn mark_present(&self, search: &MirrorSearch, id: EntryId) -> bool {
        for duplicate in self.known.duplicates(search.id, id) {
            self.adapter.mark_duplicate_present(search.id, duplicate);
        }
        self.adapter.mark_present(search, id)
    }

    /// A listing of keys shows the entry. Returns the key by which it is reported, and whether it is known.
    pub fn mark_seen(
        &mut self,
        search: &MirrorSearch,
        id: EntryId,
        name: &[u8],
    ) -> (EntryId, bool) {
        let key = self.known.note_seen(search.id, id, name);
        (key, self.adapter.mark_present(search, key))
    }

    /// Prepares the search for a new connection.
    pub fn reset_connection(&mut self, part: SearchId) {
        self.reads.reset();
        self.known.recheck_containers(part);
    }

    /// Returns the next query about a container. A query for the entries below it is a read beside the changes.
    pub fn next_container_query(&mut self, part: SearchId) -> Option<ContainerQuery> {
        let query = self.known.next_container_query(part);
        if let Some(ContainerQuery::Below(_)) = query {
            self.reads.begin();
        }
        query
    }

    /// Records the entry that is a container, if the server shows it.
    pub fn update_container(&mut self, part: SearchId, name: &[u8], found: Option<EntryId>) {
        if self.known.containers(part).update_container(name, found) {
            self.signals.require_full_listing(part);
        }
    }

    /// Ends a read below a container. `is_whole` means that it returned all entries there.
    pub fn end_subtree_read(&mut self, part: SearchId, name: &[u8], is_whole: bool) {
        self.reads.end();
        if is_whole {
            self.known.containers(part).mark_read(name);
        } else {
            self.signals.require_full_listing(part);
        }
    }

    /// Requests reads of these entries, by their own keys.
    pub fn request_reread(&self, part: SearchId, ids: impl IntoIterator<Item = EntryId>) {
        self.rereads.add(ids.into_iter().map(|id| (part, RereadTarget::Entry(id))));
    }

    /// Returns whether the search is being read, or will be.
    pub fn is_busy(&self, part: SearchId) -> bool {
        self.known.is_refreshing(part)
            || self.reads.is_running()
            || self.signals.requires_full_listing(part)
    }

    /// Returns whether there is nothing left to read beside the work of the tracks.
    pub fn is_settled(&self) -> bool {
        !self.signals.requires_any_listing() && self.adapter.incomplete_groups.is_empty()
    }
}
