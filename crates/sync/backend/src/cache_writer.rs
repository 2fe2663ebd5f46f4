// SPDX-License-Identifier: MIT OR Apache-2.0
//! The durable cache of a backend. It is opened when the process begins, written shortly after each report, and opened
//! again after a failed write. While the disk is full, the domain continues from memory. The sync cookies on the disk
//! then stay as old as the entries there. `engine` has the unwritten changes, and `roster_domain_cache` the format.

use super::engine::{CacheOpenFault, Engine, LoadedCache};
use roster_config::{DomainConfig, DomainMode, LdapConfig, NameCase, ProviderConfig, SearchBase};
use roster_domain_cache::{
    self as store, CacheError, DomainCache, FileFault, OpenedCache, QuarantinedFile,
};
use roster_messages::{CodedError, log, table::directory};
use roster_provider::reason::Reason;
#[cfg(feature = "ldap")]
use roster_provider_ldap::schema::AttributeMapping;
#[cfg(feature = "ldap")]
use roster_provider_ldap::search::mirror_searches;
use roster_role::Shutdown;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// Delay of a write, so that later reports are part of it.
const DELAY: Duration = Duration::from_millis(500);
/// First pause after a failed write. It doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(500);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Time for which the previous process may hold the file open.
const IN_USE_WAIT: Duration = Duration::from_secs(5);
/// Pause between two attempts to open a file in use.
const IN_USE_PAUSE: Duration = Duration::from_millis(50);
/// Time limit of the last write. The monitor waits 5 seconds for the process to end.
const LAST_WRITE_WAIT: Duration = Duration::from_secs(4);

/// The directory and the identity of the cache.
#[derive(Clone)]
pub struct CacheWriter {
    dir: PathBuf,
    identity: String,
    mode: DomainMode,
}

/// The cache as the process found it.
pub struct ExistingCache {
    /// The cache; `None` if it cannot be opened at present.
    pub store: Option<Arc<DomainCache>>,
    /// The content of the cache.
    pub loaded: LoadedCache,
    /// The reason why it is empty or missing.
    pub fault: Option<CacheOpenFault>,
}

/// Logs the reason why a cache starts empty.
fn log_quarantine(QuarantinedFile { path, fault: was, reason }: QuarantinedFile) -> CacheOpenFault {
    let path = path.display();
    match was {
        FileFault::Damaged => {
            let text = format!("the cache was damaged and moved to {path}: {reason}");
            log!(ERROR, &directory::CACHE_DAMAGED, "{text}");
            CacheOpenFault::Damaged(Reason::new(&directory::CACHE_DAMAGED, text))
        }
        FileFault::Foreign => {
            let text = format!(
                "the cache of another configuration or version was moved to {path}: {reason}"
            );
            log!(INFO, &directory::CACHE_FOREIGN, "{text}");
            CacheOpenFault::Foreign(Reason::new(&directory::CACHE_FOREIGN, text))
        }
    }
}

/// Returns a text of the bases. The bases of users and of groups count if a list has them, because the searches of a list
/// have numbers by their order.
fn bases_text(ldap: &LdapConfig) -> String {
    let is_plain = |bases: &[SearchBase]| matches!(bases, [one] if one.is_plain());
    let mut text = list_text(&ldap.bases);
    for (kind, search) in [("users", &ldap.users), ("groups", &ldap.groups)] {
        if search.bases != ldap.bases && !is_plain(&search.bases) {
            text += &format!(" {kind} {}", list_text(&search.bases));
        }
    }
    text
}

fn list_text(bases: &[SearchBase]) -> String {
    let text = |base: &SearchBase| match (base.is_plain(), &base.filter) {
        (true, _) => base.base.clone(),
        (false, filter) => {
            let filter = filter.as_deref().unwrap_or_default();
            format!("{}?{}?{filter}", base.base, base.scope.word())
        }
    };
    bases.iter().map(text).collect::<Vec<_>>().join(" | ")
}

fn cache_reason(error: &CacheError) -> Reason {
    Reason::new(error.message(), error.to_string())
}

fn not_closed(text: &str) -> CodedError {
    CodedError::new(&directory::CACHE_NOT_CLOSED, text)
}

impl CacheWriter {
    /// Makes the writer for the cache of a domain. A cache of other bases or of other files belongs to another
    /// directory. A mirror does not start from the cache of an on-demand domain: the two have unrelated entries. The
    /// cache must also be of the same searches. Entries of a search that is no longer made would otherwise stay
    /// forever.
    #[must_use]
    pub fn new(folder: PathBuf, domain: &DomainConfig) -> Self {
        let source = match &domain.provider {
            ProviderConfig::Files(files) => {
                format!("files {} {}", files.passwd.display(), files.group.display())
            }
            #[cfg(not(feature = "ldap"))]
            ProviderConfig::Ldap(ldap) => format!("ldap {}", bases_text(ldap)),
            #[cfg(feature = "ldap")]
            ProviderConfig::Ldap(ldap) => {
                let searches = mirror_searches(ldap, &AttributeMapping::new(domain, ldap));
                let searches = searches.map_or(0, |searches| searches.len());
                format!("ldap {} searches {searches}", bases_text(ldap))
            }
        };
        let kept = match domain.mode {
            DomainMode::Replicate => "mirror",
            DomainMode::OnDemand => "answers",
        };
        // Member lists of the cache name users in the form of this case.
        let case = match domain.names.case {
            NameCase::Sensitive => "",
            NameCase::Insensitive => " case insensitive",
            NameCase::Preserving => " case preserving",
        };
        let identity = format!("{} {kept} {source}{case}", domain.name);
        Self { dir: folder, identity, mode: domain.mode }
    }

    /// Records that the process stops while it opens the cache.
    pub fn log_opening_stopped(&self) {
        store::clear_opening_marker(&self.dir);
    }

    /// Opens the cache and reads it.
    pub async fn open(&self) -> anyhow::Result<ExistingCache> {
        let began = Instant::now();
        let found = loop {
            let cache = self.clone();
            let mode = self.mode;
            let open = move || {
                store::open(&cache.dir, &cache.identity, |store| LoadedCache::read(store, mode))
            };
            match spawn_blocking(open).await? {
                Err(CacheError::InUse { .. }) if began.elapsed() < IN_USE_WAIT => {
                    sleep(IN_USE_PAUSE).await;
                }
                Err(error @ CacheError::InUse { .. }) => {
                    return Err(CodedError::new(error.message(), error.to_string()).into());
                }
                found => break found,
            }
        };
        Ok(match found {
            Ok(OpenedCache { cache: store, loaded, quarantined: set_aside }) => ExistingCache {
                store: Some(Arc::new(store)),
                loaded,
                fault: set_aside.map(log_quarantine),
            },
            Err(error) => {
                log!(ERROR, error.message(), "{error}; the domain continues without a cache");
                let why = Some(CacheOpenFault::NotOpened(cache_reason(&error)));
                ExistingCache { store: None, loaded: LoadedCache::default(), fault: why }
            }
        })
    }

    /// Opens the cache again after a failure. It must be unchanged, because most of the domain is only there. If it was
    /// never open, it must be empty.
    async fn reopen(
        &self,
        engine: &Engine,
    ) -> anyhow::Result<Result<Arc<DomainCache>, CacheError>> {
        let cache = self.clone();
        let stored = engine.stored_next_number();
        let knows_nothing = engine.is_empty();
        let open = move || {
            store::open(&cache.dir, &cache.identity, |store| {
                let numbers = store.reader()?.next_number()?;
                match stored {
                    Some(stored) => Ok(numbers >= stored),
                    None if numbers == 0 => Ok(true),
                    None if knows_nothing => Ok(false),
                    None => {
                        let text = "the domain was enumerated again while the cache was closed";
                        Err(store.damaged(text))
                    }
                }
            })
        };
        match spawn_blocking(open).await? {
            Ok(OpenedCache { quarantined: Some(set_aside), .. }) if stored.is_some() => {
                let text = format!("the cache was damaged and moved aside: {}", set_aside.reason);
                Err(CodedError::new(&directory::CACHE_DAMAGED, text).into())
            }
            Ok(OpenedCache { loaded: false, .. }) => {
                let text = "the cache is readable now; the backend restarts";
                Err(CodedError::new(&directory::CACHE_BECAME_READABLE, text).into())
            }
            Ok(OpenedCache { cache: store, .. }) => Ok(Ok(Arc::new(store))),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Writes the reports of the engine until the role stops.
    ///
    /// # Errors
    ///
    /// The content of the cache is lost, or has become readable only now. The process must restart.
    pub async fn write_behind(&self, engine: &Engine, mut stop: Shutdown) -> anyhow::Result<()> {
        // Set after a failed write.
        let mut pause = None;
        loop {
            let due = async {
                match pause {
                    None if engine.has_store() => engine.wait_for_unwritten(DELAY).await,
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
            log!(
                ERROR,
                error.message(),
                "the cache is not written, and the domain continues from memory; next attempt in \
                 {longer:?}: {error}"
            );
            engine.set_cache_error(cache_reason(&error));
            // Reopened at once for reads, which a full disk does not prevent.
            if let Ok(store) = self.reopen(engine).await? {
                engine.set_store(store);
            }
        }
    }

    /// Writes the rest, and closes the cache.
    pub async fn close(&self, engine: &Engine) -> anyhow::Result<()> {
        let rest = async {
            if !engine.unwritten_batches().1.is_empty() {
                let lost =
                    |error| not_closed("the last changes are not in the cache").caused_by(error);
                self.write(engine).await?.map_err(lost)?;
            }
            let store = engine.take_store();
            spawn_blocking(move || drop(store)).await?;
            Ok(())
        };
        let closed = timeout(LAST_WRITE_WAIT, rest).await;
        closed.map_err(|_| not_closed("the cache was not closed in time"))?
    }

    async fn write(&self, engine: &Engine) -> anyhow::Result<Result<(), CacheError>> {
        let (store, batches) = engine.unwritten_batches();
        let store = match store {
            Some(store) => store,
            None => match self.reopen(engine).await? {
                Ok(store) => {
                    engine.set_store(Arc::clone(&store));
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
        Ok(written.map(|()| engine.mark_written(&batches)))
    }
}
