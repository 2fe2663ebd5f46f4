//! The daemon: takes connections, reads its policy anew when it is told to, and ends in good order.
//!
//! One thread waits for signals. The others take turns at the door: one waits there, and serves who
//! comes itself (`connection`) as soon as another has taken its turn, so that a connection wakes nobody
//! but who serves it, and whatever it waits for, nobody else does.

use super::connection::serve;
use super::gate::Gate;
use super::journal::Journal;
use super::metrics::Counters;
use super::names::Names;
use super::persons::Persons;
use super::places::{Place, Places, tell_busy, tell_ending};
use super::policy::Policy;
use super::socket::Socket;
use crate::exec::Executor;
use crate::manual;
use crate::problem::Problem;
use nix::sys::socket::{getsockopt, sockopt};
use roster_descriptors::closing::Closers;
use rustix::event::{PollFd, PollFlags, poll};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt::Display;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::Duration;

/// Nothing here goes deep: the C library's look-ups are in threads of their own.
const STACK_BYTES: usize = 256 << 10;
/// Threads that wait for their turn; more end when they have served somebody.
const IDLE_MAX: usize = 32;
/// After which the system is asked again for a descriptor that it did not have.
const EXHAUSTED: Duration = Duration::from_millis(20);
/// How long commands may go on when the daemon is to end.
const FINISH_TIME: Duration = Duration::from_secs(60);
/// And how long after they were told that they have to end.
const KILL_TIME: Duration = Duration::from_secs(10);

/// Where everything is.
#[derive(Debug)]
pub struct Settings {
    /// The policy.
    pub policy: PathBuf,
    /// The socket, unless systemd hands one over.
    pub socket: PathBuf,
    /// Where counters are served, if they are.
    pub metrics: Option<SocketAddr>,
}

/// Why there is no daemon.
#[derive(Debug)]
pub enum Failure {
    /// What is wrong with the policy.
    Policy(Vec<Problem>),
    /// What the system refused.
    System(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// What all connections share.
pub(super) struct Daemon {
    policy: RwLock<Arc<Policy>>,
    pub(super) executor: Arc<Executor>,
    pub(super) names: Names,
    pub(super) counters: Arc<Counters>,
    pub(super) journal: Journal,
    pub(super) persons: Arc<Persons>,
    places: Arc<Places>,
    closers: Closers,
    gate: Arc<Gate>,
    socket: Socket,
    /// Held by the thread whose turn at the door it is.
    door: Mutex<()>,
    /// How many wait for their turn or have it.
    idle: AtomicUsize,
    /// Its other end goes when nobody is to be let in or answered any more.
    ended: UnixStream,
}

/// Serves until it is told to end. To be called before there are threads.
pub fn serve_everybody(settings: &Settings) -> Result<(), Failure> {
    let policy = Policy::load(&settings.policy).map_err(Failure::Policy)?;
    let handed = Socket::handed()?;
    let mut executor = Executor::new_native(handed.as_ref().map(AsFd::as_fd))?;
    let ends = pipe_of(&[SIGTERM, SIGINT])?;
    let reloads = pipe_of(&[SIGHUP])?;
    executor.start_apart();
    if let Some(why) = executor.not_apart() {
        say(&format_args!(
            "commands begin with what others have sent, and may wait for it, for a thread cannot have descriptors \
             of its own: {why}"
        ));
    }
    let executor = Arc::new(executor);
    let socket = handed.map_or_else(|| Socket::make(&settings.socket), Ok)?;
    let (ended, open) = UnixStream::pair()?;
    let persons = Arc::new(Persons::default());
    let gate = Gate::new(&socket.path(&settings.socket), Arc::clone(&persons))?;
    let gate = Arc::new(gate);
    let adjusted = Arc::clone(&gate);
    let closers = Closers::new(move |pending| adjusted.adjust(pending));
    let counters = Arc::new(Counters::default());
    if let Some(address) = settings.metrics {
        counters.serve(address)?;
    }
    let daemon = Arc::new(Daemon {
        policy: RwLock::new(Arc::new(policy)),
        names: Names::new(Arc::clone(&executor)),
        executor,
        journal: Journal::start(&counters)?,
        counters,
        persons,
        places: Places::new(),
        closers,
        gate,
        socket,
        door: Mutex::default(),
        idle: AtomicUsize::new(0),
        ended,
    });
    daemon.say_how_time_is_kept();
    daemon.open()?;
    notify(NotifyState::Ready);
    daemon.watch(&settings.policy, &reloads, &ends);
    notify(NotifyState::Stopping);
    daemon.finish(open);
    Ok(())
}

/// Becomes readable when one of the signals comes.
fn pipe_of(signals: &[i32]) -> io::Result<UnixStream> {
    let (told, tells) = UnixStream::pair()?;
    told.set_nonblocking(true)?;
    for &signal in signals {
        signal_hook::low_level::pipe::register(signal, tells.try_clone()?)?;
    }
    Ok(told)
}

fn is_told(mut pipe: &UnixStream) -> bool {
    pipe.read(&mut [0; 64]).is_ok_and(|count| count > 0)
}

/// Where nobody is to be told, nobody is.
fn notify(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}

fn say(what: &dyn Display) {
    let _ = writeln!(io::stderr(), "{}: {what}", manual::called().display());
}

impl Daemon {
    /// The policy in force.
    pub(super) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().expect("a thread that panics ends the process"))
    }

    fn say_how_time_is_kept(&self) {
        match self.executor.cgroups() {
            Ok(path) => say(&format_args!(
                "commands that have a time-out are in cgroups of their own: {}",
                path.display()
            )),
            Err(why) => say(&format_args!(
                "commands that have a time-out are in no cgroups of their own, and what comes of them is looked \
                 for by its parents: {why}"
            )),
        }
    }

    /// Waits for signals, until one ends the daemon.
    fn watch(&self, policy: &Path, reloads: &UnixStream, ends: &UnixStream) {
        loop {
            let mut fds = [PollFd::new(reloads, PollFlags::IN), PollFd::new(ends, PollFlags::IN)];
            if !matches!(poll(&mut fds, None), Ok(_) | Err(rustix::io::Errno::INTR)) {
                return;
            }
            let [is_reload, is_end] = fds.map(|fd| !fd.revents().is_empty());
            if is_end && is_told(ends) {
                return;
            }
            if is_reload && is_told(reloads) {
                self.reload(policy);
            }
        }
    }

    /// Takes over a policy without a mistake; else the old one stays.
    fn reload(&self, path: &Path) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            let _ = sd_notify::notify(&[NotifyState::Reloading, now]);
        }
        match Policy::load(path) {
            Ok(policy) => {
                say(&format_args!("{}: rules taken over: {}", path.display(), policy.rules.len()));
                *self.policy.write().expect("as above") = Arc::new(policy);
                self.counters.reloads.add();
            }
            Err(problems) => {
                problems.iter().for_each(|problem| say(problem));
                say(&format_args!("{}: the old policy stays in force", path.display()));
                self.counters.reloads_failed.add();
            }
        }
        notify(NotifyState::Ready);
    }

    /// One more thread that takes its turn at the door.
    fn open(self: &Arc<Self>) -> io::Result<()> {
        self.idle.fetch_add(1, Ordering::Relaxed);
        let daemon = Arc::clone(self);
        let thread = thread::Builder::new().stack_size(STACK_BYTES).name("connection".into());
        let opened = thread.spawn(move || daemon.take_turns());
        if opened.is_err() {
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
        opened.map(drop)
    }

    fn take_turns(self: &Arc<Self>) {
        loop {
            let turn = self.door.lock().expect("as above");
            let came = self.next();
            drop(turn);
            let idle = self.idle.fetch_sub(1, Ordering::Relaxed) - 1;
            let Some(place) = came else { return };
            // Without another thread who comes next waits until this one is done.
            let _ = if idle == 0 { self.open() } else { Ok(()) };
            self.attend(&place);
            drop(place);
            if self.idle.fetch_add(1, Ordering::Relaxed) >= IDLE_MAX {
                self.idle.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
    }

    /// The next connection for which there is a place; `None` if nobody is to be let in any more.
    fn next(&self) -> Option<Place> {
        loop {
            let mut fds = [
                PollFd::new(self.socket.listener(), PollFlags::IN),
                PollFd::new(&self.ended, PollFlags::IN),
            ];
            if poll(&mut fds, None).is_err() {
                thread::sleep(EXHAUSTED);
                continue;
            }
            let [has_come, has_ended] = fds.map(|fd| !fd.revents().is_empty());
            if has_ended {
                return None;
            }
            if has_come && let Some(place) = self.admit() {
                return Some(place);
            }
        }
    }

    fn admit(&self) -> Option<Place> {
        let stream = match self.socket.listener().accept() {
            Ok((stream, _)) => stream,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted | ErrorKind::WouldBlock
                ) =>
            {
                return None;
            }
            Err(_) => {
                thread::sleep(EXHAUSTED);
                return None;
            }
        };
        // The kernel has them of each connection.
        let uid = getsockopt(&stream, sockopt::PeerCredentials).map_or(u32::MAX, |peer| peer.uid());
        let (admitted, closed) = self.places.admit(self.persons.of(uid), stream);
        (0..closed).for_each(|_| self.counters.turned_out.add());
        admitted.map_err(|stream| self.turn_away(uid, stream)).ok()
    }

    fn turn_away(&self, uid: u32, stream: UnixStream) {
        match self.places.ends() {
            true => tell_ending(&stream),
            false => tell_busy(&stream),
        }
        self.closers.close(uid, stream);
    }

    fn attend(&self, place: &Place) {
        let _open = self.counters.connections.held();
        // Whoever breaks off has nobody left to tell.
        let _ = serve(self, place);
        let _ = place.stream().shutdown(Shutdown::Both);
    }

    /// Lets what runs end and be answered, for a time, and the log be told.
    fn finish(&self, open: UnixStream) {
        self.places.end();
        // systemd's goes on to take callers, who would hear nothing until the next daemon: these are told.
        let open = (!self.socket.close()).then_some(open);
        if !self.places.is_empty_within(FINISH_TIME) {
            self.places.close_all();
            self.places.is_empty_within(KILL_TIME);
        }
        drop(open);
        self.gate.open();
        self.executor.finish();
        self.journal.finish();
    }
}
