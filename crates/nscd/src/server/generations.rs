//! From one generation of maps to the next: what is heard of files, when maps are made anew, and what
//! becomes of those that were made.

use super::maps::{Current, file_name};
use super::sources::{
    self, BuildError, Built, Files, Stamps, affected, changed, of_this_tick, stamps,
};
use super::{Level, Server, in_full, services};
use crate::map::MapError;
use crate::protocol::Table;
use std::time::{Duration, Instant, SystemTime};

/// A file that was written a moment ago may be half written.
const SETTLED: Duration = Duration::from_secs(1);
/// The longest pause between two maps.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What came of making maps of the files with those stamps.
pub type Made = (Stamps, Vec<(Table, Result<Built, BuildError>)>);

/// Why it is looked which files are others.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Look {
    /// One was written: it counts, though it may look as before.
    Heard,
    /// Maps are made of them now.
    Asked,
    /// Nothing was heard: one that somebody is writing is left for later.
    Unasked,
}

impl Server {
    pub(super) fn hear_news(&mut self) {
        let news = self.watch.news();
        if news.files {
            self.watch.renew();
            self.look(Look::Heard);
        }
        if news.others {
            self.forget();
        }
    }

    /// What other services said may not be so any more.
    pub(super) fn forget(&mut self) {
        let now = Instant::now();
        self.helpers.outdate();
        for table in Table::ALL {
            if let Some(current) = &mut self.maps(table).current
                && current.live.added() > 0
            {
                current.live.empty(now);
            }
        }
    }

    /// Looks which files are others than before.
    pub(super) fn look(&mut self, why: Look) {
        let now = stamps(&self.options.files);
        let mut others = changed(&self.stamps, &now);
        if why == Look::Heard {
            (0..others.len()).for_each(|place| others[place] |= self.unsure[place]);
        }
        let (at_once, later) = affected(others);
        if at_once.is_empty() || (why == Look::Unasked && written_lately(&self.options.files)) {
            return;
        }
        if others[2] {
            self.read_lines();
        }
        self.unsure = of_this_tick(&now);
        self.stamps = now;
        self.forget();
        self.dirty.extend(at_once);
        self.later.extend(later);
    }

    /// Reads which services there are. As long as that cannot be read, nothing is served.
    fn read_lines(&mut self) {
        self.lines = sources::lines(&self.options.files);
        if let Ok(lines) = &self.lines {
            self.helpers.reconfigure(services(lines));
        }
    }

    /// Has what changed made anew, in a thread.
    pub(super) fn build(&mut self) {
        // What changed until now is in; what changes from now on is found later.
        self.look(Look::Asked);
        if self.lines.is_err() {
            self.read_lines();
        }
        let tables: Vec<_> = std::mem::take(&mut self.dirty).into_iter().collect();
        tables.iter().for_each(|table| _ = self.later.remove(table));
        let lines = match &self.lines {
            Ok(lines) => lines.clone(),
            Err(error) => return self.cannot_begin(tables, &in_full(error)),
        };
        let files = self.options.files.clone();
        let folder = self.options.maps.clone();
        let names = tables.iter().map(|&table| {
            self.next_file += 1;
            (table, folder.join(file_name(table, self.next_file)))
        });
        let names: Vec<_> = names.collect();
        let (made_of, room) = (self.stamps, self.options.room);
        let (sender, bell) = (self.results.0.clone(), self.bell.1.try_clone());
        let make = move || {
            let _ = sender.send((made_of, sources::build(names, &files, &lines, room)));
            if let Ok(bell) = bell {
                let _ = rustix::io::write(&bell, b"!");
            }
        };
        self.building = tables.iter().copied().collect();
        if let Err(error) = std::thread::Builder::new().name("maps".into()).spawn(make) {
            self.building.clear();
            self.not_before = Instant::now() + SETTLED;
            self.dirty.extend(tables);
            self.say(Level::Warning, &format!("cannot start a thread: {error}"));
        }
    }

    /// Takes note that it is not known what maps are to be made of. It is tried again and again.
    fn cannot_begin(&mut self, tables: Vec<Table>, why: &str) {
        let now = Instant::now();
        let path = self.options.files.nsswitch.clone();
        for &table in &tables {
            let error = BuildError::Services { path: path.clone(), why: why.to_owned() };
            self.take(table, Err(error), &self.stamps.clone(), now);
        }
        self.not_before = now + PAUSE_MAX;
        self.dirty.extend(tables);
        self.tell_taken();
    }

    /// Puts maps that were made to use, all at once.
    pub(super) fn built(&mut self, now: Instant) {
        let mut room = [0; 16];
        while matches!(rustix::io::read(&self.bell.0, &mut room), Ok(1..)) {}
        while let Ok((made_of, made)) = self.results.1.try_recv() {
            self.building.clear();
            let mut took = Duration::ZERO;
            for (table, result) in made {
                took += result.as_ref().map_or(SETTLED, |built| built.took);
                self.take(table, result, &made_of, now);
            }
            // What a helper said before goes by what was then.
            self.helpers.outdate();
            self.not_before = now + took.min(PAUSE_MAX);
            self.tell_taken();
            let later = std::mem::take(&mut self.later);
            self.dirty.extend(later);
            self.look(Look::Unasked);
        }
    }

    /// Goes on with those who waited for maps.
    fn tell_taken(&mut self) {
        self.serve_waiting();
        self.tell_done();
        let all = Table::ALL
            .into_iter()
            .all(|table| self.maps(table).current.is_some() || self.failed.contains(&table));
        if all && let Some(ready) = self.ready.take() {
            ready();
        }
    }

    fn take(
        &mut self,
        table: Table,
        result: Result<Built, BuildError>,
        made_of: &Stamps,
        now: Instant,
    ) {
        let current = result.and_then(|mut built| {
            let (path, lacks) = (built.path.clone(), built.lacks.take());
            let current = Current::new(built, *made_of, self.read_only.as_ref());
            current.map(|current| (current, lacks)).map_err(|source| {
                let _ = std::fs::remove_file(&path);
                BuildError::File { path, source }
            })
        });
        self.too_large.remove(&table);
        self.attempts[table as usize] += 1;
        let problem = match current {
            Ok((current, lacks)) => {
                self.failed.remove(&table);
                self.figures.table(table).made += 1;
                self.maps(table).replace(current, now);
                lacks.map(|why| format!("{why}; the name services are asked for what is in it"))
            }
            Err(error) => {
                match error {
                    BuildError::Map(MapError::TooLarge { .. }) => {
                        self.maps(table).withdraw(now);
                        self.too_large.insert(table);
                    }
                    BuildError::Services { .. } => self.maps(table).withdraw(now),
                    _ => self.maps(table).not_renewed(table, made_of, now),
                }
                if error.is_for_room() {
                    self.make_room(now);
                }
                self.failed.insert(table);
                Some(in_full(&error))
            }
        };
        let told = &mut self.told[table as usize];
        if *told != problem {
            told.clone_from(&problem);
            let name = table.name();
            match &problem {
                Some(problem) => {
                    let has_failed = self.failed.contains(&table);
                    let what = if has_failed { "no new map" } else { "a map of a part" };
                    let text = format!("{what} of {name}: {problem}");
                    self.say(Level::Warning, &text);
                }
                None => self.say(Level::Info, &format!("{name} has a map again")),
            }
        }
        self.figures.table(table).problem = problem;
    }
}

impl Server {
    /// Old maps may be what there is no room for.
    fn make_room(&mut self, now: Instant) {
        for table in Table::ALL {
            let freed = self.maps(table).make_room(now);
            self.again = [self.again, freed].into_iter().flatten().min();
        }
    }
}

fn written_lately(files: &Files) -> bool {
    let now = SystemTime::now();
    files.paths().iter().any(|path| {
        let written = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        written.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age < SETTLED))
    })
}
