// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookups in domains that are queried on demand. A record from a backend passes the same checks as all others: the
//! model, `roster_admission` and the owners of all domains. Only then it becomes the reply, and part of the next
//! snapshot.
//!
//! Domains are queried in their order. A domain that cannot be queried ends the lookup with an error. An attacker could
//! otherwise use a name in a lower-priority domain while the higher-priority domain is unreachable.
//!
//! Higher-priority domains are also queried about each name in a reply. The members of a group and the groups of a user
//! are of one domain, and an entry of the same name elsewhere is a different one. That may be thousands of queries. One
//! call to a backend carries thousands of them, and one search in its directory hundreds.
//!
//! A private group may have the name or gid of a group of its own directory, which then goes first. The directory is
//! queried for such groups once for each user. Until then the snapshot marks the entry as one to query for. If no server
//! replies, the known entries decide: users have to log in without the directory.
//!
//! Lower-priority domains do not take part. An unreachable one affects only names that no higher-priority domain has.

use super::PublisherTasks;
use super::domain_model::{
    ImageRejection, MissingMembers, private_group_number, private_group_owner, record_number,
};
use super::lookup_overlay::OverlayEntry;
use super::merge::{DomainSource, ServedName};
use super::model_entry::{ModelEntry, ModelUser};
use super::name_owners::EntryOwner;
use super::state::{DomainState, Invalidation, PublisherState};
use crate::role_config::DomainRules;
use futures_util::{TryStreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use roster_admission::{AsGroup as _, Refusal, Rules};
use roster_bus::bus_names::{BACKEND, RoleName};
use roster_bus::coalesce::{CallKey, Coalescer};
use roster_bus::domain_image::{Record, Records};
use roster_bus::interfaces::{
    self, BackendProxy, LOOKUP_DEADLINE, LOOKUPS_PER_CALL_MAX, ServedUser, TraceContext,
};
use roster_config::{DomainMode, PrivateGroups, WhenAway};
use roster_messages::log;
use roster_names::fold;
use roster_request::{LookupKind, Query};
use roster_role::usdt_probes::{self, CallKind, ProbeOutcome};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::RwLock;
use tokio::time::timeout;
use tracing::{Level, enabled, trace};

/// Different queries in flight to all backends together.
const IN_FLIGHT_MAX: usize = 256;
/// Negative entries of one domain. The bound fits a name, a uid and a gid for each member of two of the largest groups.
const NEGATIVE_ENTRIES_MAX: usize = 65_536;
/// Concurrent calls to one backend with many queries for one lookup.
const CALLS_AT_ONCE: usize = 4;
/// Attempts of a lookup. It starts again if a record that it fetched gave the name or id another owner.
const ROUNDS_MAX: usize = 3;

/// A lookup of a program.
pub(super) type LookupRequest = Query<Vec<u8>>;

/// Arguments of a call to a backend, for the coalescer. They differ for lists of different queries.
fn call_args(query: &LookupRequest) -> Vec<u8> {
    let (name, id) = (query.name(), query.id());
    [format!("{:?},{id},{},", query.kind(), name.len()).as_bytes(), name].concat()
}

/// The name of a served entry.
struct ServedAs {
    name: Vec<u8>,
    /// The name alone finds the entry, because no entry of another domain has it.
    is_preferred: bool,
}

/// A search for a user in one mirrored domain.
enum MirroredUser {
    /// The domain has no such user.
    None,
    /// The domain has the name, and its entry is not served under it.
    NotServed,
    Served(ServedUser),
}

fn served_user(domain: &DomainState, user: &ModelUser) -> ServedUser {
    let native = user.native();
    ServedUser {
        domain: domain.name.clone(),
        name: user.name().to_vec(),
        uid: user.uid,
        directory_name: native.name().to_vec(),
        directory_uid: native.uid,
        rule_groups: domain.renamed_rule_groups(),
    }
}

/// Result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LookupReply {
    User {
        name: Vec<u8>,
        uid: u32,
        gid: u32,
        gecos: Vec<u8>,
        dir: Vec<u8>,
        shell: Vec<u8>,
    },
    Group {
        name: Vec<u8>,
        gid: u32,
        members: Vec<Vec<u8>>,
    },
    Gids(Vec<u32>),
    /// No domain has the entry.
    Absent,
}

/// A domain that had to be queried is unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unavailable(pub(super) String);

type BackendReply = Result<Arc<OverlayEntry>, QueryFailure>;

/// A query that a backend did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct QueryFailure {
    text: String,
    /// No server of the domain replies.
    is_away: bool,
}

impl From<QueryFailure> for Unavailable {
    fn from(failure: QueryFailure) -> Self {
        Self(failure.text)
    }
}

/// The end of a query to one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum DomainAnswer {
    /// The domain has answered. Its records are in the model.
    Given,
    /// No server of the domain replies, and the configuration lets the next domains answer. All that is known of the
    /// domain is in the model.
    Skipped(Unavailable),
}

impl DomainAnswer {
    /// Fails without an answer of the domain.
    fn require(self) -> Result<(), Unavailable> {
        match self {
            Self::Given => Ok(()),
            Self::Skipped(unavailable) => Err(unavailable),
        }
    }
}

/// Connections to the backends of on-demand domains.
pub(super) struct BackendClients {
    /// By position of the domain; `None` for a mirrored domain.
    clients: Vec<Option<BackendClient>>,
    in_flight: Coalescer<(u64, BackendReply)>,
    uid: u32,
}

struct BackendClient {
    domain: CString,
    role: RoleName,
    proxy: BackendProxy<'static>,
    ignores_case: bool,
    negative_cache: Mutex<BackendNegativeCache>,
}

impl BackendClients {
    /// Makes clients of these backends. The durations are lifetimes of negative entries.
    pub(super) fn new(
        back_ends: impl Iterator<Item = Option<(DomainRules, BackendProxy<'static>)>>,
    ) -> Self {
        let back_end = |(rules, proxy): (DomainRules, _)| {
            let DomainRules { name: domain, names, negative, .. } = rules;
            let absent = Mutex::new(BackendNegativeCache::new(negative));
            BackendClient {
                ignores_case: names.case.ignores_case(),
                domain: usdt_probes::probe_text(&domain),
                role: RoleName::Backend(domain),
                proxy,
                negative_cache: absent,
            }
        };
        Self {
            clients: back_ends.map(|found| found.map(back_end)).collect(),
            in_flight: Coalescer::new(IN_FLIGHT_MAX),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// Drops all negative entries of a domain, because it may have new entries.
    pub(super) fn clear_negative(&self, domain: usize) {
        if let Some(Some(back_end)) = self.clients.get(domain) {
            back_end.lock_negative_cache().clear();
        }
    }

    /// Queries one domain. Returns its records, empty if it has none or is mirrored.
    async fn query_backend(
        &self,
        request: u64,
        domain: usize,
        question: &LookupRequest,
    ) -> BackendReply {
        let Some(Some(back_end)) = self.clients.get(domain) else {
            return Ok(Arc::default());
        };
        if back_end.lock_negative_cache().knows(question, Instant::now()) {
            trace!(role = %back_end.role, "a negative entry is cached");
            return Ok(Arc::default());
        }
        trace!(role = %back_end.role, "calling the backend");
        let trace = TraceContext { request, call: usdt_probes::next_trace_number() };
        usdt_probes::call_sent(trace, CallKind::from_kind(question.kind()), &back_end.domain);
        let sent = question.clone();
        let ask = async move |proxy: BackendProxy<'static>| {
            proxy
                .look_up(trace, interfaces::lookup_number(sent.kind()), sent.name(), sent.id())
                .await
        };
        let (asked_at, asked) =
            self.call(back_end, "org.roster.Backend1.LookUp", call_args(question), ask).await;
        usdt_probes::call_returned(trace, probe_outcome(&asked));
        if asked.as_ref().is_ok_and(|found| found.records.is_empty()) {
            back_end.lock_negative_cache().note([question], asked_at, Instant::now());
        }
        asked
    }

    /// Returns the queries without a negative entry for that domain.
    fn unknown_requests(&self, domain: usize, questions: &[&LookupRequest]) -> Vec<LookupRequest> {
        match self.clients.get(domain) {
            Some(Some(back_end)) => {
                back_end.lock_negative_cache().unknown_requests(questions, Instant::now())
            }
            _ => Vec::new(),
        }
    }

    /// Queries one domain for many entries with one call. The records come without lists.
    async fn query_backend_batch(
        &self,
        request: u64,
        domain: usize,
        questions: Vec<LookupRequest>,
    ) -> BackendReply {
        let Some(Some(back_end)) = self.clients.get(domain) else {
            return Ok(Arc::default());
        };
        let args = questions.iter().flat_map(call_args).collect();
        let sent = questions.clone();
        let trace = TraceContext { request, call: usdt_probes::next_trace_number() };
        usdt_probes::call_sent(trace, CallKind::SEVERAL, &back_end.domain);
        let ask = async move |proxy: BackendProxy<'static>| {
            let sent: Vec<_> = sent
                .iter()
                .map(|sent| (interfaces::lookup_number(sent.kind()), sent.name(), sent.id()))
                .collect();
            proxy.look_up_all(trace, &sent).await
        };
        let (asked_at, asked) =
            self.call(back_end, "org.roster.Backend1.LookUpAll", args, ask).await;
        usdt_probes::call_returned(trace, probe_outcome(&asked));
        let asked = asked?;
        let told = answered_requests(&asked.records, back_end.ignores_case);
        let untold = questions.iter().filter(|question| !told.contains(question));
        back_end.lock_negative_cache().note(untold, asked_at, Instant::now());
        Ok(asked)
    }

    /// Calls a backend, unless an equal call is in flight. Also returns the change count from the time of the call.
    async fn call<F>(
        &self,
        back_end: &BackendClient,
        member: &'static str,
        args: Vec<u8>,
        request: impl FnOnce(BackendProxy<'static>) -> F,
    ) -> (u64, BackendReply)
    where
        F: Future<Output = Result<(u64, u64, Vec<u8>), interfaces::BusError>> + Send + 'static,
    {
        let key = CallKey {
            uid: self.uid,
            message: "call",
            destination: back_end.role.bus_name(),
            member,
            path: back_end.role.path(),
            args,
        };
        debug_assert!(key.member.starts_with(BACKEND));
        let joined = |joined| {
            if joined {
                trace!("joins an equal call to the backend");
                metrics::counter!("roster_coalesced_requests_total").increment(1);
            }
        };
        let request = || {
            let answer = request(back_end.proxy.clone());
            async move {
                match timeout(LOOKUP_DEADLINE, answer).await {
                    Ok(Ok((epoch, sequence, records))) => {
                        Ok(Arc::new(OverlayEntry { epoch, sequence, records }))
                    }
                    Ok(Err(error)) => {
                        let is_away = matches!(error, interfaces::BusError::Away(_));
                        Err(QueryFailure { text: error.to_string(), is_away })
                    }
                    Err(_) => Err(timeout_error()),
                }
            }
        };
        let news = back_end.lock_negative_cache().change_count;
        let busy = |error: roster_bus::coalesce::TooManyInFlight| {
            (news, Err(QueryFailure { text: error.to_string(), is_away: false }))
        };
        self.in_flight
            .request_or_join_with_count(news, key, joined, request)
            .await
            .unwrap_or_else(busy)
    }

    /// Drops the negative entry of a query, because the domain has such an entry now.
    fn clear_negative_entry(&self, domain: usize, question: &LookupRequest) {
        if let Some(Some(back_end)) = self.clients.get(domain) {
            back_end.lock_negative_cache().until.remove(question);
        }
    }
}

fn probe_outcome(asked: &BackendReply) -> ProbeOutcome {
    ProbeOutcome::from_result(asked, |found| !found.records.is_empty())
}

fn timeout_error() -> QueryFailure {
    QueryFailure { text: "the backend did not reply in time".into(), is_away: false }
}

/// Returns the queries for an entry that these records answer.
fn answered_requests(records: &[u8], ignores_case: bool) -> HashSet<LookupRequest> {
    let asked_name = |name| match ignores_case {
        true => fold(name).into_owned(),
        false => name.to_vec(),
    };
    let told = Records::without_header(records).flatten().flat_map(|record| match record {
        Record::User(user) => {
            vec![
                LookupRequest::UserByName(asked_name(user.name)),
                LookupRequest::UserByUid(user.uid),
            ]
        }
        // A group that only nests answers no query.
        Record::Group(group) => group.gid.map_or_else(Vec::new, |gid| {
            vec![LookupRequest::GroupByName(asked_name(group.name)), LookupRequest::GroupByGid(gid)]
        }),
        Record::Removed { .. } | Record::GroupsOf { .. } => Vec::new(),
    });
    told.collect()
}

impl BackendClient {
    fn lock_negative_cache(&self) -> MutexGuard<'_, BackendNegativeCache> {
        self.negative_cache.lock()
    }
}

/// Negative entries of a backend, with their expiry.
struct BackendNegativeCache {
    lifetime: Duration,
    until: HashMap<LookupRequest, Instant>,
    /// Counts how often the backend may have got new entries.
    change_count: u64,
}

impl BackendNegativeCache {
    fn new(life: Duration) -> Self {
        Self { lifetime: life, until: HashMap::new(), change_count: 0 }
    }

    fn knows(&self, question: &LookupRequest, now: Instant) -> bool {
        self.until.get(question).is_some_and(|until| now < *until)
    }

    /// Returns the queries without a negative entry.
    fn unknown_requests(&self, questions: &[&LookupRequest], now: Instant) -> Vec<LookupRequest> {
        let open = questions.iter().copied().filter(|question| !self.knows(question, now));
        open.cloned().collect()
    }

    /// Stores negative entries, unless the backend may have got new entries since the call.
    fn note<'q>(
        &mut self,
        questions: impl IntoIterator<Item = &'q LookupRequest>,
        asked_at: u64,
        now: Instant,
    ) {
        if self.change_count != asked_at {
            return;
        }
        for question in questions {
            if self.until.len() >= NEGATIVE_ENTRIES_MAX {
                self.until.retain(|_, until| now < *until);
            }
            if self.until.len() >= NEGATIVE_ENTRIES_MAX {
                return;
            }
            self.until.insert(question.clone(), now + self.lifetime);
        }
    }

    /// Drops all entries.
    fn clear(&mut self) {
        self.change_count += 1;
        self.until.clear();
    }
}

/// State and query functions of a lookup.
pub(super) trait LookupSource: Sync {
    fn state(&self) -> &RwLock<PublisherState>;

    /// Queries one domain and applies its records.
    fn query_domain(
        &self,
        domain: usize,
        question: &LookupRequest,
    ) -> impl Future<Output = Result<DomainAnswer, Unavailable>> + Send;

    /// Queries one domain for many entries and applies its records, without their lists. Fails if one of them was not
    /// queried.
    fn query_domain_batch(
        &self,
        domain: usize,
        questions: &[&LookupRequest],
    ) -> impl Future<Output = Result<DomainAnswer, Unavailable>> + Send;

    /// Does the same as [`Self::query_domain_batch`]. Returns `false` if no server of the domain replies.
    fn query_if_online(
        &self,
        domain: usize,
        questions: &[&LookupRequest],
    ) -> impl Future<Output = Result<bool, Unavailable>> + Send {
        async move { Ok(self.query_domain_batch(domain, questions).await? == DomainAnswer::Given) }
    }

    /// Schedules a snapshot, because an entry of the last one needs no query any more.
    fn schedule_snapshot(&self) {}
}

/// The lookup for one request of a program.
pub(super) struct RequestLookup<'a> {
    pub(super) tasks: &'a PublisherTasks,
    /// Number of the request.
    pub(super) request: u64,
}

impl LookupSource for RequestLookup<'_> {
    fn state(&self) -> &RwLock<PublisherState> {
        &self.tasks.state
    }

    async fn query_domain(
        &self,
        domain: usize,
        question: &LookupRequest,
    ) -> Result<DomainAnswer, Unavailable> {
        let Self { tasks: hub, request } = *self;
        if hub.state.read().await.has_entry(domain, question) {
            // The entry is known from another record, and this query is for its list.
            hub.backends.clear_negative_entry(domain, question);
        }
        let asked = match hub.backends.query_backend(request, domain, question).await {
            Ok(found) => Ok(apply_lookup(hub, domain, &found).await?),
            Err(failure) => Err(failure),
        };
        hub.state.read().await.domain_answer(domain, asked)
    }

    async fn query_domain_batch(
        &self,
        domain: usize,
        questions: &[&LookupRequest],
    ) -> Result<DomainAnswer, Unavailable> {
        let asked = self.query_unknown(domain, questions).await;
        self.tasks.state.read().await.domain_answer(domain, asked)
    }

    async fn query_if_online(
        &self,
        domain: usize,
        questions: &[&LookupRequest],
    ) -> Result<bool, Unavailable> {
        match self.query_unknown(domain, questions).await {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_away => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    fn schedule_snapshot(&self) {
        self.tasks.lookup_changed.notify_one();
    }
}

impl RequestLookup<'_> {
    /// Queries one domain for many entries, except entries with a negative reply, and applies its records.
    async fn query_unknown(
        &self,
        domain: usize,
        questions: &[&LookupRequest],
    ) -> Result<(), QueryFailure> {
        let Self { tasks: hub, request } = *self;
        let open = hub.backends.unknown_requests(domain, questions);
        let calls = open.chunks(LOOKUPS_PER_CALL_MAX).map(|questions| {
            let questions = questions.to_vec();
            Ok(async move {
                let found = hub.backends.query_backend_batch(request, domain, questions).await?;
                let applied = apply_lookup(hub, domain, &found).await;
                applied.map_err(|Unavailable(text)| QueryFailure { text, is_away: false })
            })
        });
        let calls = stream::iter(calls.collect::<Vec<_>>());
        let calls = calls.try_buffer_unordered(CALLS_AT_ONCE).try_collect::<()>();
        timeout(LOOKUP_DEADLINE, calls).await.unwrap_or_else(|_| Err(timeout_error()))
    }
}

/// Answers a query from the model, after queries to backends as needed.
pub(super) async fn lookup(
    directories: &impl LookupSource,
    question: &LookupRequest,
) -> Result<LookupReply, Unavailable> {
    for reading in readings(directories, question).await? {
        if let Some(found) = find_entry(directories, &reading).await? {
            return Ok(found.reply);
        }
    }
    Ok(LookupReply::Absent)
}

/// Returns the readings of a query. A query about a local account has none.
async fn readings(
    directories: &impl LookupSource,
    question: &LookupRequest,
) -> Result<Vec<NameReading>, Unavailable> {
    let state = directories.state().read().await;
    if state.is_local(question)? {
        return Ok(Vec::new());
    }
    if !question.kind().is_by_name() {
        return Ok(vec![NameReading { domain: None, question: question.clone() }]);
    }
    let readings = state.scheme.readings(question.name()).into_iter();
    let with_name = |(domain, name): (_, &[u8])| NameReading {
        domain,
        question: LookupRequest::new(question.kind(), name.to_vec(), 0),
    };
    Ok(readings.map(with_name).collect())
}

/// Finds the entry that serves a reading, with its complete list. Returns `None` if there is none.
async fn find_entry(
    directories: &impl LookupSource,
    reading: &NameReading,
) -> Result<Option<FoundEntry>, Unavailable> {
    for _ in 0..ROUNDS_MAX {
        match try_lookup(directories, reading).await? {
            LookupRound::Found(found) => return Ok(Some(*found)),
            LookupRound::Absent => return Ok(None),
            LookupRound::Changed => {}
        }
    }
    Err(Unavailable("the entry changed while it was asked for".into()))
}

/// A query, and the position of the domain that it is about. `None` means any domain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NameReading {
    domain: Option<usize>,
    question: LookupRequest,
}

/// A served entry.
struct FoundEntry {
    reply: LookupReply,
    /// The user, if it is one.
    user: Option<ServedUser>,
}

/// Result of one attempt of a lookup.
enum LookupRound {
    Found(Box<FoundEntry>),
    Absent,
    /// A record that came meanwhile changed the owner.
    Changed,
}

/// Makes one attempt of a lookup. The result is "changed" if a fetched record gave the name or id another owner. The
/// same holds if its list has new names that were not checked with higher-priority domains.
async fn try_lookup(
    directories: &impl LookupSource,
    reading: &NameReading,
) -> Result<LookupRound, Unavailable> {
    let state = directories.state();
    let question = &reading.question;
    // Finds the user by name first. Only the user's domain is then queried for the groups.
    let by_name = NameReading {
        domain: reading.domain,
        question: match question.kind() {
            LookupKind::GroupsOf => LookupRequest::UserByName(question.name().into()),
            _ => question.clone(),
        },
    };
    let Some(claimant) = find_owner(directories, &by_name).await? else {
        if enabled!(Level::TRACE) {
            state.read().await.log_unserved(&by_name);
        }
        return Ok(LookupRound::Absent);
    };
    decide_private_group(directories, claimant).await?;
    let claims = state.read().await.ownership_requests(claimant);
    let is_open = |claim: &&LookupRequest| by_name.domain.is_some() || **claim != by_name.question;
    let others: Vec<LookupRequest> = claims.iter().filter(is_open).cloned().collect();
    query_higher_priority(directories, claimant.0, &others).await?;
    let list_request = {
        let state = state.read().await;
        let lacks_list = state.lacks_list(question.kind(), claimant);
        lacks_list.then(|| state.list_request(question, claimant))
    };
    if let Some(request) = &list_request {
        directories.query_domain(claimant.0, request).await?.require()?;
    }
    let (named, changes) = {
        let state = state.read().await;
        (state.member_ownership_requests(question.kind(), claimant), state.change_count)
    };
    query_higher_priority(directories, claimant.0, &named).await?;
    let state = state.read().await;
    let names_others = || {
        let asked: HashSet<&LookupRequest> = named.iter().collect();
        state
            .member_ownership_requests(question.kind(), claimant)
            .iter()
            .any(|one| !asked.contains(one))
    };
    let is_another = state.served_owner(&by_name) != Some(claimant)
        || state.ownership_requests(claimant) != claims
        || state.change_count != changes && names_others();
    if is_another {
        return Ok(LookupRound::Changed);
    }
    if state.lacks_list(question.kind(), claimant) {
        return Err(Unavailable("the directory did not return the members".into()));
    }
    let user = state.served_user(claimant);
    Ok(match state.lookup_reply(question.kind(), claimant) {
        Some(reply) => LookupRound::Found(Box::new(FoundEntry { reply, user })),
        None => LookupRound::Changed,
    })
}

/// Returns a served user: the domain, the name that its backend knows, and the uid.
pub(super) async fn find_user(
    directories: &impl LookupSource,
    name: &[u8],
) -> Result<Option<ServedUser>, Unavailable> {
    if let Some(found) = directories.state().read().await.mirrored_user(name) {
        return found;
    }
    let question = LookupRequest::UserByName(name.into());
    for reading in readings(directories, &question).await? {
        if let Some(found) = find_entry(directories, &reading).await? {
            return Ok(found.user);
        }
    }
    Ok(None)
}

/// Returns the owner of a name or id, after a query to every higher-priority domain. "Absent" requires replies from all
/// domains. A domain that may be skipped while it is away has no influence, unless it is known to have the name. A name
/// with a domain is about that domain alone.
async fn find_owner(
    directories: &impl LookupSource,
    reading: &NameReading,
) -> Result<Option<EntryOwner>, Unavailable> {
    let state = directories.state();
    let domains = state.read().await.asked_domains(reading);
    let mut skipped = None;
    for domain in domains {
        let known = state.read().await;
        match known.owner(reading) {
            Some(group) if group.0 == domain && known.is_undecided_group(group) => {
                drop(known);
                decide_private_group(directories, group).await?;
                continue;
            }
            Some((owner, _)) if !known.asks_before(domain, owner, reading.question.kind()) => break,
            _ => {}
        }
        known.require_contact(domain)?;
        let requests = known.owner_requests(domain, &reading.question);
        drop(known);
        for request in requests {
            if state.read().await.has_served_entry(domain, &reading.question) {
                break;
            }
            if let DomainAnswer::Skipped(unavailable) =
                directories.query_domain(domain, &request).await?
            {
                skipped.get_or_insert(unavailable);
            }
        }
    }
    let known = state.read().await;
    match (known.served_owner(reading), skipped) {
        (None, Some(unavailable)) => Err(unavailable),
        (owner, _) => Ok(owner),
    }
}

/// Queries the domains above that position for owners of names and ids.
async fn query_higher_priority(
    directories: &impl LookupSource,
    position: usize,
    questions: &[LookupRequest],
) -> Result<(), Unavailable> {
    let domains = directories.state().read().await.domains.len();
    for domain in (0..domains).filter(|domain| *domain != position) {
        let open: Vec<LookupRequest> = {
            let known = directories.state().read().await;
            let is_open = |question: &&LookupRequest| {
                known.asks_before(domain, position, question.kind())
                    && known.needs_query(domain, question)
            };
            let open = questions.iter().filter(is_open);
            open.flat_map(|question| known.owner_requests(domain, question)).collect()
        };
        if !open.is_empty() {
            let open: Vec<&LookupRequest> = open.iter().collect();
            // A skipped domain does not own these names and ids as far as is known.
            let _ = directories.query_domain_batch(domain, &open).await?;
        }
    }
    Ok(())
}

/// Queries the domain of an entry for groups that replace a private group, or that reject its user.
async fn decide_private_group(
    directories: &impl LookupSource,
    claimant: EntryOwner,
) -> Result<(), Unavailable> {
    let requests = {
        let state = directories.state().read().await;
        match state.is_undecided(claimant) {
            true => state.private_group_requests(claimant),
            false => return Ok(()),
        }
    };
    let asked: Vec<&LookupRequest> = requests.iter().collect();
    if directories.query_if_online(claimant.0, &asked).await?
        && directories.state().write().await.set_decided(claimant, &requests)
    {
        directories.schedule_snapshot();
    }
    Ok(())
}

/// Applies records and schedules a snapshot with them.
async fn apply_lookup(
    hub: &PublisherTasks,
    domain: usize,
    found: &Arc<OverlayEntry>,
) -> Result<(), Unavailable> {
    if found.records.is_empty() {
        return Ok(());
    }
    let mut state = hub.state.write().await;
    state.require_epoch(domain, found.epoch)?;
    let learnt = state.apply_lookup(domain, found);
    drop(state);
    let forget = learnt.map_err(|error| {
        log!(ERROR, error.message(), "rejected a lookup reply of the backend: {error}");
        Unavailable(error.to_string())
    })?;
    if let Some(forget) = forget {
        hub.lookup_changed.notify_one();
        hub.invalidate(&forget).await;
    }
    Ok(())
}

impl PublisherState {
    /// Whether the query is about a local account. No directory is queried for such an account.
    fn is_local(&self, question: &LookupRequest) -> Result<bool, Unavailable> {
        let locals = self.locals.as_ref();
        let locals = locals.ok_or_else(|| Unavailable("the host accounts were not read".into()))?;
        Ok(match question {
            Query::UserByName(name) | Query::GroupsOf(name) => locals.user_names.contains(name),
            Query::UserByUid(uid) => locals.uids.contains(uid),
            Query::GroupByName(name) => locals.group_names.contains(name),
            Query::GroupByGid(gid) => locals.gids.contains(gid),
        })
    }

    /// Returns the same as [`find_user`] if all domains are mirrored, otherwise `None`. Without on-demand domains there
    /// is no ownership table. So this reads the entries and the rejections of the last publication.
    fn mirrored_user(&self, name: &[u8]) -> Option<Result<Option<ServedUser>, Unavailable>> {
        if self.domains.iter().any(|domain| domain.mode == DomainMode::OnDemand) {
            return None;
        }
        match self.is_local(&LookupRequest::UserByName(name.into())) {
            Ok(false) => {}
            Ok(true) => return Some(Ok(None)),
            Err(unavailable) => return Some(Err(unavailable)),
        }
        for (of_domain, alone) in self.scheme.readings(name) {
            for position in self.scheme.by_priority() {
                if of_domain.is_some_and(|domain| domain != position) {
                    continue;
                }
                if let Err(unavailable) = self.require_contact(position) {
                    let found = self.find_previously_served(position, name);
                    return Some(found.map(Some).ok_or(unavailable));
                }
                match self.mirrored_user_of(position, alone, of_domain.is_some()) {
                    MirroredUser::None => {}
                    MirroredUser::NotServed => return Some(Ok(None)),
                    MirroredUser::Served(user) => return Some(Ok(Some(user))),
                }
            }
        }
        Some(Ok(None))
    }

    /// Returns the user of a mirrored domain by the name without the domain. `with_domain` means that the request names
    /// the domain: otherwise an entry that is served with its domain does not count.
    fn mirrored_user_of(&self, position: usize, name: &[u8], with_domain: bool) -> MirroredUser {
        let domain = &self.domains[position];
        let names = &domain.rules.names;
        let Some(locals) = self.locals.as_ref().filter(|_| with_domain || !names.is_qualified())
        else {
            return MirroredUser::None;
        };
        let wanted = names.requested(name);
        let is_called = |user: &ModelUser| {
            names.matches(&names.base(user.name()), name)
                || with_domain && names.matches(&names.preferred(user.name()), &wanted)
        };
        let called_so = domain.entries.users().filter(|(_, user)| is_called(user));
        let mut admitted =
            called_so.filter(|&(_, user)| domain.rules.user(user, locals).is_ok()).peekable();
        if admitted.peek().is_none() {
            return MirroredUser::None;
        }
        // This domain owns the name, even if the entry is rejected.
        let served = admitted
            .find(|(number, _)| !domain.rejected.iter().any(|(refused, _)| refused == number));
        match served {
            None if with_domain => MirroredUser::None,
            None => MirroredUser::NotServed,
            Some((number, _)) if !with_domain && domain.with_domain.contains(&number) => {
                MirroredUser::NotServed
            }
            Some((_, user)) => MirroredUser::Served(served_user(domain, user)),
        }
    }

    fn served_user(&self, claimant: EntryOwner) -> Option<ServedUser> {
        match self.served_entry(claimant)? {
            (ModelEntry::User(user), _) => Some(served_user(&self.domains[claimant.0], user)),
            (ModelEntry::Group(_), _) => None,
        }
    }

    /// Returns the domains to query for a reading, highest priority first.
    fn asked_domains(&self, NameReading { domain, question }: &NameReading) -> Vec<usize> {
        let is_unqualified = |position: &usize| !self.scheme.names(*position).is_qualified();
        match domain {
            Some(domain) => vec![*domain],
            None if question.kind().is_by_name() => {
                self.scheme.by_priority().filter(is_unqualified).collect()
            }
            None => (0..self.domains.len()).collect(),
        }
    }

    /// Whether a domain has to be asked before another one may answer: about names or about ids.
    fn asks_before(&self, domain: usize, other: usize, kind: LookupKind) -> bool {
        match kind.is_by_name() {
            true => {
                !self.scheme.names(domain).is_qualified()
                    && self.scheme.precedes_by_name(domain, other)
            }
            false => domain < other,
        }
    }

    /// Returns a query in the form of a domain's backend: about the entry's name in the directory, and folded if the
    /// domain ignores case.
    fn native_request(&self, domain: usize, question: &LookupRequest) -> LookupRequest {
        let overrides = self.domains[domain].entries.overrides();
        self.comparable_request(domain, &overrides.native_request(question))
    }

    fn comparable_request(&self, domain: usize, question: &LookupRequest) -> LookupRequest {
        let name = self.scheme.names(domain).comparable(question.name()).into_owned();
        LookupRequest::new(question.kind(), name, question.id())
    }

    /// Returns the queries for the owner of a name or id in a domain. The owner of a group's name or gid may be a user
    /// with a private group.
    fn owner_requests(&self, domain: usize, question: &LookupRequest) -> Vec<LookupRequest> {
        if !self.can_have(domain, question) {
            return Vec::new();
        }
        let user = match question {
            _ if self.private_groups(domain) == PrivateGroups::Off => None,
            Query::GroupByName(name) => Some(LookupRequest::UserByName(name.clone())),
            Query::GroupByGid(gid) => Some(LookupRequest::UserByUid(*gid)),
            _ => None,
        };
        let user =
            user.filter(|user| self.can_have(domain, user) && !self.has_served_entry(domain, user));
        let user = user.map(|user| self.native_request(domain, &user));
        std::iter::once(self.native_request(domain, question)).chain(user).collect()
    }

    fn is_undecided(&self, (position, number): EntryOwner) -> bool {
        self.domains[position].entries.is_undecided(number)
    }

    fn is_undecided_group(&self, owner: EntryOwner) -> bool {
        private_group_owner(owner.1).is_some() && self.is_undecided(owner)
    }

    /// Returns the queries for groups of the directory with the name or gid of an entry's private group.
    pub(super) fn private_group_requests(
        &self,
        (position, number): EntryOwner,
    ) -> Vec<LookupRequest> {
        let domain = &self.domains[position];
        let user = private_group_owner(number).unwrap_or(number);
        let Some(ModelEntry::User(user)) = domain.entries.entry(user) else { return Vec::new() };
        let name = domain.rules.names.base(user.name()).into_owned();
        let requests = [LookupRequest::GroupByName(name), LookupRequest::GroupByGid(user.uid)];
        requests.iter().map(|request| self.native_request(position, request)).collect()
    }

    /// Returns the private groups of a domain: those that were never queried for, or all of them.
    pub(super) fn users_to_check(&self, domain: usize, all: bool) -> Vec<EntryOwner> {
        let entries = &self.domains[domain].entries;
        let users = entries.users().filter(|(_, user)| user.private_group().is_some());
        let groups = users.map(|(number, _)| private_group_number(number));
        let groups = groups.filter(|number| all || entries.is_undecided(*number));
        groups.map(|number| (domain, number)).collect()
    }

    /// Records that these queries were answered, unless they are about an older version of the entry. Returns whether
    /// the next snapshot differs.
    pub(super) fn set_decided(&mut self, claimant: EntryOwner, requests: &[LookupRequest]) -> bool {
        let is_same = self.private_group_requests(claimant) == requests;
        is_same && self.domains[claimant.0].entries.set_decided(claimant.1)
    }

    /// Returns the query for the list of an entry. That of an overridden group is about its name, because the directory
    /// may have another gid.
    fn list_request(&self, question: &LookupRequest, claimant: EntryOwner) -> LookupRequest {
        let (kind, native) = match self.domains[claimant.0].entries.entry(claimant.1) {
            Some(ModelEntry::User(user)) => (question.kind(), user.native().name()),
            Some(ModelEntry::Group(group)) if group.native.is_some() => {
                (LookupKind::GroupByName, group.native_name())
            }
            Some(ModelEntry::Group(group)) => (question.kind(), &*group.name),
            None => (question.kind(), question.name()),
        };
        let request = LookupRequest::new(kind, native.to_vec(), question.id());
        self.comparable_request(claimant.0, &request)
    }

    /// Fails if the domain's backend has not sent anything yet. Until then a reply from a lower-priority domain could
    /// be wrong.
    fn require_contact(&self, domain: usize) -> Result<(), Unavailable> {
        let domain = &self.domains[domain];
        if !domain.has_overrides() {
            let text = format!("the overrides of domain {} were not read yet", domain.name);
            return Err(Unavailable(text));
        }
        if domain.mode == DomainMode::OnDemand || domain.entries.is_present {
            return Ok(());
        }
        Err(Unavailable(format!("domain {} was not read yet", domain.name)))
    }

    /// Returns the end of a query. A domain is skipped only if its known entries are in the model.
    fn domain_answer(
        &self,
        domain: usize,
        asked: Result<(), QueryFailure>,
    ) -> Result<DomainAnswer, Unavailable> {
        let Err(failure) = asked else { return Ok(DomainAnswer::Given) };
        let domain = &self.domains[domain];
        let may_skip = domain.when_away == WhenAway::Next && domain.entries.is_present;
        match failure.is_away && may_skip {
            true => Ok(DomainAnswer::Skipped(failure.into())),
            false => Err(failure.into()),
        }
    }

    /// Whether the domain's rules allow the id of the query, and its overrides the name. Otherwise its directory need not be queried.
    fn can_have(&self, domain: usize, question: &LookupRequest) -> bool {
        let Rules { min_id, max_id, .. } = &self.domains[domain].rules;
        match question.kind() {
            LookupKind::UserByUid | LookupKind::GroupByGid => {
                (*min_id..=*max_id).contains(&question.id())
            }
            LookupKind::UserByName | LookupKind::GroupByName | LookupKind::GroupsOf => {
                !self.domains[domain].entries.overrides().hides(question)
            }
        }
    }

    /// Whether a domain has to be queried: no entry there or in a higher-priority domain is known to own the name or
    /// id.
    fn needs_query(&self, domain: usize, question: &LookupRequest) -> bool {
        self.domains[domain].mode == DomainMode::OnDemand
            && self.can_have(domain, question)
            && self
                .any_owner(question)
                .is_none_or(|(owner, _)| self.asks_before(domain, owner, question.kind()))
    }

    /// Whether any domain with a higher priority is queried on demand.
    fn is_below_on_demand(&self, position: usize) -> bool {
        let mut domains = self.domains.iter().enumerate();
        domains.any(|(other, domain)| {
            domain.mode == DomainMode::OnDemand
                && other != position
                && self.scheme.precedes(other, position)
        })
    }

    /// Fails if the records have entry numbers of another backend process. A restarted backend may have assigned them
    /// differently, until a full fetch.
    fn require_epoch(&self, domain: usize, epoch: u64) -> Result<(), Unavailable> {
        if self.position(domain).0 == epoch {
            return Ok(());
        }
        let name = &self.domains[domain].name;
        Err(Unavailable(format!("domain {name}: its backend restarted and was not read yet")))
    }

    /// Returns the queries that show whether an entry owns its name and ids with respect to another domain.
    fn ownership_requests(&self, claimant: EntryOwner) -> Vec<LookupRequest> {
        let names = self.scheme.names(claimant.0);
        // No other domain has a name with this domain.
        let base = |native| (!names.is_qualified()).then(|| names.base(native).into_owned());
        match self.served_entry(claimant) {
            Some((ModelEntry::User(user), _)) => {
                let by_name = base(user.name()).map(LookupRequest::UserByName);
                let by_id =
                    [LookupRequest::UserByUid(user.uid), LookupRequest::GroupByGid(user.gid)];
                by_name.into_iter().chain(by_id).collect()
            }
            Some((ModelEntry::Group(group), _)) => {
                let name = base(&group.name);
                // A private group needs its user.
                let user = private_group_owner(claimant.1).map(|_| {
                    let by_name = name.clone().map(LookupRequest::UserByName);
                    by_name.into_iter().chain([LookupRequest::UserByUid(group.gid())])
                });
                let by_name = name.map(LookupRequest::GroupByName).into_iter();
                let claims = by_name.chain([LookupRequest::GroupByGid(group.gid())]);
                claims.chain(user.into_iter().flatten()).collect()
            }
            None => Vec::new(),
        }
    }

    /// Returns the same queries, without duplicates, for all entries in a reply: the members of a group or the groups
    /// of a user. Empty if no higher-priority domain is queried on demand.
    fn member_ownership_requests(
        &self,
        kind: LookupKind,
        claimant: EntryOwner,
    ) -> Vec<LookupRequest> {
        let position = claimant.0;
        if !self.is_below_on_demand(position) {
            return Vec::new();
        }
        let named = match (kind, self.served_entry(claimant)) {
            (LookupKind::GroupsOf, Some((ModelEntry::User(user), _))) => {
                self.groups_of(position, user)
            }
            (LookupKind::GroupByName | LookupKind::GroupByGid, Some((ModelEntry::Group(_), _))) => {
                self.members_of(claimant)
            }
            _ => Vec::new(),
        };
        // Only gids can repeat among these queries.
        let mut gids = HashSet::new();
        let claims =
            named.into_iter().flat_map(|number| self.ownership_requests((position, number)));
        claims
            .filter(|claim| claim.kind() != LookupKind::GroupByGid || gids.insert(claim.id()))
            .collect()
    }

    /// Returns the known owner of the name or id, served or not.
    fn owner(&self, NameReading { domain, question }: &NameReading) -> Option<EntryOwner> {
        match question {
            Query::UserByName(name) | Query::GroupsOf(name) => {
                self.ownership.user_name_owner(*domain, name)
            }
            Query::UserByUid(uid) => self.ownership.uid_owner(*uid),
            Query::GroupByName(name) => self.ownership.group_name_owner(*domain, name),
            Query::GroupByGid(gid) => self.ownership.gid_owner(*gid),
        }
    }

    /// Whether an entry of a domain's directory is known to have the name or id of a query to its backend.
    fn has_entry(&self, domain: usize, question: &LookupRequest) -> bool {
        self.has_served_entry(
            domain,
            &self.domains[domain].entries.overrides().served_request(question),
        )
    }

    /// Whether an entry of a domain's directory is known to have the name or id of a query of a program.
    fn has_served_entry(&self, domain: usize, question: &LookupRequest) -> bool {
        let of_domain = question.kind().is_by_name().then_some(domain);
        let owner = self.owner(&NameReading { domain: of_domain, question: question.clone() });
        owner
            .is_some_and(|(owner, number)| owner == domain && private_group_owner(number).is_none())
    }

    /// Returns the known owner of an id, or of a name without a domain.
    fn any_owner(&self, question: &LookupRequest) -> Option<EntryOwner> {
        self.owner(&NameReading { domain: None, question: question.clone() })
    }

    /// Returns the owner if it is served under this name.
    fn served_owner(&self, reading: &NameReading) -> Option<EntryOwner> {
        let owner = self.owner(reading)?;
        let (_, served) = self.served_entry(owner)?;
        let is_plain = reading.domain.is_none() && reading.question.kind().is_by_name();
        (!is_plain || served.is_preferred).then_some(owner)
    }

    /// Logs the reason why no entry is served under a name or id.
    fn log_unserved(&self, reading: &NameReading) {
        match self.owner(reading).map(|owner| (owner, self.refusal(owner))) {
            None => trace!("no domain has the entry"),
            Some(((position, _), refusal)) => {
                let domain = self.domains.get(position).map_or("", |domain| &*domain.name);
                let reason = refusal.map(|refusal| refusal.to_string()).unwrap_or_default();
                trace!(domain, reason, "the entry is not admitted");
            }
        }
    }

    /// Returns the reason why an entry is not served: admission, or another entry with its name or id. `None` if it is
    /// served, or if the entry or the host's accounts are unknown.
    pub(super) fn refusal(&self, claimant: EntryOwner) -> Option<Refusal> {
        let (position, number) = claimant;
        let domain = self.domains.get(position)?;
        let locals = self.locals.as_ref()?;
        // Without on-demand domains there is no ownership table.
        let is_on_demand = self.domains.iter().any(|domain| domain.mode == DomainMode::OnDemand);
        let source = DomainSource { domain: &domain.entries, rules: &domain.rules };
        match domain.entries.entry(number)? {
            ModelEntry::User(user) => match domain.rules.user(user, locals) {
                Err(refusal) => Some(refusal),
                Ok(mut user) => {
                    let served = self.ownership.check_user(claimant, &mut user, &source, locals);
                    served.err().filter(|_| is_on_demand)
                }
            },
            ModelEntry::Group(group) => match domain.rules.group(group, locals) {
                Err(refusal) => Some(refusal),
                Ok(mut group) => {
                    let served = self.ownership.check_group(claimant, &mut group, &source, locals);
                    served.err().filter(|_| is_on_demand)
                }
            },
        }
    }

    /// Returns the entry and its name, if it is admitted and owns its id and a name.
    fn served_entry(&self, claimant: EntryOwner) -> Option<(ModelEntry<'_>, ServedAs)> {
        let (position, number) = claimant;
        let domain = self.domains.get(position)?;
        let locals = self.locals.as_ref()?;
        let entry = domain.entries.entry(number)?;
        let source = DomainSource { domain: &domain.entries, rules: &domain.rules };
        let (name, served) = match entry {
            ModelEntry::User(user) => {
                let mut user = domain.rules.user(user, locals).ok()?;
                let served =
                    self.ownership.check_user(claimant, &mut user, &source, locals).ok()?;
                (user.name().to_vec(), served)
            }
            ModelEntry::Group(group) => {
                let mut group = domain.rules.group(group, locals).ok()?;
                let served =
                    self.ownership.check_group(claimant, &mut group, &source, locals).ok()?;
                (group.name().to_vec(), served)
            }
        };
        Some((entry, ServedAs { name, is_preferred: served == ServedName::Preferred }))
    }

    /// Applies a record of a backend, and updates the owners of its names and ids. Returns `None` if a fetched state is
    /// not older than the record, and so has it or a newer version of it.
    pub(super) fn apply_lookup(
        &mut self,
        position: usize,
        found: &Arc<OverlayEntry>,
    ) -> Result<Option<Invalidation>, ImageRejection> {
        let domain = &mut self.domains[position];
        if found.sequence <= domain.entries.sequence {
            return Ok(None);
        }
        let forget = domain
            .invalidation(Records::without_header(&found.records).flatten(), MissingMembers::Keep);
        let mut learnt = std::mem::take(&mut domain.overlay);
        // A reply that newer replies have overtaken goes below them.
        let newer = learnt.records_after(found.sequence);
        let records = Records::without_header(&found.records).chain(newer);
        let numbers: Vec<u32> =
            records.clone().flatten().map(|record| record_number(&record)).collect();
        let is_new = self.change(position, &numbers, |entries| entries.apply_lookup(records));
        if is_new.is_ok() {
            learnt.add(found);
        }
        self.domains[position].overlay = learnt;
        Ok(is_new?.then_some(forget))
    }

    /// Whether the list for the query is not completely known.
    fn lacks_list(&self, kind: LookupKind, (position, number): EntryOwner) -> bool {
        let domain = &self.domains[position];
        match (domain.mode, kind, domain.entries.entry(number)) {
            (DomainMode::Replicate, ..) => false,
            (_, LookupKind::GroupsOf, Some(ModelEntry::User(user))) => user.groups.is_none(),
            (_, LookupKind::GroupByName | LookupKind::GroupByGid, Some(ModelEntry::Group(_))) => {
                !domain.entries.knows_members(number)
            }
            _ => false,
        }
    }

    /// Makes the reply from a served entry.
    fn lookup_reply(&self, kind: LookupKind, claimant: EntryOwner) -> Option<LookupReply> {
        let (entry, ServedAs { name, .. }) = self.served_entry(claimant)?;
        Some(match entry {
            ModelEntry::User(user) if kind == LookupKind::GroupsOf => {
                LookupReply::Gids(self.gids_of(claimant.0, user))
            }
            ModelEntry::User(user) => LookupReply::User {
                name,
                uid: user.uid,
                gid: user.gid,
                gecos: user.gecos().into(),
                dir: user.dir().into(),
                shell: self.domains[claimant.0].served_shell(user, self.locals.as_deref()).into(),
            },
            ModelEntry::Group(group) => LookupReply::Group {
                name,
                gid: group.gid(),
                members: self.names_of(claimant.0, self.members_of(claimant)),
            },
        })
    }

    fn names_of(&self, position: usize, users: Vec<u32>) -> Vec<Vec<u8>> {
        let name = |number| match self.served_entry((position, number)) {
            Some((ModelEntry::User(_), served)) => Some(served.name),
            _ => None,
        };
        users.into_iter().filter_map(name).collect()
    }

    /// Returns numbers of the users in a group and in its nested groups.
    fn members_of(&self, (position, group): EntryOwner) -> Vec<u32> {
        let entries = &self.domains[position].entries;
        // A reference is resolved once, even if many groups list it.
        let (mut groups, mut seen, mut told) =
            (vec![group], HashSet::from([group]), HashSet::new());
        let mut members = Vec::new();
        let outer = group;
        while let Some(number) = groups.pop() {
            let Some(ModelEntry::Group(group)) = entries.entry(number) else { continue };
            if number != outer && self.nests_primary_groups(position) {
                let has_gid = |user: &ModelUser| Some(user.native().gid) == group.native_gid();
                let primary = entries.users().filter(|(_, user)| has_gid(user));
                let primary = primary.map(|(number, _)| number);
                members.extend(primary.filter(|&number| seen.insert(number)));
            }
            for &reference in group.references().iter().filter(|&&reference| told.insert(reference))
            {
                let Some(number) = self.resolve_member(position, reference) else { continue };
                if !seen.insert(number) {
                    continue;
                }
                match entries.entry(number) {
                    Some(ModelEntry::User(_)) => members.push(number),
                    _ => groups.push(number),
                }
            }
        }
        members
    }

    /// Returns whether a nested group also stands for the users that have it as primary group.
    fn nests_primary_groups(&self, position: usize) -> bool {
        self.domains[position].rules.serving.nests_primary_groups
    }

    /// Returns the entry of a member reference: a served user, otherwise a group. Two users, or two groups, are
    /// ambiguous and give `None`.
    fn resolve_member(&self, position: usize, reference: u32) -> Option<u32> {
        let entries = &self.domains[position].entries;
        let only = |is_kind: &dyn Fn(u32) -> bool| {
            let mut found = entries.entries_referred(reference).filter(|number| is_kind(*number));
            (found.next(), found.next())
        };
        let is_user = |number| {
            matches!(self.served_entry((position, number)), Some((ModelEntry::User(_), _)))
        };
        let is_group = |number| matches!(entries.entry(number), Some(ModelEntry::Group(_)));
        match only(&is_user) {
            (None, _) => match only(&is_group) {
                (found, None) => found,
                _ => None,
            },
            (found, None) => found,
            _ => None,
        }
    }

    fn gids_of(&self, position: usize, user: &ModelUser) -> Vec<u32> {
        let gid = |number| match self.domains[position].entries.entry(number) {
            Some(ModelEntry::Group(group)) => group.gid,
            _ => None,
        };
        self.groups_of(position, user).into_iter().filter_map(gid).collect()
    }

    /// Returns numbers of the user's served groups. On demand, the directory names them. In a mirrored domain they are
    /// the groups that list the user, directly or through a nested group.
    fn groups_of(&self, position: usize, user: &ModelUser) -> Vec<u32> {
        let domain = &self.domains[position];
        let is_served = |number: &u32| {
            matches!(self.served_entry((position, *number)), Some((ModelEntry::Group(_), _)))
        };
        if domain.mode == DomainMode::OnDemand {
            return user.groups.iter().flatten().copied().filter(is_served).collect();
        }
        let (mut groups, mut told) = (BTreeSet::new(), HashSet::from(user.references));
        let mut references = user.references.to_vec();
        if self.nests_primary_groups(position) {
            let gid = Some(user.native().gid);
            let primary = domain.entries.groups().filter(|(_, group)| group.native_gid() == gid);
            let primary = primary.map(|(_, group)| group.reference);
            references.extend(primary.filter(|&reference| told.insert(reference)));
        }
        while let Some(reference) = references.pop() {
            for &number in domain.entries.listed_by(reference) {
                if groups.insert(number)
                    && let Some(ModelEntry::Group(group)) = domain.entries.entry(number)
                    && told.insert(group.reference)
                {
                    references.push(group.reference);
                }
            }
        }
        groups.into_iter().filter(is_served).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::ImageOutcome;
    use super::super::tests::{Image, apply_image, host, learn, locals, published, succeeded};
    use super::*;

    fn by_name(kind: LookupKind, name: &str) -> LookupRequest {
        LookupRequest::new(kind, name.into(), 0)
    }

    fn plain(question: &LookupRequest) -> NameReading {
        NameReading { domain: None, question: question.clone() }
    }

    fn answer(state: &PublisherState, question: &LookupRequest) -> Option<LookupReply> {
        state.lookup_reply(question.kind(), state.served_owner(&plain(question))?)
    }

    fn user(name: &str, uid: u32) -> LookupReply {
        LookupReply::User {
            name: name.into(),
            uid,
            gid: uid,
            gecos: b"A user".to_vec(),
            dir: b"/home/user".to_vec(),
            shell: b"/bin/sh".to_vec(),
        }
    }

    #[test]
    fn coalescer_call_before_change_is_repeated() {
        let now = Instant::now();
        let question = by_name(LookupKind::UserByName, "zoe");
        let life = Duration::from_secs(15);
        let mut absent = BackendNegativeCache::new(life);
        absent.note([&question], absent.change_count, now);
        assert!(absent.knows(&question, now) && !absent.knows(&question, now + life));
        let asked_at = absent.change_count;
        absent.clear();
        assert!(!absent.knows(&question, now));
        absent.note([&question], asked_at, now);
        assert!(!absent.knows(&question, now), "the answer is older than the news");
    }

    #[test]
    fn on_demand_learnt_entry_is_in_snapshot() {
        let mut state = host(&["asked"]);
        let found = Image::full().user(1, "alice", 5001, 5001).unasked(2, "staff", 6000);
        learn(&mut state, 0, found.groups_of(1, &[2])).expect("well formed");
        let question = by_name(LookupKind::UserByName, "alice");
        assert_eq!(answer(&state, &question), Some(user("alice", 5001)));
        let gids = answer(&state, &by_name(LookupKind::GroupsOf, "alice"));
        assert_eq!(gids, Some(LookupReply::Gids(vec![6000])));
        let staff =
            state.served_owner(&plain(&by_name(LookupKind::GroupByName, "staff"))).expect("there");
        assert!(state.lacks_list(LookupKind::GroupByName, staff));
        let alice = state.served_owner(&plain(&question)).expect("there");
        assert!(!state.lacks_list(LookupKind::GroupsOf, alice));
        published(&mut state, |snapshot| {
            assert_eq!(snapshot.responder(), Some(&b"/run/roster/nss"[..]));
            let staff = snapshot.group_by_name(b"staff").expect("undamaged").expect("there");
            assert!(staff.members_unknown());
            let alice = snapshot.user_by_name(b"alice").expect("undamaged").expect("there");
            assert!(!alice.groups_unknown() && !alice.needs_responder_first());
        });
    }

    #[test]
    fn lookup_group_with_unknown_inner_members_is_repeated() {
        let mut state = host(&["asked"]);
        let found = Image::full()
            .user(1, "alice", 5001, 5001)
            .group(2, "outer", 6002, &[3, 99])
            .group(3, "middle", 6003, &[4, 2])
            .unasked(4, "inner", 6004);
        apply_image(&mut state, 0, found).expect("well formed");
        let question = by_name(LookupKind::GroupByName, "outer");
        published(&mut state, |snapshot| {
            for name in [&b"outer"[..], b"middle", b"inner"] {
                let group = snapshot.group_by_name(name).expect("undamaged").expect("there");
                assert!(group.members_unknown(), "{}", group.gid);
            }
        });
        let outer = state.served_owner(&plain(&question)).expect("there");
        assert!(state.lacks_list(LookupKind::GroupByName, outer));
        let found = Image::full().group(4, "inner", 6004, &[1]);
        learn(&mut state, 0, found).expect("well formed");
        assert!(!state.lacks_list(LookupKind::GroupByName, outer), "99 is nobody");
        let Some(LookupReply::Group { members, .. }) = answer(&state, &question) else {
            panic!("a group")
        };
        assert_eq!(members, [b"alice"]);
        published(&mut state, |snapshot| {
            let outer = snapshot.group_by_name(b"outer").expect("undamaged").expect("there");
            assert!(!outer.members_unknown());
        });
    }

    #[test]
    fn on_demand_user_groups_keep_known_members() {
        let mut state = host(&["asked"]);
        let found = Image::full().user(1, "alice", 5001, 5001).group(2, "staff", 6000, &[1]);
        learn(&mut state, 0, found).expect("well formed");
        let staff =
            state.served_owner(&plain(&by_name(LookupKind::GroupByName, "staff"))).expect("there");
        learn(&mut state, 0, Image::full().unasked(2, "staff", 6000)).expect("well formed");
        assert!(!state.lacks_list(LookupKind::GroupByName, staff));
        learn(&mut state, 0, Image::full().unasked(2, "riders", 6000)).expect("well formed");
        assert!(state.lacks_list(LookupKind::GroupByName, staff), "another group");
    }

    #[test]
    fn lists_that_name_somebody_who_was_renamed_are_asked_for() {
        let mut state = host(&["asked"]);
        let found = Image::full()
            .user(1, "alice", 5001, 5001)
            .group(2, "staff", 6000, &[1])
            .group(3, "all", 6001, &[2])
            .group(4, "others", 6002, &[9]);
        apply_image(&mut state, 0, found).expect("well formed");
        let lacks = |state: &PublisherState, name: &str| {
            let question = by_name(LookupKind::GroupByName, name);
            state.lacks_list(
                LookupKind::GroupByName,
                state.served_owner(&plain(&question)).expect("there"),
            )
        };
        assert!(["staff", "all", "others"].iter().all(|name| !lacks(&state, name)));
        let alicia = || Image::full().user_named_by(1, 7, "alicia", 5001);
        learn(&mut state, 0, alicia()).expect("well formed");
        assert_eq!(["staff", "all", "others"].map(|name| lacks(&state, name)), [true, true, false]);
        // If the directory still lists the user by that reference, the list is complete.
        let staff = alicia().group(2, "staff", 6000, &[1]);
        learn(&mut state, 0, staff).expect("well formed");
        assert!(!lacks(&state, "staff"));
    }

    /// A directory that returns one reply with all entries to every query.
    struct SingleReplyDirectory {
        state: RwLock<PublisherState>,
        tells: Arc<OverlayEntry>,
    }

    impl LookupSource for SingleReplyDirectory {
        fn state(&self) -> &RwLock<PublisherState> {
            &self.state
        }

        async fn query_domain(
            &self,
            domain: usize,
            _: &LookupRequest,
        ) -> Result<DomainAnswer, Unavailable> {
            let mut state = self.state.write().await;
            if state.domains[domain].mode == DomainMode::Replicate {
                return Ok(DomainAnswer::Given);
            }
            let learnt = state.apply_lookup(domain, &self.tells);
            learnt.map(|_| DomainAnswer::Given).map_err(|error| Unavailable(error.to_string()))
        }

        async fn query_domain_batch(
            &self,
            _: usize,
            _: &[&LookupRequest],
        ) -> Result<DomainAnswer, Unavailable> {
            unreachable!("one domain is asked")
        }
    }

    #[tokio::test]
    async fn on_demand_name_moved_during_lookup_is_current() {
        let mut state = host(&["asked"]);
        let alice = || Image::full().user(1, "alice", 5001, 5001);
        let before = alice().unasked(2, "team", 6000).unasked(3, "team-all", 6001);
        apply_image(&mut state, 0, before).expect("well formed");
        let after = alice().group(2, "team-core", 6000, &[1]).group(3, "team", 6001, &[2]);
        let directory = SingleReplyDirectory { state: RwLock::new(state), tells: after.found(3) };
        let team = by_name(LookupKind::GroupByName, "team");
        let name = |name: &str| name.as_bytes().to_vec();
        let members = vec![name("alice")];
        let team_now = LookupReply::Group { name: name("team"), gid: 6001, members };
        assert_eq!(lookup(&directory, &team).await, Ok(team_now));
        let gone = by_name(LookupKind::GroupByName, "team-all");
        assert_eq!(lookup(&directory, &gone).await, Ok(LookupReply::Absent));
    }

    #[tokio::test]
    async fn publisher_unread_later_domain_delays_no_earlier() {
        let alice = Image::full().user(1, "alice", 5001, 5001).group(2, "staff", 6000, &[1]);
        let tells = alice.groups_of(1, &[2]).found(3);
        let directory = SingleReplyDirectory { state: RwLock::new(host(&["asked", "lab"])), tells };
        let staff = |members| LookupReply::Group { name: b"staff".to_vec(), gid: 6000, members };
        let by_id = LookupRequest::UserByUid(5001);
        assert_eq!(lookup(&directory, &by_id).await, Ok(user("alice", 5001)));
        for (question, wanted) in [
            (by_name(LookupKind::UserByName, "alice"), user("alice", 5001)),
            (by_name(LookupKind::GroupsOf, "alice"), LookupReply::Gids(vec![6000])),
            (by_name(LookupKind::GroupByName, "staff"), staff(vec![b"alice".to_vec()])),
        ] {
            assert_eq!(lookup(&directory, &question).await, Ok(wanted), "{question:?}");
        }
        // A name that the first domain lacks may be in the second one.
        let not_read = Err(Unavailable("domain lab was not read yet".into()));
        for kind in [LookupKind::UserByName, LookupKind::GroupByName, LookupKind::GroupsOf] {
            assert_eq!(lookup(&directory, &by_name(kind, "carol")).await, not_read);
        }
    }

    #[test]
    fn log_in_before_domains_are_read_follows_snapshot() {
        let mut state = host(&["corp", "lab"]);
        // Two of one uid: the second is not served.
        let corp = Image::full().user(1, "alice", 5001, 5001).user(2, "zed", 5001, 5001);
        apply_image(&mut state, 0, corp).expect("well formed");
        apply_image(&mut state, 1, Image::full().user(1, "bob", 7001, 7001)).expect("well formed");
        let mut anew = succeeded(&state, &["corp", "lab"]);
        let user = |domain: &str, uid| {
            let name = if domain == "corp" { b"alice".to_vec() } else { b"bob".to_vec() };
            Some(Ok(Some(ServedUser {
                domain: domain.to_owned(),
                directory_name: name.clone(),
                name,
                uid,
                directory_uid: uid,
                rule_groups: Vec::new(),
            })))
        };
        assert_eq!(anew.mirrored_user(b"alice"), user("corp", 5001));
        assert_eq!(anew.mirrored_user(b"bob"), user("lab", 7001), "behind one that is not read");
        for name in [&b"zed"[..], b"newcomer"] {
            let not_read = Err(Unavailable("domain corp was not read yet".into()));
            assert_eq!(anew.mirrored_user(name), Some(not_read));
        }
        // Fetched entries count.
        apply_image(&mut anew, 0, Image::full().user(1, "alice", 5005, 5005)).expect("well formed");
        assert_eq!(anew.mirrored_user(b"alice"), user("corp", 5005));
        assert_eq!(anew.mirrored_user(b"bob"), user("lab", 7001));
        anew.set_locals(locals(&[("root", 0), ("robert", 7001)], &[]));
        let not_read = Err(Unavailable("domain lab was not read yet".into()));
        assert_eq!(anew.mirrored_user(b"bob"), Some(not_read), "the host has the uid");
    }

    /// An on-demand domain whose servers do not reply, and a later domain.
    struct AwayDirectory {
        state: RwLock<PublisherState>,
        /// The failure is one of the server, and not of the backend.
        is_away: bool,
    }

    impl AwayDirectory {
        async fn answer(&self, domain: usize) -> Result<DomainAnswer, Unavailable> {
            let failure = QueryFailure { text: "away".to_owned(), is_away: self.is_away };
            let asked = if domain == 0 { Err(failure) } else { Ok(()) };
            self.state.read().await.domain_answer(domain, asked)
        }
    }

    impl LookupSource for AwayDirectory {
        fn state(&self) -> &RwLock<PublisherState> {
            &self.state
        }

        async fn query_domain(
            &self,
            domain: usize,
            _: &LookupRequest,
        ) -> Result<DomainAnswer, Unavailable> {
            self.answer(domain).await
        }

        async fn query_domain_batch(
            &self,
            domain: usize,
            _: &[&LookupRequest],
        ) -> Result<DomainAnswer, Unavailable> {
            self.answer(domain).await
        }
    }

    /// The first domain has ids up to 5999 and knows alice and staff. The second one has ids from 6000 on.
    fn away(when_away: WhenAway, is_away: bool) -> AwayDirectory {
        let mut state = host(&["asked", "lab"]);
        state.domains[0].when_away = when_away;
        state.domains[0].rules.max_id = 5999;
        state.domains[1].rules.min_id = 6000;
        let known = Image::full().user(1, "alice", 5001, 5001).unasked(2, "staff", 5002);
        apply_image(&mut state, 0, known).expect("well formed");
        let lab = Image::full()
            .user(1, "alice", 6001, 6001)
            .user(2, "bob", 6002, 6002)
            .group(3, "staff", 6003, &[2])
            .group(4, "crew", 6004, &[1, 2]);
        apply_image(&mut state, 1, lab).expect("well formed");
        AwayDirectory { state: RwLock::new(state), is_away }
    }

    #[tokio::test]
    async fn on_demand_skipped_domain_keeps_known_names() {
        let directory = away(WhenAway::Next, true);
        let unavailable = Err(Unavailable("away".to_owned()));
        let crew = LookupReply::Group {
            name: b"crew".to_vec(),
            gid: 6004,
            members: vec![b"alice@lab".to_vec(), b"bob".to_vec()],
        };
        for (question, wanted) in [
            (by_name(LookupKind::UserByName, "bob"), Ok(user("bob", 6002))),
            (LookupRequest::UserByUid(6002), Ok(user("bob", 6002))),
            // The first domain is known to have alice. The alice in groups of the other one has its domain.
            (by_name(LookupKind::UserByName, "alice"), Ok(user("alice", 5001))),
            (by_name(LookupKind::GroupByName, "crew"), Ok(crew)),
            (by_name(LookupKind::GroupsOf, "bob"), Ok(LookupReply::Gids(vec![6003, 6004]))),
            // The list of its staff is not known, and the group of that name elsewhere is another one.
            (by_name(LookupKind::GroupByName, "staff"), unavailable.clone()),
            // Names and ids that no other domain has may be there.
            (by_name(LookupKind::UserByName, "carol"), unavailable.clone()),
            (LookupRequest::UserByUid(5009), unavailable),
        ] {
            assert_eq!(lookup(&directory, &question).await, wanted, "{question:?}");
        }
        let served = ServedUser {
            domain: "lab".to_owned(),
            name: b"bob".to_vec(),
            uid: 6002,
            directory_name: b"bob".to_vec(),
            directory_uid: 6002,
            rule_groups: Vec::new(),
        };
        assert_eq!(find_user(&directory, b"bob").await, Ok(Some(served)));
    }

    #[tokio::test]
    async fn on_demand_domain_that_waits_is_not_skipped() {
        let bob = by_name(LookupKind::UserByName, "bob");
        for (when_away, is_away) in [(WhenAway::Wait, true), (WhenAway::Next, false)] {
            let directory = away(when_away, is_away);
            assert!(lookup(&directory, &bob).await.is_err(), "{when_away:?} {is_away}");
        }
        let directory = away(WhenAway::Next, true);
        directory.state.write().await.domains[0].entries.is_present = false;
        assert!(lookup(&directory, &bob).await.is_err(), "what it has is not known yet");
    }

    /// A directory without entries that records the queries.
    struct EmptyDirectory {
        state: RwLock<PublisherState>,
        asked: Mutex<Vec<LookupRequest>>,
    }

    impl LookupSource for EmptyDirectory {
        fn state(&self) -> &RwLock<PublisherState> {
            &self.state
        }

        async fn query_domain(
            &self,
            domain: usize,
            question: &LookupRequest,
        ) -> Result<DomainAnswer, Unavailable> {
            assert_eq!(domain, 0, "the other is mirrored");
            self.asked.lock().push(question.clone());
            Ok(DomainAnswer::Given)
        }

        async fn query_domain_batch(
            &self,
            domain: usize,
            questions: &[&LookupRequest],
        ) -> Result<DomainAnswer, Unavailable> {
            assert_eq!(domain, 0, "the other is mirrored");
            self.asked.lock().extend(questions.iter().copied().cloned());
            Ok(DomainAnswer::Given)
        }
    }

    #[tokio::test]
    async fn an_earlier_domain_is_not_asked_for_ids_that_it_cannot_have() {
        for (max_id, asked_for_ids) in [(9999, true), (4999, false)] {
            let mut state = host(&["asked", "lab"]);
            state.domains[0].rules.max_id = max_id;
            let lab = Image::full().user(1, "alice", 5001, 5002).group(2, "staff", 6000, &[1]);
            apply_image(&mut state, 1, lab).expect("well formed");
            let asked = Mutex::default();
            let directory = EmptyDirectory { state: RwLock::new(state), asked };
            let groups = by_name(LookupKind::GroupsOf, "alice");
            assert_eq!(lookup(&directory, &groups).await, Ok(LookupReply::Gids(vec![6000])));
            let asked = directory.asked.into_inner();
            assert_eq!(
                asked[0],
                by_name(LookupKind::UserByName, "alice"),
                "she may be somebody else there"
            );
            let (ids, names): (Vec<_>, Vec<_>) =
                asked[1..].iter().partition(|question| question.name().is_empty());
            assert_eq!(names, [&by_name(LookupKind::GroupByName, "staff")]);
            let mut ids: Vec<u32> = ids.iter().map(|question| question.id()).collect();
            ids.sort_unstable();
            assert_eq!(ids, if asked_for_ids { vec![5001, 5002, 6000] } else { vec![] });
        }
    }

    /// An algorithm that visits all of them for each of them does not end.
    #[test]
    fn a_reference_that_very_many_share_is_gone_over_once() {
        const MANY: u32 = 200_000;
        let mut state = host(&["asked"]);
        let name = |number| format!("u{number}");
        let all = 1..=MANY;
        let group = MANY + 1;
        let shared = all.clone().fold(Image::full(), |image, number| {
            image.user_named_by(number, group + 1, &name(number), 10_000 + number)
        });
        let list = vec![group + 1; MANY as usize];
        learn(&mut state, 0, shared.group(group, "all", 6000, &list)).expect("well formed");
        let question = by_name(LookupKind::GroupByName, "all");
        assert!(!state.lacks_list(LookupKind::GroupByName, (0, group)));
        let members = Vec::new();
        let nobody = LookupReply::Group { name: b"all".to_vec(), gid: 6000, members };
        assert_eq!(answer(&state, &question), Some(nobody), "of many users none is meant");
        let apart = all.fold(Image::full(), |image, number| {
            image.user(number, &name(number), 10_000 + number, 10_000 + number)
        });
        let forget = state.apply_lookup(0, &apart.found(9)).expect("well formed").expect("news");
        assert!(forget.all && forget.users.is_empty());
        assert_eq!(uid(&state, "u7"), Some(10_007));
    }

    #[test]
    fn an_answer_that_was_overtaken_renames_nobody_back() {
        let mut state = host(&["asked"]);
        let alice = || Image::full().user(1, "alice", 5001, 5001);
        apply_image(&mut state, 0, alice().group(2, "staff", 6000, &[7])).expect("well formed");
        let alicia = Image::full().user_named_by(1, 7, "alicia", 5001);
        state.apply_lookup(0, &alicia.found(3)).expect("well formed");
        state.apply_lookup(0, &alice().found(2)).expect("well formed");
        let question = by_name(LookupKind::GroupByName, "staff");
        let staff = state.served_owner(&plain(&question)).expect("there");
        assert!(!state.lacks_list(LookupKind::GroupByName, staff));
        let Some(LookupReply::Group { members, .. }) = answer(&state, &question) else {
            panic!("a group")
        };
        assert_eq!(members, [b"alicia"]);
    }

    #[test]
    fn members_that_are_not_known_any_more_are_asked_for_and_not_answered() {
        let mut state = host(&["asked"]);
        let found = Image::full().user(1, "alice", 5001, 5001).group(2, "staff", 6000, &[1]);
        apply_image(&mut state, 0, found).expect("well formed");
        let question = by_name(LookupKind::GroupByName, "staff");
        published(&mut state, |_| {});
        let staff = state.served_owner(&plain(&question)).expect("there");
        assert!(!state.lacks_list(LookupKind::GroupByName, staff));
        apply_image(&mut state, 0, Image::changes(1).unasked(2, "staff", 6000))
            .expect("well formed");
        assert!(state.lacks_list(LookupKind::GroupByName, staff));
        published(&mut state, |snapshot| {
            let staff = snapshot.group_by_name(b"staff").expect("undamaged").expect("there");
            assert!(staff.members_unknown());
        });
    }

    #[test]
    fn numbers_of_another_process_of_the_back_end_are_not_believed() {
        let mut state = host(&["asked"]);
        assert!(state.require_epoch(0, 1).is_err(), "nothing was read yet");
        apply_image(&mut state, 0, Image::full().user(1, "alice", 5001, 5001))
            .expect("well formed");
        assert_eq!(state.require_epoch(0, 1), Ok(()));
        assert!(state.require_epoch(0, 2).is_err(), "1 may be bob there");
    }

    #[test]
    fn who_is_refused_is_not_learnt() {
        let mut state = host(&["asked"]);
        let found = Image::full()
            .user(1, "root", 5001, 5001)
            .user(2, "mallory", 0, 5001)
            .user(3, "eve", 5003, 42)
            .unasked(4, "users", 6000)
            .unasked(5, "shadow", 42);
        learn(&mut state, 0, found).expect("well formed");
        for name in ["root", "mallory", "eve"] {
            assert_eq!(answer(&state, &by_name(LookupKind::UserByName, name)), None, "{name}");
        }
        for name in ["users", "shadow"] {
            assert_eq!(answer(&state, &by_name(LookupKind::GroupByName, name)), None, "{name}");
        }
        for id in [0, 42, 5001, 5003, 6000] {
            for kind in [LookupKind::UserByUid, LookupKind::GroupByGid] {
                let question = LookupRequest::new(kind, Vec::new(), id);
                assert_eq!(answer(&state, &question), None, "{kind:?} {id}");
            }
        }
    }

    #[test]
    fn lookup_changed_entry_has_no_old_name() {
        let mut state = host(&["asked"]);
        let found = Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5002);
        learn(&mut state, 0, found).expect("well formed");
        let renamed = Image::full().user(2, "robert", 5001, 5002);
        learn(&mut state, 0, renamed).expect("well formed");
        assert_eq!(answer(&state, &by_name(LookupKind::UserByName, "bob")), None);
        assert_eq!(answer(&state, &by_name(LookupKind::UserByName, "robert")), None);
        let by_uid = LookupRequest::UserByUid(5001);
        assert_eq!(answer(&state, &by_uid), Some(user("alice", 5001)));
    }

    #[test]
    fn precedence_earlier_domain_takes_learnt_name() {
        let mut state = host(&["asked", "lab"]);
        apply_image(&mut state, 1, Image::full().user(1, "alice", 7001, 7001))
            .expect("well formed");
        published(&mut state, |snapshot| {
            let alice = snapshot.user_by_name(b"alice").expect("undamaged").expect("there");
            assert!(alice.needs_responder_first(), "the first domain may have an alice");
        });
        let question = by_name(LookupKind::UserByName, "alice");
        assert_eq!(state.served_owner(&plain(&question)), Some((1, 1)));
        let found = Image::full().user(1, "alice", 5001, 5001);
        learn(&mut state, 0, found).expect("well formed");
        assert_eq!(answer(&state, &question), Some(user("alice", 5001)));
        let by_uid = LookupRequest::UserByUid(7001);
        assert_eq!(answer(&state, &by_uid), Some(user("alice@lab", 7001)), "she has another name");
    }

    #[test]
    fn a_user_who_was_made_anew_has_the_name_at_once() {
        let mut state = host(&["asked"]);
        learn(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
        let anew = Image::full().gone(1).user(2, "alice", 5001, 5001);
        learn(&mut state, 0, anew).expect("well formed");
        let question = by_name(LookupKind::UserByName, "alice");
        assert_eq!(answer(&state, &question), Some(user("alice", 5001)));
    }

    #[test]
    fn what_was_learnt_while_a_snapshot_was_made_is_still_known_after_it() {
        let mut state = host(&["asked"]);
        let made = state.snapshot_input().make().expect("an image");
        learn(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
        state.apply_published(made);
        let question = by_name(LookupKind::UserByName, "alice");
        assert_eq!(answer(&state, &question), Some(user("alice", 5001)));
    }

    #[test]
    fn precedence_later_user_loses_ids_when_known() {
        let mut state = host(&["asked", "lab"]);
        let lab = Image::full().user(1, "mallory", 5001, 7001).user(2, "eve", 7002, 6000);
        apply_image(&mut state, 1, lab).expect("well formed");
        published(&mut state, |_| {});
        let mallory = by_name(LookupKind::UserByName, "mallory");
        let claimant = state.served_owner(&plain(&mallory)).expect("nobody else is known yet");
        let asked: Vec<_> =
            state.ownership_requests(claimant).into_iter().map(|q| (q.kind(), q.id())).collect();
        let claims = [
            (LookupKind::UserByName, 0),
            (LookupKind::UserByUid, 5001),
            (LookupKind::GroupByGid, 7001),
        ];
        assert_eq!(asked, claims);
        let found = Image::full().user(1, "alice", 5001, 5001).unasked(2, "admins", 6000);
        learn(&mut state, 0, found).expect("well formed");
        assert_eq!(answer(&state, &mallory), None, "5001 is alice's");
        assert_eq!(
            answer(&state, &by_name(LookupKind::UserByName, "eve")),
            None,
            "admins are not lab's"
        );
    }

    #[test]
    fn the_hosts_own_accounts_are_nobody_elses_business() {
        let mut state = host(&["asked"]);
        for kind in [LookupKind::UserByName, LookupKind::GroupsOf, LookupKind::GroupByName] {
            assert_eq!(state.is_local(&by_name(kind, "root")), Ok(true), "{kind:?}");
        }
        assert_eq!(state.is_local(&by_name(LookupKind::UserByName, "alice")), Ok(false));
        state.locals = None;
        assert!(
            state.is_local(&by_name(LookupKind::UserByName, "alice")).is_err(),
            "nobody can tell"
        );
    }

    #[test]
    fn members_and_groups_are_resolved_through_nested_groups() {
        let mut state = host(&["corp", "asked"]);
        let corp = Image::full()
            .user(1, "alice", 5001, 5001)
            .group(2, "inner", 6002, &[1, 3])
            .group(3, "outer", 6003, &[2]);
        apply_image(&mut state, 0, corp).expect("well formed");
        published(&mut state, |_| {});
        let gids = answer(&state, &by_name(LookupKind::GroupsOf, "alice"));
        assert_eq!(gids, Some(LookupReply::Gids(vec![6002, 6003])));
        let Some(LookupReply::Group { members, .. }) =
            answer(&state, &by_name(LookupKind::GroupByName, "outer"))
        else {
            panic!("a group")
        };
        assert_eq!(members, [b"alice"]);
    }

    #[test]
    fn a_new_local_account_is_no_longer_answered_from_a_directory() {
        let mut state = host(&["asked"]);
        let found = Image::full().user(1, "alice", 5001, 5001);
        learn(&mut state, 0, found).expect("well formed");
        state.set_locals(locals(&[("alice", 1000)], &[]));
        assert_eq!(answer(&state, &by_name(LookupKind::UserByName, "alice")), None);
    }

    fn uid(state: &PublisherState, name: &str) -> Option<u32> {
        match answer(state, &by_name(LookupKind::UserByName, name)) {
            Some(LookupReply::User { uid, .. }) => Some(uid),
            _ => None,
        }
    }

    #[test]
    fn an_answer_that_is_older_than_what_was_fetched_brings_nothing_back() {
        let mut state = host(&["asked"]);
        let old = || Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5002);
        apply_image(&mut state, 0, old()).expect("well formed");
        // Sent after the first state.
        let [first, second] = [1, 2].map(|sequence| old().found(sequence));
        let changes = Image::changes(1).user(1, "alice", 6001, 5001).gone(2);
        apply_image(&mut state, 0, changes).expect("well formed");
        for answer in [first, second] {
            assert_eq!(state.apply_lookup(0, &answer), Ok(None));
            assert_eq!((uid(&state, "alice"), uid(&state, "bob")), (Some(6001), None));
        }
    }

    #[test]
    fn what_was_fetched_before_an_answer_takes_nothing_of_it_back() {
        let mut state = host(&["asked"]);
        let user = |uid| Image::full().user(1, "alice", uid, 5001);
        apply_image(&mut state, 0, user(5001)).expect("well formed");
        let answer = user(7001).user(2, "bob", 5002, 5002).found(4);
        state.apply_lookup(0, &answer).expect("well formed");
        apply_image(&mut state, 0, Image::changes(1).user(1, "alice", 6001, 5001))
            .expect("well formed");
        assert_eq!((uid(&state, "alice"), uid(&state, "bob")), (Some(7001), Some(5002)));
        let by_uid = LookupRequest::UserByUid(6001);
        assert_eq!(state.served_owner(&plain(&by_uid)), None);
        apply_image(&mut state, 0, user(6001).leads_to(3)).expect("well formed");
        assert_eq!((uid(&state, "alice"), uid(&state, "bob")), (Some(7001), Some(5002)));
        // That state has the record, and the next ones are newer.
        apply_image(&mut state, 0, user(7001).leads_to(4)).expect("well formed");
        assert_eq!((uid(&state, "alice"), uid(&state, "bob")), (Some(7001), None));
        apply_image(&mut state, 0, Image::changes(4).user(1, "alice", 8001, 5001))
            .expect("well formed");
        assert_eq!(uid(&state, "alice"), Some(8001));
    }

    #[test]
    fn what_a_look_up_brought_is_no_news_when_it_is_fetched() {
        let mut state = host(&["asked"]);
        apply_image(&mut state, 0, Image::full()).expect("well formed");
        let many = || {
            let user = |image: Image, n| image.user(n, &format!("u{n}"), 5000 + n, 5000);
            (0..200).fold(Image::changes(1), user).group(200, "staff", 7000, &[1, 2])
        };
        learn(&mut state, 0, many()).expect("well formed");
        assert_eq!(
            apply_image(&mut state, 0, many()),
            Ok(ImageOutcome::Changed(Invalidation::default()))
        );
        let next = Image::changes(2).user(7, "u7", 6007, 5000).user(8, "u8", 5008, 5000);
        let forget = Invalidation { users: vec![b"u7".to_vec()], ..Invalidation::default() };
        assert_eq!(apply_image(&mut state, 0, next), Ok(ImageOutcome::Changed(forget)));
    }

    #[test]
    fn of_answers_that_overtake_each_other_the_newest_counts() {
        let mut state = host(&["asked"]);
        apply_image(&mut state, 0, Image::full()).expect("well formed");
        for (sequence, id, seen) in [(3, 5003, 5003), (2, 5002, 5003), (4, 5004, 5004)] {
            let answer = Image::full().user(1, "alice", id, 5001).found(sequence);
            state.apply_lookup(0, &answer).expect("well formed");
            assert_eq!(uid(&state, "alice"), Some(seen));
        }
        apply_image(&mut state, 0, Image::changes(1)).expect("well formed");
        assert_eq!(uid(&state, "alice"), Some(5004));
    }

    #[test]
    fn answers_of_another_process_of_the_back_end_do_not_outlive_it() {
        let mut state = host(&["asked"]);
        apply_image(&mut state, 0, Image::full()).expect("well formed");
        let answer = Image::full().user(1, "alice", 5001, 5001).found(9);
        state.apply_lookup(0, &answer).expect("well formed");
        apply_image(&mut state, 0, Image::full().of_process(2)).expect("well formed");
        assert_eq!(uid(&state, "alice"), None);
    }
}
