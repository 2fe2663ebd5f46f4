// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries of an on-demand domain: sends them to the provider, and repeats earlier ones, so that cached replies stay
//! current.
//!
//! A refresh combines 100 entries in one query. If the directory fails to answer for an entry, bisection finds it. It
//! is then skipped for a while, longer after each failure, and does not delay others.

use super::absences::AbsenceCheck;
use super::engine::{Engine, OnDemandEntry, PendingLookup};
use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use roster_bus::interfaces::{BusError, CALL_DEADLINE, LOOKUP_DEADLINE, TraceContext};
use roster_config::DomainMode;
use roster_messages::table::directory;
use roster_provider::reason::Reason;
use roster_provider::{LookupError, LookupKeys, LookupQuery, LookupScope, Provider};
use roster_role::usdt_probes::{BackendProbe, ProbeOutcome};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

/// Concurrent queries of programs. Equal ones were joined before.
const CONCURRENT_QUERIES_MAX: usize = 64;
/// Further queries that wait. The publisher sends no more at once.
const QUEUED_QUERIES_MAX: usize = 256;
/// Bytes of one reply. A bus message has at most 16 MiB.
const REPLY_BYTES_MAX: usize = 8 << 20;
/// Concurrent refresh queries.
const CONCURRENT_REFRESHES_MAX: usize = 4;
/// Entries in one of them.
const BATCH_ENTRIES: usize = 100;
/// Concurrent queries for many entries for one caller.
const PARALLEL_BATCHES_MAX: usize = 8;
/// Groups in one query with members, of which there may be many.
const BATCH_GROUPS: usize = 16;
/// Groups that are prefetched: smallest and largest number.
const PREFETCH_MIN: usize = 2;
/// Largest number, see [`PREFETCH_MIN`].
const PREFETCH_MAX: usize = 64;
/// Target time of a prefetch. It determines the number of groups, because the caller waits for all.
const PREFETCH_WINDOW: Duration = Duration::from_millis(400);
/// Rounds of one refresh of all entries.
const REFRESH_ROUNDS: u32 = 10;
/// Consecutive timeouts in a batch after which the rest waits for the next round. It takes a few fewer to find one
/// entry among 100.
const TIMEOUTS_MAX: u32 = 10;
/// Longest pause for an entry without an answer.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Number of failing entries above which expired ones are removed. Their entries may not exist any more.
const FAILING_MAX: usize = 10_000;

/// Trace context of queries that no request caused.
const INTERNAL_TRACE: TraceContext = TraceContext { request: 0, call: 0 };

/// An entry by number and name.
type NumberedName = (u32, Vec<u8>);

/// Sends the queries of an on-demand domain, and refreshes its entries.
pub struct OnDemandFetcher<P> {
    engine: Arc<Engine>,
    provider: Arc<P>,
    absences: Arc<AbsenceCheck<P>>,
    probe: Arc<BackendProbe>,
    mode: DomainMode,
    /// Lifetime of a reply.
    refresh: Duration,
    slots: Semaphore,
    query_slots: Semaphore,
    expired: Notify,
    /// Number of groups of the next prefetch.
    prefetch_count: AtomicUsize,
    failing: Mutex<HashMap<u32, FailingEntry>>,
}

/// Result of a query.
enum QueryOutcome {
    Answered,
    /// The server refused it or failed.
    Failure,
    /// Timeout.
    TimedOut,
}

/// An entry without an answer from the directory.
struct FailingEntry {
    until: Instant,
    pause: Duration,
}

fn busy_error() -> BusError {
    BusError::Busy(format!("{QUEUED_QUERIES_MAX} lookups are waiting"))
}

/// Returns the error of a lookup that the directory did not answer.
fn unanswered(error: LookupError) -> BusError {
    let is_away = matches!(error, LookupError::Unreachable(_));
    let text = error.into_reason().with_code();
    if is_away { BusError::Away(text) } else { BusError::Unavailable(text) }
}

/// Returns the reply if it fits into a bus message.
fn check_reply_size(answer: OnDemandEntry) -> Result<OnDemandEntry, BusError> {
    if answer.records.len() <= REPLY_BYTES_MAX {
        return Ok(answer);
    }
    let most = REPLY_BYTES_MAX >> 20;
    let text = format!("the reply has more than {most} MiB");
    Err(BusError::Unavailable(Reason::new(&directory::REPLY_TOO_LARGE, text).with_code()))
}

impl<P: Provider + 'static> OnDemandFetcher<P> {
    /// Makes a fetcher with this provider and engine. A reply is valid for the time `refresh`.
    pub fn new(
        engine: Arc<Engine>,
        provider: Arc<P>,
        place: Arc<BackendProbe>,
        mode: DomainMode,
        refresh: Duration,
    ) -> Self {
        let absences = Arc::new(AbsenceCheck::new(Arc::clone(&engine), Arc::clone(&provider)));
        Self {
            engine,
            provider,
            absences,
            probe: place,
            mode,
            refresh,
            slots: Semaphore::new(CONCURRENT_QUERIES_MAX + QUEUED_QUERIES_MAX),
            query_slots: Semaphore::new(CONCURRENT_QUERIES_MAX),
            expired: Notify::new(),
            prefetch_count: AtomicUsize::new(BATCH_GROUPS),
            failing: Mutex::default(),
        }
    }

    /// Returns the check of entries that replies lack.
    pub fn absences(&self) -> Arc<AbsenceCheck<P>> {
        Arc::clone(&self.absences)
    }

    /// Processes the end of a reply. Searches now for missing entries by their keys, because the result decides about
    /// the reply. Without a decision they are served.
    async fn finish_lookup(&self, inquiry: PendingLookup) {
        if self.engine.finish_lookup(inquiry)
            && let Err(error) = self.absences.check_once().await
        {
            tracing::debug!("entries that a reply lacked are served: {error}");
        }
    }

    /// Returns the records that answer the query; empty if the directory has no such entry. While the directory is
    /// unreachable, returns the cached records.
    pub async fn lookup(
        &self,
        trace: TraceContext,
        what: &LookupQuery,
    ) -> Result<OnDemandEntry, BusError> {
        self.require_on_demand()?;
        let (result, answer) = self.lookup_with_result(trace, what).await;
        let (kind, id) = (what.kind(), what.id());
        // People type passwords where names belong.
        let is_found = answer.as_ref().is_ok_and(|answer| !answer.records.is_empty());
        let name = if is_found { what.name() } else { &b"(unknown)"[..] };
        tracing::trace!(?kind, id, name = %name.escape_ascii(), result, "lookup");
        metrics::counter!("roster_directory_lookups_total", "result" => result).increment(1);
        answer.and_then(check_reply_size)
    }

    /// Returns the entries of these queries without their lists. Fails unless all of them are known.
    pub async fn lookup_all(
        &self,
        trace: TraceContext,
        what: &[LookupQuery],
    ) -> Result<OnDemandEntry, BusError> {
        self.require_on_demand()?;
        let untold = self.engine.outdated_lookups(what, self.refresh);
        if !untold.is_empty() {
            let Ok(_place) = self.slots.try_acquire() else { return Err(busy_error()) };
            let asked = timeout(LOOKUP_DEADLINE, self.query_in_batches(trace, &untold)).await;
            if let Err(error) = asked.unwrap_or_else(|_| Err(LookupError::timeout()))
                // As for a single query: cached records answer while the directory is unreachable.
                && !untold.iter().all(|what| self.engine.has_entry(what))
            {
                return Err(unanswered(error));
            }
        }
        check_reply_size(self.engine.cached_entries(what))
    }

    /// Queries entries by these keys, whether or not they are known. The reply also has further entries of each name.
    pub async fn query_all(
        &self,
        trace: TraceContext,
        what: &[LookupQuery],
    ) -> Result<(), LookupError> {
        let what: Vec<&LookupQuery> = what.iter().collect();
        let asked = timeout(LOOKUP_DEADLINE, self.query_in_batches(trace, &what)).await;
        asked.unwrap_or_else(|_| Err(LookupError::timeout()))
    }

    /// Returns the lifetime of a reply.
    pub fn reply_lifetime(&self) -> Duration {
        self.refresh
    }

    fn require_on_demand(&self) -> Result<(), BusError> {
        if self.mode == DomainMode::OnDemand {
            return Ok(());
        }
        let text = "the domain is mirrored; all entries can be fetched";
        Err(BusError::Invalid(text.into()))
    }

    /// Queries entries in batches of 100.
    async fn query_in_batches(
        &self,
        trace: TraceContext,
        what: &[&LookupQuery],
    ) -> Result<(), LookupError> {
        let ways: [fn(&LookupQuery) -> bool; 4] = [
            |what| matches!(what, LookupQuery::UserByName(_) | LookupQuery::GroupsOf(_)),
            |what| matches!(what, LookupQuery::UserByUid(_)),
            |what| matches!(what, LookupQuery::GroupByName(_)),
            |what| matches!(what, LookupQuery::GroupByGid(_)),
        ];
        let ways = ways.map(|is_one| what.iter().copied().filter(|what| is_one(what)).collect());
        let batches: Vec<_> =
            ways.iter().flat_map(|way: &Vec<_>| way.chunks(BATCH_ENTRIES)).collect();
        let asked = batches.into_iter().map(|batch| Ok(self.query_by_halves(trace, batch)));
        let asked = stream::iter(asked.collect::<Vec<_>>());
        asked.try_buffer_unordered(PARALLEL_BATCHES_MAX).try_collect::<()>().await
    }

    /// Queries entries together. If the server refuses that, perhaps because of a limit, queries each half.
    async fn query_by_halves(
        &self,
        trace: TraceContext,
        batch: &[&LookupQuery],
    ) -> Result<(), LookupError> {
        let mut parts = vec![batch];
        while let Some(part) = parts.pop() {
            let _turn = self.query_slots.acquire().await;
            match self.query_same_key(trace, part).await {
                Err(LookupError::Failed(_)) if part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                asked => asked?,
            }
        }
        Ok(())
    }

    /// Queries entries by names only, or by ids only.
    async fn query_same_key(
        &self,
        trace: TraceContext,
        what: &[&LookupQuery],
    ) -> Result<(), LookupError> {
        let (mut names, mut ids) = (Vec::new(), Vec::new());
        let mut of = LookupScope::Users;
        for what in what {
            match what {
                LookupQuery::UserByName(name) | LookupQuery::GroupsOf(name) => {
                    names.push(name.clone());
                }
                LookupQuery::GroupByName(name) => {
                    of = LookupScope::Groups;
                    names.push(name.clone());
                }
                LookupQuery::UserByUid(id) => ids.push(*id),
                LookupQuery::GroupByGid(id) => {
                    of = LookupScope::Groups;
                    ids.push(*id);
                }
            }
        }
        let keys = if names.is_empty() { LookupKeys::Ids(&ids) } else { LookupKeys::Names(&names) };
        let inquiry = self.engine.begin_lookup(what.iter().copied());
        self.query_provider(trace, of, keys).await?;
        self.finish_lookup(inquiry).await;
        Ok(())
    }

    async fn lookup_with_result(
        &self,
        trace: TraceContext,
        what: &LookupQuery,
    ) -> (&'static str, Result<OnDemandEntry, BusError>) {
        // Queried a moment ago for another caller.
        if let Some(found) = self.engine.fresh_entry(what, self.refresh) {
            return ("known", Ok(found));
        }
        let Ok(_place) = self.slots.try_acquire() else {
            return ("busy", Err(busy_error()));
        };
        let asked = async {
            let _turn = self.query_slots.acquire().await;
            match self.engine.fresh_entry(what, self.refresh) {
                Some(_) => Ok(true),
                None => self.query_with_prefetch(trace, what).await,
            }
        };
        match timeout(LOOKUP_DEADLINE, asked).await.unwrap_or_else(|_| Err(LookupError::timeout()))
        {
            Ok(is_found) => match self.engine.cached_entry(what) {
                Some(found) => (if is_found { "found" } else { "kept" }, Ok(found)),
                // The entry changed meanwhile. A part of it would be a wrong reply, and so would "absent".
                None if self.engine.has_entry(what) => {
                    let text = "the entry changed during the lookup, or its list is not readable";
                    let reason = Reason::new(&directory::ENTRY_CHANGED_DURING_LOOKUP, text);
                    ("changed", Err(BusError::Unavailable(reason.with_code())))
                }
                None => (if is_found { "found" } else { "absent" }, Ok(OnDemandEntry::default())),
            },
            Err(error) => match self.engine.cached_entry(what) {
                Some(found) => ("stale", Ok(found)),
                None => ("unreachable", Err(unanswered(error))),
            },
        }
    }

    /// Sends a query. For one of a user's groups it also queries others of them: `id` queries all of them in sequence.
    async fn query_with_prefetch(
        &self,
        trace: TraceContext,
        what: &LookupQuery,
    ) -> Result<bool, LookupError> {
        let mut groups = self.engine.sibling_groups(what);
        groups.retain(|(number, _)| !self.is_failing(*number));
        let most = self.prefetch_count.load(Ordering::Relaxed);
        groups.truncate(most);
        if groups.len() > 1 {
            // A caller that gives up leaves a smaller number for the next one.
            self.prefetch_count.store((most / 4).max(PREFETCH_MIN), Ordering::Relaxed);
            let began = Instant::now();
            let asked = self.query_entries(trace, LookupScope::GroupsWithMembers, &groups).await;
            if let Err(LookupError::Unreachable(_)) = asked {
                return asked.map(|()| false);
            }
            if asked.is_ok() {
                let slow = began.elapsed() > PREFETCH_WINDOW;
                let next = if slow { most / 2 } else { most * 2 };
                self.prefetch_count
                    .store(next.clamp(PREFETCH_MIN, PREFETCH_MAX), Ordering::Relaxed);
                self.defer_incomplete_groups(&groups, self.engine.sibling_groups(what));
                if self.engine.cached_entry(what).is_some() {
                    return Ok(true);
                }
            }
        }
        self.query_entry(trace, what).await
    }

    async fn query_entry(
        &self,
        trace: TraceContext,
        what: &LookupQuery,
    ) -> Result<bool, LookupError> {
        let inquiry = self.engine.begin_lookup([what]);
        let question = self.probe.directory_asked(trace);
        let found = self.provider.lookup(what).await;
        question.answered(ProbeOutcome::from_result(&found, |found| *found));
        let found = found?;
        self.finish_lookup(inquiry).await;
        if self.engine.is_undecided(what) {
            self.provider.lookup(what).await?;
        }
        Ok(found)
    }

    async fn query_provider(
        &self,
        trace: TraceContext,
        of: LookupScope,
        keys: LookupKeys<'_>,
    ) -> Result<(), LookupError> {
        let question = self.probe.directory_asked(trace);
        let asked = self.provider.lookup_all(of, keys).await;
        question.answered(ProbeOutcome::from_result(&asked, |()| true));
        asked
    }

    async fn query_entries(
        &self,
        trace: TraceContext,
        of: LookupScope,
        entries: &[NumberedName],
    ) -> Result<(), LookupError> {
        let (numbers, names): (Vec<u32>, Vec<Vec<u8>>) = entries.iter().cloned().unzip();
        let inquiry = self.engine.begin_refresh(numbers);
        self.query_provider(trace, of, LookupKeys::Names(&names)).await?;
        self.finish_lookup(inquiry).await;
        Ok(())
    }

    /// Queries a user or a group again, with all known data. Data that the directory does not report stays as it is,
    /// because there is nothing better while it is unreachable. A mirror is refreshed completely. A single query could
    /// reach another server, which this server's data would then contradict. Returns whether the entry is known. A
    /// mirror does not search for it, and returns false.
    pub async fn expire(&self, what: &LookupQuery) -> Result<bool, BusError> {
        if self.mode == DomainMode::Replicate {
            self.provider.refresh();
            return Ok(false);
        }
        let was_known = self.engine.has_entry(what);
        let what = self.engine.full_lookup(what);
        match timeout(CALL_DEADLINE, self.query_entry(INTERNAL_TRACE, &what))
            .await
            .unwrap_or_else(|_| Err(LookupError::timeout()))
        {
            Ok(is_found) => Ok(is_found || was_known),
            Err(error) => {
                let reason = error.into_reason().for_object("the cached entry stays");
                Err(BusError::Unavailable(reason.with_code()))
            }
        }
    }

    /// Sets the schema for entries. Refreshes entries of another schema.
    pub fn set_reading(&self, reading: &str) {
        if self.engine.set_reading(reading) {
            self.expired.notify_one();
        }
    }

    /// Refreshes all entries.
    pub fn expire_all(&self) {
        self.engine.expire_all();
        self.failing().clear();
        self.expired.notify_one();
        self.provider.refresh();
    }

    /// Refreshes old entries in parts, for as long as it is polled.
    pub async fn keep_fresh(&self) {
        tokio::join!(self.refresh_in_rounds(), self.retry_failing());
    }

    /// Retries failing entries after the server has changed or is reachable again.
    async fn retry_failing(&self) {
        let mut news = self.engine.subscribe();
        let mut before = None;
        while news.changed().await.is_ok() {
            let server = {
                let news = news.borrow_and_update();
                (news.online == Some(true)).then(|| news.server.clone())
            };
            if server.is_some() && server != before {
                self.failing().clear();
            }
            before = server;
        }
    }

    async fn refresh_in_rounds(&self) {
        let round = (self.refresh / REFRESH_ROUNDS).max(Duration::from_secs(1));
        let mut news = self.engine.subscribe();
        loop {
            let expired = async {
                self.expired.notified().await;
                // The notification may be older than the connection.
                let _ = news.wait_for(|news| news.online == Some(true)).await;
            };
            tokio::select! {
                () = sleep(round) => {}
                () = expired => {}
            }
            if self.engine.subscribe().borrow().online == Some(true) {
                self.refresh(self.refresh.saturating_sub(round)).await;
            }
        }
    }

    /// Refreshes entries older than that, as long as a server is reachable.
    pub async fn refresh(&self, age: Duration) {
        // A query for users' groups refreshes these groups as well.
        for of in [
            LookupScope::UsersWithGroups,
            LookupScope::Users,
            LookupScope::GroupsWithMembers,
            LookupScope::Groups,
        ] {
            if self.refresh_kind(of, age).await.is_err() {
                return;
            }
        }
    }

    /// Fails if no server is reachable.
    async fn refresh_kind(&self, of: LookupScope, age: Duration) -> Result<(), ()> {
        let mut stale = self.engine.stale_entries(of, age);
        stale.retain(|(number, _)| !self.is_failing(*number));
        let size = if of == LookupScope::GroupsWithMembers { BATCH_GROUPS } else { BATCH_ENTRIES };
        let batches = stream::iter(stale.chunks(size)).map(Ok);
        batches
            .try_for_each_concurrent(CONCURRENT_REFRESHES_MAX, |batch| {
                self.refresh_batch(of, batch)
            })
            .await
    }

    /// Delays the next query for groups that came without members because there are too many.
    fn defer_incomplete_groups(&self, asked: &[NumberedName], still: Vec<NumberedName>) {
        let asked: HashSet<u32> = asked.iter().map(|(number, _)| *number).collect();
        for (number, _) in still.into_iter().filter(|(number, _)| asked.contains(number)) {
            self.note_failure(number);
        }
    }

    /// Queries entries together and, if one of them has no answer, each half. Entries that a server is too slow for
    /// wait for the next round, and delay no other batch.
    async fn refresh_batch(&self, of: LookupScope, batch: &[NumberedName]) -> Result<(), ()> {
        let mut parts = vec![batch];
        let mut late = 0;
        while let Some(part) = parts.pop() {
            late = match self.query_with_timeout(of, part).await? {
                QueryOutcome::Answered => {
                    late = 0;
                    continue;
                }
                QueryOutcome::Failure => 0,
                QueryOutcome::TimedOut => late + 1,
            };
            match part {
                [(number, _)] => self.note_failure(*number),
                _ => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
            if late >= TIMEOUTS_MAX {
                tracing::debug!(?of, "no reply in time; the batch is retried in the next round");
                break;
            }
        }
        Ok(())
    }

    /// Returns the result of a query. Fails if no server is reachable.
    async fn query_with_timeout(
        &self,
        of: LookupScope,
        entries: &[NumberedName],
    ) -> Result<QueryOutcome, ()> {
        match timeout(CALL_DEADLINE, self.query_entries(INTERNAL_TRACE, of, entries)).await {
            Ok(Ok(())) => {
                let mut failing = self.failing();
                for (number, _) in entries {
                    failing.remove(number);
                }
                Ok(QueryOutcome::Answered)
            }
            Ok(Err(LookupError::Unreachable(_))) => Err(()),
            Ok(Err(LookupError::Failed(reason))) => {
                tracing::debug!(?of, entries = entries.len(), "not refreshed: {reason}");
                Ok(QueryOutcome::Failure)
            }
            Err(_) => Ok(QueryOutcome::TimedOut),
        }
    }

    fn is_failing(&self, number: u32) -> bool {
        self.failing().get(&number).is_some_and(|failing| Instant::now() < failing.until)
    }

    fn note_failure(&self, number: u32) {
        let now = Instant::now();
        let mut failing = self.failing();
        if failing.len() >= FAILING_MAX {
            failing.retain(|_, failing| now < failing.until);
        }
        let before = failing.get(&number).map(|failing| failing.pause * 2);
        let pause = before.unwrap_or(self.refresh).min(PAUSE_MAX);
        failing.insert(number, FailingEntry { until: now + pause, pause });
    }

    fn failing(&self) -> MutexGuard<'_, HashMap<u32, FailingEntry>> {
        self.failing.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_unusable_reply_has_code() {
        let large =
            OnDemandEntry { records: vec![0; REPLY_BYTES_MAX + 1], ..OnDemandEntry::default() };
        let Err(BusError::Unavailable(text)) = check_reply_size(large) else {
            panic!("it is too large")
        };
        assert!(text.contains(directory::REPLY_TOO_LARGE.code), "{text}");
        assert_eq!(LookupError::timeout().into_reason().message, &directory::LOOKUP_TIMEOUT);
    }
}
