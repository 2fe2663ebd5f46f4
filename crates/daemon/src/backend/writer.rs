//! The durable cache of a back-end: opened when the process begins, written a moment after
//! something is reported, opened anew when a write has failed. While the disk is full the domain
//! goes on from memory, and what tracks changes on the disk stays behind with the entries there.

use super::engine::{Engine, Loaded};
use crate::role::Shutdown;
use anyhow::{Context as _, bail};
use roster_config::{Domain, Mode, Provider};
use roster_provider_ldap::schema::searches;
use roster_store::{self as store, Opened, SetAside, Store, StoreError, Useless};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// What is reported waits so long for more to be written with it.
const DELAY: Duration = Duration::from_millis(500);
/// After a write has failed: the first pause, which doubles up to the longest.
const RETRY_MIN: Duration = Duration::from_millis(500);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How long the process before may take to let go of the file.
const IN_USE_WAIT: Duration = Duration::from_secs(5);
/// Between two tries for a file in use.
const IN_USE_PAUSE: Duration = Duration::from_millis(50);
/// How long the last write may take: the monitor waits five seconds for the process to end.
const LAST_WRITE_WAIT: Duration = Duration::from_secs(4);

/// Where the cache is, and whose.
#[derive(Clone)]
pub struct Cache {
    folder: PathBuf,
    identity: String,
    mode: Mode,
}

/// The cache as the process found it.
pub struct Found {
    /// The cache; none where it cannot be opened at the moment.
    pub store: Option<Arc<Store>>,
    /// What was in it.
    pub loaded: Loaded,
    /// Why it is empty or not there.
    pub why: Option<Why>,
}

/// Why a cache is empty or not there, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It cannot be opened at the moment.
    Unopened(String),
    /// It was damaged.
    Damaged(String),
    /// It was made with another configuration, or by another version of this program.
    Foreign(String),
}

/// Says aloud why a cache begins anew.
fn why_aside(SetAside { path, was, reason }: SetAside) -> Why {
    let path = path.display();
    match was {
        Useless::Damaged => {
            let text = format!(
                "the cache was set aside as {path} and is made anew from the directory: {reason}"
            );
            tracing::error!("{text}");
            Why::Damaged(text)
        }
        Useless::Foreign => {
            let text = format!(
                "the cache that was here belongs to another configuration or version and lies at \
                 {path} now; everything is read anew: {reason}"
            );
            tracing::info!("{text}");
            Why::Foreign(text)
        }
    }
}

impl Cache {
    /// The cache of a domain. One that was made from another base or other files is another
    /// directory's, and what was asked for is no beginning of a mirror: entries there and here have
    /// nothing to do with each other. Nor may it be of other searches than are made now: who came by one
    /// that is not made any more would stay for ever.
    #[must_use]
    pub fn new(folder: PathBuf, domain: &Domain) -> Self {
        let source = match &domain.provider {
            Provider::Files(files) => {
                format!("files {} {}", files.passwd.display(), files.group.display())
            }
            Provider::Ldap(ldap) => {
                let searches = searches(ldap, &[]).map_or(0, |searches| searches.len());
                format!("ldap {} searches {searches}", ldap.base)
            }
        };
        let kept = match domain.mode {
            Mode::Replicate => "mirror",
            Mode::OnDemand => "answers",
        };
        let identity = format!("{} {kept} {source}", domain.name);
        Self { folder, identity, mode: domain.mode }
    }

    /// The process stops while it opens the cache.
    pub fn opening_stopped(&self) {
        store::opening_stopped(&self.folder);
    }

    /// Opens the cache and reads it.
    pub async fn open(&self) -> anyhow::Result<Found> {
        let began = Instant::now();
        let found = loop {
            let cache = self.clone();
            let mode = self.mode;
            let open = move || {
                store::open(&cache.folder, &cache.identity, |store| Loaded::read(store, mode))
            };
            match spawn_blocking(open).await? {
                Err(StoreError::InUse { .. }) if began.elapsed() < IN_USE_WAIT => {
                    sleep(IN_USE_PAUSE).await;
                }
                Err(error @ StoreError::InUse { .. }) => return Err(error.into()),
                found => break found,
            }
        };
        Ok(match found {
            Ok(Opened { store, loaded, set_aside }) => {
                Found { store: Some(Arc::new(store)), loaded, why: set_aside.map(why_aside) }
            }
            Err(error) => {
                tracing::error!("{error}; the domain goes on without a cache");
                let why = Some(Why::Unopened(error.to_string()));
                Found { store: None, loaded: Loaded::default(), why }
            }
        })
    }

    /// Opens the cache again after it failed. It has to be as it was left, for most of the domain
    /// is there only; if it was never open, it has to be empty.
    async fn reopen(&self, engine: &Engine) -> anyhow::Result<Result<Arc<Store>, StoreError>> {
        let cache = self.clone();
        let stored = engine.stored();
        let knows_nothing = engine.knows_nothing();
        let open = move || {
            store::open(&cache.folder, &cache.identity, |store| {
                let numbers = store.reader()?.next_number()?;
                match stored {
                    Some(stored) => Ok(numbers >= stored),
                    None if numbers == 0 => Ok(true),
                    None if knows_nothing => Ok(false),
                    None => {
                        let text = "everything was enumerated anew while it could not be opened";
                        Err(store.damaged(text))
                    }
                }
            })
        };
        match spawn_blocking(open).await? {
            Ok(Opened { set_aside: Some(set_aside), .. }) if stored.is_some() => {
                bail!("the cache had to be set aside: {}", set_aside.reason)
            }
            Ok(Opened { loaded: false, .. }) => bail!("beginning anew with what is in the cache"),
            Ok(Opened { store, .. }) => Ok(Ok(Arc::new(store))),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Writes what the engine takes in, until the role is to stop.
    ///
    /// # Errors
    ///
    /// What is in the cache is lost, or only now to be had: the process has to begin anew.
    pub async fn write_behind(&self, engine: &Engine, mut stop: Shutdown) -> anyhow::Result<()> {
        // Since a write has failed.
        let mut pause = None;
        loop {
            let due = async {
                match pause {
                    None if engine.has_store() => engine.something_unwritten(DELAY).await,
                    pause => sleep(pause.unwrap_or(RETRY_MIN)).await,
                }
            };
            tokio::select! {
                () = due => {}
                () = stop.wait() => return Ok(()),
            }
            let Err(error) = self.write(engine).await? else {
                pause = None;
                continue;
            };
            let longer = pause.map_or(RETRY_MIN, |pause: Duration| (pause * 2).min(RETRY_MAX));
            pause = Some(longer);
            tracing::error!(
                "the cache is not written, the domain goes on from memory; next attempt in \
                 {longer:?}: {error}"
            );
            engine.unwritable(&error.to_string());
            // At once for reading, which a full disk does not hinder.
            if let Ok(store) = self.reopen(engine).await? {
                engine.reopened(store);
            }
        }
    }

    /// Writes the rest, and closes the cache.
    pub async fn close(&self, engine: &Engine) -> anyhow::Result<()> {
        let rest = async {
            if !engine.unwritten().1.is_empty() {
                self.write(engine).await?.context("the last changes are not in the cache")?;
            }
            let store = engine.take_store();
            spawn_blocking(move || drop(store)).await?;
            Ok(())
        };
        timeout(LAST_WRITE_WAIT, rest).await.context("the cache could not be closed in time")?
    }

    async fn write(&self, engine: &Engine) -> anyhow::Result<Result<(), StoreError>> {
        let (store, batches) = engine.unwritten();
        let store = match store {
            Some(store) => store,
            None => match self.reopen(engine).await? {
                Ok(store) => {
                    engine.reopened(Arc::clone(&store));
                    store
                }
                Err(error) => return Ok(Err(error)),
            },
        };
        let write = move || {
            let began = Instant::now();
            let written =
                store.write(|writer| batches.iter().try_for_each(|batch| batch.write(writer)));
            metrics::histogram!("roster_cache_write_seconds").record(began.elapsed());
            (written, batches)
        };
        let (written, batches) = spawn_blocking(write).await?;
        Ok(written.map(|()| engine.written(&batches)))
    }
}
