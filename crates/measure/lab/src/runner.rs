// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a run: starts threads for its users, gives them one start time, and adds up their figures. `load_thread` makes
//! the requests.
//!
//! A request that blocks its thread, such as a lookup, may never return. No run waits for it: the thread keeps its own
//! state and stays in that call.

use crate::coded::{Coded, bail_coded};
use crate::load_thread::{
    Engine, LoadThread, RunControl, RunSpec, ThreadResult, ThreadShare, ThreadUsage,
};
use crate::recorder::{Recorder, RecorderSlot};
use crate::request_error::RequestError;
use crate::server_usage::{ServerUsage, WatchedServer};
use anyhow::Result;
use parking_lot::{Condvar, Mutex};
use roster_messages::table::lab;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Time between the last ready thread and the first request, longer than the wake-up of all threads.
const START_DELAY: Duration = Duration::from_millis(20);
/// Interval of the collection of figures.
const COLLECT_EVERY: Duration = Duration::from_millis(250);
/// Additional time for a thread with a late request, before the run ends without it.
const GRACE: Duration = Duration::from_secs(1);

/// Number of users and threads.
#[derive(Clone, Copy, Debug)]
pub struct ThreadPlan {
    pub users: usize,
    /// Number of threads that share the users.
    pub threads: usize,
}

impl ThreadPlan {
    fn shares(self) -> impl Iterator<Item = ThreadShare> {
        let threads = self.threads.clamp(1, self.users.max(1));
        (0..threads).map(move |thread| ThreadShare {
            thread,
            threads,
            users: self.users / threads + usize::from(thread < self.users % threads),
            total_users: self.users,
        })
    }
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// Figures of all users.
    pub recorder: Recorder,
    /// Duration that the figures cover: as planned, or until the run was stopped.
    pub measured: Duration,
    /// Planned duration.
    pub planned: Duration,
    /// Usage of each thread.
    pub threads: Vec<ThreadUsage>,
    /// Usage of the watched server.
    pub server: Option<ServerUsage>,
    /// Whether a signal stopped the run.
    pub interrupted: bool,
    /// Whether requests blocked their threads.
    pub blocks: bool,
    /// Number of threads with requests that did not return.
    pub stuck_threads: usize,
    /// Whether the watched server ended or restarted.
    pub server_is_gone: bool,
}

impl RunResult {
    /// Returns requests per second; zero for an empty duration.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let seconds = self.measured.as_secs_f64();
        if seconds > 0.0 { self.recorder.requests_in_window / seconds } else { 0.0 }
    }
}

/// Progress of a run.
#[derive(Debug)]
pub struct RunProgress<'r> {
    /// Everything measured so far.
    pub so_far: &'r Recorder,
    /// Measurements since the previous progress report.
    pub latest: &'r Recorder,
    /// Since the first request.
    pub elapsed: Duration,
    /// Nothing begins any more: the last answers are waited for.
    pub is_ending: bool,
}

enum ThreadMessage {
    Ready,
    Failed(RequestError),
    Finished(Result<ThreadResult, std::io::Error>),
}

/// Barrier for threads until all are ready.
#[derive(Default)]
struct StartBarrier {
    start: Mutex<Option<Option<Instant>>>,
    opened: Condvar,
}

impl StartBarrier {
    /// Starts all threads at that time, or ends them.
    fn open(&self, start: Option<Instant>) {
        *self.start.lock() = Some(start);
        self.opened.notify_all();
    }

    fn pass(&self) -> Option<Instant> {
        let mut start = self.start.lock();
        loop {
            if let Some(start) = *start {
                return start;
            }
            self.opened.wait(&mut start);
        }
    }
}

/// Makes the run `stage` with an engine for each thread from `make`, until it ends or is stopped. `look` receives all
/// figures.
pub fn run_threads<E: Engine + Send + 'static>(
    stage: RunSpec,
    crew: ThreadPlan,
    server: Option<&WatchedServer>,
    reins: impl Into<RunControl>,
    make: impl Fn(ThreadShare) -> Result<E>,
    look: impl FnMut(&RunProgress<'_>),
) -> Result<RunResult> {
    let reins = reins.into();
    let crew = if E::BLOCKS { ThreadPlan { threads: crew.users, ..crew } } else { crew };
    let gate = Arc::new(StartBarrier::default());
    let (say, heard) = mpsc::channel();
    let mut desks = Vec::new();
    for seat in crew.shares() {
        let desk = Arc::new(RecorderSlot::default());
        desks.push(Arc::clone(&desk));
        let (say, passed, reins) = (say.clone(), Arc::clone(&gate), reins.clone());
        let spawned = make(seat).and_then(|engine| {
            let work = move || work(engine, stage, seat, reins, desk, &passed, &say);
            let name = format!("users-{}", seat.thread);
            let spawned = thread::Builder::new().name(name).spawn(work);
            let text = format_args!("thread {}: cannot start", seat.thread + 1);
            spawned.coded(&lab::THREAD_NOT_STARTED, text)
        });
        if let Err(error) = spawned {
            gate.open(None);
            return Err(error);
        }
    }
    drop(say);
    for _ in &desks {
        match heard.recv() {
            Ok(ThreadMessage::Ready) => {}
            Ok(ThreadMessage::Failed(failure)) => {
                gate.open(None);
                return Err(failure.into_error("users are not ready"));
            }
            _ => {
                gate.open(None);
                bail_coded!(THREAD_ENDED, "a thread ended before the run");
            }
        }
    }
    let start = Instant::now() + START_DELAY;
    gate.open(Some(start));
    let from = start + stage.warm_up;
    let watch =
        RunMonitor { start, from, end: from + stage.duration, spec: stage, control: reins, server };
    let outcome = RunResult { blocks: E::BLOCKS, planned: stage.duration, ..RunResult::default() };
    watch.wait_for_threads(&desks, &heard, look, outcome)
}

/// Collects the figures of a run.
struct RunMonitor<'s> {
    start: Instant,
    /// Start of the measured time.
    from: Instant,
    /// End of the measured time.
    end: Instant,
    spec: RunSpec,
    control: RunControl,
    server: Option<&'s WatchedServer>,
}

impl RunMonitor<'_> {
    fn wait_for_threads(
        mut self,
        desks: &[Arc<RecorderSlot>],
        heard: &mpsc::Receiver<ThreadMessage>,
        mut look: impl FnMut(&RunProgress<'_>),
        mut outcome: RunResult,
    ) -> Result<RunResult> {
        // Usage of the server at the start and at the end of the measured time.
        let (mut before, mut after) = (None, None);
        let mut running = desks.len();
        let mut next_look = self.start;
        let (mut ends, mut is_cut) = (Vec::new(), false);
        while running > 0 {
            let now = Instant::now();
            if !is_cut && now < self.end && self.control.is_stopped() {
                is_cut = true;
                self.end = now;
            }
            let is_ending = now >= self.end;
            let consumed = || self.server.map(WatchedServer::consumed);
            if now >= self.from {
                before = before.or_else(consumed);
            }
            if is_ending {
                after = after.or_else(consumed);
            }
            if now >= next_look {
                next_look += COLLECT_EVERY;
                self.show(desks, is_ending, &mut look, &mut outcome.recorder);
            }
            if outcome.blocks && now > self.end + self.spec.timeout + GRACE {
                outcome.stuck_threads = running;
                break;
            }
            let times = [self.from, self.end, next_look];
            let next = times.iter().filter(|&&time| time > now).min().unwrap_or(&next_look);
            match heard.recv_timeout(next.saturating_duration_since(now)) {
                Ok(ThreadMessage::Finished(done)) => {
                    let done = done.coded(&lab::SYSTEM_ERROR, "epoll: failed")?;
                    outcome.threads.push(done.cost);
                    ends.push(done.end);
                    running -= 1;
                }
                Ok(ThreadMessage::Ready | ThreadMessage::Failed(_))
                | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    bail_coded!(THREAD_ENDED, "a thread ended during the run");
                }
            }
        }
        for _ in 0..outcome.stuck_threads {
            let now = Instant::now();
            let begun = now.checked_sub(self.spec.timeout).unwrap_or(now);
            outcome.recorder.record(begun, now, Err(RequestError::TimedOut));
        }
        self.show(desks, true, &mut look, &mut outcome.recorder);
        let end = ends.into_iter().max().unwrap_or(self.end);
        outcome.interrupted = self.control.is_stopped();
        outcome.measured = end.saturating_duration_since(self.from);
        // All threads may have ended before the next check.
        match (before, after.or_else(|| self.server.map(WatchedServer::consumed))) {
            (Some(Ok(before)), Some(Ok(after))) => {
                outcome.server = after.since(before);
                outcome.server_is_gone = outcome.server.is_none();
            }
            // The server ended in the warm-up, or later.
            (Some(Err(_)), _) | (_, Some(Err(_))) => outcome.server_is_gone = true,
            _ => {}
        }
        Ok(outcome)
    }

    /// Collects the latest figures and passes them to `look`.
    fn show(
        &self,
        desks: &[Arc<RecorderSlot>],
        is_ending: bool,
        look: &mut impl FnMut(&RunProgress<'_>),
        so_far: &mut Recorder,
    ) {
        let mut latest = Recorder::default();
        desks.iter().for_each(|desk| latest.add(desk.take_recorder()));
        so_far.add(latest.clone());
        look(&RunProgress { so_far, latest: &latest, elapsed: self.start.elapsed(), is_ending });
    }
}

/// The main function of a thread.
fn work<E: Engine>(
    engine: E,
    stage: RunSpec,
    seat: ThreadShare,
    reins: RunControl,
    desk: Arc<RecorderSlot>,
    gate: &StartBarrier,
    say: &Sender<ThreadMessage>,
) {
    // The receiver exists as long as the run.
    let worker = match LoadThread::prepare(engine, stage, seat, reins, desk) {
        Ok(worker) => worker,
        Err(failure) => {
            let _ = say.send(ThreadMessage::Failed(failure));
            return;
        }
    };
    let _ = say.send(ThreadMessage::Ready);
    let Some(start) = gate.pass() else { return };
    let _ = say.send(ThreadMessage::Finished(worker.run(start)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_dealt_out_evenly_and_none_is_lost() {
        for (users, threads) in [(1, 1), (7, 3), (2, 8), (64, 2)] {
            let seats: Vec<_> = ThreadPlan { users, threads }.shares().collect();
            assert_eq!(seats.iter().map(|seat| seat.users).sum::<usize>(), users);
            let (least, most) =
                (seats.iter().map(|s| s.users).min(), seats.iter().map(|s| s.users).max());
            assert!(
                least.unwrap() >= 1 && most.unwrap() - least.unwrap() <= 1,
                "{users} {threads}"
            );
        }
    }
}
