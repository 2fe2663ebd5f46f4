// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `ldap` provider: mirrors an LDAP directory into the sink of a backend, and runs single lookups.
//!
//! [`LdapProvider`] connects to the first usable server and follows changes over that connection (`track`).
//! [`BindAuthenticator`] checks users' passwords by binds. All entries go to the [`EntrySink`] unfiltered: the backend
//! and the publisher decide which of them to cache and serve. This crate does not use the bus. It reads the host's DNS
//! configuration and certificate authorities, and stores the slices of ids from SIDs. It uses no other files.
#![forbid(unsafe_code)]

mod ad_sub_code;
pub mod ber;
mod bind_result;
mod connection;
mod controllers;
pub mod dn;
mod dns_services;
mod entry_key;
mod error;
pub mod filter;
mod filter_text;
mod gssapi;
mod keepalive;
mod lookup;
mod lookup_connection;
pub mod message;
mod netlink_watch;
pub mod netlogon;
mod operation_log;
mod referrals;
mod resolve_host;
pub mod schema;
pub mod search;
mod search_region;
mod server_selection;
mod sid_ids;
mod track;
mod user_bind;

pub use crate::gssapi::GssapiHelper;
pub use crate::resolve_host::RESOLUTIONS_MAX;
#[doc(hidden)] // for the fuzz target
pub use crate::track::reencode_cookie as reread_kept_cookie;
pub use crate::user_bind::BindAuthenticator;

use crate::connection::{ConnectionSettings, LdapConnection, RootDse};
use crate::error::{LdapError, join_reasons};
use crate::keepalive::LivenessTimes;
use crate::lookup::{KeySearch, LoginEntry, LookupSession, Lookups};
use crate::lookup_connection::{LookupConnection, LookupConnector};
use crate::netlink_watch::NetworkWatch;
use crate::referrals::Referrals;
use crate::schema::AttributeMapping;
use crate::search::MirrorSearch;
use crate::server_selection::{
    Backoff, ServerCandidate, ServerFailures, ServerSelection, describe,
};
use crate::track::TrackSink;
use crate::track::follow_loop::{FollowEnd, FollowLoop};
use crate::track::foreign_members::ForeignMembers;
use crate::track::reread_queue::{RereadQueue, RereadTarget};
use crate::track::server_liveness::{FollowedServer, LivenessLimits, ServerLiveness};
use crate::track::track_factory::{OfferedMethod, TrackFactory};
use parking_lot::Mutex;
use roster_config::{
    DirectorySchema, DomainConfig, DomainMode, DomainSecrets, LdapServer,
    ProviderConfig as Configured,
};
use roster_messages::{log, table::directory};
use roster_provider::reason::Reason;
use roster_provider::{
    DirectoryLocation, EntryId, EntrySink, KeySearchResult, LookupError, LookupKeys, LookupQuery,
    LookupScope, Provider, SearchId, SyncCookie,
};
use roster_request::TrackingMethod;
use std::future::pending;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, trace};

/// Minimum duration of a good service. After a good service, the waits between attempts start with the shortest again.
const GOOD_SERVICE_MIN: Duration = Duration::from_secs(5);

/// Consecutive DNS replies without the present server, after which the provider leaves that server.
const DNS_ABSENCES_MAX: u32 = 3;

/// One LDAP domain.
pub struct LdapProvider {
    config: roster_config::LdapConfig,
    settings: ConnectionSettings,
    servers: ServerSelection,
    server_failures: Arc<ServerFailures>,
    mapping: Arc<AttributeMapping>,
    searches: Vec<MirrorSearch>,
    lookups: Lookups,
    lookup_connector: LookupConnector,
    mode: DomainMode,
    sink: Arc<dyn EntrySink>,
    refresh: Notify,
    rereads: Arc<RereadQueue>,
    observed: Observations,
}

/// Facts about the directory on the present connection.
#[derive(Default)]
struct Observations {
    tracking: Mutex<Option<TrackingMethod>>,
    /// The attribute that identifies entries in a mirror.
    mirror_key: Mutex<String>,
    /// Number of searches that returned entries without readable change stamps.
    unstamped: Arc<AtomicUsize>,
    referrals: Arc<Referrals>,
    /// The server that fell silent last, with the reason. The next round tries it after all others.
    silent: Mutex<Option<(String, Reason)>>,
    /// Members of other domains in the mirrored groups.
    foreign_members: Arc<AtomicU64>,
}

/// The reason that a domain cannot be set up at all. Only another configuration fixes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct DomainSetupError {
    reason: String,
}

/// End of the service of one server.
enum ServiceEnd {
    /// The service failed before it was useful, or soon after.
    Failed(LdapError),
    /// The service lasted at least [`GOOD_SERVICE_MIN`] before it failed.
    Lost(LdapError),
    /// The service was stopped in order to make another connection.
    Stopped,
}

impl LdapProvider {
    /// Sets a domain up. `gssapi` makes binds by this host's key. Connects to no server yet.
    pub fn new(
        domain: &DomainConfig,
        secrets: &DomainSecrets,
        sink: Arc<dyn EntrySink>,
        gssapi: Option<Arc<GssapiHelper>>,
    ) -> Result<Self, DomainSetupError> {
        let bad = |reason| DomainSetupError { reason };
        let Configured::Ldap(config) = &domain.provider else {
            return Err(bad("the provider is not ldap".to_owned()));
        };
        let mapping = Arc::new(AttributeMapping::new(domain, config));
        let searches = search::mirror_searches(config, &mapping).map_err(bad)?;
        let look_ups = Lookups::new(config, &searches, Arc::clone(&mapping)).map_err(bad)?;
        let setbacks = Arc::new(ServerFailures::new(config.fail_back));
        let is_tended = domain.mode == DomainMode::OnDemand;
        let plain = look_ups.trial_queries();
        Ok(Self {
            settings: ConnectionSettings::new(config, secrets).map_err(bad)?.with_gssapi(gssapi),
            servers: ServerSelection::new(config),
            lookup_connector: LookupConnector::new(
                config.search_timeout,
                is_tended,
                plain,
                Arc::clone(&setbacks),
            ),
            server_failures: setbacks,
            lookups: look_ups,
            mapping,
            searches,
            mode: domain.mode,
            sink,
            refresh: Notify::new(),
            rereads: Arc::default(),
            observed: Observations::default(),
            config: config.as_ref().clone(),
        })
    }

    /// Stores the slices of ids from SIDs in a file of this directory.
    #[must_use]
    pub fn with_state_directory(self, directory: &Path) -> Self {
        if let Some(sids) = self.mapping.sids() {
            sids.store_in(directory.to_owned());
        }
        self
    }

    /// Connects to a server and follows its changes until that fails or is stopped. `passed_over` has the reason that
    /// servers of higher rank are not used.
    async fn serve(
        &self,
        candidate: &ServerCandidate,
        passed_over: Option<&Reason>,
        track_sink: &mut TrackSink,
        network: &NetworkWatch,
    ) -> ServiceEnd {
        let server = &candidate.server;
        let (mut connection, root) = match self.open_connection(server).await {
            Ok(reached) => reached,
            Err(error) => return ServiceEnd::Failed(error),
        };
        let named = describe(server);
        self.observed.referrals.clear();
        let renew_at = connection.renew_at();
        let stop = async {
            tokio::select! {
                () = self.refresh.notified() => true,
                () = self.wait_for_better_server(&named) => false,
                () = wait_for_renewal(renew_at) => false,
            }
        };
        let is_refresh = AtomicBool::new(false);
        let mut stop = pin!(async { is_refresh.store(stop.await, Ordering::Relaxed) });
        let factory = self.track_factory(server, &root);
        let peer = FollowedServer { server, settings: &self.settings };
        let mut end = FollowEnd::default();
        for method in OfferedMethod::offered(&root, self.config.schema) {
            *self.observed.tracking.lock() = Some(method.tracking_method());
            *self.observed.mirror_key.lock() = factory.key_attribute(method);
            self.observed.unstamped.store(0, Ordering::Relaxed);
            let mut tracks = factory.make_tracks(method);
            let limits = LivenessLimits {
                times: match self.config.controllers {
                    Some(_) => LivenessTimes::CONTROLLERS,
                    None => LivenessTimes::DEFAULT,
                },
                search_timeout: self.config.search_timeout,
            };
            let liveness = ServerLiveness::new(peer, limits, Instant::now());
            let online = || self.sink.online(&named, passed_over);
            end = FollowLoop::new(&mut connection, &mut tracks, track_sink, network, liveness)
                .run(online, stop.as_mut())
                .await;
            match &end.error {
                Some(error) if end.settled.is_none() && error.is_refusal() => {
                    log!(
                        WARN,
                        &directory::TRACKING_REFUSED,
                        server = named,
                        %error,
                        "server advertises {} but rejects it; changes are tracked in another way",
                        method.tracking_method()
                    );
                }
                _ => break,
            }
        }
        if is_refresh.load(Ordering::Relaxed) {
            track_sink.forget_cookies();
        }
        if end.error.is_none() {
            connection.close().await;
        }
        self.record_service_end(end, &named)
    }

    /// Connects to a server. With Active Directory, checks that the server has the domain of the entries.
    async fn open_connection(
        &self,
        server: &LdapServer,
    ) -> Result<(LdapConnection, RootDse), LdapError> {
        let (mut connection, root) = LdapConnection::open(server, &self.settings).await?;
        check_server(&root, self.config.schema).map_err(LdapError::Directory)?;
        let base = self.searches.first().map_or("", |search| &search.base);
        if let Some(sids) = self.mapping.sids() {
            let context = root.context(base);
            let sid = connection.read_domain_sid(context, self.config.search_timeout).await?;
            sids.set_domain(&sid).map_err(LdapError::Directory)?;
        }
        Ok((connection, root))
    }

    fn track_factory<'a>(&'a self, server: &'a LdapServer, root: &'a RootDse) -> TrackFactory<'a> {
        TrackFactory {
            config: &self.config,
            settings: &self.settings,
            mapping: &self.mapping,
            searches: &self.searches,
            unstamped: &self.observed.unstamped,
            server,
            root,
        }
    }

    /// Records in the server selection whether the service was good.
    fn record_service_end(&self, end: FollowEnd, server: &str) -> ServiceEnd {
        let was_good = end.settled.is_some_and(|since| since.elapsed() >= GOOD_SERVICE_MIN);
        match end.error {
            None => ServiceEnd::Stopped,
            Some(error) if was_good => {
                self.server_failures.remove(server);
                ServiceEnd::Lost(error)
            }
            Some(error) => {
                self.server_failures.add(server, Instant::now());
                ServiceEnd::Failed(error)
            }
        }
    }

    /// Tries one server after the other. Returns `Ok` when the next round may start at once, because a good service
    /// ended or another connection is wanted. Returns the reasons when all servers failed.
    async fn try_servers(
        &self,
        track_sink: &mut TrackSink,
        network: &NetworkWatch,
    ) -> Result<(), Reason> {
        let mut candidates = self.servers.list().await;
        let silent = self.observed.silent.lock().take();
        let (silent, mut reasons) = match silent {
            Some((server, reason)) => (Some(server), vec![reason]),
            None => (None, Vec::new()),
        };
        let was_silent = |one: &ServerCandidate| silent.as_ref() == Some(&describe(&one.server));
        candidates.sort_by_key(was_silent);
        for candidate in candidates {
            let server = describe(&candidate.server);
            if was_silent(&candidate) {
                // Its present state counts.
                reasons.remove(0);
            }
            let passed_over = join_reasons(&reasons);
            match self.serve(&candidate, passed_over.as_ref(), track_sink, network).await {
                ServiceEnd::Stopped => return Ok(()),
                ServiceEnd::Failed(error) => {
                    let reason = error.reason(&server);
                    debug!(%reason, "server passed over for the mirror");
                    reasons.push(reason);
                }
                ServiceEnd::Lost(error) => {
                    log!(WARN, error.message(), server = &*server, %error, "connection to the directory lost");
                    if let LdapError::NoReply { .. } = error {
                        // The next attempt may take as long to fail.
                        let reason = error.reason(&server);
                        self.sink.offline(&reason);
                        *self.observed.silent.lock() = Some((server, reason));
                    }
                    return Ok(());
                }
            }
        }
        Err(join_reasons(&reasons).unwrap_or_else(|| self.servers.no_servers_reason()))
    }

    /// Connects the lookups to this server. Fails if the server does not answer plain queries.
    async fn connect_lookups_to(
        &self,
        candidate: &ServerCandidate,
        passed_over: Option<Reason>,
    ) -> Result<LookupConnection, LdapError> {
        let server = &candidate.server;
        let (connection, root) = self.open_connection(server).await?;
        // The searches of a mirror see more referrals than its lookups.
        let referrals = match self.mode {
            DomainMode::OnDemand => Arc::clone(&self.observed.referrals),
            DomainMode::Replicate => Arc::default(),
        };
        referrals.clear();
        let open =
            LookupConnection::spawn(connection, root, &describe(server), passed_over, referrals);
        self.lookup_connector.try_queries(&open).await?;
        Ok(open)
    }

    /// Connects the lookups to the first server that answers them. Servers with recent failures come last.
    async fn connect_lookups(&self) -> Result<LookupConnection, Reason> {
        let mut candidates = self.servers.list().await;
        let now = Instant::now();
        candidates.sort_by_key(|one| !self.server_failures.may_retry(&describe(&one.server), now));
        let mut reasons = Vec::new();
        for candidate in candidates {
            match self.connect_lookups_to(&candidate, join_reasons(&reasons)).await {
                Ok(open) => {
                    trace!(server = &*open.server, "server selected for lookups");
                    return Ok(open);
                }
                Err(error) => {
                    let reason = error.reason(&describe(&candidate.server));
                    debug!(%reason, "server passed over for lookups");
                    reasons.push(reason);
                }
            }
        }
        Err(join_reasons(&reasons).unwrap_or_else(|| self.servers.no_servers_reason()))
    }

    /// Returns the entry of the only user of that name.
    async fn find_user(&self, name: &[u8]) -> Result<Option<LoginEntry>, LookupError> {
        let mut asker = self.lookup_session().await?;
        self.lookups.find_user(&mut asker, name).await
    }

    /// Connects the lookups if they are not connected, because a server is reachable. Ignores a failure: the next
    /// lookup reports it.
    async fn reconnect_lookups(&self) {
        let _ = self.lookup_connector.open(true, || self.connect_lookups()).await;
    }

    async fn lookup_session(&self) -> Result<LookupSession<'_>, LookupError> {
        let open = self.lookup_connector.open(false, || self.connect_lookups()).await;
        Ok(LookupSession { ldap: self, open: open.map_err(LookupError::Unreachable)? })
    }

    /// Maintains the connection of the lookups. This replaces the mirror for a domain in on-demand mode.
    async fn keep_lookups_connected(&self) -> Reason {
        let mut backoff = Backoff::new();
        let network = NetworkWatch::listen();
        *self.observed.tracking.lock() = Some(TrackingMethod::OnDemand);
        loop {
            match self.lookup_connector.open(true, || self.connect_lookups()).await {
                Ok(open) => {
                    self.sink.online(&open.server, open.passed_over.as_deref());
                    let opened = Instant::now();
                    tokio::select! {
                        reason = self.lookup_connector.watch(&open, &network) => {
                            if let Some(reason) = reason {
                                self.sink.offline(&reason);
                            }
                        }
                        () = self.refresh.notified() => self.lookup_connector.drop_connection().await,
                        () = self.wait_for_better_server(&open.server) => self.lookup_connector.drop_connection().await,
                    }
                    if opened.elapsed() >= GOOD_SERVICE_MIN {
                        backoff = Backoff::new();
                        continue;
                    }
                }
                Err(reason) => {
                    self.sink.offline(&reason);
                    self.servers.expire_site();
                }
            }
            tokio::select! {
                () = sleep(backoff.next()) => {}
                () = network.changed() => {}
                () = self.refresh.notified() => {}
            }
        }
    }

    /// Returns when a preferred server is usable. If DNS does not list the present server any more, each other server
    /// is preferred. Several DNS replies must agree, because DNS servers may learn of a change at different times.
    async fn wait_for_better_server(&self, present: &str) {
        if self.servers.is_first(present) {
            pending::<()>().await;
        }
        let mut absences = 0;
        let mut pause = self.config.fail_back;
        loop {
            sleep(pause).await;
            let mut candidates = self.servers.list().await;
            let own = candidates.iter().find(|one| describe(&one.server) == present);
            absences = if own.is_some() { 0 } else { absences + 1 };
            let is_left = absences >= DNS_ABSENCES_MAX;
            let rank = own.map_or(if is_left { usize::MAX } else { 0 }, |own| own.rank);
            candidates.retain(|one| one.rank < rank);
            // Without a preferred server, only another DNS reply can change the result.
            pause = if candidates.is_empty() {
                self.servers.valid_for().max(self.config.fail_back)
            } else {
                self.config.fail_back
            };
            for candidate in candidates {
                let server = describe(&candidate.server);
                if self.server_failures.may_retry(&server, Instant::now())
                    && self.is_good(&candidate).await
                {
                    let why =
                        if is_left { "DNS no longer names it" } else { "another is preferred" };
                    tracing::info!(server, "switching from {present}: {why}");
                    return;
                }
            }
        }
    }

    /// Returns whether the server accepts our bind and our searches, as far as a short trial shows.
    async fn is_good(&self, candidate: &ServerCandidate) -> bool {
        let tried = match self.mode {
            DomainMode::OnDemand => self.connect_lookups_to(candidate, None).await.map(drop),
            DomainMode::Replicate => self.try_searches(&candidate.server).await,
        };
        if let Err(error) = &tried {
            let server = describe(&candidate.server);
            tracing::debug!(server, %error, "a preferred server is not usable");
        }
        tried.is_ok()
    }

    /// Requests one entry of each search from the server.
    async fn try_searches(&self, server: &LdapServer) -> Result<(), LdapError> {
        let (mut connection, _) = self.open_connection(server).await?;
        for MirrorSearch { base, scope, filter, .. } in &self.searches {
            connection.try_search(base, *scope, filter, self.config.search_timeout).await?;
        }
        connection.close().await;
        Ok(())
    }
}

/// Checks that the server is of the kind that the schema requires.
fn check_server(root: &RootDse, schema: DirectorySchema) -> Result<(), Reason> {
    if schema.is_active_directory() && !root.is_active_directory {
        let text = "the server is not Active Directory, as schema = \"ad\" requires";
        return Err(Reason::new(&directory::NOT_ACTIVE_DIRECTORY, text));
    }
    Ok(())
}

/// Returns when the connection should be replaced, because its ticket ends soon.
async fn wait_for_renewal(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
    tracing::info!("making another connection, because the Kerberos ticket of this one ends soon");
}

impl Provider for LdapProvider {
    fn parts(&self) -> Vec<SearchId> {
        self.searches.iter().map(|search| search.id).collect()
    }

    fn source_fingerprint(&self) -> String {
        let searches = self.searches.iter().map(|search| search.description.as_str());
        format!("{} read by {:?}", searches.collect::<Vec<_>>().join(" "), self.mapping)
    }

    fn tracking_method(&self) -> Option<TrackingMethod> {
        let tracking = *self.observed.tracking.lock();
        match self.observed.unstamped.load(Ordering::Relaxed) {
            0 => tracking,
            _ if tracking == Some(TrackingMethod::Polling) => {
                Some(TrackingMethod::PollingEverything)
            }
            _ => Some(TrackingMethod::SyncreplWithoutResume),
        }
    }

    fn referred_servers(&self) -> Vec<String> {
        self.observed.referrals.servers()
    }

    fn location(&self) -> DirectoryLocation {
        self.servers.location()
    }

    fn foreign_members(&self) -> u64 {
        self.observed.foreign_members.load(Ordering::Relaxed)
    }

    async fn mirror(&self, cookies: Vec<(SearchId, SyncCookie)>) -> Reason {
        if self.mode == DomainMode::OnDemand {
            return self.keep_lookups_connected().await;
        }
        let network = NetworkWatch::listen();
        let (sink, mapping) = (Arc::clone(&self.sink), Arc::clone(&self.mapping));
        let (rereads, referrals) =
            (Arc::clone(&self.rereads), Arc::clone(&self.observed.referrals));
        let mut track_sink = TrackSink::new(sink, mapping, rereads, referrals, cookies);
        track_sink.adapter.foreign_members =
            ForeignMembers::new(Arc::clone(&self.observed.foreign_members));
        let mut backoff = Backoff::new();
        loop {
            let Err(reason) = self.try_servers(&mut track_sink, &network).await else {
                backoff = Backoff::new();
                continue;
            };
            self.sink.offline(&reason);
            self.servers.expire_site();
            tokio::select! {
                () = sleep(backoff.next()) => {}
                () = network.changed() => {}
                () = self.refresh.notified() => track_sink.forget_cookies(),
            }
        }
    }

    async fn lookup(&self, what: &LookupQuery) -> Result<bool, LookupError> {
        let mut asker = self.lookup_session().await?;
        self.lookups.run_query(what, &mut asker, self.sink.as_ref()).await
    }

    async fn matches_filter(
        &self,
        user: &[u8],
        uid: u32,
        filter: &str,
    ) -> Result<bool, LookupError> {
        let mut asker = self.lookup_session().await?;
        self.lookups.matches_filter(&mut asker, user, uid, filter).await
    }

    async fn lookup_all(&self, of: LookupScope, keys: LookupKeys<'_>) -> Result<(), LookupError> {
        let mut asker = self.lookup_session().await?;
        self.lookups.run_batch(of, keys, &mut asker, self.sink.as_ref()).await
    }

    async fn search_keys(
        &self,
        of: LookupScope,
        missing: &[(SearchId, EntryId)],
        control: &[EntryId],
    ) -> Result<KeySearchResult, LookupError> {
        let mut asker = self.lookup_session().await?;
        let is_mirror = self.mode == DomainMode::Replicate;
        let mirror_key = self.observed.mirror_key.lock().clone();
        if is_mirror && mirror_key.is_empty() {
            let reason = Reason::new(&directory::NO_MIRROR_SERVER, "no server is mirrored yet");
            return Err(LookupError::Unreachable(reason));
        }
        let ids: Vec<EntryId> =
            missing.iter().map(|(_, id)| *id).chain(control.iter().copied()).collect();
        let search = KeySearch {
            is_for_groups: matches!(of, LookupScope::Groups | LookupScope::GroupsWithMembers),
            ids: &ids,
            requires_any: control.is_empty(),
            mirror_key: is_mirror.then_some(mirror_key.as_str()),
        };
        let of_groups = search.is_for_groups;
        let looked = self.lookups.find_by_keys(&mut asker, self.sink.as_ref(), search).await?;
        if is_mirror {
            // The connection that follows changes re-reads these entries, because it knows the other changes that it
            // reported of them.
            let found = missing.iter().filter(|(_, id)| looked.found.contains(id));
            let entry = |id| if of_groups { schema::group_id(id) } else { id };
            // It may have moved from the base of one search to the base of another.
            self.rereads.add(found.flat_map(|&(_, id)| {
                let is_one = move |search: &&MirrorSearch| match of_groups {
                    true => search.has_groups(),
                    false => search.has_users(),
                };
                let searches = self.searches.iter().filter(is_one);
                searches.map(move |search| (search.id, RereadTarget::Entry(entry(id))))
            }));
        }
        Ok(looked)
    }

    fn refresh(&self) {
        self.refresh.notify_one();
    }

    fn reread_groups(&self, groups: &[(SearchId, EntryId)], named: &[Vec<u8>]) {
        // The key of such an entry is the key of the user in it.
        let groups =
            groups.iter().map(|&(part, id)| (part, RereadTarget::Entry(schema::group_id(id))));
        let searches = self.searches.iter().filter(|search| search.has_groups());
        let naming = searches.flat_map(|search| {
            named.iter().map(|member| (search.id, RereadTarget::Naming(member.clone())))
        });
        self.rereads.add(groups.chain(naming));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ad_schema_needs_active_directory() {
        let check = |is_active_directory, schema| {
            let mut root = RootDse::default();
            root.is_active_directory = is_active_directory;
            check_server(&root, schema).map_err(|reason| reason.message)
        };
        for schema in [DirectorySchema::ActiveDirectorySids, DirectorySchema::ActiveDirectoryPosix]
        {
            assert_eq!(check(true, schema), Ok(()));
            assert_eq!(check(false, schema), Err(&directory::NOT_ACTIVE_DIRECTORY));
        }
        assert_eq!(check(false, DirectorySchema::Posix), Ok(()));
    }
}
