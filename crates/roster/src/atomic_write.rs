//! Puts new text in the place of a configuration file: wholly or not at all, under the same
//! owner, mode and labels.

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Attributes that seal the old bytes and would not fit the new ones.
const SEALS: [&str; 2] = ["security.ima", "security.evm"];

/// Room for the names of all attributes of a file, and for one value: the kernel's own limits.
const ATTRIBUTE_BYTES_MAX: usize = 65_536;

/// A file that was read, and may be replaced.
pub struct EditableFile {
    path: PathBuf,
    file: File,
    /// What it held.
    pub text: String,
}

/// Why a file cannot be edited in place.
#[derive(Debug, PartialEq, Eq)]
pub enum NotEditable {
    /// A symbolic link, to there.
    Link(PathBuf),
    Missing,
}

/// Opens a regular file for later replacement. What the name stands for decides: a link is not
/// followed, because the renaming would put a file where the link was.
pub fn open(path: &Path) -> Result<Result<EditableFile, NotEditable>> {
    let failed = || format!("cannot read {}", path.display());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut file: File = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file.into(),
        Err(Errno::LOOP) => {
            return Ok(Err(NotEditable::Link(fs::read_link(path).with_context(failed)?)));
        }
        Err(Errno::NOENT) => return Ok(Err(NotEditable::Missing)),
        Err(errno) => return Err(errno).with_context(failed),
    };
    if !file.metadata().with_context(failed)?.is_file() {
        bail!("{} is not a regular file", path.display());
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).with_context(failed)?;
    let text = String::from_utf8(text).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        anyhow!("{} line {line}: not UTF-8; correct it and try again", path.display())
    })?;
    Ok(Ok(EditableFile { path: path.to_owned(), file, text }))
}

impl EditableFile {
    /// Replaces the file by `text`.
    pub fn replace(&self, text: &str) -> Result<()> {
        self.write_to(text, &self.path)
    }

    /// Leaves a copy under another name in the same folder.
    pub fn copy_to(&self, copy: &Path) -> Result<()> {
        self.write_to(&self.text, copy)
    }

    fn write_to(&self, text: &str, place: &Path) -> Result<()> {
        let name = with_suffix(&self.path, ".roster-new");
        let failed = |error: io::Error| error_with_advice("write", &name, &error);
        // A leftover of a run that was killed; one at the most, since the name is always the same.
        drop(TemporaryFile(name.clone()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let new = rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR);
        let mut new = File::from(new.map_err(|errno| failed(errno.into()))?);
        let _temporary = TemporaryFile(name.clone());
        new.write_all(text.as_bytes()).map_err(failed)?;
        self.copy_attributes_to(&new).with_context(|| {
            let (new, old) = (name.display(), self.path.display());
            format!("cannot give {new} the owner, mode and labels of {old}")
        })?;
        new.sync_all().map_err(failed)?;
        fs::rename(&name, place).map_err(|error| error_with_advice("replace", place, &error))?;
        let folder = match place.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| error_with_advice("sync", folder, &error))
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
            // Often the folder has given the new file the right label already, and setting one
            // takes a privilege.
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

/// The error with what to do about it.
fn error_with_advice(action: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        // What root gets for a file that nobody may change.
        ErrorKind::PermissionDenied if Errno::from_io_error(error) == Some(Errno::PERM) => {
            "; run this as root; if you are, the file or its folder is made immutable: lsattr(1), \
             chattr(1)"
        }
        ErrorKind::PermissionDenied => "; run this as root, or as the owner of its folder",
        ErrorKind::ResourceBusy => {
            "; it is a mount point, as in a container: edit it where it comes from"
        }
        _ => "",
    };
    anyhow!("cannot {action} {}: {error}{advice}", path.display())
}

/// `nsswitch.conf` and `.x` as `nsswitch.conf.x`.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A name that is gone when this is, unless it was renamed before.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
