// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server. It sends maps to clients, answers requests over the socket, rebuilds maps after changes, and queries
//! helpers for other entries. `dispatch` answers, `map_rebuild` rebuilds, and `helper_pool` has the helpers.
//!
//! One thread handles all events, and another builds maps. A new map replaces the old one between two events, so that
//! no client reads the old state after the new one. A client gets its reply as soon as its request is complete, and
//! within 4 seconds at most.

mod admin_requests;
pub mod connections;
mod dispatch;
pub mod drop_privileges;
mod file_watch;
pub mod helper_pool;
mod map_files;
mod map_rebuild;
pub mod map_sources;
mod setup;
pub mod socket;
mod socket_backlog;
mod statistics;
mod table_state;
pub mod unmapped_clients;

use crate::nsswitch::ServiceLines;
use crate::protocol::Table;
use crate::starter::Starter;
use connections::{Connections, connections_max, reserve_descriptors};
use file_watch::FileWatch;
use helper_pool::HelperPool;
use map_files::{RetiredMap, TableMaps, parse_file_name};
use map_rebuild::{CheckReason, MapRebuild};
use map_sources::{SourceFiles, SourceState};
use roster_fd_passing::{deferred_close, refuse_descriptors};
use roster_messages::Message;
use roster_messages::table::tools;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;
use setup::{ServerSetup, read_only_mount_point};
use statistics::Statistics;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use table_state::{BuildOutcome, Tables};
use unmapped_clients::UnmappedClients;

/// Interval of attempts to use the map directory.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of the periodic check of files.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of timestamp updates in maps: clients look for another map after 5 minutes.
const TOUCH_INTERVAL: Duration = Duration::from_secs(60);
/// Directory of maps, a dedicated file system: clients that hold old maps cannot fill another one.
pub const MAPS_DIR: &str = "/run/roster-nscd";
/// Maximum number of events per round.
const EVENTS_MAX: usize = 64;

const LISTENER: u64 = 0;
const WATCH: u64 = 1;
const STOP: u64 = 2;
const BUILDER: u64 = 3;
const STARTER: u64 = 4;
const HELPERS: u64 = 1 << 62;

/// Options of a server.
pub struct ServerOptions {
    /// Listening socket for clients.
    pub listener: OwnedFd,
    /// Directory of maps, private to the server's user.
    pub maps: PathBuf,
    /// Uid that may send admin requests, besides root: the user that started the server.
    pub administrator: u32,
    /// Sources of maps.
    pub files: SourceFiles,
    /// Bytes in each map for replies of other services.
    pub cache_bytes: usize,
    /// Time to live of a reply of another service.
    pub positive_ttl: Duration,
    /// Time to live of a negative reply.
    pub negative_ttl: Duration,
    /// Stops the server when it becomes readable or is closed.
    pub stop: OwnedFd,
    /// Receives log messages.
    pub log: Box<dyn Fn(&str) + Send>,
    /// Called at least every ten seconds while the server's loop runs.
    pub on_progress: Box<dyn Fn() + Send>,
    /// Called when the first maps are available, or have failed.
    pub ready: Box<dyn FnOnce() + Send>,
}

/// Reasons that the server stops or cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The map directory cannot be used.
    #[error("{path}: cannot keep maps: {problem}")]
    MapDir {
        /// Path of the directory.
        path: PathBuf,
        /// Problem of the directory.
        problem: MapDirProblem,
    },
    /// The starter exited, so no helper can be started.
    #[error("the process that starts helpers has ended")]
    NoStarter,
    /// A system call failed.
    #[error("fatal I/O error")]
    System(#[from] io::Error),
}

/// Problems of the map directory.
#[derive(Debug, thiserror::Error)]
pub enum MapDirProblem {
    /// A system call failed.
    #[error("{0}")]
    System(io::Error),
    /// The directory belongs to another user, or others have access.
    #[error("this user must own it, with mode 0700")]
    Access,
    /// Another server uses the directory.
    #[error("another server has locked it")]
    Locked,
}

impl ServerError {
    /// Returns the code of the error.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::MapDir { problem: MapDirProblem::System(_), .. } => &tools::NSCD_MAP_DIR_UNUSABLE,
            Self::MapDir { problem: MapDirProblem::Access, .. } => &tools::NSCD_MAP_DIR_ACCESS,
            Self::MapDir { problem: MapDirProblem::Locked, .. } => &tools::NSCD_MAP_DIR_LOCKED,
            Self::NoStarter => &tools::NSCD_STARTER_ENDED,
            Self::System(_) => &tools::NSCD_SYSTEM_ERROR,
        }
    }
}

/// Serves until it is stopped. `starter` starts its helpers.
///
/// # Errors
///
/// A system call failed, or the starter exited. While the map directory is unusable, the server redirects all clients
/// instead.
pub fn run(mut options: ServerOptions, starter: Starter) -> Result<(), ServerError> {
    rustix::io::ioctl_fionbio(&options.listener, true).map_err(io::Error::from)?;
    // Clients have no descriptors to send. Older kernels accept some, which are closed without a wait.
    let _ = refuse_descriptors(&options.listener);
    let mut ready = Some(std::mem::replace(&mut options.ready, Box::new(|| {})));
    let ground = loop {
        let error = match ServerSetup::new(&options, &starter) {
            Ok(ground) => break ground,
            Err(error) => error,
        };
        // Logged once, because this can last.
        if let Some(ready) = ready.take() {
            let text = format!("clients use their name services: {}", with_causes(&error));
            (options.log)(&fault_text(error.message(), &text));
            ready();
        }
        (options.on_progress)();
        if redirect_clients(options.listener.as_fd(), Some(options.stop.as_fd()), RETRY_INTERVAL)? {
            return Ok(());
        }
    };
    options.ready = ready.unwrap_or_else(|| Box::new(|| {}));
    Server::new(options, ground, starter).run()
}

/// Redirects all clients to their name services for a while. A client that is not accepted would wait 5 seconds, in
/// each program again. Returns true early when `stop` becomes readable or is closed.
///
/// # Errors
///
/// A system call failed.
pub fn redirect_clients(
    listener: BorrowedFd<'_>,
    stop: Option<BorrowedFd<'_>>,
    pause: Duration,
) -> io::Result<bool> {
    rustix::io::ioctl_fionbio(listener, true)?;
    let end = Instant::now() + pause;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let of = |socket| PollFd::from_borrowed_fd(socket, PollFlags::IN);
        let mut sockets = vec![of(listener)];
        sockets.extend(stop.map(of));
        match poll(&mut sockets, Some(&timespec(left))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if sockets.get(1).is_some_and(|stop| !stop.revents().is_empty()) {
            return Ok(true);
        }
        deferred_close::begin_round();
        while let Ok(Some(_)) = socket::accept(listener) {}
        deferred_close::end_round();
    }
}

struct Server {
    options: ServerOptions,
    ready: Option<Box<dyn FnOnce() + Send>>,
    poll: Arc<OwnedFd>,
    watch: FileWatch,
    map_dir: MapDir,
    tables: Tables,
    helpers: HelperPool,
    connections: Connections,
    sources: SourceState,
    rebuild: MapRebuild,
    statistics: Statistics,
    unmapped_clients: UnmappedClients,
    /// The last logged error of sending a map.
    handover_error: Option<ErrorKind>,
    is_shutting_down: bool,
}

/// The locked map directory.
struct MapDir {
    _lock: OwnedFd,
    /// The same directory through a read-only mount.
    read_only: Option<OwnedFd>,
    /// Number of the last map file.
    last_number: u64,
}

impl Server {
    fn new(mut options: ServerOptions, ground: ServerSetup, starter: Starter) -> Self {
        let ServerSetup {
            lock,
            poll,
            watch,
            wakeup: bell,
            is_shared,
            read_only,
            inherited_maps: left,
        } = ground;
        let is_sealed = read_only.is_some();
        let poll = Arc::new(poll);
        let max = connections_max();
        reserve_descriptors(max, poll.as_fd());
        let connections = Connections::new(Arc::clone(&poll), max);
        let sources = SourceState::new(&options.files);
        let services = sources.lines.as_ref().map(services).unwrap_or_default();
        let helpers = HelperPool::new(starter, services);
        let now = Instant::now();
        let ready = std::mem::replace(&mut options.ready, Box::new(|| {}));
        let mut server = Self {
            ready: Some(ready),
            poll,
            watch,
            map_dir: MapDir { _lock: lock, read_only, last_number: 1 },
            tables: Tables::default(),
            helpers,
            connections,
            sources,
            rebuild: MapRebuild::new(bell, now),
            statistics: Statistics {
                shared_filesystem: is_shared.then(|| options.maps.clone()),
                missing_read_only_mount: read_only_mount_point(&options.maps)
                    .filter(|_| !is_sealed),
                ..Statistics::default()
            },
            unmapped_clients: UnmappedClients::default(),
            handover_error: None,
            is_shutting_down: false,
            options,
        };
        server.adopt_maps(left, now);
        server
    }

    /// Adopts the maps of an earlier server. Their readers are notified when new maps exist.
    fn adopt_maps(&mut self, left: Vec<PathBuf>, now: Instant) {
        for path in left {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some((table, number)) = parse_file_name(name) else { continue };
            self.map_dir.last_number = self.map_dir.last_number.max(number + 1);
            match RetiredMap::open(&path, now) {
                Ok(left) => self.maps(table).retired.push(left),
                // An unfinished map.
                Err(_) => _ = std::fs::remove_file(&path),
            }
        }
    }

    fn maps(&mut self, table: Table) -> &mut TableMaps {
        &mut self.tables.get_mut(table).maps
    }

    fn log(&self, text: &str) {
        (self.options.log)(text);
    }

    fn log_fault(&self, message: &Message, text: &str) {
        self.log(&fault_text(message, text));
    }

    fn run(mut self) -> Result<(), ServerError> {
        let start = Instant::now();
        let mut rounds =
            PeriodicDeadlines { check: start + CHECK_INTERVAL, touch: start + TOUCH_INTERVAL };
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let wake = self.run_due_tasks(&mut rounds, Instant::now());
            // Wakes slightly late, because an early wake-up would cause a second one.
            let pause = wake.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            deferred_close::end_round();
            match epoll::wait(&*self.poll, room, Some(&timespec(pause))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            deferred_close::begin_round();
            if let Some(end) = self.handle_events(&events, Instant::now()) {
                return end;
            }
        }
    }

    /// Performs due tasks. Returns the time of the next one.
    fn run_due_tasks(&mut self, rounds: &mut PeriodicDeadlines, now: Instant) -> Instant {
        if rounds.check <= now {
            rounds.check = now + CHECK_INTERVAL;
            (self.options.on_progress)();
            self.watch.refresh();
            self.check_files(CheckReason::Periodic);
        }
        if rounds.touch <= now {
            rounds.touch = now + TOUCH_INTERVAL;
            self.touch();
            // A failed build may succeed now, for example with more free memory.
            for table in Table::ALL {
                let has_problem = self.statistics.table(table).problem.is_some();
                if has_problem && self.tables.get(table).outcome != BuildOutcome::TooLarge {
                    self.rebuild.dirty.insert(table);
                }
            }
        }
        if self.rebuild.retry_at.is_some_and(|due| due <= now) {
            self.rebuild.retry_at = None;
            let failed = |table: &Table| self.tables.get(*table).outcome == BuildOutcome::Failed;
            self.rebuild.dirty.extend(Table::ALL.into_iter().filter(failed));
        }
        let mut wake =
            self.rebuild.retry_at.into_iter().fold(rounds.check.min(rounds.touch), Instant::min);
        for table in Table::ALL {
            let maps = self.maps(table);
            let due = [maps.tick(now), maps.current.as_mut().and_then(|map| map.live.expire(now))];
            wake = due.into_iter().flatten().fold(wake, Instant::min);
        }
        let (late, due) = self.helpers.tick(now);
        late.into_iter().for_each(|done| self.handle_helper_result(done, now));
        self.dispatch(now);
        wake = due.into_iter().fold(wake, Instant::min);
        wake = self.connections.close_expired(now).map_or(wake, |until| wake.min(until));
        if !self.rebuild.dirty.is_empty() && self.rebuild.building.is_empty() {
            if self.rebuild.not_before <= now {
                self.build();
            } else {
                wake = wake.min(self.rebuild.not_before);
            }
        }
        wake
    }

    /// Handles events. Returns the result of the server if it ends.
    fn handle_events(
        &mut self,
        events: &[epoll::Event],
        now: Instant,
    ) -> Option<Result<(), ServerError>> {
        // File events first, because they affect the replies to later events.
        if events.iter().any(|event| event.data.u64() == WATCH) {
            self.handle_watch_events();
        }
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept(now),
                WATCH => {}
                STOP => return Some(Ok(())),
                STARTER => return Some(Err(ServerError::NoStarter)),
                BUILDER => self.install_maps(now),
                token if token >= HELPERS => {
                    if let Some(done) = self.helpers.read_reply(token - HELPERS, now) {
                        self.handle_helper_result(done, now);
                    }
                }
                token => self.handle_readable(token, now),
            }
        }
        self.is_shutting_down.then_some(Ok(()))
    }

    fn accept(&mut self, now: Instant) {
        // Bounded, so that a burst of new connections does not delay others.
        for _ in 0..EVENTS_MAX {
            match socket::accept(&self.options.listener) {
                Ok(Some((socket, peer))) => {
                    let Some(token) = self.connections.accept(socket, peer, now) else { continue };
                    // Most clients send their request at once and need no epoll registration.
                    self.handle_readable(token, now);
                    self.connections.poll(token);
                }
                Ok(None) => return,
                Err(_) => {
                    self.connections.evict_one();
                    return;
                }
            }
        }
    }

    fn touch(&mut self) {
        for table in Table::ALL {
            if let Some(current) = &mut self.maps(table).current {
                current.touch();
            }
        }
    }

    fn collect_statistics(&mut self) {
        for table in Table::ALL {
            let maps = self.maps(table);
            let before = maps.retired.len();
            let current = maps.current.as_ref();
            let of_map =
                current.map(|map| (map.entries, map.bytes, map.build_time, map.live.added()));
            let figures = self.statistics.table(table);
            figures.retired = before;
            figures.entries = of_map.map(|(entries, ..)| entries);
            if let Some((_, bytes, took, added)) = of_map {
                (figures.bytes, figures.build_time, figures.added) = (bytes, took, added);
            }
        }
        self.statistics.connections = self.connections.len();
        (self.statistics.replies, self.statistics.dropped) =
            (self.connections.replies, self.connections.dropped);
        self.statistics.helper_queries = self.helpers.queries_sent;
    }
}

struct PeriodicDeadlines {
    check: Instant,
    touch: Instant,
}

fn timespec(pause: Duration) -> Timespec {
    let seconds = i64::try_from(pause.as_secs()).unwrap_or(1);
    Timespec { tv_sec: seconds, tv_nsec: pause.subsec_nanos().into() }
}

fn add(poll: &OwnedFd, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
    let event = epoll::EventData::new_u64(token);
    match epoll::add(poll, socket, event, epoll::EventFlags::IN) {
        // A connection with a partial reply is registered already.
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the services for a helper.
fn services(lines: &ServiceLines) -> [OsString; 3] {
    let initgroups = if lines.has_initgroups { &*lines.initgroups.text } else { "" };
    [&*lines.passwd.text, &*lines.group.text, initgroups].map(OsString::from)
}

/// Formats a fault for the log, with the fix of the table and the code.
fn fault_text(message: &Message, text: &str) -> String {
    format!("{text}. {} [{}]", message.fix, message.code)
}

/// Formats an error with its causes.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::fs::{self, File, Permissions};
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::sync::mpsc::{self, Receiver};
    use std::thread::{self, JoinHandle};

    /// Limit of a wait for a message, on a busy machine.
    const LOGGED_WITHIN: Duration = Duration::from_secs(60);

    /// A server in a thread.
    struct TestServer {
        log: Receiver<String>,
        stop: UnixStream,
        _starter: UnixStream,
        thread: JoinHandle<Result<(), ServerError>>,
    }

    impl TestServer {
        fn start(options: impl FnOnce(UnixStream, mpsc::Sender<String>) -> ServerOptions) -> Self {
            let (stop, stopped) = UnixStream::pair().unwrap();
            let (sender, log) = mpsc::channel();
            let options = options(stopped, sender);
            let (starter, other) = Starter::with_socket();
            let thread = thread::spawn(move || run(options, starter));
            Self { log, stop, _starter: other, thread }
        }

        /// Waits until the server logs the code, and stops it.
        fn assert_logs(self, message: &Message) {
            let code = format!("[{}]", message.code);
            let mut logged = Vec::new();
            while !logged.last().is_some_and(|text: &String| text.contains(&code)) {
                match self.log.recv_timeout(LOGGED_WITHIN) {
                    Ok(text) => logged.push(text),
                    Err(error) => panic!("{message}: {error}: {logged:?}"),
                }
            }
            drop(self.stop);
            self.thread.join().unwrap().unwrap();
        }
    }

    /// Options of a server in a directory with a local user.
    fn options(folder: &Path, stop: UnixStream, log: mpsc::Sender<String>) -> ServerOptions {
        let path = |name: &str| folder.join(name);
        fs::write(path("passwd"), "root:x:0:0:::\n").unwrap();
        fs::write(path("group"), "root:x:0:\n").unwrap();
        let lines = "passwd: files roster\ngroup: files roster\n";
        fs::write(path("nsswitch.conf"), lines).unwrap();
        let files = SourceFiles {
            passwd: path("passwd"),
            group: path("group"),
            nsswitch: path("nsswitch.conf"),
            snapshot: path("roster.snap"),
        };
        ServerOptions {
            listener: socket::listen_at(&path("socket")).unwrap(),
            maps: path("maps"),
            administrator: 0,
            files,
            cache_bytes: 64 << 10,
            positive_ttl: Duration::from_secs(30),
            negative_ttl: Duration::from_secs(30),
            stop: stop.into(),
            log: Box::new(move |text| drop(log.send(text.to_owned()))),
            on_progress: Box::new(|| {}),
            ready: Box::new(|| {}),
        }
    }

    fn replace_by_directory(path: &Path) {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }

    #[test]
    fn nscd_faults_are_logged_with_codes() {
        type Prepare = fn(&mut ServerOptions) -> Option<File>;
        let table: [(Prepare, &Message); 7] = [
            (
                |options| {
                    options.maps = options.maps.join("none/maps");
                    None
                },
                &tools::NSCD_MAP_DIR_UNUSABLE,
            ),
            (
                |options| {
                    fs::create_dir(&options.maps).unwrap();
                    fs::set_permissions(&options.maps, Permissions::from_mode(0o755)).unwrap();
                    None
                },
                &tools::NSCD_MAP_DIR_ACCESS,
            ),
            (
                |options| {
                    fs::create_dir(&options.maps).unwrap();
                    fs::set_permissions(&options.maps, Permissions::from_mode(0o700)).unwrap();
                    let folder = File::open(&options.maps).unwrap();
                    flock(&folder, FlockOperation::LockExclusive).unwrap();
                    Some(folder)
                },
                &tools::NSCD_MAP_DIR_LOCKED,
            ),
            (
                |options| {
                    // epoll(7) rejects regular files.
                    options.listener = File::open(&options.files.passwd).unwrap().into();
                    None
                },
                &tools::NSCD_SYSTEM_ERROR,
            ),
            (
                |options| {
                    replace_by_directory(&options.files.nsswitch);
                    None
                },
                &tools::NSCD_SERVICES_UNREADABLE,
            ),
            (
                |options| {
                    replace_by_directory(&options.files.passwd);
                    None
                },
                &tools::NSCD_SOURCE_INVALID,
            ),
            (
                |options| {
                    fs::write(&options.files.snapshot, "text").unwrap();
                    None
                },
                &tools::NSCD_SNAPSHOT_UNUSABLE,
            ),
        ];
        for (prepare, message) in table {
            let folder = tempfile::tempdir().unwrap();
            let mut held = None;
            let server = TestServer::start(|stop, log| {
                let mut options = options(folder.path(), stop, log);
                held = prepare(&mut options);
                options
            });
            server.assert_logs(message);
        }
    }

    #[test]
    fn nscd_map_for_closed_client_has_code() {
        let folder = tempfile::tempdir().unwrap();
        let server = TestServer::start(|stop, log| options(folder.path(), stop, log));
        let mut client = UnixStream::connect(folder.path().join("socket")).unwrap();
        client.shutdown(Shutdown::Read).unwrap();
        // GETFDPW of nscd's protocol.
        let mut request = crate::protocol::bytes(&[crate::protocol::VERSION, 11, 7]);
        request.extend_from_slice(b"passwd\0");
        client.write_all(&request).unwrap();
        server.assert_logs(&tools::NSCD_MAP_NOT_SENT);
    }

    #[test]
    fn nscd_without_starter_ends_with_code() {
        let folder = tempfile::tempdir().unwrap();
        let (_stop, stopped) = UnixStream::pair().unwrap();
        let (log, _logged) = mpsc::channel();
        let options = options(folder.path(), stopped, log);
        let error = run(options, Starter::without_process()).unwrap_err();
        assert_eq!(error.message(), &tools::NSCD_STARTER_ENDED, "{error}");
    }
}
