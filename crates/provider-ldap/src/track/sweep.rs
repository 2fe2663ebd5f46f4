//! Finds out which entries there are, beside a server that tells of changes: nobody tells of an entry that
//! comes to match the search, or no longer does, without a change of its own. That is so with filters over
//! what a server works out (`memberOf`, `nsRole`), with changed access rules, with folders of unusual
//! classes that come with their entries, and with entries that a server lets expire.
//!
//! From time to time the keys of all entries are listed, one search after the other, for OpenLDAP knows of
//! one paged listing for each connection. What is not known is read, for which it becomes
//! [wanted](super::rereading); what is known and not listed is gone, under the same guard against mass
//! deletions as ever. What is told meanwhile counts. A listing that is cut short was for nothing, and costs
//! nobody the connection.
//!
//! Where the filter names what the server works out, the stamps are listed as well: of such entries a server
//! may tell no changes at all, so that those with another stamp than the last time are read too, and those
//! that do not show one.

use super::twins::{ENTRIES_MAX, TooMany};
use super::{Ear, Track, keyless, search_failed, too_many};
use crate::connection::Connection;
use crate::error::Error;
use crate::message::{
    Control, Operation, Outcome, RawEntry, Request, Response, Scope, SearchRequest, code,
};
use crate::schema::{PartSearch, entry_id};
use roster_provider::{EntryId, spread};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::Instant;

/// How long after the change of a group what the server works out of groups is looked at.
const HURRY: Duration = Duration::from_secs(2);
/// The least between two sweeps for that reason, unless they are wanted more often in any case.
const HURRY_PAUSE: Duration = Duration::from_secs(30);
/// Sweeps take at most one part of the time in so many: a thousand hosts are five threads of a server.
const SHARE: u32 = 200;
/// A sweep whose time comes while the part is brought up to date waits so long, and again.
const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// Entries that are read one by one; of more, everything is.
const STRANGERS_MAX: usize = 10_000;

/// How often, and how patiently.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The time between two sweeps.
    pub every: Duration,
    /// How long the server may be silent in the middle of one.
    pub patience: Duration,
}

impl Pace {
    /// The pause before the next one, of what is done once for each connection.
    pub fn pause_by_chance(self) -> Duration {
        self.pause((RandomState::new().hash_one(()) >> 32) as u32)
    }

    /// The pause before the next one, a fifth more or less by chance.
    fn pause(self, random: u32) -> Duration {
        spread::least(self.every) + spread::drawn(self.every, random)
    }

    /// The pause after one that took so long, whatever the hurry.
    pub fn rest(self, took: Duration) -> Duration {
        HURRY_PAUSE.min(self.every).max(took * SHARE)
    }
}

/// When a search is swept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    due: Instant,
    /// Not before, for a sweep has just ended.
    rested: Instant,
}

impl Schedule {
    pub fn new(now: Instant, pause: Duration) -> Self {
        Self { due: now + pause, rested: now }
    }

    pub fn due(&self) -> Instant {
        self.due
    }

    /// There is a reason to look soon.
    pub fn hurry(&mut self, now: Instant) {
        self.due = self.due.min(self.rested.max(now + HURRY));
    }

    /// A sweep begins; the next is due after a pause.
    pub fn begin(&mut self, now: Instant, pause: Duration) {
        self.due = now + pause;
    }

    /// It cannot begin now.
    pub fn put_off(&mut self, now: Instant) {
        self.due = now + BUSY_PAUSE;
    }

    /// It is over; what has come up meanwhile waits for the rest.
    pub fn end(&mut self, now: Instant, rest: Duration) {
        self.rested = now + rest;
        self.due = self.due.max(self.rested);
    }
}

/// The stamps of entries, each as a hash.
type Stamps = HashMap<EntryId, u64>;

/// One search that is swept.
struct Place {
    search: PartSearch,
    schedule: Schedule,
    /// What the last sweep saw, where stamps are listed.
    stamps: Option<Stamps>,
    /// The last one had everything listed, which was of no use if there are as many strangers again.
    was_flooded: bool,
}

/// A sweep that is going on.
struct Listing {
    place: usize,
    request: Option<u32>,
    page: Vec<u8>,
    began: Instant,
    heard: Instant,
    /// Entries to read.
    strangers: Vec<EntryId>,
    is_flooded: bool,
    stamps: Stamps,
    /// Some entries do not show theirs, and may have changed at any time.
    is_unstamped: bool,
    /// Of an entry without a key, which may be any.
    keyless: Option<Error>,
}

/// Sweeps all searches of a connection.
pub(crate) struct Sweep {
    places: Vec<Place>,
    key: &'static str,
    stamp: &'static str,
    page_size: Option<u32>,
    pace: Pace,
    listing: Option<Listing>,
    random: RandomState,
    draws: u64,
}

impl Sweep {
    pub fn new(
        searches: &[PartSearch],
        key: &'static str,
        stamp: &'static str,
        page_size: Option<u32>,
        pace: Pace,
        now: Instant,
    ) -> Self {
        let mut sweep = Self {
            places: Vec::new(),
            key,
            stamp,
            page_size,
            pace,
            listing: None,
            random: RandomState::new(),
            draws: 0,
        };
        for search in searches {
            let schedule = Schedule::new(now, sweep.pause());
            let search = search.clone();
            sweep.places.push(Place { search, schedule, stamps: None, was_flooded: false });
        }
        // Groups may have changed while nobody listened.
        sweep.stir(now);
        sweep
    }

    fn pause(&mut self) -> Duration {
        self.draws += 1;
        self.pace.pause((self.random.hash_one(self.draws) >> 32) as u32)
    }

    /// What the server works out may be another.
    fn stir(&mut self, now: Instant) {
        for place in self.places.iter_mut().filter(|place| place.search.is_worked_out) {
            place.schedule.hurry(now);
        }
    }

    /// Begins the next one whose time has come, as long as nothing else is being read.
    fn begin(&mut self, ear: &mut Ear, now: Instant) {
        if self.places.iter().all(|place| place.schedule.due > now) {
            return;
        }
        let pause = self.pause();
        for (number, place) in self.places.iter_mut().enumerate() {
            let part = place.search.part;
            if place.schedule.due > now {
                continue;
            }
            if ear.is_busy(part) || ear.is_waiting(part) {
                place.schedule.put_off(now);
                continue;
            }
            place.schedule.begin(now, pause);
            ear.sweep_began(part);
            self.listing = Some(Listing {
                place: number,
                request: None,
                page: Vec::new(),
                began: now,
                heard: now,
                strangers: Vec::new(),
                is_flooded: false,
                stamps: Stamps::new(),
                is_unstamped: false,
                keyless: None,
            });
            return;
        }
    }

    /// Goes on with the one that is going on, if that is still of use.
    fn go_on(&mut self, connection: &mut Connection, ear: &mut Ear, now: Instant) {
        let Some(listing) = &self.listing else { return };
        let Some(place) = self.places.get_mut(listing.place) else { return };
        if ear.is_refreshing(place.search.part) {
            // Another reading has begun, and this one is void.
            place.schedule.hurry(now);
            self.drop_listing(connection);
        } else if now >= listing.heard + self.pace.patience {
            tracing::warn!(
                base = place.search.base,
                "the server was silent for {:?} while it listed the keys of all entries, which is tried \
                 again later; a higher search_timeout gives it more time",
                self.pace.patience
            );
            self.drop_listing(connection).into_iter().for_each(|one| self.end(one, false, ear));
        } else if listing.request.is_none() {
            self.turn_page(connection, ear, now);
        }
    }

    fn drop_listing(&mut self, connection: &mut Connection) -> Option<Listing> {
        let listing = self.listing.take()?;
        if let Some(id) = listing.request {
            connection.queue(&Request::Abandon(id), &[]);
        }
        Some(listing)
    }

    fn turn_page(&mut self, connection: &mut Connection, ear: &Ear, now: Instant) {
        let Some(listing) = &mut self.listing else { return };
        let Some(Place { search, .. }) = self.places.get(listing.place) else { return };
        let mut attributes = vec![self.key];
        attributes.extend(ear.telling());
        attributes.extend(search.is_worked_out.then_some(self.stamp));
        let request = Request::Search(SearchRequest {
            base: &search.base,
            scope: Scope::Subtree,
            filter: &search.filter,
            attributes: &attributes,
            entries_max: 0,
        });
        let controls = self.page_size.map(|size| Control::Paged(size, &listing.page));
        listing.request = Some(connection.queue(&request, controls.as_slice()));
        listing.heard = now;
    }

    fn list(&mut self, entry: &RawEntry<'_>, ear: &mut Ear) -> Result<(), Error> {
        let Some(listing) = &mut self.listing else { return Ok(()) };
        let Some(place) = self.places.get(listing.place) else { return Ok(()) };
        let search = &place.search;
        listing.heard = Instant::now();
        let id = entry.values(self.key)?.next().transpose()?.and_then(entry_id);
        let Some(id) = id else {
            listing.keyless.get_or_insert_with(|| keyless(entry, self.key));
            return Ok(());
        };
        let (key, is_known) = ear.seen(search, id, entry.dn);
        let mut is_stranger = !is_known || !ear.expects(search, id, entry.dn);
        if search.is_worked_out {
            let stamp = entry.values(self.stamp)?.next().transpose()?.unwrap_or_default();
            let is_unstamped = stamp.is_empty();
            listing.is_unstamped |= is_unstamped;
            let stamp = self.random.hash_one(stamp);
            let is_other = |last: &Stamps| is_unstamped || last.get(&key) != Some(&stamp);
            is_stranger |= place.stamps.as_ref().is_some_and(is_other);
            listing.stamps.insert(key, stamp);
            TooMany::unless(listing.stamps.len() <= ENTRIES_MAX, "entries", ENTRIES_MAX)
                .map_err(|most| too_many(search, most))?;
        }
        if is_stranger && ear.is_told(search, entry)? {
            listing.is_flooded |= listing.strangers.len() >= STRANGERS_MAX;
            if !listing.is_flooded {
                listing.strangers.push(id);
            }
        }
        Ok(())
    }

    fn page_ended(
        &mut self,
        response: &Response<'_>,
        outcome: Outcome<'_>,
        ear: &mut Ear,
    ) -> Result<(), Error> {
        let Some(mut listing) = self.listing.take() else { return Ok(()) };
        let Some(place) = self.places.get(listing.place) else { return Ok(()) };
        let failure = match outcome.code {
            code::SUCCESS => listing.keyless.take(),
            _ => Some(search_failed(&place.search, outcome)),
        };
        if let Some(error) = &failure {
            tracing::warn!(
                %error,
                "the keys of all entries cannot be listed, which is tried again later"
            );
        }
        listing.request = None;
        listing.page = response.controls.page_cookie()?.unwrap_or_default().to_vec();
        if failure.is_none() && !listing.page.is_empty() {
            self.listing = Some(listing);
        } else {
            self.end(listing, failure.is_none(), ear);
        }
        Ok(())
    }

    /// It is over; if not all was listed, nothing follows from it.
    fn end(&mut self, listing: Listing, is_whole: bool, ear: &mut Ear) {
        let Some(place) = self.places.get_mut(listing.place) else { return };
        let now = Instant::now();
        place.schedule.end(now, self.pace.rest(now.duration_since(listing.began)));
        let part = place.search.part;
        let misses_any = is_whole && ear.misses_any(part);
        ear.sweep_ended(part, is_whole);
        if !is_whole {
            return;
        }
        let was_flooded = std::mem::replace(&mut place.was_flooded, listing.is_flooded);
        place.stamps = place.search.is_worked_out.then_some(listing.stamps);
        let is_news = !was_flooded || listing.is_unstamped;
        if misses_any || listing.is_flooded && is_news {
            ear.fall_behind(part);
        } else if !listing.strangers.is_empty() {
            let entries = listing.strangers.len();
            tracing::debug!(entries, "entries may have changed without a word and are read anew");
            ear.want(part, listing.strangers);
        }
    }
}

impl Track for Sweep {
    fn act(&mut self, connection: &mut Connection, ear: &mut Ear, now: Instant) {
        if ear.take_stirred() {
            self.stir(now);
        }
        if self.listing.is_none() {
            self.begin(ear, now);
        }
        self.go_on(connection, ear, now);
    }

    fn owns(&self, id: u32) -> bool {
        self.listing.as_ref().is_some_and(|listing| listing.request == Some(id))
    }

    fn hear(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error> {
        match response.operation {
            Operation::Entry(entry) => self.list(&entry, ear),
            Operation::SearchDone(outcome) => self.page_ended(response, outcome, ear),
            _ => Ok(()),
        }
    }

    /// A sweep that takes too long is given up; the connection is not.
    fn awaits(&self) -> bool {
        false
    }

    /// Changes that are told do not wait for it.
    fn is_settled(&self) -> bool {
        true
    }

    fn due(&self) -> Option<Instant> {
        match &self.listing {
            Some(listing) => Some(listing.heard + self.pace.patience),
            None => self.places.iter().map(|place| place.schedule.due).min(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(900);
    const PACE: Pace = Pace { every: EVERY, patience: Duration::from_secs(30) };

    #[test]
    fn pauses_differ_by_a_fifth_so_that_hosts_do_not_come_together() {
        assert_eq!(PACE.pause(0), EVERY * 4 / 5);
        assert_eq!(PACE.pause(u32::MAX), EVERY * 6 / 5);
    }

    #[test]
    fn a_server_that_takes_long_is_asked_less_often() {
        assert_eq!(PACE.rest(Duration::from_millis(10)), HURRY_PAUSE);
        assert_eq!(PACE.rest(Duration::from_secs(10)), Duration::from_secs(2000));
        let often = Pace { every: Duration::from_secs(2), ..PACE };
        assert_eq!(often.rest(Duration::ZERO), often.every);
    }

    #[test]
    fn who_is_in_a_hurry_waits_for_what_belongs_together_and_for_the_rest() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut schedule = Schedule { due: after(900), rested: start };
        schedule.hurry(start);
        schedule.hurry(after(1));
        assert_eq!(schedule.due, after(2), "of several reasons the first counts");
        schedule.begin(after(2), EVERY);
        assert_eq!(schedule.due, after(902));
        schedule.end(after(3), HURRY_PAUSE);
        assert_eq!(schedule.due, after(902));
        schedule.hurry(after(4));
        assert_eq!(schedule.due, after(33));
        // A reason that comes up in the middle of one is not forgotten.
        schedule.begin(after(33), EVERY);
        schedule.hurry(after(34));
        schedule.end(after(40), HURRY_PAUSE);
        assert_eq!(schedule.due, after(70));
    }

    #[test]
    fn a_long_sweep_puts_the_next_one_off() {
        let start = Instant::now();
        let mut schedule = Schedule { due: start, rested: start };
        schedule.begin(start, EVERY);
        let took = Duration::from_secs(10);
        schedule.end(start + took, PACE.rest(took));
        assert_eq!(schedule.due, start + took + took * SHARE);
    }
}
