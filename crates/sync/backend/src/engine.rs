// SPDX-License-Identifier: MIT OR Apache-2.0
//! The core of a backend: receives the reports of a provider, assigns a permanent number to every entry, and tracks
//! unwritten and unfetched changes.
//!
//! Knows no directory and no bus. Its callers are a provider through [`EntrySink`], the bus object, and the task that
//! writes the cache. They hold its lock only while they change memory, never while they wait. The engine does not store
//! records. They are in the cache and, until they are written, in batches.

mod accounts;
mod batch_queue;
mod cache_flush;
mod cache_load;
mod cache_state;
mod on_demand;
mod removal;
mod renumber;
mod stale_lists;

pub use cache_load::LoadedCache;
pub use cache_state::CacheOpenFault;
pub use on_demand::{OnDemandEntry, PendingLookup};
pub use removal::{AbsenceResult, AbsenceSearch};
pub use stale_lists::PendingRereads;

use super::NUMBERS_MAX;
use super::change_batch::{ChangeBatch, ChangeLog};
use super::domain_image::DomainView;
use super::entry_index::{CachedKind, EntryIndex, EntrySlot, MemberForms};
use super::interner::{Interned, ReferenceInterner};
use super::on_demand_cache::{CachedEntry, SeenTimes};
use super::rejected::Rejections;
use super::stale_references::StaleReferences;
use batch_queue::BatchQueue;
use cache_state::CacheState;
use on_demand::OnDemandState;
use parking_lot::{Mutex, MutexGuard};
use removal::RemovalState;
use roster_bus::domain_image::{
    self, COMPLETE, CURRENT, FieldTooLong, ImageHeader, NO_REFERENCE, REMOVALS_JUDGED,
};
use roster_bus::interfaces;
use roster_config::DomainMode;
use roster_domain_cache::{self as store, CacheError, DomainCache, EntryKey, Rejection};
use roster_messages::{Message, log, table::directory};
use roster_names::fold;
use roster_provider::reason::Reason;
use roster_provider::{
    DirectoryEntry, DirectoryUser, EntryId, EntrySink, Member, SearchId, SyncCookie,
    UnlistedEntries, UnreadableEntry,
};
use roster_role::clock::unix_now;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// A batch of this size is written at once; smaller ones wait for more.
const BATCH_BYTES: usize = 4 << 20;
/// Limit of unwritten bytes while the disk works. A provider waits for free capacity.
const UNWRITTEN_BYTES_MAX: usize = 64 << 20;

/// Settings of an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSettings {
    /// The domain.
    pub domain: String,
    /// Mirrored or on demand.
    pub mode: DomainMode,
    /// Share of the entries that may be removed at once without an approval.
    pub mass_deletion: f64,
    /// Lists name entries by DN. They may name groups. A server may fix them silently after an entry is removed or
    /// renamed.
    pub has_dn_lists: bool,
    /// Lists may name users by name.
    pub has_name_lists: bool,
    /// Any spelling of a name finds an entry.
    pub ignores_case: bool,
    /// Users log in through Roster, so account data is stored.
    pub has_logins: bool,
    /// The source states which entries it does not have, as text files do.
    pub states_removals: bool,
}

/// The status that tasks can subscribe to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineStatus {
    /// The state up to which changes can be fetched; 0 before there is one.
    pub sequence: u64,
    /// Whether the directory is reachable; `None` before that is known.
    pub online: Option<bool>,
    /// The server in use, or the last one.
    pub server: String,
    /// Reason why the directory is unreachable, or why preferred servers are not in use.
    pub reason: Option<Reason>,
    /// Time of the last change of `online`, in seconds since 1970.
    pub since_unix: u64,
}

/// Reasons why there is nothing to fetch.
#[derive(Debug, thiserror::Error)]
pub enum ViewUnavailable {
    /// The first enumeration has not ended.
    #[error("the domain was not enumerated yet{}", .0.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    Incomplete(Option<Reason>),
    /// The cache cannot be read at present.
    #[error("the cache cannot be read: {0}")]
    Cache(String),
}

/// The core of a backend, see the module.
pub struct Engine {
    settings: EngineSettings,
    epoch: u64,
    state: Mutex<EngineState>,
    status: watch::Sender<EngineStatus>,
    /// A batch waits for a write.
    unwritten: Notify,
    /// The batches are large enough for a write at once.
    flush_due: Notify,
    /// Lists may be outdated.
    list_scan_due: Notify,
    /// Entries are missing.
    missing: Notify,
    /// Progress of durable writes.
    committed: watch::Sender<CommitState>,
}

/// Progress of durable writes.
#[derive(Clone, Copy, Debug, Default)]
struct CommitState {
    /// Position of the last durable batch.
    write_index: u64,
    /// The last write failed.
    is_failing: bool,
}

/// State behind the lock of an engine.
struct EngineState {
    entries: EntryIndex,
    references: ReferenceInterner,
    rejected: Rejections,
    searches: SearchStates,
    removals: RemovalState,
    stale_references: StaleReferences,
    on_demand: OnDemandState,
    next_number: u32,
    batches: BatchQueue,
    cache: CacheState,
    served: ServedState,
    scratch: Vec<u8>,
    members: Vec<u32>,
    is_full_logged: bool,
}

/// The searches of a domain, and their refreshes.
#[derive(Default)]
struct SearchStates {
    /// The searches of a complete domain. `None` before the provider has named them.
    expected: Option<Vec<SearchId>>,
    by_number: BTreeMap<u8, PartState>,
    last_mark: u32,
}

/// The states that others fetch. The sequence is 0 before there is one.
#[derive(Default)]
struct ServedState {
    sequence: u64,
    log: ChangeLog,
    /// Whether the directory has reported the changes since the last write of the cache.
    is_current: bool,
    /// The process began with a complete domain from the cache.
    is_resumed: bool,
    /// Time of the first report that was not fetched yet.
    unfetched_since: Option<Instant>,
    last_change_unix: u64,
}

impl ServedState {
    fn is_serving(&self) -> bool {
        self.sequence > 0
    }

    /// Starts the first state that others can fetch.
    fn start(&mut self) {
        self.sequence = 1;
        self.log = ChangeLog::new(self.sequence);
    }

    fn note_change(&mut self) {
        self.unfetched_since.get_or_insert_with(Instant::now);
    }
}

#[derive(Default)]
struct PartState {
    stored: store::SearchProgress,
    /// Mark of the refresh in progress.
    refresh: Option<u32>,
    /// An entry was reported only as unchanged, without its content.
    is_partial: bool,
    /// The cookie (or its absence) after removals that still wait.
    held_cookie: Option<Option<SyncCookie>>,
    /// Whether a refresh ended in this process.
    is_refreshed: bool,
}

impl Engine {
    /// Makes an engine that continues from the content of the cache. If `store` could not be opened, it works without a
    /// cache.
    #[must_use]
    pub fn new(
        settings: EngineSettings,
        loaded: LoadedCache,
        store: Option<Arc<DomainCache>>,
        why: Option<CacheOpenFault>,
    ) -> Arc<Self> {
        let LoadedCache { parts, entries, references, rejected, on_demand: mut asked, next_number } =
            loaded;
        asked.set_ignores_case(settings.ignores_case);
        let mut removals = RemovalState::new(settings.mass_deletion);
        for (&part, state) in &parts {
            let keys =
                state.stored.pending_removals.iter().map(|&id| EntryKey { search: part, id });
            for slot in keys.filter_map(|key| entries.get(key)) {
                removals.held[slot.kind as usize].insert(slot.key);
            }
        }
        let is_mirror = settings.mode == DomainMode::Replicate;
        let mut stale_references = StaleReferences::new(is_mirror && settings.has_dn_lists);
        for (&part, state) in &parts {
            stale_references.restore(part, &state.stored.stale_references, Instant::now());
        }
        let state = EngineState {
            entries,
            references,
            rejected,
            searches: SearchStates { by_number: parts, ..SearchStates::default() },
            removals,
            stale_references,
            on_demand: OnDemandState::new(asked),
            next_number,
            batches: BatchQueue::default(),
            cache: CacheState::new(store, next_number, why),
            served: ServedState::default(),
            scratch: Vec::new(),
            members: Vec::new(),
            is_full_logged: false,
        };
        Arc::new(Self {
            settings,
            // Never 0: a publisher that knows no process starts with 0.
            epoch: RandomState::new().build_hasher().finish() | 1,
            state: Mutex::new(state),
            status: watch::Sender::new(EngineStatus::default()),
            unwritten: Notify::new(),
            flush_due: Notify::new(),
            list_scan_due: Notify::new(),
            missing: Notify::new(),
            committed: watch::Sender::default(),
        })
    }

    /// Sets the searches of a complete domain. If the cache has all of them, the domain is served at once, before any
    /// query to the directory.
    pub fn set_parts(&self, parts: Vec<SearchId>) {
        {
            let mut state = self.state();
            state.searches.expected = Some(parts);
            state.served.is_resumed = state.is_complete(&self.settings);
        }
        self.flush();
    }

    fn state(&self) -> MutexGuard<'_, EngineState> {
        // A panic ends the process. In tests, which continue, the state is still usable.
        self.state.lock()
    }

    /// Subscribes to the status.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<EngineStatus> {
        self.status.subscribe()
    }

    /// Returns the random number of this process's states.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the sync cookies from the end of the previous process.
    #[must_use]
    pub fn cookies(&self) -> Vec<(SearchId, SyncCookie)> {
        let state = self.state();
        let whole = state.searches.by_number.iter().filter(|(_, part)| part.stored.complete);
        let cookie = |(&number, part): (&u8, &PartState)| {
            let (binding, value) = part.stored.cookie.clone()?;
            Some((SearchId(number), SyncCookie { binding, value }))
        };
        whole.filter_map(cookie).collect()
    }

    /// Returns the changes from a state to the present one, or the present one in full.
    pub fn view(&self, epoch: u64, since: u64) -> Result<DomainView, ViewUnavailable> {
        let mut state = self.state();
        if !state.served.is_serving() {
            let news = self.status.borrow();
            let why = news.reason.clone().filter(|_| news.online == Some(false));
            return Err(ViewUnavailable::Incomplete(why));
        }
        let complete = if self.settings.mode == DomainMode::Replicate { COMPLETE } else { 0 };
        let is_judged = self.settings.states_removals || state.served.is_resumed;
        let flags = complete
            | if state.served.is_current { CURRENT } else { 0 }
            | if is_judged { REMOVALS_JUDGED } else { 0 };
        let sequence = state.served.sequence;
        let mut header = ImageHeader { flags, epoch: self.epoch, since, sequence, records: 0 };
        let known = epoch == self.epoch && (1..=sequence).contains(&since);
        let changes = if known { state.served.log.since(since) } else { None };
        let view = match changes {
            Some(batches) => DomainView { header, base: None, batches },
            None => {
                header.since = 0;
                state.full_view(header)?
            }
        };
        if let Some(since) = state.served.unfetched_since.take() {
            metrics::histogram!("roster_sync_lag_seconds").record(since.elapsed());
        }
        Ok(view)
    }

    /// Returns entries that are not served because they cannot be parsed.
    #[must_use]
    pub fn rejections(&self, from: u32, at_most: u32) -> Vec<interfaces::RejectedEntry> {
        let state = self.state();
        let listed = state.rejected.list(from as usize).take(at_most as usize);
        let listed = listed.map(|(_, rejection)| {
            let Rejection { name, code, reason, .. } = rejection.clone();
            let (kind, code, fix) = ("entry".into(), code.into_owned(), String::new());
            interfaces::RejectedEntry { kind, name, reason, code, fix }
        });
        listed.collect()
    }

    /// Returns the status of the domain. Fields of the provider stay empty.
    #[must_use]
    pub fn status(&self) -> interfaces::DomainStatus {
        let news = self.status.borrow().clone();
        let state = self.state();
        let (reason, reason_code) = text_and_code(news.reason.as_ref());
        let fault = state.cache.fault(state.is_complete(&self.settings));
        let (cache_error, cache_code) = text_and_code(fault);
        let refreshed =
            state.searches.by_number.values().map(|part| part.stored.refreshed_unix).min();
        interfaces::DomainStatus {
            domain: self.settings.domain.clone(),
            mode: match self.settings.mode {
                DomainMode::Replicate => "replicate".into(),
                DomainMode::OnDemand => "on-demand".into(),
            },
            online: news.online == Some(true),
            since_unix: news.since_unix,
            server: news.server,
            reason,
            reason_code,
            complete: self.settings.mode == DomainMode::Replicate
                && state.is_complete(&self.settings),
            users: state.entries.count(CachedKind::User),
            groups: state.entries.count(CachedKind::Group),
            nested_groups: state.entries.count(CachedKind::NestedGroup),
            mixed_groups: state.entries.mixed(),
            rejected: state.rejected.count(),
            last_change_unix: state.served.last_change_unix,
            last_refresh_unix: refreshed.unwrap_or_default(),
            held_removals: state.held_count() + state.undecided_count(),
            epoch: self.epoch,
            sequence: state.served.sequence,
            cache_error,
            cache_code,
            ..interfaces::DomainStatus::default()
        }
    }

    /// Returns the time since everything was read; `None` if that never happened, or if its time stamp is in the
    /// future.
    #[must_use]
    pub fn read_age(&self) -> Option<Duration> {
        let state = self.state();
        let read = state.searches.by_number.values().map(|part| part.stored.read_unix).min();
        // The clock was set back, so the age is unknown.
        let read = read.filter(|&read| read > 0 && read <= unix_now())?;
        Some(Duration::from_secs(unix_now().saturating_sub(read)))
    }

    /// Whether the domain is mirrored.
    #[must_use]
    pub fn is_mirror(&self) -> bool {
        self.settings.mode == DomainMode::Replicate
    }

    /// Whether the directory is reachable, and no refresh is in progress.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_online = self.status.borrow().online == Some(true);
        is_online && self.state().searches.by_number.values().all(|part| part.refresh.is_none())
    }

    fn set_online(&self, online: bool, server: Option<&str>, reason: Option<&Reason>) {
        self.status.send_if_modified(|news| {
            let server = server.unwrap_or(&news.server);
            let same = news.online == Some(online) && news.server == server;
            if same && news.reason.as_ref() == reason {
                return false;
            }
            if news.online != Some(online) {
                news.since_unix = unix_now();
            }
            news.online = Some(online);
            news.server = server.to_owned();
            news.reason = reason.cloned();
            true
        });
    }
}

impl EntrySink for Engine {
    fn online(&self, server: &str, passed_over: Option<&Reason>) {
        self.set_online(true, Some(server), passed_over);
    }

    fn offline(&self, reason: &Reason) {
        self.set_online(false, None, Some(reason));
    }

    fn refresh_began(&self, part: SearchId) {
        let mut state = self.state();
        state.searches.last_mark += 1;
        let mark = state.searches.last_mark;
        let refreshed = state.searches.by_number.entry(part.0).or_default();
        (refreshed.refresh, refreshed.is_partial) = (Some(mark), false);
        state.rejected.refresh_began(part.0);
    }

    fn put(&self, part: SearchId, id: EntryId, entry: DirectoryEntry<'_>) {
        self.put_atomically(part, vec![(id, entry)]);
    }

    /// Adds all entries under one lock, so that no flush separates them.
    fn put_atomically(&self, part: SearchId, entries: Vec<(EntryId, DirectoryEntry<'_>)>) {
        let mut state = self.state();
        for (id, entry) in entries {
            state.put(&self.settings, key_of(part, id), &entry);
        }
        if !state.served.is_serving() && state.batches.open.memory_bytes() >= BATCH_BYTES {
            // Others see it only once everything is present, so it may go to the disk.
            state.seal_batch();
            self.flush_due.notify_one();
            self.unwritten.notify_one();
        }
    }

    fn present(&self, part: SearchId, id: EntryId) -> bool {
        self.state().present(key_of(part, id))
    }

    fn removed(&self, part: SearchId, id: EntryId) {
        let mut state = self.state();
        let key = key_of(part, id);
        state.clear_rejection(key);
        state.remove_all(&self.settings, &[key]);
    }

    fn missing(&self, part: SearchId, id: EntryId) {
        self.state().note_missing(&self.settings, &[key_of(part, id)]);
        self.missing.notify_one();
    }

    fn rejected(&self, part: SearchId, id: EntryId, rejected: &UnreadableEntry<'_>) {
        let rejection = Rejection {
            name: rejected.name.to_owned(),
            reference: rejected.reference.to_vec(),
            code: rejected.reason.message.code.into(),
            reason: rejected.reason.text.clone(),
        };
        self.state().reject(&self.settings, key_of(part, id), rejection);
    }

    fn refresh_ended(
        &self,
        part: SearchId,
        unmentioned: UnlistedEntries,
        cookie: Option<SyncCookie>,
    ) {
        self.state().refresh_ended(&self.settings, part.0, unmentioned, cookie);
        self.missing.notify_one();
    }

    fn cookie(&self, part: SearchId, cookie: SyncCookie) {
        self.state().cookie(part.0, Some(cookie));
    }

    fn user_groups(&self, user: EntryId, groups: &[EntryId]) {
        self.state().set_groups(&self.settings, user, groups);
    }

    fn members_unknown(&self, part: SearchId, id: EntryId) {
        self.state().forget_members(key_of(part, id));
    }

    fn knows(&self, members: &[&Member<'_>]) -> Vec<bool> {
        self.state().are_resolvable(members)
    }

    /// Whether the provider may continue. Without a writable cache everything stays in memory, so waiting would not
    /// help. A cache that was reopened after a failed write may be read-only.
    fn has_capacity(&self) -> bool {
        let state = self.state();
        let is_written = state.cache.store.is_some() && state.cache.error.is_none();
        !is_written || state.batches.unwritten_bytes < UNWRITTEN_BYTES_MAX
    }

    fn flush(&self) {
        self.close_batch(&mut self.state());
    }
}

impl Engine {
    /// Closes the batch. The reports so far become a state that others can fetch.
    fn close_batch(&self, state: &mut EngineState) {
        state.settle_unreadable(&self.settings);
        state.release_cookies();
        state.store_held();
        let began = state.served.is_serving();
        let caught_up = !state.served.is_current && state.is_refreshed(&self.settings);
        state.served.is_current |= caught_up;
        if !began && state.is_complete(&self.settings) {
            state.served.start();
        } else if began && (caught_up || state.batches.open.visible_count() > 0) {
            state.served.sequence += 1;
        }
        if began && state.batches.open.visible_count() > 0 {
            state.served.last_change_unix = unix_now();
            metrics::counter!("roster_changes_total")
                .increment(state.batches.open.visible_count() as u64);
        }
        if state.seal_batch() {
            self.unwritten.notify_one();
        }
        if state.stale_references.next_due().is_some() {
            self.list_scan_due.notify_one();
        }
        metrics::gauge!("roster_rejected_entries").set(gauge(state.rejected.count()));
        for kind in CachedKind::ALL {
            let count = gauge(state.entries.count(kind));
            metrics::gauge!("roster_entries", "kind" => kind.name()).set(count);
        }
        metrics::gauge!("roster_held_removals").set(gauge(state.held_count()));
        let sequence = state.served.sequence;
        // Sent under the lock, so that subscribers get the states in order.
        self.status.send_if_modified(|news| {
            let later = news.sequence != sequence;
            news.sequence = sequence;
            later
        });
    }
}

#[allow(clippy::cast_precision_loss)] // counts of at most 2^24
fn gauge(count: u64) -> f64 {
    count as f64
}

impl EngineState {
    /// Returns a view of the full domain.
    fn full_view(&self, header: ImageHeader) -> Result<DomainView, ViewUnavailable> {
        let unreadable = |error: CacheError| ViewUnavailable::Cache(error.to_string());
        // Opened under the lock. The reader has all batches except those in `unwritten`. It may have some of these too,
        // which is harmless, because they replace its records.
        let base = match &self.cache.store {
            Some(store) => Some(store.reader().map_err(unreadable)?),
            None if self.cache.next_number.is_some() => {
                return Err(ViewUnavailable::Cache(self.cache.closed_reason()));
            }
            None => None,
        };
        Ok(DomainView { header, base, batches: self.batches.unwritten.iter().cloned().collect() })
    }

    /// Whether all entries of the directory are known. In an on-demand domain, all results of lookups.
    fn is_complete(&self, settings: &EngineSettings) -> bool {
        let complete = |part: &SearchId| {
            self.searches.by_number.get(&part.0).is_some_and(|part| part.stored.complete)
        };
        let whole = self.searches.expected.as_ref().is_some_and(|parts| parts.iter().all(complete));
        settings.mode == DomainMode::OnDemand || whole
    }

    /// Whether every part was refreshed since the process began, in full or by changes.
    fn is_refreshed(&self, settings: &EngineSettings) -> bool {
        let heard = |part: &SearchId| {
            self.searches.by_number.get(&part.0).is_some_and(|part| part.is_refreshed)
        };
        let all = self.searches.expected.as_ref().is_some_and(|parts| parts.iter().all(heard));
        settings.mode == DomainMode::OnDemand || all
    }

    /// Closes the open batch. Returns whether it had any content.
    fn seal_batch(&mut self) -> bool {
        self.store_stale_references();
        let Some(batch) = self.batches.seal(self.served.sequence) else { return false };
        let is_later = batch.sequence > self.served.log.last_sequence();
        if self.served.is_serving() && batch.visible_count() > 0 && is_later {
            self.served.log.push(batch);
        }
        true
    }

    fn put(&mut self, settings: &EngineSettings, key: EntryKey, entry: &DirectoryEntry<'_>) {
        let known = self.entries.get(key).copied();
        if let DirectoryEntry::Group(group) = entry
            && group.gid.is_none()
            && known.is_some_and(|slot| slot.kind == CachedKind::Group)
            && self.served.is_serving()
        {
            return self.note_lost_gid(settings, key, group);
        }
        self.clear_rejection(key);
        self.release_held(key);
        if known.is_none() {
            self.remove_moved(key, entry);
        }
        let number = known.map_or(self.next_number, |slot| slot.number);
        let (kind, name) = match entry {
            DirectoryEntry::User(user) => (CachedKind::User, &user.name),
            DirectoryEntry::Group(group) => (CachedKind::of_group(group.gid), &group.name),
        };
        let encoded = match number < NUMBERS_MAX {
            true => self
                .encode(settings, number, entry)
                .map_err(|error| (&directory::FIELD_TOO_LONG, error.to_string())),
            false => Err(no_number_reason(self.entries.len())),
        };
        let (reference, ways) = match encoded {
            Ok(encoded) => encoded,
            Err((message, reason)) => {
                let name = String::from_utf8_lossy(name).into_owned();
                let reference = match entry {
                    DirectoryEntry::User(_) => Vec::new(),
                    DirectoryEntry::Group(group) => group.reference.to_vec(),
                };
                let code = message.code.into();
                let rejection = Rejection { name, reference, code, reason };
                return self.reject(settings, key, rejection);
            }
        };
        let seen = match settings.mode {
            DomainMode::Replicate => SeenTimes::default(),
            DomainMode::OnDemand => self.seen_times(number, entry),
        };
        if known.is_none() {
            self.searches.by_number.entry(key.search).or_default();
            self.next_number += 1;
            self.batches.open.set_next_number(self.next_number);
        }
        let mark = self.current_mark(key.search);
        let account = match entry {
            DirectoryEntry::User(user) if settings.has_logins => Some(user.account.to_bytes()),
            DirectoryEntry::User(_) | DirectoryEntry::Group(_) => None,
        };
        let digest = digest(&self.scratch) ^ account.as_deref().map_or(0, account_digest);
        let is_other = known.is_none_or(|before| before.digest != digest);
        let slot = EntrySlot { key, kind, forms: ways, number, reference, mark, digest };
        self.store_entry(settings.mode, slot, seen);
        if let Some(account) = account.filter(|_| is_other) {
            self.batches.open.set_account(number, &account);
        }
    }

    /// Removes an entry of another search with the same key: it has moved to the base of this search, which may report it
    /// before the other one reports its absence.
    fn remove_moved(&mut self, key: EntryKey, entry: &DirectoryEntry<'_>) {
        if self.searches.by_number.len() < 2 {
            return;
        }
        let kinds = match entry {
            DirectoryEntry::User(_) => CachedKind::USERS,
            DirectoryEntry::Group(_) => CachedKind::GROUPS,
        };
        let others = self.known_parts().filter(|part| *part != key.search);
        if let Some(slot) = self.entries.find(kinds, EntryId(key.id), others) {
            let moved = slot.key;
            self.release_held(moved);
            self.remove(moved);
        }
    }

    /// Stores the entry with the records in `scratch`.
    fn store_entry(&mut self, mode: DomainMode, slot: EntrySlot, seen: SeenTimes) {
        let EntrySlot { key, kind, number, reference, digest, .. } = slot;
        let header = entry_header(&slot, seen);
        let known = self.entries.get(key).copied();
        self.entries.put(slot);
        if known.is_none_or(|before| before.reference != reference) {
            let now = Instant::now();
            if let Some(before) = known {
                self.stale_references.note_released(key.search, before.reference, now);
            }
            // The first read of an entry comes with all lists.
            if self.served.is_serving() {
                self.stale_references.note_taken(key.search, reference, now);
            }
        }
        if known.is_some_and(|before| (before.kind, before.digest) == (kind, digest)) {
            if mode == DomainMode::OnDemand {
                self.on_demand.cache.mark_seen(number, seen);
                self.batches.open.mark_seen(key, header);
            }
            return;
        }
        self.batches.open.put(key, header, &self.scratch);
        self.served.note_change();
        if mode == DomainMode::OnDemand
            && let Some(answer) = CachedEntry::from_records(key, seen, &self.scratch)
        {
            let before = self
                .on_demand
                .cache
                .get(number)
                .map_or(answer.references(), CachedEntry::references);
            let now = answer.references();
            self.on_demand.cache.put(number, answer);
            for left in before.into_iter().filter(|reference| !now.contains(reference)) {
                self.invalidate_lists_naming(left);
            }
        }
    }

    /// Encodes the entry's records into `scratch`. Returns the number of its DN and its forms of member names. If this
    /// reply lacks a group's members or a user's groups, the lists of an earlier reply stay.
    fn encode(
        &mut self,
        settings: &EngineSettings,
        number: u32,
        entry: &DirectoryEntry<'_>,
    ) -> Result<(u32, MemberForms), FieldTooLong> {
        let mut record = std::mem::take(&mut self.scratch);
        let mut members = std::mem::take(&mut self.members);
        record.clear();
        members.clear();
        let before = self.on_demand.cache.get(number);
        let encoded = match entry {
            DirectoryEntry::User(user) => {
                let groups =
                    before.and_then(|before| Some((before.references(), before.groups.clone()?)));
                let reference = self.intern_reference(&member_by_dn(&user.reference));
                let by_name = match settings.has_name_lists {
                    // Lists name users in any spelling.
                    true if settings.ignores_case => {
                        self.intern_reference(&Member::Name(fold(&user.name)))
                    }
                    true => self.intern_reference(&Member::Name(Cow::Borrowed(&user.name))),
                    false => NO_REFERENCE,
                };
                // The old groups do not carry over to a user with other references.
                let groups = groups.filter(|(before, _)| *before == [reference, by_name]);
                let groups = groups.map(|(_, groups)| groups);
                let written = write_user(&mut record, number, [reference, by_name], user);
                let written = written.and_then(|()| match groups {
                    Some(groups) => domain_image::write_groups_of(&mut record, number, &groups),
                    None => Ok(()),
                });
                written.map(|()| (reference, MemberForms::default()))
            }
            DirectoryEntry::Group(group) => {
                let known = match &group.members {
                    Some(named) => {
                        members.extend(named.iter().map(|member| match member {
                            Member::Name(name) if settings.ignores_case => {
                                self.intern_reference(&Member::Name(fold(name)))
                            }
                            member => self.intern_reference(member),
                        }));
                        Some(named.iter().fold(MemberForms::default(), MemberForms::with))
                    }
                    None => {
                        before.filter(|before| *before.name == *group.name).and_then(|before| {
                            members.extend(before.members()?.iter());
                            self.entries.get(before.key).map(|slot| slot.forms)
                        })
                    }
                };
                let reference = self.intern_reference(&member_by_dn(&group.reference));
                let members = known.map(|_| members.as_slice());
                let (gid, name) = (group.gid, &group.name);
                domain_image::write_group(&mut record, number, reference, gid, name, members)
                    .map(|()| (reference, known.unwrap_or_default()))
            }
        };
        self.scratch = record;
        self.members = members;
        encoded
    }

    /// Returns the number of a reference. An empty reference gives `NO_REFERENCE`: lists cannot name the entry.
    fn intern_reference(&mut self, member: &Member<'_>) -> u32 {
        let (Member::Name(text) | Member::Dn(text)) = member;
        if text.is_empty() {
            return NO_REFERENCE;
        }
        match self.references.intern(member) {
            Interned::Known(number) => number,
            Interned::New(number) => {
                self.batches
                    .open
                    .add_reference(number, self.references.bytes(number).unwrap_or_default());
                number
            }
            Interned::Full => {
                if !std::mem::replace(&mut self.is_full_logged, true) {
                    log!(
                        ERROR,
                        &directory::TOO_MANY_MEMBER_NAMES,
                        "member lists name more than {NUMBERS_MAX} different members; further members are omitted"
                    );
                }
                NO_REFERENCE
            }
        }
    }

    fn present(&mut self, key: EntryKey) -> bool {
        let mark = self.current_mark(key.search);
        let is_unreadable = self.rejected.present(key, mark);
        // The entry is unchanged. An unreadable one continues to wait.
        if is_unreadable {
            self.removals.missing.iter_mut().for_each(|missing| {
                missing.remove(&key);
            });
        } else {
            self.release_held(key);
        }
        let is_known = self.entries.mark(key, mark) || is_unreadable;
        if is_known && let Some(part) = self.searches.by_number.get_mut(&key.search) {
            part.is_partial = true;
        }
        is_known
    }

    fn reject(&mut self, settings: &EngineSettings, key: EntryKey, rejection: Rejection) {
        let mark = self.current_mark(key.search);
        // Marked before the use below: a refresh that rejects an entry has reported it.
        self.entries.mark(key, mark);
        if self.rejected.add(key, rejection.clone(), mark) {
            self.batches.open.set_rejected(key, Some(rejection));
        }
        self.note_unreadable(settings, key);
    }

    fn clear_rejection(&mut self, key: EntryKey) {
        if self.rejected.remove(key) {
            self.batches.open.set_rejected(key, None);
        }
    }

    fn refresh_ended(
        &mut self,
        settings: &EngineSettings,
        number: u8,
        unmentioned: UnlistedEntries,
        cookie: Option<SyncCookie>,
    ) {
        let Some(part) = self.searches.by_number.get_mut(&number) else { return };
        let Some(mark) = part.refresh.take() else { return };
        part.stored.refreshed_unix = unix_now();
        part.is_refreshed = true;
        if unmentioned != UnlistedEntries::Unchanged {
            part.stored.complete = true;
            if !part.is_partial {
                part.stored.read_unix = unix_now();
            }
            let gone = |slot: &&EntrySlot| slot.key.search == number && slot.mark != mark;
            let gone: Vec<EntryKey> =
                self.entries.iter().filter(gone).map(|slot| slot.key).collect();
            for key in self.rejected.refresh_ended(number, mark) {
                self.batches.open.set_rejected(key, None);
            }
            match unmentioned {
                UnlistedEntries::Missing => {
                    self.note_missing(settings, &gone);
                }
                UnlistedEntries::Removed | UnlistedEntries::Unchanged => {
                    self.remove_all(settings, &gone);
                }
            }
        }
        match cookie {
            None if unmentioned == UnlistedEntries::Unchanged => self.mark_part_changed(number),
            cookie => self.cookie(number, cookie),
        }
    }

    /// Stores a cookie. A cookie after removals that wait must wait with them, so that the directory reports them again
    /// after a restart.
    fn cookie(&mut self, number: u8, cookie: Option<SyncCookie>) {
        let waits = self.has_pending_removals(number);
        let part = self.searches.by_number.entry(number).or_default();
        if waits {
            part.held_cookie = Some(cookie);
        } else {
            part.held_cookie = None;
            part.stored.cookie = cookie.map(|cookie| (cookie.binding, cookie.value));
        }
        self.mark_part_changed(number);
    }

    fn mark_part_changed(&mut self, number: u8) {
        if let Some(part) = self.searches.by_number.get(&number) {
            self.batches.open.set_part(number, part.stored.clone());
        }
    }

    /// Returns numbers of all parts that ever reported anything; few.
    fn known_parts(&self) -> impl Iterator<Item = u8> {
        self.searches.by_number.keys().copied()
    }

    fn current_mark(&self, part: u8) -> u32 {
        self.searches.by_number.get(&part).and_then(|part| part.refresh).unwrap_or_default()
    }
}

fn write_user(
    out: &mut Vec<u8>,
    number: u32,
    [reference, by_name]: [u32; 2],
    user: &DirectoryUser<'_>,
) -> Result<(), FieldTooLong> {
    let DirectoryUser { name, uid, gid, gecos, dir, shell, .. } = user;
    let (uid, gid) = (*uid, *gid);
    domain_image::write_user(
        out,
        &domain_image::UserRecord { number, reference, by_name, uid, gid, name, gecos, dir, shell },
    )
}

/// Returns the text and the code of a reason for the bus. Both are empty without one.
pub fn text_and_code(reason: Option<&Reason>) -> (String, String) {
    reason.map_or_else(Default::default, |Reason { message, text }| {
        (text.clone(), message.code.to_owned())
    })
}

/// Returns why no number is left for one more entry than these. A restart renumbers the entries if they are few.
pub(super) fn no_number_reason(entries: usize) -> (&'static Message, String) {
    if entries < NUMBERS_MAX as usize / 2 {
        let text = "all entry numbers of the cache are assigned".to_owned();
        return (&directory::ENTRY_NUMBERS_EXHAUSTED, text);
    }
    let text = format!("the domain has more than {NUMBERS_MAX} entries");
    (&directory::DOMAIN_TOO_LARGE, text)
}

fn member_by_dn(dn: &[u8]) -> Member<'_> {
    Member::Dn(Cow::Borrowed(dn))
}

/// Returns the data that the cache stores of an entry, apart from its records.
fn entry_header(slot: &EntrySlot, seen: SeenTimes) -> store::EntryHeader {
    let &EntrySlot { number, kind, forms: ways, reference, digest, .. } = slot;
    let SeenTimes { entry: seen_unix, list: list_seen_unix } = seen;
    let (kind, list) = (kind as u8, ways.number());
    store::EntryHeader { number, kind, list, reference, digest, seen_unix, list_seen_unix }
}

fn key_of(part: SearchId, id: EntryId) -> EntryKey {
    EntryKey { search: part.0, id: id.0 }
}

/// Distinguishes records. Another version of the library may have another hash. All entries then count as changed once.
fn digest(records: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(records);
    hasher.finish()
}

/// Includes account data in the digest, although the publisher does not get that data. Empty account data differs from
/// unknown account data. The value is combined with [`digest`], and is independent of the records.
fn account_digest(account: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write_u64(account.len() as u64 + 1);
    hasher.write(account);
    hasher.finish()
}
