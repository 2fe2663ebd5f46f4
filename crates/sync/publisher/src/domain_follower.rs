// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches the state of one domain from its backend, at the start and after each change.

use super::PublisherTasks;
use super::state::{DeferReason, ImageOutcome};
use anyhow::Context as _;
use futures_util::{Stream, StreamExt};
use roster_bus::interfaces::{BackendProxy, CALL_DEADLINE};
use roster_messages::{log, table::daemon};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// First pause after a failed call to a backend. It doubles up to [`RETRY_MAX`]. A backend signals its changes, so the
/// pause covers only unforeseen cases.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Interval in which a backend reads its directory again while removals of its domain wait: the entries may be back.
const REREAD_INTERVAL: Duration = Duration::from_secs(60);

/// Follows one domain.
pub(super) struct DomainFollower {
    tasks: Arc<PublisherTasks>,
    position: usize,
    name: String,
    proxy: BackendProxy<'static>,
    changed: Arc<Notify>,
    /// The whole state is fetched next, because a change could not be applied.
    from_start: bool,
    pause: Duration,
    /// Reason why the last state was not applied. `None` if it was applied.
    deferred_for: Option<DeferReason>,
    /// Start of the present wait for an approval of removals.
    held_since: Option<Instant>,
}

impl DomainFollower {
    pub(super) fn new(
        tasks: Arc<PublisherTasks>,
        position: usize,
        name: String,
        proxy: BackendProxy<'static>,
    ) -> Self {
        let changed = Arc::clone(&tasks.domain_wakeups[position]);
        Self {
            tasks,
            position,
            name,
            proxy,
            changed,
            from_start: false,
            pause: RETRY_MIN,
            deferred_for: None,
            held_since: None,
        }
    }

    /// Fetches until the process ends.
    pub(super) async fn run(mut self) {
        if let Err(error) = self.listen().await {
            return log!(
                ERROR,
                &daemon::DOMAIN_SIGNALS_MISSING,
                domain = self.name,
                "{}: cannot receive signals of its backend: {error:#}",
                self.name
            );
        }
        loop {
            let (epoch, since) = match self.from_start {
                true => (0, 0),
                false => self.tasks.state.read().await.position(self.position),
            };
            let start = Instant::now();
            match fetch(&self.proxy, epoch, since).await {
                Ok(image) => self.apply(image, start).await,
                Err(error) => {
                    tracing::debug!(domain = self.name, "cannot fetch: {error:#}");
                    // The bus signals when the name of the backend appears.
                    self.wait_for_retry().await;
                }
            }
        }
    }

    /// Reads the signals in separate tasks. The connection would otherwise wait for a fetch that waits for the
    /// connection.
    async fn listen(&self) -> anyhow::Result<()> {
        let changes = self.proxy.receive_changed().await.context("changes")?;
        self.wake_at(changes);
        let owners = self.proxy.inner().receive_owner_changed().await.context("owners")?;
        self.wake_at(owners);
        Ok(())
    }

    fn wake_at<S: Stream + Send + Unpin + 'static>(&self, mut signals: S)
    where
        S::Item: Send,
    {
        let changed = Arc::clone(&self.changed);
        tokio::spawn(async move {
            while signals.next().await.is_some() {
                changed.notify_one();
            }
        });
    }

    async fn wait_for_retry(&mut self) {
        let _ = timeout(self.pause, self.changed.notified()).await;
        self.pause = (2 * self.pause).min(RETRY_MAX);
    }

    /// Applies a state, and waits until the next fetch is due.
    async fn apply(&mut self, image: OwnedFd, start: Instant) {
        let outcome = self.tasks.apply_image(self.position, image).await;
        // A backend that always has changes takes at most half of the time.
        sleep(start.elapsed().min(RETRY_MAX)).await;
        match outcome {
            Ok(ImageOutcome::Changed(forget)) => {
                self.tasks.record_update_error(self.position, None).await;
                if forget.all {
                    self.tasks.backends.clear_negative(self.position);
                }
                self.tasks.invalidate(&forget).await;
                self.tasks.changed.notify_one();
                metrics::counter!("roster_fetches_total", "domain" => self.name.clone())
                    .increment(1);
                self.wait_for_change().await;
            }
            Ok(ImageOutcome::Unchanged) => {
                self.tasks.record_update_error(self.position, None).await;
                self.wait_for_change().await;
            }
            Ok(ImageOutcome::Deferred(reason)) => self.defer(reason).await,
            Err(error) if !self.from_start => {
                tracing::info!(domain = self.name, "{}: fetching everything: {error}", self.name);
                self.from_start = true;
            }
            Err(error) => {
                self.tasks.record_update_error(self.position, Some(&error)).await;
                // The fault may be in the state that this process has.
                (self.from_start, self.deferred_for, self.held_since) = (false, None, None);
                self.wait_for_retry().await;
            }
        }
    }

    async fn wait_for_change(&mut self) {
        (self.from_start, self.deferred_for, self.pause, self.held_since) =
            (false, None, RETRY_MIN, None);
        self.changed.notified().await;
    }

    /// Retains the present state. While removals wait, the backend reads its directory again every [`REREAD_INTERVAL`].
    async fn defer(&mut self, reason: DeferReason) {
        if self.deferred_for != Some(reason) {
            let name = &self.name;
            log!(
                WARN,
                reason.message(),
                domain = name,
                "{name}: the previous entries stay: {reason}"
            );
            self.deferred_for = Some(reason);
            self.tasks.is_waiting().await;
        }
        self.from_start = false;
        let since = self.held_since.unwrap_or_else(Instant::now);
        self.held_since = (reason == DeferReason::RemovalsHeld).then_some(since);
        if self.held_since.is_some_and(|since| since.elapsed() >= REREAD_INTERVAL) {
            self.held_since = Some(Instant::now());
            if let Ok(Err(error)) = timeout(CALL_DEADLINE, self.proxy.refresh()).await {
                tracing::debug!(domain = self.name, "cannot have it read again: {error}");
            }
        }
        self.wait_for_retry().await;
    }
}

/// Fetches the changes from that state to the present one.
async fn fetch(proxy: &BackendProxy<'_>, epoch: u64, since: u64) -> anyhow::Result<OwnedFd> {
    Ok(timeout(CALL_DEADLINE, proxy.fetch(epoch, since)).await??.into())
}
