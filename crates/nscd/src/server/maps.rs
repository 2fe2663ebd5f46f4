//! The files of maps, named in one folder so that a server that comes later finds them: the one that
//! is handed out of each table, and those before it, whose readers are told to move on.

use super::sources::{Built, Stamps, local_differs, unix_seconds};
use crate::layout::PAGE_BYTES;
use crate::live::{self, Live};
use crate::protocol::Table;
use crate::shared::Shared;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open, openat};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Ages at which readers of an old map are told again, in milliseconds: one may have been about to map
/// it. It has the old one until then, so the first ones follow soon.
const TOLD_AGAIN: [u64; 12] = [2, 5, 10, 20, 50, 100, 250, 500, 1000, 2000, 4000, 10_000];
/// Age at which an old map is given up, whoever may still have it.
const GIVEN_UP: Duration = Duration::from_secs(20);
/// Old maps of a table that keep their memory until then. Those before them lose it earlier,
const WHOLE_MAX: usize = 8;
/// but not before this age: somebody may have begun a look-up there. glibc trusts what it reads of a
/// group's list of members until it is done, and a list that vanishes meanwhile would end the program.
const WHOLE_FOR: Duration = Duration::from_secs(3);

/// Old maps of a table, each with a descriptor: those before them are given up as soon as they may be.
pub const RETIRED_MAX: usize = 256;

/// How long a map is served after a newer one could not be made, if only the snapshot changed.
pub const STALE_MAX: Duration = Duration::from_secs(30);

/// The map of a table that is handed out.
pub struct Current {
    /// Where it can be read and added to.
    pub live: Live,
    /// What clients are given: nobody writes through it.
    pub readable: OwnedFd,
    /// Length of the file.
    pub bytes: u64,
    /// Users or groups.
    pub entries: usize,
    /// How long it took to make.
    pub took: Duration,
    /// The files that it was made of.
    made_of: Stamps,
    /// Since when there should be a newer one.
    stale_since: Option<Instant>,
    file: File,
    path: PathBuf,
}

impl Current {
    /// Puts a map that was made to use. Its descriptor for clients is opened by way of the read-only mount, if there is one.
    pub fn new(built: Built, made_of: Stamps, read_only: Option<&OwnedFd>) -> io::Result<Self> {
        let Built { file, path, bytes, entries, live, took, .. } = built;
        let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let readable = match (read_only, path.file_name()) {
            (Some(folder), Some(name)) => openat(folder, name, how, Mode::empty())?,
            _ => open(&path, how, Mode::empty())?,
        };
        let shared = Shared::new(&file, bytes as usize)?;
        let (live, stale_since) = (Live::new(shared, live), None);
        Ok(Self { live, readable, bytes, entries, took, made_of, stale_since, file, path })
    }

    /// Says that the server is there, unless this map should be another by now.
    pub fn touch(&mut self) {
        if self.stale_since.is_none() {
            self.live.touch(unix_seconds());
        }
    }

    /// Tells its readers that there is another.
    pub fn retire(self, now: Instant) -> Retired {
        let mut map = self.live.into_map();
        // Who is reading starts again, by the socket; so does who was about to map it. Nobody is told of
        // what was before after somebody was told of what is.
        live::close(&mut map);
        live::raise(&mut map);
        let (file, path) = (self.file, self.path);
        Retired { map, file, path, since: now, told: 0, is_whole: true, is_left: false }
    }
}

/// A map that was handed out before.
pub struct Retired {
    map: Shared,
    file: File,
    path: PathBuf,
    since: Instant,
    told: usize,
    is_whole: bool,
    /// By another server, and all that its readers have until there is another.
    is_left: bool,
}

impl Retired {
    /// Opens what another server left.
    pub fn open(path: &Path, now: Instant) -> io::Result<Self> {
        let how = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(open(path, how, Mode::empty())?);
        let bytes = file.metadata()?.len();
        let map = Shared::new(&file, usize::try_from(bytes).unwrap_or_default())?;
        match live::needs(&map) {
            Some(needed) if needed as u64 <= bytes => {}
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        let path = path.to_owned();
        Ok(Self { map, file, path, since: now, told: 0, is_whole: true, is_left: true })
    }

    /// Starts to count anew, now that there is another map.
    pub fn outlived(&mut self, now: Instant) {
        (self.since, self.told, self.is_left) = (now, 0, false);
        live::close(&mut self.map);
        live::raise(&mut self.map);
    }

    /// Does what is due. Gives when the next thing is, or that all is done.
    fn tick(&mut self, now: Instant, give_up: Duration) -> Option<Instant> {
        let age = now.saturating_duration_since(self.since);
        while TOLD_AGAIN.get(self.told).is_some_and(|&due| Duration::from_millis(due) <= age) {
            self.told += 1;
            live::raise(&mut self.map);
        }
        if age >= give_up {
            // Whoever mapped it after it was last told looks for another by the time.
            live::outdate(&mut self.map);
            self.empty();
            let _ = fs::remove_file(&self.path);
            return None;
        }
        let next = TOLD_AGAIN.get(self.told).map_or(GIVEN_UP, |&due| Duration::from_millis(due));
        Some(self.since + next)
    }

    /// Gives its memory back, all but the first page. Who still reads there was told to start again.
    fn empty(&mut self) {
        if !self.is_whole {
            return;
        }
        self.is_whole = false;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let behind = (self.map.len() as u64).saturating_sub(PAGE_BYTES as u64);
        let _ = fallocate(&self.file, flags, PAGE_BYTES as u64, behind);
    }
}

/// The map of a table that is handed out, if there is one, and those before.
#[derive(Default)]
pub struct Maps {
    /// The one that is.
    pub current: Option<Current>,
    /// Those before, the oldest first.
    pub retired: Vec<Retired>,
}

impl Maps {
    /// Puts a map in the place of the one before. Nobody is answered between the two steps.
    pub fn replace(&mut self, mut fresh: Current, now: Instant) {
        fresh.touch();
        if let Some(old) = self.current.replace(fresh) {
            self.retired.push(old.retire(now));
        }
        self.outlive(now);
    }

    /// Takes the map away, and those of a server before: clients ask the name services from now on.
    pub fn withdraw(&mut self, now: Instant) {
        if let Some(old) = self.current.take() {
            self.retired.push(old.retire(now));
        }
        self.outlive(now);
    }

    fn outlive(&mut self, now: Instant) {
        let left = self.retired.iter_mut().filter(|retired| retired.is_left);
        left.for_each(|left| left.outlived(now));
    }

    /// Takes note that no map could be made of the files as they are now. Where a local file is another,
    /// the map goes at once: who is not there any more must not be served.
    pub fn not_renewed(&mut self, table: Table, now_of: &Stamps, now: Instant) {
        match &mut self.current {
            Some(map) if !local_differs(table, &map.made_of, now_of) => {
                map.stale_since.get_or_insert(now);
            }
            _ => self.withdraw(now),
        }
    }

    /// Has old maps give their memory back for a new one that has no room, unless somebody may be in a look-up
    /// there. Gives when there is room that was not before; not where old maps are not what takes it.
    pub fn make_room(&mut self, now: Instant) -> Option<Instant> {
        let whole = self.retired.iter_mut().filter(|old| old.is_whole && !old.is_left);
        let freed = whole.map(|old| match old.since + WHOLE_FOR {
            due if due <= now => {
                old.empty();
                now
            }
            due => due,
        });
        freed.min()
    }

    /// Does what is due of old maps. Gives when the next thing is.
    pub fn tick(&mut self, now: Instant) -> Option<Instant> {
        let stale_since = self.current.as_ref().and_then(|map| map.stale_since);
        let mut next = stale_since.map(|since| since + STALE_MAX);
        if next.is_some_and(|due| due <= now) {
            self.withdraw(now);
            next = None;
        }
        let too_many = self.retired.len().saturating_sub(WHOLE_MAX);
        for old in self.retired[..too_many].iter_mut().filter(|old| !old.is_left) {
            match old.since + WHOLE_FOR {
                due if due <= now => old.empty(),
                due => next = Some(next.map_or(due, |next| next.min(due))),
            }
        }
        let mut many = self.retired.len().saturating_sub(RETIRED_MAX);
        self.retired.retain_mut(|retired| {
            if retired.is_left {
                return true;
            }
            let give_up = if many > 0 { WHOLE_FOR } else { GIVEN_UP };
            many = many.saturating_sub(1);
            let due = retired.tick(now, give_up);
            next = [next, due].into_iter().flatten().min();
            due.is_some()
        });
        next
    }
}

/// A name for the file of a map that no other has, and the table of such a name.
pub fn file_name(table: Table, number: u64) -> String {
    format!("{}.{number}", table.name())
}

/// The table and number in the name of a map's file.
pub fn parse_file_name(name: &str) -> Option<(Table, u64)> {
    let (table, number) = name.split_once('.')?;
    Some((Table::of(table.as_bytes())?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::sources::{Files, ROOM_BYTES, build, lines, stamps};

    #[test]
    fn a_map_that_cannot_be_renewed_goes_at_once_or_soon() {
        let folder = tempfile::tempdir().unwrap();
        let [passwd, group, nsswitch, snapshot] =
            ["passwd", "group", "nsswitch.conf", "roster.snap"]
                .map(|name| folder.path().join(name));
        fs::write(&passwd, "root:x:0:0:::\n").unwrap();
        let files = Files { passwd, group, nsswitch, snapshot };
        let made_of = stamps(&files);
        let mut number = 0;
        let mut maps_of_now = |now| {
            number += 1;
            let path = folder.path().join(file_name(Table::Passwd, number));
            let wanted = vec![(Table::Passwd, path)];
            let made =
                build(wanted, &files, &lines(&files).unwrap(), ROOM_BYTES).remove(0).1.unwrap();
            let mut maps = Maps::default();
            maps.replace(Current::new(made, made_of, None).unwrap(), now);
            maps
        };
        let start = Instant::now();
        let mut maps = maps_of_now(start);
        // Only the snapshot is another: it is served for a while, and nobody says that it is fresh.
        let mut later = made_of;
        later[3] = later[0];
        maps.not_renewed(Table::Passwd, &later, start);
        maps.not_renewed(Table::Passwd, &later, start + STALE_MAX / 2);
        let map = &mut maps.current.as_mut().unwrap();
        map.live.touch(7);
        map.touch();
        let [low, high] = [16, 20].map(|at| crate::shared::Memory::word(map.live.map(), at));
        assert_eq!((low, high), (Some(7), Some(0)));
        assert!(maps.tick(start + STALE_MAX * 2 / 3).is_some() && maps.current.is_some());
        maps.tick(start + STALE_MAX);
        assert!(maps.current.is_none());
        // A local file is another.
        let mut maps = maps_of_now(start);
        later[0] = None;
        maps.not_renewed(Table::Passwd, &later, start);
        assert!(maps.current.is_none());
    }
}
