//! The server: hands maps out, answers what is asked over the socket, has maps made when what they are
//! made of changes, and asks helpers for what no map has.
//!
//! One thread that waits for nothing but the next event; maps are made by another. A map takes the place
//! of the one before between two events, so that nobody is told of the new one and then of the old.
//! Whoever connects is answered as soon as the question is there, and is gone within 4 seconds.

pub mod figures;
pub mod helpers;
mod maps;
pub mod socket;
pub mod sources;
mod watch;

use crate::host::Answer;
use crate::live::{Said, find};
use crate::map::MapError;
use crate::nsswitch::Lines;
use crate::protocol::{self, Kind, Parsed, Request, Table};
use figures::Figures;
use helpers::{Done, Helpers, Program};
use maps::{Current, Maps, Retired, file_name, parse_file_name};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::Resource;
use sources::{BuildError, Built, Files, Stamps, affected, stamps};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};
use watch::Watch;

/// How long a client may take to ask, and to be answered: glibc waits 5 s.
const ASKING: Duration = Duration::from_secs(2);
const ANSWERING: Duration = Duration::from_secs(4);
/// How long root may wait for a new map.
const MAKING: Duration = Duration::from_secs(60);
/// Connections at once; who has not asked goes first.
const CONNECTIONS_MAX: usize = 2048;
/// Maps on their way to one user who is not root, as many as he does not take: the system counts them.
const HANDED_MAX: usize = 64;
/// How long such a one is counted.
const HANDED: Duration = Duration::from_secs(3600);
/// Descriptors for all else.
const OTHER_DESCRIPTORS: u64 = 128;
/// How long until it is tried again to take the folder of maps.
const TRIED_AGAIN: Duration = Duration::from_secs(5);
/// How often files are looked at although nothing was heard.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often maps are told that the server is there: clients look for another after 5 minutes.
const TOUCH_EVERY: Duration = Duration::from_secs(60);
/// A file that was written a moment ago may be half written.
const SETTLED: Duration = Duration::from_secs(1);
/// The longest pause between two maps.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Longest request.
const REQUEST_BYTES_MAX: usize = protocol::REQUEST_HEADER_BYTES + protocol::KEY_BYTES_MAX;
/// Events at a time.
const EVENTS_MAX: usize = 64;

const LISTENER: u64 = 0;
const WATCH: u64 = 1;
const STOP: u64 = 2;
const BUILDER: u64 = 3;
const FIRST_CONNECTION: u64 = 16;
const HELPERS: u64 = 1 << 62;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something is not as it should be.
    Warning,
    /// It may be good to know.
    Info,
}

/// Says something to people.
pub type Say = Box<dyn Fn(Level, &str) + Send>;

/// What a server runs by.
pub struct Options {
    /// Where clients connect.
    pub listener: OwnedFd,
    /// The folder of maps, its user's alone.
    pub maps: PathBuf,
    /// What maps are made of.
    pub files: Files,
    /// How long the answer of another service is good.
    pub positive: Duration,
    /// How long it is good that there is no answer.
    pub negative: Duration,
    /// What becomes a helper.
    pub helper: Program,
    /// Ends the server when it can be read or was closed.
    pub stop: OwnedFd,
    /// Figures for whoever asks.
    pub figures: Arc<Mutex<Figures>>,
    /// Where to say what happens.
    pub say: Say,
    /// Called when the first maps are there, or cannot be.
    pub ready: Box<dyn FnOnce() + Send>,
}

/// Why a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was stopped.
    Stopped,
    /// Root said so over the socket.
    ToldTo,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The folder of maps.
    #[error("cannot keep maps in {path}: {why}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The system refuses something.
    #[error("cannot go on")]
    System(#[from] io::Error),
}

/// Serves until it is stopped.
///
/// # Errors
///
/// The system refuses what it should not. Where maps cannot be kept everybody is sent away until they can.
pub fn run(mut options: Options) -> Result<End, ServerError> {
    rustix::io::ioctl_fionbio(&options.listener, true).map_err(io::Error::from)?;
    let mut ready = Some(std::mem::replace(&mut options.ready, Box::new(|| {})));
    let ground = loop {
        let error = match Ground::new(&options) {
            Ok(ground) => break ground,
            Err(error) => error,
        };
        // Once: it may go on for long.
        if let Some(ready) = ready.take() {
            let error = in_full(&error);
            let text = format!("{error}; programs ask their name services, and it is tried again");
            (options.say)(Level::Warning, &text);
            ready();
        }
        if refuse(&options, TRIED_AGAIN)? {
            return Ok(End::Stopped);
        }
    };
    options.ready = ready.unwrap_or_else(|| Box::new(|| {}));
    Server::new(options, ground).run()
}

/// Sends everybody away for a while: who is not accepted waits for 5 seconds, in every program anew. Gives
/// whether the server is to stop.
fn refuse(options: &Options, pause: Duration) -> io::Result<bool> {
    let end = Instant::now() + pause;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let left = rustix::time::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(1),
            tv_nsec: left.subsec_nanos().into(),
        };
        let of = |socket| PollFd::from_borrowed_fd(socket, PollFlags::IN);
        let mut sockets = [of(options.listener.as_fd()), of(options.stop.as_fd())];
        match poll(&mut sockets, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !sockets[1].revents().is_empty() {
            return Ok(true);
        }
        while let Ok(Some(_)) = socket::accept(&options.listener) {}
    }
}

/// What the system has to give before anything can be served.
struct Ground {
    lock: OwnedFd,
    poll: OwnedFd,
    watch: Watch,
    bell: (UnixStream, UnixStream),
    /// Maps of a server before.
    left: Vec<PathBuf>,
}

impl Ground {
    fn new(options: &Options) -> Result<Self, ServerError> {
        let lock = take_folder(&options.maps)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let watch = Watch::new(&options.files.paths())?;
        let bell = UnixStream::pair()?;
        bell.0.set_nonblocking(true)?;
        bell.1.set_nonblocking(true)?;
        add(&poll, options.listener.as_fd(), LISTENER)?;
        add(&poll, watch.as_fd(), WATCH)?;
        add(&poll, options.stop.as_fd(), STOP)?;
        add(&poll, bell.0.as_fd(), BUILDER)?;
        let left = std::fs::read_dir(&options.maps)?.map(|entry| Ok(entry?.path()));
        let left = left.collect::<io::Result<_>>()?;
        Ok(Self { lock, poll, watch, bell, left })
    }
}

enum State {
    /// The question is not all there.
    Asking,
    /// For a helper.
    Waiting(Kind),
    /// For the first map of a table, which the question asked for with this key.
    ForMap(Table, Vec<u8>),
    /// For more attempts than that to make a map of a table.
    ForNewer(Table, u64),
    /// What is left of the answer, which others may be told as well.
    Sending(Arc<[u8]>, usize),
    /// Was handed a map: it is on its way, and counts as this server's, until the other end hangs up.
    Handed,
}

struct Connection {
    socket: OwnedFd,
    uid: u32,
    heard: Vec<u8>,
    state: State,
    until: Instant,
}

/// What came of making maps of the files with those stamps.
type Made = (Stamps, Vec<(Table, Result<Built, BuildError>)>);

struct Server {
    options: Options,
    ready: Option<Box<dyn FnOnce() + Send>>,
    poll: OwnedFd,
    watch: Watch,
    _lock: OwnedFd,
    passwd: Maps,
    group: Maps,
    helpers: Helpers,
    connections: HashMap<u64, Connection>,
    deadlines: BTreeSet<(Instant, u64)>,
    connections_max: usize,
    next_token: u64,
    next_file: u64,
    stamps: Stamps,
    lines: Lines,
    dirty: BTreeSet<Table>,
    /// To be made after those.
    later: BTreeSet<Table>,
    /// Maps that a thread makes now.
    building: BTreeSet<Table>,
    /// How often one was made, or could not be.
    attempts: [u64; 2],
    /// Those of which the last one could not be.
    failed: BTreeSet<Table>,
    not_before: Instant,
    results: (mpsc::Sender<Made>, mpsc::Receiver<Made>),
    /// A byte comes out of the first when a result is there.
    bell: (UnixStream, UnixStream),
    figures: Figures,
    told: [Option<String>; 2],
    /// Of these there can be no map until what they are made of is smaller.
    too_large: BTreeSet<Table>,
    /// Why a map could not be handed over, if that was told.
    refused: Option<ErrorKind>,
    own_uid: u32,
    is_told_to_end: bool,
}

impl Server {
    fn new(mut options: Options, ground: Ground) -> Self {
        let Ground { lock, poll, watch, bell, left } = ground;
        let lines = sources::lines(&options.files);
        let helpers = Helpers::new(options.helper.clone(), services(&lines));
        let now = Instant::now();
        let ready = std::mem::replace(&mut options.ready, Box::new(|| {}));
        let mut server = Self {
            ready: Some(ready),
            poll,
            watch,
            _lock: lock,
            passwd: Maps::default(),
            group: Maps::default(),
            helpers,
            connections: HashMap::new(),
            deadlines: BTreeSet::new(),
            connections_max: connections_max(),
            next_token: FIRST_CONNECTION,
            next_file: 1,
            stamps: stamps(&options.files),
            lines,
            dirty: Table::ALL.into_iter().collect(),
            later: BTreeSet::new(),
            building: BTreeSet::new(),
            attempts: [0; 2],
            failed: BTreeSet::new(),
            not_before: now,
            results: mpsc::channel(),
            bell,
            figures: Figures::default(),
            told: [None, None],
            too_large: BTreeSet::new(),
            refused: None,
            own_uid: rustix::process::geteuid().as_raw(),
            is_told_to_end: false,
            options,
        };
        server.take_over(left, now);
        server
    }

    /// Finds the maps of a server before this one: their readers are told when there are new ones.
    fn take_over(&mut self, left: Vec<PathBuf>, now: Instant) {
        for path in left {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some((table, number)) = parse_file_name(name) else { continue };
            self.next_file = self.next_file.max(number + 1);
            match Retired::open(&path, now) {
                Ok(left) => self.maps(table).retired.push(left),
                // One that was not finished.
                Err(_) => _ = std::fs::remove_file(&path),
            }
        }
    }

    fn maps(&mut self, table: Table) -> &mut Maps {
        match table {
            Table::Passwd => &mut self.passwd,
            Table::Group => &mut self.group,
        }
    }

    fn say(&self, level: Level, text: &str) {
        (self.options.say)(level, text);
    }

    fn run(mut self) -> Result<End, ServerError> {
        let start = Instant::now();
        let (mut next_look, mut next_touch) = (start + LOOK_EVERY, start + TOUCH_EVERY);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let now = Instant::now();
            if next_look <= now {
                next_look = now + LOOK_EVERY;
                self.watch.renew();
                self.look(true);
            }
            if next_touch <= now {
                next_touch = now + TOUCH_EVERY;
                self.touch();
                // What could not be made may be made now: there may be memory again.
                for table in Table::ALL {
                    let has_problem = self.figures.table(table).problem.is_some();
                    if has_problem && !self.too_large.contains(&table) {
                        self.dirty.insert(table);
                    }
                }
            }
            let mut wake = next_look.min(next_touch);
            for table in Table::ALL {
                let maps = self.maps(table);
                let due =
                    [maps.tick(now), maps.current.as_mut().and_then(|map| map.live.expire(now))];
                wake = due.into_iter().flatten().fold(wake, Instant::min);
            }
            let (late, due) = self.helpers.tick(now);
            late.into_iter().for_each(|done| self.helped(done, now));
            self.dispatch(now);
            wake = due.into_iter().fold(wake, Instant::min);
            self.close_late(now);
            wake = self.deadlines.first().map_or(wake, |&(until, _)| wake.min(until));
            if !self.dirty.is_empty() && self.building.is_empty() {
                if self.not_before <= now {
                    self.build();
                } else {
                    wake = wake.min(self.not_before);
                }
            }
            self.publish_figures();
            // A little later rather than a little earlier, which would be once more.
            let pause = wake.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            let pause = rustix::time::Timespec {
                tv_sec: i64::try_from(pause.as_secs()).unwrap_or(1),
                tv_nsec: pause.subsec_nanos().into(),
            };
            events.clear();
            match epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&pause))
            {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            let now = Instant::now();
            // News first: what is answered next goes by them.
            if events.iter().any(|event: &epoll::Event| event.data.u64() == WATCH) {
                self.hear_news();
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(now),
                    WATCH => {}
                    STOP => return Ok(End::Stopped),
                    BUILDER => self.built(now),
                    token if token >= HELPERS => {
                        if let Some(done) = self.helpers.hear(token - HELPERS, now) {
                            self.helped(done, now);
                        }
                    }
                    token => self.served(token, now),
                }
            }
            if self.is_told_to_end {
                return Ok(End::ToldTo);
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

    fn publish_figures(&mut self) {
        for table in Table::ALL {
            let maps = self.maps(table);
            let before = maps.retired.len();
            let current = maps.current.as_ref();
            let of_map = current.map(|map| (map.entries, map.bytes, map.took, map.live.added()));
            let figures = self.figures.table(table);
            figures.before = before;
            figures.entries = of_map.map(|(entries, ..)| entries);
            if let Some((_, bytes, took, added)) = of_map {
                (figures.bytes, figures.took, figures.added) = (bytes, took, added);
            }
        }
        self.figures.connections = self.connections.len();
        self.figures.helped = self.helpers.questions;
        let mut shown = self.options.figures.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown != self.figures {
            shown.clone_from(&self.figures);
        }
    }

    fn hear_news(&mut self) {
        let news = self.watch.news();
        if news.files {
            self.watch.renew();
            self.look(false);
        }
        if news.others {
            self.forget();
        }
    }

    /// What other services said may not be so any more.
    fn forget(&mut self) {
        let now = Instant::now();
        self.helpers.outdate();
        for table in Table::ALL {
            if let Some(current) = &mut self.maps(table).current
                && current.live.added() > 0
            {
                current.live.empty(now);
            }
        }
    }

    /// Looks which files are others than before. `unasked` where nothing was heard of them: one that
    /// somebody is writing is left for later.
    fn look(&mut self, unasked: bool) {
        let now = stamps(&self.options.files);
        let (at_once, later) = affected(&self.stamps, &now);
        if at_once.is_empty() || (unasked && written_lately(&self.options.files)) {
            return;
        }
        if now[2] != self.stamps[2] {
            self.lines = sources::lines(&self.options.files);
            self.helpers.reconfigure(services(&self.lines));
        }
        self.stamps = now;
        self.forget();
        self.dirty.extend(at_once);
        self.later.extend(later);
    }

    /// Has what changed made anew, in a thread.
    fn build(&mut self) {
        // What changed until now is in; what changes from now on is found later.
        self.look(false);
        let tables: Vec<_> = std::mem::take(&mut self.dirty).into_iter().collect();
        tables.iter().for_each(|table| _ = self.later.remove(table));
        let lines = self.lines.clone();
        let files = self.options.files.clone();
        let folder = self.options.maps.clone();
        let names = tables.iter().map(|&table| {
            self.next_file += 1;
            (table, folder.join(file_name(table, self.next_file)))
        });
        let names: Vec<_> = names.collect();
        let made_of = self.stamps;
        let (sender, bell) = (self.results.0.clone(), self.bell.1.try_clone());
        let make = move || {
            let _ = sender.send((made_of, sources::build(names, &files, &lines)));
            if let Ok(bell) = bell {
                let _ = rustix::io::write(&bell, b"!");
            }
        };
        self.building = tables.iter().copied().collect();
        if let Err(error) = std::thread::Builder::new().name("maps".into()).spawn(make) {
            self.building.clear();
            self.not_before = Instant::now() + SETTLED;
            self.dirty.extend(tables);
            self.say(Level::Warning, &format!("cannot start a thread: {error}"));
        }
    }

    /// Puts maps that were made to use, all at once.
    fn built(&mut self, now: Instant) {
        let mut room = [0; 16];
        while matches!(rustix::io::read(&self.bell.0, &mut room), Ok(1..)) {}
        while let Ok((made_of, made)) = self.results.1.try_recv() {
            self.building.clear();
            let mut took = Duration::ZERO;
            for (table, result) in made {
                took += result.as_ref().map_or(SETTLED, |built| built.took);
                self.take(table, result, &made_of, now);
            }
            // What a helper said before goes by what was then.
            self.helpers.outdate();
            self.not_before = now + took.min(PAUSE_MAX);
            self.serve_waiting();
            let later = std::mem::take(&mut self.later);
            self.dirty.extend(later);
            self.look(true);
            let all = Table::ALL
                .into_iter()
                .all(|table| self.maps(table).current.is_some() || self.failed.contains(&table));
            if all && let Some(ready) = self.ready.take() {
                ready();
            }
        }
    }

    fn take(
        &mut self,
        table: Table,
        result: Result<Built, BuildError>,
        made_of: &Stamps,
        now: Instant,
    ) {
        let current = result.and_then(|mut built| {
            let (path, lacks) = (built.path.clone(), built.lacks.take());
            Current::new(built, *made_of).map(|current| (current, lacks)).map_err(|source| {
                let _ = std::fs::remove_file(&path);
                BuildError::File { path, source }
            })
        });
        self.too_large.remove(&table);
        self.attempts[table as usize] += 1;
        let problem = match current {
            Ok((current, lacks)) => {
                self.failed.remove(&table);
                self.figures.table(table).made += 1;
                self.maps(table).replace(current, now);
                lacks.map(|why| format!("{why}; the name services are asked for what is in it"))
            }
            Err(error) => {
                if matches!(error, BuildError::Map(MapError::TooLarge { .. })) {
                    self.maps(table).withdraw(now);
                    self.too_large.insert(table);
                } else {
                    self.maps(table).not_renewed(table, made_of, now);
                }
                self.failed.insert(table);
                Some(in_full(&error))
            }
        };
        let told = &mut self.told[table as usize];
        if *told != problem {
            told.clone_from(&problem);
            let name = table.name();
            match &problem {
                Some(problem) => {
                    let has_failed = self.failed.contains(&table);
                    let what = if has_failed { "no new map" } else { "a map of a part" };
                    let text = format!("{what} of {name}: {problem}");
                    self.say(Level::Warning, &text);
                }
                None => self.say(Level::Info, &format!("{name} has a map again")),
            }
        }
        self.figures.table(table).problem = problem;
    }

    /// Serves those who waited for a map.
    fn serve_waiting(&mut self) {
        let waiting = self.connections.iter().filter_map(|(&token, connection)| {
            let table = match &connection.state {
                State::ForMap(table, _) | State::ForNewer(table, _) => *table,
                _ => return None,
            };
            Some((token, table))
        });
        for (token, table) in waiting.collect::<Vec<_>>() {
            let attempts = self.attempts[table as usize];
            let has_failed = self.failed.contains(&table);
            let Some(connection) = self.connections.get_mut(&token) else { continue };
            match std::mem::replace(&mut connection.state, State::Asking) {
                State::ForMap(table, key) => self.hand_over(token, table, &key),
                State::ForNewer(_, before) if attempts > before => {
                    let status = if has_failed { libc::EIO } else { 0 };
                    self.send(token, status.to_ne_bytes().to_vec());
                }
                state => connection.state = state,
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        // A burst of strangers does not keep the others waiting.
        for _ in 0..EVENTS_MAX {
            match socket::accept(&self.options.listener) {
                Ok(Some((socket, uid))) => self.welcome(socket, uid, now),
                Ok(None) => return,
                Err(_) => {
                    self.make_room();
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd, uid: u32, now: Instant) {
        if self.connections.len() >= self.connections_max && !self.make_room() {
            self.figures.dropped += 1;
            return;
        }
        let token = self.next_token;
        self.next_token += 1;
        let (heard, until) = (Vec::new(), now + ASKING);
        let connection = Connection { socket, uid, heard, state: State::Asking, until };
        self.connections.insert(token, connection);
        self.deadlines.insert((until, token));
        // Who asks at once, as all do, never has to be polled.
        self.served(token, now);
        if let Some(connection) = self.connections.get(&token)
            && add(&self.poll, connection.socket.as_fd(), token).is_err()
        {
            self.close(token);
        }
    }

    /// Closes a connection of the user who has the most: the one that has been silent for longest, or else
    /// the one that would be closed next.
    fn make_room(&mut self) -> bool {
        let mut of_users = HashMap::<u32, usize>::new();
        for connection in self.connections.values() {
            *of_users.entry(connection.uid).or_default() += 1;
        }
        let Some((&most, _)) = of_users.iter().max_by_key(|&(_, connections)| connections) else {
            return false;
        };
        let mut of_most = self.deadlines.iter().filter_map(|&(_, token)| {
            let connection = self.connections.get(&token).filter(|of| of.uid == most)?;
            Some((token, matches!(connection.state, State::Asking)))
        });
        let first = of_most.clone().next();
        let Some((token, _)) = of_most.find(|&(_, is_silent)| is_silent).or(first) else {
            return false;
        };
        self.figures.dropped += 1;
        self.close(token);
        true
    }

    fn close(&mut self, token: u64) {
        if let Some(connection) = self.connections.remove(&token) {
            self.deadlines.remove(&(connection.until, token));
        }
    }

    fn close_late(&mut self, now: Instant) {
        while let Some(&(until, token)) = self.deadlines.first() {
            if until > now {
                break;
            }
            let state = self.connections.get(&token).map(|connection| &connection.state);
            // glibc goes on with the name services.
            if let Some(&State::Waiting(kind)) = state {
                self.send(token, protocol::not_served(kind));
            }
            self.figures.dropped += 1;
            self.close(token);
        }
    }

    /// Goes on with a connection.
    fn served(&mut self, token: u64, now: Instant) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        match &mut connection.state {
            State::Sending(..) => {
                self.go_on_sending(token);
                return;
            }
            State::Asking => {}
            // Nothing more is expected: who hangs up is not waited for.
            State::Waiting(_) | State::ForMap(..) | State::ForNewer(..) | State::Handed => {
                self.close(token);
                return;
            }
        }
        let room = REQUEST_BYTES_MAX - connection.heard.len().min(REQUEST_BYTES_MAX);
        let is_open = socket::receive(&connection.socket, &mut connection.heard, room);
        let heard = std::mem::take(&mut connection.heard);
        let uid = connection.uid;
        match protocol::parse(&heard) {
            Parsed::More if matches!(is_open, Ok(true)) && heard.len() < REQUEST_BYTES_MAX => {
                connection.heard = heard;
            }
            Parsed::More | Parsed::Wrong => {
                self.figures.dropped += 1;
                self.close(token);
            }
            Parsed::Whole(request) => self.answer(token, uid, request, now),
        }
    }

    fn answer(&mut self, token: u64, uid: u32, request: Request<'_>, now: Instant) {
        let may_command = uid == 0 || uid == self.own_uid;
        match request {
            Request::LookUp(kind, key) => self.look_up(token, uid, kind, key, now),
            Request::Map(table, key) => self.hand_over(token, table, key),
            Request::NotServed([]) => self.close(token),
            Request::NotServed(integers) => self.send(token, protocol::bytes(integers)),
            Request::Statistics | Request::Invalidate(_) | Request::Shutdown if !may_command => {
                self.close(token);
            }
            Request::Statistics => self.send(token, self.figures.text().into_bytes()),
            Request::Invalidate(name) => match Table::of(name) {
                Some(table) => {
                    self.forget();
                    self.dirty.insert(table);
                    self.not_before = now;
                    // One that is being made may have read what was before.
                    let is_building = self.building.contains(&table);
                    let attempts = self.attempts[table as usize] + u64::from(is_building);
                    self.wait(token, State::ForNewer(table, attempts), now + MAKING);
                }
                // Nothing is kept of the others.
                None => self.send(token, 0_i32.to_ne_bytes().to_vec()),
            },
            Request::Shutdown => {
                self.say(Level::Info, "ends: told to over the socket");
                self.close(token);
                self.is_told_to_end = true;
            }
        }
    }

    fn look_up(&mut self, token: u64, uid: u32, kind: Kind, key: &[u8], now: Instant) {
        let maps = self.maps(kind.table());
        let said = maps.current.as_ref().map(|current| find(current.live.map(), kind, key));
        match said {
            Some(Said::Answer(answer)) => {
                self.send(token, answer);
                return;
            }
            // Nothing of this table is served here.
            None if self.failed.contains(&kind.table()) => {
                self.send(token, protocol::not_served(kind));
                return;
            }
            Some(Said::AskServices | Said::Nothing) | None => {}
        }
        let services = match kind {
            Kind::UserByName | Kind::UserByUid => &self.lines.passwd,
            Kind::GroupByName | Kind::GroupByGid => &self.lines.group,
            Kind::GroupsOf => &self.lines.initgroups,
        };
        // A line that names no service finds nobody.
        if services.text.is_empty() || (kind.is_by_id() && protocol::id(key).is_none()) {
            self.send(token, protocol::absent(kind));
        } else if self.helpers.ask((kind, key.to_vec()), token, uid) {
            self.wait(token, State::Waiting(kind), now + ANSWERING);
        } else {
            self.send(token, protocol::not_served(kind));
        }
    }

    fn dispatch(&mut self, now: Instant) {
        let poll = &self.poll;
        let add = |number: u64, socket: BorrowedFd<'_>| add(poll, socket, HELPERS + number);
        let failed = self.helpers.dispatch(now, &add);
        failed.into_iter().for_each(|done| self.helped(done, now));
    }

    /// Tells those who waited what a helper found out, and the map.
    fn helped(&mut self, done: Done, now: Instant) {
        let Done { key: (kind, key), answer, waiting, is_fresh } = done;
        let (positive, negative) = (self.options.positive, self.options.negative);
        let (answer, keep) = match answer {
            Answer::Found(packet) => (packet, Some((false, positive))),
            Answer::Absent => (protocol::absent(kind), Some((true, negative))),
            Answer::Unavailable => (protocol::not_served(kind), None),
        };
        if let (Some((absent, life)), true) = (keep, is_fresh)
            && let Some(current) = &mut self.maps(kind.table()).current
            && find(current.live.map(), kind, &key) == Said::Nothing
        {
            current.live.add(kind, &key, &answer, absent, now, life);
        }
        let answer = Arc::<[u8]>::from(answer);
        for token in waiting {
            self.send(token, Arc::clone(&answer));
        }
    }

    fn hand_over(&mut self, token: u64, table: Table, key: &[u8]) {
        if self.maps(table).current.is_none() && !self.failed.contains(&table) {
            let until = Instant::now() + ANSWERING;
            self.wait(token, State::ForMap(table, key.to_vec()), until);
            return;
        }
        let maps = match table {
            Table::Passwd => &mut self.passwd,
            Table::Group => &mut self.group,
        };
        if let (Some(current), Some(connection)) = (&mut maps.current, self.connections.get(&token))
        {
            // The client compares it with its clock, which may have been set.
            current.touch();
            let (bytes, map) = (current.bytes, current.readable.as_fd());
            let uid = connection.uid;
            let is_handed =
                |other: &&Connection| other.uid == uid && matches!(other.state, State::Handed);
            if uid != 0 && self.connections.values().filter(is_handed).count() >= HANDED_MAX {
                self.close(token);
                return;
            }
            match socket::hand_over(&connection.socket, key, bytes, map) {
                Ok(()) => {
                    self.figures.handed_out += 1;
                    self.wait(token, State::Handed, Instant::now() + HANDED);
                    return;
                }
                Err(error) if self.refused != Some(error.kind()) => {
                    self.refused = Some(error.kind());
                    self.say(Level::Warning, &format!("cannot hand a map over: {error}"));
                }
                Err(_) => {}
            }
        }
        self.close(token);
    }

    fn wait(&mut self, token: u64, state: State, until: Instant) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        self.deadlines.remove(&(connection.until, token));
        connection.state = state;
        connection.until = until;
        self.deadlines.insert((connection.until, token));
    }

    /// Sends an answer, in one piece where the socket has room for it.
    fn send(&mut self, token: u64, answer: impl Into<Arc<[u8]>>) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        self.figures.answered += 1;
        connection.state = State::Sending(answer.into(), 0);
        self.go_on_sending(token);
    }

    fn go_on_sending(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let State::Sending(answer, sent) = &mut connection.state else { return };
        match socket::transmit(&connection.socket, &answer[*sent..]) {
            Ok(more) => *sent += more,
            Err(_) => *sent = answer.len(),
        }
        if *sent < answer.len() {
            let event = epoll::EventData::new_u64(token);
            let flags = epoll::EventFlags::OUT;
            let socket = &connection.socket;
            let polled = epoll::modify(&self.poll, socket, event, flags)
                .or_else(|_| epoll::add(&self.poll, socket, event, flags));
            if polled.is_ok() {
                return;
            }
        }
        self.close(token);
    }
}

fn add(poll: &OwnedFd, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
    let event = epoll::EventData::new_u64(token);
    match epoll::add(poll, socket, event, epoll::EventFlags::IN) {
        // Somebody who could not be answered at once is polled already.
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The services that a helper asks.
fn services(lines: &Lines) -> [OsString; 3] {
    let initgroups = if lines.has_initgroups { &*lines.initgroups.text } else { "" };
    [&*lines.passwd.text, &*lines.group.text, initgroups].map(OsString::from)
}

fn written_lately(files: &Files) -> bool {
    let now = SystemTime::now();
    files.paths().iter().any(|path| {
        let written = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        written.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age < SETTLED))
    })
}

/// Raises the limit on descriptors as far as it goes and is needed.
fn connections_max() -> usize {
    let wanted = CONNECTIONS_MAX as u64 + OTHER_DESCRIPTORS;
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX).min(wanted);
    let raised = rustix::process::Rlimit { current: Some(most), maximum: limit.maximum };
    let most = if limit.current.is_some_and(|current| current < most) {
        let is_raised = rustix::process::setrlimit(Resource::Nofile, raised).is_ok();
        if is_raised { most } else { limit.current.unwrap_or(most) }
    } else {
        most
    };
    most.saturating_sub(OTHER_DESCRIPTORS).clamp(16, CONNECTIONS_MAX as u64) as usize
}

/// Takes the folder of maps for this process alone. It must be this user's own, and nobody else's.
fn take_folder(path: &PathBuf) -> Result<OwnedFd, ServerError> {
    let wrong = |why: String| ServerError::Folder { path: path.clone(), why };
    match std::fs::create_dir(path) {
        Ok(()) => {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(path, mode).map_err(|error| wrong(error.to_string()))?;
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(wrong(error.to_string())),
    }
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, how, Mode::empty()).map_err(|error| wrong(error.to_string()))?;
    let stat = rustix::fs::fstat(&folder).map_err(|error| wrong(error.to_string()))?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        return Err(wrong("it must belong to this user, with mode 0700".to_owned()));
    }
    flock(&folder, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| wrong("another process does".to_owned()))?;
    Ok(folder)
}

/// An error with what caused it.
fn in_full(error: &dyn std::error::Error) -> String {
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
