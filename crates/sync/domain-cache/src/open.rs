// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a cache in any state: missing, damaged, foreign, or crashing the process. `tables` reads and writes the
//! contents.

use crate::tables;
use crate::{CACHE_FILE, CacheError, DomainCache, PAGE_CACHE_BYTES, QUARANTINED_MAX};
use redb::Database;
use roster_file_replacement::{FileReplacement, temporary_path};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Crashed openings after which the file counts as the cause. A few may have other causes, for example a host without
/// free memory.
const CRASHED_OPENINGS_MAX: u32 = 3;

/// An open cache and the data that were loaded from it.
pub struct OpenedCache<T> {
    /// The cache.
    pub cache: DomainCache,
    /// The result of the caller's `load`.
    pub loaded: T,
    /// The previous file, if it was unusable.
    pub quarantined: Option<QuarantinedFile>,
}

/// A file that was unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedFile {
    /// The file's present path.
    pub path: PathBuf,
    /// The kind of the fault.
    pub fault: FileFault,
    /// The reason.
    pub reason: String,
}

/// The kinds of unusable files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFault {
    /// The file is damaged, or not a cache.
    Damaged,
    /// The file is the cache of another identity or of another version.
    Foreign,
}

impl FileFault {
    /// Returns the suffix of the quarantined file.
    fn suffix(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Foreign => "other",
        }
    }
}

/// Opens the cache in `folder`, checks every page, and lets `load` read it. The file is quarantined and replaced in
/// these cases:
///
/// - The file or the data in it are [`CacheError::Damaged`].
/// - The process ended during each of the last three openings.
/// - The cache belongs to another `identity`, which is [`CacheError::Foreign`].
pub fn open<T>(
    folder: &Path,
    identity: &str,
    load: impl Fn(&DomainCache) -> Result<T, CacheError>,
) -> Result<OpenedCache<T>, CacheError> {
    let path = folder.join(CACHE_FILE);
    let marker = OpeningMarker::in_dir(folder);
    let deadly = marker.crash_count() >= CRASHED_OPENINGS_MAX;
    let mut set_aside = None;
    if deadly {
        let reason = format!("the process ended during {CRASHED_OPENINGS_MAX} attempts to open it");
        set_aside = Some(quarantine(&path, FileFault::Damaged, reason)?);
        marker.remove();
    }
    marker.add();
    let attempt = || {
        let store = open_file(&path, identity)?;
        let loaded = load(&store)?;
        Ok((store, loaded))
    };
    let useless = match attempt() {
        Err(CacheError::Damaged { reason, .. }) => Err((FileFault::Damaged, reason)),
        Err(CacheError::Foreign { reason, .. }) => Err((FileFault::Foreign, reason)),
        opened => Ok(opened),
    };
    let opened = match useless {
        Err((was, reason)) => {
            set_aside = Some(quarantine(&path, was, reason)?);
            attempt()
        }
        Ok(opened) => opened,
    };
    marker.remove();
    let (store, loaded) = opened?;
    Ok(OpenedCache { cache: store, loaded, quarantined: set_aside })
}

/// Removes the marker of an opening, because the process was asked to end. The file is not the cause.
pub fn clear_opening_marker(folder: &Path) {
    OpeningMarker::in_dir(folder).remove();
}

fn open_file(path: &Path, identity: &str) -> Result<DomainCache, CacheError> {
    if !path.exists() {
        create_atomically(path, |temporary| open_database(temporary, identity).map(drop))?;
    }
    Ok(DomainCache { database: open_database(path, identity)?, path: path.to_owned() })
}

/// Creates a file under another name and moves it to `path`, so that a power failure never leaves a partial file there.
/// Only the caller's user may read it. Its name is synced when this returns.
pub(crate) fn create_atomically(
    path: &Path,
    make: impl FnOnce(&Path) -> Result<(), CacheError>,
) -> Result<(), CacheError> {
    let failed = |source| CacheError::io("create", path, source);
    let new = FileReplacement::create(path).map_err(failed)?;
    make(&temporary_path(path))?;
    new.place_synced().map_err(failed)
}

fn open_database(path: &Path, identity: &str) -> Result<Database, CacheError> {
    let database = Database::builder()
        .set_cache_size(PAGE_CACHE_BYTES)
        .set_check_integrity_on_open(true)
        .create(path)
        .map_err(|error| CacheError::from_redb("open", path, error.into()))?;
    tables::check(&database, path, identity)?;
    Ok(database)
}

/// Moves the file away. The previous quarantined file moves on, and the oldest is removed.
pub(crate) fn quarantine(
    path: &Path,
    was: FileFault,
    reason: String,
) -> Result<QuarantinedFile, CacheError> {
    let place = |number: u32| path.with_extension(format!("redb.{}-{number}", was.suffix()));
    let failed = |source| CacheError::io("move aside", path, source);
    let absent_is_fine = |result: io::Result<()>| match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    };
    for number in (1..QUARANTINED_MAX).rev() {
        absent_is_fine(fs::rename(place(number), place(number + 1))).map_err(failed)?;
    }
    absent_is_fine(fs::rename(path, place(1))).map_err(failed)?;
    Ok(QuarantinedFile { path: place(1), fault: was, reason })
}

/// A file with one byte for every opening that has begun and not ended. If it cannot be written, for example on a full
/// disk, the cache is still opened.
struct OpeningMarker {
    path: PathBuf,
}

impl OpeningMarker {
    fn in_dir(folder: &Path) -> Self {
        Self { path: folder.join(format!("{CACHE_FILE}.opening")) }
    }

    fn crash_count(&self) -> u32 {
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
