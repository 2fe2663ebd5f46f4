//! Who is at a connection's other end, by the kernel's word.

use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::set_thread_groups;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Nothing is waited for.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Whether a user may enter a directory. This thread has the user's rights for a moment, as far as files go: its real,
/// effective and saved uids stay, so that the user can neither signal nor trace it.
fn may_enter(uid: u32, gids: &[u32], directory: &OwnedFd) -> bool {
    let (own_uid, own_gid) = (Uid::effective(), Gid::effective());
    let own_groups = rustix::process::getgroups();
    let groups: Vec<_> = gids.iter().map(|&gid| rustix::process::Gid::from_raw(gid)).collect();
    let (Ok(own_groups), Some(&gid)) = (own_groups, gids.first()) else { return false };
    // Only root may.
    if set_thread_groups(&groups).is_err() {
        return false;
    }
    setfsgid(Gid::from_raw(gid));
    setfsuid(Uid::from_raw(uid));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The kernel reports no error if it refuses the change: without CAP_SETUID, or of a uid that a user namespace
    // lacks. A call with an invalid id returns the id in force.
    let is_user = setfsuid(Uid::from_raw(u32::MAX)).as_raw() == uid
        && setfsgid(Gid::from_raw(u32::MAX)).as_raw() == gid;
    let entered = is_user && openat(directory, ".", flags, Mode::empty()).is_ok();
    setfsuid(own_uid);
    setfsgid(own_gid);
    set_thread_groups(&own_groups).expect("root takes back the groups that it had");
    entered
}

/// The process that made the connection.
pub(super) struct PeerProcess {
    pub(super) uid: u32,
    pub(super) pid: i32,
    /// What it executed when it connected, if that could be told.
    pub(super) executable: Option<PathBuf>,
    pidfd: OwnedFd,
    /// The process's folder in /proc, if it can be seen.
    proc_dir: PathBuf,
}

impl PeerProcess {
    /// An error if it is gone, or in a place where this process cannot see it.
    pub(super) fn from_stream(stream: &UnixStream) -> io::Result<Self> {
        let told = getsockopt(stream, sockopt::PeerCredentials)?;
        let process = match getsockopt(stream, sockopt::PeerPidfd) {
            // Before Linux 6.5 the number is all there is. It has connected just now.
            Err(nix::errno::Errno::ENOPROTOOPT) => {
                let pid = Pid::from_raw(told.pid()).ok_or(io::ErrorKind::NotFound)?;
                pidfd_open(pid, PidfdFlags::empty())?
            }
            process => process?,
        };
        let folder = PathBuf::from(format!("/proc/{}", told.pid()));
        let executable = fs::read_link(folder.join("exe")).ok();
        let mut peer =
            Self { uid: told.uid(), pid: told.pid(), executable, pidfd: process, proc_dir: folder };
        // It was read of this process, unless that has ended before.
        if !peer.is_alive() {
            peer.executable = None;
        }
        Ok(peer)
    }

    /// Whether it still has the uid with which it connected. What was asked of a process that has ended
    /// counts for nothing.
    pub(super) fn is_same_user(&self) -> bool {
        // The folder is the effective user's, and looked at far faster than `status` in it.
        let owner = fs::metadata(&self.proc_dir).map(|folder| folder.uid());
        owner.is_ok_and(|uid| uid == self.uid) && self.is_alive()
    }

    /// Whether it is in this directory, or may enter it as a user of these groups, of which the first is its own.
    pub(super) fn may_enter(&self, directory: &OwnedFd, gids: &[u32]) -> bool {
        let id = |status: fs::Metadata| (status.dev(), status.ino());
        let current = fs::metadata(self.proc_dir.join("cwd")).map(id);
        let wanted = fs::metadata(format!("/proc/self/fd/{}", directory.as_raw_fd())).map(id);
        let is_there = current.is_ok() && current.ok() == wanted.ok();
        is_there && self.is_alive() || may_enter(self.uid, gids, directory)
    }

    /// Whether it still is that process.
    pub(super) fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&NOW)).is_ok_and(|ready| ready == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn peer_without_change_of_rights_enters_nothing() {
        if !Uid::effective().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let closed = OwnedFd::from(fs::File::open(folder.path()).unwrap());
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let open = OwnedFd::from(fs::File::open("/").unwrap());
        // Capabilities are of a thread.
        let entered = std::thread::spawn(move || {
            let enters = |directory| may_enter(65534, &[65534], directory);
            let with = [enters(&closed), enters(&open)];
            let mut sets = capabilities(None).unwrap();
            sets.effective -= CapabilitySet::SETUID;
            set_capabilities(None, sets).unwrap();
            (with, [enters(&closed), enters(&open)])
        });
        assert_eq!(entered.join().unwrap(), ([false, true], [false, false]));
    }
}
