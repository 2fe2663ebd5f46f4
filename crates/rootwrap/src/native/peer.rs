//! Who is at a connection's other end, by the kernel's word.

use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Nothing is waited for.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The process that made the connection.
pub(super) struct Peer {
    pub(super) uid: u32,
    pub(super) pid: i32,
    /// What it executed when it connected, if that could be told.
    pub(super) executable: Option<PathBuf>,
    process: OwnedFd,
    /// The process's folder in /proc, if it can be seen.
    folder: PathBuf,
}

impl Peer {
    /// An error if it is gone, or in a place where this process cannot see it.
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
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
        let mut peer = Self { uid: told.uid(), pid: told.pid(), executable, process, folder };
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
        let owner = fs::metadata(&self.folder).map(|folder| folder.uid());
        owner.is_ok_and(|uid| uid == self.uid) && self.is_alive()
    }

    /// Whether it still is that process.
    pub(super) fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut fds, Some(&NOW)).is_ok_and(|ready| ready == 0)
    }
}
