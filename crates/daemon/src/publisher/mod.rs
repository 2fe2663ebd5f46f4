//! The publisher: the only writer of the snapshot, and the border of trust. Follows the back-ends
//! over the bus, merges their domains with the host's own accounts in view, and publishes. No
//! network; never talks to a directory.
//!
//! | file | what |
//! |---|---|
//! | `model` | what the back-ends said |
//! | `admit` | what may be served at all |
//! | `merge` | of two with one name or id the first |
//! | `build` | members resolved, the image made |
//! | `state` | all of it together, and when it is too early |
//! | `on_demand` | look-ups in domains that are not mirrored |
//! | `object` | the interface on the bus |
//!
//! Timers: ten seconds once at the start; none when idle, unless a back-end has nothing to tell yet, which is asked again after one to
//! 60 seconds. A change is published at once, the next one not before
//! `[publisher] interval` has passed, nor before as much time has passed as the last one took: a
//! storm of changes takes half a processor at the most.

mod admit;
mod build;
mod locals;
mod merge;
mod model;
mod object;
mod on_demand;
mod state;
#[cfg(test)]
mod tests;

use crate::role::{self, Context, Shutdown};
use anyhow::Context as _;
use futures_util::StreamExt;
use model::Refused;
use object::Object;
use on_demand::Asker;
use roster_bus::interfaces::{BackendProxy, CALL_DEADLINE, PublisherStatus};
use roster_bus::names::Role;
use roster_bus::zbus;
use roster_config::Mode;
use roster_provider::watch::Watch;
use roster_snapshot::layout::Kind;
use roster_snapshot_build::publish::{Published, Rights, publish};
use roster_snapshot_build::verify::verify;
use rustix::fs::SealFlags;
use state::{Forget, Made, State, Taken};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Cursor, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, RwLock};
use tokio::time::timeout;

/// How long after the start a snapshot in place goes on serving while a back-end has not heard from its
/// directory yet, and may have less than the snapshot.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a publication failed: the first pause before the next attempt, which doubles up to the longest.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// After the host's own accounts could not be read: look again after this time.
const RETRY: Duration = Duration::from_secs(1);
/// After a back-end could not be asked: the first pause, which doubles up to the longest. A back-end
/// tells by itself when there is something, so this is for what nobody foresaw.
const ASK_AGAIN_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const ASK_AGAIN_MAX: Duration = Duration::from_secs(60);
/// The snapshot's name in the state folder.
const SNAPSHOT: &str = "roster.snap";
/// Beside it: the domains that it has entries of, one a line.
const SERVED: &str = "roster.domains";

/// The responder's socket in the run-time folder.
const RESPONDER: &str = "nss";

/// What the publisher's tasks share.
pub struct Hub {
    state: RwLock<State>,
    /// Something changed that a new snapshot should show.
    changed: Notify,
    /// Told after every attempt to publish.
    attempts: tokio::sync::watch::Sender<u64>,
    status: Mutex<PublisherStatus>,
    snapshot: PathBuf,
    connection: zbus::Connection,
    object: String,
    asker: Asker,
    /// Whether a back-end that may be behind the snapshot in place is waited for.
    patience: AtomicBool,
}

/// Runs until the role is to stop.
///
/// # Errors
///
/// What keeps the role from its work; the monitor starts it again.
pub async fn run(mut context: Context<role::Publisher>) -> anyhow::Result<()> {
    let config = context.config.clone();
    let snapshot = context.state_dir.join(SNAPSHOT);
    let served = if snapshot.exists() { read_served(&context.state_dir) } else { BTreeSet::new() };
    let status =
        PublisherStatus { snapshot: snapshot.display().to_string(), ..PublisherStatus::default() };
    let mut proxies = Vec::new();
    for domain in &config.domains {
        let role = Role::Backend(domain.name.clone());
        let proxy = BackendProxy::builder(&context.connection)
            .destination(role.bus_name())
            .path(role.path())
            .build()
            .await?;
        proxies.push((role, proxy));
    }
    let asked = config.domains.iter().zip(&proxies).map(|(domain, (role, proxy))| {
        (domain.mode == Mode::OnDemand).then(|| (role.clone(), proxy.clone(), domain.negative))
    });
    let asker = Asker::new(asked);
    let hub = Arc::new(Hub {
        state: RwLock::new(State::new(&config, &context.run_dir.join(RESPONDER), served)),
        changed: Notify::new(),
        attempts: tokio::sync::watch::channel(0).0,
        status: Mutex::new(status),
        snapshot,
        connection: context.connection.clone(),
        object: context.role.path(),
        asker,
        patience: AtomicBool::new(true),
    });
    tokio::spawn(lose_patience(Arc::clone(&hub)));
    let watch = Watch::new([config.host.passwd.clone(), config.host.group.clone()])
        .context("cannot watch the host's own accounts")?;
    let host = config.host.clone();
    tokio::spawn(follow_locals(Arc::clone(&hub), host.passwd, host.group, watch));
    for (position, (domain, (_, proxy))) in config.domains.iter().zip(proxies).enumerate() {
        tokio::spawn(follow_domain(Arc::clone(&hub), position, domain.name.clone(), proxy));
    }
    let object = Object::new(Arc::clone(&hub));
    context.connection.object_server().at(context.role.path(), object).await?;
    context.ready().await?;
    publish_changes(&hub, config.publisher.interval, &mut context.shutdown).await;
    Ok(())
}

/// After a while a directory is taken to be away, and what its back-end has is served.
async fn lose_patience(hub: Arc<Hub>) {
    tokio::time::sleep(PATIENCE).await;
    hub.patience.store(false, Ordering::Relaxed);
    hub.changed.notify_one();
}

/// Publishes whenever something changed, until the role is to stop.
async fn publish_changes(hub: &Arc<Hub>, interval: Duration, shutdown: &mut Shutdown) {
    // Set after a failure: until the next attempt, whatever changes in between.
    let mut again: Option<Duration> = None;
    loop {
        let due = async {
            match again {
                Some(pause) => tokio::time::sleep(pause).await,
                None => hub.changed.notified().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = shutdown.wait() => return,
        }
        let start = Instant::now();
        let worked = attempt(hub).await;
        hub.attempts.send_modify(|attempts| *attempts += 1);
        again = match (worked, again) {
            (true, _) => None,
            (false, None) => Some(RETRY_MIN),
            (false, Some(pause)) => Some((2 * pause).min(RETRY_MAX)),
        };
        let pause = interval.saturating_sub(start.elapsed()).max(start.elapsed());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.wait() => return,
        }
    }
}

/// Publishes what there is; `false` when that failed and is worth another try.
async fn attempt(hub: &Arc<Hub>) -> bool {
    {
        let state = hub.state.read().await;
        let waits_for = state.waits_for(hub.patience.load(Ordering::Relaxed));
        let waits = waits_for.is_some() || state.is_empty();
        let text = waits_for
            .map(|what| format!("the last snapshot goes on serving until {what} can be read"));
        drop(state);
        hub.update(|status| status.error = text.unwrap_or_default());
        if waits {
            return true;
        }
    }
    hub.state.write().await.begin();
    let start = Instant::now();
    let worker = Arc::clone(hub);
    let outcome = tokio::task::spawn_blocking(move || make_and_publish(&worker)).await;
    let (made, published) = match outcome {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => {
            tracing::error!("the last snapshot goes on serving: {error:#}");
            metrics::counter!("roster_publish_failures_total").increment(1);
            hub.update(|status| status.error = format!("{error:#}"));
            return false;
        }
        Err(_) => return false,
    };
    let shape = (made.image.memberships(), made.served.clone());
    let mut state = hub.state.write().await;
    let domains_changed = state.served != shape.1;
    state.published(made);
    let counts = state.domain_counts();
    drop(state);
    if domains_changed {
        write_served(&hub.snapshot, &shape.1);
    }
    let took = start.elapsed();
    metrics::histogram!("roster_publish_seconds").record(took.as_secs_f64());
    metrics::counter!("roster_publications_total").increment(1);
    metrics::counter!("roster_publish_bytes_total").increment(published.bytes);
    metrics::gauge!("roster_snapshot_generation").set(published.generation as f64);
    for domain in &counts {
        let refused: u64 = domain.refused.iter().map(|(_, count)| count).sum();
        metrics::gauge!("roster_refused_entries", "domain" => domain.domain.clone())
            .set(refused as f64);
    }
    hub.update(|status| {
        status.generation = published.generation;
        status.published_unix_ms = unix_ms();
        status.users = counts.iter().map(|domain| domain.users).sum();
        status.groups = counts.iter().map(|domain| domain.groups).sum();
        status.memberships = shape.0;
        status.bytes = published.bytes;
        status.publications += 1;
        status.bytes_written += published.bytes;
        status.last_publish_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        status.error.clear();
    });
    say_what_is_refused(&counts);
    let generation = published.generation;
    tracing::info!(generation, bytes = published.bytes, ms = took.as_millis(), "published");
    hub.announce(generation).await;
    true
}

/// The blocking part: merge, build, verify, publish.
fn make_and_publish(hub: &Hub) -> anyhow::Result<(Made, Published)> {
    let made = hub.state.blocking_read().make()?;
    let last_bytes = hub.status.lock().unwrap_or_else(PoisonError::into_inner).bytes;
    // A little more than last time, as a rule, and then no copy to make room.
    let last_bytes = last_bytes + last_bytes / 16;
    let rights = Rights { mode: 0o644, gid: None };
    let published = publish(&hub.snapshot, rights, |file, generation| {
        let mut bytes = Cursor::new(Vec::with_capacity(usize::try_from(last_bytes).unwrap_or(0)));
        let length = made.image.write(&mut bytes, generation)?;
        let bytes = bytes.into_inner();
        // Read once more while the disk takes it. The file gets its name after both.
        let (verified, written) = std::thread::scope(|scope| {
            let verified = scope.spawn(|| verify(&bytes, Kind::Accounts).map(drop));
            let written = file.write_all(&bytes).and_then(|()| file.sync_data());
            (verified.join(), written)
        });
        written?;
        match verified {
            Ok(verified) => verified.map_err(std::io::Error::other)?,
            Err(_) => return Err(std::io::Error::other("the snapshot was not verified")),
        }
        Ok(length)
    })?;
    Ok((made, published))
}

/// Reasons and how often, by domain.
type Refusals = Vec<(String, Vec<(String, u64)>)>;

/// One line a reason, once for each time that the numbers change.
fn say_what_is_refused(counts: &[roster_bus::interfaces::DomainCounts]) {
    static SAID: Mutex<Refusals> = Mutex::new(Vec::new());
    let now: Refusals =
        counts.iter().map(|domain| (domain.domain.clone(), domain.refused.clone())).collect();
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if *said == now {
        return;
    }
    for (domain, refused) in &now {
        for (reason, count) in refused {
            let entries = if *count == 1 { "entry" } else { "entries" };
            tracing::warn!(domain = %domain, "{count} {entries} rejected: {reason}");
        }
    }
    *said = now;
}

impl Hub {
    async fn take_in(&self, domain: usize, image: &[u8]) -> Result<Taken, Refused> {
        self.state.write().await.apply(domain, image)
    }

    fn update(&self, change: impl FnOnce(&mut PublisherStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Tells everybody on the bus. Whoever misses it sees the new file all the same.
    async fn announce(&self, generation: u64) {
        let Ok(emitter) =
            zbus::object_server::SignalEmitter::new(&self.connection, self.object.as_str())
        else {
            return;
        };
        if let Err(error) = Object::snapshot_published(&emitter, generation).await {
            tracing::warn!("cannot announce generation {generation}: {error}");
        }
    }

    /// Has others forget what they remember.
    async fn invalidate(&self, forget: &Forget) {
        let Ok(emitter) =
            zbus::object_server::SignalEmitter::new(&self.connection, self.object.as_str())
        else {
            return;
        };
        let told = async {
            if forget.all {
                return Object::invalidate_all(&emitter).await;
            }
            for name in &forget.users {
                Object::invalidate_user(&emitter, name).await?;
            }
            for name in &forget.groups {
                Object::invalidate_group(&emitter, name).await?;
            }
            Ok(())
        };
        if let Err(error) = told.await {
            tracing::warn!("cannot tell what to forget: {error}");
        }
    }
}

/// Reads the host's own accounts, now and whenever they change.
async fn follow_locals(hub: Arc<Hub>, passwd: PathBuf, group: PathBuf, mut watch: Watch) {
    loop {
        match locals::read(&passwd, &group) {
            Ok(locals) => {
                if hub.state.write().await.set_locals(locals) {
                    hub.invalidate(&Forget { all: true, ..Forget::default() }).await;
                    hub.changed.notify_one();
                }
                watch.changed().await;
            }
            // What was read last goes on counting.
            Err(error) => {
                tracing::error!("{error:#}");
                let _ = timeout(RETRY, watch.changed()).await;
            }
        }
    }
}

/// Fetches what one back-end has, now and whenever it says that there is more.
async fn follow_domain(hub: Arc<Hub>, position: usize, name: String, proxy: BackendProxy<'static>) {
    let news = Arc::new(Notify::new());
    // Read by tasks of their own, so that the connection never waits for a fetch that waits for it.
    let (told, owned) = (Arc::clone(&news), Arc::clone(&news));
    match proxy.receive_changed().await {
        Ok(mut stream) => {
            tokio::spawn(async move {
                while stream.next().await.is_some() {
                    told.notify_one();
                }
            });
        }
        Err(error) => return tracing::error!(domain = name, "cannot listen: {error}"),
    }
    match proxy.inner().receive_owner_changed().await {
        Ok(mut stream) => {
            tokio::spawn(async move {
                while stream.next().await.is_some() {
                    owned.notify_one();
                }
            });
        }
        Err(error) => return tracing::error!(domain = name, "cannot listen: {error}"),
    }
    let mut from_start = false;
    let mut pause = ASK_AGAIN_MIN;
    loop {
        let (epoch, since) = match from_start {
            true => (0, 0),
            false => hub.state.read().await.position(position),
        };
        match fetch(&proxy, epoch, since).await {
            Ok(image) => match hub.take_in(position, &image).await {
                Ok(Taken::Changes(forget)) => {
                    from_start = false;
                    drop(image);
                    hub.asker.forget_absent(position);
                    hub.invalidate(&forget).await;
                    hub.changed.notify_one();
                    metrics::counter!("roster_fetches_total", "domain" => name.clone())
                        .increment(1);
                }
                Ok(Taken::NothingNew) => from_start = false,
                Ok(Taken::NotYet(why)) => {
                    tracing::info!(domain = name, "what is here stays: {why}");
                    from_start = false;
                    let _ = timeout(pause, news.notified()).await;
                    pause = (2 * pause).min(ASK_AGAIN_MAX);
                    continue;
                }
                Err(error) if !from_start => {
                    tracing::info!(domain = name, "fetching everything: {error}");
                    from_start = true;
                    continue;
                }
                Err(error) => {
                    tracing::error!(domain = name, "the back-end is not believed: {error}");
                    from_start = false;
                }
            },
            Err(error) => {
                tracing::debug!(domain = name, "cannot fetch: {error:#}");
                // Its name may not be there yet; then the bus tells when it comes.
                let _ = timeout(pause, news.notified()).await;
                pause = (2 * pause).min(ASK_AGAIN_MAX);
                continue;
            }
        }
        pause = ASK_AGAIN_MIN;
        news.notified().await;
    }
}

/// What leads from there to now, whole and in this process's own memory.
async fn fetch(proxy: &BackendProxy<'_>, epoch: u64, since: u64) -> anyhow::Result<Vec<u8>> {
    let descriptor = timeout(CALL_DEADLINE, proxy.fetch(epoch, since)).await??;
    let descriptor: OwnedFd = descriptor.into();
    let seals = rustix::fs::fcntl_get_seals(&descriptor).context("that is no memfd")?;
    let wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    anyhow::ensure!(seals.contains(wanted), "the memfd is not sealed");
    let mut file = File::from(descriptor);
    let length = file.metadata()?.len();
    anyhow::ensure!(
        length <= roster_bus::exchange::IMAGE_BYTES_MAX,
        "it is {length} bytes long, which is too much"
    );
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    let mut image = Vec::with_capacity(usize::try_from(length)?);
    file.read_to_end(&mut image)?;
    Ok(image)
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The domains of the snapshot in place. Unreadable, none: the worst is that a domain is missing
/// until its back-end is there.
fn read_served(state_dir: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(state_dir.join(SERVED)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn write_served(snapshot: &Path, domains: &BTreeSet<String>) {
    let path = snapshot.with_file_name(SERVED);
    let text: String = domains.iter().map(|domain| format!("{domain}\n")).collect();
    let temp = snapshot.with_file_name(".roster.domains.new");
    let written = std::fs::write(&temp, text).and_then(|()| std::fs::rename(&temp, &path));
    if let Err(error) = written {
        tracing::warn!("cannot write {}: {error}", path.display());
    }
}
