// SPDX-License-Identifier: MIT OR Apache-2.0
//! An executable that was opened and checked before its execution. `path_trust` has the rules for owners and modes.
//!
//! The process holds the directory and executes the checked name in it. A later replacement of a directory above then
//! has no effect. Execution by the descriptor of the file would change the name of the process.

use crate::host_facts::{FileKind, FileStatus, LocalHost, has_acl};
use crate::path_trust::distrust_of;
use crate::python_strings::{basename, dirname};
use crate::realpath::realpath;
use roster_messages::table::commands;
use roster_messages::{CodedError, Message};
use rustix::fs::{CWD, FileType, Mode, OFlags, RawMode, fstat, openat};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The kernel loads files with these first bytes itself. It passes the path of other files to an interpreter, which has
/// no descriptor of the directory.
const ELF_MAGIC: &[u8] = b"\x7fELF";

#[derive(Debug)]
pub(super) struct CheckedExecutable {
    pub(super) dir: OwnedFd,
    pub(super) name: OsString,
}

/// Returns the path to execute, in a process with the directory's descriptor.
pub(super) fn exec_path(folder: BorrowedFd<'_>, name: &OsStr) -> OsString {
    let mut path = OsString::from(format!("/proc/self/fd/{}/", folder.as_raw_fd()));
    path.push(name);
    path
}

/// Opens and checks an executable. `None`: it is to be executed by its path.
pub(super) fn open(first: &OsStr) -> io::Result<Option<CheckedExecutable>> {
    let real = realpath(&LocalHost::with_environment(Vec::new()), first);
    if let Some(why) = real.error {
        return Err(refusal(&commands::PATH_UNRESOLVED, format!("{} {why}", first.display())));
    }
    let real = OsStr::from_bytes(&real.path);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, dirname(real.as_bytes()), flags, Mode::empty())?;
    let name = basename(real).to_owned();
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(&folder, &*name, flags, Mode::empty()) {
        // Without the right to read, the kind of the file is unknown.
        Err(rustix::io::Errno::ACCESS) => return Ok(None),
        file => file?,
    };
    for (opened, kind) in [(folder.as_fd(), FileKind::Directory), (file.as_fd(), FileKind::File)] {
        if let Some(why) = distrust(opened, kind)? {
            let text = format!("{} is not trusted: it {why}", first.display());
            return Err(refusal(&commands::EXECUTABLE_UNTRUSTED, text));
        }
    }
    let mut start = [0; ELF_MAGIC.len()];
    let read = std::fs::File::from(file).read(&mut start)?;
    Ok((start[..read] == *ELF_MAGIC).then_some(CheckedExecutable { dir: folder, name }))
}

fn refusal(message: &'static Message, text: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, CodedError::new(message, text))
}

fn distrust(opened: impl AsFd, kind: FileKind) -> io::Result<Option<String>> {
    let opened = opened.as_fd();
    let stat = fstat(opened)?;
    let found = match FileType::from_raw_mode(stat.st_mode as RawMode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        _ => FileKind::Other,
    };
    if found != kind {
        return Ok(Some("was replaced".into()));
    }
    let (uid, gid, mode) = (stat.st_uid, stat.st_gid, stat.st_mode & 0o7777);
    let has_acl = has_acl(Path::new(&format!("/proc/self/fd/{}", opened.as_raw_fd())), mode);
    let user = rustix::process::geteuid().as_raw();
    Ok(distrust_of(user, &FileStatus { kind, uid, gid, mode, has_acl }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::start_error;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn executable_not_to_be_opened_has_code() {
        let folder = tempfile::tempdir().unwrap();
        symlink("loop", folder.path().join("loop")).unwrap();
        for (name, mode) in [("good", 0o755), ("open", 0o777)] {
            let file = folder.path().join(name);
            fs::write(&file, "\x7fELF").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        let opened = |name: &str| {
            let opened = open(folder.path().join(name).as_os_str());
            opened.map(|file| file.is_some()).map_err(|error| start_error(error).message)
        };
        assert_eq!(opened("good"), Ok(true));
        assert_eq!(opened("loop"), Err(&commands::PATH_UNRESOLVED));
        assert_eq!(opened("open"), Err(&commands::EXECUTABLE_UNTRUSTED));
    }
}
