//! A cgroup for each command that has a time: whatever comes of the command is in it, whoever its parent is
//! and whatever process group and session it is in, and all of it dies by one word to the kernel
//! (cgroup.kill, Linux 5.14), which no process can outrun.
//!
//! They lie in a folder of this process's, below the cgroup that it is in itself, which is locked for as long as it
//! lives: what lies there unlocked was left by one that was killed, and is ended and removed by the next.
//! No cgroup is there for longer than its command: what that leaves behind in time is taken over by the
//! cgroup of this process.

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

/// What folders of such processes are called, before a number.
const PREFIX: &str = "roster-exec-";
/// Names that are tried for one.
const NAMES_MAX: usize = 16;
/// How long it is waited for those who were killed, and how often it is looked.
const KILL_WAIT: Duration = Duration::from_secs(1);
const KILL_PAUSE: Duration = Duration::from_millis(1);
/// How often those are taken over who started others meanwhile.
const TAKEOVERS_MAX: usize = 16;
/// Cgroups in one another that a command made, and this process removes.
const DEPTH_MAX: usize = 16;
/// What is read of a list at once.
const PIECE_BYTES: usize = 4096;

/// The folder of this process, in which it makes cgroups.
#[derive(Clone, Debug)]
pub(super) struct Cgroups(Arc<CgroupDir>);

#[derive(Debug)]
struct CgroupDir {
    /// The cgroup that this process is in.
    parent: OwnedFd,
    name: String,
    /// Holds the lock.
    dir_fd: OwnedFd,
    /// Where it is, for people.
    path: PathBuf,
    next: AtomicU64,
    /// Those that could not be removed yet: somebody in them takes long to die.
    unremoved: Mutex<Vec<String>>,
}

impl Cgroups {
    /// An error is why there can be none: another user's process, no cgroup v2, nobody may write there.
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
            // Before it was locked another process may have taken it for one that was left.
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

    /// One with a process in it, and whoever that starts.
    pub(super) fn create_with(&self, process: Pid) -> io::Result<Cgroup> {
        let name = self.0.next.fetch_add(1, Ordering::Relaxed).to_string();
        mkdirat(&self.0.dir_fd, &name, Mode::RWXU)?;
        let cgroup = Cgroup { dir: Arc::clone(&self.0), name, was_killed: false };
        let pid = process.as_raw_nonzero().to_string();
        write_control(&self.0.dir_fd, &format!("{}/cgroup.procs", cgroup.name), &pid)?;
        Ok(cgroup)
    }

    /// For a process that is about to end.
    pub(super) fn remove(&self) {
        remove(&self.0.parent, &self.0.name, DEPTH_MAX);
    }
}

impl CgroupDir {
    /// That processes can be in its cgroups, and be killed there.
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

    /// Takes over whom a command left behind when it ended in time. One whose number came to be another's in
    /// the moment between is the price of a kernel that takes numbers alone.
    fn adopt_processes(&self, name: &str) {
        let procs = format!("{name}/cgroup.procs");
        for _ in 0..TAKEOVERS_MAX {
            let Ok(pids) = read_control(&self.dir_fd, &procs) else { return };
            if pids.is_empty() {
                return;
            }
            // 0 is a process that this one cannot see; written it would mean this one.
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

/// A command's cgroup, which goes with this.
#[derive(Debug)]
pub struct Cgroup {
    dir: Arc<CgroupDir>,
    name: String,
    was_killed: bool,
}

impl Cgroup {
    /// Kills all who are in it, and waits for their death, for a time.
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

/// Where the cgroup of a process is, by its /proc/self/cgroup and /proc/self/mountinfo: that of v2, which may
/// be mounted beside those of v1.
fn locate(cgroup: &str, mountinfo: &str) -> Option<PathBuf> {
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    mountinfo.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3).map(unescaped);
        let (root, point) = (fields.next()?, fields.next()?);
        // One that is not below what is mounted there begins with "/..".
        let below = Path::new(own).strip_prefix(root).ok()?;
        let is_there = !below.components().any(|part| part.as_os_str() == "..");
        (system.split(' ').next() == Some("cgroup2") && is_there).then(|| {
            let point = Path::new(&point);
            if below.as_os_str().is_empty() { point.to_owned() } else { point.join(below) }
        })
    })
}

/// What mountinfo writes of blanks and backslashes.
fn unescaped(field: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(field.to_owned(), |field, (escape, sign)| field.replace(escape, sign))
}

/// Ends and removes what lies in a cgroup of processes like this that have gone.
fn remove_abandoned(parent: &OwnedFd) {
    for name in child_dirs(parent).into_iter().filter(|name| name.starts_with(PREFIX)) {
        let Ok(folder) = open_dir(parent, &name) else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = kill(parent, &name);
            remove(parent, &name, DEPTH_MAX);
        }
    }
}

/// All who are in a cgroup and in those below it.
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

/// Removes a cgroup and those below it; false if somebody is in one of them.
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
