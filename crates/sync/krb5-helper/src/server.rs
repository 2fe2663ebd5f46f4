// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-krb5 serve`: logins for one backend, each in a separate process.
//!
//! libkrb5 waits for servers without a limit, leaves data in memory, and reads packets that any host on the network may
//! have sent. Each login therefore has a copy of this process, which has a deadline, knows one password, and ends. One
//! copy is always made in advance and waits. This process reads only the messages of its backend.

use crate::auth_request::AuthAttempt;
use crate::fork;
use crate::krb5_conf;
use crate::libkrb5::{Keytab, LibraryContext};
use crate::memory_lock;
use crate::sandbox;
use roster_krb5_helper::ipc::{
    HelperReply, HelperRequest, HelperSetup, MESSAGE_BYTES_MAX, MessageBuffer,
};
use roster_krb5_helper::kdc_errors::KdcOutcome;
use roster_messages::table::login;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use zeroize::{Zeroize, Zeroizing};

/// Concurrent logins, including the process that waits for one. Further requests of the backend wait in the socket.
const CHILDREN_MAX: usize = 32;
/// Time limit of the backend to send the setup, or to read a reply.
const BACKEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest deadline of a request.
const DEADLINE_MAX: Duration = Duration::from_secs(120);
/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;

/// Serves until the backend closes its end.
pub fn serve() -> io::Result<()> {
    memory_lock::hide()?;
    let locked = memory_lock::lock();
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // The end of the socket must be noticed, so no other descriptor may hold it open.
    let null = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    socket.set_read_timeout(Some(BACKEND_TIMEOUT))?;
    socket.set_write_timeout(Some(BACKEND_TIMEOUT))?;
    let mut incoming = MessageBuffer::default();
    let Some(setup) = receive_first(&mut socket, &mut incoming)? else { return Ok(()) };
    let setup = HelperSetup::decode(&setup).map_err(io::Error::other)?;
    let failed = |message, what: &str, error: io::Error| {
        let detail = format!("{what}: {error}");
        HelperReply::from_outcome(0, KdcOutcome::Misconfigured, detail).with_message(message)
    };
    let unusable = |error| failed(&login::LIBKRB5_UNUSABLE, "libkrb5 cannot be used", error);
    let context = match LibraryContext::new(&krb5_conf::realm_profile(&setup.realm)) {
        Ok(context) => context,
        Err(error) => return send(&mut socket, &unusable(error)),
    };
    // An armor needs a key: without one, the empty keytab is refused.
    let keytab = if setup.keytab.is_empty() && setup.fast_principal.is_empty() {
        None
    } else {
        match context.keytab(&setup.keytab) {
            Ok(keytab) => Some(keytab),
            Err(error) => {
                let what = "the keytab cannot be read";
                return send(&mut socket, &failed(&login::KEYTAB_UNUSABLE, what, error));
            }
        }
    };
    // Otherwise each login would load the libraries again.
    let warm = context.warm_up(&setup.realm.name).map_err(io::Error::other);
    if let Err(error) = warm {
        return send(&mut socket, &unusable(error));
    }
    let confined = sandbox::apply(&setup.ports);
    let in_force = format!("{confined}, {locked}");
    send(&mut socket, &HelperReply::from_outcome(0, KdcOutcome::Success, in_force))?;
    let server = HelperServer { context: &context, keytab: keytab.as_ref(), setup: &setup };
    server.run(socket, incoming)
}

fn receive_first(
    socket: &mut UnixStream,
    incoming: &mut MessageBuffer,
) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    loop {
        if let Some(message) = incoming.next_message().map_err(io::Error::other)? {
            return Ok(Some(message));
        }
        if !receive(socket, incoming)? {
            return Ok(None);
        }
    }
}

/// Receives available bytes. Returns false at the end of the stream.
fn receive(socket: &mut UnixStream, incoming: &mut MessageBuffer) -> io::Result<bool> {
    let mut bytes = Zeroizing::new([0; READ_BYTES]);
    match socket.read(&mut bytes[..]) {
        Ok(0) => Ok(false),
        Ok(read) => {
            incoming.push(&bytes[..read]);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error),
    }
}

fn send(socket: &mut UnixStream, reply: &HelperReply) -> io::Result<()> {
    socket.write_all(&reply.encode())
}

/// The process of a login, made before the request arrives.
struct LoginProcess {
    pid: Pid,
    /// Socket for the request and the replies.
    socket: UnixStream,
}

impl Drop for LoginProcess {
    /// Kills the process, because no caller waits for it any more.
    fn drop(&mut self) {
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// A login in progress.
struct RunningLogin {
    id: u64,
    process: LoginProcess,
    until: Instant,
    received: Zeroizing<Vec<u8>>,
}

struct HelperServer<'c> {
    context: &'c LibraryContext,
    keytab: Option<&'c Keytab<'c>>,
    setup: &'c HelperSetup,
}

impl HelperServer<'_> {
    fn run(&self, mut socket: UnixStream, mut incoming: MessageBuffer) -> io::Result<()> {
        let mut children: Vec<RunningLogin> = Vec::new();
        let mut spare = None;
        loop {
            while children.len() < CHILDREN_MAX {
                let Some(message) = incoming.next_message().map_err(io::Error::other)? else {
                    break;
                };
                let request = HelperRequest::decode(&message).map_err(io::Error::other)?;
                drop(message);
                let mut make = || self.spawn_process(&socket, &mut incoming, &mut children);
                match start_login(&request, spare.take(), &mut make) {
                    Ok(child) => children.push(child),
                    Err(error) => {
                        let why = format!("no process for the login: {error}");
                        let reply = HelperReply::from_outcome(request.id, KdcOutcome::Failed, why);
                        send(&mut socket, &reply.with_message(&login::KRB5_PROCESS_FAILED))?;
                    }
                }
            }
            if spare.is_none() && children.len() < CHILDREN_MAX {
                // After a failure it is made when it is needed.
                spare = self.spawn_process(&socket, &mut incoming, &mut children).ok();
            }
            let ready = wait(&socket, &children)?;
            let now = Instant::now();
            let mut going_on = Vec::with_capacity(children.len());
            for (mut child, has_said) in children.into_iter().zip(ready.children) {
                let has_ended = has_said && child.read_replies();
                if has_ended || child.until <= now {
                    // The drop then waits for its end.
                    send(&mut socket, &child.final_reply(has_ended))?;
                } else {
                    going_on.push(child);
                }
            }
            children = going_on;
            if ready.backend && !receive(&mut socket, &mut incoming)? {
                return Ok(());
            }
        }
    }

    /// Makes a process that waits for a request.
    fn spawn_process(
        &self,
        socket: &UnixStream,
        incoming: &mut MessageBuffer,
        others: &mut [RunningLogin],
    ) -> io::Result<LoginProcess> {
        let (ours, mut theirs) = UnixStream::pair()?;
        let parent = rustix::process::getpid();
        // The process has no access to other logins or to further requests.
        let (sockets, mut replies): (Vec<_>, Vec<_>) = others
            .iter_mut()
            .map(|child| (child.process.socket.as_fd(), &mut child.received))
            .unzip();
        let without = [sockets, vec![socket.as_fd(), ours.as_fd()]].concat();
        let pid = fork::fork(&without, || {
            // Copies of other passwords and tickets in this process's memory are wiped here.
            incoming.wipe();
            replies.iter_mut().for_each(|said| said.zeroize());
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            if rustix::process::getppid() != Some(parent) {
                return;
            }
            // The result was reported at the start of the parent: it fails here for the same reason.
            let _ = memory_lock::lock();
            let Ok(Some(message)) = receive_first(&mut theirs, &mut MessageBuffer::default())
            else {
                return;
            };
            let Ok(request) = HelperRequest::decode(&message) else { return };
            drop(message);
            let mut say = |reply: &HelperReply| drop(theirs.write_all(&reply.encode()));
            let reply = self.run_attempt(&request, &mut say);
            say(&reply);
        })?;
        Ok(LoginProcess { pid, socket: ours })
    }

    /// Runs a request in its dedicated process.
    fn run_attempt(
        &self,
        request: &HelperRequest,
        early: &mut dyn FnMut(&HelperReply),
    ) -> HelperReply {
        let Self { setup, .. } = *self;
        let Some(realm) = &request.realm else {
            let attempt = AuthAttempt { context: self.context, setup, keytab: self.keytab };
            return attempt.run(request, early);
        };
        let failed = |error: io::Error| {
            HelperReply::from_outcome(
                request.id,
                KdcOutcome::Failed,
                format!("libkrb5 cannot be used: {error}"),
            )
            .with_message(&login::LIBKRB5_UNUSABLE)
        };
        let context = match LibraryContext::new(&krb5_conf::realm_profile(realm)) {
            Ok(context) => context,
            Err(error) => return failed(error),
        };
        let keytab = self.keytab.map(|_| context.keytab(&setup.keytab)).transpose();
        match keytab {
            Ok(keytab) => {
                let attempt = AuthAttempt { context: &context, setup, keytab: keytab.as_ref() };
                attempt.run(request, early)
            }
            Err(error) => failed(io::Error::other(error)),
        }
    }
}

/// Starts a login in the spare process. If that has ended, makes another one.
fn start_login(
    request: &HelperRequest,
    spare: Option<LoginProcess>,
    make: &mut dyn FnMut() -> io::Result<LoginProcess>,
) -> io::Result<RunningLogin> {
    let message = request.encode();
    let until = Instant::now() + request.deadline.min(DEADLINE_MAX);
    let told = spare.filter(|spare| (&spare.socket).write_all(&message).is_ok());
    let process = match told {
        Some(process) => process,
        None => {
            let process = make()?;
            (&process.socket).write_all(&message)?;
            process
        }
    };
    process.socket.set_nonblocking(true)?;
    // A growing vector would leave a copy of a ticket behind.
    let said = Zeroizing::new(Vec::with_capacity(MESSAGE_BYTES_MAX));
    Ok(RunningLogin { id: request.id, process, until, received: said })
}

impl RunningLogin {
    /// Reads replies of the process. Returns true at their end, or above the limit.
    fn read_replies(&mut self) -> bool {
        let mut bytes = Zeroizing::new([0; READ_BYTES]);
        loop {
            match rustix::io::read(&self.process.socket, &mut bytes[..]) {
                Ok(0) => return true,
                Ok(read) if self.received.len() + read <= MESSAGE_BYTES_MAX => {
                    self.received.extend_from_slice(&bytes[..read]);
                }
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Returns the last complete reply.
    fn final_reply(&self, said_all: bool) -> HelperReply {
        match last_reply(&self.received) {
            Some(reply) if reply.id == self.id => reply,
            _ if said_all => HelperReply::from_outcome(
                self.id,
                KdcOutcome::Failed,
                "the process of the login has crashed",
            )
            .with_message(&login::KRB5_PROCESS_CRASHED),
            _ => HelperReply::from_outcome(
                self.id,
                KdcOutcome::Unreachable,
                "no KDC replied in time",
            ),
        }
    }
}

/// Returns the last of some replies, if all complete ones are valid.
fn last_reply(said: &[u8]) -> Option<HelperReply> {
    let mut incoming = MessageBuffer::default();
    incoming.push(said);
    let mut last = None;
    while let Some(message) = incoming.next_message().ok()? {
        last = Some(HelperReply::decode(&message).ok()?);
    }
    last
}

/// Sockets with data.
struct ReadySockets {
    backend: bool,
    children: Vec<bool>,
}

fn wait(socket: &UnixStream, children: &[RunningLogin]) -> io::Result<ReadySockets> {
    let takes_more = children.len() < CHILDREN_MAX;
    let asked = if takes_more { PollFlags::IN } else { PollFlags::empty() };
    let mut polled = vec![PollFd::new(socket, asked)];
    polled.extend(children.iter().map(|child| PollFd::new(&child.process.socket, PollFlags::IN)));
    let now = Instant::now();
    let first = children.iter().map(|child| child.until).min();
    let timeout = first.map(|until| {
        let left = until.saturating_duration_since(now);
        Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
    });
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let said = |polled: &PollFd<'_>| !polled.revents().is_empty();
    Ok(ReadySockets { backend: said(&polled[0]), children: polled[1..].iter().map(said).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_and_whole_counts() {
        let done = HelperReply::from_outcome(7, KdcOutcome::Success, "done").encode();
        let failed = HelperReply::from_outcome(7, KdcOutcome::Failed, "no ticket").encode();
        assert!(last_reply(b"").is_none());
        assert!(last_reply(&done[..done.len() - 1]).is_none());
        let both = [&done[..], &failed].concat();
        for length in done.len()..both.len() {
            assert!(last_reply(&both[..length]).is_some_and(|reply| reply.detail == "done"));
        }
        assert!(last_reply(&both).is_some_and(|reply| reply.outcome == KdcOutcome::Failed));
        assert!(last_reply(&[&both[..], &[0, 0, 0, 1, 9]].concat()).is_none(), "nonsense");
    }
}
