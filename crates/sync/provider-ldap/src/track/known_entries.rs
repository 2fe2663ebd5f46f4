// SPDX-License-Identifier: MIT OR Apache-2.0
//! The known positions of entries below the bases of a domain's searches, and the entries that share a key. A full
//! listing collects its own set of containers, which replaces the known ones at its end. `containers` and
//! `duplicate_uuid` decide; nothing here is sent.

use super::containers::{ContainerQuery, Containers};
use super::duplicate_uuid::{DuplicateState, DuplicateUuids};
use super::{too_many_containers, too_many_entries};
use crate::dn;
use crate::error::LdapError;
use crate::search::MirrorSearch;
use roster_provider::{EntryId, SearchId};
use std::collections::HashMap;

/// The way in which an entry was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntrySource {
    /// By a full listing.
    Listing,
    /// By a reported change. Entries below it may have come with it.
    Change,
    /// By a read beside the changes.
    Reread,
}

/// The effect of an entry's place on other entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryPlace {
    Served {
        /// Entries below it may have moved with it.
        is_moved: bool,
    },
    /// Another entry has its key and is served.
    Duplicate {
        /// The duplicate key was unknown before.
        is_news: bool,
    },
}

/// The containers of one search.
#[derive(Debug, Default)]
struct SearchContainers {
    known: Containers,
    refresh: RefreshState,
}

/// The refresh of a search.
#[derive(Debug, Default)]
enum RefreshState {
    #[default]
    Over,
    /// A refresh without a full listing.
    Updating,
    /// A full listing, with its containers so far.
    Listing(Box<Containers>),
}

impl SearchContainers {
    /// Returns the containers of the listing in progress, otherwise the known ones.
    fn current(&mut self) -> &mut Containers {
        match &mut self.refresh {
            RefreshState::Listing(listed) => listed,
            RefreshState::Over | RefreshState::Updating => &mut self.known,
        }
    }
}

/// The known entries of all searches.
#[derive(Default)]
pub(crate) struct KnownEntries {
    searches: HashMap<SearchId, SearchContainers>,
    duplicates: DuplicateUuids,
}

impl KnownEntries {
    /// Adds the containers of a stored cookie.
    pub fn restore_containers(&mut self, part: SearchId, known: Containers) {
        self.searches.entry(part).or_default().known = known;
    }

    /// Begins a refresh.
    pub fn begin_refresh(&mut self, part: SearchId, lists_all: bool) {
        let search = self.searches.entry(part).or_default();
        search.refresh = match lists_all {
            true => RefreshState::Listing(Box::new(Containers::listing(Some(&search.known)))),
            false => RefreshState::Updating,
        };
    }

    /// Begins a listing of the keys of all entries.
    pub fn begin_key_listing(&mut self, part: SearchId) {
        self.duplicates.begin_listing(part);
    }

    /// Ends the refresh or the listing of keys. Returns the number of listed entries that are not served.
    pub fn end_refresh(&mut self, part: SearchId) -> usize {
        let search = self.searches.entry(part).or_default();
        if let RefreshState::Listing(mut listed) = std::mem::take(&mut search.refresh) {
            listed.finish_listing();
            search.known = *listed;
        }
        self.duplicates.end_listing(part)
    }

    /// Returns whether a refresh is in progress.
    pub fn is_refreshing(&self, part: SearchId) -> bool {
        let search = self.searches.get(&part);
        search.is_some_and(|search| !matches!(search.refresh, RefreshState::Over))
    }

    /// Returns whether a full listing is in progress.
    pub fn is_listing(&self, part: SearchId) -> bool {
        let search = self.searches.get(&part);
        search.is_some_and(|search| matches!(search.refresh, RefreshState::Listing(_)))
    }

    /// Returns the containers of a search. During a full listing, these are the listed ones.
    pub fn containers(&mut self, part: SearchId) -> &mut Containers {
        self.searches.entry(part).or_default().current()
    }

    /// Queues a check of all known containers, because they may have changed while no connection was open.
    pub fn recheck_containers(&mut self, part: SearchId) {
        if let Some(search) = self.searches.get_mut(&part) {
            search.known.recheck_all();
        }
    }

    /// Returns the next query about a container. There is none during a full listing.
    pub fn next_container_query(&mut self, part: SearchId) -> Option<ContainerQuery> {
        if self.is_listing(part) { None } else { self.containers(part).next_query() }
    }

    /// Records the position of an entry with this name in canonical form. Returns `true` if entries below it may have
    /// moved.
    pub fn place_entry(
        &mut self,
        search: &MirrorSearch,
        id: EntryId,
        name: &[u8],
        is_container: bool,
        source: EntrySource,
    ) -> Result<EntryPlace, LdapError> {
        let is_listing = source == EntrySource::Listing;
        let state = self
            .duplicates
            .classify(search.id, id, name, is_listing)
            .map_err(|limit| too_many_entries(search, limit))?;
        let full = |_| too_many_containers(search);
        let containers = self.containers(search.id);
        if !is_container {
            containers.occupy(name, search.normalised_base()).map_err(full)?;
        }
        if let DuplicateState::Duplicate { is_news } = state {
            return Ok(EntryPlace::Duplicate { is_news });
        }
        let is_new = is_container && source == EntrySource::Change;
        let is_moved = containers.update_entry(id, name, is_container, is_new).map_err(full)?;
        Ok(EntryPlace::Served { is_moved })
    }

    /// Records the name of a changed entry. With `has_moved`, entries below it may have come with it. Returns `true` if
    /// a full listing is necessary.
    pub fn update_name(
        &mut self,
        search: &MirrorSearch,
        id: EntryId,
        name: &[u8],
        has_moved: bool,
    ) -> Result<bool, LdapError> {
        let name = dn::normalise(name);
        let updated = self.containers(search.id).update_entry(id, &name, has_moved, has_moved);
        updated.map_err(|_| too_many_containers(search))
    }

    /// Returns whether the entry is in its known container.
    pub fn expects(&mut self, search: &MirrorSearch, id: EntryId, name: &[u8]) -> bool {
        self.containers(search.id).expects(id, &dn::normalise(name), search.normalised_base())
    }

    /// The key by which an entry is reported.
    pub fn key(&self, part: SearchId, id: EntryId, name: &[u8]) -> EntryId {
        self.duplicates.key(part, id, &dn::normalise(name))
    }

    /// Notes that a listing of keys shows the entry. Returns the key by which it is reported.
    pub fn note_seen(&mut self, part: SearchId, id: EntryId, name: &[u8]) -> EntryId {
        self.duplicates.note_seen(part, id, &dn::normalise(name))
    }

    /// The keys by which the other entries with this key are reported.
    pub fn duplicates(&self, part: SearchId, id: EntryId) -> impl Iterator<Item = EntryId> {
        self.duplicates.others(part, id)
    }

    /// Whether a listing of keys has left out one of several entries with one key: another may have to be
    /// served.
    pub fn misses_duplicate(&self, part: SearchId) -> bool {
        self.duplicates.misses_any(part)
    }

    /// Forgets which entries share this key. Returns whether any did.
    pub fn forget_duplicates(&mut self, part: SearchId, id: EntryId) -> bool {
        self.duplicates.removed(part, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: SearchId = SearchId(0);

    #[test]
    fn known_entries_listed_containers_replace_known() {
        let mut known = KnownEntries::default();
        known.begin_refresh(PART, true);
        assert!(known.is_listing(PART) && known.is_refreshing(PART));
        let listed = known.containers(PART);
        listed.occupy(b"uid=alice,ou=people,dc=example", b"dc=example").expect("room");
        assert_eq!(known.next_container_query(PART), None, "the listing is not over");
        assert_eq!(known.end_refresh(PART), 0);
        assert!(!known.is_listing(PART) && !known.is_refreshing(PART));
        assert!(known.next_container_query(PART).is_some());
    }

    #[test]
    fn known_entries_resumed_refresh_keeps_containers() {
        let mut known = KnownEntries::default();
        known
            .containers(PART)
            .occupy(b"uid=alice,ou=people,dc=example", b"dc=example")
            .expect("room");
        known.begin_refresh(PART, true);
        known.begin_refresh(PART, false);
        assert!(known.is_refreshing(PART) && !known.is_listing(PART));
        known.end_refresh(PART);
        assert!(known.next_container_query(PART).is_some());
    }
}
