// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes entries to the backend. The mapping converts them to users and groups, and the backend's sink receives these.
//! A group with a partially received list of members waits for its rest. `schema` has the mapping, and `track_sink`
//! calls this module.

use super::duplicate_uuid::duplicate_id;
use super::foreign_members::ForeignMembers;
use super::incomplete_groups::{IncompleteGroup, IncompleteGroups};
use crate::ber::BerError;
use crate::message::{RawEntry, printable};
use crate::schema::{AttributeMapping, PartialGroup, group_id};
use crate::search::{EntryKind, MirrorSearch, has_dynamic_class};
use roster_messages::table::directory;
use roster_provider::reason::Reason;
use roster_provider::{
    DirectoryEntry, EntryId, EntrySink, SearchId, SyncCookie, UnlistedEntries, UnreadableEntry,
};
use std::sync::Arc;

/// The sink and the mapping, with the changes that are not published yet.
pub(crate) struct SinkAdapter {
    sink: Arc<dyn EntrySink>,
    pub(super) mapping: Arc<AttributeMapping>,
    pub(super) incomplete_groups: IncompleteGroups,
    pub foreign_members: ForeignMembers,
    is_changed: bool,
}

impl SinkAdapter {
    pub fn new(sink: Arc<dyn EntrySink>, mapping: Arc<AttributeMapping>) -> Self {
        Self {
            sink,
            mapping,
            incomplete_groups: IncompleteGroups::default(),
            foreign_members: ForeignMembers::default(),
            is_changed: false,
        }
    }

    /// Returns whether the sink accepts more entries.
    pub fn has_capacity(&self) -> bool {
        self.sink.has_capacity()
    }

    /// Publishes the changes since the last call, if there are any.
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.is_changed) {
            self.sink.flush();
        }
    }

    /// Classifies an entry of the search as user, group or container.
    pub fn classify(
        &self,
        search: &MirrorSearch,
        entry: &RawEntry<'_>,
    ) -> Result<EntryKind, BerError> {
        search.classify(entry, &self.mapping)
    }

    /// Returns whether an entry is a user or a group, by [`AttributeMapping::classifying_attributes`] alone.
    pub fn is_user_or_group(
        &self,
        search: &MirrorSearch,
        entry: &RawEntry<'_>,
    ) -> Result<bool, BerError> {
        let kind = self.classify(search, entry)?;
        Ok(kind.user || kind.group)
    }

    /// Returns whether an entry is a group with computed members.
    pub fn is_dynamic_group(
        &self,
        search: &MirrorSearch,
        entry: &RawEntry<'_>,
    ) -> Result<bool, BerError> {
        Ok(has_dynamic_class(entry)? && self.classify(search, entry)?.group)
    }

    /// Begins a listing of entries. Entries that it does not list are missing at its end.
    pub fn begin_refresh(&self, part: SearchId) {
        self.sink.refresh_began(part);
    }

    /// Ends the listing.
    pub fn end_refresh(
        &mut self,
        part: SearchId,
        unlisted: UnlistedEntries,
        cookie: Option<SyncCookie>,
    ) {
        self.is_changed = true;
        self.sink.refresh_ended(part, unlisted, cookie);
    }

    /// Stores a cookie with the entries before it. `None` stores no cookie, but still publishes these entries.
    pub fn store_cookie(&mut self, part: SearchId, cookie: Option<SyncCookie>) {
        self.is_changed = true;
        if let Some(cookie) = cookie {
            self.sink.cookie(part, cookie);
        }
    }

    /// Reports an entry of this kind. It also removes a former user or group of the entry, unless the search
    /// `lists_all`: the end of a full listing does that.
    pub fn put_entry(
        &mut self,
        search: &MirrorSearch,
        id: EntryId,
        entry: &RawEntry<'_>,
        kind: EntryKind,
        lists_all: bool,
    ) -> Result<(), BerError> {
        self.is_changed = true;
        let part = search.id;
        if kind.user {
            match self.mapping.user(entry)? {
                Ok(user) => self.sink.put(part, id, DirectoryEntry::User(user)),
                Err(reason) => self.reject(part, id, entry.dn, b"", &reason),
            }
        } else if search.has_users() && !lists_all {
            self.sink.removed(part, id);
        }
        let group = group_id(id);
        self.incomplete_groups.remove(part, group);
        if kind.group {
            self.put_group(part, group, entry)?;
        } else if search.has_groups() && !lists_all {
            self.sink.removed(part, group);
        }
        Ok(())
    }

    fn put_group(
        &mut self,
        part: SearchId,
        id: EntryId,
        entry: &RawEntry<'_>,
    ) -> Result<(), BerError> {
        match self.mapping.group(entry, true)? {
            Ok(PartialGroup { group, rest, .. }) if rest.is_empty() => {
                self.foreign_members.note_group(part, id, group.members.as_deref());
                self.sink.put(part, id, DirectoryEntry::Group(group));
            }
            Ok(partial) => {
                // The group is unchanged until the rest arrives.
                self.sink.present(part, id);
                self.incomplete_groups.begin(part, id, entry.dn, partial);
            }
            Err(reason) => {
                self.reject(part, id, entry.dn, &self.mapping.reference(entry), &reason);
            }
        }
        Ok(())
    }

    /// Rejects an entry because another one with its key is served.
    pub fn reject_duplicate(
        &mut self,
        part: SearchId,
        id: EntryId,
        name: &[u8],
        entry: &RawEntry<'_>,
        kind: EntryKind,
    ) {
        self.is_changed = true;
        let text = format!("the entry has UUID {id} of another entry, which is served");
        let reason = Reason::new(&directory::DUPLICATE_UUID, text);
        let reference = if kind.group { self.mapping.reference(entry) } else { b"".into() };
        self.reject(part, duplicate_id(id, name), entry.dn, &reference, &reason);
    }

    fn reject(&self, part: SearchId, id: EntryId, dn: &[u8], reference: &[u8], reason: &Reason) {
        let rejected = UnreadableEntry { name: &printable(dn), reference, reason };
        self.sink.rejected(part, id, &rejected);
    }

    /// Reports that the entry exists. Returns whether the sink has it.
    pub fn mark_present(&self, search: &MirrorSearch, id: EntryId) -> bool {
        let is_user = search.has_users() && self.sink.present(search.id, id);
        let is_group = search.has_groups() && self.sink.present(search.id, group_id(id));
        is_user || is_group
    }

    /// Reports that an entry exists which is not served.
    pub fn mark_duplicate_present(&self, part: SearchId, id: EntryId) {
        self.sink.present(part, id);
    }

    /// Reports that the server has removed the entry.
    pub fn remove_entry(&mut self, search: &MirrorSearch, id: EntryId) {
        self.drop_entry(search, id, EntrySink::removed);
    }

    /// Reports that a read succeeded without the entry.
    pub fn mark_missing(&mut self, search: &MirrorSearch, id: EntryId) {
        self.drop_entry(search, id, EntrySink::missing);
    }

    fn drop_entry(
        &mut self,
        search: &MirrorSearch,
        id: EntryId,
        report: impl Fn(&(dyn EntrySink + 'static), SearchId, EntryId),
    ) {
        self.is_changed = true;
        if search.has_users() {
            report(&*self.sink, search.id, id);
        }
        if search.has_groups() {
            self.incomplete_groups.remove(search.id, group_id(id));
            self.foreign_members.remove(search.id, group_id(id));
            report(&*self.sink, search.id, group_id(id));
        }
    }

    /// Sends a group with a completed list of members.
    pub fn put_completed_group(&mut self, part: SearchId, id: EntryId) {
        if let Some(IncompleteGroup { group, .. }) = self.incomplete_groups.remove(part, id) {
            self.is_changed = true;
            self.foreign_members.note_group(part, id, group.members.as_deref());
            self.sink.put(part, id, DirectoryEntry::Group(group));
        }
    }

    /// Rejects a group with an unreadable rest of its members.
    pub fn reject_incomplete_group(&mut self, part: SearchId, id: EntryId, reason: &Reason) {
        if let Some(IncompleteGroup { dn, group, .. }) = self.incomplete_groups.remove(part, id) {
            self.is_changed = true;
            self.reject(part, id, &dn, &group.reference, reason);
        }
    }
}
