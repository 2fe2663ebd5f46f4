//! An executable that was opened and looked at, to be executed where it was found.
//!
//! What is held is its folder, and what is executed is the name in it that was looked at: whoever moves
//! or swaps a folder above changes nothing any more, and the process is called as the file is, which it
//! would not be if the file's own descriptor were executed.

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

/// What executables begin with that the kernel loads itself. Everything else is handed to another
/// program by its path, and no path leads through a descriptor that the program does not have.
const ELF_MAGIC: &[u8] = b"\x7fELF";

#[derive(Debug)]
pub(super) struct CheckedExecutable {
    pub(super) dir: OwnedFd,
    pub(super) name: OsString,
}

/// What to execute, in a process with the folder's descriptor.
pub(super) fn exec_path(folder: BorrowedFd<'_>, name: &OsStr) -> OsString {
    let mut path = OsString::from(format!("/proc/self/fd/{}/", folder.as_raw_fd()));
    path.push(name);
    path
}

/// Opens what is to be executed; `None` if it is to be executed by its path.
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
        // Who may execute but not read it cannot tell what it is.
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
