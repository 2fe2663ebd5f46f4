// SPDX-License-Identifier: MIT OR Apache-2.0
//! One thread of the load generator: starts the requests of its users by the [schedule](crate::schedule), and
//! [records](crate::recorder) their results. This module knows no protocol; an [`Engine`] does.
//!
//! The thread has one loop with one epoll. It records the ends of all available replies before it sends the next
//! requests, so that sending does not count as latency.

use crate::poll::{Poller, ReadyEvent};
use crate::recorder::{BATCHES, RecorderSlot};
use crate::request_error::{RequestError, SystemCall};
use crate::schedule::LoadModel;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Interval of checks for timeouts and signals.
const TICK: Duration = Duration::from_millis(10);
/// Pause of a user in a closed loop after a failed connection. It avoids a hundred thousand attempts per second.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of connections that a thread opens concurrently before the run.
const PREPARING_MAX: usize = 64;
/// Maximum number of started requests between two reads of replies.
const STARTS_MAX: usize = 1024;

/// Progress of a request.
#[derive(Debug)]
pub enum RequestProgress {
    /// The request waits for its socket or process.
    Waiting,
    /// The request is complete.
    Done(Result<(), RequestError>),
}

/// Makes requests of a protocol, one at a time for each user.
pub trait Engine {
    /// Whether a request blocks its thread, so that each user needs one.
    const BLOCKS: bool = false;

    /// Prepares a user before the run, for example its connection.
    fn prepare(&mut self, user: usize, poll: &Poller) -> RequestProgress;

    /// Begins the next request of a user, with this number in the whole run.
    fn begin(&mut self, user: usize, request: u64, poll: &Poller) -> RequestProgress;

    /// Handles an event of a user with a pending request.
    fn advance(&mut self, ready: ReadyEvent, poll: &Poller) -> RequestProgress;

    /// Handles an event of a user without a request, for example a closed connection.
    fn handle_idle_event(&mut self, ready: ReadyEvent);

    /// Abandons a request that exceeded its timeout.
    fn abandon(&mut self, user: usize);

    /// Releases the resources of a user that leaves and may return.
    fn leave(&mut self, _user: usize) {}
}

/// Numbers of the requests of a run, which select the variable parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestNumbers {
    pub first: u64,
    /// Difference between consecutive numbers.
    pub step: u64,
    /// Number of requests between two strides.
    pub repeat: u64,
    /// Additional difference after `repeat` requests.
    pub stride: u64,
}

impl RequestNumbers {
    /// Numbers of a run in which every request differs.
    pub const ALL: Self = Self { first: 0, step: 1, repeat: 1, stride: 0 };

    /// Returns the number of a request of the run.
    #[must_use]
    pub fn number_of_request(self, request: u64) -> u64 {
        let turns = request.checked_div(self.repeat).unwrap_or_default();
        let steps = request.wrapping_mul(self.step);
        self.first.wrapping_add(steps).wrapping_add(turns.wrapping_mul(self.stride))
    }

    /// Returns an upper bound of the numbers that this many requests use.
    #[must_use]
    pub fn advanced_by(self, requests: u64) -> u64 {
        requests.saturating_mul(self.step.saturating_add(self.stride).max(1))
    }
}

/// Specification of a run, the same for every thread.
#[derive(Clone, Copy, Debug)]
pub struct RunSpec {
    /// Arrival of requests.
    pub load: LoadModel,
    /// Numbers of requests.
    pub numbers: RequestNumbers,
    /// Duration that the figures exclude.
    pub warm_up: Duration,
    /// Duration of the measured time.
    pub duration: Duration,
    /// Timeout of a request.
    pub timeout: Duration,
}

/// A thread's share of a run.
#[derive(Clone, Copy, Debug)]
pub struct ThreadShare {
    /// Index of the thread, from 0.
    pub thread: usize,
    pub threads: usize,
    /// Number of users of this thread.
    pub users: usize,
    /// Number of users of all threads.
    pub total_users: usize,
}

impl ThreadShare {
    /// Converts an index within this thread to one of the whole run.
    fn number(&self, own: u64) -> u64 {
        own.saturating_mul(self.threads as u64).saturating_add(self.thread as u64)
    }
}

/// External control of a run.
#[derive(Clone, Debug)]
pub struct RunControl {
    /// Stops the run. Requests in flight complete, and none begins.
    pub stop: Arc<AtomicBool>,
    /// Number of present users, the first ones; `None` means all.
    pub present: Option<Arc<AtomicUsize>>,
}

impl From<&Arc<AtomicBool>> for RunControl {
    fn from(stop: &Arc<AtomicBool>) -> Self {
        Self { stop: Arc::clone(stop), present: None }
    }
}

impl RunControl {
    /// Returns whether the run is stopped.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the number of present users of a thread.
    fn present(&self, seat: ThreadShare) -> usize {
        let Some(present) = &self.present else { return seat.users };
        let others = present.load(Ordering::Relaxed).saturating_sub(seat.thread);
        others.div_ceil(seat.threads.max(1)).min(seat.users)
    }
}

/// Result of a thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadResult {
    /// Usage in the measured time.
    pub cost: ThreadUsage,
    /// End of the measured time, as planned or by a stop.
    pub end: Instant,
}

/// Usage of a thread in the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadUsage {
    /// Time on a processor.
    pub cpu: Duration,
    /// Time waiting for a processor.
    pub queued: Duration,
    /// Elapsed time.
    pub wall: Duration,
}

/// Start times of a pending request.
#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    intended: Instant,
    begun: Instant,
    /// Whether this is the preparation of a user instead of a request.
    is_preparation: bool,
}

/// A load thread.
pub struct LoadThread<E> {
    engine: E,
    spec: RunSpec,
    share: ThreadShare,
    poll: Poller,
    control: RunControl,
    /// Number of present users.
    present: usize,
    pending: Vec<Option<PendingRequest>>,
    in_flight: usize,
    /// Idle users, and since when.
    idle: VecDeque<(usize, Instant)>,
    /// Users that think or pause, and until when.
    resting: BinaryHeap<Reverse<(Instant, usize)>>,
    slot: Arc<RecorderSlot>,
    /// Number of begun requests.
    begun: u64,
    /// Number of past arrivals of this thread in an open loop.
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
    /// Returns the share of a request within the measured time.
    fn share(&self, begun: Instant, ended: Instant) -> f64 {
        let whole = ended.saturating_duration_since(begun);
        if whole.is_zero() {
            return f64::from(u8::from(self.measured <= ended && ended < self.end));
        }
        self.inside(begun, ended).as_secs_f64() / whole.as_secs_f64()
    }

    /// Returns the part of a time span within the measured time.
    fn inside(&self, begun: Instant, ended: Instant) -> Duration {
        ended.min(self.end).saturating_duration_since(begun.max(self.measured))
    }
}

impl<E: Engine> LoadThread<E> {
    /// Prepares every user. If the number of users changes during the run, a failed preparation is ignored: the next
    /// request reports the error.
    pub fn prepare(
        mut engine: E,
        stage: RunSpec,
        seat: ThreadShare,
        reins: RunControl,
        desk: Arc<RecorderSlot>,
    ) -> Result<Self, RequestError> {
        let failed = |error| RequestError::system(SystemCall::Epoll, &error);
        let poll = Poller::new().map_err(failed)?;
        let now = Instant::now();
        let (mut buffer, mut ready) = (Vec::new(), Vec::new());
        let present = reins.present(seat);
        // Start of the preparation of each user.
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
            poll.wait(at_most, &mut buffer, &mut ready).map_err(failed)?;
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

    /// Runs from `start`, which may be in the future.
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

    /// Starts the users. Users with a think time begin one after the other.
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

    /// Applies the external number of users. A new user is prepared first, and a leaving user completes its request.
    fn adjust_users(&mut self, now: Instant) {
        let (before, present) = (self.present, self.control.present(self.share));
        if present == before || now >= self.times.end {
            return;
        }
        self.present = present;
        for user in before..present {
            // A user that left may still wait for its last reply.
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

    /// Starts due requests.
    fn dispatch(&mut self, now: Instant) {
        if now < self.times.start {
            return;
        }
        match self.spec.load {
            LoadModel::Closed { .. } => self.dispatch_users(now),
            LoadModel::Open(_) => self.dispatch_arrivals(),
        }
    }

    /// Starts requests of a closed loop. The intended start is the last reply plus the think time.
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

    /// Starts due arrivals of an open loop, also after the end if they were due before.
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

    /// Returns the time of the next arrival of this thread; `None` after the last one.
    fn next_arrival(&self) -> Option<Instant> {
        let LoadModel::Open(pace) = self.spec.load else { return None };
        let due = self.times.start + pace.due(self.share.number(self.arrived))?;
        (due < self.times.end).then_some(due)
    }

    /// Returns whether a due request is not sent yet.
    fn is_behind(&self) -> bool {
        !self.control.is_stopped() && self.next_arrival().is_some()
    }

    /// Returns the time of the next known start.
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

    /// Handles an event of a user's socket or process.
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
        // The next request reports the error of a failed preparation.
        if !flight.is_preparation {
            let (batch, served) = (self.batch(now), self.times.share(flight.begun, now));
            let is_warm_up = flight.intended < self.times.measured;
            // A blocking request cannot be abandoned, but counts as timed out.
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

    /// Returns the batch of a moment.
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

    /// Ends the run: requests in flight time out, and due requests that were not sent fail.
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

/// Makes requests sequentially outside of a run, up to the first failure.
pub fn run_sequentially<E: Engine>(
    engine: &mut E,
    requests: impl Iterator<Item = u64>,
    timeout: Duration,
) -> Result<(), RequestError> {
    const USER: usize = 0;
    let failed = |error: io::Error| RequestError::system(SystemCall::Epoll, &error);
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

/// Times of the kernel's scheduler.
#[derive(Clone, Copy, Default)]
struct SchedulerTimes {
    cpu: Duration,
    queued: Duration,
}

impl SchedulerTimes {
    /// Reads the times of this thread; zero if the kernel does not provide them.
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
