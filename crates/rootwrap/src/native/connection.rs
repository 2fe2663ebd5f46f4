//! One connection: one command after the other, each asked for, judged, run and answered, in the
//! connection's own thread.

use super::daemon::Daemon;
use super::decide::{Caller, Denial, Permit, Wanted, decide};
use super::environment::environment;
use super::incoming::{Incoming, Received};
use super::names::{self, Unanswered};
use super::peer::Peer;
use super::places::Place;
use super::policy::Policy;
use super::record::{Record, Verdict, words};
use super::running::{Ended, Running};
use crate::exec::{Late, NotStarted, Setting, Streams};
use roster_exec::wire::{Answer, End, Request, Why};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::isatty;
use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// In which somebody who has connected asks for something.
const FIRST_TIME: Duration = Duration::from_secs(10);
/// In which one who had something asks for more.
const NEXT_TIME: Duration = Duration::from_secs(600);
/// How long a client may leave an answer lying.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long patterns are matched before it is looked whether anybody waits for that.
const MATCH_LOOK: Duration = Duration::from_millis(50);
/// And at the longest.
const MATCH_TIME: Duration = Duration::from_secs(2);

/// Why a command does not run.
struct NotRun {
    why: Why,
    words: String,
    /// By which the caller has told it to end before it began.
    signal: Option<u32>,
    /// What there is still to be ended, when the caller was told.
    late: Option<Late>,
}

impl NotRun {
    fn new(why: Why, words: impl Display) -> Self {
        Self { why, words: words.to_string(), signal: None, late: None }
    }

    fn answer(&self) -> Answer {
        match self.signal {
            Some(signal) => Answer::Ended(End::Died(signal)),
            None => Answer::Denied(self.why, self.words.clone()),
        }
    }
}

impl From<Unanswered> for NotRun {
    fn from(unanswered: Unanswered) -> Self {
        Self::new(Why::Failed, unanswered)
    }
}

/// Serves it until its client has had enough.
pub(super) fn serve(daemon: &Daemon, place: &Place) -> io::Result<()> {
    let stream = place.stream();
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    let peer = Peer::of(stream)?;
    let mut session = Session { daemon, place, peer, incoming: Incoming::new(stream) };
    let (mut begins_in, mut is_first) = (FIRST_TIME, true);
    loop {
        let mut room = None;
        let received = session.incoming.request(begins_in, |bytes| {
            room = place.room(bytes);
            room.is_some()
        });
        let received = match received {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(()),
            Err(error) => {
                daemon.counters.malformed.add();
                if error.kind() == ErrorKind::OutOfMemory {
                    session.tell(&Answer::Denied(Why::Busy, "there is no room for it".into()))?;
                }
                return Err(error);
            }
        };
        // Who has taken on another user's rights since is to connect as that user.
        if !is_first && !session.peer.is_same_user() {
            return Ok(());
        }
        is_first = false;
        place.works();
        session.answer(received)?;
        daemon.executor.make_ready();
        if !place.waits() {
            return Ok(());
        }
        begins_in = NEXT_TIME;
    }
}

struct Session<'d> {
    daemon: &'d Daemon,
    place: &'d Place,
    peer: Peer,
    incoming: Incoming<'d>,
}

impl Session<'_> {
    /// Sees to one command, and tells the caller and the log.
    fn answer(&mut self, received: Received) -> io::Result<()> {
        let began = Instant::now();
        let mut record = self.record(&received.request);
        let mut late = None;
        let (answer, verdict, ended) = match self.run(received, &mut record) {
            Ok(ended) => (Answer::Ended(ended.end), Verdict::Ran(ended.end), Some(ended)),
            Err(mut not_run) => {
                late = not_run.late.take();
                (not_run.answer(), Verdict::Denied(not_run.why, not_run.words), None)
            }
        };
        let told = self.tell(&answer);
        record.time = began.elapsed();
        record.bytes = ended.and_then(Ended::reap);
        record.verdict = verdict;
        self.daemon.counters.count(&record.verdict, record.time);
        self.daemon.journal.tell(record);
        // Until it has ended this connection is its caller's.
        drop(late);
        told
    }

    fn record(&self, request: &Request) -> Record {
        Record {
            uid: self.peer.uid,
            pid: self.peer.pid,
            id: self.daemon.journal.next_id(),
            command_pid: None,
            user: "?".into(),
            executable: self.peer.executable.clone(),
            command: words(&request.argv),
            run_as: request.run_as.clone().unwrap_or_else(|| "root".into()),
            rule: None,
            verdict: Verdict::Denied(Why::Failed, String::new()),
            time: Duration::ZERO,
            bytes: None,
        }
    }

    fn run(&mut self, received: Received, record: &mut Record) -> Result<Ended, NotRun> {
        let Received { request, fds } = received;
        self.look_for_the_caller()?;
        let policy = self.daemon.policy();
        let (permit, gids) = self.permit(&policy, &request, record)?;
        let rule = permit.rule();
        record.rule = Some(rule.name.clone());
        record.command = words(permit.argv());
        let _turn = self.place.turn().ok_or_else(|| {
            NotRun::new(Why::Busy, "as many commands run as may at once; try again later")
        })?;
        let names = &self.daemon.names;
        let absent = |what: &str, name: &str| {
            NotRun::new(Why::Failed, format!("rule {}: there is no {what} {name}", rule.name))
        };
        let account = names.account(&rule.run_as)?;
        let mut account = account.ok_or_else(|| absent("user", &rule.run_as))?;
        if let Some(group) = &rule.run_as_group {
            let gid = names.group(group)?.ok_or_else(|| absent("group", group))?;
            account = account.with_group(gid).into();
        }
        let caller = (self.peer.uid, record.user.as_str());
        let environment = environment(&account, caller, permit.kept());
        let [stdin, stdout, stderr, folder] = &*fds;
        let on_terminal = [stdin, stdout, stderr].into_iter().any(isatty);
        let setting = Setting { account: &account, environment: &environment, folder };
        let streams =
            Streams { stdin: stdin.as_fd(), stdout: stdout.as_fd(), stderr: stderr.as_fd() };
        // The daemon enters it as root. For a command of the caller's own user the kernel makes this check.
        if account.uid() != self.peer.uid && !self.peer.may_enter(folder, &gids) {
            let words = "the caller may not enter the directory: call from another";
            return Err(NotRun::new(Why::Failed, words));
        }
        // Whoever asked may have given up while it waited for its turn.
        self.look_for_its_end()?;
        self.daemon.journal.tell_start(record);
        let started = self.daemon.executor.start_permitted(&permit, &setting, streams)?;
        drop(fds);
        let _running = self.daemon.counters.running.held();
        let running = Running::new(started, rule.timeout, on_terminal)
            .map_err(|error| NotRun::new(Why::Failed, error))?;
        record.command_pid = Some(running.pid());
        // Where the caller is gone, it is seen below.
        let stream = self.incoming.stream();
        let _ = tell(stream, &Answer::Started(running.pid()));
        running
            .attend(&mut self.incoming, |answer| tell(stream, answer))
            .map_err(|error| NotRun::new(Why::Failed, error))
    }

    /// Who inherited the connection of a process that has ended is somebody else.
    fn look_for_the_caller(&self) -> Result<(), NotRun> {
        match self.peer.is_alive() {
            true => Ok(()),
            false => Err(NotRun::new(Why::Refused, "the process that has connected is gone")),
        }
    }

    /// That nobody wants a command any more that has not begun: by the end of its caller or its word.
    fn look_for_its_end(&mut self) -> Result<(), NotRun> {
        self.look_for_the_caller()?;
        let gone = |_| NotRun::new(Why::Failed, "its caller has gone before it began");
        self.incoming.read_all().map_err(gone)?;
        match self.incoming.signal_to_end() {
            None => Ok(()),
            signal => {
                let not_run = NotRun::new(Why::Failed, "its caller has ended it before it began");
                Err(NotRun { signal, ..not_run })
            }
        }
    }

    /// Whether both the caller and this daemon go on.
    fn is_waited_for(&self) -> bool {
        self.peer.is_alive() && !self.place.ends() && !is_closed(self.incoming.stream())
    }

    /// The permit that the policy gives to the peer's request, and the groups of the peer's user.
    fn permit<'p>(
        &self,
        policy: &'p Policy,
        request: &Request,
        record: &mut Record,
    ) -> Result<(Permit<'p>, Vec<u32>), NotRun> {
        let uid = self.peer.uid;
        let Some(user) = self.daemon.names.caller(uid, self.daemon.persons.of(uid))? else {
            let words = format!("this host knows no user with uid {uid}");
            return Err(NotRun::new(Why::Refused, words));
        };
        record.user.clone_from(&user.name);
        let began = Instant::now();
        let asked = Cell::new(Duration::ZERO);
        let is_in = |group: &str| {
            // Many that are not answered take no longer than one.
            let is_time = began.elapsed() < names::ANSWER_TIME;
            let before = Instant::now();
            let gid = is_time.then(|| self.daemon.names.group(group).ok()).flatten();
            asked.set(asked.get() + before.elapsed());
            Some(gid?.is_some_and(|gid| user.gids.contains(&gid)))
        };
        let caller = Caller { user: &user.name, is_in: &is_in };
        let goes_on = || {
            let time = began.elapsed().saturating_sub(asked.get());
            time < MATCH_LOOK || time < MATCH_TIME && self.is_waited_for()
        };
        let wanted = Wanted {
            argv: &request.argv,
            run_as: request.run_as.as_deref(),
            environment: &request.environment,
            goes_on: &goes_on,
        };
        let host = rustix::system::uname();
        let permit = decide(policy, &host.nodename().to_string_lossy(), &caller, &wanted);
        let permit = permit.map_err(|denial| {
            let why = match denial {
                Denial::Unanswered | Denial::Abandoned => Why::Failed,
                _ => Why::Refused,
            };
            NotRun::new(why, denial)
        })?;
        Ok((permit, user.gids.clone()))
    }

    fn tell(&self, answer: &Answer) -> io::Result<()> {
        tell(self.incoming.stream(), answer)
    }
}

fn is_closed(stream: &UnixStream) -> bool {
    // A hang-up is told whatever is asked for.
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(stream, PollFlags::empty())], Some(&now)).is_ok_and(|ready| ready > 0)
}

fn tell(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    stream.write_all(&answer.encode())
}

impl From<NotStarted> for NotRun {
    fn from(not_started: NotStarted) -> Self {
        match not_started {
            NotStarted::Absent => Self::new(Why::NotFound, "there is no such executable"),
            NotStarted::Unfit(why) => Self::new(Why::NotExecutable, why),
            NotStarted::System(error) => {
                Self::new(Why::Failed, format!("it cannot be started: {error}"))
            }
            NotStarted::Late(error, late) => {
                let not_run = Self::new(Why::Failed, format!("it did not begin in time: {error}"));
                Self { late: Some(late), ..not_run }
            }
        }
    }
}
