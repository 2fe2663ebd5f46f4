// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads dynamic groups. The server computes their members by a search that the group names, as OpenLDAP's overlays
//! dynlist and autogroup do. A change of a member does not change the group, so the server does not report it, and the
//! group's stamp stays the same. `track_factory` makes this track.
//!
//! All dynamic groups are read soon after a connection is made, and then at intervals. They are found by their object
//! classes, which every server indexes. If they are few, they are also read soon after the change of any user or group.
//! Groups that are not found are not reported.

use super::key_reconciliation::{ReconcileSchedule, ReconcileTiming};
use super::{Track, TrackSink, search_failed};
use crate::connection::LdapConnection;
use crate::entry_key::{missing_key, read_key};
use crate::error::LdapError;
use crate::filter::EncodedFilter;
use crate::message::{
    LdapRequest, LdapResponse, LdapResult, RawEntry, ResponseOperation, SearchRequest, code,
};
use crate::search::{DYNAMIC_CLASSES, MirrorSearch, SearchKind};
use roster_messages::{log, table::directory};
use tokio::time::Instant;

/// More groups than this are read at intervals only.
const URGENT_READS_MAX: usize = 1000;

/// A read in progress.
struct GroupReading {
    request: u32,
    began: Instant,
    last_received: Instant,
    found: usize,
    /// The error of an entry without a key.
    keyless: Option<LdapError>,
}

/// Reads the dynamic groups of one search.
pub(crate) struct DynamicGroups {
    search: MirrorSearch,
    key: String,
    filter: EncodedFilter,
    timing: ReconcileTiming,
    schedule: ReconcileSchedule,
    /// Number of groups in the last read.
    known: usize,
    reading: Option<GroupReading>,
}

impl DynamicGroups {
    pub fn new(search: MirrorSearch, key: String, pace: ReconcileTiming, now: Instant) -> Self {
        let filter = filter(&search);
        // Members may have changed while no connection was open.
        let mut schedule = ReconcileSchedule::new(now, pace.every);
        schedule.schedule_soon(now);
        Self { search, key, filter, timing: pace, schedule, known: 0, reading: None }
    }

    fn begin(&mut self, connection: &mut LdapConnection, sink: &mut TrackSink, now: Instant) {
        if sink.known.is_refreshing(self.search.id) {
            return self.schedule.postpone(now);
        }
        let attributes = self.search.attributes.iter().chain([&self.key]);
        let attributes: Vec<&str> = attributes.map(String::as_str).collect();
        let request = SearchRequest {
            base: &self.search.base,
            scope: self.search.scope,
            filter: &self.filter,
            attributes: &attributes,
            entries_max: 0,
        };
        let request = connection.queue(&LdapRequest::Search(request), &[]);
        self.schedule.begin(now, self.timing.jittered_pause());
        sink.signals.forget_dynamic_groups();
        sink.reads.begin();
        self.reading =
            Some(GroupReading { request, began: now, last_received: now, found: 0, keyless: None });
    }

    fn give_up(&mut self, connection: &mut LdapConnection, sink: &mut TrackSink) {
        let Some(reading) = self.reading.take() else { return };
        connection.queue(&LdapRequest::Abandon(reading.request), &[]);
        log!(
            WARN,
            &directory::DYNAMIC_GROUPS_TIMEOUT,
            base = self.search.base,
            "no reply for {:?} to the search for dynamic groups; retrying later",
            self.timing.silence_max
        );
        self.end(&reading, sink);
    }

    fn end(&mut self, reading: &GroupReading, sink: &mut TrackSink) {
        let now = Instant::now();
        self.schedule.end(now, self.timing.rest(now.duration_since(reading.began)));
        self.known = reading.found;
        sink.reads.end();
    }

    fn read(&mut self, entry: &RawEntry<'_>, sink: &mut TrackSink) -> Result<(), LdapError> {
        let Some(reading) = &mut self.reading else { return Ok(()) };
        reading.last_received = Instant::now();
        if !sink.adapter.is_dynamic_group(&self.search, entry)? {
            return Ok(());
        }
        reading.found += 1;
        match read_key(entry, &self.key)? {
            Some(id) => sink.put_reread_entry(&self.search, id, entry)?,
            None => {
                reading.keyless.get_or_insert_with(|| missing_key(entry, &self.key));
            }
        }
        Ok(())
    }

    fn ended(&mut self, outcome: LdapResult<'_>, sink: &mut TrackSink) {
        let Some(mut reading) = self.reading.take() else { return };
        let failure = match outcome.code {
            code::SUCCESS => reading.keyless.take(),
            _ => Some(search_failed(&self.search, outcome)),
        };
        if let Some(error) = failure {
            log!(
                WARN,
                &directory::DYNAMIC_GROUPS_UNREADABLE,
                %error,
                "dynamic groups cannot be read; retrying later"
            );
        }
        self.end(&reading, sink);
    }
}

/// Returns a filter for groups of the search with such a class.
fn filter(search: &MirrorSearch) -> EncodedFilter {
    let classes =
        DYNAMIC_CLASSES.map(|class| EncodedFilter::equals("objectClass", class.as_bytes()));
    let is_dynamic = EncodedFilter::any(&classes);
    match &search.kind {
        SearchKind::Both { .. } => {
            EncodedFilter::all([&search.filter, &search.groups, &is_dynamic])
        }
        _ => EncodedFilter::all([&search.filter, &is_dynamic]),
    }
}

impl Track for DynamicGroups {
    fn act(&mut self, connection: &mut LdapConnection, sink: &mut TrackSink, now: Instant) {
        if sink.signals.take_entry_changes()
            && sink.signals.has_dynamic_groups()
            && self.known <= URGENT_READS_MAX
        {
            self.schedule.schedule_soon(now);
        }
        match &self.reading {
            None if now >= self.schedule.due() => self.begin(connection, sink, now),
            Some(reading) if now >= reading.last_received + self.timing.silence_max => {
                self.give_up(connection, sink);
            }
            _ => {}
        }
    }

    fn owns(&self, id: u32) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.request == id)
    }

    fn handle_response(
        &mut self,
        response: &LdapResponse<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError> {
        match response.operation {
            ResponseOperation::Entry(entry) => self.read(&entry, sink)?,
            ResponseOperation::SearchDone(outcome) => self.ended(outcome, sink),
            _ => {}
        }
        Ok(())
    }

    /// A slow read is abandoned. The connection stays open.
    fn awaits(&self) -> bool {
        false
    }

    /// Each group is complete without the others.
    fn is_settled(&self) -> bool {
        true
    }

    fn due(&self) -> Option<Instant> {
        match &self.reading {
            Some(reading) => Some(reading.last_received + self.timing.silence_max),
            None => Some(self.schedule.due()),
        }
    }
}
