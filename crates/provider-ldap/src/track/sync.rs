//! Content synchronization, RFC 4533: the server itself sends what changed since a cookie, then
//! every change as it happens. Before what a resumption brought is believed, it is checked that the
//! server's data goes on from where it was left ([`history`](super::history)).
//!
//! OpenLDAP finds what changed by the stamps of the entries, as far as the reader may see them: of an
//! entry that does not show its stamp no resumption tells, so that where there is one nothing is resumed.
//!
//! Where the filter names what the server works out, OpenLDAP judges changed entries by what it worked out
//! when the search began: what it tells of them is no more than a reason to read them. So it is with groups
//! whose members it works out, of which it tells without their members.

use super::history::{Doubts, History};
use super::{Ear, Track};
use crate::connection::Connection;
use crate::error::Error;
use crate::filter::Filter;
use crate::message::{
    Control, Operation, Outcome, RawEntry, Request, Response, Scope, SearchRequest, State,
    SyncInfo, code, oid, printable,
};
use crate::schema::{PartSearch, entry_id};
use roster_provider::{Cookie, EntryId, Unmentioned};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::Instant;

/// One search kept by content synchronization.
pub(crate) struct Synchronization {
    search: PartSearch,
    binding: String,
    /// The attribute of the entries' keys.
    key: &'static str,
    /// That of their stamps.
    stamp: &'static str,
    misses_removals: bool,
    /// An entry did not show its stamp.
    is_unstamped: bool,
    /// Searches of which that is so, for the status.
    unstamped: Arc<AtomicUsize>,
    phase: Phase,
    history: History,
    doubts: Doubts,
    /// The newest that the server sent; worth something once a refresh is over.
    cookie: Option<Vec<u8>>,
    /// It was not told yet, for entries from before it are still to be read.
    is_cookie_due: bool,
    /// The cookie that was sent has the form of OpenLDAP's. To one that it cannot read, OpenLDAP
    /// sends everything as if it were changes, and says nothing of what is gone.
    is_trusted: bool,
    /// Entries have moved with the one above them, and the server does not say which.
    is_behind: bool,
    id: u32,
    /// The search before, which is not to go on.
    abandoned: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is asked yet.
    Asleep,
    /// The server brings us up to date.
    Refreshing {
        /// From a cookie on.
        resumed: bool,
        /// It named everything that is still there.
        listed: bool,
    },
    /// What the resumption did not speak of is compared with what is there: the entries in doubt, or
    /// all where what the server says is gone is not all.
    Checking { whole: bool, unmentioned: Unmentioned, id: Option<u32> },
    /// Changes come as they happen.
    Following,
}

impl Synchronization {
    /// `misses_removals`: the server was seen to forget removals when it resumes. `stamp` is an
    /// attribute that has another value after each change; `unstamped` counts searches with entries that
    /// do not show it.
    pub fn new(
        search: PartSearch,
        binding: String,
        key: &'static str,
        stamp: &'static str,
        misses_removals: bool,
        unstamped: Arc<AtomicUsize>,
    ) -> Self {
        let phase = Phase::Asleep;
        Self {
            search,
            binding,
            key,
            stamp,
            misses_removals,
            is_unstamped: false,
            unstamped,
            phase,
            history: History::default(),
            doubts: Doubts::default(),
            cookie: None,
            is_cookie_due: false,
            is_trusted: false,
            is_behind: false,
            id: 0,
            abandoned: None,
        }
    }

    /// Takes up where a kept cookie was left; without one, from the beginning.
    fn recall(&mut self, kept: Option<&[u8]>) {
        let kept = kept.and_then(|kept| History::parse(kept).ok());
        let (history, cookie) = kept.map_or((History::default(), None), |(history, cookie)| {
            (history, Some(cookie.to_vec()))
        });
        (self.doubts, self.history) = (Doubts::of(&history), history);
        self.is_trusted = cookie.as_deref().is_some_and(is_readable_to_openldap);
        self.cookie = cookie;
    }

    fn request<'a>(&'a self, filter: &'a Filter, attributes: &'a [&'a str]) -> Request<'a> {
        let base = &self.search.base;
        Request::Search(SearchRequest {
            base,
            scope: Scope::Subtree,
            filter,
            attributes,
            entries_max: 0,
        })
    }

    fn present(&mut self, id: EntryId, ear: &mut Ear) {
        if !ear.present(&self.search, id) {
            self.doubts.stranger(id);
        }
    }

    fn removed(&mut self, id: EntryId, ear: &mut Ear) {
        self.doubts.told(id);
        self.history.removed(id);
        self.is_behind |= ear.removed(&self.search, id);
    }

    fn take_cookie(&mut self, cookie: Option<&[u8]>, ear: &mut Ear) {
        let Some(value) = cookie else { return };
        self.cookie = Some(value.to_vec());
        self.is_cookie_due = true;
        self.tell_cookie(ear);
    }

    fn tell_cookie(&mut self, ear: &mut Ear) {
        let part = self.search.part;
        if !self.is_cookie_due || self.phase != Phase::Following || ear.is_waiting(part) {
            return;
        }
        self.is_cookie_due = false;
        if let Some(cookie) = self.bound() {
            ear.cookie(part, cookie);
        }
    }

    /// The server says that the entry has changed, and is as given.
    fn changed(&mut self, id: EntryId, entry: &RawEntry<'_>, ear: &mut Ear) -> Result<(), Error> {
        let is_listing = self.phase == (Phase::Refreshing { resumed: false, listed: false });
        let stamp = self.stamp_of(entry)?;
        self.doubts.told(id);
        self.history.changed(id, stamp, is_listing);
        // 389-ds shows nobody the stamps of what it tells when it resumes.
        let is_resuming = matches!(self.phase, Phase::Refreshing { resumed: true, .. });
        if stamp.is_empty() && !is_resuming {
            self.miss_stamp(entry, is_listing);
        }
        let is_hint = self.phase == Phase::Following
            && (self.search.is_worked_out && ear.is_told(&self.search, entry)?
                || ear.is_dynamic(&self.search, entry)?);
        if is_hint {
            ear.hint(&self.search, id, entry)?;
        } else {
            self.is_behind |= ear.entry(&self.search, id, entry, is_listing)?;
        }
        Ok(())
    }

    /// The cookie as it is kept, if resuming from it may be believed.
    fn bound(&self) -> Option<Cookie> {
        let cookie = self.cookie.as_deref().filter(|_| !self.is_unstamped)?;
        Some(Cookie { binding: self.binding.clone(), value: self.history.with(cookie)? })
    }

    /// An entry does not show its stamp: cookies that were kept before are worth nothing either.
    fn miss_stamp(&mut self, entry: &RawEntry<'_>, is_listing: bool) {
        if std::mem::replace(&mut self.is_unstamped, true) {
            return;
        }
        self.is_behind |= !is_listing;
        self.unstamped.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            entry = printable(entry.dn),
            "the server does not show {}, and without it no resumption is believed: everything is read \
             anew at each connection; let the bind DN read it",
            self.stamp
        );
    }

    fn refreshed(&mut self, resumed: bool, listed: bool, ear: &mut Ear) {
        if !resumed {
            return self.settle(Unmentioned::Missing, ear);
        }
        let tells_removals = self.is_trusted && !self.misses_removals;
        let whole = self.doubts.are_too_many() || !(listed || tells_removals);
        let unmentioned = if listed || whole { Unmentioned::Missing } else { Unmentioned::Kept };
        if !whole && self.doubts.are_none() {
            return self.checked(unmentioned, ear);
        }
        self.phase = Phase::Checking { whole, unmentioned, id: None };
    }

    fn checked(&mut self, unmentioned: Unmentioned, ear: &mut Ear) {
        if !self.doubts.are_settled(unmentioned) {
            self.is_behind = true;
            tracing::info!(
                "the server's data does not go on from where it was left, as after it was restored \
                 from a backup: everything is fetched anew"
            );
        }
        self.settle(unmentioned, ear);
    }

    /// Begins from the beginning, in place of a search that may still be going on.
    fn restart(&mut self, ear: &mut Ear) {
        ear.forget(self.search.part);
        self.abandoned = Some(std::mem::take(&mut self.id));
        self.is_behind = false;
        self.phase = Phase::Asleep;
    }

    fn settle(&mut self, unmentioned: Unmentioned, ear: &mut Ear) {
        if self.is_behind {
            return self.restart(ear);
        }
        self.phase = Phase::Following;
        self.is_cookie_due = false;
        ear.ended(self.search.part, unmentioned, self.bound());
    }

    fn search_ended(&mut self, outcome: Outcome<'_>, ear: &mut Ear) -> Result<(), Error> {
        let is_limit =
            matches!(outcome.code, code::TIME_LIMIT | code::SIZE_LIMIT | code::ADMIN_LIMIT);
        let resumed = matches!(self.phase, Phase::Refreshing { resumed: true, .. });
        // A server that does not like the cookie says so in several ways: syncRefreshRequired, or
        // unwillingToPerform when the cookie is of a later time than the server's restored data.
        if resumed && !is_limit && !is_passing(outcome) {
            tracing::info!(
                "the server does not resume from where it was left ({outcome}): everything is fetched anew"
            );
            ear.forget(self.search.part);
            self.phase = Phase::Asleep;
            return Ok(());
        }
        // Without a cookie there is nothing to refresh from: asked again at once, the server would say
        // the same again.
        if outcome.code == code::SYNC_REFRESH_REQUIRED {
            ear.forget(self.search.part);
        }
        Err(super::search_failed(&self.search, outcome))
    }
}

impl Track for Synchronization {
    fn act(&mut self, connection: &mut Connection, ear: &mut Ear, _now: Instant) {
        self.is_behind |= ear.take_behind(self.search.part);
        if self.is_behind && self.phase == Phase::Following {
            tracing::info!(
                "entries may have moved with the one above them: everything is fetched anew"
            );
            self.restart(ear);
        }
        match self.phase {
            Phase::Asleep => {
                if let Some(id) = self.abandoned.take() {
                    connection.queue(&Request::Abandon(id), &[]);
                }
                let kept = ear.cookie_for(self.search.part, &self.binding);
                self.recall(kept.as_deref());
                let attributes = self.search.attributes.iter().map(String::as_str);
                let attributes: Vec<&str> = attributes.chain([self.stamp]).collect();
                let request = self.request(&self.search.filter, &attributes);
                let control = Control::Sync(self.cookie.as_deref());
                self.id = connection.queue(&request, &[control]);
                self.phase = Phase::Refreshing { resumed: self.cookie.is_some(), listed: false };
                ear.began(self.search.part, self.cookie.is_none());
            }
            Phase::Checking { whole, unmentioned, id: None } => {
                let [class, uid, gid] = ear.telling();
                let attributes = [self.key, self.stamp, class, uid, gid];
                let all = &self.search.filter;
                let id = if whole {
                    connection.queue(&self.request(all, &attributes), &[])
                } else {
                    let filter = Filter::all([all, &self.doubts.filter(self.key)]);
                    connection.queue(&self.request(&filter, &attributes), &[])
                };
                self.phase = Phase::Checking { whole, unmentioned, id: Some(id) };
            }
            Phase::Following => self.tell_cookie(ear),
            _ => {}
        }
    }

    fn owns(&self, id: u32) -> bool {
        id == self.id || matches!(self.phase, Phase::Checking { id: Some(own), .. } if own == id)
    }

    fn hear(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error> {
        if response.id != self.id {
            return self.hear_check(response, ear);
        }
        match response.operation {
            Operation::Entry(entry) => {
                let Some(sync) = response.controls.sync_state()? else {
                    return Err(crate::ber::Malformed("an entry without its sync state").into());
                };
                let id = EntryId(sync.uuid);
                match sync.state {
                    State::Present => self.present(id, ear),
                    State::Changed => self.changed(id, &entry, ear)?,
                    State::Deleted => self.removed(id, ear),
                }
                self.take_cookie(sync.cookie, ear);
            }
            Operation::Intermediate(Some(name), Some(value))
                if name == oid::SYNC_INFO.as_bytes() =>
            {
                self.hear_info(SyncInfo::parse(value)?, ear)?;
            }
            Operation::SearchDone(outcome) => self.search_ended(outcome, ear)?,
            _ => {}
        }
        Ok(())
    }

    fn awaits(&self) -> bool {
        self.phase != Phase::Following
    }

    fn is_settled(&self) -> bool {
        self.phase == Phase::Following && !self.is_behind
    }
}

impl Synchronization {
    fn hear_info(&mut self, info: SyncInfo<'_>, ear: &mut Ear) -> Result<(), Error> {
        match info {
            SyncInfo::NewCookie(cookie) => self.take_cookie(Some(cookie), ear),
            SyncInfo::PhaseOver { present, cookie, done } => {
                self.take_cookie(cookie, ear);
                if let Phase::Refreshing { resumed, listed } = self.phase {
                    let listed = listed || present;
                    self.phase = Phase::Refreshing { resumed, listed };
                    if done {
                        self.refreshed(resumed, listed, ear);
                    }
                }
            }
            SyncInfo::Set { cookie, deleted, uuids } => {
                for uuid in uuids {
                    let id = EntryId(uuid?);
                    if deleted {
                        self.removed(id, ear);
                    } else {
                        self.present(id, ear);
                    }
                }
                self.take_cookie(cookie, ear);
            }
        }
        Ok(())
    }

    fn hear_check(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error> {
        let Phase::Checking { whole, unmentioned, .. } = self.phase else { return Ok(()) };
        match response.operation {
            Operation::Entry(entry) => self.check(&entry, ear)?,
            Operation::SearchDone(outcome) if outcome.code == code::SUCCESS => {
                self.is_behind |= whole && ear.misses_any(self.search.part);
                self.checked(unmentioned, ear);
            }
            Operation::SearchDone(outcome) if !whole && !is_passing(outcome) => {
                tracing::info!(
                    "the server does not tell of single entries ({outcome}), an index of {} may be \
                     missing: everything is fetched anew",
                    self.key
                );
                self.restart(ear);
            }
            Operation::SearchDone(outcome) => {
                return Err(super::search_failed(&self.search, outcome));
            }
            _ => {}
        }
        Ok(())
    }

    /// An entry that is there, by its key, its stamp, and what tells what it is.
    fn check(&mut self, entry: &RawEntry<'_>, ear: &mut Ear) -> Result<(), Error> {
        let Some(id) = entry.values(self.key)?.next().transpose()?.and_then(entry_id) else {
            return Err(super::keyless(entry, self.key));
        };
        self.doubts.found(id, self.stamp_of(entry)?);
        let (_, is_known) = ear.seen(&self.search, id, entry.dn);
        self.is_behind |= !is_known && ear.is_told(&self.search, entry)?;
        Ok(())
    }

    fn stamp_of<'a>(&self, entry: &RawEntry<'a>) -> Result<&'a [u8], Error> {
        Ok(entry.values(self.stamp)?.next().transpose()?.unwrap_or_default())
    }
}

/// Whether a server may well do later what it does not now.
fn is_passing(outcome: Outcome<'_>) -> bool {
    matches!(outcome.code, code::BUSY | code::UNAVAILABLE)
}

/// Whether a cookie has the form of OpenLDAP's.
fn is_readable_to_openldap(cookie: &[u8]) -> bool {
    cookie.windows(4).any(|part| part == b"csn=")
}
