//! Content synchronization, RFC 4533: the server itself sends what changed since a cookie, then
//! every change as it happens.

use super::{Ear, Track};
use crate::connection::Connection;
use crate::error::Error;
use crate::message::{
    Control, Operation, Outcome, Request, Response, Scope, SearchRequest, State, SyncInfo, code,
    oid,
};
use crate::schema::{PartSearch, entry_id};
use roster_provider::{Cookie, EntryId, Unmentioned};
use tokio::time::Instant;

/// One search kept by content synchronization.
pub(crate) struct Synchronization {
    search: PartSearch,
    binding: String,
    /// The attribute of the entries' keys, and whether every resumption may miss removals.
    key: &'static str,
    misses_removals: bool,
    phase: Phase,
    /// The newest that the server sent; worth something once a refresh is over.
    cookie: Option<Vec<u8>>,
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
    /// What the server says is gone is not all: the keys of all entries are fetched besides.
    Sweeping { id: Option<u32> },
    /// Changes come as they happen.
    Following,
}

impl Synchronization {
    /// `misses_removals`: the server was seen to forget removals when it resumes.
    pub fn new(
        search: PartSearch,
        binding: String,
        key: &'static str,
        misses_removals: bool,
    ) -> Self {
        let phase = Phase::Asleep;
        Self {
            search,
            binding,
            key,
            misses_removals,
            phase,
            cookie: None,
            is_trusted: false,
            is_behind: false,
            id: 0,
            abandoned: None,
        }
    }

    fn take_cookie(&mut self, cookie: Option<&[u8]>, ear: &mut Ear) {
        let Some(value) = cookie else { return };
        self.cookie = Some(value.to_vec());
        if self.phase == Phase::Following {
            ear.cookie(self.search.part, self.bound(value.to_vec()));
        }
    }

    fn bound(&self, value: Vec<u8>) -> Cookie {
        Cookie { binding: self.binding.clone(), value }
    }

    fn refreshed(&mut self, resumed: bool, listed: bool, ear: &mut Ear) {
        let is_listing = !resumed || listed;
        if !is_listing && (self.misses_removals || !self.is_trusted) {
            self.phase = Phase::Sweeping { id: None };
            return;
        }
        self.settle(if is_listing { Unmentioned::Gone } else { Unmentioned::Kept }, ear);
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
        let cookie = self.cookie.clone().map(|value| self.bound(value));
        ear.ended(self.search.part, unmentioned, cookie);
    }

    fn search_ended(&mut self, outcome: Outcome<'_>, ear: &mut Ear) -> Result<(), Error> {
        let passing = matches!(
            outcome.code,
            code::BUSY
                | code::UNAVAILABLE
                | code::TIME_LIMIT
                | code::SIZE_LIMIT
                | code::ADMIN_LIMIT
        );
        let resumed = matches!(self.phase, Phase::Refreshing { resumed: true, .. });
        // A server that does not like the cookie says so in several ways: syncRefreshRequired, or
        // unwillingToPerform when the cookie is of a later time than the server's restored data.
        if resumed && !passing {
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
        let attributes: Vec<&str> = self.search.attributes.iter().map(String::as_str).collect();
        let request = |attributes| SearchRequest {
            base: &self.search.base,
            scope: Scope::Subtree,
            filter: &self.search.filter,
            attributes,
            entries_max: 0,
        };
        match self.phase {
            Phase::Asleep => {
                if let Some(id) = self.abandoned.take() {
                    connection.queue(&Request::Abandon(id), &[]);
                }
                self.cookie = ear.cookie_for(self.search.part, &self.binding);
                let csn = |cookie: &Vec<u8>| cookie.windows(4).any(|part| part == b"csn=");
                self.is_trusted = self.cookie.as_ref().is_some_and(csn);
                let control = Control::Sync(self.cookie.as_deref());
                self.id = connection.queue(&Request::Search(request(&attributes)), &[control]);
                self.phase = Phase::Refreshing { resumed: self.cookie.is_some(), listed: false };
                ear.began(self.search.part, self.cookie.is_none());
            }
            Phase::Sweeping { id: None } => {
                let id = connection.queue(&Request::Search(request(&[self.key])), &[]);
                self.phase = Phase::Sweeping { id: Some(id) };
            }
            _ => {}
        }
    }

    fn owns(&self, id: u32) -> bool {
        id == self.id || self.phase == Phase::Sweeping { id: Some(id) }
    }

    fn hear(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error> {
        if response.id != self.id {
            return self.hear_sweep(response, ear);
        }
        match response.operation {
            Operation::Entry(entry) => {
                let Some(sync) = response.controls.sync_state()? else {
                    return Err(crate::ber::Malformed("an entry without its sync state").into());
                };
                let id = EntryId(sync.uuid);
                let is_listing =
                    self.phase == (Phase::Refreshing { resumed: false, listed: false });
                match sync.state {
                    State::Present => ear.present(&self.search, id),
                    State::Changed => {
                        self.is_behind |= ear.entry(&self.search, id, &entry, is_listing)?;
                    }
                    State::Deleted => self.is_behind |= ear.removed(&self.search, id),
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
                        self.is_behind |= ear.removed(&self.search, id);
                    } else {
                        ear.present(&self.search, id);
                    }
                }
                self.take_cookie(cookie, ear);
            }
        }
        Ok(())
    }

    fn hear_sweep(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error> {
        match response.operation {
            Operation::Entry(entry) => {
                match entry.values(self.key)?.next().transpose()?.and_then(entry_id) {
                    Some(id) => _ = ear.seen(&self.search, id, entry.dn),
                    None => return Err(super::keyless(&entry, self.key)),
                }
            }
            Operation::SearchDone(outcome) if outcome.code == code::SUCCESS => {
                self.is_behind |= ear.misses_any(self.search.part);
                self.settle(Unmentioned::Gone, ear);
            }
            Operation::SearchDone(outcome) => {
                return Err(super::search_failed(&self.search, outcome));
            }
            _ => {}
        }
        Ok(())
    }
}
