//! The `ldap` provider: mirrors an LDAP directory into a back-end's sink, and asks it single
//! questions.
//!
//! [`Ldap`] keeps a connection to the first server that answers and follows changes over it
//! ([`track`]). What is served, kept or published is not decided here: entries go to the
//! [`Sink`] as they are. Nothing here reads a file or knows the bus.
#![forbid(unsafe_code)]

pub mod ber;
mod connection;
pub mod dn;
mod error;
pub mod filter;
pub mod message;
pub mod schema;
mod servers;
mod track;

use crate::connection::{Connection, Root, Settings};
use crate::error::Error;
use crate::schema::{Mapping, PartSearch};
use crate::servers::{Backoff, Servers, describe};
use crate::track::sync::Synchronization;
use crate::track::{Ear, Track, follow};
use roster_config::{Domain, Mode, Provider as Configured, Secrets, Server};
use roster_provider::{Cookie, LookUp, Part, Provider, Sink, Unreachable};
use std::borrow::Cow;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// A service that lasted so long was a good one; the next failure starts patiently from the
/// beginning.
const GOOD_SERVICE: Duration = Duration::from_secs(5);

/// One LDAP domain.
pub struct Ldap {
    config: roster_config::Ldap,
    settings: Settings,
    servers: Servers,
    mapping: Arc<Mapping>,
    searches: Vec<PartSearch>,
    mode: Mode,
    sink: Arc<dyn Sink>,
    refresh: Notify,
    tracking: Mutex<&'static str>,
}

/// Why a domain cannot be set up at all; nothing but another configuration mends it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("domain {domain}: {reason}")]
pub struct BadDomain {
    domain: String,
    reason: String,
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
        Ok(Self {
            settings: Settings::new(config, secrets).map_err(bad)?,
            servers: Servers::new(config),
            mapping: Arc::new(Mapping::new(domain, config)),
            searches: schema::searches(config).map_err(bad)?,
            mode: domain.mode,
            sink,
            refresh: Notify::new(),
            tracking: Mutex::new(""),
            config: config.as_ref().clone(),
        })
    }

    /// Connects to a server and follows it for as long as that goes well.
    async fn serve(&self, servers: &[Server], rank: usize, ear: &mut Ear) -> Served {
        let Some(server) = servers.get(rank) else { return Served::Stopped };
        let (mut connection, root) = match self.reach(server).await {
            Ok(reached) => reached,
            Err(error) => return Served::Failed(error),
        };
        let mut tracks: Vec<Box<dyn Track>> =
            self.searches.iter().map(|search| self.track(search, server, &root)).collect();
        let stop = async {
            tokio::select! {
                () = self.refresh.notified() => true,
                () = self.preferred_answers(servers.get(..rank).unwrap_or_default()) => false,
            }
        };
        let mut is_refresh = false;
        let end = follow(
            &mut connection,
            &mut tracks,
            ear,
            self.config.search_timeout,
            || self.sink.online(&describe(server)),
            async { is_refresh = stop.await },
        )
        .await;
        if is_refresh {
            ear.forget_all();
        }
        match end.error {
            None => {
                connection.close().await;
                Served::Stopped
            }
            Some(error) if end.settled.is_some_and(|since| since.elapsed() >= GOOD_SERVICE) => {
                Served::Lost(error)
            }
            Some(error) => Served::Failed(error),
        }
    }

    async fn reach(&self, server: &Server) -> Result<(Connection, Root), Error> {
        let mut connection = Connection::open(server, &self.settings).await?;
        let root = connection.root(self.config.search_timeout).await?;
        Ok((connection, root))
    }

    /// The best way to follow changes that the server offers.
    fn track(&self, search: &PartSearch, server: &Server, root: &Root) -> Box<dyn Track> {
        let binding =
            format!("{} as {} {}", describe(server), self.settings.who(), search.description);
        // An entry that was added and removed between two connections, or removed at all, was seen
        // to be forgotten by this server's resumption.
        *lock(&self.tracking) = "syncrepl";
        let sweep_by = root.is_389.then_some("nsUniqueId");
        Box::new(Synchronization::new(search.clone(), binding, sweep_by))
    }

    /// Over when one of these servers can be connected to again.
    async fn preferred_answers(&self, preferred: &[Server]) {
        if preferred.is_empty() {
            pending::<()>().await;
        }
        loop {
            sleep(self.config.fail_back).await;
            for server in preferred {
                if let Ok((connection, _)) = self.reach(server).await {
                    tracing::info!(server = describe(server), "a preferred server answers again");
                    connection.close().await;
                    return;
                }
            }
        }
    }
}

impl Provider for Ldap {
    fn parts(&self) -> Vec<Part> {
        self.searches.iter().map(|search| search.part).collect()
    }

    fn tracking(&self) -> Cow<'static, str> {
        Cow::Borrowed(*lock(&self.tracking))
    }

    async fn mirror(&self, cookies: Vec<(Part, Cookie)>) -> String {
        let mut ear = Ear::new(Arc::clone(&self.sink), Arc::clone(&self.mapping), cookies);
        let mut backoff = Backoff::new();
        loop {
            let began = Instant::now();
            let servers = self.servers.list().await;
            let mut reasons = Vec::new();
            let mut is_lost = false;
            for (rank, server) in servers.iter().enumerate() {
                match self.serve(&servers, rank, &mut ear).await {
                    Served::Stopped => break,
                    Served::Failed(error) => {
                        tracing::warn!(server = describe(server), %error, "cannot follow the directory");
                        reasons.push(format!("{}: {error}", describe(server)));
                    }
                    Served::Lost(error) => {
                        tracing::warn!(server = describe(server), %error, "the directory is lost");
                        if let Error::Silent { .. } = error {
                            self.sink.offline(&format!("{}: {error}", describe(server)));
                        }
                        is_lost = true;
                        break;
                    }
                }
            }
            if is_lost || reasons.is_empty() {
                backoff = Backoff::new();
                continue;
            }
            self.sink.offline(&reasons.join("; "));
            let _ = began;
            tokio::select! {
                () = sleep(backoff.next()) => {}
                () = self.refresh.notified() => ear.forget_all(),
            }
        }
    }

    async fn look_up(&self, _what: &LookUp) -> Result<bool, Unreachable> {
        Err(Unreachable("not yet".to_owned()))
    }

    fn refresh(&self) {
        self.refresh.notify_one();
    }
}
