// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cached credentials of successful logins, for logins while the directory is unreachable. `file` has one of the files,
//! and `values` the encoding. The backend's `offline_auth` checks passwords.
//!
//! They are in two dedicated files in the domain's directory, which only the backend's user and root can read. The
//! files hold hashes, counters of failures, and times. Other crates decide about logins. Unlike the cache, the
//! directory cannot restore credentials, so there are two copies. Each change is durable in one and then in the other
//! when the call returns. A damaged, missing, older or foreign file is recreated from the other one.
//!
//! | at the next start | the file in use |
//! |---|---|
//! | both are valid | the file with the higher number of changes |
//! | one is valid | that file |
//! | both are damaged | a new file: each user has to log in online once |
//!
//! A copy that misses a change must never be used, because it could restore a removed password. Such a copy exists
//! between the two writes of a change, before the call returns. If the second write fails, the copy is removed. A third
//! file has the identity of the pair, a random number that is in both files. The number in two of the three files is
//! valid. A file with another number belongs to another host or domain, and is rejected.

mod file;
mod values;

pub use values::{
    ClockMark, CredentialChanges, FilterMatch, FilterMatches, MATCHES_PER_USER_MAX,
    MeasuredHashParams, StoredCredential,
};

use crate::open::{create_atomically, quarantine};
use crate::{CacheError, FileFault, QuarantinedFile};
use file::{CredentialFile, CredentialFileState, PairIdentity};
use parking_lot::Mutex;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the first file in a domain's directory.
pub const CREDENTIALS_FILE: &str = "credentials.redb";
/// Name of the second file.
pub const COPY_FILE: &str = "credentials-copy.redb";
/// Name of the file with the identity of both, in hexadecimal digits.
pub const IDENTITY_FILE: &str = "credentials.id";

/// The open files. Only one process has them open.
pub struct CredentialFiles {
    /// A valid file, which serves all reads.
    file: CredentialFile,
    /// The other file, or the error when it was opened.
    copy: Result<CredentialFile, CacheError>,
    copy_path: PathBuf,
    /// The number of the last change.
    sequence: Mutex<u64>,
}

/// The open files and the findings about earlier ones.
pub struct OpenedCredentials {
    /// The files.
    pub credentials: CredentialFiles,
    /// Files that were unusable.
    pub quarantined: Vec<QuarantinedFile>,
    /// Passwords may be lost: files were unusable, and no valid one was left.
    pub is_lost: bool,
}

impl CredentialFiles {
    /// Opens the files in `folder`. Damaged and foreign files are quarantined and recreated.
    ///
    /// # Errors
    ///
    /// No file can be opened or created.
    pub fn open(folder: &Path) -> Result<OpenedCredentials, CacheError> {
        let paths = [CREDENTIALS_FILE, COPY_FILE].map(|name| folder.join(name));
        let mut found = [CredentialFile::find(&paths[0]), CredentialFile::find(&paths[1])];
        let saved = read_identity(folder);
        reject_foreign(&mut found, saved);
        let mut set_aside = Vec::new();
        let (mut files, mut failures) = ([None, None], [None, None]);
        for (number, found) in found.into_iter().enumerate() {
            match found {
                CredentialFileState::Usable(file) => files[number] = Some(file),
                CredentialFileState::Missing => {}
                CredentialFileState::Faulty(was, reason) => {
                    set_aside.push(quarantine(&paths[number], was, reason)?);
                }
                CredentialFileState::Failed(error @ CacheError::InUse { .. }) => return Err(error),
                CredentialFileState::Failed(error) => failures[number] = Some(error),
            }
        }
        let is_fresh = files.iter().all(Option::is_none);
        let (file, other, place) = match files.into() {
            (Some(first), Some(second)) if second.sequence > first.sequence => {
                (second, Some(first), 0)
            }
            (Some(first), second) => (first, second, 1),
            (None, Some(second)) => (second, None, 0),
            (None, None) => match failures.iter_mut().find_map(Option::take) {
                Some(error) => return Err(error),
                None => (create_first(folder, &paths[0])?, None, 1),
            },
        };
        if saved != Some(file.identity) {
            // The two files are enough to determine the identity.
            let _ = write_identity(folder, file.identity);
        }
        let copy = match (failures[place].take(), other) {
            (Some(error), _) => Err(error),
            (None, Some(other)) if other.sequence == file.sequence => Ok(other),
            (None, other) => {
                drop(other);
                CredentialFile::create(
                    &paths[place],
                    file.identity,
                    file.sequence,
                    &file.content()?,
                )
            }
        };
        let sequence = Mutex::new(file.sequence);
        let is_lost = is_fresh && !set_aside.is_empty();
        let credentials = Self { file, copy, copy_path: paths[place].clone(), sequence };
        Ok(OpenedCredentials { credentials, quarantined: set_aside, is_lost })
    }

    /// Returns the reason that one of the two files is missing. Empty if both exist.
    #[must_use]
    pub fn missing_copy_reason(&self) -> String {
        self.copy.as_ref().err().map(ToString::to_string).unwrap_or_default()
    }

    /// Returns the cached credential of a user.
    pub fn get(&self, user: &[u8]) -> Result<Option<StoredCredential>, CacheError> {
        self.file.get(user)
    }

    /// Applies changes durably in both files, completely or not at all. After an error the files have to be reopened.
    ///
    /// # Errors
    ///
    /// The changes may be in the files or not.
    pub fn write(&self, changes: &CredentialChanges) -> Result<(), CacheError> {
        let mut sequence = self.sequence.lock();
        let next = *sequence + 1;
        self.file.write(next, changes)?;
        *sequence = next;
        let copied = match &self.copy {
            Ok(copy) => copy.write(next, changes),
            Err(error) => {
                Err(CacheError::Closed { path: self.copy_path.clone(), reason: error.to_string() })
            }
        };
        if copied.is_err() {
            // It misses a change, and must not be used if the other file is damaged later.
            let _ = fs::remove_file(&self.copy_path);
        }
        copied
    }

    /// Returns all cached credentials by user.
    pub fn list(&self) -> Result<Vec<(Vec<u8>, StoredCredential)>, CacheError> {
        self.file.list()
    }

    /// Returns the last results of filters for a user.
    pub fn filter_matches_of(&self, user: &[u8]) -> Result<Option<FilterMatches>, CacheError> {
        self.file.filter_matches_of(user)
    }

    /// Returns the last results of filters by user.
    pub fn filter_matches(&self) -> Result<Vec<(Vec<u8>, FilterMatches)>, CacheError> {
        self.file.filter_matches()
    }

    /// Returns the latest time that was recorded.
    pub fn clock_mark(&self) -> Result<ClockMark, CacheError> {
        self.file.clock_mark()
    }

    /// Returns the parameters of hashes, if they were measured.
    pub fn measured_params(&self) -> Result<Option<MeasuredHashParams>, CacheError> {
        self.file.measured_params()
    }
}

/// Creates the first file of a new pair.
fn create_first(folder: &Path, path: &Path) -> Result<CredentialFile, CacheError> {
    let mut identity = PairIdentity::default();
    getrandom(&mut identity, GetRandomFlags::empty())
        .map_err(|error| CacheError::io("create", path, error.into()))?;
    // Written before the file: a file with another identity is rejected.
    write_identity(folder, identity)?;
    CredentialFile::create(path, identity, 0, &CredentialChanges::default())
}

/// Rejects files that differ from the identity in two of the three files.
fn reject_foreign(found: &mut [CredentialFileState; 2], saved: Option<PairIdentity>) {
    let identity = |found: &CredentialFileState| match found {
        CredentialFileState::Usable(file) => Some(file.identity),
        _ => None,
    };
    let right = match (identity(&found[0]), identity(&found[1])) {
        (Some(first), Some(second)) if first == second => Some(first),
        (Some(first), Some(second)) => saved.filter(|saved| [first, second].contains(saved)),
        (Some(one), None) | (None, Some(one)) => saved.or(Some(one)),
        (None, None) => None,
    };
    for found in found {
        if identity(found).is_some_and(|identity| Some(identity) != right) {
            let reason = "the file belongs to another host or domain".to_owned();
            *found = CredentialFileState::Faulty(FileFault::Foreign, reason);
        }
    }
}

fn read_identity(folder: &Path) -> Option<PairIdentity> {
    let text = fs::read_to_string(folder.join(IDENTITY_FILE)).ok()?;
    let digits = text.strip_suffix('\n').filter(|digits| digits.len() == 32)?;
    u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
}

fn write_identity(folder: &Path, identity: PairIdentity) -> Result<(), CacheError> {
    let path = folder.join(IDENTITY_FILE);
    create_atomically(&path, |temporary| {
        let text = format!("{:032x}\n", u128::from_be_bytes(identity));
        fs::write(temporary, text).map_err(|error| CacheError::io("write", &path, error))
    })
}

#[cfg(test)]
mod tests;
