// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces a file in one step: a reader finds the old file or the new one, complete in both cases. This crate takes no
//! lock: callers exclude other writers.
//!
//! The new file is made beside the old one, under a fixed hidden name. An interrupted replacement leaves at most this
//! file, which the next one removes. The caller prevents two replacements of one file at a time.

#![forbid(unsafe_code)]

use rustix::fs::{self, AtFlags, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A new file that has not replaced the old one yet. Dropped, it is removed.
pub struct FileReplacement {
    dir: OwnedFd,
    name: OsString,
    temporary: OsString,
    file: File,
    is_placed: bool,
}

/// Returns the path of the new file until it replaces the file at `path`.
#[must_use]
pub fn temporary_path(path: &Path) -> PathBuf {
    path.with_file_name(temporary_name(path.file_name().unwrap_or_default()))
}

fn temporary_name(name: &OsStr) -> OsString {
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(".new");
    temporary
}

impl FileReplacement {
    /// Creates an empty file beside `path`. Only the caller's user may open it until [`set_mode`](Self::set_mode).
    ///
    /// # Errors
    ///
    /// The directory cannot be opened, or the file cannot be created in it.
    pub fn create(path: &Path) -> io::Result<Self> {
        let dir = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        Self::create_in(File::open(dir)?.into(), name)
    }

    /// [`create`](Self::create) in an open directory. The file stays in it if the directory gets another name.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn create_in(dir: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let temporary = temporary_name(name);
        // If it cannot be removed, the next call fails.
        let _ = fs::unlinkat(&dir, &temporary, AtFlags::empty());
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(fs::openat(&dir, &temporary, how, Mode::RUSR | Mode::WUSR)?);
        Ok(Self { dir, name: name.to_owned(), temporary, file, is_placed: false })
    }

    /// Returns the new file.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Sets the mode of the file. The umask has no effect.
    ///
    /// # Errors
    ///
    /// The errors of fchmod(2).
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fs::fchmod(&self.file, Mode::from_raw_mode(mode))?)
    }

    /// Replaces the old file. After a power failure either file may be there, or a part of the new one.
    ///
    /// # Errors
    ///
    /// The old file stays.
    pub fn place(&mut self) -> io::Result<()> {
        fs::renameat(&self.dir, &self.temporary, &self.dir, &self.name)?;
        self.is_placed = true;
        Ok(())
    }

    /// Syncs the directory: afterwards its names are on the disk.
    ///
    /// # Errors
    ///
    /// The errors of fsync(2).
    pub fn sync_dir(&self) -> io::Result<()> {
        Ok(fs::fsync(&self.dir)?)
    }

    /// Replaces the old file. The new file is synced before, and its name afterwards.
    ///
    /// # Errors
    ///
    /// The old file stays. If only the sync of the directory fails, the new file is in place, and a power failure may
    /// restore the old one.
    pub fn place_synced(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.place()?;
        self.sync_dir()
    }
}

impl Drop for FileReplacement {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = fs::unlinkat(&self.dir, &self.temporary, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(dir: &Path) -> Vec<OsString> {
        let entries = std::fs::read_dir(dir).expect("read");
        entries.map(|entry| entry.expect("read").file_name()).collect()
    }

    #[test]
    fn replacement_placed_has_content_and_mode() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        for text in ["one", "two"] {
            let mut new = FileReplacement::create(&path).expect("create");
            new.file().write_all(text.as_bytes()).expect("write");
            new.set_mode(0o640).expect("chmod");
            new.place_synced().expect("replace");
            assert_eq!(std::fs::read_to_string(&path).expect("read"), text);
        }
        let mode = std::fs::metadata(&path).expect("stat").permissions().mode();
        assert_eq!((mode & 0o7777, names(dir.path())), (0o640, vec!["file".into()]));
    }

    #[test]
    fn replacement_dropped_leaves_the_old_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        std::fs::write(&path, "old").expect("write");
        let mut new = FileReplacement::create(&path).expect("create");
        new.file().write_all(b"half").expect("write");
        drop(new);
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "old");
        assert_eq!(names(dir.path()), ["file"]);
    }

    #[test]
    fn replacement_follows_no_link_left_behind() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, victim) = (dir.path().join("file"), dir.path().join("victim"));
        std::fs::write(&victim, "precious").expect("write");
        symlink(&victim, dir.path().join(".file.new")).expect("link");
        let mut new = FileReplacement::create(&path).expect("create");
        new.file().write_all(b"new").expect("write");
        new.place().expect("replace");
        assert_eq!(std::fs::read_to_string(&victim).expect("read"), "precious");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "new");
    }
}
