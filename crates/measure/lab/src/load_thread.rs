//! One thread of the generator: starts requests when the [schedule](crate::schedule) says, for as
//! many users as it was given, and [records](crate::recorder) what became of them. Knows no protocol;
//! an [`Engine`] does.
//!
//! Everything happens in one loop around one epoll. Ends are noted for all answers that are there
//! before the next requests are sent, so that sending does not count as waiting.

use crate::poll::{Poller, ReadyEvent};
use crate::recorder::{BATCHES, RecorderSlot};
use crate::request_error::RequestError;
use crate::schedule::LoadModel;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at time-outs and signals.
const TICK: Duration = Duration::from_millis(10);
/// A user in a closed loop that cannot talk to the server waits so long, lest a refused connection be
/// tried a hundred thousand times a second.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections that one thread opens at a time before the run.
const PREPARING_MAX: usize = 64;
/// Requests that are started between two looks at answers.
const STARTS_MAX: usize = 1024;

/// How far a request has come.
#[derive(Debug)]
pub enum RequestProgress {
    /// It waits for its socket or process.
    Waiting,
    /// It is over.
    Done(Result<(), RequestError>),
}

/// Makes requests in some protocol, one at a time for each user.
pub trait Engine {
    /// Whether a request blocks the thread until it is over, so that each user needs one.
    const BLOCKS: bool = false;

    /// Makes ready whatever a user needs before the clock starts, such as a connection.
    fn prepare(&mut self, user: usize, poll: &Poller) -> RequestProgress;

    /// Begins a user's next request, which has this number in the whole run.
    fn begin(&mut self, user: usize, request: u64, poll: &Poller) -> RequestProgress;

    /// Something happened to what a user waits for; perhaps nothing that matters.
    fn advance(&mut self, ready: ReadyEvent, poll: &Poller) -> RequestProgress;

    /// Something happened to what a user has while nothing is asked, such as the end of a connection.
    fn handle_idle_event(&mut self, ready: ReadyEvent);

    /// Gives a request up that took too long.
    fn abandon(&mut self, user: usize);

    /// A user leaves, who may come back: what it holds is let go.
    fn leave(&mut self, _user: usize) {}
}

/// Which numbers the requests of a run have, and so what varies from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestNumbers {
    pub first: u64,
    /// From each to the next,
    pub step: u64,
    /// and after so many more,
    pub repeat: u64,
    /// this much besides.
    pub stride: u64,
}

impl RequestNumbers {
    /// Every request is another.
    pub const ALL: Self = Self { first: 0, step: 1, repeat: 1, stride: 0 };

    /// The number of a run's request.
    #[must_use]
    pub fn number_of_request(self, request: u64) -> u64 {
        let turns = request.checked_div(self.repeat).unwrap_or_default();
        let steps = request.wrapping_mul(self.step);
        self.first.wrapping_add(steps).wrapping_add(turns.wrapping_mul(self.stride))
    }

    /// More than so many requests go on by, whichever they are.
    #[must_use]
    pub fn advanced_by(self, requests: u64) -> u64 {
        requests.saturating_mul(self.step.saturating_add(self.stride).max(1))
    }
}

/// What is run, the same for every thread.
#[derive(Clone, Copy, Debug)]
pub struct RunSpec {
    /// How requests come.
    pub load: LoadModel,
    /// What varies.
    pub numbers: RequestNumbers,
    /// Left out of the figures.
    pub warm_up: Duration,
    /// What the figures are of.
    pub duration: Duration,
    /// A request that takes longer has failed.
    pub timeout: Duration,
}

/// A thread's share of a run.
#[derive(Clone, Copy, Debug)]
pub struct ThreadShare {
    /// Its place, from 0.
    pub thread: usize,
    pub threads: usize,
    /// Users of this thread.
    pub users: usize,
    /// Users of all threads.
    pub total_users: usize,
}

impl ThreadShare {
    /// The number in the whole run of what is this thread's `own`th.
    fn number(&self, own: u64) -> u64 {
        own.saturating_mul(self.threads as u64).saturating_add(self.thread as u64)
    }
}

/// By which a run is held from outside.
#[derive(Clone, Debug)]
pub struct RunControl {
    /// Ends the run: what is in flight ends as it would, and nothing begins.
    pub stop: Arc<AtomicBool>,
    /// How many of all users are there, the first ones; all of them where nobody says.
    pub present: Option<Arc<AtomicUsize>>,
}

impl From<&Arc<AtomicBool>> for RunControl {
    fn from(stop: &Arc<AtomicBool>) -> Self {
        Self { stop: Arc::clone(stop), present: None }
    }
}

impl RunControl {
    /// Whether the run is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// How many of a thread's users are there.
    fn present(&self, seat: ThreadShare) -> usize {
        let Some(present) = &self.present else { return seat.users };
        let others = present.load(Ordering::Relaxed).saturating_sub(seat.thread);
        others.div_ceil(seat.threads.max(1)).min(seat.users)
    }
}

/// What a thread came to.
#[derive(Clone, Copy, Debug)]
pub struct ThreadResult {
    /// In the measured time.
    pub cost: ThreadUsage,
    /// When that was over: as planned, or when the run was stopped.
    pub end: Instant,
}

/// What a thread cost in the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadUsage {
    /// On a processor.
    pub cpu: Duration,
    /// Waiting for one.
    pub queued: Duration,
    /// By the clock.
    pub wall: Duration,
}

/// Since when and for whom a request runs.
#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    intended: Instant,
    begun: Instant,
    /// The user makes ready, which is no request.
    is_preparation: bool,
}

/// A thread at work.
pub struct LoadThread<E> {
    engine: E,
    spec: RunSpec,
    share: ThreadShare,
    poll: Poller,
    control: RunControl,
    /// How many of the users are there.
    present: usize,
    pending: Vec<Option<PendingRequest>>,
    in_flight: usize,
    /// Users who may ask, and since when.
    idle: VecDeque<(usize, Instant)>,
    /// Users who think or pause, and until when.
    resting: BinaryHeap<Reverse<(Instant, usize)>>,
    slot: Arc<RecorderSlot>,
    /// Requests begun.
    begun: u64,
    /// Arrivals of this thread that are past, in an open loop.
    arrived: u64,
    times: RunTimes,
}

#[derive(Clone, Copy)]
struct RunTimes {
    start: Instant,
    measured: Instant,
    end: Instant,
}

impl RunTimes {
    /// The share of a request that lay in the measured time.
    fn share(&self, begun: Instant, ended: Instant) -> f64 {
        let whole = ended.saturating_duration_since(begun);
        if whole.is_zero() {
            return f64::from(u8::from(self.measured <= ended && ended < self.end));
        }
        self.inside(begun, ended).as_secs_f64() / whole.as_secs_f64()
    }

    /// How much of a time lay in the measured one.
    fn inside(&self, begun: Instant, ended: Instant) -> Duration {
        ended.min(self.end).saturating_duration_since(begun.max(self.measured))
    }
}

impl<E: Engine> LoadThread<E> {
    /// Has every user make ready. Where users come and go, a server that is away now is no reason to end:
    /// what is wrong shows in the request that comes next.
    pub fn prepare(
        mut engine: E,
        stage: RunSpec,
        seat: ThreadShare,
        reins: RunControl,
        desk: Arc<RecorderSlot>,
    ) -> Result<Self, RequestError> {
        let poll = Poller::new().map_err(|error| RequestError::system("epoll", &error))?;
        let now = Instant::now();
        let (mut buffer, mut ready) = (Vec::new(), Vec::new());
        let present = reins.present(seat);
        // Since when.
        let mut waiting: Vec<Option<Instant>> = vec![None; present];
        let (mut next, mut open) = (0, 0);
        let comes_and_goes = reins.present.is_some();
        let judge = |result: Result<(), RequestError>| if comes_and_goes { Ok(()) } else { result };
        while next < present || open > 0 {
            while next < present && open < PREPARING_MAX {
                match engine.prepare(next, &poll) {
                    RequestProgress::Done(result) => judge(result)?,
                    RequestProgress::Waiting => {
                        waiting[next] = Some(Instant::now());
                        open += 1;
                    }
                }
                next += 1;
            }
            if reins.is_stopped() {
                break;
            }
            let is_late = |since: &Instant| since.elapsed() > stage.timeout;
            if open > 0 && waiting.iter().flatten().any(is_late) {
                judge(Err(RequestError::TimedOut))?;
                for (user, since) in waiting.iter_mut().enumerate() {
                    if since.take_if(|since| is_late(since)).is_some() {
                        engine.abandon(user);
                        open -= 1;
                    }
                }
                continue;
            }
            let at_most = if open > 0 { None } else { Some(Duration::ZERO) };
            poll.wait(at_most, &mut buffer, &mut ready)
                .map_err(|error| RequestError::system("epoll", &error))?;
            for one in ready.drain(..) {
                if waiting.get(one.user).is_none_or(Option::is_none) {
                    continue;
                }
                if let RequestProgress::Done(result) = engine.advance(one, &poll) {
                    judge(result)?;
                    waiting[one.user] = None;
                    open -= 1;
                }
            }
        }
        Ok(Self {
            engine,
            spec: stage,
            share: seat,
            poll,
            control: reins,
            present,
            pending: vec![None; seat.users],
            in_flight: 0,
            idle: VecDeque::new(),
            resting: BinaryHeap::new(),
            slot: desk,
            begun: 0,
            arrived: 0,
            times: RunTimes { start: now, measured: now, end: now },
        })
    }

    /// Runs from `start` on, which may be in the future.
    pub fn run(mut self, start: Instant) -> io::Result<ThreadResult> {
        let measured = start + self.spec.warm_up;
        self.times = RunTimes { start, measured, end: measured + self.spec.duration };
        let last = self.times.end + self.spec.timeout;
        self.start_users();
        let (mut buffer, mut ready) = (Vec::new(), Vec::new());
        let mut next_tick = start;
        let (mut before, mut after) = (None, None);
        loop {
            let now = Instant::now();
            if now >= next_tick {
                next_tick = now + TICK;
                if self.control.is_stopped() {
                    self.times.end = self.times.end.min(now);
                }
                self.adjust_users(now);
                if before.is_none() && now >= measured {
                    before = Some((now, SchedulerTimes::read_thread()));
                }
                if after.is_none() && now >= self.times.end {
                    after = Some((now, SchedulerTimes::read_thread()));
                }
                self.abandon_late(now);
            }
            self.dispatch(now);
            if now >= self.times.end && self.in_flight == 0 && !self.is_behind() || now >= last {
                break;
            }
            if E::BLOCKS
                && !self.idle.is_empty()
                && matches!(self.spec.load, LoadModel::Closed { .. })
            {
                continue;
            }
            let start = self.next_start(now).filter(|&due| due <= next_tick);
            let at_most = start.map(|due| due.saturating_duration_since(Instant::now()));
            self.poll.wait(at_most, &mut buffer, &mut ready)?;
            for one in ready.drain(..) {
                self.handle_event(one);
            }
        }
        self.abandon_all();
        let now = (Instant::now(), SchedulerTimes::read_thread());
        let (until, used) = after.unwrap_or(now);
        let (since, usage) = before.unwrap_or(now);
        let cost = used.since(usage, until.saturating_duration_since(since));
        Ok(ThreadResult { cost, end: self.times.end })
    }

    /// Users who think begin one after the other, as they would come.
    fn start_users(&mut self) {
        for user in 0..self.present {
            let start = self.times.start;
            match self.spec.load {
                LoadModel::Closed { think } if !think.is_zero() => {
                    let place = u32::try_from(self.share.number(user as u64)).unwrap_or(u32::MAX);
                    let users = u32::try_from(self.share.total_users.max(1)).unwrap_or(u32::MAX);
                    let wake = start + think.mul_f64(f64::from(place) / f64::from(users));
                    self.resting.push(Reverse((wake, user)));
                }
                _ => self.idle.push_back((user, start)),
            }
        }
    }

    /// Users come and go as is said from outside; who comes makes ready first, and who goes has the last
    /// request answered.
    fn adjust_users(&mut self, now: Instant) {
        let (before, present) = (self.present, self.control.present(self.share));
        if present == before || now >= self.times.end {
            return;
        }
        self.present = present;
        for user in before..present {
            // One that left may still wait for its last answer.
            if self.pending[user].is_none() {
                self.pending[user] =
                    Some(PendingRequest { intended: now, begun: now, is_preparation: true });
                self.in_flight += 1;
                if let RequestProgress::Done(result) = self.engine.prepare(user, &self.poll) {
                    self.finish(user, result);
                }
            }
        }
        if present < before {
            self.idle.retain(|&(user, _)| user < present);
            self.resting.retain(|&Reverse((_, user))| user < present);
            let gone = (present..before).filter(|&user| self.pending[user].is_none());
            gone.for_each(|user| self.engine.leave(user));
        }
    }

    /// Starts what is due.
    fn dispatch(&mut self, now: Instant) {
        if now < self.times.start {
            return;
        }
        match self.spec.load {
            LoadModel::Closed { .. } => self.dispatch_users(now),
            LoadModel::Open(_) => self.dispatch_arrivals(),
        }
    }

    /// A user's next request is meant to start when the last one was answered and the user has thought.
    fn dispatch_users(&mut self, now: Instant) {
        if now >= self.times.end {
            return;
        }
        while let Some(&Reverse((wake, user))) = self.resting.peek() {
            if wake > now {
                break;
            }
            self.resting.pop();
            self.idle.push_back((user, wake));
        }
        for _ in 0..self.idle.len().min(STARTS_MAX) {
            let Some((user, since)) = self.idle.pop_front() else { break };
            self.start(user, since, now);
        }
    }

    /// Those that are due start, also after the end if they were due before it.
    fn dispatch_arrivals(&mut self) {
        for _ in 0..STARTS_MAX {
            let (Some(due), Some(&(user, since))) = (self.next_arrival(), self.idle.front()) else {
                return;
            };
            let now = Instant::now();
            if due > now {
                return;
            }
            self.idle.pop_front();
            self.arrived += 1;
            if due >= self.times.measured {
                self.slot.update(|recorder| {
                    recorder.record_lag(now - due.max(since));
                    recorder.starved += u64::from(since > due);
                });
            }
            self.start(user, due, now);
        }
    }

    /// When this thread's next arrival is due; none when there are no more.
    fn next_arrival(&self) -> Option<Instant> {
        let LoadModel::Open(pace) = self.spec.load else { return None };
        let due = self.times.start + pace.due(self.share.number(self.arrived))?;
        (due < self.times.end).then_some(due)
    }

    /// Whether a request that was due is not sent yet.
    fn is_behind(&self) -> bool {
        !self.control.is_stopped() && self.next_arrival().is_some()
    }

    /// When something will be to start, as far as is known.
    fn next_start(&self, now: Instant) -> Option<Instant> {
        match self.spec.load {
            LoadModel::Closed { .. } if now >= self.times.end => None,
            LoadModel::Closed { .. } if !self.idle.is_empty() => Some(self.times.start),
            LoadModel::Closed { .. } => self.resting.peek().map(|&Reverse((wake, _))| wake),
            LoadModel::Open(_) if self.idle.is_empty() => None,
            LoadModel::Open(_) => self.next_arrival(),
        }
    }

    fn start(&mut self, user: usize, intended: Instant, now: Instant) {
        self.pending[user] = Some(PendingRequest { intended, begun: now, is_preparation: false });
        self.in_flight += 1;
        let number = self.spec.numbers.number_of_request(self.share.number(self.begun));
        self.begun += 1;
        if let RequestProgress::Done(result) = self.engine.begin(user, number, &self.poll) {
            self.finish(user, result);
        }
    }

    /// Looks after a user whose socket has news.
    fn handle_event(&mut self, ready: ReadyEvent) {
        match self.pending.get(ready.user) {
            Some(Some(_)) => {
                if let RequestProgress::Done(result) = self.engine.advance(ready, &self.poll) {
                    self.finish(ready.user, result);
                }
            }
            Some(None) => self.engine.handle_idle_event(ready),
            None => {}
        }
    }

    fn finish(&mut self, user: usize, result: Result<(), RequestError>) {
        let Some(flight) = self.pending[user].take() else { return };
        self.in_flight -= 1;
        let now = Instant::now();
        let pause = result.as_ref().err().is_some_and(RequestError::is_transport_error);
        // What is wrong with making ready shows in the request that comes next.
        if !flight.is_preparation {
            let (batch, served) = (self.batch(now), self.times.share(flight.begun, now));
            let is_warm_up = flight.intended < self.times.measured;
            // A request that blocks cannot be given up, and is late all the same.
            let is_late = E::BLOCKS && now - flight.begun > self.spec.timeout;
            let result = if is_late { Err(RequestError::TimedOut) } else { result };
            let has_latency = result.as_ref().err().is_none_or(RequestError::has_latency);
            let latency = (has_latency && !is_warm_up).then(|| now - flight.intended);
            self.slot.update(|recorder| {
                recorder.requests_in_window += served;
                if let Some(batch) = batch {
                    recorder.record_in(batch, latency);
                }
                if is_warm_up {
                    recorder.warm_up += 1;
                } else {
                    recorder.record(flight.intended, now, result);
                }
            });
        }
        if user >= self.present {
            self.engine.leave(user);
            return;
        }
        match self.spec.load {
            LoadModel::Closed { think } if pause || !think.is_zero() => {
                let rest = if pause { think.max(PAUSE) } else { think };
                if pause {
                    let paused = self.times.inside(now + think, now + rest);
                    self.slot.update(|recorder| recorder.paused += paused);
                }
                self.resting.push(Reverse((now + rest, user)));
            }
            _ => self.idle.push_back((user, now)),
        }
    }

    /// The piece of the run that a moment is in.
    fn batch(&self, now: Instant) -> Option<usize> {
        let since = now.checked_duration_since(self.times.measured)?;
        let piece = self.spec.duration.as_nanos() / BATCHES as u128;
        usize::try_from(since.as_nanos().checked_div(piece)?).ok().filter(|&at| at < BATCHES)
    }

    fn abandon_late(&mut self, now: Instant) {
        for user in 0..self.pending.len() {
            let is_late = |flight: PendingRequest| now - flight.begun > self.spec.timeout;
            if self.pending[user].is_some_and(is_late) {
                self.engine.abandon(user);
                self.finish(user, Err(RequestError::TimedOut));
            }
        }
    }

    /// At the very end: what is in flight has timed out, and what was due and never sent has failed.
    fn abandon_all(&mut self) {
        for user in 0..self.pending.len() {
            if self.pending[user].is_some() {
                self.engine.abandon(user);
                self.finish(user, Err(RequestError::TimedOut));
            }
        }
        let now = Instant::now();
        while let Some(due) = self.next_arrival() {
            self.arrived += 1;
            if due >= self.times.measured {
                self.slot.update(|all| {
                    all.starved += 1;
                    all.record(due, now.max(due), Err(RequestError::NotSent));
                });
            }
        }
    }
}

/// Makes requests one after the other, outside of any run; the first failure ends it.
pub fn run_sequentially<E: Engine>(
    engine: &mut E,
    requests: impl Iterator<Item = u64>,
    timeout: Duration,
) -> Result<(), RequestError> {
    const USER: usize = 0;
    let failed = |error: io::Error| RequestError::system("epoll", &error);
    let poll = Poller::new().map_err(failed)?;
    let (mut buffer, mut ready) = (Vec::new(), Vec::new());
    let mut wait = |engine: &mut E, mut progress: RequestProgress| {
        let deadline = Instant::now() + timeout;
        loop {
            if let RequestProgress::Done(result) = progress {
                return result;
            }
            if Instant::now() > deadline {
                engine.abandon(USER);
                return Err(RequestError::TimedOut);
            }
            poll.wait(None, &mut buffer, &mut ready).map_err(failed)?;
            for one in ready.drain(..) {
                if let RequestProgress::Waiting = progress {
                    progress = engine.advance(one, &poll);
                }
            }
        }
    };
    let prepared = engine.prepare(USER, &poll);
    wait(engine, prepared)?;
    for request in requests {
        let begun = engine.begin(USER, request, &poll);
        wait(engine, begun)?;
    }
    Ok(())
}

/// What the scheduler has counted.
#[derive(Clone, Copy, Default)]
struct SchedulerTimes {
    cpu: Duration,
    queued: Duration,
}

impl SchedulerTimes {
    /// Zero where the kernel does not tell.
    fn read_thread() -> Self {
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut fields = text.split_whitespace().map_while(|field| field.parse().ok());
        let mut next = || Duration::from_nanos(fields.next().unwrap_or_default());
        Self { cpu: next(), queued: next() }
    }

    fn since(self, before: Self, wall: Duration) -> ThreadUsage {
        ThreadUsage {
            cpu: self.cpu.saturating_sub(before.cpu),
            queued: self.queued.saturating_sub(before.queued),
            wall,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_by_its_share_in_the_measured_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let times = RunTimes { start, measured: at(10), end: at(20) };
        for (begun, ended, share) in [
            (at(12), at(13), 1.0),
            (at(8), at(12), 0.5),
            (at(18), at(22), 0.5),
            (at(5), at(25), 0.5),
            (at(1), at(2), 0.0),
            (at(21), at(22), 0.0),
            (at(15), at(15), 1.0),
            (at(9), at(9), 0.0),
            (at(20), at(20), 0.0),
        ] {
            assert!((times.share(begun, ended) - share).abs() < 1e-9, "{begun:?} {ended:?}");
        }
    }
}
