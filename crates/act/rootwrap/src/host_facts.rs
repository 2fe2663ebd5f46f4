//! What a verdict depends on besides policy and command: the facts of a host, behind a trait so that
//! benchmarks judge by a fixed host. [`LocalHost`] asks the kernel; nothing here
//! decides.

use rustix::fs::{Access, Mode, OFlags, access, getxattr, open};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Of a command line, the first so many bytes are read: a path has 4,096 at the most.
const COMMAND_LINE_BYTES_MAX: u64 = 8192;

/// What there is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// Neither.
    Other,
}

/// Who may change what is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    pub kind: FileKind,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits, with the sticky bit.
    pub mode: u32,
    /// Whether the bits of its group are those of an access control list, which may name anybody.
    pub has_acl: bool,
}

/// What a judge may ask about a host.
pub trait HostFacts {
    /// Whether access(2) says that the process may execute what is at a path, links followed.
    fn may_execute(&self, path: &Path) -> bool;
    /// What is at a path, links followed; `None` if nothing is, or it cannot be seen.
    fn status(&self, path: &Path) -> Option<FileStatus>;
    /// Where a symbolic link leads; `None` of all else.
    fn link(&self, path: &Path) -> Option<PathBuf>;
    /// Reads the first bytes of the file at a path, links followed. The rest of the buffer, and all of it where the
    /// file cannot be read, stays as it is.
    fn first_bytes(&self, path: &Path, buffer: &mut [u8]);
    /// The working folder, if it still exists.
    fn working_dir(&self) -> Option<PathBuf>;
    /// What /proc/PID/exe leads to, as the kernel words it.
    fn executable_of(&self, pid: i64) -> Option<OsString>;
    /// The first word of a process's command line; empty where it has none.
    fn first_argument_of(&self, pid: i64) -> Option<OsString>;
    /// When a process began, in the kernel's ticks: with the pid, what no other process has.
    fn start_of(&self, pid: i64) -> Option<u64>;
    fn environment(&self) -> &[(OsString, OsString)];
    /// The user as which the process runs.
    fn user(&self) -> u32;

    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<&OsStr> {
        let (_, value) = self.environment().iter().find(|(found, _)| found == name)?;
        Some(value)
    }
}

/// The host this runs on.
#[derive(Debug)]
pub struct LocalHost {
    environment: Vec<(OsString, OsString)>,
}

impl LocalHost {
    /// With the environment of this process.
    #[must_use]
    pub fn new() -> Self {
        Self::with_environment(std::env::vars_os().collect())
    }

    /// With another environment.
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

/// As [`FileStatus::has_acl`], of a file with that mode. Where its group may not write, nobody may by a list.
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
        // Nothing is waited for that was a file a moment ago.
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

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    /// The pid of its parent.
    pub(crate) parent: i64,
    /// Whether it has ended, and was only not waited for.
    pub(crate) has_ended: bool,
    /// When it began, in the kernel's ticks.
    pub(crate) started: u64,
}

/// `None` of one that there is not.
pub(crate) fn process_stat(pid: i64) -> Option<ProcessStat> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in brackets, which may hold anything.
    let behind = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[behind..]).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    // From here on `nth` passes over what lies between: the fields are the 3rd, 4th, 20th and 22nd.
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let threads: u32 = fields.nth(15)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    // Of one whose first thread alone has ended the others run.
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
        // It stays a zombie.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), options).unwrap();
        assert!(process_stat(pid).unwrap().has_ended);
        child.wait().unwrap();
        assert_eq!(process_stat(pid), None);
    }
}
