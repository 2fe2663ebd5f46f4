// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces the text of a configuration file atomically, with the same owner, mode and labels. `nsswitch_file` makes
//! the text.

use anyhow::{Context, Result};
use roster_messages::CodedError;
use roster_messages::table::tools;
use rustix::fs::{Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Attributes with signatures of the old content. They are not copied.
const SEALS: [&str; 2] = ["security.ima", "security.evm"];

/// Limit of the kernel for the names of all attributes of a file, and for one value.
const ATTRIBUTE_BYTES_MAX: usize = 65_536;

/// An open file that can be replaced.
pub struct EditableFile {
    path: PathBuf,
    file: File,
    /// The file's text.
    pub text: String,
}

/// The reason that a file cannot be edited in place.
#[derive(Debug, PartialEq, Eq)]
pub enum NotEditable {
    /// The file is a symbolic link to this path.
    Link(PathBuf),
    Missing,
}

/// Opens a regular file for a later replacement. Follows no link, because the replacement would replace the link.
pub fn open(path: &Path) -> Result<Result<EditableFile, NotEditable>, CodedError> {
    let name = path.display();
    let failed = |error: io::Error| {
        let text = format!("{name} cannot be read");
        CodedError::new(&tools::FILE_UNREADABLE, text).caused_by(error)
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut file: File = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file.into(),
        Err(Errno::LOOP) => {
            return Ok(Err(NotEditable::Link(fs::read_link(path).map_err(failed)?)));
        }
        Err(Errno::NOENT) => return Ok(Err(NotEditable::Missing)),
        Err(errno) => return Err(failed(errno.into())),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        let text = format!("{name} is not a regular file");
        return Err(CodedError::new(&tools::FILE_NOT_REGULAR, text));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed)?;
    let text = String::from_utf8(text).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        CodedError::new(&tools::FILE_NOT_UTF8, format!("{name}:{line}: not UTF-8"))
    })?;
    Ok(Ok(EditableFile { path: path.to_owned(), file, text }))
}

impl EditableFile {
    /// Replaces the file by `text`.
    pub fn replace(&self, text: &str) -> Result<(), CodedError> {
        self.write_to(text, &self.path)
    }

    /// Writes a copy under another name in the same directory.
    pub fn copy_to(&self, copy: &Path) -> Result<(), CodedError> {
        self.write_to(&self.text, copy)
    }

    fn write_to(&self, text: &str, place: &Path) -> Result<(), CodedError> {
        let name = with_suffix(&self.path, ".roster-new");
        let failed = |error: io::Error| write_error("written", &name, error);
        // Removes the file of a killed run. There is at most one, because the name is always the same.
        drop(TemporaryFile(name.clone()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let new = rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR);
        let mut new = File::from(new.map_err(|errno| failed(errno.into()))?);
        let _temporary = TemporaryFile(name.clone());
        new.write_all(text.as_bytes()).map_err(failed)?;
        self.copy_attributes_to(&new).map_err(|error| {
            let text = format!("{}: owner, mode and labels cannot be copied", self.path.display());
            CodedError::new(&tools::ATTRIBUTES_NOT_COPIED, text).caused_by(error)
        })?;
        new.sync_all().map_err(failed)?;
        fs::rename(&name, place).map_err(|error| write_error("replaced", place, error))?;
        let folder = match place.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| write_error("synced", folder, error))
    }

    fn copy_attributes_to(&self, new: &File) -> Result<()> {
        let old = self.file.metadata()?;
        let made = new.metadata()?;
        if (old.uid(), old.gid()) != (made.uid(), made.gid()) {
            rustix::fs::fchown(
                new,
                Some(Uid::from_raw(old.uid())),
                Some(Gid::from_raw(old.gid())),
            )?;
        }
        new.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        for name in attributes(&self.file)? {
            let value = attribute(&self.file, &name)?;
            // The directory often gives the new file the right label already. Setting a label needs a privilege.
            if !SEALS.contains(&&*name) && attribute(new, &name).ok() != Some(value.clone()) {
                rustix::fs::fsetxattr(new, &*name, &value, XattrFlags::empty())
                    .with_context(|| format!("attribute {name}"))?;
            }
        }
        Ok(())
    }
}

fn attributes(file: &File) -> Result<Vec<String>> {
    let mut names = vec![0; ATTRIBUTE_BYTES_MAX];
    let len = match rustix::fs::flistxattr(file, &mut names[..]) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno.into()),
    };
    let names = String::from_utf8_lossy(&names[..len]).into_owned();
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn attribute(file: &File, name: &str) -> Result<Vec<u8>> {
    let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
    let len = rustix::fs::fgetxattr(file, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// Returns the error of a file that cannot be written, replaced or synced.
fn write_error(action: &str, path: &Path, error: io::Error) -> CodedError {
    let message = match error.kind() {
        // EPERM, which root also gets for an immutable file.
        ErrorKind::PermissionDenied if Errno::from_io_error(&error) == Some(Errno::PERM) => {
            &tools::FILE_IMMUTABLE
        }
        ErrorKind::PermissionDenied => &tools::FILE_DENIED,
        ErrorKind::ResourceBusy => &tools::FILE_IS_MOUNT_POINT,
        _ => &tools::FILE_NOT_WRITTEN,
    };
    let text = format!("{} cannot be {action}", path.display());
    CodedError::new(message, text).caused_by(error)
}

/// Appends a suffix: `nsswitch.conf` and `.x` become `nsswitch.conf.x`.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A file that is removed on drop, unless it was renamed before.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_error_has_code_of_condition() {
        for (errno, message) in [
            (Errno::PERM, &tools::FILE_IMMUTABLE),
            (Errno::ACCESS, &tools::FILE_DENIED),
            (Errno::BUSY, &tools::FILE_IS_MOUNT_POINT),
            (Errno::NOSPC, &tools::FILE_NOT_WRITTEN),
        ] {
            let error = write_error("replaced", Path::new("/etc/x"), errno.into());
            assert_eq!((error.message, &*error.text), (message, "/etc/x cannot be replaced"));
        }
    }
}
