//! Opens a cache that may be anything: gone, damaged, foreign, deadly.

use crate::tables;
use crate::{FILE, PAGE_CACHE_BYTES, SET_ASIDE_MAX, Store, StoreError};
use redb::Database;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Openings that may die before the file is held to be the reason. Not the first ones: they may have
/// been killed, with a host that ran out of memory.
const DEADLY_OPENINGS: u32 = 3;

/// An open cache and what was read out of it.
pub struct Opened<T> {
    /// The cache.
    pub store: Store,
    /// What the caller read out of it.
    pub loaded: T,
    /// The file that was there before, when it was of no use.
    pub set_aside: Option<SetAside>,
}

/// A file that was of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Where it lies now.
    pub path: PathBuf,
    /// What it was.
    pub was: Useless,
    /// Why, in words.
    pub reason: String,
}

/// In which way a file can be of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Useless {
    /// It is no cache, or not whole.
    Damaged,
    /// It is the cache of another identity or of another version.
    Foreign,
}

impl Useless {
    /// What the file is called when it was set aside.
    fn suffix(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Foreign => "other",
        }
    }
}

/// Opens the cache in `folder`, checks every page of it and lets `load` read what it needs. When
/// the file or what `load` finds in it is [`StoreError::Damaged`], or when three openings in a row ended
/// with the process, the file is set aside and a fresh one opened. A cache belongs to an `identity`;
/// that of another, [`StoreError::Foreign`], is of no use either.
pub fn open<T>(
    folder: &Path,
    identity: &str,
    load: impl Fn(&Store) -> Result<T, StoreError>,
) -> Result<Opened<T>, StoreError> {
    let path = folder.join(FILE);
    let marker = Marker::in_folder(folder);
    let deadly = marker.deaths() >= DEADLY_OPENINGS;
    let mut set_aside = None;
    if deadly {
        let reason = format!("{DEADLY_OPENINGS} attempts to open it ended with the process");
        set_aside = Some(aside(&path, Useless::Damaged, reason)?);
        marker.remove();
    }
    marker.add();
    let attempt = || {
        let store = open_file(&path, identity)?;
        let loaded = load(&store)?;
        Ok((store, loaded))
    };
    let useless = match attempt() {
        Err(StoreError::Damaged { reason, .. }) => Err((Useless::Damaged, reason)),
        Err(StoreError::Foreign { reason, .. }) => Err((Useless::Foreign, reason)),
        opened => Ok(opened),
    };
    let opened = match useless {
        Err((was, reason)) => {
            set_aside = Some(aside(&path, was, reason)?);
            attempt()
        }
        Ok(opened) => opened,
    };
    marker.remove();
    let (store, loaded) = opened?;
    Ok(Opened { store, loaded, set_aside })
}

/// A process that is opening the cache in `folder` ends because it was told to: that says nothing
/// against the file.
pub fn opening_stopped(folder: &Path) {
    Marker::in_folder(folder).remove();
}

fn open_file(path: &Path, identity: &str) -> Result<Store, StoreError> {
    if !path.exists() {
        made(path, |temporary| open_database(temporary, identity).map(drop))?;
    }
    Ok(Store { database: open_database(path, identity)?, path: path.to_owned() })
}

/// Makes a file under another name and moves it to `path`: a file that a power failure cuts off in its creation is
/// never there. Only the caller's user may read the file. Its name is synced when this returns.
pub(crate) fn made(
    path: &Path,
    make: impl FnOnce(&Path) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let failed = |source| StoreError::io("make", path, source);
    let _ = fs::remove_file(&temporary);
    let attempt = || {
        let mut how = fs::OpenOptions::new();
        let file = how.write(true).create_new(true).mode(0o600).open(&temporary).map_err(failed)?;
        make(&temporary)?;
        file.sync_all().and_then(|()| fs::rename(&temporary, path)).map_err(failed)
    };
    attempt().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })?;
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

fn open_database(path: &Path, identity: &str) -> Result<Database, StoreError> {
    let database = Database::builder()
        .set_cache_size(PAGE_CACHE_BYTES)
        .set_check_integrity_on_open(true)
        .create(path)
        .map_err(|error| StoreError::from_redb("open", path, error.into()))?;
    tables::check(&database, path, identity)?;
    Ok(database)
}

/// Moves the file out of the way; the last one that went there moves on, the oldest goes.
pub(crate) fn aside(path: &Path, was: Useless, reason: String) -> Result<SetAside, StoreError> {
    let place = |number: u32| path.with_extension(format!("redb.{}-{number}", was.suffix()));
    let failed = |source| StoreError::io("set aside", path, source);
    let absent_is_fine = |result: io::Result<()>| match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    };
    for number in (1..SET_ASIDE_MAX).rev() {
        absent_is_fine(fs::rename(place(number), place(number + 1))).map_err(failed)?;
    }
    absent_is_fine(fs::rename(path, place(1))).map_err(failed)?;
    Ok(SetAside { path: place(1), was, reason })
}

/// One byte for every opening that began and has not ended. Where it cannot be written, on a full
/// disk, the cache is opened all the same.
struct Marker {
    path: PathBuf,
}

impl Marker {
    fn in_folder(folder: &Path) -> Self {
        Self { path: folder.join(format!("{FILE}.opening")) }
    }

    fn deaths(&self) -> u32 {
        let length = fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
        u32::try_from(length).unwrap_or(u32::MAX)
    }

    fn add(&self) {
        use io::Write as _;
        let file = fs::OpenOptions::new().create(true).append(true).open(&self.path);
        let _ = file.and_then(|mut file| file.write_all(b"."));
    }

    fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}
