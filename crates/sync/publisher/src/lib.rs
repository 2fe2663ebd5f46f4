// SPDX-License-Identifier: MIT OR Apache-2.0
//! The role `publisher`: the only writer of the snapshot, and the trust boundary. It follows the backends over the bus,
//! merges their domains, compares them with the host's own accounts, and publishes. It has no network and never talks
//! to a directory.
//!
//! | module | content |
//! |---|---|
//! | `domain_model` | entries as the backends sent them |
//! | `model_entry` | users and groups in it |
//! | `local_overrides` | overrides of a domain, applied to entries and queries |
//! | `overrides_file` | follows the file with overrides |
//! | `memory_limit` | memory limit of a domain |
//! | `roster_admission` | rules for entries that may be served |
//! | `merge` | owner of a name or id that several entries have |
//! | `snapshot_build` | member resolution and the snapshot image |
//! | `state` | state of all domains, and the reasons to wait |
//! | `publish_rate` | earliest time of the next publication |
//! | `last_snapshot` | the snapshot that is served until the next one |
//! | `domain_follower` | fetches the state of one domain from its backend |
//! | `existing_snapshot` | the snapshot in place at the start |
//! | `own` | whether the snapshot in place is still this publisher's |
//! | `disk` | whether it can be read, and its copy in memory |
//! | `own_record` | list of the snapshots that this publisher wrote, for the next process |
//! | `entry_counts` | counts of entries |
//! | `failures` | lookups that failed recently |
//! | `rejections` | rejected entries, as the administrator sees them |
//! | `printable` | names as text for reports |
//! | `published_counts` | counts for the status |
//! | `on_demand` | lookups in domains that are not mirrored |
//! | `lookup_overlay` | lookup results that no fetched state has yet |
//! | `dbus` | the interface on the bus |
//!
//! The snapshot in place is watched by inotify, see `own`.
//!
//! Timers:
//!
//! - once at the start, 10 to 60 seconds
//! - every 5 minutes: a read of the snapshot from its disk
//! - after a failed call to a backend: a retry after 1 to 60 seconds
//! - while local account files are unreadable or were written recently: a read every second
//! - while a file with overrides was written recently: a read every second; while it is rejected: every 10 seconds
//!
//! A change is published at once. The next publication waits until `[publisher] interval` has passed. Continuous
//! changes take at most half of the time, see `publish_rate`. A lookup result is published 1 second later, because its
//! caller has it already.

mod dbus;
mod disk;
mod domain_follower;
mod domain_model;
mod entry_counts;
mod existing_snapshot;
mod failures;
mod last_snapshot;
mod local_accounts;
mod local_overrides;
mod lookup_overlay;
mod memory_limit;
mod merge;
mod model_entry;
mod name_owners;
mod on_demand;
mod overrides_file;
mod own;
mod own_record;
#[cfg(test)]
mod precedence_tests;
mod printable;
mod private_group_checks;
#[cfg(test)]
mod private_group_tests;
mod publish_rate;
mod published_counts;
mod rejections;
mod role_config;
mod snapshot_build;
mod state;
#[cfg(test)]
mod tests;

pub use role_config::{DomainRules, PublisherRoleConfig};
use roster_role::clock::unix_now_ms;
use roster_role::directories::{SNAPSHOT_COPY_DIR, SNAPSHOT_DIR, SNAPSHOT_FILE};
use roster_role::error_code::WithCode;
use roster_role::launch::Launch;
use roster_role::{RoleContext, RoleProgram, Shutdown, parent_dirs};
use roster_sandbox::SandboxSpec;

use dbus::PublisherObject;
use domain_follower::DomainFollower;
use domain_model::{DomainImage, ImageRejection};
use existing_snapshot::ExistingSnapshot;
use failures::LookupFailures;
use local_accounts::AcceptedLocals;
use on_demand::BackendClients;
use overrides_file::OverridesFile;
use own::{CurrentSnapshot, SnapshotIdentity, SnapshotStamp, SnapshotWatch};
use parking_lot::Mutex;
use publish_rate::PublishRate;
use roster_admission::LocalFiles;
use roster_bus::bus_names::RoleName;
use roster_bus::domain_image::IMAGE_BYTES_MAX;
use roster_bus::interfaces::{BackendProxy, CALL_DEADLINE, PublisherStatus, RejectionCount};
use roster_bus::zbus;
use roster_config::{DomainMode, ETC_SHELLS, PrivateGroups};
use roster_messages::table::{daemon, directory};
use roster_messages::{CodedError, log};
use roster_provider::file_watch::FileWatch;
use roster_provider::stable_file::STABLE_FOR;
use roster_snapshot::layout::SnapshotKind;
use roster_snapshot_build::copy;
use roster_snapshot_build::publish::{FileRights, Publication, publish_after};
use roster_snapshot_build::verify::verify;
use rustix::fs::SealFlags;
use state::{ImageOutcome, Invalidation, MergeResult, PublisherState, SnapshotInput};
use std::fs::File;
use std::io::{Cursor, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{Notify, RwLock, oneshot};
use tokio::time::timeout;

/// Shortest time for which a snapshot in place is served while a backend has not contacted its directory yet. The
/// backend may have fewer entries than the snapshot.
const STALE_WAIT_MIN: Duration = Duration::from_secs(10);
/// Longest such time for a running backend, which may still be reading. The time without a backend does not count. The
/// snapshot in place is newer than the cache that the backend loaded at its start.
const STALE_WAIT_MAX: Duration = Duration::from_secs(60);
/// Interval between two status calls in that time.
const STALE_WAIT_PAUSE: Duration = Duration::from_secs(1);
/// First pause after a failed publication. It doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Time for which a lookup result waits for further results before it is published.
const LOOKUP_PUBLISH_DELAY: Duration = Duration::from_secs(1);
/// Time limit of a signal. A bus that hangs must not stop publications. The monitor restarts it.
const SIGNAL_DEADLINE: Duration = Duration::from_secs(1);
/// Name of the responder's socket in the run-time directory.
const RESPONDER_SOCKET: &str = "nss";

/// The publications of this process.
struct PublicationProgress {
    attempts_begun: AtomicU64,
    attempts_ended: tokio::sync::watch::Sender<u64>,
    /// The snapshot in place; `None` if it is not this publisher's.
    current: Mutex<Option<CurrentSnapshot>>,
    /// The newest generation that this publisher is known to have written.
    newest_generation: AtomicU64,
}

/// The copies of the snapshot in memory.
struct SnapshotCopies {
    /// The directory of the copies.
    dir: Option<PathBuf>,
    /// Held while copies are made or removed.
    lock: Mutex<()>,
    /// The snapshot in place cannot be read from the disk, or not be copied.
    disk_read_due: Notify,
}

/// State that the publisher's tasks share.
pub struct PublisherTasks {
    state: RwLock<PublisherState>,
    /// A new snapshot is due.
    changed: Notify,
    /// A lookup result waits for the next snapshot. It is not urgent.
    lookup_changed: Notify,
    publications: PublicationProgress,
    failures: Mutex<LookupFailures>,
    copies: SnapshotCopies,
    /// By domain: wakes the follower of its backend.
    domain_wakeups: Vec<Arc<Notify>>,
    status: Mutex<PublisherStatus>,
    snapshot: PathBuf,
    connection: zbus::Connection,
    object: String,
    backends: BackendClients,
}

/// The role `publisher`.
pub struct PublisherRole;

impl RoleProgram for PublisherRole {
    type Config = PublisherRoleConfig;
    type Helper = ();

    fn watched_files(config: &PublisherRoleConfig) -> Vec<&Path> {
        let host = &config.host;
        let overrides = config.domains.iter().filter_map(|domain| domain.overrides.file.as_deref());
        let shells = config.needs_shells().then(|| Path::new(ETC_SHELLS));
        let locals: [&Path; 4] = [&host.passwd, &host.group, &host.subuid, &host.subgid];
        locals.into_iter().chain(shells).chain(overrides).collect()
    }

    fn sandbox(launch: &Launch<PublisherRoleConfig>) -> SandboxSpec {
        SandboxSpec {
            read: parent_dirs(&Self::watched_files(&launch.config)),
            write: vec![
                launch.state_dir.join(SNAPSHOT_DIR),
                launch.run_dir.join(SNAPSHOT_COPY_DIR),
            ],
            ..SandboxSpec::default()
        }
    }

    fn start_helper(_: &Launch<PublisherRoleConfig>) -> anyhow::Result<()> {
        Ok(())
    }

    async fn run(context: RoleContext<PublisherRoleConfig>, (): ()) -> anyhow::Result<()> {
        run(context).await
    }
}

async fn run(mut context: RoleContext<PublisherRoleConfig>) -> anyhow::Result<()> {
    let config = context.config.clone();
    let folder = context.snapshot_dir();
    let snapshot = folder.join(SNAPSHOT_FILE);
    let guard = SnapshotWatch::new(&snapshot, &context.run_dir.join(SNAPSHOT_COPY_DIR));
    let copies = disk::copy_dir(&context.run_dir);
    let ExistingSnapshot { served, previous, own, newest, foreign } =
        ExistingSnapshot::read(&folder, &snapshot, copies.as_deref(), &config);
    let status = PublisherStatus {
        snapshot: snapshot.display().to_string(),
        foreign: foreign.clone(),
        ..PublisherStatus::default()
    };
    let mut proxies = Vec::new();
    for domain in &config.domains {
        let role = RoleName::Backend(domain.name.clone());
        let proxy = BackendProxy::builder(&context.connection)
            .destination(role.bus_name())
            .path(role.path())
            .build()
            .await?;
        proxies.push(proxy);
    }
    let asked = config.domains.iter().zip(&proxies).map(|(domain, proxy)| {
        let asked = || (domain.clone(), proxy.clone());
        (domain.mode == DomainMode::OnDemand).then(asked)
    });
    let asker = BackendClients::new(asked);
    let mut state =
        PublisherState::new(&config, &context.run_dir.join(RESPONDER_SOCKET), served, previous);
    if !foreign.is_empty() {
        state.set_foreign();
    }
    let hub = Arc::new(PublisherTasks {
        state: RwLock::new(state),
        changed: Notify::new(),
        lookup_changed: Notify::new(),
        publications: PublicationProgress {
            attempts_begun: AtomicU64::new(0),
            attempts_ended: tokio::sync::watch::channel(0).0,
            current: Mutex::new(own),
            newest_generation: AtomicU64::new(newest),
        },
        failures: Mutex::default(),
        copies: SnapshotCopies {
            dir: copies,
            lock: Mutex::default(),
            disk_read_due: Notify::new(),
        },
        domain_wakeups: config.domains.iter().map(|_| Arc::default()).collect(),
        status: Mutex::new(status),
        snapshot,
        connection: context.connection.clone(),
        object: context.role.path(),
        backends: asker,
    });
    let local_files = LocalFiles::new(&config.host).with_shells(config.needs_shells());
    let watch = watch_locals(&local_files)?;
    tokio::spawn(follow_locals(Arc::clone(&hub), local_files, watch));
    spawn_domain_tasks(&hub, &config, proxies)?;
    let object = PublisherObject::new(Arc::clone(&hub));
    context.connection.object_server().at(context.role.path(), object).await?;
    context.announce_ready().await?;
    tokio::spawn(disk::keep_reading(Arc::clone(&hub)));
    publish_changes(&hub, config.publisher.interval, guard, &mut context.shutdown).await
}

/// Starts the tasks of each domain: those that follow its backend and the file of its overrides.
fn spawn_domain_tasks(
    hub: &Arc<PublisherTasks>,
    config: &PublisherRoleConfig,
    proxies: Vec<BackendProxy<'static>>,
) -> anyhow::Result<()> {
    for (position, (domain, proxy)) in config.domains.iter().zip(proxies).enumerate() {
        tokio::spawn(accept_stale_data(Arc::clone(hub), position, proxy.clone()));
        if domain.mode == DomainMode::OnDemand && domain.private_groups != PrivateGroups::Off {
            let hub = Arc::clone(hub);
            tokio::spawn(private_group_checks::keep_checking(hub, position, domain.refresh));
        }
        let (known, overrides_known) = oneshot::channel();
        if let Some(file) = OverridesFile::new(hub, position, domain, known)? {
            tokio::spawn(file.follow());
        }
        let follower = DomainFollower::new(Arc::clone(hub), position, domain.name.clone(), proxy);
        tokio::spawn(async move {
            if overrides_known.await.is_ok() {
                follower.run().await;
            }
        });
    }
    Ok(())
}

/// Stops waiting for an unreachable directory after a while, so that the entries of its backend are served.
async fn accept_stale_data(
    hub: Arc<PublisherTasks>,
    position: usize,
    proxy: BackendProxy<'static>,
) {
    tokio::time::sleep(STALE_WAIT_MIN).await;
    let mut left = STALE_WAIT_MAX.saturating_sub(STALE_WAIT_MIN);
    while hub.state.read().await.may_be_outdated(position) && !left.is_zero() {
        match timeout(CALL_DEADLINE, proxy.status()).await {
            // The directory is unreachable. Before the first attempt, `since_unix` is 0.
            Ok(Ok(status)) if !status.online && status.since_unix > 0 => break,
            Ok(Ok(_)) => left = left.saturating_sub(STALE_WAIT_PAUSE),
            Ok(Err(_)) | Err(_) => {}
        }
        tokio::time::sleep(STALE_WAIT_PAUSE).await;
    }
    hub.state.write().await.accept_stale_data(position);
    hub.changed.notify_one();
}

/// Publishes after each change, or when the snapshot in place is lost, until the role stops.
async fn publish_changes(
    hub: &Arc<PublisherTasks>,
    interval: Duration,
    mut guard: SnapshotWatch,
    shutdown: &mut Shutdown,
) -> anyhow::Result<()> {
    let mut is_lost = false;
    // Set after a failure: the pause until the next attempt. Changes in between do not shorten it.
    let mut again: Option<Duration> = None;
    let mut pace = PublishRate::new(interval);
    loop {
        let due = async {
            match again {
                Some(pause) => tokio::time::sleep(pause).await,
                None if is_lost => {}
                None => tokio::select! {
                    () = hub.changed.notified() => {}
                    () = hub.wait_until_lost(&mut guard) => is_lost = true,
                    () = async {
                        hub.lookup_changed.notified().await;
                        tokio::time::sleep(LOOKUP_PUBLISH_DELAY).await;
                    } => {}
                },
            }
        };
        tokio::select! {
            () = due => {}
            () = shutdown.wait() => return Ok(()),
        }
        if let Some(folder) = guard.moved_dir() {
            let text = format!("{}: the directory was removed or replaced", folder.display());
            return Err(CodedError::new(&daemon::SNAPSHOT_DIR_REPLACED, text).into());
        }
        let start = Instant::now();
        hub.publications.attempts_begun.fetch_add(1, Ordering::Relaxed);
        let worked = attempt_publish(hub, is_lost).await;
        is_lost &= !worked;
        hub.publications.attempts_ended.send_modify(|ended| *ended += 1);
        again = match (worked, again) {
            (true, _) => None,
            (false, None) => Some(RETRY_MIN),
            (false, Some(pause)) => Some((2 * pause).min(RETRY_MAX)),
        };
        let next = pace.next(start, Instant::now());
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            () = hub.wait_until_lost(&mut guard), if again.is_none() => is_lost = true,
            () = shutdown.wait() => return Ok(()),
        }
    }
}

/// Publishes the present state. Returns `false` if that failed and a retry is due. `is_lost`: the snapshot in place has
/// to be written again.
async fn attempt_publish(hub: &Arc<PublisherTasks>, is_lost: bool) -> bool {
    if hub.is_waiting().await {
        return !is_lost || rewrite_last_snapshot(hub).await;
    }
    hub.update_status(|status| {
        status.error.clear();
        status.waits_for.clear();
    });
    if hub.state.read().await.is_empty() {
        return !is_lost;
    }
    let start = Instant::now();
    let basis = hub.state.read().await.snapshot_input();
    let worker = Arc::clone(hub);
    let make = move || merge_and_publish(&worker, &basis);
    let outcome = tokio::task::spawn_blocking(make).await;
    let (made, published) = match outcome {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => return hub.record_failure(&error),
        Err(_) => return false,
    };
    let memberships = made.image.memberships();
    let counts = {
        let mut state = hub.state.write().await;
        state.apply_published(made);
        state.domain_counts()
    };
    for domain in &counts {
        let refused: u64 = domain.refused.iter().map(|reason| reason.entries).sum();
        metrics::gauge!("roster_refused_entries", "domain" => domain.domain.clone())
            .set(refused as f64);
    }
    hub.update_status(|status| {
        status.users = counts.iter().map(|domain| domain.users).sum();
        status.groups = counts.iter().map(|domain| domain.groups).sum();
        status.memberships = memberships;
        status.error.clear();
        status.foreign.clear();
    });
    log_rejections(&counts);
    hub.record_published(&published, start.elapsed()).await;
    true
}

/// Writes the last snapshot again after its file was lost, while the next one waits. Returns `false` if that failed and
/// a retry is due.
async fn rewrite_last_snapshot(hub: &Arc<PublisherTasks>) -> bool {
    let Some(last) = hub.state.read().await.last_snapshot() else { return false };
    let (start, worker) = (Instant::now(), Arc::clone(hub));
    let publish = move || publish_image(&worker, |out, number| last.write(out, number));
    match tokio::task::spawn_blocking(publish).await {
        Ok(Ok(published)) => {
            hub.record_published(&published, start.elapsed()).await;
            true
        }
        Ok(Err(error)) => hub.record_failure(&error),
        Err(_) => false,
    }
}

/// The blocking part: merge, build, verify, publish.
fn merge_and_publish(
    hub: &PublisherTasks,
    basis: &SnapshotInput,
) -> anyhow::Result<(MergeResult, Publication)> {
    let made = basis.make()?;
    let write = |out: &mut Cursor<Vec<u8>>, generation| made.image.write(out, generation);
    let published = publish_image(hub, write)?;
    Ok((made, published))
}

/// Verifies the bytes that `write` writes with a new generation, records them as this publisher's, and replaces the
/// snapshot in place.
fn publish_image(
    hub: &PublisherTasks,
    write: impl FnOnce(&mut Cursor<Vec<u8>>, u64) -> std::io::Result<u64>,
) -> anyhow::Result<Publication> {
    let last_bytes = hub.status.lock().bytes;
    // As a rule the snapshot grew a little. This avoids a copy of the buffer.
    let last_bytes = last_bytes + last_bytes / 16;
    let rights = FileRights { mode: 0o644, gid: None };
    let newest = hub.publications.newest_generation.load(Ordering::Relaxed);
    let _copying = hub.copies.lock.lock();
    let mut new = None;
    let published = publish_after(&hub.snapshot, rights, newest, |file, generation| {
        let mut bytes = Cursor::new(Vec::with_capacity(usize::try_from(last_bytes).unwrap_or(0)));
        let length = write(&mut bytes, generation)?;
        let bytes = bytes.into_inner();
        // The bytes are verified while the disk writes them. The file gets its name after both.
        let (verified, recorded, written) = std::thread::scope(|scope| {
            let verified = scope.spawn(|| verify(&bytes, SnapshotKind::Accounts).map(drop));
            let recorded = scope.spawn(|| hub.record_identity(&bytes));
            let written = file.write_all(&bytes).and_then(|()| {
                if let Some(folder) = &hub.copies.dir {
                    // The copy exists before the file gets its name. The result is reported below.
                    let _ = copy::put(folder, &file.metadata()?, rights.mode, &bytes[..]);
                }
                file.sync_data()
            });
            (verified.join(), recorded.join(), written)
        });
        written?;
        let identity = match recorded {
            Ok(recorded) => recorded?,
            Err(_) => return Err(std::io::Error::other("the snapshot was not recorded")),
        };
        let stat = file.metadata()?;
        new = Some((identity, (stat.dev(), stat.ino())));
        match verified {
            Ok(verified) => verified.map_err(std::io::Error::other)?,
            Err(_) => return Err(std::io::Error::other("the snapshot was not verified")),
        }
        Ok(length)
    });
    hub.finish_copies();
    let stamp = SnapshotStamp::from_path(&hub.snapshot).ok();
    let own = new.map(|(identity, file)| {
        let stamp = stamp.filter(|stamp| stamp.file() == file);
        CurrentSnapshot { identity, stamp }
    });
    // The new file is in place as well if only its directory could not be synced.
    if let Some(own) = own.filter(|own| published.is_ok() || own.stamp.is_some()) {
        hub.publications.newest_generation.store(own.identity.generation, Ordering::Relaxed);
        *hub.publications.current.lock() = Some(own);
    }
    Ok(published?)
}

/// Counts of rejections by domain and reason.
type RejectionCounts = Vec<(String, Vec<RejectionCount>)>;

/// Logs one line for each reason whenever the counts change.
fn log_rejections(counts: &[roster_bus::interfaces::PublishedDomain]) {
    static SAID: Mutex<RejectionCounts> = Mutex::new(Vec::new());
    let now: RejectionCounts =
        counts.iter().map(|domain| (domain.domain.clone(), domain.refused.clone())).collect();
    let mut said = SAID.lock();
    if *said == now {
        return;
    }
    for (domain, refused) in &now {
        for RejectionCount { reason, code, entries, .. } in refused {
            let noun = if *entries == 1 { "entry" } else { "entries" };
            let message = roster_messages::find(code).unwrap_or(&directory::ENTRIES_REJECTED);
            log!(WARN, message, domain, "{domain}: {entries} {noun} rejected: {reason}");
        }
    }
    *said = now;
}

impl PublisherTasks {
    /// Returns true if it is too early to publish. The status then has the reason.
    async fn is_waiting(&self) -> bool {
        let state = self.state.read().await;
        let Some(text) = state.waiting_for() else { return false };
        drop(state);
        self.update_status(|status| {
            if status.waits_for != text {
                log!(WARN, &daemon::PUBLICATION_WAITS, "publication is on hold until {text}");
            }
            status.waits_for = text;
            status.error.clear();
        });
        true
    }

    /// Reports a failed publication, which is worth a retry.
    fn record_failure(&self, error: &anyhow::Error) -> bool {
        log!(ERROR, &daemon::PUBLISH_FAILED, "the new snapshot is not published: {error:#}");
        metrics::counter!("roster_publish_failures_total").increment(1);
        self.update_status(|status| status.error = format!("{error:#}"));
        false
    }

    /// Reports a snapshot that is in place.
    async fn record_published(
        &self,
        &Publication { generation, bytes, .. }: &Publication,
        took: Duration,
    ) {
        metrics::histogram!("roster_publish_seconds").record(took.as_secs_f64());
        metrics::counter!("roster_publications_total").increment(1);
        metrics::counter!("roster_publish_bytes_total").increment(bytes);
        metrics::gauge!("roster_snapshot_generation").set(generation as f64);
        self.update_status(|status| {
            status.generation = generation;
            status.disk_error.clear();
            status.published_unix_ms = unix_now_ms();
            status.bytes = bytes;
            status.publications += 1;
            status.bytes_written += bytes;
            status.last_publish_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        });
        tracing::info!(generation, bytes, ms = took.as_millis(), "published");
        self.announce_snapshot(generation).await;
    }

    /// Applies an image from a backend. A long image is decoded before the state is locked.
    async fn apply_image(
        self: &Arc<Self>,
        domain: usize,
        image: OwnedFd,
    ) -> Result<ImageOutcome, ImageRejection> {
        let hub = Arc::clone(self);
        let take = move || {
            let image = read_image(image)?;
            let private_groups = hub.state.blocking_read().private_groups(domain);
            let image = DomainImage::read(&image, private_groups)?;
            hub.state.blocking_write().apply(domain, image)
        };
        let taken = tokio::task::spawn_blocking(take).await;
        taken.unwrap_or_else(|error| Err(ImageRejection::Unreadable(error.to_string())))
    }

    /// Records the reason why a domain's updates are rejected. `None` if they are accepted.
    async fn record_update_error(&self, position: usize, error: Option<&ImageRejection>) {
        let mut state = self.state.write().await;
        let why = error.map(ToString::to_string).unwrap_or_default();
        if state.set_update_error(position, &why)
            && let Some(error) = error
        {
            let domain = &state.domains[position].name;
            log!(ERROR, error.message(), domain, "{domain}: rejected the backend's update: {why}");
        }
    }

    /// Waits for an attempt to publish that begins from now on. The status has its result.
    async fn wait_for_attempt(&self) {
        let awaited = self.publications.attempts_begun.load(Ordering::Relaxed) + 1;
        let mut ended = self.publications.attempts_ended.subscribe();
        self.changed.notify_one();
        let _ = ended.wait_for(|ended| *ended >= awaited).await;
    }

    /// Records the snapshot in place and the next one as this publisher's own, durably.
    fn record_identity(&self, bytes: &[u8]) -> std::io::Result<SnapshotIdentity> {
        let none = || std::io::Error::other("the snapshot has no header, or its path no directory");
        let identity = SnapshotIdentity::from_bytes(bytes).ok_or_else(none)?;
        let own = *self.publications.current.lock();
        let snapshots: Vec<_> = own.into_iter().map(|own| own.identity).chain([identity]).collect();
        own_record::write(self.snapshot.parent().ok_or_else(none)?, &snapshots).map_err(
            |error| std::io::Error::new(error.kind(), format!("{}: {error}", own_record::FILE)),
        )?;
        Ok(identity)
    }

    /// Returns when the snapshot in place is no longer this publisher's last one.
    async fn wait_until_lost(self: &Arc<Self>, guard: &mut SnapshotWatch) {
        loop {
            let hub = Arc::clone(self);
            let look = move || {
                let mut own = hub.publications.current.lock();
                own.as_mut().and_then(|own| own.loss_reason(&hub.snapshot))
            };
            if let Ok(Some(why)) = tokio::task::spawn_blocking(look).await {
                let snapshot = self.snapshot.display();
                log!(WARN, &daemon::SNAPSHOT_LOST, "{snapshot}: publishing again: {why}");
                return;
            }
            if self.is_unreadable() {
                let snapshot = self.snapshot.display();
                let why = "the file cannot be read from its disk";
                log!(WARN, &daemon::SNAPSHOT_LOST, "{snapshot}: publishing again: {why}");
                return;
            }
            if guard.moved_dir().is_some() {
                return;
            }
            tokio::select! {
                () = guard.wait_for_change() => {}
                () = self.copies.disk_read_due.notified() => {}
            }
        }
    }

    fn update_status(&self, change: impl FnOnce(&mut PublisherStatus)) {
        change(&mut self.status.lock());
    }

    /// Announces the snapshot on the bus. Programs notice the new file without the signal, too.
    async fn announce_snapshot(&self, generation: u64) {
        let Ok(emitter) =
            zbus::object_server::SignalEmitter::new(&self.connection, self.object.as_str())
        else {
            return;
        };
        let signal = PublisherObject::snapshot_published(&emitter, generation);
        send_signal(&format!("generation {generation}"), signal).await;
    }

    /// Makes other roles drop cached entries.
    async fn invalidate(&self, forget: &Invalidation) {
        let Ok(emitter) =
            zbus::object_server::SignalEmitter::new(&self.connection, self.object.as_str())
        else {
            return;
        };
        let told = async {
            if forget.all {
                return PublisherObject::invalidate_all(&emitter).await;
            }
            for name in &forget.users {
                PublisherObject::invalidate_user(&emitter, name).await?;
            }
            for name in &forget.groups {
                PublisherObject::invalidate_group(&emitter, name).await?;
            }
            Ok(())
        };
        send_signal("invalidation of cached entries", told).await;
    }
}

/// Sends a signal, with a time limit.
async fn send_signal(what: &str, signal: impl Future<Output = zbus::Result<()>>) {
    let error = match timeout(SIGNAL_DEADLINE, signal).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("the bus accepted nothing within {SIGNAL_DEADLINE:?}"),
    };
    log!(WARN, &daemon::SIGNAL_NOT_SENT, "{what}: cannot send the signal: {error}");
}

/// Starts a watch of the files of the host's own accounts.
fn watch_locals(files: &LocalFiles) -> Result<FileWatch, CodedError> {
    FileWatch::new(files.paths())
        .with_code(&daemon::LOCAL_ACCOUNTS_NOT_WATCHED, || "host accounts: cannot watch the files")
}

/// Reads the host's own accounts, now and after each change.
async fn follow_locals(hub: Arc<PublisherTasks>, files: LocalFiles, mut watch: FileWatch) {
    let mut believed = AcceptedLocals::default();
    let now = SystemTime::now();
    // File stamps from the beginning of a quiet period that has ended.
    let mut left =
        local_accounts::file_marks(&files).filter(|marks| marks.was_stable(now, STABLE_FOR));
    loop {
        let read = local_accounts::read_stable(&files, left.as_ref());
        let error = read.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
        hub.update_status(|status| {
            if !error.is_empty() && status.locals_error != error {
                log!(ERROR, &daemon::LOCAL_ACCOUNTS_UNREADABLE, "{error}");
            }
            status.locals_error = error;
        });
        let (accounts, is_all) = match read {
            Ok((read, settled)) => believed.accept_read(read, settled),
            Err(_) => (None, false),
        };
        if let Some(accounts) = accounts
            && hub.state.write().await.set_locals(accounts.clone())
        {
            hub.invalidate(&Invalidation { all: true, ..Invalidation::default() }).await;
            hub.changed.notify_one();
        }
        left = match is_all {
            true => {
                watch.wait_for_change().await;
                None
            }
            false => {
                let marks = local_accounts::file_marks(&files);
                let quiet = timeout(STABLE_FOR, watch.wait_for_change()).await.is_err();
                marks.filter(|_| quiet)
            }
        };
    }
}

/// Reads a sealed image into this process's own memory.
fn read_image(descriptor: OwnedFd) -> Result<Vec<u8>, ImageRejection> {
    let unreadable = |error: std::io::Error| ImageRejection::Unreadable(error.to_string());
    let seals = rustix::fs::fcntl_get_seals(&descriptor);
    let wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    if !seals.is_ok_and(|seals| seals.contains(wanted)) {
        return Err(ImageRejection::Unreadable("the descriptor is not a sealed memfd".into()));
    }
    let mut file = File::from(descriptor);
    let length = file.metadata().map_err(unreadable)?.len();
    if length > IMAGE_BYTES_MAX {
        return Err(ImageRejection::TooLong(length));
    }
    let mut image = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.rewind().and_then(|()| file.read_to_end(&mut image)).map_err(unreadable)?;
    Ok(image)
}
