// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rebuilds maps after changes: decides when, starts the build thread, and installs the results. `map_sources` builds a
//! map, and `map_files` has the files.

use super::map_files::{CurrentMap, file_name};
use super::map_sources::{
    self, BuildError, BuiltMap, FileStamps, SourceFiles, affected, changed, changed_this_tick,
    read_stamps,
};
use super::table_state::BuildOutcome;
use super::{Server, services, with_causes};
use crate::map_builder::MapError;
use crate::protocol::Table;
use roster_messages::table::tools;
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

/// A file that was written within this time may be incomplete.
const STABLE_FOR: Duration = Duration::from_secs(1);
/// Maximum pause between two builds.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Results of a build, with the stamps of its source files.
type BuildResults = (FileStamps, Vec<(Table, Result<BuiltMap, BuildError>)>);

/// Reasons for a check of the files.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum CheckReason {
    /// A file event: the file counts as changed even if its stamp is equal.
    Notified,
    /// A build is about to start.
    BeforeBuild,
    /// The periodic check. It is postponed if a file was written within `STABLE_FOR`.
    Periodic,
}

/// Tables to rebuild, and the build in progress.
pub(super) struct MapRebuild {
    pub(super) dirty: BTreeSet<Table>,
    /// Tables to rebuild after those in `dirty`.
    later: BTreeSet<Table>,
    /// Tables that the thread builds now.
    pub(super) building: BTreeSet<Table>,
    pub(super) not_before: Instant,
    /// Time at which a map that lacked space may fit.
    pub(super) retry_at: Option<Instant>,
    results: (mpsc::Sender<BuildResults>, mpsc::Receiver<BuildResults>),
    /// The first socket becomes readable when a result is available.
    wakeup: (UnixStream, UnixStream),
}

impl MapRebuild {
    /// Marks all tables for a build.
    pub(super) fn new(wakeup: (UnixStream, UnixStream), now: Instant) -> Self {
        Self {
            dirty: Table::ALL.into_iter().collect(),
            later: BTreeSet::new(),
            building: BTreeSet::new(),
            not_before: now,
            retry_at: None,
            results: mpsc::channel(),
            wakeup,
        }
    }
}

impl Server {
    pub(super) fn handle_watch_events(&mut self) {
        let news = self.watch.read_events();
        if news.files {
            self.watch.refresh();
            self.check_files(CheckReason::Notified);
        }
        if news.services {
            self.invalidate_added();
        }
    }

    /// Discards the added replies of other services, which may be outdated.
    pub(super) fn invalidate_added(&mut self) {
        let now = Instant::now();
        self.helpers.advance_epoch();
        for table in Table::ALL {
            if let Some(current) = &mut self.maps(table).current
                && current.live.added() > 0
            {
                current.live.empty(now);
            }
        }
    }

    /// Finds changed files and marks their tables.
    pub(super) fn check_files(&mut self, why: CheckReason) {
        let now = read_stamps(&self.options.files);
        let mut others = changed(&self.sources.stamps, &now);
        if why == CheckReason::Notified {
            (0..others.len()).for_each(|place| others[place] |= self.sources.maybe_changing[place]);
        }
        let (at_once, later) = affected(others);
        if at_once.is_empty()
            || (why == CheckReason::Periodic && written_lately(&self.options.files))
        {
            return;
        }
        if others[2] {
            self.read_lines();
        }
        self.sources.maybe_changing = changed_this_tick(&now);
        self.sources.stamps = now;
        self.invalidate_added();
        self.rebuild.dirty.extend(at_once);
        self.rebuild.later.extend(later);
    }

    /// Reads the services. Until that succeeds, the server has no maps.
    fn read_lines(&mut self) {
        self.sources.lines = map_sources::read_lines(&self.options.files);
        if let Ok(lines) = &self.sources.lines {
            self.helpers.reconfigure(services(lines));
        }
    }

    /// Starts a thread that builds the marked tables.
    pub(super) fn build(&mut self) {
        // Includes all changes until now. The check after the build finds later ones.
        self.check_files(CheckReason::BeforeBuild);
        if self.sources.lines.is_err() {
            self.read_lines();
        }
        let tables: Vec<_> = std::mem::take(&mut self.rebuild.dirty).into_iter().collect();
        tables.iter().for_each(|table| _ = self.rebuild.later.remove(table));
        let lines = match &self.sources.lines {
            Ok(lines) => lines.clone(),
            Err(error) => return self.record_build_failure(tables, &with_causes(error)),
        };
        let files = self.options.files.clone();
        let folder = self.options.maps.clone();
        let names = tables.iter().map(|&table| {
            self.map_dir.last_number += 1;
            (table, folder.join(file_name(table, self.map_dir.last_number)))
        });
        let names: Vec<_> = names.collect();
        let (made_of, room) = (self.sources.stamps, self.options.cache_bytes);
        let (sender, bell) = (self.rebuild.results.0.clone(), self.rebuild.wakeup.1.try_clone());
        let make = move || {
            let _ = sender.send((made_of, map_sources::build(names, &files, &lines, room)));
            if let Ok(bell) = bell {
                let _ = rustix::io::write(&bell, b"!");
            }
        };
        self.rebuild.building = tables.iter().copied().collect();
        if let Err(error) = std::thread::Builder::new().name("maps".into()).spawn(make) {
            self.rebuild.building.clear();
            self.rebuild.not_before = Instant::now() + STABLE_FOR;
            self.rebuild.dirty.extend(tables);
            let text = format!("map thread: cannot start: {error}");
            self.log_fault(&tools::NSCD_THREAD_FAILED, &text);
        }
    }

    /// Records that the services cannot be read, and schedules another attempt.
    fn record_build_failure(&mut self, tables: Vec<Table>, why: &str) {
        let now = Instant::now();
        let path = self.options.files.nsswitch.clone();
        for &table in &tables {
            let error = BuildError::Services { path: path.clone(), why: why.to_owned() };
            self.install_map(table, Err(error), &self.sources.stamps.clone(), now);
        }
        self.rebuild.not_before = now + PAUSE_MAX;
        self.rebuild.dirty.extend(tables);
        self.finish_waiting();
    }

    /// Installs all finished maps in one step.
    pub(super) fn install_maps(&mut self, now: Instant) {
        let mut room = [0; 16];
        while matches!(rustix::io::read(&self.rebuild.wakeup.0, &mut room), Ok(1..)) {}
        while let Ok((made_of, made)) = self.rebuild.results.1.try_recv() {
            self.rebuild.building.clear();
            let mut took = Duration::ZERO;
            for (table, result) in made {
                took += result.as_ref().map_or(STABLE_FOR, |built| built.build_time);
                self.install_map(table, result, &made_of, now);
            }
            // Results of earlier helper queries reflect the earlier files.
            self.helpers.advance_epoch();
            self.rebuild.not_before = now + took.min(PAUSE_MAX);
            self.finish_waiting();
            let later = std::mem::take(&mut self.rebuild.later);
            self.rebuild.dirty.extend(later);
            self.check_files(CheckReason::Periodic);
        }
    }

    /// Continues connections that waited for maps. Reports readiness after the first build of all tables.
    fn finish_waiting(&mut self) {
        self.serve_waiting();
        self.finish_admin_requests();
        let all = Table::ALL
            .into_iter()
            .all(|table| self.maps(table).current.is_some() || self.tables.has_failed(table));
        if all && let Some(ready) = self.ready.take() {
            ready();
        }
    }

    fn install_map(
        &mut self,
        table: Table,
        result: Result<BuiltMap, BuildError>,
        made_of: &FileStamps,
        now: Instant,
    ) {
        let current = result.and_then(|mut built| {
            let (path, lacks) = (built.path.clone(), built.missing_snapshot.take());
            let current = CurrentMap::new(built, *made_of, self.map_dir.read_only.as_ref());
            current.map(|current| (current, lacks)).map_err(|source| {
                let _ = std::fs::remove_file(&path);
                BuildError::File { path, source }
            })
        });
        self.tables.get_mut(table).attempts += 1;
        let (outcome, problem) = match current {
            Ok((current, lacks)) => {
                self.statistics.table(table).made += 1;
                self.maps(table).replace(current, now);
                let lacks = lacks.map(|error| {
                    let text = format!("{error}. Name services serve its entries");
                    (error.message(), text)
                });
                (BuildOutcome::Made, lacks)
            }
            Err(error) => {
                let maps = self.maps(table);
                let outcome = match error {
                    BuildError::Map(MapError::TooLarge { .. }) => {
                        maps.withdraw(now);
                        BuildOutcome::TooLarge
                    }
                    BuildError::Services { .. } => {
                        maps.withdraw(now);
                        BuildOutcome::Failed
                    }
                    _ => {
                        maps.mark_stale(table, made_of, now);
                        BuildOutcome::Failed
                    }
                };
                if error.is_out_of_space() {
                    self.free_space(now);
                }
                (outcome, Some((error.message(), with_causes(&error))))
            }
        };
        let state = self.tables.get_mut(table);
        state.outcome = outcome;
        let logged = problem.as_ref().map(|(_, text)| text);
        if state.logged_problem.as_ref() != logged {
            state.logged_problem = logged.cloned();
            let name = table.name();
            match &problem {
                Some((message, problem)) => {
                    let what = if outcome.is_failure() { "no new map" } else { "incomplete map" };
                    self.log_fault(message, &format!("{name}: {what}: {problem}"));
                }
                None => self.log(&format!("{name} has a map again")),
            }
        }
        self.statistics.table(table).problem = problem.map(|(_, text)| text);
    }
}

impl Server {
    /// Releases memory of retired maps, which may be the reason for the lack of space.
    fn free_space(&mut self, now: Instant) {
        for table in Table::ALL {
            let freed = self.maps(table).free_space(now);
            self.rebuild.retry_at = [self.rebuild.retry_at, freed].into_iter().flatten().min();
        }
    }
}

fn written_lately(files: &SourceFiles) -> bool {
    let now = SystemTime::now();
    files.paths().iter().any(|path| {
        let written = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        written.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age < STABLE_FOR))
    })
}
