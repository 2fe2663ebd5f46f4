//! The server: hands maps out, answers what is asked over the socket, has maps made when what they are
//! made of changes, and asks helpers for what no map has.
//!
//! One thread that waits for nothing but the next event; maps are made by another. A map takes the place
//! of the one before between two events, so that nobody is told of the new one and then of the old.
//! Whoever connects is answered as soon as the question is there, and is gone within 4 seconds.

pub mod connections;
pub mod figures;
mod generations;
mod ground;
pub mod helpers;
mod maps;
mod orders;
pub mod programs;
mod questions;
pub mod rights;
pub mod socket;
pub mod sources;
mod unread;
mod watch;

use crate::nsswitch::Lines;
use crate::protocol::Table;
use crate::starter::Starter;
use connections::{Connections, connections_max, make_room_for};
use figures::Figures;
use generations::{Look, Made};
use ground::{Ground, read_only_place};
use helpers::Helpers;
use maps::{Maps, Retired, parse_file_name};
use programs::Programs;
use roster_descriptors::{closing, refuse};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;
use sources::{Files, Stamps, stamps};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use watch::Watch;

/// How long until it is tried again to take the folder of maps.
const TRIED_AGAIN: Duration = Duration::from_secs(5);
/// How often files are looked at although nothing was heard.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often maps are told that the server is there: clients look for another after 5 minutes.
const TOUCH_EVERY: Duration = Duration::from_secs(60);
/// Where maps lie: a file system of their own, so that who holds old ones fills nothing else.
pub const MAPS: &str = "/run/roster-nscd";
/// Events at a time.
const EVENTS_MAX: usize = 64;

const LISTENER: u64 = 0;
const WATCH: u64 = 1;
const STOP: u64 = 2;
const BUILDER: u64 = 3;
const STARTER: u64 = 4;
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
    /// Who may give orders, beside root: who started the server.
    pub administrator: u32,
    /// What maps are made of.
    pub files: Files,
    /// Bytes in each map for answers of other services.
    pub room: usize,
    /// How long the answer of another service is good.
    pub positive: Duration,
    /// How long it is good that there is no answer.
    pub negative: Duration,
    /// Ends the server when it can be read or was closed.
    pub stop: OwnedFd,
    /// Figures for whoever asks.
    pub figures: Arc<Mutex<Figures>>,
    /// Where to say what happens.
    pub say: Say,
    /// Called at least every ten seconds: the server's loop runs.
    pub alive: Box<dyn Fn() + Send>,
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
    /// No helper can be started any more.
    #[error("the process that starts helpers has ended: a new start of the server starts it")]
    NoStarter,
    /// The system refuses something.
    #[error("cannot go on")]
    System(#[from] io::Error),
}

/// Serves until it is stopped, with helpers of that starter.
///
/// # Errors
///
/// The system refuses what it should not, or the starter ended. The server sends all clients away while it cannot
/// keep maps.
pub fn run(mut options: Options, starter: Starter) -> Result<End, ServerError> {
    rustix::io::ioctl_fionbio(&options.listener, true).map_err(io::Error::from)?;
    // Nobody has any to send here. What an older kernel lets through is closed without waiting.
    let _ = refuse(&options.listener);
    let mut ready = Some(std::mem::replace(&mut options.ready, Box::new(|| {})));
    let ground = loop {
        let error = match Ground::new(&options, &starter) {
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
        (options.alive)();
        if send_away(options.listener.as_fd(), Some(options.stop.as_fd()), TRIED_AGAIN)? {
            return Ok(End::Stopped);
        }
    };
    options.ready = ready.unwrap_or_else(|| Box::new(|| {}));
    Server::new(options, ground, starter).run()
}

/// Sends everybody away for a while, to their name services: who is not accepted waits for 5 seconds, in every
/// program anew. Ends early, and gives true, when `stop` can be read or was closed.
///
/// # Errors
///
/// The system refuses what it should not.
pub fn send_away(
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
        closing::begin_round();
        while let Ok(Some(_)) = socket::accept(listener) {}
        closing::end_round();
    }
}

struct Server {
    options: Options,
    ready: Option<Box<dyn FnOnce() + Send>>,
    poll: Arc<OwnedFd>,
    watch: Watch,
    _lock: OwnedFd,
    read_only: Option<OwnedFd>,
    passwd: Maps,
    group: Maps,
    helpers: Helpers,
    connections: Connections,
    next_file: u64,
    stamps: Stamps,
    /// Files that may be written once more and have the same stamp.
    unsure: [bool; 4],
    /// As they were when they could be read last, or why they cannot be.
    lines: io::Result<Lines>,
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
    /// When there may be room for a map that had none.
    again: Option<Instant>,
    results: (mpsc::Sender<Made>, mpsc::Receiver<Made>),
    /// A byte comes out of the first when a result is there.
    bell: (UnixStream, UnixStream),
    figures: Figures,
    programs: Programs,
    told: [Option<String>; 2],
    /// Of these there can be no map until what they are made of is smaller.
    too_large: BTreeSet<Table>,
    /// Why a map could not be handed over, if that was told.
    refused: Option<ErrorKind>,
    is_told_to_end: bool,
}

impl Server {
    fn new(mut options: Options, ground: Ground, starter: Starter) -> Self {
        let Ground { lock, poll, watch, bell, is_shared, read_only, left } = ground;
        let is_sealed = read_only.is_some();
        let poll = Arc::new(poll);
        let max = connections_max();
        make_room_for(max, poll.as_fd());
        let connections = Connections::new(Arc::clone(&poll), max);
        let lines = sources::lines(&options.files);
        let helpers = Helpers::new(starter, lines.as_ref().map(services).unwrap_or_default());
        let now = Instant::now();
        let stamps = stamps(&options.files);
        let ready = std::mem::replace(&mut options.ready, Box::new(|| {}));
        let mut server = Self {
            ready: Some(ready),
            poll,
            watch,
            _lock: lock,
            read_only,
            passwd: Maps::default(),
            group: Maps::default(),
            helpers,
            connections,
            next_file: 1,
            unsure: sources::of_this_tick(&stamps),
            stamps,
            lines,
            dirty: Table::ALL.into_iter().collect(),
            later: BTreeSet::new(),
            building: BTreeSet::new(),
            attempts: [0; 2],
            failed: BTreeSet::new(),
            not_before: now,
            again: None,
            results: mpsc::channel(),
            bell,
            figures: Figures {
                shared: is_shared.then(|| options.maps.clone()),
                unsealed: read_only_place(&options.maps).filter(|_| !is_sealed),
                ..Figures::default()
            },
            programs: Programs::default(),
            told: [None, None],
            too_large: BTreeSet::new(),
            refused: None,
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
        let mut rounds = Rounds { look: start + LOOK_EVERY, touch: start + TOUCH_EVERY };
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let wake = self.do_what_is_due(&mut rounds, Instant::now());
            self.publish_figures();
            // A little later rather than a little earlier, which would be once more.
            let pause = wake.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            closing::end_round();
            match epoll::wait(&*self.poll, room, Some(&timespec(pause))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            closing::begin_round();
            if let Some(end) = self.take_events(&events, Instant::now()) {
                return end;
            }
        }
    }

    /// Does what its time has come for. Gives when the next of it is due.
    fn do_what_is_due(&mut self, rounds: &mut Rounds, now: Instant) -> Instant {
        if rounds.look <= now {
            rounds.look = now + LOOK_EVERY;
            (self.options.alive)();
            self.watch.renew();
            self.look(Look::Unasked);
        }
        if rounds.touch <= now {
            rounds.touch = now + TOUCH_EVERY;
            self.touch();
            // What could not be made may be made now: there may be memory again.
            for table in Table::ALL {
                let has_problem = self.figures.table(table).problem.is_some();
                if has_problem && !self.too_large.contains(&table) {
                    self.dirty.insert(table);
                }
            }
        }
        if self.again.is_some_and(|due| due <= now) {
            self.again = None;
            self.dirty.extend(self.failed.difference(&self.too_large));
        }
        let mut wake = self.again.into_iter().fold(rounds.look.min(rounds.touch), Instant::min);
        for table in Table::ALL {
            let maps = self.maps(table);
            let due = [maps.tick(now), maps.current.as_mut().and_then(|map| map.live.expire(now))];
            wake = due.into_iter().flatten().fold(wake, Instant::min);
        }
        let (late, due) = self.helpers.tick(now);
        late.into_iter().for_each(|done| self.helped(done, now));
        self.dispatch(now);
        wake = due.into_iter().fold(wake, Instant::min);
        wake = self.connections.close_late(now).map_or(wake, |until| wake.min(until));
        if !self.dirty.is_empty() && self.building.is_empty() {
            if self.not_before <= now {
                self.build();
            } else {
                wake = wake.min(self.not_before);
            }
        }
        wake
    }

    /// Goes on with what the poll tells. Gives why that is the end, if it is.
    fn take_events(
        &mut self,
        events: &[epoll::Event],
        now: Instant,
    ) -> Option<Result<End, ServerError>> {
        // News first: what is answered next goes by them.
        if events.iter().any(|event| event.data.u64() == WATCH) {
            self.hear_news();
        }
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept(now),
                WATCH => {}
                STOP => return Some(Ok(End::Stopped)),
                STARTER => return Some(Err(ServerError::NoStarter)),
                BUILDER => self.built(now),
                token if token >= HELPERS => {
                    if let Some(done) = self.helpers.hear(token - HELPERS, now) {
                        self.helped(done, now);
                    }
                }
                token => self.served(token, now),
            }
        }
        self.is_told_to_end.then_some(Ok(End::ToldTo))
    }

    fn accept(&mut self, now: Instant) {
        // A burst of strangers does not keep the others waiting.
        for _ in 0..EVENTS_MAX {
            match socket::accept(&self.options.listener) {
                Ok(Some((socket, peer))) => {
                    let Some(token) = self.connections.welcome(socket, peer, now) else { continue };
                    // Who asks at once, as all do, never has to be polled.
                    self.served(token, now);
                    self.connections.poll(token);
                }
                Ok(None) => return,
                Err(_) => {
                    self.connections.make_room();
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

    fn gather_figures(&mut self) {
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
        (self.figures.answered, self.figures.dropped) =
            (self.connections.answered, self.connections.dropped);
        self.figures.helped = self.helpers.questions;
    }

    fn publish_figures(&mut self) {
        self.gather_figures();
        let mut shown = self.options.figures.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown != self.figures {
            shown.clone_from(&self.figures);
        }
    }
}

/// When what is done again and again is done next.
struct Rounds {
    look: Instant,
    touch: Instant,
}

fn timespec(pause: Duration) -> Timespec {
    let seconds = i64::try_from(pause.as_secs()).unwrap_or(1);
    Timespec { tv_sec: seconds, tv_nsec: pause.subsec_nanos().into() }
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
