// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection of lookups. It runs many searches at once, independently of the mirror. `lookup` has the searches.
//!
//! One task owns the connection and returns each result to its requester. A bounded number of searches is in flight,
//! and others wait in a queue. A server may close an idle connection: the next search opens another.
//!
//! A slow search delays only its requester. After its deadline, or when its requester has left, the task abandons it at
//! the server, and other searches continue. A server counts as gone only if it also leaves a keepalive unanswered.
//!
//! A server may refuse one search because it lacks an index, or because the request is unusual. The lookups leave the
//! server only if it refuses plain searches as well.

use crate::connection::{LdapConnection, RootDse};
use crate::error::LdapError;
use crate::filter::EncodedFilter;
use crate::keepalive::{KEEPALIVE_DEADLINE, KEEPALIVE_INTERVAL, keepalive_error, queue_keepalive};
use crate::message::{LdapRequest, ResponseOperation, Scope, SearchRequest, code};
use crate::netlink_watch::NetworkWatch;
use crate::referrals::Referrals;
use crate::server_selection::ServerFailures;
use roster_messages::{RequestNumber, log, table::directory};
use roster_provider::LookupError;
use roster_provider::reason::Reason;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Searches in flight on the connection. A server works on far fewer at once.
const IN_FLIGHT_MAX: usize = 32;
/// Searches in the queue.
const WAITING_MAX: usize = 256;
/// Entries in the result of one search.
const ENTRIES_MAX: usize = 10_000;
/// Total bytes of the results in progress. 32 groups of 10,000 members by DN take 20 MiB.
const BYTES_MAX: usize = 64 << 20;
/// Time for which a server that answered a plain search counts as good. It bounds the trials if many unusual searches
/// fail.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// A search. Owns its data, because it may outlive its requester.
#[derive(Clone, Debug)]
pub(crate) struct SearchQuery {
    pub base: Arc<str>,
    pub scope: Scope,
    pub filter: EncodedFilter,
    pub attributes: Arc<[String]>,
    /// Limit of entries. 0 requests all.
    pub entries_max: u32,
}

/// The messages with the entries of a search.
pub(crate) type EntryMessages = Vec<Vec<u8>>;

struct QueuedSearch {
    query: SearchQuery,
    reply: oneshot::Sender<Result<EntryMessages, LdapError>>,
    deadline: Instant,
    /// The request that caused the search.
    request: RequestNumber,
}

/// Signals to the task that owns the connection, and from it.
#[derive(Default)]
struct ConnectionSignals {
    /// A requester no longer waits for its reply.
    requester_left: Notify,
    /// The server may be gone.
    liveness_doubted: Notify,
    /// The error that ended the connection, if the server fell silent.
    silence_error: OnceLock<LdapError>,
    /// The lookups leave this server for another one.
    retired: Notify,
    /// Result of the last trial of the server.
    last_trial: Mutex<TrialResult>,
}

#[derive(Default)]
enum TrialResult {
    #[default]
    Never,
    Good(Instant),
    Unusable,
}

/// A connection that is open, or was until recently.
#[derive(Clone)]
pub(crate) struct LookupConnection {
    searches: mpsc::Sender<QueuedSearch>,
    signals: Arc<ConnectionSignals>,
    /// Properties of its server.
    pub root: RootDse,
    /// The server's URI.
    pub server: Arc<str>,
    /// The reason that servers of higher rank are not used.
    pub passed_over: Option<Arc<Reason>>,
}

/// Signals on drop that a requester left.
struct LeaveNotice<'a>(&'a ConnectionSignals);

impl Drop for LeaveNotice<'_> {
    fn drop(&mut self) {
        self.0.requester_left.notify_one();
    }
}

impl LookupConnection {
    /// Starts the task that owns the connection.
    pub fn spawn(
        connection: LdapConnection,
        root: RootDse,
        server: &str,
        passed_over: Option<Reason>,
        referrals: Arc<Referrals>,
    ) -> Self {
        let (asks, asked) = mpsc::channel(WAITING_MAX);
        let calls = Arc::new(ConnectionSignals::default());
        let renew_at = connection.renew_at();
        let serving = ConnectionTask {
            renew_at,
            connection,
            signals: Arc::clone(&calls),
            referrals,
            pending: HashMap::new(),
            bytes: 0,
            last_received: Instant::now(),
            keepalive_deadline: None,
        };
        tokio::spawn(serving.run(asked));
        let (server, passed_over) = (server.into(), passed_over.map(Arc::new));
        Self { searches: asks, signals: calls, root, server, passed_over }
    }

    /// Returns when the connection ends or its server is left. Returns the reason if the server fell silent.
    pub async fn closed(&self) -> Option<Reason> {
        tokio::select! {
            () = self.searches.closed() => {}
            () = self.signals.retired.notified() => {}
        }
        self.signals.silence_error.get().map(|error| error.reason(&self.server))
    }

    async fn search(
        &self,
        question: SearchQuery,
        within: Duration,
    ) -> Result<EntryMessages, LdapError> {
        let slow = LdapError::Slow { deadline: within };
        // Dropped after the channel of the reply.
        let _leaving = LeaveNotice(&self.signals);
        let (reply, replied) = oneshot::channel();
        let (deadline, request) = (Instant::now() + within, RequestNumber::current());
        let ask = QueuedSearch { query: question, reply, deadline, request };
        let answer = async {
            if self.searches.send(ask).await.is_err() {
                return Err(LdapError::Closed);
            }
            replied.await.unwrap_or(Err(LdapError::Closed))
        };
        timeout(within, answer).await.unwrap_or(Err(slow))
    }
}

/// Opens the connection for lookups.
pub(crate) struct LookupConnector {
    state: Mutex<ConnectorState>,
    search_timeout: Duration,
    /// Another task retries after a failure, so a lookup does not have to.
    is_supervised: bool,
    /// Plain searches. A server is usable if it answers one of them. If the base of one does not exist on any server,
    /// others may still work.
    trial_queries: Vec<SearchQuery>,
    server_failures: Arc<ServerFailures>,
}

enum ConnectorState {
    /// No lookup ran yet, or the connection ended normally.
    Idle,
    Open(LookupConnection),
    /// No server answered, at this time.
    Offline(Reason, Instant),
}

/// Retry interval of lookups without supervision.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl LookupConnector {
    pub fn new(
        search_timeout: Duration,
        is_tended: bool,
        plain: Vec<SearchQuery>,
        setbacks: Arc<ServerFailures>,
    ) -> Self {
        Self {
            state: Mutex::new(ConnectorState::Idle),
            search_timeout,
            is_supervised: is_tended,
            trial_queries: plain,
            server_failures: setbacks,
        }
    }

    /// Checks that the server answers a plain search and has all bases. A result limit of the server is also an answer.
    pub async fn try_queries(&self, open: &LookupConnection) -> Result<(), LdapError> {
        let (mut refusal, mut is_answered) = (None, false);
        for question in &self.trial_queries {
            match open.search(question.clone(), self.search_timeout).await {
                Err(error @ LdapError::Search { code: code::NO_SUCH_OBJECT, .. }) => {
                    return Err(error);
                }
                Err(error) if error.suggests_server_unusable() => refusal = Some(error),
                Ok(_) | Err(LdapError::Search { .. }) => is_answered = true,
                Err(error) => return Err(error),
            }
        }
        refusal.filter(|_| !is_answered).map_or(Ok(()), Err)
    }

    /// Tries the server after it refused a search. Returns whether the lookups leave it. One caller at a time runs the
    /// trial, on behalf of all.
    async fn leaves_if_unusable(&self, open: &LookupConnection) -> bool {
        let mut trial = open.signals.last_trial.lock().await;
        match *trial {
            TrialResult::Unusable => return true,
            TrialResult::Good(since) if since.elapsed() < GOOD_FOR => return false,
            _ => {}
        }
        let Err(error) = self.try_queries(open).await else {
            *trial = TrialResult::Good(Instant::now());
            return false;
        };
        // The requester may be cancelled here. Then the next one tries the server.
        self.replace_state(open, ConnectorState::Idle).await;
        *trial = TrialResult::Unusable;
        self.server_failures.add(&open.server, Instant::now());
        let server = &*open.server;
        log!(WARN, error.message(), server, %error, "server rejects lookups; switching to another");
        open.signals.retired.notify_one();
        true
    }

    /// Returns the open connection. Opens one with `connect` if the last failure is old enough, or always with
    /// `insist`.
    pub async fn open<F>(
        &self,
        insist: bool,
        connect: impl FnOnce() -> F,
    ) -> Result<LookupConnection, Reason>
    where
        F: Future<Output = Result<LookupConnection, Reason>>,
    {
        // Held while connecting, so that concurrent callers get the same connection.
        let mut state = self.state.lock().await;
        match &*state {
            ConnectorState::Open(open) if !open.searches.is_closed() => return Ok(open.clone()),
            ConnectorState::Offline(reason, since)
                if !insist && (self.is_supervised || since.elapsed() < RETRY_AFTER) =>
            {
                return Err(reason.clone());
            }
            _ => {}
        }
        match connect().await {
            Ok(open) => {
                *state = ConnectorState::Open(open.clone());
                Ok(open)
            }
            Err(reason) => {
                *state = ConnectorState::Offline(reason.clone(), Instant::now());
                Err(reason)
            }
        }
    }

    /// Drops the connection. Searches in flight still complete.
    pub async fn drop_connection(&self) {
        let mut state = self.state.lock().await;
        if let ConnectorState::Open(_) = *state {
            *state = ConnectorState::Idle;
        }
    }

    /// Returns the open connection, unless another caller is changing it.
    pub fn present(&self) -> Option<LookupConnection> {
        match &*self.state.try_lock().ok()? {
            ConnectorState::Open(open) if !open.searches.is_closed() => Some(open.clone()),
            _ => None,
        }
    }

    /// Leaves a silent server while another one answers.
    pub async fn leave_silent(&self, open: &LookupConnection) {
        self.replace_state(open, ConnectorState::Idle).await;
        self.server_failures.add(&open.server, Instant::now());
        let server = &*open.server;
        log!(WARN, &directory::NO_REPLY, server, "server timed out; switching to another");
        open.signals.retired.notify_one();
    }

    async fn set_offline(&self, open: &LookupConnection, reason: Reason) {
        self.replace_state(open, ConnectorState::Offline(reason, Instant::now())).await;
    }

    /// Replaces the state, unless there is another connection already.
    async fn replace_state(&self, open: &LookupConnection, next: ConnectorState) {
        let mut state = self.state.lock().await;
        if let ConnectorState::Open(present) = &*state
            && present.searches.same_channel(&open.searches)
        {
            *state = next;
        }
    }

    /// Sends keepalives at intervals until the connection ends. Returns the reason if the server is gone.
    pub async fn watch(&self, open: &LookupConnection, network: &NetworkWatch) -> Option<Reason> {
        let doubts = async {
            loop {
                tokio::select! {
                    () = sleep(KEEPALIVE_INTERVAL) => {}
                    () = network.changed() => {}
                }
                open.signals.liveness_doubted.notify_one();
            }
        };
        let reason = tokio::select! {
            reason = open.closed() => reason,
            () = doubts => None,
        };
        if let Some(reason) = &reason {
            self.set_offline(open, reason.clone()).await;
        }
        reason
    }

    /// Searches over an open connection. Searches once more over a new connection if the old one was closed or its
    /// server is unusable.
    pub async fn search<F>(
        &self,
        open: &mut LookupConnection,
        question: SearchQuery,
        connect: impl FnOnce() -> F,
    ) -> Result<EntryMessages, LookupError>
    where
        F: Future<Output = Result<LookupConnection, Reason>>,
    {
        let mut answer = open.search(question.clone(), self.search_timeout).await;
        let is_over = match &answer {
            Err(LdapError::Closed | LdapError::Io(_) | LdapError::Disconnected(_)) => true,
            Err(error) if error.suggests_server_unusable() => self.leaves_if_unusable(open).await,
            _ => false,
        };
        if is_over {
            *open = self.open(false, connect).await.map_err(LookupError::Unreachable)?;
            answer = open.search(question, self.search_timeout).await;
        }
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let reason = error.reason(&open.server);
        if error.is_query_specific() {
            return Err(LookupError::Failed(reason));
        }
        self.set_offline(open, reason.clone()).await;
        Err(LookupError::Unreachable(reason))
    }
}

struct PendingSearch {
    entries: EntryMessages,
    /// A part of the result is enough.
    is_sample: bool,
    bytes: usize,
    base: Arc<str>,
    reply: oneshot::Sender<Result<EntryMessages, LdapError>>,
    sent: Instant,
    deadline: Instant,
}

/// The task that owns a connection.
struct ConnectionTask {
    connection: LdapConnection,
    signals: Arc<ConnectionSignals>,
    referrals: Arc<Referrals>,
    pending: HashMap<u32, PendingSearch>,
    /// Total bytes of the results in `pending`.
    bytes: usize,
    /// Time of the last received message.
    last_received: Instant,
    /// Deadline for the next message of the server.
    keepalive_deadline: Option<Instant>,
    /// After this time, new searches need another connection.
    renew_at: Option<Instant>,
}

impl ConnectionTask {
    /// Serves searches until the connection fails or no handle is left.
    async fn run(mut self, mut asked: mpsc::Receiver<QueuedSearch>) {
        let mut is_asked = true;
        let calls = Arc::clone(&self.signals);
        while is_asked || !self.pending.is_empty() {
            let deadlines = self.pending.values().map(|one| one.deadline);
            let deadline = deadlines.chain(self.keepalive_deadline).chain(self.renew_at).min();
            tokio::select! {
                ask = asked.recv(), if is_asked && self.pending.len() < IN_FLIGHT_MAX => match ask {
                    Some(ask) => self.send(ask),
                    None => is_asked = false,
                },
                ready = self.connection.ready() => {
                    self.last_received = Instant::now();
                    self.keepalive_deadline = None;
                    if ready.is_err() || self.handle_response().is_err() {
                        // The requesters see a closed channel, and may retry on another connection.
                        return;
                    }
                }
                () = calls.requester_left.notified() => self.drop_finished(|one| one.reply.is_closed()),
                () = calls.liveness_doubted.notified() => self.send_keepalive(),
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    let now = Instant::now();
                    if self.keepalive_deadline.is_some_and(|due| due <= now) {
                        return self.end_without_reply();
                    }
                    if self.renew_at.take_if(|due| *due <= now).is_some() {
                        asked.close();
                    }
                    self.drop_finished(|one| one.deadline <= now);
                }
            }
            if self.connection.flush().await.is_err() {
                return;
            }
        }
        self.connection.close().await;
    }

    fn send(&mut self, ask: QueuedSearch) {
        let QueuedSearch { query: question, reply, deadline, request: number } = ask;
        if reply.is_closed() {
            return;
        }
        let _entered = number.enter();
        let attributes: Vec<&str> = question.attributes.iter().map(String::as_str).collect();
        let request = LdapRequest::Search(SearchRequest {
            base: &question.base,
            scope: question.scope,
            filter: &question.filter,
            attributes: &attributes,
            entries_max: question.entries_max,
        });
        let id = self.connection.queue(&request, &[]);
        let (answer, base, sent) = (EntryMessages::new(), question.base, Instant::now());
        let is_sample = question.entries_max > 0;
        let pending =
            PendingSearch { entries: answer, is_sample, bytes: 0, base, reply, sent, deadline };
        self.pending.insert(id, pending);
    }

    /// Abandons searches that are no longer useful. If the server has sent nothing since one of them was sent, it may
    /// be gone.
    fn drop_finished(&mut self, is_over: impl Fn(&PendingSearch) -> bool) {
        let over = self.pending.iter().filter(|(_, one)| is_over(one));
        let over: Vec<(u32, Instant)> = over.map(|(&id, one)| (id, one.sent)).collect();
        for &(id, _) in &over {
            self.abandon(id);
        }
        if over.iter().any(|&(_, sent)| sent > self.last_received) {
            self.send_keepalive();
        }
    }

    fn abandon(&mut self, id: u32) -> Option<PendingSearch> {
        let one = self.pending.remove(&id)?;
        self.bytes -= one.bytes;
        self.connection.queue(&LdapRequest::Abandon(id), &[]);
        Some(one)
    }

    /// Sends a keepalive.
    fn send_keepalive(&mut self) {
        if self.keepalive_deadline.is_none() {
            queue_keepalive(&mut self.connection);
            self.keepalive_deadline = Some(Instant::now() + KEEPALIVE_DEADLINE);
        }
    }

    fn end_without_reply(mut self) {
        let _ = self.signals.silence_error.set(keepalive_error(KEEPALIVE_DEADLINE));
        for (_, one) in self.pending.drain() {
            let _ = one.reply.send(Err(keepalive_error(KEEPALIVE_DEADLINE)));
        }
    }

    fn handle_response(&mut self) -> Result<(), LdapError> {
        let (message, response) = self.connection.take_message()?;
        self.referrals.note(&response.operation);
        match response.operation {
            ResponseOperation::Entry(_) => {
                let Some(one) = self.pending.get_mut(&response.id) else { return Ok(()) };
                one.entries.push(message.to_vec());
                one.bytes += message.len();
                self.bytes += message.len();
                if one.entries.len() > ENTRIES_MAX {
                    let id = response.id;
                    self.fail_search(id, LdapError::TooManyResults(ENTRIES_MAX));
                } else if self.bytes > BYTES_MAX {
                    self.fail_largest();
                }
            }
            ResponseOperation::SearchDone(outcome) => {
                let Some(one) = self.pending.remove(&response.id) else { return Ok(()) };
                self.bytes -= one.bytes;
                let result = match outcome.code {
                    code::SUCCESS => Ok(one.entries),
                    code::SIZE_LIMIT if one.is_sample && !one.entries.is_empty() => Ok(one.entries),
                    _ => Err(LdapError::Search {
                        base: one.base.to_string(),
                        outcome: outcome.to_string(),
                        code: outcome.code,
                    }),
                };
                let _ = one.reply.send(result);
            }
            ResponseOperation::Extended(outcome, _) if response.id == 0 => {
                return Err(LdapError::Disconnected(outcome.to_string()));
            }
            _ => {}
        }
        Ok(())
    }

    fn fail_largest(&mut self) {
        let largest = self.pending.iter().max_by_key(|(_, one)| one.bytes).map(|(&id, _)| id);
        if let Some(id) = largest {
            self.fail_search(id, LdapError::ResultsTooLarge(BYTES_MAX));
        }
    }

    fn fail_search(&mut self, id: u32, error: LdapError) {
        if let Some(one) = self.abandon(id) {
            let _ = one.reply.send(Err(error));
        }
    }
}
