//! `roster-krb5 serve`: log-ins for one back-end, each in a process of its own.
//!
//! libkrb5 waits for servers as long as it likes, keeps what passes through it in memory, and reads
//! what anybody on the network may have sent. So each log-in has a copy of this process, which has a
//! deadline, knows one password, and ends. One is always made already, and waits. This process reads nothing but what its back-end writes.

use crate::attempt::Attempt;
use crate::confine;
use crate::library::{Context, Keytab};
use crate::memory;
use crate::process;
use crate::profile;
use roster_krb5::message::{Incoming, MESSAGE_BYTES_MAX, Reply, Request, Setup};
use roster_krb5::outcome::Outcome;
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

/// Log-ins at a time, with the process that waits for one; the back-end's others wait in the socket.
const CHILDREN_MAX: usize = 32;
/// How long the back-end may take to say what to go by, or to read a reply.
const BACK_END_WAIT: Duration = Duration::from_secs(10);
/// Longest time that a back-end may ask for.
const DEADLINE_MAX: Duration = Duration::from_secs(120);
/// Of each read.
const READ_BYTES: usize = 16 << 10;

/// Serves until the back-end closes its end.
pub fn serve() -> io::Result<()> {
    memory::hide()?;
    let locked = memory::lock();
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // The end of it is to be noticed, and nothing else is to hold it open.
    let null = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    socket.set_read_timeout(Some(BACK_END_WAIT))?;
    socket.set_write_timeout(Some(BACK_END_WAIT))?;
    let mut incoming = Incoming::default();
    let Some(setup) = first(&mut socket, &mut incoming)? else { return Ok(()) };
    let setup = Setup::decode(&setup).map_err(io::Error::other)?;
    let failed = |what: &str, error: io::Error| {
        Reply::of(0, Outcome::Misconfigured, format!("{what}: {error}"))
    };
    let context = match Context::new(&profile::of_realm(&setup.realm)) {
        Ok(context) => context,
        Err(error) => return send(&mut socket, &failed("Kerberos cannot be used", error)),
    };
    let keytab = if setup.keytab.is_empty() {
        None
    } else {
        match context.keytab(&setup.keytab) {
            Ok(keytab) => Some(keytab),
            Err(error) => return send(&mut socket, &failed("the keytab cannot be read", error)),
        }
    };
    // What the first log-in loads would otherwise be loaded by each.
    let warm = context.warm_up(&setup.realm.name).map_err(io::Error::other);
    if let Err(error) = warm {
        return send(&mut socket, &failed("Kerberos cannot be used", error));
    }
    let confined = confine::apply(&setup.ports);
    let in_force = format!("{confined}, {locked}");
    send(&mut socket, &Reply::of(0, Outcome::Success, in_force))?;
    let server = Server { context: &context, keytab: keytab.as_ref(), setup: &setup };
    server.run(socket, incoming)
}

fn first(
    socket: &mut UnixStream,
    incoming: &mut Incoming,
) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    loop {
        if let Some(message) = incoming.message().map_err(io::Error::other)? {
            return Ok(Some(message));
        }
        if !receive(socket, incoming)? {
            return Ok(None);
        }
    }
}

/// Takes what there is; false when there will be nothing more.
fn receive(socket: &mut UnixStream, incoming: &mut Incoming) -> io::Result<bool> {
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

fn send(socket: &mut UnixStream, reply: &Reply) -> io::Result<()> {
    socket.write_all(&reply.encode())
}

/// A process of a log-in's own, from before there is one: it is made while nobody waits for it.
struct Process {
    pid: Pid,
    /// Where it hears what to do, and says what came of it.
    socket: UnixStream,
}

impl Drop for Process {
    /// Who is not waited for any more need not go on.
    fn drop(&mut self) {
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// A log-in under way.
struct Child {
    id: u64,
    process: Process,
    until: Instant,
    said: Zeroizing<Vec<u8>>,
}

struct Server<'c> {
    context: &'c Context,
    keytab: Option<&'c Keytab<'c>>,
    setup: &'c Setup,
}

impl Server<'_> {
    fn run(&self, mut socket: UnixStream, mut incoming: Incoming) -> io::Result<()> {
        let mut children: Vec<Child> = Vec::new();
        let mut spare = None;
        loop {
            while children.len() < CHILDREN_MAX {
                let Some(message) = incoming.message().map_err(io::Error::other)? else { break };
                let request = Request::decode(&message).map_err(io::Error::other)?;
                drop(message);
                let mut make = || self.process(&socket, &mut incoming, &mut children);
                match start(&request, spare.take(), &mut make) {
                    Ok(child) => children.push(child),
                    Err(error) => {
                        let why = format!("no process for it: {error}");
                        send(&mut socket, &Reply::of(request.id, Outcome::Failed, why))?;
                    }
                }
            }
            if spare.is_none() && children.len() < CHILDREN_MAX {
                // Without one it is made, or fails to be, when it is needed.
                spare = self.process(&socket, &mut incoming, &mut children).ok();
            }
            let ready = wait(&socket, &children)?;
            let now = Instant::now();
            let mut going_on = Vec::with_capacity(children.len());
            for (mut child, has_said) in children.into_iter().zip(ready.children) {
                let has_ended = has_said && child.listen();
                if has_ended || child.until <= now {
                    // Its end is waited for after that.
                    send(&mut socket, &child.reply(has_ended))?;
                } else {
                    going_on.push(child);
                }
            }
            children = going_on;
            if ready.socket && !receive(&mut socket, &mut incoming)? {
                return Ok(());
            }
        }
    }

    /// Makes one that waits for a request.
    fn process(
        &self,
        socket: &UnixStream,
        incoming: &mut Incoming,
        others: &mut [Child],
    ) -> io::Result<Process> {
        let (ours, mut theirs) = UnixStream::pair()?;
        let parent = rustix::process::getpid();
        // What other log-ins say, and what comes next, is none of its business.
        let (sockets, mut replies): (Vec<_>, Vec<_>) =
            others.iter_mut().map(|child| (child.process.socket.as_fd(), &mut child.said)).unzip();
        let without = [sockets, vec![socket.as_fd(), ours.as_fd()]].concat();
        let pid = process::fork(&without, || {
            // A copy of this process's memory: other passwords and tickets are in it only until here.
            incoming.wipe();
            replies.iter_mut().for_each(|said| said.zeroize());
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            if rustix::process::getppid() != Some(parent) {
                return;
            }
            // Said when this process was: it fails as it did there.
            let _ = memory::lock();
            let Ok(Some(message)) = first(&mut theirs, &mut Incoming::default()) else { return };
            let Ok(request) = Request::decode(&message) else { return };
            drop(message);
            let mut say = |reply: &Reply| drop(theirs.write_all(&reply.encode()));
            let reply = self.reply(&request, &mut say);
            say(&reply);
        })?;
        Ok(Process { pid, socket: ours })
    }

    /// In the process that is the request's own.
    fn reply(&self, request: &Request, early: &mut dyn FnMut(&Reply)) -> Reply {
        let Self { setup, .. } = *self;
        let Some(realm) = &request.realm else {
            let attempt = Attempt { context: self.context, setup, keytab: self.keytab };
            return attempt.run(request, early);
        };
        let failed = |error: io::Error| {
            Reply::of(request.id, Outcome::Failed, format!("Kerberos cannot be used: {error}"))
        };
        let context = match Context::new(&profile::of_realm(realm)) {
            Ok(context) => context,
            Err(error) => return failed(error),
        };
        let keytab = self.keytab.map(|_| context.keytab(&setup.keytab)).transpose();
        match keytab {
            Ok(keytab) => {
                let attempt = Attempt { context: &context, setup, keytab: keytab.as_ref() };
                attempt.run(request, early)
            }
            Err(error) => failed(io::Error::other(error)),
        }
    }
}

/// Has a process do it: the spare one, or where that is no more, one that is made for it.
fn start(
    request: &Request,
    spare: Option<Process>,
    make: &mut dyn FnMut() -> io::Result<Process>,
) -> io::Result<Child> {
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
    // One that grows would leave a copy of a ticket behind.
    let said = Zeroizing::new(Vec::with_capacity(MESSAGE_BYTES_MAX));
    Ok(Child { id: request.id, process, until, said })
}

impl Child {
    /// Takes what it says; true when it has said all, or too much.
    fn listen(&mut self) -> bool {
        let mut bytes = Zeroizing::new([0; READ_BYTES]);
        loop {
            match rustix::io::read(&self.process.socket, &mut bytes[..]) {
                Ok(0) => return true,
                Ok(read) if self.said.len() + read <= MESSAGE_BYTES_MAX => {
                    self.said.extend_from_slice(&bytes[..read]);
                }
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                Err(_) => return true,
            }
        }
    }

    /// The last reply that it has said whole.
    fn reply(&self, said_all: bool) -> Reply {
        match last_reply(&self.said) {
            Some(reply) if reply.id == self.id => reply,
            _ if said_all => {
                Reply::of(self.id, Outcome::Failed, "the process that asked the KDC has crashed")
            }
            _ => Reply::of(self.id, Outcome::Unreachable, "no KDC has answered in time"),
        }
    }
}

/// The last of some replies, if all that are whole make sense.
fn last_reply(said: &[u8]) -> Option<Reply> {
    let mut incoming = Incoming::default();
    incoming.push(said);
    let mut last = None;
    while let Some(message) = incoming.message().ok()? {
        last = Some(Reply::decode(&message).ok()?);
    }
    last
}

/// Who has something to say.
struct Ready {
    socket: bool,
    children: Vec<bool>,
}

fn wait(socket: &UnixStream, children: &[Child]) -> io::Result<Ready> {
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
    Ok(Ready { socket: said(&polled[0]), children: polled[1..].iter().map(said).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_and_whole_counts() {
        let done = Reply::of(7, Outcome::Success, "done").encode();
        let failed = Reply::of(7, Outcome::Failed, "no ticket").encode();
        assert!(last_reply(b"").is_none());
        assert!(last_reply(&done[..done.len() - 1]).is_none());
        let both = [&done[..], &failed].concat();
        for length in done.len()..both.len() {
            assert!(last_reply(&both[..length]).is_some_and(|reply| reply.detail == "done"));
        }
        assert!(last_reply(&both).is_some_and(|reply| reply.outcome == Outcome::Failed));
        assert!(last_reply(&[&both[..], &[0, 0, 0, 1, 9]].concat()).is_none(), "nonsense");
    }
}
