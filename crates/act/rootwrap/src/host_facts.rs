// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts of a host on which decisions depend. They are behind a trait, so that benchmarks have a fixed host.
//! [`LocalHost`] reads them from the kernel. This module decides nothing.

use rustix::fs::{Access, Mode, OFlags, access, getxattr, open};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Limit of the bytes of a command line. A path has at most 4,096.
const COMMAND_LINE_BYTES_MAX: u64 = 8192;

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Another kind.
    Other,
}

/// Owner and rights of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    pub kind: FileKind,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Permission bits, with the sticky bit.
    pub mode: u32,
    /// True if the bits of the group are the mask of an access list, which may name any user.
    pub has_acl: bool,
}

/// Facts of a host.
pub trait HostFacts {
    /// Returns true if access(2) allows the process to execute a file, with links followed.
    fn may_execute(&self, path: &Path) -> bool;
    /// Returns owner and rights, with links followed. `None`: the file does not exist or is not visible.
    fn status(&self, path: &Path) -> Option<FileStatus>;
    /// Returns the target of a symbolic link. `None` for other files.
    fn link(&self, path: &Path) -> Option<PathBuf>;
    /// Reads the first bytes of a file, with links followed. The rest of the buffer stays unchanged. So does the whole
    /// buffer if the file is not readable.
    fn first_bytes(&self, path: &Path, buffer: &mut [u8]);
    /// Returns the working directory, if it still exists.
    fn working_dir(&self) -> Option<PathBuf>;
    /// Returns the target of /proc/PID/exe.
    fn executable_of(&self, pid: i64) -> Option<OsString>;
    /// Returns the first word of a command line, which may be empty.
    fn first_argument_of(&self, pid: i64) -> Option<OsString>;
    /// Returns the start time of a process in ticks of the kernel. With the pid it identifies the process.
    fn start_of(&self, pid: i64) -> Option<u64>;
    fn environment(&self) -> &[(OsString, OsString)];
    /// Returns the effective uid of this process.
    fn user(&self) -> u32;

    /// Returns a variable of the environment.
    fn variable(&self, name: &str) -> Option<&OsStr> {
        let (_, value) = self.environment().iter().find(|(found, _)| found == name)?;
        Some(value)
    }
}

/// The present host.
#[derive(Debug)]
pub struct LocalHost {
    environment: Vec<(OsString, OsString)>,
}

impl LocalHost {
    /// Creates it with the environment of this process.
    #[must_use]
    pub fn new() -> Self {
        Self::with_environment(std::env::vars_os().collect())
    }

    /// Creates it with another environment.
    #[must_use]
    pub fn with_environment(environment: Vec<(OsString, OsString)>) -> Self {
        Self { environment }
    }
}

impl Default for LocalHost {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns [`FileStatus::has_acl`] for a file with this mode. Without write access for the group, the list allows no
/// user to write.
pub(crate) fn has_acl(path: &Path, mode: u32) -> bool {
    use rustix::io::Errno;
    let none = |error| matches!(error, Errno::NODATA | Errno::OPNOTSUPP);
    mode & 0o020 != 0
        && !getxattr(path, "system.posix_acl_access", &mut [0_u8; 0][..]).is_err_and(none)
}

impl HostFacts for LocalHost {
    fn may_execute(&self, path: &Path) -> bool {
        access(path, Access::EXEC_OK).is_ok()
    }

    fn status(&self, path: &Path) -> Option<FileStatus> {
        let found = fs::metadata(path).ok()?;
        let kind = match found.file_type() {
            kind if kind.is_file() => FileKind::File,
            kind if kind.is_dir() => FileKind::Directory,
            _ => FileKind::Other,
        };
        let mode = found.mode() & 0o7777;
        let has_acl = has_acl(path, mode);
        Some(FileStatus { kind, uid: found.uid(), gid: found.gid(), mode, has_acl })
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        fs::read_link(path).ok()
    }

    fn first_bytes(&self, path: &Path, mut buffer: &mut [u8]) {
        // The open does not block if the file was replaced by a device or a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let Ok(file) = open(path, flags, Mode::empty()) else { return };
        let mut file = fs::File::from(file);
        while let Ok(count @ 1..) = file.read(buffer) {
            buffer = &mut buffer[count..];
        }
    }

    fn working_dir(&self) -> Option<PathBuf> {
        std::env::current_dir().ok()
    }

    fn executable_of(&self, pid: i64) -> Option<OsString> {
        fs::read_link(format!("/proc/{pid}/exe")).ok().map(PathBuf::into_os_string)
    }

    fn first_argument_of(&self, pid: i64) -> Option<OsString> {
        let file = fs::File::open(format!("/proc/{pid}/cmdline")).ok()?;
        let mut line = Vec::new();
        file.take(COMMAND_LINE_BYTES_MAX).read_to_end(&mut line).ok()?;
        let end = line.iter().position(|&byte| byte == 0).unwrap_or(line.len());
        line.truncate(end);
        Some(OsString::from_vec(line))
    }

    fn start_of(&self, pid: i64) -> Option<u64> {
        process_stat(pid).map(|stat| stat.started)
    }

    fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    fn user(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }
}

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    /// The pid of its parent.
    pub(crate) parent: i64,
    /// True if the process has ended and was not waited for.
    pub(crate) has_ended: bool,
    /// The start time in ticks of the kernel.
    pub(crate) started: u64,
}

/// Returns the state of a process. `None`: it does not exist.
pub(crate) fn process_stat(pid: i64) -> Option<ProcessStat> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in brackets, which may contain any character.
    let behind = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[behind..]).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    // `nth` skips fields. The values are the 3rd, 4th, 20th and 22nd field.
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let threads: u32 = fields.nth(15)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    // If only the first thread has ended, the process still runs.
    let has_ended = matches!(state, "Z" | "X") && threads <= 1;
    Some(ProcessStat { parent, has_ended, started })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    #[test]
    fn the_kernel_tells_of_this_process() {
        let host = LocalHost::new();
        let pid = i64::from(std::process::id());
        let program = std::env::current_exe().unwrap();
        assert_eq!(host.executable_of(pid), Some(program.clone().into_os_string()));
        assert!(host.first_argument_of(pid).is_some_and(|word| !word.is_empty()));
        assert!(host.start_of(pid).is_some_and(|start| start > 0));
        assert!(host.may_execute(&program));
        assert_eq!(host.status(&program).map(|status| status.kind), Some(FileKind::File));
        assert_eq!(host.executable_of(-1), None);
        assert_eq!(host.start_of(0), None);
    }

    #[test]
    fn stat_zombie_counts_as_ended() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i64::from(child.id());
        let stat = process_stat(pid).unwrap();
        assert_eq!((stat.parent, stat.has_ended), (i64::from(std::process::id()), false));
        child.kill().unwrap();
        // The child stays a zombie.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), options).unwrap();
        assert!(process_stat(pid).unwrap().has_ended);
        child.wait().unwrap();
        assert_eq!(process_stat(pid), None);
    }
}
