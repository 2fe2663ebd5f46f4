//! The `ldap` provider: mirrors an LDAP directory into a back-end's sink, and asks it single
//! questions.
//!
//! [`Ldap`] keeps a connection to the first server that answers and follows changes over it
//! (`track`). [`Binds`] puts users' passwords to it. What is served, kept or published is not decided here: entries go to the
//! [`Sink`] as they are. Nothing here knows the bus, or reads a file but the host's own DNS
//! configuration and certificate authorities.
#![forbid(unsafe_code)]

pub mod ber;
mod binds;
mod connection;
pub mod dn;
mod error;
pub mod filter;
mod link;
mod look_up;
pub mod message;
mod names;
mod network;
pub mod schema;
mod servers;
mod track;
mod verdict;

pub use crate::binds::Binds;
pub use crate::names::RESOLUTIONS_MAX;
#[doc(hidden)] // for the fuzz target
pub use crate::track::reread as reread_kept_cookie;

use crate::connection::{Connection, Root, Settings};
use crate::error::Error;
use crate::link::{Link, Open};
use crate::look_up::{Asker, KeySearch, LookUps};
use crate::network::Network;
use crate::schema::{Mapping, PartSearch};
use crate::servers::{Backoff, Candidate, Servers, Setbacks, describe};
use crate::track::dynamic::Dynamic;
use crate::track::enumerate::Enumeration;
use crate::track::lookout::Lookout;
use crate::track::ranges::Ranges;
use crate::track::rereading::{Rereading, Want, Wanted};
use crate::track::sweep::{Pace, Sweep};
use crate::track::sync::Synchronization;
use crate::track::{Ear, End, Peer, Track, follow};
use roster_config::{Domain, Mode, Provider as Configured, Secrets, Server};
use roster_provider::{
    Cookie, EntryId, Keys, LookUp, Looked, Of, Part, Provider, Sink, Unanswered,
};
use std::borrow::Cow;
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// A service that lasted so long was a good one; the next failure starts patiently from the
/// beginning.
const GOOD_SERVICE: Duration = Duration::from_secs(5);

/// Answers of DNS in a row that do not name the present server before it is left.
const ABSENCES: u32 = 3;

/// One LDAP domain.
pub struct Ldap {
    config: roster_config::Ldap,
    settings: Settings,
    servers: Servers,
    setbacks: Arc<Setbacks>,
    mapping: Arc<Mapping>,
    searches: Vec<PartSearch>,
    look_ups: LookUps,
    link: Link,
    mode: Mode,
    sink: Arc<dyn Sink>,
    refresh: Notify,
    wanted: Arc<Wanted>,
    tracking: Mutex<&'static str>,
    /// The attribute by whose values a mirror tells entries apart.
    mirror_key: Mutex<String>,
    /// Searches with entries that do not show the stamps by which changes are found.
    unstamped: Arc<AtomicUsize>,
}

/// Why a domain cannot be set up at all; nothing but another configuration mends it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("domain {domain}: {reason}")]
pub struct BadDomain {
    domain: String,
    reason: String,
}

/// How changes are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Synchronization,
    PersistentSearch,
    Polling,
}

/// Synchronization that reads everything anew at each connection.
const NEVER_RESUMES: &str = "syncrepl, never resumed";
/// Polling that reads everything anew at each poll.
const POLLS_EVERYTHING: &str = "polling, everything each time";

impl Method {
    fn describe(self) -> &'static str {
        match self {
            Self::Synchronization => "syncrepl",
            Self::PersistentSearch => "persistent search",
            Self::Polling => "polling",
        }
    }
}

/// How a server's service ended.
enum Served {
    /// It failed before it was of any use, or soon after.
    Failed(Error),
    /// It was good while it lasted.
    Lost(Error),
    /// Another connection is wanted.
    Stopped,
}

/// What completes the lists of a search's groups.
fn ranges(search: &PartSearch) -> Option<Box<dyn Track>> {
    search.has_groups().then(|| Box::new(Ranges::new(search.clone())) as Box<dyn Track>)
}

/// The value, also after a panic elsewhere: what is kept under these locks is whole at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ldap {
    /// Sets a domain up; connects to nothing yet.
    pub fn new(domain: &Domain, secrets: &Secrets, sink: Arc<dyn Sink>) -> Result<Self, BadDomain> {
        let bad = |reason| BadDomain { domain: domain.name.clone(), reason };
        let Configured::Ldap(config) = &domain.provider else {
            return Err(bad("its provider is not ldap".to_owned()));
        };
        let mapping = Arc::new(Mapping::new(domain, config));
        let searches = schema::searches(config, mapping.facts()).map_err(bad)?;
        let look_ups = LookUps::new(config, &searches, Arc::clone(&mapping)).map_err(bad)?;
        let setbacks = Arc::new(Setbacks::new(config.fail_back));
        let is_tended = domain.mode == Mode::OnDemand;
        let plain = look_ups.plain();
        Ok(Self {
            settings: Settings::new(config, secrets).map_err(bad)?,
            servers: Servers::new(config),
            link: Link::new(config.search_timeout, is_tended, plain, Arc::clone(&setbacks)),
            setbacks,
            look_ups,
            mapping,
            searches,
            mode: domain.mode,
            sink,
            refresh: Notify::new(),
            wanted: Arc::default(),
            tracking: Mutex::new(""),
            mirror_key: Mutex::default(),
            unstamped: Arc::default(),
            config: config.as_ref().clone(),
        })
    }

    /// Connects to a server and follows it for as long as that goes well.
    /// `passed_over` is why those before it were not taken.
    async fn serve(
        &self,
        candidate: &Candidate,
        passed_over: &str,
        ear: &mut Ear,
        network: &Network,
    ) -> Served {
        let server = &candidate.server;
        let (mut connection, root) = match Connection::open(server, &self.settings).await {
            Ok(reached) => reached,
            Err(error) => return Served::Failed(error),
        };
        let named = describe(server);
        let stop = async {
            tokio::select! {
                () = self.refresh.notified() => true,
                () = self.better_answers(&named) => false,
            }
        };
        let is_refresh = AtomicBool::new(false);
        let mut stop = pin!(async { is_refresh.store(stop.await, Ordering::Relaxed) });
        let mut end = End::default();
        for method in self.methods(&root) {
            *lock(&self.tracking) = method.describe();
            *lock(&self.mirror_key) = self.key(method, &root);
            self.unstamped.store(0, Ordering::Relaxed);
            let mut tracks: Vec<Box<dyn Track>> = self
                .searches
                .iter()
                .map(|search| self.track(method, search, server, &root))
                .chain(self.searches.iter().flat_map(|search| self.beside(method, search, &root)))
                .chain(self.sweep(method, &root))
                .chain(self.searches.iter().filter_map(|one| self.dynamic(method, one, &root)))
                .chain(self.searches.iter().filter_map(ranges))
                .collect();
            end = follow(
                &mut connection,
                &mut tracks,
                ear,
                self.config.search_timeout,
                || self.sink.online(&describe(server), passed_over),
                (&Peer { server, settings: &self.settings }, network),
                stop.as_mut(),
            )
            .await;
            match &end.error {
                Some(error) if end.settled.is_none() && error.is_refusal() => {
                    tracing::warn!(
                        server = describe(server),
                        %error,
                        "the server offers {} and refuses it: changes are followed in another way",
                        method.describe()
                    );
                }
                _ => break,
            }
        }
        if is_refresh.load(Ordering::Relaxed) {
            ear.forget_all();
        }
        let was_good = end.settled.is_some_and(|since| since.elapsed() >= GOOD_SERVICE);
        match end.error {
            None => {
                connection.close().await;
                Served::Stopped
            }
            Some(error) if was_good => {
                self.setbacks.forget(&describe(server));
                Served::Lost(error)
            }
            Some(error) => {
                self.setbacks.note(&describe(server), Instant::now());
                Served::Failed(error)
            }
        }
    }

    /// Tries one server after the other. `Ok` when the next round may come at once: a good service
    /// ended, or another connection is wanted. `Err` is why no server is of use.
    async fn round(&self, ear: &mut Ear, network: &Network) -> Result<(), String> {
        let mut reasons = Vec::new();
        for candidate in self.servers.list().await {
            let server = &candidate.server;
            match self.serve(&candidate, &reasons.join("; "), ear, network).await {
                Served::Stopped => return Ok(()),
                Served::Failed(error) => reasons.push(format!("{}: {error}", describe(server))),
                Served::Lost(error) => {
                    tracing::warn!(server = describe(server), %error, "the directory is lost");
                    if let Error::Silent { .. } = error {
                        // The next attempt may take as long to fail.
                        self.sink.offline(&format!("{}: {error}", describe(server)));
                    }
                    return Ok(());
                }
            }
        }
        if reasons.is_empty() {
            reasons.push(self.servers.why_none());
        }
        Err(reasons.join("; "))
    }

    /// Connects the look-ups to a server, if it answers any.
    async fn reach_link(&self, candidate: &Candidate, passed_over: &str) -> Result<Open, Error> {
        let server = &candidate.server;
        let (connection, root) = Connection::open(server, &self.settings).await?;
        let open = Open::over(connection, root, &describe(server), passed_over);
        self.link.try_out(&open).await?;
        Ok(open)
    }

    /// Connects the look-ups to the first server that answers them. Servers that failed us lately are
    /// tried after the others.
    async fn connect_link(&self) -> Result<Open, String> {
        let mut candidates = self.servers.list().await;
        let now = Instant::now();
        candidates.sort_by_key(|one| !self.setbacks.is_over(&describe(&one.server), now));
        let mut reasons = Vec::new();
        for candidate in candidates {
            match self.reach_link(&candidate, &reasons.join("; ")).await {
                Ok(open) => return Ok(open),
                Err(error) => reasons.push(format!("{}: {error}", describe(&candidate.server))),
            }
        }
        if reasons.is_empty() {
            return Err(self.servers.why_none());
        }
        Err(reasons.join("; "))
    }

    /// The DN and the uid of the one user of that name.
    async fn whose(&self, name: &[u8]) -> Result<Option<(String, u32)>, Unanswered> {
        let mut asker = self.asker().await?;
        self.look_ups.whose(&mut asker, name).await
    }

    /// Connects the look-ups if they are not, for a server is there; what fails is met again by who asks.
    async fn connect_again(&self) {
        let _ = self.link.open(true, || self.connect_link()).await;
    }

    async fn asker(&self) -> Result<Asker<'_>, Unanswered> {
        let open = self.link.open(false, || self.connect_link()).await;
        Ok(Asker { ldap: self, open: open.map_err(Unanswered::Unreachable)? })
    }

    /// Keeps the look-ups' connection, and nothing else: the mirror of a domain that is asked on
    /// demand.
    async fn keep_link(&self) -> String {
        let mut backoff = Backoff::new();
        let network = Network::listen();
        *lock(&self.tracking) = "on demand";
        loop {
            match self.link.open(true, || self.connect_link()).await {
                Ok(open) => {
                    self.sink.online(&open.server, &open.passed_over);
                    let opened = Instant::now();
                    tokio::select! {
                        reason = self.link.watch(&open, &network) => {
                            if let Some(reason) = reason {
                                self.sink.offline(&reason);
                            }
                        }
                        () = self.refresh.notified() => self.link.drop_connection().await,
                        () = self.better_answers(&open.server) => self.link.drop_connection().await,
                    }
                    if opened.elapsed() >= GOOD_SERVICE {
                        backoff = Backoff::new();
                        continue;
                    }
                }
                Err(reason) => self.sink.offline(&reason),
            }
            tokio::select! {
                () = sleep(backoff.next()) => {}
                () = network.changed() => {}
                () = self.refresh.notified() => {}
            }
        }
    }

    /// The ways to follow changes that the server says it offers, the best first.
    fn methods(&self, root: &Root) -> Vec<Method> {
        let mut methods = Vec::new();
        if root.sync {
            methods.push(Method::Synchronization);
        }
        if root.persistent_search {
            methods.push(Method::PersistentSearch);
        }
        methods.push(Method::Polling);
        methods
    }

    fn track(
        &self,
        method: Method,
        search: &PartSearch,
        server: &Server,
        root: &Root,
    ) -> Box<dyn Track> {
        let search = search.clone();
        let page_size = self.page_size(root);
        let uuid = self.config.attributes.uuid.as_deref();
        let key = uuid.unwrap_or_else(|| root.uuid_attribute()).to_owned();
        match method {
            Method::Synchronization => {
                let who = self.settings.who();
                // What is kept of an entry is what the mapping made of it.
                let (server, mapping) = (describe(server), &self.mapping);
                let binding =
                    format!("{server} as {who} {} read by {mapping:?}", search.description);
                // An entry that was added and removed between two connections was seen to be
                // forgotten by the 389 directory server's resumption.
                let (key, stamp) = (root.uuid_attribute(), root.stamp_attribute());
                let misses_removals = root.is_389;
                let unstamped = Arc::clone(&self.unstamped);
                Box::new(Synchronization::new(
                    search,
                    binding,
                    key,
                    stamp,
                    misses_removals,
                    unstamped,
                ))
            }
            Method::PersistentSearch => {
                let context = root.context(&search.base).to_owned();
                Box::new(Enumeration::persistent(
                    search,
                    key,
                    page_size,
                    context,
                    self.config.sweep,
                ))
            }
            Method::Polling => {
                let stamps = if root.usn { "entryUSN" } else { "modifyTimestamp" };
                let interval = self.config.poll;
                let unstamped = Arc::clone(&self.unstamped);
                Box::new(Enumeration::polling(search, key, page_size, stamps, interval, unstamped))
            }
        }
    }

    /// What looks at the folders of a search, and what reads single groups of it: keys are read as the
    /// search's own track does.
    fn beside(&self, method: Method, search: &PartSearch, root: &Root) -> [Box<dyn Track>; 2] {
        let key = self.key(method, root);
        let rereading = Rereading::new(search.clone(), key.clone());
        [Box::new(Lookout::new(search.clone(), key, self.config.poll)), Box::new(rereading)]
    }

    /// The attribute of the keys. Synchronization has its own.
    fn key(&self, method: Method, root: &Root) -> String {
        let configured = self.config.attributes.uuid.as_deref();
        let uuid = configured.filter(|_| method != Method::Synchronization);
        uuid.unwrap_or_else(|| root.uuid_attribute()).to_owned()
    }

    fn pace(&self) -> Pace {
        Pace { every: self.config.sweep, patience: self.config.search_timeout }
    }

    /// What reads the groups whose members the server works out. 389-ds works none out.
    fn dynamic(&self, method: Method, search: &PartSearch, root: &Root) -> Option<Box<dyn Track>> {
        (search.has_groups() && !root.is_389).then(|| -> Box<dyn Track> {
            let (key, pace) = (self.key(method, root), self.pace());
            Box::new(Dynamic::new(search.clone(), key, pace, Instant::now()))
        })
    }

    /// What finds out what a server that tells of changes does not tell; other ways to follow them do
    /// that themselves.
    fn sweep(&self, method: Method, root: &Root) -> Option<Box<dyn Track>> {
        let (key, stamp, pace) = (root.uuid_attribute(), root.stamp_attribute(), self.pace());
        (method == Method::Synchronization).then(|| -> Box<dyn Track> {
            let page_size = self.page_size(root);
            Box::new(Sweep::new(&self.searches, key, stamp, page_size, pace, Instant::now()))
        })
    }

    /// Entries that are asked for at a time, where the server knows of pages.
    fn page_size(&self, root: &Root) -> Option<u32> {
        root.paged.then_some(self.config.page_size).filter(|&size| size > 0)
    }

    /// Over when a server is good that is preferred to this one, which any is when DNS names this one
    /// no more: several times, for servers of DNS may know of changes one after the other.
    async fn better_answers(&self, present: &str) {
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
            let is_left = absences >= ABSENCES;
            let rank = own.map_or(if is_left { usize::MAX } else { 0 }, |own| own.rank);
            candidates.retain(|one| one.rank < rank);
            // Where nobody is preferred, only another answer of DNS can bring news.
            pause = if candidates.is_empty() {
                self.servers.known_for().max(self.config.fail_back)
            } else {
                self.config.fail_back
            };
            for candidate in candidates {
                let server = describe(&candidate.server);
                if self.setbacks.is_over(&server, Instant::now()) && self.is_good(&candidate).await
                {
                    let why = if is_left { "DNS names it no more" } else { "another is preferred" };
                    tracing::info!(server, "{present} is left for a server that answers: {why}");
                    return;
                }
            }
        }
    }

    /// Whether a server lets us in and search: what can be known before it is tried.
    async fn is_good(&self, candidate: &Candidate) -> bool {
        let tried = match self.mode {
            Mode::OnDemand => self.reach_link(candidate, "").await.map(drop),
            Mode::Replicate => self.try_out(&candidate.server).await,
        };
        if let Err(error) = &tried {
            let server = describe(&candidate.server);
            tracing::debug!(server, %error, "a preferred server is of no use");
        }
        tried.is_ok()
    }

    /// Lets a server find one entry of each search.
    async fn try_out(&self, server: &Server) -> Result<(), Error> {
        let (mut connection, _) = Connection::open(server, &self.settings).await?;
        for PartSearch { base, filter, .. } in &self.searches {
            connection.try_out(base, filter, self.config.search_timeout).await?;
        }
        connection.close().await;
        Ok(())
    }
}

impl Provider for Ldap {
    fn parts(&self) -> Vec<Part> {
        self.searches.iter().map(|search| search.part).collect()
    }

    fn reading(&self) -> String {
        let searches = self.searches.iter().map(|search| search.description.as_str());
        format!("{} read by {:?}", searches.collect::<Vec<_>>().join(" "), self.mapping)
    }

    fn tracking(&self) -> Cow<'static, str> {
        let tracking = *lock(&self.tracking);
        Cow::Borrowed(match self.unstamped.load(Ordering::Relaxed) {
            0 => tracking,
            _ if tracking == Method::Polling.describe() => POLLS_EVERYTHING,
            _ => NEVER_RESUMES,
        })
    }

    async fn mirror(&self, cookies: Vec<(Part, Cookie)>) -> String {
        if self.mode == Mode::OnDemand {
            return self.keep_link().await;
        }
        let network = Network::listen();
        let (sink, mapping) = (Arc::clone(&self.sink), Arc::clone(&self.mapping));
        let mut ear = Ear::new(sink, mapping, Arc::clone(&self.wanted), cookies);
        let mut backoff = Backoff::new();
        loop {
            let Err(reason) = self.round(&mut ear, &network).await else {
                backoff = Backoff::new();
                continue;
            };
            self.sink.offline(&reason);
            tokio::select! {
                () = sleep(backoff.next()) => {}
                () = network.changed() => {}
                () = self.refresh.notified() => ear.forget_all(),
            }
        }
    }

    async fn look_up(&self, what: &LookUp) -> Result<bool, Unanswered> {
        let mut asker = self.asker().await?;
        self.look_ups.answer(what, &mut asker, self.sink.as_ref()).await
    }

    async fn matches(&self, user: &[u8], uid: u32, filter: &str) -> Result<bool, Unanswered> {
        let mut asker = self.asker().await?;
        self.look_ups.matches(&mut asker, user, uid, filter).await
    }

    async fn look_up_all(&self, of: Of, keys: Keys<'_>) -> Result<(), Unanswered> {
        let mut asker = self.asker().await?;
        self.look_ups.answer_all(of, keys, &mut asker, self.sink.as_ref()).await
    }

    async fn look_for(
        &self,
        of: Of,
        missing: &[(Part, EntryId)],
        control: &[EntryId],
    ) -> Result<Looked, Unanswered> {
        let mut asker = self.asker().await?;
        let is_mirror = self.mode == Mode::Replicate;
        let mirror_key = lock(&self.mirror_key).clone();
        if is_mirror && mirror_key.is_empty() {
            return Err(Unanswered::Unreachable("no server is mirrored yet".to_owned()));
        }
        let ids: Vec<EntryId> =
            missing.iter().map(|(_, id)| *id).chain(control.iter().copied()).collect();
        let search = KeySearch {
            of_groups: matches!(of, Of::Groups | Of::GroupsWithMembers),
            ids: &ids,
            needs_any: control.is_empty(),
            mirror_key: is_mirror.then_some(mirror_key.as_str()),
        };
        let of_groups = search.of_groups;
        let looked = self.look_ups.look_for(&mut asker, self.sink.as_ref(), search).await?;
        if is_mirror {
            // Read by the connection that follows the changes, which knows what else it told of them.
            let found = missing.iter().filter(|(_, id)| looked.found.contains(id));
            self.wanted.add(found.map(|&(part, id)| {
                (part, Want::Entry(if of_groups { schema::group_id(id) } else { id }))
            }));
        }
        Ok(looked)
    }

    fn refresh(&self) {
        self.refresh.notify_one();
    }

    fn read_anew(&self, groups: &[(Part, EntryId)], named: &[Vec<u8>]) {
        // An entry's key is that of the user in it.
        let groups = groups.iter().map(|&(part, id)| (part, Want::Entry(schema::group_id(id))));
        let searches = self.searches.iter().filter(|search| search.has_groups());
        let naming = searches.flat_map(|search| {
            named.iter().map(|member| (search.part, Want::Naming(member.clone())))
        });
        self.wanted.add(groups.chain(naming));
    }
}
