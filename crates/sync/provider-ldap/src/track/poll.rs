// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows servers without content synchronization. A full listing comes first. Then a persistent search reports the
//! changes, or a poll at intervals requests the modified entries, by their stamps or by their
//! [update sequence numbers](super::update_sequence).
//!
//! A persistent search reports each change below the base, and each reported entry is read
//! ([`persistent_search_queue`](super::persistent_search_queue)).
//!
//! Time stamps do not show removals, entries that move with their parents, and changes that a replica receives long
//! after their stamps. A report may also be lost. The keys of all entries are therefore compared at intervals. In
//! polling mode their stamps or numbers are compared as well. If the comparison finds an unknown state, everything is
//! listed again. A poll follows each comparison of numbers.
//!
//! A poll cannot find a user or group without a readable stamp, so then every poll is a full listing. Without a readable
//! number, every comparison is followed by one. A new connection begins with a full listing.

use super::duplicate_uuid::{ENTRIES_MAX, LimitExceeded};
use super::persistent_search_queue::PersistentSearchQueue;
use super::update_sequence::{NewChanges, UpdateSequence};
use super::{Track, TrackSink, is_later, search_failed, too_many_entries};
use crate::ber::BerError;
use crate::connection::LdapConnection;
use crate::dn;
use crate::entry_key::{missing_key, read_key};
use crate::error::LdapError;
use crate::filter::EncodedFilter;
use crate::message::{
    CHANGE_DELETE, CHANGE_MOVE, LdapRequest, LdapResponse, LdapResult, RawEntry, RequestControl,
    ResponseOperation, Scope, SearchRequest, code,
};
use crate::schema::CHANGE_NUMBER;
use crate::search::MirrorSearch;
use roster_messages::{log, table::directory};
use roster_provider::{EntryId, UnlistedEntries};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Interval of key comparisons in polls. A poll learns of removals only by them.
const RECONCILE_POLLS: u32 = 10;
/// Time after which a persistent search counts as established, because the server does not confirm it. The full listing
/// starts after that, so that no change is lost in between.
const ESTABLISH: Duration = Duration::from_millis(200);

/// Limit of the entries that change during one listing. If there are more, the listing is repeated.
const OVERTAKEN_MAX: usize = 100_000;

/// The version of entries without stamps.
const NO_VERSION: u64 = 0;

/// Source of changes between two key comparisons.
enum ChangeSource {
    /// A persistent search below this base, with the id of its request after it is sent.
    PersistentSearch(String, Option<u32>),
    /// Requests of entries with a stamp that is at least as new as the newest known one.
    Polling(ModifyStamps, Duration),
    /// Requests of entries with a higher number than the highest one before the last request.
    Numbers(UpdateSequence),
}

impl ChangeSource {
    /// Returns the attribute that changes with each change of an entry, if changes are found by it.
    fn version_attribute(&self) -> Option<&'static str> {
        match self {
            Self::PersistentSearch(..) => None,
            Self::Polling(stamps, _) => Some(stamps.attribute),
            Self::Numbers(_) => Some(CHANGE_NUMBER),
        }
    }

    /// Returns whether the next poll requests an entry with this value of the attribute.
    fn covers(&self, value: &[u8]) -> bool {
        match self {
            Self::PersistentSearch(..) => false,
            Self::Polling(stamps, _) => stamps.covers(value),
            Self::Numbers(sequence) => sequence.covers(value),
        }
    }
}

/// The stamps of modified entries.
struct ModifyStamps {
    attribute: &'static str,
    /// The newest stamp before the last listing or poll. Each poll thus overlaps the previous one, because stamps may
    /// arrive out of order in a replicated directory.
    since: Vec<u8>,
    newest: Vec<u8>,
    /// A user or group of the last listing does not show its stamp.
    is_missing: bool,
    /// Counts the searches with such entries, for the status.
    missing: Arc<AtomicUsize>,
    was_missing: bool,
}

impl ModifyStamps {
    fn new(attribute: &'static str, missing: Arc<AtomicUsize>) -> Self {
        let (since, newest) = (Vec::new(), Vec::new());
        Self { attribute, since, newest, is_missing: false, missing, was_missing: false }
    }

    fn note(&mut self, stamp: &[u8], is_told: bool) {
        self.is_missing |= is_told && stamp.is_empty();
        if is_later(stamp, &self.newest) {
            self.newest = stamp.to_vec();
        }
    }

    /// Returns whether the next poll requests entries of this stamp.
    fn covers(&self, stamp: &[u8]) -> bool {
        !is_later(&self.since, stamp)
    }

    /// Returns a filter for recently changed entries, or `None` if only a full listing finds them.
    fn changed(&mut self) -> Option<EncodedFilter> {
        let since = std::mem::replace(&mut self.since, self.newest.clone());
        let tells = !since.is_empty() && !self.is_missing;
        tells.then(|| EncodedFilter::at_least(self.attribute, &since))
    }

    /// Begins a full listing.
    fn begin_listing(&mut self) {
        self.is_missing = false;
    }

    /// Ends a full listing.
    fn end_listing(&mut self, base: &str) {
        self.since = self.newest.clone();
        if std::mem::replace(&mut self.was_missing, self.is_missing) == self.is_missing {
            return;
        }
        let attribute = self.attribute;
        if self.is_missing {
            self.missing.fetch_add(1, Ordering::Relaxed);
            log!(
                WARN,
                &directory::STAMP_UNREADABLE_POLL,
                base,
                "{attribute} is not readable on some entries; every poll reads everything"
            );
        } else {
            self.missing.fetch_sub(1, Ordering::Relaxed);
            tracing::info!(
                base,
                "all users and groups show {attribute}: their changes are found by it"
            );
        }
    }
}

/// Users and groups that do not show their update sequence number. Neither a poll nor a comparison of keys finds their
/// changes. They are listed again after each comparison.
#[derive(Default)]
struct UnnumberedEntries {
    is_logged: bool,
}

impl UnnumberedEntries {
    /// Logs the first one of a connection.
    fn note(&mut self, base: &str) {
        if !std::mem::replace(&mut self.is_logged, true) {
            log!(
                WARN,
                &directory::STAMP_UNREADABLE_POLL,
                base,
                "{CHANGE_NUMBER} is not readable on some entries; everything is read each reconcile_interval"
            );
        }
    }
}

/// The kind of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListingKind {
    /// All entries.
    Whole,
    /// Recently modified entries.
    Changes,
    /// The keys of all entries.
    Keys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PollPhase {
    /// No request was sent yet.
    Asleep,
    /// The persistent search was sent. The listing follows at this time.
    Establishing(Instant),
    /// The highest number has to be requested, for this listing.
    NumberDue(ListingKind),
    /// The highest number of this request is being received.
    ReadingNumber(ListingKind, u32),
    /// The next page has to be requested.
    PageDue(ListingKind),
    /// The page of this request is being received.
    Reading(ListingKind, u32),
    /// Idle until this time.
    Waiting(Instant),
}

/// A search that is mirrored without content synchronization.
pub(crate) struct Enumeration {
    search: MirrorSearch,
    key: String,
    page_size: Option<u32>,
    change_source: ChangeSource,
    phase: PollPhase,
    page: Vec<u8>,
    filter: EncodedFilter,
    reconcile_interval: Duration,
    last_reconciled: Instant,
    /// All entries by their keys. In polling mode with a hash of their stamps.
    known: HashMap<EntryId, u64>,
    hasher: RandomState,
    /// Entries that the persistent search reported during a listing. The listing may show an older state of them.
    overtaken: HashSet<EntryId>,
    reread_queue: PersistentSearchQueue,
    unnumbered: UnnumberedEntries,
    /// A key comparison found an unknown entry or state, the persistent search reported an entry without a key, or
    /// entries have moved with a container.
    needs_full_listing: bool,
}

impl Enumeration {
    /// Follows the search by persistent search below `context`, which contains the base. The search thus also reports
    /// an entry that leaves the base. Keys are compared at each `sweep_interval`.
    pub fn persistent(
        search: MirrorSearch,
        key: String,
        page_size: Option<u32>,
        context: String,
        sweep_interval: Duration,
    ) -> Self {
        let means = ChangeSource::PersistentSearch(context, None);
        Self::new(search, key, page_size, means, sweep_interval)
    }

    /// Follows the search by polls for stamps of this attribute. `missing` counts searches with entries that do not
    /// show them.
    pub fn polling(
        search: MirrorSearch,
        key: String,
        page_size: Option<u32>,
        attribute: &'static str,
        interval: Duration,
        missing: Arc<AtomicUsize>,
    ) -> Self {
        let stamps = ModifyStamps::new(attribute, missing);
        Self::new(
            search,
            key,
            page_size,
            ChangeSource::Polling(stamps, interval),
            interval * RECONCILE_POLLS,
        )
    }

    /// Follows the search by polls for higher update sequence numbers. Keys are compared at each `sweep_interval`.
    pub fn numbered(
        search: MirrorSearch,
        key: String,
        page_size: Option<u32>,
        interval: Duration,
        sweep_interval: Duration,
    ) -> Self {
        let means = ChangeSource::Numbers(UpdateSequence::new(interval));
        Self::new(search, key, page_size, means, sweep_interval)
    }

    fn new(
        search: MirrorSearch,
        key: String,
        page_size: Option<u32>,
        means: ChangeSource,
        sweep_interval: Duration,
    ) -> Self {
        Self {
            filter: search.filter.clone(),
            search,
            key,
            page_size,
            change_source: means,
            phase: PollPhase::Asleep,
            page: Vec::new(),
            reconcile_interval: sweep_interval,
            last_reconciled: Instant::now(),
            known: HashMap::new(),
            hasher: RandomState::new(),
            overtaken: HashSet::new(),
            reread_queue: PersistentSearchQueue::default(),
            unnumbered: UnnumberedEntries::default(),
            needs_full_listing: false,
        }
    }

    fn begin(&mut self, listing: ListingKind, sink: &mut TrackSink) {
        self.page.clear();
        self.overtaken.clear();
        self.filter = self.search.filter.clone();
        match listing {
            ListingKind::Whole => {
                self.needs_full_listing = false;
                self.known.clear();
                self.reread_queue.clear();
                if let ChangeSource::Polling(stamps, _) = &mut self.change_source {
                    stamps.begin_listing();
                }
                sink.begin_refresh(self.search.id, true);
            }
            ListingKind::Keys => sink.begin_refresh(self.search.id, false),
            ListingKind::Changes => {
                let changed = match &mut self.change_source {
                    ChangeSource::PersistentSearch(..) => None,
                    ChangeSource::Polling(stamps, _) => stamps.changed(),
                    ChangeSource::Numbers(sequence) => Some(sequence.changed()),
                };
                match changed {
                    Some(changed) => {
                        self.filter = EncodedFilter::all([&self.search.filter, &changed]);
                    }
                    None => return self.begin(ListingKind::Whole, sink),
                }
            }
        }
        self.phase = PollPhase::PageDue(listing);
    }

    /// Begins a listing of entries, with the highest number before it.
    fn begin_read(&mut self, listing: ListingKind, sink: &mut TrackSink) {
        match self.change_source {
            ChangeSource::Numbers(_) => self.phase = PollPhase::NumberDue(listing),
            _ => self.begin(listing, sink),
        }
    }

    fn request_number(&mut self, listing: ListingKind, connection: &mut LdapConnection) {
        if let ChangeSource::Numbers(sequence) = &mut self.change_source {
            let id = sequence.request_number(connection);
            self.phase = PollPhase::ReadingNumber(listing, id);
        }
    }

    /// Handles a response with the highest number.
    fn handle_number(
        &mut self,
        listing: ListingKind,
        operation: ResponseOperation<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        let ChangeSource::Numbers(sequence) = &mut self.change_source else { return Ok(()) };
        match operation {
            ResponseOperation::Entry(root) => sequence.read_number(&root)?,
            ResponseOperation::SearchDone(outcome) if outcome.code != code::SUCCESS => {
                return Err(search_failed(&self.search, outcome));
            }
            ResponseOperation::SearchDone(_) => {
                let missing = BerError("root DSE without highestCommittedUSN");
                match (listing, sequence.new_changes().ok_or(missing)?) {
                    (ListingKind::Changes, NewChanges::None) => self.wait_for_poll(Instant::now()),
                    (ListingKind::Changes, NewChanges::Unknown) => {
                        self.begin(ListingKind::Whole, sink);
                    }
                    _ => self.begin(listing, sink),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn reconcile_due(&self) -> Instant {
        self.last_reconciled + self.reconcile_interval
    }

    fn wait_for_poll(&mut self, now: Instant) {
        let sweep = self.reconcile_due();
        self.phase = PollPhase::Waiting(match &mut self.change_source {
            ChangeSource::PersistentSearch(..) => sweep,
            ChangeSource::Polling(_, interval) => sweep.min(now + *interval),
            ChangeSource::Numbers(sequence) => sweep.min(now + sequence.pause()),
        });
    }

    fn wake(&mut self, sink: &mut TrackSink, now: Instant) {
        if now >= self.reconcile_due() {
            self.begin(ListingKind::Keys, sink);
        } else {
            self.begin_read(ListingKind::Changes, sink);
        }
    }

    fn request_page(&mut self, listing: ListingKind, connection: &mut LdapConnection) {
        let mut attributes = vec![self.key.as_str()];
        if listing != ListingKind::Keys {
            attributes.extend(self.search.attributes.iter().map(String::as_str));
        }
        let version = self.change_source.version_attribute();
        let is_new = |name: &&str| !attributes.iter().any(|other| other.eq_ignore_ascii_case(name));
        let version = version.filter(is_new);
        attributes.extend(version);
        let base = &self.search.base;
        let request = request(base, self.search.scope, &self.filter, &attributes);
        let controls = self.page_size.map(|size| RequestControl::Paged(size, &self.page));
        let id = connection.queue(&request, controls.as_slice());
        self.phase = PollPhase::Reading(listing, id);
    }

    fn watch(&mut self, connection: &mut LdapConnection, now: Instant) {
        let ChangeSource::PersistentSearch(context, id) = &mut self.change_source else { return };
        let (any, key) = (EncodedFilter::present("objectClass"), [self.key.as_str()]);
        let request = request(context, Scope::Subtree, &any, &key);
        *id = Some(connection.queue(&request, &[RequestControl::PersistentSearch]));
        self.phase = PollPhase::Establishing(now + ESTABLISH);
    }

    /// Requests entries from the queue.
    fn read_queued(&mut self, connection: &mut LdapConnection) {
        let attributes: Vec<&str> =
            self.search.attributes.iter().chain([&self.key]).map(String::as_str).collect();
        for (id, name) in self.reread_queue.take_due() {
            let base = String::from_utf8_lossy(&name);
            let request = request(&base, Scope::Base, &self.search.filter, &attributes);
            self.reread_queue.start_reading(connection.queue(&request, &[]), id);
        }
    }

    fn list(
        &mut self,
        listing: ListingKind,
        entry: &RawEntry<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        let Some(id) = read_key(entry, &self.key)? else {
            return Err(missing_key(entry, &self.key));
        };
        if !self.search.owns_found(entry.dn) {
            return Ok(());
        }
        if self.overtaken.contains(&sink.known.key(self.search.id, id, entry.dn)) {
            return Ok(());
        }
        let (stamp, version) = match self.change_source.version_attribute() {
            Some(attribute) => {
                let stamp = entry.values(attribute)?.next().transpose()?.unwrap_or_default();
                (stamp, self.hasher.hash_one(stamp))
            }
            None => (&b""[..], NO_VERSION),
        };
        match (listing, &mut self.change_source) {
            (ListingKind::Keys, means) => {
                let (key, is_served) = sink.mark_seen(&self.search, id, entry.dn);
                if is_served && stamp.is_empty() && matches!(means, ChangeSource::Numbers(_)) {
                    self.unnumbered.note(&self.search.base);
                    self.needs_full_listing = true;
                    return Ok(());
                }
                let known = self.known.get(&key);
                let is_told = means.covers(stamp);
                if is_told && matches!(means, ChangeSource::Numbers(_)) {
                    return Ok(());
                }
                self.needs_full_listing |= known.is_none_or(|known| *known != version && !is_told)
                    || !sink.known.expects(&self.search, id, entry.dn);
            }
            (ListingKind::Whole | ListingKind::Changes, means) => {
                if let ChangeSource::Polling(stamps, _) = means {
                    stamps.note(stamp, sink.adapter.is_user_or_group(&self.search, entry)?);
                }
                let is_listing = listing == ListingKind::Whole;
                self.needs_full_listing |= sink.put_entry(&self.search, id, entry, is_listing)?;
                self.remember(sink.known.key(self.search.id, id, entry.dn), version)?;
            }
        }
        Ok(())
    }

    fn page_ended(
        &mut self,
        listing: ListingKind,
        response: &LdapResponse<'_>,
        outcome: LdapResult<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        if outcome.code != code::SUCCESS {
            return Err(search_failed(&self.search, outcome));
        }
        self.page = response.controls.page_cookie()?.unwrap_or_default().to_vec();
        if !self.page.is_empty() {
            self.phase = PollPhase::PageDue(listing);
            return Ok(());
        }
        let now = Instant::now();
        if let (ListingKind::Whole, ChangeSource::Polling(stamps, _)) =
            (listing, &mut self.change_source)
        {
            stamps.end_listing(&self.search.base);
        }
        if let (ListingKind::Whole | ListingKind::Changes, ChangeSource::Numbers(sequence)) =
            (listing, &mut self.change_source)
        {
            sequence.end_read();
        }
        if listing == ListingKind::Keys {
            self.needs_full_listing |= sink.known.misses_duplicate(self.search.id);
        }
        if listing != ListingKind::Changes {
            self.last_reconciled = now;
            sink.end_refresh(self.search.id, UnlistedEntries::Missing, None);
        }
        let is_numbered = matches!(self.change_source, ChangeSource::Numbers(_));
        if self.needs_full_listing {
            self.begin_read(ListingKind::Whole, sink);
        } else if is_numbered && listing == ListingKind::Keys {
            // The comparison left changed entries to the next poll. If it is made more often than polls, none is due.
            self.begin_read(ListingKind::Changes, sink);
        } else {
            self.wait_for_poll(now);
        }
        Ok(())
    }

    /// Handles a change that the persistent search reports.
    fn change(
        &mut self,
        response: &LdapResponse<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        match response.operation {
            ResponseOperation::Entry(entry) => {
                let change = response.controls.change_type()?;
                let is_inside = self.search.owns(&dn::normalise(entry.dn));
                if !is_inside && change != Some(CHANGE_MOVE) {
                    return Ok(());
                }
                let Some(id) = read_key(&entry, &self.key)? else {
                    // A report of a removed entry may lack its attributes.
                    self.needs_full_listing = true;
                    return Ok(());
                };
                if !is_inside || change == Some(CHANGE_DELETE) {
                    self.mark_overtaken(id);
                    self.known.remove(&id);
                    self.needs_full_listing |= sink.remove_entry(&self.search, id);
                } else {
                    let may_bring = change == Some(CHANGE_MOVE);
                    self.needs_full_listing |=
                        sink.known.update_name(&self.search, id, entry.dn, may_bring)?;
                    self.needs_full_listing |= !self.reread_queue.push(id, entry.dn);
                }
            }
            ResponseOperation::SearchDone(outcome) => {
                return Err(search_failed(&self.search, outcome));
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles a response to a read from the queue.
    fn handle_queued_response(
        &mut self,
        response: &LdapResponse<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        match response.operation {
            ResponseOperation::Entry(entry) => {
                let Some(id) = read_key(&entry, &self.key)? else {
                    return Err(missing_key(&entry, &self.key));
                };
                self.reread_queue.mark_found(response.id);
                self.needs_full_listing |= sink.put_entry(&self.search, id, &entry, false)?;
                let key = sink.known.key(self.search.id, id, entry.dn);
                self.mark_overtaken(key);
                self.remember(key, NO_VERSION)?;
            }
            ResponseOperation::SearchDone(outcome) => {
                let reading = self.reread_queue.finish_reading(response.id);
                match (reading.filter(|reading| !reading.is_found), outcome.code) {
                    (Some(reading), code::SUCCESS) => {
                        self.mark_overtaken(reading.id);
                        self.known.remove(&reading.id);
                        self.needs_full_listing |= sink.report_missing(&self.search, reading.id);
                    }
                    // It was removed or renamed meanwhile. The server reports that too.
                    (None, _) | (_, code::NO_SUCH_OBJECT) => {}
                    (Some(_), _) => return Err(search_failed(&self.search, outcome)),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn remember(&mut self, id: EntryId, version: u64) -> Result<(), LdapError> {
        self.known.insert(id, version);
        LimitExceeded::unless(self.known.len() <= ENTRIES_MAX, "entries", ENTRIES_MAX)
            .map_err(|most| too_many_entries(&self.search, most))
    }

    /// Records that a listing in progress may show an older state of the entry.
    fn mark_overtaken(&mut self, id: EntryId) {
        self.overtaken.insert(id);
        if self.overtaken.len() > OVERTAKEN_MAX {
            self.overtaken.clear();
            self.needs_full_listing = !matches!(self.phase, PollPhase::Waiting(_));
        }
    }
}

fn request<'a>(
    base: &'a str,
    scope: Scope,
    filter: &'a EncodedFilter,
    attributes: &'a [&'a str],
) -> LdapRequest<'a> {
    LdapRequest::Search(SearchRequest { base, scope, filter, attributes, entries_max: 0 })
}

impl Track for Enumeration {
    fn act(&mut self, connection: &mut LdapConnection, sink: &mut TrackSink, now: Instant) {
        self.needs_full_listing |= sink.signals.take_full_listing(self.search.id);
        match (self.phase, &self.change_source) {
            (PollPhase::Asleep, ChangeSource::PersistentSearch(..)) => self.watch(connection, now),
            (PollPhase::Asleep, _) => self.begin_read(ListingKind::Whole, sink),
            (PollPhase::Establishing(until), _) if now >= until => {
                self.begin(ListingKind::Whole, sink);
            }
            (PollPhase::Waiting(_), _) if self.needs_full_listing => {
                self.begin_read(ListingKind::Whole, sink);
            }
            (PollPhase::Waiting(until), _) if now >= until => self.wake(sink, now),
            _ => {}
        }
        match self.phase {
            PollPhase::PageDue(listing) => self.request_page(listing, connection),
            PollPhase::NumberDue(listing) => self.request_number(listing, connection),
            _ => {}
        }
        self.read_queued(connection);
    }

    fn owns(&self, id: u32) -> bool {
        matches!(self.phase, PollPhase::Reading(_, reading) | PollPhase::ReadingNumber(_, reading) if reading == id)
            || self.reread_queue.owns(id)
            || matches!(self.change_source, ChangeSource::PersistentSearch(_, Some(search)) if search == id)
    }

    fn handle_response(
        &mut self,
        response: &LdapResponse<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        match (self.phase, response.operation) {
            (PollPhase::ReadingNumber(listing, id), operation) if id == response.id => {
                self.handle_number(listing, operation, sink)
            }
            (PollPhase::Reading(listing, id), operation) if id == response.id => match operation {
                ResponseOperation::Entry(entry) => self.list(listing, &entry, sink),
                ResponseOperation::SearchDone(outcome) => {
                    self.page_ended(listing, response, outcome, sink)
                }
                _ => Ok(()),
            },
            _ if self.reread_queue.owns(response.id) => self.handle_queued_response(response, sink),
            _ => self.change(response, sink),
        }
    }

    fn awaits(&self) -> bool {
        self.reread_queue.is_reading()
            || !matches!(self.phase, PollPhase::Waiting(_) | PollPhase::Establishing(_))
    }

    fn is_settled(&self) -> bool {
        matches!(self.phase, PollPhase::Waiting(_)) && !self.needs_full_listing
    }

    fn due(&self) -> Option<Instant> {
        match self.phase {
            PollPhase::Waiting(_) if self.needs_full_listing => Some(Instant::now()),
            PollPhase::Waiting(until) | PollPhase::Establishing(until) => Some(until),
            _ => None,
        }
    }
}
