// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the sources of maps and builds maps, in a dedicated thread without a time limit. `map_builder` makes the
//! bytes, and `map_rebuild` starts the thread.

use crate::map_builder::{MapError, MapPlan, MapSources, ServiceLayer};
use crate::nsswitch::{Service, ServiceLine, ServiceLines};
use crate::protocol::Table;
use roster_messages::Message;
use roster_messages::table::tools;
use roster_snapshot::{Floor, Snapshot};
use roster_snapshot_build::compile::{self, CompileError};
use roster_snapshot_build::floor_file;
use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, File};
use std::io::{self, Cursor, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Default space in each map for added records.
pub const CACHE_BYTES: usize = 512 << 10;
/// Maximum size of nsswitch.conf.
const NSSWITCH_BYTES_MAX: u64 = 1 << 20;

/// Paths of all sources.
#[derive(Clone, Debug)]
pub struct SourceFiles {
    /// The passwd file.
    pub passwd: PathBuf,
    /// The group file.
    pub group: PathBuf,
    /// nsswitch.conf.
    pub nsswitch: PathBuf,
    /// The snapshot.
    pub snapshot: PathBuf,
}

impl SourceFiles {
    /// Returns all paths, in the order of [`FileStamps`].
    pub fn paths(&self) -> [&Path; 4] {
        [&self.passwd, &self.group, &self.nsswitch, &self.snapshot]
    }
}

/// Identity and last change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

/// Maximum step of file system clocks: 100 ticks a second, with a margin.
const TICK: Duration = Duration::from_millis(20);

impl FileStamp {
    /// Returns whether a write after `now` could leave the stamp unchanged.
    fn is_from_this_tick(&self, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let since = Duration::new(
            u64::try_from(seconds).unwrap_or_default(),
            u32::try_from(nanoseconds).unwrap_or_default(),
        );
        // A time in the future proves nothing either.
        now.duration_since(UNIX_EPOCH + since).map_or(true, |age| age < TICK)
    }
}

/// Stamps of all files; `None` for a missing file.
pub type FileStamps = [Option<FileStamp>; 4];

/// Reads the stamps of all files.
pub fn read_stamps(files: &SourceFiles) -> FileStamps {
    files.paths().map(|path| {
        let metadata = fs::metadata(path).ok()?;
        Some(FileStamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    })
}

/// Returns which stamps are as recent as their reading. Before Linux 6.13, and on some later file systems, two writes
/// within a few milliseconds can leave the same stamp.
pub fn changed_this_tick(stamps: &FileStamps) -> [bool; 4] {
    let now = SystemTime::now();
    stamps.map(|stamp| stamp.is_some_and(|stamp| stamp.is_from_this_tick(now)))
}

/// The last known state of the files.
pub struct SourceState {
    /// Stamps of all files.
    pub stamps: FileStamps,
    /// Files that may change without a new stamp.
    pub maybe_changing: [bool; 4],
    /// The services, or the error of the last read.
    pub lines: io::Result<ServiceLines>,
}

impl SourceState {
    /// Reads services and stamps.
    pub fn new(files: &SourceFiles) -> Self {
        let lines = read_lines(files);
        let stamps = read_stamps(files);
        Self { stamps, maybe_changing: changed_this_tick(&stamps), lines }
    }
}

/// Returns which files changed.
pub fn changed(before: &FileStamps, now: &FileStamps) -> [bool; 4] {
    [0, 1, 2, 3].map(|place| before[place] != now[place])
}

/// Returns the maps to rebuild: together at once, and afterwards. The map of groups also lists users without groups, so
/// a new user changes it. The map of users is small and does not wait for it.
pub fn affected([passwd, group, nsswitch, snapshot]: [bool; 4]) -> (Vec<Table>, Vec<Table>) {
    match (passwd, group) {
        _ if nsswitch || snapshot || (passwd && group) => (Table::ALL.to_vec(), Vec::new()),
        (true, _) => (vec![Table::Passwd], vec![Table::Group]),
        (_, true) => (vec![Table::Group], Vec::new()),
        _ => (Vec::new(), Vec::new()),
    }
}

/// Returns whether the local files of a table, or nsswitch.conf, changed since a map was made.
pub fn local_differs(table: Table, before: &FileStamps, now: &FileStamps) -> bool {
    let group = table == Table::Group && before[1] != now[1];
    group || before[0] != now[0] || before[2] != now[2]
}

/// Reads nsswitch.conf(5). A missing file means the defaults of glibc.
///
/// # Errors
///
/// The file cannot be read: programs may use lines that this process does not know.
pub fn read_lines(files: &SourceFiles) -> io::Result<ServiceLines> {
    let mut text = Vec::new();
    let read = File::open(&files.nsswitch)
        .and_then(|file| file.take(NSSWITCH_BYTES_MAX).read_to_end(&mut text));
    match read {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(crate::nsswitch::parse(&text)),
    }
}

/// Reasons that no map was made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A text file cannot be compiled.
    #[error(transparent)]
    Text(#[from] CompileError),
    /// The snapshot cannot be used.
    #[error("{path}: cannot be used: {why}")]
    Snapshot {
        /// Path of the snapshot.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// nsswitch.conf cannot be read.
    #[error("{path}: cannot be read: {why}")]
    Services {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        why: String,
    },
    /// The map cannot be planned or written.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The map file cannot be created.
    #[error("{path}: cannot be created")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

impl BuildError {
    /// Returns the code of the error.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::Text(_) => &tools::NSCD_SOURCE_INVALID,
            Self::Snapshot { .. } => &tools::NSCD_SNAPSHOT_UNUSABLE,
            Self::Services { .. } => &tools::NSCD_SERVICES_UNREADABLE,
            Self::Map(MapError::Damaged) => &tools::NSCD_SNAPSHOT_DAMAGED,
            Self::Map(MapError::TooLarge { .. }) => &tools::NSCD_MAP_TOO_LARGE,
            Self::Map(MapError::Write(_)) => &tools::NSCD_MAP_WRITE_FAILED,
            Self::File { .. } => &tools::NSCD_MAP_FILE_FAILED,
        }
    }

    /// Returns whether the file system of maps is full.
    #[must_use]
    pub fn is_out_of_space(&self) -> bool {
        let (Self::File { source, .. } | Self::Map(MapError::Write(source))) = self else {
            return false;
        };
        matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }
}

/// A new map.
pub struct BuiltMap {
    /// The map's table.
    pub table: Table,
    /// The open file.
    pub file: File,
    /// Path of the file.
    pub path: PathBuf,
    /// Length of the file.
    pub bytes: u64,
    /// Number of users or groups.
    pub entries: usize,
    /// Free range of its data.
    pub live: std::ops::Range<usize>,
    /// Time that the build took.
    pub build_time: Duration,
    /// Reason that the snapshot is missing from the map.
    pub missing_snapshot: Option<BuildError>,
}

/// Builds maps at these paths, all from the same snapshot.
pub fn build(
    wanted: Vec<(Table, PathBuf)>,
    files: &SourceFiles,
    lines: &ServiceLines,
    room: usize,
) -> Vec<(Table, Result<BuiltMap, BuildError>)> {
    let all = [&lines.passwd, &lines.group, &lines.initgroups];
    let names_roster = all.iter().any(|line| has(line, Service::Roster));
    let published =
        if names_roster { read_published(&files.snapshot, floor_file::path()) } else { Ok(None) };
    let make = |(table, path): (Table, PathBuf)| {
        let whole = published
            .as_ref()
            .map_err(|why| BuildError::Snapshot { path: files.snapshot.clone(), why: why.clone() })
            .and_then(|published| {
                build_one(table, files, lines, published.as_ref(), (path.clone(), room))
            });
        let made = match whole {
            // Changes of the local files must not wait for a usable snapshot.
            Err(error @ (BuildError::Snapshot { .. } | BuildError::Map(MapError::Damaged)))
                if names_roster =>
            {
                let made = build_one(table, files, &lines.without_roster(), None, (path, room));
                made.map(|built| BuiltMap { missing_snapshot: Some(error), ..built })
            }
            whole => whole,
        };
        (table, made)
    };
    wanted.into_iter().map(make).collect()
}

fn has(line: &ServiceLine, service: Service) -> bool {
    line.steps.iter().any(|step| step.service == service)
}

fn build_one(
    table: Table,
    files: &SourceFiles,
    lines: &ServiceLines,
    published: Option<&PublishedSnapshot>,
    (path, room): (PathBuf, usize),
) -> Result<BuiltMap, BuildError> {
    let start = Instant::now();
    let (line, groups_of) = match table {
        Table::Passwd => (&lines.passwd, None),
        Table::Group => (&lines.group, Some(&lines.initgroups)),
    };
    let names_files = [Some(line), groups_of].into_iter().flatten();
    let names_files = names_files.into_iter().any(|line| has(line, Service::Files));
    let local = if names_files { local_snapshot(table, files)? } else { None };
    let local = local.as_deref().map(|bytes| snapshot(bytes, &files.snapshot)).transpose()?;
    let published = published.map(|it| it.snapshot(&files.snapshot)).transpose()?;
    let layers = |line: &ServiceLine| -> Vec<ServiceLayer<'_>> {
        let accounts = |service| if service == Service::Files { local } else { published };
        let layer = |&step| ServiceLayer { step, accounts: accounts(step.service) };
        line.steps.iter().map(layer).collect()
    };
    let (entries, lists) = (layers(line), groups_of.map(layers).unwrap_or_default());
    let others_follow = groups_of.is_some_and(|line| line.others_follow);
    let sources = MapSources { entries: &entries, groups_of: &lists, others_follow };
    let plan = MapPlan::new(table, sources, room)?;
    let fail = |source| BuildError::File { path: path.clone(), source };
    let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(&path, how, Mode::RUSR | Mode::WUSR).map_err(|errno| fail(errno.into()))?;
    let file = File::from(file);
    // The kernel assigns huge pages to files that already have their length.
    let written = file.set_len(plan.file_bytes()).map_err(MapError::from);
    let written = written.and_then(|()| plan.write(unix_seconds(), &file));
    if let Err(error) = written {
        let _ = fs::remove_file(&path);
        return Err(error.into());
    }
    let (bytes, entries, live) = (plan.file_bytes(), plan.entries(), plan.live());
    Ok(BuiltMap {
        table,
        file,
        path,
        bytes,
        entries,
        live,
        build_time: start.elapsed(),
        missing_snapshot: None,
    })
}

/// Compiles the local files to a snapshot, which answers as `files` does. Returns `None` if the file is missing.
fn local_snapshot(table: Table, files: &SourceFiles) -> Result<Option<Vec<u8>>, BuildError> {
    let none = Path::new("/dev/null");
    let compiled = match table {
        Table::Passwd => compile::accounts(&files.passwd, none, &mut |_| {}),
        // The users are needed for names without groups.
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
struct PublishedSnapshot {
    bytes: Vec<u8>,
    /// Floor for a file that root does not own.
    floor: Option<Floor>,
}

impl PublishedSnapshot {
    fn snapshot(&self, path: &Path) -> Result<Snapshot<'_>, BuildError> {
        let mut snapshot = snapshot(&self.bytes, path)?;
        if let Some(floor) = &self.floor {
            snapshot.set_floor(floor);
        }
        Ok(snapshot)
    }
}

/// Reads the published snapshot by the trust rules of the module, with the floor that the module applies.
fn read_published(path: &Path, floor: &Path) -> Result<Option<PublishedSnapshot>, String> {
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
        return Err("users other than its owner may write to it".to_owned());
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    file.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    // As in the module, an unusable floor file means the default floor.
    let read = || floor_file::read(floor).ok().flatten().unwrap_or_default();
    let floor = (metadata.uid() != 0).then(read);
    Ok(Some(PublishedSnapshot { bytes, floor }))
}

fn snapshot<'a>(bytes: &'a [u8], path: &Path) -> Result<Snapshot<'a>, BuildError> {
    let wrong = |why: String| BuildError::Snapshot { path: path.to_owned(), why };
    Snapshot::open(bytes).map_err(|error| wrong(error.to_string()))
}

/// Returns seconds since 1970.
pub fn unix_seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of users in a map without a snapshot, for that line of services.
    fn users_without_snapshot(line: &str) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let [passwd, group, nsswitch, snapshot] =
            ["passwd", "group", "nsswitch.conf", "roster.snap"]
                .map(|name| folder.path().join(name));
        fs::write(&passwd, "root:x:0:0:::\n").unwrap();
        fs::write(&nsswitch, format!("passwd: {line}\n")).unwrap();
        let files = SourceFiles { passwd, group, nsswitch, snapshot };
        let wanted = vec![(Table::Passwd, folder.path().join("map"))];
        let lines = read_lines(&files).unwrap();
        build(wanted, &files, &lines, CACHE_BYTES).remove(0).1.unwrap().entries
    }

    #[test]
    fn nsswitch_without_snapshot_later_services_are_mapped() {
        assert_eq!(users_without_snapshot("roster files"), 1);
        assert_eq!(users_without_snapshot("roster [!SUCCESS=continue] files"), 1);
        assert_eq!(users_without_snapshot("roster [UNAVAIL=return] files"), 0);
        assert_eq!(users_without_snapshot("files roster [UNAVAIL=return]"), 1);
    }

    #[test]
    fn map_sources_file_just_written_is_reread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwd");
        fs::write(&path, "").unwrap();
        let files = [&path; 4].map(Clone::clone);
        let [passwd, group, nsswitch, snapshot] = files;
        let [stamp, ..] = read_stamps(&SourceFiles { passwd, group, nsswitch, snapshot });
        let stamp = stamp.unwrap();
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        for (after, is_unsure) in [(0, true), (TICK.as_millis() as u64, false), (5000, false)] {
            let now = written + Duration::from_millis(after);
            assert_eq!(stamp.is_from_this_tick(now), is_unsure, "{after}");
        }
        assert!(stamp.is_from_this_tick(written - Duration::from_secs(60)), "the clock was set");
    }

    #[test]
    fn nsswitch_unreadable_file_is_not_missing() {
        let folder = tempfile::tempdir().unwrap();
        let [passwd, group, snapshot] = ["passwd", "group", "snap"].map(|n| folder.path().join(n));
        let nsswitch = folder.path().join("nsswitch.conf");
        let files = SourceFiles { passwd, group, nsswitch, snapshot };
        assert_eq!(read_lines(&files).unwrap().passwd.text, "files");
        // Even root cannot read a directory as a file.
        fs::create_dir(&files.nsswitch).unwrap();
        assert!(read_lines(&files).is_err());
    }

    #[test]
    fn map_sources_existing_map_file_has_code() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let [passwd, group, nsswitch, snapshot] =
            ["passwd", "group", "nsswitch.conf", "roster.snap"].map(path);
        fs::write(&passwd, "root:x:0:0:::\n").unwrap();
        let files = SourceFiles { passwd, group, nsswitch, snapshot };
        let wanted = vec![(Table::Passwd, path("passwd"))];
        let lines = read_lines(&files).unwrap();
        let made = build(wanted, &files, &lines, CACHE_BYTES).remove(0).1;
        assert_eq!(made.err().unwrap().message(), &tools::NSCD_MAP_FILE_FAILED);
    }
}
