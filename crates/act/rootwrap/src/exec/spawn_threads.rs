// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that start processes. A child inherits a copy of its parent's descriptor table, and closes nearly all of it
//! at exec. Some closes block, for example of a file in a FUSE file system of a client. The start of the child then
//! blocks, too.
//!
//! A daemon therefore starts processes from separate threads. Each has its own table, with the descriptors from before
//! the first client, and those of the process that it starts. The kernel passes them (SCM_RIGHTS).
//!
//! A number means another file in another table. Only [`SpawnSpec`] and [`Child`] pass between threads in memory, and
//! neither contains a descriptor.

use super::{StdStreams, checked_executable, command};
use nix::sched::{CloneFlags, unshare};
use parking_lot::Mutex;
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

/// Stack of a thread, which needs little.
const STACK_BYTES: usize = 256 << 10;
/// Limit of waiting threads. Further ones end after a start.
const IDLE_MAX: usize = 32;
/// Three streams, the working directory, and the directory of the executable.
const DESCRIPTORS_MAX: usize = 5;
/// Pause after a failed system call.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// A process to start.
#[derive(Debug)]
pub(super) struct SpawnSpec {
    /// The path of the executable, or its name in an open directory.
    pub(super) program: OsString,
    pub(super) argv: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// True if it leads a process group.
    pub(super) leads_group: bool,
}

/// Descriptors for a process or its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpawnFds<'h> {
    pub(super) streams: StdStreams<'h>,
    /// The working directory, if it differs from that of this process.
    pub(super) working_dir: Option<BorrowedFd<'h>>,
    /// The directory of the executable.
    pub(super) executable_dir: Option<BorrowedFd<'h>>,
}

impl<'h> From<StdStreams<'h>> for SpawnFds<'h> {
    fn from(streams: StdStreams<'h>) -> Self {
        Self { streams, working_dir: None, executable_dir: None }
    }
}

impl SpawnSpec {
    /// Starts the process from this thread. An error does not tell whether the directory caused it.
    fn start(
        &self,
        streams: [OwnedFd; 3],
        folder: Option<BorrowedFd<'_>>,
        image: Option<BorrowedFd<'_>>,
    ) -> io::Result<Child> {
        let path = match image {
            Some(folder) => checked_executable::exec_path(folder, &self.program),
            None => self.program.clone(),
        };
        let mut command = command(&path, &self.argv, &self.environment);
        let [stdin, stdout, stderr] = streams.map(Stdio::from);
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        if self.leads_group {
            command.process_group(0);
        }
        if let Some(folder) = folder {
            command.current_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        }
        command.spawn()
    }
}

/// The way to start processes.
#[derive(Debug)]
pub(super) enum Spawner {
    /// The calling thread starts commands: the process has no descriptors of clients, or threads cannot have separate
    /// tables for this reason.
    Inline(Option<io::Error>),
    Isolated(IsolatedSpawner),
}

impl Spawner {
    /// Starts a process, and returns when it executes the program or fails.
    pub(super) fn start(&self, wanted: SpawnSpec, held: SpawnFds<'_>) -> io::Result<Child> {
        match self {
            Self::Inline(_) => {
                let StdStreams { stdin, stdout, stderr } = held.streams;
                let own = |stream: BorrowedFd<'_>| stream.try_clone_to_owned();
                let streams = [own(stdin)?, own(stdout)?, own(stderr)?];
                wanted.start(streams, held.working_dir, held.executable_dir)
            }
            Self::Isolated(apart) => apart.start(wanted, held),
        }
    }
}

/// Reports that a new thread has its table and waits, or the reason for which it does not.
type ReadySender = SyncSender<io::Result<()>>;

/// Threads that start processes, and one that creates these threads.
#[derive(Debug)]
pub(super) struct IsolatedSpawner {
    /// Requests another thread from the first one.
    thread_requests: Sender<ReadySender>,
    /// The threads wait at the other end.
    job_socket: UnixDatagram,
    shared: Arc<SpawnerShared>,
}

#[derive(Debug)]
struct SpawnerShared {
    job_socket: UnixDatagram,
    state: Mutex<SpawnerState>,
}

#[derive(Debug, Default)]
struct SpawnerState {
    /// Number of waiting threads without a job.
    idle: usize,
    next: u64,
    jobs: HashMap<u64, SpawnJob>,
}

#[derive(Debug)]
struct SpawnJob {
    spec: SpawnSpec,
    has_working_dir: bool,
    has_executable_dir: bool,
    started: SyncSender<io::Result<Child>>,
}

impl IsolatedSpawner {
    /// Starts the first threads. No descriptor of a client may be open, and none that is to be closed later. An error:
    /// threads cannot have separate tables.
    pub(super) fn new() -> io::Result<Self> {
        let (hands, theirs) = UnixDatagram::pair()?;
        let shared = Arc::new(SpawnerShared { job_socket: theirs, state: Mutex::default() });
        let (more, asked) = channel();
        let (is_apart, apart) = sync_channel(1);
        let starters = Arc::clone(&shared);
        spawn("starters", move || {
            let left = unshare_fd_table().and_then(|()| detach_streams());
            let has_left = left.is_ok();
            let _ = is_apart.send(left);
            if has_left {
                // This thread opens nothing from here on, so its table stays as it is for the others.
                asked.into_iter().for_each(|is_there| starters.spawn_thread(&is_there));
            }
        })?;
        flatten_result(apart.recv())?;
        let apart = Self { thread_requests: more, job_socket: hands, shared };
        apart.add_thread()?;
        apart.shared.mark_idle();
        Ok(apart)
    }

    /// Starts another thread.
    fn add_thread(&self) -> io::Result<()> {
        let (is_there, there) = sync_channel(1);
        self.thread_requests.send(is_there).map_err(io::Error::other)?;
        flatten_result(there.recv())
    }

    fn start(&self, wanted: SpawnSpec, held: SpawnFds<'_>) -> io::Result<Child> {
        if !self.shared.reserve_idle_thread() {
            self.add_thread()?;
        }
        let StdStreams { stdin, stdout, stderr } = held.streams;
        let fds: Vec<BorrowedFd<'_>> = [stdin, stdout, stderr]
            .into_iter()
            .chain(held.working_dir)
            .chain(held.executable_dir)
            .collect();
        let (has_folder, has_image) = (held.working_dir.is_some(), held.executable_dir.is_some());
        let (started, told) = sync_channel(1);
        let number = self.shared.add_job(SpawnJob {
            spec: wanted,
            has_working_dir: has_folder,
            has_executable_dir: has_image,
            started,
        });
        if let Err(error) = self.send_job(number, &fds) {
            self.shared.remove_job(number);
            self.shared.mark_idle();
            return Err(error);
        }
        flatten_result(told.recv())
    }

    fn send_job(&self, number: u64, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(fds));
        let number = number.to_le_bytes();
        let send = || {
            sendmsg(&self.job_socket, &[IoSlice::new(&number)], &mut control, SendFlags::NOSIGNAL)
        };
        rustix::io::retry_on_intr(send)?;
        Ok(())
    }
}

impl Drop for IsolatedSpawner {
    /// Ends the threads, which closes the descriptors in their tables.
    fn drop(&mut self) {
        let _ = self.shared.job_socket.shutdown(Shutdown::Both);
    }
}

/// Flattens a result that came over a channel.
fn flatten_result<T, E>(received: Result<io::Result<T>, E>) -> io::Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    received.map_err(io::Error::other)?
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().stack_size(STACK_BYTES).name(name.into()).spawn(work).map(drop)
}

/// Gives this thread a copy of the table of descriptors.
fn unshare_fd_table() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_FILES)?)
}

/// Replaces the standard streams, so that readers of this process's streams see their end.
fn detach_streams() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

impl SpawnerShared {
    /// Starts a thread with a copy of this thread's table.
    fn spawn_thread(self: &Arc<Self>, is_there: &ReadySender) {
        let (shared, tells) = (Arc::clone(self), is_there.clone());
        let spawned = spawn("starter", move || {
            let left = unshare_fd_table();
            let has_left = left.is_ok();
            let _ = tells.send(left);
            if has_left {
                shared.serve_jobs();
            }
        });
        if spawned.is_err() {
            let _ = is_there.send(spawned);
        }
    }

    /// Starts processes until the socket is shut down.
    fn serve_jobs(&self) {
        loop {
            let (number, fds) = match self.receive_job() {
                Ok(Some(received)) => received,
                Ok(None) => return,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => {
                    thread::sleep(RETRY_PAUSE);
                    continue;
                }
            };
            let Some(job) = self.remove_job(number) else { continue };
            // The descriptors are closed while the sender still has them, so the close does not block.
            let started = job.start(fds);
            let stays = self.mark_idle();
            let _ = job.started.send(started);
            if !stays {
                return;
            }
        }
    }

    /// Returns the next job. `None`: the socket is shut down.
    fn receive_job(&self) -> rustix::io::Result<Option<(u64, Vec<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut number = [0; size_of::<u64>()];
        let mut pieces = [IoSliceMut::new(&mut number)];
        let came = recvmsg(&self.job_socket, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut fds = Vec::with_capacity(DESCRIPTORS_MAX);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        Ok((came.bytes > 0).then(|| (u64::from_le_bytes(number), fds)))
    }

    fn add_job(&self, job: SpawnJob) -> u64 {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.jobs.insert(number, job);
        number
    }

    fn remove_job(&self, number: u64) -> Option<SpawnJob> {
        self.state.lock().jobs.remove(&number)
    }

    /// Returns true if a waiting thread takes the next job.
    fn reserve_idle_thread(&self) -> bool {
        let mut state = self.state.lock();
        let left = state.idle.checked_sub(1);
        state.idle = left.unwrap_or_default();
        left.is_some()
    }

    /// Marks this thread as waiting. False: enough threads wait.
    fn mark_idle(&self) -> bool {
        let mut state = self.state.lock();
        let stays = state.idle < IDLE_MAX;
        state.idle += usize::from(stays);
        stays
    }
}

impl SpawnJob {
    fn start(&self, fds: Vec<OwnedFd>) -> io::Result<Child> {
        let mut fds = fds.into_iter();
        let mut next = || {
            // The limit of open files is reached.
            let lacks = || io::Error::from(rustix::io::Errno::MFILE);
            fds.next().ok_or_else(lacks)
        };
        let streams = [next()?, next()?, next()?];
        let folder = if self.has_working_dir { Some(next()?) } else { None };
        let image = if self.has_executable_dir { Some(next()?) } else { None };
        let [folder, image] = [&folder, &image].map(|fd| fd.as_ref().map(AsFd::as_fd));
        self.spec.start(streams, folder, image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::io::Read;

    fn shell_spec(script: &str) -> SpawnSpec {
        SpawnSpec {
            program: "/bin/sh".into(),
            argv: ["sh", "-c", script].map(OsString::from).to_vec(),
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            leads_group: false,
        }
    }

    /// Returns the output of a command.
    fn output_of(starters: &Spawner, script: &str) -> String {
        let (mut reads, writes) = io::pipe().unwrap();
        let null = File::open("/dev/null").unwrap();
        let (null, stdout) = (null.as_fd(), writes.as_fd());
        let streams = StdStreams { stdin: null, stdout, stderr: stdout };
        let mut child = starters.start(shell_spec(script), streams.into()).unwrap();
        drop(writes);
        let mut text = String::new();
        reads.read_to_string(&mut text).unwrap();
        child.wait().unwrap();
        text
    }

    /// A command keeps descriptors that are not closed at its start. Its list therefore shows the table of its parent.
    #[test]
    fn no_process_begins_with_what_came_later() {
        let starters = Spawner::Isolated(IsolatedSpawner::new().unwrap());
        let (came, _other) = io::pipe().unwrap();
        let inherited = rustix::io::FdFlags::empty();
        rustix::io::fcntl_setfd(&came, inherited).unwrap();
        let script = format!("readlink /proc/$$/fd/{}", came.as_raw_fd());
        let name = std::fs::read_link(format!("/proc/self/fd/{}", came.as_raw_fd())).unwrap();
        assert_eq!(output_of(&Spawner::Inline(None), &script).trim(), name.to_str().unwrap());
        assert_eq!(output_of(&starters, &script), "");
        // Later threads do not have it either.
        thread::scope(|scope| {
            let ran: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| output_of(&starters, &format!("{script}; sleep 0.1"))))
                .collect();
            assert!(ran.into_iter().all(|ran| ran.join().unwrap().is_empty()));
        });
    }

    #[test]
    fn what_was_open_when_they_began_is_closed_with_them() {
        let (reads, writes) = io::pipe().unwrap();
        let starters = IsolatedSpawner::new().unwrap();
        drop((writes, starters));
        let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
        let mut ended = [PollFd::new(&reads, PollFlags::IN)];
        assert_eq!(poll(&mut ended, Some(&limit)), Ok(1));
    }
}
