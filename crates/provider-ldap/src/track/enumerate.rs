//! Following servers that do not offer content synchronization: everything is listed once, then
//! changes are learned of by persistent search, or by asking from time to time what was modified.
//!
//! A persistent search speaks of whatever changes below the base, and each entry that it speaks of is
//! read ([`notices`](super::notices)). Time stamps are silent about removals, about entries that
//! move with their parents, and about changes that a replica brings in long after they were stamped;
//! and a notice may be lost. So the keys of all entries, and their
//! stamps where it is by those that changes are learned of, are compared from time to time
//! ("swept"), and everything is listed again when they show something that is not known. Of a user or
//! group that does not show its stamp no poll tells, so that where there is one every poll lists
//! everything. There are no cookies: a new connection lists everything.

use super::notices::Notices;
use super::twins::{ENTRIES_MAX, TooMany};
use super::{Ear, Track, is_later, keyless, search_failed, too_many};
use crate::connection::Connection;
use crate::dn;
use crate::error::Error;
use crate::filter::Filter;
use crate::message::{
    CHANGE_DELETE, CHANGE_MOVE, Control, Operation, Outcome, RawEntry, Request, Response, Scope,
    SearchRequest, code,
};
use crate::schema::{PartSearch, entry_id};
use roster_provider::{EntryId, Unmentioned};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How often the keys of all entries are compared by who polls, who learns of every removal in this way:
/// in polls.
const SWEEP_POLLS: u32 = 10;
/// A persistent search is not confirmed: it is given so long to be in place before the listing that
/// it must not leave a gap to.
const ESTABLISH: Duration = Duration::from_millis(200);

/// Entries that may be spoken of during one listing; of more, it is repeated.
const OVERTAKEN_MAX: usize = 100_000;

/// Where entries have no stamps.
const NO_VERSION: u64 = 0;

/// How changes are learned of between two sweeps.
enum Means {
    /// By persistent search, below this base; the request's id once it is sent.
    PersistentSearch(String, Option<u32>),
    /// By asking for entries whose stamp is as new as the newest known.
    Polling(Stamps, Duration),
}

/// What marks entries as modified.
struct Stamps {
    attribute: &'static str,
    /// The newest stamp of the listing or poll before the last, so that each poll overlaps the one
    /// before: in a replicated directory stamps may arrive a little out of order.
    since: Vec<u8>,
    newest: Vec<u8>,
    /// A user or group of the last listing does not show one.
    is_missing: bool,
    /// Searches of which that was said, for the status.
    missing: Arc<AtomicUsize>,
    was_missing: bool,
}

impl Stamps {
    fn new(attribute: &'static str, missing: Arc<AtomicUsize>) -> Self {
        let (since, newest) = (Vec::new(), Vec::new());
        Self { attribute, since, newest, is_missing: false, missing, was_missing: false }
    }

    /// An entry's stamp; nothing where it does not show one.
    fn of<'a>(&self, entry: &RawEntry<'a>) -> Result<&'a [u8], Error> {
        Ok(entry.values(self.attribute)?.next().transpose()?.unwrap_or_default())
    }

    fn note(&mut self, stamp: &[u8], is_told: bool) {
        self.is_missing |= is_told && stamp.is_empty();
        if is_later(stamp, &self.newest) {
            self.newest = stamp.to_vec();
        }
    }

    /// Whether the next poll asks for entries of this stamp.
    fn covers(&self, stamp: &[u8]) -> bool {
        !is_later(&self.since, stamp)
    }

    /// What changed lately; `None` where only listing everything tells.
    fn changed(&mut self) -> Option<Filter> {
        let since = std::mem::replace(&mut self.since, self.newest.clone());
        let tells = !since.is_empty() && !self.is_missing;
        tells.then(|| Filter::at_least(self.attribute, &since))
    }

    /// Everything is about to be listed.
    fn began(&mut self) {
        self.is_missing = false;
    }

    /// Everything was listed.
    fn listed(&mut self, base: &str) {
        self.since = self.newest.clone();
        if std::mem::replace(&mut self.was_missing, self.is_missing) == self.is_missing {
            return;
        }
        let attribute = self.attribute;
        if self.is_missing {
            self.missing.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                base,
                "users or groups do not show {attribute}, by which their changes would be found: \
                 everything is read anew at each poll; let the bind DN read it"
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

/// What a listing is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    /// Everything.
    Whole,
    /// What was modified lately.
    Changes,
    /// The keys of everything.
    Keys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is asked yet.
    Asleep,
    /// The persistent search is on its way; the listing follows at this time.
    Establishing(Instant),
    /// A page is to be asked for.
    Turning(Listing),
    /// A page is on its way, with this id.
    Reading(Listing, u32),
    /// Nothing to do before this time.
    Resting(Instant),
}

/// One search kept without content synchronization.
pub(crate) struct Enumeration {
    search: PartSearch,
    key: String,
    page_size: Option<u32>,
    means: Means,
    phase: Phase,
    page: Vec<u8>,
    filter: Filter,
    sweep_interval: Duration,
    swept: Instant,
    /// All entries, by the keys that they are told of by, with a hash of their stamps where it is by
    /// those that changes are learned of.
    known: HashMap<EntryId, u64>,
    hasher: RandomState,
    /// Entries that the persistent search spoke of while a listing, which may be of an earlier
    /// moment, was under way.
    overtaken: HashSet<EntryId>,
    notices: Notices,
    /// A sweep met an entry or a version of one that is not known, the search spoke of one that cannot
    /// be told, or entries have moved with the one above them.
    is_behind: bool,
}

impl Enumeration {
    /// By persistent search below `context`, which has the search's base in it: who leaves the base is
    /// told of where it goes. Swept as often as `sweep_interval` says.
    pub fn persistent(
        search: PartSearch,
        key: String,
        page_size: Option<u32>,
        context: String,
        sweep_interval: Duration,
    ) -> Self {
        let means = Means::PersistentSearch(context, None);
        Self::new(search, key, page_size, means, sweep_interval)
    }

    /// By polling for stamps of this attribute; `missing` counts searches with entries that do not
    /// show them.
    pub fn polling(
        search: PartSearch,
        key: String,
        page_size: Option<u32>,
        attribute: &'static str,
        interval: Duration,
        missing: Arc<AtomicUsize>,
    ) -> Self {
        let stamps = Stamps::new(attribute, missing);
        Self::new(search, key, page_size, Means::Polling(stamps, interval), interval * SWEEP_POLLS)
    }

    fn new(
        search: PartSearch,
        key: String,
        page_size: Option<u32>,
        means: Means,
        sweep_interval: Duration,
    ) -> Self {
        Self {
            filter: search.filter.clone(),
            search,
            key,
            page_size,
            means,
            phase: Phase::Asleep,
            page: Vec::new(),
            sweep_interval,
            swept: Instant::now(),
            known: HashMap::new(),
            hasher: RandomState::new(),
            overtaken: HashSet::new(),
            notices: Notices::default(),
            is_behind: false,
        }
    }

    fn begin(&mut self, listing: Listing, ear: &mut Ear) {
        self.page.clear();
        self.overtaken.clear();
        self.filter = self.search.filter.clone();
        match listing {
            Listing::Whole => {
                self.is_behind = false;
                self.known.clear();
                self.notices.forget();
                if let Means::Polling(stamps, _) = &mut self.means {
                    stamps.began();
                }
                ear.began(self.search.part, true);
            }
            Listing::Keys => ear.began(self.search.part, false),
            Listing::Changes => {
                if let Means::Polling(stamps, _) = &mut self.means {
                    match stamps.changed() {
                        Some(changed) => {
                            self.filter = Filter::all([&self.search.filter, &changed]);
                        }
                        None => return self.begin(Listing::Whole, ear),
                    }
                }
            }
        }
        self.phase = Phase::Turning(listing);
    }

    fn sweep_due(&self) -> Instant {
        self.swept + self.sweep_interval
    }

    fn rest(&mut self, now: Instant) {
        let sweep = self.sweep_due();
        self.phase = Phase::Resting(match &self.means {
            Means::PersistentSearch(..) => sweep,
            Means::Polling(_, interval) => sweep.min(now + *interval),
        });
    }

    fn wake(&mut self, ear: &mut Ear, now: Instant) {
        if now >= self.sweep_due() {
            self.begin(Listing::Keys, ear);
        } else {
            self.begin(Listing::Changes, ear);
        }
    }

    fn turn_page(&mut self, listing: Listing, connection: &mut Connection) {
        let mut attributes = vec![self.key.as_str()];
        if listing != Listing::Keys {
            attributes.extend(self.search.attributes.iter().map(String::as_str));
        }
        if let Means::Polling(stamps, _) = &self.means {
            attributes.push(stamps.attribute);
        }
        let base = &self.search.base;
        let request = request(base, Scope::Subtree, &self.filter, &attributes);
        let controls = self.page_size.map(|size| Control::Paged(size, &self.page));
        let id = connection.queue(&request, controls.as_slice());
        self.phase = Phase::Reading(listing, id);
    }

    fn watch(&mut self, connection: &mut Connection, now: Instant) {
        let Means::PersistentSearch(context, id) = &mut self.means else { return };
        let (any, key) = (Filter::present("objectClass"), [self.key.as_str()]);
        let request = request(context, Scope::Subtree, &any, &key);
        *id = Some(connection.queue(&request, &[Control::PersistentSearch]));
        self.phase = Phase::Establishing(now + ESTABLISH);
    }

    /// Asks for entries that were spoken of.
    fn read_noticed(&mut self, connection: &mut Connection) {
        let attributes: Vec<&str> =
            self.search.attributes.iter().chain([&self.key]).map(String::as_str).collect();
        for (id, name) in self.notices.due() {
            let base = String::from_utf8_lossy(&name);
            let request = request(&base, Scope::Base, &self.search.filter, &attributes);
            self.notices.asked(connection.queue(&request, &[]), id);
        }
    }

    fn id_of(&self, entry: &RawEntry<'_>) -> Result<Option<EntryId>, Error> {
        Ok(entry.values(&self.key)?.next().transpose()?.and_then(entry_id))
    }

    fn list(&mut self, listing: Listing, entry: &RawEntry<'_>, ear: &mut Ear) -> Result<(), Error> {
        let Some(id) = self.id_of(entry)? else { return Err(keyless(entry, &self.key)) };
        if self.overtaken.contains(&ear.key(self.search.part, id, entry.dn)) {
            return Ok(());
        }
        let (stamp, version) = match &self.means {
            Means::Polling(stamps, _) => {
                let stamp = stamps.of(entry)?;
                (stamp, self.hasher.hash_one(stamp))
            }
            Means::PersistentSearch(..) => (&b""[..], NO_VERSION),
        };
        match (listing, &mut self.means) {
            (Listing::Keys, means) => {
                let (key, _) = ear.seen(&self.search, id, entry.dn);
                let known = self.known.get(&key);
                let is_told = matches!(means, Means::Polling(stamps, _) if stamps.covers(stamp));
                self.is_behind |= known.is_none_or(|known| *known != version && !is_told)
                    || !ear.expects(&self.search, id, entry.dn);
            }
            (Listing::Whole | Listing::Changes, means) => {
                if let Means::Polling(stamps, _) = means {
                    stamps.note(stamp, ear.is_told(&self.search, entry)?);
                }
                let is_listing = listing == Listing::Whole;
                self.is_behind |= ear.entry(&self.search, id, entry, is_listing)?;
                self.remember(ear.key(self.search.part, id, entry.dn), version)?;
            }
        }
        Ok(())
    }

    fn page_ended(
        &mut self,
        listing: Listing,
        response: &Response<'_>,
        outcome: Outcome<'_>,
        ear: &mut Ear,
    ) -> Result<(), Error> {
        if outcome.code != code::SUCCESS {
            return Err(search_failed(&self.search, outcome));
        }
        self.page = response.controls.page_cookie()?.unwrap_or_default().to_vec();
        if !self.page.is_empty() {
            self.phase = Phase::Turning(listing);
            return Ok(());
        }
        let now = Instant::now();
        if let (Listing::Whole, Means::Polling(stamps, _)) = (listing, &mut self.means) {
            stamps.listed(&self.search.base);
        }
        if listing == Listing::Keys {
            self.is_behind |= ear.misses_any(self.search.part);
        }
        if listing != Listing::Changes {
            self.swept = now;
            ear.ended(self.search.part, Unmentioned::Missing, None);
        }
        if self.is_behind {
            self.begin(Listing::Whole, ear);
        } else {
            self.rest(now);
        }
        Ok(())
    }

    /// A change that the persistent search reports.
    fn change(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error> {
        match response.operation {
            Operation::Entry(entry) => {
                let change = response.controls.change_type()?;
                let is_inside =
                    dn::is_within(&dn::normalise(entry.dn), self.search.normalised_base());
                if !is_inside && change != Some(CHANGE_MOVE) {
                    return Ok(());
                }
                let Some(id) = self.id_of(&entry)? else {
                    // Removed entries do not always come with their attributes.
                    self.is_behind = true;
                    return Ok(());
                };
                if !is_inside || change == Some(CHANGE_DELETE) {
                    self.overtake(id);
                    self.known.remove(&id);
                    self.is_behind |= ear.removed(&self.search, id);
                } else {
                    let may_bring = change == Some(CHANGE_MOVE);
                    self.is_behind |= ear.noticed(&self.search, id, entry.dn, may_bring)?;
                    self.is_behind |= !self.notices.note(id, entry.dn);
                }
            }
            Operation::SearchDone(outcome) => return Err(search_failed(&self.search, outcome)),
            _ => {}
        }
        Ok(())
    }

    /// What comes of an entry that was spoken of.
    fn hear_noticed(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error> {
        match response.operation {
            Operation::Entry(entry) => {
                let Some(id) = self.id_of(&entry)? else { return Err(keyless(&entry, &self.key)) };
                self.notices.found(response.id);
                self.is_behind |= ear.entry(&self.search, id, &entry, false)?;
                let key = ear.key(self.search.part, id, entry.dn);
                self.overtake(key);
                self.remember(key, NO_VERSION)?;
            }
            Operation::SearchDone(outcome) => {
                let reading = self.notices.answered(response.id);
                match (reading.filter(|reading| !reading.is_found), outcome.code) {
                    (Some(reading), code::SUCCESS) => {
                        self.overtake(reading.id);
                        self.known.remove(&reading.id);
                        self.is_behind |= ear.left(&self.search, reading.id);
                    }
                    // It was removed or renamed meanwhile, which will be told.
                    (None, _) | (_, code::NO_SUCH_OBJECT) => {}
                    (Some(_), _) => return Err(search_failed(&self.search, outcome)),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn remember(&mut self, id: EntryId, version: u64) -> Result<(), Error> {
        self.known.insert(id, version);
        TooMany::unless(self.known.len() <= ENTRIES_MAX, "entries", ENTRIES_MAX)
            .map_err(|most| too_many(&self.search, most))
    }

    /// A listing under way may bring an older state of the entry.
    fn overtake(&mut self, id: EntryId) {
        self.overtaken.insert(id);
        if self.overtaken.len() > OVERTAKEN_MAX {
            self.overtaken.clear();
            self.is_behind = !matches!(self.phase, Phase::Resting(_));
        }
    }
}

fn request<'a>(
    base: &'a str,
    scope: Scope,
    filter: &'a Filter,
    attributes: &'a [&'a str],
) -> Request<'a> {
    Request::Search(SearchRequest { base, scope, filter, attributes, entries_max: 0 })
}

impl Track for Enumeration {
    fn act(&mut self, connection: &mut Connection, ear: &mut Ear, now: Instant) {
        self.is_behind |= ear.take_behind(self.search.part);
        match (self.phase, &self.means) {
            (Phase::Asleep, Means::PersistentSearch(..)) => self.watch(connection, now),
            (Phase::Asleep, Means::Polling(..)) => self.begin(Listing::Whole, ear),
            (Phase::Establishing(until), _) if now >= until => self.begin(Listing::Whole, ear),
            (Phase::Resting(_), _) if self.is_behind => self.begin(Listing::Whole, ear),
            (Phase::Resting(until), _) if now >= until => self.wake(ear, now),
            _ => {}
        }
        if let Phase::Turning(listing) = self.phase {
            self.turn_page(listing, connection);
        }
        self.read_noticed(connection);
    }

    fn owns(&self, id: u32) -> bool {
        matches!(self.phase, Phase::Reading(_, reading) if reading == id)
            || self.notices.owns(id)
            || matches!(self.means, Means::PersistentSearch(_, Some(search)) if search == id)
    }

    fn hear(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error> {
        match (self.phase, response.operation) {
            (Phase::Reading(listing, id), operation) if id == response.id => match operation {
                Operation::Entry(entry) => self.list(listing, &entry, ear),
                Operation::SearchDone(outcome) => self.page_ended(listing, response, outcome, ear),
                _ => Ok(()),
            },
            _ if self.notices.owns(response.id) => self.hear_noticed(response, ear),
            _ => self.change(response, ear),
        }
    }

    fn awaits(&self) -> bool {
        self.notices.is_reading()
            || !matches!(self.phase, Phase::Resting(_) | Phase::Establishing(_))
    }

    fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Resting(_)) && !self.is_behind
    }

    fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Resting(_) if self.is_behind => Some(Instant::now()),
            Phase::Resting(until) | Phase::Establishing(until) => Some(until),
            _ => None,
        }
    }
}
