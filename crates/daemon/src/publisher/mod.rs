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
//! | `own` | whether the snapshot in place is still this publisher's |
//! | `disk` | whether it can be read, and its copy in memory |
//! | `served` | what the snapshot in place has, for the next process |
//! | `failures` | look-ups that failed lately |
//! | `report` | what people are told |
//! | `on_demand` | look-ups in domains that are not mirrored |
//! | `learnt` | what they brought that was not fetched yet |
//! | `object` | the interface on the bus |
//!
//! The snapshot in place is watched by inotify, see `own`.
//!
//! Timers: ten to sixty seconds once at the start; when idle, five minutes between two reads of the snapshot from its
//! disk, and others only while a back-end has nothing to tell yet,
//! which is asked again after one to 60 seconds, or the host's own accounts cannot be read or were
//! written a moment ago, which are read again every second. A change is published at once, the next one not
//! before `[publisher] interval` has passed, and a storm of changes takes half of the time at the most,
//! see `pace`. What a look-up found is published a second later, for whoever asked has it already.

mod build;
mod cost;
mod disk;
mod failures;
mod kept;
mod learnt;
mod locals;
mod merge;
mod model;
mod object;
mod on_demand;
mod own;
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

use crate::role::{self, COPIES, Context, SNAPSHOT, Shutdown};
use anyhow::Context as _;
use failures::Failures;
use futures_util::StreamExt;
use kept::Remade;
use locals::Believed;
use model::{Image, Refused};
use object::Object;
use on_demand::Asker;
use own::{Guard, Identity, InPlace, Stamp};
use pace::Pace;
use places::Places;
use roster_admission::LocalFiles;
use roster_bus::interfaces::{BackendProxy, CALL_DEADLINE, PublisherStatus};
use roster_bus::names::Role;
use roster_bus::zbus;
use roster_config::Mode;
use roster_provider::settled::SETTLED;
use roster_provider::watch::Watch;
use roster_snapshot::layout::Kind;
use roster_snapshot_build::Image as SnapshotImage;
use roster_snapshot_build::copy;
use roster_snapshot_build::publish::{Published, Rights, publish_after};
use roster_snapshot_build::verify::verify;
use rustix::fs::SealFlags;
use served::{Section, Served};
use state::{Basis, Forget, HELD, Made, State, Taken};
use std::fs::File;
use std::io::{Cursor, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, RwLock};
use tokio::time::timeout;

/// How long after the start a snapshot in place goes on serving, at the least, while a back-end has not
/// heard from its directory yet, and may have less than the snapshot.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long at the most, of a back-end that runs: it may still read. The time without a back-end does not count. The
/// snapshot in place is newer than what that took from its cache at its last start.
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
    /// The snapshot in place, and what stands of it in [`served::FILE`]; none where it is not this publisher's.
    own: Mutex<Option<(InPlace, Section)>>,
    /// The newest generation that this publisher is known to have written.
    newest: AtomicU64,
    failures: Mutex<Failures>,
    /// The directory of copies of the snapshot.
    copies: Option<PathBuf>,
    /// Held while copies are made or removed.
    copying: Mutex<()>,
    /// The snapshot in place cannot be read from the disk, or not be copied.
    disk_read: Notify,
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
    let guard = Guard::new(&snapshot, &context.run_dir.join(COPIES));
    let copies = disk::copies(&context.run_dir);
    let Found { served, previous, own, newest, foreign } =
        in_place(&folder, &snapshot, copies.as_deref(), &config);
    let places = previous.as_deref().and_then(|bytes| Places::read(&folder, bytes));
    let status = PublisherStatus {
        snapshot: snapshot.display().to_string(),
        foreign: foreign.clone(),
        ..PublisherStatus::default()
    };
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
    if !foreign.is_empty() {
        state.set_foreign();
    }
    let hub = Arc::new(Hub {
        state: RwLock::new(state),
        changed: Notify::new(),
        learnt: Notify::new(),
        begun: AtomicU64::new(0),
        ended: tokio::sync::watch::channel(0).0,
        own: Mutex::new(own),
        newest: AtomicU64::new(newest),
        failures: Mutex::default(),
        copies,
        copying: Mutex::default(),
        disk_read: Notify::new(),
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
    tokio::spawn(disk::follow(Arc::clone(&hub)));
    publish_changes(&hub, config.publisher.interval, guard, &mut context.shutdown).await
}

/// After a while a directory that is away is no longer waited for, and what its back-end has is served.
async fn lose_patience(hub: Arc<Hub>, position: usize, proxy: BackendProxy<'static>) {
    tokio::time::sleep(PATIENCE).await;
    let mut left = PATIENCE_MAX.saturating_sub(PATIENCE);
    while hub.state.read().await.may_be_behind(position) && !left.is_zero() {
        match timeout(CALL_DEADLINE, proxy.status()).await {
            // The directory does not answer; before that was tried it only did not yet.
            Ok(Ok(status)) if !status.online && status.since_unix > 0 => break,
            Ok(Ok(_)) => left = left.saturating_sub(PATIENCE_PAUSE),
            Ok(Err(_)) | Err(_) => {}
        }
        tokio::time::sleep(PATIENCE_PAUSE).await;
    }
    hub.state.write().await.lose_patience(position);
    hub.changed.notify_one();
}

/// Publishes whenever something changed, or the snapshot in place is lost, until the role is to stop.
async fn publish_changes(
    hub: &Arc<Hub>,
    interval: Duration,
    mut guard: Guard,
    shutdown: &mut Shutdown,
) -> anyhow::Result<()> {
    let mut is_lost = false;
    // Set after a failure: until the next attempt, whatever changes in between.
    let mut again: Option<Duration> = None;
    let mut pace = Pace::new(interval);
    loop {
        let due = async {
            match again {
                Some(pause) => tokio::time::sleep(pause).await,
                None if is_lost => {}
                None => tokio::select! {
                    () = hub.changed.notified() => {}
                    () = hub.lost(&mut guard) => is_lost = true,
                    () = async {
                        hub.learnt.notified().await;
                        tokio::time::sleep(LEARNT_PAUSE).await;
                    } => {}
                },
            }
        };
        tokio::select! {
            () = due => {}
            () = shutdown.wait() => return Ok(()),
        }
        if let Some(folder) = guard.moved() {
            anyhow::bail!("{}: the directory is another one than at the start", folder.display());
        }
        let start = Instant::now();
        hub.begun.fetch_add(1, Ordering::Relaxed);
        let worked = attempt(hub, std::mem::take(&mut is_lost)).await;
        hub.ended.send_modify(|ended| *ended += 1);
        again = match (worked, again) {
            (true, _) => None,
            (false, None) => Some(RETRY_MIN),
            (false, Some(pause)) => Some((2 * pause).min(RETRY_MAX)),
        };
        let next = pace.next(start, Instant::now());
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            () = hub.lost(&mut guard), if again.is_none() => is_lost = true,
            () = shutdown.wait() => return Ok(()),
        }
    }
}

/// Publishes what there is; `false` when that failed and is worth another try. `is_lost`: the snapshot in
/// place has to be written again.
async fn attempt(hub: &Arc<Hub>, is_lost: bool) -> bool {
    if hub.waits().await {
        return keep_up(hub, is_lost).await;
    }
    hub.update(|status| {
        status.error.clear();
        status.waits_for.clear();
    });
    if hub.state.read().await.is_empty() {
        return !is_lost;
    }
    let start = Instant::now();
    let basis = hub.state.read().await.begin();
    let worker = Arc::clone(hub);
    let make = move || make_and_publish(&worker, &basis);
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
        status.foreign.clear();
    });
    say_what_is_refused(&counts);
    let order = counts.iter().map(|domain| domain.domain.clone());
    let places = order.filter_map(|name| Some((name.clone(), *served.get(&name)?)));
    let places = Places { generation: published.generation, domains: places.collect() };
    hub.is_in_place(&published, start.elapsed(), Some(places)).await;
    true
}

/// While the next snapshot is waited for: has the one in place be without whom a local account
/// displaces, and has it written again if it `is_lost`. `false` when that failed and is worth another try.
async fn keep_up(hub: &Arc<Hub>, is_lost: bool) -> bool {
    let Some(kept) = hub.state.read().await.keep(is_lost) else { return !is_lost };
    let (start, locals) = (Instant::now(), Arc::clone(&kept.locals));
    let worker = Arc::clone(hub);
    let remake = move || {
        let (displaced, remade) = match kept.make() {
            Ok((displaced, remade)) => (Ok(displaced), remade),
            Err(error) => (Err(error), None),
        };
        let put = |remade: Remade| {
            publish_image(&worker, &remade.image, &remade.served)
                .map(|published| (remade, published))
        };
        anyhow::Ok((displaced, remade.map(put).transpose()?))
    };
    let (displaced, done) = match tokio::task::spawn_blocking(remake).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => return hub.failed(&error),
        Err(_) => return false,
    };
    let is_written = done.is_some();
    hub.state.write().await.kept(locals, displaced);
    if let Some((Remade { image, served: _, places, users, groups }, published)) = done {
        let generation = published.generation;
        let places = places.map(|places| Places { generation, ..places });
        hub.update(|status| {
            (status.users, status.groups) = (users, groups);
            status.memberships = image.memberships();
        });
        hub.is_in_place(&published, start.elapsed(), places).await;
    }
    // Whether it could be read is told with what is waited for.
    hub.waits().await;
    is_written || !is_lost
}

/// The blocking part: merge, build, verify, publish.
fn make_and_publish(hub: &Hub, basis: &Basis) -> anyhow::Result<(Made, Published)> {
    let made = basis.make()?;
    let published = publish_image(hub, &made.image, &made.served)?;
    Ok((made, published))
}

/// Verifies an image, records what it has, and has it take the place of the one that there is.
fn publish_image(hub: &Hub, image: &SnapshotImage, served: &Served) -> anyhow::Result<Published> {
    let last_bytes = hub.status.lock().unwrap_or_else(PoisonError::into_inner).bytes;
    // A little more than last time, as a rule, and then no copy to make room.
    let last_bytes = last_bytes + last_bytes / 16;
    let rights = Rights { mode: 0o644, gid: None };
    let newest = hub.newest.load(Ordering::Relaxed);
    let _copying = hub.copying.lock().unwrap_or_else(PoisonError::into_inner);
    let mut new = None;
    let published = publish_after(&hub.snapshot, rights, newest, |file, generation| {
        let mut bytes = Cursor::new(Vec::with_capacity(usize::try_from(last_bytes).unwrap_or(0)));
        let length = image.write(&mut bytes, generation)?;
        let bytes = bytes.into_inner();
        // Read once more while the disk takes it. The file gets its name after both.
        let (verified, recorded, written) = std::thread::scope(|scope| {
            let verified = scope.spawn(|| verify(&bytes, Kind::Accounts).map(drop));
            let recorded = scope.spawn(|| hub.record(&bytes, served));
            let written = file.write_all(&bytes).and_then(|()| {
                if let Some(folder) = &hub.copies {
                    // It is there when the file gets its name. Whether it is gets told below.
                    let _ = copy::put(folder, &file.metadata()?, rights.mode, &bytes[..]);
                }
                file.sync_data()
            });
            (verified.join(), recorded.join(), written)
        });
        written?;
        let section = match recorded {
            Ok(recorded) => recorded?,
            Err(_) => return Err(std::io::Error::other("the snapshot was not recorded")),
        };
        let stat = file.metadata()?;
        new = Some((section, (stat.dev(), stat.ino())));
        match verified {
            Ok(verified) => verified.map_err(std::io::Error::other)?,
            Err(_) => return Err(std::io::Error::other("the snapshot was not verified")),
        }
        Ok(length)
    });
    hub.settle_copies();
    let published = published?;
    let stamp = Stamp::of(&hub.snapshot).ok();
    let own = new.map(|(section, file)| {
        let stamp = stamp.filter(|stamp| stamp.file() == file);
        (InPlace { identity: section.identity, stamp }, section)
    });
    hub.newest.store(published.generation, Ordering::Relaxed);
    *hub.own.lock().unwrap_or_else(PoisonError::into_inner) = own;
    Ok(published)
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

    /// Tells of a snapshot that is in place, and puts down what lies where in it.
    async fn is_in_place(
        self: &Arc<Self>,
        &Published { generation, bytes, .. }: &Published,
        took: Duration,
        places: Option<Places>,
    ) {
        metrics::histogram!("roster_publish_seconds").record(took.as_secs_f64());
        metrics::counter!("roster_publications_total").increment(1);
        metrics::counter!("roster_publish_bytes_total").increment(bytes);
        metrics::gauge!("roster_snapshot_generation").set(generation as f64);
        self.update(|status| {
            status.generation = generation;
            status.disk_error.clear();
            status.published_unix_ms = unix_ms();
            status.bytes = bytes;
            status.publications += 1;
            status.bytes_written += bytes;
            status.last_publish_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        });
        tracing::info!(generation, bytes, ms = took.as_millis(), "published");
        self.announce(generation).await;
        let hub = Arc::clone(self);
        let write = move || match (places, hub.snapshot.parent()) {
            (Some(places), Some(state_dir)) => {
                places.write(state_dir).with_context(|| format!("cannot write {}", places::FILE))
            }
            _ => Ok(()),
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

    /// Puts the snapshot in place and the next one down as this publisher's, durably.
    fn record(&self, bytes: &[u8], served: &Served) -> std::io::Result<Section> {
        let none = || std::io::Error::other("the snapshot has no header, or no folder");
        let identity = Identity::of(bytes).ok_or_else(none)?;
        let section = Section { identity, served: served.clone() };
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sections: Vec<_> =
            own.into_iter().map(|(_, old)| old).chain([section.clone()]).collect();
        served::write(self.snapshot.parent().ok_or_else(none)?, &sections).map_err(|error| {
            std::io::Error::new(error.kind(), format!("{}: {error}", served::FILE))
        })?;
        Ok(section)
    }

    /// Returns when the snapshot in place is not this publisher's last one any more.
    async fn lost(self: &Arc<Self>, guard: &mut Guard) {
        loop {
            let hub = Arc::clone(self);
            let look = move || {
                let mut own = hub.own.lock().unwrap_or_else(PoisonError::into_inner);
                own.as_mut().and_then(|(own, _)| own.lost(&hub.snapshot))
            };
            if let Ok(Some(why)) = tokio::task::spawn_blocking(look).await {
                let snapshot = self.snapshot.display();
                tracing::warn!("{snapshot} is published again: {why}");
                return;
            }
            if self.is_unreadable() {
                let snapshot = self.snapshot.display();
                tracing::warn!("{snapshot} is published again: it cannot be read");
                return;
            }
            if guard.moved().is_some() {
                return;
            }
            tokio::select! {
                () = guard.changed() => {}
                () = self.disk_read.notified() => {}
            }
        }
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
    let mut left = locals::marks(&files).filter(|marks| marks.had_settled(now, SETTLED));
    loop {
        let read = locals::read_settled(&files, left.as_ref());
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
                let marks = locals::marks(&files);
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
                // It may be this process that could not read it.
                (from_start, stays_for, held_since) = (false, "", None);
                let _ = timeout(pause, news.notified()).await;
                pause = (2 * pause).min(ASK_AGAIN_MAX);
                continue;
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

/// What is known of the snapshot in place.
#[derive(Default)]
struct Found {
    /// What counts as served.
    served: Served,
    /// Its bytes, unless another program wrote them.
    previous: Option<Vec<u8>>,
    /// It, if this publisher's last process wrote it.
    own: Option<(InPlace, Section)>,
    /// The newest generation that a publisher of this host recorded.
    newest: u64,
    /// Which it is, if another program wrote it; empty otherwise.
    foreign: String,
}

/// Looks at the snapshot in place. Where nothing is recorded, it may have entries of every domain.
fn in_place(
    state_dir: &Path,
    snapshot: &Path,
    copies: Option<&Path>,
    config: &role::Publisher,
) -> Found {
    let sections = served::read(state_dir);
    let newest = sections.iter().flatten().map(|section| section.identity.generation).max();
    let newest = newest.unwrap_or(0);
    let stamp = Stamp::of(snapshot).ok();
    let bytes = match disk::read(snapshot, copies) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Found { newest, ..Found::default() };
        }
        Err(error) => {
            tracing::warn!("cannot read {}: {error}", snapshot.display());
            Vec::new()
        }
    };
    let every_domain =
        || config.domains.iter().map(|domain| (domain.name.clone(), served::Counts::default()));
    let Some(mut sections) = sections else {
        tracing::warn!(
            "{} is gone: every domain is waited for, and none can be told to have lost many",
            served::FILE
        );
        let served = every_domain().collect();
        return Found { served, previous: Some(bytes), newest, ..Found::default() };
    };
    let identity = Identity::of(&bytes);
    if let Some(own) = sections.iter().position(|section| Some(section.identity) == identity) {
        let section = sections.swap_remove(own);
        let served = section.served.clone();
        let own = InPlace { identity: section.identity, stamp };
        return Found {
            served,
            previous: Some(bytes),
            own: Some((own, section)),
            newest,
            ..Found::default()
        };
    }
    let generation = identity.map(|identity| identity.generation);
    let of_generation =
        sections.iter().rev().find(|section| Some(section.identity.generation) == generation);
    match (of_generation, verify(&bytes, Kind::Accounts)) {
        // It was this publisher's, and is damaged; or nobody can read it.
        (Some(section), Err(_)) => {
            let served = section.served.clone();
            Found { served, previous: Some(bytes), newest, ..Found::default() }
        }
        (None, Err(_)) if generation.is_none() => {
            let served = sections.pop().map(|section| section.served).unwrap_or_default();
            Found { served, previous: Some(bytes), newest, ..Found::default() }
        }
        _ => {
            let foreign = format!(
                "it is generation {}, which rosterd did not write; the last that it wrote is {newest}",
                generation.unwrap_or_default()
            );
            tracing::error!("{} is not rosterd's: {foreign}", snapshot.display());
            // Until all domains are there, or the patience with them is over.
            Found { served: every_domain().collect(), newest, foreign, ..Found::default() }
        }
    }
}
