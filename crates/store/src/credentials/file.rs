//! One of the two files of credentials.

use super::values::{Changes, Credential, Mark, Match, Measured};
use crate::open::made;
use crate::{StoreError, Useless};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::path::{Path, PathBuf};

/// Version of the tables. Another one is set aside.
const FORMAT: u32 = 2;
/// One entry is small, and there are as many as people who log in here.
const PAGE_CACHE_BYTES: usize = 1 << 20;

type Table = TableDefinition<'static, &'static [u8], &'static [u8]>;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const USERS: Table = TableDefinition::new("users");
const MATCHES: Table = TableDefinition::new("matches");

const META_FORMAT: &str = "format";
const META_IDENTITY: &str = "identity";
const META_SEQUENCE: &str = "sequence";
const META_MARK: &str = "clock";
const META_COST: &str = "cost";

/// Which pair of files a file is of: random bytes.
pub type Identity = [u8; 16];

/// What lies at a file's place.
pub enum Found {
    Good(File),
    Missing,
    /// It has to be set aside.
    Useless(Useless, String),
    /// The system refused. It may work later.
    Failed(StoreError),
}

/// An open file.
pub struct File {
    database: Database,
    path: PathBuf,
    pub identity: Identity,
    /// How often the pair of files was changed when this one was opened.
    pub sequence: u64,
}

impl File {
    /// Opens the file at `path`.
    pub fn find(path: &Path) -> Found {
        match Self::own(path) {
            Ok(true) => {}
            Ok(false) => return Found::Missing,
            Err(useless) => return useless,
        }
        match Self::open(path) {
            Ok(file) => Found::Good(file),
            Err(StoreError::Damaged { reason, .. }) => Found::Useless(Useless::Damaged, reason),
            Err(StoreError::Foreign { reason, .. }) => Found::Useless(Useless::Foreign, reason),
            Err(error) => Found::Failed(error),
        }
    }

    /// Whether there is a file. One that another user could have written is of no use.
    fn own(path: &Path) -> Result<bool, Found> {
        let failed = |error: Errno| Found::Failed(StoreError::io("open", path, error.into()));
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let foreign = |reason: String| Err(Found::Useless(Useless::Foreign, reason));
        let file = match open(path, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(false),
            Err(Errno::LOOP) => return foreign("it is a symbolic link".to_owned()),
            Err(error) => return Err(failed(error)),
        };
        let stat = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return foreign("it is no regular file".to_owned());
        }
        if stat.st_uid != geteuid().as_raw() {
            return foreign(format!("it belongs to uid {}", stat.st_uid));
        }
        if stat.st_size == 0 {
            return Err(Found::Useless(Useless::Damaged, "it is empty".to_owned()));
        }
        Ok(true)
    }

    fn open(path: &Path) -> Result<Self, StoreError> {
        let opened = builder().set_check_integrity_on_open(true).open(path);
        let database = opened.map_err(|error| StoreError::from_redb("open", path, error.into()))?;
        let mut file = Self { database, path: path.to_owned(), identity: [0; 16], sequence: 0 };
        if file.meta(META_FORMAT)?.as_deref() != Some(&FORMAT.to_le_bytes()) {
            return Err(StoreError::damaged(path, "it is of another version"));
        }
        file.identity = file.number(META_IDENTITY)?;
        file.sequence = u64::from_le_bytes(file.number(META_SEQUENCE)?);
        let mut odd = false;
        file.each(USERS, |_, bytes| odd |= Credential::from_bytes(bytes).is_none())?;
        file.each(MATCHES, |_, bytes| odd |= Match::from_bytes(bytes).is_none())?;
        if odd {
            return Err(file.odd());
        }
        Ok(file)
    }

    /// Makes a file with that content in the place of whatever is at `path`.
    pub fn make(
        path: &Path,
        identity: Identity,
        sequence: u64,
        content: &Changes,
    ) -> Result<Self, StoreError> {
        made(path, |temporary| {
            let created = builder().create(temporary);
            let database =
                created.map_err(|error| StoreError::from_redb("make", path, error.into()))?;
            let file = Self { database, path: temporary.to_owned(), identity, sequence };
            file.transact(sequence, |tables| {
                tables.meta.insert(META_FORMAT, FORMAT.to_le_bytes().as_slice())?;
                tables.meta.insert(META_IDENTITY, identity.as_slice())?;
                tables.change(content)
            })
        })?;
        Self::open(path)
    }

    /// All that is kept, as changes to an empty file.
    pub fn content(&self) -> Result<Changes, StoreError> {
        let credentials = self.list()?.into_iter().map(|(user, kept)| (user, Some(kept)));
        let matches = self.all_matched()?.into_iter().map(|(user, said)| (user, Some(said)));
        Ok(Changes {
            forgets_all: false,
            credentials: credentials.collect(),
            matches: matches.collect(),
            mark: Some(self.mark()?),
            measured: self.measured()?,
        })
    }

    /// Carries out changes, durably and whole or not at all.
    pub fn write(&self, sequence: u64, changes: &Changes) -> Result<(), StoreError> {
        self.transact(sequence, |tables| tables.change(changes))
    }

    /// What is kept of a user.
    pub fn get(&self, user: &[u8]) -> Result<Option<Credential>, StoreError> {
        self.one(USERS, user)?.map(|bytes| self.known(Credential::from_bytes(&bytes))).transpose()
    }

    /// Everybody of whom something is kept.
    pub fn list(&self) -> Result<Vec<(Vec<u8>, Credential)>, StoreError> {
        let mut all = Vec::new();
        self.each(USERS, |user, bytes| {
            all.extend(Credential::from_bytes(bytes).map(|kept| (user.to_vec(), kept)));
        })?;
        Ok(all)
    }

    /// What a filter said of a user last.
    pub fn matched(&self, user: &[u8]) -> Result<Option<Match>, StoreError> {
        self.one(MATCHES, user)?.map(|bytes| self.known(Match::from_bytes(&bytes))).transpose()
    }

    /// All users of whom a filter said something, and what it said last.
    pub fn all_matched(&self) -> Result<Vec<(Vec<u8>, Match)>, StoreError> {
        let mut all = Vec::new();
        self.each(MATCHES, |user, bytes| {
            all.extend(Match::from_bytes(bytes).map(|kept| (user.to_vec(), kept)));
        })?;
        Ok(all)
    }

    /// The latest time that was seen.
    pub fn mark(&self) -> Result<Mark, StoreError> {
        let Some(bytes) = self.meta(META_MARK)? else { return Ok(Mark::default()) };
        self.known(Mark::from_bytes(&bytes))
    }

    /// How costly hashes are made, if it was measured.
    pub fn measured(&self) -> Result<Option<Measured>, StoreError> {
        let Some(bytes) = self.meta(META_COST)? else { return Ok(None) };
        self.known(Measured::from_bytes(&bytes)).map(Some)
    }

    fn known<T>(&self, value: Option<T>) -> Result<T, StoreError> {
        value.ok_or_else(|| self.odd())
    }

    fn odd(&self) -> StoreError {
        StoreError::damaged(&self.path, "a value is not what this program writes")
    }

    fn failed(&self, error: impl Into<redb::Error>) -> StoreError {
        StoreError::from_redb("use", &self.path, error.into())
    }

    fn transact(
        &self,
        sequence: u64,
        changes: impl FnOnce(&mut Tables<'_>) -> Result<(), redb::StorageError>,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().map_err(|error| self.failed(error))?;
        // A failure that is told must be counted whatever happens next.
        let durable = transaction.set_durability(Durability::Immediate);
        durable.map_err(|error| self.failed(error))?;
        {
            let table = |error: redb::TableError| self.failed(error);
            let mut tables = Tables {
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

    fn one(&self, table: Table, user: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let transaction = self.database.begin_read().map_err(|error| self.failed(error))?;
        let table = transaction.open_table(table).map_err(|error| self.failed(error))?;
        let found = table.get(user).map_err(|error| self.failed(error))?;
        Ok(found.map(|guard| guard.value().to_vec()))
    }

    fn each(&self, table: Table, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), StoreError> {
        let transaction = self.database.begin_read().map_err(|error| self.failed(error))?;
        let table = transaction.open_table(table).map_err(|error| self.failed(error))?;
        for row in table.iter().map_err(|error| self.failed(error))? {
            let (key, value) = row.map_err(|error| self.failed(error))?;
            visit(key.value(), value.value());
        }
        Ok(())
    }

    fn meta(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let transaction = self.database.begin_read().map_err(|error| self.failed(error))?;
        let table = transaction.open_table(META).map_err(|error| self.failed(error))?;
        let found = table.get(name).map_err(|error| self.failed(error))?;
        Ok(found.map(|guard| guard.value().to_vec()))
    }

    fn number<const N: usize>(&self, name: &str) -> Result<[u8; N], StoreError> {
        self.known(self.meta(name)?.and_then(|bytes| bytes.try_into().ok()))
    }
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(PAGE_CACHE_BYTES);
    builder
}

/// The tables in a transaction.
struct Tables<'t> {
    users: redb::Table<'t, &'static [u8], &'static [u8]>,
    meta: redb::Table<'t, &'static str, &'static [u8]>,
    matches: redb::Table<'t, &'static [u8], &'static [u8]>,
}

impl Tables<'_> {
    fn change(&mut self, changes: &Changes) -> Result<(), redb::StorageError> {
        let Self { users, meta, matches } = self;
        if changes.forgets_all {
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
        if let Some(mark) = &changes.mark {
            meta.insert(META_MARK, mark.to_bytes().as_slice())?;
        }
        if let Some(measured) = changes.measured {
            meta.insert(META_COST, measured.to_bytes().as_slice())?;
        }
        Ok(())
    }
}
