// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the tracks of one connection by the features of its server. `follow_loop` runs them.

use super::Track;
use super::container_watch::ContainerWatch;
use super::dynamic_groups::DynamicGroups;
use super::key_reconciliation::{KeyReconciliation, ReconcileTiming};
use super::poll::Enumeration;
use super::ranges::RangeRetrieval;
use super::stamp_attribute::StampAttribute;
use super::syncrepl::SyncreplSearch;
use super::targeted_reread::TargetedReread;
use crate::connection::{ConnectionSettings, RootDse};
use crate::schema::AttributeMapping;
use crate::search::MirrorSearch;
use crate::server_selection::describe;
use roster_config::{DirectorySchema, LdapConfig, LdapServer};
use roster_request::TrackingMethod;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::time::Instant;

/// Minimum interval of the checks of unusual containers if changes are polled more often.
const UNUSUAL_CONTAINERS_PAUSE: Duration = Duration::from_secs(30);

/// A method of change tracking that a server can offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferedMethod {
    Synchronization,
    PersistentSearch,
    UpdateNumbers,
    Polling,
}

impl OfferedMethod {
    /// Returns the methods that the server offers, the best first.
    pub fn offered(root: &RootDse, schema: DirectorySchema) -> Vec<Self> {
        if schema.is_active_directory() {
            return vec![Self::UpdateNumbers];
        }
        let mut methods = Vec::new();
        if root.sync {
            methods.push(Self::Synchronization);
        }
        if root.persistent_search {
            methods.push(Self::PersistentSearch);
        }
        methods.push(Self::Polling);
        methods
    }

    pub fn tracking_method(self) -> TrackingMethod {
        match self {
            Self::Synchronization => TrackingMethod::Syncrepl,
            Self::PersistentSearch => TrackingMethod::PersistentSearch,
            Self::UpdateNumbers => TrackingMethod::UpdateNumbers,
            Self::Polling => TrackingMethod::Polling,
        }
    }
}

/// A domain's configuration and a server, from which tracks are made.
pub(crate) struct TrackFactory<'a> {
    pub config: &'a LdapConfig,
    pub settings: &'a ConnectionSettings,
    pub mapping: &'a AttributeMapping,
    pub searches: &'a [MirrorSearch],
    /// Counts the searches with entries without readable change stamps.
    pub unstamped: &'a Arc<AtomicUsize>,
    pub server: &'a LdapServer,
    pub root: &'a RootDse,
}

impl TrackFactory<'_> {
    /// Makes the tracks of all searches.
    pub fn make_tracks(&self, method: OfferedMethod) -> Vec<Box<dyn Track>> {
        let searches = || self.searches.iter();
        searches()
            .map(|search| self.change_track(method, search))
            .chain(searches().flat_map(|search| self.companion_tracks(method, search)))
            .chain(self.key_reconciliation(method))
            .chain(searches().filter_map(|search| self.dynamic_groups(method, search)))
            .chain(searches().filter_map(range_retrieval))
            .collect()
    }

    /// Returns the attribute of the keys. Synchronization has its own.
    pub fn key_attribute(&self, method: OfferedMethod) -> String {
        let configured = self.config.attributes.uuid.as_deref();
        let uuid = configured.filter(|_| method != OfferedMethod::Synchronization);
        uuid.unwrap_or_else(|| self.root.uuid_attribute()).to_owned()
    }

    /// Makes the track that follows the changes of a search.
    fn change_track(&self, method: OfferedMethod, search: &MirrorSearch) -> Box<dyn Track> {
        let key = self.key_attribute(method);
        let search = search.clone();
        let page_size = self.page_size();
        match method {
            OfferedMethod::Synchronization => Box::new(self.synchronization(search)),
            OfferedMethod::PersistentSearch => {
                let context = self.root.context(&search.base).to_owned();
                let interval = self.config.sweep;
                Box::new(Enumeration::persistent(search, key, page_size, context, interval))
            }
            OfferedMethod::UpdateNumbers => {
                let (interval, sweep) = (self.config.poll, self.config.sweep);
                Box::new(Enumeration::numbered(search, key, page_size, interval, sweep))
            }
            OfferedMethod::Polling => {
                let stamps = if self.root.usn { "entryUSN" } else { "modifyTimestamp" };
                let interval = self.config.poll;
                let unstamped = Arc::clone(self.unstamped);
                Box::new(Enumeration::polling(search, key, page_size, stamps, interval, unstamped))
            }
        }
    }

    fn synchronization(&self, search: MirrorSearch) -> SyncreplSearch {
        let (server, who) = (describe(self.server), self.settings.bind_identity());
        // Cached entries are results of the mapping.
        let binding =
            format!("{server} as {who} {} read by {:?}", search.description, self.mapping);
        let stamps = StampAttribute::new(self.root.stamp_attribute(), Arc::clone(self.unstamped));
        // A resumption of 389 Directory Server omitted an entry that was added and removed between two connections.
        let misses_removals = self.root.is_389;
        SyncreplSearch::new(search, self.root.uuid_attribute(), stamps, misses_removals, binding)
    }

    /// Makes the tracks that check the containers of a search, and that re-read single groups. They read keys as the
    /// search's main track does.
    fn companion_tracks(
        &self,
        method: OfferedMethod,
        search: &MirrorSearch,
    ) -> [Box<dyn Track>; 2] {
        let key = self.key_attribute(method);
        let rereading = TargetedReread::new(search.clone(), key.clone());
        let searches = self.searches.len();
        let interval = match method {
            OfferedMethod::UpdateNumbers => self.config.poll.max(UNUSUAL_CONTAINERS_PAUSE),
            _ => self.config.poll,
        };
        let watch = ContainerWatch::new(search.clone(), key, interval, searches);
        [Box::new(watch), Box::new(rereading)]
    }

    fn reconcile_timing(&self) -> ReconcileTiming {
        ReconcileTiming { every: self.config.sweep, silence_max: self.config.search_timeout }
    }

    /// Makes the track that reads groups with computed members. 389-ds and Active Directory compute none.
    fn dynamic_groups(
        &self,
        method: OfferedMethod,
        search: &MirrorSearch,
    ) -> Option<Box<dyn Track>> {
        let computes = !self.root.is_389 && !self.config.schema.is_active_directory();
        (search.has_groups() && computes).then(|| -> Box<dyn Track> {
            let (key, timing) = (self.key_attribute(method), self.reconcile_timing());
            Box::new(DynamicGroups::new(search.clone(), key, timing, Instant::now()))
        })
    }

    /// Makes the track that finds the changes that a synchronizing server does not report. Other methods find them
    /// without it.
    fn key_reconciliation(&self, method: OfferedMethod) -> Option<Box<dyn Track>> {
        let (key, stamp) = (self.root.uuid_attribute(), self.root.stamp_attribute());
        (method == OfferedMethod::Synchronization).then(|| -> Box<dyn Track> {
            let (page_size, timing) = (self.page_size(), self.reconcile_timing());
            let now = Instant::now();
            Box::new(KeyReconciliation::new(self.searches, key, stamp, page_size, timing, now))
        })
    }

    /// Entries in a page, if the server supports pages.
    fn page_size(&self) -> Option<u32> {
        self.root.paged.then_some(self.config.page_size).filter(|&size| size > 0)
    }
}

/// Makes the track that completes the lists of a search's groups.
fn range_retrieval(search: &MirrorSearch) -> Option<Box<dyn Track>> {
    search.has_groups().then(|| Box::new(RangeRetrieval::new(search.clone())) as Box<dyn Track>)
}
