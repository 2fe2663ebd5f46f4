//! Carries a run out: threads for its users, one clock for all, and one place where what they record
//! comes together.

use crate::failure::Failure;
use crate::recorder::Recorder;
use crate::schedule::Load;
use crate::server::{Consumed, Server};
use crate::worker::{Cost, Engine, Reins, Seat, Stage, Worker};
use anyhow::{Result, anyhow, bail};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Between the last thread that is ready and the first request: longer than it takes to wake them.
const RUN_UP: Duration = Duration::from_millis(20);
/// The live view is drawn so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Users and threads.
#[derive(Clone, Copy, Debug)]
pub struct Crew {
    /// Users.
    pub users: usize,
    /// Threads that they are dealt out to.
    pub threads: usize,
}

impl Crew {
    fn seats(self) -> impl Iterator<Item = Seat> {
        let threads = self.threads.clamp(1, self.users.max(1));
        (0..threads).map(move |thread| Seat {
            thread,
            threads,
            users: self.users / threads + usize::from(thread < self.users % threads),
            users_in_all: self.users,
        })
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What the users met with.
    pub recorder: Recorder,
    /// The time that the figures are of.
    pub measured: Duration,
    /// The time that they were to be of.
    pub planned: Duration,
    /// What each thread cost.
    pub threads: Vec<Cost>,
    /// What the server did meanwhile, if it was looked at.
    pub server: Option<Consumed>,
    /// Somebody ended the run before its time.
    pub interrupted: bool,
    /// Whether requests blocked the threads, which then are busy with the requests themselves.
    pub blocks: bool,
}

/// How a run goes, for a live view.
#[derive(Debug)]
pub struct Sight<'r> {
    /// Everything measured so far.
    pub so_far: &'r Recorder,
    /// What came since the last sight.
    pub latest: &'r Recorder,
    /// Since the first request.
    pub elapsed: Duration,
}

enum Word {
    Ready,
    Failed(Failure),
    Recorded(Box<Recorder>),
    Over(Result<Cost, std::io::Error>),
}

/// Where threads wait until all are ready.
#[derive(Default)]
struct Gate {
    start: Mutex<Option<Option<Instant>>>,
    opened: Condvar,
}

impl Gate {
    /// Lets everybody start at that time, or go home.
    fn open(&self, start: Option<Instant>) {
        *self.start.lock().unwrap_or_else(PoisonError::into_inner) = Some(start);
        self.opened.notify_all();
    }

    fn pass(&self) -> Option<Instant> {
        let mut start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(start) = *start {
                return start;
            }
            start = self.opened.wait(start).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Carries `stage` out with engines that `make` makes, one for each thread, until it is over or stopped.
/// Everything measured has been shown to `look` in the end.
pub fn carry_out<'r, E: Engine>(
    stage: Stage,
    crew: Crew,
    server: Option<&Server>,
    reins: impl Into<Reins<'r>>,
    make: impl Fn(Seat) -> Result<E> + Sync,
    mut look: impl FnMut(&Sight<'_>),
) -> Result<Outcome> {
    let reins = reins.into();
    let gate = Gate::default();
    let (say, heard) = mpsc::channel();
    let crew = if E::BLOCKS { Crew { threads: crew.users, ..crew } } else { crew };
    let (blocks, planned) = (E::BLOCKS, stage.duration);
    let mut outcome = Outcome { blocks, planned, ..Outcome::default() };
    thread::scope(|scope| {
        let mut running = 0;
        for seat in crew.seats() {
            let (say, gate, make) = (say.clone(), &gate, &make);
            let spawned = thread::Builder::new()
                .name(format!("users-{}", seat.thread))
                .spawn_scoped(scope, move || work(stage, seat, reins, gate, make, &say));
            if let Err(error) = spawned {
                gate.open(None);
                bail!("cannot start thread {}: {error}", seat.thread + 1);
            }
            running += 1;
        }
        drop(say);
        for _ in 0..running {
            match heard.recv() {
                Ok(Word::Ready) => {}
                Ok(Word::Failed(failure)) => {
                    gate.open(None);
                    bail!("{failure}");
                }
                _ => {
                    gate.open(None);
                    bail!("a thread has ended before the run");
                }
            }
        }
        let start = Instant::now() + RUN_UP;
        gate.open(Some(start));
        let measured_from = start + stage.warm_up;
        // What the server had cost when the figures began.
        let (mut before, mut begun) = (None, false);
        let mut latest = Recorder::default();
        let mut next_look = start;
        while running > 0 {
            let mut wait = LOOK_EVERY;
            if let (Some(server), false) = (server, begun) {
                let left = measured_from.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    begun = true;
                    before = server.consumed().ok();
                } else {
                    wait = wait.min(left);
                }
            }
            match heard.recv_timeout(wait) {
                Ok(Word::Recorded(recorded)) => {
                    latest.add((*recorded).clone());
                    outcome.recorder.add(*recorded);
                }
                Ok(Word::Over(cost)) => {
                    outcome.threads.push(cost.map_err(|error| anyhow!("epoll: {error}"))?);
                    running -= 1;
                }
                Ok(Word::Ready | Word::Failed(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= next_look || running == 0 {
                next_look += LOOK_EVERY;
                let elapsed = start.elapsed();
                look(&Sight { so_far: &outcome.recorder, latest: &latest, elapsed });
                latest = Recorder::default();
            }
        }
        outcome.interrupted = reins.stop.load(Ordering::Relaxed);
        let ended = Instant::now();
        let planned = measured_from + stage.duration;
        // An open loop that is behind ends later than planned, and its rate is that of the whole time.
        let end = match stage.load {
            _ if outcome.interrupted => ended,
            Load::Closed { .. } => planned,
            Load::Open(_) => ended.max(planned),
        };
        outcome.measured = end.saturating_duration_since(measured_from);
        if let (Some(server), Some(before)) = (server, before) {
            // One that has ended meanwhile tells nothing any more.
            outcome.server = server.consumed().ok().map(|after| after.since(before));
        }
        Ok(())
    })?;
    Ok(outcome)
}

/// What a thread does.
fn work<E: Engine>(
    stage: Stage,
    seat: Seat,
    reins: Reins<'_>,
    gate: &Gate,
    make: &(impl Fn(Seat) -> Result<E> + Sync),
    say: &Sender<Word>,
) {
    // Whoever hears is gone only when the run is.
    let ready = match make(seat) {
        Ok(engine) => Worker::prepare(engine, stage, seat, reins),
        Err(error) => Err(Failure::Setup(format!("{error:#}"))),
    };
    let worker = match ready {
        Ok(worker) => worker,
        Err(failure) => {
            let _ = say.send(Word::Failed(failure));
            return;
        }
    };
    let _ = say.send(Word::Ready);
    let Some(start) = gate.pass() else { return };
    let cost = worker.run(start, |recorded| {
        let _ = say.send(Word::Recorded(Box::new(recorded)));
    });
    let _ = say.send(Word::Over(cost));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_dealt_out_evenly_and_none_is_lost() {
        for (users, threads) in [(1, 1), (7, 3), (2, 8), (64, 2)] {
            let seats: Vec<_> = Crew { users, threads }.seats().collect();
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
