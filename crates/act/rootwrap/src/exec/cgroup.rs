// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cgroup for each command with a timeout. It contains all processes of the command, in any process group and
//! session. cgroup.kill (Linux 5.14) ends them at once, and no process can escape. `supervise` decides when a command
//! is killed.
//!
//! The cgroups are in a directory of this process below its own cgroup. The process locks the directory as long as it
//! lives. An unlocked one belonged to a killed process, and the next process ends and removes it. A cgroup ends with
//! its command. Processes that the command leaves behind move to the cgroup of this process.

use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, flock, mkdirat, openat, statat,
    unlinkat,
};
use rustix::io::{Errno, read, write};
use rustix::process::Pid;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Prefix of such directories, before a number.
const PREFIX: &str = "roster-exec-";
/// Limit of attempted names.
const NAMES_MAX: usize = 16;
/// Limit of the wait for killed processes, and the interval of its checks.
const KILL_WAIT: Duration = Duration::from_secs(1);
const KILL_PAUSE: Duration = Duration::from_millis(1);
/// Limit of rounds in which processes are moved that others started meanwhile.
const TAKEOVERS_MAX: usize = 16;
/// Limit of nested cgroups that a command created.
const DEPTH_MAX: usize = 16;
/// Size of one read of a list.
const PIECE_BYTES: usize = 4096;

/// The directory of this process for cgroups.
#[derive(Clone, Debug)]
pub(super) struct Cgroups(Arc<CgroupDir>);

#[derive(Debug)]
struct CgroupDir {
    /// The cgroup of this process.
    parent: OwnedFd,
    name: String,
    /// The descriptor with the lock.
    dir_fd: OwnedFd,
    /// The path for messages.
    path: PathBuf,
    next: AtomicU64,
    /// Cgroups with processes that have not ended yet.
    unremoved: Mutex<Vec<String>>,
}

impl Cgroups {
    /// An error is the reason for which there are no cgroups: missing rights, or no cgroup v2.
    pub(super) fn new() -> io::Result<Self> {
        let read = |path| fs::read_to_string(path);
        let path = locate(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?);
        let path = path.ok_or_else(|| io::Error::other("no cgroup v2 is mounted"))?;
        let at = |error: Errno| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let parent = open_dir(CWD, &path).map_err(at)?;
        remove_abandoned(&parent);
        for number in 0..NAMES_MAX {
            let name = format!("{PREFIX}{}-{number}", std::process::id());
            match mkdirat(&parent, &name, Mode::RWXU) {
                Err(Errno::EXIST) => continue,
                made => made.map_err(at)?,
            }
            let own = open_dir(&parent, &name).map_err(at)?;
            let parent = parent.try_clone()?;
            let path = path.join(&name);
            let (next, left) = Default::default();
            let folder = CgroupDir { parent, name, dir_fd: own, path, next, unremoved: left };
            flock(&folder.dir_fd, FlockOperation::NonBlockingLockExclusive)?;
            // Before the lock another process may have removed the directory as abandoned.
            if statat(&folder.parent, &folder.name, AtFlags::empty()).is_ok() {
                folder.check_usable()?;
                return Ok(Self(Arc::new(folder)));
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0.path
    }

    /// Creates a cgroup with a process and its later children.
    pub(super) fn create_with(&self, process: Pid) -> io::Result<Cgroup> {
        let name = self.0.next.fetch_add(1, Ordering::Relaxed).to_string();
        mkdirat(&self.0.dir_fd, &name, Mode::RWXU)?;
        let cgroup = Cgroup { dir: Arc::clone(&self.0), name, was_killed: false };
        let pid = process.as_raw_nonzero().to_string();
        write_control(&self.0.dir_fd, &format!("{}/cgroup.procs", cgroup.name), &pid)?;
        Ok(cgroup)
    }

    /// Removes the directory before the end of the process.
    pub(super) fn remove(&self) {
        remove(&self.0.parent, &self.0.name, DEPTH_MAX);
    }
}

impl CgroupDir {
    /// Checks that cgroups in the directory can contain processes, and kill them.
    fn check_usable(&self) -> io::Result<()> {
        let lacks = |what| io::Error::new(io::ErrorKind::Unsupported, what);
        if read_control(&self.dir_fd, "cgroup.type")?.trim() != "domain" {
            return Err(lacks("the cgroup of this process cannot contain other cgroups"));
        }
        statat(&self.dir_fd, "cgroup.kill", AtFlags::empty())
            .map_err(|_| lacks("the kernel has no cgroup.kill (Linux 5.14)"))?;
        Ok(())
    }

    fn remove(&self, name: String) {
        let mut left = self.unremoved.lock();
        left.push(name);
        left.retain(|name| !remove(&self.dir_fd, name, DEPTH_MAX));
    }

    /// Moves processes that a command left behind to the cgroup of this process. The kernel takes only numbers. A
    /// number may meanwhile belong to another process, which is then moved as well.
    fn adopt_processes(&self, name: &str) {
        let procs = format!("{name}/cgroup.procs");
        for _ in 0..TAKEOVERS_MAX {
            let Ok(pids) = read_control(&self.dir_fd, &procs) else { return };
            if pids.is_empty() {
                return;
            }
            // 0 stands for a process that is not visible. A write of 0 would move this process.
            for pid in pids.lines().filter(|pid| *pid != "0") {
                let _ = write_control(&self.parent, "cgroup.procs", pid);
            }
        }
    }
}

impl Drop for CgroupDir {
    fn drop(&mut self) {
        remove(&self.parent, &self.name, DEPTH_MAX);
    }
}

/// The cgroup of a command. It is removed when this is dropped.
#[derive(Debug)]
pub struct Cgroup {
    dir: Arc<CgroupDir>,
    name: String,
    was_killed: bool,
}

impl Cgroup {
    /// Kills all processes of the cgroup, and waits for their end for a limited time.
    pub fn kill(&mut self) -> io::Result<()> {
        self.was_killed = true;
        kill(&self.dir.dir_fd, &self.name)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if unlinkat(&self.dir.dir_fd, &self.name, AtFlags::REMOVEDIR).is_ok() {
            return;
        }
        if !self.was_killed {
            self.dir.adopt_processes(&self.name);
        }
        self.dir.remove(std::mem::take(&mut self.name));
    }
}

/// Returns the path of the cgroup v2 of a process, from /proc/self/cgroup and /proc/self/mountinfo. It may be mounted
/// beside cgroups v1.
fn locate(cgroup: &str, mountinfo: &str) -> Option<PathBuf> {
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    mountinfo.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3).map(unescaped);
        let (root, point) = (fields.next()?, fields.next()?);
        // A cgroup outside the mount begins with "/..".
        let below = Path::new(own).strip_prefix(root).ok()?;
        let is_there = !below.components().any(|part| part.as_os_str() == "..");
        (system.split(' ').next() == Some("cgroup2") && is_there).then(|| {
            let point = Path::new(&point);
            if below.as_os_str().is_empty() { point.to_owned() } else { point.join(below) }
        })
    })
}

/// Decodes blanks and backslashes of mountinfo.
fn unescaped(field: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(field.to_owned(), |field, (escape, sign)| field.replace(escape, sign))
}

/// Ends and removes cgroups of killed daemons.
fn remove_abandoned(parent: &OwnedFd) {
    for name in child_dirs(parent).into_iter().filter(|name| name.starts_with(PREFIX)) {
        let Ok(folder) = open_dir(parent, &name) else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = kill(parent, &name);
            remove(parent, &name, DEPTH_MAX);
        }
    }
}

/// Kills all processes of a cgroup and of those below it.
fn kill(folder: &OwnedFd, name: &str) -> io::Result<()> {
    write_control(folder, &format!("{name}/cgroup.kill"), "1")?;
    let until = Instant::now() + KILL_WAIT;
    let events = format!("{name}/cgroup.events");
    while read_control(folder, &events)?.lines().any(|line| line == "populated 1") {
        if Instant::now() >= until {
            break;
        }
        sleep(KILL_PAUSE);
    }
    Ok(())
}

/// Removes a cgroup and those below it. False: a process is in one of them.
fn remove(folder: &OwnedFd, name: &str, depth: usize) -> bool {
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return true,
        Err(_) if depth == 0 => return false,
        Err(_) => {}
    }
    let Ok(own) = open_dir(folder, name) else { return false };
    let below = child_dirs(&own);
    !below.is_empty()
        && below.iter().all(|name| remove(&own, name, depth - 1))
        && unlinkat(folder, name, AtFlags::REMOVEDIR).is_ok()
}

fn child_dirs(folder: &OwnedFd) -> Vec<String> {
    let entries = Dir::read_from(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type() == FileType::Directory);
    let names = folders.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    names.filter(|name| name != "." && name != "..").collect()
}

fn open_dir(folder: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty())
}

fn open_file(folder: &OwnedFd, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    openat(folder, name, flags | OFlags::CLOEXEC, Mode::empty())
}

fn write_control(folder: &OwnedFd, name: &str, what: &str) -> io::Result<()> {
    write(open_file(folder, name, OFlags::WRONLY)?, what.as_bytes())?;
    Ok(())
}

fn read_control(folder: &OwnedFd, name: &str) -> io::Result<String> {
    let file = open_file(folder, name, OFlags::RDONLY)?;
    let mut text = Vec::new();
    let mut piece = [0; PIECE_BYTES];
    loop {
        match read(&file, &mut piece)? {
            0 => return String::from_utf8(text).map_err(io::Error::other),
            count => text.extend_from_slice(&piece[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_found_wherever_version_2_is_mounted() {
        let only = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let hybrid = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            33 31 0:30 / /sys/fs/cgroup/pids rw shared:9 master:1 - cgroup cgroup rw,pids\n\
            38 31 0:38 / /sys/fs/cgroup/v\\0402 rw - cgroup2 none rw";
        let nested = "30 23 0:26 /a/b /mnt rw - cgroup2 none rw";
        let service = "1:name=systemd:/x\n0::/system.slice/roster-exec.service\n";
        for (cgroup, mounts, found) in [
            (service, only, Some("/sys/fs/cgroup/system.slice/roster-exec.service")),
            ("8:pids:/\n0::/\n", hybrid, Some("/sys/fs/cgroup/v 2")),
            ("0::/a/b/c", nested, Some("/mnt/c")),
            ("0::/a/bc", nested, None),
            ("0::/../x", only, None),
            ("8:pids:/", hybrid, None),
            ("0::/", "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw", None),
            ("0::/", "", None),
        ] {
            assert_eq!(locate(cgroup, mounts), found.map(PathBuf::from), "{cgroup} {mounts}");
        }
    }
}
