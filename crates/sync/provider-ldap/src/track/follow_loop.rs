// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop over one connection. It lets the tracks act, passes the server's responses to them, and publishes the
//! changes that they report. `track_factory` makes the tracks, and `connection` has the I/O.

use super::server_liveness::ServerLiveness;
use super::{Track, TrackSink};
use crate::connection::LdapConnection;
use crate::error::LdapError;
use crate::netlink_watch::NetworkWatch;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// If the sink has no capacity, the loop checks again after this time.
const CAPACITY_PAUSE: Duration = Duration::from_millis(20);
/// Maximum delay before a continuous stream of changes is published.
const BATCH_MAX: Duration = Duration::from_millis(50);

/// The result of following a connection.
#[derive(Default)]
pub(crate) struct FollowEnd {
    /// The failure. `None` after `stop` returned.
    pub error: Option<LdapError>,
    /// Time of the first consistent state, if any.
    pub settled: Option<Instant>,
}

/// The event that wakes the loop.
enum FollowEvent {
    /// `stop` has returned.
    Stopped,
    /// A response arrived.
    Received,
    /// A track or a check may be due.
    Woken,
}

/// Follows changes over one connection.
pub(crate) struct FollowLoop<'a> {
    connection: &'a mut LdapConnection,
    tracks: &'a mut [Box<dyn Track>],
    sink: &'a mut TrackSink,
    network: &'a NetworkWatch,
    liveness: ServerLiveness<'a>,
    settled: Option<Instant>,
}

impl<'a> FollowLoop<'a> {
    pub fn new(
        connection: &'a mut LdapConnection,
        tracks: &'a mut [Box<dyn Track>],
        sink: &'a mut TrackSink,
        network: &'a NetworkWatch,
        liveness: ServerLiveness<'a>,
    ) -> Self {
        Self { connection, tracks, sink, network, liveness, settled: None }
    }

    /// Follows changes until the connection fails or `stop` returns. Calls `online` once, at the server's first
    /// response to a search.
    pub async fn run(
        mut self,
        online: impl FnOnce() + Send,
        stop: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> FollowEnd {
        let error = self.follow_changes(online, stop).await.err();
        FollowEnd { error, settled: self.settled }
    }

    async fn follow_changes(
        &mut self,
        online: impl FnOnce() + Send,
        mut stop: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<(), LdapError> {
        let mut online = Some(online);
        loop {
            let now = Instant::now();
            for track in self.tracks.iter_mut() {
                track.act(self.connection, self.sink, now);
            }
            let awaits = self.tracks.iter().any(|track| track.awaits());
            self.liveness.start_checks(self.connection, awaits, now);
            if self.connection.has_queued() {
                self.connection.flush().await?;
                self.liveness.note_sent(Instant::now());
            }
            match self.next_event(awaits, stop.as_mut()).await? {
                FollowEvent::Stopped => return Ok(()),
                FollowEvent::Woken => {}
                FollowEvent::Received => {
                    self.handle_batch(&mut online).await?;
                    self.publish_if_settled();
                }
            }
        }
    }

    /// Waits for a response, or until a track or a check is due.
    async fn next_event(
        &mut self,
        awaits: bool,
        stop: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<FollowEvent, LdapError> {
        let (limit, silence) = self.liveness.silence_limit(awaits);
        let check = self.liveness.next_check(awaits);
        let due = self.tracks.iter().filter_map(|track| track.due()).chain(check);
        let due = due.min().map_or(limit, |due| due.min(limit));
        let has_capacity = self.sink.adapter.has_capacity();
        tokio::select! {
            biased;
            () = stop => return Ok(FollowEvent::Stopped),
            ready = self.connection.ready(), if has_capacity => {
                ready?;
                return Ok(FollowEvent::Received);
            }
            () = sleep(CAPACITY_PAUSE), if !has_capacity => {
                self.liveness.note_own_pause(Instant::now());
            }
            () = self.network.changed() => self.liveness.note_network_change(),
            () = self.sink.rereads.changed() => {}
            answers = self.liveness.second_check_result() => {
                self.liveness.end_second_check(answers, Instant::now())?;
            }
            () = sleep_until(due) => match silence {
                Some(error) if Instant::now() >= limit => return Err(error),
                _ => {}
            },
        }
        Ok(FollowEvent::Woken)
    }

    /// Passes received responses to their tracks, until none is left or the batch is full.
    async fn handle_batch(
        &mut self,
        online: &mut Option<impl FnOnce() + Send>,
    ) -> Result<(), LdapError> {
        let batch_began = Instant::now();
        loop {
            let response = self.connection.take_response()?;
            self.sink.referrals.note(&response.operation);
            if !self.liveness.accept_response(&response)
                && let Some(track) = self.tracks.iter_mut().find(|track| track.owns(response.id))
            {
                track.handle_response(&response, self.sink)?;
                if let Some(online) = online.take() {
                    online();
                }
            }
            let now = Instant::now();
            self.liveness.note_received(now);
            if now >= batch_began + BATCH_MAX
                || !self.sink.adapter.has_capacity()
                || !self.connection.ready_now().await?
            {
                return Ok(());
            }
        }
    }

    /// Publishes the reported changes if they are consistent.
    fn publish_if_settled(&mut self) {
        if self.tracks.iter().all(|track| track.is_settled()) && self.sink.is_settled() {
            self.settled.get_or_insert(self.liveness.last_traffic());
            self.sink.adapter.flush();
        }
    }
}
