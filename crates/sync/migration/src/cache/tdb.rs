// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of a TDB file, the hash table in which SSSD keeps its cache. Written from the description of the format. The
//! values of records are in `ldb`.
//!
//! The file has a header of 168 bytes, then the head of the list of free records, then one head for each hash value. A head
//! and the field `next` of a record are offsets. Numbers are those of the processor that wrote the file.

use std::fmt;

/// First bytes of a file.
const MAGIC: &[u8; 32] = b"TDB file\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const VERSION: u32 = 0x2601_1967 + 6;
const HEADER_BYTES: usize = 168;
const RECORD_BYTES: usize = 24;
const RECORD_MAGIC: u32 = 0x2601_1999;
const DEAD_MAGIC: u32 = 0xFEE1_DEAD;
const RECOVERY_MAGIC: u32 = 0xF53B_C0E7;
/// Bit of the feature flags: the file begins with locks of threads.
const FEATURE_MUTEXES: u32 = 1;
/// Limit of the hash values.
const HASHES_MAX: u32 = 1 << 24;

/// A defect of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TdbError {
    /// The file has another format, version or byte order.
    Format,
    /// The file has a feature that this reader lacks.
    Unsupported,
    /// A write was interrupted: only SSSD can complete it.
    Interrupted,
    /// Offsets or lengths contradict each other.
    Damaged,
}

impl fmt::Display for TdbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "not a TDB file of version 1 of this host's byte order",
            Self::Unsupported => "the file has an unsupported feature",
            Self::Interrupted => "a write to the file was interrupted",
            Self::Damaged => "offsets of the file contradict each other",
        })
    }
}

impl std::error::Error for TdbError {}

fn number(bytes: &[u8], offset: usize) -> Result<u32, TdbError> {
    let end = offset.checked_add(4).ok_or(TdbError::Damaged)?;
    let bytes = bytes.get(offset..end).ok_or(TdbError::Damaged)?;
    let bytes: [u8; 4] = bytes.try_into().map_err(|_| TdbError::Damaged)?;
    Ok(u32::from_ne_bytes(bytes))
}

/// Calls `each` with key and data of every record. Visits no record twice. The records have at most the bytes of the file
/// together, so that overlapping records do not multiply the memory that they need.
///
/// # Errors
///
/// The file is damaged or unsupported, or `each` returns an error.
pub fn for_each<E: From<TdbError>>(
    file: &[u8],
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if file.len() < HEADER_BYTES || !file.starts_with(MAGIC) || number(file, 32)? != VERSION {
        return Err(TdbError::Format.into());
    }
    let hashes = number(file, 36)?;
    if hashes == 0 || hashes > HASHES_MAX {
        return Err(TdbError::Damaged.into());
    }
    // After the version and the size of the table: locks, recovery, sequence, two checks of the hash, features.
    let (recovery, features) = (number(file, 44)?, number(file, 60)?);
    if features & FEATURE_MUTEXES != 0 {
        return Err(TdbError::Unsupported.into());
    }
    if recovery != 0 && number(file, recovery as usize + 20)? == RECOVERY_MAGIC {
        return Err(TdbError::Interrupted.into());
    }
    let mut left = file.len();
    for hash in 0..hashes as usize {
        let mut offset = number(file, HEADER_BYTES + 4 + 4 * hash)? as usize;
        while offset != 0 {
            left = left.checked_sub(RECORD_BYTES).ok_or(TdbError::Damaged)?;
            let (next, room) = (number(file, offset)?, number(file, offset + 4)?);
            let (key, data) =
                (number(file, offset + 8)? as usize, number(file, offset + 12)? as usize);
            match number(file, offset + 20)? {
                RECORD_MAGIC => {
                    let begin = offset + RECORD_BYTES;
                    let middle = begin.checked_add(key).ok_or(TdbError::Damaged)?;
                    let end = middle.checked_add(data).ok_or(TdbError::Damaged)?;
                    if end - begin > room as usize {
                        return Err(TdbError::Damaged.into());
                    }
                    left = left.checked_sub(end - begin).ok_or(TdbError::Damaged)?;
                    let key = file.get(begin..middle).ok_or(TdbError::Damaged)?;
                    each(key, file.get(middle..end).ok_or(TdbError::Damaged)?)?;
                }
                DEAD_MAGIC => {}
                _ => return Err(TdbError::Damaged.into()),
            }
            offset = next as usize;
        }
    }
    Ok(())
}

/// Writes files for tests of this crate.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a file with these records in three chains.
    pub(crate) fn file_of(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        const HASHES: usize = 3;
        let mut file = vec![0; HEADER_BYTES + 4 + 4 * HASHES];
        file[..32].copy_from_slice(MAGIC);
        file[32..36].copy_from_slice(&VERSION.to_ne_bytes());
        file[36..40].copy_from_slice(&(HASHES as u32).to_ne_bytes());
        for (place, (key, data)) in records.iter().enumerate() {
            let head = HEADER_BYTES + 4 + 4 * (place % HASHES);
            let next = number(&file, head).unwrap();
            let offset = file.len() as u32;
            file[head..head + 4].copy_from_slice(&offset.to_ne_bytes());
            let room = (key.len() + data.len() + 4) as u32;
            for number in [next, room, key.len() as u32, data.len() as u32, 0, RECORD_MAGIC] {
                file.extend(number.to_ne_bytes());
            }
            file.extend(key);
            file.extend(data);
            file.extend((RECORD_BYTES as u32 + room).to_ne_bytes());
        }
        file
    }

    type Records = Vec<(Vec<u8>, Vec<u8>)>;

    fn read(file: &[u8]) -> Result<Records, TdbError> {
        let mut found = Vec::new();
        for_each(file, |key, data| {
            found.push((key.to_vec(), data.to_vec()));
            Ok::<(), TdbError>(())
        })?;
        found.sort();
        Ok(found)
    }

    fn records(count: u8) -> Records {
        (0..count).map(|at| (vec![b'k', at], vec![at; usize::from(at)])).collect()
    }

    #[test]
    fn tdb_records_of_all_chains_found() {
        assert_eq!(read(&file_of(&records(10))), Ok(records(10)));
        assert_eq!(read(&file_of(&[])), Ok(vec![]));
    }

    #[test]
    fn tdb_overlapping_records_are_error() {
        // The data of each record has all later records.
        let mut file = file_of(&records(40));
        let length = file.len();
        let mut offset = number(&file, HEADER_BYTES + 4).unwrap() as usize;
        while offset != 0 {
            let room = (length - offset - RECORD_BYTES) as u32;
            file[offset + 4..offset + 8].copy_from_slice(&room.to_ne_bytes());
            file[offset + 12..offset + 16].copy_from_slice(&(room - 2).to_ne_bytes());
            offset = number(&file, offset).unwrap() as usize;
        }
        assert_eq!(read(&file), Err(TdbError::Damaged));
    }

    #[test]
    fn tdb_damage_is_error_without_endless_loop() {
        let file = file_of(&records(5));
        let head = HEADER_BYTES + 4;
        let first = number(&file, head).unwrap() as usize;
        let changed = |place: usize, value: u32| {
            let mut file = file.clone();
            file[place..place + 4].copy_from_slice(&value.to_ne_bytes());
            read(&file)
        };
        assert_eq!(
            changed(first, first as u32),
            Err(TdbError::Damaged),
            "a record that follows itself"
        );
        assert_eq!(changed(first + 8, u32::MAX), Err(TdbError::Damaged), "a huge key");
        assert_eq!(changed(first + 20, 7), Err(TdbError::Damaged), "another magic");
        assert_eq!(changed(head, u32::MAX), Err(TdbError::Damaged), "an offset behind the end");
        assert_eq!(changed(32, 7), Err(TdbError::Format));
        assert_eq!(changed(36, u32::MAX), Err(TdbError::Damaged));
        assert_eq!(changed(60, FEATURE_MUTEXES), Err(TdbError::Unsupported));
        for length in 0..file.len() - 20 {
            assert!(read(&file[..length]).is_err(), "{length}");
        }
        let mut interrupted = file.clone();
        let recovery = interrupted.len() as u32;
        interrupted[44..48].copy_from_slice(&recovery.to_ne_bytes());
        interrupted.extend([0; 20]);
        interrupted.extend(RECOVERY_MAGIC.to_ne_bytes());
        assert_eq!(read(&interrupted), Err(TdbError::Interrupted));
    }
}
