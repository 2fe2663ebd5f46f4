// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of maps. All are in one directory, where a later server finds them. Each table has a current map and retired
//! maps. The server notifies readers of retired maps. `map_rebuild` decides when a map is replaced.

use super::map_sources::{BuiltMap, FileStamps, local_differs, unix_seconds};
use crate::layout::PAGE_BYTES;
use crate::live_map::{self, LiveMap};
use crate::protocol::Table;
use crate::shared_memory::SharedMapping;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open, openat};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Ages in milliseconds at which the readers of a retired map are notified again. A client may have been about to map
/// it, and uses the old map until the next notice. So the first notices follow soon.
const NOTICE_AGES_MS: [u64; 12] = [2, 5, 10, 20, 50, 100, 250, 500, 1000, 2000, 4000, 10_000];
/// Age at which a retired map is deleted, even if clients still use it.
const RETIRED_FOR_MAX: Duration = Duration::from_secs(20);
/// Number of retired maps of a table that keep their memory until then. Older ones release it earlier.
const INTACT_MAX: usize = 8;
/// Minimum age for that release: a client may still be in a lookup there. glibc reads a group's member list without
/// further checks, and a list that disappears would crash the program.
const INTACT_FOR: Duration = Duration::from_secs(3);

/// Maximum number of retired maps of a table. Each has a descriptor. Older ones are deleted at the age `INTACT_FOR`.
pub const RETIRED_MAX: usize = 256;

/// Time limit of an outdated map if its rebuild failed and only the snapshot changed.
pub const STALE_MAX: Duration = Duration::from_secs(30);

/// The map of a table that clients receive.
pub struct CurrentMap {
    /// The writable mapping.
    pub live: LiveMap,
    /// Read-only descriptor for clients.
    pub readable: OwnedFd,
    /// Length of the file.
    pub bytes: u64,
    /// Number of users or groups.
    pub entries: usize,
    pub build_time: Duration,
    source_stamps: FileStamps,
    /// Time since which a rebuild is overdue.
    stale_since: Option<Instant>,
    file: File,
    path: PathBuf,
}

impl CurrentMap {
    /// Takes a new map into use. The client descriptor is opened through the read-only mount, if there is one.
    pub fn new(
        built: BuiltMap,
        made_of: FileStamps,
        read_only: Option<&OwnedFd>,
    ) -> io::Result<Self> {
        let BuiltMap { file, path, bytes, entries, live, build_time: took, .. } = built;
        let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let readable = match (read_only, path.file_name()) {
            (Some(folder), Some(name)) => openat(folder, name, how, Mode::empty())?,
            _ => open(&path, how, Mode::empty())?,
        };
        let shared = SharedMapping::new(&file, bytes as usize)?;
        let (live, stale_since) = (LiveMap::new(shared, live), None);
        Ok(Self {
            live,
            readable,
            bytes,
            entries,
            build_time: took,
            source_stamps: made_of,
            stale_since,
            file,
            path,
        })
    }

    /// Updates the timestamp, unless the map is outdated.
    pub fn touch(&mut self) {
        if self.stale_since.is_none() {
            self.live.touch(unix_seconds());
        }
    }

    /// Retires the map and notifies its readers.
    pub fn retire(self, now: Instant) -> RetiredMap {
        let mut map = self.live.into_map();
        // Clients that read the map, or are about to map it, restart through the socket. No client reads the old state
        // after another client has read the new one.
        live_map::close(&mut map);
        live_map::announce_replacement(&mut map);
        let (file, path) = (self.file, self.path);
        RetiredMap {
            map,
            file,
            path,
            since: now,
            notices_sent: 0,
            is_intact: true,
            is_inherited: false,
        }
    }
}

/// A map that was in use earlier.
pub struct RetiredMap {
    map: SharedMapping,
    file: File,
    path: PathBuf,
    since: Instant,
    notices_sent: usize,
    is_intact: bool,
    /// An earlier server made this map, and readers have no other yet.
    is_inherited: bool,
}

impl RetiredMap {
    /// Opens a map of an earlier server.
    pub fn open(path: &Path, now: Instant) -> io::Result<Self> {
        let how = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(open(path, how, Mode::empty())?);
        let bytes = file.metadata()?.len();
        let map = SharedMapping::new(&file, usize::try_from(bytes).unwrap_or_default())?;
        match live_map::bytes_needed(&map) {
            Some(needed) if needed as u64 <= bytes => {}
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        let path = path.to_owned();
        Ok(Self {
            map,
            file,
            path,
            since: now,
            notices_sent: 0,
            is_intact: true,
            is_inherited: true,
        })
    }

    /// Restarts the age, because readers now have another map.
    pub fn restart_age(&mut self, now: Instant) {
        (self.since, self.notices_sent, self.is_inherited) = (now, 0, false);
        live_map::close(&mut self.map);
        live_map::announce_replacement(&mut self.map);
    }

    /// Performs due actions. Returns the time of the next one, or `None` after the last one.
    fn tick(&mut self, now: Instant, give_up: Duration) -> Option<Instant> {
        let age = now.saturating_duration_since(self.since);
        while NOTICE_AGES_MS
            .get(self.notices_sent)
            .is_some_and(|&due| Duration::from_millis(due) <= age)
        {
            self.notices_sent += 1;
            live_map::announce_replacement(&mut self.map);
        }
        if age >= give_up {
            // Clients that mapped the file after the last notice look for another map because of this timestamp.
            live_map::mark_outdated(&mut self.map);
            self.empty();
            let _ = fs::remove_file(&self.path);
            return None;
        }
        let next = NOTICE_AGES_MS
            .get(self.notices_sent)
            .map_or(RETIRED_FOR_MAX, |&due| Duration::from_millis(due));
        Some(self.since + next)
    }

    /// Releases the memory except the first page. Readers were notified to restart.
    fn empty(&mut self) {
        if !self.is_intact {
            return;
        }
        self.is_intact = false;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let behind = (self.map.len() as u64).saturating_sub(PAGE_BYTES as u64);
        let _ = fallocate(&self.file, flags, PAGE_BYTES as u64, behind);
    }
}

/// The current map of a table, and retired maps.
#[derive(Default)]
pub struct TableMaps {
    pub current: Option<CurrentMap>,
    /// Retired maps, oldest first.
    pub retired: Vec<RetiredMap>,
}

impl TableMaps {
    /// Replaces the current map. The server sends no reply between the two steps.
    pub fn replace(&mut self, mut fresh: CurrentMap, now: Instant) {
        fresh.touch();
        if let Some(old) = self.current.replace(fresh) {
            self.retired.push(old.retire(now));
        }
        self.restart_ages(now);
    }

    /// Removes the current map and those of an earlier server. Clients then query the name services.
    pub fn withdraw(&mut self, now: Instant) {
        if let Some(old) = self.current.take() {
            self.retired.push(old.retire(now));
        }
        self.restart_ages(now);
    }

    fn restart_ages(&mut self, now: Instant) {
        let left = self.retired.iter_mut().filter(|retired| retired.is_inherited);
        left.for_each(|left| left.restart_age(now));
    }

    /// Records that no map could be made of the present files. If a local file changed, the map is removed at once,
    /// because deleted users must not be served.
    pub fn mark_stale(&mut self, table: Table, now_of: &FileStamps, now: Instant) {
        match &mut self.current {
            Some(map) if !local_differs(table, &map.source_stamps, now_of) => {
                map.stale_since.get_or_insert(now);
            }
            _ => self.withdraw(now),
        }
    }

    /// Releases memory of retired maps for a new map, except of maps that a lookup may still read. Returns the time at
    /// which space becomes free. Returns `None` if retired maps use no memory.
    pub fn free_space(&mut self, now: Instant) -> Option<Instant> {
        let whole = self.retired.iter_mut().filter(|old| old.is_intact && !old.is_inherited);
        let freed = whole.map(|old| match old.since + INTACT_FOR {
            due if due <= now => {
                old.empty();
                now
            }
            due => due,
        });
        freed.min()
    }

    /// Performs due actions on retired maps. Returns the time of the next one.
    pub fn tick(&mut self, now: Instant) -> Option<Instant> {
        let stale_since = self.current.as_ref().and_then(|map| map.stale_since);
        let mut next = stale_since.map(|since| since + STALE_MAX);
        if next.is_some_and(|due| due <= now) {
            self.withdraw(now);
            next = None;
        }
        let too_many = self.retired.len().saturating_sub(INTACT_MAX);
        for old in self.retired[..too_many].iter_mut().filter(|old| !old.is_inherited) {
            match old.since + INTACT_FOR {
                due if due <= now => old.empty(),
                due => next = Some(next.map_or(due, |next| next.min(due))),
            }
        }
        let mut many = self.retired.len().saturating_sub(RETIRED_MAX);
        self.retired.retain_mut(|retired| {
            if retired.is_inherited {
                return true;
            }
            let give_up = if many > 0 { INTACT_FOR } else { RETIRED_FOR_MAX };
            many = many.saturating_sub(1);
            let due = retired.tick(now, give_up);
            next = [next, due].into_iter().flatten().min();
            due.is_some()
        });
        next
    }
}

/// Returns a unique file name for a map. [`parse_file_name`] reverses it.
pub fn file_name(table: Table, number: u64) -> String {
    format!("{}.{number}", table.name())
}

/// Parses the name of a map file into its table and number.
pub fn parse_file_name(name: &str) -> Option<(Table, u64)> {
    let (table, number) = name.split_once('.')?;
    Some((Table::from_name(table.as_bytes())?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::map_sources::{CACHE_BYTES, SourceFiles, build, read_lines, read_stamps};

    #[test]
    fn a_map_that_cannot_be_renewed_goes_at_once_or_soon() {
        let folder = tempfile::tempdir().unwrap();
        let [passwd, group, nsswitch, snapshot] =
            ["passwd", "group", "nsswitch.conf", "roster.snap"]
                .map(|name| folder.path().join(name));
        fs::write(&passwd, "root:x:0:0:::\n").unwrap();
        let files = SourceFiles { passwd, group, nsswitch, snapshot };
        let made_of = read_stamps(&files);
        let mut number = 0;
        let mut maps_of_now = |now| {
            number += 1;
            let path = folder.path().join(file_name(Table::Passwd, number));
            let wanted = vec![(Table::Passwd, path)];
            let made = build(wanted, &files, &read_lines(&files).unwrap(), CACHE_BYTES)
                .remove(0)
                .1
                .unwrap();
            let mut maps = TableMaps::default();
            maps.replace(CurrentMap::new(made, made_of, None).unwrap(), now);
            maps
        };
        let start = Instant::now();
        let mut maps = maps_of_now(start);
        // Only the snapshot changed: the map is served for a while, with an outdated timestamp.
        let mut later = made_of;
        later[3] = later[0];
        maps.mark_stale(Table::Passwd, &later, start);
        maps.mark_stale(Table::Passwd, &later, start + STALE_MAX / 2);
        let map = &mut maps.current.as_mut().unwrap();
        map.live.touch(7);
        map.touch();
        let [low, high] =
            [16, 20].map(|at| crate::shared_memory::MapMemory::word(map.live.map(), at));
        assert_eq!((low, high), (Some(7), Some(0)));
        assert!(maps.tick(start + STALE_MAX * 2 / 3).is_some() && maps.current.is_some());
        maps.tick(start + STALE_MAX);
        assert!(maps.current.is_none());
        // A local file changed.
        let mut maps = maps_of_now(start);
        later[0] = None;
        maps.mark_stale(Table::Passwd, &later, start);
        assert!(maps.current.is_none());
    }
}
