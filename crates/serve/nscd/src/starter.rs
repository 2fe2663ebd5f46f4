// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that starts helpers. Helpers run modules of other name services, so they have a dedicated user that
//! cannot open the maps. After the server has dropped its privileges, it cannot start processes of that user. The
//! starter has the helpers' user from its start, and no capabilities. It accepts one kind of request, "one more
//! helper", and exits with the server. `nss_helper` is the helper.
//!
//! Each request carries the helper's socket and one end of a pipe. The server holds the other end. When the server
//! closes it, the starter kills this helper; the server itself is not permitted to.

use roster_messages::Message;
use roster_messages::table::tools;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::set_no_new_privs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Argument that makes this executable a starter.
const STARTER: &str = "nscd-starter";
/// Argument that makes this executable a helper.
const HELPER: &str = "nscd-helper";
/// The running executable, even if its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// Maximum number of helpers. Killed helpers count while the kernel has not ended them. Above the maximum, no helper is
/// started.
const HELPERS_MAX: usize = 20;
/// Interval of the check for ended helpers after a kill.
const REAP_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// The request byte. Its descriptors carry the arguments.
const START_HELPER: [u8; 1] = *b"h";

/// The starter, from the server's side.
pub struct Starter {
    socket: UnixStream,
    _process: Option<Child>,
}

/// A helper, from the server's side. Dropping it ends the process.
pub struct HelperProcess {
    /// Socket for requests and replies.
    pub socket: UnixStream,
    _leash: OwnedFd,
}

impl Starter {
    /// Starts the starter as `user`, which requires root. With `None` it keeps the user of this process.
    ///
    /// # Errors
    ///
    /// The process cannot be started.
    pub fn start(user: Option<(Uid, Gid)>) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(PROGRAM);
        command.arg0("roster").arg(STARTER).env_clear().current_dir("/");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        if let Some((uid, gid)) = user {
            // The standard library also drops all supplementary groups.
            command.uid(uid.as_raw()).gid(gid.as_raw());
        }
        let process = Some(command.spawn()?);
        Ok(Self { socket: ours, _process: process })
    }

    /// Starts a helper, which waits for its services ([`crate::nss_helper::encode_services`]) and then for requests. If
    /// the start fails, the socket is closed.
    ///
    /// # Errors
    ///
    /// The starter has exited or does not read its socket.
    pub fn helper(&self) -> io::Result<HelperProcess> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (held, leash) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut room);
        let descriptors = [theirs.as_fd(), held.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.socket, &[IoSlice::new(&START_HELPER)], &mut ancillary, flags)?;
        Ok(HelperProcess { socket: ours, _leash: leash })
    }

    #[cfg(test)]
    pub(crate) fn without_process() -> Self {
        Self::with_socket().0
    }

    /// Returns a starter without a process, and the other end of its socket.
    #[cfg(test)]
    pub(crate) fn with_socket() -> (Self, UnixStream) {
        let (socket, other) = UnixStream::pair().expect("a pair of sockets");
        (Self { socket, _process: None }, other)
    }
}

impl AsFd for Starter {
    /// Becomes readable when the starter exits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Runs the starter. Requests arrive over standard input, a socket. When it closes, the starter and all helpers end.
///
/// # Errors
///
/// Standard input is not a socket, or the socket fails.
pub fn main() -> io::Result<()> {
    // Helpers share this user, and must not trace the starter.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_no_new_privs(true)?;
    let server = io::stdin().as_fd().try_clone_to_owned()?;
    let mut started = StartedHelpers::default();
    while started.serve_next(server.as_fd())? {}
    Ok(())
}

/// The helpers of a starter.
#[derive(Default)]
struct StartedHelpers {
    running: Vec<(Child, OwnedFd)>,
    killed: Vec<Child>,
}

impl StartedHelpers {
    /// Handles the next event. Returns false if the server has exited.
    fn serve_next(&mut self, server: BorrowedFd<'_>) -> io::Result<bool> {
        self.killed.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let mut watched = vec![PollFd::from_borrowed_fd(server, PollFlags::IN)];
        // poll(2) reports a closed pipe even with an empty event mask.
        let leashes = self.running.iter().map(|(_, leash)| PollFd::new(leash, PollFlags::empty()));
        watched.extend(leashes);
        let pause = (!self.killed.is_empty()).then_some(&REAP_EVERY);
        match poll(&mut watched, pause) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut told = watched.iter().map(|watched| !watched.revents().is_empty());
        let is_asked = told.next() == Some(true);
        let let_go: Vec<bool> = told.collect();
        for place in (0..let_go.len()).rev().filter(|&place| let_go[place]) {
            let (mut child, _) = self.running.swap_remove(place);
            let _ = child.kill();
            self.killed.push(child);
        }
        if !is_asked {
            return Ok(true);
        }
        match receive(server)? {
            Some(descriptors) => {
                if let Ok([socket, leash]) = <[OwnedFd; 2]>::try_from(descriptors) {
                    self.start(socket, leash);
                }
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Starts a helper. If that fails, the socket is closed, which notifies the server.
    fn start(&mut self, socket: OwnedFd, leash: OwnedFd) {
        if self.running.len() + self.killed.len() >= HELPERS_MAX {
            return;
        }
        let mut command = Command::new(PROGRAM);
        command.arg0("roster").arg(HELPER).stdin(socket).stdout(Stdio::null());
        match command.spawn() {
            Ok(child) => self.running.push((child, leash)),
            Err(error) => {
                let Message { fix, code, .. } = tools::NSCD_HELPER_NOT_STARTED;
                eprintln!("roster {STARTER}: helper: cannot start: {error}. {fix} [{code}]");
            }
        }
    }
}

impl Drop for StartedHelpers {
    fn drop(&mut self) {
        self.running.iter_mut().for_each(|(child, _)| _ = child.kill());
    }
}

/// Receives the descriptors of one request; `None` if the server has exited.
fn receive(server: BorrowedFd<'_>) -> io::Result<Option<Vec<OwnedFd>>> {
    let mut byte = START_HELPER;
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let into = &mut [IoSliceMut::new(&mut byte)];
    let received = match recvmsg(server, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Ok(received) => received,
        Err(Errno::INTR) => return Ok(Some(Vec::new())),
        Err(Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes > 0).then_some(descriptors))
}
