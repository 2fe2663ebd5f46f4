//! What is kept of passwords that a directory found right, so that people can log in while it is away.
//!
//! Two files of their own in the domain's folder, which only the back-end's user and root can read. They hold
//! hashes, counters of failures and times; what follows from them is decided elsewhere. Unlike the cache they cannot
//! be had again from the directory, so there are two: each change is durable in one and then in the other when the
//! call returns. A file that is damaged, gone, older or another's is made again from the other one.
//!
//! | at the next start | the right file |
//! |---|---|
//! | both are whole | the one with the higher number of changes |
//! | one is whole | that one |
//! | both are damaged | a new one: each user has to log in online once |
//!
//! A copy that misses a change must never count, or it would bring a forgotten password back. It exists from the
//! first write of a change to the second, before its outcome is told, and when the second write fails: the
//! copy is removed then. A third file has the identity of the pair, a random number that is in both. The one that two
//! of the three have is right; a file with another one is another host's or domain's and does not count.

mod file;
mod values;

pub use values::{Changes, Credential, Mark, Match, Measured};

use crate::open::{aside, made};
use crate::{SetAside, StoreError, Useless};
use file::{File, Found, Identity};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Name of the first file in a domain's folder.
pub const CREDENTIALS_FILE: &str = "credentials.redb";
/// Name of the second.
pub const COPY_FILE: &str = "credentials-copy.redb";
/// Name of the file with the identity of both, in hexadecimal digits.
pub const IDENTITY_FILE: &str = "credentials.id";

/// The open files. One process has them open at a time.
pub struct Credentials {
    /// Whole, and read.
    file: File,
    /// The other one, or the error that it was opened with.
    copy: Result<File, StoreError>,
    copy_path: PathBuf,
    /// Of the last change.
    sequence: Mutex<u64>,
}

/// The open files, and what was there.
pub struct Opened {
    /// The files.
    pub credentials: Credentials,
    /// Files that were of no use.
    pub set_aside: Vec<SetAside>,
    /// Whether passwords may be lost: files were of no use, and nothing else was there.
    pub is_lost: bool,
}

impl Credentials {
    /// Opens the files in `folder`. Damaged and foreign files are set aside and made again.
    ///
    /// # Errors
    ///
    /// None can be opened or made.
    pub fn open(folder: &Path) -> Result<Opened, StoreError> {
        let paths = [CREDENTIALS_FILE, COPY_FILE].map(|name| folder.join(name));
        let mut found = [File::find(&paths[0]), File::find(&paths[1])];
        let saved = read_identity(folder);
        refuse_foreign(&mut found, saved);
        let mut set_aside = Vec::new();
        let (mut files, mut failures) = ([None, None], [None, None]);
        for (number, found) in found.into_iter().enumerate() {
            match found {
                Found::Good(file) => files[number] = Some(file),
                Found::Missing => {}
                Found::Useless(was, reason) => set_aside.push(aside(&paths[number], was, reason)?),
                Found::Failed(error @ StoreError::InUse { .. }) => return Err(error),
                Found::Failed(error) => failures[number] = Some(error),
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
                None => (fresh(folder, &paths[0])?, None, 1),
            },
        };
        if saved != Some(file.identity) {
            // The two files are enough to know it by.
            let _ = write_identity(folder, file.identity);
        }
        let copy = match (failures[place].take(), other) {
            (Some(error), _) => Err(error),
            (None, Some(other)) if other.sequence == file.sequence => Ok(other),
            (None, other) => {
                drop(other);
                File::make(&paths[place], file.identity, file.sequence, &file.content()?)
            }
        };
        let sequence = Mutex::new(file.sequence);
        let is_lost = is_fresh && !set_aside.is_empty();
        let credentials = Self { file, copy, copy_path: paths[place].clone(), sequence };
        Ok(Opened { credentials, set_aside, is_lost })
    }

    /// Why one of the two files is missing, in words; empty if both are there.
    #[must_use]
    pub fn trouble(&self) -> String {
        self.copy.as_ref().err().map(ToString::to_string).unwrap_or_default()
    }

    /// What is kept of a user.
    pub fn get(&self, user: &[u8]) -> Result<Option<Credential>, StoreError> {
        self.file.get(user)
    }

    /// Carries out changes, durably in both files, whole or not at all. After an error the files have to be opened
    /// again.
    ///
    /// # Errors
    ///
    /// The changes may be in the files or not.
    pub fn write(&self, changes: &Changes) -> Result<(), StoreError> {
        let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        let next = *sequence + 1;
        self.file.write(next, changes)?;
        *sequence = next;
        let copied = match &self.copy {
            Ok(copy) => copy.write(next, changes),
            Err(error) => {
                Err(StoreError::Closed { path: self.copy_path.clone(), reason: error.to_string() })
            }
        };
        if copied.is_err() {
            // It misses a change, and must not count if the other file is damaged one day.
            let _ = fs::remove_file(&self.copy_path);
        }
        copied
    }

    /// Everybody of whom something is kept.
    pub fn list(&self) -> Result<Vec<(Vec<u8>, Credential)>, StoreError> {
        self.file.list()
    }

    /// What a filter said of a user last.
    pub fn matched(&self, user: &[u8]) -> Result<Option<Match>, StoreError> {
        self.file.matched(user)
    }

    /// All users of whom a filter said something, and what it said last.
    pub fn all_matched(&self) -> Result<Vec<(Vec<u8>, Match)>, StoreError> {
        self.file.all_matched()
    }

    /// The latest time that was seen.
    pub fn mark(&self) -> Result<Mark, StoreError> {
        self.file.mark()
    }

    /// How costly hashes are made, if it was measured.
    pub fn measured(&self) -> Result<Option<Measured>, StoreError> {
        self.file.measured()
    }
}

/// Makes the first file of a pair that has not been before.
fn fresh(folder: &Path, path: &Path) -> Result<File, StoreError> {
    let mut identity = Identity::default();
    getrandom(&mut identity, GetRandomFlags::empty())
        .map_err(|error| StoreError::io("make", path, error.into()))?;
    // Before the file: one with another identity does not count.
    write_identity(folder, identity)?;
    File::make(path, identity, 0, &Changes::default())
}

/// Finds files of another identity than two of three places have to be of no use.
fn refuse_foreign(found: &mut [Found; 2], saved: Option<Identity>) {
    let identity = |found: &Found| match found {
        Found::Good(file) => Some(file.identity),
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
            let reason = "it is another host's or another domain's".to_owned();
            *found = Found::Useless(Useless::Foreign, reason);
        }
    }
}

fn read_identity(folder: &Path) -> Option<Identity> {
    let text = fs::read_to_string(folder.join(IDENTITY_FILE)).ok()?;
    let digits = text.strip_suffix('\n').filter(|digits| digits.len() == 32)?;
    u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
}

fn write_identity(folder: &Path, identity: Identity) -> Result<(), StoreError> {
    let path = folder.join(IDENTITY_FILE);
    made(&path, |temporary| {
        let text = format!("{:032x}\n", u128::from_be_bytes(identity));
        fs::write(temporary, text).map_err(|error| StoreError::io("write", &path, error))
    })
}

#[cfg(test)]
mod tests;
