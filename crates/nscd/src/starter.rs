//! The process that starts helpers. Modules of other name services run in helpers. So helpers have a user of their own, which
//! may not open the maps. The server, once it is another user, cannot start processes of that user. The starter has the
//! helpers' user from its own start on, and zero capabilities. It knows one request, "one more helper", and ends with the server.
//!
//! With a request come the helper's socket and the end of a pipe. The other end is the server's; closing it has
//! the starter kill this helper, which the server may not.

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

/// The word that makes a starter of this executable.
const STARTER: &str = "nscd-starter";
/// The word that makes a helper of it.
const HELPER: &str = "nscd-helper";
/// The executable as it is now, though a newer one may have taken its place since.
const PROGRAM: &str = "/proc/self/exe";
/// Helpers that run, and killed ones that are not gone because the system is in the middle of something for
/// them. With as many no other is started.
const HELPERS_MAX: usize = 20;
/// How often it is looked whether killed helpers are gone.
const REAP_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// A request; what it says is in its descriptors.
const ONE_MORE: [u8; 1] = *b"h";

/// The starter, as the server has it.
pub struct Starter {
    socket: UnixStream,
    _process: Option<Child>,
}

/// A helper, as the server has it. Dropping it ends the process.
pub struct Helper {
    /// Questions go there, and answers come from there.
    pub socket: UnixStream,
    _leash: OwnedFd,
}

impl Starter {
    /// Starts the starter as that user, which takes root, or as the user of this process.
    ///
    /// # Errors
    ///
    /// The system refuses it.
    pub fn start(user: Option<(Uid, Gid)>) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(PROGRAM);
        command.arg0("roster").arg(STARTER).env_clear().current_dir("/");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        if let Some((uid, gid)) = user {
            // The standard library takes all supplementary groups away with it.
            command.uid(uid.as_raw()).gid(gid.as_raw());
        }
        let process = Some(command.spawn()?);
        Ok(Self { socket: ours, _process: process })
    }

    /// Starts a helper, which waits for its services ([`crate::host::services`]) and then for questions. One that cannot be
    /// started closes its socket.
    ///
    /// # Errors
    ///
    /// The starter is gone or stands still.
    pub fn helper(&self) -> io::Result<Helper> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (held, leash) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut room);
        let descriptors = [theirs.as_fd(), held.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.socket, &[IoSlice::new(&ONE_MORE)], &mut ancillary, flags)?;
        Ok(Helper { socket: ours, _leash: leash })
    }

    #[cfg(test)]
    pub(crate) fn without_process() -> Self {
        let (socket, _) = UnixStream::pair().expect("a pair of sockets");
        Self { socket, _process: None }
    }
}

impl AsFd for Starter {
    /// Can be read when the starter is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The starter from its start: requests come over standard input, a socket. Ends, with all helpers, when that closes.
///
/// # Errors
///
/// Standard input is not a socket, or the socket fails.
pub fn main() -> io::Result<()> {
    // Helpers have its user, and may not reach into it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_no_new_privs(true)?;
    let server = io::stdin().as_fd().try_clone_to_owned()?;
    let mut started = Started::default();
    while started.wait(server.as_fd())? {}
    Ok(())
}

/// The helpers of a starter.
#[derive(Default)]
struct Started {
    running: Vec<(Child, OwnedFd)>,
    killed: Vec<Child>,
}

impl Started {
    /// Does what comes next. False where the server is gone.
    fn wait(&mut self, server: BorrowedFd<'_>) -> io::Result<bool> {
        self.killed.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let mut watched = vec![PollFd::from_borrowed_fd(server, PollFlags::IN)];
        // poll(2) reports a closed pipe without being asked for it.
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

    /// A helper that cannot be started leaves a closed socket, by which the server knows.
    fn start(&mut self, socket: OwnedFd, leash: OwnedFd) {
        if self.running.len() + self.killed.len() >= HELPERS_MAX {
            return;
        }
        let mut command = Command::new(PROGRAM);
        command.arg0("roster").arg(HELPER).stdin(socket).stdout(Stdio::null());
        match command.spawn() {
            Ok(child) => self.running.push((child, leash)),
            Err(error) => eprintln!("roster {STARTER}: helper: cannot start: {error}"),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.running.iter_mut().for_each(|(child, _)| _ = child.kill());
    }
}

/// The descriptors of one request; nothing where the server is gone.
fn receive(server: BorrowedFd<'_>) -> io::Result<Option<Vec<OwnedFd>>> {
    let mut byte = ONE_MORE;
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
