//! Reads the groups whose members the server works out: by a search that the group names, as OpenLDAP's
//! overlays dynlist and autogroup do. Whoever comes or goes, such a group is not changed itself, so that no
//! server tells of it and its stamp stays as it was.
//!
//! All of them are read soon after a connection is made and then from time to time, found by their classes,
//! which every server has an index of; and as long as they are few, soon after the change of any user or
//! group. Of what is not found nothing is said.

use super::sweep::{Pace, Schedule};
use super::{Ear, Track, keyless, search_failed};
use crate::connection::Connection;
use crate::error::Error;
use crate::filter::Filter;
use crate::message::{Operation, Outcome, RawEntry, Request, Response, Scope, SearchRequest, code};
use crate::schema::{DYNAMIC, Kind, PartSearch, entry_id};
use tokio::time::Instant;

/// Of more such groups, none is read in a hurry.
const HURRIED_MAX: usize = 1000;

/// A reading that is going on.
struct Reading {
    request: u32,
    began: Instant,
    heard: Instant,
    found: usize,
    /// Of an entry without a key.
    keyless: Option<Error>,
}

/// Reads the dynamic groups of one search.
pub(crate) struct Dynamic {
    search: PartSearch,
    key: String,
    filter: Filter,
    pace: Pace,
    schedule: Schedule,
    /// How many there were the last time.
    known: usize,
    reading: Option<Reading>,
}

impl Dynamic {
    pub fn new(search: PartSearch, key: String, pace: Pace, now: Instant) -> Self {
        let filter = filter(&search);
        // They may have changed while nobody listened.
        let mut schedule = Schedule::new(now, pace.every);
        schedule.hurry(now);
        Self { search, key, filter, pace, schedule, known: 0, reading: None }
    }

    fn begin(&mut self, connection: &mut Connection, ear: &mut Ear, now: Instant) {
        if ear.is_refreshing(self.search.part) {
            return self.schedule.put_off(now);
        }
        let attributes = self.search.attributes.iter().chain([&self.key]);
        let attributes: Vec<&str> = attributes.map(String::as_str).collect();
        let request = SearchRequest {
            base: &self.search.base,
            scope: Scope::Subtree,
            filter: &self.filter,
            attributes: &attributes,
            entries_max: 0,
        };
        let request = connection.queue(&Request::Search(request), &[]);
        self.schedule.begin(now, self.pace.pause_by_chance());
        ear.forget_dynamic();
        ear.reading_began();
        self.reading = Some(Reading { request, began: now, heard: now, found: 0, keyless: None });
    }

    fn give_up(&mut self, connection: &mut Connection, ear: &mut Ear) {
        let Some(reading) = self.reading.take() else { return };
        connection.queue(&Request::Abandon(reading.request), &[]);
        tracing::warn!(
            base = self.search.base,
            "the server was silent for {:?} while it listed the groups whose members it works out, which \
             is tried again later; a higher search_timeout gives it more time",
            self.pace.patience
        );
        self.end(&reading, ear);
    }

    fn end(&mut self, reading: &Reading, ear: &mut Ear) {
        let now = Instant::now();
        self.schedule.end(now, self.pace.rest(now.duration_since(reading.began)));
        self.known = reading.found;
        ear.reading_ended();
    }

    fn read(&mut self, entry: &RawEntry<'_>, ear: &mut Ear) -> Result<(), Error> {
        let Some(reading) = &mut self.reading else { return Ok(()) };
        reading.heard = Instant::now();
        if !ear.is_dynamic(&self.search, entry)? {
            return Ok(());
        }
        reading.found += 1;
        match entry.values(&self.key)?.next().transpose()?.and_then(entry_id) {
            Some(id) => ear.read(&self.search, id, entry)?,
            None => {
                reading.keyless.get_or_insert_with(|| keyless(entry, &self.key));
            }
        }
        Ok(())
    }

    fn ended(&mut self, outcome: Outcome<'_>, ear: &mut Ear) {
        let Some(mut reading) = self.reading.take() else { return };
        let failure = match outcome.code {
            code::SUCCESS => reading.keyless.take(),
            _ => Some(search_failed(&self.search, outcome)),
        };
        if let Some(error) = failure {
            tracing::warn!(
                %error,
                "not all groups whose members the server works out can be read, which is tried again later"
            );
        }
        self.end(&reading, ear);
    }
}

/// Matches groups of the search that have such a class.
fn filter(search: &PartSearch) -> Filter {
    let classes = DYNAMIC.map(|class| Filter::equals("objectClass", class.as_bytes()));
    let is_dynamic = Filter::any(&classes);
    match &search.kind {
        Kind::Both { groups, .. } => {
            let is_group = Filter::equals("objectClass", groups.as_bytes());
            Filter::all([&search.filter, &is_group, &is_dynamic])
        }
        _ => Filter::all([&search.filter, &is_dynamic]),
    }
}

impl Track for Dynamic {
    fn act(&mut self, connection: &mut Connection, ear: &mut Ear, now: Instant) {
        if ear.take_news() && ear.knows_dynamic() && self.known <= HURRIED_MAX {
            self.schedule.hurry(now);
        }
        match &self.reading {
            None if now >= self.schedule.due() => self.begin(connection, ear, now),
            Some(reading) if now >= reading.heard + self.pace.patience => {
                self.give_up(connection, ear);
            }
            _ => {}
        }
    }

    fn owns(&self, id: u32) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.request == id)
    }

    fn hear(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error> {
        match response.operation {
            Operation::Entry(entry) => self.read(&entry, ear)?,
            Operation::SearchDone(outcome) => self.ended(outcome, ear),
            _ => {}
        }
        Ok(())
    }

    /// A reading that takes too long is given up; the connection is not.
    fn awaits(&self) -> bool {
        false
    }

    /// Each group is whole by itself.
    fn is_settled(&self) -> bool {
        true
    }

    fn due(&self) -> Option<Instant> {
        match &self.reading {
            Some(reading) => Some(reading.heard + self.pace.patience),
            None => Some(self.schedule.due()),
        }
    }
}
