//! The publisher: the only writer of the snapshot, and the border of trust. Follows the back-ends
//! over the bus, merges their domains with the host's own accounts in view, and publishes. No
//! network; never talks to a directory.
//!
//! | file | what |
//! |---|---|
//! | `model` | what the back-ends said |
//! | `cost` | how much that may be |
//! | `admit` | what may be served at all |
//! | `merge` | whose a name or id is, where several have it |
//! | `build` | members resolved, the image made |
//! | `state` | all of it together, and when it is too early |
//! | `pace` | when the next publication may begin |
//! | `kept` | what is served while the next snapshot is waited for |
//! | `places` | where in it each domain's entries lie |
//! | `restored` | what a domain had, while nothing of it can be taken in |
//! | `served` | what the snapshot in place has, for the next process |
//! | `report` | what people are told |
//! | `on_demand` | look-ups in domains that are not mirrored |
//! | `learnt` | what they brought that was not fetched yet |
//! | `object` | the interface on the bus |
//!
//! Timers: ten to sixty seconds once at the start; none when idle, unless a back-end has nothing to tell yet,
//! which is asked again after one to 60 seconds, or the host's own accounts cannot be read or were
//! written a moment ago, which are read again every second. A change is published at once, the next one not
//! before `[publisher] interval` has passed, and a storm of changes takes half of the time at the most,
//! see `pace`. What a look-up found is published a second later, for whoever asked has it already.

mod admit;
mod build;
mod cost;
mod kept;
mod learnt;
mod locals;
mod merge;
mod model;
mod object;
mod on_demand;
mod pace;
mod places;
#[cfg(test)]
mod precedence;
mod report;
mod restored;
mod served;
mod state;
#[cfg(test)]
mod tests;

use crate::role::{self, Context, SNAPSHOT, Shutdown};
use anyhow::Context as _;
use futures_util::StreamExt;
use kept::Remade;
use locals::{Believed, LocalFiles};
use model::{Image, Refused};
use object::Object;
use on_demand::Asker;
use pace::Pace;
use places::Places;
use roster_bus::interfaces::{BackendProxy, CALL_DEADLINE, PublisherStatus};
use roster_bus::names::Role;
use roster_bus::zbus;
use roster_config::Mode;
use roster_provider::settled::SETTLED;
use roster_provider::watch::Watch;
use roster_snapshot::layout::Kind;
use roster_snapshot_build::Image as SnapshotImage;
use roster_snapshot_build::publish::{Published, Rights, publish};
use roster_snapshot_build::verify::verify;
use rustix::fs::SealFlags;
use served::Served;
use state::{Basis, Forget, HELD, Made, State, Taken};
use std::fs::File;
use std::io::{Cursor, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, RwLock};
use tokio::time::timeout;

/// How long after the start a snapshot in place goes on serving, at the least, while a back-end has not
/// heard from its directory yet, and may have less than the snapshot.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long at the most: a back-end that does not say that its directory is away may be on its way back
/// after having ended, which takes it ten seconds when it often did, or may still read.
const PATIENCE_MAX: Duration = Duration::from_secs(60);
/// How often it is asked in between.
const PATIENCE_PAUSE: Duration = Duration::from_secs(1);
/// After a publication failed: the first pause before the next attempt, which doubles up to the longest.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How long what a look-up found waits for more of it.
const LEARNT_PAUSE: Duration = Duration::from_secs(1);
/// How long it may take to send a signal: a bus that hangs is seen to by the monitor, and keeps nobody
/// from publishing.
const SIGNAL_DEADLINE: Duration = Duration::from_secs(1);
/// After a back-end could not be asked: the first pause, which doubles up to the longest. A back-end
/// tells by itself when there is something, so this is for what nobody foresaw.
const ASK_AGAIN_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const ASK_AGAIN_MAX: Duration = Duration::from_secs(60);
/// How often a back-end reads its directory again while removals of its domain wait: the entries may be
/// there again.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// The responder's socket in the run-time folder.
const RESPONDER: &str = "nss";

/// What the publisher's tasks share.
pub struct Hub {
    state: RwLock<State>,
    /// Something changed that a new snapshot should show.
    changed: Notify,
    /// A look-up found something that it should show, which is in no hurry.
    learnt: Notify,
    /// Attempts to publish, begun and ended.
    begun: AtomicU64,
    ended: tokio::sync::watch::Sender<u64>,
    /// What is in [`served::FILE`], if that is known.
    written: Mutex<Option<Served>>,
    /// By domain: wakes who asks its back-end for news.
    news: Vec<Arc<Notify>>,
    status: Mutex<PublisherStatus>,
    snapshot: PathBuf,
    connection: zbus::Connection,
    object: String,
    asker: Asker,
}

/// Runs until the role is to stop.
///
/// # Errors
///
/// What keeps the role from its work; the monitor starts it again.
pub async fn run(mut context: Context<role::Publisher>) -> anyhow::Result<()> {
    let config = context.config.clone();
    let folder = context.snapshots();
    let snapshot = folder.join(SNAPSHOT);
    let (served, previous) = in_place(&folder, &snapshot, &config);
    let places = previous.as_deref().and_then(|bytes| Places::read(&folder, bytes));
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
        proxies.push(proxy);
    }
    let asked = config.domains.iter().zip(&proxies).map(|(domain, proxy)| {
        let asked = || (domain.name.clone(), proxy.clone(), domain.negative);
        (domain.mode == Mode::OnDemand).then(asked)
    });
    let asker = Asker::new(asked);
    let mut state = State::new(&config, &context.run_dir.join(RESPONDER), served, previous);
    state.set_places(places);
    let hub = Arc::new(Hub {
        state: RwLock::new(state),
        changed: Notify::new(),
        learnt: Notify::new(),
        begun: AtomicU64::new(0),
        ended: tokio::sync::watch::channel(0).0,
        written: Mutex::default(),
        news: config.domains.iter().map(|_| Arc::default()).collect(),
        status: Mutex::new(status),
        snapshot,
        connection: context.connection.clone(),
        object: context.role.path(),
        asker,
    });
    let local_files = LocalFiles::new(&config.host);
    let watch = Watch::new(local_files.paths()).context("cannot watch the host's own accounts")?;
    tokio::spawn(follow_locals(Arc::clone(&hub), local_files, watch));
    for (position, (domain, proxy)) in config.domains.iter().zip(proxies).enumerate() {
        tokio::spawn(lose_patience(Arc::clone(&hub), position, proxy.clone()));
        tokio::spawn(follow_domain(Arc::clone(&hub), position, domain.name.clone(), proxy));
    }
    let object = Object::new(Arc::clone(&hub));
    context.connection.object_server().at(context.role.path(), object).await?;
    context.ready().await?;
    publish_changes(&hub, config.publisher.interval, &mut context.shutdown).await;
    Ok(())
}

/// After a while a directory that is away is no longer waited for, and what its back-end has is served.
async fn lose_patience(hub: Arc<Hub>, position: usize, proxy: BackendProxy<'static>) {
    let latest = Instant::now() + PATIENCE_MAX;
    tokio::time::sleep(PATIENCE).await;
    while hub.state.read().await.may_be_behind(position)
        && !is_away(&proxy).await
        && Instant::now() < latest
    {
        tokio::time::sleep(PATIENCE_PAUSE).await;
    }
    hub.state.write().await.lose_patience(position);
    hub.changed.notify_one();
}

/// Whether a back-end says that its directory does not answer, and not only that it did not yet.
async fn is_away(proxy: &BackendProxy<'_>) -> bool {
    let status = timeout(CALL_DEADLINE, proxy.status()).await;
    matches!(status, Ok(Ok(status)) if !status.online && status.since_unix > 0)
}

/// Publishes whenever something changed, until the role is to stop.
async fn publish_changes(hub: &Arc<Hub>, interval: Duration, shutdown: &mut Shutdown) {
    // Set after a failure: until the next attempt, whatever changes in between.
    let mut again: Option<Duration> = None;
    let mut pace = Pace::new(interval);
    loop {
        let due = async {
            match again {
                Some(pause) => tokio::time::sleep(pause).await,
                None => tokio::select! {
                    () = hub.changed.notified() => {}
                    () = async {
                        hub.learnt.notified().await;
                        tokio::time::sleep(LEARNT_PAUSE).await;
                    } => {}
                },
            }
        };
        tokio::select! {
            () = due => {}
            () = shutdown.wait() => return,
        }
        let start = Instant::now();
        hub.begun.fetch_add(1, Ordering::Relaxed);
        let worked = attempt(hub).await;
        hub.ended.send_modify(|ended| *ended += 1);
        again = match (worked, again) {
            (true, _) => None,
            (false, None) => Some(RETRY_MIN),
            (false, Some(pause)) => Some((2 * pause).min(RETRY_MAX)),
        };
        let next = pace.next(start, Instant::now());
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            () = shutdown.wait() => return,
        }
    }
}

/// Publishes what there is; `false` when that failed and is worth another try.
async fn attempt(hub: &Arc<Hub>) -> bool {
    if hub.waits().await {
        return keep_up(hub).await;
    }
    hub.update(|status| {
        status.error.clear();
        status.waits_for.clear();
    });
    if hub.state.read().await.is_empty() {
        return true;
    }
    let start = Instant::now();
    let (basis, before) = {
        let state = hub.state.read().await;
        (state.begin(), state.served.clone())
    };
    let worker = Arc::clone(hub);
    let make = move || make_and_publish(&worker, &basis, &before);
    let outcome = tokio::task::spawn_blocking(make).await;
    let (made, published) = match outcome {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => return hub.failed(&error),
        Err(_) => return false,
    };
    let (memberships, served) = (made.image.memberships(), made.served.clone());
    let counts = {
        let mut state = hub.state.write().await;
        state.published(made);
        state.domain_counts()
    };
    for domain in &counts {
        let refused: u64 = domain.refused.iter().map(|(_, count)| count).sum();
        metrics::gauge!("roster_refused_entries", "domain" => domain.domain.clone())
            .set(refused as f64);
    }
    hub.update(|status| {
        status.users = counts.iter().map(|domain| domain.users).sum();
        status.groups = counts.iter().map(|domain| domain.groups).sum();
        status.memberships = memberships;
        status.error.clear();
    });
    say_what_is_refused(&counts);
    let order = counts.iter().map(|domain| domain.domain.clone());
    let places = order.filter_map(|name| Some((name.clone(), *served.get(&name)?)));
    let places = Places { generation: published.generation, domains: places.collect() };
    hub.is_in_place(&published, start.elapsed(), served, Some(places)).await;
    true
}

/// While the next snapshot is waited for: has the one in place be without whom a local account
/// displaces. `false` when that failed and is worth another try.
async fn keep_up(hub: &Arc<Hub>) -> bool {
    let Some(kept) = hub.state.read().await.keep() else { return true };
    let (start, locals) = (Instant::now(), Arc::clone(&kept.locals));
    let worker = Arc::clone(hub);
    let remake = move || {
        let (displaced, remade) = match kept.make() {
            Ok((displaced, remade)) => (Ok(displaced), remade),
            Err(error) => (Err(error), None),
        };
        let put = |remade: Remade| {
            publish_image(&worker, &remade.image).map(|published| (remade, published))
        };
        anyhow::Ok((displaced, remade.map(put).transpose()?))
    };
    let (displaced, done) = match tokio::task::spawn_blocking(remake).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => return hub.failed(&error),
        Err(_) => return false,
    };
    hub.state.write().await.kept(locals, displaced);
    if let Some((Remade { image, served, places, users, groups }, published)) = done {
        let generation = published.generation;
        let places = places.map(|places| Places { generation, ..places });
        hub.update(|status| {
            (status.users, status.groups) = (users, groups);
            status.memberships = image.memberships();
        });
        hub.is_in_place(&published, start.elapsed(), served, places).await;
    }
    // Whether it could be read is told with what is waited for.
    hub.waits().await;
    true
}

/// The blocking part: merge, build, verify, publish. `before` is what the snapshot in place has.
fn make_and_publish(
    hub: &Hub,
    basis: &Basis,
    before: &Served,
) -> anyhow::Result<(Made, Published)> {
    let made = basis.make()?;
    if made.served.keys().any(|domain| !before.contains_key(domain)) {
        let both = before.iter().chain(&made.served).map(|(name, counts)| (name.clone(), *counts));
        hub.write_served(&both.collect())?;
    }
    let published = publish_image(hub, &made.image)?;
    Ok((made, published))
}

/// Verifies an image and has it take the place of the one that there is.
fn publish_image(hub: &Hub, image: &SnapshotImage) -> anyhow::Result<Published> {
    let last_bytes = hub.status.lock().unwrap_or_else(PoisonError::into_inner).bytes;
    // A little more than last time, as a rule, and then no copy to make room.
    let last_bytes = last_bytes + last_bytes / 16;
    let rights = Rights { mode: 0o644, gid: None };
    Ok(publish(&hub.snapshot, rights, |file, generation| {
        let mut bytes = Cursor::new(Vec::with_capacity(usize::try_from(last_bytes).unwrap_or(0)));
        let length = image.write(&mut bytes, generation)?;
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
    })?)
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
    /// Whether it is too early to publish; the status tells what is waited for then.
    async fn waits(&self) -> bool {
        let state = self.state.read().await;
        let Some(what) = state.waits_for() else { return false };
        let mut text = what;
        if !state.unusable().is_empty() {
            text += "; until then new local accounts displace nobody in the last one, for ";
            text += state.unusable();
        }
        drop(state);
        self.update(|status| {
            if status.waits_for != text {
                tracing::warn!("the last snapshot goes on serving; the next is made when {text}");
            }
            status.waits_for = text;
            status.error.clear();
        });
        true
    }

    /// Tells that a publication failed, which is worth another try.
    fn failed(&self, error: &anyhow::Error) -> bool {
        tracing::error!("the last snapshot goes on serving: {error:#}");
        metrics::counter!("roster_publish_failures_total").increment(1);
        self.update(|status| status.error = format!("{error:#}"));
        false
    }

    /// Tells of a snapshot that is in place, and puts down what it has.
    async fn is_in_place(
        self: &Arc<Self>,
        &Published { generation, bytes, .. }: &Published,
        took: Duration,
        served: Served,
        places: Option<Places>,
    ) {
        metrics::histogram!("roster_publish_seconds").record(took.as_secs_f64());
        metrics::counter!("roster_publications_total").increment(1);
        metrics::counter!("roster_publish_bytes_total").increment(bytes);
        metrics::gauge!("roster_snapshot_generation").set(generation as f64);
        self.update(|status| {
            status.generation = generation;
            status.published_unix_ms = unix_ms();
            status.bytes = bytes;
            status.publications += 1;
            status.bytes_written += bytes;
            status.last_publish_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        });
        tracing::info!(generation, bytes, ms = took.as_millis(), "published");
        self.announce(generation).await;
        let hub = Arc::clone(self);
        let write = move || {
            hub.write_served(&served)?;
            match (places, hub.snapshot.parent()) {
                (Some(places), Some(state_dir)) => places
                    .write(state_dir)
                    .with_context(|| format!("cannot write {}", places::FILE)),
                _ => Ok(()),
            }
        };
        let written = tokio::task::spawn_blocking(write).await;
        if let Ok(Err(error)) = written {
            // The worst is a question too many after a restart; the next publication tries again.
            tracing::warn!("{error:#}");
        }
    }

    /// Takes in what a back-end handed over, which may be long: it is read before anybody has to wait.
    async fn take_in(self: &Arc<Self>, domain: usize, image: OwnedFd) -> Result<Taken, Refused> {
        let hub = Arc::clone(self);
        let take = move || {
            let image = read(image).map_err(|error| Refused::Unread(format!("{error:#}")))?;
            let image = Image::read(&image)?;
            hub.state.blocking_write().apply(domain, image)
        };
        let taken = tokio::task::spawn_blocking(take).await;
        taken.unwrap_or_else(|error| Err(Refused::Unread(error.to_string())))
    }

    /// Puts down why nothing of a domain is taken in any more, or that it is.
    async fn not_taken(&self, position: usize, why: &str) {
        let mut state = self.state.write().await;
        if state.set_not_taken(position, why) && !why.is_empty() {
            let domain = &state.domains[position].name;
            tracing::error!(domain, "what its back-end hands over is not taken: {why}");
        }
    }

    /// Has a domain of which nothing can be taken in be as it was, so that the others do not wait for it.
    async fn restore(&self, position: usize) {
        let Some(restoring) = self.state.read().await.restoring(position) else { return };
        let made = tokio::task::spawn_blocking(move || restoring.make()).await;
        let mut state = self.state.write().await;
        let domain = state.domains[position].name.clone();
        match made {
            Ok(Ok(restored)) => {
                state.restored(position, restored);
                tracing::warn!(domain, "what the last snapshot has of it goes on being served");
                self.changed.notify_one();
            }
            Ok(Err(error)) => {
                tracing::warn!(domain, "what the last snapshot has of it cannot be read: {error}");
            }
            Err(_) => {}
        }
    }

    /// Waits for an attempt to publish that begins from now on; how it came out is in the status.
    async fn next_attempt(&self) {
        let awaited = self.begun.load(Ordering::Relaxed) + 1;
        let mut ended = self.ended.subscribe();
        self.changed.notify_one();
        let _ = ended.wait_for(|ended| *ended >= awaited).await;
    }

    /// Puts down what the snapshot has, if that is not on the disk yet.
    fn write_served(&self, served: &Served) -> anyhow::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.as_ref() != Some(served) {
            *written = None;
            let state_dir = self.snapshot.parent().context("the snapshot is in no folder")?;
            let error = || format!("cannot write {}", served::FILE);
            served::write(state_dir, served).with_context(error)?;
            *written = Some(served.clone());
        }
        Ok(())
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
        match timeout(SIGNAL_DEADLINE, Object::snapshot_published(&emitter, generation)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("cannot announce generation {generation}: {error}"),
            Err(_) => tracing::warn!("cannot announce generation {generation}: the bus hangs"),
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
        match timeout(SIGNAL_DEADLINE, told).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("cannot tell what to forget: {error}"),
            Err(_) => tracing::warn!("cannot tell what to forget: the bus hangs"),
        }
    }
}

/// Reads the host's own accounts, now and whenever they change.
async fn follow_locals(hub: Arc<Hub>, files: LocalFiles, mut watch: Watch) {
    let mut believed = Believed::default();
    let now = SystemTime::now();
    // How the files were at the beginning of a quiet time that is over.
    let mut left = files.marks().filter(|marks| marks.had_settled(now, SETTLED));
    loop {
        let read = files.read_settled(left.as_ref());
        let error = read.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
        hub.update(|status| {
            if !error.is_empty() && status.locals_error != error {
                tracing::error!(
                    "what was read last of the host's own accounts goes on counting: {error}"
                );
            }
            status.locals_error = error;
        });
        let (accounts, is_all) = match read {
            Ok((read, settled)) => believed.take(read, settled),
            Err(_) => (None, false),
        };
        if let Some(accounts) = accounts
            && hub.state.write().await.set_locals(accounts.clone())
        {
            hub.invalidate(&Forget { all: true, ..Forget::default() }).await;
            hub.changed.notify_one();
        }
        left = match is_all {
            true => {
                watch.changed().await;
                None
            }
            false => {
                let marks = files.marks();
                let quiet = timeout(SETTLED, watch.changed()).await.is_err();
                marks.filter(|_| quiet)
            }
        };
    }
}

/// Fetches what one back-end has, now and whenever it says that there is more.
async fn follow_domain(hub: Arc<Hub>, position: usize, name: String, proxy: BackendProxy<'static>) {
    let news = Arc::clone(&hub.news[position]);
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
    let mut stays_for = "";
    let mut held_since = None;
    loop {
        let (epoch, since) = match from_start {
            true => (0, 0),
            false => hub.state.read().await.position(position),
        };
        let start = Instant::now();
        let fetched = fetch(&proxy, epoch, since).await;
        let taken = match fetched {
            Ok(image) => hub.take_in(position, image).await,
            Err(error) => {
                tracing::debug!(domain = name, "cannot fetch: {error:#}");
                // Its name may not be there yet; then the bus tells when it comes.
                let _ = timeout(pause, news.notified()).await;
                pause = (2 * pause).min(ASK_AGAIN_MAX);
                continue;
            }
        };
        // A back-end that always has news takes half of the time at the most.
        tokio::time::sleep(start.elapsed().min(ASK_AGAIN_MAX)).await;
        match taken {
            Ok(Taken::Changes(forget)) => {
                hub.not_taken(position, "").await;
                if forget.all {
                    hub.asker.forget_absent(position);
                }
                hub.invalidate(&forget).await;
                hub.changed.notify_one();
                metrics::counter!("roster_fetches_total", "domain" => name.clone()).increment(1);
            }
            Ok(Taken::NothingNew) => hub.not_taken(position, "").await,
            Ok(Taken::NotYet(why)) => {
                if why != stays_for {
                    tracing::warn!(domain = name, "what is here stays: {why}");
                    stays_for = why;
                    hub.waits().await;
                }
                from_start = false;
                held_since = (why == HELD).then(|| held_since.unwrap_or_else(Instant::now));
                if held_since.is_some_and(|since: Instant| since.elapsed() >= READ_AGAIN) {
                    held_since = Some(Instant::now());
                    if let Ok(Err(error)) = timeout(CALL_DEADLINE, proxy.refresh()).await {
                        tracing::debug!(domain = name, "cannot have it read again: {error}");
                    }
                }
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
                hub.not_taken(position, &error.to_string()).await;
                hub.restore(position).await;
            }
        }
        (from_start, stays_for, pause, held_since) = (false, "", ASK_AGAIN_MIN, None);
        news.notified().await;
    }
}

/// What leads from there to now.
async fn fetch(proxy: &BackendProxy<'_>, epoch: u64, since: u64) -> anyhow::Result<OwnedFd> {
    Ok(timeout(CALL_DEADLINE, proxy.fetch(epoch, since)).await??.into())
}

/// An image, whole and in this process's own memory.
fn read(descriptor: OwnedFd) -> anyhow::Result<Vec<u8>> {
    let seals = rustix::fs::fcntl_get_seals(&descriptor).context("that is no memfd")?;
    let wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    anyhow::ensure!(seals.contains(wanted), "the memfd is not sealed");
    let mut file = File::from(descriptor);
    let length = file.metadata()?.len();
    anyhow::ensure!(
        length <= roster_bus::exchange::IMAGE_BYTES_MAX,
        "it is {length} bytes long, which is more than any domain may have: narrow down what the \
         domain takes in, with base or filter"
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

/// What is known of the snapshot in place, and its bytes. Where it is not known what it has, it may have
/// entries of every domain.
fn in_place(
    state_dir: &Path,
    snapshot: &Path,
    config: &role::Publisher,
) -> (Served, Option<Vec<u8>>) {
    let bytes = match std::fs::read(snapshot) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Default::default(),
        Err(error) => {
            tracing::warn!("cannot read {}: {error}", snapshot.display());
            Vec::new()
        }
    };
    let served = served::read(state_dir).unwrap_or_else(|| {
        tracing::warn!(
            "{} is gone: every domain is waited for, and none can be told to have lost many",
            served::FILE
        );
        let domains = config.domains.iter();
        domains.map(|domain| (domain.name.clone(), served::Counts::default())).collect()
    });
    (served, Some(bytes))
}
