// SPDX-License-Identifier: MIT OR Apache-2.0
//! Liveness of the followed server: when it is checked, and how long it may be silent. `keepalive` has the search, and
//! `follow_loop` waits.
//!
//! While a response is due, the server may work on it and read nothing else. Then a second connection checks it.
//! Otherwise a keepalive does.

use crate::connection::{ConnectionSettings, LdapConnection};
use crate::error::LdapError;
use crate::keepalive::{
    KEEPALIVE_INTERVAL, LivenessTimes, answers_second_connection, keepalive_error, queue_keepalive,
};
use crate::message::{LdapResponse, ResponseOperation};
use roster_config::LdapServer;
use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Instant;

/// The followed server, for a second connection to it.
#[derive(Clone, Copy)]
pub(crate) struct FollowedServer<'a> {
    pub server: &'a LdapServer,
    pub settings: &'a ConnectionSettings,
}

/// Limits of the silence of a server.
#[derive(Clone, Copy)]
pub(crate) struct LivenessLimits {
    pub times: LivenessTimes,
    /// Limit of the silence within a search.
    pub search_timeout: Duration,
}

/// The check over a second connection. It returns whether the server replies there.
type SecondCheck<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// A keepalive without a reply.
#[derive(Clone, Copy)]
struct PendingKeepalive {
    request: u32,
    sent: Instant,
}

/// The checks of one connection's server.
pub(crate) struct ServerLiveness<'a> {
    peer: FollowedServer<'a>,
    limits: LivenessLimits,
    /// The last message in either direction. A message from this side is not a sign of life.
    last_traffic: Instant,
    last_received: Instant,
    keepalive: Option<PendingKeepalive>,
    second_check: Option<SecondCheck<'a>>,
    /// Time of the last reply on a second connection.
    last_second_reply: Instant,
    /// The network has changed.
    is_doubted: bool,
}

impl<'a> ServerLiveness<'a> {
    pub fn new(peer: FollowedServer<'a>, limits: LivenessLimits, now: Instant) -> Self {
        Self {
            peer,
            limits,
            last_traffic: now,
            last_received: now,
            keepalive: None,
            second_check: None,
            last_second_reply: now,
            is_doubted: false,
        }
    }

    /// Starts the checks that are due. `awaits` means that a response to a search is due.
    pub fn start_checks(&mut self, connection: &mut LdapConnection, awaits: bool, now: Instant) {
        let is_doubted = std::mem::take(&mut self.is_doubted);
        if awaits {
            if self.second_check.is_none() && now >= self.second_check_due() {
                let FollowedServer { server, settings } = self.peer;
                let deadline = self.limits.times.second_check_deadline;
                let check = answers_second_connection(server, settings, deadline);
                self.second_check = Some(Box::pin(check));
            }
            return;
        }
        self.second_check = None;
        let is_quiet = now >= self.last_received + KEEPALIVE_INTERVAL;
        if self.keepalive.is_none() && (is_quiet || is_doubted) {
            let request = queue_keepalive(connection);
            self.keepalive = Some(PendingKeepalive { request, sent: now });
        }
    }

    fn second_check_due(&self) -> Instant {
        self.last_received.max(self.last_second_reply) + self.limits.times.second_check_after
    }

    /// Returns the time of the next check.
    pub fn next_check(&self, awaits: bool) -> Option<Instant> {
        (awaits && self.second_check.is_none()).then(|| self.second_check_due())
    }

    /// Returns the end of the permitted silence, and the error after it. Without an error, a check is due then.
    pub fn silence_limit(&self, awaits: bool) -> (Instant, Option<LdapError>) {
        match (awaits, self.keepalive) {
            (true, _) => {
                let deadline = self.limits.search_timeout;
                let error = LdapError::NoReply { what: "a search", deadline };
                (self.last_traffic + deadline, Some(error))
            }
            (false, Some(keepalive)) => {
                let deadline = self.limits.times.keepalive_deadline;
                (keepalive.sent + deadline, Some(keepalive_error(deadline)))
            }
            (false, None) => (self.last_received + KEEPALIVE_INTERVAL, None),
        }
    }

    /// Records that this side sent a message.
    pub fn note_sent(&mut self, now: Instant) {
        self.last_traffic = now;
    }

    /// Records that the server sent a message.
    pub fn note_received(&mut self, now: Instant) {
        self.last_traffic = now;
        self.last_received = now;
        self.second_check = None;
    }

    /// Records a pause without reads for lack of capacity. It does not count as silence of the server.
    pub fn note_own_pause(&mut self, now: Instant) {
        self.note_received(now);
        if let Some(keepalive) = &mut self.keepalive {
            keepalive.sent = now;
        }
    }

    /// Records a change of the network, after which the server may be unreachable.
    pub fn note_network_change(&mut self) {
        self.is_doubted = true;
    }

    pub fn last_traffic(&self) -> Instant {
        self.last_traffic
    }

    /// Returns whether this is a response to the keepalive. The end of the search ends the keepalive.
    pub fn accept_response(&mut self, response: &LdapResponse<'_>) -> bool {
        let is_own = self.keepalive.is_some_and(|keepalive| keepalive.request == response.id);
        if is_own && matches!(response.operation, ResponseOperation::SearchDone(_)) {
            self.keepalive = None;
        }
        is_own
    }

    /// Waits for the result of the check over a second connection. Never returns without one.
    pub async fn second_check_result(&mut self) -> bool {
        match &mut self.second_check {
            Some(check) => check.await,
            None => pending().await,
        }
    }

    /// Handles the result of the check over a second connection.
    pub fn end_second_check(&mut self, answers: bool, now: Instant) -> Result<(), LdapError> {
        self.second_check = None;
        self.last_second_reply = now;
        if answers {
            return Ok(());
        }
        let what = "a keepalive over a second connection";
        Err(LdapError::NoReply { what, deadline: self.limits.times.second_check_deadline })
    }
}
