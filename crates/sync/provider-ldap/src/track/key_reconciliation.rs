// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds entries that a synchronizing server does not report. An entry may begin or cease to match the search without a
//! change of the entry. The causes are filters over computed attributes (`memberOf`, `nsRole`), changed access rules,
//! containers of unusual classes that move with their entries, and entries that expire at the server.
//!
//! At intervals the keys of all entries are listed, one search after the other, because OpenLDAP supports one paged
//! listing for each connection. Unknown entries are read by [`targeted_reread`](super::targeted_reread). Known entries
//! without a listed key are gone, under the usual guard against mass deletion. Changes during the listing take
//! precedence. An incomplete listing has no effect, and the connection stays open.
//!
//! If the filter names a computed attribute, the stamps are listed as well, because the server may not report changes
//! of such entries. Entries with another stamp than the last time, or without one, are read too.

use super::duplicate_uuid::{ENTRIES_MAX, LimitExceeded};
use super::{Track, TrackSink, search_failed, too_many_entries};
use crate::connection::LdapConnection;
use crate::entry_key::{missing_key, read_key};
use crate::error::LdapError;
use crate::message::{
    LdapRequest, LdapResponse, LdapResult, RawEntry, RequestControl, ResponseOperation,
    SearchRequest, code,
};
use crate::search::MirrorSearch;
use roster_messages::{log, table::directory};
use roster_provider::{EntryId, jitter};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::Instant;

/// Delay after the change of a group before entries with computed attributes are listed.
const SOON: Duration = Duration::from_secs(2);
/// Minimum pause between two reconciliations for that reason, unless the configured interval is shorter.
const SOON_PAUSE: Duration = Duration::from_secs(30);
/// A reconciliation takes at most this fraction of the time: a thousand hosts occupy five threads of a server.
const TIME_SHARE: u32 = 200;
/// Delay of a reconciliation that falls due while the search is being refreshed.
const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// Limit of entries that are read one by one. If there are more, all entries are listed.
const UNKNOWN_MAX: usize = 10_000;

/// Times of reconciliations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReconcileTiming {
    /// The interval.
    pub every: Duration,
    /// Limit of the server's silence during a listing.
    pub silence_max: Duration,
}

impl ReconcileTiming {
    /// Returns the pause before the next run, for runs that happen once on each connection.
    pub fn jittered_pause(self) -> Duration {
        self.pause_with_jitter((RandomState::new().hash_one(()) >> 32) as u32)
    }

    /// Returns the pause before the next run, with a random deviation of up to a fifth.
    fn pause_with_jitter(self, random: u32) -> Duration {
        jitter::shortest(self.every) + jitter::jitter(self.every, random)
    }

    /// Returns the minimum pause after a run of this duration.
    pub fn rest(self, took: Duration) -> Duration {
        SOON_PAUSE.min(self.every).max(took * TIME_SHARE)
    }
}

/// The schedule of one search.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReconcileSchedule {
    due: Instant,
    /// The earliest next run, because one has just ended.
    not_before: Instant,
}

impl ReconcileSchedule {
    pub fn new(now: Instant, pause: Duration) -> Self {
        Self { due: now + pause, not_before: now }
    }

    pub fn due(&self) -> Instant {
        self.due
    }

    /// Schedules a run soon.
    pub fn schedule_soon(&mut self, now: Instant) {
        self.due = self.due.min(self.not_before.max(now + SOON));
    }

    /// Begins a run. The next one is due after the pause.
    pub fn begin(&mut self, now: Instant, pause: Duration) {
        self.due = now + pause;
    }

    /// Postpones a run that cannot begin now.
    pub fn postpone(&mut self, now: Instant) {
        self.due = now + BUSY_PAUSE;
    }

    /// Ends a run. Runs that were scheduled meanwhile wait for the pause.
    pub fn end(&mut self, now: Instant, rest: Duration) {
        self.not_before = now + rest;
        self.due = self.due.max(self.not_before);
    }
}

/// The stamps of entries, each as a hash.
type StampHashes = HashMap<EntryId, u64>;

/// One search and its schedule.
struct ReconciledSearch {
    search: MirrorSearch,
    schedule: ReconcileSchedule,
    /// The stamps of the last run, if they are listed.
    stamps: Option<StampHashes>,
    /// The last run required a full listing. If there are as many unknown entries again, that did not help.
    was_overflowed: bool,
}

/// A listing of keys in progress.
struct KeyListing {
    search_index: usize,
    request: Option<u32>,
    page: Vec<u8>,
    began: Instant,
    last_received: Instant,
    /// Keys of entries to read.
    unknown: Vec<EntryId>,
    is_overflowed: bool,
    stamps: StampHashes,
    /// Some entries do not show their stamps, and may have changed at any time.
    is_unstamped: bool,
    /// The error of an entry without a key, which may be any entry.
    keyless: Option<LdapError>,
}

/// Reconciles all searches of a connection.
pub(crate) struct KeyReconciliation {
    searches: Vec<ReconciledSearch>,
    key: &'static str,
    stamp: &'static str,
    page_size: Option<u32>,
    timing: ReconcileTiming,
    listing: Option<KeyListing>,
    random: RandomState,
    draws: u64,
}

impl KeyReconciliation {
    pub fn new(
        searches: &[MirrorSearch],
        key: &'static str,
        stamp: &'static str,
        page_size: Option<u32>,
        pace: ReconcileTiming,
        now: Instant,
    ) -> Self {
        let mut sweep = Self {
            searches: Vec::new(),
            key,
            stamp,
            page_size,
            timing: pace,
            listing: None,
            random: RandomState::new(),
            draws: 0,
        };
        for search in searches {
            let schedule = ReconcileSchedule::new(now, sweep.pause());
            let search = search.clone();
            sweep.searches.push(ReconciledSearch {
                search,
                schedule,
                stamps: None,
                was_overflowed: false,
            });
        }
        // Groups may have changed while no connection was open.
        sweep.schedule_computed_searches(now);
        sweep
    }

    fn pause(&mut self) -> Duration {
        self.draws += 1;
        self.timing.pause_with_jitter((self.random.hash_one(self.draws) >> 32) as u32)
    }

    /// Schedules the searches with computed attributes, because their values may have changed.
    fn schedule_computed_searches(&mut self, now: Instant) {
        for place in self.searches.iter_mut().filter(|place| place.search.has_computed_attribute) {
            place.schedule.schedule_soon(now);
        }
    }

    /// Begins the next due run, if no other read is in progress.
    fn begin(&mut self, sink: &mut TrackSink, now: Instant) {
        if self.searches.iter().all(|place| place.schedule.due > now) {
            return;
        }
        let pause = self.pause();
        for (number, place) in self.searches.iter_mut().enumerate() {
            let part = place.search.id;
            if place.schedule.due > now {
                continue;
            }
            if sink.is_busy(part) || sink.rereads.is_waiting(part) {
                place.schedule.postpone(now);
                continue;
            }
            place.schedule.begin(now, pause);
            sink.begin_key_listing(part);
            self.listing = Some(KeyListing {
                search_index: number,
                request: None,
                page: Vec::new(),
                began: now,
                last_received: now,
                unknown: Vec::new(),
                is_overflowed: false,
                stamps: StampHashes::new(),
                is_unstamped: false,
                keyless: None,
            });
            return;
        }
    }

    /// Continues the listing in progress, if it is still useful.
    fn continue_listing(
        &mut self,
        connection: &mut LdapConnection,
        sink: &mut TrackSink,
        now: Instant,
    ) {
        let Some(listing) = &self.listing else { return };
        let Some(place) = self.searches.get_mut(listing.search_index) else { return };
        if sink.known.is_refreshing(place.search.id) {
            // A full listing has begun, which makes this one void.
            place.schedule.schedule_soon(now);
            self.drop_listing(connection);
        } else if now >= listing.last_received + self.timing.silence_max {
            log!(
                WARN,
                &directory::KEY_LISTING_TIMEOUT,
                base = place.search.base,
                "no reply for {:?} to the listing of all keys; retrying later",
                self.timing.silence_max
            );
            self.drop_listing(connection).into_iter().for_each(|one| self.end(one, false, sink));
        } else if listing.request.is_none() {
            self.request_page(connection, sink, now);
        }
    }

    fn drop_listing(&mut self, connection: &mut LdapConnection) -> Option<KeyListing> {
        let listing = self.listing.take()?;
        if let Some(id) = listing.request {
            connection.queue(&LdapRequest::Abandon(id), &[]);
        }
        Some(listing)
    }

    fn request_page(&mut self, connection: &mut LdapConnection, sink: &TrackSink, now: Instant) {
        let Some(listing) = &mut self.listing else { return };
        let Some(ReconciledSearch { search, .. }) = self.searches.get(listing.search_index) else {
            return;
        };
        let mut attributes = vec![self.key];
        attributes.extend(sink.adapter.mapping.classifying_attributes());
        attributes.extend(search.has_computed_attribute.then_some(self.stamp));
        let request = LdapRequest::Search(SearchRequest {
            base: &search.base,
            scope: search.scope,
            filter: &search.filter,
            attributes: &attributes,
            entries_max: 0,
        });
        let controls = self.page_size.map(|size| RequestControl::Paged(size, &listing.page));
        listing.request = Some(connection.queue(&request, controls.as_slice()));
        listing.last_received = now;
    }

    fn list(&mut self, entry: &RawEntry<'_>, sink: &mut TrackSink) -> Result<(), LdapError> {
        let Some(listing) = &mut self.listing else { return Ok(()) };
        let Some(place) = self.searches.get(listing.search_index) else { return Ok(()) };
        let search = &place.search;
        listing.last_received = Instant::now();
        if !search.owns_found(entry.dn) {
            return Ok(());
        }
        let id = read_key(entry, self.key)?;
        let Some(id) = id else {
            listing.keyless.get_or_insert_with(|| missing_key(entry, self.key));
            return Ok(());
        };
        let (key, is_known) = sink.mark_seen(search, id, entry.dn);
        let mut is_stranger = !is_known || !sink.known.expects(search, id, entry.dn);
        if search.has_computed_attribute {
            let stamp = entry.values(self.stamp)?.next().transpose()?.unwrap_or_default();
            let is_unstamped = stamp.is_empty();
            listing.is_unstamped |= is_unstamped;
            let stamp = self.random.hash_one(stamp);
            let is_other = |last: &StampHashes| is_unstamped || last.get(&key) != Some(&stamp);
            is_stranger |= place.stamps.as_ref().is_some_and(is_other);
            listing.stamps.insert(key, stamp);
            LimitExceeded::unless(listing.stamps.len() <= ENTRIES_MAX, "entries", ENTRIES_MAX)
                .map_err(|most| too_many_entries(search, most))?;
        }
        if is_stranger && sink.adapter.is_user_or_group(search, entry)? {
            listing.is_overflowed |= listing.unknown.len() >= UNKNOWN_MAX;
            if !listing.is_overflowed {
                listing.unknown.push(id);
            }
        }
        Ok(())
    }

    fn page_ended(
        &mut self,
        response: &LdapResponse<'_>,
        outcome: LdapResult<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        let Some(mut listing) = self.listing.take() else { return Ok(()) };
        let Some(place) = self.searches.get(listing.search_index) else { return Ok(()) };
        let failure = match outcome.code {
            code::SUCCESS => listing.keyless.take(),
            _ => Some(search_failed(&place.search, outcome)),
        };
        if let Some(error) = &failure {
            log!(
                WARN,
                &directory::KEY_LISTING_FAILED,
                %error,
                "the keys of all entries cannot be listed; retrying later"
            );
        }
        listing.request = None;
        listing.page = response.controls.page_cookie()?.unwrap_or_default().to_vec();
        if failure.is_none() && !listing.page.is_empty() {
            self.listing = Some(listing);
        } else {
            self.end(listing, failure.is_none(), sink);
        }
        Ok(())
    }

    /// Ends a listing. An incomplete one has no effect.
    fn end(&mut self, listing: KeyListing, is_whole: bool, sink: &mut TrackSink) {
        let Some(place) = self.searches.get_mut(listing.search_index) else { return };
        let now = Instant::now();
        place.schedule.end(now, self.timing.rest(now.duration_since(listing.began)));
        let part = place.search.id;
        let misses_any = is_whole && sink.known.misses_duplicate(part);
        sink.end_key_listing(part, is_whole);
        if !is_whole {
            return;
        }
        let was_flooded = std::mem::replace(&mut place.was_overflowed, listing.is_overflowed);
        place.stamps = place.search.has_computed_attribute.then_some(listing.stamps);
        let is_news = !was_flooded || listing.is_unstamped;
        if misses_any || listing.is_overflowed && is_news {
            sink.signals.require_full_listing(part);
        } else if !listing.unknown.is_empty() {
            let entries = listing.unknown.len();
            tracing::debug!(entries, "re-reading entries that may have changed silently");
            sink.request_reread(part, listing.unknown);
        }
    }
}

impl Track for KeyReconciliation {
    fn act(&mut self, connection: &mut LdapConnection, sink: &mut TrackSink, now: Instant) {
        if sink.signals.take_group_changes() {
            self.schedule_computed_searches(now);
        }
        if self.listing.is_none() {
            self.begin(sink, now);
        }
        self.continue_listing(connection, sink, now);
    }

    fn owns(&self, id: u32) -> bool {
        self.listing.as_ref().is_some_and(|listing| listing.request == Some(id))
    }

    fn handle_response(
        &mut self,
        response: &LdapResponse<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        match response.operation {
            ResponseOperation::Entry(entry) => self.list(&entry, sink),
            ResponseOperation::SearchDone(outcome) => self.page_ended(response, outcome, sink),
            _ => Ok(()),
        }
    }

    /// A slow listing is abandoned. The connection stays open.
    fn awaits(&self) -> bool {
        false
    }

    /// Reported changes do not wait for it.
    fn is_settled(&self) -> bool {
        true
    }

    fn due(&self) -> Option<Instant> {
        match &self.listing {
            Some(listing) => Some(listing.last_received + self.timing.silence_max),
            None => self.searches.iter().map(|place| place.schedule.due).min(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(900);
    const PACE: ReconcileTiming =
        ReconcileTiming { every: EVERY, silence_max: Duration::from_secs(30) };

    #[test]
    fn pauses_differ_by_a_fifth_so_that_hosts_do_not_come_together() {
        assert_eq!(PACE.pause_with_jitter(0), EVERY * 4 / 5);
        assert_eq!(PACE.pause_with_jitter(u32::MAX), EVERY * 6 / 5);
    }

    #[test]
    fn a_server_that_takes_long_is_asked_less_often() {
        assert_eq!(PACE.rest(Duration::from_millis(10)), SOON_PAUSE);
        assert_eq!(PACE.rest(Duration::from_secs(10)), Duration::from_secs(2000));
        let often = ReconcileTiming { every: Duration::from_secs(2), ..PACE };
        assert_eq!(often.rest(Duration::ZERO), often.every);
    }

    #[test]
    fn reconciliation_urgent_key_waits_for_its_batch() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut schedule = ReconcileSchedule { due: after(900), not_before: start };
        schedule.schedule_soon(start);
        schedule.schedule_soon(after(1));
        assert_eq!(schedule.due, after(2), "of several reasons the first counts");
        schedule.begin(after(2), EVERY);
        assert_eq!(schedule.due, after(902));
        schedule.end(after(3), SOON_PAUSE);
        assert_eq!(schedule.due, after(902));
        schedule.schedule_soon(after(4));
        assert_eq!(schedule.due, after(33));
        // A reason that arrives during a run is not forgotten.
        schedule.begin(after(33), EVERY);
        schedule.schedule_soon(after(34));
        schedule.end(after(40), SOON_PAUSE);
        assert_eq!(schedule.due, after(70));
    }

    #[test]
    fn a_long_sweep_puts_the_next_one_off() {
        let start = Instant::now();
        let mut schedule = ReconcileSchedule { due: start, not_before: start };
        schedule.begin(start, EVERY);
        let took = Duration::from_secs(10);
        schedule.end(start + took, PACE.rest(took));
        assert_eq!(schedule.due, start + took + took * TIME_SHARE);
    }
}
