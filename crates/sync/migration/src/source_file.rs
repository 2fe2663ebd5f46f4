// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the files that the conversion starts from, with bounds on their number and size. The parsers are in `ini`,
//! `nslcd_lines` and `krb5_conf`.

use crate::syntax::{FILE_BYTES_MAX, SyntaxError};
use roster_messages::CodedError;
use roster_messages::table::tools;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Limit of the names in a directory of drop-ins.
const NAMES_MAX: usize = 10_000;

/// The error of a file that cannot be read or parsed.
#[derive(Debug)]
pub struct SourceError {
    /// The file.
    pub file: PathBuf,
    /// The defect.
    pub kind: SourceErrorKind,
}

/// The defect of a file.
#[derive(Debug)]
pub enum SourceErrorKind {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// A line has another form.
    Syntax(SyntaxError),
    /// Other users than root may change the file, or SSSD ignores it.
    Untrusted(String),
}

impl SourceError {
    pub(crate) fn unreadable(file: &Path, error: io::Error) -> Self {
        Self { file: file.to_owned(), kind: SourceErrorKind::Unreadable(error) }
    }

    pub(crate) fn syntax(file: &Path, error: SyntaxError) -> Self {
        Self { file: file.to_owned(), kind: SourceErrorKind::Syntax(error) }
    }

    /// Returns whether the file does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(&self.kind, SourceErrorKind::Unreadable(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl From<SourceError> for CodedError {
    fn from(error: SourceError) -> Self {
        let file = error.file.display();
        match error.kind {
            SourceErrorKind::Unreadable(cause) => {
                let text = format!("{file}: cannot be read");
                Self::new(&tools::MIGRATE_SOURCE_UNREADABLE, text).caused_by(cause)
            }
            SourceErrorKind::Syntax(SyntaxError { line: 0, text }) => {
                Self::new(&tools::MIGRATE_SOURCE_SYNTAX, format!("{file} {text}"))
            }
            SourceErrorKind::Syntax(SyntaxError { line, text }) => {
                Self::new(&tools::MIGRATE_SOURCE_SYNTAX, format!("{file}:{line}: the line {text}"))
            }
            SourceErrorKind::Untrusted(text) => {
                Self::new(&tools::MIGRATE_SOURCE_UNTRUSTED, format!("{file} {text}"))
            }
        }
    }
}

/// Reads a regular file of at most [`FILE_BYTES_MAX`] bytes. The parser refuses a longer one.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, SourceError> {
    open(path).map(|(bytes, _)| bytes).map_err(|error| SourceError::unreadable(path, error))
}

/// Reads a file that decides about logins: only root and this user may be able to change it.
pub(crate) fn read_trusted(path: &Path) -> Result<Vec<u8>, SourceError> {
    let (bytes, metadata) = open(path).map_err(|error| SourceError::unreadable(path, error))?;
    let owner = metadata.uid();
    let untrusted = |text: String| SourceError {
        file: path.to_owned(),
        kind: SourceErrorKind::Untrusted(text),
    };
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(untrusted(format!("belongs to uid {owner}")));
    }
    if metadata.mode() & 0o022 != 0 {
        let mode = metadata.mode() & 0o7777;
        return Err(untrusted(format!("can be written by other users: mode {mode:04o}")));
    }
    Ok(bytes)
}

fn open(path: &Path) -> io::Result<(Vec<u8>, fs::Metadata)> {
    // The flag avoids a wait for a pipe of that name.
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, how, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes, metadata))
}

/// Lists the files of a directory with accepted names, sorted by their bytes. A missing directory is empty.
pub(crate) fn list(
    directory: &Path,
    accepts: impl Fn(&str) -> bool,
) -> Result<Vec<PathBuf>, SourceError> {
    let failed = |error| SourceError::unreadable(directory, error);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut files = Vec::new();
    for entry in entries.take(NAMES_MAX) {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_str().is_some_and(&accepts) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}
