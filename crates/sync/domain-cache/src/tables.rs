// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables and their encoding. `open` opens and replaces the file.

use crate::byte_reader::ByteReader;
use crate::{CacheError, FORMAT};
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata};
use redb::{ReadOnlyTable, Table, TableDefinition, WriteTransaction};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const KEY_BYTES: usize = 17;
const HEADER_BYTES: usize = 36;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const SEARCHES: TableDefinition<'_, u8, &[u8]> = TableDefinition::new("parts");
const ENTRIES: TableDefinition<'_, &[u8; KEY_BYTES], &[u8; HEADER_BYTES]> =
    TableDefinition::new("entries");
const RECORDS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("records");
const ACCOUNTS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("accounts");
const REFERENCES: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("references");
const REJECTED: TableDefinition<'_, &[u8; KEY_BYTES], &[u8]> = TableDefinition::new("rejected");

const META_FORMAT: &str = "format";
const META_IDENTITY: &str = "identity";
const META_NEXT_NUMBER: &str = "next number";

/// The key of an entry in the directory, within one search. Two searches may find the same entry, once as a user and
/// once as a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryKey {
    /// The search.
    pub search: u8,
    /// The permanent key in the directory.
    pub id: [u8; 16],
}

/// The data of an entry beside its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// The entry's number, for as long as it exists.
    pub number: u32,
    /// The kind, as the backend defines it.
    pub kind: u8,
    /// The syntax of its member list, as the backend defines it.
    pub list: u8,
    /// The number of the reference for lists with DNs.
    pub reference: u32,
    /// Hash of its record.
    pub digest: u64,
    /// Time at which the directory last confirmed it, in seconds since 1970. 0 if it is not tracked.
    pub seen_unix: u64,
    /// Time at which the directory last confirmed its list: a group's members or a user's groups.
    pub list_seen_unix: u64,
}

/// An entry that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// A name for an administrator.
    pub name: String,
    /// The entry's name in member lists if it is a group, otherwise empty.
    pub reference: Vec<u8>,
    /// Code of the reason in the table of messages.
    pub code: Cow<'static, str>,
    /// The reason.
    pub reason: String,
}

/// The progress of one search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchProgress {
    /// A full listing completed since the cache was created.
    pub complete: bool,
    /// The cookie of change tracking, after the binding for which it is valid.
    pub cookie: Option<(String, Vec<u8>)>,
    /// Time of the last listing, in seconds since 1970.
    pub refreshed_unix: u64,
    /// Time at which all entries were last read completely, not only confirmed.
    pub read_unix: u64,
    /// Entries that are missing in the directory. They stay until an administrator approves their removal.
    pub pending_removals: Vec<[u8; 16]>,
    /// Former references of entries that are gone or renamed. Lists with them may have changed, which not every server
    /// reports.
    pub stale_references: Vec<u32>,
}

impl EntryKey {
    fn to_bytes(self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[0] = self.search;
        bytes[1..].copy_from_slice(&self.id);
        bytes
    }

    fn from_bytes(&[part, ref id @ ..]: &[u8; KEY_BYTES]) -> Self {
        Self { search: part, id: *id }
    }
}

impl EntryHeader {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4] = self.kind;
        bytes[5] = self.list;
        bytes[8..16].copy_from_slice(&self.digest.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seen_unix.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.list_seen_unix.to_le_bytes());
        bytes[32..].copy_from_slice(&self.reference.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Self {
        let mut reader = ByteReader(bytes);
        // The fixed length guarantees that all reads succeed.
        let number = reader.u32().unwrap_or_default();
        let [kind, list, ..] = reader.u32().unwrap_or_default().to_le_bytes();
        let digest = reader.u64().unwrap_or_default();
        let seen_unix = reader.u64().unwrap_or_default();
        let list_seen_unix = reader.u64().unwrap_or_default();
        let reference = reader.u32().unwrap_or_default();
        Self { number, kind, list, reference, digest, seen_unix, list_seen_unix }
    }
}

impl Rejection {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_bytes(&mut bytes, self.name.as_bytes());
        put_bytes(&mut bytes, &self.reference);
        put_bytes(&mut bytes, self.code.as_bytes());
        bytes.extend_from_slice(self.reason.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader(bytes);
        let name = std::str::from_utf8(reader.bytes()?).ok()?.to_owned();
        let reference = reader.bytes()?.to_vec();
        let code = std::str::from_utf8(reader.bytes()?).ok()?.to_owned().into();
        let reason = std::str::from_utf8(reader.0).ok()?.to_owned();
        Some(Self { name, reference, code, reason })
    }
}

impl SearchProgress {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.complete.into(), self.cookie.is_some().into()];
        bytes.extend(self.refreshed_unix.to_le_bytes());
        bytes.extend(self.read_unix.to_le_bytes());
        put_bytes(&mut bytes, self.pending_removals.as_flattened());
        let doubts: Vec<_> =
            self.stale_references.iter().map(|reference| reference.to_le_bytes()).collect();
        put_bytes(&mut bytes, doubts.as_flattened());
        if let Some((binding, value)) = &self.cookie {
            put_bytes(&mut bytes, binding.as_bytes());
            bytes.extend_from_slice(value);
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[complete, has_cookie], rest) = bytes.split_first_chunk()?;
        let mut reader = ByteReader(rest);
        let (refreshed_unix, read_unix) = (reader.u64()?, reader.u64()?);
        let (held, []) = reader.bytes()?.as_chunks() else { return None };
        let held = held.to_vec();
        let (doubts, []) = reader.bytes()?.as_chunks() else { return None };
        let doubts = doubts.iter().copied().map(u32::from_le_bytes).collect();
        let cookie = if has_cookie == 0 {
            None
        } else {
            let binding = std::str::from_utf8(reader.bytes()?).ok()?.to_owned();
            Some((binding, reader.0.to_vec()))
        };
        Some(Self {
            complete: complete != 0,
            cookie,
            refreshed_unix,
            read_unix,
            pending_removals: held,
            stale_references: doubts,
        })
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // A value of more than 4 GiB cannot be stored.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend(length.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Checks that the tables have this version and identity. Creates them in an empty file.
pub(crate) fn check(database: &Database, path: &Path, identity: &str) -> Result<(), CacheError> {
    let failed = |error| CacheError::from_redb("open", path, error);
    let transaction = database.begin_read().map_err(|error| failed(error.into()))?;
    let tables = transaction.list_tables().map_err(|error| failed(error.into()))?.count();
    if tables == 0 {
        return create_tables(database, path, identity);
    }
    let reader = CacheReader::new(&transaction, path)?;
    let format = reader.meta(META_FORMAT)?.unwrap_or_default();
    if format != FORMAT.to_le_bytes() {
        let known: Option<[u8; 4]> = format.as_slice().try_into().ok();
        let found = known.map_or("unknown".into(), |bytes| u32::from_le_bytes(bytes).to_string());
        let reason = format!("the format is {found}; this version uses {FORMAT}");
        return Err(CacheError::foreign(path, reason));
    }
    let owner = reader.meta(META_IDENTITY)?.unwrap_or_default();
    if owner != identity.as_bytes() {
        let owner = String::from_utf8_lossy(&owner).into_owned();
        let reason = format!("the cache is of “{owner}”, not of “{identity}”");
        return Err(CacheError::foreign(path, reason));
    }
    Ok(())
}

fn create_tables(database: &Database, path: &Path, identity: &str) -> Result<(), CacheError> {
    let failed = |error| CacheError::from_redb("create", path, error);
    let transaction = database.begin_write().map_err(|error| failed(error.into()))?;
    let mut writer = CacheTransaction::new(&transaction, path)?;
    writer.set_meta(META_FORMAT, &FORMAT.to_le_bytes())?;
    writer.set_meta(META_IDENTITY, identity.as_bytes())?;
    drop(writer);
    transaction.commit().map_err(|error| failed(error.into()))
}

/// A transaction that changes the cache.
pub struct CacheTransaction<'t> {
    path: &'t Path,
    meta: Table<'t, &'static str, &'static [u8]>,
    searches: Table<'t, u8, &'static [u8]>,
    entries: Table<'t, &'static [u8; KEY_BYTES], &'static [u8; HEADER_BYTES]>,
    records: Table<'t, u32, &'static [u8]>,
    accounts: Table<'t, u32, &'static [u8]>,
    references: Table<'t, u32, &'static [u8]>,
    rejected: Table<'t, &'static [u8; KEY_BYTES], &'static [u8]>,
}

impl<'t> CacheTransaction<'t> {
    pub(crate) fn new(
        transaction: &'t WriteTransaction,
        path: &'t Path,
    ) -> Result<Self, CacheError> {
        let failed = |error: redb::TableError| CacheError::from_redb("write", path, error.into());
        Ok(Self {
            path,
            meta: transaction.open_table(META).map_err(failed)?,
            searches: transaction.open_table(SEARCHES).map_err(failed)?,
            entries: transaction.open_table(ENTRIES).map_err(failed)?,
            records: transaction.open_table(RECORDS).map_err(failed)?,
            accounts: transaction.open_table(ACCOUNTS).map_err(failed)?,
            references: transaction.open_table(REFERENCES).map_err(failed)?,
            rejected: transaction.open_table(REJECTED).map_err(failed)?,
        })
    }

    /// Stores an entry with its record.
    pub fn put(
        &mut self,
        key: EntryKey,
        header: EntryHeader,
        record: &[u8],
    ) -> Result<(), CacheError> {
        let result = self.records.insert(header.number, record).map(drop);
        done(self.path, result)?;
        self.confirm(key, header)
    }

    /// Stores the header of an entry, without a change of its record.
    pub fn confirm(&mut self, key: EntryKey, header: EntryHeader) -> Result<(), CacheError> {
        let result = self.entries.insert(&key.to_bytes(), &header.to_bytes()).map(drop);
        done(self.path, result)
    }

    /// Stores the account data of a user, which is not part of the record.
    pub fn set_account(&mut self, number: u32, account: &[u8]) -> Result<(), CacheError> {
        let result = self.accounts.insert(number, account).map(drop);
        done(self.path, result)
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: EntryKey, number: u32) -> Result<(), CacheError> {
        let result = self.records.remove(number).map(drop);
        done(self.path, result)?;
        let result = self.accounts.remove(number).map(drop);
        done(self.path, result)?;
        let result = self.entries.remove(&key.to_bytes()).map(drop);
        done(self.path, result)
    }

    /// Stores a reference with this number.
    pub fn set_reference(&mut self, number: u32, bytes: &[u8]) -> Result<(), CacheError> {
        let result = self.references.insert(number, bytes).map(drop);
        done(self.path, result)
    }

    /// Removes all references that are not used.
    pub fn retain_references(&mut self, used: impl Fn(u32) -> bool) -> Result<(), CacheError> {
        let result = self.references.retain(|number, _| used(number));
        done(self.path, result)
    }

    /// Stores the reason that an entry is not served. `None` removes it.
    pub fn set_rejection(
        &mut self,
        key: EntryKey,
        why: Option<&Rejection>,
    ) -> Result<(), CacheError> {
        let key = key.to_bytes();
        let result = match why {
            Some(why) => self.rejected.insert(&key, why.to_bytes().as_slice()).map(drop),
            None => self.rejected.remove(&key).map(drop),
        };
        done(self.path, result)
    }

    /// Stores the progress of a search.
    pub fn set_search_progress(
        &mut self,
        number: u8,
        part: &SearchProgress,
    ) -> Result<(), CacheError> {
        let result = self.searches.insert(number, part.to_bytes().as_slice()).map(drop);
        done(self.path, result)
    }

    /// Stores the number of the next new entry.
    pub fn set_next_number(&mut self, number: u32) -> Result<(), CacheError> {
        self.set_meta(META_NEXT_NUMBER, &number.to_le_bytes())
    }

    fn set_meta(&mut self, name: &str, value: &[u8]) -> Result<(), CacheError> {
        let result = self.meta.insert(name, value).map(drop);
        done(self.path, result)
    }
}

fn done(path: &Path, result: Result<(), redb::StorageError>) -> Result<(), CacheError> {
    result.map_err(|error| CacheError::from_redb("write", path, error.into()))
}

/// A consistent state of the cache.
pub struct CacheReader {
    path: PathBuf,
    meta: ReadOnlyTable<&'static str, &'static [u8]>,
    searches: ReadOnlyTable<u8, &'static [u8]>,
    entries: ReadOnlyTable<&'static [u8; KEY_BYTES], &'static [u8; HEADER_BYTES]>,
    records: ReadOnlyTable<u32, &'static [u8]>,
    accounts: ReadOnlyTable<u32, &'static [u8]>,
    references: ReadOnlyTable<u32, &'static [u8]>,
    rejected: ReadOnlyTable<&'static [u8; KEY_BYTES], &'static [u8]>,
}

impl CacheReader {
    pub(crate) fn new(transaction: &ReadTransaction, path: &Path) -> Result<Self, CacheError> {
        let failed = |error: redb::TableError| CacheError::from_redb("read", path, error.into());
        Ok(Self {
            path: path.to_owned(),
            meta: transaction.open_table(META).map_err(failed)?,
            searches: transaction.open_table(SEARCHES).map_err(failed)?,
            entries: transaction.open_table(ENTRIES).map_err(failed)?,
            records: transaction.open_table(RECORDS).map_err(failed)?,
            accounts: transaction.open_table(ACCOUNTS).map_err(failed)?,
            references: transaction.open_table(REFERENCES).map_err(failed)?,
            rejected: transaction.open_table(REJECTED).map_err(failed)?,
        })
    }

    /// Visits every entry, by key.
    pub fn entries(&self, mut visit: impl FnMut(EntryKey, EntryHeader)) -> Result<(), CacheError> {
        self.for_each_row(&self.entries, |key, header| {
            visit(EntryKey::from_bytes(key), EntryHeader::from_bytes(header));
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Visits every record, by number, until `visit` stops.
    pub fn records(
        &self,
        mut visit: impl FnMut(u32, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), CacheError> {
        self.for_each_row(&self.records, |number, record| Ok(visit(number, record)))
    }

    /// Returns one record.
    pub fn record(&self, number: u32) -> Result<Option<Vec<u8>>, CacheError> {
        let found = self.records.get(number);
        let found = found.map_err(|error| self.failed(error.into()))?;
        Ok(found.map(|guard| guard.value().to_vec()))
    }

    /// Returns the account data of a user.
    pub fn account(&self, number: u32) -> Result<Option<Vec<u8>>, CacheError> {
        let found = self.accounts.get(number);
        let found = found.map_err(|error| self.failed(error.into()))?;
        Ok(found.map(|guard| guard.value().to_vec()))
    }

    /// Visits every reference, by number.
    pub fn references(&self, mut visit: impl FnMut(u32, &[u8])) -> Result<(), CacheError> {
        self.for_each_row(&self.references, |number, bytes| {
            visit(number, bytes);
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Returns the number of references.
    pub fn references_len(&self) -> Result<u64, CacheError> {
        self.references.len().map_err(|error| self.failed(error.into()))
    }

    /// Visits every rejected entry, by key.
    pub fn rejections(&self, mut visit: impl FnMut(EntryKey, Rejection)) -> Result<(), CacheError> {
        self.for_each_row(&self.rejected, |key, bytes| {
            let rejection = Rejection::from_bytes(bytes).ok_or_else(|| self.unreadable())?;
            visit(EntryKey::from_bytes(key), rejection);
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Visits the progress of every search.
    pub fn search_progress(
        &self,
        mut visit: impl FnMut(u8, SearchProgress),
    ) -> Result<(), CacheError> {
        self.for_each_row(&self.searches, |number, bytes| {
            visit(number, SearchProgress::from_bytes(bytes).ok_or_else(|| self.unreadable())?);
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Returns the number of the next new entry.
    pub fn next_number(&self) -> Result<u32, CacheError> {
        let Some(bytes) = self.meta(META_NEXT_NUMBER)? else { return Ok(0) };
        let bytes = bytes.as_slice().try_into().map_err(|_| self.unreadable())?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn meta(&self, name: &str) -> Result<Option<Vec<u8>>, CacheError> {
        let found = self.meta.get(name).map_err(|error| self.failed(error.into()))?;
        Ok(found.map(|guard| guard.value().to_vec()))
    }

    fn for_each_row<K: redb::Key, V: redb::Value>(
        &self,
        table: &ReadOnlyTable<K, V>,
        mut visit: impl FnMut(K::SelfType<'_>, V::SelfType<'_>) -> Result<ControlFlow<()>, CacheError>,
    ) -> Result<(), CacheError> {
        let rows = table.iter().map_err(|error| self.failed(error.into()))?;
        for row in rows {
            let (key, value) = row.map_err(|error| self.failed(error.into()))?;
            if visit(key.value(), value.value())?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn failed(&self, error: redb::Error) -> CacheError {
        CacheError::from_redb("read", &self.path, error)
    }

    fn unreadable(&self) -> CacheError {
        CacheError::damaged(&self.path, "a value has an invalid form")
    }
}
