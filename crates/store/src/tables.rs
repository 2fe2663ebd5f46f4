//! The tables and their bytes.

use crate::bytes::Bytes;
use crate::{FORMAT, StoreError};
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata};
use redb::{ReadOnlyTable, Table, TableDefinition, WriteTransaction};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const KEY_BYTES: usize = 17;
const HEADER_BYTES: usize = 36;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const PARTS: TableDefinition<'_, u8, &[u8]> = TableDefinition::new("parts");
const ENTRIES: TableDefinition<'_, &[u8; KEY_BYTES], &[u8; HEADER_BYTES]> =
    TableDefinition::new("entries");
const RECORDS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("records");
const ACCOUNTS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("accounts");
const REFERENCES: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("references");
const REJECTED: TableDefinition<'_, &[u8; KEY_BYTES], &[u8]> = TableDefinition::new("rejected");

const META_FORMAT: &str = "format";
const META_IDENTITY: &str = "identity";
const META_NEXT_NUMBER: &str = "next number";

/// The directory's key of an entry, within one search. Two searches may find the same entry, once
/// as a user and once as a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The search.
    pub part: u8,
    /// The directory's lasting key.
    pub id: [u8; 16],
}

/// What is known of an entry beside its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its number, for as long as it exists.
    pub number: u32,
    /// What it is, in the back-end's own terms.
    pub kind: u8,
    /// How its list names members, in the back-end's own terms.
    pub list: u8,
    /// The number of the reference by which lists name it by DN.
    pub reference: u32,
    /// Hash of its record.
    pub digest: u64,
    /// When the directory confirmed it last, in seconds since 1970; 0 where nobody counts.
    pub seen_unix: u64,
    /// When it confirmed the list that belongs to it last, a group's members or a user's groups.
    pub list_seen_unix: u64,
}

/// An entry that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// What an administrator would look for.
    pub name: String,
    /// How member lists name the entry if it is a group; else empty.
    pub reference: Vec<u8>,
    /// Why.
    pub reason: String,
}

/// How far one search has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Whether it was enumerated whole since the cache was made.
    pub complete: bool,
    /// Where change tracking stands: what the cookie is valid for, and the cookie.
    pub cookie: Option<(String, Vec<u8>)>,
    /// When it was enumerated last, in seconds since 1970.
    pub refreshed_unix: u64,
    /// When every entry was last told as it is, not just that it is there.
    pub read_unix: u64,
    /// Entries that the directory has no more and that stay until somebody confirms their removal.
    pub held: Vec<[u8; 16]>,
    /// References that entries went by which are gone or have others now: lists that hold them may
    /// have been mended, of which not every server tells.
    pub doubts: Vec<u32>,
}

impl Key {
    fn to_bytes(self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[0] = self.part;
        bytes[1..].copy_from_slice(&self.id);
        bytes
    }

    fn from_bytes(&[part, ref id @ ..]: &[u8; KEY_BYTES]) -> Self {
        Self { part, id: *id }
    }
}

impl Header {
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
        let mut reader = Bytes(bytes);
        // The fixed length makes every one of these succeed.
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
        bytes.extend_from_slice(self.reason.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Bytes(bytes);
        let name = std::str::from_utf8(reader.bytes()?).ok()?.to_owned();
        let reference = reader.bytes()?.to_vec();
        let reason = std::str::from_utf8(reader.0).ok()?.to_owned();
        Some(Self { name, reference, reason })
    }
}

impl Part {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.complete.into(), self.cookie.is_some().into()];
        bytes.extend(self.refreshed_unix.to_le_bytes());
        bytes.extend(self.read_unix.to_le_bytes());
        put_bytes(&mut bytes, self.held.as_flattened());
        let doubts: Vec<_> = self.doubts.iter().map(|reference| reference.to_le_bytes()).collect();
        put_bytes(&mut bytes, doubts.as_flattened());
        if let Some((binding, value)) = &self.cookie {
            put_bytes(&mut bytes, binding.as_bytes());
            bytes.extend_from_slice(value);
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[complete, has_cookie], rest) = bytes.split_first_chunk()?;
        let mut reader = Bytes(rest);
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
        Some(Self { complete: complete != 0, cookie, refreshed_unix, read_unix, held, doubts })
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // What is longer than 4 GiB cannot be stored at all.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend(length.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Whether these are the tables of this version for that identity; makes them where there are none.
pub(crate) fn check(database: &Database, path: &Path, identity: &str) -> Result<(), StoreError> {
    let failed = |error| StoreError::from_redb("open", path, error);
    let transaction = database.begin_read().map_err(|error| failed(error.into()))?;
    let tables = transaction.list_tables().map_err(|error| failed(error.into()))?.count();
    if tables == 0 {
        return make(database, path, identity);
    }
    let reader = Reader::new(&transaction, path)?;
    let format = reader.meta(META_FORMAT)?.unwrap_or_default();
    if format != FORMAT.to_le_bytes() {
        let known: Option<[u8; 4]> = format.as_slice().try_into().ok();
        let found = known.map_or("unknown".into(), |bytes| u32::from_le_bytes(bytes).to_string());
        let reason = format!("its format is {found}, this program's is {FORMAT}");
        return Err(StoreError::foreign(path, reason));
    }
    let owner = reader.meta(META_IDENTITY)?.unwrap_or_default();
    if owner != identity.as_bytes() {
        let owner = String::from_utf8_lossy(&owner).into_owned();
        let reason = format!("it is the cache of “{owner}”, not of “{identity}”");
        return Err(StoreError::foreign(path, reason));
    }
    Ok(())
}

fn make(database: &Database, path: &Path, identity: &str) -> Result<(), StoreError> {
    let failed = |error| StoreError::from_redb("create", path, error);
    let transaction = database.begin_write().map_err(|error| failed(error.into()))?;
    let mut writer = Writer::new(&transaction, path)?;
    writer.set_meta(META_FORMAT, &FORMAT.to_le_bytes())?;
    writer.set_meta(META_IDENTITY, identity.as_bytes())?;
    drop(writer);
    transaction.commit().map_err(|error| failed(error.into()))
}

/// One transaction that changes the cache.
pub struct Writer<'t> {
    path: &'t Path,
    meta: Table<'t, &'static str, &'static [u8]>,
    parts: Table<'t, u8, &'static [u8]>,
    entries: Table<'t, &'static [u8; KEY_BYTES], &'static [u8; HEADER_BYTES]>,
    records: Table<'t, u32, &'static [u8]>,
    accounts: Table<'t, u32, &'static [u8]>,
    references: Table<'t, u32, &'static [u8]>,
    rejected: Table<'t, &'static [u8; KEY_BYTES], &'static [u8]>,
}

impl<'t> Writer<'t> {
    pub(crate) fn new(
        transaction: &'t WriteTransaction,
        path: &'t Path,
    ) -> Result<Self, StoreError> {
        let failed = |error: redb::TableError| StoreError::from_redb("write", path, error.into());
        Ok(Self {
            path,
            meta: transaction.open_table(META).map_err(failed)?,
            parts: transaction.open_table(PARTS).map_err(failed)?,
            entries: transaction.open_table(ENTRIES).map_err(failed)?,
            records: transaction.open_table(RECORDS).map_err(failed)?,
            accounts: transaction.open_table(ACCOUNTS).map_err(failed)?,
            references: transaction.open_table(REFERENCES).map_err(failed)?,
            rejected: transaction.open_table(REJECTED).map_err(failed)?,
        })
    }

    /// The entry is this from now on.
    pub fn put(&mut self, key: Key, header: Header, record: &[u8]) -> Result<(), StoreError> {
        let result = self.records.insert(header.number, record).map(drop);
        done(self.path, result)?;
        self.confirm(key, header)
    }

    /// The entry has this header from now on, and the record that it had.
    pub fn confirm(&mut self, key: Key, header: Header) -> Result<(), StoreError> {
        let result = self.entries.insert(&key.to_bytes(), &header.to_bytes()).map(drop);
        done(self.path, result)
    }

    /// What is known of the user's account, beside the record that the publisher is given.
    pub fn account(&mut self, number: u32, account: &[u8]) -> Result<(), StoreError> {
        let result = self.accounts.insert(number, account).map(drop);
        done(self.path, result)
    }

    /// There is no such entry any more.
    pub fn remove(&mut self, key: Key, number: u32) -> Result<(), StoreError> {
        let result = self.records.remove(number).map(drop);
        done(self.path, result)?;
        let result = self.accounts.remove(number).map(drop);
        done(self.path, result)?;
        let result = self.entries.remove(&key.to_bytes()).map(drop);
        done(self.path, result)
    }

    /// The number stands for this reference.
    pub fn reference(&mut self, number: u32, bytes: &[u8]) -> Result<(), StoreError> {
        let result = self.references.insert(number, bytes).map(drop);
        done(self.path, result)
    }

    /// Only these references are still in use.
    pub fn retain_references(&mut self, used: impl Fn(u32) -> bool) -> Result<(), StoreError> {
        let result = self.references.retain(|number, _| used(number));
        done(self.path, result)
    }

    /// The entry is not served, for this reason; with `None` it is not rejected any more.
    pub fn rejected(&mut self, key: Key, why: Option<&Rejection>) -> Result<(), StoreError> {
        let key = key.to_bytes();
        let result = match why {
            Some(why) => self.rejected.insert(&key, why.to_bytes().as_slice()).map(drop),
            None => self.rejected.remove(&key).map(drop),
        };
        done(self.path, result)
    }

    /// How far the search has come.
    pub fn part(&mut self, number: u8, part: &Part) -> Result<(), StoreError> {
        let result = self.parts.insert(number, part.to_bytes().as_slice()).map(drop);
        done(self.path, result)
    }

    /// The number that the next new entry gets.
    pub fn next_number(&mut self, number: u32) -> Result<(), StoreError> {
        self.set_meta(META_NEXT_NUMBER, &number.to_le_bytes())
    }

    fn set_meta(&mut self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let result = self.meta.insert(name, value).map(drop);
        done(self.path, result)
    }
}

fn done(path: &Path, result: Result<(), redb::StorageError>) -> Result<(), StoreError> {
    result.map_err(|error| StoreError::from_redb("write", path, error.into()))
}

/// The cache as it was at one moment.
pub struct Reader {
    path: PathBuf,
    meta: ReadOnlyTable<&'static str, &'static [u8]>,
    parts: ReadOnlyTable<u8, &'static [u8]>,
    entries: ReadOnlyTable<&'static [u8; KEY_BYTES], &'static [u8; HEADER_BYTES]>,
    records: ReadOnlyTable<u32, &'static [u8]>,
    accounts: ReadOnlyTable<u32, &'static [u8]>,
    references: ReadOnlyTable<u32, &'static [u8]>,
    rejected: ReadOnlyTable<&'static [u8; KEY_BYTES], &'static [u8]>,
}

impl Reader {
    pub(crate) fn new(transaction: &ReadTransaction, path: &Path) -> Result<Self, StoreError> {
        let failed = |error: redb::TableError| StoreError::from_redb("read", path, error.into());
        Ok(Self {
            path: path.to_owned(),
            meta: transaction.open_table(META).map_err(failed)?,
            parts: transaction.open_table(PARTS).map_err(failed)?,
            entries: transaction.open_table(ENTRIES).map_err(failed)?,
            records: transaction.open_table(RECORDS).map_err(failed)?,
            accounts: transaction.open_table(ACCOUNTS).map_err(failed)?,
            references: transaction.open_table(REFERENCES).map_err(failed)?,
            rejected: transaction.open_table(REJECTED).map_err(failed)?,
        })
    }

    /// Every entry, by key.
    pub fn entries(&self, mut visit: impl FnMut(Key, Header)) -> Result<(), StoreError> {
        self.walk(&self.entries, |key, header| {
            visit(Key::from_bytes(key), Header::from_bytes(header));
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Every record, by number, until `visit` has enough.
    pub fn records(
        &self,
        mut visit: impl FnMut(u32, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.walk(&self.records, |number, record| Ok(visit(number, record)))
    }

    /// One record.
    pub fn record(&self, number: u32) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.records.get(number);
        let found = found.map_err(|error| self.failed(error.into()))?;
        Ok(found.map(|guard| guard.value().to_vec()))
    }

    /// What is known of a user's account.
    pub fn account(&self, number: u32) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.accounts.get(number);
        let found = found.map_err(|error| self.failed(error.into()))?;
        Ok(found.map(|guard| guard.value().to_vec()))
    }

    /// Every reference, by number.
    pub fn references(&self, mut visit: impl FnMut(u32, &[u8])) -> Result<(), StoreError> {
        self.walk(&self.references, |number, bytes| {
            visit(number, bytes);
            Ok(ControlFlow::Continue(()))
        })
    }

    /// How many references there are.
    pub fn references_len(&self) -> Result<u64, StoreError> {
        self.references.len().map_err(|error| self.failed(error.into()))
    }

    /// Everything that was rejected, by key.
    pub fn rejected(&self, mut visit: impl FnMut(Key, Rejection)) -> Result<(), StoreError> {
        self.walk(&self.rejected, |key, bytes| {
            let rejection = Rejection::from_bytes(bytes).ok_or_else(|| self.unreadable())?;
            visit(Key::from_bytes(key), rejection);
            Ok(ControlFlow::Continue(()))
        })
    }

    /// How far every search has come.
    pub fn parts(&self, mut visit: impl FnMut(u8, Part)) -> Result<(), StoreError> {
        self.walk(&self.parts, |number, bytes| {
            visit(number, Part::from_bytes(bytes).ok_or_else(|| self.unreadable())?);
            Ok(ControlFlow::Continue(()))
        })
    }

    /// The number that the next new entry gets.
    pub fn next_number(&self) -> Result<u32, StoreError> {
        let Some(bytes) = self.meta(META_NEXT_NUMBER)? else { return Ok(0) };
        let bytes = bytes.as_slice().try_into().map_err(|_| self.unreadable())?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn meta(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.meta.get(name).map_err(|error| self.failed(error.into()))?;
        Ok(found.map(|guard| guard.value().to_vec()))
    }

    fn walk<K: redb::Key, V: redb::Value>(
        &self,
        table: &ReadOnlyTable<K, V>,
        mut visit: impl FnMut(K::SelfType<'_>, V::SelfType<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let rows = table.iter().map_err(|error| self.failed(error.into()))?;
        for row in rows {
            let (key, value) = row.map_err(|error| self.failed(error.into()))?;
            if visit(key.value(), value.value())?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn failed(&self, error: redb::Error) -> StoreError {
        StoreError::from_redb("read", &self.path, error)
    }

    fn unreadable(&self) -> StoreError {
        StoreError::damaged(&self.path, "a value is not what this program writes")
    }
}
