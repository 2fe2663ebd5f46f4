//! What is kept of passwords that a directory found right, so that people can log in while it is away.
//!
//! A file of its own in the domain's folder, which only the back-end's user and root can read. It holds
//! hashes, counters of failures and times; what follows from them is decided elsewhere. Whatever is written
//! is durable when the call returns. Unlike the cache it cannot be had again from the directory: a file that
//! is damaged is set aside, and everybody has to log in online once.

use crate::bytes::Bytes;
use crate::open::aside;
use crate::{SetAside, StoreError, Useless};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name of the file in a domain's folder.
pub const CREDENTIALS_FILE: &str = "credentials.redb";
/// Version of the tables. Another one is set aside.
const FORMAT: u32 = 1;
/// Longest hash, with its parameters.
const HASH_BYTES_MAX: usize = 512;
/// One entry is small, and there are as many as people who log in here.
const PAGE_CACHE_BYTES: usize = 1 << 20;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const USERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("users");
const MATCHES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("matches");

const META_FORMAT: &str = "format";
const META_MARK: &str = "clock";
const META_COST: &str = "cost";

/// What is kept of a user's password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Whose it is beside the name: who gets the name of somebody who has gone has another uid, or none
    /// of this.
    pub uid: u32,
    /// The hash with its parameters, as a PHC string.
    pub hash: String,
    /// When the directory found the password right last, in seconds since 1970.
    pub verified_unix: u64,
    /// Wrong passwords since.
    pub failures: u32,
    /// The time of the last of them.
    pub failed_unix: u64,
}

/// The latest time that was seen, so that a clock that is set back is noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Seconds since 1970.
    pub unix: u64,
    /// The boot in which that was, as the kernel names it.
    pub boot: [u8; 16],
    /// How long the host had been up, in seconds.
    pub up: u64,
    /// When the clock was moved last. Dates before it may be of another clock.
    pub moved_unix: u64,
}

/// What an access filter said of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The uid, as in [`Credential`].
    pub uid: u32,
    /// The filter's text.
    pub filter: String,
    /// Whether it found the user.
    pub matched: bool,
    /// When it said so, in seconds since 1970.
    pub asked_unix: u64,
}

/// How costly a hash is made, and what that was measured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Microseconds that were aimed at.
    pub aim_us: u64,
    /// KiB of memory.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
}

/// What one transaction changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Removes the credentials and matches of all users, before the rest is written.
    pub forgets_all: bool,
    /// By user; `None` removes the credential.
    pub credentials: BTreeMap<Vec<u8>, Option<Credential>>,
    /// By user; `None` removes the match.
    pub matches: BTreeMap<Vec<u8>, Option<Match>>,
    /// The latest time that was seen.
    pub mark: Option<Mark>,
    /// How costly hashes are made.
    pub measured: Option<Measured>,
}

impl Changes {
    /// Changes what is kept of one user's password.
    #[must_use]
    pub fn credential(user: &[u8], credential: Option<Credential>) -> Self {
        Self { credentials: BTreeMap::from([(user.to_vec(), credential)]), ..Self::default() }
    }

    /// Changes what an access filter said of one user.
    #[must_use]
    pub fn matched(user: &[u8], matched: Option<Match>) -> Self {
        Self { matches: BTreeMap::from([(user.to_vec(), matched)]), ..Self::default() }
    }

    /// Forgets all that is kept of one user.
    #[must_use]
    pub fn forget(user: &[u8]) -> Self {
        Self { matches: BTreeMap::from([(user.to_vec(), None)]), ..Self::credential(user, None) }
    }

    /// Adds changes that were made after these.
    pub fn add(&mut self, later: Self) {
        if later.forgets_all {
            self.forgets_all = true;
            self.credentials.clear();
            self.matches.clear();
        }
        self.credentials.extend(later.credentials);
        self.matches.extend(later.matches);
        self.mark = later.mark.or_else(|| self.mark.take());
        self.measured = later.measured.or(self.measured);
    }
}

/// The open file. One process has it open at a time.
pub struct Credentials {
    database: Database,
    path: PathBuf,
}

impl Credentials {
    /// Opens the file in `folder`; one that is no such file, or not whole, is set aside and a fresh one
    /// takes its place.
    pub fn open(folder: &Path) -> Result<(Self, Option<SetAside>), StoreError> {
        let path = folder.join(CREDENTIALS_FILE);
        match Self::open_file(&path) {
            Err(StoreError::Damaged { reason, .. }) => {
                let set_aside = aside(&path, Useless::Damaged, reason)?;
                Ok((Self::open_file(&path)?, Some(set_aside)))
            }
            opened => Ok((opened?, None)),
        }
    }

    fn open_file(path: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::io("open", path, source);
        let mut how = fs::OpenOptions::new();
        how.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = how.open(path).map_err(failed)?;
        let is_fresh = file.metadata().map_err(failed)?.len() == 0;
        drop(file);
        let opened = Self::open_database(path);
        if is_fresh && matches!(opened, Err(StoreError::Io { .. })) {
            // What a full disk took of a new file would pass for a damaged one the next time.
            let _ = fs::remove_file(path);
        }
        opened
    }

    fn open_database(path: &Path) -> Result<Self, StoreError> {
        let opened = Database::builder()
            .set_cache_size(PAGE_CACHE_BYTES)
            .set_check_integrity_on_open(true)
            .create(path);
        let database = opened.map_err(|error| StoreError::from_redb("open", path, error.into()))?;
        let credentials = Self { database, path: path.to_owned() };
        credentials.check()?;
        Ok(credentials)
    }

    /// Makes the tables of a fresh file, and knows those of another version.
    fn check(&self) -> Result<(), StoreError> {
        let fresh = {
            let transaction =
                self.database.begin_read().map_err(|error| self.failed(error.into()))?;
            let mut tables =
                transaction.list_tables().map_err(|error| self.failed(error.into()))?;
            tables.next().is_none()
        };
        if fresh {
            self.transact(|_, meta, _| {
                meta.insert(META_FORMAT, FORMAT.to_le_bytes().as_slice()).map(drop)
            })?;
        }
        match self.meta(META_FORMAT)? {
            Some(format) if format == FORMAT.to_le_bytes() => {}
            _ => return Err(StoreError::damaged(&self.path, "it is of another version")),
        }
        let mut odd = false;
        self.each(USERS, |_, bytes| odd |= Credential::from_bytes(bytes).is_none())?;
        self.each(MATCHES, |_, bytes| odd |= Match::from_bytes(bytes).is_none())?;
        if odd {
            return Err(StoreError::damaged(&self.path, "a value is not what this program writes"));
        }
        Ok(())
    }

    /// What is kept of a user.
    pub fn get(&self, user: &[u8]) -> Result<Option<Credential>, StoreError> {
        self.one(USERS, user)?.map(|bytes| self.known(Credential::from_bytes(&bytes))).transpose()
    }

    /// Carries out changes, durably and whole or not at all. After an error the file has to be opened again.
    ///
    /// # Errors
    ///
    /// The changes may be in the file or not.
    pub fn write(&self, changes: &Changes) -> Result<(), StoreError> {
        self.transact(|users, meta, matches| {
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
        })
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
        let odd = || StoreError::damaged(&self.path, "a value is not what this program writes");
        value.ok_or_else(odd)
    }

    fn failed(&self, error: redb::Error) -> StoreError {
        StoreError::from_redb("use", &self.path, error)
    }

    fn transact(
        &self,
        changes: impl FnOnce(
            &mut redb::Table<'_, &'static [u8], &'static [u8]>,
            &mut redb::Table<'_, &'static str, &'static [u8]>,
            &mut redb::Table<'_, &'static [u8], &'static [u8]>,
        ) -> Result<(), redb::StorageError>,
    ) -> Result<(), StoreError> {
        let mut transaction =
            self.database.begin_write().map_err(|error| self.failed(error.into()))?;
        // A failure that is told must be counted whatever happens next.
        let durable = transaction.set_durability(Durability::Immediate);
        durable.map_err(|error| self.failed(error.into()))?;
        {
            let table = |error: redb::TableError| self.failed(error.into());
            let mut users = transaction.open_table(USERS).map_err(table)?;
            let mut meta = transaction.open_table(META).map_err(table)?;
            let mut matches = transaction.open_table(MATCHES).map_err(table)?;
            changes(&mut users, &mut meta, &mut matches)
                .map_err(|error| self.failed(error.into()))?;
        }
        transaction.commit().map_err(|error| self.failed(error.into()))
    }

    fn one(
        &self,
        table: TableDefinition<'static, &'static [u8], &'static [u8]>,
        user: &[u8],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let transaction = self.database.begin_read().map_err(|error| self.failed(error.into()))?;
        let table = transaction.open_table(table).map_err(|error| self.failed(error.into()))?;
        let found = table.get(user).map_err(|error| self.failed(error.into()))?;
        Ok(found.map(|guard| guard.value().to_vec()))
    }

    fn each(
        &self,
        table: TableDefinition<'static, &'static [u8], &'static [u8]>,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), StoreError> {
        let transaction = self.database.begin_read().map_err(|error| self.failed(error.into()))?;
        let table = transaction.open_table(table).map_err(|error| self.failed(error.into()))?;
        for row in table.iter().map_err(|error| self.failed(error.into()))? {
            let (key, value) = row.map_err(|error| self.failed(error.into()))?;
            visit(key.value(), value.value());
        }
        Ok(())
    }

    fn meta(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let transaction = self.database.begin_read().map_err(|error| self.failed(error.into()))?;
        let table = transaction.open_table(META).map_err(|error| self.failed(error.into()))?;
        let found = table.get(name).map_err(|error| self.failed(error.into()))?;
        Ok(found.map(|guard| guard.value().to_vec()))
    }
}

impl Credential {
    /// uid, failures, the two times, the hash.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.uid.to_le_bytes());
        bytes.extend(self.failures.to_le_bytes());
        bytes.extend(self.verified_unix.to_le_bytes());
        bytes.extend(self.failed_unix.to_le_bytes());
        bytes.extend_from_slice(self.hash.as_bytes());
        bytes
    }

    /// Reads that; `None` for anything else.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = Bytes(bytes);
        let (uid, failures) = (rest.u32()?, rest.u32()?);
        let (verified_unix, failed_unix) = (rest.u64()?, rest.u64()?);
        let hash = std::str::from_utf8(rest.0).ok()?;
        if hash.is_empty() || hash.len() > HASH_BYTES_MAX {
            return None;
        }
        Some(Self { uid, hash: hash.to_owned(), verified_unix, failures, failed_unix })
    }
}

impl Match {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.matched.into()];
        bytes.extend(self.uid.to_le_bytes());
        bytes.extend(self.asked_unix.to_le_bytes());
        bytes.extend_from_slice(self.filter.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&matched, rest) = bytes.split_first()?;
        let mut rest = Bytes(rest);
        let (uid, asked_unix) = (rest.u32()?, rest.u64()?);
        let filter = std::str::from_utf8(rest.0).ok()?.to_owned();
        (matched <= 1).then_some(Self { uid, filter, matched: matched == 1, asked_unix })
    }
}

impl Mark {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.unix.to_le_bytes().to_vec();
        bytes.extend(self.up.to_le_bytes());
        bytes.extend(self.boot);
        bytes.extend(self.moved_unix.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = Bytes(bytes);
        let (unix, up) = (rest.u64()?, rest.u64()?);
        let (boot, rest) = rest.0.split_first_chunk()?;
        // Earlier builds wrote no time of a move.
        let moved_unix = match rest {
            [] => 0,
            rest => u64::from_le_bytes(rest.try_into().ok()?),
        };
        Some(Self { unix, up, boot: *boot, moved_unix })
    }
}

impl Measured {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.aim_us.to_le_bytes().to_vec();
        bytes.extend(self.memory_kib.to_le_bytes());
        bytes.extend(self.passes.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = Bytes(bytes);
        let (aim_us, memory_kib, passes) = (rest.u64()?, rest.u32()?, rest.u32()?);
        rest.0.is_empty().then_some(Self { aim_us, memory_kib, passes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(failures: u32) -> Credential {
        let hash = "$argon2id$".to_owned();
        Credential { uid: 1, hash, verified_unix: 5, failures, failed_unix: 6 }
    }

    fn matched(matched: bool) -> Match {
        Match { uid: 1, filter: "(a=b)".to_owned(), matched, asked_unix: 7 }
    }

    #[test]
    fn credentials_mark_of_earlier_builds_is_read() {
        let mark = Mark { unix: 1, boot: [2; 16], up: 3, moved_unix: 4 };
        let bytes = mark.to_bytes();
        assert_eq!(Mark::from_bytes(&bytes), Some(mark.clone()));
        assert_eq!(Mark::from_bytes(&bytes[..32]), Some(Mark { moved_unix: 0, ..mark }));
        for length in [0, 31, 33, 39] {
            assert_eq!(Mark::from_bytes(&bytes[..length]), None, "{length}");
        }
    }

    #[test]
    fn credentials_changes_are_one_transaction() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, _) = Credentials::open(folder.path()).expect("a fresh file");
        let mut changes = Changes::credential(b"alice", Some(credential(1)));
        changes.add(Changes::matched(b"alice", Some(matched(true))));
        changes.add(Changes::credential(b"bob", Some(credential(2))));
        changes.mark = Some(Mark { unix: 9, ..Mark::default() });
        file.write(&changes).expect("written");
        drop(file);
        let (file, _) = Credentials::open(folder.path()).expect("the same file");
        assert_eq!(file.get(b"alice").expect("read"), Some(credential(1)));
        assert_eq!(file.matched(b"alice").expect("read"), Some(matched(true)));
        assert_eq!((file.list().expect("read").len(), file.mark().expect("read").unix), (2, 9));
        file.write(&Changes::credential(b"alice", None)).expect("written");
        assert_eq!(file.get(b"alice").expect("read"), None);
        assert_eq!(file.all_matched().expect("read").len(), 1, "it stays");
        file.write(&Changes::forget(b"alice")).expect("written");
        assert_eq!(file.all_matched().expect("read"), []);
    }

    #[test]
    fn credentials_later_changes_replace_earlier_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, _) = Credentials::open(folder.path()).expect("a fresh file");
        file.write(&Changes::credential(b"carol", Some(credential(3)))).expect("written");
        let mut changes = Changes::credential(b"alice", Some(credential(1)));
        changes.add(Changes::credential(b"alice", None));
        changes.add(Changes { forgets_all: true, ..Changes::default() });
        changes.add(Changes::credential(b"bob", Some(credential(2))));
        changes.add(Changes { mark: Some(Mark::default()), ..Changes::default() });
        changes.add(Changes::default());
        assert!(changes.mark.is_some());
        file.write(&changes).expect("written");
        assert_eq!(file.list().expect("read"), [(b"bob".to_vec(), credential(2))]);
    }
}
