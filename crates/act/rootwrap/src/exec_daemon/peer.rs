// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process at the other end of a connection, as reported by the kernel. It knows no policy. `rule_match` has the
//! policy.

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

/// The timeout of a poll without a wait.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Returns true if a user may enter a directory. The thread temporarily has the file access rights of the user. Its
/// real, effective and saved uids stay, so that the user can neither signal nor trace it.
fn may_enter(uid: u32, gids: &[u32], directory: &OwnedFd) -> bool {
    let (own_uid, own_gid) = (Uid::effective(), Gid::effective());
    let own_groups = rustix::process::getgroups();
    let groups: Vec<_> = gids.iter().map(|&gid| rustix::process::Gid::from_raw(gid)).collect();
    let (Ok(own_groups), Some(&gid)) = (own_groups, gids.first()) else { return false };
    // Only root may set groups.
    if set_thread_groups(&groups).is_err() {
        return false;
    }
    setfsgid(Gid::from_raw(gid));
    setfsuid(Uid::from_raw(uid));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The kernel reports no error if it refuses the change, for example without CAP_SETUID. A call with an invalid id
    // returns the present id.
    let is_user = setfsuid(Uid::from_raw(u32::MAX)).as_raw() == uid
        && setfsgid(Gid::from_raw(u32::MAX)).as_raw() == gid;
    let entered = is_user && openat(directory, ".", flags, Mode::empty()).is_ok();
    setfsuid(own_uid);
    setfsgid(own_gid);
    set_thread_groups(&own_groups).expect("root takes back the groups that it had");
    entered
}

/// The process that connected.
pub(super) struct PeerProcess {
    pub(super) uid: u32,
    pub(super) pid: i32,
    /// The peer's executable at the time of the connection, if it was readable.
    pub(super) executable: Option<PathBuf>,
    pidfd: OwnedFd,
    /// The peer's directory in /proc.
    proc_dir: PathBuf,
}

impl PeerProcess {
    /// An error: the process has ended, or is in a PID namespace that this process cannot see.
    pub(super) fn from_stream(stream: &UnixStream) -> io::Result<Self> {
        let told = getsockopt(stream, sockopt::PeerCredentials)?;
        let process = match getsockopt(stream, sockopt::PeerPidfd) {
            // Before Linux 6.5 the kernel reports only the number of the process, which has just connected.
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
        // After the end of the process the link may be that of another process.
        if !peer.is_alive() {
            peer.executable = None;
        }
        Ok(peer)
    }

    /// Returns true if the process still has the uid of the connection. A process that has ended counts as false.
    pub(super) fn is_same_user(&self) -> bool {
        // The owner of the directory is the effective uid, and stat(2) is much faster than reading `status`.
        let owner = fs::metadata(&self.proc_dir).map(|folder| folder.uid());
        owner.is_ok_and(|uid| uid == self.uid) && self.is_alive()
    }

    /// Returns true if the process is in the directory, or its user may enter it with these groups. The first group is
    /// the primary one.
    pub(super) fn may_enter(&self, directory: &OwnedFd, gids: &[u32]) -> bool {
        let id = |status: fs::Metadata| (status.dev(), status.ino());
        let current = fs::metadata(self.proc_dir.join("cwd")).map(id);
        let wanted = fs::metadata(format!("/proc/self/fd/{}", directory.as_raw_fd())).map(id);
        let is_there = current.is_ok() && current.ok() == wanted.ok();
        is_there && self.is_alive() || may_enter(self.uid, gids, directory)
    }

    /// Returns true if the process has not ended.
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
        // Capabilities belong to a thread.
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
