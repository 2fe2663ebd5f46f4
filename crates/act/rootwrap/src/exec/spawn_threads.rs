//! Who starts processes. A child begins with a copy of its parent's table of descriptors, and closes all but three of
//! them when it executes something: whatever makes close(2) wait, it waits for, and so does who has started it. In
//! the table of a daemon there is what others have sent: a file whose file system asks its server at every
//! close, a socket that lingers. So a daemon has threads for this alone, each with a table of its own: there is in
//! it what was open before anybody was served and, while a process is started, what that one is to have. The
//! kernel hands that over (SCM_RIGHTS).
//!
//! In another table a number is another file. So what goes from thread to thread by memory is [`SpawnSpec`], which
//! has words in it and no descriptor, and the [`Child`], which has none either, for it is given all of its streams.

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

/// Nothing here goes deep.
const STACK_BYTES: usize = 256 << 10;
/// Threads that wait for something to start; more end when they have started something.
const IDLE_MAX: usize = 32;
/// Three streams, a folder to begin in, and one that the executable is in.
const DESCRIPTORS_MAX: usize = 5;
/// After which the system is asked again for the memory that it did not have.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// A process that is to be.
#[derive(Debug)]
pub(super) struct SpawnSpec {
    /// The executable's path, or its name in a folder that is held.
    pub(super) program: OsString,
    pub(super) argv: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// Whether it leads a process group.
    pub(super) leads_group: bool,
}

/// What is to be open in it, or for its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpawnFds<'h> {
    pub(super) streams: StdStreams<'h>,
    /// Where it begins, if not where this process is.
    pub(super) working_dir: Option<BorrowedFd<'h>>,
    /// The folder that its executable is in.
    pub(super) executable_dir: Option<BorrowedFd<'h>>,
}

impl<'h> From<StdStreams<'h>> for SpawnFds<'h> {
    fn from(streams: StdStreams<'h>) -> Self {
        Self { streams, working_dir: None, executable_dir: None }
    }
}

impl SpawnSpec {
    /// Starts it by this thread. That it begins in a folder is not to be found out by its failing.
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

/// The threads of a process that start others.
#[derive(Debug)]
pub(super) enum Spawner {
    /// None: nothing of anybody else's is open in this process; or the system does not let threads have
    /// tables of their own, for this reason.
    Inline(Option<io::Error>),
    Isolated(IsolatedSpawner),
}

impl Spawner {
    /// Starts something, and returns when it executes that, or cannot.
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

/// Tells who has asked for a thread that it has a table of its own and is about to wait, or why there is none.
type ReadySender = SyncSender<io::Result<()>>;

/// Threads that start what they are told, and one that makes these.
#[derive(Debug)]
pub(super) struct IsolatedSpawner {
    /// Tells the first thread to make one more; who asks is told when it is there.
    thread_requests: Sender<ReadySender>,
    /// Its other end is where all of them wait.
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
    /// How many wait, and nothing is on its way to them.
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
    /// To be called while nothing of anybody else's is open, nor anything that is to be closed one day. An error is
    /// that threads cannot have tables of their own here.
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
                // Nothing is opened here from now on: each of the others begins with what there is.
                asked.into_iter().for_each(|is_there| starters.spawn_thread(&is_there));
            }
        })?;
        flatten_result(apart.recv())?;
        let apart = Self { thread_requests: more, job_socket: hands, shared };
        apart.add_thread()?;
        apart.shared.mark_idle();
        Ok(apart)
    }

    /// One more thread, which is about to wait.
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
    /// They end, and what their tables have is open no longer than what was in this process's.
    fn drop(&mut self) {
        let _ = self.shared.job_socket.shutdown(Shutdown::Both);
    }
}

/// What came over a channel whose other end says something before it goes.
fn flatten_result<T, E>(received: Result<io::Result<T>, E>) -> io::Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    received.map_err(io::Error::other)?
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().stack_size(STACK_BYTES).name(name.into()).spawn(work).map(drop)
}

/// From here on this thread has a table of its own, with what was in that of its maker.
fn unshare_fd_table() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_FILES)?)
}

/// Whoever waits for the end of this process's streams is not kept waiting by their copies.
fn detach_streams() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

impl SpawnerShared {
    /// One more thread, with a table that begins as this one's.
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

    /// Starts one thing after the other.
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
            // Closed, with all that came, while who wants it holds it still: that waits for nothing.
            let started = job.start(fds);
            let stays = self.mark_idle();
            let _ = job.started.send(started);
            if !stays {
                return;
            }
        }
    }

    /// `None` at the end.
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

    /// Whether a thread that waits is to do what comes next.
    fn reserve_idle_thread(&self) -> bool {
        let mut state = self.state.lock();
        let left = state.idle.checked_sub(1);
        state.idle = left.unwrap_or_default();
        left.is_some()
    }

    /// That a thread waits from now on; false if there are enough.
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
            // More than this process may have open.
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

    /// What a command writes.
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

    /// A command keeps what is not closed when it begins; so it shows what its parent's table was.
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
        // And those that are made later have none either.
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
