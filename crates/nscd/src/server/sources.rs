//! Reads what maps are made of, and makes them. Takes as long as it takes, in a thread of its own.

use crate::map::{Layer, MapError, Plan, Sources};
use crate::nsswitch::{Line, Lines, Service};
use crate::protocol::Table;
use roster_snapshot::{Floor, Snapshot};
use roster_snapshot_build::compile::{self, CompileError};
use roster_snapshot_build::floor_file;
use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, File};
use std::io::{self, Cursor, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Room in each map for what is found out later, unless told otherwise.
pub const ROOM_BYTES: usize = 512 << 10;
/// The largest text file that is read.
const NSSWITCH_BYTES_MAX: u64 = 1 << 20;

/// Where everything is read.
#[derive(Clone, Debug)]
pub struct Files {
    /// Users.
    pub passwd: PathBuf,
    /// Groups.
    pub group: PathBuf,
    /// Which name services there are.
    pub nsswitch: PathBuf,
    /// The snapshot.
    pub snapshot: PathBuf,
}

impl Files {
    /// All of them, the order of [`Stamps`].
    pub fn paths(&self) -> [&Path; 4] {
        [&self.passwd, &self.group, &self.nsswitch, &self.snapshot]
    }
}

/// Which file stands at a path, and how it was last written; nothing where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

/// Clocks of file systems stand still for as long, at the most: 100 ticks a second.
const TICK: Duration = Duration::from_millis(20);

impl Stamp {
    /// Whether the file may be written once more and look the same, at that time.
    fn is_of_this_tick(&self, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let since = Duration::new(
            u64::try_from(seconds).unwrap_or_default(),
            u32::try_from(nanoseconds).unwrap_or_default(),
        );
        // Times to come are no help, either.
        now.duration_since(UNIX_EPOCH + since).map_or(true, |age| age < TICK)
    }
}

/// The stamps of all files.
pub type Stamps = [Option<Stamp>; 4];

/// Looks at all files.
pub fn stamps(files: &Files) -> Stamps {
    files.paths().map(|path| {
        let metadata = fs::metadata(path).ok()?;
        Some(Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    })
}

/// Which stamps are of the moment in which they were taken. Before Linux 6.13, and on some file systems after it, a file
/// that is written in place twice in a few milliseconds can look the same both times.
pub fn of_this_tick(stamps: &Stamps) -> [bool; 4] {
    let now = SystemTime::now();
    stamps.map(|stamp| stamp.is_some_and(|stamp| stamp.is_of_this_tick(now)))
}

/// Which files are others.
pub fn changed(before: &Stamps, now: &Stamps) -> [bool; 4] {
    [0, 1, 2, 3].map(|place| before[place] != now[place])
}

/// Which maps have to be made anew: together at once, and after that. The map of groups also has who is
/// in none, so that a new user changes it; nobody waits for that with the map of users, which is small.
pub fn affected([passwd, group, nsswitch, snapshot]: [bool; 4]) -> (Vec<Table>, Vec<Table>) {
    match (passwd, group) {
        _ if nsswitch || snapshot || (passwd && group) => (Table::ALL.to_vec(), Vec::new()),
        (true, _) => (vec![Table::Passwd], vec![Table::Group]),
        (_, true) => (vec![Table::Group], Vec::new()),
        _ => (Vec::new(), Vec::new()),
    }
}

/// Whether a table's local files, or what is asked at all, are others than a map was made of.
pub fn local_differs(table: Table, before: &Stamps, now: &Stamps) -> bool {
    let group = table == Table::Group && before[1] != now[1];
    group || before[0] != now[0] || before[2] != now[2]
}

/// The lines of nsswitch.conf(5) as they are now. Of a file that is not there they are those that glibc has built in.
///
/// # Errors
///
/// It cannot be read: programs may know lines that this process does not.
pub fn lines(files: &Files) -> io::Result<Lines> {
    let mut text = Vec::new();
    let read = File::open(&files.nsswitch)
        .and_then(|file| file.take(NSSWITCH_BYTES_MAX).read_to_end(&mut text));
    match read {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(crate::nsswitch::parse(&text)),
    }
}

/// Why no map was made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A text file.
    #[error(transparent)]
    Text(#[from] CompileError),
    /// The snapshot's file.
    #[error("{path} cannot be used: {why}")]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The file that says which services there are.
    #[error("cannot read {path}: {why}")]
    Services {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The map.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Its file.
    #[error("cannot make {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl BuildError {
    /// Whether the file system of maps has no room.
    #[must_use]
    pub fn is_for_room(&self) -> bool {
        let (Self::File { source, .. } | Self::Map(MapError::Write(source))) = self else {
            return false;
        };
        matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }
}

/// A map that was made.
pub struct Built {
    /// Which.
    pub table: Table,
    /// Its file.
    pub file: File,
    /// Where the file is.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Users or groups in it.
    pub entries: usize,
    /// Where its data is free.
    pub live: std::ops::Range<usize>,
    /// How long it took.
    pub took: Duration,
    /// Why the snapshot is not in it, though it should be.
    pub lacks: Option<String>,
}

/// Makes maps at these paths, all of the same snapshot.
pub fn build(
    wanted: Vec<(Table, PathBuf)>,
    files: &Files,
    lines: &Lines,
    room: usize,
) -> Vec<(Table, Result<Built, BuildError>)> {
    let all = [&lines.passwd, &lines.group, &lines.initgroups];
    let names_roster = all.iter().any(|line| has(line, Service::Roster));
    let published =
        if names_roster { published(&files.snapshot, floor_file::path()) } else { Ok(None) };
    let make = |(table, path): (Table, PathBuf)| {
        let whole = published
            .as_ref()
            .map_err(|why| BuildError::Snapshot { path: files.snapshot.clone(), why: why.clone() })
            .and_then(|published| {
                one(table, files, lines, published.as_ref(), (path.clone(), room))
            });
        let made = match whole {
            // Changes of the local files are not to wait for the next snapshot.
            Err(error @ (BuildError::Snapshot { .. } | BuildError::Map(MapError::Damaged)))
                if names_roster =>
            {
                let made = one(table, files, &lines.without_roster(), None, (path, room));
                made.map(|built| Built { lacks: Some(error.to_string()), ..built })
            }
            whole => whole,
        };
        (table, made)
    };
    wanted.into_iter().map(make).collect()
}

fn has(line: &Line, service: Service) -> bool {
    line.steps.iter().any(|step| step.service == service)
}

fn one(
    table: Table,
    files: &Files,
    lines: &Lines,
    published: Option<&Published>,
    (path, room): (PathBuf, usize),
) -> Result<Built, BuildError> {
    let start = Instant::now();
    let (line, groups_of) = match table {
        Table::Passwd => (&lines.passwd, None),
        Table::Group => (&lines.group, Some(&lines.initgroups)),
    };
    let names_files = [Some(line), groups_of].into_iter().flatten();
    let names_files = names_files.into_iter().any(|line| has(line, Service::Files));
    let local = if names_files { local(table, files)? } else { None };
    let local = local.as_deref().map(|bytes| snapshot(bytes, &files.snapshot)).transpose()?;
    let published = published.map(|it| it.snapshot(&files.snapshot)).transpose()?;
    let layers = |line: &Line| -> Vec<Layer<'_>> {
        let accounts = |service| if service == Service::Files { local } else { published };
        let layer = |&step| Layer { step, accounts: accounts(step.service) };
        line.steps.iter().map(layer).collect()
    };
    let (entries, lists) = (layers(line), groups_of.map(layers).unwrap_or_default());
    let others_follow = groups_of.is_some_and(|line| line.others_follow);
    let sources = Sources { entries: &entries, groups_of: &lists, others_follow };
    let plan = Plan::new(table, sources, room)?;
    let fail = |source| BuildError::File { path: path.clone(), source };
    let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(&path, how, Mode::RUSR | Mode::WUSR).map_err(|errno| fail(errno.into()))?;
    let file = File::from(file);
    // Huge pages are given to files that are long already.
    let written = file.set_len(plan.file_bytes()).map_err(MapError::from);
    let written = written.and_then(|()| plan.write(unix_seconds(), &file));
    if let Err(error) = written {
        let _ = fs::remove_file(&path);
        return Err(error.into());
    }
    let (bytes, entries, live) = (plan.file_bytes(), plan.entries(), plan.live());
    Ok(Built { table, file, path, bytes, entries, live, took: start.elapsed(), lacks: None })
}

/// The text files as a snapshot, which answers as `files` does; nothing where there is none.
fn local(table: Table, files: &Files) -> Result<Option<Vec<u8>>, BuildError> {
    let none = Path::new("/dev/null");
    let compiled = match table {
        Table::Passwd => compile::accounts(&files.passwd, none, &mut |_| {}),
        // Users are there for those who are in no group.
        Table::Group => match compile::accounts(&files.passwd, &files.group, &mut |_| {}) {
            Err(CompileError::Read { path, source })
                if path == files.passwd && source.kind() == ErrorKind::NotFound =>
            {
                compile::accounts(none, &files.group, &mut |_| {})
            }
            compiled => compiled,
        },
    };
    let image = match compiled {
        Ok(compiled) => compiled.image,
        Err(CompileError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Cursor::new(Vec::new());
    let path = if table == Table::Passwd { &files.passwd } else { &files.group };
    let failed = |source| BuildError::File { path: path.clone(), source };
    image.write(&mut bytes, 0).map_err(failed)?;
    Ok(Some(bytes.into_inner()))
}

/// The published snapshot.
struct Published {
    bytes: Vec<u8>,
    /// Of a file that root does not own.
    floor: Option<Floor>,
}

impl Published {
    fn snapshot(&self, path: &Path) -> Result<Snapshot<'_>, BuildError> {
        let mut snapshot = snapshot(&self.bytes, path)?;
        if let Some(floor) = &self.floor {
            snapshot.set_floor(floor);
        }
        Ok(snapshot)
    }
}

/// The published snapshot, if it is one that the module would believe, and the floor that the module would apply.
fn published(path: &Path, floor: &Path) -> Result<Option<Published>, String> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let parent = path.parent().unwrap_or(Path::new("/"));
    let folder = fs::metadata(parent).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    let is_plain = metadata.is_file() && (metadata.mode() | folder.mode()) & 0o022 == 0;
    if !is_plain || ![0, folder.uid()].contains(&metadata.uid()) {
        return Err("somebody else may write to it; see roster doctor".to_owned());
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    file.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    // As the module: a floor that cannot be used is the default one.
    let read = || floor_file::read(floor).ok().flatten().unwrap_or_default();
    let floor = (metadata.uid() != 0).then(read);
    Ok(Some(Published { bytes, floor }))
}

fn snapshot<'a>(bytes: &'a [u8], path: &Path) -> Result<Snapshot<'a>, BuildError> {
    let wrong = |why: String| BuildError::Snapshot { path: path.to_owned(), why };
    Snapshot::open(bytes).map_err(|error| wrong(error.to_string()))
}

/// Seconds since 1970.
pub fn unix_seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries of a map of users where there is no snapshot, by the line of its services.
    fn users_without_snapshot(line: &str) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let [passwd, group, nsswitch, snapshot] =
            ["passwd", "group", "nsswitch.conf", "roster.snap"]
                .map(|name| folder.path().join(name));
        fs::write(&passwd, "root:x:0:0:::\n").unwrap();
        fs::write(&nsswitch, format!("passwd: {line}\n")).unwrap();
        let files = Files { passwd, group, nsswitch, snapshot };
        let wanted = vec![(Table::Passwd, folder.path().join("map"))];
        let lines = lines(&files).unwrap();
        build(wanted, &files, &lines, ROOM_BYTES).remove(0).1.unwrap().entries
    }

    #[test]
    fn without_a_snapshot_later_services_are_in_the_map_unless_the_line_ends_there() {
        assert_eq!(users_without_snapshot("roster files"), 1);
        assert_eq!(users_without_snapshot("roster [!SUCCESS=continue] files"), 1);
        assert_eq!(users_without_snapshot("roster [UNAVAIL=return] files"), 0);
        assert_eq!(users_without_snapshot("files roster [UNAVAIL=return]"), 1);
    }

    #[test]
    fn a_file_that_was_just_written_may_be_written_again_and_look_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwd");
        fs::write(&path, "").unwrap();
        let files = [&path; 4].map(Clone::clone);
        let [passwd, group, nsswitch, snapshot] = files;
        let [stamp, ..] = stamps(&Files { passwd, group, nsswitch, snapshot });
        let stamp = stamp.unwrap();
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        for (after, is_unsure) in [(0, true), (TICK.as_millis() as u64, false), (5000, false)] {
            let now = written + Duration::from_millis(after);
            assert_eq!(stamp.is_of_this_tick(now), is_unsure, "{after}");
        }
        assert!(stamp.is_of_this_tick(written - Duration::from_secs(60)), "the clock was set");
    }

    #[test]
    fn services_that_cannot_be_read_are_not_taken_for_those_of_a_missing_file() {
        let folder = tempfile::tempdir().unwrap();
        let [passwd, group, snapshot] = ["passwd", "group", "snap"].map(|n| folder.path().join(n));
        let nsswitch = folder.path().join("nsswitch.conf");
        let files = Files { passwd, group, nsswitch, snapshot };
        assert_eq!(lines(&files).unwrap().passwd.text, "files");
        // A folder is what root cannot read, either.
        fs::create_dir(&files.nsswitch).unwrap();
        assert!(lines(&files).is_err());
    }
}
