// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon of roster-exec: it accepts connections, reloads its policy on SIGHUP, and stops in order.
//!
//! One thread waits for signals. The others take turns: one accepts the next connection and serves it in `connection`,
//! after another thread has taken its turn. A connection therefore wakes only the thread that serves it, and delays no
//! other connection.

use super::connection::serve;
use super::exec_toml::ExecPolicy;
use super::gate::SocketAccess;
use super::resource_limits::{ConnectionSlot, ResourceLimits, send_busy, send_ending};
use super::services::ExecServices;
use super::socket::ExecSocket;
use super::subuid_owners::SubuidOwners;
use crate::exec::Executor;
use crate::man_pages;
use nix::sys::socket::{getsockopt, sockopt};
use parking_lot::Mutex;
use roster_fd_passing::deferred_close::DeferredCloser;
use roster_messages::table::commands;
use roster_messages::{CodedError, Diagnostic};
use rustix::event::{PollFd, PollFlags, poll};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt::Display;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Lookups of the C library have their own threads, so these stacks are small.
const STACK_BYTES: usize = 256 << 10;
/// Threads that wait for their turn. Further threads end after a connection.
const IDLE_MAX: usize = 32;
/// Pause after a failed system call for a descriptor.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Time for running commands after a request to stop.
const FINISH_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for commands after their connections are closed.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of the daemon.
#[derive(Debug)]
pub struct ExecDaemonOptions {
    pub policy: PathBuf,
    /// The path of the socket, unless systemd passes one.
    pub socket: PathBuf,
}

/// Reasons for which the daemon does not start.
#[derive(Debug)]
pub enum ExecDaemonError {
    /// Mistakes in the policy.
    Policy(Vec<Diagnostic>),
    /// An error of the system, possibly with a code.
    System(io::Error),
}

impl From<io::Error> for ExecDaemonError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// State of the accept loop.
struct ExecDaemon {
    services: ExecServices,
    limits: Arc<ResourceLimits>,
    closers: DeferredCloser,
    socket_access: Arc<SocketAccess>,
    socket: ExecSocket,
    /// The lock of the thread that accepts.
    accept_lock: Mutex<()>,
    /// Number of threads that wait for their turn or have it.
    idle: AtomicUsize,
    /// The other end is dropped when the daemon accepts and answers no more clients.
    end_pipe: UnixStream,
}

/// Serves clients until a signal stops the daemon. The process must have one thread.
pub fn serve_exec_clients(settings: &ExecDaemonOptions) -> Result<(), ExecDaemonError> {
    let policy = ExecPolicy::load(&settings.policy).map_err(ExecDaemonError::Policy)?;
    let handed = ExecSocket::from_systemd()?;
    let mut executor = Executor::new_for_exec_daemon(handed.as_ref().map(AsFd::as_fd))?;
    let ends = signal_pipe(&[SIGTERM, SIGINT])?;
    let reloads = signal_pipe(&[SIGHUP])?;
    executor.isolate_spawner();
    if let Some(why) = executor.isolation_error() {
        let text = format!(
            "warning: cannot isolate descriptor tables, so a client can delay commands of other clients: {why}"
        );
        log_line(&CodedError::new(&commands::SPAWN_NOT_ISOLATED, text));
    }
    let executor = Arc::new(executor);
    let socket = handed.map_or_else(|| ExecSocket::create(&settings.socket), Ok)?;
    let (ended, open) = UnixStream::pair()?;
    let persons = Arc::new(SubuidOwners::default());
    let gate = SocketAccess::new(&socket.path(&settings.socket), Arc::clone(&persons))?;
    let gate = Arc::new(gate);
    let adjusted = Arc::clone(&gate);
    let closers = DeferredCloser::new(move |pending| adjusted.adjust(pending));
    let daemon = Arc::new(ExecDaemon {
        services: ExecServices::new(policy, executor, persons)?,
        limits: ResourceLimits::new(),
        closers,
        socket_access: gate,
        socket,
        accept_lock: Mutex::default(),
        idle: AtomicUsize::new(0),
        end_pipe: ended,
    });
    daemon.log_cgroup_state();
    daemon.spawn_acceptor()?;
    notify(NotifyState::Ready);
    daemon.handle_signals(&settings.policy, &reloads, &ends);
    notify(NotifyState::Stopping);
    daemon.finish(open);
    Ok(())
}

/// Returns a pipe that becomes readable on one of the signals.
fn signal_pipe(signals: &[i32]) -> io::Result<UnixStream> {
    let (told, tells) = UnixStream::pair()?;
    told.set_nonblocking(true)?;
    for &signal in signals {
        signal_hook::low_level::pipe::register(signal, tells.try_clone()?)?;
    }
    Ok(told)
}

fn has_signal(mut pipe: &UnixStream) -> bool {
    pipe.read(&mut [0; 64]).is_ok_and(|count| count > 0)
}

/// Without systemd there is no receiver, which is not an error.
fn notify(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}

fn log_line(what: &dyn Display) {
    let _ = writeln!(io::stderr(), "{}: {what}", man_pages::invoked_program().display());
}

impl ExecDaemon {
    fn log_cgroup_state(&self) {
        match self.services.executor.cgroups() {
            Ok(path) => log_line(&format_args!(
                "commands with a timeout have cgroups in {}",
                path.display()
            )),
            Err(why) => {
                let text = format!(
                    "warning: no cgroups for commands with a timeout, so some of their processes may escape: {why}"
                );
                log_line(&CodedError::new(&commands::CGROUPS_UNAVAILABLE, text));
            }
        }
    }

    /// Handles signals until one stops the daemon.
    fn handle_signals(&self, policy: &Path, reloads: &UnixStream, ends: &UnixStream) {
        loop {
            let mut fds = [PollFd::new(reloads, PollFlags::IN), PollFd::new(ends, PollFlags::IN)];
            if !matches!(poll(&mut fds, None), Ok(_) | Err(rustix::io::Errno::INTR)) {
                return;
            }
            let [is_reload, is_end] = fds.map(|fd| !fd.revents().is_empty());
            if is_end && has_signal(ends) {
                return;
            }
            if is_reload && has_signal(reloads) {
                self.reload(policy);
            }
        }
    }

    /// Reads the policy again. With mistakes, the old policy stays.
    fn reload(&self, path: &Path) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            let _ = sd_notify::notify(&[NotifyState::Reloading, now]);
        }
        match ExecPolicy::load(path) {
            Ok(policy) => {
                log_line(&format_args!(
                    "{}: policy reloaded, rules: {}",
                    path.display(),
                    policy.rules.len()
                ));
                self.services.replace_policy(policy);
            }
            Err(problems) => {
                problems.iter().for_each(|problem| log_line(problem));
                let text = format!("{}: the old policy stays in force", path.display());
                log_line(&CodedError::new(&commands::RELOAD_FAILED, text));
            }
        }
        notify(NotifyState::Ready);
    }

    /// Starts another thread that takes turns.
    fn spawn_acceptor(self: &Arc<Self>) -> io::Result<()> {
        self.idle.fetch_add(1, Ordering::Relaxed);
        let daemon = Arc::clone(self);
        let thread = thread::Builder::new().stack_size(STACK_BYTES).name("connection".into());
        let opened = thread.spawn(move || daemon.run_accept_loop());
        if opened.is_err() {
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
        opened.map(drop)
    }

    fn run_accept_loop(self: &Arc<Self>) {
        loop {
            let turn = self.accept_lock.lock();
            let came = self.next_connection();
            drop(turn);
            let idle = self.idle.fetch_sub(1, Ordering::Relaxed) - 1;
            let Some(place) = came else { return };
            // Without another thread the next connection waits until this one ends.
            let _ = if idle == 0 { self.spawn_acceptor() } else { Ok(()) };
            self.serve_connection(&place);
            drop(place);
            if self.idle.fetch_add(1, Ordering::Relaxed) >= IDLE_MAX {
                self.idle.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Returns the next admitted connection. `None`: the daemon is stopping.
    fn next_connection(&self) -> Option<ConnectionSlot> {
        loop {
            let mut fds = [
                PollFd::new(self.socket.listener(), PollFlags::IN),
                PollFd::new(&self.end_pipe, PollFlags::IN),
            ];
            if poll(&mut fds, None).is_err() {
                thread::sleep(RETRY_PAUSE);
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

    fn admit(&self) -> Option<ConnectionSlot> {
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
                thread::sleep(RETRY_PAUSE);
                return None;
            }
        };
        // The kernel has the credentials of each connection.
        let uid = getsockopt(&stream, sockopt::PeerCredentials).map_or(u32::MAX, |peer| peer.uid());
        let (admitted, closed) =
            self.limits.admit(self.services.subuid_owners.find_owner(uid), stream);
        (0..closed).for_each(|_| self.services.counters.evicted.add());
        admitted.map_err(|stream| self.reject(uid, stream)).ok()
    }

    fn reject(&self, uid: u32, stream: UnixStream) {
        match self.limits.is_ending() {
            true => send_ending(&stream),
            false => send_busy(&stream),
        }
        self.closers.close(uid, stream);
    }

    fn serve_connection(&self, place: &ConnectionSlot) {
        let _open = self.services.counters.connections.hold();
        // A client that breaks the connection gets no reply.
        let _ = serve(&self.services, place);
        let _ = place.stream().shutdown(Shutdown::Both);
    }

    /// Waits for running commands and their replies, for a time, and for the journal.
    fn finish(&self, open: UnixStream) {
        self.limits.stop_admission();
        // The socket of systemd continues to accept clients. They get a reply until this daemon has ended.
        let open = (!self.socket.close()).then_some(open);
        if !self.limits.is_empty_within(FINISH_TIMEOUT) {
            self.limits.close_all();
            self.limits.is_empty_within(KILL_TIMEOUT);
        }
        drop(open);
        self.socket_access.open();
        self.services.executor.finish();
        self.services.journal.finish();
    }
}
