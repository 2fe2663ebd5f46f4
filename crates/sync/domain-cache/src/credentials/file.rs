// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file of credentials. There are two of them. The parent module `credentials` decides between the two.

use super::values::{
    ClockMark, CredentialChanges, FilterMatches, MeasuredHashParams, StoredCredential,
};
use crate::open::create_atomically;
use crate::{CacheError, FileFault};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::path::{Path, PathBuf};

/// Version of the tables. A file of another version is quarantined.
const FORMAT: u32 = 2;
/// Entries are small, and each user of the host has one.
const PAGE_CACHE_BYTES: usize = 1 << 20;

type UserTable = TableDefinition<'static, &'static [u8], &'static [u8]>;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const USERS: UserTable = TableDefinition::new("users");
const MATCHES: UserTable = TableDefinition::new("matches");

const META_FORMAT: &str = "format";
const META_IDENTITY: &str = "identity";
const META_SEQUENCE: &str = "sequence";
const META_CLOCK: &str = "clock";
const META_HASH_PARAMS: &str = "cost";

/// The identity of a pair of files: random bytes.
pub type PairIdentity = [u8; 16];

/// The state of the file at a path.
pub enum CredentialFileState {
    Usable(CredentialFile),
    Missing,
    /// The file has to be quarantined.
    Faulty(FileFault, String),
    /// The system reported an error. A later attempt may succeed.
    Failed(CacheError),
}

/// An open file.
pub struct CredentialFile {
    database: Database,
    path: PathBuf,
    pub identity: PairIdentity,
    /// Number of changes of the pair when this file was opened.
    pub sequence: u64,
}

impl CredentialFile {
    /// Opens the file at `path`.
    pub fn find(path: &Path) -> CredentialFileState {
        match Self::is_own(path) {
            Ok(true) => {}
            Ok(false) => return CredentialFileState::Missing,
            Err(useless) => return useless,
        }
        match Self::open(path) {
            Ok(file) => CredentialFileState::Usable(file),
            Err(CacheError::Damaged { reason, .. }) => {
                CredentialFileState::Faulty(FileFault::Damaged, reason)
            }
            Err(CacheError::Foreign { reason, .. }) => {
                CredentialFileState::Faulty(FileFault::Foreign, reason)
            }
            Err(error) => CredentialFileState::Failed(error),
        }
    }

    /// Returns whether the file exists. Rejects a file that another user could have written.
    fn is_own(path: &Path) -> Result<bool, CredentialFileState> {
        let failed =
            |error: Errno| CredentialFileState::Failed(CacheError::io("open", path, error.into()));
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let foreign = |reason: String| Err(CredentialFileState::Faulty(FileFault::Foreign, reason));
        let file = match open(path, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(false),
            Err(Errno::LOOP) => return foreign("a symbolic link".to_owned()),
            Err(error) => return Err(failed(error)),
        };
        let stat = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return foreign("not a regular file".to_owned());
        }
        if stat.st_uid != geteuid().as_raw() {
            return foreign(format!("the file belongs to uid {}", stat.st_uid));
        }
        if stat.st_size == 0 {
            return Err(CredentialFileState::Faulty(FileFault::Damaged, "it is empty".to_owned()));
        }
        Ok(true)
    }

    fn open(path: &Path) -> Result<Self, CacheError> {
        let opened = builder().set_check_integrity_on_open(true).open(path);
        let database = opened.map_err(|error| CacheError::from_redb("open", path, error.into()))?;
        let mut file = Self { database, path: path.to_owned(), identity: [0; 16], sequence: 0 };
        if file.meta(META_FORMAT)?.as_deref() != Some(&FORMAT.to_le_bytes()) {
            return Err(CacheError::damaged(path, "the file is of another version"));
        }
        file.identity = file.number(META_IDENTITY)?;
        file.sequence = u64::from_le_bytes(file.number(META_SEQUENCE)?);
        let mut odd = false;
        file.for_each_row(USERS, |_, bytes| odd |= StoredCredential::from_bytes(bytes).is_none())?;
        file.for_each_row(MATCHES, |_, bytes| odd |= FilterMatches::from_bytes(bytes).is_none())?;
        if odd {
            return Err(file.damaged());
        }
        Ok(file)
    }

    /// Creates a file with this content, and replaces any file at `path`.
    pub fn create(
        path: &Path,
        identity: PairIdentity,
        sequence: u64,
        content: &CredentialChanges,
    ) -> Result<Self, CacheError> {
        create_atomically(path, |temporary| {
            let created = builder().create(temporary);
            let database =
                created.map_err(|error| CacheError::from_redb("make", path, error.into()))?;
            let file = Self { database, path: temporary.to_owned(), identity, sequence };
            file.transact(sequence, |tables| {
                tables.meta.insert(META_FORMAT, FORMAT.to_le_bytes().as_slice())?;
                tables.meta.insert(META_IDENTITY, identity.as_slice())?;
                tables.change(content)
            })
        })?;
        Self::open(path)
    }

    /// Returns the whole content, as changes to an empty file.
    pub fn content(&self) -> Result<CredentialChanges, CacheError> {
        let credentials = self.list()?.into_iter().map(|(user, kept)| (user, Some(kept)));
        let matches = self.filter_matches()?.into_iter().map(|(user, said)| (user, Some(said)));
        Ok(CredentialChanges {
            clears_all: false,
            credentials: credentials.collect(),
            matches: matches.collect(),
            clock_mark: Some(self.clock_mark()?),
            measured_params: self.measured_params()?,
        })
    }

    /// Applies changes durably, completely or not at all.
    pub fn write(&self, sequence: u64, changes: &CredentialChanges) -> Result<(), CacheError> {
        self.transact(sequence, |tables| tables.change(changes))
    }

    /// Returns the cached credential of a user.
    pub fn get(&self, user: &[u8]) -> Result<Option<StoredCredential>, CacheError> {
        self.read_row(USERS, user)?
            .map(|bytes| self.decoded(StoredCredential::from_bytes(&bytes)))
            .transpose()
    }

    /// Returns all cached credentials by user.
    pub fn list(&self) -> Result<Vec<(Vec<u8>, StoredCredential)>, CacheError> {
        let mut all = Vec::new();
        self.for_each_row(USERS, |user, bytes| {
            all.extend(StoredCredential::from_bytes(bytes).map(|kept| (user.to_vec(), kept)));
        })?;
        Ok(all)
    }

    /// Returns the last results of filters for a user.
    pub fn filter_matches_of(&self, user: &[u8]) -> Result<Option<FilterMatches>, CacheError> {
        self.read_row(MATCHES, user)?
            .map(|bytes| self.decoded(FilterMatches::from_bytes(&bytes)))
            .transpose()
    }

    /// Returns the last results of filters by user.
    pub fn filter_matches(&self) -> Result<Vec<(Vec<u8>, FilterMatches)>, CacheError> {
        let mut all = Vec::new();
        self.for_each_row(MATCHES, |user, bytes| {
            all.extend(FilterMatches::from_bytes(bytes).map(|kept| (user.to_vec(), kept)));
        })?;
        Ok(all)
    }

    /// Returns the latest time that was recorded.
    pub fn clock_mark(&self) -> Result<ClockMark, CacheError> {
        let Some(bytes) = self.meta(META_CLOCK)? else { return Ok(ClockMark::default()) };
        self.decoded(ClockMark::from_bytes(&bytes))
    }

    /// Returns the parameters of hashes, if they were measured.
    pub fn measured_params(&self) -> Result<Option<MeasuredHashParams>, CacheError> {
        let Some(bytes) = self.meta(META_HASH_PARAMS)? else { return Ok(None) };
        self.decoded(MeasuredHashParams::from_bytes(&bytes)).map(Some)
    }

    fn decoded<T>(&self, value: Option<T>) -> Result<T, CacheError> {
        value.ok_or_else(|| self.damaged())
    }

    fn damaged(&self) -> CacheError {
        CacheError::damaged(&self.path, "a value has an invalid form")
    }

    fn failed(&self, error: impl Into<redb::Error>) -> CacheError {
        CacheError::from_redb("use", &self.path, error.into())
    }

    fn transact(
        &self,
        sequence: u64,
        changes: impl FnOnce(&mut OpenTables<'_>) -> Result<(), redb::StorageError>,
    ) -> Result<(), CacheError> {
        let mut transaction = self.database.begin_write().map_err(|error| self.failed(error))?;
        // A reported failure must still be counted after a crash.
        let durable = transaction.set_durability(Durability::Immediate);
        durable.map_err(|error| self.failed(error))?;
        {
            let table = |error: redb::TableError| self.failed(error);
            let mut tables = OpenTables {
                users: transaction.open_table(USERS).map_err(table)?,
                meta: transaction.open_table(META).map_err(table)?,
                matches: transaction.open_table(MATCHES).map_err(table)?,
            };
            let sequence = sequence.to_le_bytes();
            let counted = tables.meta.insert(META_SEQUENCE, sequence.as_slice()).map(drop);
            counted.and_then(|()| changes(&mut tables)).map_err(|error| self.failed(error))?;
        }
        transaction.commit().map_err(|error| self.failed(error))
    }

    fn read_row(&self, table: UserTable, user: &[u8]) -> Result<Option<Vec<u8>>, CacheError> {
        let transaction = self.database.begin_read().map_err(|error| self.failed(error))?;
        let table = transaction.open_table(table).map_err(|error| self.failed(error))?;
        let found = table.get(user).map_err(|error| self.failed(error))?;
        Ok(found.map(|guard| guard.value().to_vec()))
    }

    fn for_each_row(
        &self,
        table: UserTable,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CacheError> {
        let transaction = self.database.begin_read().map_err(|error| self.failed(error))?;
        let table = transaction.open_table(table).map_err(|error| self.failed(error))?;
        for row in table.iter().map_err(|error| self.failed(error))? {
            let (key, value) = row.map_err(|error| self.failed(error))?;
            visit(key.value(), value.value());
        }
        Ok(())
    }

    fn meta(&self, name: &str) -> Result<Option<Vec<u8>>, CacheError> {
        let transaction = self.database.begin_read().map_err(|error| self.failed(error))?;
        let table = transaction.open_table(META).map_err(|error| self.failed(error))?;
        let found = table.get(name).map_err(|error| self.failed(error))?;
        Ok(found.map(|guard| guard.value().to_vec()))
    }

    fn number<const N: usize>(&self, name: &str) -> Result<[u8; N], CacheError> {
        self.decoded(self.meta(name)?.and_then(|bytes| bytes.try_into().ok()))
    }
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(PAGE_CACHE_BYTES);
    builder
}

/// The tables in a transaction.
struct OpenTables<'t> {
    users: redb::Table<'t, &'static [u8], &'static [u8]>,
    meta: redb::Table<'t, &'static str, &'static [u8]>,
    matches: redb::Table<'t, &'static [u8], &'static [u8]>,
}

impl OpenTables<'_> {
    fn change(&mut self, changes: &CredentialChanges) -> Result<(), redb::StorageError> {
        let Self { users, meta, matches } = self;
        if changes.clears_all {
            users.retain(|_, _| false)?;
            matches.retain(|_, _| false)?;
        }
        for (user, credential) in &changes.credentials {
            match credential {
                Some(kept) => users.insert(user.as_slice(), kept.to_bytes().as_slice())?,
                None => users.remove(user.as_slice())?,
            };
        }
        for (user, matched) in &changes.matches {
            match matched {
                Some(kept) => matches.insert(user.as_slice(), kept.to_bytes().as_slice())?,
                None => matches.remove(user.as_slice())?,
            };
        }
        if let Some(mark) = &changes.clock_mark {
            meta.insert(META_CLOCK, mark.to_bytes().as_slice())?;
        }
        if let Some(measured) = changes.measured_params {
            meta.insert(META_HASH_PARAMS, measured.to_bytes().as_slice())?;
        }
        Ok(())
    }
}
