// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches the state of one domain from its backend, at the start and after each change. `domain_model` applies the
//! image, and `domain_image` of `roster-bus` has the format.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Image, apply_image, published, tasks, twenty_without};
    use roster_bus::domain_image::{COMPLETE, IMAGE_BYTES_MAX};
    use roster_role::testing::{TestBus, block_on};
    use roster_system_tests::logged_codes::logged_codes;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::fs::File;
    use std::io::Write;

    async fn follower(hub: &Arc<PublisherTasks>) -> DomainFollower {
        let builder = BackendProxy::builder(&hub.connection);
        let builder = builder.destination("org.roster.Backend.corp");
        let proxy = builder.path("/org/roster/Backend/corp").build().await.expect("a proxy");
        DomainFollower::new(Arc::clone(hub), 0, "corp".into(), proxy)
    }

    #[test]
    fn follower_without_signals_is_logged() {
        let folder = tempfile::tempdir().expect("a folder");
        let followed = async {
            let bus = TestBus::start(folder.path(), TestBus::NO_SIGNALS);
            let hub = tasks(folder.path(), &bus).await;
            follower(&hub).await.run().await;
        };
        let logged = logged_codes(|| block_on(followed));
        assert_eq!(logged, [&daemon::DOMAIN_SIGNALS_MISSING]);
    }

    /// An image as a backend passes it, extended to `length`.
    fn sealed(bytes: &[u8], length: u64) -> OwnedFd {
        let image = memfd_create("image", MemfdFlags::ALLOW_SEALING).expect("a memfd");
        let mut file = File::from(image);
        file.write_all(bytes).expect("write");
        file.set_len(length.max(bytes.len() as u64)).expect("extend");
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)
            .expect("seal");
        file.into()
    }

    #[test]
    fn follower_image_not_applied_is_logged() {
        let asked = Instant::now();
        let flagged = |flags| {
            let mut image = twenty_without(0, 2);
            image.header.flags = flags;
            image.bytes()
        };
        let cut = {
            let bytes = twenty_without(0, 2).bytes();
            bytes[..bytes.len() - 1].to_vec()
        };
        for (image, length, message) in [
            (flagged(0), 0, &daemon::DOMAIN_INCOMPLETE),
            (flagged(COMPLETE), 0, &daemon::DOMAIN_NOT_REACHED),
            (twenty_without(11, 2).bytes(), 0, &daemon::REMOVALS_HELD),
            (cut, 0, &daemon::UPDATE_REJECTED),
            (Image::full().bytes(), IMAGE_BYTES_MAX + 1, &daemon::DOMAIN_TOO_LARGE),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let applied = async {
                let bus = TestBus::start(folder.path(), TestBus::OPEN);
                let hub = tasks(folder.path(), &bus).await;
                let mut state = hub.state.write().await;
                apply_image(&mut state, 0, twenty_without(0, 1)).expect("well formed");
                published(&mut state, |_| {});
                drop(state);
                let mut follower = follower(&hub).await;
                // A change that cannot be applied is followed by the whole state.
                follower.from_start = true;
                // No wait for the next fetch.
                hub.domain_wakeups[0].notify_one();
                follower.apply(sealed(&image, length), asked).await;
            };
            assert_eq!(logged_codes(|| block_on(applied)), [message]);
        }
    }
}
